//! Signs tokens with RSA: JWS in its compact form with `RS256` (RFC 7515, RFC 7518), and the key by
//! which others verify them (RFC 7517).

use crate::{ProjectKey, ProjectPublicKey, RsaError, Secret, pem};
use aws_lc_rs::digest;
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{RSA_PKCS1_SHA256, RsaKeyPair};
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use serde_json::{Map, Value, json};
use std::fmt;

/// The algorithm of the signatures.
pub const ALGORITHM: &str = "RS256";

/// A key that signs tokens. It is never printed.
pub struct TokenSigner {
    pair: RsaKeyPair,
    key_id: String,
}

impl TokenSigner {
    /// Parses the private key of a signer: PKCS#8 in PEM, as [`ProjectKey::to_pem`] writes it.
    ///
    /// # Errors
    /// When the text is no such key.
    pub fn from_pem(text: &Secret) -> Result<Self, RsaError> {
        let key_id = key_id(&ProjectKey::from_pem(text)?.public())?;
        let (_, der) = text
            .expose_text()
            .and_then(pem::read)
            .filter(|(label, _)| label == "PRIVATE KEY")
            .ok_or(RsaError::Key { problem: "it is not PKCS#8" })?;
        let pair = RsaKeyPair::from_pkcs8(&der)
            .map_err(|_| RsaError::Key { problem: "it cannot be used for signatures" })?;
        Ok(Self { pair, key_id })
    }

    /// Signs claims and returns the token.
    ///
    /// # Errors
    /// When the cryptography library refuses.
    pub fn sign(&self, claims: &Map<String, Value>) -> Result<Secret, RsaError> {
        let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let header = json!({ "alg": ALGORITHM, "kid": self.key_id, "typ": "JWT" });
        let message = format!("{}.{}", part(&header), part(&Value::Object(claims.clone())));
        let mut signature = vec![0; self.pair.public_modulus_len()];
        self.pair
            .sign(&RSA_PKCS1_SHA256, &SystemRandom::new(), message.as_bytes(), &mut signature)
            .map_err(|_| RsaError::Key { problem: "it made no signature" })?;
        Ok(Secret::from(format!("{message}.{}", URL_SAFE_NO_PAD.encode(signature))))
    }
}

impl fmt::Debug for TokenSigner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TokenSigner").field("key_id", &self.key_id).finish_non_exhaustive()
    }
}

/// Returns the JSON Web Key of a public key, by which the tokens of its pair are verified.
///
/// # Errors
/// When the numbers of the key cannot be read.
pub fn json_web_key(key: &ProjectPublicKey) -> Result<Value, RsaError> {
    let (modulus, exponent) = key.numbers()?;
    Ok(json!({
        "kty": "RSA",
        "use": "sig",
        "alg": ALGORITHM,
        "kid": key_id(key)?,
        "n": URL_SAFE_NO_PAD.encode(modulus),
        "e": URL_SAFE_NO_PAD.encode(exponent),
    }))
}

/// Returns the id of a key: the hash of its required members in their order (RFC 7638).
fn key_id(key: &ProjectPublicKey) -> Result<String, RsaError> {
    let (modulus, exponent) = key.numbers()?;
    let members = format!(
        r#"{{"e":"{}","kty":"RSA","n":"{}"}}"#,
        URL_SAFE_NO_PAD.encode(exponent),
        URL_SAFE_NO_PAD.encode(modulus)
    );
    Ok(URL_SAFE_NO_PAD.encode(digest::digest(&digest::SHA256, members.as_bytes())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SignatureKey;

    const PRIVATE: &str = include_str!("../tests/data/test-2048.pem");

    /// Z5.5: a token is verified with the published key, and its header names that key.
    #[test]
    fn a_token_is_verified_with_the_published_key() {
        let text = Secret::from(PRIVATE.to_owned());
        let signer = TokenSigner::from_pem(&text).unwrap();
        let claims = json!({"sub": "secret:one/host/org/project/login"});
        let token = signer.sign(claims.as_object().unwrap()).unwrap();
        let token = token.expose_text().unwrap();
        let (message, signature) = token.rsplit_once('.').unwrap();
        let decoded = |part: &str| URL_SAFE_NO_PAD.decode(part).unwrap();
        let public = ProjectKey::from_pem(&text).unwrap().public();
        let published = json_web_key(&public).unwrap();
        let number = |name: &str| decoded(published[name].as_str().unwrap());
        let key = SignatureKey::public_from_numbers(&number("n"), &number("e")).unwrap();
        assert!(key.verifies(message.as_bytes(), &decoded(signature)));
        let parts: Vec<Value> = message
            .split('.')
            .map(|part| serde_json::from_slice(&decoded(part)).unwrap())
            .collect();
        assert_eq!(parts[0]["kid"], published["kid"]);
        assert_eq!((parts[0]["alg"].as_str(), &parts[1]), (Some("RS256"), &claims));
        assert!(!format!("{signer:?}").contains("PRIVATE"));
    }
}
