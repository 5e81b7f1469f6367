//! Running the git command line with nothing of the machine in it, for as long as it may take.

use std::ffi::{OsStr, OsString};
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// How much of what git says is kept for an error.
const STDERR_KEPT_BYTES: u64 = 16 * 1024;
/// How often a running git is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(2);

/// Why a git command did not do its work.
#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    /// It could not be started, or not be talked to.
    #[error("could not run `git {command}`: is git installed?")]
    Start {
        /// The subcommand.
        command: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// It ended with an error.
    #[error("`git {command}` failed ({status}): {stderr}")]
    Failed {
        /// The subcommand.
        command: String,
        /// Its exit status.
        status: std::process::ExitStatus,
        /// What it said.
        stderr: String,
    },
    /// It was killed for taking too long.
    #[error("`git {command}` was ended after {timeout_seconds} s")]
    TimedOut {
        /// The subcommand.
        command: String,
        /// How long it could run.
        timeout_seconds: u64,
    },
}

/// Runs `git` in `dir` with `input` on its standard input, until `deadline`.
///
/// Configuration of the system and the user is not read, no hook runs, nobody is asked anything,
/// and no transport works.
pub(crate) fn git<A: AsRef<OsStr>>(
    dir: &Path,
    arguments: &[A],
    input: &str,
    deadline: Instant,
) -> Result<(), CommandError> {
    let command = arguments
        .first()
        .map(|name| name.as_ref().to_string_lossy().into_owned())
        .unwrap_or_default();
    let start = |source| CommandError::Start { command: command.clone(), source };
    let started = Instant::now();
    let mut child = prepare(dir, arguments).spawn().map_err(start)?;
    let stderr = child.stderr.take();
    let listener = std::thread::spawn(move || listen(stderr));
    let written = match child.stdin.take() {
        Some(mut stdin) => stdin.write_all(input.as_bytes()),
        None => Ok(()),
    };
    let status = loop {
        match child.try_wait().map_err(start)? {
            Some(status) => break status,
            None if Instant::now() >= deadline => {
                end(&mut child);
                return Err(CommandError::TimedOut {
                    command,
                    timeout_seconds: started.elapsed().as_secs(),
                });
            }
            None => std::thread::sleep(LOOK_EVERY),
        }
    };
    let stderr = listener.join().unwrap_or_default();
    if !status.success() {
        return Err(CommandError::Failed { command, status, stderr });
    }
    // A git that ended well has read all it wanted, so only now a broken pipe counts.
    written.map_err(start)
}

/// Returns where git is. By its bare name, and with an environment of its own, the standard library
/// would start it by `fork`, which takes the longer the more memory this process has.
fn program() -> &'static OsStr {
    static PROGRAM: OnceLock<OsString> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let is_program = |file: &PathBuf| {
            file.is_absolute()
                && file
                    .metadata()
                    .is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
        };
        let path = std::env::var_os("PATH").unwrap_or_default();
        let found =
            std::env::split_paths(&path).map(|directory| directory.join("git")).find(is_program);
        // Whoever starts it says that it is missing.
        found.map_or_else(|| OsString::from("git"), PathBuf::into_os_string)
    })
}

fn prepare<A: AsRef<OsStr>>(dir: &Path, arguments: &[A]) -> Command {
    let mut command = Command::new(program());
    command
        .args([
            "-c",
            "core.hooksPath=/dev/null",
            "-c",
            "safe.directory=*",
            "-c",
            "protocol.allow=never",
            "-c",
            "gc.auto=0",
        ])
        .args(["-c", "core.fsmonitor=false", "-c", "advice.detachedHead=false"])
        .args(arguments)
        .current_dir(dir)
        .env_clear()
        .env("HOME", "/nonexistent")
        .env("LC_ALL", "C")
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("GIT_CONFIG_SYSTEM", "/dev/null")
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_ATTR_NOSYSTEM", "1")
        .env("GIT_TERMINAL_PROMPT", "0")
        .env("GIT_ASKPASS", "/bin/false")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    if let Some(path) = std::env::var_os("PATH") {
        command.env("PATH", path);
    }
    command
}

/// Reads all that git says, keeping its beginning.
fn listen(stderr: Option<std::process::ChildStderr>) -> String {
    let Some(mut stderr) = stderr else {
        return String::new();
    };
    let mut kept = Vec::new();
    // What cannot be read is not told; the exit status says that it failed.
    let _ = stderr.by_ref().take(STDERR_KEPT_BYTES).read_to_end(&mut kept);
    let _ = std::io::copy(&mut stderr, &mut std::io::sink());
    String::from_utf8_lossy(&kept).trim().to_owned()
}

fn end(child: &mut Child) {
    // Both fail only for a process that has ended by itself.
    let _ = child.kill();
    let _ = child.wait();
}
