//! A landing: ordered by the gate, carried out and ended by the reporter.

use crate::codec::{encode_first, expiry, with_body};
use serde::{Deserialize, Serialize};
use sluice_gate::Landing;
use sluice_model::git::{BranchKey, Commit, Oid};
use sluice_model::name::escape;
use sluice_model::poke::Poke;
use sluice_model::{ItemId, QueueKey, TenantName, Timestamp};
use sluice_runtime::PortError;
use sluice_runtime::record::{Due, Expect, Key, Record, Write};

/// Returns the key of an item's landing from one speculative state.
pub fn key(item: &ItemId, generation: u64) -> Key {
    Key::new(format!("landing#{item}"), format!("{generation:08}"))
}

/// Returns the poke that has a landing carried out; its group lets no two land on one branch at
/// once.
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

/// Returns the write of a landing that its queue ends, on condition that it is as it was read:
/// nobody has begun it, and whoever is about to begin it finds at its intent that it is over.
///
/// # Errors
/// When it is too large.
pub fn put_ended(seen: &Record, landing: &Landing) -> Result<Write, PortError> {
    let record = with_body(seen.clone(), landing)?;
    let record = Record {
        revision: seen.revision + 1,
        outbox: Vec::new(),
        due: None,
        look_at: None,
        ..record
    };
    Ok(Write::Put { record, expect: Expect::Revision(seen.revision) })
}

/// What a landing is about to make of a branch, where that changes nothing that its tenant reads as
/// configuration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Harmless {
    /// The tenant that tested it; another one may read other files.
    pub tenant: TenantName,
    /// The tree that the branch will have.
    pub tree: Oid,
}

/// Returns the key of what a landing makes of a branch, from the commit where the branch was.
pub fn harmless_key(branch: &BranchKey, from: &Oid) -> Key {
    let at = format!("{}@{}", escape(branch.project.as_str()), escape(branch.branch.as_str()));
    Key::new(format!("landing-of#{at}"), from.as_str())
}

/// Returns the write that goes with the intent of a landing from `tip`; `None` when it touches
/// configuration.
///
/// Whoever sees the branch go from this commit to a commit with this tree need not read its
/// configuration again.
///
/// # Errors
/// When it is too large.
pub fn put_harmless(
    landing: &Landing,
    tip: &Commit,
    now: Timestamp,
) -> Result<Option<Write>, PortError> {
    if landing.configures {
        return Ok(None);
    }
    let branch = BranchKey {
        project: landing.change.key.project.clone(),
        branch: landing.change.branch.clone(),
    };
    let harmless =
        Harmless { tenant: landing.queue.tenant.clone(), tree: landing.tested.tree.clone() };
    let mut record = encode_first(harmless_key(&branch, &tip.id), &harmless)?;
    record.expires_at = Some(expiry(now));
    Ok(Some(Write::Put { record, expect: Expect::Anything }))
}

/// Returns the poke that tells the queue.
pub fn tell(queue: &QueueKey) -> Poke {
    Poke::Answer { queue: queue.clone() }
}
