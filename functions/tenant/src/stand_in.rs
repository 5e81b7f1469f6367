//! The live layout in the place of a record that cannot be read any more: what it has of a project
//! counts until the project's forge gives it anew. A damaged record and a silent forge together
//! must not take a project's configuration away.

use crate::Tenants;
use crate::read::nothing;
use sluice_config::fragment;
use sluice_config::layout::Layout;
use sluice_config::tenant::{TenantConfig, TenantProject};
use sluice_model::git::Oid;
use sluice_model::{BranchName, ProjectName};
use sluice_records::tenant::{BranchSource, ProjectSource, Tenant};
use std::collections::{BTreeMap, BTreeSet};

/// Stands for the object with a branch's files, of which only the live layout is left. Nobody
/// fetches it while that is there.
const IN_THE_LAYOUT: &str = "layouts/files/only-in-the-live-layout";

impl Tenants {
    /// Puts what the live layout has of `damaged` projects among what is known of them. Returns
    /// those that it cannot say anything of, although the tenant has them: they are lost.
    pub(crate) async fn stand_in(
        &self,
        config: &TenantConfig,
        head: &Tenant,
        known: &mut BTreeMap<ProjectName, ProjectSource>,
        damaged: BTreeSet<ProjectName>,
    ) -> BTreeSet<ProjectName> {
        // Of a tenant that comes back everything is read anew, as of one that was never read.
        if damaged.is_empty() || head.layout.live == 0 || head.is_removed {
            return BTreeSet::new();
        }
        let Some(live) = self.taken_over(head).await else { return damaged };
        for project in config.projects.iter().filter(|project| damaged.contains(&project.name)) {
            // One that the live layout does not have was never live, so nothing is lost.
            if live.project(project.name.as_str()).is_some() {
                tracing::error!(tenant = %config.name, project = %project.name, "the live layout stands in for what was read of a project");
                known.insert(project.name.clone(), of_layout(&live, project));
            }
        }
        BTreeSet::new()
    }
}

/// Returns what a layout has of a project as if it had been read: with another name for what the
/// tenant says of it and without commits, so that it is read again as soon as its forge answers.
fn of_layout(layout: &Layout, project: &TenantProject) -> ProjectSource {
    // In the layout's order: its default branch first.
    let mut branches: Vec<(BranchName, Vec<&str>)> =
        layout.branches(&project.name).into_iter().map(|branch| (branch, Vec::new())).collect();
    for file in layout.fragments().iter().filter(|file| file.source.project == project.name) {
        match branches.iter_mut().find(|(branch, _)| *branch == file.source.branch) {
            Some((_, hashes)) => hashes.push(&file.hash),
            None => branches.push((file.source.branch.clone(), vec![&file.hash])),
        }
    }
    let branches = branches.into_iter().map(|(branch, hashes)| BranchSource {
        branch,
        commit: Oid(String::new()),
        files: (!hashes.is_empty()).then(|| IN_THE_LAYOUT.to_owned()),
        content: (!hashes.is_empty()).then(|| fragment::content(hashes)),
        read: true,
        // It counts, or the layout would not have it.
        is_protected: Some(true),
        is_locked: Some(false),
    });
    ProjectSource { branches: branches.collect(), ..nothing(project) }
}
