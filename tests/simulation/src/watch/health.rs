//! How many changes failed one after the other in a pipeline that is disabled after too many: as
//! many as left it so, and whoever is to be told from then on is.

use super::mails::mail_of;
use super::{Kind, Watch, both, key_of, kind, read};
use crate::plays::disabling::{FAILURES, OPERATORS, SHAKY};
use sluice_gate::{Health, Report};
use sluice_memory::Written;
use sluice_records::report::Buildset;

impl Watch {
    /// Judges the count of a pipeline's failures against the one before and what left in the same
    /// transaction. A new layout begins anew.
    pub(super) fn failures(&self, write: &Written, transaction: &[Written]) -> Result<(), String> {
        let (before, after) = both::<Health>(write.before.as_ref(), write.after.as_ref())?;
        let Some(after) = after else { return Ok(()) };
        let known = before.filter(|before| before.layout >= after.layout);
        let (failures, disabled) =
            known.map_or((0, false), |known| (known.failures, known.disabled));
        let sets = of_shaky(transaction)?;
        let failed = sets.iter().filter(|set| set.result == "FAILURE").count();
        let due = match (sets.len() - failed, u32::try_from(failed).unwrap_or(u32::MAX)) {
            (_, 0) => (0, disabled),
            (0, failed) => (failures + failed, disabled || failures + failed >= FAILURES),
            // Which of them left first does not show.
            _ => return Ok(()),
        };
        let has = (after.failures, after.disabled);
        if sets.is_empty() || has != due {
            let count = sets.len();
            return Err(format!(
                "{count} left, and its failures in a row are {has:?} after {failures}, and are to be {due:?}"
            ));
        }
        match sets.as_slice() {
            // The one that was one too many is told as ever.
            [set] if set.item.candidate.cycle.is_empty() => told_as(set, disabled, transaction),
            _ => Ok(()),
        }
    }

    /// Judges that a failure was counted.
    pub(super) fn is_counted_as_failure(
        &self,
        set: &Buildset,
        transaction: &[Written],
    ) -> Result<(), String> {
        let mut others = transaction.iter().filter_map(key_of);
        if set.queue.pipeline.as_str() != SHAKY
            || set.result != "FAILURE"
            || failed_as_one(set)
            || others.any(|key| kind(key) == Kind::Health)
        {
            return Ok(());
        }
        Err(format!("{} failed, and nobody counts it", set.item.candidate.change))
    }
}

/// Returns what left the pipeline in a transaction by its jobs.
fn of_shaky(transaction: &[Written]) -> Result<Vec<Buildset>, String> {
    let mut sets = Vec::new();
    for write in transaction.iter().filter(|write| write.before.is_none()) {
        if key_of(write).is_some_and(|key| kind(key) == Kind::Buildset) {
            sets.extend(read::<Buildset>(write.after.as_ref())?);
        }
    }
    sets.retain(|set| set.queue.pipeline.as_str() == SHAKY);
    let of_others =
        |set: &Buildset| sets.iter().any(|other| is_mate(set, other) && other.result != "FAILURE");
    let is_first =
        |set: &Buildset| set.item.candidate.cycle.first() == Some(&set.item.candidate.change.key);
    let counts = |set: &&Buildset| {
        ["SUCCESS", "FAILURE"].contains(&set.result.as_str())
            && (!failed_as_one(set) || (is_first(set) && !of_others(set)))
    };
    Ok(sets.iter().filter(counts).cloned().collect())
}

fn is_mate(set: &Buildset, other: &Buildset) -> bool {
    !set.item.candidate.cycle.is_empty() && set.item.candidate.cycle == other.item.candidate.cycle
}

/// Returns whether a change left as one of those that need each other and failed: they count as
/// one, and not at all where one of them conflicts or is configured wrongly.
fn failed_as_one(set: &Buildset) -> bool {
    set.result == "FAILURE" && !set.item.candidate.cycle.is_empty()
}

/// Judges who is told of an item that left: operators where the pipeline was disabled before, and
/// otherwise those who are told as ever.
fn told_as(set: &Buildset, is_disabled: bool, transaction: &[Written]) -> Result<(), String> {
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
            "{:?} is told of {change}, and the pipeline was disabled: {is_disabled}",
            mail.to
        ));
    }
    Err(format!("nobody is told of {change}, which left as {}", set.result))
}
