//! Invariants that must hold after every write: each record against its previous version, each
//! transaction as a whole.

mod artifacts;
mod capacity;
mod commands;
mod discards;
mod graphs;
mod health;
mod holds;
mod hosted_changes;
mod landings;
mod mails;
mod max_dependencies;
mod nodesets;
mod pauses;
mod publications;
mod queue_order;
mod record_kinds;
mod reporter_jobs;
mod speculation;
mod stops;
#[cfg(test)]
mod tests;
mod transitions;
mod windows;

use self::landings::check_landed_tree;
use self::record_kinds::{Kind, kind};
use crate::locks::Locks;
use crate::oracle::EntryFate;
use crate::scenarios::Scenario;
use crate::shape::Shape;
use sluice_config::pipeline::Manager;
use sluice_gate::queue::{Slot, SlotStatus};
use sluice_gate::{Head, Item, Landing, LandingState, StoredHead};
use sluice_memory::RecordChange;
use sluice_model::build::{Order, Phase, Run};
use sluice_model::change::{ChangeKey, ChangeRef};
use sluice_model::git::{BranchKey, LandingMethod, Oid};
use sluice_model::{BuildId, ItemId, QueueKey, SessionId, Timestamp};
use sluice_pool::{LaunchProgress, NodeState, PoolNode};
use sluice_records::codec::decode;
use sluice_records::delivery::{DeliveryRecord, DeliveryState};
use sluice_records::report::Buildset;
use sluice_runtime::record::{Key, Record};
use std::collections::{BTreeMap, BTreeSet};

/// What the writes so far say about the store.
pub struct Watch {
    /// The heads of all queues.
    pub heads: BTreeMap<QueueKey, Head>,
    /// Queues that the current transaction writes.
    written: BTreeSet<QueueKey>,
    /// Items that these queues held before.
    former: BTreeSet<ItemId>,
    /// Those of them that were landing or had landed.
    former_landing: BTreeSet<ItemId>,
    /// Items that the current transaction removes.
    left: Vec<Item>,
    /// Queued items.
    pub items: BTreeMap<ItemId, Item>,
    /// The window of each queue before its last write.
    former_windows: BTreeMap<QueueKey, u32>,
    /// What the seed chose.
    shape: Shape,
    /// Landings in progress, by branch.
    pub landing: BTreeMap<BranchKey, BTreeMap<Key, Landing>>,
    /// Revisions that a queue landed by moving the branch to the tested commit.
    pushed: BTreeSet<(QueueKey, ChangeKey, Oid)>,
    /// The last fence of each branch lock.
    fences: BTreeMap<Key, u64>,
    /// Deliveries in progress, with the time they were received.
    pub open_deliveries: BTreeMap<Key, Timestamp>,
    /// The number of deliveries.
    pub deliveries: u64,
    /// Semaphores and their holders.
    locks: Locks,
    /// Removed records that must not come back.
    gone: BTreeSet<Key>,
    /// The executor of each run, and whether the run ended.
    runs: BTreeMap<BuildId, (SessionId, bool)>,
    /// The trees of merge results.
    trees: speculation::TestedTrees,
    /// Builds that were ordered to stop.
    stopped: BTreeSet<BuildId>,
    /// Paused builds that were resumed.
    resumed: BTreeSet<BuildId>,
    /// The build that each node is allocated to.
    nodes: BTreeMap<Key, Option<BuildId>>,
    /// Nodes that count for the quota.
    machines: BTreeSet<Key>,
    artifacts: artifacts::Artifacts,
    holds: holds::Holds,
    pauses: pauses::Pauses,
    reporter_jobs: reporter_jobs::ReporterJobs,
    mails: mails::Mails,
    nodesets: nodesets::Nodesets,
    publications: publications::Publications,
    room: capacity::Room,
    /// The number of reporter jobs that failed while later items had builds.
    pub retested: u64,
}

/// What a write shows to the rest of the simulator.
#[derive(Debug)]
pub enum WriteEffect {
    /// An item entered a queue behind these changes. The last field says whether it leaves again
    /// because the same transaction removed one of its needs.
    Entered(Box<Item>, QueueKey, Vec<ChangeRef>, EntryFate),
    /// An item left its queue.
    Left(Box<Buildset>),
    /// A landing was ordered, made progress or ended.
    Landing(Box<Landing>),
    /// A reporter job was ordered, with an earlier build of the same job that ended.
    ReporterJobOrdered(Box<Order>, Option<BuildId>),
    /// An item left because its reporter jobs ended.
    ReporterJobsEnded(Box<Buildset>),
    /// A pipeline had no capacity for a change.
    NoRoom(Box<ChangeRef>, QueueKey),
    /// A line for the story.
    Line(String),
}

impl Watch {
    /// Returns the watch of a new site.
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
            trees: BTreeMap::new(),
            stopped: BTreeSet::new(),
            resumed: BTreeSet::new(),
            nodes: BTreeMap::new(),
            machines: BTreeSet::new(),
            artifacts: artifacts::Artifacts::default(),
            holds: holds::Holds::default(),
            pauses: pauses::Pauses::default(),
            reporter_jobs: reporter_jobs::ReporterJobs::default(),
            mails: mails::Mails::default(),
            nodesets: nodesets::Nodesets::default(),
            publications: publications::Publications::default(),
            room: capacity::Room::default(),
            retested: 0,
        }
    }

    /// Checks writes in their order and returns what they show.
    ///
    /// # Errors
    /// The violated invariant.
    pub fn check_writes(&mut self, written: &[RecordChange]) -> Result<Vec<WriteEffect>, String> {
        let mut effects = Vec::new();
        for transaction in written.chunk_by(|a, b| a.transaction == b.transaction) {
            self.left.clear();
            self.written.clear();
            self.former.clear();
            self.former_landing.clear();
            for write in transaction {
                self.check_write(write, &mut effects).map_err(|why| with_key(write, &why))?;
            }
            for write in transaction {
                self.check_in_transaction(write, transaction, &mut effects)
                    .map_err(|why| with_key(write, &why))?;
            }
            self.check_hosted_changes()?;
            self.check_capacity(transaction, &mut effects)?;
            Self::check_bundle_results(transaction)?;
        }
        Ok(effects)
    }

    /// Checks a record against its previous version.
    fn check_write(
        &mut self,
        write: &RecordChange,
        effects: &mut Vec<WriteEffect>,
    ) -> Result<(), String> {
        let Some(key) = key_of(write) else { return Ok(()) };
        let kind = kind(key);
        self.check_revision(write, key, kind)?;
        let (before, after) = (write.before.as_ref(), write.after.as_ref());
        match kind {
            Kind::Delivery => self.check_delivery(key, before, after, effects),
            Kind::Item => self.check_item(before, after),
            Kind::Landing => self.check_landing(key, before, after, effects),
            Kind::Order => transitions::check_unchanged(before, after, "an order is written once"),
            Kind::Merge => {
                self.record_tested_tree(after)?;
                transitions::check_same_outcome(before, after)
            }
            Kind::Report => self.check_report(before, after),
            Kind::Run => self.check_run(before, after, effects),
            Kind::Stop => {
                self.stopped.extend(build_of(key));
                Ok(())
            }
            Kind::Buildset => self.check_buildset(before, after, effects),
            Kind::Tenant => {
                self.pauses.record_tenant(read(after)?, write.at);
                transitions::check_tenant(before, after, effects)
            }
            Kind::Node => self.check_node(key, after),
            Kind::Request => self.check_request(before, after),
            Kind::Autohold => self.holds.check_request(key, read(after)?),
            Kind::Semaphore => {
                read(after)?.map_or(Ok(()), |semaphore| self.locks.written(key, semaphore))
            }
            Kind::Quarantine => Err("nothing may be quarantined".to_owned()),
            Kind::Halted => Err(format!(
                "a cell was halted: {}",
                after.map_or("", |record| record.body.as_str())
            )),
            Kind::Resume => {
                self.resumed.extend(build_of(key));
                Ok(())
            }
            Kind::BranchLock => self.record_fence(key, after),
            Kind::Queue
            | Kind::InboxMessage
            | Kind::Provider
            | Kind::Health
            | Kind::SeenEvents
            | Kind::Other => Ok(()),
        }
    }

    /// Checks that revisions grow by one and that removed records stay removed.
    fn check_revision(
        &mut self,
        write: &RecordChange,
        key: &Key,
        kind: Kind,
    ) -> Result<(), String> {
        match (&write.before, &write.after) {
            (Some(before), Some(after)) => {
                if after.revision < before.revision {
                    return Err(format!(
                        "its revision falls from {} to {}",
                        before.revision, after.revision
                    ));
                }
                if kind.requires_known_revision() {
                    let is_strike = after.revision == before.revision && after.body == before.body;
                    if !is_strike && after.revision != before.revision + 1 {
                        return Err(format!(
                            "revision {} was written over the unseen revision {}",
                            after.revision, before.revision
                        ));
                    }
                }
                Ok(())
            }
            (None, Some(_)) if kind.is_removed_at_end() && self.gone.contains(key) => {
                Err("a removed record came back".to_owned())
            }
            (Some(_), None) if kind.is_removed_at_end() => {
                self.gone.insert(key.clone());
                Ok(())
            }
            (Some(_), None) if kind.is_permanent() => {
                Err("a permanent record was removed".to_owned())
            }
            _ => Ok(()),
        }
    }

    /// Checks that a delivery that ended stays as it ended.
    fn check_delivery(
        &mut self,
        key: &Key,
        before: Option<&Record>,
        after: Option<&Record>,
        effects: &mut Vec<WriteEffect>,
    ) -> Result<(), String> {
        let (before, after) = both::<DeliveryRecord>(before, after)?;
        let Some(after) = after else { return Ok(()) };
        match before {
            Some(before) if before.state.is_final() && before.state != after.state => {
                return Err(format!(
                    "a delivery ended as {:?} and is {:?} now",
                    before.state, after.state
                ));
            }
            None => self.deliveries += 1,
            _ => {}
        }
        if after.state.is_final() {
            self.open_deliveries.remove(key);
            let outcome = match &after.state {
                DeliveryState::Handled { effects, .. } => effects.join("; "),
                other => format!("{other:?}"),
            };
            effects.push(WriteEffect::Line(format!(
                "{} ({}) has ended: {outcome}",
                after.forge_id, after.event_name
            )));
        } else {
            self.open_deliveries.insert(key.clone(), after.received_at);
        }
        Ok(())
    }

    /// Checks that the generation of an item never decreases.
    fn check_item(
        &mut self,
        before: Option<&Record>,
        after: Option<&Record>,
    ) -> Result<(), String> {
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

    /// Checks that a landing follows its states and is alone on its branch.
    fn check_landing(
        &mut self,
        key: &Key,
        before: Option<&Record>,
        after: Option<&Record>,
        effects: &mut Vec<WriteEffect>,
    ) -> Result<(), String> {
        let (before, after) = both::<Landing>(before, after)?;
        let Some(after) = after else { return Ok(()) };
        self.check_landing_start(before.as_ref(), &after)?;
        self.remember_push(&after);
        check_landed_tree(&after)?;
        if let Some(before) = before {
            let may_follow = match (&before.state, &after.state) {
                (LandingState::Ended { .. }, _) => before.state == after.state,
                // A refused push never started.
                (LandingState::Merging(_), LandingState::Ordered) => false,
                (LandingState::Pushing(_), LandingState::Ordered) => {
                    after.method == LandingMethod::Merge
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
        // Landings of one push are checked when they are ordered.
        if under_way.len() > 1 && !self.shape.has(Scenario::FastForward) {
            let changes: Vec<String> =
                under_way.values().map(|landing| landing.change.to_string()).collect();
            return Err(format!(
                "{} are landing on one branch at the same time",
                changes.join(" and ")
            ));
        }
        effects.push(WriteEffect::Landing(Box::new(after)));
        Ok(())
    }

    /// Checks that a run has one executor, is claimed before any stop, and ends once.
    fn check_run(
        &mut self,
        before: Option<&Record>,
        after: Option<&Record>,
        effects: &mut Vec<WriteEffect>,
    ) -> Result<(), String> {
        let (before, after) = both::<Run>(before, after)?;
        let Some(after) = after else { return Ok(()) };
        match &before {
            Some(before) if before.session != after.session => {
                return Err(format!("{} took the run from {}", after.session, before.session));
            }
            Some(before)
                if matches!(before.phase, Phase::Ended(_)) && before.phase != after.phase =>
            {
                return Err("an ended run continued".to_owned());
            }
            None if self.stopped.contains(&after.build) => {
                return Err(format!("{} claimed a stopped build", after.session));
            }
            None => {
                self.locks.claimed(&after.build).and_then(|()| self.check_nodeset(&after.build))?
            }
            Some(before) => self.check_paused_build_end(before, &after)?,
        }
        if let Phase::Ended(ended) = &after.phase {
            self.reporter_jobs.record_end(&after.build, ended.result);
            self.artifacts.record_end(&after.build, ended.result);
            self.holds.record_end(&after.build, ended.result);
        }
        let is_over = matches!(after.phase, Phase::Ended(_));
        let line = match &after.phase {
            Phase::Ended(ended) => {
                format!("{} ends build {}: {}", after.session, after.build, ended.result)
            }
            _ if before.is_none() => format!("{} claims build {}", after.session, after.build),
            phase => format!("{} says of build {}: {phase:?}", after.session, after.build),
        };
        effects.push(WriteEffect::Line(line));
        self.runs.insert(after.build, (after.session, is_over));
        Ok(())
    }

    /// Checks that an item leaves with one result.
    fn check_buildset(
        &mut self,
        before: Option<&Record>,
        after: Option<&Record>,
        effects: &mut Vec<WriteEffect>,
    ) -> Result<(), String> {
        let (before, after) = both::<Buildset>(before, after)?;
        let Some(after) = after else { return Ok(()) };
        match before {
            Some(before) if before.result != after.result => {
                Err(format!("an item left as {} and then as {}", before.result, after.result))
            }
            Some(_) => Ok(()),
            None => {
                effects.push(WriteEffect::Left(Box::new(after)));
                Ok(())
            }
        }
    }

    /// Checks that a node changes its build only after the former one ended.
    fn check_node(&mut self, key: &Key, after: Option<&Record>) -> Result<(), String> {
        let Some(after): Option<PoolNode> = read(after)? else {
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
            return Err(format!("a node was moved from the running build {former} to {owner:?}"));
        }
        // A reserved node does not count for the quota until its launch starts.
        if after.state == NodeState::Requested(LaunchProgress::Reserved) {
            self.machines.remove(key);
        } else {
            self.machines.insert(key.clone());
        }
        Ok(())
    }

    /// Returns whether a build ended, was stopped or was never claimed.
    fn is_over(&self, build: &BuildId) -> bool {
        self.stopped.contains(build) || self.runs.get(build).is_none_or(|(_, is_over)| *is_over)
    }

    /// Checks a record together with the rest of its transaction.
    fn check_in_transaction(
        &mut self,
        write: &RecordChange,
        transaction: &[RecordChange],
        effects: &mut Vec<WriteEffect>,
    ) -> Result<(), String> {
        let Some(key) = key_of(write) else { return Ok(()) };
        match (kind(key), &write.after) {
            (Kind::Queue, Some(record)) => {
                let stored: StoredHead = decode(record).map_err(|bad| bad.to_string())?;
                let head =
                    stored.into_head(|id| self.items.get(id)).map_err(|torn| torn.to_string())?;
                let before = self.heads.get(&head.key).cloned();
                self.check_window_size(before.as_ref(), &head, transaction)?;
                self.check_queue(before.as_ref(), &head, effects)?;
                self.check_order(before.as_ref(), &head, transaction)?;
                self.check_speculation(before.as_ref(), &head)
            }
            (Kind::InboxMessage, None) => self
                .check_paused_events(write, transaction)
                .and_then(|()| self.check_command(write, transaction)),
            (Kind::Item, _) => {
                self.check_paused_results(write).and_then(|()| self.check_given_up_builds(write))
            }
            (Kind::Node, Some(_)) if self.machines.len() > self.shape.instances as usize => {
                let (count, most) = (self.machines.len(), self.shape.instances);
                Err(format!("{count} nodes may exist, but the quota is {most}"))
            }
            (Kind::Node, after) => self.check_autohold_count(key, after.as_ref()),
            (Kind::Order, Some(record)) if write.before.is_none() => {
                let order: Order = decode(record).map_err(|bad| bad.to_string())?;
                if order.end.is_some() {
                    return Ok(()); // No executor is asked to run it, so it uses nothing.
                }
                self.holds.record_order(&order);
                self.check_window_limit(&order)?;
                self.check_reporter_job_order(&order, effects)?;
                self.check_job_dependencies(&order)?;
                self.check_artifacts(&order)?;
                self.check_nodeset_order(&order, transaction)?;
                self.locks.ordered(&order)
            }
            (Kind::Resume, Some(_)) => self.check_resume(key),
            (Kind::Health, _) => self.check_failure_record(write, transaction),
            (Kind::Landing, Some(record)) if write.before.is_none() => {
                let landing: Landing = decode(record).map_err(|bad| bad.to_string())?;
                self.check_landing_order(&landing, transaction)
            }
            (Kind::Buildset, Some(record)) if write.before.is_some() => {
                let set: Buildset = decode(record).map_err(|bad| bad.to_string())?;
                self.check_reporter_jobs_end(set, transaction, effects)
            }
            (Kind::Buildset, Some(record)) => {
                self.check_result_mail(record, transaction)?;
                self.check_result_publication(record, transaction)
            }
            _ => Ok(()),
        }
    }

    /// Checks the entries of a queue: their order, their needs, their bundles and their
    /// generations.
    fn check_queue(
        &mut self,
        before: Option<&Head>,
        head: &Head,
        effects: &mut Vec<WriteEffect>,
    ) -> Result<(), String> {
        let mut changes = BTreeSet::new();
        let places = (0..).zip(&head.entries).flat_map(|(position, entry): (usize, _)| {
            entry.members.iter().map(move |slot| (position, entry, slot))
        });
        for (at, (position, entry, slot)) in places.enumerate() {
            if !changes.insert(&slot.change.key) {
                return Err(format!("{} is queued twice", slot.change.key));
            }
            let Some(item) = self.items.get(&slot.id) else {
                return Err(format!("{} has no item", slot.change));
            };
            let is_one_by_one = matches!(head.manager, Manager::Serial | Manager::Supercedent);
            if is_one_by_one && position > 0 && slot.status != SlotStatus::Waiting {
                return Err(format!("{} is processed before the item ahead left", slot.change));
            }
            if head.manager == Manager::Supercedent && position > 1 {
                return Err(format!(
                    "{} waits behind another waiting ref of its branch",
                    slot.change
                ));
            }
            self.check_landing_position(head, (position, slot), before)?;
            self.check_dependency_limit(head, item)?;
            let is_member_here =
                |key: &&ChangeKey| entry.members.iter().any(|slot| slot.change.key == **key);
            if let Some(member) = item.candidate.bundle.iter().find(|key| !is_member_here(key)) {
                return Err(format!(
                    "{} is queued without the bundle member {member}",
                    slot.change
                ));
            }
            // An item whose need is queued behind it fails, and leaves with the next transaction if
            // this one was full.
            let is_to_leave = slot.status == SlotStatus::Failing;
            let behind = head.slots().skip(at + 1);
            let is_behind = |need: &ChangeRef| {
                behind.clone().any(|other| self.comes_first(&head.key, need, &other.change))
            };
            let needs = item.candidate.needs.iter().map(|need| &need.change);
            let mut needs = needs.filter(|need| !item.candidate.bundle.contains(&need.key));
            if let Some(need) = needs
                .find(|need| head.manager == Manager::Dependent && !is_to_leave && is_behind(need))
            {
                return Err(format!("{} is ahead of its dependency {}", slot.change, need.key));
            }
            let old = before.into_iter().flat_map(Head::slots).find(|old| old.id == slot.id);
            match old {
                None => {
                    let ahead = head.slots().take(at).map(|slot| slot.change.clone()).collect();
                    effects.push(WriteEffect::Entered(
                        Box::new(item.clone()),
                        head.key.clone(),
                        ahead,
                        if is_to_leave { EntryFate::Leaves } else { EntryFate::Stays },
                    ));
                }
                Some(old) if slot.generation < old.generation => {
                    return Err(format!(
                        "the generation of {} falls from {} to {}",
                        slot.change, old.generation, slot.generation
                    ));
                }
                Some(old) if slot.generation > old.generation => {
                    effects.push(WriteEffect::Line(format!(
                        "{} is tested again in {} (generation {})",
                        slot.change, head.key, slot.generation
                    )));
                }
                Some(_) => {}
            }
        }
        if let Some(why) =
            head.halted.as_ref().filter(|_| before.is_none_or(|head| head.halted.is_none()))
        {
            effects.push(WriteEffect::Line(format!("{} is halted: {why}", head.key)));
        }
        self.written.insert(head.key.clone());
        let former = self.heads.insert(head.key.clone(), head.clone());
        let former: Vec<Slot> = former.iter().flat_map(Head::slots).cloned().collect();
        let landing = former.iter().filter(|slot| slot.status.is_decided());
        self.former_landing.extend(landing.map(|slot| slot.id.clone()));
        self.former.extend(former.into_iter().map(|slot| slot.id));
        Ok(())
    }
}

fn key_of(write: &RecordChange) -> Option<&Key> {
    write.after.as_ref().or(write.before.as_ref()).map(|record| &record.key)
}

/// Formats an error with the key of its record.
fn with_key(write: &RecordChange, why: &str) -> String {
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
