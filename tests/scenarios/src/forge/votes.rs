//! What a change's author says of it besides what it brings: that it is a draft, or is none any more.

use super::*;

impl PlayedForge {
    /// Makes a change a draft or a change to be merged, and says so.
    pub fn draft(&self, key: &ChangeKey, is_draft: bool) {
        self.edit(key, |facts| facts.draft = is_draft);
        let action = if is_draft { "converted_to_draft" } else { "ready_for_review" };
        self.tell("pull_request", key, json!({"action": action, "number": key.number()}), "ada");
    }
}
