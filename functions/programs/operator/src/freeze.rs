//! `sluice config freeze`: prints the jobs that would be frozen for a change, branch or tag, and
//! which definitions they come from.

use super::local_config::{self, LocalConfigOptions};
use crate::output::{print_json, print_line};
use anyhow::{Context as _, bail};
use serde_json::json;
use sluice_commands::whole_ref;
use sluice_config::layout::Layout;
use sluice_config::{FreezeInput, plain_json};
use sluice_model::{BranchName, ProjectName};
use std::path::PathBuf;
use std::process::ExitCode;

/// The options of `sluice config freeze`.
#[derive(Debug, Clone)]
pub struct FreezeOptions {
    /// The repository whose files are used; `None` uses the tenant's snapshot alone.
    pub path: Option<PathBuf>,
    /// A snapshot of the tenant.
    pub tenant: Option<PathBuf>,
    /// The project of the change or ref.
    pub project: Option<String>,
    /// The change or ref.
    pub item: FreezeTarget,
    /// The branches that contain a tag's commit; empty if unknown.
    pub containing: Vec<BranchName>,
    /// The pipeline.
    pub pipeline: String,
    /// The paths that the change modifies; if empty, every file counts as modified.
    pub files: Vec<String>,
    /// The job to show in detail; `None` lists all jobs.
    pub job: Option<String>,
    /// Whether to print JSON.
    pub json: bool,
}

/// What jobs are frozen for: a change or a pushed ref.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FreezeTarget {
    /// A change on a branch. `None` takes the branch checked out there if the tenant has it, else
    /// the default branch.
    Change(Option<String>),
    /// The full ref of a pushed branch or tag.
    Ref(String),
}

impl FreezeTarget {
    /// Returns the target for the given options: the tag if one is given, else the ref, else a
    /// change on the branch. A tag without `refs/` is below `refs/tags/`; a ref without it is a
    /// branch.
    pub fn from_options(branch: Option<String>, tag: Option<&str>, git_ref: Option<&str>) -> Self {
        match (tag, git_ref) {
            (Some(tag), _) if tag.starts_with("refs/") => Self::Ref(tag.to_owned()),
            (Some(tag), _) => Self::Ref(format!("refs/tags/{tag}")),
            (None, Some(git_ref)) => Self::Ref(whole_ref(git_ref)),
            (None, None) => Self::Change(branch),
        }
    }

    /// Returns the name of the branch: that of a change if it is given, or that of a pushed branch.
    /// `None` for a tag or another ref, and for a change without one.
    fn branch(&self) -> Option<&str> {
        match self {
            Self::Change(branch) => branch.as_deref(),
            Self::Ref(git_ref) => git_ref.strip_prefix("refs/heads/"),
        }
    }
}

/// Freezes the jobs of a change or ref and prints why each job runs or does not, or all of it as
/// JSON. With `job`, only that job, in full. Returns exit status 1, with the errors printed, if the
/// configuration does not allow to freeze them, else 0, even if no job runs. Notes and, except in
/// JSON, errors go to standard error.
///
/// # Errors
/// When a file cannot be read, or the project, pipeline or job is unknown.
pub fn run(options: &FreezeOptions) -> anyhow::Result<ExitCode> {
    let FreezeSource { layout, project, branch, without_snapshot } = open(options)?;
    if layout.pipeline(&options.pipeline).is_none() {
        let names: Vec<&str> =
            layout.pipelines().iter().map(|pipeline| pipeline.name.as_str()).collect();
        let names = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
        // Definitions with errors are missing in the layout.
        for error in layout.errors() {
            eprintln!("{}", error.render(None));
        }
        let hint = if without_snapshot {
            "; pass --snapshot FILE for pipelines of other repositories"
        } else {
            ""
        };
        bail!("there is no pipeline {}; pipelines: {names}{hint}", options.pipeline);
    }
    let input = FreezeInput::change(&options.pipeline, &project, branch.as_str());
    // Like the merger: a tag has no branch.
    let (input, target) = match &options.item {
        FreezeTarget::Change(_) => (input, format!("the branch {branch}")),
        FreezeTarget::Ref(git_ref) => {
            let (on, names) = (options.item.branch(), options.containing.as_slice());
            let containing = Some(names).filter(|names| on.is_none() && !names.is_empty());
            if on.is_none() && containing.is_none() {
                eprintln!(
                    "sluice: it is unknown which branches contain {git_ref}, so definitions of every branch are shown; name them with --on BRANCH"
                );
            }
            (FreezeInput { branch: on, containing, git_ref, ..input }, git_ref.clone())
        }
    };
    let input = if options.files.is_empty() { input } else { input.touching(&options.files) };
    let (result, mut trace) = layout.freeze_with_trace(&input);
    if let Some(job) = &options.job {
        trace.retain(|one| one.job == *job);
        if trace.is_empty() {
            bail!("{project} does not run a job {job} in {} for {target}", options.pipeline);
        }
    }
    let is_selected = |name: &str| options.job.as_ref().is_none_or(|job| job == name);
    let (jobs, errors) = match result {
        Ok(graph) => (
            graph.jobs.into_iter().filter(|job| is_selected(job.name.as_str())).collect(),
            Vec::new(),
        ),
        Err(errors) => (Vec::new(), errors),
    };
    if options.json {
        print_json(&json!({"jobs": jobs, "trace": trace, "errors": errors}));
    } else {
        for one in &trace {
            print_line!("{one}");
        }
        for job in jobs.iter().filter(|_| options.job.is_some()) {
            print_line!("{}", plain_json(&serde_json::to_string_pretty(job)?));
        }
        for error in &errors {
            eprintln!("{}", error.render(None));
        }
    }
    Ok(if errors.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The layout, project and branch that jobs are frozen for.
struct FreezeSource {
    layout: Layout,
    project: ProjectName,
    branch: BranchName,
    /// Whether there is no snapshot of the tenant.
    without_snapshot: bool,
}

/// Returns the layout, project and branch to freeze jobs for. With a snapshot and no path, uses the
/// snapshot alone, and the project must be given; else merges the directory (the working directory
/// if no path is given) as `sluice config check` does. Without a branch in the target, the branch
/// is the default one of the project, or the one that the directory stands for.
fn open(options: &FreezeOptions) -> anyhow::Result<FreezeSource> {
    match (&options.path, &options.tenant) {
        (None, Some(tenant)) => {
            let layout = local_config::snapshot(tenant)?;
            let name = options.project.as_deref().context("name the project with --project")?;
            let project = layout
                .project(name)
                .with_context(|| format!("the tenant has no project {name}"))?;
            let project = project.name.clone();
            let branch = options
                .item
                .branch()
                .map_or_else(|| layout.default_branch(&project), BranchName::from);
            Ok(FreezeSource { layout, project, branch, without_snapshot: false })
        }
        (path, tenant) => {
            let opened = local_config::open(&LocalConfigOptions {
                path: path.clone().unwrap_or_else(|| PathBuf::from(".")),
                tenant: tenant.clone(),
                project: options.project.clone(),
                branch: options.item.branch().map(str::to_owned),
            })?;
            let without_snapshot = opened.tenant.is_none();
            Ok(FreezeSource {
                layout: opened.layout,
                project: opened.project,
                branch: opened.branch,
                without_snapshot,
            })
        }
    }
}
