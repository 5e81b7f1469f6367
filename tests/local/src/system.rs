//! Runs `sluice up` as a process with its own data directory: starts, kills, restarts and removes
//! it.

use crate::forge::ForgeUser;
use crate::until;
use anyhow::{Context as _, bail};
use sluice_local::{free_port, remove_nodes};
use sluice_operator::api_client::Client;
use sluice_operator::operator;
use sluice_runtime::Ports;
use std::fs::File;
use std::io::Write as _;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU16, Ordering};
use tempfile::TempDir;

/// The command-line options of `sluice up` for a test.
#[derive(Debug, Clone, Default)]
pub struct UpOptions {
    /// Whether functions and the executor run as separate processes (`--processes`).
    pub processes: bool,
    /// Which processes are killed at which calls (`--kill`).
    pub kill: Option<String>,
    /// Minutes between two sweeps of the forge (`--poll`).
    pub poll_minutes: Option<u64>,
    /// The address of external data services (`--endpoint`), which accept well-known test
    /// credentials. `None` uses the emulator's own services.
    pub endpoint: Option<String>,
}

/// The kind of process that `--kill` or a test kills.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KilledProcess {
    /// The program itself. [`System::await_kill`] sees the SIGKILL; the log has a last line.
    Machine,
    /// The processes of a function.
    Function,
    /// The executor's process, which the program restarts.
    Executor,
}

/// A running system with its data directory. Dropping it kills all processes and removes the
/// directory.
pub struct System {
    data: TempDir,
    port: u16,
    options: UpOptions,
    child: Child,
    /// Clients of this start: creating one costs more than a request.
    client: OnceLock<Client>,
    forge: OnceLock<ForgeUser>,
}

impl System {
    /// Starts a new system and waits until it prints that it is up.
    ///
    /// # Errors
    /// When the program exits instead.
    pub async fn start(options: UpOptions) -> anyhow::Result<Self> {
        let data = tempfile::Builder::new().prefix("sluice-local-").tempdir()?;
        let port = unused_port()?;
        let child = spawn_up(data.path(), port, &options)?;
        let (client, forge) = (OnceLock::new(), OnceLock::new());
        let mut system = Self { data, port, options, child, client, forge };
        system.await_start().await?;
        Ok(system)
    }

    /// Restarts the system on the same directory and ports, as a service manager would.
    ///
    /// `kill` replaces the `--kill` option of the last start.
    ///
    /// # Errors
    /// When it does not come up.
    pub async fn start_again(&mut self, kill: Option<&str>) -> anyhow::Result<()> {
        self.options.kill = kill.map(str::to_owned);
        // Their connections were closed with the last start.
        (self.client, self.forge) = (OnceLock::new(), OnceLock::new());
        self.child = spawn_up(self.data.path(), self.port, &self.options)?;
        self.await_start().await
    }

    /// Waits until the program prints that it is up, or is killed.
    async fn await_start(&mut self) -> anyhow::Result<()> {
        let output = self.data.path().join("said");
        let child = std::cell::RefCell::new(&mut self.child);
        let exit: Option<ExitStatus> = until("the system to come up", async || {
            if std::fs::read_to_string(&output)?.contains("Ctrl-C stops everything") {
                return Ok(Some(None));
            }
            Ok(child.borrow_mut().try_wait()?.map(Some))
        })
        .await?;
        match exit {
            None => Ok(()),
            Some(status) if status.signal() == Some(9) => Ok(()),
            Some(status) => {
                bail!("the program exited ({status}): {}", std::fs::read_to_string(&output)?)
            }
        }
    }

    /// Waits until the program has killed itself as `--kill` demands.
    ///
    /// # Errors
    /// When it keeps running, or exits in another way.
    pub async fn await_kill(&mut self) -> anyhow::Result<()> {
        let child = std::cell::RefCell::new(&mut self.child);
        let status =
            until("the system to die", async || Ok(child.borrow_mut().try_wait()?)).await?;
        if status.signal() != Some(9) {
            bail!("the program exited with {status} and not by SIGKILL: {}", self.output());
        }
        Ok(())
    }

    /// Waits until the log shows at least `count` kills of this kind over all starts.
    ///
    /// # Errors
    /// When there are fewer.
    pub async fn await_kills(&self, count: usize, kind: KilledProcess) -> anyhow::Result<()> {
        let is_one = |line: &str| match kind {
            KilledProcess::Machine => line.contains("killing, as asked"),
            KilledProcess::Function => {
                line.contains("killed every process of a function") && !line.contains("processes=0")
            }
            KilledProcess::Executor => line.contains("the executor died; restarting it"),
        };
        until(&format!("kill number {count}"), async || {
            let happened = self.log()?.lines().filter(|line| is_one(line)).count();
            Ok((happened >= count).then_some(()))
        })
        .await
    }

    /// Kills the program and all processes that it started except the nodes.
    ///
    /// Nodes outlive the program as machines of a cloud do.
    ///
    /// # Errors
    /// When the exit status cannot be read.
    pub fn kill(&mut self) -> anyhow::Result<()> {
        // The program leads a process group, which all its children belong to.
        Command::new("kill")
            .args(["-KILL", "--", &format!("-{}", self.child.id())])
            .stderr(Stdio::null())
            .status()?;
        self.child.wait()?;
        Ok(())
    }

    /// Returns the data directory.
    pub fn data(&self) -> &Path {
        self.data.path()
    }

    /// Returns the root URL of the web pages, ending in `/`.
    pub fn web_root(&self) -> String {
        format!("http://127.0.0.1:{}/", self.port)
    }

    /// Returns the URL of the emulated data services.
    pub fn endpoint(&self) -> String {
        format!("http://127.0.0.1:{}", self.port + 2)
    }

    /// Returns a client of the REST API.
    ///
    /// # Errors
    /// When the client cannot be created.
    pub fn client(&self) -> anyhow::Result<Client> {
        if let Some(client) = self.client.get() {
            return Ok(client.clone());
        }
        let client = Client::new(&self.web_root())?;
        Ok(self.client.get_or_init(|| client).clone())
    }

    /// Returns a client of the forge.
    ///
    /// # Errors
    /// When the tokens cannot be read.
    pub fn forge(&self) -> anyhow::Result<ForgeUser> {
        if let Some(forge) = self.forge.get() {
            return Ok(forge.clone());
        }
        let forge = ForgeUser::of(self.data.path(), self.port + 1)?;
        Ok(self.forge.get_or_init(|| forge).clone())
    }

    /// Runs a `sluice` command on the data directory, with `input` on standard input.
    ///
    /// # Errors
    /// When it cannot be run.
    pub fn run(&self, words: &[&str], input: &str) -> anyhow::Result<Output> {
        let mut command = Command::new(program()?);
        command.args(words).arg("--data").arg(self.data());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().context("could not start the program")?;
        let mut stdin = child.stdin.take().context("the program has no standard input")?;
        stdin.write_all(input.as_bytes()).context("could not write to the program")?;
        drop(stdin);
        child.wait_with_output().context("could not wait for the program")
    }

    /// Returns ports with the rights of an operator.
    ///
    /// # Errors
    /// When the system does not run.
    pub async fn operator(&self) -> anyhow::Result<Ports> {
        operator(Some(self.data.path().to_owned())).await
    }

    /// Returns the log of all starts.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn log(&self) -> anyhow::Result<String> {
        Ok(std::fs::read_to_string(self.data.path().join("sluice.log"))?)
    }

    /// Returns the directories of the existing nodes.
    pub fn nodes(&self) -> Vec<PathBuf> {
        let entries =
            std::fs::read_dir(self.data.path().join("ec2")).into_iter().flatten().flatten();
        entries.map(|entry| entry.path()).filter(|path| path.is_dir()).collect()
    }

    /// Returns the output of the program; empty when it cannot be read.
    fn output(&self) -> String {
        std::fs::read_to_string(self.data.path().join("said")).unwrap_or_default()
    }
}

impl Drop for System {
    fn drop(&mut self) {
        if let Err(error) = self.kill() {
            eprintln!("could not kill a system: {error:#}");
        }
        if let Err(error) = remove_nodes(self.data.path()) {
            eprintln!("could not remove the nodes of a system: {error}");
        }
        if std::thread::panicking() {
            let copy = self.data.path().with_extension("log");
            match std::fs::copy(self.data.path().join("sluice.log"), &copy) {
                Ok(_) => eprintln!("saved its log as {}", copy.display()),
                Err(error) => eprintln!("could not save its log: {error}"),
            }
        }
    }
}

/// Spawns `sluice up` in its own process group, with its output in the file `said`.
fn spawn_up(data: &Path, port: u16, options: &UpOptions) -> anyhow::Result<Child> {
    let output = File::create(data.join("said"))?;
    let mut command = Command::new(program()?);
    command
        .args(["up", "--listen", &format!("127.0.0.1:{port}"), "--tick", "2", "--slots", "4"])
        .arg("--data")
        .arg(data);
    if options.processes {
        command.arg("--processes");
    }
    if let Some(minutes) = options.poll_minutes {
        command.args(["--poll", &minutes.to_string()]);
    }
    if let Some(endpoint) = &options.endpoint {
        command.args(["--endpoint", endpoint]);
        command
            .env("AWS_ACCESS_KEY_ID", "test")
            .env("AWS_SECRET_ACCESS_KEY", "test")
            .env("AWS_REGION", "us-east-1");
    }
    command
        .env_remove("SLUICE_TABLE")
        .env_remove("SLUICE_WEB")
        .env_remove("SLUICE_KILL")
        .env_remove("RUST_LOG");
    if let Some(kill) = &options.kill {
        command.env("SLUICE_KILL", kill);
    }
    command.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output).process_group(0);
    command.spawn().context("could not start the program")
}

/// Returns the path of the `sluice` program in the target directory of these tests.
///
/// # Errors
/// When a program was not built.
pub fn program() -> anyhow::Result<PathBuf> {
    let tests = std::env::current_exe()?;
    let built =
        tests.parent().and_then(Path::parent).context("the tests lie in no target directory")?;
    for name in ["sluice", "sluice-functions", "sluice-cloud-functions", "sluice-executor"] {
        if !built.join(name).is_file() {
            bail!("there is no {}: build it with `make build`", built.join(name).display());
        }
    }
    Ok(built.join("sluice"))
}

/// Returns a free port for a new system.
///
/// Concurrent systems search different ranges. All lie below the ephemeral ports, so that a killed
/// system finds its port free when it restarts.
fn unused_port() -> anyhow::Result<u16> {
    static STARTED: AtomicU16 = AtomicU16::new(0);
    let offset = u16::try_from(std::process::id() % 50)? * 200
        + STARTED.fetch_add(1, Ordering::SeqCst) % 20 * 10;
    free_port(22_000 + offset..32_700)
}
