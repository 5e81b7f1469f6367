//! `sluice connection`: adds, changes, lists and removes connections. Secrets are encrypted before
//! they are stored.

mod aws;
mod validate;

pub use aws::{AwsCredentialsReset, AwsOptions};

use super::{counted, operator, operator_access, tenant};
use crate::operator_access::{CONNECTION, HOST};
use crate::output::{OutputFormat, print_json, print_line};
use crate::pool_key;
use crate::secret_file::read_secret;
use anyhow::{Context as _, bail};
use aws::{SecretAccessKeyFile, credentials_json, credentials_phrase};
use bytes::Bytes;
use clap::ValueEnum;
use serde_json::{Value, json};
use sluice_config::connection::Driver;
use sluice_forge::{ForgeError, ForgeSecret, GitHub, GitHubOptions};
use sluice_model::ConnectionName;
use sluice_records::connection::{self, ConnectionsFile, StoredConnection};
use sluice_records::pool_key::PoolKey;
use sluice_runtime::Ports;
use sluice_runtime::object::{PutMode, PutOutcome};
use std::path::{Path, PathBuf};
use validate::{GivenSecrets, driver_name, validated};

/// The drivers of connections that can be added.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum DriverArgument {
    /// GitHub or GitHub Enterprise.
    Github,
    /// A plain git server, for configuration, roles and refs that are polled.
    Git,
    /// Amazon EC2, where nodes come from.
    Aws,
    /// A mail server, for reports.
    Smtp,
    /// An MQTT broker, for reports.
    Mqtt,
}

/// How changes are merged at a forge.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LandingArgument {
    /// Through the forge's merge API.
    Merge,
    /// By moving the branch to the tested commits, several changes at once. The merge API is used
    /// where the token may not push, or where the merge mode creates new commits.
    FastForward,
}

/// The options of `sluice connection add`: a new connection, or changes to an existing one.
#[derive(Debug, Clone, Default)]
pub struct ConnectionChange {
    /// The data directory of a local system; `None` takes the environment's stack or the default
    /// directory.
    pub data: Option<PathBuf>,
    /// The name of the connection.
    pub name: String,
    /// The driver; `None` keeps it, or means GitHub for a new connection.
    pub driver: Option<DriverArgument>,
    /// The host in canonical project names.
    pub host: Option<String>,
    /// The address of the API, mail server or broker.
    pub api_url: Option<String>,
    /// The base address of the repositories.
    pub git_url: Option<String>,
    /// The login of the token's account.
    pub login: Option<String>,
    /// The AWS region.
    pub region: Option<String>,
    /// How changes are merged; `None` keeps it, or means the forge's merge API for a new
    /// connection.
    pub landing: Option<LandingArgument>,
    /// The minutes between two polls of a project at a plain git server; `None` keeps them, or
    /// means two hours for a new connection.
    pub poll_minutes: Option<u32>,
    /// The AWS credentials of a connection to EC2.
    pub aws: AwsOptions,
    /// The files of the secrets.
    pub secrets: SecretFiles,
    /// Whether the token is checked at the forge.
    pub check: TokenCheck,
}

/// The files that secrets are read from; `-` is standard input.
#[derive(Debug, Clone, Default)]
pub struct SecretFiles {
    /// The API token.
    pub token: Option<PathBuf>,
    /// The webhook secret.
    pub webhook_secret: Option<PathBuf>,
    /// The secret access key of AWS.
    pub secret_access_key: Option<PathBuf>,
}

/// Whether a token is checked before it is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TokenCheck {
    /// The forge is asked for the token's account.
    #[default]
    WithForge,
    /// The token is stored unchecked, because the forge cannot be reached from here.
    Skipped,
}

/// Adds a connection, or changes the given options of an existing one, and prints what to do next.
/// Given secrets replace the stored ones; others are kept, unless they would be sent to another
/// host, which is refused, as is another driver. Checks a given GitHub token at the forge, unless
/// `check` skips that, and stores the login of its account if no login is given. For EC2, also
/// creates the key pair of the node pool if there is none. Refuses to change the local forge's
/// connection, except how it merges.
///
/// # Errors
/// When an option is missing or invalid, the forge rejects the token, or the store does not answer.
pub async fn add(change: ConnectionChange) -> anyhow::Result<()> {
    let name = ConnectionName::from(change.name.as_str());
    if change.name.is_empty()
        || !change
            .name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'))
    {
        bail!(
            "could not use {:?} as the name of a connection: use letters, digits, `-`, `_` and `.`",
            change.name
        );
    }
    let ports = operator(change.data.clone()).await?;
    let (mut file, tag) = read(&ports).await?;
    // The local forge's connection may only change how changes are merged: each start keeps that.
    let only_landing = changes_only_landing(&change)
        && operator_access(change.data.clone())?
            .is_some_and(|operator_access| operator_access.forge.is_some());
    if !only_landing {
        refuse_local_forge(&change.data, &name, file.0.get(&name))?;
    }
    let Secrets { token, webhook_secret, secret_access_key } = secrets(&change.secrets)?;
    let given = GivenSecrets {
        token: token.is_some(),
        webhook_secret: webhook_secret.is_some(),
        secret_access_key: match secret_access_key {
            Some(_) => SecretAccessKeyFile::Given,
            None => SecretAccessKeyFile::Missing,
        },
    };
    // A connection left over from the local forge is not reused for another forge.
    let old = file.0.remove(&name).filter(|old| only_landing || old.canonical_hostname != HOST);
    let mut made = validated(&change, old.as_ref(), given)?;
    if let Some(token) = token {
        if change.check == TokenCheck::WithForge && made.driver == Driver::GitHub {
            let login = login_of(&name, &made, &token).await?;
            made.login = change.login.clone().or(login).or(made.login);
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
    if let (Some(plain), Some(key)) = (secret_access_key, &mut made.aws.access_key) {
        let context = connection::seal_context(&name, connection::SECRET_ACCESS_KEY);
        key.sealed_secret = connection::seal(&ports, &context, &plain).await?;
    }
    if made.driver == Driver::Aws {
        pool_key::ensure(&ports).await?;
    }
    let (driver, login) = (made.driver, made.login.clone());
    let credentials = credentials_phrase(&made.aws);
    file.0.insert(name.clone(), made);
    write(&ports, &file, tag).await?;
    print_line!("Stored the connection {name}. Functions use it within a minute.");
    if driver == Driver::Aws {
        print_line!("It calls EC2 with {credentials}.");
    }
    if driver == Driver::GitHub {
        if let Some(login) = login {
            print_line!("Its token belongs to the account {login}.");
        }
        print_line!(
            "Point its webhook at <address of the pages>/api/connection/{name}/payload, content type application/json, all events."
        );
    }
    Ok(())
}

/// Stores a new token or password, a new webhook secret, or both, for an existing connection. The
/// previous webhook secret stays valid until the next rotation; the previous token is replaced at
/// once. A GitHub token is checked at the forge if `check` says so, and its login is stored. An
/// error if no secret is given, or the driver does not use such a secret. Does not refuse the local
/// forge's connection.
///
/// # Errors
/// When there is no such connection, nothing to store, or the store does not answer.
pub async fn rotate(
    data: Option<PathBuf>,
    name: &str,
    files: SecretFiles,
    check: TokenCheck,
) -> anyhow::Result<()> {
    if files.token.is_none() && files.webhook_secret.is_none() {
        bail!(
            "could not rotate the secrets: name --token-file, --webhook-secret-file or both (`-` reads one from standard input)"
        );
    }
    let ports = operator(data).await?;
    let Secrets { token, webhook_secret, .. } = secrets(&files)?;
    let name = ConnectionName::from(name);
    let (mut file, tag) = read(&ports).await?;
    let unknown_connection = unknown_connection(&file, &name);
    let entry = file.0.get_mut(&name).context(unknown_connection)?;
    let has_webhooks = !matches!(entry.driver, Driver::Git | Driver::Smtp | Driver::Mqtt);
    if entry.driver == Driver::Aws {
        bail!(
            "could not rotate the secret of {name}: store the new access key of a connection to EC2 with `sluice connection add {name} --access-key-id ID --secret-access-key-file FILE`"
        );
    }
    if !has_webhooks && webhook_secret.is_some() {
        bail!(
            "could not rotate the secret of {name}: connections with the driver {} do not have it",
            driver_name(entry.driver)
        );
    }
    let mut messages = vec!["Stored.".to_owned()];
    if let Some(plain) = token {
        if check == TokenCheck::WithForge && entry.driver == Driver::GitHub {
            entry.login = login_of(&name, entry, &plain).await?.or(entry.login.take());
        }
        entry.token = Some(
            connection::seal(&ports, &connection::seal_context(&name, "token"), &plain).await?,
        );
        messages.push("The new token is used within a minute.".to_owned());
    }
    if let Some(plain) = webhook_secret {
        let sealed =
            connection::seal(&ports, &connection::seal_context(&name, "webhook-secret"), &plain)
                .await?;
        // The newest secret first. The previous one stays valid until the forge uses the new one.
        entry.webhook_secrets.insert(0, sealed);
        entry.webhook_secrets.truncate(2);
        messages.push(
            "The previous webhook secret stays valid until the next one is stored.".to_owned(),
        );
    }
    write(&ports, &file, tag).await?;
    print_line!("{}", messages.join(" "));
    Ok(())
}

/// Removes a connection and its secrets. Refused if it is the local forge's, if a tenant of the
/// stored main configuration has projects of it, or if a live provider uses it.
///
/// # Errors
/// When the connection is unknown, a tenant or provider still uses it, or the store does not
/// answer.
pub async fn remove(data: Option<PathBuf>, name: &str) -> anyhow::Result<()> {
    let ports = operator(data.clone()).await?;
    let name = ConnectionName::from(name);
    let (mut file, tag) = read(&ports).await?;
    let unknown_connection = unknown_connection(&file, &name);
    let old = file.0.remove(&name).context(unknown_connection)?;
    refuse_local_forge(&data, &name, Some(&old))?;
    if let Some(user) = tenant::user_of(&ports, &name).await? {
        bail!(
            "could not remove the connection {name}: tenant {user} uses it; load a main configuration without it first (`sluice tenant load FILE`)"
        );
    }
    if let Some((user, provider)) = tenant::provider_of(&ports, &name).await? {
        bail!(
            "could not remove the connection {name}: the provider {provider} of tenant {user} launches nodes with it, and they could not be terminated any more; remove the provider from the configuration first and wait until its nodes are gone"
        );
    }
    write(&ports, &file, tag).await?;
    print_line!(
        "Removed the connection {name} and its secrets. Functions stop using it within a minute."
    );
    Ok(())
}

/// Prints one connection without its secrets, as text or JSON. Of a connection to EC2 it says whose
/// AWS credentials are used.
///
/// # Errors
/// When there is no such connection, or the store does not answer.
pub async fn show(data: Option<PathBuf>, name: &str, format: OutputFormat) -> anyhow::Result<()> {
    let is_local = operator_access(data.clone())?.is_some();
    let ports = operator(data).await?;
    let name = ConnectionName::from(name);
    let (file, _) = read(&ports).await?;
    let stored = file.0.get(&name).with_context(|| unknown_connection(&file, &name))?;
    if format == OutputFormat::Json {
        print_json(&to_json(&name, stored));
        return Ok(());
    }
    print_line!("{name}: {}", description(stored, is_local));
    Ok(())
}

/// Prints the connections without their secrets, as text or JSON, and the public key of the node
/// pool if there is one.
///
/// # Errors
/// When the store does not answer.
pub async fn list(data: Option<PathBuf>, format: OutputFormat) -> anyhow::Result<()> {
    let is_local = operator_access(data.clone())?.is_some();
    let ports = operator(data).await?;
    let (file, _) = read(&ports).await?;
    if format == OutputFormat::Json {
        let rows: Vec<Value> =
            file.0.iter().map(|(name, connection)| to_json(name, connection)).collect();
        let key = PoolKey::load(&ports).await?.map(|key| key.public);
        print_json(&json!({"connections": rows, "nodes_public_key": key}));
        return Ok(());
    }
    if file.0.is_empty() {
        print_line!("There are no connections; add one with `sluice connection add`.");
    }
    for (name, connection) in &file.0 {
        print_line!("{name}: {}", description(connection, is_local));
    }
    if let Some(key) = PoolKey::load(&ports).await? {
        print_line!(
            "\nPublic key of the node pool; add it to the authorized_keys of static hosts:\n{}",
            key.public
        );
    }
    Ok(())
}

/// Returns a connection as JSON: whether it has a token, and how many webhook secrets, but no
/// secret itself.
fn to_json(name: &ConnectionName, connection: &StoredConnection) -> Value {
    json!({
        "name": name,
        "driver": driver_name(connection.driver),
        "canonical_hostname": connection.canonical_hostname,
        "api_url": connection.api_url,
        "git_url": connection.git_url,
        "login": connection.login,
        "has_token": connection.token.is_some(),
        "webhook_secrets": connection.webhook_secrets.len(),
        "landing": if connection.landing.is_merge() { "merge" } else { "fast-forward" },
        "poll_minutes": (connection.driver == Driver::Git).then(|| connection.poll_minutes()),
        "aws_credentials":
            (connection.driver == Driver::Aws).then(|| credentials_json(&connection.aws)),
    })
}

/// Returns a connection as one line of text for `sluice connection list`, without its name: the
/// driver, the host and address, and which secrets it has, but not their values. `is_local` says
/// that it is of a local system, whose AWS connections are emulated.
fn description(connection: &StoredConnection, is_local: bool) -> String {
    let host = &connection.canonical_hostname;
    let token = if connection.token.is_some() { "a token" } else { "no token" };
    let login = connection
        .login
        .as_ref()
        .map(|login| format!(" of the account {login}"))
        .unwrap_or_default();
    match connection.driver {
        // In a local system, functions always call the EC2 emulator, whatever the host is.
        Driver::Aws if is_local => format!(
            "the emulated nodes of this machine, with {}; nothing is launched at Amazon",
            credentials_phrase(&connection.aws)
        ),
        Driver::Aws => {
            let address = connection.api_url.as_ref().unwrap_or(host);
            format!("EC2 at {address}, with {}", credentials_phrase(&connection.aws))
        }
        Driver::Git => format!(
            "git at {host} ({}), {token}, polled every {}",
            connection.git_url,
            counted(usize::try_from(connection.poll_minutes()).unwrap_or(usize::MAX), "minute")
        ),
        driver @ (Driver::Smtp | Driver::Mqtt) => {
            let address = connection.api_url.as_deref().unwrap_or_default();
            let password = if connection.token.is_some() { "a password" } else { "no password" };
            format!("{} at {address}, {password}{login}", driver_name(driver))
        }
        driver => {
            let address = connection.api_url.as_deref().unwrap_or(&connection.git_url);
            let secrets = counted(connection.webhook_secrets.len(), "webhook secret");
            let landing =
                if connection.landing.is_merge() { "" } else { ", merges by fast-forward" };
            format!(
                "{} at {host} ({address}), {token}{login}, {secrets}{landing}",
                driver_name(driver)
            )
        }
    }
}

/// Returns whether a change sets how changes are merged and nothing else: neither driver,
/// addresses, login, region nor secrets.
fn changes_only_landing(change: &ConnectionChange) -> bool {
    let ConnectionChange {
        driver,
        host,
        api_url,
        git_url,
        login,
        region,
        landing,
        poll_minutes,
        aws,
        secrets,
        ..
    } = change;
    let addresses = [host, api_url, git_url, login, region];
    let files = [&secrets.token, &secrets.webhook_secret, &secrets.secret_access_key];
    landing.is_some()
        && aws.is_empty()
        && driver.is_none()
        && poll_minutes.is_none()
        && addresses.iter().all(|given| given.is_none())
        && files.iter().all(|given| given.is_none())
}

/// Returns an error if `stored` is the local forge's own connection, which each start restores: the
/// sample repositories would stop working. Allows everything else, and also that connection if the
/// system runs without the forge or is on AWS. `data` is the directory given on the command line.
/// `None` means AWS if `SLUICE_TABLE` is set, else the default directory. An error, too, if that
/// system's access file cannot be read.
fn refuse_local_forge(
    data: &Option<PathBuf>,
    name: &ConnectionName,
    stored: Option<&StoredConnection>,
) -> anyhow::Result<()> {
    let is_local_forge = stored.is_some_and(|stored| stored.canonical_hostname == HOST);
    match operator_access(data.clone())?.and_then(|operator_access| operator_access.forge) {
        Some(forge) if is_local_forge && name.as_str() == CONNECTION => bail!(
            "could not change {name}: it is the connection to the local forge ({forge}); take another name, or start without that forge (`sluice up --no-forge`), best with another --data directory"
        ),
        _ => Ok(()),
    }
}

/// Returns the login of the account that a GitHub token belongs to, as the forge of `to` gives it.
/// `None` if the forge refuses to say it, as for GitHub apps. An error if the forge rejects the
/// token or does not answer. Stores nothing.
async fn login_of(
    name: &ConnectionName,
    to: &StoredConnection,
    token: &str,
) -> anyhow::Result<Option<String>> {
    let options = GitHubOptions {
        connection: name.clone(),
        host: to.canonical_hostname.clone(),
        api_url: to.api_url.clone().unwrap_or_default(),
        web_url: to.git_url.clone(),
        token: ForgeSecret::new(token.to_owned()),
        own_login: None,
    };
    match GitHub::new(options)?.own_login().await {
        Ok(login) => Ok(Some(login)),
        Err(ForgeError::Refused { .. }) => Ok(None),
        Err(ForgeError::Unauthorised { .. }) => {
            bail!("could not use this token: {} rejects it; nothing was stored", to.canonical_hostname)
        }
        Err(error) => Err(error).context(
            "could not check the token at the forge; nothing was stored. --no-check stores it unchecked",
        ),
    }
}

/// Returns the error text for a connection that does not exist, with the names of those that do.
fn unknown_connection(file: &ConnectionsFile, name: &ConnectionName) -> String {
    let names: Vec<_> = file.0.keys().map(ToString::to_string).collect();
    match names.is_empty() {
        true => format!(
            "there is no connection {name}, nor any other; add one with `sluice connection add`"
        ),
        false => format!("there is no connection {name}; connections: {}", names.join(", ")),
    }
}

struct Secrets {
    token: Option<String>,
    webhook_secret: Option<String>,
    secret_access_key: Option<String>,
}

/// Reads the secrets from their files. Each is `None` without a file. `-` is standard input, which
/// only one of them may be. An error for an empty file.
fn secrets(files: &SecretFiles) -> anyhow::Result<Secrets> {
    let is_input = |file: &Option<PathBuf>| file.as_deref() == Some(Path::new("-"));
    let all = [&files.token, &files.webhook_secret, &files.secret_access_key];
    if all.into_iter().filter(|file| is_input(file)).count() > 1 {
        bail!("could not read several secrets from standard input: name files for the others");
    }
    Ok(Secrets {
        token: read_secret(files.token.as_deref())?,
        webhook_secret: read_secret(files.webhook_secret.as_deref())?,
        secret_access_key: read_secret(files.secret_access_key.as_deref())?,
    })
}

/// Reads the stored connections, with the tag that `write` needs to notice another writer. Without
/// a stored object, returns no connections and no tag.
async fn read(ports: &Ports) -> anyhow::Result<(ConnectionsFile, Option<String>)> {
    match ports.objects.get(connection::OBJECT).await? {
        Some(object) => Ok((
            serde_json::from_slice(&object.bytes)
                .context("could not read the stored connections: the object is damaged")?,
            Some(object.etag),
        )),
        None => Ok((ConnectionsFile::default(), None)),
    }
}

/// Replaces the stored connections by `file`, which must have all of them. `tag` is the one that
/// [`read`] returned; `None` means that none are stored yet. An error, and nothing is written, if
/// another writer changed them since.
async fn write(ports: &Ports, file: &ConnectionsFile, tag: Option<String>) -> anyhow::Result<()> {
    let mode = tag.map_or(PutMode::IfAbsent, PutMode::IfMatch);
    let json = Bytes::from(serde_json::to_vec_pretty(file)?);
    match ports.objects.put(connection::OBJECT, json, mode, "application/json").await? {
        PutOutcome::Yes => Ok(()),
        _ => {
            bail!("could not store the connections: they were changed concurrently; run this again")
        }
    }
}
