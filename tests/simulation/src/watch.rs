//! What must hold after every write, whoever made it: each record against the one before, each
//! transaction against the rest.

mod artifacts;
mod discards;
mod few_needs;
mod follows;
mod graphs;
mod guests;
mod health;
mod holds;
mod kinds;
mod landings;
mod last_jobs;
mod mails;
mod nodesets;
mod pauses;
mod publications;
mod room;
#[cfg(test)]
mod tests;
mod windows;
mod words;

use self::kinds::{Kind, kind};
use crate::locks::Locks;
use crate::plays::Play;
use crate::shape::Shape;
use sluice_config::pipeline::Manager;
use sluice_gate::queue::{Slot, Standing};
use sluice_gate::{Head, Item, Landing, LandingState, StoredHead};
use sluice_memory::Written;
use sluice_model::build::{Order, Phase, Run};
use sluice_model::change::{ChangeKey, ChangeRef};
use sluice_model::git::{BranchKey, LandingWay, Oid};
use sluice_model::{BuildId, ItemId, QueueKey, SessionId, Timestamp};
use sluice_pool::{Launch, Node, NodeState};
use sluice_records::codec::decode;
use sluice_records::delivery::{Delivery, DeliveryState};
use sluice_records::report::Buildset;
use sluice_runtime::record::{Key, Record};
use std::collections::{BTreeMap, BTreeSet};

/// What is known of the store from its writes.
pub struct Watch {
    /// Queues as they stand.
    pub heads: BTreeMap<QueueKey, Head>,
    /// Queues that the transaction which is looked at writes.
    written: BTreeSet<QueueKey>,
    /// Items that these held before that.
    former: BTreeSet<ItemId>,
    /// Those of them that were landing, or had landed.
    former_landing: BTreeSet<ItemId>,
    /// Items that the transaction which is looked at removes.
    left: Vec<Item>,
    /// Items in queues.
    pub items: BTreeMap<ItemId, Item>,
    /// Sizes of windows before the last write of their queues.
    former_windows: BTreeMap<QueueKey, u32>,
    /// What the seed chose.
    shape: Shape,
    /// Landings under way, by branch.
    pub landing: BTreeMap<BranchKey, BTreeMap<Key, Landing>>,
    /// Revisions that queues had put into their branches by moving those to the tested commits.
    pushed: BTreeSet<(QueueKey, ChangeKey, Oid)>,
    /// Under which fence each branch was taken last.
    fences: BTreeMap<Key, u64>,
    /// Deliveries that have not ended, with when they came.
    pub open_deliveries: BTreeMap<Key, Timestamp>,
    /// Deliveries that came.
    pub deliveries: u64,
    locks: Locks,
    gone: BTreeSet<Key>,
    runs: BTreeMap<BuildId, (SessionId, bool)>,
    stopped: BTreeSet<BuildId>,
    /// Paused builds that were told to go on.
    resumed: BTreeSet<BuildId>,
    nodes: BTreeMap<Key, Option<BuildId>>,
    machines: BTreeSet<Key>,
    artifacts: artifacts::Artifacts,
    holds: holds::Holds,
    pauses: pauses::Pauses,
    last_jobs: last_jobs::LastJobs,
    mails: mails::Mails,
    nodesets: nodesets::Nodesets,
    publications: publications::Publications,
    room: room::Room,
    /// Jobs that failed after their reports while something behind was tested.
    pub tested_again: u64,
}

/// What a write shows that others want to know.
#[derive(Debug)]
pub enum News {
    /// An item stands in a queue, behind these changes, and whether it is to leave again: what it
    /// needs left by the same decision.
    Entered(Box<Item>, QueueKey, Vec<ChangeRef>, bool),
    /// An item has left.
    Left(Box<Buildset>),
    /// A landing was ordered, moved on or ended.
    Landing(Box<Landing>),
    /// A build is ordered that comes after its change's report, with an earlier one of the same
    /// that came to its end.
    AfterReport(Box<Order>, Option<BuildId>),
    /// An item that was told left since its last jobs are over.
    Over(Box<Buildset>),
    /// A change was offered to a queue whose pipeline had no room for it.
    NoRoom(Box<ChangeRef>, QueueKey),
    /// Worth a line.
    Line(String),
}

impl Watch {
    /// Returns a watch over a site.
    pub fn new(shape: &Shape) -> Self {
        Self {
            shape: shape.clone(),
            locks: Locks::new(shape.semaphore_max as usize),
            heads: BTreeMap::new(),
            written: BTreeSet::new(),
            former: BTreeSet::new(),
            former_landing: BTreeSet::new(),
            left: Vec::new(),
            items: BTreeMap::new(),
            former_windows: BTreeMap::new(),
            landing: BTreeMap::new(),
            pushed: BTreeSet::new(),
            fences: BTreeMap::new(),
            open_deliveries: BTreeMap::new(),
            deliveries: 0,
            gone: BTreeSet::new(),
            runs: BTreeMap::new(),
            stopped: BTreeSet::new(),
            resumed: BTreeSet::new(),
            nodes: BTreeMap::new(),
            machines: BTreeSet::new(),
            artifacts: artifacts::Artifacts::default(),
            holds: holds::Holds::default(),
            pauses: pauses::Pauses::default(),
            last_jobs: last_jobs::LastJobs::default(),
            mails: mails::Mails::default(),
            nodesets: nodesets::Nodesets::default(),
            publications: publications::Publications::default(),
            room: room::Room::default(),
            tested_again: 0,
        }
    }

    /// Looks at writes in their order.
    ///
    /// # Errors
    /// What must not be, in words.
    pub fn see(&mut self, written: &[Written]) -> Result<Vec<News>, String> {
        let mut news = Vec::new();
        for transaction in written.chunk_by(|a, b| a.transaction == b.transaction) {
            self.left.clear();
            self.written.clear();
            self.former.clear();
            self.former_landing.clear();
            for write in transaction {
                self.see_one(write, &mut news).map_err(|why| told(write, &why))?;
            }
            for write in transaction {
                self.see_together(write, transaction, &mut news)
                    .map_err(|why| told(write, &why))?;
            }
            self.guests()?;
            self.has_room(transaction, &mut news)?;
            Self::leave_as_one(transaction)?;
        }
        Ok(news)
    }

    fn see_one(&mut self, write: &Written, news: &mut Vec<News>) -> Result<(), String> {
        let Some(key) = key_of(write) else { return Ok(()) };
        let kind = kind(key);
        self.follows(write, key, kind)?;
        let (before, after) = (write.before.as_ref(), write.after.as_ref());
        match kind {
            Kind::Delivery => self.delivery(key, before, after, news),
            Kind::Item => self.item(before, after),
            Kind::Landing => self.landing(key, before, after, news),
            Kind::Order => follows::same(before, after, "an order is written once"),
            Kind::Merge => follows::same_outcome(before, after),
            Kind::Report => self.report(before, after),
            Kind::Run => self.run(before, after, news),
            Kind::Stop => {
                self.stopped.extend(build_of(key));
                Ok(())
            }
            Kind::Buildset => self.buildset(before, after, news),
            Kind::Tenant => {
                self.pauses.said(read(after)?, write.at);
                follows::tenant(before, after, news)
            }
            Kind::Node => self.node(key, after),
            Kind::Request => self.request(before, after),
            Kind::Autohold => self.holds.written(key, read(after)?),
            Kind::Semaphore => {
                read(after)?.map_or(Ok(()), |semaphore| self.locks.written(key, semaphore))
            }
            Kind::Quarantine => Err("nothing may go to quarantine".to_owned()),
            Kind::Frozen => Err(format!(
                "a cell was frozen: {}",
                after.map_or("", |record| record.body.as_str())
            )),
            Kind::Resume => {
                self.resumed.extend(build_of(key));
                Ok(())
            }
            Kind::Turn => self.taken(key, after),
            Kind::Queue
            | Kind::Arrival
            | Kind::Provider
            | Kind::Health
            | Kind::Told
            | Kind::Other => Ok(()),
        }
    }

    /// Revisions grow by one, what is gone stays gone.
    fn follows(&mut self, write: &Written, key: &Key, kind: Kind) -> Result<(), String> {
        match (&write.before, &write.after) {
            (Some(before), Some(after)) => {
                if after.revision < before.revision {
                    return Err(format!(
                        "its revision falls from {} to {}",
                        before.revision, after.revision
                    ));
                }
                if kind.is_ruled() {
                    let is_strike = after.revision == before.revision && after.body == before.body;
                    if !is_strike && after.revision != before.revision + 1 {
                        return Err(format!(
                            "somebody wrote revision {} over revision {} without having seen it",
                            after.revision, before.revision
                        ));
                    }
                }
                Ok(())
            }
            (None, Some(_)) if kind.is_mortal() && self.gone.contains(key) => {
                Err("it is brought back".to_owned())
            }
            (Some(_), None) if kind.is_mortal() => {
                self.gone.insert(key.clone());
                Ok(())
            }
            (Some(_), None) if kind.is_for_good() => Err("it is removed, and must stay".to_owned()),
            _ => Ok(()),
        }
    }

    fn delivery(
        &mut self,
        key: &Key,
        before: Option<&Record>,
        after: Option<&Record>,
        news: &mut Vec<News>,
    ) -> Result<(), String> {
        let (before, after) = both::<Delivery>(before, after)?;
        let Some(after) = after else { return Ok(()) };
        match before {
            Some(before) if before.state.is_final() && before.state != after.state => {
                return Err(format!(
                    "a delivery had ended as {:?} and is {:?} now",
                    before.state, after.state
                ));
            }
            None => self.deliveries += 1,
            _ => {}
        }
        if after.state.is_final() {
            self.open_deliveries.remove(key);
            let effects = match &after.state {
                DeliveryState::Handled { effects, .. } => effects.join("; "),
                other => format!("{other:?}"),
            };
            news.push(News::Line(format!(
                "{} ({}) has ended: {effects}",
                after.forge_id, after.event_name
            )));
        } else {
            self.open_deliveries.insert(key.clone(), after.received_at);
        }
        Ok(())
    }

    fn item(&mut self, before: Option<&Record>, after: Option<&Record>) -> Result<(), String> {
        let (before, after) = both::<Item>(before, after)?;
        match (before, after) {
            (Some(before), Some(after)) if after.generation < before.generation => Err(format!(
                "its generation falls from {} to {}",
                before.generation, after.generation
            )),
            (_, Some(after)) => {
                self.items.insert(after.id.clone(), after);
                Ok(())
            }
            (Some(before), None) => {
                self.left.extend(self.items.remove(&before.id));
                Ok(())
            }
            (None, None) => Ok(()),
        }
    }

    fn landing(
        &mut self,
        key: &Key,
        before: Option<&Record>,
        after: Option<&Record>,
        news: &mut Vec<News>,
    ) -> Result<(), String> {
        let (before, after) = both::<Landing>(before, after)?;
        let Some(after) = after else { return Ok(()) };
        self.begins(before.as_ref(), &after)?;
        self.remember_push(&after);
        if let Some(before) = before {
            let may_follow = match (&before.state, &after.state) {
                (LandingState::Ended { .. }, _) => before.state == after.state,
                // A push that was refused was not begun.
                (LandingState::Attempting { .. }, LandingState::Wanted) => {
                    before.way == LandingWay::FastForward && after.way == LandingWay::Merge
                }
                _ => true,
            };
            if !may_follow {
                return Err(format!(
                    "a landing was {:?} and is {:?} now",
                    before.state, after.state
                ));
            }
        }
        let branch = BranchKey {
            project: after.change.key.project.clone(),
            branch: after.change.branch.clone(),
        };
        let under_way = self.landing.entry(branch).or_default();
        match after.state {
            LandingState::Ended { .. } => under_way.remove(key),
            _ => under_way.insert(key.clone(), after.clone()),
        };
        // What may be a run is looked at when it is ordered.
        if under_way.len() > 1 && !self.shape.has(Play::Forward) {
            let changes: Vec<String> =
                under_way.values().map(|landing| landing.change.to_string()).collect();
            return Err(format!("{} land on one branch at once", changes.join(" and ")));
        }
        news.push(News::Landing(Box::new(after)));
        Ok(())
    }

    fn run(
        &mut self,
        before: Option<&Record>,
        after: Option<&Record>,
        news: &mut Vec<News>,
    ) -> Result<(), String> {
        let (before, after) = both::<Run>(before, after)?;
        let Some(after) = after else { return Ok(()) };
        match &before {
            Some(before) if before.session != after.session => {
                return Err(format!("{} takes it from {}", after.session, before.session));
            }
            Some(before)
                if matches!(before.phase, Phase::Ended(_)) && before.phase != after.phase =>
            {
                return Err("a run had ended and goes on".to_owned());
            }
            None if self.stopped.contains(&after.build) => {
                return Err(format!("{} claims it though it was to stop", after.session));
            }
            None => {
                self.locks.claimed(&after.build).and_then(|()| self.has_its_nodes(&after.build))?
            }
            Some(before) => self.goes_on(before, &after)?,
        }
        if let Phase::Ended(ended) = &after.phase {
            self.last_jobs.ended(&after.build, ended.result);
            self.artifacts.ended(&after.build, ended.result);
            self.holds.ended(&after.build, ended.result);
        }
        let is_over = matches!(after.phase, Phase::Ended(_));
        let line = match &after.phase {
            Phase::Ended(ended) => {
                format!("{} ends build {}: {}", after.session, after.build, ended.result)
            }
            _ if before.is_none() => format!("{} claims build {}", after.session, after.build),
            phase => format!("{} says of build {}: {phase:?}", after.session, after.build),
        };
        news.push(News::Line(line));
        self.runs.insert(after.build, (after.session, is_over));
        Ok(())
    }

    fn buildset(
        &mut self,
        before: Option<&Record>,
        after: Option<&Record>,
        news: &mut Vec<News>,
    ) -> Result<(), String> {
        let (before, after) = both::<Buildset>(before, after)?;
        let Some(after) = after else { return Ok(()) };
        match before {
            Some(before) if before.result != after.result => {
                Err(format!("an item left as {} and leaves as {}", before.result, after.result))
            }
            Some(_) => Ok(()),
            None => {
                news.push(News::Left(Box::new(after)));
                Ok(())
            }
        }
    }

    fn node(&mut self, key: &Key, after: Option<&Record>) -> Result<(), String> {
        let Some(after): Option<Node> = read(after)? else {
            self.nodes.remove(key);
            self.machines.remove(key);
            return Ok(());
        };
        let owner = after.allocated_to.as_ref().map(|allocation| allocation.build.clone());
        let former = self.nodes.insert(key.clone(), owner.clone()).flatten();
        if let Some(former) =
            former.filter(|former| owner.as_ref().is_some_and(|owner| owner != former))
            && !self.is_over(&former)
        {
            return Err(format!("it goes from {former}, which runs, to {owner:?}"));
        }
        // A place that is reserved takes no quota until its launch is intended.
        if after.state == NodeState::Requested(Launch::Reserved) {
            self.machines.remove(key);
        } else {
            self.machines.insert(key.clone());
        }
        Ok(())
    }

    fn is_over(&self, build: &BuildId) -> bool {
        self.stopped.contains(build) || self.runs.get(build).is_none_or(|(_, is_over)| *is_over)
    }

    /// What is true of a transaction as a whole.
    fn see_together(
        &mut self,
        write: &Written,
        transaction: &[Written],
        news: &mut Vec<News>,
    ) -> Result<(), String> {
        let Some(key) = key_of(write) else { return Ok(()) };
        match (kind(key), &write.after) {
            (Kind::Queue, Some(record)) => {
                let stored: StoredHead = decode(record).map_err(|bad| bad.to_string())?;
                let head =
                    stored.whole(|id| self.items.get(id)).map_err(|torn| torn.to_string())?;
                let before = self.heads.get(&head.key).cloned();
                self.window(before.as_ref(), &head, transaction)?;
                self.queue(before, head, news)
            }
            (Kind::Arrival, None) => {
                self.may_be_heard(write, transaction).and_then(|()| self.word(write, transaction))
            }
            (Kind::Item, Some(_)) => self.may_be_answered(write),
            (Kind::Node, Some(_)) if self.machines.len() > self.shape.instances as usize => {
                let (count, most) = (self.machines.len(), self.shape.instances);
                Err(format!("{count} machines may exist, and {most} are allowed"))
            }
            (Kind::Node, after) => self.is_counted(key, after.as_ref()),
            (Kind::Order, Some(record)) if write.before.is_none() => {
                let order: Order = decode(record).map_err(|bad| bad.to_string())?;
                self.holds.ordered(&order);
                self.is_within_window(&order)?;
                self.last_job_ordered(&order, news)?;
                self.is_its_turn(&order)?;
                self.is_given(&order)?;
                self.asks_in_turn(&order, transaction)?;
                self.locks.ordered(&order)
            }
            (Kind::Resume, Some(_)) => self.may_go_on(key),
            (Kind::Health, _) => self.failures(write, transaction),
            (Kind::Landing, Some(record)) if write.before.is_none() => {
                let landing: Landing = decode(record).map_err(|bad| bad.to_string())?;
                self.landing_ordered(&landing, transaction)
            }
            (Kind::Buildset, Some(record)) if write.before.is_some() => {
                let set: Buildset = decode(record).map_err(|bad| bad.to_string())?;
                self.left_after_report(set, transaction, news)
            }
            (Kind::Buildset, Some(record)) => {
                self.is_told_by_mail(record, transaction)?;
                self.is_published(record, transaction)
            }
            _ => Ok(()),
        }
    }

    fn queue(
        &mut self,
        before: Option<Head>,
        head: Head,
        news: &mut Vec<News>,
    ) -> Result<(), String> {
        let mut changes = BTreeSet::new();
        for (position, slot) in head.slots.iter().enumerate() {
            if !changes.insert(&slot.change.key) {
                return Err(format!("{} stands in it twice", slot.change.key));
            }
            let Some(item) = self.items.get(&slot.id) else {
                return Err(format!("{} has no item", slot.change));
            };
            let is_one_by_one = matches!(head.manager, Manager::Serial | Manager::Supercedent);
            if is_one_by_one && position > 0 && slot.standing != Standing::Waiting {
                return Err(format!(
                    "{} is worked on, and what is before it is not over",
                    slot.change
                ));
            }
            if head.manager == Manager::Supercedent && position > 1 {
                return Err(format!(
                    "{} waits behind another one of its branch that waits",
                    slot.change
                ));
            }
            self.may_land(&head, position, before.as_ref())?;
            self.needs_few(&head, item)?;
            let bundle = head.bundle(position);
            let is_mate_here = |key: &&ChangeKey| {
                head.slots[bundle.clone()].iter().any(|slot| slot.change.key == **key)
            };
            if let Some(mate) = item.candidate.cycle.iter().find(|key| !is_mate_here(key)) {
                return Err(format!(
                    "{} stands in it without {mate}, and they need each other",
                    slot.change
                ));
            }
            // What lost its place behind what it needs fails, and leaves with the next decision
            // where this one had no room for it.
            let is_to_leave = slot.standing == Standing::Failing;
            let behind = &head.slots[position + 1..];
            let is_behind = |need: &ChangeRef| {
                behind.iter().any(|other| self.comes_first(&head.key, need, &other.change))
            };
            let needs = item.candidate.needs.iter().map(|need| &need.change);
            let mut needs = needs.filter(|need| !item.candidate.cycle.contains(&need.key));
            if let Some(need) = needs
                .find(|need| head.manager == Manager::Dependent && !is_to_leave && is_behind(need))
            {
                return Err(format!(
                    "{} stands before {}, which it depends on",
                    slot.change, need.key
                ));
            }
            let old = before.iter().flat_map(|head| &head.slots).find(|old| old.id == slot.id);
            match old {
                None => {
                    let ahead =
                        head.slots[..position].iter().map(|slot| slot.change.clone()).collect();
                    news.push(News::Entered(
                        Box::new(item.clone()),
                        head.key.clone(),
                        ahead,
                        is_to_leave,
                    ));
                }
                Some(old) if slot.generation < old.generation => {
                    return Err(format!(
                        "the generation of {} falls from {} to {}",
                        slot.change, old.generation, slot.generation
                    ));
                }
                Some(old) if slot.generation > old.generation => {
                    news.push(News::Line(format!(
                        "{} is tested anew in {} (state {})",
                        slot.change, head.key, slot.generation
                    )));
                }
                Some(_) => {}
            }
        }
        if let Some(why) =
            head.frozen.as_ref().filter(|_| before.is_none_or(|head| head.frozen.is_none()))
        {
            news.push(News::Line(format!("{} is frozen: {why}", head.key)));
        }
        self.written.insert(head.key.clone());
        let former = self.heads.insert(head.key.clone(), head);
        let former: Vec<Slot> = former.into_iter().flat_map(|head| head.slots).collect();
        let landing = former.iter().filter(|slot| slot.standing.is_decided());
        self.former_landing.extend(landing.map(|slot| slot.id.clone()));
        self.former.extend(former.into_iter().map(|slot| slot.id));
        Ok(())
    }
}

fn key_of(write: &Written) -> Option<&Key> {
    write.after.as_ref().or(write.before.as_ref()).map(|record| &record.key)
}

fn told(write: &Written, why: &str) -> String {
    format!("{}: {why}", key_of(write).map(ToString::to_string).unwrap_or_default())
}

fn read<T: serde::de::DeserializeOwned>(record: Option<&Record>) -> Result<Option<T>, String> {
    record.map(decode).transpose().map_err(|bad| bad.to_string())
}

fn both<T: serde::de::DeserializeOwned>(
    before: Option<&Record>,
    after: Option<&Record>,
) -> Result<(Option<T>, Option<T>), String> {
    Ok((read(before)?, read(after)?))
}

fn build_of(key: &Key) -> Option<BuildId> {
    key.partition.strip_prefix("build#").map(BuildId::from)
}
