//! `T/system-events`: the events of a tenant as a whole, newest first.

use crate::reply::{self, ErrorResponse};
use crate::request::ApiRequest;
use crate::{Api, load};
use bytes::Bytes;
use http::Response;
use serde_json::{Value, json};
use sluice_model::TenantName;
use sluice_model::id::digest;
use sluice_records::system_event::{self, SystemEvent};

/// The number of events that are read at once.
const PAGE: usize = 1_000;
/// The maximum number of reads for one answer.
const PAGES_MAX: usize = 12;

/// Answers with the page of a tenant's system events that match the parameters, newest first.
/// `idx_min` and `idx_max` are layout numbers. At most [`PAGES_MAX`] times [`PAGE`] events are
/// searched. 404 for an unknown tenant or parameter, 400 for an invalid number.
pub(crate) async fn list(
    api: &Api,
    tenant: &TenantName,
    request: &ApiRequest,
) -> Result<Response<Bytes>, ErrorResponse> {
    let (page, min, mut newest) = (
        request.page()?,
        request.number_parameter("idx_min")?,
        request.number_parameter("idx_max")?,
    );
    load::require_tenant(&api.ports, tenant).await?;
    let types: Vec<&str> = request.parameter_values("event_type").collect();
    let matches_type =
        |event: &SystemEvent| types.is_empty() || types.contains(&event.event_type.as_str());
    let mut found: Vec<SystemEvent> = Vec::new();
    for _ in 0..PAGES_MAX {
        let events = system_event::newest(&api.ports, tenant, newest, PAGE).await?;
        let (is_last, oldest) = (events.len() < PAGE, events.last().map(|event| event.number));
        let in_bounds = |event: &SystemEvent| min.is_none_or(|min| event.number >= min);
        found.extend(events.into_iter().filter(|event| in_bounds(event) && matches_type(event)));
        newest = oldest.and_then(|oldest| oldest.checked_sub(1));
        let is_below = newest.is_none_or(|newest| min.is_some_and(|min| newest < min));
        if is_last || is_below || found.len() >= page.skip + page.limit {
            break;
        }
    }
    let list = found.iter().skip(page.skip).take(page.limit).map(|event| to_json(tenant, event));
    Ok(reply::json(&Value::Array(list.collect())))
}

/// Returns a system event in the shape that Zuul's API has.
fn to_json(tenant: &TenantName, event: &SystemEvent) -> Value {
    json!({
        "event_id": digest(&["system-event", tenant.as_str(), &event.number.to_string()]),
        "event_time": event.at.to_iso(),
        "event_type": event.event_type,
        "description": event.description,
    })
}
