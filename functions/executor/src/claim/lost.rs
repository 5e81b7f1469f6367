//! Ends the builds of an executor that was found dead, or takes them over to collect their logs
//! (Z7.3).
//!
//! The write of the end is conditional on the run's revision, as every write of a run is. So the
//! build's own executor, if it was only silent, can write no other end afterwards, and of several
//! executors that find it dead, one ends each build.

use super::{BuildMessage, Claimed, Claims, QueueWakeup, commit_end, request_key, send_wakeups};
use sluice_model::build::{BuildResult, Order, Phase, PlaybookPhase, Run, RunEnd};
use sluice_model::{BuildId, SessionId};
use sluice_pool::NodeRequest;
use sluice_records::build::{self, StoredRun};
use sluice_records::codec::{decode, decode_or_log, get};
use sluice_records::logs::BuildLogs;
use sluice_runtime::batch::ReconcileError;
use sluice_runtime::{CellCommit, CommitOutcome, Ports, cell};

impl Claims {
    /// Returns whether the logs of a lost run can be collected: it had begun its main playbooks,
    /// its job has post-run playbooks, no stop is requested, and no executor was lost while it
    /// collected them. Never those of a job with a host of its own (`host`): what the lost executor
    /// had started there cannot be ended, because other sessions on that host are not the build's.
    ///
    /// # Errors
    /// Returns an error if the store does not answer, or a record is unreadable.
    pub async fn has_logs_to_collect(&self, run: &Run) -> Result<bool, ReconcileError> {
        let has_begun = run.playbook.is_some_and(|last| last.phase >= PlaybookPhase::Run);
        if !has_begun || run.lost.is_some() {
            return Ok(false);
        }
        let keys = [build::order_key(&run.build), build::stop_key(&run.build)];
        let records = self.ports.records.get(&keys).await?;
        let [Some(order), None] = records.as_slice() else { return Ok(false) };
        let (job, _) = self.job(&decode::<Order>(order)?).await?;
        Ok(!job.post_run.is_empty() && job.run_time.host.is_none())
    }

    /// Takes a lost run over for this session, for the reason `why`, and returns all that is needed
    /// to collect its logs. Its former executor can write nothing from then on. `None` if its run
    /// was changed since it was read, or has ended now because its nodes were released or it was
    /// stopped. The session must list the build before.
    ///
    /// # Errors
    /// Returns an error if the store does not answer or a record is unreadable. The run may belong
    /// to this session then; the caller ends it.
    pub async fn adopt(
        &self,
        lost: StoredRun,
        why: &str,
    ) -> Result<Option<Claimed>, ReconcileError> {
        let StoredRun { record, run } = lost;
        let build = run.build.clone();
        let session = self.session.clone();
        let adopted = Run { session, lost: Some(why.to_owned()), ..run };
        let head = build::next_run(&record, &adopted)?;
        let plan = CellCommit { head, others: Vec::new(), wakeups: Vec::new(), due: None };
        if cell::commit(&self.ports, plan).await? == CommitOutcome::Stale {
            return Ok(None);
        }
        let message = BuildMessage { build, request: None, nodes: Vec::new() };
        self.claim(&[message]).await.pop().unwrap_or(Ok(None))
    }
}

/// Ends the run of a build as [`end_lost`] does, as it is stored now. Does nothing without a run,
/// if it has ended, or if it belongs to none of these sessions, because another executor has taken
/// it over.
///
/// # Errors
/// As [`end_lost`].
pub async fn end_lost_build(
    ports: &Ports,
    build: &BuildId,
    owners: &[&SessionId],
    why: &str,
    log_root: &str,
) -> Result<(), ReconcileError> {
    let Some(record) = get(ports, &build::run_key(build)).await? else { return Ok(()) };
    let run: Run = decode(&record)?;
    match run.phase {
        Phase::Ended(_) => Ok(()),
        _ if !owners.contains(&&run.session) => Ok(()),
        _ => end_lost(ports, StoredRun { record, run }, why, log_root).await,
    }
}

/// Attempts to end a run that its executor changes at the same time.
const END_TRIES: u32 = 3;

/// Ends a run whose executor is dead, for the reason `why`, with its node request, and wakes its
/// queue and the provider of its nodes. It ends as `RETRY`, with the log that was stored while it
/// ran, below `log_root`; a build whose stop was requested ends as that request says. A run that
/// has ended meanwhile or was taken over by another session, or whose order has expired, stays as
/// it is. May be repeated.
///
/// # Errors
/// Returns an error if the store does not answer, a record is unreadable, the run keeps being
/// changed, or a wakeup may not have been sent.
pub async fn end_lost(
    ports: &Ports,
    lost: StoredRun,
    why: &str,
    log_root: &str,
) -> Result<(), ReconcileError> {
    let StoredRun { mut record, mut run } = lost;
    let (id, owner) = (run.build.clone(), run.session.clone());
    let keys = [build::order_key(&id), build::stop_key(&id)];
    let [order, stop] = <[_; 2]>::try_from(ports.records.get(&keys).await?)
        .map_err(|_| ReconcileError::Retry(format!("the records of build {id} were not read")))?;
    let Some(order) = order.as_ref().map(decode::<Order>).transpose()? else { return Ok(()) };
    let logs = BuildLogs { tenant: &order.queue.tenant, build: &id };
    let log_url = logs.has_log_segments(ports).await?.then(|| logs.address(log_root));
    let mut end =
        RunEnd { log_url, ..RunEnd::of_lost_run(&run, why.to_owned(), ports.clock.now()) };
    if let Some(stop) = stop.as_ref().map(build::decode_stop).filter(|stop| !stop.executor_is_dead)
    {
        end.result = stop.result.unwrap_or(BuildResult::Aborted);
        end.detail = Some(stop.why);
    }
    for _ in 0..END_TRIES {
        let request = match &order.request {
            Some(at) => get(ports, &request_key(at)).await?,
            None => None,
        };
        let request = request.and_then(|record| {
            let request = decode_or_log::<NodeRequest>(&record)?;
            Some((record, request))
        });
        match commit_end(ports, &order, (&record, &run), request, end.clone()).await? {
            (CommitOutcome::Written(_), _) => {
                tracing::warn!(build = %id, result = %end.result, why, "a build of a dead executor is ended");
                return send_wakeups(ports, &order, QueueWakeup::Send).await;
            }
            (CommitOutcome::Stale, _) => {}
        }
        let Some(stored) = get(ports, &build::run_key(&id)).await? else { return Ok(()) };
        run = decode(&stored)?;
        if matches!(run.phase, Phase::Ended(_)) {
            // Its wakeups may not have been sent by the executor that ended it.
            return send_wakeups(ports, &order, QueueWakeup::Send).await;
        }
        if run.session != owner {
            return Ok(());
        }
        record = stored;
    }
    Err(ReconcileError::Retry(format!("the run of build {id} keeps being changed")))
}
