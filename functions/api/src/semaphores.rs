//! `T/semaphores`: the semaphores that a tenant may use, and their holders.

use crate::Api;
use crate::load;
use crate::reply::{self, ErrorResponse};
use bytes::Bytes;
use http::Response;
use serde_json::{Value, json};
use sluice_gate::{Semaphore, SemaphoreKey};
use sluice_model::TenantName;
use sluice_records::codec::decode;
use sluice_records::semaphore;
use sluice_runtime::record::Key;
use std::collections::BTreeSet;

/// The maximum number of keys in one read of the table.
const KEYS_AT_ONCE: usize = 100;

/// Answers `T/semaphores` with the semaphores of a tenant, global ones too, and their holders.
/// Holders of other tenants are only counted. An unreadable record makes the whole answer an error.
pub(crate) async fn all(api: &Api, tenant: &TenantName) -> Result<Response<Bytes>, ErrorResponse> {
    let live = load::live(api, tenant).await?;
    let names: BTreeSet<&str> = live.layout.semaphore_names().collect();
    let semaphores: Vec<(SemaphoreKey, u32)> = names
        .into_iter()
        .map(|name| {
            let (is_global, max) = live.layout.semaphore(name);
            (
                SemaphoreKey {
                    tenant: (!is_global).then(|| tenant.clone()),
                    name: name.to_owned(),
                },
                max,
            )
        })
        .collect();
    let keys: Vec<Key> = semaphores.iter().map(|(key, _)| semaphore::key(key)).collect();
    let mut records = Vec::new();
    for page in keys.chunks(KEYS_AT_ONCE) {
        records.extend(api.ports.records.get(page).await?);
    }
    let mut list = Vec::new();
    for ((key, max), record) in semaphores.into_iter().zip(records) {
        let found = match record {
            Some(record) => decode(&record)?,
            None => Semaphore::new(key),
        };
        list.push(to_json(&found, max, tenant));
    }
    Ok(reply::json(&Value::Array(list)))
}

/// Returns a semaphore in the shape that Zuul's API has. `max` is its maximum in the live layout.
/// Holders of other tenants than `tenant` are only counted.
fn to_json(semaphore: &Semaphore, max: u32, tenant: &TenantName) -> Value {
    let of_tenant = semaphore.holders.iter().filter(|holder| holder.queue.tenant == *tenant);
    let this_tenant: Vec<Value> = of_tenant
        .map(|holder| json!({"buildset_uuid": holder.item, "job_name": holder.job}))
        .collect();
    json!({
        "name": semaphore.key.name,
        "global": semaphore.key.tenant.is_none(),
        "max": max,
        "holders": {
            "count": semaphore.holders.len(),
            "other_tenants": semaphore.holders.len() - this_tenant.len(),
            "this_tenant": this_tenant,
        },
    })
}
