//! Pauses, discards or resumes the events of a tenant.

use crate::{CommandAuthor, StoreCommandError};
use sluice_config::tenant::Permission;
use sluice_model::TenantName;
use sluice_model::hold::EventCommand;
use sluice_model::wakeup::Wakeup;
use sluice_records::codec::{decode, get, with_body};
use sluice_records::tenant::{self, Tenant};
use sluice_runtime::record::{Expect, Query, Record, TransactionOutcome, Write};
use sluice_runtime::{Ports, cell};

/// How often the write is tried when concurrent writers change the tenant's record.
const ATTEMPTS_MAX: u32 = 20;

/// Queues that are woken at once; the others notice the change within a minute.
const QUEUES_MAX: usize = 1_000;

/// What a command does to one kind of events.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Switch {
    /// They stay as they are.
    #[default]
    Unchanged,
    /// They are paused or discarded.
    On,
    /// They are processed.
    Off,
}

impl Switch {
    fn apply(self, before: bool) -> bool {
        match self {
            Self::Unchanged => before,
            Self::On => true,
            Self::Off => false,
        }
    }
}

/// How a tenant's events are processed from now on.
#[derive(Debug, Clone, Default)]
pub struct TenantStateChange {
    /// Whether new trigger events are discarded.
    pub discard_triggers: Switch,
    /// Whether trigger events are paused.
    pub pause_triggers: Switch,
    /// Whether the results of mergers and executors are paused.
    pub pause_results: Switch,
    /// Why, for display; may be empty.
    pub reason: String,
    /// A note for display with the tenant's status; empty clears it.
    pub info: String,
}

/// Changes which events of a tenant are paused or discarded, records author and reason, and wakes
/// the tenant's queues. Returns a description of the new state, which takes effect within a minute.
///
/// # Errors
/// When the tenant was never loaded, or the store does not answer.
pub async fn change_tenant_state(
    ports: &Ports,
    name: &TenantName,
    change: &TenantStateChange,
    author: &CommandAuthor,
) -> Result<String, StoreCommandError> {
    for _ in 0..ATTEMPTS_MAX {
        let record = get(ports, &tenant::key(name)).await?;
        let Some(record_before) = record else {
            return Err(StoreCommandError::NotFound(format!(
                "could not change event processing: the configuration of tenant {name} has not been loaded yet"
            )));
        };
        let mut head: Tenant = decode(&record_before)?;
        let at = ports.clock.now();
        let command = EventCommand {
            discard_triggers: change.discard_triggers.apply(head.events.trigger_queue_discarding),
            pause_triggers: change.pause_triggers.apply(head.events.trigger_queue_paused),
            pause_results: change.pause_results.apply(head.events.result_queue_paused),
            by: &author.name,
            reason: &change.reason,
            info: &change.info,
        };
        head.events = head.events.apply(command, at);
        let (revision, description) = (record_before.revision, head.events.describe());
        let mut record = with_body(record_before, &head)?;
        record.revision = revision + 1;
        let write = Write::Put { record, expect: Expect::Revision(revision) };
        let said = format!("event processing: {description}: {}", change.reason);
        let audit = author.audit(ports, name, Permission::SetTenantState, &said)?;
        if let TransactionOutcome::ConditionFailed(_) =
            ports.records.commit(vec![write, audit], &ports.entropy.token()).await?
        {
            continue; // A concurrent writer changed the record: try again on its state.
        }
        wake_queues(ports, name).await?;
        return Ok(description);
    }
    Err(StoreCommandError::Contended {
        attempt: "change event processing",
        what: format!("the record of tenant {name}"),
    })
}

/// Wakes the non-empty queues of a tenant.
async fn wake_queues(ports: &Ports, name: &TenantName) -> Result<(), StoreCommandError> {
    let queues = Query::prefix(tenant::partition(name), tenant::QUEUES, QUEUES_MAX);
    let listed = ports.records.query(&queues).await?;
    // If the body of the record is damaged, its key still names the queue.
    let queue = |record: &Record| {
        decode(record).ok().or_else(|| tenant::queue_of_list_key(name, &record.key))
    };
    let wakeups: Vec<Wakeup> =
        listed.iter().filter_map(queue).map(|queue| Wakeup::Queue { queue }).collect();
    Ok(cell::send(ports, &wakeups).await?)
}
