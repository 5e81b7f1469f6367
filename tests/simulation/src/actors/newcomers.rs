//! Authors who bring a project into the pipelines by a change, with other changes of the project
//! behind it.

use super::{Actors, Heads, depends_on, open, uploaded};
use crate::oracle::{Oracle, TreeTrigger};
use crate::random::Random;
use crate::scenarios::newcomers::{ADDS, FOLLOWS, NUMBERS_FROM};
use crate::shape::{Shape, project_yaml};
use crate::site::Site;
use crate::story::Story;
use sluice_gate::Head;
use sluice_model::Timestamp;
use sluice_model::change::ChangeKey;
use sluice_runtime::Clock as _;

/// Milliseconds for which a reviewer waits until the change that adds the project is in the gate.
const GATED_MILLIS: u64 = 120_000;

/// The newcomers of a site.
pub(super) struct NewcomerPlans {
    /// Draws what happens.
    random: Random,
    /// The tenants, by their index, whose newcomers have no changes yet.
    to_propose: Vec<usize>,
    /// The changes of the current newcomer.
    current: Option<NewcomerPlan>,
}

/// The changes of a newcomer.
struct NewcomerPlan {
    /// The change that adds the configuration.
    adds: ChangeKey,
    /// The changes that are approved in any order.
    waiting: Vec<ChangeKey>,
    /// The change that is approved while the one that adds the configuration is in the gate.
    /// `None` once it is approved.
    behind: Option<ChangeKey>,
    /// When the last of the other changes was approved.
    approved_at: Option<Timestamp>,
}

impl NewcomerPlan {
    /// Returns whether the change that adds the configuration is in a gate.
    fn is_gated(&self, heads: &Heads) -> bool {
        let gates = heads.values().filter(|head| head.key.pipeline.as_str() == "gate");
        let mut slots = gates.flat_map(Head::slots);
        slots.any(|slot| slot.change.key == self.adds)
    }
}

impl NewcomerPlans {
    /// Returns the plans of a seed.
    pub(super) fn new(seed: u64, shape: &Shape) -> Self {
        let tenants = shape.tenants.iter().enumerate();
        let to_propose = tenants
            .filter(|(_, tenant)| shape.newcomer_of(&tenant.name).is_some())
            .map(|(at, _)| at)
            .collect();
        Self { random: Random::new(seed, 20), to_propose, current: None }
    }

    /// Returns whether a step may be done now.
    pub(super) fn has_step(&self, heads: &Heads, now: Timestamp) -> bool {
        let Some(plan) = &self.current else { return !self.to_propose.is_empty() };
        let has_waited = |at: Timestamp| at.plus_millis(GATED_MILLIS) <= now;
        let may_follow = plan.is_gated(heads) || plan.approved_at.is_some_and(has_waited);
        !plan.waiting.is_empty() || (plan.behind.is_some() && may_follow)
    }

    /// Returns whether a step will be possible.
    pub(super) fn is_unfinished(&self) -> bool {
        self.current.is_some() || !self.to_propose.is_empty()
    }
}

impl Actors {
    /// Does the next step of a newcomer: proposes its changes, or approves one of them.
    pub(super) fn step_newcomer(
        &mut self,
        heads: &Heads,
        site: &Site,
        oracle: &mut Oracle,
        story: &mut Story,
    ) {
        let now = site.world.now();
        let Some(mut plan) = self.newcomers.current.take() else {
            return self.propose_newcomer(site, oracle, story);
        };
        let may_follow = plan.waiting.is_empty() || plan.is_gated(heads);
        let change = match plan.behind.take_if(|_| may_follow) {
            Some(behind) => behind,
            None if plan.waiting.is_empty() => return,
            None => plan.waiting.swap_remove(self.newcomers.random.below(plan.waiting.len())),
        };
        if let Some(revision) = open(site, &change) {
            story.log(now, format!("grace approves {revision} of a newcomer"));
            self.give_approval(&revision, site, oracle);
        }
        if plan.waiting.is_empty() && plan.approved_at.is_none() {
            oracle.record_tree_trigger(&plan.adds);
            plan.approved_at = Some(now);
        }
        let is_unfinished = plan.behind.is_some() || !plan.waiting.is_empty();
        self.newcomers.current = is_unfinished.then_some(plan);
    }

    /// Proposes the change that adds a newcomer to the pipelines, one or two that depend on it, and
    /// one that does not.
    fn propose_newcomer(&mut self, site: &Site, oracle: &mut Oracle, story: &mut Story) {
        let Some(tenant) = self.newcomers.to_propose.pop() else { return };
        let shape = self.shape.tenants[tenant].clone();
        let Some(project) = self.shape.newcomer_of(&shape.name) else { return };
        let first = NUMBERS_FROM + 10 * tenant as u64;
        let is_shared = self.newcomers.random.per_mille(500);
        let config = project_yaml(&project, is_shared, 0, "");
        let adds = self.propose_of_newcomer(
            (&project, first, ADDS),
            None,
            (".zuul.yaml", &config),
            site,
            oracle,
        );
        oracle.record_newcomer(&adds, None);
        let mut members = vec![adds.clone()];
        for number in first + 1..=first + self.newcomers.random.between(1, 2) {
            let need = members[self.newcomers.random.below(members.len())].clone();
            let (path, text) = (format!("new{number}"), number.to_string());
            let change = self.propose_of_newcomer(
                (&project, number, FOLLOWS),
                Some(&need),
                (&path, &text),
                site,
                oracle,
            );
            oracle.record_newcomer(&change, Some(&adds));
            members.push(change);
        }
        let (number, text) = (first + 5, "behind");
        let of = (project.as_str(), number, FOLLOWS);
        let behind = self.propose_of_newcomer(of, None, ("behind", text), site, oracle);
        oracle.record_newcomer(&behind, Some(&adds));
        let all = members.iter().chain([&behind]);
        let names: Vec<String> = all.clone().map(ToString::to_string).collect();
        story.log(
            site.world.now(),
            format!("ada proposes {}; the first one adds {project}", names.join(", ")),
        );
        self.proposed.extend(all.map(|change| (change.clone(), tenant)));
        oracle.record_tree(&members, TreeTrigger::Approvals);
        let (waiting, behind) = (members, Some(behind));
        self.newcomers.current = Some(NewcomerPlan { adds, waiting, behind, approved_at: None });
    }

    /// Proposes one change of a newcomer: its project, number and title, its dependency, and the
    /// file that it adds.
    fn propose_of_newcomer(
        &self,
        (project, number, title): (&str, u64, &str),
        need: Option<&ChangeKey>,
        edit: (&str, &str),
        site: &Site,
        oracle: &mut Oracle,
    ) -> ChangeKey {
        let body = need.map(depends_on).unwrap_or_default();
        let change = site.forge.propose_on(project, "main", number, title, &body, &[edit]);
        uploaded(site, oracle, &change);
        if let Some(need) = need {
            oracle.record_dependency(&change, need);
        }
        change
    }
}
