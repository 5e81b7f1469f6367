//! `T/why`, a route of our own: where a change stands in each pipeline, and why it is not in those
//! that it is not in.

use crate::Api;
use crate::asked::Asked;
use crate::load;
use crate::reply::{self, Refusal};
use bytes::Bytes;
use http::Response;
use serde_json::{Value, json};
use sluice_config::pipeline::{Manager, Pipeline};
use sluice_gate::explain::{self, Around, Verdicts};
use sluice_gate::queue::own_queue;
use sluice_gate::{Landing, Standing};
use sluice_model::change::{ChangeFacts, ChangeKey};
use sluice_model::event::{EventKind, ForgeEvent};
use sluice_model::gerrit::GerritEvent;
use sluice_model::{ConnectionName, ItemId, ProjectName, QueueKey, QueueName, TenantName};
use sluice_records::change::{facts_key, verdicts_key};
use sluice_records::delivery::{self, Delivery};
use sluice_records::layout::Live;
use sluice_records::queue::Loaded;
use sluice_records::tenant::Early;
use sluice_records::{landing, tenant};
use sluice_runtime::record::{Key, Query, Record};
use std::collections::BTreeMap;

/// Projects that are looked through for a number alone.
const PROJECTS_MAX: usize = 500;

/// Landings under way that one answer reads.
const LANDINGS_MAX: usize = 100;

/// Events that wait for configuration that one answer looks at, the oldest.
const KEPT_MAX: usize = 200;

/// Things that could not be read and are told with one change.
const TROUBLES_MAX: usize = 20;

/// What a record of an event that waits is called where it is damaged.
const KEPT: &str = "An event that waits for configuration";

/// What is said of a pipeline where the record of a change's events is damaged.
const UNREAD: &str = "what became of its events cannot be read";

/// What is known of a change. One bad record hides what it says alone, and is told.
struct Known {
    key: ChangeKey,
    /// Whether its forge was ever asked for it, be it readable or not.
    is_seen: bool,
    facts: Option<ChangeFacts>,
    /// `None` where they cannot be read.
    verdicts: Option<Verdicts>,
    /// What could not be read of it, for people.
    troubles: Vec<String>,
}

/// Answers for a change, named by `change`, its number, and `project`; without the latter for every
/// project that has a change of that number.
pub(crate) async fn not_there(
    api: &Api,
    tenant: &TenantName,
    asked: &Asked,
) -> Result<Response<Bytes>, Refusal> {
    asked.only(&["project", "change"])?;
    let number =
        asked.number("change")?.ok_or_else(|| Refusal::bad("A change is needed: `change=7`."))?;
    let live = load::live(api, tenant).await?;
    let keys: Vec<ChangeKey> = projects(&live, asked.one("project"))?
        .into_iter()
        .map(|(connection, project)| ChangeKey::change(connection, project, number))
        .collect();
    let facts = load::many(&api.ports, &keys.iter().map(facts_key).collect::<Vec<_>>()).await?;
    // Of a project that was named something is said in any case.
    let is_wanted = |record: &Option<Record>| record.is_some() || asked.one("project").is_some();
    let wanted = keys.into_iter().zip(facts).filter(|(_, record)| is_wanted(record));
    let mut known: Vec<Known> =
        wanted.map(|(key, record)| Known::new(key, record.as_ref())).collect();
    let verdicts =
        load::many(&api.ports, &known.iter().map(|one| verdicts_key(&one.key)).collect::<Vec<_>>())
            .await?;
    for (one, record) in known.iter_mut().zip(&verdicts) {
        one.hear(record.as_ref());
    }
    let queues = if known.is_empty() {
        load::Queues::default()
    } else {
        load::queues(&api.ports, tenant).await?
    };
    let mut troubles = queues.troubles.clone();
    let landings = landings(api, &queues, &mut troubles).await?;
    let kept = if known.is_empty() { Vec::new() } else { kept(api, tenant, &mut troubles).await? };
    let mut list = Vec::new();
    for one in &known {
        let mut change = of_change(api, &live, one, (&queues, &landings));
        let own = kept.iter().filter(|(of, _)| *of == one.key);
        change["kept"] = own.map(|(_, event)| json!(event)).collect();
        change["troubles"] = one
            .troubles
            .iter()
            .chain(&troubles)
            .take(TROUBLES_MAX)
            .map(|text| json!(text))
            .collect();
        list.push(change);
    }
    Ok(reply::json(&Value::Array(list)))
}

impl Known {
    /// Returns what its forge showed of a change.
    fn new(key: ChangeKey, record: Option<&Record>) -> Self {
        let mut troubles = Vec::new();
        let what = format!("What the forge showed of {key}");
        let facts = record.and_then(|record| load::told(record, &what, &mut troubles));
        Self { key, is_seen: record.is_some(), facts, verdicts: None, troubles }
    }

    /// Takes note of what became of its events.
    fn hear(&mut self, record: Option<&Record>) {
        self.verdicts = match record {
            None => Some(Verdicts::default()),
            Some(record) => {
                let what = format!("What became of the events of {}", self.key);
                load::told(record, &what, &mut self.troubles)
            }
        };
    }
}

fn projects(
    live: &Live,
    named: Option<&str>,
) -> Result<Vec<(ConnectionName, ProjectName)>, Refusal> {
    if let Some(name) = named {
        let missing = || Refusal::missing(format!("{} has no project {name}.", live.tenant.name));
        let project = live.layout.project(name).ok_or_else(missing)?;
        return Ok(vec![(project.connection.clone(), project.name.clone())]);
    }
    let all = live.tenant.projects.iter().take(PROJECTS_MAX);
    let found = all.filter_map(|name| live.layout.project(name.as_str()));
    Ok(found.map(|project| (project.connection.clone(), project.name.clone())).collect())
}

/// Reads the landings that are under way; those that cannot be read are told among the troubles.
async fn landings(
    api: &Api,
    queues: &load::Queues,
    troubles: &mut Vec<String>,
) -> Result<BTreeMap<ItemId, Landing>, Refusal> {
    let heads = queues.queues.iter().filter_map(|(_, loaded)| loaded.head.as_ref());
    let landing =
        heads.flat_map(|head| &head.slots).filter(|slot| slot.standing == Standing::Landing);
    let keys: Vec<Key> =
        landing.map(|slot| landing::key(&slot.id, slot.generation)).take(LANDINGS_MAX).collect();
    let records = load::many(&api.ports, &keys).await?;
    let known = records
        .iter()
        .flatten()
        .filter_map(|record| load::told::<Landing>(record, "A landing", troubles));
    Ok(known.map(|landing| (landing.item.clone(), landing)).collect())
}

/// Returns the changes of which an event waits for configuration that is on its way, each with that
/// event in words. What of it cannot be read is told among the troubles.
async fn kept(
    api: &Api,
    tenant: &TenantName,
    troubles: &mut Vec<String>,
) -> Result<Vec<(ChangeKey, String)>, Refusal> {
    let query = Query::prefix(tenant::partition(tenant), tenant::WAITING, KEPT_MAX);
    let waiting = api.ports.records.query(&query).await?;
    let keys: Vec<Key> = waiting
        .iter()
        .filter_map(|record| load::told::<Early>(record, KEPT, troubles))
        .map(|early| delivery::key(&early.waiting.delivery))
        .collect();
    let records = load::many(&api.ports, &keys).await?;
    let known = records
        .iter()
        .flatten()
        .filter_map(|record| load::told::<Delivery>(record, KEPT, troubles));
    Ok(known
        .filter(|kept| !kept.state.is_final())
        .filter_map(|kept| {
            let event = kept.event?;
            let EventKind::Later { kind, .. } = event.kind else { return None };
            let (EventKind::Change { number, .. } | EventKind::Gerrit(GerritEvent { number, .. })) =
                &*kind
            else {
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
    known: &Known,
    (queues, landings): (&load::Queues, &BTreeMap<ItemId, Landing>),
) -> Value {
    let (key, facts, verdicts) = (&known.key, known.facts.as_ref(), known.verdicts.as_ref());
    let now = api.ports.clock.now();
    let unread = |pipeline: &Pipeline| -> Vec<QueueName> {
        let of_pipeline = queues.unread.iter().filter(|queue| queue.pipeline == pipeline.name);
        of_pipeline.map(|queue| queue.queue.clone()).collect()
    };
    let around = |pipeline: &Pipeline, landing| Around {
        layout: live.tenant.layout,
        events: &live.tenant.events,
        landing,
        refusal: facts.and_then(|facts| explain::untakeable(pipeline, facts, now)),
        unread: unread(pipeline),
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
        let is_ours = |verdict: &&explain::Verdict| {
            verdict.tenant == live.tenant.name && verdict.pipeline == pipeline.name
        };
        let verdict = verdicts.and_then(|verdicts| verdicts.pipelines.iter().find(is_ours));
        let arrived = of_pipeline.iter().find_map(|(_, loaded)| {
            explain::arrived(&loaded.arrivals, key, loaded.is_frozen, &around(pipeline, None))
        });
        if place.is_none()
            && arrived.is_none()
            && verdict.is_none()
            && !takes_part.contains(&pipeline.name)
        {
            return None;
        }
        let Some((loaded, head, position, (_, item))) = place else {
            let told = match verdicts {
                Some(_) => explain::chain(pipeline, verdict, facts, now),
                None => vec![UNREAD.to_owned()],
            };
            let hidden = may_stand_in(queues, pipeline, key);
            let why: Vec<String> = hidden.into_iter().chain(arrived).chain(told).collect();
            return Some(json!({"pipeline": pipeline.name, "item": null, "now": [], "why": why}));
        };
        let around = around(pipeline, landings.get(&item.id));
        let of = |id: &ItemId| loaded.items.get(id).map(|(_, item)| &**item);
        let waits = explain::standing(head, position, of, &around);
        Some(json!({"pipeline": pipeline.name, "item": item.id, "now": waits, "why": item.reasons}))
    });
    let pipelines: Vec<Value> = pipelines.collect();
    let nowhere = if known.is_seen {
        verdicts.and_then(|verdicts| verdicts.nowhere.clone())
    } else {
        Some(
            "nothing was ever heard of it: its webhook did not come, and no look at the forge's open changes found it"
                .to_owned(),
        )
    };
    json!({
        "project": key.project.name(),
        "project_canonical": key.project,
        "number": key.number(),
        "seen": known.is_seen,
        "title": facts.map(|facts| &facts.title),
        "status": facts.map(|facts| facts.status),
        "seen_at": facts.map(|facts| facts.seen_at.to_iso()),
        "nowhere": nowhere,
        "pipelines": pipelines,
    })
}

/// Returns the queue of a pipeline that cannot be read and that a change which was not found may
/// stand in.
fn may_stand_in(queues: &load::Queues, pipeline: &Pipeline, key: &ChangeKey) -> Option<String> {
    let mut of_pipeline = queues.unread.iter().filter(|queue| queue.pipeline == pipeline.name);
    // In an independent pipeline each change has a queue of its own, which says of one that stands
    // in another queue in which.
    let own = own_queue(key);
    let is_lent_to = |other: &QueueName| {
        queues
            .lent
            .iter()
            .any(|(queue, to)| queue.pipeline == pipeline.name && queue.queue == own && to == other)
    };
    let may_have = |queue: &QueueKey| queue.queue == own || is_lent_to(&queue.queue);
    let hidden =
        of_pipeline.find(|queue| pipeline.manager != Manager::Independent || may_have(queue))?;
    Some(format!("it may stand there all the same: the queue {} cannot be read", hidden.queue))
}
