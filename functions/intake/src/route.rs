//! Which queues of which tenants a change concerns, and what they are told.

use crate::Intake;
use crate::before::{Before, Concerned, Damaged};
use crate::deliver::{Effects, Rest};
use crate::mates::home_of;
use crate::needs::{Needs, Seen, candidate, is_inside, stranger};
use crate::operators::Asker;
use crate::over::{Says, says};
use crate::told::Told;
use sluice_config::fragment::config_paths;
use sluice_config::pipeline::{Manager, Pipeline};
use sluice_gate::filter::{Detail, Speaker};
use sluice_gate::queue::queue_of;
use sluice_gate::{Arrival, ArrivalKind, Candidate, MERGED_ELSEWHERE, filter};
use sluice_model::change::{ChangeFacts, ChangeKey, ChangeRef, ChangeStatus};
use sluice_model::event::{Awaited, Behind, ForgeEvent};
use sluice_model::poke::Poke;
use sluice_model::{ArrivalId, BranchName, DeliveryId, QueueKey, TenantName};
use sluice_records::change::{self, NEEDED_BY};
use sluice_records::codec::decode_foreign;
use sluice_records::layout::Live;
use sluice_runtime::batch::LookError;
use sluice_runtime::record::{Key, Query};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// The most changes that are pulled in behind the one they need.
const BEHIND_MAX: usize = 10;

/// The most changes that are known to need one.
const NEEDED_BY_MAX: usize = 1_000;

/// Something that came about a change, as tenants are told of it.
#[derive(Clone, Copy)]
pub(crate) struct News<'a> {
    /// The delivery that brought it.
    pub(crate) id: &'a DeliveryId,
    /// What came.
    pub(crate) event: &'a ForgeEvent,
    /// The change as it is now.
    pub(crate) facts: &'a ChangeFacts,
    /// Whether it counts for triggers; what was told before does not.
    pub(crate) is_news: bool,
}

/// What came of telling tenants.
#[derive(Default)]
pub(crate) struct Routed {
    /// The changes that the change needs itself, in the tenants that were told.
    pub(crate) needs: BTreeSet<ChangeKey>,
    /// How many tenants that can be read were told, the first by their names.
    pub(crate) told: usize,
    /// Whether those are all; the others are told by the next commit.
    pub(crate) is_all: bool,
}

/// Returns tenants by their names, with what is known of those that can be read, and what an event
/// waits for at the others.
pub(crate) fn by_name<'a>(
    tenants: &'a [Concerned],
    damaged: &'a Damaged,
) -> BTreeMap<&'a TenantName, Result<&'a Concerned, Awaited>> {
    let known = tenants.iter().map(|concerned| (&concerned.live.tenant.name, Ok(concerned)));
    let awaited =
        |behind: &Option<Behind>| Awaited { behind: behind.clone(), ..Awaited::default() };
    damaged.iter().map(|(name, behind)| (name, Err(awaited(behind)))).chain(known).collect()
}

/// A queue that a change may enter, or stands in.
pub(crate) struct Place<'a> {
    pub(crate) live: &'a Live,
    pub(crate) pipeline: &'a Pipeline,
    pub(crate) queue: &'a QueueKey,
    /// Those of the tenant's queues that the change may stand in and that are not empty.
    pub(crate) listed: &'a [QueueKey],
}

impl Intake {
    /// Tells every queue that is concerned: the change may enter, or it may have to leave. A queue
    /// of a branch that the change was for formerly is told as well. For a tenant whose
    /// configuration is on its way, and one that cannot be read, news are kept. Tenants for which
    /// the commit has no place are told by the next one.
    pub(crate) async fn route(
        &self,
        news: News<'_>,
        before: &Before,
        seen: &mut Seen,
        effects: &mut Effects,
    ) -> Result<Routed, LookError> {
        let News { id, event, facts, is_news } = news;
        let mut routed = Routed::default();
        let says_over = is_news && says(event) == Some(Says::Over);
        let is_known_over = !says_over && before.told.as_ref().is_some_and(Told::is_over);
        if before.tenants.is_empty() && before.damaged.is_empty() {
            effects.tell(format!("no tenant knows {}", event.project));
        }
        let mut last = None;
        for (name, concerned) in by_name(&before.tenants, &before.damaged) {
            if let Some(last) = last.replace(name).filter(|_| effects.is_full()) {
                let (after, kind, formerly) =
                    (last.clone(), event.kind.clone(), before.formerly.clone());
                effects.rest = Some(Rest { after, kind, is_news, formerly });
                return Ok(routed);
            }
            let Concerned { live, awaited, listed } = match concerned {
                Ok(concerned) => concerned,
                Err(awaited) => {
                    if is_news {
                        self.keep_for(id, event, name, awaited, effects)?;
                        effects.pokes.push(Poke::Tenant { tenant: name.clone() });
                    }
                    continue;
                }
            };
            routed.told += 1;
            if let Some(awaited) = awaited.as_ref().filter(|_| is_news) {
                self.keep_for(id, event, &live.tenant.name, awaited.clone(), effects)?;
            }
            // Where it stands already that is heard at once: nothing of it depends on what triggers
            // ask for.
            let news = News { is_news: is_news && awaited.is_none(), ..news };
            let needs = match facts.status {
                ChangeStatus::Open => self.needs_of(facts, &live.layout, seen).await?,
                ChangeStatus::Merged | ChangeStatus::Closed => Needs::default(),
            };
            routed.needs.extend(needs.direct().iter().cloned());
            for pipeline in live.layout.pipelines() {
                let takes_part =
                    live.layout.project_pipelines(&event.project).contains(&pipeline.name);
                if !takes_part && !may_configure(live, facts) {
                    continue;
                }
                let queue = queue_key(live, pipeline, &facts.change);
                let place = Place { live, pipeline, queue: &queue, listed };
                let told = self.tell_queue((news, is_known_over), &needs, &place, seen).await?;
                if let Some((arrival, effect)) = told {
                    effects.arrive(&home_of(&arrival, pipeline, &queue), &arrival)?;
                    effects.tell(effect);
                    if let ArrivalKind::Enqueue { candidates } = &arrival.kind {
                        let asker = Asker::Event(Detail::of(
                            candidates.iter().any(|candidate| candidate.debug),
                        ));
                        let asked = (id, asker, &arrival);
                        self.offer_mates(asked, facts, &needs, (live, pipeline), seen, effects)
                            .await?;
                    }
                }
                for old in former_queues(live, pipeline, &facts.change, &before.formerly) {
                    if old != queue && listed.contains(&old) {
                        let kind = ArrivalKind::Seen {
                            change: facts.change.clone(),
                            gone: None,
                            merged: false,
                            needs: None,
                            as_of: seen.as_of(),
                        };
                        effects.arrive(&old, &self.arrival(id, live, &old, &facts.change, kind))?;
                        let pipeline = &pipeline.name;
                        let (change, branch) = (&facts.change, &facts.change.branch);
                        effects.tell(format!(
                            "a queue of {pipeline} is told that {change} is for {branch} now"
                        ));
                    }
                }
            }
        }
        routed.is_all = true;
        Ok(routed)
    }

    /// Returns what a queue is told, if anything. `is_known_over` is of a change that left it when
    /// it was told to be over: what is there came in since, and was let in as it is.
    async fn tell_queue(
        &self,
        (news, is_known_over): (News<'_>, bool),
        needs: &Needs,
        place: &Place<'_>,
        seen: &mut Seen,
    ) -> Result<Option<(Arrival, String)>, LookError> {
        let News { id, event, facts, is_news } = news;
        let Place { live, pipeline, queue, listed } = *place;
        let now = self.ports.clock.now();
        let arrival = |kind| self.arrival(id, live, queue, &facts.change, kind);
        let refused = needs.refusal(&facts.change, &live.layout, pipeline);
        let open = facts.status == ChangeStatus::Open;
        // Only what lands has to be open; other pipelines say themselves what they require.
        let key = &facts.change.key;
        let refusal =
            stranger(live, (&key.connection, &key.project)).or_else(|| match pipeline.manager {
                Manager::Dependent if !open => Some("the change is no longer open".to_owned()),
                Manager::Dependent if facts.submittable == Some(false) => {
                    Some(filter::NOT_SUBMITTABLE.to_owned())
                }
                _ => filter::refusal(pipeline, facts, now),
            });
        let may_start = is_news
            && filter::may_start(
                &live.tenant.name,
                pipeline,
                event,
                self.speaker(event, seen).await?,
            );
        if may_start
            && let Some(detail) = self.detail_of(pipeline, event, Some(facts), seen).await?
        {
            if let Some(why) = &refusal {
                if !listed.contains(queue) {
                    tracing::info!(change = %facts.change, pipeline = %pipeline.name, why, "not enqueued");
                    return Ok(None);
                }
            } else if needs.is_ignored && !ignores_dependencies(pipeline) {
                // As in Zuul, nobody is told: it is meant to keep the service from being flooded.
                tracing::info!(change = %facts.change, pipeline = %pipeline.name, "not enqueued: it needs too many");
            } else {
                let candidates = self.candidates(facts, needs, refused, place, seen).await?;
                let candidates = told_of(candidates, &facts.change, detail);
                let effect = format!(
                    "{} may enter {}",
                    facts.change,
                    in_words(live, pipeline, &facts.change)
                );
                return Ok(Some((arrival(ArrivalKind::Enqueue { candidates }), effect)));
            }
        }
        if !listed.contains(queue) {
            return Ok(None);
        }
        let gone = match (facts.status, pipeline.manager) {
            (ChangeStatus::Closed, manager) if manager == Manager::Dependent || !is_known_over => {
                Some("the change was closed".to_owned())
            }
            (ChangeStatus::Merged, Manager::Dependent) => Some(MERGED_ELSEWHERE.to_owned()),
            (ChangeStatus::Open, Manager::Dependent) => {
                refusal.map(|why| filter::unable_to_merge(&why)).or(refused)
            }
            _ => None,
        };
        let told = in_words(live, pipeline, &facts.change);
        let effect = format!(
            "{told} is told that {} is {}",
            facts.change,
            gone.as_deref().unwrap_or("as it is now")
        );
        let needs = open.then(|| needs.open.iter().map(|need| need.change.clone()).collect());
        let merged = facts.status == ChangeStatus::Merged;
        let kind = ArrivalKind::Seen {
            change: facts.change.clone(),
            gone,
            merged,
            needs,
            as_of: seen.as_of(),
        };
        Ok(Some((arrival(kind), effect)))
    }

    /// Returns who says what an event tells. Once one pipeline waits for what we say, all of them
    /// hear of it.
    async fn speaker(&self, event: &ForgeEvent, seen: &mut Seen) -> Result<Speaker, LookError> {
        if let Some(known) = seen.speaker {
            return Ok(known);
        }
        let says = self.who_says(event).await?;
        Ok(*seen.speaker.insert(says))
    }

    /// Returns how much is told of what the event lets into the pipeline; `None` where no trigger
    /// takes it. What its sender may do is asked only where that decides.
    pub(crate) async fn detail_of(
        &self,
        pipeline: &Pipeline,
        event: &ForgeEvent,
        facts: Option<&ChangeFacts>,
        seen: &mut Seen,
    ) -> Result<Option<Detail>, LookError> {
        let may = match filter::asks_who(pipeline, event, facts) {
            true => Some(self.may(event, seen).await?),
            false => None,
        };
        Ok(filter::detail_of(pipeline, event, facts, may))
    }

    pub(crate) fn arrival(
        &self,
        id: &DeliveryId,
        live: &Live,
        queue: &QueueKey,
        change: &ChangeRef,
        kind: ArrivalKind,
    ) -> Arrival {
        Arrival {
            id: ArrivalId::derive(&[id.as_str(), &queue.to_string(), &change.key.to_string()]),
            at: self.ports.clock.now(),
            event_id: id.to_string(),
            layout: live.number(),
            by_operator: false,
            taken_up: false,
            kind,
        }
    }

    /// Returns what is to be enqueued: in a dependent pipeline with what it needs before it, and
    /// what needs it behind (D01, D02).
    pub(crate) async fn candidates(
        &self,
        facts: &ChangeFacts,
        needs: &Needs,
        refused: Option<String>,
        place: &Place<'_>,
        seen: &mut Seen,
    ) -> Result<Vec<Candidate>, LookError> {
        let Place { live, pipeline, queue, .. } = *place;
        let none = Needs::default();
        let own = if ignores_dependencies(pipeline) {
            candidate(facts, &none, None, pipeline)
        } else {
            candidate(facts, needs, refused, pipeline)
        };
        let own = Candidate { as_of: seen.as_of(), ..own };
        if pipeline.manager != Manager::Dependent {
            let is_ignored = ignores_dependencies(pipeline);
            let needs = if is_ignored { &none } else { needs };
            let together = self.together(&own, needs, (live, pipeline), seen).await?;
            return Ok(together.unwrap_or_else(|| vec![own]));
        }
        let now = self.ports.clock.now();
        let may_enter = |facts: &ChangeFacts| {
            is_inside(&live.layout, &facts.change.key)
                && queue_key(live, pipeline, &facts.change) == *queue
                && facts.status == ChangeStatus::Open
                && facts.submittable != Some(false)
                && filter::refusal(pipeline, facts, now).is_none()
        };
        let mut candidates = Vec::new();
        for need in needs.open.iter().filter(|need| may_enter(need)) {
            candidates.extend(self.offered(need, live, pipeline, seen).await?);
        }
        // Whoever needs one of a cycle comes in behind all of it.
        let mut ahead =
            if own.cycle.is_empty() { vec![facts.change.key.clone()] } else { own.cycle.clone() };
        candidates.push(own);
        if !seen.is_needed() {
            return Ok(candidates);
        }
        let mut followers = 0;
        let mut known = VecDeque::new();
        for key in &ahead {
            // Of one that was not kept whole only its forge can say whether it may.
            let may = |behind: &ChangeFacts| behind.cut.is_partial() || may_enter(behind);
            let follows = |behind: &ChangeFacts| may(behind) && self.names(behind, key);
            known.extend(self.needed_by(key, &follows).await?);
        }
        while let Some(behind) = known.pop_front() {
            if seen.is_full() || followers == BEHIND_MAX {
                break; // Their own news enqueues them.
            }
            let Some(behind) = self.read(&behind, seen).await? else { continue };
            let is_offered = |facts: &ChangeFacts, candidates: &[Candidate]| {
                candidates.iter().any(|offered| offered.change.key == facts.change.key)
            };
            let follows = may_enter(&behind) && ahead.iter().any(|key| self.names(&behind, key));
            if !follows || is_offered(&behind, &candidates) {
                continue;
            }
            followers += 1;
            let Some(follower) = self.offered(&behind, live, pipeline, seen).await? else {
                continue;
            };
            // It comes in with those that need it as much as it needs them, or not at all.
            for mate in follower.cycle.iter().filter(|mate| **mate != follower.change.key) {
                let Some(mate) = self.read(mate, seen).await? else { continue };
                if may_enter(&mate) && !is_offered(&mate, &candidates) {
                    candidates.extend(self.offered(&mate, live, pipeline, seen).await?);
                }
            }
            candidates.push(follower);
            // Whoever waits for it alone comes in behind it (G09).
            let key = behind.change.key;
            let follows = |facts: &ChangeFacts| may_enter(facts) && self.names(facts, &key);
            known.extend(self.needed_by(&key, &follows).await?);
            ahead.push(key);
        }
        Ok(candidates)
    }

    /// Returns another change than the event's as it is offered to a queue; `None` for one that
    /// nobody is told of.
    pub(crate) async fn offered(
        &self,
        facts: &ChangeFacts,
        live: &Live,
        pipeline: &Pipeline,
        seen: &mut Seen,
    ) -> Result<Option<Candidate>, LookError> {
        let needs = self.needs_of(facts, &live.layout, seen).await?;
        let refused = needs.refusal(&facts.change, &live.layout, pipeline);
        Ok((!needs.is_ignored).then(|| candidate(facts, &needs, refused, pipeline)))
    }

    /// Returns the changes that need a change and may follow it by what was known of them last, so
    /// that no forge is asked about the many that anybody may have opened.
    pub(crate) async fn needed_by(
        &self,
        key: &ChangeKey,
        follows: &(dyn Fn(&ChangeFacts) -> bool + Sync),
    ) -> Result<Vec<ChangeKey>, LookError> {
        let query = Query::prefix(change::partition(key), NEEDED_BY, NEEDED_BY_MAX);
        let records = self.ports.records.query(&query).await?;
        let named: Vec<ChangeKey> = records.iter().filter_map(decode_foreign).collect();
        let mut following = Vec::new();
        for some in named.chunks(100) {
            let keys: Vec<Key> = some.iter().map(change::facts_key).collect();
            for record in self.ports.records.get(&keys).await?.iter().flatten() {
                let Some(facts) = decode_foreign::<ChangeFacts>(record) else { continue };
                following.extend(follows(&facts).then_some(facts.change.key));
            }
        }
        Ok(following)
    }

    /// Returns whether a change names another one as what it depends on.
    pub(crate) fn names(&self, facts: &ChangeFacts, key: &ChangeKey) -> bool {
        // By whichever of the connections to its host: which one it is a tenant says.
        let names = |url: &String| {
            self.forges.values().any(|forge| forge.change_at(url).as_ref() == Some(key))
        };
        facts.parents.contains(key) || facts.depends_on.iter().any(names)
    }
}

/// Returns what is offered with a change, where so much is to be told of it and of those that come
/// in only together with it: what else comes with it no trigger let in.
pub(crate) fn told_of(
    mut candidates: Vec<Candidate>,
    change: &ChangeRef,
    detail: Detail,
) -> Vec<Candidate> {
    let own = candidates.iter().find(|candidate| candidate.change.key == change.key);
    let cycle = own.map(|own| own.cycle.clone()).unwrap_or_default();
    for candidate in &mut candidates {
        let key = &candidate.change.key;
        candidate.debug = detail == Detail::Debug && (*key == change.key || cycle.contains(key));
    }
    candidates
}

/// Returns whether a pipeline tests changes without what they depend on.
pub(crate) fn ignores_dependencies(pipeline: &Pipeline) -> bool {
    pipeline.ignore_dependencies && pipeline.manager == Manager::Independent
}

/// Whether a change may edit its project's configuration: then it may bring its project into a
/// pipeline (C14), and its own frozen jobs say whether it does.
pub(crate) fn may_configure(live: &Live, facts: &ChangeFacts) -> bool {
    let project = live.layout.project(facts.change.key.project.as_str());
    let extra = project.map(|project| project.extra_config_paths.clone()).unwrap_or_default();
    facts
        .files
        .as_ref()
        .is_none_or(|files| !config_paths(files.iter().map(String::as_str), &extra).is_empty())
}

/// Returns the queues that a change belonged to while it was for other branches.
pub(crate) fn former_queues(
    live: &Live,
    pipeline: &Pipeline,
    change: &ChangeRef,
    formerly: &[BranchName],
) -> Vec<QueueKey> {
    let of = |branch: &BranchName| {
        queue_key(live, pipeline, &ChangeRef { branch: branch.clone(), ..change.clone() })
    };
    formerly.iter().map(of).collect()
}

/// Returns the queue that a change belongs to in a pipeline of a tenant as it is.
pub(crate) fn queue_key(live: &Live, pipeline: &Pipeline, change: &ChangeRef) -> QueueKey {
    queue_of(&live.layout, &live.tenant.name, pipeline, change)
}

/// Returns the queue of [`queue_key`] as people know it: its pipeline and tenant, and its name and
/// branch where it has any.
pub(crate) fn in_words(live: &Live, pipeline: &Pipeline, change: &ChangeRef) -> String {
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

    /// Z6.1, Z6.5: of what comes with a change only those are told of in the same way that need it
    /// as much as it needs them.
    #[test]
    fn how_jobs_were_decided_is_told_of_what_the_trigger_let_in() {
        let offered = |cycle: &[u64]| -> Vec<Candidate> {
            let cycle: Vec<ChangeKey> = cycle.iter().map(|number| change(*number).key).collect();
            let of = |number: u64| {
                let cycle =
                    if cycle.contains(&change(number).key) { cycle.clone() } else { Vec::new() };
                Candidate { cycle, ..Candidate::bare(&change(number)) }
            };
            (1..=4).map(of).collect()
        };
        let told = |cycle: &[u64], detail| -> Vec<u64> {
            let told = told_of(offered(cycle), &change(2), detail);
            told.iter().filter(|one| one.debug).filter_map(|one| one.change.key.number()).collect()
        };
        assert_eq!(told(&[], Detail::Debug), [2]);
        assert_eq!(told(&[2, 3], Detail::Debug), [2, 3]);
        assert_eq!(told(&[2, 3], Detail::Outcome), [] as [u64; 0]);
    }
}
