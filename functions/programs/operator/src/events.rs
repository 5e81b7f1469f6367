//! `sluice manage-events`: pauses, discards or resumes the events of a tenant.

use super::operator;
use super::queue::{author, named_or_only_tenant};
use crate::output::print_line;
use anyhow::bail;
use clap::Args;
use sluice_commands::{Switch, TenantStateChange, change_tenant_state};
use std::path::PathBuf;

/// The arguments of `sluice manage-events`, as in zuul-client. An option that is not given is
/// resumed.
#[derive(Debug, Clone, Args)]
pub struct ManageEventsArguments {
    /// Data directory of a local system [default: ~/.local/share/sluice]
    #[arg(long, env = "SLUICE_DATA", value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// Tenant [default: the only tenant]
    #[arg(long, value_name = "TENANT")]
    pub tenant: Option<String>,
    /// Pause trigger events: changes neither enter nor leave queues because of them. `sluice
    /// enqueue` still works
    #[arg(long)]
    pub pause_trigger: bool,
    /// Discard trigger events: changes no longer enter queues because of them. Events for queued
    /// changes, and `sluice enqueue`, still work
    #[arg(long, conflicts_with = "pause_trigger")]
    pub discard_trigger: bool,
    /// Pause the results of the merger and the executors
    #[arg(long)]
    pub pause_result: bool,
    /// Why; shown with the tenant's status and recorded with your name
    #[arg(long, value_name = "TEXT")]
    pub reason: String,
}

/// Replaces which events of a tenant are paused or discarded, records the user and the reason, and
/// wakes the tenant's queues. What the arguments do not pause or discard is resumed. Prints the new
/// state, which takes effect within a minute. A tenant that was never loaded and an empty reason
/// are errors.
///
/// # Errors
/// When the tenant is unknown, the reason is empty, or the store does not answer.
pub async fn manage(arguments: ManageEventsArguments) -> anyhow::Result<()> {
    let reason = arguments.reason.trim();
    if reason.is_empty() {
        bail!(
            "could not change event processing: say why with --reason; the reason is shown with the tenant's status"
        );
    }
    let ports = operator(arguments.data.clone()).await?;
    let name = named_or_only_tenant(&ports, arguments.tenant.as_deref()).await?;
    let switch = |is_on| if is_on { Switch::On } else { Switch::Off };
    let change = TenantStateChange {
        discard_triggers: switch(arguments.discard_trigger),
        pause_triggers: switch(arguments.pause_trigger),
        pause_results: switch(arguments.pause_result),
        reason: reason.to_owned(),
        info: String::new(),
    };
    let description = change_tenant_state(&ports, &name, &change, &author()).await?;
    print_line!("Tenant {name}: {description}. Takes effect within a minute.");
    Ok(())
}
