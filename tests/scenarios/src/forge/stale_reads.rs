//! What only the simulator uses: stale reads, new revisions and manual merges.

use super::{PlayedChange, PlayedForge, Visibility, dismiss_reviews, key};
use serde_json::json;
use sluice_forge::ForgeError;
use sluice_model::Timestamp;
use sluice_model::change::{ChangeFacts, ChangeKey, ChangeStatus};
use sluice_model::git::{BranchKey, Commit};
use std::collections::BTreeMap;

/// Earlier states of changes, for a forge with stale reads.
#[derive(Default)]
pub(super) struct Past {
    /// Per change: its earlier states, each with the time until which it held.
    was: BTreeMap<ChangeKey, Vec<(Timestamp, ChangeFacts)>>,
    behind_millis: u64,
    visibility: Visibility,
    reports_whole_seconds: bool,
}

impl Past {
    /// Records the state of a change until now.
    pub(super) fn note(&mut self, facts: &ChangeFacts, now: Timestamp) {
        self.was.entry(facts.change.key.clone()).or_default().push((now, facts.clone()));
    }

    /// Returns the modification time that the forge reports.
    pub(super) fn moment(&self, now: Timestamp) -> Timestamp {
        if self.reports_whole_seconds { Timestamp(now.0 / 1_000 * 1_000) } else { now }
    }

    /// Returns what the forge shows of a change whose current state is `facts`, if anything.
    pub(super) fn shown(&self, facts: &ChangeFacts, now: Timestamp) -> Option<ChangeFacts> {
        let then = Timestamp(now.0.saturating_sub(self.behind_millis));
        let was =
            self.was.get(&facts.change.key).into_iter().flatten().find(|(until, _)| *until > then);
        self.visibility
            .is_shown()
            .then(|| was.map_or_else(|| facts.clone(), |(_, was)| was.clone()))
    }
}

/// What readers were shown, if readers are tracked.
#[derive(Default)]
pub(super) struct Readings {
    reader: Option<u64>,
    shown: BTreeMap<u64, Shown>,
    /// For each merge, what the reader that requested it had been shown.
    merges: Vec<Shown>,
}

/// The last state of each change that a reader was shown.
pub type Shown = BTreeMap<ChangeKey, ChangeFacts>;

impl Readings {
    /// Records that the current reader is shown a change.
    pub(super) fn note(&mut self, facts: &ChangeFacts) {
        if let Some(reader) = self.reader {
            self.shown.entry(reader).or_default().insert(facts.change.key.clone(), facts.clone());
        }
    }

    /// Returns what the current reader was shown.
    pub(super) fn now(&self) -> Shown {
        self.reader.and_then(|reader| self.shown.get(&reader)).cloned().unwrap_or_default()
    }

    /// Records a merge by the current reader.
    pub(super) fn merged(&mut self) {
        let shown = self.now();
        self.merges.push(shown);
    }
}

impl PlayedForge {
    /// Sets the reader of all following requests, for [`Self::shown_before_merge`].
    pub fn set_reader(&self, reader: u64) {
        self.state().readings.reader = Some(reader);
    }

    /// Forgets what a reader was shown.
    pub fn forget_reader(&self, reader: u64) {
        self.state().readings.shown.remove(&reader);
    }

    /// Returns the last states of changes that the reader had been shown when it requested the
    /// merge with this index.
    pub fn shown_before_merge(&self, merge: usize) -> Shown {
        self.state().readings.merges.get(merge).cloned().unwrap_or_default()
    }

    /// Shows changes as they were this many milliseconds ago.
    pub fn set_behind(&self, millis: u64) {
        self.state().past.behind_millis = millis;
    }

    /// Hides or shows all changes when they are read.
    pub fn set_change_visibility(&self, visibility: Visibility) {
        self.state().past.visibility = visibility;
    }

    /// Hides or shows open changes in listings.
    pub fn set_listing_visibility(&self, visibility: Visibility) {
        self.state().listing_visibility = visibility;
    }

    /// Reports times in whole seconds, as GitHub does.
    pub fn report_whole_seconds(&self) {
        self.state().past.reports_whole_seconds = true;
    }

    /// Accepts merges again.
    pub fn accept_merges(&self) {
        self.state().refusal = None;
    }

    /// Uploads a new revision that is based on the current tip of its branch, and sends a webhook.
    /// Its approval is dismissed as stale.
    pub fn revise_from_tip(&self, change: &ChangeKey, edits: &[(&str, &str)]) {
        let Some(branch) =
            self.change(change).map(|played_change| played_change.facts.change.branch)
        else {
            return;
        };
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
            dismiss_reviews(facts);
            facts.statuses.clear();
        });
        self.send_webhook(
            "pull_request",
            change,
            json!({"action": "synchronize", "number": change.number()}),
            "ada",
        );
    }

    /// Merges a change as an authorised user and sends webhooks. Returns the merge commit, or
    /// `None` if the change does not merge.
    pub fn merge_by_hand(&self, change: &ChangeKey) -> Option<Commit> {
        let (branch, head) = {
            let state = self.state();
            let played_change = state
                .changes
                .get(change)
                .filter(|played_change| played_change.facts.status == ChangeStatus::Open)?;
            let branch = BranchKey {
                project: change.project.clone(),
                branch: played_change.facts.change.branch.clone(),
            };
            (branch, played_change.facts.change.head.clone())
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
        self.send_webhook(
            "pull_request",
            change,
            json!({"action": "closed", "number": change.number()}),
            "ada",
        );
        let push = json!({"ref": format!("refs/heads/{}", branch.branch), "before": before.id.0, "after": commit.id.0});
        self.send_webhook("push", change, push, "ada");
        Some(commit)
    }

    /// Returns all changes.
    pub fn changes(&self) -> Vec<PlayedChange> {
        self.state().changes.values().cloned().collect()
    }

    /// Returns the number of changes that were merged by merge requests or by Sluice's pushes.
    pub fn merge_count(&self) -> usize {
        self.state().merges.len()
    }

    /// Sends another webhook about a change, with a new id.
    pub fn send_edited_webhook(&self, project: &str, number: u64) -> Result<(), ForgeError> {
        let change = key(project, number);
        if !self.state().changes.contains_key(&change) {
            return Err(Self::not_found(change));
        }
        self.send_webhook(
            "pull_request",
            &change,
            json!({"action": "edited", "number": number}),
            "ada",
        );
        Ok(())
    }
}
