//! Authors who create and delete branches of GitHub projects.

use super::{Actors, PATHS};
use crate::oracle::Oracle;
use crate::scenarios::branches::{SIDE, SIDES};
use crate::site::Site;
use crate::story::Story;
use sluice_model::git::BranchKey;
use sluice_runtime::Clock as _;

/// How many of 1000 actions delete a branch, if an actor has created one.
const DELETED_PER_MILLE: u64 = 400;

impl Actors {
    /// Creates a branch with one commit more than an existing one, or deletes a created branch.
    pub(super) fn create_or_delete_branch(
        &mut self,
        site: &Site,
        oracle: &mut Oracle,
        story: &mut Story,
    ) {
        let now = site.world.now();
        if !self.sides.is_empty() && self.random.per_mille(DELETED_PER_MILLE) {
            let side = self.sides.swap_remove(self.random.below(self.sides.len()));
            story.log(now, format!("ada deletes {side}"));
            site.forge.delete_branch(&side);
            oracle.record_branch_deletion(&side);
            return;
        }
        let Some((_, branch)) = self.draw_branch(site) else { return };
        self.sides_count += 1;
        let name = format!("{SIDE}{}", self.sides_count);
        let side = BranchKey { project: branch.project, branch: name.as_str().into() };
        let path = *self.random.one(&PATHS).unwrap_or(&"f0");
        story.log(now, format!("ada creates {side}, which edits {path}"));
        site.forge.push(&side, &[(path, &name)]);
        let store = site.store.lock().unwrap();
        if let Some(tip) = store.tip(&side) {
            oracle.record_branch_move(&side, &tip, &store);
            oracle.expect_push_test(SIDES, &side, &tip.id);
        }
        self.sides.push(side);
    }
}
