//! The played forge as a Gerrit: chains of changes, votes, topics, hashtags, work in progress, and
//! Gerrit events.
//!
//!  Its projects are below `review.test`, its connection is `gerrit`. A test reads its events from
//! it like from a stream.

use super::*;
use sluice_model::event::{EventKind, ForgeEvent};
use sluice_model::gerrit::{CastVote, GerritEvent, Vote};

/// The host of its projects.
pub const REVIEW: &str = "review.test";

/// Returns the key of a change of the played Gerrit.
pub fn review(project: &str, number: u64) -> ChangeKey {
    ChangeKey::change("gerrit".into(), ProjectName::new(REVIEW, project), number)
}

/// Returns the change that a page of either forge shows.
pub(super) fn change_at(url: &str) -> Option<ChangeKey> {
    let (project, number) = url.strip_prefix("https://")?.split_once("/pull/")?;
    let (host, project) = project.split_once('/')?;
    let of = if host == REVIEW { review } else { key };
    (host == REVIEW || host == "forge.test").then_some(of(project, number.parse().ok()?))
}

impl PlayedForge {
    /// Uploads a change that edits files on top of another change or of its branch, and sends an
    /// event.
    pub fn upload(
        &self,
        project: &str,
        number: u64,
        parent: Option<&ChangeKey>,
        edits: &[(&str, &str)],
    ) -> ChangeKey {
        self.upload_for(project, "main", number, parent, "", edits)
    }

    /// Uploads a change for a branch, with a message that may contain dependencies, and sends an
    /// event.
    pub fn upload_for(
        &self,
        project: &str,
        branch: &str,
        number: u64,
        parent: Option<&ChangeKey>,
        message: &str,
        edits: &[(&str, &str)],
    ) -> ChangeKey {
        let key = review(project, number);
        let head = self.built_on(&key, branch, parent, edits);
        let change =
            ChangeRef { key: key.clone(), branch: branch.into(), head, patchset: "1".to_owned() };
        let updated_at = self.state().past.moment(self.world.now());
        let facts = ChangeFacts {
            title: format!("change {number}"),
            message: message.to_owned(),
            author: "ada".to_owned(),
            url: self.page(&key),
            files: Some(paths(edits)),
            parents: parent.into_iter().cloned().collect(),
            depends_on: depends_on(message),
            mergeable: Some(true),
            updated_at,
            ..ChangeFacts::bare(change, Timestamp(0))
        };
        let played_change = PlayedChange {
            facts,
            comments: BTreeMap::new(),
            lines: BTreeMap::new(),
            ranges: BTreeMap::new(),
            reviews: BTreeMap::new(),
        };
        self.state().changes.insert(key.clone(), played_change);
        self.stream_gerrit_event(
            &key,
            GerritEvent { r#type: "patchset-created".to_owned(), ..GerritEvent::default() },
        );
        key
    }

    /// Uploads another patchset on top of another parent and sends an event. The votes are removed.
    pub fn rebase(&self, key: &ChangeKey, parent: Option<&ChangeKey>, edits: &[(&str, &str)]) {
        let Some(branch) = self.change(key).map(|played_change| played_change.facts.change.branch)
        else {
            return;
        };
        let head = self.built_on(key, branch.as_str(), parent, edits);
        self.edit(key, |facts| {
            let patchset: u64 = facts.change.patchset.parse().unwrap_or_default();
            facts.files = Some(paths(edits));
            facts.change =
                ChangeRef { head, patchset: (patchset + 1).to_string(), ..facts.change.clone() };
            facts.parents = parent.into_iter().cloned().collect();
            facts.votes.clear();
        });
        self.stream_gerrit_event(
            key,
            GerritEvent { r#type: "patchset-created".to_owned(), ..GerritEvent::default() },
        );
    }

    /// Votes on a change with a comment and sends an event.
    pub fn vote(&self, key: &ChangeKey, label: &str, value: i64) {
        let (now, by) = (self.world.now(), "grace".to_owned());
        let mut before = None;
        self.edit(key, |facts| {
            let is_same = |vote: &Vote| vote.label == label && vote.username == by;
            before =
                facts.votes.iter().find(|vote| is_same(vote)).map(|vote| vote.value).or(Some(0));
            facts.votes.retain(|vote| !is_same(vote));
            let (label, username) = (label.to_owned(), by.clone());
            facts.votes.extend((value != 0).then_some(Vote {
                label,
                value,
                username,
                email: None,
                cast_at: now,
            }));
        });
        let votes = vec![CastVote { label: label.to_owned(), value, before }];
        let (r#type, comment) =
            ("comment-added".to_owned(), Some(format!("Patch Set: {label}{value:+}")));
        self.stream_gerrit_event(
            key,
            GerritEvent { r#type, comment, votes, ..GerritEvent::default() },
        );
    }

    /// Marks a change as work in progress or ready, and sends an event.
    pub fn set_work_in_progress(&self, key: &ChangeKey, draft: DraftState) {
        self.edit(key, |facts| facts.draft = draft == DraftState::Draft);
        self.stream_gerrit_event(
            key,
            GerritEvent { r#type: "wip-state-changed".to_owned(), ..GerritEvent::default() },
        );
    }

    /// Sets whether the submit requirements of a change are met, without an event.
    pub fn set_submit_requirements(&self, key: &ChangeKey, requirements: SubmitRequirements) {
        self.edit(key, |facts| facts.submittable = Some(requirements == SubmitRequirements::Met));
    }

    /// Adds a hashtag and sends an event.
    pub fn hashtag(&self, key: &ChangeKey, tag: &str) {
        self.edit(key, |facts| facts.labels.push(tag.to_owned()));
        let added = vec![tag.to_owned()];
        self.stream_gerrit_event(
            key,
            GerritEvent { r#type: "hashtags-changed".to_owned(), added, ..GerritEvent::default() },
        );
    }

    /// Makes every topic have more changes than Sluice reads.
    pub fn enlarge_topics(&self) {
        self.state().has_large_topics = true;
    }

    /// Sets the topic of changes without an event.
    pub fn topic(&self, keys: &[&ChangeKey], topic: &str) {
        for key in keys {
            self.edit(key, |facts| facts.topic = Some(topic.to_owned()));
        }
    }

    /// Sets or removes the topic of a change, and sends an event.
    pub fn put_into_topic(&self, key: &ChangeKey, topic: Option<&str>) {
        self.edit(key, |facts| facts.topic = topic.map(str::to_owned));
        self.stream_gerrit_event(
            key,
            GerritEvent { r#type: "topic-changed".to_owned(), ..GerritEvent::default() },
        );
    }

    /// Abandons a change and sends an event.
    pub fn abandon(&self, key: &ChangeKey) {
        self.edit(key, |facts| facts.status = ChangeStatus::Closed);
        self.stream_gerrit_event(
            key,
            GerritEvent { r#type: "change-abandoned".to_owned(), ..GerritEvent::default() },
        );
    }

    /// Requests a sweep of the change's project, as the timer does for other forges.
    pub fn request_sweep(&self, key: &ChangeKey) {
        self.stream(key, EventKind::Sweep);
    }

    /// Puts an event that was taken from the stream back into it.
    pub fn deliver_late(&self, event: ForgeEvent) {
        self.state().stream_events.push_back(event);
    }

    /// Removes and returns the oldest event of the stream, if any.
    pub fn next_stream_event(&self) -> Option<ForgeEvent> {
        self.state().stream_events.pop_front()
    }

    /// Returns the number of each change that was read, once per read.
    pub fn read_numbers(&self) -> Vec<u64> {
        self.state().read_keys.iter().filter_map(ChangeKey::number).collect()
    }

    pub(super) fn of_topic(&self, topic: &str) -> Vec<ChangeKey> {
        let state = self.state();
        let facts = state.changes.values().map(|played_change| &played_change.facts);
        let of = |facts: &&ChangeFacts| {
            facts.status == ChangeStatus::Open && facts.topic.as_deref() == Some(topic)
        };
        facts.filter(of).map(|facts| facts.change.key.clone()).collect()
    }

    /// Returns the URL of a change.
    pub(super) fn page(&self, key: &ChangeKey) -> String {
        let number = key.number().unwrap_or_default();
        format!("https://{}/pull/{number}", key.project)
    }

    fn built_on(
        &self,
        key: &ChangeKey,
        branch: &str,
        parent: Option<&ChangeKey>,
        edits: &[(&str, &str)],
    ) -> Oid {
        let branch = BranchKey { project: key.project.clone(), branch: branch.into() };
        let parent = parent.and_then(|parent| Some(self.change(parent)?.facts.change.head));
        let mut store = self.store.lock().unwrap();
        let base = parent.unwrap_or_else(|| store.tip(&branch).expect("the branch exists").id);
        let mut tree = store.tree(&base).clone();
        for (path, text) in edits {
            tree.insert((*path).to_owned(), (*text).to_owned());
        }
        store.commit(tree, vec![base], &format!("change {key}")).id
    }

    fn stream_gerrit_event(&self, key: &ChangeKey, event: GerritEvent) {
        let number = key.number().unwrap_or_default();
        let event = GerritEvent { number, username: "grace".to_owned(), ..event };
        self.stream(key, EventKind::Gerrit(event));
    }

    fn stream(&self, key: &ChangeKey, kind: EventKind) {
        let (connection, project) = (key.connection.clone(), key.project.clone());
        self.state().stream_events.push_back(ForgeEvent {
            connection,
            project,
            sender: "grace".to_owned(),
            kind,
        });
    }

    /// Sends a Gerrit event about a ref update.
    pub(super) fn stream_ref_update(
        &self,
        project: &ProjectName,
        git_ref: &str,
        before: &Oid,
        after: &Oid,
    ) {
        let about = ChangeKey::change("gerrit".into(), project.clone(), 0);
        let (git_ref, oldrev, newrev) = (git_ref.to_owned(), before.clone(), after.clone());
        self.stream(&about, EventKind::Push { git_ref, oldrev, newrev });
    }

    /// Sends the Gerrit events of a merge.
    pub(super) fn stream_merge(
        &self,
        key: &ChangeKey,
        branch: &BranchName,
        before: &Oid,
        after: &Oid,
    ) {
        self.stream_gerrit_event(
            key,
            GerritEvent { r#type: "change-merged".to_owned(), ..GerritEvent::default() },
        );
        self.stream_ref_update(&key.project, &format!("refs/heads/{branch}"), before, after);
    }
}

/// Returns the paths of edits.
fn paths(edits: &[(&str, &str)]) -> Vec<String> {
    edits.iter().map(|(path, _)| (*path).to_owned()).collect()
}
