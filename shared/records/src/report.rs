//! Reports and buildsets: what is to be told, and what is kept of an item that left.

use crate::codec::{encode_first, expiry};
use serde::{Deserialize, Serialize};
use sluice_gate::{Action, Item, Report};
use sluice_model::name::escape;
use sluice_model::poke::Poke;
use sluice_model::{ItemId, QueueKey, Timestamp};
use sluice_runtime::PortError;
use sluice_runtime::record::{Due, Expect, Key, Write};

/// Returns the key of a report.
pub fn key(id: &str) -> Key {
    Key::new(format!("report#{id}"), "head")
}

/// Returns the poke that has a report made. What a forge is told of one change is told in order;
/// mail and MQTT keep nobody waiting.
///
/// One that tells that an item begins names the item, so that what ends it is read with the same
/// call ([`parse`]).
pub fn poke(report: &Report) -> Poke {
    let group = match report.actions.iter().all(Action::is_message) {
        true => format!("message#{}", report.id),
        false => format!("{}#{}", report.change.key.project, report.change.key.local()),
    };
    let name = match (report.is_start(), report.is_enqueue()) {
        (true, _) => format!("{START}{}", report.item),
        (_, true) => format!("{ENQUEUE}{}", report.item),
        _ => report.id.clone(),
    };
    Poke::Report { queue: report.queue.clone(), report: name, group }
}

/// What a poke calls a report that tells that an item begins, before the item's id.
const START: &str = "start#";

/// The same of a report that tells that an item entered.
const ENQUEUE: &str = "enqueue#";

/// Reads out of a poke's report key which report is meant, and the item whose end makes it untrue.
pub fn parse(report: &str) -> (String, Option<ItemId>) {
    let item = |prefix| report.strip_prefix(prefix).map(ItemId::from);
    match (item(START), item(ENQUEUE)) {
        (Some(item), _) => (Report::start_id(&item), Some(item)),
        (_, Some(item)) => (Report::enqueue_id(&item), Some(item)),
        _ => (report.to_owned(), None),
    }
}

/// Returns the write of a report that is wanted.
///
/// # Errors
/// When it is too large.
pub fn put(report: &Report) -> Result<Write, PortError> {
    let mut record = encode_first(key(&report.id), report)?;
    let at = report.wanted_at.plus_seconds(60);
    record.due = Some(Due { at, poke: poke(report) });
    record.look_at = Some(at);
    record.expires_at = Some(expiry(report.wanted_at));
    Ok(Write::Put { record, expect: Expect::Anything })
}

/// What is kept of an item that left its queue.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Buildset {
    /// The item, which is the buildset's id.
    pub id: ItemId,
    /// Its queue.
    pub queue: QueueKey,
    /// The item as it was at the end.
    pub item: Item,
    /// How it ended, in Zuul's words.
    pub result: String,
    /// Why, for people.
    pub why: String,
    /// When it left.
    pub ended_at: Timestamp,
}

impl Buildset {
    /// Returns whether jobs of the item are still to run that come after its reports: the item
    /// stands in its queue until they are over, when this is written once more.
    pub fn is_open(&self) -> bool {
        self.item.has_reporters_left()
    }
}

/// Returns the key of a buildset.
pub fn buildset_key(id: &ItemId) -> Key {
    Key::new(format!("buildset#{id}"), "head")
}

/// Returns the write of a buildset; it is listed among its tenant's.
///
/// # Errors
/// When it is too large.
pub fn put_buildset(buildset: &Buildset) -> Result<Write, PortError> {
    let mut record = encode_first(buildset_key(&buildset.id), buildset)?;
    let listed = format!("{:015}#{}", buildset.ended_at.0, buildset.id);
    record.find = Some((format!("buildsets#{}", escape(buildset.queue.tenant.as_str())), listed));
    record.expires_at = Some(expiry(buildset.ended_at));
    Ok(Write::Put { record, expect: Expect::Anything })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_is_found_by_what_its_poke_calls_it() {
        let item = ItemId::from("item");
        assert_eq!(parse("start#item"), (Report::start_id(&item), Some(item.clone())));
        assert_eq!(parse("enqueue#item"), (Report::enqueue_id(&item), Some(item)));
        assert_eq!(parse("0123"), ("0123".to_owned(), None));
    }
}
