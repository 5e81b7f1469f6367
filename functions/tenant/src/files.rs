//! The configuration files of branches: kept as objects by their content, and parsed once for each
//! content.
//!
//! What the live layout has parsed already is taken from it, neither fetched nor parsed: a landing
//! costs the files that it touched, however large the tenant is. And what one tenant had read of a
//! commit others are given, while this instance lives.

use crate::Tenants;
use bytes::Bytes;
use sluice_config::fragment::{self, Fragment, SourceFile, passed_over, source_files, text_of};
use sluice_config::layout::Layout;
use sluice_config::tenant::TenantProject;
use sluice_model::BranchName;
use sluice_model::git::Oid;
use sluice_model::id::digest;
use sluice_records::tenant::{BranchSource, Tenant};
use sluice_repos::{ProjectAt, ReposError};
use sluice_runtime::batch::LookError;
use sluice_runtime::object::PutMode;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

/// Branches whose files are remembered as their forges gave them.
const SEEN_MAX: usize = 64;

/// Bytes of one branch's files beyond which they are not remembered.
const SEEN_BYTES_MAX: usize = 64 << 10;

/// Paths with their texts.
type Texts = Vec<(String, String)>;

/// Where the files of a commit may come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Origin {
    /// From whoever has them: a commit says the same for ever.
    Anywhere,
    /// From the project's forge alone, since what was kept of the project is lost.
    Forge,
}

/// What forges gave of late, by what they were asked, so that tenants that share a repository have
/// each commit of it read once.
#[derive(Default)]
pub(crate) struct Seen(Mutex<VecDeque<(String, Texts)>>);

impl Seen {
    fn get(&self, asked: &str) -> Option<Texts> {
        let seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        seen.iter().find(|(known, _)| known == asked).map(|(_, files)| files.clone())
    }

    fn keep(&self, asked: String, files: &[(String, String)]) {
        if files.iter().map(|(path, text)| path.len() + text.len()).sum::<usize>() > SEEN_BYTES_MAX
        {
            return;
        }
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        seen.retain(|(known, _)| *known != asked);
        seen.push_back((asked, files.to_vec()));
        if seen.len() > SEEN_MAX {
            seen.pop_front();
        }
    }
}

/// Why the files of a branch were not read.
pub(crate) enum Unread {
    Port(LookError),
    Repos(ReposError),
}

/// How much of a layout was there already.
#[derive(Debug, Default)]
pub(crate) struct Work {
    /// Branches whose files were taken over as they are.
    pub(crate) kept: usize,
    /// Branches whose files were fetched.
    pub(crate) fetched: usize,
}

impl Tenants {
    /// Returns the live layout, if its files were parsed as this program parses them. Without it
    /// everything is parsed anew, so one that cannot be opened is no reason to stop.
    pub(crate) async fn taken_over(&self, head: &Tenant) -> Option<Arc<Layout>> {
        let object = head.layout_object.as_ref().filter(|_| !head.is_removed)?;
        match self.layouts.open(&self.ports, object).await {
            Ok(layout) => Some(layout).filter(|layout| layout.is_parsed_as_now()),
            Err(error) => {
                tracing::warn!(tenant = %head.name, %error, "the live layout cannot be opened, so every file is parsed again");
                None
            }
        }
    }

    /// Reads the configuration files of a branch at a commit. Returns the object that they are kept
    /// as and the name of what they come to, `None` for a branch without any.
    pub(crate) async fn read_branch(
        &self,
        at: &ProjectAt,
        project: &TenantProject,
        branch: &BranchName,
        commit: &Oid,
        origin: Origin,
    ) -> Result<Option<(String, String)>, Unread> {
        let files = self.texts(at, project, commit, origin).await?;
        if files.is_empty() {
            return Ok(None);
        }
        let text = serde_json::to_string(&files)
            .map_err(|error| Unread::Port(LookError::Again(error.to_string())))?;
        let mut hashes: Vec<String> =
            passed_over(project, branch, &files).iter().map(|one| one.hash.clone()).collect();
        hashes.extend(source_files(project, branch, files).iter().map(fragment::hash));
        let content = fragment::content(hashes.iter().map(String::as_str));
        Ok(Some((self.put_files(text).await.map_err(Unread::Port)?, content)))
    }

    /// Returns the configuration files of a project at a commit.
    async fn texts(
        &self,
        at: &ProjectAt,
        project: &TenantProject,
        commit: &Oid,
        origin: Origin,
    ) -> Result<Texts, Unread> {
        let paths = &project.extra_config_paths;
        let extra = serde_json::to_string(paths)
            .map_err(|error| Unread::Port(LookError::Again(error.to_string())))?;
        let asked =
            digest(&["seen", at.connection.as_str(), at.project.as_str(), commit.as_str(), &extra]);
        if let Some(files) = self.seen.get(&asked).filter(|_| origin == Origin::Anywhere) {
            return Ok(files);
        }
        let found = match self.repos.configuration(at, commit, None, paths).await {
            Ok(found) => found,
            // The branch moved on between the two questions, which is told of as well; until it is
            // read, the older files count.
            Err(ReposError::Gone(why)) => return Err(Unread::Repos(ReposError::Unknown(why))),
            Err(error) => return Err(Unread::Repos(error)),
        };
        let files: Texts = found.into_iter().map(|(path, bytes)| (path, text_of(bytes))).collect();
        self.seen.keep(asked, &files);
        Ok(files)
    }

    /// Stores a text under the name of its content.
    pub(crate) async fn put_files(&self, text: String) -> Result<String, LookError> {
        let key = format!("layouts/files/{}", digest(&["files", &text]));
        self.ports
            .objects
            .put(&key, Bytes::from(text), PutMode::Always, "application/json")
            .await?;
        Ok(key)
    }

    /// Returns the parsed files of one branch, in the order in which they count.
    pub(crate) async fn fragments(
        &self,
        live: Option<&Layout>,
        project: &TenantProject,
        read: &BranchSource,
        work: &mut Work,
    ) -> Result<Vec<Arc<Fragment>>, LookError> {
        let Some(key) = &read.files else { return Ok(Vec::new()) };
        let kept = live.zip(read.content.as_ref());
        let kept = kept.and_then(|(live, content)| live.kept(&project.name, &read.branch, content));
        // What could not be read since is named as it was read then: a project that was trusted may
        // be so no more.
        let is_as_now = |file: &Arc<Fragment>| {
            file.source.trust == project.trust && file.source.connection == project.connection
        };
        if let Some(kept) = kept.filter(|files| files.iter().all(is_as_now)) {
            work.kept += 1;
            return Ok(kept);
        }
        work.fetched += 1;
        let files: Vec<(String, String)> = self.object(key).await?;
        let parse = |file: &SourceFile| match live {
            // A branch of many files is often edited in one.
            Some(live) => live.parse(file),
            None => Arc::new(fragment::parse(file)),
        };
        let passed_over = passed_over(project, &read.branch, &files);
        Ok(source_files(project, &read.branch, files)
            .iter()
            .map(parse)
            .chain(passed_over)
            .collect())
    }

    async fn object<T: serde::de::DeserializeOwned>(&self, key: &str) -> Result<T, LookError> {
        let again = |why: String| LookError::Again(format!("could not read {key}: {why}"));
        let object = self
            .ports
            .objects
            .get(key)
            .await?
            .ok_or_else(|| again("there is no such object".to_owned()))?;
        serde_json::from_slice(&object.bytes).map_err(|error| again(error.to_string()))
    }
}
