//! Asks for what is missing: tested states of the merger, builds of the executors, landings once more.

use super::{LOOK_SECONDS, OrderDraft, Work};
use crate::item::{Ask, Item, Job, JobStatus, Onto};
use crate::queue::{Slot, Standing};
use crate::report::Occasion;
use sluice_model::build::{BuildResult, RequestRef};
use sluice_model::{BuildId, ItemId, JobName, LabelName, Timestamp};

impl Work<'_> {
    pub(super) fn advance(&mut self) {
        if self.head.frozen.is_some() {
            return;
        }
        for position in 0..self.head.slots.len() {
            if !self.head.is_active(position) {
                break;
            }
            let slot = self.head.slots[position].clone();
            if self.items.get(&slot.id).is_none_or(|item| item.generation != slot.generation) {
                self.left_over = true;
                continue;
            }
            match slot.standing {
                Standing::Landing => self.remind_if_late(&slot),
                _ => {
                    self.ask(&slot);
                    self.order_jobs(&slot.id);
                }
            }
        }
    }

    fn remind_if_late(&mut self, slot: &Slot) {
        let landing = self.snapshot.landings.get(&slot.id);
        let late = landing.is_some_and(|landing| {
            !matches!(landing.state, crate::landing::LandingState::Ended { .. })
                && self.now.since(landing.wanted_at) >= LOOK_SECONDS * 1_000
        });
        if late {
            self.remind_landing(&slot.id);
        }
    }

    fn ask(&mut self, slot: &Slot) {
        let Some(item) = self.items.get(&slot.id) else {
            return;
        };
        let asked_at = match &item.ask {
            Ask::No => None,
            Ask::Asked { at, .. } => Some(*at),
            Ask::Merged(_) | Ask::Unmergeable { .. } => return,
        };
        if asked_at.is_some_and(|at| self.now.since(at) < LOOK_SECONDS * 1_000) {
            return;
        }
        let onto = match &slot.ahead {
            None => None,
            Some(ahead) => {
                let Some(merged) = self
                    .items
                    .get(&ahead.item)
                    .filter(|item| item.generation == ahead.generation)
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
        if !self.has_room(1) {
            return;
        }
        let (now, layout) = (self.now, self.head.layout);
        if let Some(item) = self.item(&slot.id) {
            item.layout = layout;
            item.ask = Ask::Asked { at: now, onto };
        }
        self.plan.asks.push((slot.id.clone(), slot.generation));
    }

    fn order_jobs(&mut self, id: &ItemId) {
        let Some(mut item) = self
            .items
            .get(id)
            .filter(|item| item.merged().is_some() && self.is_frozen_now(item))
            .filter(|_| !needs_are_failing(self, id))
            .cloned()
        else {
            return;
        };
        let mut changed = settle_dependents(&mut item, self.now);
        for at in 0..item.jobs.len() {
            if item.jobs[at].status == JobStatus::Waiting && is_unblocked(&item, &item.jobs[at]) && self.has_room(4) {
                self.start(&mut item, at);
                changed = true;
            }
        }
        changed |= settle_dependents(&mut item, self.now);
        if changed {
            if !item.start_reported && item.jobs.iter().any(|job| job.attempt > 0) {
                item.start_reported = true;
                item.first_job_at.get_or_insert(self.now);
                if let Some(report) = self.report_item(&item, Occasion::Start, "") {
                    self.plan.reports.push(report);
                }
            }
            // What ended without a build (noop, no provider, skipped) is news that nobody else will tell.
            self.left_over |= item.is_complete() || item.is_failing();
            self.touched.insert(id.clone());
            self.items.insert(id.clone(), item);
        }
    }

    fn start(&mut self, item: &mut Item, at: usize) {
        let Some(merged) = item.merged().cloned() else {
            return;
        };
        let attempt = item.jobs[at].attempt + 1;
        let summary = item.jobs[at].summary.clone();
        item.jobs[at].attempt = attempt;
        if summary.name.as_str() == "noop" {
            item.jobs[at].status = ended(BuildResult::Success, None, self.now);
            return;
        }
        let labels: Vec<LabelName> = summary.labels.first().cloned().unwrap_or_default();
        let build = build_id(item, &summary.name, &summary.hash, attempt);
        item.jobs[at].build = Some(build.clone());
        item.builds.push(build.clone());
        let request = if labels.is_empty() {
            None
        } else {
            let Some(provider) = (self.snapshot.provider)(&labels) else {
                let names: Vec<&str> = labels.iter().map(LabelName::as_str).collect();
                let why = format!("no provider of the tenant offers {}", names.join(", "));
                item.jobs[at].status = ended(BuildResult::NodeFailure, Some(why), self.now);
                return;
            };
            let priority = self.snapshot.pipeline.map_or(200, |pipeline| pipeline.precedence.priority());
            Some(RequestRef { provider, row: request_row(priority, self.now, &build) })
        };
        item.jobs[at].request = request.clone();
        item.jobs[at].status = JobStatus::Ordered { at: self.now };
        self.plan.reasons.push(format!("{}: {} is ordered as build {build}", item.candidate.change, summary.name));
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
            labels,
            request,
        });
    }
}

fn needs_are_failing(work: &Work<'_>, id: &ItemId) -> bool {
    work.head.manager == sluice_config::pipeline::Manager::Dependent
        && work.items.get(id).is_some_and(|item| {
            item.candidate.needs.iter().any(|need| {
                work.head
                    .slots
                    .iter()
                    .any(|slot| slot.change.key == need.change.key && slot.standing == Standing::Failing)
            })
        })
}

/// Returns the row of Z1.1, padded so that key order is number order, with part of the build's id so that no two are one.
fn request_row(priority: u32, now: Timestamp, build: &BuildId) -> String {
    format!("{priority:03}-0000-{:014}-{}", now.0, build.as_str().get(..8).unwrap_or_default())
}

fn build_id(item: &Item, job: &JobName, hash: &str, attempt: u32) -> BuildId {
    BuildId::derive(&[item.id.as_str(), &item.generation.to_string(), job.as_str(), hash, &attempt.to_string()])
}

/// Returns whether every job it depends on is over in a way that lets it run.
fn is_unblocked(item: &Item, job: &Job) -> bool {
    job.summary.dependencies.iter().all(|dependency| {
        let other = item.jobs.iter().find(|other| other.summary.name == dependency.name);
        match other {
            Some(other) if dependency.soft => other.result().is_some(),
            Some(other) => other.result().is_some_and(BuildResult::passed),
            None => dependency.soft,
        }
    })
}

/// Skips jobs whose hard dependencies did not pass (J12). Returns whether any was.
fn settle_dependents(item: &mut Item, now: Timestamp) -> bool {
    let mut any = false;
    // Each round settles at least one job, or it is the last.
    for _ in 0..item.jobs.len() {
        let blocked = item.jobs.iter().position(|job| job.status == JobStatus::Waiting && is_barred(item, job));
        let Some(at) = blocked else { break };
        item.jobs[at].status = ended(BuildResult::Skipped, Some("a job it depends on did not pass".to_owned()), now);
        any = true;
    }
    any
}

fn is_barred(item: &Item, job: &Job) -> bool {
    job.summary.dependencies.iter().filter(|dependency| !dependency.soft).any(|dependency| {
        let other = item.jobs.iter().find(|other| other.summary.name == dependency.name);
        other.is_none_or(|other| other.result().is_some_and(|result| !result.passed()))
    })
}

fn ended(result: BuildResult, detail: Option<String>, now: Timestamp) -> JobStatus {
    JobStatus::Ended { result, detail, started_at: None, ended_at: now, log_url: None }
}
