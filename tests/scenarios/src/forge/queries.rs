//! What a test reads from the played forge: its changes, branches and statuses, and how often it
//! was called.

use super::*;

impl PlayedForge {
    /// Returns a change of the forge, if it exists.
    pub fn change(&self, key: &ChangeKey) -> Option<PlayedChange> {
        self.state().changes.get(key).cloned()
    }

    /// Returns the merged changes with their commits, in order.
    pub fn merges(&self) -> Vec<(ChangeKey, Commit)> {
        self.state().merges.clone()
    }

    /// Returns a branch's commits along first parents, the newest first, each with how many parents
    /// it has.
    pub fn history(&self, branch: &BranchKey) -> Vec<(Commit, usize)> {
        self.store.lock().unwrap().history(branch)
    }

    /// Returns the number of status requests that were rate-limited.
    pub fn refused_for_now(&self) -> u64 {
        self.state().refused_for_now
    }

    /// Returns the statuses of a commit as context and state, by context.
    pub fn statuses_of(&self, commit: &Oid) -> Vec<String> {
        let state = self.state();
        let own = state.statuses.iter().filter(|((of, _), _)| of == commit);
        own.map(|((_, context), there)| format!("{context} {}", there.state)).collect()
    }

    /// Makes responses contain the forge's time from now on, like GitHub's.
    pub fn report_time(&self) {
        self.state().reports_time = true;
    }

    /// Returns how often a change was read.
    pub fn reads(&self) -> u64 {
        self.state().reads
    }

    /// Returns the files of a branch.
    pub fn files(&self, project: &str, branch: &str) -> Tree {
        let store = self.store.lock().unwrap();
        let key =
            BranchKey { project: ProjectName::new("forge.test", project), branch: branch.into() };
        store.tip(&key).map(|tip| store.tree(&tip.id).clone()).unwrap_or_default()
    }
}
