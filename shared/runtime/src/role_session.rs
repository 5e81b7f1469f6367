//! Sessions of roles: temporary credentials that may do less than the role itself.

use crate::port::PortError;
use async_trait::async_trait;
use sluice_model::Timestamp;
use std::fmt;

/// A request for a session of a role.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionRequest {
    /// The role's ARN.
    pub role_arn: String,
    /// What the account's audit log shows as the caller, 2 to 64 of `A-Z a-z 0-9 _ + = , . @ -`.
    pub session_name: String,
    /// The session policy, a document in JSON. The session may do what both this policy and the
    /// role's allow.
    pub policy: String,
    /// For how long the credentials are valid, in seconds.
    pub duration_seconds: u64,
}

/// The temporary credentials of a session. They are shown to no one by `Debug`.
#[derive(Clone, PartialEq, Eq)]
pub struct SessionCredentials {
    /// The id of the access key.
    pub access_key_id: String,
    /// The secret part of the access key.
    pub secret_access_key: String,
    /// The token that each call has to bear.
    pub session_token: String,
    /// When they expire.
    pub expires_at: Timestamp,
}

impl fmt::Debug for SessionCredentials {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = formatter.debug_struct("SessionCredentials");
        shown.field("expires_at", &self.expires_at).finish_non_exhaustive()
    }
}

/// Issues sessions of roles that the process may assume.
#[async_trait]
pub trait RoleSessions: Send + Sync {
    /// Returns new credentials of a role, by one call with the client's usual retries. An error if
    /// the role cannot be assumed, or the service does not answer.
    async fn issue(&self, request: &SessionRequest) -> Result<SessionCredentials, PortError>;
}
