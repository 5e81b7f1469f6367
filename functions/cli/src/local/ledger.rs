//! What came of it, read anew from the records with an operator's rights: what was built and
//! landed, and whether every delivery, item, build and request ended.

use super::{CONNECTION, TENANT};
use sluice_model::ConnectionName;
use sluice_model::name::escape;
use sluice_records::codec::decode;
use sluice_records::delivery::{self, Delivery};
use sluice_records::ledger;
use sluice_records::report::Buildset;
use sluice_runtime::Ports;

/// Buildsets that are read at most: more than a demo or a test makes.
const BUILDSETS_MAX: usize = 100;
/// Open deliveries that are read at most.
const OPEN_MAX: usize = 100;

/// A webhook that the forge sent.
#[derive(Debug, Clone)]
pub struct Sent {
    /// What it was about, for people.
    pub what: String,
    /// The forge's id of it.
    pub guid: String,
}

/// Returns what was decided for good, of every pipeline.
///
/// # Errors
/// When the store does not answer or a record cannot be read.
pub async fn buildsets(ports: &Ports) -> anyhow::Result<Vec<Buildset>> {
    let keys =
        ports.records.find(&format!("buildsets#{}", escape(TENANT)), None, BUILDSETS_MAX).await?;
    let records = ports.records.get(&keys).await?;
    Ok(records.iter().flatten().map(decode).collect::<Result<_, _>>()?)
}

/// Returns what the gate landed, in that order.
pub fn landed(sets: &[Buildset]) -> Vec<&Buildset> {
    let mut landed: Vec<&Buildset> = sets
        .iter()
        .filter(|set| set.queue.pipeline.as_str() == "gate" && set.result == "SUCCESS")
        .collect();
    landed.sort_by_key(|set| set.ended_at);
    landed
}

/// Returns which of these webhooks have no end here, a line each: not stored, or not final.
///
/// # Errors
/// When the store does not answer or a record cannot be read.
pub async fn unaccounted(ports: &Ports, sent: &[Sent]) -> anyhow::Result<Vec<String>> {
    let mut open = Vec::new();
    for Sent { what, guid } in sent {
        let key = delivery::key(&delivery::id(&ConnectionName::from(CONNECTION), guid));
        let record = ports.records.get(&[key]).await?.into_iter().next().flatten();
        match record.as_ref().map(decode::<Delivery>).transpose()? {
            Some(stored) if stored.state.is_final() => {}
            Some(stored) => open.push(format!("{what} is {:?}", stored.state)),
            None => open.push(format!("{what} is not stored")),
        }
    }
    Ok(open)
}

/// Returns the deliveries that have not ended, a line each, wherever they came from.
///
/// # Errors
/// When the store does not answer or a record cannot be read.
pub async fn open_deliveries(ports: &Ports) -> anyhow::Result<Vec<String>> {
    let keys = ports.records.find("open-deliveries", None, OPEN_MAX).await?;
    let mut open = Vec::new();
    for record in ports.records.get(&keys).await?.iter().flatten() {
        let stored: Delivery = decode(record)?;
        // The index only finds; it may lag behind the record.
        if !stored.state.is_final() {
            open.push(format!("{} {} is {:?}", stored.event_name, stored.forge_id, stored.state));
        }
    }
    Ok(open)
}

/// Returns what has begun and not ended, a line each: arrivals, items, builds and requests for
/// nodes.
///
/// # Errors
/// When the store does not answer.
pub async fn still_open(ports: &Ports) -> anyhow::Result<Vec<String>> {
    let now = ports.clock.now();
    // What began at this very moment too.
    let ledger = ledger::read(ports, now.plus_millis(1), now).await?;
    let open = ledger.open.iter().filter(|open| open.kind != ledger::Kind::Delivery);
    Ok(open
        .map(|open| {
            let why = open.unaccounted.as_deref().unwrap_or("it is seen to");
            format!("{} {}: {why}", open.kind.plural(), open.id)
        })
        .collect())
}
