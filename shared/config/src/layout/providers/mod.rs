//! Providers with their images, flavors, labels and sections applied in order (L3.2).

mod image;
mod label;
mod resolve;
mod values;

pub(super) use image::is_built;
pub use image::{ImageConfig, ImageNode};
pub use label::{CloudSettings, Fleet, ImageFilter, LabelConfig};
pub(super) use resolve::resolve;
pub(super) use values::canonical;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};
use sluice_model::{ConnectionName, ProviderName, TenantName};
use std::collections::BTreeMap;

/// A provider with all references resolved. Providers are in configuration order, which is their
/// order of preference.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ProviderConfig {
    /// Its short name.
    pub name: ProviderName,
    /// Its name across tenants: the canonical project name, a slash and the short name (L3.4).
    pub canonical_name: String,
    /// Its tenant.
    pub tenant: TenantName,
    /// The connection to its cloud; `None` for static nodes.
    pub connection: Option<ConnectionName>,
    /// The name of its section across tenants.
    pub section: String,
    /// The cloud's region.
    pub region: Option<String>,
    /// The zones it may use; if empty, the cloud chooses.
    pub zones: Vec<String>,
    /// Its own limits (`instances`, `cores`, `ram` …).
    pub quota: BTreeMap<String, u64>,
    /// Limits that all providers of its section share (L3.11).
    pub section_quota: Option<SectionQuota>,
    /// The time from launch until a node is usable, in seconds; `None` for no limit.
    pub launch_timeout_seconds: Option<u64>,
    /// Maximum number of launches of a node before its request is declined.
    pub launch_attempts: u32,
    /// Its labels in order.
    pub labels: Vec<LabelConfig>,
    /// The images it needs, for its labels or because it or its section lists them, by name.
    pub images: Vec<ImageConfig>,
    /// The bucket through which images are imported into the cloud.
    pub bucket: Option<String>,
    /// Its static nodes.
    pub nodes: Vec<StaticNode>,
    /// Attributes without a field, as configured.
    pub attributes: Map<String, Json>,
}

/// Limits shared by all providers of a section.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SectionQuota {
    /// The section's name across tenants, which identifies the shared limits.
    pub section: String,
    /// The limits.
    pub limits: BTreeMap<String, u64>,
}

/// A static node (Z1.10).
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
    /// Its aliases.
    pub aliases: Vec<String>,
}
