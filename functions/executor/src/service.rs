//! The executor as it lives: a session that is renewed, queues that are asked in order of urgency,
//! builds side by side.

mod slots;
mod together;

pub use slots::WAIT_SECONDS;

use crate::archive;
use crate::claim::{self, Asked, Claimed, Claims, QueueHears};
use crate::job::{Job, Observer, OpenedSecrets, Runner, StopSignal, Stopper};
use crate::live::{LiveLog, LiveLogs};
use crate::returned;
use crate::secrets::ProjectKeys;
use crate::service::together::{Place, Together};
use crate::sources::ObjectSources;
use serde_json::{Map, Value};
use sluice_model::build::{BuildResult, Ended, Pause};
use sluice_model::poke::Queue;
use sluice_model::{BuildId, SessionId, Timestamp};
use sluice_records::build;
use sluice_records::codec::{encode, expiry, get, with_body};
use sluice_records::session::{self, LIFE_SECONDS, Session};
use sluice_runtime::batch::LookError;
use sluice_runtime::port::Incoming;
use sluice_runtime::record::{Key, Record};
use sluice_runtime::{Commit, Ports, Saved, cell, quarantine};
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::{MissedTickBehavior, interval, sleep};

/// The queues of builds, the most urgent first, each with how many milliseconds it is asked later
/// than the first.
pub const QUEUES: [(Queue, u64); 3] =
    [(Queue::BuildsHigh, 0), (Queue::BuildsNormal, 40), (Queue::BuildsLow, 80)];
/// Seconds from one renewal of a session to the next.
pub const RENEW_SECONDS: u64 = 1;
/// Looks at a build before its message is left to come again.
const CLAIM_TRIES: u32 = 3;
/// How often an ended build tries to say all of it before it says its result alone.
const WHOLE_END_TRIES: u32 = 8;
/// Paused builds that keep no slot.
const PAUSED_MAX: usize = 64;
/// The longest time between two tries.
const END_WAIT_MAX: Duration = Duration::from_secs(20);

/// What an operator decides about one executor.
#[derive(Debug, Clone)]
pub struct Options {
    /// The machine's name, for people.
    pub hostname: String,
    /// Builds that run at once.
    pub slots: usize,
    /// Where build directories and the repositories' cache are.
    pub state: PathBuf,
    /// The OpenSSH private key (mode 0600) that nodes accept.
    pub node_key: Option<PathBuf>,
    /// Where its live logs are read, `http://host:port/`.
    pub log_address: Option<String>,
    /// The address of archived logs, ending in `/`; the build's id and `/` are appended.
    pub log_root: String,
}

/// One life of an executor.
pub struct Executor {
    ports: Ports,
    runner: Arc<dyn Runner>,
    options: Options,
    logs: LiveLogs,
    session: SessionId,
    claims: Claims,
    keys: ProjectKeys,
    sources: ObjectSources,
    running: Mutex<BTreeMap<BuildId, Stopper>>,
    /// Those of them that wait for the jobs behind them.
    paused: Mutex<BTreeSet<BuildId>>,
    /// Builds of those that are asked for: nobody knows yet whether they will be run here.
    claiming: Mutex<BTreeSet<BuildId>>,
    /// Those of one item that run here: the last one tells their queue of all that passed.
    together: Together,
    slots: Arc<Semaphore>,
    given_up: std::sync::atomic::AtomicBool,
    is_over: std::sync::atomic::AtomicBool,
}

impl Executor {
    /// Makes an executor with a session of its own; nothing is claimed before [`Self::run`].
    pub fn new(ports: Ports, runner: Arc<dyn Runner>, options: Options) -> Arc<Self> {
        let session = SessionId(ports.entropy.token());
        let slots = Arc::new(Semaphore::new(options.slots.max(1)));
        let logs = options.log_address.as_ref().map(|address| format!("{address}log/"));
        let claims = Claims::new(ports.clone(), session.clone(), logs);
        Arc::new(Self {
            claims,
            keys: ProjectKeys::new(ports.clone()),
            sources: ObjectSources::new(ports.clone(), options.state.join("repositories")),
            ports,
            runner,
            options,
            logs: LiveLogs::default(),
            session,
            running: Mutex::default(),
            paused: Mutex::default(),
            claiming: Mutex::default(),
            together: Together::default(),
            slots,
            given_up: false.into(),
            is_over: false.into(),
        })
    }

    /// Returns the logs of its builds, to be served.
    pub fn logs(&self) -> &LiveLogs {
        &self.logs
    }

    /// Lives until `shutdown` says true, then stops its builds; they are attempted again elsewhere.
    ///
    /// # Errors
    /// When its session cannot be stored to begin with, or is gone before the end: whoever runs it
    /// begins a new life.
    pub async fn run(
        self: Arc<Self>,
        mut shutdown: watch::Receiver<bool>,
    ) -> Result<(), LookError> {
        let record = self.begin().await?;
        let (over, ending) = watch::channel(false);
        let mut tasks = tokio::task::JoinSet::new();
        for (queue, head_start_millis) in QUEUES {
            tasks.spawn(self.clone().ask(queue, head_start_millis, ending.clone()));
        }
        let ended = tokio::select! {
            // An error means that whoever held the switch is gone; that is a shutdown too.
            _ = shutdown.wait_for(|stop| *stop) => {
                self.stop_all("the executor shuts down");
                Ok(())
            }
            () = self.renew(record) => {
                self.stop_all("the executor's session is gone");
                Err(LookError::Again(format!("the session {} is gone", self.session)))
            }
        };
        // Nothing is claimed under a session that nobody renews: the gate would call it lost at
        // once.
        over.send_replace(true);
        self.is_over.store(true, std::sync::atomic::Ordering::Release);
        while tasks.join_next().await.is_some() {}
        // Every build returns its slot when it has ended.
        let _ = tokio::time::timeout(
            Duration::from_secs(10),
            self.slots.acquire_many(u32::try_from(self.options.slots).unwrap_or(1)),
        )
        .await;
        ended
    }

    /// Claims the builds of messages that came together, and acknowledges those messages: the
    /// claims are what counts then.
    ///
    /// What could not be claimed for an unknown reason, or could not be acknowledged, comes again.
    pub async fn take(&self, queue: Queue, messages: Vec<Incoming>) -> Vec<Taken> {
        let mut done: Vec<String> = Vec::new();
        let mut asked: Vec<(Asked, StopSignal, String)> = Vec::new();
        for message in messages {
            let Some(build) = serde_json::from_str(&message.body).ok().and_then(Asked::of) else {
                let name = format!("{queue:?}");
                match quarantine::keep(
                    &self.ports,
                    &name,
                    &message.id,
                    &message.body,
                    "not a build",
                )
                .await
                {
                    Ok(()) => done.push(message.receipt),
                    Err(error) => {
                        tracing::warn!(message = message.id, %error, "a message could not be set aside")
                    }
                }
                continue;
            };
            // Noted before anything is read: a second message about it finds it here.
            match self.running().entry(build.build.clone()) {
                // While it is only asked for, the same message may have come twice: whoever removes
                // one removes both, and the claim may still fail.
                Entry::Occupied(_) if self.claiming().contains(&build.build) => {}
                Entry::Occupied(_) => done.push(message.receipt),
                Entry::Vacant(place) => {
                    let (stopper, stop) = Stopper::new();
                    place.insert(stopper);
                    self.claiming().insert(build.build.clone());
                    asked.push((build, stop, message.receipt));
                }
            }
        }
        let mut taken = Vec::new();
        for _ in 0..CLAIM_TRIES {
            let builds: Vec<Asked> = asked.iter().map(|(build, ..)| build.clone()).collect();
            let mut again = Vec::new();
            for (claim, (build, stop, receipt)) in
                self.claims.claim(&builds).await.into_iter().zip(asked)
            {
                match claim {
                    Ok(Some(claimed)) => {
                        self.claiming().remove(&build.build);
                        let place =
                            self.together.enter(&claimed.order.item, claimed.order.generation);
                        taken.push(Taken { claimed, stop, slot: None, place });
                        done.push(receipt);
                    }
                    Ok(None) => {
                        self.forget(&build.build);
                        done.push(receipt);
                    }
                    Err(error) => {
                        tracing::info!(build = %build.build, %error, "a build could not be claimed yet");
                        again.push((build, stop, receipt));
                    }
                }
            }
            asked = again;
            if asked.is_empty() {
                break;
            }
        }
        for (build, ..) in asked {
            tracing::warn!(build = %build.build, "a build could not be claimed; its message comes again");
            self.forget(&build.build);
        }
        if !done.is_empty()
            && let Err(error) = self.ports.queues.acknowledge_all(queue, &done).await
        {
            tracing::warn!(?queue, %error, "builds could not be acknowledged; what comes again is known then");
        }
        taken
    }

    /// Runs a claimed build to its end.
    ///
    /// # Errors
    /// When its end could not be told: its session goes on, and somebody has to look after it.
    pub async fn execute(&self, taken: Taken) -> Result<(), LookError> {
        let Taken { mut claimed, stop, mut slot, mut place } = taken;
        let build = claimed.run.build.clone();
        tracing::info!(%build, job = %claimed.order.job, change = %claimed.order.change, attempt = claimed.order.attempt, "a build starts");
        let jobdir = self.options.state.join("builds").join(build.as_str());
        let observer = Told {
            log: self.logs.open(&build, &jobdir),
            news: watch::channel(News::None).0,
            secrets: Mutex::default(),
        };
        let (secrets, unopened) = match self.keys.open(&claimed.job).await {
            Ok(secrets) => (secrets, None),
            Err(error) => (OpenedSecrets::default(), Some(error)),
        };
        let job = Job {
            order: &claimed.order.clone(),
            job: &claimed.job.clone(),
            speculation: &claimed.speculation.clone(),
            nodes: &claimed.nodes.clone(),
            node_key: self.options.node_key.as_deref().filter(|_| !claimed.nodes.is_empty()),
            secrets: &secrets,
            child_jobs: &claimed.child_jobs.clone(),
            inherited: &std::mem::take(&mut claimed.inherited),
        };
        let mut news = observer.news.subscribe();
        let execution = async {
            match unopened {
                None => self.runner.execute(&job, &self.sources, &jobdir, stop, &observer).await,
                Some(error) => not_begun(
                    self.ports.clock.now(),
                    format!("The job's secrets could not be opened: {error}"),
                ),
            }
        };
        let mut execution = std::pin::pin!(execution);
        let mut ended = loop {
            tokio::select! {
                biased;
                ended = &mut execution => break ended,
                Ok(()) = news.changed() => {}
            }
            let told = news.borrow_and_update().clone();
            tokio::select! {
                biased;
                ended = &mut execution => break ended,
                () = self.tell(&mut claimed, told, &observer, (&mut slot, &mut place)) => {}
            }
        };
        let archived = archive::archive(&self.ports, &build, &jobdir, &self.options.log_root).await;
        // A job that put its logs somewhere itself knows best (`zuul.log_url`).
        ended.log_url = ended.log_url.or(archived);
        self.keep_secrets(&build, &mut ended.data, &observer).await;
        let told = self.tell_end(&mut claimed, ended, &mut place).await;
        self.running().remove(&build);
        self.paused().remove(&build);
        remove(&build, jobdir.clone()).await;
        told
    }

    /// Tells what a running build showed.
    async fn tell(
        &self,
        claimed: &mut Claimed,
        news: News,
        observer: &Told,
        (slot, place): (&mut Option<OwnedSemaphorePermit>, &mut Place),
    ) {
        let build = claimed.run.build.clone();
        match news {
            News::None => {}
            // Lost, it is a reset that comes later: the end tells the same.
            News::WillFail => {
                if let Err(error) = claim::will_fail(&self.ports, claimed).await {
                    tracing::warn!(%build, %error, "that it will fail could not be told");
                }
            }
            News::Paused(mut pause) => {
                // It may end long after the others of its item, or wait for them. Those that left
                // it to this one to tell are told with the pause, or with its end where that comes
                // first.
                place.leave();
                self.keep_secrets(&build, &mut pause.data, observer).await;
                let mut attempt = 0;
                while let Err(error) = claim::pause(&self.ports, claimed, pause.clone()).await {
                    // Untold, nobody would ever let it go on.
                    tracing::warn!(%build, %error, "that it is paused could not be told; trying again");
                    sleep(END_WAIT_MAX.min(Duration::from_millis(200 << attempt.min(10)))).await;
                    attempt += 1;
                }
                tracing::info!(%build, "a build is paused");
                self.paused().insert(build);
                // Those it waits for may need its slot. Beyond a bound it keeps it: each paused
                // build takes memory and disk.
                if self.paused().len() <= PAUSED_MAX {
                    drop(slot.take());
                }
            }
        }
    }

    /// Seals what a job returned for the jobs behind it alone, again and again while the session
    /// lives.
    async fn keep_secrets(&self, build: &BuildId, data: &mut Map<String, Value>, observer: &Told) {
        let secret_data = observer.secrets.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let mut attempt = 0;
        while let Err(error) = returned::keep_secrets(&self.ports, build, data, &secret_data).await
        {
            if self.is_over.load(std::sync::atomic::Ordering::Acquire) {
                return;
            }
            tracing::warn!(%build, %error, "what a job returned as secret could not be kept; trying again");
            sleep(END_WAIT_MAX.min(Duration::from_millis(200 << attempt.min(10)))).await;
            attempt += 1;
        }
    }

    /// Tells the end, again and again while the session lives; somebody else's run is left alone.
    async fn tell_end(
        &self,
        claimed: &mut Claimed,
        ended: Ended,
        place: &mut Place,
    ) -> Result<(), LookError> {
        let ended = if ended.result == BuildResult::Aborted && self.is_lost() {
            Ended { result: BuildResult::Retry, ..ended }
        } else {
            ended
        };
        tracing::info!(build = %claimed.run.build, result = %ended.result, detail = ended.detail, "a build ends");
        let mut attempt = 0;
        loop {
            // If it is what the build returned that cannot be stored, its result can.
            let told = if attempt < WHOLE_END_TRIES { ended.clone() } else { bare(&ended) };
            let error = match self.end(claimed, told, place).await {
                Ok(()) => return Ok(()),
                Err(error) => error,
            };
            // While the session lives, nobody else ends this build. Once it is over, the gate takes
            // it as lost.
            if self.is_over.load(std::sync::atomic::Ordering::Acquire) {
                return Err(error);
            }
            tracing::warn!(build = %claimed.run.build, %error, "the end could not be told; trying again");
            sleep(END_WAIT_MAX.min(Duration::from_millis(200 << attempt.min(10)))).await;
            attempt += 1;
        }
    }

    /// Writes a build's end, and tells of it whoever has to hear of it now.
    async fn end(
        &self,
        claimed: &mut Claimed,
        ended: Ended,
        place: &mut Place,
    ) -> Result<(), LookError> {
        claim::keep_end(&self.ports, claimed, ended).await?;
        // Its place is left when its end is written, not before: whoever is the last tells of what
        // stands there.
        let others_are_here = place.leave();
        let queue = if others_are_here && together::may_wait(claimed) {
            QueueHears::WithAnother
        } else {
            QueueHears::Now
        };
        claim::tell_end(&self.ports, claimed, queue).await
    }

    /// Whether the builds were stopped for this executor's own sake: then they do not count and are
    /// attempted again.
    fn is_lost(&self) -> bool {
        self.given_up.load(std::sync::atomic::Ordering::Acquire)
    }

    async fn begin(&self) -> Result<Record, LookError> {
        let now = self.ports.clock.now();
        let body = self.body(now, now);
        let mut head = encode(session::key(&self.session), &body)?;
        // How the API lists executors that live, or did of late.
        head.find = Some(("sessions".to_owned(), self.session.to_string()));
        head.expires_at = Some(expiry(now));
        let plan = Commit { head, others: Vec::new(), pokes: Vec::new(), due: None };
        match cell::commit(&self.ports, plan).await? {
            Saved::Yes(record) => Ok(record),
            Saved::Stale => Err(LookError::Again("a session of this id exists".to_owned())),
        }
    }

    fn body(&self, started_at: Timestamp, now: Timestamp) -> Session {
        Session {
            id: self.session.clone(),
            hostname: self.options.hostname.clone(),
            log_address: self.options.log_address.clone(),
            started_at,
            alive_until: now.plus_seconds(LIFE_SECONDS),
            builds: self.running().keys().cloned().collect(),
        }
    }

    /// Renews the session every [`RENEW_SECONDS`] and learns what is to stop, until the session is
    /// gone. One that could not be renewed in time is over for its builds: the gate has them run
    /// again, so they end here.
    async fn renew(&self, mut record: Record) {
        let started_at = self.ports.clock.now();
        let mut alive_until = started_at.plus_seconds(LIFE_SECONDS);
        let mut ticks = interval(Duration::from_secs(RENEW_SECONDS));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let now = self.ports.clock.now();
            match self.renew_once(&mut record, started_at, now).await {
                Ok(true) => alive_until = now.plus_seconds(LIFE_SECONDS),
                Ok(false) => return,
                Err(error) => {
                    tracing::warn!(%error, "the session could not be renewed");
                    if now >= alive_until {
                        self.stop_all("the executor could not renew its session in time");
                    }
                }
            }
        }
    }

    /// Renews the session once, whose record this is, and learns what is to stop. Returns whether
    /// it is still there.
    ///
    /// # Errors
    /// When the store does not answer: it is tried again at the next renewal.
    pub async fn renew_once(
        &self,
        record: &mut Record,
        started_at: Timestamp,
        now: Timestamp,
    ) -> Result<bool, LookError> {
        let mut head = with_body(record.clone(), &self.body(started_at, now))?;
        // Kept as long as any final record, counted from its last sign of life.
        head.expires_at = Some(expiry(now));
        let plan = Commit { head, others: Vec::new(), pokes: Vec::new(), due: None };
        match cell::commit(&self.ports, plan).await? {
            Saved::Yes(renewed) => *record = renewed,
            // The key is this life's own, so what is stored is its own write, whose answer was
            // lost. The next one follows it.
            Saved::Stale => match get(&self.ports, &record.key).await? {
                Some(stored) => *record = stored,
                None => return Ok(false),
            },
        }
        let running: Vec<BuildId> = self.running().keys().cloned().collect();
        let paused: Vec<BuildId> = self.paused().iter().cloned().collect();
        let stops = running.iter().map(|build| (build::stop_key(build), build));
        let resumes = paused.iter().map(|build| (build::resume_key(build), build));
        let words: BTreeMap<Key, &BuildId> = stops.chain(resumes).collect();
        let keys: Vec<Key> = words.keys().cloned().collect();
        for page in keys.chunks(100) {
            for found in self.ports.records.get(page).await?.into_iter().flatten() {
                let Some(build) = words.get(&found.key).copied() else { continue };
                let Some(stopper) = self.running().get(build).cloned() else { continue };
                if found.key == build::resume_key(build) {
                    self.paused().remove(build);
                    stopper.resume();
                } else {
                    stopper.stop(&build::stop_of(&found).why);
                }
            }
        }
        let is_here = |build: &BuildId| self.running().contains_key(build);
        if let Err(error) = self.claims.settle(&is_here).await {
            tracing::warn!(%error, "builds that were claimed without an answer could not be looked after; trying again");
        }
        Ok(true)
    }

    fn stop_all(&self, why: &str) {
        self.given_up.store(true, std::sync::atomic::Ordering::Release);
        for stopper in self.running().values() {
            stopper.stop(why);
        }
    }

    fn paused(&self) -> std::sync::MutexGuard<'_, BTreeSet<BuildId>> {
        self.paused.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Forgets a build that was asked for and is not run here.
    fn forget(&self, build: &BuildId) {
        self.running().remove(build);
        self.claiming().remove(build);
    }

    fn claiming(&self) -> std::sync::MutexGuard<'_, BTreeSet<BuildId>> {
        self.claiming.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn running(&self) -> std::sync::MutexGuard<'_, BTreeMap<BuildId, Stopper>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Removes a build's directory, which may hold many files: whoever else waits for this thread goes
/// on meanwhile.
async fn remove(build: &BuildId, jobdir: PathBuf) {
    let removed = tokio::task::spawn_blocking(move || std::fs::remove_dir_all(jobdir)).await;
    // It may have panicked, or its runtime may end: either way some of the directory may be left.
    let removed = removed.unwrap_or_else(|error| Err(std::io::Error::other(error)));
    if let Err(error) = removed
        && error.kind() != std::io::ErrorKind::NotFound
    {
        tracing::warn!(%build, %error, "the build's directory could not be removed");
    }
}

/// Returns the part of an end that always fits into a record.
fn bare(ended: &Ended) -> Ended {
    let detail = "What the build returned could not be stored and is left out.".to_owned();
    Ended {
        data: serde_json::Map::new(),
        data_object: None,
        log_url: None,
        detail: Some(detail),
        ..ended.clone()
    }
}

/// Returns the end of an attempt that could not begin and does not count.
fn not_begun(at: Timestamp, why: String) -> Ended {
    Ended {
        result: BuildResult::Retry,
        detail: Some(why),
        started_at: None,
        ended_at: at,
        data: serde_json::Map::new(),
        data_object: None,
        log_url: None,
    }
}

/// A build that this executor owns and has to run.
pub struct Taken {
    claimed: Claimed,
    stop: StopSignal,
    /// The slot that it takes while it runs.
    slot: Option<OwnedSemaphorePermit>,
    /// Its place among the builds of its item.
    place: Place,
}

/// What a running build showed last.
#[derive(Clone)]
enum News {
    None,
    /// It will fail.
    WillFail,
    /// It waits for the jobs behind it.
    Paused(Pause),
}

/// Passes on what a running build shows.
struct Told {
    log: LiveLog,
    news: watch::Sender<News>,
    /// What the job returned for the jobs behind it alone.
    secrets: Mutex<Map<String, Value>>,
}

impl Observer for Told {
    fn started(&self, _: Timestamp) {}

    fn log_appended(&self, offset: u64, bytes: &[u8]) {
        self.log.grew_to(offset + bytes.len() as u64);
    }

    fn will_fail(&self) {
        self.news.send_replace(News::WillFail);
    }

    fn paused(&self, pause: Pause) {
        self.news.send_replace(News::Paused(pause));
    }

    fn returned_secrets(&self, secret_data: Map<String, Value>) {
        *self.secrets.lock().unwrap_or_else(PoisonError::into_inner) = secret_data;
    }
}
