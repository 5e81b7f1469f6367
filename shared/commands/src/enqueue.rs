//! Enqueues a change or a ref, as if an event had.
//!
//! The command is stored as a delivery like a forge's. The intake function loads the change, checks
//! the pipeline's requirements, and records the outcome in the delivery.

use crate::selectors::{ChangeNumber, parse_commit, whole_ref};
use crate::{CommandAuthor, StoreCommandError};
use sluice_config::layout::Layout;
use sluice_config::tenant::{Permission, TenantProject};
use sluice_model::change::ImageSelection;
use sluice_model::event::{EventKind, ForgeEvent, ImageEvent};
use sluice_model::git::Oid;
use sluice_model::wakeup::Wakeup;
use sluice_model::{DeliveryId, PipelineName, TenantName};
use sluice_records::delivery::{self, DeliveryRecord, DeliveryState};
use sluice_runtime::record::Due;
use sluice_runtime::{CellCommit, PortError, Ports, cell};

/// Seconds after which a delivery is processed although its wakeup was lost.
const DUE_SECONDS: u64 = 60;

/// What is enqueued: a change or a ref.
#[derive(Debug, Clone)]
pub enum EnqueueTarget {
    /// A change.
    Change(ChangeNumber),
    /// An update of a ref.
    Ref(RefUpdate),
}

/// An update of a ref, as if it had been pushed.
#[derive(Debug, Clone)]
pub struct RefUpdate {
    /// The ref; a name without `refs/` is a branch.
    pub name: String,
    /// The previous commit, if any.
    pub oldrev: Option<String>,
    /// The new commit; `None` for the head of the branch when it is tested.
    pub newrev: Option<String>,
}

impl EnqueueTarget {
    /// Returns the full ref of what is enqueued; a change's own ref at GitHub for a change.
    pub fn git_ref(&self) -> String {
        match self {
            Self::Change(change) => format!("refs/pull/{}/head", change.number),
            Self::Ref(update) => whole_ref(&update.name),
        }
    }
}

/// Returns the event that enqueues a change or ref of a project in a pipeline.
///
/// # Errors
/// When a commit of a ref is not given by its full id.
pub fn enqueue_event(
    tenant: &TenantName,
    pipeline: &PipelineName,
    project: &TenantProject,
    target: &EnqueueTarget,
    author: &CommandAuthor,
) -> Result<ForgeEvent, StoreCommandError> {
    let (tenant, pipeline) = (tenant.clone(), pipeline.clone());
    let kind = match target {
        EnqueueTarget::Change(ChangeNumber { number, head }) => {
            let head = head.as_deref().map(Oid::from);
            EventKind::Enqueue { tenant, pipeline, number: *number, head }
        }
        EnqueueTarget::Ref(RefUpdate { name, oldrev, newrev }) => EventKind::EnqueueRef {
            tenant,
            pipeline,
            git_ref: whole_ref(name),
            oldrev: parse_commit(oldrev.as_deref())?,
            newrev: parse_commit(newrev.as_deref())?,
        },
    };
    Ok(ForgeEvent {
        connection: project.connection.clone(),
        project: project.name.clone(),
        sender: author.name.clone(),
        kind,
    })
}

/// Returns the event that requests the build of an image.
///
/// # Errors
/// When the layout has no such image, or no job that builds it.
pub fn image_build_event(
    tenant: &TenantName,
    layout: &Layout,
    image: &str,
    author: &CommandAuthor,
) -> Result<ForgeEvent, StoreCommandError> {
    let refused =
        |why: String| StoreCommandError::NotFound(format!("cannot build image \"{image}\": {why}"));
    let source = layout.image_to_build(image).map_err(refused)?;
    if let Some(why) = layout.why_image_is_not_built(source, image) {
        return Err(refused(why));
    }
    let kind = EventKind::Image {
        tenant: tenant.clone(),
        event: ImageEvent::ImageBuild,
        branch: source.branch.clone(),
        images: ImageSelection::one(image.to_owned()),
    };
    Ok(ForgeEvent {
        connection: source.connection.clone(),
        project: source.project.clone(),
        sender: author.name.clone(),
        kind,
    })
}

/// Stores an operator's event as a delivery and wakes intake. Returns the delivery, whose record
/// gets the outcome. Any other event than the ones above is an error.
///
/// # Errors
/// When the event is no operator's, or the store does not answer.
pub async fn submit_event(
    ports: &Ports,
    event: ForgeEvent,
    author: &CommandAuthor,
) -> Result<DeliveryId, StoreCommandError> {
    let project = event.project.clone();
    let (tenant, event_name, permission, description) = match &event.kind {
        EventKind::Enqueue { tenant, pipeline, number, head } => {
            let revision = head.as_ref().map(|head| format!(" at {head}")).unwrap_or_default();
            let description = format!("enqueue {project}#{number}{revision} in {pipeline}");
            (tenant, "enqueue", Permission::Enqueue, description)
        }
        EventKind::EnqueueRef { tenant, pipeline, git_ref, oldrev, newrev } => {
            let description = format!(
                "enqueue {git_ref} of {project} in {pipeline}, moved from {oldrev} to {newrev}"
            );
            (tenant, "enqueue", Permission::Enqueue, description)
        }
        EventKind::Image { tenant, event, images, .. } => (
            tenant,
            event.as_str(),
            Permission::BuildImage,
            format!("build the images {}", images.names.join(", ")),
        ),
        _ => {
            return Err(StoreCommandError::Invalid(
                "only changes, refs and images can be enqueued by command".to_owned(),
            ));
        }
    };
    let audit = author.audit(ports, tenant, permission, &description)?;
    let delivery_record = DeliveryRecord {
        connection: event.connection.clone(),
        forge_id: format!("operator:{}", ports.entropy.token()),
        event_name: event_name.to_owned(),
        received_at: ports.clock.now(),
        event: Some(event),
        state: DeliveryState::Accepted,
    };
    let id = delivery::id(&delivery_record.connection, &delivery_record.forge_id);
    let wakeup = Wakeup::Delivery { delivery: id.clone(), project };
    let at = delivery_record.received_at.plus_seconds(DUE_SECONDS);
    let due = Some(Due { at, wakeup: wakeup.clone() });
    let head = delivery::record(&id, &delivery_record)?;
    let commit = CellCommit { head, others: vec![audit], wakeups: vec![wakeup], due };
    commit_new(ports, commit).await?;
    Ok(id)
}

/// Commits a new cell with a random id and sends its wakeups. Its head cannot exist.
async fn commit_new(ports: &Ports, commit: CellCommit) -> Result<(), PortError> {
    cell::commit_and_send(ports, commit).await.map(|_| ())
}
