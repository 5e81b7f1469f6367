//! A semaphore: the builds that hold it and the queues that wait for it.

use serde::{Deserialize, Serialize};
use sluice_model::name::escape;
use sluice_model::{
    BuildId, ItemId, JobName, PipelineName, QueueKey, QueueName, TenantName, Timestamp,
};
use std::fmt;

/// The most queues in the waiting list. A queue that does not fit retries by itself.
pub const WAITING_MAX: usize = 100;

/// Identifies a semaphore: of one tenant or global.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct SemaphoreKey {
    /// The tenant that defines it; `None` for a global semaphore.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<TenantName>,
    /// The name that jobs use.
    pub name: String,
}

impl fmt::Display for SemaphoreKey {
    /// Writes `<tenant>/<name>` with `%`, `/` and `#` escaped in both. A global semaphore has an
    /// empty tenant.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tenant = self.tenant.as_ref().map_or("", TenantName::as_str);
        write!(f, "{}/{}", escape(tenant), escape(&self.name))
    }
}

/// A semaphore's record. It is written in the transaction of the build order that acquires it, on
/// condition of its revision, so that two queues never acquire the last unit together.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Semaphore {
    /// The semaphore's key.
    pub key: SemaphoreKey,
    /// The builds that hold it: at most its `max`, or more where `max` was lowered since.
    pub holders: Vec<SemaphoreHolder>,
    /// The queues with a job that waits for it, in the order in which they are served; at most
    /// [`WAITING_MAX`].
    pub waiting: Vec<SemaphoreWaiter>,
}

/// A queue in the waiting list. A free unit is reserved for the first queue of the list: the most
/// urgent pipeline, then the oldest request. All semaphores use this one order, so that of several
/// queues that need several semaphores one is always first everywhere.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SemaphoreWaiter {
    /// The tenant of the queue.
    pub tenant: TenantName,
    /// The pipeline of the queue.
    pub pipeline: PipelineName,
    /// The name of the queue in its pipeline.
    pub queue: QueueName,
    /// The pipeline's priority. The lowest number is served first.
    pub priority: u32,
    /// When the longest-waiting job of the queue first asked.
    pub since: Timestamp,
    /// The same time as `since`, separately for jobs with and without nodes.
    pub waiting_since: WaitingSince,
}

/// When the longest-waiting jobs of a queue first asked for a semaphore.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct WaitingSince {
    /// The longest-waiting job that asks for nodes only once it has its semaphores.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub without_nodes: Option<Timestamp>,
    /// The longest-waiting job that already has its nodes (`resources-first`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub with_nodes: Option<Timestamp>,
}

/// Whether a job that waits for a semaphore has its nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NodesHeld {
    /// It has no nodes, so it blocks no other job while it waits.
    Without,
    /// It holds nodes, which other jobs may wait for.
    With,
}

impl WaitingSince {
    /// Returns when the longest-waiting job asked; `None` where no job waits.
    pub fn earliest(&self) -> Option<Timestamp> {
        self.without_nodes.into_iter().chain(self.with_nodes).min()
    }

    /// Records that a job asked at `at`. Does nothing where a job of the same kind asked earlier.
    pub fn add(&mut self, nodes: NodesHeld, at: Timestamp) {
        let longest = match nodes {
            NodesHeld::Without => &mut self.without_nodes,
            NodesHeld::With => &mut self.with_nodes,
        };
        *longest = Some(longest.map_or(at, |before| before.min(at)));
    }
}

impl SemaphoreWaiter {
    /// Creates the waiting-list entry of a queue whose longest-waiting job has no nodes and asked
    /// at `since`.
    pub fn new(queue: &QueueKey, priority: u32, since: Timestamp) -> Self {
        let QueueKey { tenant, pipeline, queue } = queue.clone();
        let waiting_since = WaitingSince { without_nodes: Some(since), with_nodes: None };
        Self { tenant, pipeline, queue, priority, since, waiting_since }
    }

    /// Creates the waiting-list entry of a queue from the times at which its jobs asked; at least
    /// one has to be given.
    pub fn with_jobs(queue: &QueueKey, priority: u32, asked: WaitingSince) -> Self {
        Self {
            waiting_since: asked,
            ..Self::new(queue, priority, asked.earliest().unwrap_or_default())
        }
    }

    /// Returns when the longest-waiting job with or without nodes asked; `None` where no such job
    /// waits.
    pub fn waiting_since(&self, nodes: NodesHeld) -> Option<Timestamp> {
        match nodes {
            NodesHeld::Without => self.waiting_since.without_nodes,
            NodesHeld::With => self.waiting_since.with_nodes,
        }
    }

    /// Returns the key of the queue.
    pub fn key(&self) -> QueueKey {
        let Self { tenant, pipeline, queue, .. } = self.clone();
        QueueKey { tenant, pipeline, queue }
    }

    /// Returns the sort key of the waiting list: the priority, then the time, then the queue.
    pub fn service_order(&self) -> (u32, Timestamp, QueueKey) {
        (self.priority, self.since, self.key())
    }
}

/// A build that holds one unit of a semaphore.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SemaphoreHolder {
    /// The build's id.
    pub build: BuildId,
    /// The queue that ordered the build. Only this queue removes it from the list.
    pub queue: QueueKey,
    /// The item that the build tests.
    pub item: ItemId,
    /// The job of the build.
    pub job: JobName,
    /// When it acquired the semaphore.
    pub since: Timestamp,
    /// Whether the build was cancelled. It holds the semaphore until it is known to have stopped.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub leaving: bool,
}

impl Semaphore {
    /// Creates a semaphore without holders.
    pub fn new(key: SemaphoreKey) -> Self {
        Self { key, holders: Vec::new(), waiting: Vec::new() }
    }

    /// Returns whether it has neither holders nor waiting queues.
    pub fn is_unused(&self) -> bool {
        self.holders.is_empty() && self.waiting.is_empty()
    }

    /// Returns whether `build` holds it.
    pub fn is_held_by(&self, build: &BuildId) -> bool {
        self.holders.iter().any(|holder| holder.build == *build)
    }
}

#[cfg(test)]
mod tests {
    use super::SemaphoreKey;

    /// N16, C2.1: the text is part of a record's key, so that no two semaphores have the same.
    #[test]
    fn semaphores_of_different_tenants_and_names_have_different_keys() {
        let key = |tenant: Option<&str>, name: &str| {
            SemaphoreKey { tenant: tenant.map(Into::into), name: name.to_owned() }.to_string()
        };
        assert_eq!(key(Some("acme"), "disk"), "acme/disk");
        assert_eq!(key(None, "disk"), "/disk");
        assert_eq!(key(Some("a/b"), "c"), "a%2fb/c");
        assert_eq!(key(Some("a"), "b/c#%"), "a/b%2fc%23%25");
    }
}
