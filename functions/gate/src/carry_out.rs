//! Turns a plan into one commit. It has no choices left.

use crate::doors;
use crate::load::Loaded;
use crate::provided;
use crate::turns::{Known, Turns};
use sluice_config::pipeline::Manager;
use sluice_gate::plan::{OrderDraft, Plan, Removed, Stop};
use sluice_gate::{Arrival, ArrivalKind, Landing, Report};
use sluice_model::build::Order;
use sluice_model::change::ChangeRef;
use sluice_model::event::{EventKind, ForgeEvent, ZuulEvent};
use sluice_model::poke::{Poke, Precedence};
use sluice_model::{BranchName, ItemId, QueueKey, Timestamp};
use sluice_pool::{Request, Row, Told};
use sluice_records::build::{Resume, put_order, put_resume, put_stop};
use sluice_records::codec::{expiry, with_body};
use sluice_records::delivery::{self, Delivery, DeliveryState};
use sluice_records::layout::Live;
use sluice_records::report::Buildset;
use sluice_records::tenant::{AwaitedLanding, FirstLanding};
use sluice_records::{landing, provider, queue, report, tenant, turn};
use sluice_runtime::batch::LookError;
use sluice_runtime::record::{Due, Expect, Record, Write};
use sluice_runtime::{Commit, PortError};
use std::sync::Arc;

/// A commit, what the cell is once it is written, and whether the queue has to be looked at again
/// right away.
pub struct Carried {
    /// What to write.
    pub commit: Commit,
    /// The cell as the commit leaves it, but for the head's record.
    pub after: queue::Loaded,
    /// The branches that the commit writes, as it leaves them.
    pub(crate) turns: Turns,
    /// Whether a further plan may find more to do without any news.
    pub more: bool,
}

/// Returns the commit of a plan.
pub(crate) fn carry_out(
    key: &QueueKey,
    loaded: &Loaded,
    mut plan: Plan,
    now: Timestamp,
) -> Result<Carried, LookError> {
    let (live, before) = (&loaded.live, &loaded.queue);
    let head = plan.head.take().or_else(|| before.head.clone());
    let Some(head) = head.or_else(|| super::head(key, live, before)) else {
        return Err(LookError::Again(format!("a plan for {key} without a queue")));
    };
    let was_listed = before.head.as_ref().is_some_and(|head| !head.slots.is_empty());
    // Not all of what was before is copied: the heads of a long queue, again and again, would cost
    // more than what is decided.
    let mut after = queue::Loaded {
        head_record: None,
        head: None,
        items: before.items.clone(),
        arrivals: before.arrivals.clone(),
        arrival_keys: before.arrival_keys.clone(),
        is_cut: before.is_cut,
        is_frozen: before.is_frozen,
    };
    let mut writes = Vec::new();
    let mut pokes = Vec::new();
    for item in plan.items.values() {
        let record =
            queue::item_record(key, before.items.get(&item.id).map(|(record, _)| &**record), item)?;
        after.items.insert(item.id.clone(), (Arc::new(record.clone()), Arc::new(item.clone())));
        // The head's revision guards the whole cell: nobody writes its items without it.
        writes.push(Write::Put { record, expect: Expect::Anything });
    }
    for reported in &plan.reported {
        writes.push(buildset(key, reported, now)?);
    }
    for removed in &plan.removed {
        after.items.remove(&removed.item.id);
        remove(key, before, removed, now, &mut writes)?;
    }
    writes.extend(provided::writes(key, loaded, &plan, now)?);
    for id in &plan.taken {
        if let Some(arrival) = after.arrival_keys.remove(id) {
            writes.push(Write::Delete { key: arrival, expect: Expect::Anything });
        }
    }
    after.arrivals.retain(|arrival| !plan.taken.contains(&arrival.id));
    for offer in after.arrivals.iter_mut().filter(|arrival| plan.taken_up.contains(&arrival.id)) {
        offer.taken_up = true;
        writes.push(again(queue::put_arrival(key, offer)?));
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
        order(key, draft, of_pipeline, now, &mut writes, &mut pokes)?;
    }
    for stop in &plan.stops {
        stop_build(stop, now, &mut writes, &mut pokes)?;
    }
    for (build, request) in &plan.sends {
        let (build, request, nodes) = (build.clone(), Some(request.clone()), Vec::new());
        pokes.push(Poke::Build { build, precedence, tenant: key.tenant.clone(), request, nodes });
    }
    for build in &plan.again {
        let (build, tenant) = (build.clone(), key.tenant.clone());
        pokes.push(Poke::Build { build, precedence, tenant, request: None, nodes: Vec::new() });
    }
    for build in &plan.resumes {
        writes.push(put_resume(build, &Resume { at: now })?);
    }
    for wanted in &plan.landings {
        writes.push(landing::put(wanted)?);
        pokes.push(landing::poke(wanted));
    }
    for ended in &plan.withdrawn {
        let Some(seen) = loaded.landing_records.get(&ended.item) else {
            return Err(LookError::Again(format!(
                "a plan for {key} takes back a landing that nobody has read"
            )));
        };
        writes.push(landing::put_ended(seen, ended)?);
    }
    for wanted in plan.reports.iter().flat_map(Report::records) {
        writes.push(report::put(&wanted)?);
        pokes.push(report::poke(&wanted));
    }
    for (what, item, change) in &plan.happened {
        let (write, poke) = happened(key, *what, item, change, now)?;
        writes.push(write);
        pokes.push(poke);
    }
    for (queue, arrival) in &plan.forwards {
        writes.push(forward(queue, arrival)?);
        pokes.push(Poke::Queue { queue: queue.clone() });
    }
    writes.extend(doors::writes(key, &loaded.doors, (&plan, live.number()), now)?);
    for semaphore in &plan.semaphores {
        let seen = loaded.semaphores.get(&semaphore.key).map(|(record, _)| record);
        writes.push(sluice_records::semaphore::put(seen, semaphore)?);
    }
    let mut turns = Turns::new();
    for wanted in plan.turns {
        let known = loaded.turns.get(&wanted.branch);
        writes.extend(known.and_then(|known| known.condition(&wanted)));
        let write = turn::put(known.map(|known| &known.record), &wanted, now)?;
        if let Write::Put { record, .. } = &write {
            turns.insert(wanted.branch.clone(), Known::new(record.clone(), wanted));
        }
        writes.push(write);
    }
    pokes.extend(plan.wake.iter().map(|queue| Poke::Queue { queue: queue.clone() }));
    for (item, generation) in &plan.asks {
        pokes.push(Poke::Merge { queue: key.clone(), item: item.clone(), generation: *generation });
    }
    if plan.wants_layout {
        writes.push(want_layout(live, &plan.landings, now)?);
    }
    if plan.poke_tenant {
        pokes.push(Poke::Tenant { tenant: key.tenant.clone() });
    }
    let (record, is_listed) = (head_record(before, &head, now)?, !head.slots.is_empty());
    after.head = Some(head);
    let is_limited = live.layout.tenant().max_changes_per_pipeline.is_some();
    let changes = |queue: &queue::Loaded| if is_limited { changes(queue) } else { 0 };
    let counts_else = changes(before) != changes(&after);
    if is_listed != was_listed || counts_else || (before.head.is_none() && is_listed) {
        writes.push(list(key, is_listed, changes(&after))?);
    }
    let more = plan.due.is_some_and(|due| due <= now);
    let commit =
        Commit { head: record, others: deduplicated(writes), pokes, due: due(key, plan.due) };
    Ok(Carried { commit, after, turns, more })
}

/// Returns the write that lets something arrive at another queue. What is asked for again has the
/// same name and says the same: where it was not heard yet, since that queue is frozen, say, it is
/// no reason for whoever sends it on to write nothing at all.
fn forward(queue: &QueueKey, arrival: &Arrival) -> Result<Write, PortError> {
    let write = queue::put_arrival(queue, arrival)?;
    Ok(if matches!(arrival.kind, ArrivalKind::MakeWay { .. }) { again(write) } else { write })
}

/// Returns the write of what may be there already.
fn again(write: Write) -> Write {
    match write {
        Write::Put { record, .. } => Write::Put { record, expect: Expect::Anything },
        write => write,
    }
}

/// Returns a head's record as it is written next.
pub fn head_record(
    before: &queue::Loaded,
    head: &sluice_gate::Head,
    now: Timestamp,
) -> Result<Record, PortError> {
    let mut record = match &before.head_record {
        Some(record) => with_body(record.clone(), &head.stored())?,
        None => queue::head_record(head)?,
    };
    // An empty queue is forgotten after a month; whatever arrives later starts a new one.
    let is_unused = head.slots.is_empty() && head.stands_in.is_none();
    record.expires_at = is_unused.then(|| expiry(now));
    Ok(record)
}

/// Returns when the sweep has to look at a queue.
pub fn due(key: &QueueKey, at: Option<Timestamp>) -> Option<Due> {
    at.map(|at| Due { at, poke: Poke::Queue { queue: key.clone() } })
}

fn remove(
    key: &QueueKey,
    before: &queue::Loaded,
    removed: &Removed,
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

/// Returns the write of what is kept of an item that has ended. One that stayed for jobs after its
/// reports ended when it succeeded.
fn buildset(key: &QueueKey, ended: &Removed, now: Timestamp) -> Result<Write, PortError> {
    report::put_buildset(&Buildset {
        id: ended.item.id.clone(),
        queue: key.clone(),
        item: ended.item.clone(),
        result: ended.result.to_owned(),
        why: ended.why.clone(),
        ended_at: ended.item.reporting.as_ref().map_or(now, |reporting| reporting.since),
    })
}

/// What a build's pipeline says of it.
struct OfPipeline {
    precedence: Precedence,
    post_review: bool,
    group: Option<String>,
}

/// Returns what a change takes turns with where each change is a queue of its own: all of its
/// project, or of those that share a queue.
fn group(live: &Live, key: &QueueKey, change: &ChangeRef) -> Option<String> {
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
    pokes: &mut Vec<Poke>,
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
        providers: draft.providers.clone(),
        nodeset: draft.nodeset,
        request: draft.request.clone(),
        ordered_at: now,
    })?);
    match &draft.request {
        Some(at) => {
            let requestor = format!("{} {} of {}", key.pipeline, draft.job, draft.change);
            let row = Row(at.row.clone());
            let request = Request::new(
                row,
                draft.build.clone(),
                key.clone(),
                requestor,
                precedence,
                draft.labels.clone(),
                now,
            );
            let told = if draft.nodes_first { Told::Queue } else { Told::Executors };
            writes
                .push(provider::create_request(&at.provider, &Request { told, group, ..request })?);
            pokes.push(Poke::Pool { provider: at.provider.clone() });
        }
        None => pokes.push(Poke::Build {
            build: draft.build.clone(),
            precedence,
            tenant: key.tenant.clone(),
            request: None,
            nodes: Vec::new(),
        }),
    }
    Ok(())
}

/// Returns the delivery that tells other changes what happened to one, and its poke.
fn happened(
    key: &QueueKey,
    what: ZuulEvent,
    item: &ItemId,
    change: &ChangeRef,
    now: Timestamp,
) -> Result<(Write, Poke), PortError> {
    let (connection, project) = (change.key.connection.clone(), change.key.project.clone());
    let kind = EventKind::Happened {
        tenant: key.tenant.clone(),
        what,
        pipeline: key.pipeline.clone(),
        number: change.key.number().unwrap_or_default(),
        after: 0,
        after_change: None,
    };
    let told = Delivery {
        connection: connection.clone(),
        forge_id: format!("zuul:{}:{item}", what.as_str()),
        event_name: what.as_str().to_owned(),
        received_at: now,
        event: Some(ForgeEvent { connection, project, sender: String::new(), kind }),
        state: DeliveryState::Accepted,
    };
    let (_, record, poke) = delivery::pending(&told, now.plus_seconds(60))?;
    // An item enters and lands once, and its transaction with it.
    Ok((Write::Put { record, expect: Expect::Absent }, poke))
}

fn stop_build(
    stop: &Stop,
    now: Timestamp,
    writes: &mut Vec<Write>,
    pokes: &mut Vec<Poke>,
) -> Result<(), PortError> {
    let wish = sluice_records::build::Stop { why: stop.why.clone(), at: now, lost: stop.lost };
    writes.push(put_stop(&stop.build, &wish)?);
    if let Some(request) = &stop.request {
        pokes.push(Poke::Pool { provider: request.provider.clone() });
    }
    Ok(())
}

/// Raises the tenant's wanted layout in the same transaction as the intent to land, and tells it
/// which landing's end to wait for: nothing else lands until what that brings is live.
fn want_layout(live: &Live, landings: &[Landing], now: Timestamp) -> Result<Write, PortError> {
    let mut head = live.tenant.clone();
    head.layout.wanted += 1;
    let await_end =
        |item: &ItemId, generation: u64, change: &ChangeRef, first: Option<FirstLanding>| {
            let project = change.key.project.clone();
            AwaitedLanding {
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
        // Of a bundle the others are ordered one after the other; what they bring is waited for as
        // well.
        let first = FirstLanding { item: landing.item.clone(), generation: landing.generation };
        let others = landing.together.iter().filter(|other| other.configures);
        let others = others.map(|other| {
            await_end(&other.item, other.generation, &other.change, Some(first.clone()))
        });
        head.landings.extend(others);
    }
    let seen = live.record.revision;
    let mut record = with_body(live.record.clone(), &head)?;
    record.revision = seen + 1;
    // The queue pokes the tenant when the landing is over; a queue that is frozen by then does not.
    let at = now.plus_seconds(tenant::LOOK_SECONDS);
    record.due = Some(Due { at, poke: Poke::Tenant { tenant: head.name.clone() } });
    record.look_at = Some(record.look_at.map_or(at, |look| look.min(at)));
    Ok(Write::Put { record, expect: Expect::Revision(seen) })
}

/// Counts the changes of a queue, as the limit of its pipeline does.
fn changes(queue: &queue::Loaded) -> u32 {
    let Some(head) = &queue.head else { return 0 };
    let all: u64 =
        queue.items.values().map(|(_, item)| item.candidate.changes_in(head.manager)).sum();
    u32::try_from(all).unwrap_or(u32::MAX)
}

fn list(key: &QueueKey, listed: bool, changes: u32) -> Result<Write, PortError> {
    if listed {
        return tenant::put_queue(key, changes);
    }
    Ok(Write::Delete { key: tenant::queue_key(key), expect: Expect::Anything })
}

/// Keeps the last write of each record: an item that entered and left in one plan leaves.
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
    use sluice_model::{ArrivalId, ProjectName};

    /// Z6.5: a queue that sends on what another one asks for again is not held up by a third one
    /// that has not heard it yet.
    #[test]
    fn what_is_asked_for_again_is_written_though_it_was_not_heard_yet() {
        let key = ChangeKey::change("github".into(), ProjectName::new("forge.test", "org/one"), 2);
        let change = ChangeRef {
            key,
            branch: "main".into(),
            head: "abc".into(),
            patchset: "abc".to_owned(),
        };
        let queue =
            QueueKey { tenant: "t".into(), pipeline: "check".into(), queue: "org/one#1".into() };
        let expected = |kind: ArrivalKind| {
            let (id, event_id, by_operator) = (ArrivalId::derive(&["one"]), String::new(), false);
            let arrival = Arrival {
                id,
                at: Timestamp(1),
                event_id,
                layout: 1,
                by_operator,
                taken_up: false,
                kind,
            };
            let Write::Put { expect, .. } = forward(&queue, &arrival).unwrap() else {
                unreachable!()
            };
            expect
        };
        let candidates = vec![Candidate::bare(&change)];
        assert_eq!(expected(ArrivalKind::Enqueue { candidates }), Expect::Absent);
        let makes_way =
            ArrivalKind::MakeWay { change, as_of: Timestamp(0), to: "org/one#1".into() };
        assert_eq!(expected(makes_way), Expect::Anything);
    }
}
