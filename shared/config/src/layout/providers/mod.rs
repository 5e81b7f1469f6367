//! Providers of nodes with image, flavor, label and section applied in order (L3.2).

mod resolve;
mod values;

pub(super) use resolve::resolve;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};
use sluice_model::{ConnectionName, LabelName, ProviderName, TenantName};
use std::collections::BTreeMap;

/// A provider with everything resolved. Providers stand in the order of the tenant's configuration, which is their preference.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ProviderConfig {
    /// Its short name.
    pub name: ProviderName,
    /// Its name across tenants: the canonical name of its project, a slash and the short name (L3.4).
    pub canonical_name: String,
    /// Its tenant.
    pub tenant: TenantName,
    /// The connection to its cloud; `None` for nodes that always exist.
    pub connection: Option<ConnectionName>,
    /// The name of its section across tenants.
    pub section: String,
    /// The cloud's region.
    pub region: Option<String>,
    /// Zones it may use; empty leaves it to the cloud.
    pub zones: Vec<String>,
    /// Limits of its own (`instances`, `cores`, `ram` …).
    pub quota: BTreeMap<String, u64>,
    /// Limits it shares with all providers of its section (L3.11).
    pub section_quota: Option<SectionQuota>,
    /// Seconds a node may take from the launch to being usable; `None` for no limit.
    pub launch_timeout_seconds: Option<u64>,
    /// Launches of one node before its request is declined.
    pub launch_attempts: u32,
    /// What it offers, in order.
    pub labels: Vec<LabelConfig>,
    /// Nodes that always exist.
    pub nodes: Vec<StaticNode>,
    /// Attributes without a field of their own, as configured.
    pub attributes: Map<String, Json>,
}

/// Limits shared by all providers of a section.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SectionQuota {
    /// The section's name across tenants: who counts together.
    pub section: String,
    /// The limits.
    pub limits: BTreeMap<String, u64>,
}

/// A label as one provider makes it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LabelConfig {
    /// Its short name.
    pub name: LabelName,
    /// Its name across tenants.
    pub canonical_name: String,
    /// The image's name across tenants; `None` for static nodes.
    pub image: Option<String>,
    /// Whether the image is built here (`zuul`), not the cloud's own.
    pub image_is_built: bool,
    /// The cloud's id of the image.
    pub image_id: Option<String>,
    /// The cloud's name of the image.
    pub image_name: Option<String>,
    /// The flavor's short name.
    pub flavor: Option<String>,
    /// The cloud's name of the machine's size.
    pub instance_type: Option<String>,
    /// The user to log in as.
    pub username: String,
    /// Python's path on the node; `auto` lets Ansible look.
    pub python_path: String,
    /// `ssh`, `winrm` …
    pub connection_type: String,
    /// The port to log in at.
    pub connection_port: u16,
    /// The shell's type, for Ansible.
    pub shell_type: Option<String>,
    /// Nodes to keep ready.
    pub min_ready: u32,
    /// Greatest number in the tenant.
    pub max_nodes: Option<u32>,
    /// Seconds after which an unused ready node is replaced; 0 for never.
    pub max_ready_age_seconds: u64,
    /// Seconds after which a node that can be used again is deleted; 0 for never.
    pub max_age_seconds: u64,
    /// Seconds from the launch until the node answers.
    pub boot_timeout_seconds: u64,
    /// The cloud's name of the key put on the node.
    pub key_name: Option<String>,
    /// Whether host keys are gathered and checked.
    pub host_key_checking: bool,
    /// Subnets to choose from.
    pub subnet_ids: Vec<String>,
    /// Security groups.
    pub security_group_ids: Vec<String>,
    /// Tags put on the node.
    pub tags: BTreeMap<String, String>,
    /// User data for the instance.
    pub userdata: Option<String>,
    /// The disk's size in GiB.
    pub volume_size_gib: Option<u32>,
    /// Builds that may share one node.
    pub slots: u32,
    /// Whether a used node becomes ready again.
    pub reuse: bool,
    /// Everything that applies to it, merged, as configured.
    pub attributes: Map<String, Json>,
}

/// A node that always exists (Z1.10).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StaticNode {
    /// Its host name.
    pub name: String,
    /// Short names of its labels.
    pub labels: Vec<String>,
    /// Its host keys.
    pub host_keys: Vec<String>,
    /// The user to log in as.
    pub username: String,
    /// The port to log in at.
    pub connection_port: u16,
}
