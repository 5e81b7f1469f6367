//! `sluice freeze`: the jobs of a change, a branch or a tag as they would be frozen, and which
//! definition said what.

use super::folder::{self, Wanted};
use super::queue::whole_ref;
use crate::say::say;
use anyhow::{Context as _, bail};
use serde_json::json;
use sluice_config::layout::Layout;
use sluice_config::{FreezeInput, plain_json};
use sluice_model::{BranchName, ProjectName};
use std::path::PathBuf;
use std::process::ExitCode;

/// What is frozen.
#[derive(Debug, Clone)]
pub struct Asked {
    /// The repository whose files count; `None` takes the tenant as it is merged.
    pub path: Option<PathBuf>,
    /// A snapshot of the tenant.
    pub tenant: Option<PathBuf>,
    /// The project of what is in the pipeline.
    pub project: Option<String>,
    /// What is in the pipeline.
    pub item: Item,
    /// Of a tag, the branches that have its commit; none where that is not known.
    pub containing: Vec<BranchName>,
    /// The pipeline.
    pub pipeline: String,
    /// Paths that the change touches; none runs everything.
    pub files: Vec<String>,
    /// One job; `None` shows all of them, without their attributes.
    pub job: Option<String>,
    /// Whether it is printed for programs.
    pub json: bool,
}

/// What jobs are frozen for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Item {
    /// A change of a branch; `None` takes the checked out one that the tenant knows, else the
    /// project's default branch.
    Change(Option<String>),
    /// A branch or tag that was pushed, as its whole ref.
    Ref(String),
}

impl Item {
    /// Returns what was meant: a tag or another ref where one was named, a change of a branch else.
    pub fn named(branch: Option<String>, tag: Option<&str>, git_ref: Option<&str>) -> Self {
        match (tag, git_ref) {
            (Some(tag), _) if tag.starts_with("refs/") => Self::Ref(tag.to_owned()),
            (Some(tag), _) => Self::Ref(format!("refs/tags/{tag}")),
            (None, Some(git_ref)) => Self::Ref(whole_ref(git_ref)),
            (None, None) => Self::Change(branch),
        }
    }

    /// Returns the branch that it names.
    fn branch(&self) -> Option<&str> {
        match self {
            Self::Change(branch) => branch.as_deref(),
            Self::Ref(git_ref) => git_ref.strip_prefix("refs/heads/"),
        }
    }
}

/// Freezes and prints. The exit status is 1 where the configuration allows no jobs, with the
/// reasons.
///
/// # Errors
/// When something cannot be read, or there is no such project, pipeline or job.
pub fn run(asked: &Asked) -> anyhow::Result<ExitCode> {
    let Found { layout, project, branch, is_alone } = open(asked)?;
    if layout.pipeline(&asked.pipeline).is_none() {
        let known: Vec<&str> =
            layout.pipelines().iter().map(|pipeline| pipeline.name.as_str()).collect();
        let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
        // What is in the file and could not be used is not in the layout.
        for error in layout.errors() {
            eprintln!("{}", error.render(None));
        }
        let hint = if is_alone {
            "; pipelines of other repositories are known with --tenant SNAPSHOT"
        } else {
            ""
        };
        bail!("there is no pipeline {}; there are: {known}{hint}", asked.pipeline);
    }
    let input = FreezeInput::change(&asked.pipeline, &project, branch.as_str());
    // As the merger asks for what was pushed: a tag is of no branch.
    let (input, place) = match &asked.item {
        Item::Change(_) => (input, format!("the branch {branch}")),
        Item::Ref(git_ref) => {
            let (on, known) = (asked.item.branch(), asked.containing.as_slice());
            let containing = Some(known).filter(|known| on.is_none() && !known.is_empty());
            if on.is_none() && containing.is_none() {
                eprintln!(
                    "Which branches have the commit of {git_ref} is not known here, so what any branch says is shown: name them with --on BRANCH"
                );
            }
            (FreezeInput { branch: on, containing, git_ref, ..input }, git_ref.clone())
        }
    };
    let input = if asked.files.is_empty() { input } else { input.touching(&asked.files) };
    let (result, mut trace) = layout.freeze_with_trace(&input);
    if let Some(job) = &asked.job {
        trace.retain(|one| one.job == *job);
        if trace.is_empty() {
            bail!("{project} does not list a job {job} in {} for {place}", asked.pipeline);
        }
    }
    let is_asked = |name: &str| asked.job.as_ref().is_none_or(|job| job == name);
    let (jobs, errors) = match result {
        Ok(graph) => {
            (graph.jobs.into_iter().filter(|job| is_asked(job.name.as_str())).collect(), Vec::new())
        }
        Err(errors) => (Vec::new(), errors),
    };
    if asked.json {
        say!(
            "{}",
            plain_json(&format!("{:#}", json!({"jobs": jobs, "trace": trace, "errors": errors})))
        );
    } else {
        for one in &trace {
            say!("{one}");
        }
        for job in jobs.iter().filter(|_| asked.job.is_some()) {
            say!("{}", plain_json(&serde_json::to_string_pretty(job)?));
        }
        for error in &errors {
            eprintln!("{}", error.render(None));
        }
    }
    Ok(if errors.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// What is frozen from.
struct Found {
    layout: Layout,
    project: ProjectName,
    branch: BranchName,
    /// Whether nothing is known but the directory.
    is_alone: bool,
}

fn open(asked: &Asked) -> anyhow::Result<Found> {
    match (&asked.path, &asked.tenant) {
        (None, Some(tenant)) => {
            let layout = folder::snapshot(tenant)?;
            let name = asked.project.as_deref().context("say which project with --project")?;
            let project = layout
                .project(name)
                .with_context(|| format!("the tenant has no project {name}"))?;
            let project = project.name.clone();
            let branch = asked
                .item
                .branch()
                .map_or_else(|| layout.default_branch(&project), BranchName::from);
            Ok(Found { layout, project, branch, is_alone: false })
        }
        (path, tenant) => {
            let opened = folder::open(&Wanted {
                path: path.clone().unwrap_or_else(|| PathBuf::from(".")),
                tenant: tenant.clone(),
                project: asked.project.clone(),
                branch: asked.item.branch().map(str::to_owned),
            })?;
            let is_alone = opened.tenant.is_none();
            Ok(Found {
                layout: opened.layout,
                project: opened.project,
                branch: opened.branch,
                is_alone,
            })
        }
    }
}
