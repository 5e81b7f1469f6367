//! `sluice token create`: signs a token for a user of the API, with the secret of an authenticator
//! of the driver HS256.

use super::operator;
use crate::api_client::LocalArguments;
use crate::output::{OutputFormat, print_json, print_line};
use anyhow::{Context as _, bail};
use clap::Args;
use serde_json::{Map, Value, json};
use sluice_auth::{Authenticator, AuthenticatorDriver};
use sluice_keys::Secret;
use sluice_keys::signature::sign_with_shared_secret;
use sluice_model::Timestamp;
use sluice_records::authenticators::{self, AuthenticatorsFile, StoredAuthenticator};

/// The longest life of a token, in seconds: 30 days. A token cannot be taken back alone.
const EXPIRES_IN_MAX: u64 = 30 * 86_400;

/// The arguments of `sluice token create`.
#[derive(Debug, Clone, Args)]
pub struct TokenArguments {
    /// The data directory and the output format.
    #[command(flatten)]
    pub local: LocalArguments,
    /// User that the token is for; recorded with what the user does
    #[arg(long, value_name = "USER")]
    pub user: String,
    /// Tenant that the token makes its user an administrator of; may be repeated
    #[arg(long = "tenant", value_name = "TENANT", requires = "admin")]
    pub tenants: Vec<String>,
    /// Make the user an administrator of the tenants, whatever the main configuration says
    #[arg(long, requires = "tenants")]
    pub admin: bool,
    /// Seconds until the token expires
    #[arg(long, value_name = "SECONDS", default_value_t = 3_600, value_parser = clap::value_parser!(u64).range(1..=EXPIRES_IN_MAX))]
    pub expires_in: u64,
    /// Authenticator whose secret signs the token [default: the only one with the driver HS256]
    #[arg(long, value_name = "NAME")]
    pub authenticator: Option<String>,
}

/// Prints a token for a user, alone or in a JSON object. Stores nothing. Without `--admin`, the
/// rules of the main configuration decide what the user may do.
///
/// # Errors
/// When there is no authenticator that can sign, it does not let tokens name administrators, or the
/// store does not answer.
pub async fn print(arguments: TokenArguments) -> anyhow::Result<()> {
    let ports = operator(arguments.local.data.clone()).await?;
    let loaded = authenticators::load(&ports).await?;
    let stored = select(&loaded.file, arguments.authenticator.as_deref())?;
    let settings = &stored.settings;
    if arguments.admin && !settings.allows_override {
        bail!(
            "could not make a token for an administrator: tokens of the authenticator {} do not decide that; use the admin-rules of the tenant, or add the authenticator again with --allow-authz-override",
            settings.name
        );
    }
    let secret = authenticators::open_secret(&ports, stored).await?;
    let secret = secret.with_context(|| {
        format!("could not make a token: the authenticator {} has no secret", settings.name)
    })?;
    let claims = claims(settings, &arguments, ports.clock.now());
    let token = sign(&claims, &Secret::from(secret))?;
    match arguments.local.format() {
        OutputFormat::Json => print_json(&json!({"token": token})),
        OutputFormat::Text => print_line!("{token}"),
    }
    Ok(())
}

/// Returns the authenticator of a name, or the only one that can sign.
fn select<'f>(
    file: &'f AuthenticatorsFile,
    name: Option<&str>,
) -> anyhow::Result<&'f StoredAuthenticator> {
    let can_sign =
        |stored: &&StoredAuthenticator| stored.settings.driver == AuthenticatorDriver::Hs256;
    if let Some(name) = name {
        let found = file.0.get(name).with_context(|| {
            let names: Vec<_> = file.0.keys().cloned().collect();
            format!("there is no authenticator {name}; authenticators: {}", names.join(", "))
        })?;
        return Some(found).filter(can_sign).with_context(|| {
            format!("could not make a token: only the issuer of {name} can sign its tokens")
        });
    }
    let all: Vec<_> = file.0.values().filter(can_sign).collect();
    match all.as_slice() {
        [one] => Ok(one),
        [] => bail!(
            "could not make a token: there is no authenticator with the driver HS256; `sluice authenticator list` shows the others, whose issuers make tokens"
        ),
        _ => {
            let names: Vec<_> = all.iter().map(|one| one.settings.name.as_str()).collect();
            bail!("several authenticators can sign ({}): name one", names.join(", "))
        }
    }
}

/// Returns the claims of a token that is issued `now`.
fn claims(
    settings: &Authenticator,
    arguments: &TokenArguments,
    now: Timestamp,
) -> Map<String, Value> {
    let now = now.seconds();
    let mut claims = Map::new();
    claims.insert("iss".to_owned(), json!(settings.issuer_id));
    claims.insert("aud".to_owned(), json!(settings.audience()));
    claims.insert("sub".to_owned(), json!(arguments.user));
    claims.insert(settings.uid_claim.clone(), json!(arguments.user));
    claims.insert("iat".to_owned(), json!(now));
    claims.insert("exp".to_owned(), json!(now.saturating_add(arguments.expires_in)));
    if arguments.admin {
        claims.insert("zuul".to_owned(), json!({"admin": arguments.tenants}));
    }
    claims
}

/// Returns a token with these claims, signed with a shared secret.
pub(super) fn sign(claims: &Map<String, Value>, secret: &Secret) -> anyhow::Result<String> {
    use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
    let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let header = json!({"alg": "HS256", "typ": "JWT"});
    let message = format!("{}.{}", part(&header), part(&Value::Object(claims.clone())));
    let signature = sign_with_shared_secret(secret, message.as_bytes())?;
    Ok(format!("{message}.{}", URL_SAFE_NO_PAD.encode(signature)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_auth::BearerToken;
    use sluice_keys::SignatureKey;

    /// C2.2: what is printed is what the API accepts, for that user and until it expires.
    #[test]
    fn a_printed_token_is_accepted_until_it_expires() {
        let settings = Authenticator {
            name: "local".to_owned(),
            driver: AuthenticatorDriver::Hs256,
            realm: "local".to_owned(),
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
        let arguments = TokenArguments {
            local: LocalArguments::default(),
            user: "ada".to_owned(),
            tenants: vec!["demo".to_owned()],
            admin: true,
            expires_in: 60,
            authenticator: None,
        };
        let secret = Secret::from("s".repeat(64));
        let now = Timestamp(1_000_000);
        let text = sign(&claims(&settings, &arguments, now), &secret).unwrap();
        let token = BearerToken::parse(&text).unwrap();
        let key = SignatureKey::shared(&secret).unwrap();
        let principal = token
            .check([&settings], now)
            .unwrap()
            .verify(|bytes| key.verifies(bytes.message, bytes.signature))
            .unwrap();
        assert_eq!((principal.uid(), principal.admin_of()), ("ada", &["demo".into()][..]));
        assert!(token.check([&settings], now.plus_seconds(60)).is_err());
    }
}
