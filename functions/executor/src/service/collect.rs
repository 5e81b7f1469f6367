//! Takes over the builds of a dead executor whose logs can be collected, and runs their post-run
//! playbooks (Z7.3).
//!
//! A build is taken over only after this executor's session lists it, so that its queue never finds
//! a build of a living executor that is not listed.

use super::running::ListedBuild;
use super::{AcceptedBuild, ExecutorService, LEASE};
use crate::archive::{COLLECTION_LOG, LogCopy};
use crate::claim::{self, Claimed};
use crate::job::StopSignal;
use crate::jobdir::log_path;
use sluice_model::{BuildId, SessionId};
use sluice_records::build::StoredRun;
use sluice_records::logs::BuildLogs;
use sluice_runtime::batch::ReconcileError;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

/// How long a build that was taken over waits for a slot. Without one it ends without its logs
/// being collected. With the time limit of the collection itself
/// ([`crate::AnsibleSettings::collect_timeout_seconds`]) that makes a minute.
const SLOT_WAIT: Duration = Duration::from_secs(5);

impl ExecutorService {
    /// Takes over lost runs, and collects their logs in the background; each then ends as `Retry`.
    /// Ends at once those that cannot be taken over, whose nodes are in a zone that this executor
    /// does not serve, or that have static hosts, which may serve other builds. Returns what failed:
    /// a build that could not be ended.
    pub(super) async fn collect_lost(
        self: &Arc<Self>,
        runs: Vec<StoredRun>,
        why: &str,
    ) -> Vec<String> {
        let (mut waiting, mut failed) = (Vec::new(), Vec::new());
        for run in runs {
            match self.running.enter(&run.run.build) {
                Ok((listed, stop)) => waiting.push((run, listed, stop)),
                Err(_) => failed.push(format!("build {}: it is being claimed here", run.run.build)),
            }
        }
        let is_listed = self.lists_builds().await;
        for (run, listed, stop) in waiting {
            let (build, lost) = (run.run.build.clone(), run.run.session.clone());
            let adopted = match is_listed && !self.is_draining() {
                true => self.claims.adopt(run, why).await,
                false => Ok(None),
            };
            match adopted {
                Ok(Some(claimed))
                    if !claimed.has_static_nodes
                        && self.options.zone.serves(claimed.executor_zone()) =>
                {
                    tracing::warn!(%build, "the logs of a build whose executor was lost are collected");
                    listed.begin();
                    tokio::spawn(self.clone().collect(claimed, (stop, listed), why.to_owned()));
                    continue;
                }
                Ok(_) => {}
                Err(error) => {
                    tracing::warn!(%build, %error, "could not take over a build whose executor was lost; it ends without its logs being collected")
                }
            }
            let ended = self.end_uncollected(&build, &[&lost, &self.session], why).await;
            failed.extend(ended.err().map(|error| format!("build {build}: {error}")));
        }
        failed
    }

    /// Waits until the session lists all builds that are running here now. Returns false if it is
    /// not renewed in time for that.
    async fn lists_builds(&self) -> bool {
        let mut life = self.life.subscribe();
        // The renewal that is under way may have read the list before. Attempts that wrote nothing
        // do not count.
        let complete = life.borrow().renewals + 2;
        timeout(LEASE, life.wait_for(|life| life.renewals >= complete))
            .await
            .is_ok_and(|life| life.is_ok())
    }

    /// Collects the logs of a build that was taken over, once there is a slot for it.
    async fn collect(
        self: Arc<Self>,
        claimed: Claimed,
        (stop, listed): (StopSignal, ListedBuild),
        why: String,
    ) {
        let build = claimed.run.build.clone();
        let slot = timeout(SLOT_WAIT, self.slots.clone().acquire_owned()).await;
        let done = match slot {
            Ok(Ok(slot)) => {
                let item_build =
                    self.item_builds.enter(&claimed.order.item, claimed.order.generation);
                let (slot, starting) = (Some(slot), None);
                self.execute(AcceptedBuild { claimed, stop, slot, starting, item_build, listed })
                    .await
            }
            _ => self.end_uncollected(&build, &[&self.session], &why).await,
        };
        if let Err(error) = done {
            tracing::warn!(%build, %error, "could not end a build whose executor was lost");
        }
    }

    /// Ends a build of one of these sessions without collecting its logs.
    async fn end_uncollected(
        &self,
        build: &BuildId,
        owners: &[&SessionId],
        why: &str,
    ) -> Result<(), ReconcileError> {
        let root = &self.options.log_root;
        claim::end_lost_build(&self.ports, build, owners, why, root).await
    }

    /// Has the log of the collection archived under a name of its own, if the build's own log was
    /// stored before its executor was lost; otherwise as the build's log. `jobdir` is the directory
    /// of the collection. A failure is only logged.
    pub(super) async fn keep_lost_log(&self, logs: BuildLogs<'_>, jobdir: &Path) -> LogCopy {
        match logs.has_log_segments(&self.ports).await {
            Ok(false) => return LogCopy::Missing,
            Ok(true) => {}
            Err(error) => {
                tracing::warn!(build = %logs.build, %error, "could not check whether a lost build has a log; its log is kept")
            }
        }
        let folder = jobdir.join("work/logs");
        let (from, to) = (log_path(jobdir), folder.join(COLLECTION_LOG));
        // Playbooks can write there, so neither the folder nor the file may be a link.
        let _ = std::fs::remove_file(&to);
        let linked = match std::fs::symlink_metadata(&folder) {
            Ok(found) if found.is_dir() => std::fs::hard_link(from, to),
            Ok(_) => Err(std::io::Error::other("work/logs is no longer a directory")),
            Err(error) => Err(error),
        };
        if let Err(error) = linked {
            tracing::warn!(build = %logs.build, %error, "could not keep the log of a collection");
        }
        LogCopy::Stored
    }
}
