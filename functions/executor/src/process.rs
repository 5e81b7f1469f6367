//! Child processes in their own process groups, which are killed as a whole.

use rustix::process::{Pid, Signal, kill_process_group};
use std::path::Path;
use std::process::ExitStatus;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};

/// A child process with its descendants in one process group. Dropping it kills the group.
#[derive(Debug)]
pub struct Group {
    /// The group's first process.
    child: Child,
    /// Its process id, which is also the group's.
    pid: Option<Pid>,
}

impl Group {
    /// Starts `command` as the leader of a new process group, which is killed when the returned
    /// value is dropped.
    pub fn spawn(command: &mut Command) -> std::io::Result<Self> {
        let child = command.process_group(0).kill_on_drop(true).spawn()?;
        let pid = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        Ok(Self { child, pid })
    }

    /// Returns the process id, which is also the group's.
    pub fn id(&self) -> Option<u32> {
        self.child.id()
    }

    /// Returns the write end of its standard input, once, if it was piped.
    pub fn stdin(&mut self) -> Option<ChildStdin> {
        self.child.stdin.take()
    }

    /// Returns the read end of its standard output, once, if it was piped.
    pub fn stdout(&mut self) -> Option<ChildStdout> {
        self.child.stdout.take()
    }

    /// Returns the read end of its standard error, once, if it was piped.
    pub fn stderr(&mut self) -> Option<ChildStderr> {
        self.child.stderr.take()
    }

    /// Waits for the leader's end and returns its exit status; other processes of the group may
    /// still run.
    pub async fn wait(&mut self) -> std::io::Result<ExitStatus> {
        self.child.wait().await
    }

    /// Kills the group unless the leader was waited for. Until then its id cannot be reused by
    /// another process.
    pub fn kill(&mut self) {
        if let (Some(_), Some(pid)) = (self.child.id(), self.pid) {
            // The group may have ended already.
            let _ = kill_process_group(pid, Signal::KILL);
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Removes a directory with all below it, following no links; a missing one is no error. The error
/// is what `rm` said first. The standard library needs stack and an open file for each level, and a
/// build decides how deep its directories are. Blocks on file access.
pub fn remove_tree(path: &Path) -> std::io::Result<()> {
    let mut remove = std::process::Command::new("rm");
    remove.env_clear().env("PATH", "/usr/bin:/bin").args(["-rf", "--"]).arg(path);
    let output = remove.stdin(std::process::Stdio::null()).output()?;
    match output.status.success() {
        true => Ok(()),
        false => {
            let said = String::from_utf8_lossy(&output.stderr);
            Err(std::io::Error::other(said.lines().next().unwrap_or("rm failed").to_owned()))
        }
    }
}

/// Reads a stream to its end, or to the first error, and returns the first `limit` bytes as text.
/// The rest is discarded, so that the process never blocks.
pub async fn read_bounded(mut stream: impl AsyncRead + Unpin, limit: usize) -> String {
    let mut text = Vec::new();
    let mut buffer = [0_u8; 8192];
    while let Ok(count @ 1..) = stream.read(&mut buffer).await {
        let room = limit.saturating_sub(text.len()).min(count);
        text.extend_from_slice(&buffer[..room]);
    }
    String::from_utf8_lossy(&text).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Z7.5: a build that makes directories without end does not end the executor when they are
    /// removed.
    #[test]
    fn directories_of_any_depth_are_removed() {
        let root = tempfile::tempdir().unwrap();
        let deep = root.path().join("deep");
        std::fs::create_dir(&deep).unwrap();
        let script = "import os\nfor i in range(30000):\n os.mkdir('a'); os.chdir('a')";
        let mut python = std::process::Command::new("python3");
        assert!(python.args(["-c", script]).current_dir(&deep).status().unwrap().success());
        remove_tree(&deep).unwrap();
        assert!(!deep.exists());
        remove_tree(&deep).unwrap();
    }
}
