//! The settings for running Ansible, and errors of the machine's setup.

use serde_json::{Map, Value};
use std::path::{Path, PathBuf};

/// Settings for running Ansible on this machine.
#[derive(Debug, Clone)]
pub struct AnsibleSettings {
    /// The directory of the Python environments created by `infra/executor/install.sh`, each in a
    /// directory named after its version of Ansible.
    pub prefix: PathBuf,
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
    /// The network access of untrusted playbooks from the executor.
    pub untrusted_network: SandboxNetwork,
    /// Paths that every playbook may read.
    pub readable: Vec<PathBuf>,
    /// Paths that trusted playbooks may also read.
    pub trusted_readable: Vec<PathBuf>,
    /// Paths that trusted playbooks may also write.
    pub trusted_writable: Vec<PathBuf>,
    /// Site variables: the highest precedence of all.
    pub site_vars: Map<String, Value>,
    /// The number of hosts that one playbook works on at once.
    pub forks: u32,
    /// The number of times that Ansible retries a connection.
    pub ssh_retries: u32,
    /// The disk limit of one build in bytes, including its workspace.
    pub disk_bytes_max: u64,
    /// The maximum size of a file written in a sandbox, in bytes.
    pub file_bytes_max: u64,
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
            untrusted_network: SandboxNetwork::NodesOnly,
            readable: Vec::new(),
            trusted_readable: Vec::new(),
            trusted_writable: Vec::new(),
            site_vars: Map::new(),
            forks: 10,
            ssh_retries: 3,
            disk_bytes_max: 32 << 30,
            file_bytes_max: 16 << 30,
            log_bytes_max: 256 << 20,
        }
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

/// The network access of a sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SandboxNetwork {
    /// Only SSH to the build's own nodes, through the executor's gateway.
    NodesOnly,
    /// The network of the executor. The operator must ensure that it offers no credentials, for
    /// example at a metadata address.
    Shared,
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
