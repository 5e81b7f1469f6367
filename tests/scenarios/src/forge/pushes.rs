//! What users push to the played forge: branch updates, tags, branch deletions.

use super::*;

/// An unanswered push of Sluice that takes effect late.
pub(super) struct DelayedPush {
    /// Unanswered pushes that are sent before it.
    pushes_before: usize,
    /// The call right before which it takes effect.
    call: &'static str,
    /// How many calls of that name come before that one.
    calls_before: usize,
    /// The push, once it was sent.
    sent: Option<(BranchKey, Oid, Oid)>,
}

impl PlayedForge {
    /// Answers no push from now on. The one after `pushes_before` others takes effect right before
    /// a call of this name, after `calls_before` others. The remaining pushes never take effect.
    pub fn answer_no_push(&self, pushes_before: usize, call: &'static str, calls_before: usize) {
        self.state().delayed_push =
            Some(DelayedPush { pushes_before, call, calls_before, sent: None });
    }

    /// Returns whether a push gets no answer. Remembers the push if it is the delayed one.
    pub(super) fn is_left_unanswered(&self, branch: &BranchKey, from: &Oid, to: &Oid) -> bool {
        let mut state = self.state();
        let Some(late) = &mut state.delayed_push else { return false };
        match late.pushes_before.checked_sub(1) {
            Some(before) => late.pushes_before = before,
            None if late.sent.is_none() => {
                late.sent = Some((branch.clone(), from.clone(), to.clone()))
            }
            None => {}
        }
        true
    }

    /// Executes the delayed push if this is the call before which it takes effect.
    pub(super) fn make_delayed_push(&self, call: &str) {
        let mut state = self.state();
        let Some(late) =
            state.delayed_push.as_mut().filter(|late| late.sent.is_some() && late.call == call)
        else {
            return;
        };
        if let Some(before) = late.calls_before.checked_sub(1) {
            late.calls_before = before;
            return;
        }
        // It takes effect once: no later call has an empty name.
        late.call = "";
        let sent = late.sent.clone();
        drop(state);
        if let Some((branch, from, to)) = sent {
            // A branch that has moved in the meantime stays there.
            let _ = self.move_now(&branch, &from, &to);
        }
    }

    /// Pushes to a branch without a webhook. A file with the text [`REMOVED`] is removed.
    pub fn push_silently(&self, branch: &BranchKey, edits: &[(&str, &str)]) {
        let mut store = self.store.lock().unwrap();
        let tip = store.tip(branch).expect("the branch exists");
        let mut tree = store.tree(&tip.id).clone();
        for (path, text) in edits {
            match *text {
                REMOVED => tree.remove(*path),
                text => tree.insert((*path).to_owned(), text.to_owned()),
            };
        }
        let commit = store.commit(tree, vec![tip.id], "pushed");
        store.set(branch, &commit.id);
    }

    /// Creates a branch at the tip of another one, without a webhook.
    pub fn branch_off(&self, project: &str, from: &str, name: &str) {
        let at = |branch: &str| BranchKey {
            project: ProjectName::new("forge.test", project),
            branch: branch.into(),
        };
        let mut store = self.store.lock().unwrap();
        let tip = store.tip(&at(from)).expect("the branch exists");
        store.set(&at(name), &tip.id);
    }

    /// Sets the protection of a branch, without a webhook.
    pub fn protect(&self, project: &str, branch: &str, protection: PlayedProtection) {
        let key =
            BranchKey { project: ProjectName::new("forge.test", project), branch: branch.into() };
        self.state().protected.insert(key, protection);
    }

    /// Sends a webhook that says that a ref moved, whether it did or not.
    pub fn claim_push(&self, project: &str, git_ref: &str, before: &Oid, after: &Oid) {
        self.send_push_webhook(
            &ProjectName::new("forge.test", project),
            git_ref,
            before,
            after,
            "mallory",
        );
    }

    /// Makes a ref lead to no commit, like a tag of a file. No webhook is sent.
    pub fn lead_to_no_commit(&self, project: &str, git_ref: &str) {
        self.state().odd_refs.insert((ProjectName::new("forge.test", project), git_ref.to_owned()));
    }

    /// Hides or shows branches and tags in requests for a ref.
    pub fn set_ref_visibility(&self, visibility: Visibility) {
        self.state().ref_visibility = visibility;
    }

    /// Returns the tip of a branch.
    pub fn tip(&self, branch: &BranchKey) -> Oid {
        self.store.lock().unwrap().tip(branch).expect("the branch exists").id
    }

    /// Pushes to a branch, creates it if needed, and sends a webhook.
    pub fn push(&self, branch: &BranchKey, edits: &[(&str, &str)]) {
        let is_new = self.store.lock().unwrap().tip(branch).is_none();
        if is_new {
            self.branch_off(branch.project.name(), "main", branch.branch.as_str());
        }
        let before = self.store.lock().unwrap().tip(branch).map_or_else(Oid::zero, |tip| tip.id);
        let before = if is_new { Oid::zero() } else { before };
        self.push_silently(branch, edits);
        let after = self.store.lock().unwrap().tip(branch).expect("it was pushed").id;
        self.send_push_webhook(
            &branch.project,
            &format!("refs/heads/{}", branch.branch),
            &before,
            &after,
            "ada",
        );
    }

    /// Force-pushes a branch to an earlier commit and sends a webhook.
    pub fn push_back(&self, branch: &BranchKey, to: &Oid) {
        let before = self.tip(branch);
        self.store.lock().unwrap().set(branch, to);
        self.send_push_webhook(
            &branch.project,
            &format!("refs/heads/{}", branch.branch),
            &before,
            to,
            "ada",
        );
    }

    /// Tags the tip of a branch and sends a webhook.
    pub fn tag(&self, branch: &BranchKey, tag: &str) {
        let mut store = self.store.lock().unwrap();
        let tip = store.tip(branch).expect("the branch exists").id;
        store.set_tag(&branch.project, tag, &tip);
        drop(store);
        self.send_push_webhook(
            &branch.project,
            &format!("refs/tags/{tag}"),
            &Oid::zero(),
            &tip,
            "ada",
        );
    }

    /// Deletes a branch and sends a webhook.
    pub fn delete_branch(&self, branch: &BranchKey) {
        let before = self.store.lock().unwrap().delete(branch).expect("the branch exists");
        self.send_push_webhook(
            &branch.project,
            &format!("refs/heads/{}", branch.branch),
            &before,
            &Oid::zero(),
            "ada",
        );
    }

    pub(super) fn send_push_webhook(
        &self,
        project: &ProjectName,
        git_ref: &str,
        before: &Oid,
        after: &Oid,
        sender: &str,
    ) {
        if project.host() == gerrit::REVIEW {
            return self.stream_ref_update(project, git_ref, before, after);
        }
        let about = ChangeKey::change("github".into(), project.clone(), 0);
        self.send_webhook(
            "push",
            &about,
            json!({"ref": git_ref, "before": before, "after": after}),
            sender,
        );
    }
}
