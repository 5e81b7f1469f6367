//! Stores the log of a running build while it grows, so that it is not lost with its executor
//! (Z7.4).
//!
//! New bytes are stored at most every [`STORE_SECONDS`], in segments of bounded size
//! ([`sluice_records::logs`]). While the log grows, that is one call to object storage every
//! five seconds (at most 720 in an hour), and one more for each 512 KiB; while it does not grow,
//! none. A build that ends within five seconds of its first line makes no such call.

use crate::job::Lease;
use bytes::Bytes;
use sluice_records::logs::{BuildLogs, SEGMENT_BYTES};
use sluice_runtime::Ports;
use sluice_runtime::object::PutMode;
use std::convert::Infallible;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::sleep;

/// Seconds that new bytes of a log wait before they are stored.
pub const STORE_SECONDS: u64 = 5;

/// The stored copy of one build's log.
pub struct StoredLog<'a> {
    /// Access to object storage.
    ports: &'a Ports,
    /// Names the segments.
    logs: BuildLogs<'a>,
    /// The path of the log, which only the executor writes.
    path: PathBuf,
    /// The length up to which the log is complete.
    length: watch::Receiver<u64>,
    /// How many bytes are stored.
    stored: u64,
    /// How long new bytes wait before they are stored.
    wait: Duration,
    /// Nothing is stored while it is over: another executor may store the log then.
    lease: &'a Lease,
}

impl<'a> StoredLog<'a> {
    /// Returns the copy of a log at `path`, of which nothing is stored yet. `length` publishes its
    /// length. While `lease` is over, nothing is stored.
    pub fn new(
        ports: &'a Ports,
        logs: BuildLogs<'a>,
        path: PathBuf,
        length: watch::Receiver<u64>,
        lease: &'a Lease,
    ) -> Self {
        let wait = Duration::from_secs(STORE_SECONDS);
        Self { ports, logs, path, length, stored: 0, wait, lease }
    }

    /// Stores new bytes [`STORE_SECONDS`] after they were written, for ever; the caller drops the
    /// call when the build ends. A failure is logged, and the bytes are stored with the next ones.
    pub async fn keep(&mut self) -> Infallible {
        loop {
            let stored = self.stored;
            if self.length.wait_for(|length| *length > stored).await.is_err() {
                // The log is closed; the last bytes are stored by `finish`.
                return std::future::pending().await;
            }
            sleep(self.wait).await;
            self.store().await;
        }
    }

    /// Stores the rest of a log that has segments already. Returns whether the whole log is stored
    /// then; otherwise, also after a failure, which is logged, the caller archives it as a file,
    /// which readers prefer to the segments.
    pub async fn finish(&mut self) -> bool {
        if self.stored > 0 {
            self.store().await;
        }
        self.stored > 0 && self.stored >= *self.length.borrow()
    }

    /// Stores what the log has now, segment by segment, from the segment on that is not full.
    async fn store(&mut self) {
        let length = *self.length.borrow_and_update();
        while self.stored < length && !self.lease.is_over() {
            let first = self.stored - self.stored % SEGMENT_BYTES as u64;
            let bytes = (length - first).min(SEGMENT_BYTES as u64);
            let number = usize::try_from(first / SEGMENT_BYTES as u64).unwrap_or(usize::MAX);
            let key = self.logs.segment_key(number);
            let stored = match self.read(first, bytes).await {
                Ok(content) => {
                    let content_type = "text/plain; charset=utf-8";
                    let put = self.ports.objects.put(&key, content, PutMode::Always, content_type);
                    put.await.map(drop).map_err(|error| error.to_string())
                }
                Err(error) => Err(error.to_string()),
            };
            if let Err(error) = stored {
                tracing::warn!(build = %self.logs.build, key, error, "could not store a part of a build's log; it is stored with the next part");
                return;
            }
            self.stored = first + bytes;
        }
    }

    /// Reads `bytes` bytes of the log from byte `first` on, on a blocking thread.
    async fn read(&self, first: u64, bytes: u64) -> std::io::Result<Bytes> {
        let path = self.path.clone();
        let read = move || {
            let mut content = vec![0; usize::try_from(bytes).unwrap_or(SEGMENT_BYTES)];
            File::open(path)?.read_exact_at(&mut content, first)?;
            Ok(content.into())
        };
        tokio::task::spawn_blocking(read).await.map_err(std::io::Error::other)?
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_memory::{World, poll_once};
    use sluice_model::{BuildId, TenantName, Timestamp};
    use sluice_records::logs::LOG;

    /// Z7.4: the whole log is there after each call, in few objects, and a full segment is not
    /// written again.
    #[tokio::test]
    async fn a_growing_log_is_stored_in_segments_of_which_only_the_last_one_is_written_again() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("job-output.txt");
        let world = World::new(1, 0, Timestamp(0));
        let ports = world.ports();
        let (tenant, build) = (TenantName::from("acme"), BuildId::derive(&["growing"]));
        let logs = BuildLogs { tenant: &tenant, build: &build };
        let (grew, length) = watch::channel(0);
        let lease = Lease::unlimited();
        let mut stored = StoredLog::new(&ports, logs, path.clone(), length, &lease);
        assert!(!stored.finish().await, "nothing is stored of a log that was not stored before");
        assert_eq!(logs.read_file(&ports, LOG).await.unwrap(), None);
        let text: Vec<u8> = (0..2 * SEGMENT_BYTES + 10).map(|at| b'a' + (at % 23) as u8).collect();
        for end in [5, SEGMENT_BYTES, SEGMENT_BYTES + 1, 2 * SEGMENT_BYTES + 10] {
            std::fs::write(&path, &text[..end]).unwrap();
            grew.send_replace(end as u64);
            stored.store().await;
            let read = logs.read_file(&ports, LOG).await.unwrap().unwrap();
            assert!(read == text[..end], "{end}");
        }
        assert_eq!(world.object_keys().len(), 3, "{:?}", world.object_keys());
        let across = SEGMENT_BYTES as u64 - 3;
        let part = logs.read_file_part(&ports, LOG, across, 6).await.unwrap().unwrap();
        assert_eq!(part.length, text.len() as u64);
        assert_eq!(part.bytes, text[SEGMENT_BYTES - 3..SEGMENT_BYTES + 3]);
        let beyond = logs.read_file_part(&ports, LOG, 1 << 40, 6).await.unwrap().unwrap();
        assert_eq!((beyond.bytes.len(), beyond.length), (0, text.len() as u64));
        assert!(stored.finish().await);
    }

    /// Z7.4: bytes beyond the published length belong to a line that is being written.
    #[tokio::test]
    async fn only_published_bytes_are_stored_and_nothing_is_stored_without_them() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("job-output.txt");
        std::fs::write(&path, "one\ntwo\nthr").unwrap();
        let world = World::new(1, 0, Timestamp(0));
        let ports = world.ports();
        let (tenant, build) = (TenantName::from("acme"), BuildId::derive(&["kept"]));
        let logs = BuildLogs { tenant: &tenant, build: &build };
        let (grew, length) = watch::channel(0);
        let lease = Lease::unlimited();
        let stored = StoredLog::new(&ports, logs, path, length, &lease);
        let mut stored = StoredLog { wait: Duration::ZERO, ..stored };
        assert!(poll_once(stored.keep()).is_none() && world.object_keys().is_empty());
        grew.send_replace(8);
        tokio::select! {
            never = stored.keep() => match never {},
            () = async {
                while world.object_keys().is_empty() {
                    tokio::task::yield_now().await;
                }
            } => {}
        }
        assert_eq!(logs.read_file(&ports, LOG).await.unwrap().unwrap(), "one\ntwo\n");
    }

    /// Z7.4: the last seconds of a log are not lost because they could not be stored as a part, and
    /// nothing is stored while another executor may store the log.
    #[tokio::test]
    async fn a_log_whose_last_part_is_not_stored_is_not_complete() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("job-output.txt");
        std::fs::write(&path, "one\ntwo\n").unwrap();
        let world = World::new(1, 0, Timestamp(0));
        let ports = world.ports();
        let (tenant, build) = (TenantName::from("acme"), BuildId::derive(&["refused"]));
        let logs = BuildLogs { tenant: &tenant, build: &build };
        let (grew, length) = watch::channel(4);
        let lease = Lease::unlimited();
        let mut stored = StoredLog::new(&ports, logs, path.clone(), length, &lease);
        stored.store().await;
        assert!(stored.finish().await);
        grew.send_replace(8);
        lease.end();
        assert!(!stored.finish().await, "another executor may store it");
        lease.renew(std::time::Instant::now() + Duration::from_secs(3_600));
        let elsewhere = path.with_extension("elsewhere");
        std::fs::rename(&path, &elsewhere).unwrap();
        assert!(!stored.finish().await, "its last part is not stored");
        assert_eq!(logs.read_file(&ports, LOG).await.unwrap().unwrap(), "one\n");
        std::fs::rename(&elsewhere, &path).unwrap();
        assert!(stored.finish().await);
        assert_eq!(logs.read_file(&ports, LOG).await.unwrap().unwrap(), "one\ntwo\n");
    }
}
