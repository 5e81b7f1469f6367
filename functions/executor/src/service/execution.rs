//! Runs one claimed build from its directory to its stored end.

use super::build_reporter::{BuildReporter, BuildUpdates};
use super::item_builds::{self, ItemBuildGuard};
use super::leftovers;
use super::running::ListedBuild;
use super::{AcceptedBuild, ExecutorService};
use crate::archive::LogCopy;
use crate::claim::{self, Claimed, QueueWakeup};
use crate::held_nodes::StoredHolders;
use crate::job::{AttemptScope, JobAttempt, OpenedSecrets};
use crate::jobdir::log_path;
use crate::returned_data;
use crate::stored_log::StoredLog;
use futures::FutureExt;
use serde_json::{Map, Value};
use sluice_model::build::{BuildResult, Phase, RunEnd};
use sluice_model::{BuildId, Timestamp};
use sluice_records::logs::BuildLogs;
use sluice_runtime::batch::ReconcileError;
use std::fs::File;
use std::panic::AssertUnwindSafe;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::sleep;

/// Attempts to store a complete end before only the result is stored.
const COMPLETE_END_TRIES: u32 = 8;
/// Paused builds that give up their slot; further paused builds keep theirs.
const PAUSED_MAX: usize = 64;
/// The longest wait between two attempts to store an end.
const END_WAIT_MAX: Duration = Duration::from_secs(20);
/// Why a build whose run panicked is tried again.
const PANIC_DETAIL: &str = "The executor failed by a defect of its own while it ran the build. Its output has the place; please report it.";

impl ExecutorService {
    /// Runs a claimed build to its end, records meanwhile that it will fail or is paused, archives
    /// its logs, stores the end, wakes its provider and its queue, and removes its directory. The
    /// queue is not woken if another build of the item will do so. If its secrets cannot be read,
    /// as when the store or the key service does not answer, the build ends as `Retry` without
    /// being run; so it does if running it panics. Nothing is stored after the run while the session
    /// may be over, before that is known. Retries to store the end and to send the wakeups; an error
    /// if the session ends before that succeeds.
    pub async fn execute(&self, accepted: AcceptedBuild) -> Result<(), ReconcileError> {
        let AcceptedBuild { mut claimed, stop, mut slot, starting, mut item_build, listed } =
            accepted;
        let build = claimed.run.build.clone();
        tracing::info!(%build, job = %claimed.order.job, change = %claimed.order.change, attempt = claimed.order.attempt, "a build starts");
        let (scope, name) = match &claimed.run.lost {
            None => (AttemptScope::Whole, build.clone()),
            // The lost executor may be on this machine and still use its directory. The live log is
            // not the build's.
            Some(_) => (AttemptScope::CollectLogs, BuildId(format!("{build}-lost"))),
        };
        let jobdir = self.options.state.join("builds").join(name.as_str());
        let starting = starting.unwrap_or_else(|| self.starting.enter());
        let observer = BuildReporter::new(self.logs.open(&name, &jobdir), starting);
        let lock = lock_directory(&build, &jobdir).await;
        let opened =
            self.keys.open_for_build(&claimed.order, &claimed.job, &self.options.token_issuer);
        let (secrets, secrets_error) = match opened.await {
            Ok(secrets) => (secrets, None),
            Err(error) => (OpenedSecrets::default(), Some(error)),
        };
        let (order, nodes) = (claimed.order.clone(), claimed.nodes.clone());
        let holders = StoredHolders { ports: &self.ports, order: &order, nodes: &nodes };
        let job = JobAttempt {
            order: &order,
            job: &claimed.job.clone(),
            speculation: &claimed.speculation.clone(),
            nodes: &nodes,
            node_key: self.options.node_key.as_deref().filter(|_| !claimed.nodes.is_empty()),
            secrets: &secrets,
            child_jobs: &claimed.child_jobs.clone(),
            inherited: &std::mem::take(&mut claimed.inherited),
            scope,
            lease: &self.lease,
            holder: Some(&holders),
        };
        let mut updates = observer.updates();
        let execution = async {
            match secrets_error {
                None => {
                    let run = self.runner.execute(&job, &self.sources, &jobdir, stop, &observer);
                    // A defect in one build must not leave it in progress.
                    AssertUnwindSafe(run).catch_unwind().await.unwrap_or_else(|_| {
                        tracing::error!(%build, "running a build has panicked; it is tried again");
                        not_started(self.ports.clock.now(), PANIC_DETAIL.to_owned())
                    })
                }
                Some(error) => not_started(
                    self.ports.clock.now(),
                    format!("The job's secrets and SSH keys could not be decrypted: {error}"),
                ),
            }
        };
        let tenant = claimed.order.queue.tenant.clone();
        let logs = BuildLogs { tenant: &tenant, build: &build };
        let mut stored_log = StoredLog::new(
            &self.ports,
            logs,
            log_path(&jobdir),
            observer.log_length(),
            &self.lease,
        );
        let mut execution = std::pin::pin!(execution);
        let followed = async {
            loop {
                tokio::select! {
                    biased;
                    ended = &mut execution => break ended,
                    Ok(()) = updates.changed() => {}
                }
                let update = updates.borrow_and_update().clone();
                tokio::select! {
                    biased;
                    ended = &mut execution => break ended,
                    () = self.record_updates(&mut claimed, update, &observer, (&mut slot, &mut item_build, &listed)) => {}
                }
            }
        };
        let mut ended = tokio::select! {
            biased;
            ended = followed => ended,
            never = stored_log.keep(), if scope == AttemptScope::Whole => match never {},
        };
        observer.end_start();
        if !self.holds_session().await {
            // Another executor ends the build, and may have stored its logs.
            remove_directory(&build, jobdir.clone(), lock).await;
            return Err(ReconcileError::Retry(format!(
                "the session of build {build} was ended by another executor"
            )));
        }
        let log = match scope {
            AttemptScope::Whole => match stored_log.finish().await {
                true => LogCopy::Stored,
                false => LogCopy::Missing,
            },
            AttemptScope::CollectLogs => self.keep_lost_log(logs, &jobdir).await,
        };
        if let Some(why) = &claimed.run.lost {
            ended.detail = Some(why.clone());
            ended.started_at = Some(claimed.run.claimed_at);
            // Whatever kept its logs from being collected: the attempt does not count.
            if ended.result != BuildResult::Aborted {
                ended.result = BuildResult::Retry;
            }
        }
        let writer = (&mut stored_log, &observer);
        self.archive_logs(logs, &jobdir, (scope, log), writer, &mut ended).await;
        self.store_secrets(&build, &mut ended.data, &observer).await;
        let reported = self.report_end(&mut claimed, ended, &mut item_build).await;
        remove_directory(&build, jobdir.clone(), lock).await;
        reported
    }

    /// Records what a running build has announced and what is not recorded yet: that a playbook
    /// begins, that it will fail, or that it is paused; the latter two wake its queue. A failure to
    /// record one of the first two is only logged. A pause is retried without limit until it and
    /// its secret data are stored; the caller drops the call when the build ends. Before a pause is
    /// stored, the build stops counting in `item_build`; afterwards it gives up its slot, if at
    /// most [`PAUSED_MAX`] builds are paused.
    async fn record_updates(
        &self,
        claimed: &mut Claimed,
        updates: BuildUpdates,
        observer: &BuildReporter,
        (slot, item_build, listed): (
            &mut Option<OwnedSemaphorePermit>,
            &mut ItemBuildGuard,
            &ListedBuild,
        ),
    ) {
        let build = claimed.run.build.clone();
        if let Some(start) = updates.playbook.filter(|start| claimed.run.playbook != Some(*start))
            && let Err(error) = claim::record_playbook(&self.ports, claimed, start).await
        {
            tracing::warn!(%build, %error, "could not record that a playbook begins");
        }
        // If this is lost, the queue learns of the failure later, from the end.
        if updates.will_fail
            && matches!(claimed.run.phase, Phase::Running)
            && let Err(error) = claim::will_fail(&self.ports, claimed).await
        {
            tracing::warn!(%build, %error, "could not record that the build will fail");
        }
        let is_recorded = matches!(claimed.run.phase, Phase::Paused(_));
        if let Some(mut pause) = updates.pause.filter(|_| !is_recorded) {
            // A paused build may wait for other builds of its item, so they must not rely on it to
            // wake the queue. The pause itself wakes the queue for those that did.
            item_build.leave();
            self.store_secrets(&build, &mut pause.data, observer).await;
            let mut attempt = 0;
            while let Err(error) = claim::pause(&self.ports, claimed, pause.clone()).await {
                // The gate resumes only builds whose pause is recorded.
                tracing::warn!(%build, %error, "could not record that the build is paused; retrying");
                sleep(END_WAIT_MAX.min(Duration::from_millis(200 << attempt.min(10)))).await;
                attempt += 1;
            }
            tracing::info!(%build, "a build is paused");
            // The jobs it waits for may need its slot. Beyond the bound a paused build keeps its
            // slot, because each one takes memory and disk.
            if listed.pause() <= PAUSED_MAX {
                drop(slot.take());
            }
        }
    }

    /// Encrypts and stores the secret data that the job has returned for its dependents, and names
    /// the object in `data`. Without secret data it stores nothing. Retries until it works. If the
    /// session ends first, it gives up without an error: `data` then names no object, and the
    /// dependents get no secret data. Waits while the session may be over.
    async fn store_secrets(
        &self,
        build: &BuildId,
        data: &mut Map<String, Value>,
        observer: &BuildReporter,
    ) {
        let secret_data = observer.secrets();
        let mut attempt = 0;
        if !self.holds_session().await {
            return;
        }
        while let Err(error) =
            returned_data::store_secrets(&self.ports, build, data, &secret_data).await
        {
            if self.has_session_ended() {
                return;
            }
            tracing::warn!(%build, %error, "could not store the secret data of a job; retrying");
            sleep(END_WAIT_MAX.min(Duration::from_millis(200 << attempt.min(10)))).await;
            attempt += 1;
        }
    }

    /// Stores a build's end and sends its wakeups as [`Self::store_end`] does; retries until the
    /// session ends, which is an error. From the ninth attempt on only the result, the times and a
    /// note are stored, without the returned data and the log address. If the run has ended already
    /// or belongs to another session, nothing is stored and this is no error.
    async fn report_end(
        &self,
        claimed: &mut Claimed,
        ended: RunEnd,
        item_build: &mut ItemBuildGuard,
    ) -> Result<(), ReconcileError> {
        tracing::info!(build = %claimed.run.build, result = %ended.result, detail = ended.detail, "a build ends");
        let mut attempt = 0;
        loop {
            // If the returned data is what cannot be stored, the result alone still can.
            let stored =
                if attempt < COMPLETE_END_TRIES { ended.clone() } else { without_data(&ended) };
            let error = match self.store_end(claimed, stored, item_build).await {
                Ok(()) => return Ok(()),
                Err(error) => error,
            };
            // While the session lives, no one else ends this build. Afterwards the gate treats it
            // as lost.
            if self.has_session_ended() {
                return Err(error);
            }
            tracing::warn!(build = %claimed.run.build, %error, "could not store the end of a build; retrying");
            sleep(END_WAIT_MAX.min(Duration::from_millis(200 << attempt.min(10)))).await;
            attempt += 1;
        }
    }

    /// Stores a build's end and then wakes its provider. Wakes its queue too, unless the build
    /// passed, nothing waits for it alone, and another build of its item and generation runs here.
    /// A run that has ended or is another session's counts as stored. An error if the end is not
    /// stored or a wakeup may not have been sent; the caller then calls it again.
    async fn store_end(
        &self,
        claimed: &mut Claimed,
        ended: RunEnd,
        item_build: &mut ItemBuildGuard,
    ) -> Result<(), ReconcileError> {
        claim::store_end(&self.ports, claimed, ended).await?;
        // The build counts as running until its end is stored: the last build of an item wakes the
        // queue for all stored ends.
        let others_remain = item_build.leave();
        let queue = if others_remain && item_builds::can_defer_wakeup(claimed) {
            QueueWakeup::Defer
        } else {
            QueueWakeup::Send
        };
        claim::send_wakeups(&self.ports, &claimed.order, queue).await
    }
}

/// Marks a build's directory as in use by this process until it is removed. Without the mark, which
/// is logged, another executor that starts with the same state removes it.
async fn lock_directory(build: &BuildId, jobdir: &Path) -> Option<File> {
    let directory = jobdir.to_owned();
    let locked = tokio::task::spawn_blocking(move || leftovers::lock(&directory)).await;
    let locked = locked.unwrap_or_else(|error| Err(std::io::Error::other(error)));
    locked
        .inspect_err(|error| tracing::warn!(%build, %error, "could not lock the build's directory"))
        .ok()
}

/// Removes a build's directory and then its lock, on a blocking thread, because it may hold many
/// files. A missing directory is no failure; any other failure is only logged.
async fn remove_directory(build: &BuildId, jobdir: PathBuf, lock: Option<File>) {
    let remove = move || {
        let removed = leftovers::remove(&jobdir);
        drop(lock);
        removed
    };
    let removed = tokio::task::spawn_blocking(remove).await;
    // If the task panicked or the runtime ended, part of the directory may be left.
    let removed = removed.unwrap_or_else(|error| Err(std::io::Error::other(error)));
    if let Err(error) = removed
        && error.kind() != std::io::ErrorKind::NotFound
    {
        tracing::warn!(%build, %error, "could not remove the build's directory");
    }
}

/// Returns an end with the same result, detail and times, but without returned data and log
/// address, so that it always fits into a record. Its detail also says that the data was dropped.
fn without_data(ended: &RunEnd) -> RunEnd {
    let dropped = "The data returned by the build could not be stored and was dropped.";
    let detail = Some(match &ended.detail {
        Some(detail) => format!("{detail}\n{dropped}"),
        None => dropped.to_owned(),
    });
    let data = Map::new();
    RunEnd { data, data_object: None, log_url: None, detail, ..ended.clone() }
}

/// Returns the end of an attempt that could not start, with `why` as its detail. Its result is
/// `Retry`, which asks for another attempt.
fn not_started(at: Timestamp, why: String) -> RunEnd {
    RunEnd {
        result: BuildResult::Retry,
        detail: Some(why),
        started_at: None,
        ended_at: at,
        data: serde_json::Map::new(),
        data_object: None,
        log_url: None,
    }
}
