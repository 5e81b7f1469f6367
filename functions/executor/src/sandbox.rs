//! Runs processes in a bubblewrap sandbox with limited access to files and the network (Z7.5).

use crate::code_trust::CodeTrust;
use crate::jobdir::{Jobdir, SandboxState};
use crate::settings::{AnsibleSettings, SetupError};
use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use tokio::process::Command;

/// The entries of `/etc` visible in a sandbox: host and user names, public certificates, dynamic
/// linker. Private keys are stored next to the certificates and would be readable to an executor
/// that runs as root, so they are excluded, like all other configuration.
const ETC: [&str; 19] = [
    "alternatives",
    "ca-certificates",
    "crypto-policies",
    "debian_version",
    "host.conf",
    "hosts",
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "localtime",
    "mime.types",
    "nsswitch.conf",
    "os-release",
    "pki/ca-trust",
    "pki/tls/cert.pem",
    "pki/tls/certs",
    "resolv.conf",
    "ssl/certs",
    "timezone",
];

/// A shell script that sets limits and starts bubblewrap. When memory runs out, the kernel kills
/// processes in a sandbox before the executor. The first argument is the maximum file size in
/// blocks of 512 bytes. Core dumps are disabled.
const LIMITS: &str = "{ echo 1000 >/proc/self/oom_score_adj; ulimit -c 0; ulimit -f \"$1\"; } 2>/dev/null; shift; exec bwrap \"$@\"";

/// A sandbox for the processes of one build.
#[derive(Debug)]
pub struct Sandbox<'a> {
    /// The executor's settings.
    pub settings: &'a AnsibleSettings,
    /// The build's directories.
    pub jobdir: &'a Jobdir,
    /// Whether the process is trusted.
    pub trust: CodeTrust,
    /// The version of Ansible whose Python environment is first in `PATH`.
    pub ansible_version: &'a str,
    /// The state directories that it may write besides the work directory. They are not shared
    /// between playbooks with different rights, because Ansible loads plugins from them.
    pub state: &'a SandboxState,
    /// The directory that it sees as that of OpenSSH's control sockets, which it may write
    /// ([`Jobdir::control_of`]).
    pub control: &'a Path,
    /// Whether it sees the sockets to which playbooks report what they do.
    pub messages: MessageSockets,
}

/// Whether a sandbox sees the sockets to which playbooks report what they do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MessageSockets {
    /// As a playbook needs.
    Visible,
    /// For what outlives a playbook: it could be made to write to the sockets of later ones.
    Hidden,
}

impl Sandbox<'_> {
    /// Returns a command that runs `program` in the sandbox, to which the caller appends arguments.
    /// [`write_accounts`] must have been called before. The environment is `environment` with the
    /// sandbox's own `PATH` and `LANG`, which override. The work directory is the current one.
    /// Standard input is empty; output and errors are piped.
    ///
    /// All processes in the sandbox end with its first process, because it has its own process
    /// namespace.
    pub fn command(&self, program: &Path, environment: &BTreeMap<&str, String>) -> Command {
        let mut arguments = base_arguments();
        arguments.extend(id_arguments());
        if self.trust == CodeTrust::Untrusted {
            arguments.push("--unshare-net".to_owned());
        }
        let mut bind = |how: &str, path: &Path| {
            let path = path.display().to_string();
            arguments.extend([how.to_owned(), path.clone(), path]);
        };
        bind("--ro-bind", &self.settings.prefix);
        let ansible = self.settings.environment(self.ansible_version);
        if let Some(python) = foreign_python(&ansible, &self.settings.prefix) {
            bind("--ro-bind-try", &python);
        }
        bind("--ro-bind", &self.settings.content);
        let paths = match self.trust {
            CodeTrust::Trusted => &self.settings.trusted_paths,
            CodeTrust::Untrusted => &self.settings.untrusted_paths,
        };
        paths.read_only.iter().for_each(|path| bind("--ro-bind", path));
        paths.read_write.iter().for_each(|path| bind("--bind", path));
        bind("--ro-bind", &self.jobdir.root);
        bind("--bind", &self.jobdir.work);
        bind("--ro-bind", &self.jobdir.runtime.root);
        let mut place = |how: &str, from: &Path, to: &Path| {
            arguments.extend([
                how.to_owned(),
                from.display().to_string(),
                to.display().to_string(),
            ]);
        };
        place("--bind", &self.state.home, &self.jobdir.home);
        place("--bind", &self.state.dot_ansible, &self.jobdir.dot_ansible);
        place("--bind", &self.state.facts, &self.jobdir.facts);
        place("--bind", self.control, &self.jobdir.runtime.control);
        // Trusted playbooks have files of their own there.
        if self.trust == CodeTrust::Untrusted {
            place("--ro-bind", &self.jobdir.ssh, &self.jobdir.home.join(".ssh"));
        }
        // The state directories of other playbooks are hidden.
        let messages = Some(&self.jobdir.runtime.messages);
        let messages = messages.filter(|_| self.messages == MessageSockets::Hidden);
        for hidden in messages.into_iter().chain([&self.jobdir.homes]) {
            let hidden = hidden.display().to_string();
            arguments.extend(sized_tmpfs(&hidden, HIDING_BYTES));
            arguments.extend(["--remount-ro".to_owned(), hidden]);
        }
        arguments.extend(account_arguments(self.jobdir));
        let ansible = (self.settings, self.ansible_version);
        finish(ansible, arguments, &self.jobdir.work, program, environment)
    }
}

/// A sandbox that sees nothing of a build but one directory, for a program that fetches files
/// through a broker: no keys, no secrets, no other playbook's files.
#[derive(Debug)]
pub struct FetchSandbox<'a> {
    /// The executor's settings.
    pub settings: &'a AnsibleSettings,
    /// The build's directories, of which it sees the accounts only.
    pub jobdir: &'a Jobdir,
    /// The version of Ansible whose Python environment is first in `PATH`.
    pub ansible_version: &'a str,
    /// The directory that it may write, which is the current one.
    pub directory: &'a Path,
    /// The broker's socket, which it sees as [`FETCH_BROKER`].
    pub broker: &'a Path,
    /// A file that it may read, which it sees as [`FETCH_TOKEN`].
    pub token: Option<&'a Path>,
}

/// The broker's socket in a [`FetchSandbox`].
pub const FETCH_BROKER: &str = "/run/network.sock";
/// The token file in a [`FetchSandbox`].
pub const FETCH_TOKEN: &str = "/run/token";

impl FetchSandbox<'_> {
    /// Returns a command that runs `program`, to which the caller appends arguments; see
    /// [`Sandbox::command`].
    pub fn command(&self, program: &Path, environment: &BTreeMap<&str, String>) -> Command {
        let mut arguments = base_arguments();
        arguments.extend(id_arguments());
        arguments.push("--unshare-net".to_owned());
        let mut place = |how: &str, from: &Path, to: &Path| {
            arguments.extend([
                how.to_owned(),
                from.display().to_string(),
                to.display().to_string(),
            ]);
        };
        let ansible = self.settings.environment(self.ansible_version);
        let python = foreign_python(&ansible, &self.settings.prefix);
        for path in [&self.settings.prefix, &self.settings.content].into_iter().chain(&python) {
            place("--ro-bind", path, path);
        }
        place("--bind", self.directory, self.directory);
        place("--ro-bind", self.broker, Path::new(FETCH_BROKER));
        if let Some(token) = self.token {
            place("--ro-bind", token, Path::new(FETCH_TOKEN));
        }
        arguments.extend(account_arguments(self.jobdir));
        let ansible = (self.settings, self.ansible_version);
        finish(ansible, arguments, self.directory, program, environment)
    }
}

/// Returns the arguments that name the user and the group inside a sandbox.
fn id_arguments() -> [String; 4] {
    let (user, group) = inner_ids();
    ["--uid".to_owned(), user.to_string(), "--gid".to_owned(), group.to_string()]
}

/// Returns the arguments that show the files of [`write_accounts`].
fn account_arguments(jobdir: &Jobdir) -> impl Iterator<Item = String> {
    ["passwd", "group"].into_iter().flat_map(|name| {
        let from = jobdir.ansible.join(name).display().to_string();
        ["--ro-bind".to_owned(), from, format!("/etc/{name}")]
    })
}

/// Returns the command that starts `program` in a sandbox of these bubblewrap arguments, in the
/// directory `current`, with the limits of the settings. The environment is `environment` with the
/// sandbox's own `PATH` and `LANG`, which override.
fn finish(
    (settings, ansible_version): (&AnsibleSettings, &str),
    arguments: Vec<String>,
    current: &Path,
    program: &Path,
    environment: &BTreeMap<&str, String>,
) -> Command {
    let path = format!(
        "{}:{}:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin",
        settings.content.join("bin").display(),
        settings.environment(ansible_version).join("bin").display()
    );
    let mut command = Command::new("/bin/sh");
    command.args(["-c", LIMITS, "bwrap"]).arg((settings.file_bytes_max / 512).to_string());
    command.args(arguments).args(["--remount-ro", "/", "--chdir"]).arg(current).arg("--");
    command.arg(program).env_clear().envs(environment).env("PATH", path).env("LANG", "C.UTF-8");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Writes the `passwd` and `group` files of the sandboxes, where programs like ssh look up the home
/// directory. No sandbox starts without these files.
pub fn write_accounts(jobdir: &Jobdir) -> std::io::Result<()> {
    let (user, group) = inner_ids();
    let home = jobdir.home.display();
    std::fs::write(
        jobdir.ansible.join("passwd"),
        format!("sluice:x:{user}:{group}:Sluice:{home}:/bin/bash\n"),
    )?;
    std::fs::write(jobdir.ansible.join("group"), format!("sluice:x:{group}:\n"))
}

/// Checks that bubblewrap works on this machine by starting a sandbox; the error says what to do.
pub async fn probe() -> Result<(), SetupError> {
    let mut command = Command::new("bwrap");
    command
        .args(base_arguments())
        .args(["--unshare-net", "--", "/bin/true"])
        .env_clear()
        .env("PATH", "/usr/local/bin:/usr/bin:/bin");
    let output = command.stdin(Stdio::null()).kill_on_drop(true).output().await;
    let message = match output {
        Ok(output) if output.status.success() => return Ok(()),
        Ok(output) => String::from_utf8_lossy(&output.stderr).trim().to_owned(),
        Err(error) => error.to_string(),
    };
    Err(SetupError::NoSandbox { message })
}

/// Returns the bubblewrap arguments that all sandboxes share: namespaces for users, processes and
/// IPC, read-only system directories, and temporary directories in memory. No further namespaces of
/// users can be made, with which code gets at most of the kernel's weak points. The network is
/// shared unless the caller adds an argument.
pub(crate) fn base_arguments() -> Vec<String> {
    let mut arguments: Vec<String> = [
        "--die-with-parent",
        "--new-session",
        "--unshare-user",
        "--disable-userns",
        "--unshare-pid",
        "--unshare-ipc",
    ]
    .map(str::to_owned)
    .to_vec();
    let mut push = |parts: &[&str]| arguments.extend(parts.iter().map(|part| (*part).to_owned()));
    push(&["--ro-bind", "/usr", "/usr"]);
    for name in ["/bin", "/sbin", "/lib", "/lib64", "/lib32"] {
        match std::fs::read_link(name) {
            Ok(target) => push(&["--symlink", &target.display().to_string(), name]),
            Err(_) => push(&["--ro-bind-try", name, name]),
        }
    }
    for name in ETC {
        let path = format!("/etc/{name}");
        push(&["--ro-bind-try", &path, &path]);
    }
    push(&["--proc", "/proc", "--dev", "/dev"]);
    for (path, bytes) in MEMORY_DIRECTORIES {
        arguments.extend(sized_tmpfs(path, bytes));
    }
    arguments.extend(["--remount-ro", "/dev"].map(str::to_owned));
    arguments
}

/// The directories in memory that a sandbox may write, and the most bytes of each. Without a size
/// each could take half of the machine's memory, which would belong to no process.
const MEMORY_DIRECTORIES: [(&str, u64); 4] =
    [("/tmp", 512 << 20), ("/var/tmp", 512 << 20), ("/run", 64 << 20), ("/dev/shm", 64 << 20)];

/// The size in bytes of a file system that only hides a directory.
const HIDING_BYTES: u64 = 64 << 10;

/// Returns the arguments that mount a file system in memory with a size limit.
fn sized_tmpfs(path: &str, bytes: u64) -> [String; 4] {
    ["--size".to_owned(), bytes.to_string(), "--tmpfs".to_owned(), path.to_owned()]
}

/// Returns the user and group ids inside a sandbox: the executor's own, or 1000 instead of root's.
fn inner_ids() -> (u32, u32) {
    let Ok(own) = std::fs::metadata("/proc/self") else { return (1000, 1000) };
    let or_ordinary = |id: u32| if id == 0 { 1000 } else { id };
    (or_ordinary(own.uid()), or_ordinary(own.gid()))
}

/// Returns whether this process runs as root. Then playbooks can read root's files in the visible
/// directories.
pub fn is_root() -> bool {
    std::fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0)
}

/// Returns the root of the Python installation that `environment` uses; `None` if it is below
/// `/usr` or `prefix`, or cannot be found.
fn foreign_python(environment: &Path, prefix: &Path) -> Option<PathBuf> {
    let real = std::fs::canonicalize(environment.join("bin/python")).ok()?;
    if real.starts_with("/usr") || real.starts_with(prefix) {
        None
    } else {
        real.parent()?.parent().map(Path::to_owned)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Z7.5: an executor that runs as root could read private keys next to the certificates.
    #[test]
    fn only_public_certificates_of_the_machine_are_visible() {
        let shown = |path: &str| {
            ETC.iter().any(|name| Path::new(path).starts_with(Path::new("/etc").join(name)))
        };
        assert!(
            shown("/etc/ssl/certs/ca-certificates.crt")
                && shown("/etc/pki/tls/certs/ca-bundle.crt")
        );
        for private in
            ["/etc/ssl/private/snakeoil.key", "/etc/pki/tls/private/host.key", "/etc/pki/rpm-gpg"]
        {
            assert!(!shown(private), "{private}");
        }
    }
}
