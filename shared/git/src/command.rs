//! Runs the git command line in isolation from the machine's configuration, with a time limit.

use std::ffi::{OsStr, OsString};
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// The most bytes of git's error output that are stored.
const STDERR_BYTES_MAX: u64 = 16 * 1024;
/// The interval at which a running git is polled.
const LOOK_EVERY: Duration = Duration::from_millis(2);

/// Why a git command failed.
#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    /// It could not be started, or its input could not be written.
    #[error("could not run `git {command}`: is git installed?")]
    Start {
        /// The git subcommand.
        command: String,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// It exited with an error.
    #[error("`git {command}` failed ({status}): {stderr}")]
    Failed {
        /// The git subcommand.
        command: String,
        /// The exit status.
        status: std::process::ExitStatus,
        /// The error output.
        stderr: String,
    },
    /// It was killed when its time was up.
    #[error("`git {command}` was ended after {timeout_seconds} s")]
    TimedOut {
        /// The git subcommand.
        command: String,
        /// The time limit.
        timeout_seconds: u64,
    },
}

/// Runs `git` in `dir` with `input` on its standard input, waits for it, and kills it at
/// `deadline`. Discards its standard output. An error if git cannot be started, exits with an
/// error, does not read all of `input`, or is killed. The error of a failed exit has the beginning
/// of git's error output; the other errors have none of it.
///
/// Git reads no configuration of the system or the user, runs no hooks, never prompts, and has no
/// transports.
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
    // A git that succeeded has read all the input it needed. So a broken pipe only counts now.
    written.map_err(start)
}

/// Returns the full path of git, from the first call on always the same; the bare name `git` if the
/// search path has none. With a bare name and a custom environment, the standard library would use
/// `fork`, which is slow in a process with much memory.
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
        // The caller that starts it reports that it is missing.
        found.map_or_else(|| OsString::from("git"), PathBuf::into_os_string)
    })
}

/// Returns a command that runs git in `dir` with these arguments. Of this process's environment it
/// gets only `PATH`, and it uses no configuration, hooks or transports of the machine. Standard
/// input and error are piped; output is discarded.
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

/// Reads git's error output to its end and returns the beginning, at most 16 KB, without white
/// space around it; empty without a pipe.
fn listen(stderr: Option<std::process::ChildStderr>) -> String {
    let Some(mut stderr) = stderr else {
        return String::new();
    };
    let mut output = Vec::new();
    // The exit status reports the failure even when the output cannot be read.
    let _ = stderr.by_ref().take(STDERR_BYTES_MAX).read_to_end(&mut output);
    let _ = std::io::copy(&mut stderr, &mut std::io::sink());
    String::from_utf8_lossy(&output).trim().to_owned()
}

/// Kills git and waits until it has ended.
fn end(child: &mut Child) {
    // Both only fail for a process that has already exited.
    let _ = child.kill();
    let _ = child.wait();
}
