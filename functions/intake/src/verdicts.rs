//! What became of an event in each pipeline, kept with the change: so that a change that was never
//! enqueued can be explained.

use crate::Intake;
use crate::before::Concerned;
use crate::deliver::Effects;
use crate::needs::stranger;
use crate::route::{may_configure, queue_key};
use sluice_gate::explain::{self, Told, Verdicts};
use sluice_gate::filter::{self, Speaker};
use sluice_model::change::ChangeFacts;
use sluice_model::event::ForgeEvent;
use sluice_model::poke::Poke;
use sluice_records::change;
use sluice_runtime::batch::LookError;

impl Intake {
    /// Notes what became of an event that was news, once it is known which queues are told of it
    /// and who said what it tells. Nobody is asked anything. `is_somewhere` is whether another
    /// tenant than these has a pipeline for it.
    pub(crate) fn judge(
        &self,
        (event, by): (&ForgeEvent, Speaker),
        facts: &ChangeFacts,
        mut verdicts: Verdicts,
        tenants: &[Concerned],
        is_somewhere: bool,
        effects: &mut Effects,
    ) -> Result<(), LookError> {
        let now = facts.seen_at;
        let words = explain::words(event);
        let project = &facts.change.key.project;
        let mut nowhere = match tenants {
            [] => Some(format!("no tenant has the project {project}")),
            _ => Some(format!(
                "{project} takes part in no pipeline, and the change edits no configuration"
            )),
        };
        for Concerned { live, awaited, .. } in tenants {
            if awaited.is_some() {
                // Nobody knows yet; it is noted when its turn comes.
                nowhere = None;
                continue;
            }
            let stranger = stranger(live, (&facts.change.key.connection, project));
            let takes_part = live.layout.project_pipelines(project);
            let configures = may_configure(live, facts);
            for pipeline in live.layout.pipelines() {
                if !takes_part.contains(&pipeline.name) && !configures {
                    continue;
                }
                nowhere = None;
                let queue = queue_key(live, pipeline, &facts.change);
                let is_told = effects.pokes.contains(&Poke::Queue { queue });
                let held_back = filter::held_back(&live.tenant.name, pipeline, event, by);
                let told = match (held_back, &stranger) {
                    (Some(why), _) => Told::HeldBack(why),
                    (None, Some(why)) => Told::Never(why),
                    (None, None) if is_told => Told::Yes,
                    (None, None) => Told::No,
                };
                let outcome = explain::outcome(pipeline, event, facts, told, now);
                verdicts.note(&live.tenant.name, &pipeline.name, &outcome, &words, now);
            }
        }
        verdicts.nowhere = nowhere.filter(|_| !is_somewhere);
        effects.write(change::put_verdicts(&facts.change.key, &verdicts)?);
        Ok(())
    }
}
