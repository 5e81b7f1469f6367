//! Enqueues changes and refs that an operator names, as if an event had triggered the pipeline.
//!
//! Triggers do not apply, and neither does a pause of events; the pipeline's requirements do.

use crate::Intake;
use crate::bundle::{SentOffer, bundle_queue};
use crate::change_context::EventOrder;
use crate::change_tree;
use crate::deferred::Readiness;
use crate::dependencies::{ChangeCache, Dependencies, other_connection_reason};
use crate::process_delivery::{DeliveryOutcome, Effects, final_or_retry};
use crate::pushes::{OfferedRef, RefReading};
use crate::route::{
    LivePipeline, TargetQueue, ignores_dependencies, queue_description, queue_key, with_detail,
};
use sluice_config::pipeline::{Manager, Pipeline};
use sluice_gate::filter::ReportDetail;
use sluice_gate::{InboxMessage, InboxMessageKind, filter};
use sluice_model::change::{ChangeFacts, ChangeRef, ChangeStatus, RefMove};
use sluice_model::event::ForgeEvent;
use sluice_model::git::Oid;
use sluice_model::{DeliveryId, PipelineName, ProjectName, TenantName, Timestamp};
use sluice_records::change;
use sluice_records::layout::LiveLayout;
use sluice_runtime::batch::ReconcileError;

/// Who requested that a change enters a pipeline.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Requester {
    /// An operator: the change enters even while events are paused or discarded.
    Operator,
    /// A trigger, with this detail in the reports of what it enqueues.
    Event(ReportDetail),
}

/// The offer of a change or ref to a pipeline.
#[derive(Clone, Copy)]
pub(crate) struct Offer<'a> {
    /// The delivery that causes it.
    pub(crate) id: &'a DeliveryId,
    /// Who requested it.
    pub(crate) requester: Requester,
}

/// The pipeline into which an operator or a timer enqueues.
#[derive(Clone, Copy)]
pub(crate) struct NamedPipeline<'a> {
    /// The tenant.
    pub(crate) tenant: &'a TenantName,
    /// The pipeline's name, which the tenant may not have.
    pub(crate) pipeline: &'a PipelineName,
    /// When the request was received.
    pub(crate) since: Timestamp,
}

impl Requester {
    /// Returns how detailed the reports about the enqueued change are: the trigger's setting, and
    /// the outcome only for an operator.
    pub(crate) fn detail(self) -> ReportDetail {
        match self {
            Self::Operator => ReportDetail::Outcome,
            Self::Event(detail) => detail,
        }
    }
}

impl Intake {
    /// Returns the effects that enqueue a change in the pipeline that an operator named, for the
    /// caller to commit; neither its triggers nor whether the project takes part in it are asked.
    /// `head`, if given, is the start of the commit that the change must be at. The delivery is
    /// postponed while the tenant has to wait. The outcome is a failure if the change is at another
    /// commit, the tenant lacks the project or pipeline or could not be read for a day, or the
    /// pipeline does not accept the change. A refusal by its dependencies is no failure, unless the
    /// change exceeds the tenant's max-dependencies: the message then carries it.
    pub(crate) async fn enqueue(
        &self,
        id: &DeliveryId,
        facts: &ChangeFacts,
        NamedPipeline { tenant, pipeline: name, since }: NamedPipeline<'_>,
        head: Option<&Oid>,
        mut effects: Effects,
    ) -> Result<DeliveryOutcome, ReconcileError> {
        let change = &facts.change;
        if head.is_some_and(|head| !change.head.as_str().starts_with(head.as_str())) {
            return Ok(DeliveryOutcome::Failed(format!(
                "{} is now at {}",
                change.key,
                change.head.short()
            )));
        }
        let before = self.change_context(facts).await?;
        match self.tenant_readiness(
            &before.tenants,
            &before.unreadable,
            tenant,
            &change.key.project,
            since,
        ) {
            Readiness::Ready => {}
            Readiness::NotYet(why) => {
                return Ok(DeliveryOutcome::Postponed { why, tenant: Some(tenant.clone()) });
            }
            Readiness::Never(why) => return Ok(DeliveryOutcome::Failed(why)),
        }
        let live = before.tenant(tenant).map(|concerned| &concerned.live);
        let (live, pipeline) = match find_pipeline(live, tenant, name, &change.key.project) {
            Ok(found) => found,
            Err(why) => return Ok(DeliveryOutcome::Failed(why)),
        };
        let mut cache = ChangeCache::knowing(facts, before.is_needed, before.moment(facts));
        match self
            .offer(
                Offer { id, requester: Requester::Operator },
                facts,
                LivePipeline { live, pipeline },
                &mut cache,
                &mut effects,
            )
            .await?
        {
            Some(why) => Ok(DeliveryOutcome::Failed(why)),
            None => Ok(DeliveryOutcome::Processed(effects)),
        }
    }

    /// Adds to `effects` the message that offers a change to a pipeline's queue, those for the
    /// members of its bundle, the change's facts and a log line; triggers are not asked. Returns
    /// the reason, and adds nothing, if the change is not open or not submittable where the
    /// pipeline merges, does not meet the requirements, has its project by another connection in
    /// the tenant, or exceeds the tenant's max-dependencies. Other refusals by its dependencies are
    /// part of the message. Otherwise returns `None`.
    pub(crate) async fn offer(
        &self,
        offer: Offer<'_>,
        facts: &ChangeFacts,
        live_pipeline: LivePipeline<'_>,
        cache: &mut ChangeCache,
        effects: &mut Effects,
    ) -> Result<Option<String>, ReconcileError> {
        let (Offer { id, requester }, LivePipeline { live, pipeline }) = (offer, live_pipeline);
        let change = &facts.change;
        let is_open = facts.status == ChangeStatus::Open;
        let refusal = other_connection_reason(live, &change.key.connection, &change.key.project)
            .or_else(|| match pipeline.manager {
                Manager::Dependent if !is_open => Some("the change is no longer open".to_owned()),
                // The same is checked again before the merge.
                Manager::Dependent if facts.submittable == Some(false) => {
                    Some(filter::NOT_SUBMITTABLE.to_owned())
                }
                _ => filter::refusal(pipeline, facts, self.ports.clock.now()),
            });
        if let Some(why) = refusal {
            return Ok(Some(format!("{change} is not enqueued: {why}")));
        }
        let needs = if is_open {
            self.dependencies_of(facts, &live.layout, cache).await?
        } else {
            Dependencies::default()
        };
        // An operator gets the reason, unlike the sender of an event.
        if let Some(why) =
            needs.refused.as_ref().filter(|_| needs.is_ignored && !ignores_dependencies(pipeline))
        {
            return Ok(Some(format!("{change} is not enqueued: {why}")));
        }
        let queue = queue_key(live, pipeline, change);
        let target =
            TargetQueue { live, pipeline, queue: &queue, occupied_queues: &[], reported: None };
        let now = self.ports.clock.now();
        let refused = change_tree::refusal(&needs, facts, &target, now);
        let candidates = self.candidates(facts, &needs, refused, &target, cache).await?;
        let candidates = with_detail(candidates, change, requester.detail());
        let message =
            self.inbox_message(id, live, &queue, change, InboxMessageKind::Enqueue { candidates });
        let message = InboxMessage { by_operator: requester == Requester::Operator, ..message };
        effects.write(change::put_facts(facts)?);
        effects.send_to_queue(&bundle_queue(&message, pipeline, &queue), &message)?;
        effects.log(format!("{change} may enter {}", queue_description(live, pipeline, change)));
        let sent = SentOffer { offer, message: &message };
        self.offer_bundle_members(sent, facts, &needs, live_pipeline, cache, effects).await?;
        Ok(None)
    }

    /// Returns the effects that enqueue a ref in the pipeline that an operator named, for the
    /// caller to commit; triggers are not asked. A branch without a commit is tested where it is
    /// when its build starts. The delivery is postponed while the tenant has to wait. The outcome
    /// is a failure if the forge does not show the ref or its commit, still shows a deleted one, or
    /// a tag is named without a commit; also if the tenant lacks the pipeline or the project, has
    /// it by another connection, or could not be read for a day, or the pipeline does not accept
    /// the ref.
    pub(crate) async fn enqueue_ref(
        &self,
        id: &DeliveryId,
        event: &ForgeEvent,
        NamedPipeline { tenant, pipeline: name, since }: NamedPipeline<'_>,
        moved: &RefMove,
        mut effects: Effects,
    ) -> Result<DeliveryOutcome, ReconcileError> {
        let project_tenants =
            self.tenants_with(&event.project, EventOrder::AfterDeferred, &[]).await?;
        match self.tenant_readiness(
            &project_tenants.tenants,
            &project_tenants.unreadable,
            tenant,
            &event.project,
            since,
        ) {
            Readiness::Ready => {}
            Readiness::NotYet(why) => {
                return Ok(DeliveryOutcome::Postponed { why, tenant: Some(tenant.clone()) });
            }
            Readiness::Never(why) => return Ok(DeliveryOutcome::Failed(why)),
        }
        let live = project_tenants.tenant(tenant).map(|concerned| &concerned.live);
        let (live, pipeline) = match find_pipeline(live, tenant, name, &event.project) {
            Ok(found) => found,
            Err(why) => return Ok(DeliveryOutcome::Failed(why)),
        };
        let refusal = other_connection_reason(live, &event.connection, &event.project);
        if let Some(why) = refusal.or_else(|| filter::refs_refusal(pipeline, &event.connection)) {
            return Ok(DeliveryOutcome::Failed(format!(
                "{} is not enqueued: {why}",
                moved.git_ref
            )));
        }
        if let Some(forge) = self.forges.get(&event.connection).filter(|_| !moved.is_deleted()) {
            match forge.ref_tip(&event.project, &moved.git_ref).await {
                Ok(Some(_)) => {}
                Ok(None) => {
                    return Ok(DeliveryOutcome::Failed(ref_not_found(&event.project, moved)));
                }
                Err(error) => return final_or_retry(error),
            }
        }
        // A branch without a commit is tested where it is when its build starts; a tag needs a
        // commit.
        let read = match (&moved.newrev, &moved.oldrev, moved.branch()) {
            (None, None, Some(_)) => RefReading::Confirmed(
                ChangeRef::of_ref(event.connection.clone(), event.project.clone(), moved.clone()),
                None,
            ),
            (None, None, None) => {
                return Ok(DeliveryOutcome::Failed(format!(
                    "name the commit of {} with --newrev",
                    moved.git_ref
                )));
            }
            _ => self.read_ref(event, moved).await?,
        };
        let change = match read {
            // An operator who names a ref wants it, even if the branch moved on.
            RefReading::Confirmed(change, _) => change,
            RefReading::NotShown(why) | RefReading::Rejected(why) => {
                return Ok(DeliveryOutcome::Failed(why));
            }
        };
        let offer = Offer { id, requester: Requester::Operator };
        let offered = OfferedRef { change: &change, author: &event.sender, newer_head: None };
        self.offer_ref(offer, offered, LivePipeline { live, pipeline }, &mut effects)?;
        Ok(DeliveryOutcome::Processed(effects))
    }
}

/// Formats the error for a ref that does not exist, with the command that lists existing ones.
fn ref_not_found(project: &ProjectName, moved: &RefMove) -> String {
    let (what, list) = match (moved.branch(), moved.tag()) {
        (Some(branch), _) => (format!("branch {branch}"), "git ls-remote --heads"),
        (None, Some(tag)) => (format!("tag {tag}"), "git ls-remote --tags"),
        (None, None) => (format!("ref {}", moved.git_ref), "git ls-remote"),
    };
    format!(
        "{} has no {what}; `{list}` lists the existing ones (write a tag as refs/tags/NAME)",
        project.name()
    )
}

/// Returns the pipeline that an operator named, with its layout. `live` is `None` if the tenant
/// lacks the project; the error says that, or that the tenant lacks the pipeline.
fn find_pipeline<'a>(
    live: Option<&'a LiveLayout>,
    tenant: &TenantName,
    name: &PipelineName,
    project: &ProjectName,
) -> Result<(&'a LiveLayout, &'a Pipeline), String> {
    let live =
        live.ok_or_else(|| format!("tenant {tenant} does not have the project {project}"))?;
    let pipeline_names = || {
        live.layout
            .pipelines()
            .iter()
            .map(|pipeline| pipeline.name.as_str())
            .collect::<Vec<_>>()
            .join(", ")
    };
    let pipeline = live.layout.pipeline(name.as_str());
    Ok((
        live,
        pipeline.ok_or_else(|| {
            format!("tenant {tenant} has no pipeline {name}; it has: {}", pipeline_names())
        })?,
    ))
}
