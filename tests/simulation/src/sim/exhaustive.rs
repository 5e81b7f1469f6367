//! Small stories in every order: all interleavings of a few tasks, call by call, with up to a
//! number of disturbances. One is a switch away from a task that could go on, one that a task dies
//! at a call, before or after its effect, one that an answer is lost.
//!
//! A schedule says whose turn it is at each call of a port, and what becomes of the call. Each is
//! played from the beginning, for nothing can be copied, and goes on to its end afterwards like any
//! other story, with all that is checked there.

use super::*;
use crate::broken::{Cell, Mutation};
use crate::actors::uploaded;
use crate::scenarios::{EXPRESS, Scenario, lands};
use crate::shape::{Shape, TenantShape, FaultProfile, project_yaml};
use crate::windows::Window;
use sluice_gate::queue::own_queue;
use sluice_gate::{Item, Job, JobStatus, Landing};
use sluice_model::change::ChangeKey;
use sluice_model::{BuildId, QueueKey};
use sluice_records::codec::{decode, with_body};
use sluice_records::tenant::{self, DeferredWakeup, Tenant};
use sluice_records::{landing, branch_lock};
use sluice_runtime::cell;
use sluice_runtime::record::{Expect, Record, Write};
use std::collections::BTreeSet;

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
    /// An executor whose lease is over ends its builds, while two gates look at them and another
    /// executor is given them again.
    Lease,
    /// A reporter that read of no end yet tells that an item begins, while another one tells of its
    /// beginning and its end.
    Report,
    /// Two tenant functions make a layout live, while a gate lands what makes it old again.
    Layout,
    /// A tenant function makes a layout live and wakes what was kept for it, while intake looks at
    /// that by itself and a gate at its queue.
    Wake,
    /// Two gates have what they want to land on one branch.
    Turn,
}

/// What was explored.
#[derive(Debug, Clone, Copy, Default)]
struct Explored {
    /// Schedules, each another one.
    schedules: u64,
    /// Calls that were put in order, in all of them.
    calls: u64,
}

/// Whose turn it was and what became of its call, and who could have had it.
struct Turn {
    chosen: Choice,
    able: Vec<u64>,
}

/// A task that has a turn, and what becomes of the call that it makes, if it makes one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Choice {
    task: u64,
    fate: Fate,
}

/// What may become of a call besides that it works.
const FAULTS: [Fate; 3] = [Fate::DiesBefore, Fate::DiesAfter, Fate::FailsAfter];

/// Plays a scene by every schedule with at most so many disturbances, which are switches or these
/// faults.
///
/// # Errors
/// What must not be, with the story that led to it.
fn explore(
    scene: Scene,
    disturbances_max: usize,
    faults: &[Fate],
    mutation: Option<Mutation>,
) -> Result<Explored, Failure> {
    let mut open: Vec<Vec<Choice>> = vec![Vec::new()];
    let mut explored = Explored::default();
    while let Some(order) = open.pop() {
        let turns = scene.play(&order, mutation)?;
        explored.schedules += 1;
        explored.calls += turns.len() as u64;
        for at in order.len()..turns.len() {
            let task = turns[at].chosen.task;
            let others = turns[at].able.iter().filter(|other| **other != task);
            let others = others.map(|other| Choice { task: *other, fate: Fate::Works });
            for other in others.chain(faults.iter().map(|fate| Choice { task, fate: *fate })) {
                let before = turns[..at].iter().map(|turn| turn.chosen);
                let next: Vec<Choice> = before.chain([other]).collect();
                if disturbances(&next, &turns) <= disturbances_max {
                    open.push(next);
                }
            }
        }
    }
    Ok(explored)
}

/// What becomes of the next call, until one was made; those after it wait.
type Given = Arc<Mutex<Option<Fate>>>;

/// Has one call go on for each fate that is given.
fn turns_of(given: Given) -> impl FnMut(sluice_memory::Step) -> Fate + Send + 'static {
    move |step| {
        if step.caller == "operator" {
            return Fate::Works;
        }
        given.lock().unwrap().take().unwrap_or(Fate::Waits)
    }
}

/// Counts the turns at which the one before could have gone on and did not, and the calls that did
/// not work.
fn disturbances(order: &[Choice], turns: &[Turn]) -> usize {
    let switches = (1..order.len()).filter(|at| {
        let before = order[at - 1].task;
        order[*at].task != before && turns[*at].able.contains(&before)
    });
    switches.count() + order.iter().filter(|choice| choice.fate != Fate::Works).count()
}

impl Scene {
    fn play(self, order: &[Choice], mutation: Option<Mutation>) -> Result<Vec<Turn>, Failure> {
        let mut sim = Sim::new(7, Settings { mutation, shape: Some(shape(self)) });
        sim.run_until(|sim| sim.actors.next_at.is_none())?;
        self.begin(&mut sim)?;
        let given = Given::default();
        sim.site.world.decide_fates(turns_of(given.clone()));
        let mut turns: Vec<Turn> = Vec::new();
        while !sim.tasks.is_empty() {
            let mut able: Vec<u64> = sim.tasks.iter().map(|task| task.id).collect();
            able.sort_unstable();
            let last = turns.last().map(|turn| turn.chosen.task).filter(|last| able.contains(last));
            let by_itself = Choice { task: last.unwrap_or(able[0]), fate: Fate::Works };
            let chosen = order.get(turns.len()).copied().unwrap_or(by_itself);
            let Some(at) = sim.tasks.iter().position(|task| task.id == chosen.task) else {
                return Err(sim.failure("a schedule means something else when it is played again"));
            };
            if chosen.fate != Fate::Works {
                sim.tell(format!("{}: {:?}", sim.tasks[at].kind.name(), chosen.fate));
            }
            *given.lock().unwrap() = Some(chosen.fate);
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
                sim.run_until(|sim| {
                    sim.site.world.has_visible(MessageQueue::Gate) && sim.tasks.is_empty()
                })?;
                sim.handle(MessageQueue::Gate);
                let messages = sim.site.world.take_messages(MessageQueue::BuildsNormal, 10, 60);
                for executor in 0..2 {
                    sim.executors[executor].silent_until = None;
                    sim.claim_by(executor, MessageQueue::BuildsNormal, messages.clone());
                }
            }
            Self::Lease => {
                let change = sim.propose(PROJECTS[0], 1, &[("f0".to_owned(), "1".to_owned())]);
                sim.until_builds_wait()?;
                let messages = sim.site.world.take_messages(MessageQueue::BuildsNormal, 10, 60);
                sim.claim_by(0, MessageQueue::BuildsNormal, messages.clone());
                while !sim.tasks.is_empty() {
                    sim.poll(0)?;
                }
                let builds =
                    sim.executors[0].builds.iter().map(|running| running.claimed.run.build.clone());
                sim.oracle.interrupted_builds.extend(builds);
                sim.site.world.advance_millis(3_600_000);
                let queue = check_of(&change);
                let _ = sluice_memory::poll_once(cell::send(
                    &sim.site.world.ports_of("operator"),
                    &[Wakeup::Answer { queue: queue.clone() }],
                ));
                sim.give_twice(MessageQueue::Gate);
                sim.end_build(0, 0);
                sim.claim_by(1, MessageQueue::BuildsNormal, messages);
            }
            Self::Report => {
                sim.propose(PROJECTS[0], 1, &[("f0".to_owned(), "1".to_owned())]);
                sim.run_until(|sim| {
                    sim.site.world.has_visible(MessageQueue::Reports) && sim.tasks.is_empty()
                })?;
                let first = sim.site.world.take_messages(MessageQueue::Reports, 10, LONG_SECONDS);
                sim.give(MessageQueue::Reports, 0, first);
                sim.site.world.decide_fates(turns_of(Arc::new(Mutex::new(Some(Fate::Works)))));
                sim.poll(0)?;
                let Some(reading) = sim.tasks.pop() else {
                    return Err(sim.failure("the report has no second call"));
                };
                sim.site.world.decide_fates(|_| Fate::Works);
                sim.run_until(|sim| {
                    let mut heads = sim.watch.heads.values();
                    !sim.watch.heads.is_empty()
                        && heads.all(|head| head.slots.is_empty())
                        && sim.tasks.is_empty()
                })?;
                sim.site.world.advance_millis(u64::from(LONG_SECONDS) * 1_000);
                let second = sim.site.world.take_messages(MessageQueue::Reports, 10, LONG_SECONDS);
                sim.tasks.push(reading);
                sim.give(MessageQueue::Reports, 1, second);
            }
            Self::Layout => {
                for (at, project) in PROJECTS.into_iter().enumerate() {
                    let yaml = project_yaml(project, false, 1, "");
                    let change =
                        sim.propose(project, at as u64 + 1, &[(".zuul.yaml".to_owned(), yaml)]);
                    sim.approve(&change);
                }
                sim.run_until(|sim| {
                    sim.site.forge.merge_count() > 0
                        && sim.tasks.is_empty()
                        && sim.site.world.has_visible(MessageQueue::Tenants)
                        && sim.is_settling()
                })?;
                sim.give_twice(MessageQueue::Tenants);
                let queues: Vec<QueueKey> = sim
                    .watch
                    .heads
                    .values()
                    .filter(|head| !head.slots.is_empty())
                    .map(|head| head.key.clone())
                    .collect();
                let pokes: Vec<Wakeup> =
                    queues.into_iter().map(|queue| Wakeup::Queue { queue }).collect();
                let _ = sluice_memory::poll_once(cell::send(
                    &sim.site.world.ports_of("operator"),
                    &pokes,
                ));
                sim.handle(MessageQueue::Gate);
            }
            Self::Wake => {
                let yaml = project_yaml(PROJECTS[0], false, 1, "");
                let configures = sim.propose(PROJECTS[0], 1, &[(".zuul.yaml".to_owned(), yaml)]);
                let waits = sim.propose(PROJECTS[1], 2, &[("f0".to_owned(), "1".to_owned())]);
                sim.approve(&configures);
                sim.run_until(|sim| {
                    sim.site.forge.merge_count() > 0
                        && sim.tasks.is_empty()
                        && sim.site.world.has_visible(MessageQueue::Tenants)
                        && sim.is_settling()
                })?;
                // The tenant hears of nothing until an approval that comes by now is kept for what
                // it is to make live.
                let held = sim.site.world.take_messages(MessageQueue::Tenants, 10, LONG_SECONDS);
                sim.approve(&waits);
                sim.run_until(|sim| {
                    let is_empty = sim.watch.heads.values().all(|head| head.slots.is_empty());
                    sim.tasks.is_empty() && is_empty && !sim.kept().is_empty()
                })?;
                let heads =
                    sim.watch.heads.values().filter(|head| head.key.pipeline.as_str() == "gate");
                let looks = heads.map(|head| Wakeup::Queue { queue: head.key.clone() });
                let kept = sim.kept();
                let told = kept.into_iter().map(|DeferredWakeup { waiting, project }| {
                    let delivery = waiting.delivery;
                    Wakeup::Delivery { delivery, project }
                });
                let pokes: Vec<Wakeup> = looks.chain(told).collect();
                let _ = sluice_memory::poll_once(cell::send(
                    &sim.site.world.ports_of("operator"),
                    &pokes,
                ));
                sim.give(MessageQueue::Tenants, 0, held);
                sim.handle(MessageQueue::Events);
                sim.handle(MessageQueue::Gate);
            }
            Self::Turn => {
                let first = sim.propose(PROJECTS[0], 1, &[("f0".to_owned(), "1".to_owned())]);
                let second = sim.propose(PROJECTS[0], 2, &[("f1".to_owned(), "2".to_owned())]);
                sim.site.forge.label(&second, EXPRESS, true);
                for change in [&first, &second] {
                    sim.approve(change);
                }
                sim.until_last_builds()?;
                let holders = sim.executors.iter().enumerate();
                let held =
                    holders.filter(|(_, executor)| !executor.builds.is_empty()).map(|(at, _)| at);
                for executor in held.collect::<Vec<usize>>() {
                    while !sim.executors[executor].builds.is_empty() {
                        sim.end_build(executor, 0);
                    }
                }
                while !sim.tasks.is_empty() {
                    sim.poll(0)?;
                    sim.look()?;
                }
                let messages = sim.site.world.take_messages(MessageQueue::Gate, 10, HIDDEN_SECONDS);
                if messages.len() != 2 {
                    return Err(sim.failure(format!(
                        "two queues are to hear of their last builds: {messages:?}"
                    )));
                }
                for (host, message) in messages.into_iter().enumerate() {
                    sim.give(MessageQueue::Gate, host, vec![message]);
                }
            }
        }
        Ok(())
    }
}

impl Sim {
    fn propose(&mut self, project: &str, number: u64, edits: &[(String, String)]) -> ChangeKey {
        let edits: Vec<(&str, &str)> =
            edits.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
        let change = self.site.forge.propose(project, number, "a change", "", &edits);
        uploaded(&self.site, &mut self.oracle, &change);
        change
    }

    /// Has a change approved as it is now.
    fn approve(&mut self, change: &ChangeKey) {
        let revision = self.site.forge.change(change).expect("it was proposed").facts.change;
        self.site.forge.approve(change);
        self.oracle.record_approval(&revision, self.now());
    }

    /// Returns the deliveries that wait for what the tenant makes live next.
    fn kept(&self) -> Vec<DeferredWakeup> {
        let records = self.site.world.records();
        let waiting = records.iter().filter(|record| record.key.sort.starts_with(tenant::DEFERRED));
        waiting.filter_map(|record| sluice_records::codec::decode::<DeferredWakeup>(record).ok()).collect()
    }

    /// Goes on until builds wait for executors, which hear of nothing, and nothing else is in hand.
    fn until_builds_wait(&mut self) -> Result<(), Failure> {
        let never = self.now().plus_seconds(1_000_000);
        for executor in &mut self.executors {
            executor.silent_until = Some(never);
        }
        self.run_until(|sim| {
            let world = &sim.site.world;
            let waits =
                HANDLED.into_iter().any(|queue| queue != MessageQueue::Wakes && world.has_visible(queue));
            let is_quiet = sim.tasks.is_empty() && sim.webhooks.is_empty() && !waits;
            is_quiet && world.queued().get(&MessageQueue::BuildsNormal).is_some_and(|count| *count >= 2)
        })
    }

    /// Goes on until of each change that stands in a gate the last build is all that is awaited,
    /// executors have those, and nothing else is in hand.
    fn until_last_builds(&mut self) -> Result<(), Failure> {
        self.run_until(|sim| {
            let never = sim.now().plus_seconds(1_000_000);
            let gates = sim.watch.heads.values().filter(|head| lands(head.key.pipeline.as_str()));
            let items =
                gates.flat_map(|head| &head.slots).filter_map(|slot| sim.watch.items.get(&slot.id));
            let last = |item: &Item| {
                let open =
                    item.jobs.iter().filter(|job| !matches!(job.status, JobStatus::Ended { .. }));
                let open: Vec<&Job> = open.collect();
                (open.last().and_then(|job| job.build.clone()), open.len())
            };
            let awaited: Vec<_> = items.map(last).collect();
            let held: BTreeSet<&BuildId> =
                awaited.iter().filter_map(|(build, _)| build.as_ref()).collect();
            let mut running = 0;
            for run in sim.executors.iter_mut().flat_map(|executor| &mut executor.builds) {
                running += 1;
                if held.contains(&run.claimed.run.build) {
                    run.ends_at = never;
                }
            }
            let world = &sim.site.world;
            let waits =
                HANDLED.into_iter().any(|queue| queue != MessageQueue::Wakes && world.has_visible(queue));
            let is_quiet =
                sim.tasks.is_empty() && sim.webhooks.is_empty() && sim.told.is_empty() && !waits;
            is_quiet
                && awaited.len() == 2
                && running == 2
                && awaited.iter().all(|(_, open)| *open == 1)
        })
    }

    /// Gives messages to both instances of a function, as when the first was slow.
    fn give_twice(&mut self, queue: MessageQueue) {
        let messages = self.site.world.take_messages(queue, 10, HIDDEN_SECONDS);
        for host in 0..2 {
            self.give(queue, host, messages.clone());
        }
    }

    fn give(&mut self, queue: MessageQueue, host: usize, messages: Vec<Incoming>) {
        let Some(function) = self.hosts.get(&queue).and_then(|hosts| hosts.get(host)).cloned()
        else {
            return;
        };
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
    QueueKey { tenant: TENANT.into(), pipeline: "check".into(), queue: own_queue(change) }
}

/// Returns the site of a scene, where nothing happens by itself.
fn shape(scene: Scene) -> Shape {
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
        scenarios: if scene == Scene::Turn { [Scenario::TwoGates].into() } else { BTreeSet::new() },
        mode_seed: 7,
        window: Window::GATE,
        fault_profile: FaultProfile { name: "exhaustive", ..FaultProfile::default() },
    }
}

/// Disturbances where `SLUICE_SIM_DISTURBANCES` does not say how many; without any there are as
/// many schedules as orders of whole tasks.
const DISTURBANCES_MAX: usize = 1;

fn disturbances_max() -> usize {
    let asked = std::env::var("SLUICE_SIM_DISTURBANCES").ok();
    asked.map_or(DISTURBANCES_MAX, |asked| asked.parse().expect("a number of disturbances"))
}

fn all_hold(scene: Scene, least: u64) {
    match explore(scene, disturbances_max(), &FAULTS, None) {
        Ok(explored) => {
            println!("{scene:?}: {explored:?}");
            assert!(explored.schedules >= least, "{explored:?}");
        }
        Err(failure) => panic!("{failure}\n\n{scene:?}"),
    }
}

fn is_noticed(scene: Scene, mutation: Mutation) {
    // Two switches are what most take; with faults as well there would be twenty times as many
    // schedules.
    is_noticed_within(disturbances_max().max(2), scene, mutation);
}

fn is_noticed_within(disturbances_max: usize, scene: Scene, mutation: Mutation) {
    match explore(scene, disturbances_max, &[], Some(mutation)) {
        Ok(explored) => panic!("{mutation:?} is not noticed: {explored:?}"),
        Err(failure) => println!(
            "{scene:?} with {mutation:?}: {}",
            failure.why.lines().next().unwrap_or_default()
        ),
    }
}

/// Z7.6: a build that two executors are given while its change leaves has one owner at most, and
/// none after its stop.
#[test]
fn a_build_has_one_owner_in_whatever_order_it_is_claimed_and_stopped() {
    all_hold(Scene::Assignment, 10);
    is_noticed(Scene::Assignment, Mutation::ClaimedTwice);
    is_noticed(Scene::Assignment, Mutation::ClaimedThoughStopped);
}

/// Z7.3, Z7.6: who comes back after his lease changes nothing of what was decided, in whatever
/// order.
#[test]
fn an_executor_that_ends_after_its_lease_breaks_nothing_in_any_order() {
    all_hold(Scene::Lease, 10);
    is_noticed(Scene::Lease, Mutation::NoRevision(Cell::Queue));
}

/// Z2.6, C2: the number that is live only grows, and comes to the one that is wanted, whoever looks
/// when.
#[test]
fn a_layout_becomes_live_once_in_whatever_order_tenants_and_gates_look() {
    all_hold(Scene::Layout, 10);
    is_noticed(Scene::Layout, Mutation::NoRevision(Cell::Tenant));
}

/// Z6.6, C2: an approval that was kept for configuration on its way counts for it, whoever looks at
/// it when.
#[test]
fn what_was_kept_for_a_layout_goes_on_in_whatever_order_it_is_woken_and_looked_at() {
    all_hold(Scene::Wake, 10);
    // Whoever looks before the layout is live has to be told of it: an order of whole tasks.
    is_noticed_within(0, Scene::Wake, Mutation::UntoldLayouts);
}

/// G01, C2: what is told last of an item is its end, whoever told what when.
#[test]
fn a_beginning_is_never_the_last_word_in_whatever_order_it_is_told() {
    all_hold(Scene::Report, 2);
    is_noticed(Scene::Report, Mutation::UnseenReports);
}

/// G05, Z6.4: of two gates that may land on one branch one orders it, and the other one tests what
/// came of that, whoever looks when and whoever dies where.
#[test]
fn two_gates_land_on_one_branch_one_after_the_other_in_whatever_order_they_look() {
    all_hold(Scene::Turn, 10);
    is_noticed(Scene::Turn, Mutation::NoRevision(Cell::Branch));
}

/// Has a landing carried out, call by call, whose branch was taken by somebody and let go again
/// since it was ordered. Returns whether it merged anything.
fn land_overtaken(mutation: Option<Mutation>) -> Result<bool, Failure> {
    let mut sim = Sim::new(7, Settings { mutation, shape: Some(shape(Scene::Turn)) });
    sim.run_until(|sim| sim.actors.next_at.is_none())?;
    let change = sim.propose(PROJECTS[0], 1, &[("f0".to_owned(), "1".to_owned())]);
    sim.approve(&change);
    sim.run_until(|sim| sim.watch.landing.values().any(|under_way| !under_way.is_empty()))?;
    // Whoever is at work dies, so that nobody carries it out before.
    sim.tasks.clear();
    let under_way: Option<Landing> =
        sim.watch.landing.values().flat_map(BTreeMap::values).next().cloned();
    let ordered = under_way.expect("it was just ordered");
    let key = branch_lock::key(&sluice_gate::branch_lock::branch_of(&ordered.change));
    let record = sim.site.world.record(&key).expect("the branch is the landing's");
    let mut taken: sluice_gate::BranchLock = decode(&record).expect("it says whose turn it is");
    taken.fence += 1;
    taken.holder = None;
    let revision = record.revision + 1;
    let record = with_body(record, &taken).expect("it is small");
    let record = Record { revision, fence: taken.fence, ..record };
    sim.site.world.write_directly(Write::Put { record, expect: Expect::Anything });
    let _ = sluice_memory::poll_once(cell::send(
        &sim.site.world.ports_of("operator"),
        &[landing::wakeup(&ordered)],
    ));
    let given = Given::default();
    sim.site.world.decide_fates(turns_of(given.clone()));
    // As often as more than all that is told of the change could need.
    for _ in 0..10 {
        sim.handle(MessageQueue::Reports);
        while !sim.tasks.is_empty() {
            *given.lock().unwrap() = Some(Fate::Works);
            sim.poll(0)?;
            sim.look()?;
        }
    }
    Ok(sim.site.forge.merge_count() > 0)
}

/// C2, Z6.4: nothing begins to land on a branch that somebody took since, and it would be seen.
#[test]
fn a_landing_whose_branch_was_taken_since_begins_nothing_and_would_be_noticed() {
    match land_overtaken(None) {
        Ok(has_merged) => assert!(!has_merged, "it was merged"),
        Err(failure) => panic!("{failure}"),
    }
    let noticed = land_overtaken(Some(Mutation::NoFence))
        .expect_err("a landing without a fence is not noticed");
    assert!(noticed.why.contains("which was taken since"), "{}", noticed.why);
}
