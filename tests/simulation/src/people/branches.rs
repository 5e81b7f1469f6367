//! People who make branches of projects at GitHub, and delete them again.

use super::{PATHS, People};
use crate::oracle::Oracle;
use crate::plays::branches::{SIDE, SIDES};
use crate::site::Site;
use crate::story::Story;
use sluice_model::git::BranchKey;
use sluice_runtime::Clock as _;

/// Times out of 1000 that a branch is deleted where there is one that was made.
const DELETED_PER_MILLE: u64 = 400;

impl People {
    /// Has somebody make a branch that is a commit ahead of the main one, or delete one that was
    /// made.
    pub(super) fn branch(&mut self, site: &Site, oracle: &mut Oracle, story: &mut Story) {
        let now = site.world.now();
        if !self.sides.is_empty() && self.random.per_mille(DELETED_PER_MILLE) {
            let side = self.sides.swap_remove(self.random.below(self.sides.len()));
            story.tell(now, format!("ada deletes {side}"));
            site.forge.delete_branch(&side);
            oracle.is_deleted(&side);
            return;
        }
        let Some((_, branch)) = self.one_branch(site) else { return };
        self.sides_count += 1;
        let name = format!("{SIDE}{}", self.sides_count);
        let side = BranchKey { project: branch.project, branch: name.as_str().into() };
        let path = *self.random.one(&PATHS).unwrap_or(&"f0");
        story.tell(now, format!("ada makes {side}, which edits {path}"));
        site.forge.push(&side, &[(path, &name)]);
        let store = site.store.lock().unwrap();
        if let Some(tip) = store.tip(&side) {
            oracle.moved(&side, &tip, &store);
            oracle.is_pushed(SIDES, &side, &tip.id);
        }
        self.sides.push(side);
    }
}
