//! Changes that need each other where each has a queue of its own: they stand as one in one of
//! those queues, and the others say so.
//!
//! Home is the own queue of the first of them by its key, whichever event brought them. A change
//! that stands in another queue than its own is a guest there. Its own queue says where it stands
//! from the very commit in which it enters until the very commit in which it leaves: both write the
//! own queue's head as well, on condition that it is as it was read. So a change stands in one
//! place, whoever decides at the same time, and no queue waits for another one's lock. Whatever is
//! told of a guest reaches its own queue, as ever, which sends all of it on.

use super::{Work, is_dependent};
use crate::arrival::{Arrival, ArrivalKind, Candidate};
use crate::item::Item;
use crate::landing::lands_in;
use crate::report::Occasion;
use sluice_config::pipeline::{Manager, Pipeline};
use sluice_model::change::{ChangeKey, ChangeRef};
use sluice_model::git::Oid;
use sluice_model::{ArrivalId, QueueKey, QueueName, Timestamp};
use std::collections::BTreeSet;

/// Why a change leaves its own queue to stand with others in theirs.
const WHY_AS_ONE: &str = "it is tested as one with changes that need it as much as it needs them";

/// Why changes are no longer tested as one.
const WHY_APART: &str = "the configuration changed: the pipeline lands changes now, each by itself, and those that need each other are not tested as one";

/// Records that sending an arrival on writes: itself, and what is mended by that.
const SENDING_RECORDS: usize = 4;

/// Records that say where a guest stands: its own queue's head, and whether that is listed.
pub(super) const DOOR_RECORDS: usize = 2;

/// What is known of the own queue of a change that another queue has, or is to have, or hears of.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Door {
    /// As [`crate::Head::stands_in`].
    pub stands_in: Option<QueueName>,
    /// What stands there itself, or of that change where it stands now, each with as of which
    /// moment it is known.
    pub slots: Vec<(ChangeRef, Timestamp)>,
    /// What it was asked by [`ArrivalKind::MakeWay`] and has not heard yet.
    pub asked: BTreeSet<ArrivalId>,
    /// Why it cannot be read, if so. What it says is not known then, and nothing is written of it
    /// before a person has mended it.
    pub unreadable: Option<String>,
}

impl Door {
    /// Returns whether a change may stand in that queue: it is known that nothing of it stands
    /// anywhere else.
    fn is_open_to(&self, queue: &QueueName) -> bool {
        match &self.stands_in {
            _ if self.unreadable.is_some() => false,
            Some(other) => other == queue,
            None => self.slots.is_empty(),
        }
    }

    /// Returns whether another revision stands there of which something newer is known than of a
    /// candidate.
    fn is_ahead_of(&self, candidate: &Candidate) -> bool {
        let (change, as_of) = (&candidate.change, candidate.as_of);
        self.slots.iter().any(|(other, known)| is_newer((other, *known), (change, as_of)))
    }
}

/// Returns whether a revision is another one than a second, and newer by its forge's clock.
fn is_newer(
    (one, known): (&ChangeRef, Timestamp),
    (other, as_of): (&ChangeRef, Timestamp),
) -> bool {
    one.key == other.key && one != other && as_of != Timestamp::default() && as_of < known
}

/// Returns what asks a change's own queue to let it stand in the queue `to`. It is the same each
/// time that is asked for one arrival.
pub fn make_way(arrival: &Arrival, candidate: &Candidate, to: &QueueKey) -> Arrival {
    Arrival {
        id: ArrivalId::derive(&[
            arrival.id.as_str(),
            &to.to_string(),
            &candidate.change.key.to_string(),
        ]),
        kind: ArrivalKind::MakeWay {
            change: candidate.change.clone(),
            as_of: candidate.as_of,
            to: to.queue.clone(),
        },
        taken_up: false,
        ..arrival.clone()
    }
}

/// Returns the changes besides its own that a queue is told of, so that their own queues have to be
/// known.
pub fn told_of(arrival: &Arrival) -> Vec<&ChangeKey> {
    match &arrival.kind {
        ArrivalKind::Enqueue { candidates } => {
            candidates.iter().map(|candidate| &candidate.change.key).collect()
        }
        ArrivalKind::Seen { change, .. }
        | ArrivalKind::Superseded { change, .. }
        | ArrivalKind::MakeWay { change, .. } => {
            vec![&change.key]
        }
        ArrivalKind::Dequeue { key, .. } => vec![key],
        ArrivalKind::Promote { .. } | ArrivalKind::Thaw { .. } => Vec::new(),
    }
}

/// What is to be done with an arrival.
pub(super) enum Way {
    /// It is for this queue.
    Here,
    /// It was sent on, or dropped.
    Taken,
    /// There was no room for what leaves first.
    Full,
}

impl Work<'_> {
    /// Sends everything that arrived at the own queue of a guest on to where that stands.
    pub(super) fn send_all_on(&mut self, to: &QueueName) {
        let to = QueueKey { queue: to.clone(), ..self.head.key.clone() };
        for arrival in self.snapshot.arrivals.clone() {
            if !self.has_room(SENDING_RECORDS) {
                return;
            }
            self.pass_on(&arrival, &to);
            self.plan.taken.push(arrival.id);
        }
    }

    /// Returns whether those of an arrival that need each other may not enter yet, since one of
    /// them stands elsewhere; its own queue is asked to let it go.
    pub(super) fn waits_for_guests(&mut self, arrival: &Arrival) -> bool {
        let closed = self.closed_to(arrival);
        let unreadable = |one: &Candidate| {
            self.snapshot.doors.get(&one.change.key).and_then(|door| door.unreadable.as_deref())
        };
        if let Some((change, why)) =
            closed.iter().find_map(|one| Some((&one.change, unreadable(one)?)))
        {
            // Nobody leaves his own queue before it is known that all may enter.
            let told = "is not known while its own queue cannot be read";
            self.plan
                .reasons
                .push(format!("{} waits, for where {change} stands {told}: {why}", self.head.key));
            return true;
        }
        for candidate in &closed {
            let key = &candidate.change.key;
            let wish = make_way(arrival, candidate, &self.head.key);
            let is_asked =
                self.snapshot.doors.get(key).is_none_or(|door| door.asked.contains(&wish.id));
            if let Some(queue) = self.own_queue(key).filter(|_| !is_asked && self.has_room(2)) {
                self.plan.reasons.push(format!(
                    "{} is wanted in {}: {WHY_AS_ONE}",
                    candidate.change, self.head.key
                ));
                self.plan.forwards.push((queue, wish));
                self.take_up(arrival);
            }
        }
        !closed.is_empty()
    }

    /// Has an offer say that something leaves for it, in the very commit that asks for that: an
    /// operator who has events discarded from then on does not have it dropped. What an operator
    /// asked for is not dropped in any case.
    pub(super) fn take_up(&mut self, arrival: &Arrival) {
        if matches!(arrival.kind, ArrivalKind::Enqueue { .. })
            && !arrival.by_operator
            && !arrival.taken_up
        {
            self.plan.taken_up.insert(arrival.id.clone());
        }
    }

    /// Returns whether something of an arrival stands elsewhere, so that it waits.
    pub(super) fn awaits_guests(&self, arrival: &Arrival) -> bool {
        !self.closed_to(arrival).is_empty()
    }

    /// Returns the candidates that need each other, belong here and stand elsewhere still.
    fn closed_to<'c>(&self, arrival: &'c Arrival) -> Vec<&'c Candidate> {
        let ArrivalKind::Enqueue { candidates } = &arrival.kind else { return Vec::new() };
        let is_home = self.stands_as_one(candidates)
            && self.home_of(candidates).as_ref() == Some(&self.head.key);
        if !is_home
            || candidates.iter().any(|candidate| self.is_behind(candidate))
            || self.are_outdated(candidates)
        {
            return Vec::new();
        }
        let is_guest =
            |key: &ChangeKey| self.own_queue(key).is_some_and(|own| own != self.head.key);
        let is_open = |key: &ChangeKey| {
            self.snapshot.doors.get(key).is_some_and(|door| door.is_open_to(&self.head.key.queue))
        };
        let guests = candidates.iter().filter(|candidate| is_guest(&candidate.change.key));
        guests.filter(|candidate| !is_open(&candidate.change.key)).collect()
    }

    /// Returns whether a newer revision of a candidate stands in its own queue.
    fn is_behind(&self, candidate: &Candidate) -> bool {
        self.snapshot
            .doors
            .get(&candidate.change.key)
            .is_some_and(|door| door.is_ahead_of(candidate))
    }

    /// Returns whether something newer is known of one of those that stand here than what is
    /// offered, so that none of them enters ([`Work::enqueue_cycle`]): nobody is asked to make way
    /// for that.
    fn are_outdated(&self, candidates: &[Candidate]) -> bool {
        let is_newer = |offered: &Candidate, item: &Item| {
            let known = &item.candidate;
            let is_dated = offered.as_of != Timestamp::default();
            known.change.key == offered.change.key && is_dated && offered.as_of < known.as_of
        };
        let is_outdated =
            |offered: &Candidate| self.items.values().any(|item| is_newer(offered, item));
        candidates.iter().any(is_outdated)
            && !candidates.iter().any(|offered| self.needs_more(offered))
    }

    /// Returns whether candidates need each other and are to stand as one, where each has a queue
    /// of its own.
    fn stands_as_one(&self, candidates: &[Candidate]) -> bool {
        self.is_of_one_change()
            && candidates
                .last()
                .is_some_and(|last| !last.cycle.is_empty() && last.refused.is_none())
    }

    /// Returns the queue of an independent pipeline that what enters together belongs to.
    fn home_of(&self, candidates: &[Candidate]) -> Option<QueueKey> {
        let last = candidates.last()?;
        self.own_queue(last.host().unwrap_or(&last.change.key))
    }

    /// Returns a change's own queue; none where the configuration no longer has the pipeline.
    fn own_queue(&self, key: &ChangeKey) -> Option<QueueKey> {
        // Of one that has a queue of its own nothing else decides which.
        let (branch, head, patchset) = ("".into(), Oid::from(""), String::new());
        let change = ChangeRef { key: key.clone(), branch, head, patchset };
        (self.snapshot.queue_of)(&self.head.key.pipeline, &change)
    }

    /// Returns whether this queue is a change's own: of a pipeline where each has one, by the live
    /// layout as well.
    pub(super) fn is_of_one_change(&self) -> bool {
        let is_independent = |pipeline: &Pipeline| pipeline.manager == Manager::Independent;
        self.head.manager == Manager::Independent
            && self.snapshot.pipeline.is_some_and(is_independent)
    }

    /// Sends an arrival home that is about a change of another queue which does not stand here, or
    /// no longer. Where it has the change stand elsewhere that does stand here, it leaves first.
    pub(super) fn way_of(&mut self, arrival: &Arrival) -> Way {
        if !self.is_of_one_change() {
            return Way::Here;
        }
        let home = match &arrival.kind {
            ArrivalKind::Enqueue { candidates } => {
                if candidates.iter().any(|candidate| self.is_behind(candidate)) {
                    let reason = format!(
                        "what arrived at {} is older than what is known of it",
                        self.head.key
                    );
                    self.plan.reasons.push(reason);
                    return Way::Taken;
                }
                self.home_of(candidates)
            }
            _ => told_of(arrival).first().and_then(|key| self.own_queue(key)),
        };
        if let Some(parted) = self.parted(arrival) {
            return parted;
        }
        let Some(home) = home.filter(|home| *home != self.head.key) else { return Way::Here };
        let stood = self.head.slots.len();
        match &arrival.kind {
            ArrivalKind::Enqueue { candidates } => {
                for candidate in candidates {
                    match self.lets_go(candidate) {
                        Way::Here => {}
                        way => return way,
                    }
                }
            }
            _ => {
                let stands_here =
                    |key: &ChangeKey| self.head.slots.iter().any(|slot| slot.change.key == *key);
                if told_of(arrival).into_iter().any(stands_here) {
                    return Way::Here;
                }
            }
        }
        if !self.has_room(SENDING_RECORDS) {
            return Way::Full;
        }
        // What has left here for it is not to be lost on the way.
        let taken_up = arrival.taken_up || self.head.slots.len() < stood;
        self.pass_on(&Arrival { taken_up, ..arrival.clone() }, &home);
        Way::Taken
    }

    /// Sends those that need each other to their own queues, where each is to land by itself: they
    /// were offered as one by the layout of before.
    fn parted(&mut self, arrival: &Arrival) -> Option<Way> {
        let ArrivalKind::Enqueue { candidates } = &arrival.kind else { return None };
        if !self.stands_as_one(candidates) || !self.lands_each_alone() {
            return None;
        }
        if !self.has_room(candidates.len()) {
            return Some(Way::Full);
        }
        for candidate in candidates {
            let key = &candidate.change.key;
            let Some(own) = self.own_queue(key) else { continue };
            let mates = candidate.cycle.iter().filter(|mate| *mate != key).cloned().collect();
            let alone = Candidate { cycle: Vec::new(), mates, ..candidate.clone() };
            let id = ArrivalId::derive(&[arrival.id.as_str(), &own.to_string(), "alone"]);
            let kind = ArrivalKind::Enqueue { candidates: vec![alone] };
            self.plan.forwards.push((own, Arrival { id, kind, ..arrival.clone() }));
        }
        Some(Way::Taken)
    }

    fn lands_each_alone(&self) -> bool {
        let is_each_alone =
            |pipeline: &Pipeline| pipeline.manager == Manager::Independent && lands_in(pipeline);
        self.snapshot.pipeline.is_some_and(is_each_alone)
    }

    /// Returns whether an operator's word was sent home, since what it is about does not stand
    /// here.
    pub(super) fn goes_home(&mut self, word: &Arrival) -> bool {
        matches!(self.way_of(word), Way::Taken)
    }

    /// Has what stands here of a change leave that is to stand elsewhere, unless that is what it
    /// is, or is older.
    fn lets_go(&mut self, candidate: &Candidate) -> Way {
        let change = &candidate.change;
        while let Some(position) =
            self.head.slots.iter().position(|slot| slot.change.key == change.key)
        {
            let is_same = self.head.slots[position].change == *change;
            let needs_more = self.needs_more(candidate);
            if is_same && !needs_more && self.is_tied_alike(position, candidate) {
                self.plan.reasons.push(format!("{change} is in {} already", self.head.key));
                return Way::Taken;
            }
            if !needs_more && self.is_older(change, candidate.as_of) {
                return Way::Taken;
            }
            let occasion = if is_same { Occasion::Superseded } else { Occasion::Dequeue };
            if !self.leave_at(position, super::admit::WHY_NEEDS, occasion) {
                return Way::Full;
            }
        }
        Way::Here
    }

    /// Returns whether what stands at a position is tested with the changes that a candidate of it
    /// is tied to.
    pub(super) fn is_tied_alike(&self, position: usize, candidate: &Candidate) -> bool {
        let tied = |candidate: &Candidate| -> BTreeSet<ChangeKey> {
            let all = candidate.cycle.iter().chain(&candidate.mates);
            all.filter(|key| **key != candidate.change.key).cloned().collect()
        };
        let known = self.items.get(&self.head.slots[position].id);
        known.is_none_or(|item| tied(&item.candidate) == tied(candidate))
    }

    /// Has a change leave that is to stand as one with others in another queue, unless a newer
    /// revision of it is here; that queue is looked at then. Returns false when not all of it could
    /// be done yet.
    pub(super) fn makes_way(
        &mut self,
        change: &ChangeRef,
        as_of: Timestamp,
        to: &QueueName,
    ) -> bool {
        if *to == self.head.key.queue {
            // Its own queue was free before it heard of this, so that the change came here
            // meanwhile: it stands where it is wanted.
            self.plan.reasons.push(format!(
                "{change} makes way for {} no more: it may stand there",
                self.head.key
            ));
            return true;
        }
        let here =
            |work: &Self| work.head.slots.iter().position(|slot| slot.change.key == change.key);
        while let Some(position) = here(self) {
            let slot = &self.head.slots[position];
            let known = self.items.get(&slot.id).map_or(as_of, |item| item.candidate.as_of);
            if is_newer((&slot.change, known), (change, as_of)) {
                let reason = format!(
                    "{change} is not what stands in {}, of which newer things are known",
                    self.head.key
                );
                self.plan.reasons.push(reason);
                break;
            }
            let occasion =
                if slot.change == *change { Occasion::Superseded } else { Occasion::Dequeue };
            if !self.leave_at(position, WHY_AS_ONE, occasion) {
                return false;
            }
        }
        self.plan.wake.push(QueueKey { queue: to.clone(), ..self.head.key.clone() });
        true
    }

    /// Has the own queues of guests say where they stand from now on.
    pub(super) fn welcome(&mut self, members: &[ChangeKey]) {
        let guests = members.iter().filter(|key| self.snapshot.doors.contains_key(*key));
        for key in guests {
            self.plan.doors.insert(key.clone(), Some(self.head.key.queue.clone()));
        }
    }

    /// Has the own queue of a guest say that it stands nowhere else any more.
    pub(super) fn give_back(&mut self, key: &ChangeKey) {
        if self.says_here(key) {
            self.plan.doors.insert(key.clone(), None);
        } else {
            // Nothing is said of what came in this very plan; and what another queue says of it is
            // that one's to take back.
            self.plan.doors.remove(key);
        }
    }

    /// Returns whether a change's own queue says that it stands in this one.
    fn says_here(&self, key: &ChangeKey) -> bool {
        let says_so = |door: &Door| door.stands_in.as_ref() == Some(&self.head.key.queue);
        self.snapshot.doors.get(key).is_some_and(says_so)
    }

    /// Takes out what stands as one where each is to land by itself from now on. Returns false when
    /// some are left, since the transaction is full.
    pub(super) fn part(&mut self) -> bool {
        if is_dependent(&self.head) || !self.lands_each_alone() {
            return true;
        }
        while let Some(position) = self.head.slots.iter().position(|slot| slot.joined) {
            if !self.leave_at(position, WHY_APART, Occasion::Dequeue) {
                return false;
            }
        }
        true
    }

    /// Returns how many records say where guests stand.
    pub(super) fn door_records(&self) -> usize {
        DOOR_RECORDS * self.plan.doors.len()
    }

    fn pass_on(&mut self, arrival: &Arrival, to: &QueueKey) {
        // Should a queue say of its change that it stands here, and it does not, the two would send
        // this to each other for ever.
        let strays: Vec<ChangeKey> =
            told_of(arrival).into_iter().filter(|key| self.is_stray(key)).cloned().collect();
        for key in strays {
            self.give_back(&key);
        }
        self.plan.reasons.push(format!("what arrived at {} is for {to}", self.head.key));
        let id = ArrivalId::derive(&[arrival.id.as_str(), &to.to_string()]);
        self.plan.forwards.push((to.clone(), Arrival { id, ..arrival.clone() }));
    }

    fn is_stray(&self, key: &ChangeKey) -> bool {
        !self.head.slots.iter().any(|slot| slot.change.key == *key) && self.says_here(key)
    }
}
