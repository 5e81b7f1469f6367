//! The rights with which the file systems of nodes are made and their processes run: those of root
//! in a user namespace.
//!
//! Root of a node is no user of this machine: it has the first of the ids in `/etc/subuid` that
//! belong to the emulator's user, or is that user itself if it is not root. It may do anything
//! within a node and nothing outside.

use super::parameters::Refusal;
use std::fs;
use std::io;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::Path;
use std::process::{Command, Stdio};

/// The number of user ids that a file system needs: Debian uses those up to 65534.
const IDS_MIN: u32 = 65_536;
/// Who owns the files of root of a node: with the arguments of `unshare` that make a user namespace
/// as it has to be, which `newuidmap` permits by `/etc/subuid`.
const AS_ROOT: [&str; 6] = ["--user", "--map-auto", "--setuid", "0", "--setgid", "0"];
const AS_USER: [&str; 3] = ["--user", "--map-auto", "--map-root-user"];

/// Why this machine cannot run local nodes. The text says what to do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NodeError {
    /// A program is missing.
    #[error(
        "the program `{program}` is missing; install the package {package}, or run infra/node-tools.sh"
    )]
    ProgramMissing {
        /// Its name.
        program: &'static str,
        /// The Debian package that has it.
        package: &'static str,
    },
    /// The user has no ids for the users of nodes.
    #[error(
        "{user} has no {IDS_MIN} ids in {file}; run infra/node-tools.sh as that user, or \
         `usermod --add-subuids FIRST-LAST --add-subgids FIRST-LAST {user}` as root"
    )]
    IdsMissing {
        /// The user that runs the emulator.
        user: String,
        /// `/etc/subuid` or `/etc/subgid`.
        file: &'static str,
    },
    /// The kernel refuses a user namespace.
    #[error(
        "this machine refuses a user namespace with mounts and processes of its own ({why}); allow \
         it (`sysctl user.max_user_namespaces`, or the container's settings)"
    )]
    NamespaceRefused {
        /// What `unshare` printed.
        why: String,
    },
    /// Nodes are sandboxes here, which have no images.
    #[error("local nodes are sandboxes over this machine's files, without images: {why}")]
    OnlySandboxes {
        /// The reason.
        why: String,
    },
    /// An image could not be made.
    #[error(
        "could not make the node image `{name}` in {directory}: {why}; check this machine's apt sources and its network, then start \
         again"
    )]
    ImageFailed {
        /// Its name.
        name: String,
        /// Where it was to be.
        directory: String,
        /// What failed, with the last lines of the output.
        why: String,
    },
}

impl From<NodeError> for Refusal {
    /// Converts the error to EC2's for what an account cannot do (400).
    fn from(error: NodeError) -> Self {
        Self::new(400, "Unsupported", error.to_string())
    }
}

/// The proof that this process may make user namespaces, and whose ids are root's in them.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rights {
    /// The ids of root of the nodes outside, if it is not the emulator's own user.
    root: Option<RootIds>,
}

/// The ids that root of a node has outside.
#[derive(Debug, Clone, Copy)]
struct RootIds {
    user: u32,
    group: u32,
}

impl Rights {
    /// Returns the rights of this process. An error if a program is missing, the user has no ids
    /// for nodes, or the kernel refuses a user namespace with mounts and processes, which is tried.
    pub(super) fn find() -> Result<Self, NodeError> {
        for (program, package) in
            [("unshare", "util-linux"), ("newuidmap", "uidmap"), ("newgidmap", "uidmap")]
        {
            need_program(program, package)?;
        }
        let user = Command::new("id").arg("-un").output().ok();
        let user = user.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
        let user = user.filter(|name| !name.is_empty()).unwrap_or_else(uid);
        let first = |file| -> Result<u32, NodeError> {
            first_id(&fs::read_to_string(file).unwrap_or_default(), &user, &uid())
                .ok_or_else(|| NodeError::IdsMissing { user: user.clone(), file })
        };
        let ids = RootIds { user: first("/etc/subuid")?, group: first("/etc/subgid")? };
        let rights = Self { root: is_root().then_some(ids) };
        // A node mounts and has processes of its own, which some containers refuse.
        let mut trial = rights.mapped("unshare");
        trial.args(["--mount", "--pid", "--fork", "--", "mount", "-c", "-t", "proc"]);
        let output = trial.args(["proc", "/proc"]).output();
        let output = output
            .map_err(|error| NodeError::NamespaceRefused { why: format!("unshare: {error}") })?;
        if !output.status.success() {
            let why = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            return Err(NodeError::NamespaceRefused { why });
        }
        Ok(rights)
    }

    /// Returns a command that runs a program as root of a user namespace of the nodes, in all other
    /// namespaces of this machine. It can pass through the directories above its own only if the
    /// emulator does not run as root.
    pub(super) fn mapped(&self, program: &str) -> Command {
        let mut command = Command::new("unshare");
        command.args(self.user_namespace()).args(["--", program]);
        command.stdin(Stdio::null());
        command
    }

    /// Returns a command that runs a program with rights over all files of nodes, and over the
    /// emulator's own: as root of this machine, else as root of a user namespace.
    fn over_files(&self, program: &str) -> Command {
        match self.root {
            None => self.mapped(program),
            Some(_) => {
                let mut command = Command::new(program);
                command.stdin(Stdio::null());
                command
            }
        }
    }

    /// Returns the command that begins a node in its directory, which must be the working
    /// directory: `unshare` with namespaces of its own for users, files, processes, its name and,
    /// if `network` says so, its network. The shell script `begin` and its arguments are to be
    /// added. The process that starts stays outside of the process namespace, and is in all others.
    /// What it runs is in no other group than root's.
    pub(super) fn node(&self, image: &Path, network: NetworkNamespace) -> Command {
        const MOUNT: &str = "mount -c --bind \"$1\" image && shift && exec unshare \"$@\"";
        let mut command = Command::new("unshare");
        // Root of a node that is not this user cannot pass through the directories above the image,
        // so the image is mounted first.
        let (outer, inner): (&[&str], &[&str]) = match self.root {
            Some(_) => (&[], &AS_ROOT),
            None => (&AS_USER, &[]),
        };
        command.args(outer).args(["--mount", "--", "/bin/sh", "-c", MOUNT, "sh"]);
        command.arg(image).args(inner);
        command.args(["--mount", "--pid", "--fork", "--kill-child", "--uts", "--ipc"]);
        if network == NetworkNamespace::Own {
            command.arg("--net");
        }
        command.args(["--", "setpriv", "--clear-groups", "--", "/bin/sh", "-c"]);
        command
    }

    /// Makes root of the nodes the owner of a file or directory.
    pub(super) fn give(&self, path: &Path) -> io::Result<()> {
        match self.root {
            Some(ids) => chown(path, Some(ids.user), Some(ids.group)),
            None => Ok(()),
        }
    }

    /// Creates a directory that belongs to root of the nodes, with the mode 755; one that exists is
    /// an error.
    pub(super) fn create_directory(&self, path: &Path) -> io::Result<()> {
        fs::create_dir(path)?;
        fs::set_permissions(path, fs::Permissions::from_mode(0o755))?;
        self.give(path)
    }

    /// Copies the content of a directory with owners, modes and times into another one, without
    /// taking space for it where the file system can share it.
    pub(super) fn copy(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut command = self.over_files("cp");
        command.args(["--archive", "--reflink=auto", "--"]).arg(from.join(".")).arg(to);
        succeed(command)
    }

    /// Deletes a directory with files of nodes; a missing one is no error.
    pub(super) fn remove(&self, path: &Path) -> io::Result<()> {
        if !path.exists() {
            return Ok(());
        }
        let mut command = self.over_files("rm");
        command.args(["--recursive", "--force", "--"]).arg(path);
        succeed(command)
    }

    /// Returns the arguments of `unshare` for a user namespace of the nodes.
    fn user_namespace(&self) -> &'static [&'static str] {
        match self.root {
            Some(_) => &AS_ROOT,
            None => &AS_USER,
        }
    }
}

/// Whether a node has a network of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NetworkNamespace {
    Own,
    Shared,
}

/// Returns an error unless a program is in one of the directories of `PATH` or of the system.
pub(super) fn need_program(program: &'static str, package: &'static str) -> Result<(), NodeError> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let system = ["/usr/sbin", "/usr/bin", "/sbin", "/bin"].map(std::path::PathBuf::from);
    match std::env::split_paths(&path).chain(system).any(|at| at.join(program).is_file()) {
        true => Ok(()),
        false => Err(NodeError::ProgramMissing { program, package }),
    }
}

/// Runs a command to its end, without output; an error, with the end of what it printed, if it
/// fails.
pub(super) fn succeed(mut command: Command) -> io::Result<()> {
    let output = command.output()?;
    if output.status.success() {
        return Ok(());
    }
    let program = command.get_program().to_string_lossy().into_owned();
    let printed = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(io::Error::other(format!("`{program}` failed ({}): {printed}", output.status)))
}

/// Returns the first id of the first range that `/etc/subuid` or `/etc/subgid`, whose text this is,
/// has for a user by name or number; `None` if there is none or it is too short.
fn first_id(text: &str, name: &str, uid: &str) -> Option<u32> {
    let ranges = text.lines().map(|line| line.trim().split(':').collect::<Vec<_>>());
    let mut own = ranges.filter(|range| range.len() == 3 && (range[0] == name || range[0] == uid));
    let range = own.next()?;
    let (first, count) = (range[1].parse().ok()?, range[2].parse::<u32>().ok()?);
    (count >= IDS_MIN).then_some(first)
}

/// Returns whether the emulator has root rights.
pub(super) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Returns the number of the emulator's user.
fn uid() -> String {
    rustix::process::geteuid().as_raw().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// C4
    #[test]
    fn the_ids_of_a_user_are_found_by_name_and_by_number_and_must_be_enough() {
        let text = "ann:100000:65536\nbob:165536:100\n1003:231072:65536\n";
        assert_eq!(first_id(text, "ann", "1001"), Some(100_000));
        assert_eq!(first_id(text, "bob", "1002"), None, "too few");
        assert_eq!(first_id(text, "cid", "1003"), Some(231_072));
        assert_eq!(first_id(text, "dan", "1004"), None);
    }

    /// C4: the error says what to install.
    #[test]
    fn a_missing_program_is_named_with_its_package() {
        let error = need_program("sluice-no-such-program", "uidmap").unwrap_err();
        assert!(error.to_string().contains("install the package uidmap"), "{error}");
    }
}
