//! Exhaustive schedules of small scenes: all interleavings of a few tasks, call by call, with a
//! limited number of disturbances. A disturbance is one of these:
//!
//! - a switch away from a task that could continue;
//! - the death of a task at a call, before or after its effect;
//! - the loss of an answer.
//!
//! A schedule says which task makes each call of a port, and the outcome of the call. Each schedule
//! is played from the beginning, because a site cannot be copied. Afterwards the run continues to
//! its end with all usual checks.

use super::*;
use crate::actors::uploaded;
use crate::broken::{Cell, Mutation};
use crate::scenarios::{EXPRESS, Scenario, lands};
use crate::shape::{FaultProfile, Shape, TenantShape, project_yaml};
use crate::windows::Window;
use sluice_gate::queue::own_queue;
use sluice_gate::{Head, Item, Job, JobStatus, Landing};
use sluice_model::change::ChangeKey;
use sluice_model::{BuildId, QueueKey};
use sluice_records::codec::{decode, with_body};
use sluice_records::tenant::{self, DeferredWakeup, Tenant};
use sluice_records::{branch_lock, landing};
use sluice_runtime::cell;
use sluice_runtime::record::{Expect, Record, Write};
use sluice_scenarios::forge::Announcement;
use std::collections::BTreeSet;

/// How many calls a schedule may have before it counts as one that never ends.
const CALLS_MAX: usize = 2_000;
/// Seconds for which the messages of a slow function are hidden.
const LONG_SECONDS: u32 = 600;
/// The name of the tenant in all scenes.
const TENANT: &str = "tenant0";
/// The names of its projects.
const PROJECTS: [&str; 2] = ["org/t0p0", "org/t0p1"];

/// A situation in which a few tasks meet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Scene {
    /// Two executors receive the same builds while a gate dequeues their change.
    Assignment,
    /// An executor with an expired lease ends its builds, while two gates reconcile the queue and
    /// another executor receives the same builds.
    Lease,
    /// A reporter that has read an old state reports the start of an item, while another reporter
    /// reports its start and its end.
    Report,
    /// Two tenant functions make a layout live, while a gate lands a change that outdates it.
    Layout,
    /// A tenant function makes a layout live and wakes the deferred events, while intake processes
    /// them by itself and a gate reconciles its queue.
    Wake,
    /// Two gates each have a change to land on the same branch.
    BranchLock,
}

/// The size of an exploration.
#[derive(Debug, Clone, Copy, Default)]
struct Explored {
    /// How many different schedules were played.
    schedules: u64,
    /// How many calls all schedules had.
    calls: u64,
}

/// One call of a schedule that was played.
struct ScheduledCall {
    /// The task that made the call, and the outcome.
    chosen: Step,
    /// The tasks that could have made a call instead.
    able: Vec<u64>,
}

/// The task that runs next, and the outcome of its call, if it makes one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Step {
    /// The id of the task.
    task: u64,
    /// The outcome of the call.
    fate: Fate,
}

/// The outcomes of a call other than success.
const FAULTS: [Fate; 3] = [Fate::DiesBefore, Fate::DiesAfter, Fate::FailsAfter];

/// The schedules that are always played.
const FIRST_MIN: usize = 20;

/// Plays a scene with schedules that have at most `disturbances_max` disturbances: switches, or one
/// of `faults`. Of the schedules that follow from those played, plays each `every`th, and the first
/// [`FIRST_MIN`] in any case.
///
/// # Errors
/// The first violated expectation, with the log that led to it.
fn explore(
    scene: Scene,
    disturbances_max: usize,
    faults: &[Fate],
    mutation: Option<Mutation>,
    every: usize,
) -> Result<Explored, Failure> {
    let mut open: Vec<Vec<Step>> = vec![Vec::new()];
    let mut explored = Explored::default();
    let mut found = 0_usize;
    while let Some(order) = open.pop() {
        let calls = scene.play(&order, mutation)?;
        explored.schedules += 1;
        explored.calls += calls.len() as u64;
        for at in order.len()..calls.len() {
            let task = calls[at].chosen.task;
            let others = calls[at].able.iter().filter(|other| **other != task);
            let others = others.map(|other| Step { task: *other, fate: Fate::Works });
            for other in others.chain(faults.iter().map(|fate| Step { task, fate: *fate })) {
                let before = calls[..at].iter().map(|call| call.chosen);
                let next: Vec<Step> = before.chain([other]).collect();
                if disturbances(&next, &calls) > disturbances_max {
                    continue;
                }
                found += 1;
                if found <= FIRST_MIN || found.is_multiple_of(every) {
                    open.push(next);
                }
            }
        }
    }
    Ok(explored)
}

/// The outcome of the next call, until a call has been made; later calls wait.
type NextFate = Arc<Mutex<Option<Fate>>>;

/// Returns a decision function that lets one call proceed for each outcome that is stored in
/// `given`.
fn one_call_at_a_time(
    given: NextFate,
) -> impl FnMut(sluice_memory::PendingCall) -> Fate + Send + 'static {
    move |step| {
        if step.caller == "operator" {
            return Fate::Works;
        }
        given.lock().unwrap().take().unwrap_or(Fate::Waits)
    }
}

/// Counts the switches away from a task that could have continued, and the calls that failed.
fn disturbances(order: &[Step], calls: &[ScheduledCall]) -> usize {
    let switches = (1..order.len()).filter(|at| {
        let before = order[at - 1].task;
        order[*at].task != before && calls[*at].able.contains(&before)
    });
    switches.count() + order.iter().filter(|choice| choice.fate != Fate::Works).count()
}

impl Scene {
    /// Plays one schedule; after its last step the tasks run one after the other. Returns all
    /// calls.
    ///
    /// # Errors
    /// The first violated expectation.
    fn play(
        self,
        order: &[Step],
        mutation: Option<Mutation>,
    ) -> Result<Vec<ScheduledCall>, Failure> {
        let mut sim = Sim::new(7, Settings { mutation, shape: Some(shape(self)) });
        sim.run_until(|sim| sim.actors.next_at.is_none())?;
        self.begin(&mut sim)?;
        let given = NextFate::default();
        sim.site.world.decide_fates(one_call_at_a_time(given.clone()));
        let mut calls: Vec<ScheduledCall> = Vec::new();
        while !sim.tasks.is_empty() {
            let mut able: Vec<u64> = sim.tasks.iter().map(|task| task.id).collect();
            able.sort_unstable();
            let last = calls.last().map(|call| call.chosen.task).filter(|last| able.contains(last));
            let by_itself = Step { task: last.unwrap_or(able[0]), fate: Fate::Works };
            let chosen = order.get(calls.len()).copied().unwrap_or(by_itself);
            let Some(at) = sim.tasks.iter().position(|task| task.id == chosen.task) else {
                return Err(sim.failure("a schedule behaves differently when it is played again"));
            };
            if chosen.fate != Fate::Works {
                sim.log(format!("{}: {:?}", sim.tasks[at].kind.name(), chosen.fate));
            }
            *given.lock().unwrap() = Some(chosen.fate);
            sim.poll(at)?;
            sim.check_written()?;
            calls.push(ScheduledCall { chosen, able });
            if calls.len() > CALLS_MAX {
                return Err(sim.failure("a schedule does not end"));
            }
        }
        sim.site.world.decide_fates(|_| Fate::Works);
        for executor in &mut sim.executors {
            executor.silent_until = None;
        }
        sim.end_calmly(&mut BTreeMap::new())?;
        Ok(calls)
    }

    /// Brings the site to the point where the tasks of the scene meet, and starts them.
    fn begin(self, sim: &mut Sim) -> Result<(), Failure> {
        match self {
            Self::Assignment => {
                let change = sim.propose(PROJECTS[0], 1, &[("f0".to_owned(), "1".to_owned())]);
                sim.until_builds_wait()?;
                sim.site.forge.close(&change);
                sim.oracle.record_withdrawal(&change, sim.now());
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
                sim.site
                    .world
                    .decide_fates(one_call_at_a_time(Arc::new(Mutex::new(Some(Fate::Works)))));
                sim.poll(0)?;
                let Some(reading) = sim.tasks.pop() else {
                    return Err(sim.failure("the report has no second call"));
                };
                sim.site.world.decide_fates(|_| Fate::Works);
                sim.run_until(|sim| {
                    let mut heads = sim.watch.heads.values();
                    !sim.watch.heads.is_empty()
                        && heads.all(|head| head.entries.is_empty())
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
                    .filter(|head| !head.entries.is_empty())
                    .map(|head| head.key.clone())
                    .collect();
                let wakeups: Vec<Wakeup> =
                    queues.into_iter().map(|queue| Wakeup::Queue { queue }).collect();
                let _ = sluice_memory::poll_once(cell::send(
                    &sim.site.world.ports_of("operator"),
                    &wakeups,
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
                // The tenant function gets no message until an approval is deferred for the layout
                // that it is going to make live.
                let held = sim.site.world.take_messages(MessageQueue::Tenants, 10, LONG_SECONDS);
                sim.approve(&waits);
                sim.run_until(|sim| {
                    let is_empty = sim.watch.heads.values().all(|head| head.entries.is_empty());
                    sim.tasks.is_empty() && is_empty && !sim.deferred_wakeups().is_empty()
                })?;
                let heads =
                    sim.watch.heads.values().filter(|head| head.key.pipeline.as_str() == "gate");
                let queues = heads.map(|head| Wakeup::Queue { queue: head.key.clone() });
                let deferred = sim.deferred_wakeups();
                let deliveries = deferred.into_iter().map(|DeferredWakeup { waiting, project }| {
                    let delivery = waiting.delivery;
                    Wakeup::Delivery { delivery, project }
                });
                let wakeups: Vec<Wakeup> = queues.chain(deliveries).collect();
                let _ = sluice_memory::poll_once(cell::send(
                    &sim.site.world.ports_of("operator"),
                    &wakeups,
                ));
                sim.give(MessageQueue::Tenants, 0, held);
                sim.handle(MessageQueue::Events);
                sim.handle(MessageQueue::Gate);
            }
            Self::BranchLock => {
                let first = sim.propose(PROJECTS[0], 1, &[("f0".to_owned(), "1".to_owned())]);
                let second = sim.propose(PROJECTS[0], 2, &[("f1".to_owned(), "2".to_owned())]);
                sim.site.forge.label(&second, EXPRESS, Announcement::Webhook);
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
                    sim.check_written()?;
                }
                let messages = sim.site.world.take_messages(MessageQueue::Gate, 10, HIDDEN_SECONDS);
                if messages.len() != 2 {
                    return Err(sim.failure(format!(
                        "two queues should have a message about their last builds: {messages:?}"
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
    /// Proposes a change and reports it to the oracle.
    fn propose(&mut self, project: &str, number: u64, edits: &[(String, String)]) -> ChangeKey {
        let edits: Vec<(&str, &str)> =
            edits.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
        let change = self.site.forge.propose(project, number, "a change", "", &edits);
        uploaded(&self.site, &mut self.oracle, &change);
        change
    }

    /// Approves the current revision of a change.
    fn approve(&mut self, change: &ChangeKey) {
        let revision = self.site.forge.change(change).expect("it was proposed").facts.change;
        self.site.forge.approve(change);
        self.oracle.record_approval(&revision, self.now());
    }

    /// Returns the deferred events, which wait for the tenant's next layout.
    fn deferred_wakeups(&self) -> Vec<DeferredWakeup> {
        let records = self.site.world.records();
        let waiting = records.iter().filter(|record| record.key.sort.starts_with(tenant::DEFERRED));
        waiting
            .filter_map(|record| sluice_records::codec::decode::<DeferredWakeup>(record).ok())
            .collect()
    }

    /// Disconnects the executors, and runs until builds wait for them and nothing else is in
    /// progress.
    fn until_builds_wait(&mut self) -> Result<(), Failure> {
        let never = self.now().plus_seconds(1_000_000);
        for executor in &mut self.executors {
            executor.silent_until = Some(never);
        }
        self.run_until(|sim| {
            let world = &sim.site.world;
            let waits = HANDLED
                .into_iter()
                .any(|queue| queue != MessageQueue::Wakes && world.has_visible(queue));
            let is_quiet = sim.tasks.is_empty() && sim.webhooks.is_empty() && !waits;
            is_quiet
                && world.queued().get(&MessageQueue::BuildsNormal).is_some_and(|count| *count >= 2)
        })
    }

    /// Runs until each change in a gate waits only for its last build, executors run these builds,
    /// and nothing else is in progress.
    fn until_last_builds(&mut self) -> Result<(), Failure> {
        self.run_until(|sim| {
            let never = sim.now().plus_seconds(1_000_000);
            let gates = sim.watch.heads.values().filter(|head| lands(head.key.pipeline.as_str()));
            let items =
                gates.flat_map(Head::slots).filter_map(|slot| sim.watch.items.get(&slot.id));
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
            let waits = HANDLED
                .into_iter()
                .any(|queue| queue != MessageQueue::Wakes && world.has_visible(queue));
            let is_quiet = sim.tasks.is_empty()
                && sim.webhooks.is_empty()
                && sim.stream_events.is_empty()
                && !waits;
            is_quiet
                && awaited.len() == 2
                && running == 2
                && awaited.iter().all(|(_, open)| *open == 1)
        })
    }

    /// Gives the same messages to both instances of a function, as if the first one had been slow:
    /// the second one receives them again.
    fn give_twice(&mut self, queue: MessageQueue) {
        let mut messages = self.site.world.take_messages(queue, 10, HIDDEN_SECONDS);
        for host in 0..2 {
            self.give(queue, host, messages.clone());
            messages.iter_mut().for_each(|message| message.receive_count += 1);
        }
    }

    /// Starts a function instance with messages.
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

    /// Returns whether the tenant has a pending layout that is not live.
    fn is_settling(&self) -> bool {
        let record = self.site.world.record(&tenant::key(&TENANT.into()));
        let head = record.and_then(|record| sluice_records::codec::decode::<Tenant>(&record).ok());
        head.is_some_and(|head| head.layout.wanted > head.layout.live)
    }
}

/// Returns the queue of a change in the pipeline `check`.
fn check_of(change: &ChangeKey) -> QueueKey {
    QueueKey { tenant: TENANT.into(), pipeline: "check".into(), queue: own_queue(change) }
}

/// Returns the site of a scene; its actors do nothing by themselves.
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
        scenarios: if scene == Scene::BranchLock {
            [Scenario::TwoGates].into()
        } else {
            BTreeSet::new()
        },
        mode_seed: 7,
        window: Window::GATE,
        fault_profile: FaultProfile { name: "exhaustive", ..FaultProfile::default() },
    }
}

/// The default of `SLUICE_SIM_DISTURBANCES`. With 0, the schedules are the orders of whole tasks.
const DISTURBANCES_MAX: usize = 1;

/// Returns the maximum number of disturbances from `SLUICE_SIM_DISTURBANCES`, or the default.
fn disturbances_max() -> usize {
    let text = std::env::var("SLUICE_SIM_DISTURBANCES").ok();
    text.map_or(DISTURBANCES_MAX, |text| text.parse().expect("a number of disturbances"))
}

/// Returns `SLUICE_SIM_EVERY`, the `every` of [`explore`]: with 1, as in `make sim`, it plays all.
/// The default is for everyday runs.
fn every() -> usize {
    let text = std::env::var("SLUICE_SIM_EVERY").ok();
    text.map_or(12, |text| text.parse().expect("a number of schedules"))
}

/// Asserts that the schedules of a scene pass, and that there are at least `least` schedules.
fn all_hold(scene: Scene, least: u64) {
    match explore(scene, disturbances_max(), &FAULTS, None, every()) {
        Ok(explored) => {
            println!("{scene:?}: {explored:?}");
            assert!(explored.schedules >= least, "{explored:?}");
        }
        Err(failure) => panic!("{failure}\n\n{scene:?}"),
    }
}

/// Asserts that some schedule of a scene fails with an injected defect.
fn is_noticed(scene: Scene, mutation: Mutation) {
    // Most defects need two switches. With faults there would be twenty times as many schedules.
    is_noticed_within(disturbances_max().max(2), scene, mutation);
}

/// Like [`is_noticed`], with at most `disturbances_max` switches.
fn is_noticed_within(disturbances_max: usize, scene: Scene, mutation: Mutation) {
    match explore(scene, disturbances_max, &[], Some(mutation), 1) {
        Ok(explored) => panic!("{mutation:?} is not noticed: {explored:?}"),
        Err(failure) => println!(
            "{scene:?} with {mutation:?}: {}",
            failure.why.lines().next().unwrap_or_default()
        ),
    }
}

/// Z7.6: a build that two executors receive while its change leaves has at most one owner, and none
/// after its stop.
#[test]
fn a_build_has_one_owner_in_whatever_order_it_is_claimed_and_stopped() {
    all_hold(Scene::Assignment, 10);
    is_noticed(Scene::Assignment, Mutation::ClaimedTwice);
    is_noticed(Scene::Assignment, Mutation::ClaimedThoughStopped);
}

/// Z7.3, Z7.6: an executor that reconnects after its lease expired changes no decision, in any
/// order.
#[test]
fn an_executor_that_ends_after_its_lease_breaks_nothing_in_any_order() {
    all_hold(Scene::Lease, 10);
    is_noticed(Scene::Lease, Mutation::ClaimedTwice);
}

/// Z2.6, C2: the live layout number only grows and reaches the pending one, in any order.
#[test]
fn a_layout_becomes_live_once_in_any_order_of_tenant_and_gate_functions() {
    all_hold(Scene::Layout, 10);
    is_noticed(Scene::Layout, Mutation::NoRevision(Cell::Tenant));
}

/// Z6.6, C2: an approval that was deferred for pending configuration is applied to it, in any
/// order.
#[test]
fn events_deferred_for_a_layout_are_processed_in_any_order_of_wakeups() {
    all_hold(Scene::Wake, 10);
    // A function that ran before the layout was live needs a wakeup: an order of whole tasks.
    is_noticed_within(0, Scene::Wake, Mutation::UnannouncedLayouts);
}

/// G01, C2: the last report of an item is its end, in any order of reporters.
#[test]
fn a_start_report_never_comes_after_the_end_report_in_any_order() {
    all_hold(Scene::Report, 2);
    is_noticed(Scene::Report, Mutation::OverwrittenReports);
}

/// G05, Z6.4: of two gates that may land on a branch, one lands and the other one tests on the
/// result, in any order and with any death.
#[test]
fn two_gates_land_on_one_branch_one_after_the_other_in_any_order() {
    all_hold(Scene::BranchLock, 10);
    is_noticed(Scene::BranchLock, Mutation::NoRevision(Cell::Branch));
}

/// Carries out a landing, call by call, after another holder acquired and released the branch lock.
/// Returns whether it merged anything.
fn land_overtaken(mutation: Option<Mutation>) -> Result<bool, Failure> {
    let mut sim = Sim::new(7, Settings { mutation, shape: Some(shape(Scene::BranchLock)) });
    sim.run_until(|sim| sim.actors.next_at.is_none())?;
    let change = sim.propose(PROJECTS[0], 1, &[("f0".to_owned(), "1".to_owned())]);
    sim.approve(&change);
    sim.run_until(|sim| sim.watch.landing.values().any(|under_way| !under_way.is_empty()))?;
    // All running functions die, so that none of them carries the landing out.
    sim.tasks.clear();
    let under_way: Option<Landing> =
        sim.watch.landing.values().flat_map(BTreeMap::values).next().cloned();
    let ordered = under_way.expect("it was just ordered");
    let key = branch_lock::key(&sluice_gate::branch_lock::branch_of(&ordered.change));
    let record = sim.site.world.record(&key).expect("the branch is the landing's");
    let mut lock: sluice_gate::BranchLock = decode(&record).expect("it is a branch lock");
    lock.fence += 1;
    lock.holder = None;
    let revision = record.revision + 1;
    let record = with_body(record, &lock).expect("it is small");
    let record = Record { revision, fence: lock.fence, ..record };
    sim.site.world.write_unchecked(Write::Put { record, expect: Expect::Anything });
    let _ = sluice_memory::poll_once(cell::send(
        &sim.site.world.ports_of("operator"),
        &[landing::wakeup(&ordered)],
    ));
    let given = NextFate::default();
    sim.site.world.decide_fates(one_call_at_a_time(given.clone()));
    // More often than all reports of the change need.
    for _ in 0..10 {
        sim.handle(MessageQueue::Reports);
        while !sim.tasks.is_empty() {
            *given.lock().unwrap() = Some(Fate::Works);
            sim.poll(0)?;
            sim.check_written()?;
        }
    }
    Ok(sim.site.forge.merge_count() > 0)
}

/// C2, Z6.4: a landing merges nothing if its branch lock had another holder in between, and the
/// watch would notice such a merge.
#[test]
fn a_landing_with_an_outdated_fence_merges_nothing_and_would_be_noticed() {
    match land_overtaken(None) {
        Ok(has_merged) => assert!(!has_merged, "it was merged"),
        Err(failure) => panic!("{failure}"),
    }
    let noticed = land_overtaken(Some(Mutation::NoFence))
        .expect_err("a landing without a fence is not noticed");
    assert!(noticed.why.contains("whose lock was acquired again"), "{}", noticed.why);
}
