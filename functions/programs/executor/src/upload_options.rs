//! The options that say where jobs upload to with credentials of their own.

use anyhow::{Context as _, bail};
use clap::Args;
use sluice_aws::{SdkConfig, StsSessions, object_storage_address};
use sluice_executor::UploadSite;
use std::sync::Arc;

/// The environment variable with the bucket that jobs upload to.
pub const BUCKET_VARIABLE: &str = "SLUICE_UPLOAD_BUCKET";
/// The environment variable with the role that upload credentials are of.
pub const ROLE_VARIABLE: &str = "SLUICE_UPLOAD_ROLE";

/// Where jobs upload to with credentials of their own.
#[derive(Debug, Clone, Default, Args)]
pub struct UploadOptions {
    /// Bucket that jobs upload to with credentials for one container (`auth: swift`)
    #[arg(long, env = BUCKET_VARIABLE, value_name = "BUCKET", requires = "upload_role")]
    pub upload_bucket: Option<String>,
    /// ARN of the role that these credentials are of; it may only upload to the bucket, and this
    /// executor may assume it
    #[arg(long, env = ROLE_VARIABLE, value_name = "ARN", requires = "upload_bucket")]
    pub upload_role: Option<String>,
}

impl UploadOptions {
    /// Returns the options in environment variables. `variable` returns the value of a variable by
    /// its name.
    pub fn from_variables(variable: impl Fn(&str) -> Option<String>) -> Self {
        Self { upload_bucket: variable(BUCKET_VARIABLE), upload_role: variable(ROLE_VARIABLE) }
    }

    /// Returns where jobs upload to, with the region, the endpoint and the credentials of
    /// `sdk_config`; `None` if neither option is set. An empty one counts as unset. Calls nothing.
    ///
    /// # Errors
    /// When only one of the options is set, the role is no ARN, or there is no region.
    pub fn site(self, sdk_config: &SdkConfig) -> anyhow::Result<Option<UploadSite>> {
        let set = |option: Option<String>| option.filter(|value| !value.is_empty());
        let (bucket, role_arn) = match (set(self.upload_bucket), set(self.upload_role)) {
            (None, None) => return Ok(None),
            (Some(bucket), Some(role_arn)) => (bucket, role_arn),
            _ => bail!(
                "could not set up uploads of jobs: --upload-bucket ({BUCKET_VARIABLE}) and \
                 --upload-role ({ROLE_VARIABLE}) need each other; set both or neither"
            ),
        };
        if !role_arn.starts_with("arn:") || role_arn.split(':').count() < 6 {
            bail!(
                "could not set up uploads of jobs: {role_arn:?} is no role; give its ARN \
                 (arn:aws:iam::ACCOUNT:role/NAME) as --upload-role ({ROLE_VARIABLE})"
            );
        }
        let (region, endpoint_url) = object_storage_address(sdk_config)
            .context("could not set up uploads of jobs: there is no region; set AWS_REGION")?;
        let sessions = Arc::new(StsSessions::new(sdk_config));
        Ok(Some(UploadSite { sessions, role_arn, bucket, region, endpoint_url }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_aws::endpoint::DataEndpoint;

    const ROLE: &str = "arn:aws:iam::123456789012:role/upload";

    async fn site(bucket: &str, role: &str) -> Result<Option<UploadSite>, String> {
        let options = UploadOptions::from_variables(|name| {
            Some(if name == BUCKET_VARIABLE { bucket } else { role }.to_owned())
        });
        let loader = DataEndpoint::usual_sources().empty_test_environment().region("eu-west-1");
        options.site(&loader.load().await).map_err(|error| format!("{error:#}"))
    }

    /// Z4.8: the template's variables are enough; half of them is an error at the start.
    #[tokio::test]
    async fn bucket_and_role_are_set_together() {
        let found = site("uploads", ROLE).await.unwrap().unwrap();
        assert_eq!((found.bucket.as_str(), found.role_arn.as_str()), ("uploads", ROLE));
        assert_eq!(found.endpoint_url, "https://s3.eu-west-1.amazonaws.com");
        assert!(site("", "").await.unwrap().is_none());
        assert!(site("uploads", "").await.unwrap_err().contains("--upload-role"));
        assert!(site("", ROLE).await.unwrap_err().contains("--upload-bucket"));
        assert!(site("uploads", "upload").await.unwrap_err().contains("is no role"));
    }
}
