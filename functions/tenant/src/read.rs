//! Reads configuration files of projects at their branches' tips, and keeps them so that only what
//! moved is read again.
//!
//! A project that cannot be read is a problem of its own: the tenant goes on with what was read of
//! it last, and tries again after a while (C16). A look reads so much and no more; what is left is
//! read by the next.

use crate::Tenants;
use crate::files::{Origin, Unread};
use crate::guard::Guards;
use sluice_config::Connections;
use sluice_config::tenant::{BranchFacts, TenantConfig, TenantProject};
use sluice_model::git::Oid;
use sluice_model::id::digest;
use sluice_model::{BranchName, ProjectName, Timestamp};
use sluice_records::codec::{decode_foreign, encode_first};
use sluice_records::tenant::{self, BranchSource, ProjectSource, SOURCES, Tenant};
use sluice_repos::{Branches, ProjectAt, ReposError};
use sluice_runtime::batch::LookError;
use sluice_runtime::record::{Expect, Query, Write};
use std::collections::{BTreeMap, BTreeSet};

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

/// What is read of a project, and how patiently.
#[derive(Clone, Copy)]
struct Wanted<'a> {
    config: &'a TenantConfig,
    connections: &'a Connections,
    project: &'a TenantProject,
    /// The name of what the tenant says of it.
    rules: &'a str,
    /// What was known before.
    before: Option<&'a ProjectSource>,
    /// Whether the tenant waits for it rather than go on without an answer.
    is_waited_for: bool,
    /// Whether it was known before, and no more: then only its forge can say what it is.
    is_lost: bool,
    /// Where the files of its branches may come from.
    origin: Origin,
}

/// What is known of the projects of a tenant.
#[derive(Default)]
struct Known {
    sources: BTreeMap<ProjectName, ProjectSource>,
    /// Projects whose records cannot be read any more.
    damaged: BTreeSet<ProjectName>,
}

impl Tenants {
    /// Reads projects that `moved`, were never read, of which the tenant says something else now,
    /// or which are to be tried again; the others are as they were kept. Those that are
    /// `waited_for` are not given up while their forge is silent.
    pub(crate) async fn read(
        &self,
        config: &TenantConfig,
        connections: &Connections,
        head: &Tenant,
        moved: &BTreeSet<ProjectName>,
        waited_for: &BTreeSet<ProjectName>,
    ) -> Result<Sources, LookError> {
        let mut known = self.known(config).await?;
        let damaged = known.damaged.clone();
        let lost = self.stand_in(config, head, &mut known.sources, known.damaged).await;
        let now = self.ports.clock.now();
        let mut sources = Sources { kept: Vec::new(), writes: Vec::new(), unread: BTreeSet::new() };
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
                sources.kept.push(before.clone());
                continue;
            }
            if sources.writes.len() >= WRITES_MAX || !budget.take() {
                sources.unread.insert(project.name.clone());
                sources.kept.extend(before);
                continue;
            }
            let is_waited_for = waited_for.contains(&project.name);
            let is_lost = lost.contains(&project.name);
            let wanted = Wanted {
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
            let source = self.read_project(wanted, &mut budget).await?;
            if source.is_unfinished {
                sources.unread.insert(project.name.clone());
            }
            if before.as_ref() != Some(&source) {
                sources.writes.push(self.store(config, &source).await?);
            }
            sources.kept.push(source);
        }
        Ok(sources)
    }

    async fn known(&self, config: &TenantConfig) -> Result<Known, LookError> {
        let mut known = Known::default();
        let mut after = None;
        // A page at a time, at most 20,000 projects.
        for _ in 0..20 {
            let query = Query {
                after: after.take(),
                ..Query::prefix(tenant::partition(&config.name), SOURCES, 1_000)
            };
            let records = self.ports.records.query(&query).await?;
            for record in &records {
                // Whatever cannot be read any more is read anew from the project's forge; until
                // then the live layout stands in.
                let Some(mut source) = decode_foreign::<ProjectSource>(record) else {
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

    /// Returns the write that keeps a source; branches that are too many for a record are stored
    /// beside it.
    async fn store(
        &self,
        config: &TenantConfig,
        source: &ProjectSource,
    ) -> Result<Write, LookError> {
        let mut stored = source.clone();
        let text = serde_json::to_string(&source.branches)
            .map_err(|error| LookError::Again(error.to_string()))?;
        if text.len() > BRANCHES_BYTES_MAX {
            stored.branches_object = Some(self.put_files(text).await?);
            stored.branches.clear();
        }
        let record = encode_first(tenant::source_key(&config.name, &source.project), &stored)?;
        Ok(Write::Put { record, expect: Expect::Anything })
    }

    /// Reads one project; what cannot be read of it does not stop the tenant. While the budget is
    /// spent some of its branches are as they were, and it is unfinished.
    async fn read_project(
        &self,
        wanted: Wanted<'_>,
        budget: &mut Budget,
    ) -> Result<ProjectSource, LookError> {
        let Wanted { config, project, before, rules, .. } = wanted;
        let at =
            ProjectAt { connection: project.connection.clone(), project: project.name.clone() };
        let branches = match self.repos.branches(&at).await {
            Ok(branches) => branches,
            Err(error) => return self.unreadable(wanted, before_or_none(wanted), error),
        };
        if project.trust.is_trusted() && project.load_branch.is_none() && branches.default.is_none()
        {
            let why = "its forge does not say which branch is the default; name one by load-branch"
                .to_owned();
            return self.unreadable(wanted, before_or_none(wanted), ReposError::Unreadable(why));
        }
        let guards = match self.guards(config, wanted.connections, project, &branches).await {
            Ok(guards) => guards,
            Err(error) => return self.unreadable(wanted, before_or_none(wanted), error),
        };
        // What was read by other words says nothing of what these would find.
        let before_by_these = before.filter(|before| before.rules == rules);
        let mut source = ProjectSource { rules: rules.to_owned(), ..nothing(project) };
        source.retry_at = guards.ask_again_at(self.ports.clock.now());
        let mut problem = None;
        for (branch, commit) in in_order(wanted, &branches, &guards).into_iter().take(BRANCHES_MAX)
        {
            let known = before_by_these
                .and_then(|before| before.branches.iter().find(|known| known.branch == *branch));
            let facts = guards.facts(branch, &branches);
            let entry = BranchSource {
                branch: branch.clone(),
                commit: commit.clone(),
                files: None,
                content: None,
                read: true,
                is_protected: facts.is_protected,
                is_locked: facts.is_locked,
            };
            if !config.reads_branch(project, &facts) {
                source.branches.push(BranchSource { read: false, ..entry });
            } else if project.reads_nothing() {
                source.branches.push(entry);
            } else if let Some(known) = known.filter(|known| known.read && known.commit == *commit)
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
                match self.read_branch(&at, project, branch, commit, wanted.origin).await {
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
            // Of a branch that cannot be read nothing is known by these words, so all stays as it
            // was by the others.
            Some(error) if before.is_some() && before_by_these.is_none() => {
                self.unreadable(wanted, before_or_none(wanted), error)
            }
            Some(error) => self.unreadable(wanted, source, error),
        }
    }

    /// Returns what a project is taken for that cannot be read. Where its forge is only silent,
    /// nothing was ever read of the project, or the tenant waits for it, an answer is waited for
    /// instead; also where what was read is lost, for then nobody could say what stays.
    fn unreadable(
        &self,
        wanted: Wanted<'_>,
        source: ProjectSource,
        error: ReposError,
    ) -> Result<ProjectSource, LookError> {
        let Wanted { config, project, before, is_waited_for, is_lost, .. } = wanted;
        let (why, seconds) = match error {
            error if is_lost => {
                let name = &project.name;
                tracing::error!(tenant = %config.name, project = %name, %error, "what was read of a project is lost, and its forge does not give it");
                return Err(LookError::Again(format!(
                    "what was read of {name} is lost, and it cannot be read again: {error}"
                )));
            }
            ReposError::Gone(why) | ReposError::Unreadable(why) => (why, GONE_RETRY_SECONDS),
            ReposError::Unreachable(why) | ReposError::Unknown(why)
                if is_waited_for || before.is_none() =>
            {
                return Err(LookError::Again(why));
            }
            ReposError::Unreachable(why) | ReposError::Unknown(why) => (why, SILENT_RETRY_SECONDS),
        };
        tracing::error!(tenant = %config.name, project = %project.name, why, "a project cannot be read; what was read last stays");
        Ok(ProjectSource {
            problem: Some(why.chars().take(PROBLEM_CHARS_MAX).collect()),
            retry_at: Some(self.ports.clock.now().plus_seconds(seconds)),
            // Begun or not, it goes on then: a look that went on at once would find the same, for
            // ever.
            is_unfinished: false,
            ..source
        })
    }

    /// Returns branches that stand beside their record; `None` where they are lost or damaged.
    async fn kept_branches(&self, key: &str) -> Result<Option<Vec<BranchSource>>, LookError> {
        let object = self.ports.objects.get(key).await?;
        let branches = object.and_then(|object| serde_json::from_slice(&object.bytes).ok());
        if branches.is_none() {
            tracing::error!(
                key,
                "branches that were kept cannot be read; they are asked for again"
            );
        }
        Ok(branches)
    }
}

/// Returns when the first of these is to be read again although nothing moved there.
pub(crate) fn retry_at(sources: &[ProjectSource]) -> Option<Timestamp> {
    sources.iter().filter_map(|source| source.retry_at).min()
}

pub(crate) fn nothing(project: &TenantProject) -> ProjectSource {
    ProjectSource {
        project: project.name.clone(),
        branches: Vec::new(),
        problem: None,
        retry_at: None,
        rules: String::new(),
        is_unfinished: false,
        branches_object: None,
    }
}

/// Returns the name of what a tenant says of a project that decides which of its branches and files
/// are read, and how.
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
    // Beside the rest, so that other projects keep the name that they had.
    parts.extend(project.reads_nothing().then_some("reads nothing"));
    digest(&parts)
}

fn before_or_none(wanted: Wanted<'_>) -> ProjectSource {
    wanted.before.cloned().unwrap_or_else(|| nothing(wanted.project))
}

/// Returns the branches, those that count most first: the default one, those that are read for
/// configuration and had some already, the others that are read, the rest. So nobody crowds out
/// what counts by pushing many branches.
fn in_order<'a>(
    wanted: Wanted<'_>,
    branches: &'a Branches,
    guards: &Guards,
) -> Vec<(&'a BranchName, &'a Oid)> {
    let Wanted { config, project, before, .. } = wanted;
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

/// Returns what was kept of a branch.
pub(crate) fn facts_of(read: &BranchSource) -> BranchFacts<'_> {
    let BranchSource { is_protected, is_locked, .. } = read;
    BranchFacts {
        is_protected: *is_protected,
        is_locked: *is_locked,
        ..BranchFacts::named(read.branch.as_str())
    }
}
