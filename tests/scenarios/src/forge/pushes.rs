//! What people push to the played forge: branches that move, tags, branches that go.

use super::*;

/// A push of ours that is made late, among those that are never answered.
pub(super) struct Late {
    /// Pushes that are sent before it.
    pushes_before: usize,
    /// The name of the call right before which it is made, and how many of that name come before.
    call: &'static str,
    calls_before: usize,
    /// The push, once it was sent.
    sent: Option<(BranchKey, Oid, Oid)>,
}

impl PlayedForge {
    /// Answers no push of ours from now on. The one behind `pushes_before` others is made: right
    /// before a call of this name, of which `calls_before` others come between. The others never
    /// are.
    pub fn answer_no_push(&self, pushes_before: usize, call: &'static str, calls_before: usize) {
        self.state().late = Some(Late { pushes_before, call, calls_before, sent: None });
    }

    /// Returns whether a push has no answer; the one that is made late is kept until then.
    pub(super) fn is_left_unanswered(&self, branch: &BranchKey, from: &Oid, to: &Oid) -> bool {
        let mut state = self.state();
        let Some(late) = &mut state.late else { return false };
        match late.pushes_before.checked_sub(1) {
            Some(before) => late.pushes_before = before,
            None if late.sent.is_none() => {
                late.sent = Some((branch.clone(), from.clone(), to.clone()))
            }
            None => {}
        }
        true
    }

    /// Makes the push that was sent and not answered, if this is the call before which it is made.
    pub(super) fn make_late(&self, call: &str) {
        let mut state = self.state();
        let Some(late) =
            state.late.as_mut().filter(|late| late.sent.is_some() && late.call == call)
        else {
            return;
        };
        if let Some(before) = late.calls_before.checked_sub(1) {
            late.calls_before = before;
            return;
        }
        // It is made once: no later call is of a name like that.
        late.call = "";
        let sent = late.sent.clone();
        drop(state);
        if let Some((branch, from, to)) = sent {
            // A branch that is elsewhere by then stays there.
            let _ = self.move_now(&branch, &from, &to);
        }
    }

    /// Pushes to a branch behind everybody's back; nobody is told. A file of which the text is
    /// [`REMOVED`] goes.
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

    /// Makes a branch that is where another one is; nobody is told.
    pub fn branch_off(&self, project: &str, from: &str, name: &str) {
        let at = |branch: &str| BranchKey {
            project: ProjectName::new("forge.test", project),
            branch: branch.into(),
        };
        let mut store = self.store.lock().unwrap();
        let tip = store.tip(&at(from)).expect("the branch exists");
        store.set(&at(name), &tip.id);
    }

    /// Guards a branch, and locks it if it is to be; nobody is told.
    pub fn guard(&self, project: &str, branch: &str, is_locked: bool) {
        let key =
            BranchKey { project: ProjectName::new("forge.test", project), branch: branch.into() };
        self.state().guarded.insert(key, is_locked);
    }

    /// Says that a ref moved, whether it did or not.
    pub fn claim_push(&self, project: &str, git_ref: &str, before: &Oid, after: &Oid) {
        self.tell_push(&ProjectName::new("forge.test", project), git_ref, before, after, "mallory");
    }

    /// Has a ref lead to no commit, as a tag of a file does; nobody is told.
    pub fn lead_to_no_commit(&self, project: &str, git_ref: &str) {
        self.state().odd_refs.insert((ProjectName::new("forge.test", project), git_ref.to_owned()));
    }

    /// Has no branch or tag that is asked for be there, or be shown again.
    pub fn hide_refs(&self, are_hidden: bool) {
        self.state().hides_refs = are_hidden;
    }

    /// Returns where a branch is.
    pub fn tip(&self, branch: &BranchKey) -> Oid {
        self.store.lock().unwrap().tip(branch).expect("the branch exists").id
    }

    /// Pushes to a branch, a new one if it is not there, and says so.
    pub fn push(&self, branch: &BranchKey, edits: &[(&str, &str)]) {
        let is_new = self.store.lock().unwrap().tip(branch).is_none();
        if is_new {
            self.branch_off(branch.project.name(), "main", branch.branch.as_str());
        }
        let before = self.store.lock().unwrap().tip(branch).map_or_else(Oid::zero, |tip| tip.id);
        let before = if is_new { Oid::zero() } else { before };
        self.push_silently(branch, edits);
        let after = self.store.lock().unwrap().tip(branch).expect("it was pushed").id;
        self.tell_push(
            &branch.project,
            &format!("refs/heads/{}", branch.branch),
            &before,
            &after,
            "ada",
        );
    }

    /// Puts a branch where it was before, by force, and says so.
    pub fn push_back(&self, branch: &BranchKey, to: &Oid) {
        let before = self.tip(branch);
        self.store.lock().unwrap().set(branch, to);
        self.tell_push(
            &branch.project,
            &format!("refs/heads/{}", branch.branch),
            &before,
            to,
            "ada",
        );
    }

    /// Puts a tag on what a branch is, and says so.
    pub fn tag(&self, branch: &BranchKey, tag: &str) {
        let mut store = self.store.lock().unwrap();
        let tip = store.tip(branch).expect("the branch exists").id;
        store.set_tag(&branch.project, tag, &tip);
        drop(store);
        self.tell_push(&branch.project, &format!("refs/tags/{tag}"), &Oid::zero(), &tip, "ada");
    }

    /// Deletes a branch, and says so.
    pub fn delete_branch(&self, branch: &BranchKey) {
        let before = self.store.lock().unwrap().delete(branch).expect("the branch exists");
        self.tell_push(
            &branch.project,
            &format!("refs/heads/{}", branch.branch),
            &before,
            &Oid::zero(),
            "ada",
        );
    }

    pub(super) fn tell_push(
        &self,
        project: &ProjectName,
        git_ref: &str,
        before: &Oid,
        after: &Oid,
        sender: &str,
    ) {
        if project.host() == gerrit::REVIEW {
            return self.say_moved(project, git_ref, before, after);
        }
        let about = ChangeKey::change("github".into(), project.clone(), 0);
        self.tell(
            "push",
            &about,
            json!({"ref": git_ref, "before": before, "after": after}),
            sender,
        );
    }
}
