//! Key pairs: RSA for the secrets of projects and for the SSH keys of projects and tenants, Ed25519
//! for logins on nodes (Z5.1, Z5.2, Z8.2); and the keys that check the signatures of tokens (C2.2).
//!
//! Private keys leave this crate only inside [`Secret`], which is never printed.
#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a test may panic"))]

pub mod locked_pem;
mod pem;
pub mod rsa;
pub mod secret;
pub mod signature;
pub mod ssh;
pub mod token;

pub use rsa::{Ciphertext, ProjectKey, ProjectPublicKey, RsaError, key_file};
pub use secret::Secret;
pub use signature::{SignatureKey, SignatureKeyError};
pub use ssh::{SshError, SshKeyPair, fingerprint_like};
