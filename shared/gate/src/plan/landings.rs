//! Landings of entries: ordered once all members have passed, followed until all are merged.
//!
//! The members of a bundle are merged one after the other. Once the first landing is ordered no
//! member may leave: the first is landing, the others await their landing, and each merged one has
//! landed, until all have. If a landing fails before any member is merged, nothing has happened:
//! all leave or are tested again. If it fails after one was merged, the authors get a report at once
//! and the reporter tries again for ten minutes; then the bundle leaves, and what is behind is tested
//! on the branches as they are. The queue is halted only where something was merged that was not
//! tested.

use super::finish::{DEQUEUE_RECORDS, Departure, Progress};
use super::ledger::Full;
use super::{Planner, QueueAction, RECORDS_MAX, is_dependent};
use crate::branch_lock::branch_of;
use crate::inbox::{Candidate, InboxMessage, InboxMessageKind};
use crate::item::{Item, cut};
use crate::landing::{
    FollowingLanding, LANDING_RUN_MAX, Landing, LandingEnd, LandingState, LaterMember,
    MERGED_ELSEWHERE, MergeRequirements,
};
use crate::queue::{LANDED_MAX, Slot, SlotStatus};
use crate::report::Occasion;
use sluice_model::ItemId;
use sluice_model::change::{ChangeKey, ChangeRef};
use sluice_model::git::{Commit, LandingMethod};

/// Bytes of a forge's error text that the head of a halted queue holds.
const UNVERIFIED_BYTES_MAX: usize = 250;

/// Which revisions of a merged change count as merged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MergedRevisions {
    /// Only the pushed head: other revisions of the change are still open at the forge.
    PushedHead,
    /// All: the forge merged the change itself.
    All,
}

impl Planner<'_> {
    /// Orders the landing of the entry at `position`, whose members have passed, and of entries
    /// behind that can be merged with it. Acquires the branch locks, marks all members as landing,
    /// and has the plan order the landing of the first and, if a member changes configuration,
    /// request a new layout. Does nothing while a layout is pending or the transaction has no room,
    /// and only notes the obstacle if a pending message dequeues a member or a branch lock is not
    /// available. The caller has checked that the pipeline merges.
    pub(super) fn order_landing(&mut self, position: usize) {
        let members = self.head.entries[position].members.clone();
        let in_bundle = members.len() > 1;
        // The layout that it was tested under may be about to be replaced. Each member may need
        // another branch lock, taken over from another queue.
        if self.awaits_layout() || !self.has_room(2 + 3 * members.len()) {
            return;
        }
        if let Some(slot) = members.iter().find(|slot| self.is_landing_withheld(slot)) {
            let change = &slot.change;
            let why = match in_bundle {
                true => format!(
                    "its bundle passed, but is not merged yet: a pending update dequeues {change}"
                ),
                false => format!(
                    "every voting job passed; {change} is not merged yet: a pending update dequeues it"
                ),
            };
            self.note(&slot.id, why);
            return; // The function that consumes the messages reconciles this queue again.
        }
        let is_tested =
            |slot: &Slot| self.items.get(&slot.id).is_some_and(|item| item.merged().is_some());
        if !members.iter().all(is_tested) || !self.acquire_branch_locks(&members) {
            return; // The queue that releases a branch lock wakes this one.
        }
        let Some(landing) = self.entry_landing(&members) else { return };
        self.ledger.request_layout_if(
            landing.changes_configuration
                || landing.later_members.iter().any(|other| other.configures),
        );
        let run = self.following_landings(position, &landing);
        let behind = run
            .iter()
            .map(|next| FollowingLanding { item: next.item.clone(), generation: next.generation })
            .collect();
        self.order(Landing { followers: behind, ..landing });
        for (at, Slot { id, change, .. }) in members.iter().enumerate() {
            self.head.entries[position].members[at].status =
                if at == 0 { SlotStatus::Landing } else { SlotStatus::AwaitingLanding };
            let why = match in_bundle {
                true => format!(
                    "every voting job of the bundle passed: {change} will be merged, {} of {}",
                    at + 1,
                    members.len()
                ),
                false => format!("every voting job passed: {change} will be merged"),
            };
            self.note(id, why);
        }
        for (at, next) in (position + 1..).zip(run) {
            self.head.entries[at].members[0].status = SlotStatus::Landing;
            self.note(
                &next.item,
                format!(
                    "every voting job passed: {} will be merged right after {}",
                    next.change, members[0].change
                ),
            );
            self.order(next);
        }
    }

    /// Has the plan order a landing and wake the reporter. The caller has made sure that it fits.
    fn order(&mut self, landing: Landing) {
        self.ledger.push(QueueAction::OrderLanding(Box::new(landing)));
    }

    /// Returns the landing to order for the first member of an entry, which names the others but no
    /// followers; `None` if one has no tested state or the queue does not hold its branch lock.
    fn entry_landing(&self, members: &[Slot]) -> Option<Landing> {
        let (first, later) = members.split_first()?;
        let later = later.iter().map(|slot| {
            let order = self.member_landing(slot)?;
            Some(LaterMember {
                item: order.item,
                generation: order.generation,
                change: order.change,
                base: order.base,
                configures: order.changes_configuration,
                fence: order.fence,
            })
        });
        let later_members = later.collect::<Option<Vec<_>>>()?;
        Some(Landing { later_members, ..self.member_landing(first)? })
    }

    /// Returns the landing of one item without later members and followers; orders nothing. `None`
    /// if the item has no tested state or the queue does not hold its branch lock.
    fn member_landing(&self, slot: &Slot) -> Option<Landing> {
        let item = self.items.get(&slot.id)?;
        let merged = item.merged()?;
        let branch = branch_of(&slot.change);
        let mode = (self.snapshot.merge_mode)(&branch);
        // In other pipelines a dependency need not be queued ahead; it counts as merged only if
        // this queue remembers that revision as merged.
        let has_landed =
            |need: &&Candidate| is_dependent(&self.head) || self.head.has_landed(&need.change);
        let landed =
            item.candidate.needs.iter().filter(has_landed).map(|need| need.change.key.clone());
        Some(Landing {
            item: slot.id.clone(),
            generation: slot.generation,
            queue: self.head.key.clone(),
            change: slot.change.clone(),
            needs: landed.collect(),
            mode,
            method: if merged.can_fast_forward && mode.keeps_head() {
                LandingMethod::FastForward
            } else {
                LandingMethod::Merge
            },
            followers: Vec::new(),
            base: merged.base.clone(),
            tested: merged.tested.clone(),
            changes_configuration: merged.touches_configuration,
            later_members: Vec::new(),
            merged_members: Vec::new(),
            requirements: self
                .snapshot
                .pipeline
                .map(|pipeline| MergeRequirements::of(pipeline, item.admitted_at)),
            fence: self.fence_of(&branch)?,
            merge_attempted: item.merge_attempted,
            has_unanswered_push: false,
            trouble: None,
            unverifiable_since: None,
            ordered_at: self.now,
            state: LandingState::Ordered,
        })
    }

    /// Returns the landings of entries right behind `first` that one push to the branch can merge
    /// together with it, at most [`LANDING_RUN_MAX`] with the first and as many as fit. `position`
    /// is that of `first`. Orders nothing. Empty if `first` is a bundle or has reporter jobs left,
    /// and in other than dependent queues.
    fn following_landings(&self, position: usize, first: &Landing) -> Vec<Landing> {
        let mut run: Vec<Landing> = Vec::new();
        // While reporter jobs run nothing else of the queue moves; an entry that has some lands
        // alone.
        let has_reporters = self.items.get(&first.item).is_some_and(Item::has_reporters_left);
        if !is_dependent(&self.head) || has_reporters || !first.later_members.is_empty() {
            return run;
        }
        for at in position + 1..self.head.entries.len() {
            // Two records for each and for the first: the landing and the item.
            let has_room = self.records_used() + 2 * (run.len() + 2) <= RECORDS_MAX;
            if run.len() + 1 == LANDING_RUN_MAX || !has_room || !self.can_follow(at) {
                break;
            }
            let Some(mut next) = self.member_landing(self.head.entries[at].first()) else { break };
            // A dependency inside the run is not merged yet. Normally the branch itself proves that
            // it was merged, since this one was tested on it. If it left the tree unchanged, the
            // forge must confirm it, and that may come late: it stays in `needs`.
            let ahead: Vec<&Landing> = std::iter::once(first).chain(&run).collect();
            let shown =
                ahead.iter().take_while(|before| before.base.tree != next.base.tree).count();
            next.needs.retain(|key| !ahead[shown..].iter().any(|before| before.change.key == *key));
            if !run.last().unwrap_or(first).may_move_with(&next) {
                break;
            }
            run.push(next);
        }
        run
    }

    /// Returns whether the entry at `at` can be merged together with the entry before it: it passed
    /// on top of that entry and under the current layout, is a change and no bundle, has no
    /// reporter jobs, and is not to be dequeued. `at` is at least 1.
    fn can_follow(&self, at: usize) -> bool {
        let entry = &self.head.entries[at];
        let slot = entry.first();
        let is_behind = entry.ahead.as_ref() == Some(&self.head.entries[at - 1].as_predecessor());
        let item = self.items.get(&slot.id).filter(|item| item.generation == slot.generation);
        slot.status == SlotStatus::Passed
            && is_behind
            && !entry.is_bundle()
            && slot.change.key.number().is_some()
            && item.is_some_and(|item| self.has_current_layout(item) && !item.has_reporters_left())
            && !self.is_landing_withheld(slot)
            && !self.is_marked_for_dequeue(slot)
    }

    /// Returns the landing that was ordered for an item in its current generation, as it was read;
    /// `None` if there is none, or if this plan ordered it.
    pub(super) fn landing_of(&self, slot: &Slot) -> Option<&Landing> {
        let landing = self.snapshot.landings.get(&slot.id);
        landing.filter(|landing| landing.generation == slot.generation)
    }

    /// Completes the first change that was ordered to land behind another one and whose landing
    /// ended without a merge by Sluice: it is tested again or leaves, whatever happens ahead.
    /// Returns [`Progress::Settled`] if there is none. A merged one waits for the entries ahead,
    /// which must be merged too.
    pub(super) fn finish_failed_follower(&mut self) -> Result<Progress, Full> {
        let has_failed = |slot: &Slot| match self.landing_of(slot).map(|landing| &landing.state) {
            Some(LandingState::Ended { end, .. }) => end.left_branch_unchanged(),
            _ => false,
        };
        let position = (1..self.head.entries.len()).find(|at| {
            let entry = &self.head.entries[*at];
            let slot = entry.first();
            slot.status == SlotStatus::Landing && !entry.is_bundle() && has_failed(slot)
        });
        let Some(position) = position else { return Ok(Progress::Settled) };
        self.require_room(DEQUEUE_RECORDS + self.enqueue_records())?;
        self.follow_landing(position)
    }

    /// Follows the landings of the entry at `position`; does nothing while the current one goes on.
    /// After a merge it orders the next member's landing, or completes the entry after the last. A
    /// merge of something that was not tested and an unproven merge halt the queue. After a member
    /// was merged, any other end removes the bundle, and trouble is reported once. Otherwise a
    /// moved branch has the entry tested again, and a refusal or a merge by others dequeues it; only
    /// after these, a removal and a completion returns [`Progress::Reordered`]. At the end of a
    /// landing that changes configuration, has the plan wake the tenant. The caller has reserved
    /// room for one change.
    pub(super) fn follow_landing(&mut self, position: usize) -> Result<Progress, Full> {
        let entry = self.head.entries[position].clone();
        let is_now = |slot: &Slot| slot.status == SlotStatus::Landing;
        if let Some(at) = entry.members.iter().position(is_now) {
            let slot = &entry.members[at];
            let Some(landing) = self.landing_of(slot).cloned() else {
                return Ok(Progress::Settled);
            };
            let LandingState::Ended { end, .. } = landing.state.clone() else {
                self.report_partial_merge(&entry.members, &landing)?;
                return Ok(Progress::Settled);
            };
            self.ledger.wake_tenant_if(landing.changes_configuration);
            match end {
                LandingEnd::Landed { commit } => {
                    if let Some(item) = self.item_mut(&slot.id) {
                        item.landed = Some(commit.id.clone());
                    }
                    let (commit, tree) = (commit.id.short(), commit.tree.short());
                    self.note(&slot.id, format!("merged as {commit} with the tested tree {tree}"));
                    self.head.entries[position].members[at].status = SlotStatus::Landed;
                }
                LandingEnd::Mismatch { landed } => {
                    self.halt(slot, mismatch_reason(&landing, &landed));
                    return Ok(Progress::Settled);
                }
                LandingEnd::Unproven { why } => {
                    self.halt(slot, unverified_reason(&landing, &why));
                    return Ok(Progress::Settled);
                }
                end if at > 0 => {
                    return self.end_unfinished_bundle(position, &landing, end);
                }
                LandingEnd::BaseMoved { tip } => {
                    self.retest(position, &landing, &tip);
                    return Ok(Progress::Reordered);
                }
                LandingEnd::Refused { why } => {
                    let others_why = format!(
                        "{} of its dependency cycle was not merged: {why}",
                        slot.change.key
                    );
                    let progress = self.dequeue_entry(position, "MERGE_FAILURE", |other| {
                        let why = if other.id == slot.id { &why } else { &others_why };
                        Departure::new("MERGE_FAILURE", why, Occasion::MergeFailure)
                    })?;
                    self.remember_merged(&entry.changes());
                    return Ok(progress);
                }
                LandingEnd::MergedElsewhere { .. } => {
                    self.dequeue(&slot.id, MERGED_ELSEWHERE, Occasion::Dequeue)?;
                    self.remember_landed(&slot.change, MergedRevisions::All);
                    self.remember_merged(&entry.changes());
                    return Ok(Progress::Reordered);
                }
            }
        }
        let mut members = self.head.entries[position].members.iter();
        if let Some(at) = members.position(|slot| slot.status == SlotStatus::AwaitingLanding) {
            self.order_next_landing(position, at);
            return Ok(Progress::Settled);
        }
        // The caller has reserved room for a single change.
        let records = DEQUEUE_RECORDS * entry.members.len() + self.enqueue_records();
        if entry.is_bundle() {
            self.require_room(records)?;
        }
        for slot in &entry.members {
            self.record_merged(slot);
            for behind in &mut self.head.entries[position + 1..] {
                // The entries behind were tested on exactly the branches' new states.
                if behind.ahead.as_ref().is_some_and(|ahead| ahead.item == slot.id) {
                    behind.ahead = None;
                }
            }
        }
        self.succeed(position, "merged");
        Ok(Progress::Reordered)
    }

    /// Has the entry at `position`, whose `landing` found its branch moved to `tip`, wait and be
    /// tested again, and notes that in its first item. Counts it as overtaken if the branch has
    /// other content than the one tested on and nothing is ahead of the entry. Outside dependent
    /// pipelines, removes the dependencies of a single change from its record, since the reporter
    /// found them merged; they stay if the queue no longer remembers one that `landing` lists.
    fn retest(&mut self, position: usize, landing: &Landing, tip: &Commit) {
        let entry = self.head.entries[position].clone();
        let slot = entry.first();
        // An entry that is still behind another one was tested on that, which was not merged:
        // nothing overtook it.
        let is_overtaken = tip.tree != landing.base.tree && entry.ahead.is_none();
        let branch = match entry.is_bundle() {
            true => "a branch of the bundle",
            false => slot.change.branch.as_str(),
        };
        let tip = tip.id.short();
        let why = format!("{branch} is at {tip}, not at the tested commit: testing again");
        self.note(&slot.id, why);
        self.restart_entry(position);
        self.record_merge_attempted(&slot.id, landing.merge_attempted);
        if is_overtaken {
            self.note_overtaken(&entry);
        }
        let has_landed = |key: &ChangeKey| self.head.landed.contains(key);
        let is_below = !is_dependent(&self.head) && landing.needs.iter().all(has_landed);
        if is_below
            && !entry.is_bundle()
            && let Some(item) = self.item_mut(&slot.id)
        {
            // The reporter saw that all its dependencies are merged: it is tested on its branch
            // alone.
            item.candidate.needs.clear();
        }
    }

    /// Orders the landing of the member at `at`, even while a layout is pending: a bundle that has
    /// begun must be completed. Does nothing if the member has no tested state, or if the branch
    /// lock was lost and cannot be acquired again; then the member keeps waiting. The caller has
    /// reserved room.
    fn order_next_landing(&mut self, position: usize, at: usize) {
        // The queue holds the branch lock since the first landing. If it was lost, acquire it
        // again; the fence keeps the landing from merging on a branch that another queue has used.
        let slot = self.head.entries[position].members[at].clone();
        let is_tested = self.items.get(&slot.id).is_some_and(|item| item.merged().is_some());
        let has_lock = is_tested
            && (self.fence_of(&branch_of(&slot.change)).is_some()
                || self.acquire_branch_locks(std::slice::from_ref(&slot)));
        let Some(landing) = self.member_landing(&slot).filter(|_| has_lock) else {
            return; // The queue that releases the branch lock wakes this one.
        };
        let members = &mut self.head.entries[position].members;
        members[at].status = SlotStatus::Landing;
        let merged = members.iter().filter(|slot| slot.status == SlotStatus::Landed);
        let merged_members = merged.map(|slot| slot.change.key.clone()).collect();
        // The requirements of all members were checked before the first was merged.
        self.order(Landing { requirements: None, merged_members, ..landing });
    }

    /// Has the plan report on all `members` of a bundle, once, that a part of it was merged and that
    /// `landing`, which has not ended, is tried again. Does nothing if it has no trouble or is the
    /// first of its bundle. With [`Full`] a part may be reported, which does not repeat.
    fn report_partial_merge(&mut self, members: &[Slot], landing: &Landing) -> Result<(), Full> {
        let (Some(until), Some(trouble)) = (landing.bundle_retry_until(), &landing.trouble) else {
            return Ok(());
        };
        let is_reported =
            self.items.get(&landing.item).is_some_and(|item| item.partial_merge_reported);
        if is_reported {
            return Ok(());
        }
        self.require_room(2 * members.len())?;
        let why = format!(
            "{}; merging it is tried again until {}Z",
            partial_merge_reason(landing, &trouble.why),
            until.to_iso()
        );
        for slot in members {
            self.note(&slot.id, why.clone());
            let item = self.items.shared(&slot.id);
            let report =
                item.and_then(|item| self.report_item(&item, Occasion::PartlyMerged, &why));
            self.ledger.report(report);
        }
        if let Some(item) = self.item_mut(&landing.item) {
            item.partial_merge_reported = true;
        }
        Ok(())
    }

    /// Removes the bundle at `position`, of which a part was merged and the rest could not be in
    /// time: `landing` ended with `end`. Merged members are remembered, emit
    /// `project-change-merged` and report success; the others report a failed merge. The entries
    /// behind are tested on the branches as they are. Also has the plan wake the tenant, which may
    /// wait for the configuration of a member. With [`Full`] nothing is done.
    fn end_unfinished_bundle(
        &mut self,
        position: usize,
        landing: &Landing,
        end: LandingEnd,
    ) -> Result<Progress, Full> {
        let obstacle = landing.obstacle(&end).unwrap_or_else(|| match &end {
            LandingEnd::Unproven { why } => why.clone(),
            _ => MERGED_ELSEWHERE.to_owned(),
        });
        let why = partial_merge_reason(landing, &obstacle);
        let slots = self.head.entries[position].members.clone();
        self.require_room(DEQUEUE_RECORDS * slots.len() + self.enqueue_records())?;
        for slot in slots.iter().filter(|slot| slot.status == SlotStatus::Landed) {
            self.record_merged(slot);
        }
        if matches!(end, LandingEnd::MergedElsewhere { .. }) {
            self.remember_landed(&landing.change, MergedRevisions::All);
        }
        self.ledger.wake_tenant_if(true);
        self.dequeue_entry(position, "MERGE_FAILURE", |slot| match slot.status {
            SlotStatus::Landed => Departure::new("SUCCESS", "merged", Occasion::Success),
            _ => Departure::new("MERGE_FAILURE", &why, Occasion::MergeFailure),
        })
    }

    /// Halts the queue for the reason `why` until an operator resumes it, and notes that in the
    /// item of `slot`.
    fn halt(&mut self, slot: &Slot, why: String) {
        self.note(&slot.id, why.clone());
        self.head.halted = Some(why);
    }

    /// Returns which revisions of an item's change count as merged: only the pushed one if exactly
    /// the tested commit was pushed. A merge by the forge creates another commit and counts for all
    /// revisions, and so does an item that is not queued.
    pub(super) fn merged_revisions(&self, id: &ItemId) -> MergedRevisions {
        let Some(item) = self.items.get(id) else { return MergedRevisions::All };
        let tested =
            item.merged().filter(|merged| merged.can_fast_forward).map(|merged| &merged.tested.id);
        if item.landed.is_some() && item.landed.as_ref() == tested {
            MergedRevisions::PushedHead
        } else {
            MergedRevisions::All
        }
    }

    /// Adds a merged change to those that the head remembers; `revisions` says which of its
    /// revisions count. Does not check whether the change is remembered already. Beyond
    /// [`LANDED_MAX`], forgets the oldest that no queued item depends on, if there is one.
    pub(super) fn remember_landed(&mut self, change: &ChangeRef, revisions: MergedRevisions) {
        let pushed_head = match revisions {
            MergedRevisions::PushedHead => Some(&change.head),
            MergedRevisions::All => None,
        };
        self.head.record_landed(&change.key, pushed_head);
        let needed = |key: &ChangeKey| {
            (self.items.values())
                .any(|item| item.candidate.needs.iter().any(|need| need.change.key == *key))
        };
        if self.head.landed.len() > LANDED_MAX
            && let Some(at) = self.head.landed.iter().position(|key| !needed(key))
        {
            self.head.forget_landed(at);
        }
    }

    /// Remembers those of `changes` as merged which an update still in the inbox reports as merged;
    /// the caller has removed them from the queue. That update finds no entry any more, but changes
    /// that depend on them must know (D08). Skips changes that are remembered already. Does nothing
    /// in other than dependent queues.
    pub(super) fn remember_merged(&mut self, changes: &[ChangeRef]) {
        if !is_dependent(&self.head) {
            return;
        }
        for change in changes {
            let is_merged = self.unconsumed().any(|message| reports_merge(message, change));
            if is_merged && !self.head.has_landed(change) {
                self.remember_landed(change, MergedRevisions::All);
            }
        }
    }
}

/// Formats that the earlier members of a landing's bundle were merged, but its change was not.
fn partial_merge_reason(landing: &Landing, obstacle: &str) -> String {
    let merged: Vec<String> = landing.merged_members.iter().map(ToString::to_string).collect();
    format!(
        "{} was merged, but {} of the same dependency cycle was not merged: {obstacle}",
        merged.join(", "),
        landing.change
    )
}

/// Returns whether a message is an update which says that `change`, in any revision, was merged
/// into its branch.
fn reports_merge(message: &InboxMessage, change: &ChangeRef) -> bool {
    let InboxMessageKind::ChangeUpdated { change: seen, merged, .. } = &message.kind else {
        return false;
    };
    *merged && seen.key == change.key && seen.branch == change.branch
}

/// Formats why a queue is halted after something was merged that was not tested.
fn mismatch_reason(landing: &Landing, landed: &Commit) -> String {
    format!(
        "{} was merged as {} with tree {}, but tree {} was tested; the queue is halted until an operator resumes it",
        landing.change,
        landed.id.short(),
        landed.tree.short(),
        landing.tested.tree.short()
    )
}

/// Formats why a queue is halted if the merged tree cannot be read.
fn unverified_reason(landing: &Landing, why: &str) -> String {
    format!(
        "{} is merged according to its forge, but the result cannot be read: {}; the queue is halted until an operator resumes it: \
         restore access by the connection {}, check that the merged tree is {}, then run `sluice queue resume`",
        landing.change,
        cut(why, UNVERIFIED_BYTES_MAX),
        landing.change.key.connection,
        landing.tested.tree
    )
}
