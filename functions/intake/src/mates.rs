//! Changes that need each other in pipelines where each change is a queue of its own: the event of one has all of them tested.

use crate::Intake;
use crate::deliver::Effects;
use crate::needs::{Needs, Seen, stranger};
use crate::operators::Asker;
use crate::route::{ignores_dependencies, in_words, may_configure, queue_key, told_of};
use sluice_config::pipeline::{Manager, Pipeline};
use sluice_gate::landing::lands_in;
use sluice_gate::{Arrival, ArrivalKind, filter};
use sluice_model::DeliveryId;
use sluice_model::change::{ChangeFacts, ChangeStatus};
use sluice_records::layout::Live;
use sluice_runtime::batch::LookError;

impl Intake {
    /// Offers those that a change needs, and that need it, to a pipeline that it was offered to, each to its own queue. What of them
    /// stands there already, tested on the same, stays as it is. As much is told of them as of the one whose event it is.
    ///
    /// Where changes land none enters by the event of another one: what lands was asked for itself. In a dependent pipeline they
    /// arrive together ([`Intake::candidates`]).
    pub(crate) async fn offer_mates(
        &self,
        (id, asker): (&DeliveryId, Asker),
        facts: &ChangeFacts,
        needs: &Needs,
        (live, pipeline): (&Live, &Pipeline),
        seen: &mut Seen,
        effects: &mut Effects,
    ) -> Result<(), LookError> {
        let is_each_alone = pipeline.manager == Manager::Independent && !lands_in(pipeline);
        if !is_each_alone
            || ignores_dependencies(pipeline)
            || needs.refusal(&facts.change, &live.layout, pipeline).is_some()
        {
            return Ok(());
        }
        let now = self.ports.clock.now();
        for key in needs.cycle_of(&facts.change.key) {
            if key == facts.change.key {
                continue;
            }
            // It was read when the cycle was found.
            let Some(mate) = self.read(&key, seen).await? else { continue };
            let takes_part = live.layout.project_pipelines(&key.project).contains(&pipeline.name);
            let may_enter = (takes_part || may_configure(live, &mate))
                && mate.status == ChangeStatus::Open
                && stranger(live, (&key.connection, &key.project)).is_none()
                && filter::refusal(pipeline, &mate, now).is_none();
            if !may_enter {
                continue;
            }
            if effects.is_full() {
                // Its own events have it tested.
                tracing::warn!(change = %mate.change, pipeline = %pipeline.name, "not offered: one commit has no place for it");
                continue;
            }
            let candidate = self.offered(&mate, live, pipeline, seen).await?;
            // Of a refusal those are told that were asked for.
            let Some(candidate) = candidate.filter(|candidate| candidate.refused.is_none()) else { continue };
            let queue = queue_key(live, pipeline, &mate.change);
            let candidates = told_of(vec![candidate], &mate.change, asker.detail());
            let kind = ArrivalKind::Enqueue { candidates };
            let arrival = self.arrival(id, live, &queue, &mate.change, kind);
            effects.arrive(&queue, &Arrival { by_operator: asker == Asker::Operator, ..arrival })?;
            let place = in_words(live, pipeline, &mate.change);
            effects.tell(format!("{} may enter {place}: it and {} need each other", mate.change, facts.change));
        }
        Ok(())
    }
}
