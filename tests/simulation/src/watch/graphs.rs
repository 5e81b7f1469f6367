//! Jobs that come before and after each other: each is ordered in its turn, and what pauses goes on
//! when all behind it is over.

use super::{Watch, build_of};
use crate::graphs::{BEHIND_HOST, HERALD, Need, PRELUDE, USES, before, fails_fast, votes};
use sluice_gate::{Item, Job, JobStatus};
use sluice_model::ItemId;
use sluice_model::build::{BuildResult, Order, Phase, Run};
use sluice_runtime::record::Key;

impl Watch {
    /// Judges a build that is ordered, by its item as the same decision leaves it: what it depends
    /// on is over, or paused, nothing ahead holds it, and no failure has ended its change.
    pub(super) fn is_its_turn(&self, order: &Order) -> Result<(), String> {
        let Some(item) = self.items.get(&order.item) else { return Ok(()) };
        let (job, change) = (order.job.as_str(), &order.change);
        for (name, need) in before(job, named(item, PRELUDE).is_some()) {
            let Some(other) = named(item, name) else { continue };
            let is_met = match need {
                Need::Hard => other.is_served(),
                Need::Soft => other.result().is_some() || other.is_paused(),
            };
            if !is_met {
                let status = &other.status;
                return Err(format!(
                    "{job} of {change} is ordered before its turn: {name} is {status:?}"
                ));
            }
        }
        let is_cut = fails_fast(&self.shape.plays, order.queue.pipeline.as_str())
            && item.candidate.cycle.is_empty();
        if let Some(failed) = item.jobs.iter().find(|job| is_cut && has_failed(job)) {
            let failed = &failed.summary.name;
            return Err(format!(
                "{job} of {change} is ordered after {failed} failed, which ends all others"
            ));
        }
        match self.held_by(order) {
            Some(ahead) => {
                Err(format!("{job} of {change} is ordered while {HERALD} of {ahead} holds it"))
            }
            None => Ok(()),
        }
    }

    /// Returns what holds a build that is ordered: the nearest of those whose state its own is made
    /// on that has not come so far.
    fn held_by(&self, order: &Order) -> Option<String> {
        let has_passed = |job: &Job| job.result().is_some_and(BuildResult::passed);
        let holds = |item: &&&Item| named(item, HERALD).is_some_and(|herald| !has_passed(herald));
        self.chain(order).iter().find(holds).map(|item| item.candidate.change.to_string())
    }

    /// Returns the items whose states that of a build is made on, the nearest first, as far as they
    /// are in its queue.
    pub(super) fn chain(&self, order: &Order) -> Vec<&Item> {
        let mut chain = Vec::new();
        let Some(head) = self.heads.get(&order.queue) else { return chain };
        let ahead_of = |id: &ItemId| {
            head.slots.iter().find(|slot| slot.id == *id).and_then(|slot| slot.ahead.as_ref())
        };
        let mut next = ahead_of(&order.item);
        // Nobody is behind more than there are.
        while let Some(item) = next
            .and_then(|ahead| self.items.get(&ahead.item))
            .filter(|_| chain.len() < head.slots.len())
        {
            next = ahead_of(&item.id);
            chain.push(item);
        }
        chain
    }

    /// Judges that a paused build is told to go on, by the items that name it as the same decision
    /// leaves them.
    pub(super) fn may_go_on(&self, key: &Key) -> Result<(), String> {
        let Some(build) = build_of(key) else { return Ok(()) };
        let names_it =
            |item: &&Item| item.jobs.iter().any(|job| job.build.as_ref() == Some(&build));
        for item in self.items.values().filter(names_it) {
            let is_open =
                |name: &&&str| named(item, name).is_some_and(|job| job.result().is_none());
            if let Some(open) = BEHIND_HOST.iter().find(is_open) {
                return Err(format!(
                    "it may go on, and {open} of {} is not over",
                    item.candidate.change
                ));
            }
        }
        Ok(())
    }

    /// Judges the end of a paused build: it passes only once it was told to go on. One that is to
    /// stop may have come to its end first.
    pub(super) fn goes_on(&self, before: &Run, after: &Run) -> Result<(), String> {
        let has_passed = matches!(&after.phase, Phase::Ended(ended) if ended.result.passed());
        let was_told = self.resumed.contains(&after.build) || self.stopped.contains(&after.build);
        if matches!(before.phase, Phase::Paused(_)) && has_passed && !was_told {
            return Err(format!("{} has it go on before it was told to", after.session));
        }
        Ok(())
    }
}

pub(super) fn named<'a>(item: &'a Item, name: &str) -> Option<&'a Job> {
    item.jobs.iter().find(|job| job.summary.name.as_str() == name)
}

/// Returns whether a job that votes ended as one that was run and did not pass, or is known to. One
/// that lacks what it requires fails in the very decision that orders others.
fn has_failed(job: &Job) -> bool {
    let is_known = match &job.status {
        JobStatus::Running { pre_fail, .. } => *pre_fail,
        _ => job.result() == Some(BuildResult::Failure),
    };
    is_known && votes(job.summary.name.as_str()) && job.summary.name.as_str() != USES
}
