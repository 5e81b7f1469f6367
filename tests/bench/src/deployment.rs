//! The measured system: every function with its own named ports, in one thread, one batch after
//! another.

use crate::clocked::Stopwatch;
use crate::runner::{Builds, Nothing};
use bytes::Bytes;
use futures::future::{BoxFuture, FutureExt as _};
use futures::stream::{FuturesUnordered, StreamExt as _};
use http::HeaderMap;
use sluice_cloud::LaunchSettings as CloudSite;
use sluice_config::connection::Driver;
use sluice_executor::service::admission::AdmissionLimits;
use sluice_executor::service::{ExecutorService, ExecutorSettings, RENEW_SECONDS, Renewal};
use sluice_forge::webhook::sign;
use sluice_forge::{Forge, ForgeSecret};
use sluice_gate_function::Gate;
use sluice_intake::Intake;
use sluice_launcher::{Cloud, Launcher};
use sluice_memory::World;
use sluice_merger::Merger;
use sluice_model::git::LandingMethod;
use sluice_model::wakeup::{MessageQueue, Wakeup};
use sluice_model::{SessionId, TenantName, Timestamp};
use sluice_records::codec::encode_first;
use sluice_records::connection::{self, AwsAccess, ConnectionsFile, StoredConnection};
use sluice_records::session::{self, Session, SessionState};
use sluice_reporter::Reporter;
use sluice_repos::Repos;
use sluice_runtime::batch::{self, ReconcileError, Reconciler};
use sluice_runtime::object::PutMode;
use sluice_runtime::record::{Expect, Write};
use sluice_runtime::{Clock as _, Entropy, Ports};
use sluice_scenarios::cloud::{PlayedChecks, PlayedCloud};
use sluice_tenant::Tenants;
use sluice_timer::Timer;
use sluice_webhook::WebhookReceiver;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// The start of the virtual clock.
const START: Timestamp = Timestamp(1_800_000_000_000);
/// Rounds after which a deployment that does not become idle counts as stuck.
const ROUNDS_MAX: usize = 200_000;
/// The visibility timeout of received messages in seconds.
const VISIBILITY_SECONDS: u32 = 30;
/// The account that reports.
pub const OWN: &str = "sluice[bot]";
/// The secret that webhooks are signed with.
pub const WEBHOOK_SECRET: &str = "a shared secret";

/// A signed webhook as it arrives.
pub struct Signed {
    /// Its headers.
    pub headers: HeaderMap,
    /// Its body.
    pub body: Bytes,
}

/// Signs a webhook as a forge does.
pub fn signed(id: &str, event: &str, body: Vec<u8>) -> Signed {
    let mut headers = HeaderMap::new();
    let signature = sign(&ForgeSecret::new(WEBHOOK_SECRET), &body);
    for (name, value) in
        [("x-github-delivery", id), ("x-github-event", event), ("x-hub-signature-256", &signature)]
    {
        headers.insert(name, value.parse().unwrap());
    }
    Signed { headers, body: Bytes::from(body) }
}

/// The source of webhooks.
pub type Inbox = Box<dyn FnMut() -> Option<Signed> + Send>;

/// When builds end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ends {
    /// One by one, when everything else is idle: the worst case for the number of reconciliations.
    OneByOne,
    /// As soon as they have started.
    AtOnce,
}

/// The calls of event sources to SQS, which are billed although no function makes them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct EventSources {
    /// Receives that brought messages.
    pub receives: u64,
    /// Deletions, one for each batch.
    pub deletes: u64,
    /// Receives and deletions of FIFO queues among them.
    pub fifo_calls: u64,
    /// Receives of the gate's queue among them.
    pub gate_batches: u64,
    /// Messages that those brought.
    pub gate_messages: u64,
}

/// The parts of a deployment besides its functions.
pub struct Parts {
    /// The world.
    pub world: World,
    /// The forge.
    pub forge: Arc<dyn Forge>,
    /// Makes the repositories on a function's ports.
    pub repos: Box<dyn Fn(Ports) -> Arc<dyn Repos>>,
    /// Where the forge's repositories are.
    pub git_url: String,
    /// The source of webhooks.
    pub inbox: Inbox,
    /// How much of a build is done.
    pub builds: Builds,
}

/// A complete deployment of Sluice, measured.
pub struct Deployment {
    /// Its world.
    pub world: World,
    /// Its cloud.
    pub cloud: Arc<PlayedCloud>,
    /// Time by function, calls of forges and repositories included.
    pub watch: Stopwatch,
    /// What event sources did.
    pub sources: EventSources,
    /// When builds end.
    pub ends: Ends,
    /// Whether webhooks are let in.
    pub listens: bool,
    functions: BTreeMap<MessageQueue, (&'static str, Box<dyn Reconciler>)>,
    webhook: WebhookReceiver,
    executor: Arc<ExecutorService>,
    session: SessionId,
    runner: Arc<Nothing>,
    running: FuturesUnordered<BoxFuture<'static, Result<(), ReconcileError>>>,
    inbox: Inbox,
    _state: tempfile::TempDir,
}

impl Deployment {
    /// Creates a deployment and has it read its configuration.
    pub async fn new(parts: Parts, main_yaml: &str) -> Self {
        let Parts { world, forge, repos, git_url, inbox, builds } = parts;
        configure(&world.ports(), main_yaml, &git_url).await;
        let ports = |name| world.ports_of(name);
        let forges = || BTreeMap::from([("github".into(), forge.clone())]);
        let cloud = Arc::new(PlayedCloud::new(world.clone()));
        let clouds = BTreeMap::from([(
            "ec2".into(),
            Cloud { driver: cloud.clone(), site: CloudSite::default() },
        )]);
        let launcher =
            Launcher::new(ports("launcher"), clouds, Arc::new(PlayedChecks(world.clone())));
        let functions: BTreeMap<MessageQueue, (&'static str, Box<dyn Reconciler>)> =
            BTreeMap::from([
                (
                    MessageQueue::Events,
                    (
                        "intake",
                        Box::new(Intake::new(ports("intake"), forges(), repos(ports("intake"))))
                            as Box<dyn Reconciler>,
                    ),
                ),
                (
                    MessageQueue::Gate,
                    ("gate", Box::new(Gate::new(ports("gate"), "https://sluice.test/"))),
                ),
                (
                    MessageQueue::Tenants,
                    (
                        "tenant",
                        Box::new(Tenants::new(ports("tenant"), repos(ports("tenant")), forges())),
                    ),
                ),
                (MessageQueue::Pool, ("launcher", Box::new(launcher))),
                (
                    MessageQueue::Reports,
                    ("reporter", Box::new(Reporter::new(ports("reporter"), forges()))),
                ),
                (
                    MessageQueue::Merges,
                    ("merger", Box::new(Merger::new(ports("merger"), repos(ports("merger"))))),
                ),
                (MessageQueue::Wakes, ("timer", Box::new(Timer::new(ports("timer"), 10)))),
            ]);
        let state = tempfile::tempdir().unwrap();
        let runner = Arc::new(Nothing::new(builds));
        let noted = Arc::new(Noted { world: world.clone(), newest: Mutex::default() });
        let executor = executor(
            Ports { entropy: noted.clone(), ..ports("executor") },
            runner.clone(),
            state.path(),
        );
        let session = SessionId(noted.newest.lock().unwrap().clone());
        let mut deployment = Self {
            webhook: WebhookReceiver::new(ports("webhook")),
            world,
            cloud,
            watch: Stopwatch::default(),
            sources: EventSources::default(),
            ends: Ends::OneByOne,
            listens: true,
            functions,
            executor,
            session,
            runner,
            running: FuturesUnordered::new(),
            inbox,
            _state: state,
        };
        deployment.begin_session();
        let wakeup = Wakeup::Tenant { tenant: TenantName::from("bench") };
        sluice_runtime::cell::send(&deployment.world.ports(), &[wakeup]).await.unwrap();
        deployment.rest().await;
        deployment
    }

    /// Returns a fresh world.
    pub fn world() -> World {
        // No message is delivered twice: the normal case is measured.
        World::new(1, 0, START)
    }

    /// Processes everything except periodic work.
    pub async fn rest(&mut self) {
        for _ in 0..ROUNDS_MAX {
            if self.step().await {
                continue;
            }
            if self.is_at_rest() || !self.wait() {
                return;
            }
        }
        panic!("the deployment does not become idle: {:?}", self.world.queued());
    }

    /// Does what can be done at this moment: each queue's next batch. Returns false when there was
    /// nothing.
    pub async fn step(&mut self) -> bool {
        let mut moved = self.receive_all().await;
        for queue in MessageQueue::ALL {
            moved |= self.deliver(queue).await;
        }
        if self.ends == Ends::AtOnce || !moved {
            moved |= self.end_builds().await;
        }
        moved
    }

    /// Advances the clock until the next message is visible. Returns false when there is none.
    pub fn wait(&mut self) -> bool {
        let Some(next) = self.world.next_message_at() else { return false };
        self.world.advance_millis(next.since(self.world.now()).max(1));
        true
    }

    /// Processes every webhook that has arrived.
    pub async fn receive_all(&mut self) -> bool {
        let mut moved = false;
        while self.listens
            && let Some(signed) = (self.inbox)()
        {
            let begin = Instant::now();
            let answer =
                self.webhook.receive(&"github".into(), &signed.headers, &signed.body).await;
            self.watch.add("webhook", begin.elapsed());
            assert_eq!(answer.status(), http::StatusCode::ACCEPTED, "a webhook was refused");
            moved = true;
        }
        moved
    }

    /// Passes one batch of a queue to its function. Returns false when no message is visible.
    pub async fn deliver(&mut self, queue: MessageQueue) -> bool {
        if !self.world.has_visible(queue) {
            return false;
        }
        let Some((name, function)) = self.functions.get(&queue) else {
            return self.claim(queue).await;
        };
        let messages = self.world.take_messages(queue, 10, VISIBILITY_SECONDS);
        if messages.is_empty() {
            return false;
        }
        let begin = Instant::now();
        let failed = batch::handle(&**function, queue, messages.clone()).await;
        self.watch.add(name, begin.elapsed());
        self.sources.receives += 1;
        self.sources.deletes += 1;
        self.sources.fifo_calls += if queue.is_fifo() { 2 } else { 0 };
        if queue == MessageQueue::Gate {
            self.sources.gate_batches += 1;
            self.sources.gate_messages += messages.len() as u64;
        }
        for message in messages.iter().filter(|message| !failed.contains(&message.id)) {
            self.world.drop_message(queue, &message.receipt);
        }
        true
    }

    /// Has the executor take every build of a queue, as far as it goes without the build's end.
    async fn claim(&mut self, queue: MessageQueue) -> bool {
        let ports = self.world.ports_of("executor");
        let mut moved = false;
        while self.world.has_visible(queue) {
            let begin = Instant::now();
            let messages = ports.queues.receive(queue, 10, 20, 60).await.unwrap();
            moved |= !messages.is_empty();
            for taken in self.executor.claim_received(queue, messages).await {
                let executor = self.executor.clone();
                self.running.push(async move { executor.execute(taken).await }.boxed());
            }
            // All it waits for is in memory: one look takes it to where it may not end yet, or to
            // its end.
            while let Some(Some(ended)) = self.running.next().now_or_never() {
                ended.unwrap();
            }
            self.watch.add("executor", begin.elapsed());
        }
        moved
    }

    async fn end_builds(&mut self) -> bool {
        let most = if self.ends == Ends::AtOnce { self.running.len() } else { 1 };
        let mut moved = false;
        for _ in 0..most.min(self.running.len()) {
            let begin = Instant::now();
            self.runner.let_end(1);
            if let Some(ended) = self.running.next().await {
                ended.unwrap();
                moved = true;
            }
            self.watch.add("executor", begin.elapsed());
        }
        moved
    }

    /// Returns the number of running builds.
    pub fn running(&self) -> usize {
        self.running.len()
    }

    /// Ends one build. Returns false when none is running.
    pub async fn end_build(&mut self) -> bool {
        self.runner.let_end(1);
        match self.running.next().await {
            Some(ended) => {
                ended.unwrap();
                true
            }
            None => false,
        }
    }

    /// Returns the number of running builds of a change.
    pub fn builds_of(&self, number: u64) -> usize {
        self.runner.waiting(number)
    }

    /// Fails the running builds of a change, and returns their number.
    pub async fn fail_builds(&mut self, number: u64) -> usize {
        let failing = self.runner.let_fail(number);
        for _ in 0..failing {
            self.running.next().await.unwrap().unwrap();
        }
        failing
    }

    fn is_at_rest(&self) -> bool {
        let waits =
            |queue: &MessageQueue| !matches!(queue, MessageQueue::Pool | MessageQueue::Wakes);
        let records = self.world.records();
        let is_provider = |partition: &str| partition.starts_with("provider#");
        self.running.is_empty()
            && !self.world.queued().keys().any(waits)
            && self.cloud.running() == 0
            && !records
                .iter()
                .any(|record| record.sweep_at.is_some() && !is_provider(&record.key.partition))
            && !records.iter().any(|record| {
                is_provider(&record.key.partition) && record.key.sort.starts_with("request#")
            })
    }

    /// Starts a session that outlives the measurement: renewals are counted per minute, not per
    /// change.
    pub fn begin_session(&self) {
        let now = self.world.now();
        let session = Session {
            id: self.session.clone(),
            hostname: "bench".to_owned(),
            live_logs: None,
            started_at: now,
            alive_until: now.plus_seconds(30 * 86_400),
            builds: Vec::new(),
            zone: None,
            state: SessionState::Running,
        };
        let record = encode_first(session::key(&self.session), &session).unwrap();
        self.world.write_unchecked(Write::Put { record, expect: Expect::Anything });
    }

    /// Renews the executor's session as often as it does in so many minutes, which pass by the
    /// clock of the world. Nothing else is moved meanwhile.
    pub async fn renew_session(&self, minutes: u64) {
        let mut record = self.world.record(&session::key(&self.session)).unwrap();
        let started_at = self.world.now();
        for _ in 0..minutes * 60 / RENEW_SECONDS {
            self.world.advance_millis(RENEW_SECONDS * 1_000);
            let renewal =
                self.executor.renew_once(&mut record, started_at, self.world.now()).await.unwrap();
            assert_eq!(renewal, Renewal::Renewed);
        }
    }

    /// Returns how much of a build is done.
    pub fn builds(&self) -> Builds {
        self.runner.builds()
    }

    /// Returns the time in functions by function, and resets it.
    pub fn take_times(&self) -> BTreeMap<&'static str, (Duration, u64)> {
        self.watch.take()
    }
}

fn executor(ports: Ports, runner: Arc<Nothing>, state: &std::path::Path) -> Arc<ExecutorService> {
    let options = ExecutorSettings {
        hostname: "bench".to_owned(),
        zone: Default::default(),
        slots: 1_000,
        limits: AdmissionLimits::default(),
        state: state.to_owned(),
        node_key: None,
        log_address: None,
        log_root: "https://sluice.test/logs/".to_owned(),
        drain_seconds: 0,
        token_issuer: "https://sluice.test".to_owned(),
    };
    ExecutorService::new(ports, runner, options)
}

/// Remembers the newest token: the first that an executor draws names its session.
struct Noted {
    world: World,
    newest: Mutex<String>,
}

impl Entropy for Noted {
    fn token(&self) -> String {
        let token = self.world.token();
        self.newest.lock().unwrap().clone_from(&token);
        token
    }
}

/// Stores the main configuration and the connections.
pub async fn configure(ports: &Ports, main_yaml: &str, git_url: &str) {
    let context = connection::seal_context(&"github".into(), "webhook-secret");
    let secret = connection::seal(ports, &context, WEBHOOK_SECRET).await.unwrap();
    let github = StoredConnection {
        driver: Driver::GitHub,
        canonical_hostname: "forge.test".to_owned(),
        api_url: None,
        git_url: git_url.to_owned(),
        login: Some(OWN.to_owned()),
        token: None,
        webhook_secrets: vec![secret],
        landing: LandingMethod::default(),
        poll_minutes: None,
        aws: AwsAccess::default(),
    };
    let ec2 = StoredConnection {
        driver: Driver::Aws,
        canonical_hostname: "ec2".to_owned(),
        webhook_secrets: Vec::new(),
        login: None,
        ..github.clone()
    };
    let file = ConnectionsFile(BTreeMap::from([("github".into(), github), ("ec2".into(), ec2)]));
    let text = serde_json::to_string(&file).unwrap();
    ports
        .objects
        .put(connection::OBJECT, Bytes::from(text), PutMode::Always, "application/json")
        .await
        .unwrap();
    let main = Bytes::from(main_yaml.to_owned());
    ports.objects.put(connection::MAIN, main, PutMode::Always, "application/yaml").await.unwrap();
}
