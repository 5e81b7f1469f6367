//! Hooks and their deliveries.

use super::answer::{Answer, Paging, created, ok, page};
use super::guard::Caller;
use crate::engine::Engine;
use crate::error::ApiError;
use crate::model::{Delivery, Hook, Outcome};
use crate::shapes;
use axum::extract::{OriginalUri, Path, Query, State};
use axum::http::StatusCode;
use axum::response::IntoResponse;
use axum::{Extension, Json};
use serde::Deserialize;
use serde_json::{Value, json};
use std::sync::Arc;

#[derive(Deserialize)]
pub(super) struct NewHook {
    config: HookConfig,
    #[serde(default)]
    events: Vec<String>,
}

#[derive(Deserialize)]
struct HookConfig {
    url: String,
    #[serde(default)]
    secret: String,
}

/// Answers with all webhooks of a repository, on one page; none for an unknown repository. Their
/// secrets are not shown. Only a caller with write permission may read them.
pub(super) async fn list(
    State(engine): State<Arc<Engine>>,
    Extension(caller): Extension<Caller>,
    Path((owner, name)): Path<(String, String)>,
) -> Answer {
    caller.writer()?;
    let full_name = format!("{owner}/{name}");
    let hooks: Vec<Hook> = engine.store.within(|access| access.list(&full_name))?;
    ok(hooks.iter().map(|hook| shapes::hook(&engine.web, &full_name, hook)).collect())
}

/// Adds a webhook to a repository and records a `ping` to be sent to it. Without a list of events
/// it gets pushes only. Answers with status 201; with 404 for an unknown repository. Only a caller
/// with write permission may do it.
pub(super) async fn create(
    State(engine): State<Arc<Engine>>,
    Extension(caller): Extension<Caller>,
    Path((owner, name)): Path<(String, String)>,
    Json(new): Json<NewHook>,
) -> Answer {
    let by = caller.writer()?;
    let full_name = format!("{owner}/{name}");
    let events = if new.events.is_empty() { vec!["push".to_owned()] } else { new.events };
    let hook = engine.add_hook(&full_name, &new.config.url, &new.config.secret, events, by)?;
    created(shapes::hook(&engine.web, &full_name, &hook))
}

/// Answers with a page of a webhook's deliveries, newest first and without their bodies; empty for
/// an unknown repository or webhook. Only a caller with write permission may read them.
pub(super) async fn deliveries(
    State(engine): State<Arc<Engine>>,
    Extension(caller): Extension<Caller>,
    Path((owner, name, hook)): Path<(String, String, u64)>,
    OriginalUri(uri): OriginalUri,
    Query(paging): Query<Paging>,
) -> Answer {
    caller.writer()?;
    let all: Vec<Delivery> =
        engine.store.within(|access| access.list(&format!("{owner}/{name}")))?;
    let newest_first =
        all.iter().rev().filter(|delivery| delivery.hook == hook).map(shapes::delivery).collect();
    page(&engine.web, &uri, paging, newest_first, Value::Array)
}

/// Answers with one delivery of a webhook: the payload that was sent, without padding, the headers
/// with event and guid, and the status of the response, which is null if there was none. 404 if the
/// webhook has no such delivery. Only a caller with write permission may read it.
pub(super) async fn delivery(
    State(engine): State<Arc<Engine>>,
    Extension(caller): Extension<Caller>,
    Path((owner, name, hook, id)): Path<(String, String, u64, u64)>,
) -> Answer {
    caller.writer()?;
    let found: Option<Delivery> =
        engine.store.within(|access| access.get(&format!("{owner}/{name}"), id))?;
    let delivery =
        found.filter(|delivery| delivery.hook == hook).ok_or_else(ApiError::not_found)?;
    let mut shape = shapes::delivery(&delivery);
    let status = match delivery.outcome {
        Outcome::Answered { status, .. } => Some(status),
        _ => None,
    };
    let payload: Value = serde_json::from_str(&delivery.body).unwrap_or_default();
    shape["request"] = json!({"headers": {"X-GitHub-Event": delivery.event, "X-GitHub-Delivery": delivery.guid}, "payload": payload});
    shape["response"] = json!({"status": status});
    ok(shape)
}

/// Records that a delivery of a webhook is to be sent again, and answers with status 202 before it
/// is sent. 404 if the webhook has no such delivery. Only a caller with write permission may do it.
pub(super) async fn redeliver(
    State(engine): State<Arc<Engine>>,
    Extension(caller): Extension<Caller>,
    Path((owner, name, hook, id)): Path<(String, String, u64, u64)>,
) -> Answer {
    caller.writer()?;
    engine.redeliver(&format!("{owner}/{name}"), hook, id)?;
    Ok((StatusCode::ACCEPTED, Json(json!({}))).into_response())
}
