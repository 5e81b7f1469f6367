//! Artifacts of changes ahead: which builds give a job what it requires (`provides`, `requires`),
//! and whether they are there yet.
//!
//! Only what is not merged counts: of a change that landed, or left, a job is given nothing, for it
//! is tested on top of it (S07).

use super::{Work, is_dependent};
use crate::item::{Ask, Item, Job};
use crate::provided::{Offer, OfferState, Provided};
use sluice_model::BuildId;
use sluice_model::change::ChangeRef;

/// Where a job's requirements stand.
pub(super) enum Required {
    /// Builds of changes ahead that provide them, each once, the nearest first; none where nobody
    /// ahead does.
    There(Vec<BuildId>),
    /// Somebody ahead provides one of them, and is not done.
    Awaited,
    /// Somebody ahead was to provide one of them and did not, for this reason.
    Missing(String),
}

impl Work<'_> {
    /// Returns the builds whose artifacts a job is to be given.
    pub(super) fn required(&self, item: &Item, job: &Job) -> Required {
        let mut builds = Vec::new();
        if job.summary.requires.is_empty() {
            return Required::There(builds);
        }
        for ahead in self.tested_below(item) {
            let Ahead::Known(provided) = ahead else {
                return Required::Awaited; // Whether it provides anything is not known.
            };
            let wanted = |offer: &&Offer| {
                offer.provides.iter().any(|kind| job.summary.requires.contains(kind))
            };
            for offer in provided.jobs.iter().filter(wanted) {
                match &offer.state {
                    // Changes that need each other may share it, and what it offers is there once.
                    OfferState::There(Some(build)) if !builds.contains(build) => {
                        builds.push(build.clone())
                    }
                    OfferState::There(_) => {}
                    OfferState::Awaited => return Required::Awaited,
                    OfferState::Failed(result) => {
                        let (name, kinds) = (&job.summary.name, job.summary.requires.join(", "));
                        let (other, change) = (&offer.job, &provided.change);
                        return Required::Missing(format!(
                            "Job {name} requires artifact(s) {kinds}: {other} of {change} ended with {result}"
                        ));
                    }
                }
            }
        }
        Required::There(builds)
    }

    /// Returns what the changes provide that an item is tested on top of, the nearest first.
    fn tested_below<'w>(&'w self, item: &'w Item) -> Box<dyn Iterator<Item = Ahead> + 'w> {
        if is_dependent(&self.head) {
            return Box::new(
                self.ahead_of(&item.id)
                    .filter_map(|slot| self.items.get(&slot.id))
                    .filter_map(in_queue),
            );
        }
        let here = |change: &ChangeRef| {
            self.items.values().find(|other| other.candidate.change == *change)
        };
        // What needs it in turn is not below it more than it is below that: each would wait for the
        // other one for ever.
        let needs = item.candidate.needs_one_way().rev().map(|need| &need.change);
        Box::new(needs.filter_map(move |change| {
            match here(change) {
                Some(other) => in_queue(other),
                None => self
                    .snapshot
                    .provided
                    .get(change)
                    .cloned()
                    .map(|known| Ahead::Known(Box::new(known))),
            }
        }))
    }
}

/// What is known of what a change provides.
enum Ahead {
    /// Its jobs are not known yet.
    Unknown,
    /// This.
    Known(Box<Provided>),
}

fn in_queue(item: &Item) -> Option<Ahead> {
    match item.ask {
        Ask::No | Ask::Asked { .. } => Some(Ahead::Unknown),
        Ask::Merged(_) | Ask::Unmergeable { .. } => {
            Provided::of(item).map(|known| Ahead::Known(Box::new(known)))
        }
    }
}
