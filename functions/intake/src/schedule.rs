//! Fires timers: each firing becomes a delivery for each project of the pipeline, and that an item
//! for each of its branches.
//!
//! A delivery's id contains the firing time, so two runs make one delivery; the schedule advances
//! once all of them are stored.

use crate::Intake;
use crate::change_context::EventOrder;
use crate::deferred::{Readiness, unreadable_readiness};
use crate::operator_enqueue::{NamedPipeline, Offer, Requester};
use crate::process_delivery::{DeliveryOutcome, Effects};
use crate::pushes::OfferedRef;
use crate::retry_error;
use crate::route::LivePipeline;
use sluice_config::tenant::TenantProject;
use sluice_forge::ErrorClass;
use sluice_gate::filter::ReportDetail;
use sluice_gate::{Schedule, TimerTick, filter};
use sluice_model::change::{ChangeRef, RefMove};
use sluice_model::event::{EventKind, ForgeEvent};
use sluice_model::wakeup::Wakeup;
use sluice_model::{BranchName, DeliveryId, TenantName};
use sluice_records::codec::{decode, get};
use sluice_records::delivery::{self, DeliveryRecord, DeliveryState};
use sluice_records::layout::LiveLayout;
use sluice_records::schedule;
use sluice_runtime::batch::ReconcileError;
use sluice_runtime::record::{Expect, Key, Record, Write};
use sluice_runtime::{CommitOutcome, cell};

/// The most branches of one delivery; its commit writes a message for each.
const BRANCHES_MAX: usize = 40;

/// The most deliveries that one transaction stores.
const STORED_MAX: usize = 90;

/// The branches that a timer enqueues.
pub(crate) struct BranchesToTest<'a> {
    /// The branches.
    pub(crate) branches: &'a [BranchName],
    /// Whether their commits are read from the forge now, not when a build starts.
    pub(crate) dereference: bool,
    /// How detailed the reports are.
    pub(crate) detail: ReportDetail,
}

impl Intake {
    /// Stores the deliveries of a tenant's due timers, then advances its schedule. Safe to run
    /// twice: the deliveries are stored once. Without a live layout nothing fires. The error is a
    /// retry if another run stores them at the same time.
    pub(crate) async fn fire_due_timers(&self, tenant: &TenantName) -> Result<(), ReconcileError> {
        let record = get(&self.ports, &schedule::key(tenant)).await?;
        let before: Schedule = match &record {
            Some(record) => decode(record)?,
            None => Schedule::new(tenant.clone()),
        };
        let live = self.layouts.load_live(&self.ports, tenant).await?;
        let pipelines = live.as_ref().map_or(&[][..], |live| live.layout.pipelines());
        let (after, fired) = before.advance(pipelines, self.ports.clock.now());
        if let Some(live) = &live {
            for fired in &fired {
                self.store_timer_deliveries(live, fired).await?;
            }
        }
        if after == before {
            return Ok(());
        }
        match cell::commit(&self.ports, schedule::commit(record, &after)?).await? {
            CommitOutcome::Written(_) => Ok(()),
            CommitOutcome::Stale => Err(ReconcileError::Retry(format!(
                "the timers of {tenant} are being processed concurrently"
            ))),
        }
    }

    /// Stores the deliveries of one firing of a timer, unless they are stored already, and wakes
    /// intake for those that are not delayed. Each project of the pipeline has one for every
    /// [`BRANCHES_MAX`] branches; with a jitter, each branch has its own. The error is a retry if
    /// another run stores them at the same time.
    async fn store_timer_deliveries(
        &self,
        live: &LiveLayout,
        fired: &TimerTick,
    ) -> Result<(), ReconcileError> {
        let projects = &live.layout.tenant().projects;
        let takes_part = |project: &&TenantProject| {
            live.layout.project_pipelines(&project.name).contains(&fired.pipeline)
        };
        let mut deliveries = Vec::new();
        for project in projects.iter().filter(takes_part) {
            let branches = live.layout.branches(&project.name);
            // Each branch has a jitter of its own.
            let most = if fired.jitter_seconds > 0 { 1 } else { BRANCHES_MAX };
            for some in branches.chunks(most) {
                deliveries.push(self.timer_delivery(live, fired, project, some)?);
            }
        }
        tracing::info!(tenant = %live.tenant.name, pipeline = %fired.pipeline, time = fired.time, deliveries = deliveries.len(), "a timer fires");
        for some in deliveries.chunks(STORED_MAX) {
            let keys: Vec<Key> = some.iter().map(|(record, _)| record.key.clone()).collect();
            let stored = self.ports.records.get(&keys).await?;
            let new = some.iter().zip(stored).filter(|(_, stored)| stored.is_none());
            let writes: Vec<Write> = new
                .map(|((record, _), _)| Write::Put {
                    record: record.clone(),
                    expect: Expect::Absent,
                })
                .collect();
            if !writes.is_empty() {
                // A concurrent writer stored some of them. A delivery that is missing has no due
                // time, so retry.
                let token = self.ports.entropy.token();
                if let sluice_runtime::record::TransactionOutcome::ConditionFailed(_) =
                    self.ports.records.commit(writes, &token).await?
                {
                    return Err(ReconcileError::Retry(format!(
                        "the timer deliveries of {} are being stored concurrently",
                        fired.pipeline
                    )));
                }
            }
            let wakeups: Vec<Wakeup> =
                some.iter().filter_map(|(_, wakeup)| wakeup.clone()).collect();
            cell::send(&self.ports, &wakeups).await?;
        }
        Ok(())
    }

    /// Builds the delivery of a timer's firing for some branches, and the wakeup for it unless it
    /// is delayed; stores nothing. The delay is that of the first branch, so with a jitter there
    /// must be only one.
    fn timer_delivery(
        &self,
        live: &LiveLayout,
        fired: &TimerTick,
        project: &TenantProject,
        branches: &[BranchName],
    ) -> Result<(Record, Option<Wakeup>), ReconcileError> {
        let first = branches.first().map(BranchName::as_str).unwrap_or_default();
        let (tenant, pipeline) = (&live.tenant.name, &fired.pipeline);
        let delay_seconds =
            branches.first().map_or(0, |branch| fired.delay_seconds(&project.name, branch));
        let delivery = DeliveryRecord {
            connection: project.connection.clone(),
            forge_id: format!(
                "timer:{tenant}:{pipeline}:{}:{}:{}:{first}",
                fired.time, fired.at.0, project.name
            ),
            event_name: "timer".to_owned(),
            // Its waiting time counts from then.
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
                    debug: fired.detail == ReportDetail::Debug,
                },
            }),
            state: DeliveryState::Accepted,
        };
        let is_late = delivery.received_at > self.ports.clock.now();
        let at = if is_late { delivery.received_at } else { delivery.received_at.plus_seconds(60) };
        let (_, record, wakeup) = delivery::pending(&delivery, at)?;
        Ok((record, (!is_late).then_some(wakeup)))
    }

    /// Returns the effects that enqueue branches in the pipeline whose timer fired, with their
    /// commits if `dereference` is set; the caller commits them. Postpones the delivery while the
    /// tenant cannot be read, at most a day. Only logs why if the tenant or pipeline no longer has
    /// the project, or does not accept refs; that is no failure. With `dereference`, a branch that
    /// the forge does not have is skipped, and with a log line one that the forge refuses for good.
    /// Without a forge the commits are left open.
    pub(crate) async fn process_timer_event(
        &self,
        id: &DeliveryId,
        event: &ForgeEvent,
        NamedPipeline { tenant, pipeline, since }: NamedPipeline<'_>,
        BranchesToTest { branches, dereference, detail }: BranchesToTest<'_>,
        mut effects: Effects,
    ) -> Result<DeliveryOutcome, ReconcileError> {
        let project_tenants = self.tenants_with(&event.project, EventOrder::Immediate, &[]).await?;
        if project_tenants.unreadable.contains_key(tenant)
            && let Readiness::NotYet(why) =
                unreadable_readiness(tenant, self.ports.clock.now().since(since))
        {
            return Ok(DeliveryOutcome::Postponed { why, tenant: Some(tenant.clone()) });
        }
        // While configuration is being read, the firing belongs to the live one; the queue applies
        // the next one.
        let Some(live) = project_tenants.tenant(tenant).map(|concerned| &concerned.live) else {
            effects.log(format!("tenant {tenant} no longer has the project {}", event.project));
            return Ok(DeliveryOutcome::Processed(effects));
        };
        let takes_part = live.layout.project_pipelines(&event.project).contains(pipeline);
        let Some(pipeline) = live.layout.pipeline(pipeline.as_str()).filter(|_| takes_part) else {
            effects.log(format!("{} is no longer in pipeline {pipeline}", event.project));
            return Ok(DeliveryOutcome::Processed(effects));
        };
        if let Some(why) = filter::refs_refusal(pipeline, &event.connection) {
            effects.log(why);
            return Ok(DeliveryOutcome::Processed(effects));
        }
        for branch in branches {
            let mut moved = RefMove::at_tip(branch);
            // Without a forge, the build uses the branch as it is when it starts.
            if dereference && let Some(forge) = self.forges.get(&event.connection) {
                match forge.ref_tip(&event.project, &moved.git_ref).await {
                    Ok(Some(tip)) => moved.newrev = Some(tip.id),
                    Ok(None) => continue,
                    // The other branches are enqueued all the same.
                    Err(error) if error.class() == ErrorClass::Final => {
                        effects.log(format!("{branch} is not enqueued: {error}"));
                        continue;
                    }
                    Err(error) => return Err(retry_error(error)),
                }
            }
            let change = ChangeRef::of_ref(event.connection.clone(), event.project.clone(), moved);
            let offer = Offer { id, requester: Requester::Event(detail) };
            let offered = OfferedRef { change: &change, author: "", newer_head: None };
            self.offer_ref(offer, offered, LivePipeline { live, pipeline }, &mut effects)?;
        }
        Ok(DeliveryOutcome::Processed(effects))
    }
}
