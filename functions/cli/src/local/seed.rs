//! What a new data directory begins with: connections, the pool's key, sample repositories and the
//! tenant that gates them.

use super::identity::{Identity, OWN, OWNER};
use crate::outside::ec2_host;
use crate::pool_key::PoolKey;
use anyhow::Context as _;
use bytes::Bytes;
use sluice_config::connection::Driver;
use sluice_local_forge::{Edit, Forge};
use sluice_model::git::LandingWay;
use sluice_model::poke::Poke;
use sluice_model::{ConnectionName, TenantName};
use sluice_records::connection::{self, Connection, ConnectionsFile};
use sluice_runtime::object::PutMode;
use sluice_runtime::{Ports, cell};

/// The connection to the forge beside the system.
pub const CONNECTION: &str = "github";
/// The connection to the nodes.
const CLOUD: &str = "ec2";
/// The host in canonical names of the forge's projects.
pub const HOST: &str = "forge.local";
/// The tenant of the sample repositories.
pub const TENANT: &str = "demo";
/// The sample's config project.
pub const CONFIG: &str = "org/config";
/// The sample's first project.
pub const ONE: &str = "org/one";
/// The sample's second project.
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

/// Stores what is missing. Safe to run at every start: what is there stays, but for addresses that
/// moved.
pub(super) async fn store(
    ports: &Ports,
    identity: &Identity,
    forge: Option<&Forge>,
    nodes_url: Option<String>,
) -> anyhow::Result<()> {
    PoolKey::ensure(ports).await?;
    let mut wanted = vec![(ConnectionName::from(CLOUD), cloud(nodes_url))];
    if let Some(forge) = forge {
        wanted.push((ConnectionName::from(CONNECTION), of_forge(ports, identity, forge).await?));
    }
    store_connections(ports, wanted).await?;
    let Some(forge) = forge else { return Ok(()) };
    for (name, files) in REPOSITORIES {
        // Pulls of a repository that does not exist are an error; that is how it is told.
        if forge.tip(name, "main").await.ok().flatten().is_none() {
            let edits: Vec<Edit> =
                files.iter().map(|(path, text)| Edit::write(*path, *text)).collect();
            forge
                .create_repository(name, &edits, OWNER)
                .await
                .with_context(|| format!("could not make the repository {name}"))?;
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
        cell::send(ports, &[Poke::Tenant { tenant: TenantName::from(TENANT) }]).await?;
    }
    Ok(())
}

fn cloud(api_url: Option<String>) -> Connection {
    Connection {
        driver: Driver::Aws,
        canonical_hostname: ec2_host("us-east-1"),
        api_url,
        git_url: String::new(),
        login: None,
        token: None,
        webhook_secrets: Vec::new(),
        landing: LandingWay::default(),
    }
}

async fn of_forge(ports: &Ports, identity: &Identity, forge: &Forge) -> anyhow::Result<Connection> {
    let name = ConnectionName::from(CONNECTION);
    let seal = |what: &'static str, plain: String| {
        let context = connection::seal_context(&name, what);
        async move { connection::seal(ports, &context, &plain).await }
    };
    Ok(Connection {
        driver: Driver::GitHub,
        canonical_hostname: HOST.to_owned(),
        api_url: Some(forge.api_url()),
        git_url: forge.web_url().to_owned(),
        login: Some(OWN.to_owned()),
        token: Some(seal("token", identity.own_token().to_owned()).await?),
        webhook_secrets: vec![seal("webhook-secret", identity.webhook_secret.clone()).await?],
        landing: LandingWay::default(),
    })
}

/// Adds connections that are missing or whose addresses moved. Sealed texts differ each time, so
/// they are not compared.
async fn store_connections(
    ports: &Ports,
    wanted: Vec<(ConnectionName, Connection)>,
) -> anyhow::Result<()> {
    let stored = ports.objects.get(connection::OBJECT).await?;
    let mut file = match &stored {
        Some(object) => {
            serde_json::from_slice(&object.bytes).context("the stored connections are damaged")?
        }
        None => ConnectionsFile::default(),
    };
    let mut changed = false;
    for (name, connection) in wanted {
        // Somebody moved in and gave the name to a forge of his own: his token is not ours to throw
        // away.
        let others = |old: &&Connection| {
            connection.canonical_hostname == HOST && old.canonical_hostname != HOST
        };
        if let Some(other) = file.0.get(&name).filter(others) {
            tracing::warn!(
                connection = %name, host = other.canonical_hostname,
                "the connection is not changed, so the forge beside this system is not connected; start with --no-forge to go without it"
            );
            continue;
        }
        let same = file.0.get(&name).is_some_and(|old| {
            old.driver == connection.driver
                && old.api_url == connection.api_url
                && old.git_url == connection.git_url
        });
        if !same {
            // Where it is may be other than it was; how its changes land is the operator's word.
            let landing = file.0.get(&name).map_or(connection.landing, |old| old.landing);
            file.0.insert(name, Connection { landing, ..connection });
            changed = true;
        }
    }
    if changed {
        let json = Bytes::from(serde_json::to_vec_pretty(&file)?);
        ports.objects.put(connection::OBJECT, json, PutMode::Always, "application/json").await?;
    }
    Ok(())
}
