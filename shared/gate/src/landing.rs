//! A landing: the record of merging a change into its branch and of verifying that the merged tree
//! is the tested one. [`next`] decides what the reporter does with it.

mod next;
pub mod observation;
#[cfg(test)]
mod tests;

pub use next::{ForgeQuery, IllegalObservation, Step, UNVERIFIABLE_SECONDS, WhichView, next};

use crate::branch_lock::branch_of;
use crate::filter::{NOT_SUBMITTABLE, refusal_by};
use serde::{Deserialize, Serialize};
use sluice_config::pipeline::{Filter, Pipeline, ReporterKind};
use sluice_model::change::{ChangeFacts, ChangeKey, ChangeRef, ChangeStatus};
use sluice_model::git::{Commit, LandingMethod, MergeMode};
use sluice_model::{ItemId, PipelineName, QueueKey, Timestamp};

/// The most bytes of a pipeline's requirements in a landing; a record holds 64 KB.
pub const REQUIREMENTS_BYTES_MAX: usize = 16 << 10;

/// The order to merge one item into its branch. The gate writes it and may withdraw it; the
/// reporter executes it and records its progress.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Landing {
    /// The item to merge.
    pub item: ItemId,
    /// The generation of the speculative state that it passed in.
    pub generation: u64,
    /// The queue that gets the result.
    pub queue: QueueKey,
    /// The change with the tested head.
    pub change: ChangeRef,
    /// Dependencies that the queue knows to be merged. The reporter checks that any other
    /// dependency of the change is merged, too.
    #[serde(default)]
    pub needs: Vec<ChangeKey>,
    /// The forge's merge mode.
    pub mode: MergeMode,
    /// How it is merged: as the queue ordered it, until a push is replaced by a merge.
    #[serde(default, skip_serializing_if = "LandingMethod::is_merge")]
    pub method: LandingMethod,
    /// Landings ordered together with it, each tested on the result of the one before. One push may
    /// merge all of them. Each of them ends by itself, by the content of the branch.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub followers: Vec<FollowingLanding>,
    /// The commit that was tested on. The branch must have its tree before the merge.
    pub base: Commit,
    /// The tested commit. The branch must have its tree after the merge.
    pub tested: Commit,
    /// Whether it changes the tenant's configuration.
    pub changes_configuration: bool,
    /// The bundle members that are merged after it, in order. Nothing of a bundle is merged if one
    /// of them cannot be.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub later_members: Vec<LaterMember>,
    /// The bundle members that were merged before it, in order. A landing with such is tried again
    /// for [`BUNDLE_RETRY_SECONDS`] where it cannot be carried out, since a part of a bundle was
    /// never tested without the rest.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub merged_members: Vec<ChangeKey>,
    /// The pipeline's requirements on it and on the later members, checked again before the merge.
    /// `None` without a pipeline, and for all but the first member of a bundle.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requirements: Option<MergeRequirements>,
    /// The fence of the branch lock ([`crate::branch_lock`]): nothing is merged once another queue
    /// has acquired the lock.
    pub fence: u64,
    /// Whether this landing or an earlier one of the same item asked the forge to merge the change.
    /// Only then can a merge shown by the forge be Sluice's own.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub merge_attempted: bool,
    /// Whether a push to its branch was sent without a clear answer. Only the content of the branch
    /// shows whether it was made.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub has_unanswered_push: bool,
    /// The problem that has prevented it for a while; `None` without one so far.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trouble: Option<LandingTrouble>,
    /// Since when the forge shows the change as merged but refuses to show the merged commit;
    /// `None` where it does not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unverifiable_since: Option<Timestamp>,
    /// When it was ordered.
    pub ordered_at: Timestamp,
    /// The progress of the landing.
    pub state: LandingState,
}

/// A landing that was ordered directly behind another one of the same branch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FollowingLanding {
    /// The item to merge.
    pub item: ItemId,
    /// The generation of the speculative state that it passed in.
    pub generation: u64,
}

/// How long, in seconds since its order, the landing of a bundle member is tried again after an
/// earlier member was merged.
pub const BUNDLE_RETRY_SECONDS: u64 = 600;

/// The most landings that are ordered together for one branch.
pub const LANDING_RUN_MAX: usize = 10;

/// A problem that prevents a landing. The reporter writes it once the landing has failed for a
/// while, and it stays until the landing ends. Only the removal of the connection is updated.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LandingTrouble {
    /// When the problem began.
    pub since: Timestamp,
    /// The error, for people; at most [`TROUBLE_BYTES_MAX`].
    pub why: String,
    /// Whether the change's connection was removed, so that its forge cannot be asked.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_connection_removed: bool,
}

/// The most bytes of [`LandingTrouble::why`].
pub const TROUBLE_BYTES_MAX: usize = 500;

/// A bundle member that is merged after the first one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LaterMember {
    /// The item to merge.
    pub item: ItemId,
    /// The generation of the speculative state that it passed in.
    pub generation: u64,
    /// The change with the tested head.
    pub change: ChangeRef,
    /// The commit whose tree its branch must have by then.
    pub base: Commit,
    /// Whether it changes the tenant's configuration.
    pub configures: bool,
    /// The fence of its branch lock: nothing of the bundle is merged once another queue has
    /// acquired that lock.
    pub fence: u64,
}

impl Landing {
    /// Returns whether one push may merge `next` together with this landing: it was tested on
    /// exactly the result of this one, for the same branch and under the same fence. Both must be
    /// fast-forward pushes, no bundles, and change no configuration: changes behind such a one are
    /// tested again with the new layout.
    pub fn may_move_with(&self, next: &Landing) -> bool {
        let is_moved = |landing: &Landing| {
            landing.method == LandingMethod::FastForward && !landing.changes_configuration
        };
        let is_alone = |landing: &Landing| landing.later_members.is_empty();
        is_moved(self)
            && is_moved(next)
            && is_alone(self)
            && is_alone(next)
            && branch_of(&self.change) == branch_of(&next.change)
            && self.fence == next.fence
            && self.tested.id == next.base.id
    }

    /// Returns until when the landing is tried again where it cannot be carried out, since earlier
    /// members of its bundle were merged; `None` for any other landing.
    pub fn bundle_retry_until(&self) -> Option<Timestamp> {
        let is_rest = !self.merged_members.is_empty();
        is_rest.then(|| self.ordered_at.plus_seconds(BUNDLE_RETRY_SECONDS))
    }

    /// Returns whether a fast-forward push was started and has not ended; it may take effect late.
    pub fn is_moving(&self) -> bool {
        matches!(self.state, LandingState::Pushing(_))
    }

    /// Returns whether a push may have moved the branch, however long ago and whatever was attempted
    /// since. The branch shows it.
    pub fn may_have_been_pushed(&self) -> bool {
        self.is_moving() || self.has_unanswered_push
    }

    /// Returns the request that the forge was sent last; `None` before the first one and after the
    /// landing has ended.
    pub fn attempt(&self) -> Option<&Attempt> {
        match &self.state {
            LandingState::Merging(attempt) | LandingState::Pushing(attempt) => Some(attempt),
            LandingState::Ordered | LandingState::Ended { .. } => None,
        }
    }

    /// Returns the landing with the intent to push or to merge stored, before the forge is asked.
    /// The connection exists again, so that the result will be known.
    pub fn with_intent(self, method: LandingMethod, attempt: Attempt) -> Self {
        let trouble = self
            .trouble
            .clone()
            .map(|trouble| LandingTrouble { is_connection_removed: false, ..trouble });
        Self {
            merge_attempted: true,
            // While the forge is asked to merge, an earlier push may still be unanswered.
            has_unanswered_push: self.has_unanswered_push
                || (self.is_moving() && method.is_merge()),
            method,
            state: match method {
                LandingMethod::FastForward => LandingState::Pushing(attempt),
                LandingMethod::Merge => LandingState::Merging(attempt),
            },
            trouble,
            ..self
        }
    }

    /// Returns the landing that is merged by the forge after a push that failed.
    pub fn with_push_replaced(self, push: FailedPush, attempt: Attempt) -> Self {
        Self {
            method: LandingMethod::Merge,
            has_unanswered_push: self.has_unanswered_push || push == FailedPush::Unanswered,
            state: LandingState::Merging(attempt),
            ..self
        }
    }

    /// Returns why its end did not merge the change, where another attempt may; `None` where it did,
    /// or a third party merged it.
    pub fn obstacle(&self, end: &LandingEnd) -> Option<String> {
        match end {
            LandingEnd::BaseMoved { tip } => {
                let (branch, tip) = (&self.change.branch, tip.id.short());
                Some(format!("{branch} is at {tip}, not at the tested commit"))
            }
            LandingEnd::Refused { why } => Some(why.clone()),
            LandingEnd::Landed { .. }
            | LandingEnd::MergedElsewhere { .. }
            | LandingEnd::Mismatch { .. }
            | LandingEnd::Unproven { .. } => None,
        }
    }

    /// Returns whether a change is still open with the head and target branch that were tested.
    pub fn is_as_tested(&self, facts: &ChangeFacts) -> bool {
        facts.status == ChangeStatus::Open
            && facts.change.head == self.change.head
            && facts.change.branch == self.change.branch
    }

    /// Returns the pipeline requirement that a change no longer meets (G12); `None` if there is
    /// none, or the landing carries no requirements.
    pub fn missing_requirement(&self, facts: &ChangeFacts, now: Timestamp) -> Option<String> {
        self.requirements.as_ref()?.refusal(&self.queue.pipeline, facts, now)
    }
}

/// The pipeline's requirements on a change that is to be merged: the same as when it entered,
/// by whichever way (G12).
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct MergeRequirements {
    /// The pipeline's `require`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub require: Vec<Filter>,
    /// The pipeline's `reject`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reject: Vec<Filter>,
    /// When the change entered.
    #[serde(default)]
    pub entered_at: Timestamp,
}

impl MergeRequirements {
    /// Returns a pipeline's requirements on changes that entered at `entered_at`, up to
    /// [`REQUIREMENTS_BYTES_MAX`]. Filters that do not fit were checked at entry and are checked
    /// with each update of the change, but not before the merge.
    pub fn of(pipeline: &Pipeline, entered_at: Timestamp) -> Self {
        let mut left = REQUIREMENTS_BYTES_MAX;
        let mut fits = |filter: &&Filter| {
            let bytes = serde_json::to_string(filter).map_or(usize::MAX, |text| text.len());
            let fits = bytes <= left;
            left -= if fits { bytes } else { 0 };
            fits
        };
        let require = pipeline.require.iter().filter(&mut fits).cloned().collect();
        let reject = pipeline.reject.iter().filter(&mut fits).cloned().collect();
        Self { require, reject, entered_at }
    }

    /// Returns why a change may no longer be merged, by its current facts, or `None` where it may:
    /// the forge would not merge it, it misses a stored `require`, or it meets a stored `reject`. A
    /// reason that time alone brought since the change entered (as with `newer-than`) is ignored.
    /// Whether the pipeline accepts the connection is not checked.
    pub fn refusal(
        &self,
        pipeline: &PipelineName,
        facts: &ChangeFacts,
        now: Timestamp,
    ) -> Option<String> {
        if facts.submittable == Some(false) {
            return Some(NOT_SUBMITTABLE.to_owned());
        }
        let as_of = |at: Timestamp| refusal_by(pipeline, &self.require, &self.reject, facts, at);
        as_of(now).filter(|_| as_of(self.entered_at).is_some())
    }
}

/// Returns whether the pipeline merges changes that succeed: a success reporter has `merge`
/// (GitHub) or `submit` (Gerrit).
pub fn lands_in(pipeline: &Pipeline) -> bool {
    pipeline.reporters.success.iter().any(|reporter| match &reporter.kind {
        ReporterKind::GitHub(github) => github.merge,
        ReporterKind::Gerrit(gerrit) => gerrit.submit,
        _ => false,
    })
}

/// The progress of a landing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LandingState {
    /// Ordered; nothing was done yet.
    Ordered,
    /// The forge is being asked to merge. After a crash it is read before it is asked again.
    Merging(Attempt),
    /// The branch is being pushed to the tested commit, by this landing or by one ahead.
    Pushing(Attempt),
    /// The landing has ended.
    Ended {
        /// The result.
        end: LandingEnd,
        /// When.
        at: Timestamp,
    },
}

/// How a push failed that is replaced by a merge.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailedPush {
    /// The forge refused it; the branch has not moved.
    Refused,
    /// No clear answer came. It may still take effect, and only the branch shows whether it was made.
    Unanswered,
}

/// A request to a forge, stored before it is sent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attempt {
    /// The tip of the branch before the request.
    pub tip: Commit,
    /// Until when the request may still take effect, by the forge's clock. `None` where the forge
    /// does not send its time; then the record's due time applies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_flight_until: Option<Timestamp>,
}

/// The result of a landing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LandingEnd {
    /// Merged: the branch has the tested tree.
    Landed {
        /// The merged commit.
        commit: Commit,
    },
    /// Not merged: the branch does not have the tree that was tested on, or another queue acquired
    /// the branch lock first. Of a bundle, it may be the branch of a later member.
    BaseMoved {
        /// The tip of the branch.
        tip: Commit,
    },
    /// Merged by a third party, with another tree than the tested one or before the rest of its
    /// bundle was checked. Sluice did nothing.
    MergedElsewhere {
        /// The tip of the branch.
        tip: Commit,
    },
    /// Not merged: the forge or a requirement refused it.
    Refused {
        /// The reason.
        why: String,
    },
    /// Merged, but the branch has a tree that was not tested.
    Mismatch {
        /// The merged commit.
        landed: Commit,
    },
    /// Merged according to the forge, but the merged commit cannot be read. Or possibly merged: an
    /// operator dequeued it after its connection was removed.
    Unproven {
        /// The error.
        why: String,
    },
}

impl LandingEnd {
    /// Returns whether Sluice merged nothing and no operator is needed: the change is tested again
    /// or leaves. A third party may have moved the branch.
    pub fn left_branch_unchanged(&self) -> bool {
        matches!(self, Self::BaseMoved { .. } | Self::MergedElsewhere { .. } | Self::Refused { .. })
    }
}

/// The reason of an item that leaves because its change is already merged, but not by this queue.
pub const MERGED_ELSEWHERE: &str = "the change was merged outside this queue";
