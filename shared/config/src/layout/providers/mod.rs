//! Providers of nodes with image, flavor, label and section applied in order (L3.2).

mod image;
mod label;
mod resolve;
mod values;

pub(super) use image::is_built;
pub use image::{ImageConfig, ImageNode};
pub use label::{CloudSettings, Fleet, ImageFilter, LabelConfig};
pub(super) use resolve::resolve;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};
use sluice_model::{ConnectionName, ProviderName, TenantName};
use std::collections::BTreeMap;

/// A provider with everything resolved. Providers stand in the order of the tenant's configuration,
/// which is their preference.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ProviderConfig {
    /// Its short name.
    pub name: ProviderName,
    /// Its name across tenants: the canonical name of its project, a slash and the short name
    /// (L3.4).
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
    /// The images that it needs, for its labels or because it or its section lists them, by name.
    #[serde(default)]
    pub images: Vec<ImageConfig>,
    /// The bucket that images go through on their way to the cloud.
    #[serde(default)]
    pub bucket: Option<String>,
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
    /// Other names that it answers to.
    #[serde(default)]
    pub aliases: Vec<String>,
}
