//! `T/key/{project}.pub`: the public half of a project's key pair, with which `zuul-client encrypt`
//! makes secrets (Z5.2).
//!
//! Pairs are made by operators (`sluice secret key`), for this API only reads. SSH keys of projects
//! or tenants do not exist here: repositories are read with a connection's token, and nodes with
//! the key of the pool.

use crate::Api;
use crate::configuration::known_project;
use crate::load;
use crate::reply::{self, Refusal};
use bytes::Bytes;
use http::{Response, header};
use sluice_model::TenantName;
use sluice_records::project_key::public_object;

/// Answers with PEM (`BEGIN PUBLIC KEY`), for projects of the tenant alone. `name` ends in `.pub`.
pub(crate) async fn public(
    api: &Api,
    tenant: &TenantName,
    name: &str,
) -> Result<Response<Bytes>, Refusal> {
    let live = load::live(api, tenant).await?;
    let missing =
        || Refusal::missing(format!("There is no key {name}: a project's is at key/PROJECT.pub."));
    let name = name.strip_suffix(".pub").ok_or_else(missing)?;
    // Files that the tenant includes are one project more (Z2.5), which no forge knows.
    let included =
        live.layout.tenant().included.as_ref().filter(|included| included.name.as_str() == name);
    let project = included.map_or_else(|| known_project(&live.layout, name), Ok)?;
    let object = api.ports.objects.get(&public_object(&project.connection, &project.name)).await?;
    let none = || {
        let name = &project.name;
        Refusal::missing(format!(
            "The project {name} has no key pair yet; an operator makes it: sluice secret key {name}"
        ))
    };
    let builder = reply::open().header(header::CONTENT_TYPE, "text/plain; charset=utf-8");
    Ok(reply::finish(builder, object.ok_or_else(none)?.bytes))
}

/// Says of Zuul's routes for SSH keys what is there in their place.
pub(crate) async fn no_ssh(api: &Api, tenant: &TenantName) -> Result<Response<Bytes>, Refusal> {
    load::known(&api.ports, tenant).await?;
    Err(Refusal::missing(
        "Projects and tenants have no SSH keys here: repositories are read with their connection's token, nodes with the pool's key (`sluice connection list` shows its public half).",
    ))
}
