//! A label as a provider offers it, with a field for every attribute.

use super::values::{count, texts};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};
use sluice_model::LabelName;
use std::collections::BTreeMap;

/// A label as a provider offers it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LabelConfig {
    /// Its short name.
    pub name: LabelName,
    /// Its name across tenants.
    pub canonical_name: String,
    /// The image's name across tenants; `None` for static nodes.
    pub image: Option<String>,
    /// Whether Sluice builds the image (`zuul`); otherwise the cloud provides it.
    pub image_is_built: bool,
    /// The cloud's id of the image.
    pub image_id: Option<String>,
    /// The cloud's name of the image.
    pub image_name: Option<String>,
    /// The flavor's short name.
    pub flavor: Option<String>,
    /// The cloud's name of the machine type.
    pub instance_type: Option<String>,
    /// The user to log in as.
    pub username: String,
    /// Python's path on the node; `auto` lets Ansible find it.
    pub python_path: String,
    /// `ssh`, `winrm` …
    pub connection_type: String,
    /// The port to log in at.
    pub connection_port: u16,
    /// The shell's type, for Ansible.
    pub shell_type: Option<String>,
    /// The number of nodes to keep ready.
    pub min_ready: u32,
    /// Maximum number of nodes in the tenant.
    pub max_nodes: Option<u32>,
    /// Seconds after which an unused ready node is replaced; 0 for never.
    pub max_ready_age_seconds: u64,
    /// Seconds after which a reusable node is deleted; 0 for never.
    pub max_age_seconds: u64,
    /// Timeout in seconds from launch until the node responds.
    pub boot_timeout_seconds: u64,
    /// The cloud's name of the node's key pair.
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
    /// The number of builds that may share a node.
    pub slots: u32,
    /// Whether a used node becomes ready again.
    pub reuse: bool,
    /// Aliases of the label.
    pub aliases: Vec<String>,
    /// The zone, if the label binds itself to one by the label's own attributes, the innermost last
    /// (L3.2). The zones of a section belong to its provider, whatever its labels are.
    pub zone: Option<String>,
    /// The zone of executors that reach its nodes.
    pub executor_zone: Option<String>,
    /// Minimum seconds for which a reusable node is kept.
    pub min_retention_seconds: u64,
    /// Timeout of a snapshot in seconds.
    pub snapshot_timeout_seconds: u64,
    /// Seconds for which a snapshot is kept.
    pub snapshot_expiration_seconds: u64,
    /// Attributes of cloud machines only.
    pub cloud: CloudSettings,
    /// All merged attributes, as configured.
    pub attributes: Map<String, Json>,
}

/// Attributes of cloud machines only.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct CloudSettings {
    /// The disk's type.
    pub volume_type: Option<String>,
    /// The disk's I/O operations per second.
    pub iops: Option<u32>,
    /// The disk's throughput in MiB per second.
    pub throughput: Option<u32>,
    /// Whether the metadata service requires tokens: `optional` or `required`.
    pub imds_http_tokens: Option<String>,
    /// The version of the metadata service that the image supports.
    pub imds_support: Option<String>,
    /// The instance profile, by name or ARN (`arn:…`).
    pub iam_instance_profile: Option<String>,
    /// The key that disks are encrypted with.
    pub kms_key_id: Option<String>,
    /// `on-demand` or `spot`.
    pub market_type: Option<String>,
    /// Whether it runs on a dedicated host.
    pub dedicated_host: bool,
    /// Whether it has dedicated bandwidth to its disks.
    pub ebs_optimized: bool,
    /// Whether it supports nested virtualization.
    pub nested_virtualization: bool,
    /// Whether it has a public IPv4 address; `None` for the subnet's default.
    pub public_ipv4: Option<bool>,
    /// Whether it has a public IPv6 address.
    pub public_ipv6: Option<bool>,
    /// Machine types to choose from, instead of a single one.
    pub fleet: Option<Fleet>,
    /// The filters that find the cloud's image; the newest match is used.
    pub image_filters: Vec<ImageFilter>,
    /// The image's architecture.
    pub architecture: Option<String>,
    /// Whether the image has the cloud's network driver.
    pub ena_support: Option<bool>,
    /// Whether its settings are on a config drive.
    pub config_drive: Option<bool>,
}

/// Machine types to choose from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fleet {
    /// The cloud's names of the machine types.
    pub instance_types: Vec<String>,
    /// The strategy for choosing one.
    pub allocation_strategy: String,
}

/// A filter for the cloud's images.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImageFilter {
    /// The attribute.
    pub name: String,
    /// The allowed values.
    pub values: Vec<String>,
}

impl LabelConfig {
    /// Returns why no machine of the label can be launched at its provider, which is a cloud, and
    /// what to add for it; `None` if one can.
    pub fn obstacle(&self) -> Option<String> {
        let of_image = self.image_obstacle().map(|why| format!("has no image: {why}"));
        of_image.or_else(|| Some(format!("has no flavor: {}", self.flavor_obstacle()?)))
    }

    /// Returns why the label has no image to launch and what to add; `None` if it has one.
    pub fn image_obstacle(&self) -> Option<String> {
        match (&self.image_id, &self.image) {
            (Some(_), _) => None,
            (None, _) if self.image_is_built => {
                Some("no upload of its image is validated yet".to_owned())
            }
            (None, Some(_)) => Some("its image names no `image-id`".to_owned()),
            (None, None) => Some("add `image` to the label".to_owned()),
        }
    }

    /// Returns what to add to a label without a machine type; `None` if it has one.
    pub fn flavor_obstacle(&self) -> Option<String> {
        let is_missing = self.machine_type().is_none();
        is_missing.then(|| "add `flavor` to the label".to_owned())
    }

    /// Returns the cloud's name of the machine type: that of the flavor, or else the flavor's own
    /// name. `None` if the label has no flavor and no type.
    pub fn machine_type(&self) -> Option<&str> {
        self.instance_type.as_deref().or(self.flavor.as_deref())
    }
}

pub(super) struct LabelIdentity {
    pub(super) name: LabelName,
    pub(super) canonical_name: String,
    pub(super) image: Option<String>,
    pub(super) image_is_built: bool,
    pub(super) flavor: Option<String>,
    pub(super) min_ready: u32,
    pub(super) zone: Option<String>,
}

/// Converts the merged attributes of a label, and keeps them in `attributes`. The fields of
/// `identity` are taken as they are. Attributes that are not set, or have another type than the
/// field, get their default, for example user `zuul`, port 22 (5986 for `winrm`) and a boot timeout
/// of 300 seconds.
pub(super) fn typed(merged: Map<String, Json>, identity: LabelIdentity) -> LabelConfig {
    let text = |name: &str| merged.get(name).and_then(Json::as_str).map(str::to_owned);
    let seconds = |name: &str| merged.get(name).and_then(Json::as_u64);
    let flag = |name: &str| merged.get(name).and_then(Json::as_bool);
    let connection_type = text("connection-type").unwrap_or_else(|| "ssh".to_owned());
    let standard_port = if connection_type == "winrm" { 5986 } else { 22 };
    let tags = merged.get("tags").and_then(Json::as_object).into_iter().flatten();
    LabelConfig {
        name: identity.name,
        canonical_name: identity.canonical_name,
        image: identity.image,
        image_is_built: identity.image_is_built,
        image_id: text("image-id"),
        image_name: text("image-name"),
        flavor: identity.flavor,
        instance_type: text("instance-type").or_else(|| text("flavor-name")),
        username: text("username").unwrap_or_else(|| "zuul".to_owned()),
        python_path: text("python-path").unwrap_or_else(|| "auto".to_owned()),
        connection_port: seconds("connection-port")
            .and_then(|port| u16::try_from(port).ok())
            .unwrap_or(standard_port),
        connection_type,
        shell_type: text("shell-type"),
        min_ready: identity.min_ready,
        max_nodes: count(&merged, "max-nodes"),
        max_ready_age_seconds: seconds("max-ready-age").unwrap_or(0),
        max_age_seconds: seconds("max-age").unwrap_or(0),
        boot_timeout_seconds: seconds("boot-timeout").unwrap_or(300),
        key_name: text("key-name"),
        host_key_checking: flag("host-key-checking").unwrap_or(true),
        subnet_ids: texts(&merged, "subnet-ids"),
        security_group_ids: texts(&merged, "security-group-ids"),
        tags: tags
            .map(|(name, value)| {
                (name.clone(), value.as_str().map_or_else(|| value.to_string(), str::to_owned))
            })
            .collect(),
        userdata: text("userdata"),
        volume_size_gib: count(&merged, "volume-size"),
        slots: count(&merged, "slots").unwrap_or(1),
        reuse: flag("reuse").unwrap_or(false),
        aliases: texts(&merged, "aliases"),
        zone: identity.zone,
        executor_zone: text("executor-zone"),
        min_retention_seconds: seconds("min-retention-time").unwrap_or(0),
        snapshot_timeout_seconds: seconds("snapshot-timeout").unwrap_or(3_600),
        snapshot_expiration_seconds: seconds("snapshot-expiration").unwrap_or(604_800),
        cloud: cloud(&merged),
        attributes: merged,
    }
}

/// Converts the merged attributes that apply only to cloud machines. Attributes that are not set,
/// or have another type than the field, are empty or `false`.
fn cloud(merged: &Map<String, Json>) -> CloudSettings {
    let text = |name: &str| merged.get(name).and_then(Json::as_str).map(str::to_owned);
    let flag = |name: &str| merged.get(name).and_then(Json::as_bool);
    let part = |name: &str| merged.get(name).and_then(Json::as_object);
    let word_of = |map: &Map<String, Json>, name: &str| {
        map.get(name).and_then(Json::as_str).map(str::to_owned)
    };
    CloudSettings {
        volume_type: text("volume-type"),
        iops: count(merged, "iops"),
        throughput: count(merged, "throughput"),
        imds_http_tokens: text("imds-http-tokens"),
        imds_support: text("imds-support"),
        iam_instance_profile: part("iam-instance-profile")
            .and_then(|profile| word_of(profile, "arn").or_else(|| word_of(profile, "name"))),
        kms_key_id: text("kms-key-id"),
        market_type: text("market-type"),
        dedicated_host: flag("dedicated-host").unwrap_or(false),
        ebs_optimized: flag("ebs-optimized").unwrap_or(false),
        nested_virtualization: flag("nested-virtualization").unwrap_or(false),
        public_ipv4: flag("public-ipv4"),
        public_ipv6: flag("public-ipv6"),
        fleet: part("fleet").map(|fleet| Fleet {
            instance_types: texts(fleet, "instance-types"),
            allocation_strategy: word_of(fleet, "allocation-strategy").unwrap_or_default(),
        }),
        image_filters: image_filters(merged),
        architecture: text("architecture"),
        ena_support: flag("ena-support"),
        config_drive: flag("config-drive"),
    }
}

/// Returns the image filters in merged attributes, in order; empty if none are set. Members that
/// are not mappings are left out. A filter without a name has an empty name.
pub(super) fn image_filters(merged: &Map<String, Json>) -> Vec<ImageFilter> {
    let filters = merged
        .get("image-filters")
        .and_then(Json::as_array)
        .into_iter()
        .flatten()
        .filter_map(Json::as_object);
    let filters = filters.map(|filter| ImageFilter {
        name: filter.get("name").and_then(Json::as_str).unwrap_or_default().to_owned(),
        values: texts(filter, "values"),
    });
    filters.collect()
}
