//! Where jobs upload to with credentials of their own (Z4.8); [`crate::uploads`] issues them.

use sluice_runtime::role_session::RoleSessions;
use std::fmt;
use std::sync::Arc;

/// Where jobs upload to, and what issues their credentials.
#[derive(Clone)]
pub struct UploadSite {
    /// Issues sessions of the role.
    pub sessions: Arc<dyn RoleSessions>,
    /// The ARN of the role. It may upload to the bucket and do nothing else.
    pub role_arn: String,
    /// The bucket.
    pub bucket: String,
    /// The region of the bucket.
    pub region: String,
    /// The address of object storage.
    pub endpoint_url: String,
}

impl fmt::Debug for UploadSite {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = formatter.debug_struct("UploadSite");
        shown.field("role_arn", &self.role_arn).field("bucket", &self.bucket);
        shown.finish_non_exhaustive()
    }
}
