//! The commands for operators and users, one file each, and how they connect to the system: a stack
//! on AWS, or a local system by its [access file](operator_access).
#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a test may panic"))]

mod accepted;
pub mod api_client;
pub mod api_objects;
pub mod audit;
pub mod authenticator;
pub mod autohold;
pub mod build;
pub mod check;
mod command_outcome;
pub mod connection;
pub mod enqueue;
pub mod events;
pub mod explain;
pub mod freeze;
pub mod image;
pub mod included_files;
pub mod job;
pub mod key;
pub mod local_config;
pub mod main_file;
pub mod node;
pub mod operator_access;
pub mod output;
pub mod pipeline_reasons;
pub mod pool_key;
pub mod provider;
pub mod quarantine;
pub mod queue;
pub mod secret;
mod secret_file;
pub mod selectors;
pub mod show;
pub mod tenant;
pub mod token;

use crate::operator_access::OperatorAccess;
use anyhow::{Context as _, bail};
use aws_config::Region;
use aws_credential_types::Credentials;
use aws_credential_types::provider::SharedCredentialsProvider;
use sluice_aws::AwsSettings;
use sluice_aws::endpoint::DataEndpoint;
use sluice_runtime::Ports;
use std::path::PathBuf;

/// Returns a number with its noun, to which an `s` is added unless the number is 1: `1 error`, `2
/// errors`.
fn counted(count: impl std::fmt::Display, noun: &str) -> String {
    let count = count.to_string();
    let plural = if count == "1" { "" } else { "s" };
    format!("{count} {noun}{plural}")
}

/// Returns the given data directory, or the default one, `~/.local/share/sluice`. Neither is
/// checked or created.
///
/// # Errors
/// When HOME is not set.
pub fn data_or_default(data: Option<PathBuf>) -> anyhow::Result<PathBuf> {
    match data {
        Some(data) => Ok(data),
        None => {
            let home = std::env::var_os("HOME")
                .context("HOME is not set; name a data directory with --data")?;
            Ok(PathBuf::from(home).join(".local/share/sluice"))
        }
    }
}

/// Returns the access file of the local system that a command is about. `data` is the directory
/// given on the command line; `None` means the stack on AWS if `SLUICE_TABLE` is set, else the
/// default directory. Returns `None` for a stack on AWS, and for a directory where no system ever
/// ran. Whether the system is running is not checked.
///
/// # Errors
/// When the file cannot be read.
pub fn operator_access(data: Option<PathBuf>) -> anyhow::Result<Option<OperatorAccess>> {
    if data.is_none() && std::env::var_os("SLUICE_TABLE").is_some() {
        return Ok(None);
    }
    OperatorAccess::read(&data_or_default(data)?)
}

/// Returns ports with an operator's rights: to the stack on AWS that the environment names, if no
/// directory is given and `SLUICE_TABLE` is set; else to the local system of the given or default
/// directory. Checks that the local system answers, but not a stack on AWS.
///
/// # Errors
/// When there is neither, or the local system is not running.
pub async fn operator(data: Option<PathBuf>) -> anyhow::Result<Ports> {
    if data.is_none() && std::env::var_os("SLUICE_TABLE").is_some() {
        return Ok(sluice_aws::ports_from_environment().await?);
    }
    let data = data_or_default(data)?;
    let Some(operator_access) = OperatorAccess::read(&data)? else {
        bail!(
            "no system has ever run in {}: start one with `sluice up`, name another directory with --data, or set SLUICE_TABLE and the other variables of a stack",
            data.display()
        );
    };
    let key = |name: &str| operator_access.environment.get(name).cloned().unwrap_or_default();
    let credentials = Credentials::new(
        key("AWS_ACCESS_KEY_ID"),
        key("AWS_SECRET_ACCESS_KEY"),
        Some(key("AWS_SESSION_TOKEN")),
        None,
        "operator_access",
    );
    let endpoint = key("AWS_ENDPOINT_URL");
    let address =
        endpoint.strip_prefix("http://").map(|rest| rest.trim_end_matches('/').to_owned());
    if let Some(address) = address
        && tokio::net::TcpStream::connect(&address).await.is_err()
    {
        bail!(
            "the system in {} is not running (nothing answers at {address}): start it with `sluice up`",
            data.display()
        );
    }
    let variable = |name: &str| operator_access.environment.get(name).cloned();
    let endpoint = DataEndpoint::from_variables(endpoint, variable);
    let mut base = DataEndpoint::usual_sources();
    // A system at another endpoint stores no keys, so they come from our environment.
    if !key("AWS_ACCESS_KEY_ID").is_empty() {
        base = base
            .region(Region::new(key("AWS_REGION")))
            .credentials_provider(SharedCredentialsProvider::new(credentials));
    }
    let sdk_config = endpoint.sdk_config(base).await;
    let settings = AwsSettings::from_variables(variable)?;
    Ok(sluice_aws::ports(&sdk_config, settings).await)
}
