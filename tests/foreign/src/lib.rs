//! Third-party programs for tests, installed once. Endpoints are started as child processes on a
//! free port of 127.0.0.1, and stopped by process id.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

pub mod ministack;
pub mod oidc_provider;
pub mod schemathesis;
pub mod versitygw;
pub mod zuul_client;

use std::fs::File;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Longest time until a started endpoint answers.
const START_SECONDS_MAX: u64 = 60;
/// Attempts with another port when a process takes the free one first.
const PORTS_TRIED_MAX: u32 = 3;

/// A running endpoint with its data. Both are removed when it is dropped.
pub struct Foreign {
    child: Child,
    endpoint: String,
    data: TempDir,
}

impl Foreign {
    /// Returns its URL.
    pub fn endpoint(&self) -> &str {
        &self.endpoint
    }
}

impl Drop for Foreign {
    fn drop(&mut self) {
        // By its id; a process that has exited has none.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns cargo's target directory, and makes `tmp` in it: a program runs in one of its profiles,
/// and a test in `deps` of a profile.
fn target() -> PathBuf {
    let program = std::env::current_exe().unwrap();
    let directory = program.parent().unwrap();
    let profile = if directory.ends_with("deps") { directory.parent().unwrap() } else { directory };
    let target = profile.parent().unwrap().to_owned();
    std::fs::create_dir_all(target.join("tmp")).unwrap();
    target
}

/// Returns the directory of an installed endpoint; `install` fills it unless that was done before.
///
/// Installed things stay in cargo's target directory, so that only the first run pays. A lock lets
/// only one test install at a time, and a mark shows that an installation is complete.
fn installed(name: &str, install: impl FnOnce(&Path)) -> PathBuf {
    let foreign = target().join("foreign");
    std::fs::create_dir_all(&foreign).unwrap();
    let lock = File::create(foreign.join(format!("{name}.lock"))).unwrap();
    lock.lock().unwrap();
    let directory = foreign.join(name);
    let mark = directory.join("installed");
    if !mark.exists() {
        let _ = std::fs::remove_dir_all(&directory);
        std::fs::create_dir_all(&directory).unwrap();
        install(&directory);
        File::create(mark).unwrap();
    }
    directory
}

/// Returns a virtual environment of Python with one package.
fn python_environment(name: &str, package: &str) -> PathBuf {
    const TOOL: &str = "Python 3.10 or later with venv and pip (python3-venv)";
    installed(name, |directory| {
        step(Command::new("python3").args(["-m", "venv"]).arg(directory), TOOL);
        let mut pip = Command::new(directory.join("bin/pip"));
        step(pip.args(["install", "--quiet", "--disable-pip-version-check", package]), TOOL);
    })
}

/// Runs one step of an installation. `tool` says what to install when its program is missing.
fn step(command: &mut Command, tool: &str) {
    let shown = format!("{command:?}");
    let ended = command.stdin(Stdio::null()).output();
    let output =
        ended.unwrap_or_else(|error| panic!("could not run {shown}: {error}; install {tool}"));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "{shown} failed; it needs {tool} and a way to its package registry:\n{said}"
    );
}

/// Starts an endpoint on a free port and returns once `ready` says that it answers. `command` gets
/// the port and an empty directory for its data.
async fn started(
    name: &str,
    command: impl Fn(u16, &Path) -> Command,
    ready: impl AsyncFn(&str) -> bool,
) -> Foreign {
    for _ in 0..PORTS_TRIED_MAX {
        let data = tempfile::tempdir_in(target().join("tmp")).unwrap();
        let port = free_port();
        let log = File::create(data.path().join("log")).unwrap();
        let mut command = command(port, data.path());
        let child = command
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap_or_else(|error| panic!("could not start {name}: {error}"));
        let mut foreign = Foreign { child, endpoint: format!("http://127.0.0.1:{port}"), data };
        let until = Instant::now() + Duration::from_secs(START_SECONDS_MAX);
        while foreign.child.try_wait().unwrap().is_none() {
            if ready(&foreign.endpoint).await {
                return foreign;
            }
            assert!(Instant::now() < until, "{name} does not answer:\n{}", foreign.log());
            // It is another process, so only its answer shows that it is ready.
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        println!("{name} ended at once:\n{}", foreign.log());
    }
    panic!("{name} could not be started; its output is above");
}

impl Foreign {
    fn log(&self) -> String {
        std::fs::read_to_string(self.data.path().join("log")).unwrap_or_default()
    }
}

fn free_port() -> u16 {
    let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    TcpListener::bind(any).unwrap().local_addr().unwrap().port()
}

/// Returns whether something accepts connections there.
async fn accepts(endpoint: &str) -> bool {
    let address = endpoint.trim_start_matches("http://");
    tokio::net::TcpStream::connect(address).await.is_ok()
}
