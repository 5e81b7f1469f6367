//! An image as a provider needs it, with a field for every attribute.

use super::label::{ImageFilter, image_filters};
use super::values::{count, texts};
use crate::objects::ProviderObject;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};

/// The default format of images.
pub const FORMAT: &str = "raw";

/// An image as a provider needs it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImageConfig {
    /// Its short name.
    pub name: String,
    /// Its name across tenants.
    pub canonical_name: String,
    /// Whether Sluice builds it (`zuul`); otherwise the cloud provides it.
    pub is_built: bool,
    /// The required format.
    pub format: String,
    /// How the cloud imports it: `snapshot`, `image` or `ebs-direct`; `None` for the driver's
    /// default.
    pub import_method: Option<String>,
    /// Timeout of the import in seconds; `None` for the driver's default.
    pub import_timeout_seconds: Option<u64>,
    /// How it may be uploaded, in order of preference; empty for the driver's default.
    pub upload_methods: Vec<String>,
    /// The number of uploads kept besides the newest.
    pub retain_count: Option<u32>,
    /// Maximum number of uploads kept.
    pub max_retain_count: Option<u32>,
    /// Settings of nodes that run it, whatever their label.
    pub node: ImageNode,
}

/// The node settings of an image. Labels and their defaults apply where it sets none.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ImageNode {
    /// The user to log in as.
    pub username: Option<String>,
    /// Python's path; `auto` lets Ansible find it.
    pub python_path: Option<String>,
    /// The shell's type, for Ansible.
    pub shell_type: Option<String>,
    /// `ssh` or `winrm`.
    pub connection_type: Option<String>,
    /// The port to log in at.
    pub connection_port: Option<u16>,
    /// Whether its settings are on a config drive.
    pub config_drive: Option<bool>,
    /// The cloud's id of the image.
    pub image_id: Option<String>,
    /// The cloud's name of the image.
    pub image_name: Option<String>,
    /// The filters that find the cloud's image; the newest match is used.
    pub image_filters: Vec<ImageFilter>,
    /// The image's architecture.
    pub architecture: Option<String>,
    /// Whether it has the cloud's network driver.
    pub ena_support: Option<bool>,
    /// The version of the metadata service that it supports.
    pub imds_support: Option<String>,
    /// Whether the metadata service requires tokens: `optional` or `required`.
    pub imds_http_tokens: Option<String>,
}

/// Returns whether Sluice builds an image. Only its definition decides this: it is one image of a
/// tenant for all its providers (L3.4, L3.7).
pub(in crate::layout) fn is_built(image: &ProviderObject) -> bool {
    image.attributes.get("type").and_then(Json::as_str) == Some("zuul")
}

/// Converts the merged attributes of an image. Attributes that are not set, or have another type
/// than the field, get their default: the format is `raw`, others are empty. Whether Sluice builds
/// the image comes from `image`, its definition, not from `merged`.
pub(super) fn typed(
    image: &ProviderObject,
    canonical_name: String,
    merged: &Map<String, Json>,
) -> ImageConfig {
    let text = |name: &str| merged.get(name).and_then(Json::as_str).map(str::to_owned);
    ImageConfig {
        name: image.name.clone(),
        canonical_name,
        is_built: is_built(image),
        format: text("image-format").unwrap_or_else(|| FORMAT.to_owned()),
        import_method: text("import-method"),
        import_timeout_seconds: merged.get("import-timeout").and_then(Json::as_u64),
        upload_methods: texts(merged, "upload-methods"),
        retain_count: count(merged, "retain-count"),
        max_retain_count: count(merged, "max-retain-count"),
        node: node(merged),
    }
}

/// Converts the merged attributes of nodes that run the image. Attributes that are not set, or have
/// another type than the field, are empty.
fn node(merged: &Map<String, Json>) -> ImageNode {
    let text = |name: &str| merged.get(name).and_then(Json::as_str).map(str::to_owned);
    let flag = |name: &str| merged.get(name).and_then(Json::as_bool);
    ImageNode {
        username: text("username"),
        python_path: text("python-path"),
        shell_type: text("shell-type"),
        connection_type: text("connection-type"),
        connection_port: count(merged, "connection-port").and_then(|port| u16::try_from(port).ok()),
        config_drive: flag("config-drive"),
        image_id: text("image-id"),
        image_name: text("image-name"),
        image_filters: image_filters(merged),
        architecture: text("architecture"),
        ena_support: flag("ena-support"),
        imds_support: text("imds-support"),
        imds_http_tokens: text("imds-http-tokens"),
    }
}
