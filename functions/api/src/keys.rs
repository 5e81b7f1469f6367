//! `T/key/{project}.pub`: the public key of a project, with which `zuul-client encrypt` encrypts
//! secrets (Z5.2). `T/project-ssh-key/{project}.pub`, `T/tenant-ssh-key/ssh.pub`: the public SSH
//! keys of a project and of a tenant, which hosts of deployment jobs accept (Z8.2).
//!
//! The first request for a key generates its key pair; this is all that the API writes. Builds only
//! open pairs: a pair whose public key was never requested is accepted by no host.

use crate::Api;
use crate::configuration::find_project;
use crate::load;
use crate::reply::{self, ErrorResponse};
use crate::request::ApiRequest;
use bytes::Bytes;
use http::{Response, header};
use sluice_config::{Layout, TenantProject};
use sluice_keys::{ProjectKey, ProjectPublicKey, RsaError, Secret};
use sluice_model::TenantName;
use sluice_records::project_key::{self, KeyPairPem};
use sluice_records::ssh_key::{self, SshKeyOwner};
use sluice_runtime::PortError;

/// Answers with a project's public key as PEM (`BEGIN PUBLIC KEY`), and generates its key pair if
/// it has none; a request for the headers alone generates and reads none. `name` is as for
/// [`project_of`], and nothing is generated without a project.
pub(crate) async fn public(
    api: &Api,
    tenant: &TenantName,
    name: &str,
    request: &ApiRequest,
) -> Result<Response<Bytes>, ErrorResponse> {
    let live = load::live(api, tenant).await?;
    let project = project_of(&live.layout, "key", name)?;
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

/// Returns the project whose key is at `path` under `name`: the project's name with `.pub` at its
/// end, or that of the tenant's included files. 404 if it does not end so or the tenant has no such
/// project.
fn project_of<'l>(
    layout: &'l Layout,
    path: &str,
    name: &str,
) -> Result<&'l TenantProject, ErrorResponse> {
    let missing = || {
        ErrorResponse::missing(format!(
            "There is no key {name}: the path of a project's key is {path}/PROJECT.pub."
        ))
    };
    let name = name.strip_suffix(".pub").ok_or_else(missing)?;
    // Included files of the tenant belong to one more project, which is at no forge (Z2.5).
    let included =
        layout.tenant().included.as_ref().filter(|included| included.name.as_str() == name);
    included.map_or_else(|| find_project(layout, name), Ok)
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
    let made = generate_pem(ProjectKey::generate).await?;
    let stored = project_key::store(&api.ports, connection, name, made.as_pair()).await?;
    tracing::info!(project = %name, "the project has a key pair, because its public key was requested");
    Ok(stored)
}

/// A generated key pair in PEM. It has no `Debug`, because it holds a private key.
pub(crate) struct GeneratedPair {
    private: Secret,
    public: String,
}

impl GeneratedPair {
    /// Returns the pair as the key store takes it.
    pub(crate) fn as_pair(&self) -> KeyPairPem<'_> {
        KeyPairPem { private: self.private.expose(), public: &self.public }
    }
}

/// Generates a key pair on a thread for blocking work.
pub(crate) async fn generate_pem(
    generate: fn() -> Result<ProjectKey, RsaError>,
) -> Result<GeneratedPair, PortError> {
    let failed = |why: String| PortError::unknown("generate a key pair".to_owned(), why);
    let refused = |error: RsaError| failed(error.to_string());
    let made = tokio::task::spawn_blocking(generate).await;
    let made = made.map_err(|error| failed(error.to_string()))?.map_err(refused)?;
    Ok(GeneratedPair {
        private: made.to_pem().map_err(refused)?,
        public: made.public().to_pem().map_err(refused)?,
    })
}

/// Answers with a project's public SSH key as a line for `authorized_keys` (`ssh-rsa AAAA…`), and
/// generates its key pair if it has none (Z8.2). `name` is as for [`project_of`].
pub(crate) async fn ssh_of_project(
    api: &Api,
    tenant: &TenantName,
    name: &str,
    request: &ApiRequest,
) -> Result<Response<Bytes>, ErrorResponse> {
    let live = load::live(api, tenant).await?;
    let project = project_of(&live.layout, "project-ssh-key", name)?;
    let owner = SshKeyOwner::Project(&project.connection, &project.name);
    ssh_public(api, owner, request).await
}

/// Answers with a tenant's public SSH key as a line for `authorized_keys`, and generates its key
/// pair if it has none (Z8.2).
pub(crate) async fn ssh_of_tenant(
    api: &Api,
    tenant: &TenantName,
    request: &ApiRequest,
) -> Result<Response<Bytes>, ErrorResponse> {
    load::require_tenant(&api.ports, tenant).await?;
    ssh_public(api, SshKeyOwner::Tenant(tenant), request).await
}

/// Answers with a public SSH key. A request for the headers alone generates and reads none.
async fn ssh_public(
    api: &Api,
    owner: SshKeyOwner<'_>,
    request: &ApiRequest,
) -> Result<Response<Bytes>, ErrorResponse> {
    let line = if request.is_head {
        String::new()
    } else {
        let public = match ssh_key::load_public(&api.ports, owner).await? {
            Some(public) => public,
            None => generate_ssh(api, owner).await?,
        };
        let damaged =
            |error: RsaError| PortError::unknown(format!("read {}", owner.object()), error);
        let key = ProjectPublicKey::from_pem(&public).map_err(damaged)?;
        format!("{}\n", key.to_openssh().map_err(damaged)?)
    };
    let builder = reply::builder().header(header::CONTENT_TYPE, "text/plain; charset=utf-8");
    Ok(reply::finish(builder, line.into()))
}

/// Generates and stores an SSH key pair where there is none, and returns the public key of the
/// stored pair as PEM; see [`generate`].
async fn generate_ssh(api: &Api, owner: SshKeyOwner<'_>) -> Result<String, ErrorResponse> {
    let _one_at_a_time = api.key_generation.lock().await;
    if let Some(public) = ssh_key::load_public(&api.ports, owner).await? {
        return Ok(public);
    }
    let made = generate_pem(ProjectKey::generate_for_signatures).await?;
    let stored = ssh_key::store(&api.ports, owner, made.as_pair()).await?;
    tracing::info!(?owner, "there is a new SSH key pair, because its public key was requested");
    Ok(stored)
}
