//! `T/board`, a route of our own that the page draws: queues with who is tested on whom, why, and
//! what left of late.

use crate::Api;
use crate::asked::Asked;
use crate::buildsets::{self, Row};
use crate::detail::{Detail, Narrowed, fitting};
use crate::load::{self, Queues};
use crate::pool;
use crate::reply::{self, Refusal};
use crate::status::{Scene, waiting_status};
use crate::waits;
use bytes::Bytes;
use http::Response;
use serde_json::{Value, json};
use sluice_config::Pipeline;
use sluice_gate::{Arrival, ArrivalKind, Ask, Candidate, Head, Health, Item, Job, JobStatus, Slot};
use sluice_model::change::ChangeKey;
use sluice_model::hold::EventsHold;
use sluice_model::{PipelineName, QueueKey, TenantName};
use sluice_records::codec::decode;
use sluice_records::health;
use sluice_records::layout::Live;
use sluice_records::queue::Loaded;
use sluice_runtime::Ports;
use std::collections::BTreeMap;

/// Items that left of late and are shown.
const RECENT_MAX: usize = 12;
/// Arrivals of one queue that are shown.
const ARRIVALS_MAX: usize = 20;

/// Answers with everything the status page shows, or with one pipeline's, project's or change's
/// part of it.
pub(crate) async fn board(
    api: &Api,
    tenant: &TenantName,
    asked: &Asked,
) -> Result<Response<Bytes>, Refusal> {
    asked.only(Narrowed::PARAMETERS)?;
    let narrowed = Narrowed::read(asked);
    let live = load::live(api, tenant).await?;
    let mut read = load::queues_of(&api.ports, tenant, narrowed.pipeline).await?;
    let durations = api.estimates.of(&api.ports, tenant).await?;
    let recent = buildsets::newest(&api.ports, tenant, RECENT_MAX).await?;
    let open = waits::open(
        read.queues.iter().flat_map(|(_, loaded)| loaded.items.values().map(|(_, item)| &**item)),
    );
    let (waits, now) = (waits::read(&api.ports, &open).await?, api.ports.clock.now());
    let scene = Scene {
        tenant,
        web_root: &api.web_root,
        durations: &durations,
        waits: &waits,
        now,
        detail: Detail::Whole,
    };
    let known = live.layout.pipelines();
    let disabled = disabled(&api.ports, tenant, &live, &mut read.troubles).await?;
    let frozen_providers = pool::frozen(&api.ports, &live.layout).await?;
    let mut gone: Vec<Pipeline> = Vec::new();
    for (key, loaded) in &read.queues {
        let is_shown = known.iter().chain(&gone).any(|pipeline| pipeline.name == key.pipeline);
        if let Some(head) = loaded.head.as_ref().filter(|_| !is_shown) {
            gone.push(Pipeline::new(key.pipeline.as_str(), head.manager));
        }
    }
    let shown: Vec<&Pipeline> = known
        .iter()
        .chain(&gone)
        .filter(|pipeline| narrowed.takes_pipeline(pipeline.name.as_str()))
        .collect();
    if let Some(name) = narrowed.pipeline.filter(|_| shown.is_empty()) {
        return Err(Refusal::missing(format!(
            "There is no pipeline {name} in the tenant {tenant}."
        )));
    }
    let has_left = |row: &&Row| {
        narrowed.takes_pipeline(row.queue.pipeline.as_str())
            && narrowed.takes(&row.item.candidate.change)
    };
    let recent: Vec<Value> = recent.iter().filter(has_left).map(left).collect();
    let body = fitting(|detail| {
        let scene = Scene { detail, ..scene };
        let pipelines = shown.iter().map(|one| {
            let mut body = pipeline(&scene, &narrowed, one, &read);
            if let Some(map) = body.as_object_mut() {
                map.insert("disabled".into(), json!(disabled.get(&one.name)));
            }
            body
        });
        let troubles: Vec<String> =
            detail.left_out().into_iter().chain(read.troubles.iter().cloned()).collect();
        json!({
            "tenant": tenant,
            "at": scene.now,
            "layout": {"wanted": live.tenant.layout.wanted, "live": live.tenant.layout.live, "since": live.tenant.live_since},
            "errors": live.tenant.errors,
            "held": held(&live.tenant.events),
            "frozen_providers": frozen_providers,
            "troubles": troubles,
            "pipelines": pipelines.collect::<Vec<_>>(),
            "recent": recent,
        })
    });
    Ok(reply::json_kept(&body, 1, scene.now))
}

/// Returns what an operator holds back of the tenant's events, and why; `None` where that is
/// nothing.
fn held(events: &EventsHold) -> Option<String> {
    let because = events.reason().map(|reason| format!(": {reason}")).unwrap_or_default();
    events.holds().then(|| format!("{}{because}", events.described()))
}

/// Returns the pipelines that report to their `disabled` reporters alone, each with how many
/// failures followed each other. Where that cannot be read, it is said among the troubles.
async fn disabled(
    ports: &Ports,
    tenant: &TenantName,
    live: &Live,
    troubles: &mut Vec<String>,
) -> Result<BTreeMap<PipelineName, u32>, Refusal> {
    let counts = |pipeline: &&Pipeline| pipeline.disable_after_consecutive_failures.is_some();
    let counting = live.layout.pipelines().iter().filter(counts);
    let keys: Vec<_> = counting.map(|pipeline| health::key(tenant, &pipeline.name)).collect();
    let mut disabled = BTreeMap::new();
    for record in load::many(ports, &keys).await?.iter().flatten() {
        let health = match decode::<Health>(record) {
            Ok(health) => health.under(live.number()),
            Err(bad) => {
                tracing::warn!(%bad, "left out of an answer how often a pipeline failed");
                troubles.push(format!("How often a pipeline failed is counted anew: {bad}."));
                continue;
            }
        };
        if health.disabled {
            disabled.insert(health.pipeline, health.failures);
        }
    }
    Ok(disabled)
}

fn pipeline(
    scene: &Scene<'_>,
    narrowed: &Narrowed<'_>,
    pipeline: &Pipeline,
    read: &Queues,
) -> Value {
    let own = read
        .queues
        .iter()
        .filter(|(key, loaded)| key.pipeline == pipeline.name && is_wanted(narrowed, loaded));
    let queues = own.map(|(key, loaded)| queue(scene, narrowed, key, loaded, read.frozen.get(key)));
    json!({
        "name": pipeline.name,
        "description": pipeline.description,
        "manager": pipeline.manager.as_str(),
        "queues": queues.collect::<Vec<_>>(),
    })
}

/// Returns whether a queue is shown where changes are named: one without any of them says nothing.
fn is_wanted(narrowed: &Narrowed<'_>, loaded: &Loaded) -> bool {
    let mut slots = loaded.head.iter().flat_map(|head| &head.slots);
    !narrowed.names_changes() || slots.any(|slot| narrowed.takes(&slot.change))
}

fn queue(
    scene: &Scene<'_>,
    narrowed: &Narrowed<'_>,
    key: &QueueKey,
    loaded: &Loaded,
    mark: Option<&String>,
) -> Value {
    let slots = loaded.head.as_ref().map(|head| head.slots.as_slice()).unwrap_or_default();
    // What becomes of a change is decided by those as well that it is tested as one with.
    let takes = |head: &Head, position: usize| {
        head.bundle(position).any(|at| narrowed.takes(&head.slots[at].change))
    };
    let wanted = slots.iter().enumerate();
    let wanted = wanted
        .filter(|(position, _)| loaded.head.as_ref().is_some_and(|head| takes(head, *position)));
    let items = wanted.filter_map(|(position, slot)| {
        let (_, found) = loaded.items.get(&slot.id)?;
        let is_active = loaded.head.as_ref().is_some_and(|head| head.is_active(position));
        let mut body = if scene.detail.tells_all_of(is_active) {
            item(scene, found, Some(slot))
        } else {
            brief(scene, found, slot)
        };
        if let Some(map) = body.as_object_mut() {
            map.insert("active".into(), json!(is_active));
            map.insert(
                "together".into(),
                loaded.head.as_ref().map_or_else(|| json!([]), |head| mates(head, position)),
            );
        }
        Some(body)
    });
    let landed = loaded.head.as_ref().map(|head| head.landed.as_slice()).unwrap_or_default();
    let own = loaded.head.as_ref().and_then(|head| head.frozen.as_deref());
    let frozen: Vec<&str> = own.into_iter().chain(mark.map(String::as_str)).collect();
    json!({
        "name": key.queue,
        "window": loaded.head.as_ref().map_or(0, |head| head.window),
        "frozen": (!frozen.is_empty()).then(|| frozen.join("; ")),
        "landed": landed.iter().rev().take(5).map(change_key).collect::<Vec<_>>(),
        "arrivals": loaded.arrivals.iter().take(ARRIVALS_MAX).map(arrival).collect::<Vec<_>>(),
        "items": items.collect::<Vec<_>>(),
    })
}

/// Returns the changes that the one at `position` is tested as one with.
fn mates(head: &Head, position: usize) -> Value {
    let others = head.bundle(position).filter(|other| *other != position);
    others
        .filter_map(|other| head.slots.get(other))
        .map(|slot| change_key(&slot.change.key))
        .collect()
}

/// Returns an item with its place in the queue, if it still has one.
pub(crate) fn item(scene: &Scene<'_>, item: &Item, slot: Option<&Slot>) -> Value {
    with(scene, item, slot, &item.jobs, &item.reasons)
}

/// Returns an item of a queue without its jobs, and with its last reason alone.
fn brief(scene: &Scene<'_>, item: &Item, slot: &Slot) -> Value {
    let last = item.reasons.len().saturating_sub(1);
    with(scene, item, Some(slot), &[], item.reasons.get(last..).unwrap_or_default())
}

fn with(
    scene: &Scene<'_>,
    item: &Item,
    slot: Option<&Slot>,
    jobs: &[Job],
    reasons: &[String],
) -> Value {
    let candidate = &item.candidate;
    json!({
        "id": item.id,
        "change": change(candidate),
        "standing": slot.map(|slot| slot.standing),
        "generation": slot.map_or(item.generation, |slot| slot.generation),
        "on": slot.and_then(|slot| slot.ahead.as_ref()).map(|ahead| json!({"item": ahead.item, "generation": ahead.generation})),
        "since": item.admitted_at,
        "event_id": item.event_id,
        "ask": ask(&item.ask),
        "needs": candidate.needs.iter().map(|need| change_key(&need.change.key)).collect::<Vec<_>>(),
        "reasons": reasons,
        "jobs": jobs.iter().map(|one| job(scene, item, one)).collect::<Vec<_>>(),
    })
}

fn ask(ask: &Ask) -> Value {
    match ask {
        Ask::No => json!({"state": "not-asked"}),
        Ask::Asked { at, onto, .. } => {
            json!({"state": "asked", "at": at, "onto": onto.as_ref().map(|onto| &onto.item)})
        }
        Ask::Merged(merged) => {
            json!({"state": "merged", "base": merged.base, "tested": merged.tested})
        }
        Ask::Unmergeable { why, configuration, .. } => {
            let state = if *configuration { "misconfigured" } else { "conflict" };
            json!({"state": state, "why": why})
        }
    }
}

fn job(scene: &Scene<'_>, item: &Item, job: &Job) -> Value {
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
        "waits_for": waits_for(scene, item, job),
        "attempt": job.attempt,
        "attempts": job.summary.attempts,
        "labels": job.summary.labels.get(job.alternative as usize),
        "build": job.build,
        "started_at": started_at,
        "ended_at": ended_at,
        "estimate": scene.estimate(item, job),
        "log_url": log_url,
    })
}

/// Returns what a job waits for: what its provider says of the nodes, or as Zuul tells it.
fn waits_for(scene: &Scene<'_>, item: &Item, job: &Job) -> Option<String> {
    let is_open = matches!(job.status, JobStatus::Ordered { .. }) && job.waits_for.is_none();
    let request = job.request.as_ref().filter(|_| is_open);
    let told = request.and_then(|request| scene.waits.get(&request.row)).cloned();
    told.or_else(|| waiting_status(item, job))
}

fn change(candidate: &Candidate) -> Value {
    let change = &candidate.change;
    json!({
        "project": change.key.project.name(),
        "number": change.key.number(),
        "ref": change.git_ref(),
        "branch": change.on_branch(),
        "head": change.head,
        "url": candidate.url,
        "title": candidate.title,
        "author": candidate.author,
    })
}

fn change_key(key: &ChangeKey) -> Value {
    match key.moved() {
        None => json!({"project": key.project.name(), "number": key.number()}),
        Some(moved) => json!({"project": key.project.name(), "ref": moved.git_ref}),
    }
}

fn arrival(arrival: &Arrival) -> Value {
    let (kind, changes) = match &arrival.kind {
        ArrivalKind::Enqueue { candidates } => (
            "enqueue",
            candidates.iter().map(|candidate| change_key(&candidate.change.key)).collect(),
        ),
        ArrivalKind::Seen { change, .. } => ("seen", vec![change_key(&change.key)]),
        ArrivalKind::Superseded { change, .. } => ("superseded", vec![change_key(&change.key)]),
        ArrivalKind::MakeWay { change, .. } => ("make-way", vec![change_key(&change.key)]),
        ArrivalKind::Dequeue { key, .. } => ("dequeue", vec![change_key(key)]),
        ArrivalKind::Promote { keys, .. } => ("promote", keys.iter().map(change_key).collect()),
        ArrivalKind::Thaw { .. } => ("thaw", Vec::new()),
    };
    json!({"at": arrival.at, "kind": kind, "changes": changes})
}

fn left(row: &Row) -> Value {
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

    /// Z6.1: whoever wonders where the events are reads why they are held back, and no reason that
    /// is over.
    #[test]
    fn what_is_held_back_is_told_with_its_reason() {
        let paused =
            EventsHold::default().said(false, true, false, "jo", "the forge moves", Timestamp(1));
        assert_eq!(held(&paused).as_deref(), Some("trigger events wait: the forge moves"));
        assert_eq!(
            held(&paused.said(false, false, false, "jo", "it has moved", Timestamp(2))),
            None
        );
        assert_eq!(held(&EventsHold::default()), None);
    }
}
