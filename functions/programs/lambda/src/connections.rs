//! Builds forges, notifiers and repositories from the stored connections.
//!
//! A connection that cannot be built is logged and skipped, so that the others still work.

use sluice_config::connection::Driver;
use sluice_forge::{Forge, ForgeSecret, GitHub, GitHubOptions};
use sluice_git::Credential;
use sluice_handler::FunctionEnvironment;
use sluice_model::ConnectionName;
use sluice_notify::{Address, Mqtt, Notify, Smtp};
use sluice_records::connection::{self, ConnectionsFile, StoredConnection};
use sluice_repos::Remote;
use sluice_runtime::PortError;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Returns a client for each connection to GitHub, by name; other drivers have none. Leaves out,
/// with an error in the log, connections without a token and those for which no client can be
/// built. A token that cannot be decrypted is an error. No forge is called.
///
/// # Errors
/// When a token cannot be decrypted: the caller tries again later.
pub(crate) async fn forges(
    environment: &FunctionEnvironment,
    connections: &ConnectionsFile,
) -> Result<BTreeMap<ConnectionName, Arc<dyn Forge>>, PortError> {
    let mut forges: BTreeMap<ConnectionName, Arc<dyn Forge>> = BTreeMap::new();
    for (name, connection) in connections.with_driver(Driver::GitHub) {
        let Some(decrypted_token) = decrypted_token(environment, name, connection).await? else {
            tracing::error!(connection = %name, "the connection has no token and is skipped: store one with `sluice connection rotate`");
            continue;
        };
        let options = GitHubOptions {
            connection: name.clone(),
            host: connection.canonical_hostname.clone(),
            api_url: connection
                .api_url
                .clone()
                .unwrap_or_else(|| "https://api.github.com".to_owned()),
            web_url: connection.git_url.clone(),
            token: ForgeSecret::new(decrypted_token),
            own_login: connection.login.clone(),
        };
        match GitHub::new(options) {
            Ok(forge) => drop(forges.insert(name.clone(), Arc::new(forge))),
            Err(error) => {
                tracing::error!(connection = %name, %error, "could not set up the connection; it is skipped")
            }
        }
    }
    Ok(forges)
}

/// Returns a client for each connection to a mail server or MQTT broker, by name. Leaves out, with
/// an error in the log, those for which no client can be built, for instance without a valid
/// address. A password that cannot be decrypted is an error. No server is called.
///
/// # Errors
/// When a password cannot be decrypted: the caller tries again later.
pub(crate) async fn notifiers(
    environment: &FunctionEnvironment,
    connections: &ConnectionsFile,
) -> Result<BTreeMap<ConnectionName, Arc<dyn Notify>>, PortError> {
    let mut notifiers: BTreeMap<ConnectionName, Arc<dyn Notify>> = BTreeMap::new();
    for (name, connection) in
        connections.with_driver(Driver::Smtp).chain(connections.with_driver(Driver::Mqtt))
    {
        let password =
            decrypted_token(environment, name, connection).await?.map(sluice_keys::Secret::from);
        match build_notifier(connection, password) {
            Ok(build_notifier) => drop(notifiers.insert(name.clone(), build_notifier)),
            Err(why) => {
                tracing::error!(connection = %name, why, "could not set up the connection; it is skipped")
            }
        }
    }
    Ok(notifiers)
}

/// Returns a client for a mail server or MQTT broker; the scheme of the stored address decides
/// which. Does not connect. If only one of login and password is there, the client of a broker uses
/// neither, and that of a mail server is an error. The error says why no client can be built.
fn build_notifier(
    connection: &StoredConnection,
    password: Option<sluice_keys::Secret>,
) -> Result<Arc<dyn Notify>, String> {
    let address = connection.api_url.as_deref().ok_or("its address is missing")?;
    let address = Address::parse(address).map_err(|error| error.to_string())?;
    if address.is_mail() {
        let made = Smtp::new(address, connection.login.as_deref(), password.as_ref());
        return made
            .map(|made| Arc::new(made) as Arc<dyn Notify>)
            .map_err(|error| error.to_string());
    }
    let login = connection.login.clone().zip(password);
    let made = Mqtt::new(address, login).map_err(|error| error.to_string())?;
    Ok(Arc::new(made))
}

/// Returns the git address, credential and merge method of each GitHub or plain git connection, by
/// name. A connection without a token has no credential, as for public repositories. A token that
/// cannot be decrypted is an error.
///
/// # Errors
/// When a token cannot be decrypted: the caller tries again later.
pub(crate) async fn remotes(
    environment: &FunctionEnvironment,
    connections: &ConnectionsFile,
) -> Result<BTreeMap<ConnectionName, Remote>, PortError> {
    let mut remotes = BTreeMap::new();
    for (name, connection) in
        connections.with_driver(Driver::GitHub).chain(connections.with_driver(Driver::Git))
    {
        let credential =
            decrypted_token(environment, name, connection).await?.map(Credential::token);
        let (git_url, landing) = (connection.git_url.clone(), connection.landing);
        remotes.insert(name.clone(), Remote { git_url, credential, landing });
    }
    Ok(remotes)
}

/// Decrypts a connection's token or password. `None` if the connection has none; an error if it
/// cannot be decrypted.
async fn decrypted_token(
    environment: &FunctionEnvironment,
    name: &ConnectionName,
    connection: &StoredConnection,
) -> Result<Option<String>, PortError> {
    let Some(sealed) = &connection.token else { return Ok(None) };
    connection::open(&environment.ports, &connection::seal_context(name, "token"), sealed)
        .await
        .map(Some)
}
