//! Issues the OIDC tokens that playbooks get in place of a secret's values (a secret's `oidc`).
//!
//! A token says which build of which job it is for, and through which secret. Custom claims of the
//! secret are added; they cannot replace those that identify the build.

use serde_json::json;
use sluice_keys::token::{ALGORITHM, TokenSigner};
use sluice_keys::{RsaError, Secret};
use sluice_model::Timestamp;
use sluice_model::build::Order;
use sluice_model::job::{OidcToken, SecretUse};
use sluice_records::oidc_key::TTL_SECONDS_MAX;
use std::sync::Arc;

/// Seconds for which a token is valid if neither its secret nor the tenant says it: the default
/// limit of tenants.
const TTL_SECONDS: u64 = 10_800;

/// Issues the tokens of one build. It has no `Debug`, because it signs.
#[derive(Clone)]
pub struct TokenIssuer {
    /// Signs the tokens.
    pub signer: Arc<TokenSigner>,
    /// The issuer of tokens whose secret names none: the address of the pages, without the final
    /// slash.
    pub issuer: String,
}

/// Why a token cannot be issued. The job has to be changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IdTokenError {
    /// The algorithm is not known.
    #[error("its algorithm is {algorithm}, and only {ALGORITHM} is supported")]
    Algorithm {
        /// The algorithm.
        algorithm: String,
    },
    /// The token would outlive the publication of its key.
    #[error("its ttl is {seconds} seconds, and the longest is {TTL_SECONDS_MAX}")]
    Lifetime {
        /// The lifetime in the secret.
        seconds: u64,
    },
}

/// Checks that a token can be issued as its secret describes it.
///
/// # Errors
/// When its algorithm or lifetime is not supported.
pub fn check(token: &OidcToken) -> Result<(), IdTokenError> {
    match (&token.algorithm, token.ttl_seconds) {
        (Some(algorithm), _) if algorithm != ALGORITHM => {
            Err(IdTokenError::Algorithm { algorithm: algorithm.clone() })
        }
        (_, Some(seconds)) if seconds > TTL_SECONDS_MAX => Err(IdTokenError::Lifetime { seconds }),
        _ => Ok(()),
    }
}

impl TokenIssuer {
    /// Issues the token of a secret for one playbook of a build. `None` if the secret is no token.
    ///
    /// # Errors
    /// When the cryptography library refuses.
    pub fn issue(
        &self,
        secret: &SecretUse,
        order: &Order,
        playbook: &str,
        now: Timestamp,
    ) -> Result<Option<Secret>, RsaError> {
        let Some(token) = &secret.oidc else { return Ok(None) };
        let tenant = &order.queue.tenant;
        let mut claims = token.claims.clone();
        // After the custom claims, which therefore do not replace them.
        let own = json!({
            "iss": token.issuer.as_deref().unwrap_or(&self.issuer),
            "sub": format!("secret:{tenant}/{}/{}", secret.project, secret.secret),
            "iat": now.seconds(),
            "exp": now.seconds() + token.ttl_seconds.unwrap_or(TTL_SECONDS),
            "build-uuid": order.build,
            "job-name": order.job,
            "playbook": playbook,
            "pipeline": order.queue.pipeline,
            "tenant": tenant,
        });
        claims.extend(own.as_object().cloned().unwrap_or_default());
        self.signer.sign(&claims).map(Some)
    }
}
