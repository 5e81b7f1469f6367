//! The end of a story: everything comes to rest within its bounds, and the final state is checked.

use crate::faults::FaultInjection;
use crate::oracle::{ApprovalState, DiscardHistory, is_approved};
use crate::reviews::{is_gerrit_project, label_of};
use crate::scenarios::{STATUS_PIPELINES, Scenario};
use crate::sim::Sim;
use crate::site::{HANDLED, branch_of};
use crate::{Failure, SeedReport};
use sluice_gate::{Head, InboxMessageKind};
use sluice_memory::poll_once;
use sluice_model::change::{ChangeKey, ChangeStatus};
use sluice_model::git::BranchKey;
use sluice_model::wakeup::MessageQueue;
use sluice_model::{QueueKey, TenantName, Timestamp};
use sluice_records::open_work;
use sluice_runtime::{Key, Record};
use sluice_scenarios::forge::OWN;
use std::collections::BTreeMap;

/// Seconds after the last fault within which every delivery must end.
const DELIVERED_SECONDS_MAX: u64 = 1_800;
/// Seconds after the last fault within which everything must come to rest.
const REST_SECONDS_MAX: u64 = 4 * 3_600;
/// Seconds after sending, or after the last fault, within which every message must be processed.
/// That covers five attempts with their delays, and the redrive of a dead letter.
const GROUP_SECONDS_MAX: u64 = 900;
/// Seconds that two sweeps of open changes take.
const SWEEPS_SECONDS: u64 = 1_320;
/// Seconds after which an operator resumes a halted queue.
const RESUME_SECONDS: u64 = 90;

impl Sim {
    /// Plays the whole story.
    ///
    /// # Errors
    /// The violated invariant, with the story.
    pub fn play(mut self) -> Result<SeedReport, Failure> {
        // The configuration is read before the actors begin.
        self.run_until(|sim| sim.actors.next_at.is_some_and(|at| at <= sim.now()))?;
        self.switch_faults(FaultInjection::On);
        let mut halted = BTreeMap::new();
        self.run_until(|sim| {
            sim.resume_halted_queues(&mut halted);
            sim.actors.next_at.is_none()
        })?;
        let until = self.now().plus_seconds(120);
        self.run_until(|sim| {
            sim.resume_halted_queues(&mut halted);
            sim.now() >= until
        })?;
        self.end_calmly(&mut halted)?;
        Ok(SeedReport {
            deliveries: self.watch.deliveries,
            steps: self.site.world.steps(),
            landed: self.site.forge.merge_count() as u64,
            struck: self.faults.lock().map_or(0, |faults| faults.count),
            fault_profile: self.shape.fault_profile.name,
            seconds: self.now().since(crate::site::START) / 1_000,
            runs: self.runs,
            tested_again: self.watch.retested,
            ending: self.ending(),
            story: self.story.text(),
        })
    }

    /// Lets the site come to rest without further faults, and checks the final state.
    pub(crate) fn end_calmly(
        &mut self,
        halted: &mut BTreeMap<QueueKey, Timestamp>,
    ) -> Result<(), Failure> {
        self.switch_faults(FaultInjection::Off);
        let calm_since = self.now();
        self.rest(halted, calm_since)?;
        // The first sweep finds what lost webhooks left undone; the second finds what the first one
        // lost.
        let until = self.now().plus_seconds(SWEEPS_SECONDS);
        let mut late = None;
        self.run_until(|sim| {
            late = sim.waits_too_long(calm_since);
            late.is_some() || sim.now() >= until
        })?;
        if let Some(late) = late {
            return Err(self.failure(late));
        }
        self.rest(halted, until)?;
        self.check_final_state()
    }

    /// Runs until nothing is in progress.
    fn rest(
        &mut self,
        halted: &mut BTreeMap<QueueKey, Timestamp>,
        since: Timestamp,
    ) -> Result<(), Failure> {
        let (delivered, rest) =
            (since.plus_seconds(DELIVERED_SECONDS_MAX), since.plus_seconds(REST_SECONDS_MAX));
        let mut looked_at = Timestamp(0);
        let (mut late, mut waits) = (None, None);
        self.run_until(|sim| {
            let now = sim.now();
            if now >= delivered && late.is_none() {
                let mut open = sim.watch.open_deliveries.iter();
                let is_late =
                    |(_, at): &(&Key, &Timestamp)| at.plus_seconds(DELIVERED_SECONDS_MAX) <= now;
                late = open.find(is_late).map(|(key, at)| (key.clone(), *at));
            }
            waits = sim.waits_too_long(since);
            if late.is_some() || waits.is_some() || now >= rest {
                return true;
            }
            sim.resume_halted_queues(halted);
            if now.since(looked_at) < 1_000 || !sim.is_idle() {
                return false;
            }
            looked_at = now;
            sim.is_at_rest()
        })?;
        if let Some((key, at)) = late {
            return Err(
                self.failure(format!("the delivery {key} of {} has not ended", at.to_iso()))
            );
        }
        if let Some(waits) = waits {
            return Err(self.failure(waits));
        }
        if self.now() >= rest {
            let under_way = self.under_way();
            return Err(
                self.failure(format!("the site does not come to rest:\n{}", under_way.join("\n")))
            );
        }
        Ok(())
    }

    /// Returns the group of messages that waits past its bound; `None` if there is none.
    fn waits_too_long(&self, calm_since: Timestamp) -> Option<String> {
        let now = self.now();
        let late = |(queue, group, sent): (MessageQueue, Option<String>, Timestamp)| {
            let since = sent.max(calm_since);
            (now.since(since) > GROUP_SECONDS_MAX * 1_000)
                .then(|| format!("group {group:?} of {queue:?} has waited since {}", sent.to_iso()))
        };
        let queues = HANDLED.into_iter().filter(|queue| *queue != MessageQueue::Wakes);
        queues
            .filter_map(|queue| {
                self.site.world.oldest_message(queue).map(|(group, sent)| (queue, group, sent))
            })
            .find_map(late)
    }

    /// Returns whether no task, message, build or node is in progress. Records may still wait.
    fn is_idle(&self) -> bool {
        let waits =
            |queue: &MessageQueue| !matches!(queue, MessageQueue::Pool | MessageQueue::Wakes);
        self.tasks.is_empty()
            && self.webhooks.is_empty()
            && self.stream_events.is_empty()
            && self.dead.is_empty()
            && self.executors.iter().all(|executor| executor.builds.is_empty())
            && !self.site.world.queued().keys().any(waits)
            && self.site.cloud.running() == 0
    }

    fn is_at_rest(&self) -> bool {
        let mut is_at_rest = self.watch.heads.values().all(|head| head.halted.is_none());
        if !is_at_rest {
            return false;
        }
        self.site.world.look_at_records(|record| {
            is_at_rest = !is_under_way(record);
            is_at_rest
        });
        is_at_rest
    }

    fn under_way(&self) -> Vec<String> {
        let mut lines: Vec<String> = self.tasks.iter().map(|task| task.kind.name()).collect();
        lines.extend(
            self.site
                .world
                .queued()
                .iter()
                .map(|(queue, count)| format!("{count} messages in {queue:?}")),
        );
        lines.extend(
            self.executors.iter().map(|e| format!("{} runs {} builds", e.session, e.builds.len())),
        );
        lines.push(format!("{} machines", self.site.cloud.running()));
        for item in self.watch.items.values() {
            let jobs = item.jobs.iter().filter(|job| job.result().is_none());
            let jobs: Vec<String> =
                jobs.map(|j| format!("{} {:?} {:?}", j.summary.name, j.status, j.build)).collect();
            lines.push(format!(
                "{} (state {}): {}",
                item.candidate.change,
                item.generation,
                jobs.join(", ")
            ));
        }
        self.site.world.look_at_records(|record| {
            if is_under_way(record) {
                lines.push(format!(
                    "{} rev {} due {:?}: {}",
                    record.key, record.revision, record.sweep_at, record.body
                ));
            }
            lines.len() < 40
        });
        lines
    }

    /// Has an operator resume queues that have been halted for a while.
    fn resume_halted_queues(&mut self, halted: &mut BTreeMap<QueueKey, Timestamp>) {
        let now = self.now();
        halted.retain(|queue, _| {
            self.watch.heads.get(queue).is_some_and(|head| head.halted.is_some())
        });
        let mut resumed = Vec::new();
        for (queue, head) in self.watch.heads.iter().filter(|(_, head)| head.halted.is_some()) {
            let since = halted.entry(queue.clone()).or_insert(now);
            if now.since(*since) >= RESUME_SECONDS * 1_000 {
                *since = now;
                resumed.push(head.key.clone());
            }
        }
        for queue in resumed {
            self.log(format!("an operator resumes {queue}"));
            let kind = InboxMessageKind::Resume { by: "jo".to_owned(), reason: "seen".to_owned() };
            self.site.send_command(&queue, kind);
        }
    }

    /// Checks that nothing is left over or missing.
    fn check_final_state(&self) -> Result<(), Failure> {
        let mut wrong = Vec::new();
        self.site.world.look_at_records(|record| {
            let kind = record.key.partition.split('#').next().unwrap_or_default();
            let is_left = match kind {
                "queue" => record.key.sort != "head",
                "tenant" => {
                    record.key.sort.starts_with("queue#") || record.key.sort.starts_with("reread#")
                }
                "report" => state_of(&record.body).is_some_and(|state| state == "pending"),
                "branch" => record.body.contains("\"holder\""),
                "semaphores" => record.body.contains("\"build\""),
                _ => false,
            };
            if is_left {
                wrong.push(format!("{} is left over: {}", record.key, record.body));
            }
            wrong.len() < 20
        });
        wrong.extend(
            self.site.world.unsent().iter().map(|key| format!("{key} has an unsent outbox")),
        );
        wrong.extend(self.watch.open_deliveries.keys().map(|key| format!("{key} did not end")));
        wrong.extend(
            self.watch
                .heads
                .values()
                .filter(|head| !head.entries.is_empty())
                .map(|h| format!("{} is not empty", h.key)),
        );
        let lends = |head: &&Head| head.hosted_in.is_some();
        let lending = self.watch.heads.values().filter(lends);
        wrong.extend(
            lending.map(|head| {
                format!("{} still names the host queue {:?}", head.key, head.hosted_in)
            }),
        );
        wrong.extend(self.find_unaccounted_entries());
        wrong.extend(self.watch.find_mail_errors(&self.site.post.mails()));
        wrong.extend(self.watch.find_publication_errors(&self.site.post.published()));
        wrong.extend(self.find_missing_work());
        if wrong.is_empty() {
            Ok(())
        } else {
            Err(self.failure(format!("at the end: {}", wrong.join("\n"))))
        }
    }

    /// Returns the ledger entries without a next step, as the timer counts them every minute.
    fn find_unaccounted_entries(&self) -> Vec<String> {
        let (ports, now) = (self.site.world.ports_of("operator"), self.now());
        let work = match poll_once(open_work::read(&ports, open_work::past_bound(now), now)) {
            Some(Ok(work)) => work,
            Some(Err(error)) => return vec![format!("the ledger could not be read: {error}")],
            None => return vec!["the ledger could not be read at once".to_owned()],
        };
        let describe = |open: &open_work::OpenEntry| {
            format!(
                "{} is open: {}",
                open.id,
                open.unaccounted.as_deref().unwrap_or("it has a next step")
            )
        };
        let mut wrong: Vec<String> = work.unaccounted().map(describe).collect();
        wrong.extend(
            work.is_cut.then(|| "the ledger has more entries than one read returns".to_owned()),
        );
        wrong
    }

    /// Returns what is missing for open changes and refs.
    fn find_missing_work(&self) -> Vec<String> {
        let mut wrong = Vec::new();
        // Pipelines without reports do not show what they had no capacity for.
        let has_limits = self.shape.has(Scenario::MaxChanges);
        let tenant = |change: &ChangeKey| self.shape.tenant_of(change.project.name());
        for kept in self.site.forge.changes() {
            let facts = &kept.facts;
            for pipeline in STATUS_PIPELINES {
                let state = match self.oracle.latest_result(&facts.change, pipeline) {
                    Some("SUCCESS") => "success",
                    Some("FAILURE" | "MERGE_CONFLICT" | "MERGE_FAILURE" | "CONFIG_ERROR") => {
                        "failure"
                    }
                    _ => continue,
                };
                let context = format!("{}/{pipeline}", tenant(&facts.change.key));
                let status = facts.statuses.iter().find(|status| status.context == context);
                let label = label_of(pipeline);
                let vote =
                    facts.votes.iter().find(|vote| vote.username == OWN && vote.label == label);
                let shown = match is_gerrit_project(facts.change.key.project.name()) {
                    true => vote.map(|vote| if vote.value > 0 { "success" } else { "failure" }),
                    false => status.map(|status| status.state.as_str()),
                };
                // A change that is refused for its dependencies is reported as a failure, without
                // an item.
                let is_refused =
                    shown == Some("failure") && self.oracle.is_entangled(&facts.change.key);
                let had_room = !self.oracle.had_no_room(&facts.change.key, pipeline);
                // An earlier result may have been reported last.
                let key = &facts.change.key;
                let group = format!("{}#{}", key.project, key.local_id());
                if self.late_report_groups.contains(&group) {
                    continue;
                }
                if shown != Some(state) && !is_refused && (had_room || shown != Some("failure")) {
                    wrong.push(format!(
                        "{} ended as {state}, but {context} shows {shown:?}",
                        facts.change
                    ));
                }
            }
            let proposed_at = self.oracle.proposed_at(&facts.change.key);
            let is_after_discards =
                self.watch.is_after_discards(&TenantName(tenant(&facts.change.key)), proposed_at);
            let has_left = self.oracle.has_left(&facts.change.key.project);
            if facts.status != ChangeStatus::Open || !is_after_discards || has_left {
                continue;
            }
            let approval = if is_approved(facts) {
                ApprovalState::Approved
            } else {
                ApprovalState::NotApproved
            };
            wrong.extend(self.oracle.find_missing_work(&facts.change, approval));
            if !has_limits {
                wrong.extend(self.oracle.find_missing_retest(&facts.change));
                wrong.extend(self.oracle.find_missing_dependent_test(&facts.change));
            }
        }
        if !has_limits && !self.watch.has_discarded() {
            wrong.extend(self.oracle.find_tree_errors());
        }
        if !has_limits {
            wrong.extend(self.oracle.find_lost_moves());
        }
        if !has_limits {
            let discards = match self.watch.has_discarded() {
                true => DiscardHistory::Some,
                false => DiscardHistory::Never,
            };
            wrong.extend(self.oracle.find_untested_refs(discards));
        }
        if self.shape.has(Scenario::Timers) {
            wrong.extend(self.find_timer_errors());
        }
        // Pushes with a lost webhook or a discarded event need not be tested.
        if self.shape.has(Scenario::Post)
            && self.shape.fault_profile.delivers_every_webhook()
            && !self.watch.has_discarded()
            && !has_limits
        {
            wrong.extend(self.oracle.find_untested_pushes());
        }
        wrong
    }

    /// Returns what is wrong with the number of timer tests.
    fn find_timer_errors(&self) -> Vec<String> {
        let discards = match self.watch.has_discarded() || self.shape.has(Scenario::MaxChanges) {
            true => DiscardHistory::Some,
            false => DiscardHistory::Never,
        };
        let projects = self.shape.projects();
        let branches = projects
            .iter()
            .flat_map(|(name, _)| self.shape.branches.iter().map(|b| branch_of(name, b)));
        let discards_of = |branch: &BranchKey| match self.oracle.has_left(&branch.project) {
            true => DiscardHistory::Some,
            false => discards,
        };
        branches
            .filter_map(|branch| self.oracle.find_timer_error(&branch, discards_of(&branch)))
            .collect()
    }

    /// Returns a text that is equal for two runs of a seed.
    fn ending(&self) -> String {
        let merges: Vec<String> = self
            .site
            .forge
            .merges()
            .iter()
            .map(|(key, commit)| format!("{key} {}", commit.id))
            .collect();
        let store = self.site.store.lock().unwrap();
        let projects = self.shape.projects();
        let branches = projects
            .iter()
            .flat_map(|(name, _)| self.shape.branches.iter().map(|b| branch_of(name, b)));
        let tips = branches.filter_map(|branch| store.tip(&branch)).map(|tip| tip.id.to_string());
        format!(
            "{} at {:?}: {}; {}",
            self.site.world.steps(),
            self.now(),
            merges.join(", "),
            tips.collect::<Vec<_>>().join(", ")
        )
    }
}

/// Returns whether a record waits for something. The leak check of a provider, the next tick of a
/// timer and the retry of unreadable projects do not count.
fn is_under_way(record: &Record) -> bool {
    let (partition, sort, body) = (&record.key.partition, &record.key.sort, &record.body);
    let of_provider = partition.starts_with("provider#");
    let retries =
        body.contains("retry_at") && !body.contains("omitted_since") && record.outbox.is_empty();
    let of_timer = partition.starts_with("schedule#");
    let is_periodic = sort == "head"
        && (of_provider || of_timer || (partition.starts_with("tenant#") && retries));
    (record.sweep_at.is_some() && !is_periodic) || (of_provider && sort != "head")
}

/// Returns the state of a record, or `None` if the record has no state.
fn state_of(body: &str) -> Option<serde_json::Value> {
    serde_json::from_str::<serde_json::Value>(body).ok()?.get("state").cloned()
}
