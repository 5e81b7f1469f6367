//! Administrators who revert landed changes by a push, mostly while a change that depends on them
//! is still being tested.

use super::Actors;
use crate::oracle::Oracle;
use crate::random::Random;
use crate::reviews::is_gerrit_project;
use crate::scenarios::Scenario;
use crate::scenarios::reverts::revert_edits;
use crate::site::{Site, branch_of};
use crate::story::Story;
use sluice_model::Timestamp;
use sluice_model::change::ChangeKey;
use sluice_runtime::Clock as _;

/// The most reverts that landings lead to at one site.
const REVERTS_MAX: u64 = 6;
/// How many of 1000 landings lead to a revert if an item in a gate depends on the change.
const NEEDED_PER_MILLE: u64 = 700;
/// How many of 1000 other landings lead to a revert.
const LANDED_PER_MILLE: u64 = 80;

/// The landed changes that will be reverted, and when.
pub(super) struct RevertIntentions {
    /// Draws which landings lead to a revert.
    random: Random,
    /// How many landings have led to a revert.
    count: u64,
    /// The reverts that are to come.
    to_come: Vec<(Timestamp, ChangeKey)>,
}

impl RevertIntentions {
    /// Returns the intentions of a seed; there are none yet.
    pub(super) fn new(seed: u64) -> Self {
        Self { random: Random::new(seed, 17), count: 0, to_come: Vec::new() }
    }

    /// Returns when the next revert is due. Returns `None` if there is none.
    pub(super) fn next_at(&self) -> Option<Timestamp> {
        self.to_come.iter().map(|(at, _)| *at).min()
    }
}

/// Whether an item in a gate depends on a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GateUse {
    /// An item outside the change's bundle depends on it.
    Needed,
    /// No other item depends on it.
    NotNeeded,
}

impl Actors {
    /// Draws whether a change that has just landed will be reverted, and when.
    pub fn consider_revert(&mut self, change: &ChangeKey, use_in_gates: GateUse, now: Timestamp) {
        let reverts = &mut self.reverts;
        let per_mille = match use_in_gates {
            GateUse::Needed => NEEDED_PER_MILLE,
            GateUse::NotNeeded => LANDED_PER_MILLE,
        };
        let may = self.shape.has(Scenario::Reverts)
            && reverts.count < REVERTS_MAX
            && !is_gerrit_project(change.project.name());
        if may && reverts.random.per_mille(per_mille) {
            reverts.count += 1;
            let most = *reverts.random.one(&[50, 3_000, 20_000]).unwrap_or(&50);
            let at = now.plus_millis(reverts.random.between(0, most));
            reverts.to_come.push((at, change.clone()));
        }
    }

    /// Reverts the first change whose revert is due. Does nothing if none is.
    pub(super) fn revert_due(&mut self, site: &Site, oracle: &mut Oracle, story: &mut Story) {
        let (reverts, now) = (&mut self.reverts, site.world.now());
        let Some(at) = reverts.to_come.iter().position(|(at, _)| *at <= now) else { return };
        let (_, change) = reverts.to_come.swap_remove(at);
        push_revert(&change, site, oracle, story);
    }

    /// Reverts a random landed change of a GitHub project. Does nothing if there is none.
    pub(super) fn revert_landed_change(
        &mut self,
        site: &Site,
        oracle: &mut Oracle,
        story: &mut Story,
    ) {
        let changes = self
            .proposed
            .iter()
            .map(|(change, _)| change)
            .filter(|change| !is_gerrit_project(change.project.name()));
        let landed: Vec<ChangeKey> =
            changes.filter(|change| oracle.landed_revision(change).is_some()).cloned().collect();
        if let Some(change) = self.random.one(&landed) {
            push_revert(change, site, oracle, story);
        }
    }
}

/// Pushes a commit that reverts a change to its branch. Does nothing if none of its edits are left.
fn push_revert(change: &ChangeKey, site: &Site, oracle: &mut Oracle, story: &mut Story) {
    let Some(shown) = site.forge.change(change) else { return };
    let branch = branch_of(change.project.name(), shown.facts.change.branch.as_str());
    let edits: Vec<(String, String)> = {
        let store = site.store.lock().unwrap();
        let (Some((before, after)), Some(tip)) =
            (oracle.landed_revision(change), store.tip(&branch))
        else {
            return;
        };
        let edits = revert_edits(before, after, store.tree(&tip.id)).into_iter();
        edits.map(|(path, text)| (path.to_owned(), text.to_owned())).collect()
    };
    if edits.is_empty() {
        return;
    }
    let edits: Vec<(&str, &str)> =
        edits.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
    let paths: Vec<&str> = edits.iter().map(|(path, _)| *path).collect();
    story.log(
        site.world.now(),
        format!("an administrator reverts {change} on {branch}: {}", paths.join(", ")),
    );
    site.forge.push(&branch, &edits);
    let store = site.store.lock().unwrap();
    if let Some(tip) = store.tip(&branch) {
        oracle.record_branch_move(&branch, &tip, &store);
    }
}
