//! What users propose to the played forge.

use super::*;

/// Instead of a file's text: the file is removed.
pub const REMOVED: &str = "\0removed";

impl PlayedForge {
    /// Opens a pull request that edits files of `main`, and sends a webhook.
    pub fn propose(
        &self,
        project: &str,
        number: u64,
        title: &str,
        body: &str,
        edits: &[(&str, &str)],
    ) -> ChangeKey {
        self.propose_on(project, "main", number, title, body, edits)
    }

    /// Moves a change to another connection to its host, and returns its key there. No webhook is
    /// sent.
    pub fn move_to(&self, connection: &str, change: &ChangeKey) -> ChangeKey {
        let moved = ChangeKey { connection: connection.into(), ..change.clone() };
        let mut state = self.state();
        if let Some(mut played_change) = state.changes.remove(change) {
            played_change.facts.change.key = moved.clone();
            state.changes.insert(moved.clone(), played_change);
        }
        moved
    }

    /// Opens a pull request that edits files of a branch, and sends a webhook.
    pub fn propose_on(
        &self,
        project: &str,
        branch: &str,
        number: u64,
        title: &str,
        body: &str,
        edits: &[(&str, &str)],
    ) -> ChangeKey {
        let key = key(project, number);
        let branch = BranchKey { project: key.project.clone(), branch: branch.into() };
        let mut store = self.store.lock().unwrap();
        let base = store.tip(&branch).expect("the branch exists");
        let mut tree = store.tree(&base.id).clone();
        for (path, text) in edits {
            match *text {
                REMOVED => tree.remove(*path),
                text => tree.insert((*path).to_owned(), text.to_owned()),
            };
        }
        let head = store.commit(tree, vec![base.id.clone()], title).id;
        let files = store.touched(&base.id, &head);
        drop(store);
        let change = ChangeRef {
            key: key.clone(),
            branch: branch.branch,
            head: head.clone(),
            patchset: head.0,
        };
        let facts = ChangeFacts {
            title: title.to_owned(),
            message: body.to_owned(),
            author: "ada".to_owned(),
            url: self.page(&key),
            files: Some(files),
            depends_on: depends_on(body),
            mergeable: Some(true),
            updated_at: self.state().past.moment(self.world.now()),
            ..ChangeFacts::bare(change, Timestamp(0))
        };
        self.state().changes.insert(
            key.clone(),
            PlayedChange {
                facts,
                comments: BTreeMap::new(),
                lines: BTreeMap::new(),
                ranges: BTreeMap::new(),
                reviews: BTreeMap::new(),
            },
        );
        self.send_webhook(
            "pull_request",
            &key,
            json!({"action": "opened", "number": number}),
            "ada",
        );
        key
    }
}
