//! `T/key/{project}.pub`: the public key of a project, with which `zuul-client encrypt` encrypts
//! secrets (Z5.2).
//!
//! The first request for a project's key generates its key pair; this is all that the API writes.
//! Projects and tenants have no SSH keys: repositories are read with a connection's token, and
//! nodes use the pool's key.

use crate::Api;
use crate::configuration::find_project;
use crate::load;
use crate::reply::{self, ErrorResponse};
use crate::request::ApiRequest;
use bytes::Bytes;
use http::{Response, header};
use sluice_config::TenantProject;
use sluice_keys::{ProjectKey, RsaError};
use sluice_model::TenantName;
use sluice_records::project_key::{self, KeyPairPem};
use sluice_runtime::PortError;

/// Answers with a project's public key as PEM (`BEGIN PUBLIC KEY`), and generates its key pair if
/// it has none; a request for the headers alone generates and reads none. `name` is the project's
/// name with `.pub` at its end, or that of the tenant's included files. 404, and nothing is
/// generated, if it does not end so or the tenant has no such project.
pub(crate) async fn public(
    api: &Api,
    tenant: &TenantName,
    name: &str,
    request: &ApiRequest,
) -> Result<Response<Bytes>, ErrorResponse> {
    let live = load::live(api, tenant).await?;
    let missing = || {
        ErrorResponse::missing(format!(
            "There is no key {name}: the path of a project's key is key/PROJECT.pub."
        ))
    };
    let name = name.strip_suffix(".pub").ok_or_else(missing)?;
    // Included files of the tenant belong to one more project, which is at no forge (Z2.5).
    let included =
        live.layout.tenant().included.as_ref().filter(|included| included.name.as_str() == name);
    let project = included.map_or_else(|| find_project(&live.layout, name), Ok)?;
    let TenantProject { connection, name, .. } = project;
    let public = if request.is_head {
        String::new()
    } else {
        match project_key::load_public(&api.ports, connection, name).await? {
            Some(public) => public,
            None => generate(api, project).await?,
        }
    };
    let builder = reply::builder().header(header::CONTENT_TYPE, "text/plain; charset=utf-8");
    Ok(reply::finish(builder, public.into()))
}

/// Generates and stores the key pair of a project that has none, and returns the public key of the
/// stored pair. Takes seconds of one processor: this process generates one pair at a time, and of
/// concurrent requests for one project only the first generates one.
async fn generate(api: &Api, project: &TenantProject) -> Result<String, ErrorResponse> {
    let TenantProject { connection, name, .. } = project;
    let _one_at_a_time = api.key_generation.lock().await;
    if let Some(public) = project_key::load_public(&api.ports, connection, name).await? {
        return Ok(public);
    }
    let failed = |why: String| PortError::unknown(format!("generate the key pair of {name}"), why);
    let made = tokio::task::spawn_blocking(ProjectKey::generate).await;
    let made = made.map_err(|error| failed(error.to_string()))?;
    let refused = |error: RsaError| failed(error.to_string());
    let made = made.map_err(refused)?;
    let (private, public) =
        (made.to_pem().map_err(refused)?, made.public().to_pem().map_err(refused)?);
    let pem = KeyPairPem { private: private.expose(), public: &public };
    let stored = project_key::store(&api.ports, connection, name, pem).await?;
    tracing::info!(project = %name, "the project has a key pair, because its public key was requested");
    Ok(stored)
}

/// Returns the error for Zuul's routes for SSH keys: status 404 with an explanation, or that the
/// tenant does not exist. Never succeeds; another error if the store does not answer or a tenant's
/// record is unreadable.
pub(crate) async fn no_ssh_keys(
    api: &Api,
    tenant: &TenantName,
) -> Result<Response<Bytes>, ErrorResponse> {
    load::require_tenant(&api.ports, tenant).await?;
    Err(ErrorResponse::missing(
        "Projects and tenants have no SSH keys: repositories are read with the connection's token, nodes use the pool's key (`sluice connection list` shows its public key).",
    ))
}
