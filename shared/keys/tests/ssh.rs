//! SSH key pairs against OpenSSH's own commands.
#![allow(clippy::unwrap_used, missing_docs, reason = "a test may panic")]

use sluice_keys::{Secret, SshKeyPair};
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
