//! Sets up a new data directory: connections, the pool's key, sample repositories and their tenant.

use crate::identity::{Identity, OWNER, SYSTEM_ACCOUNT};
use anyhow::Context as _;
use bytes::Bytes;
use sluice_auth::{Authenticator, AuthenticatorDriver};
use sluice_config::connection::Driver;
use sluice_local_forge::{Edit, LocalForge};
use sluice_model::git::LandingMethod;
use sluice_model::wakeup::Wakeup;
use sluice_model::{ConnectionName, TenantName};
use sluice_operator::operator_access::{CONNECTION, HOST};
use sluice_operator::pool_key;
use sluice_records::authenticators::{self, StoredAuthenticator};
use sluice_records::connection::{self, AwsAccess, ConnectionsFile, StoredConnection, ec2_host};
use sluice_runtime::object::PutMode;
use sluice_runtime::{Ports, cell};

/// The name of the connection to the nodes.
const CLOUD: &str = "ec2";
/// The name of the authenticator of `sluice token create`.
const AUTHENTICATOR: &str = "local";
/// The tenant of the sample repositories.
pub const TENANT: &str = "demo";
/// The config project of the samples.
pub const CONFIG: &str = "org/config";
/// The first project of the samples.
pub const ONE: &str = "org/one";
/// The second project of the samples.
pub const TWO: &str = "org/two";

const MAIN: &str = include_str!("../../../../demo/main.yaml");

macro_rules! file {
    ($folder:literal, $path:literal) => {
        ($path, include_str!(concat!("../../../../demo/", $folder, "/", $path)))
    };
}

const REPOSITORIES: [(&str, &[(&str, &str)]); 3] = [
    (
        CONFIG,
        &[
            file!("config", "zuul.yaml"),
            file!("config", "playbooks/pre.yaml"),
            file!("config", "playbooks/post.yaml"),
            file!("config", "playbooks/unit.yaml"),
            file!("config", "playbooks/pair.yaml"),
        ],
    ),
    (
        ONE,
        &[
            file!("one", "README.md"),
            file!("one", ".zuul.yaml"),
            file!("one", "run-tests.sh"),
            file!("one", "greetings/hello"),
        ],
    ),
    (
        TWO,
        &[
            file!("two", "README.md"),
            file!("two", ".zuul.yaml"),
            file!("two", "run-tests.sh"),
            file!("two", "uses"),
        ],
    ),
];

/// Stores what is missing: the key pair of the node pool, the connection to the nodes, an
/// authenticator for `sluice token create`, and with a forge its connection, the sample
/// repositories and a main configuration with the tenant `demo`. Wakes that tenant only if the main
/// configuration was missing. Keeps existing objects, except that a connection whose driver or
/// address differs is replaced. `nodes_url` is the address of EC2 if it differs from that of the
/// data services.
pub(super) async fn store(
    ports: &Ports,
    identity: &Identity,
    forge: Option<&LocalForge>,
    nodes_url: Option<String>,
) -> anyhow::Result<()> {
    pool_key::ensure(ports).await?;
    let mut connections = vec![(ConnectionName::from(CLOUD), cloud_connection(nodes_url))];
    if let Some(forge) = forge {
        connections.push((
            ConnectionName::from(CONNECTION),
            forge_connection(ports, identity, forge).await?,
        ));
    }
    store_connections(ports, connections).await?;
    store_authenticator(ports).await?;
    let Some(forge) = forge else { return Ok(()) };
    for (name, files) in REPOSITORIES {
        // An error means that the repository does not exist.
        if forge.tip(name, "main").await.ok().flatten().is_none() {
            let edits: Vec<Edit> =
                files.iter().map(|(path, text)| Edit::write(*path, *text)).collect();
            forge
                .create_repository(name, &edits, OWNER)
                .await
                .with_context(|| format!("could not create the repository {name}"))?;
        }
    }
    if ports.objects.get(connection::MAIN).await?.is_none() {
        ports
            .objects
            .put(
                connection::MAIN,
                Bytes::from_static(MAIN.as_bytes()),
                PutMode::IfAbsent,
                "application/yaml",
            )
            .await?;
        cell::send(ports, &[Wakeup::Tenant { tenant: TenantName::from(TENANT) }]).await?;
    }
    Ok(())
}

/// Stores the authenticator with whose secret `sluice token create` signs, if it is missing. The
/// secret is random and sealed, so only a user who may open the data directory can make tokens.
async fn store_authenticator(ports: &Ports) -> anyhow::Result<()> {
    let mut loaded = authenticators::load(ports).await?;
    if loaded.file.0.contains_key(AUTHENTICATOR) {
        return Ok(());
    }
    let settings = Authenticator {
        name: AUTHENTICATOR.to_owned(),
        driver: AuthenticatorDriver::Hs256,
        realm: AUTHENTICATOR.to_owned(),
        client_id: "sluice".to_owned(),
        audience: None,
        authority: None,
        issuer_id: "sluice-local".to_owned(),
        uid_claim: "sub".to_owned(),
        max_validity_seconds: None,
        skew_seconds: 0,
        is_default: false,
        allows_override: true,
    };
    let secret = format!("{}{}", ports.entropy.token(), ports.entropy.token());
    let context = authenticators::seal_context(AUTHENTICATOR);
    let sealed = connection::seal(ports, &context, &secret).await?;
    let stored = StoredAuthenticator { settings, public_key: None, secret: Some(sealed) };
    loaded.file.0.insert(AUTHENTICATOR.to_owned(), stored);
    // Another writer may have stored some meanwhile; the next start completes them.
    authenticators::store(ports, loaded).await?;
    Ok(())
}

/// Returns the connection to the emulated nodes, without secrets. `api_url` is `None` if the data
/// services answer for EC2 too.
fn cloud_connection(api_url: Option<String>) -> StoredConnection {
    StoredConnection {
        driver: Driver::Aws,
        canonical_hostname: ec2_host("us-east-1"),
        api_url,
        git_url: String::new(),
        login: None,
        token: None,
        webhook_secrets: Vec::new(),
        landing: LandingMethod::default(),
        poll_minutes: None,
        aws: AwsAccess::default(),
    }
}

/// Returns the connection to the local forge, with the system's token and the webhook secret
/// encrypted. Encrypting differs each time.
async fn forge_connection(
    ports: &Ports,
    identity: &Identity,
    forge: &LocalForge,
) -> anyhow::Result<StoredConnection> {
    let name = ConnectionName::from(CONNECTION);
    let seal = |what: &'static str, plain: String| {
        let context = connection::seal_context(&name, what);
        async move { connection::seal(ports, &context, &plain).await }
    };
    Ok(StoredConnection {
        driver: Driver::GitHub,
        canonical_hostname: HOST.to_owned(),
        api_url: Some(forge.api_url()),
        git_url: forge.web_url().to_owned(),
        login: Some(SYSTEM_ACCOUNT.to_owned()),
        token: Some(seal("token", identity.system_token().to_owned()).await?),
        webhook_secrets: vec![seal("webhook-secret", identity.webhook_secret.clone()).await?],
        landing: LandingMethod::default(),
        poll_minutes: None,
        aws: AwsAccess::default(),
    })
}

/// Adds missing connections. Replaces a stored connection whose driver or address differs, also its
/// secrets, but keeps its merge method. All other connections stay as they are: encrypted secrets
/// differ each time, so they are not compared. The connection to the local forge is left out, with
/// a warning in the log, if another forge has its name. Not safe against concurrent writers.
async fn store_connections(
    ports: &Ports,
    connections: Vec<(ConnectionName, StoredConnection)>,
) -> anyhow::Result<()> {
    let stored = ports.objects.get(connection::OBJECT).await?;
    let mut file = match &stored {
        Some(object) => serde_json::from_slice(&object.bytes)
            .context("could not read the stored connections: the object is damaged")?,
        None => ConnectionsFile::default(),
    };
    let mut changed = false;
    for (name, connection) in connections {
        // An operator gave this name to another forge: its token must not be overwritten.
        let belongs_to_another_forge = |old: &&StoredConnection| {
            connection.canonical_hostname == HOST && old.canonical_hostname != HOST
        };
        if let Some(other) = file.0.get(&name).filter(belongs_to_another_forge) {
            tracing::warn!(
                connection = %name, host = other.canonical_hostname,
                "the connection belongs to another forge, so the local forge is not connected; start with --no-forge to run without it"
            );
            continue;
        }
        let same = file.0.get(&name).is_some_and(|old| {
            old.driver == connection.driver
                && old.api_url == connection.api_url
                && old.git_url == connection.git_url
        });
        if !same {
            // The address may change, but the merge method is the operator's choice.
            let landing = file.0.get(&name).map_or(connection.landing, |old| old.landing);
            file.0.insert(name, StoredConnection { landing, ..connection });
            changed = true;
        }
    }
    if changed {
        let json = Bytes::from(serde_json::to_vec_pretty(&file)?);
        ports.objects.put(connection::OBJECT, json, PutMode::Always, "application/json").await?;
    }
    Ok(())
}
