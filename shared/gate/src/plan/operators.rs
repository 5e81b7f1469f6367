//! What operators ask of a queue: a change leaves, changes come first, or a queue that was frozen
//! goes on from what the branch is now.

use super::Work;
use super::admit::LEAVING_RECORDS;
use crate::arrival::{Arrival, ArrivalKind, TAKEN_OUT};
use crate::item::Ask;
use crate::landing::{Landing, LandingEnd, LandingState};
use crate::queue::{Slot, Standing};
use crate::report::Occasion;
use sluice_config::pipeline::Manager;
use sluice_model::ItemId;
use sluice_model::change::{ChangeKey, ChangeRef};
use sluice_model::event::ZuulEvent;
use sluice_model::git::Oid;
use std::collections::BTreeMap;
use std::ops::Range;

/// Records that one word of an operator writes: the arrival, and a change that leaves with its
/// report.
const OPERATOR_RECORDS: usize = 8;

/// Who is named where nobody said who asked.
const SOMEBODY: &str = "an operator";

impl Work<'_> {
    /// Takes operators' words, before anything else that arrived: other arrivals may wait for a
    /// layout, or for the very landing that froze the queue.
    pub(super) fn hear_operators(&mut self) {
        let words: Vec<Arrival> = self
            .snapshot
            .arrivals
            .iter()
            .filter(|arrival| is_operators(arrival))
            .cloned()
            .collect();
        for arrival in words {
            if self.waits_for_landing(&arrival) {
                continue;
            }
            if !self.has_room(OPERATOR_RECORDS) {
                return;
            }
            let is_done = match &arrival.kind {
                ArrivalKind::Dequeue { .. } if self.goes_home(&arrival) => true,
                ArrivalKind::Thaw { by, reason } => self.thaw(named(by), reason),
                ArrivalKind::Dequeue { key, head, by, reason } => {
                    self.dequeue(key, head.as_ref(), named(by), reason)
                }
                ArrivalKind::Promote { keys, by } => self.promote(keys, named(by)),
                ArrivalKind::Enqueue { .. }
                | ArrivalKind::Seen { .. }
                | ArrivalKind::Superseded { .. }
                | ArrivalKind::MakeWay { .. } => false,
            };
            if !is_done {
                return; // The transaction is full; what is done of it is found done by the next plan.
            }
            self.plan.taken.push(arrival.id);
        }
    }

    /// Returns whether an operator's word is left that waits for no landing: this plan had no room
    /// for it. It is heard by the next one, also where the queue is frozen.
    pub(super) fn has_unheard_word(&self) -> bool {
        self.left().any(|word| is_operators(word) && !self.waits_for_landing(word))
    }

    /// Lets a frozen queue go on. What landed leaves, with another tree than the tested one or as
    /// the first of a bundle that did not land as a whole; it is in its branch, so what needs it
    /// may stay. The rest of such a bundle leaves without having landed. What was tested on top of
    /// it is tested again.
    fn thaw(&mut self, by: &str, reason: &str) -> bool {
        let Some(why) = self.head.frozen.clone() else {
            self.plan
                .reasons
                .push(format!("{} is not frozen; {by} thawed it: {reason}", self.head.key));
            return true;
        };
        let stuck = self.stuck();
        if !self.has_room(stuck.as_ref().map_or(1, |(bundle, _)| bundle.len() * LEAVING_RECORDS)) {
            return false;
        }
        self.head.frozen = None;
        self.plan.reasons.push(format!("{by} thawed {}: {reason}", self.head.key));
        let Some((bundle, end)) = stuck else { return true };
        let has_landed = matches!(end, LandingEnd::Mismatch { .. } | LandingEnd::Unproven { .. });
        let told = format!("{why}. An operator let the queue go on: {reason}");
        let window = self.head.window;
        for _ in bundle.clone() {
            let slot = self.head.slots[bundle.start].clone();
            self.note(&slot.id, format!("{by} let the queue go on: {reason}"));
            let is_in_branch = slot.standing == Standing::Landed
                || (slot.standing == Standing::Landing && has_landed);
            if is_in_branch {
                self.tell_merged(&slot);
            } else if slot.standing == Standing::Landing
                && matches!(end, LandingEnd::MergedElsewhere { .. })
            {
                // It is in its branch as well, by somebody else.
                self.remember_landed(&slot.change, false);
            }
            if slot.standing == Standing::Landed {
                self.remove(bundle.start, "SUCCESS", "landed", Occasion::Success);
            } else {
                self.remove(bundle.start, "MERGE_FAILURE", &told, Occasion::MergeFailure);
            }
        }
        // Their jobs passed, and what an operator had to look at is no success.
        self.head.window = window;
        true
    }

    /// Remembers and tells that a change is in its branch.
    fn tell_merged(&mut self, slot: &Slot) {
        let is_pushed = self.is_pushed(&slot.id);
        self.remember_landed(&slot.change, is_pushed);
        self.tell(ZuulEvent::ProjectChangeMerged, &slot.id, &slot.change);
    }

    /// Takes a change out (R06), unless another revision has taken its place meanwhile. Who asked
    /// stands with the item; the forge is told the reason alone. Returns false when some of its
    /// builds could not be stopped yet.
    fn dequeue(&mut self, key: &ChangeKey, head: Option<&Oid>, by: &str, reason: &str) -> bool {
        let is_meant = |change: &sluice_model::change::ChangeRef| {
            change.key == *key
                && head.is_none_or(|head| change.head.as_str().starts_with(head.as_str()))
        };
        let meant = self.head.slots.iter().filter(|slot| is_meant(&slot.change));
        let meant: Vec<ItemId> = meant.map(|slot| slot.id.clone()).collect();
        if meant.is_empty() {
            self.plan
                .reasons
                .push(format!("{by} wanted {key} out of {}, and it is not there", self.head.key));
        }
        let colon = if reason.is_empty() { "" } else { ": " };
        // Several where older revisions go on beside newer ones.
        meant.iter().all(|id| {
            let Some(position) = self.head.slots.iter().position(|slot| slot.id == *id) else { return true };
            self.note(id, format!("{by} took it out{colon}{reason}"));
            let mut why = format!("{TAKEN_OUT}{colon}{reason}");
            if let Some(landing) = self.half_to_end(position).cloned() {
                return self.end_half(position, landing, &why);
            }
            let taken_back = self.landing_to_take_back(position).cloned();
            let is_unknown = taken_back.as_ref().is_some_and(may_be_in_branch);
            if let Some(landing) = taken_back.as_ref().filter(|_| is_unknown) {
                let connection = &landing.change.key.connection;
                why.push_str(&format!(
                    "; whether it is in its branch nobody can tell, for the connection {connection} was removed while it landed"
                ));
            }
            let has_left = self.leave_at(position, &why, Occasion::Dequeue);
            if let Some(landing) = taken_back.filter(|_| has_left) {
                self.plan.poke_tenant |= landing.configures || landing.together.iter().any(|other| other.configures);
                let end = if is_unknown { LandingEnd::Unproven { why } } else { LandingEnd::Refused { why } };
                self.plan.withdrawn.push(Landing { state: LandingState::Ended { end, at: self.now }, ..landing });
            }
            has_left
        })
    }

    /// Returns the landing of what stands at `position`, of a bundle its first one's, where an
    /// operator may take it back: nobody could carry it out for a while, and nobody has begun it,
    /// or nobody will ever find out what became of it. Whoever begins it meanwhile makes the plan
    /// come to nothing, for its record is another one then.
    pub(super) fn landing_to_take_back(&self, position: usize) -> Option<&Landing> {
        let mut slots = self.head.slots[self.head.bundle(position)].iter();
        let first = slots.next().filter(|first| first.standing == Standing::Landing)?;
        let landing = self
            .snapshot
            .landings
            .get(&first.id)
            .filter(|found| found.generation == first.generation)?;
        let trouble = landing
            .trouble
            .as_ref()
            .filter(|_| !matches!(landing.state, LandingState::Ended { .. }))?;
        let is_whole = slots.all(|slot| slot.standing == Standing::Pledged);
        (is_whole && (trouble.is_gone || !may_be_in_branch(landing))).then_some(landing)
    }

    /// Returns the landing that the bundle at `position` came to a stop at, where an operator may
    /// end the bundle though a part of it is in its branch: the connection of what is landing was
    /// removed, so that nobody will ever find out what becomes of it.
    pub(super) fn half_to_end(&self, position: usize) -> Option<&Landing> {
        let slots = &self.head.slots[self.head.bundle(position)];
        let has_landed = slots.iter().any(|slot| slot.standing == Standing::Landed);
        let now =
            slots.iter().find(|slot| slot.standing == Standing::Landing).filter(|_| has_landed)?;
        let landing = self
            .snapshot
            .landings
            .get(&now.id)
            .filter(|found| found.generation == now.generation)?;
        let is_gone = landing.trouble.as_ref().is_some_and(|trouble| trouble.is_gone);
        (is_gone && !matches!(landing.state, LandingState::Ended { .. })).then_some(landing)
    }

    /// Ends a bundle of which a part has landed, each of it as what it is: what landed is in its
    /// branch, what was being landed may be, and the rest was not begun. Returns false when there
    /// was no room for it.
    fn end_half(&mut self, position: usize, landing: Landing, why: &str) -> bool {
        let bundle = self.head.bundle(position);
        if !self.has_room(LEAVING_RECORDS * bundle.len() + 1) {
            return false;
        }
        let slots = self.head.slots[bundle.clone()].to_vec();
        let landed = slots.iter().filter(|slot| slot.standing == Standing::Landed);
        let landed: Vec<String> = landed.map(|slot| slot.change.to_string()).collect();
        let half = format!(
            "{why}; {} landed, which needs it and is needed by it; the connection {} was removed before all of them had landed",
            landed.join(", "),
            landing.change.key.connection
        );
        let is_unknown = may_be_in_branch(&landing);
        let unknown =
            format!("{half}; whether {} is in its branch nobody can tell", landing.change);
        let window = self.head.window;
        for slot in &slots {
            if slot.standing == Standing::Landed {
                self.tell_merged(slot);
                self.remove(bundle.start, "SUCCESS", "landed", Occasion::Success);
            } else {
                let is_it = is_unknown && slot.id == landing.item;
                self.remove(
                    bundle.start,
                    "DEQUEUED",
                    if is_it { &unknown } else { &half },
                    Occasion::Dequeue,
                );
            }
        }
        // As where a frozen queue goes on: what an operator had to look at is no success.
        self.head.window = window;
        self.plan.poke_tenant = true;
        let end = if is_unknown {
            LandingEnd::Unproven { why: unknown }
        } else {
            LandingEnd::Refused { why: half }
        };
        self.plan
            .withdrawn
            .push(Landing { state: LandingState::Ended { end, at: self.now }, ..landing });
        true
    }

    /// Moves changes to the front, with what they need before them; the others keep their order.
    /// What is being put into its branch stays where it is, and so does what has begun where one is
    /// worked on after the other. Always returns true.
    fn promote(&mut self, keys: &[ChangeKey], by: &str) -> bool {
        let is_first = |slot: &Slot| match self.head.manager {
            // What was asked for is begun: its answer would have it worked on wherever it stands by
            // then.
            Manager::Serial | Manager::Supercedent => {
                slot.standing != Standing::Waiting
                    || self.items.get(&slot.id).is_some_and(|item| item.ask != Ask::No)
            }
            Manager::Dependent | Manager::Independent => {
                matches!(slot.standing, Standing::Landing | Standing::Landed | Standing::Reporting)
            }
        };
        // Changes that need each other stand together, wherever that is.
        let with_bundle = |order: &mut BTreeMap<ItemId, usize>, position: usize| {
            let bundle = &self.head.slots[self.head.bundle(position)];
            let is_new = bundle.iter().all(|slot| !order.contains_key(&slot.id));
            for slot in bundle.iter().filter(|_| is_new) {
                order.insert(slot.id.clone(), order.len());
            }
        };
        // Each with its place.
        let mut order: BTreeMap<ItemId, usize> = BTreeMap::new();
        for position in (0..self.head.slots.len()).filter(|at| is_first(&self.head.slots[*at])) {
            with_bundle(&mut order, position);
        }
        for key in keys {
            let Some(slot) = self.head.slots.iter().find(|slot| slot.change.key == *key) else {
                self.plan.reasons.push(format!(
                    "{by} wanted {key} first in {}, and it is not there",
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
            let place =
                |change: &ChangeRef| self.head.slots.iter().position(|slot| slot.change == *change);
            let own: Vec<usize> = own.filter_map(place).collect();
            for (at, position) in own.iter().enumerate() {
                // At the last of those that need each other: what any of them needs besides stands
                // before that one.
                let bundle = self.head.bundle(*position);
                if !own[at + 1..].iter().any(|behind| bundle.contains(behind)) {
                    with_bundle(&mut order, *position);
                }
            }
        }
        let before: Vec<ItemId> = self.head.slots.iter().map(|slot| slot.id.clone()).collect();
        // Stable: those that nobody named stay as they were.
        self.head
            .slots
            .sort_by_cached_key(|slot| order.get(&slot.id).copied().unwrap_or(order.len()));
        let moved: Vec<ItemId> = (self.head.slots.iter().zip(&before))
            .filter(|(slot, before)| slot.id != **before && order.contains_key(&slot.id))
            .map(|(slot, _)| slot.id.clone())
            .collect();
        for id in moved {
            self.note(&id, format!("{by} moved it to the front"));
        }
        self.plan.reasons.push(format!("{by} promoted changes of {}", self.head.key));
        true
    }

    /// Returns the bundle whose landing froze the queue, and how the landing ended that it came to
    /// a stop at.
    fn stuck(&self) -> Option<(Range<usize>, LandingEnd)> {
        self.head.slots.iter().enumerate().find_map(|(position, slot)| {
            let landing = self
                .snapshot
                .landings
                .get(&slot.id)
                .filter(|landing| landing.generation == slot.generation)?;
            let LandingState::Ended { end, .. } = &landing.state else { return None };
            (slot.standing == Standing::Landing).then(|| (self.head.bundle(position), end.clone()))
        })
    }
}

/// Returns whether an arrival is an operator's word, which waits for nothing but a landing of its
/// own change.
pub(super) fn is_operators(arrival: &Arrival) -> bool {
    matches!(
        arrival.kind,
        ArrivalKind::Thaw { .. } | ArrivalKind::Dequeue { .. } | ArrivalKind::Promote { .. }
    )
}

/// Returns whether a landing may have put its change into its branch: somebody has begun it, or a
/// push of before may still do so.
fn may_be_in_branch(landing: &Landing) -> bool {
    landing.state != LandingState::Wanted || landing.pushed
}

fn named(by: &str) -> &str {
    if by.is_empty() { SOMEBODY } else { by }
}
