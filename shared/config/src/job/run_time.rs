//! Applies attributes that only matter at run time, and resolves their project names.

use super::apply::{JobBuilder, Origin, set};
use crate::objects::{Combine, Combined, IncludeVarsRef, JobStanza, Selector};
use sluice_model::job::{IncludeVars, RequiredProject, VarsSource, WorkspaceCheckout};
use sluice_model::{BranchName, ProjectName};
use std::collections::BTreeSet;

impl JobBuilder<'_> {
    /// Applies the attributes of a definition that only matter at run time, for example `type`,
    /// `workspace` and `include-vars`; `preserve-home-paths` is applied with the playbooks.
    /// `failure-output`, `include-projects`, `exclude-projects` and `include-vars` add to the
    /// values of earlier definitions, each value once, unless they have the tag `!override`. Of the
    /// other attributes, a set value replaces the one before. A variables file without a project is
    /// one of `origin`. Unknown projects, and variables files of unknown projects, are left out
    /// without an error.
    pub(super) fn run_time(&mut self, from: &JobStanza, origin: &Origin<'_>) {
        let from = &from.run_time;
        let job = &mut self.job.run_time;
        job.kind = from.kind.unwrap_or(job.kind);
        set(&mut job.failure_url, from.failure_url.clone());
        set(&mut job.success_url, from.success_url.clone());
        job.hold_following_changes =
            from.hold_following_changes.unwrap_or(job.hold_following_changes);
        job.deduplicate = from.deduplicate.unwrap_or(job.deduplicate);
        job.secret_exposure = from.secret_exposure.unwrap_or(job.secret_exposure);
        set(&mut job.ansible_split_streams, from.ansible_split_streams);
        job.workspace_checkout =
            from.workspace_checkout.map_or(job.workspace_checkout, WorkspaceCheckout);
        set(&mut job.workspace, from.workspace.clone());
        set(&mut job.host, from.host.clone());
        if let Some(given) = &from.failure_output {
            if !given.adds(Combine::Inherit) {
                job.failure_output.clear();
            }
            for expression in &given.value {
                if !job.failure_output.contains(expression) {
                    job.failure_output.push(expression.clone());
                }
            }
        }
        if let Some(given) = &from.include_projects {
            let before = self.job.run_time.include_projects.take().unwrap_or_default();
            self.job.run_time.include_projects = Some(self.selected(before, given));
        }
        if let Some(given) = &from.exclude_projects {
            let before = std::mem::take(&mut self.job.run_time.exclude_projects);
            self.job.run_time.exclude_projects = self.selected(before, given);
        }
        if let Some(given) = &from.include_vars {
            if !given.adds(Combine::Inherit) {
                self.job.run_time.include_vars.clear();
            }
            for file in &given.value {
                let Some(found) = self.vars_file(file, origin) else { continue };
                let files = &mut self.job.run_time.include_vars;
                if !files.contains(&found) {
                    files.push(found);
                }
            }
        }
    }

    /// Returns the projects in `before`, which earlier definitions selected, followed by the
    /// projects that the selectors in `given` name and that are not in `before`. If `given` has the
    /// tag `!override`, the projects in `before` are dropped. Selectors without a name, and
    /// projects that the tenant does not have, add none and are no error.
    fn selected(
        &self,
        mut before: Vec<ProjectName>,
        given: &Combined<Vec<Selector>>,
    ) -> Vec<ProjectName> {
        if !given.adds(Combine::Inherit) {
            before.clear();
        }
        let names = given.value.iter().filter_map(|selector| selector.name.as_deref());
        let mut selected: BTreeSet<ProjectName> = before.iter().cloned().collect();
        for found in names.filter_map(|name| self.layout.project(name)) {
            if selected.insert(found.name.clone()) {
                before.push(found.name.clone());
            }
        }
        before
    }

    /// Returns a variables file with its project resolved. This is the project of the change for
    /// `zuul-project`, else the named project, without a branch, else the project and branch of the
    /// definition's own file, `origin`. `None` if the named project is unknown or its short name is
    /// ambiguous. The commit is left empty.
    fn vars_file(&self, file: &IncludeVarsRef, origin: &Origin<'_>) -> Option<IncludeVars> {
        let source = match &file.project {
            _ if file.zuul_project => VarsSource::OfChange,
            Some(name) => {
                let found = self.layout.project(name)?;
                let (connection, project) = (found.connection.clone(), found.name.clone());
                VarsSource::Project(RequiredProject {
                    connection,
                    project,
                    override_checkout: None,
                })
            }
            None => VarsSource::Project(RequiredProject {
                connection: origin.source.connection.clone(),
                project: origin.source.project.clone(),
                override_checkout: Some(BranchName(origin.source.branch.as_str().to_owned())),
            }),
        };
        let (name, required, use_ref) = (file.name.clone(), file.required, file.use_ref);
        Some(IncludeVars { name, source, required, use_ref, commit: None })
    }
}
