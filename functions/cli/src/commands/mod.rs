//! The commands of `sluice`, one file each, and how they find the system they are about.

pub mod autohold;
pub mod beside;
pub mod check;
pub mod connection;
pub mod enqueue;
pub mod events;
pub mod executor;
pub mod explain;
pub mod folder;
pub mod freeze;
mod heard;
pub mod image;
pub mod main_file;
pub mod place;
pub mod provider;
pub mod quarantine;
pub mod queue;
pub mod secret;
pub mod show;
pub mod tenant;
pub mod up;
pub mod why;

use crate::local::Desk;
use crate::say::say;
use anyhow::{Context as _, bail};
use aws_config::{BehaviorVersion, Region};
use aws_credential_types::Credentials;
use aws_credential_types::provider::SharedCredentialsProvider;
use clap::{Args, ValueEnum};
use serde_json::Value;
use sluice_aws::{AwsSettings, SdkConfig};
use sluice_config::plain_json;
use sluice_runtime::Ports;
use std::path::PathBuf;

/// How a list is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum Format {
    /// For people.
    #[default]
    Text,
    /// For programs.
    Json,
}

/// How an answer is wanted.
#[derive(Debug, Clone, Copy, Default, Args)]
pub struct Printed {
    /// How it is printed.
    #[arg(long, value_enum, default_value = "text")]
    pub format: Format,
}

/// Prints an answer for programs; nothing that strangers wrote in it steers a terminal.
fn say_json(answer: &Value) {
    say!("{}", plain_json(&format!("{answer:#}")));
}

/// Returns where a local system keeps its state when nobody says.
///
/// # Errors
/// When there is no home directory.
pub fn data_or_default(data: Option<PathBuf>) -> anyhow::Result<PathBuf> {
    match data {
        Some(data) => Ok(data),
        None => {
            let home = std::env::var_os("HOME")
                .context("there is no HOME; name a directory with --data")?;
            Ok(PathBuf::from(home).join(".local/share/sluice"))
        }
    }
}

/// Returns the desk of the local system that a command is about; `None` when it is about a stack on
/// AWS, or nothing ever ran there.
///
/// # Errors
/// When its file cannot be read.
pub fn desk(data: Option<PathBuf>) -> anyhow::Result<Option<Desk>> {
    if data.is_none() && std::env::var_os("SLUICE_TABLE").is_some() {
        return Ok(None);
    }
    Desk::read(&data_or_default(data)?)
}

/// Returns ports with an operator's rights: of the stack that the environment names, else of the
/// local system.
///
/// # Errors
/// When there is neither, or the local system does not run.
pub async fn operator(data: Option<PathBuf>) -> anyhow::Result<Ports> {
    if data.is_none() && std::env::var_os("SLUICE_TABLE").is_some() {
        return Ok(sluice_aws::ports_from_environment().await?);
    }
    let data = data_or_default(data)?;
    let Some(desk) = Desk::read(&data)? else {
        bail!(
            "no system ever ran on {}: start one with `sluice up`, name another directory with --data, or set SLUICE_TABLE and the other variables of a stack",
            data.display()
        );
    };
    let key = |name: &str| desk.environment.get(name).cloned().unwrap_or_default();
    let credentials = Credentials::new(
        key("AWS_ACCESS_KEY_ID"),
        key("AWS_SECRET_ACCESS_KEY"),
        Some(key("AWS_SESSION_TOKEN")),
        None,
        "desk",
    );
    let endpoint = key("AWS_ENDPOINT_URL");
    let address =
        endpoint.strip_prefix("http://").map(|rest| rest.trim_end_matches('/').to_owned());
    if let Some(address) = address
        && tokio::net::TcpStream::connect(&address).await.is_err()
    {
        bail!(
            "the system on {} does not run (nothing answers at {address}): start it with `sluice up`",
            data.display()
        );
    }
    let mut base = aws_config::defaults(BehaviorVersion::latest()).endpoint_url(endpoint);
    // A system at another endpoint writes no keys down: then they come from our environment, as
    // they did for it.
    if !key("AWS_ACCESS_KEY_ID").is_empty() {
        base = base
            .region(Region::new(key("AWS_REGION")))
            .credentials_provider(SharedCredentialsProvider::new(credentials));
    }
    let sdk_config: SdkConfig = base.load().await;
    let settings = AwsSettings::from_variables(|name| desk.environment.get(name).cloned())?;
    Ok(sluice_aws::ports(&sdk_config, settings).await)
}
