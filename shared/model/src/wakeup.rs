//! Wakeups: messages without facts that say "reconcile this key". They carry keys only, so a
//! repeated, late or misordered one costs only a read.

use crate::build::RequestRef;
use crate::id::digest;
use crate::{
    BuildId, DeliveryId, ItemId, NodeId, ProjectName, ProviderName, QueueKey, TenantName, ZoneName,
};
use serde::{Deserialize, Serialize};

/// The message queues between functions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MessageQueue {
    /// Wakeups for deliveries, grouped by project.
    Events,
    /// Wakeups for queue cells, grouped by cell.
    Gate,
    /// Wakeups for tenants, grouped by tenant.
    Tenants,
    /// Wakeups for provider cells, grouped by provider.
    Pool,
    /// Reports and landings, grouped by project and branch.
    Reports,
    /// Wakeups for image cells, grouped by image.
    Images,
    /// Merges to make.
    Merges,
    /// Delayed wakeups, up to 15 minutes.
    Wakes,
    /// Builds of pipelines with high precedence.
    BuildsHigh,
    /// Builds of pipelines with normal precedence.
    BuildsNormal,
    /// Builds of pipelines with low precedence.
    BuildsLow,
}

impl MessageQueue {
    /// Every queue, in the order of the template.
    pub const ALL: [Self; 11] = [
        Self::Events,
        Self::Gate,
        Self::Tenants,
        Self::Pool,
        Self::Reports,
        Self::Images,
        Self::Merges,
        Self::Wakes,
        Self::BuildsHigh,
        Self::BuildsNormal,
        Self::BuildsLow,
    ];

    /// Returns whether the queue preserves the order within a group.
    pub fn is_fifo(self) -> bool {
        matches!(
            self,
            Self::Events | Self::Gate | Self::Tenants | Self::Pool | Self::Reports | Self::Images
        )
    }

    /// Returns the environment variable that holds the queue's URL.
    pub fn variable(self) -> &'static str {
        match self {
            Self::Events => "SLUICE_QUEUE_EVENTS",
            Self::Gate => "SLUICE_QUEUE_GATE",
            Self::Tenants => "SLUICE_QUEUE_TENANTS",
            Self::Pool => "SLUICE_QUEUE_POOL",
            Self::Reports => "SLUICE_QUEUE_REPORTS",
            Self::Images => "SLUICE_QUEUE_IMAGES",
            Self::Merges => "SLUICE_QUEUE_MERGES",
            Self::Wakes => "SLUICE_QUEUE_WAKES",
            Self::BuildsHigh => "SLUICE_QUEUE_BUILDS_HIGH",
            Self::BuildsNormal => "SLUICE_QUEUE_BUILDS_NORMAL",
            Self::BuildsLow => "SLUICE_QUEUE_BUILDS_LOW",
        }
    }
}

/// How urgent a pipeline's builds are (Zuul's `precedence`).
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[serde(rename_all = "kebab-case")]
pub enum Precedence {
    /// Served before the others.
    High,
    /// Served after high and before low.
    #[default]
    Normal,
    /// Served after the others.
    Low,
}

impl Precedence {
    /// Returns the priority number of Z1.1: 100, 200 or 300. The lowest is served first.
    pub fn priority(self) -> u32 {
        match self {
            Self::High => 100,
            Self::Normal => 200,
            Self::Low => 300,
        }
    }

    /// Returns the message queue in which its builds wait.
    pub fn queue(self) -> MessageQueue {
        match self {
            Self::High => MessageQueue::BuildsHigh,
            Self::Normal => MessageQueue::BuildsNormal,
            Self::Low => MessageQueue::BuildsLow,
        }
    }
}

/// A request to reconcile one key, with nothing but keys in it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(tag = "reconcile", rename_all = "kebab-case")]
pub enum Wakeup {
    /// A delivery that is not yet fully processed.
    Delivery {
        /// The delivery.
        delivery: DeliveryId,
        /// The delivery's project, which is the message group.
        project: ProjectName,
    },
    /// A change queue.
    Queue {
        /// The key of its cell.
        queue: QueueKey,
    },
    /// An answer that a change queue waits for: a merge outcome, a run or a landing. It adds no
    /// inbox message to the queue.
    Answer {
        /// The queue that waits.
        queue: QueueKey,
    },
    /// A tenant's configuration.
    Tenant {
        /// The tenant.
        tenant: TenantName,
    },
    /// An item that needs its merged state.
    Merge {
        /// The item's queue.
        queue: QueueKey,
        /// The item.
        item: ItemId,
        /// The generation of the item's speculative state.
        generation: u64,
    },
    /// A provider's requests and nodes.
    Pool {
        /// The provider.
        provider: ProviderName,
    },
    /// A provider in the layout of a tenant whose configuration of it changed. Unlike
    /// [`Self::Pool`], it has the tenant's layout read again.
    ProviderChange {
        /// The provider.
        provider: ProviderName,
        /// The tenant.
        tenant: TenantName,
    },
    /// A report or landing to carry out.
    Report {
        /// The queue to wake up afterwards.
        queue: QueueKey,
        /// The key of the report or landing.
        report: String,
        /// Project and branch, which are the message group.
        group: String,
    },
    /// A build whose nodes are ready.
    Build {
        /// The build.
        build: BuildId,
        /// The precedence of the build's pipeline.
        precedence: Precedence,
        /// The build's tenant, for fairness between tenants.
        tenant: TenantName,
        /// The build's node request, so that an executor can read all records at once. The build's
        /// order is authoritative.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        request: Option<RequestRef>,
        /// The nodes of that request, so that an executor can read all records at once. The request
        /// is authoritative.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        nodes: Vec<NodeId>,
        /// The zone of executors that reach the nodes. Such a build waits in the table for an
        /// executor of the zone, and not in a queue. `None` for nodes that every executor reaches.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        zone: Option<ZoneName>,
    },
    /// An image cell.
    Image {
        /// The tenant.
        tenant: TenantName,
        /// The image's canonical name.
        image: String,
    },
    /// The timers of a tenant.
    Schedule {
        /// The tenant.
        tenant: TenantName,
    },
    /// A wakeup to send after a delay.
    Wake {
        /// The wakeup to send then.
        then: Box<Wakeup>,
        /// The delay in seconds, at most 900.
        delay_seconds: u32,
    },
}

/// The longest message group in characters.
const GROUP_CHARS_MAX: usize = 128;

impl Wakeup {
    /// Returns the message queue for this wakeup.
    pub fn queue(&self) -> MessageQueue {
        match self {
            Self::Delivery { .. } | Self::Schedule { .. } => MessageQueue::Events,
            Self::Queue { .. } | Self::Answer { .. } => MessageQueue::Gate,
            Self::Tenant { .. } => MessageQueue::Tenants,
            Self::Merge { .. } => MessageQueue::Merges,
            Self::Pool { .. } | Self::ProviderChange { .. } => MessageQueue::Pool,
            Self::Report { .. } => MessageQueue::Reports,
            Self::Build { precedence, .. } => precedence.queue(),
            Self::Image { .. } => MessageQueue::Images,
            Self::Wake { .. } => MessageQueue::Wakes,
        }
    }

    /// Returns the SQS message group: the name of the cell or group of cells that is reconciled,
    /// for a build its tenant. A name that SQS does not accept, since it is not 1 to 128 visible
    /// ASCII characters (no spaces), is replaced by its digest. `None` for merges and wakes. On
    /// standard queues the group only serves fairness between tenants.
    pub fn group(&self) -> Option<String> {
        let group = self.cell()?;
        let is_valid = (1..=GROUP_CHARS_MAX).contains(&group.len())
            && group.bytes().all(|byte| byte.is_ascii_graphic());
        Some(if is_valid { group } else { digest(&["group", &group]) })
    }

    /// Returns the name of the cell or group of cells that is reconciled: for a delivery its
    /// project, for a report its group, for a build its tenant. `None` for merges and wakes, whose
    /// order does not matter.
    fn cell(&self) -> Option<String> {
        match self {
            Self::Delivery { project, .. } => Some(project.to_string()),
            Self::Queue { queue } | Self::Answer { queue } => Some(queue.to_string()),
            Self::Tenant { tenant } => Some(tenant.to_string()),
            // Not the name of a project: those have a host.
            Self::Schedule { tenant } => Some(format!("schedule {tenant}")),
            Self::Pool { provider } | Self::ProviderChange { provider, .. } => {
                Some(provider.to_string())
            }
            Self::Report { group, .. } => Some(group.clone()),
            Self::Build { tenant, .. } => Some(tenant.to_string()),
            Self::Image { tenant, image } => Some(format!("{tenant}/{image}")),
            Self::Merge { .. } | Self::Wake { .. } => None,
        }
    }

    /// Returns whether reconciling `self` makes a wakeup for `other` redundant: `other` is equal,
    /// or is an answer for the same change queue, or is for the same provider while `self` is about
    /// its configuration. A delivery covers none, not even an equal one,
    /// since it may have waited for another one that has ended meanwhile.
    pub fn covers(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Delivery { .. }, _) => false,
            (Self::Queue { queue }, Self::Answer { queue: same }) => queue == same,
            (Self::ProviderChange { provider, .. }, Self::Pool { provider: same }) => {
                provider == same
            }
            _ => self == other,
        }
    }

    /// Returns the wakeup as JSON, by which an outbox recognises equal wakeups.
    pub fn slot(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Z6.7: no name of a project, queue or branch keeps its messages from being sent.
    #[test]
    fn every_name_yields_a_message_group_that_sqs_accepts() {
        let of = |project: String| {
            Wakeup::Delivery { delivery: "1".into(), project: ProjectName(project) }
                .group()
                .unwrap()
        };
        assert_eq!(of("github.com/org/one".to_owned()), "github.com/org/one");
        let odd =
            ["my queue".to_owned(), "größe".to_owned(), "x".repeat(129), String::new()].map(of);
        for group in &odd {
            assert!(
                (1..=128).contains(&group.len())
                    && group.bytes().all(|byte| byte.is_ascii_graphic()),
                "{group}"
            );
        }
        assert_eq!(
            odd.iter().collect::<std::collections::BTreeSet<_>>().len(),
            4,
            "each has its own"
        );
    }

    /// C2: a reconciled queue needs no second reconciliation for an answer; a delivery covers none.
    #[test]
    fn a_wakeup_covers_equal_ones_and_a_queue_covers_its_answers() {
        let queue = |name: &str| QueueKey {
            tenant: "t".into(),
            pipeline: "gate".into(),
            queue: name.into(),
        };
        let wakeup = |name: &str| Wakeup::Queue { queue: queue(name) };
        let answer = |name: &str| Wakeup::Answer { queue: queue(name) };
        assert!(wakeup("one").covers(&answer("one")) && wakeup("one").covers(&wakeup("one")));
        assert!(!wakeup("one").covers(&answer("two")) && !wakeup("one").covers(&wakeup("two")));
        assert!(!answer("one").covers(&wakeup("one")));
        let change =
            |tenant: &str| Wakeup::ProviderChange { provider: "p".into(), tenant: tenant.into() };
        let pool = Wakeup::Pool { provider: "p".into() };
        assert!(change("t").covers(&pool) && !pool.covers(&change("t")));
        assert!(!change("t").covers(&change("u")), "each tenant's layout is read");
        let delivery =
            Wakeup::Delivery { delivery: "1".into(), project: ProjectName("org/one".to_owned()) };
        assert!(!delivery.covers(&delivery));
    }
}
