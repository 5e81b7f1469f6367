//! Measures the throughput of one gate queue with many approved changes, and where the time goes.
//!
//! Everything runs in one thread, one batch after another: functions run side by side on AWS, so
//! this is a lower bound of the rate, and the time of the gate's own function its upper one.
//!
//! The local forge starts git processes for its answers. It measures the time during which it
//! answers any request, of the API or of git over HTTP. That time is excluded.

use crate::clocked::Stopwatch;
use crate::deployment::{Deployment, Ends};
use crate::real::{self, Real};
use crate::runner::Builds;
use crate::sample::{self, Nodes};
use crate::simulated::Played;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// The time limit of one measurement.
const PATIENCE: Duration = Duration::from_secs(60);

/// Time and number of calls, by name.
pub type Times = BTreeMap<&'static str, (Duration, u64)>;

/// Adds times by name.
pub fn sum(all: impl IntoIterator<Item = Times>) -> Times {
    let mut sum = Times::new();
    for (name, (time, count)) in all.into_iter().flatten() {
        let entry = sum.entry(name).or_default();
        *entry = (entry.0 + time, entry.1 + count);
    }
    sum
}

/// The throughput.
#[derive(Debug, Clone)]
pub struct Rate {
    /// How much of each build was executed.
    pub builds: Builds,
    /// The number of approved changes.
    pub asked: u64,
    /// The number of landed changes at the end.
    pub landed: u64,
    /// The time from the first approval to the last landing.
    pub wall: Duration,
    /// The processor time of this process, including a forge that runs in it, without its git
    /// processes.
    pub processor: Duration,
    /// The time by function, including waits.
    pub functions: Times,
    /// The time by call of the forge and of repositories.
    pub outside: Times,
    /// The forge's own time: for how long it was answering at least one request.
    pub forge: Duration,
    /// The time during which git worked on at least one repository, including fetches.
    pub git: Duration,
    /// The number of records written.
    pub records_written: u64,
    /// The number of own calls.
    pub calls: u64,
}

impl Rate {
    /// Returns the changes per second that one processor would allow.
    #[expect(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
    pub fn per_processor_second(&self) -> f64 {
        self.landed as f64 / self.processor.as_secs_f64().max(1e-9)
    }

    /// Returns the changes per second, without the forge's own time.
    #[expect(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
    pub fn per_second(&self) -> f64 {
        self.landed as f64 / self.wall.saturating_sub(self.forge).as_secs_f64().max(1e-9)
    }
}

/// Measures with a forge and repositories that cost next to nothing: our own work alone. Such
/// repositories have no packs, so builds have no workspace.
pub async fn own(changes: u64) -> Rate {
    let mut played = Played::new(Nodes::Cold).await;
    played.deployment.ends = Ends::AtOnce;
    let keys: Vec<_> = (1..=changes).map(|number| played.propose(number)).collect();
    played.deployment.rest().await;
    for key in &keys {
        played.forge.approve(key);
    }
    let (forge, outside) = (played.forge.clone(), played.outside.clone());
    let forge_time = || outside.covered("forge");
    measure(&mut played.deployment, &outside, changes, || forge.merges().len() as u64, forge_time)
        .await
}

/// Measures with real repositories: a forge on this machine, its REST API, merges by git, and
/// builds that get their workspace from the packs of those and their playbooks. Ansible is left
/// out, and the nodes that it would run on are played.
pub async fn real(changes: u64) -> Rate {
    let mut real = Real::new(sample::playable(Nodes::Cold), Builds::Prepared).await;
    real.deployment.ends = Ends::AtOnce;
    let mut numbers = Vec::new();
    for number in 1..=changes {
        real.push(number).await;
        numbers.push(real.propose(number).await);
    }
    real.deliver_events().await;
    real.deployment.rest().await;
    for number in &numbers {
        real.approve(*number);
    }
    real.deliver_events().await;
    let (forge, outside) = (real.forge.clone(), real.outside.clone());
    measure(&mut real.deployment, &outside, changes, || real::landed(&forge), || forge.busy()).await
}

async fn measure(
    deployment: &mut Deployment,
    outside: &Stopwatch,
    asked: u64,
    landed: impl Fn() -> u64,
    forge_time: impl Fn() -> Duration,
) -> Rate {
    deployment.world.take_calls();
    deployment.take_times();
    outside.take();
    let (begin, before) = (Instant::now(), processor_time());
    let (forge_before, git_before) = (forge_time(), outside.covered("git"));
    while landed() < asked && begin.elapsed() < PATIENCE {
        if !deployment.step().await && !deployment.wait() {
            // The events of a real forge arrive through a socket.
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
    let (wall, processor) = (begin.elapsed(), processor_time().saturating_sub(before));
    let calls = deployment.world.take_calls();
    Rate {
        builds: deployment.builds(),
        asked,
        landed: landed(),
        wall,
        processor,
        functions: deployment.take_times(),
        forge: forge_time().saturating_sub(forge_before),
        git: outside.covered("git").saturating_sub(git_before),
        outside: outside.take(),
        records_written: calls.records_written,
        calls: calls.total(),
    }
}

/// Returns the processor time of this process without its children. Linux counts it in hundredths
/// of a second.
pub fn processor_time() -> Duration {
    let text = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The name in parentheses may contain spaces; user and system time are the 12th and 13th fields
    // after it.
    let behind = text.rsplit_once(')').map_or("", |(_, rest)| rest);
    let ticks: u64 = behind
        .split_whitespace()
        .skip(11)
        .take(2)
        .filter_map(|field| field.parse::<u64>().ok())
        .sum();
    Duration::from_millis(ticks * 10)
}
