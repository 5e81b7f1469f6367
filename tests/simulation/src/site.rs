//! What a seed's site is made of: the world, the outside that is played, and instances of the real
//! functions, each with a clock of its own.

use crate::broken::Mutation;
use crate::plays::{Play, required};
use crate::random::Random;
use crate::reviews::host_of;
use crate::shape::{Edition, Shape};
use async_trait::async_trait;
use sluice_cloud::Site as CloudSite;
use sluice_forge::Forge;
use sluice_gate::{Arrival, ArrivalKind};
use sluice_gate_function::Gate;
use sluice_intake::Intake;
use sluice_launcher::{Cloud, Launcher};
use sluice_memory::{World, poll_once};
use sluice_merger::Merger;
use sluice_model::change::ChangeKey;
use sluice_model::event::{EventKind, ForgeEvent};
use sluice_model::git::{BranchKey, Oid};
use sluice_model::poke::{Poke, Queue};
use sluice_model::{ArrivalId, ConnectionName, ProjectName, QueueKey, TenantName, Timestamp};
use sluice_notify::Notify;
use sluice_records::codec::{decode, with_body};
use sluice_records::delivery::{self, Delivery, DeliveryState};
use sluice_records::tenant::{self, Tenant};
use sluice_reporter::Reporter;
use sluice_repos::Repos;
use sluice_runtime::batch::{Heard, Look, LookError};
use sluice_runtime::record::{Committed, Due, Expect, Write};
use sluice_runtime::{Clock, Commit, Ports, cell};
use sluice_scenarios::PlayedForge;
use sluice_scenarios::cloud::{PlayedChecks, PlayedCloud};
use sluice_scenarios::post::PlayedPost;
use sluice_scenarios::repos::{PlayedRepos, Store};
use sluice_scenarios::site::configure;
use sluice_tenant::Tenants;
use sluice_timer::Timer;
use sluice_webhook::Webhook;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

/// Where every story begins.
pub const START: Timestamp = Timestamp(1_800_000_000_000);

/// Minutes between two questions to the forge about open changes.
const ASK_MINUTES: u64 = 10;

/// The queues whose messages a function handles.
pub const HANDLED: [Queue; 7] = [
    Queue::Events,
    Queue::Gate,
    Queue::Tenants,
    Queue::Pool,
    Queue::Reports,
    Queue::Merges,
    Queue::Wakes,
];

/// The outside and the inside, without what moves them.
pub struct Site {
    /// Its world.
    pub world: World,
    /// The forge.
    pub forge: Arc<PlayedForge>,
    /// The cloud.
    pub cloud: Arc<PlayedCloud>,
    /// Whoever takes mails, and what is published.
    pub post: Arc<PlayedPost>,
    /// Every repository.
    pub store: Arc<Mutex<Store>>,
    repos: Arc<dyn Repos>,
    mutation: Option<Mutation>,
    skew_millis: u64,
    random: Random,
}

impl Site {
    /// Makes a site that nothing has happened at.
    pub fn new(seed: u64, shape: &Shape, mutation: Option<Mutation>) -> Self {
        let world = World::new(seed, 60, START);
        world.set_index_lag(shape.weather.index_lag_millis);
        let store = Arc::new(Mutex::new(Store::default()));
        store.lock().unwrap().keeps = shape.has(Play::Forward);
        let edition = if mutation == Some(Mutation::LeakyPipeline) {
            Edition::Leaky
        } else {
            Edition::AsDrawn
        };
        let config = ("org/config".to_owned(), shape.config_yaml(edition));
        for (name, yaml) in shape.projects().into_iter().chain([config]) {
            let path = if name == "org/config" { "zuul.yaml" } else { ".zuul.yaml" };
            let yaml = if mutation == Some(Mutation::UntoldProjects) {
                required::untold(&yaml)
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
        forge.set_behind(shape.weather.forge_behind_millis);
        forge.tell_whole_seconds();
        let cloud = Arc::new(PlayedCloud::new(world.clone()));
        let post = Arc::new(PlayedPost::new(world.clone()));
        let repos = Arc::new(PlayedRepos::new(world.clone(), store.clone()));
        let main = match mutation {
            Some(mutation) => mutation.main_yaml(&shape.main_yaml()),
            None => shape.main_yaml(),
        };
        poll_once(configure(&world.ports(), &main)).expect("nothing dies here");
        let pokes: Vec<Poke> = shape
            .tenants
            .iter()
            .map(|tenant| Poke::Tenant { tenant: TenantName(tenant.name.clone()) })
            .collect();
        poll_once(cell::send(&world.ports(), &pokes))
            .expect("nothing dies here")
            .expect("the queue takes it");
        let (skew_millis, random) = (shape.weather.skew_millis, Random::new(seed, 3));
        Self { world, forge, cloud, post, store, repos, mutation, skew_millis, random }
    }

    /// Returns ports whose calls are counted as `caller`'s, with a clock of their own, and how far
    /// that is from the right time.
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

    /// Makes an instance of the function that handles a queue's messages.
    pub fn function(&mut self, queue: Queue) -> Arc<dyn Look> {
        let name = name_of(queue);
        let (ports, _) = self.ports(name);
        let forges = || {
            BTreeMap::from(
                ["github", "gerrit"]
                    .map(|name| (name.into(), self.forge.clone() as Arc<dyn Forge>)),
            )
        };
        let function: Arc<dyn Look> = match queue {
            Queue::Events => Arc::new(Intake::new(ports, forges())),
            Queue::Gate => Arc::new(Gate::new(ports, "https://sluice.test/")),
            Queue::Tenants => Arc::new(Tenants::new(ports, self.repos.clone(), forges())),
            Queue::Pool => {
                let cloud = Cloud { driver: self.cloud.clone(), site: CloudSite::default() };
                let checks = Arc::new(PlayedChecks(self.world.clone()));
                Arc::new(Launcher::new(ports, BTreeMap::from([("ec2".into(), cloud)]), checks))
            }
            Queue::Reports => {
                let post = || self.post.clone() as Arc<dyn Notify>;
                let notifiers = BTreeMap::from(["mail", "mqtt"].map(|name| (name.into(), post())));
                Arc::new(Reporter::new(ports, forges()).with_notifiers(notifiers))
            }
            Queue::Merges => Arc::new(Merger::new(ports, self.repos.clone())),
            _ => Arc::new(Timer::new(ports, ASK_MINUTES)),
        };
        match self.mutation {
            Some(Mutation::AcknowledgedErrors) => Arc::new(Content(function)),
            _ => function,
        }
    }

    /// Has an operator say something to a queue.
    pub fn say(&self, queue: &QueueKey, kind: ArrivalKind) {
        let now = self.world.now();
        let id = ArrivalId(format!(
            "said-{}-{}",
            now.0,
            self.world.ports_of("operator").entropy.token()
        ));
        let (event_id, taken_up) = ("operator".to_owned(), false);
        let word = Arrival { id, at: now, event_id, layout: 0, by_operator: true, taken_up, kind };
        let Ok(write) = sluice_records::queue::put_arrival(queue, &word) else { return };
        self.world.write_directly(write);
        let _ = poll_once(cell::send(
            &self.world.ports_of("operator"),
            &[Poke::Queue { queue: queue.clone() }],
        ));
    }

    /// Has an operator discard or hold back what enters a tenant's queues, or hold back what is
    /// answered there, as `sluice manage-events` does. Returns what is held back by now, in words;
    /// `None` where the tenant was not read yet.
    pub fn hold_back<'a>(
        &self,
        tenant: &TenantName,
        (discards, triggers, results): (bool, bool, bool),
        queues: impl Iterator<Item = &'a QueueKey>,
    ) -> Option<String> {
        let ports = self.world.ports_of("operator");
        let seen = self.world.record(&tenant::key(tenant))?;
        let mut head: Tenant = decode(&seen).ok()?;
        head.events =
            head.events.said(discards, triggers, results, "jo", "to look at it", self.world.now());
        let (revision, told) = (seen.revision, head.events.described());
        let mut record = with_body(seen, &head).ok()?;
        record.revision = revision + 1;
        let write = Write::Put { record, expect: Expect::Revision(revision) };
        let token = ports.entropy.token();
        match poll_once(ports.records.commit(vec![write], &token)) {
            Some(Ok(Committed::Yes)) => {}
            _ => return None,
        }
        let pokes: Vec<Poke> = queues.map(|queue| Poke::Queue { queue: queue.clone() }).collect();
        let _ = poll_once(cell::send(&ports, &pokes));
        Some(told)
    }

    /// Has an operator offer a change to a pipeline, as `sluice enqueue` does.
    pub fn offer(&self, change: &ChangeKey, tenant: &str, pipeline: &str) {
        let ports = self.world.ports_of("operator");
        let kind = EventKind::Enqueue {
            tenant: tenant.into(),
            pipeline: pipeline.into(),
            number: change.number().unwrap_or_default(),
            head: None,
        };
        self.ask(&ports, change.connection.clone(), change.project.clone(), kind);
    }

    /// Has an operator offer a branch at GitHub, as it was at a commit, to a pipeline, as
    /// `sluice enqueue-ref` does.
    pub fn offer_ref(&self, branch: &BranchKey, at: &Oid, tenant: &str, pipeline: &str) {
        let kind = EventKind::EnqueueRef {
            tenant: tenant.into(),
            pipeline: pipeline.into(),
            git_ref: format!("refs/heads/{}", branch.branch),
            oldrev: Oid::zero(),
            newrev: at.clone(),
        };
        self.ask(&self.world.ports_of("operator"), "github".into(), branch.project.clone(), kind);
    }

    /// Returns whether any configuration of a tenant is live.
    pub fn is_read(&self, tenant: &str) -> bool {
        let head = self.world.record(&tenant::key(&TenantName(tenant.to_owned())));
        head.and_then(|record| decode::<Tenant>(&record).ok())
            .is_some_and(|head| head.layout.live > 0)
    }

    /// Hands intake what an operator asks for.
    fn ask(
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
        let asked = Delivery {
            connection,
            forge_id: format!("operator:{}", ports.entropy.token()),
            event_name: "enqueue".to_owned(),
            received_at: self.world.now(),
            event: Some(event),
            state: DeliveryState::Accepted,
        };
        store(ports, &asked, project);
    }

    /// Stores what the Gerrit tells, as whoever holds its stream of events does. What comes twice
    /// is there already.
    pub fn hear(&self, id: &str, event: &ForgeEvent) {
        let told = Delivery {
            connection: event.connection.clone(),
            forge_id: id.to_owned(),
            event_name: "stream".to_owned(),
            received_at: self.world.now(),
            event: Some(event.clone()),
            state: DeliveryState::Accepted,
        };
        store(&self.world.ports_of("operator"), &told, event.project.clone());
    }

    /// Makes a timer.
    pub fn timer(&mut self) -> Arc<Timer> {
        Arc::new(Timer::new(self.ports("timer").0, ASK_MINUTES))
    }

    /// Makes a webhook.
    pub fn webhook(&mut self) -> Arc<Webhook> {
        Arc::new(Webhook::new(self.ports("webhook").0))
    }
}

/// Stores a delivery of nobody's webhook, and has it handled.
fn store(ports: &Ports, asked: &Delivery, project: ProjectName) {
    let id = delivery::id(&asked.connection, &asked.forge_id);
    let poke = Poke::Delivery { delivery: id.clone(), project };
    let due = Some(Due { at: asked.received_at.plus_seconds(60), poke: poke.clone() });
    let Ok(head) = delivery::record(&id, asked) else { return };
    let plan = Commit { head, others: Vec::new(), pokes: vec![poke], due };
    let _ = poll_once(cell::commit_and_send(ports, plan));
}

/// Returns the main branch of a project of the played forge.
pub fn main_of(project: &str) -> BranchKey {
    branch_of(project, "main")
}

/// Returns a branch of a project of the played forge.
pub fn branch_of(project: &str, branch: &str) -> BranchKey {
    BranchKey { project: ProjectName::new(host_of(project), project), branch: branch.into() }
}

/// Returns what the function is called that handles a queue's messages.
pub fn name_of(queue: Queue) -> &'static str {
    match queue {
        Queue::Events => "intake",
        Queue::Gate => "gate",
        Queue::Tenants => "tenant",
        Queue::Pool => "launcher",
        Queue::Reports => "reporter",
        Queue::Merges => "merger",
        _ => "timer",
    }
}

/// A clock that is so far from the right time.
struct SkewedClock {
    world: World,
    skew_millis: i64,
}

impl Clock for SkewedClock {
    fn now(&self) -> Timestamp {
        Timestamp(self.world.now().0.saturating_add_signed(self.skew_millis))
    }
}

/// A function that takes every error for the end of the matter: what must never be.
struct Content(Arc<dyn Look>);

#[async_trait]
impl Look for Content {
    async fn poked(&self, poke: &Poke, heard: Heard) -> Result<(), LookError> {
        let _ = self.0.poked(poke, heard).await;
        Ok(())
    }

    fn ports(&self) -> &Ports {
        self.0.ports()
    }
}
