//! `sluice manage-events`: what is held back of a tenant's events.

use super::operator;
use super::queue::{only_tenant, who};
use crate::say::say;
use anyhow::{Context as _, bail};
use clap::Args;
use sluice_aws::OsEntropy;
use sluice_model::poke::Poke;
use sluice_records::codec::{decode, get, with_body};
use sluice_records::tenant::{self, Tenant};
use sluice_runtime::record::{Committed, Expect, Query, Record, Write};
use sluice_runtime::{Entropy as _, cell};
use std::path::PathBuf;

/// How often it is tried again when somebody else writes the tenant at the same time.
const ATTEMPTS_MAX: u32 = 20;

/// Queues that are told at once; the others look by themselves within a minute.
const QUEUES_MAX: usize = 1_000;

/// `sluice manage-events`, in zuul-client's words: what is not named goes on.
#[derive(Debug, Clone, Args)]
pub struct ManageEventsArguments {
    /// Directory of a local system's state. [default: ~/.local/share/sluice]
    #[arg(long, env = "SLUICE_DATA", value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// The tenant. [default: the only one there is]
    #[arg(long, value_name = "TENANT")]
    pub tenant: Option<String>,
    /// Lets what would enter a queue wait, and what would take something out of one; what
    /// `sluice enqueue` asks for enters.
    #[arg(long)]
    pub pause_trigger: bool,
    /// Drops what would enter a queue, but not what `sluice enqueue` asks for; what stands in one
    /// is still heard of.
    #[arg(long, conflicts_with = "pause_trigger")]
    pub discard_trigger: bool,
    /// Lets what merger and executors answer wait.
    #[arg(long)]
    pub pause_result: bool,
    /// Why; it is shown with the tenant's status, and kept with your name.
    #[arg(long, value_name = "TEXT")]
    pub reason: String,
}

/// Holds events of a tenant back, or lets them go on.
///
/// # Errors
/// When there is no such tenant, no reason is given, or the store does not answer.
pub async fn manage(wanted: ManageEventsArguments) -> anyhow::Result<()> {
    let reason = wanted.reason.trim();
    if reason.is_empty() {
        bail!("say with --reason why: it is shown to whoever wonders where the events are");
    }
    let ports = operator(wanted.data.clone()).await?;
    let name = only_tenant(&ports, wanted.tenant.as_deref()).await?;
    for _ in 0..ATTEMPTS_MAX {
        let record = get(&ports, &tenant::key(&name)).await?;
        let seen = record.with_context(|| format!("the tenant {name} has not been read yet"))?;
        let mut head: Tenant = decode(&seen)?;
        let at = ports.clock.now();
        let (discard, pause, results) =
            (wanted.discard_trigger, wanted.pause_trigger, wanted.pause_result);
        head.events = head.events.said(discard, pause, results, &who(), reason, at);
        let (revision, told) = (seen.revision, head.events.described());
        let mut record = with_body(seen, &head)?;
        record.revision = revision + 1;
        let write = Write::Put { record, expect: Expect::Revision(revision) };
        if let Committed::Lost(_) = ports.records.commit(vec![write], &OsEntropy.token()).await? {
            continue; // The tenant was read, or something landed: say it again on what is there now.
        }
        let queues = Query::prefix(tenant::partition(&name), tenant::QUEUES, QUEUES_MAX);
        let listed = ports.records.query(&queues).await?;
        // The key of such a record says which queue it is as well as its body, should that be
        // damaged.
        let queue = |record: &Record| {
            decode(record).ok().or_else(|| tenant::listed_queue(&name, &record.key))
        };
        let pokes: Vec<Poke> =
            listed.iter().filter_map(queue).map(|queue| Poke::Queue { queue }).collect();
        cell::send(&ports, &pokes).await?;
        say!("Of {name}, {told}. Queues that hear of it by themselves do so within a minute.");
        return Ok(());
    }
    bail!("the tenant {name} is being written all the time; run this again")
}
