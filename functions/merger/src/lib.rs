//! The merger: git in a function. Given the state ahead and a change, it answers the tested tree,
//! the configuration it runs under, and the frozen jobs; or that the change does not merge, or that
//! its configuration is wrong.
#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a test may panic"))]

mod freeze;
mod included;
mod playbooks;
mod state;

use async_trait::async_trait;
use bytes::Bytes;
use serde::Serialize;
use sluice_gate::{Ask, Item, MergeOutcome, MergeResult};
use sluice_model::id::digest;
use sluice_model::poke::Poke;
use sluice_model::{ItemId, QueueKey, Timestamp};
use sluice_records::codec::{decode, get};
use sluice_records::layout::{Layouts, Live};
use sluice_records::{merge, queue, tenant};
use sluice_repos::{Repos, ReposError};
use sluice_runtime::batch::{Heard, Look, LookError};
use sluice_runtime::object::PutMode;
use sluice_runtime::{PortError, Ports, cell};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Objects that are remembered as stored.
const STORED_MAX: usize = 512;
/// Milliseconds for which they are: should somebody remove one, it is stored again after that.
const STORED_MILLIS: u64 = 3_600_000;

/// Seconds after which a state that fails each time it is tried is given up. A forge that does not
/// answer is waited for.
const GIVE_UP_SECONDS: u64 = 600;

/// Why there is no answer.
enum Unmade {
    /// It is to be asked again, however long it takes.
    Again(LookError),
    /// It failed in a way that asking again may not mend.
    Failed(String),
}

impl From<LookError> for Unmade {
    fn from(error: LookError) -> Self {
        Self::Again(error)
    }
}

impl From<PortError> for Unmade {
    fn from(error: PortError) -> Self {
        Self::Again(error.into())
    }
}

/// Makes merged states.
pub struct Merger {
    ports: Ports,
    layouts: Layouts,
    repos: Arc<dyn Repos>,
    /// What was stored of late, the newest last: changes of one project have the same jobs, and a
    /// tested state is often asked for twice. An object never changes under its key.
    stored: Mutex<VecDeque<(String, Timestamp)>>,
}

impl Merger {
    /// Makes the function.
    pub fn new(ports: Ports, repos: Arc<dyn Repos>) -> Self {
        Self { ports, layouts: Layouts::default(), repos, stored: Mutex::default() }
    }

    /// Answers for one item in one speculative state, once; a repeat tells the gate again.
    pub async fn answer(
        &self,
        key: &QueueKey,
        id: &ItemId,
        generation: u64,
        heard: Heard,
    ) -> Result<(), LookError> {
        // All in one call; which layout the answer would be for is a guess, and read again where it
        // was wrong.
        let read_at = self.ports.clock.now();
        let guess = self.layouts.seen(&key.tenant).map(|live| live.number());
        let mut keys = vec![queue::item_key(key, id), tenant::key(&key.tenant)];
        keys.extend(guess.map(|layout| merge::key(id, generation, layout)));
        let mut found = self.ports.records.get(&keys).await?.into_iter();
        let Some(record) = found.next().flatten() else { return Ok(()) };
        let item: Item = decode(&record)?;
        let Ask::Asked { .. } = item.ask else { return Ok(()) };
        if item.generation != generation {
            return Ok(()); // A newer state was asked for by a poke of its own.
        }
        let tenant = found.next().flatten();
        let Some(live) = self.layouts.live_of(&self.ports, &key.tenant, tenant, read_at).await?
        else {
            return Err(LookError::Again(format!("tenant {} has no layout yet", key.tenant)));
        };
        let layout = live.number();
        let answered = match guess {
            Some(guess) if guess == layout => found.next().flatten(),
            _ => get(&self.ports, &merge::key(id, generation, layout)).await?,
        };
        if answered.is_none() {
            let result = match self.result(key, &item, &live).await {
                Ok(result) => result,
                Err(Unmade::Again(error)) => return Err(error),
                Err(Unmade::Failed(why)) if heard == Heard::Again => self.given_up(&item, why)?,
                // It may have waited for long and never been tried: who fails once is tried again.
                Err(Unmade::Failed(why)) => return Err(LookError::Again(why)),
            };
            let outcome = MergeOutcome { item: id.clone(), generation, layout, result };
            let write = merge::put(&outcome, self.ports.clock.now())?;
            // Losing means that the same question was answered already; the first answer stands.
            self.ports.records.commit(vec![write], &self.ports.entropy.token()).await?;
        }
        Ok(cell::send(&self.ports, &[Poke::Answer { queue: key.clone() }]).await?)
    }

    async fn result(
        &self,
        key: &QueueKey,
        item: &Item,
        live: &Live,
    ) -> Result<MergeResult, Unmade> {
        let mut state = self.start(item).await?;
        if let Err(result) = self.put_changes(&mut state, item, live).await? {
            return Ok(result);
        }
        self.freeze(key, &mut state, item, live).await
    }

    /// Returns the answer for a state that fails each time it is tried, once that has been so for
    /// long enough: then the gate and the author are told, rather than that everybody behind waits.
    fn given_up(&self, item: &Item, why: String) -> Result<MergeResult, LookError> {
        let Ask::Asked { at, since, .. } = &item.ask else { return Err(LookError::Again(why)) };
        let since = since.unwrap_or(*at);
        if self.ports.clock.now() < since.plus_seconds(GIVE_UP_SECONDS) {
            return Err(LookError::Again(why));
        }
        let change = item.candidate.change.clone();
        tracing::error!(%change, why, "a state could not be made for long and is given up");
        let detail =
            format!("its state could not be made for {} minutes: {why}", GIVE_UP_SECONDS / 60);
        Ok(MergeResult::Conflict { change, detail })
    }

    /// Stores a value under the hash of its content, unless that was done of late, and returns its
    /// key.
    async fn store<T: Serialize>(&self, prefix: &str, value: &T) -> Result<String, LookError> {
        let text =
            serde_json::to_string(value).map_err(|error| LookError::Again(error.to_string()))?;
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
        stored.retain(|(known, _)| *known != key);
        stored.push_back((key.clone(), now));
        if stored.len() > STORED_MAX {
            stored.pop_front();
        }
        Ok(key)
    }

    fn stored(&self) -> MutexGuard<'_, VecDeque<(String, Timestamp)>> {
        self.stored.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl Look for Merger {
    async fn poked(&self, poke: &Poke, heard: Heard) -> Result<(), LookError> {
        match poke {
            Poke::Merge { queue, item, generation } => {
                self.answer(queue, item, *generation, heard).await
            }
            other => Err(LookError::Again(format!("the merger was poked with {other:?}"))),
        }
    }

    fn ports(&self) -> &Ports {
        &self.ports
    }
}

fn unmade(error: ReposError) -> Unmade {
    match error {
        ReposError::Unreachable(why) => Unmade::Again(LookError::Again(why)),
        ReposError::Gone(why) | ReposError::Unreadable(why) | ReposError::Unknown(why) => {
            Unmade::Failed(why)
        }
    }
}
