//! Prepares merging by a push, which [`crate::landing_run`] makes: it fast-forwards the branch to the
//! tested commit, together with landings behind it that the same push may merge.
//!
//! The push names the commit that the branch is at, so it is made completely or not at all. The
//! branch shows whether it was made, for each commit separately. A retry reads the branch before it
//! pushes again.

use crate::Reporter;
use crate::land::retryable;
use sluice_forge::{ErrorClass, Forge};
use sluice_gate::landing::LANDING_RUN_MAX;
use sluice_gate::{Attempt, FailedPush, Landing, LandingState};
use sluice_model::Timestamp;
use sluice_model::change::ChangeKey;
use sluice_model::git::{BranchKey, LandingMethod, Oid};
use sluice_records::codec::{decode_or_log, get, with_body};
use sluice_records::landing;
use sluice_repos::CommitDelta;
use sluice_runtime::PortError;
use sluice_runtime::batch::ReconcileError;
use sluice_runtime::record::{Due, Expect, Record, Write};

/// The most bytes of one push. Further changes are merged by further pushes.
const PUSH_BYTES_MAX: usize = 32 << 20;
/// Seconds for which a push may take effect.
const MOVE_SECONDS: u64 = 60;

/// A prepared push to a branch.
pub(crate) struct BranchPush {
    /// The new tip of the branch.
    pub(crate) to: Oid,
    /// The pack with the objects that the forge lacks.
    pub(crate) pack: Vec<u8>,
    /// The landings that it merges in addition to the first, in the order of their commits.
    behind: Vec<(Record, Landing)>,
}

impl BranchPush {
    /// Returns the last of the landings that one push merges; its commit becomes the tip of the
    /// branch. It is `first` if there are no others.
    pub(crate) fn last<'a>(&'a self, first: &'a Landing) -> &'a Landing {
        self.behind.last().map_or(first, |(_, last)| last)
    }

    /// Returns the writes that mark the landings behind the first as pushed, each on condition of its
    /// revision; none if there are no such landings. The caller commits them together with the first
    /// landing's intent, before the push.
    pub(crate) fn intents(
        &self,
        attempt: &Attempt,
        now: Timestamp,
    ) -> Result<Vec<Write>, PortError> {
        let intent = |(seen, order): &(Record, Landing)| {
            let order = order.clone().with_intent(LandingMethod::FastForward, attempt.clone());
            under_way(seen, &order, seen.revision, now)
        };
        self.behind.iter().map(intent).collect()
    }

    /// Returns the writes that reset the landings behind the first after the forge refused the
    /// push, so that the forge merges each of them. They hold only if the writes of
    /// [`Self::intents`] were committed and nothing since. A landing that an earlier push covered
    /// is marked as having an unanswered push, because that one may still be in its branch.
    pub(crate) fn withdrawn(&self) -> Result<Vec<Write>, PortError> {
        let withdrawn = |(seen, order): &(Record, Landing)| {
            let pushed = order.may_have_been_pushed();
            let (way, state) = (LandingMethod::Merge, LandingState::Ordered);
            let record = with_body(
                seen.clone(),
                &Landing { method: way, state, has_unanswered_push: pushed, ..order.clone() },
            )?;
            Ok(put_if_revision(record, seen.revision + 1))
        };
        self.behind.iter().map(withdrawn).collect()
    }

    /// Returns the writes that mark the landings behind the first after a push without an answer.
    /// They hold only if the writes of [`Self::intents`] were committed and nothing since.
    ///
    /// The forge merges each of them, but the push may still take effect: each checks its branch
    /// and does not report a failure while that is possible.
    pub(crate) fn unanswered(
        &self,
        attempt: &Attempt,
        now: Timestamp,
    ) -> Result<Vec<Write>, PortError> {
        let unanswered = |(seen, order): &(Record, Landing)| {
            let order = order.clone().with_intent(LandingMethod::FastForward, attempt.clone());
            let order = order.with_push_replaced(FailedPush::Unanswered, attempt.clone());
            under_way(seen, &order, seen.revision + 1, now)
        };
        self.behind.iter().map(unanswered).collect()
    }
}

/// Returns the write of the landing `order` that is being merged, on condition that its stored
/// revision is `revision`. `seen` is its record as it was read. It is due when the push can no
/// longer take effect.
fn under_way(
    seen: &Record,
    order: &Landing,
    revision: u64,
    now: Timestamp,
) -> Result<Write, PortError> {
    let mut record = with_body(seen.clone(), order)?;
    let at = now.plus_seconds(MOVE_SECONDS);
    record.due = Some(Due { at, wakeup: landing::wakeup(order) });
    record.sweep_at = Some(at);
    Ok(put_if_revision(record, revision))
}

/// Returns the write of a record on condition that its stored revision is still `revision`.
fn put_if_revision(record: Record, revision: u64) -> Write {
    Write::Put {
        record: Record { revision: revision + 1, ..record },
        expect: Expect::Revision(revision),
    }
}

impl Reporter {
    /// Prepares the push that fast-forwards a branch from the base of a landing to its tested commit,
    /// and further to at most [`LANDING_RUN_MAX`] landings behind it, up to the first that may not
    /// be merged now, cannot be read or does not fit. Neither pushes nor stores anything. `None` if
    /// the forge has to merge: the commits are not stored, or the pack cannot be built. The caller
    /// has read that the branch is at the base.
    pub(crate) async fn prepare_push(
        &self,
        order: &Landing,
    ) -> Result<Option<BranchPush>, ReconcileError> {
        let Some(mut delta) = self.stored_delta(order).await? else { return Ok(None) };
        let mut behind: Vec<(Record, Landing)> = Vec::new();
        for next in order.followers.iter().take(LANDING_RUN_MAX) {
            // An unreadable record must not block the landings ahead; its own message reports the
            // error.
            let Ok(Some(record)) =
                get(&self.ports, &landing::key(&next.item, next.generation)).await
            else {
                break;
            };
            let Some(next) = decode_or_log::<Landing>(&record) else { break };
            let before = behind.last().map_or(order, |(_, before)| before);
            let ahead = std::iter::once(order).chain(behind.iter().map(|(_, order)| order));
            let ahead: Vec<ChangeKey> = ahead.map(|order| order.change.key.clone()).collect();
            // A landing that cannot be checked now is left to its own message; it must not block
            // those ahead.
            let may_land = before.may_move_with(&next)
                && matches!(self.may_land_now(&next, &ahead).await, Ok(true));
            if !may_land {
                break;
            }
            let Ok(Some(more)) = self.stored_delta(&next).await else { break };
            if delta.size_bytes() + more.size_bytes() > PUSH_BYTES_MAX {
                break;
            }
            delta = delta.with(more);
            behind.push((record, next));
        }
        let to = behind.last().map_or(order, |(_, last)| last).tested.id.clone();
        match delta.pack() {
            Ok(pack) => Ok(Some(BranchPush { to, pack, behind })),
            Err(error) => {
                tracing::warn!(change = %order.change, %error, "cannot prepare a push; the forge merges instead");
                Ok(None)
            }
        }
    }

    /// Reads the pack that the tested commit adds to its base; `None` if it is not stored.
    async fn stored_delta(&self, order: &Landing) -> Result<Option<CommitDelta>, ReconcileError> {
        Ok(sluice_repos::load_commit_delta(
            &self.ports,
            &order.change.key.project,
            &order.base.id,
            &order.tested.id,
        )
        .await?)
    }

    /// Returns whether a landing may be merged by the same push as the changes in `ahead`, which
    /// count as merged. False if it has ended, its change is not as tested, misses a requirement or
    /// depends on an unmerged change, or if the forge refuses to show it; its own message merges it
    /// later.
    async fn may_land_now(
        &self,
        order: &Landing,
        ahead: &[ChangeKey],
    ) -> Result<bool, ReconcileError> {
        if matches!(order.state, LandingState::Ended { .. }) {
            return Ok(false);
        }
        let forge = self.forge(&order.change.key.connection)?;
        let facts = match forge.read_change(&order.change.key).await {
            Ok(facts) => facts,
            Err(error) if error.class() == ErrorClass::Final => return Ok(false),
            Err(error) => return Err(retryable(error)),
        };
        let needs: Vec<ChangeKey> = order.needs.iter().chain(ahead).cloned().collect();
        let now = self.ports.clock.now();
        Ok(order.is_as_tested(&facts)
            && order.missing_requirement(&facts, now).is_none()
            && self.dependency_refusal(&order.change.key, &needs, &facts).await?.is_none())
    }

    /// Asks the forge whether the branch contains the tested commit, which means that a push was
    /// made. False for a change without content, and if the forge's error is final.
    pub(crate) async fn contains_tested(
        &self,
        forge: &dyn Forge,
        order: &Landing,
        branch: &BranchKey,
    ) -> Result<bool, ReconcileError> {
        if order.tested.id == order.base.id {
            return Ok(false); // A change without content is always contained and was never pushed.
        }
        match forge.branch_tip(branch).await {
            Ok(tip) if tip.id == order.tested.id => Ok(true),
            Ok(_) => match forge.contains(branch, &order.tested.id).await {
                Err(error) if error.class() == ErrorClass::Final => Ok(false),
                found => found.map_err(retryable),
            },
            Err(error) if error.class() == ErrorClass::Final => Ok(false),
            Err(error) => Err(retryable(error)),
        }
    }
}
