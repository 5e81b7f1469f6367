//! Changes that need each other as Zuul shows them: one item with several refs, under the id of the
//! first of them, with the jobs of all. A job that runs once for several of them is there once.

use sluice_gate::plan::may_be_one;
use sluice_gate::{Head, Item, Job, JobStatus};
use sluice_model::{ItemId, JobName};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// Returns the places of what is tested as one, in order: bundles, and changes that stand alone.
pub(crate) fn bundles(head: &Head) -> impl Iterator<Item = Range<usize>> {
    let mut next = 0;
    std::iter::from_fn(move || {
        let bundle = (next < head.slots.len()).then(|| head.bundle(next))?;
        next = bundle.end;
        Some(bundle)
    })
}

/// Who is tested on whom in a queue, by the ids under which items are shown.
#[derive(Debug)]
pub(crate) struct Line<'h> {
    /// The queue.
    pub(crate) head: &'h Head,
    /// The first of its bundle, of each item.
    firsts: BTreeMap<&'h ItemId, &'h ItemId>,
    /// What is tested right on top, by the first of each bundle.
    behind: BTreeMap<&'h ItemId, Vec<&'h ItemId>>,
}

impl<'h> Line<'h> {
    /// Looks through a queue once.
    pub(crate) fn of(head: &'h Head) -> Self {
        let mut line = Self { head, firsts: BTreeMap::new(), behind: BTreeMap::new() };
        for bundle in bundles(head) {
            let slots = &head.slots[bundle];
            let Some(first) = slots.first() else { continue };
            line.firsts.extend(slots.iter().map(|slot| (&slot.id, &first.id)));
            // Whatever it is tested on stands before it, or has left.
            if let Some(ahead) = &first.ahead {
                let ahead = line.shown_as(&ahead.item);
                line.behind.entry(ahead).or_default().push(&first.id);
            }
        }
        line
    }

    /// Returns the id under which an item is shown: that of the first of its bundle, and of one
    /// that has left its own.
    pub(crate) fn shown_as(&self, id: &'h ItemId) -> &'h ItemId {
        self.firsts.get(id).copied().unwrap_or(id)
    }

    /// Returns what is tested right on top of the bundle that begins with an item.
    pub(crate) fn behind(&self, first: &ItemId) -> &[&'h ItemId] {
        self.behind.get(first).map(Vec::as_slice).unwrap_or_default()
    }
}

/// Returns the jobs of items that are tested as one, each with the item that it is told of. One
/// that runs once for several of them, or is to, is told of the first of these.
pub(crate) fn jobs<'i>(items: &[&'i Item]) -> Vec<(&'i Item, &'i Job)> {
    let mut jobs = Vec::new();
    for (at, item) in items.iter().enumerate() {
        let told: BTreeSet<&JobName> =
            items[..at].iter().flat_map(|other| shared(item, other)).collect();
        let own = item.jobs.iter().filter(|job| !told.contains(&job.summary.name));
        jobs.extend(own.map(|job| (*item, job)));
    }
    jobs
}

/// Returns the jobs of `item` that the build of `other`, which is before it, stands for, or is to.
fn shared<'i>(item: &'i Item, other: &Item) -> BTreeSet<&'i JobName> {
    let twins: BTreeMap<&JobName, &Job> =
        other.jobs.iter().map(|job| (&job.summary.name, job)).collect();
    let own: BTreeSet<&JobName> = item.jobs.iter().map(|job| &job.summary.name).collect();
    let pairs: Vec<(&'i Job, &Job)> =
        item.jobs.iter().filter_map(|job| Some((job, *twins.get(&job.summary.name)?))).collect();
    let alike = pairs
        .iter()
        .filter(|(job, twin)| is_same_build(job, twin) || follows(item, job, other, twin));
    let mut shared: BTreeSet<&'i JobName> = alike.map(|(job, _)| &job.summary.name).collect();
    // What comes before a job must be one as well. Where it has its build, that was seen to.
    loop {
        let before = shared.len();
        for (job, _) in pairs.iter().filter(|(job, twin)| !is_same_build(job, twin)) {
            let is_apart = |name: &JobName| {
                !shared.contains(name) && (own.contains(name) || twins.contains_key(name))
            };
            if job.summary.dependencies.iter().any(|dependency| is_apart(&dependency.name)) {
                shared.remove(&job.summary.name);
            }
        }
        if shared.len() == before {
            return shared;
        }
    }
}

fn is_same_build(job: &Job, twin: &Job) -> bool {
    job.build.is_some() && job.build == twin.build
}

/// Returns whether a job has no build of its own and is to take over the one of another change, as
/// far as these two tell.
fn follows(item: &Item, job: &Job, other: &Item, twin: &Job) -> bool {
    let takes = match &job.status {
        JobStatus::Waiting => {
            twin.status == JobStatus::Waiting
                || (twin.build.is_some() && twin.attempt > job.attempt)
        }
        // Neither of them was run.
        _ => job.build.is_none() && twin.build.is_none() && job.result() == twin.result(),
    };
    takes && may_be_one(item, job, other, twin)
}
