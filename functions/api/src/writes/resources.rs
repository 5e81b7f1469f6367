//! The tenant's state, autohold requests, nodes, node requests and image builds.

use super::{PendingWrite, deleted, requested, stored};
use crate::configuration::find_project;
use crate::reply::ErrorResponse;
use crate::{load, pool};
use bytes::Bytes;
use http::{Response, StatusCode};
use serde_json::json;
use sluice_auth::RequestedAction;
use sluice_commands::{AutoholdSettings, NodeChange, TenantStateChange};
use sluice_config::tenant::Permission;
use sluice_gate::autohold::COUNT_MAX;

/// Changes which events of the tenant are paused or discarded. What is not set stays; the reason
/// and the note are replaced.
pub(super) async fn change_tenant_state(
    write: &PendingWrite<'_>,
) -> Result<Response<Bytes>, ErrorResponse> {
    let author = write.authorize_for_all(Permission::SetTenantState)?;
    let body = &write.body;
    let change = TenantStateChange {
        discard_triggers: body.switch("trigger_queue_discarding")?,
        pause_triggers: body.switch("trigger_queue_paused")?,
        pause_results: body.switch("result_queue_paused")?,
        reason: body.text("reason")?.unwrap_or_default(),
        info: body.text("info")?.unwrap_or_default(),
    };
    sluice_commands::change_tenant_state(write.ports(), write.tenant, &change, &author).await?;
    Ok(stored(StatusCode::OK, &json!(null)))
}

/// Creates an autohold request. 404 for a project that does not exist.
pub(super) async fn create_autohold(
    write: &PendingWrite<'_>,
    project: &str,
) -> Result<Response<Bytes>, ErrorResponse> {
    let live = load::live(write.api, write.tenant).await?;
    let found = find_project(&live.layout, project);
    let author = write.authorize(&RequestedAction {
        permission: Permission::Autohold,
        project: found.as_ref().ok().map(|project| requested(&live.layout, project)),
        git_ref: None,
    })?;
    let body = &write.body;
    let change = body.text("change")?.map(|change| {
        let number = change.split(',').next().unwrap_or_default();
        number.parse::<u64>().map_err(|_| {
            ErrorResponse::bad(format!("\"change\" must be a number, but is \"{change}\"."))
        })
    });
    let settings = AutoholdSettings {
        project: found?.name.clone(),
        job: body.required_text("job")?,
        change: change.transpose()?,
        git_ref: body.text("ref")?,
        reason: body.required_text("reason")?,
        count: u32::try_from(body.number("count")?.unwrap_or(1)).unwrap_or(COUNT_MAX + 1),
        node_expiration_seconds: body.number("node_hold_expiration")?,
        ssh_key: body.text("ssh_key")?,
    };
    if settings.change.is_some() && settings.git_ref.is_some() {
        return Err(ErrorResponse::bad("The body must not have both \"change\" and \"ref\"."));
    }
    sluice_commands::create_autohold(write.ports(), write.tenant, &settings, &author).await?;
    Ok(stored(StatusCode::OK, &json!(true)))
}

/// Deletes an autohold request and releases its nodes. 404 if there is none.
pub(super) async fn delete_autohold(
    write: &PendingWrite<'_>,
    id: &str,
) -> Result<Response<Bytes>, ErrorResponse> {
    let author = write.authorize_for_all(Permission::Autohold)?;
    sluice_commands::delete_autohold(write.ports(), write.tenant, id, &author).await?;
    Ok(deleted())
}

/// Stores the command that changes the state of a node that the tenant's list of nodes shows:
/// `hold` holds it; `used` and `outdated` release it. 404 if there is none, 400 if that is not
/// possible.
pub(super) async fn change_node(
    write: &PendingWrite<'_>,
    id: &str,
) -> Result<Response<Bytes>, ErrorResponse> {
    let author = write.authorize_for_all(Permission::ModifyNode)?;
    let reason = write.body.text("comment")?.unwrap_or_default();
    let change = match write.body.required_text("state")?.as_str() {
        "hold" => NodeChange::Hold { reason },
        "used" | "outdated" => NodeChange::Release,
        other => {
            return Err(ErrorResponse::bad(format!(
                "\"state\" must be hold, used or outdated, but is \"{other}\"."
            )));
        }
    };
    let live = load::live(write.api, write.tenant).await?;
    let nodes = pool::visible_nodes(write.api, write.tenant, &live.layout).await?;
    let node = nodes.iter().find(|node| node.id.as_str() == id);
    let node = node.ok_or_else(|| {
        ErrorResponse::missing(format!("There is no node {id} in the tenant {}.", write.tenant))
    })?;
    sluice_commands::change_node(write.ports(), write.tenant, node, &change, &author).await?;
    Ok(stored(StatusCode::CREATED, &json!(null)))
}

/// Stores the command that deletes a node request of the tenant. 404 if there is none, 400 if it
/// has its nodes.
pub(super) async fn delete_request(
    write: &PendingWrite<'_>,
    id: &str,
) -> Result<Response<Bytes>, ErrorResponse> {
    let author = write.authorize_for_all(Permission::ModifyNodesetRequest)?;
    let live = load::live(write.api, write.tenant).await?;
    let found = pool::find_request(write.api, write.tenant, &live.layout, id).await?;
    let (provider, request) = found.ok_or_else(|| {
        ErrorResponse::missing(format!(
            "There is no node request {id} in the tenant {}.",
            write.tenant
        ))
    })?;
    sluice_commands::delete_node_request(write.ports(), &provider, &request, &author).await?;
    Ok(deleted())
}

/// Stores the command that builds an image. 404 if the tenant has no such image to build.
pub(super) async fn build_image(
    write: &PendingWrite<'_>,
    name: &str,
) -> Result<Response<Bytes>, ErrorResponse> {
    let author = write.authorize_for_all(Permission::BuildImage)?;
    let live = load::live(write.api, write.tenant).await?;
    let event = sluice_commands::image_build_event(write.tenant, &live.layout, name, &author)?;
    sluice_commands::submit_event(write.ports(), event, &author).await?;
    Ok(stored(StatusCode::OK, &json!(null)))
}
