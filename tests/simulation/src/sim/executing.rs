//! What executors do with their builds besides claiming and ending them: settle unanswered claims
//! and pause builds.

use super::{Done, Kind, Mutation, Sim};
use crate::executors::{PauseState, Running};
use crate::task::Confirmation;
use sluice_executor::claim::{self, Claimed};
use sluice_model::build::Pause;
use sluice_model::{BuildId, SessionId, Timestamp};

impl Sim {
    /// Starts a task for each connected executor with unanswered claims, as each renewal of a
    /// session does. An executor has one such task at a time.
    pub(super) fn settle_unconfirmed_claims(&mut self) {
        if self.settings.mutation == Some(Mutation::UnsettledClaims) {
            return;
        }
        let tasks = &self.tasks;
        let is_settling = |own: &SessionId| {
            tasks
                .iter()
                .any(|task| matches!(&task.kind, Kind::Settle { session } if session == own))
        };
        let able = self.executors.iter().filter(|executor| executor.silent_until.is_none());
        let able = able
            .filter(|executor| !executor.unconfirmed.is_empty() && !is_settling(&executor.session));
        let able: Vec<_> = able
            .map(|e| (e.session.clone(), e.claims.clone(), e.published_builds.clone()))
            .collect();
        for (session, claims, current) in able {
            self.begin(Kind::Settle { session }, async move {
                let is_current =
                    |build: &BuildId| current.lock().is_ok_and(|builds| builds.contains(build));
                // What failed is tried again with the next renewal.
                let _ = claims.end_stopped_unconfirmed(&is_current).await;
                Done::Nothing
            });
        }
    }

    /// Publishes an executor's current builds if the task is one that settles its claims.
    pub(super) fn publish_builds(&self, kind: &Kind) {
        let Kind::Settle { session } = kind else { return };
        if let Some(executor) = self.executors.iter().find(|executor| executor.session == *session)
        {
            executor.publish_builds();
        }
    }

    /// Has an executor pause a build until its dependent jobs have ended.
    pub(super) fn pause_build(&mut self, executor: usize, build: usize) {
        let executor = &mut self.executors[executor];
        let mut claimed = executor.builds.swap_remove(build).claimed;
        let (session, ports, id) =
            (executor.session.clone(), executor.ports.clone(), claimed.run.build.clone());
        executor.busy.insert(id.clone());
        let since = ports.clock.now();
        let pause = Pause { since, data: serde_json::Map::new(), data_object: None, log_url: None };
        self.begin(Kind::Pause { session, build: id }, async move {
            let result = claim::pause(&ports, &mut claimed, pause).await;
            Done::Paused(Box::new(claimed), Confirmation::of(&result))
        });
    }

    /// Returns a build to its executor after an attempt to pause it. After an unconfirmed write the
    /// build is not paused and tries again later.
    pub(super) fn paused(
        &mut self,
        session: &SessionId,
        build: &BuildId,
        claimed: Claimed,
        confirmation: Confirmation,
    ) {
        let later = self.now().plus_millis(self.random.between(200, 5_000));
        let Some(executor) =
            self.executors.iter_mut().find(|executor| executor.session == *session)
        else {
            return;
        };
        executor.busy.remove(build);
        let (pause_state, ends_at) = match confirmation {
            Confirmation::Confirmed => (PauseState::Paused, Timestamp(u64::MAX)),
            Confirmation::Unconfirmed => (PauseState::NotYet, later),
        };
        let (fails_at, result_override) = (None, None);
        executor.builds.push(Running { claimed, ends_at, fails_at, result_override, pause_state });
    }

    /// Forgets an executor's unanswered claims that are settled.
    pub(super) fn settled(&mut self, session: &SessionId) {
        if let Some(executor) =
            self.executors.iter_mut().find(|executor| executor.session == *session)
        {
            executor.forget_settled_claims(&self.site);
        }
    }
}
