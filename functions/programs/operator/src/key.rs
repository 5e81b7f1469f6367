//! `sluice key`: shows the public SSH keys of projects and tenants (Z8.2), and imports the keys
//! that Zuul exported.

mod export;

use crate::api_client::{LocalArguments, api_path};
use crate::output::{OutputFormat, print_json, print_line};
use crate::secret::{KeySelector, find_project};
use crate::selectors::TenantSelector;
use anyhow::{Context as _, bail};
use clap::Subcommand;
use serde_json::json;
use sluice_keys::{ProjectKey, ProjectPublicKey};
use sluice_model::TenantName;
use sluice_records::project_key::KeyPairPem;
use sluice_records::ssh_key::{self, SshKeyOwner};
use sluice_records::tenant;
use sluice_runtime::Ports;
use std::path::PathBuf;

/// Show the public SSH keys of projects and tenants, import all keys of a Zuul (a missing pair is
/// generated)
#[derive(Debug, Clone, Subcommand)]
pub enum KeyCommand {
    /// Print the public SSH key of a project, as a line for authorized_keys. Jobs use it in
    /// pipelines that run after review
    Project {
        /// The project.
        #[command(flatten)]
        key: KeySelector,
    },
    /// Print the public SSH key of a tenant, as a line for authorized_keys. All its jobs use it
    Tenant {
        /// The system and the tenant.
        #[command(flatten)]
        selector: TenantSelector,
        /// Tenant, instead of --tenant
        #[arg(value_name = "NAME", conflicts_with = "tenant")]
        name: Option<String>,
    },
    /// Import the keys in a file of `zuul-admin export-keys`: those of secrets and the SSH keys of
    /// projects and tenants. An existing key is never replaced
    ///
    /// The password of Zuul's key store comes from a file or from SLUICE_KEYSTORE_PASSWORD. Exits
    /// with 1 if a key could not be imported, or if there is another one in its place.
    Import {
        /// The data directory and the output format.
        #[command(flatten)]
        local: LocalArguments,
        /// File with the password of Zuul's key store, instead of SLUICE_KEYSTORE_PASSWORD
        #[arg(long, value_name = "FILE")]
        password_file: Option<PathBuf>,
        /// File that `zuul-admin export-keys` wrote; `-` is standard input
        #[arg(value_name = "FILE")]
        export: PathBuf,
    },
}

/// Runs a `sluice key` command.
///
/// # Errors
/// When no project or several projects have the name, there is no such tenant, a file cannot be
/// read, or the system does not answer; for an import, also when a key was not imported.
pub async fn run(command: KeyCommand) -> anyhow::Result<()> {
    let (line, format) = match command {
        KeyCommand::Project { key } => (of_project(&key).await?, key.system.format()),
        KeyCommand::Tenant { mut selector, name } => {
            selector.tenant = name.or(selector.tenant);
            (of_tenant(&selector).await?, selector.system.format())
        }
        KeyCommand::Import { local, password_file, export } => {
            return export::import(local, password_file.as_deref(), &export).await;
        }
    };
    match format {
        OutputFormat::Json => print_json(&json!({"public_key": line})),
        OutputFormat::Text => print_line!("{line}"),
    }
    Ok(())
}

/// Returns the public SSH key of a project. Over the API, the project is one of the tenant.
async fn of_project(selector: &KeySelector) -> anyhow::Result<String> {
    let KeySelector { system, tenant, project } = selector;
    let Some(client) = system.api_client()? else {
        let ports = system.ports().await?;
        let (connection, project) = find_project(&ports, project).await?;
        return ensure_pair(&ports, SshKeyOwner::Project(&connection, &project)).await;
    };
    let tenant = client.tenant(tenant.as_deref()).await?;
    let path = ["tenant", &tenant, "project-ssh-key", &format!("{project}.pub")];
    Ok(client.get_text(&api_path(&path)?).await?.trim_end().to_owned())
}

/// Returns the public SSH key of a tenant.
async fn of_tenant(selector: &TenantSelector) -> anyhow::Result<String> {
    if let Some(client) = selector.system.api_client()? {
        let tenant = client.tenant(selector.tenant.as_deref()).await?;
        let path = ["tenant", &tenant, "tenant-ssh-key", "ssh.pub"];
        return Ok(client.get_text(&api_path(&path)?).await?.trim_end().to_owned());
    }
    let ports = selector.system.ports().await?;
    let tenants = tenant::list_tenants(&ports).await?;
    let tenant = match (&selector.tenant, tenants.as_slice()) {
        (Some(name), tenants) => {
            let name = TenantName::from(name.as_str());
            if !tenants.contains(&name) {
                bail!("there is no tenant {name}: `sluice tenant list` lists the tenants");
            }
            name
        }
        (None, [only]) => only.clone(),
        (None, []) => bail!("there is no tenant yet: store one with `sluice tenant load FILE`"),
        (None, _) => bail!("there are several tenants: name one with --tenant"),
    };
    ensure_pair(&ports, SshKeyOwner::Tenant(&tenant)).await
}

/// Returns the public SSH key of an owner. Generates and stores a key pair if it has none;
/// concurrent callers get the key of one pair.
async fn ensure_pair(ports: &Ports, owner: SshKeyOwner<'_>) -> anyhow::Result<String> {
    let public = match ssh_key::load_public(ports, owner).await? {
        Some(public) => public,
        None => {
            let made = tokio::task::spawn_blocking(ProjectKey::generate_for_signatures).await??;
            let (private, public) = (made.to_pem()?, made.public().to_pem()?);
            let pem = KeyPairPem { private: private.expose(), public: &public };
            ssh_key::store(ports, owner, pem).await?
        }
    };
    let key = ProjectPublicKey::from_pem(&public).context("the stored public key is damaged")?;
    Ok(key.to_openssh()?)
}
