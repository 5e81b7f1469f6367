//! Branches that a queue's next landings need: their records, and what is known of whoever holds
//! one.

use crate::aside::broken;
use crate::load::get_all;
use sluice_gate::turn::branch_of;
use sluice_gate::{Landing, LandingState, StoredHead, Turn, TurnHolder, TurnSeen};
use sluice_model::QueueKey;
use sluice_model::git::BranchKey;
use sluice_records::codec::{decode, decode_foreign};
use sluice_records::{landing, queue};
use sluice_runtime::batch::LookError;
use sluice_runtime::record::{Expect, Key, Record, Write};
use sluice_runtime::{PortError, Ports};
use std::collections::{BTreeMap, BTreeSet};

/// Branches with what is known of them.
pub(crate) type Turns = BTreeMap<BranchKey, Known>;

/// What is known of a branch.
pub(crate) struct Known {
    /// Its record, whose revision guards what is written.
    pub(crate) record: Record,
    /// What it says.
    pub(crate) seen: TurnSeen,
    /// The landing of a holder that may be passed by and has not ended, as it was read: it is not
    /// to begin to merge meanwhile.
    pub(crate) not_begun: Option<(Key, u64)>,
}

impl Known {
    pub(crate) fn new(record: Record, turn: Turn) -> Self {
        Self { record, seen: TurnSeen { turn, is_over: false }, not_begun: None }
    }

    /// Returns the condition under which its holder may be passed by.
    pub(crate) fn condition(&self, wanted: &Turn) -> Option<Write> {
        let (key, revision) =
            self.not_begun.clone().filter(|_| wanted.holder != self.seen.turn.holder)?;
        Some(Write::Check { key, expect: Expect::Revision(revision) })
    }
}

/// Branches of one queue that are looked at. The first in the queue land first, and a window is
/// seldom longer.
const BRANCHES_MAX: usize = 50;

/// Returns the branches of whatever is worked on in a queue that lands its changes. They are read
/// with what the queue waits for anyway, so that the order to land costs no call.
pub(crate) fn needed(queue: &queue::Loaded) -> BTreeSet<BranchKey> {
    let mut needed = BTreeSet::new();
    let Some(head) = &queue.head else { return needed };
    for slot in
        head.slots.iter().take(head.active()).filter(|slot| slot.change.key.number().is_some())
    {
        needed.insert(branch_of(&slot.change));
        if needed.len() == BRANCHES_MAX {
            break;
        }
    }
    needed
}

/// Takes in a branch's record.
pub(crate) fn take(
    turns: &mut Turns,
    queue: &QueueKey,
    branch: BranchKey,
    record: &Record,
) -> Result<(), LookError> {
    let turn: Turn = decode(record).map_err(|bad| broken(queue, &bad))?;
    turns.insert(branch, Known::new(record.clone(), turn));
    Ok(())
}

/// Finds out whether those who hold a branch from other queues may be passed by. What is read here
/// is newer than the branch's record, so that a landing that is missing is one that was forgotten.
pub(crate) async fn judge(
    ports: &Ports,
    queue: &QueueKey,
    turns: &mut Turns,
) -> Result<(), PortError> {
    let others = |holder: &&TurnHolder| holder.queue != *queue;
    let held = turns.values().filter_map(|known| known.seen.turn.holder.as_ref().filter(others));
    let keys_of = |holder: &TurnHolder| [landing_key(holder), queue::head_key(&holder.queue)];
    let keys: BTreeSet<Key> = held.flat_map(keys_of).collect();
    if keys.is_empty() {
        return Ok(());
    }
    let found = get_all(ports, &keys.into_iter().collect::<Vec<_>>()).await?;
    let now = ports.clock.now();
    for Known { seen, not_begun, .. } in turns.values_mut() {
        let Some(holder) = seen.turn.holder.as_ref().filter(others) else { continue };
        let stands =
            match found.get(&queue::head_key(&holder.queue)).map(decode_foreign::<StoredHead>) {
                None => false,
                // Whose head cannot be read, of that nobody knows what it lets go of.
                Some(head) => head.is_none_or(|head| head.names(&holder.item)),
            };
        let record = found.get(&landing_key(holder));
        seen.is_over = match record.map(decode_foreign::<Landing>) {
            None => holder.is_over(None, stands, now),
            Some(None) => false,
            Some(Some(landing)) => {
                let is_open = !matches!(landing.state, LandingState::Ended { .. });
                *not_begun =
                    record.filter(|_| is_open).map(|record| (record.key.clone(), record.revision));
                holder.is_over(Some(&landing), stands, now)
            }
        };
        if seen.is_over {
            // Usual for a moment: its landing has ended, and its queue has not looked yet.
            tracing::debug!(%queue, branch = %seen.turn.branch, holder = %holder.queue, "a branch was not let go, and its landing is over");
        }
    }
    Ok(())
}

fn landing_key(holder: &TurnHolder) -> Key {
    landing::key(&holder.item, holder.generation)
}
