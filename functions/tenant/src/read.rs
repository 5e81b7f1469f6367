//! Reads configuration files of projects at the tips of their branches, and stores them so that
//! only what moved is read again.
//!
//! A project that cannot be read is reported on its own: the tenant continues with what was read of
//! it last, and tries again later (C16). One run reads a limited amount; the next one continues.

use crate::Tenants;
use crate::branch_protection::BranchProtections;
use crate::files::{Origin, Unread};
use sluice_config::Connections;
use sluice_config::tenant::{BranchFacts, TenantConfig, TenantProject};
use sluice_model::git::Oid;
use sluice_model::id::digest;
use sluice_model::{BranchName, ProjectName, Timestamp};
use sluice_records::codec::{decode_or_log, encode_first};
use sluice_records::tenant::{self, BranchSource, ProjectSource, SOURCES, Tenant};
use sluice_repos::{Branches, ProjectAt, ReposError};
use sluice_runtime::batch::ReconcileError;
use sluice_runtime::record::{Expect, Query, Write};
use std::collections::{BTreeMap, BTreeSet};

/// The most branches of a project that are stored, the most relevant first.
const BRANCHES_MAX: usize = 400;

/// The most bytes of branches in a project's record; more are stored in an object.
const BRANCHES_BYTES_MAX: usize = 32 * 1024;

/// The most forge requests of one run: lists of branches, and files of branches.
const READ_MAX: usize = 80;

/// The most projects that one run writes; a commit deletes as many requests besides.
const WRITES_MAX: usize = 45;

/// Seconds after which a project that does not exist or is unreadable is read again.
const GONE_RETRY_SECONDS: u64 = 600;

/// Seconds after which a project whose forge did not answer is read again.
const SILENT_RETRY_SECONDS: u64 = 60;

/// The most characters of an error that are stored.
const PROBLEM_CHARS_MAX: usize = 500;

/// The sources of all projects after a run, and the writes that store them.
pub(crate) struct Sources {
    /// What is known of each project.
    pub(crate) projects: Vec<ProjectSource>,
    /// The writes that store what was read.
    pub(crate) writes: Vec<Write>,
    /// Projects that are not completely read: the next run continues.
    pub(crate) unread: BTreeSet<ProjectName>,
}

/// The forge requests that one run may still make.
struct Budget(usize);

impl Budget {
    /// Uses one unit of the budget; false if it is spent.
    fn take(&mut self) -> bool {
        let has = self.0 > 0;
        self.0 = self.0.saturating_sub(1);
        has
    }
}

/// What to read of a project, and whether to wait for its forge.
#[derive(Clone, Copy)]
struct ProjectReading<'a> {
    /// The tenant's part of the main configuration.
    config: &'a TenantConfig,
    /// All configured connections.
    connections: &'a Connections,
    /// The project to read.
    project: &'a TenantProject,
    /// The digest of the tenant's parameters for the project.
    rules: &'a str,
    /// The source as it was stored.
    before: Option<&'a ProjectSource>,
    /// Whether the tenant waits for the forge instead of continuing without an answer.
    is_waited_for: bool,
    /// Whether the stored source was lost, so that only the forge has it.
    is_lost: bool,
    /// Where the files of its branches may come from.
    origin: Origin,
}

/// The stored sources of a tenant's projects.
#[derive(Default)]
struct StoredSources {
    /// The stored sources by project.
    sources: BTreeMap<ProjectName, ProjectSource>,
    /// Projects whose records are unreadable.
    damaged: BTreeSet<ProjectName>,
}

impl Tenants {
    /// Reads the projects that moved, were never read or are unfinished, whose time of the next
    /// attempt has come, or that have new parameters and no such time; the others stay as stored.
    /// Returns all sources and the writes that store what was read, without committing them. After
    /// [`READ_MAX`] forge requests or [`WRITES_MAX`] projects, the rest is in `unread` for the next
    /// run, and no layout may be built before. A project that cannot be read keeps what was read
    /// last. The error is a retry instead if such a project's stored source is lost, or its forge
    /// is unreachable and the project is in `awaited_projects` or was never read.
    pub(crate) async fn read(
        &self,
        config: &TenantConfig,
        connections: &Connections,
        head: &Tenant,
        moved: &BTreeSet<ProjectName>,
        awaited_projects: &BTreeSet<ProjectName>,
    ) -> Result<Sources, ReconcileError> {
        let mut known = self.stored_sources(config).await?;
        let damaged = known.damaged.clone();
        let lost = self.fall_back_to_layout(config, head, &mut known.sources, known.damaged).await;
        let now = self.ports.clock.now();
        let mut sources =
            Sources { projects: Vec::new(), writes: Vec::new(), unread: BTreeSet::new() };
        let mut budget = Budget(READ_MAX);
        for project in &config.projects {
            let before = known.sources.remove(&project.name);
            let is_moved = moved.contains(&project.name)
                || before.as_ref().is_some_and(|before| before.is_unfinished);
            let rules = rules(config, project);
            let is_due = |before: &ProjectSource| {
                is_moved || before.retry_at.map_or(before.rules != rules, |at| at <= now)
            };
            if let Some(before) = before.as_ref().filter(|before| !is_due(before)) {
                sources.projects.push(before.clone());
                continue;
            }
            if sources.writes.len() >= WRITES_MAX || !budget.take() {
                sources.unread.insert(project.name.clone());
                sources.projects.extend(before);
                continue;
            }
            let is_waited_for = awaited_projects.contains(&project.name);
            let is_lost = lost.contains(&project.name);
            let reading = ProjectReading {
                config,
                connections,
                project,
                rules: &rules,
                before: before.as_ref(),
                is_waited_for,
                is_lost,
                origin: if damaged.contains(&project.name) {
                    Origin::Forge
                } else {
                    Origin::Anywhere
                },
            };
            let source = self.read_project(reading, &mut budget).await?;
            if source.is_unfinished {
                sources.unread.insert(project.name.clone());
            }
            if before.as_ref() != Some(&source) {
                sources.writes.push(self.store(config, &source).await?);
            }
            sources.projects.push(source);
        }
        Ok(sources)
    }

    /// Reads the stored sources of the tenant's projects, and lists those whose records are
    /// damaged. They may be of projects that the tenant no longer has.
    async fn stored_sources(&self, config: &TenantConfig) -> Result<StoredSources, ReconcileError> {
        let mut known = StoredSources::default();
        let mut after = None;
        // A page at a time, at most 20,000 projects.
        for _ in 0..20 {
            let query = Query {
                after: after.take(),
                ..Query::prefix(tenant::partition(&config.name), SOURCES, 1_000)
            };
            let records = self.ports.records.query(&query).await?;
            for record in &records {
                // An unreadable record is read again from the forge; until then the live layout
                // replaces it.
                let Some(mut source) = decode_or_log::<ProjectSource>(record) else {
                    known.damaged.extend(tenant::source_project(&record.key));
                    continue;
                };
                if let Some(key) = source.branches_object.take() {
                    let Some(branches) = self.kept_branches(&key).await? else {
                        known.damaged.insert(source.project);
                        continue;
                    };
                    source.branches = branches;
                }
                known.sources.insert(source.project.clone(), source);
            }
            if records.len() < 1_000 {
                break;
            }
            after = records.last().map(|record| record.key.sort.clone());
        }
        Ok(known)
    }

    /// Returns the write of a project's source, without condition. First stores its branches as an
    /// object if they are too large for a record.
    async fn store(
        &self,
        config: &TenantConfig,
        source: &ProjectSource,
    ) -> Result<Write, ReconcileError> {
        let mut stored = source.clone();
        let text = serde_json::to_string(&source.branches)
            .map_err(|error| ReconcileError::Retry(error.to_string()))?;
        if text.len() > BRANCHES_BYTES_MAX {
            stored.branches_object = Some(self.put_files(text).await?);
            stored.branches.clear();
        }
        let record = encode_first(tenant::source_key(&config.name, &source.project), &stored)?;
        Ok(Write::Put { record, expect: Expect::Anything })
    }

    /// Reads one project and returns the source to store. An error of its forge is part of the
    /// source, or a retry where [`Self::unreadable`] says so. Once the budget is spent, branches
    /// that must still be read stay as they were read with the same parameters, or are left out if
    /// they never were. The project is then unfinished, and no layout may be built from it. At most
    /// [`BRANCHES_MAX`] branches are taken, the most relevant first.
    async fn read_project(
        &self,
        reading: ProjectReading<'_>,
        budget: &mut Budget,
    ) -> Result<ProjectSource, ReconcileError> {
        let ProjectReading { config, project, before, rules, .. } = reading;
        let at =
            ProjectAt { connection: project.connection.clone(), project: project.name.clone() };
        let branches = match self.repos.branches(&at).await {
            Ok(branches) => branches,
            Err(error) => return self.unreadable(reading, before_or_none(reading), error),
        };
        if project.trust.is_trusted() && project.load_branch.is_none() && branches.default.is_none()
        {
            let why = "its forge does not say which branch is the default; name one by load-branch"
                .to_owned();
            return self.unreadable(reading, before_or_none(reading), ReposError::Unreadable(why));
        }
        let guards =
            match self.branch_protections(config, reading.connections, project, &branches).await {
                Ok(guards) => guards,
                Err(error) => return self.unreadable(reading, before_or_none(reading), error),
            };
        // What was read with other parameters does not apply to these.
        let before_by_these = before.filter(|before| before.rules == rules);
        let mut source = ProjectSource { rules: rules.to_owned(), ..nothing(project) };
        source.retry_at = guards.reread_at(self.ports.clock.now());
        let mut problem = None;
        for (branch, commit) in in_order(reading, &branches, &guards).into_iter().take(BRANCHES_MAX)
        {
            let known = before_by_these
                .and_then(|before| before.branches.iter().find(|known| known.branch == *branch));
            let facts = guards.facts(branch, &branches);
            let entry = BranchSource {
                branch: branch.clone(),
                commit: commit.clone(),
                files: None,
                content: None,
                is_read: true,
                is_protected: facts.is_protected,
                is_locked: facts.is_locked,
            };
            if !config.reads_branch(project, &facts) {
                source.branches.push(BranchSource { is_read: false, ..entry });
            } else if project.reads_nothing() {
                source.branches.push(entry);
            } else if let Some(known) =
                known.filter(|known| known.is_read && known.commit == *commit)
            {
                source.branches.push(BranchSource {
                    files: known.files.clone(),
                    content: known.content.clone(),
                    ..entry
                });
            } else if !budget.take() {
                source.is_unfinished = true;
                source.branches.extend(known.cloned());
            } else {
                match self.read_branch(&at, project, branch, commit, reading.origin).await {
                    Ok(Some((files, content))) => {
                        source.branches.push(BranchSource {
                            files: Some(files),
                            content: Some(content),
                            ..entry
                        });
                    }
                    Ok(None) => source.branches.push(entry),
                    Err(Unread::Port(error)) => return Err(error),
                    Err(Unread::Repos(error)) => {
                        source.branches.extend(known.cloned());
                        problem.get_or_insert(error);
                    }
                }
            }
        }
        match problem {
            None => Ok(source),
            // If a branch cannot be read with these parameters, the project stays as it was with
            // the old ones.
            Some(error) if before.is_some() && before_by_these.is_none() => {
                self.unreadable(reading, before_or_none(reading), error)
            }
            Some(error) => self.unreadable(reading, source, error),
        }
    }

    /// Returns the source to store for a project that could not be read: `source` with the error
    /// and the time of the next attempt. Returns a retry instead if its stored source is lost, or
    /// if its forge is unreachable and the tenant waits for it or has read nothing before.
    fn unreadable(
        &self,
        reading: ProjectReading<'_>,
        source: ProjectSource,
        error: ReposError,
    ) -> Result<ProjectSource, ReconcileError> {
        let ProjectReading { config, project, before, is_waited_for, is_lost, .. } = reading;
        let (why, seconds) = match error {
            error if is_lost => {
                let name = &project.name;
                tracing::error!(tenant = %config.name, project = %name, %error, "what was read of a project is lost, and its forge does not give it");
                return Err(ReconcileError::Retry(format!(
                    "what was read of {name} is lost, and it cannot be read again: {error}"
                )));
            }
            ReposError::Gone(why) | ReposError::Unreadable(why) => (why, GONE_RETRY_SECONDS),
            ReposError::Unreachable(why) | ReposError::Unknown(why)
                if is_waited_for || before.is_none() =>
            {
                return Err(ReconcileError::Retry(why));
            }
            ReposError::Unreachable(why) | ReposError::Unknown(why) => (why, SILENT_RETRY_SECONDS),
        };
        tracing::error!(tenant = %config.name, project = %project.name, why, "a project cannot be read; what was read last stays");
        Ok(ProjectSource {
            read_error: Some(why.chars().take(PROBLEM_CHARS_MAX).collect()),
            retry_at: Some(self.ports.clock.now().plus_seconds(seconds)),
            // It continues at that time: an immediate retry would find the same.
            is_unfinished: false,
            ..source
        })
    }

    /// Reads the branches of a source that are stored as an object; `None` if the object is missing
    /// or damaged.
    async fn kept_branches(&self, key: &str) -> Result<Option<Vec<BranchSource>>, ReconcileError> {
        let object = self.ports.objects.get(key).await?;
        let branches = object.and_then(|object| serde_json::from_slice(&object.bytes).ok());
        if branches.is_none() {
            tracing::error!(
                key,
                "the stored branches cannot be read; they are read again from the forge"
            );
        }
        Ok(branches)
    }
}

/// Returns when the first of these projects has to be read again without a push; `None` if none has
/// to.
pub(crate) fn retry_at(sources: &[ProjectSource]) -> Option<Timestamp> {
    sources.iter().filter_map(|source| source.retry_at).min()
}

/// Returns the source of a project of which nothing was read.
pub(crate) fn nothing(project: &TenantProject) -> ProjectSource {
    ProjectSource {
        project: project.name.clone(),
        branches: Vec::new(),
        read_error: None,
        retry_at: None,
        rules: String::new(),
        is_unfinished: false,
        branches_object: None,
    }
}

/// Returns the digest of the parameters that decide which branches and files of a project are read.
/// Another digest has the project read again.
fn rules(config: &TenantConfig, project: &TenantProject) -> String {
    let TenantProject {
        connection,
        trust,
        extra_config_paths,
        load_branch,
        include_branches,
        exclude_branches,
        always_dynamic_branches,
        ..
    } = project;
    let of_guards = (config.leaves_out_unprotected(project), config.leaves_out_locked(project));
    let named = (load_branch, include_branches, exclude_branches, always_dynamic_branches);
    let said = serde_json::to_string(&(connection, trust, extra_config_paths, named, of_guards))
        .unwrap_or_default();
    let mut parts = vec!["rules-1", said.as_str()];
    // Only added where it is set, so that the digests of other projects stay the same.
    parts.extend(project.reads_nothing().then_some("reads nothing"));
    digest(&parts)
}

/// Returns the source that was stored before, or an empty one.
fn before_or_none(reading: ProjectReading<'_>) -> ProjectSource {
    reading.before.cloned().unwrap_or_else(|| nothing(reading.project))
}

/// Returns the branches in order of relevance: the default one, those with configuration, others
/// that are read, the rest. So pushing many branches displaces no relevant one.
fn in_order<'a>(
    reading: ProjectReading<'_>,
    branches: &'a Branches,
    guards: &BranchProtections,
) -> Vec<(&'a BranchName, &'a Oid)> {
    let ProjectReading { config, project, before, .. } = reading;
    let had_files = |branch: &BranchName| {
        before.is_some_and(|before| {
            before.branches.iter().any(|known| known.branch == *branch && known.files.is_some())
        })
    };
    let rank = |branch: &BranchName| match () {
        () if branches.default.as_ref() == Some(branch) => 0,
        () if !config.reads_branch(project, &guards.facts(branch, branches)) => 3,
        () if had_files(branch) => 1,
        () => 2,
    };
    let mut ordered: Vec<_> =
        branches.tips.iter().map(|(branch, commit)| (rank(branch), branch, commit)).collect();
    ordered.sort();
    ordered.into_iter().map(|(_, branch, commit)| (branch, commit)).collect()
}

/// Returns what the layout has to know about a branch, from its stored source. Whether it is the
/// default branch is left unknown.
pub(crate) fn facts_of(read: &BranchSource) -> BranchFacts<'_> {
    let BranchSource { is_protected, is_locked, .. } = read;
    BranchFacts {
        is_protected: *is_protected,
        is_locked: *is_locked,
        ..BranchFacts::named(read.branch.as_str())
    }
}
