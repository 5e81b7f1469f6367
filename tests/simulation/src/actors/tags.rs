//! Authors who tag branches.

use super::Actors;
use crate::oracle::Oracle;
use crate::scenarios::tags::RELEASE;
use crate::site::Site;
use crate::story::Story;
use sluice_model::git::BranchKey;
use sluice_runtime::Clock as _;

impl Actors {
    /// Pushes a new tag for the tip of a random GitHub branch.
    pub(super) fn push_tag(&mut self, site: &Site, oracle: &mut Oracle, story: &mut Story) {
        let Some((_, branch)) = self.draw_branch(site) else { return };
        self.tags_count += 1;
        let tag = format!("v{}", self.tags_count);
        site.forge.tag(&branch, &tag);
        let store = site.store.lock().unwrap();
        let Some(tip) = store.tip(&branch) else { return };
        story.log(site.world.now(), format!("ada tags {branch} at {} as {tag}", tip.id.short()));
        // The oracle treats a tag as a branch that never moves.
        let whole = format!("refs/tags/{tag}");
        let tagged = BranchKey { project: branch.project.clone(), branch: whole.as_str().into() };
        oracle.record_branch_move(&tagged, &tip, &store);
        oracle.expect_push_test(RELEASE, &tagged, &tip.id);
    }
}
