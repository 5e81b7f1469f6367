//! What else is told of a job's definition, or of an entry of a list, before it is frozen: jobs
//! that it waits for, the image that it builds, its Ansible, its times, its semaphores.

use super::{At, Check, NOOP};
use crate::error::{Problem, ProblemKind};
use crate::fragment::Source;
use crate::job::freeze::{is_ansible_version, unknown_ansible};
use crate::job::limits::outlasts;
use crate::layout::Layout;
use crate::layout::shelf::Unit;
use crate::objects::{JobStanza, ObjectKind};
use std::collections::BTreeSet;

impl Check<'_> {
    /// Checks these of a job. Jobs in `listed` are told of where they are listed.
    pub(super) fn parts(&mut self, job: &JobStanza, listed: &BTreeSet<&str>) {
        let at = At { places: &job.places, whole: job.place };
        for (number, dependency) in job.dependencies.iter().flat_map(|list| &list.value).enumerate()
        {
            let name = dependency.name.as_str();
            // Also one that is waited for only where it runs must be there: where it is not, its
            // name is wrong.
            if name != NOOP && !listed.contains(name) && !self.names.has(ObjectKind::Job, name) {
                let known = self.names.known(ObjectKind::Job);
                let message = format!("Job {name} not defined");
                self.unknown(
                    at.member("dependencies", number),
                    "dependencies",
                    message,
                    name,
                    known,
                );
            }
        }
        if let Some(version) =
            job.ansible_version.as_deref().filter(|version| !is_ansible_version(version))
        {
            let place = at.attribute("ansible-version");
            let problem = Problem::new(
                ProblemKind::UnknownName,
                place.start,
                place.end,
                unknown_ansible(&job.name, version),
            );
            self.add(problem.about("ansible-version"));
        }
        if let Some(image) = &job.image_build_name {
            let stands = self.names.has(ObjectKind::Image, image);
            // It counts when it is merged, but the job that builds it may come with it.
            if !stands && !self.names.layout.has_image(image) {
                let known = self.names.known(ObjectKind::Image);
                let message = format!("The image \"{image}\" was not found.");
                self.unknown(
                    at.attribute("image-build-name"),
                    "image-build-name",
                    message,
                    image,
                    known,
                );
            }
        }
        if let Some(message) = outlasts(&job.name, job.pre_timeout_seconds, job.timeout_seconds) {
            self.refuse(at.attribute("pre-timeout"), "pre-timeout", message);
        }
        let lists = [&job.pre_run, &job.run, &job.post_run];
        let playbooks = lists.into_iter().flatten().flatten();
        let held: BTreeSet<&str> =
            job.semaphores.iter().flatten().map(|one| one.name.as_str()).collect();
        let asked = playbooks.flat_map(|playbook| &playbook.semaphores).map(String::as_str);
        let twice: BTreeSet<&str> = asked.filter(|name| held.contains(name)).collect();
        for name in twice {
            self.conflict(at.attribute("semaphores"), "semaphores", held_twice(&job.name, name));
        }
    }

    /// Tells of a list that has a job run which builds the image of another repository. What is
    /// inherited shows when it is frozen.
    pub(super) fn image_of(&mut self, entry: &JobStanza, definitions: &[Unit]) {
        let layout = self.names.layout;
        let says = |unit: &Unit| {
            layout
                .defined::<JobStanza>(*unit)
                .is_some_and(|one| one.object.image_build_name.is_some())
        };
        // Few jobs build an image: of the others nobody needs to know what else they are to others.
        let job = definitions.iter().any(says).then(|| self.names.job(&entry.name)).flatten();
        let of_job = job.and_then(|job| job.builds.clone());
        let Some(image) = entry.image_build_name.clone().or(of_job) else { return };
        // Where the image goes to another repository, this is looked at again.
        self.names.facts(ObjectKind::Image, &image);
        if let Some(message) = foreign_image(self.names.layout, &entry.name, &image, self.source) {
            let place = entry.places.of("image-build-name").unwrap_or(entry.place);
            self.refuse(place, "image-build-name", message);
        }
    }
}

/// Says that a list may not have a job run: the image that the job builds is of another repository
/// than the list. `None` where it may, and where there is no such image.
pub(crate) fn foreign_image(
    layout: &Layout,
    job: &str,
    image: &str,
    list: &Source,
) -> Option<String> {
    let home = layout.image_home(image).filter(|home| **home != list.project)?;
    Some(format!(
        "Job {job} builds the image \"{image}\" of {home}, and may only be listed there, not in {}",
        list.project
    ))
}

/// Says that a job and one of its playbooks ask for one semaphore: the playbook would wait for its
/// own job.
pub(crate) fn held_twice(job: &str, semaphore: &str) -> String {
    format!(
        "The semaphore {semaphore} is asked for by job {job} and by a playbook of it, but may only be used for one of them"
    )
}
