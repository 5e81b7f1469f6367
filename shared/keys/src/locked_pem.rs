//! Private keys in PEM that are locked with a password, as Zuul's key store writes them: the older
//! form of OpenSSL (`Proc-Type: 4,ENCRYPTED`, RFC 1421) and PKCS#8 (`ENCRYPTED PRIVATE KEY`, PBES2
//! of RFC 8018).

use crate::{Secret, pem};
use aws_lc_rs::cipher::{
    AES_128, AES_192, AES_256, Algorithm, DecryptionContext, PaddedBlockDecryptingKey,
    UnboundCipherKey,
};
use aws_lc_rs::iv::FixedLength;
use base64::{Engine, engine::general_purpose::STANDARD};
use md5::{Digest, Md5};
use pkcs8::EncryptedPrivateKeyInfoRef;
use zeroize::Zeroizing;

/// The label of a locked PKCS#8 key.
const LOCKED_PKCS8: &str = "ENCRYPTED PRIVATE KEY";
/// The label of a PKCS#1 key.
const PKCS1: &str = "RSA PRIVATE KEY";
/// The bytes of an initialisation vector of AES.
const IV_BYTES: usize = 16;
/// The bytes of the vector that are the salt of the password.
const SALT_BYTES: usize = 8;

/// Why a locked key cannot be used. No variant contains a secret.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UnlockError {
    /// The password does not open the key, or the key is damaged.
    #[error("the password does not open it, or it is damaged")]
    Password,
    /// The text is not a locked key of a known form.
    #[error("it cannot be read: {problem}")]
    Form {
        /// What is wrong.
        problem: &'static str,
    },
}

/// Returns whether a private key in PEM is locked with a password.
pub fn is_locked(text: &Secret) -> bool {
    let text = text.expose_text().unwrap_or_default();
    text.contains(LOCKED_PKCS8) || text.contains("Proc-Type: 4,ENCRYPTED")
}

/// Unlocks a private key in PEM and returns it in PEM without a password. A key that is not locked
/// is returned as it is.
///
/// # Errors
/// When the password does not open the key, or its form or cipher is not known.
pub fn unlock_private_key(text: &Secret, password: &Secret) -> Result<Secret, UnlockError> {
    if !is_locked(text) {
        return Ok(text.clone());
    }
    let pem = text.expose_text().unwrap_or_default();
    if let Some((label, der)) = pem::read(pem) {
        if label != LOCKED_PKCS8 {
            return Err(UnlockError::Form { problem: "it is not an RSA key" });
        }
        let locked = EncryptedPrivateKeyInfoRef::try_from(der.as_slice())
            .map_err(|_| UnlockError::Form { problem: "it is not PKCS#8" })?;
        let plain = locked.decrypt(password.expose()).map_err(|_| UnlockError::Password)?;
        return Ok(written("PRIVATE KEY", plain.as_bytes()));
    }
    let (cipher, iv, locked) = read_with_headers(pem)?;
    let (algorithm, key_bytes): (&Algorithm, usize) = match cipher.as_str() {
        "AES-128-CBC" => (&AES_128, 16),
        "AES-192-CBC" => (&AES_192, 24),
        "AES-256-CBC" => (&AES_256, 32),
        _ => {
            let problem = "only AES in CBC mode is known; convert it with `openssl rsa -aes256`";
            return Err(UnlockError::Form { problem });
        }
    };
    let key = key_of_password(password.expose(), &iv[..SALT_BYTES], key_bytes);
    let key = UnboundCipherKey::new(algorithm, &key).map_err(|_| UnlockError::Password)?;
    let key = PaddedBlockDecryptingKey::cbc_pkcs7(key).map_err(|_| UnlockError::Password)?;
    let context = DecryptionContext::Iv128(FixedLength::from(&iv));
    let mut buffer = Zeroizing::new(locked);
    let plain = key.decrypt(&mut buffer, context).map_err(|_| UnlockError::Password)?;
    Ok(written(PKCS1, plain))
}

/// Returns bytes as PEM.
fn written(label: &str, bytes: &[u8]) -> Secret {
    Secret::new(pem::write(label, bytes, 64).as_bytes().to_vec())
}

/// Reads a PKCS#1 key in PEM with the headers of RFC 1421: the name of its cipher, the
/// initialisation vector and the locked bytes.
fn read_with_headers(text: &str) -> Result<(String, [u8; IV_BYTES], Vec<u8>), UnlockError> {
    let unreadable = |problem| UnlockError::Form { problem };
    let mut lines = text.lines().map(str::trim);
    if !lines.any(|line| line == format!("-----BEGIN {PKCS1}-----")) {
        return Err(unreadable("it is not an RSA key"));
    }
    let (mut cipher, mut encoded) = (None, String::new());
    for line in lines {
        if line == format!("-----END {PKCS1}-----") {
            break;
        }
        if let Some(info) = line.strip_prefix("DEK-Info:") {
            cipher = info.trim().split_once(',');
        } else if !line.contains(':') {
            encoded.push_str(line);
        }
    }
    let (cipher, iv) = cipher.ok_or(unreadable("it names no cipher"))?;
    let hex = |index: usize| u8::from_str_radix(iv.get(2 * index..2 * index + 2)?, 16).ok();
    let bytes: Option<Vec<u8>> = (0..IV_BYTES).map(hex).collect();
    let iv = bytes.and_then(|bytes| bytes.try_into().ok());
    let iv = iv.ok_or(unreadable("it has no initialisation vector of 16 bytes"))?;
    let locked = STANDARD.decode(&encoded).map_err(|_| unreadable("it is not base64"))?;
    Ok((cipher.to_owned(), iv, locked))
}

/// Derives a key of `length` bytes from a password as OpenSSL does for this form: MD5 over what was
/// derived last, the password and the salt, until there are enough bytes.
fn key_of_password(password: &[u8], salt: &[u8], length: usize) -> Zeroizing<Vec<u8>> {
    let mut key = Zeroizing::new(Vec::with_capacity(length + 16));
    let mut last = Zeroizing::new(Vec::new());
    while key.len() < length {
        let mut hash = Md5::new();
        hash.update(&last[..]);
        hash.update(password);
        hash.update(salt);
        *last = hash.finalize().to_vec();
        key.extend_from_slice(&last);
    }
    key.truncate(length);
    key
}
