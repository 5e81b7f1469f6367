//! Makes what runs follow the record: each machine's next step, on a task of its own.

use super::store::{Record, State};
use super::{Boot, Ec2, images};
use crate::data::{StoreError, now_ms};
use std::time::Duration;

/// Brings a machine to the state that its record requires, in the background, and returns at once.
/// A pending or running machine is started and stored as running; one that shuts down is ended and
/// stored as terminated. Does nothing for a terminated one. A failure is logged. Safe to call again
/// at any time. Needs a tokio runtime.
pub(super) fn resume(ec2: &Ec2, record: Record) {
    let ec2 = ec2.clone();
    tokio::spawn(async move {
        let id = record.id.clone();
        let done = match record.state {
            State::Pending | State::Running => start(&ec2, record).await,
            State::ShuttingDown => end(&ec2, record).await,
            State::Terminated => Ok(()),
        };
        if let Err(error) = done {
            tracing::error!(instance = id, %error, "a machine could not follow its record; the next start tries again");
        }
    });
}

/// Stores that a pending machine runs, then starts it as its `boot` says: at once, some time after
/// its launch, or never. Waits for the start, and at most ten seconds for the machine's server. A
/// machine that was terminated meanwhile is not started. A machine that does not boot is only
/// logged and stays `Running`. An error only if the state cannot be stored.
async fn start(ec2: &Ec2, record: Record) -> Result<(), StoreError> {
    // As at EC2, a machine is running before its servers are.
    ec2.store().advance(&record.id, &[State::Pending], State::Running, None)?;
    match record.boot {
        Boot::Never => return Ok(()),
        Boot::Slow { millis } => {
            let ready_at = record.launched_ms.saturating_add(millis);
            tokio::time::sleep(Duration::from_millis(ready_at.saturating_sub(now_ms()))).await;
        }
        Boot::Normal => {}
    }
    let id = record.id.clone();
    let (host, check) = (ec2.inner.host.clone(), ec2.clone());
    let started = tokio::task::spawn_blocking(move || {
        let image = || images::root(&check, &record.image);
        // Checked under the machine's lock: a terminating machine must not start again.
        let wanted = || {
            check
                .store()
                .find(&record.id)
                .ok()
                .flatten()
                .is_some_and(|now| matches!(now.state, State::Pending | State::Running))
        };
        host.start(&record, image, wanted)
    });
    match started.await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::error!(instance = id, %error, "a machine does not boot"),
        Err(error) => tracing::error!(instance = id, %error, "a machine does not boot"),
    }
    Ok(())
}

/// Ends a machine's processes, deletes its files and stores that it is terminated. If ending or
/// deleting fails, that is logged and the state stays `ShuttingDown`, which is no error.
async fn end(ec2: &Ec2, record: Record) -> Result<(), StoreError> {
    let (host, id) = (ec2.inner.host.clone(), record.id.clone());
    let ended = tokio::task::spawn_blocking(move || host.end(&id)).await;
    match ended {
        Ok(Ok(())) => {
            ec2.store().advance(
                &record.id,
                &[State::ShuttingDown],
                State::Terminated,
                Some(now_ms()),
            )?;
            images::remove_unused(ec2)?;
        }
        Ok(Err(error)) => {
            tracing::error!(instance = record.id, %error, "a machine's files are left behind")
        }
        Err(error) => tracing::error!(instance = record.id, %error, "a machine does not end"),
    }
    Ok(())
}
