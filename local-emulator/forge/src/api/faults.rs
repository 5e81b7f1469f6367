//! HTTP routes that switch faults on and off when the forge runs as a program. GitHub has none of
//! these paths.

use super::answer::Answer;
use super::guard::Caller;
use crate::engine::Engine;
use crate::{Aim, ForgeFault, Times};
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::IntoResponse;
use axum::{Extension, Json};
use serde::Deserialize;
use std::sync::Arc;

/// A fault to switch on: `{"fault": {"kind": "huge-bodies", "bytes": 25000000}, "times": 2}`.
#[derive(Deserialize)]
pub(super) struct FaultRequest {
    fault: ForgeFault,
    /// Only requests whose path contains this; without it all of them.
    path: Option<String>,
    /// How often; without it until faults are cleared.
    times: Option<u32>,
}

/// Switches a fault on for requests to a repository, which need not exist. It affects requests
/// whose path contains `path`, otherwise all; `times` times, otherwise until faults are cleared.
/// Answers with status 204; only a caller with write permission may do it.
pub(super) async fn set(
    State(engine): State<Arc<Engine>>,
    Extension(caller): Extension<Caller>,
    Path((owner, name)): Path<(String, String)>,
    Json(request): Json<FaultRequest>,
) -> Answer {
    caller.writer()?;
    let aim = request.path.map_or(Aim::Everything, Aim::Path);
    let times = request.times.map_or(Times::UntilCleared, Times::Next);
    engine.faults.set(&format!("{owner}/{name}"), request.fault, aim, times);
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// Switches all faults of a repository off and answers with status 204, also if there were none.
/// Only a caller with write permission may do it.
pub(super) async fn clear(
    State(engine): State<Arc<Engine>>,
    Extension(caller): Extension<Caller>,
    Path((owner, name)): Path<(String, String)>,
) -> Answer {
    caller.writer()?;
    engine.faults.clear(&format!("{owner}/{name}"));
    Ok(StatusCode::NO_CONTENT.into_response())
}
