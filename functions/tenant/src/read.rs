//! Reads configuration files of projects at their branches' tips, and keeps them so that only what moved is read again.
//!
//! A project that cannot be read is a problem of its own: the tenant goes on with what was read of it last, and tries again
//! after a while (C16). A look reads so much and no more; what is left is read by the next.

use crate::Tenants;
use bytes::Bytes;
use sluice_config::fragment::{Fragment, Source, SourceFile, config_paths, parse};
use sluice_config::tenant::{BranchFacts, TenantConfig, TenantProject};
use sluice_model::git::Oid;
use sluice_model::id::digest;
use sluice_model::{BranchName, ProjectName, Timestamp};
use sluice_records::codec::{decode_foreign, encode_first};
use sluice_records::tenant::{self, BranchSource, ProjectSource, SOURCES};
use sluice_repos::{Branches, ProjectAt, ReposError};
use sluice_runtime::batch::LookError;
use sluice_runtime::object::PutMode;
use sluice_runtime::record::{Expect, Query, Write};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Branches of one project that are kept: those that count most.
const BRANCHES_MAX: usize = 400;

/// Bytes of branches that stand in a project's record; more of them stand in an object.
const BRANCHES_BYTES_MAX: usize = 32 * 1024;

/// Answers of forges that one look asks for: lists of branches, and branches' files.
const READ_MAX: usize = 80;

/// Projects that one look writes; a commit holds as many marks besides.
const WRITES_MAX: usize = 45;

/// Seconds after which a project is read again that is gone or cannot be read as it is.
const GONE_RETRY_SECONDS: u64 = 600;

/// Seconds after which a project is read again whose forge did not answer.
const SILENT_RETRY_SECONDS: u64 = 60;

/// Characters of a problem that are kept.
const PROBLEM_CHARS_MAX: usize = 500;

/// What is known of every project after a look, and what of it has to be written.
pub(crate) struct Sources {
    pub(crate) kept: Vec<ProjectSource>,
    pub(crate) writes: Vec<Write>,
    /// Projects whose reading is not finished: the next look goes on.
    pub(crate) unread: BTreeSet<ProjectName>,
}

/// What one look may still ask forges for.
struct Budget(usize);

impl Budget {
    fn take(&mut self) -> bool {
        let has = self.0 > 0;
        self.0 = self.0.saturating_sub(1);
        has
    }
}

/// How the reading of one project came out.
enum Reading {
    Whole(ProjectSource),
    /// Some branches are as they were before, for the budget is spent.
    Partial(ProjectSource),
}

/// What is read of a project, and how patiently.
#[derive(Clone, Copy)]
struct Wanted<'a> {
    config: &'a TenantConfig,
    project: &'a TenantProject,
    /// What was known before.
    before: Option<&'a ProjectSource>,
    /// Whether the tenant waits for it rather than go on without an answer.
    is_waited_for: bool,
}

impl Tenants {
    /// Reads projects that `moved`, were never read, or are to be tried again; the others are as they were kept. Those that are
    /// `waited_for` are not given up while their forge is silent.
    pub(crate) async fn read(
        &self,
        config: &TenantConfig,
        moved: &BTreeSet<ProjectName>,
        waited_for: &BTreeSet<ProjectName>,
    ) -> Result<Sources, LookError> {
        let mut known = self.known(config).await?;
        let now = self.ports.clock.now();
        let mut sources = Sources { kept: Vec::new(), writes: Vec::new(), unread: BTreeSet::new() };
        let mut budget = Budget(READ_MAX);
        for project in &config.projects {
            let before = known.remove(&project.name);
            let is_moved = moved.contains(&project.name);
            let is_due = |before: &ProjectSource| is_moved || before.retry_at.is_some_and(|at| at <= now);
            if let Some(before) = before.as_ref().filter(|before| !is_due(before)) {
                sources.kept.push(before.clone());
                continue;
            }
            if sources.writes.len() >= WRITES_MAX || !budget.take() {
                sources.unread.insert(project.name.clone());
                sources.kept.extend(before);
                continue;
            }
            let is_waited_for = waited_for.contains(&project.name);
            let wanted = Wanted { config, project, before: before.as_ref(), is_waited_for };
            let source = match self.read_project(wanted, &mut budget).await? {
                Reading::Whole(source) => source,
                Reading::Partial(source) => {
                    sources.unread.insert(project.name.clone());
                    source
                }
            };
            if before.as_ref() != Some(&source) {
                sources.writes.push(self.store(config, &source).await?);
            }
            sources.kept.push(source);
        }
        Ok(sources)
    }

    async fn known(&self, config: &TenantConfig) -> Result<BTreeMap<ProjectName, ProjectSource>, LookError> {
        let mut known = BTreeMap::new();
        let mut after = None;
        // A page at a time, at most 20,000 projects.
        for _ in 0..20 {
            let query = Query { after: after.take(), ..Query::prefix(tenant::partition(&config.name), SOURCES, 1_000) };
            let records = self.ports.records.query(&query).await?;
            for record in &records {
                // Whatever cannot be read any more is read anew from the project's forge.
                let Some(mut source) = decode_foreign::<ProjectSource>(record) else { continue };
                if let Some(key) = source.branches_object.take() {
                    let Some(branches) = self.kept_branches(&key).await? else { continue };
                    source.branches = branches;
                }
                known.insert(source.project.clone(), source);
            }
            if records.len() < 1_000 {
                break;
            }
            after = records.last().map(|record| record.key.sort.clone());
        }
        Ok(known)
    }

    /// Returns the write that keeps a source; branches that are too many for a record are stored beside it.
    async fn store(&self, config: &TenantConfig, source: &ProjectSource) -> Result<Write, LookError> {
        let mut stored = source.clone();
        let text = serde_json::to_string(&source.branches).map_err(|error| LookError::Again(error.to_string()))?;
        if text.len() > BRANCHES_BYTES_MAX {
            stored.branches_object = Some(self.put_files(text).await?);
            stored.branches.clear();
        }
        let record = encode_first(tenant::source_key(&config.name, &source.project), &stored)?;
        Ok(Write::Put { record, expect: Expect::Anything })
    }

    /// Reads one project; what cannot be read of it does not stop the tenant.
    async fn read_project(&self, wanted: Wanted<'_>, budget: &mut Budget) -> Result<Reading, LookError> {
        let Wanted { config, project, before, .. } = wanted;
        let at = ProjectAt { connection: project.connection.clone(), project: project.name.clone() };
        let branches = match self.repos.branches(&at).await {
            Ok(branches) => branches,
            Err(error) => return Ok(Reading::Whole(self.unreadable(wanted, before_or_none(wanted), error)?)),
        };
        if project.trust.is_trusted() && project.load_branch.is_none() && branches.default.is_none() {
            let why = "its forge does not say which branch is the default; name one by load-branch".to_owned();
            let source = before_or_none(wanted);
            return Ok(Reading::Whole(self.unreadable(wanted, source, ReposError::Unreadable(why))?));
        }
        let mut source = nothing(project);
        let mut problem = None;
        let mut is_whole = true;
        for (branch, commit) in in_order(config, project, before, &branches).into_iter().take(BRANCHES_MAX) {
            let known = before.and_then(|before| before.branches.iter().find(|known| known.branch == *branch));
            let entry = |files| BranchSource { branch: branch.clone(), commit: commit.clone(), files, read: true };
            if !is_read(config, project, branch, &branches) {
                source.branches.push(BranchSource { read: false, ..entry(None) });
            } else if let Some(known) = known.filter(|known| known.read && known.commit == *commit) {
                source.branches.push(known.clone());
            } else if !budget.take() {
                is_whole = false;
                source.branches.extend(known.cloned());
            } else {
                match self.read_branch(&at, project, commit).await {
                    Ok(files) => source.branches.push(entry(files)),
                    Err(Unread::Port(error)) => return Err(error),
                    Err(Unread::Repos(error)) => {
                        source.branches.extend(known.cloned());
                        problem.get_or_insert(error);
                    }
                }
            }
        }
        Ok(match problem {
            Some(error) => Reading::Whole(self.unreadable(wanted, source, error)?),
            None if is_whole => Reading::Whole(source),
            None => Reading::Partial(source),
        })
    }

    /// Returns what a project is taken for that cannot be read. Where its forge is only silent, nothing was ever read of the
    /// project, or the tenant waits for it, an answer is waited for instead.
    fn unreadable(
        &self,
        wanted: Wanted<'_>,
        source: ProjectSource,
        error: ReposError,
    ) -> Result<ProjectSource, LookError> {
        let Wanted { config, project, before, is_waited_for } = wanted;
        let (why, seconds) = match error {
            ReposError::Gone(why) | ReposError::Unreadable(why) => (why, GONE_RETRY_SECONDS),
            ReposError::Unreachable(why) | ReposError::Unknown(why) if is_waited_for || before.is_none() => {
                return Err(LookError::Again(why));
            }
            ReposError::Unreachable(why) | ReposError::Unknown(why) => (why, SILENT_RETRY_SECONDS),
        };
        tracing::error!(tenant = %config.name, project = %project.name, why, "a project cannot be read; what was read last stays");
        Ok(ProjectSource {
            problem: Some(why.chars().take(PROBLEM_CHARS_MAX).collect()),
            retry_at: Some(self.ports.clock.now().plus_seconds(seconds)),
            ..source
        })
    }

    async fn read_branch(
        &self,
        at: &ProjectAt,
        project: &TenantProject,
        commit: &Oid,
    ) -> Result<Option<String>, Unread> {
        let found = match self.repos.configuration(at, commit, None, &project.extra_config_paths).await {
            Ok(found) => found,
            // The branch moved on between the two questions, which is told of as well; until it is read, the older files count.
            Err(ReposError::Gone(why)) => return Err(Unread::Repos(ReposError::Unknown(why))),
            Err(error) => return Err(Unread::Repos(error)),
        };
        let files: Vec<(String, String)> =
            found.into_iter().map(|(path, bytes)| (path, String::from_utf8_lossy(&bytes).into_owned())).collect();
        if files.is_empty() {
            return Ok(None);
        }
        let text = serde_json::to_string(&files).map_err(|error| Unread::Port(LookError::Again(error.to_string())))?;
        Ok(Some(self.put_files(text).await.map_err(Unread::Port)?))
    }

    async fn put_files(&self, text: String) -> Result<String, LookError> {
        let key = format!("layouts/files/{}", digest(&["files", &text]));
        self.ports.objects.put(&key, Bytes::from(text), PutMode::Always, "application/json").await?;
        Ok(key)
    }

    /// Returns branches that stand beside their record; `None` where they are lost or damaged.
    async fn kept_branches(&self, key: &str) -> Result<Option<Vec<BranchSource>>, LookError> {
        let object = self.ports.objects.get(key).await?;
        let branches = object.and_then(|object| serde_json::from_slice(&object.bytes).ok());
        if branches.is_none() {
            tracing::error!(key, "branches that were kept cannot be read; they are asked for again");
        }
        Ok(branches)
    }

    async fn object<T: serde::de::DeserializeOwned>(&self, key: &str) -> Result<T, LookError> {
        let again = |why: String| LookError::Again(format!("could not read {key}: {why}"));
        let object = self.ports.objects.get(key).await?.ok_or_else(|| again("there is no such object".to_owned()))?;
        serde_json::from_slice(&object.bytes).map_err(|error| again(error.to_string()))
    }

    /// Parses the files of one branch, in the order in which they count.
    pub(crate) async fn fragments(
        &self,
        project: &TenantProject,
        read: &BranchSource,
    ) -> Result<Vec<Arc<Fragment>>, LookError> {
        let Some(key) = &read.files else { return Ok(Vec::new()) };
        let files: Vec<(String, String)> = self.object(key).await?;
        Ok(fragments(project, &read.branch, &files))
    }
}

/// Why the files of a branch were not read.
enum Unread {
    Port(LookError),
    Repos(ReposError),
}

/// Returns when the first of these is to be read again although nothing moved there.
pub(crate) fn retry_at(sources: &[ProjectSource]) -> Option<Timestamp> {
    sources.iter().filter_map(|source| source.retry_at).min()
}

fn nothing(project: &TenantProject) -> ProjectSource {
    ProjectSource {
        project: project.name.clone(),
        branches: Vec::new(),
        problem: None,
        retry_at: None,
        branches_object: None,
    }
}

fn before_or_none(wanted: Wanted<'_>) -> ProjectSource {
    wanted.before.cloned().unwrap_or_else(|| nothing(wanted.project))
}

/// Returns the branches, those that count most first: the default one, those that are read for configuration and had some
/// already, the others that are read, the rest. So nobody crowds out what counts by pushing many branches.
fn in_order<'a>(
    config: &TenantConfig,
    project: &TenantProject,
    before: Option<&ProjectSource>,
    branches: &'a Branches,
) -> Vec<(&'a BranchName, &'a Oid)> {
    let had_files = |branch: &BranchName| {
        before
            .is_some_and(|before| before.branches.iter().any(|known| known.branch == *branch && known.files.is_some()))
    };
    let rank = |branch: &BranchName| match () {
        () if branches.default.as_ref() == Some(branch) => 0,
        () if !is_read(config, project, branch, branches) => 3,
        () if had_files(branch) => 1,
        () => 2,
    };
    let mut ordered: Vec<_> = branches.tips.iter().map(|(branch, commit)| (rank(branch), branch, commit)).collect();
    ordered.sort();
    ordered.into_iter().map(|(_, branch, commit)| (branch, commit)).collect()
}

/// Parses configuration files of one branch of a project.
fn fragments(project: &TenantProject, branch: &BranchName, files: &[(String, String)]) -> Vec<Arc<Fragment>> {
    let paths = config_paths(files.iter().map(|(path, _)| path.as_str()), &project.extra_config_paths);
    let text = |path: &str| files.iter().find(|(known, _)| known == path).map(|(_, text)| text.clone());
    let source = |path: &str| Source {
        connection: project.connection.clone(),
        project: project.name.clone(),
        branch: branch.clone(),
        path: path.to_owned(),
        trust: project.trust,
    };
    let parsed =
        paths.into_iter().filter_map(|path| Some(parse(&SourceFile { source: source(path), text: text(path)? })));
    parsed.map(Arc::new).collect()
}

/// Returns whether a branch is read (Z2.2). Which one is the default, the forge says: whoever may push a branch may give it any
/// name.
fn is_read(config: &TenantConfig, project: &TenantProject, branch: &BranchName, all: &Branches) -> bool {
    let facts =
        BranchFacts { is_default: Some(all.default.as_ref() == Some(branch)), ..BranchFacts::named(branch.as_str()) };
    config.reads_branch(project, &facts)
}
