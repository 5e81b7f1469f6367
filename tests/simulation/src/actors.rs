//! The actors of a site: authors, reviewers and operators who propose, approve, withdraw, push and
//! issue commands. All actions are drawn from the seed.

mod autoholds;
mod branches;
mod change_trees;
mod departures;
mod enqueued_refs;
mod event_discards;
mod event_pauses;
mod intentions;
mod newcomers;
mod reloads;
pub(crate) mod reverts;
mod reviews;
mod tags;

use crate::oracle::Oracle;
use crate::random::Random;
use crate::reviews::is_gerrit_project;
use crate::scenarios::{AUDIT, CAREFUL, Scenario};
use crate::shape::Shape;
use crate::site::{Site, branch_of};
use crate::story::Story;
use change_trees::TreePlans;
use intentions::Intentions;
use newcomers::NewcomerPlans;
use reverts::RevertIntentions;
use sluice_gate::{Head, InboxMessageKind};
use sluice_model::change::{ChangeKey, ChangeRef, ChangeStatus};
use sluice_model::git::BranchKey;
use sluice_model::{QueueKey, TenantName, Timestamp};
use sluice_runtime::Clock as _;
use sluice_scenarios::forge::Announcement;
use std::collections::{BTreeMap, BTreeSet};

/// The files that changes edit. They are few, so that changes conflict.
const PATHS: [&str; 5] = ["f0", "f1", "f2", "f3", "f4"];

/// How many of 100 changes are approved eventually.
const APPROVED_PERCENT: u64 = 88;

/// How many of 1000 actions are operator commands.
const OPERATORS_PER_MILLE: u64 = 200;

/// The most revisions that an author uploads at one instant.
const BURST_MAX: u64 = 5;

/// How many of 1000 actions in [`Scenario::Audit`] add or remove the pipeline.
const AUDIT_PER_MILLE: u64 = 200;

/// How many of 1000 actions in [`Scenario::DependencyCycles`] create a dependency cycle.
const CYCLES_PER_MILLE: u64 = 400;

/// How many of 1000 actions in [`Scenario::Autoholds`] request or delete an autohold.
const AUTOHOLDS_PER_MILLE: u64 = 300;

/// How many of 1000 actions in [`Scenario::EventPauses`] pause or resume events.
const PAUSES_PER_MILLE: u64 = 250;

/// How many of 1000 actions in [`Scenario::EnqueuedRefs`], [`Scenario::Branches`] or
/// [`Scenario::Tags`] are of that kind.
const REFS_PER_MILLE: u64 = 200;

/// How many of 1000 actions in [`Scenario::EventDiscards`] start or stop discarding events.
const DISCARDS_PER_MILLE: u64 = 200;

/// How many of 1000 actions in [`Scenario::Reconfigurations`] add or remove the job.
const RELOADS_PER_MILLE: u64 = 150;

/// How many of 1000 actions in [`Scenario::Departures`] remove a project or add it again.
const DEPARTURES_PER_MILLE: u64 = 250;

/// How many of 1000 actions in [`Scenario::Reverts`] revert a landed change.
const REVERTS_PER_MILLE: u64 = 200;

/// The current heads of all queues.
type Heads = BTreeMap<QueueKey, Head>;

/// The people who use a site.
pub struct Actors {
    /// Draws the actions.
    random: Random,
    /// What the seed drew.
    shape: Shape,
    /// How many changes are still to be proposed.
    to_propose: u64,
    /// How many other actions are still to be done.
    actions: u64,
    /// The changes that are to be approved.
    waiting: Vec<ChangeKey>,
    /// The proposed changes, each with the index of its tenant.
    proposed: Vec<(ChangeKey, usize)>,
    /// How many edits of project configuration were made.
    editions: u64,
    /// Whether the pipeline [`AUDIT`] exists.
    has_audit: bool,
    /// Whether the job exists that operators add and remove.
    has_surplus: bool,
    /// The autohold requests, by tenant and id.
    holds: Vec<(TenantName, String)>,
    /// How many autoholds were requested.
    holds_count: u64,
    /// How many tags were pushed.
    tags_count: u64,
    /// The branches that actors created and have not deleted.
    sides: Vec<BranchKey>,
    /// How many branches were created.
    sides_count: u64,
    /// The tenants with events that are paused or discarded.
    switched: BTreeSet<TenantName>,
    /// The approvals that will be withdrawn or given again.
    intentions: Intentions,
    /// The landed changes that will be reverted.
    reverts: RevertIntentions,
    /// The trees of changes.
    trees: TreePlans,
    /// The changes that bring their projects into the pipelines.
    newcomers: NewcomerPlans,
    /// The projects that were removed from their tenants.
    removed_projects: BTreeSet<String>,
    /// When the next action is due; `None` when there are no more.
    pub next_at: Option<Timestamp>,
    /// Whether the forge will add an unexpected file to the next merge.
    pub is_sabotaged: bool,
}

impl Actors {
    /// Returns the actors of a seed, who begin to act at `now`.
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
            switched: BTreeSet::new(),
            intentions: Intentions::new(seed),
            reverts: RevertIntentions::new(seed),
            trees: TreePlans::new(seed, shape),
            newcomers: NewcomerPlans::new(seed, shape),
            removed_projects: BTreeSet::new(),
            next_at: Some(now),
            is_sabotaged: false,
        }
    }

    /// Draws and does one action, and schedules the next one. When no action is left, resumes all
    /// paused or discarded events first and then stops.
    pub fn act(&mut self, site: &Site, heads: &Heads, oracle: &mut Oracle, story: &mut Story) {
        let now = site.world.now();
        let (proposes, approves) = (self.to_propose > 0, !self.waiting.is_empty());
        let acts = self.actions > 0 && !self.proposed.is_empty();
        let (grows, joins) = (self.trees.has_step(now), self.newcomers.has_step(heads, now));
        let choices: Vec<u8> = [
            (proposes, 0),
            (proposes, 0),
            (approves, 1),
            (acts, 2),
            (grows, 3),
            (grows, 3),
            (joins, 4),
            (joins, 4),
        ]
        .into_iter()
        .filter_map(|(may, action)| may.then_some(action))
        .collect();
        match self.random.one(&choices).copied() {
            Some(0) => self.propose(site, oracle, story),
            Some(1) => self.approve(site, oracle, story),
            Some(2) => {
                self.actions -= 1;
                self.act_on_a_change(site, heads, oracle, story);
            }
            Some(3) => self.step_tree(site, oracle, story),
            Some(_) => self.step_newcomer(heads, site, oracle, story),
            None if self.trees.is_unfinished() || self.newcomers.is_unfinished() => {}
            None if self.resume_all_events(site, heads, story) => {}
            None => {
                self.next_at = None;
                return;
            }
        }
        self.next_at = Some(now.plus_millis(self.random.between(0, self.shape.pause_millis_max)));
    }

    /// Proposes a change, which may depend on an earlier one.
    fn propose(&mut self, site: &Site, oracle: &mut Oracle, story: &mut Story) {
        self.to_propose -= 1;
        let number = self.shape.changes - self.to_propose;
        let tenant = self.random.below(self.shape.tenants.len());
        let projects = self.shape.tenants[tenant].projects.clone();
        let (project, shared) = projects[self.random.below(projects.len())].clone();
        let others: Vec<ChangeKey> = self
            .proposed
            .iter()
            .filter(|(change, of)| *of == tenant && self.may_be_needed(change))
            .map(|(change, _)| change.clone())
            .collect();
        let need = self.random.one(&others).cloned().filter(|_| self.random.per_mille(300));
        let body = need.as_ref().map(depends_on).unwrap_or_default();
        let edits = self.edits(number, &project, shared);
        let edits: Vec<(&str, &str)> =
            edits.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
        let branch = *self.random.one(&self.shape.branches).unwrap_or(&"main");
        let change = match is_gerrit_project(&project) {
            true => reviews::upload(site, &project, branch, number, need.as_ref(), &body, &edits),
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
        self.add_commits(&change, site, oracle, story);
        if let Some(need) = &need {
            oracle.record_dependency(&change, need);
        }
        let is_urgent = self.shape.has(Scenario::TwoGates) && self.intentions.is_urgent();
        if is_urgent {
            self.mark_urgent(&change, site);
        }
        let needs = need.map(|need| format!(", which depends on {need}")).unwrap_or_default();
        story
            .log(site.world.now(), format!("ada proposes {change} for {branch}{needs}: {edits:?}"));
        if self.random.between(1, 100) <= APPROVED_PERCENT {
            self.waiting.push(change.clone());
        }
        self.proposed.push((change, tenant));
    }

    /// Draws the edits of a change: its files with their new texts.
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

    /// Approves a random change that waits for approval, or gives one of the votes that it needs.
    fn approve(&mut self, site: &Site, oracle: &mut Oracle, story: &mut Story) {
        let change = self.waiting.swap_remove(self.random.below(self.waiting.len()));
        let Some(now) = open(site, &change) else { return };
        if self.give_partial_approval(&now, site, oracle) {
            story.log(site.world.now(), format!("grace votes on {now}"));
            self.waiting.push(change);
            return;
        }
        self.give_approval(&now, site, oracle);
        story.log(site.world.now(), format!("grace approves {now}"));
    }

    /// Draws and does one action other than proposing or approving.
    fn act_on_a_change(
        &mut self,
        site: &Site,
        heads: &Heads,
        oracle: &mut Oracle,
        story: &mut Story,
    ) {
        let now = site.world.now();
        let (change, tenant) = self.proposed[self.random.below(self.proposed.len())].clone();
        if self.random.per_mille(self.shape.fault_profile.unruly_forge) {
            return self.disturb_forge(site, oracle, story);
        }
        if self.shape.has(Scenario::Audit) && self.random.per_mille(AUDIT_PER_MILLE) {
            return self.toggle_audit_pipeline(site, oracle, story);
        }
        if self.shape.has(Scenario::DependencyCycles) && self.random.per_mille(CYCLES_PER_MILLE) {
            return self.create_cycle(&change, tenant, site, oracle, story);
        }
        if self.shape.has(Scenario::EventPauses) && self.random.per_mille(PAUSES_PER_MILLE) {
            return self.toggle_event_pause(site, heads, story);
        }
        if self.shape.has(Scenario::Autoholds) && self.random.per_mille(AUTOHOLDS_PER_MILLE) {
            return self.toggle_autohold(site, story);
        }
        if self.shape.has(Scenario::EventDiscards) && self.random.per_mille(DISCARDS_PER_MILLE) {
            return self.toggle_event_discard(site, heads, story);
        }
        if self.shape.has(Scenario::Reconfigurations) && self.random.per_mille(RELOADS_PER_MILLE) {
            return self.toggle_surplus_job(site, oracle, story);
        }
        if self.shape.has(Scenario::Departures) && self.random.per_mille(DEPARTURES_PER_MILLE) {
            return self.remove_or_add_project(site, heads, oracle, story);
        }
        if self.shape.has(Scenario::EnqueuedRefs) && self.random.per_mille(REFS_PER_MILLE) {
            return self.enqueue_ref(site, oracle, story);
        }
        if self.shape.has(Scenario::Branches) && self.random.per_mille(REFS_PER_MILLE) {
            return self.create_or_delete_branch(site, oracle, story);
        }
        if self.shape.has(Scenario::Tags) && self.random.per_mille(REFS_PER_MILLE) {
            return self.push_tag(site, oracle, story);
        }
        if self.shape.has(Scenario::Reverts) && self.random.per_mille(REVERTS_PER_MILLE) {
            return self.revert_landed_change(site, oracle, story);
        }
        if self.random.per_mille(OPERATORS_PER_MILLE) {
            return self.issue_command(site, heads, oracle, story);
        }
        let Some(revision) = open(site, &change) else { return };
        match self.random.below(7) {
            0 => {
                story.log(now, format!("grace withdraws her approval of {revision}"));
                self.withdraw_approval(&change, site, oracle);
                if !self.waiting.contains(&change) && self.random.per_mille(500) {
                    self.waiting.push(change);
                }
            }
            1 | 2 => {
                let times = if self.shape.has(Scenario::Bursts) {
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
                        self.give_approval(&revision, site, oracle);
                        story.log(now, format!("grace approves {revision} at once"));
                    }
                    self.upload(&change, tenant, time, site, oracle, story);
                }
                if !self.waiting.contains(&change) {
                    self.waiting.push(change);
                }
            }
            3 => {
                story.log(now, format!("ada closes {change}"));
                self.abandon(&change, site, oracle);
                self.waiting.retain(|waiting| *waiting != change);
            }
            4 | 5 => {
                let branch = branch_of(
                    change.project.name(),
                    self.random.one(&self.shape.branches).unwrap_or(&"main"),
                );
                let path = *self.random.one(&PATHS).unwrap_or(&"f0");
                let text = format!("pushed {}", self.actions);
                story.log(now, format!("an administrator pushes {path} to {branch}"));
                site.forge.push(&branch, &[(path, &text)]);
                let store = site.store.lock().unwrap();
                if let Some(tip) = store.tip(&branch) {
                    oracle.record_branch_move(&branch, &tip, &store);
                }
            }
            _ if is_gerrit_project(change.project.name()) => {
                self.toggle_wip_or_topic(&change, tenant, site, oracle, story)
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
                story.log(now, format!("ada edits the description of {change}: {body:?}"));
                site.forge.describe(&change, &body, Announcement::Webhook);
                oracle.mark_entangled(&change);
                oracle.record_withdrawal(&change, now);
            }
        }
    }

    /// Uploads a new revision of a change. `time` counts the revisions of this instant.
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
        if is_gerrit_project(change.project.name()) {
            self.upload_patchset(change, &edits, site);
        } else {
            site.forge.revise_from_tip(change, &edits);
        }
        uploaded(site, oracle, change);
        story.log(site.world.now(), format!("ada uploads a new revision of {change}: {edits:?}"));
        self.add_commits(change, site, oracle, story);
    }

    /// Adds up to two commits to a change in [`Scenario::MergeModes`]. Some of them undo an earlier
    /// commit.
    fn add_commits(
        &mut self,
        change: &ChangeKey,
        site: &Site,
        oracle: &mut Oracle,
        story: &mut Story,
    ) {
        // A Gerrit change is a single commit.
        let may = self.shape.has(Scenario::MergeModes) && !is_gerrit_project(change.project.name());
        let count = if may { self.intentions.more_commits() } else { 0 };
        for at in 0..count {
            let (path, text) = self.intentions.commit(&PATHS, at);
            site.forge.revise(change, path, &text);
            uploaded(site, oracle, change);
            story.log(
                site.world.now(),
                format!("ada adds a commit to {change}: {path} is {text:?}"),
            );
        }
    }

    /// Makes a change and another one of its tenant depend on each other.
    fn create_cycle(
        &mut self,
        change: &ChangeKey,
        tenant: usize,
        site: &Site,
        oracle: &mut Oracle,
        story: &mut Story,
    ) {
        if is_gerrit_project(change.project.name()) {
            return self.join_topic(change, tenant, site, oracle, story);
        }
        let others = self.proposed.iter().filter(|(other, of)| *of == tenant && other != change);
        let others: Vec<ChangeKey> = others.map(|(other, _)| other.clone()).collect();
        let Some(other) = self.random.one(&others).cloned() else { return };
        if open(site, change).is_none() || open(site, &other).is_none() {
            return;
        }
        story.log(site.world.now(), format!("ada makes {change} and {other} depend on each other"));
        for (one, need) in [(change, &other), (&other, change)] {
            site.forge.describe(one, &depends_on(need), Announcement::Webhook);
            oracle.mark_entangled(one);
            oracle.record_withdrawal(one, site.world.now());
        }
    }

    /// Removes the pipeline [`AUDIT`] from the configuration, or adds it again.
    fn toggle_audit_pipeline(&mut self, site: &Site, oracle: &mut Oracle, story: &mut Story) {
        self.has_audit = !self.has_audit;
        let verb = if self.has_audit { "adds" } else { "removes" };
        story.log(site.world.now(), format!("jo {verb} the pipeline {AUDIT}"));
        oracle.record_reconfiguration();
        site.forge.push(&branch_of("org/config", "main"), &[("zuul.yaml", &self.config_text())]);
    }

    /// Issues an operator's command: dequeues or promotes changes of a random queue, or enqueues a
    /// change.
    fn issue_command(
        &mut self,
        site: &Site,
        heads: &Heads,
        oracle: &mut Oracle,
        story: &mut Story,
    ) {
        let now = site.world.now();
        let (change, tenant) = self.proposed[self.random.below(self.proposed.len())].clone();
        let queues: Vec<&Head> = heads.values().filter(|head| !head.entries.is_empty()).collect();
        let (Some(head), command) = (self.random.one(&queues), self.random.below(3)) else {
            return;
        };
        let slots: Vec<ChangeRef> = head.slots().map(|slot| slot.change.clone()).collect();
        let Some(named) = self.random.one(&slots).cloned() else { return };
        match command {
            0 => {
                story.log(now, format!("jo dequeues {named} from {}", head.key));
                oracle.mark_entangled(&named.key);
                oracle.record_withdrawal(&named.key, Timestamp(u64::MAX)); // At whatever time it is applied.
                let (by, reason) = ("jo".to_owned(), "enough".to_owned());
                let kind = InboxMessageKind::Dequeue {
                    key: named.key,
                    head: Some(named.head),
                    by,
                    reason,
                };
                site.send_command(&head.key, kind);
            }
            1 => {
                let keys: Vec<ChangeKey> = [Some(&named), self.random.one(&slots)]
                    .into_iter()
                    .flatten()
                    .map(|c| c.key.clone())
                    .collect();
                let names: Vec<String> = keys.iter().map(ToString::to_string).collect();
                story.log(now, format!("jo promotes {} in {}", names.join(", "), head.key));
                site.send_command(
                    &head.key,
                    InboxMessageKind::Promote { keys, by: "jo".to_owned() },
                );
            }
            _ => {
                let pipelines =
                    [("check", true), ("gate", true), (CAREFUL, self.shape.has(Scenario::Serial))];
                let pipelines =
                    pipelines.into_iter().filter_map(|(name, is_here)| is_here.then_some(name));
                let pipelines: Vec<&str> = pipelines.collect();
                let pipeline = *self.random.one(&pipelines).unwrap_or(&"check");
                let name = self.shape.tenants[tenant].name.clone();
                story.log(now, format!("jo enqueues {change} in {name}/{pipeline}"));
                site.enqueue(&change, &name, pipeline);
            }
        }
    }

    /// Makes the forge refuse or accept merges or pushes, merges a change by hand, or makes the
    /// forge add an unexpected file to its next merge.
    fn disturb_forge(&mut self, site: &Site, oracle: &mut Oracle, story: &mut Story) {
        let now = site.world.now();
        match self.random.below(4) {
            0 if self.shape.has(Scenario::FastForward) && self.random.per_mille(500) => {
                story.log(now, "the forge refuses pushes from now on");
                site.forge.refuse_pushes("protected branch");
            }
            0 => {
                story.log(now, "the forge refuses merges from now on");
                site.forge.refuse_merges("not now");
                oracle.start_refusing_merges();
            }
            1 => {
                story.log(now, "the forge accepts merges again");
                site.forge.accept_merges();
                site.forge.accept_pushes();
                oracle.stop_refusing_merges();
            }
            2 => {
                let (change, _) = self.proposed[self.random.below(self.proposed.len())].clone();
                // No Gerrit change is merged by hand.
                let Some(revision) =
                    open(site, &change).filter(|_| !is_gerrit_project(change.project.name()))
                else {
                    return;
                };
                if let Some(commit) = site.forge.merge_by_hand(&change) {
                    story.log(now, format!("an administrator merges {revision} by hand"));
                    oracle.record_manual_merge(
                        &revision,
                        &commit,
                        &site.store.lock().unwrap(),
                        now,
                    );
                }
            }
            _ => {
                story.log(now, "the forge will add an unexpected file to the next merge");
                site.forge.sabotage([("stray".to_owned(), format!("{}", self.actions))].into());
                self.is_sabotaged = true;
                oracle.record_sabotage();
            }
        }
    }
}

/// Returns a change description that declares a dependency.
fn depends_on(need: &ChangeKey) -> String {
    format!("Depends-On: https://{}/pull/{}", need.project, need.number().unwrap_or_default())
}

/// Returns the current revision of a change. Returns `None` if the change is not open.
fn open(site: &Site, change: &ChangeKey) -> Option<ChangeRef> {
    let shown = site.forge.change(change)?;
    (shown.facts.status == ChangeStatus::Open).then_some(shown.facts.change)
}

/// Reports the current revision of a change to the oracle, with its commits and the tree below
/// them. Does nothing if the change is not open.
pub(crate) fn uploaded(site: &Site, oracle: &mut Oracle, change: &ChangeKey) {
    let Some(revision) = open(site, change) else { return };
    let parents = site.forge.change(change).map(|shown| shown.facts.parents).unwrap_or_default();
    oracle.record_parents(&revision, &parents);
    let store = site.store.lock().unwrap();
    let branch = branch_of(change.project.name(), revision.branch.as_str());
    let Some(tip) = store.tip(&branch) else { return };
    let line = store.line(&tip.id, &revision.head);
    // The branch may have moved since the commits below were made.
    let base = line.first().and_then(|first| store.parent(first)).unwrap_or(tip.id);
    let commits =
        line.into_iter().map(|commit| (commit.clone(), store.tree(&commit).clone())).collect();
    oracle.record_upload(&revision, store.tree(&base).clone(), commits, site.world.now());
}
