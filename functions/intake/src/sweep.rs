//! The sweep: compares open changes with what is stored, and synthesizes an event for whatever no
//! webhook reported, or reported too early. [`crate::missed_events`] compares branches and
//! webhooks, [`crate::closed_changes`] the changes that are not listed any more.

use crate::attributes::{MissedUpdate, SweepScope};
use crate::change_context::{ConcernedTenant, EventOrder, ProjectTenants};
use crate::commit_statuses::{is_triggered_by_self, uses_status};
use crate::process_delivery::Effects;
use crate::seen_events::{self, SeenEvents};
use crate::{Intake, retry_error};
use sluice_config::connection::Driver;
use sluice_forge::ErrorClass;
use sluice_gate::filter;
use sluice_model::Timestamp;
use sluice_model::change::{
    ChangeFacts, ChangeRef, ChangeReview, ChangeStatus, OpenChange, ReviewState,
};
use sluice_model::event::{EventKind, ForgeEvent};
use sluice_model::gerrit::GerritEvent;
use sluice_model::id::digest;
use sluice_records::change;
use sluice_records::codec::{decode_or_log, get};
use sluice_records::delivery::{self, DeliveryRecord, DeliveryState};
use sluice_records::open_changes;
use sluice_runtime::batch::ReconcileError;
use sluice_runtime::record::Key;

/// The event name of synthesized deliveries.
pub(crate) const SYNTHESIZED: &str = "sweep";

/// The most changes that one sweep reads from the forge; the next one reads others, because those
/// are complete by then.
const READS_MAX: usize = 20;

/// The most unchanged changes that one sweep reads for their statuses, which do not update a
/// change; the next one reads others.
const STATUS_READS_MAX: usize = 10;

/// The most events that one sweep synthesizes; the next one continues.
const SYNTHESIZED_MAX: usize = 40;

/// How often one event is synthesized that stays missing, because the forge does not show it when
/// the event is processed.
const ATTEMPTS_MAX: usize = 8;

impl Intake {
    /// Compares a project's branches and open changes with what is stored, adds the missed events
    /// to `effects` as synthesized deliveries, and has the forge redeliver failed webhooks at once.
    /// At most [`SYNTHESIZED_MAX`] events of open changes are synthesized; the next sweep
    /// continues. Only logs if no tenant may have the project by the event's connection. The inner
    /// error is a final error of the forge when it lists the open changes.
    pub(crate) async fn sweep_project(
        &self,
        event: &ForgeEvent,
        at: Timestamp,
        effects: &mut Effects,
    ) -> Result<Result<(), String>, ReconcileError> {
        let open_key = open_changes::key(&event.project);
        let tenants = self
            .tenants_with(&event.project, EventOrder::Immediate, std::slice::from_ref(&open_key))
            .await?;
        if !may_have_project_by(&tenants, event) {
            effects.log(format!(
                "no tenant has the project {} by the connection {}",
                event.project, event.connection
            ));
            return Ok(Ok(()));
        }
        self.redeliver_webhooks(event, self.ports.clock.now(), effects).await?;
        self.find_missed_pushes(event, &tenants, at, effects).await?;
        let mut open = match self.forge(&event.connection)?.open_changes(&event.project).await {
            Ok(open) => open,
            Err(error) if error.class() == ErrorClass::Final => return Ok(Err(error.to_string())),
            Err(error) => return Err(retry_error(error)),
        };
        // Each sweep begins at another change: one that is read each time must not keep others from
        // being read.
        let first = first_of(open.len(), at);
        open.rotate_left(first);
        let keys: Vec<Key> =
            open.iter().map(|open| change::seen_events_key(&open.change.key)).collect();
        let mut records = Vec::with_capacity(keys.len());
        for page in keys.chunks(100) {
            records.extend(self.ports.records.get(page).await?);
        }
        let seen = records.into_iter().map(|record| {
            let record = record?;
            Some((decode_or_log::<SeenEvents>(&record)?, record.revision))
        });
        let listed: Vec<(OpenChange, Option<(SeenEvents, u64)>)> =
            open.into_iter().zip(seen).collect();
        let known_open = tenants.found.get(&open_key).and_then(decode_or_log).unwrap_or_default();
        let scope = self.scope(event, &tenants).await?;
        self.find_closed_changes(event, &listed, known_open, &scope, at, effects).await?;
        let (mut missed_events, mut reads) = (0, ReadBudget::default());
        for (open, seen) in listed {
            // The next sweep finds what does not fit into this commit.
            if effects.is_full() {
                break;
            }
            let retractions = seen.as_ref().map_or(0, |(seen, _)| seen.retractions());
            for missed in self.missed_events(&open, seen, &scope, &mut reads, effects).await? {
                let is_heeded = match missed.condition {
                    SynthesisCondition::Always => true,
                    SynthesisCondition::IfStatusUsed => uses_status(&tenants, &missed.event(event)),
                    SynthesisCondition::IfTriggered => {
                        is_triggered_by_self(&tenants, &missed.event(event))
                    }
                };
                if !is_heeded {
                    continue;
                }
                if missed_events == SYNTHESIZED_MAX {
                    return Ok(Ok(()));
                }
                missed_events += 1;
                self.synthesize(event, &open.change, missed, retractions, at, effects).await?;
            }
        }
        Ok(Ok(()))
    }

    /// Determines which facts a sweep of the project compares; statuses only if a live pipeline
    /// uses any. Those that only a pending configuration uses are found by the next sweep.
    async fn scope(
        &self,
        event: &ForgeEvent,
        project_tenants: &ProjectTenants,
    ) -> Result<SweepScope, ReconcileError> {
        let mut pipelines =
            project_tenants.tenants.iter().flat_map(|concerned| concerned.live.layout.pipelines());
        let statuses =
            pipelines.any(|pipeline| filter::uses_any_status(pipeline, &event.connection));
        let connection = self.connection_with_account(&event.connection).await?;
        let is_gerrit =
            connection.as_ref().is_some_and(|connection| connection.driver == Driver::Gerrit);
        Ok(SweepScope { connection, is_gerrit, statuses })
    }

    /// Returns the events of an open change that were missed: a new revision alone, or else
    /// reviews, labels, attributes and a reopening. Empty if nothing was missed, the sweep may read
    /// no more changes, or the forge does not show the change. If the change turns out to be
    /// complete, that is stored in `effects`. `seen` comes with the revision of its record.
    ///
    /// The listing shows a new revision, and whether the change was updated since it was complete.
    /// Only updated changes are read, and some for their statuses.
    async fn missed_events(
        &self,
        open: &OpenChange,
        seen: Option<(SeenEvents, u64)>,
        scope: &SweepScope,
        reads: &mut ReadBudget,
        effects: &mut Effects,
    ) -> Result<Vec<MissedEvent>, ReconcileError> {
        let change = &open.change;
        let Some((mut seen, revision)) = seen else {
            return Ok(vec![MissedEvent::revision(change, "opened")]);
        };
        if !seen.contains(&seen_events::revision_of(change)) {
            return Ok(vec![MissedEvent::revision(change, "changed")]);
        }
        if !reads.may_read(seen.complete_at == Some(open.updated_at), scope) {
            return Ok(Vec::new());
        }
        let now = match self.forge(&change.key.connection)?.read_change(&change.key).await {
            Ok(facts) => facts,
            Err(error) if error.class() == ErrorClass::Final => return Ok(Vec::new()),
            Err(error) => return Err(retry_error(error)),
        };
        if !seen.contains(&seen_events::revision(&now)) {
            return Ok(vec![MissedEvent::revision(change, "changed")]);
        }
        // No webhook of our own review is processed, because it would be an echo. Synthesized, it
        // would start again the pipeline that reported it.
        let others =
            now.reviews.iter().filter(|review| !scope.may_be_self(&review.by)).cloned().collect();
        let now = ChangeFacts { reviews: others, ..now };
        let before = seen.clone();
        let lost = seen.missed_updates(&now, scope);
        seen.update_complete_at(&now);
        if seen.complete_at.is_some() && seen != before {
            effects.write(change::put_seen_events(&change.key, &seen, Some(revision))?);
        }
        let reviews =
            now.reviews.iter().filter(|review| !seen.contains(&seen_events::review(review)));
        let labels = now.labels.iter().filter(|label| !seen.contains(&seen_events::label(label)));
        let mut missed_events: Vec<MissedEvent> =
            reviews.map(|review| MissedEvent::review(change, review)).collect();
        missed_events.extend(labels.map(|label| MissedEvent::label(change, label, scope)));
        missed_events.extend(lost.iter().map(|lost| MissedEvent::attribute(&now, lost, scope)));
        let is_reopened = now.status == ChangeStatus::Open && seen.is_ended();
        missed_events.extend(is_reopened.then(|| MissedEvent::reopened(change, scope)));
        Ok(missed_events)
    }

    /// Adds to `effects` a synthesized delivery for a missed event, unless one is in progress.
    /// `event` gives it the connection and the project. If an earlier one has ended and the event
    /// is still missing, the forge did not show it then, so another attempt follows; after
    /// [`ATTEMPTS_MAX`] it only logs that it gives up. `retractions` says how often a mark of the
    /// change was removed; with another number, the event is another one.
    pub(crate) async fn synthesize(
        &self,
        event: &ForgeEvent,
        change: &ChangeRef,
        missed: MissedEvent,
        retractions: u64,
        at: Timestamp,
        effects: &mut Effects,
    ) -> Result<(), ReconcileError> {
        let name = format!(
            "sweep:{}:{}:{}:{}:{retractions}",
            change.key, change.branch, change.head, missed.mark
        );
        for time in 1..=ATTEMPTS_MAX {
            let synthesized = DeliveryRecord {
                connection: event.connection.clone(),
                forge_id: if time == 1 { name.clone() } else { format!("{name}:{time}") },
                event_name: SYNTHESIZED.to_owned(),
                received_at: at,
                event: Some(missed.event(event)),
                state: DeliveryState::Accepted,
            };
            // Events of one project are processed one at a time, so no concurrent writer stores it
            // between this check and the commit.
            let stored = get(
                &self.ports,
                &delivery::key(&delivery::id(&synthesized.connection, &synthesized.forge_id)),
            )
            .await?;
            let Some(stored) = stored else {
                effects.log(format!(
                    "{change}: no webhook reported \u{201c}{}\u{201d}; the event was synthesized",
                    missed.mark
                ));
                effects.store_delivery(&synthesized)?;
                return Ok(());
            };
            if decode_or_log::<DeliveryRecord>(&stored)
                .is_some_and(|stored| !stored.state.is_final())
            {
                return Ok(());
            }
        }
        tracing::warn!(%change, what = missed.mark, "the forge does not show a missed event; giving up");
        Ok(())
    }
}

/// Returns the index of the change at which a sweep begins; it depends on the time, so that every
/// change comes first in some sweep. Always below `count`; 0 if there are none.
pub(crate) fn first_of(count: usize, at: Timestamp) -> usize {
    let name = digest(&["sweep", &at.0.to_string()]);
    let number =
        name.get(..8).and_then(|digits| usize::from_str_radix(digits, 16).ok()).unwrap_or_default();
    number.checked_rem(count).unwrap_or_default()
}

/// Counts the changes that one sweep has read.
#[derive(Default)]
struct ReadBudget {
    /// How many updated changes were read so far.
    moved: usize,
    /// How many changes were read for their statuses only.
    for_statuses: usize,
}

impl ReadBudget {
    /// Counts one more read and returns whether the limit allows it. A complete change is read only
    /// for its statuses, and not at all if no pipeline uses any.
    fn may_read(&mut self, is_complete: bool, scope: &SweepScope) -> bool {
        let (count, most) = match is_complete {
            true => (&mut self.for_statuses, if scope.statuses { STATUS_READS_MAX } else { 0 }),
            false => (&mut self.moved, READS_MAX),
        };
        *count += usize::from(*count <= most);
        *count <= most
    }
}

/// An event that no webhook reported.
pub(crate) struct MissedEvent {
    /// The event that no webhook delivered.
    kind: EventKind,
    /// The account that caused it; empty if unknown.
    sender: String,
    /// The text that identifies the event among those of its change.
    mark: String,
    /// Under which condition it is synthesized.
    condition: SynthesisCondition,
}

/// The condition under which a missed event is synthesized.
#[derive(Clone, Copy)]
enum SynthesisCondition {
    /// Always.
    Always,
    /// When a pipeline has a trigger or requirement for the status or check run.
    IfStatusUsed,
    /// When a pipeline has a trigger for this status or vote of Sluice itself.
    IfTriggered,
}

impl MissedEvent {
    /// Converts the missed event to one that intake can process. It copies connection and project
    /// from the event of the sweep.
    fn event(&self, found_by: &ForgeEvent) -> ForgeEvent {
        ForgeEvent { kind: self.kind.clone(), sender: self.sender.clone(), ..found_by.clone() }
    }

    /// Returns the missed event of a new revision, in GitHub's form for every forge. `action` is
    /// `opened` or `changed`.
    pub(crate) fn revision(change: &ChangeRef, action: &'static str) -> Self {
        let kind = kind(change, "pull_request", action, None, None);
        Self {
            kind,
            sender: String::new(),
            mark: action.to_owned(),
            condition: SynthesisCondition::Always,
        }
    }

    /// Returns the missed event of a review.
    fn review(change: &ChangeRef, review: &ChangeReview) -> Self {
        let action = if review.state == ReviewState::Dismissed { "dismissed" } else { "submitted" };
        let state = Some(seen_events::state_name(review.state).to_owned());
        let kind = kind(change, "pull_request_review", action, state, None);
        Self {
            kind,
            sender: review.by.clone(),
            mark: seen_events::review(review),
            condition: SynthesisCondition::Always,
        }
    }

    /// Returns the missed event of an added label.
    fn label(change: &ChangeRef, label: &str, scope: &SweepScope) -> Self {
        let added = vec![label.to_owned()];
        let (number, r#type) =
            (change.key.number().unwrap_or_default(), "hashtags-changed".to_owned());
        let kind = match scope.is_gerrit {
            true => {
                EventKind::Gerrit(GerritEvent { number, r#type, added, ..GerritEvent::default() })
            }
            false => kind(change, "pull_request", "labeled", None, Some(label.to_owned())),
        };
        Self {
            kind,
            sender: String::new(),
            mark: seen_events::label(label),
            condition: SynthesisCondition::Always,
        }
    }

    /// Returns the missed event of a change that was closed or merged, as the mark `end` says.
    pub(crate) fn ended(facts: &ChangeFacts, end: &'static str, scope: &SweepScope) -> Self {
        let gerrit_type =
            if facts.status == ChangeStatus::Merged { "change-merged" } else { "change-abandoned" };
        Self::lifecycle(&facts.change, "closed", gerrit_type, end, scope)
    }

    /// Returns the missed event of a change that was reopened.
    fn reopened(change: &ChangeRef, scope: &SweepScope) -> Self {
        Self::lifecycle(change, "reopened", "change-restored", "reopened", scope)
    }

    /// Returns the missed event of a change that was closed, merged or reopened. `action` is its
    /// name at GitHub, `gerrit_type` at Gerrit. `mark` identifies it among the events of its
    /// change.
    fn lifecycle(
        change: &ChangeRef,
        action: &str,
        gerrit_type: &str,
        mark: &str,
        scope: &SweepScope,
    ) -> Self {
        let number = change.key.number().unwrap_or_default();
        let kind = match scope.is_gerrit {
            true => EventKind::Gerrit(GerritEvent {
                number,
                r#type: gerrit_type.to_owned(),
                ..GerritEvent::default()
            }),
            false => kind(change, "pull_request", action, None, None),
        };
        Self {
            kind,
            sender: String::new(),
            mark: mark.to_owned(),
            condition: SynthesisCondition::Always,
        }
    }

    /// Returns the missed event of a changed attribute, such as a vote, a topic or a status. An
    /// update by the connection's own account is to be synthesized only if it triggers a pipeline,
    /// a status of another account only if a pipeline uses it.
    fn attribute(facts: &ChangeFacts, lost: &MissedUpdate, scope: &SweepScope) -> Self {
        let number = facts.change.key.number().unwrap_or_default();
        let condition = match lost {
            _ if scope.is_own(lost.by()) => SynthesisCondition::IfTriggered,
            MissedUpdate::Status(_) => SynthesisCondition::IfStatusUsed,
            _ => SynthesisCondition::Always,
        };
        Self {
            kind: lost.kind(number, scope.is_gerrit),
            sender: lost.by().to_owned(),
            mark: lost.mark(facts),
            condition,
        }
    }
}

/// Returns whether a tenant may have the project by the connection of an event; true also without
/// any tenant, and with one that cannot be read. Several connections may lead to one host: events
/// that are found by a connection without tenants concern none.
pub(crate) fn may_have_project_by(project_tenants: &ProjectTenants, event: &ForgeEvent) -> bool {
    project_tenants.tenants.is_empty()
        || !project_tenants.unreadable.is_empty()
        || project_tenants.tenants.iter().any(|concerned| has_project_by(concerned, event))
}

/// Returns whether a tenant has the project by the event's connection; true also if its live layout
/// does not have the project, because it may be about to add it.
pub(crate) fn has_project_by(concerned: &ConcernedTenant, event: &ForgeEvent) -> bool {
    let project = concerned.live.layout.tenant().project(&event.project);
    project.is_none_or(|project| project.connection == event.connection)
}

/// Builds an event about a change in GitHub's form, without a comment.
fn kind(
    change: &ChangeRef,
    event: &str,
    action: &str,
    state: Option<String>,
    label: Option<String>,
) -> EventKind {
    let number = change.key.number().unwrap_or_default();
    let (event, action) = (event.to_owned(), action.to_owned());
    EventKind::Change { number, event, action, comment: None, label, state, status: None }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// C5: what one sweep does not reach, later ones do.
    #[test]
    fn sweeps_begin_at_different_changes() {
        let at = |number: u64| Timestamp(1_800_000_000_000 + number * 600_000);
        let firsts: BTreeSet<usize> = (0..400).map(|number| first_of(50, at(number))).collect();
        assert_eq!(firsts.len(), 50);
        assert_eq!((first_of(0, at(1)), first_of(1, at(1))), (0, 0));
    }
}
