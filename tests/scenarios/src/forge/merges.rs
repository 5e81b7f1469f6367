//! How the played forge merges: at somebody's word, in the way that is asked for, and it says so
//! whoever lives to hear of it.

use super::{OWN, PlayedForge, Shown};
use serde_json::json;
use sluice_forge::{ForgeError, MergeMessage};
use sluice_model::BranchName;
use sluice_model::change::{ChangeKey, ChangeRef, ChangeStatus};
use sluice_model::git::{BranchKey, MergeMode, Oid};
use sluice_runtime::Clock as _;

/// A move of a branch that a push of ours made.
#[derive(Debug, Clone)]
pub struct Move {
    /// The branch.
    pub branch: BranchKey,
    /// Where it was.
    pub from: Oid,
    /// Where it is by that.
    pub to: Oid,
    /// How many changes had been merged before.
    pub merges_before: usize,
    /// Changes that were taken for merged by it, among those that were merged.
    pub merged: Vec<ChangeKey>,
    /// What whoever pushed had been shown of changes last, where it is kept who reads.
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
            self.say_merged(&change.key, &branch, &before, &merged);
            return Ok(merged);
        }
        self.tell(
            "pull_request",
            &change.key,
            json!({"action": "closed", "number": change.key.number()}),
            OWN,
        );
        let push =
            json!({"ref": format!("refs/heads/{branch}"), "before": before.0, "after": merged.0});
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
        if let (ChangeStatus::Merged, Some(commit)) = (kept.facts.status, &kept.facts.merge_commit)
        {
            return Ok((commit.clone(), kept.facts.change.branch.clone(), commit.clone()));
        }
        // As GitHub: what is asked for names the change and its head; the change itself says into
        // which branch.
        let branch = BranchKey {
            project: change.key.project.clone(),
            branch: kept.facts.change.branch.clone(),
        };
        let tip = store.tip(&branch).ok_or_else(|| Self::not_found(&branch))?;
        let merged = store.put(mode, &tip.id, &change.head, &message.title);
        let mut commit = merged.map_err(|_| ForgeError::Conflict { attempted: attempted() })?;
        if let Some(extra) = sabotage {
            let mut tree = store.tree(&commit.id).clone();
            tree.extend(extra);
            // A commit of the forge's own, and nobody else's: the tested one is not in the branch.
            let parents = if mode.keeps_head() {
                vec![tip.id.clone(), change.head.clone()]
            } else {
                vec![commit.id.clone()]
            };
            commit = store.commit(tree, parents, "somebody else's");
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
        self.state().moves.iter().map(|made| (made.from.clone(), made.to.clone())).collect()
    }

    /// Returns the same with all that is known of each.
    pub fn moves_in_full(&self) -> Vec<Move> {
        self.state().moves.clone()
    }

    /// Returns how many there are.
    pub fn move_count(&self) -> usize {
        self.state().moves.len()
    }

    /// Has pushes be taken again.
    pub fn accept_pushes(&self) {
        self.state().push_refusal = None;
    }

    /// Shows no commit from now on, or all of them again.
    pub fn hide_commits(&self, are_hidden: bool) {
        self.state().hides_commits = are_hidden;
    }

    /// Has each push bring one more commit that somebody made on top of what it names, if there is
    /// one: what must never be.
    pub fn overreach(&self) {
        self.state().overreaches = true;
    }

    /// Moves a branch from exactly one commit to another, and takes the changes that it came to
    /// hold for merged, as GitHub does.
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
        for (key, kept) in &mut state_ref.changes {
            let facts = &mut kept.facts;
            let is_here = key.project == branch.project && facts.change.branch == branch.branch;
            if is_here && facts.status == ChangeStatus::Open && store.holds(to, &facts.change.head)
            {
                state_ref.past.note(facts, now);
                facts.status = ChangeStatus::Merged;
                // Of several that one move lands each shows the whole move.
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
            self.tell(
                "pull_request",
                key,
                json!({"action": "closed", "number": key.number()}),
                OWN,
            );
        }
        // Also where none of them was as it was pushed any more.
        self.tell_push(&branch.project, &format!("refs/heads/{}", branch.branch), from, to, OWN);
        Ok(())
    }
}
