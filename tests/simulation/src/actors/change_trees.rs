//! Authors who propose trees of changes of several projects, and reviewers who approve them in any
//! order. The approvals of some trees trigger nothing; a comment on one change brings them in.

use super::{Actors, depends_on, open, uploaded};
use crate::oracle::{Oracle, TreeTrigger};
use crate::random::Random;
use crate::scenarios::Scenario;
use crate::scenarios::change_trees::{GATHER, NUMBERS_FROM, QUIET};
use crate::shape::Shape;
use crate::site::Site;
use crate::story::Story;
use sluice_model::Timestamp;
use sluice_model::change::ChangeKey;
use sluice_runtime::Clock as _;
use sluice_scenarios::forge::Announcement;

/// Milliseconds from the last approval to the comment. The comment brings in the changes whose
/// approvals are known.
const COMMENT_MILLIS: u64 = 60_000;

/// The trees that authors propose.
pub(super) struct TreePlans {
    /// Draws the trees.
    random: Random,
    /// How many trees are still to be proposed.
    to_propose: u64,
    /// How many changes of trees were proposed.
    count: u64,
    /// The tree that is being approved.
    current: Option<TreePlan>,
    /// The changes whose approvals trigger nothing.
    quiet: Vec<ChangeKey>,
}

/// A tree that was proposed.
struct TreePlan {
    /// Its changes.
    members: Vec<ChangeKey>,
    /// Those that are still to be approved.
    waiting: Vec<ChangeKey>,
    /// What brings it in.
    trigger: TreeTrigger,
    /// When the next step may be done.
    due: Timestamp,
}

impl TreePlans {
    /// Returns the plans of a seed.
    pub(super) fn new(seed: u64, shape: &Shape) -> Self {
        let mut random = Random::new(seed, 19);
        let is_possible = shape.has(Scenario::ChangeTrees)
            && shape.tenants.iter().any(|tenant| !shape.has_gerrit_projects(&tenant.name));
        let to_propose = if is_possible { random.between(1, 2) } else { 0 };
        Self { random, to_propose, count: 0, current: None, quiet: Vec::new() }
    }

    /// Returns whether a step may be done now.
    pub(super) fn has_step(&self, now: Timestamp) -> bool {
        self.current.as_ref().map_or(self.to_propose > 0, |tree| tree.due <= now)
    }

    /// Returns whether a step will be possible.
    pub(super) fn is_unfinished(&self) -> bool {
        self.current.is_some() || self.to_propose > 0
    }

    /// Draws which earlier changes of a tree each change needs. The third needs both before it, and
    /// the fourth needs the third.
    fn draw_needs(&mut self) -> Vec<Vec<usize>> {
        let count = self.random.between(4, 6);
        let mut needs = vec![Vec::new()];
        needs.push(if self.random.per_mille(400) { vec![0] } else { Vec::new() });
        needs.push(if self.random.per_mille(500) { vec![0, 1] } else { vec![1, 0] });
        needs.push(vec![2]);
        while (needs.len() as u64) < count {
            let (one, other) = (self.random.below(needs.len()), self.random.below(needs.len()));
            let both = one != other && self.random.per_mille(400);
            needs.push(if both { vec![one, other] } else { vec![one] });
        }
        needs
    }

    /// Draws the numbers of the changes of a tree, in any order.
    fn draw_numbers(&mut self, count: usize) -> Vec<u64> {
        let first = NUMBERS_FROM + self.count;
        self.count += count as u64;
        let mut numbers: Vec<u64> = (first..NUMBERS_FROM + self.count).collect();
        for at in (1..numbers.len()).rev() {
            numbers.swap(at, self.random.below(at + 1));
        }
        numbers
    }
}

impl Actors {
    /// Returns whether other changes may depend on a change. They would bring in a part of a tree
    /// before its comment.
    pub(super) fn may_be_needed(&self, change: &ChangeKey) -> bool {
        !self.trees.quiet.contains(change)
    }

    /// Does the next step of a tree: proposes it, approves one of its changes, or comments on one.
    pub(super) fn step_tree(&mut self, site: &Site, oracle: &mut Oracle, story: &mut Story) {
        let now = site.world.now();
        let Some(mut tree) = self.trees.current.take() else {
            return self.propose_tree(site, oracle, story);
        };
        if tree.waiting.is_empty() {
            let at = self.trees.random.below(tree.members.len());
            let named = &tree.members[at];
            story.log(now, format!("ada comments on {named} to bring its tree in"));
            oracle.record_tree_trigger(named);
            site.forge.comment(named, GATHER);
            return;
        }
        let member = tree.waiting.swap_remove(self.trees.random.below(tree.waiting.len()));
        if let Some(revision) = open(site, &member) {
            story.log(now, format!("grace approves {revision} of a tree"));
            self.give_approval(&revision, site, oracle);
        }
        match (tree.waiting.is_empty(), tree.trigger) {
            (false, _) => self.trees.current = Some(tree),
            (true, TreeTrigger::Approvals) => oracle.record_tree_trigger(&member),
            (true, TreeTrigger::Comment) => {
                tree.due = now.plus_millis(COMMENT_MILLIS);
                self.trees.current = Some(tree);
            }
        }
    }

    /// Proposes all changes of a tree.
    fn propose_tree(&mut self, site: &Site, oracle: &mut Oracle, story: &mut Story) {
        self.trees.to_propose -= 1;
        let tenants: Vec<usize> = (0..self.shape.tenants.len())
            .filter(|at| !self.shape.has_gerrit_projects(&self.shape.tenants[*at].name))
            .collect();
        let Some(tenant) = self.trees.random.one(&tenants).copied() else { return };
        let projects = self.shape.tenants[tenant].projects.clone();
        let trigger = match self.trees.random.per_mille(500) {
            true => TreeTrigger::Comment,
            false => TreeTrigger::Approvals,
        };
        let needs = self.trees.draw_needs();
        let numbers = self.trees.draw_numbers(needs.len());
        let mut members: Vec<ChangeKey> = Vec::new();
        for (needs, number) in needs.iter().zip(numbers) {
            let (project, _) = &projects[self.trees.random.below(projects.len())];
            let needs: Vec<ChangeKey> = needs.iter().map(|at| members[*at].clone()).collect();
            let body = needs.iter().map(depends_on).collect::<Vec<_>>().join("\n");
            let rule = if self.trees.random.per_mille(60) { " broken" } else { "" };
            let (path, text) = (format!("tree{number}"), format!("{number}{rule}"));
            let title = format!("change {number}");
            let edits = [(path.as_str(), text.as_str())];
            let change = site.forge.propose_on(project, "main", number, &title, &body, &edits);
            if trigger == TreeTrigger::Comment {
                site.forge.label(&change, QUIET, Announcement::Webhook);
                self.trees.quiet.push(change.clone());
            }
            uploaded(site, oracle, &change);
            needs.iter().for_each(|need| oracle.record_dependency(&change, need));
            let needs: Vec<String> = needs.iter().map(ToString::to_string).collect();
            story.log(
                site.world.now(),
                format!("ada proposes {change} of a tree, which needs [{}]", needs.join(", ")),
            );
            self.proposed.push((change.clone(), tenant));
            members.push(change);
        }
        oracle.record_tree(&members, trigger);
        let (waiting, due) = (members.clone(), site.world.now());
        self.trees.current = Some(TreePlan { members, waiting, trigger, due });
    }
}
