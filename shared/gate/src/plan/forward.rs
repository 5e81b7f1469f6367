//! What is sent to other queues of the tenant: that a change entered a pipeline which supersedes
//! theirs (G19), and changes that belong there since the configuration changed (G18).

use super::admit::{ENTRY_RECORDS, LEAVING_RECORDS};
use super::{Removed, Work, item_id, new_slot};
use crate::arrival::{Arrival, ArrivalKind, Candidate};
use crate::item::{Item, REASON_BYTES_MAX, cut};
use crate::queue::{Slot, Standing};
use crate::report::Occasion;
use sluice_config::pipeline::{Manager, SUPERSEDES_MAX};
use sluice_model::change::ChangeRef;
use sluice_model::{ArrivalId, ItemId, PipelineName, QueueKey};
use std::collections::BTreeSet;

/// Superseded pipelines that one plan tells of a change; the last of them tells the others, as many
/// at a time.
const TOLD_AT_ONCE: usize = 4;

/// Changes that enter together of which each tells so many at once; where more do, one transaction
/// has no place for all of that.
const FEW_TOGETHER: usize = 5;

/// More than there are changes in a queue, or arrivals that one look reads.
const MANY: usize = 2_000;

impl Work<'_> {
    /// Returns how many records the entry of one change writes.
    pub(super) fn entry_records(&self) -> usize {
        self.entry_records_of(1)
    }

    /// Returns how many records the entry of each of so many changes writes that enter together.
    pub(super) fn entry_records_of(&self, together: usize) -> usize {
        let at_once = told_at_once(together);
        ENTRY_RECORDS
            + self.snapshot.pipeline.map_or(0, |pipeline| pipeline.supersedes.len().min(at_once))
    }

    /// Has a change that entered here, as one of so many, leave the pipelines that this one
    /// supersedes, as the same revision. Whether it stands there is known there alone, and by what
    /// arrived before.
    pub(super) fn supersede(
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
        self.tell_superseded(
            (named.as_slice(), told_at_once(together)),
            change,
            &by,
            item.as_str(),
            event_id,
        );
    }

    /// Tells the others of the pipelines that lose what this one has lost. Returns false when not
    /// all of it could be done yet.
    pub(super) fn is_passed_on(
        &mut self,
        arrival: &Arrival,
        change: &ChangeRef,
        by: &PipelineName,
        more: &[PipelineName],
    ) -> bool {
        let has_room = more.is_empty() || self.has_room(TOLD_AT_ONCE);
        if has_room {
            self.tell_superseded(
                (more, TOLD_AT_ONCE),
                change,
                by,
                arrival.id.as_str(),
                &arrival.event_id,
            );
        }
        has_room
    }

    /// Tells some pipelines that a change entered one which supersedes them; what is too much for
    /// one plan is the last one's to tell.
    fn tell_superseded(
        &mut self,
        (pipelines, at_once): (&[PipelineName], usize),
        change: &ChangeRef,
        by: &PipelineName,
        from: &str,
        event_id: &str,
    ) {
        // One that is named twice is told once, and the one that was entered keeps what it has.
        let is_meant =
            |at: usize| pipelines[at] != *by && !pipelines[..at].contains(&pipelines[at]);
        let queue_of = self.snapshot.queue_of;
        let queues = (0..pipelines.len()).filter(|at| is_meant(*at)).filter_map(|at| {
            let queue = queue_of(&pipelines[at], change).filter(|queue| *queue != self.head.key)?;
            Some((at, queue))
        });
        let told: Vec<(usize, QueueKey)> = queues.take(at_once).collect();
        for (place, (at, queue)) in told.into_iter().enumerate() {
            let is_last = place + 1 == at_once;
            let left = (at + 1..pipelines.len()).filter(|at| is_last && is_meant(*at));
            let more = left.map(|at| pipelines[at].clone()).collect();
            let kind = ArrivalKind::Superseded { change: change.clone(), by: by.clone(), more };
            let id = ArrivalId::derive(&[from, &queue.to_string()]);
            self.forward(queue, id, 0, event_id, kind);
        }
    }

    /// Takes a change out that entered a pipeline which supersedes this one; what is being put into
    /// its branch stays. Returns false when not all of it could be done yet.
    pub(super) fn is_superseded(&mut self, change: &ChangeRef, by: &PipelineName) -> bool {
        let here = self
            .head
            .slots
            .iter()
            .position(|slot| slot.change == *change && !slot.standing.is_decided());
        let why = format!("it entered the pipeline {by}, which supersedes this one");
        here.is_none_or(|position| self.leave_at(position, &why, Occasion::Dequeue))
    }

    /// Takes in what is offered here, each change in the queue that it belongs to by now: what is
    /// another one's is sent there. Those that need each other may enter together alone, so that
    /// where they belong to several queues none of them enters. Returns false when not all of it
    /// could be done yet.
    pub(super) fn take_in(&mut self, arrival: &Arrival, candidates: &[Candidate]) -> bool {
        let queues: Vec<Option<QueueKey>> =
            candidates.iter().map(|offered| self.queue_now_of(&offered.change)).collect();
        if queues.iter().all(Option::is_none) {
            return self.enqueue_all(arrival, candidates);
        }
        let of = |queue: &Option<QueueKey>| -> Vec<Candidate> {
            let all = candidates.iter().zip(&queues).filter(|(_, known)| *known == queue);
            all.map(|(candidate, _)| candidate.clone()).collect()
        };
        let others: BTreeSet<&QueueKey> = queues.iter().flatten().collect();
        // What has entered here is found here by the next plan; the others are sent in the plan
        // that takes the arrival.
        if !self.enqueue_all(arrival, &of(&None)) || !self.has_room(others.len()) {
            return false;
        }
        let is_one = self.are_tested_as_one();
        for queue in others {
            let theirs = of(&Some(queue.clone())).into_iter();
            let candidates = theirs.map(|candidate| self.as_elsewhere(candidate, is_one)).collect();
            self.send_on(arrival, queue.clone(), ArrivalKind::Enqueue { candidates });
        }
        true
    }

    /// Sends news of a change that is not here to the queue that it belongs to by now, where they
    /// were told by an older layout: it may have moved there before they were heard. Returns
    /// whether it did.
    pub(super) fn is_sent_after(&mut self, arrival: &Arrival, change: &ChangeRef) -> bool {
        let is_here = self.head.slots.iter().any(|slot| slot.change.key == change.key);
        if is_here || arrival.layout >= self.snapshot.layout.live {
            return false;
        }
        let Some(queue) = self.queue_now_of(change) else { return false };
        let kind = match arrival.kind.clone() {
            // The others are told by this queue.
            ArrivalKind::Superseded { change, by, .. } => {
                ArrivalKind::Superseded { change, by, more: Vec::new() }
            }
            kind => kind,
        };
        self.send_on(arrival, queue, kind);
        true
    }

    /// Sends what arrived here, or a part of it, to another queue.
    fn send_on(&mut self, arrival: &Arrival, queue: QueueKey, kind: ArrivalKind) {
        self.plan.reasons.push(format!("what arrived at {} belongs to {queue} now", self.head.key));
        let id = ArrivalId::derive(&[arrival.id.as_str(), &queue.to_string()]);
        // Behind the changes that moved, and behind what was sent on before it.
        let left = self.snapshot.arrivals.len() - self.plan.taken.len();
        let at = self.now.plus_millis((MANY + MANY.saturating_sub(left)) as u64);
        // Who asked for it counts there too.
        let sent = Arrival { id, at, layout: self.snapshot.layout.live, kind, ..arrival.clone() };
        self.plan.forwards.push((queue, sent));
    }

    /// Returns whether changes are here that belong to other queues by the live layout.
    pub(super) fn has_to_move(&self) -> bool {
        (0..self.head.slots.len()).any(|position| self.queue_to_move_to(position).is_some())
    }

    /// Returns the queue that what stands at `position` has to move to, if any. What is being put
    /// into its branch stays until it is there, and with it whatever needs it, which could not
    /// enter elsewhere before.
    fn queue_to_move_to(&self, position: usize) -> Option<QueueKey> {
        let slot = &self.head.slots[position];
        let needs = self
            .items
            .get(&slot.id)
            .map(|item| item.candidate.needs.as_slice())
            .unwrap_or_default();
        let stays = |other: &Slot| {
            other.standing.is_landing()
                && (other.id == slot.id
                    || needs.iter().any(|need| need.change.key == other.change.key))
        };
        // What has succeeded stays for the rest of its jobs; what needs it need not.
        if slot.standing == Standing::Reporting || self.head.slots.iter().any(stays) {
            None
        } else {
            self.other_queue_of(&slot.change)
        }
    }

    /// Sends changes to the queues that they belong to by the live layout; those that need each
    /// other go together where they are still tested and landed as one. Returns false when some are
    /// left, since the transaction is full.
    pub(super) fn move_to_other_queues(&mut self) -> bool {
        let is_one = self.are_tested_as_one();
        let mut position = 0;
        while position < self.head.slots.len() {
            let bundle = self.head.bundle(position);
            let slots = self.head.slots[bundle.clone()].to_vec();
            let Some(queue) = self.queue_to_move_to(position) else {
                position = bundle.end;
                continue;
            };
            let why =
                format!("the configuration changed: it belongs to the queue {} now", queue.queue);
            let is_stopped = slots.iter().all(|slot| self.stop_builds(&slot.id, &why));
            if !is_stopped || !self.has_room((LEAVING_RECORDS + 1) * slots.len()) {
                return false;
            }
            let known: Vec<Item> =
                slots.iter().filter_map(|slot| self.items.get(&slot.id)).cloned().collect();
            let window = self.head.window;
            for _ in &slots {
                // It enters there as another item, and is told of again.
                self.remove(bundle.start, "DEQUEUED", &why, Occasion::Superseded);
            }
            self.head.window = window;
            // Elsewhere than in a dependent pipeline each goes where it hears what is told of it;
            // those that are tested as one there, too, come to be so by the next event of one.
            let parts: Vec<Vec<Item>> = if is_one {
                vec![known]
            } else {
                known.into_iter().map(|item| vec![item]).collect()
            };
            let behind = self.head.slots.len() + parts.len();
            for (at, part) in parts.into_iter().enumerate() {
                let Some(first) = part.first() else { continue };
                let own =
                    (self.snapshot.queue_of)(&self.head.key.pipeline, &first.candidate.change);
                let queue = own.filter(|_| !is_one).unwrap_or_else(|| queue.clone());
                let id = ArrivalId::derive(&[first.id.as_str(), &queue.to_string()]);
                let event_id = first.event_id.clone();
                let candidates =
                    part.into_iter().map(|item| self.offered(item.candidate, is_one)).collect();
                // It takes several plans, and fewer are left with each: so they enter there in the
                // order that they had here.
                let after = MANY.saturating_sub(behind - 1 - at);
                self.forward(queue, id, after, &event_id, ArrivalKind::Enqueue { candidates });
            }
        }
        true
    }

    /// Returns whether changes that need each other are tested and landed as one by the live
    /// layout.
    fn are_tested_as_one(&self) -> bool {
        self.snapshot.pipeline.is_none_or(|live| live.manager == Manager::Dependent)
    }

    /// Returns a change that stood here as it is offered to another queue.
    fn offered(&self, candidate: Candidate, is_one: bool) -> Candidate {
        Candidate {
            moved_from: Some(self.head.key.queue.clone()),
            ..self.as_elsewhere(candidate, is_one)
        }
    }

    /// Returns a change as another queue is to know it, as one of those that need each other or for
    /// itself. What landed here is merged, which nobody knows there.
    fn as_elsewhere(&self, mut candidate: Candidate, is_one: bool) -> Candidate {
        candidate.needs.retain(|need| !self.head.has_landed(&need.change));
        if is_one {
            candidate.mates.clear();
        } else {
            let cycle = std::mem::take(&mut candidate.cycle);
            candidate.mates.extend(cycle.into_iter().filter(|key| *key != candidate.change.key));
        }
        candidate
    }

    /// Tells of changes that the configuration took out of another queue, and that may not enter
    /// this one: they stood there, so they leave as whatever is taken out does, with a report and a
    /// buildset that says why. Of others the reason is in the log alone, and whoever offered them
    /// has said what there is to say.
    pub(super) fn refuse_moved(
        &mut self,
        arrival: &Arrival,
        candidates: &[&Candidate],
        reason: &str,
    ) {
        for candidate in candidates {
            let change = &candidate.change;
            let Some(from) = &candidate.moved_from else { continue };
            // One that is merged has had its report, or has it from whoever merged it.
            if self.head.has_landed(change)
                || self.head.slots.iter().any(|slot| slot.change == *change)
            {
                continue;
            }
            let queue = &self.head.key;
            let why = format!(
                "the configuration changed: it belongs to the queue {} now, not to {from} where it stood, and may not enter it: {reason}",
                queue.queue
            );
            let slot = new_slot(item_id(&self.head, change, arrival), change.clone());
            let mut item =
                Item::admitted(&slot, (*candidate).clone(), &arrival.event_id, arrival.at);
            item.note(format!("left {}: DEQUEUED: {why}", queue.pipeline));
            self.plan.reports.extend(self.report_item(&item, Occasion::Dequeue, &why));
            self.plan.removed.push(Removed {
                item,
                result: "DEQUEUED",
                why: cut(&why, REASON_BYTES_MAX),
            });
        }
    }

    /// Returns the queue that a change belongs to by the live layout, where it is another one than
    /// this.
    fn other_queue_of(&self, change: &ChangeRef) -> Option<QueueKey> {
        let is_shared = |manager: Manager| matches!(manager, Manager::Dependent | Manager::Serial);
        if !is_shared(self.head.manager)
            && !self.snapshot.pipeline.is_some_and(|live| is_shared(live.manager))
        {
            return None; // The queues of others are their changes' and branches' own, whatever is configured.
        }
        self.queue_now_of(change)
    }

    /// Returns the same of a change that is not here, whose queue may be its own or a shared one by
    /// now.
    fn queue_now_of(&self, change: &ChangeRef) -> Option<QueueKey> {
        (self.snapshot.queue_of)(&self.head.key.pipeline, change)
            .filter(|queue| *queue != self.head.key)
    }

    /// Has something arrive at another queue, behind whatever is sent there with a lower `after`.
    fn forward(
        &mut self,
        queue: QueueKey,
        id: ArrivalId,
        after: usize,
        event_id: &str,
        kind: ArrivalKind,
    ) {
        let at = self.now.plus_millis(after as u64);
        let layout = self.snapshot.layout.live;
        let (event_id, by_operator, taken_up) = (event_id.to_owned(), false, false);
        self.plan
            .forwards
            .push((queue, Arrival { id, at, event_id, layout, by_operator, taken_up, kind }));
    }
}

/// Returns how many superseded pipelines each of so many changes tells that enter together.
fn told_at_once(together: usize) -> usize {
    if together > FEW_TOGETHER { 1 } else { TOLD_AT_ONCE }
}
