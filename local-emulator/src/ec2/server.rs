//! What the SSH server of a node reads: its host keys and its configuration.

use super::store::Record;
use std::fs;
use std::io;
use std::path::Path;
use std::process::{Command, Stdio};

/// The place in a node of what the emulator gives to it.
pub(super) const PLACE: &str = "/run/instance/";

/// Creates the SSH host keys of a machine (Ed25519 and ECDSA) in its directory `instance`,
/// which the caller has created, in place of earlier ones. An error if `ssh-keygen` fails.
pub(super) fn host_keys(instance: &Path) -> io::Result<()> {
    // Under names of this process first: what an earlier emulator, killed meanwhile, still writes
    // must not be in the way.
    let own = |kind: &str| format!("new_{}_{kind}", std::process::id());
    let make = |kind: &str| {
        let file = instance.join(own(kind));
        let mut command = Command::new("ssh-keygen");
        command.args(["-q", "-N", "", "-t", kind, "-f"]).arg(file);
        command.stdin(Stdio::null()).stdout(Stdio::null()).spawn()
    };
    // No RSA key: it is slow to create, and no client needs it.
    let kinds = ["ed25519", "ecdsa"];
    for child in kinds.map(make) {
        if !child?.wait()?.success() {
            return Err(io::Error::other(
                "ssh-keygen made no host key; is openssh-client installed?",
            ));
        }
    }
    for kind in kinds {
        for ending in ["", ".pub"] {
            let made = instance.join(own(kind) + ending);
            fs::rename(made, instance.join(format!("host_{kind}{ending}")))?;
        }
    }
    Ok(())
}

/// Returns the configuration of the SSH server: the machine's address and port, and logins by key
/// only: with those that the emulator gives, and those that a login adds to its own list.
pub(super) fn sshd_config(record: &Record) -> String {
    let (address, port) = (&record.address, record.port);
    format!(
        "ListenAddress {address}:{port}\nHostKey /run/instance/host_ed25519\nHostKey /run/instance/host_ecdsa\n\
         AuthorizedKeysFile /run/instance/keys/%u .ssh/authorized_keys\nPidFile none\nUsePAM no\nPasswordAuthentication no\nKbdInteractiveAuthentication no\n\
         PermitRootLogin prohibit-password\nStrictModes no\nUseDNS no\nMaxStartups 100\nMaxSessions 100\nPrintMotd no\nX11Forwarding no\n\
         AcceptEnv LANG LC_*\nSubsystem sftp internal-sftp\n"
    )
}
