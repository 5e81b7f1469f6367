//! Finds jobs that inherit from themselves through other jobs.

use super::super::inheritance_rules::InheritanceRules;
use super::Check;
use super::names::NameLookup;
use crate::objects::ObjectKind;
use std::iter::successors;
use std::rc::Rc;

/// Maximum number of ancestors searched. A deeper cycle is reported when the job is frozen.
const ANCESTORS_MAX: usize = 50;
/// Maximum number of jobs whose ancestors are cached. The ancestors of other jobs are searched
/// again.
const CACHED_MAX: usize = 1_000;

/// An ancestor of a job, or the job itself at the start of the list.
pub(super) struct Ancestor {
    /// The name of the job.
    name: String,
    /// The index of the child that leads to it; `None` for the first.
    child: Option<usize>,
    /// Its inheritance rules; `None` if it is undefined.
    rules: Option<Rc<InheritanceRules>>,
}

impl Check<'_> {
    /// Returns the names on the shortest inheritance cycle from `job` through `parent` back to the
    /// job, with the job at both ends. It follows only parents that apply on every branch, so such
    /// a job can run nowhere. `None` if there is no cycle within 50 ancestors. The caller has
    /// recorded the reference to `parent`; the other ancestors that were examined are recorded
    /// here.
    pub(super) fn cycle_through(&mut self, job: &str, parent: &str) -> Option<Vec<String>> {
        let all = self.names.ancestors(parent);
        let closes_cycle = |one: &Ancestor| {
            one.rules.as_ref().is_some_and(|rules| rules.certain_parents.contains(job))
        };
        let last = all.iter().position(closes_cycle);
        // Only the ancestors up to the end of the cycle are references of the stanza.
        for one in all.iter().skip(1).take_while(|one| last.is_none() || one.child < last) {
            self.names.record(ObjectKind::Job, &one.name, one.rules.is_some());
        }
        Some(cycle_path(job, all.get(last?)?, &all))
    }
}

impl NameLookup<'_> {
    /// Returns a job, first, and its ancestors on every branch, the nearest first; at most 51 jobs.
    /// An ancestor that several jobs name appears once. An undefined job has no ancestors, but is
    /// returned itself. The result is cached, unless 1,000 others are.
    fn ancestors(&mut self, job: &str) -> Rc<[Ancestor]> {
        if let Some(cached) = self.jobs.ancestors.get(job) {
            return Rc::clone(cached);
        }
        let mut all = vec![Ancestor { name: job.to_owned(), child: None, rules: self.job(job) }];
        let mut here = 0;
        while let Some(rules) = all.get(here).map(|one| one.rules.clone()) {
            for one in rules.iter().flat_map(|rules| &rules.certain_parents) {
                if all.len() > ANCESTORS_MAX {
                    break;
                }
                if all.iter().all(|cached| cached.name != *one) {
                    all.push(Ancestor {
                        name: one.clone(),
                        child: Some(here),
                        rules: self.job(one),
                    });
                }
            }
            here += 1;
        }
        let all: Rc<[Ancestor]> = all.into();
        if self.jobs.ancestors.len() < CACHED_MAX {
            self.jobs.ancestors.insert(job.to_owned(), Rc::clone(&all));
        }
        all
    }
}

/// Returns the names on the path from `job` over its parent, the first in `all`, up to the ancestor
/// `last`, and back to `job`, which is at both ends. `last` must be a member of `all`, and name
/// `job` as its parent.
fn cycle_path(job: &str, last: &Ancestor, all: &[Ancestor]) -> Vec<String> {
    let down = successors(Some(last), |one| all.get(one.child?)).map(|one| one.name.clone());
    let mut cycle_path: Vec<String> =
        [job.to_owned()].into_iter().chain(down).chain([job.to_owned()]).collect();
    cycle_path.reverse();
    cycle_path
}
