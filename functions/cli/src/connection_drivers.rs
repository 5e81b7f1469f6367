//! Builds forges, notifiers, repositories and clouds from the stored connections.
//!
//! A connection that cannot be built is logged and skipped, so that the others still work.

use crate::environment::FunctionEnvironment;
use crate::pool_key::PoolKey;
use sluice_cloud::{Ec2Driver, Ec2Settings, LaunchSettings};
use sluice_config::connection::Driver;
use sluice_forge::{Forge, ForgeSecret, GitHub, GitHubOptions};
use sluice_git::Credential;
use sluice_launcher::Cloud;
use sluice_model::ConnectionName;
use sluice_notify::{Address, Mqtt, Notify, Smtp};
use sluice_records::connection::{self, ConnectionsFile, StoredConnection};
use sluice_repos::Remote;
use sluice_runtime::PortError;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Returns a client for each connection to a forge. Logs and skips connections without a token.
///
/// # Errors
/// When a token cannot be decrypted: the caller tries again later.
pub async fn forges(
    place: &FunctionEnvironment,
    connections: &ConnectionsFile,
) -> Result<BTreeMap<ConnectionName, Arc<dyn Forge>>, PortError> {
    let mut forges: BTreeMap<ConnectionName, Arc<dyn Forge>> = BTreeMap::new();
    for (name, connection) in with_driver(connections, Driver::GitHub) {
        let Some(decrypted_token) = decrypted_token(place, name, connection).await? else {
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

/// Returns a client for each mail server and MQTT broker.
///
/// # Errors
/// When a password cannot be decrypted: the caller tries again later.
pub async fn notifiers(
    place: &FunctionEnvironment,
    connections: &ConnectionsFile,
) -> Result<BTreeMap<ConnectionName, Arc<dyn Notify>>, PortError> {
    let mut notifiers: BTreeMap<ConnectionName, Arc<dyn Notify>> = BTreeMap::new();
    for (name, connection) in
        with_driver(connections, Driver::Smtp).chain(with_driver(connections, Driver::Mqtt))
    {
        let password =
            decrypted_token(place, name, connection).await?.map(sluice_keys::Secret::from);
        match build_notifier(connection, password) {
            Ok(build_notifier) => drop(notifiers.insert(name.clone(), build_notifier)),
            Err(why) => {
                tracing::error!(connection = %name, why, "could not set up the connection; it is skipped")
            }
        }
    }
    Ok(notifiers)
}

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

/// Returns the git address, credential and merge method of each connection with repositories.
///
/// # Errors
/// When a token cannot be decrypted: the caller tries again later.
pub async fn remotes(
    place: &FunctionEnvironment,
    connections: &ConnectionsFile,
) -> Result<BTreeMap<ConnectionName, Remote>, PortError> {
    let mut remotes = BTreeMap::new();
    for (name, connection) in
        with_driver(connections, Driver::GitHub).chain(with_driver(connections, Driver::Git))
    {
        let credential = decrypted_token(place, name, connection).await?.map(Credential::token);
        let (git_url, landing) = (connection.git_url.clone(), connection.landing);
        remotes.insert(name.clone(), Remote { git_url, credential, landing });
    }
    Ok(remotes)
}

/// Returns a client for each AWS connection, whose machines accept the pool's key.
pub fn clouds(
    place: &FunctionEnvironment,
    connections: &ConnectionsFile,
    key: &PoolKey,
) -> BTreeMap<ConnectionName, Cloud> {
    let mut clouds = BTreeMap::new();
    for (name, connection) in with_driver(connections, Driver::Aws) {
        let own = connection.api_url.as_deref().map(str::parse);
        let endpoint = match own.transpose() {
            Ok(own) => own.or_else(|| place.endpoint.clone()),
            Err(error) => {
                tracing::error!(connection = %name, %error, "the connection's --api-url is not a URL; the connection is skipped");
                continue;
            }
        };
        let region = region(&connection.canonical_hostname).unwrap_or(&place.region).to_owned();
        match Ec2Driver::new(Ec2Settings { region, endpoint }, place.credentials.clone()) {
            Ok(driver) => {
                let site = LaunchSettings {
                    authorized_keys: vec![key.public.clone()],
                    ..LaunchSettings::default()
                };
                clouds.insert(name.clone(), Cloud { driver: Arc::new(driver), site });
            }
            Err(error) => {
                tracing::error!(connection = %name, %error, "could not set up the connection; it is skipped")
            }
        }
    }
    clouds
}

/// Returns the host name of a region's EC2 API, which identifies a connection to it.
pub fn ec2_host(region: &str) -> String {
    format!("ec2.{region}.amazonaws.com")
}

/// Returns whether a text has the form of an AWS region name: `eu-central-1`, `us-gov-west-1`.
pub fn is_region(text: &str) -> bool {
    let parts: Vec<&str> = text.split('-').collect();
    let is_word =
        |part: &&str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_lowercase());
    match parts.as_slice() {
        [words @ .., number] => {
            words.len() >= 2
                && words.iter().all(is_word)
                && matches!(number.as_bytes(), [b'1'..=b'9'])
        }
        [] => false,
    }
}

/// Returns the region in the host name of an EC2 connection; `None` for another host.
fn region(host: &str) -> Option<&str> {
    host.strip_prefix("ec2.")?.strip_suffix(".amazonaws.com")
}

fn with_driver(
    connections: &ConnectionsFile,
    driver: Driver,
) -> impl Iterator<Item = (&ConnectionName, &StoredConnection)> {
    connections.0.iter().filter(move |(_, connection)| connection.driver == driver)
}

async fn decrypted_token(
    place: &FunctionEnvironment,
    name: &ConnectionName,
    connection: &StoredConnection,
) -> Result<Option<String>, PortError> {
    let Some(sealed) = &connection.token else { return Ok(None) };
    connection::open(&place.ports, &connection::seal_context(name, "token"), sealed).await.map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_host_of_a_connection_to_ec2_names_its_region() {
        assert_eq!(region(&ec2_host("eu-central-1")), Some("eu-central-1"));
        assert_eq!(region("ec2"), None);
        assert!(["eu-central-1", "us-gov-west-1"].into_iter().all(is_region));
        assert!(!["nowhere", "eu-central", "eu--1", "EU-central-1", ""].into_iter().any(is_region));
    }
}
