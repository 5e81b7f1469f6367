//! A landing: ordered by the gate, carried out and ended by the reporter.

use crate::codec::{encode_first, expiry};
use sluice_gate::Landing;
use sluice_model::poke::Poke;
use sluice_model::{ItemId, QueueKey};
use sluice_runtime::PortError;
use sluice_runtime::record::{Due, Expect, Key, Write};

/// Returns the key of an item's landing from one speculative state.
pub fn key(item: &ItemId, generation: u64) -> Key {
    Key::new(format!("landing#{item}"), format!("{generation:08}"))
}

/// Returns the poke that has a landing carried out; its group lets no two land on one branch at once.
pub fn poke(landing: &Landing) -> Poke {
    let group = format!("{}@{}", landing.change.key.project, landing.change.branch);
    Poke::Report {
        queue: landing.queue.clone(),
        report: format!("landing#{}#{}", landing.item, landing.generation),
        group,
    }
}

/// Reads item and generation out of a poke's report key.
pub fn parse(report: &str) -> Option<(ItemId, u64)> {
    let (item, generation) = report.strip_prefix("landing#")?.split_once('#')?;
    Some((ItemId::from(item), generation.parse().ok()?))
}

/// Returns the write of a landing that is wanted.
///
/// # Errors
/// When it is too large.
pub fn put(landing: &Landing) -> Result<Write, PortError> {
    let mut record = encode_first(key(&landing.item, landing.generation), landing)?;
    let at = landing.wanted_at.plus_seconds(60);
    record.due = Some(Due { at, poke: poke(landing) });
    record.look_at = Some(at);
    record.expires_at = Some(expiry(landing.wanted_at));
    Ok(Write::Put { record, expect: Expect::Absent })
}

/// Returns the poke that tells the queue.
pub fn tell(queue: &QueueKey) -> Poke {
    Poke::Answer { queue: queue.clone() }
}
