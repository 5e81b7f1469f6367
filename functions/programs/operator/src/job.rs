//! `sluice job freeze` and `sluice job graph`: the jobs that a change of a branch would run, over
//! the API.

use crate::api_client::api_path;
use crate::api_objects::{list_frozen_jobs, print_object};
use crate::selectors::PipelineSelector;
use clap::Args;
use serde_json::Value;

/// Selects a branch of a project in a pipeline.
#[derive(Debug, Clone, Args)]
pub struct BranchSelector {
    /// The pipeline.
    #[command(flatten)]
    pub within: PipelineSelector,
    /// Project, by short or canonical name
    #[arg(long, value_name = "PROJECT")]
    pub project: String,
    /// Branch
    #[arg(long, value_name = "BRANCH")]
    pub branch: String,
}

/// Prints the jobs that a change of a branch would run, each with the jobs that it waits for.
///
/// # Errors
/// When the API does not answer, or the project, the pipeline or the tenant is unknown.
pub async fn graph(selector: &BranchSelector) -> anyhow::Result<()> {
    let system = &selector.within.within.system;
    let client = system.client()?;
    let path =
        branch_path(selector, &client.tenant(tenant_name(selector)).await?, &["freeze-jobs"]);
    list_frozen_jobs(&client, &path?, system.format()).await
}

/// Prints a job as a change of a branch would run it.
///
/// # Errors
/// When the API does not answer, or the job, the project, the pipeline or the tenant is unknown.
pub async fn freeze(selector: &BranchSelector, job: &str) -> anyhow::Result<()> {
    let system = &selector.within.within.system;
    let client = system.client()?;
    let tenant = client.tenant(tenant_name(selector)).await?;
    let frozen: Value = client.get(&branch_path(selector, &tenant, &["freeze-job", job])?).await?;
    print_object(&frozen, system.format());
    Ok(())
}

fn tenant_name(selector: &BranchSelector) -> Option<&str> {
    selector.within.within.tenant.as_deref()
}

/// Returns a path below that of a branch in a pipeline.
fn branch_path(selector: &BranchSelector, tenant: &str, rest: &[&str]) -> anyhow::Result<String> {
    let BranchSelector { within, project, branch } = selector;
    let before =
        ["tenant", tenant, "pipeline", &within.pipeline, "project", project, "branch", branch];
    api_path(&[&before[..], rest].concat())
}
