//! Asks for what is missing: tested states of the merger, builds of the executors, landings once
//! more.

use super::graph::{ended, is_barred, is_unblocked, parents, settle_dependents};
use super::provided::Required;
use super::reporters::has_its_turn;
use super::semaphores::Permit;
use super::sharing::Sharing;
use super::{LOOK_SECONDS, OrderDraft, RunSeen, Work};
use crate::account;
use crate::item::{Ask, Item, Job, JobStatus, Onto, WaitsFor};
use crate::queue::{Slot, Standing, UNCLAIMED_MAX};
use crate::report::Occasion;
use sluice_model::build::{BuildResult, RequestRef};
use sluice_model::change::ChangeKey;
use sluice_model::{BuildId, ItemId, JobName, LabelName, ProviderName, Timestamp};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Seconds after which a build that nobody has claimed is sent once more: its message may have been
/// lost.
const SENT_AGAIN_SECONDS: u64 = 900;

impl Work<'_> {
    pub(super) fn advance(&mut self) {
        if self.head.frozen.is_some() {
            return;
        }
        // Which job holds an item's followers back: its own, or the one that holds it back itself.
        let mut holding: BTreeMap<ItemId, JobName> = BTreeMap::new();
        let pauses = |slot: &Slot| {
            self.items.get(&slot.id).is_some_and(|item| item.jobs.iter().any(Job::is_paused))
        };
        // What is under way may have what the last jobs of the first wait for, so it comes to its
        // end: builds with their nodes, and what a paused build waits for, which may be asked of
        // all that is ahead of it. Nothing else begins.
        let begins_until = match self.is_held() {
            true => self.head.slots.iter().rposition(pauses).map_or(0, |last| last + 1),
            false => usize::MAX,
        };
        for position in 0..self.head.active() {
            self.at = position;
            let slot = &self.head.slots[position];
            let held_by = slot.ahead.as_ref().and_then(|ahead| holding.get(&ahead.item)).cloned();
            if self.items.get(&slot.id).is_none_or(|item| item.generation != slot.generation) {
                self.left_over = true;
                continue;
            }
            let (id, standing, is_joined) = (slot.id.clone(), slot.standing, slot.joined);
            match standing {
                Standing::Landing => self.remind_if_late(&id),
                Standing::Pledged | Standing::Landed => {}
                Standing::Reporting => self.order_jobs(&id, None),
                _ if position >= begins_until => self.send_ordered(position),
                _ => {
                    self.ask(position);
                    self.order_jobs(&id, held_by.as_ref());
                }
            }
            let own = self
                .items
                .get(&id)
                .and_then(Item::holds_following)
                .map(|job| job.summary.name.clone());
            // What is behind a bundle is behind all of it.
            let before = position
                .checked_sub(1)
                .filter(|_| is_joined)
                .map(|before| &self.head.slots[before].id);
            let of_bundle = before.and_then(|before| holding.get(before)).cloned();
            if let Some(job) = own.or(held_by).or(of_bundle) {
                holding.insert(id, job);
            }
        }
        // The window may have closed before builds that were ordered within it. Nodes that one of
        // them holds are those that what is ahead may wait for.
        for position in self.head.active()..self.head.slots.len() {
            self.at = position;
            self.send_ordered(position);
        }
        // Last: what was skipped just now is over too.
        self.resume_paused();
    }

    /// Sends the builds of an item that have their nodes and could not be sent before they had
    /// their semaphores, and those without nodes again whose message was lost.
    fn send_ordered(&mut self, position: usize) {
        let has_nodes = |job: &Job| {
            matches!(job.status, JobStatus::Ordered { .. })
                && (job.takes_nodes_first() || job.request.is_none())
        };
        let id = &self.head.slots[position].id;
        let Some(mut item) =
            self.items.get(id).filter(|item| item.jobs.iter().any(has_nodes)).cloned()
        else {
            return;
        };
        let mut changed = false;
        for at in 0..item.jobs.len() {
            let room = order_room(&item.jobs[at]);
            changed |= has_nodes(&item.jobs[at]) && self.has_room(room) && self.send(&mut item, at);
        }
        if changed {
            self.touched.insert(item.id.clone());
            self.items.insert(item.id.clone(), item);
        }
    }

    fn remind_if_late(&mut self, id: &ItemId) {
        let landing = self.snapshot.landings.get(id).cloned();
        let late = landing.as_ref().is_some_and(|landing| {
            !matches!(landing.state, crate::landing::LandingState::Ended { .. })
                && self.now.since(landing.wanted_at) >= LOOK_SECONDS * 1_000
        });
        if late {
            self.remind_landing(id);
            if let Some(trouble) = landing.and_then(|landing| landing.trouble) {
                let since = trouble.since.to_iso();
                self.note(
                    id,
                    format!("its landing cannot be carried out since {since}: {}", trouble.why),
                );
            }
        }
    }

    fn ask(&mut self, position: usize) {
        let slot = &self.head.slots[position];
        let Some(item) = self.items.get(&slot.id) else {
            return;
        };
        let (asked_at, since) = match &item.ask {
            Ask::No => (None, None),
            Ask::Asked { at, since, .. } => (Some(*at), Some(since.unwrap_or(*at))),
            Ask::Merged(_) | Ask::Unmergeable { .. } => return,
        };
        if asked_at.is_some_and(|at| self.now.since(at) < LOOK_SECONDS * 1_000) {
            return;
        }
        // The first of a bundle has all of it put together; the others start from that, so that
        // they are tested on one state.
        let start = self.head.bundle(position).start;
        let first = (start < position).then(|| super::align::ahead_of(&self.head.slots[start]));
        let is_first = first.is_some();
        let onto = match first.as_ref().or(slot.ahead.as_ref()) {
            None => None,
            Some(ahead) => {
                let Some(merged) = self
                    .items
                    .get(&ahead.item)
                    .filter(|item| {
                        item.generation == ahead.generation
                            && (!is_first || self.is_frozen_now(item))
                    })
                    .and_then(Item::merged)
                else {
                    return; // The one ahead has no state yet; its answer brings us here again.
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
        // What this plan writes anyway needs no more room.
        if !self.touched.contains(&id) && !self.has_room(1) {
            return;
        }
        let (now, layout) = (self.now, self.head.layout);
        if let Some(item) = self.item(&id) {
            item.layout = layout;
            item.ask = Ask::Asked { at: now, since, onto, landed };
        }
        self.plan.asks.push((id, generation));
    }

    fn order_jobs(&mut self, id: &ItemId, held_by: Option<&JobName>) {
        let Some(item) = self
            .items
            .shared(id)
            .filter(|item| {
                item.merged().is_some() && (item.reporting.is_some() || self.is_frozen_now(item))
            })
            .filter(|item| item.reporting.is_some() || !needs_are_failing(self, item))
        else {
            return;
        };
        // What is noted of it without an order: the item, and that its jobs start.
        if !self.has_room(3) || self.is_at_rest(&item) {
            return;
        }
        let mut item = Arc::unwrap_or_clone(item);
        let mut changed = settle_dependents(&mut item, self.now);
        for at in 0..item.jobs.len() {
            if !has_its_turn(&item, at) {
                continue;
            }
            changed |= self.follow_shared(&mut item, at);
            if item.jobs[at].status == JobStatus::Waiting && is_unblocked(&item, &item.jobs[at]) {
                match self.shared_build(&item, at) {
                    Sharing::Own => {}
                    Sharing::NotYet => continue,
                    Sharing::With(build) => {
                        build.take(&mut item, at);
                        changed = true;
                        continue;
                    }
                }
            }
            let room = order_room(&item.jobs[at]);
            if matches!(item.jobs[at].status, JobStatus::Ordered { .. }) && self.has_room(room) {
                changed |= self.send(&mut item, at);
            }
            if item.jobs[at].status != JobStatus::Waiting || !is_unblocked(&item, &item.jobs[at]) {
                continue;
            }
            changed |= match held_by {
                Some(job) => waits(&mut item.jobs[at], WaitsFor::Ahead(job.clone())),
                None if self.has_room(room) => self.start(&mut item, at),
                None => false,
            };
        }
        changed |= settle_dependents(&mut item, self.now);
        // As in Zuul it begins when it is known what is run for it, though its first job may still
        // wait for somebody.
        let begins = !item.start_reported && item.reporting.is_none() && !item.jobs.is_empty();
        if changed || begins {
            if begins {
                item.start_reported = true;
                if let Some(report) = self.report_item(&item, Occasion::Start, "") {
                    self.plan.reports.push(report);
                }
            }
            if item.jobs.iter().any(|job| job.attempt > 0) {
                item.first_job_at.get_or_insert(self.now);
            }
            // What ended without a build (noop, no provider, skipped) is news that nobody else will
            // tell.
            let is_over = if item.reporting.is_some() {
                !item.has_reporters_left()
            } else {
                item.is_complete()
            };
            self.left_over |= is_over || item.is_failing();
            self.touched.insert(id.clone());
            self.items.insert(id.clone(), item);
        }
    }

    /// Returns whether none of an item's jobs can move by itself: they run, are over, or wait for
    /// others of them, for nodes or for an executor. So it is with most items at most looks, and a
    /// copy of each would be most of what those cost.
    fn is_at_rest(&mut self, item: &Item) -> bool {
        let begins = !item.start_reported && item.reporting.is_none() && !item.jobs.is_empty();
        let in_bundle =
            self.position(&item.id).is_none_or(|position| self.head.bundle(position).len() > 1);
        if begins || in_bundle {
            return false;
        }
        (0..item.jobs.len()).all(|at| {
            let job = &item.jobs[at];
            match &job.status {
                JobStatus::Waiting => {
                    let begins = has_its_turn(item, at) && is_unblocked(item, job);
                    !begins && !is_barred(item, job)
                }
                JobStatus::Ordered { .. } => {
                    let seen = job.build.as_ref().and_then(|build| self.snapshot.runs.get(build));
                    let is_sent =
                        matches!(seen, Some(RunSeen::NodesReady)) || self.is_forgotten(job);
                    // Where the transaction is full it is looked at again, whatever it comes to.
                    !is_sent && (!has_its_turn(item, at) || self.has_room(order_room(job)))
                }
                JobStatus::Running { .. } | JobStatus::Paused { .. } | JobStatus::Ended { .. } => {
                    true
                }
            }
        })
    }

    /// Returns how urgent an item is among those of its pipeline: nodes go to what is first in its
    /// queue before they go to what is behind in another one. A bundle is one place.
    fn relative(&self, id: &ItemId) -> usize {
        let start = self.position(id).map_or(0, |position| self.head.bundle(position).start);
        let starts = (0..start).filter(|at| *at == 0 || !self.head.slots[*at].joined);
        coarse(starts.count())
    }

    /// Orders a job's next attempt, or ends it where it needs nobody. Returns whether anything
    /// about it changed.
    fn start(&mut self, item: &mut Item, at: usize) -> bool {
        let Some(merged) = item.merged().cloned() else {
            return false;
        };
        let attempt = item.jobs[at].attempt + 1;
        let summary = item.jobs[at].summary.clone();
        if summary.name.as_str() == "noop" {
            item.jobs[at].attempt = attempt;
            item.jobs[at].status = ended(BuildResult::Success, None, self.now);
            return true;
        }
        let providers = match self.required(item, &item.jobs[at]) {
            Required::There(builds) => builds,
            Required::Awaited => {
                return waits(&mut item.jobs[at], WaitsFor::Requirements(summary.requires));
            }
            Required::Missing(why) => {
                item.note(format!("{}: FAILURE: {why}", summary.name));
                item.jobs[at].waits_for = None;
                item.jobs[at].status = ended(BuildResult::Failure, Some(why), self.now);
                return true;
            }
        };
        let build = build_id(item, &summary.name, &summary.hash, attempt);
        let Some(Nodes { alternative, labels, provider }) = self.nodes_for(&item.jobs[at]) else {
            let why = format!("no provider of the tenant offers {}", wanted(&item.jobs[at]));
            item.note(format!("{}: NODE_FAILURE: {why}", summary.name));
            item.jobs[at].attempt = attempt;
            item.jobs[at].waits_for = None;
            item.jobs[at].build = Some(build.clone());
            item.builds.push(build);
            item.jobs[at].status = ended(BuildResult::NodeFailure, Some(why), self.now);
            return true;
        };
        item.jobs[at].alternative = alternative;
        let nodes_first = item.jobs[at].takes_nodes_first();
        let permit = if nodes_first {
            self.may_ask_for_nodes(item, at)
        } else {
            self.acquire(item, at, &build)
        };
        if let Permit::Waits(semaphore) = permit {
            // Since when it asks is its place in the line, so it is written even where what it
            // waits for is no news.
            let is_first = item.jobs[at].asked_at.is_none();
            item.jobs[at].asked_at.get_or_insert(self.now);
            return waits(&mut item.jobs[at], WaitsFor::Semaphore(semaphore.name)) || is_first;
        }
        // Who takes them with his nodes in hand asked for them when he asked for those.
        item.jobs[at].asked_at = nodes_first.then(|| item.jobs[at].asked_at.unwrap_or(self.now));
        item.jobs[at].waits_for = None;
        (item.jobs[at].sent_at, item.jobs[at].sent_again) = (None, 0);
        item.jobs[at].taken_over = false;
        item.jobs[at].attempt = attempt;
        item.jobs[at].build = Some(build.clone());
        item.builds.push(build.clone());
        let priority =
            self.snapshot.pipeline.map_or(200, |pipeline| pipeline.precedence.priority());
        let relative = self.relative(&item.id);
        let request = provider.map(|provider| RequestRef {
            provider,
            row: request_row(priority, relative, self.now, &build),
        });
        item.jobs[at].request = request.clone();
        item.jobs[at].status = JobStatus::Ordered { at: self.now };
        self.plan.reasons.push(format!(
            "{}: {} is ordered as build {build}",
            item.candidate.change, summary.name
        ));
        self.plan.orders.push(OrderDraft {
            build,
            item: item.id.clone(),
            generation: item.generation,
            job: summary.name.clone(),
            attempt,
            max_attempts: summary.attempts,
            voting: summary.voting,
            graph: merged.graph,
            speculation: merged.speculation,
            change: item.candidate.change.clone(),
            event_id: item.event_id.clone(),
            merge_commit: item.landed.clone(),
            parents: parents(item, &item.jobs[at]),
            providers,
            nodeset: alternative,
            nodes_first,
            labels,
            request,
        });
        true
    }
}

impl Work<'_> {
    /// Sends a build that has its nodes once it has its semaphores too; again where nobody has
    /// claimed it for long. Returns whether anything about its job changed.
    fn send(&mut self, item: &mut Item, at: usize) -> bool {
        let job = &item.jobs[at];
        if self.is_forgotten(job) {
            self.plan.again.extend(job.build.clone());
            item.jobs[at].sent_at = Some(self.now);
            item.jobs[at].sent_again += 1;
            return true;
        }
        let (Some(build), Some(request)) = (job.build.clone(), job.request.clone()) else {
            return false;
        };
        let is_sent =
            job.sent_at.is_some_and(|sent| self.now.since(sent) < SENT_AGAIN_SECONDS * 1_000);
        if is_sent || !matches!(self.snapshot.runs.get(&build), Some(RunSeen::NodesReady)) {
            return false;
        }
        if self.is_seen_to(item, &build) {
            return false;
        }
        if item.jobs[at].sent_at.is_none() && self.gives_nodes_back(item, at, &build) {
            return true;
        }
        if let Permit::Waits(semaphore) = self.acquire(item, at, &build) {
            // Since when it asks is its place in the line, so it is written even where what it
            // waits for is no news.
            let is_first = item.jobs[at].asked_at.is_none();
            item.jobs[at].asked_at.get_or_insert(self.now);
            return waits(&mut item.jobs[at], WaitsFor::Semaphore(semaphore.name)) || is_first;
        }
        item.jobs[at].asked_at = None;
        item.jobs[at].waits_for = None;
        let was_sent = item.jobs[at].sent_at.is_some();
        item.jobs[at].sent_again += u32::from(was_sent);
        item.jobs[at].sent_at = Some(self.now);
        self.plan.sends.push((build, request));
        true
    }
}

impl Work<'_> {
    /// Returns whether a build that needs no nodes was sent to the executors long ago and nobody
    /// has claimed it: its message may be lost. One that waits for nodes is sent by their provider,
    /// which looks after it.
    fn is_forgotten(&self, job: &Job) -> bool {
        let JobStatus::Ordered { at } = job.status else { return false };
        let is_claimed =
            job.build.as_ref().is_none_or(|build| self.snapshot.runs.contains_key(build));
        let sent_at = job.sent_at.unwrap_or(at);
        job.request.is_none()
            && !is_claimed
            && self.now.since(sent_at) >= SENT_AGAIN_SECONDS * 1_000
    }

    /// Has the head name builds that were sent again and again and that nobody has claimed. Each
    /// time they are sent they are young to whoever looks at messages alone.
    pub(super) fn list_unclaimed(&mut self) {
        let is_unclaimed = |job: &&Job| {
            matches!(job.status, JobStatus::Ordered { .. }) && account::is_unclaimed(job.sent_again)
        };
        let jobs = self.items.values().flat_map(|item| &item.jobs).filter(is_unclaimed);
        let builds: BTreeSet<BuildId> = jobs.filter_map(|job| job.build.clone()).collect();
        self.head.unclaimed = builds.into_iter().take(UNCLAIMED_MAX).collect();
    }
}

/// Where a job's nodes are asked for.
struct Nodes {
    /// Which of its nodesets, from 0.
    alternative: u32,
    /// The labels of that one.
    labels: Vec<LabelName>,
    /// Who is asked; `None` where it needs no nodes.
    provider: Option<ProviderName>,
}

impl Work<'_> {
    /// Returns the first of a job's nodesets, from the one it has come to, that a provider offers
    /// (N14).
    fn nodes_for(&self, job: &Job) -> Option<Nodes> {
        let sets = &job.summary.labels;
        if sets.is_empty() {
            return Some(Nodes { alternative: 0, labels: Vec::new(), provider: None });
        }
        (job.alternative..).zip(sets.iter().skip(job.alternative as usize)).find_map(
            |(alternative, labels)| {
                let provider =
                    if labels.is_empty() { None } else { Some((self.snapshot.provider)(labels)?) };
                Some(Nodes { alternative, labels: labels.clone(), provider })
            },
        )
    }

    /// Returns the items whose changes are in the tested state of one, the nearest first.
    pub(super) fn ahead_of<'w>(&'w self, id: &ItemId) -> impl Iterator<Item = &'w Slot> {
        let position = self.position(id).unwrap_or(0);
        let mut next = self.head.slots.get(position).and_then(|slot| slot.ahead.as_ref());
        let mut is_mate = false;
        self.head.slots[..position].iter().rev().filter(move |slot| {
            // A bundle is in the state as a whole.
            let is_next = is_mate || next.is_some_and(|ahead| ahead.item == slot.id);
            if is_next {
                next = slot.ahead.as_ref();
            }
            is_mate = is_next && slot.joined;
            is_next
        })
    }
}

/// Returns what a job's remaining nodesets ask for, for people.
fn wanted(job: &Job) -> String {
    let names = |labels: &Vec<LabelName>| {
        labels.iter().map(LabelName::as_str).collect::<Vec<_>>().join(", ")
    };
    let sets = job.summary.labels.iter().skip(job.alternative as usize);
    sets.map(names).collect::<Vec<_>>().join(", nor ")
}

/// Says what a job waits for. Returns whether that is news.
fn waits(job: &mut Job, waits_for: WaitsFor) -> bool {
    let waits_for = Some(waits_for);
    let is_news = job.waits_for != waits_for;
    job.waits_for = waits_for;
    is_news
}

fn needs_are_failing(work: &Work<'_>, item: &Item) -> bool {
    // Of a bundle that fails every job is run to its end.
    let mut others = item.candidate.needs_besides_mates();
    // Behind it, or before it by an operator's word, may stand a newer revision of what a push
    // landed as it is needed here: this item does not wait for that one. Few fail, so that of a
    // long queue few are compared.
    let ahead = &work.head.slots[..work.position(&item.id).unwrap_or(0)];
    let failing = |key: &ChangeKey| {
        ahead.iter().any(|slot| slot.standing == Standing::Failing && slot.change.key == *key)
    };
    work.head.manager == sluice_config::pipeline::Manager::Dependent
        && others.any(|need| failing(&need.change.key) && !work.head.has_landed(&need.change))
}

/// Returns the records that a job may write that is ordered or sent.
fn order_room(job: &Job) -> usize {
    5 + job.summary.semaphores.len()
}

/// Returns the row of Z1.1, padded so that key order is number order, with part of the build's id
/// so that no two are one.
fn request_row(priority: u32, relative: usize, now: Timestamp, build: &BuildId) -> String {
    let part = build.as_str().get(..8).unwrap_or_default();
    format!("{priority:03}-{:04}-{:014}-{part}", relative.min(9_999), now.0)
}

/// Returns how far back a place counts: by one up to ten, by ten up to a hundred, then by hundreds,
/// as Zuul has it.
fn coarse(place: usize) -> usize {
    match place {
        0..10 => place,
        10..100 => place / 10 * 10,
        _ => place / 100 * 100,
    }
}

/// Returns a build's id. The number of builds before it makes it one that was never given: a job
/// may come back as it was, when its configuration changes and changes back.
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
