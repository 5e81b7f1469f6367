//! The life of an executor's own session: it is created, renewed every second, and may be found
//! ended by another executor (Z7.3).

use super::{ExecutorService, LEASE, RENEW_SECONDS};
use sluice_model::{BuildId, Timestamp};
use sluice_records::build;
use sluice_records::codec::{decode, encode, expiry, get, with_body};
use sluice_records::session::{self, LIFE_SECONDS, LiveLogServer, Session, SessionState};
use sluice_runtime::batch::ReconcileError;
use sluice_runtime::record::{Key, Record};
use sluice_runtime::{CellCommit, CommitOutcome, cell};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use tokio::time::{MissedTickBehavior, interval};

/// The outcome of an attempt to renew a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Renewal {
    /// The session was written.
    Renewed,
    /// Nothing was written: the stored record was not the expected one, as after an earlier write
    /// whose response was lost. The next attempt builds on the stored one.
    Behind,
    /// The session is gone, or another executor has ended it.
    Gone,
}

/// What an executor knows of its session.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct SessionLife {
    /// How often it was renewed.
    pub(super) renewals: u64,
    /// How it ended; `None` while it is renewed.
    pub(super) end: Option<SessionEnd>,
}

/// How a session ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SessionEnd {
    /// Its executor shuts down, and renews it no more.
    Shutdown,
    /// Its record does not exist any more.
    Missing,
    /// Another executor has ended it, and ends its builds.
    Fenced,
}

impl ExecutorService {
    /// Stores the session's first record and returns it; an error if a session of this id exists.
    pub(super) async fn create_session(&self) -> Result<Record, ReconcileError> {
        let now = self.ports.clock.now();
        let body = self.session_body(now, now);
        let mut head = encode(session::key(&self.session), &body)?;
        // The index by which the API lists executors, and executors find each other.
        head.find = Some(session::open_entry(&self.session));
        head.expires_at = Some(expiry(now));
        let plan = CellCommit { head, others: Vec::new(), wakeups: Vec::new(), due: None };
        match cell::commit(&self.ports, plan).await? {
            CommitOutcome::Written(record) => Ok(record),
            CommitOutcome::Stale => {
                Err(ReconcileError::Retry("a session with this id already exists".to_owned()))
            }
        }
    }

    /// Returns the content of the session's record, alive until [`LIFE_SECONDS`] after `now`. It
    /// lists all builds that are being claimed, run or are paused here.
    fn session_body(&self, started_at: Timestamp, now: Timestamp) -> Session {
        let server = |address| LiveLogServer { address, token: self.logs.token().clone() };
        Session {
            id: self.session.clone(),
            hostname: self.options.hostname.clone(),
            live_logs: self.options.log_address.clone().map(server),
            started_at,
            alive_until: now.plus_seconds(LIFE_SECONDS),
            builds: self.running.ids(),
            zone: self.options.zone.name().cloned(),
            state: if self.is_draining() { SessionState::Draining } else { SessionState::Running },
        }
    }

    /// Renews the session every [`RENEW_SECONDS`] and stops or resumes builds on request; returns
    /// only when the session is gone. `record` is the stored session. Failures are logged. Once the
    /// lease is over, also while a renewal gets no answer and after this process was paused, the
    /// builds may be retried elsewhere. So all builds are stopped here then, but renewing goes on.
    pub(super) async fn renew(&self, record: &mut Record) {
        let started_at = self.ports.clock.now();
        self.lease.renew(Instant::now() + LEASE);
        let mut ticks = interval(Duration::from_secs(RENEW_SECONDS));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let (now, began) = (self.ports.clock.now(), Instant::now());
            let mut renewal = std::pin::pin!(self.renew_once(record, started_at, now));
            let renewed = tokio::select! {
                biased;
                () = self.lease.over() => {
                    self.running.stop_all("the executor could not renew its session in time");
                    renewal.await
                }
                renewed = &mut renewal => renewed,
            };
            match renewed {
                Ok(Renewal::Renewed) => {
                    self.lease.renew(began + LEASE);
                    self.life.send_modify(|life| life.renewals += 1);
                }
                Ok(Renewal::Behind) => {
                    tracing::warn!("the session was not renewed: its record is not as expected");
                }
                Ok(Renewal::Gone) => return,
                Err(error) => tracing::warn!(%error, "could not renew the session"),
            }
        }
    }

    /// Tries to renew the session stored as `record` once, and updates `record`. Unless the session
    /// is gone, it then stops or resumes the builds for which that is requested, and ends claims of
    /// unknown outcome for which a stop is requested; a failure of the latter is only logged.
    /// `started_at` is when the session started, and is stored again. The lease ends at once if
    /// another executor has ended the session.
    ///
    /// # Errors
    /// Returns an error if the store does not answer; the next renewal tries again.
    pub async fn renew_once(
        &self,
        record: &mut Record,
        started_at: Timestamp,
        now: Timestamp,
    ) -> Result<Renewal, ReconcileError> {
        let mut head = with_body(record.clone(), &self.session_body(started_at, now))?;
        // Expires like any final record, counted from the last renewal.
        head.expires_at = Some(expiry(now));
        let plan = CellCommit { head, others: Vec::new(), wakeups: Vec::new(), due: None };
        let renewal = match cell::commit(&self.ports, plan).await? {
            CommitOutcome::Written(renewed) => {
                *record = renewed;
                Renewal::Renewed
            }
            // Another executor has ended the session, or the stored record is an earlier write of
            // this one whose response was lost. The next renewal builds on that.
            CommitOutcome::Stale => match get(&self.ports, &record.key).await? {
                Some(stored) if has_ended(&stored) => {
                    self.lease.end();
                    self.end_life(SessionEnd::Fenced);
                    return Ok(Renewal::Gone);
                }
                Some(stored) => {
                    *record = stored;
                    Renewal::Behind
                }
                None => {
                    self.end_life(SessionEnd::Missing);
                    return Ok(Renewal::Gone);
                }
            },
        };
        self.follow_requests().await?;
        let is_running = |build: &BuildId| self.running.contains(build);
        if let Err(error) = self.claims.end_stopped_unconfirmed(&is_running).await {
            tracing::warn!(%error, "could not check builds whose claim is unconfirmed; retrying");
        }
        Ok(renewal)
    }

    /// Stops and resumes the builds here for which that is requested.
    async fn follow_requests(&self) -> Result<(), ReconcileError> {
        let (running, paused) = (self.running.ids(), self.running.paused());
        let stops = running.iter().map(|build| (build::stop_key(build), build));
        let resumes = paused.iter().map(|build| (build::resume_key(build), build));
        let requests: BTreeMap<Key, &BuildId> = stops.chain(resumes).collect();
        let keys: Vec<Key> = requests.keys().cloned().collect();
        for page in keys.chunks(100) {
            for request in self.ports.records.get(page).await?.into_iter().flatten() {
                let Some(build) = requests.get(&request.key).copied() else { continue };
                if request.key == build::resume_key(build) {
                    self.running.resume(build);
                } else {
                    self.running.stop(build, &build::decode_stop(&request).why);
                }
            }
        }
        Ok(())
    }

    /// Waits until it is known whether the session still is this executor's, which a process that
    /// was paused finds out with its next renewal. Returns false if the builds here may be another
    /// executor's: then nothing may be stored for them.
    pub(super) async fn holds_session(&self) -> bool {
        let mut life = self.life.subscribe();
        loop {
            match life.borrow_and_update().end {
                Some(SessionEnd::Fenced) => return false,
                // No other executor has ended it, and none will, since it is on no list.
                Some(SessionEnd::Missing) => return true,
                None | Some(SessionEnd::Shutdown) if !self.lease.is_over() => return true,
                Some(SessionEnd::Shutdown) => return false,
                None => {}
            }
            if life.changed().await.is_err() {
                return false;
            }
        }
    }

    /// Notes how the session ended, if that is not known yet.
    pub(super) fn end_life(&self, end: SessionEnd) {
        self.life.send_modify(|life| {
            life.end.get_or_insert(end);
        });
    }

    /// Returns whether the session has ended, as far as this executor knows.
    pub(super) fn has_session_ended(&self) -> bool {
        self.life.borrow().end.is_some()
    }
}

/// Returns whether a stored session has ended. One that cannot be read has not.
pub(super) fn has_ended(record: &Record) -> bool {
    decode::<Session>(record).is_ok_and(|session| session.state.has_ended())
}
