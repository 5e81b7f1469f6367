//! Timers: a tick becomes a delivery of ours for each project of the pipeline, and that an item for
//! each of its branches.
//!
//! A delivery's id holds the tick, so that two looks make one; the schedule moves on when all of
//! them are stored.

use crate::Intake;
use crate::again;
use crate::before::Order;
use crate::deliver::{Effects, Outcome};
use crate::early::{Turn, turn_at_damaged};
use crate::operators::Asker;
use sluice_config::tenant::TenantProject;
use sluice_forge::Verdict;
use sluice_gate::filter::Detail;
use sluice_gate::{Fired, Schedule, filter};
use sluice_model::change::{ChangeRef, RefMove};
use sluice_model::event::{EventKind, ForgeEvent};
use sluice_model::poke::Poke;
use sluice_model::{BranchName, DeliveryId, PipelineName, TenantName, Timestamp};
use sluice_records::codec::{decode, get};
use sluice_records::delivery::{self, Delivery, DeliveryState};
use sluice_records::layout::Live;
use sluice_records::schedule;
use sluice_runtime::batch::LookError;
use sluice_runtime::record::{Expect, Key, Record, Write};
use sluice_runtime::{Saved, cell};

/// Branches that one delivery is about; its commit holds an arrival for each.
const BRANCHES_MAX: usize = 40;

/// Deliveries that are stored by one transaction.
const STORED_MAX: usize = 90;

impl Intake {
    /// Looks at a tenant's timers. Safe to run twice: what fired is stored once, then the schedule
    /// moves on.
    pub(crate) async fn tick(&self, tenant: &TenantName) -> Result<(), LookError> {
        let record = get(&self.ports, &schedule::key(tenant)).await?;
        let before: Schedule = match &record {
            Some(record) => decode(record)?,
            None => Schedule::new(tenant.clone()),
        };
        let live = self.layouts.live(&self.ports, tenant).await?;
        let pipelines = live.as_ref().map_or(&[][..], |live| live.layout.pipelines());
        let (after, fired) = before.advance(pipelines, self.ports.clock.now());
        if let Some(live) = &live {
            for fired in &fired {
                self.fire(live, fired).await?;
            }
        }
        if after == before {
            return Ok(());
        }
        match cell::commit(&self.ports, schedule::commit(record, &after)?).await? {
            Saved::Yes(_) => Ok(()),
            Saved::Stale => {
                Err(LookError::Again(format!("somebody else looks at the timers of {tenant}")))
            }
        }
    }

    /// Stores the deliveries of one tick, each once, and has them handled.
    async fn fire(&self, live: &Live, fired: &Fired) -> Result<(), LookError> {
        let projects = &live.layout.tenant().projects;
        let takes_part = |project: &&TenantProject| {
            live.layout.project_pipelines(&project.name).contains(&fired.pipeline)
        };
        let mut told = Vec::new();
        for project in projects.iter().filter(takes_part) {
            let branches = live.layout.branches(&project.name);
            // Each branch is late by itself.
            let most = if fired.jitter_seconds > 0 { 1 } else { BRANCHES_MAX };
            for some in branches.chunks(most) {
                told.push(self.tick_of(live, fired, project, some)?);
            }
        }
        tracing::info!(tenant = %live.tenant.name, pipeline = %fired.pipeline, time = fired.time, deliveries = told.len(), "a timer fires");
        for some in told.chunks(STORED_MAX) {
            let keys: Vec<Key> = some.iter().map(|(record, _)| record.key.clone()).collect();
            let known = self.ports.records.get(&keys).await?;
            let new = some.iter().zip(known).filter(|(_, known)| known.is_none());
            let writes: Vec<Write> = new
                .map(|((record, _), _)| Write::Put {
                    record: record.clone(),
                    expect: Expect::Absent,
                })
                .collect();
            if !writes.is_empty() {
                // Lost means that somebody else stores them too; what is not there is due by
                // nobody, so it is looked at again.
                let token = self.ports.entropy.token();
                if let sluice_runtime::record::Committed::Lost(_) =
                    self.ports.records.commit(writes, &token).await?
                {
                    return Err(LookError::Again(format!(
                        "somebody else stores a tick of {}",
                        fired.pipeline
                    )));
                }
            }
            let pokes: Vec<Poke> = some.iter().filter_map(|(_, poke)| poke.clone()).collect();
            cell::send(&self.ports, &pokes).await?;
        }
        Ok(())
    }

    /// Returns the delivery of a tick for some branches, and the poke that has it handled now
    /// unless it is to be late.
    fn tick_of(
        &self,
        live: &Live,
        fired: &Fired,
        project: &TenantProject,
        branches: &[BranchName],
    ) -> Result<(Record, Option<Poke>), LookError> {
        let first = branches.first().map(BranchName::as_str).unwrap_or_default();
        let (tenant, pipeline) = (&live.tenant.name, &fired.pipeline);
        let delay_seconds =
            branches.first().map_or(0, |branch| fired.delay_seconds(&project.name, branch));
        let told = Delivery {
            connection: project.connection.clone(),
            forge_id: format!(
                "timer:{tenant}:{pipeline}:{}:{}:{}:{first}",
                fired.time, fired.at.0, project.name
            ),
            event_name: "timer".to_owned(),
            // It counts as late from then on.
            received_at: self.ports.clock.now().max(fired.at.plus_seconds(delay_seconds)),
            event: Some(ForgeEvent {
                connection: project.connection.clone(),
                project: project.name.clone(),
                sender: String::new(),
                kind: EventKind::Timer {
                    tenant: tenant.clone(),
                    pipeline: pipeline.clone(),
                    branches: branches.to_vec(),
                    dereference: fired.dereference,
                    debug: fired.detail == Detail::Debug,
                },
            }),
            state: DeliveryState::Accepted,
        };
        let is_late = told.received_at > self.ports.clock.now();
        let at = if is_late { told.received_at } else { told.received_at.plus_seconds(60) };
        let (_, record, poke) = delivery::pending(&told, at)?;
        Ok((record, (!is_late).then_some(poke)))
    }

    /// Enqueues branches as they are.
    pub(crate) async fn ticked(
        &self,
        id: &DeliveryId,
        event: &ForgeEvent,
        (tenant, pipeline, since): (&TenantName, &PipelineName, Timestamp),
        branches: &[BranchName],
        (dereference, detail): (bool, Detail),
        mut effects: Effects,
    ) -> Result<Outcome, LookError> {
        let known = self.tenants_with(&event.project, Order::AtOnce, &[]).await?;
        if known.damaged.contains_key(tenant)
            && let Turn::Later(why) = turn_at_damaged(tenant, self.ports.clock.now().since(since))
        {
            return Ok(Outcome::Waits { why, tenant: Some(tenant.clone()) });
        }
        // While configuration is on its way it is the tick of what was live; the queue takes it in
        // under what will be.
        let Some(live) = known.tenant(tenant).map(|concerned| &concerned.live) else {
            effects.tell(format!("tenant {tenant} does not know {} any more", event.project));
            return Ok(Outcome::Leads(effects));
        };
        let takes_part = live.layout.project_pipelines(&event.project).contains(pipeline);
        let Some(pipeline) = live.layout.pipeline(pipeline.as_str()).filter(|_| takes_part) else {
            effects.tell(format!("{} is not in {pipeline} any more", event.project));
            return Ok(Outcome::Leads(effects));
        };
        if let Some(why) = filter::refusal_of_refs(pipeline, &event.connection) {
            effects.tell(why);
            return Ok(Outcome::Leads(effects));
        }
        for branch in branches {
            let mut moved = RefMove::standing(branch);
            // Where nobody can be asked, it is what the branch is when its turn comes.
            if dereference && let Some(forge) = self.forges.get(&event.connection) {
                match forge.ref_tip(&event.project, &moved.git_ref).await {
                    Ok(Some(tip)) => moved.newrev = Some(tip.id),
                    Ok(None) => continue,
                    // The other branches have their tick all the same.
                    Err(error) if error.verdict() == Verdict::Final => {
                        effects.tell(format!("{branch} is not enqueued: {error}"));
                        continue;
                    }
                    Err(error) => return Err(again(error)),
                }
            }
            let change = ChangeRef::of_ref(event.connection.clone(), event.project.clone(), moved);
            self.offer_ref(
                (id, Asker::Event(detail)),
                (&change, "", None),
                (live, pipeline),
                &mut effects,
            )?;
        }
        Ok(Outcome::Leads(effects))
    }
}
