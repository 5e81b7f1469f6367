//! Branches that a queue's next landings need: their records, and what is known of whoever holds one.

use crate::aside::broken;
use crate::load::get_all;
use sluice_gate::turn::branch_of;
use sluice_gate::{Landing, StoredHead, Turn, TurnHolder, TurnSeen};
use sluice_model::QueueKey;
use sluice_model::git::BranchKey;
use sluice_records::codec::{decode, decode_foreign};
use sluice_records::{landing, queue};
use sluice_runtime::batch::LookError;
use sluice_runtime::record::{Key, Record};
use sluice_runtime::{PortError, Ports};
use std::collections::{BTreeMap, BTreeSet};

/// Branches with their records, whose revisions guard what is written.
pub(crate) type Turns = BTreeMap<BranchKey, (Record, TurnSeen)>;

/// Branches of one queue that are looked at. The first in the queue land first, and a window is seldom longer.
const BRANCHES_MAX: usize = 50;

/// Returns the branches of whatever is worked on in a queue that lands its changes. They are read with what the queue waits for
/// anyway, so that the order to land costs no call.
pub(crate) fn needed(queue: &queue::Loaded) -> BTreeSet<BranchKey> {
    let mut needed = BTreeSet::new();
    let Some(head) = &queue.head else { return needed };
    for slot in head.slots.iter().take(head.active()).filter(|slot| slot.change.key.number().is_some()) {
        needed.insert(branch_of(&slot.change));
        if needed.len() == BRANCHES_MAX {
            break;
        }
    }
    needed
}

/// Takes in a branch's record.
pub(crate) fn take(turns: &mut Turns, queue: &QueueKey, branch: BranchKey, record: &Record) -> Result<(), LookError> {
    let turn: Turn = decode(record).map_err(|bad| broken(queue, &bad))?;
    turns.insert(branch, (record.clone(), TurnSeen { turn, is_over: false }));
    Ok(())
}

/// Finds out whether those who hold a branch from other queues may be passed by. What is read here is newer than the branch's record,
/// so that a landing that is missing is one that was forgotten.
pub(crate) async fn judge(ports: &Ports, queue: &QueueKey, turns: &mut Turns) -> Result<(), PortError> {
    let others = |holder: &&TurnHolder| holder.queue != *queue;
    let held = turns.values().filter_map(|(_, seen)| seen.turn.holder.as_ref().filter(others));
    let keys_of = |holder: &TurnHolder| [landing_key(holder), queue::head_key(&holder.queue)];
    let keys: BTreeSet<Key> = held.flat_map(keys_of).collect();
    if keys.is_empty() {
        return Ok(());
    }
    let found = get_all(ports, &keys.into_iter().collect::<Vec<_>>()).await?;
    for (_, seen) in turns.values_mut() {
        let Some(holder) = seen.turn.holder.as_ref().filter(others) else { continue };
        let stands = match found.get(&queue::head_key(&holder.queue)).map(decode_foreign::<StoredHead>) {
            None => false,
            // Whose head cannot be read, of that nobody knows what it lets go of.
            Some(head) => head.is_none_or(|head| head.names(&holder.item)),
        };
        seen.is_over = match found.get(&landing_key(holder)).map(decode_foreign::<Landing>) {
            None => holder.is_over(None, stands),
            Some(None) => false,
            Some(Some(landing)) => holder.is_over(Some(&landing), stands),
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
