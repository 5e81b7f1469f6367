//! An image of a tenant: the request flag, its builds and their uploads, in one cell (N1, N2, N5,
//! L1).
//!
//! | record | key | written by |
//! |---|---|---|
//! | head with builds and uploads | `image#<tenant>/<image>`, `head` | images |
//! | wish for a build, off schedule | the same, `request-build` | whoever wants one; removed by images |

use crate::codec::encode_first;
use serde::{Deserialize, Serialize};
use sluice_model::name::escape;
use sluice_model::{ProviderName, TenantName, Timestamp};
use sluice_runtime::PortError;
use sluice_runtime::record::{Expect, Key, Write};

/// The sort key of the wish for a build.
pub const REQUEST_BUILD: &str = "request-build";

/// The head of an image's cell.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Image {
    /// The tenant whose pipelines build it (L1.8).
    pub tenant: TenantName,
    /// Its canonical name.
    pub name: String,
    /// Since when a build is wanted that has not begun; further wishes until it begins are the same
    /// one.
    pub build_wanted_since: Option<Timestamp>,
    /// The id that the next build gets; ids are sequential and never given twice (N1).
    pub next_build: u64,
    /// Its builds, oldest first.
    pub builds: Vec<ImageBuild>,
}

impl Image {
    /// Returns an image without builds.
    pub fn new(tenant: TenantName, name: String) -> Self {
        Self { tenant, name, build_wanted_since: None, next_build: 1, builds: Vec::new() }
    }
}

/// One build of an image in one format.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImageBuild {
    /// Its sequential id.
    pub id: u64,
    /// Where it stands.
    pub state: ImageState,
    /// When it came to stand there.
    pub state_time: Timestamp,
    /// Its uploads.
    pub uploads: Vec<ImageUpload>,
}

/// One upload of a build to a provider.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImageUpload {
    /// Its id, sequential within the build.
    pub id: u64,
    /// The provider.
    pub provider: ProviderName,
    /// What the provider calls it, once it is there.
    pub external_id: Option<String>,
    /// Whether it passed its validation (L1.5).
    pub validated: bool,
    /// Where it stands.
    pub state: ImageState,
    /// When it came to stand there.
    pub state_time: Timestamp,
}

/// Where a build or an upload stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ImageState {
    /// It is being made.
    Building,
    /// It is there.
    Ready,
    /// It could not be made.
    Failed,
    /// Somebody wants it gone (N2).
    Delete,
    /// It is being removed (L1.6).
    Deleting,
}

/// Returns the partition of an image.
pub fn partition(tenant: &TenantName, image: &str) -> String {
    format!("image#{}/{}", escape(tenant.as_str()), escape(image))
}

/// Returns the key of an image's head.
pub fn key(tenant: &TenantName, image: &str) -> Key {
    Key::new(partition(tenant, image), "head")
}

/// Returns the key of the wish for a build.
pub fn request_key(tenant: &TenantName, image: &str) -> Key {
    Key::new(partition(tenant, image), REQUEST_BUILD)
}

/// Returns the write that wishes for a build, off schedule (N5); one that is there already stands.
/// The image is poked after it.
///
/// # Errors
/// When it is too large.
pub fn put_request(tenant: &TenantName, image: &str, at: Timestamp) -> Result<Write, PortError> {
    Ok(Write::Put {
        record: encode_first(request_key(tenant, image), &at)?,
        expect: Expect::Anything,
    })
}
