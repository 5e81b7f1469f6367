//! Authenticators: which issuers' tokens are accepted, and what each of them must say.

use serde::{Deserialize, Serialize};

/// The claim that names the user, if an authenticator names no other.
const UID_CLAIM: &str = "sub";

/// What an operator configured about the tokens of one issuer, as Zuul's `[auth NAME]` sections.
/// Keys and secrets are not in it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Authenticator {
    /// Its name.
    pub name: String,
    /// How its tokens are signed.
    pub driver: AuthenticatorDriver,
    /// The realm that users see, for example `example.org`.
    pub realm: String,
    /// The audience: a token's `aud` claim must have it.
    pub client_id: String,
    /// The issuer: a token with this `iss` claim belongs to this authenticator. With OpenID Connect
    /// it is the provider's address.
    pub issuer_id: String,
    /// The claim that identifies the user, also to rules as `zuul_uid`.
    #[serde(default = "uid_claim")]
    pub uid_claim: String,
    /// Seconds after `iat` for which a token is accepted, whatever its `exp` says; `None` has no
    /// limit, and then `iat` is not required.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_validity_seconds: Option<u64>,
    /// Seconds by which the issuer's clock may differ.
    #[serde(default)]
    pub skew_seconds: u64,
    /// Whether it is the one that the pages use for logging in.
    #[serde(default)]
    pub is_default: bool,
    /// Whether the claim `zuul.admin` of its tokens, a list of tenants, makes their bearer an
    /// administrator of these tenants.
    #[serde(default)]
    pub allows_override: bool,
}

/// How the tokens of an authenticator are signed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum AuthenticatorDriver {
    /// With a secret that the issuer and Sluice share.
    #[serde(rename = "HS256")]
    Hs256,
    /// With an RSA key whose public half the operator stored.
    #[serde(rename = "RS256")]
    Rs256,
    /// With one of the RSA keys that an OpenID provider publishes.
    OpenIDConnect {
        /// The address of the keys; `None` takes it from the provider's discovery document.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        keys_url: Option<String>,
        /// What clients request of the provider, for example `openid profile`.
        scope: String,
        /// Whether the pages read more about the user from the provider.
        load_user_info: LoadUserInfo,
    },
}

/// Whether the pages read more about a user from the OpenID provider.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LoadUserInfo {
    /// They do.
    #[default]
    Yes,
    /// The token says enough.
    No,
}

/// The signature algorithms that are accepted. There is no `none`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Algorithm {
    /// HMAC with SHA-256.
    Hs256,
    /// RSASSA-PKCS1-v1_5 with SHA-256.
    Rs256,
}

impl Algorithm {
    /// Returns the algorithm's name in the header of a token.
    pub fn name(self) -> &'static str {
        match self {
            Self::Hs256 => "HS256",
            Self::Rs256 => "RS256",
        }
    }
}

impl Authenticator {
    /// Returns the only algorithm with which a token of this authenticator may be signed. The
    /// token's header does not choose it: a header that names another one is refused.
    pub fn algorithm(&self) -> Algorithm {
        match self.driver {
            AuthenticatorDriver::Hs256 => Algorithm::Hs256,
            AuthenticatorDriver::Rs256 | AuthenticatorDriver::OpenIDConnect { .. } => {
                Algorithm::Rs256
            }
        }
    }

    /// Returns the name of the driver, as in Zuul's configuration and API.
    pub fn driver_name(&self) -> &'static str {
        match self.driver {
            AuthenticatorDriver::Hs256 => "HS256",
            AuthenticatorDriver::Rs256 => "RS256",
            AuthenticatorDriver::OpenIDConnect { .. } => "OpenIDConnect",
        }
    }
}

/// Returns the default of [`Authenticator::uid_claim`], for records and arguments without one.
fn uid_claim() -> String {
    UID_CLAIM.to_owned()
}
