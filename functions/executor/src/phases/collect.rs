//! Collects the logs of a build whose executor was lost: runs its post-run playbooks with a fresh
//! workspace (Z7.3).

use super::{FREEZE_TIME, PreparedBuild};
use crate::build_result::ResultTracker;
use crate::job::StopSignal;
use crate::joblog::{JobLog, now};
use crate::playbook::PreparedPlaybook;
use crate::time_limits::{TimeLimit, TimeLimits};
use sluice_model::build::{BuildResult, PlaybookPhase, RunEnd};
use tokio::time::Instant;

impl PreparedBuild<'_> {
    /// Runs the post-run playbooks until the time `until`, one after the other, whether they pass or
    /// not. For them the build has not succeeded and is retried. Returns its end: `RETRY`, or
    /// `ABORTED` after a stop, which ends the playbooks. What the lost executor had started on the
    /// nodes was ended before.
    pub(super) async fn collect_logs(
        mut self,
        log: &mut JobLog<'_>,
        stop: &mut StopSignal,
        until: Instant,
    ) -> RunEnd {
        let started_at = now();
        // Its workspace is prepared.
        self.attempt.observer.started(started_at);
        log.say("The executor of this build was lost. Its sessions on the nodes are ended; post-run playbooks collect its logs.");
        let mut results = ResultTracker::default();
        let playbooks = std::mem::take(&mut self.playbooks.all);
        let (job, settings) = (self.attempt.job, self.attempt.settings);
        let post = TimeLimits::start(job, settings).of_post();
        let left = || until.saturating_duration_since(Instant::now());
        let is_post = |playbook: &&PreparedPlaybook| playbook.phase == PlaybookPhase::Post;
        if playbooks.iter().filter(is_post).any(PreparedPlaybook::sees_frozen) {
            self.expand_job_vars(log, stop, left().min(FREEZE_TIME)).await;
        }
        for playbook in playbooks.iter().filter(is_post) {
            let left = left();
            if left.is_zero() || stop.reason().is_some() {
                break;
            }
            let name =
                format!("limit of {} s for collecting logs", settings.collect_timeout_seconds);
            let limit = if left < post.left { TimeLimit { left, name } } else { post.clone() };
            self.run_playbook(playbook, limit, &results, Some(&mut *stop), log).await;
        }
        if let Some(reason) = stop.reason() {
            results.record_stop(&reason, stop.result());
        }
        let result = if stop.reason().is_some() { stop.result() } else { BuildResult::Retry };
        RunEnd { result, ..self.finish(&results, started_at, log).await }
    }
}
