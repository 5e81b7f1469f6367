//! The one place that notices moved refs: pushes, merges and API calls are all followed by a look,
//! and so is a start.

use super::{Engine, Held, find_repository, now};
use crate::error::ApiError;
use crate::git::{COMMITS_MAX, Commit, Git, ZEROS};
use crate::hooks::Event;
use crate::model::{Life, Pull, Repository};
use crate::shapes;
use crate::store::Access;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// GitHub names at most so many commits in a push event.
const PUSHED_MAX: usize = 20;

/// What happened to one open pull request.
enum PullTransition {
    /// Its head moved from one commit to another.
    Synchronised { before: String, after: String },
    /// Its head branch is gone.
    Abandoned,
    /// Its base now contains it.
    Landed { by: String, commit: String, base_before: String },
}

impl Engine {
    /// Compares the branches and tags with those last seen, stores the new ones and records what
    /// follows, in the name of `by`: push events, moved heads, and pull requests that were merged
    /// or whose head branch is gone. Also moves the refs `refs/pull/<number>/head` along. Nothing
    /// is recorded twice. To be called after every command that may have moved a ref, while the
    /// repository is still locked by `held`. An error (404) if the repository is not recorded.
    pub(crate) async fn observe(&self, held: &Held, by: &str) -> Result<(), ApiError> {
        let repository = self.repository(&held.full_name)?;
        let refs = held.git.refs().await?;
        let pulls: Vec<Pull> = self.store.within(|access| access.list(&held.full_name))?;
        let mut moves = Vec::new();
        for (name, before, after) in differences(&repository.refs, &refs) {
            moves.push(Move::read(&held.git, name, before, after).await?);
        }
        let pushes: Vec<Value> =
            moves.iter().map(|moved| moved.payload(&self.web, &repository)).collect();
        let open: Vec<Pull> = pulls.into_iter().filter(Pull::is_open).collect();
        let landed = landed(&held.git, &open, &moves, &refs).await?;
        let mut transitions = Vec::new();
        for pull in open {
            let is_landed = landed.contains(&pull.number);
            if let Some(transition) =
                transition_of(&held.git, &pull, is_landed, &repository.refs, &refs, by).await?
            {
                transitions.push((pull, transition));
            }
        }
        self.store.within(|access| {
            let mut repository = find_repository(access, &held.full_name)?;
            repository.refs = refs;
            access.put("", &repository)?;
            for payload in pushes {
                self.emit(access, &repository, by, Event::new("push", None, payload))?;
            }
            for (pull, transition) in transitions {
                self.apply(access, &repository, pull, transition, by)?;
            }
            Ok::<_, ApiError>(())
        })?;
        self.event_recorded.notify_one();
        Ok(())
    }

    /// Stores the new state of a pull request after a transition and records the event about it:
    /// `synchronize`, or `closed` for a merged or abandoned one. The caller wakes the sender of
    /// webhooks after the commit.
    fn apply(
        &self,
        access: &Access,
        repository: &Repository,
        mut pull: Pull,
        transition: PullTransition,
        by: &str,
    ) -> Result<(), ApiError> {
        pull.updated_at = now();
        let mut extra = json!({});
        let action = match transition {
            PullTransition::Synchronised { before, after } => {
                extra = json!({"before": before, "after": after});
                pull.head_sha = after;
                "synchronize"
            }
            PullTransition::Abandoned => {
                pull.life = Life::Closed { at: now() };
                "closed"
            }
            PullTransition::Landed { by, commit, base_before } => {
                pull.life = Life::Merged { at: now(), by, commit, base_before };
                pull.landing = None;
                "closed"
            }
        };
        access.put(&repository.full_name, &pull)?;
        self.emit_pull(access, repository, &pull, action, extra, by)
    }

    /// Records a `pull_request` event with this action for the webhooks. `payload` is an object
    /// with further fields, to which the pull request and its number are added. The caller stores
    /// the pull request, and wakes the sender of webhooks after the commit.
    pub(super) fn emit_pull(
        &self,
        access: &Access,
        repository: &Repository,
        pull: &Pull,
        action: &'static str,
        mut payload: Value,
        by: &str,
    ) -> Result<(), ApiError> {
        payload["number"] = pull.number.into();
        payload["pull_request"] = shapes::pull(&self.web, repository, pull);
        Ok(self.emit(access, repository, by, Event::new("pull_request", action, payload))?)
    }
}

/// A ref that moved, appeared or vanished; all zeros stand for "not there".
struct Move {
    name: String,
    before: String,
    after: String,
    /// What is new in it, the oldest first; of a new ref only its tip.
    commits: Vec<Commit>,
    is_forced: bool,
}

impl Move {
    /// Reads the new commits of a moved ref, the oldest first, and whether the move was forced. All
    /// zeros in `before` or `after` stand for a ref that does not exist. A created ref has only its
    /// tip, a deleted one none; of many commits only the newest 250 are read.
    async fn read(git: &Git, name: &str, before: &str, after: &str) -> Result<Self, ApiError> {
        let commits = match (before, after) {
            (_, ZEROS) => Vec::new(),
            (ZEROS, after) => git.commit(after).await?.into_iter().collect(),
            (before, after) => git.commits_between(before, after).await?,
        };
        let is_plain = before == ZEROS || after == ZEROS;
        let follows =
            commits.iter().any(|commit| commit.parents.iter().any(|parent| parent == before));
        let is_forced = !is_plain && !follows && !git.is_ancestor(before, after).await?;
        Ok(Self {
            name: name.into(),
            before: before.into(),
            after: after.into(),
            commits,
            is_forced,
        })
    }

    /// Returns the payload of a push event. It lists the newest 20 commits at most, the oldest
    /// first; none for a created ref, whose tip is only the head commit.
    fn payload(&self, web: &str, repository: &Repository) -> Value {
        let Self { name, before, after, commits, is_forced } = self;
        let newest = commits.len().saturating_sub(PUSHED_MAX);
        let shown = if before == ZEROS { &[] } else { &commits[newest..] };
        json!({
            "ref": name,
            "before": before,
            "after": after,
            "created": before == ZEROS,
            "deleted": after == ZEROS,
            "forced": is_forced,
            "compare": format!("{web}/{}/compare/{before}...{after}", repository.full_name),
            "commits": shown.iter().map(shapes::pushed_commit).collect::<Vec<_>>(),
            "head_commit": commits.last().map(shapes::pushed_commit),
        })
    }
}

/// Returns (name, before, after) of the refs that differ, by name; all zeros where a ref does not
/// exist.
fn differences<'a>(
    before: &'a BTreeMap<String, String>,
    after: &'a BTreeMap<String, String>,
) -> Vec<(&'a str, &'a str, &'a str)> {
    let at = |refs: &'a BTreeMap<String, String>, name: &str| {
        refs.get(name).map_or(ZEROS, String::as_str)
    };
    let names: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    let both = names.into_iter().map(|name| (name.as_str(), at(before, name), at(after, name)));
    both.filter(|(_, before, after)| before != after).collect()
}

/// Moves the refs `refs/pull/<number>/head` of open pull requests to the tips of their branches.
/// Returns the numbers of the pull requests whose base branch moved and now contains their head, by
/// a push or a fast-forward, which is a merge too. `open` are all open pull requests, `moves` the
/// refs that moved, `refs` all present refs.
async fn landed(
    git: &Git,
    open: &[Pull],
    moves: &[Move],
    refs: &BTreeMap<String, String>,
) -> Result<BTreeSet<u64>, ApiError> {
    let head_of = |pull: &Pull| refs.get(&branch(&pull.head)).cloned();
    for pull in open {
        if let Some(head) = head_of(pull).filter(|head| *head != pull.head_sha) {
            git.update_ref(&format!("refs/pull/{}/head", pull.number), &head, None).await?;
        }
    }
    let mut landed = BTreeSet::new();
    for moved in moves.iter().filter(|moved| moved.after != ZEROS) {
        let mut here: Vec<&Pull> =
            open.iter().filter(|pull| branch(&pull.base) == moved.name).collect();
        if moved.before != ZEROS && moved.commits.len() < COMMITS_MAX {
            // All that is new is known: a head that came to be contained is among it.
            let new: BTreeSet<&str> =
                moved.commits.iter().map(|commit| commit.sha.as_str()).collect();
            here.retain(|pull| head_of(pull).is_some_and(|head| new.contains(head.as_str())));
        } else if !here.is_empty() {
            let contained = git.pulls_within(&moved.after).await?;
            here.retain(|pull| contained.contains(&pull.number));
        }
        landed.extend(here.iter().map(|pull| pull.number));
    }
    Ok(landed)
}

/// Returns what the moved refs mean for an open pull request; `None` if it was neither merged nor
/// closed and its head did not move. It is merged if its base contains the commit of a merge that
/// the forge began. Otherwise it is closed if its head branch is missing, and merged if
/// `is_landed`. `before` and `after` are the refs of the repository; `by` is the account that moved
/// them.
async fn transition_of(
    git: &Git,
    pull: &Pull,
    is_landed: bool,
    before: &BTreeMap<String, String>,
    after: &BTreeMap<String, String>,
    by: &str,
) -> Result<Option<PullTransition>, ApiError> {
    let tip = after.get(&branch(&pull.base));
    if let (Some(landing), Some(tip)) = (&pull.landing, tip)
        && (landing.commit == *tip || git.is_ancestor(&landing.commit, tip).await?)
    {
        let (by, commit, base_before) =
            (landing.by.clone(), landing.commit.clone(), landing.base_before.clone());
        return Ok(Some(PullTransition::Landed { by, commit, base_before }));
    }
    let Some(head) = after.get(&branch(&pull.head)) else {
        return Ok(Some(PullTransition::Abandoned));
    };
    if let Some(tip) = tip.filter(|_| is_landed) {
        let base_before = before.get(&branch(&pull.base)).cloned().unwrap_or_default();
        return Ok(Some(PullTransition::Landed {
            by: by.to_owned(),
            commit: tip.clone(),
            base_before,
        }));
    }
    if *head != pull.head_sha {
        return Ok(Some(PullTransition::Synchronised {
            before: pull.head_sha.clone(),
            after: head.clone(),
        }));
    }
    Ok(None)
}

/// Returns the full name of a branch's ref.
fn branch(name: &str) -> String {
    format!("refs/heads/{name}")
}
