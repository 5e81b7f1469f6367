//! What a layout asks for and this system does not carry out yet: told while the configuration is
//! looked at, not by a job that fails.
//!
//! The README's lists say the same for people who have no configuration yet; keep both true.

mod parts;

use super::Layout;
use super::alternatives::in_line;
use super::providers::is_built;
use crate::error::{ConfigError, Problem, ProblemKind};
use crate::fragment::Source;
use crate::layout::ProviderConfig;
use crate::objects::{JobStanza, NodesetBody, NodesetRef, Place, ProviderObject, Stanza};
use crate::pipeline::{Pipeline, ReporterKind, SUPERSEDES_MAX, TriggerKind};
use crate::tenant::{Access, MainConfig, TenantConfig};
use crate::yaml::Mark;
use sluice_model::job::NodeSet;
use std::collections::BTreeSet;

impl Layout {
    /// Returns a warning for everything that is understood and not carried out, by file and stanza.
    pub fn unserved(&self) -> Vec<ConfigError> {
        let mut found = Found { layout: self, labels: self.labels(), warnings: Vec::new() };
        found.warnings.extend(self.tenant().unserved("main.yaml"));
        for fragment in self.fragments() {
            let project =
                self.base.ground.project(&fragment.source.project).map(|(_, project)| project);
            let is_read = |stanza: &&Stanza| match (stanza.kind(), project) {
                (Some(kind), Some(project)) => !project.leaves_out(kind),
                _ => true,
            };
            for stanza in fragment.stanzas().filter(is_read) {
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
                own.chain(
                    provider.nodes.iter().flat_map(|node| node.labels.iter().map(String::as_str)),
                )
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
                self.nodeset(
                    &nodeset.body,
                    &format!("nodeset {}", nodeset.name),
                    source,
                    nodeset.place,
                );
            }
            Stanza::Secret(secret) if secret.oidc.is_some() => {
                let message =
                    "tokens are not issued yet: jobs that use this secret end as CONFIG_ERROR"
                        .to_owned();
                self.warn(
                    &format!("secret {}", secret.name),
                    "oidc",
                    source,
                    secret.place,
                    message,
                );
            }
            Stanza::Image(image) => {
                self.object("image", image, source);
                if is_built(image) {
                    let message =
                        "images are not built yet: requests for labels that need this one fail"
                            .to_owned();
                    self.warn(
                        &format!("image {}", image.name),
                        "type",
                        source,
                        image.place,
                        message,
                    );
                }
            }
            Stanza::Flavor(flavor) => self.object("flavor", flavor, source),
            Stanza::Label(label) => self.object("label", label, source),
            Stanza::Section(section) => self.object("section", section, source),
            Stanza::Provider(provider) => {
                self.object("provider", provider, source);
                self.section_quota(provider, source);
            }
            _ => {}
        }
    }

    /// Tells what of an image, flavor, label, section or provider no machine is launched by.
    fn object(&mut self, kind: &str, object: &ProviderObject, source: &Source) {
        for attribute in parts::of_object(kind, object) {
            let place = object.places.of(attribute).unwrap_or(object.place);
            let message = format!(
                "\"{attribute}\" is not carried out yet: nodes are made as if it were not there"
            );
            self.warn(&format!("{kind} {}", object.name), attribute, source, place, message);
        }
        let uncounted = parts::uncounted(object);
        if !uncounted.is_empty() {
            let place = ["resource-limits", "quota"].iter().find_map(|name| object.places.of(name));
            let message = format!(
                "limits of {} are not counted yet: only those of instances are",
                uncounted.join(", ")
            );
            let stanza = format!("{kind} {}", object.name);
            self.warn(&stanza, "resource-limits", source, place.unwrap_or(object.place), message);
        }
    }

    /// Tells of limits that providers share by their section (L3.11).
    fn section_quota(&mut self, object: &ProviderObject, source: &Source) {
        let providers = self.layout.providers();
        let Some(own) = providers.iter().find(|provider| provider.name.as_str() == object.name)
        else {
            return;
        };
        let Some(shared) = &own.section_quota else { return };
        let same = |other: &&ProviderConfig| {
            other.section_quota.as_ref().is_some_and(|quota| quota.section == shared.section)
        };
        let count = providers.iter().filter(same).count();
        if count > 1 {
            let message = format!(
                "the limits of section {} count for each of its {count} providers by itself so far: together they may use {count} times as much",
                shared.section
            );
            self.warn(
                &format!("provider {}", object.name),
                "section",
                source,
                object.place,
                message,
            );
        }
    }

    fn warn(
        &mut self,
        stanza: &str,
        attribute: &str,
        source: &Source,
        place: Place,
        message: String,
    ) {
        let problem = Problem::new(ProblemKind::NotServed, place.start, place.end, message);
        self.warnings.push(source.error(problem.in_stanza(stanza).about(attribute).as_warning()));
    }

    fn pipeline(&mut self, pipeline: &Pipeline, source: &Source, place: Place) {
        let stanza = format!("pipeline {}", pipeline.name);
        for trigger in &pipeline.triggers {
            if let Some(what) = unserved_trigger(&trigger.kind) {
                let message = format!(
                    "{what} not carried out yet: the pipeline {} is never started by this",
                    pipeline.name
                );
                self.warn(&stanza, "trigger", source, place, message);
            }
            let events = if let TriggerKind::Zuul(zuul) = &trigger.kind {
                zuul.event.as_slice()
            } else {
                &[]
            };
            for message in events.iter().filter_map(|event| untold(event, pipeline)) {
                self.warn(&stanza, "trigger", source, place, message);
            }
        }
        let reporters = &pipeline.reporters;
        let all =
            [&reporters.start, &reporters.success, &reporters.failure, &reporters.merge_conflict];
        let more = [
            &reporters.enqueue,
            &reporters.no_jobs,
            &reporters.dequeue,
            &reporters.config_error,
            &reporters.disabled,
        ];
        for reporter in all.into_iter().chain(more).flatten() {
            let is_served = matches!(
                reporter.kind,
                ReporterKind::GitHub(_) | ReporterKind::Smtp { .. } | ReporterKind::Mqtt { .. }
            );
            if !is_served {
                let message = format!(
                    "nothing is reported to {} yet: its driver only reads so far",
                    reporter.connection
                );
                self.warn(&stanza, "reporters", source, place, message);
            }
        }
        if pipeline.allow_parameters {
            let message =
                "not carried out yet: an enqueue by hand carries no parameters".to_owned();
            self.warn(&stanza, "allow-parameters", source, place, message);
        }
        if pipeline.supersedes.len() > SUPERSEDES_MAX {
            let message = format!(
                "only the first {SUPERSEDES_MAX} of the pipelines that it supersedes lose what enters it"
            );
            self.warn(&stanza, "supersedes", source, place, message);
        }
    }

    fn job(&mut self, job: &'l JobStanza, source: &Source) {
        let stanza = format!("job {}", job.name);
        for (attribute, place, message) in parts::of_job(job) {
            self.warn(&stanza, attribute, source, place, message);
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
            let message = format!(
                "no provider of the tenant offers {label}: jobs that need it end as NODE_FAILURE"
            );
            self.warn(stanza, "nodes.label", source, place, message);
        }
    }
}

impl TenantConfig {
    /// Returns a warning for everything that the tenants' file says of this one and that is not
    /// carried out. `path` is the file's.
    pub fn unserved(&self, path: &str) -> Vec<ConfigError> {
        let said = [
            (
                "web-root",
                self.web_root.is_some(),
                "links lead to the system's own address so far".to_owned(),
            ),
            (
                "report-build-page",
                self.report_build_page,
                "\"report-build-page\": not carried out yet: reports link jobs to their logs"
                    .to_owned(),
            ),
        ];
        let own = format!("tenant {}", self.name);
        let told = said
            .into_iter()
            .filter(|(_, is_said, _)| *is_said)
            .map(|(attribute, _, message)| (own.as_str(), attribute, message));
        let of_access = unenforced(&self.access).map(|attribute| {
            let message = format!(
                "\"{attribute}\": not carried out yet: the pages and the API show the tenant to whoever reaches them, and only operators' commands change anything"
            );
            (own.as_str(), attribute, message)
        });
        told.chain(of_access)
            .map(|(stanza, attribute, message)| of_main(path, stanza, attribute, message))
            .collect()
    }
}

impl MainConfig {
    /// Returns a warning for everything that the tenants' file says of what belongs to no tenant
    /// and that is not carried out; what it says of each is [`TenantConfig::unserved`]. `path` is
    /// the file's.
    pub fn unserved(&self, path: &str) -> Vec<ConfigError> {
        let of_root = unenforced(&self.api_root).map(|attribute| {
            let message = format!(
                "\"{attribute}\": not carried out yet: the API shows the list of tenants, and what else belongs to none, to whoever reaches it"
            );
            of_main(path, "api-root", attribute, message)
        });
        of_root.collect()
    }
}

/// Returns a warning of a stanza of the tenants' file.
fn of_main(path: &str, stanza: &str, attribute: &str, message: String) -> ConfigError {
    ConfigError {
        connection: "".into(),
        project: "".into(),
        branch: "".into(),
        path: path.to_owned(),
        problem: Problem::new(ProblemKind::NotServed, Mark(1, 1), Mark(1, 1), message)
            .in_stanza(stanza)
            .about(attribute)
            .as_warning(),
    }
}

/// Returns the attributes that say who may see or do what: nobody is asked who he is yet.
fn unenforced(access: &Access) -> impl Iterator<Item = &'static str> {
    let said = [
        ("access-rules", !access.access_rules.is_empty()),
        ("anonymous-read-access", access.anonymous_read_access == Some(false)),
        ("authentication-realm", access.authentication_realm.is_some()),
        ("role-mappings", !access.role_mappings.is_empty()),
        ("admin-rules", !access.admin_rules.is_empty()),
    ];
    said.into_iter().filter(|(_, is_said)| *is_said).map(|(attribute, _)| attribute)
}

/// Returns what of a trigger is not carried out, with its verb; `None` for a trigger that is.
fn unserved_trigger(kind: &TriggerKind) -> Option<&'static str> {
    match kind {
        TriggerKind::GitHub(_) | TriggerKind::Timer(_) => None,
        TriggerKind::Gerrit(_) => Some("Gerrit's triggers are"),
        TriggerKind::GitLab(_) => Some("GitLab's triggers are"),
        TriggerKind::Git(_) => Some("triggers of plain git servers are"),
        TriggerKind::Zuul(_) => None,
        TriggerKind::Other(_) => Some("triggers of this driver are"),
    }
}

/// Returns what is told of an event that a pipeline waits for and that comes less often than it
/// will, or never.
fn untold(event: &str, pipeline: &Pipeline) -> Option<String> {
    let name = &pipeline.name;
    match event {
        "image-build" => Some(format!(
            "no missing image has itself built yet: of image-build the pipeline {name} hears by `sluice image build` alone"
        )),
        "image-validate" | "image-delete" => Some(format!(
            "nothing tells of {event} yet: the pipeline {name} is never started by this"
        )),
        _ => None,
    }
}
