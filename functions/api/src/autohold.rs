//! `T/autohold`, `T/project/{p}/autohold`, `T/autohold/{id}`: autohold requests, as zuul-client and
//! the dashboard read them. [`crate::writes`] creates and deletes them.

use crate::Api;
use crate::load::{self, readable};
use crate::reply::{self, ErrorResponse};
use bytes::Bytes;
use http::Response;
use serde_json::{Value, json};
use sluice_gate::autohold::{Autohold, HeldNodes};
use sluice_model::{BuildId, NodeId, ProjectName, TenantName, Timestamp};
use sluice_pool::{NodeState, PoolNode};
use sluice_records::autohold::{LISTED_MAX, partition};
use sluice_records::provider::node_key;
use sluice_runtime::Ports;
use sluice_runtime::record::{Key, Query};
use std::collections::BTreeSet;

/// Answers with a tenant's autohold requests in creation order, at most [`LISTED_MAX`], without
/// unreadable ones; 404 if the tenant does not exist. Requests whose holds have ended are listed
/// until their records expire, some weeks later. A `project` that is given and not empty selects
/// the requests of every project that has this full name or ends in these parts (`one` also selects
/// `a/one` and `b/one`). If there is none, the list is empty.
pub(crate) async fn list(
    api: &Api,
    tenant: &TenantName,
    project: Option<&str>,
) -> Result<Response<Bytes>, ErrorResponse> {
    load::require_tenant(&api.ports, tenant).await?;
    let now = api.ports.clock.now();
    let requests = read_requests(&api.ports, tenant).await?;
    let project = project.filter(|name| !name.is_empty());
    let matches =
        |request: &Autohold| project.is_none_or(|project| matches_name(&request.project, project));
    let list = requests.iter().filter(|request| matches(request));
    Ok(reply::json(&Value::Array(list.map(|request| to_json(request, now)).collect())))
}

/// Returns whether a name is the full name of a project or its last parts.
fn matches_name(project: &ProjectName, name: &str) -> bool {
    let before = project.as_str().strip_suffix(name);
    before.is_some_and(|before| before.is_empty() || before.ends_with('/'))
}

/// Answers with one autohold request, also one whose holds have ended, and with how to log in on
/// the nodes that it holds now, as `held_nodes`. 404 if it or the tenant does
/// not exist, if its record is unreadable, or if it is not among the tenant's first [`LISTED_MAX`].
pub(crate) async fn get(
    api: &Api,
    tenant: &TenantName,
    id: &str,
) -> Result<Response<Bytes>, ErrorResponse> {
    load::require_tenant(&api.ports, tenant).await?;
    let requests = read_requests(&api.ports, tenant).await?;
    let found = requests.iter().find(|request| request.id == id);
    let request = found.ok_or_else(|| {
        ErrorResponse::missing(format!("There is no autohold request {id} in {tenant}."))
    })?;
    let mut body = to_json(request, api.ports.clock.now());
    let held: Vec<_> = request.held.iter().map(|held| (request, held)).collect();
    if let Some(members) = body.as_object_mut() {
        members.insert("held_nodes".into(), Value::Array(logins(&api.ports, &held).await?));
    }
    Ok(reply::json(&body))
}

/// Returns how to log in on the nodes of a build that are held now, as [`get`] shows them. Empty if
/// none are.
pub(crate) async fn logins_of(
    ports: &Ports,
    tenant: &TenantName,
    build: &BuildId,
) -> Result<Vec<Value>, ErrorResponse> {
    let requests = read_requests(ports, tenant).await?;
    let held =
        requests.iter().flat_map(|request| request.held.iter().map(move |held| (request, held)));
    let held: Vec<_> = held.filter(|(_, held)| held.build == *build).collect();
    logins(ports, &held).await
}

/// Returns how to log in on each of these nodes that is held now: its address, port and login name,
/// and the command. Nodes that are released, and those whose record cannot be read, are left out.
async fn logins(
    ports: &Ports,
    held: &[(&Autohold, &HeldNodes)],
) -> Result<Vec<Value>, ErrorResponse> {
    let all = held.iter().flat_map(|(request, held)| {
        held.nodes.iter().map(move |node: &NodeId| (*request, *held, node))
    });
    let all: Vec<_> = all.collect();
    let keys: Vec<Key> = all.iter().map(|(_, held, node)| node_key(&held.provider, node)).collect();
    let records = load::read_many(ports, &keys).await?;
    let shown = all.iter().zip(&records).filter_map(|((request, held, _), record)| {
        let node: PoolNode = readable(record.as_ref()?)?;
        let NodeState::Hold { host_keys, .. } = &node.state else { return None };
        let (address, port) = node.endpoint()?;
        let host_key = preferred(host_keys);
        Some(json!({
            "autohold": request.id,
            "build": held.build,
            "node": node.id,
            "provider": node.provider,
            "held_until": held.until.map(Timestamp::to_iso),
            "address": address,
            "port": port,
            "username": node.username,
            "ssh_key": request.ssh_key.as_deref().filter(|_| !node.is_static()),
            "ssh": ssh_command(&node.username, &address, port),
            "host_key": host_key,
            "known_hosts": host_key.map(|key| known_hosts_line(&address, port, key)),
        }))
    });
    Ok(shown.collect())
}

/// Returns the host key that clients prefer of those that a node showed; `None` without any.
fn preferred(host_keys: &[String]) -> Option<&str> {
    let ed25519 = host_keys.iter().find(|key| key.starts_with("ssh-ed25519 "));
    ed25519.or(host_keys.first()).map(String::as_str)
}

/// Returns the line of `known_hosts` by which the node is known.
fn known_hosts_line(address: &str, port: u16, host_key: &str) -> String {
    match port {
        22 => format!("{address} {host_key}"),
        port => format!("[{address}]:{port} {host_key}"),
    }
}

/// Returns the command that logs in on a node. The file of the private key is for the reader to
/// fill in: it is on the holder's own machine.
fn ssh_command(username: &str, address: &str, port: u16) -> String {
    format!("ssh -i PRIVATE_KEY_FILE {} -p {port}", quoted(&format!("{username}@{address}")))
}

/// Returns a text as one word of a shell.
fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "@._:-".contains(c);
    match !word.is_empty() && !word.starts_with('-') && word.chars().all(is_plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', "'\\''")),
    }
}

/// Returns the builds whose nodes are or were held by a tenant's autohold requests. A build stays
/// among them after its nodes are released, until the request is deleted or its record expires,
/// some weeks later. Unreadable requests are left out; an unknown tenant has none.
pub(crate) async fn held(
    ports: &Ports,
    tenant: &TenantName,
) -> Result<BTreeSet<BuildId>, ErrorResponse> {
    let requests = read_requests(ports, tenant).await?;
    Ok(requests.into_iter().flat_map(|request| request.held).map(|held| held.build).collect())
}

/// Reads a tenant's requests in creation order, at most [`LISTED_MAX`], without unreadable ones.
async fn read_requests(ports: &Ports, tenant: &TenantName) -> Result<Vec<Autohold>, ErrorResponse> {
    let records = ports.records.query(&Query::prefix(partition(tenant), "", LISTED_MAX)).await?;
    Ok(records.iter().filter_map(readable).collect())
}

/// Returns an autohold request in the shape that Zuul's API has, with members of our own: who made
/// it and when, until when its nodes are held (null without any, and without an end), and the
/// holder's public key. `expired` is null if the request
/// has not expired at `now`.
fn to_json(request: &Autohold, now: Timestamp) -> Value {
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
        "requested_by": Some(&request.by).filter(|by| !by.is_empty()),
        "requested_at": request.created_at.to_iso(),
        "held_until": request.last_until().map(Timestamp::to_iso),
        "ssh_key": request.ssh_key,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// N15: a login name of a configuration cannot add a command.
    #[test]
    fn the_command_to_log_in_is_quoted() {
        assert_eq!(
            ssh_command("zuul", "10.0.0.7", 22),
            "ssh -i PRIVATE_KEY_FILE zuul@10.0.0.7 -p 22"
        );
        let odd = ssh_command("a'; reboot", "::1", 2_222);
        assert_eq!(odd, "ssh -i PRIVATE_KEY_FILE 'a'\\''; reboot@::1' -p 2222");
    }

    /// N15: the holder can check that the machine that answers is the held one.
    #[test]
    fn a_node_is_known_by_the_key_that_it_showed() {
        let keys = ["ssh-rsa AAAB", "ssh-ed25519 AAAC"].map(str::to_owned);
        assert_eq!((preferred(&keys), preferred(&keys[..1])), (Some(&*keys[1]), Some(&*keys[0])));
        assert_eq!(known_hosts_line("10.0.0.7", 22, &keys[1]), "10.0.0.7 ssh-ed25519 AAAC");
        assert_eq!(known_hosts_line("::1", 2_222, &keys[1]), "[::1]:2222 ssh-ed25519 AAAC");
    }

    /// Z9.1: a project matches by whole parts of its name only.
    #[test]
    fn a_project_is_named_by_whole_parts_of_its_name() {
        let project = ProjectName::new("github.com", "org/app");
        for (name, matches) in [
            ("github.com/org/app", true),
            ("org/app", true),
            ("app", true),
            ("pp", false),
            ("rg/app", false),
            ("", false),
            ("org/app/", false),
        ] {
            assert_eq!(matches_name(&project, name), matches, "{name}");
        }
    }
}
