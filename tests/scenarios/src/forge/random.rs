//! What the simulator has people and the forge do besides: new revisions, merges by hand, answers
//! that are behind the times.

use super::{Kept, PlayedForge, dismissed, key};
use serde_json::json;
use sluice_forge::ForgeError;
use sluice_model::Timestamp;
use sluice_model::change::{ChangeFacts, ChangeKey, ChangeStatus};
use sluice_model::git::{BranchKey, Commit};
use std::collections::BTreeMap;

/// What changes were, for a forge whose answers are behind the times.
#[derive(Default)]
pub(super) struct Past {
    /// Per change: what it was, until when.
    was: BTreeMap<ChangeKey, Vec<(Timestamp, ChangeFacts)>>,
    behind_millis: u64,
    is_blind: bool,
    tells_whole_seconds: bool,
}

impl Past {
    /// Notes what a change is until now; of no use to a forge that was never behind.
    pub(super) fn note(&mut self, facts: &ChangeFacts, now: Timestamp) {
        self.was.entry(facts.change.key.clone()).or_default().push((now, facts.clone()));
    }

    /// Returns what the forge calls the time of a move.
    pub(super) fn moment(&self, now: Timestamp) -> Timestamp {
        if self.tells_whole_seconds { Timestamp(now.0 / 1_000 * 1_000) } else { now }
    }

    /// Returns what the forge shows of a change that is `facts` now, if anything.
    pub(super) fn shown(&self, facts: &ChangeFacts, now: Timestamp) -> Option<ChangeFacts> {
        let then = Timestamp(now.0.saturating_sub(self.behind_millis));
        let was =
            self.was.get(&facts.change.key).into_iter().flatten().find(|(until, _)| *until > then);
        (!self.is_blind).then(|| was.map_or_else(|| facts.clone(), |(_, was)| was.clone()))
    }
}

/// What readers were shown, where it is kept who reads.
#[derive(Default)]
pub(super) struct Readings {
    reader: Option<u64>,
    shown: BTreeMap<u64, Shown>,
    /// With each merge what the one who asked for it had been shown.
    merges: Vec<Shown>,
}

/// Changes as somebody was shown them last.
pub type Shown = BTreeMap<ChangeKey, ChangeFacts>;

impl Readings {
    /// Notes that somebody is shown a change.
    pub(super) fn note(&mut self, facts: &ChangeFacts) {
        if let Some(reader) = self.reader {
            self.shown.entry(reader).or_default().insert(facts.change.key.clone(), facts.clone());
        }
    }

    /// Returns what whoever asks now was shown.
    pub(super) fn now(&self) -> Shown {
        self.reader.and_then(|reader| self.shown.get(&reader)).cloned().unwrap_or_default()
    }

    /// Notes that somebody had a change merged.
    pub(super) fn merged(&mut self) {
        let shown = self.now();
        self.merges.push(shown);
    }
}

impl PlayedForge {
    /// Says who asks from now on, so that [`Self::shown_before_merge`] tells what they knew.
    pub fn set_reader(&self, reader: u64) {
        self.state().readings.reader = Some(reader);
    }

    /// Says that somebody asks no more.
    pub fn forget_reader(&self, reader: u64) {
        self.state().readings.shown.remove(&reader);
    }

    /// Returns what the one who asked for a merge had been shown of changes last, by the merge's
    /// number.
    pub fn shown_before_merge(&self, merge: usize) -> Shown {
        self.state().readings.merges.get(merge).cloned().unwrap_or_default()
    }

    /// Has changes be shown as they were so many milliseconds ago.
    pub fn set_behind(&self, millis: u64) {
        self.state().past.behind_millis = millis;
    }

    /// Has every change that is asked for be said not to exist, or no more.
    pub fn set_blind(&self, is_blind: bool) {
        self.state().past.is_blind = is_blind;
    }

    /// Has no change be listed as open, whatever is.
    pub fn list_nothing(&self, is_so: bool) {
        self.state().lists_nothing = is_so;
    }

    /// Has times be told to the second, as GitHub does.
    pub fn tell_whole_seconds(&self) {
        self.state().past.tells_whole_seconds = true;
    }

    /// Has merges be carried out again.
    pub fn accept_merges(&self) {
        self.state().refusal = None;
    }

    /// Uploads a new revision that edits files of its branch as that is now, and says so. As where
    /// stale reviews are dismissed, its approval is gone.
    pub fn revise_from_tip(&self, change: &ChangeKey, edits: &[(&str, &str)]) {
        let Some(branch) = self.change(change).map(|kept| kept.facts.change.branch) else { return };
        let branch = BranchKey { project: change.project.clone(), branch };
        let mut store = self.store.lock().unwrap();
        let base = store.tip(&branch).expect("the branch exists");
        let mut tree = store.tree(&base.id).clone();
        for (path, text) in edits {
            tree.insert((*path).to_owned(), (*text).to_owned());
        }
        let head = store.commit(tree, vec![base.id.clone()], &format!("{change} again")).id;
        let files = store.touched(&base.id, &head);
        drop(store);
        self.edit(change, |facts| {
            facts.change.head = head.clone();
            facts.change.patchset = head.0.clone();
            facts.files = Some(files);
            dismissed(facts);
            facts.statuses.clear();
        });
        self.tell(
            "pull_request",
            change,
            json!({"action": "synchronize", "number": change.number()}),
            "ada",
        );
    }

    /// Merges a change by hand, as a person with the rights to may, and says so. Returns what the
    /// branch is then; `None` when it does not merge.
    pub fn merge_by_hand(&self, change: &ChangeKey) -> Option<Commit> {
        let (branch, head) = {
            let state = self.state();
            let kept =
                state.changes.get(change).filter(|kept| kept.facts.status == ChangeStatus::Open)?;
            let branch = BranchKey {
                project: change.project.clone(),
                branch: kept.facts.change.branch.clone(),
            };
            (branch, kept.facts.change.head.clone())
        };
        let (before, commit) = {
            let mut store = self.store.lock().unwrap();
            let tip = store.tip(&branch)?;
            let commit = store.merge(&tip.id, &head, "by hand").ok()?;
            store.set(&branch, &commit.id);
            (tip, commit)
        };
        self.edit(change, |facts| {
            facts.status = ChangeStatus::Merged;
            facts.merge_commit = Some(commit.id.clone());
        });
        self.tell(
            "pull_request",
            change,
            json!({"action": "closed", "number": change.number()}),
            "ada",
        );
        let push = json!({"ref": format!("refs/heads/{}", branch.branch), "before": before.id.0, "after": commit.id.0});
        self.tell("push", change, push, "ada");
        Some(commit)
    }

    /// Returns every change.
    pub fn changes(&self) -> Vec<Kept> {
        self.state().changes.values().cloned().collect()
    }

    /// Returns how many changes were merged by the forge's merge call or by a push of ours so far.
    pub fn merge_count(&self) -> usize {
        self.state().merges.len()
    }

    /// Says something about a change once more, under an id of its own.
    ///
    /// # Errors
    /// When there is no such change.
    pub fn tell_again(&self, project: &str, number: u64) -> Result<(), ForgeError> {
        let change = key(project, number);
        if !self.state().changes.contains_key(&change) {
            return Err(Self::not_found(change));
        }
        self.tell("pull_request", &change, json!({"action": "edited", "number": number}), "ada");
        Ok(())
    }
}
