//! Claiming builds and ending them: the executor's half of the contract with the gate (Z7.6).
//!
//! A claim is one transaction: the run must not exist, nobody may want the build stopped, and the
//! request for its nodes must still be the one that was read; it becomes *claimed*, so nodes are
//! never taken away and used at once. Builds that came together are claimed in one transaction, and
//! each by itself where that one is lost. The end is one transaction too, and its request becomes
//! *ended*. Every later write shows the run's revision: whoever lost it writes nothing.
//!
//! No outbox is kept here. A queue looks after builds that it ordered by itself, and so does a
//! provider after requests; what is sent at the end only makes them sooner.

mod unheard;

use crate::inherited::inherited;
use crate::job::Inherited;
use crate::kept::Kept;
use crate::returned;
use futures::future::join_all;
use sluice_model::build::{BuildResult, Ended, Order, Pause, Phase, RequestRef, Run, Speculation};
use sluice_model::job::{FrozenJob, JobGraph};
use sluice_model::node::NodeAccess;
use sluice_model::poke::Poke;
use sluice_model::{BuildId, JobName, NodeId, SessionId};
use sluice_pool::{Node, Request, RequestState, Row};
use sluice_records::codec::{decode, get, with_body};
use sluice_records::{build, provider};
use sluice_runtime::batch::LookError;
use sluice_runtime::record::{Expect, Key, Record, TRANSACTION_RECORDS_MAX, Write};
use sluice_runtime::{Commit, PortError, Ports, Saved, cell};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

/// Keys that one call may name (the limit of DynamoDB's BatchGetItem).
const KEYS_MAX: usize = 100;
/// Job graphs, and tested states, that are kept in memory: builds of one item follow each other
/// closely.
const OBJECTS_KEPT: usize = 16;

/// A build that this executor owns.
pub struct Claimed {
    /// The run's record as it is stored.
    pub record: Record,
    /// The run.
    pub run: Run,
    /// What the gate asks for.
    pub order: Order,
    /// The frozen job.
    pub job: FrozenJob,
    /// Jobs that wait for this one.
    pub child_jobs: Vec<JobName>,
    /// The tested state.
    pub speculation: Arc<Speculation>,
    /// What the jobs before it left it.
    pub inherited: Inherited,
    /// Its nodes, in the nodeset's order.
    pub nodes: Vec<NodeAccess>,
    /// The request for its nodes as it is stored, until its end was written.
    request: Option<(Record, Request)>,
}

/// A build that an executor was sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asked {
    /// The build.
    pub build: BuildId,
    /// Keys that came with it. The records decide: what was not named is read after them.
    pub request: Option<RequestRef>,
    /// The same of its nodes.
    pub nodes: Vec<NodeId>,
}

impl Asked {
    /// Returns what a message asks for; `None` when it is no build.
    pub fn of(poke: Poke) -> Option<Self> {
        match poke {
            Poke::Build { build, request, nodes, .. } => Some(Self { build, request, nodes }),
            _ => None,
        }
    }

    fn keys(&self) -> Vec<Key> {
        let mut keys = vec![
            build::order_key(&self.build),
            build::stop_key(&self.build),
            build::run_key(&self.build),
        ];
        if let Some(at) = &self.request {
            keys.push(request_key(at));
            keys.extend(self.nodes.iter().map(|node| provider::node_key(&at.provider, node)));
        }
        keys
    }
}

/// Claims builds for one life of an executor.
pub struct Claims {
    ports: Ports,
    session: SessionId,
    log_root: Option<String>,
    graphs: Kept<JobGraph>,
    states: Kept<Speculation>,
    /// Builds whose claim may be written though its answer was lost.
    doubtful: Mutex<BTreeSet<BuildId>>,
}

impl Claims {
    /// Makes claims for a session; live logs are read below `log_root`, which ends in `/`.
    pub fn new(ports: Ports, session: SessionId, log_root: Option<String>) -> Self {
        let (graphs, states) = (Kept::new(OBJECTS_KEPT), Kept::new(OBJECTS_KEPT));
        Self { ports, session, log_root, graphs, states, doubtful: Mutex::default() }
    }

    /// Claims builds that came together, and returns for each in their order what became of it.
    /// `None`: there is nothing to do, for it was stopped, somebody else has it, or its nodes are
    /// gone. An error: its message comes again.
    ///
    /// The caller asks only for builds that it does not run already, and for none twice.
    pub async fn claim(&self, asked: &[Asked]) -> Vec<Result<Option<Claimed>, LookError>> {
        let mut seen = Seen::default();
        if let Err(error) = self.read(asked, &mut seen).await {
            return asked.iter().map(|_| Err(LookError::Again(error.to_string()))).collect();
        }
        let mut ready = Vec::new();
        let mut claims: Vec<_> = Vec::new();
        for prepared in join_all(asked.iter().map(|asked| self.prepare(&asked.build, &seen))).await
        {
            claims.push(match prepared {
                Ok(Some(Prepared { claimed, others })) => {
                    ready.push((claims.len(), claimed, others));
                    Ok(None)
                }
                Ok(None) => Ok(None),
                Err(error) => Err(error),
            });
        }
        for (at, claim) in self.write(ready).await {
            claims[at] = claim;
        }
        let mut doubtful = self.doubtful();
        for (asked, claim) in asked.iter().zip(&claims) {
            match claim {
                Ok(_) => doubtful.remove(&asked.build),
                Err(_) => doubtful.insert(asked.build.clone()),
            };
        }
        drop(doubtful);
        claims
    }

    /// Reads everything about builds, in one call where the messages named it all.
    async fn read(&self, asked: &[Asked], seen: &mut Seen) -> Result<(), PortError> {
        seen.read(&self.ports, asked.iter().flat_map(Asked::keys)).await?;
        let requests: Vec<RequestRef> =
            asked.iter().filter_map(|asked| seen.order(&asked.build)?.request).collect();
        seen.read(&self.ports, requests.iter().map(request_key)).await?;
        let mut nodes = Vec::new();
        for at in &requests {
            let request =
                seen.found.get(&request_key(at)).and_then(|record| decode::<Request>(record).ok());
            let ids = request.iter().flat_map(Request::nodes);
            nodes.extend(ids.map(|node| provider::node_key(&at.provider, node)));
        }
        seen.read(&self.ports, nodes.into_iter()).await
    }

    /// Finds everything that a build needs, and what its claim writes.
    async fn prepare(&self, id: &BuildId, seen: &Seen) -> Result<Option<Prepared>, LookError> {
        let Some(order) = seen.found.get(&build::order_key(id)) else { return Ok(None) };
        if let Some(stop) = seen.found.get(&build::stop_key(id)) {
            let why = build::stop_of(stop).why;
            tracing::info!(build = %id, why, "a build was stopped before it was run");
            if let Ok(Some(mine)) = self.own_run(id, seen) {
                self.end_unheard(&decode::<Order>(order)?, mine, seen, (BuildResult::Aborted, why))
                    .await?;
            }
            return Ok(None);
        }
        // Claimed by this very life, which was never told so.
        let mine = self.own_run(id, seen)?;
        if mine.is_none() && seen.found.contains_key(&build::run_key(id)) {
            return Ok(None);
        }
        let order: Order = decode(order)?;
        let (request, nodes) = match &order.request {
            None => (None, Vec::new()),
            Some(at) => match seen.request(at, mine.is_some())? {
                None => {
                    if let Some(mine) = mine {
                        let why = "Its nodes were taken away before it began.".to_owned();
                        self.end_unheard(&order, mine, seen, (BuildResult::Retry, why)).await?;
                    }
                    return Ok(None);
                }
                Some((record, request)) => {
                    let nodes = seen.nodes(at, &request)?;
                    (Some((record, request)), nodes)
                }
            },
        };
        let (job, child_jobs) = self.job(&order).await?;
        let speculation = self.states.open(&self.ports, &order.speculation).await?;
        let nodes = access(&job, nodes)?;
        let inherited = inherited(&self.ports, &order).await?;
        let NewRun { record, run, request, others } = match mine {
            // It is written once more: its queue may have given it up meanwhile, since nobody ran
            // it.
            Some((record, run)) => NewRun { record, run, request, others: vec![not_stopped(id)] },
            None => self.new_run(id, request)?,
        };
        let claimed =
            Claimed { record, run, order, job, child_jobs, speculation, inherited, nodes, request };
        Ok(Some(Prepared { claimed, others }))
    }

    /// Returns the job of an order, and the jobs that wait for it.
    async fn job(&self, order: &Order) -> Result<(FrozenJob, Vec<JobName>), LookError> {
        let graph = self.graphs.open(&self.ports, &order.graph).await?;
        let waits = |job: &&FrozenJob| job.dependencies.iter().any(|other| other.name == order.job);
        let child_jobs = graph.jobs.iter().filter(waits).map(|job| job.name.clone()).collect();
        match graph.jobs.iter().find(|job| job.name == order.job) {
            Some(job) => Ok((with_nodeset(job.clone(), order.nodeset), child_jobs)),
            None => Err(LookError::Broken {
                partition: build::partition(&order.build),
                reason: format!("{} has no job {}", order.graph, order.job),
            }),
        }
    }

    /// Returns a run that was never stored, with what is written beside it.
    fn new_run(
        &self,
        id: &BuildId,
        request: Option<(Record, Request)>,
    ) -> Result<NewRun, LookError> {
        let now = self.ports.clock.now();
        let run = Run {
            build: id.clone(),
            session: self.session.clone(),
            fence: 1,
            phase: Phase::Running,
            claimed_at: now,
            log: self.log_root.as_ref().map(|root| format!("{root}{id}")),
        };
        // Whoever stopped it meanwhile may have given its nodes away.
        let mut others = vec![not_stopped(id)];
        let claimed = match request {
            None => None,
            Some((record, request)) => {
                let request = request.claimed(now).ok_or_else(|| raced(id))?;
                let (record, write) = next(record, &request)?;
                others.push(write);
                Some((record, request))
            }
        };
        Ok(NewRun { record: build::new_run(&run)?, run, request: claimed, others })
    }

    /// Writes the runs of builds that came together, and their requests as claimed.
    async fn write(&self, ready: Vec<Ready>) -> Vec<(usize, Result<Option<Claimed>, LookError>)> {
        let mut written = Vec::with_capacity(ready.len());
        let (stored, new): (Vec<Ready>, Vec<Ready>) =
            ready.into_iter().partition(|(_, claimed, _)| claimed.record.revision > 0);
        written.extend(join_all(stored.into_iter().map(|ready| self.write_one(ready))).await);
        let mut ready = new.into_iter();
        loop {
            // Each writes up to three records.
            let mut some: Vec<Ready> = ready.by_ref().take(TRANSACTION_RECORDS_MAX / 3).collect();
            match some.len() {
                0 => return written,
                1 => {}
                _ => match self.write_together(&mut some).await {
                    Ok(Saved::Yes(_)) => {
                        written.extend(
                            some.into_iter().map(|(at, claimed, _)| (at, Ok(Some(claimed)))),
                        );
                        continue;
                    }
                    // One of them was claimed or stopped by somebody else, or its request was
                    // written: the others go on.
                    Ok(Saved::Stale) => {}
                    Err(error) => {
                        let why = error.to_string();
                        written.extend(
                            some.into_iter()
                                .map(|(at, ..)| (at, Err(LookError::Again(why.clone())))),
                        );
                        continue;
                    }
                },
            }
            written.extend(join_all(some.into_iter().map(|ready| self.write_one(ready))).await);
        }
    }

    /// Writes several claims, all or none.
    async fn write_together(&self, some: &mut [Ready]) -> Result<Saved, PortError> {
        let token = self.ports.entropy.token();
        let mut writes = Vec::new();
        for (_, claimed, others) in some.iter() {
            let record = Record { revision: 1, write_id: token.clone(), ..claimed.record.clone() };
            writes.push(Write::Put { record, expect: Expect::Absent });
            writes.extend(others.iter().cloned());
        }
        // The first stands for all of them: what it is as it was written, they all are.
        let head = some[0].1.record.clone();
        let plan = Commit { head, others: writes.split_off(1), pokes: Vec::new(), due: None };
        let saved = cell::commit(&self.ports, plan).await?;
        if let Saved::Yes(head) = &saved {
            for (_, claimed, _) in some.iter_mut().skip(1) {
                claimed.record =
                    Record { revision: 1, write_id: token.clone(), ..claimed.record.clone() };
            }
            some[0].1.record = head.clone();
        }
        Ok(saved)
    }

    async fn write_one(&self, ready: Ready) -> (usize, Result<Option<Claimed>, LookError>) {
        let (at, claimed, others) = ready;
        let plan = Commit { head: claimed.record.clone(), others, pokes: Vec::new(), due: None };
        let claim = match cell::commit(&self.ports, plan).await {
            Ok(Saved::Yes(record)) => Ok(Some(Claimed { record, ..claimed })),
            // Somebody claimed it, stopped it or wrote its request: the next look tells which.
            Ok(Saved::Stale) => Err(raced(&claimed.run.build)),
            Err(error) => Err(error.into()),
        };
        (at, claim)
    }
}

/// A run as it is to be stored.
struct NewRun {
    record: Record,
    run: Run,
    /// Its request as claimed.
    request: Option<(Record, Request)>,
    /// What is written beside it.
    others: Vec<Write>,
}

/// A build that may be run as soon as its claim is written.
struct Prepared {
    claimed: Claimed,
    /// What is written beside its run.
    others: Vec<Write>,
}

/// The place of a build among those asked for, what is known of it, and what is written beside its
/// run.
type Ready = (usize, Claimed, Vec<Write>);

/// Says that a build will fail, so that its queue need not wait for the end (G05).
///
/// # Errors
/// When the store does not answer, the run is no longer ours, or the queue may not have been
/// reached.
pub async fn will_fail(ports: &Ports, claimed: &mut Claimed) -> Result<(), LookError> {
    let run = Run { phase: Phase::Failing, ..claimed.run.clone() };
    let head = build::next_run(&claimed.record, &run)?;
    match cell::commit(ports, Commit { head, others: Vec::new(), pokes: Vec::new(), due: None })
        .await?
    {
        Saved::Yes(record) => (claimed.record, claimed.run) = (record, run),
        Saved::Stale => {
            return Err(LookError::Again(format!(
                "the run of {} was written by somebody else",
                run.build
            )));
        }
    }
    Ok(cell::send(ports, &[Poke::Queue { queue: claimed.order.queue.clone() }]).await?)
}

/// Says that a build waits for the jobs behind it, and what it returned for them. May be called
/// again after an error.
///
/// # Errors
/// When the store does not answer, the run is no longer ours, or the queue may not have been
/// reached.
pub async fn pause(ports: &Ports, claimed: &mut Claimed, pause: Pause) -> Result<(), LookError> {
    if matches!(claimed.run.phase, Phase::Running) {
        let (data, data_object) = returned::keep(ports, &claimed.run.build, pause.data).await?;
        let run = Run {
            phase: Phase::Paused(Pause { data, data_object, ..pause }),
            ..claimed.run.clone()
        };
        let head = build::next_run(&claimed.record, &run)?;
        match cell::commit(ports, Commit { head, others: Vec::new(), pokes: Vec::new(), due: None })
            .await?
        {
            Saved::Yes(record) => (claimed.record, claimed.run) = (record, run),
            Saved::Stale => {
                let error =
                    LookError::Again(format!("the run of {} was written meanwhile", run.build));
                let stored = get(ports, &build::run_key(&run.build)).await?;
                let mine = stored
                    .map(|record| Ok::<_, LookError>((decode::<Run>(&record)?, record)))
                    .transpose()?;
                // Ours, if an answer was lost: the next try shows what is stored.
                if let Some((run, record)) =
                    mine.filter(|(run, _)| run.session == claimed.run.session)
                {
                    (claimed.record, claimed.run) = (record, run);
                }
                return Err(error);
            }
        }
    }
    Ok(cell::send(ports, &[Poke::Queue { queue: claimed.order.queue.clone() }]).await?)
}

/// Whether a queue is told of a build's end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QueueHears {
    /// It is.
    Now,
    /// Not by itself: it decides nothing by it before another build ends, which is told.
    WithAnother,
}

/// Ends a build and tells its queue and its nodes' provider. May be called again after an error.
///
/// # Errors
/// When the store does not answer, the run is no longer ours, or whoever is told may not have been
/// reached.
pub async fn end(ports: &Ports, claimed: &mut Claimed, ended: Ended) -> Result<(), LookError> {
    keep_end(ports, claimed, ended).await?;
    tell_end(ports, claimed, QueueHears::Now).await
}

/// Writes a build's end, of which nobody is told yet. May be called again after an error, and after
/// the end.
///
/// # Errors
/// When the store does not answer, or the run is no longer ours.
pub async fn keep_end(ports: &Ports, claimed: &mut Claimed, ended: Ended) -> Result<(), LookError> {
    if !matches!(claimed.run.phase, Phase::Ended(_)) {
        let (data, data_object) = returned::keep(ports, &claimed.run.build, ended.data).await?;
        write_end(ports, claimed, Ended { data, data_object, ..ended }).await?;
    }
    Ok(())
}

/// Tells of an end that is written: the queue, if it is to hear of it now, and the provider in any
/// case, whose nodes are free.
///
/// # Errors
/// When whoever is told may not have been reached.
pub async fn tell_end(
    ports: &Ports,
    claimed: &Claimed,
    queue: QueueHears,
) -> Result<(), LookError> {
    send_end(ports, &claimed.order, queue).await
}

async fn send_end(ports: &Ports, order: &Order, queue: QueueHears) -> Result<(), LookError> {
    let mut pokes = Vec::new();
    if queue == QueueHears::Now {
        pokes.push(Poke::Answer { queue: order.queue.clone() });
    }
    pokes.extend(order.request.iter().map(|at| Poke::Pool { provider: at.provider.clone() }));
    Ok(cell::send(ports, &pokes).await?)
}

async fn write_end(ports: &Ports, claimed: &mut Claimed, ended: Ended) -> Result<(), LookError> {
    let own = (&claimed.record, &claimed.run);
    let (saved, run) =
        commit_end(ports, &claimed.order, own, claimed.request.clone(), ended).await?;
    match saved {
        Saved::Yes(record) => {
            claimed.record = record;
            claimed.run = run;
            claimed.request = None;
            Ok(())
        }
        Saved::Stale => written(ports, claimed).await,
    }
}

/// Writes the end of a run, and of the request for its nodes while that is its own. Returns the run
/// as it ended.
async fn commit_end(
    ports: &Ports,
    order: &Order,
    (record, run): (&Record, &Run),
    request: Option<(Record, Request)>,
    ended: Ended,
) -> Result<(Saved, Run), LookError> {
    let is_last = order.attempt >= order.max_attempts;
    let result = match ended.result {
        BuildResult::Retry if is_last => BuildResult::RetryLimit,
        result => result,
    };
    let now = ports.clock.now();
    let request = request.and_then(|(record, request)| Some((record, request.ended(result, now)?)));
    let run = Run { phase: Phase::Ended(ended), ..run.clone() };
    let head = build::next_run(record, &run)?;
    let mut others = Vec::new();
    if let Some((record, request)) = request {
        others.push(next(record, &request)?.1);
    }
    let alone = others.is_empty();
    let plan = |others| Commit { head: head.clone(), others, pokes: Vec::new(), due: None };
    let mut saved = cell::commit(ports, plan(others)).await?;
    if saved == Saved::Stale && !alone {
        // Its nodes may have been taken away: then the request is somebody else's, and the run is
        // still ours.
        saved = cell::commit(ports, plan(Vec::new())).await?;
    }
    Ok((saved, run))
}

/// Looks who has written a run that is this life's own. It was us, if an answer was lost.
async fn written(ports: &Ports, claimed: &mut Claimed) -> Result<(), LookError> {
    let build = &claimed.run.build;
    let again = |why: &str| LookError::Again(format!("the run of {build} {why}"));
    let record = get(ports, &build::run_key(build)).await?.ok_or_else(|| again("is gone"))?;
    let stored: Run = decode(&record)?;
    let is_ended = matches!(stored.phase, Phase::Ended(_)) || stored.session != claimed.run.session;
    let outcome = if is_ended { Ok(()) } else { Err(again("was written meanwhile")) };
    if is_ended {
        claimed.run = stored;
        claimed.request = None;
    }
    claimed.record = record;
    outcome
}

/// Records that were read, and the keys that were asked for.
#[derive(Default)]
struct Seen {
    asked: BTreeSet<Key>,
    found: BTreeMap<Key, Record>,
}

impl Seen {
    /// Reads what was not asked for before.
    async fn read(
        &mut self,
        ports: &Ports,
        keys: impl Iterator<Item = Key>,
    ) -> Result<(), PortError> {
        let keys: Vec<Key> = keys.filter(|key| self.asked.insert(key.clone())).collect();
        for page in keys.chunks(KEYS_MAX) {
            let records = ports.records.get(page).await?;
            self.found
                .extend(records.into_iter().flatten().map(|record| (record.key.clone(), record)));
        }
        Ok(())
    }

    /// Returns an order; one that cannot be read is told where it is needed.
    fn order(&self, build: &BuildId) -> Option<Order> {
        decode(self.found.get(&build::order_key(build))?).ok()
    }

    /// Returns the request of a build whose nodes may be used; `None` when they may not.
    fn request(
        &self,
        at: &RequestRef,
        is_mine: bool,
    ) -> Result<Option<(Record, Request)>, LookError> {
        let Some(record) = self.found.get(&request_key(at)) else { return Ok(None) };
        let request: Request = decode(record)?;
        let is_usable = match request.state {
            RequestState::Fulfilled(_) => !is_mine,
            RequestState::Claimed(_) => is_mine,
            _ => false,
        };
        Ok(is_usable.then(|| (record.clone(), request)))
    }

    /// Returns the nodes of a request in their order.
    fn nodes(&self, at: &RequestRef, request: &Request) -> Result<Vec<Node>, LookError> {
        let nodes = request.nodes().iter().map(|id| {
            let key = provider::node_key(&at.provider, id);
            let record = self
                .found
                .get(&key)
                .ok_or_else(|| LookError::Again(format!("{key} is not there yet")))?;
            Ok(decode(record)?)
        });
        nodes.collect()
    }
}

/// Returns the job with the nodeset alone that its nodes are of; the others could not be had (N14).
fn with_nodeset(mut job: FrozenJob, nodeset: u32) -> FrozenJob {
    let chosen = job.nodesets.drain(..).nth(nodeset as usize);
    job.nodesets.extend(chosen);
    job
}

/// Returns the nodes as the job's playbooks know them.
fn access(job: &FrozenJob, nodes: Vec<Node>) -> Result<Vec<NodeAccess>, LookError> {
    let specs = job.nodesets.first().map(|set| set.nodes.as_slice()).unwrap_or_default();
    let named = nodes.into_iter().enumerate().map(|(number, node)| {
        let names = specs
            .get(number)
            .map_or_else(|| vec![format!("node{number}")], |spec| spec.names.clone());
        // Read beside its request, it may be older than that by a moment.
        node.access(names).ok_or_else(|| LookError::Again(format!("node {} is not ready", node.id)))
    });
    named.collect()
}

/// Returns the condition that nobody wants a build stopped.
fn not_stopped(id: &BuildId) -> Write {
    Write::Check { key: build::stop_key(id), expect: Expect::Absent }
}

/// Returns a record with a new body as it is stored next, and the write that stores it on condition
/// of what was read.
fn next(record: Record, request: &Request) -> Result<(Record, Write), PortError> {
    let seen = record.revision;
    let record = Record { revision: seen + 1, ..with_body(record, request)? };
    Ok((record.clone(), Write::Put { record, expect: Expect::Revision(seen) }))
}

fn request_key(at: &RequestRef) -> Key {
    provider::request_key(&at.provider, &Row(at.row.clone()))
}

fn raced(id: &BuildId) -> LookError {
    LookError::Again(format!("the claim of {id} was raced"))
}
