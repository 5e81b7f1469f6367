//! Bundles in pipelines where each change has a queue of its own: the event of one member has all
//! of them tested. They are tested as one bundle where all may enter, and otherwise each by itself.

use crate::Intake;
use crate::dependencies::{ChangeCache, Dependencies, other_connection_reason};
use crate::operator_enqueue::{Offer, Requester};
use crate::process_delivery::Effects;
use crate::route::{
    LivePipeline, ignores_dependencies, may_configure, queue_description, queue_key, with_detail,
};
use sluice_config::pipeline::{Manager, Pipeline};
use sluice_gate::landing::lands_in;
use sluice_gate::plan::BUNDLE_MAX;
use sluice_gate::queue::own_queue;
use sluice_gate::{Candidate, InboxMessage, InboxMessageKind, filter};
use sluice_model::QueueKey;
use sluice_model::change::{ChangeFacts, ChangeKey, ChangeStatus};
use sluice_runtime::batch::ReconcileError;
use std::collections::BTreeSet;

/// An offer with the message that was sent for it.
pub(crate) struct SentOffer<'a> {
    /// The offer.
    pub(crate) offer: Offer<'a>,
    /// The message to the change's own queue.
    pub(crate) message: &'a InboxMessage,
}

impl Intake {
    /// Returns the members of a change's bundle as candidates in merge order, each with the whole
    /// bundle as its `bundle`, for a pipeline that tests them as one (Z6.5). `needs` are the
    /// dependencies of `own`. `None` if the pipeline merges or is not independent, `own` is
    /// refused, merged or in no bundle, the bundle has more than [`BUNDLE_MAX`] members, or one of
    /// these may not enter or was found in another cycle.
    pub(crate) async fn bundle_candidates(
        &self,
        own: &Candidate,
        needs: &Dependencies,
        live_pipeline: LivePipeline<'_>,
        cache: &mut ChangeCache,
    ) -> Result<Option<Vec<Candidate>>, ReconcileError> {
        let cycle = needs.cycle_of(&own.change.key);
        let may_be_one = is_independent_without_merge(live_pipeline.pipeline)
            && own.refused.is_none()
            && own.merged.is_none();
        if cycle.is_empty() || cycle.len() > BUNDLE_MAX || !may_be_one {
            return Ok(None);
        }
        let mut all = Vec::with_capacity(cycle.len());
        for key in &cycle {
            if *key == own.change.key {
                all.push(own.clone());
                continue;
            }
            let Some((_, member)) = self.bundle_member(key, live_pipeline, cache).await? else {
                return Ok(None);
            };
            // The number of changes that one delivery reads is limited, so fewer members may be
            // known for one.
            let tied: BTreeSet<&ChangeKey> = member.cycle_needs.iter().chain([key]).collect();
            if tied != cycle.iter().collect() {
                return Ok(None);
            }
            all.push(member);
        }
        for candidate in &mut all {
            candidate.bundle.clone_from(&cycle);
            candidate.cycle_needs.clear();
        }
        Ok(Some(all))
    }

    /// Adds to `effects` a message for each other member of the change's bundle, to the member's
    /// own queue, and a log line. `message` is the one for the change itself: a member that it
    /// enqueues already gets only the log line. A member that may not enter is skipped, and with a
    /// warning one for which the commit has no room. Does nothing in a pipeline that merges or is
    /// not independent, where the pipeline ignores dependencies or refuses the change, or if
    /// `message` enqueues nothing.
    ///
    /// A member that is queued and tested on the same state stays as it is. The report detail is
    /// that of the event's own change.
    ///
    /// Where changes are merged, no member enters by the event of another: it needs a trigger of
    /// its own. In a dependent pipeline all members come in one message ([`Intake::candidates`]).
    pub(crate) async fn offer_bundle_members(
        &self,
        SentOffer { offer: Offer { id, requester }, message }: SentOffer<'_>,
        facts: &ChangeFacts,
        needs: &Dependencies,
        live_pipeline: LivePipeline<'_>,
        cache: &mut ChangeCache,
        effects: &mut Effects,
    ) -> Result<(), ReconcileError> {
        let LivePipeline { live, pipeline } = live_pipeline;
        if !is_independent_without_merge(pipeline)
            || ignores_dependencies(pipeline)
            || needs.refusal(&facts.change, &live.layout, pipeline).is_some()
        {
            return Ok(());
        }
        let InboxMessageKind::Enqueue { candidates: enqueued } = &message.kind else {
            return Ok(());
        };
        for key in needs.cycle_of(&facts.change.key) {
            if key == facts.change.key {
                continue;
            }
            let description =
                |member: &Candidate| queue_description(live, pipeline, &member.change);
            if let Some(member) = enqueued.iter().find(|member| member.change.key == key) {
                let description = description(member);
                effects.log(format!(
                    "{} may enter {description} in one bundle with {}",
                    member.change, facts.change
                ));
                continue;
            }
            let Some((member, candidate)) = self.bundle_member(&key, live_pipeline, cache).await?
            else {
                continue;
            };
            if effects.is_full() {
                // Its own events enqueue it.
                tracing::warn!(change = %member.change, pipeline = %pipeline.name, "not offered: the commit is full");
                continue;
            }
            let description = description(&candidate);
            let queue = queue_key(live, pipeline, &member.change);
            let candidates = with_detail(vec![candidate], &member.change, requester.detail());
            let kind = InboxMessageKind::Enqueue { candidates };
            let message = self.inbox_message(id, live, &queue, &member.change, kind);
            effects.send_to_queue(
                &queue,
                &InboxMessage { by_operator: requester == Requester::Operator, ..message },
            )?;
            effects.log(format!(
                "{} may enter {description}: it is in a dependency cycle with {}",
                member.change, facts.change
            ));
        }
        Ok(())
    }

    /// Reads a bundle member and returns its facts with its candidate; triggers are not asked.
    /// `None` if the forge does not have it, it is not open, its project or the pipeline's
    /// requirements keep it out of the pipeline, or it would be refused there.
    async fn bundle_member(
        &self,
        key: &ChangeKey,
        LivePipeline { live, pipeline }: LivePipeline<'_>,
        cache: &mut ChangeCache,
    ) -> Result<Option<(ChangeFacts, Candidate)>, ReconcileError> {
        // It was read when the cycle was found, so this reads the cache.
        let Some(member) = self.read(key, cache).await? else { return Ok(None) };
        let takes_part = live.layout.project_pipelines(&key.project).contains(&pipeline.name);
        let may_enter = (takes_part || may_configure(live, &member))
            && member.status == ChangeStatus::Open
            && other_connection_reason(live, &key.connection, &key.project).is_none()
            && filter::refusal(pipeline, &member, self.ports.clock.now()).is_none();
        if !may_enter {
            return Ok(None);
        }
        let candidate = self.offered_candidate(&member, live, pipeline, cache).await?;
        // A refusal is reported on the change that was triggered, not on its members.
        Ok(candidate
            .filter(|candidate| candidate.refused.is_none())
            .map(|candidate| (member, candidate)))
    }
}

/// Returns whether a pipeline is independent and merges nothing; each change then has a queue of
/// its own.
fn is_independent_without_merge(pipeline: &Pipeline) -> bool {
    pipeline.manager == Manager::Independent && !lands_in(pipeline)
}

/// Returns the queue to which a message must be sent: `own`, or, if it enqueues a bundle in an
/// independent pipeline that does not merge, the queue of the member with the lowest key.
pub(crate) fn bundle_queue(
    message: &InboxMessage,
    pipeline: &Pipeline,
    own: &QueueKey,
) -> QueueKey {
    let first = match &message.kind {
        InboxMessageKind::Enqueue { candidates } if is_independent_without_merge(pipeline) => {
            candidates.last().and_then(Candidate::host)
        }
        _ => None,
    };
    first.map_or_else(|| own.clone(), |first| QueueKey { queue: own_queue(first), ..own.clone() })
}
