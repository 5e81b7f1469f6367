//! A semaphore: how many builds hold it, and which queues stand in line for it.

use serde::{Deserialize, Serialize};
use sluice_model::name::escape;
use sluice_model::{
    BuildId, ItemId, JobName, PipelineName, QueueKey, QueueName, TenantName, Timestamp,
};
use std::fmt;

/// Queues that stand in line; one that finds no place here looks again by itself.
pub const WAITING_MAX: usize = 100;

/// How urgent a queue is of which nobody says.
const PRIORITY: u32 = 200;

/// Which semaphore: a tenant's own, or one that tenants share.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct SemaphoreKey {
    /// The tenant whose own it is; `None` for a global one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<TenantName>,
    /// Its name.
    pub name: String,
}

impl fmt::Display for SemaphoreKey {
    /// Writes `<tenant>/<name>`, `/` in either escaped; a global one has no tenant.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tenant = self.tenant.as_ref().map_or("", TenantName::as_str);
        write!(f, "{}/{}", escape(tenant), escape(&self.name))
    }
}

/// A semaphore's record. It is written in the same transaction as the order that takes it, on
/// condition that it is as it was read: two queues never take the last place both.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Semaphore {
    /// Which one.
    pub key: SemaphoreKey,
    /// Who holds it; there are as many as its `max`, seldom more (when it was lowered).
    #[serde(default)]
    pub holders: Vec<Holder>,
    /// Queues with a job that waits for it, in the order in which they are served, at most
    /// [`WAITING_MAX`].
    #[serde(default)]
    pub waiting: Vec<Waiter>,
}

/// A queue that stands in line. Each place that is free is kept for whoever is before the others:
/// first asked, first served, the more urgent pipeline before that. All lines have this one order,
/// so that of those who need several semaphores one is always first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Waiter {
    /// The queue's tenant.
    pub tenant: TenantName,
    /// Its pipeline.
    pub pipeline: PipelineName,
    /// Its name there.
    pub queue: QueueName,
    /// How urgent its pipeline is; the lowest number is served first.
    #[serde(default = "usual")]
    pub priority: u32,
    /// When the job asked that waits longest there.
    #[serde(default)]
    pub since: Timestamp,
    /// The same by whether it has its nodes; a line of an earlier version does not say.
    #[serde(default, skip_serializing_if = "Asked::is_unknown")]
    pub asked: Asked,
}

/// When the jobs of a queue asked that wait longest for a semaphore.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Asked {
    /// The one that has no nodes, and asks for them when it has its semaphores.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub without_nodes: Option<Timestamp>,
    /// The one that has its nodes in hand (`resources-first`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub with_nodes: Option<Timestamp>,
}

/// What a job has that waits for a semaphore.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hands {
    /// Nothing: who waits so keeps nobody from anything.
    Empty,
    /// Nodes, which others may wait for.
    Nodes,
}

impl Asked {
    /// Returns when the job asked that waits longest; `None` where nobody says.
    pub fn first(&self) -> Option<Timestamp> {
        self.without_nodes.into_iter().chain(self.with_nodes).min()
    }

    /// Takes in that a job asked then.
    pub fn add(&mut self, hands: Hands, at: Timestamp) {
        let longest = match hands {
            Hands::Empty => &mut self.without_nodes,
            Hands::Nodes => &mut self.with_nodes,
        };
        *longest = Some(longest.map_or(at, |before| before.min(at)));
    }

    fn is_unknown(&self) -> bool {
        self.first().is_none()
    }
}

fn usual() -> u32 {
    PRIORITY
}

impl Waiter {
    /// Returns a queue's place in line.
    pub fn new(queue: &QueueKey, priority: u32, since: Timestamp) -> Self {
        let QueueKey { tenant, pipeline, queue } = queue.clone();
        Self { tenant, pipeline, queue, priority, since, asked: Asked::default() }
    }

    /// Returns the place of a queue whose jobs asked then.
    pub fn asking(queue: &QueueKey, priority: u32, asked: Asked) -> Self {
        Self { asked, ..Self::new(queue, priority, asked.first().unwrap_or_default()) }
    }

    /// Returns when the job asked that waits longest there with such hands. Where nobody says who
    /// has nodes, nobody has.
    pub fn asked(&self, hands: Hands) -> Option<Timestamp> {
        match hands {
            Hands::Empty if self.asked.is_unknown() => Some(self.since),
            Hands::Empty => self.asked.without_nodes,
            Hands::Nodes => self.asked.with_nodes,
        }
    }

    /// Returns the queue.
    pub fn key(&self) -> QueueKey {
        let Self { tenant, pipeline, queue, .. } = self.clone();
        QueueKey { tenant, pipeline, queue }
    }

    /// Returns what it is ordered by.
    pub fn place(&self) -> (u32, Timestamp, QueueKey) {
        (self.priority, self.since, self.key())
    }
}

/// A build that holds a semaphore.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    /// The build.
    pub build: BuildId,
    /// The queue that ordered it, and that alone takes it off the list.
    pub queue: QueueKey,
    /// The item it is for.
    pub item: ItemId,
    /// The job.
    pub job: JobName,
    /// Since when.
    pub since: Timestamp,
    /// Whether the build is not wanted any more: it holds on until it is known to have stopped.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub leaving: bool,
}

impl Semaphore {
    /// Returns one that nobody holds.
    pub fn new(key: SemaphoreKey) -> Self {
        Self { key, holders: Vec::new(), waiting: Vec::new() }
    }

    /// Returns whether nobody holds it or waits for it.
    pub fn is_unused(&self) -> bool {
        self.holders.is_empty() && self.waiting.is_empty()
    }

    /// Returns whether a build holds it.
    pub fn is_held_by(&self, build: &BuildId) -> bool {
        self.holders.iter().any(|holder| holder.build == *build)
    }
}
