//! People who think again about what stands in the gate, is tested or lands: they take approvals
//! back, and may give them again.

use super::{People, open};
use crate::oracle::Oracle;
use crate::plays::Play;
use crate::random::Random;
use crate::reviews::NEEDED;
use crate::site::Site;
use crate::story::Story;
use sluice_model::Timestamp;
use sluice_model::change::ChangeKey;
use sluice_runtime::Clock as _;

/// Times that somebody thinks again at one site.
const THOUGHTS_MAX: u64 = 8;
/// Occasions out of 1000 at which somebody does.
const TEMPTED_PER_MILLE: u64 = 350;
/// Approvals out of 1000 that are taken back by a new revision.
const REVISED_PER_MILLE: u64 = 200;
/// Approvals out of 1000 that are given again.
const AGAIN_PER_MILLE: u64 = 700;

/// Times out of 1000 that somebody has only a part of what approves a change to say.
const HALF_PER_MILLE: u64 = 250;

/// Changes out of 1000 that are urgent, where there is a pipeline for such.
const URGENT_PER_MILLE: u64 = 400;

/// What people will think of, and when.
pub(super) struct Thoughts {
    random: Random,
    count: u64,
    to_come: Vec<(Timestamp, ChangeKey, Thought)>,
}

#[derive(Debug, Clone, Copy)]
enum Thought {
    No,
    YesAfterAll,
}

impl Thoughts {
    pub(super) fn new(seed: u64) -> Self {
        Self { random: Random::new(seed, 9), count: 0, to_come: Vec::new() }
    }

    /// Draws how many commits more a change has.
    pub(super) fn more_commits(&mut self) -> u64 {
        self.random.between(0, 4).saturating_sub(2)
    }

    /// Draws what another commit edits.
    pub(super) fn commit<'a>(&mut self, paths: &[&'a str], at: u64) -> (&'a str, String) {
        let text = *self.random.one(&["one", "other", "broken", "sloppy"]).unwrap_or(&"one");
        (self.random.one(paths).copied().unwrap_or("f0"), format!("{text} {at}"))
    }

    /// Draws by which votes a change at a Gerrit comes to be approved, the last of each label being
    /// the one that is needed.
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

    /// Draws whether only a part of that is said.
    pub(super) fn is_half(&mut self) -> bool {
        self.random.per_mille(HALF_PER_MILLE)
    }

    /// Draws which.
    pub(super) fn half(&mut self) -> (&'static str, i64) {
        *self.random.one(&NEEDED).unwrap_or(&NEEDED[0])
    }

    /// Draws the vote by which a change is approved no more: another one, or none.
    pub(super) fn no(&mut self) -> (&'static str, i64) {
        let [(review, _), (go, _)] = NEEDED;
        *self
            .random
            .one(&[(review, 0), (review, 1), (review, -2), (go, 0), (go, -1)])
            .unwrap_or(&(go, 0))
    }

    /// Draws whether a new patchset is made on what the one before was made on.
    pub(super) fn stays_in_chain(&mut self) -> bool {
        self.random.per_mille(700)
    }

    /// Draws whether it is about being done with a change, rather than about its topic.
    pub(super) fn is_about_work(&mut self) -> bool {
        self.random.per_mille(400)
    }

    /// Draws whether a change leaves its topic.
    pub(super) fn leaves_topic(&mut self) -> bool {
        self.random.per_mille(400)
    }

    /// Draws one of these.
    pub(super) fn one_of<'a>(&mut self, of: &'a [ChangeKey]) -> Option<&'a ChangeKey> {
        self.random.one(of)
    }

    /// Draws whether a change is urgent.
    pub(super) fn is_urgent(&mut self) -> bool {
        self.random.per_mille(URGENT_PER_MILLE)
    }
}

impl People {
    /// Returns when somebody thinks again, of what was approved or of what landed.
    pub fn next_thought(&self) -> Option<Timestamp> {
        self.thoughts.to_come.iter().map(|(at, ..)| *at).chain(self.regrets.next_at()).min()
    }

    /// Gives somebody a reason to take a change's approval back within so many milliseconds.
    pub fn is_tempted(&mut self, change: &ChangeKey, millis_max: u64, now: Timestamp) {
        let thoughts = &mut self.thoughts;
        let may = self.shape.has(Play::SecondThoughts) && thoughts.count < THOUGHTS_MAX;
        if may && thoughts.random.per_mille(TEMPTED_PER_MILLE) {
            thoughts.count += 1;
            let at = now.plus_millis(thoughts.random.between(0, millis_max));
            thoughts.to_come.push((at, change.clone(), Thought::No));
        }
    }

    /// Thinks again of the change whose turn it is.
    pub fn think_again(&mut self, site: &Site, oracle: &mut Oracle, story: &mut Story) {
        let now = site.world.now();
        let Some(at) = self.thoughts.to_come.iter().position(|(at, ..)| *at <= now) else {
            return self.regret(site, oracle, story);
        };
        let (_, change, thought) = self.thoughts.to_come.swap_remove(at);
        let Some(revision) = open(site, &change) else { return };
        match thought {
            Thought::No if self.thoughts.random.per_mille(REVISED_PER_MILLE) => {
                let tenant = self
                    .proposed
                    .iter()
                    .find(|(proposed, _)| *proposed == change)
                    .map_or(0, |(_, of)| *of);
                self.upload(&change, tenant, 10 + self.thoughts.count, site, oracle, story);
            }
            Thought::No => {
                story.tell(
                    now,
                    format!("grace thinks again and takes her approval of {revision} back"),
                );
                self.say_no(&change, site, oracle);
            }
            Thought::YesAfterAll => {
                story.tell(now, format!("grace approves {revision} after all"));
                self.say_yes(&revision, site, oracle);
                return;
            }
        }
        let thoughts = &mut self.thoughts;
        if thoughts.random.per_mille(AGAIN_PER_MILLE) {
            let most = *thoughts.random.one(&[50, 3_000, 60_000]).unwrap_or(&50);
            let at = now.plus_millis(thoughts.random.between(0, most));
            thoughts.to_come.push((at, change, Thought::YesAfterAll));
        }
    }
}
