//! `T/why`, a route of our own: where a change stands in each pipeline, and why it is not in those that it is not in.

use crate::Api;
use crate::asked::Asked;
use crate::load;
use crate::reply::{self, Refusal};
use bytes::Bytes;
use http::Response;
use serde_json::{Value, json};
use sluice_gate::explain::{self, Verdicts};
use sluice_model::change::{ChangeFacts, ChangeKey};
use sluice_model::{ConnectionName, ProjectName, TenantName};
use sluice_records::change::{facts_key, verdicts_key};
use sluice_records::codec::decode;
use sluice_records::layout::Live;

/// Projects that are looked through for a number alone.
const PROJECTS_MAX: usize = 500;

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
    let mut list = Vec::new();
    for ((key, facts), record) in known.iter().zip(verdicts) {
        let verdicts: Verdicts = record.as_ref().map(decode).transpose()?.unwrap_or_default();
        list.push(of_change(api, &live, key, facts.as_ref(), &verdicts, &queues));
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

fn of_change(
    api: &Api,
    live: &Live,
    key: &ChangeKey,
    facts: Option<&ChangeFacts>,
    verdicts: &Verdicts,
    queues: &load::Queues,
) -> Value {
    let now = api.ports.clock.now();
    let takes_part = live.layout.project_pipelines(&key.project);
    let pipelines = live.layout.pipelines().iter().filter_map(|pipeline| {
        let of_pipeline = queues.queues.iter().filter(|(queue, _)| queue.pipeline == pipeline.name);
        let item = of_pipeline
            .flat_map(|(_, loaded)| loaded.items.values())
            .find(|(_, item)| item.candidate.change.key == *key);
        let is_ours =
            |verdict: &&explain::Verdict| verdict.tenant == live.tenant.name && verdict.pipeline == pipeline.name;
        let verdict = verdicts.pipelines.iter().find(is_ours);
        if item.is_none() && verdict.is_none() && !takes_part.contains(&pipeline.name) {
            return None;
        }
        let why = match item {
            Some((_, item)) => item.reasons.clone(),
            None => explain::chain(pipeline, verdict, facts, now),
        };
        Some(json!({"pipeline": pipeline.name, "item": item.map(|(_, item)| &item.id), "why": why}))
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
