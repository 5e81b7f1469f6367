//! `T/item/{id}/explain/{job}`, a route of our own: which definitions made a job of an item what it
//! is, which were left out, and why.
//!
//! Nothing of this is kept with the item, however much a tenant's configuration comes to: it is
//! worked out anew from the live layout when somebody asks for one job. What was applied when it
//! was frozen stands in the frozen job, and is told beside it: a change that proposes configuration
//! is frozen with it, and here only what is merged is at hand.

use crate::Api;
use crate::load::{self, Found};
use crate::reply::{self, Refusal};
use bytes::Bytes;
use http::Response;
use serde::de::DeserializeOwned;
use serde_json::json;
use sluice_config::FreezeInput;
use sluice_gate::Item;
use sluice_model::build::Speculation;
use sluice_model::job::JobGraph;
use sluice_model::{BranchName, ItemId, TenantName};
use std::collections::BTreeSet;

/// Answers for an item in its queue and for one that left.
pub(crate) async fn job(
    api: &Api,
    tenant: &TenantName,
    id: &str,
    name: &str,
) -> Result<Response<Bytes>, Refusal> {
    let missing = || Refusal::missing(format!("There is no item {id} in the tenant {tenant}."));
    let id_wanted = ItemId::from(id);
    let found = load::item(&api.ports, tenant, &id_wanted).await?.ok_or_else(missing)?;
    let (item, pipeline) = match &found {
        Found::Queued(loaded, queue) => (
            loaded.items.get(&id_wanted).map(|(_, item)| &**item).ok_or_else(missing)?,
            &queue.pipeline,
        ),
        Found::Left(buildset) => (&buildset.item, &buildset.queue.pipeline),
    };
    let frozen = frozen(api, item).await?;
    let change = &item.candidate.change;
    let facts = load::facts(&api.ports, &BTreeSet::from([change.key.clone()])).await?;
    // Of an older patch set nobody remembers the files.
    let facts = facts.get(&change.key).filter(|facts| facts.change == *change);
    let files = facts.and_then(|facts| facts.files.as_deref());

    let live = load::live(api, tenant).await?;
    let input = FreezeInput {
        pipeline: pipeline.as_str(),
        project: &change.key.project,
        branch: change.on_branch().map(BranchName::as_str),
        containing: frozen.as_ref().and_then(|frozen| frozen.containing.as_deref()),
        git_ref: change.key.moved().map_or(change.branch.as_str(), |moved| &moved.git_ref),
        files,
        before: None,
        image_names: change.key.images().map_or(&[][..], |images| images.names.as_slice()),
    };
    let (_, trace) = live.layout.freeze_with_trace(&input);
    let trace = trace.into_iter().find(|one| one.job == name);
    let graph = frozen.as_ref().and_then(|frozen| frozen.graph.as_ref());
    let applied = graph.and_then(|graph| graph.jobs.iter().find(|job| job.name.as_str() == name));
    if trace.is_none() && applied.is_none() {
        let project = change.key.project.name();
        let branch = &change.branch;
        return Err(Refusal::missing(format!(
            "{project} does not list a job {name} in {pipeline} for {branch}."
        )));
    }
    let mut notes = Vec::new();
    match &frozen {
        None => notes.push(
            "It is not frozen; this is how it would be by the configuration as it is merged now."
                .to_owned(),
        ),
        Some(frozen) if !frozen.configured.is_empty() => {
            let where_from = frozen.configured.join(", ");
            notes.push(format!(
                "It was frozen with configuration that is not merged, of {where_from}; this is by the configuration as it is merged now."
            ));
        }
        Some(_) => {}
    }
    if files.is_none() && change.key.moved().is_none() {
        notes.push(
            "Which files the change touches is not known here, so no job is left out for them."
                .to_owned(),
        );
    }
    if trace.is_none() {
        notes.push(
            "By the configuration as it is merged now the project does not list the job."
                .to_owned(),
        );
    }
    Ok(reply::json(&json!({
        "item": id,
        "pipeline": pipeline,
        "job": name,
        "notes": notes,
        "applied": applied.map(|job| &job.inheritance),
        "trace": trace,
        "text": trace.as_ref().map(ToString::to_string),
    })))
}

/// What an item's jobs were frozen to.
struct Frozen {
    /// Branches whose proposed configuration counted, for people.
    configured: Vec<String>,
    /// Of a tag, the branches that it was frozen by.
    containing: Option<Vec<BranchName>>,
    /// `None` when it is gone.
    graph: Option<JobGraph>,
}

async fn frozen(api: &Api, item: &Item) -> Result<Option<Frozen>, Refusal> {
    let Some(merged) = item.merged() else { return Ok(None) };
    let speculation: Option<Speculation> = object(api, &merged.speculation).await?;
    let (branches, containing) =
        speculation.map_or_else(Default::default, |state| (state.configured, state.containing));
    let configured =
        branches.iter().map(|key| format!("{}@{}", key.project.name(), key.branch)).collect();
    Ok(Some(Frozen { configured, containing, graph: object(api, &merged.graph).await? }))
}

async fn object<T: DeserializeOwned>(api: &Api, key: &str) -> Result<Option<T>, Refusal> {
    let Some(object) = api.ports.objects.get(key).await? else { return Ok(None) };
    let read = serde_json::from_slice(&object.bytes);
    read.map(Some).map_err(|error| Refusal::Unavailable {
        detail: format!("the object {key} cannot be read: {error}"),
    })
}
