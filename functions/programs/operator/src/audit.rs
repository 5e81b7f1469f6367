//! `sluice audit`: shows who changed what in a tenant, over the API or with `sluice`.

use super::queue::named_or_only_tenant;
use super::{FormatArgument, OutputFormat, operator, print_json};
use crate::output::print_line;
use clap::Args;
use serde_json::{Value, json};
use sluice_records::audit::{self, AuditEntry};
use std::path::PathBuf;

/// The arguments of `sluice audit`.
#[derive(Debug, Clone, Args)]
pub struct AuditArguments {
    /// Data directory of a local system [default: ~/.local/share/sluice]
    #[arg(long, env = "SLUICE_DATA", value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// Tenant [default: the only tenant]
    #[arg(long, value_name = "TENANT")]
    pub tenant: Option<String>,
    /// Number of entries, the newest first
    #[arg(long, value_name = "NUMBER", default_value_t = 50, value_parser = clap::value_parser!(u16).range(1..=1_000))]
    pub limit: u16,
    /// The output format.
    #[command(flatten)]
    pub printed: FormatArgument,
}

/// Prints the newest audited writes of a tenant as text or JSON: when, who, by what way, and what.
/// They are kept for 35 days.
///
/// # Errors
/// When the tenant is unknown, or the store does not answer.
pub async fn list(arguments: AuditArguments) -> anyhow::Result<()> {
    let ports = operator(arguments.data).await?;
    let tenant = named_or_only_tenant(&ports, arguments.tenant.as_deref()).await?;
    let entries = audit::newest(&ports, &tenant, usize::from(arguments.limit)).await?;
    if arguments.printed.format == OutputFormat::Json {
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
