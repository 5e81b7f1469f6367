//! SSH key pairs for logins on nodes, in OpenSSH's own formats (Z8.2), and fingerprints of host
//! keys (Z8.1).

use crate::{Secret, pem};
use aws_lc_rs::encoding::AsBigEndian;
use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair};
use aws_lc_rs::{digest, rand};
use base64::Engine;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};
use md5::{Digest, Md5};
use sluice_model::job::Fingerprint;
use zeroize::Zeroizing;

const KIND: &str = "ssh-ed25519";
/// The type of an RSA key.
const RSA: &str = "ssh-rsa";

/// An Ed25519 key pair. `Debug` prints only the public key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SshKeyPair {
    private: Secret,
    public: String,
}

impl SshKeyPair {
    /// Generates an Ed25519 key pair. The comment is for people and is part of both keys; each run
    /// of white space in it, line breaks included, becomes one space.
    pub fn generate(comment: &str) -> Result<Self, SshError> {
        let pair = Ed25519KeyPair::generate().map_err(|_| SshError::Generate)?;
        let seed = pair.seed().map_err(|_| SshError::Generate)?;
        let seed =
            Zeroizing::new(seed.as_be_bytes().map_err(|_| SshError::Generate)?.as_ref().to_vec());
        let mut check = [0; 4];
        rand::fill(&mut check).map_err(|_| SshError::Generate)?;
        let comment = comment.split_whitespace().collect::<Vec<_>>().join(" ");
        let public = pair.public_key().as_ref();
        let private = openssh_private(&seed, public, check, &comment);
        Ok(Self {
            private: Secret::new(
                pem::write("OPENSSH PRIVATE KEY", &private, 70).as_bytes().to_vec(),
            ),
            public: format!("{KIND} {} {comment}", STANDARD.encode(public_blob(public)))
                .trim_end()
                .to_owned(),
        })
    }

    /// Restores a key pair from the private key in OpenSSH's format, which contains the public key.
    /// An error unless it is a single Ed25519 key without a passphrase.
    pub fn from_openssh(private: Secret) -> Result<Self, SshError> {
        let text = private.expose_text().ok_or(SshError::Read)?;
        let (_, bytes) = pem::read(text)
            .filter(|(label, _)| label == "OPENSSH PRIVATE KEY")
            .ok_or(SshError::Read)?;
        let public = read_public(&bytes).ok_or(SshError::Read)?;
        Ok(Self { private, public })
    }

    /// Returns the private key in OpenSSH's format, without a passphrase, as `ssh-add` and russh
    /// read it.
    pub fn private(&self) -> &Secret {
        &self.private
    }

    /// Returns the public key as one line for `authorized_keys`: `ssh-ed25519 AAAA… comment`.
    pub fn public_line(&self) -> &str {
        &self.public
    }
}

/// Why there is no key pair.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SshError {
    /// No key pair could be generated.
    #[error("could not make an SSH key pair: the cryptography library refused; try again")]
    Generate,
    /// The stored text is not a key pair.
    #[error(
        "could not read the SSH key pair: it is not an unencrypted Ed25519 key in OpenSSH's \
         format; delete it to have a new one made"
    )]
    Read,
}

/// Appends bytes after their length, as SSH encodes a string.
fn string(to: &mut Vec<u8>, bytes: &[u8]) {
    to.extend_from_slice(&(bytes.len() as u32).to_be_bytes());
    to.extend_from_slice(bytes);
}

/// Returns an RSA public key as a line for `authorized_keys`, without a comment (RFC 4253, 6.6).
/// Both numbers are big-endian without leading zeros.
pub(crate) fn rsa_public_line(modulus: &[u8], exponent: &[u8]) -> String {
    let mut blob = Vec::with_capacity(modulus.len() + 32);
    string(&mut blob, RSA.as_bytes());
    for number in [exponent, modulus] {
        // A number whose first bit is set would be negative.
        let sign: &[u8] = if number.first().is_some_and(|byte| *byte >= 0x80) { &[0] } else { &[] };
        string(&mut blob, &[sign, number].concat());
    }
    format!("{RSA} {}", STANDARD.encode(blob))
}

/// Returns the fingerprint of a public key in the form of `like`: MD5 or SHA-256 (Z8.1). `key` is
/// the key as in `known_hosts`, in base64; `None` if it is not base64.
pub fn fingerprint_like(like: &Fingerprint, key: &str) -> Option<Fingerprint> {
    let blob = STANDARD.decode(key).ok()?;
    Some(match like {
        Fingerprint::Md5(_) => {
            let bytes = Md5::digest(&blob);
            let bytes: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            Fingerprint::Md5(bytes.join(":"))
        }
        Fingerprint::Sha256(_) => {
            let hash = digest::digest(&digest::SHA256, &blob);
            Fingerprint::Sha256(STANDARD_NO_PAD.encode(hash))
        }
    })
}

/// Encodes a public key in SSH's binary form.
fn public_blob(public: &[u8]) -> Vec<u8> {
    let mut blob = Vec::with_capacity(64);
    string(&mut blob, KIND.as_bytes());
    string(&mut blob, public);
    blob
}

/// Encodes a private key as `openssh-key-v1` without encryption (PROTOCOL.key of OpenSSH), in
/// binary form. `check` are four random bytes.
fn openssh_private(
    seed: &[u8],
    public: &[u8],
    check: [u8; 4],
    comment: &str,
) -> Zeroizing<Vec<u8>> {
    let mut inner = Zeroizing::new(Vec::with_capacity(256 + comment.len()));
    inner.extend_from_slice(&check);
    inner.extend_from_slice(&check);
    string(&mut inner, KIND.as_bytes());
    string(&mut inner, public);
    let both = Zeroizing::new([seed, public].concat());
    string(&mut inner, &both);
    string(&mut inner, comment.as_bytes());
    let padding = (8 - inner.len() % 8) % 8;
    inner.extend((1..=padding as u8).collect::<Vec<_>>());
    let mut outer = Zeroizing::new(Vec::with_capacity(512 + comment.len()));
    outer.extend_from_slice(b"openssh-key-v1\0");
    string(&mut outer, b"none");
    string(&mut outer, b"none");
    string(&mut outer, b"");
    outer.extend_from_slice(&1_u32.to_be_bytes());
    string(&mut outer, &public_blob(public));
    string(&mut outer, &inner);
    outer
}

/// Returns the public key line, with its comment, of a single unencrypted Ed25519 key in OpenSSH's
/// binary format; `None` for other bytes.
fn read_public(bytes: &[u8]) -> Option<String> {
    let mut rest = bytes.strip_prefix(b"openssh-key-v1\0")?;
    let unencrypted = [b"none".as_slice(), b"none", b""];
    for expected in unencrypted {
        if take(&mut rest)? != expected {
            return None;
        }
    }
    let (count, after) = rest.split_at_checked(4)?;
    rest = after;
    if count != [0, 0, 0, 1] {
        return None;
    }
    let blob = take(&mut rest)?;
    let mut inner = take(&mut rest)?.get(8..)?;
    let kind = take(&mut inner)?;
    // The public and the private key come before the comment.
    let _ = (take(&mut inner)?, take(&mut inner)?);
    let comment = std::str::from_utf8(take(&mut inner)?).ok()?;
    (kind == KIND.as_bytes())
        .then(|| format!("{KIND} {} {comment}", STANDARD.encode(blob)).trim_end().to_owned())
}

/// Takes bytes that follow their length, and advances `from` behind them; `None` if too few are
/// left.
fn take<'a>(from: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (length, after) = from.split_at_checked(4)?;
    let length = u32::from_be_bytes(length.try_into().ok()?) as usize;
    let (value, after) = after.split_at_checked(length)?;
    *from = after;
    Some(value)
}
