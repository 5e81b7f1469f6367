//! Ports and people that break a rule on purpose, so that a test can show that the simulator would
//! notice.

mod texts;

use crate::plays::few_needs;
use crate::plays::files::DOCS;
use crate::plays::mails::LETTERS;
use crate::plays::publications::BROADCAST;
use crate::plays::reloads::SURPLUS;
use crate::plays::room;
use async_trait::async_trait;
use serde_json::Value;
use sluice_model::Timestamp;
use sluice_model::poke::Queue;
use sluice_records::tenant::WAITING;
use sluice_runtime::port::{Incoming, Outgoing};
use sluice_runtime::record::{Committed, Expect, Key, Query, Record, Write};
use sluice_runtime::{PortError, Ports, Queues, Records};
use std::sync::Arc;
use texts::{
    anew, aside, with_field, with_last_before, with_nodesets, with_number, with_second, without,
    without_each, without_job,
};

/// Of so many revisions of a queue one is written otherwise, where that is done now and then.
const NOW_AND_THEN: u64 = 8;

/// A rule that is broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mutation {
    /// A head is written whatever revision was seen: two functions that look at one cell overwrite
    /// each other.
    NoRevision(Cell),
    /// A build's run is written though there is one: two executors own it.
    ClaimedTwice,
    /// A build is claimed though somebody wanted it stopped.
    ClaimedThoughStopped,
    /// A semaphore is taken whatever it was when it was read.
    UncheckedSemaphore,
    /// What goes with a head is written though the transaction is lost.
    TornTransactions,
    /// Every error acknowledges the message that led to it.
    AcknowledgedErrors,
    /// No outbox is kept, so that only what was sent at once is sent, and the ledger lists nothing
    /// that waits for it.
    LostOutboxes,
    /// Messages of this queue are not sent.
    Mute(Queue),
    /// Nothing is ever due: whoever waits, waits for ever.
    NothingDue,
    /// An executor calls what does not pass a success.
    LyingExecutor,
    /// The forge merges more than it was asked to, and nobody tells the oracle.
    LyingForge,
    /// An executor's end is never written.
    ForgottenEnds,
    /// What arrives at a queue says nothing of its forge's clock.
    NoForgeClock,
    /// A function takes an operator to speak of another change than the one that was named.
    MisheardOperators,
    /// A queue takes another change for the one that entered a pipeline which supersedes its own.
    MisheardSuperseding,
    /// What tells of an item is written as told whoever told of it meanwhile, and whether or not
    /// the item has ended.
    UnseenReports,
    /// A landing does not say what its pipeline asks.
    ForgottenAsks,
    /// Nobody handles the messages of this queue.
    Unserved(Queue),
    /// A delivery that has ended is read as one that was just accepted.
    ReopenedDeliveries,
    /// A report that was made is read as one that is wanted.
    ReopenedReports,
    /// An item that is tested anew is written in the generation before its first.
    FallingGenerations,
    /// A layout is made live that nobody wants yet.
    LayoutsAhead,
    /// A launcher does not see the nodes that are there.
    UncountedNodes,
    /// A branch is taken to be free to land on though somebody lands there.
    OutOfTurn,
    /// A landing begins whether or not somebody took its branch since it was ordered.
    NoFence,
    /// A window is wider than it may be.
    StretchedWindows,
    /// A landing is carried out in another way than its project says.
    OtherModes,
    /// Changes that nobody reviewed are tested in a pipeline for those that somebody did.
    LeakyPipeline,
    /// A push brings what was to be tested behind what it names as well, whether or not that
    /// passed.
    Overreach,
    /// A job that runs after the report is read as one of those that decide about the change.
    EarlyReporters,
    /// One of the jobs that an item is to have is read as if it had not been asked for.
    DroppedJobs,
    /// What brings a change to a queue that depends on others is never written.
    LostDependents,
    /// No executor looks after builds that it claimed without having been told.
    UnsettledClaims,
    /// What an item is tested as names jobs, and nothing that they depend on.
    ForgottenDependencies,
    /// A job that is to wait for another one is taken to need its success.
    HardDependencies,
    /// A job that does not vote is taken to vote.
    AllVote,
    /// What a job returns does not say which of those behind it are to be run.
    UntoldChoices,
    /// A paused build goes on before anybody says so.
    HastyResumes,
    /// Nobody writes that a paused build may go on.
    LostResumes,
    /// A project is taken not to mind that jobs go on whose change has failed.
    PatientProjects,
    /// A job is taken not to hold what is behind its change.
    NothingHolds,
    /// A job is taken to require nothing of the changes before its own.
    NothingRequired,
    /// An order does not say what the job is given.
    EmptyHands,
    /// A build that passed is taken for one that failed, of which somebody may want the nodes.
    HeldThoughPassed,
    /// Nobody counts whose nodes are kept.
    UncountedHolds,
    /// Nobody hears that an operator has events discarded.
    UnheardDiscards,
    /// Nobody hears that an operator has events wait.
    UnheardPauses,
    /// Nobody hears that an operator has answers wait.
    HastyAnswers,
    /// What tells other changes of what happened to one is never written.
    UntoldMerges,
    /// What brings a change to the queue in which it is tested since something happened to another
    /// one is never written.
    LostRetests,
    /// What brings a ref to the queue of a pipeline of its own is never written.
    LostRefs,
    /// A report is read as if it had no mail sent.
    LostMails,
    /// Nobody sees how many changes failed in a row.
    UncountedFailures,
    /// Of every other tested state a job is left out that an operator added for all.
    HalfReloads,
    /// A job is left out though a file is touched that it is for.
    UnmatchedFiles,
    /// Nobody counts how many others a change needs.
    UncountedNeeds,
    /// A change that needs any other one is taken to need too many.
    NoNeeds,
    /// Of a job's nodesets nobody sees but the first.
    FirstNodesets,
    /// The first of a job's nodesets is passed over, though nobody has asked for it.
    HastyNodesets,
    /// No job says which projects it is given.
    UntoldProjects,
    /// A report is read as if it had nothing published.
    LostPublications,
    /// What passed is published as what failed.
    MisreadPublications,
    /// What is kept for a layout that is on its way neither is told that it is live nor looks by
    /// itself, and the ledger lists nothing.
    UntoldLayouts,
    /// Now and then what is tested second in a queue is tested anew, though nothing ahead of it
    /// changed.
    NeedlessResets,
    /// What is tested anew second in a queue is so on its branch, also where what is ahead of it
    /// may pass.
    StaysAside,
    /// What comes last in a queue takes the place of what came before it.
    SwappedPlaces,
    /// The own queue of a change never says that this stands in another one, as one with others.
    LostGuests,
    /// Nobody tells whoever merges what has landed of what a change needs.
    ForgottenLandings,
    /// Nobody counts how many changes a pipeline holds.
    UncountedChanges,
    /// A pipeline is taken to have no room for any change.
    NoRoom,
}

/// Whose head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cell {
    /// A change queue's.
    Queue,
    /// A provider's.
    Provider,
    /// A tenant's.
    Tenant,
    /// A landing's record, which is a head of its own.
    Landing,
    /// A delivery's record.
    Delivery,
    /// What was told of a change.
    Told,
    /// Whose turn it is to land on a branch.
    Branch,
}

impl Cell {
    fn is_head(self, key: &Key) -> bool {
        let prefix = match self {
            Self::Queue => "queue#",
            Self::Provider => "provider#",
            Self::Tenant => "tenant#",
            Self::Landing => "landing#",
            Self::Delivery => "delivery#",
            Self::Told => return key.partition.starts_with("change#") && key.sort == "told",
            Self::Branch => return key.partition.starts_with("branch#") && key.sort == "turn",
        };
        key.partition.starts_with(prefix) && (self == Self::Landing || key.sort == "head")
    }
}

impl Mutation {
    /// Returns these ports with the rule broken.
    pub fn ports(self, ports: Ports) -> Ports {
        let records = Arc::new(Broken { inner: ports.records.clone(), mutation: self });
        let queues = Arc::new(BrokenQueues { inner: ports.queues.clone(), mutation: self });
        Ports { records, queues, ..ports }
    }

    /// Returns the main configuration as it is read.
    pub fn main_yaml(self, yaml: &str) -> String {
        let most = match self {
            Self::UncountedNeeds => "",
            Self::NoNeeds => "max-dependencies: 0, ",
            _ => few_needs::LIMIT,
        };
        let changes = match self {
            Self::UncountedChanges => "",
            Self::NoRoom => "max-changes-per-pipeline: 0, ",
            _ => room::LIMIT,
        };
        yaml.replace(few_needs::LIMIT, most).replace(room::LIMIT, changes)
    }

    /// Returns whether it is the replay that has to notice it; elsewhere it notices too much.
    pub fn is_for_replay(self) -> bool {
        matches!(self, Self::NeedlessResets | Self::StaysAside | Self::SwappedPlaces)
    }

    fn breaks(self, key: &Key) -> bool {
        match self {
            Self::NoRevision(cell) => cell.is_head(key),
            Self::ClaimedTwice => key.partition.starts_with("build#") && key.sort == "run",
            Self::ClaimedThoughStopped => key.partition.starts_with("build#") && key.sort == "stop",
            Self::UncheckedSemaphore => key.partition.starts_with("semaphores#"),
            Self::UnseenReports => {
                key.partition.starts_with("report#") || key.partition.starts_with("buildset#")
            }
            _ => false,
        }
    }

    fn misread(self, mut record: Record) -> Record {
        let is_arrival = record.key.sort.starts_with("arrival#");
        let is_word = is_arrival
            && (record.body.contains("\"dequeue\"") || record.body.contains("\"promote\""));
        match self {
            Self::NoForgeClock if is_arrival => {
                record.body = with_number(&record.body, "\"as_of\":", "0")
            }
            Self::MisheardSuperseding if is_arrival && record.body.contains("\"superseded\"") => {
                record.body = with_number(&record.body, "\"number\":", "4711");
            }
            Self::OutOfTurn if record.key.partition.starts_with("branch#") => {
                record.body = without(&record.body, "holder");
            }
            Self::ReopenedDeliveries if record.key.partition.starts_with("delivery#") => {
                record.body = with_field(&record.body, &["state"], |_| "accepted".into());
            }
            Self::ReopenedReports if record.key.partition.starts_with("report#") => {
                record.body = with_field(&record.body, &["state"], |_| "wanted".into());
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
            Self::EarlyReporters if record.key.sort.starts_with("item#") => {
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
            Self::UnheardDiscards if record.key.partition.starts_with("tenant#") => {
                let (is_on, is_off) =
                    ("\"trigger_queue_discarding\":true", "\"trigger_queue_discarding\":false");
                record.body = record.body.replace(is_on, is_off);
            }
            Self::UnheardPauses if record.key.partition.starts_with("tenant#") => {
                record.body = record
                    .body
                    .replace("\"trigger_queue_paused\":true", "\"trigger_queue_paused\":false");
            }
            Self::HastyAnswers if record.key.partition.starts_with("tenant#") => {
                record.body = record
                    .body
                    .replace("\"result_queue_paused\":true", "\"result_queue_paused\":false");
            }
            _ if record.key.partition.starts_with("merge#") => {
                record.body = self.misread_answer(record.body)
            }
            Self::MisheardOperators if is_word => {
                record.body = with_number(&record.body, "\"number\":", "4711")
            }
            _ => {}
        }
        record
    }

    /// Returns how a merger's answer is misread.
    fn misread_answer(self, body: String) -> String {
        match self {
            Self::ForgottenDependencies => {
                with_field(&body, &["result", "merged", "jobs"], |jobs| {
                    without_each(jobs, "dependencies")
                })
            }
            Self::HardDependencies => body.replace("\"soft\":true", "\"soft\":false"),
            Self::AllVote => body.replace("\"voting\":false", "\"voting\":true"),
            Self::PatientProjects => body.replace("\"fail_fast\":true", "\"fail_fast\":false"),
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
            Self::HastyNodesets => {
                with_field(&body, &["result", "merged", "jobs"], |jobs| with_nodesets(jobs, 1..2))
            }
            _ => body,
        }
    }

    /// Returns whether a write is forgotten.
    fn forgets(self, write: &Write) -> bool {
        match write {
            Write::Put { record, .. } if self == Self::LostDependents => {
                record.key.sort.starts_with("arrival#") && record.body.contains("\"needs\":[{")
            }
            Write::Put { record, .. } if self == Self::UncountedHolds => {
                record.key.partition.starts_with("autohold#")
            }
            Write::Put { record, .. } if self == Self::UntoldMerges => {
                record.key.partition.starts_with("delivery#") && record.body.contains("\"zuul:")
            }
            Write::Put { record, .. } if self == Self::LostRetests => {
                record.key.sort.starts_with("arrival#")
                    && ["/recheck/", "/follow/"]
                        .iter()
                        .any(|pipeline| record.key.partition.contains(pipeline))
            }
            Write::Put { record, .. } if self == Self::LostRefs => {
                record.key.sort.starts_with("arrival#")
                    && ["/manual/", "/release/", "/nightly/", "/sides/"]
                        .iter()
                        .any(|pipeline| record.key.partition.contains(pipeline))
            }
            Write::Put { record, .. } => self == Self::LostResumes && record.key.sort == "resume",
            Write::Check { key, .. } => {
                self == Self::NoFence && key.partition.starts_with("branch#")
            }
            Write::Delete { .. } => false,
        }
    }

    /// Returns what a decision writes without what it has other queues' heads say: its own comes
    /// first.
    fn without_guests(self, mut writes: Vec<Write>) -> Vec<Write> {
        let mut is_own = true;
        writes.retain(|write| {
            let is_head = Cell::Queue.is_head(write.key());
            let stays = self != Self::LostGuests || !is_head || is_own;
            is_own &= !is_head;
            stays
        });
        writes
    }

    fn broken(self, write: Write) -> Write {
        if !self.breaks(write.key()) {
            return match write {
                Write::Put { mut record, expect } => {
                    match self {
                        Self::LostOutboxes => record.outbox.clear(),
                        Self::NothingDue => record.look_at = None,
                        Self::UntoldLayouts if is_kept_for_later(&record) => record.look_at = None,
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
                            let path = ["ask", "asked", "landed"];
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
                            record.body = with_field(&record.body, &["slots"], |slots| {
                                with_second(slots, anew)
                            });
                        }
                        Self::StaysAside if Cell::Queue.is_head(&record.key) => {
                            record.body = with_field(&record.body, &["slots"], |slots| {
                                with_second(slots, aside)
                            });
                        }
                        Self::SwappedPlaces if Cell::Queue.is_head(&record.key) => {
                            record.body = with_field(&record.body, &["slots"], with_last_before);
                        }
                        Self::StretchedWindows if Cell::Queue.is_head(&record.key) => {
                            record.body = with_field(&record.body, &["window"], |_| 47.into());
                        }
                        Self::OtherModes if record.key.partition.starts_with("landing#") => {
                            record.body =
                                with_field(&record.body, &["mode"], |_| "squash-merge".into());
                        }
                        Self::EmptyHands
                            if record.key.partition.starts_with("build#")
                                && record.key.sort == "order" =>
                        {
                            record.body = without(&record.body, "providers");
                        }
                        Self::ForgottenAsks if record.key.partition.starts_with("landing#") => {
                            record.body = without(&record.body, "asks");
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

/// Returns whether a record is a delivery that goes on with an event once a layout is live that was
/// on its way when it came.
fn is_kept_for_later(record: &Record) -> bool {
    record.key.partition.starts_with("delivery#") && record.body.contains("\"forge_id\":\"later:")
}

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
            Mutation::UntoldLayouts => !record.key.sort.starts_with(WAITING),
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
            // It would have whatever was not sent poked.
            Mutation::LostOutboxes | Mutation::UntoldLayouts if partition.starts_with("open") => {
                Ok(Vec::new())
            }
            _ => self.inner.find(partition, before, limit).await,
        }
    }

    async fn commit(&self, writes: Vec<Write>, write_id: &str) -> Result<Committed, PortError> {
        let writes = writes.into_iter().filter(|write| !self.mutation.forgets(write));
        let writes: Vec<Write> = writes.map(|write| self.mutation.broken(write)).collect();
        let writes = self.mutation.without_guests(writes);
        if writes.is_empty() && self.mutation == Mutation::LostDependents {
            return Ok(Committed::Yes);
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

struct BrokenQueues {
    inner: Arc<dyn Queues>,
    mutation: Mutation,
}

#[async_trait]
impl Queues for BrokenQueues {
    async fn send(&self, queue: Queue, messages: Vec<Outgoing>) -> Result<(), PortError> {
        match self.mutation {
            Mutation::Mute(mute) if mute == queue => Ok(()),
            _ => self.inner.send(queue, messages).await,
        }
    }

    async fn receive(
        &self,
        queue: Queue,
        max: u32,
        wait: u32,
        visibility: u32,
    ) -> Result<Vec<Incoming>, PortError> {
        self.inner.receive(queue, max, wait, visibility).await
    }

    async fn acknowledge(&self, queue: Queue, receipt: &str) -> Result<(), PortError> {
        self.inner.acknowledge(queue, receipt).await
    }

    async fn acknowledge_all(&self, queue: Queue, receipts: &[String]) -> Result<(), PortError> {
        self.inner.acknowledge_all(queue, receipts).await
    }

    async fn postpone(&self, queue: Queue, receipt: &str, seconds: u32) -> Result<(), PortError> {
        self.inner.postpone(queue, receipt, seconds).await
    }
}
