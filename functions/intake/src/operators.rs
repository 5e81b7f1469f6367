//! Operators' words that need a forge: a change or a ref goes into a pipeline, as if an event had
//! put it there.
//!
//! Triggers are not asked, and what is held back of events does not hold it back; what the pipeline
//! requires counts as always.

use crate::Intake;
use crate::before::Order;
use crate::deliver::{Effects, Outcome, final_or_again};
use crate::early::Turn;
use crate::mates::home_of;
use crate::needs::{Needs, Seen, stranger};
use crate::refs::Read;
use crate::route::{Place, ignores_dependencies, in_words, queue_key, told_of};
use sluice_config::pipeline::{Manager, Pipeline};
use sluice_gate::filter::Detail;
use sluice_gate::{Arrival, ArrivalKind, filter};
use sluice_model::change::{ChangeFacts, ChangeRef, ChangeStatus, RefMove};
use sluice_model::event::ForgeEvent;
use sluice_model::git::Oid;
use sluice_model::{DeliveryId, PipelineName, ProjectName, TenantName, Timestamp};
use sluice_records::change;
use sluice_records::layout::Live;
use sluice_runtime::batch::LookError;

/// Who has a change offered to a pipeline.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Asker {
    /// An operator: it enters also while events are paused or discarded.
    Operator,
    /// What a trigger takes, an event or something that happened in another queue, and so much is
    /// told of what enters by it.
    Event(Detail),
}

impl Asker {
    /// Returns how much is told of what enters.
    pub(crate) fn detail(self) -> Detail {
        match self {
            Self::Operator => Detail::Outcome,
            Self::Event(detail) => detail,
        }
    }
}

impl Intake {
    /// Offers a change to the pipeline that an operator names.
    pub(crate) async fn enqueue(
        &self,
        id: &DeliveryId,
        facts: &ChangeFacts,
        (tenant, name, since): (&TenantName, &PipelineName, Timestamp),
        head: Option<&Oid>,
        mut effects: Effects,
    ) -> Result<Outcome, LookError> {
        let change = &facts.change;
        if head.is_some_and(|head| !change.head.as_str().starts_with(head.as_str())) {
            return Ok(Outcome::Fails(format!(
                "{} is at {} by now",
                change.key,
                change.head.short()
            )));
        }
        let before = self.before(facts).await?;
        match self.turn(&before.tenants, &before.damaged, tenant, &change.key.project, since) {
            Turn::Now => {}
            Turn::Later(why) => return Ok(Outcome::Waits { why, tenant: Some(tenant.clone()) }),
            Turn::Never(why) => return Ok(Outcome::Fails(why)),
        }
        let live = before.tenant(tenant).map(|concerned| &concerned.live);
        let (live, pipeline) = match found(live, tenant, name, &change.key.project) {
            Ok(found) => found,
            Err(why) => return Ok(Outcome::Fails(why)),
        };
        let mut seen = Seen::knowing(facts, before.is_needed, before.moment(facts));
        match self
            .offer((id, Asker::Operator), facts, live, pipeline, &mut seen, &mut effects)
            .await?
        {
            Some(why) => Ok(Outcome::Fails(why)),
            None => Ok(Outcome::Leads(effects)),
        }
    }

    /// Offers a change to a pipeline whatever its triggers say. Returns why it does not take it, if
    /// so.
    pub(crate) async fn offer(
        &self,
        (id, asker): (&DeliveryId, Asker),
        facts: &ChangeFacts,
        live: &Live,
        pipeline: &Pipeline,
        seen: &mut Seen,
        effects: &mut Effects,
    ) -> Result<Option<String>, LookError> {
        let change = &facts.change;
        let is_open = facts.status == ChangeStatus::Open;
        let refusal =
            stranger(live, (&change.key.connection, &change.key.project)).or_else(
                || match pipeline.manager {
                    Manager::Dependent if !is_open => {
                        Some("the change is no longer open".to_owned())
                    }
                    // Whatever entered is asked the same before it lands.
                    Manager::Dependent if facts.submittable == Some(false) => {
                        Some(filter::NOT_SUBMITTABLE.to_owned())
                    }
                    _ => filter::refusal(pipeline, facts, self.ports.clock.now()),
                },
            );
        if let Some(why) = refusal {
            return Ok(Some(format!("{change} is not enqueued: {why}")));
        }
        let needs = if is_open {
            self.needs_of(facts, &live.layout, seen).await?
        } else {
            Needs::default()
        };
        // Who asked is told, unlike whoever sent an event.
        if let Some(why) =
            needs.refused.as_ref().filter(|_| needs.is_ignored && !ignores_dependencies(pipeline))
        {
            return Ok(Some(format!("{change} is not enqueued: {why}")));
        }
        let queue = queue_key(live, pipeline, change);
        let refused = needs.refusal(change, &live.layout, pipeline);
        let place = Place { live, pipeline, queue: &queue, listed: &[] };
        let candidates = self.candidates(facts, &needs, refused, &place, seen).await?;
        let candidates = told_of(candidates, change, asker.detail());
        let arrival = self.arrival(id, live, &queue, change, ArrivalKind::Enqueue { candidates });
        let arrival = Arrival { by_operator: asker == Asker::Operator, ..arrival };
        effects.write(change::put_facts(facts)?);
        effects.arrive(&home_of(&arrival, pipeline, &queue), &arrival)?;
        effects.tell(format!("{change} may enter {}", in_words(live, pipeline, change)));
        let asked = (id, asker, &arrival);
        self.offer_mates(asked, facts, &needs, (live, pipeline), seen, effects).await?;
        Ok(None)
    }

    /// Offers a ref to the pipeline that an operator names.
    pub(crate) async fn enqueue_ref(
        &self,
        id: &DeliveryId,
        event: &ForgeEvent,
        (tenant, name, since): (&TenantName, &PipelineName, Timestamp),
        moved: &RefMove,
        mut effects: Effects,
    ) -> Result<Outcome, LookError> {
        let known = self.tenants_with(&event.project, Order::InTurn, &[]).await?;
        match self.turn(&known.tenants, &known.damaged, tenant, &event.project, since) {
            Turn::Now => {}
            Turn::Later(why) => return Ok(Outcome::Waits { why, tenant: Some(tenant.clone()) }),
            Turn::Never(why) => return Ok(Outcome::Fails(why)),
        }
        let live = known.tenant(tenant).map(|concerned| &concerned.live);
        let (live, pipeline) = match found(live, tenant, name, &event.project) {
            Ok(found) => found,
            Err(why) => return Ok(Outcome::Fails(why)),
        };
        let refusal = stranger(live, (&event.connection, &event.project));
        if let Some(why) = refusal.or_else(|| filter::refusal_of_refs(pipeline, &event.connection))
        {
            return Ok(Outcome::Fails(format!("{} is not enqueued: {why}", moved.git_ref)));
        }
        if let Some(forge) = self.forges.get(&event.connection).filter(|_| !moved.is_deleted()) {
            match forge.ref_tip(&event.project, &moved.git_ref).await {
                Ok(Some(_)) => {}
                Ok(None) => return Ok(Outcome::Fails(no_such_ref(&event.project, moved))),
                Err(error) => return final_or_again(error),
            }
        }
        // Without any commit it is tested where it is when its turn comes; nobody can tell that of
        // a tag.
        let read = match (&moved.newrev, &moved.oldrev, moved.branch()) {
            (None, None, Some(_)) => Read::Confirmed(
                ChangeRef::of_ref(event.connection.clone(), event.project.clone(), moved.clone()),
                None,
            ),
            (None, None, None) => {
                return Ok(Outcome::Fails(format!(
                    "say by --newrev which commit {} is at",
                    moved.git_ref
                )));
            }
            _ => self.read_ref(event, moved).await?,
        };
        let change = match read {
            // Whoever asks for it by name wants it, whatever the branch is by now.
            Read::Confirmed(change, _) => change,
            Read::Unshown(why) | Read::Denied(why) => return Ok(Outcome::Fails(why)),
        };
        let offered = (&change, event.sender.as_str(), None);
        self.offer_ref((id, Asker::Operator), offered, (live, pipeline), &mut effects)?;
        Ok(Outcome::Leads(effects))
    }
}

/// Says that a ref is not there, and how to find one that is.
fn no_such_ref(project: &ProjectName, moved: &RefMove) -> String {
    let (what, list) = match (moved.branch(), moved.tag()) {
        (Some(branch), _) => (format!("branch {branch}"), "git ls-remote --heads"),
        (None, Some(tag)) => (format!("tag {tag}"), "git ls-remote --tags"),
        (None, None) => (format!("ref {}", moved.git_ref), "git ls-remote"),
    };
    format!(
        "{} has no {what}; `{list}` lists what is there (a tag is written refs/tags/NAME)",
        project.name()
    )
}

/// Returns the pipeline that is named, if the tenant has it and knows the project.
fn found<'a>(
    live: Option<&'a Live>,
    tenant: &TenantName,
    name: &PipelineName,
    project: &ProjectName,
) -> Result<(&'a Live, &'a Pipeline), String> {
    let live = live.ok_or_else(|| format!("tenant {tenant} does not know {project}"))?;
    let known = || {
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
            format!("tenant {tenant} has no pipeline {name}; it has: {}", known())
        })?,
    ))
}
