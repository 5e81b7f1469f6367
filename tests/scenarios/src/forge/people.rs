//! What people do to changes of the played forge once they are there.

use super::*;

impl PlayedForge {
    /// Uploads another revision of a change, which edits one more file, and says so.
    pub fn revise(&self, key: &ChangeKey, path: &str, text: &str) {
        self.edit(key, |facts| {
            let mut store = self.store.lock().unwrap();
            let before = facts.change.head.clone();
            let mut tree = store.tree(&before).clone();
            tree.insert(path.to_owned(), text.to_owned());
            facts.change.head = store.commit(tree, vec![before], "again").id;
            facts.change.patchset = facts.change.head.0.clone();
        });
        self.tell(
            "pull_request",
            key,
            json!({"action": "synchronize", "number": key.number()}),
            "ada",
        );
    }

    /// Approves a change, and says so.
    pub fn approve(&self, key: &ChangeKey) {
        let submitted_at = self.world.now();
        let (by, state, permission) =
            ("grace".to_owned(), ReviewState::Approved, Permission::Write);
        let email = Some("grace@example.org".to_owned());
        self.edit(key, |facts| {
            facts.reviews = vec![Review { by, email, state, permission, submitted_at }]
        });
        let body = json!({"action": "submitted", "pull_request": {"number": key.number()}, "review": {"state": "approved", "body": ""}});
        self.tell("pull_request_review", key, body, "grace");
    }

    /// Takes a review back, and says so. As at GitHub, it is shown as dismissed from then on.
    pub fn dismiss(&self, key: &ChangeKey) {
        self.edit(key, dismissed);
        let body = json!({"action": "dismissed", "pull_request": {"number": key.number()}, "review": {"state": "dismissed", "body": ""}});
        self.tell("pull_request_review", key, body, "grace");
    }

    /// Takes a review back as somebody else than the reviewer, with the forge still showing it as
    /// taken back, and says so.
    pub fn dismiss_visibly(&self, key: &ChangeKey) {
        self.edit(key, |facts| {
            facts.reviews.iter_mut().for_each(|review| review.state = ReviewState::Dismissed)
        });
        let body = json!({"action": "dismissed", "pull_request": {"number": key.number()}, "review": {"state": "dismissed", "body": ""}});
        self.tell("pull_request_review", key, body, "ada");
    }

    /// Puts a label on, and says so if it is to be told.
    pub fn label(&self, key: &ChangeKey, label: &str, tell: bool) {
        self.edit(key, |facts| facts.labels = vec![label.to_owned()]);
        if tell {
            let body =
                json!({"action": "labeled", "number": key.number(), "label": {"name": label}});
            self.tell("pull_request", key, body, "ada");
        }
    }

    /// Takes a label off, and says so.
    pub fn unlabel(&self, key: &ChangeKey, label: &str) {
        self.edit(key, |facts| facts.labels.clear());
        let body = json!({"action": "unlabeled", "number": key.number(), "label": {"name": label}});
        self.tell("pull_request", key, body, "ada");
    }

    /// Comments on a change as its author, and says so.
    pub fn comment(&self, key: &ChangeKey, text: &str) {
        self.comment_by(key, text, "ada");
    }

    /// Comments on a change as somebody, and says so.
    pub fn comment_by(&self, key: &ChangeKey, text: &str, by: &str) {
        self.edit(key, |_| {});
        let issue = json!({"number": key.number(), "pull_request": {}});
        let body = json!({"action": "created", "issue": issue, "comment": {"body": text}});
        self.tell("issue_comment", key, body, by);
    }

    /// Closes a change without merging it, and says so.
    pub fn close(&self, key: &ChangeKey) {
        self.edit(key, |facts| facts.status = ChangeStatus::Closed);
        self.tell("pull_request", key, json!({"action": "closed", "number": key.number()}), "ada");
    }

    /// Opens a change again, and says so.
    pub fn reopen(&self, key: &ChangeKey) {
        self.edit(key, |facts| facts.status = ChangeStatus::Open);
        self.tell(
            "pull_request",
            key,
            json!({"action": "reopened", "number": key.number()}),
            "ada",
        );
    }

    /// Gives a change another description, and says so if it is to be told.
    pub fn describe(&self, key: &ChangeKey, body: &str, tell: bool) {
        self.edit(key, |facts| {
            facts.message = body.to_owned();
            facts.depends_on = depends_on(body);
        });
        if tell {
            self.tell(
                "pull_request",
                key,
                json!({"action": "edited", "number": key.number()}),
                "ada",
            );
        }
    }

    /// Has somebody else merge a change, and says so.
    pub fn merge_outside(&self, key: &ChangeKey) {
        let change = self.change(key).expect("it was proposed").facts.change;
        let mut store = self.store.lock().unwrap();
        let branch = BranchKey { project: key.project.clone(), branch: change.branch };
        let tip = store.tip(&branch).expect("the branch exists");
        let merged = store.merge(&tip.id, &change.head, "merged by hand").expect("it merges").id;
        store.set(&branch, &merged);
        drop(store);
        self.edit(key, |facts| {
            facts.status = ChangeStatus::Merged;
            facts.merge_commit = Some(merged.clone());
        });
        self.tell("pull_request", key, json!({"action": "closed", "number": key.number()}), "ada");
        self.tell_push(
            &key.project,
            &format!("refs/heads/{}", branch.branch),
            &tip.id,
            &merged,
            "ada",
        );
    }

    /// Merges a change without being asked; nobody is told.
    pub fn merge_silently(&self, key: &ChangeKey) {
        if let Some(kept) = self.state().changes.get_mut(key) {
            kept.facts.status = ChangeStatus::Merged;
        }
    }
}
