//! An image as one provider needs it, every attribute in its field.

use super::label::{ImageFilter, image_filters};
use super::values::{count, texts};
use crate::objects::ProviderObject;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};

/// The format of images of which nobody says one.
pub const FORMAT: &str = "raw";

/// An image as one provider needs it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImageConfig {
    /// Its short name.
    pub name: String,
    /// Its name across tenants.
    pub canonical_name: String,
    /// Whether it is built here (`zuul`), not the cloud's own.
    pub is_built: bool,
    /// The format that it is wanted in.
    pub format: String,
    /// How the cloud takes it in: `snapshot`, `image` or `ebs-direct`; `None` leaves it to the
    /// driver.
    pub import_method: Option<String>,
    /// Seconds that taking it in may last; `None` leaves it to the driver.
    pub import_timeout_seconds: Option<u64>,
    /// How it may get there, in order of preference; empty leaves it to the driver.
    pub upload_methods: Vec<String>,
    /// Uploads that are kept besides the newest.
    pub retain_count: Option<u32>,
    /// Uploads that are kept at most.
    pub max_retain_count: Option<u32>,
    /// What there is to know of a node that runs it, whichever label it is made for.
    #[serde(default)]
    pub node: ImageNode,
}

/// What an image says of the nodes that run it; what it does not say is left to labels and their
/// defaults.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ImageNode {
    /// The user to log in as.
    pub username: Option<String>,
    /// Python's path; `auto` lets Ansible look.
    pub python_path: Option<String>,
    /// The shell's type, for Ansible.
    pub shell_type: Option<String>,
    /// `ssh` or `winrm`.
    pub connection_type: Option<String>,
    /// The port to log in at.
    pub connection_port: Option<u16>,
    /// Whether its settings are on a drive.
    pub config_drive: Option<bool>,
    /// The cloud's id of the image.
    pub image_id: Option<String>,
    /// The cloud's name of the image.
    pub image_name: Option<String>,
    /// What the cloud's image is found by; the newest that fits all is taken.
    pub image_filters: Vec<ImageFilter>,
    /// The image's architecture.
    pub architecture: Option<String>,
    /// Whether it has the cloud's network driver.
    pub ena_support: Option<bool>,
    /// The version of the metadata service that it supports.
    pub imds_support: Option<String>,
    /// Whether the metadata service wants tokens: `optional` or `required`.
    pub imds_http_tokens: Option<String>,
}

/// Returns whether an image is built here. That is for the `image` to say and for nobody below it:
/// it is one image of a tenant, which all of its providers run (L3.4, L3.7).
pub(in crate::layout) fn is_built(image: &ProviderObject) -> bool {
    image.attributes.get("type").and_then(Json::as_str) == Some("zuul")
}

/// Puts the merged attributes of an image into their fields.
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
