//! The executor of a local system: inside this process, or as a process of its own that is
//! restarted when it dies.

use crate::services::Services;
use crate::{Functions, LocalOptions, sibling_program};
use anyhow::Context as _;
use sluice_emulator::life::Life;
use sluice_emulator::machine::Equipment;
use sluice_executor_program::{
    AdmissionLimits, ExecutorOptions, PlaybookOptions, RunningExecutor, ServedZone, WEB_VARIABLE,
};
use std::fs::File;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::process::{Child, ChildStdin, Command};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// Pauses before a dead executor is restarted; doubled up to the longest while it keeps dying
/// early.
const PAUSE_SHORTEST: Duration = Duration::from_millis(100);
const PAUSE_LONGEST: Duration = Duration::from_secs(10);
/// A process that lived this long did not die early.
const EARLY_DEATH_LIMIT: Duration = Duration::from_secs(30);
/// How long an executor may take to stop: its builds get 28 seconds to end.
const STOP_LIMIT: Duration = Duration::from_secs(30);

pub(super) enum LocalExecutor {
    InProcess(RunningExecutor),
    ExecutorProcess(ExecutorProcess),
}

impl LocalExecutor {
    /// Starts the executor, in this process or, if `options.functions` is `Processes`, as a process
    /// of its own that is restarted when it dies. Its files are in `executor` of the data
    /// directory; the log of a process is `executor.log` there. `web_root` is the public address of
    /// the pages. For a process, also registers how fault injection kills it. An error if the first
    /// start fails, and for a process with another endpoint.
    pub(super) async fn start(
        options: &LocalOptions,
        services: &Services,
        data: &Path,
        web_root: &str,
    ) -> anyhow::Result<Self> {
        let state = data.join("executor");
        if options.functions == Functions::Processes {
            let command = ExecutorCommand {
                program: sibling_program("sluice-executor")?,
                equipment: services.executor_equipment()?,
                state,
                slots: options.slots,
                web_root: web_root.to_owned(),
                playbooks: options.playbooks.clone(),
                log: data.join("executor.log"),
            };
            let process = ExecutorProcess::start(command)?;
            services.set_executor_kill(process.kill());
            return Ok(Self::ExecutorProcess(process));
        }
        let executor_options = ExecutorOptions {
            state,
            zone: ServedZone::Unzoned,
            slots: options.slots,
            limits: AdmissionLimits::default(),
            logs: (Ipv4Addr::LOCALHOST, 0).into(),
            web_root: web_root.to_owned(),
            // The builds run again when the system is started again.
            drain_seconds: 0,
            ansible: None,
            playbooks: options.playbooks.clone(),
            uploads: services.upload_site()?,
        };
        let environment = services.executor(data.join("cache/executor")).await?;
        Ok(Self::InProcess(
            RunningExecutor::start(environment.ports, executor_options)
                .await
                .context("could not start the executor")?,
        ))
    }

    /// Stops the executor and waits for it. A process that has not stopped after 30 seconds is
    /// killed.
    pub(super) async fn stop(self) {
        match self {
            Self::InProcess(running) => running.stop().await,
            Self::ExecutorProcess(process) => process.stop().await,
        }
    }
}

/// What is needed to start the executor process again and again.
struct ExecutorCommand {
    program: PathBuf,
    equipment: Equipment,
    state: PathBuf,
    slots: usize,
    web_root: String,
    playbooks: PlaybookOptions,
    log: PathBuf,
}

impl ExecutorCommand {
    /// Starts the container image's program. Its environment has only the executor's own
    /// credentials and variables, the address and region of the data services, `SLUICE_WEB`,
    /// `PATH`, `HOME` and `SLUICE_ANSIBLE_PREFIX`. Returns the process and a handle to kill it. The
    /// process is killed when the returned value is dropped, and stops when this process dies. Its
    /// output is appended to the log file.
    fn child(&self) -> anyhow::Result<(ChildProcess, Life)> {
        let mut command = Command::new(&self.program);
        command.arg("--state").arg(&self.state).args(["--slots", &self.slots.to_string()]);
        // The child holds the read end of a pipe from us: when we are killed, it stops.
        command.args(["--logs", "127.0.0.1:0", "--with-parent", "--drain", "0"]);
        command.args(self.playbooks.to_arguments());
        command
            .env_clear()
            .envs(&self.equipment.environment)
            .envs(self.equipment.credentials.environment());
        command
            .env("AWS_REGION", &self.equipment.region)
            .env("AWS_ENDPOINT_URL", &self.equipment.endpoint)
            .env(WEB_VARIABLE, &self.web_root);
        for name in ["PATH", "HOME", "SLUICE_ANSIBLE_PREFIX"] {
            if let Some(value) = std::env::var_os(name) {
                command.env(name, value);
            }
        }
        // A log file of its own, to separate it from the machine's log.
        let log = File::options().create(true).append(true).open(&self.log)?;
        command.stdin(Stdio::piped()).stdout(log.try_clone()?).stderr(log).kill_on_drop(true);
        let mut child = command.spawn().context("could not start the executor")?;
        // Kept outside the child, because waiting for a child closes its standard input.
        let stdin = child.stdin.take();
        let life = Life::of(child.id()).context("could not start the executor")?;
        Ok((ChildProcess { child, _stdin: stdin }, life))
    }
}

/// A running process, with the write end of its standard input that keeps it running.
struct ChildProcess {
    child: Child,
    _stdin: Option<ChildStdin>,
}

/// An executor in a process of its own, which is restarted when it dies.
pub(super) struct ExecutorProcess {
    stop: watch::Sender<bool>,
    watcher: JoinHandle<()>,
    life: Arc<Mutex<Life>>,
}

impl ExecutorProcess {
    /// Starts the process, and a task that restarts it when it dies. An error if the first start
    /// fails; later failures are logged and retried.
    fn start(start: ExecutorCommand) -> anyhow::Result<Self> {
        let (child, life) = start.child()?;
        let life = Arc::new(Mutex::new(life));
        let (stop, stopped) = watch::channel(false);
        let watcher = tokio::spawn(restart_on_exit(start, child, life.clone(), stopped));
        Ok(Self { stop, watcher, life })
    }

    /// Returns a function that kills the process that runs when it is called, with SIGKILL. The
    /// process is then restarted.
    fn kill(&self) -> sluice_emulator::data::Kill {
        let life = self.life.clone();
        Arc::new(move |_| life.lock().unwrap_or_else(PoisonError::into_inner).end())
    }

    /// Stops the process with SIGTERM, kills it after 30 seconds, and waits for its end. It is not
    /// restarted.
    async fn stop(self) {
        self.stop.send_replace(true);
        if let Err(error) = self.watcher.await {
            tracing::warn!(%error, "the task that restarts the executor failed");
        }
    }
}

/// Restarts the executor whenever it dies, until `stopped` is true or its sender is dropped; then
/// ends the process and returns. `child` is the running process; `life` is replaced by the handle
/// of each new one. Waits 100 ms before a restart, and twice as long each time, at most 10 s, while
/// the process dies within 30 s.
async fn restart_on_exit(
    start: ExecutorCommand,
    mut child: ChildProcess,
    life: Arc<Mutex<Life>>,
    mut stopped: watch::Receiver<bool>,
) {
    let mut pause = PAUSE_SHORTEST;
    loop {
        let started = Instant::now();
        let ended = tokio::select! {
            () = stop_signal(&mut stopped) => None,
            status = child.child.wait() => Some(status),
        };
        match ended {
            None => return terminate(child.child).await,
            Some(Ok(status)) => {
                tracing::warn!(%status, "the executor died; restarting it")
            }
            Some(Err(error)) => {
                tracing::warn!(%error, "could not wait for the executor; restarting it")
            }
        }
        if started.elapsed() > EARLY_DEATH_LIMIT {
            pause = PAUSE_SHORTEST;
        }
        child = loop {
            tokio::select! {
                () = stop_signal(&mut stopped) => return,
                () = tokio::time::sleep(pause) => {}
            }
            pause = (pause * 2).min(PAUSE_LONGEST);
            match start.child() {
                Ok((next, new_life)) => {
                    *life.lock().unwrap_or_else(PoisonError::into_inner) = new_life;
                    break next;
                }
                Err(error) => {
                    tracing::warn!(error = format!("{error:#}"), "could not restart the executor")
                }
            }
        };
    }
}

/// Waits until `stopped` is true, or until its sender is dropped.
async fn stop_signal(stopped: &mut watch::Receiver<bool>) {
    drop(stopped.wait_for(|stop| *stop).await);
}

/// Sends SIGTERM to the process and waits for its end. Kills it after 30 seconds. Failures are only
/// logged.
async fn terminate(mut child: Child) {
    if let Some(pid) = child.id() {
        // A way to send a signal without unsafe code. The child is not reaped yet, so its id is
        // valid.
        let asked = Command::new("kill").args(["-TERM", &pid.to_string()]).status().await;
        if let Err(error) = asked {
            tracing::warn!(%error, "could not send SIGTERM to the executor");
        }
    }
    if tokio::time::timeout(STOP_LIMIT, child.wait()).await.is_err()
        && let Err(error) = child.kill().await
    {
        tracing::warn!(%error, "could not kill the executor");
    }
}
