//! The end of an executor: it drains, and then ends its session.

use super::session_watch::write;
use super::{ExecutorService, has_ended};
use sluice_model::Timestamp;
use sluice_records::codec::{decode_or_log, get};
use sluice_records::session::{self, Session, SessionState};
use sluice_runtime::record::Record;
use sluice_runtime::{CommitOutcome, PortError};
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::time::{sleep, timeout};

/// How often a draining executor checks whether its builds have ended.
const CHECK_WAIT: Duration = Duration::from_millis(100);

impl ExecutorService {
    /// Waits until all builds here have ended, paused ones too, but at most the time that a drain
    /// may take. Then stops those that are left. The caller has stopped taking builds. From now on
    /// the session says that the executor drains.
    pub(super) async fn drain(&self) {
        self.is_draining.store(true, Ordering::Release);
        let count = self.running().len();
        if count > 0 {
            tracing::info!(
                builds = count,
                seconds = self.options.drain_seconds,
                "the executor drains: it takes no more builds"
            );
        }
        let idle = async {
            while !self.running().is_empty() {
                sleep(CHECK_WAIT).await;
            }
        };
        tokio::select! {
            _ = timeout(Duration::from_secs(self.options.drain_seconds), idle) => {}
            () = self.drain_over.notified() => {}
        }
        self.stop_all("the executor shuts down");
    }

    /// Ends a drain at once, also one that begins later: the running builds are stopped.
    pub fn end_drain(&self) {
        self.drain_over.notify_one();
    }

    /// Ends this executor's own session, so that no other executor has to find that it is over.
    /// Leaves it as it is if a build has not ended: the next executor that finds the session
    /// unchanged ends the build. A failure is only logged, since that executor ends the session
    /// too. `record` is the session as it was last written or read here.
    pub(super) async fn end_own_session(&self, record: Record) {
        let left = self.running().len();
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
        if self.write_end(record, now).await? == OwnEnd::Stored {
            return Ok(());
        }
        // The last renewal was cut off, so what was stored is not known here.
        match get(&self.ports, &session::key(&self.session)).await? {
            Some(stored) if !has_ended(&stored) => self.write_end(stored, now).await.map(drop),
            _ => Ok(()),
        }
    }

    /// Writes the end of the session on the given record.
    async fn write_end(&self, record: Record, now: Timestamp) -> Result<OwnEnd, PortError> {
        let Some(session) = decode_or_log::<Session>(&record) else { return Ok(OwnEnd::Stored) };
        let find = Some(session::ended_entry(&session.id, now));
        let ended = Session { state: SessionState::Ended { at: now }, ..session };
        match write(&self.ports, Record { find, ..record }, &ended).await? {
            CommitOutcome::Written(_) => Ok(OwnEnd::Stored),
            CommitOutcome::Stale => Ok(OwnEnd::Changed),
        }
    }

    /// Returns whether the executor takes no more builds because it shuts down.
    pub(super) fn is_draining(&self) -> bool {
        self.is_draining.load(Ordering::Acquire)
    }

    /// Returns whether another executor has ended the session, and ends its builds.
    pub(super) fn is_fenced(&self) -> bool {
        self.is_fenced.load(Ordering::Acquire)
    }

    /// Returns the number of slots.
    pub(super) fn slot_count(&self) -> u32 {
        u32::try_from(self.options.slots.max(1)).unwrap_or(1)
    }
}

/// Whether the end of the session was stored.
#[derive(PartialEq, Eq)]
enum OwnEnd {
    Stored,
    /// The record was changed since it was read.
    Changed,
}
