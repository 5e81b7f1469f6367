//! Pull requests: proposing, editing, closing, labels, and whether they would merge.

use super::{Engine, find_pull, find_repository, now};
use crate::error::ApiError;
use crate::git::{Git, Person};
use crate::model::{Life, Pull, Tried};
use crate::shapes;
use serde_json::json;

/// What is proposed.
#[derive(Debug, Clone)]
pub(crate) struct NewPull {
    pub title: String,
    pub body: String,
    pub head: String,
    pub base: String,
    pub draft: bool,
}

/// What to change about a pull request; absent things stay.
#[derive(Debug, Clone, Default)]
pub(crate) struct Edits {
    pub title: Option<String>,
    pub body: Option<String>,
    pub base: Option<String>,
    /// `open` or `closed`.
    pub state: Option<String>,
}

impl Engine {
    /// Opens a pull request, creates its ref `refs/pull/<number>/head` and records its event.
    /// `head` may have the form `owner:branch`, whose owner is ignored. An error (422) if one of
    /// the two branches does not exist, the base already contains the head, or a pull request is
    /// open for the two branches already.
    pub async fn open_pull(
        &self,
        full_name: &str,
        new: NewPull,
        by: &str,
    ) -> Result<Pull, ApiError> {
        let held = self.lock_repository(full_name).await;
        let repository = self.repository(full_name)?;
        // GitHub names a head in a fork `owner:branch`; here are no forks.
        let head =
            new.head.split_once(':').map_or(new.head.as_str(), |(_, branch)| branch).to_owned();
        let tip = |branch: &str| repository.refs.get(&format!("refs/heads/{branch}")).cloned();
        let (Some(head_sha), Some(base_sha)) = (tip(&head), tip(&new.base)) else {
            return Err(ApiError::invalid("Validation Failed: head or base is not a branch"));
        };
        if held.git.is_ancestor(&head_sha, &base_sha).await? {
            return Err(ApiError::invalid(format!("No commits between {} and {head}", new.base)));
        }
        let number = self.store.within(|access| {
            let open: Vec<Pull> = access.list(full_name)?;
            if open.iter().any(|pull| pull.is_open() && pull.head == head && pull.base == new.base)
            {
                return Err(ApiError::invalid(format!(
                    "A pull request already exists for {head}."
                )));
            }
            Ok(access.next(&format!("pull {full_name}"))?)
        })?;
        // Created first, because receivers of the webhook fetch this ref.
        held.git.update_ref(&format!("refs/pull/{number}/head"), &head_sha, None).await?;
        let pull = self.store.within(|access| {
            let pull = Pull {
                number,
                id: access.next("pull")?,
                title: new.title,
                body: new.body,
                author: by.to_owned(),
                base: new.base,
                head,
                head_sha,
                draft: new.draft,
                labels: Vec::new(),
                life: Life::Open,
                landing: None,
                tried: None,
                created_at: now(),
                updated_at: now(),
            };
            access.put(full_name, &pull)?;
            self.emit_pull(access, &repository, &pull, "opened", json!({}), by)?;
            Ok::<_, ApiError>(pull)
        })?;
        self.event_recorded.notify_one();
        Ok(pull)
    }

    /// Changes a pull request and returns it. Records one event for title, description and base
    /// together, and one for closing or reopening. An error (422) if its base, even an unchanged
    /// one, is no branch, or if a merged pull request, or one whose head branch is gone, is to be
    /// reopened. An unknown state, or the state that it has, changes nothing. A reopened pull
    /// request gets the present tip of its branch as head.
    pub async fn edit_pull(
        &self,
        full_name: &str,
        number: u64,
        edits: Edits,
        by: &str,
    ) -> Result<Pull, ApiError> {
        let held = self.lock_repository(full_name).await;
        let repository = self.repository(full_name)?;
        let pull = self.store.within(|access| {
            let mut pull = find_pull(access, full_name, number)?;
            let before = pull.clone();
            pull.title = edits.title.unwrap_or(pull.title);
            pull.body = edits.body.unwrap_or(pull.body);
            pull.base = edits.base.unwrap_or(pull.base);
            if !repository.refs.contains_key(&format!("refs/heads/{}", pull.base)) {
                return Err(ApiError::invalid("Validation Failed: base is not a branch"));
            }
            pull.updated_at = now();
            if (&pull.title, &pull.body, &pull.base) != (&before.title, &before.body, &before.base) {
                let changes = json!({"changes": {"title": {"from": before.title}, "body": {"from": before.body}}});
                self.emit_pull(access, &repository, &pull, "edited", changes, by)?;
            }
            match (edits.state.as_deref(), &pull.life) {
                (Some("closed"), Life::Open) => {
                    pull.life = Life::Closed { at: now() };
                    self.emit_pull(access, &repository, &pull, "closed", json!({}), by)?;
                }
                (Some("open"), Life::Closed { .. }) => {
                    let head = repository.refs.get(&format!("refs/heads/{}", pull.head));
                    pull.head_sha = head.ok_or_else(|| ApiError::invalid("the head branch was deleted"))?.clone();
                    pull.life = Life::Open;
                    self.emit_pull(access, &repository, &pull, "reopened", json!({}), by)?;
                }
                (Some("open"), Life::Merged { .. }) => {
                    return Err(ApiError::invalid("a merged pull request cannot be reopened"));
                }
                _ => {}
            }
            access.put(full_name, &pull)?;
            Ok(pull)
        })?;
        if pull.is_open() {
            held.git.update_ref(&format!("refs/pull/{number}/head"), &pull.head_sha, None).await?;
        }
        self.event_recorded.notify_one();
        Ok(pull)
    }

    /// Adds the labels `on` to a pull request, removes those in `off` and returns all that it then
    /// has. Records an event for each label that was really added or removed. Empty names are
    /// ignored, and so are labels in `off` that it does not have.
    pub async fn label(
        &self,
        full_name: &str,
        number: u64,
        on: &[String],
        off: &[String],
        by: &str,
    ) -> Result<Vec<String>, ApiError> {
        let _held = self.lock_repository(full_name).await;
        let labels = self.store.within(|access| {
            let repository = find_repository(access, full_name)?;
            let mut pull = find_pull(access, full_name, number)?;
            let mut events = Vec::new();
            for name in on.iter().filter(|name| !name.is_empty()) {
                if !pull.labels.contains(name) {
                    pull.labels.push(name.clone());
                    events.push(("labeled", name));
                }
            }
            for name in off {
                if pull.labels.contains(name) {
                    pull.labels.retain(|label| label != name);
                    events.push(("unlabeled", name));
                }
            }
            pull.updated_at = now();
            access.put(full_name, &pull)?;
            for (action, name) in events {
                let payload = json!({"label": shapes::label(name)});
                self.emit_pull(access, &repository, &pull, action, payload, by)?;
            }
            Ok::<_, ApiError>(pull.labels)
        })?;
        self.event_recorded.notify_one();
        Ok(labels)
    }

    /// Returns the pull request after its test merge: stores what a merge of its head into the
    /// present tip of its base would give. Does not try again while neither commit has changed. A
    /// pull request that is not open, or whose base is missing, is returned as it is, with an
    /// outdated test merge or none. Moves no ref.
    pub async fn try_merge(&self, full_name: &str, number: u64) -> Result<Pull, ApiError> {
        let pull = self.pull(full_name, number)?;
        let git = self.git(full_name);
        if !pull.is_open() {
            return Ok(pull);
        }
        let Some(base) = git.resolve(&format!("refs/heads/{}", pull.base)).await? else {
            return Ok(pull);
        };
        if pull
            .tried
            .as_ref()
            .is_some_and(|tried| tried.head == pull.head_sha && tried.base == base)
        {
            return Ok(pull);
        }
        let merge = test_merge(&git, &base, &pull.head_sha).await?;
        self.store.within(|access| {
            let mut current = find_pull(access, full_name, number)?;
            current.tried = Some(Tried { head: pull.head_sha, base, merge });
            access.put(full_name, &current)?;
            Ok(current)
        })
    }
}

/// Creates the commit that a merge of `head` into `base` would give and returns its id; moves no
/// ref. `None` if it conflicts. Its author and time are fixed, so the same merge gives the same
/// commit.
async fn test_merge(git: &Git, base: &str, head: &str) -> Result<Option<String>, ApiError> {
    let Some(tree) = git.merge_tree(base, head).await? else { return Ok(None) };
    let forge = Person { date: Some("1000000000 +0000".to_owned()), ..Person::of("forge") };
    Ok(Some(
        git.commit_tree(&tree, &[base, head], &format!("Merge {head} into {base}"), &forge, &forge)
            .await?,
    ))
}
