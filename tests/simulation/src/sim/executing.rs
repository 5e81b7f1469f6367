//! What executors do with the builds that they have, besides ending them.

use super::{Done, Kind, Mutation, Sim};
use crate::executors::{Rest, Running};
use sluice_executor::claim::{self, Claimed};
use sluice_model::build::Pause;
use sluice_model::{BuildId, SessionId, Timestamp};

impl Sim {
    /// Has executors look after what they may have claimed without having been told, as each
    /// renewal of a session does: one look after the other.
    pub(super) fn settle_doubtful(&mut self) {
        if self.settings.mutation == Some(Mutation::UnsettledClaims) {
            return;
        }
        let tasks = &self.tasks;
        let looks = |own: &SessionId| {
            tasks
                .iter()
                .any(|task| matches!(&task.kind, Kind::Settle { session } if session == own))
        };
        let able = self.executors.iter().filter(|executor| executor.silent_until.is_none());
        let able =
            able.filter(|executor| !executor.doubtful.is_empty() && !looks(&executor.session));
        let able: Vec<_> =
            able.map(|e| (e.session.clone(), e.claims.clone(), e.here.clone())).collect();
        for (session, claims, here) in able {
            self.begin(Kind::Settle { session }, async move {
                let is_here = |build: &BuildId| here.lock().is_ok_and(|here| here.contains(build));
                // What failed is tried again with the next renewal.
                let _ = claims.settle(&is_here).await;
                Done::Nothing
            });
        }
    }

    /// Shows a task that looks after doubtful builds which ones its executor has by now.
    pub(super) fn show_builds(&self, kind: &Kind) {
        let Kind::Settle { session } = kind else { return };
        if let Some(executor) = self.executors.iter().find(|executor| executor.session == *session)
        {
            executor.show_builds();
        }
    }

    /// Has a build pause until the jobs behind it are over.
    pub(super) fn pause_build(&mut self, executor: usize, build: usize) {
        let executor = &mut self.executors[executor];
        let mut claimed = executor.builds.swap_remove(build).claimed;
        let (session, ports, id) =
            (executor.session.clone(), executor.ports.clone(), claimed.run.build.clone());
        executor.busy.insert(id.clone());
        let since = ports.clock.now();
        let pause = Pause { since, data: serde_json::Map::new(), data_object: None, log_url: None };
        self.begin(Kind::Pause { session, build: id }, async move {
            let told = claim::pause(&ports, &mut claimed, pause).await;
            Done::Paused(Box::new(claimed), told.is_ok())
        });
    }

    /// Takes back a build that was to pause; one of which nobody may have heard pauses once more.
    pub(super) fn paused(
        &mut self,
        session: &SessionId,
        build: &BuildId,
        claimed: Claimed,
        is_told: bool,
    ) {
        let later = self.now().plus_millis(self.random.between(200, 5_000));
        let Some(executor) =
            self.executors.iter_mut().find(|executor| executor.session == *session)
        else {
            return;
        };
        executor.busy.remove(build);
        let (rest, ends_at) =
            if is_told { (Rest::Paused, Timestamp(u64::MAX)) } else { (Rest::No, later) };
        executor.builds.push(Running { claimed, ends_at, fails_at: None, instead: None, rest });
    }

    /// Forgets what an executor need not look after any more.
    pub(super) fn settled(&mut self, session: &SessionId) {
        if let Some(executor) =
            self.executors.iter_mut().find(|executor| executor.session == *session)
        {
            executor.forget_settled(&self.site);
        }
    }
}
