//! Whose turn it is to land on a branch: taken with the order to land, let go with its end
//! ([`crate::turn`]).
//!
//! Foreign to the queue's cell as semaphores are, a branch is reserved: its record is written with
//! the plan, on condition that nobody wrote it since it was read. A bundle takes all its branches
//! or none, so that two of them never wait for each other.

use super::Work;
use crate::queue::{Slot, Standing};
use crate::turn::{
    COURTESY_SECONDS, KEPT_SECONDS, KeptFor, OVERTAKEN_MAX, Turn, TurnHolder, WAITING_MAX,
    branch_of,
};
use sluice_model::git::BranchKey;
use sluice_model::{ItemId, QueueKey};
use std::collections::BTreeSet;
use std::ops::Range;

/// Why a branch cannot be taken now.
struct Blocked {
    branch: BranchKey,
    /// What it waits for, for people.
    until: String,
    /// Whether it waits for another queue, and so stands in line.
    in_line: bool,
}

impl Work<'_> {
    /// Takes the branches on which the slots of a bundle land, all or none. Where it has to wait
    /// the first item says for what.
    pub(super) fn take_branches(&mut self, bundle: Range<usize>) -> bool {
        let Slot { id, change, .. } = self.head.slots[bundle.start].clone();
        let branches: BTreeSet<BranchKey> =
            self.head.slots[bundle].iter().map(|slot| branch_of(&slot.change)).collect();
        let blocked: Vec<Blocked> =
            branches.iter().filter_map(|branch| self.blocked(branch)).collect();
        if let Some(Blocked { branch, until, .. }) = blocked.first() {
            let why =
                format!("every voting job passed; its turn to land on {branch} comes when {until}");
            self.note(&id, why);
            if blocked.iter().any(|one| one.in_line) {
                // Also in the line of those that are free: else whoever wants only these is first
                // each time.
                self.in_line.extend(branches);
            }
            return false;
        }
        for branch in branches {
            let mut turn = self.turn(&branch);
            // Whoever takes it before those in line leaves them where they are: it is held, or was
            // kept for this queue.
            let is_before_others = turn.holder.is_some() || turn.kept_at(self.now).is_some();
            turn.kept_for = None;
            match turn.waiting.iter().position(|queue| *queue == self.head.key) {
                Some(at) => {
                    drop(turn.waiting.drain(if is_before_others { at..=at } else { 0..=at }))
                }
                // Its time is over for whoever was in line; those that still want it come again.
                None if !is_before_others => turn.waiting.clear(),
                None => {}
            }
            turn.fence += 1;
            // Who it is stands in the queue, once the landing is ordered.
            turn.holder = Some(TurnHolder {
                queue: self.head.key.clone(),
                item: id.clone(),
                generation: 0,
                change: change.key.clone(),
                more: false,
                begun: false,
                since: self.now,
            });
            self.turns.insert(branch, turn);
        }
        true
    }

    /// Returns the fence under which a branch is this queue's; `None` where it is not. Nothing
    /// lands without.
    pub(super) fn fence_of(&self, branch: &BranchKey) -> Option<u64> {
        let turn = self.turn(branch);
        turn.holder.filter(|holder| holder.queue == self.head.key).map(|_| turn.fence)
    }

    fn blocked(&self, branch: &BranchKey) -> Option<Blocked> {
        let turn = self.turn(branch);
        let me = &self.head.key;
        let blocked =
            |until: String, in_line: bool| Some(Blocked { branch: branch.clone(), until, in_line });
        let others_are_first = turn.waiting.first().filter(|first| *first != me);
        let after_them = |first: &QueueKey| {
            blocked(format!("{} has had its own", self.named_queue(first)), true)
        };
        let kept = turn.kept_at(self.now);
        match &turn.holder {
            Some(holder) if holder.queue == *me => {
                let is_landing = |slot: &Slot| slot.id == holder.item && slot.standing.is_landing();
                if self.head.slots.iter().any(is_landing) {
                    return blocked(format!("{} has landed", holder.change), false);
                }
                others_are_first.and_then(after_them)
            }
            Some(holder) if !self.is_passed_by(branch, holder) => blocked(
                format!("{} has landed {}", self.named_queue(&holder.queue), holder.change),
                true,
            ),
            _ if kept.is_some() => {
                kept.filter(|kept| kept.queue != *me).and_then(|kept| after_them(&kept.queue))
            }
            Some(_) => None,
            None => {
                let is_kept = self.now < turn.free_since.plus_seconds(COURTESY_SECONDS);
                others_are_first.filter(|_| is_kept).and_then(after_them)
            }
        }
    }

    fn is_passed_by(&self, branch: &BranchKey, holder: &TurnHolder) -> bool {
        let seen = self.snapshot.turns.get(branch);
        seen.is_some_and(|seen| seen.is_over && seen.turn.holder.as_ref() == Some(holder))
    }

    /// Returns how many branches this plan takes from holders of other queues: each is one more
    /// condition of its transaction, that the landing passed by is as it was read.
    pub(super) fn passed_by(&self) -> usize {
        let is_taken = |turn: &&Turn| {
            let before =
                self.snapshot.turns.get(&turn.branch).and_then(|seen| seen.turn.holder.as_ref());
            before.is_some_and(|holder| {
                holder.queue != self.head.key && turn.holder.as_ref() != Some(holder)
            })
        };
        self.turns.values().filter(is_taken).count()
    }

    /// Remembers of what did not land whether a merge of it was asked for: it may show late.
    pub(super) fn note_tried(&mut self, id: &ItemId, tried: bool) {
        if let Some(item) = self.item(id) {
            item.tried |= tried;
        }
    }

    /// Remembers of the first of a bundle that its landing found a branch moved by others. One
    /// queue may land again and again while another one tests; so after some such landings the
    /// branches are kept for what lost them.
    pub(super) fn note_overtaken(&mut self, bundle: Range<usize>) {
        let id = self.head.slots[bundle.start].id.clone();
        let Some(item) = self.item(&id) else { return };
        item.overtaken += 1;
        if item.overtaken < OVERTAKEN_MAX {
            return;
        }
        item.overtaken = 0;
        let branches: BTreeSet<BranchKey> =
            self.head.slots[bundle].iter().map(|slot| branch_of(&slot.change)).collect();
        for branch in branches {
            let mut turn = self.turn(&branch);
            if turn.holder.as_ref().is_none_or(|holder| holder.queue != self.head.key) {
                continue; // Another queue has taken it: this one was passed by.
            }
            let (queue, until) = (self.head.key.clone(), self.now.plus_seconds(KEPT_SECONDS));
            turn.kept_for = Some(KeptFor { queue, item: id.clone(), until });
            self.note(&id, format!("{branch} moved {OVERTAKEN_MAX} times before it could land: it is kept for it now"));
            self.turns.insert(branch, turn);
        }
    }

    /// Lets go of branches whose landings are over, and keeps the line: who waits here stands in
    /// it, and nobody else of this queue.
    pub(super) fn settle_turns(&mut self) {
        let me = self.head.key.clone();
        let known = self.snapshot.turns.keys().chain(self.turns.keys()).chain(&self.in_line);
        for branch in known.cloned().collect::<BTreeSet<BranchKey>>() {
            let before = self.turn(&branch);
            let mut turn = before.clone();
            if turn.holder.as_ref().is_some_and(|holder| holder.queue == me) {
                turn.holder = self.lands_on(&branch, &turn);
                if turn.holder.is_none() {
                    turn.free_since = self.now;
                }
            }
            let is_gone = |kept: &KeptFor| {
                let stands = self.head.slots.iter().any(|slot| slot.id == kept.item);
                kept.queue == me && (self.head.frozen.is_some() || !stands)
            };
            let is_kept_in_vain = turn.kept_for.as_ref().is_some_and(is_gone);
            if is_kept_in_vain {
                turn.kept_for = None;
            }
            let awaits = self.in_line.contains(&branch);
            let is_in_line = turn.waiting.contains(&me);
            if awaits && !is_in_line && turn.waiting.len() < WAITING_MAX {
                turn.waiting.push(me.clone());
            } else if !awaits && is_in_line && !self.left_over {
                turn.waiting.retain(|queue| *queue != me);
            }
            let has_changed = self.turns.contains_key(&branch) || turn != before;
            if !has_changed || (!self.turns.contains_key(&branch) && !self.has_room(1)) {
                continue;
            }
            let has_lost_one =
                before.holder.is_some() || (is_in_line && !awaits) || is_kept_in_vain;
            if turn.holder.is_none() && has_lost_one {
                // The first alone: whoever leaves the line wakes the next, and one that does not
                // come is passed by.
                self.plan.wake.extend(turn.waiting.iter().find(|queue| **queue != me).cloned());
            }
            self.turns.insert(branch, turn);
        }
    }

    /// Returns who of this queue holds a branch: whatever is being put into it, or is to be after
    /// its mates.
    fn lands_on(&self, branch: &BranchKey, turn: &Turn) -> Option<TurnHolder> {
        if self.head.frozen.is_some() {
            return None; // Its landing is over, and what becomes of it is up to an operator.
        }
        let is_to_land =
            |slot: &Slot| matches!(slot.standing, Standing::Landing | Standing::Pledged);
        let at = self
            .head
            .slots
            .iter()
            .position(|slot| is_to_land(slot) && branch_of(&slot.change) == *branch)?;
        let bundle = &self.head.slots[self.head.bundle(at)];
        let is_landing = |slot: &&Slot| slot.standing == Standing::Landing;
        let Some(now) = bundle.iter().find(is_landing) else {
            return turn.holder.clone(); // The next of its bundle is still to be ordered.
        };
        Some(TurnHolder {
            queue: self.head.key.clone(),
            item: now.id.clone(),
            generation: now.generation,
            change: now.change.key.clone(),
            more: bundle.iter().any(|slot| slot.standing == Standing::Pledged),
            begun: bundle.iter().any(|slot| slot.standing == Standing::Landed),
            since: turn.holder.as_ref().map_or(self.now, |holder| holder.since),
        })
    }

    fn turn(&self, branch: &BranchKey) -> Turn {
        let known = self
            .turns
            .get(branch)
            .or_else(|| self.snapshot.turns.get(branch).map(|seen| &seen.turn));
        known.cloned().unwrap_or_else(|| Turn::new(branch.clone()))
    }

    /// Returns what a queue is called here; what another tenant calls its own is that one's
    /// business.
    fn named_queue(&self, queue: &QueueKey) -> String {
        if queue.tenant == self.head.key.tenant {
            format!("the queue {} of {}", queue.queue, queue.pipeline)
        } else {
            "a queue of another tenant".to_owned()
        }
    }
}
