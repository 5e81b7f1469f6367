//! The operations of the forge, used by the REST API, Git pushes and the Rust interface.

mod merges;
mod observe;
mod pulls;
mod reports;

pub(crate) use merges::{Method, SetRef};
pub(crate) use pulls::{Edits, NewPull};
pub(crate) use reports::{CheckRunFields, NewReview, NewStatus, statuses_of};

use crate::ForgeAccount;
use crate::error::ApiError;
use crate::faults::Faults;
use crate::git::{Edit, Git, Person};
use crate::hooks::Event;
use crate::model::{Hook, Pull, Repository};
use crate::shapes;
use crate::store::{Access, Store};
use serde_json::json;
use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::{Notify, OwnedMutexGuard};

/// The forge's parts. One exists per folder.
pub(crate) struct Engine {
    pub root: PathBuf,
    /// The base of all addresses, `http://127.0.0.1:1234`.
    pub web: String,
    pub store: Store,
    pub accounts: Vec<ForgeAccount>,
    /// A hook that every new repository gets: its address and secret.
    pub first_hook: Option<(String, String)>,
    pub faults: Faults,
    /// Wakes the sender when a delivery is due.
    pub event_recorded: Notify,
    /// Notifies waiting callers that a delivery was attempted.
    pub settled: Notify,
    pub requests: RequestCount,
    locks: Mutex<HashMap<String, Arc<tokio::sync::Mutex<()>>>>,
}

/// How many requests were answered in the current hour.
#[derive(Default)]
pub(crate) struct RequestCount(Mutex<(u64, u64)>);

impl RequestCount {
    /// Counts one request of any caller in the current hour. Returns the count in this hour,
    /// including this request, and the time at which it starts again, in seconds since the epoch.
    pub fn count(&self) -> (u64, u64) {
        let hour = u64::try_from(jiff::Timestamp::now().as_second()).unwrap_or(0) / 3_600;
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if state.0 != hour {
            *state = (hour, 0);
        }
        state.1 += 1;
        (state.1, (hour + 1) * 3_600)
    }
}

/// Proof that the repository is locked: no other task moves its refs.
pub(crate) struct Held {
    pub full_name: String,
    pub git: Git,
    _guard: OwnedMutexGuard<()>,
}

/// Returns the present time in UTC as GitHub writes it: to the second, with `Z`.
pub(crate) fn now() -> String {
    let now = jiff::Timestamp::now();
    now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

impl Engine {
    /// Creates the engine on an open database and the directory `root`, whose `git` holds the
    /// repositories. `web` is the base of all addresses. `first_hook` is the address and secret of
    /// a hook that every new repository gets. Nothing is read yet.
    pub fn new(
        root: PathBuf,
        web: String,
        store: Store,
        accounts: Vec<ForgeAccount>,
        first_hook: Option<(String, String)>,
    ) -> Self {
        Self {
            root,
            web,
            store,
            accounts,
            first_hook,
            faults: Faults::default(),
            event_recorded: Notify::new(),
            settled: Notify::new(),
            requests: RequestCount::default(),
            locks: Mutex::default(),
        }
    }

    /// Returns the git directory of a repository, which need not exist; nothing is checked.
    pub fn git(&self, full_name: &str) -> Git {
        Git::at(self.git_root().join(format!("{full_name}.git")))
    }

    /// Returns the directory of all git repositories.
    pub fn git_root(&self) -> PathBuf {
        self.root.join("git")
    }

    /// Returns whether a recorded repository has no git directory any more. Until the directory is
    /// back, the repository counts as deleted. False for a repository that was never recorded or
    /// whose record cannot be read.
    pub fn is_gone(&self, full_name: &str) -> bool {
        self.repository(full_name).is_ok()
            && !self.git_root().join(format!("{full_name}.git")).is_dir()
    }

    /// Waits until no other task of this process has locked the repository, and locks it until the
    /// returned value is dropped; a second call in one task waits forever. Nothing is locked for
    /// other processes. The repository need not exist.
    pub async fn lock_repository(&self, full_name: &str) -> Held {
        let lock = {
            let mut locks = self.locks.lock().unwrap_or_else(PoisonError::into_inner);
            locks.entry(full_name.to_owned()).or_default().clone()
        };
        Held {
            full_name: full_name.to_owned(),
            git: self.git(full_name),
            _guard: lock.lock_owned().await,
        }
    }

    /// Returns a repository as it was stored last. An error with status 404 if there is none.
    pub fn repository(&self, full_name: &str) -> Result<Repository, ApiError> {
        self.store.within(|access| find_repository(access, full_name))
    }

    /// Returns a pull request, open or not. An error with status 404 if there is none.
    pub fn pull(&self, full_name: &str, number: u64) -> Result<Pull, ApiError> {
        self.store.within(|access| find_pull(access, full_name, number))
    }

    /// Records in every repository what became of refs and pull requests when an earlier process
    /// was killed, in the name of `ghost`. First waits for git commands of that process that still
    /// run; an error if one takes longer than 60 s. Skips repositories without their directory,
    /// with a warning.
    pub async fn recover(&self) -> Result<(), ApiError> {
        let repositories: Vec<Repository> = self.store.within(|access| access.list(""))?;
        for repository in repositories {
            if self.is_gone(&repository.full_name) {
                tracing::warn!(
                    repository = repository.full_name,
                    "its folder is gone: it is answered as not found"
                );
                continue;
            }
            let held = self.lock_repository(&repository.full_name).await;
            // A kill does not end the git commands that were under way.
            held.git.settle().await?;
            self.observe(&held, "ghost").await?;
        }
        Ok(())
    }

    /// Creates a repository whose branch `main` has one commit of `by` with these files, or is
    /// missing if there are none. Adds the first hook, if the forge has one. The returned record is
    /// that of before the commit, without refs. An error if the name is invalid or used; a
    /// directory of that name without a record is deleted.
    pub async fn create_repository(
        &self,
        full_name: &str,
        files: &[Edit],
        by: &str,
    ) -> Result<Repository, ApiError> {
        if !is_full_name(full_name) {
            return Err(ApiError::invalid("a repository is named owner/name"));
        }
        let held = self.lock_repository(full_name).await;
        if self.repository(full_name).is_ok() {
            return Err(ApiError::invalid("name already exists on this account"));
        }
        let folder = self.git_root().join(format!("{full_name}.git"));
        let failed = |source| crate::git::GitError::Run { command: "init".to_owned(), source };
        // A kill before the record was written leaves a folder without a record.
        if folder.exists() {
            std::fs::remove_dir_all(&folder).map_err(failed)?;
        }
        std::fs::create_dir_all(folder.parent().unwrap_or(&folder)).map_err(failed)?;
        held.git.create("main").await?;
        let repository = self.store.within(|access| {
            let repository = Repository {
                id: access.next("repository")?,
                full_name: full_name.to_owned(),
                default_branch: "main".to_owned(),
                protected: Vec::new(),
                locked: Vec::new(),
                refs: BTreeMap::new(),
                created_at: now(),
            };
            access.put("", &repository)?;
            Ok::<_, ApiError>(repository)
        })?;
        if let Some((url, secret)) = &self.first_hook {
            self.add_hook(full_name, url, secret, vec!["*".to_owned()], by)?;
        }
        if !files.is_empty() {
            held.git.write("main", None, files, "Begin", &Person::of(by)).await?;
            self.observe(&held, by).await?;
        }
        Ok(repository)
    }

    /// Adds an active webhook for the named events (`*` for all) and records a `ping` for it, which
    /// it gets whatever its events, in the name of `by`. Returns the hook. An error (404) if the
    /// repository does not exist.
    pub fn add_hook(
        &self,
        full_name: &str,
        url: &str,
        secret: &str,
        events: Vec<String>,
        by: &str,
    ) -> Result<Hook, ApiError> {
        let hook = self.store.within(|access| {
            let repository = find_repository(access, full_name)?;
            let id = access.next("hook")?;
            let hook = Hook { id, url: url.to_owned(), secret: secret.to_owned(), events, active: true };
            access.put(full_name, &hook)?;
            let payload = json!({
                "zen": "Speak when spoken to.", "hook_id": id, "hook": shapes::hook(&self.web, full_name, &hook),
            });
            // GitHub greets a new hook whatever it asked for.
            self.record(access, &repository, by, &Event::new("ping", None, payload), &hook)?;
            Ok::<_, ApiError>(hook)
        })?;
        self.event_recorded.notify_one();
        Ok(hook)
    }

    /// Changes the address of every hook, in all repositories, whose address ends with `ending`, to
    /// `to`; returns how many were changed. Hooks that are at `to` already do not count.
    pub fn move_hooks(&self, ending: &str, to: &str) -> Result<usize, ApiError> {
        self.store.within(|access| {
            let mut moved = 0;
            for repository in access.list::<Repository>("")? {
                for mut hook in access.list::<Hook>(&repository.full_name)? {
                    if hook.url.ends_with(ending) && hook.url != to {
                        to.clone_into(&mut hook.url);
                        access.put(&repository.full_name, &hook)?;
                        moved += 1;
                    }
                }
            }
            Ok(moved)
        })
    }

    /// Commits edits on a branch, records the events that follow and returns the commit, which
    /// exists even if the edits change nothing. A missing branch is created from the default
    /// branch; without a default branch, it begins with these files alone. Marks of protection are
    /// ignored.
    pub async fn commit(
        &self,
        full_name: &str,
        branch: &str,
        message: &str,
        edits: &[Edit],
        by: &str,
    ) -> Result<String, ApiError> {
        let held = self.lock_repository(full_name).await;
        let repository = self.repository(full_name)?;
        let parent = match held.git.resolve(&format!("refs/heads/{branch}")).await? {
            Some(tip) => Some(tip),
            None => held.git.resolve(&format!("refs/heads/{}", repository.default_branch)).await?,
        };
        held.git.write(branch, parent.as_deref(), edits, message, &Person::of(by)).await?;
        let tip = held
            .git
            .resolve(&format!("refs/heads/{branch}"))
            .await?
            .ok_or_else(ApiError::not_found)?;
        self.observe(&held, by).await?;
        Ok(tip)
    }

    /// Marks a branch as protected, whether it exists or not. Only the mark exists: the rules of
    /// protection are not enforced. An error if the repository does not exist.
    pub fn protect(&self, full_name: &str, branch: &str) -> Result<(), ApiError> {
        self.store.within(|access| {
            let mut repository = find_repository(access, full_name)?;
            repository.protected.push(branch.to_owned());
            Ok(access.put("", &repository)?)
        })
    }

    /// Marks a branch as protected and locked, whether it exists or not. Only the marks exist: the
    /// branch still accepts changes. An error if the repository does not exist.
    pub fn mark_locked(&self, full_name: &str, branch: &str) -> Result<(), ApiError> {
        self.store.within(|access| {
            let mut repository = find_repository(access, full_name)?;
            repository.protected.push(branch.to_owned());
            repository.locked.push(branch.to_owned());
            Ok(access.put("", &repository)?)
        })
    }

    /// Returns an account by its login; `None` if it is unknown.
    pub fn account(&self, login: &str) -> Option<&ForgeAccount> {
        self.accounts.iter().find(|account| account.login == login)
    }
}

/// Returns a repository as this transaction sees it. An error with status 404 if there is none.
pub(crate) fn find_repository(access: &Access, full_name: &str) -> Result<Repository, ApiError> {
    let all: Vec<Repository> = access.list("")?;
    all.into_iter()
        .find(|repository| repository.full_name == full_name)
        .ok_or_else(ApiError::not_found)
}

/// Returns a pull request, open or not, as this transaction sees it. An error with status 404 if
/// there is none.
pub(crate) fn find_pull(access: &Access, full_name: &str, number: u64) -> Result<Pull, ApiError> {
    access.get(full_name, number)?.ok_or_else(ApiError::not_found)
}

/// Returns whether a text has the form `owner/name`. Each part has only ASCII letters, digits and
/// `._-`, does not begin with a dot and does not end with `.git`.
fn is_full_name(name: &str) -> bool {
    let is_part = |part: &str| {
        let allowed = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
        !part.is_empty()
            && !part.starts_with('.')
            && !part.ends_with(".git")
            && part.chars().all(allowed)
    };
    name.split_once('/').is_some_and(|(owner, name)| is_part(owner) && is_part(name))
}
