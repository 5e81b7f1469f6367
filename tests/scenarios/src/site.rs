//! The site: functions, queues and time, advanced one message at a time in an order drawn from the
//! seed.

mod delayed_delivery;
mod executor;
mod stream;

use crate::cloud::{PlayedChecks, PlayedCloud};
use crate::forge::gerrit::REVIEW;
use crate::forge::{OWN, PlayedForge, Webhook};
use crate::notifier::PlayedNotifier;
use crate::repos::{PlayedRepos, Store, Tree};
use crate::site::delayed_delivery::DelayedWebhooks;
use bytes::Bytes;
use http::{HeaderMap, Response};
use sluice_cloud::LaunchSettings as CloudSite;
use sluice_config::connection::Driver;
use sluice_executor::claim::{Claimed, Claims};
use sluice_forge::webhook::sign;
use sluice_forge::{Forge, ForgeSecret};
use sluice_gate_function::Gate;
use sluice_intake::Intake;
use sluice_launcher::{Cloud, Launcher};
use sluice_memory::{Fate, World, poll_once};
use sluice_merger::Merger;
use sluice_model::build::{BuildResult, Order, Speculation};
use sluice_model::git::{BranchKey, LandingMethod};
use sluice_model::wakeup::{MessageQueue, Wakeup};
use sluice_model::{ConnectionName, ProjectName, SessionId, TenantName, Timestamp};
use sluice_notify::Notify;
use sluice_records::codec::{decode, encode_first};
use sluice_records::connection::{self, AwsAccess, ConnectionsFile, StoredConnection};
use sluice_records::session::{self, Session, SessionState};
use sluice_reporter::Reporter;
use sluice_repos::Repos;
use sluice_runtime::batch::{self, Reconciler};
use sluice_runtime::object::PutMode;
use sluice_runtime::port::Incoming;
use sluice_runtime::record::{Expect, Write};
use sluice_runtime::{Clock, Ports};
use sluice_tenant::Tenants;
use sluice_timer::Timer;
use sluice_webhook::WebhookReceiver as WebhookFunction;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

/// The number of rounds after which a site that is not at rest counts as stuck.
const ROUNDS_MAX: u64 = 10_000;
/// How many seconds a received message stays invisible.
const VISIBILITY_SECONDS: u32 = 30;
/// The number of sweeps after which a condition at a site at rest never holds.
const SWEEPS_MAX: u32 = 3;
/// How often a failing command is repeated.
const REPEATS_MAX: u32 = 3;
/// The time at which every scenario starts.
const START: Timestamp = Timestamp(1_800_000_000_000);

/// Decides the result of a build from its job, its attempt and the files that it is tested with.
pub type Judge = fn(job: &str, attempt: u32, files: &BTreeMap<String, Tree>) -> BuildResult;

/// A complete Sluice in memory.
pub struct Site {
    /// The ports in memory.
    pub world: World,
    /// The forge.
    pub forge: Arc<PlayedForge>,
    /// The cloud.
    pub cloud: Arc<PlayedCloud>,
    /// The mails and MQTT publications that were sent.
    pub notifier: Arc<PlayedNotifier>,
    /// All repositories.
    pub store: Arc<Mutex<Store>>,
    /// Whether each message is delivered twice.
    pub twice: bool,
    /// Whether webhooks arrive late and in another order. With `twice`, redeliveries then happen
    /// only when nothing else can be done.
    pub delays_delivery: bool,
    /// The data that builds of a job return with `zuul_return`. A build that returns `pause` waits
    /// for its dependent jobs.
    pub returns: fn(job: &str) -> serde_json::Map<String, serde_json::Value>,
    /// Jobs whose builds end only when they are released.
    pub held: BTreeSet<String>,
    /// Whether each message goes to one of two instances of its function, drawn from the seed. So
    /// the cache of one instance becomes outdated by the other.
    pub twins: bool,
    functions: [BTreeMap<MessageQueue, Box<dyn Reconciler>>; 2],
    webhook: WebhookFunction,
    timer: Timer,
    judge: Judge,
    claims: Claims,
    session: SessionId,
    building: Vec<Claimed>,
    random: u64,
    next_tick: Timestamp,
    deaths: u64,
    /// The number of stored stream events.
    stream_events_stored: u64,
    /// Webhooks whose delivery is delayed.
    delayed_webhooks: DelayedWebhooks,
    /// Messages that stayed in their queues though they were handled.
    came_again: u64,
}

impl Site {
    /// Creates a site with these repositories (project, files of `main`) and this main
    /// configuration.
    pub fn new(
        seed: u64,
        main_yaml: &str,
        repositories: &[(&str, &[(&str, &str)])],
        judge: Judge,
    ) -> Self {
        Self::with_connections(seed, main_yaml, repositories, judge, &[])
    }

    /// Creates a site with additional connections to the hosts of its forges.
    pub fn with_connections(
        seed: u64,
        main_yaml: &str,
        repositories: &[(&str, &[(&str, &str)])],
        judge: Judge,
        others: &[&str],
    ) -> Self {
        let world = World::new(seed, 100, START);
        let ports = world.ports();
        let store = Arc::new(Mutex::new(Store::default()));
        for (name, files) in repositories {
            let tree =
                files.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())).collect();
            let mut store = store.lock().unwrap();
            let commit = store.commit(tree, Vec::new(), "first");
            let project = match name.split_once('/') {
                Some((host @ REVIEW, name)) => ProjectName::new(host, name),
                _ => ProjectName::new("forge.test", name),
            };
            store.set(&BranchKey { project, branch: "main".into() }, &commit.id);
        }
        let forge = Arc::new(PlayedForge::new(world.clone(), store.clone()));
        let cloud = Arc::new(PlayedCloud::new(world.clone()));
        let repos: Arc<dyn Repos> = Arc::new(PlayedRepos::new(world.clone(), store.clone()));
        now(configure(&ports, main_yaml));
        let notifier = Arc::new(PlayedNotifier::new(world.clone()));
        let forges = || -> BTreeMap<ConnectionName, Arc<dyn Forge>> {
            let mut all = BTreeMap::new();
            for name in ["github", "gerrit"] {
                all.insert(ConnectionName::from(name), forge.clone() as Arc<dyn Forge>);
            }
            for name in others {
                all.insert(
                    ConnectionName::from(*name),
                    Arc::new(forge.second_connection(name)) as Arc<dyn Forge>,
                );
            }
            all
        };
        let notifiers = || {
            BTreeMap::from(
                ["mail", "mqtt"].map(|name| (name.into(), notifier.clone() as Arc<dyn Notify>)),
            )
        };
        let clouds = BTreeMap::from([(
            "ec2".into(),
            Cloud { driver: cloud.clone(), site: CloudSite::default() },
        )]);
        let functions = || -> BTreeMap<MessageQueue, Box<dyn Reconciler>> {
            let launcher =
                Launcher::new(ports.clone(), clouds.clone(), Arc::new(PlayedChecks(world.clone())));
            BTreeMap::from([
                (
                    MessageQueue::Events,
                    Box::new(Intake::new(ports.clone(), forges(), repos.clone()))
                        as Box<dyn Reconciler>,
                ),
                (MessageQueue::Gate, Box::new(Gate::new(ports.clone(), "https://sluice.test/"))),
                (
                    MessageQueue::Tenants,
                    Box::new(Tenants::new(ports.clone(), repos.clone(), forges())),
                ),
                (MessageQueue::Pool, Box::new(launcher)),
                (
                    MessageQueue::Reports,
                    Box::new(Reporter::new(ports.clone(), forges()).with_notifiers(notifiers())),
                ),
                (MessageQueue::Merges, Box::new(Merger::new(ports.clone(), repos.clone()))),
                (MessageQueue::Wakes, Box::new(Timer::new(ports.clone(), 10))),
            ])
        };
        let functions = [functions(), functions()];
        let mut site = Self {
            webhook: WebhookFunction::new(ports.clone()),
            timer: Timer::new(ports.clone(), 10),
            world,
            forge,
            cloud,
            notifier,
            store,
            twice: false,
            delays_delivery: false,
            returns: |_| serde_json::Map::new(),
            held: BTreeSet::new(),
            twins: false,
            functions,
            judge,
            claims: Claims::new(ports.clone(), SessionId::from("executor-1")),
            session: SessionId::from("executor-1"),
            building: Vec::new(),
            random: seed | 1,
            next_tick: START,
            deaths: 0,
            stream_events_stored: 0,
            delayed_webhooks: DelayedWebhooks::default(),
            came_again: 0,
        };
        site.renew_session();
        let wakeup = Wakeup::Tenant { tenant: TenantName::from("demo") };
        now(sluice_runtime::cell::send(&site.ports(), &[wakeup])).unwrap();
        site.run();
        site
    }

    /// Returns the ports of the site.
    pub fn ports(&self) -> Ports {
        self.world.ports()
    }

    /// Returns how many functions have crashed.
    pub fn deaths(&self) -> u64 {
        self.deaths
    }

    /// Has another seed decide the order of events from now on.
    pub fn reseed(&mut self, seed: u64) {
        self.random = seed | 1;
    }

    /// Sets the fate of the step that is this many steps ahead.
    pub fn set_fate(&self, steps_from_now: u64, fate: Fate) {
        self.world.set_fate(self.world.steps() + steps_from_now, fate);
    }

    /// Runs until nothing is left to do and nothing becomes due by itself.
    pub fn run(&mut self) {
        for _ in 0..ROUNDS_MAX {
            if !self.advance() {
                return;
            }
        }
        let waiting: Vec<String> = self
            .world
            .records()
            .iter()
            .filter(|record| record.sweep_at.is_some() || record.key.sort.contains('#'))
            .map(|record| {
                format!(
                    "{} rev {} {} due {:?} {:?}",
                    record.key, record.revision, record.body, record.due, record.outbox
                )
            })
            .collect();
        panic!(
            "at {:?} the site does not come to rest: queued {:?}\n{}",
            self.world.now(),
            self.world.queued(),
            waiting.join("\n")
        );
    }

    /// Runs until the condition holds. Panics if the site comes to rest before.
    pub fn run_until(&mut self, is_reached: impl Fn(&Self) -> bool) {
        for _ in 0..ROUNDS_MAX {
            if is_reached(self) {
                return;
            }
            assert!(self.advance(), "the site came to rest before the condition held");
        }
        panic!("the condition never holds");
    }

    /// Runs until the condition holds. Where the site comes to rest before, sweeps find what a lost
    /// webhook left undone. Panics if the condition does not hold after [`SWEEPS_MAX`] of them.
    pub fn run_and_sweep_until(&mut self, is_reached: impl Fn(&Self) -> bool) {
        let mut sweeps = 0;
        for _ in 0..ROUNDS_MAX {
            if is_reached(self) {
                return;
            }
            if !self.advance() {
                assert!(sweeps < SWEEPS_MAX, "the condition does not hold after {sweeps} sweeps");
                sweeps += 1;
                self.start_sweep();
            }
        }
        panic!("the condition never holds");
    }

    /// Does something as an operator does who repeats a command that failed, at most
    /// [`REPEATS_MAX`] times. `command` returns `None` if its program was stopped.
    pub fn repeat<T, E: std::fmt::Debug>(command: impl Fn() -> Option<Result<T, E>>) -> T {
        let mut repeats = 0;
        loop {
            match command() {
                Some(Ok(done)) => return done,
                failed => {
                    assert!(
                        repeats < REPEATS_MAX,
                        "failed {repeats} times: {:?}",
                        failed.map(|f| f.err())
                    );
                    repeats += 1;
                }
            }
        }
    }

    /// Runs until nothing is left to do, and calls `check` before each step.
    pub fn run_checked(&mut self, check: impl Fn(&Self)) {
        for _ in 0..ROUNDS_MAX {
            check(self);
            if !self.advance() {
                return;
            }
        }
        panic!("the site does not come to rest");
    }

    /// Sends a request to the webhook function and returns the status of its response.
    pub fn hand_in(&self, headers: &HeaderMap, body: &Bytes) -> u16 {
        self.hand_in_at(&"github".into(), headers, body).status().as_u16()
    }

    /// Sends a request to the webhook function at the address of a connection, and returns the
    /// response.
    pub fn hand_in_at(
        &self,
        connection: &ConnectionName,
        headers: &HeaderMap,
        body: &Bytes,
    ) -> Response<Bytes> {
        now(self.webhook.receive(connection, headers, body))
    }

    /// Returns every build that an executor was asked to run as pipeline, job and the numbers of
    /// its changes, sorted.
    pub fn builds(&self) -> Vec<String> {
        let ports = self.ports();
        let orders = self.world.records().into_iter().filter(|record| {
            record.key.partition.starts_with("build#") && record.key.sort == "order"
        });
        let orders = orders.map(|record| decode::<Order>(&record).unwrap());
        let mut builds: Vec<String> = orders
            .filter(|order| order.end.is_none())
            .map(|order| {
                let object = now(ports.objects.get(&order.speculation))
                    .unwrap()
                    .expect("the tested state is stored");
                let state: Speculation = serde_json::from_slice(&object.bytes).unwrap();
                let numbers: Vec<String> =
                    state.changes.iter().map(|change| change.change.key.local_id()).collect();
                format!("{} {} {}", order.queue.pipeline, order.job, numbers.join(" "))
            })
            .collect();
        builds.sort();
        builds
    }

    /// Runs until no message can be handled now. Time does not pass.
    pub fn run_now(&mut self) {
        for _ in 0..ROUNDS_MAX {
            if !self.round() {
                return;
            }
        }
        panic!("the site does not come to rest");
    }

    /// Handles the pending events of the forge and nothing else, so that approvals count in their
    /// order. With delayed delivery the events are delayed instead, and count in any order.
    pub fn take_in(&mut self) {
        if self.delays_delivery {
            self.delay_webhooks();
            self.world.advance_millis(1);
            return;
        }
        for _ in 0..ROUNDS_MAX {
            if let Some(webhook) = self.forge.next_webhook() {
                self.receive(&webhook);
            } else if let Some(event) = self.forge.next_stream_event() {
                self.store_stream_event(event);
            } else if self.has_visible(MessageQueue::Events) {
                self.deliver(MessageQueue::Events);
            } else {
                break;
            }
        }
        self.world.advance_millis(1);
    }

    /// Receives the pending webhooks of the forge without handling them.
    pub fn receive_webhooks(&mut self) {
        while let Some(webhook) = self.forge.next_webhook() {
            self.receive(&webhook);
        }
    }

    /// Handles the visible messages of one queue and nothing else.
    pub fn handle(&mut self, queue: MessageQueue) {
        for _ in 0..ROUNDS_MAX {
            if !self.has_visible(queue) {
                return;
            }
            self.deliver(queue);
        }
    }

    /// Does one thing that can be done now, or else lets time pass, or else delivers webhooks
    /// delayed until rest. Returns false when nothing is left.
    fn advance(&mut self) -> bool {
        self.round() || self.wait() || self.receive_at_rest()
    }

    /// Does one thing that can be done now, drawn from the seed. Returns false if there is none.
    fn round(&mut self) -> bool {
        let mut choices: Vec<Choice> = MessageQueue::ALL
            .into_iter()
            .filter(|queue| self.has_visible(*queue))
            .map(Choice::Queue)
            .collect();
        choices.extend(
            self.building.iter().any(|claimed| self.may_end(claimed)).then_some(Choice::EndBuild),
        );
        if self.delays_delivery {
            self.delay_webhooks();
            choices.extend(self.delayed_webhooks.may_come().then_some(Choice::Webhook));
        } else if let Some(webhook) = self.forge.next_webhook() {
            self.receive(&webhook);
            return true;
        }
        if let Some(event) = self.forge.next_stream_event() {
            self.store_stream_event(event);
            return true;
        }
        if choices.is_empty() {
            return false;
        }
        let chosen = choices[self.draw(choices.len())];
        match chosen {
            Choice::EndBuild => self.end_build(),
            Choice::Webhook => self.receive_any(),
            Choice::Queue(
                queue @ (MessageQueue::BuildsHigh
                | MessageQueue::BuildsNormal
                | MessageQueue::BuildsLow),
            ) => self.claim_build(queue),
            Choice::Queue(queue) => self.deliver(queue),
        }
        true
    }

    /// Lets time pass until something can be done. Returns false if nothing ever will.
    fn wait(&mut self) -> bool {
        if self.is_at_rest() {
            return false;
        }
        let next =
            [self.world.next_message_at(), self.world.next_due_at()].into_iter().flatten().min();
        let Some(next) = next else { return false };
        let now = self.world.now();
        self.world.advance_millis(next.since(now).max(1_000));
        self.renew_session();
        if self.world.now() >= self.next_tick {
            self.next_tick = self.world.now().plus_seconds(60);
            if poll_once(self.timer.tick()).is_none() {
                self.deaths += 1;
            }
        }
        true
    }

    /// Returns whether nothing is in progress. Periodic work does not count: the leak sweep of a
    /// provider, the retries of a tenant for unreadable projects, and timers.
    fn is_at_rest(&self) -> bool {
        let waits =
            |queue: &MessageQueue| !matches!(queue, MessageQueue::Pool | MessageQueue::Wakes);
        let records = self.world.records();
        let is_periodic = |record: &sluice_runtime::Record| {
            let (partition, sort, body) = (&record.key.partition, &record.key.sort, &record.body);
            let retries = body.contains("retry_at")
                && !body.contains("omitted_since")
                && record.outbox.is_empty();
            let is_timer = partition.starts_with("schedule#");
            sort == "head"
                && (partition.starts_with("provider#")
                    || is_timer
                    || (partition.starts_with("tenant#") && retries))
        };
        self.building.is_empty()
            && !self.world.queued().keys().any(waits)
            && self.cloud.running() == 0
            && !records.iter().any(|record| record.sweep_at.is_some() && !is_periodic(record))
            && !records.iter().any(|record| {
                record.key.partition.starts_with("provider#") && record.key.sort != "head"
            })
    }

    /// Lets this many seconds pass without any work, then runs what is due.
    pub fn pass(&mut self, seconds: u64) {
        self.world.advance_millis(seconds * 1_000);
        self.renew_session();
        if poll_once(self.timer.tick()).is_none() {
            self.deaths += 1;
        }
        self.run();
    }

    /// Lets the timer start the sweep for missed events and runs it.
    pub fn sweep(&mut self) {
        self.start_sweep();
        self.run();
    }

    /// Lets the timer start the sweep for missed events. The functions find its messages later.
    fn start_sweep(&mut self) {
        self.world.advance_millis(600_000);
        self.renew_session();
        let slot = self.world.now().seconds() / 60;
        self.world.advance_millis((10 - slot % 10) * 60_000);
        self.renew_session();
        if poll_once(self.timer.tick()).is_none() {
            self.deaths += 1;
        }
    }

    /// Delivers a webhook of the forge to the webhook function.
    pub fn receive(&mut self, webhook: &Webhook) {
        let times = if self.twice { 2 } else { 1 };
        for _ in 0..times {
            self.hand_over(webhook);
        }
    }

    fn hand_over(&mut self, webhook: &Webhook) {
        let mut headers = HeaderMap::new();
        let signature = sign(&ForgeSecret::new(WEBHOOK_SECRET), &webhook.body);
        for (name, value) in [
            ("x-github-delivery", &webhook.id),
            ("x-github-event", &webhook.event),
            ("x-hub-signature-256", &signature),
        ] {
            headers.insert(name, value.parse().unwrap());
        }
        let body = Bytes::from(webhook.body.clone());
        if poll_once(self.webhook.receive(&"github".into(), &headers, &body)).is_none() {
            self.deaths += 1;
        }
    }

    fn deliver(&mut self, queue: MessageQueue) {
        let mut messages = self.take(queue, 10);
        let times = if self.twice && !self.delays_delivery { 2 } else { 1 };
        for time in 0..times {
            // The second delivery has a higher receive count.
            messages.iter_mut().for_each(|message| message.receive_count += time);
            let twin = if self.twins { self.draw(2) } else { 0 };
            let function = self.functions[twin].get(&queue).expect("the queue has a function");
            match poll_once(batch::handle(&**function, queue, messages.clone())) {
                None => {
                    self.deaths += 1;
                    return; // The batch becomes visible again after its visibility time-out.
                }
                Some(failed) => {
                    for message in messages.iter().filter(|message| !failed.contains(&message.id)) {
                        if self.stays_for_redelivery(message) {
                            self.came_again += 1;
                        } else {
                            self.world.drop_message(queue, &message.receipt);
                        }
                    }
                }
            }
        }
    }

    /// Renews the session of the running executor, as its own renewals would.
    fn renew_session(&mut self) {
        let now = self.world.now();
        let session = Session {
            id: self.session.clone(),
            hostname: "played".to_owned(),
            live_logs: None,
            started_at: now,
            alive_until: now.plus_seconds(30),
            builds: self.building.iter().map(|claimed| claimed.order.build.clone()).collect(),
            zone: None,
            state: SessionState::Running,
        };
        let record = encode_first(session::key(&self.session), &session).unwrap();
        self.world.write_unchecked(Write::Put { record, expect: Expect::Anything });
    }

    fn has_visible(&self, queue: MessageQueue) -> bool {
        self.world.has_visible(queue)
    }

    fn take(&mut self, queue: MessageQueue, most: u32) -> Vec<Incoming> {
        self.world.take_messages(queue, most, VISIBILITY_SECONDS)
    }

    /// Draws a number below `count` with xorshift, so that a seed is reproducible.
    fn draw(&mut self, count: usize) -> usize {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        usize::try_from(self.random % count as u64).unwrap_or(0)
    }
}

/// The secret that signs the webhooks of the played forge.
pub const WEBHOOK_SECRET: &str = "a shared secret";

#[derive(Clone, Copy)]
enum Choice {
    Queue(MessageQueue),
    EndBuild,
    Webhook,
}

/// Stores the connections of the played forge and cloud, and the main configuration.
pub async fn configure(ports: &Ports, main_yaml: &str) {
    let github = StoredConnection {
        driver: Driver::GitHub,
        canonical_hostname: "forge.test".to_owned(),
        api_url: None,
        git_url: "https://forge.test".to_owned(),
        login: Some(OWN.to_owned()),
        token: None,
        webhook_secrets: vec![
            connection::seal(
                ports,
                &connection::seal_context(&"github".into(), "webhook-secret"),
                WEBHOOK_SECRET,
            )
            .await
            .unwrap(),
        ],
        landing: LandingMethod::default(),
        poll_minutes: None,
        aws: AwsAccess::default(),
    };
    let ec2 = StoredConnection {
        driver: Driver::Aws,
        webhook_secrets: Vec::new(),
        login: None,
        ..github.clone()
    };
    let ec2 = StoredConnection { canonical_hostname: "ec2".to_owned(), ..ec2 };
    let notifier =
        |driver| StoredConnection { driver, canonical_hostname: String::new(), ..ec2.clone() };
    let (mail, mqtt) = (notifier(Driver::Smtp), notifier(Driver::Mqtt));
    let (driver, canonical_hostname, login) =
        (Driver::Gerrit, REVIEW.to_owned(), Some(OWN.to_owned()));
    let gerrit = StoredConnection { driver, canonical_hostname, login, ..ec2.clone() };
    let all =
        [("github", github), ("gerrit", gerrit), ("mail", mail), ("mqtt", mqtt), ("ec2", ec2)];
    let file = ConnectionsFile(all.map(|(name, connection)| (name.into(), connection)).into());
    let text = serde_json::to_string(&file).unwrap();
    ports
        .objects
        .put(connection::OBJECT, Bytes::from(text), PutMode::Always, "application/json")
        .await
        .unwrap();
    let main = Bytes::from(main_yaml.to_owned());
    ports.objects.put(connection::MAIN, main, PutMode::Always, "application/yaml").await.unwrap();
}

/// Completes a future that waits for ports only, with no injected failures.
fn now<T>(future: impl Future<Output = T>) -> T {
    poll_once(future).expect("nothing dies here")
}
