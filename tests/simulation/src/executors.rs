//! Played executors. They claim and end builds with the real code; they die, lose their connection
//! and reconnect late.

use crate::graphs::{self, CHOOSER, HOST};
use crate::random::Random;
use crate::scenarios::lands;
use crate::site::Site;
use crate::truth;
use serde_json::{Map, Value, json};
use sluice_executor::claim::{Claimed, Claims};
use sluice_model::build::{BuildResult, Phase, Run, RunEnd};
use sluice_model::git::BranchKey;
use sluice_model::{BuildId, ProjectName, SessionId, Timestamp};
use sluice_records::build::{resume_key, run_key, stop_key};
use sluice_records::codec::{decode, encode_first};
use sluice_records::session::{self, LIFE_SECONDS, Session, SessionState};
use sluice_runtime::Ports;
use sluice_runtime::record::{Expect, Write};
use sluice_scenarios::repos::Tree;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

/// How many builds one executor runs at once.
pub const BUILDS_MAX: usize = 4;

/// The config project, whose changes are always reviewed.
const CONFIG: &str = "org/config";

/// A running executor.
pub struct Executor {
    /// The id of its session.
    pub session: SessionId,
    /// Claims builds for it.
    pub claims: Arc<Claims>,
    /// Its ports, with its own clock.
    pub ports: Ports,
    /// The builds that it runs.
    pub builds: Vec<Running>,
    /// The builds that it is claiming, pausing or ending.
    pub busy: BTreeSet<BuildId>,
    /// Builds whose claim got no answer, so that it may have claimed them.
    pub unconfirmed: BTreeSet<BuildId>,
    /// Whether its session lists builds whose claim got no answer, as if it ran them: a defect.
    pub lists_unconfirmed: bool,
    /// A copy of its current builds for the task that settles unconfirmed claims
    /// ([`Self::publish_builds`]).
    pub published_builds: Arc<Mutex<BTreeSet<BuildId>>>,
    /// Until when it is disconnected from everything; `None` if it is connected.
    pub silent_until: Option<Timestamp>,
    /// How far its clock is ahead of the right time, in milliseconds.
    skew_millis: i64,
    /// When it started, by its own clock.
    started_at: Timestamp,
    /// The revision of its session record.
    revision: u64,
}

/// A build that an executor runs.
pub struct Running {
    /// The claimed build with its order, job and tested state.
    pub claimed: Claimed,
    /// When it ends.
    pub ends_at: Timestamp,
    /// When the executor announces that it will fail, if it does so before the end.
    pub fails_at: Option<Timestamp>,
    /// The result to report instead of the true one ([`judge`]).
    pub result_override: Option<BuildResult>,
    /// Whether it is or was paused.
    pub pause_state: PauseState,
}

/// Whether a build is paused while its dependent jobs run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PauseState {
    /// It runs and may be paused later.
    NotYet,
    /// It is paused and takes no capacity of its executor.
    Paused,
    /// It was paused and continues, or it has ended.
    Over,
}

/// When paused builds continue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResumeRule {
    /// Once the gate has requested it.
    WhenRequested,
    /// At once: an injected defect.
    AtOnce,
}

impl PauseState {
    /// Returns the state of a build that its executor takes back in this phase.
    pub fn after(phase: &Phase) -> Self {
        match phase {
            Phase::Running | Phase::Failing => Self::NotYet,
            Phase::Paused(_) | Phase::Ended(_) => Self::Over,
        }
    }
}

impl Running {
    /// Returns whether the build pauses at the time when other builds end.
    pub fn is_to_pause(&self) -> bool {
        self.pause_state == PauseState::NotYet
            && self.result_override.is_none()
            && self.claimed.order.job.as_str() == HOST
    }
}

impl Executor {
    /// Starts an executor and writes its session.
    pub fn start(site: &mut Site, number: usize) -> Self {
        let (ports, skew_millis) = site.ports("executor");
        let session = SessionId(format!("executor-{number}"));
        let claims = Arc::new(Claims::new(ports.clone(), session.clone()));
        let started_at = ports.clock.now();
        let (builds, busy) = (Vec::new(), BTreeSet::new());
        let mut executor = Self {
            session,
            claims,
            ports,
            builds,
            busy,
            unconfirmed: BTreeSet::new(),
            lists_unconfirmed: false,
            published_builds: Arc::default(),
            silent_until: None,
            skew_millis,
            started_at,
            revision: 0,
        };
        executor.renew(site);
        executor
    }

    /// Renews its session record. Does nothing while it is disconnected.
    pub fn renew(&mut self, site: &Site) {
        if self.silent_until.is_some() {
            return;
        }
        let now = self.ports.clock.now();
        let session = Session {
            id: self.session.clone(),
            hostname: self.session.to_string(),
            live_logs: None,
            started_at: self.started_at,
            alive_until: now.plus_seconds(LIFE_SECONDS),
            builds: self.listed_builds(),
            zone: None,
            state: SessionState::Running,
        };
        self.revision += 1;
        let Ok(mut record) = encode_first(session::key(&self.session), &session) else { return };
        record.revision = self.revision;
        site.world.write_unchecked(Write::Put { record, expect: Expect::Anything });
    }

    /// Returns the builds that its session lists.
    fn listed_builds(&self) -> Vec<BuildId> {
        let unconfirmed = self.unconfirmed.iter().filter(|_| self.lists_unconfirmed);
        self.own_builds().chain(unconfirmed).cloned().collect()
    }

    /// Aborts the builds for which there is a stop record, as each renewal does. Does nothing while
    /// it is disconnected.
    pub fn apply_stops(&mut self, site: &Site, now: Timestamp) {
        if self.silent_until.is_some() {
            return;
        }
        for running in &mut self.builds {
            let key = stop_key(&running.claimed.run.build);
            if running.ends_at > now && site.world.record(&key).is_some() {
                (running.ends_at, running.result_override) = (now, Some(BuildResult::Aborted));
            }
        }
    }

    /// Continues the paused builds that may resume by `rule`, as each renewal does. Does nothing
    /// while it is disconnected.
    pub fn apply_resumes(&mut self, site: &Site, now: Timestamp, rule: ResumeRule) {
        if self.silent_until.is_some() {
            return;
        }
        let is_paused = |running: &&mut Running| running.pause_state == PauseState::Paused;
        for running in self.builds.iter_mut().filter(is_paused) {
            if rule == ResumeRule::AtOnce
                || site.world.record(&resume_key(&running.claimed.run.build)).is_some()
            {
                running.pause_state = PauseState::Over;
                running.ends_at = running.ends_at.min(now);
            }
        }
    }

    /// Returns whether it can claim another build: it is connected and not fully loaded.
    pub fn has_capacity(&self) -> bool {
        let is_active = |running: &&Running| running.pause_state != PauseState::Paused;
        let at_work = self.builds.iter().filter(is_active).count();
        self.silent_until.is_none() && at_work + self.busy.len() < BUILDS_MAX
    }

    /// Returns the builds that it runs, claims, pauses or ends.
    fn own_builds(&self) -> impl Iterator<Item = &BuildId> {
        self.builds.iter().map(|running| &running.claimed.run.build).chain(&self.busy)
    }

    /// Copies its current builds for the task that settles unconfirmed claims.
    pub fn publish_builds(&self) {
        *self.published_builds.lock().unwrap() = self.own_builds().cloned().collect();
    }

    /// Forgets unconfirmed claims that no longer matter: the build has ended, belongs to another
    /// executor, or was stopped before any executor claimed it.
    pub fn forget_settled_claims(&mut self, site: &Site) {
        let session = self.session.clone();
        self.unconfirmed.retain(|build| {
            let run =
                site.world.record(&run_key(build)).and_then(|record| decode::<Run>(&record).ok());
            match run {
                Some(run) => run.session == session && !matches!(run.phase, Phase::Ended(_)),
                None => site.world.record(&stop_key(build)).is_none(),
            }
        });
    }

    /// Starts a claimed build and draws its length. Does nothing if the build has already ended.
    pub fn begin(&mut self, claimed: Claimed, now: Timestamp, random: &mut Random) {
        if let Phase::Ended(_) = claimed.run.phase {
            return;
        }
        let length = *random.one(&[200, 3_000, 30_000, 120_000]).unwrap_or(&3_000);
        let ends_at = now.plus_millis(random.between(50, length));
        let fails_at = random.per_mille(300).then(|| now.plus_millis(random.between(10, length)));
        let pause_state = PauseState::after(&claimed.run.phase);
        let result_override = None;
        self.builds.push(Running { claimed, ends_at, fails_at, result_override, pause_state });
    }

    /// Returns whether its session expired during a disconnection, by its own clock.
    pub fn has_expired(&self, silent_since: Timestamp, now: Timestamp) -> bool {
        now.since(silent_since) >= LIFE_SECONDS * 1_000
    }

    /// Returns how far its clock is ahead of the right time, in milliseconds.
    pub fn skew_millis(&self) -> i64 {
        self.skew_millis
    }
}

/// Returns the true result of a build: whether its job passes on the tested tree of its change's
/// project.
pub fn judge(site: &Site, claimed: &Claimed) -> BuildResult {
    let passes =
        tree_of(site, claimed).is_some_and(|tree| truth::passes(claimed.order.job.as_str(), &tree));
    if passes { BuildResult::Success } else { BuildResult::Failure }
}

/// Returns the data that a successful build returns: for [`CHOOSER`], the child jobs to run.
pub fn returned(site: &Site, claimed: &Claimed) -> Map<String, Value> {
    let is_chooser = claimed.order.job.as_str() == CHOOSER;
    let chosen =
        tree_of(site, claimed).filter(|_| is_chooser).and_then(|tree| graphs::chosen(&tree));
    match chosen.map(|chosen| json!({"zuul": {"child_jobs": chosen}})) {
        Some(Value::Object(returned)) => returned,
        _ => Map::new(),
    }
}

/// Returns the tested tree of the project of a build's change.
fn tree_of(site: &Site, claimed: &Claimed) -> Option<Tree> {
    let change = &claimed.order.change;
    let is_own =
        |branch: &BranchKey| branch.project == change.key.project && branch.branch == change.branch;
    let own = claimed.speculation.branches.iter().find(|state| is_own(&state.branch))?;
    Some(site.store.lock().unwrap().tree(&own.result.id).clone())
}

/// Returns a description of a secret that a build must not have, if it has one. A secret is for
/// playbooks of its own project. Before review, only the config project's secrets may be used.
pub fn leak(claimed: &Claimed) -> Option<String> {
    let is_reviewed = lands(claimed.order.queue.pipeline.as_str());
    let job = &claimed.job;
    job.pre_run.iter().chain(&job.run).chain(&job.post_run).find_map(|playbook| {
        let may = |project: &ProjectName| {
            *project == playbook.project && (is_reviewed || project.name() == CONFIG)
        };
        let secret = playbook.secrets.values().find(|secret| !may(&secret.project))?;
        let (change, queue) = (&claimed.order.change, &claimed.order.queue);
        Some(format!(
            "{} of {change} in {queue} is given {} of {}",
            job.name, secret.secret, secret.project
        ))
    })
}

/// Returns the record of a build's end with a result and no data.
pub fn ended(result: BuildResult, now: Timestamp) -> RunEnd {
    RunEnd {
        result,
        detail: None,
        started_at: Some(now),
        ended_at: now,
        data: Map::new(),
        data_object: None,
        log_url: None,
    }
}
