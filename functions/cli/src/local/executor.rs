//! The executor of a local system: in this process, or as one of its own that is started again when
//! it dies.

use super::services::Services;
use super::{Functions, Options, beside_us};
use crate::executor::{Running, Wanted};
use anyhow::Context as _;
use sluice_emulator::life::Life;
use sluice_emulator::machine::Equipment;
use std::fs::File;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::process::{Child, ChildStdin, Command};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// Pauses before a dead executor is started again: doubled up to the longest while it dies young.
const PAUSE_SHORTEST: Duration = Duration::from_millis(100);
const PAUSE_LONGEST: Duration = Duration::from_secs(10);
/// A process that lived so long did not die young.
const GROWN_UP: Duration = Duration::from_secs(30);
/// How long one that was asked to stop may take.
const STOP_LIMIT: Duration = Duration::from_secs(15);

pub(super) enum Executor {
    Here(Running),
    Beside(Beside),
}

impl Executor {
    pub(super) async fn start(
        options: &Options,
        services: &Services,
        data: &Path,
        web_root: &str,
    ) -> anyhow::Result<Self> {
        let state = data.join("executor");
        if options.functions == Functions::Processes {
            let start = Start {
                program: beside_us("sluice")?,
                equipment: services.executor_equipment()?,
                state,
                slots: options.slots,
                web_root: web_root.to_owned(),
                log: data.join("executor.log"),
            };
            let beside = Beside::start(start)?;
            services.set_executors_death(beside.kill());
            return Ok(Self::Beside(beside));
        }
        let wanted = Wanted {
            state,
            slots: options.slots,
            logs: (Ipv4Addr::LOCALHOST, 0).into(),
            web_root: web_root.to_owned(),
            ansible: None,
        };
        let place = services.executor(data.join("cache/executor")).await?;
        Ok(Self::Here(
            Running::start(place.ports, wanted).await.context("could not start the executor")?,
        ))
    }

    pub(super) fn logs_address(&self) -> Option<SocketAddr> {
        match self {
            Self::Here(running) => Some(running.logs_address()),
            Self::Beside(_) => None,
        }
    }

    pub(super) async fn stop(self) {
        match self {
            Self::Here(running) => running.stop().await,
            Self::Beside(beside) => beside.stop().await,
        }
    }
}

/// How the process is started, again and again.
struct Start {
    program: PathBuf,
    equipment: Equipment,
    state: PathBuf,
    slots: usize,
    web_root: String,
    log: PathBuf,
}

impl Start {
    /// Starts `sluice executor` with the executor's own keys and nothing else of ours.
    fn child(&self) -> anyhow::Result<(Lives, Life)> {
        let mut command = Command::new(&self.program);
        command
            .arg("executor")
            .arg("--state")
            .arg(&self.state)
            .args(["--slots", &self.slots.to_string()]);
        // It holds our end of its standard input: when we are killed, it stops.
        command.args(["--logs", "127.0.0.1:0", "--with-parent"]);
        command
            .env_clear()
            .envs(&self.equipment.environment)
            .envs(self.equipment.credentials.environment());
        command
            .env("AWS_REGION", &self.equipment.region)
            .env("AWS_ENDPOINT_URL", &self.equipment.endpoint)
            .env(crate::place::WEB_VARIABLE, &self.web_root);
        for name in ["PATH", "HOME", "SLUICE_ANSIBLE_PREFIX"] {
            if let Some(value) = std::env::var_os(name) {
                command.env(name, value);
            }
        }
        // Beside ours, so that it is told from the machine's own lines.
        let log = File::options().create(true).append(true).open(&self.log)?;
        command.stdin(Stdio::piped()).stdout(log.try_clone()?).stderr(log).kill_on_drop(true);
        let mut child = command.spawn().context("could not start the executor")?;
        // Apart from the child, since waiting for a child closes what it holds.
        let standing = child.stdin.take();
        let life = Life::of(child.id()).context("could not start the executor")?;
        Ok((Lives { child, _standing: standing }, life))
    }
}

/// A running process, with the end of its standard input that keeps it running.
struct Lives {
    child: Child,
    _standing: Option<ChildStdin>,
}

/// An executor in a process of its own, which a death ends for a moment only.
pub(super) struct Beside {
    stop: watch::Sender<bool>,
    watcher: JoinHandle<()>,
    life: Arc<Mutex<Life>>,
}

impl Beside {
    fn start(start: Start) -> anyhow::Result<Self> {
        let (lives, life) = start.child()?;
        let life = Arc::new(Mutex::new(life));
        let (stop, stopped) = watch::channel(false);
        let watcher = tokio::spawn(watch_over(start, lives, life.clone(), stopped));
        Ok(Self { stop, watcher, life })
    }

    /// Returns what kills the process of the moment.
    fn kill(&self) -> sluice_emulator::data::Kill {
        let life = self.life.clone();
        Arc::new(move |_| life.lock().unwrap_or_else(PoisonError::into_inner).end())
    }

    async fn stop(self) {
        self.stop.send_replace(true);
        if let Err(error) = self.watcher.await {
            tracing::warn!(%error, "whoever watched over the executor broke off");
        }
    }
}

/// Starts the executor again whenever it dies, until it is to stop.
async fn watch_over(
    start: Start,
    mut lives: Lives,
    life: Arc<Mutex<Life>>,
    mut stopped: watch::Receiver<bool>,
) {
    let mut pause = PAUSE_SHORTEST;
    loop {
        let born = Instant::now();
        let ended = tokio::select! {
            () = stop_asked(&mut stopped) => None,
            status = lives.child.wait() => Some(status),
        };
        match ended {
            None => return ask_to_end(lives.child).await,
            Some(Ok(status)) => {
                tracing::warn!(%status, "the executor died; another one is started")
            }
            Some(Err(error)) => {
                tracing::warn!(%error, "the executor is gone; another one is started")
            }
        }
        if born.elapsed() > GROWN_UP {
            pause = PAUSE_SHORTEST;
        }
        lives = loop {
            tokio::select! {
                () = stop_asked(&mut stopped) => return,
                () = tokio::time::sleep(pause) => {}
            }
            pause = (pause * 2).min(PAUSE_LONGEST);
            match start.child() {
                Ok((next, its)) => {
                    *life.lock().unwrap_or_else(PoisonError::into_inner) = its;
                    break next;
                }
                Err(error) => tracing::warn!(
                    error = format!("{error:#}"),
                    "the executor could not be started again"
                ),
            }
        };
    }
}

/// Completes when the executor is to stop; also when whoever says so is gone.
async fn stop_asked(stopped: &mut watch::Receiver<bool>) {
    drop(stopped.wait_for(|stop| *stop).await);
}

/// Asks the process to end, and ends it when it does not.
async fn ask_to_end(mut child: Child) {
    if let Some(pid) = child.id() {
        // The plain way to signal without unsafe code; the child still is ours, so the number is.
        let asked = Command::new("kill").args(["-TERM", &pid.to_string()]).status().await;
        if let Err(error) = asked {
            tracing::warn!(%error, "the executor could not be asked to stop");
        }
    }
    if tokio::time::timeout(STOP_LIMIT, child.wait()).await.is_err()
        && let Err(error) = child.kill().await
    {
        tracing::warn!(%error, "the executor could not be ended");
    }
}
