//! Forges, repositories and clouds, made from the connections that an operator stored.
//!
//! A connection that cannot be made is told and left out: the others must go on.

use crate::place::Place;
use crate::pool_key::PoolKey;
use sluice_cloud::{Ec2Driver, Ec2Settings, Site};
use sluice_config::connection::Driver;
use sluice_forge::{Forge, GitHub, GitHubOptions, Secret};
use sluice_git::Credential;
use sluice_launcher::Cloud;
use sluice_model::ConnectionName;
use sluice_notify::{Address, Mqtt, Notify, Smtp};
use sluice_records::connection::{self, Connection, ConnectionsFile};
use sluice_repos::Remote;
use sluice_runtime::PortError;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Returns what speaks to each forge.
///
/// # Errors
/// When a token cannot be opened: then the look is to be tried again.
pub async fn forges(
    place: &Place,
    connections: &ConnectionsFile,
) -> Result<BTreeMap<ConnectionName, Arc<dyn Forge>>, PortError> {
    let mut forges: BTreeMap<ConnectionName, Arc<dyn Forge>> = BTreeMap::new();
    for (name, connection) in of(connections, Driver::GitHub) {
        let Some(token) = token(place, name, connection).await? else {
            tracing::error!(connection = %name, "the connection has no token and is left out: store one with `sluice connection rotate`");
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
            token: Secret::new(token),
            own_login: connection.login.clone(),
        };
        match GitHub::new(options) {
            Ok(forge) => drop(forges.insert(name.clone(), Arc::new(forge))),
            Err(error) => tracing::error!(connection = %name, %error, "the connection is left out"),
        }
    }
    Ok(forges)
}

/// Returns what sends mail and publishes.
///
/// # Errors
/// When a password cannot be opened: then the look is to be tried again.
pub async fn notifiers(
    place: &Place,
    connections: &ConnectionsFile,
) -> Result<BTreeMap<ConnectionName, Arc<dyn Notify>>, PortError> {
    let mut notifiers: BTreeMap<ConnectionName, Arc<dyn Notify>> = BTreeMap::new();
    for (name, connection) in of(connections, Driver::Smtp).chain(of(connections, Driver::Mqtt)) {
        let password = token(place, name, connection).await?.map(sluice_keys::Secret::from);
        match notifier(connection, password) {
            Ok(notifier) => drop(notifiers.insert(name.clone(), notifier)),
            Err(why) => tracing::error!(connection = %name, why, "the connection is left out"),
        }
    }
    Ok(notifiers)
}

fn notifier(
    connection: &Connection,
    password: Option<sluice_keys::Secret>,
) -> Result<Arc<dyn Notify>, String> {
    let address = connection.api_url.as_deref().ok_or("it has no address")?;
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

/// Returns where the repositories of each connection are.
///
/// # Errors
/// When a token cannot be opened: then the look is to be tried again.
pub async fn remotes(
    place: &Place,
    connections: &ConnectionsFile,
) -> Result<BTreeMap<ConnectionName, Remote>, PortError> {
    let mut remotes = BTreeMap::new();
    for (name, connection) in of(connections, Driver::GitHub).chain(of(connections, Driver::Git)) {
        let credential = token(place, name, connection).await?.map(Credential::token);
        let (git_url, landing) = (connection.git_url.clone(), connection.landing);
        remotes.insert(name.clone(), Remote { git_url, credential, landing });
    }
    Ok(remotes)
}

/// Returns the clouds, whose machines accept the pool's key.
pub fn clouds(
    place: &Place,
    connections: &ConnectionsFile,
    key: &PoolKey,
) -> BTreeMap<ConnectionName, Cloud> {
    let mut clouds = BTreeMap::new();
    for (name, connection) in of(connections, Driver::Aws) {
        let own = connection.api_url.as_deref().map(str::parse);
        let endpoint = match own.transpose() {
            Ok(own) => own.or_else(|| place.endpoint.clone()),
            Err(error) => {
                tracing::error!(connection = %name, %error, "the connection's endpoint is no URL; the connection is left out");
                continue;
            }
        };
        let region = region(&connection.canonical_hostname).unwrap_or(&place.region).to_owned();
        match Ec2Driver::new(Ec2Settings { region, endpoint }, place.credentials.clone()) {
            Ok(driver) => {
                let site = Site { authorized_keys: vec![key.public.clone()], ..Site::default() };
                clouds.insert(name.clone(), Cloud { driver: Arc::new(driver), site });
            }
            Err(error) => tracing::error!(connection = %name, %error, "the connection is left out"),
        }
    }
    clouds
}

/// Returns the name by which a region's EC2 is called; it is the host of such a connection.
pub fn ec2_host(region: &str) -> String {
    format!("ec2.{region}.amazonaws.com")
}

/// Returns whether a text has the form of a region's name: `eu-central-1`, `us-gov-west-1`.
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

/// Returns the region of a connection by its host.
fn region(host: &str) -> Option<&str> {
    host.strip_prefix("ec2.")?.strip_suffix(".amazonaws.com")
}

fn of(
    connections: &ConnectionsFile,
    driver: Driver,
) -> impl Iterator<Item = (&ConnectionName, &Connection)> {
    connections.0.iter().filter(move |(_, connection)| connection.driver == driver)
}

async fn token(
    place: &Place,
    name: &ConnectionName,
    connection: &Connection,
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
