//! Executors' sessions: whether the executors that run builds are alive. They are read from time to
//! time, not at each reconcile.

use serde::de::DeserializeOwned;
use sluice_gate::plan::ObservedBuild;
use sluice_model::build::{Phase, Run};
use sluice_model::{BuildId, SessionId, Timestamp};
use sluice_records::codec::{BadRecord, decode};
use sluice_records::session::{
    self, ExpirySighting, LIFE_SECONDS, SIGHTINGS_MAX, Session, SessionState, SuspectedExpiry,
};
use sluice_runtime::record::{Key, Record};
use std::collections::{BTreeMap, BTreeSet};

/// When executors were last known to be alive, between reconciles of one queue.
///
/// An executor is alive when it claims a build and when its session was valid at a read. A session
/// is therefore read again only after the length of a session's life: it cannot have expired
/// before. A gate without a cache reads it sooner.
#[derive(Debug, Clone, Default)]
pub(crate) struct ExecutorWatch {
    /// The time at which each executor was last known to be alive.
    alive_at: BTreeMap<SessionId, Timestamp>,
    /// Builds that their executors' sessions did not list at the last reconcile.
    unlisted: BTreeSet<BuildId>,
}

/// The observed state of builds.
#[derive(Debug, Default)]
pub(crate) struct RunAssessment {
    /// The state of each build.
    pub(crate) runs: BTreeMap<BuildId, ObservedBuild>,
    /// New suspicions that sessions have expired. They are stored, since another process may do the
    /// next reconcile.
    pub(crate) doubts: BTreeMap<SessionId, SuspectedExpiry>,
    /// When a suspicion has to be checked again; `None` without one.
    pub(crate) look_at: Option<Timestamp>,
    /// Session records that cannot be read.
    pub(crate) unreadable: Vec<BadRecord>,
}

/// The largest difference between two clocks, each being up to ten minutes off. A session that
/// expired longer ago has expired by every clock.
const SKEW_SECONDS: u64 = 1_200;

/// Seconds within which an executor lists a build after claiming it.
const LISTED_SECONDS: u64 = 60;

impl ExecutorWatch {
    /// Returns the keys of the session records, and of the suspicions about them, that are due to
    /// be read.
    pub(crate) fn keys_due(&self, now: Timestamp) -> BTreeSet<Key> {
        self.due(now).iter().flat_map(keys).collect()
    }

    /// Updates the watch with the current runs and drops executors that run none of them any more.
    /// Returns the sessions that are due to be read. Ended runs do not count.
    pub(crate) fn track(&mut self, running: &[Run], now: Timestamp) -> BTreeSet<SessionId> {
        let mut alive_at = BTreeMap::new();
        for run in running.iter().filter(|run| !matches!(run.phase, Phase::Ended(_))) {
            let read_at = self.alive_at.get(&run.session).copied().unwrap_or(run.claimed_at);
            let at: &mut Timestamp = alive_at.entry(run.session.clone()).or_insert(read_at);
            *at = (*at).max(run.claimed_at);
        }
        self.alive_at = alive_at;
        self.due(now)
    }

    /// Returns the state of each run and updates the watch. A run that has not ended is lost once
    /// its executor has not renewed its session or the session is gone (Z7.3), and where the living
    /// executor does not list the build at two successive reconciles. `asked` names the sessions
    /// that were read, and `found` must hold their records ([`keys`]); other sessions count as
    /// valid. `gate` is the name of this instance. The caller stores the new suspicions.
    ///
    /// The executor writes the expiry by its own clock. Where it has passed by the gate's clock,
    /// the session counts as expired only if it was not renewed for its whole life by the gate's
    /// clock: an executor whose clock is slow loses no build. `gate` names the instance whose clock
    /// `now` is. Only this instance measures by it, since the clocks of two gates may differ.
    pub(crate) fn assess(
        &mut self,
        gate: &str,
        running: Vec<Run>,
        asked: &BTreeSet<SessionId>,
        found: &BTreeMap<Key, Record>,
        now: Timestamp,
    ) -> RunAssessment {
        let mut judged = RunAssessment::default();
        let mut unlisted = BTreeSet::new();
        let mut sessions: BTreeMap<SessionId, Read> = BTreeMap::new();
        for run in running {
            let known = sessions.entry(run.session.clone());
            let known =
                known.or_insert_with(|| Read::of(&run.session, found, &mut judged.unreadable));
            // An unreadable session shows only whether it is renewed. If it is not, its executor
            // counts as dead.
            let unknown = || Session {
                id: run.session.clone(),
                hostname: run.session.to_string(),
                live_logs: None,
                started_at: run.claimed_at,
                alive_until: now,
                builds: vec![run.build.clone()],
                zone: None,
                state: SessionState::Running,
            };
            let unreadable = (known.revision.is_some() && known.session.is_none()).then(unknown);
            let session = known.session.as_ref().or(unreadable.as_ref());
            let is_over = match (known.revision, session) {
                (Some(revision), Some(session)) => {
                    match liveness(gate, session, revision, known.doubt.clone(), now) {
                        Liveness::Lives => false,
                        Liveness::Dead => true,
                        Liveness::Doubted { since, doubt } => {
                            let until = since.plus_seconds(LIFE_SECONDS);
                            judged.look_at = Some(judged.look_at.map_or(until, |at| at.min(until)));
                            judged.doubts.extend(doubt.map(|doubt| (session.id.clone(), doubt)));
                            false
                        }
                    }
                }
                _ => false,
            };
            let mut seen = seen(&run, asked.contains(&run.session).then_some(session), is_over);
            let is_at_work =
                matches!(seen, ObservedBuild::Running { .. } | ObservedBuild::Paused { .. });
            let lives = session.is_some_and(|session| session.alive_until > now);
            if let Some(session) = session.filter(|session| is_at_work && !knows(session, &run)) {
                // Its end may have been written after its run was read. The next reconcile, which
                // reads both again, decides.
                if self.unlisted.contains(&run.build) {
                    let why = format!(
                        "the executor {} is alive but does not list the build",
                        session.hostname
                    );
                    seen = ObservedBuild::Lost { why };
                }
                unlisted.insert(run.build.clone());
            } else if lives && is_at_work {
                self.alive_at.insert(run.session, now);
            }
            judged.runs.insert(run.build, seen);
        }
        self.unlisted = unlisted;
        judged
    }

    /// Returns the sessions whose executors were last known to be alive at least a session's life
    /// ago.
    fn due(&self, now: Timestamp) -> BTreeSet<SessionId> {
        let is_due = |at: Timestamp| now.since(at) >= LIFE_SECONDS * 1_000;
        self.alive_at
            .iter()
            .filter(|(_, at)| is_due(**at))
            .map(|(session, _)| session.clone())
            .collect()
    }
}

/// The records of one executor's session. A session lists all builds of its executor, so it is read
/// once for them.
struct Read {
    /// The revision of the session's record; `None` where there is none.
    revision: Option<u64>,
    /// The session; `None` where there is none or it cannot be read.
    session: Option<Session>,
    /// The stored suspicion that the session has expired.
    doubt: Option<SuspectedExpiry>,
}

impl Read {
    /// Decodes the records of a session. Those that cannot be read are added to `unreadable`.
    fn of(id: &SessionId, found: &BTreeMap<Key, Record>, unreadable: &mut Vec<BadRecord>) -> Self {
        let record = found.get(&session::key(id));
        Self {
            revision: record.map(|record| record.revision),
            session: record.and_then(|record| read(record, unreadable)),
            doubt: found
                .get(&session::suspected_expiry_key(id))
                .and_then(|record| read(record, unreadable)),
        }
    }
}

/// Decodes a record. Returns `None` and adds it to `unreadable` where it cannot be read.
fn read<T: DeserializeOwned>(record: &Record, unreadable: &mut Vec<BadRecord>) -> Option<T> {
    decode(record).map_err(|bad| unreadable.push(bad)).ok()
}

/// Returns whether an executor lists a build or had no time to do so yet. An executor may write its
/// claim and not get the answer. The message then goes to another executor, which finds the build
/// claimed, and no executor runs it.
fn knows(session: &Session, run: &Run) -> bool {
    // Both by the executor's own clock.
    let renewed_at = Timestamp(session.alive_until.0.saturating_sub(LIFE_SECONDS * 1_000));
    session.builds.contains(&run.build) || renewed_at <= run.claimed_at.plus_seconds(LISTED_SECONDS)
}

/// Returns the keys of a session's record and of the suspicion that it has expired.
pub(crate) fn keys(id: &SessionId) -> [Key; 2] {
    [session::key(id), session::suspected_expiry_key(id)]
}

/// Whether an executor's session is valid.
enum Liveness {
    /// The session is valid.
    Lives,
    /// The session may have expired: since when by this gate's clock, and the suspicion to store
    /// where it does not name this gate yet.
    Doubted { since: Timestamp, doubt: Option<SuspectedExpiry> },
    /// The session has expired.
    Dead,
}

/// Returns whether an executor is alive, by its session and a stored suspicion; with a doubt that
/// does not name this gate yet, also the suspicion to store. A session that was ended, or expired
/// more than [`SKEW_SECONDS`] ago, is dead. One that expired later is doubted, until this gate has
/// doubted the same revision of it for [`LIFE_SECONDS`]; then it is dead too.
fn liveness(
    gate: &str,
    session: &Session,
    revision: u64,
    doubt: Option<SuspectedExpiry>,
    now: Timestamp,
) -> Liveness {
    if session.state.has_ended() {
        return Liveness::Dead;
    }
    if session.alive_until > now {
        return Liveness::Lives;
    }
    if now.since(session.alive_until) > SKEW_SECONDS * 1_000 {
        return Liveness::Dead;
    }
    let mut doubt = doubt
        .filter(|doubt| doubt.revision == revision)
        .unwrap_or(SuspectedExpiry { revision, sightings: Vec::new() });
    let mine = doubt.sightings.iter().find(|seen| seen.by == gate).map(|seen| seen.at);
    match mine {
        Some(since) if now.since(since) >= LIFE_SECONDS * 1_000 => Liveness::Dead,
        Some(since) => Liveness::Doubted { since, doubt: None },
        None => {
            doubt.sightings.push(ExpirySighting { by: gate.to_owned(), at: now });
            let beyond = doubt.sightings.len().saturating_sub(SIGHTINGS_MAX);
            doubt.sightings.drain(..beyond);
            Liveness::Doubted { since: now, doubt: Some(doubt) }
        }
    }
}

/// Returns the state of a build. `session` is `None` where it was not read, which counts as valid,
/// and `Some(None)` where there is none. `is_over` says whether the session has expired. A run with
/// an end has ended, whatever its session is.
fn seen(run: &Run, session: Option<Option<&Session>>, is_over: bool) -> ObservedBuild {
    if let Phase::Ended(end) = &run.phase {
        return ObservedBuild::Ended(end.clone());
    }
    let started_at = Some(run.claimed_at);
    let running = match &run.phase {
        Phase::Paused(pause) => ObservedBuild::Paused { started_at, data: pause.data.clone() },
        phase => ObservedBuild::Running { started_at, pre_fail: matches!(phase, Phase::Failing) },
    };
    match session {
        None => running,
        Some(Some(_)) if !is_over => running,
        Some(Some(session)) => ObservedBuild::Lost { why: session.lost_reason() },
        Some(None) => {
            ObservedBuild::Lost { why: format!("the executor's session {} is gone", run.session) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_records::codec::encode_first;
    use sluice_runtime::record::Write;

    fn run() -> Run {
        Run {
            build: BuildId::derive(&["one"]),
            session: SessionId("life".to_owned()),
            phase: Phase::Running,
            claimed_at: Timestamp(0),
            playbook: None,
            lost: None,
        }
    }

    /// The stored records about the executor, between reconciles.
    #[derive(Default)]
    struct StoredSession(BTreeMap<Key, Record>);

    impl StoredSession {
        /// Assesses the run by a gate without a cache, after the executor renewed its session
        /// `revision` times, until `alive_until` by its clock.
        fn judge(
            &mut self,
            revision: u64,
            alive_until: u64,
            now: u64,
        ) -> (ObservedBuild, Option<Timestamp>) {
            self.judge_by("gate", revision, alive_until, now)
        }

        fn judge_by(
            &mut self,
            gate: &str,
            revision: u64,
            alive_until: u64,
            now: u64,
        ) -> (ObservedBuild, Option<Timestamp>) {
            let now = Timestamp(now);
            let id = SessionId("life".to_owned());
            let session = Session {
                id: id.clone(),
                hostname: "executor".to_owned(),
                live_logs: None,
                started_at: Timestamp(0),
                alive_until: Timestamp(alive_until),
                builds: Vec::new(),
                zone: None,
                state: SessionState::Running,
            };
            let mut record = encode_first(session::key(&id), &session).unwrap();
            record.revision = revision;
            self.0.insert(session::key(&id), record);
            let mut watch = ExecutorWatch::default();
            let asked = watch.track(&[run()], now);
            let mut judged = watch.assess(gate, vec![run()], &asked, &self.0, now);
            for (id, doubt) in &judged.doubts {
                let Write::Put { record, .. } = session::put_suspected_expiry(id, doubt).unwrap()
                else {
                    unreachable!()
                };
                self.0.insert(record.key.clone(), record);
            }
            (judged.runs.remove(&run().build).unwrap(), judged.look_at)
        }
    }

    /// Z7.3: clocks that differ by ten minutes may delay, but never corrupt.
    #[test]
    fn an_executor_whose_clock_is_behind_loses_no_build_while_it_renews_its_session() {
        let mut stored = StoredSession::default();
        for (revision, now) in [(30, 100_000), (60, 130_000), (90, 160_000)] {
            let (seen, _) = stored.judge(revision, now - 60_000, now);
            assert!(matches!(seen, ObservedBuild::Running { .. }), "{seen:?}");
        }
    }

    /// Z7.3: an unreadable session does not show which builds the executor lists, so none of them
    /// is lost.
    #[test]
    fn a_session_that_cannot_be_read_loses_none_of_its_builds() {
        let runs = [run(), Run { build: BuildId::derive(&["two"]), ..run() }];
        let record = encode_first(session::key(&run().session), &"no session").unwrap();
        let found = BTreeMap::from([(record.key.clone(), record)]);
        let mut watch = ExecutorWatch::default();
        for at in [100_000, 120_000] {
            let asked = watch.track(&runs, Timestamp(at));
            let judged = watch.assess("gate", runs.to_vec(), &asked, &found, Timestamp(at));
            let run_on = judged
                .runs
                .values()
                .filter(|seen| matches!(seen, ObservedBuild::Running { .. }))
                .count();
            assert_eq!((run_on, judged.runs.len()), (2, 2), "{:?}", judged.runs);
            assert_eq!(judged.unreadable.len(), 1, "it is reported once");
        }
    }

    /// Z7.3: no two of these reconciles share a cache.
    #[test]
    fn a_session_that_is_not_renewed_for_its_life_is_lost() {
        let mut stored = StoredSession::default();
        let (seen, look_at) = stored.judge(30, 100_000, 101_000);
        assert!(matches!(seen, ObservedBuild::Running { .. }));
        assert_eq!(look_at, Some(Timestamp(116_000)), "it is checked as soon as it can be decided");
        let (seen, look_at) = stored.judge(30, 100_000, 110_000);
        assert!(matches!(seen, ObservedBuild::Running { .. }));
        assert_eq!(look_at, Some(Timestamp(116_000)));
        let (seen, _) = stored.judge(30, 100_000, 116_000);
        assert!(matches!(seen, ObservedBuild::Lost { .. }));
        // Beyond what two clocks may be apart, no second look is needed.
        assert!(matches!(
            StoredSession::default().judge(30, 100_000, 1_301_000).0,
            ObservedBuild::Lost { .. }
        ));
    }

    /// Z7.6: the claim was written and its answer was lost, so the message went to an executor that
    /// found the build claimed.
    #[test]
    fn a_build_that_its_living_executor_does_not_list_twice_is_lost() {
        let session = |builds: Vec<BuildId>, renewed_at: u64| {
            let session = Session {
                id: SessionId("life".to_owned()),
                hostname: "executor".to_owned(),
                live_logs: None,
                started_at: Timestamp(0),
                alive_until: Timestamp(renewed_at).plus_seconds(LIFE_SECONDS),
                builds,
                zone: None,
                state: SessionState::Running,
            };
            let record = encode_first(session::key(&session.id), &session).unwrap();
            BTreeMap::from([(record.key.clone(), record)])
        };
        let mut watch = ExecutorWatch::default();
        let mut look = |builds: &[BuildId], at: u64| {
            let asked = watch.track(&[run()], Timestamp(at));
            let mut judged = watch.assess(
                "gate",
                vec![run()],
                &asked,
                &session(builds.to_vec(), at),
                Timestamp(at),
            );
            (asked.len(), judged.runs.remove(&run().build).unwrap())
        };
        let lives = |seen: &(usize, ObservedBuild)| {
            seen.0 == 1 && matches!(seen.1, ObservedBuild::Running { .. })
        };
        assert!(lives(&look(&[], 59_000)), "it may be about to run it");
        assert!(lives(&look(&[run().build], 80_000)));
        assert!(lives(&look(&[], 100_000)), "its end may have been written");
        assert!(lives(&look(&[run().build], 101_000)), "the executor got the build again");
        assert!(lives(&look(&[], 120_000)));
        let (_, seen) = look(&[], 121_000);
        assert!(
            matches!(&seen, ObservedBuild::Lost { why } if why.contains("does not list the build")),
            "{seen:?}"
        );
    }

    /// Z7.3: two gates whose clocks differ by five minutes reconcile a second apart, twice; the
    /// executor was silent for two seconds.
    #[test]
    fn no_gate_measures_an_executors_silence_by_the_clock_of_another() {
        let mut stored = StoredSession::default();
        for (gate, now) in
            [("behind", 101_000), ("ahead", 402_000), ("behind", 103_000), ("ahead", 404_000)]
        {
            let (seen, _) = stored.judge_by(gate, 30, 100_000, now);
            assert!(matches!(seen, ObservedBuild::Running { .. }), "{gate} at {now}: {seen:?}");
        }
        let (seen, _) = stored.judge_by("behind", 30, 100_000, 116_000);
        assert!(
            matches!(seen, ObservedBuild::Lost { .. }),
            "by its own clock it was silent for its whole life"
        );
    }
}
