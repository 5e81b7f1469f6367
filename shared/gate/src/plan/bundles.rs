//! Dependency cycles (Z6.5). The members of one are enqueued together as a bundle, and are tested
//! and dequeued together. A cycle that arises among changes which are queued already is dequeued.

use super::finish::{DEPENDENCIES_CHANGED, Departure, Progress};
use super::ledger::Full;
use super::{Planner, is_dependent};
use crate::inbox::Candidate;
use crate::item::{REASON_BYTES_MAX, cut};
use crate::queue::Slot;
use crate::report::Occasion;
use sluice_model::ItemId;
use sluice_model::change::{ChangeKey, ChangeRef};
use std::collections::BTreeSet;

/// The largest number of members in a bundle: decisions about all of them must fit into one
/// transaction.
pub const BUNDLE_MAX: usize = 10;

/// The most items that one plan marks for dequeueing. Intake lists at most twenty dependencies of a
/// change.
const MARKED_MAX: usize = 60;

/// The most changes that a reason about a bundle names.
const NAMED_MAX: usize = 5;

impl Planner<'_> {
    /// Applies the new dependencies of `one`, a member of the bundle at `position`, to all its
    /// members, which share their outside dependencies. The caller has checked that `one` still
    /// needs all other members. Moves the bundle to the end of the queue if a dependency is queued
    /// behind it. Dequeues the bundle instead if a dependency is neither queued in that revision
    /// nor merged.
    pub(super) fn update_bundle_dependencies(
        &mut self,
        position: usize,
        one: &Candidate,
    ) -> Result<(), Full> {
        let members = self.head.entries[position].members.clone();
        let own = Candidate { needs: Vec::new(), bundle: Vec::new(), ..one.clone() };
        let mut place = position;
        for need in one.needs_outside_bundle() {
            if self.head.has_landed(&need.change) {
                continue;
            }
            let is_needed = |slot: &Slot| slot.change == need.change;
            let mut entries = self.head.entries.iter();
            let Some(at) = entries.position(|entry| entry.members.iter().any(is_needed)) else {
                let why = format!(
                    "{DEPENDENCIES_CHANGED}: it depends on {}, which is neither merged nor in this queue",
                    need.change.key
                );
                let member = members.iter().find(|slot| slot.change == one.change);
                return self.dequeue(&member.unwrap_or(&members[0]).id, &why, Occasion::Dequeue);
            };
            place = place.max(at);
        }
        self.require_room(members.len())?;
        let now = self.now;
        for Slot { id, change: ChangeRef { key, .. }, .. } in &members {
            let all = one.needs.iter().chain([&own]);
            let needs = all.filter(|need| need.change.key != *key).cloned().collect();
            if let Some(item) = self.item_mut(id) {
                item.candidate.needs = needs;
                item.add_reason(now, format!("the dependencies of {} changed", one.change));
            }
        }
        if place > position {
            let moved = self.head.entries.remove(position);
            self.head.entries.push(moved);
        }
        Ok(())
    }
}

/// Dependency cycles that arise among queued changes. The members were enqueued separately, so no
/// bundle holds them, and none can be behind all it depends on. Like Zuul, the queue dequeues them;
/// an event that enqueues them again enqueues them as a bundle, if the queue allows that.
impl Planner<'_> {
    /// Returns the queued items, outside the change's own bundle, that form a dependency cycle with
    /// it, given its new dependencies `needs`; in queue order, empty without a cycle. Items that
    /// are being merged or run their reporter jobs do not count.
    pub(super) fn new_cycle_members(&self, change: &ChangeKey, needs: &[ChangeRef]) -> Vec<ItemId> {
        let slots: Vec<&Slot> = self.head.slots().collect();
        // A change that is being merged is not affected by new dependencies.
        let place = |key: &ChangeKey| {
            slots.iter().position(|slot| slot.change.key == *key && !slot.status.is_decided())
        };
        let needs_of = |at: usize| {
            let item = self.items.get(&slots[at].id);
            item.map(|item| item.candidate.needs.as_slice()).unwrap_or_default()
        };
        let mut needed = BTreeSet::new();
        let mut ahead: Vec<usize> = needs.iter().filter_map(|need| place(&need.key)).collect();
        while let Some(at) = ahead.pop() {
            if slots[at].change.key != *change && needed.insert(at) {
                ahead.extend(needs_of(at).iter().filter_map(|need| place(&need.change.key)));
            }
        }
        let mut in_turn: BTreeSet<usize> = BTreeSet::new();
        // Each round finds at least one, or is the last.
        for _ in 0..needed.len() {
            let leads_back = |key: &ChangeKey| {
                *key == *change || place(key).is_some_and(|at| in_turn.contains(&at))
            };
            let comes_back =
                |at: usize| needs_of(at).iter().any(|need| leads_back(&need.change.key));
            let more = needed.iter().copied().filter(|at| !in_turn.contains(at) && comes_back(*at));
            let more: Vec<usize> = more.collect();
            if more.is_empty() {
                break;
            }
            in_turn.extend(more);
        }
        let own = place(change).and_then(|at| self.head.position(&slots[at].id));
        let is_own = |id: &ItemId| own.is_some_and(|own| self.head.entries[own].contains(id));
        in_turn.into_iter().map(|at| slots[at].id.clone()).filter(|id| !is_own(id)).collect()
    }

    /// Marks the members of the entry at `position` and `others`, which form a dependency cycle
    /// with it, for dequeueing by [`Self::dequeue_marked`]. Marks at most [`MARKED_MAX`] items, and
    /// none if they do not fit into the transaction.
    pub(super) fn mark_new_cycle(
        &mut self,
        position: usize,
        others: Vec<ItemId>,
    ) -> Result<(), Full> {
        let own = self.head.entries[position].members.iter().map(|slot| slot.id.clone());
        let all: Vec<ItemId> = own.chain(others).collect();
        let named = self
            .head
            .slots()
            .filter(|slot| all.contains(&slot.id))
            .map(|slot| slot.change.key.to_string());
        let named = named.take(NAMED_MAX).collect::<Vec<_>>().join(", ");
        let more = if all.len() > NAMED_MAX { " and others" } else { "" };
        self.mark_for_dequeue(
            &all,
            &format!("{DEPENDENCIES_CHANGED}: {named}{more} form a dependency cycle now and were enqueued separately"),
        )
    }

    /// Marks the items that form a dependency cycle with `change`, given its dependencies `needs`,
    /// for dequeueing, since that change leaves for the reason `why`. The change itself is not
    /// marked. Marks nothing outside dependent pipelines.
    pub(super) fn mark_new_cycle_members(
        &mut self,
        change: &ChangeRef,
        needs: &[ChangeRef],
        why: &str,
    ) -> Result<(), Full> {
        // In other pipelines no entry is behind its dependencies.
        let others = if is_dependent(&self.head) {
            self.new_cycle_members(&change.key, needs)
        } else {
            Vec::new()
        };
        self.mark_for_dequeue(
            &others,
            &format!(
                "{DEPENDENCIES_CHANGED}: it forms a dependency cycle with {}: {why}",
                change.key
            ),
        )
    }

    /// Stores in each item, but at most [`MARKED_MAX`], that it is to be dequeued, and why; stores
    /// nothing if not all fit. One plan may have no room to dequeue all, and once the first has
    /// left the cycle can no longer be seen.
    fn mark_for_dequeue(&mut self, ids: &[ItemId], why: &str) -> Result<(), Full> {
        let ids = &ids[..ids.len().min(MARKED_MAX)];
        self.require_room(ids.len())?;
        for id in ids {
            if let Some(item) = self.item_mut(id) {
                item.candidate.refused = Some(cut(why, REASON_BYTES_MAX));
            }
        }
        Ok(())
    }

    /// Returns whether an item is marked for dequeueing because of a new dependency cycle. Never
    /// while it is being merged or runs its reporter jobs.
    pub(super) fn is_marked_for_dequeue(&self, slot: &Slot) -> bool {
        // A candidate with a refusal is never enqueued, so the field is free for this use.
        !slot.status.is_decided()
            && self.items.get(&slot.id).is_some_and(|item| item.candidate.refused.is_some())
    }

    /// Dequeues the first entry with a marked item, and reports all its members with the stored
    /// reason. Returns [`Progress::Reordered`] then, and [`Progress::Settled`] if no item is
    /// marked.
    pub(super) fn dequeue_marked(&mut self) -> Result<Progress, Full> {
        let Some((position, why)) = self.first_marked() else { return Ok(Progress::Settled) };
        self.dequeue_entry(position, "DEQUEUED", |_| {
            Departure::new("DEQUEUED", &why, Occasion::Dequeue)
        })
    }

    /// Returns the position of the first entry with an item that is marked for dequeueing, and why
    /// it is marked; `None` if no item is marked.
    fn first_marked(&self) -> Option<(usize, String)> {
        let slot = self.head.slots().find(|slot| self.is_marked_for_dequeue(slot))?;
        let why = self.items.get(&slot.id)?.candidate.refused.clone()?;
        Some((self.head.position(&slot.id)?, why))
    }
}
