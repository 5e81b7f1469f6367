//! `T/board`, a route of our own for the status page: queues with their speculative order, reasons,
//! and recently finished items.

use crate::Api;
use crate::buildsets::{self, BuildsetRow};
use crate::load::{self, TenantQueues};
use crate::node_waits;
use crate::pool;
use crate::reply::{self, ErrorResponse};
use crate::request::ApiRequest;
use crate::status::{StatusContext, waiting_status};
use crate::status_detail::{DetailLevel, StatusSelection, fit_detail};
use bytes::Bytes;
use http::Response;
use serde_json::{Value, json};
use sluice_config::Pipeline;
use sluice_gate::{
    Candidate, Entry, Head, Health, InboxMessage, InboxMessageKind, Item, Job, JobStatus,
    MergeStatus, Reason, Slot,
};
use sluice_model::change::ChangeKey;
use sluice_model::hold::EventProcessing;
use sluice_model::{ItemId, PipelineName, QueueKey, TenantName};
use sluice_records::codec::decode;
use sluice_records::layout::LiveLayout;
use sluice_records::pipeline_health;
use sluice_records::queue::LoadedQueue;
use sluice_runtime::Ports;
use std::collections::BTreeMap;

/// The maximum number of recently finished items shown.
const RECENT_MAX: usize = 12;
/// The maximum number of inbox messages shown for each queue.
const INBOX_MAX: usize = 20;

/// Answers with everything that the status page shows, or with the part about one pipeline, project
/// or change. With fewer jobs if the answer would be too large. Of the finished items, only those
/// among the tenant's newest [`RECENT_MAX`] are shown. 404 for an unknown parameter, and for a
/// pipeline that is neither live nor has queues. With an unknown project or change the pipelines
/// have no queues.
pub(crate) async fn board(
    api: &Api,
    tenant: &TenantName,
    request: &ApiRequest,
) -> Result<Response<Bytes>, ErrorResponse> {
    let selection = StatusSelection::read(request);
    let live = load::live(api, tenant).await?;
    let mut read = load::queues_of(&api.ports, tenant, selection.pipeline).await?;
    let durations = api.estimates.of(&api.ports, tenant).await?;
    let recent = buildsets::newest(&api.ports, tenant, RECENT_MAX).await?;
    let open = node_waits::open(
        read.queues.iter().flat_map(|(_, loaded)| loaded.items.values().map(|(_, item)| &**item)),
    );
    let (node_waits, now) = (node_waits::read(&api.ports, &open).await?, api.ports.clock.now());
    let context = StatusContext {
        tenant,
        web_root: &api.web_root,
        durations: &durations,
        node_waits: &node_waits,
        now,
        detail: DetailLevel::Whole,
    };
    let live_pipelines = live.layout.pipelines();
    let disabled = disabled(&api.ports, tenant, &live, &mut read.problems).await?;
    let halted_providers = pool::halted(&api.ports, &live.layout).await?;
    let mut removed: Vec<Pipeline> = Vec::new();
    for (key, loaded) in &read.queues {
        let is_shown =
            live_pipelines.iter().chain(&removed).any(|pipeline| pipeline.name == key.pipeline);
        if let Some(head) = loaded.head.as_ref().filter(|_| !is_shown) {
            removed.push(Pipeline::new(key.pipeline.as_str(), head.manager));
        }
    }
    let shown: Vec<&Pipeline> = live_pipelines
        .iter()
        .chain(&removed)
        .filter(|pipeline| selection.matches_pipeline(pipeline.name.as_str()))
        .collect();
    if let Some(name) = selection.pipeline.filter(|_| shown.is_empty()) {
        return Err(ErrorResponse::missing(format!(
            "There is no pipeline {name} in the tenant {tenant}."
        )));
    }
    let is_selected = |row: &&BuildsetRow| {
        selection.matches_pipeline(row.queue.pipeline.as_str())
            && selection.matches(&row.item.candidate.change)
    };
    let recent: Vec<Value> = recent.iter().filter(is_selected).map(finished).collect();
    let body = fit_detail(|detail| {
        let context = StatusContext { detail, ..context };
        let pipelines = shown.iter().map(|one| {
            let mut body = pipeline(&context, &selection, one, &read);
            if let Some(map) = body.as_object_mut() {
                map.insert("disabled".into(), json!(disabled.get(&one.name)));
            }
            body
        });
        let problems: Vec<String> =
            detail.left_out().into_iter().chain(read.problems.iter().cloned()).collect();
        json!({
            "tenant": tenant,
            "at": context.now,
            "layout": {"wanted": live.tenant.layout.wanted, "live": live.tenant.layout.live, "since": live.tenant.live_since},
            "errors": live.tenant.errors,
            "held": held(&live.tenant.events),
            "halted_providers": halted_providers,
            "problems": problems,
            "pipelines": pipelines.collect::<Vec<_>>(),
            "recent": recent,
        })
    });
    Ok(reply::cacheable_json(&body, 1, context.now))
}

/// Returns which events of the tenant an operator has paused or discards, and why; `None` if none.
fn held(events: &EventProcessing) -> Option<String> {
    let because = events.reason().map(|reason| format!(": {reason}")).unwrap_or_default();
    events.is_active().then(|| format!("{}{because}", events.describe()))
}

/// Returns the pipelines that are disabled after consecutive failures, each with the number of
/// these. Adds a message for each unreadable record to `problems`; its pipeline counts as not
/// disabled.
async fn disabled(
    ports: &Ports,
    tenant: &TenantName,
    live: &LiveLayout,
    problems: &mut Vec<String>,
) -> Result<BTreeMap<PipelineName, u32>, ErrorResponse> {
    let counts = |pipeline: &&Pipeline| pipeline.disable_after_consecutive_failures.is_some();
    let counting = live.layout.pipelines().iter().filter(counts);
    let keys: Vec<_> =
        counting.map(|pipeline| pipeline_health::key(tenant, &pipeline.name)).collect();
    let mut disabled = BTreeMap::new();
    for record in load::read_many(ports, &keys).await?.iter().flatten() {
        let health = match decode::<Health>(record) {
            Ok(health) => health.for_layout(live.number()),
            Err(bad) => {
                tracing::warn!(%bad, "left an unreadable record of a pipeline's failures out of an answer");
                problems.push(format!("A pipeline's count of consecutive failures could not be read and starts again: {bad}."));
                continue;
            }
        };
        if health.disabled {
            disabled.insert(health.pipeline, health.failures);
        }
    }
    Ok(disabled)
}

/// Returns a pipeline with those of its queues for the status page that the selection shows.
/// Whether it is disabled is not included.
fn pipeline(
    context: &StatusContext<'_>,
    selection: &StatusSelection<'_>,
    pipeline: &Pipeline,
    read: &TenantQueues,
) -> Value {
    let pipeline_queues = read
        .queues
        .iter()
        .filter(|(key, loaded)| key.pipeline == pipeline.name && is_shown(selection, loaded));
    let queues = pipeline_queues
        .map(|(key, loaded)| queue(context, selection, key, loaded, read.halted.get(key)));
    json!({
        "name": pipeline.name,
        "description": pipeline.description,
        "manager": pipeline.manager.as_str(),
        "queues": queues.collect::<Vec<_>>(),
    })
}

/// Returns whether a queue is shown: if changes are selected, it must contain one of them.
fn is_shown(selection: &StatusSelection<'_>, loaded: &LoadedQueue) -> bool {
    let mut slots = loaded.head.iter().flat_map(Head::slots);
    !selection.selects_changes() || slots.any(|slot| selection.matches(&slot.change))
}

/// Returns a queue with its selected items, its last five merged changes, and why it is halted if
/// it is. Of its inbox at most [`INBOX_MAX`] messages are shown. An item has no jobs, and only its
/// last reason, if the detail level leaves its jobs out. `mark` is the reason in the halt record,
/// next to that in the queue's head.
fn queue(
    context: &StatusContext<'_>,
    selection: &StatusSelection<'_>,
    key: &QueueKey,
    loaded: &LoadedQueue,
    mark: Option<&String>,
) -> Value {
    let entries = loaded.head.as_ref().map(|head| head.entries.as_slice()).unwrap_or_default();
    let active = loaded.head.as_ref().map_or(0, Head::active_count);
    // A bundle is shown if any of its members matches.
    let matches = |entry: &Entry| entry.members.iter().any(|slot| selection.matches(&slot.change));
    let shown = entries.iter().enumerate().filter(|(_, entry)| matches(entry));
    let places = shown.flat_map(|(position, entry)| {
        entry.members.iter().map(move |slot| (position < active, Place { entry, slot }))
    });
    let items = places.filter_map(|(is_active, place)| {
        let (_, found) = loaded.items.get(&place.slot.id)?;
        let mut body = if context.detail.includes_jobs(is_active) {
            item(context, found, Some(place))
        } else {
            item_summary(context, found, place)
        };
        if let Some(map) = body.as_object_mut() {
            map.insert("active".into(), json!(is_active));
            map.insert("bundle".into(), place.other_members());
        }
        Some(body)
    });
    let landed = loaded.head.as_ref().map(|head| head.landed.as_slice()).unwrap_or_default();
    let reason = loaded.head.as_ref().and_then(|head| head.halted.as_deref());
    let halted: Vec<&str> = reason.into_iter().chain(mark.map(String::as_str)).collect();
    json!({
        "name": key.queue,
        "window": loaded.head.as_ref().map_or(0, |head| head.window),
        "halted": (!halted.is_empty()).then(|| halted.join("; ")),
        "landed": landed.iter().rev().take(5).map(change_key).collect::<Vec<_>>(),
        "inbox": loaded.inbox.iter().take(INBOX_MAX).map(inbox_message).collect::<Vec<_>>(),
        "items": items.collect::<Vec<_>>(),
    })
}

/// The place of an item in its queue.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place<'h> {
    /// The entry that it is a member of.
    entry: &'h Entry,
    /// The item in it.
    slot: &'h Slot,
}

impl<'h> Place<'h> {
    /// Returns the place of an item; `None` if it is not in this queue.
    pub(crate) fn of(head: &'h Head, id: &ItemId) -> Option<Self> {
        let entry = &head.entries[head.position(id)?];
        entry.members.iter().find(|slot| slot.id == *id).map(|slot| Self { entry, slot })
    }

    /// Returns the names of the other members of its bundle as a JSON list.
    fn other_members(self) -> Value {
        let others = self.entry.members.iter().filter(|other| other.id != self.slot.id);
        others.map(|slot| change_key(&slot.change.key)).collect()
    }
}

/// Returns an item as JSON, with its place in the queue if it is queued.
pub(crate) fn item(context: &StatusContext<'_>, item: &Item, place: Option<Place<'_>>) -> Value {
    item_json(context, item, place, &item.jobs, &item.reasons)
}

/// Returns an item as JSON without jobs, with only its last reason.
fn item_summary(context: &StatusContext<'_>, item: &Item, place: Place<'_>) -> Value {
    let last = item.reasons.len().saturating_sub(1);
    item_json(context, item, Some(place), &[], item.reasons.get(last..).unwrap_or_default())
}

/// Returns an item with the given jobs and reasons for the status page. `place` is `None` for an
/// item that has left its queue: it has no status, and is on top of nothing.
fn item_json(
    context: &StatusContext<'_>,
    item: &Item,
    place: Option<Place<'_>>,
    jobs: &[Job],
    reasons: &[Reason],
) -> Value {
    let candidate = &item.candidate;
    json!({
        "id": item.id,
        "change": change(candidate),
        "status": place.map(|place| place.slot.status),
        "generation": place.map_or(item.generation, |place| place.slot.generation),
        "on": place.and_then(|place| place.entry.ahead.as_ref()).map(|ahead| json!({"item": ahead.item, "generation": ahead.generation})),
        "since": item.admitted_at,
        "event_id": item.event_id,
        "merge": merge_status_json(&item.merge_status),
        "needs": candidate.needs.iter().map(|need| change_key(&need.change.key)).collect::<Vec<_>>(),
        "reasons": reasons,
        "jobs": jobs.iter().map(|one| job(context, item, one)).collect::<Vec<_>>(),
    })
}

/// Returns the state of merging an item for testing.
fn merge_status_json(status: &MergeStatus) -> Value {
    match status {
        MergeStatus::NotRequested => json!({"state": "not-requested"}),
        MergeStatus::Requested { at, onto, .. } => {
            json!({"state": "requested", "at": at, "onto": onto.as_ref().map(|onto| &onto.item)})
        }
        MergeStatus::Merged(merged) => {
            json!({"state": "merged", "base": merged.base, "tested": merged.tested})
        }
        MergeStatus::Unmergeable { why, configuration, .. } => {
            let state = if *configuration { "misconfigured" } else { "conflict" };
            json!({"state": state, "why": why})
        }
    }
}

/// Returns a job with its state and result for the status page.
fn job(context: &StatusContext<'_>, item: &Item, job: &Job) -> Value {
    let (state, started_at, ended_at, detail, log_url) = match &job.status {
        JobStatus::Waiting => ("waiting", None, None, None, None),
        JobStatus::Ordered { .. } => ("ordered", None, None, None, None),
        JobStatus::Running { started_at, .. } => ("running", *started_at, None, None, None),
        JobStatus::Paused { started_at, resumed: false } => {
            ("paused", *started_at, None, None, None)
        }
        JobStatus::Paused { started_at, resumed: true } => {
            ("running", *started_at, None, None, None)
        }
        JobStatus::Ended { started_at, ended_at, detail, log_url, .. } => {
            ("ended", *started_at, Some(*ended_at), detail.as_ref(), log_url.as_ref())
        }
    };
    json!({
        "name": job.summary.name,
        "voting": job.summary.voting,
        "state": state,
        "result": job.result().map(|result| result.as_str()),
        "detail": detail,
        "waits_for": waits_for(context, item, job),
        "attempt": job.attempt,
        "attempts": job.summary.attempts,
        "retry_reason": job.retry_reason,
        "labels": job.summary.labels.get(job.alternative as usize),
        "build": job.build,
        "started_at": started_at,
        "ended_at": ended_at,
        "estimate": context.estimate(item, job),
        "log_url": log_url,
    })
}

/// Returns what a job waits for: the provider's reason if it waits for nodes, else as in Zuul.
fn waits_for(context: &StatusContext<'_>, item: &Item, job: &Job) -> Option<String> {
    let is_open = matches!(job.status, JobStatus::Ordered { .. }) && job.waits_for.is_none();
    let request = job.request.as_ref().filter(|_| is_open);
    let reason = request.and_then(|request| context.node_waits.get(&request.row)).cloned();
    reason.or_else(|| waiting_status(item, job))
}

/// Returns a change with its title and address for the status page.
fn change(candidate: &Candidate) -> Value {
    let change = &candidate.change;
    json!({
        "project": change.key.project.name(),
        "number": change.key.number(),
        "ref": change.github_ref(),
        "branch": change.on_branch(),
        "head": change.head,
        "url": candidate.url,
        "title": candidate.title,
        "author": candidate.author,
    })
}

/// Returns the name of a change by its parts.
fn change_key(key: &ChangeKey) -> Value {
    match key.ref_move() {
        None => json!({"project": key.project.name(), "number": key.number()}),
        Some(moved) => json!({"project": key.project.name(), "ref": moved.git_ref}),
    }
}

/// Returns the time, the kind and the changes of a message that waits in a queue's inbox.
fn inbox_message(inbox_message: &InboxMessage) -> Value {
    let (kind, changes) = match &inbox_message.kind {
        InboxMessageKind::Enqueue { candidates } => (
            "enqueue",
            candidates.iter().map(|candidate| change_key(&candidate.change.key)).collect(),
        ),
        InboxMessageKind::ChangeUpdated { change, .. } => {
            ("change-updated", vec![change_key(&change.key)])
        }
        InboxMessageKind::Superseded { change, .. } => {
            ("superseded", vec![change_key(&change.key)])
        }
        InboxMessageKind::MoveToHost { change, .. } => {
            ("move-to-host", vec![change_key(&change.key)])
        }
        InboxMessageKind::Dequeue { key, .. } => ("dequeue", vec![change_key(key)]),
        InboxMessageKind::Promote { keys, .. } => {
            ("promote", keys.iter().map(change_key).collect())
        }
        InboxMessageKind::Resume { .. } => ("resume", Vec::new()),
    };
    json!({"at": inbox_message.at, "kind": kind, "changes": changes})
}

/// Returns a finished buildset for the status page. One that has not ended gets an empty result and
/// the time 0.
fn finished(row: &BuildsetRow) -> Value {
    let (result, why, at) = row.end.clone().unwrap_or_default();
    json!({
        "id": row.item.id,
        "pipeline": row.queue.pipeline,
        "queue": row.queue.queue,
        "change": change(&row.item.candidate),
        "result": result,
        "why": why,
        "since": row.item.admitted_at,
        "at": at,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_model::Timestamp;
    use sluice_model::hold::EventCommand;

    /// Z6.1: held events are shown with their reason until they are resumed.
    #[test]
    fn held_events_are_shown_with_their_reason() {
        let pause = EventCommand {
            pause_triggers: true,
            by: "jo",
            reason: "the forge moves",
            ..EventCommand::default()
        };
        let resume = EventCommand { by: "jo", reason: "it has moved", ..EventCommand::default() };
        let paused = EventProcessing::default().apply(pause, Timestamp(1));
        assert_eq!(held(&paused).as_deref(), Some("trigger events are paused: the forge moves"));
        assert_eq!(held(&paused.apply(resume, Timestamp(2))), None);
        assert_eq!(held(&EventProcessing::default()), None);
    }
}
