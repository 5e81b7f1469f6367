//! Processes statuses and check runs: an event on a commit concerns each open change with that
//! head.

use crate::Intake;
use crate::change_context::{ConcernedTenant, EventOrder, ProjectTenants};
use crate::process_delivery::{ChangeEvent, DeliveryOutcome, Effects, final_or_retry};
use sluice_gate::filter::{self, EventAuthor};
use sluice_model::change::ChangeKey;
use sluice_model::event::{EventKind, ForgeEvent};
use sluice_model::git::Oid;
use sluice_model::{DeliveryId, Timestamp};
use sluice_records::delivery::{DeliveryRecord, DeliveryState};
use sluice_runtime::batch::ReconcileError;

/// The most deliveries that one delivery stores; a following one stores the rest.
const CHANGES_MAX: usize = 80;

/// A status or check run of a commit.
pub(crate) struct CommitStatusEvent<'a> {
    /// The commit.
    pub(crate) head: &'a Oid,
    /// `pull_request` for a status, or `check_run`.
    pub(crate) event: &'a str,
    /// `status`, `rerequested` or `completed`.
    pub(crate) action: &'a str,
    /// The status as `login:context:state`.
    pub(crate) status: &'a str,
    /// The number of the last change that earlier deliveries processed.
    pub(crate) after: u64,
}

impl CommitStatusEvent<'_> {
    /// Returns a copy of the event that is about the change of this number instead of a commit.
    fn of(&self, event: &ForgeEvent, number: u64) -> ForgeEvent {
        let kind = EventKind::Change {
            number,
            event: self.event.to_owned(),
            action: self.action.to_owned(),
            comment: None,
            label: None,
            state: None,
            status: Some(self.status.to_owned()),
        };
        ForgeEvent { kind, ..event.clone() }
    }
}

impl Intake {
    /// Processes a status or check run, received at `at`, for each open change at its commit with a
    /// number above `status.after`. If `after` is 0 and there is only one such change, it is
    /// processed at once with its own outcome. Otherwise the returned effects, which the caller
    /// commits, have a delivery for each, at most [`CHANGES_MAX`], and one that continues with the
    /// rest. Where no pipeline may use the status, nothing is done except for a log line. The
    /// outcome is a failure if the connection does not lead to a forge, or the forge refuses for
    /// good.
    pub(crate) async fn process_commit_event(
        &self,
        id: &DeliveryId,
        event: &ForgeEvent,
        status: CommitStatusEvent<'_>,
        at: Timestamp,
        mut effects: Effects,
    ) -> Result<DeliveryOutcome, ReconcileError> {
        let project_tenants = self.tenants_with(&event.project, EventOrder::Immediate, &[]).await?;
        if !may_use_status(&project_tenants, &status.of(event, 0)) {
            effects.log(format!(
                "no pipeline uses {} {} ({})",
                status.event, status.action, status.status
            ));
            return Ok(DeliveryOutcome::Processed(effects));
        }
        let forge = match self.find_forge(&event.connection).await? {
            Ok(forge) => forge,
            Err(why) => return Ok(DeliveryOutcome::Failed(why)),
        };
        let mut numbers: Vec<u64> = match forge.changes_with_head(&event.project, status.head).await
        {
            Ok(open) => open.iter().filter_map(|change| change.key.number()).collect(),
            Err(error) => return final_or_retry(error),
        };
        numbers.retain(|number| *number > status.after);
        numbers.sort_unstable();
        if let ([number], 0) = (numbers.as_slice(), status.after) {
            let key = ChangeKey::change(event.connection.clone(), event.project.clone(), *number);
            let event = status.of(event, *number);
            return self
                .process_change_event(
                    id,
                    ChangeEvent { event: &event, is_synthesized: false },
                    &key,
                    at,
                    effects,
                )
                .await;
        }
        let delivery = |forge_id: String, event: ForgeEvent| DeliveryRecord {
            connection: event.connection.clone(),
            forge_id,
            event_name: status.event.to_owned(),
            received_at: at,
            event: Some(event),
            state: DeliveryState::Accepted,
        };
        for number in numbers.iter().take(CHANGES_MAX) {
            effects.store_delivery(&delivery(
                format!("commit:{id}:{number}"),
                status.of(event, *number),
            ))?;
        }
        if let (Some(_), Some(after)) = (numbers.get(CHANGES_MAX), numbers.get(CHANGES_MAX - 1)) {
            let kind = EventKind::Commit {
                head: status.head.clone(),
                event: status.event.to_owned(),
                action: status.action.to_owned(),
                status: status.status.to_owned(),
                after: *after,
            };
            effects.store_delivery(&delivery(
                format!("commit:{id}:after:{after}"),
                ForgeEvent { kind, ..event.clone() },
            ))?;
        }
        effects.log(format!(
            "{} changes are at {}",
            numbers.len().min(CHANGES_MAX),
            status.head.short()
        ));
        Ok(DeliveryOutcome::Processed(effects))
    }
}

/// Returns whether a tenant may use a status or check run; true also for a tenant that is reading
/// its configuration or cannot be read.
fn may_use_status(project_tenants: &ProjectTenants, event: &ForgeEvent) -> bool {
    let is_awaited = project_tenants.tenants.iter().any(|concerned| concerned.awaited.is_some());
    !project_tenants.unreadable.is_empty() || is_awaited || uses_status(project_tenants, event)
}

/// Returns whether a live pipeline has a trigger or requirement for a status or check run.
pub(crate) fn uses_status(project_tenants: &ProjectTenants, event: &ForgeEvent) -> bool {
    let mut pipelines =
        project_tenants.tenants.iter().flat_map(|concerned| concerned.live.layout.pipelines());
    pipelines.any(|pipeline| filter::uses_status(pipeline, event))
}

/// Returns whether a live pipeline has a trigger that names the status, check run or vote of an
/// event, so that Sluice's own one may start the pipeline. A pipeline's own report does not count.
/// Whether Sluice caused the event, and whether the project takes part in the pipeline, is not
/// checked.
pub(crate) fn is_triggered_by_self(project_tenants: &ProjectTenants, event: &ForgeEvent) -> bool {
    project_tenants.tenants.iter().any(|ConcernedTenant { live, .. }| {
        let may =
            |pipeline| filter::may_start(&live.tenant.name, pipeline, event, EventAuthor::Sluice);
        live.layout.pipelines().iter().any(may)
    })
}
