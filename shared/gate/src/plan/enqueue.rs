//! Enqueues a change, or the members of a bundle, as one entry (Z6.5).

use super::bundles::BUNDLE_MAX;
use super::decisions::HOST_QUEUE_RECORDS;
use super::finish::{DEPENDENCIES_CHANGED, DEQUEUE_RECORDS};
use super::ledger::Full;
use super::{Planner, RECORDS_MAX, is_dependent, item_id};
use crate::inbox::{Candidate, InboxMessage};
use crate::item::Item;
use crate::landing::lands_in;
use crate::queue::{Entry, Slot, SlotStatus};
use crate::report::Occasion;
use sluice_config::pipeline::{Manager, Pipeline};
use sluice_model::change::{ChangeKey, ChangeRef};
use sluice_model::event::ZuulEvent;
use smallvec::SmallVec;

/// Records that enqueueing a change writes: its item, its enqueue report, and its events.
pub(super) const ENQUEUE_RECORDS: usize = 4;

/// Whether a candidate may enter once what it replaces is dequeued.
enum Replacement {
    /// Nothing that it replaces is queued any more.
    Done,
    /// The candidate is not enqueued; the reason is in the log.
    Rejected,
}

impl Planner<'_> {
    /// Enqueues candidates in order and dequeues what they replace. The members of a bundle are
    /// enqueued together at the place of the last. Only dependent and independent pipelines have
    /// bundles; elsewhere members enter one by one. Those that may not enter are only logged or
    /// reported. [`Full`] if the transaction has no room for the rest: what was enqueued stays, and
    /// the next plan enqueues the rest.
    pub(super) fn enqueue_all(
        &mut self,
        message: &InboxMessage,
        candidates: &[Candidate],
    ) -> Result<(), Full> {
        candidates.iter().enumerate().try_for_each(|(at, candidate)| {
            let is_one = is_dependent(&self.head) || self.head.manager == Manager::Independent;
            if !is_one || candidate.bundle.is_empty() || candidate.refused.is_some() {
                return self.enqueue(message, &[candidate]);
            }
            if candidates[at + 1..]
                .iter()
                .any(|behind| candidate.bundle.contains(&behind.change.key))
            {
                return Ok(()); // Enqueue it with the last member: the other dependencies of the bundle come before that one.
            }
            match self.offered_members(message, candidate, candidates) {
                Some(members) => self.enqueue(message, &members),
                None => Ok(()),
            }
        })
    }

    /// Returns the members of the bundle of `one` from `offered`, in the order in which they are
    /// merged; `None` if one is missing there or there are more than [`BUNDLE_MAX`] (D10, D11).
    /// Then logs why, and reports it for members that the configuration moved here.
    fn offered_members<'c>(
        &mut self,
        message: &InboxMessage,
        one: &Candidate,
        offered: &'c [Candidate],
    ) -> Option<Vec<&'c Candidate>> {
        let find = |key: &ChangeKey| offered.iter().find(|candidate| candidate.change.key == *key);
        let mut members: Vec<&Candidate> = one.bundle.iter().filter_map(find).collect();
        let reason = match one.bundle.iter().find(|key| find(key).is_none()) {
            Some(key) => {
                members =
                    offered.iter().filter(|other| one.bundle.contains(&other.change.key)).collect();
                format!("its dependency cycle includes {key}, which may not be enqueued")
            }
            None if members.len() > BUNDLE_MAX => {
                format!("its dependency cycle has more than {BUNDLE_MAX} changes")
            }
            None => return Some(members),
        };
        self.report_refused_moves(message, &members, &reason);
        self.log_refusal(&one.change, &reason);
        None
    }

    /// Appends a change, or the members of a bundle in merge order, to the queue as one entry, and
    /// dequeues what they replace, such as members that are queued alone. Appends nothing and logs
    /// why if the change, or the bundle as it is, is already queued, or if one of them is outdated,
    /// merged or may not enter; new dependencies ([`Self::adds_dependencies`]) override the first
    /// two. An outdated member does not keep a bundle out of a dependent pipeline. Also reports a
    /// refusal that a candidate carries, the exceeded limit of the pipeline, and candidates that
    /// the configuration moved here. What they replace may have left even then.
    pub(super) fn enqueue(
        &mut self,
        message: &InboxMessage,
        members: &[&Candidate],
    ) -> Result<(), Full> {
        // New dependencies count even if nothing newer is known of the changes themselves.
        let needs_more = members.iter().any(|member| self.adds_dependencies(member));
        let replacement = match members {
            [candidate] => self.replace_queued(candidate, needs_more)?,
            _ => self.replace_queued_members(members, needs_more)?,
        };
        match replacement {
            Replacement::Done => {}
            Replacement::Rejected => return Ok(()),
        }
        self.require_room(self.records_to_enqueue(members))?;
        for member in members {
            let Some(reason) = self.refusal_reason(member) else { continue };
            self.log_refusal(&member.change, &reason);
            self.report_refused_moves(message, members, &reason);
            if member.refused.is_some() {
                let report = self.report_refusal(member, message, &reason);
                self.ledger.report(report);
            }
            return Ok(());
        }
        if let Some(reason) = self.over_limit(members) {
            self.report_over_limit(message, members, &reason);
            return Ok(());
        }
        let change = &members[0].change;
        if let Some(newer) = self.newer_queued_commit(members[0]).map(ToString::to_string) {
            // A forge may deliver push events in any order.
            self.log_refusal(change, &format!("its branch has moved on to {newer}"));
            return Ok(());
        }
        if self.head.manager == Manager::Supercedent {
            self.dequeue_waiting_of_branch(change)?;
            self.require_room(self.enqueue_records())?;
        }
        self.append(message, members);
        Ok(())
    }

    /// Logs why a change is not enqueued.
    pub(super) fn log_refusal(&mut self, change: &ChangeRef, reason: &str) {
        self.ledger.explain(format!("{change} is not enqueued in {}: {reason}", self.head.key));
    }

    /// Dequeues what a single change replaces: other revisions, unless they may stay beside it
    /// ([`Self::may_coexist`]), and the same one if it has more dependencies, is marked for
    /// dequeueing or, outside dependent pipelines, is queued in a bundle that is another one now.
    /// Rejects and logs a change that is outdated, already queued, or merged and still running its
    /// reporter jobs here. `needs_more` says that it depends on changes which it did not depend on
    /// before; then it is not outdated.
    fn replace_queued(
        &mut self,
        candidate: &Candidate,
        needs_more: bool,
    ) -> Result<Replacement, Full> {
        let change = &candidate.change;
        if !needs_more && self.rejects_outdated(change, candidate.as_of) {
            return Ok(Replacement::Rejected);
        }
        while let Some(slot) = self.slot_to_replace(change) {
            let (id, is_same) = (slot.id.clone(), slot.change == *change);
            if slot.status == SlotStatus::Reporting && self.has_landed(&id) {
                self.log_refusal(change, "it is already merged");
                return Ok(Replacement::Rejected);
            }
            let is_bundle = self.position(&id).is_some_and(|at| self.head.entries[at].is_bundle());
            let is_other_bundle =
                !is_dependent(&self.head) && is_bundle && !self.has_same_bundle(&id, candidate);
            if is_same && !self.is_marked_for_dequeue(slot) && !needs_more && !is_other_bundle {
                self.ledger.explain(format!("{change} is already in {}", self.head.key));
                return Ok(Replacement::Rejected);
            }
            let (why, occasion) = replacement_reason(slot, change);
            self.dequeue(&id, why, occasion)?;
        }
        Ok(Replacement::Done)
    }

    /// Dequeues all revisions of a bundle's members. Rejects and logs a bundle that is already
    /// queued as it is, has an outdated member (except in a dependent pipeline), or has a member
    /// that was merged and runs its reporter jobs. `needs_more` says that one depends on changes
    /// which it did not depend on before; then only the last of these counts.
    fn replace_queued_members(
        &mut self,
        members: &[&Candidate],
        needs_more: bool,
    ) -> Result<Replacement, Full> {
        if self.is_bundle_queued(members) && !needs_more {
            let last = members[members.len() - 1];
            self.log_refusal(&last.change, "its whole bundle is already queued");
            return Ok(Replacement::Rejected);
        }
        // In a dependent pipeline, a member may be known better than the rest: that must not keep
        // the bundle out.
        if !is_dependent(&self.head)
            && !needs_more
            && members.iter().any(|member| self.rejects_outdated(&member.change, member.as_of))
        {
            return Ok(Replacement::Rejected);
        }
        let is_in_branch = |member: &&&Candidate| {
            let mut slots = self.head.slots().filter(|slot| slot.change.key == member.change.key);
            slots.any(|slot| slot.status == SlotStatus::Reporting && self.has_landed(&slot.id))
        };
        if let Some(landed) = members.iter().find(is_in_branch) {
            self.log_refusal(&landed.change, "it has landed");
            return Ok(Replacement::Rejected);
        }
        for Candidate { change, .. } in members {
            // Pipelines that do not merge may hold several revisions of a member.
            while let Some(slot) = self.head.slot_of_change(&change.key) {
                let (why, occasion) = replacement_reason(slot, change);
                self.dequeue(&slot.id.clone(), why, occasion)?;
            }
        }
        Ok(Replacement::Done)
    }

    /// Returns whether a new patch set dequeues the older revision (`dequeue-on-new-patchset`);
    /// `true` if the live layout has no such pipeline.
    pub(super) fn dequeues_old_revisions(&self) -> bool {
        (self.snapshot.pipeline).is_none_or(|pipeline| pipeline.dequeue_on_new_patchset)
    }

    /// Returns whether the older revision in `slot` stays queued when `change` is enqueued; the
    /// caller has checked that both are of one change. Only independent pipelines that do not merge
    /// and have no `dequeue-on-new-patchset` allow this: two revisions of one change must never be
    /// in one branch. `false` for the same revision, and if the target branch differs.
    pub(super) fn may_coexist(&self, slot: &Slot, change: &ChangeRef) -> bool {
        self.head.manager == Manager::Independent
            && !self.dequeues_old_revisions()
            && !self.snapshot.pipeline.is_some_and(lands_in)
            && slot.change.branch == change.branch
            && slot.change.head != change.head
    }

    /// Returns the first queued item of the same change that is `change` itself or a revision that
    /// it replaces; `None` if there is none. Revisions that may stay beside it are skipped.
    fn slot_to_replace(&self, change: &ChangeRef) -> Option<&Slot> {
        let is_in_its_place =
            |slot: &&Slot| slot.change.key == change.key && !self.may_coexist(slot, change);
        self.head.slots().find(is_in_its_place)
    }

    /// Returns whether exactly these members are queued as one bundle, in this order.
    fn is_bundle_queued(&self, members: &[&Candidate]) -> bool {
        let first = &members[0].change;
        let has_first = |entry: &&Entry| entry.members.iter().any(|slot| slot.change == *first);
        self.head.entries.iter().find(has_first).is_some_and(|entry| {
            let queued = entry.members.iter().map(|slot| &slot.change);
            queued.eq(members.iter().map(|member| &member.change))
        })
    }

    /// Returns how many records to reserve for enqueueing an entry, including what it replaces but
    /// without the builds to stop; at most [`RECORDS_MAX`].
    fn records_to_enqueue(&self, members: &[&Candidate]) -> usize {
        let count = members.len();
        if count == 1 {
            return DEQUEUE_RECORDS + self.enqueue_records();
        }
        let is_hosted =
            |member: &&&Candidate| self.snapshot.residencies.contains_key(&member.change.key);
        let hosted = members.iter().filter(is_hosted).count();
        let entry = self.enqueue_records_of(count) * count + HOST_QUEUE_RECORDS * hosted;
        // A bundle of ten that supersedes other pipelines exceeds the planned maximum, but still
        // fits into a transaction.
        entry.max(DEQUEUE_RECORDS * count).min(RECORDS_MAX)
    }

    /// Returns whether the same revision is queued and tested with fewer or older dependencies than
    /// the candidate has. Always `false` in pipelines that merge or are not independent: there the
    /// dependencies are merged first, and updates report them. `false` also for a refused candidate
    /// and for an item whose result is final.
    pub(super) fn adds_dependencies(&self, candidate: &Candidate) -> bool {
        let tests_alone = |pipeline: &Pipeline| !lands_in(pipeline);
        let is_each_alone = self.head.manager == Manager::Independent
            && self.snapshot.pipeline.is_some_and(tests_alone);
        let here = self
            .head
            .slots()
            .find(|slot| slot.change == candidate.change && !slot.status.is_decided());
        let item = here.filter(|_| is_each_alone).and_then(|slot| self.items.get(&slot.id));
        let is_newer = |item: &Item, need: &Candidate| {
            let known =
                item.candidate.needs.iter().find(|known| known.change.key == need.change.key);
            known.is_none_or(|known| known.change != need.change && known.as_of <= need.as_of)
        };
        candidate.refused.is_none()
            && item.is_some_and(|item| candidate.needs.iter().any(|need| is_newer(item, need)))
    }

    /// Appends an entry with these members to the queue as new items. Has the plan send their
    /// enqueue reports, their events, the supersessions of other pipelines and, for a bundle, the
    /// record of its host queue. The caller has checked that they may enter and reserved room.
    fn append(&mut self, message: &InboxMessage, members: &[&Candidate]) {
        let mut slots = SmallVec::with_capacity(members.len());
        for candidate in members {
            let change = &candidate.change;
            let slot = Slot::new(item_id(&self.head, change, message), change.clone());
            let admitted = Candidate { moved_from: None, ..(*candidate).clone() };
            let mut item = Item::admitted(&slot, admitted, &message.event_id, message.at);
            item.add_reason(
                self.now,
                format!("enqueued in {} by event {}", self.head.key.pipeline, message.event_id),
            );
            for address in &candidate.unresolved_dependencies {
                item.add_reason(self.now, format!(
                    "it depends on {address}, which no connection serves: this dependency is ignored"
                ));
            }
            self.ledger.explain(format!("{change} is enqueued in {}", self.head.key));
            let report = self.report_item(&item, Occasion::Enqueue, "");
            self.ledger.report(report);
            self.emit_event(ZuulEvent::ParentChangeEnqueued, &slot.id, change);
            self.send_supersessions(&slot.id, change, candidate.bundle.len(), &message.event_id);
            self.changed_items.insert(slot.id.clone());
            self.items.insert(slot.id.clone(), item);
            slots.push(slot);
        }
        self.head.entries.push(Entry { ahead: None, members: slots });
        if let [one, _, ..] = members {
            self.record_residencies(&one.bundle);
        }
    }

    /// Returns why a candidate may not be enqueued, or `None` if it may: it carries a refusal, or
    /// the live layout has no such pipeline. In a dependent pipeline also: it is merged, or a
    /// dependency outside its bundle is neither ahead in this revision nor merged (Z6.5, D01).
    fn refusal_reason(&self, candidate: &Candidate) -> Option<String> {
        if let Some(reason) = &candidate.refused {
            return Some(reason.clone());
        }
        if self.snapshot.pipeline.is_none() {
            return Some("the tenant's configuration no longer has this pipeline".to_owned());
        }
        if !is_dependent(&self.head) {
            return None;
        }
        if self.head.has_landed(&candidate.change) {
            // This includes a revision uploaded while the forge merged the one before: a forge
            // merges a change only once. A push, however, merges only the pushed head; another
            // revision is still open.
            return Some("it is already merged".to_owned());
        }
        let missing = candidate.needs.iter().find(|need| {
            let key = &need.change.key;
            let ahead = self.head.slots().any(|slot| slot.change == need.change);
            !ahead && !candidate.is_bundle_member(key) && !self.head.has_landed(&need.change)
        })?;
        Some(format!(
            "it depends on {}, which is neither merged nor ahead of it in this queue",
            missing.change.key
        ))
    }

    /// Returns the queued ref whose commit is the candidate's `newer_head` on the same branch;
    /// `None` if there is none. Only in supercedent pipelines, where the newest commit replaces
    /// older ones.
    fn newer_queued_commit(&self, candidate: &Candidate) -> Option<&ChangeRef> {
        let (tip, change) = (candidate.newer_head.as_ref()?, &candidate.change);
        let is_newer = |other: &&ChangeRef| {
            (&other.key.project, &other.branch, &other.head)
                == (&change.key.project, &change.branch, tip)
        };
        let all = self.head.slots().map(|slot| &slot.change);
        all.filter(|_| self.head.manager == Manager::Supercedent).find(is_newer)
    }

    /// Dequeues the waiting entry of a branch, since its newer commit `change` is being enqueued.
    /// Only an entry that builds the same images counts, and never the first entry of the queue.
    /// Does nothing if none waits.
    fn dequeue_waiting_of_branch(&mut self, change: &ChangeRef) -> Result<(), Full> {
        // Image builds supersede only builds of the same images.
        let is_older = |slot: &&Slot| {
            let key = &slot.change.key;
            key.project == change.key.project
                && slot.change.branch == change.branch
                && key.images() == change.key.images()
        };
        let waiting = self.head.slots().skip(1).find(is_older);
        let Some(key) = waiting.map(|slot| slot.change.key.clone()) else {
            return Ok(());
        };
        let why = "a newer commit of its branch replaces it";
        self.dequeue_change(&key, why, Occasion::Dequeue)
    }
}

/// Returns the reason and the report occasion for an entry that `change` replaces. The same
/// revision leaves without a report, another one with a dequeue report.
fn replacement_reason(slot: &Slot, change: &ChangeRef) -> (&'static str, Occasion) {
    match slot.change == *change {
        true => (DEPENDENCIES_CHANGED, Occasion::Superseded),
        false => ("a new revision replaces it", Occasion::Dequeue),
    }
}
