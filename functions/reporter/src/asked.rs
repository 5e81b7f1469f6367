//! Until when what a forge was asked for may be under way: a merge or a move of a branch that
//! nobody lived to see the end of.
//!
//! Whoever asks and whoever looks later may have clocks that are minutes apart. Their forge has
//! one, and tells it with each answer.

use crate::Reporter;
use crate::land::again;
use sluice_forge::{Forge, Verdict};
use sluice_gate::{Landing, LandingState};
use sluice_model::Timestamp;
use sluice_model::git::BranchKey;
use sluice_runtime::batch::LookError;
use sluice_runtime::record::Record;

/// Seconds for which a push or a merge may be under way before anybody says that it came to
/// nothing: while less is left of an attempt, none is asked for.
const ASKED_SECONDS: u64 = 30;

/// Seconds for which what a forge is asked for may be under way, by the forge's clock, which its
/// answers tell to the second.
const UNDER_WAY_SECONDS: u64 = 62;

/// Returns until when what a forge is asked for now may be under way, by its own clock. Where its
/// last answer came too long ago to tell the time, it is so long after what an attempt that lasts
/// still was asked for.
pub(crate) fn asked_until(forge: &dyn Forge, before: Option<Timestamp>) -> Option<Timestamp> {
    forge.time().or(before).map(|time| time.plus_seconds(UNDER_WAY_SECONDS))
}

impl Reporter {
    /// Returns whether so little is left of an attempt that nothing more is asked for: it might be
    /// made when others take it for over.
    pub(crate) fn is_too_late(&self, until: Timestamp) -> bool {
        until < self.ports.clock.now().plus_seconds(ASKED_SECONDS)
    }

    /// Returns until when, by our clock, a merge may be under way that an earlier look asked for
    /// and did not live to see the end of. A forge moves the branch first, shows the change as
    /// merged a moment later, and may refuse to merge it twice in between. How much is left the
    /// forge's clock tells: whoever asked may have had another one than we.
    pub(crate) async fn own_merge_until(
        &self,
        forge: &dyn Forge,
        branch: &BranchKey,
        record: &Record,
        order: &Landing,
    ) -> Result<Option<Timestamp>, LookError> {
        if !matches!(order.state, LandingState::Attempting { .. }) {
            return Ok(None);
        }
        let now = self.ports.clock.now();
        if let Some(until) = order.asked_until {
            // Whatever it answers, it says when.
            if forge.time().is_none()
                && let Err(error) = forge.branch_tip(branch).await
                && error.verdict() != Verdict::Final
            {
                return Err(again(error));
            }
            if let Some(time) = forge.time() {
                let left = until.since(time);
                return Ok((left > 0).then(|| now.plus_millis(left)));
            }
        }
        // The intent is due when the forge must have come to an end.
        Ok(record.due.as_ref().map(|due| due.at).filter(|at| *at > now))
    }
}
