//! Job graphs: each job is ordered after its dependencies, and a paused build resumes after its
//! dependents ended.

use super::{Watch, build_of};
use crate::graphs::{
    BEHIND_HOST, HERALD, Initializer, Need, PRELUDE, USES, dependencies, fails_fast, votes,
};
use sluice_gate::{Item, Job, JobStatus};
use sluice_model::ItemId;
use sluice_model::build::{BuildResult, Order, Phase, Run};
use sluice_runtime::record::Key;

impl Watch {
    /// Checks an ordered build against its item after the transaction: its dependencies ended or
    /// paused, no change ahead holds it, and no failure ended its change.
    pub(super) fn check_job_dependencies(&self, order: &Order) -> Result<(), String> {
        let Some(item) = self.items.get(&order.item) else { return Ok(()) };
        let (job, change) = (order.job.as_str(), &order.change);
        let initializer = match named(item, PRELUDE) {
            Some(_) => Initializer::Present,
            None => Initializer::Absent,
        };
        for (name, need) in dependencies(job, initializer) {
            let Some(other) = named(item, name) else { continue };
            let is_met = match need {
                Need::Hard => other.satisfies_dependents(),
                Need::Soft => other.result().is_some() || other.is_paused(),
            };
            if !is_met {
                let status = &other.status;
                return Err(format!(
                    "{job} of {change} is ordered before its dependency: {name} is {status:?}"
                ));
            }
        }
        let (pipeline, project) = (order.queue.pipeline.as_str(), change.key.project.name());
        let is_cut = fails_fast(&self.shape.scenarios, pipeline, project)
            && item.candidate.bundle.is_empty();
        if let Some(failed) = item.jobs.iter().find(|job| is_cut && has_failed(job)) {
            let failed = &failed.summary.name;
            return Err(format!(
                "{job} of {change} is ordered after the failure of {failed}, which ends the others"
            ));
        }
        match self.holding_change(order) {
            Some(ahead) => {
                Err(format!("{job} of {change} is ordered while {HERALD} of {ahead} holds it"))
            }
            None => Ok(()),
        }
    }

    /// Returns the nearest change ahead whose herald job has not passed yet; `None` if no change
    /// holds the build.
    fn holding_change(&self, order: &Order) -> Option<String> {
        let has_passed = |job: &Job| job.result().is_some_and(BuildResult::passed);
        let holds = |item: &&&Item| named(item, HERALD).is_some_and(|herald| !has_passed(herald));
        self.chain(order).iter().find(holds).map(|item| item.candidate.change.to_string())
    }

    /// Returns the items that a build is tested on, the nearest first, as far as they are in its
    /// queue.
    pub(super) fn chain(&self, order: &Order) -> Vec<&Item> {
        let mut chain = Vec::new();
        let Some(head) = self.heads.get(&order.queue) else { return chain };
        let ahead_of = |id: &ItemId| {
            head.position(id).and_then(|position| head.entries[position].ahead.as_ref())
        };
        let mut next = ahead_of(&order.item);
        // The chain is at most as long as the queue.
        while let Some(item) = next
            .and_then(|ahead| self.items.get(&ahead.item))
            .filter(|_| chain.len() < head.entries.len())
        {
            next = ahead_of(&item.id);
            chain.push(item);
        }
        chain
    }

    /// Checks that the dependents of a resumed build ended, in all items that share it.
    pub(super) fn check_resume(&self, key: &Key) -> Result<(), String> {
        let Some(build) = build_of(key) else { return Ok(()) };
        let names_it =
            |item: &&Item| item.jobs.iter().any(|job| job.build.as_ref() == Some(&build));
        for item in self.items.values().filter(names_it) {
            let is_open =
                |name: &&&str| named(item, name).is_some_and(|job| job.result().is_none());
            if let Some(open) = BEHIND_HOST.iter().find(is_open) {
                return Err(format!(
                    "a build resumed before {open} of {} ended",
                    item.candidate.change
                ));
            }
        }
        Ok(())
    }

    /// Checks that a paused build passes only after its resume. A stopped one may end before.
    pub(super) fn check_paused_build_end(&self, before: &Run, after: &Run) -> Result<(), String> {
        let has_passed = matches!(&after.phase, Phase::Ended(ended) if ended.result.passed());
        let was_resumed =
            self.resumed.contains(&after.build) || self.stopped.contains(&after.build);
        if matches!(before.phase, Phase::Paused(_)) && has_passed && !was_resumed {
            return Err(format!("{} continued a paused build before its resume", after.session));
        }
        Ok(())
    }
}

/// Returns the job of an item with this name.
pub(super) fn named<'a>(item: &'a Item, name: &str) -> Option<&'a Job> {
    item.jobs.iter().find(|job| job.summary.name.as_str() == name)
}

/// Returns whether a voting job failed or is known to fail. A job with missing artifacts fails in
/// the same transaction that orders others, and does not count.
fn has_failed(job: &Job) -> bool {
    let is_known = match &job.status {
        JobStatus::Running { pre_fail, .. } => *pre_fail,
        _ => job.result() == Some(BuildResult::Failure),
    };
    is_known && votes(job.summary.name.as_str()) && job.summary.name.as_str() != USES
}
