//! Checks out repositories: those under test into the workspace, those of playbooks and roles
//! outside of it (Z4.6, Z7.2).

use crate::code_trust::CodeTrust;
use crate::job::{JobAttempt, PackRequest, Packs, RepositorySources, SourceError};
use crate::jobdir::Jobdir;
use serde::Serialize;
use sluice_git::PackName;
use sluice_git::workspace::{Checkout, CheckoutError, WorkingTree};
use sluice_model::build::Speculation;
use sluice_model::git::{BranchKey, BranchState, Commit, Oid};
use sluice_model::job::{Tristate, WorkspaceScheme};
use sluice_model::{BranchName, ConnectionName, ProjectName};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

/// The time limit of one checkout in seconds.
const CHECKOUT_SECONDS: u64 = 300;

/// A repository in the workspace, as described in `zuul.projects`.
#[derive(Debug, Clone, Serialize)]
pub struct PlacedRepository {
    /// The project.
    pub project: ProjectName,
    /// Its path relative to the work root.
    pub src_dir: String,
    /// Whether the job requires it (`required-projects`).
    pub required: bool,
    /// The branch or tag that is checked out.
    pub checkout: BranchName,
    /// Why this branch or tag was chosen.
    pub checkout_description: &'static str,
    /// The commit that is checked out.
    pub commit: Oid,
}

/// Why a repository could not be checked out.
#[derive(Debug, thiserror::Error)]
pub enum WorkspaceError {
    /// The Git objects are not available. The build is retried.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// The job uses a repository that the tested state does not contain. A retry would not help.
    #[error(
        "{project} is not among the repositories of the tested state: name it in the job's required-projects or roles"
    )]
    NotPrepared {
        /// The project.
        project: ProjectName,
    },
    /// Two repositories of the job have the same directory. A retry would not help.
    #[error(
        "could not check out {project} to {src_dir}: {other} is there; choose another workspace-scheme for the job"
    )]
    Occupied {
        /// The project.
        project: ProjectName,
        /// The directory of both, relative to the work root.
        src_dir: String,
        /// What has the directory already: a project, or files of one.
        other: String,
    },
    /// The disk or Git failed.
    #[error("could not check out {project} to {path}: {message}")]
    Checkout {
        /// The project.
        project: ProjectName,
        /// The target directory.
        path: PathBuf,
        /// The error message of the system or Git.
        message: String,
    },
}

/// Checks out the job's repositories into `work/src`: the change's own, the required projects, and
/// those of the other tested changes that `include-projects` and `exclude-projects` allow; works
/// once for each job directory. Each is at the tested commit of the branch that [`choose_branch`]
/// returns; those of its branches that the tested state has are also available without the tested
/// changes, as `origin/<branch>`. Other branches are not there. Returns the repositories sorted by
/// project. An error if the tested state lacks one of the projects, or a checkout fails.
pub async fn place_repositories(
    job: &JobAttempt<'_>,
    sources: &dyn RepositorySources,
    jobdir: &Jobdir,
) -> Result<Vec<PlacedRepository>, WorkspaceError> {
    let mut repositories: BTreeMap<
        &ProjectName,
        (bool, Option<&BranchName>, Option<&ConnectionName>),
    > = BTreeMap::new();
    let tested = job
        .speculation
        .changes
        .iter()
        .filter(|change| is_included(job, &change.change.key.project));
    for change in tested {
        repositories
            .insert(&change.change.key.project, (false, None, Some(&change.change.key.connection)));
    }
    let own_project = &job.order.change.key;
    repositories.entry(&own_project.project).or_insert((
        false,
        None,
        Some(&own_project.connection),
    ));
    for required in &job.job.required_projects {
        repositories.insert(
            &required.project,
            (true, required.override_checkout.as_ref(), Some(&required.connection)),
        );
    }
    let files = working_tree(job);
    let mut placed: Vec<PlacedRepository> = Vec::new();
    for (project, (required, override_checkout, connection)) in repositories {
        let choice = choose_branch(job, project, override_checkout);
        let (state, checkout_description) =
            choice.ok_or_else(|| WorkspaceError::NotPrepared { project: project.clone() })?;
        let src_dir = src_dir(job.job.workspace_scheme, project);
        if let Some(other) = placed.iter().find(|other| other.src_dir == src_dir) {
            let (project, other) = (project.clone(), other.project.to_string());
            return Err(WorkspaceError::Occupied { project, src_dir, other });
        }
        let path = jobdir.work.join(&src_dir);
        if let Some(link) = link_above(&jobdir.work, Path::new(&src_dir)) {
            let (project, other) =
                (project.clone(), format!("{link}, a link of another repository,"));
            return Err(WorkspaceError::Occupied { project, src_dir, other });
        }
        let states = states_of(job.speculation, project);
        let packs = packs(sources, connection, project, &states, &state.result.id).await?;
        let others = states
            .iter()
            .map(|state| (state.branch.branch.clone(), state.base.id.clone()))
            .collect();
        let made = checkout(packs, &path, state, others, PackMode::Copied, files).await;
        made.map_err(|error| match error {
            // A repository whose files include this directory, such as `org/a` with a directory
            // `b` beside `org/a/b`.
            RepositoryError::NotEmpty => WorkspaceError::Occupied {
                project: project.clone(),
                src_dir: src_dir.clone(),
                other: "a directory of another repository".to_owned(),
            },
            RepositoryError::Failed(message) => {
                WorkspaceError::Checkout { project: project.clone(), path, message }
            }
        })?;
        let (checkout, commit) = (short_ref_name(&state.branch.branch), state.result.id.clone());
        placed.push(PlacedRepository {
            project: project.clone(),
            src_dir,
            required,
            checkout,
            checkout_description,
            commit,
        });
    }
    Ok(placed)
}

/// Returns the first part of `path`, relative to `root`, that is a symbolic link: a checkout there
/// would follow it out of the workspace (Z7.5). A repository that was checked out before may contain
/// it. No playbook runs yet, so none appears afterwards.
fn link_above(root: &Path, path: &Path) -> Option<String> {
    let parts: Vec<&Path> = path.ancestors().filter(|part| !part.as_os_str().is_empty()).collect();
    let is_link = |part: &&Path| root.join(part).is_symlink();
    parts.into_iter().rev().find(is_link).map(|link| link.display().to_string())
}

/// Returns whether the files of the repositories are written into the workspace
/// (`workspace-checkout`). With `auto` they are if the job has no nodes: jobs with nodes use the
/// files there.
pub fn working_tree(job: &JobAttempt<'_>) -> WorkingTree {
    match (job.job.run_time.workspace_checkout.0, job.nodes.is_empty()) {
        (Tristate::Yes, _) | (Tristate::Auto, true) => WorkingTree::CheckedOut,
        (Tristate::No, _) | (Tristate::Auto, false) => WorkingTree::Absent,
    }
}

/// Returns whether the repository of a tested change is checked out although the job does not
/// require it: `include-projects` lists it or is unset, and `exclude-projects` does not list it.
fn is_included(job: &JobAttempt<'_>, project: &ProjectName) -> bool {
    let configured = &job.job.run_time;
    let is_listed =
        configured.include_projects.as_ref().is_none_or(|projects| projects.contains(project));
    is_listed && !configured.exclude_projects.contains(project)
}

/// Returns the name of a branch or tag without `refs/tags/`.
fn short_ref_name(name: &BranchName) -> BranchName {
    name.as_str().strip_prefix("refs/tags/").map_or_else(|| name.clone(), BranchName::from)
}

/// Checks out `commit` of one repository at `path`, as the branch `branch`, for a playbook or role.
/// `path` must be empty or missing, and outside of the directories that playbooks can write,
/// because the packs are shared with other builds. `speculation` only names the packs of the
/// project, which must contain `commit`: if the tested state lacks the project, there are none, and
/// the checkout fails.
pub async fn checkout_outside_workspace(
    sources: &dyn RepositorySources,
    connection: &ConnectionName,
    speculation: &Speculation,
    branch: &BranchKey,
    commit: &Oid,
    path: &Path,
) -> Result<(), WorkspaceError> {
    let project = &branch.project;
    let packs =
        packs(sources, Some(connection), project, &states_of(speculation, project), commit).await?;
    // The tree id is not used here.
    let at = Commit { id: commit.clone(), tree: commit.clone() };
    let state = BranchState::untouched(branch.clone(), at, Vec::new());
    let files = WorkingTree::CheckedOut;
    let made = checkout(packs, path, &state, Vec::new(), PackMode::Linked, files).await;
    made.map_err(|error| {
        let message = match error {
            RepositoryError::NotEmpty => "the directory is not empty".to_owned(),
            RepositoryError::Failed(message) => message,
        };
        WorkspaceError::Checkout { project: project.clone(), path: path.to_owned(), message }
    })
}

/// Returns the directory of a project relative to the work root, by Zuul's workspace scheme.
/// `Golang`: `src/host/name`. `Flat`: `src/` and the last part of the name. `Unique`: `src/host/`,
/// the first part of the name, and the whole name with slashes and special characters
/// percent-encoded.
pub fn src_dir(scheme: WorkspaceScheme, project: &ProjectName) -> String {
    match scheme {
        WorkspaceScheme::Golang => format!("src/{project}"),
        WorkspaceScheme::Flat => format!("src/{}", project.short_name()),
        WorkspaceScheme::Unique => {
            let first = project.name().split('/').next().unwrap_or_default();
            let mut quoted = String::new();
            for byte in project.name().bytes() {
                match byte {
                    b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => {
                        quoted.push(char::from(byte))
                    }
                    other => {
                        let _ = write!(quoted, "%{other:02X}");
                    }
                }
            }
            format!("src/{}/{first}/{quoted}", project.host())
        }
    }
}

/// Returns the branch or tag of `project` to check out, and the reason in Zuul's words. It is the
/// first that exists in the tested state of `project_override`, the job's `override-checkout`, the
/// change's own branch or tag, the project's default branch, `main` and `master`; otherwise any. An
/// override names a branch or, if there is none of that name, a tag. `None` if the tested state has
/// no branch or tag of the project.
pub fn choose_branch<'a>(
    job: &JobAttempt<'a>,
    project: &ProjectName,
    project_override: Option<&BranchName>,
) -> Option<(&'a BranchState, &'static str)> {
    let own = if job.order.change.on_branch().is_some() { "zuul branch" } else { "zuul ref" };
    let overrides = [project_override, job.job.override_checkout.as_ref()];
    choose_ref(job.speculation, project, overrides, (&job.order.change.branch, own))
}

/// Returns the first existing ref of `project`, and the reason: the project's override, the job's
/// override, the change's own branch, the default branches, at last any. `overrides` are those of
/// the project and of the job, in this order; each names a branch or, if there is none of that
/// name, a tag. `why_own` is the reason for the change's own branch. `None` if the tested state has
/// no ref of the project.
fn choose_ref<'a>(
    speculation: &'a Speculation,
    project: &ProjectName,
    overrides: [Option<&BranchName>; 2],
    (own_branch, why_own): (&BranchName, &'static str),
) -> Option<(&'a BranchState, &'static str)> {
    let tags = overrides.map(|name| name.map(|name| format!("refs/tags/{name}")));
    let [of_project, of_job] = overrides.map(|name| name.map(BranchName::as_str));
    let candidates = [
        (of_project, "project override ref"),
        (tags[0].as_deref(), "project override ref"),
        (of_job, "job override ref"),
        (tags[1].as_deref(), "job override ref"),
        (Some(own_branch.as_str()), why_own),
    ];
    first_existing_or_any(speculation, project, &candidates)
}

/// Returns the branch of `project` from which the roles of a playbook on the branch `playbook` are
/// taken, and the reason. It is the first that exists of the override of the project, that of the
/// job, the change's own branch, the playbook's branch and the project's default branches. If none
/// exists, it is any branch for an untrusted playbook, and `None` for a trusted one. Overrides do
/// not apply to a trusted playbook, and the branch of a pushed ref never does. Tags are excluded.
///
/// Tagging a commit may need fewer rights than merging it, and overrides are a choice of the job,
/// while roles of a trusted playbook run with its rights (Z2.2).
pub fn choose_roles<'a>(
    job: &JobAttempt<'a>,
    project: &ProjectName,
    playbook: &BranchName,
    trust: CodeTrust,
) -> Option<(&'a BranchState, &'static str)> {
    let required = job.job.required_projects.iter().find(|required| required.project == *project);
    let of_project = required.and_then(|required| required.override_checkout.as_ref());
    let configured = [of_project, job.job.override_checkout.as_ref()]
        .map(|configured| configured.filter(|_| trust == CodeTrust::Untrusted));
    // A pushed branch does not select a branch of other repositories.
    let change = &job.order.change;
    let own_branch = change.on_branch().filter(|_| change.key.ref_move().is_none());
    choose_roles_branch(
        job.speculation,
        project,
        [configured[0], configured[1], own_branch, Some(playbook)],
        trust,
    )
}

/// Returns the branch that roles are taken from, and the reason: the first existing one of
/// `candidates` and the default branches, without tags. Otherwise any branch for untrusted
/// playbooks, `None` for trusted ones. `candidates` are the overrides of the project and of the
/// job, the change's own branch and the playbook's branch. The caller has set to `None` those that
/// do not apply, such as the overrides for a trusted playbook; `trust` does not remove them.
fn choose_roles_branch<'a>(
    speculation: &'a Speculation,
    project: &ProjectName,
    candidates: [Option<&BranchName>; 4],
    trust: CodeTrust,
) -> Option<(&'a BranchState, &'static str)> {
    let [of_project, of_job, own_branch, playbook] =
        candidates.map(|branch| branch.map(BranchName::as_str));
    let candidates = [
        (of_project, "project override ref"),
        (of_job, "job override ref"),
        (own_branch, "zuul branch"),
        (playbook, "playbook branch"),
    ];
    first_existing(speculation, project, &candidates).or_else(|| {
        let states = states_of(speculation, project);
        let is_branch =
            |state: &&BranchState| !state.branch.branch.as_str().starts_with("refs/tags/");
        let any = states.into_iter().find(is_branch).filter(|_| trust == CodeTrust::Untrusted);
        any.map(|state| (state, "project default branch"))
    })
}

/// Returns the first existing ref of `project`, and its reason: the candidates as in
/// [`first_existing`], the default branch, `main`, `master`, at last any branch or tag. `None` if
/// the tested state has none.
fn first_existing_or_any<'a>(
    speculation: &'a Speculation,
    project: &ProjectName,
    candidates: &[(Option<&str>, &'static str)],
) -> Option<(&'a BranchState, &'static str)> {
    let any =
        || states_of(speculation, project).first().map(|state| (*state, "project default branch"));
    first_existing(speculation, project, candidates).or_else(any)
}

/// Returns the first existing ref of `project` with its reason: the candidates, then the configured
/// default branch, `main` and `master`. A candidate is a name and the reason for it; `None` as name
/// is skipped, and a tag is written `refs/tags/…`. `None` if none of these exists.
fn first_existing<'a>(
    speculation: &'a Speculation,
    project: &ProjectName,
    candidates: &[(Option<&str>, &'static str)],
) -> Option<(&'a BranchState, &'static str)> {
    let states = states_of(speculation, project);
    let find =
        |branch: &str| states.iter().copied().find(|state| state.branch.branch.as_str() == branch);
    let configured = speculation
        .defaults
        .iter()
        .find(|key| key.project == *project)
        .map(|key| key.branch.as_str());
    let defaults =
        [configured, Some("main"), Some("master")].map(|branch| (branch, "project default branch"));
    candidates.iter().copied().chain(defaults).find_map(|(branch, why)| Some((find(branch?)?, why)))
}

/// Returns the states of those branches and tags of `project` that the tested state has; empty if
/// it has none.
pub fn states_of<'a>(speculation: &'a Speculation, project: &ProjectName) -> Vec<&'a BranchState> {
    speculation.branches.iter().filter(|state| state.branch.project == *project).collect()
}

/// Provides packs of the change's own project on this machine's disk, downloading missing ones.
/// They contain those branches of the project that the tested state has (what the jobs need, not
/// every branch of the forge), with and without the tested changes. `tested` must be a commit in
/// these packs: no other pack is provided for it.
pub async fn packs_of_own_project(
    job: &JobAttempt<'_>,
    sources: &dyn RepositorySources,
    tested: &Oid,
) -> Result<Packs, SourceError> {
    let change = &job.order.change.key;
    packs(
        sources,
        Some(&change.connection),
        &change.project,
        &states_of(job.speculation, &change.project),
        tested,
    )
    .await
}

/// Provides on this machine's disk the packs that `states` name, downloading missing ones. They
/// contain each of these branches with and without the tested changes. `commit` must be in one of
/// these packs: no other pack is provided for it. Without states there are no packs, which is no
/// error here.
async fn packs(
    sources: &dyn RepositorySources,
    connection: Option<&ConnectionName>,
    project: &ProjectName,
    states: &[&BranchState],
    commit: &Oid,
) -> Result<Packs, SourceError> {
    let mut packs: Vec<&str> =
        states.iter().flat_map(|state| state.packs.iter().map(String::as_str)).collect();
    packs.sort_unstable();
    packs.dedup();
    let mut commits: Vec<&Oid> =
        states.iter().flat_map(|state| [&state.base.id, &state.result.id]).collect();
    commits.push(commit);
    commits.sort();
    commits.dedup();
    sources.packs(&PackRequest { connection, project, packs, commits }).await
}

/// How packs are added to a repository.
#[derive(Clone, Copy, PartialEq, Eq)]
enum PackMode {
    /// Hard links, for repositories that playbooks cannot write.
    Linked,
    /// Copies, because a playbook could change a linked pack for all other builds.
    Copied,
}

/// Why a repository could not be created.
enum RepositoryError {
    /// The directory has files already.
    NotEmpty,
    /// The disk or Git failed, with the message of the system or Git.
    Failed(String),
}

/// Creates a repository at `path`, which must be empty or missing, from existing packs and their
/// indexes, at the tested commit of the branch or tag `state`. `origin/<branch>` is the commit
/// without the tested changes; `others` are further branches with the commit for their
/// `origin/<branch>`. `mode` says whether the packs are linked or copied, and `files` whether the
/// files are written. An error if it fails or takes longer than [`CHECKOUT_SECONDS`]; `path` may
/// then hold an incomplete repository.
async fn checkout(
    packs: Packs,
    path: &Path,
    state: &BranchState,
    others: Vec<(BranchName, Oid)>,
    mode: PackMode,
    files: WorkingTree,
) -> Result<(), RepositoryError> {
    let (dest, state) = (path.to_owned(), state.clone());
    let disk = |error: std::io::Error| RepositoryError::Failed(error.to_string());
    let made = tokio::task::spawn_blocking(move || {
        let mut pack_dir = packs.directory;
        if mode == PackMode::Copied {
            let own_packs = dest.with_extension("packs");
            copy_packs(&pack_dir, &packs.names, &own_packs).map_err(disk)?;
            pack_dir = own_packs;
        }
        let done = sluice_git::workspace::checkout(&Checkout {
            pack_dir: &pack_dir,
            packs: &packs.names,
            dest: &dest,
            branch: &state.branch.branch,
            result: &state.result.id,
            base: &state.base.id,
            other_branches: &others,
            tags: &[],
            files,
            timeout_seconds: CHECKOUT_SECONDS,
        });
        if mode == PackMode::Copied {
            // The repository has its own links to the copies.
            std::fs::remove_dir_all(&pack_dir).map_err(disk)?;
        }
        done.map_err(|error| match (&error, std::error::Error::source(&error)) {
            (CheckoutError::NotEmpty(_), _) => RepositoryError::NotEmpty,
            (_, Some(source)) => RepositoryError::Failed(format!("{error}: {source}")),
            (_, None) => RepositoryError::Failed(error.to_string()),
        })
    });
    made.await.unwrap_or_else(|error| Err(RepositoryError::Failed(error.to_string())))
}

/// Copies packs with their indexes from one directory to another, which is created if it is
/// missing. Files of the same names are replaced.
fn copy_packs(from: &Path, names: &[PackName], to: &Path) -> std::io::Result<()> {
    std::fs::create_dir_all(to)?;
    for name in names {
        for ending in ["pack", "idx"] {
            let file = format!("{name}.{ending}");
            std::fs::copy(from.join(&file), to.join(&file))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Z4.3
    #[test]
    fn the_workspace_scheme_determines_the_directory() {
        let project = ProjectName::new("github.com", "org/sub/project");
        assert_eq!(src_dir(WorkspaceScheme::Golang, &project), "src/github.com/org/sub/project");
        assert_eq!(src_dir(WorkspaceScheme::Flat, &project), "src/project");
        assert_eq!(
            src_dir(WorkspaceScheme::Unique, &project),
            "src/github.com/org/org%2Fsub%2Fproject"
        );
    }

    /// Z4.3: the first existing branch is checked out, else the project's default branch.
    #[test]
    fn the_default_branch_replaces_missing_branches() {
        let project = ProjectName::new("github.com", "org/one");
        let chosen = |there: &[&str], default: Option<&str>| {
            let speculation = speculation(&project, there, default);
            let wanted =
                [(None, "an override"), (Some("stable"), "another"), (Some("devel"), "its own")];
            let (state, why) = first_existing_or_any(&speculation, &project, &wanted).unwrap();
            (state.branch.branch.to_string(), why)
        };
        let default = "project default branch";
        let rows: [(&[&str], Option<&str>, &str, &str); 6] = [
            (&["devel", "stable", "trunk"], Some("trunk"), "stable", "another"),
            (&["devel", "trunk"], Some("trunk"), "devel", "its own"),
            (&["feature", "main", "trunk"], Some("trunk"), "trunk", default),
            (&["feature", "trunk"], Some("trunk"), "trunk", default),
            (&["feature", "main"], None, "main", default),
            (&["feature"], Some("trunk"), "feature", default),
        ];
        for (there, configured, branch, why) in rows {
            assert_eq!(
                chosen(there, configured),
                (branch.to_owned(), why),
                "{there:?} {configured:?}"
            );
        }
    }

    /// Z4.3: an override may be a tag, if no branch has its name.
    #[test]
    fn an_override_names_a_branch_or_else_a_tag() {
        let project = ProjectName::new("github.com", "org/one");
        let (main, one, two) =
            (BranchName::from("main"), BranchName::from("1.0"), BranchName::from("2.0"));
        let both = [Some(&one), Some(&two)];
        let (of_project, of_job, own) = ("project override ref", "job override ref", "zuul branch");
        type Row<'a> = (&'a [&'a str], [Option<&'a BranchName>; 2], &'a str, &'a str);
        let rows: [Row<'_>; 6] = [
            (&["main", "refs/tags/1.0", "refs/tags/2.0"], both, "refs/tags/1.0", of_project),
            (&["main", "1.0", "refs/tags/1.0"], both, "1.0", of_project),
            (&["main", "refs/tags/1.0", "2.0"], both, "refs/tags/1.0", of_project),
            (&["main", "refs/tags/2.0"], both, "refs/tags/2.0", of_job),
            (&["main", "refs/tags/3.0"], both, "main", own),
            (&["main", "refs/tags/1.0"], [None, None], "main", own),
        ];
        for (there, overrides, branch, why) in rows {
            let speculation = speculation(&project, there, None);
            let (state, configured) =
                choose_ref(&speculation, &project, overrides, (&main, own)).unwrap();
            assert_eq!(
                (state.branch.branch.as_str(), configured),
                (branch, why),
                "{there:?} {overrides:?}"
            );
        }
        assert_eq!(
            short_ref_name(&"refs/tags/1.0".into()),
            one,
            "jobs see a tag without its prefix"
        );
    }

    /// Z2.2: overrides of a job and tags do not select roles of a trusted playbook.
    #[test]
    fn overrides_and_tags_do_not_select_roles_of_trusted_playbooks() {
        let project = ProjectName::new("github.com", "org/roles");
        let chosen = |there: &[&str], wanted: [Option<&str>; 4], trust: CodeTrust| {
            let speculation = speculation(&project, there, Some("trunk"));
            let wanted = wanted.map(|branch| branch.map(BranchName::from));
            let found = choose_roles_branch(
                &speculation,
                &project,
                wanted.each_ref().map(Option::as_ref),
                trust,
            );
            found.map(|(state, _)| state.branch.branch.to_string())
        };
        // Existing branches; then the overrides of the project and of the job, the branches of the
        // change and of the playbook; then the choice for untrusted and for trusted playbooks.
        type Row<'a> = (&'a [&'a str], [Option<&'a str>; 4], Option<&'a str>, Option<&'a str>);
        let rows: [Row<'_>; 6] = [
            (
                &["evil", "trunk"],
                [None, None, Some("devel"), Some("master")],
                Some("trunk"),
                Some("trunk"),
            ),
            (
                &["evil", "trunk"],
                [None, Some("evil"), Some("devel"), Some("master")],
                Some("evil"),
                Some("evil"),
            ),
            (
                &["one", "two"],
                [Some("one"), Some("two"), None, Some("master")],
                Some("one"),
                Some("one"),
            ),
            (
                &["refs/tags/1", "trunk"],
                [None, None, None, Some("master")],
                Some("trunk"),
                Some("trunk"),
            ),
            (
                &["refs/tags/1", "master"],
                [None, None, None, Some("master")],
                Some("master"),
                Some("master"),
            ),
            (&["refs/tags/1", "evil"], [None, None, None, Some("master")], Some("evil"), None),
        ];
        for (there, wanted, untrusted, trusted) in rows {
            let found = [CodeTrust::Untrusted, CodeTrust::Trusted]
                .map(|trust| chosen(there, wanted, trust));
            assert_eq!(
                found.each_ref().map(Option::as_deref),
                [untrusted, trusted],
                "{there:?} {wanted:?}"
            );
        }
    }

    /// Z7.1: jobs see the reason for the branch of their roles.
    #[test]
    fn the_branch_of_roles_comes_with_its_reason() {
        let project = ProjectName::new("github.com", "org/roles");
        let wanted = ["one", "two", "devel", "master"].map(BranchName::from);
        let wanted = wanted.each_ref().map(Some);
        let why = |there: &[&str]| {
            let speculation = speculation(&project, there, Some("trunk"));
            choose_roles_branch(&speculation, &project, wanted, CodeTrust::Untrusted)
                .map(|(_, why)| why)
        };
        let default = "project default branch";
        let rows: [(&[&str], &str); 6] = [
            (&["trunk", "master", "devel", "two", "one"], "project override ref"),
            (&["trunk", "master", "devel", "two"], "job override ref"),
            (&["trunk", "master", "devel"], "zuul branch"),
            (&["trunk", "master"], "playbook branch"),
            (&["trunk"], default),
            (&["other"], default),
        ];
        for (there, expected) in rows {
            assert_eq!(why(there), Some(expected), "{there:?}");
        }
        assert_eq!(why(&["refs/tags/one"]), None);
    }

    fn speculation(project: &ProjectName, there: &[&str], default: Option<&str>) -> Speculation {
        let key = |branch: &str| BranchKey { project: project.clone(), branch: branch.into() };
        let at = || Commit { id: Oid("a".repeat(40)), tree: Oid("b".repeat(40)) };
        let state = |branch: &str| BranchState::untouched(key(branch), at(), Vec::new());
        let (changes, config_branches, applied_members) = Default::default();
        let branches = there.iter().map(|branch| state(branch)).collect();
        let defaults = default.iter().map(|branch| key(branch)).collect();
        Speculation {
            changes,
            branches,
            config_branches,
            applied_members,
            containing: None,
            defaults,
        }
    }
}
