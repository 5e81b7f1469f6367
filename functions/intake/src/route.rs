//! Decides which queues of which tenants an event on a change concerns, and builds the messages to
//! them.

use crate::Intake;
use crate::bundle::{SentOffer, bundle_queue};
use crate::change_context::{ChangeContext, ConcernedTenant, UnreadableTenants};
use crate::change_tree::{self, missing_reason};
use crate::closed_changes::{LifecycleEvent, lifecycle_event};
use crate::dependencies::{ChangeCache, Dependencies, candidate, other_connection_reason};
use crate::operator_enqueue::{Offer, Requester};
use crate::process_delivery::{Effects, RemainingTenants};
use crate::seen_events::SeenEvents;
use sluice_config::fragment::config_paths;
use sluice_config::pipeline::{Manager, Pipeline};
use sluice_gate::explain::ReportedRefusal;
use sluice_gate::filter::{EventAuthor, ReportDetail};
use sluice_gate::queue::queue_of;
use sluice_gate::{Candidate, InboxMessage, InboxMessageKind, MERGED_ELSEWHERE, filter};
use sluice_model::change::{ChangeFacts, ChangeKey, ChangeRef, ChangeStatus};
use sluice_model::event::{DeferredPredecessor, ForgeEvent, PendingConfig};
use sluice_model::wakeup::Wakeup;
use sluice_model::{
    BranchName, DeliveryId, InboxMessageId, PipelineName, QueueKey, TenantName, Timestamp,
};
use sluice_records::change::{self, NEEDED_BY};
use sluice_records::codec::decode_or_log;
use sluice_records::layout::LiveLayout;
use sluice_runtime::batch::ReconcileError;
use sluice_runtime::record::{Key, Query};
use std::collections::{BTreeMap, BTreeSet};

/// The most dependents of a change that are read.
const NEEDED_BY_MAX: usize = 1_000;

/// An event on a change, as it is routed to tenants.
#[derive(Clone, Copy)]
pub(crate) struct RoutedEvent<'a> {
    /// The delivery of the event.
    pub(crate) id: &'a DeliveryId,
    /// The event.
    pub(crate) event: &'a ForgeEvent,
    /// The change as its forge shows it.
    pub(crate) facts: &'a ChangeFacts,
    /// Whether triggers apply to it; false for an event that was processed before.
    pub(crate) is_new: bool,
}

/// What followed for a pipeline from an event that matched one of its triggers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum RequestOutcome {
    /// The change was offered to the queue.
    Sent,
    /// The change's dependencies keep it out, for this reason; the queue reports it, unless it was
    /// reported for this revision before.
    Refused(String),
    /// The change does not enter before what it depends on, which is not ready for this reason, or
    /// has too many dependencies. That is not reported.
    Waits(String),
}

/// The outcomes by tenant and pipeline. A pipeline without one was sent no request.
pub(crate) type RequestOutcomes = BTreeMap<(TenantName, PipelineName), RequestOutcome>;

/// The result of routing an event to tenants.
#[derive(Default)]
pub(crate) struct Routed {
    /// What followed for the pipelines that the event triggered.
    pub(crate) requests: RequestOutcomes,
    /// The direct dependencies of the change, over all tenants that were processed.
    pub(crate) needs: BTreeSet<ChangeKey>,
    /// How many readable tenants were processed, in the order of names.
    pub(crate) tenants: usize,
    /// Whether these are all tenants; otherwise the next commit processes the others.
    pub(crate) is_all: bool,
}

/// Returns the tenants of a project by name; an unreadable one comes with what the event has to
/// wait for.
pub(crate) fn tenants_by_name<'a>(
    tenants: &'a [ConcernedTenant],
    unreadable: &'a UnreadableTenants,
) -> BTreeMap<&'a TenantName, Result<&'a ConcernedTenant, PendingConfig>> {
    let readable = tenants.iter().map(|concerned| (&concerned.live.tenant.name, Ok(concerned)));
    let awaited = |behind: &Option<DeferredPredecessor>| PendingConfig {
        predecessor: behind.clone(),
        ..PendingConfig::default()
    };
    unreadable.iter().map(|(name, behind)| (name, Err(awaited(behind)))).chain(readable).collect()
}

/// A pipeline of a tenant's live layout.
#[derive(Clone, Copy)]
pub(crate) struct LivePipeline<'a> {
    /// The tenant with its live layout.
    pub(crate) live: &'a LiveLayout,
    /// The pipeline.
    pub(crate) pipeline: &'a Pipeline,
}

/// What a queue gets of an event.
#[derive(Default)]
struct QueueRouting {
    /// The message, with its description for the log.
    message: Option<(InboxMessage, String)>,
    /// What followed from the event's triggers; `None` if none matches or the pipeline's
    /// requirements keep the change out.
    request: Option<RequestOutcome>,
}

/// A queue that a change may enter or may be in.
pub(crate) struct TargetQueue<'a> {
    /// The tenant with its live layout.
    pub(crate) live: &'a LiveLayout,
    /// The pipeline of the queue.
    pub(crate) pipeline: &'a Pipeline,
    /// The queue.
    pub(crate) queue: &'a QueueKey,
    /// The tenant's queues that are not empty and that may hold the change.
    pub(crate) occupied_queues: &'a [QueueKey],
    /// The refusal of the change that was last reported for the pipeline.
    pub(crate) reported: Option<&'a ReportedRefusal>,
}

impl Intake {
    /// Adds to `effects` a message for every concerned queue: the change may enter it, or may have
    /// to leave it. Queues of branches that the change targeted before get one as well. New events
    /// are deferred for tenants that have to wait and for unreadable ones; queues that hold the
    /// change learn its new state all the same. Once `effects` is full, the tenants that follow are
    /// left to the next commit.
    pub(crate) async fn route(
        &self,
        routed_event: RoutedEvent<'_>,
        before: &ChangeContext,
        cache: &mut ChangeCache,
        effects: &mut Effects,
    ) -> Result<Routed, ReconcileError> {
        let RoutedEvent { id, event, facts, is_new } = routed_event;
        let mut routed = Routed::default();
        let reports_end = is_new && lifecycle_event(event) == Some(LifecycleEvent::Ended);
        let was_known_ended =
            !reports_end && before.seen.as_ref().is_some_and(SeenEvents::is_ended);
        if before.tenants.is_empty() && before.unreadable.is_empty() {
            effects.log(format!("no tenant has the project {}", event.project));
        }
        let mut last = None;
        for (name, concerned) in tenants_by_name(&before.tenants, &before.unreadable) {
            if let Some(last) = last.replace(name).filter(|_| effects.is_full()) {
                let (after, kind, former_branches) =
                    (last.clone(), event.kind.clone(), before.former_branches.clone());
                effects.remaining = Some(RemainingTenants { after, kind, is_new, former_branches });
                return Ok(routed);
            }
            let ConcernedTenant { live, awaited, occupied_queues } = match concerned {
                Ok(concerned) => concerned,
                Err(awaited) => {
                    if is_new {
                        self.defer_event(id, event, name, awaited, effects)?;
                        effects.wakeups.push(Wakeup::Tenant { tenant: name.clone() });
                    }
                    continue;
                }
            };
            routed.tenants += 1;
            if let Some(awaited) = awaited.as_ref().filter(|_| is_new) {
                self.defer_event(id, event, &live.tenant.name, awaited.clone(), effects)?;
            }
            // Queues that hold the change learn of its new state at once: that does not depend on
            // triggers.
            let routed_event = RoutedEvent { is_new: is_new && awaited.is_none(), ..routed_event };
            let needs = match facts.status {
                ChangeStatus::Open => self.dependencies_of(facts, &live.layout, cache).await?,
                ChangeStatus::Merged | ChangeStatus::Closed => Dependencies::default(),
            };
            routed.needs.extend(needs.direct().iter().cloned());
            for pipeline in live.layout.pipelines() {
                let takes_part =
                    live.layout.project_pipelines(&event.project).contains(&pipeline.name);
                let queue = queue_key(live, pipeline, &facts.change);
                // What is ahead of the change may bring its project into the pipeline, by a
                // dependency or in the queue; the change's frozen jobs decide whether it does.
                let may_join = || {
                    may_configure(live, facts)
                        || occupied_queues.contains(&queue)
                        || needs.open.iter().any(|need| may_configure(live, need))
                };
                if !takes_part && !may_join() {
                    continue;
                }
                let reported = before.verdicts.reported(&live.tenant.name, &pipeline.name);
                let target =
                    TargetQueue { live, pipeline, queue: &queue, occupied_queues, reported };
                let QueueRouting { message, request } = self
                    .message_for_queue(routed_event, was_known_ended, &needs, &target, cache)
                    .await?;
                if let Some(request) = request {
                    let pipeline = (live.tenant.name.clone(), pipeline.name.clone());
                    routed.requests.insert(pipeline, request);
                }
                if let Some((message, effect)) = message {
                    effects.send_to_queue(&bundle_queue(&message, pipeline, &queue), &message)?;
                    effects.log(effect);
                    if let InboxMessageKind::Enqueue { candidates } = &message.kind {
                        let is_debug = candidates.iter().any(|candidate| candidate.debug);
                        let detail =
                            if is_debug { ReportDetail::Debug } else { ReportDetail::Outcome };
                        let offer = Offer { id, requester: Requester::Event(detail) };
                        self.offer_bundle_members(
                            SentOffer { offer, message: &message },
                            facts,
                            &needs,
                            LivePipeline { live, pipeline },
                            cache,
                            effects,
                        )
                        .await?;
                    }
                }
                for old in former_queues(live, pipeline, &facts.change, &before.former_branches) {
                    if old != queue && occupied_queues.contains(&old) {
                        let kind = InboxMessageKind::ChangeUpdated {
                            change: facts.change.clone(),
                            gone: None,
                            merged: false,
                            needs: None,
                            as_of: cache.as_of(),
                        };
                        effects.send_to_queue(
                            &old,
                            &self.inbox_message(id, live, &old, &facts.change, kind),
                        )?;
                        let pipeline = &pipeline.name;
                        let (change, branch) = (&facts.change, &facts.change.branch);
                        effects.log(format!(
                            "a queue of {pipeline} is notified that {change} now targets {branch}"
                        ));
                    }
                }
            }
        }
        routed.is_all = true;
        Ok(routed)
    }

    /// Returns what a queue gets. A new event that triggers the pipeline gives a message that
    /// enqueues the change, or that reports why the change is refused. Otherwise, also for a
    /// refusal that was reported before, a queue that is not empty gets the change's new state,
    /// with the reason if it has to leave. No message if neither applies. `was_known_ended` is set
    /// for a change that had ended before this event: if it is in a queue that merges nothing, it
    /// was enqueued so on purpose and stays.
    async fn message_for_queue(
        &self,
        routed_event: RoutedEvent<'_>,
        was_known_ended: bool,
        needs: &Dependencies,
        target: &TargetQueue<'_>,
        cache: &mut ChangeCache,
    ) -> Result<QueueRouting, ReconcileError> {
        let RoutedEvent { id, event, facts, is_new } = routed_event;
        let mut request = None;
        let TargetQueue { live, pipeline, queue, occupied_queues, .. } = *target;
        let now = self.ports.clock.now();
        let message = |kind| self.inbox_message(id, live, queue, &facts.change, kind);
        let refused = change_tree::refusal(needs, facts, target, now);
        let open = facts.status == ChangeStatus::Open;
        // Only a change that will be merged has to be open; other pipelines have their own
        // requirements.
        let key = &facts.change.key;
        let refusal =
            other_connection_reason(live, &key.connection, &key.project).or_else(|| match pipeline
                .manager
            {
                Manager::Dependent if !open => Some("the change is no longer open".to_owned()),
                Manager::Dependent if facts.submittable == Some(false) => {
                    Some(filter::NOT_SUBMITTABLE.to_owned())
                }
                _ => filter::refusal(pipeline, facts, now),
            });
        let may_start = is_new
            && filter::may_start(
                &live.tenant.name,
                pipeline,
                event,
                self.speaker(event, cache).await?,
            );
        if may_start
            && let Some(detail) = self.detail_of(pipeline, event, Some(facts), cache).await?
        {
            if let Some(why) = &refusal {
                if !occupied_queues.contains(queue) {
                    tracing::info!(change = %facts.change, pipeline = %pipeline.name, why, "not enqueued");
                    return Ok(QueueRouting::default());
                }
            } else if needs.is_ignored && !ignores_dependencies(pipeline) {
                // As in Zuul, there is no report: the limit protects the service from floods.
                tracing::info!(change = %facts.change, pipeline = %pipeline.name, "not enqueued: it has too many dependencies");
                request = Some(RequestOutcome::Waits(
                    "it has more dependencies than the tenant allows (`max-dependencies`)"
                        .to_owned(),
                ));
            } else {
                let refused = refused.clone().filter(|_| !ignores_dependencies(pipeline));
                request = Some(request_outcome(refused.clone(), needs, target, now));
                let is_reported = |why: &String| {
                    target.reported == Some(&ReportedRefusal::of(&facts.change, why))
                };
                if let Some(why) = refused.as_ref().filter(|why| is_reported(why)) {
                    tracing::info!(change = %facts.change, pipeline = %pipeline.name, why, "refused as before");
                } else {
                    let candidates = self.candidates(facts, needs, refused, target, cache).await?;
                    let candidates = with_detail(candidates, &facts.change, detail);
                    let effect = format!(
                        "{} may enter {}",
                        facts.change,
                        queue_description(live, pipeline, &facts.change)
                    );
                    let message = Some((message(InboxMessageKind::Enqueue { candidates }), effect));
                    return Ok(QueueRouting { message, request });
                }
            }
        }
        if !occupied_queues.contains(queue) {
            return Ok(QueueRouting { message: None, request });
        }
        let gone = match (facts.status, pipeline.manager) {
            (ChangeStatus::Closed, manager)
                if manager == Manager::Dependent || !was_known_ended =>
            {
                Some("the change was closed".to_owned())
            }
            (ChangeStatus::Merged, Manager::Dependent) => Some(MERGED_ELSEWHERE.to_owned()),
            (ChangeStatus::Open, Manager::Dependent) => {
                refusal.map(|why| filter::merge_requirement_message(&why)).or(refused)
            }
            _ => None,
        };
        let described = queue_description(live, pipeline, &facts.change);
        let effect = format!(
            "{described} is notified that {} is {}",
            facts.change,
            gone.as_deref().unwrap_or("updated")
        );
        let needs = open.then(|| needs.open.iter().map(|need| need.change.clone()).collect());
        let merged = facts.status == ChangeStatus::Merged;
        let kind = InboxMessageKind::ChangeUpdated {
            change: facts.change.clone(),
            gone,
            merged,
            needs,
            as_of: cache.as_of(),
        };
        Ok(QueueRouting { message: Some((message(kind), effect)), request })
    }

    /// Returns whether Sluice itself or another account caused an event. The first answer is kept
    /// in `cache`, which must belong to this event only.
    async fn speaker(
        &self,
        event: &ForgeEvent,
        cache: &mut ChangeCache,
    ) -> Result<EventAuthor, ReconcileError> {
        if let Some(cached) = cache.speaker {
            return Ok(cached);
        }
        let speaker = self.event_speaker(event).await?;
        Ok(*cache.speaker.insert(speaker))
    }

    /// Returns how detailed a pipeline reports on what the event enqueues; `None` if none of its
    /// triggers match the event. `facts` is the change that the event is about, `None` for a ref.
    /// The sender's permission is read from the forge only if a trigger needs it.
    pub(crate) async fn detail_of(
        &self,
        pipeline: &Pipeline,
        event: &ForgeEvent,
        facts: Option<&ChangeFacts>,
        cache: &mut ChangeCache,
    ) -> Result<Option<ReportDetail>, ReconcileError> {
        let may = match filter::depends_on_sender(pipeline, event, facts) {
            true => Some(self.sender_permission(event, cache).await?),
            false => None,
        };
        Ok(filter::report_detail(pipeline, event, facts, may))
    }

    /// Builds an inbox message for a queue about a change, without sending it. One delivery, queue
    /// and change always give the same id, whatever the kind. It does not count as an operator's.
    pub(crate) fn inbox_message(
        &self,
        id: &DeliveryId,
        live: &LiveLayout,
        queue: &QueueKey,
        change: &ChangeRef,
        kind: InboxMessageKind,
    ) -> InboxMessage {
        InboxMessage {
            id: InboxMessageId::derive(&[id.as_str(), &queue.to_string(), &change.key.to_string()]),
            at: self.ports.clock.now(),
            event_id: id.to_string(),
            layout: live.number(),
            by_operator: false,
            in_progress: false,
            kind,
        }
    }

    /// Returns the candidates that an event enqueues, in the order of the queue. `refused` is why
    /// the pipeline may not test the change, from `needs`; a pipeline that ignores dependencies
    /// uses neither. In a dependent pipeline they are all changes of [`Intake::candidates_of_tree`].
    /// In another pipeline it is the change alone, or all members of its bundle if they are tested
    /// as one.
    pub(crate) async fn candidates(
        &self,
        facts: &ChangeFacts,
        needs: &Dependencies,
        refused: Option<String>,
        target: &TargetQueue<'_>,
        cache: &mut ChangeCache,
    ) -> Result<Vec<Candidate>, ReconcileError> {
        let TargetQueue { live, pipeline, .. } = *target;
        let none = Dependencies::default();
        let (needs, refused) =
            if ignores_dependencies(pipeline) { (&none, None) } else { (needs, refused) };
        let own = candidate(facts, needs, refused, pipeline);
        let own = Candidate { as_of: cache.as_of(), ..own };
        if pipeline.manager == Manager::Dependent {
            return self.candidates_of_tree(own, needs, target, cache).await;
        }
        let live_pipeline = LivePipeline { live, pipeline };
        let together = self.bundle_candidates(&own, needs, live_pipeline, cache).await?;
        Ok(together.unwrap_or_else(|| vec![own]))
    }

    /// Returns a candidate for another change than the event's, with its dependencies resolved;
    /// `None` if that change has more of them than the tenant allows, which is not reported. Any
    /// other refusal is part of the candidate.
    pub(crate) async fn offered_candidate(
        &self,
        facts: &ChangeFacts,
        live: &LiveLayout,
        pipeline: &Pipeline,
        cache: &mut ChangeCache,
    ) -> Result<Option<Candidate>, ReconcileError> {
        let needs = self.dependencies_of(facts, &live.layout, cache).await?;
        let refused = needs.refusal(&facts.change, &live.layout, pipeline);
        Ok((!needs.is_ignored).then(|| candidate(facts, &needs, refused, pipeline)))
    }

    /// Returns the changes that depend on a change and whose stored facts satisfy `follows`, among
    /// the first [`NEEDED_BY_MAX`]. A dependent without readable stored facts is left out. It reads
    /// no forge, because anyone may open any number of dependents.
    pub(crate) async fn dependents(
        &self,
        key: &ChangeKey,
        follows: &(dyn Fn(&ChangeFacts) -> bool + Sync),
    ) -> Result<Vec<ChangeKey>, ReconcileError> {
        let query = Query::prefix(change::partition(key), NEEDED_BY, NEEDED_BY_MAX);
        let records = self.ports.records.query(&query).await?;
        let named: Vec<ChangeKey> = records.iter().filter_map(decode_or_log).collect();
        let mut following = Vec::new();
        for some in named.chunks(100) {
            let keys: Vec<Key> = some.iter().map(change::facts_key).collect();
            for record in self.ports.records.get(&keys).await?.iter().flatten() {
                let Some(facts) = decode_or_log::<ChangeFacts>(record) else { continue };
                following.extend(follows(&facts).then_some(facts.change.key));
            }
        }
        Ok(following)
    }

    /// Returns whether a change names another one as its dependency, by its commits or its message.
    /// Topics do not count.
    pub(crate) fn depends_on(&self, facts: &ChangeFacts, key: &ChangeKey) -> bool {
        // Any connection to its host counts; which one is right depends on the tenant.
        let names = |url: &String| {
            self.forges.values().any(|forge| forge.change_at(url).as_ref() == Some(key))
        };
        facts.parents.contains(key) || facts.depends_on.iter().any(names)
    }
}

/// Sets for each candidate whether it is reported in detail: the change and the members of its
/// bundle if `detail` is [`ReportDetail::Debug`], otherwise none. The other candidates were not
/// enqueued by the trigger and never are.
pub(crate) fn with_detail(
    mut candidates: Vec<Candidate>,
    change: &ChangeRef,
    detail: ReportDetail,
) -> Vec<Candidate> {
    let own = candidates.iter().find(|candidate| candidate.change.key == change.key);
    let cycle = own.map(|own| own.bundle.clone()).unwrap_or_default();
    for candidate in &mut candidates {
        let key = &candidate.change.key;
        candidate.debug =
            detail == ReportDetail::Debug && (*key == change.key || cycle.contains(key));
    }
    candidates
}

/// Returns what follows from a trigger for a change whose dependencies are `needs`. `refused` is why
/// they keep it out for good, if they do.
fn request_outcome(
    refused: Option<String>,
    needs: &Dependencies,
    target: &TargetQueue<'_>,
    now: Timestamp,
) -> RequestOutcome {
    if let Some(why) = refused {
        return RequestOutcome::Refused(why);
    }
    if target.pipeline.manager != Manager::Dependent {
        return RequestOutcome::Sent;
    }
    let missing = needs.open.iter().find_map(|need| missing_reason(need, target, now));
    missing.map_or(RequestOutcome::Sent, RequestOutcome::Waits)
}

/// Returns whether a pipeline tests changes without their dependencies; only an independent one
/// can.
pub(crate) fn ignores_dependencies(pipeline: &Pipeline) -> bool {
    pipeline.ignore_dependencies && pipeline.manager == Manager::Independent
}

/// Returns whether a change edits its project's configuration, or may do so because its files are
/// unknown. It may bring its project into a pipeline then (C14); its own frozen jobs decide whether
/// it does.
pub(crate) fn may_configure(live: &LiveLayout, facts: &ChangeFacts) -> bool {
    let project = live.layout.project(facts.change.key.project.as_str());
    let extra = project.map(|project| project.extra_config_paths.clone()).unwrap_or_default();
    facts
        .files
        .as_ref()
        .is_none_or(|files| !config_paths(files.iter().map(String::as_str), &extra).is_empty())
}

/// Returns the queues to which a change belonged while it targeted other branches, one for each
/// branch. Its current queue may be among them.
pub(crate) fn former_queues(
    live: &LiveLayout,
    pipeline: &Pipeline,
    change: &ChangeRef,
    former_branches: &[BranchName],
) -> Vec<QueueKey> {
    let of = |branch: &BranchName| {
        queue_key(live, pipeline, &ChangeRef { branch: branch.clone(), ..change.clone() })
    };
    former_branches.iter().map(of).collect()
}

/// Returns the queue of a pipeline to which a change belongs, with its current target branch.
pub(crate) fn queue_key(live: &LiveLayout, pipeline: &Pipeline, change: &ChangeRef) -> QueueKey {
    queue_of(&live.layout, &live.tenant.name, pipeline, change)
}

/// Formats a queue for users: its pipeline and tenant, and its name and branch if it has them.
pub(crate) fn queue_description(
    live: &LiveLayout,
    pipeline: &Pipeline,
    change: &ChangeRef,
) -> String {
    let branch = change.on_branch().map(|branch| branch.as_str());
    let (name, branch) = match pipeline.manager {
        Manager::Independent => (None, None),
        Manager::Supercedent => (None, Some(change.branch.as_str())),
        Manager::Dependent | Manager::Serial => {
            let settings =
                live.layout.queue_on(&change.key.project, pipeline.name.as_str(), branch);
            (Some(settings.name), branch.filter(|_| settings.per_branch))
        }
    };
    let mut words = format!("pipeline {} of tenant {}", pipeline.name, live.tenant.name);
    words.extend(name.map(|name| format!(", queue {name}")));
    words.extend(branch.map(|branch| format!(", branch {branch}")));
    words
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_model::ProjectName;

    fn change(number: u64) -> ChangeRef {
        let key =
            ChangeKey::change("github".into(), ProjectName::new("forge.test", "org/one"), number);
        ChangeRef { key, branch: "main".into(), head: "abc".into(), patchset: "abc".to_owned() }
    }

    /// Z6.1, Z6.5: the report detail applies to the change and the members of its bundle only.
    #[test]
    fn report_detail_applies_to_what_the_trigger_enqueued() {
        let offered = |cycle: &[u64]| -> Vec<Candidate> {
            let cycle: Vec<ChangeKey> = cycle.iter().map(|number| change(*number).key).collect();
            let of = |number: u64| {
                let cycle =
                    if cycle.contains(&change(number).key) { cycle.clone() } else { Vec::new() };
                Candidate { bundle: cycle, ..Candidate::bare(&change(number)) }
            };
            (1..=4).map(of).collect()
        };
        let detailed = |cycle: &[u64], detail| -> Vec<u64> {
            let detailed = with_detail(offered(cycle), &change(2), detail);
            detailed
                .iter()
                .filter(|one| one.debug)
                .filter_map(|one| one.change.key.number())
                .collect()
        };
        assert_eq!(detailed(&[], ReportDetail::Debug), [2]);
        assert_eq!(detailed(&[2, 3], ReportDetail::Debug), [2, 3]);
        assert_eq!(detailed(&[2, 3], ReportDetail::Outcome), [] as [u64; 0]);
    }
}
