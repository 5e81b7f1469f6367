//! Reports missing playbooks: those that a change makes jobs name, and the implied playbook of a
//! job without `run` (Z4.9).

use crate::error::{ConfigError, Diagnostic, DiagnosticKind};
use crate::fragment::Fragment;
use crate::layout::{BranchConfig, Definition, Layout};
use crate::objects::{JobStanza, Stanza};
use crate::tenant::included_project;
use sluice_model::job::{FrozenJob, Playbook, playbook_files};
use std::collections::BTreeSet;
use std::sync::Arc;

/// A playbook that a job names, in the branch that defines the job.
#[derive(Debug, Clone)]
pub struct NamedPlaybook<'l> {
    /// The path in the job definition.
    pub name: &'l str,
    /// Whether the change added the path to the job.
    pub is_new: bool,
    defined: Definition<'l, JobStanza>,
    attribute: &'static str,
    /// Its index in the attribute.
    number: usize,
}

impl NamedPlaybook<'_> {
    /// Builds the error that says that the playbook does not exist, located at the definition that
    /// names it. The caller has checked that no candidate file exists; nothing is checked here.
    pub fn missing_error(&self) -> ConfigError {
        let (source, job) = (self.defined.source(), self.defined.object);
        let message = format!(
            "Playbook \"{}\" was not found in {}@{}; also searched with .yaml and .yml, at the \
             root and in playbooks/",
            self.name,
            source.project.name(),
            source.branch
        );
        let span =
            job.spans.of_member(self.attribute, &self.number.to_string()).unwrap_or(job.span);
        let diagnostic =
            Diagnostic::new(DiagnosticKind::UnknownName, span.start, span.end, message);
        let diagnostic =
            diagnostic.in_stanza(&format!("job {}", job.name)).from_stanza_at(job.span.start);
        source.error(diagnostic.about(self.attribute))
    }
}

impl Layout {
    /// Returns the playbooks in `pre-run`, `run` and `post-run` of the jobs that `config` defines,
    /// as this layout has these jobs in the project and branch of `config`. The caller has applied
    /// `config` to this layout. Each path appears once, even if several jobs name it: with the
    /// first job by name, which alone decides whether the path is new. `before` is the layout
    /// without the proposed change: a path is new if the job's definitions on that branch did not
    /// name it there. Implied playbooks are left out, and whether files exist is not checked.
    pub fn named_playbooks<'l>(
        &'l self,
        config: &BranchConfig,
        before: &Layout,
    ) -> Vec<NamedPlaybook<'l>> {
        let names: BTreeSet<&str> = config
            .fragments
            .iter()
            .flat_map(|fragment| fragment.stanzas())
            .filter_map(|stanza| match stanza {
                Stanza::Job(job) => Some(job.name.as_str()),
                _ => None,
            })
            .collect();
        let mut found: Vec<NamedPlaybook<'l>> = Vec::new();
        let mut seen = BTreeSet::new();
        for name in names {
            let already: BTreeSet<&str> = defined_in(before, name, config)
                .flat_map(|defined| named(defined.object))
                .map(|(_, _, path)| path)
                .collect();
            for defined in defined_in(self, name, config) {
                for (attribute, number, path) in named(defined.object) {
                    if seen.insert(path) {
                        let is_new = !already.contains(path);
                        found.push(NamedPlaybook {
                            name: path,
                            is_new,
                            defined,
                            attribute,
                            number,
                        });
                    }
                }
            }
        }
        found
    }

    /// Builds the error that says that no implied playbook of a job exists. The caller has checked
    /// that no definition of the job names a playbook in `run`, and that none of the implied ones
    /// in `job.run` exists; nothing is checked here. The error points to the definition in the
    /// project and branch of the first playbook in `job.run`, or else to the first definition.
    /// `None` if the layout does not define the job, as for built-in jobs.
    pub fn missing_playbook_error(&self, job: &FrozenJob) -> Option<ConfigError> {
        let nearest = job.run.first();
        let is_nearest = |defined: &Definition<'_, JobStanza>| {
            let source = defined.source();
            nearest.is_some_and(|playbook| {
                (&source.project, &source.branch) == (&playbook.project, &playbook.branch)
            })
        };
        let mut definitions = self.jobs(job.name.as_str());
        let defined =
            self.jobs(job.name.as_str()).find(is_nearest).or_else(|| definitions.next())?;
        let describe = |playbook: &Playbook| match playbook.project == included_project() {
            true => format!(
                "{} in playbooks/ next to the main configuration and in the tenant's config \
                 projects",
                playbook.path
            ),
            false => {
                format!("{} in {}@{}", playbook.path, playbook.project.name(), playbook.branch)
            }
        };
        let searched: Vec<String> = job.run.iter().map(describe).collect();
        let forms = playbook_files("NAME").join(", ");
        let message = format!(
            "Job {} has no \"run\", and no playbook with its name or an ancestor's was found; \
             searched {} (as {forms})",
            job.name,
            searched.join(", ")
        );
        let span = defined.object.span;
        let diagnostic =
            Diagnostic::new(DiagnosticKind::UnknownName, span.start, span.end, message);
        Some(
            defined.source().error(diagnostic.in_stanza(&format!("job {}", job.name)).about("run")),
        )
    }

    /// Builds the error for a job that uses playbooks, roles or variables files of the files that
    /// the main configuration includes (Z2.5), if no playbooks or roles are next to the main
    /// configuration and no config project could have them. The caller has checked that; nothing is
    /// checked here. The error points to the job's first definition; `None` if the layout does not
    /// define the job.
    pub fn missing_config_project_error(&self, job: &FrozenJob) -> Option<ConfigError> {
        let defined = self.jobs(job.name.as_str()).next()?;
        let message = format!(
            "Job {} uses playbooks of included files, but there is no playbooks/ or roles/ \
             directory next to the main configuration, and the tenant has no readable config \
             project to search instead",
            job.name
        );
        let span = defined.object.span;
        let diagnostic =
            Diagnostic::new(DiagnosticKind::UnknownName, span.start, span.end, message);
        Some(
            defined.source().error(diagnostic.in_stanza(&format!("job {}", job.name)).about("run")),
        )
    }
}

/// Returns a warning for each entry in `pre-run`, `run` and `post-run` of a job in `files`, the
/// included files (Z2.5), whose playbook does not exist next to the main configuration, under any
/// of the candidate names. `has` returns whether a file exists at a path relative to the main
/// configuration's directory. Implied playbooks are not checked. A file that `files` has twice gets
/// its warnings twice.
///
/// It may exist in a config project, which some tenants may have and others not (Z4.9).
pub fn missing_included_playbooks(
    files: &[Arc<Fragment>],
    has: impl Fn(&str) -> bool,
) -> Vec<ConfigError> {
    let mut found = Vec::new();
    for file in files {
        for stanza in file.stanzas() {
            let Stanza::Job(job) = stanza else { continue };
            for (attribute, number, path) in named(job) {
                if playbook_files(path).iter().any(|candidate| has(candidate)) {
                    continue;
                }
                let message = format!(
                    "Playbook \"{path}\" was not found in playbooks/ next to the main \
                     configuration: it is searched in the config projects of each tenant that \
                     includes this file, and if none has it the job ends with CONFIG_ERROR"
                );
                let span = job.spans.of_member(attribute, &number.to_string()).unwrap_or(job.span);
                let diagnostic =
                    Diagnostic::new(DiagnosticKind::UnknownName, span.start, span.end, message);
                let diagnostic = diagnostic
                    .in_stanza(&format!("job {}", job.name))
                    .from_stanza_at(job.span.start);
                found.push(file.source.error(diagnostic.about(attribute).as_warning()));
            }
        }
    }
    found
}

/// Returns the definitions of a job that `layout` has in the project and branch of `config`. Only
/// that project and branch of `config` count; its files are ignored.
fn defined_in<'l>(
    layout: &'l Layout,
    name: &str,
    config: &BranchConfig,
) -> impl Iterator<Item = Definition<'l, JobStanza>> {
    let is_own = |defined: &Definition<'l, JobStanza>| {
        let source = defined.source();
        (&source.project, &source.branch) == (&config.project, &config.branch)
    };
    layout.jobs(name).filter(is_own)
}

/// Returns the playbooks that a definition names, each as its attribute (`pre-run`, `run` or
/// `post-run`), its index in that list, and its path as written.
fn named(job: &JobStanza) -> impl Iterator<Item = (&'static str, usize, &str)> {
    let lists = [("pre-run", &job.pre_run), ("run", &job.run), ("post-run", &job.post_run)];
    lists.into_iter().flat_map(|(attribute, list)| {
        let list = list.iter().flatten().enumerate();
        list.map(move |(number, playbook)| (attribute, number, playbook.path.as_str()))
    })
}
