//! The executor process: renews its session, receives builds from the queues by urgency, and runs
//! several builds at once.

pub mod admission;
mod build_reporter;
mod collect;
mod drain;
mod execution;
mod item_builds;
mod leftovers;
mod log_archive;
mod renewal;
mod running;
mod session_watch;
mod slots;
pub mod zone;

pub use renewal::Renewal;
pub use session_watch::{LOOK_SECONDS, SessionWatch};
pub use slots::WAIT_SECONDS;

use crate::claim::{BuildMessage, Claimed, Claims};
use crate::job::{Lease, Runner, StopSignal};
use crate::live::LiveLogRegistry;
use crate::secrets::ProjectKeys;
use crate::service::admission::{AdmissionLimits, StartingBuild, StartingBuilds};
use crate::service::item_builds::{ItemBuildGuard, ItemBuilds};
use crate::service::renewal::{SessionEnd, SessionLife};
use crate::service::running::{BuildStage, ListedBuild, RunningBuilds};
use crate::service::zone::ServedZone;
use crate::sources::ObjectSources;
use sluice_model::SessionId;
use sluice_model::wakeup::MessageQueue;
use sluice_records::session::{LIFE_SECONDS, LiveLogToken};
use sluice_runtime::batch::ReconcileError;
use sluice_runtime::port::Incoming;
use sluice_runtime::{Ports, quarantine};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::timeout;

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
/// The longest wait for stopped builds to end, in which cleanup playbooks run and logs are stored.
/// Whatever stops executors gives them 30 seconds after a drain; the rest is for ending the session.
const STOP_WAIT: Duration = Duration::from_secs(28);

/// Settings of one executor process.
#[derive(Debug, Clone)]
pub struct ExecutorSettings {
    /// The machine's name, shown on pages and in the API.
    pub hostname: String,
    /// The builds that it takes, by the zone of their nodes.
    pub zone: ServedZone,
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
    running: RunningBuilds,
    /// Running builds by item: the last one to end wakes the item's queue.
    item_builds: ItemBuilds,
    /// One permit for each build that may run.
    slots: Arc<Semaphore>,
    /// The builds that prepare their workspace.
    starting: StartingBuilds,
    /// Ends the drain at once.
    drain_over: tokio::sync::Notify,
    /// Until when connections to nodes may be opened.
    lease: Lease,
    /// What is known of the session.
    life: watch::Sender<SessionLife>,
}

impl ExecutorService {
    /// Creates an executor with a new session id, which is not stored yet. The executor claims
    /// nothing by itself before [`Self::run`], which can run once. It has at least one slot.
    pub fn new(ports: Ports, runner: Arc<dyn Runner>, options: ExecutorSettings) -> Arc<Self> {
        let session = SessionId(ports.entropy.token());
        let slots = Arc::new(Semaphore::new(options.slots.max(1)));
        let lease = Lease::unlimited();
        let claims = Claims::new(ports.clone(), session.clone()).under(lease.clone());
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
            running: RunningBuilds::default(),
            item_builds: ItemBuilds::default(),
            slots,
            starting: StartingBuilds::default(),
            drain_over: tokio::sync::Notify::new(),
            lease,
            life: watch::channel(SessionLife::default()).0,
        })
    }

    /// Returns the live logs of the running builds, to be served over HTTP.
    pub fn logs(&self) -> &LiveLogRegistry {
        &self.logs
    }

    /// Removes what a killed executor has left in its state, creates the session, then receives and
    /// runs builds, and ends those of executors that die, until `shutdown` is true, its sender is
    /// dropped, or the session is gone. After a shutdown it drains: it takes no more builds, and the
    /// running ones get [`ExecutorSettings::drain_seconds`] to finish. Then it stops all builds,
    /// which end as `Retry`, and waits until they have ended, 28 seconds at most; the session is
    /// renewed until then. At last it ends the session, unless a build is left. Returns `Ok` only
    /// after a shutdown, which a dropped sender is too. An error if the session cannot be created or
    /// is gone: the caller then starts a new executor.
    pub async fn run(
        self: Arc<Self>,
        mut shutdown: watch::Receiver<bool>,
    ) -> Result<(), ReconcileError> {
        let builds = self.options.state.join("builds");
        // Not waited for: a large directory takes a while, and new builds have others.
        tokio::task::spawn_blocking(move || leftovers::remove_dead(&builds));
        let mut record = self.create_session().await?;
        let (session_over, session_ending) = watch::channel(false);
        let mut tasks = tokio::task::JoinSet::new();
        self.poll_builds(&mut tasks, &session_ending);
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
            self.running.stop_all("the executor's session is gone");
            // A build claimed under a session that is not renewed would count as lost at once.
            self.claims.close();
            session_over.send_replace(true);
            let _ = timeout(STOP_WAIT, self.until_idle()).await;
        }
        self.end_life(SessionEnd::Shutdown);
        while tasks.join_next().await.is_some() {}
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
    /// call; failures are only logged. While the executor shuts down or its session may be over, it
    /// claims nothing and returns the messages to the queue at once.
    ///
    /// A message is redelivered if its build could not be claimed for an unknown reason, or if it
    /// could not be acknowledged.
    pub async fn claim_received(
        &self,
        queue: MessageQueue,
        messages: Vec<Incoming>,
    ) -> Vec<AcceptedBuild> {
        let ClaimedMessages { accepted, done, left } =
            self.claim_messages(&format!("{queue:?}"), messages).await;
        for message in left {
            self.give_back(queue, &message).await;
        }
        if !done.is_empty()
            && let Err(error) = self.ports.queues.acknowledge_all(queue, &done).await
        {
            tracing::warn!(?queue, %error, "could not acknowledge messages of claimed builds; they will be redelivered");
        }
        accepted
    }

    /// Claims the builds of messages as [`Self::claim_received`] does, and leaves the messages where
    /// they are: at `source`, for the log and the quarantine.
    async fn claim_messages(&self, source: &str, messages: Vec<Incoming>) -> ClaimedMessages {
        let mut done: Vec<String> = Vec::new();
        let mut received: Vec<ReceivedBuild> = Vec::new();
        for message in messages {
            let Some(build) =
                serde_json::from_str(&message.body).ok().and_then(BuildMessage::from_wakeup)
            else {
                match quarantine::quarantine_message(
                    &self.ports,
                    source,
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
            match self.running.enter(&build.build) {
                // This may be a redelivery of the message whose claim is in progress. Acknowledging
                // one delivery removes both, and the claim may still fail.
                Err(BuildStage::Claiming) => {}
                Err(BuildStage::Running | BuildStage::Paused) => done.push(message.receipt),
                Ok((listed, stop)) => received.push(ReceivedBuild { build, listed, stop, message }),
            }
        }
        let mut accepted = Vec::new();
        for _ in 0..CLAIM_TRIES {
            if received.is_empty() || !self.claims.may_claim() {
                break;
            }
            let builds: Vec<BuildMessage> =
                received.iter().map(|received| received.build.clone()).collect();
            let mut failed = Vec::new();
            for (claim, received) in self.claims.claim(&builds).await.into_iter().zip(received) {
                let ReceivedBuild { build, listed, stop, message } = received;
                match claim {
                    Ok(Some(claimed)) => {
                        listed.begin();
                        let item_build =
                            self.item_builds.enter(&claimed.order.item, claimed.order.generation);
                        let (slot, starting) = (None, None);
                        accepted.push(AcceptedBuild {
                            claimed,
                            stop,
                            slot,
                            starting,
                            item_build,
                            listed,
                        });
                        done.push(message.receipt);
                    }
                    Ok(None) => done.push(message.receipt),
                    Err(error) => {
                        tracing::info!(build = %build.build, %error, "could not claim a build yet");
                        failed.push(ReceivedBuild { build, listed, stop, message });
                    }
                }
            }
            received = failed;
        }
        let mut left = Vec::new();
        for ReceivedBuild { build, message, .. } in received {
            let build = build.build;
            if self.claims.may_claim() {
                tracing::warn!(%build, source, "could not claim a build; its message will be redelivered");
                continue;
            }
            tracing::info!(%build, "a build is left to other executors: this one shuts down, or its session may be over");
            left.push(message);
        }
        ClaimedMessages { accepted, done, left }
    }
}

/// What became of messages whose builds were to be claimed. Those that are in no list stay where
/// they are.
struct ClaimedMessages {
    /// The claimed builds.
    accepted: Vec<AcceptedBuild>,
    /// The receipts of messages to remove.
    done: Vec<String>,
    /// Messages to return at once, for other executors.
    left: Vec<Incoming>,
}

/// A build of a received message that is being claimed.
struct ReceivedBuild {
    /// What the message says.
    build: BuildMessage,
    /// Keeps the build among the running ones.
    listed: ListedBuild,
    /// Asks the build to stop or to resume.
    stop: StopSignal,
    /// The message.
    message: Incoming,
}

/// A build that this executor has claimed and has to run.
pub struct AcceptedBuild {
    /// The claim.
    claimed: Claimed,
    /// Asks the build to stop or to resume.
    stop: StopSignal,
    /// The slot that the build occupies; `None` for a caller that counts slots itself.
    slot: Option<OwnedSemaphorePermit>,
    /// Counts it among the builds that prepare their workspace; `None` for a caller that does not
    /// limit them.
    starting: Option<StartingBuild>,
    /// Counts the build among the running builds of its item.
    item_build: ItemBuildGuard,
    /// Keeps the build among the running ones.
    listed: ListedBuild,
}
