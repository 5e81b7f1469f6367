//! Routes outside tenants: system information, tenants, components, connections.

use crate::Api;
use crate::load;
use crate::reply::{self, ErrorResponse};
use bytes::Bytes;
use http::Response;
use serde_json::{Map, Value, json};
use sluice_model::TenantName;
use sluice_records::connection;
use sluice_records::session::{self, Session};

/// The partition of the index that lists executors' sessions.
const SESSIONS: &str = "sessions";
/// The maximum number of executors listed.
const SESSIONS_MAX: usize = 200;

/// Answers `/api` with the index of all routes.
pub(crate) fn routes() -> Response<Bytes> {
    let tenant = "/api/tenant/{tenant}";
    let of_tenant = [
        ("tenant_info", "info"),
        ("status", "status"),
        ("status_change", "status/change/{change}"),
        ("tenant_status", "tenant-status"),
        ("config_errors", "config-errors"),
        ("projects", "projects"),
        ("project", "project/{project:.*}"),
        ("pipelines", "pipelines"),
        ("jobs", "jobs"),
        ("job", "job/{job_name}"),
        (
            "project_freeze_jobs",
            "pipeline/{pipeline}/project/{project:.*}/branch/{branch:.*}/freeze-jobs",
        ),
        (
            "project_freeze_job",
            "pipeline/{pipeline}/project/{project:.*}/branch/{branch:.*}/freeze-job/{job}",
        ),
        ("project_freeze_pipeline", "project/{project:.*}/freeze-pipeline"),
        ("key", "key/{project:.*}.pub"),
        ("labels", "labels"),
        ("nodes", "nodes"),
        ("nodeset_requests", "nodeset-requests"),
        ("builds", "builds"),
        ("build", "build/{uuid}"),
        ("build_log", "build/{uuid}/log"),
        ("build_times", "build-times"),
        ("buildsets", "buildsets"),
        ("buildset", "buildset/{uuid}"),
        ("badge", "badge"),
        ("autohold_list", "autohold"),
        ("semaphores", "semaphores"),
        ("images", "images"),
        ("flavors", "flavors"),
        ("providers", "providers"),
        ("system_events", "system-events"),
        ("board", "board"),
        ("item", "item/{item}"),
        ("ledger", "ledger"),
        ("why", "why"),
    ];
    let mut map = Map::new();
    for name in ["info", "connections", "components", "tenants"] {
        map.insert(name.to_owned(), json!(format!("/api/{name}")));
    }
    map.extend(
        of_tenant.map(|(name, route)| (name.to_owned(), json!(format!("{tenant}/{route}")))),
    );
    reply::json(&Value::Object(map))
}

/// Answers `/api/info` and `T/info` with what the system can do; as in Zuul, the latter also
/// answers for unknown tenants.
pub(crate) fn info(api: &Api, tenant: Option<&TenantName>) -> Response<Bytes> {
    let mut info = json!({
        "capabilities": {
            "job_history": true,
            "auth": {"realms": {}, "default_realm": null, "read_protected": false, "auth_log_file_requests": false},
        },
        "websocket_url": null,
        "stats": {"prefix": null, "type": "graphite", "url": null},
    });
    if let (Some(tenant), Some(map)) = (tenant, info.as_object_mut()) {
        map.insert("tenant".into(), json!(tenant));
    }
    reply::cacheable_json(&json!({"info": info}), 3_600, api.started_at)
}

/// Answers `/api/tenants` with the names of all tenants.
pub(crate) async fn tenants(api: &Api) -> Result<Response<Bytes>, ErrorResponse> {
    let names = load::tenants(&api.ports).await?;
    let list = names.iter().map(|name| json!({"name": name})).collect();
    Ok(reply::cacheable_json(&Value::Array(list), 1, api.ports.clock.now()))
}

/// Answers `/api/components` with the executors, running or stopped lately; everything else is
/// functions, which run on demand. An executor with an unreadable session is shown by its session
/// id.
pub(crate) async fn components(api: &Api) -> Result<Response<Bytes>, ErrorResponse> {
    let keys = api.ports.records.find(SESSIONS, None, SESSIONS_MAX).await?;
    let now = api.ports.clock.now();
    let mut executors = Vec::new();
    for record in load::read_many(&api.ports, &keys).await?.into_iter().flatten() {
        let (hostname, state) = match load::readable::<Session>(&record) {
            Some(session) => {
                (session.hostname, if session.alive_until >= now { "running" } else { "stopped" })
            }
            None => (session::id_of(&record.key).to_owned(), "unreadable"),
        };
        executors.push(
            json!({"hostname": hostname, "state": state, "version": env!("CARGO_PKG_VERSION")}),
        );
    }
    let web =
        json!([{"hostname": "api", "state": "running", "version": env!("CARGO_PKG_VERSION")}]);
    let mut body = json!({"web": web});
    if let Some(map) = body.as_object_mut().filter(|_| !executors.is_empty()) {
        map.insert("executor".into(), Value::Array(executors));
    }
    Ok(reply::json(&body))
}

/// Answers `/api/connections` with all connections, without secrets and logins (Z5.4).
pub(crate) async fn connections(api: &Api) -> Result<Response<Bytes>, ErrorResponse> {
    let file = connection::load_if_stored(&api.ports).await?.unwrap_or_default();
    let list = file.0.iter().map(|(name, connection)| {
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
