//! Requests what is missing: tested states from the merger, builds from the executors, and overdue
//! landings from the reporter.

use super::artifacts::Required;
use super::job_graph::{ended, is_unblocked, is_unreachable, parent_builds, skip_unreachable_jobs};
use super::reporter_jobs::is_in_phase;
use super::semaphores::Permit;
use super::shared_builds::Sharing;
use super::{ObservedBuild, OrderDraft, Planner, QueueAction, RECONCILE_SECONDS};
use crate::item::{Item, Job, JobStatus, MergeStatus, Onto, WaitsFor};
use crate::merge::TestedState;
use crate::queue::{Slot, SlotStatus, UNCLAIMED_MAX};
use crate::report::Occasion;
use crate::unattended;
use sluice_model::build::{BuildResult, EndWithoutRun, RequestRef};
use sluice_model::change::ChangeKey;
use sluice_model::job::JobSummary;
use sluice_model::{BuildId, ItemId, JobName, LabelName, ProviderName, Timestamp};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Seconds after which an unclaimed build is sent to the executors again, since its message may be
/// lost.
const SENT_AGAIN_SECONDS: u64 = 900;

impl Planner<'_> {
    /// Requests tested states, orders and sends builds, and reminds landings, for the entries in
    /// the window. Behind the window it only sends builds that were ordered before. Resumes paused
    /// builds at any position. While reporter jobs hold up the queue, it starts nothing else,
    /// except up to the last item with a paused build. Items that are not reset yet are skipped and
    /// make the plan incomplete. Does nothing in a halted queue.
    pub(super) fn advance(&mut self) {
        if self.head.halted.is_some() {
            return;
        }
        // For each item: the job that holds back the changes behind it (`hold-following-changes`),
        // its own or one ahead.
        let mut holding: BTreeMap<ItemId, JobName> = BTreeMap::new();
        let pauses = |slot: &Slot| {
            self.items.get(&slot.id).is_some_and(|item| item.jobs.iter().any(Job::is_paused))
        };
        // While reporter jobs of the first entry run, only what is under way goes on, since they
        // may wait for its resources: builds that have nodes, and jobs that a paused build waits
        // for. Nothing else is started.
        let is_held = self.is_held();
        let last_paused = self.head.slots().rfind(|slot| is_held && pauses(slot));
        let mut may_begin = !is_held || last_paused.is_some();
        let last_paused = last_paused.map(|slot| slot.id.clone());
        for position in 0..self.head.active_count() {
            self.cursor = position;
            let entry = &self.head.entries[position];
            let held_by = entry.ahead.as_ref().and_then(|ahead| holding.get(&ahead.item)).cloned();
            let mut held_by_member = None;
            for at in 0..self.head.entries[position].members.len() {
                let Slot { id, generation, status, .. } = &self.head.entries[position].members[at];
                let (id, generation, status) = (&id.clone(), *generation, *status);
                if self.items.get(id).is_none_or(|item| item.generation != generation) {
                    self.is_incomplete = true;
                    held_by_member = None;
                } else {
                    match status {
                        SlotStatus::Landing => self.remind_landing_if_late(id),
                        SlotStatus::AwaitingLanding | SlotStatus::Landed => {}
                        SlotStatus::Reporting => self.order_jobs(id, None),
                        _ if !may_begin => self.send_ordered(id),
                        _ => {
                            self.request_merge(position, at);
                            self.order_jobs(id, held_by.as_ref());
                        }
                    }
                    let own = self.items.get(id).and_then(Item::holds_following);
                    let own = own.map(|job| job.summary.name.clone());
                    // A job of any member holds back everything behind the bundle.
                    held_by_member = own.or_else(|| held_by.clone()).or(held_by_member);
                    if let Some(job) = &held_by_member {
                        holding.insert(id.clone(), job.clone());
                    }
                }
                may_begin &= !is_held || last_paused.as_ref() != Some(id);
            }
        }
        // The window may have shrunk since these builds were ordered. An entry ahead may be waiting
        // for their nodes.
        for position in self.head.active_count()..self.head.entries.len() {
            self.cursor = position;
            for at in 0..self.head.entries[position].members.len() {
                self.send_ordered(&self.head.entries[position].members[at].id.clone());
            }
        }
        // Last, since the jobs skipped above count as over too.
        self.resume_paused();
    }

    /// Has the plan send those ordered builds of an item that take their semaphores after their
    /// nodes and have these, if they get the semaphores; other builds with nodes are sent by their
    /// provider. Sends builds without nodes again if their message seems lost. Orders no builds.
    /// Builds that do not fit into the transaction wait for the next plan.
    fn send_ordered(&mut self, id: &ItemId) {
        let has_nodes = |job: &Job| {
            matches!(job.status, JobStatus::Ordered { .. })
                && (job.takes_nodes_first() || job.request.is_none())
        };
        let Some(mut item) =
            self.items.get(id).filter(|item| item.jobs.iter().any(has_nodes)).cloned()
        else {
            return;
        };
        let mut changed = false;
        for at in 0..item.jobs.len() {
            let room = order_records(&item.jobs[at]);
            changed |=
                has_nodes(&item.jobs[at]) && self.has_room(room) && self.send_build(&mut item, at);
        }
        if changed {
            self.changed_items.insert(item.id.clone());
            self.items.insert(item.id.clone(), item);
        }
    }

    /// Has the reporter woken again for an item's landing that was ordered at least
    /// [`RECONCILE_SECONDS`] ago and has not ended; only a plan that writes nothing sends this.
    /// Notes in the item's reasons what hinders the landing, if the reporter has recorded that.
    fn remind_landing_if_late(&mut self, id: &ItemId) {
        let landing = self.snapshot.landings.get(id).cloned();
        let late = landing.as_ref().is_some_and(|landing| {
            !matches!(landing.state, crate::landing::LandingState::Ended { .. })
                && self.now.since(landing.ordered_at) >= RECONCILE_SECONDS * 1_000
        });
        if late {
            self.ledger.push(QueueAction::RemindLanding(id.clone()));
            if let Some(trouble) = landing.and_then(|landing| landing.trouble) {
                let since = trouble.since.to_iso();
                self.note(id, format!("it cannot be merged since {since}: {}", trouble.why));
            }
        }
    }

    /// Requests the tested state of the member at `at` of an entry, and records in the item what it
    /// starts from: the bundle's first member, the predecessor or the branch. Requests it again if
    /// the merger has not answered for [`RECONCILE_SECONDS`]. Does nothing if the merger has
    /// answered, if the state that it starts from is not known yet, or if the transaction is full.
    fn request_merge(&mut self, position: usize, at: usize) {
        let entry = &self.head.entries[position];
        let slot = &entry.members[at];
        let Some(item) = self.items.get(&slot.id) else {
            return;
        };
        let (asked_at, since) = match &item.merge_status {
            MergeStatus::NotRequested => (None, None),
            MergeStatus::Requested { at, since, .. } => (Some(*at), Some(since.unwrap_or(*at))),
            MergeStatus::Merged(_) | MergeStatus::Unmergeable { .. } => return,
        };
        if asked_at.is_some_and(|at| self.now.since(at) < RECONCILE_SECONDS * 1_000) {
            return;
        }
        // The merger prepares all of a bundle with its first member. The others start from that
        // state, so that all are tested on one.
        let first = (at > 0).then(|| entry.first().as_predecessor());
        let is_first = first.is_some();
        let onto = match first.as_ref().or(entry.ahead.as_ref()) {
            None => None,
            Some(ahead) => {
                let Some(merged) = self
                    .items
                    .get(&ahead.item)
                    .filter(|item| {
                        item.generation == ahead.generation
                            && (!is_first || self.has_current_layout(item))
                    })
                    .and_then(Item::merged)
                else {
                    return; // The predecessor has no tested state yet; the queue is reconciled again when it has.
                };
                Some(Onto {
                    item: ahead.item.clone(),
                    generation: ahead.generation,
                    speculation: merged.speculation.clone(),
                })
            }
        };
        let (id, generation) = (slot.id.clone(), slot.generation);
        let needs = item.candidate.needs.iter().map(|need| &need.change);
        let landed =
            needs.filter(|need| self.head.has_landed(need)).map(|need| need.key.clone()).collect();
        // An item that this plan writes anyway needs no more room.
        if !self.changed_items.contains(&id) && !self.has_room(1) {
            return;
        }
        let (now, layout) = (self.now, self.head.layout);
        if let Some(item) = self.item_mut(&id) {
            item.layout = layout;
            item.merge_status = MergeStatus::Requested { at: now, since, onto, landed };
        }
        self.ledger.push(QueueAction::RequestMerge { item: id, generation });
    }

    /// Orders or sends the jobs of an item that may start, skips those that never will, takes over
    /// builds of its bundle, and makes its start report. `held_by` names the job of an entry ahead
    /// that holds new jobs back. Reporter jobs are ordered only once the success was reported,
    /// other jobs only before. Does nothing if the item has no tested state or the transaction is
    /// full; before its success also if its layout is outdated or a dependency ahead is failing.
    fn order_jobs(&mut self, id: &ItemId, held_by: Option<&JobName>) {
        let Some(item) = self
            .items
            .shared(id)
            .filter(|item| {
                item.merged().is_some()
                    && (item.reporting.is_some() || self.has_current_layout(item))
            })
            .filter(|item| item.reporting.is_some() || !has_failing_dependency(self, item))
        else {
            return;
        };
        // Room for the item and its start report, even if no build is ordered.
        if !self.has_room(3) || self.needs_no_action(&item) {
            return;
        }
        let mut item = Arc::unwrap_or_clone(item);
        let mut changed = skip_unreachable_jobs(&mut item, self.now);
        for at in 0..item.jobs.len() {
            if !is_in_phase(&item, at) {
                continue;
            }
            changed |= self.follow_shared_build(&mut item, at);
            if item.jobs[at].status == JobStatus::Waiting && is_unblocked(&item, &item.jobs[at]) {
                match self.shared_build(&item, at) {
                    Sharing::OwnBuild => {}
                    Sharing::Pending => continue,
                    Sharing::Shared(build) => {
                        build.take(&mut item, at);
                        changed = true;
                        continue;
                    }
                }
            }
            let room = order_records(&item.jobs[at]);
            if matches!(item.jobs[at].status, JobStatus::Ordered { .. }) && self.has_room(room) {
                changed |= self.send_build(&mut item, at);
            }
            if item.jobs[at].status != JobStatus::Waiting || !is_unblocked(&item, &item.jobs[at]) {
                continue;
            }
            changed |= match held_by {
                Some(job) => set_waits_for(&mut item.jobs[at], WaitsFor::Ahead(job.clone())),
                None if self.has_unknown_sharers(&item, at) => false,
                None if self.has_room(room) => self.start_job(&mut item, at),
                None => false,
            };
        }
        changed |= skip_unreachable_jobs(&mut item, self.now);
        // As in Zuul, an item starts as soon as its jobs are known, even if the first job still has
        // to wait.
        let begins = !item.start_reported && item.reporting.is_none() && !item.jobs.is_empty();
        if changed || begins {
            if begins {
                item.start_reported = true;
                let report = self.report_item(&item, Occasion::Start, "");
                self.ledger.report(report);
            }
            if item.jobs.iter().any(|job| job.attempt > 0) {
                item.first_job_at.get_or_insert(self.now);
            }
            // A job that ended without a run (noop, skipped, no provider) wakes no one: reconcile
            // again.
            let is_over = if item.reporting.is_some() {
                !item.has_reporters_left()
            } else {
                item.is_complete()
            };
            self.is_incomplete |= is_over || item.is_failing();
            self.changed_items.insert(id.clone());
            self.items.insert(id.clone(), item);
        }
    }

    /// Returns whether no job of an item can make progress now: each runs, is over, or waits for
    /// another job, nodes or an executor. This is the usual case, and avoids a copy of the item.
    /// Always `false` for a member of a bundle and while the start report is due. May mark the plan
    /// as incomplete.
    fn needs_no_action(&mut self, item: &Item) -> bool {
        let begins = !item.start_reported && item.reporting.is_none() && !item.jobs.is_empty();
        let in_bundle = self.position(&item.id).is_none_or(|at| self.head.entries[at].is_bundle());
        if begins || in_bundle {
            return false;
        }
        (0..item.jobs.len()).all(|at| {
            let job = &item.jobs[at];
            match &job.status {
                JobStatus::Waiting => {
                    let begins = is_in_phase(item, at) && is_unblocked(item, job);
                    !begins && !is_unreachable(item, job)
                }
                JobStatus::Ordered { .. } => {
                    let seen = job
                        .build
                        .as_ref()
                        .and_then(|build| self.snapshot.observed_builds.get(build));
                    let is_sent = matches!(seen, Some(ObservedBuild::NodesReady))
                        || self.is_message_lost(job);
                    // If the transaction is full, the item is looked at again anyway.
                    !is_sent && (!is_in_phase(item, at) || self.has_room(order_records(job)))
                }
                JobStatus::Running { .. } | JobStatus::Paused { .. } | JobStatus::Ended { .. } => {
                    true
                }
            }
        })
    }

    /// Returns the position of an item's entry, rounded by `coarse_position`: nodes go first to
    /// entries near the front of their queue. 0 is the first; an item that is not queued counts as
    /// 0.
    fn relative_priority(&self, id: &ItemId) -> usize {
        coarse_position(self.position(id).unwrap_or(0))
    }

    /// Orders the next attempt of a job: adds the build to the item and its order to the plan, with
    /// its semaphores unless it takes nodes first. If it must wait for artifacts or semaphores,
    /// only records that in the job. Ends the job at once, with a build that no executor runs, if
    /// it is `noop`, a required artifact failed, or no provider offers its nodes. Returns whether
    /// the job changed, so that the caller has to store `item`. The caller has checked that the job
    /// waits, that its dependencies let it run ([`is_unblocked`]) and that it fits.
    fn start_job(&mut self, item: &mut Item, at: usize) -> bool {
        let Some(merged) = item.merged().cloned() else {
            return false;
        };
        let attempt = item.jobs[at].attempt + 1;
        let summary = item.jobs[at].summary.clone();
        if summary.name.as_str() == "noop" {
            let end = EndWithoutRun { result: BuildResult::Success, detail: None };
            self.end_job_at_once(item, at, &merged, end);
            item.jobs[at].attempt = attempt;
            return true;
        }
        let providers = match self.required_artifacts(item, &item.jobs[at]) {
            Required::Available(builds) => builds,
            Required::Pending => {
                return set_waits_for(&mut item.jobs[at], WaitsFor::Requirements(summary.requires));
            }
            Required::Missing(why) => {
                // The attempt does not count: other changes of a bundle do not share this build,
                // since they may require artifacts of other changes.
                let end = EndWithoutRun { result: BuildResult::Failure, detail: Some(why) };
                self.end_job_at_once(item, at, &merged, end);
                return true;
            }
        };
        let Nodes { alternative, labels, provider } = match self.nodes_for(&item.jobs[at]) {
            Ok(nodes) => nodes,
            Err(why) => {
                let end = EndWithoutRun { result: BuildResult::NodeFailure, detail: Some(why) };
                self.end_job_at_once(item, at, &merged, end);
                item.jobs[at].attempt = attempt;
                return true;
            }
        };
        let build = build_id(item, &summary.name, &summary.hash, attempt);
        item.jobs[at].alternative = alternative;
        let nodes_first = item.jobs[at].takes_nodes_first();
        let permit = if nodes_first {
            self.may_request_nodes(item, at)
        } else {
            self.acquire(item, at, &build)
        };
        if let Permit::WaitsFor(semaphore) = permit {
            // The time of the request is its place in line, so it is written even if the job waited
            // for the same before.
            let is_first = item.jobs[at].semaphores_requested_at.is_none();
            item.jobs[at].semaphores_requested_at.get_or_insert(self.now);
            return set_waits_for(&mut item.jobs[at], WaitsFor::Semaphore(semaphore.name))
                || is_first;
        }
        // A job that takes its semaphores after its nodes keeps the time when it requested the
        // nodes.
        item.jobs[at].semaphores_requested_at =
            nodes_first.then(|| item.jobs[at].semaphores_requested_at.unwrap_or(self.now));
        item.jobs[at].waits_for = None;
        (item.jobs[at].sent_at, item.jobs[at].resend_count) = (None, 0);
        item.jobs[at].is_shared_build = false;
        item.jobs[at].attempt = attempt;
        item.jobs[at].build = Some(build.clone());
        item.builds.push(build.clone());
        let priority =
            self.snapshot.pipeline.map_or(200, |pipeline| pipeline.precedence.priority());
        let relative = self.relative_priority(&item.id);
        let request = provider.map(|provider| RequestRef {
            provider,
            row: request_row(priority, relative, self.now, &build),
        });
        item.jobs[at].request = request.clone();
        item.jobs[at].status = JobStatus::Ordered { at: self.now };
        self.ledger.explain(format!(
            "{}: {} ordered as build {build}",
            item.candidate.change, summary.name
        ));
        let draft = order_draft(item, at, &merged, build, attempt);
        self.ledger.push(QueueAction::OrderBuild(Box::new(OrderDraft {
            shared_with: self.sharers(item, at),
            artifact_builds: providers,
            nodes_first,
            labels,
            request,
            ..draft
        })));
        true
    }

    /// Ends the waiting job at `at` of an item with a new build that no executor runs: adds the
    /// build to the item and its record to the plan, and a result other than success to the item's
    /// reasons. The job's count of attempts stays as it is.
    fn end_job_at_once(
        &mut self,
        item: &mut Item,
        at: usize,
        merged: &TestedState,
        end: EndWithoutRun,
    ) {
        let JobSummary { name, hash, .. } = &item.jobs[at].summary;
        let (name, attempt) = (name.clone(), item.jobs[at].attempt + 1);
        let build = build_id(item, &name, hash, attempt);
        let draft = Box::new(order_draft(item, at, merged, build.clone(), attempt));
        if let Some(why) = &end.detail {
            item.add_reason(self.now, format!("{name}: {}: {why}", end.result));
        }
        let job = &mut item.jobs[at];
        (job.waits_for, job.is_shared_build) = (None, false);
        job.build = Some(build.clone());
        job.status = ended(end.result, end.detail.clone(), self.now);
        item.builds.push(build);
        self.ledger.push(QueueAction::RecordEndedBuild { draft, end });
    }
}

/// Returns the content of the order of an attempt of the job at `at` of an item, without artifacts
/// of changes ahead and without a request for nodes.
fn order_draft(
    item: &Item,
    at: usize,
    merged: &TestedState,
    build: BuildId,
    attempt: u32,
) -> OrderDraft {
    let job = &item.jobs[at];
    OrderDraft {
        build,
        item: item.id.clone(),
        generation: item.generation,
        job: job.summary.name.clone(),
        attempt,
        max_attempts: job.summary.attempts,
        voting: job.summary.voting,
        graph: merged.graph.clone(),
        speculation: merged.speculation.clone(),
        change: item.candidate.change.clone(),
        event_id: item.event_id.clone(),
        merge_commit: item.landed.clone(),
        bundle: item.candidate.bundle.clone(),
        shared_with: Vec::new(),
        parents: parent_builds(item, job),
        artifact_builds: Vec::new(),
        nodeset: job.alternative,
        nodes_first: false,
        labels: Vec::new(),
        request: None,
    }
}

impl Planner<'_> {
    /// Has the plan send an ordered build whose nodes are ready once it acquires its semaphores,
    /// which may instead make it release its nodes or record what it waits for. Sends a build again
    /// if no executor has claimed it for [`SENT_AGAIN_SECONDS`]. Does nothing while a bundle member
    /// ahead manages the build. Returns whether anything about its job changed, so that the caller
    /// has to store `item`. The caller has reserved room.
    fn send_build(&mut self, item: &mut Item, at: usize) -> bool {
        let job = &item.jobs[at];
        if self.is_message_lost(job) {
            let build = job.build.clone();
            self.ledger.extend(build.map(|build| QueueAction::SendBuild {
                build,
                request: None,
                labels: Vec::new(),
            }));
            item.jobs[at].sent_at = Some(self.now);
            item.jobs[at].resend_count += 1;
            return true;
        }
        let (Some(build), Some(request)) = (job.build.clone(), job.request.clone()) else {
            return false;
        };
        let is_sent =
            job.sent_at.is_some_and(|sent| self.now.since(sent) < SENT_AGAIN_SECONDS * 1_000);
        if is_sent
            || !matches!(self.snapshot.observed_builds.get(&build), Some(ObservedBuild::NodesReady))
        {
            return false;
        }
        if self.is_managed_ahead(item, &build) {
            return false;
        }
        if item.jobs[at].sent_at.is_none() && self.release_nodes(item, at, &build) {
            return true;
        }
        if let Permit::WaitsFor(semaphore) = self.acquire(item, at, &build) {
            // The time of the request is its place in line, so it is written even if the job waited
            // for the same before.
            let is_first = item.jobs[at].semaphores_requested_at.is_none();
            item.jobs[at].semaphores_requested_at.get_or_insert(self.now);
            return set_waits_for(&mut item.jobs[at], WaitsFor::Semaphore(semaphore.name))
                || is_first;
        }
        item.jobs[at].semaphores_requested_at = None;
        item.jobs[at].waits_for = None;
        let was_sent = item.jobs[at].sent_at.is_some();
        item.jobs[at].resend_count += u32::from(was_sent);
        item.jobs[at].sent_at = Some(self.now);
        let sets = &item.jobs[at].summary.labels;
        let labels = sets.get(item.jobs[at].alternative as usize).cloned().unwrap_or_default();
        self.ledger.push(QueueAction::SendBuild { build, request: Some(request), labels });
        true
    }
}

impl Planner<'_> {
    /// Returns whether a build without nodes was sent at least [`SENT_AGAIN_SECONDS`] ago and no
    /// executor has claimed it, so that its message may be lost. Always `false` for a build with
    /// nodes, which its provider or [`Self::send_build`] sends again.
    fn is_message_lost(&self, job: &Job) -> bool {
        let JobStatus::Ordered { at } = job.status else { return false };
        let is_claimed = job
            .build
            .as_ref()
            .is_none_or(|build| self.snapshot.observed_builds.contains_key(build));
        let sent_at = job.sent_at.unwrap_or(at);
        job.request.is_none()
            && !is_claimed
            && self.now.since(sent_at) >= SENT_AGAIN_SECONDS * 1_000
    }

    /// Replaces the head's list of builds that were sent repeatedly and that no executor has
    /// claimed, at most [`UNCLAIMED_MAX`]. The age of a message does not show this, since each send
    /// creates a new one.
    pub(super) fn list_unclaimed(&mut self) {
        let is_unclaimed = |job: &&Job| {
            matches!(job.status, JobStatus::Ordered { .. })
                && unattended::is_unclaimed(job.resend_count)
        };
        let jobs = self.items.values().flat_map(|item| &item.jobs).filter(is_unclaimed);
        let builds: BTreeSet<BuildId> = jobs.filter_map(|job| job.build.clone()).collect();
        self.head.unclaimed = builds.into_iter().take(UNCLAIMED_MAX).collect();
    }
}

/// Where to request a job's nodes.
struct Nodes {
    /// The index of the nodeset among the job's nodesets, from 0.
    alternative: u32,
    /// The labels of that nodeset.
    labels: Vec<LabelName>,
    /// The provider to ask; `None` if the job needs no nodes.
    provider: Option<ProviderName>,
}

impl Planner<'_> {
    /// Returns the first nodeset all labels of which one provider offers, from the job's current
    /// one on (N14). A job without nodesets, or with an empty one, needs no provider. The error
    /// says for each of the nodesets why no provider serves it.
    fn nodes_for(&self, job: &Job) -> Result<Nodes, String> {
        let sets = &job.summary.labels;
        if sets.is_empty() {
            return Ok(Nodes { alternative: 0, labels: Vec::new(), provider: None });
        }
        let mut refusals = Vec::new();
        for (alternative, labels) in
            (job.alternative..).zip(sets.iter().skip(job.alternative as usize))
        {
            let provider = match labels.is_empty() {
                true => Ok(None),
                false => (self.snapshot.provider_for)(labels).map(Some),
            };
            match provider {
                Ok(provider) => {
                    return Ok(Nodes { alternative, labels: labels.clone(), provider });
                }
                Err(why) => refusals.push(why),
            }
        }
        Err(refusals.join("; "))
    }

    /// Returns the items of the entries ahead whose changes are part of an item's tested state, the
    /// nearest first. Other members of its own bundle are not among them. Ends at an entry that has
    /// no predecessor, or one that is no longer queued ahead.
    pub(super) fn entries_ahead<'w>(&'w self, id: &ItemId) -> impl Iterator<Item = &'w Slot> {
        let position = self.position(id).unwrap_or(0);
        let mut next = self.head.entries.get(position).and_then(|entry| entry.ahead.as_ref());
        let ahead = self.head.entries[..position].iter().rev().filter(move |entry| {
            let is_next = next.is_some_and(|ahead| entry.contains(&ahead.item));
            if is_next {
                next = entry.ahead.as_ref();
            }
            is_next
        });
        // All members of a bundle are part of the state.
        ahead.flat_map(|entry| entry.members.iter().rev())
    }
}

/// Records in a job what it waits for. Returns whether that is another obstacle than before.
fn set_waits_for(job: &mut Job, waits_for: WaitsFor) -> bool {
    let waits_for = Some(waits_for);
    let is_news = job.waits_for != waits_for;
    job.waits_for = waits_for;
    is_news
}

/// Returns whether a dependency of an item, outside its bundle and not merged, is failing ahead in
/// a dependent queue. Always `false` in other queues.
fn has_failing_dependency(planner: &Planner<'_>, item: &Item) -> bool {
    // In a failing bundle all jobs run to their end.
    let mut others = item.candidate.needs_outside_bundle();
    // Only entries ahead count: a newer revision of a merged dependency may be queued as well, and
    // this item does not wait for that. Few entries fail, so few are compared.
    let ahead = &planner.head.entries[..planner.position(&item.id).unwrap_or(0)];
    let failing = |key: &ChangeKey| {
        let mut ahead = ahead.iter().flat_map(|entry| &entry.members);
        ahead.any(|slot| slot.status == SlotStatus::Failing && slot.change.key == *key)
    };
    planner.head.manager == sluice_config::pipeline::Manager::Dependent
        && others.any(|need| failing(&need.change.key) && !planner.head.has_landed(&need.change))
}

/// Returns how many records ordering or sending a build of the job may write at most.
fn order_records(job: &Job) -> usize {
    5 + job.summary.semaphores.len()
}

/// Returns the sort key of a node request (Z1.1): by `priority`, then by the queue position
/// `relative`, then by time. Numbers are padded so that keys sort by number; a part of the build's
/// id makes the key unique.
fn request_row(priority: u32, relative: usize, now: Timestamp, build: &BuildId) -> String {
    let part = build.as_str().get(..8).unwrap_or_default();
    format!("{priority:03}-{:04}-{:014}-{part}", relative.min(9_999), now.0)
}

/// Rounds a queue position down as Zuul does: exact below ten, tens below a hundred, then hundreds.
fn coarse_position(place: usize) -> usize {
    match place {
        0..10 => place,
        10..100 => place / 10 * 10,
        _ => place / 100 * 100,
    }
}

/// Returns the id of a build. It includes the number of the item's earlier builds, so that no id is
/// used twice, even if a job's configuration changes and changes back.
fn build_id(item: &Item, job: &JobName, hash: &str, attempt: u32) -> BuildId {
    let (generation, before) = (item.generation.to_string(), item.builds.len().to_string());
    BuildId::derive(&[
        item.id.as_str(),
        &generation,
        job.as_str(),
        hash,
        &attempt.to_string(),
        &before,
    ])
}
