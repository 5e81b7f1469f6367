//! Claiming a build and ending it: the executor's half of the contract with the gate (Z7.6).
//!
//! A claim is one transaction: the run must not exist, and the request for nodes must still be the one that was read, so that
//! nodes are never taken away and used at once. Every later write shows the run's revision: whoever lost it writes nothing.

use sluice_model::build::{Ended, Order, Phase, Run, Speculation};
use sluice_model::job::{FrozenJob, JobGraph};
use sluice_model::node::NodeAccess;
use sluice_model::poke::Poke;
use sluice_model::{BuildId, JobName, SessionId};
use sluice_pool::{Node, Request, RequestState, Row};
use sluice_records::codec::{decode, get, with_body};
use sluice_records::{build, provider};
use sluice_runtime::batch::LookError;
use sluice_runtime::record::{Expect, Key, Record, Write};
use sluice_runtime::{Commit, Ports, Saved, cell};

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
    pub speculation: Speculation,
    /// Its nodes, in the nodeset's order.
    pub nodes: Vec<NodeAccess>,
}

/// Claims a build. `None` when there is nothing to do: it was stopped, somebody else has it, or its nodes are gone.
///
/// The caller asks only for builds that it does not run already.
///
/// # Errors
/// When the store does not answer: the message comes again.
pub async fn claim(
    ports: &Ports,
    session: &SessionId,
    log: Option<String>,
    id: &BuildId,
) -> Result<Option<Claimed>, LookError> {
    let found = ports.records.get(&[build::order_key(id), build::stop_key(id), build::run_key(id)]).await?;
    let (Some(order), None) = (&found[0], &found[1]) else { return Ok(None) };
    let mine = match &found[2] {
        None => None,
        Some(record) => {
            let run: Run = decode(record)?;
            if run.session != *session || run.phase != Phase::Preparing {
                return Ok(None);
            }
            // Claimed by this very life, which was never told so.
            Some((record.clone(), run))
        }
    };
    let order: Order = decode(order)?;
    let graph: JobGraph = object(ports, &order.graph).await?;
    let child_jobs = graph
        .jobs
        .iter()
        .filter(|job| job.dependencies.iter().any(|d| d.name == order.job))
        .map(|job| job.name.clone())
        .collect();
    let Some(job) = graph.jobs.into_iter().find(|job| job.name == order.job) else {
        return Err(LookError::Broken {
            partition: build::partition(id),
            reason: format!("{} has no job {}", order.graph, order.job),
        });
    };
    let Some((nodes, check)) = nodes(ports, &order, &job).await? else { return Ok(None) };
    let speculation = object(ports, &order.speculation).await?;
    if let Some((record, run)) = mine {
        return Ok(Some(Claimed { record, run, order, job, child_jobs, speculation, nodes }));
    }
    let claimed_at = ports.clock.now();
    let run = Run { build: id.clone(), session: session.clone(), fence: 1, phase: Phase::Preparing, claimed_at, log };
    let plan = Commit {
        head: build::new_run(&run)?,
        // Whoever stopped it meanwhile may have given its nodes away.
        others: check.into_iter().chain([Write::Check { key: build::stop_key(id), expect: Expect::Absent }]).collect(),
        pokes: vec![Poke::Queue { queue: order.queue.clone() }],
        due: None,
    };
    match cell::commit(ports, plan).await? {
        Saved::Yes(mut record) => {
            // It is ours from here on, whether or not the queue hears of it now; the sweep sends what is left behind.
            if let Err(error) = cell::deliver(ports, &mut record).await {
                tracing::warn!(build = %id, %error, "the claim could not be told");
            }
            Ok(Some(Claimed { record, run, order, job, child_jobs, speculation, nodes }))
        }
        // Somebody claimed it, stopped it or wrote its request: the next look tells which.
        Saved::Stale => Err(LookError::Again(format!("the claim of {id} was raced"))),
    }
}

/// Says that the first playbook has started.
///
/// # Errors
/// When the store does not answer, or the run is no longer ours.
pub async fn started(ports: &Ports, claimed: &mut Claimed, at: sluice_model::Timestamp) -> Result<(), LookError> {
    claimed.run.phase = Phase::Running { started_at: at, pre_fail: false };
    save(ports, claimed, Vec::new()).await
}

/// Ends a build and tells its queue and its nodes' provider.
///
/// # Errors
/// When the store does not answer, or the run is no longer ours.
pub async fn end(ports: &Ports, claimed: &mut Claimed, ended: Ended) -> Result<(), LookError> {
    claimed.run.phase = Phase::Ended(ended);
    let mut pokes = vec![Poke::Queue { queue: claimed.order.queue.clone() }];
    pokes.extend(claimed.order.request.iter().map(|request| Poke::Pool { provider: request.provider.clone() }));
    save(ports, claimed, pokes).await
}

async fn save(ports: &Ports, claimed: &mut Claimed, pokes: Vec<Poke>) -> Result<(), LookError> {
    let head = with_body(claimed.record.clone(), &claimed.run)?;
    match cell::commit(ports, Commit { head, others: Vec::new(), pokes, due: None }).await? {
        Saved::Yes(record) => {
            claimed.record = record;
            // Written is what counts; what could not be sent is sent by the sweep.
            if let Err(error) = cell::deliver(ports, &mut claimed.record).await {
                tracing::warn!(build = %claimed.run.build, %error, "what the run says could not be told");
            }
            Ok(())
        }
        Saved::Stale => Err(LookError::Again(format!("the run of {} was written by somebody else", claimed.run.build))),
    }
}

/// Reads the nodes of a build with the check that they are still its own; `None` when they are not.
async fn nodes(
    ports: &Ports,
    order: &Order,
    job: &FrozenJob,
) -> Result<Option<(Vec<NodeAccess>, Option<Write>)>, LookError> {
    let Some(at) = &order.request else { return Ok(Some((Vec::new(), None))) };
    let key = provider::request_key(&at.provider, &Row(at.row.clone()));
    let Some(record) = get(ports, &key).await? else { return Ok(None) };
    let request: Request = decode(&record)?;
    if !matches!(request.state, RequestState::Fulfilled(_)) {
        return Ok(None);
    }
    let keys: Vec<Key> = request.nodes().iter().map(|node| provider::node_key(&at.provider, node)).collect();
    let specs = job.nodesets.first().map(|set| set.nodes.clone()).unwrap_or_default();
    let mut nodes = Vec::with_capacity(keys.len());
    for (number, record) in ports.records.get(&keys).await?.into_iter().enumerate() {
        let Some(record) = record else { return Ok(None) };
        let node: Node = decode(&record)?;
        let names = specs.get(number).map_or_else(|| vec![format!("node{number}")], |spec| spec.names.clone());
        let Some(access) = node.access(names) else { return Ok(None) };
        nodes.push(access);
    }
    Ok(Some((nodes, Some(Write::Check { key, expect: Expect::Revision(record.revision) }))))
}

async fn object<T: serde::de::DeserializeOwned>(ports: &Ports, key: &str) -> Result<T, LookError> {
    let again = |why: String| LookError::Again(format!("could not read {key}: {why}"));
    let object = ports.objects.get(key).await?.ok_or_else(|| again("there is no such object".to_owned()))?;
    serde_json::from_slice(&object.bytes).map_err(|error| again(error.to_string()))
}
