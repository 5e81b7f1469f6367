//! A job that would run the playbook of its name, and there is none (Z4.9).

use crate::error::{ConfigError, Problem, ProblemKind};
use crate::layout::{Defined, Layout};
use crate::objects::JobStanza;
use sluice_model::job::{FrozenJob, playbook_files};

impl Layout {
    /// Returns what is told of a job without `run` for which no playbook is where one could be; at the definition that is nearest.
    /// `None` where the layout has no definition of it, as for what is built in.
    pub fn without_playbook(&self, job: &FrozenJob) -> Option<ConfigError> {
        let nearest = job.run.first();
        let is_nearest = |defined: &Defined<'_, JobStanza>| {
            let source = defined.source();
            nearest.is_some_and(|playbook| (&source.project, &source.branch) == (&playbook.project, &playbook.branch))
        };
        let mut definitions = self.jobs(job.name.as_str());
        let defined = self.jobs(job.name.as_str()).find(is_nearest).or_else(|| definitions.next())?;
        let looked: Vec<String> = job
            .run
            .iter()
            .map(|playbook| format!("{} in {}@{}", playbook.path, playbook.project.name(), playbook.branch))
            .collect();
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
}
