//! The played forge as a Gerrit: chains of changes, votes, topics, hashtags, work in progress, and
//! events in Gerrit's words.
//!
//! Its projects are below `review.test`, its connection is `gerrit`; what it tells is taken from
//! it, as from a stream.

use super::*;
use sluice_model::event::{EventKind, ForgeEvent};
use sluice_model::gerrit::{CastVote, GerritEvent, Vote};

/// Where its projects are.
pub const REVIEW: &str = "review.test";

/// Returns the key of a change of the played Gerrit.
pub fn review(project: &str, number: u64) -> ChangeKey {
    ChangeKey::change("gerrit".into(), ProjectName::new(REVIEW, project), number)
}

/// Returns the change that a page of either forge is about.
pub(super) fn change_at(url: &str) -> Option<ChangeKey> {
    let (project, number) = url.strip_prefix("https://")?.split_once("/pull/")?;
    let (host, project) = project.split_once('/')?;
    let of = if host == REVIEW { review } else { key };
    (host == REVIEW || host == "forge.test").then_some(of(project, number.parse().ok()?))
}

impl PlayedForge {
    /// Uploads a change that edits files on top of others, or on its branch, and says so.
    pub fn upload(
        &self,
        project: &str,
        number: u64,
        parent: Option<&ChangeKey>,
        edits: &[(&str, &str)],
    ) -> ChangeKey {
        self.upload_for(project, ("main", number), parent, "", edits)
    }

    /// Uploads a change of this number for a branch, with a message that may name others, and says
    /// so.
    pub fn upload_for(
        &self,
        project: &str,
        (branch, number): (&str, u64),
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
        let kept = Kept {
            facts,
            comments: BTreeMap::new(),
            lines: BTreeMap::new(),
            ranges: BTreeMap::new(),
            reviews: BTreeMap::new(),
        };
        self.state().changes.insert(key.clone(), kept);
        self.say(
            &key,
            GerritEvent { r#type: "patchset-created".to_owned(), ..GerritEvent::default() },
        );
        key
    }

    /// Uploads another patchset of a change, on top of another one than before; its votes are gone.
    /// Says so.
    pub fn rebase(&self, key: &ChangeKey, parent: Option<&ChangeKey>, edits: &[(&str, &str)]) {
        let Some(branch) = self.change(key).map(|kept| kept.facts.change.branch) else { return };
        let head = self.built_on(key, branch.as_str(), parent, edits);
        self.edit(key, |facts| {
            let patchset: u64 = facts.change.patchset.parse().unwrap_or_default();
            facts.files = Some(paths(edits));
            facts.change =
                ChangeRef { head, patchset: (patchset + 1).to_string(), ..facts.change.clone() };
            facts.parents = parent.into_iter().cloned().collect();
            facts.votes.clear();
        });
        self.say(
            key,
            GerritEvent { r#type: "patchset-created".to_owned(), ..GerritEvent::default() },
        );
    }

    /// Votes on a change with a comment, and says so.
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
        self.say(key, GerritEvent { r#type, comment, votes, ..GerritEvent::default() });
    }

    /// Marks a change as work in progress or as ready, and says so.
    pub fn work_in_progress(&self, key: &ChangeKey, is_wip: bool) {
        self.edit(key, |facts| facts.draft = is_wip);
        self.say(
            key,
            GerritEvent { r#type: "wip-state-changed".to_owned(), ..GerritEvent::default() },
        );
    }

    /// Says whether the forge itself would let a change land; nobody is told.
    pub fn submit_requirements(&self, key: &ChangeKey, are_met: bool) {
        self.edit(key, |facts| facts.submittable = Some(are_met));
    }

    /// Puts a hashtag on, and says so.
    pub fn hashtag(&self, key: &ChangeKey, tag: &str) {
        self.edit(key, |facts| facts.labels.push(tag.to_owned()));
        let added = vec![tag.to_owned()];
        self.say(
            key,
            GerritEvent { r#type: "hashtags-changed".to_owned(), added, ..GerritEvent::default() },
        );
    }

    /// Has every topic have more changes than are read.
    pub fn enlarge_topics(&self) {
        self.state().has_large_topics = true;
    }

    /// Puts changes into a topic; nobody is told.
    pub fn topic(&self, keys: &[&ChangeKey], topic: &str) {
        for key in keys {
            self.edit(key, |facts| facts.topic = Some(topic.to_owned()));
        }
    }

    /// Puts a change into a topic, or takes it out of the one that it is in, and says so.
    pub fn put_into_topic(&self, key: &ChangeKey, topic: Option<&str>) {
        self.edit(key, |facts| facts.topic = topic.map(str::to_owned));
        self.say(key, GerritEvent { r#type: "topic-changed".to_owned(), ..GerritEvent::default() });
    }

    /// Gives a change up, and says so.
    pub fn abandon(&self, key: &ChangeKey) {
        self.edit(key, |facts| facts.status = ChangeStatus::Closed);
        self.say(
            key,
            GerritEvent { r#type: "change-abandoned".to_owned(), ..GerritEvent::default() },
        );
    }

    /// Has the changes of a change's project be compared with what is known of them, as the timer
    /// has those of other forges.
    pub fn have_compared(&self, key: &ChangeKey) {
        self.stream(key, EventKind::Sweep);
    }

    /// Tells something at last that was taken from the stream before.
    pub fn tell_late(&self, told: ForgeEvent) {
        self.state().told.push_back(told);
    }

    /// Takes the next event of the stream.
    pub fn next_told(&self) -> Option<ForgeEvent> {
        self.state().told.pop_front()
    }

    /// Returns the numbers of the changes that were read, each as often as it was.
    pub fn read_numbers(&self) -> Vec<u64> {
        self.state().read_keys.iter().filter_map(ChangeKey::number).collect()
    }

    pub(super) fn of_topic(&self, topic: &str) -> Vec<ChangeKey> {
        let state = self.state();
        let facts = state.changes.values().map(|kept| &kept.facts);
        let of = |facts: &&ChangeFacts| {
            facts.status == ChangeStatus::Open && facts.topic.as_deref() == Some(topic)
        };
        facts.filter(of).map(|facts| facts.change.key.clone()).collect()
    }

    /// Returns the page of a change.
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

    fn say(&self, key: &ChangeKey, told: GerritEvent) {
        let number = key.number().unwrap_or_default();
        let told = GerritEvent { number, username: "grace".to_owned(), ..told };
        self.stream(key, EventKind::Gerrit(told));
    }

    fn stream(&self, key: &ChangeKey, kind: EventKind) {
        let (connection, project) = (key.connection.clone(), key.project.clone());
        self.state().told.push_back(ForgeEvent {
            connection,
            project,
            sender: "grace".to_owned(),
            kind,
        });
    }

    /// Says in Gerrit's way that a ref moved.
    pub(super) fn say_moved(
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

    /// Says in Gerrit's words what a merge made.
    pub(super) fn say_merged(
        &self,
        key: &ChangeKey,
        branch: &BranchName,
        before: &Oid,
        after: &Oid,
    ) {
        self.say(key, GerritEvent { r#type: "change-merged".to_owned(), ..GerritEvent::default() });
        self.say_moved(&key.project, &format!("refs/heads/{branch}"), before, after);
    }
}

/// Returns the paths of edits.
fn paths(edits: &[(&str, &str)]) -> Vec<String> {
    edits.iter().map(|(path, _)| (*path).to_owned()).collect()
}
