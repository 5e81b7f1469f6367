//! One delivery, from what was stored to what it leads to, in one commit.

use crate::attributes::Said;
use crate::commits::OnCommit;
use crate::fit::fit;
use crate::images::Asked;
use crate::needs::Seen;
use crate::over::is_unshown;
use crate::route::{News, Routed};
use crate::sweep::{Gap, MADE_UP};
use crate::told;
use crate::zuul::What;
use crate::{Intake, again};
use sluice_forge::{ForgeError, Verdict};
use sluice_gate::Arrival;
use sluice_gate::filter::Detail;
use sluice_model::change::{ChangeFacts, ChangeKey, ChangeStatus, RefMove};
use sluice_model::event::{EventKind, ForgeEvent};
use sluice_model::gerrit::GerritEvent;
use sluice_model::poke::Poke;
use sluice_model::{BranchName, DeliveryId, ProjectName, QueueKey, TenantName, Timestamp};
use sluice_records::codec::{decode, expiry, get, with_body};
use sluice_records::delivery::{self, Delivery, DeliveryState};
use sluice_records::tenant::{self, Early, Waiting};
use sluice_records::{change, open, queue};
use sluice_runtime::batch::{Heard, LookError};
use sluice_runtime::record::{Due, Expect, Key, Record, Write};
use sluice_runtime::{Commit, Saved, cell};
use std::collections::BTreeMap;

/// Writes that fit into one commit beside the head (the limit of DynamoDB's TransactWriteItems is
/// 100).
const OTHERS_MAX: usize = 99;

/// Writes after which further tenants are told by another commit: a tenant has some for each of its
/// pipelines, and what is known of a change has its own.
const FULL: usize = 60;

/// Commits that tell tenants of one event.
const PARTS_MAX: usize = 1_000;

/// Milliseconds within which a forge may tell of a change, or a ref, that it does not show yet.
pub(crate) const SHOWN_MILLIS: u64 = 60_000;

/// The most effects a delivery's record tells.
const EFFECTS_MAX: usize = 20;

/// Something that came about a change.
#[derive(Clone, Copy)]
pub(crate) struct Told<'a> {
    /// What.
    pub(crate) event: &'a ForgeEvent,
    /// Whether a sweep found it.
    pub(crate) is_made_up: bool,
}

/// What comes of looking at a delivery.
#[expect(clippy::large_enum_variant, reason = "one is made for each look and taken apart at once")]
pub(crate) enum Outcome {
    /// It leads to this.
    Leads(Effects),
    /// It can never lead to anything, for this reason.
    Fails(String),
    /// It is too early for a tenant, for this reason.
    Waits {
        /// Why.
        why: String,
        /// The tenant, which pokes it when its next layout is live; none for what the sweep of what
        /// is due brings again.
        tenant: Option<TenantName>,
    },
}

/// What a delivery leads to; committed with its end.
#[derive(Default)]
pub(crate) struct Effects {
    pub(crate) told: Vec<String>,
    pub(crate) writes: BTreeMap<Key, Write>,
    pub(crate) pokes: Vec<Poke>,
    /// Which tenants are told by the next commit, for which this one has no place.
    pub(crate) rest: Option<Rest>,
}

/// Tenants that are told by a further commit.
pub(crate) struct Rest {
    /// The last one that was told by this.
    pub(crate) after: TenantName,
    /// What they are told.
    pub(crate) kind: EventKind,
    /// Whether it counts for triggers.
    pub(crate) is_news: bool,
    /// The branches that the change was for before.
    pub(crate) formerly: Vec<BranchName>,
}

impl Rest {
    /// Returns the state of the delivery until they are told; what came stands in it already.
    fn state(self, came: Option<&EventKind>) -> DeliveryState {
        let Self { after, kind, is_news, formerly } = self;
        let kind = (came != Some(&kind)).then(|| Box::new(kind));
        DeliveryState::Partly { after, kind, is_news, formerly }
    }
}

impl Effects {
    pub(crate) fn tell(&mut self, effect: String) {
        if self.told.len() < EFFECTS_MAX {
            self.told.push(effect);
        }
    }

    pub(crate) fn write(&mut self, write: Write) {
        self.writes.insert(write.key().clone(), write);
    }

    /// Returns whether a commit may have no place for what another tenant is told.
    pub(crate) fn is_full(&self) -> bool {
        self.writes.len() >= FULL
    }

    pub(crate) fn arrive(&mut self, queue: &QueueKey, arrival: &Arrival) -> Result<(), LookError> {
        for part in fit(arrival) {
            match queue::put_arrival(queue, &part) {
                Ok(write) => self.write(write),
                // It would be as large the next time, and the delivery come again for ever.
                Err(error) => {
                    tracing::error!(%queue, %error, "a queue cannot be told");
                    let QueueKey { tenant, pipeline, .. } = queue;
                    self.tell(format!(
                        "failed: pipeline {pipeline} of tenant {tenant} cannot be told: it is too large"
                    ));
                }
            }
        }
        self.pokes.push(Poke::Queue { queue: queue.clone() });
        Ok(())
    }

    /// Stores a delivery of ours, due by itself, with the poke that has it handled; once, whoever
    /// else stores it.
    pub(crate) fn deliver(&mut self, delivery: &Delivery) -> Result<DeliveryId, LookError> {
        let (id, record, poke) =
            delivery::pending(delivery, delivery.received_at.plus_seconds(60))?;
        self.write(Write::Put { record, expect: Expect::Absent });
        self.pokes.push(poke);
        Ok(id)
    }

    /// Has a tenant read a project's configuration again, and a delivery go on when it has.
    pub(crate) fn read_then(
        &mut self,
        tenant: &TenantName,
        project: &ProjectName,
        waiting: Waiting,
    ) -> Result<(), LookError> {
        // So that it goes on in its turn even where the tenant is done before the first look at it.
        let early = Early { waiting: waiting.clone(), project: project.clone() };
        self.write(tenant::put_waiting(tenant, &early, 1)?);
        let mark = tenant::put_dirty_then(tenant, project, waiting)?;
        self.write(tenant::put_pushed(tenant, project, mark.key())?);
        self.write(mark);
        self.pokes.push(Poke::Tenant { tenant: tenant.clone() });
        Ok(())
    }
}

impl Intake {
    /// Handles one delivery. Safe to run twice: it ends in one commit on the delivery's own record.
    /// Where that has no place for all tenants that it concerns there are several, each on that
    /// record, which says who was told; only the last one ends it.
    pub(crate) async fn handle(&self, id: &DeliveryId, heard: Heard) -> Result<(), LookError> {
        let Some(mut record) = get(&self.ports, &delivery::key(id)).await? else {
            // Its record is gone, so it ended more than a month ago.
            return Ok(());
        };
        for part in 0..PARTS_MAX {
            let delivery: Delivery = decode(&record)?;
            if delivery.state.is_final() {
                if heard == Heard::Again {
                    // The look that ended it may not have sent what it led to.
                    cell::send(&self.ports, &record.outbox).await?;
                }
                return Ok(());
            }
            if part == 0 && matches!(delivery.state, DeliveryState::Partly { .. }) {
                // Nor what it led to so far.
                cell::send(&self.ports, &record.outbox).await?;
            }
            // It holds the poke that led here, and the commit that ends the delivery is what that
            // poke asks for.
            record.outbox.clear();
            let at = self.ports.clock.now();
            let (effects, state) = match self.effects(id, &delivery).await? {
                Outcome::Leads(mut effects) => {
                    let handled = DeliveryState::Handled { effects: effects.told.clone(), at };
                    let came = delivery.event.as_ref().map(|event| &event.kind);
                    let state = effects.rest.take().map_or(handled, |rest| rest.state(came));
                    (effects, state)
                }
                Outcome::Fails(why) => (Effects::default(), DeliveryState::Failed { why, at }),
                Outcome::Waits { why, tenant } => {
                    tracing::info!(delivery = delivery.forge_id, why, "a delivery waits");
                    return match tenant {
                        Some(tenant) => self.wait(id, record, &delivery, &tenant).await,
                        None => Ok(()),
                    };
                }
            };
            let is_over = state.is_final();
            record = self.end(id, record, delivery, effects, state).await?;
            if is_over {
                return Ok(());
            }
        }
        Err(LookError::Again(format!("{id} concerns more tenants than one look tells")))
    }

    /// Works out what the delivery leads to.
    async fn effects(&self, id: &DeliveryId, delivery: &Delivery) -> Result<Outcome, LookError> {
        let Some(event) = &delivery.event else { return Ok(Outcome::Leads(Effects::default())) };
        let mut effects = Effects::default();
        if let DeliveryState::Partly { after, kind, is_news, formerly } = &delivery.state {
            let kind = kind.as_ref().map_or(&event.kind, |kind| kind);
            let event = ForgeEvent { kind: kind.clone(), ..event.clone() };
            let told = (after, delivery.received_at);
            return self.go_on(id, &event, told, (*is_news, formerly), effects).await;
        }
        match &event.kind {
            EventKind::Change { number, .. } | EventKind::Gerrit(GerritEvent { number, .. }) => {
                let key =
                    ChangeKey::change(event.connection.clone(), event.project.clone(), *number);
                let event = Told { event, is_made_up: delivery.event_name == MADE_UP };
                return self.about_change(id, event, &key, delivery.received_at, effects).await;
            }
            EventKind::Commit { head, event: name, action, status, after } => {
                let told = OnCommit { head, event: name, action, status, after: *after };
                return self.on_commit(id, event, told, delivery.received_at, effects).await;
            }
            EventKind::Push { git_ref, oldrev, newrev } => {
                let moved = RefMove::new(git_ref, oldrev.clone(), newrev.clone());
                if let Some(why) = self
                    .pushed(id, event, (&moved, delivery.received_at), None, &mut effects)
                    .await?
                {
                    return Ok(Outcome::Waits { why, tenant: None });
                }
            }
            EventKind::Read { tenant, git_ref, oldrev, newrev, awaited } => {
                let moved = RefMove::new(git_ref, oldrev.clone(), newrev.clone());
                let waits = (tenant, awaited, delivery.received_at);
                return self.after_reading(id, event, waits, &moved, effects).await;
            }
            EventKind::Later { tenant, awaited, kind } => {
                let waits = (tenant, awaited, delivery.received_at);
                let event = ForgeEvent { kind: (**kind).clone(), ..event.clone() };
                return self.kept(id, &event, waits, effects).await;
            }
            EventKind::Happened { tenant, what, pipeline, number, after, after_change } => {
                let after = (*after, after_change.as_ref());
                let what = What { tenant, what: *what, pipeline, number: *number, after };
                return self.happened(id, event, what, delivery.received_at, effects).await;
            }
            EventKind::Zuul { tenant, what, pipeline, number } => {
                let what =
                    What { tenant, what: *what, pipeline, number: *number, after: (0, None) };
                return self.started(id, event, what, delivery.received_at, effects).await;
            }
            EventKind::Enqueue { tenant, pipeline, number, head } => {
                let key =
                    ChangeKey::change(event.connection.clone(), event.project.clone(), *number);
                let forge = match self.forge_if_any(&event.connection).await? {
                    Ok(forge) => forge,
                    Err(why) => return Ok(Outcome::Fails(why)),
                };
                let facts = match forge.read_change(&key).await {
                    Ok(facts) => facts,
                    Err(error) => return final_or_again(error),
                };
                let into = (tenant, pipeline, delivery.received_at);
                return self.enqueue(id, &facts, into, head.as_ref(), effects).await;
            }
            EventKind::EnqueueRef { tenant, pipeline, git_ref, oldrev, newrev } => {
                let moved = RefMove::new(git_ref, oldrev.clone(), newrev.clone());
                let into = (tenant, pipeline, delivery.received_at);
                return self.enqueue_ref(id, event, into, &moved, effects).await;
            }
            EventKind::Timer { tenant, pipeline, branches, dereference, debug } => {
                let of = (tenant, pipeline, delivery.received_at);
                return self
                    .ticked(id, event, of, branches, (*dereference, Detail::of(*debug)), effects)
                    .await;
            }
            EventKind::Image { tenant, what, branch, images } => {
                let asked = Asked { what: *what, branch, images };
                return self
                    .asked_of_images(id, event, (tenant, delivery.received_at), asked, effects)
                    .await;
            }
            // It was removed, or lost its token, since it was to be asked: the next sweep leaves it
            // out.
            EventKind::Sweep if !self.forges.contains_key(&event.connection) => {
                return Ok(Outcome::Fails(format!(
                    "{} has no forge that could be asked",
                    event.connection
                )));
            }
            EventKind::Sweep => {
                if let Err(why) = self.swept(event, delivery.received_at, &mut effects).await? {
                    return Ok(Outcome::Fails(why));
                }
            }
        }
        Ok(Outcome::Leads(effects))
    }

    /// Something came about a change, at this time: it is read, and told. One that its forge does
    /// not show yet is looked at again by the sweep of what is due.
    pub(crate) async fn about_change(
        &self,
        id: &DeliveryId,
        told: Told<'_>,
        key: &ChangeKey,
        came_at: Timestamp,
        mut effects: Effects,
    ) -> Result<Outcome, LookError> {
        let forge = match self.forge_if_any(&key.connection).await? {
            Ok(forge) => forge,
            Err(why) => return Ok(Outcome::Fails(why)),
        };
        match forge.read_change(key).await {
            Ok(facts)
                if is_unshown(told.event, &facts)
                    && self.ports.clock.now().since(came_at) < SHOWN_MILLIS =>
            {
                let why = format!(
                    "its forge shows {} as it was before it was closed or opened again",
                    facts.change
                );
                Ok(Outcome::Waits { why, tenant: None })
            }
            Ok(facts) => Ok(match self.changed(id, told, &facts, &mut effects).await? {
                None => Outcome::Leads(effects),
                Some(why) => Outcome::Waits { why, tenant: None },
            }),
            Err(error) => Ok(match final_or_again(error)? {
                Outcome::Fails(why) if self.ports.clock.now().since(came_at) < SHOWN_MILLIS => {
                    Outcome::Waits { why, tenant: None }
                }
                outcome => outcome,
            }),
        }
    }

    /// A change moved: its facts are kept, and every queue that is concerned is told. Returns why
    /// it is too early for that, if so: the forge's answer may be of before what is known, and is
    /// asked for again by the next sweep of what is due.
    ///
    /// A first word that was lost is made up for: news of a revision nobody told of brings the word
    /// that it came. Told late, or twice, it is no news any more.
    async fn changed(
        &self,
        id: &DeliveryId,
        Told { event, is_made_up }: Told<'_>,
        facts: &ChangeFacts,
        effects: &mut Effects,
    ) -> Result<Option<String>, LookError> {
        let before = self.before(facts).await?;
        if let Some(why) = before.too_early(event, facts) {
            return Ok(Some(why));
        }
        let mut told = before.told.clone().unwrap_or_default().still_true(event, facts);
        let heard = told.hear(event, facts, is_made_up);
        let event = if let Said::Words(words) = &heard { words } else { event };
        let marks = told::marks(event, facts);
        let revision = told::revision(facts);
        if !told.contains(&revision)
            && !marks.contains(&revision)
            && facts.status == ChangeStatus::Open
        {
            let action = if before.told.is_some() { "changed" } else { "opened" };
            let gap = Gap::revision(&facts.change, action);
            self.mend(event, &facts.change, gap, told.taken_back(), facts.seen_at, effects).await?;
        }
        let was_over = before.told.as_ref().is_some_and(told::Told::is_over);
        let is_turn = told.turn(event, facts, (is_made_up, was_over));
        let is_news = told.tell(marks) && heard != Said::Known && is_turn;
        effects.write(change::put_facts(facts)?);
        if !before.tenants.is_empty() || !before.damaged.is_empty() {
            remember_open(&before.open, facts, &told, effects)?;
        }
        told.note(facts);
        let mut seen = Seen::knowing(facts, before.is_needed, told.next_moment(facts));
        let Routed { mut needs, told: count, is_all } =
            self.route(News { id, event, facts, is_news }, &before, &mut seen, effects).await?;
        if is_news {
            self.judge(
                (event, seen.speaker.unwrap_or_default()),
                facts,
                before.verdicts.clone(),
                before.tenants.get(..count).unwrap_or_default(),
                false,
                effects,
            )?;
        }
        if !is_all {
            // What others know of its needs is told with them; what it names no more nobody knows.
            needs.extend(told.needs.iter().filter(|need| self.names(facts, need)).cloned());
        }
        for need in told.needs.difference(&needs) {
            effects.write(change::forget_needed_by(need, &facts.change.key));
        }
        for need in &needs {
            for write in change::put_needed_by(need, &facts.change.key, facts.seen_at)? {
                effects.write(write);
            }
        }
        told.needs = needs;
        effects.write(change::put_told(&facts.change.key, &told, before.told_revision)?);
        Ok(None)
    }

    async fn end(
        &self,
        id: &DeliveryId,
        record: Record,
        mut delivery: Delivery,
        effects: Effects,
        state: DeliveryState,
    ) -> Result<Record, LookError> {
        let now = self.ports.clock.now();
        let due = match state.is_final() {
            true => None,
            false => Some(Due {
                at: now.plus_seconds(60),
                poke: Poke::Delivery { delivery: id.clone(), project: delivery::group(&delivery) },
            }),
        };
        let what = if due.is_some() { "a delivery told some tenants" } else { "a delivery ends" };
        tracing::info!(delivery = delivery.forge_id, event = delivery.event_name, state = ?state, "{what}");
        delivery.state = state;
        let mut head = with_body(record, &delivery)?;
        head.expires_at = due.is_none().then(|| expiry(now));
        delivery::listed(&mut head, id, &delivery);
        // An arrival that is there already came by an earlier delivery of the same fact; it must
        // not fail the commit. A delivery of ours that is there may have ended, and stays as it is.
        // Who read a change while somebody else told of it reads it again.
        let is_proven = |key: &Key| is_delivery(key) || change::is_told(key);
        let others = effects.writes.into_values().map(|write| match write {
            Write::Put { record, .. } if !is_proven(&record.key) => {
                Write::Put { record, expect: Expect::Anything }
            }
            other => other,
        });
        let mut others: Vec<Write> = others.collect();
        if others.len() > OTHERS_MAX {
            // Who needs whom is remembered first: it leads to nothing by itself, and a delivery
            // that comes again writes it again.
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
        let plan =
            Commit { head: head.clone(), others, pokes: effects.pokes.clone(), due: due.clone() };
        let mut saved = cell::commit_and_send(&self.ports, plan).await?;
        if saved == Saved::Stale && stores_any {
            // Somebody else may have stored one of them since it was looked for; they are poked all
            // the same.
            let plan = Commit { head, others: without, pokes: effects.pokes, due };
            saved = cell::commit_and_send(&self.ports, plan).await?;
        }
        match saved {
            Saved::Yes(record) => Ok(record),
            Saved::Stale => Err(LookError::Again(
                "somebody else handles the same delivery, or news of the same change".to_owned(),
            )),
        }
    }
}

/// Remembers a change while it is open, so that its end is looked for where nobody tells of it, and
/// until that was told.
fn remember_open(
    known: &open::Open,
    facts: &ChangeFacts,
    told: &told::Told,
    effects: &mut Effects,
) -> Result<(), LookError> {
    let (key, mut now) = (&facts.change.key, known.clone());
    match facts.status {
        ChangeStatus::Open => now.note(key),
        ChangeStatus::Merged | ChangeStatus::Closed if told.is_over() => now.forget(key),
        ChangeStatus::Merged | ChangeStatus::Closed => {}
    }
    if now != *known {
        effects.write(open::put(&key.project, &now)?);
    }
    Ok(())
}

fn is_delivery(key: &Key) -> bool {
    key.partition.starts_with("delivery#")
}

/// A final refusal ends the delivery with its reason; anything else comes again.
pub(crate) fn final_or_again(error: ForgeError) -> Result<Outcome, LookError> {
    match error.verdict() {
        Verdict::Final => Ok(Outcome::Fails(error.to_string())),
        Verdict::After { .. } | Verdict::Retry => Err(again(error)),
    }
}
