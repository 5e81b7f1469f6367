//! Ports that break a rule on purpose. Tests use them to show that the simulator notices.

mod texts;

use crate::scenarios::file_filters::DOCS;
use crate::scenarios::mails::LETTERS;
use crate::scenarios::max_changes;
use crate::scenarios::max_dependencies;
use crate::scenarios::newcomers::FOLLOWS;
use crate::scenarios::publications::BROADCAST;
use crate::scenarios::reloads::SURPLUS;
use async_trait::async_trait;
use serde_json::Value;
use sluice_model::Timestamp;
use sluice_model::wakeup::MessageQueue;
use sluice_records::tenant::DEFERRED;
use sluice_runtime::port::{Incoming, Outgoing};
use sluice_runtime::record::{Expect, Key, Query, Record, TransactionOutcome, Write};
use sluice_runtime::{PortError, Ports, Queues, Records};
use std::sync::Arc;
use texts::{
    next_generation, onto_branch, with_field, with_last_before, with_nodesets, with_number,
    with_second, with_swapped, without, without_each, without_failures, without_job, without_last,
    without_titled,
};

/// Some mutations change only every n-th revision of a queue.
const NOW_AND_THEN: u64 = 8;

/// The path of the changes that an inbox message enqueues.
const CANDIDATES: [&str; 3] = ["kind", "enqueue", "candidates"];

/// The start of the reason why a change leaves whose project was removed from the tenant.
const NO_LONGER_OF_TENANT: &str = "the tenant no longer has the project";

/// A broken rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mutation {
    /// A head is written whatever its revision is: two functions overwrite each other.
    NoRevision(Cell),
    /// A run is written although one exists: two executors own the build.
    ClaimedTwice,
    /// A build is claimed although it was stopped.
    ClaimedThoughStopped,
    /// A semaphore is written whatever its revision is.
    UncheckedSemaphore,
    /// The other writes of a transaction are applied although it failed.
    TornTransactions,
    /// Every error acknowledges its message.
    AcknowledgedErrors,
    /// Outboxes are not stored and not listed in the ledger, so that only what is sent at once is
    /// sent.
    LostOutboxes,
    /// The outbox of a queue's head is read as empty: what a run that crashed did not send is not
    /// sent again.
    UnseenOutboxes,
    /// A landing ends as landed although another tree than the tested one was merged.
    UncomparedTrees,
    /// Messages of this queue are not sent.
    Mute(MessageQueue),
    /// No record is ever due.
    NothingDue,
    /// An executor reports success for a failed job.
    LyingExecutor,
    /// The forge merges extra files without the oracle's knowledge.
    LyingForge,
    /// The end of a run is never written.
    ForgottenEnds,
    /// Inbox messages have no forge time.
    NoForgeClock,
    /// A command is applied to another change than the named one.
    MisreadCommands,
    /// A queue dequeues another change than the one that entered the superseding pipeline.
    MisreadSuperseding,
    /// Reports and results are written whatever their revision is.
    OverwrittenReports,
    /// A landing does not contain the requirements of its pipeline.
    DroppedRequirements,
    /// Messages of this queue are never received.
    Unserved(MessageQueue),
    /// A delivery that ended is read as just accepted.
    ReopenedDeliveries,
    /// A sent report is read as pending.
    ReopenedReports,
    /// A retested item is written with generation 0.
    FallingGenerations,
    /// A layout becomes live that is not wanted yet.
    LayoutsAhead,
    /// The launcher does not see the existing nodes.
    UncountedNodes,
    /// A branch lock is read as free.
    IgnoredBranchLock,
    /// A landing starts even if its branch lock was acquired again.
    NoFence,
    /// A window is wider than allowed.
    StretchedWindows,
    /// A landing uses another merge mode than its project.
    OtherModes,
    /// Unreviewed changes are tested in a pipeline for reviewed ones.
    LeakyPipeline,
    /// A push also lands the followers of a landing, whether or not they passed.
    Overreach,
    /// A reporter job is read as a job that decides the result.
    EarlyReporterJobs,
    /// A job of the tested state is dropped.
    DroppedJobs,
    /// The inbox message of a change with dependencies is never written.
    LostDependents,
    /// Executors ignore builds that they claimed without receiving an answer, and their sessions list
    /// them.
    UnsettledClaims,
    /// Jobs have no dependencies.
    ForgottenDependencies,
    /// Soft dependencies are read as hard ones.
    HardDependencies,
    /// Non-voting jobs are read as voting.
    AllVote,
    /// The `child_jobs` that a job returns are ignored.
    IgnoredChildJobs,
    /// A paused build continues before its resume.
    EarlyResumes,
    /// The resume of a paused build is never written.
    LostResumes,
    /// The stop of a build is never written.
    LostStops,
    /// `fail-fast` is ignored.
    IgnoredFailFast,
    /// `hold-following-changes` is ignored.
    NothingHolds,
    /// Jobs require no artifacts.
    NothingRequired,
    /// An order does not name the builds that provide artifacts.
    DroppedProviders,
    /// A passed build is read as failed, so that an autohold request matches it.
    HeldThoughPassed,
    /// Held nodes are not counted.
    UncountedHolds,
    /// Functions ignore that an operator has events discarded.
    IgnoredDiscards,
    /// Functions ignore that an operator pauses events.
    IgnoredEventPauses,
    /// Functions ignore that an operator pauses results.
    IgnoredResultPauses,
    /// Synthesized events (`zuul:`) for other changes are never written.
    LostChangeEvents,
    /// The inbox messages that retest other changes are never written.
    LostRetests,
    /// The inbox messages of refs are never written.
    LostRefs,
    /// A report is read without its mail.
    LostMails,
    /// The count of consecutive failures is read as 0.
    UncountedFailures,
    /// Every other tested state lacks a job that an operator added for all projects.
    HalfReloads,
    /// A job is dropped although it matches the touched files.
    UnmatchedFiles,
    /// The tenant has no `max-dependencies`.
    UncountedDependencies,
    /// The tenant allows no dependencies.
    ZeroDependencies,
    /// Only the first nodeset of a job is read.
    FirstNodesets,
    /// The first nodeset of a job is skipped.
    SkippedNodesets,
    /// Jobs have no required projects.
    DroppedRequiredProjects,
    /// A report is read without its MQTT message.
    LostPublications,
    /// A success is published as a failure.
    MisreadPublications,
    /// Deferred events neither learn of a live layout nor are due, and the ledger does not list
    /// them.
    UnannouncedLayouts,
    /// The second item of a queue is sometimes retested although nothing ahead changed.
    NeedlessResets,
    /// The second item of a queue is retested on its branch although the item ahead may pass.
    LostSpeculation,
    /// A failing item of a queue counts as one whose jobs run.
    ForgottenFailures,
    /// The last item of a queue moves ahead of the one before.
    SwappedEntries,
    /// The own queue of a hosted change never names the host queue.
    LostResidencies,
    /// The merger does not learn which needs of a change have landed.
    ForgottenLandings,
    /// The tenant has no `max-changes-per-pipeline`.
    UncountedChanges,
    /// The tenant allows no changes in a pipeline.
    ZeroCapacity,
    /// Of several changes that one event brings in, the last one is dropped.
    CutTrees,
    /// Changes that one event brings in change their places where their dependencies allow it.
    SwappedTrees,
    /// A project that an operator removed from its tenant stays.
    KeptProjects,
    /// A change whose project was removed leaves as if it had a merge conflict.
    ReportedDepartures,
    /// A change of a project that only a change ahead of it adds to a pipeline is dropped.
    LostNewcomers,
}

/// A kind of record with a revision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cell {
    /// A queue's head.
    Queue,
    /// A provider's head.
    Provider,
    /// A tenant's head.
    Tenant,
    /// A landing.
    Landing,
    /// A delivery.
    Delivery,
    /// The processed events of a change.
    SeenEvents,
    /// A branch lock.
    Branch,
}

impl Cell {
    /// Returns whether a key belongs to this kind.
    fn is_head(self, key: &Key) -> bool {
        let prefix = match self {
            Self::Queue => "queue#",
            Self::Provider => "provider#",
            Self::Tenant => "tenant#",
            Self::Landing => "landing#",
            Self::Delivery => "delivery#",
            Self::SeenEvents => {
                return key.partition.starts_with("change#") && key.sort == "seen-events";
            }
            Self::Branch => return key.partition.starts_with("branch#") && key.sort == "lock",
        };
        key.partition.starts_with(prefix) && (self == Self::Landing || key.sort == "head")
    }
}

impl Mutation {
    /// Returns ports that break the rule.
    pub fn ports(self, ports: Ports) -> Ports {
        let records = Arc::new(Broken { inner: ports.records.clone(), mutation: self });
        let queues = Arc::new(BrokenQueues { inner: ports.queues.clone(), mutation: self });
        Ports { records, queues, ..ports }
    }

    /// Returns the main configuration with the rule broken.
    pub fn main_yaml(self, yaml: &str) -> String {
        let most = match self {
            Self::UncountedDependencies => "",
            Self::ZeroDependencies => "max-dependencies: 0, ",
            _ => max_dependencies::LIMIT,
        };
        let changes = match self {
            Self::UncountedChanges => "",
            Self::ZeroCapacity => "max-changes-per-pipeline: 0, ",
            _ => max_changes::LIMIT,
        };
        yaml.replace(max_dependencies::LIMIT, most).replace(max_changes::LIMIT, changes)
    }

    /// Returns whether records with this key are written without a check of their revision.
    fn breaks(self, key: &Key) -> bool {
        match self {
            Self::NoRevision(cell) => cell.is_head(key),
            Self::ClaimedTwice => key.partition.starts_with("build#") && key.sort == "run",
            Self::ClaimedThoughStopped => key.partition.starts_with("build#") && key.sort == "stop",
            Self::UncheckedSemaphore => key.partition.starts_with("semaphores#"),
            Self::OverwrittenReports => {
                key.partition.starts_with("report#") || key.partition.starts_with("buildset#")
            }
            _ => false,
        }
    }

    /// Returns a record as the functions read it.
    fn misread(self, mut record: Record) -> Record {
        let is_inbox_message = record.key.sort.starts_with("inbox#");
        let is_command = is_inbox_message
            && (record.body.contains("\"dequeue\"") || record.body.contains("\"promote\""));
        match self {
            Self::NoForgeClock if is_inbox_message => {
                record.body = with_number(&record.body, "\"as_of\":", "0")
            }
            Self::MisreadSuperseding
                if is_inbox_message && record.body.contains("\"superseded\"") =>
            {
                record.body = with_number(&record.body, "\"number\":", "4711");
            }
            Self::UnseenOutboxes if Cell::Queue.is_head(&record.key) => record.outbox.clear(),
            Self::IgnoredBranchLock if record.key.partition.starts_with("branch#") => {
                record.body = without(&record.body, "holder");
            }
            Self::ReopenedDeliveries if record.key.partition.starts_with("delivery#") => {
                record.body = with_field(&record.body, &["state"], |_| "accepted".into());
            }
            Self::ReopenedReports if record.key.partition.starts_with("report#") => {
                record.body = with_field(&record.body, &["state"], |_| "pending".into());
            }
            Self::UncountedFailures if record.key.partition.starts_with("health#") => {
                record.body = with_field(&record.body, &["failures"], |_| 0.into());
            }
            Self::LostMails
                if record.key.partition.starts_with("report#") && record.body.contains(LETTERS) =>
            {
                record.body = with_field(&record.body, &["actions"], |_| Value::Array(Vec::new()));
            }
            Self::LostPublications
                if record.key.partition.starts_with("report#")
                    && record.body.contains(BROADCAST) =>
            {
                record.body = with_field(&record.body, &["actions"], |_| Value::Array(Vec::new()));
            }
            Self::MisreadPublications if record.key.partition.starts_with("report#") => {
                record.body =
                    record.body.replace("\"occasion\":\"success\"", "\"occasion\":\"failure\"");
            }
            Self::EarlyReporterJobs if record.key.sort.starts_with("item#") => {
                record.body = record.body.replace("\"reporter\":true", "\"reporter\":false");
            }
            Self::DroppedJobs if record.key.partition.starts_with("merge#") => {
                record.body = with_field(&record.body, &["result", "merged", "jobs"], |jobs| {
                    without_job(jobs, "unit")
                });
            }
            Self::HeldThoughPassed if record.key.sort.starts_with("request#") => {
                record.body =
                    record.body.replace("\"result\":\"SUCCESS\"", "\"result\":\"FAILURE\"");
            }
            Self::IgnoredDiscards if record.key.partition.starts_with("tenant#") => {
                let (is_on, is_off) =
                    ("\"trigger_queue_discarding\":true", "\"trigger_queue_discarding\":false");
                record.body = record.body.replace(is_on, is_off);
            }
            Self::IgnoredEventPauses if record.key.partition.starts_with("tenant#") => {
                record.body = record
                    .body
                    .replace("\"trigger_queue_paused\":true", "\"trigger_queue_paused\":false");
            }
            Self::IgnoredResultPauses if record.key.partition.starts_with("tenant#") => {
                record.body = record
                    .body
                    .replace("\"result_queue_paused\":true", "\"result_queue_paused\":false");
            }
            _ if record.key.partition.starts_with("merge#") => {
                record.body = self.misread_answer(record.body)
            }
            Self::MisreadCommands if is_command => {
                record.body = with_number(&record.body, "\"number\":", "4711")
            }
            _ => {}
        }
        record
    }

    /// Returns a merge result as the gate reads it.
    fn misread_answer(self, body: String) -> String {
        match self {
            Self::ForgottenDependencies => {
                with_field(&body, &["result", "merged", "jobs"], |jobs| {
                    without_each(jobs, "dependencies")
                })
            }
            Self::HardDependencies => body.replace("\"soft\":true", "\"soft\":false"),
            Self::AllVote => body.replace("\"voting\":false", "\"voting\":true"),
            Self::IgnoredFailFast => body.replace("\"fail_fast\":true", "\"fail_fast\":false"),
            Self::NothingHolds => {
                body.replace("\"hold_following_changes\":true", "\"hold_following_changes\":false")
            }
            Self::NothingRequired => with_field(&body, &["result", "merged", "jobs"], |jobs| {
                without_each(jobs, "requires")
            }),
            Self::HalfReloads if body.len().is_multiple_of(2) => {
                with_field(&body, &["result", "merged", "jobs"], |jobs| without_job(jobs, SURPLUS))
            }
            Self::UnmatchedFiles => {
                with_field(&body, &["result", "merged", "jobs"], |jobs| without_job(jobs, DOCS))
            }
            Self::FirstNodesets => {
                with_field(&body, &["result", "merged", "jobs"], |jobs| with_nodesets(jobs, 0..1))
            }
            Self::SkippedNodesets => {
                with_field(&body, &["result", "merged", "jobs"], |jobs| with_nodesets(jobs, 1..2))
            }
            _ => body,
        }
    }

    /// Returns whether a write is dropped.
    fn forgets(self, write: &Write) -> bool {
        match write {
            Write::Put { record, .. } if self == Self::LostDependents => {
                record.key.sort.starts_with("inbox#") && record.body.contains("\"needs\":[{")
            }
            Write::Put { record, .. } if self == Self::UncountedHolds => {
                record.key.partition.starts_with("autohold#")
            }
            Write::Put { record, .. } if self == Self::LostChangeEvents => {
                record.key.partition.starts_with("delivery#") && record.body.contains("\"zuul:")
            }
            Write::Put { record, .. } if self == Self::LostRetests => {
                record.key.sort.starts_with("inbox#")
                    && ["/recheck/", "/follow/"]
                        .iter()
                        .any(|pipeline| record.key.partition.contains(pipeline))
            }
            Write::Put { record, .. } if self == Self::LostRefs => {
                record.key.sort.starts_with("inbox#")
                    && ["/manual/", "/release/", "/nightly/", "/sides/"]
                        .iter()
                        .any(|pipeline| record.key.partition.contains(pipeline))
            }
            Write::Put { record, .. } => match self {
                Self::LostResumes => record.key.sort == "resume",
                Self::LostStops => record.key.sort == "stop",
                _ => false,
            },
            Write::Check { key, .. } => {
                self == Self::NoFence && key.partition.starts_with("branch#")
            }
            Write::Delete { .. } => false,
        }
    }

    /// Removes the heads of other queues from a transaction; its own head comes first.
    fn without_residencies(self, mut writes: Vec<Write>) -> Vec<Write> {
        let mut is_own = true;
        writes.retain(|write| {
            let is_head = Cell::Queue.is_head(write.key());
            let stays = self != Self::LostResidencies || !is_head || is_own;
            is_own &= !is_head;
            stays
        });
        writes
    }

    /// Returns a write as it is stored.
    fn broken(self, write: Write) -> Write {
        if !self.breaks(write.key()) {
            return match write {
                Write::Put { mut record, expect } => {
                    match self {
                        Self::LostOutboxes => record.outbox.clear(),
                        Self::UncomparedTrees if Cell::Landing.is_head(&record.key) => {
                            let (mismatch, landed) =
                                ("{\"mismatch\":{\"landed\":", "{\"landed\":{\"commit\":");
                            record.body = record.body.replace(mismatch, landed);
                        }
                        Self::LostNewcomers if record.key.sort.starts_with("inbox#") => {
                            record.body = with_field(&record.body, &CANDIDATES, |candidates| {
                                without_titled(candidates, FOLLOWS)
                            });
                        }
                        Self::CutTrees if record.key.sort.starts_with("inbox#") => {
                            record.body = with_field(&record.body, &CANDIDATES, without_last);
                        }
                        Self::SwappedTrees if record.key.sort.starts_with("inbox#") => {
                            record.body = with_field(&record.body, &CANDIDATES, with_swapped);
                        }
                        Self::ReportedDepartures
                            if record.key.partition.starts_with("buildset#")
                                && record.body.contains(NO_LONGER_OF_TENANT) =>
                        {
                            record.body =
                                with_field(&record.body, &["result"], |_| "MERGE_CONFLICT".into());
                        }
                        Self::NothingDue => record.sweep_at = None,
                        Self::UnannouncedLayouts if is_deferred_event(&record) => {
                            record.sweep_at = None
                        }
                        Self::FallingGenerations if record.key.sort.starts_with("item#") => {
                            record.body =
                                with_field(&record.body, &["generation"], |was| {
                                    match was.as_u64() {
                                        Some(2..) => 0.into(),
                                        _ => was,
                                    }
                                });
                        }
                        Self::ForgottenLandings if record.key.sort.starts_with("item#") => {
                            let path = ["merge_status", "requested", "landed"];
                            record.body =
                                with_field(&record.body, &path, |_| Value::Array(Vec::new()));
                        }
                        Self::LayoutsAhead
                            if record.key.partition.starts_with("tenant#")
                                && record.key.sort == "head" =>
                        {
                            record.body =
                                with_field(&record.body, &["layout", "live"], |_| 4711.into());
                        }
                        Self::NeedlessResets
                            if Cell::Queue.is_head(&record.key)
                                && record.revision.is_multiple_of(NOW_AND_THEN) =>
                        {
                            record.body = with_field(&record.body, &["entries"], |entries| {
                                with_second(entries, next_generation)
                            });
                        }
                        Self::LostSpeculation if Cell::Queue.is_head(&record.key) => {
                            record.body = with_field(&record.body, &["entries"], |entries| {
                                with_second(entries, onto_branch)
                            });
                        }
                        Self::ForgottenFailures if Cell::Queue.is_head(&record.key) => {
                            record.body = with_field(&record.body, &["entries"], without_failures);
                        }
                        Self::SwappedEntries if Cell::Queue.is_head(&record.key) => {
                            record.body = with_field(&record.body, &["entries"], with_last_before);
                        }
                        Self::StretchedWindows if Cell::Queue.is_head(&record.key) => {
                            record.body = with_field(&record.body, &["window"], |_| 47.into());
                        }
                        Self::OtherModes if record.key.partition.starts_with("landing#") => {
                            record.body =
                                with_field(&record.body, &["mode"], |_| "squash-merge".into());
                        }
                        Self::DroppedProviders
                            if record.key.partition.starts_with("build#")
                                && record.key.sort == "order" =>
                        {
                            record.body = without(&record.body, "providers");
                        }
                        Self::DroppedRequirements
                            if record.key.partition.starts_with("landing#") =>
                        {
                            record.body = without(&record.body, "requirements");
                        }
                        _ => {}
                    }
                    Write::Put { record, expect }
                }
                other => other,
            };
        }
        match write {
            Write::Put { record, .. } => Write::Put { record, expect: Expect::Anything },
            Write::Delete { key, .. } => Write::Delete { key, expect: Expect::Anything },
            Write::Check { key, .. } => Write::Check { key, expect: Expect::Anything },
        }
    }
}

/// Returns whether a record is a deferred event.
fn is_deferred_event(record: &Record) -> bool {
    record.key.partition.starts_with("delivery#") && record.body.contains("\"forge_id\":\"later:")
}

/// Records with a broken rule.
struct Broken {
    inner: Arc<dyn Records>,
    mutation: Mutation,
}

#[async_trait]
impl Records for Broken {
    async fn get(&self, keys: &[Key]) -> Result<Vec<Option<Record>>, PortError> {
        let records = self.inner.get(keys).await?;
        Ok(records
            .into_iter()
            .map(|record| record.map(|record| self.mutation.misread(record)))
            .collect())
    }

    async fn query(&self, query: &Query) -> Result<Vec<Record>, PortError> {
        let records = self.inner.query(query).await?;
        let is_seen = |record: &Record| match self.mutation {
            Mutation::UncountedNodes => !record.key.sort.starts_with("node#"),
            Mutation::UnannouncedLayouts => !record.key.sort.starts_with(DEFERRED),
            _ => true,
        };
        Ok(records
            .into_iter()
            .filter(is_seen)
            .map(|record| self.mutation.misread(record))
            .collect())
    }

    async fn due(&self, shard: u32, until: Timestamp, limit: usize) -> Result<Vec<Key>, PortError> {
        self.inner.due(shard, until, limit).await
    }

    async fn find(
        &self,
        partition: &str,
        before: Option<&str>,
        limit: usize,
    ) -> Result<Vec<Key>, PortError> {
        match self.mutation {
            // The ledger would have unsent outboxes woken.
            Mutation::LostOutboxes | Mutation::UnannouncedLayouts
                if partition.starts_with("open") =>
            {
                Ok(Vec::new())
            }
            _ => self.inner.find(partition, before, limit).await,
        }
    }

    async fn commit(
        &self,
        writes: Vec<Write>,
        write_id: &str,
    ) -> Result<TransactionOutcome, PortError> {
        let writes = writes.into_iter().filter(|write| !self.mutation.forgets(write));
        let writes: Vec<Write> = writes.map(|write| self.mutation.broken(write)).collect();
        let writes = self.mutation.without_residencies(writes);
        if writes.is_empty() && self.mutation == Mutation::LostDependents {
            return Ok(TransactionOutcome::Written);
        }
        if self.mutation != Mutation::TornTransactions || writes.len() < 2 {
            return self.inner.commit(writes, write_id).await;
        }
        let (head, rest) = writes.split_at(1);
        let committed = self.inner.commit(head.to_vec(), write_id).await?;
        let anyhow = rest.iter().filter_map(|write| match write {
            Write::Put { record, .. } => {
                Some(Write::Put { record: record.clone(), expect: Expect::Anything })
            }
            Write::Delete { key, .. } => {
                Some(Write::Delete { key: key.clone(), expect: Expect::Anything })
            }
            Write::Check { .. } => None,
        });
        self.inner.commit(anyhow.collect(), write_id).await?;
        Ok(committed)
    }
}

/// Message queues with a broken rule.
struct BrokenQueues {
    inner: Arc<dyn Queues>,
    mutation: Mutation,
}

#[async_trait]
impl Queues for BrokenQueues {
    async fn send(&self, queue: MessageQueue, messages: Vec<Outgoing>) -> Result<(), PortError> {
        match self.mutation {
            Mutation::Mute(mute) if mute == queue => Ok(()),
            _ => self.inner.send(queue, messages).await,
        }
    }

    async fn receive(
        &self,
        queue: MessageQueue,
        max: u32,
        wait: u32,
        visibility: u32,
    ) -> Result<Vec<Incoming>, PortError> {
        self.inner.receive(queue, max, wait, visibility).await
    }

    async fn acknowledge(&self, queue: MessageQueue, receipt: &str) -> Result<(), PortError> {
        self.inner.acknowledge(queue, receipt).await
    }

    async fn acknowledge_all(
        &self,
        queue: MessageQueue,
        receipts: &[String],
    ) -> Result<(), PortError> {
        self.inner.acknowledge_all(queue, receipts).await
    }

    async fn postpone(
        &self,
        queue: MessageQueue,
        receipt: &str,
        seconds: u32,
    ) -> Result<(), PortError> {
        self.inner.postpone(queue, receipt, seconds).await
    }
}
