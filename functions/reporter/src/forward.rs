//! A landing by moving its branch to the very commit that was tested, with those behind it that one
//! move may land as well.
//!
//! The move is a push that names the commit where the branch is, so that it is made as a whole or
//! not at all. Whether it was made the branch tells, of each commit by itself: who comes after a
//! crash looks there, and only then tries again.

use crate::Reporter;
use crate::land::again;
use sluice_forge::{Forge, Verdict};
use sluice_gate::landing::RUN_MAX;
use sluice_gate::{Landing, LandingEnd, LandingState, Trouble};
use sluice_model::Timestamp;
use sluice_model::change::{ChangeFacts, ChangeKey, ChangeStatus};
use sluice_model::git::{BranchKey, Commit, LandingWay, Oid};
use sluice_records::codec::{decode_foreign, get, with_body};
use sluice_records::landing;
use sluice_repos::Kept;
use sluice_runtime::PortError;
use sluice_runtime::batch::LookError;
use sluice_runtime::record::{Due, Expect, Record, Write};

/// Bytes that one push sends at most; what is beyond lands by itself.
const PUSH_BYTES_MAX: usize = 32 << 20;
/// Seconds for which a move may be under way.
const MOVE_SECONDS: u64 = 60;

/// A move of a branch, ready to be made.
pub(crate) struct Move {
    /// Where the branch goes.
    pub(crate) to: Oid,
    /// What its forge lacks of that.
    pub(crate) pack: Vec<u8>,
    /// The landings that it carries out besides the first, in the order of their commits.
    behind: Vec<(Record, Landing)>,
}

impl Move {
    /// Returns the last landing that it carries out: what it makes of the branch.
    pub(crate) fn last<'a>(&'a self, first: &'a Landing) -> &'a Landing {
        self.behind.last().map_or(first, |(_, last)| last)
    }

    /// Returns the intents of those behind the first, each on condition that its landing is as it
    /// was read.
    pub(crate) fn intents(
        &self,
        tip: &Commit,
        now: Timestamp,
        asked_until: Option<Timestamp>,
    ) -> Result<Vec<Write>, PortError> {
        let intent = |(seen, order): &(Record, Landing)| {
            let state = LandingState::Attempting { tip: tip.clone() };
            let trouble = known_again(order);
            let order = Landing { state, tried: true, asked_until, trouble, ..order.clone() };
            under_way(seen, &order, seen.revision, now)
        };
        self.behind.iter().map(intent).collect()
    }

    /// Returns the same landings as they were before their intents: a move that was refused was not
    /// begun, and none is tried again. One that an earlier move was to land may be in its branch
    /// all the same.
    pub(crate) fn withdrawn(&self) -> Result<Vec<Write>, PortError> {
        let withdrawn = |(seen, order): &(Record, Landing)| {
            let pushed = order.pushed || order.is_moving();
            let (way, state) = (LandingWay::Merge, LandingState::Wanted);
            let record = with_body(seen.clone(), &Landing { way, state, pushed, ..order.clone() })?;
            Ok(after(record, seen.revision + 1))
        };
        self.behind.iter().map(withdrawn).collect()
    }

    /// Returns the same landings as those that nobody moves any more, and that a move of before may
    /// land still: each asks its branch, and says of nothing that it did not land while that may be
    /// so.
    pub(crate) fn unanswered(
        &self,
        tip: &Commit,
        now: Timestamp,
        asked_until: Option<Timestamp>,
    ) -> Result<Vec<Write>, PortError> {
        let unanswered = |(seen, order): &(Record, Landing)| {
            let (way, state) = (LandingWay::Merge, LandingState::Attempting { tip: tip.clone() });
            let trouble = known_again(order);
            let order = Landing {
                way,
                state,
                tried: true,
                pushed: true,
                asked_until,
                trouble,
                ..order.clone()
            };
            under_way(seen, &order, seen.revision + 1, now)
        };
        self.behind.iter().map(unanswered).collect()
    }
}

/// What became of a push.
pub(crate) enum Pushed {
    /// It tells how the landing ends.
    Over(LandingEnd),
    /// Nothing was moved: nobody of ours may push there.
    Refused,
    /// Nobody knows, and it is not tried again; it may be made still.
    Unanswered,
}

/// Returns what keeps a landing whose forge is asked for it: its connection is there, so that what
/// becomes of it is known in the end.
fn known_again(order: &Landing) -> Option<Trouble> {
    order.trouble.clone().map(|trouble| Trouble { is_gone: false, ..trouble })
}

/// Returns the write of a landing that a move may carry out, on condition that it is at this
/// revision: it is due when the move must have come to an end.
fn under_way(
    seen: &Record,
    order: &Landing,
    revision: u64,
    now: Timestamp,
) -> Result<Write, PortError> {
    let mut record = with_body(seen.clone(), order)?;
    let at = now.plus_seconds(MOVE_SECONDS);
    record.due = Some(Due { at, poke: landing::poke(order) });
    record.look_at = Some(at);
    Ok(after(record, revision))
}

/// Returns the write of a record on condition that it is at this revision.
fn after(record: Record, revision: u64) -> Write {
    Write::Put {
        record: Record { revision: revision + 1, ..record },
        expect: Expect::Revision(revision),
    }
}

impl Reporter {
    /// Returns how the branch, which is at `tip`, is moved so that a landing is carried out; `None`
    /// where its forge has to merge: it was ordered so, the branch is not at the very commit that
    /// was tested on, or the tested commit is not kept.
    pub(crate) async fn move_of(
        &self,
        order: &Landing,
        tip: &Commit,
    ) -> Result<Option<Move>, LookError> {
        if order.way != LandingWay::FastForward || tip.id != order.base.id {
            return Ok(None);
        }
        let Some(mut kept) = self.kept(order).await? else { return Ok(None) };
        let mut behind: Vec<(Record, Landing)> = Vec::new();
        for next in order.behind.iter().take(RUN_MAX) {
            // One whose record nobody can read keeps nobody ahead from landing either: its own
            // message says what is wrong with it.
            let Ok(Some(record)) =
                get(&self.ports, &landing::key(&next.item, next.generation)).await
            else {
                break;
            };
            let Some(next) = decode_foreign::<Landing>(&record) else { break };
            let before = behind.last().map_or(order, |(_, before)| before);
            let ahead = std::iter::once(order).chain(behind.iter().map(|(_, order)| order));
            let ahead: Vec<ChangeKey> = ahead.map(|order| order.change.key.clone()).collect();
            // One of which nobody can tell waits for its own turn, and its own message asks again:
            // it keeps nobody ahead from landing.
            let may_land = before.may_move_with(&next)
                && matches!(self.may_land_now(&next, &ahead).await, Ok(true));
            if !may_land {
                break;
            }
            let Ok(Some(more)) = self.kept(&next).await else { break };
            if kept.size_bytes() + more.size_bytes() > PUSH_BYTES_MAX {
                break;
            }
            kept = kept.with(more);
            behind.push((record, next));
        }
        let to = behind.last().map_or(order, |(_, last)| last).tested.id.clone();
        match kept.pack() {
            Ok(pack) => Ok(Some(Move { to, pack, behind })),
            Err(error) => {
                tracing::warn!(change = %order.change, %error, "a branch is not moved");
                Ok(None)
            }
        }
    }

    /// Returns what the tested commit adds to the one below it.
    async fn kept(&self, order: &Landing) -> Result<Option<Kept>, LookError> {
        Ok(sluice_repos::kept(
            &self.ports,
            &order.change.key.project,
            &order.base.id,
            &order.tested.id,
        )
        .await?)
    }

    /// Returns whether a landing behind another one may be carried out with it. Where it may not,
    /// or nobody can tell, it waits for its own turn, and what is to be said of it is said then. It
    /// may need those that `ahead` names, which the same move lands.
    async fn may_land_now(&self, order: &Landing, ahead: &[ChangeKey]) -> Result<bool, LookError> {
        if matches!(order.state, LandingState::Ended { .. }) {
            return Ok(false);
        }
        let forge = self.forge(&order.change.key.connection)?;
        let facts = match forge.read_change(&order.change.key).await {
            Ok(facts) => facts,
            Err(error) if error.verdict() == Verdict::Final => return Ok(false),
            Err(error) => return Err(again(error)),
        };
        let needs = order.needs.iter().chain(ahead).cloned().collect();
        let with_them = Landing { needs, ..order.clone() };
        Ok(is_as_tested(order, &facts)
            && self.missing(order, &facts).is_none()
            && self.unmet_need(&with_them, &facts).await?.is_none())
    }

    /// Returns whether the tested commit is in its branch: whether a move that was begun was made.
    pub(crate) async fn is_in(
        &self,
        forge: &dyn Forge,
        order: &Landing,
        branch: &BranchKey,
    ) -> Result<bool, LookError> {
        if order.tested.id == order.base.id {
            return Ok(false); // What adds nothing to its branch was never moved there, and is in it all the same.
        }
        match forge.branch_tip(branch).await {
            Ok(tip) if tip.id == order.tested.id => Ok(true),
            Ok(_) => match forge.contains(branch, &order.tested.id).await {
                Err(error) if error.verdict() == Verdict::Final => Ok(false),
                found => found.map_err(again),
            },
            Err(error) if error.verdict() == Verdict::Final => Ok(false),
            Err(error) => Err(again(error)),
        }
    }
}

/// Returns whether a change is what was tested, and still open.
pub(crate) fn is_as_tested(order: &Landing, facts: &ChangeFacts) -> bool {
    facts.status == ChangeStatus::Open
        && facts.change.head == order.change.head
        && facts.change.branch == order.change.branch
}
