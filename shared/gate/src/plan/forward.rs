//! Messages to other queues of the tenant: a change entered a pipeline that supersedes theirs
//! (G19), or belongs to them since the configuration changed (G18).

use super::enqueue::ENQUEUE_RECORDS;
use super::finish::{DEQUEUE_RECORDS, Departure};
use super::ledger::Full;
use super::{Planner, QueueAction, RemovedItem, item_id};
use crate::inbox::{Candidate, InboxMessage, InboxMessageKind};
use crate::item::{Item, REASON_BYTES_MAX, cut};
use crate::queue::{Slot, SlotStatus};
use crate::report::Occasion;
use sluice_config::pipeline::{Manager, SUPERSEDES_MAX};
use sluice_model::change::ChangeRef;
use sluice_model::{InboxMessageId, ItemId, PipelineName, QueueKey};
use std::collections::BTreeSet;

/// The superseded pipelines that one plan notifies about a change. The last of them notifies the
/// next ones, as many at a time.
const SUPERSESSIONS_AT_ONCE: usize = 4;

/// The largest bundle whose members each notify [`SUPERSESSIONS_AT_ONCE`] pipelines; more do not
/// fit into one transaction.
const SMALL_BUNDLE: usize = 5;

/// A span of milliseconds to order forwarded messages with: larger than the number of changes in a
/// queue or of inbox messages read at once.
const QUEUE_ORDER_MILLIS: usize = 2_000;

impl Planner<'_> {
    /// Returns how many records enqueueing one change alone writes at most.
    pub(super) fn enqueue_records(&self) -> usize {
        self.enqueue_records_of(1)
    }

    /// Returns how many records enqueueing one change writes at most if `together` changes are
    /// enqueued together.
    pub(super) fn enqueue_records_of(&self, together: usize) -> usize {
        let at_once = supersessions_at_once(together);
        ENQUEUE_RECORDS
            + self.snapshot.pipeline.map_or(0, |pipeline| pipeline.supersedes.len().min(at_once))
    }

    /// Has the plan send the supersession of the change of `item`, which is being enqueued, to the
    /// pipelines that this one supersedes, at most [`SUPERSEDES_MAX`]: they dequeue the same
    /// revision. One plan notifies only some of them, fewer if many changes are enqueued
    /// `together`; the last one notifies the next. Does nothing if the live layout has no such
    /// pipeline. The caller has reserved room.
    pub(super) fn send_supersessions(
        &mut self,
        item: &ItemId,
        change: &ChangeRef,
        together: usize,
        event_id: &str,
    ) {
        let Some(pipeline) = self.snapshot.pipeline else { return };
        let named: Vec<PipelineName> =
            pipeline.supersedes.iter().take(SUPERSEDES_MAX).cloned().collect();
        let by = self.head.key.pipeline.clone();
        self.forward_supersession(
            &named,
            supersessions_at_once(together),
            change,
            &by,
            item.as_str(),
            event_id,
        );
    }

    /// Has the plan notify the next [`SUPERSESSIONS_AT_ONCE`] of the pipelines `more` that a change
    /// entered the pipeline `by`, which supersedes them. The last of these notifies the rest. Does
    /// nothing if `more` is empty.
    pub(super) fn pass_supersession_on(
        &mut self,
        message: &InboxMessage,
        change: &ChangeRef,
        by: &PipelineName,
        more: &[PipelineName],
    ) -> Result<(), Full> {
        if more.is_empty() {
            return Ok(());
        }
        self.require_room(SUPERSESSIONS_AT_ONCE)?;
        self.forward_supersession(
            more,
            SUPERSESSIONS_AT_ONCE,
            change,
            by,
            message.id.as_str(),
            &message.event_id,
        );
        Ok(())
    }

    /// Has the plan notify at most `at_once` pipelines that a change entered the pipeline `by`,
    /// which supersedes them; if there are more, the last one notified gets the rest of the list.
    /// Skips repeated pipelines, `by` itself, and those without another queue for the change.
    /// `cause` is the id of the item or inbox message that leads to this, from which the ids of the
    /// messages are derived. The caller has made sure that `at_once` records fit.
    fn forward_supersession(
        &mut self,
        pipelines: &[PipelineName],
        at_once: usize,
        change: &ChangeRef,
        by: &PipelineName,
        cause: &str,
        event_id: &str,
    ) {
        // Skip duplicates, and the pipeline that was entered itself.
        let is_target =
            |at: usize| pipelines[at] != *by && !pipelines[..at].contains(&pipelines[at]);
        let queue_of = self.snapshot.queue_of;
        let queues = (0..pipelines.len()).filter(|at| is_target(*at)).filter_map(|at| {
            let queue = queue_of(&pipelines[at], change).filter(|queue| *queue != self.head.key)?;
            Some((at, queue))
        });
        let targets: Vec<(usize, QueueKey)> = queues.take(at_once).collect();
        for (number, (at, queue)) in targets.into_iter().enumerate() {
            let is_last = number + 1 == at_once;
            let left = (at + 1..pipelines.len()).filter(|at| is_last && is_target(*at));
            let more = left.map(|at| pipelines[at].clone()).collect();
            let kind =
                InboxMessageKind::Superseded { change: change.clone(), by: by.clone(), more };
            let id = InboxMessageId::derive(&[cause, &queue.to_string()]);
            self.forward_new(queue, id, 0, event_id, kind);
        }
    }

    /// Dequeues a change that entered the pipeline `by`, which supersedes this one. Does nothing if
    /// that revision is not queued, is being merged, or has succeeded.
    pub(super) fn dequeue_superseded(
        &mut self,
        change: &ChangeRef,
        by: &PipelineName,
    ) -> Result<(), Full> {
        let is_it = |slot: &&Slot| slot.change == *change && !slot.status.is_decided();
        let here = self.head.slots().find(is_it).map(|slot| slot.id.clone());
        let why = format!("it entered the pipeline {by}, which supersedes this one");
        here.map_or(Ok(()), |id| self.dequeue(&id, &why, Occasion::Dequeue))
    }

    /// Enqueues candidates here, or forwards them to the queue that they belong to by the live
    /// layout. A bundle whose members belong to several queues is not enqueued at all. Changes that
    /// were merged here are not forwarded, since the other queue cannot know that.
    pub(super) fn enqueue_or_forward(
        &mut self,
        message: &InboxMessage,
        candidates: &[Candidate],
    ) -> Result<(), Full> {
        let queues: Vec<Option<QueueKey>> =
            candidates.iter().map(|offered| self.live_queue_of(&offered.change)).collect();
        if queues.iter().all(Option::is_none) {
            return self.enqueue_all(message, candidates);
        }
        let of = |queue: &Option<QueueKey>| -> Vec<Candidate> {
            let all = candidates.iter().zip(&queues).filter(|(_, known)| *known == queue);
            all.map(|(candidate, _)| candidate.clone()).collect()
        };
        let others: BTreeSet<&QueueKey> = queues.iter().flatten().collect();
        // The next plan sees which candidates are enqueued here. The others are forwarded in the
        // plan that consumes the message.
        self.enqueue_all(message, &of(&None))?;
        self.require_room(others.len())?;
        let in_bundle = self.forms_bundles();
        for queue in others {
            let theirs = of(&Some(queue.clone())).into_iter();
            let (landed, open): (Vec<Candidate>, Vec<Candidate>) =
                theirs.partition(|candidate| self.head.has_landed(&candidate.change));
            for candidate in landed {
                self.log_refusal(&candidate.change, "it has landed");
            }
            if open.is_empty() {
                continue;
            }
            let candidates = (open.into_iter())
                .map(|candidate| self.candidate_for_other_queue(candidate, in_bundle))
                .collect();
            self.forward_part(message, queue.clone(), InboxMessageKind::Enqueue { candidates });
        }
        Ok(())
    }

    /// Forwards a message about a change that is not here to the queue it belongs to by the live
    /// layout, if the message was routed by an older one. Returns whether it was forwarded. A
    /// forwarded supersession lists no further pipelines, since this queue notifies them. The
    /// caller has reserved room.
    pub(super) fn forward_if_moved(&mut self, message: &InboxMessage, change: &ChangeRef) -> bool {
        let is_here = self.head.slot_of_change(&change.key).is_some();
        if is_here || message.layout >= self.snapshot.layout.live {
            return false;
        }
        let Some(queue) = self.live_queue_of(change) else { return false };
        let kind = match message.kind.clone() {
            // This queue notifies the others.
            InboxMessageKind::Superseded { change, by, .. } => {
                InboxMessageKind::Superseded { change, by, more: Vec::new() }
            }
            kind => kind,
        };
        self.forward_part(message, queue, kind);
        true
    }

    /// Has the plan forward the message `kind`, all or a part of `message`, to another queue, and
    /// logs that. There it comes after the changes that moved there and after messages forwarded
    /// before. The original message stays in the inbox until the caller consumes it.
    fn forward_part(&mut self, message: &InboxMessage, queue: QueueKey, kind: InboxMessageKind) {
        self.ledger.explain(format!(
            "message forwarded from {} to {queue}: its change belongs there now",
            self.head.key
        ));
        let id = InboxMessageId::derive(&[message.id.as_str(), &queue.to_string()]);
        // After the changes that moved there, and after the messages forwarded before.
        let left = self.snapshot.inbox.len() - self.ledger.consumed_count();
        let at = self
            .now
            .plus_millis((QUEUE_ORDER_MILLIS + QUEUE_ORDER_MILLIS.saturating_sub(left)) as u64);
        // The author of the message stays the same.
        let sent =
            InboxMessage { id, at, layout: self.snapshot.layout.live, kind, ..message.clone() };
        self.send(queue, sent);
    }

    /// Returns whether changes are queued here that belong to other queues by the live layout.
    pub(super) fn has_changes_to_move(&self) -> bool {
        self.head.slots().any(|slot| self.queue_to_move_to(slot).is_some())
    }

    /// Returns the queue that a change has to move to, as [`Self::other_queue_of`] does; `None`
    /// also if the change has succeeded, and while it or one of its dependencies is being merged,
    /// since the dependency could not be enqueued there.
    fn queue_to_move_to(&self, slot: &Slot) -> Option<QueueKey> {
        let needs = self
            .items
            .get(&slot.id)
            .map(|item| item.candidate.needs.as_slice())
            .unwrap_or_default();
        let stays = |other: &Slot| {
            other.status.is_landing()
                && (other.id == slot.id
                    || needs.iter().any(|need| need.change.key == other.change.key))
        };
        // An entry that succeeded stays for its reporter jobs; entries that depend on it need not.
        if slot.status == SlotStatus::Reporting || self.head.slots().any(stays) {
            None
        } else {
            self.other_queue_of(&slot.change)
        }
    }

    /// Moves entries to the queues that they belong to by the live layout, a bundle by its first
    /// member: dequeues them here without a report, stops their builds, and sends them there.
    /// Members of a bundle move together if the pipeline still forms bundles. Where not all fit
    /// into the transaction, the next plan moves the rest.
    pub(super) fn move_to_other_queues(&mut self) -> Result<(), Full> {
        let in_bundle = self.forms_bundles();
        let mut position = 0;
        while position < self.head.entries.len() {
            let slots = &self.head.entries[position].members;
            let Some(queue) = self.queue_to_move_to(&slots[0]) else {
                position += 1;
                continue;
            };
            let slots = slots.clone();
            let why =
                format!("the configuration changed: it belongs to the queue {} now", queue.queue);
            slots.iter().try_for_each(|slot| self.stop_builds(&slot.id, &why))?;
            self.require_room((DEQUEUE_RECORDS + 1) * slots.len())?;
            let known: Vec<Item> =
                slots.iter().filter_map(|slot| self.items.get(&slot.id)).cloned().collect();
            // They are enqueued there as new items, with their own reports.
            self.remove_entry(position, |_| Departure::new("DEQUEUED", &why, Occasion::Superseded));
            // Without bundles each change goes to its own queue. If they form a bundle there, the
            // next event about one of them makes it.
            let parts: Vec<Vec<Item>> = if in_bundle {
                vec![known]
            } else {
                known.into_iter().map(|item| vec![item]).collect()
            };
            let behind = self.head.slots().count() + parts.len();
            for (at, part) in parts.into_iter().enumerate() {
                let Some(first) = part.first() else { continue };
                let own =
                    (self.snapshot.queue_of)(&self.head.key.pipeline, &first.candidate.change);
                let queue = own.filter(|_| !in_bundle).unwrap_or_else(|| queue.clone());
                let id = InboxMessageId::derive(&[first.id.as_str(), &queue.to_string()]);
                let event_id = first.event_id.clone();
                let candidates = part
                    .into_iter()
                    .map(|item| self.moved_candidate(item.candidate, in_bundle))
                    .collect();
                // Several plans may move the entries; the time keeps their order there.
                let after = QUEUE_ORDER_MILLIS.saturating_sub(behind - 1 - at);
                self.forward_new(
                    queue,
                    id,
                    after,
                    &event_id,
                    InboxMessageKind::Enqueue { candidates },
                );
            }
        }
        Ok(())
    }

    /// Returns whether the live pipeline forms bundles in a shared queue; `true` if the live layout
    /// has no such pipeline.
    fn forms_bundles(&self) -> bool {
        self.snapshot.pipeline.is_none_or(|live| live.manager == Manager::Dependent)
    }

    /// Returns the candidate that moves a queued change to another queue, with this one as its
    /// origin. With `in_bundle` it keeps its bundle.
    fn moved_candidate(&self, candidate: Candidate, in_bundle: bool) -> Candidate {
        Candidate {
            moved_from: Some(self.head.key.queue.clone()),
            ..self.candidate_for_other_queue(candidate, in_bundle)
        }
    }

    /// Returns a candidate for another queue. With `in_bundle` it keeps its bundle; otherwise the
    /// members become dependencies that need it in turn. Removes dependencies merged here, which
    /// the other queue cannot know.
    fn candidate_for_other_queue(&self, mut candidate: Candidate, in_bundle: bool) -> Candidate {
        candidate.needs.retain(|need| !self.head.has_landed(&need.change));
        if in_bundle {
            candidate.cycle_needs.clear();
        } else {
            let cycle = std::mem::take(&mut candidate.bundle);
            candidate
                .cycle_needs
                .extend(cycle.into_iter().filter(|key| *key != candidate.change.key));
        }
        candidate
    }

    /// Reports those candidates that the configuration moved here, since they are refused for
    /// `reason` although they were queued: each gets a dequeue report and a buildset. Skips those
    /// that are merged or queued here in the same revision, and all other candidates: their sender
    /// has reported what there is to report. Logs nothing. The caller has reserved room.
    pub(super) fn report_refused_moves(
        &mut self,
        message: &InboxMessage,
        candidates: &[&Candidate],
        reason: &str,
    ) {
        for candidate in candidates {
            let change = &candidate.change;
            let Some(from) = &candidate.moved_from else { continue };
            // A merged change has its final report, here or elsewhere.
            if self.head.has_landed(change) || self.head.slots().any(|slot| slot.change == *change)
            {
                continue;
            }
            let queue = &self.head.key;
            let why = format!(
                "the configuration changed: it belongs to the queue {} instead of {from}, and may not be enqueued there: {reason}",
                queue.queue
            );
            let slot = Slot::new(item_id(&self.head, change, message), change.clone());
            let mut item =
                Item::admitted(&slot, (*candidate).clone(), &message.event_id, message.at);
            item.add_reason(self.now, format!("left {}: DEQUEUED: {why}", queue.pipeline));
            let report = self.report_item(&item, Occasion::Dequeue, &why);
            self.ledger.report(report);
            let why = cut(&why, REASON_BYTES_MAX);
            let refused = RemovedItem { item, result: "DEQUEUED", why };
            self.ledger.push(QueueAction::RemoveItem(Box::new(refused)));
        }
    }

    /// Returns the queue that a change queued here belongs to by the live layout, if it is not this
    /// one. `None` if the live layout has no such pipeline, and if the pipeline is neither
    /// dependent nor serial, both by this queue's head and by the live layout. If only one of them
    /// is, the pipeline's manager has changed, and the change belongs elsewhere.
    fn other_queue_of(&self, change: &ChangeRef) -> Option<QueueKey> {
        let is_shared = |manager: Manager| matches!(manager, Manager::Dependent | Manager::Serial);
        if !is_shared(self.head.manager)
            && !self.snapshot.pipeline.is_some_and(|live| is_shared(live.manager))
        {
            // Such entries finish where they are, even if the manager changed between these two.
            return None;
        }
        self.live_queue_of(change)
    }

    /// Returns the queue that a change belongs to by the live layout, if it is not this one; `None`
    /// also if there is no such pipeline. Unlike [`Self::other_queue_of`], for any pipeline and
    /// also for changes that are not queued here.
    fn live_queue_of(&self, change: &ChangeRef) -> Option<QueueKey> {
        (self.snapshot.queue_of)(&self.head.key.pipeline, change)
            .filter(|queue| *queue != self.head.key)
    }

    /// Has the plan write a new message under the live layout, not by an operator, to another
    /// queue's inbox and wake that queue. It is dated `after` milliseconds from now: a larger
    /// number puts it later in that queue's order. The caller has made sure that it fits.
    fn forward_new(
        &mut self,
        queue: QueueKey,
        id: InboxMessageId,
        after: usize,
        event_id: &str,
        kind: InboxMessageKind,
    ) {
        let at = self.now.plus_millis(after as u64);
        let layout = self.snapshot.layout.live;
        let (event_id, by_operator, in_progress) = (event_id.to_owned(), false, false);
        self.send(queue, InboxMessage { id, at, event_id, layout, by_operator, in_progress, kind });
    }
}

/// Returns how many superseded pipelines each of `together` changes notifies at once.
fn supersessions_at_once(together: usize) -> usize {
    if together > SMALL_BUNDLE { 1 } else { SUPERSESSIONS_AT_ONCE }
}
