//! `sluice image build`: builds an image now, as if Zuul's own event had requested it.
//!
//! The command is stored as a delivery, like that of `sluice change enqueue`. Intake enqueues the
//! branch that defines the image in the pipelines that `image-build` triggers, and records the
//! outcome.

use super::enqueue::{load_live, submit_and_wait};
use super::queue::{author, named_or_only_tenant};
use crate::accepted::AcceptedWrite;
use crate::api_client::{ApiWrite, SystemArguments, api_path};
use clap::Args;
use reqwest::Method;
use sluice_commands::image_build_event;
use std::process::ExitCode;

/// The arguments of `sluice image build`.
#[derive(Debug, Clone, Args)]
pub struct BuildArguments {
    /// The system and the output format.
    #[command(flatten)]
    pub system: SystemArguments,
    /// Tenant
    pub tenant: String,
    /// Image, by the name in its `image` stanza
    pub image: String,
}

/// Requests the build of an image, waits up to a minute for the decision of intake, and prints it.
/// Does not wait for the build itself. Returns exit status 0 if a pipeline accepted the request,
/// and 3 if there is no decision yet: the request stays stored. Returns an error if the tenant's
/// live configuration has no such image or no job that builds it, and if no pipeline accepts the
/// request.
///
/// # Errors
/// When the tenant has no such image to build, no listed job builds it, no pipeline accepts the
/// event, or the store does not answer.
pub async fn build(arguments: BuildArguments) -> anyhow::Result<ExitCode> {
    let BuildArguments { system, tenant, image } = arguments;
    if let Some(client) = system.api_client()? {
        let tenant = client.tenant(Some(&tenant)).await?;
        let path = api_path(&["tenant", &tenant, "image", &image, "build"])?;
        let permission = "build-image";
        client.write(ApiWrite { method: Method::POST, path, body: None, permission }).await?;
        let what = format!("the jobs that build the image {image} will be enqueued");
        let outcome = format!("sluice status --tenant {tenant}");
        AcceptedWrite { what, outcome }.print(&client, system.format());
        return Ok(ExitCode::SUCCESS);
    }
    let ports = system.ports().await?;
    let tenant = named_or_only_tenant(&ports, Some(&tenant)).await?;
    let live = load_live(&ports, &tenant).await?;
    let event = image_build_event(&tenant, &live.layout, &image, &author())?;
    submit_and_wait(&ports, event).await
}
