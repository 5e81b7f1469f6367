//! People who put tags on what branches are.

use super::People;
use crate::oracle::Oracle;
use crate::plays::tags::RELEASE;
use crate::site::Site;
use crate::story::Story;
use sluice_model::git::BranchKey;
use sluice_runtime::Clock as _;

impl People {
    /// Has somebody put a tag of its own name on what a branch of a project at GitHub is.
    pub(super) fn put_tag(&mut self, site: &Site, oracle: &mut Oracle, story: &mut Story) {
        let Some((_, branch)) = self.one_branch(site) else { return };
        self.tags_count += 1;
        let tag = format!("v{}", self.tags_count);
        site.forge.tag(&branch, &tag);
        let store = site.store.lock().unwrap();
        let Some(tip) = store.tip(&branch) else { return };
        story.tell(
            site.world.now(),
            format!("ada puts the tag {tag} on {branch} at {}", tip.id.short()),
        );
        // To the oracle a tag is a branch that never moves.
        let whole = format!("refs/tags/{tag}");
        let tagged = BranchKey { project: branch.project.clone(), branch: whole.as_str().into() };
        oracle.moved(&tagged, &tip, &store);
        oracle.is_pushed(RELEASE, &tagged, &tip.id);
    }
}
