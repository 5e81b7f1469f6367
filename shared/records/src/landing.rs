//! A landing: the gate orders it, and the reporter carries it out and ends it.

use crate::codec::{encode_first, expiry, with_body};
use serde::{Deserialize, Serialize};
use sluice_gate::Landing;
use sluice_model::git::{BranchKey, Commit, Oid};
use sluice_model::name::escape;
use sluice_model::wakeup::Wakeup;
use sluice_model::{ItemId, QueueKey, TenantName, Timestamp};
use sluice_runtime::PortError;
use sluice_runtime::record::{Due, Expect, Key, Record, Write};

/// Returns the key of the landing of an item from one speculative state, which `generation`
/// numbers.
pub fn key(item: &ItemId, generation: u64) -> Key {
    Key::new(format!("landing#{item}"), format!("{generation:08}"))
}

/// Returns the wakeup that has a landing carried out. Its message group is the branch, so that only
/// one landing per branch is processed at a time.
pub fn wakeup(landing: &Landing) -> Wakeup {
    let group = format!("{}@{}", landing.change.key.project, landing.change.branch);
    Wakeup::Report {
        queue: landing.queue.clone(),
        report: format!("landing#{}#{}", landing.item, landing.generation),
        group,
    }
}

/// Parses the report key of a wakeup, `landing#<item>#<generation>`, into the item and generation
/// of a landing; `None` for any other key, such as that of a report.
pub fn parse(report: &str) -> Option<(ItemId, u64)> {
    let (item, generation) = report.strip_prefix("landing#")?.split_once('#')?;
    Some((ItemId::from(item), generation.parse().ok()?))
}

/// Returns the write of a newly ordered landing. It fails when the landing was ordered before. The
/// sweep sends the landing's wakeup a minute after the order, unless the landing has ended by then.
/// The record expires some weeks later.
///
/// # Errors
/// When the record is too large.
pub fn put(landing: &Landing) -> Result<Write, PortError> {
    let mut record = encode_first(key(&landing.item, landing.generation), landing)?;
    let at = landing.ordered_at.plus_seconds(60);
    record.due = Some(Due { at, wakeup: wakeup(landing) });
    record.sweep_at = Some(at);
    record.expires_at = Some(expiry(landing.ordered_at));
    Ok(Write::Put { record, expect: Expect::Absent })
}

/// Returns the write of a landing that its queue ends before it started; `landing` is its final
/// state. The record is no longer due, and its outbox is dropped. The write is conditional on the
/// revision of `seen`; a reporter that is about to start fails on the same condition.
///
/// # Errors
/// When the record is too large.
pub fn put_ended(seen: &Record, landing: &Landing) -> Result<Write, PortError> {
    let record = with_body(seen.clone(), landing)?;
    let record = Record {
        revision: seen.revision + 1,
        outbox: Vec::new(),
        due: None,
        sweep_at: None,
        ..record
    };
    Ok(Write::Put { record, expect: Expect::Revision(seen.revision) })
}

/// The expected result of a landing that does not change the tenant's configuration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NonConfigMerge {
    /// The tenant that tested it. Another tenant may read other configuration files.
    pub tenant: TenantName,
    /// The tree that the branch will have.
    pub tree: Oid,
}

/// Returns the key of the expected result of a landing on a branch; `from` is the commit of the
/// branch before the landing.
pub fn non_config_merge_key(branch: &BranchKey, from: &Oid) -> Key {
    let at = format!("{}@{}", escape(branch.project.as_str()), escape(branch.branch.as_str()));
    Key::new(format!("non-config-merge#{at}"), from.as_str())
}

/// Returns the unconditional write of the expected result of a landing: when the branch moves from
/// `tip`, its commit before the landing, to a commit with the tested tree, the tenant of the
/// landing need not read its configuration again. If one push merges several landings, `landing` is
/// the last of them and `tip` the commit before the first. `None` when the landing changes
/// configuration. It belongs in the commit that records the landing's intent, and expires some
/// weeks after `now`.
///
/// # Errors
/// When the record is too large.
pub fn put_non_config_merge(
    landing: &Landing,
    tip: &Commit,
    now: Timestamp,
) -> Result<Option<Write>, PortError> {
    if landing.changes_configuration {
        return Ok(None);
    }
    let branch = BranchKey {
        project: landing.change.key.project.clone(),
        branch: landing.change.branch.clone(),
    };
    let expected =
        NonConfigMerge { tenant: landing.queue.tenant.clone(), tree: landing.tested.tree.clone() };
    let mut record = encode_first(non_config_merge_key(&branch, &tip.id), &expected)?;
    record.expires_at = Some(expiry(now));
    Ok(Some(Write::Put { record, expect: Expect::Anything }))
}

/// Returns the wakeup for the queue that ordered a landing, after the landing ended.
pub fn answer_wakeup(queue: &QueueKey) -> Wakeup {
    Wakeup::Answer { queue: queue.clone() }
}
