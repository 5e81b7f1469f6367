//! `sluice up` as a program: started on a directory of its own, killed, started again, cleared
//! away.

use crate::forge::Forge;
use crate::until;
use anyhow::{Context as _, bail};
use sluice_cli::commands::operator;
use sluice_cli::commands::show::Client;
use sluice_cli::local::{end_nodes, free_port};
use sluice_runtime::Ports;
use std::fs::File;
use std::io::Write as _;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use tempfile::TempDir;

/// How a system is started.
#[derive(Debug, Clone, Default)]
pub struct Wishes {
    /// Whether functions and executor are processes of their own.
    pub processes: bool,
    /// Who is killed at which calls (`--kill`).
    pub kill: Option<String>,
    /// Minutes between two questions to the forge (`--ask`).
    pub ask_minutes: Option<u64>,
    /// Where the data services are, if not beside it (`--endpoint`); it is called with keys that
    /// anybody knows.
    pub endpoint: Option<String>,
}

/// Who dies of what is tried with `--kill`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Death {
    /// The program itself; that it ended by SIGKILL is seen by [`System::dies`], and this is its
    /// last line.
    OfTheMachine,
    /// Processes of a function.
    OfAFunction,
    /// The executor's process, which its watcher starts again.
    OfTheExecutor,
}

/// A system with its directory. Dropped, everything of it is killed and removed.
pub struct System {
    data: TempDir,
    port: u16,
    wishes: Wishes,
    child: Child,
}

impl System {
    /// Starts a new system and returns when it says that it is up.
    ///
    /// # Errors
    /// When it ends instead.
    pub async fn start(wishes: Wishes) -> anyhow::Result<Self> {
        let data = tempfile::Builder::new().prefix("sluice-local-").tempdir()?;
        let port = own_port()?;
        let child = up(data.path(), port, &wishes)?;
        let mut system = Self { data, port, wishes, child };
        system.answers().await?;
        Ok(system)
    }

    /// Starts the system again after its end, on the same directory and ports, as whoever watches
    /// over it would.
    ///
    /// # Errors
    /// When it does not come up.
    pub async fn start_again(&mut self, kill: Option<&str>) -> anyhow::Result<()> {
        self.wishes.kill = kill.map(str::to_owned);
        self.child = up(self.data.path(), self.port, &self.wishes)?;
        self.answers().await
    }

    async fn answers(&mut self) -> anyhow::Result<()> {
        let said = self.data.path().join("said");
        let child = std::cell::RefCell::new(&mut self.child);
        let over: Option<ExitStatus> = until("the system to come up", async || {
            if std::fs::read_to_string(&said)?.contains("Ctrl-C stops everything") {
                return Ok(Some(None));
            }
            Ok(child.borrow_mut().try_wait()?.map(Some))
        })
        .await?;
        match over {
            None => Ok(()),
            Some(status) if status.signal() == Some(9) => Ok(()),
            Some(status) => bail!("it ended ({status}): {}", std::fs::read_to_string(&said)?),
        }
    }

    /// Waits until the program has killed itself, as it was asked to.
    ///
    /// # Errors
    /// When it goes on, or ends in another way.
    pub async fn dies(&mut self) -> anyhow::Result<()> {
        let child = std::cell::RefCell::new(&mut self.child);
        let status =
            until("the system to die", async || Ok(child.borrow_mut().try_wait()?)).await?;
        if status.signal() != Some(9) {
            bail!("it ended with {status} and not by SIGKILL: {}", self.said());
        }
        Ok(())
    }

    /// Waits until so many deaths of this kind happened since the directory was made.
    ///
    /// # Errors
    /// When they do not.
    pub async fn deaths(&self, count: usize, kind: Death) -> anyhow::Result<()> {
        let is_one = |line: &str| match kind {
            Death::OfTheMachine => line.contains("killing, as asked"),
            Death::OfAFunction => {
                line.contains("killed every process of a function") && !line.contains("processes=0")
            }
            Death::OfTheExecutor => line.contains("the executor died; another one is started"),
        };
        until(&format!("death number {count}"), async || {
            let happened = self.log()?.lines().filter(|line| is_one(line)).count();
            Ok((happened >= count).then_some(()))
        })
        .await
    }

    /// Kills the program and everything that it started, but for the nodes: they outlive it as
    /// machines of a cloud do.
    ///
    /// # Errors
    /// When it cannot be waited for.
    pub fn kill(&mut self) -> anyhow::Result<()> {
        // It leads a group of its own, in which everything is that it starts.
        Command::new("kill")
            .args(["-KILL", "--", &format!("-{}", self.child.id())])
            .stderr(Stdio::null())
            .status()?;
        self.child.wait()?;
        Ok(())
    }

    /// Returns the directory of all state.
    pub fn data(&self) -> &Path {
        self.data.path()
    }

    /// Returns the address of the pages, ending in `/`.
    pub fn web_root(&self) -> String {
        format!("http://127.0.0.1:{}/", self.port)
    }

    /// Returns where the data services answer.
    pub fn endpoint(&self) -> String {
        format!("http://127.0.0.1:{}", self.port + 2)
    }

    /// Returns the API's client.
    ///
    /// # Errors
    /// When none can be made.
    pub fn client(&self) -> anyhow::Result<Client> {
        Client::new(&self.web_root())
    }

    /// Returns the forge.
    ///
    /// # Errors
    /// When its people's tokens cannot be read.
    pub fn forge(&self) -> anyhow::Result<Forge> {
        Forge::of(self.data.path(), self.port + 1)
    }

    /// Runs the program that people type on the system's directory, with a text on standard input.
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

    /// Returns ports with an operator's rights.
    ///
    /// # Errors
    /// When the system does not run.
    pub async fn operator(&self) -> anyhow::Result<Ports> {
        operator(Some(self.data.path().to_owned())).await
    }

    /// Returns the log of all lives.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn log(&self) -> anyhow::Result<String> {
        Ok(std::fs::read_to_string(self.data.path().join("sluice.log"))?)
    }

    /// Returns the directories of nodes that exist.
    pub fn nodes(&self) -> Vec<PathBuf> {
        let entries =
            std::fs::read_dir(self.data.path().join("ec2")).into_iter().flatten().flatten();
        entries.map(|entry| entry.path()).filter(|path| path.is_dir()).collect()
    }

    fn said(&self) -> String {
        std::fs::read_to_string(self.data.path().join("said")).unwrap_or_default()
    }
}

impl Drop for System {
    fn drop(&mut self) {
        if let Err(error) = self.kill() {
            eprintln!("a system could not be ended: {error:#}");
        }
        end_nodes(self.data.path());
        if std::thread::panicking() {
            let kept = self.data.path().with_extension("log");
            match std::fs::copy(self.data.path().join("sluice.log"), &kept) {
                Ok(_) => eprintln!("its log is kept as {}", kept.display()),
                Err(error) => eprintln!("its log could not be kept: {error}"),
            }
        }
    }
}

fn up(data: &Path, port: u16, wishes: &Wishes) -> anyhow::Result<Child> {
    let said = File::create(data.join("said"))?;
    let mut command = Command::new(program()?);
    command
        .args(["up", "--listen", &format!("127.0.0.1:{port}"), "--tick", "1", "--slots", "4"])
        .arg("--data")
        .arg(data);
    if wishes.processes {
        command.arg("--processes");
    }
    if let Some(minutes) = wishes.ask_minutes {
        command.args(["--ask", &minutes.to_string()]);
    }
    if let Some(endpoint) = &wishes.endpoint {
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
    if let Some(kill) = &wishes.kill {
        command.env("SLUICE_KILL", kill);
    }
    command.stdin(Stdio::null()).stdout(said.try_clone()?).stderr(said).process_group(0);
    command.spawn().context("could not start the program")
}

/// Returns the program that was built beside these tests.
///
/// # Errors
/// When it was not built.
pub fn program() -> anyhow::Result<PathBuf> {
    let tests = std::env::current_exe()?;
    let built =
        tests.parent().and_then(Path::parent).context("the tests lie in no target directory")?;
    for name in ["sluice", "bootstrap"] {
        if !built.join(name).is_file() {
            bail!(
                "there is no {}: build it with `cargo build -p sluice-cli --bins`",
                built.join(name).display()
            );
        }
    }
    Ok(built.join("sluice"))
}

/// Systems side by side look for ports from places of their own, below those that the system gives
/// to connections: a killed one starts again on its port.
fn own_port() -> anyhow::Result<u16> {
    static STARTED: AtomicU16 = AtomicU16::new(0);
    let place = u16::try_from(std::process::id() % 50)? * 200
        + STARTED.fetch_add(1, Ordering::SeqCst) % 20 * 10;
    free_port(22_000 + place..32_700)
}
