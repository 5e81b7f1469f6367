//! What people do: propose, approve, change their minds, push behind everybody's back; drawn from
//! the seed.

mod branches;
mod discards;
mod events;
mod holds;
mod offered_refs;
mod reloads;
mod reverts;
mod reviews;
mod tags;
mod thoughts;

use crate::oracle::Oracle;
use crate::plays::{AUDIT, CAREFUL, Play};
use crate::random::Random;
use crate::reviews::is_review;
use crate::shape::Shape;
use crate::site::{Site, branch_of};
use crate::story::Story;
use reverts::Regrets;
use sluice_gate::{ArrivalKind, Head};
use sluice_model::change::{ChangeKey, ChangeRef, ChangeStatus};
use sluice_model::git::BranchKey;
use sluice_model::{QueueKey, TenantName, Timestamp};
use sluice_runtime::Clock as _;
use std::collections::{BTreeMap, BTreeSet};
use thoughts::Thoughts;

/// Files that changes edit; few, so that they meet.
const PATHS: [&str; 5] = ["f0", "f1", "f2", "f3", "f4"];

/// Changes out of 100 that are approved in the end.
const APPROVED_PERCENT: u64 = 88;

/// Things out of 1000 that people do to changes that an operator does to queues.
const OPERATORS_PER_MILLE: u64 = 200;

/// Revisions that somebody uploads within a moment, at most.
const BURST_MAX: u64 = 5;

/// Things out of 1000 that people do where a pipeline comes and goes that have it come or go.
const AUDIT_PER_MILLE: u64 = 200;

/// Things out of 1000 that people do where changes may need each other that have two do so.
const CYCLES_PER_MILLE: u64 = 400;

/// Things out of 1000 that people do where nodes may be kept that have them kept, or let go.
const AUTOHOLDS_PER_MILLE: u64 = 300;

/// Things out of 1000 that people do where events may be held back that hold them back, or let them
/// go on.
const PAUSES_PER_MILLE: u64 = 250;

/// Things out of 1000 that people do to refs where those have pipelines of their own, of each kind.
const REFS_PER_MILLE: u64 = 200;

/// Things out of 1000 that people do where events may be discarded that have them discarded, or no
/// more.
const DISCARDS_PER_MILLE: u64 = 200;

/// Things out of 1000 that people do where a job comes and goes that have it come or go.
const RELOADS_PER_MILLE: u64 = 150;

/// Things out of 1000 that people do where what landed may be taken back that take something back.
const REVERTS_PER_MILLE: u64 = 200;

/// Queues as they stand.
type Heads = BTreeMap<QueueKey, Head>;

/// The people of a site.
pub struct People {
    random: Random,
    shape: Shape,
    to_propose: u64,
    actions: u64,
    waiting: Vec<ChangeKey>,
    proposed: Vec<(ChangeKey, usize)>,
    editions: u64,
    has_audit: bool,
    /// Whether the job is there that operators add and take away.
    has_surplus: bool,
    /// What operators want nodes kept for, by tenant and id.
    holds: Vec<(TenantName, String)>,
    holds_count: u64,
    tags_count: u64,
    /// Branches that people made, and how many.
    sides: Vec<BranchKey>,
    sides_count: u64,
    /// Tenants of which operators hold something back, or discard it.
    held_back: BTreeSet<TenantName>,
    thoughts: Thoughts,
    regrets: Regrets,
    /// When somebody does something next; `None` when all is done.
    pub next_at: Option<Timestamp>,
    /// Whether the next merge brings more than it should, as the oracle knows.
    pub is_sabotaged: bool,
}

impl People {
    /// Makes the people of a seed.
    pub fn new(seed: u64, shape: &Shape, now: Timestamp) -> Self {
        Self {
            random: Random::new(seed, 4),
            shape: shape.clone(),
            to_propose: shape.changes,
            actions: shape.actions,
            waiting: Vec::new(),
            proposed: Vec::new(),
            editions: 0,
            has_audit: true,
            has_surplus: false,
            holds: Vec::new(),
            holds_count: 0,
            tags_count: 0,
            sides: Vec::new(),
            sides_count: 0,
            held_back: BTreeSet::new(),
            thoughts: Thoughts::new(seed),
            regrets: Regrets::new(seed),
            next_at: Some(now),
            is_sabotaged: false,
        }
    }

    /// Does one thing.
    pub fn act(&mut self, site: &Site, heads: &Heads, oracle: &mut Oracle, story: &mut Story) {
        let now = site.world.now();
        let (proposes, approves) = (self.to_propose > 0, !self.waiting.is_empty());
        let acts = self.actions > 0 && !self.proposed.is_empty();
        let choices: Vec<u8> = [(proposes, 0), (proposes, 0), (approves, 1), (acts, 2)]
            .into_iter()
            .filter_map(|(may, what)| may.then_some(what))
            .collect();
        match self.random.one(&choices).copied() {
            Some(0) => self.propose(site, oracle, story),
            Some(1) => self.approve(site, oracle, story),
            Some(_) => {
                self.actions -= 1;
                self.change_minds(site, heads, oracle, story);
            }
            None if self.let_all_go_on(site, heads, story) => {}
            None => {
                self.next_at = None;
                return;
            }
        }
        self.next_at = Some(now.plus_millis(self.random.between(0, self.shape.pause_millis_max)));
    }

    fn propose(&mut self, site: &Site, oracle: &mut Oracle, story: &mut Story) {
        self.to_propose -= 1;
        let number = self.shape.changes - self.to_propose;
        let tenant = self.random.below(self.shape.tenants.len());
        let projects = self.shape.tenants[tenant].projects.clone();
        let (project, shared) = projects[self.random.below(projects.len())].clone();
        let others: Vec<ChangeKey> = self
            .proposed
            .iter()
            .filter(|(_, of)| *of == tenant)
            .map(|(change, _)| change.clone())
            .collect();
        let need = self.random.one(&others).cloned().filter(|_| self.random.per_mille(300));
        let body = need.as_ref().map(depends_on).unwrap_or_default();
        let edits = self.edits(number, &project, shared);
        let edits: Vec<(&str, &str)> =
            edits.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
        let branch = *self.random.one(&self.shape.branches).unwrap_or(&"main");
        let change = match is_review(&project) {
            true => reviews::upload(site, &project, (branch, number), need.as_ref(), &body, &edits),
            false => site.forge.propose_on(
                &project,
                branch,
                number,
                &format!("change {number}"),
                &body,
                &edits,
            ),
        };
        uploaded(site, oracle, &change);
        self.goes_on(&change, site, oracle, story);
        if let Some(need) = &need {
            oracle.depends(&change, need);
        }
        let is_urgent = self.shape.has(Play::TwoGates) && self.thoughts.is_urgent();
        if is_urgent {
            self.hurry(&change, site);
        }
        let needs = need.map(|need| format!(", which depends on {need}")).unwrap_or_default();
        story.tell(
            site.world.now(),
            format!("ada proposes {change} for {branch}{needs}: {edits:?}"),
        );
        if self.random.between(1, 100) <= APPROVED_PERCENT {
            self.waiting.push(change.clone());
        }
        self.proposed.push((change, tenant));
    }

    /// Draws what a change edits.
    fn edits(&mut self, number: u64, project: &str, shared: bool) -> Vec<(String, String)> {
        if self.random.per_mille(100) {
            self.editions += 1;
            return vec![(
                ".zuul.yaml".to_owned(),
                self.shape.project_yaml(project, shared, self.editions),
            )];
        }
        let count = self.random.between(1, 2);
        let edit = |_| {
            let path = *self.random.one(&PATHS).unwrap_or(&"f0");
            let rule = match self.random.below(12) {
                0 => " broken".to_owned(),
                1 => " sloppy".to_owned(),
                2 | 3 => {
                    format!(
                        " not-with:{}",
                        self.random.one(&PATHS).filter(|other| **other != path).unwrap_or(&"none")
                    )
                }
                _ => String::new(),
            };
            (path.to_owned(), format!("{number}{rule}"))
        };
        (0..count).map(edit).collect()
    }

    fn approve(&mut self, site: &Site, oracle: &mut Oracle, story: &mut Story) {
        let change = self.waiting.swap_remove(self.random.below(self.waiting.len()));
        let Some(now) = open(site, &change) else { return };
        if self.say_half(&now, site, oracle) {
            story.tell(site.world.now(), format!("grace votes on {now}"));
            self.waiting.push(change);
            return;
        }
        self.say_yes(&now, site, oracle);
        story.tell(site.world.now(), format!("grace approves {now}"));
    }

    fn change_minds(&mut self, site: &Site, heads: &Heads, oracle: &mut Oracle, story: &mut Story) {
        let now = site.world.now();
        let (change, tenant) = self.proposed[self.random.below(self.proposed.len())].clone();
        if self.random.per_mille(self.shape.weather.unruly_forge) {
            return self.unruly(site, oracle, story);
        }
        if self.shape.has(Play::Audit) && self.random.per_mille(AUDIT_PER_MILLE) {
            return self.reconfigure(site, oracle, story);
        }
        if self.shape.has(Play::Cycles) && self.random.per_mille(CYCLES_PER_MILLE) {
            return self.tie(&change, tenant, site, oracle, story);
        }
        if self.shape.has(Play::Pauses) && self.random.per_mille(PAUSES_PER_MILLE) {
            return self.hold_back(site, heads, story);
        }
        if self.shape.has(Play::Autoholds) && self.random.per_mille(AUTOHOLDS_PER_MILLE) {
            return self.ask_to_hold(site, story);
        }
        if self.shape.has(Play::Discards) && self.random.per_mille(DISCARDS_PER_MILLE) {
            return self.discard(site, heads, story);
        }
        if self.shape.has(Play::Reloads) && self.random.per_mille(RELOADS_PER_MILLE) {
            return self.reload(site, oracle, story);
        }
        if self.shape.has(Play::OfferedRefs) && self.random.per_mille(REFS_PER_MILLE) {
            return self.offer_ref(site, oracle, story);
        }
        if self.shape.has(Play::Branches) && self.random.per_mille(REFS_PER_MILLE) {
            return self.branch(site, oracle, story);
        }
        if self.shape.has(Play::Tags) && self.random.per_mille(REFS_PER_MILLE) {
            return self.put_tag(site, oracle, story);
        }
        if self.shape.has(Play::Reverts) && self.random.per_mille(REVERTS_PER_MILLE) {
            return self.revert(site, oracle, story);
        }
        if self.random.per_mille(OPERATORS_PER_MILLE) {
            return self.operate(site, heads, oracle, story);
        }
        let Some(revision) = open(site, &change) else { return };
        match self.random.below(7) {
            0 => {
                story.tell(now, format!("grace takes her approval of {revision} back"));
                self.say_no(&change, site, oracle);
                if !self.waiting.contains(&change) && self.random.per_mille(500) {
                    self.waiting.push(change);
                }
            }
            1 | 2 => {
                let times = if self.shape.has(Play::Bursts) {
                    self.random.between(1, BURST_MAX)
                } else {
                    1
                };
                let approved = (times > 1 && self.random.per_mille(500))
                    .then(|| self.random.between(1, times - 1));
                for time in 0..times {
                    if approved == Some(time)
                        && let Some(revision) = open(site, &change)
                    {
                        self.say_yes(&revision, site, oracle);
                        story.tell(now, format!("grace approves {revision} at once"));
                    }
                    self.upload(&change, tenant, time, site, oracle, story);
                }
                if !self.waiting.contains(&change) {
                    self.waiting.push(change);
                }
            }
            3 => {
                story.tell(now, format!("ada closes {change}"));
                self.give_up(&change, site, oracle);
                self.waiting.retain(|waiting| *waiting != change);
            }
            4 | 5 => {
                let branch = branch_of(
                    change.project.name(),
                    self.random.one(&self.shape.branches).unwrap_or(&"main"),
                );
                let path = *self.random.one(&PATHS).unwrap_or(&"f0");
                let text = format!("pushed {}", self.actions);
                story.tell(now, format!("somebody pushes {path} to {branch}"));
                site.forge.push(&branch, &[(path, &text)]);
                let store = site.store.lock().unwrap();
                if let Some(tip) = store.tip(&branch) {
                    oracle.moved(&branch, &tip, &store);
                }
            }
            _ if is_review(change.project.name()) => {
                self.turn(&change, tenant, site, oracle, story)
            }
            _ => {
                let mut others = self
                    .proposed
                    .iter()
                    .filter(|(other, of)| *of == tenant && other.number() < change.number());
                let need = others
                    .next()
                    .map(|(other, _)| other.clone())
                    .filter(|_| self.random.per_mille(500));
                let body = need.as_ref().map(depends_on).unwrap_or_default();
                story.tell(now, format!("ada describes {change} anew: {body:?}"));
                site.forge.describe(&change, &body, true);
                oracle.entangled(&change);
                oracle.withdrawn(&change, now);
            }
        }
    }

    /// Uploads a new revision, the `time`th of this moment.
    fn upload(
        &mut self,
        change: &ChangeKey,
        tenant: usize,
        time: u64,
        site: &Site,
        oracle: &mut Oracle,
        story: &mut Story,
    ) {
        let number =
            1_000 + change.number().unwrap_or_default() * 100 + self.actions + time * 10_000;
        let projects = &self.shape.tenants[tenant].projects;
        let shared = projects.iter().any(|(name, shared)| name == change.project.name() && *shared);
        let edits = self.edits(number, change.project.name(), shared);
        let edits: Vec<(&str, &str)> =
            edits.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
        if is_review(change.project.name()) {
            self.upload_patchset(change, &edits, site);
        } else {
            site.forge.revise_from_tip(change, &edits);
        }
        uploaded(site, oracle, change);
        story.tell(site.world.now(), format!("ada uploads a new revision of {change}: {edits:?}"));
        self.goes_on(change, site, oracle, story);
    }

    /// Has a change's author add a commit or two where ways to merge are played, some of which take
    /// back what came before.
    fn goes_on(&mut self, change: &ChangeKey, site: &Site, oracle: &mut Oracle, story: &mut Story) {
        // At a Gerrit a change is one commit.
        let may = self.shape.has(Play::Modes) && !is_review(change.project.name());
        let count = if may { self.thoughts.more_commits() } else { 0 };
        for at in 0..count {
            let (path, text) = self.thoughts.commit(&PATHS, at);
            site.forge.revise(change, path, &text);
            uploaded(site, oracle, change);
            story.tell(
                site.world.now(),
                format!("ada adds a commit to {change}: {path} is {text:?}"),
            );
        }
    }

    /// Has a change and another one of its tenant need each other.
    fn tie(
        &mut self,
        change: &ChangeKey,
        tenant: usize,
        site: &Site,
        oracle: &mut Oracle,
        story: &mut Story,
    ) {
        if is_review(change.project.name()) {
            return self.join(change, tenant, site, oracle, story);
        }
        let others = self.proposed.iter().filter(|(other, of)| *of == tenant && other != change);
        let others: Vec<ChangeKey> = others.map(|(other, _)| other.clone()).collect();
        let Some(other) = self.random.one(&others).cloned() else { return };
        if open(site, change).is_none() || open(site, &other).is_none() {
            return;
        }
        story.tell(site.world.now(), format!("ada has {change} and {other} need each other"));
        for (one, need) in [(change, &other), (&other, change)] {
            site.forge.describe(one, &depends_on(need), true);
            oracle.entangled(one);
            oracle.withdrawn(one, site.world.now());
        }
    }

    /// An operator takes the pipeline away that comes and goes, or brings it back.
    fn reconfigure(&mut self, site: &Site, oracle: &mut Oracle, story: &mut Story) {
        self.has_audit = !self.has_audit;
        let does = if self.has_audit { "brings back" } else { "takes away" };
        story.tell(site.world.now(), format!("jo {does} the pipeline {AUDIT}"));
        oracle.reconfigured();
        site.forge.push(&branch_of("org/config", "main"), &[("zuul.yaml", &self.config_text())]);
    }

    /// An operator takes a change out of a queue, or has some come first, or offers one to a
    /// pipeline.
    fn operate(&mut self, site: &Site, heads: &Heads, oracle: &mut Oracle, story: &mut Story) {
        let now = site.world.now();
        let (change, tenant) = self.proposed[self.random.below(self.proposed.len())].clone();
        let queues: Vec<&Head> = heads.values().filter(|head| !head.slots.is_empty()).collect();
        let (Some(head), word) = (self.random.one(&queues), self.random.below(3)) else {
            return;
        };
        let slots: Vec<ChangeRef> = head.slots.iter().map(|slot| slot.change.clone()).collect();
        let Some(named) = self.random.one(&slots).cloned() else { return };
        match word {
            0 => {
                story.tell(now, format!("jo takes {named} out of {}", head.key));
                oracle.entangled(&named.key);
                oracle.withdrawn(&named.key, Timestamp(u64::MAX)); // Whenever it is heard.
                let (by, reason) = ("jo".to_owned(), "enough".to_owned());
                let kind =
                    ArrivalKind::Dequeue { key: named.key, head: Some(named.head), by, reason };
                site.say(&head.key, kind);
            }
            1 => {
                let keys: Vec<ChangeKey> = [Some(&named), self.random.one(&slots)]
                    .into_iter()
                    .flatten()
                    .map(|c| c.key.clone())
                    .collect();
                let names: Vec<String> = keys.iter().map(ToString::to_string).collect();
                story.tell(now, format!("jo has {} come first in {}", names.join(", "), head.key));
                site.say(&head.key, ArrivalKind::Promote { keys, by: "jo".to_owned() });
            }
            _ => {
                let pipelines =
                    [("check", true), ("gate", true), (CAREFUL, self.shape.has(Play::Serial))];
                let pipelines =
                    pipelines.into_iter().filter_map(|(name, is_here)| is_here.then_some(name));
                let pipelines: Vec<&str> = pipelines.collect();
                let pipeline = *self.random.one(&pipelines).unwrap_or(&"check");
                let name = self.shape.tenants[tenant].name.clone();
                story.tell(now, format!("jo offers {change} to {name}/{pipeline}"));
                site.offer(&change, &name, pipeline);
            }
        }
    }

    /// The forge, or somebody with its rights, does what nobody counted on.
    fn unruly(&mut self, site: &Site, oracle: &mut Oracle, story: &mut Story) {
        let now = site.world.now();
        match self.random.below(4) {
            0 if self.shape.has(Play::Forward) && self.random.per_mille(500) => {
                story.tell(now, "the forge refuses pushes from now on");
                site.forge.refuse_pushes("protected branch");
            }
            0 => {
                story.tell(now, "the forge refuses merges from now on");
                site.forge.refuse_merges("not now");
                oracle.refuses_merges();
            }
            1 => {
                story.tell(now, "the forge takes merges again");
                site.forge.accept_merges();
                site.forge.accept_pushes();
                oracle.takes_merges();
            }
            2 => {
                let (change, _) = self.proposed[self.random.below(self.proposed.len())].clone();
                // At a Gerrit nobody lands anything by hand.
                let Some(revision) =
                    open(site, &change).filter(|_| !is_review(change.project.name()))
                else {
                    return;
                };
                if let Some(commit) = site.forge.merge_by_hand(&change) {
                    story.tell(now, format!("somebody merges {revision} by hand"));
                    oracle.merged_by_hand(&revision, &commit, &site.store.lock().unwrap(), now);
                }
            }
            _ => {
                story.tell(now, "the next merge will bring more than it should");
                site.forge.sabotage([("stray".to_owned(), format!("{}", self.actions))].into());
                self.is_sabotaged = true;
                oracle.sabotaged();
            }
        }
    }
}

fn depends_on(need: &ChangeKey) -> String {
    format!("Depends-On: https://{}/pull/{}", need.project, need.number().unwrap_or_default())
}

/// Returns the revision of a change that is open.
fn open(site: &Site, change: &ChangeKey) -> Option<ChangeRef> {
    let kept = site.forge.change(change)?;
    (kept.facts.status == ChangeStatus::Open).then_some(kept.facts.change)
}

/// Tells the oracle of the revision that a change has now, which is made on its branch, or on other
/// changes that are.
pub(crate) fn uploaded(site: &Site, oracle: &mut Oracle, change: &ChangeKey) {
    let Some(revision) = open(site, change) else { return };
    let parents = site.forge.change(change).map(|kept| kept.facts.parents).unwrap_or_default();
    oracle.made_on(&revision, &parents);
    let store = site.store.lock().unwrap();
    let branch = branch_of(change.project.name(), revision.branch.as_str());
    let Some(tip) = store.tip(&branch) else { return };
    let line = store.line(&tip.id, &revision.head);
    // What is below may have been made before the branch moved.
    let base = line.first().and_then(|first| store.parent(first)).unwrap_or(tip.id);
    let commits =
        line.into_iter().map(|commit| (commit.clone(), store.tree(&commit).clone())).collect();
    oracle.uploaded(&revision, store.tree(&base).clone(), commits, site.world.now());
}
