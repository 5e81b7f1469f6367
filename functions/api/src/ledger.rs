//! `T/ledger`, a route of our own: what of a tenant nobody sees to any more. There should be
//! nothing.

use crate::Api;
use crate::load;
use crate::reply::{self, Refusal};
use bytes::Bytes;
use http::Response;
use serde_json::{Map, Value, json};
use sluice_gate::account::BOUND_SECONDS;
use sluice_model::TenantName;
use sluice_records::ledger::{self, Kind, Open};

/// Things that one answer names; all are counted.
const NAMED_MAX: usize = 100;

/// Answers with the counts of each kind, and with what and why. Deliveries belong to a tenant by
/// their project.
pub(crate) async fn ledger(api: &Api, tenant: &TenantName) -> Result<Response<Bytes>, Refusal> {
    let live = load::live(api, tenant).await?;
    let now = api.ports.clock.now();
    let ledger = ledger::read(&api.ports, ledger::past_bound(now), now).await?;
    let is_ours = |open: &&Open| match (&open.tenant, &open.project) {
        (Some(of), _) => of == tenant,
        (None, Some(project)) => live.layout.project(project.as_str()).is_some(),
        (None, None) => false,
    };
    let ours: Vec<&Open> = ledger.unaccounted().filter(is_ours).collect();
    let count = |kind: Kind| ours.iter().filter(|open| open.kind == kind).count();
    let counts: Map<String, Value> =
        Kind::ALL.into_iter().map(|kind| (kind.plural().to_owned(), json!(count(kind)))).collect();
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
