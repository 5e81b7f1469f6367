//! The result of a landing: whether the merged tree is the tested one.
//!
//! Where a push may have moved the branch, the branch is searched for the tested commit: of several
//! changes merged by one push, the forge names only the last commit. Otherwise the commit that the
//! forge names is compared. A mismatch is reported only once no push can be in flight. A merge by a
//! third party is never a mismatch.

use crate::Reporter;
use crate::land::{LandingContext, refused, retry_in_flight, retryable};
use sluice_forge::{ErrorClass, Forge, ForgeError};
use sluice_gate::item::cut;
use sluice_gate::landing::TROUBLE_BYTES_MAX;
use sluice_gate::{Landing, LandingEnd, LandingState};
use sluice_model::Timestamp;
use sluice_model::change::ChangeFacts;
use sluice_model::git::{BranchKey, Commit, Oid};
use sluice_records::codec::{decode, get, with_body};
use sluice_records::landing;
use sluice_runtime::batch::ReconcileError;
use sluice_runtime::{CellCommit as Write, cell};

/// Seconds for which a forge may refuse to show the commit of a merge that it reports. Forges show
/// some facts late. After that the landing ends as unproven, since it blocks its branch meanwhile.
const UNREAD_SECONDS: u64 = 300;

impl Reporter {
    /// Returns the result of a landing whose change is merged according to the forge: that of a
    /// third party's merge, or whether the commit that the forge names, otherwise the tip of the
    /// branch, has the tested tree. A retry while a push may be in flight and explain a mismatch.
    pub(crate) async fn end_of_merged(
        &self,
        begun: &LandingContext<'_>,
        order: &Landing,
        facts: &ChangeFacts,
    ) -> Result<LandingEnd, ReconcileError> {
        if is_foreign_merge(order) {
            return end_of_foreign_merge(begun, order, facts).await;
        }
        let end = match &facts.merge_commit {
            Some(commit) => self.verify_commit(begun.forge, order, begun.branch, commit).await?,
            None => self.verify_tip(begun.forge, order, begun.branch).await?,
        };
        self.recheck_branch(begun, order, end).await
    }

    /// Checks a mismatch again where a push may have moved the branch; another result is returned
    /// unchanged. If the branch contains the tested commit, returns the result of checking that
    /// commit. Otherwise returns a retry while a push may be in flight, and then the mismatch.
    ///
    /// After a late push the forge names the push's last commit, which may be another change's.
    pub(crate) async fn recheck_branch(
        &self,
        begun: &LandingContext<'_>,
        order: &Landing,
        end: LandingEnd,
    ) -> Result<LandingEnd, ReconcileError> {
        if !matches!(end, LandingEnd::Mismatch { .. }) {
            return Ok(end);
        }
        // An earlier landing of the item may have pushed.
        let was_withdrawn = order.merge_attempted
            && matches!(order.state, LandingState::Ordered)
            && order.mode.keeps_head();
        let may_be_moved = begun.may_have_been_pushed || was_withdrawn;
        if may_be_moved && self.contains_tested(begun.forge, order, begun.branch).await? {
            return self.verify_commit(begun.forge, order, begun.branch, &order.tested.id).await;
        }
        if begun.push_in_flight() {
            return Err(retry_in_flight("it was merged as something else".to_owned(), order));
        }
        Ok(end)
    }

    /// Returns that the landing landed if the tree of the commit `landed` is the tested one,
    /// otherwise a mismatch. The branch may have moved on since. If the forge has refused to show
    /// the commit for [`UNREAD_SECONDS`], the result is unproven; before that, a retry, and the
    /// landing's record stores since when. Any other error of the forge is only a retry.
    pub(crate) async fn verify_commit(
        &self,
        forge: &dyn Forge,
        order: &Landing,
        branch: &BranchKey,
        landed: &Oid,
    ) -> Result<LandingEnd, ReconcileError> {
        match forge.read_commit(&branch.project, landed).await {
            Ok(facts) => Ok(compared(order, facts.commit)),
            Err(error) => self.handle_unverifiable(forge, order, error).await,
        }
    }

    /// Returns that the landing landed if the tree at the tip of the branch is the tested one,
    /// otherwise a mismatch. If the forge has refused to show the tip for [`UNREAD_SECONDS`], the
    /// result is unproven; before that, a retry, and the landing's record stores since when. Any
    /// other error of the forge is only a retry.
    async fn verify_tip(
        &self,
        forge: &dyn Forge,
        order: &Landing,
        branch: &BranchKey,
    ) -> Result<LandingEnd, ReconcileError> {
        match forge.branch_tip(branch).await {
            Ok(tip) => Ok(compared(order, tip)),
            Err(error) => self.handle_unverifiable(forge, order, error).await,
        }
    }

    /// Handles an `error` of the forge about the merge commit. One that is not final is a retry.
    /// With a final one, returns an unproven landing if the commit has been missing for
    /// [`UNREAD_SECONDS`], and a retry before. Stores in the landing's record since when it is
    /// missing, by the forge's clock if that is known.
    async fn handle_unverifiable(
        &self,
        forge: &dyn Forge,
        order: &Landing,
        error: ForgeError,
    ) -> Result<LandingEnd, ReconcileError> {
        if error.class() != ErrorClass::Final {
            return Err(retryable(error));
        }
        let now = forge.time().unwrap_or_else(|| self.ports.clock.now());
        match order.unverifiable_since {
            Some(since) if since.plus_seconds(UNREAD_SECONDS) <= now => {
                return Ok(LandingEnd::Unproven {
                    why: cut(&error.to_string(), TROUBLE_BYTES_MAX),
                });
            }
            Some(_) => {}
            None => self.record_unverifiable(order, now).await?,
        }
        Err(retryable(error))
    }

    /// Stores since when the forge does not show the merge commit, unless that is stored already or
    /// the landing has ended.
    async fn record_unverifiable(
        &self,
        order: &Landing,
        now: Timestamp,
    ) -> Result<(), ReconcileError> {
        let Some(head) = get(&self.ports, &landing::key(&order.item, order.generation)).await?
        else {
            return Ok(());
        };
        let stored: Landing = decode(&head)?;
        if stored.unverifiable_since.is_some() || matches!(stored.state, LandingState::Ended { .. })
        {
            return Ok(());
        }
        let due = head.due.clone();
        let head = with_body(head, &Landing { unverifiable_since: Some(now), ..stored })?;
        // If a concurrent writer was faster, it continues the landing.
        cell::commit(&self.ports, Write { head, others: Vec::new(), wakeups: Vec::new(), due })
            .await?;
        Ok(())
    }
}

/// Returns the result of a landing whose change a third party merged: a person, or another gate
/// with the same change. It landed if the merge commit or the tip of the branch has the tested
/// tree; otherwise it was merged elsewhere, or is refused if the forge does not show the branch.
/// For the first member of a bundle it never counts as landed: the later members were not checked.
///
/// The branch was or will be tested there, so another tree is no alarm. The result also notifies
/// the queue that the change is merged, which it may not get to know otherwise.
pub(crate) async fn end_of_foreign_merge(
    begun: &LandingContext<'_>,
    order: &Landing,
    facts: &ChangeFacts,
) -> Result<LandingEnd, ReconcileError> {
    let is_alone = order.later_members.is_empty();
    if let Some(commit) = facts.merge_commit.as_ref().filter(|_| is_alone) {
        match begun.forge.read_commit(&begun.branch.project, commit).await {
            Ok(read) if read.commit.tree == order.tested.tree => {
                return Ok(LandingEnd::Landed { commit: read.commit });
            }
            Err(error) if error.class() != ErrorClass::Final => return Err(retryable(error)),
            Ok(_) | Err(_) => {}
        }
    }
    match begun.forge.branch_tip(begun.branch).await {
        Ok(tip) if is_alone && tip.tree == order.tested.tree => {
            Ok(LandingEnd::Landed { commit: tip })
        }
        Ok(tip) => Ok(LandingEnd::MergedElsewhere { tip }),
        Err(error) => refused(error),
    }
}

/// Returns whether a merged change was merged by a third party, because Sluice never asked a forge
/// to merge it. Always false for later bundle members: a part of the bundle is merged, so an
/// operator has to check.
fn is_foreign_merge(order: &Landing) -> bool {
    matches!(order.state, LandingState::Ordered)
        && !order.merge_attempted
        && !order.has_unanswered_push
        && order.requirements.is_some()
}

/// Returns a landed result if the merged tree is the tested one, otherwise a mismatch.
fn compared(order: &Landing, landed: Commit) -> LandingEnd {
    if landed.tree == order.tested.tree {
        LandingEnd::Landed { commit: landed }
    } else {
        LandingEnd::Mismatch { landed }
    }
}
