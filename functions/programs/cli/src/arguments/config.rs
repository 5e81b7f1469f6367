//! The commands that check configuration offline.

use clap::{Args, Subcommand};
use sluice_model::BranchName;
use sluice_operator::check::CheckFormat;
use sluice_operator::freeze;
use sluice_operator::local_config::LocalConfigOptions;
use std::path::PathBuf;

#[derive(Subcommand)]
pub(crate) enum ConfigCommand {
    /// Check the configuration of a repository, or the main configuration, offline
    ///
    /// Exits with 0 if there are no errors, 1 if there are, 2 if the check could not run. Without a
    /// snapshot of the tenant, names defined in other repositories are not checked.
    Check(CheckArguments),
    /// Show the jobs that would run for a change, branch or tag, and which definition set what
    ///
    /// Exits with 0 if there are jobs, 1 if the configuration allows none, 2 if this could not be
    /// tried.
    Freeze(FreezeArguments),
}

#[derive(Args)]
pub(crate) struct CheckArguments {
    /// Directory of the repository, one configuration file, or the main configuration (`main.yaml`)
    #[arg(default_value = ".")]
    pub(crate) path: PathBuf,
    /// Snapshot of the tenant, written by `sluice tenant snapshot`
    #[arg(long, value_name = "FILE")]
    pub(crate) snapshot: Option<PathBuf>,
    /// Project that the directory belongs to [default: the project with the directory's name]
    #[arg(long)]
    pub(crate) project: Option<String>,
    /// Branch of the directory [default: the branch checked out there if the tenant has it,
    /// otherwise the default branch]
    #[arg(long)]
    pub(crate) branch: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Print SARIF 2.1.0, for forges and editors
    #[arg(long, conflicts_with = "json")]
    pub(crate) sarif: bool,
}

impl CheckArguments {
    /// Returns the output format.
    pub(crate) fn format(&self) -> CheckFormat {
        match (self.json, self.sarif) {
            (_, true) => CheckFormat::Sarif,
            (true, false) => CheckFormat::Json,
            (false, false) => CheckFormat::Text,
        }
    }
}

impl From<CheckArguments> for LocalConfigOptions {
    fn from(arguments: CheckArguments) -> Self {
        let CheckArguments { path, snapshot, project, branch, .. } = arguments;
        Self { path, tenant: snapshot, project, branch }
    }
}

#[derive(Args)]
pub(crate) struct FreezeArguments {
    /// Job to show in detail [default: all jobs of the project, without details]
    pub(crate) job: Option<String>,
    /// Directory of a repository whose configuration is used [default: only the snapshot if one is
    /// given, otherwise this directory]
    #[arg(long)]
    pub(crate) path: Option<PathBuf>,
    /// Snapshot of the tenant, written by `sluice tenant snapshot`
    #[arg(long, value_name = "FILE")]
    pub(crate) snapshot: Option<PathBuf>,
    /// Pipeline
    #[arg(long, default_value = "check")]
    pub(crate) pipeline: String,
    /// Project of the change
    #[arg(long)]
    pub(crate) project: Option<String>,
    /// Branch of the change [default: the branch checked out there if the tenant has it, otherwise
    /// the default branch]
    #[arg(long)]
    pub(crate) branch: Option<String>,
    /// Pushed tag to freeze jobs for instead of a change: `1.0` or refs/tags/1.0
    #[arg(long, value_name = "NAME", conflicts_with = "branch")]
    pub(crate) tag: Option<String>,
    /// Pushed branch, or full ref such as refs/tags/1.0, to freeze jobs for instead of a change
    #[arg(long = "ref", value_name = "REF", conflicts_with_all = ["branch", "tag"])]
    pub(crate) git_ref: Option<String>,
    /// Branch that contains the tag's commit; may be repeated [default: unknown; definitions of
    /// every branch are shown]
    #[arg(long = "on", value_name = "BRANCH", conflicts_with = "branch")]
    pub(crate) containing: Vec<String>,
    /// Path that the change modifies; may be repeated [default: every file counts as modified]
    #[arg(long = "file", value_name = "PATH")]
    pub(crate) files: Vec<String>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

impl From<FreezeArguments> for freeze::FreezeOptions {
    fn from(arguments: FreezeArguments) -> Self {
        let FreezeArguments { branch, tag, git_ref, containing, .. } = arguments;
        Self {
            path: arguments.path,
            tenant: arguments.snapshot,
            project: arguments.project,
            item: freeze::FreezeTarget::from_options(branch, tag.as_deref(), git_ref.as_deref()),
            containing: containing.into_iter().map(BranchName::from).collect(),
            pipeline: arguments.pipeline,
            files: arguments.files,
            job: arguments.job,
            json: arguments.json,
        }
    }
}
