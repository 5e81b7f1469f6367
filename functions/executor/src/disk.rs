//! Watches how much a build has on disk: one that fills it would end everybody else's builds with
//! its own (Z7.5).

use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

/// Files that a build may have, whatever is in them.
const FILES_MAX: usize = 5_000_000;
/// Time between two looks; longer where looking itself takes long.
const BETWEEN: Duration = Duration::from_secs(5);

/// A watch over a directory; dropping it ends it.
#[derive(Debug)]
pub struct DiskWatch {
    full: watch::Receiver<bool>,
    task: JoinHandle<()>,
}

impl DiskWatch {
    /// Watches whether everything in the directories `roots` together stays within `bytes_max`.
    pub fn start(roots: Vec<PathBuf>, bytes_max: u64) -> Self {
        let (sender, full) = watch::channel(false);
        let task = tokio::spawn(async move {
            loop {
                let begun = Instant::now();
                let at = roots.clone();
                // A look that broke off says nothing; the next one may.
                if tokio::task::spawn_blocking(move || is_over(at, bytes_max))
                    .await
                    .unwrap_or(false)
                {
                    sender.send_replace(true);
                    return;
                }
                sleep(BETWEEN.max(begun.elapsed() * 20)).await;
            }
        });
        Self { full, task }
    }

    /// Completes once there is more than allowed.
    pub async fn full(&self) {
        if self.full.clone().wait_for(|full| *full).await.is_err() {
            std::future::pending().await
        }
    }
}

impl Drop for DiskWatch {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Returns whether there are more bytes on disk in `waiting` than `bytes_max`, or more files than
/// anybody needs.
fn is_over(mut waiting: Vec<PathBuf>, bytes_max: u64) -> bool {
    let (mut bytes, mut files): (u64, usize) = (0, 0);
    while let Some(directory) = waiting.pop() {
        // What is removed meanwhile needs no room.
        let Ok(entries) = std::fs::read_dir(directory) else { continue };
        for entry in entries.flatten() {
            let Ok(metadata) = entry.metadata() else { continue };
            bytes += metadata.blocks() * 512;
            files += 1;
            if bytes > bytes_max || files > FILES_MAX {
                return true;
            }
            if metadata.is_dir() {
                waiting.push(entry.path());
            }
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Z7.5
    #[tokio::test]
    async fn what_is_on_disk_counts_and_not_how_long_a_file_says_it_is() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir(root.path().join("deep")).unwrap();
        std::fs::File::create(root.path().join("deep/sparse")).unwrap().set_len(1 << 40).unwrap();
        let roots = vec![root.path().to_owned()];
        assert!(!is_over(roots.clone(), 1 << 20));
        std::fs::write(root.path().join("deep/full"), vec![1; 2 << 20]).unwrap();
        assert!(is_over(roots.clone(), 1 << 20));
        DiskWatch::start(roots, 1 << 20).full().await;
    }
}
