//! Who calls and what they may do: access keys, principals, and the question put to the policies.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

/// The name of an access key's owner: a function, the executor, or a person at the command line.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Principal(String);

impl Principal {
    /// Returns the principal with this name.
    pub fn new(name: impl Into<String>) -> Self {
        Self(name.into())
    }

    /// Returns the principal's name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Principal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What the policies say to one action on one resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// A statement allows it and none denies it.
    Allow,
    /// It is refused, with the reason AWS would name ("no identity-based policy allows …").
    Deny {
        /// Why, for the error message.
        why: String,
    },
}

/// Answers whether a principal may do an action on a resource. It is asked after the signature is
/// verified, once for each action and resource of a call: a transaction asks for every part, a
/// query on an index names the index.
pub trait Authorizer: Send + Sync + 'static {
    /// Decides whether a principal may call `action` (`dynamodb:PutItem`) on the resource with this
    /// ARN (`*` if the action has none).
    fn allow(&self, principal: &Principal, action: &str, resource_arn: &str) -> Decision;

    /// Decides as [`Self::allow`] for a call with values of condition keys, as pairs of key and
    /// value (`aws:RequestTag/owner`, `me`). Unless an implementation overrides it, the values are
    /// ignored.
    fn allow_with(
        &self,
        principal: &Principal,
        action: &str,
        resource_arn: &str,
        condition_values: &[(&str, &str)],
    ) -> Decision {
        let _ = condition_values;
        self.allow(principal, action, resource_arn)
    }

    /// Returns what decides about a session with this policy, a document in JSON, for any
    /// principal. Unless an implementation overrides it, no policy can be read.
    ///
    /// # Errors
    /// When the document cannot be read, with the reason.
    fn session_policy(&self, document: &str) -> Result<Arc<dyn Authorizer>, String> {
        let _ = document;
        Err("no policies of sessions are evaluated here".to_owned())
    }
}

/// Allows everything: an account without policies.
#[derive(Clone, Copy, Debug, Default)]
pub struct AllowAll;

impl Authorizer for AllowAll {
    fn allow(&self, _principal: &Principal, _action: &str, _resource_arn: &str) -> Decision {
        Decision::Allow
    }
}

/// A secret access key. It never shows itself.
#[derive(Clone, PartialEq, Eq)]
pub struct SecretAccessKey(String);

impl SecretAccessKey {
    /// Returns the secret with this text.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// Returns the secret's text, which must not be logged.
    pub(crate) fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for SecretAccessKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretAccessKey(…)")
    }
}

/// What an access key needs besides its secret if it is temporary, and what limits it.
#[derive(Clone)]
pub(crate) struct TemporarySession {
    /// The session token that each call must bear.
    pub(crate) token: SecretAccessKey,
    /// When the key expires, in seconds since the epoch.
    pub(crate) expires_at_seconds: u64,
    /// The policy that has to allow a call, besides those of the principal; `None` without one.
    pub(crate) policy: Option<Arc<dyn Authorizer>>,
}

impl fmt::Debug for TemporarySession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("TemporarySession");
        shown.field("expires_at_seconds", &self.expires_at_seconds).finish_non_exhaustive()
    }
}

/// An access key as the emulator knows it.
#[derive(Clone, Debug)]
pub(crate) struct KnownKey {
    pub(crate) principal: Principal,
    pub(crate) secret: SecretAccessKey,
    /// `None` for a lasting key.
    pub(crate) session: Option<TemporarySession>,
}

impl KnownKey {
    /// Returns whether the key has not expired.
    pub(crate) fn is_valid(&self, now_seconds: u64) -> bool {
        let mut session = self.session.iter();
        session.all(|session| session.expires_at_seconds > now_seconds)
    }

    /// Returns whether a call with this session token may be made with the key. A lasting key needs
    /// none.
    pub(crate) fn takes(&self, token: Option<&str>) -> bool {
        let mut session = self.session.iter();
        session.all(|session| token == Some(session.token.expose()))
    }

    /// Returns the caller who has proved to have the key, bound by its session's policy and by
    /// `authorizer`.
    pub(crate) fn into_caller(self, authorizer: Arc<dyn Authorizer>) -> Caller {
        let session_policy = self.session.and_then(|session| session.policy);
        Caller { principal: self.principal, authorizer, session_policy }
    }
}

/// The access keys that the emulator knows, by their ids.
#[derive(Debug, Default)]
pub struct KeyRing {
    keys: RwLock<HashMap<String, KnownKey>>,
}

impl KeyRing {
    /// Adds an access key that does not expire, or replaces the one with the same id.
    pub fn insert(
        &self,
        access_key_id: impl Into<String>,
        principal: Principal,
        secret: SecretAccessKey,
    ) {
        let mut keys = self.keys.write().unwrap_or_else(PoisonError::into_inner);
        keys.insert(access_key_id.into(), KnownKey { principal, secret, session: None });
    }

    /// Adds a temporary access key, and removes those that have expired at `now_seconds`.
    pub(crate) fn insert_temporary(
        &self,
        access_key_id: String,
        principal: Principal,
        secret: SecretAccessKey,
        session: TemporarySession,
        now_seconds: u64,
    ) {
        let mut keys = self.keys.write().unwrap_or_else(PoisonError::into_inner);
        keys.retain(|_, key| {
            key.session.as_ref().is_none_or(|session| session.expires_at_seconds > now_seconds)
        });
        keys.insert(access_key_id, KnownKey { principal, secret, session: Some(session) });
    }

    /// Removes an access key; does nothing if it is unknown. Calls signed with it fail from then
    /// on.
    pub fn remove(&self, access_key_id: &str) {
        self.keys.write().unwrap_or_else(PoisonError::into_inner).remove(access_key_id);
    }

    /// Returns whose an access key is, also a temporary one; `None` if it is unknown.
    pub(crate) fn owner(&self, access_key_id: &str) -> Option<Principal> {
        self.get(access_key_id).map(|key| key.principal)
    }

    /// Returns a copy of an access key, also of one that has expired; `None` if it is unknown.
    pub(crate) fn get(&self, access_key_id: &str) -> Option<KnownKey> {
        self.keys.read().unwrap_or_else(PoisonError::into_inner).get(access_key_id).cloned()
    }
}

/// A verified caller together with the policies that bind it.
#[derive(Clone)]
pub struct Caller {
    principal: Principal,
    authorizer: Arc<dyn Authorizer>,
    /// What has to allow a call besides `authorizer`.
    session_policy: Option<Arc<dyn Authorizer>>,
}

impl fmt::Debug for Caller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Caller").field("principal", &self.principal).finish_non_exhaustive()
    }
}

/// A call that the policies refuse.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "User: {principal} is not authorized to perform: {action} on resource: {resource} because {why}"
)]
pub struct Denied {
    /// Who asked.
    pub principal: Principal,
    /// The action, for example `dynamodb:PutItem`.
    pub action: String,
    /// The ARN of the resource.
    pub resource: String,
    /// The reason.
    pub why: String,
}

impl Caller {
    /// Returns a caller whose calls `authorizer` decides. The signature must have been verified:
    /// nothing is checked here.
    #[must_use]
    pub fn new(principal: Principal, authorizer: Arc<dyn Authorizer>) -> Self {
        Self { principal, authorizer, session_policy: None }
    }

    /// Returns the principal that calls.
    #[must_use]
    pub fn principal(&self) -> &Principal {
        &self.principal
    }

    /// Returns an error unless the caller's policies allow an action on the resource with this ARN,
    /// in a call without values of condition keys.
    ///
    /// # Errors
    /// [`Denied`] when they do not allow it.
    pub fn check(&self, action: &str, resource_arn: &str) -> Result<(), Denied> {
        self.check_with(action, resource_arn, &[])
    }

    /// Returns an error unless the caller's policies allow an action on the resource with this ARN,
    /// in a call with these values of condition keys, as pairs of key and value.
    ///
    /// # Errors
    /// As [`check`](Self::check).
    pub fn check_with(
        &self,
        action: &str,
        resource_arn: &str,
        condition_values: &[(&str, &str)],
    ) -> Result<(), Denied> {
        let policies = std::iter::once(&self.authorizer).chain(&self.session_policy);
        for policy in policies {
            match policy.allow_with(&self.principal, action, resource_arn, condition_values) {
                Decision::Allow => {}
                Decision::Deny { why } => {
                    return Err(Denied {
                        principal: self.principal.clone(),
                        action: action.to_owned(),
                        resource: resource_arn.to_owned(),
                        why,
                    });
                }
            }
        }
        Ok(())
    }

    /// Returns what decides about a session with this policy, as
    /// [`Authorizer::session_policy`].
    pub(crate) fn session_policy(&self, document: &str) -> Result<Arc<dyn Authorizer>, String> {
        self.authorizer.session_policy(document)
    }
}
