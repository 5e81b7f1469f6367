//! What an operator decides about an executor, and what may be wrong with the machine it runs on.

use serde_json::{Map, Value};
use std::path::{Path, PathBuf};

/// How Ansible is run on this machine.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The Python environment that `infra/executor/install.sh` made.
    pub prefix: PathBuf,
    /// Where the executor keeps its own plugins and roles; made if it is not there.
    pub content: PathBuf,
    /// Where sockets and opened secrets lie while a build runs: short (paths of sockets have 107
    /// bytes) and in memory.
    pub runtime: PathBuf,
    /// The executor's name (`zuul.executor.hostname`).
    pub hostname: String,
    /// Seconds for pre-run and run together where the job names no time.
    pub timeout_seconds: u64,
    /// Seconds for each post-run playbook where the job names no time.
    pub post_timeout_seconds: u64,
    /// Seconds for all playbooks that clean up after a stop together. The launcher takes the nodes
    /// of a stopped build away after 120 s, so it stays well below that.
    pub cleanup_timeout_seconds: u64,
    /// What untrusted playbooks reach by network from the executor.
    pub untrusted_network: Network,
    /// Paths that every playbook may read.
    pub readable: Vec<PathBuf>,
    /// Paths that trusted playbooks may also read.
    pub trusted_readable: Vec<PathBuf>,
    /// Paths that trusted playbooks may also write.
    pub trusted_writable: Vec<PathBuf>,
    /// Site variables: the highest precedence of all.
    pub site_vars: Map<String, Value>,
    /// Hosts that one playbook works on at a time.
    pub forks: u32,
    /// How often Ansible tries a connection again.
    pub ssh_retries: u32,
    /// Bytes that one build may have on disk, its workspace included.
    pub disk_bytes_max: u64,
    /// Bytes that one file written in a sandbox may have.
    pub file_bytes_max: u64,
    /// Bytes a build's log may have; what comes after is dropped with a notice.
    pub log_bytes_max: u64,
}

impl Settings {
    /// Returns the settings that suit a machine prepared by `install.sh`, with `state` for what the
    /// executor keeps.
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
            untrusted_network: Network::NodesOnly,
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

    /// Returns the path of a program in the Python environment.
    pub fn program(&self, name: &str) -> PathBuf {
        self.prefix.join("bin").join(name)
    }
}

/// What a sandbox reaches by network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Network {
    /// SSH to the build's own nodes, through the executor, and nothing else: no metadata address,
    /// no neighbour.
    NodesOnly,
    /// Whatever the executor reaches. The operator sees to it that no credentials can be had from
    /// an address.
    Shared,
}

/// Why Ansible cannot be run on this machine.
#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    /// The Python environment is missing or incomplete.
    #[error(
        "there is no Ansible at {path}: run infra/executor/install.sh, or name its prefix in SLUICE_ANSIBLE_PREFIX"
    )]
    NoAnsible {
        /// What was looked for.
        path: PathBuf,
    },
    /// bubblewrap is missing or may not make namespaces.
    #[error(
        "bubblewrap cannot confine playbooks here ({said}): install it with infra/executor/install.sh; allow user namespaces \
         (sysctl user.max_user_namespaces above 0; kernel.unprivileged_userns_clone=1 and \
         kernel.apparmor_restrict_unprivileged_userns=0 where they exist); in a container, run it on a host of your own with \
         a seccomp profile that allows clone, unshare and mount, and an unmasked /proc (Fargate allows none of this)"
    )]
    NoSandbox {
        /// bubblewrap's own words.
        said: String,
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
