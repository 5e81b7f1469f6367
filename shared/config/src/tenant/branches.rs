//! Decides which branches of a project are loaded, and which only accept proposed configuration
//! (Z2.2).
//!
//! The repository reader, the layout and the overlay all use these rules.

use super::{TenantConfig, TenantProject};
use crate::Pattern;

/// The facts about a branch. An unknown fact (`None`) excludes nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BranchFacts<'a> {
    /// Its name.
    pub name: &'a str,
    /// Whether it is the default branch at the forge.
    pub is_default: Option<bool>,
    /// Whether it is protected at the forge.
    pub is_protected: Option<bool>,
    /// Whether it is locked at the forge.
    pub is_locked: Option<bool>,
}

impl<'a> BranchFacts<'a> {
    /// Returns a branch of which only the name is known.
    pub fn named(name: &'a str) -> Self {
        Self { name, is_default: None, is_protected: None, is_locked: None }
    }
}

impl TenantConfig {
    /// Returns whether configuration is loaded from a branch. If `load-branch` is set, this is only
    /// that branch, whatever else is set. Otherwise it is each branch that is not excluded (by
    /// name, protection or lock) and not always-dynamic; in a config project only the default
    /// branch, or one of which this is unknown.
    pub fn reads_branch(&self, project: &TenantProject, branch: &BranchFacts<'_>) -> bool {
        if let Some(only) = &project.load_branch {
            return branch.name == only;
        }
        if project.trust.is_trusted() && branch.is_default == Some(false) {
            return false;
        }
        self.is_included(project, branch) && !project.is_always_dynamic(branch.name)
    }

    /// Returns whether a branch belongs to the tenant: jobs run for it, even if no configuration is
    /// loaded from it. False for an excluded branch (by name, protection or lock) and an
    /// always-dynamic one. `load-branch` and the default branch do not matter.
    pub fn counts_branch(&self, project: &TenantProject, branch: &BranchFacts<'_>) -> bool {
        self.is_included(project, branch) && !project.is_always_dynamic(branch.name)
    }

    /// Returns whether configuration that a change to this branch proposes takes effect: on each
    /// branch that is read ([`Self::reads_branch`]), and, without `load-branch`, on an
    /// always-dynamic one that protection and locks do not exclude.
    pub fn takes_proposals(&self, project: &TenantProject, branch: &BranchFacts<'_>) -> bool {
        let is_dynamic = project.load_branch.is_none() && project.is_always_dynamic(branch.name);
        self.reads_branch(project, branch) || is_dynamic && self.allows_protection(project, branch)
    }

    /// Returns whether unprotected branches of a project are excluded: by its own setting, or else
    /// by the tenant's.
    pub fn leaves_out_unprotected(&self, project: &TenantProject) -> bool {
        project.exclude_unprotected_branches.unwrap_or(self.exclude_unprotected_branches)
    }

    /// Returns whether locked branches of a project are excluded: by its own setting, or else by
    /// the tenant's.
    pub fn leaves_out_locked(&self, project: &TenantProject) -> bool {
        project.exclude_locked_branches.unwrap_or(self.exclude_locked_branches)
    }

    /// Returns whether the project's `include-branches` or else its `exclude-branches` (ignored if
    /// the former is set), and the forge's protection and locks, allow a branch. `load-branch`,
    /// `always-dynamic-branches` and the default branch are not considered.
    fn is_included(&self, project: &TenantProject, branch: &BranchFacts<'_>) -> bool {
        // `include-branches` decides by itself: `exclude-branches` is ignored then.
        let is_named = match (&project.include_branches, &project.exclude_branches) {
            (Some(included), _) => matches_whole(included, branch.name),
            (None, Some(excluded)) => !matches_whole(excluded, branch.name),
            (None, None) => true,
        };
        is_named && self.allows_protection(project, branch)
    }

    /// Returns whether the forge's protection and locks allow a branch. False if it is known to be
    /// unprotected or locked, and the settings exclude such branches. An unknown fact excludes
    /// nothing.
    fn allows_protection(&self, project: &TenantProject, branch: &BranchFacts<'_>) -> bool {
        let is_open = branch.is_protected == Some(false) && self.leaves_out_unprotected(project);
        let is_locked = branch.is_locked == Some(true) && self.leaves_out_locked(project);
        !is_open && !is_locked
    }
}

impl TenantProject {
    /// Returns whether the configuration of a branch only applies to changes to it:
    /// `always-dynamic-branches` matches it, and `include-branches`, if set, does not. As in Zuul,
    /// it then counts as excluded elsewhere. `exclude-branches` makes no difference.
    pub fn is_always_dynamic(&self, branch: &str) -> bool {
        let names = |list: &Option<Vec<Pattern>>| {
            list.as_ref().is_some_and(|list| matches_whole(list, branch))
        };
        names(&self.always_dynamic_branches) && !names(&self.include_branches)
    }
}

/// Returns whether one of the patterns matches the whole name of a branch.
fn matches_whole(list: &[Pattern], branch: &str) -> bool {
    list.iter().any(|pattern| pattern.matches_whole(branch))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Connections, Driver, parse_main};

    /// Z2.2: for each attribute of a project and kinds of branches: which are loaded, and which
    /// accept proposals.
    #[test]
    fn each_attribute_decides_which_branches_are_loaded_and_accept_proposals() {
        let facts = |name| BranchFacts::named(name);
        let default =
            |is_default, name| BranchFacts { is_default: Some(is_default), ..facts(name) };
        let open = |name| BranchFacts { is_protected: Some(false), ..facts(name) };
        let guarded = |name| BranchFacts { is_protected: Some(true), ..facts(name) };
        let locked = |name| BranchFacts { is_locked: Some(true), ..facts(name) };
        let dynamic = "always-dynamic-branches: feature/.*";
        // The tenant's attributes, the list, the project's attributes, the branch; whether it is
        // loaded, and whether it accepts proposals.
        let rows = [
            ("", "untrusted", "", facts("x"), (true, true)),
            ("", "untrusted", "", default(false, "x"), (true, true)),
            ("", "config", "", default(true, "x"), (true, true)),
            ("", "config", "", default(false, "master"), (false, false)),
            ("", "config", "load-branch: x", default(false, "x"), (true, true)),
            ("", "config", "load-branch: x", default(true, "master"), (false, false)),
            ("", "untrusted", "load-branch: x", facts("x"), (true, true)),
            ("", "untrusted", "load-branch: x", default(true, "y"), (false, false)),
            ("", "untrusted", "include-branches: x", facts("x"), (true, true)),
            ("", "untrusted", "include-branches: x", facts("xy"), (false, false)),
            ("", "untrusted", "exclude-branches: x", facts("x"), (false, false)),
            ("", "untrusted", "exclude-branches: x", facts("xy"), (true, true)),
            (
                "",
                "untrusted",
                "include-branches: x.*, exclude-branches: xy",
                facts("xy"),
                (true, true),
            ),
            (
                "",
                "untrusted",
                "include-branches: x, exclude-branches: xy",
                facts("xy"),
                (false, false),
            ),
            (
                "",
                "untrusted",
                "include-branches: x, exclude-branches: xy",
                facts("z"),
                (false, false),
            ),
            (
                "",
                "untrusted",
                "include-branches: x, exclude-unprotected-branches: true",
                open("x"),
                (false, false),
            ),
            ("", "untrusted", dynamic, facts("feature/a"), (false, true)),
            ("", "untrusted", dynamic, facts("features"), (true, true)),
            (
                "",
                "untrusted",
                "always-dynamic-branches: f.*, exclude-branches: fo",
                facts("fo"),
                (false, true),
            ),
            (
                "",
                "untrusted",
                "always-dynamic-branches: f.*, include-branches: fo",
                facts("fo"),
                (true, true),
            ),
            (
                "",
                "untrusted",
                "always-dynamic-branches: f.*, include-branches: fo",
                facts("fa"),
                (false, true),
            ),
            (
                "",
                "untrusted",
                "always-dynamic-branches: f.*, include-branches: fo",
                facts("x"),
                (false, false),
            ),
            (
                "",
                "untrusted",
                "always-dynamic-branches: f.*, exclude-unprotected-branches: true",
                open("fo"),
                (false, false),
            ),
            (
                "",
                "untrusted",
                "always-dynamic-branches: f.*, load-branch: x",
                facts("fo"),
                (false, false),
            ),
            ("", "untrusted", "exclude-unprotected-branches: true", open("x"), (false, false)),
            ("", "untrusted", "exclude-unprotected-branches: true", guarded("x"), (true, true)),
            ("", "untrusted", "exclude-unprotected-branches: true", facts("x"), (true, true)),
            ("exclude-unprotected-branches: true", "untrusted", "", open("x"), (false, false)),
            (
                "exclude-unprotected-branches: true",
                "untrusted",
                "exclude-unprotected-branches: false",
                open("x"),
                (true, true),
            ),
            ("exclude-locked-branches: true", "untrusted", "", locked("x"), (false, false)),
            (
                "exclude-locked-branches: true",
                "untrusted",
                "exclude-locked-branches: false",
                locked("x"),
                (true, true),
            ),
            ("", "untrusted", "exclude-locked-branches: true", locked("x"), (false, false)),
            ("", "untrusted", "", locked("x"), (true, true)),
        ];
        let connections = Connections::new().with("github", Driver::GitHub, "github.com");
        for (of_tenant, list, of_project, branch, expected) in rows {
            let sep = if of_tenant.is_empty() { "" } else { ", " };
            let main = format!(
                "- tenant: {{name: one, source: {{github: {{{list}-projects: [org/p: {{{of_project}}}]}}}}{sep}{of_tenant}}}"
            );
            let (config, errors) = parse_main("main.yaml", &main, &connections);
            assert!(errors.is_empty(), "{errors:#?}");
            let tenant = &config.tenants[0];
            let project = &tenant.projects[0];
            let found =
                (tenant.reads_branch(project, &branch), tenant.takes_proposals(project, &branch));
            assert_eq!(found, expected, "{main} {branch:?}");
        }
    }
}
