//! Small stories in every order: all interleavings of a few tasks, call by call, up to a number of switches away from one that
//! could go on.
//!
//! A schedule says whose turn it is at each call of a port. Each is played from the beginning, for nothing can be copied, and
//! goes on to its end afterwards like any other story, with all that is checked there.

use super::*;
use crate::broken::{Cell, Mutation};
use crate::people::uploaded;
use crate::shape::{Shape, TenantShape, Weather, project_yaml};
use crate::windows::Window;
use sluice_model::QueueKey;
use sluice_model::change::ChangeKey;
use sluice_records::tenant::{self, Early, Tenant};
use sluice_runtime::cell;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU32, Ordering};

/// Calls after which a schedule is taken for one without an end.
const CALLS_MAX: usize = 2_000;
/// Seconds for which messages are hidden that somebody holds for long.
const LONG_SECONDS: u32 = 600;
/// The tenant of all scenes.
const TENANT: &str = "tenant0";
/// Its projects.
const PROJECTS: [&str; 2] = ["org/t0p0", "org/t0p1"];

/// A small story.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Scene {
    /// Two executors are given the same builds while a gate takes their change out.
    Assignment,
    /// An executor whose lease is over ends its builds, while two gates look at them and another executor is given them again.
    Lease,
    /// A reporter that read of no end yet tells that an item begins, while another one tells of its beginning and its end.
    Report,
    /// Two tenant functions make a layout live, while a gate lands what makes it old again.
    Layout,
    /// A tenant function makes a layout live and wakes what was kept for it, while intake looks at that by itself and a gate at its queue.
    Wake,
}

/// What was explored.
#[derive(Debug, Clone, Copy, Default)]
struct Explored {
    /// Schedules, each another one.
    schedules: u64,
    /// Calls that were put in order, in all of them.
    calls: u64,
}

/// Whose turn it was, and who could have had it.
struct Turn {
    chosen: u64,
    able: Vec<u64>,
}

/// Plays a scene by every schedule that switches at most so often from a task that could go on.
///
/// # Errors
/// What must not be, with the story that led to it.
fn explore(scene: Scene, switches_max: usize, mutation: Option<Mutation>) -> Result<Explored, Failure> {
    let mut open: Vec<Vec<u64>> = vec![Vec::new()];
    let mut explored = Explored::default();
    while let Some(order) = open.pop() {
        let turns = scene.play(&order, mutation)?;
        explored.schedules += 1;
        explored.calls += turns.len() as u64;
        for at in order.len()..turns.len() {
            for other in turns[at].able.iter().filter(|other| **other != turns[at].chosen) {
                let before = turns[..at].iter().map(|turn| turn.chosen);
                let next: Vec<u64> = before.chain([*other]).collect();
                if switches(&next, &turns) <= switches_max {
                    open.push(next);
                }
            }
        }
    }
    Ok(explored)
}

/// Has as many calls go on as are left.
fn turns_of(left: Arc<AtomicU32>) -> impl FnMut(sluice_memory::Step) -> Fate + Send + 'static {
    move |step| {
        let has_turn = || left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1)).is_ok();
        if step.caller == "operator" || has_turn() { Fate::Works } else { Fate::Waits }
    }
}

/// Counts the turns at which the one before could have gone on and did not.
fn switches(order: &[u64], turns: &[Turn]) -> usize {
    (1..order.len()).filter(|at| order[*at] != order[at - 1] && turns[*at].able.contains(&order[at - 1])).count()
}

impl Scene {
    fn play(self, order: &[u64], mutation: Option<Mutation>) -> Result<Vec<Turn>, Failure> {
        let mut sim = Sim::new(7, Settings { mutation, shape: Some(shape()) });
        sim.run_until(|sim| sim.people.next_at.is_none())?;
        self.begin(&mut sim)?;
        let left = Arc::new(AtomicU32::new(0));
        let gives = left.clone();
        sim.site.world.decide_fates(turns_of(gives));
        let mut turns: Vec<Turn> = Vec::new();
        while !sim.tasks.is_empty() {
            let mut able: Vec<u64> = sim.tasks.iter().map(|task| task.id).collect();
            able.sort_unstable();
            let last = turns.last().map(|turn| turn.chosen).filter(|last| able.contains(last));
            let chosen = order.get(turns.len()).copied().or(last).unwrap_or(able[0]);
            let Some(at) = sim.tasks.iter().position(|task| task.id == chosen) else {
                return Err(sim.failure("a schedule means something else when it is played again"));
            };
            left.store(1, Ordering::Relaxed);
            sim.poll(at)?;
            sim.look()?;
            turns.push(Turn { chosen, able });
            if turns.len() > CALLS_MAX {
                return Err(sim.failure("a schedule does not end"));
            }
        }
        sim.site.world.decide_fates(|_| Fate::Works);
        for executor in &mut sim.executors {
            executor.silent_until = None;
        }
        sim.end_calmly(&mut BTreeMap::new())?;
        Ok(turns)
    }

    /// Brings the story to where its tasks meet, and begins them.
    fn begin(self, sim: &mut Sim) -> Result<(), Failure> {
        match self {
            Self::Assignment => {
                let change = sim.propose(PROJECTS[0], 1, &[("f0".to_owned(), "1".to_owned())]);
                sim.until_builds_wait()?;
                sim.site.forge.close(&change);
                sim.oracle.withdrawn(&change, sim.now());
                sim.run_until(|sim| sim.site.world.has_visible(Queue::Gate) && sim.tasks.is_empty())?;
                sim.handle(Queue::Gate);
                let messages = sim.site.world.take_messages(Queue::BuildsNormal, 10, 60);
                for executor in 0..2 {
                    sim.executors[executor].silent_until = None;
                    sim.claim_by(executor, Queue::BuildsNormal, messages.clone());
                }
            }
            Self::Lease => {
                let change = sim.propose(PROJECTS[0], 1, &[("f0".to_owned(), "1".to_owned())]);
                sim.until_builds_wait()?;
                let messages = sim.site.world.take_messages(Queue::BuildsNormal, 10, 60);
                sim.claim_by(0, Queue::BuildsNormal, messages.clone());
                while !sim.tasks.is_empty() {
                    sim.poll(0)?;
                }
                let builds = sim.executors[0].builds.iter().map(|running| running.claimed.run.build.clone());
                sim.oracle.unlucky.extend(builds);
                sim.site.world.advance_millis(3_600_000);
                let queue = check_of(&change);
                let _ = sluice_memory::poll_once(cell::send(
                    &sim.site.world.ports_of("operator"),
                    &[Poke::Answer { queue: queue.clone() }],
                ));
                sim.give_twice(Queue::Gate);
                sim.end_build(0, 0);
                sim.claim_by(1, Queue::BuildsNormal, messages);
            }
            Self::Report => {
                sim.propose(PROJECTS[0], 1, &[("f0".to_owned(), "1".to_owned())]);
                sim.run_until(|sim| sim.site.world.has_visible(Queue::Reports) && sim.tasks.is_empty())?;
                let first = sim.site.world.take_messages(Queue::Reports, 10, LONG_SECONDS);
                sim.give(Queue::Reports, 0, first);
                sim.site.world.decide_fates(turns_of(Arc::new(AtomicU32::new(1))));
                sim.poll(0)?;
                let Some(reading) = sim.tasks.pop() else { return Err(sim.failure("the report has no second call")) };
                sim.site.world.decide_fates(|_| Fate::Works);
                sim.run_until(|sim| {
                    let mut heads = sim.watch.heads.values();
                    !sim.watch.heads.is_empty() && heads.all(|head| head.slots.is_empty()) && sim.tasks.is_empty()
                })?;
                sim.site.world.advance_millis(u64::from(LONG_SECONDS) * 1_000);
                let second = sim.site.world.take_messages(Queue::Reports, 10, LONG_SECONDS);
                sim.tasks.push(reading);
                sim.give(Queue::Reports, 1, second);
            }
            Self::Layout => {
                for (at, project) in PROJECTS.into_iter().enumerate() {
                    let yaml = project_yaml(project, false, 1, "");
                    let change = sim.propose(project, at as u64 + 1, &[(".zuul.yaml".to_owned(), yaml)]);
                    sim.approve(&change);
                }
                sim.run_until(|sim| {
                    sim.site.forge.merge_count() > 0
                        && sim.tasks.is_empty()
                        && sim.site.world.has_visible(Queue::Tenants)
                        && sim.is_settling()
                })?;
                sim.give_twice(Queue::Tenants);
                let queues: Vec<QueueKey> = sim
                    .watch
                    .heads
                    .values()
                    .filter(|head| !head.slots.is_empty())
                    .map(|head| head.key.clone())
                    .collect();
                let pokes: Vec<Poke> = queues.into_iter().map(|queue| Poke::Queue { queue }).collect();
                let _ = sluice_memory::poll_once(cell::send(&sim.site.world.ports_of("operator"), &pokes));
                sim.handle(Queue::Gate);
            }
            Self::Wake => {
                let yaml = project_yaml(PROJECTS[0], false, 1, "");
                let configures = sim.propose(PROJECTS[0], 1, &[(".zuul.yaml".to_owned(), yaml)]);
                let waits = sim.propose(PROJECTS[1], 2, &[("f0".to_owned(), "1".to_owned())]);
                sim.approve(&configures);
                sim.run_until(|sim| {
                    sim.site.forge.merge_count() > 0
                        && sim.tasks.is_empty()
                        && sim.site.world.has_visible(Queue::Tenants)
                        && sim.is_settling()
                })?;
                // The tenant hears of nothing until an approval that comes by now is kept for what it is to make live.
                let held = sim.site.world.take_messages(Queue::Tenants, 10, LONG_SECONDS);
                sim.approve(&waits);
                sim.run_until(|sim| {
                    let is_empty = sim.watch.heads.values().all(|head| head.slots.is_empty());
                    sim.tasks.is_empty() && is_empty && !sim.kept().is_empty()
                })?;
                let heads = sim.watch.heads.values().filter(|head| head.key.pipeline.as_str() == "gate");
                let looks = heads.map(|head| Poke::Queue { queue: head.key.clone() });
                let kept = sim.kept();
                let told = kept.into_iter().map(|Early { waiting, project }| {
                    let delivery = waiting.delivery;
                    Poke::Delivery { delivery, project }
                });
                let pokes: Vec<Poke> = looks.chain(told).collect();
                let _ = sluice_memory::poll_once(cell::send(&sim.site.world.ports_of("operator"), &pokes));
                sim.give(Queue::Tenants, 0, held);
                sim.handle(Queue::Events);
                sim.handle(Queue::Gate);
            }
        }
        Ok(())
    }
}

impl Sim {
    fn propose(&mut self, project: &str, number: u64, edits: &[(String, String)]) -> ChangeKey {
        let edits: Vec<(&str, &str)> = edits.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
        let change = self.site.forge.propose(project, number, "a change", "", &edits);
        uploaded(&self.site, &mut self.oracle, &change);
        change
    }

    /// Has a change approved as it is now.
    fn approve(&mut self, change: &ChangeKey) {
        let revision = self.site.forge.change(change).expect("it was proposed").facts.change;
        self.site.forge.approve(change);
        self.oracle.approved(&revision, self.now());
    }

    /// Returns the deliveries that wait for what the tenant makes live next.
    fn kept(&self) -> Vec<Early> {
        let records = self.site.world.records();
        let waiting = records.iter().filter(|record| record.key.sort.starts_with(tenant::WAITING));
        waiting.filter_map(|record| sluice_records::codec::decode::<Early>(record).ok()).collect()
    }

    /// Goes on until builds wait for executors, which hear of nothing, and nothing else is in hand.
    fn until_builds_wait(&mut self) -> Result<(), Failure> {
        let never = self.now().plus_seconds(1_000_000);
        for executor in &mut self.executors {
            executor.silent_until = Some(never);
        }
        self.run_until(|sim| {
            let world = &sim.site.world;
            let waits = HANDLED.into_iter().any(|queue| queue != Queue::Wakes && world.has_visible(queue));
            let is_quiet = sim.tasks.is_empty() && sim.webhooks.is_empty() && !waits;
            is_quiet && world.queued().get(&Queue::BuildsNormal).is_some_and(|count| *count >= 2)
        })
    }

    /// Gives messages to both instances of a function, as when the first was slow.
    fn give_twice(&mut self, queue: Queue) {
        let messages = self.site.world.take_messages(queue, 10, HIDDEN_SECONDS);
        for host in 0..2 {
            self.give(queue, host, messages.clone());
        }
    }

    fn give(&mut self, queue: Queue, host: usize, messages: Vec<Incoming>) {
        let Some(function) = self.hosts.get(&queue).and_then(|hosts| hosts.get(host)).cloned() else { return };
        let given = messages.clone();
        self.begin(Kind::Handle { queue, host, messages }, async move {
            Done::Handled(batch::handle(&*function, queue, given).await)
        });
    }

    /// Whether a layout is wanted that is not live.
    fn is_settling(&self) -> bool {
        let record = self.site.world.record(&tenant::key(&TENANT.into()));
        let head = record.and_then(|record| sluice_records::codec::decode::<Tenant>(&record).ok());
        head.is_some_and(|head| head.layout.wanted > head.layout.live)
    }
}

fn check_of(change: &ChangeKey) -> QueueKey {
    QueueKey {
        tenant: TENANT.into(),
        pipeline: "check".into(),
        queue: sluice_model::QueueName(format!("{}#{}", change.project, change.local())),
    }
}

/// Returns a site where nothing happens by itself.
fn shape() -> Shape {
    let projects = PROJECTS.into_iter().map(|name| (name.to_owned(), false)).collect();
    Shape {
        tenants: vec![TenantShape { name: TENANT.to_owned(), projects }],
        changes: 0,
        actions: 0,
        pause_millis_max: 300,
        instances: 8,
        semaphore_max: 1,
        executors: 2,
        branches: vec!["main"],
        tasks_max: 8,
        plays: BTreeSet::new(),
        mode_seed: 7,
        window: Window::GATE,
        weather: Weather { name: "exhaustive", ..Weather::default() },
    }
}

/// Switches from a task that could go on where `SLUICE_SIM_SWITCHES` does not say how many; without any there are as many
/// schedules as orders of whole tasks.
const SWITCHES_MAX: usize = 1;

fn switches_max() -> usize {
    let asked = std::env::var("SLUICE_SIM_SWITCHES").ok();
    asked.map_or(SWITCHES_MAX, |asked| asked.parse().expect("a number of switches"))
}

fn all_hold(scene: Scene, least: u64) {
    match explore(scene, switches_max(), None) {
        Ok(explored) => {
            println!("{scene:?}: {explored:?}");
            assert!(explored.schedules >= least, "{explored:?}");
        }
        Err(failure) => panic!("{failure}\n\n{scene:?}"),
    }
}

fn is_noticed(scene: Scene, mutation: Mutation) {
    match explore(scene, switches_max().max(2), Some(mutation)) {
        Ok(explored) => panic!("{mutation:?} is not noticed: {explored:?}"),
        Err(failure) => println!("{scene:?} with {mutation:?}: {}", failure.why.lines().next().unwrap_or_default()),
    }
}

/// Z7.6: a build that two executors are given while its change leaves has one owner at most, and none after its stop.
#[test]
fn a_build_has_one_owner_in_whatever_order_it_is_claimed_and_stopped() {
    all_hold(Scene::Assignment, 10);
    is_noticed(Scene::Assignment, Mutation::ClaimedTwice);
    is_noticed(Scene::Assignment, Mutation::ClaimedThoughStopped);
}

/// Z7.3, Z7.6: who comes back after his lease changes nothing of what was decided, in whatever order.
#[test]
fn an_executor_that_ends_after_its_lease_breaks_nothing_in_any_order() {
    all_hold(Scene::Lease, 10);
    is_noticed(Scene::Lease, Mutation::NoRevision(Cell::Queue));
}

/// Z2.6, C2: the number that is live only grows, and comes to the one that is wanted, whoever looks when.
#[test]
fn a_layout_becomes_live_once_in_whatever_order_tenants_and_gates_look() {
    all_hold(Scene::Layout, 10);
    is_noticed(Scene::Layout, Mutation::NoRevision(Cell::Tenant));
}

/// Z6.6, C2: an approval that was kept for configuration on its way counts for it, whoever looks at it when.
#[test]
fn what_was_kept_for_a_layout_goes_on_in_whatever_order_it_is_woken_and_looked_at() {
    all_hold(Scene::Wake, 10);
}

/// G01, C2: what is told last of an item is its end, whoever told what when.
#[test]
fn a_beginning_is_never_the_last_word_in_whatever_order_it_is_told() {
    all_hold(Scene::Report, 2);
    is_noticed(Scene::Report, Mutation::UnseenReports);
}
