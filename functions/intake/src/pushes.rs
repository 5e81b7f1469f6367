//! Processes pushes: a branch or tag that moved has its configuration read again, and reaches the
//! queues of pipelines that it triggers.
//!
//! A tenant that reads its configuration again gets the push afterwards, as a deferred delivery:
//! the pushed configuration counts for its own jobs. The same holds for a push or tag while the
//! tenant's configuration is being read for another reason.

use crate::Intake;
use crate::change_context::{ConcernedTenant, EventOrder, ProjectTenants};
use crate::deferred::{DeferredFor, Readiness};
use crate::dependencies::{ChangeCache, other_connection_reason};
use crate::missed_events::{PushAudience, PushContext, tenant_connections};
use crate::operator_enqueue::{Offer, Requester};
use crate::process_delivery::{DeliveryOutcome, Effects, RemainingTenants, SHOWN_MILLIS};
use crate::retry_error;
use crate::route::{LivePipeline, queue_description, queue_key, tenants_by_name};
use crate::sweep::{has_project_by, may_have_project_by};
use sluice_forge::ErrorClass;
use sluice_gate::filter::ReportDetail;
use sluice_gate::{Candidate, InboxMessage, InboxMessageKind, filter};
use sluice_model::change::{ChangeRef, RefMove};
use sluice_model::event::{EventKind, ForgeEvent, PendingConfig};
use sluice_model::git::{BranchKey, Oid};
use sluice_model::{DeliveryId, TenantName, Timestamp};
use sluice_records::branch_tips;
use sluice_records::codec::decode_or_log;
use sluice_records::delivery::{DeliveryRecord, DeliveryState};
use sluice_records::landing::{self, NonConfigMerge};
use sluice_records::layout::LiveLayout;
use sluice_records::tenant::{self, DeferredDelivery};
use sluice_repos::{ProjectAt, ReposError};
use sluice_runtime::batch::ReconcileError;
use sluice_runtime::record::Key;

/// The forge's answer about a ref that was reported to have moved.
pub(crate) enum RefReading {
    /// It moved, or may have; with the commit that it has moved on to since then.
    Confirmed(ChangeRef, Option<Oid>),
    /// The forge does not show the move yet, or not any more, for this reason.
    NotShown(String),
    /// The move is ignored, for this reason.
    Rejected(String),
}

/// The move of a ref, as it was received.
#[derive(Clone, Copy)]
pub(crate) struct ReceivedMove<'a> {
    /// The move.
    pub(crate) moved: &'a RefMove,
    /// When it was received.
    pub(crate) came_at: Timestamp,
}

/// A ref that is offered to a pipeline.
pub(crate) struct OfferedRef<'a> {
    /// The ref and its commit.
    pub(crate) change: &'a ChangeRef,
    /// The account that moved the ref; empty if unknown.
    pub(crate) author: &'a str,
    /// The commit that the ref has moved on to since then, if any.
    pub(crate) newer_head: Option<Oid>,
}

impl Intake {
    /// Adds to `effects` what a push changes for the tenants for which it is new, or, if an earlier
    /// commit ended with the tenant `after`, for those behind it in order of name. For a pushed
    /// branch a tenant reads its configuration again and gets the push afterwards as a deferred
    /// delivery, except after its own landing that touched no configuration. Any other push is
    /// offered to the pipelines that it triggers, or deferred if the tenant has to wait. Tenants
    /// for which the commit has no room are left to the next commit. Returns a reason if the
    /// delivery has to be postponed because the forge does not show the move yet; `effects` must be
    /// dropped then.
    pub(crate) async fn process_push(
        &self,
        id: &DeliveryId,
        event: &ForgeEvent,
        received: ReceivedMove<'_>,
        after: Option<&TenantName>,
        effects: &mut Effects,
    ) -> Result<Option<String>, ReconcileError> {
        let ReceivedMove { moved, .. } = received;
        let (at, git_ref) = (moved.newrev.as_ref().map_or("nothing", Oid::short), &moved.git_ref);
        let branch =
            moved.branch().map(|branch| BranchKey { project: event.project.clone(), branch });
        let name = |branch: &BranchKey| {
            landing::non_config_merge_key(branch, moved.oldrev.as_ref().unwrap_or(&Oid::zero()))
        };
        let harmless = branch.as_ref().map(name);
        let refs_key = branch_tips::key(&event.project);
        let keys: Vec<Key> = harmless.iter().chain([&refs_key]).cloned().collect();
        let project_tenants =
            self.tenants_with(&event.project, EventOrder::AfterDeferred, &keys).await?;
        let is_for_any = may_have_project_by(&project_tenants, event);
        let tenant_connections = tenant_connections(event, &project_tenants);
        let ProjectTenants { tenants, unreadable, found } = project_tenants;
        let mut concerned = tenants_by_name(&tenants, &unreadable);
        if let Some(after) = after {
            concerned.retain(|name, _| *name > after);
        } else if concerned.is_empty() {
            effects.log(format!("no tenant has the project {}", event.project));
            return Ok(None);
        } else {
            let refs = found.get(&refs_key).and_then(decode_or_log);
            match self
                .note_push(
                    event,
                    moved,
                    PushContext { refs, is_for_any, tenant_connections: &tenant_connections },
                    effects,
                )
                .await?
            {
                PushAudience::AllTenants => {}
                PushAudience::SameConnection => concerned.retain(|_, concerned| match concerned {
                    Ok(concerned) => has_project_by(concerned, event),
                    Err(_) => true,
                }),
                PushAudience::NoTenant => concerned.clear(),
            }
            if concerned.is_empty() {
                effects.log(format!("{git_ref} is at {at}: already processed"));
                return Ok(None);
            }
        }
        let harmless: Option<NonConfigMerge> =
            harmless.and_then(|key| found.get(&key).and_then(decode_or_log));
        let landed = match (harmless, &moved.newrev) {
            (Some(harmless), Some(newrev)) => {
                self.is_tree(event, newrev, &harmless.tree).await.then_some(harmless.tenant)
            }
            _ => None,
        };
        let mut last = None;
        for (name, concerned) in concerned {
            if let Some(last) = last.replace(name).filter(|_| effects.is_full()) {
                let (after, kind, former_branches) = (last.clone(), event.kind.clone(), Vec::new());
                effects.remaining =
                    Some(RemainingTenants { after, kind, is_new: true, former_branches });
                return Ok(None);
            }
            let ConcernedTenant { live, awaited, .. } = match concerned {
                Ok(concerned) => concerned,
                Err(awaited) => {
                    let after = self.deferred_push(id, event, name, moved, awaited);
                    let delivery = self.store_deferred(&after, name, effects)?;
                    if branch.is_some() {
                        effects.reread_configuration(
                            name,
                            &event.project,
                            DeferredDelivery { since: after.received_at, delivery },
                        )?;
                    }
                    effects.log(format!(
                        "tenant {name} cannot be read: deferred that {git_ref} is at {at}"
                    ));
                    continue;
                }
            };
            let reads = branch.is_some() && landed.as_ref() != Some(name);
            match (reads, awaited) {
                // The pushed configuration counts for its own jobs, and for the pipelines that it
                // enters.
                (true, _) => {
                    let after = self.deferred_push(
                        id,
                        event,
                        name,
                        moved,
                        awaited.clone().unwrap_or_default(),
                    );
                    let delivery = self.store_deferred(&after, name, effects)?;
                    effects.reread_configuration(
                        name,
                        &event.project,
                        DeferredDelivery { since: after.received_at, delivery },
                    )?;
                }
                (false, Some(awaited)) => {
                    let after = self.deferred_push(id, event, name, moved, awaited.clone());
                    self.store_deferred(&after, name, effects)?;
                }
                (false, None) => {
                    if let Some(why) = self.route_ref(id, event, live, received, effects).await? {
                        return Ok(Some(why));
                    }
                }
            }
            match (reads, branch.is_some()) {
                (true, _) => effects.log(format!("{git_ref} is at {at}: tenant {name} reads its configuration again")),
                (false, true) => effects
                    .log(format!("{git_ref} is at {at}, as tenant {name} merged it: its configuration is unchanged")),
                (false, false) => effects.log(format!("{git_ref} is not a branch: tenant {name} reads no configuration there")),
            }
        }
        Ok(None)
    }

    /// Builds the deferred delivery that continues a push once the tenant's configuration is live;
    /// does not store it.
    fn deferred_push(
        &self,
        id: &DeliveryId,
        event: &ForgeEvent,
        tenant: &TenantName,
        moved: &RefMove,
        awaited: PendingConfig,
    ) -> DeliveryRecord {
        let commit = |oid: &Option<Oid>| oid.clone().unwrap_or_else(Oid::zero);
        let since = self.deferral_time(&awaited);
        let kind = EventKind::DeferredPush {
            tenant: tenant.clone(),
            git_ref: moved.git_ref.clone(),
            oldrev: commit(&moved.oldrev),
            newrev: commit(&moved.newrev),
            awaited,
        };
        DeliveryRecord {
            connection: event.connection.clone(),
            forge_id: format!("read:{tenant}:{id}"),
            event_name: "push".to_owned(),
            // It waits from now, even if the push was processed late.
            received_at: since,
            event: Some(ForgeEvent { kind, ..event.clone() }),
            state: DeliveryState::Accepted,
        }
    }

    /// Continues a deferred push for its tenant, and wakes the project's next deferred event; the
    /// caller commits the returned effects. Postpones the push while [`Self::deferred_readiness`]
    /// says so, which is for a limited time, and until [`SHOWN_MILLIS`] after `since` while the
    /// forge does not show the move; after that it only logs why, and wakes the next event. If the
    /// tenant no longer has the project or could not be read for a day, it only logs that and wakes
    /// no other event; that is no failure.
    pub(crate) async fn resume_push(
        &self,
        id: &DeliveryId,
        event: &ForgeEvent,
        DeferredFor { tenant, awaited, since }: DeferredFor<'_>,
        moved: &RefMove,
        mut effects: Effects,
    ) -> Result<DeliveryOutcome, ReconcileError> {
        let mut awaited = awaited.clone();
        awaited.pushes.push(tenant::reread_key(tenant, &event.project, id.as_str()).sort);
        match self.deferred_readiness(&event.project, tenant, &awaited, since).await? {
            Readiness::Ready => {}
            Readiness::NotYet(why) => {
                return Ok(DeliveryOutcome::Postponed { why, tenant: Some(tenant.clone()) });
            }
            Readiness::Never(why) => {
                effects.log(why);
                return Ok(DeliveryOutcome::Processed(effects));
            }
        }
        let own = DeferredDelivery { since, delivery: id.clone() };
        let project_tenants =
            self.tenants_with(&event.project, EventOrder::AfterDeferred, &[]).await?;
        if let Some(concerned) = project_tenants.tenant(tenant) {
            self.wake_next_deferred(&own, concerned, &event.project, &mut effects).await?;
            let kind = EventKind::Push {
                git_ref: moved.git_ref.clone(),
                oldrev: moved.oldrev.clone().unwrap_or_else(Oid::zero),
                newrev: moved.newrev.clone().unwrap_or_else(Oid::zero),
            };
            let event = ForgeEvent { kind, ..event.clone() };
            let received = ReceivedMove { moved, came_at: since };
            if let Some(why) =
                self.route_ref(id, &event, &concerned.live, received, &mut effects).await?
            {
                return Ok(DeliveryOutcome::Postponed { why, tenant: Some(tenant.clone()) });
            }
        }
        Ok(DeliveryOutcome::Processed(effects))
    }

    /// Adds to `effects` the offers of a ref to the pipelines of one tenant whose triggers match
    /// its push. Returns a reason when the delivery has to be postponed because the forge does not
    /// show the move, at most [`SHOWN_MILLIS`] after the receipt; `effects` must be dropped then.
    /// After that, or if the move is rejected, it only logs why. A pipeline that does not accept
    /// the ref is skipped with a log line.
    async fn route_ref(
        &self,
        id: &DeliveryId,
        event: &ForgeEvent,
        live: &LiveLayout,
        received: ReceivedMove<'_>,
        effects: &mut Effects,
    ) -> Result<Option<String>, ReconcileError> {
        let ReceivedMove { moved, came_at } = received;
        let mut cache = ChangeCache::default();
        let takes_part = live.layout.project_pipelines(&event.project);
        let mut read: Option<(ChangeRef, Option<Oid>)> = None;
        for pipeline in
            live.layout.pipelines().iter().filter(|pipeline| takes_part.contains(&pipeline.name))
        {
            let Some(detail) = self.detail_of(pipeline, event, None, &mut cache).await? else {
                continue;
            };
            let refusal = other_connection_reason(live, &event.connection, &event.project);
            if let Some(why) = refusal.or_else(|| filter::refs_refusal(pipeline, &event.connection))
            {
                effects.log(format!("{} is not enqueued: {why}", moved.git_ref));
                continue;
            }
            let (change, moved_on) = match &read {
                Some(cached) => cached.clone(),
                None => match self.read_ref(event, moved).await? {
                    RefReading::Confirmed(change, moved_on) => {
                        read.insert((change, moved_on)).clone()
                    }
                    RefReading::NotShown(why)
                        if self.ports.clock.now().since(came_at) < SHOWN_MILLIS =>
                    {
                        return Ok(Some(why));
                    }
                    RefReading::NotShown(why) | RefReading::Rejected(why) => {
                        effects.log(why);
                        return Ok(None);
                    }
                },
            };
            let offer = Offer { id, requester: Requester::Event(detail) };
            let offered =
                OfferedRef { change: &change, author: &event.sender, newer_head: moved_on };
            self.offer_ref(offer, offered, LivePipeline { live, pipeline }, effects)?;
        }
        Ok(None)
    }

    /// Compares a ref on the forge with the move that was reported. The move is not shown if a
    /// pushed ref does not exist, a deleted one exists, or the forge does not have the commit. It
    /// is rejected if the connection leads to no forge or the forge's error is final. A ref that
    /// has moved on since is confirmed with its newer commit beside the reported one, an annotated
    /// tag with the commit that it leads to.
    pub(crate) async fn read_ref(
        &self,
        event: &ForgeEvent,
        moved: &RefMove,
    ) -> Result<RefReading, ReconcileError> {
        if self.plain_git(&event.connection).await?.is_some() {
            return self.read_plain_ref(event, moved).await;
        }
        let forge = match self.find_forge(&event.connection).await? {
            Ok(forge) => forge,
            Err(why) => {
                return Ok(RefReading::Rejected(format!(
                    "{} is not enqueued: {why}",
                    moved.git_ref
                )));
            }
        };
        let tip = match forge.ref_tip(&event.project, &moved.git_ref).await {
            Ok(tip) => tip,
            // For example a tag of something other than a commit: a retry would give the same
            // answer forever, and hold back the events behind it.
            Err(error) if error.class() == ErrorClass::Final => {
                return Ok(RefReading::Rejected(format!(
                    "{} is not enqueued: {error}",
                    moved.git_ref
                )));
            }
            Err(error) => return Err(retry_error(error)),
        };
        let mut change =
            ChangeRef::of_ref(event.connection.clone(), event.project.clone(), moved.clone());
        let (git_ref, mut moved_on) = (&moved.git_ref, None);
        match (&moved.newrev, tip) {
            (Some(_), None) => {
                return Ok(RefReading::NotShown(format!(
                    "{git_ref} was pushed and does not exist any more"
                )));
            }
            (None, Some(_)) => {
                return Ok(RefReading::NotShown(format!("{git_ref} was deleted and exists again")));
            }
            (None, None) => {}
            (Some(newrev), Some(tip)) if tip.id == *newrev => {}
            // It moved on, which is a push of its own; or it is an annotated tag, which leads to a
            // commit.
            (Some(newrev), Some(tip)) => match forge.read_commit(&event.project, newrev).await {
                Ok(_) => moved_on = Some(tip.id),
                Err(error) if error.class() == ErrorClass::Final && moved.tag().is_some() => {
                    change.head = tip.id
                }
                Err(error) if error.class() == ErrorClass::Final => {
                    return Ok(RefReading::NotShown(error.to_string()));
                }
                Err(error) => return Err(retry_error(error)),
            },
        }
        Ok(RefReading::Confirmed(change, moved_on))
    }

    /// Compares a ref at a plain git server with the move that was reported, as [`Self::read_ref`]
    /// does. A push is confirmed as it is if the server does not answer in time: a poll has seen
    /// it, and the next one finds where the ref is now. The move is rejected if the server has no
    /// such repository or too many refs.
    async fn read_plain_ref(
        &self,
        event: &ForgeEvent,
        moved: &RefMove,
    ) -> Result<RefReading, ReconcileError> {
        let ForgeEvent { connection, project, .. } = event;
        let place = ProjectAt { connection: connection.clone(), project: project.clone() };
        let git_ref = &moved.git_ref;
        let change = ChangeRef::of_ref(connection.clone(), project.clone(), moved.clone());
        let tip = match self.repos.ref_tip(&place, git_ref).await {
            Ok(tip) => tip,
            Err(error @ (ReposError::Gone(_) | ReposError::Unreadable(_))) => {
                return Ok(RefReading::Rejected(format!("{git_ref} is not enqueued: {error}")));
            }
            Err(ReposError::Unreachable(why)) if matches!(event.kind, EventKind::Push { .. }) => {
                tracing::info!(%project, git_ref, why, "a pushed ref is used as the poll saw it");
                return Ok(RefReading::Confirmed(change, None));
            }
            Err(error) => return Err(ReconcileError::Retry(error.to_string())),
        };
        let not_shown = |why: &str| Ok(RefReading::NotShown(format!("{git_ref} {why}")));
        let moved_on = match (&moved.newrev, tip) {
            (Some(_), None) => return not_shown("was pushed and does not exist any more"),
            (None, Some(_)) => return not_shown("was deleted and exists again"),
            (None, None) => None,
            (Some(newrev), Some(tip)) => (tip != *newrev).then_some(tip),
        };
        Ok(RefReading::Confirmed(change, moved_on))
    }

    /// Adds to `effects` the message that offers a ref to a pipeline's queue, and a log line. The
    /// pipeline's requirements are not checked here.
    pub(crate) fn offer_ref(
        &self,
        Offer { id, requester }: Offer<'_>,
        OfferedRef { change, author, newer_head }: OfferedRef<'_>,
        LivePipeline { live, pipeline }: LivePipeline<'_>,
        effects: &mut Effects,
    ) -> Result<(), ReconcileError> {
        let commit = Some(&change.head).filter(|head| !head.is_zero());
        let page = self
            .forges
            .get(&change.key.connection)
            .map(|forge| forge.page_of(&change.key.project, commit));
        let (url, author, debug) = (
            page.unwrap_or_default(),
            author.to_owned(),
            requester.detail() == ReportDetail::Debug,
        );
        let candidates =
            vec![Candidate { url, author, newer_head, debug, ..Candidate::bare(change) }];
        let queue = queue_key(live, pipeline, change);
        let message =
            self.inbox_message(id, live, &queue, change, InboxMessageKind::Enqueue { candidates });
        effects.send_to_queue(
            &queue,
            &InboxMessage { by_operator: requester == Requester::Operator, ..message },
        )?;
        effects.log(format!("{change} may enter {}", queue_description(live, pipeline, change)));
        Ok(())
    }

    /// Returns whether the tree of a commit is `tree`; false when the forge does not answer.
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
