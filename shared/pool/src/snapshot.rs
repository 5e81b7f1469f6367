//! The input of a plan: the whole cell, and the facts observed outside it.

use crate::commands::PoolCommand;
use crate::limits::{ProviderLimits, Resources};
use crate::node::{HoldRef, InstanceId, Machine, NodeState, PoolNode};
use crate::request::{NodeRequest, RequestRow, RequestState};
use serde::{Deserialize, Serialize};
use sluice_model::{BuildId, ConnectionName, NodeId, ProviderName, Timestamp};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// Seconds between two reads of running builds. Executors report the end of a build; this finds
/// ends that were not reported.
const RUNNING_CHECK_SECONDS: u64 = 60;

/// A provider's cell as read from storage, with the facts observed outside it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    /// The cell's head.
    pub head: ProviderHead,
    /// The provider's limits, labels and static hosts.
    pub limits: ProviderLimits,
    /// All requests of the provider.
    pub requests: Vec<NodeRequest>,
    /// All nodes of the provider.
    pub nodes: Vec<PoolNode>,
    /// Facts observed since the last plan.
    pub facts: PoolFacts,
}

impl Snapshot {
    /// Returns whether to list the provider's machines before planning. This is so if a cloud node
    /// is requested, boots or is being deleted, or if the provider offers cloud machines and a
    /// search for leaked ones is due. Nodes that are being checked, ready, in use or held need no
    /// listing.
    ///
    /// A leaked machine is terminated only after a commit on the head revision of this snapshot. A
    /// concurrent launch records its node in a commit of its own, so this plan's commit would fail.
    /// The order of the two reads therefore does not matter.
    pub fn needs_listing(&self, now: Timestamp) -> bool {
        let is_changing = self.nodes.iter().any(|node| {
            !node.is_static()
                && matches!(
                    node.state,
                    NodeState::Requested(_)
                        | NodeState::Building { .. }
                        | NodeState::Deleting { .. }
                )
        });
        is_changing
            || (self.limits.has_cloud()
                && now >= self.head.listed_at.plus_seconds(self.limits.pace.leak_seconds))
    }
}

/// Returns the builds whose orders and runs must be read for the plan: those of requests that no
/// executor has claimed, failed ones included, and those in use on nodes whose request is gone. If
/// claimed builds were last read a minute ago or earlier (by `head`), also the builds of claimed
/// requests. The builds of ended requests are left out.
pub fn builds_to_observe<'a>(
    head: &ProviderHead,
    requests: impl Iterator<Item = &'a NodeRequest> + Clone,
    nodes: impl Iterator<Item = &'a PoolNode>,
    now: Timestamp,
) -> BTreeSet<BuildId> {
    let is_time = head.is_time_for_running(now);
    let rows: BTreeSet<&RequestRow> = requests.clone().map(|request| &request.row).collect();
    let of_requests = requests.filter(|request| match request.state {
        RequestState::Ended(_) => false,
        RequestState::Claimed(_) => is_time,
        _ => true,
    });
    let of_orphans = nodes.filter_map(|node| match (&node.state, &node.allocated_to) {
        (NodeState::InUse { .. }, Some(allocation)) if rows.contains(&allocation.row) => None,
        (NodeState::InUse { build, .. }, _) => Some(build.clone()),
        _ => None,
    });
    of_requests.map(|request| request.build.clone()).chain(of_orphans).collect()
}

/// The head of a provider's cell.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProviderHead {
    /// The provider.
    pub provider: ProviderName,
    /// The quota at the last plan, for display.
    pub quota: Resources,
    /// Resources of machines that exist or may exist.
    pub used: Resources,
    /// Resources reserved for placed requests.
    pub reserved: Resources,
    /// Whether launches are paused.
    pub paused: Paused,
    /// The zone at which the next placement starts.
    pub next_zone: u32,
    /// The number of the last placement; it only grows.
    pub generation: u64,
    /// When the provider's machines were last listed to find leaked ones.
    pub listed_at: Timestamp,
    /// No machine is launched for min-ready before this time. It is postponed when such a launch
    /// fails.
    pub min_ready_not_before: Timestamp,
    /// When running builds were last read.
    pub running_checked_at: Timestamp,
    /// The connection that its nodes have, or had when it last had any. With it, machines can be
    /// terminated after the provider is removed from the configuration. `None` before its first
    /// use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connection: Option<ProviderConnection>,
}

impl ProviderHead {
    /// Returns the head of a provider without nodes or requests.
    pub fn new(provider: ProviderName) -> Self {
        Self {
            provider,
            quota: Resources::default(),
            used: Resources::default(),
            reserved: Resources::default(),
            paused: Paused::No,
            next_zone: 0,
            generation: 0,
            listed_at: Timestamp(0),
            min_ready_not_before: Timestamp(0),
            running_checked_at: Timestamp(0),
            connection: None,
        }
    }

    /// Returns whether running builds were last read a minute ago or earlier.
    pub(crate) fn is_time_for_running(&self, now: Timestamp) -> bool {
        now >= self.running_checked_at.plus_seconds(RUNNING_CHECK_SECONDS)
    }
}

/// The connection of a provider.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ProviderConnection {
    /// None: it has static hosts.
    Static,
    /// To a cloud.
    Cloud(ConnectionName),
}

impl ProviderConnection {
    /// Returns the name of the connection to the cloud; `None` for static hosts.
    pub fn cloud(&self) -> Option<&ConnectionName> {
        match self {
            Self::Static => None,
            Self::Cloud(name) => Some(name),
        }
    }
}

impl fmt::Display for ProviderConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Static => f.write_str("no connection"),
            Self::Cloud(name) => write!(f, "connection {name}"),
        }
    }
}

/// Whether a provider's launches are paused.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Paused {
    /// Not paused.
    No,
    /// An operator paused it: nothing is placed or launched until the pause is removed.
    ByOperator {
        /// The operator's reason.
        reason: String,
    },
    /// The cloud's own quota is used up: nothing is launched until the given time.
    ByCloud {
        /// When launches resume.
        until: Timestamp,
    },
}

/// Facts observed outside the cell.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PoolFacts {
    /// Sluice's machines at the provider; `None` if they were not listed, or the call failed.
    pub listing: Option<MachineListing>,
    /// Answers to launches, by node.
    pub launches: BTreeMap<NodeId, LaunchFact>,
    /// Answers to checks, by node.
    pub checks: BTreeMap<NodeId, CheckFact>,
    /// States of builds that were read; others are missing.
    pub builds: BTreeMap<BuildId, BuildFact>,
    /// Held nodes whose hold request was removed by an operator.
    pub released: BTreeSet<NodeId>,
    /// Current positions of requests' changes in their shared queues, where they were looked up.
    /// The row holds the position at the time of the request.
    pub queue_positions: BTreeMap<RequestRow, usize>,
    /// Operators' commands that were not consumed yet, in their order.
    pub commands: Vec<PoolCommand>,
}

/// All machines of a provider in the regions that answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MachineListing {
    /// When the listing began.
    pub taken_at: Timestamp,
    /// The regions that were listed; `None` is the connection's own. Nothing is known of machines
    /// in others.
    pub regions: BTreeSet<Option<String>>,
    /// The machines, including terminated ones that the provider still shows.
    pub instances: Vec<InstanceFact>,
}

/// A machine in a listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InstanceFact {
    /// The machine's id and addresses.
    pub machine: Machine,
    /// The region that it was listed in; `None` for the connection's own.
    pub region: Option<String>,
    /// The node named by its tag.
    pub node: Option<NodeId>,
    /// Its state at the provider.
    pub state: InstanceState,
}

/// The state of a machine at its provider.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InstanceState {
    /// Starting.
    Pending,
    /// Running.
    Running,
    /// Stopping or stopped; it still counts against the cloud's own quota.
    Stopping,
    /// Terminated.
    Terminated,
}

/// The answer to a launch call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LaunchFact {
    /// The machine exists.
    Launched {
        /// The machine.
        machine: Machine,
        /// The region that it was launched in; `None` for the connection's own.
        region: Option<String>,
    },
    /// The cloud's own quota is used up; no machine was created.
    Quota(String),
    /// The zone has no capacity for this kind of machine; none was created.
    NoCapacity(String),
    /// The launch can never succeed; no machine was created.
    Permanent(String),
    /// The token belongs to a different launch; a new node is needed.
    TokenTaken(String),
    /// The outcome is unknown, or a later call may succeed.
    Transient {
        /// The reason.
        why: String,
        /// The minimum number of seconds to wait.
        retry_after_seconds: u64,
    },
}

/// The result of a check of a booted machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CheckFact {
    /// The login worked.
    Passed {
        /// The machine's host keys, in known_hosts form without the host.
        host_keys: Vec<String>,
    },
    /// The machine does not answer yet, or refuses the login.
    NotYet(String),
    /// The check can never succeed (host keys other than configured).
    Failed(String),
}

/// The state of a build, from its order and run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BuildFact {
    /// No executor has claimed it.
    Waiting,
    /// An executor has claimed it.
    Claimed,
    /// It has ended.
    Ended,
    /// It has ended, and its nodes are to be held.
    EndedHeld {
        /// Why they are held.
        reason: String,
        /// Until when they are held; `None` until they are released.
        until: Option<Timestamp>,
        /// The hold request that applies.
        hold: Option<HoldRef>,
    },
    /// The gate withdrew it before an executor claimed it (Z1.7).
    Withdrawn,
    /// The build does not exist.
    Gone,
}

/// Returns the machines of `listing` by id.
pub(crate) fn by_instance(listing: &MachineListing) -> BTreeMap<&InstanceId, &InstanceFact> {
    listing.instances.iter().map(|fact| (&fact.machine.instance, fact)).collect()
}
