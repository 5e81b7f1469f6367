//! What one revision of a queue's head was decided on and what it decided, read out of its
//! transaction.

use crate::scenarios::semaphore_max;
use serde_json::{Map, Value};
use sluice_gate::{
    Head, InboxMessage, Item, Landing, LandingEnd, LandingState, MergeOutcome, MergeResult,
    MergeStatus, Semaphore, SemaphoreWaiter, StoredHead,
};
use sluice_memory::RecordChange;
use sluice_model::build::{BuildResult, Order, Phase, Run};
use sluice_model::change::{ChangeKey, ChangeRef};
use sluice_model::git::Oid;
use sluice_model::{BuildId, ItemId, QueueKey, TenantName, Timestamp};
use sluice_records::codec::decode;
use sluice_records::queue::partition;
use sluice_records::report::Buildset;
use sluice_records::tenant::Tenant;
use sluice_runtime::record::{Key, Record};
use std::collections::{BTreeMap, BTreeSet};

/// At least as many decisions as are made of a queue in a row without reading again what is not its
/// own.
const MOVES_MAX: usize = 64;

/// One revision of a queue's head.
pub(super) struct Facts {
    pub(super) revision: u64,
    /// Before which transaction, as [`Known`] counts them, nothing was read that it was decided on.
    pub(super) since: u64,
    /// The queue as it is since.
    pub(super) head: Head,
    /// Its items as they are since.
    pub(super) items: BTreeMap<ItemId, Item>,
    /// What was taken in, in the order of its keys, each with its key.
    pub(super) taken: Vec<(String, InboxMessage)>,
    /// What had arrived and still waits, in the same order.
    pub(super) waiting: Vec<(String, InboxMessage)>,
    /// What was sent to other queues, each with the partition of that.
    pub(super) sent: Vec<(String, InboxMessage)>,
    /// What other queues' heads say since, that were written with this one.
    pub(super) doors: Vec<StoredHead>,
    /// What left, with how it ended.
    pub(super) left: BTreeMap<ItemId, Buildset>,
    /// Landings that were ordered.
    pub(super) landings: Vec<Landing>,
    /// Builds that were ordered: item and job.
    pub(super) orders: BTreeSet<(ItemId, String)>,
    /// Builds that were stopped.
    pub(super) stops: BTreeSet<BuildId>,
    /// Paused builds that were reported to go on.
    pub(super) resumes: BTreeSet<BuildId>,
    /// How many records the decision wrote, each as it counts for the one that has to fit it into
    /// one transaction, at least.
    pub(super) weight: usize,
}

impl Facts {
    /// Returns an item as the decision left it, whether it stays or not.
    pub(super) fn after(&self, id: &ItemId) -> Option<&Item> {
        self.items.get(id).or_else(|| self.left.get(id).map(|set| &set.item))
    }

    /// Returns the order to land an item in a state, if it was given.
    pub(super) fn landing(&self, id: &ItemId, state: u64) -> Option<&Landing> {
        self.landings.iter().find(|landing| landing.item == *id && landing.generation == state)
    }
}

/// What merger, executors and reporters wrote, which a decision may have read or not yet.
#[derive(Default)]
pub(super) struct Known {
    /// How many builds may hold the semaphore `one` at once.
    one: usize,
    /// How many transactions were seen.
    count: u64,
    /// When each queue's head was written, each time.
    heads: BTreeMap<QueueKey, Vec<u64>>,
    /// The states of each semaphore, each with when it was written.
    semaphores: BTreeMap<Key, Vec<(u64, Semaphore)>>,
    items: BTreeMap<ItemId, Item>,
    /// The revisions of each change that ever stood in a pipeline, by how the partitions of its
    /// queues begin, each with as of when it was known last.
    revisions: BTreeMap<(String, ChangeKey), BTreeMap<Oid, Timestamp>>,
    arrivals: BTreeMap<Key, InboxMessage>,
    /// The trees of states that merge, by item, state and layout.
    trees: BTreeMap<(ItemId, u64, u64), Oid>,
    /// How landings ended, by item and state.
    ends: BTreeMap<(ItemId, u64), LandingEnd>,
    /// Builds that an executor ended, and how.
    over: BTreeMap<BuildId, BuildResult>,
    /// Builds of which an executor said that they will fail.
    failing: BTreeSet<BuildId>,
    /// Tenants of which an operator ever had answers wait: which decision knew of that is in no
    /// record.
    held: BTreeSet<TenantName>,
    /// Tenants of which an operator ever had events discarded: likewise.
    discarded: BTreeSet<TenantName>,
    /// Tenants that say how many changes a pipeline may hold: what its other queues held when a
    /// decision read them is in no record.
    limited: BTreeSet<TenantName>,
    /// Which jobs right behind it a build chose to run, where it did.
    chosen: BTreeMap<BuildId, Vec<String>>,
    /// Builds of which an executor said that they are paused, each with the jobs that it chose by
    /// then, where it did.
    paused: BTreeMap<BuildId, Option<Vec<String>>>,
}

impl Known {
    /// Returns what is known of a site where nothing has happened, and of whose semaphore `one` so
    /// many builds may hold.
    pub(super) fn of(one: usize) -> Self {
        Self { one, ..Self::default() }
    }

    /// Returns what is known where an operator had events of a tenant discarded.
    #[cfg(test)]
    pub(super) fn discarding(tenant: &TenantName) -> Self {
        Self { discarded: BTreeSet::from([tenant.clone()]), ..Self::default() }
    }

    /// Returns how many builds may hold a semaphore at once.
    pub(super) fn places_of(&self, semaphore: &str) -> usize {
        semaphore_max(semaphore, self.one)
    }

    /// Returns the tree that the merger found for a state under a layout.
    pub(super) fn tree(&self, id: &ItemId, state: u64, layout: u64) -> Option<&Oid> {
        self.trees.get(&(id.clone(), state, layout))
    }

    /// Returns how the landing of a state ended, once it has.
    pub(super) fn end(&self, id: &ItemId, state: u64) -> Option<&LandingEnd> {
        self.ends.get(&(id.clone(), state))
    }

    /// Returns how an executor ended a build, once it has.
    pub(super) fn result(&self, build: &BuildId) -> Option<BuildResult> {
        self.over.get(build).copied()
    }

    /// Returns whether an executor said of a build that it will fail.
    pub(super) fn will_fail(&self, build: &BuildId) -> bool {
        self.failing.contains(build)
    }

    /// Returns for how many places of a semaphore an operator may have been before a queue that
    /// decides now, and read it since then: builds that held it, and other queues in line. Where it
    /// is written with the decision it was read as it was right before.
    pub(super) fn before_in_line(&self, queue: &QueueKey, name: &str, since: u64) -> usize {
        let is_it = |state: &Semaphore| {
            let is_its = state.key.tenant.as_ref().is_none_or(|tenant| *tenant == queue.tenant);
            is_its && state.key.name == name
        };
        let (mut builds, mut queues) = (BTreeSet::new(), BTreeSet::new());
        // All states under one key are of one semaphore.
        let its =
            |states: &&Vec<(u64, Semaphore)>| states.first().is_some_and(|(_, state)| is_it(state));
        for states in self.semaphores.values().filter(its) {
            let is_written = states.last().is_some_and(|(at, _)| *at == self.count);
            let read_at = if is_written { self.count - 1 } else { since };
            let first = states.partition_point(|(at, _)| *at <= read_at).saturating_sub(1);
            for (_, state) in &states[first..] {
                builds.extend(state.holders.iter().map(|holder| holder.build.clone()));
                queues.extend(
                    state.waiting.iter().map(SemaphoreWaiter::key).filter(|other| other != queue),
                );
            }
        }
        builds.len() + queues.len()
    }

    /// Returns whether another revision of a change ever stood in the pipeline of a queue of which
    /// something newer was known than of this.
    pub(super) fn was_newer(&self, queue: &QueueKey, change: &ChangeRef, as_of: Timestamp) -> bool {
        let of = (pipeline_of(&partition(queue)), change.key.clone());
        let mut others =
            self.revisions.get(&of).into_iter().flatten().filter(|(head, _)| **head != change.head);
        as_of.0 > 0 && others.any(|(_, known)| *known > as_of)
    }

    /// Returns whether an operator ever had answers of a tenant wait.
    pub(super) fn was_held(&self, tenant: &TenantName) -> bool {
        self.held.contains(tenant)
    }

    /// Returns whether an operator ever had events of a tenant discarded.
    pub(super) fn was_discarded(&self, tenant: &TenantName) -> bool {
        self.discarded.contains(tenant)
    }

    /// Says of which tenants a pipeline may hold so many changes only.
    pub(super) fn limiting(self, limited: BTreeSet<TenantName>) -> Self {
        Self { limited, ..self }
    }

    /// Returns whether a pipeline of a tenant may hold so many changes only.
    pub(super) fn is_limited(&self, tenant: &TenantName) -> bool {
        self.limited.contains(tenant)
    }

    /// Returns whether an executor ever said of a build that it is paused.
    pub(super) fn was_paused(&self, build: &BuildId) -> bool {
        self.paused.contains_key(build)
    }

    /// Returns which jobs right behind it a build chose when it paused, where it did.
    pub(super) fn chosen_at_pause(&self, build: &BuildId) -> Option<&[String]> {
        self.paused.get(build)?.as_deref()
    }

    /// Returns which jobs right behind it a build chose, where it did.
    pub(super) fn chosen(&self, build: &BuildId) -> Option<&[String]> {
        self.chosen.get(build).map(Vec::as_slice)
    }

    /// Takes a transaction in. Returns what it says where it is a new revision of a queue's head.
    ///
    /// # Errors
    /// Of a record that cannot be read.
    pub(super) fn see(&mut self, transaction: &[RecordChange]) -> Result<Option<Facts>, String> {
        let mut received = Observed::default();
        self.count += 1;
        for write in transaction {
            self.see_one(write, &mut received)?;
        }
        // The one that decides is written first.
        let mut heads = received.heads.into_iter();
        let Some((revision, stored)) = heads.next() else { return Ok(None) };
        let doors = heads.map(|(_, stored)| stored).collect();
        let head = stored.into_head(|id| self.items.get(id)).map_err(|torn| torn.to_string())?;
        let heads = self.heads.entry(head.key.clone()).or_default();
        // Of some moves in a row what else there is was read before the first of them.
        let since = heads.iter().rev().nth(MOVES_MAX).copied().unwrap_or_default();
        heads.push(self.count);
        let own = partition(&head.key);
        let in_order = |arrivals: &BTreeMap<Key, InboxMessage>| -> Vec<(String, InboxMessage)> {
            let here = arrivals.iter().filter(|(key, _)| key.partition == own);
            here.map(|(key, arrival)| (key.sort.clone(), arrival.clone())).collect()
        };
        let items: BTreeMap<ItemId, Item> = (head.slots.iter())
            .filter_map(|slot| Some((slot.id.clone(), self.items.get(&slot.id)?.clone())))
            .collect();
        let left = received
            .sets
            .into_iter()
            .filter(|(id, set)| set.queue == head.key && !items.contains_key(id));
        let left: BTreeMap<ItemId, Buildset> = left.collect();
        let weight =
            transaction.len() + 3 * left.len() + received.orders.len() + received.stops.len();
        Ok(Some(Facts {
            revision,
            since,
            items,
            taken: in_order(&received.taken),
            waiting: in_order(&self.arrivals),
            sent: received.sent,
            doors,
            left,
            landings: received.landings,
            orders: received.orders,
            stops: received.stops,
            resumes: received.resumes,
            weight,
            head,
        }))
    }

    fn see_one(&mut self, write: &RecordChange, received: &mut Observed) -> Result<(), String> {
        let Some(record) = write.after.as_ref().or(write.before.as_ref()) else { return Ok(()) };
        let key = &record.key;
        let kind = |text: &str| text.split('#').next().unwrap_or_default().to_owned();
        let is_new = write.before.is_none();
        match (kind(&key.partition).as_str(), kind(&key.sort).as_str(), &write.after) {
            ("queue", "head", Some(after)) => {
                let is_struck_off =
                    write.before.as_ref().is_some_and(|before| before.revision == after.revision);
                if !is_struck_off {
                    received.heads.push((after.revision, read(after)?));
                }
            }
            ("queue", "item", Some(after)) => {
                let item: Item = read(after)?;
                let change = &item.candidate.change;
                let of = (pipeline_of(&key.partition), change.key.clone());
                let known =
                    self.revisions.entry(of).or_default().entry(change.head.clone()).or_default();
                *known = (*known).max(item.candidate.as_of);
                self.items.insert(item.id.clone(), item);
            }
            ("queue", "item", None) => {
                let item: Item = read(record)?;
                self.items.remove(&item.id);
            }
            ("queue", "inbox", Some(after)) => {
                let arrival: InboxMessage = read(after)?;
                received.sent.push((key.partition.clone(), arrival.clone()));
                self.arrivals.insert(key.clone(), arrival);
            }
            ("queue", "inbox", None) => {
                self.arrivals.remove(key);
                received.taken.insert(key.clone(), read(record)?);
            }
            ("tenant", "head", Some(after)) => {
                let tenant: Tenant = read(after)?;
                if tenant.events.trigger_queue_discarding {
                    self.discarded.insert(tenant.name.clone());
                }
                if tenant.events.result_queue_paused {
                    self.held.insert(tenant.name);
                }
            }
            ("semaphores", _, Some(after)) => {
                self.semaphores.entry(key.clone()).or_default().push((self.count, read(after)?));
            }
            ("merge", _, Some(after)) => {
                let outcome: MergeOutcome = read(after)?;
                if let MergeResult::Merged(merged) = outcome.result {
                    let of = (outcome.item, outcome.generation, outcome.layout);
                    self.trees.insert(of, merged.tested.tree);
                }
            }
            ("landing", _, Some(after)) => {
                let landing: Landing = read(after)?;
                if let LandingState::Ended { end, .. } = &landing.state {
                    self.ends.insert((landing.item.clone(), landing.generation), end.clone());
                }
                if is_new {
                    received.landings.push(landing);
                }
            }
            ("build", "run", Some(after)) => {
                let run: Run = read(after)?;
                if matches!(run.phase, Phase::Failing) {
                    self.failing.insert(run.build.clone());
                }
                if let Phase::Paused(pause) = &run.phase {
                    self.paused.insert(run.build.clone(), chosen(&pause.data));
                }
                if let Phase::Ended(ended) = &run.phase {
                    self.over.insert(run.build.clone(), ended.result);
                    if let Some(names) = chosen(&ended.data) {
                        self.chosen.insert(run.build.clone(), names);
                    }
                }
            }
            ("build", "order", Some(after)) => {
                let order: Order = read(after)?;
                received.orders.insert((order.item, order.job.as_str().to_owned()));
            }
            ("build", "stop", Some(_)) => {
                received.stops.extend(key.partition.strip_prefix("build#").map(BuildId::from));
            }
            ("build", "resume", Some(_)) => {
                received.resumes.extend(key.partition.strip_prefix("build#").map(BuildId::from));
            }
            ("buildset", "head", Some(after)) => {
                let set: Buildset = read(after)?;
                received.sets.insert(set.id.clone(), set);
            }
            _ => {}
        }
        Ok(())
    }
}

/// What one transaction says.
#[derive(Default)]
struct Observed {
    heads: Vec<(u64, StoredHead)>,
    taken: BTreeMap<Key, InboxMessage>,
    sent: Vec<(String, InboxMessage)>,
    landings: Vec<Landing>,
    orders: BTreeSet<(ItemId, String)>,
    stops: BTreeSet<BuildId>,
    resumes: BTreeSet<BuildId>,
    sets: BTreeMap<ItemId, Buildset>,
}

/// Returns how the partitions of all queues of a queue's pipeline begin.
fn pipeline_of(partition: &str) -> String {
    partition.rsplit_once('/').map_or(partition, |(pipeline, _)| pipeline).to_owned()
}

/// Returns the jobs that a build's `zuul.child_jobs` names, where it returned that.
fn chosen(data: &Map<String, Value>) -> Option<Vec<String>> {
    let names = data.get("zuul")?.get("child_jobs")?.as_array()?;
    Some(names.iter().filter_map(Value::as_str).map(str::to_owned).collect())
}

fn read<T: serde::de::DeserializeOwned>(record: &Record) -> Result<T, String> {
    decode(record).map_err(|bad| bad.to_string())
}

/// Returns in a word how far the question for an item's state is.
pub(super) fn word_of(ask: &MergeStatus) -> &'static str {
    match ask {
        MergeStatus::NotRequested => "unasked",
        MergeStatus::Requested { .. } => "asked",
        MergeStatus::Merged(_) => "merged",
        MergeStatus::Unmergeable { configuration: true, .. } => "misconfigured",
        MergeStatus::Unmergeable { configuration: false, .. } => "in conflict",
    }
}
