//! Sessions of roles by STS's AssumeRole.

use crate::SdkConfig;
use crate::endpoint::DataService;
use crate::failure::failed;
use crate::limits;
use async_trait::async_trait;
use aws_sdk_sts::Client;
use sluice_model::Timestamp;
use sluice_runtime::PortError;
use sluice_runtime::role_session::{RoleSessions, SessionCredentials, SessionRequest};

/// Issues sessions of roles with the credentials of an SDK configuration.
#[derive(Debug)]
pub struct StsSessions {
    client: Client,
}

impl StsSessions {
    /// Returns an issuer. Region, endpoint, HTTP client and credentials are those of `sdk_config`.
    /// Nothing is called yet.
    pub fn new(sdk_config: &SdkConfig) -> Self {
        let config = aws_sdk_sts::config::Builder::from(sdk_config)
            .retry_config(limits::retries())
            .timeout_config(limits::timeouts());
        Self { client: Client::from_conf(config.build()) }
    }
}

#[async_trait]
impl RoleSessions for StsSessions {
    async fn issue(&self, request: &SessionRequest) -> Result<SessionCredentials, PortError> {
        let attempt = || format!("assume the role {}", request.role_arn);
        let answer = self
            .client
            .assume_role()
            .role_arn(&request.role_arn)
            .role_session_name(&request.session_name)
            .duration_seconds(i32::try_from(request.duration_seconds).unwrap_or(i32::MAX))
            .policy(&request.policy)
            .send()
            .await
            .map_err(|error| failed("STS", attempt(), error))?;
        let unusable = |why: &str| PortError::unknown(attempt(), why);
        let issued =
            answer.credentials.ok_or_else(|| unusable("STS answered without credentials"))?;
        let expires_at = u64::try_from(issued.expiration.secs())
            .map_err(|_| unusable("STS answered without a valid time of expiry"))?;
        Ok(SessionCredentials {
            access_key_id: issued.access_key_id,
            secret_access_key: issued.secret_access_key,
            session_token: issued.session_token,
            expires_at: Timestamp(expires_at.saturating_mul(1_000)),
        })
    }
}

/// Returns the region of an SDK configuration, and the address of S3 for clients that are no SDK of
/// ours: the configuration's own endpoint, or Amazon's in the region. `None` without a region.
pub fn object_storage_address(sdk_config: &SdkConfig) -> Option<(String, String)> {
    let region = sdk_config.region()?.to_string();
    let own = DataService::S3.own_url(sdk_config);
    let suffix = if region.starts_with("cn-") { "amazonaws.com.cn" } else { "amazonaws.com" };
    let url = own.unwrap_or_else(|| format!("https://s3.{region}.{suffix}"));
    Some((region, url))
}

#[cfg(test)]
mod tests {
    use super::*;
    use aws_config::Region;

    fn address(region: &'static str, endpoint: Option<&str>) -> Option<(String, String)> {
        let mut config = SdkConfig::builder().region(Region::new(region));
        config.set_endpoint_url(endpoint.map(str::to_owned));
        object_storage_address(&config.build())
    }

    /// Z4.8: the address that playbooks get.
    #[test]
    fn object_storage_is_at_the_endpoint_or_at_amazons_in_the_region() {
        let of = |region: &str, url: &str| Some((region.to_owned(), url.to_owned()));
        assert_eq!(
            address("eu-west-1", None),
            of("eu-west-1", "https://s3.eu-west-1.amazonaws.com")
        );
        assert_eq!(
            address("cn-north-1", None),
            of("cn-north-1", "https://s3.cn-north-1.amazonaws.com.cn")
        );
        assert_eq!(
            address("eu-west-1", Some("http://127.0.0.1:1")),
            of("eu-west-1", "http://127.0.0.1:1")
        );
        assert_eq!(object_storage_address(&SdkConfig::builder().build()), None);
    }
}
