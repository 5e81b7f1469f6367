//! Jobs that inherit from themselves, through others.

use super::super::barriers::Barriers;
use super::{Check, Facts};
use crate::objects::ObjectKind;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

/// Jobs that are looked at above one. Whoever has more of them above is told when the job is frozen.
const ABOVE_MAX: usize = 50;

impl Check<'_> {
    /// Returns the shortest way from a job to itself, through its parent, of which `above` tells, and those that these
    /// inherit from wherever they run: such a job runs nowhere.
    pub(super) fn way_back(&mut self, job: &str, parent: &str, above: Rc<Barriers>) -> Option<Vec<String>> {
        // Those above with the one below each.
        let mut below: BTreeMap<String, String> = BTreeMap::new();
        let mut next = VecDeque::from([(parent.to_owned(), above)]);
        while let Some((name, above)) = next.pop_front() {
            if above.parents.contains(job) {
                return Some(way(job, &name, &below));
            }
            for one in &above.parents {
                if below.len() >= ABOVE_MAX {
                    break;
                }
                if one == parent || below.contains_key(one) {
                    continue;
                }
                below.insert(one.clone(), name.clone());
                if let Facts::Job(found) = self.names.facts(ObjectKind::Job, one) {
                    next.push_back((one.clone(), found));
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
