//! The oracle: a gate of the plainest kind, which has no store, no messages and nothing that
//! happens at once.
//!
//! It is told what people did, what was put into branches, and in which order items came and went,
//! which is the order of the heads' revisions. From that it works out by itself what had to become
//! of each: a change lands only when, merged onto the branch as it is by a merging of the oracle's
//! own, all jobs pass; one that passes may not fail; who leaves needs a reason.

mod approvals;
mod bundles;
mod chains;
mod files;
#[cfg(test)]
mod fixtures;
mod followers;
mod graphs;
mod jobs;
mod last_jobs;
mod posts;
mod refs;
mod reloads;
mod required;
mod retests;
mod revisions;
mod room;
mod timers;
mod undone;
mod unruly;

pub(crate) use approvals::is_approved;

use crate::plays::{AUDIT, PUBLISH, Play, lands};
use crate::reviews::{host_of, is_review};
use crate::shape::Shape;
use crate::truth;
use approvals::Approval;
use bundles::is_tested_anew;
use graphs::is_failure;
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

/// What a gate without any machinery knows.
#[derive(Default)]
pub struct Oracle {
    /// Branches: every commit that one was at, oldest first.
    branches: BTreeMap<BranchKey, Vec<Tip>>,
    /// Changes.
    changes: BTreeMap<ChangeKey, Known>,
    /// Items that stand in some queue, with where their branch and those of what they need were
    /// when they came.
    standing: BTreeMap<ItemId, Stands>,
    /// Builds that ended otherwise than their tree says, since an executor or its machines were
    /// lost.
    pub unlucky: BTreeSet<BuildId>,
    /// How often a forge refused a merge without a reason, or merged something else.
    unruly: u32,
    /// Whether it refuses merges.
    is_refusing: bool,
    /// Projects of which somebody merged by hand, or of which a merge brought more than it should.
    unruly_projects: BTreeSet<ProjectName>,
    /// Whether machines or clouds may fail.
    nodes_fail: bool,
    /// Whether what enters gate leaves check.
    supersedes: bool,
    /// What the site plays besides.
    plays: BTreeSet<Play>,
    /// Whether every webhook is heard, and the forge shows everything as it is.
    hears_all: bool,
    /// How each project's changes are merged.
    modes: BTreeMap<ProjectName, MergeMode>,
    /// Projects whose changes of one topic need each other.
    by_topic: BTreeSet<ProjectName>,
    /// Queues of which one left since a newer one comes, which has not come yet.
    owed: BTreeSet<QueueKey>,
    /// Refs that are to be tested as they were.
    due_refs: Vec<refs::Due>,
    /// Branches that were deleted.
    deleted: BTreeSet<BranchKey>,
    /// Changes with the pipelines that had no room for them.
    without_room: BTreeSet<(ChangeKey, String)>,
    reloads: reloads::Reloads,
    /// Whether the pipeline that comes and goes has ever gone.
    is_reconfigured: bool,
}

/// Where a branch was.
struct Tip {
    id: Oid,
    tree_id: Oid,
    tree: Tree,
    /// Which queue moved it, if one did.
    by: Option<QueueKey>,
}

/// What is known of a change.
#[derive(Default)]
struct Known {
    revisions: BTreeMap<Oid, Revision>,
    proposed_at: Option<Timestamp>,
    landed_at: Option<Timestamp>,
    /// When it came to stand in the gate last.
    gated_at: Option<Timestamp>,
    /// When it was approved, oldest first.
    approvals: Vec<Approval>,
    /// Revisions that entered gate.
    gated: BTreeSet<Oid>,
    /// When something was done that takes it out of queues.
    withdrawn: Vec<Timestamp>,
    merged: Option<Merged>,
    /// Since which of its branch's states it is in it.
    merged_at: Option<usize>,
    /// Which revision is.
    merged_head: Option<Oid>,
    /// Whether the gate had it merged onto another state than its branch was tested at: somebody
    /// else moved the branch between the last look at it and the merge, and what it is now nobody
    /// tested.
    is_overtaken: bool,
    verdicts: Vec<Verdict>,
    /// Whether what it depends on was ever changed, or an operator named it: then it may be out,
    /// and nothing but new news brings it back.
    is_entangled: bool,
    /// What it was proposed to depend on.
    needs: Vec<ChangeKey>,
    /// What the commits of its revisions are made on, of changes that were open then.
    parents: BTreeMap<Oid, Vec<ChangeKey>>,
    /// The topic that it is in, and since when.
    topic: Option<(String, Timestamp)>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Merged {
    ByGate,
    ByHand,
}

/// How an item of it ended.
struct Verdict {
    pipeline: String,
    head: Oid,
    result: String,
    left_at: Timestamp,
}

/// What a landing under way says.
pub struct Said {
    /// What the branch was to be before.
    pub base: Oid,
    /// And after it.
    pub tested: Oid,
    /// What it depends on, but for those that need it as well.
    pub needs: Vec<ChangeKey>,
    /// Those.
    pub mates: Vec<ChangeRef>,
    /// How it is merged.
    pub mode: MergeMode,
    /// The queue that lands it.
    pub queue: QueueKey,
    /// What whoever merged it had been shown of changes last.
    pub shown: Shown,
}

struct Stands {
    change: ChangeRef,
    queue: Option<QueueKey>,
    first_tips: BTreeMap<BranchKey, usize>,
    /// As of when it and what it needs were known when it came.
    known_as_of: BTreeMap<ChangeKey, Timestamp>,
    /// Whether the forge refused merges at any time since.
    saw_refusal: bool,
}

impl Oracle {
    /// Returns an oracle of a site that has heard nothing.
    pub fn new(shape: &Shape) -> Self {
        let nodes_fail = shape.weather.machines > 0 || shape.weather.outages > 0;
        let canonical = |name: &str| ProjectName::new(host_of(name), name);
        let projects = shape.projects().into_iter().map(|(name, _)| name);
        let modes = projects.map(|name| (canonical(&name), shape.mode_of(&name))).collect();
        let shared =
            shape.tenants.iter().flat_map(|tenant| &tenant.projects).filter(|(_, shared)| *shared);
        let by_topic =
            shared.filter(|(name, _)| is_review(name)).map(|(name, _)| canonical(name)).collect();
        let hears_all = shape.weather.all_are_heard() && shape.weather.forge_behind_millis == 0;
        let (supersedes, plays) = (shape.has(Play::Supersedes), shape.plays.clone());
        Self { nodes_fail, supersedes, plays, hears_all, modes, by_topic, ..Self::default() }
    }

    /// Is told that the pipeline that comes and goes is taken away, or comes back.
    pub fn reconfigured(&mut self) {
        self.is_reconfigured = true;
    }

    /// Is told where a branch is: at the beginning, after a push, and after a merge by hand.
    pub fn moved(&mut self, branch: &BranchKey, commit: &Commit, store: &Store) {
        let tip = Tip {
            tree_id: commit.tree.clone(),
            tree: store.tree(&commit.id).clone(),
            id: commit.id.clone(),
            by: None,
        };
        self.branches.entry(branch.clone()).or_default().push(tip);
    }

    /// Is told of a revision that was uploaded, made of these commits one on the other, which takes
    /// back what was said of the one before.
    pub fn uploaded(
        &mut self,
        change: &ChangeRef,
        base: Tree,
        commits: Vec<(Oid, Tree)>,
        now: Timestamp,
    ) {
        let known = self.changes.entry(change.key.clone()).or_default();
        if !known.revisions.is_empty() {
            self.taken_back(&change.key, now);
        }
        let known = self.changes.entry(change.key.clone()).or_default();
        known.proposed_at.get_or_insert(now);
        known.revisions.insert(change.head.clone(), Revision { base, commits });
    }

    /// Is told of something after which nothing but news brings a change back into a queue: it
    /// depends on others than before, or an operator may have taken it out.
    pub fn entangled(&mut self, change: &ChangeKey) {
        self.changes.entry(change.clone()).or_default().is_entangled = true;
    }

    /// Returns whether [`Self::entangled`] was told of a change, or that it depends on others.
    pub fn is_entangled(&self, change: &ChangeKey) -> bool {
        self.changes.get(change).is_some_and(|known| known.is_entangled || !known.needs.is_empty())
    }

    /// Is told that something was done that takes a change out of queues.
    pub fn withdrawn(&mut self, change: &ChangeKey, now: Timestamp) {
        self.changes.entry(change.clone()).or_default().withdrawn.push(now);
    }

    /// Is told that a person merged a change.
    pub fn merged_by_hand(
        &mut self,
        change: &ChangeRef,
        commit: &Commit,
        store: &Store,
        now: Timestamp,
    ) {
        self.unruly += 1;
        self.tampered_with(&change.key.project);
        let branch = branch_of(change);
        let known = self.changes.entry(change.key.clone()).or_default();
        known.merged_head = Some(change.head.clone());
        known.withdrawn.push(now);
        known.merged = Some(Merged::ByHand);
        known.merged_at = Some(self.branches.get(&branch).map_or(0, Vec::len));
        self.moved(&branch, commit, store);
    }

    /// Returns whether a change is merged.
    pub fn is_merged(&self, change: &ChangeKey) -> bool {
        self.changes.get(change).is_some_and(|known| known.merged.is_some())
    }

    /// Returns whether the gate landed a change.
    fn has_landed(&self, change: &ChangeKey) -> bool {
        self.changes.get(change).is_some_and(|known| known.merged == Some(Merged::ByGate))
    }

    /// Hears that an item stands in a queue.
    ///
    /// # Errors
    /// When it may not.
    pub fn entered(
        &mut self,
        item: &Item,
        queue: &QueueKey,
        ahead: &[ChangeRef],
        is_to_leave: bool,
    ) -> Result<(), String> {
        let change = &item.candidate.change;
        let mut needs = item.candidate.needs.iter().map(|need| &need.change);
        // What it is tested on may be what those ahead of it were tested on.
        let mut stands = Stands { queue: Some(queue.clone()), ..self.stands_now(item) };
        if !lands(queue.pipeline.as_str()) {
            // What is only tested may come in though it is closed, or depends on what is.
            stands.known_as_of.clear();
        }
        let is_ahead =
            |other: &&Stands| other.queue.as_ref() == Some(queue) && ahead.contains(&other.change);
        for other in self.standing.values().filter(is_ahead) {
            for (branch, first) in &mut stands.first_tips {
                *first = (*first).min(other.first_tips.get(branch).copied().unwrap_or(*first));
            }
        }
        self.standing.insert(item.id.clone(), stands);
        self.owed.remove(queue);
        if !lands(queue.pipeline.as_str()) {
            return Ok(());
        }
        let known = self.changes.get_mut(&change.key).ok_or("nobody proposed it")?;
        known.gated.insert(change.head.clone());
        if !known.was_approved(&change.head, item.candidate.as_of) {
            let as_of = item.candidate.as_of.to_iso();
            return Err(format!(
                "{change} enters {queue} as it was at {as_of}, when nobody approved it"
            ));
        }
        // Those that need each other come in together; that all of them are there is looked at
        // where the queue is.
        let is_mate = |key: &ChangeKey| item.candidate.cycle.contains(key);
        let missing = needs.find(|need| {
            !ahead.contains(need) && !self.is_merged(&need.key) && !is_mate(&need.key)
        });
        if let Some(need) = missing.filter(|_| !is_to_leave) {
            return Err(format!("{change} enters {queue} without {need}, which it depends on"));
        }
        let lacking = self.lacking(item, ahead).filter(|_| !is_to_leave);
        lacking.map_or(Ok(()), |lacking| Err(format!("{change} enters {queue} {lacking}")))
    }

    /// Hears what the forge merged at the gate's word. `said` is what the landing under way says.
    /// `is_first` is whether the change is the first of a queue, or of the bundle that is.
    ///
    /// # Errors
    /// When that must not have landed.
    pub fn landed(
        &mut self,
        change: &ChangeRef,
        commit: &Commit,
        said: Option<Said>,
        is_first: bool,
        is_unruly: bool,
        store: &Store,
    ) -> Result<(), String> {
        let Some(Said { base, tested, needs, mates, shown, queue, mode: said_mode }) = said else {
            return Err(format!("{change} was merged, and no landing says that it should be"));
        };
        if !is_first {
            return Err(format!("{change} was merged, and it is not the first of its queue"));
        }
        if let Some(need) = needs.iter().find(|need| !self.is_merged(need)) {
            return Err(format!("{change} was merged before {need}, which it depends on"));
        }
        if let Some(parent) = self.parents_of(change).iter().find(|parent| !self.is_merged(parent))
        {
            return Err(format!("{change} was merged before {parent}, which it is made on"));
        }
        self.was_asked(change, &mates, &shown)?;
        let mode = self.mode_of(&change.key.project);
        if said_mode != mode {
            return Err(format!(
                "{change} was merged by {said_mode:?}, and its project says {mode:?}"
            ));
        }
        if is_unruly {
            self.tampered_with(&change.key.project);
        }
        let actual = store.tree(&commit.id).clone();
        let branch = branch_of(change);
        // Of a bundle the whole was tested: what its branch is in between nobody asks.
        let is_whole =
            mates.iter().all(|mate| branch_of(mate) != branch || self.is_merged(&mate.key));
        let tips = self.branches.entry(branch.clone()).or_default();
        let Some(tip) = tips.last() else { return Err(format!("there is no {branch}")) };
        let known = self.changes.entry(change.key.clone()).or_default();
        let Some(revision) = known.revisions.get(&change.head) else {
            return Err(format!("{change} was merged, and nobody uploaded that revision"));
        };
        let expected = revision.put(said_mode, &tip.tree);
        if !is_unruly {
            let Some(expected) = expected else {
                return Err(format!("{change} was merged, and it does not merge"));
            };
            if expected != actual {
                return Err(format!(
                    "{change} was merged, and the branch is something else than both together"
                ));
            }
            // Whoever pushes between the last look at the branch and the merge is found out
            // afterwards.
            if base == tip.tree_id {
                if tested != commit.tree {
                    return Err(format!("{change} landed as another tree than the tested one"));
                }
                if is_whole && !truth::all_pass(&expected) {
                    return Err(format!(
                        "{change} landed, and what the branch is now fails its jobs"
                    ));
                }
            } else {
                if tip.by.as_ref() == Some(&queue) {
                    return Err(format!(
                        "{change} was merged onto what its own queue made of the branch after its test"
                    ));
                }
                known.is_overtaken = tested != commit.tree;
            }
        }
        known.merged = Some(Merged::ByGate);
        known.merged_at = Some(tips.len());
        known.merged_head = Some(change.head.clone());
        tips.push(Tip {
            id: commit.id.clone(),
            tree_id: commit.tree.clone(),
            tree: actual,
            by: Some(queue),
        });
        Ok(())
    }

    /// Hears that an item left.
    ///
    /// # Errors
    /// When it had to leave otherwise.
    pub fn left(&mut self, set: &Buildset, store: &Store, now: Timestamp) -> Result<(), String> {
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
        let known = self.changes.entry(change.key.clone()).or_default();
        if is_gate {
            known.gated.insert(change.head.clone());
        }
        known.verdicts.push(Verdict {
            pipeline: set.queue.pipeline.to_string(),
            head: change.head.clone(),
            result: set.result.clone(),
            left_at: now,
        });
        let (merged, is_overtaken) = (known.merged, known.is_overtaken);
        // One that entered and left in one step never stood anywhere.
        let stood = self.standing.remove(&item.id);
        let stood = stood
            .unwrap_or_else(|| Stands { known_as_of: BTreeMap::new(), ..self.stands_now(item) });
        let is_orphan =
            is_gate && set.result == "FAILURE" && set.why.starts_with("This change depends on");
        self.judged_reloads(set, now).or_else(wrong)?;
        match set.result.as_str() {
            _ if change.key.moved().is_some_and(|moved| moved.newrev.is_none()) => {
                self.judged_standing(set, &stood, store).or_else(wrong)
            }
            _ if change.key.number().is_none() => self.judged_post(set, store).or_else(wrong),
            // By hand too, if that made the branch what was tested.
            "SUCCESS" if is_gate && merged.is_none() => wrong("it did not land".to_owned()),
            "SUCCESS" if is_gate && is_overtaken => {
                wrong("it landed as another tree than the tested one".to_owned())
            }
            "FAILURE" if is_orphan => {
                // The gate may not have heard yet of what somebody else merged.
                let lost =
                    item.candidate.needs.iter().any(|need| !self.has_landed(&need.change.key));
                if lost { Ok(()) } else { wrong("all that it depends on is merged".to_owned()) }
            }
            "SUCCESS" | "FAILURE" if !item.candidate.cycle.is_empty() => {
                self.judged_in_bundle(set, &stood, store).or_else(wrong)
            }
            "SUCCESS" | "FAILURE" => self.judged(set, &stood, store).or_else(wrong),
            "MERGE_CONFLICT" => {
                if self.conflicts(item, &stood) {
                    Ok(())
                } else {
                    wrong("it merges".to_owned())
                }
            }
            "MERGE_FAILURE"
                if self.may_be_refused(item, &stood) || self.is_withdrawn(item, &stood) =>
            {
                Ok(())
            }
            "MERGE_FAILURE" if is_overtaken || self.was_overtaken(item, &stood, &set.queue) => {
                Ok(())
            }
            "MERGE_FAILURE" => wrong("nothing keeps the forge from merging it".to_owned()),
            "CONFIG_ERROR" if self.is_greedy(item) => Ok(()),
            "CONFIG_ERROR" => wrong("nothing is wrong with its configuration".to_owned()),
            "DEQUEUED" if self.is_withdrawn(item, &stood) || self.has_gone(item, &set.queue) => {
                Ok(())
            }
            // It came again, on more than it was tested on or as one with others: that it did so is
            // for the replay to see.
            "DEQUEUED" if !is_gate && is_tested_anew(&set.why) => Ok(()),
            "DEQUEUED" if self.is_out_for_its_needs(set) => Ok(()),
            "DEQUEUED" => wrong("nobody took it out".to_owned()),
            _ => wrong("nothing here ends so".to_owned()),
        }
    }

    fn stands_now(&self, item: &Item) -> Stands {
        let first_tips = self
            .branches
            .iter()
            .map(|(branch, tips)| (branch.clone(), tips.len().saturating_sub(1)));
        let candidates = item.candidate.needs.iter().chain([&item.candidate]);
        let known_as_of = candidates.map(|known| (known.change.key.clone(), known.as_of)).collect();
        let (change, first_tips) = (item.candidate.change.clone(), first_tips.collect());
        Stands { change, queue: None, first_tips, known_as_of, saw_refusal: self.is_refusing }
    }

    /// Returns whether an item's configuration may ask for a secret before anybody has reviewed it:
    /// its own does, or what it is tested on did at any time.
    fn is_greedy(&self, item: &Item) -> bool {
        // In a bundle that of its mates is proposed as well.
        if !item.candidate.cycle.is_empty() {
            return self.is_any_greedy();
        }
        let project = &item.candidate.change.key.project;
        let tips = self
            .branches
            .iter()
            .filter(|(branch, _)| branch.project == *project)
            .flat_map(|(_, tips)| tips);
        let proposed = self.changes.iter().filter(|(key, _)| key.project == *project);
        let proposed =
            proposed.flat_map(|(_, known)| known.revisions.values().filter_map(Revision::tree));
        tips.map(|tip| &tip.tree).chain(proposed).any(truth::is_greedy)
    }

    fn is_any_greedy(&self) -> bool {
        let tips = self.branches.values().flatten().map(|tip| &tip.tree);
        let proposed = self
            .changes
            .values()
            .flat_map(|known| known.revisions.values().filter_map(Revision::tree));
        tips.chain(proposed).any(truth::is_greedy)
    }

    /// Returns whether an item's pipeline may have gone under it, or a better one have taken its
    /// change, or one that leaves with it.
    fn has_gone(&self, item: &Item, queue: &QueueKey) -> bool {
        let is_gated = bundles::together(item).any(|change| {
            self.changes.get(&change.key).is_some_and(|known| known.gated.contains(&change.head))
        });
        match queue.pipeline.as_str() {
            "check" => self.supersedes && is_gated,
            AUDIT => self.is_reconfigured,
            _ => false,
        }
    }

    /// Judges an item that was tested.
    fn judged(&self, set: &Buildset, stood: &Stands, store: &Store) -> Result<(), String> {
        let item = &set.item;
        let merged = item.merged().ok_or("nothing was tested")?;
        let tested = store.tree(&merged.tested.id);
        if !self
            .states(item, stood, &merged.base.tree, set)
            .any(|tree| tree.as_ref() == Some(tested))
        {
            return Err(
                "what was tested is not its branch with what it needs and itself".to_owned()
            );
        }
        self.judged_names(set, tested, store)?;
        self.judged_graph(set, tested)?;
        match (set.result.as_str(), self.judged_jobs(item, tested)?) {
            ("SUCCESS", true) => Err("a job failed".to_owned()),
            ("FAILURE", false) => Err("every job passed".to_owned()),
            _ => Ok(()),
        }
    }

    /// Judges how an item's jobs ended on a tree; returns whether any failed.
    fn judged_jobs(&self, item: &Item, tested: &Tree) -> Result<bool, String> {
        let mut fails = false;
        // What runs after the report decides nothing.
        for job in item.jobs.iter().filter(|job| job.summary.name.as_str() != PUBLISH) {
            let JobStatus::Ended { result, .. } = &job.status else {
                return Err("a job has not ended".to_owned());
            };
            let passes = truth::passes(job.summary.name.as_str(), tested);
            let is_right = match result {
                BuildResult::Success => passes,
                BuildResult::Failure => !passes || graphs::may_lack(&job.summary.name, item),
                BuildResult::Skipped | BuildResult::Aborted if self.is_graph_played() => true,
                BuildResult::Skipped => {
                    !truth::passes("quick", tested) || self.nodes_fail || !self.unlucky.is_empty()
                }
                BuildResult::RetryLimit => {
                    let unlucky =
                        item.builds.iter().filter(|build| self.unlucky.contains(build)).count();
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

    /// Returns what an item may have been tested as. In the gate it is the first by the time it
    /// leaves: then it is the branch as the gate left it, unless somebody else moved it since.
    fn states<'a>(
        &'a self,
        item: &'a Item,
        stood: &'a Stands,
        base: &'a Oid,
        set: &'a Buildset,
    ) -> impl Iterator<Item = Option<Tree>> + 'a {
        let branch = branch_of(&item.candidate.change);
        let tips = self.branches.get(&branch).map(Vec::as_slice).unwrap_or_default();
        let first = stood.first_tips.get(&branch).copied().unwrap_or_default();
        let is_gate = lands(set.queue.pipeline.as_str());
        let merged_at =
            self.changes.get(&item.candidate.change.key).and_then(|known| known.merged_at);
        let states = (first..tips.len()).rev().filter_map(move |at| {
            // What was in its branch when its event was told, which may have been kept for long, is
            // tested as the branch is, in whatever way it was put there.
            if item.candidate.merged.is_some() && !is_gate {
                return merged_at
                    .filter(|merged_at| *merged_at <= at)
                    .map(|_| [Some(tips[at].tree.clone()), None]);
            }
            // What landed is a tip of its own by now; what the same push landed behind it is no
            // matter.
            let landed = usize::from(is_gate && set.result == "SUCCESS");
            let until = merged_at.filter(|_| landed == 1).map_or(tips.len(), |own| own + 1);
            let later = tips.iter().take(until).skip(at + 1);
            let own_later = later.filter(|tip| tip.by.as_ref() == Some(&set.queue)).count();
            if is_gate && (tips[at].tree_id != *base || own_later > landed) {
                return None;
            }
            let tree = &tips[at].tree;
            let beside = if is_gate { None } else { self.put_beside_landed(item, tree, at) };
            Some([self.put(item, tree, at, !is_gate), beside])
        });
        states.flatten()
    }

    /// Returns a tree with what an item needs of the same branch, and itself.
    fn put(&self, item: &Item, onto: &Tree, onto_at: usize, with_needs: bool) -> Option<Tree> {
        let own = &item.candidate.change;
        let needs = item.candidate.needs.iter().map(|need| &need.change);
        let below = needs.filter(|need| with_needs && branch_of(need) == branch_of(own));
        below
            .chain([own])
            .try_fold(onto.clone(), |tree, change| self.put_one(change, tree, Some(onto_at)))
    }

    /// Returns whether an item, or what it needs, did not merge with some state of its branch while
    /// it stood in its queue.
    fn conflicts(&self, item: &Item, stood: &Stands) -> bool {
        let own = &item.candidate.change;
        let needs = item.candidate.needs.iter().map(|need| &need.change);
        needs.chain([own]).any(|change| {
            let branch = branch_of(change);
            let first = stood.first_tips.get(&branch).copied().unwrap_or_default();
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
                let put = |with_needs| self.put(&of_branch, &tip.tree, at, with_needs);
                let beside = || self.put_beside_landed(&of_branch, &tip.tree, at);
                put(false).is_none() || put(true).is_none() || beside().is_none()
            })
        }) || self.conflicts_as_one(item, stood)
    }
}

fn branch_of(change: &ChangeRef) -> BranchKey {
    BranchKey { project: change.key.project.clone(), branch: change.branch.clone() }
}
