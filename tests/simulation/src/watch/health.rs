//! Consecutive failures of a pipeline that is disabled after too many: the count matches the
//! results, and reports of a disabled pipeline go to the operators.

use super::mails::mail_of;
use super::{Kind, Watch, both, key_of, kind, read};
use crate::oracle::departures::names_outside;
use crate::scenarios::disabled_pipelines::{FAILURES, OPERATORS, SHAKY};
use sluice_gate::{Health, Report};
use sluice_memory::RecordChange;
use sluice_records::report::Buildset;

impl Watch {
    /// Checks the failure count against the one before and the results in the transaction. A new
    /// layout resets it.
    pub(super) fn check_failure_record(
        &self,
        write: &RecordChange,
        transaction: &[RecordChange],
    ) -> Result<(), String> {
        let (before, after) = both::<Health>(write.before.as_ref(), write.after.as_ref())?;
        let Some(after) = after else { return Ok(()) };
        let known = before.filter(|before| before.layout >= after.layout);
        let (failures, disabled) =
            known.map_or((0, false), |known| (known.failures, known.disabled));
        let sets = countable_results(transaction)?;
        let failed = sets.iter().filter(|set| set.result == "FAILURE").count();
        let due = match (sets.len() - failed, u32::try_from(failed).unwrap_or(u32::MAX)) {
            (_, 0) => (0, disabled),
            (0, failed) => (failures + failed, disabled || failures + failed >= FAILURES),
            // The order of the results is unknown.
            _ => return Ok(()),
        };
        let has = (after.failures, after.disabled);
        if sets.is_empty() || has != due {
            let count = sets.len();
            return Err(format!(
                "{count} left, and its consecutive failures are {has:?} after {failures} instead of {due:?}"
            ));
        }
        match sets.as_slice() {
            // The failure that disables the pipeline is still reported as usual.
            [set] if set.item.candidate.bundle.is_empty() => {
                check_mail_recipient(set, disabled, transaction)
            }
            _ => Ok(()),
        }
    }

    /// Checks that a failure is counted.
    pub(super) fn check_failure_count(
        &self,
        set: &Buildset,
        transaction: &[RecordChange],
    ) -> Result<(), String> {
        let mut others = transaction.iter().filter_map(key_of);
        if set.queue.pipeline.as_str() != SHAKY
            || set.result != "FAILURE"
            || names_outside(set)
            || failed_as_one(set)
            || others.any(|key| kind(key) == Kind::Health)
        {
            return Ok(());
        }
        Err(format!("{} failed without being counted", set.item.candidate.change))
    }
}

/// Returns the results in a transaction that count for the pipeline.
fn countable_results(transaction: &[RecordChange]) -> Result<Vec<Buildset>, String> {
    let mut sets = Vec::new();
    for write in transaction.iter().filter(|write| write.before.is_none()) {
        if key_of(write).is_some_and(|key| kind(key) == Kind::Buildset) {
            sets.extend(read::<Buildset>(write.after.as_ref())?);
        }
    }
    // Without a failed job, a failure does not count.
    sets.retain(|set| set.queue.pipeline.as_str() == SHAKY && !names_outside(set));
    let of_others = |set: &Buildset| {
        sets.iter().any(|other| is_member(set, other) && other.result != "FAILURE")
    };
    let is_first =
        |set: &Buildset| set.item.candidate.bundle.first() == Some(&set.item.candidate.change.key);
    let counts = |set: &&Buildset| {
        ["SUCCESS", "FAILURE"].contains(&set.result.as_str())
            && (!failed_as_one(set) || (is_first(set) && !of_others(set)))
    };
    Ok(sets.iter().filter(counts).cloned().collect())
}

fn is_member(set: &Buildset, other: &Buildset) -> bool {
    !set.item.candidate.bundle.is_empty()
        && set.item.candidate.bundle == other.item.candidate.bundle
}

/// Returns whether a bundle member failed. The members count once, and not at all if one of them
/// has a conflict or invalid configuration.
fn failed_as_one(set: &Buildset) -> bool {
    set.result == "FAILURE" && !set.item.candidate.bundle.is_empty()
}

/// Checks the recipient of an item's report: the operators if the pipeline was disabled before,
/// otherwise the usual one.
fn check_mail_recipient(
    set: &Buildset,
    is_disabled: bool,
    transaction: &[RecordChange],
) -> Result<(), String> {
    let change = &set.item.candidate.change;
    for write in transaction
        .iter()
        .filter(|write| key_of(write).is_some_and(|key| kind(key) == Kind::Report))
    {
        let report: Option<Report> = read(write.after.as_ref())?;
        let Some(report) = report.filter(|report| report.item == set.id) else { continue };
        let Some(mail) = report.actions.iter().find_map(mail_of) else { continue };
        if (mail.to.as_deref() == Some(OPERATORS)) == is_disabled {
            return Ok(());
        }
        return Err(format!(
            "{:?} got the report of {change}, but the pipeline was disabled: {is_disabled}",
            mail.to
        ));
    }
    Err(format!("no report was sent for {change}, which left as {}", set.result))
}
