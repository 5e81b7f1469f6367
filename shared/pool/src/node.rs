//! A node and its state machine: one match on (state, event), with an error for each illegal pair
//! (Z1.8).

use crate::limits::{Interface, Resources};
use crate::request::RequestRow;
use serde::{Deserialize, Serialize};
use sluice_model::{
    BuildId, LabelName, NodeId, ProviderName, TenantName, Timestamp, node::NodeAccess,
};
use std::fmt;

/// A node of the pool (Z1.8). Its record is removed only after its machine is known to be gone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolNode {
    /// The node.
    pub id: NodeId,
    /// The label it was made from, by its name across tenants (L3.4).
    pub label: LabelName,
    /// The provider that it belongs to.
    pub provider: ProviderName,
    /// The region that it is launched in, as the provider's section named it then; `None` for the
    /// connection's own.
    pub region: Option<String>,
    /// The availability zone; `None` for static hosts.
    pub az: Option<String>,
    /// Whether it is a cloud machine or a static host.
    pub origin: NodeOrigin,
    /// The request that it is allocated to; `None` for a node of the pool.
    pub allocated_to: Option<Allocation>,
    /// Its current state.
    pub state: NodeState,
    /// The number of the machine for its place in the request, from 1; it grows with each
    /// replacement.
    pub attempt: u32,
    /// The login name.
    pub username: String,
    /// The SSH port, unless the machine specifies its own.
    pub ssh_port: u16,
    /// The Python interpreter for Ansible.
    pub python_path: Option<String>,
    /// The address that executors connect to.
    pub interface: Interface,
    /// The maximum number of seconds from the launch to a working login.
    pub boot_timeout_seconds: u64,
    /// When it was created.
    pub created_at: Timestamp,
    /// When it changed last.
    pub updated_at: Timestamp,
}

/// Where a node's machine comes from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NodeOrigin {
    /// A machine that is launched and terminated. All launch parameters are stored, since a
    /// repeated call must be identical.
    Cloud {
        /// The idempotency token of the launch call.
        client_token: String,
        /// The image (N4).
        image_id: String,
        /// The provider's machine type.
        flavor: String,
        /// Its share of the quota.
        resources: Resources,
    },
    /// A static host that is lent to a build.
    Static {
        /// Its name in the configuration.
        host: String,
        /// The host keys of which it must show one, as configured when it was lent. If empty, the
        /// keys that it shows are accepted.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        host_keys: Vec<String>,
    },
}

/// The request and build that a node is allocated to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Allocation {
    /// The request.
    pub row: RequestRow,
    /// Its build.
    pub build: BuildId,
    /// When the request was first found missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub missing_since: Option<Timestamp>,
}

/// The provider's id of a machine; for a static host, its name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct InstanceId(pub String);

impl fmt::Display for InstanceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A machine as its provider describes it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// The provider's id.
    pub instance: InstanceId,
    /// Private IPv4 address.
    pub private_ipv4: Option<String>,
    /// Public IPv4 address.
    pub public_ipv4: Option<String>,
    /// Public IPv6 address.
    pub public_ipv6: Option<String>,
    /// The SSH port, if the machine specifies its own.
    pub ssh_port: Option<u16>,
    /// When it was launched.
    pub launched_at: Timestamp,
}

/// For which tenant a node is held, and by which request of it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct HoldRef {
    /// The tenant.
    pub tenant: TenantName,
    /// The id of the request to keep nodes of failed builds (Zuul's `autohold`); `None` for a node
    /// that a command holds.
    pub id: Option<String>,
}

/// The progress of a launch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LaunchProgress {
    /// Quota is reserved, but no launch was called.
    Reserved,
    /// The launch was called or is about to be, so a machine may exist.
    Intended {
        /// The number of calls.
        tries: u32,
        /// When to repeat the call with the same token.
        retry_at: Timestamp,
    },
}

/// The state of a node; the names follow Z1.8 (`in-use`, `used`, `hold` …).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NodeState {
    /// No machine is known yet (part of Z1.8's `building`).
    Requested(LaunchProgress),
    /// A machine was launched and has not booted.
    Building {
        /// The launched machine.
        machine: Machine,
    },
    /// The machine has booted and is checked over SSH.
    Testing {
        /// The booted machine.
        machine: Machine,
        /// When to check it next.
        next_check_at: Timestamp,
    },
    /// The node can be used.
    Ready {
        /// The ready machine.
        machine: Machine,
        /// The host keys it showed, in known_hosts form without the host.
        host_keys: Vec<String>,
    },
    /// A build runs on it.
    InUse {
        /// The machine in use.
        machine: Machine,
        /// The host keys it showed.
        host_keys: Vec<String>,
        /// The build.
        build: BuildId,
    },
    /// A build ran on it, and it is not yet deleted.
    Used {
        /// The used machine.
        machine: Machine,
        /// The host keys it showed.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        host_keys: Vec<String>,
    },
    /// Held for people to inspect.
    Hold {
        /// The held machine.
        machine: Machine,
        /// The host keys it showed.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        host_keys: Vec<String>,
        /// Why it is held.
        reason: String,
        /// Until when it is held; `None` until it is released.
        #[serde(default)]
        until: Option<Timestamp>,
        /// The hold request; `None` if an operator holds the node itself.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        hold: Option<HoldRef>,
    },
    /// To be deleted. The record stays until the machine is gone.
    Deleting {
        /// The machine; `None` while it is unknown whether the launch created one.
        instance: Option<InstanceId>,
        /// Why it is deleted.
        reason: String,
        /// When it was marked for deletion.
        since: Timestamp,
        /// When to call terminate again.
        retry_at: Timestamp,
    },
}

/// An event that changes a node's state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NodeEvent {
    /// The launch is about to be called. It is repeated at `retry_at` if it gets no answer.
    LaunchIntended {
        /// When to repeat the call.
        retry_at: Timestamp,
    },
    /// The launch created a machine.
    Launched(Machine),
    /// The machine runs and has its addresses; it is first checked at the given time.
    Booted(Machine, Timestamp),
    /// A check failed; the next one is at the given time.
    NotYet(Timestamp),
    /// The login works; these are the host keys.
    Checked(Vec<String>),
    /// A build has claimed the node.
    Claimed(BuildId),
    /// The node's build has ended.
    Finished,
    /// The node is held for people to inspect.
    Held {
        /// Why it is held.
        reason: String,
        /// Until when it is held; `None` until it is released.
        until: Option<Timestamp>,
        /// The hold request.
        hold: Option<HoldRef>,
    },
    /// The node is to be deleted.
    Deleted {
        /// Why it is deleted.
        reason: String,
        /// When it was marked for deletion.
        at: Timestamp,
    },
    /// The termination is about to be called. It is repeated at the given time.
    TerminateIntended(Timestamp),
}

/// An event that is illegal in the node's state.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("event {event:?} is illegal in node state {state:?}")]
pub struct IllegalEvent {
    /// The node's state.
    pub state: Box<NodeState>,
    /// The event.
    pub event: Box<NodeEvent>,
}

impl NodeState {
    /// Returns the state after `event`, or an error if the event is illegal in this state. Some
    /// repeated events are legal: they keep the state, or only update its times, its machine or the
    /// number of launch calls. A ready node can become used or held without a claim. `Deleted` is
    /// legal in each state. A node being deleted accepts a late launch answer, which adds the
    /// machine to terminate if none was known.
    pub fn next(self, event: NodeEvent) -> Result<Self, IllegalEvent> {
        use NodeEvent as E;
        use NodeState as S;
        match (self, event) {
            (S::Requested(LaunchProgress::Reserved), E::LaunchIntended { retry_at }) => {
                Ok(S::Requested(LaunchProgress::Intended { tries: 1, retry_at }))
            }
            (
                S::Requested(LaunchProgress::Intended { tries, .. }),
                E::LaunchIntended { retry_at },
            ) => Ok(S::Requested(LaunchProgress::Intended {
                tries: tries.saturating_add(1),
                retry_at,
            })),
            (S::Requested(LaunchProgress::Intended { .. }), E::Launched(machine)) => {
                Ok(S::Building { machine })
            }
            (S::Building { .. }, E::Launched(machine)) => Ok(S::Building { machine }),
            (S::Building { .. }, E::Booted(machine, at)) => {
                Ok(S::Testing { machine, next_check_at: at })
            }
            (S::Testing { machine, .. }, E::NotYet(next_check_at)) => {
                Ok(S::Testing { machine, next_check_at })
            }
            (S::Testing { machine, .. }, E::Checked(host_keys)) => {
                Ok(S::Ready { machine, host_keys })
            }
            (S::Ready { machine, host_keys }, E::Checked(_)) => Ok(S::Ready { machine, host_keys }),
            (S::Ready { machine, host_keys }, E::Claimed(build)) => {
                Ok(S::InUse { machine, host_keys, build })
            }
            (S::InUse { machine, host_keys, build }, E::Claimed(by)) if build == by => {
                Ok(S::InUse { machine, host_keys, build })
            }
            // A build may be claimed and end between two plans; its node then goes from ready to
            // used directly.
            (
                S::InUse { machine, host_keys, .. }
                | S::Ready { machine, host_keys }
                | S::Used { machine, host_keys },
                E::Finished,
            ) => Ok(S::Used { machine, host_keys }),
            (
                S::InUse { machine, host_keys, .. }
                | S::Ready { machine, host_keys }
                | S::Used { machine, host_keys },
                E::Held { reason, until, hold },
            ) => Ok(S::Hold { machine, host_keys, reason, until, hold }),
            // The launch answers only after the node was given up: now the machine to terminate is
            // known.
            (S::Deleting { instance: None, reason, since, .. }, E::Launched(machine)) => {
                Ok(S::Deleting {
                    instance: Some(machine.instance),
                    reason,
                    since,
                    retry_at: Timestamp(0),
                })
            }
            (S::Deleting { instance, reason, since, .. }, E::TerminateIntended(retry_at)) => {
                Ok(S::Deleting { instance, reason, since, retry_at })
            }
            (state @ S::Deleting { .. }, E::Deleted { .. } | E::Launched(_)) => Ok(state),
            (S::Requested(_), E::Deleted { reason, at }) => {
                Ok(S::Deleting { instance: None, reason, since: at, retry_at: Timestamp(0) })
            }
            (
                S::Building { machine }
                | S::Testing { machine, .. }
                | S::Ready { machine, .. }
                | S::InUse { machine, .. }
                | S::Used { machine, .. }
                | S::Hold { machine, .. },
                E::Deleted { reason, at },
            ) => Ok(S::Deleting {
                instance: Some(machine.instance),
                reason,
                since: at,
                retry_at: Timestamp(0),
            }),
            (state, event) => Err(IllegalEvent { state: Box::new(state), event: Box::new(event) }),
        }
    }

    /// Returns the state's name in Z1.8, such as `in-use`. It is `building` from the request of a
    /// machine until it has booted.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Requested(_) | Self::Building { .. } => "building",
            Self::Testing { .. } => "testing",
            Self::Ready { .. } => "ready",
            Self::InUse { .. } => "in-use",
            Self::Used { .. } => "used",
            Self::Hold { .. } => "hold",
            Self::Deleting { .. } => "deleting",
        }
    }
}

impl PoolNode {
    /// Returns its machine; `None` before the launch is answered and while the node is deleted.
    pub fn machine(&self) -> Option<&Machine> {
        match &self.state {
            NodeState::Building { machine }
            | NodeState::Testing { machine, .. }
            | NodeState::Ready { machine, .. }
            | NodeState::InUse { machine, .. }
            | NodeState::Used { machine, .. }
            | NodeState::Hold { machine, .. } => Some(machine),
            NodeState::Requested(_) | NodeState::Deleting { .. } => None,
        }
    }

    /// Returns the quota that its machine may use, from the call of its launch until its record is
    /// removed. Nothing for a static host and before the call.
    pub fn used(&self) -> Resources {
        match (&self.origin, &self.state) {
            (_, NodeState::Requested(LaunchProgress::Reserved))
            | (NodeOrigin::Static { .. }, _) => Resources::default(),
            (NodeOrigin::Cloud { resources, .. }, _) => *resources,
        }
    }

    /// Returns the quota that is reserved for its launch, until the launch is called. Nothing for a
    /// static host.
    pub fn reserved(&self) -> Resources {
        match (&self.origin, &self.state) {
            (
                NodeOrigin::Cloud { resources, .. },
                NodeState::Requested(LaunchProgress::Reserved),
            ) => *resources,
            _ => Resources::default(),
        }
    }

    /// Returns whether the node is unallocated and can be given to a request, now or once it is
    /// ready. False before its launch is called, and once it was used, held or marked for deletion.
    pub fn is_free(&self) -> bool {
        self.allocated_to.is_none()
            && matches!(
                self.state,
                NodeState::Requested(LaunchProgress::Intended { .. })
                    | NodeState::Building { .. }
                    | NodeState::Testing { .. }
                    | NodeState::Ready { .. }
            )
    }

    /// Returns the host keys of which its machine must show one; empty if any are accepted, as for
    /// every machine of a cloud.
    pub fn required_host_keys(&self) -> &[String] {
        match &self.origin {
            NodeOrigin::Static { host_keys, .. } => host_keys,
            NodeOrigin::Cloud { .. } => &[],
        }
    }

    /// Returns whether it is a static host.
    pub fn is_static(&self) -> bool {
        matches!(self.origin, NodeOrigin::Static { .. })
    }

    /// Returns the address and port that executors connect to: the private IPv4 address, or, if the
    /// label prefers it and there is one, a public IPv4 or IPv6 address. `None` if there is no such
    /// address, before the launch is answered, and while the node is deleted.
    pub fn endpoint(&self) -> Option<(String, u16)> {
        let machine = self.machine()?;
        let private = machine.private_ipv4.clone();
        let public = machine.public_ipv4.clone().or_else(|| machine.public_ipv6.clone());
        let address = match self.interface {
            Interface::PublicFirst => public.or(private),
            Interface::Private => private,
        }?;
        Some((address, machine.ssh_port.unwrap_or(self.ssh_port)))
    }

    /// Returns the node's access data for a build. `names` are the names that the node has in the
    /// build, and `label` is its label by the name that the job uses. `None` if it has no address,
    /// or is neither ready nor in use.
    pub fn access(&self, names: Vec<String>, label: LabelName) -> Option<NodeAccess> {
        let (NodeState::Ready { machine, host_keys } | NodeState::InUse { machine, host_keys, .. }) =
            &self.state
        else {
            return None;
        };
        let (interface_ip, ssh_port) = self.endpoint()?;
        Some(NodeAccess {
            id: self.id.clone(),
            names,
            label,
            provider: self.provider.clone(),
            region: self.region.clone(),
            az: self.az.clone(),
            external_id: Some(machine.instance.0.clone()),
            interface_ip,
            public_ipv4: machine.public_ipv4.clone(),
            private_ipv4: machine.private_ipv4.clone(),
            public_ipv6: machine.public_ipv6.clone(),
            ssh_port,
            username: self.username.clone(),
            host_keys: host_keys.clone(),
            python_path: self.python_path.clone(),
        })
    }
}
