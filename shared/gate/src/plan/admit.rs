//! Consumes the queue's inbox: enqueues changes, and applies updates of changes that are queued.

use super::finish::{DEPENDENCIES_CHANGED, DEQUEUE_RECORDS, Departure};
use super::hosting::Routing;
use super::landings::MergedRevisions;
use super::ledger::Full;
use super::pending_messages::BlockedMessages;
use super::{Planner, is_dependent};
use crate::inbox::{Candidate, InboxMessage, InboxMessageKind};
use crate::queue::{Entry, HEAD_BYTES_MAX, Slot, SlotStatus};
use crate::report::Occasion;
use sluice_model::change::{ChangeKey, ChangeRef};
use sluice_model::{ItemId, Timestamp};
use std::collections::BTreeSet;

/// Returns why a change cannot be tested on `needed`, an open change of a project that its tenant
/// does not have.
pub fn change_outside_tenant_reason(needed: &ChangeKey) -> String {
    format!(
        "it depends on {needed}, a change of a project outside of this tenant; it can be tested once that is merged"
    )
}

/// The current state of a change, as read from its forge ([`InboxMessageKind::ChangeUpdated`]).
#[derive(Clone, Copy)]
struct ChangeUpdate<'a> {
    /// The change in its current revision.
    change: &'a ChangeRef,
    /// Why it may no longer be queued; `None` if it may.
    gone: Option<&'a str>,
    /// Whether it is merged.
    merged: bool,
    /// Its open dependencies; `None` if they were not read.
    needs: Option<&'a [ChangeRef]>,
}

impl Planner<'_> {
    /// Applies, forwards or drops inbox messages other than commands and consumes them, as far as
    /// the transaction has room. A message stays while an operator pauses it, behind a waiting
    /// message about the same change, for a landing, for room in the head, or for another queue to
    /// release a change. A waiting enqueue message holds up all later ones. While an operator
    /// discards trigger events, an enqueue message is only logged and consumed, unless an operator
    /// sent it, it is in progress or the configuration moved its changes here. Does nothing while a
    /// newer layout is pending.
    pub(super) fn consume_inbox(&mut self) {
        if self.awaits_layout() {
            // The requirements were checked under a layout that is about to be replaced. The
            // message is consumed once the next layout is live.
            return;
        }
        let inbox = &self.snapshot.inbox;
        let is_other = |at: &usize| !inbox[*at].is_command() && !self.is_held_back(&inbox[*at]);
        let others = sort_by_forge_time(inbox, (0..inbox.len()).filter(is_other).collect());
        let mut blocked = BlockedMessages::default();
        for at in others {
            let message = &self.snapshot.inbox[at];
            if self.snapshot.hold.discard_triggers
                && !message.by_operator
                && !message.in_progress
                && let InboxMessageKind::Enqueue { candidates } = &message.kind
                && candidates.iter().all(|candidate| candidate.moved_from.is_none())
            {
                // Updates of queued changes are still applied; otherwise a change whose author
                // withdrew it would be merged.
                let changes: Vec<String> =
                    candidates.iter().map(|candidate| candidate.change.to_string()).collect();
                let why = format!(
                    "{} not enqueued: trigger events of this tenant are being discarded",
                    changes.join(", ")
                );
                self.ledger.explain(why);
                self.ledger.consume(&message.id);
                continue;
            }
            let must_wait = blocked.blocks(message);
            if must_wait || self.waits_for_landing(message) || !self.fits_in_head(message) {
                blocked.add(message);
                let update = Some(message).filter(|message| {
                    must_wait && matches!(message.kind, InboxMessageKind::ChangeUpdated { .. })
                });
                match update.cloned().map(|update| self.dequeue_early(&update)) {
                    Some(Err(Full)) => return,
                    Some(Ok(())) | None => continue,
                }
            }
            // Clone only messages that are processed now.
            let message = message.clone();
            if self.request_releases(&message) {
                blocked.add(&message);
                continue;
            }
            if !self.has_room(records_needed(&message)) {
                return;
            }
            if self.route_or_apply(&message) == Err(Full) {
                // The next plan sees what is done of this message, and does the rest.
                self.mark_in_progress(&message);
                return;
            }
            self.ledger.consume(&message.id);
        }
    }

    /// Applies one inbox message other than a command if it is for this queue, and otherwise
    /// forwards or drops it. The caller marks it as consumed. With [`Full`] a part of it may be
    /// done already.
    fn route_or_apply(&mut self, message: &InboxMessage) -> Result<(), Full> {
        match self.route(message)? {
            Routing::Consumed => Ok(()),
            Routing::Here => self.apply(message),
        }
    }

    /// Applies one inbox message that [`Self::route`] left to this queue. Candidates that belong to
    /// another queue by the live layout are forwarded there; so is an update or supersession of a
    /// change that is not here and that an older layout routed. Does nothing for commands, which
    /// are applied by [`Planner::apply_commands`]. With [`Full`] a part of it may be done already.
    fn apply(&mut self, message: &InboxMessage) -> Result<(), Full> {
        match &message.kind {
            // The router has already forwarded candidates of other change queues.
            InboxMessageKind::Enqueue { candidates } if self.is_change_queue() => {
                self.enqueue_all(message, candidates)
            }
            InboxMessageKind::Enqueue { candidates } => {
                self.enqueue_or_forward(message, candidates)
            }
            InboxMessageKind::Superseded { change, by, more } => {
                if !self.forward_if_moved(message, change) {
                    self.dequeue_superseded(change, by)?;
                }
                self.pass_supersession_on(message, change, by, more)
            }
            InboxMessageKind::ChangeUpdated { change, .. } => {
                if self.forward_if_moved(message, change) {
                    return Ok(());
                }
                self.apply_update(message)
            }
            InboxMessageKind::MoveToHost { change, as_of, to } => {
                self.release_to(change, *as_of, to)
            }
            InboxMessageKind::Dequeue { .. }
            | InboxMessageKind::Promote { .. }
            | InboxMessageKind::Resume { .. } => Ok(()),
        }
    }

    /// Returns whether a message waits because an operator paused this tenant's events. A message
    /// from an operator never does, even if an older event of the same change is waiting.
    fn is_held_back(&self, message: &InboxMessage) -> bool {
        self.snapshot.hold.pause_triggers && !message.by_operator
    }

    /// Returns whether the next plan can consume a message that this one left in the inbox, by the
    /// same conditions as [`Self::consume_inbox`]. This is so, for example, once the landing that
    /// it waited for has ended. Commands count too, even while a layout is pending.
    pub(super) fn can_consume_more(&self) -> bool {
        let inbox = &self.snapshot.inbox;
        let left = (0..inbox.len()).filter(|at| !self.ledger.is_consumed(&inbox[*at].id));
        let (commands, mut others): (Vec<usize>, Vec<usize>) =
            left.partition(|at| inbox[*at].is_command());
        others.retain(|at| !self.is_held_back(&inbox[*at]));
        let mut blocked = BlockedMessages::default();
        let may_enter = |at: &usize| {
            let message = &inbox[*at];
            let waits = blocked.blocks(message)
                || self.waits_for_landing(message)
                || !self.fits_in_head(message)
                || self.awaits_release(message);
            if waits {
                blocked.add(message);
            }
            !waits
        };
        (!self.awaits_layout() && sort_by_forge_time(inbox, others).iter().any(may_enter))
            || commands.iter().any(|at| !self.waits_for_landing(&inbox[*at]))
    }

    /// Returns the inbox messages, commands included, that this plan has not consumed so far,
    /// oldest first.
    pub(super) fn unconsumed(&self) -> impl Iterator<Item = &InboxMessage> {
        self.snapshot.inbox.iter().filter(|message| !self.ledger.is_consumed(&message.id))
    }

    /// Returns whether the head's record has room for the changes that a message enqueues. A change
    /// that is queued already, or that replaces a queued revision, needs no more room; a revision
    /// that may stay beside others does ([`Self::may_coexist`]). Always `true` for a message that
    /// enqueues nothing new.
    pub(super) fn fits_in_head(&self, message: &InboxMessage) -> bool {
        let InboxMessageKind::Enqueue { candidates } = &message.kind else { return true };
        let is_here = |c: &Candidate| {
            let mut slots = self.head.slots().filter(|slot| slot.change.key == c.change.key);
            slots.any(|slot| !self.may_coexist(slot, &c.change))
        };
        let more = candidates.iter().filter(|candidate| !is_here(candidate)).count();
        more == 0 || self.head.bytes_with(more) <= HEAD_BYTES_MAX
    }

    /// Dequeues a change because of an update that cannot be consumed yet: it waits behind another
    /// message about the same change. The message stays in the inbox and is applied again after
    /// that one, which may enqueue the change again. Without this, two messages could wait for each
    /// other: one for room, the other for its order. Does nothing for other messages, and if the
    /// update dequeues nothing.
    fn dequeue_early(&mut self, message: &InboxMessage) -> Result<(), Full> {
        let is_dequeued =
            self.head.slots().any(|slot| !slot.status.is_decided() && self.dequeues(message, slot));
        if !is_dequeued {
            return Ok(());
        }
        self.require_room(records_needed(message))?;
        self.apply_update(message)
    }

    /// Returns the items of a change in queue order; empty if none is queued. There are several if
    /// older revisions stay queued.
    fn items_of(&self, key: &ChangeKey) -> Vec<ItemId> {
        let slots = self.head.slots().filter(|slot| slot.change.key == *key);
        slots.map(|slot| slot.id.clone()).collect()
    }

    /// Returns whether `as_of` is older than what is known of the queued change, and if so logs
    /// that the message is ignored. If `as_of` is newer, records it in all items of the change as
    /// the time of what is known. Returns `false` and records nothing if `as_of` is 0 (unknown) or
    /// the change is not queued.
    pub(super) fn rejects_outdated(&mut self, change: &ChangeRef, as_of: Timestamp) -> bool {
        let ids = self.items_of(&change.key);
        let known =
            ids.iter().filter_map(|id| self.items.get(id)).map(|item| item.candidate.as_of).max();
        let known = known.unwrap_or(as_of);
        if as_of == Timestamp::default() || known == as_of {
            return false;
        }
        if as_of < known {
            let reason = format!(
                "update of {change} ignored: it is from {}, and a newer one is known",
                as_of.to_iso()
            );
            self.ledger.explain(reason);
            return true;
        }
        for id in &ids {
            if let Some(item) = self.item_mut(id) {
                item.candidate.as_of = as_of;
            }
        }
        false
    }

    /// Applies an update of a change to all its queued revisions. Does nothing for other messages,
    /// and for an update that is older than what is known. With [`Full`] some revisions may have
    /// been updated.
    fn apply_update(&mut self, message: &InboxMessage) -> Result<(), Full> {
        let InboxMessageKind::ChangeUpdated { change, gone, merged, needs, as_of } = &message.kind
        else {
            return Ok(());
        };
        if self.rejects_outdated(change, *as_of) {
            return Ok(());
        }
        let update = ChangeUpdate {
            change,
            gone: gone.as_deref(),
            merged: *merged,
            needs: needs.as_deref(),
        };
        // Closing a change closes all of its revisions.
        let revisions = self.items_of(&change.key);
        revisions.iter().try_for_each(|id| self.apply_update_to(id, message, update))
    }

    /// Applies an update of a change to one item. Dequeues it if the change got another target
    /// branch, may no longer be queued, or has a new revision that dequeues older ones; a merge by
    /// others is remembered. What forms a new dependency cycle with a change that leaves unmerged
    /// is marked for dequeueing. Otherwise, in a dependent queue, follows the change's new
    /// dependencies. The caller has checked [`Planner::waits_for_landing`]. Does nothing if the
    /// item is not queued, or if its landing or its result already decides about it.
    fn apply_update_to(
        &mut self,
        id: &ItemId,
        message: &InboxMessage,
        update: ChangeUpdate<'_>,
    ) -> Result<(), Full> {
        let ChangeUpdate { change, gone, merged, needs } = update;
        let Some(slot) = self.head.slots().find(|slot| slot.id == *id) else {
            return Ok(());
        };
        // The result of a change that succeeded is final. If it was not merged, another revision or
        // branch ends its reporter jobs.
        let is_same = slot.change.branch == change.branch && slot.change.head == change.head;
        if slot.status == SlotStatus::Reporting && (is_same || self.has_landed(&slot.id)) {
            return Ok(());
        }
        match gone {
            // It was tested on another branch than the one it is to be merged into now.
            _ if slot.change.branch != change.branch => {
                let why = format!("its target branch changed to {}", change.branch);
                self.dequeue(id, &why, Occasion::Dequeue)
            }
            // Changes that depend on it stay, and are tested on the branch's current state (Z6.5).
            Some(why) if merged && !slot.status.is_landing() => {
                let entry = self.head.entries.iter().find(|entry| entry.contains(id));
                let together = entry.map(Entry::changes).unwrap_or_default();
                self.dequeue(id, why, Occasion::Dequeue)?;
                if !self.head.has_landed(change) {
                    self.remember_landed(change, MergedRevisions::All);
                }
                self.remember_merged(&together);
                Ok(())
            }
            _ if slot.change.head != change.head && self.dequeues_old_revisions() => {
                self.dequeue(id, "a new revision was uploaded", Occasion::Dequeue)
            }
            // A change that this queue is merging is closed too; the outcome of its landing
            // decides.
            Some(why) if !slot.status.is_landing() => {
                self.mark_new_cycle_members(change, needs.unwrap_or_default(), why)?;
                self.dequeue(id, why, Occasion::for_dequeue_reason(why))
            }
            None if !slot.status.is_landing() => match needs {
                Some(needs) if is_dependent(&self.head) => {
                    self.follow_dependencies(message, change, needs)
                }
                _ => Ok(()),
            },
            _ => Ok(()),
        }
    }

    /// Dequeues a change, with its entry, whose dependencies changed, and enqueues it alone at the
    /// end of the queue if it still may be (Z6.5, D01). A bundle of which it still needs all
    /// members stays and gets the new dependencies. If they form a dependency cycle with other
    /// queued changes, all of it is only marked for dequeueing. Does nothing if this revision is
    /// not queued, or if no dependency was added and none of those removed still waits ahead of it;
    /// merged ones do not count. The caller has checked that the queue is dependent and the change
    /// is not being merged.
    fn follow_dependencies(
        &mut self,
        message: &InboxMessage,
        change: &ChangeRef,
        needs: &[ChangeRef],
    ) -> Result<(), Full> {
        let Some(id) = self.head.slots().find(|slot| slot.change == *change).map(|slot| &slot.id)
        else {
            return Ok(());
        };
        let (Some(position), Some(item)) = (self.head.position(id), self.items.get(id)) else {
            return Ok(());
        };
        let candidate = item.candidate.clone();
        let is_open = |change: &&ChangeRef| !self.head.has_landed(change);
        let before: BTreeSet<&ChangeKey> = candidate
            .needs
            .iter()
            .map(|need| &need.change)
            .filter(is_open)
            .map(|change| &change.key)
            .collect();
        let now: BTreeSet<&ChangeKey> =
            needs.iter().filter(is_open).map(|change| &change.key).collect();
        // A dependency that was closed without being merged here has left its queue or will; this
        // change is then dequeued for that reason.
        let ahead = self.head.entries[..=position].iter().flat_map(|entry| &entry.members);
        // A dependency that is being merged may be merged at the forge already; its landing's
        // outcome decides.
        let is_ahead = |key: &ChangeKey| {
            ahead.clone().any(|slot| slot.change.key == *key && !slot.status.is_decided())
        };
        if now.is_subset(&before) && before.difference(&now).all(|key| !is_ahead(key)) {
            return Ok(());
        }
        let others = self.new_cycle_members(&change.key, needs);
        if !others.is_empty() {
            return self.mark_new_cycle(position, others);
        }
        let known = |need: &ChangeRef| {
            let queued = self.items.values().map(|item| &item.candidate).chain(&candidate.needs);
            let found = queued.into_iter().find(|known| known.change == *need).cloned();
            Candidate {
                needs: Vec::new(),
                bundle: Vec::new(),
                ..found.unwrap_or_else(|| Candidate::bare(need))
            }
        };
        let again = Candidate {
            needs: needs.iter().map(known).collect(),
            refused: None,
            ..candidate.clone()
        };
        let is_needed_still = |member: &ChangeKey| *member == change.key || now.contains(member);
        if !candidate.bundle.is_empty() && candidate.bundle.iter().all(is_needed_still) {
            return self.update_bundle_dependencies(position, &again);
        }
        // It is not known here whether it still belongs to a bundle. If so, intake enqueues it
        // again with the other members.
        let again = Candidate { bundle: Vec::new(), ..again };
        let members = self.head.entries[position].members.iter();
        let leaving: Vec<ItemId> = members.map(|slot| slot.id.clone()).collect();
        // No record of it would be left after dequeueing. So it must be enqueued again in the same
        // plan, or is gone.
        leaving.iter().try_for_each(|id| self.stop_builds(id, DEPENDENCIES_CHANGED))?;
        self.require_room(DEQUEUE_RECORDS * (leaving.len() + 1) + self.enqueue_records())?;
        self.dequeue_change(&change.key, DEPENDENCIES_CHANGED, Occasion::Dequeue)?;
        self.enqueue(message, &[&again])
    }

    /// Dequeues all changes that are not being merged if the live layout has no such pipeline.
    /// Their buildsets are stored, but nothing is reported, since the reporters are gone too.
    /// Landings that are under way are completed (R03). Does nothing while a newer layout is
    /// pending. Where not all fit into the transaction, the next plan dequeues the rest.
    pub(super) fn dequeue_if_pipeline_removed(&mut self) -> Result<(), Full> {
        if self.snapshot.pipeline.is_some() || self.awaits_layout() {
            return Ok(());
        }
        let keys: Vec<ChangeKey> = (self.head.slots())
            .filter(|slot| !slot.status.is_landing())
            .map(|slot| slot.change.key.clone())
            .collect();
        for key in keys {
            let why = "the tenant's configuration no longer has this pipeline";
            self.require_room(DEQUEUE_RECORDS)?;
            self.dequeue_change(&key, why, Occasion::Dequeue)?;
        }
        Ok(())
    }

    /// Dequeues the changes whose projects the live layout no longer has, each with its entry, and
    /// stops their builds. Nothing is reported: the tenant has no business there any more. Landings
    /// that are under way are completed. Does nothing while a newer layout is pending. Where not all
    /// fit into the transaction, the next plan dequeues the rest (Z2.1).
    pub(super) fn dequeue_of_removed_projects(&mut self) -> Result<(), Full> {
        if self.awaits_layout() {
            return Ok(());
        }
        let is_removed = |slot: &&Slot| {
            !slot.status.is_landing()
                && slot.status != SlotStatus::Reporting
                && !(self.snapshot.has_project)(&slot.change.key)
        };
        let removed: Vec<ChangeKey> =
            self.head.slots().filter(is_removed).map(|slot| slot.change.key.clone()).collect();
        for key in removed {
            self.require_room(DEQUEUE_RECORDS)?;
            let why = format!("the tenant no longer has the project {}", key.project);
            self.dequeue_change(&key, &why, Occasion::Superseded)?;
        }
        self.fail_dependents_of_removed_projects()
    }

    /// Reports the changes as failed that are tested on an open change of a project that the live
    /// layout no longer has, and dequeues them with their entries. Their next merge would fail as
    /// if they had a conflict. In a dependent pipeline, a change that needs another one leaves with
    /// it. Where not all fit into the transaction, the next plan dequeues the rest (Z2.1, D05).
    fn fail_dependents_of_removed_projects(&mut self) -> Result<(), Full> {
        if is_dependent(&self.head) {
            return Ok(());
        }
        for _ in 0..self.head.entries.len() {
            let Some((position, need)) = self.first_need_of_removed_project() else { break };
            let why = change_outside_tenant_reason(&need);
            self.dequeue_entry(position, "FAILURE", |_| {
                Departure::new("FAILURE", &why, Occasion::DependencyFailed)
            })?;
        }
        Ok(())
    }

    /// Returns the first entry that depends on an open change of a project that the live layout no
    /// longer has, and that change. Entries that are being merged or have their result are left
    /// out.
    fn first_need_of_removed_project(&self) -> Option<(usize, ChangeKey)> {
        let is_removed = |need: &&Candidate| {
            !(self.snapshot.has_project)(&need.change.key) && !self.head.has_landed(&need.change)
        };
        let removed_need = |slot: &Slot| {
            let item = self.items.get(&slot.id).filter(|_| !slot.status.is_decided())?;
            item.candidate.needs.iter().find(is_removed).map(|need| need.change.key.clone())
        };
        let mut entries = self.head.entries.iter().enumerate();
        entries.find_map(|(position, entry)| {
            Some((position, entry.members.iter().find_map(removed_need)?))
        })
    }

    /// Dequeues the first queued revision of a change with its entry, and stops the builds. Does
    /// nothing if none is queued.
    pub(super) fn dequeue_change(
        &mut self,
        key: &ChangeKey,
        why: &str,
        occasion: Occasion,
    ) -> Result<(), Full> {
        let Some(slot) = self.head.slot_of_change(key) else { return Ok(()) };
        let id = slot.id.clone();
        self.dequeue(&id, why, occasion)
    }
}

/// Moves each update of a change behind the last enqueue message whose facts of that change are
/// older by the forge's clock; all other messages keep their order. The inbox is ordered by the
/// clocks of the writing functions, which differ. Takes and returns positions in `inbox`.
fn sort_by_forge_time(inbox: &[InboxMessage], mut order: Vec<usize>) -> Vec<usize> {
    // Updates of changes that are not being enqueued keep their place.
    let candidates = order.iter().filter_map(|at| match &inbox[*at].kind {
        InboxMessageKind::Enqueue { candidates } => Some(candidates),
        _ => None,
    });
    let entering: BTreeSet<&ChangeKey> =
        candidates.flatten().map(|candidate| &candidate.change.key).collect();
    let mut at = 0;
    while at < order.len() {
        let later = match &inbox[order[at]].kind {
            InboxMessageKind::ChangeUpdated { change, .. } if !entering.contains(&change.key) => {
                None
            }
            InboxMessageKind::ChangeUpdated { change, as_of, .. } => {
                order[at + 1..].iter().rposition(|behind| {
                    let InboxMessageKind::Enqueue { candidates } = &inbox[*behind].kind else {
                        return false;
                    };
                    let is_older = |c: &Candidate| {
                        c.change.key == change.key
                            && Timestamp::default() < c.as_of
                            && c.as_of < *as_of
                    };
                    candidates.iter().any(is_older)
                })
            }
            _ => None,
        };
        match later {
            Some(behind) => order[at..=at + 1 + behind].rotate_left(1),
            None => at += 1,
        }
    }
    order
}

/// Returns how many records applying a message may write, without builds to stop, which are counted
/// one by one. For an enqueue message it is an estimate, at most 80.
fn records_needed(message: &InboxMessage) -> usize {
    match &message.kind {
        // Few candidates replace an older revision. A transaction has ten records more than plans
        // use.
        InboxMessageKind::Enqueue { candidates } => (10 + 4 * candidates.len()).min(80),
        _ => 10,
    }
}
