//! How the played forge merges: at somebody's word, in the way that is asked for, and it says so whoever lives to hear of it.

use super::{OWN, PlayedForge};
use serde_json::json;
use sluice_forge::{ForgeError, MergeMessage};
use sluice_model::BranchName;
use sluice_model::change::{ChangeRef, ChangeStatus};
use sluice_model::git::{BranchKey, MergeMode, Oid};
use sluice_runtime::Clock as _;

impl PlayedForge {
    pub(super) fn merge_now(
        &self,
        change: &ChangeRef,
        mode: MergeMode,
        message: &MergeMessage,
    ) -> Result<Oid, ForgeError> {
        let (merged, branch, before) = self.merged(change, mode, message)?;
        if change.key.connection.as_str() == "gerrit" {
            self.say_merged(&change.key, &branch, &before, &merged);
            return Ok(merged);
        }
        self.tell("pull_request", &change.key, json!({"action": "closed", "number": change.key.number()}), OWN);
        let push = json!({"ref": format!("refs/heads/{branch}"), "before": before.0, "after": merged.0});
        self.tell("push", &change.key, push, OWN);
        Ok(merged)
    }

    /// Merges; returns what the branch is then, which one it is, and what it was.
    fn merged(
        &self,
        change: &ChangeRef,
        mode: MergeMode,
        message: &MergeMessage,
    ) -> Result<(Oid, BranchName, Oid), ForgeError> {
        let attempted = || format!("merge {}", change.key);
        let mut state = self.state();
        let state = &mut *state;
        let mut store = self.store.lock().unwrap();
        if let Some(message) = state.refusal.clone() {
            return Err(ForgeError::Refused { attempted: attempted(), status: 405, message });
        }
        let sabotage = state.sabotage.take();
        let kept = state.changes.get_mut(&change.key).ok_or_else(|| Self::not_found(change))?;
        if kept.facts.change.head != change.head {
            return Err(ForgeError::HeadMoved { attempted: attempted() });
        }
        if let (ChangeStatus::Merged, Some(commit)) = (kept.facts.status, &kept.facts.merge_commit) {
            return Ok((commit.clone(), kept.facts.change.branch.clone(), commit.clone()));
        }
        // As GitHub: what is asked for names the change and its head; the change itself says into which branch.
        let branch = BranchKey { project: change.key.project.clone(), branch: kept.facts.change.branch.clone() };
        let tip = store.tip(&branch).ok_or_else(|| Self::not_found(&branch))?;
        let merged = store.put(mode, &tip.id, &change.head, &message.title);
        let mut commit = merged.map_err(|_| ForgeError::Conflict { attempted: attempted() })?;
        if let Some(extra) = sabotage {
            let mut tree = store.tree(&commit.id).clone();
            tree.extend(extra);
            commit = store.commit(tree, vec![commit.id], "somebody else's");
        }
        store.set(&branch, &commit.id);
        state.past.note(&kept.facts, self.world.now());
        kept.facts.status = ChangeStatus::Merged;
        kept.facts.merge_commit = Some(commit.id.clone());
        kept.facts.updated_at = state.past.moment(self.world.now());
        state.merges.push((change.key.clone(), commit.clone()));
        state.readings.merged();
        if let Some(seconds) = state.merges_unseen.take() {
            state.unseen = Some((change.key.clone(), self.world.now().plus_seconds(seconds)));
            return Err(ForgeError::unknown(attempted(), "no answer"));
        }
        Ok((commit.id, branch.branch, tip.id))
    }
}
