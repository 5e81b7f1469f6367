//! Executes a landing: carries out the steps that [`sluice_gate::landing::next`] decides, until one
//! stores a result or has the run repeated. [`crate::landing_run`] reads what a decision needs and
//! sends the requests.

use crate::Reporter;
use crate::landing_run::LandingRun;
use sluice_forge::{ErrorClass, ForgeError};
use sluice_gate::item::cut;
use sluice_gate::landing::observation::Retry;
use sluice_gate::landing::{self as machine, Step, TROUBLE_BYTES_MAX};
use sluice_gate::{Landing, LandingEnd, LandingState, LandingTrouble};
use sluice_model::{ConnectionName, ItemId, Timestamp};
use sluice_records::codec::{decode, get, with_body};
use sluice_records::{connection, landing};
use sluice_runtime::batch::{Reception, ReconcileError};
use sluice_runtime::metric;
use sluice_runtime::record::{Due, Record, Write as RecordWrite};
use sluice_runtime::{CellCommit as Write, CommitOutcome, cell};

/// Seconds between two attempts to merge the rest of a bundle; the sweep of each minute makes them.
const BUNDLE_RETRY_PAUSE_SECONDS: u64 = 30;

/// Seconds after which trouble is shown to users who wait for a landing.
const TROUBLE_AFTER_SECONDS: u64 = 60;

impl Reporter {
    /// Merges the change of one item in the tested state of one generation, and stores the result.
    /// Does nothing if the landing does not exist or has ended; a redelivery then sends its outbox
    /// again. Every error is returned. The first one is also stored in the landing, for users who
    /// wait for it, if the landing will be at least [`TROUBLE_AFTER_SECONDS`] old at the retry.
    pub(crate) async fn land(
        &self,
        item: &ItemId,
        generation: u64,
        reception: Reception,
    ) -> Result<(), ReconcileError> {
        let done = self.execute(item, generation, reception).await;
        if let Err(error) = &done {
            let seconds =
                if let ReconcileError::RetryAfter { seconds, .. } = error { *seconds } else { 0 };
            self.record_trouble(item, generation, &error.to_string(), seconds).await?;
        }
        done
    }

    /// Stores the trouble of a landing once, if the landing will be at least
    /// [`TROUBLE_AFTER_SECONDS`] old at its next attempt, in `seconds`. `why` is cut to
    /// [`TROUBLE_BYTES_MAX`] bytes. Does nothing if the landing does not exist or has ended. Stored
    /// trouble is replaced only to note that the landing's connection was removed.
    async fn record_trouble(
        &self,
        item: &ItemId,
        generation: u64,
        why: &str,
        seconds: u64,
    ) -> Result<(), ReconcileError> {
        let Some(head) = get(&self.ports, &landing::key(item, generation)).await? else {
            return Ok(());
        };
        let order: Landing = decode(&head)?;
        let now = self.ports.clock.now();
        let is_young =
            now.since(order.ordered_at) + seconds * 1_000 < TROUBLE_AFTER_SECONDS * 1_000;
        if is_young || matches!(order.state, LandingState::Ended { .. }) {
            return Ok(());
        }
        // While a reporter with the connection may have sent a merge, the item must not be
        // dequeued.
        let may_be_asked =
            order.attempt().is_some() && head.due.as_ref().is_some_and(|due| due.at > now);
        let is_gone =
            !may_be_asked && self.is_connection_removed(&order.change.key.connection).await;
        if order.trouble.as_ref().is_some_and(|known| known.is_connection_removed || !is_gone) {
            return Ok(());
        }
        tracing::warn!(change = %order.change, queue = %order.queue, why, "a landing cannot be executed");
        // Not before `ordered_at`, since others compare the two.
        let since = order.trouble.as_ref().map_or(now.max(order.ordered_at), |known| known.since);
        let why = cut(why, TROUBLE_BYTES_MAX);
        let due = head.due.clone();
        let trouble = LandingTrouble { since, why, is_connection_removed: is_gone };
        self.store_trouble(head, order, trouble, due).await
    }

    /// Stores the trouble of a landing, due at `due`. The first of the rest of a bundle wakes the
    /// queue, which reports it. If a concurrent writer was faster, nothing is stored: it continues
    /// the landing.
    async fn store_trouble(
        &self,
        mut head: Record,
        order: Landing,
        trouble: LandingTrouble,
        due: Option<Due>,
    ) -> Result<(), ReconcileError> {
        // It was sent: a redelivery sends it before the landing is carried out.
        head.outbox.clear();
        let is_reported = order.bundle_retry_until().is_some() && order.trouble.is_none();
        let wakeups = is_reported.then(|| landing::answer_wakeup(&order.queue));
        let head = with_body(head, &Landing { trouble: Some(trouble), ..order })?;
        let write = Write { head, others: Vec::new(), wakeups: wakeups.into_iter().collect(), due };
        cell::commit_and_send(&self.ports, write).await?;
        Ok(())
    }

    /// Returns whether a connection was removed, so that its forge cannot be asked. False if this
    /// function still has it, and if the stored connections cannot be read.
    pub(crate) async fn is_connection_removed(&self, name: &ConnectionName) -> bool {
        !self.forges.contains_key(name)
            && connection::load(&self.ports).await.is_ok_and(|stored| !stored.0.contains_key(name))
    }

    /// Carries out the steps of a landing that has not ended, until its result is stored. May be
    /// repeated: once the intent is stored, the forge is read before it is asked again. Does nothing
    /// if the landing does not exist or has ended; a redelivery then sends its outbox again.
    async fn execute(
        &self,
        item: &ItemId,
        generation: u64,
        reception: Reception,
    ) -> Result<(), ReconcileError> {
        let Some(record) = get(&self.ports, &landing::key(item, generation)).await? else {
            return Ok(());
        };
        let order: Landing = decode(&record)?;
        if reception == Reception::Redelivery {
            // The run that ended it or stored its trouble may have failed to wake the queue.
            cell::send(&self.ports, &record.outbox).await?;
        }
        if let LandingState::Ended { .. } = order.state {
            return Ok(());
        }
        let forge = self.forge(&order.change.key.connection)?.clone();
        let mut run = LandingRun::new(&*forge, record, order, self.ports.clock.now());
        // Each step adds an observation or ends the run.
        loop {
            let now = run.clocks(self.ports.clock.now());
            let step = machine::next(&run.ordered, &run.seen, now)
                .map_err(|error| ReconcileError::Retry(error.to_string()))?;
            match step {
                Step::Observe(query) => self.observe(&mut run, query).await?,
                Step::WriteIntent { method, in_flight_until } => {
                    self.write_intent(&mut run, method, in_flight_until).await?;
                }
                Step::Push => run.push().await?,
                Step::ReplacePush(push) => self.replace_push(&mut run, push).await?,
                Step::Merge => run.merge().await?,
                Step::NoteUnverifiable { since, why } => {
                    self.note_unverifiable(run, since).await?;
                    return Err(ReconcileError::Retry(why));
                }
                Step::Wait(retry) => return Err(repeated(retry)),
                Step::Postpone { why } => return self.postpone(run, &why).await,
                Step::End { end, is_rest_unmerged } => {
                    return self.end(run, end, is_rest_unmerged).await;
                }
            }
        }
    }

    /// Stores since when the forge does not show the merged commit. If a concurrent writer was
    /// faster, nothing is stored: it continues the landing.
    async fn note_unverifiable(
        &self,
        run: LandingRun<'_>,
        since: Timestamp,
    ) -> Result<(), ReconcileError> {
        let due = run.record.due.clone();
        let order = Landing { unverifiable_since: Some(since), ..run.stored };
        let head = with_body(run.record, &order)?;
        cell::commit(&self.ports, Write { head, others: Vec::new(), wakeups: Vec::new(), due })
            .await?;
        Ok(())
    }

    /// Stores the obstacle of the rest of a bundle as its trouble. It is tried again with a later
    /// sweep.
    async fn postpone(&self, run: LandingRun<'_>, why: &str) -> Result<(), ReconcileError> {
        let now = self.ports.clock.now();
        let order = run.stored;
        let trouble = order.trouble.clone().unwrap_or_else(|| LandingTrouble {
            since: now.max(order.ordered_at),
            why: cut(why, TROUBLE_BYTES_MAX),
            is_connection_removed: false,
        });
        let at = now.plus_seconds(BUNDLE_RETRY_PAUSE_SECONDS);
        let due = Some(Due { at, wakeup: landing::wakeup(&order) });
        self.store_trouble(run.record, order, trouble, due).await
    }

    /// Stores the result of a landing, which wakes the gate; an error if a concurrent run has
    /// changed the landing. `is_rest_unmerged` raises the alarm for a bundle that was merged only in
    /// part.
    async fn end(
        &self,
        run: LandingRun<'_>,
        end: LandingEnd,
        is_rest_unmerged: bool,
    ) -> Result<(), ReconcileError> {
        let now = self.ports.clock.now();
        let change = &run.stored.change;
        if is_rest_unmerged {
            tracing::error!(%change, ?end, "a bundle was merged only in part");
            metric::print(&[(metric::PARTLY_MERGED_BUNDLES, 1)], now);
        }
        tracing::info!(%change, ?end, "a landing ended");
        let order = Landing { state: LandingState::Ended { end, at: now }, ..run.stored };
        match self.save(run.record, &order, Vec::new(), None).await? {
            Some(_) => Ok(()),
            None => Err(concurrent_landing()),
        }
    }

    /// Stores a landing together with the writes in `with`. One that has not ended is due at
    /// `due_at`, or in a minute without that; one that has ended wakes its queue. `None`, with
    /// nothing stored, if a concurrent writer was faster or a condition in `with` does not hold.
    pub(crate) async fn save(
        &self,
        record: Record,
        order: &Landing,
        with: Vec<RecordWrite>,
        due_at: Option<Timestamp>,
    ) -> Result<Option<Record>, ReconcileError> {
        let ended = matches!(order.state, LandingState::Ended { .. });
        let at = due_at.unwrap_or_else(|| self.ports.clock.now().plus_seconds(60));
        let due = (!ended).then(|| Due { at, wakeup: landing::wakeup(order) });
        let wakeups = if ended { vec![landing::answer_wakeup(&order.queue)] } else { Vec::new() };
        let head = with_body(record, order)?;
        match cell::commit_and_send(&self.ports, Write { head, others: with, wakeups, due }).await?
        {
            CommitOutcome::Written(record) => Ok(Some(record)),
            CommitOutcome::Stale => Ok(None),
        }
    }
}

/// Returns the error that has the message delivered again after a forge's error, after the pause
/// that the forge asked for. A final error gives a retry as well.
pub(crate) fn retryable(error: ForgeError) -> ReconcileError {
    match error.class() {
        ErrorClass::RedeliverAfter { seconds } => {
            ReconcileError::RetryAfter { why: error.to_string(), seconds }
        }
        ErrorClass::Final | ErrorClass::Redeliver => ReconcileError::Retry(error.to_string()),
    }
}

/// Returns the error that has the message delivered again for this reason.
fn repeated(retry: Retry) -> ReconcileError {
    match retry.after_seconds {
        Some(seconds) => ReconcileError::RetryAfter { why: retry.why, seconds },
        None => ReconcileError::Retry(retry.why),
    }
}

/// Returns the retry for a landing that a concurrent run has changed.
pub(crate) fn concurrent_landing() -> ReconcileError {
    ReconcileError::Retry("another reporter executes the same landing".to_owned())
}
