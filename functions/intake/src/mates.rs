//! Changes that need each other in pipelines where each change has a queue of its own: the event of
//! one has all of them tested, as one where all of them may enter, and otherwise each that may by
//! itself.

use crate::Intake;
use crate::deliver::Effects;
use crate::needs::{Needs, Seen, stranger};
use crate::operators::Asker;
use crate::route::{ignores_dependencies, in_words, may_configure, queue_key, told_of};
use sluice_config::pipeline::{Manager, Pipeline};
use sluice_gate::landing::lands_in;
use sluice_gate::plan::CYCLE_MAX;
use sluice_gate::queue::own_queue;
use sluice_gate::{Arrival, ArrivalKind, Candidate, filter};
use sluice_model::change::{ChangeFacts, ChangeKey, ChangeStatus};
use sluice_model::{DeliveryId, QueueKey};
use sluice_records::layout::Live;
use sluice_runtime::batch::LookError;
use std::collections::BTreeSet;

impl Intake {
    /// Returns a change with those that it needs and that need it in turn, in the order in which
    /// they land, where a pipeline tests them as one (Z6.5); `None` where there are none, and where
    /// one of them may not enter.
    pub(crate) async fn together(
        &self,
        own: &Candidate,
        needs: &Needs,
        (live, pipeline): (&Live, &Pipeline),
        seen: &mut Seen,
    ) -> Result<Option<Vec<Candidate>>, LookError> {
        let cycle = needs.cycle_of(&own.change.key);
        let may_be_one = is_each_alone(pipeline) && own.refused.is_none() && own.merged.is_none();
        if cycle.is_empty() || cycle.len() > CYCLE_MAX || !may_be_one {
            return Ok(None);
        }
        let mut all = Vec::with_capacity(cycle.len());
        for key in &cycle {
            if *key == own.change.key {
                all.push(own.clone());
                continue;
            }
            let Some((_, mate)) = self.mate(key, (live, pipeline), seen).await? else {
                return Ok(None);
            };
            // What one delivery reads is bounded, so that of one less may be known.
            let tied: BTreeSet<&ChangeKey> = mate.mates.iter().chain([key]).collect();
            if tied != cycle.iter().collect() {
                return Ok(None);
            }
            all.push(mate);
        }
        for candidate in &mut all {
            candidate.cycle.clone_from(&cycle);
            candidate.mates.clear();
        }
        Ok(Some(all))
    }

    /// Offers those that a change needs, and that need it, to a pipeline that it was offered to by
    /// `arrival`, each to its own queue, where they do not arrive with it. What of them stands
    /// there already, tested on the same, stays as it is. As much is told of them as of the one
    /// whose event it is.
    ///
    /// Where changes land none enters by the event of another one: what lands was asked for itself.
    /// In a dependent pipeline they arrive together ([`Intake::candidates`]).
    pub(crate) async fn offer_mates(
        &self,
        (id, asker, arrival): (&DeliveryId, Asker, &Arrival),
        facts: &ChangeFacts,
        needs: &Needs,
        (live, pipeline): (&Live, &Pipeline),
        seen: &mut Seen,
        effects: &mut Effects,
    ) -> Result<(), LookError> {
        if !is_each_alone(pipeline)
            || ignores_dependencies(pipeline)
            || needs.refusal(&facts.change, &live.layout, pipeline).is_some()
        {
            return Ok(());
        }
        let ArrivalKind::Enqueue { candidates: arrived } = &arrival.kind else { return Ok(()) };
        for key in needs.cycle_of(&facts.change.key) {
            if key == facts.change.key {
                continue;
            }
            let place = |mate: &Candidate| in_words(live, pipeline, &mate.change);
            if let Some(mate) = arrived.iter().find(|mate| mate.change.key == key) {
                let place = place(mate);
                effects.tell(format!(
                    "{} may enter {place}: as one with {}",
                    mate.change, facts.change
                ));
                continue;
            }
            let Some((mate, candidate)) = self.mate(&key, (live, pipeline), seen).await? else {
                continue;
            };
            if effects.is_full() {
                // Its own events have it tested.
                tracing::warn!(change = %mate.change, pipeline = %pipeline.name, "not offered: one commit has no place for it");
                continue;
            }
            let place = place(&candidate);
            let queue = queue_key(live, pipeline, &mate.change);
            let candidates = told_of(vec![candidate], &mate.change, asker.detail());
            let kind = ArrivalKind::Enqueue { candidates };
            let arrival = self.arrival(id, live, &queue, &mate.change, kind);
            effects
                .arrive(&queue, &Arrival { by_operator: asker == Asker::Operator, ..arrival })?;
            effects.tell(format!(
                "{} may enter {place}: it and {} need each other",
                mate.change, facts.change
            ));
        }
        Ok(())
    }

    /// Returns one of those that a change needs and that need it, as it is offered with that, where
    /// it may enter the pipeline.
    async fn mate(
        &self,
        key: &ChangeKey,
        (live, pipeline): (&Live, &Pipeline),
        seen: &mut Seen,
    ) -> Result<Option<(ChangeFacts, Candidate)>, LookError> {
        // It was read when the cycle was found.
        let Some(mate) = self.read(key, seen).await? else { return Ok(None) };
        let takes_part = live.layout.project_pipelines(&key.project).contains(&pipeline.name);
        let may_enter = (takes_part || may_configure(live, &mate))
            && mate.status == ChangeStatus::Open
            && stranger(live, (&key.connection, &key.project)).is_none()
            && filter::refusal(pipeline, &mate, self.ports.clock.now()).is_none();
        if !may_enter {
            return Ok(None);
        }
        let candidate = self.offered(&mate, live, pipeline, seen).await?;
        // Of a refusal those are told that were asked for.
        Ok(candidate
            .filter(|candidate| candidate.refused.is_none())
            .map(|candidate| (mate, candidate)))
    }
}

/// Returns whether each change has a queue of its own in a pipeline, and none lands there.
fn is_each_alone(pipeline: &Pipeline) -> bool {
    pipeline.manager == Manager::Independent && !lands_in(pipeline)
}

/// Returns where an arrival of a change is to go: to the change's `own` queue, or, of those that
/// need each other where each has one, to that of the first of them by its key, whichever was asked
/// for.
pub(crate) fn home_of(arrival: &Arrival, pipeline: &Pipeline, own: &QueueKey) -> QueueKey {
    let first = match &arrival.kind {
        ArrivalKind::Enqueue { candidates } if is_each_alone(pipeline) => {
            candidates.last().and_then(Candidate::host)
        }
        _ => None,
    };
    first.map_or_else(|| own.clone(), |first| QueueKey { queue: own_queue(first), ..own.clone() })
}
