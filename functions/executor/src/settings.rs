//! The settings for running Ansible, and errors of the machine's setup.

use crate::broker::policy::AllowedNetwork;
use crate::broker::target::Target;
use crate::galaxy_server::GalaxySettings;
use crate::jobdir;
use crate::process_watch::ProcessLimits;
use crate::restricted_vars::is_reserved;
use crate::upload_site::UploadSite;
use ipnet::IpNet;
use serde_json::{Map, Value};
use std::path::{Path, PathBuf};

/// The default disk limit of one build in bytes.
pub const DISK_BYTES_MAX: u64 = 32 << 30;

/// Settings for running Ansible on this machine.
#[derive(Debug, Clone)]
pub struct AnsibleSettings {
    /// The directory of the Python environments created by `infra/executor/install.sh`, each in a
    /// directory named after its version of Ansible.
    pub prefix: PathBuf,
    /// The executor's directory, with its key and all builds.
    pub state: PathBuf,
    /// The directory for the executor's own plugins and roles; created if missing.
    pub content: PathBuf,
    /// The directory for sockets and decrypted secrets of running builds. It should be in memory,
    /// and short, because paths of sockets are limited to 107 bytes.
    pub runtime: PathBuf,
    /// The executor's name (`zuul.executor.hostname`).
    pub hostname: String,
    /// The default time limit of pre-run and run together, in seconds.
    pub timeout_seconds: u64,
    /// The default time limit of each post-run playbook, in seconds.
    pub post_timeout_seconds: u64,
    /// The time limit of all cleanup playbooks after a stop together, in seconds. The launcher
    /// releases the nodes of a stopped build after 120 s, so this must be well below.
    pub cleanup_timeout_seconds: u64,
    /// The time limit for collecting the logs of a build whose executor was lost, in seconds:
    /// preparing the build and all its post-run playbooks together. The build is retried only
    /// afterwards. The wait for a slot, five seconds at most, comes in addition.
    pub collect_timeout_seconds: u64,
    /// For how many seconds a deployment job waits for its host to answer, as while it boots.
    pub host_wait_seconds: u64,
    /// What untrusted playbooks reach on the network.
    pub network: NetworkSettings,
    /// Where roles from Ansible Galaxy come from.
    pub galaxy: GalaxySettings,
    /// Paths of this machine that trusted playbooks see.
    pub trusted_paths: SandboxPaths,
    /// Paths of this machine that untrusted playbooks see.
    pub untrusted_paths: SandboxPaths,
    /// Site variables, which override all that jobs define.
    pub site_vars: Map<String, Value>,
    /// Where jobs upload to with credentials of their own; `None` issues none.
    pub uploads: Option<UploadSite>,
    /// The number of hosts that one playbook works on at once.
    pub forks: u32,
    /// The number of times that Ansible retries a connection.
    pub ssh_retries: u32,
    /// The disk limit of one build in bytes, including its workspace.
    pub disk_bytes_max: u64,
    /// The maximum size of a file written in a sandbox, in bytes.
    pub file_bytes_max: u64,
    /// What the processes of one playbook may use on the executor.
    pub process_limits: ProcessLimits,
    /// The maximum size of a build's log in bytes; the rest is dropped with a notice.
    pub log_bytes_max: u64,
}

impl AnsibleSettings {
    /// Returns default settings for a machine prepared by `install.sh`, with the state directory
    /// `state`. The host name is read from this machine. Without `/dev/shm` the runtime directory
    /// is the system's temporary one, which `TMPDIR` may name; no other environment variables are
    /// read.
    pub fn new(state: &Path) -> Self {
        let shared_memory = Path::new("/dev/shm");
        Self {
            prefix: PathBuf::from("/opt/sluice/ansible"),
            state: state.to_owned(),
            content: state.join("content"),
            runtime: if shared_memory.is_dir() {
                shared_memory.to_owned()
            } else {
                std::env::temp_dir()
            },
            hostname: std::fs::read_to_string("/etc/hostname")
                .map_or_else(|_| "localhost".to_owned(), |name| name.trim().to_owned()),
            timeout_seconds: 10_800,
            post_timeout_seconds: 1_800,
            cleanup_timeout_seconds: 75,
            collect_timeout_seconds: 55,
            host_wait_seconds: 120,
            network: NetworkSettings::default(),
            galaxy: GalaxySettings::default(),
            trusted_paths: SandboxPaths::default(),
            untrusted_paths: SandboxPaths::default(),
            site_vars: Map::new(),
            uploads: None,
            forks: 10,
            ssh_retries: 3,
            disk_bytes_max: DISK_BYTES_MAX,
            file_bytes_max: 16 << 30,
            process_limits: ProcessLimits::default(),
            log_bytes_max: 256 << 20,
        }
    }

    /// Checks that the paths that playbooks see exist, are absolute, and neither contain nor lie in
    /// the executor's own directories, where keys, secrets and other builds are.
    pub fn check_paths(&self) -> Result<(), SetupError> {
        let resolved = |path: &Path| std::fs::canonicalize(path).unwrap_or(path.to_owned());
        let (state, runtime) = (resolved(&self.state), resolved(&self.runtime));
        let lists = [&self.trusted_paths, &self.untrusted_paths];
        for path in lists.iter().flat_map(|paths| paths.read_only.iter().chain(&paths.read_write)) {
            let missing = |source| SetupError::NoPath { path: path.clone(), source };
            if !path.is_absolute() {
                let relative = std::io::Error::other("it is not absolute");
                return Err(missing(relative));
            }
            let real = std::fs::canonicalize(path).map_err(missing)?;
            let own = if real.starts_with(&state) || state.starts_with(&real) {
                Some(&state)
            } else if runtime.starts_with(&real) || jobdir::is_runtime_path(&runtime, &real) {
                Some(&runtime)
            } else {
                None
            };
            if let Some(own) = own {
                return Err(SetupError::OwnPath { path: path.clone(), own: own.clone() });
            }
        }
        Ok(())
    }

    /// Returns the Python environment of a version of Ansible, such as `11`.
    pub fn environment(&self, ansible_version: &str) -> PathBuf {
        self.prefix.join(ansible_version)
    }

    /// Returns the path of a program in the Python environment of a version of Ansible.
    pub fn program(&self, ansible_version: &str, name: &str) -> PathBuf {
        self.environment(ansible_version).join("bin").join(name)
    }
}

/// What untrusted playbooks reach on the network besides the build's own nodes; the rules are those
/// of [`crate::broker::policy`].
#[derive(Debug, Clone)]
pub struct NetworkSettings {
    /// Networks that are refused besides the usual ones.
    pub refused: Vec<IpNet>,
    /// Networks that are allowed although they are private, or this machine's own.
    pub allowed: Vec<AllowedNetwork>,
    /// Services that are allowed by exact name and port, wherever they are. Playbooks have none.
    pub services: Vec<Target>,
    /// The bytes that one build may exchange with the outside, in both directions together.
    pub bytes_max: u64,
}

impl Default for NetworkSettings {
    fn default() -> Self {
        Self { refused: Vec::new(), allowed: Vec::new(), services: Vec::new(), bytes_max: 32 << 30 }
    }
}

/// Paths of this machine that a sandbox sees besides its own.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SandboxPaths {
    /// Paths that it may read.
    pub read_only: Vec<PathBuf>,
    /// Paths that it may also write.
    pub read_write: Vec<PathBuf>,
}

/// Reads site variables from a YAML or JSON file: a mapping by name. An error if it cannot be read
/// or is something else, or a name is no variable's or one that the executor defines itself.
pub fn read_site_vars(path: &Path) -> Result<Map<String, Value>, SetupError> {
    let failed = |message: String| SetupError::SiteVars { path: path.to_owned(), message };
    let text = std::fs::read_to_string(path).map_err(|error| failed(error.to_string()))?;
    // An empty file has no variables.
    let read: Option<Map<String, Value>> =
        serde_yaml::from_str(&text).map_err(|error| failed(error.to_string()))?;
    let vars = read.unwrap_or_default();
    for name in vars.keys() {
        let is_name = name.bytes().all(|sign| sign.is_ascii_alphanumeric() || sign == b'_')
            && name.bytes().next().is_some_and(|first| !first.is_ascii_digit());
        if !is_name {
            return Err(failed(format!("\"{name}\" is no name of a variable")));
        }
        if is_reserved(name) {
            return Err(failed(format!("the executor itself defines \"{name}\": remove it")));
        }
    }
    Ok(vars)
}

/// Why Ansible cannot run on this machine.
#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    /// A Python environment is missing or incomplete.
    #[error(
        "there is no Ansible at {path}: run infra/executor/install.sh, or name the prefix in SLUICE_ANSIBLE_PREFIX"
    )]
    NoAnsible {
        /// The missing program.
        path: PathBuf,
    },
    /// bubblewrap is missing or may not create namespaces.
    #[error(
        "bubblewrap cannot run a sandbox on this machine ({message}): install it with infra/executor/install.sh; allow user namespaces \
         (sysctl user.max_user_namespaces above 0; kernel.unprivileged_userns_clone=1 and \
         kernel.apparmor_restrict_unprivileged_userns=0 where they exist); in a container, run it on a host of your own with \
         a seccomp profile that allows clone, unshare and mount, and an unmasked /proc (Fargate allows none of this)"
    )]
    NoSandbox {
        /// The error message of bubblewrap.
        message: String,
    },
    /// A path that playbooks shall see cannot be used.
    #[error(
        "playbooks cannot see {path} ({source}): create it on this machine, or remove it from the executor's options"
    )]
    NoPath {
        /// The path.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A path that playbooks shall see has something of the executor.
    #[error(
        "playbooks must not see {path}: the executor keeps keys, secrets and builds in {own}; name a directory apart from it"
    )]
    OwnPath {
        /// The path.
        path: PathBuf,
        /// The executor's directory.
        own: PathBuf,
    },
    /// The file of site variables cannot be used.
    #[error("could not read the site variables in {path}: {message}")]
    SiteVars {
        /// The file.
        path: PathBuf,
        /// Why.
        message: String,
    },
    /// The file with the token for the Galaxy server cannot be used.
    #[error("could not read the token for the Galaxy server in {path}: {message}")]
    GalaxyToken {
        /// The file.
        path: PathBuf,
        /// Why.
        message: String,
    },
    /// The executor's own plugins and roles could not be written.
    #[error(
        "could not write the executor's Ansible content below {path}: make the directory writable for the executor"
    )]
    Content {
        /// Where.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// Z7.5: a path of the executor's own would show keys, secrets and other builds.
    #[test]
    fn playbooks_see_paths_that_exist_and_are_not_the_executors() {
        let scratch = tempfile::tempdir().unwrap();
        let root = scratch.path().canonicalize().unwrap();
        for directory in ["state/builds", "runtime", "mirror"] {
            std::fs::create_dir_all(root.join(directory)).unwrap();
        }
        std::os::unix::fs::symlink(root.join("state"), root.join("link")).unwrap();
        let check = |path: PathBuf| {
            let mut settings = AnsibleSettings::new(&root.join("state"));
            settings.runtime = root.join("runtime");
            settings.untrusted_paths.read_write = vec![path];
            settings.check_paths().map_err(|error| error.to_string())
        };
        assert_eq!(check(root.join("mirror")), Ok(()));
        for own in ["state", "state/builds", "runtime", "", "link", "mirror/../state"] {
            let error = check(root.join(own)).unwrap_err();
            assert!(error.contains("playbooks must not see"), "{own}: {error}");
        }
        assert!(check("/".into()).unwrap_err().contains("apart from it"));
        assert!(check(root.join("none")).unwrap_err().contains("No such file"));
        assert!(check("usr".into()).unwrap_err().contains("not absolute"));
    }

    /// Z7.1
    #[test]
    fn site_variables_are_a_mapping_of_names_that_the_executor_does_not_define() {
        let scratch = tempfile::tempdir().unwrap();
        let read = |text: &str| {
            let path = scratch.path().join("site.yaml");
            std::fs::write(&path, text).unwrap();
            read_site_vars(&path).map(Value::Object).map_err(|error| error.to_string())
        };
        assert_eq!(
            read("zuul_site_mirror_fqdn: a\nmore: {b: [1]}\n").unwrap()["more"],
            json!({"b": [1]})
        );
        assert_eq!(read("").unwrap(), json!({}));
        for (text, part) in [
            ("[a]", "site.yaml"),
            ("a: [", "site.yaml"),
            ("a-b: 1", "\"a-b\" is no name"),
            ("1: 1", "site.yaml"),
            ("zuul: {}", "itself defines \"zuul\""),
            ("ansible_user: root", "itself defines \"ansible_user\""),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
        let error = read_site_vars(&scratch.path().join("none")).unwrap_err().to_string();
        assert!(error.contains("No such file"), "{error}");
    }
}
