//! The changes that one event brings into a dependent pipeline: its own, what that needs, and what
//! needs any of these, with what those need in turn (D01, D02, G09).
//!
//! They form a tree, or several that share changes. The order in which they enter is the same
//! whichever of them the event is about, so that a repeated event or the event of a neighbour finds
//! them where they are.

use crate::Intake;
use crate::dependencies::{ChangeCache, Dependencies, candidate, is_of_tenant};
use crate::route::{TargetQueue, queue_description, queue_key};
use sluice_config::pipeline::{Manager, Pipeline};
use sluice_gate::Candidate;
use sluice_gate::explain::eligibility_refusal;
use sluice_gate::filter;
use sluice_model::Timestamp;
use sluice_model::change::{ChangeFacts, ChangeKey, ChangeStatus};
use sluice_runtime::batch::ReconcileError;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// The most changes that enter beside the event's own and what that needs. The others enter with
/// events of their own.
const RELATED_MAX: usize = 10;

/// A change of the tree.
#[derive(Clone, Debug)]
struct Member {
    /// The change as it is offered to the queue.
    candidate: Candidate,
    /// Its direct dependencies that are not merged, in the order in which it names them.
    needs: Vec<ChangeKey>,
}

/// The tree while it is explored.
#[derive(Default)]
struct ChangeTree {
    members: BTreeMap<ChangeKey, Member>,
    /// The members whose dependents are not looked up yet.
    unexplored: VecDeque<ChangeKey>,
}

impl ChangeTree {
    fn add(&mut self, member: Member) {
        let key = member.candidate.change.key.clone();
        self.unexplored.push_back(key.clone());
        self.members.insert(key, member);
    }

    /// Returns the changes that the members need or are in one bundle with, and that are no members.
    fn missing(&self, member: &Member) -> Vec<ChangeKey> {
        let needs = member.candidate.needs.iter().map(|need| &need.change.key);
        let related = needs.chain(&member.candidate.bundle);
        related.filter(|key| !self.members.contains_key(key)).cloned().collect()
    }
}

impl Intake {
    /// Returns the candidates that an event enqueues in a dependent pipeline, in the order in which
    /// they enter. `own` is the event's change and `needs` its dependencies. With it come its open
    /// dependencies, and at most [`RELATED_MAX`] changes that depend on any of these, with the
    /// dependencies and bundle members of each, as far as they may enter the same queue. A refused
    /// change comes alone.
    pub(crate) async fn candidates_of_tree(
        &self,
        own: Candidate,
        needs: &Dependencies,
        target: &TargetQueue<'_>,
        cache: &mut ChangeCache,
    ) -> Result<Vec<Candidate>, ReconcileError> {
        if own.refused.is_some() {
            return Ok(vec![own]);
        }
        let now = self.ports.clock.now();
        let mut tree = ChangeTree::default();
        for need in needs.open.iter().filter(|need| may_enter(need, target, now)) {
            if let Some(member) = self.tree_member(need, target, cache).await? {
                tree.add(member);
            }
        }
        let key = own.change.key.clone();
        tree.add(Member { candidate: own, needs: needs.direct().to_vec() });
        if !cache.is_needed() {
            // Nothing depends on it; the dependents of its dependencies still follow.
            tree.unexplored.retain(|unexplored| *unexplored != key);
        }
        let before = tree.members.len();
        while let Some(key) = tree.unexplored.pop_front() {
            // The stored facts of a change may be shortened; then only its forge knows whether it
            // may enter.
            let follows = |dependent: &ChangeFacts| {
                (dependent.truncated.can_be_completed() || may_enter(dependent, target, now))
                    && self.depends_on(dependent, &key)
            };
            for dependent in self.dependents(&key, &follows).await? {
                if cache.is_full() || tree.members.len() - before >= RELATED_MAX {
                    return Ok(in_order(&tree.members)); // Their own events enqueue the others.
                }
                if tree.members.contains_key(&dependent) {
                    continue;
                }
                let Some(facts) = self.read(&dependent, cache).await? else { continue };
                if may_enter(&facts, target, now) && self.depends_on(&facts, &key) {
                    self.add_with_needs(&facts, target, cache, &mut tree).await?;
                }
            }
        }
        Ok(in_order(&tree.members))
    }

    /// Adds a change to the tree, with its dependencies and bundle members that may enter. Adds
    /// nothing if its dependencies keep the change out for good.
    async fn add_with_needs(
        &self,
        facts: &ChangeFacts,
        target: &TargetQueue<'_>,
        cache: &mut ChangeCache,
        tree: &mut ChangeTree,
    ) -> Result<(), ReconcileError> {
        let Some(member) = self.tree_member(facts, target, cache).await? else { return Ok(()) };
        let now = self.ports.clock.now();
        for key in tree.missing(&member) {
            let Some(related) = self.read(&key, cache).await? else { continue };
            if key == facts.change.key || !may_enter(&related, target, now) {
                continue;
            }
            if let Some(related) = self.tree_member(&related, target, cache).await? {
                tree.add(related);
            }
        }
        tree.add(member);
        Ok(())
    }

    /// Returns a change as a member; `None` if its dependencies keep it out for good.
    async fn tree_member(
        &self,
        facts: &ChangeFacts,
        target: &TargetQueue<'_>,
        cache: &mut ChangeCache,
    ) -> Result<Option<Member>, ReconcileError> {
        let TargetQueue { live, pipeline, .. } = *target;
        let needs = self.dependencies_of(facts, &live.layout, cache).await?;
        // Its own events report a refusal.
        let now = self.ports.clock.now();
        let is_refused = needs.is_ignored || refusal(&needs, facts, target, now).is_some();
        Ok((!is_refused).then(|| Member {
            candidate: candidate(facts, &needs, None, pipeline),
            needs: needs.direct().to_vec(),
        }))
    }
}

/// Returns whether a change may enter this very queue at `now`: its project is the tenant's and
/// shares the queue, it is open, its forge would merge it, and it fulfils the pipeline's
/// requirements.
fn may_enter(facts: &ChangeFacts, target: &TargetQueue<'_>, now: Timestamp) -> bool {
    let TargetQueue { live, pipeline, .. } = *target;
    is_of_tenant(&live.layout, &facts.change.key)
        && is_of_queue(facts, target)
        && facts.status == ChangeStatus::Open
        && eligibility_refusal(pipeline, facts, now).is_none()
}

/// Returns whether the change would enter this very queue, if it entered the pipeline.
fn is_of_queue(facts: &ChangeFacts, target: &TargetQueue<'_>) -> bool {
    queue_key(target.live, target.pipeline, &facts.change) == *target.queue
}

/// Returns why a change of a dependent pipeline cannot enter its queue with `need`, an open change
/// that it depends on; `None` if that may enter. It may wait for its dependency: approved, it brings
/// in what needs it.
pub(crate) fn missing_reason(
    need: &ChangeFacts,
    target: &TargetQueue<'_>,
    now: Timestamp,
) -> Option<String> {
    if !is_of_queue(need, target) {
        return None; // [`refusal`] says so.
    }
    let why = eligibility_refusal(target.pipeline, need, now)?;
    Some(format!("it depends on {}, which may not enter yet: {why}", need.change.key))
}

/// Returns why a pipeline may not test a change with these dependencies, for a reason that waiting
/// does not change: [`Dependencies::refusal`], or in a dependent pipeline an open dependency that
/// belongs to another queue, where it is merged independently (D02). In another pipeline that
/// requires review, an open dependency that lacks its requirements now: there the dependency is
/// part of what runs, and is not enqueued itself (Z5.3).
pub(crate) fn refusal(
    needs: &Dependencies,
    facts: &ChangeFacts,
    target: &TargetQueue<'_>,
    now: Timestamp,
) -> Option<String> {
    let refused = needs.refusal(&facts.change, &target.live.layout, target.pipeline);
    if refused.is_some() {
        return refused;
    }
    if target.pipeline.manager != Manager::Dependent {
        return unreviewed_reason(needs, target.pipeline, now);
    }
    let need = needs.open.iter().find(|need| !is_of_queue(need, target))?;
    let key = &need.change.key;
    let queue = queue_description(target.live, target.pipeline, &need.change);
    Some(format!(
        "it depends on {key}, which does not share a queue with it ({key} belongs to {queue}); it can enter once that is merged"
    ))
}

/// Returns why a pipeline that runs only what was reviewed may not test a change with these
/// dependencies; `None` if all of them meet its requirements, and for pipelines that take any code.
fn unreviewed_reason(needs: &Dependencies, pipeline: &Pipeline, now: Timestamp) -> Option<String> {
    if !filter::requires_review(pipeline) {
        return None;
    }
    needs.open.iter().find_map(|need| {
        let why = filter::refusal(pipeline, need, now)?;
        Some(format!("it depends on {}, which may not run here: {why}", need.change.key))
    })
}

/// Returns the candidates of the members in the order in which they enter: depth first from the
/// change with the lowest number, each behind what it needs, the members of a bundle together.
fn in_order(members: &BTreeMap<ChangeKey, Member>) -> Vec<Candidate> {
    let mut order = Order { members, placed: BTreeSet::new(), entered: Vec::new() };
    let mut keys: Vec<&ChangeKey> = members.keys().collect();
    keys.sort_by_key(|key| (key.number(), *key));
    // Changes that need nothing first: the others follow them.
    let (roots, others): (Vec<&ChangeKey>, Vec<&ChangeKey>) = keys
        .iter()
        .partition(|key| !members[**key].needs.iter().any(|need| members.contains_key(need)));
    for key in roots.into_iter().chain(others) {
        order.enter(key, &keys);
    }
    order.entered
}

/// The order while it is found.
struct Order<'a> {
    members: &'a BTreeMap<ChangeKey, Member>,
    placed: BTreeSet<&'a ChangeKey>,
    entered: Vec<Candidate>,
}

impl<'a> Order<'a> {
    /// Enters a change with what it needs, and behind it what needs it, depth first. `keys` are all
    /// members in the order in which dependents follow. Does nothing if it entered before.
    fn enter(&mut self, key: &'a ChangeKey, keys: &[&'a ChangeKey]) {
        if self.placed.contains(key) {
            return;
        }
        let together = self.place(key);
        for dependent in keys {
            if self.members[*dependent].needs.iter().any(|need| together.contains(&need)) {
                self.enter(dependent, keys);
            }
        }
    }

    /// Enters a change and the members of its bundle, behind what they need. Returns them, or
    /// nothing if the change entered before or is no member.
    fn place(&mut self, key: &'a ChangeKey) -> Vec<&'a ChangeKey> {
        let Some((key, member)) = self.members.get_key_value(key) else { return Vec::new() };
        let bundle = member.candidate.bundle.iter();
        let mut together: Vec<&ChangeKey> =
            bundle.filter_map(|key| Some(self.members.get_key_value(key)?.0)).collect();
        if together.is_empty() {
            together.push(key);
        }
        // Placed before its dependencies, so that a cycle ends.
        together.retain(|key| self.placed.insert(key));
        for key in &together {
            for need in &self.members[*key].needs {
                self.place(need);
            }
        }
        self.entered.extend(together.iter().map(|key| self.members[*key].candidate.clone()));
        together
    }
}

#[cfg(test)]
mod tests;
