//! Reviewers who withdraw approvals of changes that are in the gate or landing, and may approve
//! them again.

use super::{Actors, open};
use crate::oracle::Oracle;
use crate::random::Random;
use crate::reviews::NEEDED;
use crate::scenarios::Scenario;
use crate::site::Site;
use crate::story::Story;
use sluice_model::Timestamp;
use sluice_model::change::ChangeKey;
use sluice_runtime::Clock as _;

/// The most approvals that are withdrawn at one site.
const INTENTIONS_MAX: u64 = 8;
/// How many of 1000 occasions lead to a withdrawal.
const TEMPTED_PER_MILLE: u64 = 350;
/// How many of 1000 approvals are withdrawn by a new revision.
const REVISED_PER_MILLE: u64 = 200;
/// How many of 1000 withdrawn approvals are given again.
const AGAIN_PER_MILLE: u64 = 700;

/// How many of 1000 approvals at a Gerrit begin with one of the votes that are needed.
const HALF_PER_MILLE: u64 = 250;

/// How many of 1000 changes are urgent in [`Scenario::TwoGates`].
const URGENT_PER_MILLE: u64 = 400;

/// What reviewers intend to do, and when; also draws details of other actions.
pub(super) struct Intentions {
    /// Draws the intentions.
    random: Random,
    /// How many withdrawals were drawn.
    count: u64,
    /// The intentions that are to come, with their changes.
    to_come: Vec<(Timestamp, ChangeKey, Intention)>,
}

/// Something that a reviewer will do.
#[derive(Debug, Clone, Copy)]
enum Intention {
    /// Withdraw the approval.
    Withdraw,
    /// Approve the change again.
    ApproveAgain,
}

impl Intentions {
    /// Returns the intentions of a seed; there are none yet.
    pub(super) fn new(seed: u64) -> Self {
        Self { random: Random::new(seed, 9), count: 0, to_come: Vec::new() }
    }

    /// Draws how many more commits a change gets.
    pub(super) fn more_commits(&mut self) -> u64 {
        self.random.between(0, 4).saturating_sub(2)
    }

    /// Draws the edit of another commit: a path and its new text.
    pub(super) fn commit<'a>(&mut self, paths: &[&'a str], at: u64) -> (&'a str, String) {
        let text = *self.random.one(&["one", "other", "broken", "sloppy"]).unwrap_or(&"one");
        (self.random.one(paths).copied().unwrap_or("f0"), format!("{text} {at}"))
    }

    /// Draws the votes that approve a Gerrit change. The last vote on each label is the needed one.
    pub(super) fn votes(&mut self) -> Vec<(&'static str, i64)> {
        let mut votes = NEEDED.to_vec();
        if self.random.per_mille(300) {
            votes.reverse();
        }
        if self.random.per_mille(300) {
            let (label, _) = NEEDED[0];
            votes.insert(0, (label, *self.random.one(&[1, -1, -2]).unwrap_or(&1)));
        }
        votes
    }

    /// Draws whether only one of the needed votes is given.
    pub(super) fn is_half(&mut self) -> bool {
        self.random.per_mille(HALF_PER_MILLE)
    }

    /// Draws one of the needed votes.
    pub(super) fn half(&mut self) -> (&'static str, i64) {
        *self.random.one(&NEEDED).unwrap_or(&NEEDED[0])
    }

    /// Draws a vote that ends the approval of a change: a lower value, or 0 for none.
    pub(super) fn withdrawing_vote(&mut self) -> (&'static str, i64) {
        let [(review, _), (go, _)] = NEEDED;
        *self
            .random
            .one(&[(review, 0), (review, 1), (review, -2), (go, 0), (go, -1)])
            .unwrap_or(&(go, 0))
    }

    /// Draws whether a new patchset keeps the parent change of the previous patchset.
    pub(super) fn stays_in_chain(&mut self) -> bool {
        self.random.per_mille(700)
    }

    /// Draws whether an action toggles work in progress; otherwise it changes the topic.
    pub(super) fn toggles_wip(&mut self) -> bool {
        self.random.per_mille(400)
    }

    /// Draws whether a change leaves its topic.
    pub(super) fn leaves_topic(&mut self) -> bool {
        self.random.per_mille(400)
    }

    /// Draws one of these changes. Returns `None` if there are none.
    pub(super) fn one_of<'a>(&mut self, of: &'a [ChangeKey]) -> Option<&'a ChangeKey> {
        self.random.one(of)
    }

    /// Draws whether a change is urgent.
    pub(super) fn is_urgent(&mut self) -> bool {
        self.random.per_mille(URGENT_PER_MILLE)
    }
}

impl Actors {
    /// Returns when the next withdrawal, new approval or revert is due. Returns `None` if there is
    /// none.
    pub fn next_intention_at(&self) -> Option<Timestamp> {
        self.intentions.to_come.iter().map(|(at, ..)| *at).chain(self.reverts.next_at()).min()
    }

    /// Draws whether the approval of a change will be withdrawn, and when within `millis_max`.
    pub fn consider_withdrawal(&mut self, change: &ChangeKey, millis_max: u64, now: Timestamp) {
        let intentions = &mut self.intentions;
        let may = self.shape.has(Scenario::WithdrawnApprovals) && intentions.count < INTENTIONS_MAX;
        if may && intentions.random.per_mille(TEMPTED_PER_MILLE) {
            intentions.count += 1;
            let at = now.plus_millis(intentions.random.between(0, millis_max));
            intentions.to_come.push((at, change.clone(), Intention::Withdraw));
        }
    }

    /// Acts on the first intention that is due, or else on the first revert that is due.
    pub fn act_on_intention(&mut self, site: &Site, oracle: &mut Oracle, story: &mut Story) {
        let now = site.world.now();
        let Some(at) = self.intentions.to_come.iter().position(|(at, ..)| *at <= now) else {
            return self.revert_due(site, oracle, story);
        };
        let (_, change, intention) = self.intentions.to_come.swap_remove(at);
        let Some(revision) = open(site, &change) else { return };
        match intention {
            Intention::Withdraw if self.intentions.random.per_mille(REVISED_PER_MILLE) => {
                let tenant = self
                    .proposed
                    .iter()
                    .find(|(proposed, _)| *proposed == change)
                    .map_or(0, |(_, of)| *of);
                self.upload(&change, tenant, 10 + self.intentions.count, site, oracle, story);
            }
            Intention::Withdraw => {
                story.log(
                    now,
                    format!("grace reconsiders and withdraws her approval of {revision}"),
                );
                self.withdraw_approval(&change, site, oracle);
            }
            Intention::ApproveAgain => {
                story.log(now, format!("grace approves {revision} again"));
                self.give_approval(&revision, site, oracle);
                return;
            }
        }
        let intentions = &mut self.intentions;
        if intentions.random.per_mille(AGAIN_PER_MILLE) {
            let most = *intentions.random.one(&[50, 3_000, 60_000]).unwrap_or(&50);
            let at = now.plus_millis(intentions.random.between(0, most));
            intentions.to_come.push((at, change, Intention::ApproveAgain));
        }
    }
}
