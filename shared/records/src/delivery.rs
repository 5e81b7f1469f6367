//! A webhook delivery: stored before it is answered, handled once, and ended in one terminal state.

use crate::codec::encode;
use serde::{Deserialize, Serialize};
use sluice_model::event::{EventKind, ForgeEvent};
use sluice_model::poke::Poke;
use sluice_model::{BranchName, ConnectionName, DeliveryId, ProjectName, TenantName, Timestamp};
use sluice_runtime::PortError;
use sluice_runtime::record::{Due, Key, Record};

/// Seconds after which a delivery that is not final counts as unaccounted.
pub const BOUND_SECONDS: u64 = 600;

/// What a forge told, and what became of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Delivery {
    /// The connection it came by.
    pub connection: ConnectionName,
    /// The forge's own id of it.
    pub forge_id: String,
    /// The forge's name of the event.
    pub event_name: String,
    /// When it came.
    pub received_at: Timestamp,
    /// What it says, as far as routing needs it; `None` when it is ignored.
    pub event: Option<ForgeEvent>,
    /// What became of it.
    pub state: DeliveryState,
}

/// What became of a delivery.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DeliveryState {
    /// Accepted, not handled.
    Accepted,
    /// Some tenants were told, for which one commit had a place; the others are told next.
    Partly {
        /// The last tenant that was told; further ones follow by their names.
        after: TenantName,
        /// What they are told, where that is not what came.
        kind: Option<Box<EventKind>>,
        /// Whether it counts for triggers, or was told before.
        is_news: bool,
        /// The branches that the change was for before.
        formerly: Vec<BranchName>,
    },
    /// Nothing here is concerned by it.
    Ignored {
        /// Why.
        why: String,
    },
    /// It was an echo of what we wrote ourselves.
    Own,
    /// It was handled.
    Handled {
        /// What it led to, a line each, at most 20.
        effects: Vec<String>,
        /// When.
        at: Timestamp,
    },
    /// It cannot be handled, ever.
    Failed {
        /// Why.
        why: String,
        /// When.
        at: Timestamp,
    },
}

impl DeliveryState {
    /// Returns whether nothing more will happen to it.
    pub fn is_final(&self) -> bool {
        !matches!(self, Self::Accepted | Self::Partly { .. })
    }
}

/// Returns the id of a delivery.
pub fn id(connection: &ConnectionName, forge_id: &str) -> DeliveryId {
    DeliveryId::derive(&[connection.as_str(), forge_id])
}

/// Returns the key of a delivery.
pub fn key(id: &DeliveryId) -> Key {
    Key::new(format!("delivery#{id}"), "head")
}

/// Returns the record of a delivery that has just come.
///
/// # Errors
/// When it is too large.
pub fn record(id: &DeliveryId, delivery: &Delivery) -> Result<Record, PortError> {
    let mut record = encode(key(id), delivery)?;
    listed(&mut record, id, delivery);
    Ok(record)
}

/// Returns the id of a delivery of ours, its first record, by which it is looked at again at that
/// moment, and the poke that has it handled.
///
/// # Errors
/// When it is too large.
pub fn pending(
    delivery: &Delivery,
    at: Timestamp,
) -> Result<(DeliveryId, Record, Poke), PortError> {
    let id = id(&delivery.connection, &delivery.forge_id);
    let poke = Poke::Delivery { delivery: id.clone(), project: group(delivery) };
    let mut record = record(&id, delivery)?;
    record.revision = 1;
    record.due = Some(Due { at, poke: poke.clone() });
    record.look_at = Some(at);
    Ok((id, record, poke))
}

/// Lists a delivery among those that have not ended, or those that have: the first list is what the
/// metric counts.
pub fn listed(record: &mut Record, id: &DeliveryId, delivery: &Delivery) {
    let list = if delivery.state.is_final() { "deliveries" } else { "open-deliveries" };
    record.find = Some((list.to_owned(), format!("{:015}#{id}", delivery.received_at.0)));
}

/// Returns the project whose events are handled in order with this one.
pub fn group(delivery: &Delivery) -> ProjectName {
    delivery
        .event
        .as_ref()
        .map_or_else(|| ProjectName(delivery.connection.to_string()), |event| event.project.clone())
}
