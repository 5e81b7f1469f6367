//! How commands name a pipeline, and a project in it: zuul-client's words.

use clap::Args;
use std::path::PathBuf;

/// Which pipeline of which tenant.
#[derive(Debug, Clone, Args)]
pub struct InPipeline {
    /// Directory of a local system's state. [default: ~/.local/share/sluice]
    #[arg(long, env = "SLUICE_DATA", value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// The tenant. [default: the only one there is]
    #[arg(long, value_name = "TENANT")]
    pub tenant: Option<String>,
    /// The pipeline.
    #[arg(long, value_name = "PIPELINE")]
    pub pipeline: String,
}

/// Which project in which pipeline.
#[derive(Debug, Clone, Args)]
pub struct OfProject {
    /// The pipeline.
    #[command(flatten)]
    pub within: InPipeline,
    /// The project, by its short or canonical name.
    #[arg(long, value_name = "PROJECT")]
    pub project: String,
}
