//! Further checks of a job definition or job list entry before it is frozen: dependencies, image,
//! Ansible version, timeouts, semaphores.

use super::{Check, NOOP, Spans};
use crate::error::{Diagnostic, DiagnosticKind};
use crate::fragment::Source;
use crate::job::freeze::{is_ansible_version, unknown_ansible};
use crate::job::limits::pre_timeout_error;
use crate::layout::Layout;
use crate::layout::symbol_table::StanzaId;
use crate::objects::{JobStanza, ObjectKind};
use std::collections::BTreeSet;

impl Check<'_> {
    /// Reports undefined dependencies, an unsupported Ansible version, an undefined image, a
    /// pre-timeout longer than the timeout, and semaphores that both the job and one of its
    /// playbooks use. Only what this definition or entry itself sets counts. `listed` are the names
    /// of the jobs in the same list, empty for a definition: undefined dependencies among them are
    /// reported where they are listed, not here. Records that the stanza references the image and
    /// the dependencies that are not in `listed`.
    pub(super) fn details(&mut self, job: &JobStanza, listed: &BTreeSet<&str>) {
        let at = Spans { spans: &job.spans, whole: job.span };
        for (number, dependency) in job.dependencies.iter().flat_map(|list| &list.value).enumerate()
        {
            let name = dependency.name.as_str();
            // A soft dependency must be defined too: otherwise its name is wrong.
            if name != NOOP && !listed.contains(name) && !self.names.has(ObjectKind::Job, name) {
                let defined = self.names.defined_names(ObjectKind::Job);
                let message = format!("Job {name} not defined");
                self.unknown(
                    at.member_span("dependencies", number),
                    "dependencies",
                    message,
                    name,
                    defined,
                );
            }
        }
        if let Some(version) =
            job.ansible_version.as_deref().filter(|version| !is_ansible_version(version))
        {
            let span = at.attribute_span("ansible-version");
            let diagnostic = Diagnostic::new(
                DiagnosticKind::UnknownName,
                span.start,
                span.end,
                unknown_ansible(&job.name, version),
            );
            self.add(diagnostic.about("ansible-version"));
        }
        if let Some(image) = &job.image_build_name {
            let is_defined = self.names.has(ObjectKind::Image, image);
            // An image takes effect when it is merged, but the job that builds it may be part of
            // the same change.
            if !is_defined && !self.names.layout.has_image(image) {
                let defined = self.names.defined_names(ObjectKind::Image);
                let message = format!("The image \"{image}\" was not found.");
                self.unknown(
                    at.attribute_span("image-build-name"),
                    "image-build-name",
                    message,
                    image,
                    defined,
                );
            }
        }
        if let Some(message) =
            pre_timeout_error(&job.name, job.pre_timeout_seconds, job.timeout_seconds)
        {
            self.refuse(at.attribute_span("pre-timeout"), "pre-timeout", message);
        }
        let lists = [&job.pre_run, &job.run, &job.post_run];
        let playbooks = lists.into_iter().flatten().flatten();
        let held: BTreeSet<&str> =
            job.semaphores.iter().flatten().map(|one| one.name.as_str()).collect();
        let used_by_playbooks =
            playbooks.flat_map(|playbook| &playbook.semaphores).map(String::as_str);
        let shared: BTreeSet<&str> = used_by_playbooks.filter(|name| held.contains(name)).collect();
        for name in shared {
            self.conflict(
                at.attribute_span("semaphores"),
                "semaphores",
                semaphore_used_twice(&job.name, name),
            );
        }
    }

    /// Reports a job list entry for a job that builds the image of another project: an image that
    /// the entry names, or else one that the job's own definitions build on every branch. What the
    /// job inherits is checked when it is frozen. `definitions` are the accepted definitions of the
    /// job. Records that the stanza references the image.
    pub(super) fn image_of(&mut self, entry: &JobStanza, definitions: &[StanzaId]) {
        let layout = self.names.layout;
        let builds_image = |stanza_id: &StanzaId| {
            layout
                .defined::<JobStanza>(*stanza_id)
                .is_some_and(|one| one.object.image_build_name.is_some())
        };
        // Few jobs build an image; the others' inheritance rules are not needed.
        let job =
            definitions.iter().any(builds_image).then(|| self.names.job(&entry.name)).flatten();
        let of_job = job.and_then(|job| job.built_image.clone());
        let Some(image) = entry.image_build_name.clone().or(of_job) else { return };
        // This records the reference, so that the entry is checked again when the image moves to
        // another project.
        self.names.facts(ObjectKind::Image, &image);
        if let Some(message) =
            foreign_image_error(self.names.layout, &entry.name, &image, self.source)
        {
            let span = entry.spans.of("image-build-name").unwrap_or(entry.span);
            self.refuse(span, "image-build-name", message);
        }
    }
}

/// Returns the message of the error if the image that the job builds is defined in another project
/// than that of `list`, the file with the job list entry. `None` if that project itself defines it,
/// or if the image is unknown or a placeholder.
pub(crate) fn foreign_image_error(
    layout: &Layout,
    job: &str,
    image: &str,
    list: &Source,
) -> Option<String> {
    let home = layout.image_home(image).filter(|home| **home != list.project)?;
    Some(format!(
        "Job {job} builds the image \"{image}\" of project {home} and can only be listed there, \
         not in {}",
        list.project
    ))
}

/// Returns the message of the error for a semaphore that both a job and one of its playbooks use:
/// the playbook would wait for its own job. Nothing is checked here.
pub(crate) fn semaphore_used_twice(job: &str, semaphore: &str) -> String {
    format!(
        "Semaphore {semaphore} is used by both job {job} and one of its playbooks; remove it from \
         one of them"
    )
}
