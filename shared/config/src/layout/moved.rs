//! What became another one between two layouts of a tenant, for people who ask why it was
//! configured anew.

use super::Layout;
use sluice_model::{BranchName, ProjectName};
use std::collections::{BTreeMap, BTreeSet};

/// What a layout has otherwise than the one before.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Moved {
    /// Branches whose configuration is another one, that are new, or gone; by project and name.
    pub branches: Vec<(ProjectName, BranchName)>,
    /// Whether what the main configuration says of the tenant, or the connections, are others.
    pub is_main: bool,
}

impl Moved {
    /// Returns whether nothing is otherwise.
    pub fn is_empty(&self) -> bool {
        self.branches.is_empty() && !self.is_main
    }
}

impl Layout {
    /// Returns what is otherwise than in the layout `before`. Of a project that only one of them
    /// has the main configuration is the cause, and no branch is named.
    pub fn moved_since(&self, before: &Self) -> Moved {
        let (new, old) = (self.contents(), before.contents());
        let names: BTreeSet<_> = new.keys().chain(old.keys()).copied().collect();
        let is_of_both = |project: &ProjectName| {
            let is_known = |layout: &Self| layout.base.ground.project(project).is_some();
            is_known(self) && is_known(before)
        };
        let moved = names.into_iter().filter(|name| new.get(name) != old.get(name));
        let branches = moved.filter(|(project, _)| is_of_both(project));
        let (ground, ground_before) = (&self.base.ground, &before.base.ground);
        Moved {
            branches: branches.map(|(project, branch)| (project.clone(), branch.clone())).collect(),
            is_main: ground.tenant != ground_before.tenant
                || ground.connections != ground_before.connections,
        }
    }

    /// Returns what each branch comes to; nothing where it is only there.
    fn contents(&self) -> BTreeMap<(&ProjectName, &BranchName), BTreeSet<&str>> {
        let mut contents: BTreeMap<_, BTreeSet<&str>> = BTreeMap::new();
        for (project, branches) in &self.base.ground.branches {
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

    fn told(new: &Layout, old: &Layout) -> (Vec<String>, bool) {
        let moved = new.moved_since(old);
        (
            moved.branches.iter().map(|(project, branch)| format!("{project}@{branch}")).collect(),
            moved.is_main,
        )
    }

    /// C01: which branch is why a tenant is configured anew: one whose files are others, one that
    /// is new, one that is gone.
    #[test]
    fn a_branch_that_is_otherwise_is_named_and_no_other() {
        let (job, other) = ("- job: {name: a}", "- job: {name: b}");
        let both: &[&str] = &["h/p", "h/q"];
        let old =
            layout(both, &[("h/p", &["main", "old"]), ("h/q", &["main"])], &[("h/p", "main", job)]);
        assert!(old.moved_since(&old).is_empty());
        let edited = layout(
            both,
            &[("h/p", &["main", "old"]), ("h/q", &["main"])],
            &[("h/p", "main", other)],
        );
        assert_eq!(told(&edited, &old), (vec!["h/p@main".to_owned()], false));
        let files = [("h/p", "main", job), ("h/q", "main", job)];
        let branched = layout(both, &[("h/p", &["main", "new"]), ("h/q", &["main"])], &files);
        let names = ["h/p@new", "h/p@old", "h/q@main"].map(str::to_owned);
        assert_eq!(told(&branched, &old), (names.into(), false));
        // Stored and opened again it says the same.
        let opened = Layout::from_bytes(&old.to_bytes()).unwrap();
        assert!(
            opened.moved_since(&old).is_empty()
                && told(&branched, &opened) == told(&branched, &old)
        );
    }

    /// C01: a project that comes or goes does so by the main configuration.
    #[test]
    fn a_project_of_one_of_them_is_the_main_configurations_doing() {
        let old = layout(&["h/p"], &[("h/p", &["main"])], &[]);
        let with = [("h/q", "main", "- job: {name: a}")];
        let new = layout(&["h/p", "h/q"], &[("h/p", &["main"]), ("h/q", &["main"])], &with);
        for (new, old) in [(&new, &old), (&old, &new)] {
            assert_eq!(told(new, old), (Vec::new(), true));
        }
    }
}
