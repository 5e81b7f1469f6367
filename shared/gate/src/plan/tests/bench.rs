//! A bench for [`plan`]: a queue whose plans are carried out in memory, and whose questions are
//! answered by the test.
//!
//! Trees are words: a branch starts as `0`, and with A and B landed it is `0AB`.

mod ends;

use crate::inbox::{InboxMessage, InboxMessageKind, Candidate};
use crate::item::{MergeStatus, Item};
use crate::landing::{Landing, LandingEnd, LandingState};
use crate::merge::{LineNote, MergeOutcome, MergeResult, Merged};
use crate::plan::{
    ChangesLimit, Residency, TenantHold, LayoutNumbers, OrderDraft, QueuePlan, ObservedBuild, QueueSnapshot, plan,
};
use crate::provided::ProvidedArtifacts;
use crate::queue::Head;
use crate::report::{ReportAction, Report, ReportState};
use crate::semaphore::{Semaphore, SemaphoreKey};
use crate::branch_lock::BranchLockView;
use sluice_config::pipeline::{GitHubReporter, Manager, Pipeline, Reporter, ReporterKind};
use sluice_model::build::{BuildResult, Ended};
use sluice_model::change::{ChangeKey, ChangeRef};
use sluice_model::event::ZuulEvent;
use sluice_model::git::{BranchKey, Commit, MergeMode};
use sluice_model::job::{JobDependency, JobSummary, BuildSharing};
use sluice_model::{
    InboxMessageId, BuildId, ItemId, LabelName, ProjectName, ProviderName, QueueKey, Timestamp,
};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

type Trees = BTreeMap<String, String>;

/// A queue with everything around it.
pub struct Bench {
    pub head: Head,
    pub items: BTreeMap<ItemId, Item>,
    pub arrivals: Vec<InboxMessage>,
    pub outcomes: BTreeMap<ItemId, MergeOutcome>,
    pub runs: BTreeMap<BuildId, ObservedBuild>,
    pub landings: BTreeMap<ItemId, Landing>,
    /// How far reports are that last jobs wait for.
    pub told: BTreeMap<ItemId, ReportState>,
    /// What changes of other queues provide.
    pub provided: BTreeMap<ChangeRef, ProvidedArtifacts>,
    pub doors: BTreeMap<ChangeKey, Residency>,
    pub pipeline: Pipeline,
    /// Whether the live layout no longer has it.
    pub is_pipeline_gone: bool,
    /// Whether tested commits are kept, so that branches can be moved to them.
    pub kept: bool,
    pub layout: LayoutNumbers,
    /// How many changes the pipeline may hold.
    pub changes: Option<ChangesLimit>,
    /// What operators hold back.
    pub hold: TenantHold,
    pub now: Timestamp,
    /// Where the branches are.
    pub tips: Trees,
    /// Jobs of every item.
    pub jobs: Vec<JobSummary>,
    /// Pairs of changes that do not merge together.
    pub conflicts: Vec<(char, char)>,
    /// Changes that touch configuration.
    pub configuring: BTreeSet<char>,
    /// Changes whose configuration is wrong.
    pub misconfigured: BTreeSet<char>,
    pub has_provider: bool,
    /// Labels that no provider offers.
    pub unoffered: BTreeSet<LabelName>,
    /// Whether the projects ask to fail fast.
    pub fail_fast: bool,
    /// What a merge that does not work says.
    pub conflict_detail: String,
    /// Bytes of the largest item that left.
    pub removed_bytes_max: usize,
    /// What stood with items that left.
    pub removed_reasons: Vec<String>,
    /// Semaphores that were ever used, and how many may hold each.
    pub semaphores: BTreeMap<SemaphoreKey, Semaphore>,
    pub semaphore_max: u32,
    /// Queues in line that cannot come.
    pub gone: BTreeSet<QueueKey>,
    /// Builds that hold a semaphore and are not at work, each since when.
    pub idle: BTreeMap<BuildId, Timestamp>,
    /// Branches on which anything ever landed.
    pub turns: BTreeMap<BranchKey, BranchLockView>,
    /// Queues that plans wanted looked at.
    pub woken: Vec<QueueKey>,
    pub orders: Vec<OrderDraft>,
    pub reports: Vec<Report>,
    pub left: Vec<String>,
    pub landed: Vec<String>,
    pub most_records: usize,
    pub plans: usize,
    /// What of that which happens starts other changes, and what was told of it.
    pub tells: Vec<ZuulEvent>,
    pub happened: Vec<String>,
    /// What other queues were told.
    pub forwards: Vec<(QueueKey, InboxMessage)>,
    /// Queues of changes that belong to another one.
    pub queues: BTreeMap<char, String>,
    /// Jobs of changes that have others.
    pub own_jobs: BTreeMap<char, Vec<JobSummary>>,
    projects: BTreeMap<char, String>,
    revisions: BTreeMap<char, u32>,
    branches: BTreeMap<char, String>,
}

/// Returns a job without dependencies.
pub fn job(name: &str) -> JobSummary {
    JobSummary {
        name: name.into(),
        hash: format!("{name}-1"),
        dependencies: Vec::new(),
        voting: true,
        attempts: 3,
        labels: vec![vec![LabelName::from("small")]],
        semaphores: Vec::new(),
        provides: Vec::new(),
        requires: Vec::new(),
        hold_following_changes: false,
        success_message: None,
        failure_message: None,
        success_url: None,
        failure_url: None,
        sharing: BuildSharing::Never,
        reporter: false,
    }
}

/// Returns a job that comes after others.
pub fn after(name: &str, others: &[&str]) -> JobSummary {
    let dependencies =
        others.iter().map(|other| JobDependency { name: (*other).into(), soft: false }).collect();
    JobSummary { dependencies, ..job(name) }
}

impl Bench {
    /// Makes an empty gate whose changes run these jobs.
    pub fn gate(jobs: &[&str]) -> Self {
        Self::new(Manager::Dependent, jobs)
    }

    pub fn new(manager: Manager, jobs: &[&str]) -> Self {
        let mut pipeline = Pipeline::new("gate", manager);
        let reporter = |merge| Reporter {
            connection: "github".into(),
            kind: ReporterKind::GitHub(GitHubReporter {
                comment: Some(true),
                merge,
                ..GitHubReporter::default()
            }),
        };
        pipeline.reporters.success = vec![reporter(manager == Manager::Dependent)];
        pipeline.reporters.failure = vec![reporter(false)];
        let key =
            QueueKey { tenant: "t".into(), pipeline: "gate".into(), queue: "integrated".into() };
        Self {
            head: Head::new(key, manager, pipeline.window.initial, 1),
            items: BTreeMap::new(),
            arrivals: Vec::new(),
            outcomes: BTreeMap::new(),
            runs: BTreeMap::new(),
            landings: BTreeMap::new(),
            told: BTreeMap::new(),
            provided: BTreeMap::new(),
            doors: BTreeMap::new(),
            pipeline,
            is_pipeline_gone: false,
            kept: false,
            layout: LayoutNumbers { wanted: 1, live: 1 },
            changes: None,
            hold: TenantHold::default(),
            now: Timestamp(1_000_000),
            tips: Trees::new(),
            jobs: jobs.iter().map(|name| job(name)).collect(),
            conflicts: Vec::new(),
            configuring: BTreeSet::new(),
            misconfigured: BTreeSet::new(),
            has_provider: true,
            unoffered: BTreeSet::new(),
            fail_fast: false,
            conflict_detail: "file".to_owned(),
            removed_bytes_max: 0,
            removed_reasons: Vec::new(),
            semaphores: BTreeMap::new(),
            semaphore_max: 1,
            gone: BTreeSet::new(),
            idle: BTreeMap::new(),
            turns: BTreeMap::new(),
            woken: Vec::new(),
            orders: Vec::new(),
            reports: Vec::new(),
            left: Vec::new(),
            landed: Vec::new(),
            most_records: 0,
            plans: 0,
            tells: Vec::new(),
            happened: Vec::new(),
            forwards: Vec::new(),
            queues: BTreeMap::new(),
            own_jobs: BTreeMap::new(),
            projects: BTreeMap::new(),
            revisions: BTreeMap::new(),
            branches: BTreeMap::new(),
        }
    }

    /// Puts a change into a project of its own.
    pub fn in_project(&mut self, change: char, project: &str) {
        self.projects.insert(change, project.to_owned());
    }

    pub fn project(&self, change: char) -> String {
        self.projects.get(&change).cloned().unwrap_or_else(|| "one".to_owned())
    }

    pub fn tip(&self, project: &str) -> String {
        self.tips.get(project).cloned().unwrap_or_else(|| "0".to_owned())
    }

    pub fn change(&self, change: char) -> ChangeRef {
        let project = ProjectName::new("forge.test", &format!("org/{}", self.project(change)));
        let revision = self.revisions.get(&change).copied().unwrap_or(1);
        let key = ChangeKey::change("github".into(), project, u64::from(u32::from(change)));
        let head = format!("{change}{revision}");
        let branch = self.branches.get(&change).map_or("main", String::as_str).into();
        ChangeRef { key, branch, head: head.as_str().into(), patchset: head }
    }

    /// Uploads a new patchset of a change; nobody is told.
    pub fn revise(&mut self, change: char) {
        *self.revisions.entry(change).or_insert(1) += 1;
    }

    /// Has a change be for another branch; nobody is told.
    pub fn retarget(&mut self, change: char, branch: &str) {
        self.branches.insert(change, branch.to_owned());
    }

    pub fn candidate(&self, change: char, needs: &str) -> Candidate {
        Candidate {
            title: change.to_string(),
            needs: needs.chars().map(|need| self.candidate(need, "")).collect(),
            ..Candidate::bare(&self.change(change))
        }
    }

    /// Returns changes that need each other, in the order they land, and that need others besides.
    pub fn cycle(&self, changes: &str, needs: &str) -> Vec<Candidate> {
        let cycle: Vec<ChangeKey> = changes.chars().map(|change| self.change(change).key).collect();
        let of = |change: char| {
            let others: String =
                needs.chars().chain(changes.chars().filter(|other| *other != change)).collect();
            Candidate { bundle: cycle.clone(), ..self.candidate(change, &others) }
        };
        changes.chars().map(of).collect()
    }

    /// Approves changes that need each other: one event brings all of them.
    pub fn approve_cycle(&mut self, changes: &str, needs: &str) {
        let candidates = self.cycle(changes, needs);
        self.arrive(InboxMessageKind::Enqueue { candidates });
    }

    pub fn arrive(&mut self, kind: InboxMessageKind) {
        self.now = self.now.plus_millis(1);
        let id = InboxMessageId(format!("arrival-{:06}", self.now.0));
        let (event_id, by_operator, taken_up) = ("event".to_owned(), false, false);
        self.arrivals.push(InboxMessage {
            id,
            at: self.now,
            event_id,
            layout: 0,
            by_operator,
            in_progress: taken_up,
            kind,
        });
    }

    /// An operator takes a change out, whatever revision of it is there.
    pub fn dequeue(&mut self, change: char) {
        let key = self.change(change).key;
        self.arrive(InboxMessageKind::Dequeue {
            key,
            head: None,
            by: "jo".to_owned(),
            reason: "it hangs".to_owned(),
        });
    }

    /// An operator lets a frozen queue go on.
    pub fn thaw(&mut self) {
        self.arrive(InboxMessageKind::Resume { by: "jo".to_owned(), reason: "looked".to_owned() });
    }

    /// Approves changes, one after the other.
    pub fn approve(&mut self, changes: &str) {
        for change in changes.chars() {
            self.approve_needing(change, "");
        }
    }

    pub fn approve_needing(&mut self, change: char, needs: &str) {
        let candidates = vec![self.candidate(change, needs)];
        self.arrive(InboxMessageKind::Enqueue { candidates });
    }

    /// Tells of a change as it is now.
    pub fn seen(&mut self, change: char, gone: Option<&str>) {
        let kind = InboxMessageKind::ChangeUpdated {
            change: self.change(change),
            gone: gone.map(str::to_owned),
            merged: false,
            needs: None,
            as_of: Timestamp(0),
        };
        self.arrive(kind);
    }

    /// Tells of a change that depends on these by now.
    pub fn seen_needing(&mut self, change: char, needs: &str) {
        let needs = Some(needs.chars().map(|need| self.change(need)).collect());
        let change = self.change(change);
        self.arrive(InboxMessageKind::ChangeUpdated {
            change,
            gone: None,
            merged: false,
            needs,
            as_of: Timestamp(0),
        });
    }

    /// Makes one plan and carries it out. Returns what it decided, a line each, and whether it
    /// wants to be asked again at once.
    pub fn look(&mut self) -> (Vec<String>, bool) {
        let provider = |labels: &[LabelName]| {
            let is_offered =
                self.has_provider && !labels.iter().any(|label| self.unoffered.contains(label));
            is_offered.then(|| ProviderName::from("p"))
        };
        let snapshot = QueueSnapshot {
            head: self.head.clone(),
            items: self.items.values().cloned().map(Arc::new).collect(),
            inbox: self.arrivals.clone(),
            merge_outcomes: self.outcomes.clone(),
            observed_builds: self.runs.clone(),
            landings: self.landings.clone(),
            reports: self.told.clone(),
            provided: self.provided.clone(),
            residencies: self.doors.clone(),
            semaphores: self.semaphores.clone(),
            branch_locks: self.turns.clone(),
            absent_queues: self.gone.clone(),
            idle_holders: self.idle.clone(),
            resolve_semaphore: &|name| {
                let key = SemaphoreKey { tenant: Some("t".into()), name: name.to_owned() };
                (key, self.semaphore_max)
            },
            pipeline: (!self.is_pipeline_gone).then_some(&self.pipeline),
            queue_of: &|pipeline, change| {
                let letter = char::from_u32(change.key.number()? as u32)?;
                let own =
                    || if *pipeline == self.head.key.pipeline { "integrated" } else { "another" };
                let queue = self.queues.get(&letter).map_or_else(own, String::as_str).into();
                Some(QueueKey { tenant: "t".into(), pipeline: pipeline.clone(), queue })
            },
            merge_mode: &|_| MergeMode::Merge,
            provider_for: &provider,
            changes_limit: self.changes,
            health: None,
            hold: self.hold,
            triggering_events: self.tells.clone(),
            layout: self.layout,
            item_url_prefix: "https://sluice.test/".to_owned(),
        };
        let plan = plan(snapshot, self.now);
        let more = plan.due == Some(self.now) && !plan.is_empty();
        self.plans += 1;
        (self.carry_out(plan), more)
    }

    /// Looks and answers the merger's questions until nothing more is decided.
    pub fn run(&mut self) -> String {
        let mut told = Vec::new();
        for _ in 0..400 {
            let (lines, more) = self.look();
            let asked = self.answer();
            if lines.is_empty() && !asked {
                return told.join("\n");
            }
            told.extend(lines.into_iter().filter(|line| !line.is_empty()));
            if !more && !asked {
                assert_eq!(
                    self.look().0,
                    Vec::<String>::new(),
                    "the plan after a plan decides nothing without news"
                );
                return told.join("\n");
            }
        }
        panic!("the queue does not come to rest: {told:?}");
    }

    fn carry_out(&mut self, plan: QueuePlan) -> Vec<String> {
        let mut told = Vec::new();
        let of_stop = if self.head.manager == Manager::Dependent { 1 } else { 2 };
        let records = plan.items.len()
            + 4 * plan.removed.len()
            + plan.succeeded.len()
            + plan.consumed.len()
            + plan.in_progress.len()
            + 2 * plan.orders.len()
            + of_stop * plan.stops.len()
            + plan.resumes.len()
            + plan.landings.len()
            + plan.withdrawn_landings.len()
            + plan.reports.len()
            + plan.events.len()
            + plan.forwards.len()
            + plan.semaphores.len()
            + 2 * plan.residencies.len()
            + plan.branch_locks.len()
            + self.passed_by(&plan)
            + usize::from(plan.requests_layout);
        self.most_records = self.most_records.max(records);
        // A stop is one write, and so is what leaves, its buildset, and what it provided; the head
        // and the listing come to it.
        let writes = records - plan.removed.len() - (of_stop - 1) * plan.stops.len() + 2;
        assert!(writes <= 100, "{writes} writes in one plan");
        for (what, item, _) in &plan.events {
            let title = plan.removed.iter().find(|removed| removed.item.id == *item);
            let title = title
                .map_or_else(|| "?".to_owned(), |removed| removed.item.candidate.title.clone());
            self.happened.push(format!("{title} {}", what.as_str()));
        }
        if !plan.is_empty() {
            told.push(String::new());
        }
        for stop in &plan.stops {
            // Nobody had begun it, unless the test says so.
            self.runs.entry(stop.build.clone()).or_insert(ObservedBuild::NeverClaimed);
            told.push(format!("stop {}", self.named(&stop.build)));
        }
        for (build, _) in &plan.sends {
            told.push(format!("send {}", self.named(build)));
        }
        for build in &plan.resends {
            told.push(format!("send {} again", self.named(build)));
        }
        for build in &plan.resumes {
            told.push(format!("resume {}", self.named(build)));
        }
        for reported in &plan.succeeded {
            told.push(format!("{} stays: {}", reported.item.candidate.title, reported.result));
        }
        for removed in &plan.removed {
            let name = &removed.item.candidate.title;
            told.push(format!("{name} leaves: {}", removed.result));
            self.left.push(format!("{name} {}", removed.result));
            let bytes = serde_json::to_string(&removed.item).unwrap().len() + removed.why.len();
            self.removed_bytes_max = self.removed_bytes_max.max(bytes);
            self.removed_reasons.extend(removed.item.reasons.iter().cloned());
            self.items.remove(&removed.item.id);
        }
        self.items.extend(plan.items);
        if let Some(head) = plan.head {
            self.head = head;
        }
        self.arrivals.retain(|arrival| !plan.consumed.contains(&arrival.id));
        self.take_up(&plan.in_progress);
        for landing in plan.withdrawn_landings {
            self.landings.insert(landing.item.clone(), landing);
        }
        for landing in plan.landings {
            told.push(format!("land {} as {}", self.item_name(&landing.item), landing.tested.tree));
            self.landings.insert(landing.item.clone(), landing);
        }
        for order in plan.orders {
            self.orders.push(order.clone());
            let tree =
                self.items[&order.item].merged().map(|merged| merged.tested.tree.clone()).unwrap();
            told.push(format!("run {} on {tree}", self.named(&order.build)));
        }
        if plan.requests_layout {
            self.layout.wanted += 1;
            told.push("want a layout".to_owned());
        }
        self.reports.extend(plan.reports);
        self.forwards.extend(plan.forwards);
        self.woken.extend(plan.wake);
        self.stand(plan.residencies);
        for turn in plan.branch_locks {
            self.turns.insert(turn.branch.clone(), BranchLockView { lock: turn, is_abandoned: false });
        }
        for semaphore in plan.semaphores {
            let holders = semaphore.holders.iter().filter(|holder| holder.queue == self.head.key);
            let holders: Vec<String> = holders.map(|holder| self.named(&holder.build)).collect();
            told.push(format!("{} held by [{}]", semaphore.key.name, holders.join(", ")));
            self.semaphores.insert(semaphore.key.clone(), semaphore);
        }
        told
    }

    fn item_name(&self, id: &ItemId) -> String {
        self.items.get(id).map_or_else(|| "?".to_owned(), |item| item.candidate.title.clone())
    }

    fn named(&self, build: &BuildId) -> String {
        let order = self
            .orders
            .iter()
            .find(|order| order.build == *build)
            .expect("what is stopped was ordered");
        let name = char::from_u32(order.change.key.number().unwrap() as u32).unwrap();
        let attempt =
            if order.attempt > 1 { format!(" (attempt {})", order.attempt) } else { String::new() };
        format!("{name} {}{attempt}", order.job)
    }

    /// Answers every open question. Returns whether there was one without an answer.
    pub fn answer(&mut self) -> bool {
        let mut any = false;
        for item in self.items.values() {
            let MergeStatus::Requested { onto, .. } = &item.merge_status else { continue };
            let is_answered = self.outcomes.get(&item.id).is_some_and(|known| {
                known.generation == item.generation && known.layout == self.layout.live
            });
            if is_answered {
                continue;
            }
            let onto = onto.as_ref().map(|onto| onto.speculation.as_str());
            let result = self.merge(item, onto);
            let (generation, layout) = (item.generation, self.layout.live);
            self.outcomes.insert(
                item.id.clone(),
                MergeOutcome { item: item.id.clone(), generation, layout, result },
            );
            any = true;
        }
        any
    }

    fn merge(&self, item: &Item, onto: Option<&str>) -> MergeResult {
        let name = item.candidate.title.chars().next().unwrap();
        if self.misconfigured.contains(&name) {
            let text = "the job nosuch is not defined".to_owned();
            let note = LineNote {
                path: "zuul.yaml".to_owned(),
                line: 4,
                start_line: None,
                text: text.clone(),
            };
            return MergeResult::Misconfigured { errors: vec![text], notes: vec![note] };
        }
        let mut trees: Trees =
            onto.map(|text| serde_json::from_str(text).unwrap()).unwrap_or_default();
        let own = self.project(name);
        let landed =
            if let MergeStatus::Requested { landed, .. } = &item.merge_status { landed.as_slice() } else { &[] };
        let below = item
            .candidate
            .needs
            .iter()
            .filter(|need| !item.candidate.bundle.contains(&need.change.key));
        let below = below.filter(|need| !landed.contains(&need.change.key));
        let below = below.filter_map(|need| need.title.chars().next());
        let letter = |key: &ChangeKey| char::from_u32(key.number()? as u32);
        let cycle: Vec<char> = item.candidate.bundle.iter().filter_map(letter).collect();
        let mates = if cycle.is_empty() { vec![name] } else { cycle };
        for change in below.chain(mates) {
            let project = self.project(change);
            let tree = trees.entry(project.clone()).or_insert_with(|| self.tip(&project));
            if tree.contains(change) {
                continue;
            }
            let clash = |(a, b): &(char, char)| {
                (*a == change && tree.contains(*b)) || (*b == change && tree.contains(*a))
            };
            if self.conflicts.iter().any(clash) {
                return MergeResult::Conflict {
                    change: self.change(change),
                    detail: self.conflict_detail.clone(),
                };
            }
            tree.push(change);
        }
        // In its own branch, as far as itself.
        let (base, _) = trees[&own].split_once(name).unwrap();
        let tested = format!("{base}{name}");
        let commit =
            |tree: &str| Commit { id: format!("commit-{tree}").as_str().into(), tree: tree.into() };
        MergeResult::Merged(Merged {
            speculation: serde_json::to_string(&trees).unwrap(),
            graph: "graph".to_owned(),
            jobs: self.jobs_of(name),
            base: commit(base),
            tested: commit(&tested),
            can_fast_forward: self.kept,
            touches_configuration: self.configuring.contains(&name),
            fail_fast: self.fail_fast,
            debug: Vec::new(),
        })
    }

    fn jobs_of(&self, change: char) -> Vec<JobSummary> {
        self.own_jobs.get(&change).unwrap_or(&self.jobs).clone()
    }

    /// Returns builds under way as (change, job, build), in the order of the queue.
    pub fn under_way(&self) -> Vec<(char, String, BuildId)> {
        let items = self.head.slots.iter().filter_map(|slot| self.items.get(&slot.id));
        items
            .flat_map(|item| {
                item.jobs.iter().filter(|job| job.is_under_way()).map(move |job| (item, job))
            })
            .map(|(item, job)| {
                (
                    item.candidate.title.chars().next().unwrap(),
                    job.summary.name.to_string(),
                    job.build.clone().unwrap(),
                )
            })
            .collect()
    }

    /// Ends a build.
    pub fn end(&mut self, change: char, job: &str, result: BuildResult) {
        self.end_returning(change, job, result, serde_json::Map::new());
    }

    /// Ends a build that returned data.
    pub fn end_returning(
        &mut self,
        change: char,
        job: &str,
        result: BuildResult,
        data: serde_json::Map<String, serde_json::Value>,
    ) {
        let ended = self.ended(result, data);
        self.show(change, job, ObservedBuild::Ended(ended));
    }

    /// Ends the run of a build, whoever still knows it.
    pub fn run_ended(&mut self, build: &BuildId, result: BuildResult) {
        let ended = self.ended(result, serde_json::Map::new());
        self.runs.insert(build.clone(), ObservedBuild::Ended(ended));
    }

    fn ended(
        &self,
        result: BuildResult,
        data: serde_json::Map<String, serde_json::Value>,
    ) -> Ended {
        Ended {
            result,
            detail: None,
            started_at: None,
            ended_at: self.now,
            data,
            data_object: None,
            log_url: None,
        }
    }

    /// Shows a build's run.
    pub fn show(&mut self, change: char, job: &str, seen: ObservedBuild) {
        let builds = self.under_way();
        let (_, _, build) = builds
            .iter()
            .find(|(c, j, _)| *c == change && j == job)
            .expect("the build is under way");
        self.runs.insert(build.clone(), seen);
    }

    /// Ends every build of these changes well.
    pub fn pass(&mut self, changes: &str) {
        for (change, job, _) in self.under_way() {
            if changes.contains(change) {
                self.end(change, &job, BuildResult::Success);
            }
        }
    }
}
