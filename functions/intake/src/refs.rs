//! Pushes: a branch or tag that moved has configuration read again, and reaches the queues of
//! pipelines that ask for it.
//!
//! A tenant that reads its configuration again is asked afterwards, by a delivery of ours that
//! waits for the reading: what a push brings counts for its own jobs. So is one whose configuration
//! is on its way for another reason, of a tag as well.

use crate::Intake;
use crate::again;
use crate::before::{Concerned, Known, Order};
use crate::deliver::{Effects, Outcome, Rest, SHOWN_MILLIS};
use crate::early::Turn;
use crate::lost::{NewTo, had_by};
use crate::needs::{Seen, stranger};
use crate::operators::Asker;
use crate::route::{by_name, in_words, queue_key};
use crate::sweep::{is_by, may_be_known_by};
use sluice_config::pipeline::Pipeline;
use sluice_forge::Verdict;
use sluice_gate::filter::Detail;
use sluice_gate::{Arrival, ArrivalKind, Candidate, filter};
use sluice_model::change::{ChangeRef, RefMove};
use sluice_model::event::{Awaited, EventKind, ForgeEvent};
use sluice_model::git::{BranchKey, Oid};
use sluice_model::{DeliveryId, TenantName, Timestamp};
use sluice_records::codec::decode_foreign;
use sluice_records::delivery::{Delivery, DeliveryState};
use sluice_records::landing::{self, Harmless};
use sluice_records::layout::Live;
use sluice_records::refs;
use sluice_records::tenant::{self, Waiting};
use sluice_runtime::batch::LookError;
use sluice_runtime::record::Key;

/// What the forge says of a ref that is said to have moved.
pub(crate) enum Read {
    /// It did, or may have; with the commit that it has moved on to since.
    Confirmed(ChangeRef, Option<Oid>),
    /// The forge does not show that yet, or no more, for this reason.
    Unshown(String),
    /// Nothing follows from it, for this reason.
    Denied(String),
}

impl Intake {
    /// A branch or tag moved: tenants that read their configuration there look again, unless it
    /// moved as a landing of theirs said it would, from that commit to that tree, and that landing
    /// touches no configuration. Told are all of them, or those after one. Returns why it is too
    /// early for that, if so: it came at this time, and the forge may not show it yet.
    pub(crate) async fn pushed(
        &self,
        id: &DeliveryId,
        event: &ForgeEvent,
        (moved, came_at): (&RefMove, Timestamp),
        after: Option<&TenantName>,
        effects: &mut Effects,
    ) -> Result<Option<String>, LookError> {
        let (at, git_ref) = (moved.newrev.as_ref().map_or("nothing", Oid::short), &moved.git_ref);
        let branch =
            moved.branch().map(|branch| BranchKey { project: event.project.clone(), branch });
        let name = |branch: &BranchKey| {
            landing::harmless_key(branch, moved.oldrev.as_ref().unwrap_or(&Oid::zero()))
        };
        let harmless = branch.as_ref().map(name);
        let seen = refs::key(&event.project);
        let keys: Vec<Key> = harmless.iter().chain([&seen]).cloned().collect();
        let known = self.tenants_with(&event.project, Order::InTurn, &keys).await?;
        let is_for_any = may_be_known_by(&known, event);
        let had_by = had_by(event, &known);
        let Known { tenants, damaged, found } = known;
        let mut concerned = by_name(&tenants, &damaged);
        if let Some(after) = after {
            concerned.retain(|name, _| *name > after);
        } else if concerned.is_empty() {
            effects.tell(format!("no tenant knows {}", event.project));
            return Ok(None);
        } else {
            let refs = found.get(&seen).and_then(decode_foreign);
            match self.is_new_push(event, moved, (refs, is_for_any, &had_by), effects).await? {
                NewTo::All => {}
                NewTo::ItsOwn => concerned.retain(|_, concerned| match concerned {
                    Ok(concerned) => is_by(concerned, event),
                    Err(_) => true,
                }),
                NewTo::Nobody => concerned.clear(),
            }
            if concerned.is_empty() {
                effects.tell(format!("{git_ref} is at {at}, as was told before"));
                return Ok(None);
            }
        }
        let harmless: Option<Harmless> =
            harmless.and_then(|key| found.get(&key).and_then(decode_foreign));
        let landed = match (harmless, &moved.newrev) {
            (Some(harmless), Some(newrev)) => {
                self.is_tree(event, newrev, &harmless.tree).await.then_some(harmless.tenant)
            }
            _ => None,
        };
        let mut last = None;
        for (name, concerned) in concerned {
            if let Some(last) = last.replace(name).filter(|_| effects.is_full()) {
                let (after, kind, formerly) = (last.clone(), event.kind.clone(), Vec::new());
                effects.rest = Some(Rest { after, kind, is_news: true, formerly });
                return Ok(None);
            }
            let Concerned { live, awaited, .. } = match concerned {
                Ok(concerned) => concerned,
                Err(awaited) => {
                    let after = self.after(id, event, name, moved, awaited);
                    let delivery = self.keep(&after, name, effects)?;
                    if branch.is_some() {
                        effects.read_then(
                            name,
                            &event.project,
                            Waiting { since: after.received_at, delivery },
                        )?;
                    }
                    effects.tell(format!(
                        "tenant {name} cannot be read; it is told later that {git_ref} is at {at}"
                    ));
                    continue;
                }
            };
            let reads = branch.is_some() && landed.as_ref() != Some(name);
            match (reads, awaited) {
                // What it brings counts for its own jobs, and for the pipelines that it enters.
                (true, _) => {
                    let after =
                        self.after(id, event, name, moved, awaited.clone().unwrap_or_default());
                    let delivery = self.keep(&after, name, effects)?;
                    effects.read_then(
                        name,
                        &event.project,
                        Waiting { since: after.received_at, delivery },
                    )?;
                }
                (false, Some(awaited)) => {
                    let after = self.after(id, event, name, moved, awaited.clone());
                    self.keep(&after, name, effects)?;
                }
                (false, None) => {
                    if let Some(why) =
                        self.route_ref(id, event, live, (moved, came_at), effects).await?
                    {
                        return Ok(Some(why));
                    }
                }
            }
            match (reads, branch.is_some()) {
                (true, _) => effects.tell(format!("{git_ref} is at {at}: tenant {name} reads its configuration again")),
                (false, true) => effects
                    .tell(format!("{git_ref} is at {at}, as tenant {name} landed it: its configuration is the same")),
                (false, false) => effects.tell(format!("{git_ref} is no branch: tenant {name} reads nothing there")),
            }
        }
        Ok(None)
    }

    /// Returns the delivery that goes on with a push once what it belongs to is live for a tenant.
    fn after(
        &self,
        id: &DeliveryId,
        event: &ForgeEvent,
        tenant: &TenantName,
        moved: &RefMove,
        awaited: Awaited,
    ) -> Delivery {
        let commit = |oid: &Option<Oid>| oid.clone().unwrap_or_else(Oid::zero);
        let since = self.since(&awaited);
        let kind = EventKind::Read {
            tenant: tenant.clone(),
            git_ref: moved.git_ref.clone(),
            oldrev: commit(&moved.oldrev),
            newrev: commit(&moved.newrev),
            awaited,
        };
        Delivery {
            connection: event.connection.clone(),
            forge_id: format!("read:{tenant}:{id}"),
            event_name: "push".to_owned(),
            // It waits from now on, however late the push was handled.
            received_at: since,
            event: Some(ForgeEvent { kind, ..event.clone() }),
            state: DeliveryState::Accepted,
        }
    }

    /// Goes on with a push once the tenant has read it, and what came before it.
    pub(crate) async fn after_reading(
        &self,
        id: &DeliveryId,
        event: &ForgeEvent,
        (tenant, awaited, since): (&TenantName, &Awaited, Timestamp),
        moved: &RefMove,
        mut effects: Effects,
    ) -> Result<Outcome, LookError> {
        let mut awaited = awaited.clone();
        awaited.marks.push(tenant::dirty_key(tenant, &event.project, id.as_str()).sort);
        match self.turn_of(&event.project, tenant, &awaited, since).await? {
            Turn::Now => {}
            Turn::Later(why) => return Ok(Outcome::Waits { why, tenant: Some(tenant.clone()) }),
            Turn::Never(why) => {
                effects.tell(why);
                return Ok(Outcome::Leads(effects));
            }
        }
        let own = Waiting { since, delivery: id.clone() };
        let known = self.tenants_with(&event.project, Order::InTurn, &[]).await?;
        if let Some(concerned) = known.tenant(tenant) {
            self.let_go(&own, concerned, &event.project, &mut effects).await?;
            let kind = EventKind::Push {
                git_ref: moved.git_ref.clone(),
                oldrev: moved.oldrev.clone().unwrap_or_else(Oid::zero),
                newrev: moved.newrev.clone().unwrap_or_else(Oid::zero),
            };
            let event = ForgeEvent { kind, ..event.clone() };
            if let Some(why) =
                self.route_ref(id, &event, &concerned.live, (moved, since), &mut effects).await?
            {
                return Ok(Outcome::Waits { why, tenant: Some(tenant.clone()) });
            }
        }
        Ok(Outcome::Leads(effects))
    }

    /// Offers a ref to the pipelines of one tenant whose triggers take its push. Returns why it is
    /// too early for that, if so.
    async fn route_ref(
        &self,
        id: &DeliveryId,
        event: &ForgeEvent,
        live: &Live,
        (moved, came_at): (&RefMove, Timestamp),
        effects: &mut Effects,
    ) -> Result<Option<String>, LookError> {
        let mut seen = Seen::default();
        let takes_part = live.layout.project_pipelines(&event.project);
        let mut read: Option<(ChangeRef, Option<Oid>)> = None;
        for pipeline in
            live.layout.pipelines().iter().filter(|pipeline| takes_part.contains(&pipeline.name))
        {
            let Some(detail) = self.detail_of(pipeline, event, None, &mut seen).await? else {
                continue;
            };
            let refusal = stranger(live, (&event.connection, &event.project));
            if let Some(why) =
                refusal.or_else(|| filter::refusal_of_refs(pipeline, &event.connection))
            {
                effects.tell(format!("{} is not enqueued: {why}", moved.git_ref));
                continue;
            }
            let (change, moved_on) = match &read {
                Some(known) => known.clone(),
                None => match self.read_ref(event, moved).await? {
                    Read::Confirmed(change, moved_on) => read.insert((change, moved_on)).clone(),
                    Read::Unshown(why) if self.ports.clock.now().since(came_at) < SHOWN_MILLIS => {
                        return Ok(Some(why));
                    }
                    Read::Unshown(why) | Read::Denied(why) => {
                        effects.tell(why);
                        return Ok(None);
                    }
                },
            };
            let offered = (&change, event.sender.as_str(), moved_on);
            self.offer_ref((id, Asker::Event(detail)), offered, (live, pipeline), effects)?;
        }
        Ok(None)
    }

    /// Reads a ref that is said to have moved, for a webhook is a hint only.
    pub(crate) async fn read_ref(
        &self,
        event: &ForgeEvent,
        moved: &RefMove,
    ) -> Result<Read, LookError> {
        let forge = match self.forge_if_any(&event.connection).await? {
            Ok(forge) => forge,
            Err(why) => {
                return Ok(Read::Denied(format!("{} is not enqueued: {why}", moved.git_ref)));
            }
        };
        let tip = match forge.ref_tip(&event.project, &moved.git_ref).await {
            Ok(tip) => tip,
            // A tag of something else than a commit, for one: it would be told the same for ever,
            // with all that came behind it.
            Err(error) if error.verdict() == Verdict::Final => {
                return Ok(Read::Denied(format!("{} is not enqueued: {error}", moved.git_ref)));
            }
            Err(error) => return Err(again(error)),
        };
        let mut change =
            ChangeRef::of_ref(event.connection.clone(), event.project.clone(), moved.clone());
        let (git_ref, mut moved_on) = (&moved.git_ref, None);
        match (&moved.newrev, tip) {
            (Some(_), None) => {
                return Ok(Read::Unshown(format!("{git_ref} was pushed and is gone by now")));
            }
            (None, Some(_)) => {
                return Ok(Read::Unshown(format!(
                    "{git_ref} was deleted and is there again by now"
                )));
            }
            (None, None) => {}
            (Some(newrev), Some(tip)) if tip.id == *newrev => {}
            // It moved on, which is a push of its own; or it is an annotated tag, which leads to a
            // commit.
            (Some(newrev), Some(tip)) => match forge.read_commit(&event.project, newrev).await {
                Ok(_) => moved_on = Some(tip.id),
                Err(error) if error.verdict() == Verdict::Final && moved.tag().is_some() => {
                    change.head = tip.id
                }
                Err(error) if error.verdict() == Verdict::Final => {
                    return Ok(Read::Unshown(error.to_string()));
                }
                Err(error) => return Err(again(error)),
            },
        }
        Ok(Read::Confirmed(change, moved_on))
    }

    /// Offers a ref to a pipeline by whoever moved it or asks for it, with the commit that it has
    /// moved on to since, if so.
    pub(crate) fn offer_ref(
        &self,
        (id, asker): (&DeliveryId, Asker),
        (change, author, moved_on): (&ChangeRef, &str, Option<Oid>),
        (live, pipeline): (&Live, &Pipeline),
        effects: &mut Effects,
    ) -> Result<(), LookError> {
        let commit = Some(&change.head).filter(|head| !head.is_zero());
        let page = self
            .forges
            .get(&change.key.connection)
            .map(|forge| forge.page_of(&change.key.project, commit));
        let (url, author, debug) =
            (page.unwrap_or_default(), author.to_owned(), asker.detail() == Detail::Debug);
        let candidates =
            vec![Candidate { url, author, moved_on, debug, ..Candidate::bare(change) }];
        let queue = queue_key(live, pipeline, change);
        let arrival = self.arrival(id, live, &queue, change, ArrivalKind::Enqueue { candidates });
        effects.arrive(&queue, &Arrival { by_operator: asker == Asker::Operator, ..arrival })?;
        effects.tell(format!("{change} may enter {}", in_words(live, pipeline, change)));
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
}
