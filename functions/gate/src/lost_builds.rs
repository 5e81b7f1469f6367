//! Ends the runs of builds whose executor is lost, before anything is decided by that. From then on
//! an executor that was only silent can write no other end, since its writes are conditional on the
//! run's revision (Z7.3).
//!
//! Usually another executor has ended them before. The gate does it where no executor is left.

use sluice_gate::plan::ObservedBuild;
use sluice_model::BuildId;
use sluice_model::build::{BuildResult, Phase, Run, RunEnd};
use sluice_model::wakeup::Wakeup;
use sluice_records::codec::{decode, get};
use sluice_records::{build, queue};
use sluice_runtime::batch::ReconcileError;
use sluice_runtime::record::{Expect, Key, Record, TransactionOutcome, Write};
use sluice_runtime::{Ports, cell};
use std::collections::BTreeMap;

/// Ends the runs that are observed as lost, as attempts to repeat unless they were the last ones of
/// their jobs, and wakes the providers of their
/// nodes. `records` holds their records as they were read; a lost build without one there stays
/// lost. In `runs`, each ended run is then observed as ended, and one that its executor has changed
/// since it was read as what it is now.
pub(crate) async fn end_lost_runs(
    ports: &Ports,
    queue: &queue::LoadedQueue,
    records: &BTreeMap<Key, Record>,
    runs: &mut BTreeMap<BuildId, ObservedBuild>,
) -> Result<(), ReconcileError> {
    for (id, seen) in runs {
        let ObservedBuild::Lost { why } = &*seen else { continue };
        let Some(record) = records.get(&build::run_key(id)) else { continue };
        let run: Run = decode(record)?;
        let mut jobs = queue.items.values().flat_map(|(_, item)| &item.jobs);
        let job = jobs.find(|job| job.build.as_ref() == Some(id));
        let mut end = RunEnd::of_lost_run(&run, why.clone(), ports.clock.now());
        if job.is_some_and(|job| job.attempt >= job.summary.attempts) {
            end.result = BuildResult::RetryLimit;
        }
        let ended = Run { phase: Phase::Ended(end.clone()), ..run };
        let revision = record.revision;
        let next = Record { revision: revision + 1, ..build::next_run(record, &ended)? };
        let write = Write::Put { record: next, expect: Expect::Revision(revision) };
        let written = ports.records.commit(vec![write], &ports.entropy.token()).await?;
        if written != TransactionOutcome::Written {
            *seen = changed_run(ports, id).await?;
            continue;
        }
        tracing::warn!(build = %id, why = end.detail, "a lost build is ended");
        *seen = ObservedBuild::Ended(end);
        // Its nodes are free. If the wakeup is lost, the provider checks its running builds itself.
        if let Some(request) = job.and_then(|job| job.request.clone()) {
            cell::send(ports, &[Wakeup::Pool { provider: request.provider }]).await?;
        }
    }
    Ok(())
}

/// Reads a run that was changed since it was observed as lost, and returns its present state: as
/// running, if it has not ended.
async fn changed_run(ports: &Ports, id: &BuildId) -> Result<ObservedBuild, ReconcileError> {
    let record = get(ports, &build::run_key(id)).await?;
    let run: Option<Run> = record.as_ref().map(decode).transpose()?;
    Ok(match run {
        Some(Run { phase: Phase::Ended(end), .. }) => ObservedBuild::Ended(end),
        Some(run) => ObservedBuild::Running {
            started_at: Some(run.claimed_at),
            pre_fail: matches!(run.phase, Phase::Failing),
        },
        None => ObservedBuild::Lost { why: "the record of its run is gone".to_owned() },
    })
}
