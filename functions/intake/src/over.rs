//! Changes that are over, or open again: what their events say of it, and those of which nobody
//! said so.
//!
//! A forge lists open changes only. What is known here as open ([`Open`]) and is not listed was
//! closed or merged, or the listing is late, or has no place for it: the change itself says which.
//! Whatever tests or awaits such a change would do so for ever.

use crate::attributes::Asks;
use crate::deliver::Effects;
use crate::sweep::{Gap, first_of};
use crate::told::Told;
use crate::{Intake, again};
use serde::{Deserialize, Serialize};
use sluice_forge::Verdict;
use sluice_model::Timestamp;
use sluice_model::change::{ChangeFacts, ChangeKey, ChangeStatus, OpenChange};
use sluice_model::event::{EventKind, ForgeEvent};
use sluice_records::change;
use sluice_records::codec::decode_foreign;
use sluice_records::open::{self, Open};
use sluice_runtime::batch::LookError;
use sluice_runtime::record::Key;
use std::collections::BTreeSet;

/// Changes that one sweep reads because they are not listed; the next one reads others.
const READS_MAX: usize = 10;

/// The marks of changes that are over.
pub(crate) const ENDS: [&str; 2] = ["merged", "closed"];

/// What an event says of whether a change is open.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Says {
    /// It was closed or merged.
    Over,
    /// It was opened again.
    Reopened,
}

impl Intake {
    /// Makes up for each change that is known to be open, and is over, and of which nobody told
    /// that. `listed` are the open changes of the project, each with what was told of it, and
    /// `known` those that are known to be open.
    pub(crate) async fn find_over(
        &self,
        event: &ForgeEvent,
        listed: &[(OpenChange, Option<(Told, u64)>)],
        (known, asks): (Open, &Asks),
        at: Timestamp,
        effects: &mut Effects,
    ) -> Result<(), LookError> {
        let mut open = known.clone();
        // Those that were told of before this was remembered.
        let told_open = listed
            .iter()
            .filter(|(_, told)| told.as_ref().is_some_and(|(told, _)| !told.is_over()));
        told_open.for_each(|(listed, _)| open.note(&listed.change.key));
        let numbers: BTreeSet<u64> =
            listed.iter().filter_map(|(listed, _)| listed.change.key.number()).collect();
        let mut missing: Vec<u64> =
            known.of(&event.connection).filter(|number| !numbers.contains(number)).collect();
        let first = first_of(missing.len(), at);
        missing.rotate_left(first);
        let mut over = Vec::new();
        for number in missing.into_iter().take(READS_MAX) {
            let key = ChangeKey::change(event.connection.clone(), event.project.clone(), number);
            match self.forge(&event.connection)?.read_change(&key).await {
                Ok(facts) if facts.status == ChangeStatus::Open => {}
                Ok(facts) => over.push(facts),
                // A forge may show for a moment nothing of what is there; others are read in its
                // place the next time.
                Err(error) if error.verdict() == Verdict::Final => {}
                Err(error) => return Err(again(error)),
            }
        }
        let keys: Vec<Key> = over.iter().map(|facts| change::told_key(&facts.change.key)).collect();
        let records =
            if keys.is_empty() { Vec::new() } else { self.ports.records.get(&keys).await? };
        for (facts, record) in over.iter().zip(records) {
            let told: Told = record.as_ref().and_then(decode_foreign).unwrap_or_default();
            if let Some(end) = end_of(facts) {
                let gap = Gap::over(facts, end, asks);
                self.mend(event, &facts.change, gap, told.taken_back(), at, effects).await?;
            }
        }
        if open != known {
            effects.write(open::put(&event.project, &open)?);
        }
        Ok(())
    }
}

/// Returns the mark of how a change ended; `None` for one that is open.
pub(crate) fn end_of(facts: &ChangeFacts) -> Option<&'static str> {
    let [merged, closed] = ENDS;
    match facts.status {
        ChangeStatus::Open => None,
        ChangeStatus::Merged => Some(merged),
        ChangeStatus::Closed => Some(closed),
    }
}

/// Returns what an event says of whether its change is open, if it is about that.
pub(crate) fn says(event: &ForgeEvent) -> Option<Says> {
    let word = match &event.kind {
        EventKind::Change { event, action, .. } if event == "pull_request" => action.as_str(),
        EventKind::Gerrit(event) => event.r#type.as_str(),
        _ => return None,
    };
    match word {
        "closed" | "change-merged" | "change-abandoned" => Some(Says::Over),
        "reopened" | "change-restored" => Some(Says::Reopened),
        _ => None,
    }
}

/// Returns whether an event says of its change what the forge does not show yet, or no more: that
/// it is over, or open again.
pub(crate) fn is_unshown(event: &ForgeEvent, facts: &ChangeFacts) -> bool {
    match says(event) {
        Some(Says::Over) => facts.status == ChangeStatus::Open,
        Some(Says::Reopened) => facts.status == ChangeStatus::Closed,
        None => false,
    }
}
