//! An image as one provider needs it, every attribute in its field.

use super::values::{count, texts};
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
    /// How the cloud takes it in: `snapshot`, `image` or `ebs-direct`; `None` leaves it to the driver.
    pub import_method: Option<String>,
    /// Seconds that taking it in may last; `None` leaves it to the driver.
    pub import_timeout_seconds: Option<u64>,
    /// How it may get there, in order of preference; empty leaves it to the driver.
    pub upload_methods: Vec<String>,
    /// Uploads that are kept besides the newest.
    pub retain_count: Option<u32>,
    /// Uploads that are kept at most.
    pub max_retain_count: Option<u32>,
}

/// Puts the merged attributes of an image into their fields.
pub(super) fn typed(name: &str, canonical_name: String, merged: &Map<String, Json>) -> ImageConfig {
    let text = |name: &str| merged.get(name).and_then(Json::as_str).map(str::to_owned);
    ImageConfig {
        name: name.to_owned(),
        canonical_name,
        is_built: text("type").as_deref() == Some("zuul"),
        format: text("image-format").unwrap_or_else(|| FORMAT.to_owned()),
        import_method: text("import-method"),
        import_timeout_seconds: merged.get("import-timeout").and_then(Json::as_u64),
        upload_methods: texts(merged, "upload-methods"),
        retain_count: count(merged, "retain-count"),
        max_retain_count: count(merged, "max-retain-count"),
    }
}
