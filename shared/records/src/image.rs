//! An image of a tenant: the build request, its builds and their uploads, in one cell (N1, N2, N5,
//! L1).
//!
//! | record | key | written by |
//! |---|---|---|
//! | head with builds and uploads | `image#<tenant>/<image>`, `head` | images |
//! | build request outside the schedule | the same, `request-build` | any; removed by images |

use crate::codec::encode_first;
use serde::{Deserialize, Serialize};
use sluice_model::name::escape;
use sluice_model::{ProviderName, TenantName, Timestamp};
use sluice_runtime::PortError;
use sluice_runtime::record::{Expect, Key, Write};

/// The sort key of the build request.
pub const REQUEST_BUILD: &str = "request-build";

/// The head of an image's cell.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Image {
    /// The tenant whose pipelines build it (L1.8).
    pub tenant: TenantName,
    /// The image's canonical name.
    pub name: String,
    /// When the build was requested that has not started; further requests until it starts are
    /// merged into this one.
    pub build_requested_since: Option<Timestamp>,
    /// The id of the next build; ids are sequential and never reused (N1).
    pub next_build: u64,
    /// The builds, oldest first.
    pub builds: Vec<ImageBuild>,
}

impl Image {
    /// Returns an image without builds and without a request; its first build has the id 1.
    pub fn new(tenant: TenantName, name: String) -> Self {
        Self { tenant, name, build_requested_since: None, next_build: 1, builds: Vec::new() }
    }
}

/// One build of an image, in one format.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImageBuild {
    /// The build's sequential id.
    pub id: u64,
    /// Its state.
    pub state: ImageState,
    /// When it entered the state.
    pub state_time: Timestamp,
    /// Its uploads to providers.
    pub uploads: Vec<ImageUpload>,
}

/// One upload of a build to a provider.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImageUpload {
    /// The upload's id, sequential within the build.
    pub id: u64,
    /// The provider that it is uploaded to.
    pub provider: ProviderName,
    /// The provider's id of the image; `None` until the upload has one.
    pub external_id: Option<String>,
    /// Whether the uploaded image passed its validation (L1.5).
    pub validated: bool,
    /// The upload's state.
    pub state: ImageState,
    /// When it entered the state.
    pub state_time: Timestamp,
}

/// The state of an image build or of an upload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ImageState {
    /// In progress.
    Building,
    /// Complete and usable.
    Ready,
    /// Ended with an error.
    Failed,
    /// Deletion was requested (N2).
    Delete,
    /// Deletion is in progress (L1.6).
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

/// Returns the key of an image's build request.
pub fn request_key(tenant: &TenantName, image: &str) -> Key {
    Key::new(partition(tenant, image), REQUEST_BUILD)
}

/// Returns the unconditional write of a request to build an image outside its schedule (N5). A
/// request that is still stored is replaced, so that two requests are one. The caller wakes the
/// image after the write.
///
/// # Errors
/// When the record is too large.
pub fn put_request(tenant: &TenantName, image: &str, at: Timestamp) -> Result<Write, PortError> {
    Ok(Write::Put {
        record: encode_first(request_key(tenant, image), &at)?,
        expect: Expect::Anything,
    })
}
