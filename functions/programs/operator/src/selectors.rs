//! The arguments by which commands select a pipeline and a project, as in zuul-client.

use clap::Args;
use std::path::PathBuf;

/// Selects a pipeline of a tenant.
#[derive(Debug, Clone, Args)]
pub struct PipelineSelector {
    /// Data directory of a local system [default: ~/.local/share/sluice]
    #[arg(long, env = "SLUICE_DATA", value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// Tenant [default: the only tenant]
    #[arg(long, value_name = "TENANT")]
    pub tenant: Option<String>,
    /// Pipeline
    #[arg(long, value_name = "PIPELINE")]
    pub pipeline: String,
}

/// Selects a project in a pipeline.
#[derive(Debug, Clone, Args)]
pub struct ProjectSelector {
    /// The pipeline.
    #[command(flatten)]
    pub within: PipelineSelector,
    /// Project, by short or canonical name
    #[arg(long, value_name = "PROJECT")]
    pub project: String,
}
