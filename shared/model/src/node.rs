//! The part of a node that a build needs: how to connect to it and what it is.

use crate::{LabelName, NodeId, ProviderName};
use serde::{Deserialize, Serialize};

/// A node as a build sees it: how to connect to it and what it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeAccess {
    /// The node.
    pub id: NodeId,
    /// Its names in the job's nodeset.
    pub names: Vec<String>,
    /// The label it was created from.
    pub label: LabelName,
    /// The provider it runs at.
    pub provider: ProviderName,
    /// The provider's region.
    pub region: Option<String>,
    /// The availability zone.
    pub az: Option<String>,
    /// The provider's id of the machine.
    pub external_id: Option<String>,
    /// The address the executor connects to.
    pub interface_ip: String,
    /// Public IPv4 address.
    pub public_ipv4: Option<String>,
    /// Private IPv4 address.
    pub private_ipv4: Option<String>,
    /// Public IPv6 address.
    #[serde(default)]
    pub public_ipv6: Option<String>,
    /// The SSH port.
    pub ssh_port: u16,
    /// The login name.
    pub username: String,
    /// Host keys in known_hosts form without the host (`ssh-ed25519 AAAA…`).
    pub host_keys: Vec<String>,
    /// The Python interpreter for Ansible; `auto` unless configured.
    pub python_path: Option<String>,
}
