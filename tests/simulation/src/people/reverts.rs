//! People who take back what landed, by a push: at any time, and mostly while something that needs
//! it is still tested on it.

use super::People;
use crate::oracle::Oracle;
use crate::plays::Play;
use crate::plays::reverts::taken_back;
use crate::random::Random;
use crate::reviews::is_review;
use crate::site::{Site, branch_of};
use crate::story::Story;
use sluice_model::Timestamp;
use sluice_model::change::ChangeKey;
use sluice_runtime::Clock as _;

/// Landings of one site that somebody comes to regret.
const REGRETS_MAX: u64 = 6;
/// Landings out of 1000 that somebody regrets, where something in a gate needs the change, and
/// elsewhere.
const NEEDED_PER_MILLE: u64 = 700;
const LANDED_PER_MILLE: u64 = 80;

/// What people will take back, and when.
pub(super) struct Regrets {
    random: Random,
    count: u64,
    to_come: Vec<(Timestamp, ChangeKey)>,
}

impl Regrets {
    pub(super) fn new(seed: u64) -> Self {
        Self { random: Random::new(seed, 17), count: 0, to_come: Vec::new() }
    }

    /// Returns when something is taken back next.
    pub(super) fn next_at(&self) -> Option<Timestamp> {
        self.to_come.iter().map(|(at, _)| *at).min()
    }
}

impl People {
    /// Gives somebody a reason to take back what has just landed, soon if something in a gate needs
    /// it.
    pub fn has_landed(&mut self, change: &ChangeKey, is_needed: bool, now: Timestamp) {
        let regrets = &mut self.regrets;
        let per_mille = if is_needed { NEEDED_PER_MILLE } else { LANDED_PER_MILLE };
        let may = self.shape.has(Play::Reverts)
            && regrets.count < REGRETS_MAX
            && !is_review(change.project.name());
        if may && regrets.random.per_mille(per_mille) {
            regrets.count += 1;
            let most = *regrets.random.one(&[50, 3_000, 20_000]).unwrap_or(&50);
            let at = now.plus_millis(regrets.random.between(0, most));
            regrets.to_come.push((at, change.clone()));
        }
    }

    /// Takes the change back of which that is due, if any is.
    pub(super) fn regret(&mut self, site: &Site, oracle: &mut Oracle, story: &mut Story) {
        let (regrets, now) = (&mut self.regrets, site.world.now());
        let Some(at) = regrets.to_come.iter().position(|(at, _)| *at <= now) else { return };
        let (_, change) = regrets.to_come.swap_remove(at);
        take_back(&change, site, oracle, story);
    }

    /// Takes a change of a project at GitHub back that landed at some time.
    pub(super) fn revert(&mut self, site: &Site, oracle: &mut Oracle, story: &mut Story) {
        let changes = self
            .proposed
            .iter()
            .map(|(change, _)| change)
            .filter(|change| !is_review(change.project.name()));
        let landed: Vec<ChangeKey> =
            changes.filter(|change| oracle.landed_as(change).is_some()).cloned().collect();
        if let Some(change) = self.random.one(&landed) {
            take_back(change, site, oracle, story);
        }
    }
}

/// Pushes what takes a change back from its branch, if anything of it is left there.
fn take_back(change: &ChangeKey, site: &Site, oracle: &mut Oracle, story: &mut Story) {
    let Some(kept) = site.forge.change(change) else { return };
    let branch = branch_of(change.project.name(), kept.facts.change.branch.as_str());
    let edits: Vec<(String, String)> = {
        let store = site.store.lock().unwrap();
        let (Some((before, made)), Some(tip)) = (oracle.landed_as(change), store.tip(&branch))
        else {
            return;
        };
        let edits = taken_back(before, made, store.tree(&tip.id)).into_iter();
        edits.map(|(path, text)| (path.to_owned(), text.to_owned())).collect()
    };
    if edits.is_empty() {
        return;
    }
    let edits: Vec<(&str, &str)> =
        edits.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
    let paths: Vec<&str> = edits.iter().map(|(path, _)| *path).collect();
    story.tell(
        site.world.now(),
        format!("somebody takes {change} back from {branch}: {}", paths.join(", ")),
    );
    site.forge.push(&branch, &edits);
    let store = site.store.lock().unwrap();
    if let Some(tip) = store.tip(&branch) {
        oracle.moved(&branch, &tip, &store);
    }
}
