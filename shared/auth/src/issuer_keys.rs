//! The public keys of an OpenID provider: how they are read, cached, and read again.
//!
//! Any caller can send tokens that name keys which do not exist. So an unknown key makes the caller
//! read the provider's keys again at most every [`READ_AGAIN_SECONDS`].

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use serde::Deserialize;
use serde_json::Value;
use sluice_model::Timestamp;

/// The least number of seconds between two attempts to read the keys of one provider.
pub const READ_AGAIN_SECONDS: u64 = 30;

/// Seconds for which keys are used without being read again. A key that the provider withdraws is
/// accepted for so long.
const KEYS_SECONDS: u64 = 3_600;

/// The maximum number of keys of one provider.
const KEYS_MAX: usize = 100;

/// The least and the largest size of a key's modulus, in bytes: 2048 to 8192 bits.
const MODULUS_BYTES: std::ops::RangeInclusive<usize> = 256..=1_024;

/// A public RSA key of a provider.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IssuerKey {
    /// The id by which tokens name it; `None` if the provider gives none.
    pub id: Option<String>,
    /// The modulus, big-endian.
    pub modulus: Vec<u8>,
    /// The exponent, big-endian.
    pub exponent: Vec<u8>,
}

/// The cached keys of one provider.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct IssuerKeys {
    keys: Vec<IssuerKey>,
    read_at: Option<Timestamp>,
    tried_at: Option<Timestamp>,
}

/// What to do about the key of a token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeyLookup {
    /// The token must be signed with this key.
    Found(IssuerKey),
    /// The keys must be read from the provider first.
    Read,
    /// The provider has no such key, or had none a moment ago.
    Unknown,
    /// The keys could not be read a moment ago; nothing is known about the token.
    Unavailable,
}

impl IssuerKeys {
    /// Decides what to do about a token that names the key `id`. A token that names none is signed
    /// with the provider's only key. A key is used for an hour after it was read. If the cache has
    /// no usable answer, the keys are to be read, unless that was tried less than
    /// [`READ_AGAIN_SECONDS`] ago.
    pub fn find(&self, id: Option<&str>, now: Timestamp) -> KeyLookup {
        let is_fresh = self.read_at.is_some_and(|at| now.since(at) < KEYS_SECONDS * 1_000);
        let found = match (id, self.keys.as_slice()) {
            (Some(id), keys) => keys.iter().find(|key| key.id.as_deref() == Some(id)),
            (None, [only]) => Some(only),
            (None, _) => None,
        };
        if let Some(key) = found.filter(|_| is_fresh) {
            return KeyLookup::Found(key.clone());
        }
        let may_read = self.tried_at.is_none_or(|at| now.since(at) >= READ_AGAIN_SECONDS * 1_000);
        match (may_read, is_fresh) {
            (true, _) => KeyLookup::Read,
            (false, true) => KeyLookup::Unknown,
            (false, false) => KeyLookup::Unavailable,
        }
    }

    /// Notes that the keys are being read, before it is known whether that succeeds.
    pub fn note_attempt(&mut self, now: Timestamp) {
        self.tried_at = Some(now);
    }

    /// Replaces the keys by those that were read.
    pub fn replace(&mut self, keys: Vec<IssuerKey>, now: Timestamp) {
        (self.keys, self.read_at, self.tried_at) = (keys, Some(now), Some(now));
    }
}

#[derive(Deserialize)]
struct KeySet {
    keys: Vec<Value>,
}

/// Parses a JSON Web Key Set, and returns its RSA keys for signatures with RS256, at most
/// `KEYS_MAX`. Other keys, unreadable ones and those of less than 2048 bits are left out. `None` if
/// the text is no key set.
pub fn parse_keys(text: &[u8]) -> Option<Vec<IssuerKey>> {
    let set: KeySet = serde_json::from_slice(text).ok()?;
    Some(set.keys.iter().take(KEYS_MAX).filter_map(parse_key).collect())
}

/// Parses one key of a set; `None` if it is not for verifying signatures with RS256.
fn parse_key(key: &Value) -> Option<IssuerKey> {
    let text = |name: &str| key.get(name).and_then(Value::as_str);
    let is_for_signatures = text("kty") == Some("RSA")
        && text("use").is_none_or(|usage| usage == "sig")
        && text("alg").is_none_or(|algorithm| algorithm == "RS256");
    if !is_for_signatures {
        return None;
    }
    let number = |name: &str| {
        let bytes = URL_SAFE_NO_PAD.decode(text(name)?.trim_end_matches('=')).ok()?;
        let zeros = bytes.iter().take_while(|byte| **byte == 0).count();
        bytes.get(zeros..).filter(|rest| !rest.is_empty()).map(<[u8]>::to_vec)
    };
    let modulus = number("n").filter(|modulus| MODULUS_BYTES.contains(&modulus.len()))?;
    Some(IssuerKey { id: text("kid").map(str::to_owned), modulus, exponent: number("e")? })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn key(id: Option<&str>) -> IssuerKey {
        IssuerKey { id: id.map(str::to_owned), modulus: vec![1], exponent: vec![3] }
    }

    fn at(seconds: u64) -> Timestamp {
        Timestamp(seconds * 1_000)
    }

    /// C2.2: a flood of tokens with unknown keys does not become a flood of requests to the
    /// provider.
    #[test]
    fn unknown_keys_are_looked_for_at_most_once_in_a_while() {
        let mut keys = IssuerKeys::default();
        assert_eq!(keys.find(Some("a"), at(0)), KeyLookup::Read);
        keys.note_attempt(at(0));
        assert_eq!(keys.find(Some("a"), at(1)), KeyLookup::Unavailable, "the answer is not here");
        keys.replace(vec![key(Some("a"))], at(1));
        assert_eq!(keys.find(Some("a"), at(2)), KeyLookup::Found(key(Some("a"))));
        let reads = (2..120)
            .filter(|second| {
                let is_read =
                    keys.find(Some(&format!("no-{second}")), at(*second)) == KeyLookup::Read;
                if is_read {
                    keys.note_attempt(at(*second));
                }
                is_read
            })
            .collect::<Vec<_>>();
        assert_eq!(reads, [31, 61, 91]);
        assert_eq!(keys.find(Some("b"), at(92)), KeyLookup::Unknown);
    }

    /// C2.2: a withdrawn key ends, and an unavailable provider is not an answer.
    #[test]
    fn keys_are_read_again_after_an_hour() {
        let mut keys = IssuerKeys::default();
        keys.replace(vec![key(Some("a"))], at(0));
        assert_eq!(keys.find(Some("a"), at(3_599)), KeyLookup::Found(key(Some("a"))));
        assert_eq!(keys.find(Some("a"), at(3_600)), KeyLookup::Read);
        keys.note_attempt(at(3_600));
        assert_eq!(keys.find(Some("a"), at(3_601)), KeyLookup::Unavailable);
        keys.replace(vec![key(Some("b"))], at(3_630));
        assert_eq!(keys.find(Some("a"), at(3_631)), KeyLookup::Unknown);
        assert_eq!(keys.find(Some("b"), at(3_631)), KeyLookup::Found(key(Some("b"))));
    }

    /// C2.2: without a key's id, only one key can be meant.
    #[test]
    fn a_token_without_a_key_id_needs_an_only_key() {
        let mut keys = IssuerKeys::default();
        keys.replace(vec![key(None)], at(0));
        assert_eq!(keys.find(None, at(1)), KeyLookup::Found(key(None)));
        assert_eq!(keys.find(Some("a"), at(1)), KeyLookup::Unknown);
        keys.replace(vec![key(Some("a")), key(Some("b"))], at(1));
        assert_eq!(keys.find(None, at(2)), KeyLookup::Unknown);
    }

    /// C2.2: only keys for the one algorithm are used, and no short ones.
    #[test]
    fn only_rsa_keys_for_signatures_are_read() {
        let long = URL_SAFE_NO_PAD.encode([7_u8; 256]);
        let signed = URL_SAFE_NO_PAD.encode([[0_u8; 1].as_slice(), &[7_u8; 256]].concat());
        let short = URL_SAFE_NO_PAD.encode([7_u8; 128]);
        let set = json!({"keys": [
            {"kty": "RSA", "kid": "a", "n": long, "e": "AQAB", "use": "sig", "alg": "RS256"},
            {"kty": "RSA", "kid": "b", "n": signed, "e": "AQAB"},
            {"kty": "RSA", "kid": "short", "n": short, "e": "AQAB"},
            {"kty": "RSA", "kid": "encrypts", "n": long, "e": "AQAB", "use": "enc"},
            {"kty": "RSA", "kid": "other", "n": long, "e": "AQAB", "alg": "PS256"},
            {"kty": "oct", "kid": "shared", "k": "c2VjcmV0"},
            {"kty": "EC", "kid": "curve", "crv": "P-256", "x": "AA", "y": "AA"},
            {"kty": "RSA", "kid": "damaged", "n": "***", "e": "AQAB"},
            {"kty": "RSA", "kid": "no exponent", "n": long, "e": ""},
            7,
        ]});
        let read = parse_keys(set.to_string().as_bytes()).unwrap();
        let ids: Vec<_> = read.iter().map(|key| key.id.as_deref().unwrap()).collect();
        assert_eq!(ids, ["a", "b"]);
        assert_eq!(read[1].modulus, [7_u8; 256], "without the sign byte");
        assert_eq!(parse_keys(b"<html>"), None);
        assert_eq!(parse_keys(b"{}"), None);
    }
}
