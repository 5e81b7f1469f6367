//! Measures the time from an event to its build requests on an idle deployment: with git
//! repositories and a local forge, whose own time is excluded.

use crate::deployment::Ends;
use crate::real::Real;
use crate::runner::Builds;
use crate::sample;
use crate::throughput::{Times, sum};
use sluice_model::wakeup::MessageQueue;
use std::time::{Duration, Instant};

/// Changes before the first measured one.
pub const WARM_UP: u64 = 5;
/// Measured changes.
pub const SAMPLES: u64 = 50;

/// Medians and 95th percentiles, without the time during which the forge answers requests,
/// including git over HTTP.
#[derive(Debug, Clone)]
pub struct Latency {
    /// From the webhook to the gate's node requests.
    pub node_request: Spread,
    /// From the webhook to the first build in an executor's queue.
    pub build_request: Spread,
    /// The queues of successive message batches up to the node requests, for the change that needed
    /// most.
    pub node_way: Vec<MessageQueue>,
    /// The same up to the build.
    pub build_way: Vec<MessageQueue>,
    /// The time by function up to the build request, for all changes together, including waits.
    pub functions: Times,
    /// The time by call of the forge and of repositories, which is part of that.
    pub outside: Times,
}

/// The times of one change.
struct Sample {
    node_request: Duration,
    node_way: Vec<MessageQueue>,
    build_request: Duration,
    build_way: Vec<MessageQueue>,
    functions: Times,
    outside: Times,
}

/// The distribution of samples.
#[derive(Debug, Clone, Copy)]
pub struct Spread {
    /// The median.
    pub median: Duration,
    /// The 95th percentile.
    pub high: Duration,
}

/// The number of ready nodes: those of the changes, and as many that are being returned.
const NODES: u32 = 6;

/// Measures fifty changes, one after another.
pub async fn measure() -> Latency {
    let mut real = Real::new(sample::repositories_with(NODES), Builds::Nothing).await;
    real.deployment.ends = Ends::OneByOne;
    let mut samples = Vec::new();
    for number in 1..=WARM_UP + SAMPLES {
        let sample = one(&mut real, number).await;
        if number > WARM_UP {
            samples.push(sample);
        }
        real.deployment.rest().await;
        real.deliver_events().await;
        real.deployment.rest().await;
    }
    Latency {
        node_request: Spread::of(samples.iter().map(|sample| sample.node_request).collect()),
        build_request: Spread::of(samples.iter().map(|sample| sample.build_request).collect()),
        node_way: longest(samples.iter().map(|sample| &sample.node_way)),
        build_way: longest(samples.iter().map(|sample| &sample.build_way)),
        functions: sum(samples.iter().map(|sample| sample.functions.clone())),
        outside: sum(samples.iter().map(|sample| sample.outside.clone())),
    }
}

fn longest<'a>(ways: impl Iterator<Item = &'a Vec<MessageQueue>>) -> Vec<MessageQueue> {
    ways.max_by_key(|way| way.len()).cloned().unwrap_or_default()
}

async fn one(real: &mut Real, number: u64) -> Sample {
    real.push(number).await;
    real.deliver_events().await;
    real.deployment.rest().await;
    real.propose(number).await;
    real.deliver_events().await;
    let (forge, outside) = (real.forge.clone(), real.outside.clone());
    real.deployment.take_times();
    outside.take();
    let (begin, before) = (Instant::now(), forge.busy());
    let own = || begin.elapsed().saturating_sub(forge.busy().saturating_sub(before));
    let deployment = &mut real.deployment;
    deployment.receive_all().await;
    let (mut way, mut requested) = (Vec::new(), None);
    loop {
        let mut moved = false;
        for queue in [MessageQueue::Events, MessageQueue::Gate, MessageQueue::Merges] {
            if deployment.deliver(queue).await {
                way.push(queue);
                moved = true;
            }
        }
        if requested.is_none() && deployment.world.has_visible(MessageQueue::Pool) {
            requested = Some((own(), way.clone()));
        }
        if deployment.deliver(MessageQueue::Pool).await {
            way.push(MessageQueue::Pool);
            moved = true;
        }
        if deployment.world.has_visible(MessageQueue::BuildsNormal) {
            let (node_request, node_way) = requested.unwrap_or_default();
            return Sample {
                node_request,
                node_way,
                build_request: own(),
                build_way: way,
                functions: deployment.take_times(),
                outside: outside.take(),
            };
        }
        moved |= deployment.deliver(MessageQueue::Wakes).await;
        assert!(moved || deployment.wait(), "no build was ever asked for");
    }
}

impl Spread {
    /// Returns the distribution of samples, of which there is at least one.
    pub fn of(mut samples: Vec<Duration>) -> Self {
        samples.sort();
        Self { median: samples[samples.len() / 2], high: samples[samples.len() * 95 / 100] }
    }
}
