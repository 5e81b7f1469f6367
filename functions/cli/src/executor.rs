//! The executor as a part of this program or as a program of its own: its key, its live logs, its
//! shutdown.

use crate::own_address::reachable;
use crate::pool_key::PoolKey;
use anyhow::Context as _;
use sluice_executor::service::{Executor, Options};
use sluice_executor::{Ansible, Settings};
use sluice_runtime::Ports;
use std::io::Write as _;
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// What an operator decides about an executor.
#[derive(Debug, Clone)]
pub struct Wanted {
    /// Where build directories and repositories are kept.
    pub state: PathBuf,
    /// Builds that run at once.
    pub slots: usize,
    /// Where its live logs are served.
    pub logs: SocketAddr,
    /// The address of the pages, ending in `/`; archived logs are below `logs/` of it.
    pub web_root: String,
    /// The Python environment that `install.sh` made; `None` takes `SLUICE_ANSIBLE_PREFIX`, else
    /// the script's default.
    pub ansible: Option<PathBuf>,
}

/// A running executor.
pub struct Running {
    stop: watch::Sender<bool>,
    life: JoinHandle<()>,
    logs: JoinHandle<()>,
    key: PathBuf,
    address: SocketAddr,
}

impl Running {
    /// Starts an executor.
    ///
    /// # Errors
    /// When Ansible or its confinement is missing, or there is no pool key.
    pub async fn start(ports: Ports, wanted: Wanted) -> anyhow::Result<Self> {
        std::fs::create_dir_all(&wanted.state)
            .with_context(|| format!("could not make {}", wanted.state.display()))?;
        let state = wanted.state.canonicalize()?;
        let mut settings = Settings::new(&state);
        let prefix =
            wanted.ansible.or_else(|| std::env::var_os("SLUICE_ANSIBLE_PREFIX").map(PathBuf::from));
        if let Some(prefix) = prefix {
            settings.prefix = prefix;
        }
        let hostname = settings.hostname.clone();
        let runner = Ansible::new(settings).await?;
        let key = own_key_file(&state)?;
        let pool_key = PoolKey::needed(&ports).await?;
        write_key(&key, &pool_key.open(&ports).await?)
            .with_context(|| format!("could not write {}", key.display()))?;
        let listener = TcpListener::bind(wanted.logs)
            .await
            .with_context(|| format!("could not serve live logs on {}", wanted.logs))?;
        let address = listener.local_addr()?;
        let options = Options {
            hostname,
            slots: wanted.slots,
            state,
            node_key: Some(key.clone()),
            log_address: reachable(address).await.map(|address| format!("http://{address}/")),
            log_root: format!("{}logs/", wanted.web_root),
        };
        let executor = Executor::new(ports, Arc::new(runner), options);
        let router = executor.logs().router();
        let logs = tokio::spawn(async move {
            if let Err(error) = axum::serve(listener, router).await {
                tracing::error!(%error, "live logs are not served any more");
            }
        });
        let (stop, stopped) = watch::channel(false);
        let life = tokio::spawn(async move {
            if let Err(error) = executor.run(stopped).await {
                tracing::error!(%error, "the executor's life ended");
            }
        });
        Ok(Self { stop, life, logs, key, address })
    }

    /// Returns where live logs are served.
    pub fn logs_address(&self) -> SocketAddr {
        self.address
    }

    /// Completes when the executor has ended by itself: its session is gone.
    pub async fn ended(&self) {
        while !self.has_ended() {
            tokio::time::sleep(std::time::Duration::from_secs(1)).await;
        }
    }

    /// Returns whether the executor has ended by itself.
    pub fn has_ended(&self) -> bool {
        self.life.is_finished()
    }

    /// Stops: running builds are ended and attempted again elsewhere.
    pub async fn stop(self) {
        self.stop.send_replace(true);
        if let Err(error) = self.life.await {
            tracing::error!(%error, "the executor broke off");
        }
        self.logs.abort();
        if let Err(error) = std::fs::remove_file(&self.key) {
            tracing::warn!(%error, "the pool's key could not be removed from the executor's directory");
        }
    }
}

/// The first part of the names of key files; the number of the process follows.
const KEY_FILE: &str = "node-key-";

/// Returns where this process keeps the key, and removes what dead processes left: two executors
/// may share a directory for a moment, and neither may take the other's key away.
fn own_key_file(state: &Path) -> std::io::Result<PathBuf> {
    for entry in std::fs::read_dir(state)?.flatten() {
        let name = entry.file_name();
        let pid = name.to_str().and_then(|name| name.strip_prefix(KEY_FILE));
        if pid.is_some_and(|pid| !Path::new("/proc").join(pid).exists()) {
            std::fs::remove_file(entry.path())?;
        }
    }
    Ok(state.join(format!("{KEY_FILE}{}", std::process::id())))
}

/// Writes the key so that nobody else can read it at any moment, also where a file was left.
fn write_key(path: &Path, text: &str) -> std::io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file =
        std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(text.as_bytes())
}
