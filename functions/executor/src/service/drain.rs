//! The end of an executor: it drains, and then ends its session.

use super::renewal::has_ended;
use super::session_watch::write;
use super::{ExecutorService, STOP_WAIT};
use sluice_model::Timestamp;
use sluice_records::codec::{decode_or_log, get};
use sluice_records::open_work::runs_of_session;
use sluice_records::session::{self, Session, SessionState};
use sluice_runtime::record::Record;
use sluice_runtime::{CommitOutcome, PortError};
use std::time::Duration;
use tokio::time::{sleep, timeout};

/// How often a draining executor checks whether its builds have ended.
const CHECK_WAIT: Duration = Duration::from_millis(100);

impl ExecutorService {
    /// Waits until all builds here have ended, paused ones too, but at most the time that a drain
    /// may take. Then stops those that are left, and waits for their ends at most [`STOP_WAIT`]. The
    /// caller has stopped taking builds, and renews the session meanwhile. From now on the session
    /// says that the executor drains, and nothing is claimed.
    pub(super) async fn drain(&self) {
        self.claims.close();
        let count = self.running.count();
        if count > 0 {
            tracing::info!(
                builds = count,
                seconds = self.options.drain_seconds,
                "the executor drains: it takes no more builds"
            );
        }
        tokio::select! {
            _ = timeout(Duration::from_secs(self.options.drain_seconds), self.until_idle()) => {}
            () = self.drain_over.notified() => {}
        }
        self.running.stop_all("the executor shuts down");
        let _ = timeout(STOP_WAIT, self.until_idle()).await;
    }

    /// Waits until no build is being claimed, runs or is paused here.
    pub(super) async fn until_idle(&self) {
        while self.running.count() > 0 {
            sleep(CHECK_WAIT).await;
        }
    }

    /// Ends a drain at once, also one that begins later: the running builds are stopped.
    pub fn end_drain(&self) {
        self.drain_over.notify_one();
    }

    /// Ends this executor's own session, so that no other executor has to find that it is over.
    /// Leaves it as it is if a build has not ended: the next executor that finds the session
    /// unchanged ends the build. A failure is only logged, since that executor ends the session
    /// too. `record` is the session as it was last written or read here.
    ///
    /// A run of this session that has not ended, although nothing runs here, keeps the ended session
    /// on the list of those that other executors look at: the next one ends the run.
    pub(super) async fn end_own_session(&self, record: Record) {
        let left = self.running.count();
        if left > 0 {
            tracing::warn!(builds = left, "builds have not ended; another executor ends them");
            return;
        }
        if let Err(error) = self.store_own_end(record).await {
            tracing::warn!(%error, "could not end the session; another executor does");
        }
    }

    /// Stores that this executor's session has ended. Does nothing if another executor was first.
    async fn store_own_end(&self, record: Record) -> Result<(), PortError> {
        let now = self.ports.clock.now();
        let left = runs_of_session(&self.ports, &self.session).await?;
        if let Some(run) = left.first() {
            tracing::warn!(build = %run.run.build, runs = left.len(), "the end of a build could not be stored; another executor ends it");
        }
        let find = match left.is_empty() {
            true => session::ended_entry(&self.session, now),
            false => session::open_entry(&self.session),
        };
        if self.write_end(record, now, &find).await? == OwnEnd::Stored {
            return Ok(());
        }
        // The last renewal was cut off, so what was stored is not known here.
        match get(&self.ports, &session::key(&self.session)).await? {
            Some(stored) if !has_ended(&stored) => {
                self.write_end(stored, now, &find).await.map(drop)
            }
            _ => Ok(()),
        }
    }

    /// Writes the end of the session on the given record, with its entry in the index of sessions.
    async fn write_end(
        &self,
        record: Record,
        now: Timestamp,
        find: &(String, String),
    ) -> Result<OwnEnd, PortError> {
        let Some(session) = decode_or_log::<Session>(&record) else { return Ok(OwnEnd::Stored) };
        let find = Some(find.clone());
        let ended = Session { state: SessionState::Ended { at: now }, ..session };
        match write(&self.ports, Record { find, ..record }, &ended).await? {
            CommitOutcome::Written(_) => Ok(OwnEnd::Stored),
            CommitOutcome::Stale => Ok(OwnEnd::Changed),
        }
    }

    /// Returns whether the executor takes no more builds because it shuts down.
    pub(super) fn is_draining(&self) -> bool {
        self.claims.is_closed()
    }
}

/// Whether the end of the session was stored.
#[derive(PartialEq, Eq)]
enum OwnEnd {
    Stored,
    /// The record was changed since it was read.
    Changed,
}
