//! Authenticators as an operator configured them: one object, with sealed secrets.

use crate::connection;
use serde::{Deserialize, Serialize};
use sluice_auth::Authenticator;
use sluice_runtime::object::{PutMode, PutOutcome};
use sluice_runtime::{PortError, Ports};
use std::collections::BTreeMap;
use url::{Host, Url};

/// The object that stores all authenticators.
pub const OBJECT: &str = "system/authenticators.json";

/// A configured authenticator with its key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredAuthenticator {
    /// What its tokens must be.
    pub settings: Authenticator,
    /// The issuer's public key in PEM, for RS256.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub public_key: Option<String>,
    /// The secret that is shared with the issuer, sealed and in base64, for HS256.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<String>,
}

/// All authenticators by name.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct AuthenticatorsFile(pub BTreeMap<String, StoredAuthenticator>);

/// The authenticators as they were read, with the tag that [`store`] needs to notice another
/// writer.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LoadedAuthenticators {
    /// The authenticators.
    pub file: AuthenticatorsFile,
    /// The tag; `None` if none were ever stored.
    pub tag: Option<String>,
}

/// Returns the sealing context of an authenticator's secret.
pub fn seal_context(name: &str) -> String {
    format!("authenticator/{name}/secret")
}

/// Reads the authenticators; their secrets stay sealed. None if none were ever stored.
///
/// # Errors
/// When the store does not answer, or they cannot be decoded.
pub async fn load(ports: &Ports) -> Result<LoadedAuthenticators, PortError> {
    let Some(object) = ports.objects.get(OBJECT).await? else {
        return Ok(LoadedAuthenticators::default());
    };
    let file = serde_json::from_slice(&object.bytes)
        .map_err(|error| PortError::unknown(format!("read {OBJECT}"), error))?;
    Ok(LoadedAuthenticators { file, tag: Some(object.etag) })
}

/// Replaces the stored authenticators, unless another writer changed them since they were read,
/// which is an outcome.
///
/// # Errors
/// When the store does not answer.
pub async fn store(ports: &Ports, loaded: LoadedAuthenticators) -> Result<PutOutcome, PortError> {
    let mode = loaded.tag.map_or(PutMode::IfAbsent, PutMode::IfMatch);
    let json = serde_json::to_vec_pretty(&loaded.file)
        .map_err(|error| PortError::unknown(format!("write {OBJECT}"), error))?;
    ports.objects.put(OBJECT, json.into(), mode, "application/json").await
}

/// Opens the secret of an authenticator; `None` if it has none.
///
/// # Errors
/// When the key service fails, or the secret was sealed for another authenticator. No error
/// contains the secret.
pub async fn open_secret(
    ports: &Ports,
    stored: &StoredAuthenticator,
) -> Result<Option<String>, PortError> {
    match &stored.secret {
        Some(sealed) => {
            connection::open(ports, &seal_context(&stored.settings.name), sealed).await.map(Some)
        }
        None => Ok(None),
    }
}

/// Returns whether keys may be read from an address: it is https, or http on this machine, and has
/// no user.
pub fn is_trusted_address(address: &str) -> bool {
    let Ok(url) = Url::parse(address) else { return false };
    let is_here = match url.host() {
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        Some(Host::Domain(name)) => name == "localhost",
        None => false,
    };
    let is_private = url.scheme() == "https" || (url.scheme() == "http" && is_here);
    is_private && url.username().is_empty() && url.password().is_none()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// C2.2: keys that someone on the way could replace are not used.
    #[test]
    fn keys_are_read_over_https_or_from_this_machine() {
        for address in [
            "https://login.example.org/realms/one",
            "http://127.0.0.1:9000/",
            "http://localhost/keys",
            "http://[::1]:80/",
        ] {
            assert!(is_trusted_address(address), "{address}");
        }
        for address in [
            "http://login.example.org/",
            "http://127.0.0.1.example.org/",
            "http://localhost@example.org/",
            "https://user@example.org/",
            "ftp://127.0.0.1/",
            "file:///etc/passwd",
            "login.example.org",
            "",
        ] {
            assert!(!is_trusted_address(address), "{address}");
        }
    }
}
