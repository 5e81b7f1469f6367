//! Artifacts of changes ahead: which builds provide what a job requires (`provides`, `requires`),
//! and whether they are available.
//!
//! Only unmerged changes count. A job gets nothing from a change that was merged or has left, since
//! it is tested on top of it or without it (S07).

use super::{Planner, is_dependent};
use crate::item::{Item, Job, MergeStatus};
use crate::provided::{ProvidedArtifacts, ProvidingJob, ProvidingJobState};
use sluice_model::BuildId;
use sluice_model::change::ChangeRef;

/// The state of a job's required artifacts.
pub(super) enum Required {
    /// They are available from these builds of changes ahead, each listed once, the nearest first.
    /// Empty if no change ahead provides any.
    Available(Vec<BuildId>),
    /// A change ahead may provide one of them and is not done.
    Pending,
    /// A change ahead failed to provide one of them, for this reason.
    Missing(String),
}

impl Planner<'_> {
    /// Returns the builds of unmerged changes ahead that provide any artifact the job requires, the
    /// nearest change first; empty if it requires none. Going from the nearest change to the
    /// farthest, returns [`Required::Pending`] at a change whose jobs are not known or whose
    /// providing job has not ended, and [`Required::Missing`] with the reason at a providing job
    /// that failed.
    pub(super) fn required_artifacts(&self, item: &Item, job: &Job) -> Required {
        let mut builds = Vec::new();
        if job.summary.requires.is_empty() {
            return Required::Available(builds);
        }
        for ahead in self.provided_ahead(item) {
            let AheadArtifacts::Provided(provided) = ahead else {
                return Required::Pending; // The jobs of that change are not known yet.
            };
            let is_required = |offer: &&ProvidingJob| {
                offer.provides.iter().any(|kind| job.summary.requires.contains(kind))
            };
            for offer in provided.jobs.iter().filter(is_required) {
                match &offer.state {
                    // Members of a bundle may share the build; list it once.
                    ProvidingJobState::Available(Some(build)) if !builds.contains(build) => {
                        builds.push(build.clone())
                    }
                    ProvidingJobState::Available(_) => {}
                    ProvidingJobState::Pending => return Required::Pending,
                    ProvidingJobState::Failed(result) => {
                        let (name, kinds) = (&job.summary.name, job.summary.requires.join(", "));
                        let (other, change) = (&offer.job, &provided.change);
                        return Required::Missing(format!(
                            "Job {name} requires artifact(s) {kinds}: {other} of {change} ended with {result}"
                        ));
                    }
                }
            }
        }
        Required::Available(builds)
    }

    /// Returns what the changes below an item provide, the nearest first. In a dependent queue
    /// these are the entries ahead in its tested state, elsewhere its dependencies outside its
    /// dependency cycle. Left out are changes without a providing job, and changes of other queues
    /// of which nothing is known.
    fn provided_ahead<'w>(
        &'w self,
        item: &'w Item,
    ) -> Box<dyn Iterator<Item = AheadArtifacts> + 'w> {
        if is_dependent(&self.head) {
            return Box::new(
                self.entries_ahead(&item.id)
                    .filter_map(|slot| self.items.get(&slot.id))
                    .filter_map(provided_by_item),
            );
        }
        let here = |change: &ChangeRef| {
            self.items.values().find(|other| other.candidate.change == *change)
        };
        // Leave out changes that depend on this one too; each would wait for the other forever.
        let needs = item.candidate.acyclic_needs().rev().map(|need| &need.change);
        Box::new(needs.filter_map(move |change| {
            match here(change) {
                Some(other) => provided_by_item(other),
                None => self
                    .snapshot
                    .provided
                    .get(change)
                    .cloned()
                    .map(|provided| AheadArtifacts::Provided(Box::new(provided))),
            }
        }))
    }
}

/// What is known about the artifacts of a change ahead.
enum AheadArtifacts {
    /// Its jobs are not known yet.
    Unknown,
    /// Its jobs provide these.
    Provided(Box<ProvidedArtifacts>),
}

/// Returns what a queued change provides: [`AheadArtifacts::Unknown`] until the merger has
/// answered, `None` if none of its jobs provides anything or it cannot be tested.
fn provided_by_item(item: &Item) -> Option<AheadArtifacts> {
    match item.merge_status {
        MergeStatus::NotRequested | MergeStatus::Requested { .. } => Some(AheadArtifacts::Unknown),
        MergeStatus::Merged(_) | MergeStatus::Unmergeable { .. } => {
            ProvidedArtifacts::from_item(item)
                .map(|provided| AheadArtifacts::Provided(Box::new(provided)))
        }
    }
}
