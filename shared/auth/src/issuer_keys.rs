//! The public keys of an OpenID provider: how they are read, cached, and read again.
//!
//! Any caller can send tokens that name keys which do not exist. So an unknown key makes the caller
//! read the provider's keys again at most every [`READ_AGAIN_SECONDS`]. The limit holds for each
//! cache, so for each process that has one: the provider sees that rate times their number.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use serde::Deserialize;
use serde_json::Value;
use sluice_model::Timestamp;

/// The least number of seconds between two attempts to read the keys of one provider.
pub const READ_AGAIN_SECONDS: u64 = 30;

/// Seconds for which keys are used without being read again. A key that the provider withdraws is
/// accepted for so long.
const KEYS_SECONDS: u64 = 3_600;

/// Seconds for which keys are used while the provider does not answer.
const STALE_KEYS_SECONDS: u64 = 6 * 3_600;

/// The maximum number of keys of one provider.
const KEYS_MAX: usize = 100;

/// The least and the largest size of a key's modulus.
const MODULUS_BITS: std::ops::RangeInclusive<usize> = 2_048..=8_192;

/// The least and the largest exponent of a key, which must be odd.
const EXPONENTS: std::ops::RangeInclusive<u64> = 3..=(1 << 33) - 1;

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
    /// with the provider's only key. Keys are used for an hour after they were read, and for some
    /// hours more while they cannot be read again. If the cache has no fresh answer, the keys are
    /// to be read, unless that was tried less than [`READ_AGAIN_SECONDS`] ago; the attempt is noted
    /// here, so that concurrent callers do not repeat it.
    pub fn look_up(&mut self, id: Option<&str>, now: Timestamp) -> KeyLookup {
        let age = self.read_at.map(|at| now.since(at));
        let is_younger = |seconds: u64| age.is_some_and(|age| age < seconds * 1_000);
        let found = match (id, self.keys.as_slice()) {
            (Some(id), keys) => keys.iter().find(|key| key.id.as_deref() == Some(id)),
            (None, [only]) => Some(only),
            (None, _) => None,
        };
        if let Some(key) = found.filter(|_| is_younger(KEYS_SECONDS)) {
            return KeyLookup::Found(key.clone());
        }
        if self.tried_at.is_none_or(|at| now.since(at) >= READ_AGAIN_SECONDS * 1_000) {
            self.tried_at = Some(now);
            return KeyLookup::Read;
        }
        match found.filter(|_| is_younger(STALE_KEYS_SECONDS)) {
            Some(key) => KeyLookup::Found(key.clone()),
            // The last attempt succeeded, and showed no such key.
            None if found.is_none() && self.tried_at == self.read_at => KeyLookup::Unknown,
            None => KeyLookup::Unavailable,
        }
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
    let modulus = number("n").filter(|modulus| MODULUS_BITS.contains(&bits(modulus)))?;
    let exponent = number("e").filter(|exponent| is_exponent(exponent))?;
    Some(IssuerKey { id: text("kid").map(str::to_owned), modulus, exponent })
}

/// Returns the number of bits of a number, big-endian without leading zeros.
fn bits(number: &[u8]) -> usize {
    let zeros = number.first().map_or(0, |first| first.leading_zeros() as usize);
    number.len() * 8 - zeros
}

/// Returns whether a number, big-endian without leading zeros, may be the exponent of a key.
fn is_exponent(number: &[u8]) -> bool {
    let value = number.iter().take(8).fold(0_u64, |value, byte| (value << 8) | u64::from(*byte));
    number.len() <= 8 && value % 2 == 1 && EXPONENTS.contains(&value)
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
        assert_eq!(keys.look_up(Some("a"), at(0)), KeyLookup::Read);
        assert_eq!(keys.look_up(Some("a"), at(1)), KeyLookup::Unavailable, "no answer yet");
        keys.replace(vec![key(Some("a"))], at(1));
        assert_eq!(keys.look_up(Some("a"), at(2)), KeyLookup::Found(key(Some("a"))));
        let mut reads = Vec::new();
        for second in 2..120 {
            let answer = keys.look_up(Some(&format!("no-{second}")), at(second));
            if answer == KeyLookup::Read {
                reads.push(second);
                keys.replace(vec![key(Some("a"))], at(second));
                let again = keys.look_up(Some(&format!("no-{second}")), at(second));
                assert_eq!(again, KeyLookup::Unknown);
            } else {
                assert_eq!(answer, KeyLookup::Unknown);
            }
        }
        assert_eq!(reads, [31, 61, 91]);
    }

    /// C2.2: a withdrawn key ends; a provider that does not answer is no answer about a key.
    #[test]
    fn keys_are_read_again_after_an_hour_and_outlast_a_provider_that_does_not_answer() {
        let mut keys = IssuerKeys::default();
        keys.replace(vec![key(Some("a"))], at(0));
        assert_eq!(keys.look_up(Some("a"), at(3_599)), KeyLookup::Found(key(Some("a"))));
        assert_eq!(keys.look_up(Some("a"), at(3_600)), KeyLookup::Read);
        assert_eq!(keys.look_up(Some("a"), at(3_601)), KeyLookup::Found(key(Some("a"))), "stale");
        assert_eq!(keys.look_up(Some("b"), at(3_602)), KeyLookup::Unavailable, "not: unknown");
        assert_eq!(keys.look_up(Some("a"), at(6 * 3_600)), KeyLookup::Read);
        assert_eq!(keys.look_up(Some("a"), at(6 * 3_600 + 1)), KeyLookup::Unavailable, "too old");
        keys.replace(vec![key(Some("b"))], at(7 * 3_600));
        assert_eq!(keys.look_up(Some("a"), at(7 * 3_600 + 1)), KeyLookup::Unknown, "withdrawn");
        assert_eq!(keys.look_up(Some("b"), at(7 * 3_600 + 1)), KeyLookup::Found(key(Some("b"))));
    }

    /// C2.2: without a key's id, only one key can be meant.
    #[test]
    fn a_token_without_a_key_id_needs_an_only_key() {
        let mut keys = IssuerKeys::default();
        keys.replace(vec![key(None)], at(0));
        assert_eq!(keys.look_up(None, at(1)), KeyLookup::Found(key(None)));
        assert_eq!(keys.look_up(Some("a"), at(1)), KeyLookup::Unknown);
        keys.replace(vec![key(Some("a")), key(Some("b"))], at(1));
        assert_eq!(keys.look_up(None, at(2)), KeyLookup::Unknown);
    }

    /// C2.2: only keys for the one algorithm are used, and no short ones.
    #[test]
    fn only_rsa_keys_for_signatures_are_read() {
        let long = URL_SAFE_NO_PAD.encode([0x87_u8; 256]);
        let signed = URL_SAFE_NO_PAD.encode([[0_u8; 1].as_slice(), &[0x87_u8; 256]].concat());
        let short = URL_SAFE_NO_PAD.encode([0x87_u8; 128]);
        let bits_2047 = URL_SAFE_NO_PAD.encode([0x77_u8; 256]);
        let bits_8200 = URL_SAFE_NO_PAD.encode([0x87_u8; 1_025]);
        let set = json!({"keys": [
            {"kty": "RSA", "kid": "a", "n": long, "e": "AQAB", "use": "sig", "alg": "RS256"},
            {"kty": "RSA", "kid": "b", "n": signed, "e": "AQAB"},
            {"kty": "RSA", "kid": "short", "n": short, "e": "AQAB"},
            {"kty": "RSA", "kid": "2047 bits", "n": bits_2047, "e": "AQAB"},
            {"kty": "RSA", "kid": "8200 bits", "n": bits_8200, "e": "AQAB"},
            {"kty": "RSA", "kid": "even exponent", "n": long, "e": "BA"},
            {"kty": "RSA", "kid": "exponent 1", "n": long, "e": "AQ"},
            {"kty": "RSA", "kid": "exponent 2^33 + 1", "n": long, "e": "AgAAAAE"},
            {"kty": "RSA", "kid": "long exponent", "n": long, "e": "AQAAAAAAAAAB"},
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
        assert_eq!(read[1].modulus, [0x87_u8; 256], "without the sign byte");
        assert_eq!(parse_keys(b"<html>"), None);
        assert_eq!(parse_keys(b"{}"), None);
    }
}
