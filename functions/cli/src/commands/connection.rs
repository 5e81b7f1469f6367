//! `sluice connection`: forges and clouds, their secrets sealed before they are stored.

use super::operator;
use crate::outside::ec2_host;
use crate::pool_key::PoolKey;
use anyhow::{Context as _, bail};
use bytes::Bytes;
use clap::ValueEnum;
use sluice_config::connection::Driver;
use sluice_model::ConnectionName;
use sluice_records::connection::{self, Connection, ConnectionsFile};
use sluice_runtime::Ports;
use sluice_runtime::object::{PutMode, Stored};
use std::io::Read as _;
use std::path::{Path, PathBuf};
use url::Url;

/// The drivers that a connection can be added with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum DriverWord {
    /// GitHub, GitHub Enterprise or the local forge.
    Github,
    /// A plain git server, for configuration and roles.
    Git,
    /// Amazon EC2, where nodes come from.
    Aws,
}

/// A connection to add.
#[derive(Debug, Clone)]
pub struct Added {
    /// The local system; `None` takes the environment's stack or the usual place.
    pub data: Option<PathBuf>,
    /// Its name.
    pub name: String,
    /// What is spoken there.
    pub driver: DriverWord,
    /// The host in canonical names.
    pub host: Option<String>,
    /// The API.
    pub api_url: Option<String>,
    /// Where repositories are.
    pub git_url: Option<String>,
    /// The login of the token.
    pub login: Option<String>,
    /// The region, for EC2.
    pub region: Option<String>,
    /// A file with the token.
    pub token_file: Option<PathBuf>,
    /// A file with the webhook secret.
    pub webhook_secret_file: Option<PathBuf>,
}

/// Adds a connection, or changes one; secrets that are not given stay.
///
/// # Errors
/// When something is missing, or the store does not answer.
pub async fn add(added: Added) -> anyhow::Result<()> {
    let ports = operator(added.data.clone()).await?;
    let name = ConnectionName::from(added.name.as_str());
    if added.name.is_empty()
        || !added.name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'))
    {
        bail!("{:?} cannot name a connection: use letters, digits, `-`, `_` and `.`", added.name);
    }
    let token = secret(added.token_file.as_deref())?;
    let webhook_secret = secret(added.webhook_secret_file.as_deref())?;
    let (mut file, tag) = read(&ports).await?;
    let old = file.0.remove(&name);
    let mut made = addresses(&added)?;
    made.token = match token {
        Some(token) => Some(connection::seal(&ports, &connection::seal_context(&name, "token"), &token).await?),
        None => old.as_ref().and_then(|old| old.token.clone()),
    };
    made.webhook_secrets = match webhook_secret {
        Some(plain) => {
            vec![connection::seal(&ports, &connection::seal_context(&name, "webhook-secret"), &plain).await?]
        }
        None => old.map(|old| old.webhook_secrets).unwrap_or_default(),
    };
    if made.driver == Driver::GitHub && (made.token.is_none() || made.webhook_secrets.is_empty()) {
        bail!("a connection to GitHub needs --token-file and --webhook-secret-file (`-` reads standard input)");
    }
    if made.driver == Driver::Aws {
        PoolKey::ensure(&ports).await?;
    }
    let driver = made.driver;
    file.0.insert(name.clone(), made);
    write(&ports, &file, tag).await?;
    println!("Stored the connection {name}. Functions use it within a minute.");
    if driver == Driver::GitHub {
        println!(
            "Point its webhook at <address of the pages>api/connection/{name}/payload, content type application/json, all events."
        );
    }
    Ok(())
}

/// Stores new secrets of a connection.
///
/// # Errors
/// When there is no such connection, nothing to store, or the store does not answer.
pub async fn rotate(
    data: Option<PathBuf>,
    name: &str,
    token_file: Option<PathBuf>,
    webhook_secret_file: Option<PathBuf>,
) -> anyhow::Result<()> {
    if token_file.is_none() && webhook_secret_file.is_none() {
        bail!("nothing to store: name --token-file, --webhook-secret-file or both (`-` reads standard input)");
    }
    let ports = operator(data).await?;
    let (token, webhook_secret) = (secret(token_file.as_deref())?, secret(webhook_secret_file.as_deref())?);
    let name = ConnectionName::from(name);
    let (mut file, tag) = read(&ports).await?;
    let known = || file.0.keys().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    let missing = format!("there is no connection {name}; there are: {}", known());
    let entry = file.0.get_mut(&name).context(missing)?;
    if let Some(plain) = token {
        entry.token = Some(connection::seal(&ports, &connection::seal_context(&name, "token"), &plain).await?);
    }
    if let Some(plain) = webhook_secret {
        let sealed = connection::seal(&ports, &connection::seal_context(&name, "webhook-secret"), &plain).await?;
        // The newest first; the one before it stays valid while the forge is told.
        entry.webhook_secrets.insert(0, sealed);
        entry.webhook_secrets.truncate(2);
    }
    write(&ports, &file, tag).await?;
    println!(
        "Stored. The previous webhook secret stays valid until the next rotation; tokens are used within a minute."
    );
    Ok(())
}

/// Lists connections.
///
/// # Errors
/// When the store does not answer.
pub async fn list(data: Option<PathBuf>) -> anyhow::Result<()> {
    let (file, _) = read(&operator(data).await?).await?;
    if file.0.is_empty() {
        println!("There are no connections; add one with `sluice connection add`.");
    }
    for (name, connection) in &file.0 {
        let address = connection.api_url.as_deref().unwrap_or(&connection.git_url);
        let (token, secrets) =
            (if connection.token.is_some() { "a token" } else { "no token" }, connection.webhook_secrets.len());
        println!(
            "{name}: {:?} at {} ({address}), {token}, {secrets} webhook secret(s)",
            connection.driver, connection.canonical_hostname
        );
    }
    Ok(())
}

fn addresses(added: &Added) -> anyhow::Result<Connection> {
    let default = |given: &Option<String>, default: &str| {
        given.clone().unwrap_or_else(|| default.to_owned()).trim_end_matches('/').to_owned()
    };
    let (driver, git_url, api_url) = match added.driver {
        DriverWord::Github => (
            Driver::GitHub,
            default(&added.git_url, "https://github.com"),
            Some(default(&added.api_url, "https://api.github.com")),
        ),
        DriverWord::Git => (Driver::Git, added.git_url.clone().context("a plain git server needs --git-url")?, None),
        DriverWord::Aws => (Driver::Aws, String::new(), added.api_url.clone()),
    };
    let host = match (&added.host, added.driver) {
        (Some(host), _) => host.clone(),
        (None, DriverWord::Aws) => ec2_host(added.region.as_deref().context("a connection to EC2 needs --region")?),
        (None, _) => {
            let url: Url = git_url.parse().with_context(|| format!("{git_url} is not a URL"))?;
            url.host_str().with_context(|| format!("{git_url} names no host; name one with --host"))?.to_owned()
        }
    };
    for url in [Some(&git_url).filter(|url| !url.is_empty()), api_url.as_ref()].into_iter().flatten() {
        let parsed: Url = url.parse().with_context(|| format!("{url} is not a URL"))?;
        if !matches!(parsed.scheme(), "http" | "https") || !parsed.username().is_empty() || parsed.password().is_some()
        {
            bail!(
                "{}: an http or https address without user and password is needed",
                parsed.host_str().unwrap_or_default()
            );
        }
    }
    let login = added.login.clone();
    Ok(Connection {
        driver,
        canonical_hostname: host,
        api_url,
        git_url,
        login,
        token: None,
        webhook_secrets: Vec::new(),
    })
}

/// Reads a secret, without the line end that editors leave.
fn secret(file: Option<&Path>) -> anyhow::Result<Option<String>> {
    let Some(file) = file else { return Ok(None) };
    let mut text = String::new();
    if file == Path::new("-") {
        std::io::stdin().read_to_string(&mut text).context("could not read the secret from standard input")?;
    } else {
        text = std::fs::read_to_string(file).with_context(|| format!("could not read {}", file.display()))?;
    }
    let text = text.trim_end_matches(['\r', '\n']);
    if text.is_empty() {
        bail!("{} is empty", file.display());
    }
    Ok(Some(text.to_owned()))
}

async fn read(ports: &Ports) -> anyhow::Result<(ConnectionsFile, Option<String>)> {
    match ports.objects.get(connection::OBJECT).await? {
        Some(object) => Ok((
            serde_json::from_slice(&object.bytes).context("the stored connections are damaged")?,
            Some(object.etag),
        )),
        None => Ok((ConnectionsFile::default(), None)),
    }
}

/// Writes what was read and changed; somebody who wrote meanwhile is not overwritten.
async fn write(ports: &Ports, file: &ConnectionsFile, tag: Option<String>) -> anyhow::Result<()> {
    let mode = tag.map_or(PutMode::IfAbsent, PutMode::IfMatch);
    let json = Bytes::from(serde_json::to_vec_pretty(file)?);
    match ports.objects.put(connection::OBJECT, json, mode, "application/json").await? {
        Stored::Yes => Ok(()),
        _ => bail!("somebody else changed the connections at the same time; run this again"),
    }
}
