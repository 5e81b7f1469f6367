//! Replaces unreadable source records by what the live layout has of the project, until the forge
//! answers. A damaged record and an unreachable forge together must not remove a project's
//! configuration.

use crate::Tenants;
use crate::read::nothing;
use sluice_config::fragment;
use sluice_config::layout::Layout;
use sluice_config::tenant::{TenantConfig, TenantProject};
use sluice_model::git::Oid;
use sluice_model::{BranchName, ProjectName};
use sluice_records::tenant::{BranchSource, ProjectSource, Tenant};
use std::collections::{BTreeMap, BTreeSet};

/// Placeholder for the object with a branch's files that only the live layout still has. It is
/// never fetched while the layout exists.
const ONLY_IN_LAYOUT: &str = "layouts/files/only-in-the-live-layout";

impl Tenants {
    /// Adds what the live layout has of `damaged` projects to `known`, and returns no project. If
    /// that layout cannot be read, or another version of Sluice parsed it, adds nothing and returns
    /// all of them as lost. A project that the live layout lacks is neither added nor lost. Does
    /// nothing for a tenant that was never live or was removed.
    pub(crate) async fn fall_back_to_layout(
        &self,
        config: &TenantConfig,
        head: &Tenant,
        known: &mut BTreeMap<ProjectName, ProjectSource>,
        damaged: BTreeSet<ProjectName>,
    ) -> BTreeSet<ProjectName> {
        // A tenant that returns, or was never live, reads everything again.
        if damaged.is_empty() || head.layout.live == 0 || head.is_removed {
            return BTreeSet::new();
        }
        let Some(live) = self.reusable_layout(head).await else { return damaged };
        for project in config.projects.iter().filter(|project| damaged.contains(&project.name)) {
            // A project that the live layout lacks was never live, so nothing is lost.
            if live.project(project.name.as_str()).is_some() {
                tracing::error!(tenant = %config.name, project = %project.name, "a project's source record is unreadable: its configuration comes from the live layout");
                known.insert(project.name.clone(), of_layout(&live, project));
            }
        }
        BTreeSet::new()
    }
}

/// Returns a project's part of a layout as a source record. Its parameters' digest differs and it
/// has no commits, so that it is read again as soon as its forge answers.
fn of_layout(layout: &Layout, project: &TenantProject) -> ProjectSource {
    // In the layout's order: the default branch first.
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
        files: (!hashes.is_empty()).then(|| ONLY_IN_LAYOUT.to_owned()),
        content: (!hashes.is_empty()).then(|| fragment::content_hash(hashes)),
        is_read: true,
        // It is not excluded, or the layout would not have it.
        is_protected: Some(true),
        is_locked: Some(false),
    });
    ProjectSource { branches: branches.collect(), ..nothing(project) }
}
