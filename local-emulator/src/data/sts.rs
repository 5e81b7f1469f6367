//! STS: temporary credentials of roles, by AssumeRole.

use super::auth::{Authorizer, Caller, KeyRing, Principal, SecretAccessKey, TemporarySession};
use super::extra::Extra;
use super::wire::{now_ms, text_response};
use async_trait::async_trait;
use bytes::Bytes;
use http::{Request, Response};
use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};

/// Seconds for which credentials are valid, unless a call asks for another length.
const LIFE_SECONDS: u64 = 3_600;
/// The shortest and the longest length that a call may ask for, in seconds: callers are roles
/// themselves on AWS, which limits such a chain to an hour.
const LIFE_RANGE: std::ops::RangeInclusive<u64> = 900..=3_600;
/// The most characters of a session policy.
const POLICY_CHARS_MAX: usize = 2_048;

/// A role that callers may assume if their policies allow `sts:AssumeRole` on it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AssumableRole {
    /// Its ARN.
    pub arn: String,
    /// The principals that its trust policy names; `None` for all of the account.
    pub trusted: Option<Vec<Principal>>,
    /// The external id that its trust policy requires; `None` requires none.
    pub external_id: Option<String>,
    /// The principal whose policies bind calls with the role's credentials.
    pub acts_as: Principal,
    /// Seconds that its credentials are valid at most, to show how callers renew them; `None` for
    /// no limit besides that of AWS.
    pub life_seconds_max: Option<u64>,
}

/// The service.
pub(super) struct Sts {
    keys: Arc<KeyRing>,
    roles: RwLock<Vec<AssumableRole>>,
}

/// A refusal: status, code and message.
struct Refusal(u16, &'static str, String);

impl Sts {
    /// Returns the service for these roles, whose credentials are added to `keys`.
    pub(super) fn new(keys: Arc<KeyRing>, roles: Vec<AssumableRole>) -> Self {
        Self { keys, roles: RwLock::new(roles) }
    }

    /// Adds roles.
    pub(super) fn add_roles(&self, roles: impl IntoIterator<Item = AssumableRole>) {
        self.roles.write().unwrap_or_else(PoisonError::into_inner).extend(roles);
    }

    /// Issues credentials for a role and returns the XML of the answer. Refused unless the caller's
    /// policies allow it, the role exists and trusts the caller, and the external id is the one
    /// that it requires. A session policy limits the credentials to what it allows, too.
    fn assume_role(
        &self,
        caller: &Caller,
        parameters: &BTreeMap<String, String>,
    ) -> Result<String, Refusal> {
        let needed = |name: &str| {
            let missing = || Refusal(400, "ValidationError", format!("{name} is missing"));
            parameters.get(name).filter(|value| !value.is_empty()).ok_or_else(missing)
        };
        let (arn, session) = (needed("RoleArn")?, needed("RoleSessionName")?);
        let is_valid = |byte: u8| byte.is_ascii_alphanumeric() || b"_+=,.@-".contains(&byte);
        if !(2..=64).contains(&session.len()) || !session.bytes().all(is_valid) {
            let why = "RoleSessionName must have 2 to 64 characters of [A-Za-z0-9_+=,.@-]";
            return Err(Refusal(400, "ValidationError", why.to_owned()));
        }
        let life_seconds = match parameters.get("DurationSeconds").map(|text| text.parse()) {
            None => LIFE_SECONDS,
            Some(Ok(seconds)) if LIFE_RANGE.contains(&seconds) => seconds,
            Some(_) => {
                let why = "DurationSeconds must be from 900 to 3600".to_owned();
                return Err(Refusal(400, "ValidationError", why));
            }
        };
        let denied = |why: String| Refusal(403, "AccessDenied", why);
        caller.check("sts:AssumeRole", arn).map_err(|error| denied(error.to_string()))?;
        let policy = match parameters.get("Policy") {
            Some(policy) => Some(session_policy(caller, policy)?),
            None => None,
        };
        // As on AWS, a missing role, one that trusts others and another external id get the same
        // answer.
        let roles = self.roles.read().unwrap_or_else(PoisonError::into_inner);
        let trusts = |role: &&AssumableRole| {
            let mut trusted = role.trusted.iter();
            trusted.all(|trusted| trusted.contains(caller.principal()))
                && role
                    .external_id
                    .as_ref()
                    .is_none_or(|id| parameters.get("ExternalId") == Some(id))
        };
        let role = roles.iter().find(|role| role.arn == *arn).filter(trusts).ok_or_else(|| {
            denied(format!(
                "User: {} is not authorized to perform: sts:AssumeRole on resource: {arn}",
                caller.principal()
            ))
        })?;
        let life_seconds = life_seconds.min(role.life_seconds_max.unwrap_or(u64::MAX));
        let expires_at_seconds = now_ms() / 1_000 + life_seconds;
        let random = |bytes: usize| {
            random_hex(bytes).ok_or_else(|| {
                Refusal(500, "InternalFailure", "the system gave no random numbers".to_owned())
            })
        };
        let id = format!("ASIA{}", random(8)?.to_uppercase());
        let (secret, token) = (random(20)?, random(64)?);
        let answer = answer(role, session, &id, &secret, &token, expires_at_seconds);
        let session =
            TemporarySession { token: SecretAccessKey::new(token), expires_at_seconds, policy };
        self.keys.insert_temporary(
            id,
            role.acts_as.clone(),
            SecretAccessKey::new(secret),
            session,
            now_ms() / 1_000,
        );
        Ok(answer)
    }
}

#[async_trait]
impl Extra for Sts {
    /// Answers AssumeRole; any other action, and another version of the API, is an error.
    async fn call(&self, caller: &Caller, request: Request<Bytes>) -> Response<Bytes> {
        let parameters = parameters(&request);
        let action = parameters.get("Action").map(String::as_str).unwrap_or_default();
        let result = match parameters.get("Version").map(String::as_str) {
            Some("2011-06-15") if action == "AssumeRole" => self.assume_role(caller, &parameters),
            _ => Err(Refusal(
                400,
                "InvalidAction",
                format!("Could not find operation {action} for version 2011-06-15"),
            )),
        };
        match result {
            Ok(body) => text_response(200, "text/xml", body),
            Err(Refusal(status, code, message)) => {
                let message = escape(&message);
                let body = format!(
                    "<ErrorResponse xmlns=\"https://sts.amazonaws.com/doc/2011-06-15/\"><Error><Type>Sender</Type><Code>{code}</Code><Message>{message}</Message></Error><RequestId>local</RequestId></ErrorResponse>"
                );
                text_response(status, "text/xml", body)
            }
        }
    }

    fn operation(&self, request: &Request<Bytes>) -> String {
        parameters(request).remove("Action").unwrap_or_default()
    }
}

/// Returns what decides about calls with a session policy. Refused if it is too long, or this
/// emulator cannot read it.
fn session_policy(caller: &Caller, document: &str) -> Result<Arc<dyn Authorizer>, Refusal> {
    if document.chars().count() > POLICY_CHARS_MAX {
        let why = format!("Policy must have at most {POLICY_CHARS_MAX} characters");
        return Err(Refusal(400, "ValidationError", why));
    }
    caller.session_policy(document).map_err(|why| Refusal(400, "MalformedPolicyDocument", why))
}

/// Returns the parameters of a call, which are a form in its body.
fn parameters(request: &Request<Bytes>) -> BTreeMap<String, String> {
    url::form_urlencoded::parse(request.body()).into_owned().collect()
}

/// Returns the XML of issued credentials.
fn answer(
    role: &AssumableRole,
    session: &str,
    id: &str,
    secret: &str,
    token: &str,
    expires_at_seconds: u64,
) -> String {
    let expires_at = i64::try_from(expires_at_seconds).unwrap_or(i64::MAX);
    let expires_at = jiff::Timestamp::from_second(expires_at).unwrap_or_default();
    let assumed = escape(&role.arn.replace(":iam:", ":sts:").replace(":role/", ":assumed-role/"));
    format!(
        "<AssumeRoleResponse xmlns=\"https://sts.amazonaws.com/doc/2011-06-15/\"><AssumeRoleResult>\
         <AssumedRoleUser><AssumedRoleId>AROALOCAL:{session}</AssumedRoleId><Arn>{assumed}/{session}</Arn></AssumedRoleUser>\
         <Credentials><AccessKeyId>{id}</AccessKeyId><SecretAccessKey>{secret}</SecretAccessKey>\
         <SessionToken>{token}</SessionToken><Expiration>{expires_at}</Expiration></Credentials>\
         </AssumeRoleResult><ResponseMetadata><RequestId>local</RequestId></ResponseMetadata></AssumeRoleResponse>"
    )
}

/// Escapes text for the content of XML elements.
fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// Returns random bytes in hexadecimal; `None` if the system has no random numbers.
fn random_hex(bytes: usize) -> Option<String> {
    let mut buffer = vec![0; bytes];
    aws_lc_rs::rand::fill(&mut buffer).ok()?;
    Some(hex::encode(buffer))
}
