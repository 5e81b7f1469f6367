//! `T/item/{id}`, a route of our own: an item with its jobs and the reasons of all decisions.

use crate::Api;
use crate::load::{self, ItemLocation};
use crate::node_waits;
use crate::reply::{self, ErrorResponse};
use crate::status::StatusContext;
use crate::status_board::{self, Place};
use crate::status_detail::DetailLevel;
use bytes::Bytes;
use http::Response;
use serde_json::{Value, json};
use sluice_model::{ItemId, TenantName};

/// Answers with everything about one item, which is queued or has left; 404 if it does not exist in
/// the tenant.
pub(crate) async fn get(
    api: &Api,
    tenant: &TenantName,
    id: &str,
) -> Result<Response<Bytes>, ErrorResponse> {
    let missing =
        || ErrorResponse::missing(format!("There is no item {id} in the tenant {tenant}."));
    let id_wanted = ItemId::from(id);
    let found = load::item(&api.ports, tenant, &id_wanted).await?.ok_or_else(missing)?;
    let durations = api.estimates.of(&api.ports, tenant).await?;
    let open = match &found {
        ItemLocation::Queued(loaded, _) => {
            node_waits::open(loaded.items.get(&id_wanted).map(|(_, item)| &**item).into_iter())
        }
        ItemLocation::Left(_) => Vec::new(),
    };
    let node_waits = node_waits::read(&api.ports, &open).await?;
    let now = api.ports.clock.now();
    let context = StatusContext {
        tenant,
        web_root: &api.web_root,
        durations: &durations,
        node_waits: &node_waits,
        now,
        detail: DetailLevel::Whole,
    };
    let mut body = match &found {
        ItemLocation::Queued(loaded, queue) => {
            let head = loaded.head.as_ref().ok_or_else(missing)?;
            let (_, item) = loaded.items.get(&id_wanted).ok_or_else(missing)?;
            let position = head.slots().position(|slot| slot.id == id_wanted);
            let mut body = status_board::item(&context, item, Place::of(head, &id_wanted));
            insert(&mut body, "pipeline", json!(queue.pipeline));
            insert(&mut body, "queue", json!(queue.queue));
            insert(&mut body, "position", json!(position));
            insert(&mut body, "halted", json!(head.halted));
            insert(&mut body, "end", Value::Null);
            body
        }
        ItemLocation::Left(buildset) => {
            let mut body = status_board::item(&context, &buildset.item, None);
            insert(&mut body, "pipeline", json!(buildset.queue.pipeline));
            insert(&mut body, "queue", json!(buildset.queue.queue));
            insert(&mut body, "position", Value::Null);
            insert(&mut body, "halted", Value::Null);
            let end =
                json!({"result": buildset.result, "why": buildset.why, "at": buildset.ended_at});
            insert(&mut body, "end", end);
            body
        }
    };
    insert(&mut body, "tenant", json!(tenant));
    Ok(reply::json(&body))
}

/// Sets a member of a JSON object; does nothing to another value.
fn insert(body: &mut Value, name: &str, value: Value) {
    if let Some(map) = body.as_object_mut() {
        map.insert(name.to_owned(), value);
    }
}
