//! `T/item/{id}`, a route of our own: what was decided about an item and why, with its jobs.

use crate::Api;
use crate::board;
use crate::detail::Detail;
use crate::load::{self, Found};
use crate::reply::{self, Refusal};
use crate::status::Scene;
use crate::waits;
use bytes::Bytes;
use http::Response;
use serde_json::{Value, json};
use sluice_model::{ItemId, TenantName};

/// Answers for an item in its queue and for one that left.
pub(crate) async fn one(
    api: &Api,
    tenant: &TenantName,
    id: &str,
) -> Result<Response<Bytes>, Refusal> {
    let missing = || Refusal::missing(format!("There is no item {id} in the tenant {tenant}."));
    let id_wanted = ItemId::from(id);
    let found = load::item(&api.ports, tenant, &id_wanted).await?.ok_or_else(missing)?;
    let durations = api.estimates.of(&api.ports, tenant).await?;
    let open = match &found {
        Found::Queued(loaded, _) => {
            waits::open(loaded.items.get(&id_wanted).map(|(_, item)| &**item).into_iter())
        }
        Found::Left(_) => Vec::new(),
    };
    let waits = waits::read(&api.ports, &open).await?;
    let now = api.ports.clock.now();
    let scene = Scene {
        tenant,
        web_root: &api.web_root,
        durations: &durations,
        waits: &waits,
        now,
        detail: Detail::Whole,
    };
    let mut body = match &found {
        Found::Queued(loaded, queue) => {
            let head = loaded.head.as_ref().ok_or_else(missing)?;
            let (_, item) = loaded.items.get(&id_wanted).ok_or_else(missing)?;
            let position = head.position(&id_wanted);
            let slot = position.and_then(|position| head.slots.get(position));
            let mut body = board::item(&scene, item, slot);
            put(&mut body, "pipeline", json!(queue.pipeline));
            put(&mut body, "queue", json!(queue.queue));
            put(&mut body, "position", json!(position));
            put(&mut body, "frozen", json!(head.frozen));
            put(&mut body, "end", Value::Null);
            body
        }
        Found::Left(buildset) => {
            let mut body = board::item(&scene, &buildset.item, None);
            put(&mut body, "pipeline", json!(buildset.queue.pipeline));
            put(&mut body, "queue", json!(buildset.queue.queue));
            put(&mut body, "position", Value::Null);
            put(&mut body, "frozen", Value::Null);
            let end =
                json!({"result": buildset.result, "why": buildset.why, "at": buildset.ended_at});
            put(&mut body, "end", end);
            body
        }
    };
    put(&mut body, "tenant", json!(tenant));
    Ok(reply::json(&body))
}

fn put(body: &mut Value, name: &str, value: Value) {
    if let Some(map) = body.as_object_mut() {
        map.insert(name.to_owned(), value);
    }
}
