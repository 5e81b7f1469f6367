//! Zuul's own events: what happened to a change in one queue starts others elsewhere.
//!
//! A queue tells once (`Happened`); here that becomes a delivery for each change that it may start,
//! in the order of that change's own project.

use crate::before::Concerned;
use crate::deliver::{Effects, Outcome, SHOWN_MILLIS, final_or_again};
use crate::early::Turn;
use crate::needs::Seen;
use crate::operators::Asker;
use crate::{Intake, again};
use sluice_forge::Verdict;
use sluice_gate::filter;
use sluice_model::change::{ChangeFacts, ChangeKey, ChangeStatus};
use sluice_model::event::{EventKind, ForgeEvent, ZuulEvent};
use sluice_model::{DeliveryId, PipelineName, TenantName, Timestamp};
use sluice_records::delivery::{Delivery, DeliveryState};
use sluice_runtime::batch::LookError;

/// Changes that one delivery tells; further ones are told by the next.
const TOLD_MAX: usize = 80;

/// What happened, and where.
pub(crate) struct What<'a> {
    pub(crate) tenant: &'a TenantName,
    pub(crate) what: ZuulEvent,
    pub(crate) pipeline: &'a PipelineName,
    /// The change that it happened to.
    pub(crate) number: u64,
    /// Changes up to this number were told already, and where a change is named those up to that
    /// one of it.
    pub(crate) after: (u64, Option<&'a ChangeKey>),
}

impl What<'_> {
    /// Whether a change was told by an earlier delivery; they come by number and then by project.
    fn was_told(&self, key: &ChangeKey) -> bool {
        match self.after {
            (_, Some(last)) => (key.number(), key) <= (last.number(), last),
            (number, None) => key.number() <= Some(number),
        }
    }
}

impl Intake {
    /// Stores a delivery for each change that may be started by what happened.
    pub(crate) async fn happened(
        &self,
        id: &DeliveryId,
        event: &ForgeEvent,
        happened: What<'_>,
        at: Timestamp,
        mut effects: Effects,
    ) -> Result<Outcome, LookError> {
        let parent =
            ChangeKey::change(event.connection.clone(), event.project.clone(), happened.number);
        let mut keys = match happened.what {
            ZuulEvent::ParentChangeEnqueued => {
                let depends = |facts: &ChangeFacts| {
                    facts.status == ChangeStatus::Open && self.names(facts, &parent)
                };
                self.needed_by(&parent, &depends).await?
            }
            ZuulEvent::ProjectChangeMerged => {
                let forge = match self.forge_if_any(&event.connection).await? {
                    Ok(forge) => forge,
                    Err(why) => return Ok(Outcome::Fails(why)),
                };
                match forge.open_changes(&event.project).await {
                    Ok(open) => open.into_iter().map(|open| open.change.key).collect(),
                    Err(error) => return final_or_again(error),
                }
            }
        };
        keys.sort_by_key(|key| (key.number(), key.clone()));
        keys.retain(|key| *key != parent && !happened.was_told(key));
        for key in keys.iter().take(TOLD_MAX) {
            let Some(number) = key.number() else { continue };
            let (tenant, pipeline) = (happened.tenant.clone(), happened.pipeline.clone());
            let kind = EventKind::Zuul { tenant, what: happened.what, pipeline, number };
            effects.deliver(&told(key, format!("zuul:{id}:{key}"), happened.what, kind, at))?;
        }
        if keys.len() > TOLD_MAX {
            let last = &keys[TOLD_MAX - 1];
            let forge_id = format!("zuul:{id}:after:{last}");
            let kind = EventKind::Happened {
                tenant: happened.tenant.clone(),
                what: happened.what,
                pipeline: happened.pipeline.clone(),
                number: happened.number,
                after: last.number().unwrap_or_default(),
                after_change: Some(last.clone()),
            };
            effects.deliver(&told(&parent, forge_id, happened.what, kind, at))?;
        }
        effects.tell(format!(
            "{} changes are told of {}",
            keys.len().min(TOLD_MAX),
            happened.what.as_str()
        ));
        Ok(Outcome::Leads(effects))
    }

    /// Offers a change to the pipelines that are started by what happened to another one.
    pub(crate) async fn started(
        &self,
        id: &DeliveryId,
        event: &ForgeEvent,
        happened: What<'_>,
        since: Timestamp,
        mut effects: Effects,
    ) -> Result<Outcome, LookError> {
        let key =
            ChangeKey::change(event.connection.clone(), event.project.clone(), happened.number);
        let forge = match self.forge_if_any(&event.connection).await? {
            Ok(forge) => forge,
            Err(why) => return Ok(Outcome::Fails(why)),
        };
        let facts = match forge.read_change(&key).await {
            Ok(facts) => facts,
            Err(error) if error.verdict() == Verdict::Final => {
                let is_recent = self.ports.clock.now().since(since) < SHOWN_MILLIS;
                return Ok(match final_or_again(error)? {
                    Outcome::Fails(why) if is_recent => Outcome::Waits { why, tenant: None },
                    outcome => outcome,
                });
            }
            Err(error) => return Err(again(error)),
        };
        let before = self.before(&facts).await?;
        // It would enter as it was, and nothing would tell of it as it is.
        if let Some(why) = before.too_early(event, &facts) {
            return Ok(Outcome::Waits { why, tenant: None });
        }
        match self.turn(&before.tenants, &before.damaged, happened.tenant, &event.project, since) {
            Turn::Now => {}
            Turn::Later(why) => {
                return Ok(Outcome::Waits { why, tenant: Some(happened.tenant.clone()) });
            }
            Turn::Never(why) => {
                effects.tell(why);
                return Ok(Outcome::Leads(effects));
            }
        }
        let Some(Concerned { live, .. }) = before.tenant(happened.tenant) else {
            return Ok(Outcome::Leads(effects));
        };
        let mut seen = Seen::knowing(&facts, before.is_needed, before.moment(&facts));
        let takes_part = live.layout.project_pipelines(&event.project);
        for pipeline in
            live.layout.pipelines().iter().filter(|pipeline| takes_part.contains(&pipeline.name))
        {
            if facts.status == ChangeStatus::Open
                && let Some(detail) =
                    filter::detail_by_zuul(pipeline, happened.what, happened.pipeline)
                && let Some(why) = self
                    .offer(
                        (id, Asker::Event(detail)),
                        &facts,
                        live,
                        pipeline,
                        &mut seen,
                        &mut effects,
                    )
                    .await?
            {
                effects.tell(why);
            }
        }
        Ok(Outcome::Leads(effects))
    }
}

fn told(
    key: &ChangeKey,
    forge_id: String,
    what: ZuulEvent,
    kind: EventKind,
    at: Timestamp,
) -> Delivery {
    let (connection, project) = (key.connection.clone(), key.project.clone());
    Delivery {
        connection: connection.clone(),
        forge_id,
        event_name: what.as_str().to_owned(),
        received_at: at,
        event: Some(ForgeEvent { connection, project, sender: String::new(), kind }),
        state: DeliveryState::Accepted,
    }
}
