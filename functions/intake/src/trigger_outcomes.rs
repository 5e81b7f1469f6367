//! Records with a change what each pipeline did with its events, so that a change that was never
//! enqueued can be explained.

use crate::Intake;
use crate::change_context::ConcernedTenant;
use crate::dependencies::other_connection_reason;
use crate::route::{RequestOutcome, RequestOutcomes, may_configure};
use sluice_gate::explain::{self, EnqueueRequest, ReportedRefusal, RoutingRecord};
use sluice_gate::filter::{self, EventAuthor};
use sluice_model::change::ChangeFacts;
use sluice_model::event::ForgeEvent;
use sluice_records::change;
use sluice_runtime::batch::ReconcileError;
use sluice_runtime::record::Write;

/// An event, and whether Sluice caused it.
pub(crate) struct AuthoredEvent<'a> {
    /// The event.
    pub(crate) event: &'a ForgeEvent,
    /// Whether Sluice or another account caused it.
    pub(crate) author: EventAuthor,
}

impl Intake {
    /// Returns the write of `verdicts`, with the result of a new event added for each pipeline of
    /// these tenants: whether it enqueued the change, and if not, why. `requests` is what followed
    /// from its triggers. Tenants that have to wait are skipped: the deferred event records theirs.
    /// `is_somewhere` is true when another tenant has a pipeline for the change. Reads no forge.
    pub(crate) fn trigger_outcomes_write(
        &self,
        AuthoredEvent { event, author: by }: AuthoredEvent<'_>,
        facts: &ChangeFacts,
        mut verdicts: RoutingRecord,
        requests: &RequestOutcomes,
        tenants: &[ConcernedTenant],
        is_somewhere: bool,
    ) -> Result<Write, ReconcileError> {
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
                let (tenant, name) = (&live.tenant.name, &pipeline.name);
                let request = requests.get(&(tenant.clone(), name.clone()));
                if !takes_part.contains(name) && !configures && request.is_none() {
                    continue;
                }
                nowhere = None;
                if let Some(RequestOutcome::Refused(why)) = request {
                    let refusal = ReportedRefusal::of(&facts.change, why);
                    verdicts.record_report(tenant, name, refusal);
                }
                let held_back = filter::start_denial(tenant, pipeline, event, by);
                let request = match (held_back, &other_connection_reason) {
                    (Some(why), _) => EnqueueRequest::Withheld(why),
                    (None, Some(why)) => EnqueueRequest::Forbidden(why),
                    (None, None) => match request {
                        None => EnqueueRequest::NotSent,
                        Some(RequestOutcome::Sent) => EnqueueRequest::Sent,
                        Some(RequestOutcome::Refused(why) | RequestOutcome::Waits(why)) => {
                            EnqueueRequest::Refused(why)
                        }
                    },
                };
                let outcome = explain::routing_outcome(pipeline, event, facts, request, now);
                verdicts.record(tenant, name, &outcome, &words, now);
            }
        }
        verdicts.unrouted = nowhere.filter(|_| !is_somewhere);
        Ok(change::put_verdicts(&facts.change.key, &verdicts)?)
    }
}
