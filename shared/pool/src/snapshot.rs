//! What a plan reads: the whole cell and the facts just observed outside it.

use crate::limits::{ProviderLimits, Resources};
use crate::node::{HoldRef, InstanceId, Machine, Node, NodeState};
use crate::request::{Request, RequestState, Row};
use serde::{Deserialize, Serialize};
use sluice_model::{BuildId, ConnectionName, NodeId, ProviderName, Timestamp};
use std::collections::{BTreeMap, BTreeSet};

/// Seconds between two looks at builds that run: their executors tell their ends, and this finds
/// those that cannot.
const RUNNING_SECONDS: u64 = 60;

/// A provider's cell as it was read, with what was seen outside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    /// The cell's head.
    pub head: ProviderHead,
    /// What the provider may do.
    pub limits: ProviderLimits,
    /// Every request row of the provider.
    pub requests: Vec<Request>,
    /// Every node record of the provider.
    pub nodes: Vec<Node>,
    /// What was seen outside since the last plan.
    pub facts: Facts,
}

impl Snapshot {
    /// Returns whether the provider's machines should be listed before planning: one is about to
    /// change, or a look for leaks is due.
    ///
    /// A machine that no record knows is terminated only after a commit on the head's revision that
    /// was read: whoever launched it meanwhile recorded that first, and that commit is lost then.
    /// So it does not matter which of the two was read first.
    pub fn needs_listing(&self, now: Timestamp) -> bool {
        let moving = self.nodes.iter().any(|node| {
            !node.is_static()
                && matches!(
                    node.state,
                    NodeState::Requested(_)
                        | NodeState::Building { .. }
                        | NodeState::Deleting { .. }
                )
        });
        moving
            || (self.limits.has_cloud()
                && now >= self.head.listed_at.plus_seconds(self.limits.pace.leak_seconds))
    }
}

/// Returns the builds whose orders and runs the plan wants to know: those that wait for nodes,
/// those on nodes whose request is gone, and once in a while those that run, whose requests tell
/// the rest.
pub fn builds_to_look_at<'a>(
    head: &ProviderHead,
    requests: impl Iterator<Item = &'a Request> + Clone,
    nodes: impl Iterator<Item = &'a Node>,
    now: Timestamp,
) -> BTreeSet<BuildId> {
    let is_time = head.is_time_for_running(now);
    let rows: BTreeSet<&Row> = requests.clone().map(|request| &request.row).collect();
    let asked = requests.filter(|request| match request.state {
        RequestState::Ended(_) => false,
        RequestState::Claimed(_) => is_time,
        _ => true,
    });
    let left = nodes.filter_map(|node| match (&node.state, &node.allocated_to) {
        (NodeState::InUse { .. }, Some(allocation)) if rows.contains(&allocation.row) => None,
        (NodeState::InUse { build, .. }, _) => Some(build.clone()),
        _ => None,
    });
    asked.map(|request| request.build.clone()).chain(left).collect()
}

/// The head of a provider's cell.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProviderHead {
    /// The provider.
    pub provider: ProviderName,
    /// The quota of the last plan, for people.
    pub quota: Resources,
    /// What exists, or may exist.
    pub used: Resources,
    /// What is kept free for placed requests.
    pub reserved: Resources,
    /// Whether launches wait.
    pub paused: Paused,
    /// The zone that the next placement starts from.
    pub next_zone: u32,
    /// The number of the last placement; grows.
    pub generation: u64,
    /// When the provider's machines were listed last.
    pub listed_at: Timestamp,
    /// Nothing is launched for min-ready before this; moves on when such a machine fails.
    pub min_ready_not_before: Timestamp,
    /// When builds that run were looked at last.
    #[serde(default)]
    pub running_seen_at: Timestamp,
    /// The connection to its cloud: by it its machines are still let go when no configuration has
    /// the provider any more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connection: Option<ConnectionName>,
}

impl ProviderHead {
    /// Returns the head of a provider that was never used.
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
            running_seen_at: Timestamp(0),
            connection: None,
        }
    }

    /// Returns whether it is time to look at builds that run.
    pub(crate) fn is_time_for_running(&self, now: Timestamp) -> bool {
        now >= self.running_seen_at.plus_seconds(RUNNING_SECONDS)
    }
}

/// Whether a provider launches.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Paused {
    /// It does.
    No,
    /// Somebody wants it to rest; nothing is placed or launched until it is taken back.
    ByOperator {
        /// Why.
        reason: String,
    },
    /// The cloud itself refused for its own quota: no launch until then.
    ByCloud {
        /// Until when.
        until: Timestamp,
    },
}

/// What was seen outside the cell.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Facts {
    /// Our machines at the provider; `None` when nobody looked, or the look failed.
    pub listing: Option<Listing>,
    /// Answers to launches.
    pub launches: BTreeMap<NodeId, LaunchFact>,
    /// Answers to checks.
    pub checks: BTreeMap<NodeId, CheckFact>,
    /// Builds that were looked at; one that is missing here was not.
    pub builds: BTreeMap<BuildId, BuildFact>,
    /// Held nodes that nobody wants any more: the wish that they are held for was taken back.
    pub released: BTreeSet<NodeId>,
    /// How many changes stand before a request's change in its shared queue by now, where that was
    /// looked up; the row tells how many stood there when the request was made.
    pub places: BTreeMap<Row, usize>,
}

/// Every machine at the provider that bears our tag.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listing {
    /// When the look began.
    pub taken_at: Timestamp,
    /// The machines; also terminated ones that are still shown.
    pub instances: Vec<InstanceFact>,
}

/// A machine as listed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InstanceFact {
    /// What it is and where.
    pub machine: Machine,
    /// The node its tag names.
    pub node: Option<NodeId>,
    /// What it does.
    pub state: InstanceState,
}

/// What a machine does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InstanceState {
    /// Starting.
    Pending,
    /// Running.
    Running,
    /// Stopping, or stopped; it still counts on the cloud's quota of existing machines.
    Stopping,
    /// Gone.
    Terminated,
}

/// The answer to a launch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LaunchFact {
    /// A machine exists.
    Launched(Machine),
    /// The cloud's own quota is used up: nothing was made.
    Quota(String),
    /// The zone has none of these left: nothing was made.
    NoCapacity(String),
    /// It will never work: nothing was made.
    Permanent(String),
    /// The token belongs to another call: a new node is needed.
    TokenTaken(String),
    /// It is not known what happened, or it may work later.
    Transient {
        /// Why.
        why: String,
        /// Seconds to wait at least.
        retry_after_seconds: u64,
    },
}

/// The answer to a check of a booted machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CheckFact {
    /// A login worked.
    Passed {
        /// The host keys it showed, in known_hosts form without the host.
        host_keys: Vec<String>,
    },
    /// Nobody answers yet, or not as hoped.
    NotYet(String),
    /// It will never be right (other host keys than configured).
    Failed(String),
}

/// Where a build stands, as its order and run say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BuildFact {
    /// Nobody has claimed it.
    Waiting,
    /// An executor runs it.
    Claimed,
    /// It is over.
    Ended,
    /// It is over, and its nodes are to be kept.
    EndedHeld {
        /// Why.
        reason: String,
        /// Until when.
        until: Timestamp,
        /// Whose wish it is.
        hold: Option<HoldRef>,
    },
    /// The gate wants no result any more and nobody had claimed it (Z1.7).
    Withdrawn,
    /// There is no such build.
    Gone,
}

/// Returns the machines of `listing` by id.
pub(crate) fn by_instance(listing: &Listing) -> BTreeMap<&InstanceId, &InstanceFact> {
    listing.instances.iter().map(|fact| (&fact.machine.instance, fact)).collect()
}
