//! Watches the processes and the memory of a running playbook, so that one that starts processes
//! without end, or fills the memory, is killed before the executor suffers (Z7.5).
//!
//! The kernel's own limit on processes does not hold for an executor that runs as root, and control
//! groups need rights that an executor in a container does not have.

use std::path::Path;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

/// The minimum time between two checks; longer if a check itself takes long.
const BETWEEN: Duration = Duration::from_millis(500);

/// What the processes of one playbook may use together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProcessLimits {
    /// The maximum number of processes and threads.
    pub processes_max: usize,
    /// The maximum size of their own and shared memory, without mapped files, in bytes.
    pub memory_bytes_max: u64,
}

impl Default for ProcessLimits {
    /// Returns limits for what a playbook does on an executor: 4,096 processes and threads, and
    /// 4 GiB of memory.
    fn default() -> Self {
        Self { processes_max: 4_096, memory_bytes_max: 4 << 30 }
    }
}

/// A background check of a playbook's processes; dropping it ends the check.
#[derive(Debug)]
pub struct ProcessWatch {
    /// The exceeded limit, once there is one.
    exceeded: watch::Receiver<Option<String>>,
    /// The background task.
    task: JoinHandle<()>,
}

impl ProcessWatch {
    /// Starts checking in the background whether the process `leader` and its descendants stay
    /// within `limits`; only [`Self::exceeded`] reports that they do not. At least half a second
    /// passes between two checks. Without a leader nothing is checked.
    pub fn start(leader: Option<u32>, limits: ProcessLimits) -> Self {
        let (sender, exceeded) = watch::channel(None);
        let task = tokio::spawn(async move {
            let Some(leader) = leader else { return };
            loop {
                let started = Instant::now();
                let check = tokio::task::spawn_blocking(move || exceeded_limit(leader, limits));
                // A check that panicked is repeated.
                if let Some(limit) = check.await.unwrap_or_default() {
                    sender.send_replace(Some(limit));
                    return;
                }
                sleep(BETWEEN.max(started.elapsed() * 10)).await;
            }
        });
        Self { exceeded, task }
    }

    /// Returns the exceeded limit as part of a sentence once a check finds one, at once if one has;
    /// never otherwise.
    pub async fn exceeded(&self) -> String {
        let mut exceeded = self.exceeded.clone();
        let found = exceeded.wait_for(Option::is_some).await.ok().and_then(|limit| limit.clone());
        match found {
            Some(limit) => limit,
            None => std::future::pending().await,
        }
    }
}

impl Drop for ProcessWatch {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Returns the limit that the process `leader` and its descendants exceed, as part of a sentence. A
/// process that ends meanwhile, or cannot be read, is skipped.
fn exceeded_limit(leader: u32, limits: ProcessLimits) -> Option<String> {
    let (mut waiting, mut processes, mut kibibytes) = (vec![leader], 0_usize, 0_u64);
    while let Some(process) = waiting.pop() {
        let directory = Path::new("/proc").join(process.to_string());
        kibibytes += own_kibibytes(&directory).unwrap_or_default();
        if kibibytes > limits.memory_bytes_max >> 10 {
            return Some(format!("{} MiB of memory", limits.memory_bytes_max >> 20));
        }
        let Ok(threads) = std::fs::read_dir(directory.join("task")) else { continue };
        for thread in threads.flatten() {
            processes += 1;
            if processes > limits.processes_max {
                return Some(format!("{} processes and threads", limits.processes_max));
            }
            let children = std::fs::read_to_string(thread.path().join("children"));
            let children = children.unwrap_or_default();
            waiting.extend(children.split_whitespace().filter_map(|id| id.parse::<u32>().ok()));
        }
    }
    None
}

/// Returns the size of a process's own memory in KiB, with its share of the memory that processes
/// share, and without mapped files; `None` if it cannot be read.
fn own_kibibytes(directory: &Path) -> Option<u64> {
    let status = std::fs::read_to_string(directory.join("status")).ok()?;
    let own = kibibytes_in(&status, "RssAnon:")?;
    let shared = kibibytes_in(&status, "RssShmem:").unwrap_or_default();
    if shared == 0 {
        return Some(own);
    }
    // This file takes the kernel longer, and has the share of each process.
    let shares = std::fs::read_to_string(directory.join("smaps_rollup")).unwrap_or_default();
    Some(own + kibibytes_in(&shares, "Pss_Shmem:").unwrap_or(shared))
}

/// Returns the value of one line of a file that the kernel makes, in KiB.
fn kibibytes_in(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Z7.5
    #[tokio::test]
    async fn descendants_count_with_their_threads_and_memory() {
        let mut command = tokio::process::Command::new("sh");
        command.args(["-c", "sleep 60 & (sleep 60 & wait) & wait"]);
        let group = crate::process::Group::spawn(&mut command).unwrap();
        let leader = group.id().unwrap();
        let limits =
            |processes_max, memory_bytes_max| ProcessLimits { processes_max, memory_bytes_max };
        let watch = ProcessWatch::start(Some(leader), limits(3, 1 << 40));
        assert_eq!(watch.exceeded().await, "3 processes and threads");
        assert_eq!(exceeded_limit(leader, limits(100, 1 << 40)), None);
        let own = exceeded_limit(leader, limits(100, 1 << 10));
        assert_eq!(own.as_deref(), Some("0 MiB of memory"));
    }

    /// Z7.5: memory that belongs to no process alone counts too, once.
    #[tokio::test]
    async fn shared_memory_counts_once_for_all_who_share_it() {
        let script = "import mmap, os\nm = mmap.mmap(-1, 64 << 20)\nm.write(b'x' * (64 << 20))\n\
                      os.fork()\nm.seek(0)\nm.write(b'y' * (64 << 20))\n\
                      print('ready', flush=True)\nimport time\ntime.sleep(60)";
        let mut command = tokio::process::Command::new("python3");
        command.args(["-c", script]).stdout(std::process::Stdio::piped());
        let mut group = crate::process::Group::spawn(&mut command).unwrap();
        let leader = group.id().unwrap();
        let mut lines =
            tokio::io::AsyncBufReadExt::lines(tokio::io::BufReader::new(group.stdout().unwrap()));
        for _ in 0..2 {
            assert_eq!(lines.next_line().await.unwrap().as_deref(), Some("ready"));
        }
        let limits = |mebibytes: u64| ProcessLimits {
            processes_max: 100,
            memory_bytes_max: mebibytes << 20,
        };
        assert!(exceeded_limit(leader, limits(60)).is_some());
        // 64 MiB that both share, and two interpreters.
        assert_eq!(exceeded_limit(leader, limits(120)), None);
    }
}
