//! A test bench for [`plan`]: carries out plans in memory, and lets the test answer for merger,
//! executors and forge.
//!
//! Trees are strings: a branch starts as `0`; after A and B are merged it is `0AB`.

mod ends;

use crate::branch_lock::BranchLockView;
use crate::inbox::{Candidate, InboxMessage, InboxMessageKind};
use crate::item::{Item, MergeStatus};
use crate::landing::{Landing, LandingEnd, LandingState};
use crate::merge::{LineNote, MergeOutcome, MergeResult, TestedState};
use crate::plan::{
    ChangesLimit, LayoutNumbers, ObservedBuild, OrderDraft, QueueAction, QueuePlan, QueueSnapshot,
    Residency, TenantHold, plan,
};
use crate::provided::ProvidedArtifacts;
use crate::queue::Head;
use crate::report::{Report, ReportAction, ReportState};
use crate::semaphore::{Semaphore, SemaphoreKey};
use sluice_config::pipeline::{GitHubReporter, Manager, Pipeline, PipelineReporter, ReporterKind};
use sluice_model::build::{BuildResult, EndWithoutRun, RunEnd};
use sluice_model::change::{ChangeKey, ChangeRef};
use sluice_model::event::ZuulEvent;
use sluice_model::git::{BranchKey, Commit, MergeMode};
use sluice_model::job::{BuildSharing, JobDependency, JobSummary};
use sluice_model::{
    BuildId, InboxMessageId, ItemId, LabelName, ProjectName, ProviderName, QueueKey, Timestamp,
};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

type Trees = BTreeMap<String, String>;

/// A queue and its surroundings.
pub struct Bench {
    pub head: Head,
    pub items: BTreeMap<ItemId, Item>,
    pub inbox: Vec<InboxMessage>,
    pub outcomes: BTreeMap<ItemId, MergeOutcome>,
    pub runs: BTreeMap<BuildId, ObservedBuild>,
    pub landings: BTreeMap<ItemId, Landing>,
    /// The states of reports that reporter jobs wait for.
    pub report_states: BTreeMap<ItemId, ReportState>,
    /// The artifacts that changes of other queues provide.
    pub provided: BTreeMap<ChangeRef, ProvidedArtifacts>,
    pub residencies: BTreeMap<ChangeKey, Residency>,
    pub pipeline: Pipeline,
    /// Whether the live layout lacks the pipeline.
    pub is_pipeline_gone: bool,
    /// Projects that the live layout lacks.
    pub removed_projects: BTreeSet<ProjectName>,
    /// Whether the merger keeps tested commits, so that branches can be moved to them.
    pub keeps_tested_commits: bool,
    pub layout: LayoutNumbers,
    /// The limit on changes in the pipeline.
    pub changes: Option<ChangesLimit>,
    /// What operators pause or discard.
    pub hold: TenantHold,
    pub now: Timestamp,
    /// The tips of the branches, by project.
    pub tips: Trees,
    /// The jobs of every item.
    pub jobs: Vec<JobSummary>,
    /// Pairs of changes that conflict with each other.
    pub conflicts: Vec<(char, char)>,
    /// Changes that touch configuration.
    pub configuring: BTreeSet<char>,
    /// Changes whose configuration is wrong.
    pub misconfigured: BTreeSet<char>,
    pub has_provider: bool,
    /// Labels that no provider offers.
    pub unoffered: BTreeSet<LabelName>,
    /// Whether the projects have `fail-fast`.
    pub fail_fast: bool,
    /// The text of merge conflicts.
    pub conflict_detail: String,
    /// The size in bytes of the largest item that left.
    pub removed_bytes_max: usize,
    /// The reasons of items that left.
    pub removed_reasons: Vec<String>,
    /// The items that were removed.
    pub removed_items: Vec<Item>,
    /// The records of semaphores; [`Self::semaphore_max`] is the number of holders allowed.
    pub semaphores: BTreeMap<SemaphoreKey, Semaphore>,
    pub semaphore_max: u32,
    /// Queues that wait for a semaphore but cannot take it.
    pub blocked_queues: BTreeSet<QueueKey>,
    /// Idle semaphore holders, with the time since when.
    pub idle_holders: BTreeMap<BuildId, Timestamp>,
    /// The records of branch locks.
    pub branch_locks: BTreeMap<BranchKey, BranchLockView>,
    /// Queues that plans have woken.
    pub woken: Vec<QueueKey>,
    pub orders: Vec<OrderDraft>,
    /// Jobs whose builds ended at once, and how.
    pub ended_orders: Vec<(String, EndWithoutRun)>,
    pub reports: Vec<Report>,
    pub left: Vec<String>,
    pub landed: Vec<String>,
    pub most_records: usize,
    pub plans: usize,
    /// Events that some pipeline triggers on.
    pub triggering_events: Vec<ZuulEvent>,
    pub emitted_events: Vec<String>,
    /// Messages that plans forwarded to other queues.
    pub forwards: Vec<(QueueKey, InboxMessage)>,
    /// The queue names of changes that belong to another queue.
    pub queues: BTreeMap<char, String>,
    /// The jobs of changes that have other jobs than [`Self::jobs`].
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

/// Returns a job that depends on others.
pub fn after(name: &str, others: &[&str]) -> JobSummary {
    let dependencies =
        others.iter().map(|other| JobDependency { name: (*other).into(), soft: false }).collect();
    JobSummary { dependencies, ..job(name) }
}

impl Bench {
    /// Returns an empty dependent queue whose changes run these jobs.
    pub fn gate(jobs: &[&str]) -> Self {
        Self::new(Manager::Dependent, jobs)
    }

    pub fn new(manager: Manager, jobs: &[&str]) -> Self {
        let mut pipeline = Pipeline::new("gate", manager);
        let reporter = |merge| PipelineReporter {
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
            inbox: Vec::new(),
            outcomes: BTreeMap::new(),
            runs: BTreeMap::new(),
            landings: BTreeMap::new(),
            report_states: BTreeMap::new(),
            provided: BTreeMap::new(),
            residencies: BTreeMap::new(),
            pipeline,
            is_pipeline_gone: false,
            removed_projects: BTreeSet::new(),
            keeps_tested_commits: false,
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
            removed_items: Vec::new(),
            semaphores: BTreeMap::new(),
            semaphore_max: 1,
            blocked_queues: BTreeSet::new(),
            idle_holders: BTreeMap::new(),
            branch_locks: BTreeMap::new(),
            woken: Vec::new(),
            orders: Vec::new(),
            ended_orders: Vec::new(),
            reports: Vec::new(),
            left: Vec::new(),
            landed: Vec::new(),
            most_records: 0,
            plans: 0,
            triggering_events: Vec::new(),
            emitted_events: Vec::new(),
            forwards: Vec::new(),
            queues: BTreeMap::new(),
            own_jobs: BTreeMap::new(),
            projects: BTreeMap::new(),
            revisions: BTreeMap::new(),
            branches: BTreeMap::new(),
        }
    }

    /// Puts a change into another project.
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

    /// Uploads a new patch set of a change, without an event.
    pub fn revise(&mut self, change: char) {
        *self.revisions.entry(change).or_insert(1) += 1;
    }

    /// Changes the target branch of a change, without an event.
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

    /// Returns the candidates of a bundle in merge order, with dependencies `needs` outside of it.
    pub fn bundle(&self, changes: &str, needs: &str) -> Vec<Candidate> {
        let cycle: Vec<ChangeKey> = changes.chars().map(|change| self.change(change).key).collect();
        let of = |change: char| {
            let others: String =
                needs.chars().chain(changes.chars().filter(|other| *other != change)).collect();
            Candidate { bundle: cycle.clone(), ..self.candidate(change, &others) }
        };
        changes.chars().map(of).collect()
    }

    /// Enqueues a bundle with one message.
    pub fn approve_bundle(&mut self, changes: &str, needs: &str) {
        let candidates = self.bundle(changes, needs);
        self.deliver(InboxMessageKind::Enqueue { candidates });
    }

    pub fn deliver(&mut self, kind: InboxMessageKind) {
        self.now = self.now.plus_millis(1);
        let id = InboxMessageId(format!("message-{:06}", self.now.0));
        let (event_id, by_operator, taken_up) = ("event".to_owned(), false, false);
        self.inbox.push(InboxMessage {
            id,
            at: self.now,
            event_id,
            layout: 0,
            by_operator,
            in_progress: taken_up,
            kind,
        });
    }

    /// Sends an operator's command to dequeue a change, in any revision.
    pub fn dequeue(&mut self, change: char) {
        let key = self.change(change).key;
        self.deliver(InboxMessageKind::Dequeue {
            key,
            head: None,
            by: "jo".to_owned(),
            reason: "it hangs".to_owned(),
        });
    }

    /// Sends an operator's command to resume a halted queue.
    pub fn resume(&mut self) {
        self.deliver(InboxMessageKind::Resume { by: "jo".to_owned(), reason: "looked".to_owned() });
    }

    /// Enqueues changes, one after the other.
    pub fn approve(&mut self, changes: &str) {
        for change in changes.chars() {
            self.approve_needing(change, "");
        }
    }

    pub fn approve_needing(&mut self, change: char, needs: &str) {
        let candidates = vec![self.candidate(change, needs)];
        self.deliver(InboxMessageKind::Enqueue { candidates });
    }

    /// Sends an update of a change with its current revision; `gone` says why it was closed.
    pub fn update(&mut self, change: char, gone: Option<&str>) {
        let kind = InboxMessageKind::ChangeUpdated {
            change: self.change(change),
            gone: gone.map(str::to_owned),
            merged: false,
            needs: None,
            as_of: Timestamp(0),
        };
        self.deliver(kind);
    }

    /// Sends an update of a change with new dependencies.
    pub fn update_needing(&mut self, change: char, needs: &str) {
        let needs = Some(needs.chars().map(|need| self.change(need)).collect());
        let change = self.change(change);
        self.deliver(InboxMessageKind::ChangeUpdated {
            change,
            gone: None,
            merged: false,
            needs,
            as_of: Timestamp(0),
        });
    }

    /// Makes one plan and carries it out. Returns its decisions, a line each, and whether the queue
    /// is to be reconciled again at once.
    pub fn plan_once(&mut self) -> (Vec<String>, bool) {
        let provider = |labels: &[LabelName]| {
            let is_offered =
                self.has_provider && !labels.iter().any(|label| self.unoffered.contains(label));
            let names = || labels.iter().map(LabelName::as_str).collect::<Vec<_>>().join(", ");
            let refusal = || format!("no provider of the tenant offers {}", names());
            is_offered.then(|| ProviderName::from("p")).ok_or_else(refusal)
        };
        let snapshot = QueueSnapshot {
            head: self.head.clone(),
            items: self.items.values().cloned().map(Arc::new).collect(),
            inbox: self.inbox.clone(),
            merge_outcomes: self.outcomes.clone(),
            observed_builds: self.runs.clone(),
            landings: self.landings.clone(),
            reports: self.report_states.clone(),
            provided: self.provided.clone(),
            residencies: self.residencies.clone(),
            semaphores: self.semaphores.clone(),
            branch_locks: self.branch_locks.clone(),
            blocked_queues: self.blocked_queues.clone(),
            idle_holders: self.idle_holders.clone(),
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
            has_project: &|change| !self.removed_projects.contains(&change.project),
            merge_mode: &|_| MergeMode::Merge,
            provider_for: &provider,
            changes_limit: self.changes,
            health: None,
            hold: self.hold,
            triggering_events: self.triggering_events.clone(),
            layout: self.layout,
            item_url_prefix: "https://sluice.test/".to_owned(),
        };
        let plan = plan(snapshot, self.now);
        let more = plan.due == Some(self.now) && !plan.is_empty();
        self.plans += 1;
        (self.carry_out(plan), more)
    }

    /// Plans and answers merge requests until no decision follows.
    pub fn run(&mut self) -> String {
        let mut decisions = Vec::new();
        for _ in 0..400 {
            let (lines, more) = self.plan_once();
            let asked = self.answer_merges();
            if lines.is_empty() && !asked {
                return decisions.join("\n");
            }
            decisions.extend(lines.into_iter().filter(|line| !line.is_empty()));
            if !more && !asked {
                assert_eq!(
                    self.plan_once().0,
                    Vec::<String>::new(),
                    "the plan after a plan decides nothing without new input"
                );
                return decisions.join("\n");
            }
        }
        panic!("the queue does not come to rest: {decisions:?}");
    }

    fn carry_out(&mut self, plan: QueuePlan) -> Vec<String> {
        let mut decisions = Vec::new();
        if !plan.is_empty() {
            decisions.push(String::new());
        }
        self.count_records(&plan.actions);
        self.note_events(&plan.actions);
        if let Some(head) = plan.head {
            self.head = head;
        }
        let mut actions = plan.actions;
        actions.sort_by_key(rank);
        for action in actions {
            decisions.extend(self.carry_out_action(action));
        }
        decisions
    }

    /// Counts the records of a plan, independently of [`QueueAction::records`].
    fn count_records(&mut self, actions: &[QueueAction]) {
        let of_stop = if self.head.manager == Manager::Dependent { 1 } else { 2 };
        let count = |action: &QueueAction| match action {
            QueueAction::RemoveItem(_) => 4,
            QueueAction::OrderBuild(_) | QueueAction::SetHostQueue { .. } => 2,
            QueueAction::StopBuild(_) => of_stop,
            QueueAction::SendBuild { .. }
            | QueueAction::RemindLanding(_)
            | QueueAction::WakeQueue(_)
            | QueueAction::RequestMerge { .. }
            | QueueAction::PutHealth(_)
            | QueueAction::WakeTenant => 0,
            _ => 1,
        };
        let records = actions.iter().map(count).sum::<usize>() + self.lock_takeovers(actions);
        self.most_records = self.most_records.max(records);
        // A stop is one write, and so are an item that leaves, its buildset and its artifacts. The
        // head and the list of open queues are two more.
        let spare = |action: &QueueAction| match action {
            QueueAction::RemoveItem(_) => 1,
            QueueAction::StopBuild(_) => of_stop - 1,
            _ => 0,
        };
        let writes = records + 2 - actions.iter().map(spare).sum::<usize>();
        assert!(writes <= 100, "{writes} writes in one plan");
    }

    /// Notes the events that a plan emits, with the titles of the changes that it removes.
    fn note_events(&mut self, actions: &[QueueAction]) {
        let title = |id: &ItemId| {
            let mut titles = actions.iter().filter_map(|action| match action {
                QueueAction::RemoveItem(removed) if removed.item.id == *id => {
                    Some(removed.item.candidate.title.clone())
                }
                _ => None,
            });
            titles.next().unwrap_or_else(|| "?".to_owned())
        };
        for action in actions {
            if let QueueAction::EmitEvent { event, item, .. } = action {
                self.emitted_events.push(format!("{} {}", title(item), event.as_str()));
            }
        }
    }

    /// Carries out one action and returns its line in the list of decisions, if it has one.
    fn carry_out_action(&mut self, action: QueueAction) -> Option<String> {
        match action {
            QueueAction::StopBuild(stop) => {
                // No executor has claimed it, unless the test says so.
                self.runs.entry(stop.build.clone()).or_insert(ObservedBuild::NeverClaimed);
                return Some(format!("stop {}", self.named(&stop.build)));
            }
            QueueAction::SendBuild { build, request, .. } => {
                let again = if request.is_none() { " again" } else { "" };
                return Some(format!("send {}{again}", self.named(&build)));
            }
            QueueAction::ResumeBuild(build) => {
                return Some(format!("resume {}", self.named(&build)));
            }
            QueueAction::StoreBuildset(ended) => {
                return Some(format!("{} stays: {}", ended.item.candidate.title, ended.result));
            }
            QueueAction::RemoveItem(removed) => {
                let name = &removed.item.candidate.title;
                self.left.push(format!("{name} {}", removed.result));
                let bytes = serde_json::to_string(&removed.item).unwrap().len() + removed.why.len();
                self.removed_bytes_max = self.removed_bytes_max.max(bytes);
                self.removed_reasons
                    .extend(removed.item.reasons.iter().map(|one| one.text.clone()));
                self.items.remove(&removed.item.id);
                self.removed_items.push(removed.item.clone());
                return Some(format!("{name} leaves: {}", removed.result));
            }
            QueueAction::PutItem(item) => drop(self.items.insert(item.id.clone(), *item)),
            QueueAction::DeleteMessage(id) => self.inbox.retain(|message| message.id != id),
            QueueAction::MarkInProgress(id) => self.mark_in_progress(&id),
            QueueAction::WithdrawLanding(landing) => {
                self.landings.insert(landing.item.clone(), *landing);
            }
            QueueAction::OrderLanding(landing) => {
                let name = self.item_name(&landing.item);
                let line = format!("land {name} as {}", landing.tested.tree);
                self.landings.insert(landing.item.clone(), *landing);
                return Some(line);
            }
            QueueAction::OrderBuild(order) => {
                self.orders.push((*order).clone());
                let merged = self.items[&order.item].merged();
                let tree = merged.map(|merged| merged.tested.tree.clone()).unwrap();
                return Some(format!("run {} on {tree}", self.named(&order.build)));
            }
            QueueAction::RecordEndedBuild { draft, end } => {
                self.ended_orders.push((draft.job.to_string(), end));
            }
            QueueAction::RequestLayout => {
                self.layout.wanted += 1;
                return Some("want a layout".to_owned());
            }
            QueueAction::MakeReport(report) => self.reports.push(*report),
            QueueAction::SendMessage { queue, message } => self.forwards.push((queue, *message)),
            QueueAction::WakeQueue(queue) => self.woken.push(queue),
            QueueAction::SetHostQueue { change, host } => self.set_host_queue(&change, host),
            QueueAction::PutBranchLock(lock) => {
                let branch = lock.branch.clone();
                self.branch_locks
                    .insert(branch, BranchLockView { lock: *lock, is_abandoned: false });
            }
            QueueAction::PutSemaphore(semaphore) => {
                let holders =
                    semaphore.holders.iter().filter(|holder| holder.queue == self.head.key);
                let holders: Vec<String> =
                    holders.map(|holder| self.named(&holder.build)).collect();
                let line = format!("{} held by [{}]", semaphore.key.name, holders.join(", "));
                self.semaphores.insert(semaphore.key.clone(), *semaphore);
                return Some(line);
            }
            QueueAction::EmitEvent { .. }
            | QueueAction::PutHealth(_)
            | QueueAction::RemindLanding(_)
            | QueueAction::RequestMerge { .. }
            | QueueAction::WakeTenant => {}
        }
        None
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

    /// Answers all merge requests. Returns whether one was unanswered.
    pub fn answer_merges(&mut self) -> bool {
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
        let landed = if let MergeStatus::Requested { landed, .. } = &item.merge_status {
            landed.as_slice()
        } else {
            &[]
        };
        let below = item
            .candidate
            .needs
            .iter()
            .filter(|need| !item.candidate.bundle.contains(&need.change.key));
        let below = below.filter(|need| !landed.contains(&need.change.key));
        let below = below.filter_map(|need| need.title.chars().next());
        let letter = |key: &ChangeKey| char::from_u32(key.number()? as u32);
        let cycle: Vec<char> = item.candidate.bundle.iter().filter_map(letter).collect();
        let members = if cycle.is_empty() { vec![name] } else { cycle };
        for change in below.chain(members) {
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
        // The tree of its own project up to this change.
        let (base, _) = trees[&own].split_once(name).unwrap();
        let tested = format!("{base}{name}");
        let commit =
            |tree: &str| Commit { id: format!("commit-{tree}").as_str().into(), tree: tree.into() };
        MergeResult::Merged(TestedState {
            speculation: serde_json::to_string(&trees).unwrap(),
            graph: "graph".to_owned(),
            jobs: self.jobs_of(name),
            base: commit(base),
            tested: commit(&tested),
            can_fast_forward: self.keeps_tested_commits,
            touches_configuration: self.configuring.contains(&name),
            fail_fast: self.fail_fast,
            debug: Vec::new(),
            warnings: Vec::new(),
        })
    }

    fn jobs_of(&self, change: char) -> Vec<JobSummary> {
        self.own_jobs.get(&change).unwrap_or(&self.jobs).clone()
    }

    /// Returns the builds under way as (change, job, build), in queue order.
    pub fn under_way(&self) -> Vec<(char, String, BuildId)> {
        let items = self.head.slots().filter_map(|slot| self.items.get(&slot.id));
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

    /// Ends a build without returned data.
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

    /// Ends a build even if no job names it.
    pub fn run_ended(&mut self, build: &BuildId, result: BuildResult) {
        let ended = self.ended(result, serde_json::Map::new());
        self.runs.insert(build.clone(), ObservedBuild::Ended(ended));
    }

    fn ended(
        &self,
        result: BuildResult,
        data: serde_json::Map<String, serde_json::Value>,
    ) -> RunEnd {
        RunEnd {
            result,
            detail: None,
            started_at: None,
            ended_at: self.now,
            data,
            data_object: None,
            log_url: None,
        }
    }

    /// Sets the observed state of a build.
    pub fn show(&mut self, change: char, job: &str, seen: ObservedBuild) {
        let builds = self.under_way();
        let (_, _, build) = builds
            .iter()
            .find(|(c, j, _)| *c == change && j == job)
            .expect("the build is under way");
        self.runs.insert(build.clone(), seen);
    }

    /// Ends every build of these changes with success.
    pub fn pass(&mut self, changes: &str) {
        for (change, job, _) in self.under_way() {
            if changes.contains(change) {
                self.end(change, &job, BuildResult::Success);
            }
        }
    }
}

/// Returns where an action comes in the list of decisions that tests compare: what ends first, then
/// items, then what begins.
fn rank(action: &QueueAction) -> usize {
    match action {
        QueueAction::StopBuild(_) => 0,
        QueueAction::SendBuild { request: Some(_), .. } => 1,
        QueueAction::SendBuild { request: None, .. } => 2,
        QueueAction::ResumeBuild(_) => 3,
        QueueAction::StoreBuildset(_) => 4,
        QueueAction::RemoveItem(_) => 5,
        QueueAction::PutItem(_) => 6,
        QueueAction::OrderLanding(_) => 8,
        QueueAction::OrderBuild(_) => 9,
        QueueAction::RequestLayout => 10,
        QueueAction::PutSemaphore(_) => 11,
        _ => 7,
    }
}
