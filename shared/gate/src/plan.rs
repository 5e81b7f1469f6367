//! One look at a queue: a snapshot of the whole cell goes in, a plan with its reasons comes out.
//!
//! The steps, in order: see what merger, executors and landings answered ([`observe`]), take
//! operators' words ([`operators`]) and what else arrived ([`admit`]), put every item behind the
//! nearest one that may pass ([`align`]), land, report and remove what is over ([`finish`],
//! [`reporters`]), then ask for what is missing ([`advance`]).

mod admit;
mod advance;
mod align;
mod cycles;
mod finish;
mod forward;
mod graph;
mod guests;
mod limits;
mod observe;
mod operators;
mod provided;
mod reporters;
mod semaphores;
mod sharing;
#[cfg(test)]
mod tests;
mod turns;
mod withheld;

pub use cycles::CYCLE_MAX;
pub use guests::{Door, make_way, told_of};
pub use limits::ChangesLimit;
pub use sharing::may_be_one;

use crate::arrival::Arrival;
use crate::health::Health;
use crate::item::{Ask, Item};
use crate::items::Items;
use crate::landing::Landing;
use crate::merge::MergeOutcome;
use crate::provided::Provided;
use crate::queue::{Head, Slot, Standing};
use crate::report::{Report, ReportState};
use crate::semaphore::{Asked, Semaphore, SemaphoreKey};
use crate::turn::{Turn, TurnSeen};
use observe::Decided;
use semaphores::InLine;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use sluice_config::pipeline::{Manager, Pipeline};
use sluice_model::build::{BuildResult, Ended, RequestRef};
use sluice_model::change::{ChangeKey, ChangeRef};
use sluice_model::event::ZuulEvent;
use sluice_model::git::{BranchKey, MergeMode, Oid};
use sluice_model::{
    ArrivalId, BuildId, ItemId, JobName, LabelName, PipelineName, ProviderName, QueueKey,
    QueueName, Timestamp,
};
use std::collections::{BTreeMap, BTreeSet};

/// Records that one plan may write besides the head; a transaction holds 100.
pub const RECORDS_MAX: usize = 90;

/// Seconds after which a queue that waits for somebody is looked at without being poked.
pub const LOOK_SECONDS: u64 = 30;

/// Everything a decision about one queue may read.
pub struct Snapshot<'a> {
    /// The head.
    pub head: Head,
    /// The items' records.
    pub items: Items,
    /// What waits to be taken in, oldest first.
    pub arrivals: Vec<Arrival>,
    /// The merger's answers to open questions.
    pub outcomes: BTreeMap<ItemId, MergeOutcome>,
    /// What is known of builds under way.
    pub runs: BTreeMap<BuildId, RunSeen>,
    /// Landings that were ordered.
    pub landings: BTreeMap<ItemId, Landing>,
    /// How far reports are that the last jobs of items wait for ([`crate::item::Reporting`]).
    pub reports: BTreeMap<ItemId, ReportState>,
    /// What changes provide that items need and that stand in other queues, where any of it is
    /// known.
    pub provided: BTreeMap<ChangeRef, Provided>,
    /// The own queues of changes that stand here as guests, and of others than its own that this
    /// queue is told of. They are the doors by which a change comes to another queue and goes back:
    /// each says where its change stands, and is written as that changes.
    pub doors: BTreeMap<ChangeKey, Door>,
    /// The pipeline as the live layout has it; `None` when the layout no longer has it.
    pub pipeline: Option<&'a Pipeline>,
    /// Semaphores that the head lists or that waiting jobs name, where they were ever used.
    pub semaphores: BTreeMap<SemaphoreKey, Semaphore>,
    /// Whose turn it is on the branches that the next landings need, where anything ever landed
    /// there.
    pub turns: BTreeMap<BranchKey, TurnSeen>,
    /// Queues in line for a semaphore that cannot come: nothing stands in them, or they are frozen.
    pub gone: BTreeSet<QueueKey>,
    /// Builds that hold a semaphore which a build with its nodes in hand waits for, and that are
    /// not at work, each with since when: nobody has begun them, or they are paused.
    pub idle: BTreeMap<BuildId, Timestamp>,
    /// Which semaphore a job means by a name, and how many may hold it.
    pub semaphore: &'a dyn Fn(&str) -> (SemaphoreKey, u32),
    /// Which queue of a pipeline a change belongs to by the live layout; none where that has no
    /// such pipeline.
    pub queue_of: &'a dyn Fn(&PipelineName, &ChangeRef) -> Option<QueueKey>,
    /// How each project's changes are merged.
    pub merge_mode: &'a dyn Fn(&BranchKey) -> MergeMode,
    /// Which provider serves a set of labels, and none if no provider can.
    pub provider: &'a dyn Fn(&[LabelName]) -> Option<ProviderName>,
    /// How many changes the pipeline may hold; `None` for any number.
    pub changes: Option<ChangesLimit>,
    /// The failures of the pipeline, where it is to be disabled after too many.
    pub health: Option<Health>,
    /// What operators hold back.
    pub hold: Hold,
    /// What of that which happens here starts other changes in some pipeline of the tenant.
    pub tells: Vec<ZuulEvent>,
    /// The numbers of the layout that is wanted and of the one that is live.
    pub layout: LayoutNumbers,
    /// Where a person looks at an item; the item's id is appended.
    pub web_root: String,
}

/// A tenant's layout numbers; while they differ nothing is admitted and nothing lands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LayoutNumbers {
    /// Raised by each landing that touches configuration.
    pub wanted: u64,
    /// What everything is frozen under.
    pub live: u64,
}

/// What operators hold back of a tenant's events.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Hold {
    /// What would enter is dropped, unless an operator has it enqueued.
    pub discards: bool,
    /// What arrives waits, operators' words excepted.
    pub pauses: bool,
    /// What merger and executors answer waits.
    pub results: bool,
}

/// What is known of a build under way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RunSeen {
    /// No provider can give its nodes, for this reason.
    NoNodes(String),
    /// Its nodes are ready, and its queue is to send it.
    NodesReady,
    /// An executor has it.
    Running {
        /// When it claimed it.
        started_at: Option<Timestamp>,
        /// Whether it is known by now that it will fail.
        pre_fail: bool,
    },
    /// Its executor keeps it until the jobs behind it are over.
    Paused {
        /// When it was claimed.
        started_at: Option<Timestamp>,
        /// What it returned so far.
        data: Map<String, Value>,
    },
    /// It is over.
    Ended(Ended),
    /// It was told to stop before anybody began it, and nobody will.
    NeverBegun,
    /// Its executor is gone.
    Lost {
        /// What is known of how.
        why: String,
    },
}

/// What to write and whom to poke. Carrying it out has no choices left.
#[derive(Debug, Default)]
pub struct Plan {
    /// What was decided and why, for logs.
    pub reasons: Vec<String>,
    /// The head as it is to be.
    pub head: Option<Head>,
    /// Items to write.
    pub items: BTreeMap<ItemId, Item>,
    /// Items that leave.
    pub removed: Vec<Removed>,
    /// Items that have succeeded and stay for the jobs that run after their reports: how they ended
    /// is known.
    pub reported: Vec<Removed>,
    /// Arrivals that were taken in.
    pub taken: Vec<ArrivalId>,
    /// Offers that wait on, and say from now on that they are taken up ([`Arrival::taken_up`]).
    pub taken_up: BTreeSet<ArrivalId>,
    /// Builds to order.
    pub orders: Vec<OrderDraft>,
    /// Builds to stop.
    pub stops: Vec<Stop>,
    /// Builds to send to the executors: they have their nodes, and their semaphores by this plan.
    pub sends: Vec<(BuildId, RequestRef)>,
    /// Builds without nodes that are sent to the executors once more: nobody has claimed them for
    /// long.
    pub again: Vec<BuildId>,
    /// Paused builds that go on: the jobs behind them are over.
    pub resumes: Vec<BuildId>,
    /// Landings to order.
    pub landings: Vec<Landing>,
    /// Landings that are over before anybody began them, each on condition that it is as it was
    /// read.
    pub withdrawn: Vec<Landing>,
    /// Semaphores to write, each on condition that it is as it was read.
    pub semaphores: Vec<Semaphore>,
    /// Branches that are taken, let go or waited for, each on condition that it is as it was read.
    pub turns: Vec<Turn>,
    /// The failures of the pipeline, on condition that they are as they were read.
    pub health: Option<Health>,
    /// What happened that may start other changes, with the item that it happened to.
    pub happened: Vec<(ZuulEvent, ItemId, ChangeRef)>,
    /// What other queues of the tenant are told, each as something that arrives there.
    pub forwards: Vec<(QueueKey, Arrival)>,
    /// What the own queues of guests say from now on of where those stand, each on condition that
    /// it is as it was read.
    pub doors: BTreeMap<ChangeKey, Option<QueueName>>,
    /// Queues to be looked at, since a semaphore that they wait for has a place, or a branch is
    /// free.
    pub wake: Vec<QueueKey>,
    /// Reports to make.
    pub reports: Vec<Report>,
    /// Questions for the merger: item and generation.
    pub asks: Vec<(ItemId, u64)>,
    /// Landings to be poked again, their queue having waited long.
    pub reminders: Vec<ItemId>,
    /// Whether a layout is wanted that does not exist yet.
    pub wants_layout: bool,
    /// Whether the tenant is to be looked at.
    pub poke_tenant: bool,
    /// When to look again without being poked.
    pub due: Option<Timestamp>,
}

impl Plan {
    /// Returns whether there is nothing to write.
    pub fn is_empty(&self) -> bool {
        self.head.is_none()
            && self.items.is_empty()
            && self.removed.is_empty()
            && self.taken.is_empty()
            && self.taken_up.is_empty()
            && self.orders.is_empty()
            && self.stops.is_empty()
            && self.resumes.is_empty()
            && self.landings.is_empty()
            && self.withdrawn.is_empty()
            && self.semaphores.is_empty()
            && self.turns.is_empty()
            && self.forwards.is_empty()
            && self.doors.is_empty()
            && self.reports.is_empty()
    }
}

/// An item that leaves its queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Removed {
    /// The item as it was at the end.
    pub item: Item,
    /// How its buildset ended, in Zuul's words: `SUCCESS`, `FAILURE`, `MERGE_CONFLICT`,
    /// `MERGE_FAILURE`, `CONFIG_ERROR`, `NO_JOBS`, `DEQUEUED`.
    pub result: &'static str,
    /// Why, for people.
    pub why: String,
}

/// A build to order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OrderDraft {
    /// The build.
    pub build: BuildId,
    /// The item it is for.
    pub item: ItemId,
    /// Its speculative state.
    pub generation: u64,
    /// The job.
    pub job: JobName,
    /// Which attempt, from 1.
    pub attempt: u32,
    /// Attempts in all.
    pub max_attempts: u32,
    /// Whether the result counts.
    pub voting: bool,
    /// The object with the job graph.
    pub graph: String,
    /// The object with the tested state.
    pub speculation: String,
    /// The change.
    pub change: ChangeRef,
    /// The event.
    pub event_id: String,
    /// The commit by which the change is in its branch by now.
    pub merge_commit: Option<Oid>,
    /// Builds whose returned data it is given, the nearest last.
    pub parents: Vec<BuildId>,
    /// Builds of changes ahead whose artifacts it is given, the nearest first.
    pub providers: Vec<BuildId>,
    /// Which of the job's nodesets is asked for, from 0.
    pub nodeset: u32,
    /// Labels of the nodes it needs.
    pub labels: Vec<LabelName>,
    /// Whether its queue sends it to the executors, and not its provider.
    pub nodes_first: bool,
    /// Where to ask for them; `None` when it needs none.
    pub request: Option<RequestRef>,
}

/// A build to stop.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stop {
    /// The build.
    pub build: BuildId,
    /// Its request for nodes, which is withdrawn.
    pub request: Option<RequestRef>,
    /// Why.
    pub why: String,
    /// Whether its executor is dead: nobody stops it any more, and its nodes are free at once.
    pub lost: bool,
}

/// Decides what happens next in one queue.
pub fn plan(snapshot: Snapshot<'_>, now: Timestamp) -> Plan {
    let mut work = Work::new(snapshot, now);
    if !work.follow_layout() {
        return work.into_plan();
    }
    if let Some(to) = work.head.stands_in.clone() {
        work.send_all_on(&to);
        // Nothing stands here that could wait for one, or hold one any more.
        work.settle_semaphores();
        return work.into_plan();
    }
    work.freeze_again();
    if !work.carry_out_resets(Decided::Before) {
        // The transaction is full of what was decided before. Whatever else there is to decide is
        // decided when that is written, also where the queue is frozen: the word that lets it go on
        // may wait behind it.
        return Plan { due: Some(now), ..work.into_plan() };
    }
    if !work.snapshot.hold.results {
        work.observe();
    }
    work.hear_operators();
    work.admit();
    work.leave_without_pipeline();
    // Each removal may move what is behind it; there are no more rounds than items.
    for _ in 0..=work.head.slots.len() {
        work.align();
        if !work.finish() {
            break;
        }
    }
    work.carry_out_resets(Decided::Now);
    work.advance();
    work.list_unclaimed();
    work.settle_semaphores();
    work.settle_turns();
    work.left_over |= work.may_admit_more();
    match work.has_unheard_word() {
        true => Plan { due: Some(now), ..work.into_plan() },
        false => work.into_plan(),
    }
}

/// A plan in the making.
pub(crate) struct Work<'a> {
    pub(crate) snapshot: Snapshot<'a>,
    pub(crate) now: Timestamp,
    pub(crate) head: Head,
    /// Where in the queue this plan is, so that what stands there is not looked for.
    at: usize,
    items: Items,
    touched: BTreeSet<ItemId>,
    /// Why items are given another state to be tested on by this plan. It is written down with
    /// their resets: nothing is written for the reason alone.
    moved: BTreeMap<ItemId, String>,
    plan: Plan,
    left_over: bool,
    /// Semaphores as this plan leaves them, those it touches.
    semaphores: BTreeMap<SemaphoreKey, Semaphore>,
    /// The failures of the pipeline as this plan leaves them.
    pub(crate) health: Option<Health>,
    /// Semaphores that jobs here wait for, each with when those asked that wait longest.
    waits: BTreeMap<SemaphoreKey, Asked>,
    /// The jobs that wait, in the order of the queue.
    line: Vec<InLine>,
    /// Branches as this plan leaves them, those it touches.
    turns: BTreeMap<BranchKey, Turn>,
    /// Branches that something here waits to land on and another queue has or is to have first.
    in_line: BTreeSet<BranchKey>,
}

impl<'a> Work<'a> {
    fn new(mut snapshot: Snapshot<'a>, now: Timestamp) -> Self {
        let items = std::mem::take(&mut snapshot.items);
        Self {
            head: snapshot.head.clone(),
            at: 0,
            health: snapshot.health.clone(),
            snapshot,
            now,
            items,
            touched: BTreeSet::new(),
            moved: BTreeMap::new(),
            plan: Plan::default(),
            left_over: false,
            semaphores: BTreeMap::new(),
            waits: BTreeMap::new(),
            line: Vec::new(),
            turns: BTreeMap::new(),
            in_line: BTreeSet::new(),
        }
    }

    /// Returns whether `records` more fit into the transaction; otherwise the rest is left for the
    /// next look.
    fn has_room(&mut self, records: usize) -> bool {
        let fits = self.used() + records <= RECORDS_MAX;
        self.left_over |= !fits;
        fits
    }

    fn used(&self) -> usize {
        let plan = &self.plan;
        // A stop is one record. What an item provides, where changes are queues of their own, may
        // be written with it.
        let of_stop = if is_dependent(&self.snapshot.head) { 1 } else { 2 };
        self.touched.len()
            + plan.removed.len() * 4
            + plan.reported.len()
            + plan.taken.len()
            + plan.taken_up.len()
            + plan.orders.len() * 2
            + plan.stops.len() * of_stop
            + plan.resumes.len()
            + plan.landings.len()
            + plan.withdrawn.len()
            + plan.reports.iter().map(Report::records_count).sum::<usize>()
            + plan.happened.len()
            + plan.forwards.len()
            + self.door_records()
            + self.semaphores.len()
            + self.turns.len()
            + self.passed_by()
            + usize::from(plan.wants_layout)
            + usize::from(self.health.is_some())
    }

    /// Returns the position of an item; where this plan is just looking it is not searched for.
    fn position(&self, id: &ItemId) -> Option<usize> {
        let is_here = self.head.slots.get(self.at).is_some_and(|slot| slot.id == *id);
        if is_here { Some(self.at) } else { self.head.position(id) }
    }

    fn item(&mut self, id: &ItemId) -> Option<&mut Item> {
        self.touched.insert(id.clone());
        self.items.get_mut(id)
    }

    /// Remembers a reason; where the transaction is full it is in the log alone.
    fn note(&mut self, id: &ItemId, reason: String) {
        let is_written = self.touched.contains(id) || self.used() < RECORDS_MAX;
        // What is not written is not copied either.
        if is_written && let Some(item) = self.items.get_mut(id) {
            // Not by their number: of a full list the oldest goes.
            let before = item.reasons.last().cloned();
            item.note(reason.clone());
            if item.reasons.last() != before.as_ref() {
                self.touched.insert(id.clone());
            }
        }
        self.plan.reasons.push(reason);
    }

    /// Tells what happened to a change, where that may start others.
    fn tell(&mut self, what: ZuulEvent, id: &ItemId, change: &ChangeRef) {
        if self.snapshot.tells.contains(&what) && change.key.number().is_some() {
            self.plan.happened.push((what, id.clone(), change.clone()));
        }
    }

    fn is_settling(&self) -> bool {
        self.snapshot.layout.wanted > self.snapshot.layout.live
    }

    /// Stops an item's builds. Returns false when some are left for the next plan, since the
    /// transaction is full.
    fn stop_builds(&mut self, id: &ItemId, why: &str) -> bool {
        let jobs = self.items.get(id).map_or(0, |item| item.jobs.len());
        for at in 0..jobs {
            if !self.items.get(id).is_some_and(|item| item.jobs[at].is_under_way()) {
                continue;
            }
            if !self.has_room(3) {
                return false;
            }
            let Some(job) = self.items.get_mut(id).and_then(|item| item.jobs.get_mut(at)) else {
                continue;
            };
            if let Some(build) = job.build.clone() {
                self.plan.stops.push(Stop {
                    build,
                    request: job.request.take(),
                    why: why.to_owned(),
                    lost: false,
                });
            }
            job.status = graph::ended(BuildResult::Aborted, Some(why.to_owned()), self.now);
            self.touched.insert(id.clone());
        }
        true
    }

    /// Returns whether what is known of an item comes from the layout that the queue is at.
    fn is_frozen_now(&self, item: &Item) -> bool {
        item.layout == self.head.layout
    }

    /// Moves the queue to the live layout. Returns false while changes that belong to other queues
    /// by it are still to be sent there.
    fn follow_layout(&mut self) -> bool {
        if self.is_settling() || self.head.layout == self.snapshot.layout.live {
            return true;
        }
        if self.head.frozen.is_some() && self.has_to_move() {
            return true; // Nothing moves; when an operator has looked, it follows.
        }
        if !self.move_to_other_queues() || !self.part() {
            return false;
        }
        self.head.layout = self.snapshot.layout.live;
        if let Some(pipeline) = self.snapshot.pipeline {
            self.head.manager = pipeline.manager;
            if !pipeline.window.is_limited() {
                self.head.window = 0;
            } else if self.head.window == 0 || self.head.slots.is_empty() {
                self.head.window = pipeline.window.initial;
            }
        }
        true
    }

    /// Has items of an older layout frozen again; builds whose job and tested tree are unchanged
    /// live on (R01). A long queue needs several plans for it: until its turn comes, an item of an
    /// older layout neither orders, lands nor leaves.
    fn freeze_again(&mut self) {
        for at in 0..self.head.slots.len() {
            let slot = &self.head.slots[at];
            let is_older = |item: &Item| item.ask != Ask::No && !self.is_frozen_now(item);
            if slot.standing.is_decided() || !self.items.get(&slot.id).is_some_and(is_older) {
                continue;
            }
            let id = slot.id.clone();
            if !self.has_room(1) {
                return;
            }
            if let Some(item) = self.item(&id) {
                item.ask = Ask::No;
                item.note("the tenant's configuration changed: its jobs are frozen again");
            }
        }
    }

    fn into_plan(self) -> Plan {
        let mut plan = self.plan;
        let (mut items, mut head) = (self.items, self.head);
        for id in self.touched {
            if let Some(mut item) = items.remove(&id) {
                item.version += 1;
                plan.items.insert(id, item);
            }
        }
        for slot in head.slots.iter_mut().filter(|_| !plan.items.is_empty()) {
            if let Some(item) = plan.items.get(&slot.id) {
                slot.version = item.version;
            }
        }
        let known = &self.snapshot.semaphores;
        plan.semaphores = (self.semaphores.into_values())
            .filter(|semaphore| {
                known
                    .get(&semaphore.key)
                    .map_or(!semaphore.is_unused(), |before| before != semaphore)
            })
            .collect();
        let before = |turn: &Turn| self.snapshot.turns.get(&turn.branch).map(|seen| &seen.turn);
        plan.turns = (self.turns.into_values())
            .filter(|turn| before(turn).map_or(!turn.is_unused(), |before| before != turn))
            .collect();
        let doors = &self.snapshot.doors;
        plan.doors.retain(|key, to| doors.get(key).is_none_or(|door| door.stands_in != *to));
        plan.health = self.health.filter(|health| self.snapshot.health.as_ref() != Some(health));
        let is_idle = head.slots.is_empty() && head.semaphores.is_empty();
        let waits = !is_idle || !self.snapshot.arrivals.is_empty();
        let seconds = if self.left_over { 0 } else { LOOK_SECONDS };
        plan.due = (waits && head.frozen.is_none()).then(|| self.now.plus_seconds(seconds));
        plan.head = (head != self.snapshot.head).then_some(head);
        plan
    }
}

fn is_dependent(head: &Head) -> bool {
    head.manager == Manager::Dependent
}

/// Returns the item's id: the same change revision arriving by the same event in the same queue is
/// the same item.
pub(crate) fn item_id(head: &Head, change: &ChangeRef, arrival: &Arrival) -> ItemId {
    ItemId::derive(&[
        &head.key.to_string(),
        &change.key.to_string(),
        change.head.as_str(),
        arrival.id.as_str(),
    ])
}

fn new_slot(id: ItemId, change: ChangeRef) -> Slot {
    Slot {
        id,
        change,
        generation: 1,
        ahead: None,
        standing: Standing::Waiting,
        joined: false,
        version: 0,
    }
}
