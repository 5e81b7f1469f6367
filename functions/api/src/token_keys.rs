//! The public keys that verify the OIDC tokens of jobs, and the documents by which services find
//! them (a secret's `oidc`; OpenID Connect Discovery 1.0, RFC 7517).
//!
//! They are public: a service that verifies a token has no token of ours. They say nothing of
//! tenants, so a tenant's documents are the same for a tenant that does not exist.

use crate::Api;
use crate::keys::generate_pem;
use crate::reply::{self, ErrorResponse};
use bytes::Bytes;
use http::Response;
use serde_json::{Value, json};
use sluice_keys::token::{ALGORITHM, json_web_key};
use sluice_keys::{ProjectKey, ProjectPublicKey, RsaError};
use sluice_records::oidc_key::{self, SigningPeriod};
use sluice_runtime::PortError;

/// Seconds for which the documents may be cached. A key is published a week before it signs.
const CACHE_SECONDS: u32 = 300;

/// The documents about tokens, by their paths.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TokenDocument<'p> {
    /// The keys.
    Keys,
    /// The description of the issuer for all tenants.
    Issuer,
    /// The description of a tenant's own issuer.
    TenantIssuer(&'p str),
}

impl<'p> TokenDocument<'p> {
    /// Returns the document at a path; `None` if there is none. The keys have several addresses, as
    /// in Zuul.
    pub(crate) fn at(parts: &[&'p str]) -> Option<Self> {
        match parts {
            [".well-known", "openid-configuration"] => Some(Self::Issuer),
            ["oidc", "tenant", tenant, ".well-known", "openid-configuration"] => {
                Some(Self::TenantIssuer(tenant))
            }
            [".well-known", "jwks"]
            | ["oidc", "jwks"]
            | ["oidc", ".well-known", "jwks"]
            | ["oidc", "tenant", _, "jwks"]
            | ["oidc", _, "jwks"]
            | ["oidc", _, ".well-known", "jwks"] => Some(Self::Keys),
            _ => None,
        }
    }
}

/// Answers with a document about tokens.
pub(crate) async fn answer(
    api: &Api,
    document: TokenDocument<'_>,
) -> Result<Response<Bytes>, ErrorResponse> {
    let root = api.web_root.trim_end_matches('/');
    let body = match document {
        TokenDocument::Keys => json!({ "keys": keys(api).await? }),
        TokenDocument::Issuer => description(root.to_owned(), format!("{root}/oidc/jwks")),
        TokenDocument::TenantIssuer(tenant) => {
            let issuer = format!("{root}/oidc/tenant/{}", encoded(tenant));
            description(issuer.clone(), format!("{issuer}/jwks"))
        }
    };
    Ok(reply::cacheable_json(&body, CACHE_SECONDS, api.ports.clock.now()))
}

/// Returns a name as one part of a URL's path (RFC 3986, 2.3).
fn encoded(name: &str) -> String {
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-._~".contains(byte);
    name.bytes().fold(String::new(), |text, byte| match is_plain(&byte) {
        true => text + &char::from(byte).to_string(),
        false => format!("{text}%{byte:02X}"),
    })
}

/// Returns the description of an issuer. There is nothing to log in with: tokens are issued to jobs
/// alone.
fn description(issuer: String, keys: String) -> Value {
    json!({
        "issuer": issuer,
        "jwks_uri": keys,
        "id_token_signing_alg_values_supported": [ALGORITHM],
        "response_types_supported": ["id_token"],
        "subject_types_supported": ["public"],
        "claims_supported": [
            "aud", "iss", "sub", "iat", "exp", "build-uuid", "job-name", "playbook", "pipeline",
            "tenant",
        ],
    })
}

/// Returns the published keys, the newest first. Makes the pairs of this period and the next one if
/// there are none, so that their keys are known before they sign.
async fn keys(api: &Api) -> Result<Vec<Value>, ErrorResponse> {
    let current = SigningPeriod::of(api.ports.clock.now());
    let mut found = Vec::new();
    for period in current.published() {
        let public = match oidc_key::load_public(&api.ports, period).await? {
            Some(public) => public,
            None if period == current || period == current.next() => generate(api, period).await?,
            None => continue,
        };
        let damaged =
            |error: RsaError| PortError::unknown(format!("read {}", period.object()), error);
        let key = ProjectPublicKey::from_pem(&public).map_err(damaged)?;
        found.push(json_web_key(&key).map_err(damaged)?);
    }
    Ok(found)
}

/// Generates and stores the pair of a period that has none, and returns the public key of the
/// stored pair as PEM. This process generates one pair at a time.
async fn generate(api: &Api, period: SigningPeriod) -> Result<String, ErrorResponse> {
    let _one_at_a_time = api.key_generation.lock().await;
    if let Some(public) = oidc_key::load_public(&api.ports, period).await? {
        return Ok(public);
    }
    let made = generate_pem(ProjectKey::generate_for_signatures).await?;
    let stored = oidc_key::store(&api.ports, period, made.as_pair()).await?;
    tracing::info!(object = period.object(), "there is a new key pair for the tokens of jobs");
    Ok(stored)
}
