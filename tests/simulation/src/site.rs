//! The parts of a seed's site: the in-memory world, the played external services, and instances of
//! the real functions, each with its own clock.

use crate::broken::Mutation;
use crate::random::Random;
use crate::reviews::host_of;
use crate::scenarios::newcomers::is_newcomer;
use crate::scenarios::{Scenario, required};
use crate::shape::{ConfigVariant, Shape};
use async_trait::async_trait;
use bytes::Bytes;
use sluice_cloud::LaunchSettings as CloudSite;
use sluice_forge::Forge;
use sluice_gate::{InboxMessage, InboxMessageKind};
use sluice_gate_function::Gate;
use sluice_intake::Intake;
use sluice_launcher::{Cloud, Launcher};
use sluice_memory::{World, poll_once};
use sluice_merger::Merger;
use sluice_model::change::ChangeKey;
use sluice_model::event::{EventKind, ForgeEvent};
use sluice_model::git::{BranchKey, Oid};
use sluice_model::wakeup::{MessageQueue, Wakeup};
use sluice_model::{ConnectionName, InboxMessageId, ProjectName, QueueKey, TenantName, Timestamp};
use sluice_notify::Notify;
use sluice_records::codec::{decode, with_body};
use sluice_records::connection;
use sluice_records::delivery::{self, DeliveryRecord, DeliveryState};
use sluice_records::tenant::{self, Tenant};
use sluice_reporter::Reporter;
use sluice_repos::Repos;
use sluice_runtime::batch::{Reception, ReconcileError, Reconciler};
use sluice_runtime::object::PutMode;
use sluice_runtime::record::{Due, Expect, TransactionOutcome, Write};
use sluice_runtime::{CellCommit, Clock, Ports, cell};
use sluice_scenarios::PlayedForge;
use sluice_scenarios::cloud::{PlayedChecks, PlayedCloud};
use sluice_scenarios::notifier::PlayedNotifier;
use sluice_scenarios::repos::{PlayedRepos, Store};
use sluice_scenarios::site::configure;
use sluice_tenant::Tenants;
use sluice_timer::Timer;
use sluice_webhook::WebhookReceiver;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

/// The virtual time at which every run begins.
pub const START: Timestamp = Timestamp(1_800_000_000_000);

/// Minutes between two sweeps, which ask the forges for their open changes.
const SWEEP_MINUTES: u64 = 10;

/// The message queues that functions consume; executors consume the others.
pub const HANDLED: [MessageQueue; 7] = [
    MessageQueue::Events,
    MessageQueue::Gate,
    MessageQueue::Tenants,
    MessageQueue::Pool,
    MessageQueue::Reports,
    MessageQueue::Merges,
    MessageQueue::Wakes,
];

/// Whether an operator has events of a tenant discarded or paused.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct EventSwitches {
    /// New trigger events are discarded.
    pub discard_triggers: bool,
    /// Trigger events wait.
    pub pause_triggers: bool,
    /// Result events wait.
    pub pause_results: bool,
}

/// A site without its scheduler: the world, the external services and what makes functions.
pub struct Site {
    /// Records, queues, objects and the clock.
    pub world: World,
    /// The played forge: GitHub and Gerrit.
    pub forge: Arc<PlayedForge>,
    /// The played cloud.
    pub cloud: Arc<PlayedCloud>,
    /// The played recipient of mails and of published messages.
    pub post: Arc<PlayedNotifier>,
    /// All Git repositories.
    pub store: Arc<Mutex<Store>>,
    /// The repositories as functions see them.
    repos: Arc<dyn Repos>,
    /// The injected defect, if any.
    mutation: Option<Mutation>,
    /// How far a clock may be from the right time, in milliseconds.
    skew_millis: u64,
    /// Draws the clocks.
    random: Random,
}

impl Site {
    /// Returns a new site: repositories with their first commits, and a wakeup for each tenant.
    pub fn new(seed: u64, shape: &Shape, mutation: Option<Mutation>) -> Self {
        let world = World::new(seed, 60, START);
        world.set_index_lag(shape.fault_profile.index_lag_millis);
        let store = Arc::new(Mutex::new(Store::default()));
        store.lock().unwrap().keeps_tested_commits = shape.has(Scenario::FastForward);
        let variant = if mutation == Some(Mutation::LeakyPipeline) {
            ConfigVariant::Leaky
        } else {
            ConfigVariant::AsDrawn
        };
        let config = ("org/config".to_owned(), shape.config_yaml(variant));
        let newcomers = shape.newcomers().into_iter().map(|name| (name, "nothing yet".to_owned()));
        for (name, yaml) in shape.projects().into_iter().chain(newcomers).chain([config]) {
            let path = match name.as_str() {
                "org/config" => "zuul.yaml",
                newcomer if is_newcomer(newcomer) => "README",
                _ => ".zuul.yaml",
            };
            let yaml = if mutation == Some(Mutation::DroppedRequiredProjects) {
                required::without_required_projects(&yaml)
            } else {
                yaml
            };
            let mut store = store.lock().unwrap();
            let commit = store.commit([(path.to_owned(), yaml)].into(), Vec::new(), "first");
            for branch in
                shape.branches.iter().filter(|branch| **branch == "main" || name != "org/config")
            {
                store.set(&branch_of(&name, branch), &commit.id);
            }
        }
        let forge = Arc::new(PlayedForge::new(world.clone(), store.clone()));
        forge.set_behind(shape.fault_profile.forge_behind_millis);
        forge.report_whole_seconds();
        let cloud = Arc::new(PlayedCloud::new(world.clone()));
        let post = Arc::new(PlayedNotifier::new(world.clone()));
        let repos = Arc::new(PlayedRepos::new(world.clone(), store.clone()));
        let main = match mutation {
            Some(mutation) => mutation.main_yaml(&shape.main_yaml()),
            None => shape.main_yaml(),
        };
        poll_once(configure(&world.ports(), &main)).expect("nothing dies here");
        let wakeups: Vec<Wakeup> = shape
            .tenants
            .iter()
            .map(|tenant| Wakeup::Tenant { tenant: TenantName(tenant.name.clone()) })
            .collect();
        poll_once(cell::send(&world.ports(), &wakeups))
            .expect("nothing dies here")
            .expect("the queue accepts messages");
        let (skew_millis, random) = (shape.fault_profile.skew_millis, Random::new(seed, 3));
        Self { world, forge, cloud, post, store, repos, mutation, skew_millis, random }
    }

    /// Returns ports whose calls are attributed to `caller`, with their own clock, and how many
    /// milliseconds that clock is off.
    pub fn ports(&mut self, caller: &'static str) -> (Ports, i64) {
        let most = i64::try_from(self.skew_millis).unwrap_or(0);
        let drawn = self.random.between(0, 2 * self.skew_millis);
        let skew = i64::try_from(drawn).unwrap_or(0) - most;
        let clock = Arc::new(SkewedClock { world: self.world.clone(), skew_millis: skew });
        let ports = Ports { clock, ..self.world.ports_of(caller) };
        (
            self.mutation.map_or_else(|| ports.clone(), |mutation| mutation.ports(ports.clone())),
            skew,
        )
    }

    /// Returns a new instance of the function that consumes a message queue.
    pub fn function(&mut self, queue: MessageQueue) -> Arc<dyn Reconciler> {
        let name = name_of(queue);
        let (ports, _) = self.ports(name);
        let forges = || {
            BTreeMap::from(
                ["github", "gerrit"]
                    .map(|name| (name.into(), self.forge.clone() as Arc<dyn Forge>)),
            )
        };
        let function: Arc<dyn Reconciler> = match queue {
            MessageQueue::Events => Arc::new(Intake::new(ports, forges(), self.repos.clone())),
            MessageQueue::Gate => Arc::new(Gate::new(ports, "https://sluice.test/")),
            MessageQueue::Tenants => Arc::new(Tenants::new(ports, self.repos.clone(), forges())),
            MessageQueue::Pool => {
                let cloud = Cloud { driver: self.cloud.clone(), site: CloudSite::default() };
                let checks = Arc::new(PlayedChecks(self.world.clone()));
                Arc::new(Launcher::new(ports, BTreeMap::from([("ec2".into(), cloud)]), checks))
            }
            MessageQueue::Reports => {
                let post = || self.post.clone() as Arc<dyn Notify>;
                let notifiers = BTreeMap::from(["mail", "mqtt"].map(|name| (name.into(), post())));
                Arc::new(Reporter::new(ports, forges()).with_notifiers(notifiers))
            }
            MessageQueue::Merges => Arc::new(Merger::new(ports, self.repos.clone())),
            _ => Arc::new(Timer::new(ports, SWEEP_MINUTES)),
        };
        match self.mutation {
            Some(Mutation::AcknowledgedErrors) => Arc::new(IgnoresErrors(function)),
            _ => function,
        }
    }

    /// Puts an operator's command into a queue's inbox and wakes the queue.
    pub fn send_command(&self, queue: &QueueKey, kind: InboxMessageKind) {
        let now = self.world.now();
        let id = InboxMessageId(format!(
            "said-{}-{}",
            now.0,
            self.world.ports_of("operator").entropy.token()
        ));
        let event_id = "operator".to_owned();
        let message = InboxMessage {
            id,
            at: now,
            event_id,
            layout: 0,
            by_operator: true,
            in_progress: false,
            kind,
        };
        let Ok(write) = sluice_records::queue::put_message(queue, &message) else { return };
        self.world.write_unchecked(write);
        let _ = poll_once(cell::send(
            &self.world.ports_of("operator"),
            &[Wakeup::Queue { queue: queue.clone() }],
        ));
    }

    /// Stores another main configuration and wakes a tenant, as an operator's `sluice tenant load`
    /// does.
    pub fn load_main(&self, main_yaml: &str, tenant: &str) {
        if self.mutation == Some(Mutation::KeptProjects) {
            return;
        }
        let ports = self.world.ports_of("operator");
        let text = match self.mutation {
            Some(mutation) => mutation.main_yaml(main_yaml),
            None => main_yaml.to_owned(),
        };
        let (text, kind) = (Bytes::from(text), "application/yaml");
        let _ = poll_once(ports.objects.put(connection::MAIN, text, PutMode::Always, kind));
        let wakeup = Wakeup::Tenant { tenant: TenantName(tenant.to_owned()) };
        let _ = poll_once(cell::send(&ports, &[wakeup]));
    }

    /// Sets whether a tenant's trigger and result events are discarded or paused, as an operator's
    /// `sluice tenant set-state` does, and wakes the queues. Returns a description of the new
    /// state. Returns `None` if the tenant has no record yet or a concurrent writer changed it.
    pub fn set_event_switches<'a>(
        &self,
        tenant: &TenantName,
        switches: EventSwitches,
        queues: impl Iterator<Item = &'a QueueKey>,
    ) -> Option<String> {
        let ports = self.world.ports_of("operator");
        let stored = self.world.record(&tenant::key(tenant))?;
        let mut head: Tenant = decode(&stored).ok()?;
        let command = sluice_model::hold::EventCommand {
            discard_triggers: switches.discard_triggers,
            pause_triggers: switches.pause_triggers,
            pause_results: switches.pause_results,
            by: "jo",
            reason: "to look at it",
            info: "",
        };
        head.events = head.events.apply(command, self.world.now());
        let (revision, description) = (stored.revision, head.events.describe());
        let mut record = with_body(stored, &head).ok()?;
        record.revision = revision + 1;
        let write = Write::Put { record, expect: Expect::Revision(revision) };
        let token = ports.entropy.token();
        match poll_once(ports.records.commit(vec![write], &token)) {
            Some(Ok(TransactionOutcome::Written)) => {}
            _ => return None,
        }
        let wakeups: Vec<Wakeup> =
            queues.map(|queue| Wakeup::Queue { queue: queue.clone() }).collect();
        let _ = poll_once(cell::send(&ports, &wakeups));
        Some(description)
    }

    /// Requests that a change is enqueued in a pipeline, as an operator's `sluice change enqueue`
    /// does.
    pub fn enqueue(&self, change: &ChangeKey, tenant: &str, pipeline: &str) {
        let ports = self.world.ports_of("operator");
        let kind = EventKind::Enqueue {
            tenant: tenant.into(),
            pipeline: pipeline.into(),
            number: change.number().unwrap_or_default(),
            head: None,
        };
        self.store_command_delivery(
            &ports,
            change.connection.clone(),
            change.project.clone(),
            kind,
        );
    }

    /// Requests that a GitHub branch is enqueued at a commit, as an operator's `sluice ref enqueue`
    /// does.
    pub fn enqueue_ref(&self, branch: &BranchKey, at: &Oid, tenant: &str, pipeline: &str) {
        let kind = EventKind::EnqueueRef {
            tenant: tenant.into(),
            pipeline: pipeline.into(),
            git_ref: format!("refs/heads/{}", branch.branch),
            oldrev: Oid::zero(),
            newrev: at.clone(),
        };
        self.store_command_delivery(
            &self.world.ports_of("operator"),
            "github".into(),
            branch.project.clone(),
            kind,
        );
    }

    /// Returns whether a tenant has a live layout.
    pub fn has_live_layout(&self, tenant: &str) -> bool {
        let head = self.world.record(&tenant::key(&TenantName(tenant.to_owned())));
        head.and_then(|record| decode::<Tenant>(&record).ok())
            .is_some_and(|head| head.layout.live > 0)
    }

    /// Stores a delivery with an operator's request for intake.
    fn store_command_delivery(
        &self,
        ports: &Ports,
        connection: ConnectionName,
        project: ProjectName,
        kind: EventKind,
    ) {
        let event = ForgeEvent {
            connection: connection.clone(),
            project: project.clone(),
            sender: "jo".into(),
            kind,
        };
        let delivery = DeliveryRecord {
            connection,
            forge_id: format!("operator:{}", ports.entropy.token()),
            event_name: "enqueue".to_owned(),
            received_at: self.world.now(),
            event: Some(event),
            state: DeliveryState::Accepted,
        };
        store(ports, &delivery, project);
    }

    /// Stores an event of the Gerrit's stream as a delivery, as the stream reader does. A duplicate
    /// has the same id and is not stored again.
    pub fn store_stream_event(&self, id: &str, event: &ForgeEvent) {
        let delivery = DeliveryRecord {
            connection: event.connection.clone(),
            forge_id: id.to_owned(),
            event_name: "stream".to_owned(),
            received_at: self.world.now(),
            event: Some(event.clone()),
            state: DeliveryState::Accepted,
        };
        store(&self.world.ports_of("operator"), &delivery, event.project.clone());
    }

    /// Returns a new instance of the timer function.
    pub fn timer(&mut self) -> Arc<Timer> {
        Arc::new(Timer::new(self.ports("timer").0, SWEEP_MINUTES))
    }

    /// Returns a new instance of the webhook function.
    pub fn webhook(&mut self) -> Arc<WebhookReceiver> {
        Arc::new(WebhookReceiver::new(self.ports("webhook").0))
    }
}

/// Stores a delivery that no webhook brought, and sends its wakeup.
fn store(ports: &Ports, delivery: &DeliveryRecord, project: ProjectName) {
    let id = delivery::id(&delivery.connection, &delivery.forge_id);
    let wakeup = Wakeup::Delivery { delivery: id.clone(), project };
    let due = Some(Due { at: delivery.received_at.plus_seconds(60), wakeup: wakeup.clone() });
    let Ok(head) = delivery::record(&id, delivery) else { return };
    let plan = CellCommit { head, others: Vec::new(), wakeups: vec![wakeup], due };
    let _ = poll_once(cell::commit_and_send(ports, plan));
}

/// Returns the key of a project's branch `main`.
pub fn main_of(project: &str) -> BranchKey {
    branch_of(project, "main")
}

/// Returns the key of a project's branch.
pub fn branch_of(project: &str, branch: &str) -> BranchKey {
    BranchKey { project: ProjectName::new(host_of(project), project), branch: branch.into() }
}

/// Returns the name of the function that consumes a message queue.
pub fn name_of(queue: MessageQueue) -> &'static str {
    match queue {
        MessageQueue::Events => "intake",
        MessageQueue::Gate => "gate",
        MessageQueue::Tenants => "tenant",
        MessageQueue::Pool => "launcher",
        MessageQueue::Reports => "reporter",
        MessageQueue::Merges => "merger",
        _ => "timer",
    }
}

/// A clock with a constant error.
struct SkewedClock {
    /// Has the right time.
    world: World,
    /// How far the clock is ahead of the right time, in milliseconds.
    skew_millis: i64,
}

impl Clock for SkewedClock {
    fn now(&self) -> Timestamp {
        Timestamp(self.world.now().0.saturating_add_signed(self.skew_millis))
    }
}

/// An injected defect: a function that reports success for every error.
struct IgnoresErrors(Arc<dyn Reconciler>);

#[async_trait]
impl Reconciler for IgnoresErrors {
    async fn reconcile(&self, wakeup: &Wakeup, reception: Reception) -> Result<(), ReconcileError> {
        let _ = self.0.reconcile(wakeup, reception).await;
        Ok(())
    }

    fn ports(&self) -> &Ports {
        self.0.ports()
    }
}
