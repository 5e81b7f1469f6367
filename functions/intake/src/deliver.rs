//! One delivery, from what was stored to what it leads to, in one commit.

use crate::sweep::Gap;
use crate::told;
use crate::{Intake, again};
use sluice_forge::{ForgeError, Verdict};
use sluice_gate::Arrival;
use sluice_model::change::{ChangeFacts, ChangeKey, ChangeStatus};
use sluice_model::event::{EventKind, ForgeEvent};
use sluice_model::git::{BranchKey, Oid};
use sluice_model::poke::Poke;
use sluice_model::{DeliveryId, ProjectName, QueueKey, TenantName};
use sluice_records::codec::{decode, decode_foreign, expiry, get, with_body};
use sluice_records::delivery::{self, Delivery, DeliveryState};
use sluice_records::landing::{self, Harmless};
use sluice_records::{change, queue, tenant};
use sluice_runtime::batch::{Heard, LookError};
use sluice_runtime::record::{Expect, Key, Record, Write};
use sluice_runtime::{Commit, Saved, cell};
use std::collections::BTreeMap;

/// Writes that fit into one commit beside the head (the limit of DynamoDB's TransactWriteItems is 100).
const OTHERS_MAX: usize = 99;

/// The most effects a delivery's record tells.
const EFFECTS_MAX: usize = 20;

/// What a delivery leads to; committed with its end.
#[derive(Default)]
pub(crate) struct Effects {
    pub(crate) told: Vec<String>,
    pub(crate) writes: BTreeMap<Key, Write>,
    pub(crate) pokes: Vec<Poke>,
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

    pub(crate) fn arrive(&mut self, queue: &QueueKey, arrival: &Arrival) -> Result<(), LookError> {
        self.write(queue::put_arrival(queue, arrival)?);
        self.pokes.push(Poke::Queue { queue: queue.clone() });
        Ok(())
    }

    /// Has a tenant read a project's configuration again.
    pub(crate) fn read_again(
        &mut self,
        tenant: &TenantName,
        project: &ProjectName,
        id: &DeliveryId,
    ) -> Result<(), LookError> {
        self.write(tenant::put_dirty(tenant, project, id.as_str())?);
        self.pokes.push(Poke::Tenant { tenant: tenant.clone() });
        Ok(())
    }
}

impl Intake {
    /// Handles one delivery. Safe to run twice: it ends in one commit on the delivery's own record.
    pub(crate) async fn handle(&self, id: &DeliveryId, heard: Heard) -> Result<(), LookError> {
        let Some(mut record) = get(&self.ports, &delivery::key(id)).await? else {
            // Its record is gone, so it ended more than a month ago.
            return Ok(());
        };
        let delivery: Delivery = decode(&record)?;
        if delivery.state.is_final() {
            if heard == Heard::Again {
                // The look that ended it may not have sent what it led to.
                cell::send(&self.ports, &record.outbox).await?;
            }
            return Ok(());
        }
        // It holds the poke that led here, and the commit that ends the delivery is what that poke asks for.
        record.outbox.clear();
        let (effects, state) = match self.effects(id, &delivery).await? {
            Ok(effects) => {
                let handled = DeliveryState::Handled { effects: effects.told.clone(), at: self.ports.clock.now() };
                (effects, handled)
            }
            Err(why) => (Effects::default(), DeliveryState::Failed { why, at: self.ports.clock.now() }),
        };
        self.end(id, record, delivery, effects, state).await
    }

    /// Works out what the delivery leads to; the inner error is final.
    async fn effects(&self, id: &DeliveryId, delivery: &Delivery) -> Result<Result<Effects, String>, LookError> {
        let Some(event) = &delivery.event else { return Ok(Ok(Effects::default())) };
        let mut effects = Effects::default();
        match &event.kind {
            EventKind::Change { number, .. } => {
                let key = ChangeKey::change(event.connection.clone(), event.project.clone(), *number);
                match self.forge(&event.connection)?.read_change(&key).await {
                    Ok(facts) => self.changed(id, event, &facts, &mut effects).await?,
                    Err(error) => return final_or_again(error),
                }
            }
            EventKind::Commit { head, event: name, action, status } => {
                let changes = match self.forge(&event.connection)?.changes_with_head(&event.project, head).await {
                    Ok(changes) => changes,
                    Err(error) => return final_or_again(error),
                };
                for open in changes {
                    let Some(number) = open.key.number() else { continue };
                    let kind = EventKind::Change {
                        number,
                        event: name.clone(),
                        action: action.clone(),
                        comment: None,
                        label: None,
                        state: None,
                        status: Some(status.clone()),
                    };
                    let facts = self.forge(&event.connection)?.read_change(&open.key).await.map_err(again)?;
                    self.changed(id, &ForgeEvent { kind, ..event.clone() }, &facts, &mut effects).await?;
                }
            }
            EventKind::Push { git_ref, oldrev, newrev } => {
                self.pushed(id, event, git_ref, oldrev, newrev, &mut effects).await?;
            }
            EventKind::Sweep => {
                if let Err(why) = self.swept(event, delivery.received_at, &mut effects).await? {
                    return Ok(Err(why));
                }
            }
        }
        Ok(Ok(effects))
    }

    /// A change moved: its facts are kept, and every queue that is concerned is told.
    ///
    /// A first word that was lost is made up for: news of a revision nobody told of brings the word that it came. Told late,
    /// or twice, it is no news any more.
    async fn changed(
        &self,
        id: &DeliveryId,
        event: &ForgeEvent,
        facts: &ChangeFacts,
        effects: &mut Effects,
    ) -> Result<(), LookError> {
        let before = self.before(facts).await?;
        let mut told = before.told.clone().unwrap_or_default().still_true(event, facts);
        let mark = told::mark(event, facts);
        let revision = told::revision(facts);
        if !told.contains(&revision) && mark.as_ref() != Some(&revision) && facts.status == ChangeStatus::Open {
            let action = if before.told.is_some() { "changed" } else { "opened" };
            self.mend(event, &facts.change, Gap::revision(action), told.taken_back(), facts.seen_at, effects).await?;
        }
        let is_news = mark.is_none_or(|mark| told.insert(mark));
        effects.write(change::put_facts(facts)?);
        told.note(facts);
        let needs = self.route(id, event, facts, &before, is_news, effects).await?;
        for need in told.needs.difference(&needs) {
            effects.write(change::forget_needed_by(need, &facts.change.key));
        }
        for need in &needs {
            for write in change::put_needed_by(need, &facts.change.key, facts.seen_at)? {
                effects.write(write);
            }
        }
        told.needs = needs;
        if !before.is_partial {
            // Otherwise it stays news, which the forge's next sweep finds: it is told again until every tenant could hear it.
            effects.write(change::put_told(&facts.change.key, &told)?);
        }
        Ok(())
    }

    /// A branch or tag moved: tenants that read their configuration there look again, unless it moved as a landing of theirs
    /// said it would, from that commit to that tree, and that landing touches no configuration.
    async fn pushed(
        &self,
        id: &DeliveryId,
        event: &ForgeEvent,
        git_ref: &str,
        oldrev: &Oid,
        newrev: &Oid,
        effects: &mut Effects,
    ) -> Result<(), LookError> {
        let Some(branch) = event.kind.pushed_branch() else {
            effects.tell(format!("{git_ref} is no branch: nothing is read there"));
            return Ok(());
        };
        let branch = BranchKey { project: event.project.clone(), branch };
        let (tenants, harmless) = self.tenants_with(&event.project, &landing::harmless_key(&branch, oldrev)).await?;
        if tenants.is_empty() {
            effects.tell(format!("no tenant knows {}", event.project));
        }
        let harmless: Option<Harmless> = harmless.as_ref().and_then(decode_foreign);
        let landed = match harmless {
            Some(harmless) => self.is_tree(event, newrev, &harmless.tree).await.then_some(harmless.tenant),
            None => None,
        };
        for live in tenants {
            let (name, at) = (&live.tenant.name, newrev.short());
            if landed.as_ref() == Some(name) {
                effects
                    .tell(format!("{git_ref} is at {at}, as tenant {name} landed it: its configuration is the same"));
                continue;
            }
            effects.read_again(name, &event.project, id)?;
            effects.tell(format!("{git_ref} is at {at}: tenant {name} reads its configuration again"));
        }
        Ok(())
    }

    /// Returns whether a commit has this tree; a forge that does not say so has not said it.
    async fn is_tree(&self, event: &ForgeEvent, commit: &Oid, tree: &Oid) -> bool {
        let Ok(forge) = self.forge(&event.connection) else { return false };
        match forge.read_commit(&event.project, commit).await {
            Ok(facts) => facts.commit.tree == *tree,
            Err(error) => {
                tracing::info!(%error, "a pushed commit could not be read; its configuration is read again");
                false
            }
        }
    }

    async fn end(
        &self,
        id: &DeliveryId,
        record: Record,
        mut delivery: Delivery,
        effects: Effects,
        state: DeliveryState,
    ) -> Result<(), LookError> {
        let now = self.ports.clock.now();
        tracing::info!(delivery = delivery.forge_id, event = delivery.event_name, state = ?state, "a delivery ends");
        delivery.state = state;
        let mut head = with_body(record, &delivery)?;
        head.expires_at = Some(expiry(now));
        delivery::listed(&mut head, id, &delivery);
        // An arrival that is there already came by an earlier delivery of the same fact; it must not fail the commit.
        let others = effects.writes.into_values().map(|write| match write {
            Write::Put { record, .. } => Write::Put { record, expect: Expect::Anything },
            other => other,
        });
        let mut others: Vec<Write> = others.collect();
        if others.len() > OTHERS_MAX {
            // Who needs whom is remembered first: it leads to nothing by itself, and a delivery that comes again writes it again.
            let (needs, rest): (Vec<Write>, Vec<Write>) =
                others.into_iter().partition(|write| change::is_need(write.key()));
            for some in needs.chunks(OTHERS_MAX) {
                self.ports.records.commit(some.to_vec(), &self.ports.entropy.token()).await?;
            }
            others = rest;
        }
        let plan = Commit { head, others, pokes: effects.pokes, due: None };
        match cell::commit_and_send(&self.ports, plan).await? {
            Saved::Yes(_) => Ok(()),
            Saved::Stale => Err(LookError::Again("somebody else handles the same delivery".to_owned())),
        }
    }
}

/// A final refusal ends the delivery with its reason; anything else comes again.
fn final_or_again(error: ForgeError) -> Result<Result<Effects, String>, LookError> {
    match error.verdict() {
        Verdict::Final => Ok(Err(error.to_string())),
        Verdict::After { .. } | Verdict::Retry => Err(again(error)),
    }
}
