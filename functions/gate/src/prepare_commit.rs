//! Builds one commit from a plan. Makes no decisions.

use crate::branch_locks::{BranchLocks, LoadedLock};
use crate::host_queues;
use crate::provided;
use crate::queue_context::QueueContext;
use sluice_config::pipeline::Manager;
use sluice_gate::plan::{BuildStop, OrderDraft, QueuePlan, RemovedItem};
use sluice_gate::{InboxMessage, InboxMessageKind, Landing, Report};
use sluice_model::build::Order;
use sluice_model::change::ChangeRef;
use sluice_model::event::{EventKind, ForgeEvent, ZuulEvent};
use sluice_model::wakeup::{Precedence, Wakeup};
use sluice_model::{BranchName, ItemId, QueueKey, Timestamp};
use sluice_pool::{NodeRequest, ReadyRecipient, RequestRow};
use sluice_records::build::{ResumeRequest, put_order, put_resume, put_stop};
use sluice_records::codec::{expiry, with_body};
use sluice_records::delivery::{self, DeliveryRecord, DeliveryState};
use sluice_records::layout::LiveLayout;
use sluice_records::report::Buildset;
use sluice_records::tenant::{FirstLanding, PendingConfigLanding};
use sluice_records::{branch_lock, landing, provider, queue, report, tenant};
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
    pub(crate) turns: BranchLocks,
    /// Whether another plan may find more to do without new input.
    pub more: bool,
}

/// Returns the commit that executes a plan.
pub(crate) fn prepare_commit(
    key: &QueueKey,
    loaded: &QueueContext,
    mut plan: QueuePlan,
    now: Timestamp,
) -> Result<PreparedCommit, ReconcileError> {
    let (live, before) = (&loaded.live, &loaded.queue);
    let head = plan.head.take().or_else(|| before.head.clone());
    let Some(head) = head.or_else(|| super::head(key, live, before)) else {
        return Err(ReconcileError::Retry(format!("the plan for {key} has no head")));
    };
    let was_listed = before.head.as_ref().is_some_and(|head| !head.entries.is_empty());
    // The old head is not copied: for a long queue that would cost more than the decision.
    let mut after = queue::LoadedQueue {
        head_record: None,
        head: None,
        items: before.items.clone(),
        inbox: before.inbox.clone(),
        inbox_keys: before.inbox_keys.clone(),
        is_cut: before.is_cut,
        is_halted: before.is_halted,
    };
    let mut writes = Vec::new();
    let mut wakeups = Vec::new();
    for item in plan.items.values() {
        let record =
            queue::item_record(key, before.items.get(&item.id).map(|(record, _)| &**record), item)?;
        after.items.insert(item.id.clone(), (Arc::new(record.clone()), Arc::new(item.clone())));
        // The head's revision guards the whole cell, so items need no condition.
        writes.push(Write::Put { record, expect: Expect::Anything });
    }
    for reported in &plan.succeeded {
        writes.push(buildset(key, reported, now)?);
    }
    for removed in &plan.removed {
        after.items.remove(&removed.item.id);
        remove(key, before, removed, now, &mut writes)?;
    }
    writes.extend(provided::writes(key, loaded, &plan, now)?);
    for id in &plan.consumed {
        if let Some(message) = after.inbox_keys.remove(id) {
            writes.push(Write::Delete { key: message, expect: Expect::Anything });
        }
    }
    after.inbox.retain(|message| !plan.consumed.contains(&message.id));
    for request in after.inbox.iter_mut().filter(|message| plan.in_progress.contains(&message.id)) {
        request.in_progress = true;
        writes.push(unconditional(queue::put_message(key, request)?));
    }
    let precedence = live
        .layout
        .pipeline(key.pipeline.as_str())
        .map_or(Precedence::Normal, |pipeline| pipeline.precedence);
    let post_review =
        live.layout.pipeline(key.pipeline.as_str()).is_some_and(|pipeline| pipeline.post_review);
    for draft in &plan.orders {
        let of_pipeline =
            OfPipeline { precedence, post_review, group: group(live, key, &draft.change) };
        order(key, draft, of_pipeline, now, &mut writes, &mut wakeups)?;
    }
    for stop in &plan.stops {
        stop_build(stop, now, &mut writes, &mut wakeups)?;
    }
    for (build, request) in &plan.sends {
        let (build, request, nodes) = (build.clone(), Some(request.clone()), Vec::new());
        wakeups.push(Wakeup::Build {
            build,
            precedence,
            tenant: key.tenant.clone(),
            request,
            nodes,
        });
    }
    for build in &plan.resends {
        let (build, tenant) = (build.clone(), key.tenant.clone());
        wakeups.push(Wakeup::Build { build, precedence, tenant, request: None, nodes: Vec::new() });
    }
    for build in &plan.resumes {
        writes.push(put_resume(build, &ResumeRequest { at: now })?);
    }
    for wanted in &plan.landings {
        writes.push(landing::put(wanted)?);
        wakeups.push(landing::wakeup(wanted));
    }
    for ended in &plan.withdrawn_landings {
        let Some(seen) = loaded.landing_records.get(&ended.item) else {
            return Err(ReconcileError::Retry(format!(
                "the plan for {key} withdraws a landing that was not read"
            )));
        };
        writes.push(landing::put_ended(seen, ended)?);
    }
    for wanted in plan.reports.iter().flat_map(Report::records) {
        writes.push(report::put(&wanted)?);
        wakeups.push(report::wakeup(&wanted));
    }
    for (zuul_event, item, change) in &plan.events {
        let (write, wakeup) = event_delivery(key, *zuul_event, item, change, now)?;
        writes.push(write);
        wakeups.push(wakeup);
    }
    for (queue, message) in &plan.forwards {
        writes.push(forward(queue, message)?);
        wakeups.push(Wakeup::Queue { queue: queue.clone() });
    }
    writes.extend(host_queues::writes(key, &loaded.own_queues, &plan, live.number(), now)?);
    for semaphore in &plan.semaphores {
        let seen = loaded.semaphores.get(&semaphore.key).map(|(record, _)| record);
        writes.push(sluice_records::semaphore::put(seen, semaphore)?);
    }
    let mut turns = BranchLocks::new();
    for wanted in plan.branch_locks {
        let known = loaded.branch_locks.get(&wanted.branch);
        writes.extend(known.and_then(|known| known.takeover_condition(&wanted)));
        let write = branch_lock::put(known.map(|known| &known.record), &wanted, now)?;
        if let Write::Put { record, .. } = &write {
            turns.insert(wanted.branch.clone(), LoadedLock::new(record.clone(), wanted));
        }
        writes.push(write);
    }
    wakeups.extend(plan.wake.iter().map(|queue| Wakeup::Queue { queue: queue.clone() }));
    for (item, generation) in &plan.merge_requests {
        wakeups.push(Wakeup::Merge {
            queue: key.clone(),
            item: item.clone(),
            generation: *generation,
        });
    }
    if plan.requests_layout {
        writes.push(want_layout(live, &plan.landings, now)?);
    }
    if plan.wake_tenant {
        wakeups.push(Wakeup::Tenant { tenant: key.tenant.clone() });
    }
    let (record, is_listed) = (head_record(before, &head, now)?, !head.entries.is_empty());
    after.head = Some(head);
    let is_limited = live.layout.tenant().max_changes_per_pipeline.is_some();
    let changes = |queue: &queue::LoadedQueue| if is_limited { changes(queue) } else { 0 };
    let counts_else = changes(before) != changes(&after);
    if is_listed != was_listed || counts_else || (before.head.is_none() && is_listed) {
        writes.push(list(key, is_listed, changes(&after))?);
    }
    let more = plan.due.is_some_and(|due| due <= now);
    let commit =
        CellCommit { head: record, others: deduplicated(writes), wakeups, due: due(key, plan.due) };
    Ok(PreparedCommit { commit, after, turns, more })
}

/// Returns the write of a message to another queue's inbox. A repeated move request has the same id
/// and content, so it may overwrite the first one, which a halted queue has not consumed.
fn forward(queue: &QueueKey, message: &InboxMessage) -> Result<Write, PortError> {
    let write = queue::put_message(queue, message)?;
    Ok(if matches!(message.kind, InboxMessageKind::MoveToHost { .. }) {
        unconditional(write)
    } else {
        write
    })
}

/// Returns a write without a condition, for a record that may exist already.
fn unconditional(write: Write) -> Write {
    match write {
        Write::Put { record, .. } => Write::Put { record, expect: Expect::Anything },
        write => write,
    }
}

/// Returns the next version of a head's record.
pub fn head_record(
    before: &queue::LoadedQueue,
    head: &sluice_gate::Head,
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

/// Returns the due time for the sweep; `None` where the queue needs none.
pub fn due(key: &QueueKey, at: Option<Timestamp>) -> Option<Due> {
    at.map(|at| Due { at, wakeup: Wakeup::Queue { queue: key.clone() } })
}

fn remove(
    key: &QueueKey,
    before: &queue::LoadedQueue,
    removed: &RemovedItem,
    now: Timestamp,
    writes: &mut Vec<Write>,
) -> Result<(), PortError> {
    if before.items.contains_key(&removed.item.id) {
        writes.push(Write::Delete {
            key: queue::item_key(key, &removed.item.id),
            expect: Expect::Anything,
        });
    }
    writes.push(buildset(key, removed, now)?);
    Ok(())
}

/// Returns the write of the buildset of an ended item. An item that stayed for jobs after its
/// reports ended when it succeeded.
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

/// The settings of a build's pipeline.
struct OfPipeline {
    /// The pipeline's precedence.
    precedence: Precedence,
    /// Whether the pipeline is `post-review`.
    post_review: bool,
    /// The fairness group of the node request ([`group`]).
    group: Option<String>,
}

/// Returns the group of changes among which nodes are shared fairly, in an independent pipeline:
/// those of one project or shared queue. `None` in other pipelines, where the queue is the group.
fn group(live: &LiveLayout, key: &QueueKey, change: &ChangeRef) -> Option<String> {
    let pipeline = live.layout.pipeline(key.pipeline.as_str())?;
    let branch = change.on_branch().map(BranchName::as_str);
    let queue = || live.layout.queue_on(&change.key.project, key.pipeline.as_str(), branch).name;
    (pipeline.manager == Manager::Independent)
        .then(|| format!("{}/{}/{}", key.tenant, key.pipeline, queue()))
}

fn order(
    key: &QueueKey,
    draft: &OrderDraft,
    OfPipeline { precedence, post_review, group }: OfPipeline,
    now: Timestamp,
    writes: &mut Vec<Write>,
    wakeups: &mut Vec<Wakeup>,
) -> Result<(), PortError> {
    writes.push(put_order(&Order {
        build: draft.build.clone(),
        queue: key.clone(),
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
        post_review,
        parents: draft.parents.clone(),
        providers: draft.artifact_builds.clone(),
        nodeset: draft.nodeset,
        request: draft.request.clone(),
        ordered_at: now,
    })?);
    match &draft.request {
        Some(at) => {
            let requestor = format!("{} {} of {}", key.pipeline, draft.job, draft.change);
            let row = RequestRow(at.row.clone());
            let request = NodeRequest::new(
                row,
                draft.build.clone(),
                key.clone(),
                requestor,
                precedence,
                draft.labels.clone(),
                now,
            );
            let ready_recipient =
                if draft.nodes_first { ReadyRecipient::Queue } else { ReadyRecipient::Executors };
            writes.push(provider::create_request(
                &at.provider,
                &NodeRequest { ready_recipient, group, ..request },
            )?);
            wakeups.push(Wakeup::Pool { provider: at.provider.clone() });
        }
        None => wakeups.push(Wakeup::Build {
            build: draft.build.clone(),
            precedence,
            tenant: key.tenant.clone(),
            request: None,
            nodes: Vec::new(),
        }),
    }
    Ok(())
}

/// Returns the delivery of an event about a change of this queue that may start other pipelines,
/// with its wakeup.
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

fn stop_build(
    stop: &BuildStop,
    now: Timestamp,
    writes: &mut Vec<Write>,
    wakeups: &mut Vec<Wakeup>,
) -> Result<(), PortError> {
    let wish = sluice_records::build::StopRequest {
        why: stop.why.clone(),
        at: now,
        executor_is_dead: stop.executor_lost,
    };
    writes.push(put_stop(&stop.build, &wish)?);
    if let Some(request) = &stop.request {
        wakeups.push(Wakeup::Pool { provider: request.provider.clone() });
    }
    Ok(())
}

/// Requests a new layout of the tenant in the transaction that orders the landings, and lists these
/// landings: nothing else is merged until their configuration is live.
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

/// Returns the number of changes in a queue, as `max-changes-per-pipeline` counts them.
fn changes(queue: &queue::LoadedQueue) -> u32 {
    let Some(head) = &queue.head else { return 0 };
    let all: u64 =
        queue.items.values().map(|(_, item)| item.candidate.change_count_in(head.manager)).sum();
    u32::try_from(all).unwrap_or(u32::MAX)
}

fn list(key: &QueueKey, listed: bool, changes: u32) -> Result<Write, PortError> {
    if listed {
        return tenant::put_queue(key, changes);
    }
    Ok(Write::Delete { key: tenant::queue_key(key), expect: Expect::Anything })
}

/// Keeps the last write of each record: an item that enters and leaves in one plan is deleted.
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
            let Write::Put { expect, .. } = forward(&queue, &message).unwrap() else {
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
