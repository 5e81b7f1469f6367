//! What a layout asks for and this system does not carry out yet: told while the configuration is looked at, not by a job that fails.
//!
//! The README's table says the same for people who have no configuration yet; keep both true.

use super::Layout;
use super::alternatives::in_line;
use crate::error::{ConfigError, Problem, ProblemKind};
use crate::fragment::Source;
use crate::objects::{JobStanza, NodesetBody, NodesetRef, Place, Stanza};
use crate::pipeline::{Pipeline, ReporterKind, SUPERSEDES_MAX, TriggerKind};
use sluice_model::job::{JobKind, NodeSet};
use std::collections::BTreeSet;

impl Layout {
    /// Returns a warning for everything that is understood and not carried out, by file and stanza.
    pub fn unserved(&self) -> Vec<ConfigError> {
        let mut found = Found { layout: self, labels: self.labels(), warnings: Vec::new() };
        for fragment in self.fragments() {
            for stanza in fragment.stanzas() {
                found.stanza(stanza, &fragment.source);
            }
        }
        found.warnings.sort();
        found.warnings.dedup();
        found.warnings
    }

    /// Returns every label that some provider offers.
    fn labels(&self) -> BTreeSet<&str> {
        let providers = self.providers().iter();
        providers
            .flat_map(|provider| {
                let own = provider.labels.iter().map(|label| label.name.as_str());
                own.chain(provider.nodes.iter().flat_map(|node| node.labels.iter().map(String::as_str)))
            })
            .collect()
    }
}

struct Found<'l> {
    layout: &'l Layout,
    labels: BTreeSet<&'l str>,
    warnings: Vec<ConfigError>,
}

impl<'l> Found<'l> {
    fn stanza(&mut self, stanza: &'l Stanza, source: &Source) {
        match stanza {
            Stanza::Pipeline(stanza) => {
                if let Some(pipeline) = self.layout.pipeline(&stanza.name) {
                    self.pipeline(pipeline, source, stanza.place);
                }
            }
            Stanza::Project(project) | Stanza::ProjectTemplate(project) => {
                for job in project.pipelines.values().flat_map(|jobs| &jobs.jobs) {
                    self.job(job, source);
                }
            }
            Stanza::Job(job) => self.job(job, source),
            Stanza::Nodeset(nodeset) => {
                self.nodeset(&nodeset.body, &format!("nodeset {}", nodeset.name), source, nodeset.place);
            }
            Stanza::Secret(secret) if secret.oidc.is_some() => {
                let message = "tokens are not issued yet: jobs that use this secret end as CONFIG_ERROR".to_owned();
                self.warn(&format!("secret {}", secret.name), "oidc", source, secret.place, message);
            }
            _ => {}
        }
    }

    fn warn(&mut self, stanza: &str, attribute: &str, source: &Source, place: Place, message: String) {
        let problem = Problem::new(ProblemKind::NotServed, place.start, place.end, message);
        self.warnings.push(source.error(problem.in_stanza(stanza).about(attribute).as_warning()));
    }

    fn pipeline(&mut self, pipeline: &Pipeline, source: &Source, place: Place) {
        let stanza = format!("pipeline {}", pipeline.name);
        for trigger in &pipeline.triggers {
            if let Some(what) = unserved_trigger(&trigger.kind) {
                let message =
                    format!("{what} not carried out yet: the pipeline {} is never started by this", pipeline.name);
                self.warn(&stanza, "trigger", source, place, message);
            }
        }
        let reporters = &pipeline.reporters;
        let all = [&reporters.start, &reporters.success, &reporters.failure, &reporters.merge_conflict];
        let more =
            [&reporters.enqueue, &reporters.no_jobs, &reporters.dequeue, &reporters.config_error, &reporters.disabled];
        for reporter in all.into_iter().chain(more).flatten() {
            let is_served = matches!(
                reporter.kind,
                ReporterKind::GitHub(_) | ReporterKind::Smtp { .. } | ReporterKind::Mqtt { .. }
            );
            if !is_served {
                let message =
                    format!("nothing is reported to {} yet: its driver only reads so far", reporter.connection);
                self.warn(&stanza, "reporters", source, place, message);
            }
        }
        if pipeline.supersedes.len() > SUPERSEDES_MAX {
            let message =
                format!("only the first {SUPERSEDES_MAX} of the pipelines that it supersedes lose what enters it");
            self.warn(&stanza, "supersedes", source, place, message);
        }
    }

    fn job(&mut self, job: &'l JobStanza, source: &Source) {
        let stanza = format!("job {}", job.name);
        if job.run_time.kind == Some(JobKind::Reporter) {
            let message = "jobs that run after the reports are not carried out yet: this one is not run".to_owned();
            self.warn(&stanza, "type", source, job.place, message);
        }
        if let Some(NodesetRef::Inline(body)) = &job.nodeset {
            self.nodeset(body, &stanza, source, job.place);
        }
    }

    fn nodeset(&mut self, body: &'l NodesetBody, stanza: &str, source: &Source, place: Place) {
        let mut find = |name: &str| self.layout.nodeset(name).map(|found| &found.object.body);
        // One that comes to more than anybody could want is an error already.
        let Ok(found) = in_line(None, body, &mut find) else { return };
        let missing_of = |set: &NodeSet| -> BTreeSet<String> {
            let labels = set.nodes.iter().map(|node| node.label.as_str());
            labels.filter(|label| !self.labels.contains(*label)).map(str::to_owned).collect()
        };
        let missing: Vec<BTreeSet<String>> = found.sets.iter().map(|set| missing_of(set)).collect();
        // One alternative that can be had is enough.
        if missing.iter().any(BTreeSet::is_empty) {
            return;
        }
        let missing: BTreeSet<String> = missing.into_iter().flatten().collect();
        for label in missing {
            let message = format!("no provider of the tenant offers {label}: jobs that need it end as NODE_FAILURE");
            self.warn(stanza, "nodes.label", source, place, message);
        }
    }
}

/// Returns what of a trigger is not carried out, with its verb; `None` for a trigger that is.
fn unserved_trigger(kind: &TriggerKind) -> Option<&'static str> {
    match kind {
        TriggerKind::GitHub(_) | TriggerKind::Timer(_) => None,
        TriggerKind::Gerrit(_) => Some("Gerrit's triggers are"),
        TriggerKind::GitLab(_) => Some("GitLab's triggers are"),
        TriggerKind::Git(_) => Some("triggers of plain git servers are"),
        TriggerKind::Zuul(zuul) if zuul.event.iter().any(|event| event.starts_with("image-")) => {
            Some("Zuul's image events are")
        }
        TriggerKind::Zuul(_) => None,
        TriggerKind::Other(_) => Some("triggers of this driver are"),
    }
}
