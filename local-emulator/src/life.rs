//! A child process as something that can be killed from elsewhere than where it is waited for.

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::os::fd::OwnedFd;

/// Identifies a process, never a later one with the same process id.
#[derive(Debug)]
pub struct Life(OwnedFd);

impl Life {
    /// Returns a handle for the child process with this id, which must not have been waited for
    /// yet. `None` stands for a process that has ended already, which is an error.
    ///
    /// # Errors
    /// When it is gone, or the system cannot name processes this way (Linux before 5.3).
    pub fn of(child: Option<u32>) -> std::io::Result<Self> {
        let pid = child.and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
        let pid = pid.ok_or_else(|| std::io::Error::other("it ended at once"))?;
        Ok(Self(pidfd_open(pid, PidfdFlags::empty())?))
    }

    /// Kills the process with SIGKILL, unless it has ended already. Does not wait for its end; a
    /// failure is only logged.
    pub fn end(&self) {
        if let Err(error) = pidfd_send_signal(&self.0, Signal::KILL)
            && error != rustix::io::Errno::SRCH
        {
            tracing::warn!(%error, "a process could not be killed");
        }
    }
}
