//! `sluice connection`: forges and clouds, their secrets sealed before they are stored.

mod wanted;

use super::{Format, desk, operator, say_json, tenant};
use crate::local::{CONNECTION, HOST};
use crate::pool_key::PoolKey;
use crate::say::say;
use anyhow::{Context as _, bail};
use bytes::Bytes;
use clap::ValueEnum;
use serde_json::{Value, json};
use sluice_config::connection::Driver;
use sluice_forge::{ForgeError, GitHub, GitHubOptions, Secret};
use sluice_model::ConnectionName;
use sluice_records::connection::{self, Connection, ConnectionsFile};
use sluice_runtime::Ports;
use sluice_runtime::object::{PutMode, Stored};
use std::io::Read as _;
use std::path::{Path, PathBuf};
use wanted::{Given, wanted, word};

/// The drivers that a connection can be added with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum DriverWord {
    /// GitHub or GitHub Enterprise.
    Github,
    /// A plain git server, for configuration and roles.
    Git,
    /// Amazon EC2, where nodes come from.
    Aws,
    /// A mail server, for reports.
    Smtp,
    /// An MQTT broker, for reports.
    Mqtt,
}

/// How the changes of a forge land.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LandingWord {
    /// The forge is asked to merge each.
    Merge,
    /// Branches are moved to the very commits that were tested, several changes at once, in
    /// repositories that let the token push; in others, and where the merge mode makes new commits,
    /// the forge is asked.
    FastForward,
}

/// A connection to add or to change.
#[derive(Debug, Clone, Default)]
pub struct Added {
    /// The local system; `None` takes the environment's stack or the usual place.
    pub data: Option<PathBuf>,
    /// Its name.
    pub name: String,
    /// What is spoken there; `None` as it was, GitHub for a new one.
    pub driver: Option<DriverWord>,
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
    /// How changes land; `None` as it was, by the forge's merge for a new one.
    pub landing: Option<LandingWord>,
    /// Where its secrets are read from.
    pub secrets: SecretFiles,
    /// Whether a token is tried before it is stored.
    pub check: Check,
}

/// Files with secrets; `-` is standard input.
#[derive(Debug, Clone, Default)]
pub struct SecretFiles {
    /// The API token.
    pub token: Option<PathBuf>,
    /// The webhook secret.
    pub webhook_secret: Option<PathBuf>,
}

/// Whether a token is tried before it is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Check {
    /// The forge is asked whose it is.
    #[default]
    Asked,
    /// It is taken as it is: the forge cannot be reached from here.
    Skipped,
}

/// Adds a connection, or changes one; what is not given stays.
///
/// # Errors
/// When something is missing or wrong, the forge does not accept the token, or the store does not
/// answer.
pub async fn add(added: Added) -> anyhow::Result<()> {
    let name = ConnectionName::from(added.name.as_str());
    if added.name.is_empty()
        || !added
            .name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'))
    {
        bail!("{:?} cannot name a connection: use letters, digits, `-`, `_` and `.`", added.name);
    }
    let ports = operator(added.data.clone()).await?;
    let (mut file, tag) = read(&ports).await?;
    // How its changes land cuts nobody off from the forge beside the system, and each start leaves
    // that as it is.
    let lands_otherwise = is_about_landing_alone(&added)
        && desk(added.data.clone())?.is_some_and(|desk| desk.forge.is_some());
    if !lands_otherwise {
        refuse_the_forges_own(&added.data, &name, file.0.get(&name))?;
    }
    let Secrets { token, webhook_secret } = secrets(&added.secrets)?;
    let given = Given { token: token.is_some(), webhook_secret: webhook_secret.is_some() };
    // The local forge is gone from a system that runs without it: nothing of its connection is
    // worth keeping.
    let old = file.0.remove(&name).filter(|old| lands_otherwise || old.canonical_hostname != HOST);
    let mut made = wanted(&added, old.as_ref(), given)?;
    if let Some(token) = token {
        if added.check == Check::Asked && made.driver == Driver::GitHub {
            let login = login_of(&name, &made, &token).await?;
            made.login = added.login.clone().or(login).or(made.login);
        }
        made.token = Some(
            connection::seal(&ports, &connection::seal_context(&name, "token"), &token).await?,
        );
    }
    if let Some(plain) = webhook_secret {
        let sealed =
            connection::seal(&ports, &connection::seal_context(&name, "webhook-secret"), &plain)
                .await?;
        made.webhook_secrets = vec![sealed];
    }
    if made.driver == Driver::Aws {
        PoolKey::ensure(&ports).await?;
    }
    let (driver, login) = (made.driver, made.login.clone());
    file.0.insert(name.clone(), made);
    write(&ports, &file, tag).await?;
    say!("Stored the connection {name}. Functions use it within a minute.");
    if driver == Driver::GitHub {
        if let Some(login) = login {
            say!("Its token acts as {login}.");
        }
        say!(
            "Point its webhook at <address of the pages>/api/connection/{name}/payload, content type application/json, all events."
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
    files: SecretFiles,
    check: Check,
) -> anyhow::Result<()> {
    if files.token.is_none() && files.webhook_secret.is_none() {
        bail!(
            "nothing to store: name --token-file, --webhook-secret-file or both (`-` reads one from standard input)"
        );
    }
    let ports = operator(data).await?;
    let Secrets { token, webhook_secret } = secrets(&files)?;
    let name = ConnectionName::from(name);
    let (mut file, tag) = read(&ports).await?;
    let missing = missing(&file, &name);
    let entry = file.0.get_mut(&name).context(missing)?;
    let has_webhooks = !matches!(entry.driver, Driver::Git | Driver::Smtp | Driver::Mqtt);
    if entry.driver == Driver::Aws || (!has_webhooks && webhook_secret.is_some()) {
        bail!("{name} has no such secret: its driver is {}", word(entry.driver));
    }
    let mut told = vec!["Stored.".to_owned()];
    if let Some(plain) = token {
        if check == Check::Asked && entry.driver == Driver::GitHub {
            entry.login = login_of(&name, entry, &plain).await?.or(entry.login.take());
        }
        entry.token = Some(
            connection::seal(&ports, &connection::seal_context(&name, "token"), &plain).await?,
        );
        told.push("The new token is used within a minute.".to_owned());
    }
    if let Some(plain) = webhook_secret {
        let sealed =
            connection::seal(&ports, &connection::seal_context(&name, "webhook-secret"), &plain)
                .await?;
        // The newest first; the one before it stays valid while the forge is told.
        entry.webhook_secrets.insert(0, sealed);
        entry.webhook_secrets.truncate(2);
        told.push(
            "The previous webhook secret stays valid until the next one is stored.".to_owned(),
        );
    }
    write(&ports, &file, tag).await?;
    say!("{}", told.join(" "));
    Ok(())
}

/// Forgets a connection and its secrets.
///
/// # Errors
/// When there is no such connection, the main configuration or a provider uses it, or the store
/// does not answer.
pub async fn remove(data: Option<PathBuf>, name: &str) -> anyhow::Result<()> {
    let ports = operator(data.clone()).await?;
    let name = ConnectionName::from(name);
    let (mut file, tag) = read(&ports).await?;
    let missing = missing(&file, &name);
    let old = file.0.remove(&name).context(missing)?;
    refuse_the_forges_own(&data, &name, Some(&old))?;
    if let Some(user) = tenant::user_of(&ports, &name).await? {
        bail!(
            "the tenant {user} uses {name}; load a main configuration without it first (`sluice tenant load FILE`)"
        );
    }
    if let Some((user, provider)) = tenant::provider_of(&ports, &name).await? {
        bail!(
            "the provider {provider} of tenant {user} launches nodes by {name}, and without it nobody could terminate them; take the provider out of the configuration first and wait until its nodes are gone"
        );
    }
    write(&ports, &file, tag).await?;
    say!("Removed the connection {name} and its secrets. Functions forget it within a minute.");
    Ok(())
}

/// Lists connections.
///
/// # Errors
/// When the store does not answer.
pub async fn list(data: Option<PathBuf>, format: Format) -> anyhow::Result<()> {
    let is_local = desk(data.clone())?.is_some();
    let ports = operator(data).await?;
    let (file, _) = read(&ports).await?;
    if format == Format::Json {
        let rows: Vec<Value> =
            file.0.iter().map(|(name, connection)| row(name, connection)).collect();
        let key = PoolKey::load(&ports).await?.map(|key| key.public);
        say_json(&json!({"connections": rows, "nodes_public_key": key}));
        return Ok(());
    }
    if file.0.is_empty() {
        say!("There are no connections; add one with `sluice connection add`.");
    }
    for (name, connection) in &file.0 {
        say!("{name}: {}", described(connection, is_local));
    }
    if let Some(key) = PoolKey::load(&ports).await? {
        say!(
            "\nNodes are logged in to with this key; a static host needs it among its authorized_keys:\n{}",
            key.public
        );
    }
    Ok(())
}

/// Returns a connection for programs; of its secrets, whether and how many there are.
fn row(name: &ConnectionName, connection: &Connection) -> Value {
    json!({
        "name": name,
        "driver": word(connection.driver),
        "canonical_hostname": connection.canonical_hostname,
        "api_url": connection.api_url,
        "git_url": connection.git_url,
        "login": connection.login,
        "has_token": connection.token.is_some(),
        "webhook_secrets": connection.webhook_secrets.len(),
        "landing": if connection.landing.is_merge() { "merge" } else { "fast-forward" },
    })
}

fn described(connection: &Connection, is_local: bool) -> String {
    let host = &connection.canonical_hostname;
    let token = if connection.token.is_some() { "a token" } else { "no token" };
    let login = connection.login.as_ref().map(|login| format!(" of {login}")).unwrap_or_default();
    match connection.driver {
        // Whatever its host says: functions of a local system call the EC2 beside them, with keys
        // of its own.
        Driver::Aws if is_local => {
            "the nodes of this machine; nothing is launched at Amazon".to_owned()
        }
        Driver::Aws => format!("EC2 at {}", connection.api_url.as_ref().unwrap_or(host)),
        Driver::Git => format!("git at {host} ({}), {token}", connection.git_url),
        driver @ (Driver::Smtp | Driver::Mqtt) => {
            let address = connection.api_url.as_deref().unwrap_or_default();
            let password = if connection.token.is_some() { "a password" } else { "no password" };
            format!("{} at {address}, {password}{login}", word(driver))
        }
        driver => {
            let address = connection.api_url.as_deref().unwrap_or(&connection.git_url);
            let secrets = connection.webhook_secrets.len();
            let landing =
                if connection.landing.is_merge() { "" } else { ", changes land by fast-forward" };
            format!(
                "{} at {host} ({address}), {token}{login}, {secrets} webhook secret(s){landing}",
                word(driver)
            )
        }
    }
}

/// Returns whether nothing of a connection is to change but how its changes land.
fn is_about_landing_alone(added: &Added) -> bool {
    let Added { driver, host, api_url, git_url, login, region, landing, secrets, .. } = added;
    let addresses = [host, api_url, git_url, login, region];
    let files = [&secrets.token, &secrets.webhook_secret];
    landing.is_some()
        && driver.is_none()
        && addresses.iter().all(|given| given.is_none())
        && files.iter().all(|given| given.is_none())
}

/// The forge beside a local system has a connection that each start puts back: changed by hand, it
/// would cut the samples off.
fn refuse_the_forges_own(
    data: &Option<PathBuf>,
    name: &ConnectionName,
    stored: Option<&Connection>,
) -> anyhow::Result<()> {
    let is_forges = stored.is_some_and(|stored| stored.canonical_hostname == HOST);
    match desk(data.clone())?.and_then(|desk| desk.forge) {
        Some(forge) if is_forges && name.as_str() == CONNECTION => bail!(
            "{name} is the connection to the forge beside this system ({forge}): take another name, or start without that forge (`sluice up --no-forge`), best with a --data of its own"
        ),
        _ => Ok(()),
    }
}

/// Asks the forge whose a token is; `None` when it does not say, as to an app.
async fn login_of(
    name: &ConnectionName,
    to: &Connection,
    token: &str,
) -> anyhow::Result<Option<String>> {
    let options = GitHubOptions {
        connection: name.clone(),
        host: to.canonical_hostname.clone(),
        api_url: to.api_url.clone().unwrap_or_default(),
        web_url: to.git_url.clone(),
        token: Secret::new(token.to_owned()),
        own_login: None,
    };
    match GitHub::new(options)?.own_login().await {
        Ok(login) => Ok(Some(login)),
        Err(ForgeError::Refused { .. }) => Ok(None),
        Err(ForgeError::Unauthorised { .. }) => {
            bail!("{} does not accept this token; nothing was stored", to.canonical_hostname)
        }
        Err(error) => Err(error).context(
            "the token could not be tried, so nothing was stored; --no-check stores it without asking the forge",
        ),
    }
}

fn missing(file: &ConnectionsFile, name: &ConnectionName) -> String {
    let known: Vec<_> = file.0.keys().map(ToString::to_string).collect();
    match known.is_empty() {
        true => format!(
            "there is no connection {name}, and no other; one is added with `sluice connection add`"
        ),
        false => format!("there is no connection {name}; there are: {}", known.join(", ")),
    }
}

struct Secrets {
    token: Option<String>,
    webhook_secret: Option<String>,
}

fn secrets(files: &SecretFiles) -> anyhow::Result<Secrets> {
    let is_input = |file: &Option<PathBuf>| file.as_deref() == Some(Path::new("-"));
    if is_input(&files.token) && is_input(&files.webhook_secret) {
        bail!("standard input can hold one secret: name a file for the other");
    }
    Ok(Secrets {
        token: secret(files.token.as_deref())?,
        webhook_secret: secret(files.webhook_secret.as_deref())?,
    })
}

/// Reads a secret, without the line end that editors leave.
fn secret(file: Option<&Path>) -> anyhow::Result<Option<String>> {
    let Some(file) = file else { return Ok(None) };
    let mut text = String::new();
    let is_input = file == Path::new("-");
    if is_input {
        std::io::stdin()
            .read_to_string(&mut text)
            .context("could not read the secret from standard input")?;
    } else {
        text = std::fs::read_to_string(file)
            .with_context(|| format!("could not read {}", file.display()))?;
    }
    let text = text.trim_end_matches(['\r', '\n']);
    if text.is_empty() {
        let from = if is_input { "standard input".to_owned() } else { file.display().to_string() };
        bail!("there is no secret: {from} is empty");
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
