//! Takes in what arrived: new changes, and news of changes.

use super::guests::Way;
use super::operators::is_operators;
use super::withheld::Waiting;
use super::{Work, is_dependent, item_id, new_slot};
use crate::arrival::{Arrival, ArrivalKind, Candidate};
use crate::item::Item;
use crate::landing::lands_in;
use crate::queue::{HEAD_BYTES_MAX, Slot, Standing};
use crate::report::Occasion;
use sluice_config::pipeline::{Manager, Pipeline};
use sluice_model::change::{ChangeKey, ChangeRef};
use sluice_model::event::ZuulEvent;
use sluice_model::{ArrivalId, ItemId, Timestamp};
use std::collections::BTreeSet;

/// Why a change leaves that depends on other changes than it was admitted with.
pub(super) const WHY_NEEDS: &str = "its dependencies changed";

/// Records that a change's leaving writes, besides those of its builds.
pub(super) const LEAVING_RECORDS: usize = 7;

/// Records that a change's entry writes: its item, that it was enqueued, and what others are told
/// of that.
pub(super) const ENTRY_RECORDS: usize = 4;

impl Work<'_> {
    pub(super) fn admit(&mut self) {
        if self.is_settling() {
            // Requirements were judged under a layout that is about to go; intake's answer is taken
            // when the next one is live.
            return;
        }
        let arrivals = &self.snapshot.arrivals;
        let is_other =
            |at: &usize| !is_operators(&arrivals[*at]) && !self.is_paused(&arrivals[*at]);
        let others = in_forges_order(arrivals, (0..arrivals.len()).filter(is_other).collect());
        let mut waiting = Waiting::default();
        for at in others {
            let arrival = &self.snapshot.arrivals[at];
            if self.snapshot.hold.discards
                && !arrival.by_operator
                && !arrival.taken_up
                && let ArrivalKind::Enqueue { candidates } = &arrival.kind
                && candidates.iter().all(|candidate| candidate.moved_from.is_none())
            {
                // News of what stands here is heard all the same, or it would land what its author
                // took back.
                let changes: Vec<String> =
                    candidates.iter().map(|candidate| candidate.change.to_string()).collect();
                let why = format!(
                    "{} dropped: an operator has trigger events discarded",
                    changes.join(", ")
                );
                self.plan.reasons.push(why);
                self.plan.taken.push(arrival.id.clone());
                continue;
            }
            let must_wait = waiting.keeps_back(arrival);
            if must_wait || self.waits_for_landing(arrival) || !self.has_place(arrival) {
                waiting.add(arrival);
                let news = Some(arrival).filter(|arrival| {
                    must_wait && matches!(arrival.kind, ArrivalKind::Seen { .. })
                });
                if news.cloned().is_some_and(|news| !self.leaves_already(&news)) {
                    return;
                }
                continue;
            }
            // Of many that wait those alone are copied that are taken in, or that have to wait for
            // guests only.
            let arrival = arrival.clone();
            if self.waits_for_guests(&arrival) {
                waiting.add(&arrival);
                continue;
            }
            if !self.has_room(room(&arrival)) {
                return;
            }
            let taken = match &arrival.kind {
                // Taken before all others.
                ArrivalKind::Dequeue { .. }
                | ArrivalKind::Promote { .. }
                | ArrivalKind::Thaw { .. } => continue,
                _ => match self.way_of(&arrival) {
                    Way::Taken => {
                        self.plan.taken.push(arrival.id);
                        continue;
                    }
                    Way::Full => false,
                    Way::Here => self.take(&arrival),
                },
            };
            if !taken {
                // The transaction is full; what is done of it is found done by the next plan, which
                // is to do the rest.
                self.take_up(&arrival);
                return;
            }
            self.plan.taken.push(arrival.id);
        }
    }

    /// Takes in what is for this queue, but for operators' words, which are taken before. Returns
    /// false when there was no room for all.
    fn take(&mut self, arrival: &Arrival) -> bool {
        match &arrival.kind {
            // What belongs to another queue where each change has its own was sent there.
            ArrivalKind::Enqueue { candidates } if self.is_of_one_change() => {
                self.enqueue_all(arrival, candidates)
            }
            ArrivalKind::Enqueue { candidates } => self.take_in(arrival, candidates),
            ArrivalKind::Superseded { change, by, more } => {
                (self.is_sent_after(arrival, change) || self.is_superseded(change, by))
                    && self.is_passed_on(arrival, change, by, more)
            }
            ArrivalKind::Seen { change, gone, merged, needs, as_of } => {
                self.is_sent_after(arrival, change)
                    || self.is_older(change, *as_of)
                    || self.seen(arrival, change, (gone.as_deref(), *merged), needs.as_deref())
            }
            ArrivalKind::MakeWay { change, as_of, to } => self.makes_way(change, *as_of, to),
            ArrivalKind::Dequeue { .. }
            | ArrivalKind::Promote { .. }
            | ArrivalKind::Thaw { .. } => true,
        }
    }

    /// Returns whether an arrival waits in its order until an operator lets events go on. What an
    /// operator has enqueued is no event: it does not wait even for what came before it, of which
    /// the forge's clock says that it is older.
    fn is_paused(&self, arrival: &Arrival) -> bool {
        self.snapshot.hold.pauses && !arrival.by_operator
    }

    /// Returns whether an arrival that was left may be taken in now: a landing that it waited for
    /// is over.
    pub(super) fn may_admit_more(&self) -> bool {
        let arrivals = &self.snapshot.arrivals;
        let taken: BTreeSet<&ArrivalId> = self.plan.taken.iter().collect();
        let left = (0..arrivals.len()).filter(|at| !taken.contains(&arrivals[*at].id));
        let (words, mut others): (Vec<usize>, Vec<usize>) =
            left.partition(|at| is_operators(&arrivals[*at]));
        others.retain(|at| !self.is_paused(&arrivals[*at]));
        let mut waiting = Waiting::default();
        let may_enter = |at: &usize| {
            let arrival = &arrivals[*at];
            let waits = waiting.keeps_back(arrival)
                || self.waits_for_landing(arrival)
                || !self.has_place(arrival)
                || self.awaits_guests(arrival);
            if waits {
                waiting.add(arrival);
            }
            !waits
        };
        (!self.is_settling() && in_forges_order(arrivals, others).iter().any(may_enter))
            || words.iter().any(|word| !self.waits_for_landing(&arrivals[*word]))
    }

    /// Returns the arrivals that were not taken in.
    pub(super) fn left(&self) -> impl Iterator<Item = &Arrival> {
        self.snapshot.arrivals.iter().filter(|arrival| !self.plan.taken.contains(&arrival.id))
    }

    /// Returns whether the head's record has a place for what an arrival enqueues. What stands here
    /// has its place.
    pub(super) fn has_place(&self, arrival: &Arrival) -> bool {
        let ArrivalKind::Enqueue { candidates } = &arrival.kind else { return true };
        let is_here = |c: &Candidate| {
            let mut slots = self.head.slots.iter().filter(|slot| slot.change.key == c.change.key);
            slots.any(|slot| !self.stays_beside(slot, &c.change))
        };
        let more = candidates.iter().filter(|candidate| !is_here(candidate)).count();
        more == 0 || self.head.bytes_with(more) <= HEAD_BYTES_MAX
    }

    /// Takes out what an arrival takes out that waits behind another one of the same change. It is
    /// not taken in by that: it is heard again when what it waits for has let the change in once
    /// more. Otherwise the change might be the very one whose leaving makes place for what waits.
    /// Returns false when not all of it could be done yet.
    fn leaves_already(&mut self, arrival: &Arrival) -> bool {
        let ArrivalKind::Seen { change, gone, merged, needs, as_of } = &arrival.kind else {
            return true;
        };
        let takes_out = self
            .head
            .slots
            .iter()
            .any(|slot| !slot.standing.is_decided() && self.takes_out(arrival, slot));
        !takes_out
            || (self.has_room(room(arrival))
                && (self.is_older(change, *as_of)
                    || self.seen(arrival, change, (gone.as_deref(), *merged), needs.as_deref())))
    }

    /// Returns whether an older revision leaves when a new one is uploaded.
    pub(super) fn leaves_as_older(&self) -> bool {
        (self.snapshot.pipeline).is_none_or(|pipeline| pipeline.dequeue_on_new_patchset)
    }

    /// Returns whether what stands in a slot is an older revision of a change that enters, and goes
    /// on beside it. Where changes land, or are tested on top of each other, there is one revision
    /// of each: two of them are never to be in one branch.
    fn stays_beside(&self, slot: &Slot, change: &ChangeRef) -> bool {
        self.head.manager == Manager::Independent
            && !self.leaves_as_older()
            && !self.snapshot.pipeline.is_some_and(lands_in)
            && slot.change.branch == change.branch
            && slot.change.head != change.head
    }

    /// Returns where something stands that a change which enters takes the place of, or that is the
    /// very same.
    fn position_for(&self, change: &ChangeRef) -> Option<usize> {
        let is_in_its_place =
            |slot: &Slot| slot.change.key == change.key && !self.stays_beside(slot, change);
        self.head.slots.iter().position(is_in_its_place)
    }

    /// Returns the items of a change that stand here: there are several where older revisions go
    /// on.
    fn revisions(&self, key: &ChangeKey) -> Vec<ItemId> {
        self.head
            .slots
            .iter()
            .filter(|slot| slot.change.key == *key)
            .map(|slot| slot.id.clone())
            .collect()
    }

    /// Enqueues candidates in their order, those that need each other together. Returns false when
    /// there was no room for what they replace.
    pub(super) fn enqueue_all(&mut self, arrival: &Arrival, candidates: &[Candidate]) -> bool {
        candidates.iter().enumerate().all(|(at, candidate)| {
            let is_one = is_dependent(&self.head) || self.head.manager == Manager::Independent;
            if !is_one || candidate.cycle.is_empty() || candidate.refused.is_some() {
                return self.enqueue(arrival, candidate);
            }
            if candidates[at + 1..]
                .iter()
                .any(|behind| candidate.cycle.contains(&behind.change.key))
            {
                return true; // With the last of its cycle: what any of them needs besides stands before that one.
            }
            self.enqueue_cycle(arrival, candidate, candidates)
        })
    }

    /// Enqueues a candidate if it may enter. Returns false when there was no room for what it
    /// replaces.
    fn enqueue(&mut self, arrival: &Arrival, candidate: &Candidate) -> bool {
        let change = &candidate.change;
        // Of the change itself nothing newer need be known.
        let needs_more = self.needs_more(candidate);
        if !needs_more && self.is_older(change, candidate.as_of) {
            return true;
        }
        while let Some(position) = self.position_for(change) {
            let slot = &self.head.slots[position];
            let is_same = slot.change == *change;
            if slot.standing == Standing::Reporting && self.has_landed(&slot.id) {
                self.plan
                    .reasons
                    .push(format!("{change} is not enqueued in {}: it has landed", self.head.key));
                return true;
            }
            let is_apart = !is_dependent(&self.head)
                && self.head.bundle(position).len() > 1
                && !self.is_tied_alike(position, candidate);
            if is_same && !self.is_let_go(slot) && !needs_more && !is_apart {
                self.plan.reasons.push(format!("{change} is in {} already", self.head.key));
                return true;
            }
            let (why, occasion) = why_replaced(slot, change);
            if !self.leave_at(position, why, occasion) {
                return false;
            }
        }
        if !self.has_room(LEAVING_RECORDS + self.entry_records()) {
            return false;
        }
        if let Some(reason) = self.refusal(candidate) {
            self.plan
                .reasons
                .push(format!("{change} is not enqueued in {}: {reason}", self.head.key));
            self.refuse_moved(arrival, &[candidate], &reason);
            if candidate.refused.is_some()
                && let Some(report) = self.report_refusal(candidate, arrival, &reason)
            {
                self.plan.reports.push(report);
            }
            return true;
        }
        if let Some(reason) = self.over_limit(&[candidate]) {
            return self.tell_full(arrival, &[candidate], &reason);
        }
        if let Some(newer) = self.newer_of_branch(candidate).map(ToString::to_string) {
            // Forges tell of pushes in any order.
            self.plan.reasons.push(format!(
                "{change} is not enqueued in {}: its branch had moved on to {newer} by then",
                self.head.key
            ));
            return true;
        }
        if self.head.manager == Manager::Supercedent
            && !(self.drop_waiting_of_branch(change) && self.has_room(self.entry_records()))
        {
            return false;
        }
        self.enter(arrival, candidate, false);
        true
    }

    /// Returns whether the very revision stands here, tested on less than it is offered with:
    /// without something that it needs, or on an older revision of that. Where changes land, what
    /// is needed is in its branch before them, and news tell of it.
    pub(super) fn needs_more(&self, candidate: &Candidate) -> bool {
        let tests_alone = |pipeline: &Pipeline| !lands_in(pipeline);
        let is_each_alone = self.head.manager == Manager::Independent
            && self.snapshot.pipeline.is_some_and(tests_alone);
        let here = self
            .head
            .slots
            .iter()
            .find(|slot| slot.change == candidate.change && !slot.standing.is_decided());
        let item = here.filter(|_| is_each_alone).and_then(|slot| self.items.get(&slot.id));
        let is_newer = |item: &Item, need: &Candidate| {
            let known =
                item.candidate.needs.iter().find(|known| known.change.key == need.change.key);
            known.is_none_or(|known| known.change != need.change && known.as_of <= need.as_of)
        };
        candidate.refused.is_none()
            && item.is_some_and(|item| candidate.needs.iter().any(|need| is_newer(item, need)))
    }

    /// Puts a candidate at the end of the queue.
    pub(super) fn enter(&mut self, arrival: &Arrival, candidate: &Candidate, joined: bool) {
        let change = &candidate.change;
        let slot =
            Slot { joined, ..new_slot(item_id(&self.head, change, arrival), change.clone()) };
        let admitted = Candidate { moved_from: None, ..candidate.clone() };
        let mut item = Item::admitted(&slot, admitted, &arrival.event_id, arrival.at);
        item.note(format!("enqueued in {} by event {}", self.head.key.pipeline, arrival.event_id));
        for address in &candidate.unfollowed {
            item.note(format!(
                "it depends on {address}, where no connection leads to: that is not waited for"
            ));
        }
        self.plan.reasons.push(format!("{change} enters {}", self.head.key));
        self.plan.reports.extend(self.report_item(&item, Occasion::Enqueue, ""));
        self.tell(ZuulEvent::ParentChangeEnqueued, &slot.id, change);
        self.supersede(&slot.id, change, candidate.cycle.len(), &arrival.event_id);
        self.touched.insert(slot.id.clone());
        self.items.insert(slot.id.clone(), item);
        self.head.slots.push(slot);
    }

    /// Returns why a candidate may not enter, if so. In a dependent pipeline what it needs must be
    /// ahead of it (Z6.5, D01).
    pub(super) fn refusal(&self, candidate: &Candidate) -> Option<String> {
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
            // Also a revision that was uploaded while its forge merged the one before: no forge
            // merges a change a second time. What a push landed is merged at that head alone, so
            // that another one is open still.
            return Some("it has landed".to_owned());
        }
        let missing = candidate.needs.iter().find(|need| {
            let key = &need.change.key;
            let ahead = self.head.slots.iter().any(|slot| slot.change == need.change);
            !ahead && !candidate.is_mate(key) && !self.head.has_landed(&need.change)
        })?;
        Some(format!(
            "it depends on {}, which is neither merged nor ahead of it in this queue",
            missing.change.key
        ))
    }

    /// Returns whether something newer is known of a change that stands here than what was told of
    /// it, which is told in vain then. Otherwise it is known as of that moment from now on.
    pub(super) fn is_older(&mut self, change: &ChangeRef, as_of: Timestamp) -> bool {
        let ids = self.revisions(&change.key);
        let known =
            ids.iter().filter_map(|id| self.items.get(id)).map(|item| item.candidate.as_of).max();
        let known = known.unwrap_or(as_of);
        if as_of == Timestamp::default() || known == as_of {
            return false;
        }
        if as_of < known {
            let reason = format!(
                "{change}, as it was at {}, is older than what is known of it",
                as_of.to_iso()
            );
            self.plan.reasons.push(reason);
            return true;
        }
        for id in &ids {
            if let Some(item) = self.item(id) {
                item.candidate.as_of = as_of;
            }
        }
        false
    }

    fn seen(
        &mut self,
        arrival: &Arrival,
        change: &ChangeRef,
        (gone, merged): (Option<&str>, bool),
        needs: Option<&[ChangeRef]>,
    ) -> bool {
        // What is over for a change is over for each of its revisions.
        let revisions = self.revisions(&change.key);
        revisions.iter().all(|id| self.seen_of(id, arrival, change, (gone, merged), needs))
    }

    fn seen_of(
        &mut self,
        id: &ItemId,
        arrival: &Arrival,
        change: &ChangeRef,
        (gone, merged): (Option<&str>, bool),
        needs: Option<&[ChangeRef]>,
    ) -> bool {
        let Some(position) = self.head.slots.iter().position(|slot| slot.id == *id) else {
            return true;
        };
        let slot = &self.head.slots[position];
        // What has succeeded is no longer judged: only where it did not land does another revision,
        // or branch, end its last jobs.
        let is_same = slot.change.branch == change.branch && slot.change.head == change.head;
        if slot.standing == Standing::Reporting && (is_same || self.has_landed(&slot.id)) {
            return true;
        }
        match gone {
            // Its tests were on another branch, which the forge no longer merges it into.
            _ if slot.change.branch != change.branch => {
                let why = format!("it is to be merged into {} now", change.branch);
                self.leave_at(position, &why, Occasion::Dequeue)
            }
            // What needs it stays, and is tested on what the branch is now (Z6.5).
            Some(why) if merged && !slot.standing.is_landing() => {
                let together = self.changes_of(self.head.bundle(position));
                if !self.leave_at(position, why, Occasion::Dequeue) {
                    return false;
                }
                if !self.head.has_landed(change) {
                    self.remember_landed(change, false);
                }
                self.remember_merged(&together);
                true
            }
            _ if slot.change.head != change.head && self.leaves_as_older() => {
                self.leave_at(position, "a new revision was uploaded", Occasion::Dequeue)
            }
            // A change that its own landing merged is no longer open either; its landing's outcome
            // decides about it.
            Some(why) if !slot.standing.is_landing() => {
                self.let_go_of_those_in_turn(change, needs.unwrap_or_default(), why)
                    && self.leave_at(position, why, Occasion::of_leaving(why))
            }
            None if !slot.standing.is_landing() => match needs {
                Some(needs) if is_dependent(&self.head) => {
                    self.follow_needs(arrival, change, needs)
                }
                _ => true,
            },
            _ => true,
        }
    }

    /// Takes a change out whose dependencies are others than it was admitted with, and admits it
    /// again with those if it still may enter (Z6.5, D01). What it needed and has landed is no
    /// other dependency.
    fn follow_needs(&mut self, arrival: &Arrival, change: &ChangeRef, needs: &[ChangeRef]) -> bool {
        let Some(position) = self.head.slots.iter().position(|slot| slot.change == *change) else {
            return true;
        };
        let slot = self.head.slots[position].id.clone();
        let Some(candidate) = self.items.get(&slot).map(|item| item.candidate.clone()) else {
            return true;
        };
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
        // One that is no longer open and did not land here left its queue, or will; that takes this
        // one out.
        let ahead = &self.head.slots[..self.head.bundle(position).end];
        // One that is on its way into its branch may be there by now, as its forge says; the end of
        // its landing tells.
        let is_ahead = |key: &ChangeKey| {
            ahead.iter().any(|slot| slot.change.key == *key && !slot.standing.is_decided())
        };
        if now.is_subset(&before) && before.difference(&now).all(|key| !is_ahead(key)) {
            return true;
        }
        let others = self.in_turn(&change.key, needs);
        if !others.is_empty() {
            return self.leave_in_turn(position, others);
        }
        let known = |need: &ChangeRef| {
            let queued = self.items.values().map(|item| &item.candidate).chain(&candidate.needs);
            let found = queued.into_iter().find(|known| known.change == *need).cloned();
            Candidate {
                needs: Vec::new(),
                cycle: Vec::new(),
                ..found.unwrap_or_else(|| Candidate::bare(need))
            }
        };
        let again = Candidate {
            needs: needs.iter().map(known).collect(),
            refused: None,
            ..candidate.clone()
        };
        let is_needed_still = |mate: &ChangeKey| *mate == change.key || now.contains(mate);
        if !candidate.cycle.is_empty() && candidate.cycle.iter().all(is_needed_still) {
            return self.bundle_follows_needs(position, &again);
        }
        // Whether it is in a cycle still nobody says here; if it is, it comes in again with those
        // that need it.
        let again = Candidate { cycle: Vec::new(), ..again };
        let leaving: Vec<ItemId> = self.head.slots[self.head.bundle(position)]
            .iter()
            .map(|slot| slot.id.clone())
            .collect();
        // Once it has left nobody knows of it any more: in the same plan it enters, or it is gone.
        leaving.iter().all(|id| self.stop_builds(id, WHY_NEEDS))
            && self.has_room(LEAVING_RECORDS * (leaving.len() + 1) + self.entry_records())
            && self.leave(&change.key, WHY_NEEDS, Occasion::Dequeue)
            && self.enqueue(arrival, &again)
    }

    /// Takes everything out of a queue whose pipeline the live configuration no longer has; what is
    /// landing ends its landing (R03).
    pub(super) fn leave_without_pipeline(&mut self) {
        if self.snapshot.pipeline.is_some() || self.is_settling() {
            return;
        }
        let keys: Vec<ChangeKey> = (self.head.slots.iter())
            .filter(|slot| !slot.standing.is_landing())
            .map(|slot| slot.change.key.clone())
            .collect();
        for key in keys {
            let why = "the tenant's configuration no longer has this pipeline";
            if !self.has_room(LEAVING_RECORDS) || !self.leave(&key, why, Occasion::Dequeue) {
                return; // What is left leaves with the next plan.
            }
        }
    }

    /// Takes a change out; its builds are stopped. Returns false when some could not be stopped
    /// yet, so that it is still here.
    pub(super) fn leave(&mut self, key: &ChangeKey, why: &str, occasion: Occasion) -> bool {
        let Some(position) = self.head.slots.iter().position(|slot| slot.change.key == *key) else {
            return true;
        };
        self.leave_at(position, why, occasion)
    }

    /// Takes out what stands at `position`, as [`Work::leave`] does.
    pub(super) fn leave_at(&mut self, position: usize, why: &str, occasion: Occasion) -> bool {
        if self.head.bundle(position).len() > 1 {
            return self.leave_with_mates(position, why, occasion);
        }
        let id = self.head.slots[position].id.clone();
        // Whoever takes it out may have it enter anew.
        if !self.stop_builds(&id, why) || !self.has_room(LEAVING_RECORDS + self.entry_records()) {
            return false;
        }
        self.remove(position, "DEQUEUED", why, occasion)
    }

    /// Returns what stands in the queue and is what the branch of a ref that is to enter had moved
    /// on to, where the newest alone counts.
    fn newer_of_branch(&self, candidate: &Candidate) -> Option<&ChangeRef> {
        let (tip, change) = (candidate.moved_on.as_ref()?, &candidate.change);
        let is_newer = |other: &&ChangeRef| {
            (&other.key.project, &other.branch, &other.head)
                == (&change.key.project, &change.branch, tip)
        };
        let all = self.head.slots.iter().map(|slot| &slot.change);
        all.filter(|_| self.head.manager == Manager::Supercedent).find(is_newer)
    }

    /// Takes out what waits of a branch, since a newer commit of it enters. Returns false when
    /// there was no room for that.
    fn drop_waiting_of_branch(&mut self, change: &ChangeRef) -> bool {
        // A build of one image is no newer one of another's.
        let is_older = |slot: &&Slot| {
            let key = &slot.change.key;
            key.project == change.key.project
                && slot.change.branch == change.branch
                && key.images() == change.key.images()
        };
        let waiting = self.head.slots.iter().skip(1).find(is_older);
        let Some(key) = waiting.map(|slot| slot.change.key.clone()) else {
            return true;
        };
        let why = "a newer one of its branch takes its place";
        self.leave(&key, why, Occasion::Dequeue)
    }
}

/// Returns why what stands in a slot leaves for a change that enters in its place, and how that is
/// told.
pub(super) fn why_replaced(slot: &Slot, change: &ChangeRef) -> (&'static str, Occasion) {
    match slot.change == *change {
        true => (WHY_NEEDS, Occasion::Superseded),
        false => ("a new revision takes its place", Occasion::Dequeue),
    }
}

/// Puts what is told of a change behind what was true of it before. Arrivals are kept in the order
/// of the clocks of those who wrote them, which differ; of one change its forge's clock says what
/// came first. Those to be ordered are named by their places.
fn in_forges_order(arrivals: &[Arrival], mut order: Vec<usize>) -> Vec<usize> {
    // Most news are of changes that do not enter: they are where they belong, however many there
    // are.
    let candidates = order.iter().filter_map(|at| match &arrivals[*at].kind {
        ArrivalKind::Enqueue { candidates } => Some(candidates),
        _ => None,
    });
    let entering: BTreeSet<&ChangeKey> =
        candidates.flatten().map(|candidate| &candidate.change.key).collect();
    let mut at = 0;
    while at < order.len() {
        let later = match &arrivals[order[at]].kind {
            ArrivalKind::Seen { change, .. } if !entering.contains(&change.key) => None,
            ArrivalKind::Seen { change, as_of, .. } => order[at + 1..].iter().rposition(|behind| {
                let ArrivalKind::Enqueue { candidates } = &arrivals[*behind].kind else {
                    return false;
                };
                let is_older = |c: &Candidate| {
                    c.change.key == change.key && Timestamp::default() < c.as_of && c.as_of < *as_of
                };
                candidates.iter().any(is_older)
            }),
            _ => None,
        };
        match later {
            Some(behind) => order[at..=at + 1 + behind].rotate_left(1),
            None => at += 1,
        }
    }
    order
}

/// Returns the records that taking an arrival in may write, besides builds to stop, which are
/// counted one by one.
fn room(arrival: &Arrival) -> usize {
    match &arrival.kind {
        // Few of them replace an older revision; a transaction has ten records more than are
        // planned with.
        ArrivalKind::Enqueue { candidates } => (10 + 4 * candidates.len()).min(80),
        _ => 10,
    }
}
