//! Maps paths to handlers. Names of projects and branches may contain slashes: they end at the next
//! known path part.

use crate::authentication::Caller;
use crate::freeze::{self, FreezeQuery};
use crate::reply::{self, ErrorResponse};
use crate::request::ApiRequest;
use crate::token_keys::{self, TokenDocument};
use crate::{
    Api, authorizations, builds, buildsets, configuration, explain, item, keys, load, logs,
    openapi, page, pool, semaphores, status, status_board, system_events, system_info, writes,
};
use bytes::Bytes;
use http::Response;
use serde_json::json;
use sluice_model::TenantName;

/// Returns whether a request is for the information by which clients log in. It is answered to
/// everyone.
pub(crate) fn is_information(request: &ApiRequest) -> bool {
    let parts: Vec<&str> = request.parts.iter().map(String::as_str).collect();
    matches!(parts.as_slice(), ["api", "info"] | ["api", "tenant", _, "info"])
}

/// Answers a request by its path: pages, logs, and the API below `/api`. A parameter that the table
/// of routes does not name is 404 there. An unknown path is 404: an
/// error below `/api`, elsewhere a page for a client that accepts HTML, which is no error here.
pub(crate) async fn answer(
    api: &Api,
    request: &ApiRequest,
    caller: &Caller,
) -> Result<Response<Bytes>, ErrorResponse> {
    let parts: Vec<&str> = request.parts.iter().map(String::as_str).collect();
    if let Some(document) = TokenDocument::at(&parts) {
        request.allow_parameters(&[])?;
        return token_keys::answer(api, document).await;
    }
    if let (Some(&"api"), Some(allowed)) = (parts.first(), openapi::query_parameters(&parts)) {
        request.allow_parameters(&allowed)?;
    }
    match parts.as_slice() {
        []
        | ["t", _]
        | ["t", _, "status" | "builds" | "configuration"]
        | ["t", _, "build" | "buildset", _] => Ok(page::page()),
        // Paths of Zuul's own pages; the page's script maps them to the nearest view.
        ["t", _, "stream", _]
        | ["t", _, "buildsets" | "projects" | "jobs" | "config-errors"]
        | ["t", _, "project" | "job", _, ..]
        | ["t", _, "status", "change" | "pipeline", _, ..] => Ok(page::page()),
        ["favicon.ico" | "favicon.svg"] => Ok(page::icon()),
        ["logs", tenant, build, path @ ..] => {
            logs::file(api, &TenantName::from(*tenant), build, path, request).await
        }
        ["api"] => without_parameters(request, openapi::list()),
        ["api", "openapi.json"] | ["openapi.yaml"] => {
            without_parameters(request, openapi::answer())
        }
        ["api", "info"] => system_info::info(api, None, caller).await,
        ["api", "tenant", name, "info"] => {
            system_info::info(api, Some(&TenantName::from(*name)), caller).await
        }
        ["api", rest @ ..] => api_route(api, rest, request, caller).await,
        _ if request.accepts_html => Ok(page::not_found()),
        _ => Err(ErrorResponse::missing(format!("There is nothing at /{}.", parts.join("/")))),
    }
}

/// Returns a response, or an error with status 404 if the request has parameters.
fn without_parameters(
    request: &ApiRequest,
    response: Response<Bytes>,
) -> Result<Response<Bytes>, ErrorResponse> {
    request.allow_parameters(&[])?;
    Ok(response)
}

/// Answers a request by its path below `/api`; an unknown path is 404.
async fn api_route(
    api: &Api,
    rest: &[&str],
    request: &ApiRequest,
    caller: &Caller,
) -> Result<Response<Bytes>, ErrorResponse> {
    match rest {
        ["authorizations"] => authorizations::of_root(api, caller).await,
        ["tenant", name, "authorizations"] => {
            authorizations::of_tenant(api, &TenantName::from(*name), caller).await
        }
        ["tenant", name, rest @ ..] => {
            tenant_route(api, &TenantName::from(*name), rest, request).await
        }
        ["tenants"] => system_info::tenants(api, caller).await,
        ["components"] => system_info::components(api).await,
        ["connections"] => system_info::connections(api, caller).await,
        _ => Err(ErrorResponse::missing(format!("There is nothing at /api/{}.", rest.join("/")))),
    }
}

/// Answers a request by its path below `/api/tenant/{tenant}`. An unknown path, tenant or parameter
/// is 404; a path that is only written is 405. A path that needs the live layout is 422 for
/// a tenant that was never loaded.
async fn tenant_route(
    api: &Api,
    tenant: &TenantName,
    rest: &[&str],
    request: &ApiRequest,
) -> Result<Response<Bytes>, ErrorResponse> {
    if let Some(methods) = openapi::write_only_methods(&request.parts) {
        return Err(writes::not_read(api, tenant, methods).await);
    }
    match rest {
        ["builds"] => in_existing_tenant(api, tenant, builds::list(api, tenant, request)).await,
        ["buildsets"] => {
            in_existing_tenant(api, tenant, buildsets::list(api, tenant, request)).await
        }
        ["build-times"] => {
            in_existing_tenant(api, tenant, builds::times(api, tenant, request)).await
        }
        ["badge"] => in_existing_tenant(api, tenant, buildsets::badge(api, tenant, request)).await,
        ["config-errors"] => configuration::errors(api, tenant, request).await,
        ["why"] => crate::pipeline_reasons::answer(api, tenant, request).await,
        ["build", uuid, "log"] => logs::follow(api, tenant, uuid, request).await,
        ["autohold"] => crate::autohold::list(api, tenant, request.parameter("project")).await,
        ["system-events"] => system_events::list(api, tenant, request).await,
        ["board"] => status_board::board(api, tenant, request).await,
        ["status"] => status::status(api, tenant).await,
        ["status", "change", id @ ..] if !id.is_empty() => {
            status::change(api, tenant, &id.join("/")).await
        }
        ["item", id] => item::get(api, tenant, id).await,
        ["item", id, "explain", name @ ..] if !name.is_empty() => {
            explain::job(api, tenant, id, &name.join("/")).await
        }
        ["ledger"] => crate::unaccounted::ledger(api, tenant).await,
        ["tenant-status"] => configuration::tenant_status(api, tenant).await,
        ["pipelines"] => configuration::pipelines(api, tenant).await,
        ["projects"] => configuration::projects(api, tenant).await,
        ["autohold", id] => crate::autohold::get(api, tenant, id).await,
        ["project", name @ .., "autohold"] if !name.is_empty() => {
            crate::autohold::list(api, tenant, Some(&name.join("/"))).await
        }
        ["project", name @ .., "freeze-pipeline"] if !name.is_empty() => {
            freeze::pipeline(
                api,
                tenant,
                &name.join("/"),
                request.body.as_deref().unwrap_or_default(),
            )
            .await
        }
        ["console-stream"] => no_websocket(api, tenant).await,
        ["project", name @ ..] if !name.is_empty() => {
            configuration::project(api, tenant, &name.join("/")).await
        }
        ["jobs"] => configuration::jobs(api, tenant).await,
        ["job", name @ ..] if !name.is_empty() => {
            configuration::job(api, tenant, &name.join("/")).await
        }
        ["pipeline", pipeline, "project", rest @ ..] => {
            freeze_route(api, tenant, pipeline, rest).await
        }
        ["key", name @ ..] if !name.is_empty() => {
            keys::public(api, tenant, &name.join("/"), request).await
        }
        ["project-ssh-key", name @ ..] if !name.is_empty() => {
            keys::ssh_of_project(api, tenant, &name.join("/"), request).await
        }
        ["tenant-ssh-key", "ssh.pub"] => keys::ssh_of_tenant(api, tenant, request).await,
        ["labels"] => pool::labels(api, tenant).await,
        ["nodes"] => pool::nodes(api, tenant).await,
        ["nodeset-requests"] => pool::requests(api, tenant).await,
        ["build", uuid] => builds::get(api, tenant, uuid).await,
        ["buildset", uuid] => buildsets::get(api, tenant, uuid).await,
        ["semaphores"] => semaphores::all(api, tenant).await,
        // These are not supported yet, so the lists are empty.
        ["images" | "flavors" | "providers"] => empty_list(api, tenant).await,
        _ => {
            load::require_tenant(&api.ports, tenant).await?;
            let path = request.parts.join("/");
            Err(ErrorResponse::missing(format!(
                "There is nothing at /{path}: /api lists the paths."
            )))
        }
    }
}

/// Answers with status 404 if the tenant does not exist, otherwise with `answer`.
async fn in_existing_tenant(
    api: &Api,
    tenant: &TenantName,
    answer: impl Future<Output = Result<Response<Bytes>, ErrorResponse>>,
) -> Result<Response<Bytes>, ErrorResponse> {
    load::require_tenant(&api.ports, tenant).await?;
    answer.await
}

/// Returns the error for Zuul's route for streaming logs over a WebSocket: status 404 with an
/// explanation, or that the tenant does not exist. Never succeeds; another error if the store does
/// not answer or a tenant's record is unreadable. Logs are read piece by piece instead.
async fn no_websocket(api: &Api, tenant: &TenantName) -> Result<Response<Bytes>, ErrorResponse> {
    load::require_tenant(&api.ports, tenant).await?;
    let log = format!("/api/tenant/{tenant}/build/UUID/log");
    Err(ErrorResponse::missing(format!(
        "There is no WebSocket: read a build's log, while it grows, at {log}?offset=N."
    )))
}

/// Answers with an empty list if the tenant exists, otherwise with status 404.
async fn empty_list(api: &Api, tenant: &TenantName) -> Result<Response<Bytes>, ErrorResponse> {
    load::require_tenant(&api.ports, tenant).await?;
    Ok(reply::json(&json!([])))
}

/// Answers `<project>/branch/<branch>/freeze-jobs` and `…/freeze-job/<job>`; any other path is 404.
/// A project's name may contain the part `branch`: the longest name of an existing project is used.
async fn freeze_route(
    api: &Api,
    tenant: &TenantName,
    pipeline: &str,
    rest: &[&str],
) -> Result<Response<Bytes>, ErrorResponse> {
    let (path, job) = match rest {
        [path @ .., "freeze-jobs"] => (path, None),
        [path @ .., "freeze-job", job] => (path, Some(*job)),
        _ => {
            return Err(ErrorResponse::missing("There is nothing at this path."));
        }
    };
    let words = path.iter().enumerate().filter(|(_, word)| **word == "branch").map(|(at, _)| at);
    let readings: Vec<(String, String)> = words
        .filter_map(|at| Some((path.get(..at)?.join("/"), path.get(at + 1..)?.join("/"))))
        .filter(|(project, branch)| !project.is_empty() && !branch.is_empty())
        .collect();
    let live = load::live(api, tenant).await?;
    let chosen = readings
        .iter()
        .rev()
        .find(|(project, _)| live.layout.project(project).is_some())
        .or(readings.last());
    let (project, branch) = chosen
        .ok_or_else(|| ErrorResponse::missing("The path must contain a project and a branch."))?;
    let query = FreezeQuery { pipeline, project, branch };
    match job {
        None => freeze::jobs(api, tenant, &query).await,
        Some(job) => freeze::job(api, tenant, &query, job).await,
    }
}
