//! Times an event on an idle house until its builds are asked for.

use crate::clocked::Stopwatch;
use crate::count::Played;
use crate::house::Ends;
use crate::sample::Nodes;
use sluice_model::poke::Queue;
use std::time::{Duration, Instant};

/// Changes before the first that is timed.
pub const WARM_UP: u64 = 5;
/// Changes that are timed.
pub const SAMPLES: u64 = 50;

/// Medians and 95th percentiles, without the time spent in the forge.
#[derive(Debug, Clone, Copy)]
pub struct Latency {
    /// From the webhook to the gate's requests for nodes.
    pub node_request: Spread,
    /// From the webhook to the first build in an executor's queue.
    pub build_request: Spread,
}

/// How samples lie.
#[derive(Debug, Clone, Copy)]
pub struct Spread {
    /// Half are faster.
    pub median: Duration,
    /// One in twenty is slower.
    pub high: Duration,
}

/// Times fifty changes, one after another.
pub async fn measure(nodes: Nodes) -> Latency {
    let mut played = Played::new(nodes).await;
    played.house.ends = Ends::OneByOne;
    let (mut requests, mut builds) = (Vec::new(), Vec::new());
    for number in 1..=WARM_UP + SAMPLES {
        let (request, build) = one(&mut played, number).await;
        if number > WARM_UP {
            requests.push(request);
            builds.push(build);
        }
        played.house.rest().await;
    }
    Latency { node_request: Spread::of(requests), build_request: Spread::of(builds) }
}

async fn one(played: &mut Played, number: u64) -> (Duration, Duration) {
    played.propose(number);
    let outside = played.outside.clone();
    let (begin, before) = (Instant::now(), outside_time(&outside));
    let own = || begin.elapsed().saturating_sub(outside_time(&outside).saturating_sub(before));
    let house = &mut played.house;
    house.receive_all().await;
    let mut requested = None;
    loop {
        let mut moved =
            house.deliver(Queue::Events).await | house.deliver(Queue::Gate).await | house.deliver(Queue::Merges).await;
        if requested.is_none() && house.world.has_visible(Queue::Pool) {
            requested = Some(own());
        }
        moved |= house.deliver(Queue::Pool).await;
        if house.world.has_visible(Queue::BuildsNormal) {
            return (requested.unwrap_or_default(), own());
        }
        moved |= house.deliver(Queue::Wakes).await;
        assert!(moved || house.wait(), "no build was ever asked for");
    }
}

fn outside_time(outside: &Stopwatch) -> Duration {
    outside.covered("forge") + outside.covered("git")
}

impl Spread {
    /// Returns how these lie; there is at least one.
    pub fn of(mut samples: Vec<Duration>) -> Self {
        samples.sort();
        Self { median: samples[samples.len() / 2], high: samples[samples.len() * 95 / 100] }
    }
}
