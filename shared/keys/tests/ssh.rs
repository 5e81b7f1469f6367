//! SSH key pairs against OpenSSH's own commands.
#![allow(clippy::unwrap_used, missing_docs, reason = "a test may panic")]

use sluice_keys::{ProjectKey, Secret, SshKeyPair, fingerprint_like};
use sluice_model::job::Fingerprint;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};

/// Z8.2
#[test]
fn openssh_reads_the_private_key_and_derives_the_same_public_line() {
    let pair = SshKeyPair::generate("sluice tenant\none").unwrap();
    assert!(
        pair.public_line().starts_with("ssh-ed25519 AAAA")
            && pair.public_line().ends_with(" sluice tenant one")
    );
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("key");
    std::fs::write(&file, pair.private().expose()).unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
    let output = Command::new("ssh-keygen").arg("-y").arg("-f").arg(&file).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(String::from_utf8(output.stdout).unwrap().trim(), pair.public_line());
    assert!(!format!("{pair:?}").contains("PRIVATE"));
}

/// Z8.2: executors give keys to an agent, never to a file a playbook could read.
#[test]
fn an_agent_takes_the_private_key_from_a_pipe() {
    let pair = SshKeyPair::generate("agent").unwrap();
    let mut child = Command::new("ssh-agent")
        .args(["sh", "-c", "ssh-add -q - && ssh-add -L"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(pair.private().expose()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(String::from_utf8(output.stdout).unwrap().trim(), pair.public_line());
}

/// Z8.2
#[test]
fn a_kept_private_key_names_its_public_half() {
    let pair = SshKeyPair::generate("stored").unwrap();
    let text = pair.private().expose_text().unwrap().to_owned();
    assert_eq!(SshKeyPair::from_openssh(Secret::from(text.clone())).unwrap(), pair);
    let cut = text[..text.len() / 2].to_owned();
    assert!(SshKeyPair::from_openssh(Secret::from(cut)).is_err());
    assert_ne!(SshKeyPair::generate("stored").unwrap(), pair);
}

/// Z8.2: an RSA pair in the form of the key store is what OpenSSH's agent takes and signs with, and
/// its public line is the one that OpenSSH derives.
#[test]
fn an_agent_takes_an_rsa_pair_of_the_key_store_from_a_pipe() {
    let pair = ProjectKey::generate_for_signatures().unwrap();
    let mut child = Command::new("ssh-agent")
        .args(["sh", "-c", "ssh-add -q - && ssh-add -L && ssh-add -l"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(pair.to_pem().unwrap().expose()).unwrap();
    let output = String::from_utf8(child.wait_with_output().unwrap().stdout).unwrap();
    let mut lines = output.lines();
    let line = pair.public().to_openssh().unwrap();
    assert!(lines.next().unwrap().starts_with(&line), "{output}");
    assert!(lines.next().unwrap().starts_with("3072 SHA256:"), "{output}");
    assert!(!line.contains('\n') && line.split(' ').count() == 2);
}

/// Z8.1: fingerprints in both forms are those that OpenSSH shows.
#[test]
fn fingerprints_are_those_of_openssh() {
    let pair = SshKeyPair::generate("host").unwrap();
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("key.pub");
    std::fs::write(&file, pair.public_line()).unwrap();
    let key = pair.public_line().split(' ').nth(1).unwrap();
    for (form, like) in
        [("md5", "00:".repeat(15) + "00"), ("sha256", format!("SHA256:{}", "a".repeat(43)))]
    {
        let like = Fingerprint::parse(&like).unwrap();
        let output =
            Command::new("ssh-keygen").args(["-l", "-E", form, "-f"]).arg(&file).output().unwrap();
        let shown = String::from_utf8(output.stdout).unwrap();
        let fingerprint = fingerprint_like(&like, key).unwrap();
        assert_eq!(shown.split(' ').nth(1).unwrap(), fingerprint.to_string());
    }
    assert_eq!(fingerprint_like(&Fingerprint::Md5(String::new()), "no base64!"), None);
}
