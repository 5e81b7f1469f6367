//! Executors' sessions: whether those that run builds still live. It is asked every now and then,
//! not at each look.

use serde::de::DeserializeOwned;
use sluice_gate::plan::RunSeen;
use sluice_model::build::{Phase, Run};
use sluice_model::{BuildId, SessionId, Timestamp};
use sluice_records::codec::{BadRecord, decode};
use sluice_records::session::{self, Doubt, LIFE_SECONDS, SEEN_MAX, Seen, Session};
use sluice_runtime::record::{Key, Record};
use std::collections::{BTreeMap, BTreeSet};

/// When executors were known to live, between looks at one queue.
///
/// Whoever claims a build lives at that time, and a session that was read says the same. So a
/// session is read when neither is younger than a session's life: it could not have run out before.
/// A gate that remembers nothing reads it sooner.
#[derive(Debug, Clone, Default)]
pub(crate) struct Watch {
    alive_at: BTreeMap<SessionId, Timestamp>,
    /// Builds that their executors did not list when they were looked at last.
    unlisted: BTreeSet<BuildId>,
}

/// What runs were judged to be.
#[derive(Debug, Default)]
pub(crate) struct Judged {
    /// What is known of each build.
    pub(crate) runs: BTreeMap<BuildId, RunSeen>,
    /// Sessions that this gate doubts for the first time, to be written down: the next look may be
    /// another process's.
    pub(crate) doubts: BTreeMap<SessionId, Doubt>,
    /// When a doubt is to be settled.
    pub(crate) look_at: Option<Timestamp>,
    /// Records about sessions that cannot be read.
    pub(crate) unreadable: Vec<BadRecord>,
}

/// How far two clocks may be apart, each being up to ten minutes off. A session that ran out longer
/// ago is gone by any of them.
const SKEW_SECONDS: u64 = 1_200;

/// Seconds after its claim within which an executor that knows of a build lists it.
const LISTED_SECONDS: u64 = 60;

impl Watch {
    /// Returns the keys of sessions that are to be read again by now.
    pub(crate) fn keys_due(&self, now: Timestamp) -> BTreeSet<Key> {
        self.due(now).iter().flat_map(keys).collect()
    }

    /// Meets the runs of a look, forgets who has none of them, and returns the sessions by which
    /// they are to be judged.
    pub(crate) fn meet(&mut self, running: &[Run], now: Timestamp) -> BTreeSet<SessionId> {
        let mut alive_at = BTreeMap::new();
        for run in running.iter().filter(|run| !matches!(run.phase, Phase::Ended(_))) {
            let read_at = self.alive_at.get(&run.session).copied().unwrap_or(run.claimed_at);
            let at: &mut Timestamp = alive_at.entry(run.session.clone()).or_insert(read_at);
            *at = (*at).max(run.claimed_at);
        }
        self.alive_at = alive_at;
        self.due(now)
    }

    /// Says what runs show: a build whose executor has not renewed its session is lost, whatever
    /// its run says (Z7.3).
    ///
    /// When a session runs out stands in it by its executor's clock. Where that has passed by ours,
    /// it is lost only when it was not renewed for its whole life by *our* clock, between two
    /// looks: an executor whose clock is behind loses no build. Nor does it where two gates' clocks
    /// are apart: `gate` names the instance whose clock `now` is, and only it measures by it.
    pub(crate) fn judge(
        &mut self,
        gate: &str,
        running: Vec<Run>,
        asked: &BTreeSet<SessionId>,
        found: &BTreeMap<Key, Record>,
        now: Timestamp,
    ) -> Judged {
        let mut judged = Judged::default();
        let mut unlisted = BTreeSet::new();
        let mut sessions: BTreeMap<SessionId, Read> = BTreeMap::new();
        for run in running {
            let known = sessions.entry(run.session.clone());
            let known =
                known.or_insert_with(|| Read::of(&run.session, found, &mut judged.unreadable));
            // One that cannot be read tells nothing but whether it is renewed: if it is not, its
            // executor is taken for dead.
            let unknown = || Session {
                id: run.session.clone(),
                hostname: run.session.to_string(),
                log_address: None,
                started_at: run.claimed_at,
                alive_until: now,
                builds: vec![run.build.clone()],
            };
            let unreadable = (known.revision.is_some() && known.session.is_none()).then(unknown);
            let session = known.session.as_ref().or(unreadable.as_ref());
            let is_over = match (known.revision, session) {
                (Some(revision), Some(session)) => {
                    match verdict(gate, session, revision, known.doubt.clone(), now) {
                        Verdict::Lives => false,
                        Verdict::Dead => true,
                        Verdict::Doubted { since, news } => {
                            let until = since.plus_seconds(LIFE_SECONDS);
                            judged.look_at = Some(judged.look_at.map_or(until, |at| at.min(until)));
                            judged.doubts.extend(news.map(|doubt| (session.id.clone(), doubt)));
                            false
                        }
                    }
                }
                _ => false,
            };
            let mut seen = seen(&run, asked.contains(&run.session).then_some(session), is_over);
            let is_at_work = matches!(seen, RunSeen::Running { .. } | RunSeen::Paused { .. });
            let lives = session.is_some_and(|session| session.alive_until > now);
            if let Some(session) = session.filter(|session| is_at_work && !knows(session, &run)) {
                // Its end may have been written since its run was read: the next look, which reads
                // both again, decides.
                if self.unlisted.contains(&run.build) {
                    let why =
                        format!("the executor {} lives and knows nothing of it", session.hostname);
                    seen = RunSeen::Lost { why };
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

    fn due(&self, now: Timestamp) -> BTreeSet<SessionId> {
        let is_due = |at: Timestamp| now.since(at) >= LIFE_SECONDS * 1_000;
        self.alive_at
            .iter()
            .filter(|(_, at)| is_due(**at))
            .map(|(session, _)| session.clone())
            .collect()
    }
}

/// What was read of one executor's session. It lists the executor's builds, so that it is read once
/// and not for each of them.
struct Read {
    /// The revision of its record, where there is one.
    revision: Option<u64>,
    /// `None` also where the record cannot be read.
    session: Option<Session>,
    doubt: Option<Doubt>,
}

impl Read {
    fn of(id: &SessionId, found: &BTreeMap<Key, Record>, unreadable: &mut Vec<BadRecord>) -> Self {
        let record = found.get(&session::key(id));
        Self {
            revision: record.map(|record| record.revision),
            session: record.and_then(|record| read(record, unreadable)),
            doubt: found.get(&session::doubt_key(id)).and_then(|record| read(record, unreadable)),
        }
    }
}

fn read<T: DeserializeOwned>(record: &Record, unreadable: &mut Vec<BadRecord>) -> Option<T> {
    decode(record).map_err(|bad| unreadable.push(bad)).ok()
}

/// Returns whether an executor lists a build, or had no time yet to do so. Its claim may be written
/// and its answer lost, so that the message goes to another one, who finds it claimed: then nobody
/// runs it.
fn knows(session: &Session, run: &Run) -> bool {
    // Both by the executor's own clock.
    let renewed_at = Timestamp(session.alive_until.0.saturating_sub(LIFE_SECONDS * 1_000));
    session.builds.contains(&run.build) || renewed_at <= run.claimed_at.plus_seconds(LISTED_SECONDS)
}

/// Returns the keys of all that is read about a session.
pub(crate) fn keys(id: &SessionId) -> [Key; 2] {
    [session::key(id), session::doubt_key(id)]
}

enum Verdict {
    Lives,
    /// Since when, by this gate's clock, and the doubt to write down where this gate is not named
    /// in it.
    Doubted {
        since: Timestamp,
        news: Option<Doubt>,
    },
    Dead,
}

/// Returns what a session and an earlier doubt about it say.
fn verdict(
    gate: &str,
    session: &Session,
    revision: u64,
    doubt: Option<Doubt>,
    now: Timestamp,
) -> Verdict {
    if session.alive_until > now {
        return Verdict::Lives;
    }
    if now.since(session.alive_until) > SKEW_SECONDS * 1_000 {
        return Verdict::Dead;
    }
    let mut doubt = doubt
        .filter(|doubt| doubt.revision == revision)
        .unwrap_or(Doubt { revision, seen: Vec::new() });
    let mine = doubt.seen.iter().find(|seen| seen.by == gate).map(|seen| seen.at);
    match mine {
        Some(since) if now.since(since) >= LIFE_SECONDS * 1_000 => Verdict::Dead,
        Some(since) => Verdict::Doubted { since, news: None },
        None => {
            doubt.seen.push(Seen { by: gate.to_owned(), at: now });
            let beyond = doubt.seen.len().saturating_sub(SEEN_MAX);
            doubt.seen.drain(..beyond);
            Verdict::Doubted { since: now, news: Some(doubt) }
        }
    }
}

/// `session` is `None` where it was not asked for, and `Some(None)` where there is none.
fn seen(run: &Run, session: Option<Option<&Session>>, is_over: bool) -> RunSeen {
    if let Phase::Ended(end) = &run.phase {
        return RunSeen::Ended(end.clone());
    }
    let started_at = Some(run.claimed_at);
    let running = match &run.phase {
        Phase::Paused(pause) => RunSeen::Paused { started_at, data: pause.data.clone() },
        phase => RunSeen::Running { started_at, pre_fail: matches!(phase, Phase::Failing) },
    };
    match session {
        None => running,
        Some(Some(_)) if !is_over => running,
        Some(Some(session)) => RunSeen::Lost {
            why: format!(
                "the executor {} has been silent since {}",
                session.hostname,
                session.alive_until.to_iso()
            ),
        },
        Some(None) => {
            RunSeen::Lost { why: format!("the executor's session {} is gone", run.session) }
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
            fence: 1,
            phase: Phase::Running,
            claimed_at: Timestamp(0),
            log: None,
        }
    }

    /// What stands in the store about the executor, between looks.
    #[derive(Default)]
    struct Kept(BTreeMap<Key, Record>);

    impl Kept {
        /// Judges the run, by a gate that remembers nothing but its name, after the executor
        /// renewed its session `revision` times, until `alive_until` by its clock.
        fn judge(
            &mut self,
            revision: u64,
            alive_until: u64,
            now: u64,
        ) -> (RunSeen, Option<Timestamp>) {
            self.judge_by("gate", revision, alive_until, now)
        }

        fn judge_by(
            &mut self,
            gate: &str,
            revision: u64,
            alive_until: u64,
            now: u64,
        ) -> (RunSeen, Option<Timestamp>) {
            let now = Timestamp(now);
            let id = SessionId("life".to_owned());
            let session = Session {
                id: id.clone(),
                hostname: "executor".to_owned(),
                log_address: None,
                started_at: Timestamp(0),
                alive_until: Timestamp(alive_until),
                builds: Vec::new(),
            };
            let mut record = encode_first(session::key(&id), &session).unwrap();
            record.revision = revision;
            self.0.insert(session::key(&id), record);
            let mut watch = Watch::default();
            let asked = watch.meet(&[run()], now);
            let mut judged = watch.judge(gate, vec![run()], &asked, &self.0, now);
            for (id, doubt) in &judged.doubts {
                let Write::Put { record, .. } = session::put_doubt(id, doubt).unwrap() else {
                    unreachable!()
                };
                self.0.insert(record.key.clone(), record);
            }
            (judged.runs.remove(&run().build).unwrap(), judged.look_at)
        }
    }

    /// Z7.3: ten minutes between two clocks may delay, and never corrupt.
    #[test]
    fn an_executor_whose_clock_is_behind_loses_no_build_while_it_renews_its_session() {
        let mut kept = Kept::default();
        for (revision, now) in [(30, 100_000), (60, 130_000), (90, 160_000)] {
            let (seen, _) = kept.judge(revision, now - 60_000, now);
            assert!(matches!(seen, RunSeen::Running { .. }), "{seen:?}");
        }
    }

    /// Z7.3: nobody can tell which builds an executor lists whose session cannot be read, and so
    /// none of them is lost for that.
    #[test]
    fn a_session_that_cannot_be_read_loses_none_of_its_builds() {
        let runs = [run(), Run { build: BuildId::derive(&["two"]), ..run() }];
        let record = encode_first(session::key(&run().session), &"no session").unwrap();
        let found = BTreeMap::from([(record.key.clone(), record)]);
        let mut watch = Watch::default();
        for at in [100_000, 120_000] {
            let asked = watch.meet(&runs, Timestamp(at));
            let judged = watch.judge("gate", runs.to_vec(), &asked, &found, Timestamp(at));
            let run_on =
                judged.runs.values().filter(|seen| matches!(seen, RunSeen::Running { .. })).count();
            assert_eq!((run_on, judged.runs.len()), (2, 2), "{:?}", judged.runs);
            assert_eq!(judged.unreadable.len(), 1, "it is set aside once");
        }
    }

    /// Z7.3: no two of these looks share a memory.
    #[test]
    fn a_session_that_stands_still_for_its_life_is_lost() {
        let mut kept = Kept::default();
        let (seen, look_at) = kept.judge(30, 100_000, 101_000);
        assert!(matches!(seen, RunSeen::Running { .. }));
        assert_eq!(look_at, Some(Timestamp(116_000)), "it is settled as soon as it can be");
        let (seen, look_at) = kept.judge(30, 100_000, 110_000);
        assert!(matches!(seen, RunSeen::Running { .. }));
        assert_eq!(look_at, Some(Timestamp(116_000)));
        let (seen, _) = kept.judge(30, 100_000, 116_000);
        assert!(matches!(seen, RunSeen::Lost { .. }));
        // Beyond what two clocks may be apart, no second look is needed.
        assert!(matches!(Kept::default().judge(30, 100_000, 1_301_000).0, RunSeen::Lost { .. }));
    }

    /// Z7.6: its claim was written and the answer lost, and its message went to an executor that
    /// found it claimed.
    #[test]
    fn a_build_that_its_living_executor_does_not_know_of_is_lost_when_it_was_looked_at_twice() {
        let session = |builds: Vec<BuildId>, renewed_at: u64| {
            let session = Session {
                id: SessionId("life".to_owned()),
                hostname: "executor".to_owned(),
                log_address: None,
                started_at: Timestamp(0),
                alive_until: Timestamp(renewed_at).plus_seconds(LIFE_SECONDS),
                builds,
            };
            let record = encode_first(session::key(&session.id), &session).unwrap();
            BTreeMap::from([(record.key.clone(), record)])
        };
        let mut watch = Watch::default();
        let mut look = |builds: &[BuildId], at: u64| {
            let asked = watch.meet(&[run()], Timestamp(at));
            let mut judged = watch.judge(
                "gate",
                vec![run()],
                &asked,
                &session(builds.to_vec(), at),
                Timestamp(at),
            );
            (asked.len(), judged.runs.remove(&run().build).unwrap())
        };
        let lives =
            |seen: &(usize, RunSeen)| seen.0 == 1 && matches!(seen.1, RunSeen::Running { .. });
        assert!(lives(&look(&[], 59_000)), "it may be about to run it");
        assert!(lives(&look(&[run().build], 80_000)));
        assert!(lives(&look(&[], 100_000)), "its end may be written by now");
        assert!(lives(&look(&[run().build], 101_000)), "it was given it once more");
        assert!(lives(&look(&[], 120_000)));
        let (_, seen) = look(&[], 121_000);
        assert!(
            matches!(&seen, RunSeen::Lost { why } if why.contains("knows nothing of it")),
            "{seen:?}"
        );
    }

    /// Z7.3: two gates whose clocks are five minutes apart look a second after each other, twice;
    /// the executor was silent for two.
    #[test]
    fn no_gate_measures_an_executors_silence_by_the_clock_of_another() {
        let mut kept = Kept::default();
        for (gate, now) in
            [("behind", 101_000), ("ahead", 402_000), ("behind", 103_000), ("ahead", 404_000)]
        {
            let (seen, _) = kept.judge_by(gate, 30, 100_000, now);
            assert!(matches!(seen, RunSeen::Running { .. }), "{gate} at {now}: {seen:?}");
        }
        let (seen, _) = kept.judge_by("behind", 30, 100_000, 116_000);
        assert!(
            matches!(seen, RunSeen::Lost { .. }),
            "by its own clock it was silent for its whole life"
        );
    }
}
