//! Compares two layouts of a tenant, to explain why the tenant was reconfigured.

use super::Layout;
use sluice_model::{BranchName, ProjectName};
use std::collections::{BTreeMap, BTreeSet};

/// The difference between a layout and the one before it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LayoutChanges {
    /// Branches that are new or gone, or whose configuration changed, by project and name.
    pub branches: Vec<(ProjectName, BranchName)>,
    /// Whether the main configuration of the tenant or the connections changed.
    pub main_config_changed: bool,
}

impl LayoutChanges {
    /// Returns whether nothing changed.
    pub fn is_empty(&self) -> bool {
        self.branches.is_empty() && !self.main_config_changed
    }
}

impl Layout {
    /// Returns the changes since the layout `before`: the branches that are new or gone or whose
    /// files changed, sorted by project and name, and whether the tenant's main configuration or
    /// the connections changed. Overlays of both layouts count. A project that only one of the
    /// layouts has counts as a change of the main configuration; its branches are not listed. The
    /// order of files makes no difference.
    pub fn changes_since(&self, before: &Self) -> LayoutChanges {
        let (new, old) = (self.contents(), before.contents());
        let names: BTreeSet<_> = new.keys().chain(old.keys()).copied().collect();
        let is_of_both = |project: &ProjectName| {
            let is_known = |layout: &Self| layout.base.inputs.project(project).is_some();
            is_known(self) && is_known(before)
        };
        let changed = names.into_iter().filter(|name| new.get(name) != old.get(name));
        let branches = changed.filter(|(project, _)| is_of_both(project));
        let (inputs, inputs_before) = (&self.base.inputs, &before.base.inputs);
        LayoutChanges {
            branches: branches.map(|(project, branch)| (project.clone(), branch.clone())).collect(),
            main_config_changed: inputs.tenant != inputs_before.tenant
                || inputs.connections != inputs_before.connections,
        }
    }

    /// Returns the content hashes of each branch's files in effect, with the overlay applied, by
    /// project and branch. Branches that are known to the layout but have no files have an empty
    /// set.
    fn contents(&self) -> BTreeMap<(&ProjectName, &BranchName), BTreeSet<&str>> {
        let mut contents: BTreeMap<_, BTreeSet<&str>> = BTreeMap::new();
        for (project, branches) in &self.base.inputs.branches {
            contents.extend(branches.iter().map(|branch| ((project, branch), BTreeSet::new())));
        }
        for (_, file) in self.files() {
            let source = file.source();
            contents
                .entry((&source.project, &source.branch))
                .or_default()
                .insert(&file.fragment.hash);
        }
        contents
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::LayoutSources;
    use crate::tenant::TenantProject;
    use crate::{Connections, Source, SourceFile, TenantConfig, Trust, fragment};
    use std::sync::Arc;

    fn layout(
        projects: &[&str],
        branches: &[(&str, &[&str])],
        files: &[(&str, &str, &str)],
    ) -> Layout {
        let mut tenant = TenantConfig::new("one");
        let project =
            |name: &&str| TenantProject::new("github", ProjectName::from(*name), Trust::Untrusted);
        tenant.projects = projects.iter().map(project).collect();
        let file = |(project, branch, text): &(&str, &str, &str)| {
            let source = Source {
                connection: "github".into(),
                project: ProjectName::from(*project),
                branch: (*branch).into(),
                path: ".zuul.yaml".to_owned(),
                trust: Trust::Untrusted,
            };
            Arc::new(fragment::parse(&SourceFile { source, text: (*text).to_owned() }))
        };
        let names = |list: &[&str]| list.iter().map(|name| (*name).into()).collect();
        Layout::build(LayoutSources {
            tenant,
            connections: Connections::new(),
            branches: branches
                .iter()
                .map(|(project, list)| (ProjectName::from(*project), names(list)))
                .collect(),
            fragments: files.iter().map(file).collect(),
        })
    }

    fn changes(new: &Layout, old: &Layout) -> (Vec<String>, bool) {
        let changed = new.changes_since(old);
        (
            changed
                .branches
                .iter()
                .map(|(project, branch)| format!("{project}@{branch}"))
                .collect(),
            changed.main_config_changed,
        )
    }

    /// C01: the cause of a reconfiguration names the branches that changed, are new or are gone.
    #[test]
    fn only_changed_branches_are_listed() {
        let (job, other) = ("- job: {name: a}", "- job: {name: b}");
        let both: &[&str] = &["h/p", "h/q"];
        let old =
            layout(both, &[("h/p", &["main", "old"]), ("h/q", &["main"])], &[("h/p", "main", job)]);
        assert!(old.changes_since(&old).is_empty());
        let edited = layout(
            both,
            &[("h/p", &["main", "old"]), ("h/q", &["main"])],
            &[("h/p", "main", other)],
        );
        assert_eq!(changes(&edited, &old), (vec!["h/p@main".to_owned()], false));
        let files = [("h/p", "main", job), ("h/q", "main", job)];
        let branched = layout(both, &[("h/p", &["main", "new"]), ("h/q", &["main"])], &files);
        let names = ["h/p@new", "h/p@old", "h/q@main"].map(str::to_owned);
        assert_eq!(changes(&branched, &old), (names.into(), false));
        // The same holds after the layout was stored and decoded.
        let opened = Layout::from_bytes(&old.to_bytes()).unwrap();
        assert!(
            opened.changes_since(&old).is_empty()
                && changes(&branched, &opened) == changes(&branched, &old)
        );
    }

    /// C01: a project that is added or removed is a change of the main configuration.
    #[test]
    fn an_added_or_removed_project_is_a_main_configuration_change() {
        let old = layout(&["h/p"], &[("h/p", &["main"])], &[]);
        let with = [("h/q", "main", "- job: {name: a}")];
        let new = layout(&["h/p", "h/q"], &[("h/p", &["main"]), ("h/q", &["main"])], &with);
        for (new, old) in [(&new, &old), (&old, &new)] {
            assert_eq!(changes(new, old), (Vec::new(), true));
        }
    }
}
