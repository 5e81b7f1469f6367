//! Events that came too early: a tenant's configuration was on its way, or could not be read at
//! all.
//!
//! Whatever comes after a push, or after a landing that touches configuration, belongs to what
//! these make: a comment may be for a trigger that has just landed, a tag for a pipeline that was
//! pushed with it. Such an event is kept for that tenant as a delivery of ours; other tenants are
//! told at once. It waits for what was on its way when it came, not for what comes after it, and
//! only so long. The tenant pokes it when its next layout is live; the sweep does, should that be
//! lost.
//!
//! What comes of the same project meanwhile waits behind it, even where its own configuration is
//! live by then: what is decided follows the order in which things happened. Whatever is told pokes
//! the next one that waits behind it.
//!
//! An event waits for configuration of its own project, and for that of others as far as it says
//! where the event leads ([`crate::before`]): jobs are frozen again when a layout becomes live, but
//! what was offered to no pipeline never enters. Between projects there is no order: they are told
//! side by side, or a busy tenant would have them wait for each other one by one.

use crate::Intake;
use crate::before::{Before, Concerned, Damaged, Order};
use crate::deliver::{Effects, Outcome, final_or_again};
use crate::needs::Seen;
use crate::route::{News, Routed};
use sluice_model::change::{ChangeFacts, ChangeKey, RefMove};
use sluice_model::event::{Awaited, Behind, EventKind, ForgeEvent};
use sluice_model::gerrit::GerritEvent;
use sluice_model::poke::Poke;
use sluice_model::{BranchName, DeliveryId, ProjectName, TenantName, Timestamp};
use sluice_records::change;
use sluice_records::codec::decode_foreign;
use sluice_records::delivery::{self, Delivery, DeliveryState};
use sluice_records::tenant::{self, Early, Waiting};
use sluice_runtime::batch::LookError;
use sluice_runtime::record::{Due, Expect, Key, Query, Record, Write};
use sluice_runtime::{Commit, Saved, cell};

/// Milliseconds after which an event is told whatever is live: short of the time after which a
/// delivery counts as unaccounted.
pub(crate) const WAIT_MILLIS: u64 = 480_000;

/// Milliseconds after which an event is told although one of before was not: that one has its turn
/// first, also when it is late.
const ORDER_MILLIS: u64 = WAIT_MILLIS + 30_000;

/// Milliseconds after which nobody waits any more for a tenant that cannot be read.
const DAMAGED_MILLIS: u64 = 86_400_000;

/// Seconds after which an event that waits is looked at again by itself, at first and at most: what
/// waits behind another one is told soon after that was.
const LOOK_SECONDS: (u64, u64) = (60, 600);

/// Deliveries that wait for a tenant among which the next one of a project is looked for; one
/// further behind is due by itself.
const NEXT_MAX: usize = 50;

/// What an event is to a tenant by now.
pub(crate) enum Turn {
    /// It is its turn.
    Now,
    /// It is too early, for this reason.
    Later(String),
    /// It will never be its turn, for this reason.
    Never(String),
}

impl Intake {
    /// Returns what an event that waits for a tenant since this time is to it by now.
    pub(crate) async fn turn_of(
        &self,
        project: &ProjectName,
        name: &TenantName,
        awaited: &Awaited,
        since: Timestamp,
    ) -> Result<Turn, LookError> {
        // The marks first: once they are gone, the tenant's head that is read now is one of after
        // the reading.
        let mut keys: Vec<Key> =
            awaited.marks.iter().map(|mark| Key::new(tenant::partition(name), mark)).collect();
        keys.extend(awaited.behind.iter().map(|behind| delivery::key(&behind.delivery)));
        let found =
            if keys.is_empty() { Vec::new() } else { self.ports.records.get(&keys).await? };
        let is_unread = found.iter().take(awaited.marks.len()).flatten().next().is_some();
        let ahead = found
            .get(awaited.marks.len())
            .and_then(Option::as_ref)
            .and_then(decode_foreign::<Delivery>);
        let is_first = ahead.is_none_or(|ahead| ahead.state.is_final());
        let known = self.tenants_with(project, Order::AtOnce, &[]).await?;
        let waited = self.ports.clock.now().since(since);
        if known.damaged.contains_key(name) {
            return Ok(turn_at_damaged(name, waited));
        }
        let Some(concerned) = known.tenant(name) else {
            return Ok(Turn::Never(format!("tenant {name} does not know {project} any more")));
        };
        let head = &concerned.live.tenant;
        Ok(match () {
            () if waited >= ORDER_MILLIS || (waited >= WAIT_MILLIS && is_first) => Turn::Now,
            () if is_unread => {
                Turn::Later(format!("tenant {name} has not read what was pushed before"))
            }
            () if head.is_reading => Turn::Later(format!("tenant {name} reads on")),
            () if head.layout.live < awaited.layout => {
                Turn::Later(format!("layout {} of tenant {name} is not live yet", awaited.layout))
            }
            () if !is_first => {
                Turn::Later(format!("tenant {name} has not been told what came before"))
            }
            () => Turn::Now,
        })
    }

    /// Returns the same of a delivery that is for one tenant from the beginning, by what is known
    /// of the tenants that have its project.
    pub(crate) fn turn(
        &self,
        tenants: &[Concerned],
        damaged: &Damaged,
        name: &TenantName,
        project: &ProjectName,
        since: Timestamp,
    ) -> Turn {
        let waited = self.ports.clock.now().since(since);
        if damaged.contains_key(name) {
            return turn_at_damaged(name, waited);
        }
        match tenants.iter().find(|concerned| concerned.live.tenant.name == *name) {
            None => Turn::Never(format!("tenant {name} does not know {project}")),
            Some(Concerned { awaited: Some(_), .. }) if waited < WAIT_MILLIS => {
                Turn::Later(format!(
                    "what tenant {name} reads is not live yet, or it was not told what came before"
                ))
            }
            Some(_) => Turn::Now,
        }
    }

    /// Keeps an event about a change for a tenant whose configuration is on its way.
    pub(crate) fn keep_for(
        &self,
        id: &DeliveryId,
        event: &ForgeEvent,
        tenant: &TenantName,
        awaited: Awaited,
        effects: &mut Effects,
    ) -> Result<(), LookError> {
        let is_behind = awaited.behind.is_some() && awaited.layout == 0 && awaited.marks.is_empty();
        let since = self.since(&awaited);
        let kind = EventKind::Later {
            tenant: tenant.clone(),
            awaited,
            kind: Box::new(event.kind.clone()),
        };
        let kept = Delivery {
            connection: event.connection.clone(),
            forge_id: format!("later:{tenant}:{id}"),
            event_name: "later".to_owned(),
            received_at: since,
            event: Some(ForgeEvent { kind, ..event.clone() }),
            state: DeliveryState::Accepted,
        };
        self.keep(&kept, tenant, effects)?;
        effects.tell(match is_behind {
            true => format!("tenant {tenant} is told after what came before"),
            false => format!("tenant {tenant} is told when what it reads is live"),
        });
        Ok(())
    }

    /// Returns since when something waits that comes now: later than what it waits behind, so that
    /// the tenant has them go on in order.
    pub(crate) fn since(&self, awaited: &Awaited) -> Timestamp {
        let now = self.ports.clock.now();
        awaited.behind.as_ref().map_or(now, |behind| now.max(behind.since.plus_millis(1)))
    }

    /// Stores a delivery that waits for a tenant; what comes later of its project waits behind it.
    pub(crate) fn keep(
        &self,
        kept: &Delivery,
        tenant: &TenantName,
        effects: &mut Effects,
    ) -> Result<DeliveryId, LookError> {
        let delivery = effects.deliver(kept)?;
        let (project, since) = (delivery::group(kept), kept.received_at);
        let awaited = match kept.event.as_ref().map(|event| &event.kind) {
            Some(EventKind::Later { awaited, .. } | EventKind::Read { awaited, .. }) => {
                Some(awaited)
            }
            _ => None,
        };
        if awaited.is_some_and(|awaited| awaited.behind.is_some()) {
            // So that what is told before it finds it, also before the first look at it.
            let waiting = Waiting { since, delivery: delivery.clone() };
            effects.write(tenant::put_waiting(
                tenant,
                &Early { waiting, project: project.clone() },
                1,
            )?);
        }
        effects.write(tenant::put_kept(
            tenant,
            &project,
            &Behind { delivery: delivery.clone(), since },
        )?);
        Ok(delivery)
    }

    /// Has what waits behind a delivery that is told go on: the next one of its project is poked.
    /// Nothing waits behind the last that was kept for a tenant.
    pub(crate) async fn let_go(
        &self,
        own: &Waiting,
        concerned: &Concerned,
        project: &ProjectName,
        effects: &mut Effects,
    ) -> Result<(), LookError> {
        let tenant = &concerned.live.tenant.name;
        effects.write(tenant::remove_waiting(tenant, own));
        let last = concerned.awaited.as_ref().and_then(|awaited| awaited.behind.as_ref());
        let Some(last) = last else { return Ok(()) };
        if last.delivery == own.delivery {
            effects.write(Write::Delete {
                key: tenant::kept_key(tenant, project),
                expect: Expect::Anything,
            });
            return Ok(());
        }
        let after = Some(tenant::waiting_key(tenant, own).sort);
        let query =
            Query { after, ..Query::prefix(tenant::partition(tenant), tenant::WAITING, NEXT_MAX) };
        let waiting = self.ports.records.query(&query).await?;
        let mut waiting = waiting.iter().filter_map(decode_foreign::<Early>);
        if let Some(Early { waiting: next, project }) =
            waiting.find(|early| early.project == *project)
        {
            effects.pokes.push(Poke::Delivery { delivery: next.delivery, project });
        }
        Ok(())
    }

    /// Goes on with an event about a change that was kept for a tenant.
    pub(crate) async fn kept(
        &self,
        id: &DeliveryId,
        event: &ForgeEvent,
        (tenant, awaited, since): (&TenantName, &Awaited, Timestamp),
        mut effects: Effects,
    ) -> Result<Outcome, LookError> {
        match self.turn_of(&event.project, tenant, awaited, since).await? {
            Turn::Now => {}
            Turn::Later(why) => return Ok(Outcome::Waits { why, tenant: Some(tenant.clone()) }),
            Turn::Never(why) => return Ok(Outcome::Fails(why)),
        }
        let (key, facts) = match self.read_again(event).await? {
            Ok(read) => read,
            // It was there when the event came.
            Err(Outcome::Fails(why)) if self.ports.clock.now().since(since) < ORDER_MILLIS => {
                return Ok(Outcome::Waits { why, tenant: Some(tenant.clone()) });
            }
            Err(outcome) => return Ok(outcome),
        };
        let mut before = self.before(&facts).await?;
        if let Some(why) = before.too_early(event, &facts) {
            return Ok(Outcome::Waits { why, tenant: Some(tenant.clone()) });
        }
        before.tenants.retain(|concerned| concerned.live.tenant.name == *tenant);
        let own = Waiting { since, delivery: id.clone() };
        for concerned in &mut before.tenants {
            self.let_go(&own, concerned, &event.project, &mut effects).await?;
            // It has waited for what it belongs to; what came after it is nothing to it.
            concerned.awaited = None;
        }
        before.damaged.clear();
        self.tell_some(
            News { id, event, facts: &facts, is_news: true },
            &key,
            before,
            false,
            &mut effects,
        )
        .await?;
        Ok(Outcome::Leads(effects))
    }

    /// Goes on with an event that came then for the tenants that an earlier commit had no place
    /// for. An answer of the forge that is behind what was told the others is waited out, and so is
    /// one that there is no such change.
    pub(crate) async fn go_on(
        &self,
        id: &DeliveryId,
        event: &ForgeEvent,
        (after, came_at): (&TenantName, Timestamp),
        (is_news, formerly): (bool, &[BranchName]),
        mut effects: Effects,
    ) -> Result<Outcome, LookError> {
        if let EventKind::Push { git_ref, oldrev, newrev } = &event.kind {
            let moved = RefMove::new(git_ref, oldrev.clone(), newrev.clone());
            return Ok(
                match self.pushed(id, event, (&moved, came_at), Some(after), &mut effects).await? {
                    None => Outcome::Leads(effects),
                    Some(why) => Outcome::Waits { why, tenant: None },
                },
            );
        }
        let (key, facts) = match self.read_again(event).await? {
            Ok(read) => read,
            // It was there when the others were told.
            Err(Outcome::Fails(why)) if self.ports.clock.now().since(came_at) < WAIT_MILLIS => {
                return Ok(Outcome::Waits { why, tenant: None });
            }
            Err(outcome) => return Ok(outcome),
        };
        let mut before = self.before_of(&facts, formerly).await?;
        if let Some(why) = before.too_early(event, &facts) {
            return Ok(Outcome::Waits { why, tenant: None });
        }
        before.tenants.retain(|concerned| concerned.live.tenant.name > *after);
        before.damaged.retain(|name, _| name > after);
        let is_somewhere = before.verdicts.nowhere.is_none();
        self.tell_some(
            News { id, event, facts: &facts, is_news },
            &key,
            before,
            is_somewhere,
            &mut effects,
        )
        .await?;
        Ok(Outcome::Leads(effects))
    }

    /// Reads the change that an event of ours is about as it is by now; the inner error is how that
    /// ends.
    async fn read_again(
        &self,
        event: &ForgeEvent,
    ) -> Result<Result<(ChangeKey, ChangeFacts), Outcome>, LookError> {
        let (EventKind::Change { number, .. } | EventKind::Gerrit(GerritEvent { number, .. })) =
            &event.kind
        else {
            return Ok(Err(Outcome::Fails("it is about no change".to_owned())));
        };
        let key = ChangeKey::change(event.connection.clone(), event.project.clone(), *number);
        let forge = match self.forge_if_any(&event.connection).await? {
            Ok(forge) => forge,
            Err(why) => return Ok(Err(Outcome::Fails(why))),
        };
        match forge.read_change(&key).await {
            Ok(facts) => Ok(Ok((key, facts))),
            Err(error) => final_or_again(error).map(Err),
        }
    }

    /// Tells some tenants of an event of which others were told before; `is_somewhere` is whether
    /// any of those has a pipeline for it.
    async fn tell_some(
        &self,
        news: News<'_>,
        key: &ChangeKey,
        before: Before,
        is_somewhere: bool,
        effects: &mut Effects,
    ) -> Result<(), LookError> {
        let News { event, facts, is_news, .. } = news;
        let mut seen = Seen::knowing(facts, before.is_needed, before.moment(facts));
        let Routed { needs, told: count, .. } =
            self.route(news, &before, &mut seen, effects).await?;
        if is_news {
            let told = before.tenants.get(..count).unwrap_or_default();
            let said = (event, seen.speaker.unwrap_or_default());
            self.judge(said, facts, before.verdicts.clone(), told, is_somewhere, effects)?;
        }
        effects.write(change::put_facts(facts)?);
        if let Some(mut told) = before.told.filter(|told| !needs.is_subset(&told.needs)) {
            for need in &needs {
                for write in change::put_needed_by(need, key, facts.seen_at)? {
                    effects.write(write);
                }
            }
            told.needs.extend(needs);
            effects.write(change::put_told(key, &told, before.told_revision)?);
        }
        Ok(())
    }

    /// Leaves a delivery for later: the tenant pokes it when its next layout is live, and it is due
    /// by itself.
    pub(crate) async fn wait(
        &self,
        id: &DeliveryId,
        record: Record,
        delivery: &Delivery,
        tenant: &TenantName,
    ) -> Result<(), LookError> {
        let now = self.ports.clock.now();
        let project = delivery::group(delivery);
        let waiting = Waiting { since: delivery.received_at, delivery: id.clone() };
        // Each look at it writes another one: a tenant that poked for an earlier one does not
        // strike off this.
        let early = tenant::put_waiting(
            tenant,
            &Early { waiting, project: project.clone() },
            record.revision + 1,
        )?;
        let waited = now.since(delivery.received_at);
        let in_seconds = if waited < ORDER_MILLIS { LOOK_SECONDS.0 } else { LOOK_SECONDS.1 };
        let due = Due {
            at: now.plus_seconds(in_seconds),
            poke: Poke::Delivery { delivery: id.clone(), project },
        };
        let plan = Commit { head: record, others: vec![early], pokes: Vec::new(), due: Some(due) };
        match cell::commit(&self.ports, plan).await? {
            Saved::Yes(_) => Ok(()),
            Saved::Stale => {
                Err(LookError::Again("somebody else handles the same delivery".to_owned()))
            }
        }
    }
}

/// Returns what an event is to a tenant that cannot be read.
pub(crate) fn turn_at_damaged(name: &TenantName, waited: u64) -> Turn {
    match waited < DAMAGED_MILLIS {
        true => Turn::Later(format!("tenant {name} cannot be read")),
        false => Turn::Never(format!("tenant {name} could not be read for a day")),
    }
}
