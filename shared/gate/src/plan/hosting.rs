//! Bundles in independent pipelines, where each change has its own queue: the bundle is queued in
//! one of these queues, and the others record that.
//!
//! The host queue is the own queue of the member with the smallest key, whichever event brought the
//! bundle. A member queued in another queue than its own is hosted there. From the commit that
//! enqueues it to the commit that removes it, the head of its own queue names the host queue. Both
//! commits write that head on condition that it is unchanged. So a change is queued in one place
//! only, even if several queues decide at the same time, and no queue waits for another one's lock.
//! Messages about a hosted change reach its own queue, which forwards them to the host queue.

use super::finish::DEPENDENCIES_CHANGED;
use super::ledger::Full;
use super::{Planner, QueueAction, is_dependent};
use crate::inbox::{Candidate, InboxMessage, InboxMessageKind};
use crate::item::Item;
use crate::landing::lands_in;
use crate::report::Occasion;
use sluice_config::pipeline::{Manager, Pipeline};
use sluice_model::change::{ChangeKey, ChangeRef};
use sluice_model::git::Oid;
use sluice_model::{InboxMessageId, ItemId, QueueKey, QueueName, Timestamp};
use std::collections::BTreeSet;

/// Why a change leaves its own queue for its bundle's host queue.
const JOINS_BUNDLE: &str = "it is part of a dependency cycle there";

/// Why a bundle leaves a pipeline that no longer forms bundles.
const BUNDLES_UNSUPPORTED: &str =
    "the configuration changed: the pipeline now merges changes separately and forms no bundles";

/// Records that forwarding a message writes: the message, and a stale residency that it repairs.
const FORWARD_RECORDS: usize = 4;

/// Where a change is queued, as read from the head of its own queue. Loaded for changes that
/// another queue hosts, is to host, or gets messages about.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Residency {
    /// The queue that hosts the change ([`crate::Head::hosted_in`]); `None` if it is not hosted.
    pub hosted_in: Option<QueueName>,
    /// The revisions of the change that are queued in its own or its host queue, each with the time
    /// of what is known about it.
    pub revisions: Vec<(ChangeRef, Timestamp)>,
    /// The release requests in its inbox that it has not consumed yet.
    pub release_requests: BTreeSet<InboxMessageId>,
    /// Why the head cannot be read. Then nothing is known or written until an operator has repaired
    /// it.
    pub read_error: Option<String>,
}

impl Residency {
    /// Returns whether `queue` may host the change, since it is queued nowhere else. `false` if
    /// that cannot be read.
    fn is_open_to(&self, queue: &QueueName) -> bool {
        match &self.hosted_in {
            _ if self.read_error.is_some() => false,
            Some(other) => other == queue,
            None => self.revisions.is_empty(),
        }
    }

    /// Returns whether a revision other than the candidate's is queued, and newer things are known
    /// about it.
    fn is_ahead_of(&self, candidate: &Candidate) -> bool {
        let (change, as_of) = (&candidate.change, candidate.as_of);
        self.revisions.iter().any(|(other, known)| is_newer(other, *known, change, as_of))
    }
}

/// Returns whether revision `one` is a different and newer revision than `other` of the same
/// change, by the clock of their forge. `false` if the time of `other` is not known (0).
fn is_newer(
    one: &ChangeRef,
    one_as_of: Timestamp,
    other: &ChangeRef,
    other_as_of: Timestamp,
) -> bool {
    one.key == other.key
        && one != other
        && other_as_of != Timestamp::default()
        && other_as_of < one_as_of
}

/// Returns the message that asks a candidate's own queue to release its change to the queue `to`;
/// sends nothing, and the caller addresses it. `message` is the enqueue message with this
/// candidate: the same message, change and queue always give the same id.
pub fn release_request(
    message: &InboxMessage,
    candidate: &Candidate,
    to: &QueueKey,
) -> InboxMessage {
    InboxMessage {
        id: InboxMessageId::derive(&[
            message.id.as_str(),
            &to.to_string(),
            &candidate.change.key.to_string(),
        ]),
        kind: InboxMessageKind::MoveToHost {
            change: candidate.change.clone(),
            as_of: candidate.as_of,
            to: to.queue.clone(),
        },
        in_progress: false,
        ..message.clone()
    }
}

/// Returns the changes that a message is about; empty for the commands to promote and to resume.
/// The states of their own queues are loaded if they are other queues.
pub fn mentioned_changes(message: &InboxMessage) -> Vec<&ChangeKey> {
    match &message.kind {
        InboxMessageKind::Enqueue { candidates } => {
            candidates.iter().map(|candidate| &candidate.change.key).collect()
        }
        InboxMessageKind::ChangeUpdated { change, .. }
        | InboxMessageKind::Superseded { change, .. }
        | InboxMessageKind::MoveToHost { change, .. } => {
            vec![&change.key]
        }
        InboxMessageKind::Dequeue { key, .. } => vec![key],
        InboxMessageKind::Promote { .. } | InboxMessageKind::Resume { .. } => Vec::new(),
    }
}

/// What is to be done with a message after routing.
pub(super) enum Routing {
    /// This queue handles it.
    Here,
    /// It was forwarded or dropped, and is to be consumed.
    Consumed,
}

impl Planner<'_> {
    /// Forwards all messages in the own queue of a hosted change to its host queue, and consumes
    /// them. Those that do not fit into the transaction are left to the next plan.
    pub(super) fn forward_inbox(&mut self, to: &QueueName) {
        let to = QueueKey { queue: to.clone(), ..self.head.key.clone() };
        for message in self.snapshot.inbox.clone() {
            if !self.has_room(FORWARD_RECORDS) {
                return;
            }
            self.forward_message(&message, &to);
            self.ledger.consume(&message.id);
        }
    }

    /// Returns whether a bundle that belongs here cannot be enqueued yet because a member is queued
    /// elsewhere, or because that cannot be read. Has the plan ask each such member's own queue,
    /// once, to release it, and marks the message as in progress then. Asks none if the own queue
    /// of one cannot be read. `false` for all other messages.
    pub(super) fn request_releases(&mut self, message: &InboxMessage) -> bool {
        let elsewhere = self.members_elsewhere(message);
        let unreadable = |one: &Candidate| {
            self.snapshot
                .residencies
                .get(&one.change.key)
                .and_then(|residency| residency.read_error.as_deref())
        };
        if let Some((change, why)) =
            elsewhere.iter().find_map(|one| Some((&one.change, unreadable(one)?)))
        {
            // No member leaves its own queue until it is known that all can be enqueued.
            self.ledger.explain(format!(
                "{} waits: the own queue of {change} cannot be read: {why}",
                self.head.key
            ));
            return true;
        }
        for candidate in &elsewhere {
            let key = &candidate.change.key;
            let request = release_request(message, candidate, &self.head.key);
            let is_requested = self
                .snapshot
                .residencies
                .get(key)
                .is_none_or(|residency| residency.release_requests.contains(&request.id));
            if let Some(queue) = self.own_queue(key).filter(|_| !is_requested && self.has_room(2)) {
                self.ledger.explain(format!(
                    "{} moves to {}: {JOINS_BUNDLE}",
                    candidate.change, self.head.key
                ));
                self.send(queue, request);
                self.mark_in_progress(message);
            }
        }
        !elsewhere.is_empty()
    }

    /// Marks an enqueue message that stays in the inbox as in progress, in the commit that dequeues
    /// something for it, so that `discard-events` does not drop it. Does nothing for other
    /// messages, and for those of an operator, which are never dropped.
    pub(super) fn mark_in_progress(&mut self, message: &InboxMessage) {
        if matches!(message.kind, InboxMessageKind::Enqueue { .. })
            && !message.by_operator
            && !message.in_progress
        {
            self.ledger.mark_in_progress(&message.id);
        }
    }

    /// Returns whether a message must wait because a member of its bundle is queued elsewhere.
    /// Requests nothing.
    pub(super) fn awaits_release(&self, message: &InboxMessage) -> bool {
        !self.members_elsewhere(message).is_empty()
    }

    /// Returns the members of a bundle hosted by this queue that are still queued elsewhere, or of
    /// which that cannot be read. Empty for all other messages, and for a bundle that will be
    /// refused because newer things are known about a member.
    fn members_elsewhere<'c>(&self, message: &'c InboxMessage) -> Vec<&'c Candidate> {
        let InboxMessageKind::Enqueue { candidates } = &message.kind else { return Vec::new() };
        let is_hosted_here = self.is_hosted_bundle(candidates)
            && self.host_queue_of(candidates).as_ref() == Some(&self.head.key);
        if !is_hosted_here
            || candidates.iter().any(|candidate| self.has_newer_revision_elsewhere(candidate))
            || self.has_newer_facts(candidates)
        {
            return Vec::new();
        }
        let is_hosted =
            |key: &ChangeKey| self.own_queue(key).is_some_and(|own| own != self.head.key);
        let is_open = |key: &ChangeKey| {
            self.snapshot
                .residencies
                .get(key)
                .is_some_and(|residency| residency.is_open_to(&self.head.key.queue))
        };
        let hosted = candidates.iter().filter(|candidate| is_hosted(&candidate.change.key));
        hosted.filter(|candidate| !is_open(&candidate.change.key)).collect()
    }

    /// Returns whether a newer revision of a candidate is queued in its own queue or the queue that
    /// hosts it. `false` if the own queue is this one or was not read.
    fn has_newer_revision_elsewhere(&self, candidate: &Candidate) -> bool {
        self.snapshot
            .residencies
            .get(&candidate.change.key)
            .is_some_and(|residency| residency.is_ahead_of(candidate))
    }

    /// Returns whether newer things are known about a queued member than offered, so that the
    /// bundle is refused ([`Planner::enqueue`]) and no release is requested. `false` if a candidate
    /// has dependencies that are not known yet.
    fn has_newer_facts(&self, candidates: &[Candidate]) -> bool {
        let is_newer = |offered: &Candidate, item: &Item| {
            let known = &item.candidate;
            let is_dated = offered.as_of != Timestamp::default();
            known.change.key == offered.change.key && is_dated && offered.as_of < known.as_of
        };
        let is_outdated =
            |offered: &Candidate| self.items.values().any(|item| is_newer(offered, item));
        candidates.iter().any(is_outdated)
            && !candidates.iter().any(|offered| self.adds_dependencies(offered))
    }

    /// Returns whether candidates form a bundle, by the last of them, in a pipeline where each
    /// change has its own queue. `false` if the last one carries a refusal.
    fn is_hosted_bundle(&self, candidates: &[Candidate]) -> bool {
        self.is_change_queue()
            && candidates
                .last()
                .is_some_and(|last| !last.bundle.is_empty() && last.refused.is_none())
    }

    /// Returns the queue of an independent pipeline that candidates belong to: the host queue of
    /// the bundle of the last, or that change's own queue. `None` if there are none or the live
    /// layout has no such pipeline.
    fn host_queue_of(&self, candidates: &[Candidate]) -> Option<QueueKey> {
        let last = candidates.last()?;
        self.own_queue(last.host().unwrap_or(&last.change.key))
    }

    /// Returns a change's own queue in an independent pipeline; `None` if the live layout has no
    /// such pipeline. The caller has checked [`Self::is_change_queue`].
    fn own_queue(&self, key: &ChangeKey) -> Option<QueueKey> {
        // In independent pipelines only the key matters; branch and head may be empty.
        let (branch, head, patchset) = ("".into(), Oid::from(""), String::new());
        let change = ChangeRef { key: key.clone(), branch, head, patchset };
        (self.snapshot.queue_of)(&self.head.key.pipeline, &change)
    }

    /// Returns whether this is the own queue of a change: its pipeline is independent both under
    /// the queue's layout and under the live one.
    pub(super) fn is_change_queue(&self) -> bool {
        let is_independent = |pipeline: &Pipeline| pipeline.manager == Manager::Independent;
        self.head.manager == Manager::Independent
            && self.snapshot.pipeline.is_some_and(is_independent)
    }

    /// Decides whether this queue handles a message, and otherwise drops or forwards it; the caller
    /// then consumes it. A message about a change of another queue is forwarded there, unless the
    /// change is queued here. A candidate that moves to another queue is dequeued here first, and a
    /// bundle is split if the pipeline no longer forms any. Enqueue messages are dropped if a newer
    /// revision is known. Always [`Routing::Here`] unless the pipeline is independent both by the
    /// queue's head and by the live layout. With [`Full`] some changes may have been dequeued.
    pub(super) fn route(&mut self, message: &InboxMessage) -> Result<Routing, Full> {
        if !self.is_change_queue() {
            return Ok(Routing::Here);
        }
        let target = match &message.kind {
            InboxMessageKind::Enqueue { candidates } => {
                if candidates.iter().any(|candidate| self.has_newer_revision_elsewhere(candidate)) {
                    let reason = format!(
                        "outdated message dropped in {}: a newer revision is known",
                        self.head.key
                    );
                    self.ledger.explain(reason);
                    return Ok(Routing::Consumed);
                }
                self.host_queue_of(candidates)
            }
            _ => mentioned_changes(message).first().and_then(|key| self.own_queue(key)),
        };
        if let Routing::Consumed = self.split_offered_bundle(message)? {
            return Ok(Routing::Consumed);
        }
        let Some(target) = target.filter(|target| *target != self.head.key) else {
            return Ok(Routing::Here);
        };
        let entries_before = self.head.entries.len();
        match &message.kind {
            InboxMessageKind::Enqueue { candidates } => {
                for candidate in candidates {
                    if let Routing::Consumed = self.release_for_host(candidate)? {
                        return Ok(Routing::Consumed);
                    }
                }
            }
            _ => {
                let is_queued_here = |key: &ChangeKey| self.head.slot_of_change(key).is_some();
                if mentioned_changes(message).into_iter().any(is_queued_here) {
                    return Ok(Routing::Here);
                }
            }
        }
        self.require_room(FORWARD_RECORDS)?;
        // Its change was dequeued here, so the message must not be dropped on the way.
        let in_progress = message.in_progress || self.head.entries.len() < entries_before;
        self.forward_message(&InboxMessage { in_progress, ..message.clone() }, &target);
        Ok(Routing::Consumed)
    }

    /// Has the plan send the members of an offered bundle to their own queues, each alone, if the
    /// pipeline merges changes separately: an older layout had formed the bundle. Returns
    /// [`Routing::Consumed`] then. Otherwise does nothing and returns [`Routing::Here`].
    fn split_offered_bundle(&mut self, message: &InboxMessage) -> Result<Routing, Full> {
        let InboxMessageKind::Enqueue { candidates } = &message.kind else {
            return Ok(Routing::Here);
        };
        if !self.is_hosted_bundle(candidates) || !self.merges_individually() {
            return Ok(Routing::Here);
        }
        self.require_room(candidates.len())?;
        for candidate in candidates {
            let key = &candidate.change.key;
            let Some(own) = self.own_queue(key) else { continue };
            let cycle_needs =
                candidate.bundle.iter().filter(|other| *other != key).cloned().collect();
            let alone = Candidate { bundle: Vec::new(), cycle_needs, ..candidate.clone() };
            let id = InboxMessageId::derive(&[message.id.as_str(), &own.to_string(), "alone"]);
            let kind = InboxMessageKind::Enqueue { candidates: vec![alone] };
            self.send(own, InboxMessage { id, kind, ..message.clone() });
        }
        Ok(Routing::Consumed)
    }

    /// Returns whether the live pipeline is independent and merges: it forms no bundles.
    fn merges_individually(&self) -> bool {
        let is_each_alone =
            |pipeline: &Pipeline| pipeline.manager == Manager::Independent && lands_in(pipeline);
        self.snapshot.pipeline.is_some_and(is_each_alone)
    }

    /// Dequeues the change of a candidate that belongs to another queue, in all revisions, and
    /// returns [`Routing::Here`]. Returns [`Routing::Consumed`], and the change stays, if it is
    /// queued here in the same revision with the same bundle, or if newer facts of it are known
    /// here; neither counts if the candidate adds dependencies.
    fn release_for_host(&mut self, candidate: &Candidate) -> Result<Routing, Full> {
        let change = &candidate.change;
        while let Some(slot) = self.head.slot_of_change(&change.key) {
            let (id, is_same) = (slot.id.clone(), slot.change == *change);
            let needs_more = self.adds_dependencies(candidate);
            if is_same && !needs_more && self.has_same_bundle(&id, candidate) {
                self.ledger.explain(format!("{change} is already in {}", self.head.key));
                return Ok(Routing::Consumed);
            }
            if !needs_more && self.rejects_outdated(change, candidate.as_of) {
                return Ok(Routing::Consumed);
            }
            let occasion = if is_same { Occasion::Superseded } else { Occasion::Dequeue };
            self.dequeue(&id, DEPENDENCIES_CHANGED, occasion)?;
        }
        Ok(Routing::Here)
    }

    /// Returns whether an item is tied to the same other changes as the candidate, by a bundle or
    /// dependency cycle; so it is if neither is tied to any. `true` if the item is not queued.
    pub(super) fn has_same_bundle(&self, id: &ItemId, candidate: &Candidate) -> bool {
        let tied = |candidate: &Candidate| -> BTreeSet<ChangeKey> {
            let all = candidate.bundle.iter().chain(&candidate.cycle_needs);
            all.filter(|key| **key != candidate.change.key).cloned().collect()
        };
        let known = self.items.get(id);
        known.is_none_or(|item| tied(&item.candidate) == tied(candidate))
    }

    /// Releases a change to its host queue `to`: dequeues it unless a newer revision is queued, and
    /// has the plan wake the host queue in any case. The requested revision gets no report, other
    /// ones a dequeue report. Does nothing but log if this is the host queue. With [`Full`] a part
    /// may be done and the host queue is not woken.
    pub(super) fn release_to(
        &mut self,
        change: &ChangeRef,
        as_of: Timestamp,
        to: &QueueName,
    ) -> Result<(), Full> {
        if *to == self.head.key.queue {
            // This queue was not a host queue when the request was made, and the change has come
            // here since: it is in the right place.
            self.ledger.explain(format!(
                "{change} is not moved: it is already in its host queue {}",
                self.head.key
            ));
            return Ok(());
        }
        while let Some(slot) = self.head.slot_of_change(&change.key) {
            let known = self.items.get(&slot.id).map_or(as_of, |item| item.candidate.as_of);
            if is_newer(&slot.change, known, change, as_of) {
                let reason =
                    format!("{change} is not moved: a newer revision is in {}", self.head.key);
                self.ledger.explain(reason);
                break;
            }
            let occasion =
                if slot.change == *change { Occasion::Superseded } else { Occasion::Dequeue };
            self.dequeue(&slot.id.clone(), JOINS_BUNDLE, occasion)?;
        }
        self.ledger.wake(QueueKey { queue: to.clone(), ..self.head.key.clone() });
        Ok(())
    }

    /// Has the plan record, in the own queues of the members of a bundle, that this queue hosts
    /// them. Skips members without a residency in the snapshot: those whose own queue is this one,
    /// and all in pipelines without own queues.
    pub(super) fn record_residencies(&mut self, members: &[ChangeKey]) {
        let hosted = members.iter().filter(|key| self.snapshot.residencies.contains_key(*key));
        for key in hosted {
            self.ledger.set_host_queue(key, Some(self.head.key.queue.clone()));
        }
    }

    /// Has the plan remove the record in a hosted change's own queue that this queue hosts it, or
    /// drop that record if this plan decided it. The record of another host queue stays.
    pub(super) fn end_residency(&mut self, key: &ChangeKey) {
        if self.is_recorded_here(key) {
            self.ledger.set_host_queue(key, None);
        } else {
            // A residency recorded by this same plan is dropped, and one of another queue is not
            // ours to remove.
            self.ledger.keep_host_queue(key);
        }
    }

    /// Returns whether a change's own queue records that this queue hosts it.
    fn is_recorded_here(&self, key: &ChangeKey) -> bool {
        let names_this_queue =
            |residency: &Residency| residency.hosted_in.as_ref() == Some(&self.head.key.queue);
        self.snapshot.residencies.get(key).is_some_and(names_this_queue)
    }

    /// Dequeues and reports all bundles if the live pipeline is independent and merges changes
    /// separately. Does nothing if the queue was dependent so far, by its head. Where not all fit
    /// into the transaction, the next plan dequeues the rest.
    pub(super) fn dequeue_unsupported_bundles(&mut self) -> Result<(), Full> {
        if is_dependent(&self.head) || !self.merges_individually() {
            return Ok(());
        }
        let second = |planner: &Self| {
            let mut bundles = planner.head.entries.iter().filter(|entry| entry.is_bundle());
            bundles.next().map(|entry| entry.members[1].id.clone())
        };
        while let Some(id) = second(self) {
            self.dequeue(&id, BUNDLES_UNSUPPORTED, Occasion::Dequeue)?;
        }
        Ok(())
    }

    /// Has the plan forward a message unchanged, but under a new id, to another queue, and logs
    /// that. Also removes records that this queue hosts a change of the message which is not queued
    /// here. The caller has reserved [`FORWARD_RECORDS`] and consumes the message.
    fn forward_message(&mut self, message: &InboxMessage, to: &QueueKey) {
        // Repair stale residencies: otherwise the two queues would forward the message to each
        // other forever.
        let stale: Vec<ChangeKey> = mentioned_changes(message)
            .into_iter()
            .filter(|key| self.is_stale_residency(key))
            .cloned()
            .collect();
        for key in stale {
            self.end_residency(&key);
        }
        self.ledger.explain(format!("message forwarded from {} to {to}", self.head.key));
        let id = InboxMessageId::derive(&[message.id.as_str(), &to.to_string()]);
        self.send(to.clone(), InboxMessage { id, ..message.clone() });
    }

    /// Has the plan write a message to the inbox of another queue and wake that queue. The caller
    /// has made sure that it fits.
    pub(super) fn send(&mut self, queue: QueueKey, message: InboxMessage) {
        self.ledger.push(QueueAction::SendMessage { queue, message: Box::new(message) });
    }

    /// Returns whether the own queue of a change names this queue as host, but the change is not
    /// queued here.
    fn is_stale_residency(&self, key: &ChangeKey) -> bool {
        self.head.slot_of_change(key).is_none() && self.is_recorded_here(key)
    }
}
