//! Claims builds and records their progress and end: the executor's side of the contract with the
//! gate (Z7.6).
//!
//! A claim is one transaction with these conditions: the run does not exist, no stop of the build
//! is requested, and the node request is unchanged since it was read. The transaction creates the
//! run and marks the node request *claimed*, so nodes are never in use and released at once. Builds
//! received together are claimed in one transaction, or each by itself if that one fails.
//!
//! The end is one transaction too and marks the node request *ended*. Every later write is
//! conditional on the run's revision, so an executor that lost the run writes nothing.
//!
//! There is no outbox here. Queues check their running builds periodically, and providers check
//! their requests; the wakeups sent at the end only make this faster.

mod journal;
mod loaded;
mod lost;
mod unconfirmed;

use self::loaded::LoadedRecords;
pub use journal::record_playbook;
pub use lost::{end_lost, end_lost_build};

use crate::job::{InheritedData, Lease};
use crate::object_cache::ObjectCache;
use crate::parent_data::read_inherited;
use crate::returned_data;
use futures::future::join_all;
use sluice_model::build::{BuildResult, Order, Pause, Phase, RequestRef, Run, RunEnd, Speculation};
use sluice_model::job::{FrozenJob, JobGraph};
use sluice_model::node::NodeAccess;
use sluice_model::wakeup::Wakeup;
use sluice_model::{BuildId, JobName, NodeId, SessionId, ZoneName};
use sluice_pool::{NodeRequest, PoolNode, RequestRow};
use sluice_records::codec::{decode, get, with_body};
use sluice_records::{build, provider};
use sluice_runtime::batch::ReconcileError;
use sluice_runtime::record::{Expect, Key, Record, TRANSACTION_RECORDS_MAX, Write};
use sluice_runtime::{CellCommit, CommitOutcome, PortError, Ports, cell};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

/// Job graphs, and tested states, cached in memory. Builds of one item share them and start at
/// about the same time.
const CACHED_OBJECTS: usize = 16;

/// A build that this executor has claimed.
pub struct Claimed {
    /// The stored record of the run.
    pub record: Record,
    /// The run, decoded.
    pub run: Run,
    /// The gate's order for the build.
    pub order: Order,
    /// The frozen job.
    pub job: FrozenJob,
    /// The jobs that depend on this one.
    pub child_jobs: Vec<JobName>,
    /// The tested state.
    pub speculation: Arc<Speculation>,
    /// Data and artifacts from parent jobs and changes ahead.
    pub inherited: InheritedData,
    /// The nodes of the build, in the nodeset's order.
    pub nodes: Vec<NodeAccess>,
    /// Whether any of them is a static host, which may serve other builds at the same time.
    pub has_static_nodes: bool,
    /// The stored node request; `None` without nodes and after the end was stored.
    request: Option<(Record, NodeRequest)>,
}

/// A message that orders an executor to run a build.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BuildMessage {
    /// The build.
    pub build: BuildId,
    /// The node request, if the message names it. Only a hint that saves a read.
    pub request: Option<RequestRef>,
    /// The nodes, if the message names them. Only a hint that saves a read.
    pub nodes: Vec<NodeId>,
}

impl BuildMessage {
    /// Returns the content of a build wakeup; `None` for any other wakeup.
    pub fn from_wakeup(wakeup: Wakeup) -> Option<Self> {
        match wakeup {
            Wakeup::Build { build, request, nodes, .. } => Some(Self { build, request, nodes }),
            _ => None,
        }
    }

    /// Returns the keys of the records that the claim of this build reads and that the message
    /// names: order, stop request and run, and the node request and nodes if given.
    fn record_keys(&self) -> Vec<Key> {
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

/// Claims builds under one executor session.
pub struct Claims {
    /// Access to records, objects, queues and time.
    ports: Ports,
    /// The session for which builds are claimed.
    session: SessionId,
    /// The cache of job graphs.
    graphs: ObjectCache<JobGraph>,
    /// The cache of tested states.
    states: ObjectCache<Speculation>,
    /// Builds whose claim may be stored although the response was lost.
    unconfirmed: Mutex<BTreeSet<BuildId>>,
    /// Nothing is claimed once it is over, since builds of a session that has ended are lost.
    lease: Lease,
    /// Whether nothing is claimed any more, because the executor shuts down.
    is_closed: AtomicBool,
}

impl Claimed {
    /// Returns the zone of executors that reach the build's nodes; `None` if every executor does.
    pub fn executor_zone(&self) -> Option<&ZoneName> {
        self.request.as_ref().and_then(|(_, request)| request.executor_zone.as_ref())
    }
}

impl Claims {
    /// Creates the claims of a session.
    pub fn new(ports: Ports, session: SessionId) -> Self {
        let (graphs, states) = (ObjectCache::new(CACHED_OBJECTS), ObjectCache::new(CACHED_OBJECTS));
        Self {
            ports,
            session,
            graphs,
            states,
            unconfirmed: Mutex::default(),
            lease: Lease::unlimited(),
            is_closed: AtomicBool::new(false),
        }
    }

    /// Returns the claims of a session that lasts as long as this lease: while it is over, every
    /// claim is an error.
    pub fn under(self, lease: Lease) -> Self {
        Self { lease, ..self }
    }

    /// Claims nothing any more: from now on every claim is an error.
    pub fn close(&self) {
        self.is_closed.store(true, Ordering::Release);
    }

    /// Returns whether [`Self::close`] was called.
    pub fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Acquire)
    }

    /// Returns whether builds may be claimed now.
    pub fn may_claim(&self) -> bool {
        !self.is_closed() && !self.lease.is_over()
    }

    /// Claims builds and returns one result for each, in the same order. The builds must be
    /// distinct, and none of them may be running here. `None` means that there is nothing to run:
    /// the build has no order, was stopped or has ended, another executor has it, or its nodes are
    /// gone; a run that an earlier call has stored is then ended. After an error the caller tries
    /// again or has the message redelivered. The claim may be stored then;
    /// [`Self::end_stopped_unconfirmed`] ends it after a stop. While [`Self::may_claim`] is false,
    /// every claim is an error and nothing is stored.
    pub async fn claim(
        &self,
        messages: &[BuildMessage],
    ) -> Vec<Result<Option<Claimed>, ReconcileError>> {
        if !self.may_claim() {
            return messages.iter().map(|message| Err(not_claimed_now(&message.build))).collect();
        }
        let mut loaded = LoadedRecords::default();
        if let Err(error) = self.read(messages, &mut loaded).await {
            return messages
                .iter()
                .map(|_| Err(ReconcileError::Retry(error.to_string())))
                .collect();
        }
        let mut ready = Vec::new();
        let mut claims: Vec<_> = Vec::new();
        for prepared in
            join_all(messages.iter().map(|message| self.prepare(&message.build, &loaded))).await
        {
            claims.push(match prepared {
                Ok(Some(PreparedClaim { claimed, others })) => {
                    ready.push((claims.len(), claimed, others));
                    Ok(None)
                }
                Ok(None) => Ok(None),
                Err(error) => Err(error),
            });
        }
        for (at, claim) in self.store_claims(ready).await {
            claims[at] = claim;
        }
        let mut unconfirmed = self.unconfirmed();
        for (message, claim) in messages.iter().zip(&claims) {
            match claim {
                Ok(_) => unconfirmed.remove(&message.build),
                Err(_) => unconfirmed.insert(message.build.clone()),
            };
        }
        drop(unconfirmed);
        claims
    }

    /// Reads the records of builds into `loaded`: order, stop request, run, node request and nodes.
    /// Records that do not exist or cannot be decoded are no error here. One call to the store is
    /// enough if the messages name all keys.
    async fn read(
        &self,
        messages: &[BuildMessage],
        loaded: &mut LoadedRecords,
    ) -> Result<(), PortError> {
        loaded.read(&self.ports, messages.iter().flat_map(BuildMessage::record_keys)).await?;
        let requests: Vec<RequestRef> =
            messages.iter().filter_map(|message| loaded.order(&message.build)?.request).collect();
        loaded.read(&self.ports, requests.iter().map(request_key)).await?;
        let mut nodes = Vec::new();
        for at in &requests {
            let request = loaded
                .found
                .get(&request_key(at))
                .and_then(|record| decode::<NodeRequest>(record).ok());
            let ids = request.iter().flat_map(NodeRequest::nodes);
            nodes.extend(ids.map(|node| provider::node_key(&at.provider, node)));
        }
        loaded.read(&self.ports, nodes.into_iter()).await
    }

    /// Collects all inputs of a build and the writes of its claim, from `loaded` and from storage,
    /// without storing the claim. `None` if the build cannot be claimed: it has no order or was
    /// stopped, another session has its run, its run has ended, or its nodes are gone. If this
    /// session had claimed it and the response was lost, the claim is prepared to be stored again.
    /// In that case it stores the end of the run instead, and returns `None`, if the build was
    /// stopped or its nodes are gone.
    async fn prepare(
        &self,
        id: &BuildId,
        loaded: &LoadedRecords,
    ) -> Result<Option<PreparedClaim>, ReconcileError> {
        let Some(order) = loaded.found.get(&build::order_key(id)) else { return Ok(None) };
        if let Some(stop) = loaded.found.get(&build::stop_key(id)) {
            let why = build::decode_stop(stop).why;
            tracing::info!(build = %id, why, "a build was stopped before it started");
            if let Ok(Some(own_run)) = self.own_run(id, loaded) {
                self.end_unconfirmed(
                    &decode::<Order>(order)?,
                    own_run,
                    loaded,
                    (BuildResult::Aborted, why),
                )
                .await?;
            }
            return Ok(None);
        }
        // The build was claimed by this session, but the response was lost.
        let own_run = self.own_run(id, loaded)?;
        if own_run.is_none() && loaded.found.contains_key(&build::run_key(id)) {
            return Ok(None);
        }
        let order: Order = decode(order)?;
        let (request, nodes) = match &order.request {
            None => (None, Vec::new()),
            Some(at) => match loaded.request(at, own_run.is_some())? {
                None => {
                    if let Some(own_run) = own_run {
                        let why = "Its nodes were released before it started.".to_owned();
                        self.end_unconfirmed(&order, own_run, loaded, (BuildResult::Retry, why))
                            .await?;
                    }
                    return Ok(None);
                }
                Some((record, request)) => {
                    let nodes = loaded.nodes(at, &request)?;
                    (Some((record, request)), nodes)
                }
            },
        };
        let (job, child_jobs) = self.job(&order).await?;
        let speculation = self.states.open(&self.ports, &order.speculation).await?;
        let has_static_nodes = nodes.iter().any(PoolNode::is_static);
        let nodes = node_access(&job, nodes)?;
        let inherited = read_inherited(&self.ports, &order).await?;
        let RunToStore { record, run, request, others } = match own_run {
            // The run is written again on condition that no stop is requested: the queue may have
            // given up the build because no session lists it.
            Some((record, run)) => {
                RunToStore { record, run, request, others: vec![no_stop_requested(id)] }
            }
            None => self.new_run(id, request)?,
        };
        let claimed = Claimed {
            record,
            run,
            order,
            job,
            child_jobs,
            speculation,
            inherited,
            nodes,
            has_static_nodes,
            request,
        };
        Ok(Some(PreparedClaim { claimed, others }))
    }

    /// Returns the job of an order, with the one nodeset that was chosen, and the names of the jobs
    /// that depend on it directly. An error that no retry repairs if the job graph lacks the job.
    async fn job(&self, order: &Order) -> Result<(FrozenJob, Vec<JobName>), ReconcileError> {
        let graph = self.graphs.open(&self.ports, &order.graph).await?;
        let waits = |job: &&FrozenJob| job.dependencies.iter().any(|other| other.name == order.job);
        let child_jobs = graph.jobs.iter().filter(waits).map(|job| job.name.clone()).collect();
        match graph.jobs.iter().find(|job| job.name == order.job) {
            Some(job) => Ok((with_nodeset(job.clone(), order.nodeset), child_jobs)),
            None => Err(ReconcileError::Undecidable {
                partition: build::partition(&order.build),
                reason: format!("{} has no job {}", order.graph, order.job),
            }),
        }
    }

    /// Returns a new run of this session and the other writes of its claim, without storing them:
    /// the condition that no stop is requested, and the node request marked as claimed. An error
    /// that is retried if the request is not fulfilled any more.
    fn new_run(
        &self,
        id: &BuildId,
        request: Option<(Record, NodeRequest)>,
    ) -> Result<RunToStore, ReconcileError> {
        let now = self.ports.clock.now();
        let run = Run {
            build: id.clone(),
            session: self.session.clone(),
            phase: Phase::Running,
            claimed_at: now,
            playbook: None,
            lost: None,
        };
        // If the build was stopped meanwhile, its nodes may serve another build.
        let mut others = vec![no_stop_requested(id)];
        let claimed = match request {
            None => None,
            Some((record, request)) => {
                let request = request.claim(now).ok_or_else(|| claim_conflict(id))?;
                let (record, write) = next_revision(record, &request)?;
                others.push(write);
                Some((record, request))
            }
        };
        Ok(RunToStore { record: build::new_run(&run)?, run, request: claimed, others })
    }

    /// Stores claims and returns the result for each message's index, in no particular order. New
    /// runs are stored together where possible, and each alone if that conflicts; a run that this
    /// session stored before is always stored alone. A claim that conflicts alone is an error. If
    /// the store fails, all claims of that transaction are errors; so are claims that the session
    /// may not make any more.
    async fn store_claims(
        &self,
        ready: Vec<ReadyClaim>,
    ) -> Vec<(usize, Result<Option<Claimed>, ReconcileError>)> {
        // Reading the inputs took time.
        if !self.may_claim() {
            let refused =
                |(at, claimed, _): ReadyClaim| (at, Err(not_claimed_now(&claimed.run.build)));
            return ready.into_iter().map(refused).collect();
        }
        let mut written = Vec::with_capacity(ready.len());
        let (stored, new): (Vec<ReadyClaim>, Vec<ReadyClaim>) =
            ready.into_iter().partition(|(_, claimed, _)| claimed.record.revision > 0);
        written.extend(join_all(stored.into_iter().map(|ready| self.store_claim(ready))).await);
        let mut ready = new.into_iter();
        loop {
            // Each claim writes up to three records.
            let mut claims: Vec<ReadyClaim> =
                ready.by_ref().take(TRANSACTION_RECORDS_MAX / 3).collect();
            match claims.len() {
                0 => return written,
                1 => {}
                _ => match self.store_claims_together(&mut claims).await {
                    Ok(CommitOutcome::Written(_)) => {
                        written.extend(
                            claims.into_iter().map(|(at, claimed, _)| (at, Ok(Some(claimed)))),
                        );
                        continue;
                    }
                    // One of the builds was claimed by another executor or stopped, or its node
                    // request changed. Each claim is retried alone below.
                    Ok(CommitOutcome::Stale) => {}
                    Err(error) => {
                        let why = error.to_string();
                        written.extend(
                            claims
                                .into_iter()
                                .map(|(at, ..)| (at, Err(ReconcileError::Retry(why.clone())))),
                        );
                        continue;
                    }
                },
            }
            written.extend(join_all(claims.into_iter().map(|ready| self.store_claim(ready))).await);
        }
    }

    /// Stores several new claims in one transaction and updates their records in `claims`.
    /// [`CommitOutcome::Stale`] means that one of them conflicted and none is stored. There must be
    /// at least one, and no more than fit into a transaction. Runs that were stored before are not
    /// allowed.
    async fn store_claims_together(
        &self,
        claims: &mut [ReadyClaim],
    ) -> Result<CommitOutcome, PortError> {
        let token = self.ports.entropy.token();
        let mut writes = Vec::new();
        for (_, claimed, others) in claims.iter() {
            let record = Record { revision: 1, write_id: token.clone(), ..claimed.record.clone() };
            writes.push(Write::Put { record, expect: Expect::Absent });
            writes.extend(others.iter().cloned());
        }
        // All have the same write id, so the first one's state is the state of all.
        let head = claims[0].1.record.clone();
        let plan = CellCommit { head, others: writes.split_off(1), wakeups: Vec::new(), due: None };
        let saved = cell::commit(&self.ports, plan).await?;
        if let CommitOutcome::Written(head) = &saved {
            for (_, claimed, _) in claims.iter_mut().skip(1) {
                claimed.record =
                    Record { revision: 1, write_id: token.clone(), ..claimed.record.clone() };
            }
            claims[0].1.record = head.clone();
        }
        Ok(saved)
    }

    /// Stores one claim and returns the result with the message's index. If another write
    /// conflicted with the claim, that is an error, and the next attempt reads why.
    async fn store_claim(
        &self,
        ready: ReadyClaim,
    ) -> (usize, Result<Option<Claimed>, ReconcileError>) {
        let (at, claimed, others) = ready;
        let plan =
            CellCommit { head: claimed.record.clone(), others, wakeups: Vec::new(), due: None };
        let claim = match cell::commit(&self.ports, plan).await {
            Ok(CommitOutcome::Written(record)) => Ok(Some(Claimed { record, ..claimed })),
            // The build was claimed or stopped, or its request changed: the next attempt reads
            // which.
            Ok(CommitOutcome::Stale) => Err(claim_conflict(&claimed.run.build)),
            Err(error) => Err(error.into()),
        };
        (at, claim)
    }
}

/// A run to store, with the other writes of its claim.
struct RunToStore {
    /// The record of the run.
    record: Record,
    /// The run.
    run: Run,
    /// The node request, marked claimed.
    request: Option<(Record, NodeRequest)>,
    /// The other writes of the claim.
    others: Vec<Write>,
}

/// A build that may run once its claim is stored.
struct PreparedClaim {
    /// The claim to store.
    claimed: Claimed,
    /// The other writes of the claim.
    others: Vec<Write>,
}

/// The index of a build in the request, its claim, and the other writes of the claim.
type ReadyClaim = (usize, Claimed, Vec<Write>);

/// Records that a build will fail and wakes its queue, which need not wait for the end (G05).
/// Replaces the phase of the run, so it must be running here and not paused. Updates `claimed` to
/// what is stored.
///
/// # Errors
/// Returns an error if the store does not answer, another writer changed the run, or the wakeup
/// may not have been sent.
pub async fn will_fail(ports: &Ports, claimed: &mut Claimed) -> Result<(), ReconcileError> {
    let run = Run { phase: Phase::Failing, ..claimed.run.clone() };
    let head = build::next_run(&claimed.record, &run)?;
    match cell::commit(
        ports,
        CellCommit { head, others: Vec::new(), wakeups: Vec::new(), due: None },
    )
    .await?
    {
        CommitOutcome::Written(record) => (claimed.record, claimed.run) = (record, run),
        CommitOutcome::Stale => {
            return Err(ReconcileError::Retry(format!(
                "the run of {} was changed by another writer",
                run.build
            )));
        }
    }
    Ok(cell::send(ports, &[Wakeup::Queue { queue: claimed.order.queue.clone() }]).await?)
}

/// Records that a running build is paused, with the data for its dependents, and wakes its queue. A
/// run in another phase stays as it is, also one that will fail, and only the queue is woken. Data
/// that is too large for the record becomes an object. May be called again after an error;
/// `claimed` then has what is stored.
///
/// # Errors
/// Returns an error if the store does not answer, another writer changed the run, or the wakeup
/// may not have been sent.
pub async fn pause(
    ports: &Ports,
    claimed: &mut Claimed,
    pause: Pause,
) -> Result<(), ReconcileError> {
    if matches!(claimed.run.phase, Phase::Running) {
        let (data, data_object) =
            returned_data::store_data(ports, &claimed.run.build, pause.data).await?;
        let run = Run {
            phase: Phase::Paused(Pause { data, data_object, ..pause }),
            ..claimed.run.clone()
        };
        let head = build::next_run(&claimed.record, &run)?;
        match cell::commit(
            ports,
            CellCommit { head, others: Vec::new(), wakeups: Vec::new(), due: None },
        )
        .await?
        {
            CommitOutcome::Written(record) => (claimed.record, claimed.run) = (record, run),
            CommitOutcome::Stale => {
                let error =
                    ReconcileError::Retry(format!("the run of {} changed concurrently", run.build));
                let stored = get(ports, &build::run_key(&run.build)).await?;
                let own_run = stored
                    .map(|record| Ok::<_, ReconcileError>((decode::<Run>(&record)?, record)))
                    .transpose()?;
                // If the stored run is this session's, a response was lost: the next call continues
                // from it.
                if let Some((run, record)) =
                    own_run.filter(|(run, _)| run.session == claimed.run.session)
                {
                    (claimed.record, claimed.run) = (record, run);
                }
                return Err(error);
            }
        }
    }
    Ok(cell::send(ports, &[Wakeup::Queue { queue: claimed.order.queue.clone() }]).await?)
}

/// Whether a stored end wakes the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QueueWakeup {
    /// The queue is woken now.
    Send,
    /// The queue is woken by the end of another running build of the item.
    Defer,
}

/// Stores a build's end and the end of its node request, and wakes its queue and the provider of
/// its nodes. A run that has ended before, or belongs to another session, counts as stored. May be
/// called again after an error; wakeups are then sent again.
///
/// # Errors
/// Returns an error if the store does not answer, another writer changed the run, or a wakeup may
/// not have been sent.
pub async fn end(
    ports: &Ports,
    claimed: &mut Claimed,
    ended: RunEnd,
) -> Result<(), ReconcileError> {
    store_end(ports, claimed, ended).await?;
    send_wakeups(ports, &claimed.order, QueueWakeup::Send).await
}

/// Stores a build's end without sending wakeups; its node request ends with it. Returned data that
/// is too large for the record becomes an object. A run that has ended before, or belongs to
/// another session, counts as stored. May be called again after an error or a success.
///
/// # Errors
/// Returns an error if the store does not answer, or another writer changed the run.
pub async fn store_end(
    ports: &Ports,
    claimed: &mut Claimed,
    ended: RunEnd,
) -> Result<(), ReconcileError> {
    if !matches!(claimed.run.phase, Phase::Ended(_)) {
        let (data, data_object) =
            returned_data::store_data(ports, &claimed.run.build, ended.data).await?;
        write_end(ports, claimed, RunEnd { data, data_object, ..ended }).await?;
    }
    Ok(())
}

/// Wakes the provider of a build's nodes, which are free, and its queue if `queue` is
/// [`QueueWakeup::Send`]. A build without nodes has no provider to wake. The end must be stored
/// before.
///
/// # Errors
/// Returns an error if a wakeup may not have been sent.
pub async fn send_wakeups(
    ports: &Ports,
    order: &Order,
    queue: QueueWakeup,
) -> Result<(), ReconcileError> {
    let mut wakeups = Vec::new();
    if queue == QueueWakeup::Send {
        wakeups.push(Wakeup::Answer { queue: order.queue.clone() });
    }
    wakeups.extend(order.request.iter().map(|at| Wakeup::Pool { provider: at.provider.clone() }));
    Ok(cell::send(ports, &wakeups).await?)
}

/// Stores the end of a build and of its node request, and updates `claimed`. The data in `ended`
/// must be small enough for a record. A run that has ended or is another session's counts as
/// stored. Another concurrent write is an error; the next call continues from what the other writer
/// stored.
async fn write_end(
    ports: &Ports,
    claimed: &mut Claimed,
    ended: RunEnd,
) -> Result<(), ReconcileError> {
    let own = (&claimed.record, &claimed.run);
    let (saved, run) =
        commit_end(ports, &claimed.order, own, claimed.request.clone(), ended).await?;
    match saved {
        CommitOutcome::Written(record) => {
            claimed.record = record;
            claimed.run = run;
            claimed.request = None;
            Ok(())
        }
        CommitOutcome::Stale => reload_run(ports, claimed).await,
    }
}

/// Stores the end of a run, and marks its node request as ended in the same transaction. If the
/// request has changed or is not claimed, only the run is stored. Returns the outcome of the commit
/// and the ended run; the outcome is stale if the run itself has changed. `Retry` at the last
/// attempt becomes `RetryLimit`.
async fn commit_end(
    ports: &Ports,
    order: &Order,
    (record, run): (&Record, &Run),
    request: Option<(Record, NodeRequest)>,
    ended: RunEnd,
) -> Result<(CommitOutcome, Run), ReconcileError> {
    let (result, now) = (order.final_result(ended.result), ports.clock.now());
    let request = request.and_then(|(record, request)| Some((record, request.end(result, now)?)));
    let run = Run { phase: Phase::Ended(RunEnd { result, ..ended }), ..run.clone() };
    let head = build::next_run(record, &run)?;
    let mut others = Vec::new();
    if let Some((record, request)) = request {
        others.push(next_revision(record, &request)?.1);
    }
    let alone = others.is_empty();
    let plan = |others| CellCommit { head: head.clone(), others, wakeups: Vec::new(), due: None };
    let mut saved = cell::commit(ports, plan(others)).await?;
    if saved == CommitOutcome::Stale && !alone {
        // The nodes may have been released. Then the request has changed, but the run has not.
        saved = cell::commit(ports, plan(Vec::new())).await?;
    }
    Ok((saved, run))
}

/// Reads a run into `claimed` after a conflicting write. Succeeds if the stored run has ended or
/// belongs to another session. Otherwise returns an error that is retried; of `claimed` only the
/// record is then replaced, so that the next write builds on it. A run that is gone is such an
/// error too. The conflicting writer may be this process, if a response was lost.
async fn reload_run(ports: &Ports, claimed: &mut Claimed) -> Result<(), ReconcileError> {
    let build = &claimed.run.build;
    let again = |why: &str| ReconcileError::Retry(format!("the run of {build} {why}"));
    let record = get(ports, &build::run_key(build)).await?.ok_or_else(|| again("is gone"))?;
    let stored: Run = decode(&record)?;
    let is_ended = matches!(stored.phase, Phase::Ended(_)) || stored.session != claimed.run.session;
    let outcome = if is_ended { Ok(()) } else { Err(again("changed concurrently")) };
    if is_ended {
        claimed.run = stored;
        claimed.request = None;
    }
    claimed.record = record;
    outcome
}

/// Returns the job with only the nodeset at index `nodeset` of its alternatives (N14); with none if
/// there is no such index.
fn with_nodeset(mut job: FrozenJob, nodeset: u32) -> FrozenJob {
    let chosen = job.nodesets.drain(..).nth(nodeset as usize);
    job.nodesets.extend(chosen);
    job
}

/// Returns how playbooks access the nodes, in the given order and under the names of the job's
/// first nodeset, which must be the chosen one (see [`with_nodeset`]). Nodes beyond it are named
/// `node` and their index. An error that is retried if a node is neither ready nor in use.
fn node_access(job: &FrozenJob, nodes: Vec<PoolNode>) -> Result<Vec<NodeAccess>, ReconcileError> {
    let specs = job.nodesets.first().map(|set| set.nodes.as_slice()).unwrap_or_default();
    let named = nodes.into_iter().enumerate().map(|(number, node)| {
        let (names, label) = specs.get(number).map_or_else(
            || (vec![format!("node{number}")], node.label.clone()),
            |spec| (spec.names.clone(), spec.label.clone()),
        );
        // The node may have been read slightly earlier than its request.
        node.access(names, label)
            .ok_or_else(|| ReconcileError::Retry(format!("node {} is not ready", node.id)))
    });
    named.collect()
}

/// Returns the condition that no stop of the build is requested.
fn no_stop_requested(id: &BuildId) -> Write {
    Write::Check { key: build::stop_key(id), expect: Expect::Absent }
}

/// Returns the next revision of a node request's record, and the conditional write that stores it.
fn next_revision(record: Record, request: &NodeRequest) -> Result<(Record, Write), PortError> {
    let revision = record.revision;
    let record = Record { revision: revision + 1, ..with_body(record, request)? };
    Ok((record.clone(), Write::Put { record, expect: Expect::Revision(revision) }))
}

/// Returns the key of the node request that an order refers to.
fn request_key(at: &RequestRef) -> Key {
    provider::request_key(&at.provider, &RequestRow(at.row.clone()))
}

/// Returns the error for a claim of a session that claims nothing at this time.
fn not_claimed_now(id: &BuildId) -> ReconcileError {
    ReconcileError::Retry(format!(
        "{id} is not claimed: the executor shuts down, or its session may be over"
    ))
}

/// Returns the error for a claim that conflicted with another write; the message is delivered
/// again.
fn claim_conflict(id: &BuildId) -> ReconcileError {
    ReconcileError::Retry(format!("the claim of {id} conflicted with another write"))
}
