//! `T/item/{id}/explain/{job}`, a route of our own: which definitions apply to a job of an item,
//! which do not, and why.
//!
//! The trace is computed from the live layout on each request, because storing it with items would
//! be too large. The definitions applied when the job was frozen are shown too: a change that
//! proposes configuration was frozen with it, but only merged configuration is available here.

use crate::Api;
use crate::load::{self, ItemLocation};
use crate::reply::{self, ErrorResponse};
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

/// Answers with the definitions that a job of an item was frozen with, null if that is unknown, and
/// why each definition applies in the live layout or not. Notes say where the two may differ. 404
/// if the item does not exist in the tenant, or if neither its job graph nor the live layout has
/// the job for its change. 422 if the tenant's layout was never loaded.
pub(crate) async fn job(
    api: &Api,
    tenant: &TenantName,
    id: &str,
    name: &str,
) -> Result<Response<Bytes>, ErrorResponse> {
    let missing =
        || ErrorResponse::missing(format!("There is no item {id} in the tenant {tenant}."));
    let id_wanted = ItemId::from(id);
    let found = load::item(&api.ports, tenant, &id_wanted).await?.ok_or_else(missing)?;
    let (item, pipeline) = match &found {
        ItemLocation::Queued(loaded, queue) => (
            loaded.items.get(&id_wanted).map(|(_, item)| &**item).ok_or_else(missing)?,
            &queue.pipeline,
        ),
        ItemLocation::Left(buildset) => (&buildset.item, &buildset.queue.pipeline),
    };
    let frozen = read_frozen(api, item).await?;
    let change = &item.candidate.change;
    let facts = load::facts(&api.ports, &BTreeSet::from([change.key.clone()])).await?;
    // Facts of another patch set may list other files.
    let facts = facts.get(&change.key).filter(|facts| facts.change == *change);
    let files = facts.and_then(|facts| facts.files.as_deref());

    let live = load::live(api, tenant).await?;
    let input = FreezeInput {
        pipeline: pipeline.as_str(),
        project: &change.key.project,
        branch: change.on_branch().map(BranchName::as_str),
        containing: frozen.as_ref().and_then(|frozen| frozen.containing.as_deref()),
        git_ref: change.key.ref_move().map_or(change.branch.as_str(), |moved| &moved.git_ref),
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
        return Err(ErrorResponse::missing(format!(
            "{project} does not run a job {name} in {pipeline} for {branch}."
        )));
    }
    let mut notes = Vec::new();
    match &frozen {
        None => notes.push(
            "The job is not frozen yet; this trace uses the configuration as merged now."
                .to_owned(),
        ),
        Some(frozen) if !frozen.configured.is_empty() => {
            let proposed = frozen.configured.join(", ");
            notes.push(format!(
                "The job was frozen with proposed configuration of {proposed}; this trace uses the configuration as merged now."
            ));
        }
        Some(_) => {}
    }
    if files.is_none() && change.key.ref_move().is_none() {
        notes.push(
            "The files of the change are unknown, so file matchers were not applied.".to_owned(),
        );
    }
    if trace.is_none() {
        notes.push(
            "In the configuration as merged now, the project does not list the job.".to_owned(),
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

/// What an item's jobs were frozen with.
struct FrozenJobs {
    /// The branches whose proposed configuration was used, as text.
    configured: Vec<String>,
    /// For a tag, the branches that contain it.
    containing: Option<Vec<BranchName>>,
    /// The job graph; `None` if it has expired.
    graph: Option<JobGraph>,
}

/// Reads what an item's jobs were frozen with; `None` if they are not frozen yet. What has expired
/// is left empty; a damaged object is an error.
async fn read_frozen(api: &Api, item: &Item) -> Result<Option<FrozenJobs>, ErrorResponse> {
    let Some(merged) = item.merged() else { return Ok(None) };
    let speculation: Option<Speculation> = read_object(api, &merged.speculation).await?;
    let (branches, containing) = speculation
        .map_or_else(Default::default, |state| (state.config_branches, state.containing));
    let configured =
        branches.iter().map(|key| format!("{}@{}", key.project.name(), key.branch)).collect();
    Ok(Some(FrozenJobs { configured, containing, graph: read_object(api, &merged.graph).await? }))
}

/// Reads and decodes a stored object; `None` if it does not exist, an error with status 503 if it
/// is damaged.
async fn read_object<T: DeserializeOwned>(
    api: &Api,
    key: &str,
) -> Result<Option<T>, ErrorResponse> {
    let Some(object) = api.ports.objects.get(key).await? else { return Ok(None) };
    let read = serde_json::from_slice(&object.bytes);
    read.map(Some).map_err(|error| ErrorResponse::Unavailable {
        detail: format!("could not read the object {key}: {error}"),
    })
}
