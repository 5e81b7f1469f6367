//! `sluice tenant set-state`: pauses, discards or resumes the events of a tenant.

use super::queue::{author, named_or_only_tenant};
use crate::accepted::AcceptedWrite;
use crate::api_client::{ApiWrite, Client, api_path};
use crate::output::print_line;
use crate::selectors::TenantSelector;
use anyhow::bail;
use clap::{Args, ValueEnum};
use reqwest::Method;
use serde_json::json;
use sluice_commands::{Switch, TenantStateChange, change_tenant_state};
use sluice_records::tenant;

/// What is paused or discarded, as in zuul-client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum TenantState {
    /// Process all events
    Normal,
    /// Pause trigger events: changes neither enter nor leave queues because of them. `sluice change
    /// enqueue` still works
    PauseTrigger,
    /// Discard trigger events: changes no longer enter queues because of them. Events for queued
    /// changes, and `sluice change enqueue`, still work
    DiscardTrigger,
    /// Pause the results of the merger and the executors
    PauseResult,
}

/// The arguments of `sluice tenant set-state`.
#[derive(Debug, Clone, Args)]
pub struct SetStateArguments {
    /// The system and the tenant.
    #[command(flatten)]
    pub selector: TenantSelector,
    /// Set the state of every tenant
    #[arg(long, conflicts_with = "tenant")]
    pub all_tenants: bool,
    /// State; pause-result may be added to another one. What is not named is resumed
    #[arg(value_enum, value_name = "STATE", default_value = "normal")]
    pub states: Vec<TenantState>,
    /// Why; shown with the tenant's status and recorded with your name. Required, except for normal
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub reason: String,
}

/// Replaces which events of a tenant, or of all, are paused or discarded, records the user and the
/// reason, and wakes the tenant's queues. What the arguments do not pause or discard is resumed.
/// Prints the new state, which takes effect within a minute. Over the API, prints that the request
/// is stored.
///
/// # Errors
/// When the tenant is unknown or was never loaded, the states contradict each other, something is
/// paused without a reason, or the system does not answer.
pub async fn set_state(arguments: SetStateArguments) -> anyhow::Result<()> {
    let change = change(&arguments)?;
    let SetStateArguments { selector, all_tenants, .. } = arguments;
    if let Some(client) = selector.system.api_client()? {
        let tenants = if all_tenants {
            client.tenants().await?
        } else {
            vec![client.tenant(selector.tenant.as_deref()).await?]
        };
        for tenant in &tenants {
            send(&client, tenant, &change).await?;
        }
        let what = format!("the state will be set of the tenants {}", tenants.join(", "));
        let outcome = "sluice status".to_owned();
        AcceptedWrite { what, outcome }.print(&client, selector.system.format());
        return Ok(());
    }
    let ports = selector.system.ports().await?;
    let tenants = if all_tenants {
        tenant::list_tenants(&ports).await?
    } else {
        vec![named_or_only_tenant(&ports, selector.tenant.as_deref()).await?]
    };
    for name in tenants {
        let description = change_tenant_state(&ports, &name, &change, &author()).await?;
        print_line!("Tenant {name}: {description}. Takes effect within a minute.");
    }
    Ok(())
}

/// Returns the change that sets the states and resumes everything else.
fn change(arguments: &SetStateArguments) -> anyhow::Result<TenantStateChange> {
    use TenantState::{DiscardTrigger, Normal, PauseResult, PauseTrigger};
    let SetStateArguments { states, reason, .. } = arguments;
    let has = |state| states.contains(&state);
    if has(Normal) && states.len() > 1 {
        bail!("could not change event processing: normal resumes all events; name it alone");
    }
    if has(PauseTrigger) && has(DiscardTrigger) {
        bail!(
            "could not change event processing: trigger events are either paused or discarded; name one of pause-trigger and discard-trigger"
        );
    }
    let reason = reason.trim();
    if reason.is_empty() && !has(Normal) {
        bail!(
            "could not change event processing: say why with --reason; the reason is shown with the tenant's status"
        );
    }
    let switch = |state| if has(state) { Switch::On } else { Switch::Off };
    Ok(TenantStateChange {
        discard_triggers: switch(DiscardTrigger),
        pause_triggers: switch(PauseTrigger),
        pause_results: switch(PauseResult),
        reason: reason.to_owned(),
        info: String::new(),
    })
}

/// Sends the change to the API.
async fn send(client: &Client, tenant: &str, change: &TenantStateChange) -> anyhow::Result<()> {
    let is_on = |switch| switch == Switch::On;
    let body = json!({
        "trigger_queue_discarding": is_on(change.discard_triggers),
        "trigger_queue_paused": is_on(change.pause_triggers),
        "result_queue_paused": is_on(change.pause_results),
        "reason": change.reason,
    });
    let path = api_path(&["tenant", tenant, "state"])?;
    let permission = "set-tenant-state";
    client.write(ApiWrite { method: Method::POST, path, body: Some(body), permission }).await
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Z7.4, R06: what is not named is resumed; a pause needs a reason.
    #[test]
    fn states_that_are_not_named_are_resumed() {
        let of = |states: &[TenantState], reason: &str| {
            change(&SetStateArguments {
                selector: TenantSelector::default(),
                all_tenants: false,
                states: states.to_vec(),
                reason: reason.to_owned(),
            })
        };
        use TenantState::{DiscardTrigger, Normal, PauseResult, PauseTrigger};
        let normal = of(&[Normal], "").unwrap();
        assert_eq!(
            (normal.pause_triggers, normal.discard_triggers, normal.pause_results),
            (Switch::Off, Switch::Off, Switch::Off)
        );
        let both = of(&[PauseTrigger, PauseResult], "an update").unwrap();
        assert_eq!(
            (both.pause_triggers, both.discard_triggers, both.pause_results),
            (Switch::On, Switch::Off, Switch::On)
        );
        assert!(of(&[PauseTrigger], " ").is_err());
        assert!(of(&[Normal, PauseResult], "x").is_err());
        assert!(of(&[PauseTrigger, DiscardTrigger], "x").is_err());
    }
}
