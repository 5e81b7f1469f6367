//! Changes that need each other where each has a queue of its own: they stand as one in the own
//! queue of the first of them by its key, and the own queues of the others say so, and send on
//! whatever they are reported.

use super::compare::list;
use super::facts::Facts;
use super::line::{Line, Place};
use super::turn::Turn;
use sluice_config::pipeline::Manager;
use sluice_gate::queue::own_queue;
use sluice_gate::{Candidate, InboxMessage, InboxMessageKind};
use sluice_model::change::{ChangeKey, ChangeRef};
use sluice_model::{QueueKey, QueueName, Timestamp};
use sluice_records::queue::partition;
use std::collections::{BTreeMap, BTreeSet};

impl Line {
    /// Returns the own queues of those that stand here as guests.
    pub(super) fn guests(&self) -> BTreeSet<QueueName> {
        let own = self
            .places
            .iter()
            .filter(|_| self.has_guests())
            .map(|place| own_queue(&place.change.key));
        own.filter(|own| *own != self.key.queue).collect()
    }

    /// Returns whether each change of its pipeline has a queue of its own.
    fn has_guests(&self) -> bool {
        self.manager == Manager::Independent
    }

    fn has(&self, key: &ChangeKey) -> bool {
        self.places.iter().any(|place| place.change.key == *key)
    }
}

impl Place {
    /// Returns whether it is tested with the changes that a candidate of it is tied to.
    fn is_tied_alike(&self, candidate: &Candidate) -> bool {
        let tied = |cycle: &[ChangeKey], mates: &[ChangeKey]| -> BTreeSet<ChangeKey> {
            cycle.iter().chain(mates).filter(|key| **key != self.change.key).cloned().collect()
        };
        tied(&self.cycle, &self.mates) == tied(&candidate.bundle, &candidate.cycle_needs)
    }
}

impl Turn<'_> {
    /// Sends all that was taken in on to the queue in which its change stands: nothing else is
    /// decided meanwhile.
    pub(super) fn send_all_on(&mut self, to: &QueueName) {
        let facts = self.facts;
        for (_, arrival) in &facts.taken {
            self.send(arrival, to);
        }
    }

    fn send(&mut self, arrival: &InboxMessage, to: &QueueName) {
        self.step(format!("what arrived is for {to}"));
        self.sent.push((QueueKey { queue: to.clone(), ..self.line.key.clone() }, arrival.clone()));
    }

    /// Returns whether something that was taken in is not for this queue: it is sent to the one
    /// that it is for, or comes to nothing. What is to stand there and stands here leaves before.
    pub(super) fn is_for_another(&mut self, arrival: &InboxMessage) -> bool {
        if !self.line.has_guests() {
            return false;
        }
        let home = match &arrival.kind {
            InboxMessageKind::Enqueue { candidates } => {
                if self.is_behind_elsewhere(arrival, candidates) {
                    self.step(
                        "a newer revision of what is offered stands in its own queue".to_owned(),
                    );
                    return true;
                }
                let Some(last) = candidates.last() else { return false };
                own_queue(last.bundle.iter().min().unwrap_or(&last.change.key))
            }
            InboxMessageKind::ChangeUpdated { change, .. }
            | InboxMessageKind::Superseded { change, .. }
            | InboxMessageKind::MoveToHost { change, .. } => own_queue(&change.key),
            InboxMessageKind::Dequeue { key, .. } => own_queue(key),
            InboxMessageKind::Promote { .. } | InboxMessageKind::Resume { .. } => return false,
        };
        if home == self.line.key.queue {
            return false;
        }
        let is_here = match &arrival.kind {
            InboxMessageKind::Enqueue { candidates }
                if candidates.iter().any(|candidate| self.keeps(candidate)) =>
            {
                return true;
            }
            InboxMessageKind::Enqueue { .. } => false,
            InboxMessageKind::ChangeUpdated { change, .. }
            | InboxMessageKind::Superseded { change, .. }
            | InboxMessageKind::MoveToHost { change, .. } => self.line.has(&change.key),
            InboxMessageKind::Dequeue { key, .. } => self.line.has(key),
            InboxMessageKind::Promote { .. } | InboxMessageKind::Resume { .. } => true,
        };
        if !is_here {
            self.send(arrival, &home);
        }
        !is_here
    }

    /// Returns whether an offer came to nothing since a newer revision of one of its changes stood
    /// in its own queue. When that was read is in no record: that it ever stood in this pipeline
    /// has to be enough.
    fn is_behind_elsewhere(&self, arrival: &InboxMessage, candidates: &[Candidate]) -> bool {
        let mut others = candidates
            .iter()
            .filter(|candidate| own_queue(&candidate.change.key) != self.line.key.queue);
        let was_newer =
            |one: &Candidate| self.known.was_newer(&self.line.key, &one.change, one.as_of);
        others.any(was_newer)
            && self.comes_to_nothing(arrival, candidates)
            && !self.was_sent(arrival, None)
    }

    /// Returns whether a decision sent something that it took in on as it was, to this queue or to
    /// any.
    fn was_sent(&self, arrival: &InboxMessage, to: Option<&QueueKey>) -> bool {
        let to = to.map(partition);
        self.facts.sent.iter().any(|(partition, sent)| {
            let is_there = to.as_ref().is_none_or(|to| to == partition);
            // Something may have left for it in the same decision; that something left before is
            // not forgotten.
            let (id, taken_up) = (arrival.id.clone(), arrival.in_progress);
            is_there
                && (sent.in_progress || !taken_up)
                && InboxMessage { id, in_progress: taken_up, ..sent.clone() } == *arrival
        })
    }

    /// Takes out what stands here of a change that is to stand in another queue. Returns whether it
    /// is kept: it is the very one, with the same changes, or newer than what is offered.
    fn keeps(&mut self, candidate: &Candidate) -> bool {
        let change = &candidate.change;
        while let Some(at) =
            self.line.places.iter().position(|place| place.change.key == change.key)
        {
            let place = &self.line.places[at];
            let needs_more = self.needs_more(candidate);
            if place.change == *change && !needs_more && place.is_tied_alike(candidate) {
                self.step(format!("{change} is there already"));
                return true;
            }
            if !needs_more && self.is_outdated(&change.key, candidate.as_of) {
                self.step("that is older than what is known of it".to_owned());
                return true;
            }
            self.leave_together(at, "DEQUEUED");
        }
        false
    }

    /// Returns whether what stands at a position stands as one with other changes than it is
    /// offered with, each having its own queue.
    pub(super) fn is_tied_otherwise(&self, at: usize, candidate: &Candidate) -> bool {
        let is_one = !self.line.is_dependent() && self.line.bundle(at).len() > 1;
        is_one && !self.line.places[at].is_tied_alike(candidate)
    }

    /// Takes out what stands here of a change that another queue is to have, with those that stand
    /// as one with it, unless it is another revision of which something newer is known. What came
    /// here since it was asked for stands where it is wanted.
    pub(super) fn make_way(&mut self, change: &ChangeRef, as_of: Timestamp, to: &QueueName) {
        if *to == self.line.key.queue {
            return self.step(format!("{change} was wanted here"));
        }
        self.step(format!("{change} is wanted elsewhere, as of {}", as_of.to_iso()));
        while let Some(at) =
            self.line.places.iter().position(|place| place.change.key == change.key)
        {
            let place = &self.line.places[at];
            if place.change != *change && as_of.0 > 0 && as_of < place.as_of {
                return self.step("something newer stands here".to_owned());
            }
            self.leave_together(at, "DEQUEUED");
        }
    }

    /// Returns how what was decided differs in what own queues say from now on of where their
    /// changes stand, and in what was sent to whom.
    pub(super) fn differences_elsewhere(&self, facts: &Facts) -> Vec<String> {
        let mut found = Vec::new();
        let now = self.line.guests();
        let came = now.difference(&self.guests).map(|own| (own, Some(&self.line.key.queue)));
        let model: BTreeMap<_, _> =
            came.chain(self.guests.difference(&now).map(|own| (own, None))).collect();
        let doors = facts.doors.iter().map(|head| (&head.key.queue, head.hosted_in.as_ref()));
        let decided: BTreeMap<&QueueName, Option<&QueueName>> = doors.collect();
        if decided != model {
            let all = |doors: &BTreeMap<&QueueName, Option<&QueueName>>| {
                list(doors.iter().map(|(own, queue)| said(own, *queue)))
            };
            let (decided, model) = (all(&decided), all(&model));
            found.push(format!(
                "what own queues say: {decided} was decided, and the model decides {model}"
            ));
        }
        if facts.head.hosted_in != self.line.stands_in {
            let (decided, model) = (&facts.head.hosted_in, &self.line.stands_in);
            found.push(format!(
                "where its change stands: {decided:?} was decided, and the model has {model:?}"
            ));
        }
        let lost = self.sent.iter().filter(|(queue, arrival)| !self.was_sent(arrival, Some(queue)));
        found.extend(lost.map(|(queue, arrival)| {
            format!("{} is to be sent to {queue}, and was not", arrival.id)
        }));
        found
    }
}

fn said(own: &QueueName, queue: Option<&QueueName>) -> String {
    match queue {
        Some(queue) => format!("{own} that its change stands in {queue}"),
        None => format!("{own} that its change stands nowhere else"),
    }
}
