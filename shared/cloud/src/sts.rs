//! Temporary credentials of a role, by STS's AssumeRole.

use crate::query::{CallFailure, QueryClient, QueryForm, STS};
use aws_credential_types::Credentials;
use aws_credential_types::provider::error::CredentialsError;
use aws_credential_types::provider::{
    ProvideCredentials, SharedCredentialsProvider, future::ProvideCredentials as ProvidedLater,
};
use serde::Deserialize;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio::sync::Mutex;
use url::Url;

/// How long before their expiry credentials are replaced.
const REPLACED_BEFORE: Duration = Duration::from_secs(300);
/// The most characters of the name of a session.
const SESSION_CHARS_MAX: usize = 64;

/// A role to assume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RoleToAssume {
    /// The role's ARN.
    pub arn: String,
    /// The external id that the role's trust policy may require.
    pub external_id: Option<String>,
    /// What the role's account shows as the caller: the name of the connection. Only its first 57
    /// characters are used.
    pub used_by: String,
}

/// Why a role cannot be assumed.
#[derive(Debug, thiserror::Error)]
pub enum RoleError {
    /// No HTTP client can be made.
    #[error("could not make an HTTP client for STS: {why}")]
    Client {
        /// The reason.
        why: String,
    },
    /// STS did not issue credentials.
    #[error(
        "could not assume the role {arn}: {why}; check the role's trust policy, the connection's \
         external id, and the launcher's permission (the template's parameter NodeRoles)"
    )]
    Refused {
        /// The role.
        arn: String,
        /// STS's error, or what is known of the failure.
        why: String,
    },
}

/// Provides the temporary credentials of a role. They are cached until five minutes before they
/// expire.
#[derive(Clone)]
pub struct AssumedRole {
    role: RoleToAssume,
    region: String,
    client: QueryClient,
    cached: Arc<Mutex<Option<Credentials>>>,
}

impl fmt::Debug for AssumedRole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AssumedRole").field("role", &self.role).finish_non_exhaustive()
    }
}

/// The answer of AssumeRole.
#[derive(Deserialize)]
struct AssumeRoleAnswer {
    #[serde(rename = "AssumeRoleResult")]
    result: AssumeRoleResult,
}

#[derive(Deserialize)]
struct AssumeRoleResult {
    #[serde(rename = "Credentials")]
    credentials: IssuedCredentials,
}

#[derive(Deserialize)]
struct IssuedCredentials {
    #[serde(rename = "AccessKeyId")]
    access_key_id: String,
    #[serde(rename = "SecretAccessKey")]
    secret_access_key: String,
    #[serde(rename = "SessionToken")]
    session_token: String,
    #[serde(rename = "Expiration")]
    expiration: String,
}

impl AssumedRole {
    /// Creates a provider that assumes a role by STS in `region` with the credentials `base`.
    /// `endpoint` is one other than Amazon's. Calls nothing yet.
    ///
    /// # Errors
    /// When no HTTP client can be made.
    pub fn new(
        role: RoleToAssume,
        region: impl Into<String>,
        endpoint: Option<Url>,
        base: SharedCredentialsProvider,
    ) -> Result<Self, RoleError> {
        let client =
            QueryClient::new(STS, endpoint, base).map_err(|why| RoleError::Client { why })?;
        Ok(Self { role, region: region.into(), client, cached: Arc::default() })
    }

    /// Returns the cached credentials, or assumes the role if there are none that stay valid for
    /// five minutes. If that fails, cached ones that are still valid are returned, with a warning
    /// in the log. Concurrent callers wait for one call.
    async fn credentials(&self) -> Result<Credentials, CredentialsError> {
        let mut cached = self.cached.lock().await;
        let now = SystemTime::now();
        let valid_for = |length: Duration| {
            cached.as_ref().filter(|credentials| is_valid(credentials, now + length)).cloned()
        };
        if let Some(credentials) = valid_for(REPLACED_BEFORE) {
            return Ok(credentials);
        }
        match self.assume().await {
            Ok(issued) => Ok(cached.insert(issued).clone()),
            Err(error) => match valid_for(Duration::ZERO) {
                Some(credentials) => {
                    tracing::warn!(%error, "the credentials of a role could not be renewed yet");
                    Ok(credentials)
                }
                None => Err(CredentialsError::provider_error(error)),
            },
        }
    }

    /// Assumes the role by one call and returns the issued credentials.
    async fn assume(&self) -> Result<Credentials, RoleError> {
        let refused = |why: String| RoleError::Refused { arn: self.role.arn.clone(), why };
        let mut form = QueryForm::new("AssumeRole");
        form.set("RoleArn", &self.role.arn);
        form.set("RoleSessionName", session_name(&self.role.used_by));
        if let Some(external_id) = &self.role.external_id {
            form.set("ExternalId", external_id);
        }
        let body = self.client.call(&self.region, &form).await.map_err(|failure| {
            refused(match failure {
                CallFailure::Refused { code, message, .. } => format!("{code}: {message}"),
                CallFailure::Unanswered(why) => why,
            })
        })?;
        // The error of the parser could show a part of the answer, which has secrets.
        let answer: AssumeRoleAnswer = quick_xml::de::from_str(&body)
            .map_err(|_| refused("the answer cannot be read".to_owned()))?;
        let issued = answer.result.credentials;
        let expires_at: jiff::Timestamp = issued
            .expiration
            .parse()
            .map_err(|_| refused("the answer has no valid time of expiry".to_owned()))?;
        Ok(Credentials::new(
            issued.access_key_id,
            issued.secret_access_key,
            Some(issued.session_token),
            Some(SystemTime::from(expires_at)),
            "assumed role",
        ))
    }
}

impl ProvideCredentials for AssumedRole {
    fn provide_credentials<'a>(&'a self) -> ProvidedLater<'a>
    where
        Self: 'a,
    {
        ProvidedLater::new(self.credentials())
    }
}

/// Returns the name of the session for a connection. Characters that STS does not allow in it
/// become hyphens.
fn session_name(used_by: &str) -> String {
    let is_allowed = |char: &char| char.is_ascii_alphanumeric() || "_+=,.@-".contains(*char);
    let name = format!("sluice-{used_by}");
    let chars = name.chars().map(|char| Some(char).filter(is_allowed).unwrap_or('-'));
    chars.take(SESSION_CHARS_MAX).collect()
}

/// Returns whether credentials are valid at a time; those without an expiry always are.
fn is_valid(credentials: &Credentials, at: SystemTime) -> bool {
    credentials.expiry().is_none_or(|expiry| expiry > at)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// L3.5
    #[test]
    fn a_session_has_the_name_of_the_connection() {
        assert_eq!(session_name("ec2.far_1"), "sluice-ec2.far_1");
        assert_eq!(session_name("ec2/ä b"), "sluice-ec2---b");
        assert_eq!(session_name(&"x".repeat(100)).len(), 64);
    }

    /// L3.5
    #[test]
    fn credentials_are_valid_until_they_expire() {
        let second = |number: u64| SystemTime::UNIX_EPOCH + Duration::from_secs(number);
        let until = |expiry| Credentials::new("id", "secret", None, expiry, "test");
        assert!(is_valid(&until(Some(second(10))), second(9)));
        assert!(!is_valid(&until(Some(second(10))), second(10)));
        assert!(is_valid(&until(None), second(10)));
    }
}
