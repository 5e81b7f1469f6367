//! A forge that a test controls: changes, reviews, statuses, comments, merges, and signed webhooks
//! about all of them.

use crate::repos::{Store, Tree};
use async_trait::async_trait;
use serde_json::{Value, json};
use sluice_forge::{
    Branch, CheckReport, CommitDetails, Forge, ForgeError, LineComment, Marker, MergeMessage,
    Protection, ReviewDecision, StatusReport, VoteReport, WebhookDelivery, depends_on,
};
use sluice_memory::World;
use sluice_model::change::{
    ChangeFacts, ChangeKey, ChangeRef, ChangeReview, ChangeStatus, CommitStatus, OpenChange,
    RepositoryPermission, ReviewState,
};
use sluice_model::event::ForgeEvent;
use sluice_model::git::{BranchKey, Commit, MergeMode, Oid};
use sluice_model::{BranchName, ConnectionName, ProjectName, Timestamp};
use sluice_runtime::{Clock, PortError};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};

mod change_actions;
pub mod gerrit;
mod merges;
mod proposals;
mod pushes;
mod queries;
mod stale_reads;
mod unanswered_webhooks;
mod votes;

pub use merges::Move;
pub use proposals::REMOVED;
pub use stale_reads::Shown;

/// Whether an action of a test causes a webhook.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Announcement {
    /// The forge sends a webhook.
    Webhook,
    /// The forge sends nothing.
    None,
}

impl Announcement {
    /// Returns [`Self::Webhook`] if `is_sent`.
    pub fn of(is_sent: bool) -> Self {
        if is_sent { Self::Webhook } else { Self::None }
    }
}

/// Whether the forge shows objects of some kind.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub enum Visibility {
    /// Requests return them.
    #[default]
    Shown,
    /// Requests return nothing, as if they did not exist.
    Hidden,
}

impl Visibility {
    /// Returns [`Self::Shown`] if `is_shown`.
    pub fn of(is_shown: bool) -> Self {
        if is_shown { Self::Shown } else { Self::Hidden }
    }

    /// Returns whether requests return the objects.
    pub fn is_shown(self) -> bool {
        self == Self::Shown
    }
}

/// Whether a change is a draft (work in progress) or ready for review.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DraftState {
    /// The change is a draft or work in progress.
    Draft,
    /// The change is ready for review.
    Ready,
}

impl DraftState {
    /// Returns [`Self::Draft`] if `is_draft`.
    pub fn of(is_draft: bool) -> Self {
        if is_draft { Self::Draft } else { Self::Ready }
    }
}

/// Whether Gerrit's submit requirements of a change are met.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SubmitRequirements {
    /// Gerrit would submit the change.
    Met,
    /// Gerrit would refuse to submit the change.
    Unmet,
}

/// How the forge protects a branch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PlayedProtection {
    /// The branch is protected and accepts changes.
    Protected,
    /// The branch is protected and accepts nothing.
    Locked,
}

/// The login that Sluice acts under.
pub const OWN: &str = "sluice[bot]";

/// A change of the played forge.
#[derive(Debug, Clone)]
pub struct PlayedChange {
    /// What the forge shows of the change.
    pub facts: ChangeFacts,
    /// Comments by marker, with how often each was written.
    pub comments: BTreeMap<String, (String, u32)>,
    /// Line comments by marker, as path, line and text.
    pub lines: BTreeMap<String, Vec<String>>,
    /// The first and last lines of multi-line comments, by marker.
    pub ranges: BTreeMap<String, Vec<(u32, u32)>>,
    /// Sluice's reviews by marker, as decision, head and text.
    pub reviews: BTreeMap<String, String>,
}

/// A webhook that was sent but not yet received.
#[derive(Debug, Clone)]
pub struct Webhook {
    /// `X-GitHub-Delivery`.
    pub id: String,
    /// `X-GitHub-Event`.
    pub event: String,
    /// The body.
    pub body: Vec<u8>,
}

#[derive(Default)]
struct State {
    changes: BTreeMap<ChangeKey, PlayedChange>,
    outgoing: VecDeque<Webhook>,
    unanswered: unanswered_webhooks::UnansweredWebhooks,
    /// Events for the event stream, as a Gerrit sends them.
    stream_events: VecDeque<ForgeEvent>,
    /// The changes that were read, in order.
    read_keys: Vec<ChangeKey>,
    sent: u64,
    merges: Vec<(ChangeKey, Commit)>,
    sabotage: Option<Tree>,
    refusal: Option<String>,
    /// The reason for which pushes are refused, if they are.
    push_refusal: Option<String>,
    /// Whether pushes land more commits than requested.
    overreaches: bool,
    /// Whether commits can be read.
    commit_visibility: Visibility,
    /// The branch moves made by Sluice's pushes.
    moves: Vec<Move>,
    /// The push that takes effect late, if pushes are not answered.
    delayed_push: Option<pushes::DelayedPush>,
    /// For how many seconds the next merge stays hidden. That merge is not answered.
    merges_unseen: Option<u64>,
    /// A merged change that is shown as open until this time.
    unseen: Option<(ChangeKey, Timestamp)>,
    past: stale_reads::Past,
    readings: stale_reads::Readings,
    reads: u64,
    limited_until: Option<Timestamp>,
    refused_for_now: u64,
    /// Protected branches with their protection.
    protected: BTreeMap<BranchKey, PlayedProtection>,
    /// Refs that do not lead to a commit.
    odd_refs: BTreeSet<(ProjectName, String)>,
    /// Whether topics have more changes than Sluice reads.
    has_large_topics: bool,
    /// Sluice's statuses by commit and context, with or without a change at that commit.
    statuses: BTreeMap<(Oid, String), PlayedStatus>,
    /// How many statuses were set.
    statuses_set: u64,
    /// Whether statuses set by Sluice cause webhooks.
    sends_own_status_webhooks: bool,
    /// Whether responses contain the forge's time.
    reports_time: bool,
    /// The last read that shows statuses, if later ones do not.
    statuses_until: Option<u64>,
    /// Whether open changes are listed.
    listing_visibility: Visibility,
    /// Whether branches and tags can be read.
    ref_visibility: Visibility,
}

/// A status that Sluice set on a commit.
struct PlayedStatus {
    state: String,
    number: u64,
    at: Timestamp,
}

/// A forge in memory that a test controls. It serves as GitHub and as Gerrit.
pub struct PlayedForge {
    world: World,
    store: Arc<Mutex<Store>>,
    state: Mutex<State>,
    /// The connection of this instance, if it differs from the one that the host implies.
    connection: Option<ConnectionName>,
}

impl PlayedForge {
    /// Makes a forge with these repositories.
    pub fn new(world: World, store: Arc<Mutex<Store>>) -> Self {
        Self { world, store, state: Mutex::default(), connection: None }
    }

    /// Returns the forge as seen through another connection to the same hosts. Its account sees no
    /// change.
    pub fn second_connection(&self, connection: &str) -> Self {
        Self {
            connection: Some(connection.into()),
            ..Self::new(self.world.clone(), self.store.clone())
        }
    }

    /// Gives all these changes the head of the first one.
    pub fn share_head(&self, keys: &[ChangeKey]) {
        let Some(head) = self.change(&keys[0]).map(|played_change| played_change.facts.change.head)
        else {
            return;
        };
        for key in keys {
            self.edit(key, |facts| {
                facts.change = ChangeRef {
                    head: head.clone(),
                    patchset: head.0.clone(),
                    ..facts.change.clone()
                }
            });
        }
    }

    /// Changes the target branch of a change and sends a webhook.
    pub fn retarget(&self, key: &ChangeKey, branch: &str) {
        self.edit(key, |facts| facts.change.branch = branch.into());
        self.send_webhook(
            "pull_request",
            key,
            json!({"action": "edited", "number": key.number()}),
            "ada",
        );
    }

    /// Makes the next merge add these files to the merged tree.
    pub fn sabotage(&self, extra: Tree) {
        self.state().sabotage = Some(extra);
    }

    /// Makes every merge fail with this message from now on.
    pub fn refuse_merges(&self, why: &str) {
        self.state().refusal = Some(why.to_owned());
    }

    /// Makes the next merge succeed without an answer, and hides it for this many seconds.
    pub fn merge_unseen(&self, seconds: u64) {
        self.state().merges_unseen = Some(seconds);
    }

    /// Removes and returns the oldest pending webhook, if any.
    pub fn next_webhook(&self) -> Option<Webhook> {
        self.state().outgoing.pop_front()
    }

    /// Refuses to set statuses for this many seconds, with the remaining time in the error.
    pub fn limit(&self, seconds: u64) {
        self.state().limited_until = Some(self.world.now().plus_seconds(seconds));
    }

    /// Edits a change and updates its modification time.
    fn edit(&self, key: &ChangeKey, edit: impl FnOnce(&mut ChangeFacts)) {
        let (now, mut state) = (self.world.now(), self.state());
        let State { changes, past, .. } = &mut *state;
        if let Some(played_change) = changes.get_mut(key) {
            past.note(&played_change.facts, now);
            edit(&mut played_change.facts);
            played_change.facts.updated_at = past.moment(now);
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    fn send_webhook(&self, event: &str, about: &ChangeKey, mut body: Value, sender: &str) {
        body["repository"] = json!({"full_name": about.project.name()});
        body["sender"] = json!({"login": sender});
        let mut state = self.state();
        state.sent += 1;
        let id = format!("delivery-{}", state.sent);
        state.outgoing.push_back(Webhook {
            id,
            event: event.to_owned(),
            body: body.to_string().into_bytes(),
        });
    }

    async fn step<T>(
        &self,
        name: &'static str,
        work: impl FnOnce() -> Result<T, ForgeError>,
    ) -> Result<T, ForgeError> {
        self.make_delayed_push(name);
        let mut refused = None;
        let answer = self.world.step(name, || {
            work().map_err(|error| {
                refused = Some(error);
                PortError::unknown(name, "refused")
            })
        });
        let answer = answer.await;
        answer
            .map_err(|error| refused.take().unwrap_or_else(|| ForgeError::unknown(name, error.why)))
    }

    fn not_found(what: impl std::fmt::Display) -> ForgeError {
        ForgeError::NotFound { attempted: format!("find {what}") }
    }
}

/// Marks every review of a change as dismissed.
fn dismiss_reviews(facts: &mut ChangeFacts) {
    for review in &mut facts.reviews {
        review.state = ReviewState::Dismissed;
    }
}

/// Returns the key of a change of the played forge.
pub fn key(project: &str, number: u64) -> ChangeKey {
    ChangeKey::change("github".into(), ProjectName::new("forge.test", project), number)
}

#[async_trait]
impl Forge for PlayedForge {
    fn change_at(&self, url: &str) -> Option<ChangeKey> {
        let key = gerrit::change_at(url)?;
        let connection = self.connection.clone().unwrap_or(key.connection);
        Some(ChangeKey { connection, project: key.project, id: key.id })
    }

    async fn read_change(&self, change: &ChangeKey) -> Result<ChangeFacts, ForgeError> {
        self.step("forge.read_change", || {
            let mut state = self.state();
            state.reads += 1;
            state.read_keys.push(change.clone());
            let now = self.world.now();
            let played_change = state.changes.get(change).ok_or_else(|| Self::not_found(change))?;
            let shown = state
                .past
                .shown(&played_change.facts, now)
                .ok_or_else(|| Self::not_found(change))?;
            let mut facts = ChangeFacts { seen_at: now, ..shown };
            if state.unseen.as_ref().is_some_and(|(unseen, until)| unseen == change && now < *until)
            {
                (facts.status, facts.merge_commit) = (ChangeStatus::Open, None);
            }
            if state.statuses_until.is_some_and(|last| state.reads > last) {
                facts.statuses.clear();
            }
            state.readings.note(&facts);
            Ok(facts)
        })
        .await
    }

    async fn open_changes(&self, project: &ProjectName) -> Result<Vec<OpenChange>, ForgeError> {
        self.step("forge.open_changes", || {
            let state = self.state();
            let facts = state.changes.values().map(|played_change| &played_change.facts);
            let is_listed = |facts: &&ChangeFacts| {
                facts.status == ChangeStatus::Open && state.listing_visibility.is_shown()
            };
            let open = facts.filter(is_listed).filter(|facts| facts.change.key.project == *project);
            Ok(open
                .map(|facts| OpenChange {
                    change: facts.change.clone(),
                    updated_at: facts.updated_at,
                })
                .collect())
        })
        .await
    }

    async fn open_changes_of_topic(&self, topic: &str) -> Result<Vec<ChangeKey>, ForgeError> {
        let are_large = self.state().has_large_topics;
        self.step("forge.open_changes_of_topic", || match are_large {
            true => Err(ForgeError::TooMany {
                attempted: format!("list the changes of the topic {topic}"),
                most: 100,
            }),
            false => Ok(self.of_topic(topic)),
        })
        .await
    }

    async fn changes_with_head(
        &self,
        project: &ProjectName,
        head: &Oid,
    ) -> Result<Vec<ChangeRef>, ForgeError> {
        let open = self.open_changes(project).await?.into_iter().map(|open| open.change);
        Ok(open.filter(|change| change.head == *head).collect())
    }

    async fn branches(&self, project: &ProjectName) -> Result<Vec<Branch>, ForgeError> {
        self.step("forge.branches", || {
            let branches = self.store.lock().unwrap().branches(project);
            let protection = |name: &BranchName| {
                let key = BranchKey { project: project.clone(), branch: name.clone() };
                if self.state().protected.contains_key(&key) {
                    Protection::Protected
                } else {
                    Protection::Open
                }
            };
            Ok(branches
                .into_iter()
                .map(|(name, tip)| Branch { protection: protection(&name), name, tip })
                .collect())
        })
        .await
    }

    async fn is_locked(&self, branch: &BranchKey) -> Result<Option<bool>, ForgeError> {
        self.step("forge.is_locked", || {
            Ok(self
                .state()
                .protected
                .get(branch)
                .map(|protection| *protection == PlayedProtection::Locked))
        })
        .await
    }

    async fn branch_tip(&self, branch: &BranchKey) -> Result<Commit, ForgeError> {
        self.step("forge.branch_tip", || {
            self.store.lock().unwrap().tip(branch).ok_or_else(|| Self::not_found(branch))
        })
        .await
    }

    async fn read_commit(&self, _: &ProjectName, id: &Oid) -> Result<CommitDetails, ForgeError> {
        self.step("forge.read_commit", || {
            let visibility = self.state().commit_visibility;
            let found = self.store.lock().unwrap().find(id).filter(|_| visibility.is_shown());
            let commit = found.ok_or_else(|| Self::not_found(id))?;
            Ok(CommitDetails { commit, parents: Vec::new(), message: String::new() })
        })
        .await
    }

    async fn set_status(
        &self,
        project: &ProjectName,
        head: &Oid,
        status: &StatusReport,
    ) -> Result<(), ForgeError> {
        self.step("forge.set_status", || {
            let mut state = self.state();
            let left = state
                .limited_until
                .map_or(0, |until| until.since(self.world.now()).div_ceil(1_000));
            if left > 0 {
                state.refused_for_now += 1;
                let attempted = "set a status".to_owned();
                return Err(ForgeError::RateLimited { attempted, retry_after_seconds: left });
            }
            let (at, value) = ((head.clone(), status.context.clone()), status.state.as_str());
            // Like the driver, which does not repeat a status for the same report.
            let is_it = |there: &PlayedStatus| {
                there.state == value && there.at.plus_seconds(2) >= status.wanted_at
            };
            let is_set = state.statuses.get(&at).is_some_and(is_it);
            if !is_set {
                state.statuses_set += 1;
                let played = PlayedStatus {
                    state: value.to_owned(),
                    number: state.statuses_set,
                    at: self.world.now(),
                };
                state.statuses.insert(at.clone(), played);
            }
            let number = state.statuses.get(&at).map(|there| there.number);
            let of_head = |played_change: &&mut PlayedChange| {
                played_change.facts.change.head == *head
                    && played_change.facts.change.key.project == *project
            };
            for played_change in state.changes.values_mut().filter(of_head) {
                played_change.facts.statuses.retain(|known| known.context != status.context);
                let (by, context) = (OWN.to_owned(), status.context.clone());
                played_change.facts.statuses.push(CommitStatus {
                    by,
                    context,
                    state: value.to_owned(),
                    is_check: false,
                    number,
                });
                played_change.facts.statuses.sort_by(|a, b| a.context.cmp(&b.context));
            }
            drop(state);
            if !is_set {
                self.send_own_status_webhook(project, head, status);
            }
            Ok(())
        })
        .await
    }

    async fn put_check_run(
        &self,
        _: &ProjectName,
        _: &Oid,
        _: &CheckReport,
    ) -> Result<(), ForgeError> {
        Ok(())
    }

    async fn put_comment(
        &self,
        change: &ChangeKey,
        marker: &Marker,
        text: &str,
    ) -> Result<(), ForgeError> {
        self.step("forge.put_comment", || {
            let (now, mut state) = (self.world.now(), self.state());
            let State { changes, past, .. } = &mut *state;
            let moment = past.moment(now);
            let played_change = changes.get_mut(change).ok_or_else(|| Self::not_found(change))?;
            past.note(&played_change.facts, now);
            let entry = played_change
                .comments
                .entry(marker.as_str().to_owned())
                .or_insert((String::new(), 0));
            *entry = (text.to_owned(), entry.1 + 1);
            played_change.facts.updated_at = moment;
            Ok(())
        })
        .await
    }

    async fn change_labels(
        &self,
        change: &ChangeKey,
        add: &[String],
        remove: &[String],
    ) -> Result<(), ForgeError> {
        self.step("forge.change_labels", || {
            let mut state = self.state();
            let played_change =
                state.changes.get_mut(change).ok_or_else(|| Self::not_found(change))?;
            played_change
                .facts
                .labels
                .retain(|label| !remove.contains(label) && !add.contains(label));
            played_change.facts.labels.extend(add.iter().cloned());
            played_change.facts.labels.sort();
            Ok(())
        })
        .await
    }

    async fn put_line_comments(
        &self,
        change: &ChangeRef,
        marker: &Marker,
        _: &str,
        comments: &[LineComment],
    ) -> Result<(), ForgeError> {
        self.step("forge.put_line_comments", || {
            let mut state = self.state();
            let played_change =
                state.changes.get_mut(&change.key).ok_or_else(|| Self::not_found(change))?;
            let is_shown = |path: &String| {
                played_change.facts.files.as_ref().is_some_and(|files| files.contains(path))
            };
            if !comments.iter().all(|comment| is_shown(&comment.path)) {
                // As GitHub: the whole review is refused.
                let (attempted, message) =
                    ("comment on lines".to_owned(), "not part of the diff".to_owned());
                return Err(ForgeError::Refused { attempted, status: 422, message });
            }
            let lines = comments
                .iter()
                .map(|comment| format!("{}:{}: {}", comment.path, comment.line, comment.text));
            let ranges =
                comments.iter().filter_map(|comment| Some((comment.start_line?, comment.line)));
            // Once for a marker, as the driver does.
            played_change
                .ranges
                .entry(marker.as_str().to_owned())
                .or_insert_with(|| ranges.collect());
            played_change
                .lines
                .entry(marker.as_str().to_owned())
                .or_insert_with(|| lines.collect());
            Ok(())
        })
        .await
    }

    async fn ref_tip(
        &self,
        project: &ProjectName,
        git_ref: &str,
    ) -> Result<Option<Commit>, ForgeError> {
        self.step("forge.ref_tip", || {
            if self.state().odd_refs.contains(&(project.clone(), git_ref.to_owned())) {
                return Err(Self::not_found(format!("a commit behind {git_ref}")));
            }
            let visibility = self.state().ref_visibility;
            Ok(self
                .store
                .lock()
                .unwrap()
                .ref_tip(project, git_ref)
                .filter(|_| visibility.is_shown()))
        })
        .await
    }

    fn page_of(&self, project: &ProjectName, commit: Option<&Oid>) -> String {
        match commit {
            Some(commit) => format!("https://{project}/commit/{commit}"),
            None => format!("https://{project}"),
        }
    }

    fn time(&self) -> Option<Timestamp> {
        self.state().reports_time.then(|| self.world.now())
    }

    async fn permission_of(
        &self,
        _: &ProjectName,
        login: &str,
    ) -> Result<RepositoryPermission, ForgeError> {
        let may = if ["ada", "grace"].contains(&login) {
            RepositoryPermission::Write
        } else {
            RepositoryPermission::Read
        };
        self.step("forge.permission_of", || Ok(may)).await
    }

    async fn put_review(
        &self,
        change: &ChangeRef,
        marker: &Marker,
        decision: ReviewDecision,
        text: &str,
    ) -> Result<(), ForgeError> {
        self.step("forge.put_review", || {
            let mut state = self.state();
            let played_change =
                state.changes.get_mut(&change.key).ok_or_else(|| Self::not_found(change))?;
            let review = format!("{} at {}: {text}", decision.as_str(), change.head);
            played_change.reviews.entry(marker.as_str().to_owned()).or_insert(review);
            Ok(())
        })
        .await
    }

    async fn put_votes(
        &self,
        change: &ChangeRef,
        marker: &Marker,
        report: &VoteReport,
    ) -> Result<(), ForgeError> {
        self.step("forge.put_votes", || self.vote_once(change, marker, report)).await
    }

    async fn merge(
        &self,
        change: &ChangeRef,
        mode: MergeMode,
        message: &MergeMessage,
    ) -> Result<Oid, ForgeError> {
        self.step("forge.merge", || self.merge_now(change, mode, message)).await
    }

    async fn fast_forward(
        &self,
        branch: &BranchKey,
        from: &Oid,
        to: &Oid,
        _: &[u8],
    ) -> Result<(), ForgeError> {
        self.step("forge.fast_forward", || match self.is_left_unanswered(branch, from, to) {
            true => Err(ForgeError::unknown(format!("move {branch}"), "no answer")),
            false => self.move_now(branch, from, to),
        })
        .await
    }

    async fn contains(&self, branch: &BranchKey, commit: &Oid) -> Result<bool, ForgeError> {
        self.step("forge.contains", || {
            let store = self.store.lock().unwrap();
            Ok(store.tip(branch).is_some_and(|tip| store.holds(&tip.id, commit)))
        })
        .await
    }

    async fn deliveries(&self, project: &ProjectName) -> Result<Vec<WebhookDelivery>, ForgeError> {
        self.step("forge.deliveries", || Ok(self.state().unanswered.of(project))).await
    }

    async fn redeliver(
        &self,
        _: &ProjectName,
        delivery: &WebhookDelivery,
    ) -> Result<(), ForgeError> {
        self.step("forge.redeliver", || self.redeliver_webhook(&delivery.id)).await
    }
}
