//! The oracle: a simple gate without a store, messages or concurrency.
//!
//! It learns what people did, what was merged into branches, and in which order items entered and
//! left queues. From this it works out the allowed result of each item. A change may land only if
//! all jobs pass on the merge of the change with its branch, by the oracle's own merge. A change
//! that passes must not fail, and a dequeued change needs a reason.

mod approvals;
mod bundles;
mod capacity;
mod chains;
pub mod departures;
mod expected_refs;
mod file_filters;
#[cfg(test)]
mod fixtures;
mod followers;
mod forge_faults;
mod greedy;
mod job_graphs;
mod jobs;
mod missing_work;
mod newcomers;
mod ref_items;
mod reloads;
mod reporter_jobs;
mod required_projects;
mod retests;
mod revisions;
mod timers;
mod trees;

pub(crate) use approvals::is_approved;
pub use departures::Membership;
pub use missing_work::ApprovalState;
pub use reloads::JobChange;
pub use trees::TreeTrigger;

use crate::reviews::{host_of, is_gerrit_project};
use crate::scenarios::{AUDIT, PUBLISH, Scenario, lands};
use crate::shape::Shape;
use crate::truth;
use approvals::Approval;
use bundles::is_retest;
use job_graphs::is_failure;
use revisions::Revision;
use sluice_gate::{Item, JobStatus};
use sluice_model::build::BuildResult;
use sluice_model::change::{ChangeKey, ChangeRef};
use sluice_model::git::{BranchKey, Commit, MergeMode, Oid};
use sluice_model::{BuildId, ItemId, ProjectName, QueueKey, Timestamp};
use sluice_records::report::Buildset;
use sluice_scenarios::forge::Shown;
use sluice_scenarios::repos::{Store, Tree};
use std::collections::{BTreeMap, BTreeSet};

/// The state of the oracle.
#[derive(Default)]
pub struct Oracle {
    /// Every commit of each branch, oldest first.
    branches: BTreeMap<BranchKey, Vec<Tip>>,
    /// The history of each change.
    changes: BTreeMap<ChangeKey, ChangeHistory>,
    /// The queued items, with the state of their branches when they entered.
    queued_items: BTreeMap<ItemId, QueuedItem>,
    /// Builds that did not end as their tree says, because an executor or its nodes were lost.
    pub interrupted_builds: BTreeSet<BuildId>,
    /// The number of times that the forge refused a merge without a reason or merged something
    /// else.
    disturbances: u32,
    /// Whether the forge refuses merges.
    is_refusing: bool,
    /// Projects with a manual merge, or with a merge that contained extra files.
    tampered_projects: BTreeSet<ProjectName>,
    /// Whether nodes or clouds may fail.
    nodes_fail: bool,
    /// Whether a change leaves check when it enters the gate.
    supersedes: bool,
    /// What the site plays besides.
    scenarios: BTreeSet<Scenario>,
    /// Whether no webhook is lost and the forge never returns outdated answers.
    sees_all_events: bool,
    /// The merge mode of each project.
    modes: BTreeMap<ProjectName, MergeMode>,
    /// Projects in which changes with the same topic depend on each other.
    by_topic: BTreeSet<ProjectName>,
    /// Queues that an item left for a newer one that has not entered yet.
    expected_newer: BTreeSet<QueueKey>,
    /// Refs that have to be tested at a certain commit.
    expected_refs: Vec<expected_refs::Due>,
    /// Deleted branches.
    deleted: BTreeSet<BranchKey>,
    /// Changes, with the pipelines that had no capacity for them.
    refused_for_capacity: BTreeSet<(ChangeKey, String)>,
    /// When operators added and removed the job of the reload scenario.
    reloads: reloads::Reloads,
    /// Whether an operator ever removed the audit pipeline.
    is_reconfigured: bool,
    /// The proposed trees of changes.
    trees: Vec<trees::Tree>,
    /// When operators removed projects from their tenants and added them again.
    departures: departures::Departures,
    /// Changes of projects that a change brings into the pipelines.
    newcomers: newcomers::Newcomers,
}

/// Whether an entering item stays in its queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EntryFate {
    /// It stays.
    Stays,
    /// It leaves again, because one of its needs left in the same transaction.
    Leaves,
}

/// Where a landing change is queued.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LandingPosition {
    /// In the first entry of a queue.
    First,
    /// Behind another entry.
    Behind,
}

/// What the forge merged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MergeContent {
    /// Only the change.
    AsRequested,
    /// The change and extra files.
    Tampered,
}

/// Whether an operator had events discarded at any time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DiscardHistory {
    /// No event was ever discarded.
    Never,
    /// Some may have been.
    Some,
}

/// A commit that a branch was at.
struct Tip {
    id: Oid,
    tree_id: Oid,
    tree: Tree,
    /// The queue that moved the branch there; `None` for a person.
    by: Option<QueueKey>,
}

/// The history of a change.
#[derive(Default)]
struct ChangeHistory {
    revisions: BTreeMap<Oid, Revision>,
    proposed_at: Option<Timestamp>,
    landed_at: Option<Timestamp>,
    /// When it last entered the gate.
    gated_at: Option<Timestamp>,
    /// Its approvals, oldest first.
    approvals: Vec<Approval>,
    /// The revisions that entered a gate.
    gated: BTreeSet<Oid>,
    /// When something happened that dequeues the change.
    withdrawals: Vec<Timestamp>,
    /// How it was merged; `None` while it is open.
    merged: Option<Merged>,
    /// The index of the first state of its branch that contains it.
    merged_at: Option<usize>,
    /// The merged revision.
    merged_head: Option<Oid>,
    /// Whether the gate merged it onto another state than the tested one. This happens when a
    /// person moves the branch between the last check and the merge.
    is_untested_merge: bool,
    /// The results of its items.
    outcomes: Vec<ItemOutcome>,
    /// Whether its dependencies changed or an operator named it. It may then be dequeued, and only
    /// a new event brings it back.
    is_entangled: bool,
    /// The changes that it was proposed to depend on.
    needs: Vec<ChangeKey>,
    /// For each revision, the open changes that its commits were based on.
    parents: BTreeMap<Oid, Vec<ChangeKey>>,
    /// Its topic, and since when it has it.
    topic: Option<(String, Timestamp)>,
}

/// Who merged a change.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Merged {
    ByGate,
    ByHand,
}

/// How an item left its queue.
struct ItemOutcome {
    pipeline: String,
    head: Oid,
    result: String,
    left_at: Timestamp,
}

/// A landing as its record and the last answers of the forge describe it.
pub struct ExpectedLanding {
    /// The tree of the branch before the landing.
    pub base: Oid,
    /// The tree of the branch after it.
    pub tested: Oid,
    /// What it depends on, but for those that need it as well.
    pub needs: Vec<ChangeKey>,
    /// The other members of its bundle.
    pub other_members: Vec<ChangeRef>,
    /// The merge mode.
    pub mode: MergeMode,
    /// The queue that ordered it.
    pub queue: QueueKey,
    /// The facts of changes that the reporter last read before the merge.
    pub shown: Shown,
}

/// A queued item.
struct QueuedItem {
    change: ChangeRef,
    queue: Option<QueueKey>,
    first_tips: BTreeMap<BranchKey, usize>,
    /// By change: the forge time of the facts that the gate had when the item entered.
    known_as_of: BTreeMap<ChangeKey, Timestamp>,
    /// Whether the forge refused merges at any time since the item entered.
    saw_merge_refusal: bool,
}

impl Oracle {
    /// Returns the oracle of a site without any event.
    pub fn new(shape: &Shape) -> Self {
        let nodes_fail = shape.fault_profile.machines > 0 || shape.fault_profile.outages > 0;
        let canonical = |name: &str| ProjectName::new(host_of(name), name);
        let projects = shape.projects().into_iter().map(|(name, _)| name);
        let modes = projects.map(|name| (canonical(&name), shape.mode_of(&name))).collect();
        let shared =
            shape.tenants.iter().flat_map(|tenant| &tenant.projects).filter(|(_, shared)| *shared);
        let by_topic = shared
            .filter(|(name, _)| is_gerrit_project(name))
            .map(|(name, _)| canonical(name))
            .collect();
        let sees_all_events = shape.fault_profile.delivers_every_webhook()
            && shape.fault_profile.forge_behind_millis == 0;
        let (supersedes, scenarios) = (shape.has(Scenario::Supersedes), shape.scenarios.clone());
        Self {
            nodes_fail,
            supersedes,
            scenarios,
            sees_all_events,
            modes,
            by_topic,
            ..Self::default()
        }
    }

    /// Records that an operator removed or restored the audit pipeline.
    pub fn record_reconfiguration(&mut self) {
        self.is_reconfigured = true;
    }

    /// Records the commit of a branch: at the start, after a push and after a manual merge.
    pub fn record_branch_move(&mut self, branch: &BranchKey, commit: &Commit, store: &Store) {
        let tip = Tip {
            tree_id: commit.tree.clone(),
            tree: store.tree(&commit.id).clone(),
            id: commit.id.clone(),
            by: None,
        };
        self.branches.entry(branch.clone()).or_default().push(tip);
    }

    /// Records an uploaded revision with its commits, oldest first. A new revision revokes the
    /// approvals of the one before.
    pub fn record_upload(
        &mut self,
        change: &ChangeRef,
        base: Tree,
        commits: Vec<(Oid, Tree)>,
        now: Timestamp,
    ) {
        let history = self.changes.entry(change.key.clone()).or_default();
        if !history.revisions.is_empty() {
            self.revoke_approvals(&change.key, now);
        }
        let history = self.changes.entry(change.key.clone()).or_default();
        history.proposed_at.get_or_insert(now);
        history.revisions.insert(change.head.clone(), Revision { base, commits });
    }

    /// Records that the dependencies of a change were edited or that an operator may have dequeued
    /// it. From then on only a new event enqueues it.
    pub fn mark_entangled(&mut self, change: &ChangeKey) {
        self.changes.entry(change.clone()).or_default().is_entangled = true;
        self.disturb_trees(change);
    }

    /// Returns whether [`Self::mark_entangled`] was called for a change, or it depends on others.
    pub fn is_entangled(&self, change: &ChangeKey) -> bool {
        self.changes
            .get(change)
            .is_some_and(|history| history.is_entangled || !history.needs.is_empty())
    }

    /// Records an action that dequeues a change.
    pub fn record_withdrawal(&mut self, change: &ChangeKey, now: Timestamp) {
        self.changes.entry(change.clone()).or_default().withdrawals.push(now);
        self.disturb_trees(change);
    }

    /// Records that a person merged a change.
    pub fn record_manual_merge(
        &mut self,
        change: &ChangeRef,
        commit: &Commit,
        store: &Store,
        now: Timestamp,
    ) {
        self.disturbances += 1;
        self.mark_tampered(&change.key.project);
        self.disturb_trees(&change.key);
        let branch = branch_of(change);
        let history = self.changes.entry(change.key.clone()).or_default();
        history.merged_head = Some(change.head.clone());
        history.withdrawals.push(now);
        history.merged = Some(Merged::ByHand);
        history.merged_at = Some(self.branches.get(&branch).map_or(0, Vec::len));
        self.record_branch_move(&branch, commit, store);
    }

    /// Returns whether a change is merged.
    pub fn is_merged(&self, change: &ChangeKey) -> bool {
        self.changes.get(change).is_some_and(|history| history.merged.is_some())
    }

    /// Returns whether the gate merged a change.
    fn has_landed(&self, change: &ChangeKey) -> bool {
        self.changes.get(change).is_some_and(|history| history.merged == Some(Merged::ByGate))
    }

    /// Records an item that entered a queue, and checks that it was allowed to.
    ///
    /// # Errors
    /// When it may not.
    pub fn check_entry(
        &mut self,
        item: &Item,
        queue: &QueueKey,
        ahead: &[ChangeRef],
        fate: EntryFate,
    ) -> Result<(), String> {
        let change = &item.candidate.change;
        self.check_membership(change, "entered its queue")?;
        self.record_arrival(&change.key);
        let mut needs = item.candidate.needs.iter().map(|need| &need.change);
        // An item may be tested on the branch states of the items ahead.
        let mut queued = QueuedItem { queue: Some(queue.clone()), ..self.snapshot_item(item) };
        if !lands(queue.pipeline.as_str()) {
            // A pipeline that does not merge accepts closed changes and changes that depend on
            // closed ones.
            queued.known_as_of.clear();
        }
        let is_ahead = |other: &&QueuedItem| {
            other.queue.as_ref() == Some(queue) && ahead.contains(&other.change)
        };
        for other in self.queued_items.values().filter(is_ahead) {
            for (branch, first) in &mut queued.first_tips {
                *first = (*first).min(other.first_tips.get(branch).copied().unwrap_or(*first));
            }
        }
        self.queued_items.insert(item.id.clone(), queued);
        self.expected_newer.remove(queue);
        if !lands(queue.pipeline.as_str()) {
            return Ok(());
        }
        let history = self.changes.get_mut(&change.key).ok_or("the change was never proposed")?;
        history.gated.insert(change.head.clone());
        if !history.was_approved(&change.head, item.candidate.as_of) {
            let as_of = item.candidate.as_of.to_iso();
            return Err(format!(
                "{change} entered {queue} with its facts of {as_of}, when it was not approved"
            ));
        }
        // Members of a bundle enter together. The watch checks that the bundle is complete.
        let is_member = |key: &ChangeKey| item.candidate.bundle.contains(key);
        let missing = needs.find(|need| {
            !ahead.contains(need) && !self.is_merged(&need.key) && !is_member(&need.key)
        });
        if let Some(need) = missing.filter(|_| fate == EntryFate::Stays) {
            return Err(format!("{change} entered {queue} without its dependency {need}"));
        }
        let lacking =
            self.find_missing_predecessor(item, ahead).filter(|_| fate == EntryFate::Stays);
        lacking.map_or(Ok(()), |lacking| Err(format!("{change} entered {queue} {lacking}")))
    }

    /// Records a change that the forge merged for the gate, and checks that it was allowed to land.
    ///
    /// # Errors
    /// When that must not have landed.
    pub fn check_landing(
        &mut self,
        change: &ChangeRef,
        commit: &Commit,
        said: Option<ExpectedLanding>,
        position: LandingPosition,
        content: MergeContent,
        store: &Store,
    ) -> Result<(), String> {
        let Some(ExpectedLanding {
            base,
            tested,
            needs,
            other_members: members,
            shown,
            queue,
            mode: said_mode,
        }) = said
        else {
            return Err(format!("{change} was merged without a landing record"));
        };
        if position == LandingPosition::Behind {
            return Err(format!("{change} was merged but is not the first of its queue"));
        }
        self.check_membership(change, "landed")?;
        if let Some(need) = needs.iter().find(|need| !self.is_merged(need)) {
            return Err(format!("{change} was merged before its dependency {need}"));
        }
        if let Some(parent) = self.parents_of(change).iter().find(|parent| !self.is_merged(parent))
        {
            return Err(format!("{change} was merged before its parent {parent}"));
        }
        self.check_merge_request(change, &members, &shown)?;
        let mode = self.mode_of(&change.key.project);
        if said_mode != mode {
            return Err(format!(
                "{change} was merged with {said_mode:?}, but its project is configured with {mode:?}"
            ));
        }
        if content == MergeContent::Tampered {
            self.mark_tampered(&change.key.project);
        }
        let actual = store.tree(&commit.id).clone();
        let branch = branch_of(change);
        // Bundles are tested as a whole, not after each member.
        let is_whole =
            members.iter().all(|member| branch_of(member) != branch || self.is_merged(&member.key));
        let tips = self.branches.entry(branch.clone()).or_default();
        let Some(tip) = tips.last() else { return Err(format!("there is no {branch}")) };
        let history = self.changes.entry(change.key.clone()).or_default();
        let Some(revision) = history.revisions.get(&change.head) else {
            return Err(format!("{change} was merged at a revision that was never uploaded"));
        };
        let expected = revision.merge_onto(said_mode, &tip.tree);
        if content == MergeContent::AsRequested {
            let Some(expected) = expected else {
                return Err(format!("{change} was merged but conflicts with its branch"));
            };
            if expected != actual {
                return Err(format!(
                    "{change} was merged, but the branch is not the merge of both"
                ));
            }
            // A push between the last check of the branch and the merge is detected afterwards.
            if base == tip.tree_id {
                if tested != commit.tree {
                    return Err(format!("{change} landed with another tree than the tested one"));
                }
                if is_whole && !truth::all_pass(&expected) {
                    return Err(format!("{change} landed, but its branch fails the jobs now"));
                }
            } else {
                if tip.by.as_ref() == Some(&queue) {
                    return Err(format!(
                        "{change} was merged onto a branch that its own queue moved after the test"
                    ));
                }
                history.is_untested_merge = tested != commit.tree;
            }
        }
        history.merged = Some(Merged::ByGate);
        history.merged_at = Some(tips.len());
        history.merged_head = Some(change.head.clone());
        tips.push(Tip {
            id: commit.id.clone(),
            tree_id: commit.tree.clone(),
            tree: actual,
            by: Some(queue),
        });
        Ok(())
    }

    /// Records an item that left its queue, and checks its result.
    ///
    /// # Errors
    /// When it had to leave otherwise.
    pub fn check_result(
        &mut self,
        set: &Buildset,
        store: &Store,
        now: Timestamp,
    ) -> Result<(), String> {
        let item = &set.item;
        let change = &item.candidate.change;
        let is_gate = lands(set.queue.pipeline.as_str());
        let wrong = |why: String| {
            let jobs: Vec<String> = item
                .jobs
                .iter()
                .map(|job| format!("{} {:?}", job.summary.name, job.status))
                .collect();
            let (result, queue) = (&set.result, &set.queue);
            Err(format!(
                "{change} left {queue} as {result} ({}), but {why}\njobs: {}",
                set.why,
                jobs.join(", ")
            ))
        };
        let history = self.changes.entry(change.key.clone()).or_default();
        if is_gate {
            history.gated.insert(change.head.clone());
        }
        history.outcomes.push(ItemOutcome {
            pipeline: set.queue.pipeline.to_string(),
            head: change.head.clone(),
            result: set.result.clone(),
            left_at: now,
        });
        let (merged, is_untested_merge) = (history.merged, history.is_untested_merge);
        // An item that entered and left in one transaction was never recorded as queued.
        let queued = self.queued_items.remove(&item.id);
        let queued = queued.unwrap_or_else(|| QueuedItem {
            known_as_of: BTreeMap::new(),
            ..self.snapshot_item(item)
        });
        let is_orphan =
            is_gate && set.result == "FAILURE" && set.why.starts_with("This change depends on");
        self.check_reloaded_job(set, now).or_else(wrong)?;
        match set.result.as_str() {
            "DEQUEUED" if self.may_have_left(item) || self.record_move(set) => Ok(()),
            "FAILURE" if self.depends_on_removed(set) => Ok(()),
            "NO_JOBS" => self.check_missing_jobs(set, store).or_else(wrong),
            _ if change.key.ref_move().is_some_and(|moved| moved.newrev.is_none()) => {
                self.check_timer_item(set, &queued, store).or_else(wrong)
            }
            _ if change.key.number().is_none() => self.check_ref_item(set, store).or_else(wrong),
            // A manual merge also counts, if the branch became what was tested.
            "SUCCESS" if is_gate && merged.is_none() => wrong("it did not land".to_owned()),
            "SUCCESS" if is_gate && is_untested_merge => {
                wrong("it landed with another tree than the tested one".to_owned())
            }
            "FAILURE" if is_orphan => {
                // The gate may not know of a manual merge yet.
                let lost =
                    item.candidate.needs.iter().any(|need| !self.has_landed(&need.change.key));
                if lost { Ok(()) } else { wrong("all its dependencies are merged".to_owned()) }
            }
            "SUCCESS" | "FAILURE" if !item.candidate.bundle.is_empty() => {
                self.check_bundle_item(set, &queued, store).or_else(wrong)
            }
            "SUCCESS" | "FAILURE" => self.check_tested_item(set, &queued, store).or_else(wrong),
            "MERGE_CONFLICT" => {
                if self.conflicts(item, &queued) {
                    Ok(())
                } else {
                    wrong("it merges without conflict".to_owned())
                }
            }
            "MERGE_FAILURE"
                if self.may_be_refused(item, &queued) || self.is_withdrawn(item, &queued) =>
            {
                Ok(())
            }
            "MERGE_FAILURE"
                if is_untested_merge || self.branch_moved_by_others(item, &queued, &set.queue) =>
            {
                Ok(())
            }
            "MERGE_FAILURE" => wrong("the forge had no reason to refuse the merge".to_owned()),
            "CONFIG_ERROR" if self.is_greedy(item) => Ok(()),
            "CONFIG_ERROR" => wrong("its configuration is valid".to_owned()),
            "DEQUEUED"
                if self.is_withdrawn(item, &queued) || self.may_be_superseded(item, &set.queue) =>
            {
                Ok(())
            }
            // The change is enqueued again with other dependencies.
            "DEQUEUED" if !is_gate && is_retest(&set.why) => Ok(()),
            "DEQUEUED" if self.is_out_for_its_dependencies(set) => Ok(()),
            "DEQUEUED" if self.was_merged_by_other_queue(set) => Ok(()),
            "DEQUEUED" => wrong("it had no reason to be dequeued".to_owned()),
            _ => wrong("this result is not possible here".to_owned()),
        }
    }

    /// Returns an item with the present state of the branches.
    fn snapshot_item(&self, item: &Item) -> QueuedItem {
        let first_tips = self
            .branches
            .iter()
            .map(|(branch, tips)| (branch.clone(), tips.len().saturating_sub(1)));
        let candidates = item.candidate.needs.iter().chain([&item.candidate]);
        let known_as_of =
            candidates.map(|candidate| (candidate.change.key.clone(), candidate.as_of)).collect();
        let (change, first_tips) = (item.candidate.change.clone(), first_tips.collect());
        QueuedItem {
            change,
            queue: None,
            first_tips,
            known_as_of,
            saw_merge_refusal: self.is_refusing,
        }
    }

    /// Returns whether an item may have left because its pipeline was removed, or because its
    /// change or another bundle member entered the gate.
    fn may_be_superseded(&self, item: &Item, queue: &QueueKey) -> bool {
        let is_gated = bundles::together(item).any(|change| {
            self.changes
                .get(&change.key)
                .is_some_and(|history| history.gated.contains(&change.head))
        });
        match queue.pipeline.as_str() {
            "check" => self.supersedes && is_gated,
            AUDIT => self.is_reconfigured,
            _ => false,
        }
    }

    /// Checks the tested tree, the jobs and the result of an item that is not in a bundle.
    fn check_tested_item(
        &self,
        set: &Buildset,
        queued: &QueuedItem,
        store: &Store,
    ) -> Result<(), String> {
        let item = &set.item;
        let merged = item.merged().ok_or("nothing was tested")?;
        let tested = store.tree(&merged.tested.id);
        if !self
            .possible_states(item, queued, &merged.base.tree, set)
            .any(|tree| tree.as_ref() == Some(tested))
        {
            return Err(
                "the tested tree is not the merge of its branch, its needs and itself".to_owned()
            );
        }
        self.check_job_names(set, tested, store)?;
        self.check_job_graph(set, tested)?;
        match (set.result.as_str(), self.check_job_results(item, tested)?) {
            ("SUCCESS", true) => Err("a job failed".to_owned()),
            ("FAILURE", false) => Err("every job passed".to_owned()),
            _ => Ok(()),
        }
    }

    /// Checks that each job ended as it does on the tested tree. Returns whether any voting job
    /// failed.
    fn check_job_results(&self, item: &Item, tested: &Tree) -> Result<bool, String> {
        let mut fails = false;
        // Reporter jobs do not decide the result.
        for job in item.jobs.iter().filter(|job| job.summary.name.as_str() != PUBLISH) {
            let JobStatus::Ended { result, .. } = &job.status else {
                return Err("a job has not ended".to_owned());
            };
            let passes = truth::passes(job.summary.name.as_str(), tested);
            let is_right = match result {
                BuildResult::Success => passes,
                BuildResult::Failure => {
                    !passes || job_graphs::may_lack_artifacts(&job.summary.name, item)
                }
                BuildResult::Skipped | BuildResult::Aborted if self.plays_job_graphs() => true,
                BuildResult::Skipped => {
                    !truth::passes("quick", tested)
                        || self.nodes_fail
                        || !self.interrupted_builds.is_empty()
                }
                BuildResult::RetryLimit => {
                    let unlucky = item
                        .builds
                        .iter()
                        .filter(|build| self.interrupted_builds.contains(build))
                        .count();
                    unlucky >= job.summary.attempts as usize
                }
                BuildResult::NodeFailure => self.nodes_fail,
                _ => false,
            };
            if !is_right {
                return Err(format!("{} passes on that tree: {passes}", job.summary.name));
            }
            fails |= is_failure(job.summary.name.as_str(), *result);
        }
        Ok(fails)
    }

    /// Returns the trees that an item may have been tested as. An item leaves the gate as the first
    /// of its queue; it was then tested on the branch as the gate left it, unless a person moved
    /// the branch.
    fn possible_states<'a>(
        &'a self,
        item: &'a Item,
        queued: &'a QueuedItem,
        base: &'a Oid,
        set: &'a Buildset,
    ) -> impl Iterator<Item = Option<Tree>> + 'a {
        let branch = branch_of(&item.candidate.change);
        let tips = self.branches.get(&branch).map(Vec::as_slice).unwrap_or_default();
        let first = queued.first_tips.get(&branch).copied().unwrap_or_default();
        let is_gate = lands(set.queue.pipeline.as_str());
        let merged_at =
            self.changes.get(&item.candidate.change.key).and_then(|history| history.merged_at);
        let states = (first..tips.len()).rev().filter_map(move |at| {
            // A change that was already merged when its event was processed is tested as the branch
            // is.
            if item.candidate.merged.is_some() && !is_gate {
                return merged_at
                    .filter(|merged_at| *merged_at <= at)
                    .map(|_| [Some(tips[at].tree.clone()), None]);
            }
            // A landed change is a state of its branch. States after it, by the same push, do not
            // count.
            let landed = usize::from(is_gate && set.result == "SUCCESS");
            let until = merged_at.filter(|_| landed == 1).map_or(tips.len(), |own| own + 1);
            let later = tips.iter().take(until).skip(at + 1);
            let own_later = later.filter(|tip| tip.by.as_ref() == Some(&set.queue)).count();
            if is_gate && (tips[at].tree_id != *base || own_later > landed) {
                return None;
            }
            let tree = &tips[at].tree;
            let without_landed =
                if is_gate { None } else { self.merge_without_landed_needs(item, tree, at) };
            Some([self.merge_item(item, tree, at, !is_gate), without_landed])
        });
        states.flatten()
    }

    /// Merges an item into a tree, with its needs on the same branch if `with_needs`. `None` on a
    /// conflict.
    fn merge_item(
        &self,
        item: &Item,
        onto: &Tree,
        onto_at: usize,
        with_needs: bool,
    ) -> Option<Tree> {
        let own = &item.candidate.change;
        let needs = item.candidate.needs.iter().map(|need| &need.change);
        let below = needs.filter(|need| with_needs && branch_of(need) == branch_of(own));
        below
            .chain([own])
            .try_fold(onto.clone(), |tree, change| self.merge_change(change, tree, Some(onto_at)))
    }

    /// Returns whether an item or one of its needs conflicted with some state of its branch while
    /// the item was queued.
    fn conflicts(&self, item: &Item, queued: &QueuedItem) -> bool {
        let own = &item.candidate.change;
        let needs = item.candidate.needs.iter().map(|need| &need.change);
        needs.chain([own]).any(|change| {
            let branch = branch_of(change);
            let first = queued.first_tips.get(&branch).copied().unwrap_or_default();
            let tips = self.branches.get(&branch).map(Vec::as_slice).unwrap_or_default();
            let of_branch = Item {
                candidate: sluice_gate::Candidate {
                    change: change.clone(),
                    ..item.candidate.clone()
                },
                ..item.clone()
            };
            let mut later = tips.iter().enumerate().skip(first);
            later.any(|(at, tip)| {
                let put = |with_needs| self.merge_item(&of_branch, &tip.tree, at, with_needs);
                let without_landed = || self.merge_without_landed_needs(&of_branch, &tip.tree, at);
                put(false).is_none() || put(true).is_none() || without_landed().is_none()
            })
        }) || self.bundle_conflicts(item, queued)
    }
}

/// Returns the branch that a change is for.
fn branch_of(change: &ChangeRef) -> BranchKey {
    BranchKey { project: change.key.project.clone(), branch: change.branch.clone() }
}
