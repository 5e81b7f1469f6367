//! Real git: forges over HTTP, packs in object storage, a cache directory that may be empty at any
//! time.

use crate::cache::{dir_of, unknown, upload};
use crate::shelf::{From, Shelf, names_of};
use crate::{
    Branches, Files, MergeAnswer, MergeAsk, ProjectAt, Repos, ReposError, is_configuration,
};
use async_trait::async_trait;
use bytes::Bytes;
use sluice_git::{
    Credential, FetchError, FetchLimits, Found, Kept, Merge, MergeError, MergeOutcome, NewPack,
    PackName, ReadError, ReadLimits, RemoteRef, Repository, Want, keys,
};
use sluice_model::git::{BranchKey, BranchState, Commit, LandingWay, Oid};
use sluice_model::{BranchName, ConnectionName, ProjectName};
use sluice_runtime::Ports;
use sluice_runtime::object::PutMode;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

/// Packs of one tested state beyond those of its repository; then they become one.
const CHAIN_MAX: usize = 12;

/// Repositories that are kept open.
const SHELVES_MAX: usize = 64;

/// What the full names of branches begin with.
const BRANCHES: &str = "refs/heads/";

/// What the full names of tags begin with.
const TAGS: &str = "refs/tags/";

/// Paths of one change that are told; more count as "any".
const FILES_MAX: usize = 5_000;

/// Commits that are looked at for the branches that have one.
const COMMITS_MAX: usize = 1_000_000;

/// Where a connection's repositories are, and what to show there.
#[derive(Debug, Clone)]
pub struct Remote {
    /// The address that a project's path is appended to.
    pub git_url: String,
    /// What to show the forge.
    pub credential: Option<Credential>,
    /// How its changes land: where branches are moved, tested commits are kept for that.
    pub landing: LandingWay,
}

/// Repositories of real forges.
///
/// Merges of one repository run side by side; a fetch is one at a time. A merge asks the forge only
/// for what is not held: the head of a change that was merged before is, and so is the state of an
/// item ahead.
pub struct GitRepos {
    ports: Ports,
    remotes: BTreeMap<ConnectionName, Remote>,
    dir: PathBuf,
    shelves: Mutex<BTreeMap<ProjectName, Arc<Shelf>>>,
}

impl GitRepos {
    /// Makes repositories that are cached below `dir`.
    pub fn new(ports: Ports, remotes: BTreeMap<ConnectionName, Remote>, dir: PathBuf) -> Self {
        Self { ports, remotes, dir, shelves: Mutex::new(BTreeMap::new()) }
    }

    fn remote(&self, project: &ProjectAt) -> Result<From, ReposError> {
        let remote = self.remotes.get(&project.connection).ok_or_else(|| {
            ReposError::Unknown(format!("the connection {} is not configured", project.connection))
        })?;
        let url = format!("{}/{}", remote.git_url.trim_end_matches('/'), project.project.name());
        Ok(From { url, credential: remote.credential.clone() })
    }

    fn shelf(&self, project: &ProjectName) -> Arc<Shelf> {
        let mut shelves = self.shelves.lock().unwrap_or_else(PoisonError::into_inner);
        if shelves.len() >= SHELVES_MAX && !shelves.contains_key(project) {
            shelves.pop_first();
        }
        let new = || Arc::new(Shelf::new(project.clone(), dir_of(&self.dir, project)));
        shelves.entry(project.clone()).or_insert_with(new).clone()
    }

    /// Returns whether the commit that a merge makes is kept, so that the branch can be moved to
    /// it.
    fn keeps(&self, ask: &MergeAsk) -> bool {
        let landing = self.remotes.get(&ask.connection).map(|remote| remote.landing);
        landing == Some(LandingWay::FastForward) && ask.mode.keeps_head()
    }

    /// Fetches a branch's tip, and more with it.
    async fn fetch_tip(
        &self,
        shelf: &Shelf,
        at: &ProjectAt,
        branch: &BranchName,
        more: Option<Want>,
    ) -> Result<Commit, ReposError> {
        let name = format!("refs/heads/{branch}");
        let wants = std::iter::once(Want::Ref(name.clone())).chain(more).collect();
        let refs = shelf.fetch(&self.ports, &self.remote(at)?, wants).await?;
        let tip = refs.iter().find(|found| found.name == name).map(|found| found.commit().clone());
        let Some(tip) = tip else {
            return Err(ReposError::Gone(format!("{} has no branch {branch}", at.project)));
        };
        shelf.with(move |repository| Ok(repository.commit(&tip).map_err(unknown)?.commit)).await
    }
}

#[async_trait]
impl Repos for GitRepos {
    async fn branches(&self, at: &ProjectAt) -> Result<Branches, ReposError> {
        let from = self.remote(at)?;
        self.shelf(&at.project)
            .with(move |repository| {
                let limits = FetchLimits { timeout_seconds: 30, ..FetchLimits::default() };
                let refs = repository.ls_refs(
                    &from.url,
                    from.credential.as_ref(),
                    &["HEAD", BRANCHES],
                    limits,
                );
                let refs = refs.map_err(gone_or_unknown)?;
                let head = refs
                    .iter()
                    .find(|found| found.name == "HEAD")
                    .and_then(|head| head.leads_to.as_deref());
                let named = |found: &RemoteRef| {
                    Some((
                        BranchName::from(found.name.strip_prefix(BRANCHES)?),
                        found.commit().clone(),
                    ))
                };
                Ok(Branches {
                    default: head
                        .and_then(|name| name.strip_prefix(BRANCHES))
                        .map(BranchName::from),
                    tips: refs.iter().filter_map(named).collect(),
                })
            })
            .await
    }

    async fn tip(&self, at: &ProjectAt, branch: &BranchName) -> Result<BranchState, ReposError> {
        let shelf = self.shelf(&at.project);
        let tip = self.fetch_tip(&shelf, at, branch, None).await?;
        let packs = shelf.packs_with(&self.ports, &tip.id).await?;
        let branch = BranchKey { project: at.project.clone(), branch: branch.clone() };
        Ok(BranchState::untouched(branch, tip, packs))
    }

    async fn tag(&self, at: &ProjectAt, tag: &str) -> Result<BranchState, ReposError> {
        let (shelf, from) = (self.shelf(&at.project), self.remote(at)?);
        let name = format!("{TAGS}{tag}");
        let (asked, listed_from) = (name.clone(), from.clone());
        let found = shelf
            .with(move |repository| {
                let limits = FetchLimits { timeout_seconds: 30, ..FetchLimits::default() };
                let credential = listed_from.credential.as_ref();
                repository
                    .ls_ref(&listed_from.url, credential, &asked, limits)
                    .map_err(gone_or_unknown)
            })
            .await?;
        let found = found.map(|found| found.commit().clone());
        let Some(found) = found else {
            return Err(ReposError::Gone(format!("{} has no tag {tag}", at.project)));
        };
        // By its id: of what a tag leads to only a commit may be told as a tip that is held.
        shelf.need(&self.ports, &from, &found).await?;
        let no_commit = format!("the tag {tag} of {} leads to no commit", at.project);
        let tip = shelf
            .with(move |repository| match repository.commit(&found) {
                Ok(found) => Ok(found.commit),
                Err(ReadError::WrongKind { .. }) => Err(ReposError::Gone(no_commit)),
                Err(error) => Err(unknown(error)),
            })
            .await?;
        let packs = shelf.packs_with(&self.ports, &tip.id).await?;
        let branch = BranchKey { project: at.project.clone(), branch: BranchName(name) };
        Ok(BranchState::untouched(branch, tip, packs))
    }

    async fn at(
        &self,
        at: &ProjectAt,
        branch: &BranchName,
        commit: &Oid,
        since: Option<&Oid>,
    ) -> Result<(BranchState, Option<Vec<String>>), ReposError> {
        let (shelf, from) = (self.shelf(&at.project), self.remote(at)?);
        shelf.need(&self.ports, &from, commit).await?;
        // What it moved from may be gone with a push that was forced; then there is nothing to
        // compare with.
        let held = match since {
            Some(since) => {
                shelf.need(&self.ports, &from, since).await.map(|()| Some(since.clone()))
            }
            None => Ok(None),
        };
        let since = match held {
            Err(ReposError::Unreachable(why)) => return Err(ReposError::Unreachable(why)),
            held => held.unwrap_or_default(),
        };
        let wanted = commit.clone();
        let (commit, files) = shelf
            .with(move |repository| {
                let files = since
                    .and_then(|since| repository.changed_files(&since, &wanted, FILES_MAX).ok());
                Ok((repository.commit(&wanted).map_err(unknown)?.commit, files))
            })
            .await?;
        let packs = shelf.packs_with(&self.ports, &commit.id).await?;
        let branch = BranchKey { project: at.project.clone(), branch: branch.clone() };
        Ok((BranchState::untouched(branch, commit, packs), files))
    }

    async fn containing(
        &self,
        at: &ProjectAt,
        commit: &Oid,
    ) -> Result<Vec<BranchName>, ReposError> {
        let (shelf, from) = (self.shelf(&at.project), self.remote(at)?);
        shelf.need(&self.ports, &from, commit).await?;
        let refs = shelf.fetch(&self.ports, &from, vec![Want::Prefix(BRANCHES.to_owned())]).await?;
        let commit = commit.clone();
        shelf
            .with(move |repository| {
                let tips: BTreeSet<Oid> = refs.iter().map(|found| found.commit().clone()).collect();
                let tips: Vec<Oid> = tips.into_iter().collect();
                let found = repository.containing(&commit, &tips, COMMITS_MAX).map_err(
                    |error| match error {
                        ReadError::TooLarge { .. } => ReposError::Unreadable(error.to_string()),
                        other => unknown(other),
                    },
                )?;
                let of_those = refs.iter().filter(|one| found.contains(one.commit()));
                Ok(of_those
                    .filter_map(|one| one.name.strip_prefix(BRANCHES))
                    .map(BranchName::from)
                    .collect())
            })
            .await
    }

    async fn merge(&self, ask: &MergeAsk) -> Result<MergeAnswer, ReposError> {
        let at =
            ProjectAt { connection: ask.connection.clone(), project: ask.branch.project.clone() };
        let shelf = self.shelf(&at.project);
        let (base, start, packs) = match &ask.onto {
            None => {
                let head = Want::Commit(ask.head.clone());
                let tip = self.fetch_tip(&shelf, &at, &ask.branch.branch, Some(head)).await?;
                // What of the tip no listed pack holds goes into the pack of the merge.
                (tip.clone(), tip, shelf.list(&self.ports).await?.packs)
            }
            Some(state) => {
                shelf.hold(&self.ports, &state.packs).await?;
                shelf.need(&self.ports, &self.remote(&at)?, &ask.head).await?;
                let mut packs = state.packs.clone();
                let listed = shelf.list(&self.ports).await?.packs;
                if packs.len() > listed.len() + CHAIN_MAX {
                    shelf.hold(&self.ports, &listed).await?;
                    packs = listed;
                }
                (state.base.clone(), state.result.clone(), packs)
            }
        };
        let (ask_again, names, below) = (ask.clone(), names_of(&packs)?, start.id.clone());
        let keep = if self.keeps(ask) { Keep::Added } else { Keep::Nothing };
        let made = shelf
            .with(move |repository| merge_here(repository, &ask_again, &start, &names, keep))
            .await?;
        match made {
            Made::Conflict(detail) => Ok(MergeAnswer::Conflict { detail }),
            Made::Merged { result, pack, files, kept } => {
                let mut packs = packs;
                if let Some(pack) = pack {
                    shelf.added(1);
                    let key = upload(&self.ports, &at.project, &pack).await?;
                    if !packs.contains(&key) {
                        packs.push(key);
                    }
                }
                if let Some(kept) = &kept {
                    let key = keys::kept(&at.project, &below, &result.id);
                    let bytes = Bytes::from(kept.bytes());
                    self.ports
                        .objects
                        .put(&key, bytes, PutMode::Always, "application/octet-stream")
                        .await?;
                }
                let state = BranchState { branch: ask.branch.clone(), base, result, packs };
                Ok(MergeAnswer::Merged { state, files, kept: kept.is_some() })
            }
        }
    }

    async fn configuration(
        &self,
        at: &ProjectAt,
        commit: &Oid,
        state: Option<&BranchState>,
        extra: &[String],
    ) -> Result<Files, ReposError> {
        let shelf = self.shelf(&at.project);
        match state {
            Some(state) => shelf.hold(&self.ports, &state.packs).await?,
            None => shelf.need(&self.ports, &self.remote(at)?, commit).await?,
        }
        let (commit, extra) = (commit.clone(), extra.to_vec());
        shelf
            .with(move |repository| {
                let wanted = |found: Found, path: &str| match found {
                    Found::File => is_configuration(path, &extra),
                    Found::Directory => {
                        let inside = |dir: &str| {
                            dir.starts_with(&format!("{path}/"))
                                || format!("{path}/").starts_with(dir)
                        };
                        inside("zuul.d/")
                            || inside(".zuul.d/")
                            || extra.iter().any(|extra| inside(extra))
                    }
                };
                repository.read_files(&commit, &wanted, ReadLimits::default()).map_err(|error| {
                    match error {
                        ReadError::TooLarge { .. } => ReposError::Unreadable(error.to_string()),
                        other => unknown(other),
                    }
                })
            })
            .await
    }

    async fn present(
        &self,
        at: &ProjectAt,
        commit: &Oid,
        state: Option<&BranchState>,
        paths: &[String],
    ) -> Result<Vec<String>, ReposError> {
        let shelf = self.shelf(&at.project);
        match state {
            Some(state) => shelf.hold(&self.ports, &state.packs).await?,
            None => shelf.need(&self.ports, &self.remote(at)?, commit).await?,
        }
        let (commit, paths) = (commit.clone(), paths.to_vec());
        shelf
            .with(move |repository| {
                let mut found = Vec::new();
                for path in paths {
                    if repository.has_file(&commit, &path).map_err(unknown)? {
                        found.push(path);
                    }
                }
                Ok(found)
            })
            .await
    }
}

/// What a merge leaves besides its packs.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Keep {
    Nothing,
    /// What the result adds to the commit below.
    Added,
}

enum Made {
    Merged { result: Commit, pack: Option<NewPack>, files: Option<Vec<String>>, kept: Option<Kept> },
    Conflict(String),
}

/// Merges in the cache. The pack that is made completes `packs`, whatever else the cache holds:
/// other states' packs, and what was fetched and is not listed, are not named for this one, so
/// whoever builds it does not have them.
fn merge_here(
    repository: &mut Repository,
    ask: &MergeAsk,
    onto: &Commit,
    packs: &[PackName],
    keep: Keep,
) -> Result<Made, ReposError> {
    let merge = Merge { ours: &onto.id, theirs: &ask.head, mode: ask.mode, message: &ask.message };
    let outcome = match repository.merge(merge) {
        Ok(outcome) => outcome,
        // It is the same however often it is tried.
        Err(error @ MergeError::TooManyCommits { .. }) => {
            return Ok(Made::Conflict(error.to_string()));
        }
        Err(error) => return Err(unknown(error)),
    };
    let result = match outcome {
        MergeOutcome::Merged(merged) => merged.commit,
        MergeOutcome::Contained(commit) => commit,
        MergeOutcome::Conflict { paths } => return Ok(Made::Conflict(paths.join(", "))),
        MergeOutcome::Unrelated => {
            return Ok(Made::Conflict(
                "its history has nothing in common with the branch".to_owned(),
            ));
        }
    };
    let files = touched(repository, &onto.id, &ask.head, &result.id)?;
    // The proposed commit goes with it where the result does not have it as a parent: what jobs say
    // of lines is told of its files.
    let tips = [result.id.clone(), ask.head.clone()];
    let pack = repository.pack_objects_beyond(&tips, packs).map_err(unknown)?;
    let kept = match keep {
        // A change that its branch holds already leaves nothing to move to.
        Keep::Added if result.id != onto.id => match repository.added(&onto.id, &result.id) {
            Ok(kept) => kept,
            Err(ReadError::TooLarge { .. }) => None,
            Err(error) => return Err(unknown(error)),
        },
        Keep::Added | Keep::Nothing => None,
    };
    Ok(Made::Merged { result, pack, files, kept })
}

/// Returns the paths that a change touches: compared with where it left the branch, and those that
/// its merge changes in the branch. They differ where the branch has renamed a file since, for
/// merges follow renames. `None` for too many.
fn touched(
    repository: &Repository,
    onto: &Oid,
    head: &Oid,
    result: &Oid,
) -> Result<Option<Vec<String>>, ReposError> {
    let base = repository.merge_base(onto, head).map_err(unknown)?.unwrap_or_else(|| onto.clone());
    let proposed = repository.changed_files(&base, head, FILES_MAX);
    let made = repository.changed_files(onto, result, FILES_MAX);
    let (Ok(proposed), Ok(made)) = (proposed, made) else { return Ok(None) };
    let all: BTreeSet<String> = proposed.into_iter().chain(made).collect();
    Ok(Some(all.into_iter().collect()))
}

pub(crate) fn gone_or_unknown(error: FetchError) -> ReposError {
    match &error {
        FetchError::Gone { .. } | FetchError::NoRepository { .. } => {
            ReposError::Gone(error.to_string())
        }
        FetchError::Denied { .. }
        | FetchError::TooManyRefs { .. }
        | FetchError::TooLarge { .. }
        | FetchError::Address { .. } => ReposError::Unreadable(error.to_string()),
        FetchError::TimedOut { .. } | FetchError::Unavailable { .. } => {
            ReposError::Unreachable(error.to_string())
        }
        FetchError::Pack(_) | FetchError::Read(_) => unknown(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_model::git::MergeMode;
    use std::path::Path;
    use std::process::Command;

    /// Runs git, which has to succeed, and returns what it printed.
    fn git(dir: &Path, arguments: &[&str]) -> String {
        let who = [
            "-c",
            "user.name=Ann",
            "-c",
            "user.email=ann@example.org",
            "-c",
            "commit.gpgsign=false",
        ];
        let output = Command::new("git")
            .args(who)
            .args(arguments)
            .current_dir(dir)
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .env("GIT_CONFIG_GLOBAL", "/dev/null")
            .output()
            .unwrap();
        assert!(
            output.status.success(),
            "git {arguments:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }

    fn commit(dir: &Path, message: &str) -> Oid {
        git(dir, &["add", "-A"]);
        git(dir, &["commit", "-q", "-m", message]);
        Oid(git(dir, &["rev-parse", "HEAD"]))
    }

    /// C06, Z6.6: a merge follows renames, so it may change a configuration file that the change
    /// does not name.
    #[test]
    fn a_change_to_a_file_that_the_branch_moved_into_the_configuration_touches_configuration() {
        let dir = tempfile::tempdir().unwrap();
        let at = dir.path().join("repository");
        std::fs::create_dir_all(at.join("conf")).unwrap();
        git(&at, &["init", "-q", "-b", "main"]);
        let text: String = (0..40).map(|line| format!("# line {line}\n")).collect();
        std::fs::write(at.join("conf/a.yaml"), &text).unwrap();
        commit(&at, "start");
        git(&at, &["switch", "-q", "-c", "change"]);
        std::fs::write(at.join("conf/a.yaml"), text.replace("# line 20\n", "- job: {name: x}\n"))
            .unwrap();
        let head = commit(&at, "a change");
        git(&at, &["switch", "-q", "main"]);
        std::fs::create_dir_all(at.join("zuul.d")).unwrap();
        git(&at, &["mv", "conf/a.yaml", "zuul.d/a.yaml"]);
        let onto = commit(&at, "moved");
        git(&at, &["repack", "-adq"]);
        let project = ProjectName::from("forge.test/org/one");
        let cache = dir.path().join("cache");
        let mut repository = Repository::open(&project, &cache).unwrap();
        for entry in std::fs::read_dir(at.join(".git/objects/pack")).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_some_and(|extension| extension == "pack") {
                let (pack, index) = (
                    std::fs::read(&path).unwrap(),
                    std::fs::read(path.with_extension("idx")).unwrap(),
                );
                repository.add_pack(&pack, &index).unwrap();
            }
        }
        let ask = MergeAsk {
            connection: "github".into(),
            branch: BranchKey { project: project.clone(), branch: "main".into() },
            onto: None,
            head,
            mode: MergeMode::Merge,
            message: "Merge it".to_owned(),
        };
        let onto = repository.commit(&onto).unwrap().commit;
        let Made::Merged { files: Some(files), .. } =
            merge_here(&mut repository, &ask, &onto, &[], Keep::Nothing).unwrap()
        else {
            panic!("it merges");
        };
        assert_eq!(files, ["conf/a.yaml", "zuul.d/a.yaml"]);
    }
}
