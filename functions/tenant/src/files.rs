//! Reads the configuration files of branches. They are stored as objects by their content, and
//! parsed once for each content.
//!
//! Files that the live layout has parsed are taken from it, neither fetched nor parsed: a landing
//! costs the files that it touched, however large the tenant is. What one tenant read of a commit
//! is cached for others, while this instance lives.

use crate::Tenants;
use bytes::Bytes;
use sluice_config::fragment::{
    self, Fragment, SourceFile, ignored_locations, source_files, text_of,
};
use sluice_config::layout::Layout;
use sluice_config::tenant::TenantProject;
use sluice_model::BranchName;
use sluice_model::git::Oid;
use sluice_model::id::digest;
use sluice_records::tenant::{BranchSource, Tenant};
use sluice_repos::{ProjectAt, ReposError};
use sluice_runtime::batch::ReconcileError;
use sluice_runtime::object::PutMode;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

/// The most branches whose files are cached.
const SEEN_MAX: usize = 64;

/// The most bytes of one branch's files that are cached.
const SEEN_BYTES_MAX: usize = 64 << 10;

/// Texts by path.
type Texts = Vec<(String, String)>;

/// Where the files of a commit may come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Origin {
    /// From any cache: a commit's files never change.
    Anywhere,
    /// From the project's forge only, because the stored source is lost.
    Forge,
}

/// Cache of files by the request that returned them, so that tenants that share a repository read
/// each commit once.
#[derive(Default)]
pub(crate) struct FileCache(Mutex<VecDeque<(String, Texts)>>);

impl FileCache {
    /// Returns the cached files of a request; `None` if they are not cached.
    fn get(&self, asked: &str) -> Option<Texts> {
        let seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        seen.iter().find(|(known, _)| known == asked).map(|(_, files)| files.clone())
    }

    /// Caches the files of a request, unless they are larger than [`SEEN_BYTES_MAX`], and drops the
    /// oldest request if there are more than [`SEEN_MAX`].
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
    Port(ReconcileError),
    Repos(ReposError),
}

/// Counts what a layout reused.
#[derive(Debug, Default)]
pub(crate) struct FragmentStats {
    /// Branches whose files were reused.
    pub(crate) reused: usize,
    /// Branches whose files were fetched.
    pub(crate) fetched: usize,
}

impl Tenants {
    /// Returns the live layout to take unchanged files from. `None` if nothing is live, the tenant
    /// is removed, another version of Sluice parsed it, or it cannot be read; then everything is
    /// parsed again.
    pub(crate) async fn reusable_layout(&self, head: &Tenant) -> Option<Arc<Layout>> {
        let object = head.layout_object.as_ref().filter(|_| !head.is_removed)?;
        match self.layouts.load(&self.ports, object).await {
            Ok(layout) => Some(layout).filter(|layout| layout.is_parsed_as_now()),
            Err(error) => {
                tracing::warn!(tenant = %head.name, %error, "the live layout cannot be opened, so every file is parsed again");
                None
            }
        }
    }

    /// Reads the configuration files of a branch at a commit and stores them as an object. Returns
    /// the object's key and the digest of the content, by which [`Self::fragments`] recognises
    /// unchanged files; `None` for a branch without configuration. If the commit is gone, the error
    /// is `Unknown`: the branch moved meanwhile.
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
            .map_err(|error| Unread::Port(ReconcileError::Retry(error.to_string())))?;
        let mut hashes: Vec<String> =
            ignored_locations(project, branch, &files).iter().map(|one| one.hash.clone()).collect();
        hashes.extend(source_files(project, branch, files).iter().map(fragment::hash));
        let content = fragment::content_hash(hashes.iter().map(String::as_str));
        Ok(Some((self.put_files(text).await.map_err(Unread::Port)?, content)))
    }

    /// Reads the configuration files of a project at a commit, from the cache if `origin` allows it
    /// and they are there, and caches them. If the commit is gone, the error is `Unknown`.
    async fn texts(
        &self,
        at: &ProjectAt,
        project: &TenantProject,
        commit: &Oid,
        origin: Origin,
    ) -> Result<Texts, Unread> {
        let paths = &project.extra_config_paths;
        let extra = serde_json::to_string(paths)
            .map_err(|error| Unread::Port(ReconcileError::Retry(error.to_string())))?;
        let asked =
            digest(&["seen", at.connection.as_str(), at.project.as_str(), commit.as_str(), &extra]);
        if let Some(files) = self.file_cache.get(&asked).filter(|_| origin == Origin::Anywhere) {
            return Ok(files);
        }
        let found = match self.repos.configuration_files(at, commit, None, paths).await {
            Ok(found) => found,
            // The branch moved between the two requests, which has an event of its own; until then
            // the older files count.
            Err(ReposError::Gone(why)) => return Err(Unread::Repos(ReposError::Unknown(why))),
            Err(error) => return Err(Unread::Repos(error)),
        };
        let files: Texts = found.into_iter().map(|(path, bytes)| (path, text_of(bytes))).collect();
        self.file_cache.keep(asked, &files);
        Ok(files)
    }

    /// Stores a text under the digest of its content and returns the object's key.
    pub(crate) async fn put_files(&self, text: String) -> Result<String, ReconcileError> {
        let key = format!("layouts/files/{}", digest(&["files", &text]));
        self.ports
            .objects
            .put(&key, Bytes::from(text), PutMode::Always, "application/json")
            .await?;
        Ok(key)
    }

    /// Returns the parsed files of one branch in the order in which they apply, with a fragment of
    /// warnings about ignored locations; none for a branch without files. Files that the live
    /// layout has unchanged are not parsed again. `work` counts whether the branch was reused or
    /// fetched.
    pub(crate) async fn fragments(
        &self,
        live: Option<&Layout>,
        project: &TenantProject,
        read: &BranchSource,
        work: &mut FragmentStats,
    ) -> Result<Vec<Arc<Fragment>>, ReconcileError> {
        let Some(key) = &read.files else { return Ok(Vec::new()) };
        let reused = live.zip(read.content.as_ref());
        let reused = reused
            .and_then(|(live, content)| live.carry_over(&project.name, &read.branch, content));
        // A file keeps the source that it was read with: the project may have been trusted then.
        let is_as_now = |file: &Arc<Fragment>| {
            file.source.trust == project.trust && file.source.connection == project.connection
        };
        if let Some(reused) = reused.filter(|files| files.iter().all(is_as_now)) {
            work.reused += 1;
            return Ok(reused);
        }
        work.fetched += 1;
        let files: Vec<(String, String)> = self.object(key).await?;
        let parse = |file: &SourceFile| match live {
            // Often only one file of a branch changes.
            Some(live) => live.parse(file),
            None => Arc::new(fragment::parse(file)),
        };
        let ignored_locations = ignored_locations(project, &read.branch, &files);
        Ok(source_files(project, &read.branch, files)
            .iter()
            .map(parse)
            .chain(ignored_locations)
            .collect())
    }

    /// Reads and decodes a stored object; a missing or damaged one is an error that has the message
    /// delivered again.
    async fn object<T: serde::de::DeserializeOwned>(&self, key: &str) -> Result<T, ReconcileError> {
        let again = |why: String| ReconcileError::Retry(format!("could not read {key}: {why}"));
        let object = self
            .ports
            .objects
            .get(key)
            .await?
            .ok_or_else(|| again("there is no such object".to_owned()))?;
        serde_json::from_slice(&object.bytes).map_err(|error| again(error.to_string()))
    }
}
