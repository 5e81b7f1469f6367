//! `T/why`, a route of our own: where a change stands in each pipeline, and why it is not in those that it is not in.

use crate::Api;
use crate::asked::Asked;
use crate::load;
use crate::reply::{self, Refusal};
use bytes::Bytes;
use http::Response;
use serde_json::{Value, json};
use sluice_config::pipeline::Pipeline;
use sluice_gate::explain::{self, Around, Verdicts};
use sluice_gate::{Landing, Standing};
use sluice_model::change::{ChangeFacts, ChangeKey};
use sluice_model::event::{EventKind, ForgeEvent};
use sluice_model::gerrit::GerritEvent;
use sluice_model::{ConnectionName, ItemId, ProjectName, QueueKey, TenantName};
use sluice_records::change::{facts_key, verdicts_key};
use sluice_records::codec::{decode, decode_foreign};
use sluice_records::delivery::{self, Delivery};
use sluice_records::layout::Live;
use sluice_records::queue::Loaded;
use sluice_records::tenant::Early;
use sluice_records::{landing, tenant};
use sluice_runtime::record::{Key, Query};
use std::collections::BTreeMap;

/// Projects that are looked through for a number alone.
const PROJECTS_MAX: usize = 500;

/// Landings under way that one answer reads.
const LANDINGS_MAX: usize = 100;

/// Events that wait for configuration that one answer looks at, the oldest.
const KEPT_MAX: usize = 200;

/// Answers for a change, named by `change`, its number, and `project`; without the latter for every project that has a change of
/// that number.
pub(crate) async fn not_there(api: &Api, tenant: &TenantName, asked: &Asked) -> Result<Response<Bytes>, Refusal> {
    asked.only(&["project", "change"])?;
    let number = asked.number("change")?.ok_or_else(|| Refusal::bad("A change is needed: `change=7`."))?;
    let live = load::live(api, tenant).await?;
    let keys: Vec<ChangeKey> = projects(&live, asked.one("project"))?
        .into_iter()
        .map(|(connection, project)| ChangeKey::change(connection, project, number))
        .collect();
    let facts = load::many(&api.ports, &keys.iter().map(facts_key).collect::<Vec<_>>()).await?;
    let known: Vec<(ChangeKey, Option<ChangeFacts>)> = (keys.into_iter().zip(facts))
        .map(|(key, record)| Ok((key, record.as_ref().map(decode).transpose()?)))
        .collect::<Result<_, Refusal>>()?;
    // Of a project that was named something is said in any case.
    let is_wanted = |facts: &Option<ChangeFacts>| facts.is_some() || asked.one("project").is_some();
    let known: Vec<_> = known.into_iter().filter(|(_, facts)| is_wanted(facts)).collect();
    let verdicts = load::many(&api.ports, &known.iter().map(|(key, _)| verdicts_key(key)).collect::<Vec<_>>()).await?;
    let queues = if known.is_empty() { load::Queues::default() } else { load::queues(&api.ports, tenant).await? };
    let landings = landings(api, &queues).await?;
    let kept = if known.is_empty() { Vec::new() } else { kept(api, tenant).await? };
    let mut list = Vec::new();
    for ((key, facts), record) in known.iter().zip(verdicts) {
        let verdicts: Verdicts = record.as_ref().map(decode).transpose()?.unwrap_or_default();
        let mut change = of_change(api, &live, key, facts.as_ref(), &verdicts, (&queues, &landings));
        let own = kept.iter().filter(|(of, _)| of == key);
        change["kept"] = own.map(|(_, event)| json!(event)).collect();
        list.push(change);
    }
    Ok(reply::json(&Value::Array(list)))
}

fn projects(live: &Live, named: Option<&str>) -> Result<Vec<(ConnectionName, ProjectName)>, Refusal> {
    if let Some(name) = named {
        let missing = || Refusal::missing(format!("{} has no project {name}.", live.tenant.name));
        let project = live.layout.project(name).ok_or_else(missing)?;
        return Ok(vec![(project.connection.clone(), project.name.clone())]);
    }
    let all = live.tenant.projects.iter().take(PROJECTS_MAX);
    let found = all.filter_map(|name| live.layout.project(name.as_str()));
    Ok(found.map(|project| (project.connection.clone(), project.name.clone())).collect())
}

/// Reads the landings that are under way.
async fn landings(api: &Api, queues: &load::Queues) -> Result<BTreeMap<ItemId, Landing>, Refusal> {
    let heads = queues.queues.iter().filter_map(|(_, loaded)| loaded.head.as_ref());
    let landing = heads.flat_map(|head| &head.slots).filter(|slot| slot.standing == Standing::Landing);
    let keys: Vec<Key> = landing.map(|slot| landing::key(&slot.id, slot.generation)).take(LANDINGS_MAX).collect();
    let records = load::many(&api.ports, &keys).await?;
    let known = records.iter().flatten().filter_map(decode_foreign::<Landing>);
    Ok(known.map(|landing| (landing.item.clone(), landing)).collect())
}

/// Returns the changes of which an event waits for configuration that is on its way, each with that event in words.
async fn kept(api: &Api, tenant: &TenantName) -> Result<Vec<(ChangeKey, String)>, Refusal> {
    let query = Query::prefix(tenant::partition(tenant), tenant::WAITING, KEPT_MAX);
    let waiting = api.ports.records.query(&query).await?;
    let keys: Vec<Key> = waiting
        .iter()
        .filter_map(decode_foreign::<Early>)
        .map(|early| delivery::key(&early.waiting.delivery))
        .collect();
    let records = load::many(&api.ports, &keys).await?;
    let open = records.iter().flatten().filter_map(decode_foreign::<Delivery>).filter(|kept| !kept.state.is_final());
    Ok(open
        .filter_map(|kept| {
            let event = kept.event?;
            let EventKind::Later { kind, .. } = event.kind else { return None };
            let (EventKind::Change { number, .. } | EventKind::Gerrit(GerritEvent { number, .. })) = &*kind else {
                return None;
            };
            let key = ChangeKey::change(event.connection.clone(), event.project.clone(), *number);
            let event = ForgeEvent { kind: *kind, ..event };
            Some((key, explain::words(&event)))
        })
        .collect())
}

fn of_change(
    api: &Api,
    live: &Live,
    key: &ChangeKey,
    facts: Option<&ChangeFacts>,
    verdicts: &Verdicts,
    (queues, landings): (&load::Queues, &BTreeMap<ItemId, Landing>),
) -> Value {
    let now = api.ports.clock.now();
    let around = |pipeline: &Pipeline, landing| Around {
        layout: live.tenant.layout,
        events: &live.tenant.events,
        landing,
        refusal: facts.and_then(|facts| explain::untakeable(pipeline, facts, now)),
    };
    let takes_part = live.layout.project_pipelines(&key.project);
    let pipelines = live.layout.pipelines().iter().filter_map(|pipeline| {
        let of_pipeline = queues.queues.iter().filter(|(queue, _)| queue.pipeline == pipeline.name);
        let of_pipeline: Vec<&(QueueKey, Loaded)> = of_pipeline.collect();
        let place = of_pipeline.iter().find_map(|(_, loaded)| {
            let head = loaded.head.as_ref()?;
            let position = head.slots.iter().rposition(|slot| slot.change.key == *key)?;
            Some((loaded, head, position, loaded.items.get(&head.slots[position].id)?))
        });
        let is_ours =
            |verdict: &&explain::Verdict| verdict.tenant == live.tenant.name && verdict.pipeline == pipeline.name;
        let verdict = verdicts.pipelines.iter().find(is_ours);
        let arrived = of_pipeline
            .iter()
            .find_map(|(_, loaded)| explain::arrived(&loaded.arrivals, key, loaded.is_frozen, &around(pipeline, None)));
        if place.is_none() && arrived.is_none() && verdict.is_none() && !takes_part.contains(&pipeline.name) {
            return None;
        }
        let Some((loaded, head, position, (_, item))) = place else {
            let why: Vec<String> = arrived.into_iter().chain(explain::chain(pipeline, verdict, facts, now)).collect();
            return Some(json!({"pipeline": pipeline.name, "item": null, "now": [], "why": why}));
        };
        let around = around(pipeline, landings.get(&item.id));
        let of = |id: &ItemId| loaded.items.get(id).map(|(_, item)| &**item);
        let waits = explain::standing(head, position, of, &around);
        Some(json!({"pipeline": pipeline.name, "item": item.id, "now": waits, "why": item.reasons}))
    });
    let pipelines: Vec<Value> = pipelines.collect();
    let nowhere = match (facts, &verdicts.nowhere) {
        (None, _) => Some(
            "nothing was ever heard of it: its webhook did not come, and no look at the forge's open changes found it"
                .to_owned(),
        ),
        (Some(_), nowhere) => nowhere.clone(),
    };
    json!({
        "project": key.project.name(),
        "project_canonical": key.project,
        "number": key.number(),
        "title": facts.map(|facts| &facts.title),
        "status": facts.map(|facts| facts.status),
        "seen_at": facts.map(|facts| facts.seen_at.to_iso()),
        "nowhere": nowhere,
        "pipelines": pipelines,
    })
}
