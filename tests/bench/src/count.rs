//! Counts the calls of one change with three jobs, by function and operation, on a house that has
//! seen such a change before.

use crate::budget::planned;
use crate::house::{Ends, EventSources, House};
use crate::money;
use crate::real::Real;
use crate::runner::Builds;
use crate::sample::{self, Nodes};
use sluice_memory::{Calls, NOBODY, Used, prices};
use sluice_model::poke::Queue;
use sluice_timer::Timer;
use std::collections::BTreeMap;

/// Kinds of calls that are told of what most go to.
const SPENT_MAX: usize = 12;
/// Minutes of which [`idle`] counts the calls: in one of them the timer has the forges asked for
/// what nobody told.
pub const IDLE_MINUTES: u64 = 10;

/// The calls of one stage of a change.
#[derive(Debug, Clone, Default)]
pub struct Stage {
    /// Calls by function and operation.
    pub calls: BTreeMap<&'static str, BTreeMap<&'static str, Used>>,
    /// What event sources did for it.
    pub sources: EventSources,
    /// Records written.
    pub records_written: u64,
}

impl Stage {
    fn taken(house: &mut House) -> Self {
        let Calls { by_caller, records_written, .. } = house.world.take_calls();
        Self { calls: by_caller, sources: std::mem::take(&mut house.sources), records_written }
    }

    /// Returns the own calls of one function to DynamoDB, S3 and SQS.
    pub fn calls_of(&self, function: &str) -> u64 {
        self.calls.get(function).map_or(0, |operations| {
            operations.iter().filter(|(name, _)| is_own(name)).map(|(_, used)| used.calls).sum()
        })
    }

    /// Returns the own calls of all functions to DynamoDB, S3 and SQS.
    pub fn total(&self) -> u64 {
        self.calls.keys().map(|function| self.calls_of(function)).sum()
    }

    /// Returns the calls of one kind by all functions.
    pub fn by_service(&self, service: &str) -> u64 {
        let all = self.calls.values().flatten();
        all.filter(|(name, _)| money::service(name) == Some(service))
            .map(|(_, used)| used.calls)
            .sum()
    }

    /// Says which operations of which function most calls go to.
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

    /// Says which operations the calls of one function go to.
    pub fn spent_by(&self, function: &str) -> String {
        let operations = self.calls.get(function).into_iter().flatten();
        let own = operations.filter(|(operation, _)| is_own(operation));
        let mut all: Vec<_> = own.map(|(operation, used)| (used.calls, *operation)).collect();
        all.sort_by(|one, other| other.cmp(one));
        let rows = all.iter().map(|(calls, operation)| format!("{operation} {calls}"));
        rows.collect::<Vec<_>>().join(", ")
    }

    /// Says of each function that makes more calls than the plan gives it by how many, and what it
    /// calls.
    pub fn over_plan(&self, jobs: u64) -> Vec<String> {
        let functions = self.calls.keys().filter(|function| **function != NOBODY);
        let over = functions.filter_map(|function| {
            let over = self.calls_of(function).saturating_sub(planned(function, jobs));
            (over > 0).then(|| {
                format!("{function}: {over} over plan; spent on: {}", self.spent_by(function))
            })
        });
        over.collect()
    }

    /// Returns what it would cost on AWS, event sources included.
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

/// What a change costs.
#[derive(Debug, Clone)]
pub struct Counted {
    /// What the forge tells of the push of a branch that is to be proposed, where that lies in the
    /// same repository.
    pub push: Stage,
    /// From the webhook to the report of check.
    pub check: Stage,
    /// From the approval to the landing and its report.
    pub gate: Stage,
    /// What the forge tells of the landing: the change was closed, the branch was pushed.
    pub echo: Stage,
}

/// Counts a check change and a gate change with three jobs of one node each: with git repositories,
/// whose packs the merger stores and executors load, and with the logs that every build leaves.
pub async fn count(nodes: Nodes) -> Counted {
    let mut real = Real::new(sample::playable(nodes), Builds::Prepared).await;
    real.house.ends = Ends::OneByOne;
    // The first one warms what functions keep in memory.
    one(&mut real, 1).await;
    one(&mut real, 2).await
}

/// What is called by the minute, whatever changes come: each over [`IDLE_MINUTES`] virtual ones.
#[derive(Debug, Clone)]
pub struct Idle {
    /// The timer's sweep once a minute, as its schedule has it, and what that pokes. Event sources
    /// count receives that bring messages alone.
    pub sweep: Stage,
    /// An executor's session, renewed as often as its loop does.
    pub session: Stage,
    /// The same while it runs builds.
    pub building: Stage,
}

/// Counts what is called in [`IDLE_MINUTES`] virtual minutes in which nothing happens, on a house
/// that has seen a change.
pub async fn idle() -> Idle {
    let mut real = Real::new(sample::playable(Nodes::Warm), Builds::Prepared).await;
    real.house.ends = Ends::OneByOne;
    one(&mut real, 1).await;
    let timer = Timer::new(real.house.world.ports_of("timer"), IDLE_MINUTES);
    Stage::taken(&mut real.house);
    for _ in 0..IDLE_MINUTES {
        real.house.world.advance_millis(60_000);
        timer.tick().await.unwrap();
        real.house.rest().await;
    }
    let sweep = Stage::taken(&mut real.house);
    let session = renewals(&mut real.house).await;
    begin_builds(&mut real, 2).await;
    let building = renewals(&mut real.house).await;
    // What they began in the house's directories is over before those are removed.
    while real.house.end_build().await {}
    Idle { sweep, session, building }
}

/// Counts what the renewals of the executor's session call, and has the session outlive what comes
/// then.
async fn renewals(house: &mut House) -> Stage {
    Stage::taken(house);
    house.renew_session(IDLE_MINUTES).await;
    let stage = Stage::taken(house);
    house.begin_session();
    stage
}

/// Proposes a change and has its builds begin; none of them ends.
async fn begin_builds(real: &mut Real, number: u64) {
    real.push(number).await;
    settle(real).await;
    real.propose(number).await;
    real.told().await;
    real.house.receive_all().await;
    while real.house.running() == 0 {
        let mut moved = false;
        for queue in Queue::ALL {
            moved |= real.house.deliver(queue).await;
        }
        assert!(moved || real.house.wait(), "no build ever began");
    }
}

async fn one(real: &mut Real, number: u64) -> Counted {
    settle(real).await;
    Stage::taken(&mut real.house);
    real.push(number).await;
    settle(real).await;
    let push = Stage::taken(&mut real.house);
    let change = real.propose(number).await;
    hear(real).await;
    assert!(real.has_status(change, "bench/check", "success"), "check did not end well");
    let check = Stage::taken(&mut real.house);
    // What the forge says of our own statuses.
    settle(real).await;
    Stage::taken(&mut real.house);
    real.approve(change);
    hear(real).await;
    assert!(real.has_status(change, "bench/gate", "success"), "gate did not end well");
    let gate = Stage::taken(&mut real.house);
    settle(real).await;
    Counted { push, check, gate, echo: Stage::taken(&mut real.house) }
}

/// Takes in what the forge has said so far, and does what comes of it; what the forge says of that
/// is left for later. It comes through a socket: listening to it meanwhile would count it now or
/// later.
async fn hear(real: &mut Real) {
    real.told().await;
    real.house.receive_all().await;
    real.house.listens = false;
    real.house.rest().await;
    real.house.listens = true;
}

/// Takes in what the forge says until it says nothing more.
async fn settle(real: &mut Real) {
    loop {
        real.told().await;
        let heard = real.house.receive_all().await;
        real.house.rest().await;
        if !heard {
            return;
        }
    }
}
