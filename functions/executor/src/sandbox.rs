//! Confines processes with bubblewrap: what they see of the machine, and what they reach (Z7.5).

use crate::jobdir::{Jobdir, State};
use crate::settings::{Network, Settings, SetupError};
use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use tokio::process::Command;

/// How far a process is trusted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trust {
    /// Its code was reviewed and merged in a config project: it has the network and the operator's
    /// paths.
    Trusted,
    /// Its code may be part of the change under test.
    Untrusted,
}

impl Trust {
    /// Returns the word of the log's banners.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Trusted => "trusted",
            Self::Untrusted => "untrusted",
        }
    }
}

/// What of `/etc` programs need: names of hosts and users, certificates, the dynamic linker. No
/// configuration, no keys: those lie beside the certificates, and an executor that runs as root
/// could read them.
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

/// What the machine's other processes are kept safe from: when memory runs out, the kernel ends
/// what runs in a sandbox before the executor, and with it every build; no file is larger than it
/// may be (a number of 512 bytes); no memory is dumped.
const LIMITS: &str = "{ echo 1000 >/proc/self/oom_score_adj; ulimit -c 0; ulimit -f \"$1\"; } 2>/dev/null; shift; exec bwrap \"$@\"";

/// What a process sees of a machine and a build.
#[derive(Debug)]
pub struct Sandbox<'a> {
    /// The operator's decisions.
    pub settings: &'a Settings,
    /// The build's directories.
    pub jobdir: &'a Jobdir,
    /// How far the process is trusted.
    pub trust: Trust,
    /// What it may write beside the work directory: Ansible runs plugins it finds there, and
    /// programs their configuration.
    pub state: &'a State,
}

impl Sandbox<'_> {
    /// Returns the command that runs `program` inside, with nothing in its environment but
    /// `environment`.
    ///
    /// All of it ends when the command's first process does: it has a process namespace of its own.
    pub fn command(&self, program: &Path, environment: &BTreeMap<&str, String>) -> Command {
        let mut arguments = base_arguments();
        let (user, group) = inner_ids();
        arguments.extend([
            "--uid".to_owned(),
            user.to_string(),
            "--gid".to_owned(),
            group.to_string(),
        ]);
        if self.trust == Trust::Untrusted && self.settings.untrusted_network == Network::NodesOnly {
            arguments.push("--unshare-net".to_owned());
        }
        let mut bind = |how: &str, path: &Path| {
            let path = path.display().to_string();
            arguments.extend([how.to_owned(), path.clone(), path]);
        };
        bind("--ro-bind", &self.settings.prefix);
        if let Some(python) = foreign_python(&self.settings.prefix) {
            bind("--ro-bind-try", &python);
        }
        bind("--ro-bind", &self.settings.content);
        self.settings.readable.iter().for_each(|path| bind("--ro-bind-try", path));
        if self.trust == Trust::Trusted {
            self.settings.trusted_readable.iter().for_each(|path| bind("--ro-bind-try", path));
            self.settings.trusted_writable.iter().for_each(|path| bind("--bind-try", path));
        }
        bind("--ro-bind", &self.jobdir.root);
        bind("--bind", &self.jobdir.work);
        bind("--ro-bind", &self.jobdir.runtime.root);
        bind("--bind", &self.jobdir.runtime.control);
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
        place("--ro-bind", &self.jobdir.ssh, &self.jobdir.home.join(".ssh"));
        // The homes of others.
        arguments.extend(["--tmpfs".to_owned(), self.jobdir.homes.display().to_string()]);
        for (name, file) in [("passwd", "passwd"), ("group", "group")] {
            let from = self.jobdir.ansible.join(file).display().to_string();
            arguments.extend(["--ro-bind".to_owned(), from, format!("/etc/{name}")]);
        }
        arguments.extend(["--remount-ro".to_owned(), "/".to_owned(), "--chdir".to_owned()]);
        arguments.push(self.jobdir.work.display().to_string());
        arguments.push("--".to_owned());
        let mut command = Command::new("/bin/sh");
        command.args(["-c", LIMITS, "bwrap"]).arg((self.settings.file_bytes_max / 512).to_string());
        command.args(arguments).arg(program);
        command
            .env_clear()
            .envs(environment)
            .env("PATH", self.search_path())
            .env("LANG", "C.UTF-8");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    fn search_path(&self) -> String {
        format!(
            "{}:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin",
            self.settings.prefix.join("bin").display()
        )
    }
}

/// Writes the account files that sandboxes see: programs such as ssh look there for the home
/// directory.
pub fn write_accounts(jobdir: &Jobdir) -> std::io::Result<()> {
    let (user, group) = inner_ids();
    let home = jobdir.home.display();
    std::fs::write(
        jobdir.ansible.join("passwd"),
        format!("sluice:x:{user}:{group}:Sluice:{home}:/bin/bash\n"),
    )?;
    std::fs::write(jobdir.ansible.join("group"), format!("sluice:x:{group}:\n"))
}

/// Returns an error that says what to do if bubblewrap cannot do its work on this machine.
pub async fn probe() -> Result<(), SetupError> {
    let mut command = Command::new("bwrap");
    command
        .args(base_arguments())
        .args(["--unshare-net", "--", "/bin/true"])
        .env_clear()
        .env("PATH", "/usr/local/bin:/usr/bin:/bin");
    let output = command.stdin(Stdio::null()).kill_on_drop(true).output().await;
    let said = match output {
        Ok(output) if output.status.success() => return Ok(()),
        Ok(output) => String::from_utf8_lossy(&output.stderr).trim().to_owned(),
        Err(error) => error.to_string(),
    };
    Err(SetupError::NoSandbox { said })
}

fn base_arguments() -> Vec<String> {
    let mut arguments: Vec<String> =
        ["--die-with-parent", "--new-session", "--unshare-user", "--unshare-pid", "--unshare-ipc"]
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
    // In memory, so each has a bound.
    for (path, bytes) in [("/tmp", 512 << 20), ("/var/tmp", 512 << 20), ("/run", 64 << 20)] {
        push(&["--size", &bytes.to_string(), "--tmpfs", path]);
    }
    arguments
}

/// Inside, nobody is root: an executor that runs as root shows its files as an ordinary account's.
fn inner_ids() -> (u32, u32) {
    let Ok(own) = std::fs::metadata("/proc/self") else { return (1000, 1000) };
    let or_ordinary = |id: u32| if id == 0 { 1000 } else { id };
    (or_ordinary(own.uid()), or_ordinary(own.gid()))
}

/// Returns whether this process is root's: then playbooks can read root's own files in what they
/// are shown.
pub fn is_root() -> bool {
    std::fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0)
}

/// Returns the installation that the environment's Python belongs to, if `/usr` does not hold it.
fn foreign_python(prefix: &Path) -> Option<PathBuf> {
    let real = std::fs::canonicalize(prefix.join("bin/python")).ok()?;
    if real.starts_with("/usr") || real.starts_with(prefix) {
        None
    } else {
        real.parent()?.parent().map(Path::to_owned)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Z7.5: an executor that runs as root can read what lies beside the certificates.
    #[test]
    fn of_the_machines_certificates_only_public_ones_are_shown() {
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
