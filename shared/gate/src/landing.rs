//! A landing: the intent, what was seen on the way, and the proof that what landed is what was
//! tested.

use crate::filter::{NOT_SUBMITTABLE, refusal_by};
use crate::turn::branch_of;
use serde::{Deserialize, Serialize};
use sluice_config::pipeline::{Filter, Pipeline, ReporterKind};
use sluice_model::change::{ChangeFacts, ChangeKey, ChangeRef};
use sluice_model::git::{Commit, LandingWay, MergeMode};
use sluice_model::{ItemId, PipelineName, QueueKey, Timestamp};

/// Bytes of what a landing carries of its pipeline's requirements; a record holds 64 KB.
pub const ASKS_BYTES_MAX: usize = 16 << 10;

/// The order to put one item into its branch. The gate writes it once; whoever lands it finishes
/// it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Landing {
    /// The item.
    pub item: ItemId,
    /// The speculative state it passed in.
    pub generation: u64,
    /// The queue to tell.
    pub queue: QueueKey,
    /// The change and the head that was tested.
    pub change: ChangeRef,
    /// Changes that it depends on and that landed before it, as its queue knows; whatever else it
    /// depends on by now must be merged too.
    #[serde(default)]
    pub needs: Vec<ChangeKey>,
    /// How the forge merges it.
    pub mode: MergeMode,
    /// How it gets into its branch: as its queue orders it, as far as its repository allows that;
    /// from the intent on, as is attempted.
    #[serde(default, skip_serializing_if = "LandingWay::is_merge")]
    pub way: LandingWay,
    /// Landings that were ordered with it, each tested on what the one before makes of the branch:
    /// one move may land all of them. Each of them ends by itself, by what is in the branch.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub behind: Vec<Behind>,
    /// What the branch must be: its tree decides.
    pub base: Commit,
    /// What the branch must become: its tree decides.
    pub tested: Commit,
    /// Whether that changes what the tenant reads as configuration.
    #[serde(default = "unknown_is_yes")]
    pub configures: bool,
    /// Changes of its bundle that land after it, in that order. Nothing of a bundle lands where one
    /// of them cannot.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub together: Vec<Together>,
    /// What its pipeline asks of it and of those that land after it, which is looked at once more
    /// before anything is merged; `None` where nobody says, and for what lands after another one of
    /// its bundle: of that, the first one's landing asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asks: Option<Asks>,
    /// The fence under which its branch is its queue's ([`crate::turn`]): nothing is merged once
    /// somebody else has taken the branch. `None` for one that was ordered before branches were
    /// taken; whose branch it is by now nobody can tell, so that it is not merged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fence: Option<u64>,
    /// Whether a forge was asked to merge it, by this landing or by an earlier one of the same
    /// item: only then may what its forge shows as merged be our own doing.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub tried: bool,
    /// Whether a push to move its branch was sent for it and had no clear answer, whatever was
    /// begun since: of that the branch alone tells.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub pushed: bool,
    /// Until when what a forge was asked for last may be under way, by that forge's own clock:
    /// those of whoever looks may be minutes apart. `None` where the forge does not tell the time;
    /// then the record's due time says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asked_until: Option<Timestamp>,
    /// What keeps it from being carried out, once it has been kept for a while.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trouble: Option<Trouble>,
    /// Since when it is made, as its forge says, and the forge does not show what it made of the
    /// branch, and will not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unread_since: Option<Timestamp>,
    /// When it was wanted.
    pub wanted_at: Timestamp,
    /// How far it is.
    pub state: LandingState,
}

/// A landing that was ordered right behind another one of its branch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Behind {
    /// The item.
    pub item: ItemId,
    /// The speculative state it passed in.
    pub generation: u64,
}

/// Landings that are ordered at once for one branch.
pub const RUN_MAX: usize = 10;

/// What keeps a landing from being carried out: whoever tries writes so, once, and it stays until
/// the landing's end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trouble {
    /// Since when that is so.
    pub since: Timestamp,
    /// What happened, for people; at most [`TROUBLE_BYTES_MAX`].
    pub why: String,
    /// Whether the change's connection was removed, so that nobody can ask its forge any more.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_gone: bool,
}

/// Bytes that are kept of what keeps a landing from being carried out.
pub const TROUBLE_BYTES_MAX: usize = 500;

/// A change that is to land after another one of its bundle.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Together {
    /// The item.
    pub item: ItemId,
    /// The speculative state it passed in.
    pub generation: u64,
    /// The change and the head that was tested.
    pub change: ChangeRef,
    /// What its branch must be by then.
    pub base: Commit,
    /// Whether it changes what the tenant reads as configuration.
    pub configures: bool,
    /// The fence under which its branch is its queue's: nothing of the bundle is merged once
    /// somebody else has taken that. `None` for one that was ordered by an earlier version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fence: Option<u64>,
}

impl Landing {
    /// Returns whether one move of a branch may land `next` with this one: it was tested on exactly
    /// what this one makes of the branch. Configuration lands by itself, for what is behind it is
    /// tested anew under what it brings.
    pub fn may_move_with(&self, next: &Landing) -> bool {
        let is_moved =
            |landing: &Landing| landing.way == LandingWay::FastForward && !landing.configures;
        let is_alone = |landing: &Landing| landing.together.is_empty();
        is_moved(self)
            && is_moved(next)
            && is_alone(self)
            && is_alone(next)
            && branch_of(&self.change) == branch_of(&next.change)
            && self.fence == next.fence
            && self.tested.id == next.base.id
    }

    /// Returns whether what was begun of it is a move of its branch, which may be made however late
    /// the answer comes.
    pub fn is_moving(&self) -> bool {
        self.way == LandingWay::FastForward && matches!(self.state, LandingState::Attempting { .. })
    }

    /// Returns whether it is the first of a bundle, with an intent that shows the fences of all of
    /// its branches.
    pub fn fences_bundle(&self) -> bool {
        self.fence.is_some()
            && !self.together.is_empty()
            && self.together.iter().all(|other| other.fence.is_some())
    }
}

/// What a pipeline asks of a change that is to land: what it asked of it when it entered, whoever
/// enqueued it (G12).
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Asks {
    /// What it requires.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub require: Vec<Filter>,
    /// What it rejects.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reject: Vec<Filter>,
    /// When the change entered.
    #[serde(default)]
    pub entered_at: Timestamp,
}

impl Asks {
    /// Returns what a pipeline asks of changes that entered then, as far as [`ASKS_BYTES_MAX`]
    /// reaches: what is beyond was asked when they entered and is asked of all news of them, and of
    /// these alone.
    pub fn of(pipeline: &Pipeline, entered_at: Timestamp) -> Self {
        let mut left = ASKS_BYTES_MAX;
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

    /// Returns why a change may no longer land, by what its forge knows of it now. A review that
    /// was young enough when the change entered does not stop it for having grown old meanwhile:
    /// time alone takes nothing back.
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

/// Returns whether a success in a pipeline puts the change into its branch.
pub fn lands_in(pipeline: &Pipeline) -> bool {
    pipeline.reporters.success.iter().any(|reporter| match &reporter.kind {
        ReporterKind::GitHub(github) => github.merge,
        ReporterKind::Gerrit(gerrit) => gerrit.submit,
        _ => false,
    })
}

fn unknown_is_yes() -> bool {
    true
}

/// How far a landing is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LandingState {
    /// Nothing was done.
    Wanted,
    /// The forge is being asked, the branch having been at this tip. After a crash the forge is
    /// read before it is asked again.
    Attempting {
        /// The tip seen before.
        tip: Commit,
    },
    /// Over.
    Ended {
        /// How.
        end: LandingEnd,
        /// When.
        at: Timestamp,
    },
}

/// How a landing ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LandingEnd {
    /// The branch is what was tested.
    Landed {
        /// The commit that landed.
        commit: Commit,
    },
    /// The branch is not what the test was based on; nothing was done.
    BaseMoved {
        /// Where it is.
        tip: Commit,
    },
    /// Somebody else merged the change, as something else than what was tested, or before it was
    /// seen that the rest of its bundle may land; nothing was done here.
    MergedElsewhere {
        /// Where the branch is.
        tip: Commit,
    },
    /// The forge refuses.
    Refused {
        /// Its words.
        why: String,
    },
    /// The branch became something that was not tested.
    Mismatch {
        /// What landed.
        landed: Commit,
    },
    /// It is in its branch, as its forge says, and nobody can read what the branch became by that;
    /// or it may be there, and was taken out by an operator, since nobody can ask its forge any
    /// more.
    Unproven {
        /// What could not be read.
        why: String,
    },
}

impl LandingEnd {
    /// Returns whether nothing landed by it, and nobody has to look: its change is tested again, or
    /// leaves.
    pub fn is_clean(&self) -> bool {
        matches!(self, Self::BaseMoved { .. } | Self::MergedElsewhere { .. } | Self::Refused { .. })
    }
}

/// What is told of a change of which its queue hears that it is in its branch, and not by this
/// queue.
pub const MERGED_ELSEWHERE: &str = "the change was merged by somebody else";

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_config::Pattern;
    use sluice_config::pipeline::{FilterKind, GitHubFilter, Manager};

    /// G12, Z6.4: a record has a limit, whatever somebody writes into a pipeline.
    #[test]
    fn what_a_landing_asks_fits_into_its_record() {
        let mut pipeline = Pipeline::new("gate", Manager::Dependent);
        let of = |length: usize| Filter {
            connection: "github".into(),
            kind: FilterKind::GitHub(GitHubFilter {
                status: vec![Pattern::new(&"x".repeat(length)).unwrap()],
                ..GitHubFilter::default()
            }),
        };
        pipeline.require = vec![of(20), of(ASKS_BYTES_MAX), of(30)];
        pipeline.reject = (0..200).map(|_| of(200)).collect();
        let asks = Asks::of(&pipeline, Timestamp(1));
        assert_eq!(asks.require, [of(20), of(30)]);
        assert!(!asks.reject.is_empty());
        assert!(serde_json::to_string(&asks).unwrap().len() < ASKS_BYTES_MAX + 1_000);
    }
}
