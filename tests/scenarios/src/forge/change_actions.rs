//! What users do to existing changes of the played forge.

use super::*;

impl PlayedForge {
    /// Uploads another revision of a change that edits one more file, and sends a webhook.
    pub fn revise(&self, key: &ChangeKey, path: &str, text: &str) {
        self.edit(key, |facts| {
            let mut store = self.store.lock().unwrap();
            let before = facts.change.head.clone();
            let mut tree = store.tree(&before).clone();
            tree.insert(path.to_owned(), text.to_owned());
            facts.change.head = store.commit(tree, vec![before], "again").id;
            facts.change.patchset = facts.change.head.0.clone();
        });
        self.send_webhook(
            "pull_request",
            key,
            json!({"action": "synchronize", "number": key.number()}),
            "ada",
        );
    }

    /// Approves a change and sends a webhook.
    pub fn approve(&self, key: &ChangeKey) {
        let submitted_at = self.world.now();
        let (by, state, permission) =
            ("grace".to_owned(), ReviewState::Approved, RepositoryPermission::Write);
        let email = Some("grace@example.org".to_owned());
        self.edit(key, |facts| {
            facts.reviews = vec![ChangeReview { by, email, state, permission, submitted_at }]
        });
        let body = json!({"action": "submitted", "pull_request": {"number": key.number()}, "review": {"state": "approved", "body": ""}});
        self.send_webhook("pull_request_review", key, body, "grace");
    }

    /// Dismisses the review of a change and sends a webhook. Like GitHub, the forge shows it as
    /// dismissed from then on.
    pub fn dismiss(&self, key: &ChangeKey) {
        self.edit(key, dismiss_reviews);
        let body = json!({"action": "dismissed", "pull_request": {"number": key.number()}, "review": {"state": "dismissed", "body": ""}});
        self.send_webhook("pull_request_review", key, body, "grace");
    }

    /// Dismisses a review as a user other than the reviewer, and sends a webhook. The forge still
    /// shows the review, as dismissed.
    pub fn dismiss_visibly(&self, key: &ChangeKey) {
        self.edit(key, |facts| {
            facts.reviews.iter_mut().for_each(|review| review.state = ReviewState::Dismissed)
        });
        let body = json!({"action": "dismissed", "pull_request": {"number": key.number()}, "review": {"state": "dismissed", "body": ""}});
        self.send_webhook("pull_request_review", key, body, "ada");
    }

    /// Sets the label of a change, with or without a webhook.
    pub fn label(&self, key: &ChangeKey, label: &str, announcement: Announcement) {
        self.edit(key, |facts| facts.labels = vec![label.to_owned()]);
        if announcement == Announcement::Webhook {
            let body =
                json!({"action": "labeled", "number": key.number(), "label": {"name": label}});
            self.send_webhook("pull_request", key, body, "ada");
        }
    }

    /// Removes a label and sends a webhook.
    pub fn unlabel(&self, key: &ChangeKey, label: &str) {
        self.edit(key, |facts| facts.labels.clear());
        let body = json!({"action": "unlabeled", "number": key.number(), "label": {"name": label}});
        self.send_webhook("pull_request", key, body, "ada");
    }

    /// Comments on a change as its author and sends a webhook.
    pub fn comment(&self, key: &ChangeKey, text: &str) {
        self.comment_by(key, text, "ada");
    }

    /// Comments on a change as this user and sends a webhook.
    pub fn comment_by(&self, key: &ChangeKey, text: &str, by: &str) {
        self.edit(key, |_| {});
        let issue = json!({"number": key.number(), "pull_request": {}});
        let body = json!({"action": "created", "issue": issue, "comment": {"body": text}});
        self.send_webhook("issue_comment", key, body, by);
    }

    /// Closes a change without merging it, and sends a webhook.
    pub fn close(&self, key: &ChangeKey) {
        self.edit(key, |facts| facts.status = ChangeStatus::Closed);
        self.send_webhook(
            "pull_request",
            key,
            json!({"action": "closed", "number": key.number()}),
            "ada",
        );
    }

    /// Reopens a change and sends a webhook.
    pub fn reopen(&self, key: &ChangeKey) {
        self.edit(key, |facts| facts.status = ChangeStatus::Open);
        self.send_webhook(
            "pull_request",
            key,
            json!({"action": "reopened", "number": key.number()}),
            "ada",
        );
    }

    /// Replaces the description of a change, with or without a webhook.
    pub fn describe(&self, key: &ChangeKey, body: &str, announcement: Announcement) {
        self.edit(key, |facts| {
            facts.message = body.to_owned();
            facts.depends_on = depends_on(body);
        });
        if announcement == Announcement::Webhook {
            self.send_webhook(
                "pull_request",
                key,
                json!({"action": "edited", "number": key.number()}),
                "ada",
            );
        }
    }

    /// Merges a change as a third party and sends webhooks.
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
        self.send_webhook(
            "pull_request",
            key,
            json!({"action": "closed", "number": key.number()}),
            "ada",
        );
        self.send_push_webhook(
            &key.project,
            &format!("refs/heads/{}", branch.branch),
            &tip.id,
            &merged,
            "ada",
        );
    }

    /// Marks a change as merged without a merge request and without a webhook.
    pub fn merge_silently(&self, key: &ChangeKey) {
        if let Some(played_change) = self.state().changes.get_mut(key) {
            played_change.facts.status = ChangeStatus::Merged;
        }
    }
}
