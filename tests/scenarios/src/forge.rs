//! A forge that a test plays: changes, reviews, statuses, comments, merges, and the signed webhooks
//! about all of it.

use crate::repos::{Store, Tree};
use async_trait::async_trait;
use serde_json::{Value, json};
use sluice_forge::{
    Branch, CheckReport, CommitFacts, Delivery, Forge, ForgeError, LineComment, Marker,
    MergeMessage, Protection, ReviewVerdict, StatusReport, VoteReport, depends_on,
};
use sluice_memory::World;
use sluice_model::change::{
    ChangeFacts, ChangeKey, ChangeRef, ChangeStatus, CommitStatus, OpenChange, Permission, Review,
    ReviewState,
};
use sluice_model::event::ForgeEvent;
use sluice_model::git::{BranchKey, Commit, MergeMode, Oid};
use sluice_model::{BranchName, ConnectionName, ProjectName, Timestamp};
use sluice_runtime::{Clock, PortError};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};

pub mod gerrit;
mod lost;
mod merges;
mod people;
mod proposals;
mod pushes;
mod random;
mod seen;
mod votes;

pub use merges::Move;
pub use proposals::REMOVED;
pub use random::Shown;

/// The login that Sluice acts under.
pub const OWN: &str = "sluice[bot]";

/// A change as the forge keeps it.
#[derive(Debug, Clone)]
pub struct Kept {
    /// Its facts.
    pub facts: ChangeFacts,
    /// Comments by marker, with how often each was written.
    pub comments: BTreeMap<String, (String, u32)>,
    /// Comments beside lines by marker, as path, line and text.
    pub lines: BTreeMap<String, Vec<String>>,
    /// The first and last lines of those that are about several, by marker.
    pub ranges: BTreeMap<String, Vec<(u32, u32)>>,
    /// Reviews of ours by marker, as verdict, head and text.
    pub reviews: BTreeMap<String, String>,
}

/// A webhook on its way.
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
    changes: BTreeMap<ChangeKey, Kept>,
    outgoing: VecDeque<Webhook>,
    lost: lost::Lost,
    /// What was told as a Gerrit tells it.
    told: VecDeque<ForgeEvent>,
    /// Changes that were read.
    read_keys: Vec<ChangeKey>,
    sent: u64,
    merges: Vec<(ChangeKey, Commit)>,
    sabotage: Option<Tree>,
    refusal: Option<String>,
    /// Why pushes are refused, where they are.
    push_refusal: Option<String>,
    /// Whether pushes bring more than they name.
    overreaches: bool,
    /// Whether no commit is shown.
    hides_commits: bool,
    /// Moves of branches that were made.
    moves: Vec<Move>,
    /// Which push is made late, where none is answered.
    late: Option<pushes::Late>,
    /// For how many seconds the next merge is not shown, and its answer lost.
    merges_unseen: Option<u64>,
    /// A change that shows as it was before its merge, until then.
    unseen: Option<(ChangeKey, Timestamp)>,
    past: random::Past,
    readings: random::Readings,
    reads: u64,
    limited_until: Option<Timestamp>,
    refused_for_now: u64,
    /// Branches that are guarded, and whether nothing is taken for them any more.
    guarded: BTreeMap<BranchKey, bool>,
    /// Refs that lead to no commit.
    odd_refs: BTreeSet<(ProjectName, String)>,
    /// Whether topics have more changes than are read.
    has_large_topics: bool,
    /// Statuses of ours by commit and context, whatever is at that commit.
    statuses: BTreeMap<(Oid, String), Standing>,
    /// How many statuses were set.
    set: u64,
    /// Whether it tells of statuses that we set.
    tells_own: bool,
    /// Whether its answers tell the time.
    tells_time: bool,
    /// The last reading of a change that shows statuses, where later ones do not.
    statuses_until: Option<u64>,
    /// Whether no open change is listed.
    lists_nothing: bool,
    /// Whether no ref is shown.
    hides_refs: bool,
}

/// A status of ours on a commit.
struct Standing {
    state: String,
    number: u64,
    at: Timestamp,
}

/// The played forge.
pub struct PlayedForge {
    world: World,
    store: Arc<Mutex<Store>>,
    state: Mutex<State>,
    /// The connection that leads here, where it is not what the host says.
    connection: Option<ConnectionName>,
}

impl PlayedForge {
    /// Makes a forge with these repositories.
    pub fn new(world: World, store: Arc<Mutex<Store>>) -> Self {
        Self { world, store, state: Mutex::default(), connection: None }
    }

    /// Makes what another connection to the same hosts leads to, whose account sees no change.
    pub fn beside(&self, connection: &str) -> Self {
        Self {
            connection: Some(connection.into()),
            ..Self::new(self.world.clone(), self.store.clone())
        }
    }

    /// Shows changes as branches that point at one commit, the first one's.
    pub fn share_head(&self, keys: &[ChangeKey]) {
        let Some(head) = self.change(&keys[0]).map(|kept| kept.facts.change.head) else { return };
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

    /// Has a change be for another branch from now on, and says so.
    pub fn retarget(&self, key: &ChangeKey, branch: &str) {
        self.edit(key, |facts| facts.change.branch = branch.into());
        self.tell("pull_request", key, json!({"action": "edited", "number": key.number()}), "ada");
    }

    /// Has the next merge land these files besides what was asked.
    pub fn sabotage(&self, extra: Tree) {
        self.state().sabotage = Some(extra);
    }

    /// Has every merge refused from now on, in these words.
    pub fn refuse_merges(&self, why: &str) {
        self.state().refusal = Some(why.to_owned());
    }

    /// Has the next merge carried out without an answer, and shown only so many seconds later.
    pub fn merge_unseen(&self, seconds: u64) {
        self.state().merges_unseen = Some(seconds);
    }

    /// Takes the next webhook on its way.
    pub fn next_webhook(&self) -> Option<Webhook> {
        self.state().outgoing.pop_front()
    }

    /// Sets no status for so many seconds, and says for how long.
    pub fn limit(&self, seconds: u64) {
        self.state().limited_until = Some(self.world.now().plus_seconds(seconds));
    }

    /// Changes a change, which has moved by that.
    fn edit(&self, key: &ChangeKey, edit: impl FnOnce(&mut ChangeFacts)) {
        let (now, mut state) = (self.world.now(), self.state());
        let State { changes, past, .. } = &mut *state;
        if let Some(kept) = changes.get_mut(key) {
            past.note(&kept.facts, now);
            edit(&mut kept.facts);
            kept.facts.updated_at = past.moment(now);
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    fn tell(&self, event: &str, about: &ChangeKey, mut body: Value, sender: &str) {
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
        self.make_late(name);
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

/// Has every review of a change shown as dismissed.
fn dismissed(facts: &mut ChangeFacts) {
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
        Some(ChangeKey { connection, project: key.project, what: key.what })
    }

    async fn read_change(&self, change: &ChangeKey) -> Result<ChangeFacts, ForgeError> {
        self.step("forge.read_change", || {
            let mut state = self.state();
            state.reads += 1;
            state.read_keys.push(change.clone());
            let now = self.world.now();
            let kept = state.changes.get(change).ok_or_else(|| Self::not_found(change))?;
            let shown =
                state.past.shown(&kept.facts, now).ok_or_else(|| Self::not_found(change))?;
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
            let facts = state.changes.values().map(|kept| &kept.facts);
            let is_listed =
                |facts: &&ChangeFacts| facts.status == ChangeStatus::Open && !state.lists_nothing;
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
            let guarded = |name: &BranchName| {
                let key = BranchKey { project: project.clone(), branch: name.clone() };
                if self.state().guarded.contains_key(&key) {
                    Protection::Protected
                } else {
                    Protection::Open
                }
            };
            Ok(branches
                .into_iter()
                .map(|(name, tip)| Branch { protection: guarded(&name), name, tip })
                .collect())
        })
        .await
    }

    async fn is_locked(&self, branch: &BranchKey) -> Result<Option<bool>, ForgeError> {
        self.step("forge.is_locked", || Ok(self.state().guarded.get(branch).copied())).await
    }

    async fn branch_tip(&self, branch: &BranchKey) -> Result<Commit, ForgeError> {
        self.step("forge.branch_tip", || {
            self.store.lock().unwrap().tip(branch).ok_or_else(|| Self::not_found(branch))
        })
        .await
    }

    async fn read_commit(&self, _: &ProjectName, id: &Oid) -> Result<CommitFacts, ForgeError> {
        self.step("forge.read_commit", || {
            let are_hidden = self.state().hides_commits;
            let found = self.store.lock().unwrap().find(id).filter(|_| !are_hidden);
            let commit = found.ok_or_else(|| Self::not_found(id))?;
            Ok(CommitFacts { commit, parents: Vec::new(), message: String::new() })
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
            let (at, word) = ((head.clone(), status.context.clone()), status.state.as_str());
            // As the driver, which sets none that stands there for the same report.
            let is_it = |there: &Standing| {
                there.state == word && there.at.plus_seconds(2) >= status.wanted_at
            };
            let stands = state.statuses.get(&at).is_some_and(is_it);
            if !stands {
                state.set += 1;
                let standing =
                    Standing { state: word.to_owned(), number: state.set, at: self.world.now() };
                state.statuses.insert(at.clone(), standing);
            }
            let number = state.statuses.get(&at).map(|there| there.number);
            let of_head = |kept: &&mut Kept| {
                kept.facts.change.head == *head && kept.facts.change.key.project == *project
            };
            for kept in state.changes.values_mut().filter(of_head) {
                kept.facts.statuses.retain(|known| known.context != status.context);
                let (by, context) = (OWN.to_owned(), status.context.clone());
                kept.facts.statuses.push(CommitStatus {
                    by,
                    context,
                    state: word.to_owned(),
                    is_check: false,
                    number,
                });
                kept.facts.statuses.sort_by(|a, b| a.context.cmp(&b.context));
            }
            drop(state);
            if !stands {
                self.tell_own_status(project, head, status);
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
            let kept = changes.get_mut(change).ok_or_else(|| Self::not_found(change))?;
            past.note(&kept.facts, now);
            let entry =
                kept.comments.entry(marker.as_str().to_owned()).or_insert((String::new(), 0));
            *entry = (text.to_owned(), entry.1 + 1);
            kept.facts.updated_at = moment;
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
            let kept = state.changes.get_mut(change).ok_or_else(|| Self::not_found(change))?;
            kept.facts.labels.retain(|label| !remove.contains(label) && !add.contains(label));
            kept.facts.labels.extend(add.iter().cloned());
            kept.facts.labels.sort();
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
            let kept = state.changes.get_mut(&change.key).ok_or_else(|| Self::not_found(change))?;
            let is_shown =
                |path: &String| kept.facts.files.as_ref().is_some_and(|files| files.contains(path));
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
            kept.ranges.entry(marker.as_str().to_owned()).or_insert_with(|| ranges.collect());
            kept.lines.entry(marker.as_str().to_owned()).or_insert_with(|| lines.collect());
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
            let are_hidden = self.state().hides_refs;
            Ok(self.store.lock().unwrap().ref_tip(project, git_ref).filter(|_| !are_hidden))
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
        self.state().tells_time.then(|| self.world.now())
    }

    async fn permission_of(&self, _: &ProjectName, login: &str) -> Result<Permission, ForgeError> {
        let may =
            if ["ada", "grace"].contains(&login) { Permission::Write } else { Permission::Read };
        self.step("forge.permission_of", || Ok(may)).await
    }

    async fn put_review(
        &self,
        change: &ChangeRef,
        marker: &Marker,
        verdict: ReviewVerdict,
        text: &str,
    ) -> Result<(), ForgeError> {
        self.step("forge.put_review", || {
            let mut state = self.state();
            let kept = state.changes.get_mut(&change.key).ok_or_else(|| Self::not_found(change))?;
            let said = format!("{} at {}: {text}", verdict.as_str(), change.head);
            kept.reviews.entry(marker.as_str().to_owned()).or_insert(said);
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

    async fn deliveries(&self, project: &ProjectName) -> Result<Vec<Delivery>, ForgeError> {
        self.step("forge.deliveries", || Ok(self.state().lost.of(project))).await
    }

    async fn redeliver(&self, _: &ProjectName, delivery: &Delivery) -> Result<(), ForgeError> {
        self.step("forge.redeliver", || self.send_again(&delivery.id)).await
    }
}
