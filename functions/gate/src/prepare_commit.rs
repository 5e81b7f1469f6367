//! Builds one commit from a plan. Makes no decisions.

use crate::branch_locks::{BranchLocks, LoadedLock};
use crate::host_queues;
use crate::provided;
use crate::queue_context::QueueContext;
use sluice_config::pipeline::Manager;
use sluice_gate::plan::{BuildStop, OrderDraft, QueueAction, QueuePlan, RemovedItem, StopCause};
use sluice_gate::{BranchLock, Head, InboxMessage, InboxMessageKind, Item, Landing};
use sluice_model::build::{BuildResult, Order, RequestRef};
use sluice_model::change::ChangeRef;
use sluice_model::event::{EventKind, ForgeEvent, ZuulEvent};
use sluice_model::wakeup::{Precedence, Wakeup};
use sluice_model::{
    BranchName, BuildId, InboxMessageId, ItemId, LabelName, QueueKey, Timestamp, ZoneName,
};
use sluice_pool::{NodeRequest, ReadyRecipient, RequestRow};
use sluice_records::build::{ResumeRequest, put_order, put_resume, put_stop};
use sluice_records::codec::{expiry, with_body};
use sluice_records::delivery::{self, DeliveryRecord, DeliveryState};
use sluice_records::layout::LiveLayout;
use sluice_records::report::Buildset;
use sluice_records::tenant::{FirstLanding, PendingConfigLanding};
use sluice_records::{
    branch_lock, landing, pipeline_health, provider, queue, queue_positions, report, tenant,
};
use sluice_runtime::batch::ReconcileError;
use sluice_runtime::record::{Due, Expect, Record, Write};
use sluice_runtime::{CellCommit, PortError};
use std::sync::Arc;

/// A commit, the cell as it leaves it, and whether the queue has to be reconciled again at once.
pub struct PreparedCommit {
    /// The records to write.
    pub commit: CellCommit,
    /// The cell after the commit, without the head's record.
    pub after: queue::LoadedQueue,
    /// The branch locks that the commit writes, in their new state.
    pub(crate) branch_locks: BranchLocks,
    /// Whether another plan may find more to do without new input.
    pub more: bool,
}

/// Returns the commit that executes a plan, without writing it. `failures` is the record of the
/// pipeline's failure count as it was read; `None` if there is none. Fails, so that the queue is
/// read and planned again, if the queue has no head or the plan changes a landing or another
/// change's own queue that was not read, or an own queue that cannot be read.
pub(crate) fn prepare_commit(
    key: &QueueKey,
    loaded: &QueueContext,
    plan: QueuePlan,
    failures: Option<&Record>,
    now: Timestamp,
) -> Result<PreparedCommit, ReconcileError> {
    let before = &loaded.queue;
    let head = plan.head.or_else(|| before.head.clone());
    let Some(head) = head.or_else(|| super::head(key, &loaded.live, before)) else {
        return Err(ReconcileError::Retry(format!("the plan for {key} has no head")));
    };
    let mut prepared = Preparation::new(key, loaded, failures, now);
    prepared.landings = ordered_landings(&plan.actions).cloned().collect();
    prepared.writes.extend(provided::writes(key, loaded, &plan.actions, now)?);
    for action in plan.actions {
        prepared.carry_out(action)?;
    }
    prepared.finish(head, plan.due)
}

/// Returns the landings that a plan orders, in the order of its actions.
fn ordered_landings(actions: &[QueueAction]) -> impl Iterator<Item = &Landing> {
    actions.iter().filter_map(|action| match action {
        QueueAction::OrderLanding(landing) => Some(&**landing),
        _ => None,
    })
}

/// A commit in preparation.
struct Preparation<'a> {
    key: &'a QueueKey,
    loaded: &'a QueueContext,
    /// The record of the pipeline's failure count as it was read, if there is one.
    failures: Option<&'a Record>,
    now: Timestamp,
    precedence: Precedence,
    /// Whether the pipeline is `post-review`.
    post_review: bool,
    /// The landings that the plan orders.
    landings: Vec<Landing>,
    /// The cell after the actions so far.
    after: queue::LoadedQueue,
    /// The branch locks written so far, in their new state.
    branch_locks: BranchLocks,
    writes: Vec<Write>,
    wakeups: Vec<Wakeup>,
}

impl<'a> Preparation<'a> {
    /// Returns a commit without writes. The caller sets `landings`, which a request for a layout
    /// lists, before it adds the actions.
    fn new(
        key: &'a QueueKey,
        loaded: &'a QueueContext,
        failures: Option<&'a Record>,
        now: Timestamp,
    ) -> Self {
        let pipeline = loaded.live.layout.pipeline(key.pipeline.as_str());
        let before = &loaded.queue;
        // The old head is not copied: for a long queue that would cost more than the decision.
        let after = queue::LoadedQueue {
            head_record: None,
            head: None,
            items: before.items.clone(),
            inbox: before.inbox.clone(),
            inbox_keys: before.inbox_keys.clone(),
            is_cut: before.is_cut,
            is_halted: before.is_halted,
        };
        Self {
            key,
            loaded,
            failures,
            now,
            precedence: pipeline.map_or(Precedence::Normal, |pipeline| pipeline.precedence),
            post_review: pipeline.is_some_and(|pipeline| pipeline.post_review),
            landings: Vec::new(),
            after,
            branch_locks: BranchLocks::new(),
            writes: Vec::new(),
            wakeups: Vec::new(),
        }
    }

    /// Adds the writes and wakeups of one action to the commit, and applies it to the cell after
    /// the commit. Reminders of landings add nothing. Fails if the action changes a landing or an
    /// own queue that was not read, or an own queue that cannot be read.
    fn carry_out(&mut self, action: QueueAction) -> Result<(), ReconcileError> {
        let (key, now) = (self.key, self.now);
        match action {
            QueueAction::PutItem(item) => self.put_item(*item)?,
            QueueAction::StoreBuildset(ended) => self.writes.push(buildset(key, &ended, now)?),
            QueueAction::RemoveItem(removed) => self.remove_item(&removed)?,
            QueueAction::DeleteMessage(id) => self.delete_message(&id),
            QueueAction::MarkInProgress(id) => self.mark_in_progress(&id)?,
            QueueAction::OrderBuild(draft) => self.order_build(&draft)?,
            QueueAction::RecordEndedBuild { draft, end } => {
                self.writes.push(put_order(&Order { end: Some(end), ..self.order(&draft) })?);
            }
            QueueAction::StopBuild(stop) => self.stop_build(&stop)?,
            QueueAction::SendBuild { build, request, labels } => {
                let zone = request.as_ref().and_then(|at| self.executor_zone(at, &labels));
                self.send_build(build, request, zone);
            }
            QueueAction::ResumeBuild(build) => {
                self.writes.push(put_resume(&build, &ResumeRequest { at: now })?);
            }
            QueueAction::OrderLanding(landing) => {
                self.writes.push(landing::put(&landing)?);
                self.wakeups.push(landing::wakeup(&landing));
            }
            QueueAction::WithdrawLanding(landing) => self.withdraw_landing(&landing)?,
            // A plan that writes nothing sends reminders; a later one repeats them.
            QueueAction::RemindLanding(_) => {}
            QueueAction::MakeReport(made) => {
                for part in made.records() {
                    self.writes.push(report::put(&part)?);
                    self.wakeups.push(report::wakeup(&part));
                }
            }
            QueueAction::EmitEvent { event, item, change } => {
                let (write, wakeup) = event_delivery(key, event, &item, &change, now)?;
                self.writes.push(write);
                self.wakeups.push(wakeup);
            }
            QueueAction::SendMessage { queue, message } => {
                self.writes.push(message_write(&queue, &message)?);
                self.wakeups.push(Wakeup::Queue { queue });
            }
            QueueAction::SetHostQueue { change, host } => {
                let own_queues = &self.loaded.own_queues;
                let layout = self.loaded.live.number();
                self.writes
                    .extend(host_queues::writes(key, own_queues, &change, host, layout, now)?);
            }
            QueueAction::PutSemaphore(semaphore) => {
                let seen = self.loaded.semaphores.get(&semaphore.key).map(|(record, _)| record);
                self.writes.push(sluice_records::semaphore::put(seen, &semaphore)?);
            }
            QueueAction::PutBranchLock(lock) => self.put_branch_lock(*lock)?,
            QueueAction::PutHealth(health) => {
                self.writes.push(pipeline_health::put(self.failures, &health, now)?);
            }
            QueueAction::WakeQueue(queue) => self.wakeups.push(Wakeup::Queue { queue }),
            QueueAction::RequestMerge { item, generation } => {
                self.wakeups.push(Wakeup::Merge { queue: key.clone(), item, generation });
            }
            QueueAction::RequestLayout => {
                self.writes.push(want_layout(&self.loaded.live, &self.landings, now)?);
            }
            QueueAction::WakeTenant => {
                self.wakeups.push(Wakeup::Tenant { tenant: key.tenant.clone() });
            }
        }
        Ok(())
    }

    /// Adds the write of an item as the next version of its record to the commit, without a
    /// condition of its own: the head's revision guards the whole cell.
    fn put_item(&mut self, item: Item) -> Result<(), PortError> {
        let before = self.loaded.queue.items.get(&item.id).map(|(record, _)| &**record);
        let record = queue::item_record(self.key, before, &item)?;
        // The head's revision guards the whole cell, so items need no condition.
        self.writes.push(Write::Put { record: record.clone(), expect: Expect::Anything });
        self.after.items.insert(item.id.clone(), (Arc::new(record), Arc::new(item)));
        Ok(())
    }

    /// Adds the deletion of an item's record, if the item was stored before this plan, and the
    /// write of its buildset to the commit.
    fn remove_item(&mut self, removed: &RemovedItem) -> Result<(), PortError> {
        let id = &removed.item.id;
        self.after.items.remove(id);
        if self.loaded.queue.items.contains_key(id) {
            let key = queue::item_key(self.key, id);
            self.writes.push(Write::Delete { key, expect: Expect::Anything });
        }
        self.writes.push(buildset(self.key, removed, self.now)?);
        Ok(())
    }

    /// Adds the deletion of a message of the inbox to the commit. Does nothing if the message was
    /// not read.
    fn delete_message(&mut self, id: &InboxMessageId) {
        if let Some(key) = self.after.inbox_keys.remove(id) {
            self.writes.push(Write::Delete { key, expect: Expect::Anything });
        }
        self.after.inbox.retain(|message| message.id != *id);
    }

    /// Adds the write of a message of the inbox as in progress to the commit, even if it was so
    /// before. Does nothing if the message was not read or is deleted by this commit.
    fn mark_in_progress(&mut self, id: &InboxMessageId) -> Result<(), PortError> {
        for message in self.after.inbox.iter_mut().filter(|message| message.id == *id) {
            message.in_progress = true;
            self.writes.push(unconditional(queue::put_message(self.key, message)?));
        }
        Ok(())
    }

    /// Returns the zone of executors that reach nodes of these labels, by the live configuration of
    /// the provider that a request is made to; `None` if every executor does.
    fn executor_zone(&self, at: &RequestRef, labels: &[LabelName]) -> Option<ZoneName> {
        let mut providers = self.loaded.live.layout.providers().iter();
        let provider = providers.find(|known| known.canonical_name == at.provider.as_str())?;
        provider.executor_zone(labels.iter().map(LabelName::as_str))
    }

    /// Adds the wakeup that sends a build to the executors, to those of `zone` if there is one.
    /// `request` holds its nodes; `None` if it needs none.
    fn send_build(&mut self, build: BuildId, request: Option<RequestRef>, zone: Option<ZoneName>) {
        self.wakeups.push(Wakeup::Build {
            build,
            precedence: self.precedence,
            tenant: self.key.tenant.clone(),
            request,
            nodes: Vec::new(),
            zone,
        });
    }

    /// Returns the record of a build's order, for a build that an executor is to run.
    fn order(&self, draft: &OrderDraft) -> Order {
        Order {
            build: draft.build.clone(),
            queue: self.key.clone(),
            item: draft.item.clone(),
            generation: draft.generation,
            job: draft.job.clone(),
            attempt: draft.attempt,
            max_attempts: draft.max_attempts,
            voting: draft.voting,
            graph: draft.graph.clone(),
            speculation: draft.speculation.clone(),
            change: draft.change.clone(),
            event_id: draft.event_id.clone(),
            merge_commit: draft.merge_commit.clone(),
            bundle: draft.bundle.clone(),
            post_review: self.post_review,
            shared_with: draft.shared_with.clone(),
            parents: draft.parents.clone(),
            providers: draft.artifact_builds.clone(),
            nodeset: draft.nodeset,
            request: draft.request.clone(),
            ordered_at: self.now,
            end: None,
        }
    }

    /// Adds the order of a build to the commit, with its node request and the provider's wakeup,
    /// or, if the draft has no node request, with the wakeup that sends the build to the executors.
    fn order_build(&mut self, draft: &OrderDraft) -> Result<(), PortError> {
        let (key, now) = (self.key, self.now);
        self.writes.push(put_order(&self.order(draft))?);
        let Some(at) = &draft.request else {
            self.send_build(draft.build.clone(), None, None);
            return Ok(());
        };
        let layout = &self.loaded.live.layout;
        let request = NodeRequest::new(
            RequestRow(at.row.clone()),
            draft.build.clone(),
            key.clone(),
            format!("{} {} of {}", key.pipeline, draft.job, draft.change),
            self.precedence,
            draft.labels.iter().map(|label| layout.canonical_label(label.as_str())).collect(),
            now,
        );
        let ready_recipient =
            if draft.nodes_first { ReadyRecipient::Queue } else { ReadyRecipient::Executors };
        let executor_zone = self.executor_zone(at, &draft.labels);
        let group = fairness_group(&self.loaded.live, key, &draft.change);
        self.writes.push(provider::create_request(
            &at.provider,
            &NodeRequest {
                names: draft.labels.clone(),
                ready_recipient,
                executor_zone,
                group,
                ..request
            },
        )?);
        self.wakeups.push(Wakeup::Pool { provider: at.provider.clone() });
        Ok(())
    }

    /// Adds the request to stop a build to the commit, with the wakeup of the provider that has its
    /// node request, if there is one. The provider withdraws the request then.
    fn stop_build(&mut self, stop: &BuildStop) -> Result<(), PortError> {
        let wish = sluice_records::build::StopRequest {
            why: stop.why.clone(),
            at: self.now,
            executor_is_dead: stop.cause == StopCause::ExecutorLost,
            result: (stop.cause == StopCause::NoNodes).then_some(BuildResult::NodeFailure),
        };
        self.writes.push(put_stop(&stop.build, &wish)?);
        if let Some(request) = &stop.request {
            self.wakeups.push(Wakeup::Pool { provider: request.provider.clone() });
        }
        Ok(())
    }

    /// Adds the write of a landing's end to the commit, on condition that its record is unchanged
    /// since it was read. Fails if the record was not read, so that the queue is read and planned
    /// again.
    fn withdraw_landing(&mut self, ended: &Landing) -> Result<(), ReconcileError> {
        let Some(seen) = self.loaded.landing_records.get(&ended.item) else {
            return Err(ReconcileError::Retry(format!(
                "the plan for {} withdraws a landing that was not read",
                self.key
            )));
        };
        self.writes.push(landing::put_ended(seen, ended)?);
        Ok(())
    }

    /// Adds the write of a branch lock to the commit, on condition that its record is unchanged
    /// since it was read, or that there is still none. A takeover also requires that the landing of
    /// its previous holder, if that has not ended, is unchanged. Keeps the new state for the next
    /// plan.
    fn put_branch_lock(&mut self, lock: BranchLock) -> Result<(), PortError> {
        let known = self.loaded.branch_locks.get(&lock.branch);
        self.writes.extend(known.and_then(|known| known.takeover_condition(&lock)));
        let write = branch_lock::put(known.map(|known| &known.record), &lock, self.now)?;
        if let Write::Put { record, .. } = &write {
            self.branch_locks.insert(lock.branch.clone(), LoadedLock::new(record.clone(), lock));
        }
        self.writes.push(write);
        Ok(())
    }

    /// Returns the commit with this head, due at `due_at`; `None` for never. Must be called after
    /// all actions were added. Also updates the queue's entry in the tenant's list if the queue
    /// becomes empty or not, or its counted changes change. `more` is set if the commit is due
    /// already. Of several writes of a record only the last is kept.
    fn finish(
        mut self,
        head: Head,
        due_at: Option<Timestamp>,
    ) -> Result<PreparedCommit, ReconcileError> {
        let (key, before) = (self.key, &self.loaded.queue);
        let was_listed = before.head.as_ref().is_some_and(|head| !head.entries.is_empty());
        let is_listed = !head.entries.is_empty();
        let mut record = head_record(before, &head, self.now)?;
        record.find = self.group_entry();
        self.after.head = Some(head);
        let is_limited = self.loaded.live.layout.tenant().max_changes_per_pipeline.is_some();
        let count = |queue: &queue::LoadedQueue| if is_limited { changes(queue) } else { 0 };
        let is_count_new = count(before) != count(&self.after);
        if is_listed != was_listed || is_count_new || (before.head.is_none() && is_listed) {
            self.writes.push(queue_list_write(key, is_listed, count(&self.after))?);
        }
        let commit = CellCommit {
            head: record,
            others: deduplicated(self.writes),
            wakeups: self.wakeups,
            due: due(key, due_at),
        };
        let more = due_at.is_some_and(|due| due <= self.now);
        Ok(PreparedCommit { commit, after: self.after, branch_locks: self.branch_locks, more })
    }

    /// Returns the index entry of the head, which lists the queue in its group while it has changes;
    /// `None` for an empty queue and outside of independent pipelines.
    fn group_entry(&self) -> Option<(String, String)> {
        let items = self.after.items.values().map(|(_, item)| item);
        let first = items.min_by_key(|item| item.admitted_at)?;
        let group = fairness_group(&self.loaded.live, self.key, &first.candidate.change)?;
        Some(queue_positions::group_entry(&group, self.key, first.admitted_at))
    }
}

/// Returns the write of a message to another queue's inbox; the caller wakes that queue. The write
/// fails if the message was added before. Only a request to move (`MoveToHost`) overwrites:
/// repeated, it has the id and content of the first one, which a halted queue has not consumed.
fn message_write(queue: &QueueKey, message: &InboxMessage) -> Result<Write, PortError> {
    let write = queue::put_message(queue, message)?;
    Ok(if matches!(message.kind, InboxMessageKind::MoveToHost { .. }) {
        unconditional(write)
    } else {
        write
    })
}

/// Returns a write of a record without its condition, for a record that may exist already. Writes
/// of other kinds are unchanged.
fn unconditional(write: Write) -> Write {
    match write {
        Write::Put { record, .. } => Write::Put { record, expect: Expect::Anything },
        write => write,
    }
}

/// Returns a head's record as it was read with the new body, or the first record of a new head; the
/// commit raises the revision. The record of an empty queue that is not hosted elsewhere gets an
/// expiry time.
pub fn head_record(
    before: &queue::LoadedQueue,
    head: &Head,
    now: Timestamp,
) -> Result<Record, PortError> {
    let mut record = match &before.head_record {
        Some(record) => with_body(record.clone(), &head.stored())?,
        None => queue::head_record(head)?,
    };
    // An empty queue's record expires after a month; a later message starts a new one.
    let is_unused = head.entries.is_empty() && head.hosted_in.is_none();
    record.expires_at = is_unused.then(|| expiry(now));
    Ok(record)
}

/// Returns the due time at which the sweep wakes the queue; `None` if `at` is `None`.
pub fn due(key: &QueueKey, at: Option<Timestamp>) -> Option<Due> {
    at.map(|at| Due { at, wakeup: Wakeup::Queue { queue: key.clone() } })
}

/// Returns the write of the buildset of an ended item. It ended `now`, or, if it stayed for jobs
/// after its reports, when it succeeded.
fn buildset(key: &QueueKey, ended: &RemovedItem, now: Timestamp) -> Result<Write, PortError> {
    report::put_buildset(&Buildset {
        id: ended.item.id.clone(),
        queue: key.clone(),
        item: ended.item.clone(),
        result: ended.result.to_owned(),
        why: ended.why.clone(),
        ended_at: ended.item.reporting.as_ref().map_or(now, |reporting| reporting.since),
    })
}

/// Returns the group of changes among which nodes are shared fairly, in an independent pipeline:
/// those of one project or shared queue. `None` in other pipelines, where the queue is the group,
/// and if the layout has no such pipeline.
fn fairness_group(live: &LiveLayout, key: &QueueKey, change: &ChangeRef) -> Option<String> {
    let pipeline = live.layout.pipeline(key.pipeline.as_str())?;
    let branch = change.on_branch().map(BranchName::as_str);
    let queue = || live.layout.queue_on(&change.key.project, key.pipeline.as_str(), branch).name;
    (pipeline.manager == Manager::Independent)
        .then(|| format!("{}/{}/{}", key.tenant, key.pipeline, queue()))
}

/// Returns the write of a new delivery of an event about a change of this queue that may start
/// other pipelines, with the wakeup that has it processed. The write fails if the item has emitted
/// this event before.
fn event_delivery(
    key: &QueueKey,
    zuul_event: ZuulEvent,
    item: &ItemId,
    change: &ChangeRef,
    now: Timestamp,
) -> Result<(Write, Wakeup), PortError> {
    let (connection, project) = (change.key.connection.clone(), change.key.project.clone());
    let kind = EventKind::ZuulBroadcast {
        tenant: key.tenant.clone(),
        event: zuul_event,
        pipeline: key.pipeline.clone(),
        number: change.key.number().unwrap_or_default(),
        after: 0,
        after_change: None,
    };
    let event = DeliveryRecord {
        connection: connection.clone(),
        forge_id: format!("zuul:{}:{item}", zuul_event.as_str()),
        event_name: zuul_event.as_str().to_owned(),
        received_at: now,
        event: Some(ForgeEvent { connection, project, sender: String::new(), kind }),
        state: DeliveryState::Accepted,
    };
    let (_, record, wakeup) = delivery::pending(&event, now.plus_seconds(60))?;
    // An item enters and is merged once, in one transaction each.
    Ok((Write::Put { record, expect: Expect::Absent }, wakeup))
}

/// Returns the write that requests a new layout of the tenant, in the transaction that orders
/// `landings`. It lists these landings, and those of their later members that change configuration;
/// the sweep wakes the tenant later to look at them. Nothing else is merged until their
/// configuration is live. The write is conditional on the tenant's head being unchanged.
fn want_layout(
    live: &LiveLayout,
    landings: &[Landing],
    now: Timestamp,
) -> Result<Write, PortError> {
    let mut head = live.tenant.clone();
    head.layout.wanted += 1;
    let await_end =
        |item: &ItemId, generation: u64, change: &ChangeRef, first: Option<FirstLanding>| {
            let project = change.key.project.clone();
            PendingConfigLanding {
                item: item.clone(),
                generation,
                project,
                ordered_at: now,
                first,
                given_up: None,
            }
        };
    for landing in landings {
        head.landings.push(await_end(&landing.item, landing.generation, &landing.change, None));
        // The later members of a bundle are ordered one after the other; their configuration is
        // waited for, too.
        let first = FirstLanding { item: landing.item.clone(), generation: landing.generation };
        let others = landing.later_members.iter().filter(|other| other.configures);
        let others = others.map(|other| {
            await_end(&other.item, other.generation, &other.change, Some(first.clone()))
        });
        head.landings.extend(others);
    }
    let seen = live.record.revision;
    let mut record = with_body(live.record.clone(), &head)?;
    record.revision = seen + 1;
    // The queue wakes the tenant when the landing ends; a queue that is halted by then does not.
    let at = now.plus_seconds(tenant::RECHECK_SECONDS);
    record.due = Some(Due { at, wakeup: Wakeup::Tenant { tenant: head.name.clone() } });
    record.sweep_at = Some(record.sweep_at.map_or(at, |look| look.min(at)));
    Ok(Write::Put { record, expect: Expect::Revision(seen) })
}

/// Returns the number of changes in a queue, as `max-changes-per-pipeline` counts them; 0 without a
/// head.
fn changes(queue: &queue::LoadedQueue) -> u32 {
    let Some(head) = &queue.head else { return 0 };
    let all: u64 =
        queue.items.values().map(|(_, item)| item.candidate.change_count_in(head.manager)).sum();
    u32::try_from(all).unwrap_or(u32::MAX)
}

/// Returns the unconditional write that lists a queue in the tenant's list of queues with its
/// number of changes. If it is not `listed`, the write removes it from the list, and `changes` is
/// ignored.
fn queue_list_write(key: &QueueKey, listed: bool, changes: u32) -> Result<Write, PortError> {
    if listed {
        return tenant::put_queue(key, changes);
    }
    Ok(Write::Delete { key: tenant::queue_key(key), expect: Expect::Anything })
}

/// Returns the last write of each record, ordered by key, without the writes before it. For
/// example, two items that share a build may both stop it.
fn deduplicated(writes: Vec<Write>) -> Vec<Write> {
    let mut last = std::collections::BTreeMap::new();
    for write in writes {
        last.insert(write.key().clone(), write);
    }
    last.into_values().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_gate::Candidate;
    use sluice_model::change::{ChangeKey, ChangeRef};
    use sluice_model::{InboxMessageId, ProjectName};

    /// Z6.5: repeating a move request does not fail where the first one was not consumed yet.
    #[test]
    fn a_repeated_move_request_may_overwrite_an_unconsumed_one() {
        let key = ChangeKey::change("github".into(), ProjectName::new("forge.test", "org/one"), 2);
        let change = ChangeRef {
            key,
            branch: "main".into(),
            head: "abc".into(),
            patchset: "abc".to_owned(),
        };
        let queue =
            QueueKey { tenant: "t".into(), pipeline: "check".into(), queue: "org/one#1".into() };
        let expected = |kind: InboxMessageKind| {
            let (id, event_id, by_operator) =
                (InboxMessageId::derive(&["one"]), String::new(), false);
            let message = InboxMessage {
                id,
                at: Timestamp(1),
                event_id,
                layout: 1,
                by_operator,
                in_progress: false,
                kind,
            };
            let Write::Put { expect, .. } = message_write(&queue, &message).unwrap() else {
                unreachable!()
            };
            expect
        };
        let candidates = vec![Candidate::bare(&change)];
        assert_eq!(expected(InboxMessageKind::Enqueue { candidates }), Expect::Absent);
        let makes_way =
            InboxMessageKind::MoveToHost { change, as_of: Timestamp(0), to: "org/one#1".into() };
        assert_eq!(expected(makes_way), Expect::Anything);
    }
}
