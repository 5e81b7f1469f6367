//! Finds executors that have died, and ends their builds (Z7.3).
//!
//! The listed sessions form a ring, in the order of their ids, and every executor looks at the three
//! that follow its own. One that stays unchanged for its whole life is over: its executor, if it lives, has stopped its builds itself by then. The executor that
//! finds this first ends the session, then the builds, and then takes the session from the list, in
//! this order: one that dies in between leaves a session that is still listed, and another executor
//! goes on. All these writes are conditional on what was read.

use super::ExecutorService;
use crate::claim;
use sluice_model::{SessionId, Timestamp};
use sluice_records::codec::{decode, get_all, with_body};
use sluice_records::open_work::runs_of_session;
use sluice_records::session::{self, LIFE_SECONDS, OPEN_SESSIONS, Session, SessionState};
use sluice_runtime::batch::ReconcileError;
use sluice_runtime::record::{Key, Record};
use sluice_runtime::{CellCommit, CommitOutcome, PortError, Ports, cell};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{MissedTickBehavior, interval};

/// Seconds from one look at the sessions of other executors to the next.
pub const LOOK_SECONDS: u64 = 5;
/// The most sessions that one look reads.
const SESSIONS_MAX: usize = 500;
/// How many of the sessions that follow its own an executor looks at. A dead executor among them
/// leaves the list when its session is ended, and the next one takes its place. So the cost does not
/// grow with the square of the number of executors.
const WATCHED_MAX: usize = 3;
/// Looks at an unchanged session before it is over. A clock that jumps forward ends no session.
const LOOKS_MIN: u32 = 3;

/// What an executor remembers of other executors' sessions between two looks.
#[derive(Debug, Default)]
pub struct SessionWatch(BTreeMap<SessionId, Sighting>);

/// The looks at one session that found it unchanged.
#[derive(Debug, Clone, Copy)]
struct Sighting {
    /// The revision of the session.
    revision: u64,
    /// When it was first seen, by the clock of the executor that looks.
    since: Timestamp,
    /// How often it was seen.
    looks: u32,
}

impl SessionWatch {
    /// Takes in the sessions that a look at `now` found, by their revisions, and forgets those that
    /// it did not find. Returns the sessions that are over: those seen with the same revision at
    /// [`LOOKS_MIN`] looks and more, over [`LIFE_SECONDS`] at least.
    ///
    /// Only the clock of the executor that looks counts, since clocks differ.
    fn note(&mut self, found: &BTreeMap<SessionId, u64>, now: Timestamp) -> Vec<SessionId> {
        let note = |(id, revision): (&SessionId, &u64)| {
            let before = self.0.get(id).filter(|seen| seen.revision == *revision);
            let seen = match before {
                Some(seen) => Sighting { looks: seen.looks + 1, ..*seen },
                None => Sighting { revision: *revision, since: now, looks: 1 },
            };
            (id.clone(), seen)
        };
        self.0 = found.iter().map(note).collect();
        let is_over = |seen: &Sighting| {
            seen.looks >= LOOKS_MIN && now.since(seen.since) >= LIFE_SECONDS * 1_000
        };
        self.0.iter().filter(|(_, seen)| is_over(seen)).map(|(id, _)| id.clone()).collect()
    }
}

/// Returns the sessions that an executor looks at: the [`WATCHED_MAX`] that follow `own` in the
/// order of their keys, the first one after the last one; fewer if there are no more. `own` need not
/// be among `listed`.
fn watched_sessions(mut listed: Vec<Key>, own: &Key) -> Vec<Key> {
    listed.sort();
    listed.dedup();
    let first = listed.partition_point(|key| key <= own);
    listed.rotate_left(first);
    listed.retain(|key| key != own);
    listed.truncate(WATCHED_MAX);
    listed
}

impl ExecutorService {
    /// Looks at the sessions of other executors every [`LOOK_SECONDS`], for ever. Failures are
    /// logged; the next look continues.
    pub(super) async fn watch_sessions(self: Arc<Self>) {
        let mut ticks = interval(Duration::from_secs(LOOK_SECONDS));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut watch = SessionWatch::default();
        loop {
            ticks.tick().await;
            if let Err(error) = self.look_at_sessions(&mut watch).await {
                tracing::warn!(%error, "could not look after the builds of other executors; trying again");
            }
        }
    }

    /// Looks at the sessions of [`watched_sessions`] once, and ends those that are over, with their
    /// builds. Makes two calls where none is over.
    ///
    /// # Errors
    /// Returns an error if the store does not answer, or a build could not be ended. The session
    /// then stays listed, and any executor continues later.
    pub async fn look_at_sessions(
        self: &Arc<Self>,
        watch: &mut SessionWatch,
    ) -> Result<(), ReconcileError> {
        let keys = self.ports.records.find(OPEN_SESSIONS, None, SESSIONS_MAX).await?;
        let watched = watched_sessions(keys, &session::key(&self.session));
        let records = get_all(&self.ports, &watched).await?;
        let id = |key: &Key| SessionId(session::id_of(key).to_owned());
        let found = records.iter().map(|(key, record)| (id(key), record.revision)).collect();
        let mut failed = Vec::new();
        for over in watch.note(&found, self.ports.clock.now()) {
            let Some(record) = records.get(&session::key(&over)) else { continue };
            if let Err(error) = self.end_session(record).await {
                failed.push(format!("session {over}: {error}"));
            }
        }
        if failed.is_empty() { Ok(()) } else { Err(ReconcileError::Retry(failed.join("; "))) }
    }

    /// Ends the session in `record`, as it was read, with its builds; those whose logs can be
    /// collected are taken over and end later. Does nothing if its record has changed since,
    /// because its executor lives or another one ends it.
    async fn end_session(self: &Arc<Self>, record: &Record) -> Result<(), ReconcileError> {
        let ports = &self.ports;
        // The queues report an unreadable session, and give its builds up.
        let Ok(session) = decode::<Session>(record) else { return Ok(()) };
        let why = session.lost_reason();
        let at = match session.state {
            SessionState::Ended { at } => at,
            SessionState::Running | SessionState::Draining => ports.clock.now(),
        };
        let ended = Session { state: SessionState::Ended { at }, ..session };
        // Also written if it has ended already: of several executors only one goes on.
        let CommitOutcome::Written(record) = write(ports, record.clone(), &ended).await? else {
            return Ok(());
        };
        tracing::warn!(session = %ended.id, hostname = ended.hostname, "an executor is dead: {why}");
        let (mut to_collect, mut failed) = (Vec::new(), Vec::new());
        for lost in runs_of_session(ports, &ended.id).await? {
            let build = lost.run.build.clone();
            let has_logs = self.claims.has_logs_to_collect(&lost.run).await.unwrap_or_else(|error| {
                tracing::warn!(%build, %error, "could not check whether a lost build has logs to collect; it ends without");
                false
            });
            if has_logs {
                to_collect.push(lost);
                continue;
            }
            let ended = claim::end_lost(ports, lost, &why, &self.options.log_root).await;
            failed.extend(ended.err().map(|error| format!("build {build}: {error}")));
        }
        if !to_collect.is_empty() {
            failed.extend(self.collect_lost(to_collect, &why).await);
        }
        if !failed.is_empty() {
            return Err(ReconcileError::Retry(failed.join("; ")));
        }
        let find = Some(session::ended_entry(&ended.id, at));
        write(ports, Record { find, ..record }, &ended).await?;
        Ok(())
    }
}

/// Writes a session, on condition that its record is unchanged since it was read.
pub(super) async fn write(
    ports: &Ports,
    record: Record,
    session: &Session,
) -> Result<CommitOutcome, PortError> {
    let head = with_body(record, session)?;
    let plan = CellCommit { head, others: Vec::new(), wakeups: Vec::new(), due: None };
    cell::commit(ports, plan).await
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Z7.3: only a session that is unchanged for its whole life is over, by the clock of the
    /// executor that looks.
    #[test]
    fn a_session_is_over_when_it_is_unchanged_for_its_life_at_several_looks() {
        let mut watch = SessionWatch::default();
        let mut look = |found: &[(&str, u64)], second: u64| {
            let found = found.iter().map(|(id, revision)| (SessionId::from(*id), *revision));
            let over = watch.note(&found.collect(), Timestamp(second * 1_000));
            over.into_iter().map(|id| id.0).collect::<Vec<_>>()
        };
        let none: [&str; 0] = [];
        assert_eq!(look(&[("dead", 7), ("slow", 7)], 100), none);
        assert_eq!(look(&[("dead", 7), ("slow", 7)], 105), none);
        assert_eq!(look(&[("dead", 7), ("slow", 7)], 110), none);
        assert_eq!(look(&[("dead", 7), ("slow", 8)], 114), none, "a second too early");
        assert_eq!(look(&[("dead", 7), ("slow", 8)], 115), ["dead"]);
        assert_eq!(look(&[("slow", 8)], 120), none, "it is not listed any more");
        assert_eq!(look(&[("dead", 7), ("slow", 9)], 125), none, "it is seen for the first time");
        assert_eq!(look(&[("dead", 7), ("slow", 9)], 900), none, "the clock has jumped");
        assert_eq!(look(&[("dead", 7), ("slow", 10)], 905), ["dead"]);
    }

    /// Z7.3: each session is looked at by three others, or by all if there are fewer, and each
    /// executor looks at three.
    #[test]
    fn every_session_is_looked_at_by_the_three_executors_before_it() {
        let keys = |count: usize| -> Vec<Key> {
            (0..count).rev().map(|at| session::key(&format!("s{at}").as_str().into())).collect()
        };
        for count in 1..=9 {
            let listed = keys(count);
            let mut looks: BTreeMap<Key, usize> = BTreeMap::new();
            for own in &listed {
                let watched = watched_sessions(listed.clone(), own);
                assert!(watched.len() == WATCHED_MAX.min(count - 1) && !watched.contains(own));
                watched.into_iter().for_each(|key| *looks.entry(key).or_default() += 1);
            }
            let expected = WATCHED_MAX.min(count - 1);
            assert!(looks.values().all(|looks| *looks == expected), "{count}: {looks:?}");
            assert_eq!(looks.len(), if count == 1 { 0 } else { count });
        }
        let [s0, s1, s2] = [0, 1, 2].map(|at| session::key(&format!("s{at}").as_str().into()));
        assert_eq!(watched_sessions(keys(3), &s1), [s2, s0], "the first one follows the last one");
        let unlisted = session::key(&"s1x".into());
        assert_eq!(watched_sessions(keys(5), &unlisted)[0], keys(5)[2]);
    }
}
