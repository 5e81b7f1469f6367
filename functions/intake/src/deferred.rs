//! Deferred events: events that wait until a tenant's configuration is live, or the tenant can be
//! read.
//!
//! An event after a push, or after a landing that touches configuration, belongs to the
//! configuration that these produce: a comment may match a trigger that has just landed, a tag a
//! pipeline that was pushed with it. Such an event is stored as a delivery of its own for that
//! tenant; other tenants process it at once. It waits for the configuration that was pending when
//! it came, not for later changes, and only for a limited time. The tenant wakes it when its next
//! layout is live; its due time does if that wakeup is lost.
//!
//! Later events of the same project wait behind it, even if their own configuration is live
//! already: decisions follow the order of events. Processing one deferred event wakes the next one.
//!
//! An event waits for configuration of its own project, and of other projects as far as they decide
//! where the event goes ([`crate::change_context`]). Jobs are frozen again when a layout becomes
//! live, but a change that was offered to no pipeline would never enter one. There is no order
//! between projects: their events are processed in parallel, because a busy tenant would otherwise
//! process one at a time.

use crate::Intake;
use crate::change_context::{ChangeContext, ConcernedTenant, EventOrder, UnreadableTenants};
use crate::dependencies::ChangeCache;
use crate::process_delivery::{DeliveryOutcome, Effects, final_or_retry};
use crate::pushes::ReceivedMove;
use crate::route::{Routed, RoutedEvent};
use crate::trigger_outcomes::AuthoredEvent;
use sluice_model::change::{ChangeFacts, ChangeKey, RefMove};
use sluice_model::event::{DeferredPredecessor, EventKind, ForgeEvent, PendingConfig};
use sluice_model::gerrit::GerritEvent;
use sluice_model::wakeup::Wakeup;
use sluice_model::{BranchName, DeliveryId, ProjectName, TenantName, Timestamp};
use sluice_records::change;
use sluice_records::codec::decode_or_log;
use sluice_records::delivery::{self, DeliveryRecord, DeliveryState};
use sluice_records::tenant::{self, DeferredDelivery, DeferredWakeup};
use sluice_runtime::batch::ReconcileError;
use sluice_runtime::record::{Due, Expect, Key, Query, Record, Write};
use sluice_runtime::{CellCommit, CommitOutcome, cell};

/// How long in milliseconds an event waits for a layout at most. Shorter than the time after which
/// the sweep reports a delivery as unprocessed.
pub(crate) const WAIT_MILLIS: u64 = 480_000;

/// How long in milliseconds an event waits for the event it is deferred behind. That one comes
/// first even if it is late.
const ORDER_MILLIS: u64 = WAIT_MILLIS + 30_000;

/// How long in milliseconds events wait for a tenant that cannot be read.
const DAMAGED_MILLIS: u64 = 86_400_000;

/// Seconds until a deferred event is processed again by itself, at first and later. Normally the
/// event before it wakes it.
const RETRY_SECONDS: (u64, u64) = (60, 600);

/// The most waiting deliveries of a tenant among which the next one of a project is searched. One
/// further back comes by its due time.
const NEXT_MAX: usize = 50;

/// Whether a deferred event may be processed for a tenant.
pub(crate) enum Readiness {
    /// It may be processed.
    Ready,
    /// It has to wait, for this reason.
    NotYet(String),
    /// It will never be processed, for this reason.
    Never(String),
}

/// The tenant for which an event was deferred, and what the event waits for.
#[derive(Clone, Copy)]
pub(crate) struct DeferredFor<'a> {
    /// The tenant.
    pub(crate) tenant: &'a TenantName,
    /// The configuration that was pending when the event arrived.
    pub(crate) awaited: &'a PendingConfig,
    /// Since when the event waits.
    pub(crate) since: Timestamp,
}

/// The rest of an event's routing, for which earlier commits had no room.
#[derive(Clone, Copy)]
pub(crate) struct RemainingRouting<'a> {
    /// The last tenant that was processed; the others follow in order of name.
    pub(crate) after: &'a TenantName,
    /// When the event was received.
    pub(crate) came_at: Timestamp,
    /// Whether the event is new, so that it may trigger pipelines.
    pub(crate) is_new: bool,
    /// The branches that the change targeted before.
    pub(crate) former_branches: &'a [BranchName],
}

impl Intake {
    /// Returns whether an event that was deferred at `since` may be processed for the tenant now.
    /// It waits while an awaited push is unread, the tenant is reading configuration, the awaited
    /// layout is not live, the event before it is not processed, or the tenant cannot be read.
    /// After [`WAIT_MILLIS`], and after [`ORDER_MILLIS`] if the event before it is not processed,
    /// it may be processed anyway. It is dropped if the tenant no longer has the project, or could
    /// not be read for a day.
    pub(crate) async fn deferred_readiness(
        &self,
        project: &ProjectName,
        name: &TenantName,
        awaited: &PendingConfig,
        since: Timestamp,
    ) -> Result<Readiness, ReconcileError> {
        // The marks are read first: once they are gone, the tenant's head that is read next is
        // newer than its reading.
        let mut keys: Vec<Key> =
            awaited.pushes.iter().map(|mark| Key::new(tenant::partition(name), mark)).collect();
        keys.extend(awaited.predecessor.iter().map(|behind| delivery::key(&behind.delivery)));
        let found =
            if keys.is_empty() { Vec::new() } else { self.ports.records.get(&keys).await? };
        let is_unread = found.iter().take(awaited.pushes.len()).flatten().next().is_some();
        let ahead = found
            .get(awaited.pushes.len())
            .and_then(Option::as_ref)
            .and_then(decode_or_log::<DeliveryRecord>);
        let is_first = ahead.is_none_or(|ahead| ahead.state.is_final());
        let project_tenants = self.tenants_with(project, EventOrder::Immediate, &[]).await?;
        let waited = self.ports.clock.now().since(since);
        if project_tenants.unreadable.contains_key(name) {
            return Ok(unreadable_readiness(name, waited));
        }
        let Some(concerned) = project_tenants.tenant(name) else {
            return Ok(Readiness::Never(format!(
                "tenant {name} no longer has the project {project}"
            )));
        };
        let head = &concerned.live.tenant;
        Ok(match () {
            () if waited >= ORDER_MILLIS || (waited >= WAIT_MILLIS && is_first) => Readiness::Ready,
            () if is_unread => {
                Readiness::NotYet(format!("tenant {name} has not read an earlier push yet"))
            }
            () if head.is_reading => {
                Readiness::NotYet(format!("tenant {name} is still reading its configuration"))
            }
            () if head.layout.live < awaited.layout => Readiness::NotYet(format!(
                "layout {} of tenant {name} is not live yet",
                awaited.layout
            )),
            () if !is_first => Readiness::NotYet(format!(
                "an earlier event of the project is still deferred for tenant {name}"
            )),
            () => Readiness::Ready,
        })
    }

    /// Returns whether a delivery for a single tenant, received at `since`, may be processed. It
    /// waits while the tenant cannot be read, and at most [`WAIT_MILLIS`] for pending configuration
    /// or earlier deferred events. It is dropped if the tenant does not have the project, or could
    /// not be read for a day. `tenants` and `unreadable` are the tenants with its project, read
    /// with [`EventOrder::AfterDeferred`].
    pub(crate) fn tenant_readiness(
        &self,
        tenants: &[ConcernedTenant],
        unreadable: &UnreadableTenants,
        name: &TenantName,
        project: &ProjectName,
        since: Timestamp,
    ) -> Readiness {
        let waited = self.ports.clock.now().since(since);
        if unreadable.contains_key(name) {
            return unreadable_readiness(name, waited);
        }
        match tenants.iter().find(|concerned| concerned.live.tenant.name == *name) {
            None => Readiness::Never(format!("tenant {name} does not have the project {project}")),
            Some(ConcernedTenant { awaited: Some(_), .. }) if waited < WAIT_MILLIS => {
                Readiness::NotYet(format!(
                    "tenant {name} is reading its configuration, or an earlier event is still deferred"
                ))
            }
            Some(_) => Readiness::Ready,
        }
    }

    /// Adds to `effects` a delivery of its own for the event and the tenant, to be processed when
    /// what it awaits is done, and a log line. Later events of the project wait behind it. `id` is
    /// the delivery of the event itself.
    pub(crate) fn defer_event(
        &self,
        id: &DeliveryId,
        event: &ForgeEvent,
        tenant: &TenantName,
        awaited: PendingConfig,
        effects: &mut Effects,
    ) -> Result<(), ReconcileError> {
        let is_behind =
            awaited.predecessor.is_some() && awaited.layout == 0 && awaited.pushes.is_empty();
        let since = self.deferral_time(&awaited);
        let kind = EventKind::Deferred {
            tenant: tenant.clone(),
            awaited,
            kind: Box::new(event.kind.clone()),
        };
        let deferred = DeliveryRecord {
            connection: event.connection.clone(),
            forge_id: format!("later:{tenant}:{id}"),
            event_name: "later".to_owned(),
            received_at: since,
            event: Some(ForgeEvent { kind, ..event.clone() }),
            state: DeliveryState::Accepted,
        };
        self.store_deferred(&deferred, tenant, effects)?;
        effects.log(match is_behind {
            true => format!("deferred for tenant {tenant} until its earlier events are processed"),
            false => format!(
                "deferred for tenant {tenant} until the configuration it is reading is live"
            ),
        });
        Ok(())
    }

    /// Returns the time to store as the start of a deferral: now, but later than that of the
    /// predecessor, so that the tenant wakes deferred events in order.
    pub(crate) fn deferral_time(&self, awaited: &PendingConfig) -> Timestamp {
        let now = self.ports.clock.now();
        awaited.predecessor.as_ref().map_or(now, |behind| now.max(behind.since.plus_millis(1)))
    }

    /// Adds to `effects` a deferred delivery for a tenant, makes it the last one of its project, so
    /// that later events wait behind it, and returns its id. Its `received_at` must come from
    /// [`Self::deferral_time`]. If it waits behind another one, a record by which that one wakes it
    /// is added, too.
    pub(crate) fn store_deferred(
        &self,
        deferred: &DeliveryRecord,
        tenant: &TenantName,
        effects: &mut Effects,
    ) -> Result<DeliveryId, ReconcileError> {
        let delivery = effects.store_delivery(deferred)?;
        let (project, since) = (delivery::ordering_project(deferred), deferred.received_at);
        let awaited = match deferred.event.as_ref().map(|event| &event.kind) {
            Some(EventKind::Deferred { awaited, .. } | EventKind::DeferredPush { awaited, .. }) => {
                Some(awaited)
            }
            _ => None,
        };
        if awaited.is_some_and(|awaited| awaited.predecessor.is_some()) {
            // The event before it finds this record and wakes the delivery, even before intake
            // first processes it.
            let waiting = DeferredDelivery { since, delivery: delivery.clone() };
            effects.write(tenant::put_deferred(
                tenant,
                &DeferredWakeup { waiting, project: project.clone() },
                1,
            )?);
        }
        effects.write(tenant::put_last_deferred(
            tenant,
            &project,
            &DeferredPredecessor { delivery: delivery.clone(), since },
        )?);
        Ok(delivery)
    }

    /// Adds to `effects` the removal of the records of `own`, and the wakeup of the project's next
    /// deferred event after it, which is read from the store here. `concerned` says only which
    /// event was deferred last: it must have been read with [`EventOrder::AfterDeferred`], and its
    /// `awaited` must not have been cleared yet. No event is woken if `own` is the last one, or no
    /// unprocessed one is stored. A next event behind [`NEXT_MAX`] or more other deliveries of the
    /// tenant is not found; it comes by its due time.
    pub(crate) async fn wake_next_deferred(
        &self,
        own: &DeferredDelivery,
        concerned: &ConcernedTenant,
        project: &ProjectName,
        effects: &mut Effects,
    ) -> Result<(), ReconcileError> {
        let tenant = &concerned.live.tenant.name;
        effects.write(tenant::remove_deferred(tenant, own));
        let last = concerned.awaited.as_ref().and_then(|awaited| awaited.predecessor.as_ref());
        let Some(last) = last else { return Ok(()) };
        if last.delivery == own.delivery {
            effects.write(Write::Delete {
                key: tenant::last_deferred_key(tenant, project),
                expect: Expect::Anything,
            });
            return Ok(());
        }
        let after = Some(tenant::deferred_key(tenant, own).sort);
        let query =
            Query { after, ..Query::prefix(tenant::partition(tenant), tenant::DEFERRED, NEXT_MAX) };
        let waiting = self.ports.records.query(&query).await?;
        let mut waiting = waiting.iter().filter_map(decode_or_log::<DeferredWakeup>);
        if let Some(DeferredWakeup { waiting: next, project }) =
            waiting.find(|early| early.project == *project)
        {
            effects.wakeups.push(Wakeup::Delivery { delivery: next.delivery, project });
        }
        Ok(())
    }

    /// Processes a deferred event about a change for its tenant and wakes the project's next
    /// deferred one; the caller commits the returned effects. Postpones it again if it has to wait,
    /// if the forge's answer is older than what is stored, or if the forge does not show the change
    /// and it waited less than [`ORDER_MILLIS`]. Fails if it is to be dropped, or if the forge does
    /// not show the change after that; a failure wakes no other event.
    pub(crate) async fn resume_deferred(
        &self,
        id: &DeliveryId,
        event: &ForgeEvent,
        DeferredFor { tenant, awaited, since }: DeferredFor<'_>,
        mut effects: Effects,
    ) -> Result<DeliveryOutcome, ReconcileError> {
        match self.deferred_readiness(&event.project, tenant, awaited, since).await? {
            Readiness::Ready => {}
            Readiness::NotYet(why) => {
                return Ok(DeliveryOutcome::Postponed { why, tenant: Some(tenant.clone()) });
            }
            Readiness::Never(why) => return Ok(DeliveryOutcome::Failed(why)),
        }
        let (key, facts) = match self.reread_change(event).await? {
            Ok(read) => read,
            // The change existed when the event came.
            Err(DeliveryOutcome::Failed(why))
                if self.ports.clock.now().since(since) < ORDER_MILLIS =>
            {
                return Ok(DeliveryOutcome::Postponed { why, tenant: Some(tenant.clone()) });
            }
            Err(outcome) => return Ok(outcome),
        };
        let mut before = self.change_context(&facts).await?;
        if let Some(why) = before.stale_reason(event, &facts) {
            return Ok(DeliveryOutcome::Postponed { why, tenant: Some(tenant.clone()) });
        }
        before.tenants.retain(|concerned| concerned.live.tenant.name == *tenant);
        let own = DeferredDelivery { since, delivery: id.clone() };
        for concerned in &mut before.tenants {
            self.wake_next_deferred(&own, concerned, &event.project, &mut effects).await?;
            // It has waited long enough; events that were deferred after it do not hold it back.
            concerned.awaited = None;
        }
        before.unreadable.clear();
        self.route_remaining(
            RoutedEvent { id, event, facts: &facts, is_new: true },
            &key,
            before,
            false,
            &mut effects,
        )
        .await?;
        Ok(DeliveryOutcome::Processed(effects))
    }

    /// Routes a push, or an event about a change, to the tenants after `after` in order of name,
    /// for which earlier commits had no room; the caller commits the returned effects. Postpones a
    /// push whose move the forge does not show, and an event if the forge's answer is older than
    /// what is stored, or if the forge does not show the change within [`WAIT_MILLIS`] of the
    /// receipt; after that it fails.
    pub(crate) async fn continue_routing(
        &self,
        id: &DeliveryId,
        event: &ForgeEvent,
        RemainingRouting { after, came_at, is_new, former_branches }: RemainingRouting<'_>,
        mut effects: Effects,
    ) -> Result<DeliveryOutcome, ReconcileError> {
        if let EventKind::Push { git_ref, oldrev, newrev } = &event.kind {
            let moved = RefMove::new(git_ref, oldrev.clone(), newrev.clone());
            return Ok(
                match self
                    .process_push(
                        id,
                        event,
                        ReceivedMove { moved: &moved, came_at },
                        Some(after),
                        &mut effects,
                    )
                    .await?
                {
                    None => DeliveryOutcome::Processed(effects),
                    Some(why) => DeliveryOutcome::Postponed { why, tenant: None },
                },
            );
        }
        let (key, facts) = match self.reread_change(event).await? {
            Ok(read) => read,
            // The change existed when the other tenants were processed.
            Err(DeliveryOutcome::Failed(why))
                if self.ports.clock.now().since(came_at) < WAIT_MILLIS =>
            {
                return Ok(DeliveryOutcome::Postponed { why, tenant: None });
            }
            Err(outcome) => return Ok(outcome),
        };
        let mut before = self.change_context_with(&facts, former_branches).await?;
        if let Some(why) = before.stale_reason(event, &facts) {
            return Ok(DeliveryOutcome::Postponed { why, tenant: None });
        }
        before.tenants.retain(|concerned| concerned.live.tenant.name > *after);
        before.unreadable.retain(|name, _| name > after);
        let is_somewhere = before.verdicts.unrouted.is_none();
        self.route_remaining(
            RoutedEvent { id, event, facts: &facts, is_new },
            &key,
            before,
            is_somewhere,
            &mut effects,
        )
        .await?;
        Ok(DeliveryOutcome::Processed(effects))
    }

    /// Reads from the forge the change that an event is about. The inner error is the outcome with
    /// which the delivery ends: the event is about no change, the connection does not lead to a
    /// forge, or the forge refuses for good.
    async fn reread_change(
        &self,
        event: &ForgeEvent,
    ) -> Result<Result<(ChangeKey, ChangeFacts), DeliveryOutcome>, ReconcileError> {
        let (EventKind::Change { number, .. } | EventKind::Gerrit(GerritEvent { number, .. })) =
            &event.kind
        else {
            return Ok(Err(DeliveryOutcome::Failed("the event is not about a change".to_owned())));
        };
        let key = ChangeKey::change(event.connection.clone(), event.project.clone(), *number);
        let forge = match self.find_forge(&event.connection).await? {
            Ok(forge) => forge,
            Err(why) => return Ok(Err(DeliveryOutcome::Failed(why))),
        };
        match forge.read_change(&key).await {
            Ok(facts) => Ok(Ok((key, facts))),
            Err(error) => final_or_retry(error).map(Err),
        }
    }

    /// Adds to `effects` the routing of an event to the tenants in `before`, after other tenants
    /// got it, and the change's facts. For a new event it also adds the trigger outcomes, and for a
    /// change that was seen before its new dependencies. `is_somewhere` is true when one of the
    /// other tenants has a pipeline for the change.
    async fn route_remaining(
        &self,
        routed_event: RoutedEvent<'_>,
        key: &ChangeKey,
        before: ChangeContext,
        is_somewhere: bool,
        effects: &mut Effects,
    ) -> Result<(), ReconcileError> {
        let RoutedEvent { event, facts, is_new, .. } = routed_event;
        let mut cache = ChangeCache::knowing(facts, before.is_needed, before.moment(facts));
        let Routed { needs, tenants: count, requests, .. } =
            self.route(routed_event, &before, &mut cache, effects).await?;
        if is_new {
            let seen = before.tenants.get(..count).unwrap_or_default();
            let authored_event = AuthoredEvent { event, author: cache.speaker.unwrap_or_default() };
            let write = self.trigger_outcomes_write(
                authored_event,
                facts,
                before.verdicts.clone(),
                &requests,
                seen,
                is_somewhere,
            )?;
            effects.write(write);
        }
        effects.write(change::put_facts(facts)?);
        if let Some(mut seen) = before.seen.filter(|seen| !needs.is_subset(&seen.needs)) {
            for need in &needs {
                for write in change::put_needed_by(need, key, facts.seen_at)? {
                    effects.write(write);
                }
            }
            seen.needs.extend(needs);
            effects.write(change::put_seen_events(key, &seen, before.seen_revision)?);
        }
        Ok(())
    }

    /// Postpones a delivery in a commit of its own: the tenant wakes it when its next layout is
    /// live, and it gets a due time ([`RETRY_SECONDS`]). `record` is the delivery's record to
    /// write. The error is a retry if another run wrote the delivery meanwhile.
    pub(crate) async fn postpone(
        &self,
        id: &DeliveryId,
        record: Record,
        delivery: &DeliveryRecord,
        tenant: &TenantName,
    ) -> Result<(), ReconcileError> {
        let now = self.ports.clock.now();
        let project = delivery::ordering_project(delivery);
        let waiting = DeferredDelivery { since: delivery.received_at, delivery: id.clone() };
        // Each run writes another revision: a tenant that woke an earlier one does not remove this
        // one.
        let early = tenant::put_deferred(
            tenant,
            &DeferredWakeup { waiting, project: project.clone() },
            record.revision + 1,
        )?;
        let waited = now.since(delivery.received_at);
        let in_seconds = if waited < ORDER_MILLIS { RETRY_SECONDS.0 } else { RETRY_SECONDS.1 };
        let due = Due {
            at: now.plus_seconds(in_seconds),
            wakeup: Wakeup::Delivery { delivery: id.clone(), project },
        };
        let plan =
            CellCommit { head: record, others: vec![early], wakeups: Vec::new(), due: Some(due) };
        match cell::commit(&self.ports, plan).await? {
            CommitOutcome::Written(_) => Ok(()),
            CommitOutcome::Stale => Err(ReconcileError::Retry(
                "the same delivery is being processed concurrently".to_owned(),
            )),
        }
    }
}

/// Returns that an event waits for an unreadable tenant or, once it has waited a day, is dropped.
/// `waited` is in milliseconds.
pub(crate) fn unreadable_readiness(name: &TenantName, waited: u64) -> Readiness {
    match waited < DAMAGED_MILLIS {
        true => Readiness::NotYet(format!("tenant {name} cannot be read")),
        false => Readiness::Never(format!("tenant {name} could not be read for a day")),
    }
}
