//! Project keys against themselves and against the openssl command.
#![allow(clippy::unwrap_used, missing_docs, reason = "a test may panic")]

use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::json;
use sluice_keys::{Ciphertext, ProjectKey, ProjectPublicKey, RsaError, Secret, key_file};
use std::io::Write;
use std::process::{Command, Stdio};

fn key(text: &str) -> ProjectKey {
    ProjectKey::from_pem(&Secret::from(text.to_owned())).unwrap()
}

fn key_4096() -> ProjectKey {
    key(include_str!("data/test-4096.pem"))
}

/// Z5.1
#[test]
fn a_long_secret_is_encrypted_in_chunks_and_comes_back() {
    let key = key_4096();
    for length in [0_usize, 1, 470, 471, 5_000] {
        let plain: Vec<u8> = (0..length).map(|number| number as u8).collect();
        let ciphertext = key.public().encrypt(&plain).unwrap();
        let again = Ciphertext::from_value(&ciphertext.to_value()).unwrap();
        assert_eq!(again.to_value().as_array().unwrap().len(), length.div_ceil(470).max(1));
        assert_eq!(key.decrypt(&again).unwrap().expose(), plain);
    }
}

/// Z5.3
#[test]
fn a_ciphertext_of_another_project_does_not_decrypt() {
    let other = key(include_str!("data/test-2048.pem"));
    let ciphertext = key_4096().public().encrypt(b"secret").unwrap();
    assert_eq!(other.decrypt(&ciphertext), Err(RsaError::Decrypt));
    assert_eq!(Ciphertext::from_value(&json!(["not base64!"])), Err(RsaError::Ciphertext));
    assert_eq!(Ciphertext::from_value(&json!(7)), Err(RsaError::Ciphertext));
}

/// Z5.2: the documented line for people without our command.
#[test]
fn what_the_openssl_command_encrypts_we_decrypt_and_the_other_way_round() {
    let key = key_4096();
    let dir = tempfile::tempdir().unwrap();
    let public = dir.path().join("project.pub");
    std::fs::write(&public, key.public().to_pem().unwrap()).unwrap();
    let oaep = ["-pkeyopt", "rsa_padding_mode:oaep", "-pkeyopt", "rsa_oaep_md:sha1"];
    let run = |arguments: &[&str], input: &[u8]| {
        let mut child = Command::new("openssl")
            .arg("pkeyutl")
            .args(arguments)
            .args(oaep)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(input).unwrap();
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success());
        output.stdout
    };
    let theirs = run(&["-encrypt", "-pubin", "-inkey", public.to_str().unwrap()], b"from openssl");
    let wrapped = format!("  {}\n", STANDARD.encode(theirs));
    let plain = key.decrypt(&Ciphertext::from_value(&json!(wrapped)).unwrap()).unwrap();
    assert_eq!(plain.expose_text(), Some("from openssl"));

    let ours = key.public().encrypt(b"from us").unwrap().to_value();
    let chunk = STANDARD.decode(ours[0].as_str().unwrap()).unwrap();
    let private = dir.path().join("project.pem");
    std::fs::write(&private, key.to_pem().unwrap().expose()).unwrap();
    assert_eq!(run(&["-decrypt", "-inkey", private.to_str().unwrap()], &chunk), b"from us");
}

/// Z5.2: a key found in the store is used.
#[test]
fn the_older_key_format_reads_as_the_same_key() {
    let newer = key(include_str!("data/test-2048.pem"));
    let older = key(include_str!("data/test-2048-pkcs1.pem"));
    assert_eq!(newer.to_pem().unwrap(), older.to_pem().unwrap());
    assert_eq!(newer.to_pem().unwrap().expose_text().unwrap(), include_str!("data/test-2048.pem"));
    let public = ProjectPublicKey::from_pem(&newer.public().to_pem().unwrap()).unwrap();
    assert_eq!(older.decrypt(&public.encrypt(b"x").unwrap()).unwrap().expose(), b"x");
    assert!(ProjectKey::from_pem(&Secret::from("nonsense".to_owned())).is_err());
    assert_eq!(
        key_file(&"github".into(), &"github.com/org/project".into()),
        "github/org/project.pem"
    );
}

/// Z5.2
#[test]
fn a_new_key_pair_has_4096_bits_and_the_yaml_to_paste_names_the_tag() {
    let key = ProjectKey::generate().unwrap();
    let ciphertext = key.public().encrypt(b"hello").unwrap();
    let text = ciphertext.to_string();
    let (tag, chunk) = text.split_once("\n- ").unwrap();
    assert_eq!((tag, STANDARD.decode(chunk).unwrap().len()), ("!encrypted/pkcs1-oaep", 512));
    assert_eq!(key.decrypt(&ciphertext).unwrap().expose(), b"hello");
}
