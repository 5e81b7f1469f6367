//! `sluice manage-events`: pauses, discards or resumes the events of a tenant.

use super::operator;
use super::queue::{named_or_only_tenant, who};
use crate::output::print_line;
use anyhow::{Context as _, bail};
use clap::Args;
use sluice_aws::OsEntropy;
use sluice_model::hold::EventCommand;
use sluice_model::wakeup::Wakeup;
use sluice_records::codec::{decode, get, with_body};
use sluice_records::tenant::{self, Tenant};
use sluice_runtime::record::{Expect, Query, Record, TransactionOutcome, Write};
use sluice_runtime::{Entropy as _, cell};
use std::path::PathBuf;

/// How often the write is tried when concurrent writers change the tenant's record.
const ATTEMPTS_MAX: u32 = 20;

/// Queues that are woken at once; the others notice the change within a minute.
const QUEUES_MAX: usize = 1_000;

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
    for _ in 0..ATTEMPTS_MAX {
        let record = get(&ports, &tenant::key(&name)).await?;
        let record_before = record.with_context(|| format!("could not change event processing: the configuration of tenant {name} has not been loaded yet"))?;
        let mut head: Tenant = decode(&record_before)?;
        let at = ports.clock.now();
        let by = who();
        let command = EventCommand {
            discard_triggers: arguments.discard_trigger,
            pause_triggers: arguments.pause_trigger,
            pause_results: arguments.pause_result,
            by: &by,
            reason,
        };
        head.events = head.events.apply(command, at);
        let (revision, description) = (record_before.revision, head.events.describe());
        let mut record = with_body(record_before, &head)?;
        record.revision = revision + 1;
        let write = Write::Put { record, expect: Expect::Revision(revision) };
        if let TransactionOutcome::ConditionFailed(_) =
            ports.records.commit(vec![write], &OsEntropy.token()).await?
        {
            continue; // A concurrent writer changed the record: try again on its state.
        }
        let queues = Query::prefix(tenant::partition(&name), tenant::QUEUES, QUEUES_MAX);
        let listed = ports.records.query(&queues).await?;
        // If the body of the record is damaged, its key still names the queue.
        let queue = |record: &Record| {
            decode(record).ok().or_else(|| tenant::queue_of_list_key(&name, &record.key))
        };
        let wakeups: Vec<Wakeup> =
            listed.iter().filter_map(queue).map(|queue| Wakeup::Queue { queue }).collect();
        cell::send(&ports, &wakeups).await?;
        print_line!("Tenant {name}: {description}. Takes effect within a minute.");
        return Ok(());
    }
    bail!(
        "could not change event processing: the record of tenant {name} keeps changing; run this again"
    )
}
