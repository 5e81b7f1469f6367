//! Bundles: changes with a dependency cycle (Z6.5). The members are enqueued together, tested on
//! one state, dequeued together, and merged one after the other in queue order.
//!
//! Once the first landing is ordered no member may leave: the first has the status landing, the
//! others pledged, and each merged one landed, until all are. If a landing fails before any member
//! is merged, nothing has happened: all leave or are tested again. If it fails after one was
//! merged, the queue is halted, since a part of a bundle was never tested.

use super::Planner;
use super::admit::{DEPENDENCIES_CHANGED, DEQUEUE_RECORDS, replacement_reason};
use super::finish::{MergedRevisions, mismatch_reason, unverified_reason};
use super::hosting::RESIDENCY_RECORDS;
use super::{RECORDS_MAX, is_dependent};
use crate::branch_lock::branch_of;
use crate::inbox::{Candidate, InboxMessage};
use crate::item::{Item, MergeStatus, REASON_BYTES_MAX, cut};
use crate::landing::{Landing, LandingEnd, LandingState, LaterMember, MERGED_ELSEWHERE};
use crate::queue::{Slot, SlotStatus};
use crate::report::Occasion;
use sluice_model::ItemId;
use sluice_model::change::{ChangeKey, ChangeRef};
use sluice_model::event::ZuulEvent;
use std::collections::BTreeSet;
use std::ops::Range;

/// The largest number of members in a bundle: decisions about all of them must fit into one
/// transaction.
pub const BUNDLE_MAX: usize = 10;

/// The most items that one plan marks for dequeueing. Intake lists at most twenty dependencies of a
/// change.
const MARKED_MAX: usize = 60;

/// The most changes that a reason about a bundle names.
const NAMED_MAX: usize = 5;

/// The report text of a change whose bundle failed.
const BUNDLE_FAILED: &str = "This change is part of a dependency cycle that failed.";

impl Planner<'_> {
    /// Enqueues a bundle if all its members may be enqueued (D10, D11). Returns false if there was
    /// no room to dequeue what they replace.
    pub(super) fn enqueue_bundle(
        &mut self,
        message: &InboxMessage,
        one: &Candidate,
        offered: &[Candidate],
    ) -> bool {
        let mut members: Vec<&Candidate> = Vec::new();
        for key in &one.bundle {
            let Some(member) = offered.iter().find(|candidate| candidate.change.key == *key) else {
                let reason =
                    format!("its dependency cycle includes {key}, which may not be enqueued");
                let of_cycle = |candidate: &&Candidate| one.bundle.contains(&candidate.change.key);
                let offered: Vec<&Candidate> = offered.iter().filter(of_cycle).collect();
                self.report_refused_moves(message, &offered, &reason);
                return self.log_refusal(&one.change, &reason);
            };
            members.push(member);
        }
        if members.len() > BUNDLE_MAX {
            let reason = format!("its dependency cycle has more than {BUNDLE_MAX} changes");
            self.report_refused_moves(message, &members, &reason);
            return self.log_refusal(&one.change, &reason);
        }
        let needs_more = members.iter().any(|member| self.adds_dependencies(member));
        if self.is_bundle_queued(&members) && !needs_more {
            return self.log_refusal(&one.change, "its whole bundle is already queued");
        }
        let is_older = |planner: &mut Self| {
            members.iter().any(|member| planner.rejects_outdated(&member.change, member.as_of))
        };
        if !is_dependent(&self.head) && !needs_more && is_older(self) {
            return true;
        }
        let is_in_branch = |member: &&&Candidate| {
            let mut slots =
                self.head.slots.iter().filter(|slot| slot.change.key == member.change.key);
            slots.any(|slot| slot.status == SlotStatus::Reporting && self.has_landed(&slot.id))
        };
        if let Some(landed) = members.iter().find(is_in_branch) {
            return self.log_refusal(&landed.change, "it has landed");
        }
        for member in &members {
            let key = &member.change.key;
            // Pipelines that do not merge may hold several revisions of a member.
            while let Some(slot) = self.head.slots.iter().find(|slot| slot.change.key == *key) {
                let (why, occasion) = replacement_reason(slot, &member.change);
                if !self.dequeue_change(key, why, occasion) {
                    return false;
                }
            }
        }
        let hosted = members
            .iter()
            .filter(|member| self.snapshot.residencies.contains_key(&member.change.key))
            .count();
        let entry =
            self.enqueue_records_of(members.len()) * members.len() + RESIDENCY_RECORDS * hosted;
        // A bundle of ten that supersedes other pipelines exceeds the planned maximum, but still
        // fits into a transaction.
        if !self.has_room(entry.max(DEQUEUE_RECORDS * members.len()).min(RECORDS_MAX)) {
            return false;
        }
        for member in &members {
            let Some(reason) = self.refusal_reason(member) else { continue };
            if let Some(report) =
                self.report_refusal(member, message, &reason).filter(|_| member.refused.is_some())
            {
                self.plan.reports.push(report);
            }
            self.report_refused_moves(message, &members, &reason);
            return self.log_refusal(&member.change, &reason);
        }
        if let Some(reason) = self.over_limit(&members) {
            return self.report_full(message, &members, &reason);
        }
        for (at, member) in members.into_iter().enumerate() {
            self.append(message, member, at > 0);
        }
        self.record_residencies(&one.bundle);
        true
    }

    /// Logs why a change is not enqueued. Always returns true: its message is done.
    fn log_refusal(&mut self, change: &ChangeRef, reason: &str) -> bool {
        self.plan.reasons.push(format!("{change} is not enqueued in {}: {reason}", self.head.key));
        true
    }

    /// Returns whether exactly these members are queued as one bundle, in this order.
    fn is_bundle_queued(&self, members: &[&Candidate]) -> bool {
        let first = self.head.slots.iter().position(|slot| slot.change == members[0].change);
        let bundle = first.map(|first| self.head.bundle(first));
        bundle.is_some_and(|bundle| {
            self.head.slots[bundle]
                .iter()
                .map(|slot| &slot.change)
                .eq(members.iter().map(|member| &member.change))
        })
    }

    /// Returns the changes of a range of slots.
    pub(super) fn changes_at(&self, slots: Range<usize>) -> Vec<ChangeRef> {
        self.head.slots[slots].iter().map(|slot| slot.change.clone()).collect()
    }

    /// Dequeues the member at `position` together with the rest of its bundle. Returns false if the
    /// transaction has no room for it.
    pub(super) fn dequeue_with_bundle(
        &mut self,
        position: usize,
        why: &str,
        occasion: Occasion,
    ) -> bool {
        let (bundle, change) =
            (self.head.bundle(position), self.head.slots[position].change.clone());
        let others_why = format!("{} of its dependency cycle left: {why}", change.key);
        // The other members are enqueued again together with the one that was replaced. Their
        // authors get a dequeue report.
        let others_occasion =
            if occasion == Occasion::Superseded { Occasion::Dequeue } else { occasion };
        self.dequeue_members(bundle, "DEQUEUED", |slot| {
            if slot.change == change {
                ("DEQUEUED", why.to_owned(), occasion)
            } else {
                ("DEQUEUED", others_why.clone(), others_occasion)
            }
        })
    }

    /// Applies the new dependencies of one member to its whole bundle: members share their outside
    /// dependencies. Moves the bundle behind them, or dequeues it if one is not queued. Returns
    /// false if the transaction has no room for it.
    pub(super) fn update_bundle_dependencies(&mut self, position: usize, one: &Candidate) -> bool {
        let bundle = self.head.bundle(position);
        let own = Candidate { needs: Vec::new(), bundle: Vec::new(), ..one.clone() };
        let mut place = bundle.start;
        for need in one.needs_outside_bundle() {
            if self.head.has_landed(&need.change) {
                continue;
            }
            let Some(at) = self.head.slots.iter().position(|slot| slot.change == need.change)
            else {
                let why = format!(
                    "{DEPENDENCIES_CHANGED}: it depends on {}, which is neither merged nor in this queue",
                    need.change.key
                );
                return self.dequeue_with_bundle(position, &why, Occasion::Dequeue);
            };
            place = place.max(at);
        }
        if !self.has_room(bundle.len()) {
            return false;
        }
        let members: Vec<_> = self.head.slots[bundle.clone()]
            .iter()
            .map(|slot| (slot.id.clone(), slot.change.key.clone()))
            .collect();
        for (id, key) in members {
            let all = one.needs.iter().chain([&own]);
            let needs = all.filter(|need| need.change.key != key).cloned().collect();
            if let Some(item) = self.item_mut(&id) {
                item.candidate.needs = needs;
                item.add_reason(format!("the dependencies of {} changed", one.change));
            }
        }
        if place >= bundle.end {
            let moved: Vec<Slot> = self.head.slots.drain(bundle).collect();
            self.head.slots.extend(moved);
        }
        true
    }

    /// Dequeues a whole bundle with one result and one reason. Returns false if the transaction has
    /// no room for it.
    pub(super) fn dequeue_bundle(
        &mut self,
        bundle: Range<usize>,
        result: &'static str,
        why: &str,
        occasion: Occasion,
    ) -> bool {
        self.dequeue_members(bundle, result, |_| (result, why.to_owned(), occasion))
    }

    /// Dequeues a whole bundle in one plan. It counts once for the window. Returns false if the
    /// transaction has no room for it.
    fn dequeue_members(
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
        // Reserve room for enqueueing a member again in the same transaction.
        if !self.has_room(DEQUEUE_RECORDS * bundle.len() + self.enqueue_records()) {
            return false;
        }
        let window = self.head.window;
        for _ in bundle.clone() {
            let (result, why, occasion) = how(&self.head.slots[bundle.start]);
            self.remove_at(bundle.start, result, &why, occasion);
        }
        self.head.window = window;
        self.resize_window(result);
        true
    }

    /// Completes the bundle at the front, if it can be completed. Returns whether the order of the
    /// queue changed.
    pub(super) fn finish_bundle(&mut self, bundle: Range<usize>) -> bool {
        let slots = self.head.slots[bundle.clone()].to_vec();
        if slots[0].status.is_landing() {
            return self.follow_bundle_landing(bundle);
        }
        let known = |slot: &Slot| {
            let item = self.items.get(&slot.id).filter(|item| item.generation == slot.generation);
            item.filter(|item| self.has_current_layout(item))
        };
        let items: Vec<Option<&Item>> = slots.iter().map(known).collect();
        let untestable = items.iter().flatten().find_map(|item| match &item.merge_status {
            MergeStatus::Unmergeable { why, configuration, .. } => {
                Some((item.id.clone(), why.clone(), *configuration))
            }
            _ => None,
        });
        let failing =
            slots.iter().zip(&items).filter(|(_, item)| item.is_some_and(Item::is_failing));
        let failed_why = bundle_failed_reason(failing.map(|(slot, _)| &slot.change.key));
        let may_get_other_jobs = self.awaits_configuration();
        if let Some((id, why, configuration)) = untestable {
            if configuration && may_get_other_jobs {
                return false;
            }
            let (result, occasion) = match configuration {
                true => ("CONFIG_ERROR", Occasion::ConfigError),
                false => ("MERGE_CONFLICT", Occasion::MergeConflict),
            };
            return self.dequeue_members(bundle, result, |slot| {
                if slot.id == id {
                    (result, why.clone(), occasion)
                } else {
                    ("FAILURE", failed_why.clone(), Occasion::BundleFailed)
                }
            });
        }
        if !items.iter().all(|item| item.is_some_and(Item::is_complete)) {
            return false;
        }
        let has_jobs = items.iter().flatten().any(|item| item.reported_jobs().next().is_some());
        if !has_jobs && may_get_other_jobs {
            return false;
        }
        if !has_jobs {
            return self.dequeue_bundle(bundle, "NO_JOBS", "no job is to be run", Occasion::NoJobs);
        }
        if slots.iter().any(|slot| slot.status == SlotStatus::Failing) {
            let has_left =
                self.dequeue_bundle(bundle, "FAILURE", &failed_why, Occasion::BundleFailed);
            if has_left {
                self.count_outcome(Occasion::Failure); // Counted once; the occasion of the members does not count.
            }
            return has_left;
        }
        if self.lands() {
            return self.order_bundle_landing(bundle);
        }
        self.succeed(bundle, "every voting job passed")
    }

    /// Marks all members as landing and orders the landing of the first. Returns false always: the
    /// order of the queue stays.
    fn order_bundle_landing(&mut self, bundle: Range<usize>) -> bool {
        // Each member may need another branch lock, taken over from another queue.
        if self.awaits_layout() || !self.has_room(2 + 3 * bundle.len()) {
            return false;
        }
        if let Some(slot) =
            self.head.slots[bundle.clone()].iter().find(|slot| self.is_landing_withheld(slot))
        {
            let (id, change) = (slot.id.clone(), slot.change.clone());
            self.note(
                &id,
                format!(
                    "its bundle passed, but is not merged yet: a pending update dequeues {change}"
                ),
            );
            return false; // The function that consumes the messages reconciles this queue again.
        }
        let orders: Option<Vec<_>> =
            bundle.clone().map(|at| self.landing_order(at, Vec::new())).collect();
        if orders.is_none() || !self.acquire_branch_locks(bundle.clone()) {
            return false; // The queue that releases a branch lock wakes this one.
        }
        let orders: Option<Vec<_>> =
            bundle.clone().map(|at| self.landing_order(at, Vec::new())).collect();
        let is_whole = |orders: &Vec<Landing>| {
            !orders.is_empty() && orders.iter().all(|order| order.fence.is_some())
        };
        let Some(mut orders) = orders.filter(is_whole) else { return false };
        let mut first = orders.remove(0);
        let together = orders.into_iter().map(|order| LaterMember {
            item: order.item,
            generation: order.generation,
            change: order.change,
            base: order.base,
            configures: order.changes_configuration,
            fence: order.fence,
        });
        first.later_members = together.collect();
        self.plan.requests_layout |=
            first.changes_configuration || first.later_members.iter().any(|other| other.configures);
        self.plan.landings.push(first);
        for at in bundle.clone() {
            let slot = &mut self.head.slots[at];
            slot.status =
                if at == bundle.start { SlotStatus::Landing } else { SlotStatus::AwaitingLanding };
            let (id, change) = (slot.id.clone(), slot.change.clone());
            self.note(
                &id,
                format!(
                    "every voting job of the bundle passed: {change} will be merged, {} of {}",
                    at - bundle.start + 1,
                    bundle.len()
                ),
            );
        }
        false
    }

    /// Follows the landings of a bundle: orders the next one when a member is merged, and completes
    /// all when all are merged. Returns whether the order of the queue changed.
    fn follow_bundle_landing(&mut self, bundle: Range<usize>) -> bool {
        let is_now = |at: &usize| self.head.slots[*at].status == SlotStatus::Landing;
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
            self.plan.wake_tenant |= landing.changes_configuration;
            let has_begun = at > bundle.start;
            match end {
                LandingEnd::Landed { commit } => {
                    if let Some(item) = self.item_mut(&slot.id) {
                        item.landed = Some(commit.id.clone());
                    }
                    let (commit, tree) =
                        (commit.id.short().to_owned(), commit.tree.short().to_owned());
                    self.note(&slot.id, format!("merged as {commit} with the tested tree {tree}"));
                    self.head.slots[at].status = SlotStatus::Landed;
                    if at + 1 < bundle.end {
                        return self.order_next_landing(at + 1);
                    }
                }
                LandingEnd::Mismatch { landed } => {
                    return self.halt(&slot, mismatch_reason(&landing, &landed));
                }
                LandingEnd::Unproven { why } => {
                    return self.halt(&slot, unverified_reason(&landing, &why));
                }
                LandingEnd::BaseMoved { tip } if !has_begun => {
                    let is_overtaken = tip.tree != landing.base.tree;
                    let tip = tip.id.short();
                    self.note(
                        &slot.id,
                        format!("a branch of the bundle is at {tip}, not at the tested commit: testing again"),
                    );
                    for at in bundle.clone() {
                        self.head.slots[at].generation += 1;
                        self.head.slots[at].status = SlotStatus::Waiting;
                    }
                    self.note_tried(&slot.id, landing.merge_attempted);
                    if is_overtaken {
                        self.note_overtaken(bundle);
                    }
                    return true;
                }
                LandingEnd::Refused { why } if !has_begun => {
                    let changes = self.changes_at(bundle.clone());
                    let others_why = format!(
                        "{} of its dependency cycle was not merged: {why}",
                        slot.change.key
                    );
                    let has_left = self.dequeue_members(bundle, "MERGE_FAILURE", |other| {
                        let why =
                            if other.id == slot.id { why.clone() } else { others_why.clone() };
                        ("MERGE_FAILURE", why, Occasion::MergeFailure)
                    });
                    if has_left {
                        self.remember_merged(&changes);
                    }
                    return has_left;
                }
                LandingEnd::MergedElsewhere { .. } if !has_begun => {
                    let changes = self.changes_at(bundle);
                    let has_left =
                        self.dequeue_with_bundle(at, MERGED_ELSEWHERE, Occasion::Dequeue);
                    if has_left {
                        self.remember_landed(&slot.change, MergedRevisions::All);
                        self.remember_merged(&changes);
                    }
                    return has_left;
                }
                LandingEnd::BaseMoved { tip } => {
                    let why = format!(
                        "{} is at {}, not at the tested commit",
                        slot.change.branch,
                        tip.id.short()
                    );
                    return self.halt_partial_bundle(&bundle, &slot, &why);
                }
                LandingEnd::MergedElsewhere { tip } => {
                    let (branch, tip) = (&slot.change.branch, tip.id.short());
                    let why = format!(
                        "{MERGED_ELSEWHERE}, and {branch} is at {tip}, not at the tested commit"
                    );
                    return self.halt_partial_bundle(&bundle, &slot, &why);
                }
                LandingEnd::Refused { why } => {
                    return self.halt_partial_bundle(&bundle, &slot, &why);
                }
            }
        }
        let is_next = |at: &usize| self.head.slots[*at].status == SlotStatus::AwaitingLanding;
        if let Some(at) = bundle.clone().find(is_next) {
            return self.order_next_landing(at); // It could not be ordered when the previous one was merged.
        }
        let all_landed =
            self.head.slots[bundle.clone()].iter().all(|slot| slot.status == SlotStatus::Landed);
        if !all_landed || !self.has_room(DEQUEUE_RECORDS * bundle.len() + self.enqueue_records()) {
            return false;
        }
        let landed = self.head.slots[bundle.clone()].to_vec();
        for slot in &landed {
            let revisions = self.merged_revisions(&slot.id);
            self.remember_landed(&slot.change, revisions);
            self.emit_event(ZuulEvent::ProjectChangeMerged, &slot.id, &slot.change);
            for behind in &mut self.head.slots[bundle.end..] {
                // The entries behind were tested on exactly the branches' new states.
                if behind.ahead.as_ref().is_some_and(|ahead| ahead.item == slot.id) {
                    behind.ahead = None;
                }
            }
        }
        self.succeed(bundle, "merged")
    }

    /// Orders the landing of the member at `at`, even while a layout is pending: a bundle that has
    /// begun must be completed. Returns false always: the order of the queue stays.
    fn order_next_landing(&mut self, at: usize) -> bool {
        // The queue holds the branch lock since the first landing. If it was lost, acquire it
        // again; the fence keeps the landing from merging on a branch that another queue has used.
        let branch = branch_of(&self.head.slots[at].change);
        if self.landing_order(at, Vec::new()).is_none()
            || (self.fence_of(&branch).is_none() && !self.acquire_branch_locks(at..at + 1))
        {
            return false; // The queue that releases the branch lock wakes this one.
        }
        let landing = self.landing_order(at, Vec::new()).filter(|landing| landing.fence.is_some());
        let Some(landing) = landing else { return false };
        self.head.slots[at].status = SlotStatus::Landing;
        // The requirements of all members were checked before the first was merged.
        self.plan.landings.push(Landing { requirements: None, ..landing });
        false
    }

    /// Halts the queue after a part of a bundle was merged. Returns false: the order stays.
    fn halt_partial_bundle(&mut self, bundle: &Range<usize>, slot: &Slot, why: &str) -> bool {
        let landed =
            self.head.slots[bundle.clone()].iter().filter(|slot| slot.status == SlotStatus::Landed);
        let landed: Vec<String> = landed.map(|slot| slot.change.to_string()).collect();
        let change = &slot.change;
        let text = format!(
            "{} was merged, but {change} of the same dependency cycle was not merged: {why}; the queue is halted until an operator resumes it",
            landed.join(", ")
        );
        self.halt(slot, text)
    }

    /// Halts the queue until an operator resumes it. Returns false: the order of the queue stays.
    pub(super) fn halt(&mut self, slot: &Slot, why: String) -> bool {
        self.note(&slot.id, why.clone());
        self.head.halted = Some(why);
        false
    }
}

/// Dependency cycles that arise among queued changes. The members were enqueued separately, so no
/// bundle holds them, and none can be behind all it depends on. Like Zuul, the queue dequeues them;
/// an event that enqueues them again enqueues them as a bundle, if the queue allows that.
impl Planner<'_> {
    /// Returns the queued items, outside the change's own bundle, that form a dependency cycle with
    /// it, given its new dependencies `needs`.
    pub(super) fn new_cycle_members(&self, change: &ChangeKey, needs: &[ChangeRef]) -> Vec<ItemId> {
        let slots = &self.head.slots;
        // A change that is being merged is not affected by new dependencies.
        let place = |key: &ChangeKey| {
            slots.iter().position(|slot| slot.change.key == *key && !slot.status.is_decided())
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
        // Each round finds at least one, or is the last.
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

    /// Marks the bundle at `position` and `others`, which form a dependency cycle with it, for
    /// dequeueing. Returns false if the transaction has no room for it.
    pub(super) fn mark_new_cycle(&mut self, position: usize, others: Vec<ItemId>) -> bool {
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
        self.mark_for_dequeue(
            &all,
            &format!("{DEPENDENCIES_CHANGED}: {named}{more} form a dependency cycle now and were enqueued separately"),
        )
    }

    /// Marks the items that form a dependency cycle with a change for dequeueing, since that change
    /// leaves for the reason `why`. Returns false if the transaction has no room for it.
    pub(super) fn mark_new_cycle_members(
        &mut self,
        change: &ChangeRef,
        needs: &[ChangeRef],
        why: &str,
    ) -> bool {
        // In other pipelines no entry is behind its dependencies.
        let others = if is_dependent(&self.head) {
            self.new_cycle_members(&change.key, needs)
        } else {
            Vec::new()
        };
        self.mark_for_dequeue(
            &others,
            &format!(
                "{DEPENDENCIES_CHANGED}: it forms a dependency cycle with {}: {why}",
                change.key
            ),
        )
    }

    /// Stores in each item that it is to be dequeued, and why. One plan may have no room to dequeue
    /// all, and once the first has left the cycle can no longer be seen.
    fn mark_for_dequeue(&mut self, ids: &[ItemId], why: &str) -> bool {
        let ids = &ids[..ids.len().min(MARKED_MAX)];
        if !self.has_room(ids.len()) {
            return false;
        }
        for id in ids {
            if let Some(item) = self.item_mut(id) {
                item.candidate.refused = Some(cut(why, REASON_BYTES_MAX));
            }
        }
        true
    }

    /// Returns whether an entry is marked for dequeueing because of a new dependency cycle.
    pub(super) fn is_marked_for_dequeue(&self, slot: &Slot) -> bool {
        // A candidate with a refusal is never enqueued, so the field is free for this use.
        !slot.status.is_decided()
            && self.items.get(&slot.id).is_some_and(|item| item.candidate.refused.is_some())
    }

    /// Dequeues the first marked entry with its bundle. Returns whether the order of the queue
    /// changed; `None` if no entry is marked.
    pub(super) fn dequeue_marked(&mut self) -> Option<bool> {
        let position = self.head.slots.iter().position(|slot| self.is_marked_for_dequeue(slot))?;
        let id = self.head.slots[position].id.clone();
        let why = self.items.get(&id)?.candidate.refused.clone()?;
        let bundle = self.head.bundle(position);
        if bundle.len() > 1 {
            return Some(self.dequeue_bundle(bundle, "DEQUEUED", &why, Occasion::Dequeue));
        }
        let may_leave =
            self.stop_builds(&id, &why) && self.has_room(DEQUEUE_RECORDS + self.enqueue_records());
        Some(may_leave && self.remove_at(position, "DEQUEUED", &why, Occasion::Dequeue))
    }
}

/// Formats the report text of a failed bundle, with the members that failed.
fn bundle_failed_reason<'k>(failing: impl Iterator<Item = &'k ChangeKey>) -> String {
    let named: Vec<String> = failing.map(ToString::to_string).collect();
    if named.is_empty() {
        BUNDLE_FAILED.to_owned()
    } else {
        format!("{BUNDLE_FAILED} Failed changes: {}.", named.join(", "))
    }
}
