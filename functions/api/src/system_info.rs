//! Routes outside tenants: system information, tenants, components, connections.

use crate::Api;
use crate::access::Visibility;
use crate::authentication::Caller;
use crate::load;
use crate::reply::{self, ErrorResponse};
use bytes::Bytes;
use http::Response;
use serde_json::{Map, Value, json};
use sluice_auth::{Authenticator, AuthenticatorDriver, LoadUserInfo};
use sluice_model::TenantName;
use sluice_records::connection;
use sluice_records::session::{self, ENDED_SESSIONS, OPEN_SESSIONS, Session, SessionState};

/// The maximum number of executors listed that run, and of those that have stopped.
const SESSIONS_MAX: usize = 200;

/// Answers `/api/info` and `T/info` with what the system can do and how to log in; as in Zuul, the
/// latter also answers for unknown tenants. A tenant that the caller may not read seems unknown:
/// its own realm is not shown.
pub(crate) async fn info(
    api: &Api,
    tenant: Option<&TenantName>,
    caller: &Caller,
) -> Result<Response<Bytes>, ErrorResponse> {
    let known = api.authentication.known(&api.ports).await?;
    let visibility = Visibility::read(api, caller).await?;
    let realms: Map<String, Value> =
        known.settings().map(|one| (one.realm.clone(), realm(one))).collect();
    let own_realm = visibility.realm(tenant).filter(|realm| realms.contains_key(*realm));
    let is_protected = visibility.is_read_protected(tenant);
    let mut info = json!({
        "capabilities": {
            "job_history": true,
            "auth": {
                "realms": realms,
                "default_realm": own_realm.or(known.default_realm()),
                "read_protected": is_protected,
                // Logs come from this address, so the pages may send it the token.
                "auth_log_file_requests": visibility.protects_anything(),
            },
        },
        "websocket_url": null,
        "stats": {"prefix": null, "type": "graphite", "url": null},
    });
    if let (Some(tenant), Some(map)) = (tenant, info.as_object_mut()) {
        map.insert("tenant".into(), json!(tenant));
    }
    let mut response = reply::cacheable_json(&json!({"info": info}), 3_600, api.started_at);
    if own_realm.is_some() && is_protected {
        reply::make_private(&mut response);
    }
    Ok(response)
}

/// Returns what clients need to log in with an authenticator.
fn realm(authenticator: &Authenticator) -> Value {
    let mut realm = json!({
        "authority": authenticator.authority(),
        "client_id": authenticator.client_id,
        "type": "JWT",
        "driver": authenticator.driver_name(),
    });
    if let AuthenticatorDriver::OpenIDConnect { scope, load_user_info, .. } = &authenticator.driver
    {
        realm["scope"] = json!(scope);
        realm["load_user_info"] = json!(*load_user_info == LoadUserInfo::Yes);
    }
    realm
}

/// Answers `/api/tenants` with the names of all tenants that the caller may read.
pub(crate) async fn tenants(api: &Api, caller: &Caller) -> Result<Response<Bytes>, ErrorResponse> {
    let visibility = Visibility::read(api, caller).await?;
    let mut list = Vec::new();
    for name in load::tenants(&api.ports).await? {
        if visibility.is_visible(api, &name).await? {
            list.push(json!({"name": name}));
        }
    }
    Ok(reply::cacheable_json(&Value::Array(list), 1, api.ports.clock.now()))
}

/// Answers `/api/components` with the executors, running, draining or stopped lately; everything
/// else is functions, which run on demand. An executor with an unreadable session is shown by its
/// session id.
pub(crate) async fn components(api: &Api) -> Result<Response<Bytes>, ErrorResponse> {
    let mut keys = api.ports.records.find(OPEN_SESSIONS, None, SESSIONS_MAX).await?;
    keys.extend(api.ports.records.find(ENDED_SESSIONS, None, SESSIONS_MAX).await?);
    let now = api.ports.clock.now();
    let mut executors = Vec::new();
    for record in load::read_many(&api.ports, &keys).await?.into_iter().flatten() {
        let (hostname, state, zone) = match load::readable::<Session>(&record) {
            Some(session) => {
                let state = match session.state {
                    SessionState::Ended { .. } => "stopped",
                    _ if session.alive_until < now => "stopped",
                    SessionState::Draining => "draining",
                    SessionState::Running => "running",
                };
                (session.hostname, state, session.zone)
            }
            None => (session::id_of(&record.key).to_owned(), "unreadable", None),
        };
        let mut executor =
            json!({"hostname": hostname, "state": state, "version": env!("CARGO_PKG_VERSION")});
        if let Some(zone) = zone {
            executor["zone"] = json!(zone);
        }
        executors.push(executor);
    }
    let web =
        json!([{"hostname": "api", "state": "running", "version": env!("CARGO_PKG_VERSION")}]);
    let mut body = json!({"web": web});
    if let Some(map) = body.as_object_mut().filter(|_| !executors.is_empty()) {
        map.insert("executor".into(), Value::Array(executors));
    }
    Ok(reply::json(&body))
}

/// Answers `/api/connections` with the connections, without secrets and logins (Z5.4), and without
/// those that only tenants use which the caller may not read.
pub(crate) async fn connections(
    api: &Api,
    caller: &Caller,
) -> Result<Response<Bytes>, ErrorResponse> {
    let visibility = Visibility::read(api, caller).await?;
    let file = connection::load_if_stored(&api.ports).await?.unwrap_or_default();
    let visible = file.0.iter().filter(|(name, _)| visibility.is_connection_visible(name.as_str()));
    let list = visible.map(|(name, connection)| {
        json!({
            "name": name,
            "driver": connection.driver,
            "baseurl": connection.git_url,
            "canonical_hostname": connection.canonical_hostname,
            "server": connection.canonical_hostname,
        })
    });
    Ok(reply::json(&Value::Array(list.collect())))
}
