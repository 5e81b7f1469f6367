//! The executor process: renews its session, receives builds from the queues by urgency, and runs
//! several builds at once.

pub mod admission;
mod build_reporter;
mod collect;
mod drain;
mod item_builds;
mod log_archive;
mod session_watch;
mod slots;

pub use session_watch::{LOOK_SECONDS, SessionWatch};
pub use slots::WAIT_SECONDS;

use crate::archive::LogCopy;
use crate::claim::{self, BuildMessage, Claimed, Claims, QueueWakeup};
use crate::held_nodes::StoredHolders;
use crate::job::{AttemptScope, JobAttempt, Lease, OpenedSecrets, Runner, StopSignal, Stopper};
use crate::jobdir::log_path;
use crate::live::LiveLogRegistry;
use crate::returned_data;
use crate::secrets::ProjectKeys;
use crate::service::admission::{AdmissionLimits, StartingBuilds};
use crate::service::build_reporter::{BuildReporter, BuildUpdates};
use crate::service::item_builds::{ItemBuildGuard, ItemBuilds};
use crate::sources::ObjectSources;
use crate::stored_log::StoredLog;
use serde_json::{Map, Value};
use sluice_model::build::{BuildResult, Phase, RunEnd};
use sluice_model::wakeup::MessageQueue;
use sluice_model::{BuildId, SessionId, Timestamp};
use sluice_records::build;
use sluice_records::codec::{decode, encode, expiry, get, with_body};
use sluice_records::logs::BuildLogs;
use sluice_records::session::{
    self, LIFE_SECONDS, LiveLogServer, LiveLogToken, Session, SessionState,
};
use sluice_runtime::batch::ReconcileError;
use sluice_runtime::port::Incoming;
use sluice_runtime::record::{Key, Record};
use sluice_runtime::{CellCommit, CommitOutcome, Ports, cell, quarantine};
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::{MissedTickBehavior, interval, sleep};

/// The build queues, most urgent first, each with the delay in milliseconds before it is polled.
/// The delay lets a more urgent queue fill a free slot first.
pub const QUEUES: [(MessageQueue, u64); 3] = [
    (MessageQueue::BuildsHigh, 0),
    (MessageQueue::BuildsNormal, 40),
    (MessageQueue::BuildsLow, 80),
];
/// Seconds from one renewal of a session to the next.
pub const RENEW_SECONDS: u64 = 1;
/// How long connections to nodes may be opened after a renewal began: others may use the nodes when
/// they have seen the session unchanged for its life.
const LEASE: Duration = Duration::from_secs(LIFE_SECONDS);
/// Attempts to claim a build before its message is left to be redelivered.
const CLAIM_TRIES: u32 = 3;
/// Attempts to store a complete end before only the result is stored.
const COMPLETE_END_TRIES: u32 = 8;
/// Paused builds that give up their slot; further paused builds keep theirs.
const PAUSED_MAX: usize = 64;
/// The longest wait for stopped builds to end.
const STOP_WAIT: Duration = Duration::from_secs(10);
/// The longest wait between two attempts to store an end.
const END_WAIT_MAX: Duration = Duration::from_secs(20);

/// Settings of one executor process.
#[derive(Debug, Clone)]
pub struct ExecutorSettings {
    /// The machine's name, shown on pages and in the API.
    pub hostname: String,
    /// The maximum number of builds that run at once.
    pub slots: usize,
    /// What the machine must have left for another build.
    pub limits: AdmissionLimits,
    /// The directory for build directories and the repository cache.
    pub state: PathBuf,
    /// The OpenSSH private key (mode 0600) that nodes accept; `None` if no build has nodes.
    pub node_key: Option<PathBuf>,
    /// The address of the live log server, `http://host:port/`; `None` if it is not served.
    pub log_address: Option<String>,
    /// The base address of archived logs, ending in `/`; tenant and build are appended.
    pub log_root: String,
    /// Seconds that running builds get to finish after a shutdown was requested, before they are
    /// stopped and end as `Retry`.
    pub drain_seconds: u64,
    /// The issuer of OIDC tokens whose secret names none: the address of the pages, without the
    /// final slash.
    pub token_issuer: String,
}

/// One run of an executor process, with one session.
pub struct ExecutorService {
    /// Access to records, objects, queues and time.
    ports: Ports,
    /// Runs the attempts of jobs.
    runner: Arc<dyn Runner>,
    /// The settings of the executor.
    options: ExecutorSettings,
    /// The live logs of running builds.
    logs: LiveLogRegistry,
    /// The id of the executor's session.
    session: SessionId,
    /// Claims builds for the session.
    claims: Claims,
    /// The key pairs that decrypt secrets.
    keys: ProjectKeys,
    /// Provides the packs of repositories.
    sources: ObjectSources,
    /// Builds that are being claimed, run or paused here.
    running: Mutex<BTreeMap<BuildId, Stopper>>,
    /// The running builds that are paused until their dependent jobs end.
    paused: Mutex<BTreeSet<BuildId>>,
    /// The running builds whose claim is not decided yet.
    claiming: Mutex<BTreeSet<BuildId>>,
    /// Running builds by item: the last one to end wakes the item's queue.
    item_builds: ItemBuilds,
    /// One permit for each build that may run.
    slots: Arc<Semaphore>,
    /// The builds that prepare their workspace.
    starting: StartingBuilds,
    /// Whether the session has ended.
    session_ended: std::sync::atomic::AtomicBool,
    /// Whether another executor has ended the session, and so ends its builds.
    is_fenced: std::sync::atomic::AtomicBool,
    /// Whether the executor takes no more builds because it shuts down.
    is_draining: std::sync::atomic::AtomicBool,
    /// Ends the drain at once.
    drain_over: tokio::sync::Notify,
    /// Until when connections to nodes may be opened.
    lease: Lease,
    /// How often the session was renewed.
    renewals: watch::Sender<u64>,
}

impl ExecutorService {
    /// Creates an executor with a new session id, which is not stored yet. The executor claims
    /// nothing by itself before [`Self::run`], which can run once. It has at least one slot.
    pub fn new(ports: Ports, runner: Arc<dyn Runner>, options: ExecutorSettings) -> Arc<Self> {
        let session = SessionId(ports.entropy.token());
        let slots = Arc::new(Semaphore::new(options.slots.max(1)));
        let claims = Claims::new(ports.clone(), session.clone());
        let logs = LiveLogRegistry::new(LiveLogToken::new(ports.entropy.token()));
        Arc::new(Self {
            claims,
            keys: ProjectKeys::new(ports.clone()),
            sources: ObjectSources::new(ports.clone(), options.state.join("repositories")),
            ports,
            runner,
            options,
            logs,
            session,
            running: Mutex::default(),
            paused: Mutex::default(),
            claiming: Mutex::default(),
            item_builds: ItemBuilds::default(),
            slots,
            starting: StartingBuilds::default(),
            session_ended: false.into(),
            is_fenced: false.into(),
            is_draining: false.into(),
            drain_over: tokio::sync::Notify::new(),
            lease: Lease::unlimited(),
            renewals: watch::channel(0).0,
        })
    }

    /// Returns the live logs of the running builds, to be served over HTTP.
    pub fn logs(&self) -> &LiveLogRegistry {
        &self.logs
    }

    /// Creates the session, then receives and runs builds, and ends those of executors that die,
    /// until `shutdown` is true, its sender is dropped, or the session is gone. After a shutdown it
    /// drains: it takes no more builds, and the running ones get
    /// [`ExecutorSettings::drain_seconds`] to finish. Then stops all builds, which end as `Retry`,
    /// and waits at most ten seconds until all slots are free; paused builds without a slot are not
    /// waited for. At last it ends the session, unless a build is left. Returns `Ok` only after a
    /// shutdown, which a dropped sender is too. An error if the session cannot be created or is
    /// gone: the caller then starts a new executor.
    pub async fn run(
        self: Arc<Self>,
        mut shutdown: watch::Receiver<bool>,
    ) -> Result<(), ReconcileError> {
        let mut record = self.create_session().await?;
        let (session_over, session_ending) = watch::channel(false);
        let mut tasks = tokio::task::JoinSet::new();
        for (queue, head_start_millis) in QUEUES {
            tasks.spawn(self.clone().poll_queue(queue, head_start_millis, session_ending.clone()));
        }
        let is_gone = {
            let mut renewal = std::pin::pin!(self.renew(&mut record));
            let drain = async {
                // An error means that the sender was dropped; that is a shutdown too.
                let _ = shutdown.wait_for(|stop| *stop).await;
                session_over.send_replace(true);
                self.drain().await;
            };
            tokio::select! {
                () = drain => false,
                () = &mut renewal => true,
                () = self.clone().watch_sessions() => false,
            }
        };
        if is_gone {
            self.stop_all("the executor's session is gone");
            // A build claimed under a session that is not renewed would count as lost at once.
            session_over.send_replace(true);
        }
        self.session_ended.store(true, std::sync::atomic::Ordering::Release);
        while tasks.join_next().await.is_some() {}
        // Every build returns its slot when it has ended.
        let _ = tokio::time::timeout(STOP_WAIT, self.slots.acquire_many(self.slot_count())).await;
        if is_gone {
            return Err(ReconcileError::Retry(format!("the session {} is gone", self.session)));
        }
        self.end_own_session(record).await;
        Ok(())
    }

    /// Claims the builds of received messages, trying each up to three times, and returns the
    /// claimed builds. The caller must pass each to [`Self::execute`]; none of them holds a slot.
    /// Acknowledges the messages of these builds, of builds with nothing to run, and duplicates of
    /// builds that run here. A message that is no build is moved to quarantine and acknowledged.
    /// All other messages are redelivered, also those whose build is being claimed here by another
    /// call; failures are only logged.
    ///
    /// A message is redelivered if its build could not be claimed for an unknown reason, or if it
    /// could not be acknowledged.
    pub async fn claim_received(
        &self,
        queue: MessageQueue,
        messages: Vec<Incoming>,
    ) -> Vec<AcceptedBuild> {
        let mut done: Vec<String> = Vec::new();
        let mut received: Vec<(BuildMessage, StopSignal, String)> = Vec::new();
        for message in messages {
            let Some(build) =
                serde_json::from_str(&message.body).ok().and_then(BuildMessage::from_wakeup)
            else {
                let name = format!("{queue:?}");
                match quarantine::quarantine_message(
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
                        tracing::warn!(message = message.id, %error, "could not quarantine a message that is not a build")
                    }
                }
                continue;
            };
            // Entered before anything is read, so that a duplicate message finds the build here.
            match self.running().entry(build.build.clone()) {
                // This may be a redelivery of the message whose claim is in progress. Acknowledging
                // one delivery removes both, and the claim may still fail.
                Entry::Occupied(_) if self.claiming().contains(&build.build) => {}
                Entry::Occupied(_) => done.push(message.receipt),
                Entry::Vacant(vacant) => {
                    let (stopper, stop) = Stopper::new();
                    vacant.insert(stopper);
                    self.claiming().insert(build.build.clone());
                    received.push((build, stop, message.receipt));
                }
            }
        }
        let mut accepted = Vec::new();
        for _ in 0..CLAIM_TRIES {
            let builds: Vec<BuildMessage> =
                received.iter().map(|(build, ..)| build.clone()).collect();
            let mut failed = Vec::new();
            for (claim, (build, stop, receipt)) in
                self.claims.claim(&builds).await.into_iter().zip(received)
            {
                match claim {
                    Ok(Some(claimed)) => {
                        self.claiming().remove(&build.build);
                        let item_build =
                            self.item_builds.enter(&claimed.order.item, claimed.order.generation);
                        accepted.push(AcceptedBuild { claimed, stop, slot: None, item_build });
                        done.push(receipt);
                    }
                    Ok(None) => {
                        self.forget_claim(&build.build);
                        done.push(receipt);
                    }
                    Err(error) => {
                        tracing::info!(build = %build.build, %error, "could not claim a build yet; retrying");
                        failed.push((build, stop, receipt));
                    }
                }
            }
            received = failed;
            if received.is_empty() {
                break;
            }
        }
        for (build, ..) in received {
            tracing::warn!(build = %build.build, "could not claim a build; its message will be redelivered");
            self.forget_claim(&build.build);
        }
        if !done.is_empty()
            && let Err(error) = self.ports.queues.acknowledge_all(queue, &done).await
        {
            tracing::warn!(?queue, %error, "could not acknowledge messages of claimed builds; they will be redelivered");
        }
        accepted
    }

    /// Runs a claimed build to its end, records meanwhile that it will fail or is paused, archives
    /// its logs, stores the end, wakes its provider and its queue, and removes its directory. The
    /// queue is not woken if another build of the item will do so. If its secrets cannot be read,
    /// as when the store or the key service does not answer, the build ends as `Retry` without
    /// being run. Retries to store the end and to send the wakeups; an error if the session ends
    /// before that succeeds.
    pub async fn execute(&self, accepted: AcceptedBuild) -> Result<(), ReconcileError> {
        let AcceptedBuild { mut claimed, stop, mut slot, mut item_build } = accepted;
        let build = claimed.run.build.clone();
        tracing::info!(%build, job = %claimed.order.job, change = %claimed.order.change, attempt = claimed.order.attempt, "a build starts");
        let (scope, name) = match &claimed.run.lost {
            None => (AttemptScope::Whole, build.clone()),
            // The lost executor may be on this machine and still use its directory. The live log is
            // not the build's.
            Some(_) => (AttemptScope::CollectLogs, BuildId(format!("{build}-lost"))),
        };
        let jobdir = self.options.state.join("builds").join(name.as_str());
        let observer = BuildReporter::new(self.logs.open(&name, &jobdir), self.starting.enter());
        let opened =
            self.keys.open_for_build(&claimed.order, &claimed.job, &self.options.token_issuer);
        let (secrets, secrets_error) = match opened.await {
            Ok(secrets) => (secrets, None),
            Err(error) => (OpenedSecrets::default(), Some(error)),
        };
        let (order, nodes) = (claimed.order.clone(), claimed.nodes.clone());
        let holders = StoredHolders { ports: &self.ports, order: &order, nodes: &nodes };
        let job = JobAttempt {
            order: &order,
            job: &claimed.job.clone(),
            speculation: &claimed.speculation.clone(),
            nodes: &nodes,
            node_key: self.options.node_key.as_deref().filter(|_| !claimed.nodes.is_empty()),
            secrets: &secrets,
            child_jobs: &claimed.child_jobs.clone(),
            inherited: &std::mem::take(&mut claimed.inherited),
            scope,
            lease: &self.lease,
            holder: Some(&holders),
        };
        let mut updates = observer.updates();
        let execution = async {
            match secrets_error {
                None => self.runner.execute(&job, &self.sources, &jobdir, stop, &observer).await,
                Some(error) => not_started(
                    self.ports.clock.now(),
                    format!("The job's secrets and SSH keys could not be decrypted: {error}"),
                ),
            }
        };
        let tenant = claimed.order.queue.tenant.clone();
        let logs = BuildLogs { tenant: &tenant, build: &build };
        let mut stored_log =
            StoredLog::new(&self.ports, logs, log_path(&jobdir), observer.log_length());
        let mut execution = std::pin::pin!(execution);
        let followed = async {
            loop {
                tokio::select! {
                    biased;
                    ended = &mut execution => break ended,
                    Ok(()) = updates.changed() => {}
                }
                let update = updates.borrow_and_update().clone();
                tokio::select! {
                    biased;
                    ended = &mut execution => break ended,
                    () = self.record_updates(&mut claimed, update, &observer, (&mut slot, &mut item_build)) => {}
                }
            }
        };
        let mut ended = tokio::select! {
            biased;
            ended = followed => ended,
            never = stored_log.keep(), if scope == AttemptScope::Whole => match never {},
        };
        observer.end_start();
        if self.is_fenced() {
            // Another executor ends the build, and may have stored its logs.
            self.forget_build(&build, jobdir.clone()).await;
            return Err(ReconcileError::Retry(format!(
                "the session of build {build} was ended by another executor"
            )));
        }
        let log = match scope {
            AttemptScope::Whole => match stored_log.finish().await {
                true => LogCopy::Stored,
                false => LogCopy::Missing,
            },
            AttemptScope::CollectLogs => self.keep_lost_log(logs, &jobdir).await,
        };
        if let Some(why) = &claimed.run.lost {
            ended.detail = Some(why.clone());
            ended.started_at = Some(claimed.run.claimed_at);
            // Whatever kept its logs from being collected: the attempt does not count.
            if ended.result != BuildResult::Aborted {
                ended.result = BuildResult::Retry;
            }
        }
        let writer = (&mut stored_log, &observer);
        self.archive_logs(logs, &jobdir, (scope, log), writer, &mut ended).await;
        self.store_secrets(&build, &mut ended.data, &observer).await;
        let reported = self.report_end(&mut claimed, ended, &mut item_build).await;
        self.forget_build(&build, jobdir.clone()).await;
        reported
    }

    /// Forgets a build that has ended, and removes its directory.
    async fn forget_build(&self, build: &BuildId, jobdir: PathBuf) {
        self.running().remove(build);
        self.paused().remove(build);
        remove_directory(build, jobdir).await;
    }

    /// Records what a running build has announced and what is not recorded yet: that a playbook
    /// begins, that it will fail, or that it is paused; the latter two wake its queue. A failure to
    /// record one of the first two is only logged. A pause is retried without limit until it and
    /// its secret data are stored; the caller drops the call when the build ends. Before a pause is
    /// stored, the build stops counting in `item_build`; afterwards it gives up its slot, if at
    /// most [`PAUSED_MAX`] builds are paused.
    async fn record_updates(
        &self,
        claimed: &mut Claimed,
        updates: BuildUpdates,
        observer: &BuildReporter,
        (slot, item_build): (&mut Option<OwnedSemaphorePermit>, &mut ItemBuildGuard),
    ) {
        let build = claimed.run.build.clone();
        if let Some(start) = updates.playbook.filter(|start| claimed.run.playbook != Some(*start))
            && let Err(error) = claim::record_playbook(&self.ports, claimed, start).await
        {
            tracing::warn!(%build, %error, "could not record that a playbook begins");
        }
        // If this is lost, the queue learns of the failure later, from the end.
        if updates.will_fail
            && matches!(claimed.run.phase, Phase::Running)
            && let Err(error) = claim::will_fail(&self.ports, claimed).await
        {
            tracing::warn!(%build, %error, "could not record that the build will fail");
        }
        let is_recorded = matches!(claimed.run.phase, Phase::Paused(_));
        if let Some(mut pause) = updates.pause.filter(|_| !is_recorded) {
            // A paused build may wait for other builds of its item, so they must not rely on it to
            // wake the queue. The pause itself wakes the queue for those that did.
            item_build.leave();
            self.store_secrets(&build, &mut pause.data, observer).await;
            let mut attempt = 0;
            while let Err(error) = claim::pause(&self.ports, claimed, pause.clone()).await {
                // The gate resumes only builds whose pause is recorded.
                tracing::warn!(%build, %error, "could not record that the build is paused; retrying");
                sleep(END_WAIT_MAX.min(Duration::from_millis(200 << attempt.min(10)))).await;
                attempt += 1;
            }
            tracing::info!(%build, "a build is paused");
            self.paused().insert(build);
            // The jobs it waits for may need its slot. Beyond the bound a paused build keeps its
            // slot, because each one takes memory and disk.
            if self.paused().len() <= PAUSED_MAX {
                drop(slot.take());
            }
        }
    }

    /// Encrypts and stores the secret data that the job has returned for its dependents, and names
    /// the object in `data`. Without secret data it stores nothing. Retries until it works. If the
    /// session ends first, it gives up without an error: `data` then names no object, and the
    /// dependents get no secret data.
    async fn store_secrets(
        &self,
        build: &BuildId,
        data: &mut Map<String, Value>,
        observer: &BuildReporter,
    ) {
        let secret_data = observer.secrets();
        let mut attempt = 0;
        while let Err(error) =
            returned_data::store_secrets(&self.ports, build, data, &secret_data).await
        {
            if self.session_ended.load(std::sync::atomic::Ordering::Acquire) {
                return;
            }
            tracing::warn!(%build, %error, "could not store the secret data of a job; retrying");
            sleep(END_WAIT_MAX.min(Duration::from_millis(200 << attempt.min(10)))).await;
            attempt += 1;
        }
    }

    /// Stores a build's end and sends its wakeups as [`Self::store_end`] does; retries until the
    /// session ends, which is an error. From the ninth attempt on only the result, the times and a
    /// note are stored, without the returned data and the log address. If the run has ended already
    /// or belongs to another session, nothing is stored and this is no error.
    async fn report_end(
        &self,
        claimed: &mut Claimed,
        ended: RunEnd,
        item_build: &mut ItemBuildGuard,
    ) -> Result<(), ReconcileError> {
        tracing::info!(build = %claimed.run.build, result = %ended.result, detail = ended.detail, "a build ends");
        let mut attempt = 0;
        loop {
            // If the returned data is what cannot be stored, the result alone still can.
            let stored =
                if attempt < COMPLETE_END_TRIES { ended.clone() } else { without_data(&ended) };
            let error = match self.store_end(claimed, stored, item_build).await {
                Ok(()) => return Ok(()),
                Err(error) => error,
            };
            // While the session lives, no one else ends this build. Afterwards the gate treats it
            // as lost.
            if self.session_ended.load(std::sync::atomic::Ordering::Acquire) {
                return Err(error);
            }
            tracing::warn!(build = %claimed.run.build, %error, "could not store the end of a build; retrying");
            sleep(END_WAIT_MAX.min(Duration::from_millis(200 << attempt.min(10)))).await;
            attempt += 1;
        }
    }

    /// Stores a build's end and then wakes its provider. Wakes its queue too, unless the build
    /// passed, nothing waits for it alone, and another build of its item and generation runs here.
    /// A run that has ended or is another session's counts as stored. An error if the end is not
    /// stored or a wakeup may not have been sent; the caller then calls it again.
    async fn store_end(
        &self,
        claimed: &mut Claimed,
        ended: RunEnd,
        item_build: &mut ItemBuildGuard,
    ) -> Result<(), ReconcileError> {
        claim::store_end(&self.ports, claimed, ended).await?;
        // The build counts as running until its end is stored: the last build of an item wakes the
        // queue for all stored ends.
        let others_remain = item_build.leave();
        let queue = if others_remain && item_builds::can_defer_wakeup(claimed) {
            QueueWakeup::Defer
        } else {
            QueueWakeup::Send
        };
        claim::send_wakeups(&self.ports, &claimed.order, queue).await
    }

    /// Stores the session's first record and returns it; an error if a session of this id exists.
    async fn create_session(&self) -> Result<Record, ReconcileError> {
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
        Session {
            id: self.session.clone(),
            hostname: self.options.hostname.clone(),
            live_logs: self
                .options
                .log_address
                .clone()
                .map(|address| LiveLogServer { address, token: self.logs.token().clone() }),
            started_at,
            alive_until: now.plus_seconds(LIFE_SECONDS),
            builds: self.running().keys().cloned().collect(),
            state: if self.is_draining() { SessionState::Draining } else { SessionState::Running },
        }
    }

    /// Renews the session every [`RENEW_SECONDS`] and stops or resumes builds on request; returns
    /// only when the session is gone. `record` is the stored session. Failures are logged. If the
    /// session was not renewed in time, also because this process was paused, its builds may be
    /// retried elsewhere, so all builds are stopped here, but renewing goes on.
    async fn renew(&self, record: &mut Record) {
        let started_at = self.ports.clock.now();
        let mut alive_until = started_at.plus_seconds(LIFE_SECONDS);
        self.lease.renew(Instant::now() + LEASE);
        let mut ticks = interval(Duration::from_secs(RENEW_SECONDS));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let (now, began) = (self.ports.clock.now(), Instant::now());
            if now >= alive_until || self.lease.is_over() {
                self.stop_all("the executor could not renew its session in time");
            }
            match self.renew_once(record, started_at, now).await {
                Ok(true) => {
                    alive_until = now.plus_seconds(LIFE_SECONDS);
                    self.lease.renew(began + LEASE);
                    self.renewals.send_modify(|count| *count += 1);
                }
                Ok(false) => return,
                Err(error) => tracing::warn!(%error, "could not renew the session"),
            }
        }
    }

    /// Renews the session stored as `record` once, and updates `record`. Then stops or resumes the
    /// builds for which that is requested, and ends claims of unknown outcome for which a stop is
    /// requested; a failure of the latter is only logged. `started_at` is when the session started,
    /// and is stored again. Returns false if the session is gone or another executor has ended it,
    /// and then does nothing else. After a conflicting write of its own it returns true: `record`
    /// is then the stored one, and the next renewal builds on it.
    ///
    /// # Errors
    /// Returns an error if the store does not answer; the next renewal tries again.
    pub async fn renew_once(
        &self,
        record: &mut Record,
        started_at: Timestamp,
        now: Timestamp,
    ) -> Result<bool, ReconcileError> {
        let mut head = with_body(record.clone(), &self.session_body(started_at, now))?;
        // Expires like any final record, counted from the last renewal.
        head.expires_at = Some(expiry(now));
        let plan = CellCommit { head, others: Vec::new(), wakeups: Vec::new(), due: None };
        match cell::commit(&self.ports, plan).await? {
            CommitOutcome::Written(renewed) => *record = renewed,
            // Another executor has ended the session, or the stored record is an earlier write of
            // this one whose response was lost. The next renewal builds on that.
            CommitOutcome::Stale => match get(&self.ports, &record.key).await? {
                Some(stored) if has_ended(&stored) => {
                    self.is_fenced.store(true, std::sync::atomic::Ordering::Release);
                    return Ok(false);
                }
                Some(stored) => *record = stored,
                None => return Ok(false),
            },
        }
        let running: Vec<BuildId> = self.running().keys().cloned().collect();
        let paused: Vec<BuildId> = self.paused().iter().cloned().collect();
        let stops = running.iter().map(|build| (build::stop_key(build), build));
        let resumes = paused.iter().map(|build| (build::resume_key(build), build));
        let requests: BTreeMap<Key, &BuildId> = stops.chain(resumes).collect();
        let keys: Vec<Key> = requests.keys().cloned().collect();
        for page in keys.chunks(100) {
            for request in self.ports.records.get(page).await?.into_iter().flatten() {
                let Some(build) = requests.get(&request.key).copied() else { continue };
                let Some(stopper) = self.running().get(build).cloned() else { continue };
                if request.key == build::resume_key(build) {
                    self.paused().remove(build);
                    stopper.resume();
                } else {
                    stopper.stop(&build::decode_stop(&request).why);
                }
            }
        }
        let is_running = |build: &BuildId| self.running().contains_key(build);
        if let Err(error) = self.claims.end_stopped_unconfirmed(&is_running).await {
            tracing::warn!(%error, "could not check builds whose claim is unconfirmed; retrying");
        }
        Ok(true)
    }

    /// Requests that all builds which are being claimed, run or are paused here stop, for the same
    /// reason, and end as `Retry`. A build that is claimed later gets no stop.
    fn stop_all(&self, why: &str) {
        for stopper in self.running().values() {
            stopper.stop_and_retry(why);
        }
    }

    /// Locks the set of paused builds.
    fn paused(&self) -> std::sync::MutexGuard<'_, BTreeSet<BuildId>> {
        self.paused.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Removes a build that was not claimed from the running builds.
    fn forget_claim(&self, build: &BuildId) {
        self.running().remove(build);
        self.claiming().remove(build);
    }

    /// Locks the set of builds that are being claimed.
    fn claiming(&self) -> std::sync::MutexGuard<'_, BTreeSet<BuildId>> {
        self.claiming.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks the running builds.
    fn running(&self) -> std::sync::MutexGuard<'_, BTreeMap<BuildId, Stopper>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns whether a stored session has ended. One that cannot be read has not.
fn has_ended(record: &Record) -> bool {
    decode::<Session>(record).is_ok_and(|session| session.state.has_ended())
}

/// Removes a build's directory on a blocking thread, because it may hold many files. A missing
/// directory is no failure; any other failure is only logged.
async fn remove_directory(build: &BuildId, jobdir: PathBuf) {
    let removed = tokio::task::spawn_blocking(move || std::fs::remove_dir_all(jobdir)).await;
    // If the task panicked or the runtime ended, part of the directory may be left.
    let removed = removed.unwrap_or_else(|error| Err(std::io::Error::other(error)));
    if let Err(error) = removed
        && error.kind() != std::io::ErrorKind::NotFound
    {
        tracing::warn!(%build, %error, "could not remove the build's directory");
    }
}

/// Returns an end with the same result, detail and times, but without returned data and log
/// address, so that it always fits into a record. Its detail also says that the data was dropped.
fn without_data(ended: &RunEnd) -> RunEnd {
    let dropped = "The data returned by the build could not be stored and was dropped.";
    let detail = Some(match &ended.detail {
        Some(detail) => format!("{detail}\n{dropped}"),
        None => dropped.to_owned(),
    });
    let data = Map::new();
    RunEnd { data, data_object: None, log_url: None, detail, ..ended.clone() }
}

/// Returns the end of an attempt that could not start, with `why` as its detail. Its result is
/// `Retry`, which asks for another attempt.
fn not_started(at: Timestamp, why: String) -> RunEnd {
    RunEnd {
        result: BuildResult::Retry,
        detail: Some(why),
        started_at: None,
        ended_at: at,
        data: serde_json::Map::new(),
        data_object: None,
        log_url: None,
    }
}

/// A build that this executor has claimed and has to run.
pub struct AcceptedBuild {
    /// The claim.
    claimed: Claimed,
    /// Asks the build to stop or to resume.
    stop: StopSignal,
    /// The slot that the build occupies; `None` for a caller that counts slots itself.
    slot: Option<OwnedSemaphorePermit>,
    /// Counts the build among the running builds of its item.
    item_build: ItemBuildGuard,
}
