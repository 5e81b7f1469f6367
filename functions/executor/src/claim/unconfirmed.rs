//! Handles unconfirmed claims: stored by this session, but the response was lost, so the build does
//! not run.
//!
//! If the message is redelivered to this session, the build runs. If it goes to another executor,
//! that one leaves the build alone. Then the queue gives up the build, because no session lists it,
//! and the run is ended here.

use super::{
    BuildMessage, Claims, LoadedRecords, QueueWakeup, claim_conflict, commit_end, request_key,
    send_wakeups,
};
use sluice_model::BuildId;
use sluice_model::build::{BuildResult, Order, Phase, Run, RunEnd};
use sluice_pool::{NodeRequest, RequestState};
use sluice_records::build;
use sluice_records::codec::decode;
use sluice_runtime::CommitOutcome;
use sluice_runtime::batch::ReconcileError;
use sluice_runtime::record::Record;
use std::collections::BTreeSet;
use std::sync::{MutexGuard, PoisonError};

/// The state of an unconfirmed claim.
enum ClaimState {
    /// The run has ended, or belongs to another session.
    Done,
    /// The build may still run here.
    Pending,
}

impl Claims {
    /// Ends the runs of builds that this session may have claimed without learning the outcome, and
    /// for which a stop is requested; wakes their queues and providers. Skips builds for which
    /// `is_running` returns true, because they run or are being claimed here at that moment.
    /// Forgets those that are ended, belong to another session or can no longer be claimed; checks
    /// the others again in the next call. The error names the builds that failed; it does not keep
    /// the others from being handled, unless nothing could be read.
    ///
    /// # Errors
    /// Returns an error that names the builds that could not be handled: the store did not answer,
    /// a record is unreadable, or a wakeup may not have been sent. All other builds were handled.
    /// The caller tries again later.
    pub async fn end_stopped_unconfirmed(
        &self,
        is_running: &(dyn Fn(&BuildId) -> bool + Send + Sync),
    ) -> Result<(), ReconcileError> {
        let builds: Vec<BuildId> =
            self.unconfirmed().iter().filter(|build| !is_running(build)).cloned().collect();
        let message = |build: &BuildId| BuildMessage {
            build: build.clone(),
            request: None,
            nodes: Vec::new(),
        };
        let messages: Vec<BuildMessage> = builds.iter().map(message).collect();
        let mut loaded = LoadedRecords::default();
        self.read(&messages, &mut loaded).await?;
        let mut failed = Vec::new();
        for id in &builds {
            // Checked again after reading. A claim that starts later writes a later revision, so
            // one of the two writes fails.
            if is_running(id) {
                continue;
            }
            match self.resolve_unconfirmed(id, &loaded).await {
                Ok(ClaimState::Done) => {
                    self.unconfirmed().remove(id);
                }
                Ok(ClaimState::Pending) => {}
                Err(error) => failed.push(format!("build {id}: {error}")),
            }
        }
        if failed.is_empty() { Ok(()) } else { Err(ReconcileError::Retry(failed.join("; "))) }
    }

    /// Decides from the records in `loaded` about a build whose claim has no known outcome. If the
    /// claim is stored and a stop is requested, stores the end of the run as aborted and sends its
    /// wakeups. Returns [`ClaimState::Pending`] if the order exists, no stop is requested, and the
    /// run is not stored, or is this session's and has not ended: the build may still run here.
    /// Otherwise returns [`ClaimState::Done`].
    async fn resolve_unconfirmed(
        &self,
        id: &BuildId,
        loaded: &LoadedRecords,
    ) -> Result<ClaimState, ReconcileError> {
        let order = loaded.found.get(&build::order_key(id));
        let stop = loaded.found.get(&build::stop_key(id));
        match (self.own_run(id, loaded)?, order, stop) {
            (Some(own_run), Some(order), Some(stop)) => {
                let why = build::decode_stop(stop).why;
                tracing::info!(build = %id, why, "a stopped build with an unconfirmed claim is ended");
                self.end_unconfirmed(
                    &decode::<Order>(order)?,
                    own_run,
                    loaded,
                    (BuildResult::Aborted, why),
                )
                .await?;
                Ok(ClaimState::Done)
            }
            // The message may still be redelivered here.
            (Some(_), Some(_), None) => Ok(ClaimState::Pending),
            // The write may still be in progress.
            (None, Some(_), None) if !loaded.found.contains_key(&build::run_key(id)) => {
                Ok(ClaimState::Pending)
            }
            // The run belongs to another session or has ended, or the order is gone. A stopped
            // build is not claimed.
            _ => Ok(ClaimState::Done),
        }
    }

    /// Returns the record and the content of a build's run, as read in `loaded`. `None` if there is
    /// no run, it has ended, or it belongs to another session.
    pub(super) fn own_run(
        &self,
        id: &BuildId,
        loaded: &LoadedRecords,
    ) -> Result<Option<(Record, Run)>, ReconcileError> {
        let Some(record) = loaded.found.get(&build::run_key(id)) else { return Ok(None) };
        let run: Run = decode(record)?;
        let is_own = run.session == self.session && !matches!(run.phase, Phase::Ended(_));
        Ok(is_own.then(|| (record.clone(), run)))
    }

    /// Stores the end of a run that this session owns but does not execute, with this result and
    /// reason, and wakes its queue and provider. Its claimed node request ends with it; `loaded`
    /// must hold that request. An error that is retried if the run was written after it was read,
    /// if `loaded` has the request as it was before the claim, or if a wakeup may not have been
    /// sent.
    pub(super) async fn end_unconfirmed(
        &self,
        order: &Order,
        (record, run): (Record, Run),
        loaded: &LoadedRecords,
        (result, why): (BuildResult, String),
    ) -> Result<(), ReconcileError> {
        let request = order.request.as_ref().and_then(|at| loaded.found.get(&request_key(at)));
        let request =
            request.and_then(|record| Some((record.clone(), decode::<NodeRequest>(record).ok()?)));
        // The request was read before the claim, which wrote both records, was stored.
        if request
            .as_ref()
            .is_some_and(|(_, request)| matches!(request.state, RequestState::Fulfilled(_)))
        {
            return Err(claim_conflict(&order.build));
        }
        let ended = RunEnd {
            result,
            detail: Some(why),
            started_at: None,
            ended_at: self.ports.clock.now(),
            data: serde_json::Map::new(),
            data_object: None,
            log_url: None,
        };
        match commit_end(&self.ports, order, (&record, &run), request, ended).await? {
            (CommitOutcome::Written(_), _) => {
                send_wakeups(&self.ports, order, QueueWakeup::Send).await
            }
            (CommitOutcome::Stale, _) => Err(claim_conflict(&order.build)),
        }
    }

    /// Locks the set of builds whose claims have no known outcome.
    pub(super) fn unconfirmed(&self) -> MutexGuard<'_, BTreeSet<BuildId>> {
        self.unconfirmed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
