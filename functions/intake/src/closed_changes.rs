//! Changes that ended or were reopened: recognises the events of that, and finds ends that no
//! webhook reported.
//!
//! A forge lists open changes only. A change that is stored as open ([`OpenChanges`]) and is not
//! listed was closed or merged, or the listing is stale or too short: only the change itself says
//! which. Without this check, a queue would test or wait for such a change forever.

use crate::attributes::SweepScope;
use crate::process_delivery::Effects;
use crate::seen_events::SeenEvents;
use crate::sweep::{MissedEvent, first_of};
use crate::{Intake, retry_error};
use serde::{Deserialize, Serialize};
use sluice_forge::ErrorClass;
use sluice_model::Timestamp;
use sluice_model::change::{ChangeFacts, ChangeKey, ChangeStatus, OpenChange};
use sluice_model::event::{EventKind, ForgeEvent};
use sluice_records::change;
use sluice_records::codec::decode_or_log;
use sluice_records::open_changes::{self, OpenChanges};
use sluice_runtime::batch::ReconcileError;
use sluice_runtime::record::Key;
use std::collections::BTreeSet;

/// The most unlisted changes that one sweep reads; the next one reads others.
const READS_MAX: usize = 10;

/// The marks of changes that ended.
pub(crate) const ENDS: [&str; 2] = ["merged", "closed"];

/// What an event says about whether a change is open.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum LifecycleEvent {
    /// It was closed or merged.
    Ended,
    /// It was reopened.
    Reopened,
}

impl Intake {
    /// Adds to `effects` a synthesized event for each change that `stored` has as open by the
    /// connection of the sweep's `event`, `listed` lacks, and the forge shows as ended. `listed`
    /// are all open changes of the project with their seen events and the revision of that record.
    /// At most [`READS_MAX`] unlisted changes are read, others at each time `at`; one that the
    /// forge does not show is skipped. Listed changes that were seen and did not end are stored as
    /// open too. An ended change stays stored as open until its event is processed.
    pub(crate) async fn find_closed_changes(
        &self,
        event: &ForgeEvent,
        listed: &[(OpenChange, Option<(SeenEvents, u64)>)],
        stored: OpenChanges,
        scope: &SweepScope,
        at: Timestamp,
        effects: &mut Effects,
    ) -> Result<(), ReconcileError> {
        let mut open = stored.clone();
        let seen_open = listed
            .iter()
            .filter(|(_, seen)| seen.as_ref().is_some_and(|(seen, _)| !seen.is_ended()));
        seen_open.for_each(|(listed, _)| open.add(&listed.change.key));
        let numbers: BTreeSet<u64> =
            listed.iter().filter_map(|(listed, _)| listed.change.key.number()).collect();
        let mut missing: Vec<u64> = stored
            .numbers_of(&event.connection)
            .filter(|number| !numbers.contains(number))
            .collect();
        let first = first_of(missing.len(), at);
        missing.rotate_left(first);
        let mut ended = Vec::new();
        for number in missing.into_iter().take(READS_MAX) {
            let key = ChangeKey::change(event.connection.clone(), event.project.clone(), number);
            match self.forge(&event.connection)?.read_change(&key).await {
                Ok(facts) if facts.status == ChangeStatus::Open => {}
                Ok(facts) => ended.push(facts),
                // A forge may fail to show an existing change for a moment; the next sweep reads
                // others first.
                Err(error) if error.class() == ErrorClass::Final => {}
                Err(error) => return Err(retry_error(error)),
            }
        }
        let keys: Vec<Key> =
            ended.iter().map(|facts| change::seen_events_key(&facts.change.key)).collect();
        let records =
            if keys.is_empty() { Vec::new() } else { self.ports.records.get(&keys).await? };
        for (facts, record) in ended.iter().zip(records) {
            let seen: SeenEvents = record.as_ref().and_then(decode_or_log).unwrap_or_default();
            if let Some(end) = end_mark(facts) {
                let missed = MissedEvent::ended(facts, end, scope);
                self.synthesize(event, &facts.change, missed, seen.retractions(), at, effects)
                    .await?;
            }
        }
        if open != stored {
            effects.write(open_changes::put(&event.project, &open)?);
        }
        Ok(())
    }
}

/// Returns the mark for the end of a change, closed or merged; `None` for an open change.
pub(crate) fn end_mark(facts: &ChangeFacts) -> Option<&'static str> {
    let [merged, closed] = ENDS;
    match facts.status {
        ChangeStatus::Open => None,
        ChangeStatus::Merged => Some(merged),
        ChangeStatus::Closed => Some(closed),
    }
}

/// Returns whether an event ended or reopened a change; `None` for any other event.
pub(crate) fn lifecycle_event(event: &ForgeEvent) -> Option<LifecycleEvent> {
    let action = match &event.kind {
        EventKind::Change { event, action, .. } if event == "pull_request" => action.as_str(),
        EventKind::Gerrit(event) => event.r#type.as_str(),
        _ => return None,
    };
    match action {
        "closed" | "change-merged" | "change-abandoned" => Some(LifecycleEvent::Ended),
        "reopened" | "change-restored" => Some(LifecycleEvent::Reopened),
        _ => None,
    }
}

/// Returns whether the forge's answer contradicts a lifecycle event: an ended change is open, or a
/// reopened one is closed. False for any other event.
pub(crate) fn is_not_shown_yet(event: &ForgeEvent, facts: &ChangeFacts) -> bool {
    match lifecycle_event(event) {
        Some(LifecycleEvent::Ended) => facts.status == ChangeStatus::Open,
        Some(LifecycleEvent::Reopened) => facts.status == ChangeStatus::Closed,
        None => false,
    }
}
