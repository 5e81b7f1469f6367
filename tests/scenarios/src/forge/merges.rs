//! Merges and pushes of the played forge, with their webhooks.

use super::{OWN, PlayedForge, Shown, Visibility};
use serde_json::json;
use sluice_forge::{ForgeError, MergeMessage};
use sluice_model::BranchName;
use sluice_model::change::{ChangeKey, ChangeRef, ChangeStatus};
use sluice_model::git::{BranchKey, MergeMode, Oid};
use sluice_runtime::Clock as _;

/// A branch move by a push of Sluice.
#[derive(Debug, Clone)]
pub struct Move {
    /// The branch.
    pub branch: BranchKey,
    /// The commit before the move.
    pub from: Oid,
    /// The commit after the move.
    pub to: Oid,
    /// The number of changes that had been merged before.
    pub merges_before: usize,
    /// The changes that the forge marked as merged by this move, in merge order.
    pub merged: Vec<ChangeKey>,
    /// The last state of each change that the pushing reader was shown, if readers are tracked.
    pub shown: Shown,
}

impl PlayedForge {
    pub(super) fn merge_now(
        &self,
        change: &ChangeRef,
        mode: MergeMode,
        message: &MergeMessage,
    ) -> Result<Oid, ForgeError> {
        let (merged, branch, before) = self.merged(change, mode, message)?;
        if change.key.connection.as_str() == "gerrit" {
            self.stream_merge(&change.key, &branch, &before, &merged);
            return Ok(merged);
        }
        self.send_webhook(
            "pull_request",
            &change.key,
            json!({"action": "closed", "number": change.key.number()}),
            OWN,
        );
        let push =
            json!({"ref": format!("refs/heads/{branch}"), "before": before.0, "after": merged.0});
        self.send_webhook("push", &change.key, push, OWN);
        Ok(merged)
    }

    /// Merges a change. Returns the merge commit, the branch and its previous tip.
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
        let played_change =
            state.changes.get_mut(&change.key).ok_or_else(|| Self::not_found(change))?;
        if played_change.facts.change.head != change.head {
            return Err(ForgeError::HeadMoved { attempted: attempted() });
        }
        if let (ChangeStatus::Merged, Some(commit)) =
            (played_change.facts.status, &played_change.facts.merge_commit)
        {
            return Ok((commit.clone(), played_change.facts.change.branch.clone(), commit.clone()));
        }
        // Like GitHub: the request names the change and its head; the change determines the branch.
        let branch = BranchKey {
            project: change.key.project.clone(),
            branch: played_change.facts.change.branch.clone(),
        };
        let tip = store.tip(&branch).ok_or_else(|| Self::not_found(&branch))?;
        let merged = store.put(mode, &tip.id, &change.head, &message.title);
        let mut commit = merged.map_err(|_| ForgeError::Conflict { attempted: attempted() })?;
        if let Some(extra) = sabotage {
            let mut tree = store.tree(&commit.id).clone();
            tree.extend(extra);
            // A commit made by the forge: the tested one is not in the branch.
            let parents = if mode.keeps_head() {
                vec![tip.id.clone(), change.head.clone()]
            } else {
                vec![commit.id.clone()]
            };
            commit = store.commit(tree, parents, "not the tested state");
        }
        store.set(&branch, &commit.id);
        state.past.note(&played_change.facts, self.world.now());
        played_change.facts.status = ChangeStatus::Merged;
        played_change.facts.merge_commit = Some(commit.id.clone());
        played_change.facts.updated_at = state.past.moment(self.world.now());
        state.merges.push((change.key.clone(), commit.clone()));
        state.readings.merged();
        if let Some(seconds) = state.merges_unseen.take() {
            state.unseen = Some((change.key.clone(), self.world.now().plus_seconds(seconds)));
            return Err(ForgeError::unknown(attempted(), "no answer"));
        }
        Ok((commit.id, branch.branch, tip.id))
    }

    /// Makes pushes fail with this message from now on.
    pub fn refuse_pushes(&self, why: &str) {
        self.state().push_refusal = Some(why.to_owned());
    }

    /// Returns the branch moves by Sluice's pushes, oldest first.
    pub fn moves(&self) -> Vec<(Oid, Oid)> {
        self.state().moves.iter().map(|made| (made.from.clone(), made.to.clone())).collect()
    }

    /// Returns the branch moves by Sluice's pushes with all details, oldest first.
    pub fn moves_in_full(&self) -> Vec<Move> {
        self.state().moves.clone()
    }

    /// Returns the number of branch moves by Sluice's pushes.
    pub fn move_count(&self) -> usize {
        self.state().moves.len()
    }

    /// Accepts pushes again.
    pub fn accept_pushes(&self) {
        self.state().push_refusal = None;
    }

    /// Hides or shows commits in requests for a commit.
    pub fn set_commit_visibility(&self, visibility: Visibility) {
        self.state().commit_visibility = visibility;
    }

    /// Makes each push land one more commit on top of the requested one, if there is one. No forge
    /// may ever do that.
    pub fn overreach(&self) {
        self.state().overreaches = true;
    }

    /// Moves a branch from exactly one commit to another. Like GitHub, marks the changes that it
    /// then contains as merged.
    pub(super) fn move_now(
        &self,
        branch: &BranchKey,
        from: &Oid,
        to: &Oid,
    ) -> Result<(), ForgeError> {
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
        let further = if state_ref.overreaches { store.child(to) } else { None };
        let to = further.as_ref().unwrap_or(to);
        assert!(store.holds(to, from), "{branch} would not move forward");
        store.set(branch, to);
        let (merges_before, shown) = (state_ref.merges.len(), state_ref.readings.now());
        let moved = store.find(to).ok_or_else(|| Self::not_found(to))?;
        let now = self.world.now();
        let mut merged = Vec::new();
        for (key, played_change) in &mut state_ref.changes {
            let facts = &mut played_change.facts;
            let is_here = key.project == branch.project && facts.change.branch == branch.branch;
            if is_here && facts.status == ChangeStatus::Open && store.holds(to, &facts.change.head)
            {
                state_ref.past.note(facts, now);
                facts.status = ChangeStatus::Merged;
                // Each change of one move shows the last commit of the move.
                facts.merge_commit = Some(to.clone());
                facts.updated_at = state_ref.past.moment(now);
                state_ref.merges.push((key.clone(), moved.clone()));
                state_ref.readings.merged();
                merged.push(key.clone());
            }
        }
        state_ref.moves.push(Move {
            branch: branch.clone(),
            from: from.clone(),
            to: to.clone(),
            merges_before,
            merged: merged.clone(),
            shown,
        });
        drop(store);
        drop(state);
        for key in &merged {
            self.send_webhook(
                "pull_request",
                key,
                json!({"action": "closed", "number": key.number()}),
                OWN,
            );
        }
        // Sent even if no change was merged by it.
        self.send_push_webhook(
            &branch.project,
            &format!("refs/heads/{}", branch.branch),
            from,
            to,
            OWN,
        );
        Ok(())
    }
}
