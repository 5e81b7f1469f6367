//! Issues upload credentials for containers of object storage (`auth: swift`, Z4.8).
//!
//! A container is a prefix of one bucket, `TENANT/CONTAINER/`. Just before a playbook starts, it
//! gets credentials of a role that may only upload, limited by a session policy to that prefix.
//! They expire soon after the playbook's time limit, so no later playbook, nor anyone who finds
//! them, has use for them.

use crate::joblog::JobLog;
use crate::upload_site::UploadSite;
use serde_json::{Map, Value, json};
use sluice_model::TenantName;
use sluice_model::build::Order;
use sluice_model::job::{FrozenJob, is_container_name};
use sluice_runtime::PortError;
use sluice_runtime::role_session::{SessionCredentials, SessionRequest};
use std::fmt::Write as _;
use std::time::Duration;

/// The variable with the credentials of a playbook, by container.
pub const VARIABLE: &str = "upload_credentials";
/// The shortest time that STS issues credentials for, in seconds.
const VALID_SECONDS_MIN: u64 = 900;
/// The longest time that STS issues credentials for to a caller that is itself a role, in seconds.
const VALID_SECONDS_MAX: u64 = 3_600;
/// How long credentials are valid after the playbook's time limit, in seconds: for the end of an
/// upload, and for clocks that differ.
const VALID_SECONDS_MORE: u64 = 60;
/// How long a playbook waits for its credentials, in seconds. Its time limit has not begun, and a
/// stop waits too.
const ISSUE_SECONDS_MAX: u64 = 20;

/// Why a job cannot have the upload credentials that it requests.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UploadsError {
    /// This executor issues none.
    #[error(
        "the job requests upload credentials for container {container} (`auth: swift`), and this executor issues none: start it with \
         --upload-bucket and --upload-role, or remove the request from the job"
    )]
    NoSite {
        /// The container.
        container: String,
    },
    /// The name could lead out of the container.
    #[error(
        "the job requests upload credentials for container {container:?}, which is no valid name: correct its `auth`"
    )]
    Name {
        /// The container.
        container: String,
    },
}

/// Checks that credentials can be requested for all containers of a job's playbooks. Calls nothing.
///
/// # Errors
/// When this executor has no `site`, or a name is not valid.
pub fn check(job: &FrozenJob, site: Option<&UploadSite>) -> Result<(), UploadsError> {
    let playbooks = job.pre_run.iter().chain(&job.run).chain(&job.post_run);
    for container in playbooks.flat_map(|playbook| &playbook.containers) {
        let container = container.clone();
        if !is_container_name(&container) {
            return Err(UploadsError::Name { container });
        }
        if site.is_none() {
            return Err(UploadsError::NoSite { container });
        }
    }
    Ok(())
}

/// Adds the variable [`VARIABLE`] with new credentials for `containers` to the secrets of a
/// playbook, in place of a secret of that name; the log masks them from then on. Adds nothing
/// without containers or `site`. The error says why a container has no credentials, without
/// secrets.
pub async fn add(
    site: Option<&UploadSite>,
    order: &Order,
    containers: &[String],
    time_limit: Duration,
    secrets: &mut Map<String, Value>,
    log: &mut JobLog<'_>,
) -> Result<(), String> {
    let Some(site) = site.filter(|_| !containers.is_empty()) else { return Ok(()) };
    let calls = containers.iter().map(async |container| {
        let issued = site.issue(order, container, time_limit).await;
        issued.map(|issued| (container, issued)).map_err(|error| {
            format!("no upload credentials for container {container} could be issued: {error}")
        })
    });
    let calls = futures::future::try_join_all(calls);
    let issued = tokio::time::timeout(Duration::from_secs(ISSUE_SECONDS_MAX), calls).await;
    let late = |_| Err(format!("no upload credentials were issued in {ISSUE_SECONDS_MAX} seconds"));
    let mut by_container = Map::new();
    for (container, issued) in issued.unwrap_or_else(late)? {
        for secret in [&issued.access_key_id, &issued.secret_access_key, &issued.session_token] {
            log.add_secret(&json!(secret));
        }
        let variables = site.variables(&order.queue.tenant, container, &issued);
        by_container.insert(container.clone(), variables);
    }
    secrets.insert(VARIABLE.to_owned(), Value::Object(by_container));
    Ok(())
}

impl UploadSite {
    /// Issues credentials for one container of the build's tenant.
    async fn issue(
        &self,
        order: &Order,
        container: &str,
        time_limit: Duration,
    ) -> Result<SessionCredentials, PortError> {
        let request = SessionRequest {
            role_arn: self.role_arn.clone(),
            session_name: format!("sluice-{}", order.build),
            policy: self.policy(&prefix(&order.queue.tenant, container)),
            duration_seconds: valid_seconds(time_limit),
        };
        self.sessions.issue(&request).await
    }

    /// Returns the session policy that allows uploads below a prefix, in parts too, and nothing
    /// else. Clients know the parts that they have sent, so they need not list them.
    fn policy(&self, prefix: &str) -> String {
        // aws, aws-cn or aws-us-gov.
        let partition = self.role_arn.split(':').nth(1).unwrap_or("aws");
        json!({
            "Version": "2012-10-17",
            "Statement": [{
                "Effect": "Allow",
                "Action": ["s3:PutObject", "s3:AbortMultipartUpload"],
                "Resource": format!("arn:{partition}:s3:::{}/{prefix}*", self.bucket),
            }],
        })
        .to_string()
    }

    /// Returns what a playbook sees of the credentials for a container.
    fn variables(
        &self,
        tenant: &TenantName,
        container: &str,
        issued: &SessionCredentials,
    ) -> Value {
        json!({
            "endpoint_url": self.endpoint_url,
            "region": self.region,
            "bucket": self.bucket,
            "prefix": prefix(tenant, container),
            "access_key_id": issued.access_key_id,
            "secret_access_key": issued.secret_access_key,
            "session_token": issued.session_token,
            "expires_at": format!("{}Z", issued.expires_at.to_iso()),
        })
    }
}

/// Returns for how many seconds credentials are valid that are for a playbook with this time limit.
fn valid_seconds(time_limit: Duration) -> u64 {
    let wanted = time_limit.as_secs().saturating_add(VALID_SECONDS_MORE);
    wanted.clamp(VALID_SECONDS_MIN, VALID_SECONDS_MAX)
}

/// Returns the prefix of a container's keys, `TENANT/CONTAINER/`. The tenant's name may have any
/// sign but `/`; those with a meaning in policies, and others, are percent-encoded, so that no two
/// tenants have one prefix.
fn prefix(tenant: &TenantName, container: &str) -> String {
    let mut prefix = String::new();
    for byte in tenant.as_str().bytes() {
        if byte.is_ascii_alphanumeric() || b"-_.".contains(&byte) {
            prefix.push(char::from(byte));
        } else {
            // Writing to a text does not fail.
            let _ = write!(prefix, "%{byte:02X}");
        }
    }
    format!("{prefix}/{container}/")
}

#[cfg(test)]
mod tests {
    use super::*;
    use async_trait::async_trait;
    use sluice_runtime::role_session::RoleSessions;
    use std::sync::Arc;

    struct NoSessions;

    #[async_trait]
    impl RoleSessions for NoSessions {
        async fn issue(&self, request: &SessionRequest) -> Result<SessionCredentials, PortError> {
            Err(PortError::unknown(request.role_arn.clone(), "none"))
        }
    }

    fn site() -> UploadSite {
        UploadSite {
            sessions: Arc::new(NoSessions),
            role_arn: "arn:aws-cn:iam::1:role/upload".to_owned(),
            bucket: "uploads".to_owned(),
            region: "cn-north-1".to_owned(),
            endpoint_url: "https://s3.test".to_owned(),
        }
    }

    /// Z4.8: the policy is for one prefix, and allows uploads only.
    #[test]
    fn the_policy_allows_uploads_below_one_prefix() {
        let policy: Value = serde_json::from_str(&site().policy("acme/logs/")).unwrap();
        let expected = json!([{
            "Effect": "Allow",
            "Action": ["s3:PutObject", "s3:AbortMultipartUpload"],
            "Resource": "arn:aws-cn:s3:::uploads/acme/logs/*",
        }]);
        assert_eq!(policy["Statement"], expected);
    }

    /// Z4.8: no name of a tenant is the prefix of another tenant's container, or a wildcard.
    #[test]
    fn each_tenant_has_prefixes_of_its_own() {
        let of = |tenant: &str| prefix(&tenant.into(), "logs");
        assert_eq!(of("acme-1.x_y"), "acme-1.x_y/logs/");
        assert_eq!(of("a*?${b} c%"), "a%2A%3F%24%7Bb%7D%20c%25/logs/");
        assert_ne!(of("a%2A"), of("a*"));
        assert_eq!(of("ä"), "%C3%A4/logs/");
    }

    /// Z4.8: credentials cover the time limit of their playbook, within what STS issues.
    #[test]
    fn credentials_live_a_little_longer_than_their_playbook_may_run() {
        let of = |seconds| valid_seconds(Duration::from_secs(seconds));
        assert_eq!((of(0), of(1_800), of(86_400)), (900, 1_860, 3_600));
    }

    /// Z4.8: a job that requests what it cannot get does not start, and its error says what to do.
    #[test]
    fn a_request_that_cannot_be_met_is_an_error() {
        let with = |containers: &[&str]| -> FrozenJob {
            let playbook = json!({
                "connection": "forge", "project": "forge.test/org/config", "branch": "main",
                "commit": null, "path": "p", "trusted": true, "containers": containers,
            });
            let job = json!({
                "name": "unit", "voting": true, "attempts": 3, "nodesets": [],
                "post_run": [playbook],
            });
            serde_json::from_value(job).unwrap()
        };
        let (site, none) = (site(), with(&[]));
        assert_eq!(check(&none, None), Ok(()));
        assert_eq!(check(&with(&["logs"]), Some(&site)), Ok(()));
        let error = check(&with(&["logs"]), None).unwrap_err().to_string();
        assert!(error.contains("--upload-bucket") && error.contains("container logs"), "{error}");
        let error = check(&with(&["../b"]), Some(&site)).unwrap_err();
        assert_eq!(error, UploadsError::Name { container: "../b".to_owned() });
    }
}
