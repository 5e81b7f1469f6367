//! `enqueue`, `dequeue` and `promote`.

use super::body::Body;
use super::{PendingWrite, requested, stored};
use crate::configuration::find_project;
use crate::load;
use crate::reply::ErrorResponse;
use bytes::Bytes;
use http::{Response, StatusCode};
use serde_json::json;
use sluice_auth::RequestedAction;
use sluice_commands::{
    ChangeNumber, DequeueSelection, EnqueueTarget, RefUpdate, enqueue_event, select_promotion,
    select_queued, submit_event, whole_ref,
};
use sluice_config::layout::Layout;
use sluice_config::tenant::Permission;
use sluice_model::PipelineName;
use sluice_records::operator_command::pipeline_contents;

/// Stores the command that enqueues a change or a ref of a project. Whether the pipeline takes it
/// is decided later. 400 for a pipeline that does not exist, 404 for such a project.
pub(super) async fn enqueue(
    write: &PendingWrite<'_>,
    project: &str,
) -> Result<Response<Bytes>, ErrorResponse> {
    let target = enqueue_target(&write.body)?;
    let live = load::live(write.api, write.tenant).await?;
    let found = find_project(&live.layout, project);
    let git_ref = target.git_ref();
    let author = write.authorize(&RequestedAction {
        permission: Permission::Enqueue,
        project: found.as_ref().ok().map(|project| requested(&live.layout, project)),
        git_ref: Some(&git_ref),
    })?;
    let pipeline = pipeline(&write.body, &live.layout)?;
    let event = enqueue_event(write.tenant, &pipeline, found?, &target, &author)?;
    submit_event(write.ports(), event, &author).await?;
    Ok(stored(StatusCode::OK, &json!(true)))
}

/// Returns what a body asks to enqueue: a change or an update of a ref.
fn enqueue_target(body: &Body) -> Result<EnqueueTarget, ErrorResponse> {
    if body.has("parameters") {
        return Err(ErrorResponse::NotImplemented {
            why: "values for a pipeline's parameters are not passed to jobs yet".to_owned(),
        });
    }
    match (body.text("change")?, body.text("ref")?) {
        (Some(change), None) => Ok(EnqueueTarget::Change(ChangeNumber::parse(&change)?)),
        (None, Some(name)) => Ok(EnqueueTarget::Ref(RefUpdate {
            name,
            oldrev: body.text("oldrev")?,
            newrev: body.text("newrev")?,
        })),
        _ => Err(either_change_or_ref()),
    }
}

/// Stores the commands that dequeue a change or a ref of a project, if it is queued. Unlike Zuul's,
/// the body may have a `reason`. 400 for a pipeline that does not exist.
pub(super) async fn dequeue(
    write: &PendingWrite<'_>,
    project: &str,
) -> Result<Response<Bytes>, ErrorResponse> {
    let selection = match (write.body.text("change")?, write.body.text("ref")?) {
        (Some(change), None) => DequeueSelection::Change(ChangeNumber::parse(&change)?),
        (None, Some(name)) => DequeueSelection::Ref(whole_ref(&name)),
        _ => return Err(either_change_or_ref()),
    };
    let git_ref = match &selection {
        DequeueSelection::Change(change) => format!("refs/pull/{}/head", change.number),
        DequeueSelection::Ref(name) => name.clone(),
    };
    let live = load::live(write.api, write.tenant).await?;
    let found = find_project(&live.layout, project);
    let author = write.authorize(&RequestedAction {
        permission: Permission::Dequeue,
        project: found.as_ref().ok().map(|project| requested(&live.layout, project)),
        git_ref: Some(&git_ref),
    })?;
    let pipeline = pipeline(&write.body, &live.layout)?;
    let project = found?.name.as_str();
    let contents = pipeline_contents(write.ports(), write.tenant, pipeline.as_str()).await?;
    let queued = select_queued(&contents, project, &selection)?;
    let reason = write.body.text("reason")?.unwrap_or_default();
    sluice_commands::dequeue(write.ports(), &queued, &selection, &reason, &author).await?;
    Ok(stored(StatusCode::OK, &json!(true)))
}

/// Stores the command that moves changes to the front of their queue. 400 for a pipeline that does
/// not exist, 404 if no queue has all the changes.
pub(super) async fn promote(write: &PendingWrite<'_>) -> Result<Response<Bytes>, ErrorResponse> {
    let author = write.authorize_for_all(Permission::Promote)?;
    let live = load::live(write.api, write.tenant).await?;
    let pipeline = pipeline(&write.body, &live.layout)?;
    let changes = write.body.required_texts("changes")?;
    let changes: Vec<ChangeNumber> =
        changes.iter().map(|change| ChangeNumber::parse(change)).collect::<Result<_, _>>()?;
    let contents = pipeline_contents(write.ports(), write.tenant, pipeline.as_str()).await?;
    let promotion = select_promotion(&contents, &changes)?;
    sluice_commands::promote(write.ports(), &promotion, &author).await?;
    Ok(stored(StatusCode::OK, &json!(true)))
}

/// Returns the pipeline that a body names; 400 if there is none.
fn pipeline(body: &Body, layout: &Layout) -> Result<PipelineName, ErrorResponse> {
    let name = body.required_text("pipeline")?;
    match layout.pipeline(&name) {
        Some(pipeline) => Ok(pipeline.name.clone()),
        None => Err(ErrorResponse::bad(format!(
            "There is no pipeline {name} in the tenant {}.",
            layout.tenant().name
        ))),
    }
}

/// Returns the error for a body that names both or neither.
fn either_change_or_ref() -> ErrorResponse {
    ErrorResponse::bad("The body must have either \"change\" or \"ref\".")
}
