//! What is asked of images: an item for the branch that defines them, in each pipeline that such an
//! event starts.
//!
//! Whoever asks says which images; only their jobs run (L1.1). The same that is asked for again
//! while its item stands in a queue is that item.

use crate::Intake;
use crate::before::Order;
use crate::deliver::{Effects, Outcome};
use crate::early::Turn;
use crate::operators::Asker;
use sluice_gate::filter;
use sluice_model::change::{ChangeRef, ImagesAsked, RefMove};
use sluice_model::event::{ForgeEvent, ImageEvent};
use sluice_model::{BranchName, DeliveryId, TenantName, Timestamp};
use sluice_runtime::batch::LookError;

/// Images that one event may name: its item's queue is named by them.
const IMAGES_MAX: usize = 20;

/// What is asked of which images.
pub(crate) struct Asked<'a> {
    /// What.
    pub(crate) what: ImageEvent,
    /// The branch that defines them.
    pub(crate) branch: &'a BranchName,
    /// Which.
    pub(crate) images: &'a ImagesAsked,
}

impl Intake {
    /// Offers the branch that defines images to the pipelines that are started by what is asked of
    /// them.
    pub(crate) async fn asked_of_images(
        &self,
        id: &DeliveryId,
        event: &ForgeEvent,
        (tenant, since): (&TenantName, Timestamp),
        Asked { what, branch, images }: Asked<'_>,
        mut effects: Effects,
    ) -> Result<Outcome, LookError> {
        let (what_word, count) = (what.as_str(), images.names.len());
        if !(1..=IMAGES_MAX).contains(&count) {
            let why = format!(
                "{what_word} of {count} images: an event names at least one, and {IMAGES_MAX} at most"
            );
            return Ok(Outcome::Fails(why));
        }
        let known = self.tenants_with(&event.project, Order::InTurn, &[]).await?;
        match self.turn(&known.tenants, &known.damaged, tenant, &event.project, since) {
            Turn::Now => {}
            Turn::Later(why) => return Ok(Outcome::Waits { why, tenant: Some(tenant.clone()) }),
            Turn::Never(why) => return Ok(Outcome::Fails(why)),
        }
        let Some(live) = known.tenant(tenant).map(|concerned| &concerned.live) else {
            return Ok(Outcome::Fails(format!("tenant {tenant} does not know {}", event.project)));
        };
        let moved = RefMove::standing(branch).asking(images.clone());
        let change = ChangeRef::of_ref(event.connection.clone(), event.project.clone(), moved);
        let takes_part = live.layout.project_pipelines(&event.project);
        let takes_part = |pipeline: &&sluice_config::Pipeline| takes_part.contains(&pipeline.name);
        let mut refused = Vec::new();
        for pipeline in live.layout.pipelines().iter().filter(takes_part) {
            let Some(detail) = filter::detail_by_images(pipeline, what) else { continue };
            if let Some(why) = filter::refusal_of_refs(pipeline, &event.connection) {
                refused.push(why);
                continue;
            }
            let offered = (&change, event.sender.as_str(), None);
            self.offer_ref((id, Asker::Event(detail)), offered, (live, pipeline), &mut effects)?;
        }
        if !effects.told.is_empty() {
            return Ok(Outcome::Leads(effects));
        }
        let project = event.project.name();
        if refused.is_empty() {
            refused.push(format!(
                "of the pipelines of tenant {tenant} that {project} takes part in none has {what_word} among its triggers (`zuul: [{{event: {what_word}}}]`)"
            ));
        }
        Ok(Outcome::Fails(format!(
            "{images} of {project} starts nothing by {what_word}: {}",
            refused.join("; ")
        )))
    }
}
