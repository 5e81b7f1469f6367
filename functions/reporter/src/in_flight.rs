//! Until when a request to a forge may still take effect: a merge or a push whose result was not
//! received.
//!
//! The clocks of two reporters may differ by minutes, so the forge's own clock is used. The forge
//! sends its time with each answer.

use crate::Reporter;
use crate::land::retryable;
use sluice_forge::{ErrorClass, Forge};
use sluice_gate::{Landing, LandingState};
use sluice_model::Timestamp;
use sluice_model::git::BranchKey;
use sluice_runtime::batch::ReconcileError;
use sluice_runtime::record::Record;

/// Seconds that a push or merge may take. With less time left, an attempt sends no further request.
const ASKED_SECONDS: u64 = 30;

/// Seconds for which a request may take effect, by the forge's clock, which has a resolution of one
/// second.
const UNDER_WAY_SECONDS: u64 = 62;

/// Returns the time, by the forge's clock, until which a request sent now may take effect. If the
/// forge's last answer is too old to give its time, `before` is extended instead; `None` if neither
/// is known.
pub(crate) fn in_flight_until(forge: &dyn Forge, before: Option<Timestamp>) -> Option<Timestamp> {
    forge.time().or(before).map(|time| time.plus_seconds(UNDER_WAY_SECONDS))
}

impl Reporter {
    /// Returns whether the time left of an attempt is too short for another request. Other
    /// reporters might consider the attempt over when the request takes effect.
    pub(crate) fn is_nearly_over(&self, until: Timestamp) -> bool {
        until < self.ports.clock.now().plus_seconds(ASKED_SECONDS)
    }

    /// Returns the time, by this function's clock, until which a request of an earlier run may
    /// still take effect; `None` if none can, or the landing is not stored as attempted. `record`
    /// is the landing's record, and `branch` only serves to ask the forge for its time.
    ///
    /// A forge moves the branch first, shows the change as merged a moment later, and may refuse a
    /// second merge in between. The time left is measured by the forge's clock, since the earlier
    /// run may have been on a machine with another clock.
    pub(crate) async fn earlier_attempt_until(
        &self,
        forge: &dyn Forge,
        branch: &BranchKey,
        record: &Record,
        order: &Landing,
    ) -> Result<Option<Timestamp>, ReconcileError> {
        if !matches!(order.state, LandingState::Attempting { .. }) {
            return Ok(None);
        }
        let now = self.ports.clock.now();
        if let Some(until) = order.in_flight_until {
            // Any answer of the forge contains the time.
            if forge.time().is_none()
                && let Err(error) = forge.branch_tip(branch).await
                && error.class() != ErrorClass::Final
            {
                return Err(retryable(error));
            }
            if let Some(time) = forge.time() {
                let left = until.since(time);
                return Ok((left > 0).then(|| now.plus_millis(left)));
            }
        }
        // The intent's due time is when the request can no longer take effect.
        Ok(record.due.as_ref().map(|due| due.at).filter(|at| *at > now))
    }
}
