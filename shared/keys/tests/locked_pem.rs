//! Locked private keys against the openssl command.
#![allow(clippy::unwrap_used, missing_docs, reason = "a test may panic")]

use sluice_keys::locked_pem::{UnlockError, is_locked, unlock_private_key};
use sluice_keys::{ProjectKey, Secret};
use std::io::Write;
use std::process::{Command, Stdio};

const PLAIN: &str = include_str!("data/test-2048.pem");
/// The password of the locked keys.
const PASSWORD: &str = "correct horse battery";

/// Locks the test key with openssl.
fn locked(arguments: &[&str]) -> Secret {
    let mut child = Command::new("openssl")
        .args(arguments)
        .args(["-passout", "env:PASSWORD"])
        .env("PASSWORD", PASSWORD)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(PLAIN.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{arguments:?}");
    Secret::new(output.stdout)
}

/// Z5.2: both forms in which Zuul's key store has locked keys are unlocked with the password alone.
#[test]
fn keys_that_openssl_locked_are_unlocked() {
    let expected = ProjectKey::from_pem(&Secret::from(PLAIN.to_owned())).unwrap();
    let expected = expected.public().to_pem().unwrap();
    for arguments in [
        &["rsa", "-traditional", "-aes128"][..],
        &["rsa", "-traditional", "-aes192"],
        &["rsa", "-traditional", "-aes256"],
        &["pkcs8", "-topk8", "-v2", "aes-256-cbc", "-v2prf", "hmacWithSHA256"],
    ] {
        let locked = locked(arguments);
        assert!(is_locked(&locked), "{arguments:?}");
        let opened = unlock_private_key(&locked, &Secret::from(PASSWORD.to_owned())).unwrap();
        let key = ProjectKey::from_pem(&opened).unwrap();
        assert_eq!(key.public().to_pem().unwrap(), expected, "{arguments:?}");
        let wrong = unlock_private_key(&locked, &Secret::from("wrong".to_owned()));
        // A wrong key may leave valid padding once in 256 times, which then is no key.
        let is_key = wrong.as_ref().is_ok_and(|key| ProjectKey::from_pem(key).is_ok());
        assert!(!is_key, "{arguments:?}");
    }
    let plain = Secret::from(PLAIN.to_owned());
    assert!(!is_locked(&plain));
    let same = unlock_private_key(&plain, &Secret::from(String::new())).unwrap();
    assert_eq!(same.expose(), plain.expose());
}

/// Z5.4: damaged and unknown keys are refused with a reason that quotes nothing of them.
#[test]
fn damaged_and_unknown_locked_keys_are_refused() {
    let password = Secret::from(PASSWORD.to_owned());
    for (text, expected) in [
        (
            "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\n\nc2VjcmV0\n-----END RSA PRIVATE KEY-----\n",
            "names no cipher",
        ),
        (
            "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: DES-EDE3-CBC,00112233445566778899AABBCCDDEEFF\n\nc2VjcmV0\n-----END RSA PRIVATE KEY-----\n",
            "only AES",
        ),
        (
            "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-256-CBC,0011\n\nc2VjcmV0\n-----END RSA PRIVATE KEY-----\n",
            "16 bytes",
        ),
        (
            "-----BEGIN EC PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-256-CBC,00\n\nc2VjcmV0\n-----END EC PRIVATE KEY-----\n",
            "not an RSA key",
        ),
        (
            "-----BEGIN ENCRYPTED PRIVATE KEY-----\nc2VjcmV0\n-----END ENCRYPTED PRIVATE KEY-----\n",
            "not PKCS#8",
        ),
    ] {
        let error = unlock_private_key(&Secret::from(text.to_owned()), &password).unwrap_err();
        assert!(error.to_string().contains(expected), "{error}");
        assert!(!error.to_string().contains("c2VjcmV0") && error != UnlockError::Password);
    }
}
