//! RSA key pairs: one of each project decrypts the secrets in its configuration (Z5.1, Z5.2); those
//! of projects and tenants log in over SSH (Z8.2).
//!
//! The cipher is Zuul's: RSAES-OAEP with SHA-1 for both hashes and an empty label. The line of
//! `openssl` that encrypts without Sluice is in `docs/secrets-and-keys.md`.

use crate::{Secret, pem};
use aws_lc_rs::encoding::{AsDer, Pkcs8V1Der, PublicKeyX509Der};
use aws_lc_rs::rsa::{
    KeySize, OAEP_SHA1_MGF1SHA1, OaepPrivateDecryptingKey, OaepPublicEncryptingKey,
    PrivateDecryptingKey, PublicEncryptingKey,
};
use aws_lc_rs::signature::RsaSubjectPublicKey;
use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::Value;
use sluice_model::{ConnectionName, ProjectName};
use std::fmt;
use zeroize::Zeroizing;

/// The most chunks of one ciphertext; each has 470 bytes with a key of 4096 bits.
const CHUNKS_MAX: usize = 1_000;

/// A project's key pair. It has no `Debug`, so that it is never printed.
pub struct ProjectKey {
    private: PrivateDecryptingKey,
}

impl ProjectKey {
    /// Generates a key pair of 4096 bits, which takes seconds.
    pub fn generate() -> Result<Self, RsaError> {
        let private =
            PrivateDecryptingKey::generate(KeySize::Rsa4096).map_err(|_| RsaError::Generate)?;
        Ok(Self { private })
    }

    /// Generates a key pair of 3072 bits, for SSH and for signatures of tokens: the size that
    /// OpenSSH chooses for RSA. Takes about a second.
    pub fn generate_for_signatures() -> Result<Self, RsaError> {
        let private =
            PrivateDecryptingKey::generate(KeySize::Rsa3072).map_err(|_| RsaError::Generate)?;
        Ok(Self { private })
    }

    /// Parses a private key in PEM: PKCS#8, or PKCS#1 as in Zuul. An error for any other text, and
    /// for a key of less than 2048 or more than 8192 bits.
    pub fn from_pem(text: &Secret) -> Result<Self, RsaError> {
        let text = text.expose_text().ok_or(RsaError::Key { problem: "it is not text" })?;
        let (label, der) = pem::read(text).ok_or(RsaError::Key { problem: "it is not PEM" })?;
        let der = match label.as_str() {
            "PRIVATE KEY" => der,
            "RSA PRIVATE KEY" => pkcs8(&der),
            _ => {
                return Err(RsaError::Key { problem: "it is neither PKCS#8 nor PKCS#1" });
            }
        };
        let private = PrivateDecryptingKey::from_pkcs8(&der)
            .map_err(|_| RsaError::Key { problem: "it is not an RSA key of 2048 bits or more" })?;
        Ok(Self { private })
    }

    /// Returns the private key as PKCS#8 PEM, for the key store only.
    pub fn to_pem(&self) -> Result<Secret, RsaError> {
        let der = AsDer::<Pkcs8V1Der<'_>>::as_der(&self.private)
            .map_err(|_| RsaError::Key { problem: "it cannot be written as PKCS#8" })?;
        Ok(Secret::new(pem::write("PRIVATE KEY", der.as_ref(), 64).as_bytes().to_vec()))
    }

    /// Returns the public key of the pair.
    pub fn public(&self) -> ProjectPublicKey {
        ProjectPublicKey { public: self.private.public_key() }
    }

    /// Decrypts all chunks of a ciphertext of this project and returns their concatenation.
    /// [`RsaError::Decrypt`] for a ciphertext of another project (Z5.3), and for one that is
    /// damaged.
    pub fn decrypt(&self, ciphertext: &Ciphertext) -> Result<Secret, RsaError> {
        let key = OaepPrivateDecryptingKey::new(self.private.clone())
            .map_err(|_| RsaError::Key { problem: "it cannot be used for OAEP" })?;
        let mut whole = Zeroizing::new(Vec::with_capacity(
            ciphertext.chunks.len().saturating_mul(key.min_output_size()),
        ));
        for chunk in &ciphertext.chunks {
            let mut buffer = Zeroizing::new(vec![0; key.min_output_size()]);
            let plain = key
                .decrypt(&OAEP_SHA1_MGF1SHA1, chunk, &mut buffer, None)
                .map_err(|_| RsaError::Decrypt)?;
            whole.extend_from_slice(plain);
        }
        Ok(Secret(whole))
    }
}

/// The public key of a project.
pub struct ProjectPublicKey {
    public: PublicEncryptingKey,
}

impl ProjectPublicKey {
    /// Parses a public key in PEM (SPKI, `BEGIN PUBLIC KEY`). An error for any other text, and for
    /// a key of less than 2048 or more than 8192 bits.
    pub fn from_pem(text: &str) -> Result<Self, RsaError> {
        let (_, der) = pem::read(text)
            .filter(|(label, _)| label == "PUBLIC KEY")
            .ok_or(RsaError::Key { problem: "it is not PEM that begins with BEGIN PUBLIC KEY" })?;
        let public = PublicEncryptingKey::from_der(&der)
            .map_err(|_| RsaError::Key { problem: "it is not an RSA key of 2048 bits or more" })?;
        Ok(Self { public })
    }

    /// Returns the key as PEM (SPKI), as served over HTTP.
    pub fn to_pem(&self) -> Result<String, RsaError> {
        let der = AsDer::<PublicKeyX509Der<'_>>::as_der(&self.public)
            .map_err(|_| RsaError::Key { problem: "it cannot be written as SPKI" })?;
        Ok(pem::write("PUBLIC KEY", der.as_ref(), 64).to_string())
    }

    /// Returns the key as a line for `authorized_keys`, without a comment and a line break:
    /// `ssh-rsa AAAA…` (RFC 4253, 6.6).
    pub fn to_openssh(&self) -> Result<String, RsaError> {
        let (modulus, exponent) = self.numbers()?;
        Ok(crate::ssh::rsa_public_line(&modulus, &exponent))
    }

    /// Returns the modulus and the public exponent, both big-endian without leading zeros.
    pub fn numbers(&self) -> Result<(Vec<u8>, Vec<u8>), RsaError> {
        let unreadable = RsaError::Key { problem: "its numbers cannot be read" };
        let der =
            AsDer::<PublicKeyX509Der<'_>>::as_der(&self.public).map_err(|_| unreadable.clone())?;
        let key = RsaSubjectPublicKey::from_der(der.as_ref()).map_err(|_| unreadable)?;
        let bytes = |number: &[u8]| number.to_vec();
        Ok((
            bytes(key.modulus().big_endian_without_leading_zero()),
            bytes(key.exponent().big_endian_without_leading_zero()),
        ))
    }

    /// Encrypts bytes in as many chunks as needed; empty bytes are one chunk. [`RsaError::TooLong`]
    /// for more than 1,000 chunks. Two calls give different ciphertexts.
    pub fn encrypt(&self, plain: &[u8]) -> Result<Ciphertext, RsaError> {
        let key = OaepPublicEncryptingKey::new(self.public.clone())
            .map_err(|_| RsaError::Key { problem: "it cannot be used for OAEP" })?;
        let size = key.max_plaintext_size(&OAEP_SHA1_MGF1SHA1).max(1);
        if plain.len().div_ceil(size) > CHUNKS_MAX {
            return Err(RsaError::TooLong { max_bytes: size * CHUNKS_MAX });
        }
        let pieces: Vec<&[u8]> =
            if plain.is_empty() { vec![plain] } else { plain.chunks(size).collect() };
        let mut chunks = Vec::with_capacity(pieces.len());
        for piece in pieces {
            let mut buffer = vec![0; key.ciphertext_size()];
            let chunk = key
                .encrypt(&OAEP_SHA1_MGF1SHA1, piece, &mut buffer, None)
                .map_err(|_| RsaError::Encrypt)?;
            chunks.push(chunk.to_vec());
        }
        Ok(Ciphertext { chunks })
    }
}

/// An encrypted secret, as in the configuration under `!encrypted/pkcs1-oaep`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ciphertext {
    chunks: Vec<Vec<u8>>,
}

impl Ciphertext {
    /// Parses the value of the tag `!encrypted/pkcs1-oaep`: base64 text, or a list of 1 to 1,000
    /// such texts. White space in a text is ignored. Nothing is decrypted.
    pub fn from_value(value: &Value) -> Result<Self, RsaError> {
        let texts: Vec<&str> = match value {
            Value::String(text) => vec![text],
            Value::Array(texts) if !texts.is_empty() && texts.len() <= CHUNKS_MAX => texts
                .iter()
                .map(|text| text.as_str().ok_or(RsaError::Ciphertext))
                .collect::<Result<_, _>>()?,
            _ => return Err(RsaError::Ciphertext),
        };
        let decode = |text: &str| {
            let packed: String = text.split_whitespace().collect();
            STANDARD.decode(packed).map_err(|_| RsaError::Ciphertext)
        };
        Ok(Self { chunks: texts.into_iter().map(decode).collect::<Result<_, _>>()? })
    }

    /// Returns the value of the tag as a list of base64 texts, one for each chunk, also for a
    /// single one.
    pub fn to_value(&self) -> Value {
        Value::Array(
            self.chunks.iter().map(|chunk| Value::String(STANDARD.encode(chunk))).collect(),
        )
    }
}

impl fmt::Display for Ciphertext {
    /// Writes the YAML to paste into a configuration, with the tag and a list of chunks, without
    /// indentation.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "!encrypted/pkcs1-oaep")?;
        for chunk in &self.chunks {
            write!(f, "\n- {}", STANDARD.encode(chunk))?;
        }
        Ok(())
    }
}

/// Returns the path of a project's private key in the key store: `<source name>/<repo name>.pem`
/// (Z5.2).
pub fn key_file(connection: &ConnectionName, project: &ProjectName) -> String {
    format!("{}/{}.pem", connection, project.name())
}

/// Why a project's key could not be used. No variant contains a secret.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RsaError {
    /// No key pair could be generated.
    #[error("could not make an RSA key pair: the cryptography library refused; try again")]
    Generate,
    /// A key cannot be parsed or encoded.
    #[error("could not use the project's key: {problem}")]
    Key {
        /// What is wrong with the key.
        problem: &'static str,
    },
    /// The configured value is not a ciphertext, which its author has to correct.
    #[error(
        "could not read the encrypted value: it must be base64 text or a list of up to \
         {CHUNKS_MAX} such texts"
    )]
    Ciphertext,
    /// The value was encrypted for another key, which its author has to correct.
    #[error(
        "could not decrypt the secret: it was not encrypted with this project's public key; \
         encrypt it again with that key"
    )]
    Decrypt,
    /// Encryption failed.
    #[error("could not encrypt the secret: the cryptography library refused the public key")]
    Encrypt,
    /// The plain text is too long.
    #[error("could not encrypt the secret: it is longer than {max_bytes} bytes")]
    TooLong {
        /// The maximum length.
        max_bytes: usize,
    },
}

/// Wraps a PKCS#1 private key as PKCS#8: version 0, the algorithm rsaEncryption, and the key as an
/// octet string.
fn pkcs8(pkcs1: &[u8]) -> Zeroizing<Vec<u8>> {
    const VERSION_AND_ALGORITHM: [u8; 18] = [
        0x02, 0x01, 0x00, 0x30, 0x0d, 0x06, 0x09, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01,
        0x01, 0x05, 0x00,
    ];
    let mut body = Zeroizing::new(Vec::with_capacity(pkcs1.len() + 32));
    body.extend_from_slice(&VERSION_AND_ALGORITHM);
    body.push(0x04);
    der_length(&mut body, pkcs1.len());
    body.extend_from_slice(pkcs1);
    let mut whole = Zeroizing::new(Vec::with_capacity(body.len() + 8));
    whole.push(0x30);
    der_length(&mut whole, body.len());
    whole.extend_from_slice(&body);
    whole
}

/// Appends `length` to `to` as DER writes it before a value.
fn der_length(to: &mut Vec<u8>, length: usize) {
    let bytes = length.to_be_bytes();
    let significant = &bytes[bytes.iter().take_while(|byte| **byte == 0).count()..];
    if length < 0x80 {
        to.extend_from_slice(if significant.is_empty() { &[0] } else { significant });
    } else {
        to.push(0x80 | significant.len() as u8);
        to.extend_from_slice(significant);
    }
}
