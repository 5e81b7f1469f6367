//! What is said of a change besides what it brings: that it is a draft, or is none any more, and what others found.

use super::*;

impl PlayedForge {
    /// Makes a change a draft or a change to be merged, and says so.
    pub fn draft(&self, key: &ChangeKey, is_draft: bool) {
        self.edit(key, |facts| facts.draft = is_draft);
        let action = if is_draft { "converted_to_draft" } else { "ready_for_review" };
        self.tell("pull_request", key, json!({"action": action, "number": key.number()}), "ada");
    }

    /// Sets a status on a change's head as somebody, which moves no change; nobody is told.
    pub fn put_status(&self, key: &ChangeKey, by: &str, context: &str, status: &str) {
        if let Some(kept) = self.state().changes.get_mut(key) {
            kept.facts.statuses.retain(|known| known.context != context);
            let (by, context, state) = (by.to_owned(), context.to_owned(), status.to_owned());
            kept.facts.statuses.push(CommitStatus { by, context, state, is_check: false });
        }
    }
}
