//! Signatures of tokens: HMAC with SHA-256 (`HS256`), and RSA with PKCS#1 v1.5 and SHA-256
//! (`RS256`).
//!
//! A key knows its algorithm, so a caller cannot be made to use the public half of an RSA key as a
//! shared secret.

use crate::{ProjectPublicKey, Secret, pem};
use aws_lc_rs::hmac;
use aws_lc_rs::signature::{ParsedPublicKey, RSA_PKCS1_2048_8192_SHA256, RsaPublicKeyComponents};
use std::fmt;

/// The least number of bytes of a shared secret: the size of the hash (RFC 7518, 3.2).
pub const SHARED_SECRET_BYTES_MIN: usize = 32;

/// A key that checks signatures with its one algorithm. It is never printed.
#[derive(Clone)]
pub struct SignatureKey(Kind);

#[derive(Clone)]
enum Kind {
    // Boxed, because it is large.
    Shared(Box<hmac::Key>),
    Public(ParsedPublicKey),
}

impl SignatureKey {
    /// Returns the key for tokens that are signed with a shared secret (`HS256`). An error if the
    /// secret is shorter than [`SHARED_SECRET_BYTES_MIN`].
    ///
    /// # Errors
    /// When the secret is too short.
    pub fn shared(secret: &Secret) -> Result<Self, SignatureKeyError> {
        shared_key(secret).map(|key| Self(Kind::Shared(Box::new(key))))
    }

    /// Parses the public key of tokens that are signed with RSA (`RS256`), in PEM (`PUBLIC KEY`).
    ///
    /// # Errors
    /// For any other text, such as a private key, and for a key of less than 2048 or more than 8192
    /// bits.
    pub fn public_from_pem(text: &str) -> Result<Self, SignatureKeyError> {
        let refused = |problem| SignatureKeyError::PublicKey { problem };
        let (label, der) = pem::read(text).ok_or(refused("it is not PEM"))?;
        if label != "PUBLIC KEY" {
            return Err(refused("it does not begin with BEGIN PUBLIC KEY"));
        }
        // Also checks the size, which the other parser leaves to each signature.
        ProjectPublicKey::from_pem(text)
            .map_err(|_| refused("it is not an RSA key of 2048 to 8192 bits"))?;
        let key = ParsedPublicKey::new(&RSA_PKCS1_2048_8192_SHA256, der.as_slice());
        key.map(|key| Self(Kind::Public(key))).map_err(|_| refused("it is not an RSA key"))
    }

    /// Returns the key with a modulus and an exponent, both big-endian without leading zeros
    /// (`RS256`). `None` if they are no RSA key.
    pub fn public_from_numbers(modulus: &[u8], exponent: &[u8]) -> Option<Self> {
        let key = RsaPublicKeyComponents { n: modulus, e: exponent };
        let key = key.to_parsed_public_key(&RSA_PKCS1_2048_8192_SHA256).ok()?;
        Some(Self(Kind::Public(key)))
    }

    /// Returns whether a signature of a message was made with this key. Takes the same time for
    /// every wrong signature with a shared secret.
    pub fn verifies(&self, message: &[u8], signature: &[u8]) -> bool {
        match &self.0 {
            Kind::Shared(key) => hmac::verify(key, message, signature).is_ok(),
            Kind::Public(key) => key.verify_sig(message, signature).is_ok(),
        }
    }
}

impl fmt::Debug for SignatureKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SignatureKey(hidden)")
    }
}

/// Signs a message with a shared secret (`HS256`).
///
/// # Errors
/// When the secret is too short.
pub fn sign_with_shared_secret(
    secret: &Secret,
    message: &[u8],
) -> Result<Vec<u8>, SignatureKeyError> {
    Ok(hmac::sign(&shared_key(secret)?, message).as_ref().to_vec())
}

fn shared_key(secret: &Secret) -> Result<hmac::Key, SignatureKeyError> {
    if secret.expose().len() < SHARED_SECRET_BYTES_MIN {
        return Err(SignatureKeyError::ShortSecret);
    }
    Ok(hmac::Key::new(hmac::HMAC_SHA256, secret.expose()))
}

/// Why a key cannot be used to check signatures.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SignatureKeyError {
    /// The shared secret could be guessed.
    #[error(
        "the secret is shorter than {SHARED_SECRET_BYTES_MIN} bytes and could be guessed; make one with: openssl rand -hex 32"
    )]
    ShortSecret,
    /// The public key cannot be read.
    #[error("the public key cannot be used: {problem}")]
    PublicKey {
        /// What is wrong.
        problem: &'static str,
    },
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ProjectKey;
    use aws_lc_rs::rand::SystemRandom;
    use aws_lc_rs::signature::{RSA_PKCS1_SHA256, RsaKeyPair};

    const PRIVATE: &str = include_str!("../tests/data/test-2048.pem");

    fn signature(message: &[u8]) -> Vec<u8> {
        let (_, der) = pem::read(PRIVATE).unwrap();
        let pair = RsaKeyPair::from_pkcs8(&der).unwrap();
        let mut signature = vec![0; pair.public_modulus_len()];
        pair.sign(&RSA_PKCS1_SHA256, &SystemRandom::new(), message, &mut signature).unwrap();
        signature
    }

    fn public_pem() -> String {
        let key = ProjectKey::from_pem(&Secret::from(PRIVATE.to_owned())).unwrap();
        key.public().to_pem().unwrap()
    }

    /// C2.2: a signature holds for its message and key only.
    #[test]
    fn a_signature_holds_for_its_message_and_key_only() {
        let secret = Secret::from("a secret of thirty-two bytes ...".to_owned());
        let shared = SignatureKey::shared(&secret).unwrap();
        let hashed = sign_with_shared_secret(&secret, b"message").unwrap();
        let public = SignatureKey::public_from_pem(&public_pem()).unwrap();
        let signed = signature(b"message");
        for (key, message, signature, holds) in [
            (&shared, b"message", &hashed, true),
            (&shared, b"massage", &hashed, false),
            (&shared, b"message", &signed, false),
            (&public, b"message", &signed, true),
            (&public, b"massage", &signed, false),
            (&public, b"message", &hashed, false),
        ] {
            assert_eq!(key.verifies(message, signature), holds);
            assert!(!key.verifies(message, b""));
        }
    }

    /// C2.2: the public key is no secret with which tokens can be signed.
    #[test]
    fn a_public_key_is_never_a_shared_secret() {
        let pem = public_pem();
        let forged = sign_with_shared_secret(&Secret::from(pem.clone()), b"message").unwrap();
        assert!(!SignatureKey::public_from_pem(&pem).unwrap().verifies(b"message", &forged));
    }

    /// C2.2: keys that are weak or private are not accepted.
    #[test]
    fn weak_and_private_keys_are_refused() {
        let short = Secret::from("x".repeat(SHARED_SECRET_BYTES_MIN - 1));
        assert_eq!(SignatureKey::shared(&short).unwrap_err(), SignatureKeyError::ShortSecret);
        for text in [PRIVATE, "", "-----BEGIN PUBLIC KEY-----\nMIIC\n-----END PUBLIC KEY-----\n"] {
            assert!(SignatureKey::public_from_pem(text).is_err(), "{text}");
        }
        assert!(SignatureKey::public_from_numbers(&[], &[1]).is_none());
    }

    /// Z5.4
    #[test]
    fn a_key_cannot_be_printed() {
        let key = SignatureKey::shared(&Secret::from("s".repeat(40))).unwrap();
        assert_eq!(format!("{key:?}"), "SignatureKey(hidden)");
    }
}
