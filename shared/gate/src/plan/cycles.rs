//! Bundles: changes that need each other (Z6.5). They enter together, are tested on one state,
//! leave together, and land one after the other in the order of the queue, which is the recorded
//! list.
//!
//! From the moment that the first is ordered to land none of them may leave: the first stands as
//! landing, the others as pledged, and each that is in its branch as landed, until all are. Where
//! one cannot land and none has landed before it, nothing has happened, and they leave or are
//! tested again. Where one has, the queue is frozen: half of a bundle is in its branch, and nobody
//! has tested that.

use super::Work;
use super::admit::{LEAVING_RECORDS, WHY_NEEDS, why_replaced};
use super::finish::{mismatch, unproven};
use super::guests::DOOR_RECORDS;
use super::{RECORDS_MAX, is_dependent};
use crate::arrival::{Arrival, Candidate};
use crate::item::{Ask, Item, REASON_BYTES_MAX, cut};
use crate::landing::{Landing, LandingEnd, LandingState, MERGED_ELSEWHERE, Together};
use crate::queue::{Slot, Standing};
use crate::report::Occasion;
use crate::turn::branch_of;
use sluice_model::ItemId;
use sluice_model::change::{ChangeKey, ChangeRef};
use sluice_model::event::ZuulEvent;
use std::collections::BTreeSet;
use std::ops::Range;

/// The most changes that may need each other: what is decided about all of them goes into one
/// transaction.
pub const CYCLE_MAX: usize = 10;

/// The most changes that are let go at once since they came to need each other; intake tells of a
/// change that it needs twenty at most.
const LET_GO_MAX: usize = 60;

/// Changes that are named where it is told who needs whom.
const NAMED_MAX: usize = 5;

/// What is told of a change whose bundle failed.
const CYCLE_FAILED: &str = "This change is part of a dependency cycle that failed.";

impl Work<'_> {
    /// Enqueues the changes of a cycle if all of them may enter (D10, D11). Returns false when
    /// there was no room for what they replace.
    pub(super) fn enqueue_cycle(
        &mut self,
        arrival: &Arrival,
        one: &Candidate,
        offered: &[Candidate],
    ) -> bool {
        let mut members: Vec<&Candidate> = Vec::new();
        for key in &one.cycle {
            let Some(member) = offered.iter().find(|candidate| candidate.change.key == *key) else {
                let reason = format!("it and {key} need each other, which may not enter");
                let of_cycle = |candidate: &&Candidate| one.cycle.contains(&candidate.change.key);
                let offered: Vec<&Candidate> = offered.iter().filter(of_cycle).collect();
                self.refuse_moved(arrival, &offered, &reason);
                return self.keep_out(&one.change, &reason);
            };
            members.push(member);
        }
        if members.len() > CYCLE_MAX {
            let reason = format!("more than {CYCLE_MAX} changes need each other");
            self.refuse_moved(arrival, &members, &reason);
            return self.keep_out(&one.change, &reason);
        }
        let needs_more = members.iter().any(|member| self.needs_more(member));
        if self.is_bundle_here(&members) && !needs_more {
            return self.keep_out(&one.change, "it is there already, with all that need it");
        }
        let is_older = |work: &mut Self| {
            members.iter().any(|member| work.is_older(&member.change, member.as_of))
        };
        if !is_dependent(&self.head) && !needs_more && is_older(self) {
            return true;
        }
        let is_in_branch = |member: &&&Candidate| {
            let mut slots =
                self.head.slots.iter().filter(|slot| slot.change.key == member.change.key);
            slots.any(|slot| slot.standing == Standing::Reporting && self.has_landed(&slot.id))
        };
        if let Some(landed) = members.iter().find(is_in_branch) {
            return self.keep_out(&landed.change, "it has landed");
        }
        for member in &members {
            let key = &member.change.key;
            // Elsewhere than where changes land older revisions of one may stand beside each other.
            while let Some(slot) = self.head.slots.iter().find(|slot| slot.change.key == *key) {
                let (why, occasion) = why_replaced(slot, &member.change);
                if !self.leave(key, why, occasion) {
                    return false;
                }
            }
        }
        let guests = members
            .iter()
            .filter(|member| self.snapshot.doors.contains_key(&member.change.key))
            .count();
        let entry = self.entry_records_of(members.len()) * members.len() + DOOR_RECORDS * guests;
        // Ten of which each tells many others write more than is planned with, and no more than a
        // transaction holds.
        if !self.has_room(entry.max(LEAVING_RECORDS * members.len()).min(RECORDS_MAX)) {
            return false;
        }
        for member in &members {
            let Some(reason) = self.refusal(member) else { continue };
            if let Some(report) =
                self.report_refusal(member, arrival, &reason).filter(|_| member.refused.is_some())
            {
                self.plan.reports.push(report);
            }
            self.refuse_moved(arrival, &members, &reason);
            return self.keep_out(&member.change, &reason);
        }
        if let Some(reason) = self.over_limit(&members) {
            return self.tell_full(arrival, &members, &reason);
        }
        for (at, member) in members.into_iter().enumerate() {
            self.enter(arrival, member, at > 0);
        }
        self.welcome(&one.cycle);
        true
    }

    fn keep_out(&mut self, change: &ChangeRef, reason: &str) -> bool {
        self.plan.reasons.push(format!("{change} is not enqueued in {}: {reason}", self.head.key));
        true
    }

    fn is_bundle_here(&self, members: &[&Candidate]) -> bool {
        let first = self.head.slots.iter().position(|slot| slot.change == members[0].change);
        let bundle = first.map(|first| self.head.bundle(first));
        bundle.is_some_and(|bundle| {
            self.head.slots[bundle]
                .iter()
                .map(|slot| &slot.change)
                .eq(members.iter().map(|member| &member.change))
        })
    }

    /// Returns the changes that stand in some slots.
    pub(super) fn changes_of(&self, slots: Range<usize>) -> Vec<ChangeRef> {
        self.head.slots[slots].iter().map(|slot| slot.change.clone()).collect()
    }

    /// Takes out a change that stands in a bundle, and with it those that need it. Returns false
    /// when not all of it could be done yet.
    pub(super) fn leave_with_mates(
        &mut self,
        position: usize,
        why: &str,
        occasion: Occasion,
    ) -> bool {
        let (bundle, change) =
            (self.head.bundle(position), self.head.slots[position].change.clone());
        let of_mates = format!("{} left, and they need each other: {why}", change.key);
        // Those that nobody uploaded anew come in again with the one that was; their authors are
        // told that they left.
        let told = if occasion == Occasion::Superseded { Occasion::Dequeue } else { occasion };
        self.leave_each(bundle, "DEQUEUED", |slot| {
            if slot.change == change {
                ("DEQUEUED", why.to_owned(), occasion)
            } else {
                ("DEQUEUED", of_mates.clone(), told)
            }
        })
    }

    /// Gives the bundle at `position` what one of its changes needs by now: those that need each
    /// other need the same. Where all of that stands in the queue, so does the bundle, behind it;
    /// otherwise it leaves. Returns false when not all of it could be done yet.
    pub(super) fn bundle_follows_needs(&mut self, position: usize, one: &Candidate) -> bool {
        let bundle = self.head.bundle(position);
        let own = Candidate { needs: Vec::new(), cycle: Vec::new(), ..one.clone() };
        let mut place = bundle.start;
        for need in one.needs_besides_mates() {
            if self.head.has_landed(&need.change) {
                continue;
            }
            let Some(at) = self.head.slots.iter().position(|slot| slot.change == need.change)
            else {
                let why = format!(
                    "{WHY_NEEDS}: it depends on {}, which is neither merged nor in this queue",
                    need.change.key
                );
                return self.leave_with_mates(position, &why, Occasion::Dequeue);
            };
            place = place.max(at);
        }
        if !self.has_room(bundle.len()) {
            return false;
        }
        let mates: Vec<_> = self.head.slots[bundle.clone()]
            .iter()
            .map(|slot| (slot.id.clone(), slot.change.key.clone()))
            .collect();
        for (id, key) in mates {
            let all = one.needs.iter().chain([&own]);
            let needs = all.filter(|need| need.change.key != key).cloned().collect();
            if let Some(item) = self.item(&id) {
                item.candidate.needs = needs;
                item.note(format!("the dependencies of {} changed", one.change));
            }
        }
        if place >= bundle.end {
            let moved: Vec<Slot> = self.head.slots.drain(bundle).collect();
            self.head.slots.extend(moved);
        }
        true
    }

    /// Takes a whole bundle out for one reason.
    pub(super) fn leave_together(
        &mut self,
        bundle: Range<usize>,
        result: &'static str,
        why: &str,
        occasion: Occasion,
    ) -> bool {
        self.leave_each(bundle, result, |_| (result, why.to_owned(), occasion))
    }

    /// Takes a whole bundle out in one plan; it counts once for the window. Returns false when the
    /// transaction has no room for it.
    fn leave_each(
        &mut self,
        bundle: Range<usize>,
        result: &str,
        how: impl Fn(&Slot) -> (&'static str, String, Occasion),
    ) -> bool {
        let leaving = self.head.slots[bundle.clone()].to_vec();
        for slot in &leaving {
            if !self.stop_builds(&slot.id, &how(slot).1) {
                return false;
            }
        }
        // Whoever takes a change out may have it enter anew.
        if !self.has_room(LEAVING_RECORDS * bundle.len() + self.entry_records()) {
            return false;
        }
        let window = self.head.window;
        for _ in bundle.clone() {
            let (result, why, occasion) = how(&self.head.slots[bundle.start]);
            self.remove(bundle.start, result, &why, occasion);
        }
        self.head.window = window;
        self.move_window(result);
        true
    }

    /// Ends what can be ended of the bundle that is first. Returns whether the order of the queue
    /// changed.
    pub(super) fn finish_bundle(&mut self, bundle: Range<usize>) -> bool {
        let slots = self.head.slots[bundle.clone()].to_vec();
        if slots[0].standing.is_landing() {
            return self.finish_bundle_landing(bundle);
        }
        let known = |slot: &Slot| {
            let item = self.items.get(&slot.id).filter(|item| item.generation == slot.generation);
            item.filter(|item| self.is_frozen_now(item))
        };
        let items: Vec<Option<&Item>> = slots.iter().map(known).collect();
        let untestable = items.iter().flatten().find_map(|item| match &item.ask {
            Ask::Unmergeable { why, configuration, .. } => {
                Some((item.id.clone(), why.clone(), *configuration))
            }
            _ => None,
        });
        let failing =
            slots.iter().zip(&items).filter(|(_, item)| item.is_some_and(Item::is_failing));
        let told = cycle_failed(failing.map(|(slot, _)| &slot.change.key));
        let may_run_otherwise = self.awaits_configuration();
        if let Some((id, why, configuration)) = untestable {
            if configuration && may_run_otherwise {
                return false;
            }
            let (result, occasion) = match configuration {
                true => ("CONFIG_ERROR", Occasion::ConfigError),
                false => ("MERGE_CONFLICT", Occasion::MergeConflict),
            };
            return self.leave_each(bundle, result, |slot| {
                if slot.id == id {
                    (result, why.clone(), occasion)
                } else {
                    ("FAILURE", told.clone(), Occasion::CycleFailed)
                }
            });
        }
        if !items.iter().all(|item| item.is_some_and(Item::is_complete)) {
            return false;
        }
        let has_jobs = items.iter().flatten().any(|item| item.reported_jobs().next().is_some());
        if !has_jobs && may_run_otherwise {
            return false;
        }
        if !has_jobs {
            return self.leave_together(
                bundle,
                "NO_JOBS",
                "no job is to be run for it",
                Occasion::NoJobs,
            );
        }
        if slots.iter().any(|slot| slot.standing == Standing::Failing) {
            let has_left = self.leave_together(bundle, "FAILURE", &told, Occasion::CycleFailed);
            if has_left {
                self.count(Occasion::Failure); // Once, whichever of them failed: each by itself counts for nothing.
            }
            return has_left;
        }
        if self.lands() {
            return self.order_bundle(bundle);
        }
        self.succeed(bundle, "every voting job passed")
    }

    /// Writes down that a bundle is to land, all of it, and orders the landing of the first.
    fn order_bundle(&mut self, bundle: Range<usize>) -> bool {
        // Each may be for a branch of its own, and that be another queue's which is passed by.
        if self.is_settling() || !self.has_room(2 + 3 * bundle.len()) {
            return false;
        }
        if let Some(slot) =
            self.head.slots[bundle.clone()].iter().find(|slot| self.is_withheld(slot))
        {
            let (id, change) = (slot.id.clone(), slot.change.clone());
            self.note(
                &id,
                format!(
                    "its cycle passed, and does not land while news wait by which {change} leaves"
                ),
            );
            return false; // Whoever takes them in looks again.
        }
        let orders: Option<Vec<_>> =
            bundle.clone().map(|at| self.landing_of(at, Vec::new())).collect();
        if orders.is_none() || !self.take_branches(bundle.clone()) {
            return false; // Whoever lets go of a branch has this queue looked at again.
        }
        let orders: Option<Vec<_>> =
            bundle.clone().map(|at| self.landing_of(at, Vec::new())).collect();
        let is_whole = |orders: &Vec<Landing>| {
            !orders.is_empty() && orders.iter().all(|order| order.fence.is_some())
        };
        let Some(mut orders) = orders.filter(is_whole) else { return false };
        let mut first = orders.remove(0);
        let together = orders.into_iter().map(|order| Together {
            item: order.item,
            generation: order.generation,
            change: order.change,
            base: order.base,
            configures: order.configures,
            fence: order.fence,
        });
        first.together = together.collect();
        self.plan.wants_layout |=
            first.configures || first.together.iter().any(|other| other.configures);
        self.plan.landings.push(first);
        for at in bundle.clone() {
            let slot = &mut self.head.slots[at];
            slot.standing = if at == bundle.start { Standing::Landing } else { Standing::Pledged };
            let (id, change) = (slot.id.clone(), slot.change.clone());
            self.note(
                &id,
                format!(
                    "every voting job of the cycle passed: {change} is to land, {} of {}",
                    at - bundle.start + 1,
                    bundle.len()
                ),
            );
        }
        false
    }

    /// Follows the landing of a bundle: orders the next one's when one has landed, and lets all
    /// leave when all have.
    fn finish_bundle_landing(&mut self, bundle: Range<usize>) -> bool {
        let is_now = |at: &usize| self.head.slots[*at].standing == Standing::Landing;
        if let Some(at) = bundle.clone().find(is_now) {
            let slot = self.head.slots[at].clone();
            let landing = self
                .snapshot
                .landings
                .get(&slot.id)
                .filter(|found| found.generation == slot.generation);
            let Some((landing, LandingState::Ended { end, .. })) =
                landing.map(|found| (found.clone(), &found.state))
            else {
                return false;
            };
            let end = end.clone();
            self.plan.poke_tenant |= landing.configures;
            let has_begun = at > bundle.start;
            match end {
                LandingEnd::Landed { commit } => {
                    if let Some(item) = self.item(&slot.id) {
                        item.landed = Some(commit.id.clone());
                    }
                    let (commit, tree) =
                        (commit.id.short().to_owned(), commit.tree.short().to_owned());
                    self.note(&slot.id, format!("landed as {commit} with the tested tree {tree}"));
                    self.head.slots[at].standing = Standing::Landed;
                    if at + 1 < bundle.end {
                        return self.order_next(at + 1);
                    }
                }
                LandingEnd::Mismatch { landed } => {
                    return self.freeze(&slot, mismatch(&landing, &landed));
                }
                LandingEnd::Unproven { why } => {
                    return self.freeze(&slot, unproven(&landing, &why));
                }
                LandingEnd::BaseMoved { tip } if !has_begun => {
                    let is_overtaken = tip.tree != landing.base.tree;
                    let tip = tip.id.short();
                    self.note(
                        &slot.id,
                        format!("a branch of the cycle is at {tip}, which is not what was tested: tested again"),
                    );
                    for at in bundle.clone() {
                        self.head.slots[at].generation += 1;
                        self.head.slots[at].standing = Standing::Waiting;
                    }
                    self.note_tried(&slot.id, landing.tried);
                    if is_overtaken {
                        self.note_overtaken(bundle);
                    }
                    return true;
                }
                LandingEnd::Refused { why } if !has_begun => {
                    let changes = self.changes_of(bundle.clone());
                    let of_mates = format!(
                        "{} did not merge, and they need each other: {why}",
                        slot.change.key
                    );
                    let has_left = self.leave_each(bundle, "MERGE_FAILURE", |other| {
                        let why = if other.id == slot.id { why.clone() } else { of_mates.clone() };
                        ("MERGE_FAILURE", why, Occasion::MergeFailure)
                    });
                    if has_left {
                        self.remember_merged(&changes);
                    }
                    return has_left;
                }
                LandingEnd::MergedElsewhere { .. } if !has_begun => {
                    let changes = self.changes_of(bundle);
                    let has_left = self.leave_with_mates(at, MERGED_ELSEWHERE, Occasion::Dequeue);
                    if has_left {
                        self.remember_landed(&slot.change, false);
                        self.remember_merged(&changes);
                    }
                    return has_left;
                }
                LandingEnd::BaseMoved { tip } => {
                    let why = format!(
                        "{} is at {}, which is not what was tested",
                        slot.change.branch,
                        tip.id.short()
                    );
                    return self.freeze_half(&bundle, &slot, &why);
                }
                LandingEnd::MergedElsewhere { tip } => {
                    let (branch, tip) = (&slot.change.branch, tip.id.short());
                    let why = format!(
                        "{MERGED_ELSEWHERE}, and {branch} is at {tip}, which is not what was tested"
                    );
                    return self.freeze_half(&bundle, &slot, &why);
                }
                LandingEnd::Refused { why } => return self.freeze_half(&bundle, &slot, &why),
            }
        }
        let is_next = |at: &usize| self.head.slots[*at].standing == Standing::Pledged;
        if let Some(at) = bundle.clone().find(is_next) {
            return self.order_next(at); // It could not be ordered when the one before it had landed.
        }
        let all_landed =
            self.head.slots[bundle.clone()].iter().all(|slot| slot.standing == Standing::Landed);
        if !all_landed || !self.has_room(LEAVING_RECORDS * bundle.len() + self.entry_records()) {
            return false;
        }
        let landed = self.head.slots[bundle.clone()].to_vec();
        for slot in &landed {
            let is_pushed = self.is_pushed(&slot.id);
            self.remember_landed(&slot.change, is_pushed);
            self.tell(ZuulEvent::ProjectChangeMerged, &slot.id, &slot.change);
            for behind in &mut self.head.slots[bundle.end..] {
                // What is behind was tested on exactly what the branches are now.
                if behind.ahead.as_ref().is_some_and(|ahead| ahead.item == slot.id) {
                    behind.ahead = None;
                }
            }
        }
        self.succeed(bundle, "landed")
    }

    /// Orders the landing of the next one of a bundle, whatever layout is waited for: what has
    /// begun is ended.
    fn order_next(&mut self, at: usize) -> bool {
        // Its branch is its queue's since the first was ordered. Should it not be, it is taken
        // again, and what became of it meanwhile is for its landing to see: without a fence nothing
        // lands.
        let branch = branch_of(&self.head.slots[at].change);
        if self.landing_of(at, Vec::new()).is_none()
            || (self.fence_of(&branch).is_none() && !self.take_branches(at..at + 1))
        {
            return false; // Whoever lets go of the branch has this queue looked at again.
        }
        let landing = self.landing_of(at, Vec::new()).filter(|landing| landing.fence.is_some());
        let Some(landing) = landing else { return false };
        self.head.slots[at].standing = Standing::Landing;
        // That all of them may land was seen before the first was merged.
        self.plan.landings.push(Landing { asks: None, ..landing });
        false
    }

    fn freeze_half(&mut self, bundle: &Range<usize>, slot: &Slot, why: &str) -> bool {
        let landed =
            self.head.slots[bundle.clone()].iter().filter(|slot| slot.standing == Standing::Landed);
        let landed: Vec<String> = landed.map(|slot| slot.change.to_string()).collect();
        let change = &slot.change;
        let text = format!(
            "{} landed, and {change}, which needs it and is needed by it, did not: {why}; nothing moves in this queue until an operator has looked",
            landed.join(", ")
        );
        self.freeze(slot, text)
    }

    pub(super) fn freeze(&mut self, slot: &Slot, why: String) -> bool {
        self.note(&slot.id, why.clone());
        self.head.frozen = Some(why);
        false
    }
}

/// Changes that came to need each other where they stand: each entered without the others, so that
/// no bundle holds them together, and none of them can stand behind what it needs. Nothing of them
/// failed. Zuul, too, takes out as dequeued what is in another cycle by now than it entered in;
/// whoever has them enter anew has them enter as one, where the queue allows that.
impl Work<'_> {
    /// Returns those that a change needs by now and that need it in turn, by what was told of them
    /// last, besides its own bundle.
    pub(super) fn in_turn(&self, change: &ChangeKey, needs: &[ChangeRef]) -> Vec<ItemId> {
        let slots = &self.head.slots;
        // What is on its way into its branch needs nothing any more that could change that.
        let place = |key: &ChangeKey| {
            slots.iter().position(|slot| slot.change.key == *key && !slot.standing.is_decided())
        };
        let needs_of = |at: usize| {
            let item = self.items.get(&slots[at].id);
            item.map(|item| item.candidate.needs.as_slice()).unwrap_or_default()
        };
        let mut needed = BTreeSet::new();
        let mut ahead: Vec<usize> = needs.iter().filter_map(|need| place(&need.key)).collect();
        while let Some(at) = ahead.pop() {
            if slots[at].change.key != *change && needed.insert(at) {
                ahead.extend(needs_of(at).iter().filter_map(|need| place(&need.change.key)));
            }
        }
        let mut in_turn: BTreeSet<usize> = BTreeSet::new();
        // Each round finds one at least, or is the last.
        for _ in 0..needed.len() {
            let leads_back = |key: &ChangeKey| {
                *key == *change || place(key).is_some_and(|at| in_turn.contains(&at))
            };
            let comes_back =
                |at: usize| needs_of(at).iter().any(|need| leads_back(&need.change.key));
            let more = needed.iter().copied().filter(|at| !in_turn.contains(at) && comes_back(*at));
            let more: Vec<usize> = more.collect();
            if more.is_empty() {
                break;
            }
            in_turn.extend(more);
        }
        let own = place(change).map(|at| self.head.bundle(at)).unwrap_or_default();
        in_turn.into_iter().filter(|at| !own.contains(at)).map(|at| slots[at].id.clone()).collect()
    }

    /// Lets go of the bundle at `position`, and of others that need it in turn. Returns false when
    /// there was no room for that yet.
    pub(super) fn leave_in_turn(&mut self, position: usize, others: Vec<ItemId>) -> bool {
        let own = self.head.slots[self.head.bundle(position)].iter().map(|slot| slot.id.clone());
        let all: Vec<ItemId> = own.chain(others).collect();
        let named = self
            .head
            .slots
            .iter()
            .filter(|slot| all.contains(&slot.id))
            .map(|slot| slot.change.key.to_string());
        let named = named.take(NAMED_MAX).collect::<Vec<_>>().join(", ");
        let more = if all.len() > NAMED_MAX { " and others" } else { "" };
        self.let_go(
            &all,
            &format!("{WHY_NEEDS}: {named}{more} need each other now, and did not enter together"),
        )
    }

    /// Lets go of those that need a change in turn which leaves for this reason. Returns false when
    /// there was no room for that yet.
    pub(super) fn let_go_of_those_in_turn(
        &mut self,
        change: &ChangeRef,
        needs: &[ChangeRef],
        why: &str,
    ) -> bool {
        // Elsewhere nobody stands behind what he needs.
        let others =
            if is_dependent(&self.head) { self.in_turn(&change.key, needs) } else { Vec::new() };
        self.let_go(
            &others,
            &format!("{WHY_NEEDS}: it and {} need each other now: {why}", change.key),
        )
    }

    /// Remembers of each that it is to leave, and why: one plan may have no room for the leaving of
    /// all, and with the first that has left nobody could tell any more that they needed each
    /// other.
    fn let_go(&mut self, ids: &[ItemId], why: &str) -> bool {
        let ids = &ids[..ids.len().min(LET_GO_MAX)];
        if !self.has_room(ids.len()) {
            return false;
        }
        for id in ids {
            if let Some(item) = self.item(id) {
                item.candidate.refused = Some(cut(why, REASON_BYTES_MAX));
            }
        }
        true
    }

    /// Returns whether what stands in a slot is to leave, since it and others came to need each
    /// other.
    pub(super) fn is_let_go(&self, slot: &Slot) -> bool {
        // Nobody enters who is refused.
        !slot.standing.is_decided()
            && self.items.get(&slot.id).is_some_and(|item| item.candidate.refused.is_some())
    }

    /// Takes out the first that was let go, with its bundle. Returns whether the order of the queue
    /// changed; `None` where there is none.
    pub(super) fn finish_let_go(&mut self) -> Option<bool> {
        let position = self.head.slots.iter().position(|slot| self.is_let_go(slot))?;
        let id = self.head.slots[position].id.clone();
        let why = self.items.get(&id)?.candidate.refused.clone()?;
        let bundle = self.head.bundle(position);
        if bundle.len() > 1 {
            return Some(self.leave_together(bundle, "DEQUEUED", &why, Occasion::Dequeue));
        }
        let may_leave =
            self.stop_builds(&id, &why) && self.has_room(LEAVING_RECORDS + self.entry_records());
        Some(may_leave && self.remove(position, "DEQUEUED", &why, Occasion::Dequeue))
    }
}

/// Says that a cycle failed, and which of its changes did.
fn cycle_failed<'k>(failing: impl Iterator<Item = &'k ChangeKey>) -> String {
    let named: Vec<String> = failing.map(ToString::to_string).collect();
    if named.is_empty() {
        CYCLE_FAILED.to_owned()
    } else {
        format!("{CYCLE_FAILED} What failed: {}.", named.join(", "))
    }
}
