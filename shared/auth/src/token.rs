//! Bearer tokens (JWT, RFC 7519 in the compact form of RFC 7515): parsed, assigned to an
//! authenticator, and checked against what it pins.

use crate::authenticator::{Algorithm, Authenticator, SKEW_SECONDS_MAX};
use crate::claims;
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use serde::Deserialize;
use serde_json::{Map, Value};
use sluice_model::{TenantName, Timestamp};

/// The maximum length of a token, in bytes. Providers put groups into tokens, but headers of this
/// size are refused on the way already.
const TOKEN_BYTES_MAX: usize = 16 * 1024;

/// The maximum length of a user's id, in characters; a longer one is refused, since it is recorded.
const UID_CHARS_MAX: usize = 256;

/// The maximum number of tenants in the claim `zuul.admin`.
const ADMIN_TENANTS_MAX: usize = 1_000;

/// A token whose form is right. Nothing in it is trusted.
#[derive(Debug, Clone)]
pub struct BearerToken {
    header: Header,
    claims: Map<String, Value>,
    /// Header and claims as they were signed.
    message: String,
    signature: Vec<u8>,
}

/// The header of a token, as far as it is used.
#[derive(Debug, Clone, Deserialize)]
struct Header {
    alg: String,
    #[serde(default)]
    kid: Option<String>,
    /// Extensions that the reader must understand; none is.
    #[serde(default)]
    crit: Option<Value>,
}

/// The bytes of a token whose signature is to be checked, and how.
#[derive(Debug, Clone, Copy)]
pub struct SignedBytes<'t> {
    /// The authenticator whose key must have signed.
    pub authenticator: &'t Authenticator,
    /// The only algorithm that counts.
    pub algorithm: Algorithm,
    /// What was signed.
    pub message: &'t [u8],
    /// The signature.
    pub signature: &'t [u8],
}

/// Who makes a request: the user of a token that was verified. Only
/// [`UnverifiedPrincipal::verify`] makes one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenBearer {
    /// The name of the authenticator that accepted the token.
    pub(crate) authenticator: String,
    /// The user's id.
    pub(crate) uid: String,
    /// All claims of the token.
    pub(crate) claims: Map<String, Value>,
    /// The tenants that the token itself makes its bearer an administrator of.
    pub(crate) admin_of: Vec<TenantName>,
}

impl TokenBearer {
    /// Returns the name of the authenticator that accepted the token.
    pub fn authenticator(&self) -> &str {
        &self.authenticator
    }

    /// Returns the user's id.
    pub fn uid(&self) -> &str {
        &self.uid
    }

    /// Returns the tenants that the token itself makes its bearer an administrator of; none unless
    /// the authenticator lets that count. Each is a name: there is no name for all tenants.
    pub fn admin_of(&self) -> &[TenantName] {
        &self.admin_of
    }
}

/// The principal of a token whose claims are right, but whose signature was not checked yet. Only
/// [`Self::verify`] gives the principal.
#[derive(Debug)]
pub struct UnverifiedPrincipal<'t> {
    token: &'t BearerToken,
    authenticator: &'t Authenticator,
    principal: TokenBearer,
}

/// Why a token is refused. The text is for the bearer; none repeats anything of the token.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    /// It is not a token in the form that is read here.
    #[error("the token is not a signed JWT in compact form")]
    Malformed,
    /// No authenticator has its issuer.
    #[error("no authenticator accepts tokens of this issuer")]
    UnknownIssuer,
    /// It names another algorithm than the authenticator's.
    #[error("tokens of this issuer must be signed with {expected}")]
    WrongAlgorithm {
        /// The algorithm that the authenticator pins.
        expected: &'static str,
    },
    /// It was issued for another audience.
    #[error("the token was issued for another audience than this system")]
    WrongAudience,
    /// It has expired, or is older than the authenticator allows.
    #[error("the token has expired; get a new one")]
    Expired,
    /// It is not valid yet, or was issued in the future.
    #[error("the token is not valid yet; check the issuer's clock")]
    NotYetValid,
    /// A required claim is missing or has another form.
    #[error("the token has no usable claim \"{claim}\"")]
    MissingClaim {
        /// The claim.
        claim: &'static str,
    },
    /// The claim that names the user is missing, or is no text that can be recorded and shown.
    #[error("the token has no usable claim \"{claim}\", which names the user")]
    MissingUser {
        /// The claim that the authenticator names.
        claim: String,
    },
    /// The issuer has no key of the id that it names.
    #[error("the issuer has no key with the id that the token names")]
    UnknownKey,
    /// The signature does not match.
    #[error("the signature of the token does not match")]
    InvalidSignature,
}

impl TokenError {
    /// Returns the short name of the error, for headers and answers.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Malformed => "TokenMalformed",
            Self::UnknownIssuer => "TokenIssuerUnknown",
            Self::WrongAlgorithm { .. } => "TokenAlgorithmMismatch",
            Self::WrongAudience => "TokenAudienceMismatch",
            Self::Expired => "TokenExpired",
            Self::NotYetValid => "TokenNotYetValid",
            Self::MissingClaim { .. } | Self::MissingUser { .. } => "TokenClaimMissing",
            Self::UnknownKey => "TokenKeyUnknown",
            Self::InvalidSignature => "TokenSignatureInvalid",
        }
    }
}

impl BearerToken {
    /// Parses a token.
    ///
    /// # Errors
    /// [`TokenError::Malformed`] for anything but a signed JWT in compact form with a header and
    /// claims in JSON, for one that is too long, and for one that requires extensions.
    pub fn parse(text: &str) -> Result<Self, TokenError> {
        if text.len() > TOKEN_BYTES_MAX {
            return Err(TokenError::Malformed);
        }
        let (message, signature) = text.rsplit_once('.').ok_or(TokenError::Malformed)?;
        let (header, claims) = message.split_once('.').ok_or(TokenError::Malformed)?;
        let decode = |part: &str| URL_SAFE_NO_PAD.decode(part).map_err(|_| TokenError::Malformed);
        let header: Header =
            serde_json::from_slice(&decode(header)?).map_err(|_| TokenError::Malformed)?;
        let claims: Map<String, Value> =
            serde_json::from_slice(&decode(claims)?).map_err(|_| TokenError::Malformed)?;
        if header.crit.is_some() {
            return Err(TokenError::Malformed);
        }
        let signature = decode(signature)?;
        Ok(Self { header, claims, message: message.to_owned(), signature })
    }

    /// Selects the authenticator by the token's issuer and checks the token against it at the time
    /// `now`: algorithm, audience, expiry, the times before which it is not valid, the user's id,
    /// and the form of the claim `zuul.admin` if that counts. The signature remains to be checked.
    ///
    /// # Errors
    /// When no authenticator has the issuer, or the token is not what its authenticator pins.
    pub fn check<'t>(
        &'t self,
        authenticators: impl IntoIterator<Item = &'t Authenticator>,
        now: Timestamp,
    ) -> Result<UnverifiedPrincipal<'t>, TokenError> {
        let issuer = self.text("iss").ok_or(TokenError::MissingClaim { claim: "iss" })?;
        let authenticator = authenticators
            .into_iter()
            .find(|authenticator| authenticator.issuer_id == issuer)
            .ok_or(TokenError::UnknownIssuer)?;
        let expected = authenticator.algorithm().name();
        if self.header.alg != expected {
            return Err(TokenError::WrongAlgorithm { expected });
        }
        self.check_audience(authenticator)?;
        self.check_times(authenticator, now)?;
        if self.text("sub").is_none() {
            return Err(TokenError::MissingClaim { claim: "sub" });
        }
        let uid = claims::find(&self.claims, &authenticator.uid_claim)
            .and_then(Value::as_str)
            .filter(|uid| is_uid(uid))
            .ok_or_else(|| TokenError::MissingUser { claim: authenticator.uid_claim.clone() })?;
        let principal = TokenBearer {
            authenticator: authenticator.name.clone(),
            uid: uid.to_owned(),
            claims: self.claims.clone(),
            admin_of: self.admin_of(authenticator)?,
        };
        Ok(UnverifiedPrincipal { token: self, authenticator, principal })
    }

    /// Checks that the token was issued for the authenticator's audience, alone or among others.
    fn check_audience(&self, authenticator: &Authenticator) -> Result<(), TokenError> {
        let wanted = Value::String(authenticator.audience().to_owned());
        match self.claims.get("aud") {
            None => Err(TokenError::MissingClaim { claim: "aud" }),
            Some(Value::Array(list)) if list.contains(&wanted) => Ok(()),
            Some(audience) if *audience == wanted => Ok(()),
            Some(_) => Err(TokenError::WrongAudience),
        }
    }

    /// Checks expiry and the times before which the token is not valid, with the authenticator's
    /// tolerance.
    fn check_times(&self, authenticator: &Authenticator, now: Timestamp) -> Result<(), TokenError> {
        let now = now.0 as f64 / 1_000.0;
        let skew = authenticator.skew_seconds.min(SKEW_SECONDS_MAX) as f64;
        let expires = self.time("exp")?.ok_or(TokenError::MissingClaim { claim: "exp" })?;
        let issued = self.time("iat")?;
        if now >= expires + skew {
            return Err(TokenError::Expired);
        }
        let starts = [self.time("nbf")?, issued];
        if starts.into_iter().flatten().any(|start| start > now + skew) {
            return Err(TokenError::NotYetValid);
        }
        if let Some(validity) = authenticator.max_validity_seconds {
            let issued = issued.ok_or(TokenError::MissingClaim { claim: "iat" })?;
            // Without the tolerance: the age is a limit of ours, and needs no agreement of clocks.
            if now >= issued + validity as f64 {
                return Err(TokenError::Expired);
            }
        }
        Ok(())
    }

    /// Returns the tenants in the claim `zuul.admin`, if the authenticator lets it count. Anything
    /// but a list of names there is an error.
    fn admin_of(&self, authenticator: &Authenticator) -> Result<Vec<TenantName>, TokenError> {
        // The nested claim only: a literal `zuul.admin` is another claim.
        let claim = self.claims.get("zuul").and_then(|zuul| zuul.get("admin"));
        let Some(claim) = claim.filter(|_| authenticator.allows_override) else {
            return Ok(Vec::new());
        };
        let names = claim.as_array().filter(|list| list.len() <= ADMIN_TENANTS_MAX);
        let names = names.and_then(|list| {
            list.iter().map(|name| name.as_str().map(TenantName::from)).collect::<Option<_>>()
        });
        names.ok_or(TokenError::MissingClaim { claim: "zuul.admin" })
    }

    /// Returns a claim that is a text and not empty.
    fn text(&self, claim: &str) -> Option<&str> {
        self.claims.get(claim).and_then(Value::as_str).filter(|text| !text.is_empty())
    }

    /// Returns a claim that is a time, in seconds since the epoch; `None` if it is missing, an
    /// error if it is no number.
    fn time(&self, claim: &'static str) -> Result<Option<f64>, TokenError> {
        let Some(value) = self.claims.get(claim) else { return Ok(None) };
        let number = value.as_f64().filter(|number| number.is_finite());
        number.map(Some).ok_or(TokenError::MissingClaim { claim })
    }
}

/// Returns whether a text may be a user's id: not empty, without blanks around it, not too long,
/// and printable, because it is recorded and shown.
fn is_uid(text: &str) -> bool {
    !text.is_empty()
        && text.trim() == text
        && text.chars().count() <= UID_CHARS_MAX
        && !text.chars().any(is_invisible)
}

/// Returns whether a character is a control, a format character, or a separator of lines or
/// paragraphs: text with it can look like another one.
fn is_invisible(character: char) -> bool {
    character.is_control()
        || matches!(
            character,
            '\u{ad}'
                | '\u{600}'..='\u{605}'
                | '\u{61c}'
                | '\u{6dd}'
                | '\u{70f}'
                | '\u{890}'..='\u{891}'
                | '\u{8e2}'
                | '\u{180e}'
                | '\u{200b}'..='\u{200f}'
                | '\u{2028}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}'
                | '\u{feff}'
                | '\u{fff9}'..='\u{fffb}'
                | '\u{110bd}'
                | '\u{110cd}'
                | '\u{13430}'..='\u{1343f}'
                | '\u{1bca0}'..='\u{1bca3}'
                | '\u{1d173}'..='\u{1d17a}'
                | '\u{e0000}'..='\u{e007f}'
        )
}

impl<'t> UnverifiedPrincipal<'t> {
    /// Returns the authenticator that the token's issuer selected: its key checks the signature.
    pub fn authenticator(&self) -> &'t Authenticator {
        self.authenticator
    }

    /// Returns the id of the key that the token names, if any.
    pub fn key_id(&self) -> Option<&'t str> {
        self.token.header.kid.as_deref()
    }

    /// Returns the principal if `is_signed` accepts the token's bytes. It must check the signature
    /// with the authenticator's key and algorithm.
    ///
    /// # Errors
    /// When `is_signed` does not accept them.
    pub fn verify(
        self,
        is_signed: impl FnOnce(SignedBytes<'_>) -> bool,
    ) -> Result<TokenBearer, TokenError> {
        let bytes = SignedBytes {
            authenticator: self.authenticator,
            algorithm: self.authenticator.algorithm(),
            message: self.token.message.as_bytes(),
            signature: &self.token.signature,
        };
        if is_signed(bytes) { Ok(self.principal) } else { Err(TokenError::InvalidSignature) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::authenticator::AuthenticatorDriver;
    use serde_json::json;

    const NOW: Timestamp = Timestamp(1_000_000_000);

    fn authenticator(driver: AuthenticatorDriver, issuer_id: &str) -> Authenticator {
        Authenticator {
            name: issuer_id.to_owned(),
            driver,
            realm: "test".to_owned(),
            client_id: "sluice".to_owned(),
            audience: None,
            authority: None,
            issuer_id: issuer_id.to_owned(),
            uid_claim: "sub".to_owned(),
            max_validity_seconds: None,
            skew_seconds: 0,
            is_default: false,
            allows_override: false,
        }
    }

    fn text(header: Value, claims: Value) -> String {
        let part = |value: Value| URL_SAFE_NO_PAD.encode(value.to_string());
        format!("{}.{}.{}", part(header), part(claims), URL_SAFE_NO_PAD.encode("signature"))
    }

    fn claims(changes: Value) -> Value {
        let mut claims = json!({"iss": "rsa", "aud": "sluice", "sub": "alice", "exp": 1_000_060, "iat": 999_990});
        for (name, value) in changes.as_object().unwrap() {
            claims[name] = value.clone();
        }
        claims
    }

    /// Returns the principal of a token, or why it is refused, with every signature accepted.
    fn check(
        header: Value,
        claims: Value,
        change: impl Fn(&mut Authenticator),
    ) -> Result<TokenBearer, TokenError> {
        let mut all = [
            authenticator(AuthenticatorDriver::Rs256, "rsa"),
            authenticator(AuthenticatorDriver::Hs256, "shared"),
        ];
        all.iter_mut().for_each(change);
        let token = BearerToken::parse(&text(header, claims))?;
        token.check(&all, NOW)?.verify(|_| true)
    }

    fn refusal(changes: Value) -> Option<&'static str> {
        check(json!({"alg": "RS256"}), claims(changes), |_| {}).err().map(|error| error.name())
    }

    /// C2.2: the header does not choose the algorithm.
    #[test]
    fn a_token_with_another_algorithm_than_its_authenticators_is_refused() {
        for (issuer, algorithm, is_accepted) in [
            ("rsa", "RS256", true),
            ("rsa", "HS256", false),
            ("rsa", "none", false),
            ("rsa", "rs256", false),
            ("rsa", "RS512", false),
            ("rsa", "PS256", false),
            ("rsa", "", false),
            ("shared", "HS256", true),
            ("shared", "RS256", false),
            ("shared", "None", false),
        ] {
            let answer = check(json!({"alg": algorithm}), claims(json!({"iss": issuer})), |_| {});
            assert_eq!(answer.is_ok(), is_accepted, "{issuer} {algorithm}: {answer:?}");
        }
    }

    /// C2.2: issuer, audience and times are pinned.
    #[test]
    fn claims_that_are_not_what_the_authenticator_pins_are_refused() {
        for (changes, error) in [
            (json!({}), None),
            (json!({"aud": ["other", "sluice"]}), None),
            (json!({"exp": 1_000_000.5}), None),
            (json!({"iss": "elsewhere"}), Some("TokenIssuerUnknown")),
            (json!({"iss": "RSA"}), Some("TokenIssuerUnknown")),
            (json!({"iss": ["rsa"]}), Some("TokenClaimMissing")),
            (json!({"iss": null}), Some("TokenClaimMissing")),
            (json!({"aud": "other"}), Some("TokenAudienceMismatch")),
            (json!({"aud": "sluice-2"}), Some("TokenAudienceMismatch")),
            (json!({"aud": ["other"]}), Some("TokenAudienceMismatch")),
            (json!({"aud": []}), Some("TokenAudienceMismatch")),
            (json!({"aud": {"sluice": true}}), Some("TokenAudienceMismatch")),
            (json!({"exp": 1_000_000}), Some("TokenExpired")),
            (json!({"exp": 0}), Some("TokenExpired")),
            (json!({"exp": -5}), Some("TokenExpired")),
            (json!({"exp": "2000000"}), Some("TokenClaimMissing")),
            (json!({"exp": null}), Some("TokenClaimMissing")),
            (json!({"nbf": 1_000_001}), Some("TokenNotYetValid")),
            (json!({"nbf": 1_000_000}), None),
            (json!({"iat": 1_000_001}), Some("TokenNotYetValid")),
            (json!({"iat": "now"}), Some("TokenClaimMissing")),
            (json!({"sub": ""}), Some("TokenClaimMissing")),
            (json!({"sub": 7}), Some("TokenClaimMissing")),
            (json!({"sub": "a\nb"}), Some("TokenClaimMissing")),
            (json!({"sub": "a\u{202e}b"}), Some("TokenClaimMissing")),
            (json!({"sub": "a\u{2028}b"}), Some("TokenClaimMissing")),
            (json!({"sub": "a\u{200b}"}), Some("TokenClaimMissing")),
            (json!({"sub": " root"}), Some("TokenClaimMissing")),
            (json!({"sub": "root\u{a0}"}), Some("TokenClaimMissing")),
            (json!({"sub": "Ada Müller"}), None),
            (json!({"sub": "x".repeat(300)}), Some("TokenClaimMissing")),
        ] {
            assert_eq!(refusal(changes.clone()), error, "{changes}");
        }
        for required in ["iss", "aud", "exp", "sub"] {
            let mut claims = claims(json!({}));
            claims.as_object_mut().unwrap().remove(required);
            let refused = check(json!({"alg": "RS256"}), claims, |_| {}).unwrap_err();
            assert_eq!(refused.name(), "TokenClaimMissing", "{required}");
        }
    }

    /// C2.2: a clock may differ by the tolerance, and a token may not be older than allowed.
    #[test]
    fn tolerance_and_age_are_the_authenticators() {
        let header = || json!({"alg": "RS256"});
        let with = |changes: Value, change: fn(&mut Authenticator)| {
            check(header(), claims(changes), change).err().map(|error| error.name())
        };
        let tolerant: fn(&mut Authenticator) = |one| one.skew_seconds = 10;
        assert_eq!(with(json!({"exp": 999_991}), tolerant), None);
        assert_eq!(with(json!({"exp": 999_990}), tolerant), Some("TokenExpired"));
        assert_eq!(with(json!({"nbf": 1_000_010}), tolerant), None);
        assert_eq!(with(json!({"nbf": 1_000_011}), tolerant), Some("TokenNotYetValid"));
        let lax: fn(&mut Authenticator) = |one| one.skew_seconds = u64::MAX;
        assert_eq!(with(json!({"exp": 999_701}), lax), None);
        assert_eq!(
            with(json!({"exp": 999_700}), lax),
            Some("TokenExpired"),
            "five minutes at most"
        );
        let young: fn(&mut Authenticator) = |one| {
            (one.max_validity_seconds, one.skew_seconds) = (Some(60), 10);
        };
        assert_eq!(with(json!({"iat": 999_941, "exp": 2_000_000}), young), None);
        assert_eq!(with(json!({"iat": 999_940, "exp": 2_000_000}), young), Some("TokenExpired"));
        assert_eq!(with(json!({"iat": null}), young), Some("TokenClaimMissing"));
    }

    /// C2.2: a token makes its bearer an administrator only if the operator lets it.
    #[test]
    fn the_admin_claim_counts_only_where_the_operator_allows_it() {
        let admin = |value: Value, change: fn(&mut Authenticator)| {
            check(json!({"alg": "RS256"}), claims(json!({"zuul": {"admin": value}})), change)
                .map(|principal| principal.admin_of)
        };
        let allowed: fn(&mut Authenticator) = |one| one.allows_override = true;
        assert_eq!(admin(json!(["acme"]), |_| {}), Ok(Vec::new()));
        assert_eq!(admin(json!(["acme"]), allowed), Ok(vec!["acme".into()]));
        assert_eq!(admin(json!([]), allowed), Ok(Vec::new()));
        let literal = claims(json!({"zuul.admin": ["acme"], "zuul": {"admin": ["other"]}}));
        let principal = check(json!({"alg": "RS256"}), literal, allowed).unwrap();
        assert_eq!(principal.admin_of, ["other".into()], "the nested claim");
        for malformed in [json!("acme"), json!("*"), json!(true), json!([7]), json!({"acme": 1})] {
            assert!(admin(malformed.clone(), allowed).is_err(), "{malformed}");
        }
    }

    /// C2.2: the user's id comes from the claim that the authenticator names.
    #[test]
    fn the_uid_is_the_claim_that_the_authenticator_names() {
        let principal =
            check(json!({"alg": "RS256"}), claims(json!({"name": {"login": "ada"}})), |one| {
                one.uid_claim = "name.login".to_owned();
            });
        assert_eq!(principal.unwrap().uid, "ada");
        let missing = check(json!({"alg": "RS256"}), claims(json!({})), |one| {
            one.uid_claim = "email".to_owned();
        });
        let error = missing.unwrap_err();
        assert_eq!(error, TokenError::MissingUser { claim: "email".to_owned() });
        assert!(error.to_string().contains("\"email\""), "the claim, not the setting: {error}");
    }

    /// C2.2: no principal without a signature that was checked.
    #[test]
    fn a_refused_signature_gives_no_principal() {
        let all = [authenticator(AuthenticatorDriver::Rs256, "rsa")];
        let whole = text(json!({"alg": "RS256", "kid": "one"}), claims(json!({})));
        let token = BearerToken::parse(&whole).unwrap();
        let checked = token.check(&all, NOW).unwrap();
        assert_eq!((checked.key_id(), checked.authenticator().name.as_str()), (Some("one"), "rsa"));
        let refused = checked.verify(|bytes| {
            assert_eq!(bytes.message, whole.rsplit_once('.').unwrap().0.as_bytes());
            assert_eq!(
                (bytes.algorithm, bytes.authenticator.name.as_str()),
                (Algorithm::Rs256, "rsa")
            );
            bytes.signature == b"another"
        });
        assert_eq!(refused, Err(TokenError::InvalidSignature));
    }

    /// C2.2: whatever is sent in a token's place is refused without a panic.
    #[test]
    fn what_is_no_token_is_refused() {
        let ok = text(json!({"alg": "RS256"}), claims(json!({})));
        let parts: Vec<&str> = ok.split('.').collect();
        let long = "a".repeat(TOKEN_BYTES_MAX + 1);
        let critical = text(json!({"alg": "RS256", "crit": ["b64"]}), claims(json!({})));
        let encoded = |text: &str| URL_SAFE_NO_PAD.encode(text);
        let listed = format!("{}.{}.x", encoded("[]"), encoded("{}"));
        let typed = format!("{}.{}.x", encoded("{\"alg\": 7}"), encoded("{}"));
        for malformed in [
            "",
            ".",
            "..",
            "...",
            "a.b",
            "a.b.c",
            parts[0],
            &format!("{}.{}", parts[0], parts[1]),
            &format!("{ok}.{}", parts[2]),
            &format!("{ok}="),
            &format!(" {ok}"),
            &ok.replace('.', ","),
            &critical,
            &listed,
            &typed,
            &long,
            "é.é.é",
        ] {
            let parsed = BearerToken::parse(malformed);
            assert!(parsed.is_err(), "{malformed}");
        }
        assert!(BearerToken::parse(&ok).is_ok());
    }
}
