//! `sluice authenticator`: adds, lists and removes authenticators, which accept the tokens of users
//! of the API. Secrets are encrypted before they are stored.

use super::operator;
use super::secret_file::read_secret;
use crate::output::{OutputFormat, print_json, print_line};
use anyhow::{Context as _, bail, ensure};
use clap::ValueEnum;
use serde_json::{Value, json};
pub use sluice_auth::LoadUserInfo;
use sluice_auth::{Authenticator, AuthenticatorDriver, AuthenticatorSet};
use sluice_keys::{Secret, SignatureKey};
use sluice_records::authenticators::{
    self, LoadedAuthenticators, StoredAuthenticator, is_trusted_address, seal_context,
};
use sluice_records::connection::seal;
use sluice_runtime::Ports;
use sluice_runtime::object::PutOutcome;
use std::path::PathBuf;

/// The drivers of authenticators.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum AuthenticatorDriverArgument {
    /// Tokens signed with a secret that the issuer and Sluice share.
    Hs256,
    /// Tokens signed with an RSA key whose public half is stored here.
    Rs256,
    /// Tokens of an OpenID provider, which publishes its keys.
    #[value(name = "openid-connect", alias = "OpenIDConnect")]
    OpenIdConnect,
}

/// The options of `sluice authenticator add`.
#[derive(Debug, Clone)]
pub struct AuthenticatorOptions {
    /// The data directory of a local system; `None` takes the environment's stack or the default
    /// directory.
    pub data: Option<PathBuf>,
    /// The name.
    pub name: String,
    /// How tokens are signed.
    pub driver: AuthenticatorDriverArgument,
    /// The realm; `None` takes the name.
    pub realm: Option<String>,
    /// The client for which clients log in.
    pub client_id: String,
    /// The audience of tokens; `None` takes the client.
    pub audience: Option<String>,
    /// Where clients log in; `None` takes the issuer.
    pub authority: Option<String>,
    /// The issuer of tokens.
    pub issuer_id: String,
    /// The claim that identifies the user.
    pub uid_claim: String,
    /// Seconds after its issue for which a token is accepted; `None` has no limit.
    pub max_validity_seconds: Option<u64>,
    /// Seconds by which the issuer's clock may differ.
    pub skew_seconds: u64,
    /// Whether the pages log in with it.
    pub is_default: bool,
    /// Whether tokens may make their bearer an administrator.
    pub allows_override: bool,
    /// The file with the shared secret; `-` is standard input.
    pub secret_file: Option<PathBuf>,
    /// The file with the public key.
    pub public_key_file: Option<PathBuf>,
    /// The address of the provider's keys.
    pub keys_url: Option<String>,
    /// What clients request of the provider.
    pub scope: String,
    /// Whether the pages read more about the user from the provider.
    pub load_user_info: LoadUserInfo,
}

/// Adds an authenticator, or replaces the one of this name, and prints what that means. A shared
/// secret that is not given again is kept. Its issuer and realm must be no other authenticator's.
/// The default one replaces the default before.
///
/// # Errors
/// When an option is missing or cannot be used, or the store does not answer.
pub async fn add(options: AuthenticatorOptions) -> anyhow::Result<()> {
    let settings = settings(&options)?;
    let ports = operator(options.data.clone()).await?;
    let mut loaded = authenticators::load(&ports).await?;
    let old = loaded.file.0.remove(&settings.name);
    let stored = with_key(&ports, &options, settings, old).await?;
    if stored.settings.is_default {
        loaded.file.0.values_mut().for_each(|other| other.settings.is_default = false);
    }
    let name = stored.settings.name.clone();
    loaded.file.0.insert(name.clone(), stored);
    let all = loaded.file.0.values().map(|one| one.settings.clone()).collect();
    AuthenticatorSet::new(all).with_context(|| format!("could not add {name}"))?;
    write(&ports, loaded).await?;
    print_line!("Stored the authenticator {name}. The API uses it within 15 seconds.");
    print_line!(
        "What its users may do is in the main configuration: access-rules, admin-rules, role-mappings."
    );
    Ok(())
}

/// Returns the settings of the options.
fn settings(options: &AuthenticatorOptions) -> anyhow::Result<Authenticator> {
    let name = &options.name;
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    ensure!(
        !name.is_empty() && name.bytes().all(is_plain),
        "could not use {name:?} as the name of an authenticator: use letters, digits, `-`, `_` and `.`"
    );
    let driver = match options.driver {
        AuthenticatorDriverArgument::Hs256 => AuthenticatorDriver::Hs256,
        AuthenticatorDriverArgument::Rs256 => AuthenticatorDriver::Rs256,
        AuthenticatorDriverArgument::OpenIdConnect => {
            let addresses = [Some(&options.issuer_id), options.keys_url.as_ref()];
            for address in addresses.into_iter().flatten() {
                ensure!(
                    is_trusted_address(address),
                    "could not use {address}: keys are read over https only, or http from this machine"
                );
            }
            AuthenticatorDriver::OpenIDConnect {
                keys_url: options.keys_url.clone(),
                scope: options.scope.clone(),
                load_user_info: options.load_user_info,
            }
        }
    };
    Ok(Authenticator {
        name: name.clone(),
        driver,
        realm: options.realm.clone().unwrap_or_else(|| name.clone()),
        client_id: options.client_id.clone(),
        audience: options.audience.clone(),
        authority: options.authority.clone(),
        issuer_id: options.issuer_id.clone(),
        uid_claim: options.uid_claim.clone(),
        max_validity_seconds: options.max_validity_seconds,
        skew_seconds: options.skew_seconds,
        is_default: options.is_default,
        allows_override: options.allows_override,
    })
}

/// Returns the authenticator with the key that its driver needs, checked and sealed. `old` is the
/// one that it replaces.
async fn with_key(
    ports: &Ports,
    options: &AuthenticatorOptions,
    settings: Authenticator,
    old: Option<StoredAuthenticator>,
) -> anyhow::Result<StoredAuthenticator> {
    let name = settings.name.clone();
    let needs = |option: &str| format!("could not add {name}: name the file with {option}");
    let mut stored = StoredAuthenticator { settings, public_key: None, secret: None };
    match stored.settings.driver {
        AuthenticatorDriver::Hs256 => {
            stored.secret = match read_secret(options.secret_file.as_deref())? {
                Some(secret) => {
                    SignatureKey::shared(&Secret::from(secret.clone()))?;
                    Some(seal(ports, &seal_context(&name), &secret).await?)
                }
                None => old.and_then(|old| old.secret),
            };
            ensure!(stored.secret.is_some(), needs("--secret-file"));
        }
        AuthenticatorDriver::Rs256 => {
            let path = options.public_key_file.as_ref();
            let path = path.with_context(|| needs("--public-key-file"))?;
            let text = std::fs::read_to_string(path)
                .with_context(|| format!("could not read {}", path.display()))?;
            SignatureKey::public_from_pem(&text)
                .with_context(|| format!("could not use {}", path.display()))?;
            stored.public_key = Some(text);
        }
        AuthenticatorDriver::OpenIDConnect { .. } => {}
    }
    Ok(stored)
}

/// Removes an authenticator with its secret. Its tokens are accepted for 15 seconds more.
///
/// # Errors
/// When there is none of this name, or the store does not answer.
pub async fn remove(data: Option<PathBuf>, name: &str) -> anyhow::Result<()> {
    let ports = operator(data).await?;
    let mut loaded = authenticators::load(&ports).await?;
    if loaded.file.0.remove(name).is_none() {
        let names: Vec<_> = loaded.file.0.keys().cloned().collect();
        bail!("there is no authenticator {name}; authenticators: {}", names.join(", "));
    }
    write(&ports, loaded).await?;
    print_line!(
        "Removed the authenticator {name} and its secret. Its tokens are refused within 15 seconds."
    );
    Ok(())
}

/// Prints the authenticators without their secrets, as text or JSON.
///
/// # Errors
/// When the store does not answer.
pub async fn list(data: Option<PathBuf>, format: OutputFormat) -> anyhow::Result<()> {
    let ports = operator(data).await?;
    let loaded = authenticators::load(&ports).await?;
    if format == OutputFormat::Json {
        print_json(&Value::Array(loaded.file.0.values().map(to_json).collect()));
        return Ok(());
    }
    if loaded.file.0.is_empty() {
        print_line!(
            "There are no authenticators, so nothing can be changed over the API; add one with `sluice authenticator add`."
        );
    }
    for StoredAuthenticator { settings, .. } in loaded.file.0.values() {
        let Authenticator { name, realm, client_id, issuer_id, .. } = settings;
        let default = if settings.is_default { ", the default" } else { "" };
        let admin = match settings.allows_override {
            true => ", whose tokens may make their bearer an administrator",
            false => "",
        };
        print_line!(
            "{name}: {}, realm {realm}, tokens of {issuer_id} for {client_id}{default}{admin}",
            settings.driver_name()
        );
    }
    Ok(())
}

/// Returns an authenticator as JSON, without its secret.
fn to_json(stored: &StoredAuthenticator) -> Value {
    let settings = &stored.settings;
    json!({
        "name": settings.name,
        "driver": settings.driver_name(),
        "realm": settings.realm,
        "client_id": settings.client_id,
        "audience": settings.audience(),
        "authority": settings.authority(),
        "issuer_id": settings.issuer_id,
        "uid_claim": settings.uid_claim,
        "max_validity_time": settings.max_validity_seconds,
        "skew": settings.skew_seconds,
        "default": settings.is_default,
        "allow_authz_override": settings.allows_override,
        "public_key": stored.public_key,
        "has_secret": stored.secret.is_some(),
    })
}

/// Stores the authenticators. An error, and nothing is written, if another writer changed them
/// since.
async fn write(ports: &Ports, loaded: LoadedAuthenticators) -> anyhow::Result<()> {
    match authenticators::store(ports, loaded).await? {
        PutOutcome::Yes => Ok(()),
        _ => bail!(
            "could not store the authenticators: they were changed concurrently; run this again"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(driver: AuthenticatorDriverArgument) -> AuthenticatorOptions {
        AuthenticatorOptions {
            data: None,
            name: "company".to_owned(),
            driver,
            realm: None,
            client_id: "sluice".to_owned(),
            audience: None,
            authority: None,
            issuer_id: "https://login.example.org".to_owned(),
            uid_claim: "sub".to_owned(),
            max_validity_seconds: None,
            skew_seconds: 0,
            is_default: false,
            allows_override: false,
            secret_file: None,
            public_key_file: None,
            keys_url: None,
            scope: "openid profile".to_owned(),
            load_user_info: LoadUserInfo::Yes,
        }
    }

    /// C2.2: keys that someone on the way could replace are refused.
    #[test]
    fn a_provider_without_https_is_refused() {
        let with = |change: fn(&mut AuthenticatorOptions)| {
            let mut options = options(AuthenticatorDriverArgument::OpenIdConnect);
            change(&mut options);
            settings(&options)
        };
        assert_eq!(with(|_| {}).unwrap().realm, "company");
        assert!(with(|one| one.issuer_id = "http://login.example.org".to_owned()).is_err());
        assert!(with(|one| one.keys_url = Some("http://keys.example.org".to_owned())).is_err());
        assert!(with(|one| one.name = "a/b".to_owned()).is_err());
        assert!(
            settings(&AuthenticatorOptions {
                issuer_id: "zuul_operator".to_owned(),
                ..options(AuthenticatorDriverArgument::Hs256)
            })
            .is_ok()
        );
    }
}
