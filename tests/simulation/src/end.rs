//! The end of a story: everything comes to rest within its bound, and then it is judged.

use crate::oracle::is_approved;
use crate::plays::{Play, TELLING};
use crate::reviews::{is_review, label_of};
use crate::shape::TenantShape;
use crate::sim::Sim;
use crate::site::{HANDLED, branch_of};
use crate::{Failure, Told};
use sluice_gate::{ArrivalKind, Head};
use sluice_memory::poll_once;
use sluice_model::change::{ChangeKey, ChangeStatus};
use sluice_model::poke::Queue;
use sluice_model::{QueueKey, TenantName, Timestamp};
use sluice_records::ledger;
use sluice_runtime::{Key, Record};
use sluice_scenarios::forge::OWN;
use std::collections::BTreeMap;

/// Seconds after the last fault within which every delivery must have ended.
const DELIVERED_SECONDS_MAX: u64 = 1_800;
/// Seconds after the last fault within which everything must have come to rest.
const REST_SECONDS_MAX: u64 = 4 * 3_600;
/// Seconds after it was sent, or after the last fault, within which every message must have been
/// handled: five receipts with the pauses between them, and a dead letter's way back.
const GROUP_SECONDS_MAX: u64 = 900;
/// Seconds that two sweeps of open changes take.
const SWEEPS_SECONDS: u64 = 1_320;
/// Seconds after which an operator lets a frozen queue go on.
const THAW_SECONDS: u64 = 90;

impl Sim {
    /// Tells the whole story.
    ///
    /// # Errors
    /// What must not be, with the story.
    pub fn play(mut self) -> Result<Told, Failure> {
        // Configuration is read before anybody does anything.
        self.run_until(|sim| sim.people.next_at.is_some_and(|at| at <= sim.now()))?;
        self.set_faults(true);
        let mut frozen = BTreeMap::new();
        self.run_until(|sim| {
            sim.thaw(&mut frozen);
            sim.people.next_at.is_none()
        })?;
        let until = self.now().plus_seconds(120);
        self.run_until(|sim| {
            sim.thaw(&mut frozen);
            sim.now() >= until
        })?;
        self.end_calmly(&mut frozen)?;
        Ok(Told {
            deliveries: self.watch.deliveries,
            steps: self.site.world.steps(),
            landed: self.site.forge.merge_count() as u64,
            struck: self.faults.lock().map_or(0, |faults| faults.count),
            weather: self.shape.weather.name,
            seconds: self.now().since(crate::site::START) / 1_000,
            runs: self.runs,
            tested_again: self.watch.tested_again,
            replayed: self.replay.replayed,
            believed: self.replay.believed,
            ending: self.ending(),
            story: self.story.text(),
        })
    }

    /// Lets everything come to rest without any further fault, and judges it.
    pub(crate) fn end_calmly(
        &mut self,
        frozen: &mut BTreeMap<QueueKey, Timestamp>,
    ) -> Result<(), Failure> {
        self.set_faults(false);
        let calm_since = self.now();
        self.rest(frozen, calm_since)?;
        // What lost webhooks left undone is found by the first sweep, what that one lost by the
        // second.
        let until = self.now().plus_seconds(SWEEPS_SECONDS);
        let mut late = None;
        self.run_until(|sim| {
            late = sim.waits_too_long(calm_since);
            late.is_some() || sim.now() >= until
        })?;
        if let Some(late) = late {
            return Err(self.failure(late));
        }
        self.rest(frozen, until)?;
        self.judge()
    }

    /// Waits until nothing is under way.
    fn rest(
        &mut self,
        frozen: &mut BTreeMap<QueueKey, Timestamp>,
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
            sim.thaw(frozen);
            if now.since(looked_at) < 1_000 || !sim.is_idle() {
                return false;
            }
            looked_at = now;
            sim.is_at_rest()
        })?;
        if let Some((key, at)) = late {
            return Err(self.failure(format!("{key} came at {} and has not ended", at.to_iso())));
        }
        if let Some(waits) = waits {
            return Err(self.failure(waits));
        }
        if self.now() >= rest {
            let under_way = self.under_way();
            return Err(
                self.failure(format!("it does not come to rest:\n{}", under_way.join("\n")))
            );
        }
        Ok(())
    }

    /// Returns which group of messages waits past its bound, now that nothing goes wrong since
    /// then.
    fn waits_too_long(&self, calm_since: Timestamp) -> Option<String> {
        let now = self.now();
        let late = |(queue, group, sent): (Queue, Option<String>, Timestamp)| {
            let since = sent.max(calm_since);
            (now.since(since) > GROUP_SECONDS_MAX * 1_000)
                .then(|| format!("group {group:?} of {queue:?} waits since {}", sent.to_iso()))
        };
        let queues = HANDLED.into_iter().filter(|queue| *queue != Queue::Wakes);
        queues
            .filter_map(|queue| {
                self.site.world.oldest_message(queue).map(|(group, sent)| (queue, group, sent))
            })
            .find_map(late)
    }

    /// Whether nothing is in hand; what waits in records is another matter.
    fn is_idle(&self) -> bool {
        let waits = |queue: &Queue| !matches!(queue, Queue::Pool | Queue::Wakes);
        self.tasks.is_empty()
            && self.webhooks.is_empty()
            && self.told.is_empty()
            && self.dead.is_empty()
            && self.executors.iter().all(|executor| executor.builds.is_empty())
            && !self.site.world.queued().keys().any(waits)
            && self.site.cloud.running() == 0
    }

    fn is_at_rest(&self) -> bool {
        let mut is_at_rest = self.watch.heads.values().all(|head| head.frozen.is_none());
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
                    record.key, record.revision, record.look_at, record.body
                ));
            }
            lines.len() < 40
        });
        lines
    }

    /// An operator looks at frozen queues and lets them go on.
    fn thaw(&mut self, frozen: &mut BTreeMap<QueueKey, Timestamp>) {
        let now = self.now();
        frozen.retain(|queue, _| {
            self.watch.heads.get(queue).is_some_and(|head| head.frozen.is_some())
        });
        let mut thawed = Vec::new();
        for (queue, head) in self.watch.heads.iter().filter(|(_, head)| head.frozen.is_some()) {
            let since = frozen.entry(queue.clone()).or_insert(now);
            if now.since(*since) >= THAW_SECONDS * 1_000 {
                *since = now;
                thawed.push(head.key.clone());
            }
        }
        for queue in thawed {
            self.tell(format!("an operator lets {queue} go on"));
            let kind = ArrivalKind::Thaw { by: "jo".to_owned(), reason: "seen".to_owned() };
            self.site.say(&queue, kind);
        }
    }

    /// Judges what is left.
    fn judge(&self) -> Result<(), Failure> {
        let mut wrong = Vec::new();
        self.site.world.look_at_records(|record| {
            let kind = record.key.partition.split('#').next().unwrap_or_default();
            let is_left = match kind {
                "queue" => record.key.sort != "head",
                "tenant" => {
                    record.key.sort.starts_with("queue#") || record.key.sort.starts_with("dirty#")
                }
                "report" => record.body.contains("\"wanted\"") && !record.body.contains("\"made\""),
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
            self.site
                .world
                .unsent()
                .iter()
                .map(|key| format!("{key} has an outbox that was not sent")),
        );
        wrong.extend(self.watch.open_deliveries.keys().map(|key| format!("{key} did not end")));
        wrong.extend(
            self.watch
                .heads
                .values()
                .filter(|head| !head.slots.is_empty())
                .map(|h| format!("{} is not empty", h.key)),
        );
        let lends = |head: &&Head| head.stands_in.is_some();
        let lending = self.watch.heads.values().filter(lends);
        wrong.extend(lending.map(|head| {
            format!("{} says that its change stands in {:?}", head.key, head.stands_in)
        }));
        wrong.extend(self.unaccounted());
        wrong.extend(self.watch.wrong_mails(&self.site.post.mails()));
        wrong.extend(self.watch.wrong_publications(&self.site.post.published()));
        wrong.extend(self.undone());
        if wrong.is_empty() {
            Ok(())
        } else {
            Err(self.failure(format!("at the end: {}", wrong.join("\n"))))
        }
    }

    /// What nobody sees to any more, as the timer counts it each minute.
    fn unaccounted(&self) -> Vec<String> {
        let (ports, now) = (self.site.world.ports_of("operator"), self.now());
        let ledger = match poll_once(ledger::read(&ports, ledger::past_bound(now), now)) {
            Some(Ok(ledger)) => ledger,
            Some(Err(error)) => return vec![format!("the ledger could not be read: {error}")],
            None => return vec!["the ledger could not be read at once".to_owned()],
        };
        let told = |open: &ledger::Open| {
            format!(
                "{} is open: {}",
                open.id,
                open.unaccounted.as_deref().unwrap_or("it is seen to")
            )
        };
        let mut wrong: Vec<String> = ledger.unaccounted().map(told).collect();
        wrong.extend(
            ledger.is_cut.then(|| "the ledger holds more than one reading takes".to_owned()),
        );
        wrong
    }

    /// What of open changes was left undone.
    fn undone(&self) -> Vec<String> {
        let mut wrong = Vec::new();
        // What pipelines that tell nobody had no room for nobody knows.
        let has_limits = self.shape.has(Play::FewChanges);
        let tenant = |change: &ChangeKey| {
            let has = |shape: &&TenantShape| {
                shape.projects.iter().any(|(name, _)| name == change.project.name())
            };
            self.shape.tenants.iter().find(has).map(|shape| shape.name.clone()).unwrap_or_default()
        };
        for kept in self.site.forge.changes() {
            let facts = &kept.facts;
            for pipeline in TELLING {
                let state = match self.oracle.newest(&facts.change, pipeline) {
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
                let shown = match is_review(facts.change.key.project.name()) {
                    true => vote.map(|vote| if vote.value > 0 { "success" } else { "failure" }),
                    false => status.map(|status| status.state.as_str()),
                };
                // What may not enter for what it needs is told as a failure, without any item.
                let is_refused =
                    shown == Some("failure") && self.oracle.is_entangled(&facts.change.key);
                let had_room = !self.oracle.had_no_room(&facts.change.key, pipeline);
                if shown != Some(state) && !is_refused && (had_room || shown != Some("failure")) {
                    wrong.push(format!(
                        "{} ended as {state}, and {context} shows {shown:?}",
                        facts.change
                    ));
                }
            }
            let proposed_at = self.oracle.proposed_at(&facts.change.key);
            let is_told =
                self.watch.is_after_discards(&TenantName(tenant(&facts.change.key)), proposed_at);
            if facts.status != ChangeStatus::Open || !is_told {
                continue;
            }
            wrong.extend(self.oracle.undone(&facts.change, is_approved(facts)));
            if !has_limits {
                wrong.extend(self.oracle.untested_again(&facts.change));
                wrong.extend(self.oracle.not_followed(&facts.change));
            }
        }
        if !has_limits {
            wrong.extend(self.oracle.untested_refs(self.watch.has_discarded()));
        }
        if self.shape.has(Play::Timers) {
            wrong.extend(self.mistimed());
        }
        // A push that nobody heard of, or that was discarded, is not looked for.
        if self.shape.has(Play::Post)
            && self.shape.weather.all_are_heard()
            && !self.watch.has_discarded()
            && !has_limits
        {
            wrong.extend(self.oracle.not_posted());
        }
        wrong
    }

    /// What is wrong with how often the timer had branches tested.
    fn mistimed(&self) -> Vec<String> {
        let has_discarded = self.watch.has_discarded() || self.shape.has(Play::FewChanges);
        let projects = self.shape.projects();
        let branches = projects
            .iter()
            .flat_map(|(name, _)| self.shape.branches.iter().map(|b| branch_of(name, b)));
        branches.filter_map(|branch| self.oracle.mistimed(&branch, has_discarded)).collect()
    }

    /// Returns all by which two runs of one seed are compared.
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

/// Whether something waits in a record; not a provider's look for leaks, not a timer's next tick,
/// and not a tenant's look at projects that cannot be read.
fn is_under_way(record: &Record) -> bool {
    let (partition, sort, body) = (&record.key.partition, &record.key.sort, &record.body);
    let of_provider = partition.starts_with("provider#");
    let retries =
        body.contains("retry_at") && !body.contains("left_out_at") && record.outbox.is_empty();
    let of_timer = partition.starts_with("schedule#");
    let is_periodic = sort == "head"
        && (of_provider || of_timer || (partition.starts_with("tenant#") && retries));
    (record.look_at.is_some() && !is_periodic) || (of_provider && sort != "head")
}
