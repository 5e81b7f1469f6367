//! Playbooks that are not there: the one of a job's name, and those that a change has jobs name
//! (Z4.9).

use crate::error::{ConfigError, Problem, ProblemKind};
use crate::fragment::Fragment;
use crate::layout::{BranchConfig, Defined, Layout};
use crate::objects::{JobStanza, Stanza};
use crate::tenant::included_project;
use sluice_model::job::{FrozenJob, Playbook, playbook_files};
use std::collections::BTreeSet;
use std::sync::Arc;

/// A playbook that a job of a branch names; it lies in the same branch.
#[derive(Debug, Clone)]
pub struct NamedPlaybook<'l> {
    /// What the job calls it.
    pub name: &'l str,
    /// Whether the job did not name it before.
    pub is_new: bool,
    defined: Defined<'l, JobStanza>,
    attribute: &'static str,
    /// Which one of the attribute's it is.
    number: usize,
}

impl NamedPlaybook<'_> {
    /// Returns what is told where there is none; at the definition that names it.
    pub fn missing(&self) -> ConfigError {
        let (source, job) = (self.defined.source(), self.defined.object);
        let message = format!(
            "There is no playbook \"{}\" in {}@{}: looked for it with .yaml and .yml too, at the root and below playbooks/",
            self.name,
            source.project.name(),
            source.branch
        );
        let place =
            job.places.of_member(self.attribute, &self.number.to_string()).unwrap_or(job.place);
        let problem = Problem::new(ProblemKind::UnknownName, place.start, place.end, message);
        let problem =
            problem.in_stanza(&format!("job {}", job.name)).from_stanza_at(job.place.start);
        source.error(problem.about(self.attribute))
    }
}

impl Layout {
    /// Returns the playbooks that the jobs of a branch name, each once, as this layout has the
    /// branch. `before` is the layout in which nothing of it was proposed.
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
        let mut known = BTreeSet::new();
        for name in names {
            let already: BTreeSet<&str> = defined_in(before, name, config)
                .flat_map(|defined| named(defined.object))
                .map(|(_, _, path)| path)
                .collect();
            for defined in defined_in(self, name, config) {
                for (attribute, number, path) in named(defined.object) {
                    if known.insert(path) {
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

    /// Returns what is told of a job without `run` for which no playbook is where one could be; at
    /// the definition that is nearest. `None` where the layout has no definition of it, as for what
    /// is built in.
    pub fn without_playbook(&self, job: &FrozenJob) -> Option<ConfigError> {
        let nearest = job.run.first();
        let is_nearest = |defined: &Defined<'_, JobStanza>| {
            let source = defined.source();
            nearest.is_some_and(|playbook| {
                (&source.project, &source.branch) == (&playbook.project, &playbook.branch)
            })
        };
        let mut definitions = self.jobs(job.name.as_str());
        let defined =
            self.jobs(job.name.as_str()).find(is_nearest).or_else(|| definitions.next())?;
        let place = |playbook: &Playbook| match playbook.project == included_project() {
            true => format!(
                "{} below playbooks/ beside the main configuration and in the tenant's config projects",
                playbook.path
            ),
            false => {
                format!("{} in {}@{}", playbook.path, playbook.project.name(), playbook.branch)
            }
        };
        let looked: Vec<String> = job.run.iter().map(place).collect();
        let forms = playbook_files("NAME").join(", ");
        let message = format!(
            "Job {} has no \"run\", and there is no playbook of its name or of a parent's: looked for {} (as {forms})",
            job.name,
            looked.join(", ")
        );
        let place = defined.object.place;
        let problem = Problem::new(ProblemKind::UnknownName, place.start, place.end, message);
        Some(defined.source().error(problem.in_stanza(&format!("job {}", job.name)).about("run")))
    }

    /// Returns what is told of a job that has playbooks, roles or files of variables of included
    /// files (Z2.5) where nothing lies beside those, in a tenant that has no config project where
    /// they could be; at the job's first definition. `None` where the layout has none.
    pub fn without_config_project(&self, job: &FrozenJob) -> Option<ConfigError> {
        let defined = self.jobs(job.name.as_str()).next()?;
        let message = format!(
            "Job {} has playbooks of files that the tenant includes, and neither playbooks/ nor roles/ lies beside the main configuration: those are looked for in the tenant's config projects, and it has none that can be read",
            job.name
        );
        let place = defined.object.place;
        let problem = Problem::new(ProblemKind::UnknownName, place.start, place.end, message);
        Some(defined.source().error(problem.in_stanza(&format!("job {}", job.name)).about("run")))
    }
}

/// Returns a warning for each playbook that a job of included files names and that does not lie
/// beside those (Z2.5): a config project may have it, which one tenant has and another one has not
/// (Z4.9). `has` tells which files lie there.
pub fn not_beside(files: &[Arc<Fragment>], has: impl Fn(&str) -> bool) -> Vec<ConfigError> {
    let mut found = Vec::new();
    for file in files {
        for stanza in file.stanzas() {
            let Stanza::Job(job) = stanza else { continue };
            for (attribute, number, path) in named(job) {
                if playbook_files(path).iter().any(|candidate| has(candidate)) {
                    continue;
                }
                let message = format!(
                    "There is no playbook \"{path}\" below playbooks/ beside the main configuration: it is looked for in the config projects of each tenant that includes this file, and where none has it the job ends as CONFIG_ERROR"
                );
                let place =
                    job.places.of_member(attribute, &number.to_string()).unwrap_or(job.place);
                let problem =
                    Problem::new(ProblemKind::UnknownName, place.start, place.end, message);
                let problem =
                    problem.in_stanza(&format!("job {}", job.name)).from_stanza_at(job.place.start);
                found.push(file.source.error(problem.about(attribute).as_warning()));
            }
        }
    }
    found
}

/// Returns the definitions of a job in a branch that count there.
fn defined_in<'l>(
    layout: &'l Layout,
    name: &str,
    config: &BranchConfig,
) -> impl Iterator<Item = Defined<'l, JobStanza>> {
    let is_own = |defined: &Defined<'l, JobStanza>| {
        let source = defined.source();
        (&source.project, &source.branch) == (&config.project, &config.branch)
    };
    layout.jobs(name).filter(is_own)
}

/// Returns the playbooks that a definition names, with the attribute that does and the number
/// there.
fn named(job: &JobStanza) -> impl Iterator<Item = (&'static str, usize, &str)> {
    let lists = [("pre-run", &job.pre_run), ("run", &job.run), ("post-run", &job.post_run)];
    lists.into_iter().flat_map(|(attribute, list)| {
        let list = list.iter().flatten().enumerate();
        list.map(move |(number, playbook)| (attribute, number, playbook.path.as_str()))
    })
}
