//! Pokes: messages that say "look at this". They carry keys only, so twice, late or out of order
//! costs a read.

use crate::build::RequestRef;
use crate::id::digest;
use crate::{BuildId, DeliveryId, ItemId, NodeId, ProjectName, ProviderName, QueueKey, TenantName};
use serde::{Deserialize, Serialize};

/// The queues between functions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Queue {
    /// Deliveries, a group per project.
    Events,
    /// Queue cells, a group per cell.
    Gate,
    /// Tenants, a group per tenant.
    Tenants,
    /// Provider cells, a group per provider.
    Pool,
    /// Reports and landings, a group per project and branch.
    Reports,
    /// Image cells, a group per image.
    Images,
    /// Merges to make.
    Merges,
    /// Delayed pokes, up to 15 minutes.
    Wakes,
    /// Builds of high precedence.
    BuildsHigh,
    /// Builds of normal precedence.
    BuildsNormal,
    /// Builds of low precedence.
    BuildsLow,
}

impl Queue {
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

    /// Returns whether the queue keeps the order within a group.
    pub fn is_fifo(self) -> bool {
        matches!(
            self,
            Self::Events | Self::Gate | Self::Tenants | Self::Pool | Self::Reports | Self::Images
        )
    }

    /// Returns the environment variable that holds its URL.
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
    /// Before all others.
    High,
    /// In between.
    #[default]
    Normal,
    /// After all others.
    Low,
}

impl Precedence {
    /// Returns the priority number of Z1.1: 100, 200 or 300; the lowest is served first.
    pub fn priority(self) -> u32 {
        match self {
            Self::High => 100,
            Self::Normal => 200,
            Self::Low => 300,
        }
    }

    /// Returns the queue its builds wait in.
    pub fn queue(self) -> Queue {
        match self {
            Self::High => Queue::BuildsHigh,
            Self::Normal => Queue::BuildsNormal,
            Self::Low => Queue::BuildsLow,
        }
    }
}

/// "Look at this."
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(tag = "look-at", rename_all = "kebab-case")]
pub enum Poke {
    /// A delivery that is not final.
    Delivery {
        /// Which one.
        delivery: DeliveryId,
        /// Its project, the message's group.
        project: ProjectName,
    },
    /// A change queue.
    Queue {
        /// Which one.
        queue: QueueKey,
    },
    /// An answer that a change queue waits for: a merge outcome, a run, a landing. Nothing has
    /// arrived at the queue by it.
    Answer {
        /// Which queue.
        queue: QueueKey,
    },
    /// A tenant's configuration.
    Tenant {
        /// Which one.
        tenant: TenantName,
    },
    /// An item that wants its merged state.
    Merge {
        /// Its queue.
        queue: QueueKey,
        /// Which item.
        item: ItemId,
        /// Of which speculative state.
        generation: u64,
    },
    /// A provider's requests and nodes.
    Pool {
        /// Which one.
        provider: ProviderName,
    },
    /// A report or landing to carry out.
    Report {
        /// The queue to tell afterwards.
        queue: QueueKey,
        /// The report's or landing's own key.
        report: String,
        /// Project and branch, the message's group.
        group: String,
    },
    /// A build that has its nodes.
    Build {
        /// Which one.
        build: BuildId,
        /// How urgent it is.
        precedence: Precedence,
        /// Its tenant, for fairness.
        tenant: TenantName,
        /// Its request for nodes, so that an executor reads everything at once; the order says
        /// which it is.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        request: Option<RequestRef>,
        /// The nodes of that request; the request says which they are.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        nodes: Vec<NodeId>,
    },
    /// An image to look after.
    Image {
        /// The tenant.
        tenant: TenantName,
        /// Its canonical name.
        image: String,
    },
    /// A tenant's timers.
    Schedule {
        /// The tenant.
        tenant: TenantName,
    },
    /// Something later: passed on to its own queue when it arrives.
    Wake {
        /// What to look at then.
        then: Box<Poke>,
        /// Seconds to wait, at most 900.
        delay_seconds: u32,
    },
}

/// The longest message group in characters.
const GROUP_CHARS_MAX: usize = 128;

impl Poke {
    /// Returns the queue it travels by.
    pub fn queue(&self) -> Queue {
        match self {
            Self::Delivery { .. } | Self::Schedule { .. } => Queue::Events,
            Self::Queue { .. } | Self::Answer { .. } => Queue::Gate,
            Self::Tenant { .. } => Queue::Tenants,
            Self::Merge { .. } => Queue::Merges,
            Self::Pool { .. } => Queue::Pool,
            Self::Report { .. } => Queue::Reports,
            Self::Build { precedence, .. } => precedence.queue(),
            Self::Image { .. } => Queue::Images,
            Self::Wake { .. } => Queue::Wakes,
        }
    }

    /// Returns its message group; on standard queues it serves fairness alone. SQS takes 128
    /// characters of ASCII without spaces, and projects, queues and branches have other names as
    /// well: of those the group is a digest.
    pub fn group(&self) -> Option<String> {
        let group = self.cell()?;
        let is_taken = (1..=GROUP_CHARS_MAX).contains(&group.len())
            && group.bytes().all(|byte| byte.is_ascii_graphic());
        Some(if is_taken { group } else { digest(&["group", &group]) })
    }

    /// Returns the name of what it is about.
    fn cell(&self) -> Option<String> {
        match self {
            Self::Delivery { project, .. } => Some(project.to_string()),
            Self::Queue { queue } | Self::Answer { queue } => Some(queue.to_string()),
            Self::Tenant { tenant } => Some(tenant.to_string()),
            // No project's name: those have a host.
            Self::Schedule { tenant } => Some(format!("schedule {tenant}")),
            Self::Pool { provider } => Some(provider.to_string()),
            Self::Report { group, .. } => Some(group.clone()),
            Self::Build { tenant, .. } => Some(tenant.to_string()),
            Self::Image { tenant, image } => Some(format!("{tenant}/{image}")),
            Self::Merge { .. } | Self::Wake { .. } => None,
        }
    }

    /// Returns whether a look at this sees all that a look at the other would see, whatever was
    /// looked at in between. A delivery may have waited for one that ended since.
    pub fn covers(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Delivery { .. }, _) => false,
            (Self::Queue { queue }, Self::Answer { queue: same }) => queue == same,
            _ => self == other,
        }
    }

    /// Returns the text that makes two pokes one in an outbox: the same thing to look at.
    pub fn slot(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Z6.7: no name of a project, queue or branch keeps its messages from being sent.
    #[test]
    fn a_group_is_one_that_sqs_takes_whatever_the_name() {
        let of = |project: String| {
            Poke::Delivery { delivery: "1".into(), project: ProjectName(project) }.group().unwrap()
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
}
