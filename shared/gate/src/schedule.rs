//! When the timers of a tenant fire. Each tick fires once; several missed ticks of a timer fire
//! once together.

use crate::filter::ReportDetail;
use serde::{Deserialize, Serialize};
use sluice_config::pipeline::{Cron, Pipeline, TriggerKind};
use sluice_model::id::digest;
use sluice_model::{BranchName, PipelineName, ProjectName, TenantName, Timestamp};

/// The most timers of one tenant; one record holds them all.
pub const TIMERS_MAX: usize = 200;

/// The timers of a tenant with the time of each one's next tick.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Schedule {
    /// The tenant's name.
    pub tenant: TenantName,
    /// The timers in the order of the pipelines.
    pub timers: Vec<PlannedTimer>,
}

/// A timer with the time of its next tick.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlannedTimer {
    /// The pipeline.
    pub pipeline: PipelineName,
    /// The times, as the configuration has them.
    pub time: String,
    /// When the timer fires next.
    pub next_at: Timestamp,
}

/// A tick of a timer that is due.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TimerTick {
    /// The pipeline.
    pub pipeline: PipelineName,
    /// The times, as the configuration has them.
    pub time: String,
    /// The time that the tick was planned for.
    pub at: Timestamp,
    /// Whether branches are resolved to commits at the tick (`dereference`).
    pub dereference: bool,
    /// The most seconds by which a branch is delayed (`jitter`).
    pub jitter_seconds: u64,
    /// How detailed the reports on the enqueued changes are.
    pub detail: ReportDetail,
}

impl Schedule {
    /// Creates the schedule of a tenant without timers.
    pub fn new(tenant: TenantName) -> Self {
        Self { tenant, timers: Vec::new() }
    }

    /// Returns when the next timer fires; `None` without timers.
    pub fn due(&self) -> Option<Timestamp> {
        self.timers.iter().map(|timer| timer.next_at).min()
    }

    /// Returns the schedule after `now` and the ticks that were due. A new timer, or one with a
    /// changed time, starts at `now` and is not due. Of several missed ticks of a timer only the
    /// first is returned. Timers with equal times in a pipeline count as one. Timers beyond
    /// [`TIMERS_MAX`], those that never fire again, and those that `pipelines` no longer have are
    /// dropped.
    pub fn advance(&self, pipelines: &[Pipeline], now: Timestamp) -> (Self, Vec<TimerTick>) {
        let (mut timers, mut fired) = (Vec::new(), Vec::new());
        let triggers = pipelines
            .iter()
            .flat_map(|pipeline| pipeline.triggers.iter().map(move |one| (pipeline, one)));
        for (pipeline, trigger) in triggers {
            let TriggerKind::Timer(timer) = &trigger.kind else { continue };
            let is_known = |planned: &&PlannedTimer| {
                planned.pipeline == pipeline.name && planned.time == timer.time
            };
            if timers.len() >= TIMERS_MAX || timers.iter().any(|planned| is_known(&planned)) {
                continue;
            }
            // An invalid time is refused when the configuration is loaded.
            let Ok(cron) = Cron::parse(&timer.time) else { continue };
            let before = self.timers.iter().find(is_known).map(|planned| planned.next_at);
            if let Some(at) = before.filter(|at| *at <= now) {
                fired.push(TimerTick {
                    pipeline: pipeline.name.clone(),
                    time: timer.time.clone(),
                    at,
                    dereference: timer.dereference,
                    jitter_seconds: cron.jitter_seconds,
                    detail: ReportDetail::of(trigger),
                });
            }
            let next_at = before.filter(|at| *at > now).or_else(|| cron.next_after(now));
            let (pipeline, time) = (pipeline.name.clone(), timer.time.clone());
            timers.extend(next_at.map(|next_at| PlannedTimer { pipeline, time, next_at }));
        }
        (Self { tenant: self.tenant.clone(), timers }, fired)
    }
}

impl TimerTick {
    /// Returns the seconds by which a branch is delayed, at most [`Self::jitter_seconds`]. They are
    /// derived from a hash of the tick and the branch, so that a retry computes the same.
    pub fn delay_seconds(&self, project: &ProjectName, branch: &BranchName) -> u64 {
        let parts = [
            self.pipeline.as_str(),
            &self.time,
            &self.at.0.to_string(),
            project.as_str(),
            branch.as_str(),
        ];
        let drawn = u64::from_str_radix(&digest(&parts)[..8], 16).unwrap_or_default();
        drawn % (self.jitter_seconds + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_config::pipeline::{Manager, TimerTrigger, Trigger};

    /// Thursday, the 1st of January 2026, 00:00:00.
    const NEW_YEAR: u64 = 1_767_225_600;

    fn at(hours: u64) -> Timestamp {
        Timestamp((NEW_YEAR + hours * 3_600) * 1_000)
    }

    fn periodic(name: &str, time: &str) -> Pipeline {
        let kind = TriggerKind::Timer(TimerTrigger { time: time.to_owned(), dereference: false });
        let mut pipeline = Pipeline::new(name, Manager::Independent);
        pipeline.triggers = vec![Trigger { connection: "timer".into(), kind, debug: false }];
        pipeline
    }

    fn times(fired: &[TimerTick]) -> Vec<(String, Timestamp)> {
        fired.iter().map(|fired| (fired.pipeline.to_string(), fired.at)).collect()
    }

    /// R09
    #[test]
    fn a_tick_fires_once_and_the_next_one_is_planned() {
        let pipelines = [periodic("nightly", "0 2 * * *"), periodic("hourly", "0 * * * *")];
        let new = Schedule::new("demo".into());
        let (schedule, fired) = new.advance(&pipelines, at(1));
        assert_eq!((times(&fired), schedule.due()), (vec![], Some(at(2))));
        let (schedule, fired) = schedule.advance(&pipelines, at(2));
        assert_eq!(times(&fired), [("nightly".to_owned(), at(2)), ("hourly".to_owned(), at(2))]);
        let (again, fired) = schedule.advance(&pipelines, at(2));
        assert_eq!((again, times(&fired)), (schedule, vec![]));
    }

    /// R09: however long the service was stopped.
    #[test]
    fn missed_ticks_of_a_timer_fire_once() {
        let pipelines = [periodic("hourly", "0 * * * *")];
        let (schedule, _) = Schedule::new("demo".into()).advance(&pipelines, at(0));
        let (schedule, fired) = schedule.advance(&pipelines, at(50));
        assert_eq!(
            (times(&fired), schedule.due()),
            (vec![("hourly".to_owned(), at(1))], Some(at(51)))
        );
    }

    /// R09, Z6.1: a timer's `debug` is part of its ticks.
    #[test]
    fn a_tick_carries_the_report_detail_of_its_timer() {
        for (debug, detail) in [(false, ReportDetail::Outcome), (true, ReportDetail::Debug)] {
            let mut nightly = periodic("nightly", "0 2 * * *");
            nightly.triggers[0].debug = debug;
            let (schedule, _) =
                Schedule::new("demo".into()).advance(std::slice::from_ref(&nightly), at(1));
            let (_, fired) = schedule.advance(&[nightly], at(2));
            assert_eq!(fired.iter().map(|fired| fired.detail).collect::<Vec<_>>(), [detail]);
        }
    }

    /// R09: a configuration change does not fire a timer by itself.
    #[test]
    fn a_timer_with_new_times_restarts_and_a_removed_one_does_not_fire() {
        let (schedule, _) =
            Schedule::new("demo".into()).advance(&[periodic("nightly", "0 2 * * *")], at(0));
        let (later, fired) = schedule.advance(&[periodic("nightly", "0 4 * * *")], at(3));
        assert_eq!((times(&fired), later.due()), (vec![], Some(at(4))));
        let (none, fired) = later.advance(&[], at(5));
        assert_eq!((times(&fired), none.due()), (vec![], None));
    }

    /// R09: so that the branches are not all enqueued at once.
    #[test]
    fn jitter_is_drawn_for_each_branch_and_is_the_same_each_time() {
        let (schedule, _) =
            Schedule::new("demo".into()).advance(&[periodic("p", "0 2 * * * 0 600")], at(0));
        let (_, fired) = schedule.advance(&[periodic("p", "0 2 * * * 0 600")], at(2));
        let delay =
            |branch: &str| fired[0].delay_seconds(&"forge.test/org/one".into(), &branch.into());
        let delays: Vec<u64> = (0..50).map(|number| delay(&format!("b{number}"))).collect();
        assert!(delays.iter().all(|delay| *delay <= 600) && delays.iter().any(|delay| *delay > 60));
        assert_eq!(delay("b7"), delays[7]);
    }
}
