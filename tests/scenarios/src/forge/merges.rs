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

    /// Has pushes be refused for this reason from now on.
    pub fn refuse_pushes(&self, why: &str) {
        self.state().push_refusal = Some(why.to_owned());
    }

    /// Returns the moves of branches that were made by pushes of ours, oldest first.
    pub fn moves(&self) -> Vec<(Oid, Oid)> {
        self.state().moves.clone()
    }

    /// Moves a branch from exactly one commit to another, and takes the changes that it came to hold for merged, as GitHub does.
    pub(super) fn move_now(&self, branch: &BranchKey, from: &Oid, to: &Oid) -> Result<(), ForgeError> {
        let attempted = || format!("move {branch}");
        let mut state = self.state();
        let state_ref = &mut *state;
        let mut store = self.store.lock().unwrap();
        if let Some(message) = state_ref.push_refusal.clone() {
            return Err(ForgeError::Refused { attempted: attempted(), status: 422, message });
        }
        let tip = store.tip(branch).ok_or_else(|| Self::not_found(branch))?;
        if tip.id == *to {
            return Ok(());
        }
        if tip.id != *from {
            return Err(ForgeError::HeadMoved { attempted: attempted() });
        }
        assert!(store.holds(to, from), "{branch} would not move forward");
        store.set(branch, to);
        state_ref.moves.push((from.clone(), to.clone()));
        let moved = store.find(to).ok_or_else(|| Self::not_found(to))?;
        let now = self.world.now();
        let mut merged = Vec::new();
        for (key, kept) in &mut state_ref.changes {
            let facts = &mut kept.facts;
            let is_here = key.project == branch.project && facts.change.branch == branch.branch;
            if is_here && facts.status == ChangeStatus::Open && store.holds(to, &facts.change.head) {
                state_ref.past.note(facts, now);
                facts.status = ChangeStatus::Merged;
                // Of several that one move lands each shows the whole move.
                facts.merge_commit = Some(to.clone());
                facts.updated_at = state_ref.past.moment(now);
                state_ref.merges.push((key.clone(), moved.clone()));
                merged.push(key.clone());
            }
        }
        state_ref.readings.merged();
        drop(store);
        drop(state);
        for key in &merged {
            self.tell("pull_request", key, json!({"action": "closed", "number": key.number()}), OWN);
        }
        if let Some(key) = merged.first() {
            let push = json!({"ref": format!("refs/heads/{}", branch.branch), "before": from.0, "after": to.0});
            self.tell("push", key, push, OWN);
        }
        Ok(())
    }
}
