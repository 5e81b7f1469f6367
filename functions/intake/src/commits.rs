//! Statuses and check runs: what is told of a commit concerns the open changes whose head it is,
//! each by itself.

use crate::Intake;
use crate::before::{Concerned, Known, Order};
use crate::deliver::{Effects, Outcome, Told, final_or_again};
use sluice_gate::filter::{self, Speaker};
use sluice_model::change::ChangeKey;
use sluice_model::event::{EventKind, ForgeEvent};
use sluice_model::git::Oid;
use sluice_model::{DeliveryId, Timestamp};
use sluice_records::delivery::{Delivery, DeliveryState};
use sluice_runtime::batch::LookError;

/// Changes that one delivery has told; further ones are told by the next.
const TOLD_MAX: usize = 80;

/// What is told of a commit.
pub(crate) struct OnCommit<'a> {
    pub(crate) head: &'a Oid,
    pub(crate) event: &'a str,
    pub(crate) action: &'a str,
    pub(crate) status: &'a str,
    /// Changes up to this number were told already.
    pub(crate) after: u64,
}

impl OnCommit<'_> {
    /// Returns the same of a change.
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
    /// Tells each open change at a commit of a status or check run; of several each has a delivery
    /// of its own. Where no pipeline says a word of such things nobody is asked which changes those
    /// are.
    pub(crate) async fn on_commit(
        &self,
        id: &DeliveryId,
        event: &ForgeEvent,
        told: OnCommit<'_>,
        at: Timestamp,
        mut effects: Effects,
    ) -> Result<Outcome, LookError> {
        let known = self.tenants_with(&event.project, Order::AtOnce, &[]).await?;
        if !is_heeded(&known, &told.of(event, 0)) {
            effects.tell(format!(
                "no pipeline heeds {} {} ({})",
                told.event, told.action, told.status
            ));
            return Ok(Outcome::Leads(effects));
        }
        let forge = match self.forge_if_any(&event.connection).await? {
            Ok(forge) => forge,
            Err(why) => return Ok(Outcome::Fails(why)),
        };
        let mut numbers: Vec<u64> = match forge.changes_with_head(&event.project, told.head).await {
            Ok(open) => open.iter().filter_map(|change| change.key.number()).collect(),
            Err(error) => return final_or_again(error),
        };
        numbers.retain(|number| *number > told.after);
        numbers.sort_unstable();
        if let ([number], 0) = (numbers.as_slice(), told.after) {
            let key = ChangeKey::change(event.connection.clone(), event.project.clone(), *number);
            let event = told.of(event, *number);
            return self
                .about_change(id, Told { event: &event, is_made_up: false }, &key, at, effects)
                .await;
        }
        let delivery = |forge_id: String, event: ForgeEvent| Delivery {
            connection: event.connection.clone(),
            forge_id,
            event_name: told.event.to_owned(),
            received_at: at,
            event: Some(event),
            state: DeliveryState::Accepted,
        };
        for number in numbers.iter().take(TOLD_MAX) {
            effects.deliver(&delivery(format!("commit:{id}:{number}"), told.of(event, *number)))?;
        }
        if let (Some(_), Some(after)) = (numbers.get(TOLD_MAX), numbers.get(TOLD_MAX - 1)) {
            let kind = EventKind::Commit {
                head: told.head.clone(),
                event: told.event.to_owned(),
                action: told.action.to_owned(),
                status: told.status.to_owned(),
                after: *after,
            };
            effects.deliver(&delivery(
                format!("commit:{id}:after:{after}"),
                ForgeEvent { kind, ..event.clone() },
            ))?;
        }
        effects.tell(format!(
            "{} changes are at {}",
            numbers.len().min(TOLD_MAX),
            told.head.short()
        ));
        Ok(Outcome::Leads(effects))
    }
}

/// Whether a status or check run may be anything to some tenant: one whose configuration is on its
/// way, or that cannot be read, may have a word for it.
fn is_heeded(known: &Known, event: &ForgeEvent) -> bool {
    let is_awaited = known.tenants.iter().any(|concerned| concerned.awaited.is_some());
    !known.damaged.is_empty() || is_awaited || heeds(known, event)
}

/// Returns whether some pipeline that is live has a word for a status or check run.
pub(crate) fn heeds(known: &Known, event: &ForgeEvent) -> bool {
    let mut pipelines =
        known.tenants.iter().flat_map(|concerned| concerned.live.layout.pipelines());
    pipelines.any(|pipeline| filter::heeds_status(pipeline, event))
}

/// Returns whether something that we said ourselves may start some pipeline that is live.
pub(crate) fn is_awaited_of_us(known: &Known, event: &ForgeEvent) -> bool {
    known.tenants.iter().any(|Concerned { live, .. }| {
        let may =
            |pipeline| filter::may_start(&live.tenant.name, pipeline, event, Speaker::Ourselves);
        live.layout.pipelines().iter().any(may)
    })
}
