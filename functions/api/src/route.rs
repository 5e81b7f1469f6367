//! Which path is answered by what. Names of projects and branches hold slashes, so they reach as
//! far as the known word behind them.

use crate::asked::Asked;
use crate::freeze::{self, Wanted};
use crate::reply::{self, Refusal};
use crate::{
    Api, board, builds, buildsets, configuration, events, explain, item, keys, load, logs, page,
    pool, semaphores, status, system,
};
use bytes::Bytes;
use http::Response;
use serde_json::json;
use sluice_model::TenantName;

/// Answers a request to read something.
pub(crate) async fn answer(api: &Api, asked: &Asked) -> Result<Response<Bytes>, Refusal> {
    let parts: Vec<&str> = asked.parts.iter().map(String::as_str).collect();
    match parts.as_slice() {
        []
        | ["t", _]
        | ["t", _, "status" | "builds" | "configuration"]
        | ["t", _, "build" | "buildset", _] => Ok(page::page()),
        // Where links to Zuul's own pages lead, as far as there is something like them; the page
        // knows them, too.
        ["t", _, "stream", _]
        | ["t", _, "buildsets" | "projects" | "jobs" | "config-errors"]
        | ["t", _, "project" | "job", _, ..]
        | ["t", _, "status", "change" | "pipeline", _, ..] => Ok(page::page()),
        ["favicon.ico" | "favicon.svg"] => Ok(page::icon()),
        ["logs", build, path @ ..] => logs::file(api, build, path, asked).await,
        ["api"] => alone(asked, system::routes()),
        ["api", "info"] => alone(asked, system::info(api, None)),
        ["api", "tenant", name, "info"] => {
            alone(asked, system::info(api, Some(&TenantName::from(*name))))
        }
        ["api", rest @ ..] => of_api(api, rest, asked).await,
        _ if asked.by_browser => Ok(page::nowhere()),
        _ => Err(Refusal::missing(format!("There is nothing at /{}.", parts.join("/")))),
    }
}

fn alone(asked: &Asked, response: Response<Bytes>) -> Result<Response<Bytes>, Refusal> {
    asked.only(&[])?;
    Ok(response)
}

async fn of_api(api: &Api, rest: &[&str], asked: &Asked) -> Result<Response<Bytes>, Refusal> {
    match rest {
        ["tenant", name, rest @ ..] => of_tenant(api, &TenantName::from(*name), rest, asked).await,
        ["tenants" | "components" | "connections"] => {
            asked.only(&[])?;
            match rest {
                ["tenants"] => system::tenants(api).await,
                ["components"] => system::components(api).await,
                _ => system::connections(api).await,
            }
        }
        _ => Err(Refusal::missing(format!("There is nothing at /api/{}.", rest.join("/")))),
    }
}

async fn of_tenant(
    api: &Api,
    tenant: &TenantName,
    rest: &[&str],
    asked: &Asked,
) -> Result<Response<Bytes>, Refusal> {
    match rest {
        // These read parameters of their own.
        ["builds"] => return existing(api, tenant, builds::list(api, tenant, asked)).await,
        ["buildsets"] => return existing(api, tenant, buildsets::list(api, tenant, asked)).await,
        ["build-times"] => return existing(api, tenant, builds::times(api, tenant, asked)).await,
        ["badge"] => return existing(api, tenant, buildsets::badge(api, tenant, asked)).await,
        ["config-errors"] => return configuration::errors(api, tenant, asked).await,
        ["why"] => return crate::why::not_there(api, tenant, asked).await,
        ["build", uuid, "log"] => return logs::follow(api, tenant, uuid, asked).await,
        ["autohold"] => {
            asked.only(&["project"])?;
            return crate::autohold::list(api, tenant, asked.one("project")).await;
        }
        ["system-events"] => return events::list(api, tenant, asked).await,
        ["board"] => return board::board(api, tenant, asked).await,
        _ => asked.only(&[])?,
    }
    match rest {
        ["status"] => status::status(api, tenant).await,
        ["status", "change", id @ ..] if !id.is_empty() => {
            status::change(api, tenant, &id.join("/")).await
        }
        ["item", id] => item::one(api, tenant, id).await,
        ["item", id, "explain", name @ ..] if !name.is_empty() => {
            explain::job(api, tenant, id, &name.join("/")).await
        }
        ["ledger"] => crate::ledger::ledger(api, tenant).await,
        ["tenant-status"] => configuration::tenant_status(api, tenant).await,
        ["pipelines"] => configuration::pipelines(api, tenant).await,
        ["projects"] => configuration::projects(api, tenant).await,
        ["autohold", id] => crate::autohold::one(api, tenant, id).await,
        ["project", name @ .., "autohold"] if !name.is_empty() => {
            crate::autohold::list(api, tenant, Some(&name.join("/"))).await
        }
        ["project", name @ .., "freeze-pipeline"] if !name.is_empty() => {
            freeze::pipeline(
                api,
                tenant,
                &name.join("/"),
                asked.sent.as_deref().unwrap_or_default(),
            )
            .await
        }
        ["project", _, .., "enqueue" | "dequeue"] => Err(Refusal::Method),
        ["console-stream"] => no_socket(api, tenant).await,
        ["project", name @ ..] if !name.is_empty() => {
            configuration::project(api, tenant, &name.join("/")).await
        }
        ["jobs"] => configuration::jobs(api, tenant).await,
        ["job", name @ ..] if !name.is_empty() => {
            configuration::job(api, tenant, &name.join("/")).await
        }
        ["pipeline", pipeline, "project", rest @ ..] => frozen(api, tenant, pipeline, rest).await,
        ["key", name @ ..] if !name.is_empty() => keys::public(api, tenant, &name.join("/")).await,
        ["project-ssh-key" | "tenant-ssh-key", ..] => keys::no_ssh(api, tenant).await,
        ["labels"] => pool::labels(api, tenant).await,
        ["nodes"] => pool::nodes(api, tenant).await,
        ["nodeset-requests"] => pool::requests(api, tenant).await,
        ["build", uuid] => builds::one(api, tenant, uuid).await,
        ["buildset", uuid] => buildsets::one(api, tenant, uuid).await,
        ["semaphores"] => semaphores::all(api, tenant).await,
        // Nothing of these is kept yet, so there is none of them.
        ["images" | "flavors" | "providers"] => nothing(api, tenant).await,
        ["promote"] => Err(Refusal::Method),
        _ => {
            load::known(&api.ports, tenant).await?;
            Err(Refusal::missing(format!(
                "There is nothing at /api/tenant/{tenant}/{}.",
                rest.join("/")
            )))
        }
    }
}

/// Answers only for a tenant that exists.
async fn existing(
    api: &Api,
    tenant: &TenantName,
    answer: impl Future<Output = Result<Response<Bytes>, Refusal>>,
) -> Result<Response<Bytes>, Refusal> {
    load::known(&api.ports, tenant).await?;
    answer.await
}

/// What comes over the dashboard's WebSocket is read piece by piece here.
async fn no_socket(api: &Api, tenant: &TenantName) -> Result<Response<Bytes>, Refusal> {
    load::known(&api.ports, tenant).await?;
    let log = format!("/api/tenant/{tenant}/build/UUID/log");
    Err(Refusal::missing(format!(
        "There is no WebSocket here: a build's log, as it grows, is at {log}?offset=N."
    )))
}

async fn nothing(api: &Api, tenant: &TenantName) -> Result<Response<Bytes>, Refusal> {
    load::known(&api.ports, tenant).await?;
    Ok(reply::json(&json!([])))
}

/// `<project>/branch/<branch>/freeze-jobs` and `…/freeze-job/<job>`. A project may hold the word
/// `branch` in its name: the first reading whose project exists counts, the longest name of a
/// project first.
async fn frozen(
    api: &Api,
    tenant: &TenantName,
    pipeline: &str,
    rest: &[&str],
) -> Result<Response<Bytes>, Refusal> {
    let (path, job) = match rest {
        [path @ .., "freeze-jobs"] => (path, None),
        [path @ .., "freeze-job", job] => (path, Some(*job)),
        _ => {
            return Err(Refusal::missing("There is nothing at this path of a pipeline."));
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
    let (project, branch) =
        chosen.ok_or_else(|| Refusal::missing("A project and a branch are needed in the path."))?;
    let wanted = Wanted { pipeline, project, branch };
    match job {
        None => freeze::jobs(api, tenant, &wanted).await,
        Some(job) => freeze::job(api, tenant, &wanted, job).await,
    }
}
