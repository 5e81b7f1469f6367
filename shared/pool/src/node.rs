//! A node and its life: one match on (state, event); everything else is a typed error (Z1.8).

use crate::limits::{Interface, Resources};
use crate::request::Row;
use serde::{Deserialize, Serialize};
use sluice_model::{
    BuildId, LabelName, NodeId, ProviderName, TenantName, Timestamp, node::NodeAccess,
};
use std::fmt;

/// A node of the pool (Z1.8). It is removed only after its machine was seen to be gone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Node {
    /// The node.
    pub id: NodeId,
    /// The label it was made from.
    pub label: LabelName,
    /// The provider.
    pub provider: ProviderName,
    /// The provider's region.
    pub region: Option<String>,
    /// The zone; static hosts have none.
    pub az: Option<String>,
    /// Where it comes from.
    pub origin: Origin,
    /// The request it was made for, or was given to; `None` in the pool.
    pub allocated_to: Option<Allocation>,
    /// Where it is in its life.
    pub state: NodeState,
    /// Which machine this is for its place in the request, from 1.
    pub attempt: u32,
    /// The login.
    pub username: String,
    /// The SSH port, unless the machine names its own.
    pub ssh_port: u16,
    /// The Python interpreter for Ansible.
    pub python_path: Option<String>,
    /// Which address executors use.
    #[serde(default)]
    pub interface: Interface,
    /// Seconds it may take from the launch until a login works.
    pub boot_timeout_seconds: u64,
    /// When it was made.
    pub created_at: Timestamp,
    /// When it changed last.
    pub updated_at: Timestamp,
}

/// Where a node comes from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Origin {
    /// A machine that is launched and terminated. Everything a launch needs is kept, since a
    /// repeated call must be the same call.
    Cloud {
        /// The token that makes a repeated launch the same launch.
        client_token: String,
        /// The image (N4).
        image_id: String,
        /// The kind of machine.
        flavor: String,
        /// What it takes from the quota.
        resources: Resources,
    },
    /// A host that is lent out.
    Static {
        /// Its name in the configuration.
        host: String,
    },
}

/// To whom a node is given.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Allocation {
    /// The request.
    pub row: Row,
    /// Its build.
    pub build: BuildId,
    /// Since when the request is missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub missing_since: Option<Timestamp>,
}

/// The provider's id of a machine; a static host's own name.
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
    /// The SSH port, where the machine names its own.
    pub ssh_port: Option<u16>,
    /// When it was launched.
    pub launched_at: Timestamp,
}

/// An operator's request to keep nodes of failed builds (Zuul's `autohold`).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct HoldRef {
    /// Its tenant.
    pub tenant: TenantName,
    /// Its id there.
    pub id: String,
}

/// How far a launch is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Launch {
    /// A place is reserved; nothing was called.
    Reserved,
    /// The call was made, or is about to be: a machine may exist.
    Intended {
        /// Calls so far.
        tries: u32,
        /// When to call again, with the same token.
        retry_at: Timestamp,
    },
}

/// Where a node is in its life; `in-use`, `used`, `hold` and the others are Z1.8's words.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NodeState {
    /// Not launched as far as anybody knows (part of Z1.8's `building`).
    Requested(Launch),
    /// Launched, not booted.
    Building {
        /// What was launched.
        machine: Machine,
    },
    /// Booted, being checked over SSH.
    Testing {
        /// What booted.
        machine: Machine,
        /// When to check next.
        next_check_at: Timestamp,
    },
    /// Can be used.
    Ready {
        /// What is ready.
        machine: Machine,
        /// Host keys it showed, in known_hosts form without the host.
        host_keys: Vec<String>,
    },
    /// A build runs on it.
    InUse {
        /// What is in use.
        machine: Machine,
        /// Host keys it showed.
        host_keys: Vec<String>,
        /// The build.
        build: BuildId,
    },
    /// A build ran on it.
    Used {
        /// What was used.
        machine: Machine,
    },
    /// Kept for people to look at.
    Hold {
        /// What is kept.
        machine: Machine,
        /// Why.
        reason: String,
        /// Until when.
        until: Timestamp,
        /// Whose wish it is; without it they are let go at once.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        hold: Option<HoldRef>,
    },
    /// To be gone. The record stays until the machine is.
    Deleting {
        /// The machine; `None` while it is not known whether the launch made one.
        instance: Option<InstanceId>,
        /// Why.
        reason: String,
        /// Since when.
        since: Timestamp,
        /// When to terminate again.
        retry_at: Timestamp,
    },
}

/// What can happen to a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NodeEvent {
    /// The launch is about to be called; again at `retry_at` unless it answers.
    LaunchIntended {
        /// When to call again.
        retry_at: Timestamp,
    },
    /// A machine exists.
    Launched(Machine),
    /// It runs and has its addresses.
    Booted(Machine, Timestamp),
    /// It did not let us in yet; look again then.
    NotYet(Timestamp),
    /// A login works; these are its host keys.
    Checked(Vec<String>),
    /// A build runs on it.
    Claimed(BuildId),
    /// Its build ended.
    Finished,
    /// It is kept for people.
    Held {
        /// Why.
        reason: String,
        /// Until when.
        until: Timestamp,
        /// Whose wish it is.
        hold: Option<HoldRef>,
    },
    /// It is to go.
    Deleted {
        /// Why.
        reason: String,
        /// When.
        at: Timestamp,
    },
    /// Its termination is about to be called; again at this time.
    TerminateIntended(Timestamp),
}

/// An event that makes no sense in a node's state.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("node cannot go on from {state:?} by {event:?}")]
pub struct IllegalEvent {
    /// Where the node was.
    pub state: Box<NodeState>,
    /// What was to happen.
    pub event: Box<NodeEvent>,
}

impl NodeState {
    /// Returns the state after `event`. Facts may arrive twice, so each harmless repeat has its
    /// row.
    pub fn next(self, event: NodeEvent) -> Result<Self, IllegalEvent> {
        use NodeEvent as E;
        use NodeState as S;
        match (self, event) {
            (S::Requested(Launch::Reserved), E::LaunchIntended { retry_at }) => {
                Ok(S::Requested(Launch::Intended { tries: 1, retry_at }))
            }
            (S::Requested(Launch::Intended { tries, .. }), E::LaunchIntended { retry_at }) => {
                Ok(S::Requested(Launch::Intended { tries: tries.saturating_add(1), retry_at }))
            }
            (S::Requested(Launch::Intended { .. }), E::Launched(machine)) => {
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
            // A build that was claimed and ended between two looks leaves the node ready in our
            // eyes: it was used all the same.
            (
                S::InUse { machine, .. } | S::Ready { machine, .. } | S::Used { machine },
                E::Finished,
            ) => Ok(S::Used { machine }),
            (
                S::InUse { machine, .. } | S::Ready { machine, .. } | S::Used { machine },
                E::Held { reason, until, hold },
            ) => Ok(S::Hold { machine, reason, until, hold }),
            // A launch that learns of its machine only after it was given up: now it is known what
            // to terminate.
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
                | S::Used { machine }
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

    /// Returns Z1.8's word for it.
    pub fn word(&self) -> &'static str {
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

impl Node {
    /// Returns its machine, once there is one.
    pub fn machine(&self) -> Option<&Machine> {
        match &self.state {
            NodeState::Building { machine }
            | NodeState::Testing { machine, .. }
            | NodeState::Ready { machine, .. }
            | NodeState::InUse { machine, .. }
            | NodeState::Used { machine }
            | NodeState::Hold { machine, .. } => Some(machine),
            NodeState::Requested(_) | NodeState::Deleting { .. } => None,
        }
    }

    /// Returns what it takes from the quota at most: nothing for a static host, and nothing before
    /// its launch is intended.
    pub fn used(&self) -> Resources {
        match (&self.origin, &self.state) {
            (_, NodeState::Requested(Launch::Reserved)) | (Origin::Static { .. }, _) => {
                Resources::default()
            }
            (Origin::Cloud { resources, .. }, _) => *resources,
        }
    }

    /// Returns what is kept free for it.
    pub fn reserved(&self) -> Resources {
        match (&self.origin, &self.state) {
            (Origin::Cloud { resources, .. }, NodeState::Requested(Launch::Reserved)) => *resources,
            _ => Resources::default(),
        }
    }

    /// Returns whether it is in nobody's hands and may be given to a request, now or when it is
    /// ready.
    pub fn is_free(&self) -> bool {
        self.allocated_to.is_none()
            && matches!(
                self.state,
                NodeState::Requested(Launch::Intended { .. })
                    | NodeState::Building { .. }
                    | NodeState::Testing { .. }
                    | NodeState::Ready { .. }
            )
    }

    /// Returns whether it is lent hardware.
    pub fn is_static(&self) -> bool {
        matches!(self.origin, Origin::Static { .. })
    }

    /// Returns the address and port that executors use; `None` without an address.
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

    /// Returns the node as a build sees it under these names; `None` unless it is ready or in use.
    pub fn access(&self, names: Vec<String>) -> Option<NodeAccess> {
        let (NodeState::Ready { machine, host_keys } | NodeState::InUse { machine, host_keys, .. }) =
            &self.state
        else {
            return None;
        };
        let (interface_ip, ssh_port) = self.endpoint()?;
        Some(NodeAccess {
            id: self.id.clone(),
            names,
            label: self.label.clone(),
            provider: self.provider.clone(),
            region: self.region.clone(),
            az: self.az.clone(),
            external_id: Some(machine.instance.0.clone()),
            interface_ip,
            public_ipv4: machine.public_ipv4.clone(),
            private_ipv4: machine.private_ipv4.clone(),
            ssh_port,
            username: self.username.clone(),
            host_keys: host_keys.clone(),
            python_path: self.python_path.clone(),
        })
    }
}
