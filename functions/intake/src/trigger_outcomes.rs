//! Records with a change what each pipeline did with its events, so that a change that was never
//! enqueued can be explained.

use crate::Intake;
use crate::change_context::ConcernedTenant;
use crate::dependencies::other_connection_reason;
use crate::process_delivery::Effects;
use crate::route::{may_configure, queue_key};
use sluice_gate::explain::{self, EnqueueRequest, RoutingRecord};
use sluice_gate::filter::{self, EventAuthor};
use sluice_model::change::ChangeFacts;
use sluice_model::event::ForgeEvent;
use sluice_model::wakeup::Wakeup;
use sluice_records::change;
use sluice_runtime::batch::ReconcileError;

/// An event, and whether Sluice caused it.
pub(crate) struct AuthoredEvent<'a> {
    /// The event.
    pub(crate) event: &'a ForgeEvent,
    /// Whether Sluice or another account caused it.
    pub(crate) author: EventAuthor,
}

impl Intake {
    /// Adds to `verdicts`, for each pipeline of these tenants, whether a new event enqueued the
    /// change, and if not, why; writes them to `effects`. The messages of the event must be in
    /// `effects` already. Tenants that have to wait are skipped: the deferred event records theirs.
    /// `is_somewhere` is true when another tenant has a pipeline for the change. Reads no forge.
    pub(crate) fn record_trigger_outcomes(
        &self,
        AuthoredEvent { event, author: by }: AuthoredEvent<'_>,
        facts: &ChangeFacts,
        mut verdicts: RoutingRecord,
        tenants: &[ConcernedTenant],
        is_somewhere: bool,
        effects: &mut Effects,
    ) -> Result<(), ReconcileError> {
        let now = facts.seen_at;
        let words = explain::describe_event(event);
        let project = &facts.change.key.project;
        let mut nowhere = match tenants {
            [] => Some(format!("no tenant has the project {project}")),
            _ => Some(format!(
                "{project} takes part in no pipeline, and the change edits no configuration"
            )),
        };
        for ConcernedTenant { live, awaited, .. } in tenants {
            if awaited.is_some() {
                // Unknown until the deferred event is processed, which records it.
                nowhere = None;
                continue;
            }
            let other_connection_reason =
                other_connection_reason(live, &facts.change.key.connection, project);
            let takes_part = live.layout.project_pipelines(project);
            let configures = may_configure(live, facts);
            for pipeline in live.layout.pipelines() {
                if !takes_part.contains(&pipeline.name) && !configures {
                    continue;
                }
                nowhere = None;
                let queue = queue_key(live, pipeline, &facts.change);
                let was_sent = effects.wakeups.contains(&Wakeup::Queue { queue });
                let held_back = filter::start_denial(&live.tenant.name, pipeline, event, by);
                let request = match (held_back, &other_connection_reason) {
                    (Some(why), _) => EnqueueRequest::Withheld(why),
                    (None, Some(why)) => EnqueueRequest::Forbidden(why),
                    (None, None) if was_sent => EnqueueRequest::Sent,
                    (None, None) => EnqueueRequest::NotSent,
                };
                let outcome = explain::routing_outcome(pipeline, event, facts, request, now);
                verdicts.record(&live.tenant.name, &pipeline.name, &outcome, &words, now);
            }
        }
        verdicts.unrouted = nowhere.filter(|_| !is_somewhere);
        effects.write(change::put_verdicts(&facts.change.key, &verdicts)?);
        Ok(())
    }
}
