//! Executors as the simulator plays them: they claim and end builds by the real code, and die, fall
//! silent or come back late.

use crate::graphs::{self, CHOOSER, HOST};
use crate::plays::lands;
use crate::random::Random;
use crate::site::Site;
use crate::truth;
use serde_json::{Map, Value, json};
use sluice_executor::claim::{Claimed, Claims};
use sluice_model::build::{BuildResult, Ended, Phase, Run};
use sluice_model::git::BranchKey;
use sluice_model::{BuildId, ProjectName, SessionId, Timestamp};
use sluice_records::build::{resume_key, run_key, stop_key};
use sluice_records::codec::{decode, encode_first};
use sluice_records::session::{self, LIFE_SECONDS, Session};
use sluice_runtime::Ports;
use sluice_runtime::record::{Expect, Write};
use sluice_scenarios::repos::Tree;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

/// Builds that one executor runs at once.
pub const BUILDS_MAX: usize = 4;

/// The project that nobody changes without review.
const CONFIG: &str = "org/config";

/// An executor's life.
pub struct Executor {
    /// Its session.
    pub session: SessionId,
    /// Its claims.
    pub claims: Arc<Claims>,
    /// Its ports.
    pub ports: Ports,
    /// Builds that run.
    pub builds: Vec<Running>,
    /// Builds that it is claiming or ending.
    pub busy: BTreeSet<BuildId>,
    /// Builds that it may have claimed without having been told.
    pub doubtful: BTreeSet<BuildId>,
    /// Builds that it runs or asks for, as whoever settles the doubtful ones sees them
    /// ([`Self::show_builds`]).
    pub here: Arc<Mutex<BTreeSet<BuildId>>>,
    /// Until when it is cut off from everything.
    pub silent_until: Option<Timestamp>,
    skew_millis: i64,
    started_at: Timestamp,
    revision: u64,
}

/// A build that an executor runs.
pub struct Running {
    /// What it claimed.
    pub claimed: Claimed,
    /// When it will be over.
    pub ends_at: Timestamp,
    /// When it will be known to fail, if it will be before its end.
    pub fails_at: Option<Timestamp>,
    /// What is told of its end; `None` for what the truth says.
    pub instead: Option<BuildResult>,
    /// Whether it waits for the jobs behind it.
    pub rest: Rest,
}

/// Whether a build waits for the jobs behind it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rest {
    /// It is at work, and may come to that.
    No,
    /// It does, and keeps no place at its executor.
    Paused,
    /// It has, or it is over.
    Over,
}

impl Rest {
    /// Returns whether a build that is in hand once more has waited already.
    pub fn after(phase: &Phase) -> Self {
        match phase {
            Phase::Running | Phase::Failing => Self::No,
            Phase::Paused(_) | Phase::Ended(_) => Self::Over,
        }
    }
}

impl Running {
    /// Returns whether it pauses where others end.
    pub fn is_to_pause(&self) -> bool {
        self.rest == Rest::No && self.instead.is_none() && self.claimed.order.job.as_str() == HOST
    }
}

impl Executor {
    /// Starts an executor.
    pub fn start(site: &mut Site, number: usize) -> Self {
        let (ports, skew_millis) = site.ports("executor");
        let session = SessionId(format!("executor-{number}"));
        let claims = Arc::new(Claims::new(ports.clone(), session.clone(), None));
        let started_at = ports.clock.now();
        let (builds, busy) = (Vec::new(), BTreeSet::new());
        let mut executor = Self {
            session,
            claims,
            ports,
            builds,
            busy,
            doubtful: BTreeSet::new(),
            here: Arc::default(),
            silent_until: None,
            skew_millis,
            started_at,
            revision: 0,
        };
        executor.renew(site);
        executor
    }

    /// Renews its session, unless it is cut off.
    pub fn renew(&mut self, site: &Site) {
        if self.silent_until.is_some() {
            return;
        }
        let now = self.ports.clock.now();
        let session = Session {
            id: self.session.clone(),
            hostname: self.session.to_string(),
            log_address: None,
            started_at: self.started_at,
            alive_until: now.plus_seconds(LIFE_SECONDS),
            builds: self.own_builds().cloned().collect(),
        };
        self.revision += 1;
        let Ok(mut record) = encode_first(session::key(&self.session), &session) else { return };
        record.revision = self.revision;
        site.world.write_directly(Write::Put { record, expect: Expect::Anything });
    }

    /// Reads whether builds are to stop, as each renewal does, and ends those.
    pub fn hear_stops(&mut self, site: &Site, now: Timestamp) {
        if self.silent_until.is_some() {
            return;
        }
        for running in &mut self.builds {
            let key = stop_key(&running.claimed.run.build);
            if running.ends_at > now && site.world.record(&key).is_some() {
                (running.ends_at, running.instead) = (now, Some(BuildResult::Aborted));
            }
        }
    }

    /// Reads which paused builds are to go on, as each renewal does. Who `is_hasty` waits for
    /// nobody's word.
    pub fn hear_resumes(&mut self, site: &Site, now: Timestamp, is_hasty: bool) {
        if self.silent_until.is_some() {
            return;
        }
        for running in self.builds.iter_mut().filter(|running| running.rest == Rest::Paused) {
            if is_hasty || site.world.record(&resume_key(&running.claimed.run.build)).is_some() {
                running.rest = Rest::Over;
                running.ends_at = running.ends_at.min(now);
            }
        }
    }

    /// Returns whether it takes another build.
    pub fn has_place(&self) -> bool {
        let at_work = self.builds.iter().filter(|running| running.rest != Rest::Paused).count();
        self.silent_until.is_none() && at_work + self.busy.len() < BUILDS_MAX
    }

    /// Returns the builds that it runs or asks for.
    fn own_builds(&self) -> impl Iterator<Item = &BuildId> {
        self.builds.iter().map(|running| &running.claimed.run.build).chain(&self.busy)
    }

    /// Shows whoever settles doubtful builds which ones it runs or asks for at this moment.
    pub fn show_builds(&self) {
        *self.here.lock().unwrap() = self.own_builds().cloned().collect();
    }

    /// Forgets doubts about builds that are over, somebody else's, or were stopped before anybody
    /// claimed them.
    pub fn forget_settled(&mut self, site: &Site) {
        let session = self.session.clone();
        self.doubtful.retain(|build| {
            let run =
                site.world.record(&run_key(build)).and_then(|record| decode::<Run>(&record).ok());
            match run {
                Some(run) => run.session == session && !matches!(run.phase, Phase::Ended(_)),
                None => site.world.record(&stop_key(build)).is_none(),
            }
        });
    }

    /// Takes a build in that was claimed.
    pub fn begin(&mut self, claimed: Claimed, now: Timestamp, random: &mut Random) {
        if let Phase::Ended(_) = claimed.run.phase {
            return;
        }
        let length = *random.one(&[200, 3_000, 30_000, 120_000]).unwrap_or(&3_000);
        let ends_at = now.plus_millis(random.between(50, length));
        let fails_at = random.per_mille(300).then(|| now.plus_millis(random.between(10, length)));
        let rest = Rest::after(&claimed.run.phase);
        self.builds.push(Running { claimed, ends_at, fails_at, instead: None, rest });
    }

    /// Returns whether its session ran out while it was cut off, by its own clock.
    pub fn is_over(&self, silent_since: Timestamp, now: Timestamp) -> bool {
        now.since(silent_since) >= LIFE_SECONDS * 1_000
    }

    /// Returns how far its clock is from the right time, in milliseconds.
    pub fn skew_millis(&self) -> i64 {
        self.skew_millis
    }
}

/// Returns what the truth says about a build: whether its job passes on the tree of its change's
/// project.
pub fn judge(site: &Site, claimed: &Claimed) -> BuildResult {
    let passes =
        tree_of(site, claimed).is_some_and(|tree| truth::passes(claimed.order.job.as_str(), &tree));
    if passes { BuildResult::Success } else { BuildResult::Failure }
}

/// Returns what a build that passes returns: which of the jobs behind it are to be run.
pub fn returned(site: &Site, claimed: &Claimed) -> Map<String, Value> {
    let is_chooser = claimed.order.job.as_str() == CHOOSER;
    let chosen =
        tree_of(site, claimed).filter(|_| is_chooser).and_then(|tree| graphs::chosen(&tree));
    match chosen.map(|chosen| json!({"zuul": {"child_jobs": chosen}})) {
        Some(Value::Object(returned)) => returned,
        _ => Map::new(),
    }
}

/// Returns the tested tree of a build's change's project.
fn tree_of(site: &Site, claimed: &Claimed) -> Option<Tree> {
    let change = &claimed.order.change;
    let is_own =
        |branch: &BranchKey| branch.project == change.key.project && branch.branch == change.branch;
    let own = claimed.speculation.branches.iter().find(|state| is_own(&state.branch))?;
    Some(site.store.lock().unwrap().tree(&own.result.id).clone())
}

/// Returns which secret a build was given that it may not have, if any: what a project keeps secret
/// is for its own playbooks, and for one that anybody may change only where somebody has reviewed
/// the change, which is in the gate.
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

/// Returns an end.
pub fn ended(result: BuildResult, now: Timestamp) -> Ended {
    Ended {
        result,
        detail: None,
        started_at: Some(now),
        ended_at: now,
        data: Map::new(),
        data_object: None,
        log_url: None,
    }
}
