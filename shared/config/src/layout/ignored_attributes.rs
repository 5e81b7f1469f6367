//! Warns about configuration that Sluice does not support yet, when it is loaded rather than when a
//! job fails.
//!
//! [`list`] has every attribute that a warning may be about. A test writes the tables of
//! `docs/moving-from-zuul.md` from it.

mod list;
mod parts;

pub use list::{IGNORED_ATTRIBUTES, IGNORED_DRIVER_OBJECTS, IgnoredAttribute};

use super::Layout;
use super::flatten_nodesets::flatten;
use super::inputs::{File, identity};
use super::providers::is_built;
use crate::connection::Driver;
use crate::error::{ConfigError, Diagnostic, DiagnosticKind};
use crate::fragment::Source;
use crate::layout::{LabelOffer, LabelOffers, ProviderConfig};
use crate::objects::{
    JobStanza, NodesetBody, NodesetRef, ProjectStanza, ProviderObject, Span, Stanza,
};
use crate::pipeline::{FilterKind, Pipeline, ReporterKind, SUPERSEDES_MAX, TriggerKind};
use crate::tenant::TenantConfig;
use crate::yaml::Mark;
use std::collections::BTreeSet;
use std::sync::Arc;

impl Layout {
    /// Returns a warning for each attribute of the tenant and of its files that Sluice does not
    /// support yet, sorted by file and stanza, without duplicates. Also warns of labels in nodesets
    /// that no provider offers, or that no provider offers together. Stanzas with errors, and kinds
    /// that the tenant excludes for a project, are left out. The tenant's own attributes are shown
    /// in a file `main.yaml`, whatever the main configuration is called.
    pub fn ignored_attributes(&self) -> Vec<ConfigError> {
        let mut found =
            Warnings { layout: self, offers: self.label_offers(), warnings: Vec::new() };
        found.warnings.extend(self.tenant().ignored_attributes("main.yaml"));
        for fragment in self.fragments() {
            let project =
                self.base.inputs.project(&fragment.source.project).map(|(_, project)| project);
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

    /// Returns the warnings about labels of nodesets that a proposed edit adds: that no provider
    /// offers them, or none offers them together. Sorted, without duplicates. Empty without an
    /// overlay. A warning that the replaced files have too is left out.
    pub fn proposed_label_warnings(&self) -> Vec<ConfigError> {
        let Some(overlay) = &self.overlay else { return Vec::new() };
        let before = Self::of(Arc::clone(&self.base));
        let removed = overlay.removed.iter().filter_map(|number| self.base.file(*number));
        let old = before.label_warnings(removed);
        let old: BTreeSet<_> = old.iter().map(identity).collect();
        let mut found = self.label_warnings(overlay.files.iter());
        found.retain(|warning| !old.contains(&identity(warning)));
        found.sort();
        found.dedup();
        found
    }

    /// Returns the warnings about labels of the nodesets in some files.
    fn label_warnings<'f>(&'f self, files: impl Iterator<Item = &'f File>) -> Vec<ConfigError> {
        let mut found =
            Warnings { layout: self, offers: self.label_offers(), warnings: Vec::new() };
        for file in files {
            file.fragment.stanzas().for_each(|stanza| found.stanza(stanza, file.source()));
        }
        found.warnings.retain(|warning| warning.diagnostic.attribute.as_deref() == Some(LABEL));
        found.warnings
    }
}

/// The attribute that warnings about the labels of nodesets name.
const LABEL: &str = "nodes.label";

struct Warnings<'l> {
    layout: &'l Layout,
    offers: LabelOffers<'l>,
    warnings: Vec<ConfigError>,
}

impl<'l> Warnings<'l> {
    /// Adds warnings about the unsupported attributes of a stanza. A pipeline is only checked if
    /// one of its name was accepted; then the warnings are about the accepted one.
    fn stanza(&mut self, stanza: &'l Stanza, source: &Source) {
        match stanza {
            Stanza::Pipeline(stanza) => {
                if let Some(pipeline) = self.layout.pipeline(&stanza.name) {
                    self.pipeline(pipeline, source, stanza.span);
                }
            }
            Stanza::Project(project) | Stanza::ProjectTemplate(project) => {
                self.parameters(stanza, project, source);
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
                    nodeset.span,
                );
            }
            Stanza::Queue(queue) if queue.dependencies_by_topic => {
                let message =
                    "\"dependencies-by-topic\" has no effect yet: no supported forge has \
                               topics"
                        .to_owned();
                let (stanza, attribute) =
                    (format!("queue {}", queue.name), "dependencies-by-topic");
                self.warn(&stanza, attribute, source, queue.span, message);
            }
            Stanza::Image(image) => {
                self.object("image", image, source);
                if is_built(image) {
                    let message =
                        "images are not built yet: requests for labels that use this image fail"
                            .to_owned();
                    self.warn(
                        &format!("image {}", image.name),
                        "type",
                        source,
                        image.span,
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

    /// Adds warnings about attributes of an image, flavor, label, section or provider (`kind`) that
    /// do not affect nodes, and about limits other than those of instances.
    fn object(&mut self, kind: &str, object: &ProviderObject, source: &Source) {
        for attribute in parts::of_object(kind, object) {
            let span = object.spans.of(attribute).unwrap_or(object.span);
            let message = format!("\"{attribute}\" is {}", list::NO_EFFECT);
            self.warn(&format!("{kind} {}", object.name), attribute, source, span, message);
        }
        let is_static = matches!(kind, "section" | "provider") && self.is_static(kind, object);
        for attribute in parts::of_static_nodes(object).into_iter().filter(|_| is_static) {
            let span = object.spans.of(attribute).unwrap_or(object.span);
            let message =
                format!("\"{attribute}\" has no effect on static nodes: {}", list::OF_CLOUD_NODES);
            self.warn(&format!("{kind} {}", object.name), attribute, source, span, message);
        }
        let uncounted = parts::uncounted(object);
        if !is_static && !uncounted.is_empty() {
            let span = ["resource-limits", "quota"].iter().find_map(|name| object.spans.of(name));
            let message = format!(
                "limits of {} are not enforced yet: only those of instances are",
                uncounted.join(", ")
            );
            let stanza = format!("{kind} {}", object.name);
            self.warn(&stanza, "resource-limits", source, span.unwrap_or(object.span), message);
        }
    }

    /// Returns whether a section or provider (`kind`) has static nodes: a provider without a
    /// connection, and a section that sets its connection to null or to one of the static driver,
    /// or that has nodes. `false` for an invalid provider.
    fn is_static(&self, kind: &str, object: &ProviderObject) -> bool {
        let driver = |name: &str| self.layout.connections().driver(name);
        let is_static =
            |name: Option<&str>| name.is_none_or(|name| driver(name) == Some(Driver::Static));
        if kind == "provider" {
            let mut providers = self.layout.providers().iter();
            let found = providers.find(|provider| provider.name.as_str() == object.name);
            return found.is_some_and(|found| self.layout.has_static_nodes(found));
        }
        match object.attributes.get("connection") {
            Some(connection) => is_static(connection.as_str()),
            None => object.attributes.contains_key("nodes"),
        }
    }

    /// Adds a warning for each pipeline of a project or template that has parameters.
    fn parameters(&mut self, stanza: &Stanza, project: &ProjectStanza, source: &Source) {
        let kind = match stanza {
            Stanza::ProjectTemplate(_) => "project-template",
            _ => "project",
        };
        for (pipeline, _) in
            project.pipelines.iter().filter(|(_, jobs)| !jobs.parameters.is_empty())
        {
            let message = format!(
                "parameters of manual enqueues are not supported yet: those in {pipeline} have no \
                 effect"
            );
            let stanza = format!("{kind} {}", project.name.as_deref().unwrap_or_default());
            self.warn(stanza.trim_end(), "parameters", source, project.span, message);
        }
    }

    /// Adds a warning if a provider shares the limits of its section with other providers (L3.11):
    /// these limits then apply to each provider separately. An invalid provider is not checked.
    fn section_quota(&mut self, object: &ProviderObject, source: &Source) {
        let providers = self.layout.providers();
        let Some(name) = providers.iter().find(|provider| provider.name.as_str() == object.name)
        else {
            return;
        };
        let Some(shared) = &name.section_quota else { return };
        let same = |other: &&ProviderConfig| {
            other.section_quota.as_ref().is_some_and(|quota| quota.section == shared.section)
        };
        let count = providers.iter().filter(same).count();
        if count > 1 {
            let message = format!(
                "the limits of section {} apply to each of its {count} providers separately, not \
                 to all of them together: they can use {count} times as much",
                shared.section
            );
            self.warn(
                &format!("provider {}", object.name),
                "section",
                source,
                object.span,
                message,
            );
        }
    }

    /// Adds a warning about an attribute of a stanza. The attribute must be in the list of ignored
    /// attributes; a debug build panics if it is not. `stanza` is the keyword and name, such as
    /// `job unit`.
    fn warn(
        &mut self,
        stanza: &str,
        attribute: &str,
        source: &Source,
        span: Span,
        message: String,
    ) {
        debug_assert!(list::is_listed(stanza, attribute), "{stanza}: {attribute} is not listed");
        self.push(stanza, attribute, source, span, message);
    }

    /// Adds a warning about an attribute of a stanza. Unlike with `warn`, the attribute need not be
    /// in the list of ignored attributes. `stanza` is its keyword and name, such as `job unit`.
    fn push(
        &mut self,
        stanza: &str,
        attribute: &str,
        source: &Source,
        span: Span,
        message: String,
    ) {
        let diagnostic =
            Diagnostic::new(DiagnosticKind::Unsupported, span.start, span.end, message);
        self.warnings
            .push(source.error(diagnostic.in_stanza(stanza).about(attribute).as_warning()));
    }

    /// Adds warnings about what is not supported in a pipeline: triggers and their events,
    /// reporters, parameters of manual enqueues, and too many superseded pipelines.
    fn pipeline(&mut self, pipeline: &Pipeline, source: &Source, span: Span) {
        let stanza = format!("pipeline {}", pipeline.name);
        for trigger in &pipeline.triggers {
            if let Some(triggers) = unsupported_trigger(&trigger.kind) {
                let message = format!(
                    "{triggers} not supported yet: this trigger never starts pipeline {}",
                    pipeline.name
                );
                self.warn(&stanza, "trigger", source, span, message);
            }
            let events = if let TriggerKind::Zuul(zuul) = &trigger.kind {
                zuul.event.as_slice()
            } else {
                &[]
            };
            for message in events.iter().filter_map(|event| unsent_event(event, pipeline)) {
                self.warn(&stanza, "trigger", source, span, message);
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
            let is_supported = matches!(
                reporter.kind,
                ReporterKind::GitHub(_) | ReporterKind::Smtp { .. } | ReporterKind::Mqtt { .. }
            );
            if !is_supported {
                let message = format!(
                    "reporting to {} is not supported yet: its driver can only read",
                    reporter.connection
                );
                self.warn(&stanza, "reporters", source, span, message);
            }
        }
        for (attribute, filters) in [("require", &pipeline.require), ("reject", &pipeline.reject)] {
            for filter in filters.iter().filter(|one| !matches!(one.kind, FilterKind::GitHub(_))) {
                let message = format!(
                    "requirements for changes of {} are not supported yet: no change of it is read",
                    filter.connection
                );
                self.warn(&stanza, attribute, source, span, message);
            }
        }
        if pipeline.allow_parameters {
            let message = "parameters of manual enqueues are not supported yet".to_owned();
            self.warn(&stanza, "allow-parameters", source, span, message);
        }
        if pipeline.supersedes.len() > SUPERSEDES_MAX {
            let message = format!(
                "at most {SUPERSEDES_MAX} superseded pipelines are supported: the others keep \
                 changes that enter this pipeline"
            );
            self.warn(&stanza, "supersedes", source, span, message);
        }
    }

    /// Adds warnings about the unsupported attributes of a job definition or entry, and about
    /// labels of its inline nodeset that no provider offers. A named nodeset is checked where it is
    /// defined, not here.
    fn job(&mut self, job: &'l JobStanza, source: &Source) {
        let stanza = format!("job {}", job.name);
        for (attribute, span, message) in parts::of_job(job) {
            self.warn(&stanza, attribute, source, span, message);
        }
        if let Some(NodesetRef::Inline(body)) = &job.nodeset {
            self.nodeset(body, &stanza, source, job.span);
        }
    }

    /// Adds a warning for each label of a nodeset that no provider offers, and for the labels of
    /// each alternative that are only at several providers. Adds none if one provider offers all
    /// labels of one alternative, or if the nodeset is too large to flatten, which is an error
    /// elsewhere. `stanza` is the keyword and name of the stanza that has the nodeset.
    fn nodeset(&mut self, body: &'l NodesetBody, stanza: &str, source: &Source, span: Span) {
        let mut find = |name: &str| self.layout.nodeset(name).map(|found| &found.object.body);
        // A nodeset that is too large is reported as an error elsewhere.
        let Ok(found) = flatten(None, body, &mut find) else { return };
        let (mut missing, mut split) = (BTreeSet::new(), BTreeSet::new());
        for set in &found.sets {
            let offer = self.offers.offer(set.nodes.iter().map(|node| node.label.as_str()));
            match &offer {
                // One available alternative is enough.
                _ if set.nodes.is_empty() => return,
                LabelOffer::Provider(_) => return,
                LabelOffer::Missing(labels) => missing.extend(labels.iter().cloned()),
                LabelOffer::Split(_) => split.extend(offer.refusal()),
            }
        }
        let missing = missing.iter().map(|label| {
            let what = format!("no provider of the tenant offers label {label}");
            format!("{what}: jobs that need it end with NODE_FAILURE")
        });
        let split = split
            .iter()
            .map(|refusal| format!("{refusal}; jobs with these nodes end with NODE_FAILURE"));
        for message in missing.chain(split) {
            self.push(stanza, LABEL, source, span, message);
        }
    }
}

impl TenantConfig {
    /// Returns a warning for each unsupported attribute that the main configuration sets for the
    /// tenant to something other than its default. `path` is the path of that file, as the warnings
    /// show it; all are located at its first line.
    pub fn ignored_attributes(&self, path: &str) -> Vec<ConfigError> {
        let settings = [
            (
                "web-root",
                self.web_root.is_some(),
                "\"web-root\" is not supported yet: links use the system's own address".to_owned(),
            ),
            (
                "report-build-page",
                self.report_build_page == Some(false),
                "\"report-build-page\": reports always link jobs to the pages of their builds"
                    .to_owned(),
            ),
        ];
        let name = format!("tenant {}", self.name);
        let warnings = settings
            .into_iter()
            .filter(|(_, is_set, _)| *is_set)
            .map(|(attribute, _, message)| (name.as_str(), attribute, message));
        warnings
            .map(|(stanza, attribute, message)| main_warning(path, stanza, attribute, message))
            .collect()
    }
}

/// Returns a warning about an attribute of a stanza of the main configuration, located at the first
/// line of the file `path`, wherever the attribute is. The attribute must be in the list of ignored
/// attributes; a debug build panics if it is not.
fn main_warning(path: &str, stanza: &str, attribute: &str, message: String) -> ConfigError {
    debug_assert!(list::is_listed(stanza, attribute), "{stanza}: {attribute} is not listed");
    ConfigError {
        connection: "".into(),
        project: "".into(),
        branch: "".into(),
        path: path.to_owned(),
        diagnostic: Diagnostic::new(DiagnosticKind::Unsupported, Mark(1, 1), Mark(1, 1), message)
            .in_stanza(stanza)
            .about(attribute)
            .as_warning(),
    }
}

/// Returns the beginning of a sentence about the triggers of a driver that is not supported, which
/// the caller ends with "not supported", such as `GitLab triggers are`. `None` for supported
/// triggers.
fn unsupported_trigger(kind: &TriggerKind) -> Option<&'static str> {
    match kind {
        TriggerKind::GitHub(_) | TriggerKind::Git(_) | TriggerKind::Timer(_) => None,
        TriggerKind::Gerrit(_) => Some("Gerrit triggers are"),
        TriggerKind::GitLab(_) => Some("GitLab triggers are"),
        TriggerKind::Zuul(_) => None,
        TriggerKind::Other(_) => Some("triggers of this driver are"),
    }
}

/// Returns the message of a warning for an event of a `zuul` trigger that is never sent, or only in
/// some cases; `None` for other events.
fn unsent_event(event: &str, pipeline: &Pipeline) -> Option<String> {
    let name = &pipeline.name;
    match event {
        "image-build" => Some(format!(
            "missing images are not built automatically yet: only `sluice image build` sends the \
             event image-build to pipeline {name}"
        )),
        "image-validate" | "image-delete" => Some(format!(
            "the event {event} is not sent yet: this trigger never starts pipeline {name}"
        )),
        _ => None,
    }
}
