//! Executors' sessions: whether those that run builds still live. It is asked every now and then, not at each look.

use sluice_gate::plan::RunSeen;
use sluice_model::build::{Phase, Run};
use sluice_model::{BuildId, SessionId, Timestamp};
use sluice_records::codec::decode;
use sluice_records::session::{self, LIFE_SECONDS, Session};
use sluice_runtime::batch::LookError;
use sluice_runtime::record::{Key, Record};
use std::collections::{BTreeMap, BTreeSet};

/// When executors were known to live, between looks at one queue.
///
/// Whoever claims a build lives at that time, and a session that was read says the same. So a session is read when neither
/// is younger than a session's life: it could not have run out before. A gate that remembers nothing reads it sooner.
#[derive(Debug, Clone, Default)]
pub(crate) struct Watch {
    alive_at: BTreeMap<SessionId, Timestamp>,
}

impl Watch {
    /// Returns the keys of sessions that are to be read again by now.
    pub(crate) fn keys_due(&self, now: Timestamp) -> BTreeSet<Key> {
        self.due(now).iter().map(session::key).collect()
    }

    /// Meets the runs of a look, forgets who has none of them, and returns the sessions by which they are to be judged.
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

    /// Says what runs show: a build whose executor has not renewed its session is lost, whatever its run says (Z7.3).
    pub(crate) fn judge(
        &mut self,
        running: Vec<Run>,
        asked: &BTreeSet<SessionId>,
        found: &BTreeMap<Key, Record>,
        now: Timestamp,
    ) -> Result<BTreeMap<BuildId, RunSeen>, LookError> {
        let mut judged = BTreeMap::new();
        for run in running {
            let session: Option<Session> = found.get(&session::key(&run.session)).map(decode).transpose()?;
            let seen = seen(&run, asked.contains(&run.session).then_some(session.as_ref()), now);
            if session.is_some() && matches!(seen, RunSeen::Running { .. }) {
                self.alive_at.insert(run.session, now);
            }
            judged.insert(run.build, seen);
        }
        Ok(judged)
    }

    fn due(&self, now: Timestamp) -> BTreeSet<SessionId> {
        let is_due = |at: Timestamp| now.since(at) >= LIFE_SECONDS * 1_000;
        self.alive_at.iter().filter(|(_, at)| is_due(**at)).map(|(session, _)| session.clone()).collect()
    }
}

/// `session` is `None` where it was not asked for, and `Some(None)` where there is none.
fn seen(run: &Run, session: Option<Option<&Session>>, now: Timestamp) -> RunSeen {
    if let Phase::Ended(end) = &run.phase {
        return RunSeen::Ended(end.clone());
    }
    let running = RunSeen::Running { started_at: Some(run.claimed_at), pre_fail: matches!(run.phase, Phase::Failing) };
    match session {
        None => running,
        Some(Some(session)) if session.alive_until > now => running,
        Some(Some(session)) => RunSeen::Lost {
            why: format!("the executor {} has been silent since {}", session.hostname, session.alive_until.to_iso()),
        },
        Some(None) => RunSeen::Lost { why: format!("the executor's session {} is gone", run.session) },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_records::codec::encode_first;

    fn run(session: &str, claimed_at: u64) -> Run {
        Run {
            build: BuildId::from("build"),
            session: SessionId::from(session),
            fence: 1,
            phase: Phase::Running,
            claimed_at: Timestamp(claimed_at),
            log: None,
        }
    }

    fn session(alive_until: u64) -> BTreeMap<Key, Record> {
        let session = Session {
            id: SessionId::from("one"),
            hostname: "host".to_owned(),
            log_address: None,
            started_at: Timestamp(0),
            alive_until: Timestamp(alive_until),
            builds: Vec::new(),
        };
        BTreeMap::from([(session::key(&session.id), encode_first(session::key(&session.id), &session).unwrap())])
    }

    fn look(watch: &mut Watch, runs: Vec<Run>, found: &BTreeMap<Key, Record>, now: u64) -> (usize, Vec<RunSeen>) {
        let asked = watch.meet(&runs, Timestamp(now));
        let found = if asked.is_empty() { &BTreeMap::new() } else { found };
        let judged = watch.judge(runs, &asked, found, Timestamp(now)).unwrap();
        (asked.len(), judged.into_values().collect())
    }

    /// Z7.3: what a gate remembers of an executor is never older than the shortest time in which one can fall silent.
    #[test]
    fn an_executor_that_falls_silent_is_found_by_the_first_look_that_can_know() {
        let life = LIFE_SECONDS * 1_000;
        let running = RunSeen::Running { started_at: Some(Timestamp(0)), pre_fail: false };
        let mut watch = Watch::default();
        assert_eq!(look(&mut watch, vec![run("one", 0)], &session(0), life - 1), (0, vec![running.clone()]));
        assert_eq!(look(&mut watch, vec![run("one", 0)], &session(life + 5_000), life), (1, vec![running.clone()]));
        assert_eq!(look(&mut watch, vec![run("one", 0)], &session(0), 2 * life - 1), (0, vec![running]));
        assert_eq!(watch.keys_due(Timestamp(2 * life)).len(), 1, "it is read with everything else");
        let (asked, seen) = look(&mut watch, vec![run("one", 0)], &session(life + 5_000), 2 * life);
        assert_eq!(asked, 1);
        assert!(matches!(&seen[..], [RunSeen::Lost { .. }]), "{seen:?}");
    }

    /// Z7.3: a gate that was started anew knows nothing, and asks.
    #[test]
    fn a_gate_that_remembers_nothing_asks_about_every_build_older_than_a_session_lives() {
        let (asked, seen) = look(&mut Watch::default(), vec![run("one", 0)], &BTreeMap::new(), 60_000);
        assert_eq!(asked, 1);
        assert!(matches!(&seen[..], [RunSeen::Lost { .. }]), "{seen:?}");
    }
}
