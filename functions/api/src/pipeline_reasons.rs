//! `T/why`, a route of our own: the state of a change in each pipeline, or why it is not in the
//! pipeline.

use crate::Api;
use crate::load;
use crate::reply::{self, ErrorResponse};
use crate::request::ApiRequest;
use bytes::Bytes;
use http::Response;
use serde_json::{Value, json};
use sluice_config::pipeline::{Manager, Pipeline};
use sluice_gate::explain::{self, RoutingRecord, WaitContext};
use sluice_gate::queue::own_queue;
use sluice_gate::{Head, Landing, Reason, SlotStatus};
use sluice_model::change::{ChangeFacts, ChangeKey};
use sluice_model::event::{EventKind, ForgeEvent};
use sluice_model::gerrit::GerritEvent;
use sluice_model::{ConnectionName, ItemId, ProjectName, QueueKey, QueueName, TenantName};
use sluice_records::change::{facts_key, verdicts_key};
use sluice_records::delivery::{self, DeliveryRecord};
use sluice_records::layout::LiveLayout;
use sluice_records::queue::LoadedQueue;
use sluice_records::tenant::DeferredWakeup;
use sluice_records::{landing, tenant};
use sluice_runtime::record::{Key, Query, Record};
use std::collections::BTreeMap;

/// The maximum number of projects that are searched for a change by number alone.
const PROJECTS_MAX: usize = 500;

/// The maximum number of landings that one answer reads.
const LANDINGS_MAX: usize = 100;

/// The maximum number of deferred events that one answer reads, oldest first.
const DEFERRED_MAX: usize = 200;

/// The maximum number of messages about unreadable records for one change.
const PROBLEMS_MAX: usize = 20;

/// The name of a deferred event in a message about an unreadable record.
const DEFERRED_EVENT: &str = "A deferred event";

/// The reason for a pipeline if the record of a change's events is unreadable.
const UNREADABLE: &str = "the outcomes of its events could not be read";

/// What is known about a change. An unreadable record is reported and hides nothing else.
struct ChangeState {
    /// The change.
    key: ChangeKey,
    /// Whether the change was ever loaded from its forge, even if the record is unreadable.
    is_seen: bool,
    /// The change as last read from its forge; `None` if it was never read or is unreadable.
    facts: Option<ChangeFacts>,
    /// The outcomes of the change's events; `None` if they are unreadable.
    routing: Option<RoutingRecord>,
    /// Messages about unreadable records.
    problems: Vec<String>,
}

/// Answers with the reasons why each pipeline tests a change or does not. The parameters are the
/// number `change`, without which the answer is 400, and a `project`; without a project, every
/// project that has such a change, of the first [`PROJECTS_MAX`]. 404 for an unknown project. An
/// unknown change of a named project is listed with the message that it was not found.
pub(crate) async fn answer(
    api: &Api,
    tenant: &TenantName,
    request: &ApiRequest,
) -> Result<Response<Bytes>, ErrorResponse> {
    let number = request
        .number_parameter("change")?
        .ok_or_else(|| ErrorResponse::bad("The parameter `change` is required: `change=7`."))?;
    let live = load::live(api, tenant).await?;
    let keys: Vec<ChangeKey> = projects(&live, request.parameter("project"))?
        .into_iter()
        .map(|(connection, project)| ChangeKey::change(connection, project, number))
        .collect();
    let facts =
        load::read_many(&api.ports, &keys.iter().map(facts_key).collect::<Vec<_>>()).await?;
    // A named project is answered even if the change is unknown.
    let is_requested =
        |record: &Option<Record>| record.is_some() || request.parameter("project").is_some();
    let requested = keys.into_iter().zip(facts).filter(|(_, record)| is_requested(record));
    let mut state: Vec<ChangeState> =
        requested.map(|(key, record)| ChangeState::new(key, record.as_ref())).collect();
    let routing = load::read_many(
        &api.ports,
        &state.iter().map(|one| verdicts_key(&one.key)).collect::<Vec<_>>(),
    )
    .await?;
    for (one, record) in state.iter_mut().zip(&routing) {
        one.read_trigger_outcomes(record.as_ref());
    }
    let queues = if state.is_empty() {
        load::TenantQueues::default()
    } else {
        load::queues(&api.ports, tenant).await?
    };
    let mut problems = queues.problems.clone();
    let landings = landings(api, &queues, &mut problems).await?;
    let deferred_events = if state.is_empty() {
        Vec::new()
    } else {
        deferred_events(api, tenant, &mut problems).await?
    };
    let mut list = Vec::new();
    for one in &state {
        let mut change = change_json(api, &live, one, (&queues, &landings));
        let of_change = deferred_events.iter().filter(|(of, _)| *of == one.key);
        change["deferred_events"] = of_change.map(|(_, event)| json!(event)).collect();
        change["problems"] = one
            .problems
            .iter()
            .chain(&problems)
            .take(PROBLEMS_MAX)
            .map(|text| json!(text))
            .collect();
        list.push(change);
    }
    Ok(reply::json(&Value::Array(list)))
}

impl ChangeState {
    /// Decodes the facts of a change that were read from its forge; `record` is `None` if it was
    /// never loaded from there. An unreadable record is noted among the problems, and the change
    /// counts as seen all the same. The outcomes of its events count as unreadable until the caller
    /// calls [`Self::read_trigger_outcomes`].
    fn new(key: ChangeKey, record: Option<&Record>) -> Self {
        let mut problems = Vec::new();
        let what = format!("The data of {key} from its forge");
        let facts = record.and_then(|record| load::read_or_report(record, &what, &mut problems));
        Self { key, is_seen: record.is_some(), facts, routing: None, problems }
    }

    /// Sets the outcomes of the change's events from their record. Without a record there are none;
    /// an unreadable one is noted among the problems.
    fn read_trigger_outcomes(&mut self, record: Option<&Record>) {
        self.routing = match record {
            None => Some(RoutingRecord::default()),
            Some(record) => {
                let what = format!("The routing record of {}", self.key);
                load::read_or_report(record, &what, &mut self.problems)
            }
        };
    }
}

/// Returns the projects that the request means: the named one, or 404 if the tenant does not have
/// it; without a name the tenant's first [`PROJECTS_MAX`], without those that the live layout
/// lacks.
fn projects(
    live: &LiveLayout,
    named: Option<&str>,
) -> Result<Vec<(ConnectionName, ProjectName)>, ErrorResponse> {
    if let Some(name) = named {
        let missing = || {
            ErrorResponse::missing(format!("Tenant {} has no project {name}.", live.tenant.name))
        };
        let project = live.layout.project(name).ok_or_else(missing)?;
        return Ok(vec![(project.connection.clone(), project.name.clone())]);
    }
    let all = live.tenant.projects.iter().take(PROJECTS_MAX);
    let found = all.filter_map(|name| live.layout.project(name.as_str()));
    Ok(found.map(|project| (project.connection.clone(), project.name.clone())).collect())
}

/// Reads the landings in progress, at most [`LANDINGS_MAX`], by item, and adds unreadable records
/// to `problems`. Missing ones are left out.
async fn landings(
    api: &Api,
    queues: &load::TenantQueues,
    problems: &mut Vec<String>,
) -> Result<BTreeMap<ItemId, Landing>, ErrorResponse> {
    let heads = queues.queues.iter().filter_map(|(_, loaded)| loaded.head.as_ref());
    let landing = heads.flat_map(Head::slots).filter(|slot| slot.status == SlotStatus::Landing);
    let keys: Vec<Key> =
        landing.map(|slot| landing::key(&slot.id, slot.generation)).take(LANDINGS_MAX).collect();
    let records = load::read_many(&api.ports, &keys).await?;
    let state = records
        .iter()
        .flatten()
        .filter_map(|record| load::read_or_report::<Landing>(record, "A landing", problems));
    Ok(state.map(|landing| (landing.item.clone(), landing)).collect())
}

/// Returns the changes with unfinished deferred events, each with a description of the event, among
/// the [`DEFERRED_MAX`] oldest deferred events of the tenant. Deferred events that are not about a
/// change, such as pushes, are left out. Adds unreadable records to `problems`.
async fn deferred_events(
    api: &Api,
    tenant: &TenantName,
    problems: &mut Vec<String>,
) -> Result<Vec<(ChangeKey, String)>, ErrorResponse> {
    let query = Query::prefix(tenant::partition(tenant), tenant::DEFERRED, DEFERRED_MAX);
    let waiting = api.ports.records.query(&query).await?;
    let keys: Vec<Key> = waiting
        .iter()
        .filter_map(|record| {
            load::read_or_report::<DeferredWakeup>(record, DEFERRED_EVENT, problems)
        })
        .map(|early| delivery::key(&early.waiting.delivery))
        .collect();
    let records = load::read_many(&api.ports, &keys).await?;
    let state = records.iter().flatten().filter_map(|record| {
        load::read_or_report::<DeliveryRecord>(record, DEFERRED_EVENT, problems)
    });
    Ok(state
        .filter(|deferred_events| !deferred_events.state.is_final())
        .filter_map(|deferred_events| {
            let event = deferred_events.event?;
            let EventKind::Deferred { kind, .. } = event.kind else { return None };
            let (EventKind::Change { number, .. } | EventKind::Gerrit(GerritEvent { number, .. })) =
                &*kind
            else {
                return None;
            };
            let key = ChangeKey::change(event.connection.clone(), event.project.clone(), *number);
            let event = ForgeEvent { kind: *kind, ..event };
            Some((key, explain::describe_event(&event)))
        })
        .collect())
}

/// Returns a change with the reasons of each pipeline, without its deferred events and problems.
/// Pipelines that the project takes no part in are left out, unless the change is or was offered to
/// them. An unknown change gets the message that it was not found.
fn change_json(
    api: &Api,
    live: &LiveLayout,
    state: &ChangeState,
    (queues, landings): (&load::TenantQueues, &BTreeMap<ItemId, Landing>),
) -> Value {
    let (key, facts, routing) = (&state.key, state.facts.as_ref(), state.routing.as_ref());
    let now = api.ports.clock.now();
    let unread = |pipeline: &Pipeline| -> Vec<QueueName> {
        let of_pipeline = queues.unread.iter().filter(|queue| queue.pipeline == pipeline.name);
        of_pipeline.map(|queue| queue.queue.clone()).collect()
    };
    let around = |pipeline: &Pipeline, landing| WaitContext {
        layout: live.tenant.layout,
        events: &live.tenant.events,
        landing,
        refusal: facts.and_then(|facts| explain::eligibility_refusal(pipeline, facts, now)),
        unreadable_queues: unread(pipeline),
    };
    let takes_part = live.layout.project_pipelines(&key.project);
    let pipelines = live.layout.pipelines().iter().filter_map(|pipeline| {
        let of_pipeline = queues.queues.iter().filter(|(queue, _)| queue.pipeline == pipeline.name);
        let of_pipeline: Vec<&(QueueKey, LoadedQueue)> = of_pipeline.collect();
        let place = of_pipeline.iter().find_map(|(_, loaded)| {
            let head = loaded.head.as_ref()?;
            let slot = head.slots().rfind(|slot| slot.change.key == *key)?;
            Some((loaded, head, loaded.items.get(&slot.id)?))
        });
        let is_ours = |pipeline_routing: &&explain::PipelineRouting| {
            pipeline_routing.tenant == live.tenant.name && pipeline_routing.pipeline == pipeline.name
        };
        let pipeline_routing = routing.and_then(|routing| routing.pipelines.iter().find(is_ours));
        let arrived = of_pipeline.iter().find_map(|(_, loaded)| {
            let inbox =
                explain::InboxState { messages: &loaded.inbox, is_halted: loaded.is_halted };
            explain::admission_wait_reason(inbox, key, &around(pipeline, None))
        });
        if place.is_none()
            && arrived.is_none()
            && pipeline_routing.is_none()
            && !takes_part.contains(&pipeline.name)
        {
            return None;
        }
        let Some((loaded, head, (_, item))) = place else {
            let reasons = match routing {
                Some(_) => explain::absence_reasons(pipeline, pipeline_routing, facts, now),
                None => vec![UNREADABLE.to_owned()],
            };
            let hidden = unreadable_queue_note(queues, pipeline, key);
            let why: Vec<String> = hidden.into_iter().chain(arrived).chain(reasons).collect();
            return Some(json!({"pipeline": pipeline.name, "item": null, "now": [], "why": why}));
        };
        let around = around(pipeline, landings.get(&item.id));
        let of = |id: &ItemId| loaded.items.get(id).map(|(_, item)| &**item);
        let node_waits = explain::wait_reasons(head, &item.id, of, &around);
        Some(json!({"pipeline": pipeline.name, "item": item.id, "now": node_waits, "why": item.reasons.iter().map(dated).collect::<Vec<_>>()}))
    });
    let pipelines: Vec<Value> = pipelines.collect();
    let nowhere = if state.is_seen {
        routing.and_then(|routing| routing.unrouted.clone())
    } else {
        Some(
            "Not found. No webhook has been received for this change, and the last poll of open changes did not list it."
                .to_owned(),
        )
    };
    json!({
        "project": key.project.name(),
        "project_canonical": key.project,
        "number": key.number(),
        "seen": state.is_seen,
        "title": facts.map(|facts| &facts.title),
        "status": facts.map(|facts| facts.status),
        "seen_at": facts.map(|facts| facts.seen_at.to_iso()),
        "not_enqueued": nowhere,
        "pipelines": pipelines,
    })
}

/// Returns a message about an unreadable queue of a pipeline that may contain the change; `None` if
/// there is no such queue. In an independent pipeline only the change's own queue and its host
/// queue may contain it.
fn unreadable_queue_note(
    queues: &load::TenantQueues,
    pipeline: &Pipeline,
    key: &ChangeKey,
) -> Option<String> {
    let mut of_pipeline = queues.unread.iter().filter(|queue| queue.pipeline == pipeline.name);
    // In an independent pipeline each change has its own queue, which names the queue that hosts
    // it.
    let queue_name = own_queue(key);
    let is_lent_to = |other: &QueueName| {
        queues.hosted.iter().any(|(queue, to)| {
            queue.pipeline == pipeline.name && queue.queue == queue_name && to == other
        })
    };
    let may_have = |queue: &QueueKey| queue.queue == queue_name || is_lent_to(&queue.queue);
    let hidden =
        of_pipeline.find(|queue| pipeline.manager != Manager::Independent || may_have(queue))?;
    Some(format!("it may be queued all the same: the queue {} could not be read", hidden.queue))
}

/// Returns a decision as a line that begins with its time, as `2026-03-01T12:00:00Z: it entered`.
fn dated(reason: &Reason) -> String {
    format!("{}Z: {}", reason.at.to_iso(), reason.text)
}
