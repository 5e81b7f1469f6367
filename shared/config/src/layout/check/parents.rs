//! Jobs that inherit from themselves, through others.

use super::{Check, Facts};
use crate::objects::ObjectKind;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Jobs that are looked at above one. Whoever has more of them above is told when the job is frozen.
const ABOVE_MAX: usize = 50;

impl Check<'_> {
    /// Returns the shortest way from a job to itself, through its parent, which inherits from `above`, and those that these inherit
    /// from wherever they run: such a job runs nowhere.
    pub(super) fn way_back(&mut self, job: &str, parent: &str, above: BTreeSet<String>) -> Option<Vec<String>> {
        // Those above with the one below each.
        let mut below: BTreeMap<String, String> = BTreeMap::new();
        let mut next = VecDeque::from([(parent.to_owned(), above)]);
        while let Some((name, above)) = next.pop_front() {
            for one in above {
                if one == job {
                    return Some(way(job, &name, &below));
                }
                if one == parent || below.contains_key(&one) || below.len() >= ABOVE_MAX {
                    continue;
                }
                let facts = self.names.facts(ObjectKind::Job, &one);
                below.insert(one.clone(), name.clone());
                if let Facts::Job(found) = facts {
                    next.push_back((one, found.parents));
                }
            }
        }
        None
    }
}

/// Returns the way up from a job to the last one above it, and back to the job.
fn way(job: &str, last: &str, below: &BTreeMap<String, String>) -> Vec<String> {
    let mut way = vec![job.to_owned(), last.to_owned()];
    let mut here = last;
    while let Some(lower) = below.get(here) {
        way.push(lower.clone());
        here = lower.as_str();
    }
    way.push(job.to_owned());
    way.reverse();
    way
}
