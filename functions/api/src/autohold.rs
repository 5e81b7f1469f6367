//! `T/autohold`, `T/project/{p}/autohold`, `T/autohold/{id}`: operators' requests to keep nodes of
//! failed builds, as zuul-client and the dashboard read them. They are made and deleted with
//! `sluice autohold`: this API only reads.

use crate::Api;
use crate::load::{self, readable};
use crate::reply::{self, Refusal};
use bytes::Bytes;
use http::Response;
use serde_json::{Value, json};
use sluice_gate::autohold::Autohold;
use sluice_model::{BuildId, ProjectName, TenantName, Timestamp};
use sluice_records::autohold::{LISTED_MAX, partition};
use sluice_runtime::Ports;
use sluice_runtime::record::Query;
use std::collections::BTreeSet;

/// The requests of a tenant; those of one project where it is named, by its whole name or its end.
pub(crate) async fn list(
    api: &Api,
    tenant: &TenantName,
    project: Option<&str>,
) -> Result<Response<Bytes>, Refusal> {
    load::known(&api.ports, tenant).await?;
    let now = api.ports.clock.now();
    let known = of_tenant(&api.ports, tenant).await?;
    let project = project.filter(|name| !name.is_empty());
    let is_meant =
        |request: &Autohold| project.is_none_or(|project| is_named(&request.project, project));
    let list = known.iter().filter(|request| is_meant(request));
    Ok(reply::json(&Value::Array(list.map(|request| shown(request, now)).collect())))
}

/// Returns whether a project is meant by a name: whole, or from where a part of it begins.
fn is_named(project: &ProjectName, name: &str) -> bool {
    let before = project.as_str().strip_suffix(name);
    before.is_some_and(|before| before.is_empty() || before.ends_with('/'))
}

/// One request.
pub(crate) async fn one(
    api: &Api,
    tenant: &TenantName,
    id: &str,
) -> Result<Response<Bytes>, Refusal> {
    load::known(&api.ports, tenant).await?;
    let known = of_tenant(&api.ports, tenant).await?;
    let found = known.iter().find(|request| request.id == id);
    let request = found.ok_or_else(|| {
        Refusal::missing(format!("There is no autohold request {id} in {tenant}."))
    })?;
    Ok(reply::json(&shown(request, api.ports.clock.now())))
}

/// Returns the builds whose nodes requests of a tenant have kept. Of a request that was deleted, or
/// is forgotten, nobody knows them.
pub(crate) async fn held(ports: &Ports, tenant: &TenantName) -> Result<BTreeSet<BuildId>, Refusal> {
    let known = of_tenant(ports, tenant).await?;
    Ok(known.into_iter().flat_map(|request| request.held).map(|held| held.build).collect())
}

/// Reads the requests of a tenant in the order they were made. One bad record hides no other.
async fn of_tenant(ports: &Ports, tenant: &TenantName) -> Result<Vec<Autohold>, Refusal> {
    let records = ports.records.query(&Query::prefix(partition(tenant), "", LISTED_MAX)).await?;
    Ok(records.iter().filter_map(readable).collect())
}

fn shown(request: &Autohold, now: Timestamp) -> Value {
    let nodes = request.held.iter().map(|held| json!({"build": held.build, "nodes": held.nodes}));
    json!({
        "id": request.id,
        "tenant": request.tenant,
        "project": request.project,
        "job": request.job,
        "ref_filter": request.ref_filter,
        "max_count": request.max_count,
        "current_count": request.current_count(),
        "reason": request.reason,
        "node_expiration": request.node_expiration_seconds,
        "expired": request.expired_at(now).map(|at| at.0 as f64 / 1_000.0),
        "nodes": nodes.collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Z9.1: the end of another project's name is not its name.
    #[test]
    fn a_project_is_named_by_whole_parts_of_its_name() {
        let project = ProjectName::new("github.com", "org/app");
        for (name, is_meant) in [
            ("github.com/org/app", true),
            ("org/app", true),
            ("app", true),
            ("pp", false),
            ("rg/app", false),
            ("", false),
            ("org/app/", false),
        ] {
            assert_eq!(is_named(&project, name), is_meant, "{name}");
        }
    }
}
