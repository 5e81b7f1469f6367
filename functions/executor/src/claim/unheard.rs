//! Claims that were written and whose answer was lost: the run is this life's own, and nobody runs
//! it.
//!
//! Where its message comes again to this life, the build is run. It may go to another executor,
//! which leaves the build alone; then its queue gives it up, for no session lists it, and its run
//! is ended here.

use super::{Asked, Claims, QueueHears, Seen, commit_end, raced, request_key, send_end};
use sluice_model::BuildId;
use sluice_model::build::{BuildResult, Ended, Order, Phase, Run};
use sluice_pool::{Request, RequestState};
use sluice_records::build;
use sluice_records::codec::decode;
use sluice_runtime::Saved;
use sluice_runtime::batch::LookError;
use sluice_runtime::record::Record;
use std::collections::BTreeSet;
use std::sync::{MutexGuard, PoisonError};

/// What is known of a claim whose answer was lost.
enum Settled {
    /// Its run is over, or not of this life.
    Yes,
    /// It may still be run here.
    NotYet,
}

impl Claims {
    /// Ends runs of which this life never learned that it had claimed them, once they are to stop.
    /// `is_here` says whether a build is run here, or asked for, at that moment.
    ///
    /// # Errors
    /// When the store does not answer, or a build cannot be read, or whoever is told may not have
    /// been reached: call it again. It names the builds; those that it names kept no other from its
    /// end.
    pub async fn settle(
        &self,
        is_here: &(dyn Fn(&BuildId) -> bool + Send + Sync),
    ) -> Result<(), LookError> {
        let builds: Vec<BuildId> =
            self.doubtful().iter().filter(|build| !is_here(build)).cloned().collect();
        let asked =
            |build: &BuildId| Asked { build: build.clone(), request: None, nodes: Vec::new() };
        let asked: Vec<Asked> = builds.iter().map(asked).collect();
        let mut seen = Seen::default();
        self.read(&asked, &mut seen).await?;
        let mut failed = Vec::new();
        for id in &builds {
            // Asked again after reading: a claim that begins later writes a later revision, and one
            // of the two writes is lost.
            if is_here(id) {
                continue;
            }
            match self.settle_one(id, &seen).await {
                Ok(Settled::Yes) => {
                    self.doubtful().remove(id);
                }
                Ok(Settled::NotYet) => {}
                Err(error) => failed.push(format!("build {id}: {error}")),
            }
        }
        if failed.is_empty() { Ok(()) } else { Err(LookError::Again(failed.join("; "))) }
    }

    async fn settle_one(&self, id: &BuildId, seen: &Seen) -> Result<Settled, LookError> {
        let order = seen.found.get(&build::order_key(id));
        let stop = seen.found.get(&build::stop_key(id));
        match (self.own_run(id, seen)?, order, stop) {
            (Some(mine), Some(order), Some(stop)) => {
                let why = build::stop_of(stop).why;
                tracing::info!(build = %id, why, "a build was stopped that was claimed without an answer");
                self.end_unheard(&decode::<Order>(order)?, mine, seen, (BuildResult::Aborted, why))
                    .await?;
                Ok(Settled::Yes)
            }
            // Its message may still come here.
            (Some(_), Some(_), None) => Ok(Settled::NotYet),
            // The write may still be on its way.
            (None, Some(_), None) if !seen.found.contains_key(&build::run_key(id)) => {
                Ok(Settled::NotYet)
            }
            // Somebody else's, over, or of no order any more; and no claim is written of what was
            // stopped.
            _ => Ok(Settled::Yes),
        }
    }

    /// Returns the run of a build that is this life's own and did not end.
    pub(super) fn own_run(
        &self,
        id: &BuildId,
        seen: &Seen,
    ) -> Result<Option<(Record, Run)>, LookError> {
        let Some(record) = seen.found.get(&build::run_key(id)) else { return Ok(None) };
        let run: Run = decode(record)?;
        let is_own = run.session == self.session && !matches!(run.phase, Phase::Ended(_));
        Ok(is_own.then(|| (record.clone(), run)))
    }

    /// Ends a run of this life's own that nobody runs here, and tells whoever waits for it. Whoever
    /// runs it has written a later revision, and loses nothing.
    pub(super) async fn end_unheard(
        &self,
        order: &Order,
        (record, run): (Record, Run),
        seen: &Seen,
        (result, why): (BuildResult, String),
    ) -> Result<(), LookError> {
        let request = order.request.as_ref().and_then(|at| seen.found.get(&request_key(at)));
        let request =
            request.and_then(|record| Some((record.clone(), decode::<Request>(record).ok()?)));
        // Read a moment before the claim was written, which wrote both.
        if request
            .as_ref()
            .is_some_and(|(_, request)| matches!(request.state, RequestState::Fulfilled(_)))
        {
            return Err(raced(&order.build));
        }
        let ended = Ended {
            result,
            detail: Some(why),
            started_at: None,
            ended_at: self.ports.clock.now(),
            data: serde_json::Map::new(),
            data_object: None,
            log_url: None,
        };
        match commit_end(&self.ports, order, (&record, &run), request, ended).await? {
            (Saved::Yes(_), _) => send_end(&self.ports, order, QueueHears::Now).await,
            (Saved::Stale, _) => Err(raced(&order.build)),
        }
    }

    pub(super) fn doubtful(&self) -> MutexGuard<'_, BTreeSet<BuildId>> {
        self.doubtful.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
