//! Jobs that inherit from themselves, through others.

use super::super::barriers::Barriers;
use super::Check;
use super::names::Names;
use crate::objects::ObjectKind;
use std::iter::successors;
use std::rc::Rc;

/// Jobs that are looked at above one. Whoever has more of them above is told when the job is
/// frozen.
const ABOVE_MAX: usize = 50;
/// Parents of which those above are kept, since many jobs have the same. Of others they are looked
/// for again.
const KEPT_MAX: usize = 1_000;

/// A job above others, or the first of these.
pub(super) struct Above {
    name: String,
    /// The number of the one below it; `None` of the first.
    below: Option<usize>,
    /// What it is to others; `None` where nothing bears the name.
    found: Option<Rc<Barriers>>,
}

impl Check<'_> {
    /// Returns the shortest way from a job to itself, through its parent and those that these
    /// inherit from wherever they run: such a job runs nowhere.
    pub(super) fn way_back(&mut self, job: &str, parent: &str) -> Option<Vec<String>> {
        let all = self.names.above(parent);
        let comes_back =
            |one: &Above| one.found.as_ref().is_some_and(|found| found.parents.contains(job));
        let last = all.iter().position(comes_back);
        // Nothing is asked for above the one that comes back to the job.
        for one in all.iter().skip(1).take_while(|one| last.is_none() || one.below < last) {
            self.names.ask(ObjectKind::Job, &one.name, one.found.is_some());
        }
        Some(way(job, all.get(last?)?, &all))
    }
}

impl Names<'_> {
    /// Returns a job and those that it inherits from wherever it runs, directly and through others,
    /// the nearest first.
    fn above(&mut self, job: &str) -> Rc<[Above]> {
        if let Some(known) = self.jobs.above.get(job) {
            return Rc::clone(known);
        }
        let mut all = vec![Above { name: job.to_owned(), below: None, found: self.job(job) }];
        let mut here = 0;
        while let Some(found) = all.get(here).map(|one| one.found.clone()) {
            for one in found.iter().flat_map(|found| &found.parents) {
                if all.len() > ABOVE_MAX {
                    break;
                }
                if all.iter().all(|known| known.name != *one) {
                    all.push(Above { name: one.clone(), below: Some(here), found: self.job(one) });
                }
            }
            here += 1;
        }
        let all: Rc<[Above]> = all.into();
        if self.jobs.above.len() < KEPT_MAX {
            self.jobs.above.insert(job.to_owned(), Rc::clone(&all));
        }
        all
    }
}

/// Returns the way from a job up to the last one above it, and back to the job.
fn way(job: &str, last: &Above, all: &[Above]) -> Vec<String> {
    let down = successors(Some(last), |one| all.get(one.below?)).map(|one| one.name.clone());
    let mut way: Vec<String> =
        [job.to_owned()].into_iter().chain(down).chain([job.to_owned()]).collect();
    way.reverse();
    way
}
