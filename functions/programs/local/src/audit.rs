//! Reads the outcome from the records with an operator's rights: what was built and merged, and
//! whether every delivery, item, build and request ended.

use crate::{CONNECTION, TENANT};
use sluice_model::ConnectionName;
use sluice_model::name::escape;
use sluice_records::codec::decode;
use sluice_records::delivery::{self, DeliveryRecord};
use sluice_records::open_work;
use sluice_records::report::Buildset;
use sluice_runtime::Ports;

/// The maximum number of buildsets read: more than a demo or a test creates.
const BUILDSETS_MAX: usize = 100;
/// The maximum number of open deliveries read.
const OPEN_MAX: usize = 100;

/// A webhook that the forge sent.
#[derive(Debug, Clone)]
pub struct SentWebhook {
    /// A description of the webhook, for messages.
    pub what: String,
    /// The forge's id of the delivery.
    pub guid: String,
}

/// Returns the finished buildsets of the demo's tenant in every pipeline, newest first, at most
/// 100. The newest may be missing, because an index lists them.
///
/// # Errors
/// When the store does not answer or a record cannot be read.
pub async fn buildsets(ports: &Ports) -> anyhow::Result<Vec<Buildset>> {
    let keys =
        ports.records.find(&format!("buildsets#{}", escape(TENANT)), None, BUILDSETS_MAX).await?;
    let records = ports.records.get(&keys).await?;
    Ok(records.iter().flatten().map(decode).collect::<Result<_, _>>()?)
}

/// Returns the buildsets of the pipeline `gate` with the result SUCCESS, whose changes are merged,
/// in the order in which they ended.
pub fn landed(sets: &[Buildset]) -> Vec<&Buildset> {
    let mut landed: Vec<&Buildset> = sets
        .iter()
        .filter(|set| set.queue.pipeline.as_str() == "gate" && set.result == "SUCCESS")
        .collect();
    landed.sort_by_key(|set| set.ended_at);
    landed
}

/// Returns a line for each webhook in `sent` that is not stored, or whose delivery is not in a
/// final state yet. A delivery that failed or was ignored is final, so it has no line. Deliveries
/// of the local forge only; looks once, without waiting.
///
/// # Errors
/// When the store does not answer or a record cannot be read.
pub async fn unhandled_webhooks(
    ports: &Ports,
    sent: &[SentWebhook],
) -> anyhow::Result<Vec<String>> {
    let mut open = Vec::new();
    for SentWebhook { what, guid } in sent {
        let key = delivery::key(&delivery::id(&ConnectionName::from(CONNECTION), guid));
        let record = ports.records.get(&[key]).await?.into_iter().next().flatten();
        match record.as_ref().map(decode::<DeliveryRecord>).transpose()? {
            Some(stored) if stored.state.is_final() => {}
            Some(stored) => open.push(format!("{what} is {:?}", stored.state)),
            None => open.push(format!("{what} is not stored")),
        }
    }
    Ok(open)
}

/// Returns a line for each delivery from any source that is stored and not in a final state yet,
/// newest first. A failed delivery is final, so it has no line. Only the newest 100 that are listed
/// as open are read. Looks once, without waiting.
///
/// # Errors
/// When the store does not answer or a record cannot be read.
pub async fn open_deliveries(ports: &Ports) -> anyhow::Result<Vec<String>> {
    let keys = ports.records.find("open-deliveries", None, OPEN_MAX).await?;
    let mut open = Vec::new();
    for record in ports.records.get(&keys).await?.iter().flatten() {
        let stored: DeliveryRecord = decode(record)?;
        // The index may lag behind the record.
        if !stored.state.is_final() {
            open.push(format!("{} {} is {:?}", stored.event_name, stored.forge_id, stored.state));
        }
    }
    Ok(open)
}

/// Returns a line for each inbox message, item, build and node request that has started but not
/// ended, with whether it is in progress or unaccounted for. Leaves out deliveries and records that
/// cannot be decoded, and reads at most the newest 500 of each list. Looks once, without waiting.
///
/// # Errors
/// When the store does not answer.
pub async fn still_open(ports: &Ports) -> anyhow::Result<Vec<String>> {
    let now = ports.clock.now();
    // Also what started at this very moment.
    let work = open_work::read(ports, now.plus_millis(1), now).await?;
    let open = work.entries.iter().filter(|open| open.kind != open_work::OpenKind::Delivery);
    Ok(open
        .map(|open| {
            let why = open.unaccounted.as_deref().unwrap_or("in progress");
            format!("{} {}: {why}", open.kind.plural(), open.id)
        })
        .collect())
}
