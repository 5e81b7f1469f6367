//! What became of a landing: whether what is in its branch is what was tested.
//!
//! Where a push may have moved the branch, the branch itself is asked, commit by commit: of several
//! changes that one push landed their forge names the last commit. Else the commit counts that the
//! forge names. A mismatch is told only once no push may be under way, and what somebody else
//! merged is none.

use crate::Reporter;
use crate::land::{Begun, again, refused, under_way};
use sluice_forge::{Forge, ForgeError, Verdict};
use sluice_gate::item::cut;
use sluice_gate::landing::TROUBLE_BYTES_MAX;
use sluice_gate::{Landing, LandingEnd, LandingState};
use sluice_model::Timestamp;
use sluice_model::change::ChangeFacts;
use sluice_model::git::{BranchKey, Commit, Oid};
use sluice_records::codec::{decode, get, with_body};
use sluice_records::landing;
use sluice_runtime::batch::LookError;
use sluice_runtime::{Commit as Write, cell};

/// Seconds for which a forge may refuse to show what a landing made of its branch, which it says
/// was made. Forges show some things late; after that nobody waits any longer, for while a landing
/// is attempted its branch is everybody's to wait for.
const UNREAD_SECONDS: u64 = 300;

impl Reporter {
    /// Returns how a landing ends whose change its forge shows as merged, by us or by somebody
    /// else.
    pub(crate) async fn end_of_merged(
        &self,
        begun: &Begun<'_>,
        order: &Landing,
        facts: &ChangeFacts,
    ) -> Result<LandingEnd, LookError> {
        if is_others(order) {
            return end_of_others(begun, order, facts).await;
        }
        let end = match &facts.merge_commit {
            Some(commit) => self.judge(begun.forge, order, begun.branch, commit).await?,
            None => self.judge_tip(begun.forge, order, begun.branch).await?,
        };
        self.or_moved(begun, order, end).await
    }

    /// Returns how a landing ends whose forge names another commit than the tested one. Of a move
    /// that was asked for before, and came late, it names the last commit, which may be another
    /// change's; the branch holds the tested one then, and may show it later.
    pub(crate) async fn or_moved(
        &self,
        begun: &Begun<'_>,
        order: &Landing,
        end: LandingEnd,
    ) -> Result<LandingEnd, LookError> {
        if !matches!(end, LandingEnd::Mismatch { .. }) {
            return Ok(end);
        }
        // Records of an earlier version do not say that a push was sent for them.
        let was_withdrawn =
            order.tried && matches!(order.state, LandingState::Wanted) && order.mode.keeps_head();
        let may_be_moved = begun.may_be_moved || was_withdrawn;
        if may_be_moved && self.is_in(begun.forge, order, begun.branch).await? {
            return self.judge(begun.forge, order, begun.branch, &order.tested.id).await;
        }
        if begun.may_be_moving() {
            return Err(under_way("it was merged as something else".to_owned(), order));
        }
        Ok(end)
    }

    /// Compares what landed with what was tested. The commit's own tree decides; the branch may
    /// have moved on since.
    pub(crate) async fn judge(
        &self,
        forge: &dyn Forge,
        order: &Landing,
        branch: &BranchKey,
        landed: &Oid,
    ) -> Result<LandingEnd, LookError> {
        match forge.read_commit(&branch.project, landed).await {
            Ok(facts) => Ok(compared(order, facts.commit)),
            Err(error) => self.unread(forge, order, error).await,
        }
    }

    async fn judge_tip(
        &self,
        forge: &dyn Forge,
        order: &Landing,
        branch: &BranchKey,
    ) -> Result<LandingEnd, LookError> {
        match forge.branch_tip(branch).await {
            Ok(tip) => Ok(compared(order, tip)),
            Err(error) => self.unread(forge, order, error).await,
        }
    }

    /// Returns how a landing ends that was made, as its forge says, and that cannot be judged:
    /// unproven, once the forge has said for long that it will not show what landed. Since when it
    /// says so stands with the landing, whoever looks, by its own clock where it tells the time.
    async fn unread(
        &self,
        forge: &dyn Forge,
        order: &Landing,
        error: ForgeError,
    ) -> Result<LandingEnd, LookError> {
        if error.verdict() != Verdict::Final {
            return Err(again(error));
        }
        let now = forge.time().unwrap_or_else(|| self.ports.clock.now());
        match order.unread_since {
            Some(since) if since.plus_seconds(UNREAD_SECONDS) <= now => {
                return Ok(LandingEnd::Unproven {
                    why: cut(&error.to_string(), TROUBLE_BYTES_MAX),
                });
            }
            Some(_) => {}
            None => self.note_unread(order, now).await?,
        }
        Err(again(error))
    }

    async fn note_unread(&self, order: &Landing, now: Timestamp) -> Result<(), LookError> {
        let Some(head) = get(&self.ports, &landing::key(&order.item, order.generation)).await?
        else {
            return Ok(());
        };
        let known: Landing = decode(&head)?;
        if known.unread_since.is_some() || matches!(known.state, LandingState::Ended { .. }) {
            return Ok(());
        }
        let due = head.due.clone();
        let head = with_body(head, &Landing { unread_since: Some(now), ..known })?;
        // Losing means that somebody else carries it on.
        cell::commit(&self.ports, Write { head, others: Vec::new(), pokes: Vec::new(), due })
            .await?;
        Ok(())
    }
}

/// Returns how a landing ends whose change somebody else merged: a person, or another gate that has
/// it too. What its branch is by now was tested or is to be; nothing of this queue's landed
/// untested, so that neither another tree nor one that nobody shows is an alarm. That it is merged
/// its queue may hear of nobody else, whose news was lost, or was told while the forge showed the
/// change as it was before.
///
/// Of the first of a bundle it is no landing, whatever it made of the branch: of those that would
/// follow nobody has seen that they may.
pub(crate) async fn end_of_others(
    begun: &Begun<'_>,
    order: &Landing,
    facts: &ChangeFacts,
) -> Result<LandingEnd, LookError> {
    let is_alone = order.together.is_empty();
    if let Some(commit) = facts.merge_commit.as_ref().filter(|_| is_alone) {
        match begun.forge.read_commit(&begun.branch.project, commit).await {
            Ok(read) if read.commit.tree == order.tested.tree => {
                return Ok(LandingEnd::Landed { commit: read.commit });
            }
            Err(error) if error.verdict() != Verdict::Final => return Err(again(error)),
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

/// Returns whether a change that shows as merged was merged by somebody else: no forge was ever
/// asked for it here. What lands behind others of its bundle is not asked about: half of that is in
/// its branches, and a person has to look.
fn is_others(order: &Landing) -> bool {
    matches!(order.state, LandingState::Wanted)
        && !order.tried
        && !order.pushed
        && order.asks.is_some()
}

fn compared(order: &Landing, landed: Commit) -> LandingEnd {
    if landed.tree == order.tested.tree {
        LandingEnd::Landed { commit: landed }
    } else {
        LandingEnd::Mismatch { landed }
    }
}
