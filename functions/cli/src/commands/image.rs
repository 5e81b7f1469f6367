//! `sluice image build`: an image is built now, as if an event of Zuul's own had asked for it.
//!
//! It is a delivery like that of `sluice enqueue`: intake offers the branch that defines the image
//! to the pipelines that `image-build` starts, and says what came of it.

use super::enqueue::{ask, live};
use super::operator;
use super::queue::{only_tenant, who};
use anyhow::{anyhow, bail};
use clap::Args;
use sluice_model::change::ImagesAsked;
use sluice_model::event::{EventKind, ForgeEvent, ImageEvent};
use std::path::PathBuf;
use std::process::ExitCode;

/// `sluice image build`.
#[derive(Debug, Clone, Args)]
pub struct BuildArguments {
    /// Directory of a local system's state. [default: ~/.local/share/sluice]
    #[arg(long, env = "SLUICE_DATA", value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// The tenant.
    pub tenant: String,
    /// The image, as its `image` stanza names it.
    pub image: String,
}

/// Has an image built and says what came of it.
///
/// # Errors
/// When the tenant has no such image that is built, no job is listed that builds it, no pipeline
/// takes the event, or the store does not answer.
pub async fn build(wanted: BuildArguments) -> anyhow::Result<ExitCode> {
    let BuildArguments { data, tenant, image } = wanted;
    let ports = operator(data).await?;
    let tenant = only_tenant(&ports, Some(&tenant)).await?;
    let live = live(&ports, &tenant).await?;
    let home = live
        .layout
        .image_to_build(&image)
        .map_err(|why| anyhow!("could not have {image} built: {why}"))?;
    if let Some(why) = live.layout.why_image_is_not_built(home, &image) {
        bail!("could not have {image} built: {why}");
    }
    let what = ImageEvent::ImageBuild;
    let kind = EventKind::Image {
        tenant,
        what,
        branch: home.branch.clone(),
        images: ImagesAsked::one(image),
    };
    let (connection, project) = (home.connection.clone(), home.project.clone());
    ask(&ports, what.as_str(), ForgeEvent { connection, project, sender: who(), kind }).await
}
