//! Counts the calls of one change with three jobs, by function and operation, on a house that has seen such a change before.

use crate::house::{Ends, EventSources, House};
use crate::money;
use crate::real::Real;
use crate::runner::Builds;
use crate::sample::{self, Nodes};
use sluice_memory::{Calls, Used, prices};
use sluice_timer::Timer;
use std::collections::BTreeMap;

/// Kinds of calls that are told of what most go to.
const SPENT_MAX: usize = 12;
/// Minutes of which [`idle`] counts the calls: in one of them the timer has the forges asked for what nobody told.
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
        all.filter(|(name, _)| money::service(name) == Some(service)).map(|(_, used)| used.calls).sum()
    }

    /// Says which operations of which function most calls go to.
    pub fn spent(&self) -> String {
        let all = self.calls.iter().flat_map(|(function, operations)| {
            operations.iter().map(move |(operation, used)| (used.calls, function, operation))
        });
        let mut all: Vec<_> = all.filter(|(_, _, operation)| is_own(operation)).collect();
        all.sort_by(|one, other| other.cmp(one));
        let rows =
            all.iter().take(SPENT_MAX).map(|(calls, function, operation)| format!("{function} {operation} {calls}"));
        rows.collect::<Vec<_>>().join(", ")
    }

    /// Returns what it would cost on AWS, event sources included.
    #[expect(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
    pub fn dollars(&self) -> f64 {
        let own: f64 = self.calls.values().flatten().map(|(name, used)| money::dollars(name, used)).sum();
        let (all, fifo) = ((self.sources.receives + self.sources.deletes) as f64, self.sources.fifo_calls as f64);
        own + fifo * prices::SQS_FIFO_REQUEST + (all - fifo) * prices::SQS_STANDARD_REQUEST
    }
}

fn is_own(operation: &str) -> bool {
    matches!(money::service(operation), Some("DynamoDB" | "S3" | "SQS"))
}

/// What a change costs.
#[derive(Debug, Clone)]
pub struct Counted {
    /// What the forge tells of the push of a branch that is to be proposed, where that lies in the same repository.
    pub push: Stage,
    /// From the webhook to the report of check.
    pub check: Stage,
    /// From the approval to the landing and its report.
    pub gate: Stage,
    /// What the forge tells of the landing: the change was closed, the branch was pushed.
    pub echo: Stage,
}

/// Counts a check change and a gate change with three jobs of one node each: with git repositories, whose packs the merger stores
/// and executors load, and with the logs that every build leaves.
pub async fn count(nodes: Nodes) -> Counted {
    let mut real = Real::new(sample::playable(nodes), Builds::Prepared).await;
    real.house.ends = Ends::OneByOne;
    // The first one warms what functions keep in memory.
    one(&mut real, 1).await;
    one(&mut real, 2).await
}

/// Counts what functions call in [`IDLE_MINUTES`] virtual minutes in which nothing happens, on a house that has seen a change: the
/// timer's sweep once a minute, as its schedule has it, and what that pokes. Event sources count receives that bring messages alone.
pub async fn idle() -> Stage {
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
    Stage::taken(&mut real.house)
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

/// Takes in what the forge has said so far, and does what comes of it; what the forge says of that is left for later. It comes
/// through a socket: listening to it meanwhile would count it now or later.
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
