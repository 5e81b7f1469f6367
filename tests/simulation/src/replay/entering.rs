//! What comes into a queue, what news take out of it, and what operators do to it.

use super::line::{Answer, Line, Place};
use super::turn::Turn;
use sluice_config::pipeline::Manager;
use sluice_gate::{Candidate, InboxMessage, InboxMessageKind, SlotStatus};
use sluice_model::change::{ChangeKey, ChangeRef};
use sluice_model::{ItemId, Timestamp};
use std::collections::BTreeSet;

/// The most changes that may need each other.
const CYCLE_MAX: usize = 10;

impl Turn<'_> {
    /// Does what an operator says. What a thaw leaves is believed.
    pub(super) fn hear_word(&mut self, arrival: &InboxMessage) {
        match &arrival.kind {
            InboxMessageKind::Dequeue { .. } if self.is_for_another(arrival) => {}
            InboxMessageKind::Dequeue { key, head, .. } => {
                self.step(format!("an operator takes {key} out"));
                let is_meant = |place: &&Place| {
                    let starts = |head: &str| place.change.head.as_str().starts_with(head);
                    place.change.key == *key
                        && head.as_ref().is_none_or(|head| starts(head.as_str()))
                };
                let meant: Vec<ItemId> = self
                    .line
                    .places
                    .iter()
                    .filter(is_meant)
                    .map(|place| place.id.clone())
                    .collect();
                for id in meant {
                    self.leave(&id, "DEQUEUED");
                }
            }
            InboxMessageKind::Promote { keys, .. } => self.promote(keys),
            InboxMessageKind::Enqueue { .. }
            | InboxMessageKind::ChangeUpdated { .. }
            | InboxMessageKind::Superseded { .. }
            | InboxMessageKind::MoveToHost { .. }
            | InboxMessageKind::Resume { .. } => {}
        }
    }

    /// Takes in what a forge or another pipeline reported.
    pub(super) fn hear_arrival(&mut self, arrival: &InboxMessage) {
        match &arrival.kind {
            InboxMessageKind::Enqueue { candidates } if self.is_discarded(arrival, candidates) => {
                self.pass_over(candidates)
            }
            _ if self.is_for_another(arrival) => {}
            InboxMessageKind::MoveToHost { change, as_of, to } => self.make_way(change, *as_of, to),
            InboxMessageKind::Enqueue { candidates } => self.enqueue_all(arrival, candidates),
            InboxMessageKind::Superseded { change, .. } => {
                self.step(format!("{change} entered a pipeline that supersedes this one"));
                if let Some(at) = self.line.position_of(change)
                    && !self.line.places[at].is_decided()
                {
                    self.leave_together(at, "DEQUEUED");
                }
            }
            InboxMessageKind::ChangeUpdated { change, gone, merged, needs, as_of } => {
                let how = match (gone, merged) {
                    (Some(why), false) => format!(", and may not be here: {why}"),
                    (Some(_), true) => ", and is merged".to_owned(),
                    (None, _) => String::new(),
                };
                self.step(format!("{change} is seen as of {}{how}", as_of.to_iso()));
                if self.is_outdated(&change.key, *as_of) {
                    return self.step("that is older than what is known of it".to_owned());
                }
                let here = self.line.places.iter().filter(|place| place.change.key == change.key);
                let here: Vec<ItemId> = here.map(|place| place.id.clone()).collect();
                for id in here {
                    self.see(&id, arrival, change, (gone.is_some(), *merged), needs.as_deref());
                }
            }
            InboxMessageKind::Dequeue { .. }
            | InboxMessageKind::Promote { .. }
            | InboxMessageKind::Resume { .. } => {}
        }
    }

    /// Returns whether news that wait took something out all the same.
    pub(super) fn takes_out(&self, arrival: &InboxMessage) -> bool {
        let InboxMessageKind::ChangeUpdated { change, gone, as_of, .. } = &arrival.kind else {
            return false;
        };
        let has_left = |place: &&Place| {
            place.change.key == change.key && self.facts.left.contains_key(&place.id)
        };
        let mut here = self.line.places.iter().filter(has_left).filter(|place| !place.is_decided());
        here.any(|place| {
            let is_older = as_of.0 > 0 && *as_of < place.as_of;
            let is_another =
                place.change.branch != change.branch || place.change.head != change.head;
            !is_older && (gone.is_some() || is_another)
        })
    }

    /// Takes a change out, with those that need it.
    fn leave(&mut self, id: &ItemId, result: &str) {
        if let Some(at) = self.line.position(id) {
            self.leave_together(at, result);
        }
    }

    /// Returns whether something newer is known of a change that stands here; otherwise it is known
    /// as of that moment from now on.
    pub(super) fn is_outdated(&mut self, key: &ChangeKey, as_of: Timestamp) -> bool {
        let newest = self
            .line
            .places
            .iter()
            .filter(|place| place.change.key == *key)
            .map(|place| place.as_of)
            .max();
        let Some(newest) = newest.filter(|_| as_of.0 > 0) else { return false };
        if as_of < newest {
            return true;
        }
        for place in self.line.places.iter_mut().filter(|place| place.change.key == *key) {
            place.as_of = as_of;
        }
        false
    }

    /// Follows what a change is now.
    fn see(
        &mut self,
        id: &ItemId,
        arrival: &InboxMessage,
        change: &ChangeRef,
        (is_gone, is_merged): (bool, bool),
        needs: Option<&[ChangeRef]>,
    ) {
        let Some(at) = self.line.position(id) else { return };
        let place = &self.line.places[at];
        let (same_branch, same_head) =
            (place.change.branch == change.branch, place.change.head == change.head);
        let is_same = same_branch && same_head;
        let is_landing = place.is_landing();
        if place.standing == SlotStatus::Reporting && (is_same || place.is_in_branch) {
            return;
        }
        if !same_branch {
            self.leave(id, "DEQUEUED");
        } else if is_gone && is_merged && !is_landing {
            let together = self.changes_at(self.line.bundle(at));
            self.leave(id, "DEQUEUED");
            if !self.line.has_landed(change) {
                self.line.landed.push((change.key.clone(), String::new()));
            }
            self.remember_merged(&together);
        } else if !same_head {
            self.leave(id, "DEQUEUED");
        } else if is_gone && !is_landing {
            let others = self.in_turn(&change.key, needs.unwrap_or_default());
            self.let_go(&others);
            self.leave(id, "DEQUEUED");
        } else if !is_gone
            && !is_landing
            && self.line.is_dependent()
            && let Some(needs) = needs
        {
            self.follow_needs(arrival, change, needs);
        }
    }

    /// Enqueues changes in the order they are to stand, those that need each other with the last of
    /// them.
    fn enqueue_all(&mut self, arrival: &InboxMessage, candidates: &[Candidate]) {
        for (at, candidate) in candidates.iter().enumerate() {
            let is_one = matches!(self.line.manager, Manager::Dependent | Manager::Independent);
            if !is_one || candidate.bundle.is_empty() || candidate.refused.is_some() {
                self.enqueue(arrival, candidate);
            } else if !candidates[at + 1..]
                .iter()
                .any(|later| candidate.bundle.contains(&later.change.key))
            {
                self.enqueue_cycle(arrival, candidate, candidates);
            }
        }
    }

    fn enqueue(&mut self, arrival: &InboxMessage, candidate: &Candidate) {
        let change = &candidate.change;
        self.step(format!("{change} is offered"));
        let needs_more = self.needs_more(candidate);
        if !needs_more && self.is_outdated(&change.key, candidate.as_of) {
            return self.step("that is older than what is known of it".to_owned());
        }
        while let Some(at) =
            self.line.places.iter().position(|place| place.change.key == change.key)
        {
            let place = &self.line.places[at];
            let has_landed = place.standing == SlotStatus::Reporting && place.is_in_branch;
            let is_let_go = place.is_let_go && !place.is_decided();
            let is_kept = !is_let_go && !needs_more && !self.is_tied_otherwise(at, candidate);
            if has_landed || (place.change == *change && is_kept) {
                return;
            }
            self.leave_together(at, "DEQUEUED");
        }
        if !self.may_enter(candidate) {
            return self.step(format!("{change} may not enter"));
        }
        if self.lacks_room(arrival, &[candidate]) {
            return self.step(format!("there is no room for {change}"));
        }
        if self.line.manager == Manager::Supercedent {
            if self.is_newer_here(candidate) {
                return;
            }
            self.drop_waiting(change);
        }
        self.enter(arrival, candidate, false);
    }

    /// Returns whether a change stands here that comes again with a need that it is not tested on,
    /// or with a newer revision of one. That counts where each is tested for itself and nothing
    /// lands.
    pub(super) fn needs_more(&self, candidate: &Candidate) -> bool {
        if self.line.manager != Manager::Independent
            || self.line.lands
            || candidate.refused.is_some()
        {
            return false;
        }
        let Some(at) = self.line.position_of(&candidate.change) else { return false };
        let place = &self.line.places[at];
        let is_tested_on = |need: &Candidate| {
            let mut same = place.below.iter().filter(|(known, _)| known.key == need.change.key);
            same.next().is_some_and(|(known, as_of)| *known == need.change || *as_of > need.as_of)
        };
        !place.is_decided() && !candidate.needs.iter().all(is_tested_on)
    }

    /// Returns whether the branch of a ref had moved on to something that stands here when it was
    /// read.
    fn is_newer_here(&self, candidate: &Candidate) -> bool {
        let change = &candidate.change;
        candidate.newer_head.as_ref().is_some_and(|tip| {
            let is_it = |other: &ChangeRef| {
                other.key.project == change.key.project
                    && other.branch == change.branch
                    && other.head == *tip
            };
            self.line.places.iter().any(|place| is_it(&place.change))
        })
    }

    /// Takes out the one that waits of a branch, since a newer one comes: the first is being worked
    /// on.
    fn drop_waiting(&mut self, change: &ChangeRef) {
        let is_of_branch = |other: &ChangeRef| {
            other.key.project == change.key.project
                && other.branch == change.branch
                && other.key.images() == change.key.images()
        };
        let waits =
            (1..self.line.places.len()).find(|at| is_of_branch(&self.line.places[*at].change));
        if let Some(at) = waits {
            self.leave_together(at, "DEQUEUED");
        }
    }

    /// Returns whether a change may enter: in a dependent pipeline what it needs is merged, ahead
    /// of it, or comes with it.
    fn may_enter(&self, candidate: &Candidate) -> bool {
        if candidate.refused.is_some() {
            return false;
        }
        if !self.line.is_dependent() {
            return true;
        }
        let is_there = |need: &ChangeRef| {
            let is_mate = need.key != candidate.change.key && candidate.bundle.contains(&need.key);
            is_mate || self.line.position_of(need).is_some() || self.line.has_landed(need)
        };
        !self.line.has_landed(&candidate.change)
            && candidate.needs.iter().all(|need| is_there(&need.change))
    }

    fn enter(&mut self, arrival: &InboxMessage, candidate: &Candidate, joined: bool) {
        let change = &candidate.change;
        let id = self.id_of(arrival, change);
        let mut place = Place::new(id, change.clone(), joined);
        place.needs = candidate.needs.iter().map(|need| need.change.clone()).collect();
        place.below =
            candidate.needs.iter().map(|need| (need.change.clone(), need.as_of)).collect();
        place.cycle.clone_from(&candidate.bundle);
        place.mates.clone_from(&candidate.cycle_needs);
        place.as_of = candidate.as_of;
        self.step(format!("{change} enters"));
        self.line.places.push(place);
    }
}

/// Changes that need each other.
impl Turn<'_> {
    /// Enqueues those that need each other, all or none.
    fn enqueue_cycle(&mut self, arrival: &InboxMessage, one: &Candidate, offered: &[Candidate]) {
        let find = |key: &ChangeKey| offered.iter().find(|candidate| candidate.change.key == *key);
        let members: Option<Vec<&Candidate>> = one.bundle.iter().map(find).collect();
        let Some(members) = members.filter(|members| members.len() <= CYCLE_MAX) else {
            return self.step(format!("{} may not enter without those that need it", one.change));
        };
        let here = self.line.position_of(&members[0].change).map(|at| self.line.bundle(at));
        let is_here = here.is_some_and(|bundle| {
            let changes = self.line.places[bundle].iter().map(|place| &place.change);
            changes.eq(members.iter().map(|member| &member.change))
        });
        // What comes on top of more than it is tested on begins again where each change has a queue
        // of its own.
        let needs_more = members.iter().any(|member| self.needs_more(member));
        if is_here && !needs_more {
            return self.step(format!("{} is there already, with all that need it", one.change));
        }
        let is_ordered = !self.line.is_dependent() && !needs_more;
        if is_ordered
            && members.iter().any(|member| self.is_outdated(&member.change.key, member.as_of))
        {
            return self.step("that is older than what is known of one of them".to_owned());
        }
        let has_landed = |member: &&Candidate| {
            let mut places =
                self.line.places.iter().filter(|place| place.change.key == member.change.key);
            places.any(|place| place.standing == SlotStatus::Reporting && place.is_in_branch)
        };
        if members.iter().any(has_landed) {
            return self.step(format!("{} has landed, or one that needs it", one.change));
        }
        for member in &members {
            let here = |line: &Line| {
                line.places.iter().position(|place| place.change.key == member.change.key)
            };
            while let Some(at) = here(&self.line) {
                self.leave_together(at, "DEQUEUED");
            }
        }
        if !members.iter().all(|member| self.may_enter(member)) {
            return self.step(format!("{} and those that need it may not enter", one.change));
        }
        if self.lacks_room(arrival, &members) {
            return self
                .step(format!("there is no room for {} and those that need it", one.change));
        }
        for (at, member) in members.into_iter().enumerate() {
            self.enter(arrival, member, at > 0);
        }
    }

    /// Returns those that a change needs now and that need it in turn, besides its own bundle.
    fn in_turn(&self, change: &ChangeKey, needs: &[ChangeRef]) -> Vec<ItemId> {
        if !self.line.is_dependent() {
            return Vec::new();
        }
        let place = |key: &ChangeKey| {
            self.line
                .places
                .iter()
                .position(|place| place.change.key == *key && !place.is_decided())
        };
        // All that can be reached from some changes by what each needs, without the change itself.
        let reached = |from: Vec<usize>| {
            let (mut found, mut open) = (BTreeSet::new(), from);
            while let Some(at) = open.pop() {
                if self.line.places[at].change.key != *change && found.insert(at) {
                    open.extend(
                        self.line.places[at].needs.iter().filter_map(|need| place(&need.key)),
                    );
                }
            }
            found
        };
        let needs_it = |at: &usize| {
            let direct =
                |at: &usize| self.line.places[*at].needs.iter().any(|need| need.key == *change);
            reached(vec![*at]).iter().any(direct)
        };
        let own = place(change).map(|at| self.line.bundle(at)).unwrap_or_default();
        let needed = reached(needs.iter().filter_map(|need| place(&need.key)).collect());
        let others = needed.into_iter().filter(needs_it).filter(|at| !own.contains(at));
        others.map(|at| self.line.places[at].id.clone()).collect()
    }

    fn let_go(&mut self, ids: &[ItemId]) {
        for place in self.line.places.iter_mut().filter(|place| ids.contains(&place.id)) {
            place.is_let_go = true;
            self.steps
                .push(format!("{} is to leave: it and others need each other now", place.change));
        }
    }

    /// Follows what a change depends on now: one that needs something else than before leaves,
    /// and comes again if it may.
    fn follow_needs(&mut self, arrival: &InboxMessage, change: &ChangeRef, needs: &[ChangeRef]) {
        let Some(at) = self.line.position_of(change) else { return };
        let open = |all: &[ChangeRef]| -> BTreeSet<ChangeKey> {
            all.iter()
                .filter(|need| !self.line.has_landed(need))
                .map(|need| need.key.clone())
                .collect()
        };
        let (before, now) = (open(&self.line.places[at].needs), open(needs));
        let bundle = self.line.bundle(at);
        let is_ahead = |key: &ChangeKey| {
            let mut ahead = self.line.places[..bundle.end].iter();
            ahead.any(|place| place.change.key == *key && !place.is_decided())
        };
        if now.is_subset(&before) && !before.difference(&now).any(is_ahead) {
            return;
        }
        self.step(format!("{change} depends on other changes than before"));
        let others = self.in_turn(&change.key, needs);
        if !others.is_empty() {
            let own: Vec<ItemId> =
                self.line.places[bundle].iter().map(|place| place.id.clone()).collect();
            self.let_go(&own);
            return self.let_go(&others);
        }
        let place = &self.line.places[at];
        let (cycle, as_of) = (place.cycle.clone(), place.as_of);
        let is_needed = |mate: &ChangeKey| *mate == change.key || now.contains(mate);
        if !cycle.is_empty() && cycle.iter().all(is_needed) {
            return self.bundle_follows_needs(at, change, needs);
        }
        self.leave_together(at, "DEQUEUED");
        let bare = Candidate::bare(change);
        let again = Candidate { needs: needs.iter().map(Candidate::bare).collect(), as_of, ..bare };
        self.enqueue(arrival, &again);
    }

    /// Gives a bundle what one of its changes needs now: it stands behind all of that, or
    /// leaves.
    fn bundle_follows_needs(&mut self, at: usize, change: &ChangeRef, needs: &[ChangeRef]) {
        let bundle = self.line.bundle(at);
        let cycle = self.line.places[at].cycle.clone();
        let mut behind = bundle.start;
        for need in needs.iter().filter(|need| !cycle.contains(&need.key) || need.key == change.key)
        {
            if self.line.has_landed(need) {
                continue;
            }
            match self.line.position_of(need) {
                Some(at) => behind = behind.max(at),
                None => return self.leave_together(at, "DEQUEUED"),
            }
        }
        for place in &mut self.line.places[bundle.clone()] {
            let all = needs.iter().chain([change]);
            place.needs = all.filter(|need| need.key != place.change.key).cloned().collect();
        }
        if behind >= bundle.end {
            let moved: Vec<Place> = self.line.places.drain(bundle).collect();
            self.line.places.extend(moved);
        }
    }

    /// Moves changes to the front, each with what it needs before it. What is being landed or was
    /// reported stays first, and so does what has begun where one is worked on after the other.
    fn promote(&mut self, keys: &[ChangeKey]) {
        let places = &self.line.places;
        let one_by_one = matches!(self.line.manager, Manager::Serial | Manager::Supercedent);
        let stays = |place: &Place| match one_by_one {
            true => place.standing != SlotStatus::Waiting || place.answer != Answer::Unasked,
            false => {
                matches!(
                    place.standing,
                    SlotStatus::Landing | SlotStatus::Landed | SlotStatus::Reporting
                )
            }
        };
        let mut first: Vec<usize> = Vec::new();
        let add = |first: &mut Vec<usize>, at: usize| {
            let bundle = self.line.bundle(at);
            if !first.contains(&bundle.start) {
                first.extend(bundle);
            }
        };
        for at in (0..places.len()).filter(|at| stays(&places[*at])) {
            add(&mut first, at);
        }
        for key in keys {
            let Some(place) = places.iter().find(|place| place.change.key == *key) else {
                continue;
            };
            let own: Vec<usize> = place
                .needs
                .iter()
                .chain([&place.change])
                .filter_map(|change| self.line.position_of(change))
                .collect();
            for (nth, at) in own.iter().enumerate() {
                // A bundle comes where the last of it is named: what any of it needs besides stands
                // before.
                let bundle = self.line.bundle(*at);
                if !own[nth + 1..].iter().any(|later| bundle.contains(later)) {
                    add(&mut first, *at);
                }
            }
        }
        let rest: Vec<usize> = (0..places.len()).filter(|at| !first.contains(at)).collect();
        let order: Vec<Place> =
            first.into_iter().chain(rest).map(|at| places[at].clone()).collect();
        self.line.places = order;
        let names: Vec<String> = keys.iter().map(ToString::to_string).collect();
        self.step(format!("an operator has {} come first", names.join(", ")));
    }
}
