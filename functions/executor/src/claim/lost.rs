//! Ends the builds of an executor that was found dead (Z7.3).
//!
//! The write of the end is conditional on the run's revision, as every write of a run is. So the
//! build's own executor, if it was only silent, can write no other end afterwards, and of several
//! executors that find it dead, one ends each build.

use super::{QueueWakeup, commit_end, request_key, send_wakeups};
use sluice_model::build::{BuildResult, Order, Phase, Run, RunEnd};
use sluice_pool::NodeRequest;
use sluice_records::build;
use sluice_records::codec::{decode, decode_or_log, get};
use sluice_records::logs::BuildLogs;
use sluice_runtime::batch::ReconcileError;
use sluice_runtime::record::Record;
use sluice_runtime::{CommitOutcome, Ports};

/// Attempts to end a run that its executor changes at the same time.
const END_TRIES: u32 = 3;

/// Ends a run whose executor is dead, for the reason `why`, with its node request, and wakes its
/// queue and the provider of its nodes. It ends as `RETRY`, with the log that was stored while it
/// ran, below `log_root`; a build whose stop was requested ends as that request says. `record` and
/// `run` are as they were read. A run that has ended meanwhile, or whose order has expired, stays
/// as it is. May be repeated.
///
/// # Errors
/// Returns an error if the store does not answer, a record is unreadable, the run keeps being
/// changed, or a wakeup may not have been sent.
pub async fn end_lost(
    ports: &Ports,
    (mut record, mut run): (Record, Run),
    why: &str,
    log_root: &str,
) -> Result<(), ReconcileError> {
    let id = run.build.clone();
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
        record = stored;
    }
    Err(ReconcileError::Retry(format!("the run of build {id} keeps being changed")))
}
