//! Counts the calls of one change with three jobs, by function and operation, on a warmed-up
//! deployment.

use crate::budget::planned;
use crate::deployment::{Deployment, Ends, EventSources};
use crate::money;
use crate::real::Real;
use crate::runner::Builds;
use crate::sample::{self, Nodes};
use sluice_memory::{Calls, NO_CALLER, Used, prices};
use sluice_model::wakeup::MessageQueue;
use sluice_timer::Timer;
use std::collections::BTreeMap;

/// The number of operations with the most calls that are printed.
const SPENT_MAX: usize = 12;
/// Minutes for which [`idle`] counts calls. In one of them the timer has the forges checked for
/// missed events.
pub const IDLE_MINUTES: u64 = 10;

/// The calls of one stage of a change.
#[derive(Debug, Clone, Default)]
pub struct Stage {
    /// Calls by function and operation.
    pub calls: BTreeMap<&'static str, BTreeMap<&'static str, Used>>,
    /// The work of event sources.
    pub sources: EventSources,
    /// The number of records written.
    pub records_written: u64,
}

impl Stage {
    fn taken(deployment: &mut Deployment) -> Self {
        let Calls { by_caller, records_written, .. } = deployment.world.take_calls();
        Self { calls: by_caller, sources: std::mem::take(&mut deployment.sources), records_written }
    }

    /// Returns the calls of one function to DynamoDB, S3 and SQS.
    pub fn calls_of(&self, function: &str) -> u64 {
        self.calls.get(function).map_or(0, |operations| {
            operations.iter().filter(|(name, _)| is_own(name)).map(|(_, used)| used.calls).sum()
        })
    }

    /// Returns the calls of all functions to DynamoDB, S3 and SQS.
    pub fn total(&self) -> u64 {
        self.calls.keys().map(|function| self.calls_of(function)).sum()
    }

    /// Returns the calls of all functions to one service.
    pub fn by_service(&self, service: &str) -> u64 {
        let all = self.calls.values().flatten();
        all.filter(|(name, _)| money::service(name) == Some(service))
            .map(|(_, used)| used.calls)
            .sum()
    }

    /// Returns a text with the operations that cause most calls.
    pub fn spent(&self) -> String {
        let all = self.calls.iter().flat_map(|(function, operations)| {
            operations.iter().map(move |(operation, used)| (used.calls, function, operation))
        });
        let mut all: Vec<_> = all.filter(|(_, _, operation)| is_own(operation)).collect();
        all.sort_by(|one, other| other.cmp(one));
        let rows = all
            .iter()
            .take(SPENT_MAX)
            .map(|(calls, function, operation)| format!("{function} {operation} {calls}"));
        rows.collect::<Vec<_>>().join(", ")
    }

    /// Returns a text with the operations that one function calls.
    pub fn spent_by(&self, function: &str) -> String {
        let operations = self.calls.get(function).into_iter().flatten();
        let own = operations.filter(|(operation, _)| is_own(operation));
        let mut all: Vec<_> = own.map(|(operation, used)| (used.calls, *operation)).collect();
        all.sort_by(|one, other| other.cmp(one));
        let rows = all.iter().map(|(calls, operation)| format!("{operation} {calls}"));
        rows.collect::<Vec<_>>().join(", ")
    }

    /// Returns a text for each function that exceeds its budget: by how many calls, and which.
    pub fn over_plan(&self, jobs: u64) -> Vec<String> {
        let functions = self.calls.keys().filter(|function| **function != NO_CALLER);
        let over = functions.filter_map(|function| {
            let over = self.calls_of(function).saturating_sub(planned(function, jobs));
            (over > 0).then(|| {
                format!("{function}: {over} over plan; spent on: {}", self.spent_by(function))
            })
        });
        over.collect()
    }

    /// Returns the cost on AWS in dollars, including event sources.
    #[expect(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
    pub fn dollars(&self) -> f64 {
        let own: f64 =
            self.calls.values().flatten().map(|(name, used)| money::dollars(name, used)).sum();
        let (all, fifo) =
            ((self.sources.receives + self.sources.deletes) as f64, self.sources.fifo_calls as f64);
        own + fifo * prices::SQS_FIFO_REQUEST + (all - fifo) * prices::SQS_STANDARD_REQUEST
    }
}

fn is_own(operation: &str) -> bool {
    matches!(money::service(operation), Some("DynamoDB" | "S3" | "SQS"))
}

/// The calls of a change, by stage.
#[derive(Debug, Clone)]
pub struct Counted {
    /// The processing of the push of a branch that will be proposed, when it is in the same
    /// repository.
    pub push: Stage,
    /// From the webhook to the report of check.
    pub check: Stage,
    /// From the approval to the landing and its report.
    pub gate: Stage,
    /// The processing of the forge's events after the landing: the change was closed, the branch
    /// was pushed.
    pub echo: Stage,
}

/// Counts a check change and a gate change with three jobs of one node each: with git repositories,
/// whose packs the merger stores and executors load, and with the logs of every build.
pub async fn count(nodes: Nodes) -> Counted {
    let mut real = Real::new(sample::playable(nodes), Builds::Prepared).await;
    real.deployment.ends = Ends::OneByOne;
    // The first change fills the caches of the functions.
    one(&mut real, 1).await;
    one(&mut real, 2).await
}

/// The periodic calls without any change, each over [`IDLE_MINUTES`] virtual minutes.
#[derive(Debug, Clone)]
pub struct Idle {
    /// The timer's sweep once a minute, and the functions that it wakes. Event sources only count
    /// receives with messages.
    pub sweep: Stage,
    /// An executor's session, renewed as often as by its loop.
    pub session: Stage,
    /// The same while it runs builds.
    pub building: Stage,
}

/// Counts the calls in [`IDLE_MINUTES`] virtual minutes without events, on a deployment that has
/// processed a change.
pub async fn idle() -> Idle {
    let mut real = Real::new(sample::playable(Nodes::Warm), Builds::Prepared).await;
    real.deployment.ends = Ends::OneByOne;
    one(&mut real, 1).await;
    let timer = Timer::new(real.deployment.world.ports_of("timer"), IDLE_MINUTES);
    Stage::taken(&mut real.deployment);
    for _ in 0..IDLE_MINUTES {
        real.deployment.world.advance_millis(60_000);
        timer.tick().await.unwrap();
        real.deployment.rest().await;
    }
    let sweep = Stage::taken(&mut real.deployment);
    let session = renewals(&mut real.deployment).await;
    begin_builds(&mut real, 2).await;
    let building = renewals(&mut real.deployment).await;
    // Background work in the directories must end before they are removed.
    while real.deployment.end_build().await {}
    Idle { sweep, session, building }
}

/// Counts the calls of the session's renewals, and extends the session for what follows.
async fn renewals(deployment: &mut Deployment) -> Stage {
    Stage::taken(deployment);
    deployment.renew_session(IDLE_MINUTES).await;
    let stage = Stage::taken(deployment);
    deployment.begin_session();
    stage
}

/// Proposes a change and starts its builds; none of them ends.
async fn begin_builds(real: &mut Real, number: u64) {
    real.push(number).await;
    settle(real).await;
    real.propose(number).await;
    real.deliver_events().await;
    real.deployment.receive_all().await;
    while real.deployment.running() == 0 {
        let mut moved = false;
        for queue in MessageQueue::ALL {
            moved |= real.deployment.deliver(queue).await;
        }
        assert!(moved || real.deployment.wait(), "no build ever began");
    }
}

async fn one(real: &mut Real, number: u64) -> Counted {
    settle(real).await;
    Stage::taken(&mut real.deployment);
    real.push(number).await;
    settle(real).await;
    let push = Stage::taken(&mut real.deployment);
    let change = real.propose(number).await;
    process_events(real).await;
    assert!(real.has_status(change, "bench/check", "success"), "check did not end well");
    let check = Stage::taken(&mut real.deployment);
    // The forge's events about our own statuses.
    settle(real).await;
    Stage::taken(&mut real.deployment);
    real.approve(change);
    process_events(real).await;
    assert!(real.has_status(change, "bench/gate", "success"), "gate did not end well");
    let gate = Stage::taken(&mut real.deployment);
    settle(real).await;
    Counted { push, check, gate, echo: Stage::taken(&mut real.deployment) }
}

/// Processes the forge's events up to now and their consequences. Later events of the forge wait:
/// they arrive through a socket, so it would be random which of them are counted.
async fn process_events(real: &mut Real) {
    real.deliver_events().await;
    real.deployment.receive_all().await;
    real.deployment.listens = false;
    real.deployment.rest().await;
    real.deployment.listens = true;
}

/// Processes the forge's events until it sends no more.
async fn settle(real: &mut Real) {
    loop {
        real.deliver_events().await;
        let received = real.deployment.receive_all().await;
        real.deployment.rest().await;
        if !received {
            return;
        }
    }
}
