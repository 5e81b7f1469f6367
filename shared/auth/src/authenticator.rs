//! Authenticators: which issuers' tokens are accepted, and what each of them must say.

use serde::{Deserialize, Serialize};

/// The most seconds by which an issuer's clock may differ.
pub const SKEW_SECONDS_MAX: u64 = 300;

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
    /// The id of the client for which clients log in, and the audience if no other is set.
    pub client_id: String,
    /// The audience: a token's `aud` claim must have it. `None` for the client's id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub audience: Option<String>,
    /// Where clients log in; `None` for the issuer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub authority: Option<String>,
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
    /// Seconds by which the issuer's clock may differ, at most [`SKEW_SECONDS_MAX`].
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

    /// Returns what a token's `aud` claim must have.
    pub fn audience(&self) -> &str {
        self.audience.as_deref().unwrap_or(&self.client_id)
    }

    /// Returns where clients log in.
    pub fn authority(&self) -> &str {
        self.authority.as_deref().unwrap_or(&self.issuer_id)
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

/// Authenticators that can be used together: each has an issuer and a realm of its own, and at most
/// one is the default.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AuthenticatorSet(Vec<Authenticator>);

/// Why authenticators cannot be used together. Each names the authenticator.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AuthenticatorSetError {
    /// A setting is empty.
    #[error("the authenticator {name} has an empty {setting}")]
    Empty {
        /// The authenticator.
        name: String,
        /// The setting.
        setting: &'static str,
    },
    /// Two have one issuer, which selects the authenticator of a token.
    #[error("the authenticators {name} and {other} have the same issuer")]
    SameIssuer {
        /// One of them.
        name: String,
        /// The other one.
        other: String,
    },
    /// Two have one realm, by which clients tell them apart.
    #[error("the authenticators {name} and {other} have the same realm")]
    SameRealm {
        /// One of them.
        name: String,
        /// The other one.
        other: String,
    },
    /// Two are the default.
    #[error("the authenticators {name} and {other} are both the default")]
    SeveralDefaults {
        /// One of them.
        name: String,
        /// The other one.
        other: String,
    },
    /// The tolerance would make expiry meaningless.
    #[error("the authenticator {name} tolerates more than {SKEW_SECONDS_MAX} s of clock skew")]
    LargeSkew {
        /// The authenticator.
        name: String,
    },
}

impl AuthenticatorSet {
    /// Checks authenticators that are to be used together.
    ///
    /// # Errors
    /// When a setting is empty or out of bounds, or two of them exclude each other.
    pub fn new(all: Vec<Authenticator>) -> Result<Self, AuthenticatorSetError> {
        for (index, one) in all.iter().enumerate() {
            let name = || one.name.clone();
            let settings = [
                ("name", one.name.as_str()),
                ("realm", &one.realm),
                ("client_id", &one.client_id),
                ("audience", one.audience()),
                ("issuer_id", &one.issuer_id),
                ("uid_claim", &one.uid_claim),
            ];
            if let Some((setting, _)) = settings.iter().find(|(_, text)| text.trim().is_empty()) {
                return Err(AuthenticatorSetError::Empty { name: name(), setting });
            }
            if one.skew_seconds > SKEW_SECONDS_MAX {
                return Err(AuthenticatorSetError::LargeSkew { name: name() });
            }
            for before in all.iter().take(index) {
                let (name, other) = (before.name.clone(), name());
                if before.issuer_id == one.issuer_id {
                    return Err(AuthenticatorSetError::SameIssuer { name, other });
                }
                if before.realm == one.realm {
                    return Err(AuthenticatorSetError::SameRealm { name, other });
                }
                if before.is_default && one.is_default {
                    return Err(AuthenticatorSetError::SeveralDefaults { name, other });
                }
            }
        }
        Ok(Self(all))
    }

    /// Returns the authenticators, in their order.
    pub fn iter(&self) -> impl Iterator<Item = &Authenticator> {
        self.0.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn authenticator(name: &str) -> Authenticator {
        Authenticator {
            name: name.to_owned(),
            driver: AuthenticatorDriver::Hs256,
            realm: name.to_owned(),
            client_id: "sluice".to_owned(),
            audience: None,
            authority: None,
            issuer_id: name.to_owned(),
            uid_claim: uid_claim(),
            max_validity_seconds: None,
            skew_seconds: 0,
            is_default: false,
            allows_override: false,
        }
    }

    /// C2.2: an issuer selects one authenticator, and no setting is empty.
    #[test]
    fn authenticators_that_exclude_each_other_are_refused() {
        let two = |change: fn(&mut Authenticator)| {
            let (first, mut second) = (authenticator("one"), authenticator("two"));
            let first = Authenticator { is_default: true, ..first };
            change(&mut second);
            AuthenticatorSet::new(vec![first, second]).err().map(|error| error.to_string())
        };
        assert_eq!(two(|_| {}), None);
        type Change = fn(&mut Authenticator);
        let changes: [(Change, &str); 7] = [
            (|two| two.issuer_id = "one".to_owned(), "same issuer"),
            (|two| two.realm = "one".to_owned(), "same realm"),
            (|two| two.is_default = true, "both the default"),
            (|two| two.client_id = String::new(), "empty client_id"),
            (|two| two.audience = Some(" ".to_owned()), "empty audience"),
            (|two| two.issuer_id = String::new(), "empty issuer_id"),
            (|two| two.skew_seconds = SKEW_SECONDS_MAX + 1, "clock skew"),
        ];
        for (change, text) in changes {
            let error = two(change).unwrap();
            assert!(error.contains(text), "{error}");
        }
    }

    /// C2.2: the audience may differ from the client's id.
    #[test]
    fn audience_and_authority_have_defaults() {
        let one = authenticator("one");
        assert_eq!((one.audience(), one.authority()), ("sluice", "one"));
        let other = Authenticator {
            audience: Some("api".to_owned()),
            authority: Some("https://login.example.org".to_owned()),
            ..one
        };
        assert_eq!((other.audience(), other.authority()), ("api", "https://login.example.org"));
    }
}
