//! Reports and buildsets: what the reporter sends, and what remains of an item that left its queue.

use crate::codec::{encode_first, expiry};
use serde::{Deserialize, Serialize};
use sluice_gate::{Item, Report, ReportAction};
use sluice_model::name::escape;
use sluice_model::wakeup::Wakeup;
use sluice_model::{ItemId, QueueKey, Timestamp};
use sluice_runtime::PortError;
use sluice_runtime::record::{Due, Expect, Key, Write};

/// Returns the key of a report.
pub fn key(id: &str) -> Key {
    Key::new(format!("report#{id}"), "head")
}

/// Returns the wakeup that has a report sent. Reports to a forge about one change share a message
/// group and stay in order; reports only by mail or MQTT are independent. The wakeup names a start
/// or enqueue report by its item, so that the end of the item is read with the same call
/// ([`parse`]), and any other report by its own id.
pub fn wakeup(report: &Report) -> Wakeup {
    let group = match report.actions.iter().all(ReportAction::is_message) {
        true => format!("message#{}", report.id),
        false => format!("{}#{}", report.change.key.project, report.change.key.local_id()),
    };
    let name = match (report.is_start(), report.is_enqueue()) {
        (true, _) => format!("{START}{}", report.item),
        (_, true) => format!("{ENQUEUE}{}", report.item),
        _ => report.id.clone(),
    };
    Wakeup::Report { queue: report.queue.clone(), report: name, group }
}

/// The prefix of the report key of a start report, before the item's id.
const START: &str = "start#";

/// The prefix of the report key of an enqueue report, before the item's id.
const ENQUEUE: &str = "enqueue#";

/// Parses the report key of a wakeup into the report's id, and the item whose end makes the report
/// obsolete: that of a start or enqueue report, `None` for all other reports. Any text is accepted.
pub fn parse(report: &str) -> (String, Option<ItemId>) {
    let item = |prefix| report.strip_prefix(prefix).map(ItemId::from);
    match (item(START), item(ENQUEUE)) {
        (Some(item), _) => (Report::start_id(&item), Some(item)),
        (_, Some(item)) => (Report::enqueue_id(&item), Some(item)),
        _ => (report.to_owned(), None),
    }
}

/// Returns the unconditional write of a new report. The sweep sends its wakeup a minute after the
/// request, unless the report has ended. It expires some weeks later.
///
/// # Errors
/// When the record is too large.
pub fn put(report: &Report) -> Result<Write, PortError> {
    let mut record = encode_first(key(&report.id), report)?;
    let at = report.requested_at.plus_seconds(60);
    record.due = Some(Due { at, wakeup: wakeup(report) });
    record.sweep_at = Some(at);
    record.expires_at = Some(expiry(report.requested_at));
    Ok(Write::Put { record, expect: Expect::Anything })
}

/// What remains of an item that left its queue.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Buildset {
    /// The item's id, which is also the buildset's id.
    pub id: ItemId,
    /// The item's queue.
    pub queue: QueueKey,
    /// The item's last state.
    pub item: Item,
    /// The result, as in Zuul.
    pub result: String,
    /// Why it left, for people.
    pub why: String,
    /// When it left.
    pub ended_at: Timestamp,
}

impl Buildset {
    /// Returns whether jobs that run after the item's reports are unfinished. The item stays in its
    /// queue until then, and the buildset is written again at the end.
    pub fn is_open(&self) -> bool {
        self.item.has_reporters_left()
    }
}

/// Returns the key of a buildset.
pub fn buildset_key(id: &ItemId) -> Key {
    Key::new(format!("buildset#{id}"), "head")
}

/// Returns the unconditional write of a buildset, which replaces an earlier one of the same item.
/// The index `find` lists it among the buildsets of its tenant, by the time it ended. It expires
/// some weeks later.
///
/// # Errors
/// When the record is too large.
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
    fn a_report_key_names_the_report_and_its_item() {
        let item = ItemId::from("item");
        assert_eq!(parse("start#item"), (Report::start_id(&item), Some(item.clone())));
        assert_eq!(parse("enqueue#item"), (Report::enqueue_id(&item), Some(item)));
        assert_eq!(parse("0123"), ("0123".to_owned(), None));
    }
}
