//! Processes requests for images: enqueues the branch that defines them in each pipeline that the
//! request triggers.
//!
//! The request names the images; only their jobs run (L1.1). A repeated request is the same item
//! while that is queued.

use crate::Intake;
use crate::change_context::EventOrder;
use crate::deferred::Readiness;
use crate::operator_enqueue::{Offer, Requester};
use crate::process_delivery::{DeliveryOutcome, Effects};
use crate::pushes::OfferedRef;
use crate::route::LivePipeline;
use sluice_gate::filter;
use sluice_model::change::{ChangeRef, ImageSelection, RefMove};
use sluice_model::event::{ForgeEvent, ImageEvent};
use sluice_model::{BranchName, DeliveryId, TenantName, Timestamp};
use sluice_runtime::batch::ReconcileError;

/// The most images of one request: the item's queue is named after them.
const IMAGES_MAX: usize = 20;

/// A request for images.
pub(crate) struct ImageRequest<'a> {
    /// The tenant.
    pub(crate) tenant: &'a TenantName,
    /// When it was received.
    pub(crate) since: Timestamp,
    /// What is requested.
    pub(crate) event: ImageEvent,
    /// The branch that defines the images.
    pub(crate) branch: &'a BranchName,
    /// The requested images.
    pub(crate) images: &'a ImageSelection,
}

impl Intake {
    /// Adds to `effects` the messages that offer the branch that defines the images to each
    /// pipeline of the project that an image event triggers, and returns them as the outcome for
    /// the caller to commit; writes nothing itself. The log of `effects` must be empty. The outcome
    /// is `Postponed` while the tenant has to wait. It is `Failed`, and `effects` are dropped, if no
    /// triggered pipeline accepts the branch, if the tenant does not have the project or could not
    /// be read for a day, or if fewer than one or more than [`IMAGES_MAX`] images are requested.
    pub(crate) async fn process_image_event(
        &self,
        id: &DeliveryId,
        event: &ForgeEvent,
        ImageRequest { tenant, since, event: image_event, branch, images }: ImageRequest<'_>,
        mut effects: Effects,
    ) -> Result<DeliveryOutcome, ReconcileError> {
        let (event_name, count) = (image_event.as_str(), images.names.len());
        if !(1..=IMAGES_MAX).contains(&count) {
            let why = format!(
                "{event_name} of {count} images: a request names between 1 and {IMAGES_MAX}"
            );
            return Ok(DeliveryOutcome::Failed(why));
        }
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
        let Some(live) = project_tenants.tenant(tenant).map(|concerned| &concerned.live) else {
            return Ok(DeliveryOutcome::Failed(format!(
                "tenant {tenant} does not have the project {}",
                event.project
            )));
        };
        let moved = RefMove::at_tip(branch).with_images(images.clone());
        let change = ChangeRef::of_ref(event.connection.clone(), event.project.clone(), moved);
        let takes_part = live.layout.project_pipelines(&event.project);
        let takes_part = |pipeline: &&sluice_config::Pipeline| takes_part.contains(&pipeline.name);
        let mut refused = Vec::new();
        for pipeline in live.layout.pipelines().iter().filter(takes_part) {
            let Some(detail) = filter::detail_by_images(pipeline, image_event) else { continue };
            if let Some(why) = filter::refs_refusal(pipeline, &event.connection) {
                refused.push(why);
                continue;
            }
            let offer = Offer { id, requester: Requester::Event(detail) };
            let offered = OfferedRef { change: &change, author: &event.sender, newer_head: None };
            self.offer_ref(offer, offered, LivePipeline { live, pipeline }, &mut effects)?;
        }
        if !effects.log.is_empty() {
            return Ok(DeliveryOutcome::Processed(effects));
        }
        let project = event.project.name();
        if refused.is_empty() {
            refused.push(format!(
                "no pipeline of {project} in tenant {tenant} has the trigger {event_name} (`zuul: [{{event: {event_name}}}]`)"
            ));
        }
        Ok(DeliveryOutcome::Failed(format!(
            "{images} of {project}: {event_name} triggers no pipeline: {}",
            refused.join("; ")
        )))
    }
}
