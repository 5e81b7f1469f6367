//! Runs an executor inside this process: writes its SSH key, serves its live logs, shuts it down.

use crate::playbook_options::PlaybookOptions;
use crate::reachable_address::reachable;
use anyhow::Context as _;
use sluice_executor::service::admission::AdmissionLimits;
use sluice_executor::service::zone::ServedZone;
use sluice_executor::service::{ExecutorService, ExecutorSettings};
use sluice_executor::{Ansible, AnsibleSettings, UploadSite};
use sluice_records::pool_key::PoolKey;
use sluice_runtime::Ports;
use std::io::Write as _;
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// The options of an executor.
#[derive(Debug, Clone)]
pub struct ExecutorOptions {
    /// The directory of build directories and cached repositories.
    pub state: PathBuf,
    /// The builds that it takes, by the zone of their nodes.
    pub zone: ServedZone,
    /// The number of builds that run at once.
    pub slots: usize,
    /// What the machine must have left for another build.
    pub limits: AdmissionLimits,
    /// The address that serves live logs.
    pub logs: SocketAddr,
    /// The address of the pages, ending in `/`; archived logs are below `logs/` there.
    pub web_root: String,
    /// Seconds that running builds get to finish when the executor is stopped, before they are
    /// ended and retried elsewhere.
    pub drain_seconds: u64,
    /// The directory of the Python environments created by `install.sh`; `None` takes
    /// `SLUICE_ANSIBLE_PREFIX`, else the script's default.
    pub ansible: Option<PathBuf>,
    /// What playbooks find on this machine, and reach from it.
    pub playbooks: PlaybookOptions,
    /// Where jobs upload to with credentials of their own; `None` issues none.
    pub uploads: Option<UploadSite>,
}

/// A running executor.
pub struct RunningExecutor {
    service: Arc<ExecutorService>,
    stop: watch::Sender<bool>,
    task: JoinHandle<()>,
    logs: JoinHandle<()>,
    key: PathBuf,
    address: SocketAddr,
}

impl RunningExecutor {
    /// Starts an executor in tasks of this process and returns once it listens for live logs.
    /// Creates the state directory, writes the pool's private key into it, and deletes the key
    /// files of dead processes there. A process may run only one executor in a directory. An error
    /// after the return is only logged: see [`Self::has_ended`].
    ///
    /// # Errors
    /// When Ansible or its sandbox is missing, an option for playbooks cannot be carried out, or
    /// there is no pool key.
    pub async fn start(ports: Ports, options: ExecutorOptions) -> anyhow::Result<Self> {
        std::fs::create_dir_all(&options.state)
            .with_context(|| format!("could not create {}", options.state.display()))?;
        let state = options.state.canonicalize()?;
        let mut settings = AnsibleSettings::new(&state);
        let prefix = options
            .ansible
            .or_else(|| std::env::var_os("SLUICE_ANSIBLE_PREFIX").map(PathBuf::from));
        if let Some(prefix) = prefix {
            settings.prefix = prefix;
        }
        options.playbooks.apply(&mut settings)?;
        settings.uploads = options.uploads;
        let hostname = settings.hostname.clone();
        let runner = Ansible::new(settings).await?;
        let key = key_file(&state)?;
        let pool_key = PoolKey::load_required(&ports).await?;
        write_key(&key, &pool_key.open(&ports).await?)
            .with_context(|| format!("could not write {}", key.display()))?;
        let listener = TcpListener::bind(options.logs)
            .await
            .with_context(|| format!("could not serve live logs on {}", options.logs))?;
        let address = listener.local_addr()?;
        let options = ExecutorSettings {
            hostname,
            zone: options.zone,
            slots: options.slots,
            limits: options.limits,
            state,
            node_key: Some(key.clone()),
            log_address: reachable(address).await.map(|address| format!("http://{address}/")),
            log_root: format!("{}logs/", options.web_root),
            drain_seconds: options.drain_seconds,
            token_issuer: options.web_root.trim_end_matches('/').to_owned(),
        };
        let executor = ExecutorService::new(ports, Arc::new(runner), options);
        let service = executor.clone();
        let router = executor.logs().router();
        let logs = tokio::spawn(async move {
            if let Err(error) = axum::serve(listener, router).await {
                tracing::error!(%error, "the server of live logs ended");
            }
        });
        let (stop, stopped) = watch::channel(false);
        let task = tokio::spawn(async move {
            if let Err(error) = executor.run(stopped).await {
                tracing::error!(%error, "the executor failed");
            }
        });
        Ok(Self { service, stop, task, logs, key, address })
    }

    /// Returns the local address that serves live logs, with the port that was chosen if 0 was
    /// given. It may be the unspecified address.
    pub fn logs_address(&self) -> SocketAddr {
        self.address
    }

    /// Waits until [`Self::has_ended`] is true, as after the loss of the session. Checks once a
    /// second.
    pub async fn ended(&self) {
        while !self.has_ended() {
            tokio::time::sleep(std::time::Duration::from_secs(1)).await;
        }
    }

    /// Returns whether the executor has ended by itself: its session could not be created or was
    /// lost, or its task panicked. It is not started again; the caller still has to call
    /// [`Self::stop`].
    pub fn has_ended(&self) -> bool {
        self.task.is_finished()
    }

    /// Returns the executor's service, to end a drain at once ([`ExecutorService::end_drain`]).
    pub fn service(&self) -> Arc<ExecutorService> {
        self.service.clone()
    }

    /// Stops the executor and waits for it. It takes no more builds, and the running ones get
    /// [`ExecutorOptions::drain_seconds`] to finish; those that are left are ended and retried
    /// elsewhere. Then stops serving live logs, and deletes the key from the state directory.
    pub async fn stop(self) {
        self.stop.send_replace(true);
        if let Err(error) = self.task.await {
            tracing::error!(%error, "the executor task panicked");
        }
        self.logs.abort();
        if let Err(error) = std::fs::remove_file(&self.key) {
            tracing::warn!(%error, "could not delete the pool's key from the executor's directory");
        }
    }
}

/// The prefix of key file names, followed by the process id.
const KEY_FILE: &str = "node-key-";

/// Returns the path of this process's key file, which it does not create, and deletes the key files
/// of dead processes. Two executors may share a directory for a moment without deleting each
/// other's key. An error if the directory cannot be read or such a file cannot be deleted.
fn key_file(state: &Path) -> std::io::Result<PathBuf> {
    for entry in std::fs::read_dir(state)?.flatten() {
        let name = entry.file_name();
        let pid = name.to_str().and_then(|name| name.strip_prefix(KEY_FILE));
        if pid.is_some_and(|pid| !Path::new("/proc").join(pid).exists()) {
            std::fs::remove_file(entry.path())?;
        }
    }
    Ok(state.join(format!("{KEY_FILE}{}", std::process::id())))
}

/// Writes the key to a file that only its owner can ever read. Deletes an existing file first.
fn write_key(path: &Path, text: &str) -> std::io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file =
        std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(text.as_bytes())
}
