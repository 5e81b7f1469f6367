//! `sluice-bench-emulated`: measures the time from an event to its build requests through the
//! emulator's data services in this process. The SDK signs and serialises each call, no socket is
//! used, and the emulator writes to disk.
//!
//! Forge, git and machines are simulated in memory, and no policies are evaluated, so only the
//! share of the data services is measured. `sluice-bench` measures git.
//!
//! The result compares with that of `sluice-bench` on ports in memory. This is a separate program,
//! because the SDK takes minutes to compile with optimisation.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a measuring harness may panic")]

use sluice_bench::budget::GOAL_MILLISECONDS;
use sluice_bench::deployment::{configure, signed};
use sluice_bench::latency::{SAMPLES, Spread, WARM_UP};
use sluice_bench::sample;
use sluice_bench::throughput::{Times, sum};
use sluice_bench::wording::{at_most, millis, ranked};
use sluice_cloud::LaunchSettings as CloudSite;
use sluice_conformance::{Site, sdk_config};
use sluice_emulator::data::{Connector, DataOptions, ENDPOINT, Front, Principal, SecretAccessKey};
use sluice_forge::Forge;
use sluice_gate_function::Gate;
use sluice_intake::Intake;
use sluice_launcher::{Cloud, Launcher};
use sluice_memory::World;
use sluice_merger::Merger;
use sluice_model::wakeup::{MessageQueue, Wakeup};
use sluice_model::{ProjectName, TenantName, Timestamp, git::BranchKey};
use sluice_repos::Repos;
use sluice_runtime::batch::{self, Reconciler};
use sluice_runtime::port::Incoming;
use sluice_runtime::{Ports, cell};
use sluice_scenarios::PlayedForge;
use sluice_scenarios::cloud::{PlayedChecks, PlayedCloud};
use sluice_scenarios::repos::{PlayedRepos, Store};
use sluice_tenant::Tenants;
use sluice_timer::Timer;
use sluice_webhook::WebhookReceiver;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const KEY: &str = "AKIDBENCH";
const SECRET: &str = "a secret of the measurement";
const SEAL_KEY: &str = "seal";
/// The number of ready nodes: each change takes three, and no build ends.
const NODES: u32 = 3 * (SAMPLES as u32 + WARM_UP as u32);
/// The time limit of one change.
const PATIENCE: Duration = Duration::from_secs(60);

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    let folder = tempfile::tempdir().unwrap();
    let mut system = System::start(folder.path()).await;
    let (mut samples, mut spent) = (Vec::new(), Vec::new());
    for number in 1..=WARM_UP + SAMPLES {
        let (time, functions) = system.change(number).await;
        if number > WARM_UP {
            samples.push(time);
            spent.push(functions);
        }
    }
    let Spread { median, high } = Spread::of(samples);
    let build = if cfg!(debug_assertions) { "not optimised" } else { "optimised" };
    println!(
        "Event to build request through the emulator in this process (SDK, no socket, on disk; {build} build; forge, git and machines played, no policies), median of {SAMPLES}:"
    );
    println!(
        "   a build is asked for  median {:>7.2} ms   95th percentile {:>7.2} ms   goal {GOAL_MILLISECONDS} ms: {}",
        millis(median),
        millis(high),
        at_most(millis(median), GOAL_MILLISECONDS)
    );
    println!("      spent on (ms for each change): {}", ranked(&sum(spent), SAMPLES));
}

struct System {
    ports: Ports,
    forge: Arc<PlayedForge>,
    webhook: WebhookReceiver,
    functions: BTreeMap<MessageQueue, Box<dyn Reconciler>>,
    /// The number of build requests.
    builds: u64,
    /// The time for empty polls and acknowledgements, which event sources do outside the functions.
    outside: Duration,
    /// The time by function, and that of receives with messages.
    times: Times,
}

impl System {
    async fn start(folder: &std::path::Path) -> Self {
        let front = Front::open(folder, DataOptions::default()).unwrap();
        front.keys().insert(KEY, Principal::new("bench"), SecretAccessKey::new(SECRET));
        front.kms().ensure_key(SEAL_KEY).unwrap();
        let client = Connector::new(front).into_client();
        let site =
            Site::new(sdk_config(ENDPOINT, KEY, SECRET, Some(client)), Some(SEAL_KEY.into()));
        let ports = site.whole().await.unwrap();
        configure(&ports, sample::MAIN, "https://forge.test").await;
        // Forge, repositories and machines are simulated: they have their own clock and take no
        // time.
        let world = World::new(1, 0, Timestamp(ports.clock.now().0));
        let store = Arc::new(Mutex::new(Store::default()));
        for (project, path, text) in sample::repositories_with(NODES) {
            let mut store = store.lock().unwrap();
            let commit = store.commit(BTreeMap::from([(path, text)]), Vec::new(), "first");
            let branch = BranchKey {
                project: ProjectName::new("forge.test", &project),
                branch: "main".into(),
            };
            store.set(&branch, &commit.id);
        }
        let forge = Arc::new(PlayedForge::new(world.clone(), store.clone()));
        let repos: Arc<dyn Repos> = Arc::new(PlayedRepos::new(world.clone(), store));
        let forges = BTreeMap::from([("github".into(), forge.clone() as Arc<dyn Forge>)]);
        let driver = Arc::new(PlayedCloud::new(world.clone()));
        let clouds = BTreeMap::from([("ec2".into(), Cloud { driver, site: CloudSite::default() })]);
        let launcher = Launcher::new(ports.clone(), clouds, Arc::new(PlayedChecks(world)));
        let functions: BTreeMap<MessageQueue, Box<dyn Reconciler>> = BTreeMap::from([
            (
                MessageQueue::Events,
                Box::new(Intake::new(ports.clone(), forges.clone(), repos.clone()))
                    as Box<dyn Reconciler>,
            ),
            (MessageQueue::Gate, Box::new(Gate::new(ports.clone(), "https://sluice.test/"))),
            (MessageQueue::Merges, Box::new(Merger::new(ports.clone(), repos.clone()))),
            (MessageQueue::Tenants, Box::new(Tenants::new(ports.clone(), repos, forges))),
            (MessageQueue::Pool, Box::new(launcher)),
            (MessageQueue::Wakes, Box::new(Timer::new(ports.clone(), 10))),
        ]);
        let mut system = Self {
            webhook: WebhookReceiver::new(ports.clone()),
            ports,
            forge,
            functions,
            builds: 0,
            outside: Duration::ZERO,
            times: Times::new(),
        };
        let wakeup = Wakeup::Tenant { tenant: TenantName::from("bench") };
        cell::send(&system.ports, &[wakeup]).await.unwrap();
        while !system.deliver(MessageQueue::Tenants).await {}
        system.rest().await;
        system
    }

    /// Proposes a change, and returns the time to its first build request with its breakdown.
    async fn change(&mut self, number: u64) -> (Duration, Times) {
        let file = format!("file-{number}");
        self.forge.propose("org/one", number, &file, "", &[(&file, "new")]);
        let webhook = self.forge.next_webhook().expect("the forge sends a webhook for the change");
        let signed = signed(&webhook.id, &webhook.event, webhook.body);
        let before = self.builds;
        self.outside = Duration::ZERO;
        self.times.clear();
        let begin = Instant::now();
        let answer = self.webhook.receive(&"github".into(), &signed.headers, &signed.body).await;
        self.add("webhook", begin);
        assert_eq!(answer.status(), http::StatusCode::ACCEPTED);
        while self.builds == before {
            // In the order in which a change passes them.
            for queue in [
                MessageQueue::Events,
                MessageQueue::Gate,
                MessageQueue::Merges,
                MessageQueue::Gate,
                MessageQueue::Pool,
                MessageQueue::Wakes,
            ] {
                self.deliver(queue).await;
            }
            self.take_builds().await;
            assert!(begin.elapsed() < PATIENCE, "no build was ever asked for");
        }
        let time = begin.elapsed().saturating_sub(self.outside);
        let functions = std::mem::take(&mut self.times);
        self.rest().await;
        (time, functions)
    }

    /// Processes everything except periodic work.
    async fn rest(&mut self) {
        let mut idle = 0;
        // Two empty rounds: a message that was sent last appears in the second one.
        while idle < 2 {
            let mut moved = false;
            while self.forge.next_webhook().is_some() {}
            for queue in [
                MessageQueue::Events,
                MessageQueue::Gate,
                MessageQueue::Merges,
                MessageQueue::Tenants,
                MessageQueue::Pool,
                MessageQueue::Wakes,
            ] {
                moved |= self.deliver(queue).await;
            }
            moved |= self.take_builds().await;
            idle = if moved { 0 } else { idle + 1 };
        }
    }

    async fn deliver(&mut self, queue: MessageQueue) -> bool {
        let messages = self.receive(queue).await;
        if messages.is_empty() {
            return false;
        }
        let begin = Instant::now();
        let failed = batch::handle(&*self.functions[&queue], queue, messages.clone()).await;
        self.add(name(queue), begin);
        let handled = messages.into_iter().filter(|message| !failed.contains(&message.id));
        self.acknowledge(queue, handled.map(|message| message.receipt).collect()).await;
        true
    }

    async fn take_builds(&mut self) -> bool {
        let messages = self.receive(MessageQueue::BuildsNormal).await;
        self.builds += messages.len() as u64;
        let is_any = !messages.is_empty();
        self.acknowledge(
            MessageQueue::BuildsNormal,
            messages.into_iter().map(|message| message.receipt).collect(),
        )
        .await;
        is_any
    }

    async fn receive(&mut self, queue: MessageQueue) -> Vec<Incoming> {
        let begin = Instant::now();
        let messages = self.ports.queues.receive(queue, 10, 0, 30).await.unwrap();
        if messages.is_empty() {
            self.outside += begin.elapsed();
        } else {
            self.add("receives", begin);
        }
        messages
    }

    /// Adds the time since `since` to a name.
    fn add(&mut self, name: &'static str, begin: Instant) {
        let entry = self.times.entry(name).or_default();
        *entry = (entry.0 + begin.elapsed(), entry.1 + 1);
    }

    async fn acknowledge(&mut self, queue: MessageQueue, receipts: Vec<String>) {
        let begin = Instant::now();
        self.ports.queues.acknowledge_all(queue, &receipts).await.unwrap();
        self.outside += begin.elapsed();
    }
}

/// Returns the name of the function that processes the messages of a queue.
fn name(queue: MessageQueue) -> &'static str {
    match queue {
        MessageQueue::Events => "intake",
        MessageQueue::Gate => "gate",
        MessageQueue::Merges => "merger",
        MessageQueue::Tenants => "tenant",
        MessageQueue::Pool => "launcher",
        _ => "timer",
    }
}
