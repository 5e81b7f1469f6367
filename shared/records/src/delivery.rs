//! A webhook delivery: stored before the webhook is answered, processed once, and ended in one
//! final state.

use crate::codec::encode;
use serde::{Deserialize, Serialize};
use sluice_model::event::{EventKind, ForgeEvent};
use sluice_model::wakeup::Wakeup;
use sluice_model::{BranchName, ConnectionName, DeliveryId, ProjectName, TenantName, Timestamp};
use sluice_runtime::PortError;
use sluice_runtime::record::{Due, Key, Record};

/// Seconds after which a delivery that is not final is reported as unaccounted for.
pub const BOUND_SECONDS: u64 = 600;

/// An event from a forge, and the state of its processing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeliveryRecord {
    /// The connection that received it.
    pub connection: ConnectionName,
    /// The forge's id of the delivery.
    pub forge_id: String,
    /// The forge's name of the event.
    pub event_name: String,
    /// When it was received.
    pub received_at: Timestamp,
    /// The parsed event; `None` when it is ignored.
    pub event: Option<ForgeEvent>,
    /// The state of its processing.
    pub state: DeliveryState,
}

/// The state of a delivery.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DeliveryState {
    /// It is stored and not processed.
    Accepted,
    /// Some tenants have processed it. One commit had no room for the others, which follow in the
    /// next commit.
    PartlyRouted {
        /// The last tenant that processed it; the others follow in the order of their names.
        after: TenantName,
        /// The event that the tenants process, when it differs from the received one.
        kind: Option<Box<EventKind>>,
        /// Whether it can match triggers. `false` when an earlier delivery had the same event.
        is_new: bool,
        /// The earlier target branches of the change.
        former_branches: Vec<BranchName>,
    },
    /// No project or tenant is affected.
    Ignored {
        /// Why.
        why: String,
    },
    /// Sluice itself caused the event.
    SelfAuthored,
    /// It was processed.
    Handled {
        /// Its effects, one line each, at most 20.
        effects: Vec<String>,
        /// When it was processed.
        at: Timestamp,
    },
    /// It can never be processed.
    Failed {
        /// Why.
        why: String,
        /// When that was found.
        at: Timestamp,
    },
}

impl DeliveryState {
    /// Returns whether the delivery is not processed any further.
    pub fn is_final(&self) -> bool {
        !matches!(self, Self::Accepted | Self::PartlyRouted { .. })
    }
}

/// Returns the id of a delivery; the same forge id always has the same id.
pub fn id(connection: &ConnectionName, forge_id: &str) -> DeliveryId {
    DeliveryId::derive(&[connection.as_str(), forge_id])
}

/// Returns the key of a delivery.
pub fn key(id: &DeliveryId) -> Key {
    Key::new(format!("delivery#{id}"), "head")
}

/// Returns the record of a received delivery, not stored yet (revision 0, nothing due). The index
/// `find` lists it as [`set_list`] says.
///
/// # Errors
/// When the record is too large.
pub fn record(id: &DeliveryId, delivery: &DeliveryRecord) -> Result<Record, PortError> {
    let mut record = encode(key(id), delivery)?;
    set_list(&mut record, id, delivery);
    Ok(record)
}

/// Returns the id, the record (revision 1) and the wakeup of a delivery that Sluice creates itself.
/// Writes and sends nothing. The id follows from the connection and `forge_id`; the caller makes
/// sure that none is stored under it. The record is due at `at`: the sweep then sends the wakeup.
///
/// # Errors
/// When the record is too large.
pub fn pending(
    delivery: &DeliveryRecord,
    at: Timestamp,
) -> Result<(DeliveryId, Record, Wakeup), PortError> {
    let id = id(&delivery.connection, &delivery.forge_id);
    let wakeup = Wakeup::Delivery { delivery: id.clone(), project: ordering_project(delivery) };
    let mut record = record(&id, delivery)?;
    record.revision = 1;
    record.due = Some(Due { at, wakeup: wakeup.clone() });
    record.sweep_at = Some(at);
    Ok((id, record, wakeup))
}

/// Lists a delivery in the index `find`, by the time of its receipt: in `deliveries` if it is
/// final, otherwise in `open-deliveries`, which the metric counts. Changes only the record that is
/// passed.
pub fn set_list(record: &mut Record, id: &DeliveryId, delivery: &DeliveryRecord) {
    let list = if delivery.state.is_final() { "deliveries" } else { "open-deliveries" };
    record.find = Some((list.to_owned(), format!("{:015}#{id}", delivery.received_at.0)));
}

/// Returns the project whose events are processed in order with this one; a project named after the
/// connection if the delivery has no event.
pub fn ordering_project(delivery: &DeliveryRecord) -> ProjectName {
    delivery
        .event
        .as_ref()
        .map_or_else(|| ProjectName(delivery.connection.to_string()), |event| event.project.clone())
}
