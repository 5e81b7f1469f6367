//! Bundles as Zuul shows them: one item with several refs, under the id of the first member, with
//! the jobs of all members. A job that runs once for several members is listed once.

use sluice_gate::plan::may_share_build;
use sluice_gate::{Head, Item, Job, JobStatus};
use sluice_model::{ItemId, JobName};
use std::collections::{BTreeMap, BTreeSet};

/// The speculative order of a queue, by the ids under which items are shown.
#[derive(Debug)]
pub(crate) struct QueueView<'h> {
    /// The queue's head record.
    pub(crate) head: &'h Head,
    /// For each item, the first member of its bundle.
    firsts: BTreeMap<&'h ItemId, &'h ItemId>,
    /// For the first member of each bundle, the items that are tested directly on top of it.
    behind: BTreeMap<&'h ItemId, Vec<&'h ItemId>>,
}

impl<'h> QueueView<'h> {
    /// Prepares the view of a queue in which each bundle is one item.
    pub(crate) fn of(head: &'h Head) -> Self {
        let mut view = Self { head, firsts: BTreeMap::new(), behind: BTreeMap::new() };
        for entry in &head.entries {
            let first = entry.first();
            view.firsts.extend(entry.members.iter().map(|slot| (&slot.id, &first.id)));
            // The predecessor is earlier in the queue or has left.
            if let Some(ahead) = &entry.ahead {
                let ahead = view.shown_as(&ahead.item);
                view.behind.entry(ahead).or_default().push(&first.id);
            }
        }
        view
    }

    /// Returns the id under which an item is shown: that of the first member of its bundle. Returns
    /// the id itself for an item that has left.
    pub(crate) fn shown_as(&self, id: &'h ItemId) -> &'h ItemId {
        self.firsts.get(id).copied().unwrap_or(id)
    }

    /// Returns the items that are tested directly on top of the bundle with this first member.
    pub(crate) fn behind(&self, first: &ItemId) -> &[&'h ItemId] {
        self.behind.get(first).map(Vec::as_slice).unwrap_or_default()
    }
}

/// Returns the jobs of a bundle's members, each with the item under which it is listed; `items` are
/// the members in the order of the bundle. A job that runs once for several members, or will run
/// once, is listed under the first of them only.
pub(crate) fn jobs<'i>(items: &[&'i Item]) -> Vec<(&'i Item, &'i Job)> {
    let mut jobs = Vec::new();
    for (at, item) in items.iter().enumerate() {
        let listed: BTreeSet<&JobName> =
            items[..at].iter().flat_map(|other| shared(item, other)).collect();
        let unlisted = item.jobs.iter().filter(|job| !listed.contains(&job.summary.name));
        jobs.extend(unlisted.map(|job| (*item, job)));
    }
    jobs
}

/// Returns the jobs of `item` that share a build with the earlier member `other`, or will share
/// one.
fn shared<'i>(item: &'i Item, other: &Item) -> BTreeSet<&'i JobName> {
    let other_jobs: BTreeMap<&JobName, &Job> =
        other.jobs.iter().map(|job| (&job.summary.name, job)).collect();
    let item_jobs: BTreeSet<&JobName> = item.jobs.iter().map(|job| &job.summary.name).collect();
    let pairs: Vec<(&'i Job, &Job)> = item
        .jobs
        .iter()
        .filter_map(|job| Some((job, *other_jobs.get(&job.summary.name)?)))
        .collect();
    let alike = pairs.iter().filter(|(job, other_job)| {
        is_same_build(job, other_job) || will_share_build(item, job, other, other_job)
    });
    let mut shared: BTreeSet<&'i JobName> = alike.map(|(job, _)| &job.summary.name).collect();
    // The dependencies of a shared job must be shared too. This is known if it already has its
    // build.
    loop {
        let before = shared.len();
        for (job, _) in pairs.iter().filter(|(job, other_job)| !is_same_build(job, other_job)) {
            let is_apart = |name: &JobName| {
                !shared.contains(name)
                    && (item_jobs.contains(name) || other_jobs.contains_key(name))
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

/// Returns whether two jobs have the same build.
fn is_same_build(job: &Job, other_job: &Job) -> bool {
    job.build.is_some() && job.build == other_job.build
}

/// Returns whether two jobs of bundle members will have one build, judging by these two jobs. They
/// must be allowed to share a build, `job` must still wait, and `other_job` wait too or have a
/// build of a later attempt. Two such jobs that ended without a build and with the same result
/// count as sharing too. `other` is the earlier member. False if both have the same build already:
/// see [`is_same_build`].
fn will_share_build(item: &Item, job: &Job, other: &Item, other_job: &Job) -> bool {
    let takes = match &job.status {
        JobStatus::Waiting => {
            other_job.status == JobStatus::Waiting
                || (other_job.build.is_some() && other_job.attempt > job.attempt)
        }
        // Neither of them ran.
        _ => job.build.is_none() && other_job.build.is_none() && job.result() == other_job.result(),
    };
    takes && may_share_build(item, job, other, other_job)
}
