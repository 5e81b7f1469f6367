//! The merger: runs git for the gate. From the state of the item ahead and a change, it computes
//! the tested state, the configuration that it runs under and the frozen jobs. Or it answers that
//! the change has a conflict or an invalid configuration.
#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a test may panic"))]

mod freeze;
mod missing_playbooks;
mod playbooks_of_included_jobs;
mod state;

use async_trait::async_trait;
use bytes::Bytes;
use serde::Serialize;
use sluice_gate::{Item, MergeOutcome, MergeResult, MergeStatus};
use sluice_model::id::digest;
use sluice_model::wakeup::Wakeup;
use sluice_model::{ItemId, QueueKey, Timestamp};
use sluice_records::codec::{decode, get};
use sluice_records::layout::{Layouts, LiveLayout};
use sluice_records::{merge_outcome, queue, tenant};
use sluice_repos::{Repos, ReposError};
use sluice_runtime::batch::{Reception, ReconcileError, Reconciler};
use sluice_runtime::object::PutMode;
use sluice_runtime::{PortError, Ports, cell};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The most objects that are remembered as stored.
const STORED_MAX: usize = 512;
/// Milliseconds for which an object is remembered as stored. A removed object is stored again after
/// that.
const STORED_MILLIS: u64 = 3_600_000;

/// Seconds after which a state that fails at each attempt is given up. An unreachable forge is
/// waited for.
const GIVE_UP_SECONDS: u64 = 600;

/// Why no tested state could be made.
enum MergeFailure {
    /// A temporary error: retried without a limit.
    Again(ReconcileError),
    /// An error that a retry may not repair.
    Failed(String),
}

impl From<ReconcileError> for MergeFailure {
    fn from(error: ReconcileError) -> Self {
        Self::Again(error)
    }
}

impl From<PortError> for MergeFailure {
    fn from(error: PortError) -> Self {
        Self::Again(error.into())
    }
}

/// Computes tested states.
pub struct Merger {
    /// Access to records, objects, queues and time.
    ports: Ports,
    /// The cache of layouts.
    layouts: Layouts,
    /// The repositories of all projects.
    repos: Arc<dyn Repos>,
    /// The keys of recently stored objects, newest last: changes of one project have the same jobs,
    /// and a state is often requested twice. An object never changes under its key.
    stored: Mutex<VecDeque<(String, Timestamp)>>,
}

impl Merger {
    /// Creates a merger that reads repositories through `repos`.
    pub fn new(ports: Ports, repos: Arc<dyn Repos>) -> Self {
        Self { ports, layouts: Layouts::default(), repos, stored: Mutex::default() }
    }

    /// Computes the outcome of merging one item for one generation under the live layout, stores it
    /// once and wakes the gate. A repeated call under the same layout only wakes the gate. A state
    /// that still fails at a redelivery after `GIVE_UP_SECONDS` is stored as a conflict; an
    /// unreachable forge is waited for. Does nothing if the item is gone or no longer requests this
    /// generation. Until there is an outcome, an error has the message redelivered.
    pub async fn answer(
        &self,
        key: &QueueKey,
        id: &ItemId,
        generation: u64,
        reception: Reception,
    ) -> Result<(), ReconcileError> {
        // One read for all. The layout's number is a guess; a wrong one costs another read.
        let read_at = self.ports.clock.now();
        let guess = self.layouts.last_read(&key.tenant).map(|live| live.number());
        let mut keys = vec![queue::item_key(key, id), tenant::key(&key.tenant)];
        keys.extend(guess.map(|layout| merge_outcome::key(id, generation, layout)));
        let mut found = self.ports.records.get(&keys).await?.into_iter();
        let Some(record) = found.next().flatten() else { return Ok(()) };
        let item: Item = decode(&record)?;
        let MergeStatus::Requested { .. } = item.merge_status else { return Ok(()) };
        if item.generation != generation {
            return Ok(()); // The newer state was requested by a wakeup of its own.
        }
        let tenant = found.next().flatten();
        let Some(live) = self.layouts.open_live(&self.ports, &key.tenant, tenant, read_at).await?
        else {
            return Err(ReconcileError::Retry(format!("tenant {} has no layout yet", key.tenant)));
        };
        let layout = live.number();
        let answered = match guess {
            Some(guess) if guess == layout => found.next().flatten(),
            _ => get(&self.ports, &merge_outcome::key(id, generation, layout)).await?,
        };
        if answered.is_none() {
            let result = match self.result(key, &item, &live).await {
                Ok(result) => result,
                Err(MergeFailure::Again(error)) => return Err(error),
                Err(MergeFailure::Failed(why)) if reception == Reception::Redelivery => {
                    self.given_up(&item, why)?
                }
                // The message may have waited long without an attempt, so the first failure is
                // retried.
                Err(MergeFailure::Failed(why)) => return Err(ReconcileError::Retry(why)),
            };
            let outcome = MergeOutcome { item: id.clone(), generation, layout, result };
            let write = merge_outcome::put(&outcome, self.ports.clock.now())?;
            // If a concurrent merger was faster, its outcome counts.
            self.ports.records.commit(vec![write], &self.ports.entropy.token()).await?;
        }
        Ok(cell::send(&self.ports, &[Wakeup::Answer { queue: key.clone() }]).await?)
    }

    /// Merges the item and freezes its jobs; a conflict or an invalid configuration is a result,
    /// too.
    async fn result(
        &self,
        key: &QueueKey,
        item: &Item,
        live: &LiveLayout,
    ) -> Result<MergeResult, MergeFailure> {
        let mut state = self.start(item).await?;
        if let Err(result) = self.put_changes(&mut state, item, live).await? {
            return Ok(result);
        }
        self.freeze(key, &mut state, item, live).await
    }

    /// Returns a conflict for a state that could not be computed for `GIVE_UP_SECONDS`, so that its
    /// author gets a report and the queue goes on; `why` is the last failure. Before that, and for
    /// an item that requests no merge, returns an error that has the message delivered again.
    fn given_up(&self, item: &Item, why: String) -> Result<MergeResult, ReconcileError> {
        let MergeStatus::Requested { at, since, .. } = &item.merge_status else {
            return Err(ReconcileError::Retry(why));
        };
        let since = since.unwrap_or(*at);
        if self.ports.clock.now() < since.plus_seconds(GIVE_UP_SECONDS) {
            return Err(ReconcileError::Retry(why));
        }
        let change = item.candidate.change.clone();
        tracing::error!(%change, why, "giving up a tested state that failed repeatedly");
        let detail = format!(
            "its tested state could not be computed for {} minutes: {why}",
            GIVE_UP_SECONDS / 60
        );
        Ok(MergeResult::Conflict { change, detail })
    }

    /// Stores a value as a JSON object under `prefix` and the hash of its content, unless this
    /// instance did that within [`STORED_MILLIS`], and returns its key.
    async fn store<T: Serialize>(&self, prefix: &str, value: &T) -> Result<String, ReconcileError> {
        let text = serde_json::to_string(value)
            .map_err(|error| ReconcileError::Retry(error.to_string()))?;
        let key = format!("{prefix}/{}", digest(&[prefix, &text]));
        let now = self.ports.clock.now();
        let is_fresh = |at: Timestamp| now.since(at) < STORED_MILLIS;
        if self.stored().iter().any(|(stored, at)| *stored == key && is_fresh(*at)) {
            return Ok(key);
        }
        self.ports
            .objects
            .put(&key, Bytes::from(text), PutMode::Always, "application/json")
            .await?;
        let mut stored = self.stored();
        stored.retain(|(stored_key, _)| *stored_key != key);
        stored.push_back((key.clone(), now));
        if stored.len() > STORED_MAX {
            stored.pop_front();
        }
        Ok(key)
    }

    /// Locks the list of recently stored objects.
    fn stored(&self) -> MutexGuard<'_, VecDeque<(String, Timestamp)>> {
        self.stored.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl Reconciler for Merger {
    /// Answers a merge request of the gate. Any other wakeup is an error.
    async fn reconcile(&self, wakeup: &Wakeup, reception: Reception) -> Result<(), ReconcileError> {
        match wakeup {
            Wakeup::Merge { queue, item, generation } => {
                self.answer(queue, item, *generation, reception).await
            }
            other => {
                Err(ReconcileError::Retry(format!("the merger cannot handle the wakeup {other:?}")))
            }
        }
    }

    fn ports(&self) -> &Ports {
        &self.ports
    }
}

/// Classifies a repository error: an unreachable forge is retried, all others count against the
/// item.
fn merge_failure(error: ReposError) -> MergeFailure {
    match error {
        ReposError::Unreachable(why) => MergeFailure::Again(ReconcileError::Retry(why)),
        ReposError::Gone(why) | ReposError::Unreadable(why) | ReposError::Unknown(why) => {
            MergeFailure::Failed(why)
        }
    }
}
