//! `sluice build log`: the log of a build, over the API.

use crate::api_client::api_path;
use crate::output::{OutputFormat, print_json, print_line};
use crate::selectors::TenantSelector;
use anyhow::ensure;
use clap::Args;
use serde_json::json;

/// The longest log that is shown, in bytes.
const LOG_MAX: usize = 256 << 20;

/// The arguments of `sluice build show` and `sluice build log`.
#[derive(Debug, Clone, Args)]
pub struct BuildSelector {
    /// The system and the tenant.
    #[command(flatten)]
    pub selector: TenantSelector,
    /// Id of the build, as `sluice build list` shows it
    #[arg(value_name = "BUILD")]
    pub id: String,
}

/// Prints the log of a build, as far as it is written.
///
/// # Errors
/// When the API does not answer, or the tenant has no such build or no log of it.
pub async fn log(arguments: &BuildSelector) -> anyhow::Result<()> {
    let BuildSelector { selector, id } = arguments;
    let client = selector.system.client()?;
    let tenant = client.tenant(selector.tenant.as_deref()).await?;
    let path = api_path(&["tenant", &tenant, "build", id, "log"])?;
    let mut log = Vec::new();
    // The API answers with pieces; after the last one that is written, with an empty one.
    loop {
        let piece = client.get_bytes(&format!("{path}?offset={}", log.len())).await?;
        if piece.is_empty() {
            break;
        }
        log.extend_from_slice(&piece);
        ensure!(
            log.len() <= LOG_MAX,
            "could not show the log: it is longer than {} MiB; the pages have its file",
            LOG_MAX >> 20
        );
    }
    let text = String::from_utf8_lossy(&log);
    match selector.system.format() {
        OutputFormat::Json => print_json(&json!({"build": id, "log": text})),
        OutputFormat::Text => print_line!("{}", text.trim_end()),
    }
    Ok(())
}
