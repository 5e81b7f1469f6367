//! `T/ledger`, a route of our own: work of a tenant that no function has handled in time. Normally
//! there is none.

use crate::Api;
use crate::load;
use crate::reply::{self, ErrorResponse};
use bytes::Bytes;
use http::Response;
use serde_json::{Map, Value, json};
use sluice_gate::unattended::BOUND_SECONDS;
use sluice_model::TenantName;
use sluice_records::open_work::{self, OpenEntry, OpenKind};

/// The maximum number of entries in one answer; the counts are complete.
const NAMED_MAX: usize = 100;

/// Answers with a tenant's work that no function has handled in time: the number of each kind, and
/// the ids and reasons of at most [`NAMED_MAX`]. Deliveries belong to a tenant by their project.
/// `complete` is false if not all work could be searched.
pub(crate) async fn ledger(
    api: &Api,
    tenant: &TenantName,
) -> Result<Response<Bytes>, ErrorResponse> {
    let live = load::live(api, tenant).await?;
    let now = api.ports.clock.now();
    let ledger = open_work::read(&api.ports, open_work::past_bound(now), now).await?;
    let is_ours = |open: &&OpenEntry| match (&open.tenant, &open.project) {
        (Some(of), _) => of == tenant,
        (None, Some(project)) => live.layout.project(project.as_str()).is_some(),
        (None, None) => false,
    };
    let ours: Vec<&OpenEntry> = ledger.unaccounted().filter(is_ours).collect();
    let count = |kind: OpenKind| ours.iter().filter(|open| open.kind == kind).count();
    let counts: Map<String, Value> = OpenKind::ALL
        .into_iter()
        .map(|kind| (kind.plural().to_owned(), json!(count(kind))))
        .collect();
    let named = ours
        .iter()
        .take(NAMED_MAX)
        .map(|open| json!({"kind": open.kind.plural(), "id": open.id, "why": open.unaccounted}));
    Ok(reply::json(&json!({
        "bound_seconds": BOUND_SECONDS,
        "unaccounted": ours.len(),
        "counts": counts,
        "things": named.collect::<Vec<_>>(),
        "complete": !ledger.is_cut,
    })))
}
