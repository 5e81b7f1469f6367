//! Artifacts of changes ahead: which builds give a job what it requires (`provides`, `requires`), and whether they are there yet.
//!
//! Only what is not merged counts: of a change that landed, or left, a job is given nothing, for it is tested on top of it (S07).

use super::{Work, is_dependent};
use crate::item::{Ask, Item, Job};
use crate::queue::Slot;
use sluice_model::BuildId;

/// Where a job's requirements stand.
pub(super) enum Required {
    /// Builds of changes ahead that provide them, the nearest first; none where nobody ahead does.
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
        for slot in self.tested_below(item) {
            let Some(ahead) = self.items.get(&slot.id) else { continue };
            if matches!(ahead.ask, Ask::No | Ask::Asked { .. }) {
                return Required::Awaited; // Whether it provides anything is not known.
            }
            let provides = |other: &&Job| other.summary.provides.iter().any(|kind| job.summary.requires.contains(kind));
            for provider in ahead.jobs.iter().filter(provides) {
                match provider.result() {
                    _ if provider.is_served() => builds.extend(provider.build.clone()),
                    None => return Required::Awaited,
                    Some(result) => {
                        let (name, kinds) = (&job.summary.name, job.summary.requires.join(", "));
                        let (other, change) = (&provider.summary.name, &ahead.candidate.change);
                        return Required::Missing(format!(
                            "Job {name} requires artifact(s) {kinds}: {other} of {change} ended with {result}"
                        ));
                    }
                }
            }
        }
        Required::There(builds)
    }

    /// Returns the items of this queue whose changes an item is tested on top of, the nearest first.
    fn tested_below<'w>(&'w self, item: &'w Item) -> Box<dyn Iterator<Item = &'w Slot> + 'w> {
        if is_dependent(&self.head) {
            return Box::new(self.ahead_of(&item.id));
        }
        let needs = item.candidate.needs.iter().rev().map(|need| &need.change);
        Box::new(needs.filter_map(|change| self.head.slots.iter().find(|slot| slot.change == *change)))
    }
}
