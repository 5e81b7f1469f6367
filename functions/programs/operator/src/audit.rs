//! `sluice audit list`: shows who changed what in a tenant, over the API or with `sluice`.

use super::operator;
use super::queue::named_or_only_tenant;
use crate::api_client::LocalArguments;
use crate::output::{OutputFormat, print_json, print_line};
use clap::Args;
use serde_json::{Value, json};
use sluice_records::audit::{self, AuditEntry};

/// The arguments of `sluice audit list`.
#[derive(Debug, Clone, Args)]
pub struct AuditArguments {
    /// The data directory and the output format.
    #[command(flatten)]
    pub local: LocalArguments,
    /// Tenant [default: the only tenant]
    #[arg(long, value_name = "TENANT")]
    pub tenant: Option<String>,
    /// Number of entries, the newest first
    #[arg(long, value_name = "NUMBER", default_value_t = 50, value_parser = clap::value_parser!(u16).range(1..=1_000))]
    pub limit: u16,
}

/// Prints the newest audited writes of a tenant as text or JSON: when, who, by what way, and what.
/// They are kept for 35 days.
///
/// # Errors
/// When the tenant is unknown, or the store does not answer.
pub async fn list(arguments: AuditArguments) -> anyhow::Result<()> {
    let format = arguments.local.format();
    let ports = operator(arguments.local.data).await?;
    let tenant = named_or_only_tenant(&ports, arguments.tenant.as_deref()).await?;
    let entries = audit::newest(&ports, &tenant, usize::from(arguments.limit)).await?;
    if format == OutputFormat::Json {
        let row = |entry: &AuditEntry| {
            json!({
                "at": entry.at.to_iso(), "by": entry.by, "via": entry.via,
                "action": entry.action, "description": entry.description,
            })
        };
        print_json(&Value::Array(entries.iter().map(row).collect()));
        return Ok(());
    }
    if entries.is_empty() {
        print_line!("Nothing was changed by command in tenant {tenant}.");
    }
    for AuditEntry { at, by, via, description, .. } in entries {
        let by = if by.is_empty() { "unknown" } else { &by };
        print_line!("{} {by} ({via}): {description}", at.to_iso());
    }
    Ok(())
}
