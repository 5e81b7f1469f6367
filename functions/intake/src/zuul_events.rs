//! Processes Zuul's own events: what happened to a change in one queue triggers other changes.
//!
//! A queue stores one event (`Happened`); it becomes one delivery for each change that it may
//! trigger, so that each is processed in the order of its own project.

use crate::change_context::ConcernedTenant;
use crate::deferred::Readiness;
use crate::dependencies::ChangeCache;
use crate::operator_enqueue::{Offer, Requester};
use crate::process_delivery::{DeliveryOutcome, Effects, SHOWN_MILLIS, final_or_retry};
use crate::route::LivePipeline;
use crate::{Intake, retry_error};
use sluice_forge::ErrorClass;
use sluice_gate::filter;
use sluice_model::change::{ChangeFacts, ChangeKey, ChangeStatus};
use sluice_model::event::{EventKind, ForgeEvent, ZuulEvent};
use sluice_model::{DeliveryId, PipelineName, TenantName, Timestamp};
use sluice_records::delivery::{DeliveryRecord, DeliveryState};
use sluice_runtime::batch::ReconcileError;

/// The most deliveries that one delivery stores; a following one stores the rest.
const CHANGES_MAX: usize = 80;

/// An event in a queue that may trigger changes.
pub(crate) struct QueueEvent<'a> {
    /// The tenant of the queue.
    pub(crate) tenant: &'a TenantName,
    /// The event that the queue reported.
    pub(crate) event: ZuulEvent,
    /// The pipeline of the queue.
    pub(crate) pipeline: &'a PipelineName,
    /// The number of the change that it happened to, or of the triggered change.
    pub(crate) number: u64,
    /// The last change that earlier deliveries processed, by number, and by key where it is stored.
    pub(crate) after: (u64, Option<&'a ChangeKey>),
}

impl QueueEvent<'_> {
    /// Returns whether an earlier delivery of the same event processed this change. Changes are
    /// processed in order of number, then key.
    fn was_processed(&self, key: &ChangeKey) -> bool {
        match self.after {
            (_, Some(last)) => (key.number(), key) <= (last.number(), last),
            (number, None) => key.number() <= Some(number),
        }
    }
}

impl Intake {
    /// Returns effects with a delivery for each change that an event of a queue may trigger a
    /// pipeline for; the caller commits them. These are the open dependents of an enqueued change,
    /// or all open changes of a merged change's project, without that change. There are at most
    /// [`CHANGES_MAX`], in order of number, and one more delivery that continues after them. For a
    /// merged change the outcome is a failure if the connection does not lead to a forge, or the
    /// forge refuses for good.
    pub(crate) async fn fan_out_zuul_event(
        &self,
        id: &DeliveryId,
        event: &ForgeEvent,
        trigger: QueueEvent<'_>,
        at: Timestamp,
        mut effects: Effects,
    ) -> Result<DeliveryOutcome, ReconcileError> {
        let parent =
            ChangeKey::change(event.connection.clone(), event.project.clone(), trigger.number);
        let mut keys = match trigger.event {
            ZuulEvent::ParentChangeEnqueued => {
                let depends = |facts: &ChangeFacts| {
                    facts.status == ChangeStatus::Open && self.depends_on(facts, &parent)
                };
                self.dependents(&parent, &depends).await?
            }
            ZuulEvent::ProjectChangeMerged => {
                let forge = match self.find_forge(&event.connection).await? {
                    Ok(forge) => forge,
                    Err(why) => return Ok(DeliveryOutcome::Failed(why)),
                };
                match forge.open_changes(&event.project).await {
                    Ok(open) => open.into_iter().map(|open| open.change.key).collect(),
                    Err(error) => return final_or_retry(error),
                }
            }
        };
        keys.sort_by_key(|key| (key.number(), key.clone()));
        keys.retain(|key| *key != parent && !trigger.was_processed(key));
        for key in keys.iter().take(CHANGES_MAX) {
            let Some(number) = key.number() else { continue };
            let (tenant, pipeline) = (trigger.tenant.clone(), trigger.pipeline.clone());
            let kind = EventKind::Zuul { tenant, event: trigger.event, pipeline, number };
            effects.store_delivery(&zuul_delivery(
                key,
                format!("zuul:{id}:{key}"),
                trigger.event,
                kind,
                at,
            ))?;
        }
        if keys.len() > CHANGES_MAX {
            let last = &keys[CHANGES_MAX - 1];
            let forge_id = format!("zuul:{id}:after:{last}");
            let kind = EventKind::ZuulBroadcast {
                tenant: trigger.tenant.clone(),
                event: trigger.event,
                pipeline: trigger.pipeline.clone(),
                number: trigger.number,
                after: last.number().unwrap_or_default(),
                after_change: Some(last.clone()),
            };
            effects.store_delivery(&zuul_delivery(&parent, forge_id, trigger.event, kind, at))?;
        }
        effects.log(format!(
            "{} changes are notified of {}",
            keys.len().min(CHANGES_MAX),
            trigger.event.as_str()
        ));
        Ok(DeliveryOutcome::Processed(effects))
    }

    /// Returns effects that offer the change `trigger.number`, if it is open, to the pipelines that
    /// an event of a queue triggers for it; the caller commits them. Postpones the delivery while
    /// the tenant has to wait, if the forge's answer is older than what is stored, and for
    /// [`SHOWN_MILLIS`] if the forge does not have the change; after that it fails, and at once if
    /// the connection leads to no forge. Only logs why if the tenant no longer has the project or
    /// could not be read for a day, or a pipeline does not accept the change.
    pub(crate) async fn process_zuul_event(
        &self,
        id: &DeliveryId,
        event: &ForgeEvent,
        trigger: QueueEvent<'_>,
        since: Timestamp,
        mut effects: Effects,
    ) -> Result<DeliveryOutcome, ReconcileError> {
        let key =
            ChangeKey::change(event.connection.clone(), event.project.clone(), trigger.number);
        let forge = match self.find_forge(&event.connection).await? {
            Ok(forge) => forge,
            Err(why) => return Ok(DeliveryOutcome::Failed(why)),
        };
        let facts = match forge.read_change(&key).await {
            Ok(facts) => facts,
            Err(error) if error.class() == ErrorClass::Final => {
                let is_recent = self.ports.clock.now().since(since) < SHOWN_MILLIS;
                return Ok(match final_or_retry(error)? {
                    DeliveryOutcome::Failed(why) if is_recent => {
                        DeliveryOutcome::Postponed { why, tenant: None }
                    }
                    outcome => outcome,
                });
            }
            Err(error) => return Err(retry_error(error)),
        };
        let before = self.change_context(&facts).await?;
        // The queue would test an old revision, and no later message would correct it.
        if let Some(why) = before.stale_reason(event, &facts) {
            return Ok(DeliveryOutcome::Postponed { why, tenant: None });
        }
        match self.tenant_readiness(
            &before.tenants,
            &before.unreadable,
            trigger.tenant,
            &event.project,
            since,
        ) {
            Readiness::Ready => {}
            Readiness::NotYet(why) => {
                return Ok(DeliveryOutcome::Postponed {
                    why,
                    tenant: Some(trigger.tenant.clone()),
                });
            }
            Readiness::Never(why) => {
                effects.log(why);
                return Ok(DeliveryOutcome::Processed(effects));
            }
        }
        let Some(ConcernedTenant { live, .. }) = before.tenant(trigger.tenant) else {
            return Ok(DeliveryOutcome::Processed(effects));
        };
        let mut cache = ChangeCache::knowing(&facts, before.is_needed, before.moment(&facts));
        let takes_part = live.layout.project_pipelines(&event.project);
        for pipeline in
            live.layout.pipelines().iter().filter(|pipeline| takes_part.contains(&pipeline.name))
        {
            if facts.status == ChangeStatus::Open
                && let Some(detail) =
                    filter::detail_by_zuul(pipeline, trigger.event, trigger.pipeline)
                && let Some(why) = self
                    .offer(
                        Offer { id, requester: Requester::Event(detail) },
                        &facts,
                        LivePipeline { live, pipeline },
                        &mut cache,
                        &mut effects,
                    )
                    .await?
            {
                effects.log(why);
            }
        }
        Ok(DeliveryOutcome::Processed(effects))
    }
}

/// Builds the delivery of an event that a queue reported. `key` gives it its connection and
/// project, in whose order it is processed; the change itself is in `kind`.
fn zuul_delivery(
    key: &ChangeKey,
    forge_id: String,
    zuul_event: ZuulEvent,
    kind: EventKind,
    at: Timestamp,
) -> DeliveryRecord {
    let (connection, project) = (key.connection.clone(), key.project.clone());
    DeliveryRecord {
        connection: connection.clone(),
        forge_id,
        event_name: zuul_event.as_str().to_owned(),
        received_at: at,
        event: Some(ForgeEvent { connection, project, sender: String::new(), kind }),
        state: DeliveryState::Accepted,
    }
}
