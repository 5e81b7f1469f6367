//! Reads configuration files of projects at their branches' tips, and keeps them so that only what moved is read again.

use crate::Tenants;
use bytes::Bytes;
use sluice_config::fragment::{Fragment, Source, SourceFile, config_paths, parse};
use sluice_config::tenant::{TenantConfig, TenantProject};
use sluice_model::git::Oid;
use sluice_model::id::digest;
use sluice_model::{BranchName, ProjectName};
use sluice_records::codec::{decode, encode_first};
use sluice_records::tenant::{self, BranchSource, ProjectSource, SOURCES};
use sluice_repos::{ProjectAt, ReposError};
use sluice_runtime::batch::LookError;
use sluice_runtime::object::PutMode;
use sluice_runtime::record::{Expect, Key, Query, Write};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Branches of one project that are kept.
const BRANCHES_MAX: usize = 400;

/// Projects that one look reads; a new tenant with more takes several looks.
const READ_MAX: usize = 80;

/// What is known of every project after a look, and what of it has to be written.
pub(crate) struct Sources {
    pub(crate) kept: Vec<ProjectSource>,
    pub(crate) writes: Vec<Write>,
}

impl Tenants {
    /// Reads projects that moved or were never read; the others are as they were kept.
    pub(crate) async fn read(&self, config: &TenantConfig, dirty: &[(ProjectName, Key)]) -> Result<Sources, LookError> {
        let mut known = BTreeMap::new();
        let mut after = None;
        // A page at a time, at most 20,000 projects.
        for _ in 0..20 {
            let query = Query { after: after.take(), ..Query::prefix(tenant::partition(&config.name), SOURCES, 1_000) };
            let records = self.ports.records.query(&query).await?;
            for record in &records {
                let source: ProjectSource = decode(record)?;
                known.insert(source.project.clone(), source);
            }
            if records.len() < 1_000 {
                break;
            }
            after = records.last().map(|record| record.key.sort.clone());
        }
        let mut sources = Sources { kept: Vec::new(), writes: Vec::new() };
        for project in &config.projects {
            let is_dirty = dirty.iter().any(|(name, _)| *name == project.name);
            let before = known.remove(&project.name);
            if let Some(before) = before.as_ref().filter(|_| !is_dirty) {
                sources.kept.push(before.clone());
                continue;
            }
            if sources.writes.len() >= READ_MAX {
                return Err(LookError::Again("more projects than one look reads".to_owned()));
            }
            let now = self.read_project(config, project, before.as_ref()).await?;
            if before.as_ref() != Some(&now) {
                let record = encode_first(tenant::source_key(&config.name, &project.name), &now)?;
                sources.writes.push(Write::Put { record, expect: Expect::Anything });
            }
            sources.kept.push(now);
        }
        Ok(sources)
    }

    /// Reads one project; a repository that is gone is a problem of its own and does not stop the tenant (C16).
    async fn read_project(
        &self,
        config: &TenantConfig,
        project: &TenantProject,
        before: Option<&ProjectSource>,
    ) -> Result<ProjectSource, LookError> {
        let at = ProjectAt { connection: project.connection.clone(), project: project.name.clone() };
        let mut source = ProjectSource { project: project.name.clone(), branches: Vec::new(), problem: None };
        let branches = match self.repos.branches(&at).await {
            Ok(branches) => branches,
            Err(ReposError::Gone(why)) => {
                tracing::error!(tenant = %config.name, project = %project.name, why, "a project cannot be read");
                return Ok(ProjectSource { problem: Some(why), ..source });
            }
            Err(error) => return Err(LookError::Again(error.to_string())),
        };
        for (branch, commit) in branches.iter().take(BRANCHES_MAX) {
            let known = before.and_then(|before| {
                before.branches.iter().find(|read| read.branch == *branch && read.commit == *commit)
            });
            let files = match known {
                Some(known) => known.files.clone(),
                None if is_read(config, project, branch, &branches) => self.read_branch(&at, project, commit).await?,
                None => None,
            };
            source.branches.push(BranchSource { branch: branch.clone(), commit: commit.clone(), files });
        }
        Ok(source)
    }

    async fn read_branch(
        &self,
        at: &ProjectAt,
        project: &TenantProject,
        commit: &Oid,
    ) -> Result<Option<String>, LookError> {
        let found = match self.repos.configuration(at, commit, None, &project.extra_config_paths).await {
            Ok(found) => found,
            // The branch moved on between the two questions; the push that moved it has us look again.
            Err(ReposError::Gone(_)) => return Ok(None),
            Err(error) => return Err(LookError::Again(error.to_string())),
        };
        let files: Vec<(String, String)> =
            found.into_iter().map(|(path, bytes)| (path, String::from_utf8_lossy(&bytes).into_owned())).collect();
        if files.is_empty() {
            return Ok(None);
        }
        let text = serde_json::to_string(&files).map_err(|error| LookError::Again(error.to_string()))?;
        let key = format!("layouts/files/{}", digest(&["files", &text]));
        self.ports.objects.put(&key, Bytes::from(text), PutMode::Always, "application/json").await?;
        Ok(Some(key))
    }

    /// Parses the files of one branch, in the order in which they count.
    pub(crate) async fn fragments(
        &self,
        project: &TenantProject,
        read: &BranchSource,
    ) -> Result<Vec<Arc<Fragment>>, LookError> {
        let Some(key) = &read.files else { return Ok(Vec::new()) };
        let again = |why: String| LookError::Again(format!("could not read {key}: {why}"));
        let object = self.ports.objects.get(key).await?.ok_or_else(|| again("there is no such object".to_owned()))?;
        let files: Vec<(String, String)> =
            serde_json::from_slice(&object.bytes).map_err(|error| again(error.to_string()))?;
        Ok(fragments(project, &read.branch, &files))
    }
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

/// Returns whether a branch is read: of a config project one alone, of others all that the tenant includes (Z2.2).
fn is_read(config: &TenantConfig, project: &TenantProject, branch: &BranchName, all: &[(BranchName, Oid)]) -> bool {
    if let Some(only) = &project.load_branch {
        return branch.as_str() == only;
    }
    if project.trust.is_trusted() {
        let has = |name: &str| all.iter().any(|(branch, _)| branch.as_str() == name);
        let default = if has("master") {
            Some("master")
        } else if has("main") {
            Some("main")
        } else {
            all.first().map(|(b, _)| b.as_str())
        };
        return default == Some(branch.as_str());
    }
    config.reads_branch(project, branch.as_str())
}
