//! What the reporter does next with a landing: a pure decision from the stored landing and from
//! what one run has observed so far.
//!
//! The forge is asked before anything is done, and again after a crash, since an earlier request may
//! have taken effect. Where a push may have moved the branch, the branch is searched for the tested
//! commit: of several changes merged by one push, the forge names only the last commit. Otherwise
//! the commit that the forge names is compared. While an earlier request may be in flight and
//! explain an obstacle, the obstacle is a reason to wait, not a result. A merge by a third party is
//! never a mismatch.

use super::observation::{
    Answer, Clocks, IntentResult, MemberView, MergeAnswer, Observation, PushAnswer, ReadMember,
    Retry, View,
};
use super::{FailedPush, Landing, LandingEnd, LandingState, TROUBLE_BYTES_MAX};
use crate::filter::merge_requirement_message;
use crate::item::cut;
use sluice_model::Timestamp;
use sluice_model::change::{ChangeFacts, ChangeStatus};
use sluice_model::git::{Commit, LandingMethod, Oid};

/// Seconds between two checks while a request may be in flight.
const IN_FLIGHT_PAUSE_SECONDS: u64 = 2;
/// Seconds that a push or merge may take. With less time left, no further request is sent.
const REQUEST_SECONDS: u64 = 30;
/// Seconds for which a forge may refuse to show the commit of a merge that it reports. Forges show
/// some facts late. After that the landing ends as unproven, since it blocks its branch meanwhile.
pub const UNVERIFIABLE_SECONDS: u64 = 300;

/// What the reporter does next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Reads this, adds it to the observation, and asks for the next step.
    Observe(ForgeQuery),
    /// Stores the intent to push or to merge. A run that finds it after a crash reads the forge
    /// before it asks again.
    WriteIntent {
        /// Whether to push or to merge.
        method: LandingMethod,
        /// Until when a request of an earlier run may take effect, by the function's clock; the
        /// stored deadline stays in that case.
        in_flight_until: Option<Timestamp>,
    },
    /// Pushes the tested commit; the intent is stored.
    Push,
    /// Replaces the stored intent to push by one to merge.
    ReplacePush(FailedPush),
    /// Asks the forge to merge the change; the intent is stored.
    Merge,
    /// Stores since when the forge does not show the merged commit, and repeats the run later.
    NoteUnverifiable {
        /// Since when, by the forge's clock if that is known.
        since: Timestamp,
        /// The forge's error.
        why: String,
    },
    /// Repeats the run later.
    Wait(Retry),
    /// Stores the obstacle as trouble and repeats the run with a later sweep: the rest of a bundle
    /// whose earlier members were merged.
    Postpone {
        /// The obstacle.
        why: String,
    },
    /// Stores the result.
    End {
        /// The result.
        end: LandingEnd,
        /// Whether earlier members of its bundle were merged and this one could not be for
        /// [`super::BUNDLE_RETRY_SECONDS`], which needs an operator.
        is_rest_unmerged: bool,
    },
}

/// What the reporter reads next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ForgeQuery {
    /// The forge's time: any answer of the forge has it.
    ForgeTime,
    /// Whether the branch contains the tested commit; into [`View::contains_tested`] of `before`.
    ContainsTested,
    /// The change.
    Change(WhichView),
    /// Whether the change's dependencies are merged.
    Dependencies,
    /// The tip of the branch.
    Tip(WhichView),
    /// The later bundle member with this index.
    Member(usize),
    /// Whether a push of the tested commit can be prepared.
    PushReadiness,
    /// The merged commit: the named one, or the tip of the branch.
    Merged(WhichView, Option<Oid>),
    /// The tested commit, at the forge.
    Tested,
    /// Whether the branch contains the tested commit; into
    /// [`Observation::contains_tested_at_end`].
    ContainsTestedAtEnd,
}

/// Which of the two views of an observation a query fills.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WhichView {
    /// [`Observation::before`].
    Before,
    /// [`Observation::after`].
    After,
}

/// A landing and an observation that do not belong together. It is a defect of the caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IllegalObservation {
    /// The landing has ended; nothing may be asked of the forge.
    Ended,
    /// A forge answered a request whose intent is not stored.
    RequestWithoutIntent,
    /// A forge answered a push, but none was ready.
    PushWithoutCommits,
    /// A forge answered a merge request although the intent was a push.
    MergeDuringPush,
}

impl std::fmt::Display for IllegalObservation {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(match self {
            Self::Ended => "the landing has ended, so that nothing may be asked of its forge",
            Self::RequestWithoutIntent => "the forge answered a request whose intent is not stored",
            Self::PushWithoutCommits => "the forge answered a push that was not prepared",
            Self::MergeDuringPush => "the forge answered a merge request while a push was intended",
        })
    }
}

impl std::error::Error for IllegalObservation {}

/// Returns what the reporter does next with a landing, after what one run has observed. `landing` is
/// the landing as it was stored when the run began, whatever the run has stored since.
///
/// # Errors
/// When the landing has ended, or the observation has an answer to a request that could not be made.
pub fn next(
    landing: &Landing,
    seen: &Observation,
    now: Clocks,
) -> Result<Step, IllegalObservation> {
    check(landing, seen)?;
    let in_flight_until = match in_flight_until(landing, seen) {
        Ok(until) => until,
        Err(query) => return Ok(Step::Observe(query)),
    };
    let run = Run { landing, seen, now, in_flight_until };
    let step = match seen.intent {
        None => run.before_intent(),
        Some(intent) => run.after_intent(intent),
    };
    Ok(match step {
        Ok(step) | Err(step) => step,
    })
}

/// Returns an error if a landing has ended, or an observation has an answer to a request that could
/// not be made.
fn check(landing: &Landing, seen: &Observation) -> Result<(), IllegalObservation> {
    let has_intent = matches!(seen.intent, Some(IntentResult::Stored(_)));
    let is_asked = seen.push.is_some() || seen.merge.is_some() || seen.is_push_replaced;
    let is_push = seen.is_push_ready == Some(true);
    if let LandingState::Ended { .. } = landing.state {
        Err(IllegalObservation::Ended)
    } else if is_asked && !has_intent {
        Err(IllegalObservation::RequestWithoutIntent)
    } else if (seen.push.is_some() || seen.is_push_replaced) && !is_push {
        Err(IllegalObservation::PushWithoutCommits)
    } else if seen.merge.is_some() && is_push && !seen.is_push_replaced {
        Err(IllegalObservation::MergeDuringPush)
    } else {
        Ok(())
    }
}

/// Returns the time, by the function's clock, until which a request of an earlier run may still take
/// effect; `None` if none can, or the landing is not stored as attempted. The error is what has to
/// be read first.
///
/// A forge moves the branch first, shows the change as merged a moment later, and may refuse a
/// second merge in between. The time left is measured by the forge's clock, since the earlier run
/// may have been on a machine with another clock.
fn in_flight_until(landing: &Landing, seen: &Observation) -> Result<Option<Timestamp>, ForgeQuery> {
    let Some(attempt) = landing.attempt() else { return Ok(None) };
    let started = seen.started;
    if let Some(until) = attempt.in_flight_until {
        if started.forge.is_none() && !seen.is_forge_time_read {
            return Err(ForgeQuery::ForgeTime);
        }
        if let Some(time) = started.forge {
            let left_millis = until.since(time);
            return Ok((left_millis > 0).then(|| started.own.plus_millis(left_millis)));
        }
    }
    Ok(seen.due.filter(|due| *due > started.own))
}

/// A decided step, or in the error position a step that has to come first.
type Decided = Result<Step, Step>;

/// One decision.
struct Run<'a> {
    /// The landing as it was stored when the run began.
    landing: &'a Landing,
    /// What the run has observed.
    seen: &'a Observation,
    /// The present clocks.
    now: Clocks,
    /// Until when a request of an earlier run may take effect; `None` where none can.
    in_flight_until: Option<Timestamp>,
}

impl Run<'_> {
    /// Decides before the intent is stored: all preconditions of a merge.
    fn before_intent(&self) -> Decided {
        // First the branch: it shows whether an earlier push was made, whatever the change shows.
        if self.landing.may_have_been_pushed() && self.contains_tested()? {
            return self.end_of_tested();
        }
        let facts = match self.change(WhichView::Before)? {
            Ok(facts) => facts,
            Err(why) => return self.refuse(why.clone()),
        };
        self.check_change(facts)?;
        if facts.status == ChangeStatus::Merged {
            return self.end_of_merged(facts);
        }
        let tip = match self.tip(WhichView::Before)? {
            Ok(tip) => tip,
            Err(why) => return self.refuse(why.clone()),
        };
        if self.in_flight_until.is_none() {
            self.check_members()?;
        }
        self.check_tip(tip)?;
        let is_push = self.is_push_ready(tip)?;
        if let Some(until) = self.in_flight_until {
            if self.landing.is_moving() && !is_push && tip.id == self.landing.base.id {
                return Err(self.wait_in_flight("its tested commit is no longer stored"));
            }
            if self.is_nearly_over(until) {
                return Err(self.wait_in_flight("its branch does not contain it yet"));
            }
        }
        let method = if is_push { LandingMethod::FastForward } else { LandingMethod::Merge };
        Ok(Step::WriteIntent { method, in_flight_until: self.in_flight_until })
    }

    /// Checks that a change is merged, or open with the tested head and branch, with merged
    /// dependencies and all requirements. The error is the step if it is not.
    fn check_change(&self, facts: &ChangeFacts) -> Result<(), Step> {
        let tested = &self.landing.change;
        let is_merged = facts.status == ChangeStatus::Merged;
        // A later action of its author, which the forge may show late, does not undo the merge.
        if self.in_flight_until.is_some() && !is_merged && !self.landing.is_as_tested(facts) {
            return Err(self.wait_in_flight(&format!("{tested} has changed since it was tested")));
        }
        if facts.change.branch != tested.branch {
            if self.is_push_in_flight() {
                return Err(self.wait_in_flight(&format!("{tested} targets another branch now")));
            }
            // The forge would merge into the change's new branch; this queue's branch is
            // unaffected.
            return Err(self.conclude(self.retargeted(facts))?);
        }
        if is_merged {
            return Ok(());
        }
        if facts.status == ChangeStatus::Closed {
            return Err(self.refuse("the change was closed".to_owned())?);
        }
        if facts.change.head != tested.head {
            let (now, tested) = (facts.change.head.short(), tested.head.short());
            return Err(self.refuse(format!("its head is now {now}, but {tested} was tested"))?);
        }
        if let Err(why) = self.dependencies()? {
            return Err(self.refuse(why.clone())?);
        }
        if let Some(why) = self.missing_requirement(facts) {
            return Err(match self.in_flight_until {
                Some(_) => self.wait_in_flight(&why),
                None => self.refuse(merge_requirement_message(&why))?,
            });
        }
        Ok(())
    }

    /// Checks that the branch has the tree that was tested on. The error is the step if it does not.
    fn check_tip(&self, tip: &Commit) -> Result<(), Step> {
        if tip.tree == self.landing.base.tree {
            return Ok(());
        }
        let is_where_it_was =
            self.landing.attempt().is_some_and(|attempt| attempt.tip.id == tip.id);
        // A forge's answer about a branch may be a moment old, so a push may not be visible yet.
        if self.in_flight_until.is_some()
            && (self.landing.may_have_been_pushed() || !is_where_it_was)
        {
            let (branch, change) = (&self.landing.change.branch, &self.landing.change);
            let why = format!("{branch} moved while a merge of {change} may be in flight");
            return Err(wait_seconds(why, IN_FLIGHT_PAUSE_SECONDS));
        }
        Err(self.conclude(LandingEnd::BaseMoved { tip: tip.clone() })?)
    }

    /// Checks that all later members of a bundle can be merged: otherwise nothing of it is. The
    /// error is the step if one cannot, or has to be read first.
    ///
    /// A change in the seconds between this check and the member's own landing is detected there,
    /// when a part of the bundle is already merged.
    fn check_members(&self) -> Result<(), Step> {
        for index in 0..self.landing.later_members.len() {
            let Some(view) = self.seen.members.get(index) else {
                return Err(Step::Observe(ForgeQuery::Member(index)));
            };
            if let Some(end) = self.end_by_member(index, view) {
                return Err(self.conclude(end)?);
            }
        }
        Ok(())
    }

    /// Returns the result of a landing whose bundle's later member at `index` cannot be merged:
    /// refused if it is not as tested, cannot be read, misses a requirement or dependency, or
    /// cannot be merged according to its forge; a moved base if its branch moved. `None` if it can.
    fn end_by_member(&self, index: usize, view: &MemberView) -> Option<LandingEnd> {
        let member = self.landing.later_members.get(index)?;
        let (change, key) = (&member.change, &member.change.key);
        let refused = |why: String| {
            Some(LandingEnd::Refused { why: format!("{key}, a member of its bundle, {why}") })
        };
        let ReadMember { facts, dependencies, tip } = match view {
            MemberView::ConnectionRemoved => {
                let name = &key.connection;
                return refused(format!("cannot be read: the connection {name} was removed"));
            }
            MemberView::Unreadable(why) => return refused(format!("cannot be read: {why}")),
            MemberView::Read(read) => &**read,
        };
        if facts.status != ChangeStatus::Open {
            return refused("is no longer open".to_owned());
        }
        if facts.change.head != change.head || facts.change.branch != change.branch {
            let (head, branch) = (facts.change.head.short(), &facts.change.branch);
            return refused(format!("is now {head} for {branch}, but another revision was tested"));
        }
        if let Some(why) = self.missing_requirement(facts) {
            return refused(format!(
                "is unable to merge due to a missing merge requirement: {why}"
            ));
        }
        if let Err(why) = dependencies {
            return refused(format!("may not be merged yet: {why}"));
        }
        let tip = tip.as_ref()?;
        if facts.mergeable == Some(false) {
            return refused("cannot be merged according to its forge".to_owned());
        }
        match tip {
            Ok(tip) if tip.tree == member.base.tree => None,
            Ok(tip) => Some(LandingEnd::BaseMoved { tip: tip.clone() }),
            Err(why) => refused(format!("has no branch: {why}")),
        }
    }

    /// Decides after the attempt to store the intent.
    fn after_intent(&self, intent: IntentResult) -> Decided {
        let until = match intent {
            IntentResult::Stored(until) => until,
            IntentResult::BranchLockLost if self.in_flight_until.is_none() => {
                // Nothing was done; the queue tests the change again on the moved branch.
                return match self.tip(WhichView::Before)? {
                    Ok(tip) => self.conclude(LandingEnd::BaseMoved { tip: tip.clone() }),
                    Err(why) => self.refuse(why.clone()),
                };
            }
            IntentResult::BranchLockLost | IntentResult::Stale => return Ok(concurrent_run()),
        };
        if self.seen.is_push_ready == Some(true)
            && let Some(step) = self.after_push(until)
        {
            return step;
        }
        match &self.seen.merge {
            Some(MergeAnswer::Merged(commit)) => self.end_of_own_merge(commit),
            Some(MergeAnswer::Refused(why)) => self.end_of_refused_merge(why),
            Some(MergeAnswer::Unclear(retry)) => Ok(Step::Wait(retry.clone())),
            None if !self.seen.is_push_replaced && self.is_too_late(until) => {
                Ok(self.wait_in_flight("storing its intent took too long"))
            }
            None => Ok(Step::Merge),
        }
    }

    /// Decides about a push that is ready; `None` if the forge has to merge, since it refused the
    /// push.
    fn after_push(&self, until: Option<Timestamp>) -> Option<Decided> {
        let (is_in_flight, was_pushing) =
            (self.in_flight_until.is_some(), self.landing.is_moving());
        Some(match &self.seen.push {
            // A delayed run must not send a request that others already consider over.
            None if self.is_too_late(until) => {
                Ok(self.wait_in_flight("storing its intent took too long"))
            }
            None => Ok(Step::Push),
            Some(PushAnswer::Made) => self.end_of_tested(),
            Some(PushAnswer::BranchMoved(retry)) => Ok(Step::Wait(retry.clone())),
            // Sluice may be allowed to merge where it may not push; the branch has not moved.
            Some(PushAnswer::Refused(_)) if !was_pushing && !is_in_flight => {
                if self.seen.is_push_replaced {
                    return None;
                }
                Ok(Step::ReplacePush(FailedPush::Refused))
            }
            // After a second push without an answer the forge is asked to merge, so that the branch
            // is not blocked any longer. After so long a wait, the branch and the change are read
            // again first.
            Some(PushAnswer::Refused(_) | PushAnswer::Unclear(_))
                if was_pushing && !is_in_flight =>
            {
                Ok(match self.seen.is_push_replaced {
                    true => self.wait_in_flight("a push to its branch was not answered"),
                    false => Step::ReplacePush(FailedPush::Unanswered),
                })
            }
            Some(PushAnswer::Refused(why)) => Ok(self.wait_in_flight(why)),
            Some(PushAnswer::Unclear(retry)) => Ok(Step::Wait(retry.clone())),
        })
    }

    /// Decides about a change that was merged before this run asked for it.
    fn end_of_merged(&self, facts: &ChangeFacts) -> Decided {
        if self.is_foreign_merge() {
            let end = self.end_of_foreign_merge(WhichView::Before, facts)?;
            return self.conclude(end);
        }
        let end = self.compare_merged(WhichView::Before, facts.merge_commit.clone())?;
        if let LandingEnd::Mismatch { .. } = end {
            // An earlier landing of the item may have pushed. After a late push the forge names the
            // push's last commit, which may be another change's.
            let was_withdrawn = self.landing.merge_attempted
                && self.landing.state == LandingState::Ordered
                && self.landing.mode.keeps_head();
            if was_withdrawn && self.contains_tested_at_end()? {
                return self.end_of_tested();
            }
        }
        self.conclude(end)
    }

    /// Decides about a change that the forge merged for this run as `commit`.
    fn end_of_own_merge(&self, commit: &Oid) -> Decided {
        let end = self.compare_merged(WhichView::After, Some(commit.clone()))?;
        if !matches!(end, LandingEnd::Mismatch { .. }) {
            return self.conclude(end);
        }
        if self.landing.may_have_been_pushed() && self.contains_tested_at_end()? {
            return self.end_of_tested();
        }
        // The forge may name a push's last commit and show the branch late. It is checked again
        // until the attempt is over.
        if self.landing.is_moving() {
            return Ok(self.wait_in_flight("it was merged as something else"));
        }
        // The change may have been retargeted between the read and the merge, which names the head
        // and not the branch.
        match self.change(WhichView::After)? {
            Ok(facts) if facts.change.branch != self.landing.change.branch => {
                self.conclude(self.retargeted(facts))
            }
            Ok(_) => self.conclude(end),
            Err(why) => Ok(wait(why.clone())),
        }
    }

    /// Decides about a merge request that the forge refused for good: a refusal, the result of a
    /// third party's merge if the change is merged, or a wait if an earlier request may be in flight
    /// or have merged it.
    fn end_of_refused_merge(&self, why: &str) -> Decided {
        if self.in_flight_until.is_some() || self.landing.is_moving() {
            let what = match self.landing.may_have_been_pushed() {
                true => "a push or a merge",
                false => "a merge",
            };
            let why = format!("{why}; {what} requested earlier may be in flight");
            return Ok(wait_seconds(why, IN_FLIGHT_PAUSE_SECONDS));
        }
        let refused = || LandingEnd::Refused { why: why.to_owned() };
        match self.change(WhichView::After)? {
            // An earlier merge request may have taken effect since the change was read; the next run
            // verifies it.
            Ok(facts) if facts.status == ChangeStatus::Merged && self.landing.merge_attempted => {
                let why = format!("{} was merged in the meantime", self.landing.change);
                Ok(wait_seconds(why, IN_FLIGHT_PAUSE_SECONDS))
            }
            // Otherwise a third party merged it, since the first request was refused.
            Ok(facts)
                if facts.status == ChangeStatus::Merged
                    && facts.change.branch == self.landing.change.branch =>
            {
                let end = self.end_of_foreign_merge(WhichView::After, facts)?;
                self.conclude(end)
            }
            Err(error) if self.landing.merge_attempted => Ok(wait(error.clone())),
            Ok(_) | Err(_) => self.conclude(refused()),
        }
    }

    /// Returns the result for a change that a third party merged: a person, or another gate with the
    /// same change. It landed if the merge commit or the tip of the branch has the tested tree;
    /// otherwise it was merged elsewhere, or is refused if the forge does not show the branch. For
    /// the first member of a bundle it never counts as landed: the later members were not checked.
    ///
    /// The branch was or will be tested there, so another tree is no alarm. The result also notifies
    /// the queue that the change is merged, which it may not get to know otherwise.
    fn end_of_foreign_merge(
        &self,
        when: WhichView,
        facts: &ChangeFacts,
    ) -> Result<LandingEnd, Step> {
        let is_tested = |commit: &Commit| {
            self.landing.later_members.is_empty() && commit.tree == self.landing.tested.tree
        };
        if self.landing.later_members.is_empty()
            && let Some(named) = &facts.merge_commit
            && let Ok(commit) = self.merged(when, Some(named.clone()))?
            && is_tested(commit)
        {
            return Ok(LandingEnd::Landed { commit: commit.clone() });
        }
        Ok(match self.tip(when)? {
            Ok(tip) if is_tested(tip) => LandingEnd::Landed { commit: tip.clone() },
            Ok(tip) => LandingEnd::MergedElsewhere { tip: tip.clone() },
            Err(why) => LandingEnd::Refused { why: why.clone() },
        })
    }

    /// Returns whether a merged change was merged by a third party, because Sluice never asked a
    /// forge to merge it. Always false for later bundle members: a part of the bundle is merged, so
    /// an operator has to check.
    fn is_foreign_merge(&self) -> bool {
        self.landing.state == LandingState::Ordered
            && !self.landing.merge_attempted
            && !self.landing.has_unanswered_push
            && self.landing.requirements.is_some()
    }

    /// Returns the result for a merge as the commit `named`, or as the tip of the branch: landed if
    /// its tree is the tested one, otherwise a mismatch. The branch may have moved on since.
    fn compare_merged(&self, when: WhichView, named: Option<Oid>) -> Result<LandingEnd, Step> {
        match self.merged(when, named)? {
            Ok(commit) => Ok(self.compared(commit)),
            Err(why) => self.unverifiable(why),
        }
    }

    /// Ends the landing by the tested commit, which the branch contains.
    fn end_of_tested(&self) -> Decided {
        match &self.seen.tested {
            None => Err(Step::Observe(ForgeQuery::Tested)),
            Some(Ok(commit)) => Ok(self.finish(self.compared(commit))),
            Some(Err(why)) => self.unverifiable(why).map(|end| self.finish(end)),
        }
    }

    /// Returns a landed result if a commit has the tested tree, otherwise a mismatch.
    fn compared(&self, commit: &Commit) -> LandingEnd {
        match commit.tree == self.landing.tested.tree {
            true => LandingEnd::Landed { commit: commit.clone() },
            false => LandingEnd::Mismatch { landed: commit.clone() },
        }
    }

    /// Returns an unproven result if the forge has refused to show the merged commit for
    /// [`UNVERIFIABLE_SECONDS`]; before that, the step that waits.
    fn unverifiable(&self, why: &str) -> Result<LandingEnd, Step> {
        let now = self.now.forge.unwrap_or(self.now.own);
        match self.landing.unverifiable_since {
            Some(since) if since.plus_seconds(UNVERIFIABLE_SECONDS) <= now => {
                Ok(LandingEnd::Unproven { why: cut(why, TROUBLE_BYTES_MAX) })
            }
            Some(_) => Err(wait(why.to_owned())),
            None => Err(Step::NoteUnverifiable { since: now, why: why.to_owned() }),
        }
    }

    /// Refuses the landing for this reason, or waits while a request may be in flight.
    fn refuse(&self, why: String) -> Decided {
        match self.in_flight_until {
            Some(_) => Ok(self.wait_in_flight(&why)),
            None => self.conclude(LandingEnd::Refused { why }),
        }
    }

    /// Ends the landing with this result. If the change is not merged as tested according to that,
    /// but a push may have moved the branch, the branch is read once more: if it contains the tested
    /// commit, that decides. A mismatch waits while a push may be in flight.
    fn conclude(&self, end: LandingEnd) -> Decided {
        let has_landed = matches!(end, LandingEnd::Landed { .. });
        if !has_landed && self.landing.may_have_been_pushed() && self.contains_tested_at_end()? {
            return self.end_of_tested();
        }
        if matches!(end, LandingEnd::Mismatch { .. }) && self.is_push_in_flight() {
            return Ok(self.wait_in_flight("it was merged as something else"));
        }
        Ok(self.finish(end))
    }

    /// Returns the step that stores a result: the rest of a bundle that was not merged is tried
    /// again until [`super::BUNDLE_RETRY_SECONDS`] after its order.
    fn finish(&self, end: LandingEnd) -> Step {
        let until = self.landing.bundle_retry_until();
        match until.zip(self.landing.obstacle(&end)) {
            Some((until, why)) if self.now.own < until => Step::Postpone { why },
            rest => Step::End { end, is_rest_unmerged: rest.is_some() },
        }
    }

    /// Returns the refusal of a landing whose change targets another branch than it was tested on,
    /// or was merged into another one.
    fn retargeted(&self, facts: &ChangeFacts) -> LandingEnd {
        let (now, tested) = (&facts.change.branch, &self.landing.change.branch);
        let why = match facts.status {
            ChangeStatus::Merged => {
                format!("it was merged into {now}, but it was tested on {tested}")
            }
            ChangeStatus::Open | ChangeStatus::Closed => {
                format!("it now targets {now}, but it was tested on {tested}")
            }
        };
        LandingEnd::Refused { why }
    }

    /// Returns the pipeline requirement that a change no longer meets (G12); `None` if there is
    /// none, or the landing carries no requirements. The event about it may still be on its way.
    fn missing_requirement(&self, facts: &ChangeFacts) -> Option<String> {
        self.landing.missing_requirement(facts, self.now.own)
    }

    /// Returns whether a push of an earlier run may be in flight. Then the change's present facts
    /// may be newer than the push.
    fn is_push_in_flight(&self) -> bool {
        self.landing.may_have_been_pushed() && self.in_flight_until.is_some()
    }

    /// Returns whether the time left of an attempt is too short for another request. Other reporters
    /// might consider the attempt over when the request takes effect.
    fn is_nearly_over(&self, until: Timestamp) -> bool {
        until < self.now.own.plus_seconds(REQUEST_SECONDS)
    }

    /// Returns whether the first request after an intent that is due at `until` would come too late.
    fn is_too_late(&self, until: Option<Timestamp>) -> bool {
        until.is_some_and(|until| self.is_nearly_over(until))
    }

    /// Returns the wait of a few seconds while a request of the landing may be in flight. `why` is
    /// the obstacle, which may be newer than the request.
    fn wait_in_flight(&self, why: &str) -> Step {
        let is_push =
            self.landing.has_unanswered_push || self.landing.method == LandingMethod::FastForward;
        let what = if is_push { "a push to the branch" } else { "a merge" };
        let why = format!("{why}; {what} of {} may be in flight", self.landing.change);
        wait_seconds(why, IN_FLIGHT_PAUSE_SECONDS)
    }

    /// Returns one of the two views.
    fn view(&self, when: WhichView) -> &View {
        match when {
            WhichView::Before => &self.seen.before,
            WhichView::After => &self.seen.after,
        }
    }

    /// Returns whether the branch contained the tested commit when the run began.
    fn contains_tested(&self) -> Result<bool, Step> {
        self.seen.before.contains_tested.ok_or(Step::Observe(ForgeQuery::ContainsTested))
    }

    /// Returns whether the branch contained the tested commit when it was read last.
    fn contains_tested_at_end(&self) -> Result<bool, Step> {
        self.seen.contains_tested_at_end.ok_or(Step::Observe(ForgeQuery::ContainsTestedAtEnd))
    }

    /// Returns the change as the forge shows it.
    fn change(&self, when: WhichView) -> Result<&Answer<ChangeFacts>, Step> {
        self.view(when).change.as_ref().ok_or(Step::Observe(ForgeQuery::Change(when)))
    }

    /// Returns the tip of the branch.
    fn tip(&self, when: WhichView) -> Result<&Answer<Commit>, Step> {
        self.view(when).tip.as_ref().ok_or(Step::Observe(ForgeQuery::Tip(when)))
    }

    /// Returns the merged commit: the named one, or the tip of the branch.
    fn merged(&self, when: WhichView, named: Option<Oid>) -> Result<&Answer<Commit>, Step> {
        self.view(when).merged.as_ref().ok_or(Step::Observe(ForgeQuery::Merged(when, named)))
    }

    /// Returns why a dependency prevents the merge.
    fn dependencies(&self) -> Result<&Result<(), String>, Step> {
        self.seen.dependencies.as_ref().ok_or(Step::Observe(ForgeQuery::Dependencies))
    }

    /// Returns whether the tested commit can be pushed: the landing is made by a push, the branch is
    /// at the commit that was tested on, and all objects are stored.
    fn is_push_ready(&self, tip: &Commit) -> Result<bool, Step> {
        let is_push = self.landing.method == LandingMethod::FastForward;
        if !is_push || tip.id != self.landing.base.id {
            return Ok(false);
        }
        self.seen.is_push_ready.ok_or(Step::Observe(ForgeQuery::PushReadiness))
    }
}

/// Returns the wait for a concurrent run that has changed the landing.
fn concurrent_run() -> Step {
    wait("another reporter executes the same landing".to_owned())
}

/// Returns a wait with the usual pause of a message that failed.
fn wait(why: String) -> Step {
    Step::Wait(Retry { why, after_seconds: None })
}

/// Returns a wait of some seconds.
fn wait_seconds(why: String, seconds: u64) -> Step {
    Step::Wait(Retry { why, after_seconds: Some(seconds) })
}
