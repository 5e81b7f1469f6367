//! Processes one delivery: works out its effects and commits them together with its new state.

use crate::attributes::Novelty;
use crate::closed_changes::is_not_shown_yet;
use crate::commit_statuses::CommitStatusEvent;
use crate::deferred::{DeferredFor, RemainingRouting};
use crate::dependencies::ChangeCache;
use crate::image_events::ImageRequest;
use crate::operator_enqueue::NamedPipeline;
use crate::oversized_messages::split_message;
use crate::pushes::ReceivedMove;
use crate::route::{Routed, RoutedEvent};
use crate::schedule::BranchesToTest;
use crate::seen_events;
use crate::sweep::{MissedEvent, SYNTHESIZED};
use crate::trigger_outcomes::AuthoredEvent;
use crate::zuul_events::QueueEvent;
use crate::{Intake, retry_error};
use sluice_forge::{ErrorClass, ForgeError};
use sluice_gate::InboxMessage;
use sluice_gate::filter::ReportDetail;
use sluice_model::change::{ChangeFacts, ChangeKey, ChangeStatus, RefMove};
use sluice_model::event::{EventKind, ForgeEvent};
use sluice_model::gerrit::GerritEvent;
use sluice_model::wakeup::Wakeup;
use sluice_model::{BranchName, DeliveryId, ProjectName, QueueKey, TenantName, Timestamp};
use sluice_records::codec::{decode, expiry, get, with_body};
use sluice_records::delivery::{self, DeliveryRecord, DeliveryState};
use sluice_records::tenant::{self, DeferredDelivery, DeferredWakeup};
use sluice_records::{change, open_changes, queue};
use sluice_runtime::batch::{Reception, ReconcileError};
use sluice_runtime::record::{Due, Expect, Key, Record, Write};
use sluice_runtime::{CellCommit, CommitOutcome, cell};
use std::collections::BTreeMap;

/// The most writes of one commit besides the head. DynamoDB's TransactWriteItems takes 100.
const OTHERS_MAX: usize = 99;

/// Writes after which no further tenant is added to a commit; the next commit continues with it.
/// One tenant adds a write for each of its pipelines, and the change itself needs a few.
const FULL: usize = 60;

/// The most commits that one delivery is split into.
const PARTS_MAX: usize = 1_000;

/// How long in milliseconds a forge may take until it shows the change or ref that an event is
/// about.
pub(crate) const SHOWN_MILLIS: u64 = 60_000;

/// The most effects that a delivery's record lists.
const EFFECTS_MAX: usize = 20;

/// An event about a change.
#[derive(Clone, Copy)]
pub(crate) struct ChangeEvent<'a> {
    /// The event.
    pub(crate) event: &'a ForgeEvent,
    /// Whether a sweep synthesized it, instead of a webhook delivering it.
    pub(crate) is_synthesized: bool,
}

/// The result of processing a delivery.
#[expect(clippy::large_enum_variant, reason = "one is made for each look and taken apart at once")]
pub(crate) enum DeliveryOutcome {
    /// It was processed and has these effects.
    Processed(Effects),
    /// It failed for good, for this reason.
    Failed(String),
    /// It cannot be processed yet, for this reason.
    Postponed {
        /// Why it cannot be processed yet.
        why: String,
        /// The tenant that wakes the delivery when its next layout is live. `None` when only the
        /// delivery's due time brings it back.
        tenant: Option<TenantName>,
    },
}

/// The effects of a delivery, committed together with its new state.
#[derive(Default)]
pub(crate) struct Effects {
    /// The lines of the delivery's log.
    pub(crate) log: Vec<String>,
    /// The writes by key.
    pub(crate) writes: BTreeMap<Key, Write>,
    /// The messages to send after the commit.
    pub(crate) wakeups: Vec<Wakeup>,
    /// The tenants that did not fit into this commit; the next commit routes the event to them.
    pub(crate) remaining: Option<RemainingTenants>,
}

/// Tenants that did not fit into a commit.
pub(crate) struct RemainingTenants {
    /// The last tenant that this commit routed the event to, in the order of names.
    pub(crate) after: TenantName,
    /// The event that is routed to them.
    pub(crate) kind: EventKind,
    /// Whether the event is new, so that triggers apply to it.
    pub(crate) is_new: bool,
    /// The branches that the change targeted before.
    pub(crate) former_branches: Vec<BranchName>,
}

impl RemainingTenants {
    /// Returns the delivery's state while tenants remain to be processed. The event is stored in it
    /// only if it differs from `received`, the delivery's own.
    fn state(self, received: Option<&EventKind>) -> DeliveryState {
        let Self { after, kind, is_new, former_branches } = self;
        let kind = (received != Some(&kind)).then(|| Box::new(kind));
        DeliveryState::PartlyRouted { after, kind, is_new, former_branches }
    }
}

impl Effects {
    /// Adds a line for the delivery's log; lines after the first [`EFFECTS_MAX`] are dropped.
    pub(crate) fn log(&mut self, effect: String) {
        if self.log.len() < EFFECTS_MAX {
            self.log.push(effect);
        }
    }

    /// Adds a write to the commit; it replaces an earlier one to the same key.
    pub(crate) fn write(&mut self, write: Write) {
        self.writes.insert(write.key().clone(), write);
    }

    /// Returns whether the commit may have no room for the writes of another tenant.
    pub(crate) fn is_full(&self) -> bool {
        self.writes.len() >= FULL
    }

    /// Adds an inbox message for a queue, and the wakeup of its gate. A large message is split; a
    /// part that is still too large is dropped with a line in the log.
    pub(crate) fn send_to_queue(
        &mut self,
        queue: &QueueKey,
        message: &InboxMessage,
    ) -> Result<(), ReconcileError> {
        for part in split_message(message) {
            match queue::put_message(queue, &part) {
                Ok(write) => self.write(write),
                // It would be as large at each retry, so the delivery would be retried forever.
                Err(error) => {
                    tracing::error!(%queue, %error, "an inbox message is too large and was dropped");
                    let QueueKey { tenant, pipeline, .. } = queue;
                    self.log(format!(
                        "failed: the message to pipeline {pipeline} of tenant {tenant} is too large"
                    ));
                }
            }
        }
        self.wakeups.push(Wakeup::Queue { queue: queue.clone() });
        Ok(())
    }

    /// Adds a synthesized or deferred delivery, with a wakeup and a due time, and returns its id.
    /// The caller has made sure that no delivery is stored under this id: if one is, the commit
    /// stores none of its deliveries.
    pub(crate) fn store_delivery(
        &mut self,
        delivery: &DeliveryRecord,
    ) -> Result<DeliveryId, ReconcileError> {
        let (id, record, wakeup) =
            delivery::pending(delivery, delivery.received_at.plus_seconds(60))?;
        self.write(Write::Put { record, expect: Expect::Absent });
        self.wakeups.push(wakeup);
        Ok(id)
    }

    /// Requests that a tenant read a project's configuration again and wake the waiting delivery
    /// afterwards; adds the records for that and the tenant's wakeup. The caller stores the
    /// delivery `waiting` itself.
    pub(crate) fn reread_configuration(
        &mut self,
        tenant: &TenantName,
        project: &ProjectName,
        waiting: DeferredDelivery,
    ) -> Result<(), ReconcileError> {
        // The tenant may finish before intake first processes the delivery: with this record the
        // delivery keeps its place in the order even then.
        let early = DeferredWakeup { waiting: waiting.clone(), project: project.clone() };
        self.write(tenant::put_deferred(tenant, &early, 1)?);
        let mark = tenant::put_push_reread(tenant, project, waiting)?;
        self.write(tenant::put_last_reread(tenant, project, mark.key())?);
        self.write(mark);
        self.wakeups.push(Wakeup::Tenant { tenant: tenant.clone() });
        Ok(())
    }
}

impl Intake {
    /// Processes one delivery and commits its effects with its new state; safe to run twice. Does
    /// nothing if its record expired. If it has ended already, only a redelivery has an effect: the
    /// outbox is sent again. A postponed delivery keeps its state until its due time or its tenant
    /// wakes it. The error is a retry if another run committed first, or if [`PARTS_MAX`] commits
    /// have no room for all tenants.
    ///
    /// Where one commit has no room for all concerned tenants, several follow each other. Each
    /// stores on the delivery's record which tenants are done; only the last one gives it a final
    /// state.
    pub(crate) async fn process_delivery(
        &self,
        id: &DeliveryId,
        reception: Reception,
    ) -> Result<(), ReconcileError> {
        let Some(mut record) = get(&self.ports, &delivery::key(id)).await? else {
            // Its record expired, so it was finished more than a month ago.
            return Ok(());
        };
        for part in 0..PARTS_MAX {
            let delivery: DeliveryRecord = decode(&record)?;
            if delivery.state.is_final() {
                if reception == Reception::Redelivery {
                    // The run that finished it may have failed before it sent the outbox.
                    cell::send(&self.ports, &record.outbox).await?;
                }
                return Ok(());
            }
            if part == 0 && matches!(delivery.state, DeliveryState::PartlyRouted { .. }) {
                // An earlier run may have failed before it sent the outbox of its last commit.
                cell::send(&self.ports, &record.outbox).await?;
            }
            // The outbox holds the wakeup that led here; this run's commit fulfils it.
            record.outbox.clear();
            let at = self.ports.clock.now();
            let (effects, state) = match self.process_event(id, &delivery).await? {
                DeliveryOutcome::Processed(mut effects) => {
                    let handled = DeliveryState::Handled { effects: effects.log.clone(), at };
                    let received = delivery.event.as_ref().map(|event| &event.kind);
                    let state =
                        effects.remaining.take().map_or(handled, |rest| rest.state(received));
                    (effects, state)
                }
                DeliveryOutcome::Failed(why) => {
                    (Effects::default(), DeliveryState::Failed { why, at })
                }
                DeliveryOutcome::Postponed { why, tenant } => {
                    tracing::info!(delivery = delivery.forge_id, why, "the delivery was postponed");
                    return match tenant {
                        Some(tenant) => self.postpone(id, record, &delivery, &tenant).await,
                        None => Ok(()),
                    };
                }
            };
            let is_final = state.is_final();
            record = self.commit_effects(id, record, delivery, effects, state).await?;
            if is_final {
                return Ok(());
            }
        }
        Err(ReconcileError::Retry(format!("{id} concerns more tenants than one run can process")))
    }

    /// Dispatches the delivery's event to the code for its kind and returns the result, without
    /// committing it. A partly routed delivery continues with its remaining tenants; one without an
    /// event has no effects.
    async fn process_event(
        &self,
        id: &DeliveryId,
        delivery: &DeliveryRecord,
    ) -> Result<DeliveryOutcome, ReconcileError> {
        let Some(event) = &delivery.event else {
            return Ok(DeliveryOutcome::Processed(Effects::default()));
        };
        let mut effects = Effects::default();
        if let DeliveryState::PartlyRouted { after, kind, is_new, former_branches } =
            &delivery.state
        {
            let kind = kind.as_ref().map_or(&event.kind, |kind| kind);
            let event = ForgeEvent { kind: kind.clone(), ..event.clone() };
            let remaining = RemainingRouting {
                after,
                came_at: delivery.received_at,
                is_new: *is_new,
                former_branches,
            };
            return self.continue_routing(id, &event, remaining, effects).await;
        }
        match &event.kind {
            EventKind::Change { number, .. } | EventKind::Gerrit(GerritEvent { number, .. }) => {
                let key =
                    ChangeKey::change(event.connection.clone(), event.project.clone(), *number);
                let event =
                    ChangeEvent { event, is_synthesized: delivery.event_name == SYNTHESIZED };
                return self
                    .process_change_event(id, event, &key, delivery.received_at, effects)
                    .await;
            }
            EventKind::Commit { head, event: name, action, status, after } => {
                let status = CommitStatusEvent { head, event: name, action, status, after: *after };
                return self
                    .process_commit_event(id, event, status, delivery.received_at, effects)
                    .await;
            }
            EventKind::Push { git_ref, oldrev, newrev } => {
                let moved = RefMove::new(git_ref, oldrev.clone(), newrev.clone());
                let received = ReceivedMove { moved: &moved, came_at: delivery.received_at };
                if let Some(why) =
                    self.process_push(id, event, received, None, &mut effects).await?
                {
                    return Ok(DeliveryOutcome::Postponed { why, tenant: None });
                }
            }
            EventKind::DeferredPush { tenant, git_ref, oldrev, newrev, awaited } => {
                let moved = RefMove::new(git_ref, oldrev.clone(), newrev.clone());
                let waits = DeferredFor { tenant, awaited, since: delivery.received_at };
                return self.resume_push(id, event, waits, &moved, effects).await;
            }
            EventKind::Deferred { tenant, awaited, kind } => {
                let waits = DeferredFor { tenant, awaited, since: delivery.received_at };
                let event = ForgeEvent { kind: (**kind).clone(), ..event.clone() };
                return self.resume_deferred(id, &event, waits, effects).await;
            }
            EventKind::ZuulBroadcast {
                tenant,
                event: zuul_event,
                pipeline,
                number,
                after,
                after_change,
            } => {
                let after = (*after, after_change.as_ref());
                let trigger =
                    QueueEvent { tenant, event: *zuul_event, pipeline, number: *number, after };
                return self
                    .fan_out_zuul_event(id, event, trigger, delivery.received_at, effects)
                    .await;
            }
            EventKind::Zuul { tenant, event: zuul_event, pipeline, number } => {
                let trigger = QueueEvent {
                    tenant,
                    event: *zuul_event,
                    pipeline,
                    number: *number,
                    after: (0, None),
                };
                return self
                    .process_zuul_event(id, event, trigger, delivery.received_at, effects)
                    .await;
            }
            EventKind::Enqueue { tenant, pipeline, number, head } => {
                let key =
                    ChangeKey::change(event.connection.clone(), event.project.clone(), *number);
                let forge = match self.find_forge(&event.connection).await? {
                    Ok(forge) => forge,
                    Err(why) => return Ok(DeliveryOutcome::Failed(why)),
                };
                let facts = match forge.read_change(&key).await {
                    Ok(facts) => facts,
                    Err(error) => return final_or_retry(error),
                };
                let into = NamedPipeline { tenant, pipeline, since: delivery.received_at };
                return self.enqueue(id, &facts, into, head.as_ref(), effects).await;
            }
            EventKind::EnqueueRef { tenant, pipeline, git_ref, oldrev, newrev } => {
                let moved = RefMove::new(git_ref, oldrev.clone(), newrev.clone());
                let into = NamedPipeline { tenant, pipeline, since: delivery.received_at };
                return self.enqueue_ref(id, event, into, &moved, effects).await;
            }
            EventKind::Timer { tenant, pipeline, branches, dereference, debug } => {
                let of = NamedPipeline { tenant, pipeline, since: delivery.received_at };
                let detail = if *debug { ReportDetail::Debug } else { ReportDetail::Outcome };
                let to_test = BranchesToTest { branches, dereference: *dereference, detail };
                return self.process_timer_event(id, event, of, to_test, effects).await;
            }
            EventKind::Image { tenant, event: image_event, branch, images } => {
                let since = delivery.received_at;
                let request = ImageRequest { tenant, since, event: *image_event, branch, images };
                return self.process_image_event(id, event, request, effects).await;
            }
            EventKind::Sweep => {
                let at = delivery.received_at;
                let outcome = if self.forges.contains_key(&event.connection) {
                    self.sweep_project(event, at, &mut effects).await?
                } else if let Some(server) = self.plain_git(&event.connection).await? {
                    self.poll_refs(event, at, &server, &mut effects).await?
                } else {
                    // The connection was removed or lost its token after this sweep was scheduled.
                    // The next sweep skips it.
                    Err(format!("the connection {} does not lead to a forge", event.connection))
                };
                if let Err(why) = outcome {
                    return Ok(DeliveryOutcome::Failed(why));
                }
            }
        }
        Ok(DeliveryOutcome::Processed(effects))
    }

    /// Processes an event about a change that was received at `came_at`: reads the change from its
    /// forge and routes it; the caller commits the returned effects. Postpones the delivery while
    /// the forge does not show the event's effect or the change, at most [`SHOWN_MILLIS`] after the
    /// receipt, and if the forge's answer is older than what is stored. After that time an event
    /// without visible effect is processed, and a change that the forge does not have is a failure.
    /// It is a failure at once if the connection does not lead to a forge.
    pub(crate) async fn process_change_event(
        &self,
        id: &DeliveryId,
        received: ChangeEvent<'_>,
        key: &ChangeKey,
        came_at: Timestamp,
        mut effects: Effects,
    ) -> Result<DeliveryOutcome, ReconcileError> {
        let forge = match self.find_forge(&key.connection).await? {
            Ok(forge) => forge,
            Err(why) => return Ok(DeliveryOutcome::Failed(why)),
        };
        match forge.read_change(key).await {
            Ok(facts)
                if is_not_shown_yet(received.event, &facts)
                    && self.ports.clock.now().since(came_at) < SHOWN_MILLIS =>
            {
                let why = format!(
                    "the forge still shows {} as it was before it was closed or reopened",
                    facts.change
                );
                Ok(DeliveryOutcome::Postponed { why, tenant: None })
            }
            Ok(facts) => {
                Ok(match self.apply_change_event(id, received, &facts, &mut effects).await? {
                    None => DeliveryOutcome::Processed(effects),
                    Some(why) => DeliveryOutcome::Postponed { why, tenant: None },
                })
            }
            Err(error) => Ok(match final_or_retry(error)? {
                DeliveryOutcome::Failed(why)
                    if self.ports.clock.now().since(came_at) < SHOWN_MILLIS =>
                {
                    DeliveryOutcome::Postponed { why, tenant: None }
                }
                outcome => outcome,
            }),
        }
    }

    /// Adds to `effects` the change's facts, its seen events, its dependencies, its trigger
    /// outcomes, and a message to every queue that the event concerns. Returns a reason, and adds
    /// nothing, if the delivery has to be postponed because the forge's answer may be older than
    /// what is stored; its due time brings it back. An event that was processed before, or is out
    /// of date, starts no pipeline. If an open change has a revision that no event reported, that
    /// event is synthesized.
    async fn apply_change_event(
        &self,
        id: &DeliveryId,
        ChangeEvent { event, is_synthesized }: ChangeEvent<'_>,
        facts: &ChangeFacts,
        effects: &mut Effects,
    ) -> Result<Option<String>, ReconcileError> {
        let before = self.change_context(facts).await?;
        if let Some(why) = before.stale_reason(event, facts) {
            return Ok(Some(why));
        }
        let mut seen = before.seen.clone().unwrap_or_default().without_stale_marks(event, facts);
        let novelty = seen.apply(event, facts, is_synthesized);
        let event = if let Novelty::CommentOnly(words) = &novelty { words } else { event };
        let marks = seen_events::marks(event, facts);
        let revision = seen_events::revision(facts);
        if !seen.contains(&revision)
            && !marks.contains(&revision)
            && facts.status == ChangeStatus::Open
        {
            let action = if before.seen.is_some() { "changed" } else { "opened" };
            let missed = MissedEvent::revision(&facts.change, action);
            self.synthesize(
                event,
                &facts.change,
                missed,
                seen.retractions(),
                facts.seen_at,
                effects,
            )
            .await?;
        }
        let was_ended = before.seen.as_ref().is_some_and(seen_events::SeenEvents::is_ended);
        let context = seen_events::LifecycleContext { is_synthesized, was_ended };
        let is_lifecycle_new = seen.apply_lifecycle(event, facts, context);
        let is_new =
            seen.record_marks(marks) && novelty != Novelty::AlreadySynthesized && is_lifecycle_new;
        effects.write(change::put_facts(facts)?);
        if !before.tenants.is_empty() || !before.unreadable.is_empty() {
            update_open_changes(&before.open, facts, &seen, effects)?;
        }
        seen.update_complete_at(facts);
        let mut cache = ChangeCache::knowing(facts, before.is_needed, seen.next_moment(facts));
        let Routed { mut needs, tenants: count, is_all, requests } = self
            .route(RoutedEvent { id, event, facts, is_new }, &before, &mut cache, effects)
            .await?;
        if is_new {
            let write = self.trigger_outcomes_write(
                AuthoredEvent { event, author: cache.speaker.unwrap_or_default() },
                facts,
                before.verdicts.clone(),
                &requests,
                before.tenants.get(..count).unwrap_or_default(),
                false,
            )?;
            effects.write(write);
        }
        if !is_all {
            // The remaining tenants add their dependencies when they are processed. A dependency
            // that the change does not name any more is dropped.
            needs.extend(seen.needs.iter().filter(|need| self.depends_on(facts, need)).cloned());
        }
        for need in seen.needs.difference(&needs) {
            effects.write(change::forget_needed_by(need, &facts.change.key));
        }
        for need in &needs {
            for write in change::put_needed_by(need, &facts.change.key, facts.seen_at)? {
                effects.write(write);
            }
        }
        seen.needs = needs;
        effects.write(change::put_seen_events(&facts.change.key, &seen, before.seen_revision)?);
        Ok(None)
    }

    /// Commits the effects of a delivery with its new state, sends the messages, and returns the
    /// delivery's new record. Of the puts in `effects`, only those of deliveries and seen events
    /// keep their conditions; the others overwrite. If one of the deliveries in them is stored
    /// already, none of these is stored, but all are woken. If the writes do not fit into one
    /// commit, those of reverse dependencies are committed before, even if the rest then fails. The
    /// error is a retry if another run committed first, or another event of the same change.
    async fn commit_effects(
        &self,
        id: &DeliveryId,
        record: Record,
        mut delivery: DeliveryRecord,
        effects: Effects,
        state: DeliveryState,
    ) -> Result<Record, ReconcileError> {
        let now = self.ports.clock.now();
        let due = match state.is_final() {
            true => None,
            false => Some(Due {
                at: now.plus_seconds(60),
                wakeup: Wakeup::Delivery {
                    delivery: id.clone(),
                    project: delivery::ordering_project(&delivery),
                },
            }),
        };
        let message = if due.is_some() {
            "the delivery was processed for some of its tenants"
        } else {
            "the delivery was processed"
        };
        tracing::info!(delivery = delivery.forge_id, event = delivery.event_name, state = ?state, "{message}");
        delivery.state = state;
        let mut head = with_body(record, &delivery)?;
        head.expires_at = due.is_none().then(|| expiry(now));
        delivery::set_list(&mut head, id, &delivery);
        // An inbox message that is already there came from an earlier delivery of the same fact; it
        // must not fail the commit. A stored delivery of ours may have ended, and stays as it is. A
        // seen-events record that a concurrent delivery changed fails the commit, so that the
        // change is read again.
        let is_proven = |key: &Key| is_delivery(key) || change::is_seen_events(key);
        let others = effects.writes.into_values().map(|write| match write {
            Write::Put { record, .. } if !is_proven(&record.key) => {
                Write::Put { record, expect: Expect::Anything }
            }
            other => other,
        });
        let mut others: Vec<Write> = others.collect();
        if others.len() > OTHERS_MAX {
            // The reverse dependencies are committed first: they have no effect by themselves, and
            // a retry writes them again.
            let (needs, rest): (Vec<Write>, Vec<Write>) =
                others.into_iter().partition(|write| change::is_need(write.key()));
            for some in needs.chunks(OTHERS_MAX) {
                self.ports.records.commit(some.to_vec(), &self.ports.entropy.token()).await?;
            }
            others = rest;
        }
        let mut without = others.clone();
        without.retain(|write| !is_delivery(write.key()));
        let stores_any = without.len() < others.len();
        let plan = CellCommit {
            head: head.clone(),
            others,
            wakeups: effects.wakeups.clone(),
            due: due.clone(),
        };
        let mut saved = cell::commit_and_send(&self.ports, plan).await?;
        if saved == CommitOutcome::Stale && stores_any {
            // A concurrent delivery may have stored one of them since the check; they are woken all
            // the same.
            let plan = CellCommit { head, others: without, wakeups: effects.wakeups, due };
            saved = cell::commit_and_send(&self.ports, plan).await?;
        }
        match saved {
            CommitOutcome::Written(record) => Ok(record),
            CommitOutcome::Stale => Err(ReconcileError::Retry(
                "the same delivery, or another event of the same change, is being processed concurrently".to_owned(),
            )),
        }
    }
}

/// Adds an open change to the list of open ones, so that a sweep finds its end if no webhook
/// reports it. Removes a closed or merged one once its end was processed. Writes to `effects` only
/// if that changes the list.
fn update_open_changes(
    stored: &open_changes::OpenChanges,
    facts: &ChangeFacts,
    seen: &seen_events::SeenEvents,
    effects: &mut Effects,
) -> Result<(), ReconcileError> {
    let (key, mut now) = (&facts.change.key, stored.clone());
    match facts.status {
        ChangeStatus::Open => now.add(key),
        ChangeStatus::Merged | ChangeStatus::Closed if seen.is_ended() => now.remove(key),
        ChangeStatus::Merged | ChangeStatus::Closed => {}
    }
    if now != *stored {
        effects.write(open_changes::put(&key.project, &now)?);
    }
    Ok(())
}

/// Returns whether a key is that of a delivery.
fn is_delivery(key: &Key) -> bool {
    key.partition.starts_with("delivery#")
}

/// Returns a failed outcome if the forge's error is final, otherwise an error that has the message
/// delivered again.
pub(crate) fn final_or_retry(error: ForgeError) -> Result<DeliveryOutcome, ReconcileError> {
    match error.class() {
        ErrorClass::Final => Ok(DeliveryOutcome::Failed(error.to_string())),
        ErrorClass::RedeliverAfter { .. } | ErrorClass::Redeliver => Err(retry_error(error)),
    }
}
