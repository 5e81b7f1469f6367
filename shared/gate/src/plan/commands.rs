//! Operators' commands to a queue: dequeue a change, promote changes, resume a halted queue.

use super::finish::{DEQUEUE_RECORDS, Departure};
use super::hosting::Routing;
use super::landings::MergedRevisions;
use super::ledger::Full;
use super::{Planner, QueueAction};
use crate::inbox::{DEQUEUED_BY_OPERATOR, InboxMessage, InboxMessageKind};
use crate::item::MergeStatus;
use crate::landing::{Landing, LandingEnd, LandingState};
use crate::queue::{Entry, Slot, SlotStatus};
use crate::report::Occasion;
use sluice_config::pipeline::Manager;
use sluice_model::ItemId;
use sluice_model::change::{ChangeKey, ChangeRef};
use sluice_model::event::ZuulEvent;
use sluice_model::git::Oid;

/// Records that one command writes: the message, and a dequeued change with its report.
const COMMAND_RECORDS: usize = 8;

/// The name in reasons if a command names no operator.
const UNNAMED_OPERATOR: &str = "an operator";

impl Planner<'_> {
    /// Applies operators' commands and consumes them. Must be called before
    /// [`Self::consume_inbox`], which leaves commands out: a command must not queue behind messages
    /// that wait for a layout, or for the landing that halted the queue. Commands that wait for a
    /// landing stay in the inbox. With [`Full`] the last command may be applied in part; it and
    /// those after it stay for the next plan.
    pub(super) fn apply_commands(&mut self) -> Result<(), Full> {
        let commands: Vec<InboxMessage> =
            self.snapshot.inbox.iter().filter(|message| message.is_command()).cloned().collect();
        for message in commands {
            if self.waits_for_landing(&message) {
                continue;
            }
            self.require_room(COMMAND_RECORDS)?;
            // The next plan sees what is done of a command that does not fit.
            self.apply_command(&message)?;
            self.ledger.consume(&message.id);
        }
        Ok(())
    }

    /// Applies one operator's command; the caller has checked [`Planner::waits_for_landing`] and
    /// then consumes it. In an independent pipeline, dequeueing a change that is not queued here is
    /// forwarded to the change's own queue. Does nothing for other messages. With [`Full`] a part
    /// of it may be done; the next plan does the rest.
    fn apply_command(&mut self, message: &InboxMessage) -> Result<(), Full> {
        match &message.kind {
            InboxMessageKind::Resume { by, reason } => self.resume(operator_name(by), reason),
            InboxMessageKind::Dequeue { key, head, by, reason } => match self.route(message)? {
                Routing::Consumed => Ok(()),
                Routing::Here => {
                    self.dequeue_by_operator(key, head.as_ref(), operator_name(by), reason)
                }
            },
            InboxMessageKind::Promote { keys, by } => {
                self.promote(keys, operator_name(by));
                Ok(())
            }
            InboxMessageKind::Enqueue { .. }
            | InboxMessageKind::ChangeUpdated { .. }
            | InboxMessageKind::Superseded { .. }
            | InboxMessageKind::MoveToHost { .. } => Ok(()),
        }
    }

    /// Returns whether a command is left that waits for no landing, since this plan had no room for
    /// it. The next plan applies it, even if the queue is halted.
    pub(super) fn has_pending_command(&self) -> bool {
        self.unconsumed().any(|message| message.is_command() && !self.waits_for_landing(message))
    }

    /// Resumes a halted queue and removes the entry whose landing halted it, if there is one. What
    /// was merged of it is remembered as merged, although its tree differs or its bundle is
    /// incomplete, so that changes that depend on it may stay; what this queue merged also emits
    /// `project-change-merged`. Members that landed as tested report success, all others a failed
    /// merge. Entries that were tested on it are tested again; the window stays. Only logs the
    /// command if the queue is not halted. With [`Full`] nothing is done.
    fn resume(&mut self, by: &str, reason: &str) -> Result<(), Full> {
        let Some(why) = self.head.halted.clone() else {
            self.ledger
                .explain(format!("{} is not halted; {by} resumed it: {reason}", self.head.key));
            return Ok(());
        };
        let halted_at = self.halting_landing();
        let records = halted_at.as_ref().map_or(1, |(position, _)| {
            DEQUEUE_RECORDS * self.head.entries[*position].members.len()
        });
        self.require_room(records)?;
        self.head.halted = None;
        self.ledger.explain(format!("{by} resumed {}: {reason}", self.head.key));
        let Some((position, end)) = halted_at else { return Ok(()) };
        let has_landed = matches!(end, LandingEnd::Mismatch { .. } | LandingEnd::Unproven { .. });
        let why_unmerged = format!("{why}. An operator resumed the queue: {reason}");
        for slot in self.head.entries[position].members.clone() {
            self.note(&slot.id, format!("{by} resumed the queue: {reason}"));
            let is_in_branch = slot.status == SlotStatus::Landed
                || (slot.status == SlotStatus::Landing && has_landed);
            if is_in_branch {
                self.record_merged(&slot);
            } else if slot.status == SlotStatus::Landing
                && matches!(end, LandingEnd::MergedElsewhere { .. })
            {
                // It was merged too, but not by this queue.
                self.remember_landed(&slot.change, MergedRevisions::All);
            }
        }
        // The window stays: all jobs passed, but a landing that needs an operator is no success.
        self.remove_entry(position, |slot| match slot.status {
            SlotStatus::Landed => Departure::new("SUCCESS", "merged", Occasion::Success),
            _ => Departure::new("MERGE_FAILURE", &why_unmerged, Occasion::MergeFailure),
        });
        Ok(())
    }

    /// Remembers in the head that an item's change was merged, and has the plan emit
    /// `project-change-merged` if some pipeline triggers on it.
    pub(super) fn record_merged(&mut self, slot: &Slot) {
        let revisions = self.merged_revisions(&slot.id);
        self.remember_landed(&slot.change, revisions);
        self.emit_event(ZuulEvent::ProjectChangeMerged, &slot.id, &slot.change);
    }

    /// Dequeues a change with its entries on behalf of an operator (R06): all its revisions, or
    /// only those whose commit starts with `head`. Withdraws a landing that cannot be carried out,
    /// and ends a partly merged bundle whose connection was removed. The caller has checked
    /// [`Planner::waits_for_landing`]: any other landing would go on without its entry. The item's
    /// reasons name the operator; the forge sees only the reason given. Only logs the command if
    /// nothing of the change is queued. With [`Full`] only a part may be done.
    fn dequeue_by_operator(
        &mut self,
        key: &ChangeKey,
        head: Option<&Oid>,
        by: &str,
        reason: &str,
    ) -> Result<(), Full> {
        let is_meant = |change: &sluice_model::change::ChangeRef| {
            change.key == *key
                && head.is_none_or(|head| change.head.as_str().starts_with(head.as_str()))
        };
        let meant = self.head.slots().filter(|slot| is_meant(&slot.change));
        let meant: Vec<ItemId> = meant.map(|slot| slot.id.clone()).collect();
        if meant.is_empty() {
            self.ledger.explain(format!(
                "{by} dequeued {key} from {}, but it is not queued there",
                self.head.key
            ));
        }
        let colon = if reason.is_empty() { "" } else { ": " };
        // There may be several revisions of the change.
        meant.iter().try_for_each(|id| {
            let Some(position) = self.head.position(id) else { return Ok(()) };
            self.note(id, format!("{by} dequeued it{colon}{reason}"));
            let mut why = format!("{DEQUEUED_BY_OPERATOR}{colon}{reason}");
            let entry = &self.head.entries[position];
            if let Some(landing) = self.partial_bundle_landing(entry).cloned() {
                return self.end_partial_bundle(position, landing, &why);
            }
            let cancelled = self.revocable_landing(entry).cloned();
            let is_unknown = cancelled.as_ref().is_some_and(may_be_in_branch);
            if let Some(landing) = cancelled.as_ref().filter(|_| is_unknown) {
                let connection = &landing.change.key.connection;
                why.push_str(&format!(
                    "; it is unknown whether it was merged: the connection {connection} was removed during the merge"
                ));
            }
            self.dequeue(id, &why, Occasion::Dequeue)?;
            if let Some(landing) = cancelled {
                self.ledger.wake_tenant_if(
                    landing.changes_configuration
                        || landing.later_members.iter().any(|other| other.configures),
                );
                let end = if is_unknown {
                    LandingEnd::Unproven { why }
                } else {
                    LandingEnd::Refused { why }
                };
                self.withdraw(landing, end);
            }
            Ok(())
        })
    }

    /// Has the plan write `end` as the end of a landing, on condition that its record is unchanged.
    /// The caller has made sure that it fits.
    fn withdraw(&mut self, landing: Landing, end: LandingEnd) {
        let state = LandingState::Ended { end, at: self.now };
        self.ledger.push(QueueAction::WithdrawLanding(Box::new(Landing { state, ..landing })));
    }

    /// Returns the landing of an entry, if an operator may cancel it; `None` otherwise. It has been
    /// in trouble for a while, and either it was never started, or its forge can never be asked
    /// about its outcome. The plan fails if the landing is started meanwhile, since it is written
    /// only if unchanged. For a bundle it is the landing of the first member, with no member
    /// merged.
    pub(super) fn revocable_landing(&self, entry: &Entry) -> Option<&Landing> {
        let mut slots = entry.members.iter();
        let first = slots.next().filter(|first| first.status == SlotStatus::Landing)?;
        let landing = self.landing_of(first)?;
        let trouble = landing
            .trouble
            .as_ref()
            .filter(|_| !matches!(landing.state, LandingState::Ended { .. }))?;
        let is_whole = slots.all(|slot| slot.status == SlotStatus::AwaitingLanding);
        (is_whole && (trouble.is_connection_removed || !may_be_in_branch(landing)))
            .then_some(landing)
    }

    /// Returns the landing at which a partly merged bundle stopped, if an operator may end the
    /// bundle: the landing has not ended and its connection was removed, so its outcome will never
    /// be known. `None` otherwise.
    pub(super) fn partial_bundle_landing(&self, entry: &Entry) -> Option<&Landing> {
        let mut slots = entry.members.iter();
        let has_landed = slots.clone().any(|slot| slot.status == SlotStatus::Landed);
        let now = slots.find(|slot| slot.status == SlotStatus::Landing).filter(|_| has_landed)?;
        let landing = self.landing_of(now)?;
        let is_gone = landing.trouble.as_ref().is_some_and(|trouble| trouble.is_connection_removed);
        (is_gone && !matches!(landing.state, LandingState::Ended { .. })).then_some(landing)
    }

    /// Removes the partly merged bundle at `position` from the queue and ends its `landing`. Merged
    /// members are remembered, emit `project-change-merged` and are reported as merged. All others
    /// are dequeued for the reason `why`; for the one whose landing was interrupted, the reason
    /// says if it may be merged. Also has the plan wake the tenant. With [`Full`] nothing is done.
    fn end_partial_bundle(
        &mut self,
        position: usize,
        landing: Landing,
        why: &str,
    ) -> Result<(), Full> {
        let slots = self.head.entries[position].members.clone();
        self.require_room(DEQUEUE_RECORDS * slots.len() + 1)?;
        let landed = slots.iter().filter(|slot| slot.status == SlotStatus::Landed);
        let landed: Vec<String> = landed.map(|slot| slot.change.to_string()).collect();
        let partly_why = format!(
            "{why}; {} of the same dependency cycle was merged, but the connection {} was removed before the rest was",
            landed.join(", "),
            landing.change.key.connection
        );
        let is_unknown = may_be_in_branch(&landing);
        let unknown_why =
            format!("{partly_why}; it is unknown whether {} was merged", landing.change);
        for slot in slots.iter().filter(|slot| slot.status == SlotStatus::Landed) {
            self.record_merged(slot);
        }
        // The window stays, as when a halted queue is resumed.
        self.remove_entry(position, |slot| match slot.status {
            SlotStatus::Landed => Departure::new("SUCCESS", "merged", Occasion::Success),
            _ if is_unknown && slot.id == landing.item => {
                Departure::new("DEQUEUED", &unknown_why, Occasion::Dequeue)
            }
            _ => Departure::new("DEQUEUED", &partly_why, Occasion::Dequeue),
        });
        self.ledger.wake_tenant_if(true);
        let end = if is_unknown {
            LandingEnd::Unproven { why: unknown_why }
        } else {
            LandingEnd::Refused { why: partly_why }
        };
        self.withdraw(landing, end);
        Ok(())
    }

    /// Moves changes to the front in the order of `keys`, each with its bundle and behind its
    /// queued dependencies, which move too; of several queued revisions only the first moves. The
    /// order of the others stays. Changes that are being merged or run reporter jobs stay in front
    /// of them, and in serial and supercedent queues everything that has started. A change that is
    /// not queued is only logged. [`Self::align`] then resets what is tested on another state.
    fn promote(&mut self, keys: &[ChangeKey], by: &str) {
        let is_first = |slot: &Slot| match self.head.manager {
            // A requested merge counts as started: its result would let the item start at any
            // position.
            Manager::Serial | Manager::Supercedent => {
                slot.status != SlotStatus::Waiting
                    || self
                        .items
                        .get(&slot.id)
                        .is_some_and(|item| item.merge_status != MergeStatus::NotRequested)
            }
            Manager::Dependent | Manager::Independent => {
                matches!(
                    slot.status,
                    SlotStatus::Landing | SlotStatus::Landed | SlotStatus::Reporting
                )
            }
        };
        let entries = &self.head.entries;
        // The positions of the entries that move to the front or stay there, in their new order.
        let mut front: Vec<usize> =
            (0..entries.len()).filter(|at| entries[*at].members.iter().any(is_first)).collect();
        for key in keys {
            let Some(slot) = self.head.slot_of_change(key) else {
                self.ledger.explain(format!(
                    "{by} promoted {key} in {}, but it is not queued there",
                    self.head.key
                ));
                continue;
            };
            let needs = self
                .items
                .get(&slot.id)
                .map(|item| item.candidate.needs.as_slice())
                .unwrap_or_default();
            let own = needs.iter().map(|need| &need.change).chain([&slot.change]);
            let has = |entry: &Entry, change: &ChangeRef| {
                entry.members.iter().any(|slot| slot.change == *change)
            };
            let own: Vec<usize> = own
                .filter_map(|change| entries.iter().position(|entry| has(entry, change)))
                .collect();
            for (at, position) in own.iter().enumerate() {
                // Place a bundle at its last member: its other dependencies come before that one.
                if !own[at + 1..].contains(position) && !front.contains(position) {
                    front.push(*position);
                }
            }
        }
        let before: Vec<ItemId> = self.head.slots().map(|slot| slot.id.clone()).collect();
        let mut rest =
            std::mem::take(&mut self.head.entries).into_iter().map(Some).collect::<Vec<_>>();
        let entries = front.iter().filter_map(|at| rest[*at].take()).collect::<Vec<Entry>>();
        let moved: Vec<ItemId> = (entries.iter().flat_map(|entry| &entry.members).zip(&before))
            .filter(|(slot, before)| slot.id != **before)
            .map(|(slot, _)| slot.id.clone())
            .collect();
        // The other entries keep their order.
        self.head.entries = entries.into_iter().chain(rest.into_iter().flatten()).collect();
        for id in moved {
            self.note(&id, format!("{by} moved it to the front"));
        }
        self.ledger.explain(format!("{by} promoted changes of {}", self.head.key));
    }

    /// Returns the position of the first entry whose landing has ended, but whose end the queue has
    /// not applied yet, and that end: in a halted queue, the landing at which it stopped. `None` if
    /// there is none.
    fn halting_landing(&self) -> Option<(usize, LandingEnd)> {
        self.head.entries.iter().enumerate().find_map(|(position, entry)| {
            let slot = entry.members.iter().find(|slot| slot.status == SlotStatus::Landing)?;
            match &self.landing_of(slot)?.state {
                LandingState::Ended { end, .. } => Some((position, end.clone())),
                _ => None,
            }
        })
    }
}

/// Returns whether a landing may have merged its change: it was started, or an earlier push may
/// still take effect.
fn may_be_in_branch(landing: &Landing) -> bool {
    landing.state != LandingState::Ordered || landing.has_unanswered_push
}

/// Returns how reasons name the operator who sent a command.
fn operator_name(by: &str) -> &str {
    if by.is_empty() { UNNAMED_OPERATOR } else { by }
}
