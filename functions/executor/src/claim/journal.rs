//! Records how far a build got, for the executor that finds its own dead.

use super::Claimed;
use sluice_model::build::{PlaybookStart, Run};
use sluice_records::build;
use sluice_records::codec::{decode, get};
use sluice_runtime::batch::ReconcileError;
use sluice_runtime::{CellCommit, CommitOutcome, Ports, cell};

/// Records that a playbook of a running build begins. Wakes nothing: only an executor that finds
/// this one dead reads it. Updates `claimed` to what is stored.
///
/// # Errors
/// Returns an error if the store does not answer, or another writer changed the run. The playbook
/// goes on; the next one is recorded instead.
pub async fn record_playbook(
    ports: &Ports,
    claimed: &mut Claimed,
    start: PlaybookStart,
) -> Result<(), ReconcileError> {
    let run = Run { playbook: Some(start), ..claimed.run.clone() };
    let head = build::next_run(&claimed.record, &run)?;
    let plan = CellCommit { head, others: Vec::new(), wakeups: Vec::new(), due: None };
    match cell::commit(ports, plan).await? {
        CommitOutcome::Written(record) => {
            (claimed.record, claimed.run) = (record, run);
            Ok(())
        }
        CommitOutcome::Stale => {
            // If the stored run is this session's, a response was lost: the next write continues
            // from it.
            if let Some(record) = get(ports, &build::run_key(&run.build)).await? {
                let stored: Run = decode(&record)?;
                if stored.session == run.session && stored.lost == run.lost {
                    (claimed.record, claimed.run) = (record, stored);
                }
            }
            Err(ReconcileError::Retry(format!("the run of {} changed concurrently", run.build)))
        }
    }
}
