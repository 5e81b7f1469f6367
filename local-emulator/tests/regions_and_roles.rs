//! EC2 in several regions, and with the credentials of a role, by the real driver.
#![allow(clippy::unwrap_used, missing_docs, reason = "a test may panic")]

use aws_credential_types::Credentials;
use aws_credential_types::provider::SharedCredentialsProvider;
use sluice_cloud::{
    AssumedRole, CloudDriver, CloudError, Ec2Driver, Ec2Settings, LaunchSpec, RoleToAssume,
    TagFilter, tags,
};
use sluice_emulator::data::{
    AssumableRole, Authorizer, DataOptions, Decision, Front, Principal, SecretAccessKey, serve,
};
use sluice_emulator::ec2::{Ec2, Ec2Options};
use sluice_pool::InstanceId;
use std::collections::BTreeMap;
use std::sync::Arc;
use tempfile::TempDir;

const HOME: &str = "us-east-1";
const FAR: &str = "eu-west-1";
const ROLE: &str = "arn:aws:iam::123456789012:role/nodes";

/// The emulator, with one role that requires an external id.
struct Cloud {
    front: Arc<Front>,
    ec2: Ec2,
    endpoint: String,
    server: tokio::task::JoinHandle<()>,
    _directory: TempDir,
}

/// Lets only the principal of the role call EC2, and only the launcher assume the role.
struct OnlyTheRole;

impl Authorizer for OnlyTheRole {
    fn allow(&self, principal: &Principal, action: &str, resource_arn: &str) -> Decision {
        let is_allowed = match principal.as_str() {
            "nodes" => action.starts_with("ec2:"),
            "launcher" => action == "sts:AssumeRole" && resource_arn == ROLE,
            _ => false,
        };
        let why = "the test does not allow it".to_owned();
        if is_allowed { Decision::Allow } else { Decision::Deny { why } }
    }
}

impl Cloud {
    async fn start(life_seconds_max: Option<u64>) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let role = AssumableRole {
            arn: ROLE.to_owned(),
            trusted: None,
            external_id: Some("us-1".to_owned()),
            acts_as: Principal::new("nodes"),
            life_seconds_max,
        };
        let options = DataOptions { roles: vec![role], ..DataOptions::default() };
        let front = Front::open(&directory.path().join("data"), options).unwrap();
        front.keys().insert(
            "AKIDLAUNCHER",
            Principal::new("launcher"),
            SecretAccessKey::new("hush"),
        );
        let ec2 = Ec2::open(Ec2Options::new(directory.path().join("ec2"))).unwrap();
        front.add("ec2", Arc::new(ec2.clone()));
        let (address, server) = serve(Arc::clone(&front), 0).await.unwrap();
        let endpoint = format!("http://{address}");
        Self { front, ec2, endpoint, server, _directory: directory }
    }

    fn launcher() -> SharedCredentialsProvider {
        let credentials = Credentials::new("AKIDLAUNCHER", "hush", None, None, "test");
        SharedCredentialsProvider::new(credentials)
    }

    fn driver(&self, credentials: SharedCredentialsProvider) -> Ec2Driver {
        Ec2Driver::new(self.settings(), credentials).unwrap()
    }

    /// Returns the settings of a connection without a role.
    fn settings(&self) -> Ec2Settings {
        let endpoint = Some(self.endpoint.parse().unwrap());
        Ec2Settings { region: HOME.into(), endpoint, connection: "cloud".into(), role_arn: None }
    }

    /// Returns a driver that calls EC2 as the role, requested with this external id.
    fn driver_of_role(&self, external_id: Option<&str>) -> Ec2Driver {
        let role = RoleToAssume {
            arn: ROLE.to_owned(),
            external_id: external_id.map(str::to_owned),
            used_by: "ec2".to_owned(),
        };
        let endpoint = Some(self.endpoint.parse().unwrap());
        let assumed = AssumedRole::new(role, HOME, endpoint, Self::launcher()).unwrap();
        let settings = Ec2Settings { role_arn: Some(ROLE.to_owned()), ..self.settings() };
        Ec2Driver::new(settings, SharedCredentialsProvider::new(assumed)).unwrap()
    }

    /// Returns how often the role was requested.
    fn requests(&self) -> u64 {
        self.front.meter().snapshot().total(|row| row.operation == "AssumeRole").calls
    }

    async fn end(self) {
        self.server.abort();
        self.ec2.shut_down().await;
    }
}

fn spec(token: &str, region: Option<&str>) -> LaunchSpec {
    LaunchSpec {
        client_token: token.into(),
        region: region.map(str::to_owned),
        // Its machines run no server, which these tests do not need.
        image_id: "ami-silent".into(),
        instance_type: "t3.medium".into(),
        az: None,
        subnet: None,
        security_groups: Vec::new(),
        user_data: String::new(),
        tags: BTreeMap::from([(tags::PROVIDER.into(), "cloud".into())]),
    }
}

fn filter() -> TagFilter {
    TagFilter { key: tags::PROVIDER.into(), value: "cloud".into() }
}

async fn listed(driver: &Ec2Driver, region: Option<&str>) -> Vec<InstanceId> {
    let all = driver.describe(region, &filter()).await.unwrap();
    all.into_iter().map(|instance| instance.id).collect()
}

/// L3.8: a section's region chooses where its machines are.
#[tokio::test(flavor = "multi_thread")]
async fn a_machine_is_only_in_the_region_that_it_was_launched_in() {
    let cloud = Cloud::start(None).await;
    let driver = cloud.driver(Cloud::launcher());
    let here = driver.launch(&spec("one", None)).await.unwrap();
    let far = driver.launch(&spec("one", Some(FAR))).await.unwrap();
    assert_ne!(here.id, far.id, "a token is one of its region");
    assert_eq!(here.az.as_deref(), Some("us-east-1a"));
    assert_eq!(far.az.as_deref(), Some("eu-west-1a"));
    assert_eq!(listed(&driver, None).await, std::slice::from_ref(&here.id));
    assert_eq!(listed(&driver, Some(HOME)).await, std::slice::from_ref(&here.id));
    assert_eq!(listed(&driver, Some(FAR)).await, std::slice::from_ref(&far.id));
    let wrong_zone = LaunchSpec { az: Some("us-east-1a".into()), ..spec("two", Some(FAR)) };
    assert!(matches!(driver.launch(&wrong_zone).await, Err(CloudError::Permanent { .. })));
    // It is not there, so there is nothing to terminate.
    driver.terminate(None, std::slice::from_ref(&far.id)).await.unwrap();
    let all = driver.describe(Some(FAR), &filter()).await.unwrap();
    assert!(
        all.iter()
            .all(|instance| instance.fact_in(None).state != sluice_pool::InstanceState::Terminated)
    );
    driver.terminate(Some(FAR), std::slice::from_ref(&far.id)).await.unwrap();
    let all = driver.describe(Some(FAR), &filter()).await.unwrap();
    assert!(all.iter().all(|instance| {
        use sluice_pool::InstanceState::{Stopping, Terminated};
        matches!(instance.state, Stopping | Terminated)
    }));
    cloud.end().await;
}

/// L3.5: a connection calls EC2 as its role. The credentials are requested once.
#[tokio::test(flavor = "multi_thread")]
async fn a_driver_with_a_role_calls_as_the_role_and_requests_it_once() {
    let cloud = Cloud::start(None).await;
    cloud.front.set_authorizer(Arc::new(OnlyTheRole));
    let ambient = cloud.driver(Cloud::launcher());
    let refused = ambient.launch(&spec("one", None)).await;
    assert!(matches!(refused, Err(CloudError::Permanent { .. })), "{refused:?}");
    let text = refused.unwrap_err().to_string();
    assert!(text.contains("(connection cloud, region us-east-1)"), "{text}");
    let driver = cloud.driver_of_role(Some("us-1"));
    let calls = (0..8).map(|_| {
        let driver = driver.clone();
        tokio::spawn(async move { driver.describe(None, &filter()).await.unwrap().len() })
    });
    for call in calls.collect::<Vec<_>>() {
        assert_eq!(call.await.unwrap(), 0);
    }
    driver.launch(&spec("one", Some(FAR))).await.unwrap();
    assert_eq!(listed(&driver, Some(FAR)).await.len(), 1);
    assert_eq!(cloud.requests(), 1, "the credentials are cached");
    cloud.end().await;
}

/// L3.5: the error names the role and the reason, and no credentials.
#[tokio::test(flavor = "multi_thread")]
async fn a_role_is_refused_without_its_external_id() {
    let cloud = Cloud::start(None).await;
    for external_id in [None, Some("us-2")] {
        let driver = cloud.driver_of_role(external_id);
        let error = driver.describe(None, &filter()).await.unwrap_err();
        assert!(matches!(error, CloudError::Unknown { .. }), "{error}");
        let text = error.to_string();
        assert!(text.contains(&format!("could not assume the role {ROLE}")), "{text}");
        let origin = format!("(connection cloud, region {HOME}, role {ROLE})");
        assert!(text.contains(&origin), "{text}");
        assert!(text.contains("AccessDenied") && text.contains("external id"), "{text}");
        assert!(!text.contains("hush"), "{text}");
    }
    cloud.end().await;
}

/// L3.5: credentials that expire within five minutes are replaced before the next call.
#[tokio::test(flavor = "multi_thread")]
async fn credentials_that_are_about_to_expire_are_requested_again() {
    let cloud = Cloud::start(Some(200)).await;
    let driver = cloud.driver_of_role(Some("us-1"));
    assert_eq!(listed(&driver, None).await, []);
    assert_eq!(listed(&driver, None).await, []);
    assert_eq!(cloud.requests(), 2);
    cloud.end().await;
}

/// L3.5: the emulator accepts temporary keys only with their session token, and only in time.
#[tokio::test(flavor = "multi_thread")]
async fn temporary_credentials_need_their_session_token_and_expire() {
    use aws_credential_types::provider::ProvideCredentials as _;
    let cloud = Cloud::start(None).await;
    let role = RoleToAssume {
        arn: ROLE.to_owned(),
        external_id: Some("us-1".to_owned()),
        used_by: "ec2".to_owned(),
    };
    let endpoint = Some(cloud.endpoint.parse().unwrap());
    let assumed = AssumedRole::new(role, HOME, endpoint, Cloud::launcher()).unwrap();
    let issued = assumed.provide_credentials().await.unwrap();
    assert!(!format!("{issued:?}{assumed:?}").contains(issued.secret_access_key()));
    for token in [None, Some("another".to_owned())] {
        let (id, secret) = (issued.access_key_id(), issued.secret_access_key());
        let without = Credentials::new(id, secret, token, None, "test");
        let driver = cloud.driver(SharedCredentialsProvider::new(without));
        assert!(driver.describe(None, &filter()).await.is_err());
    }
    let expired = Cloud::start(Some(0)).await;
    let driver = expired.driver_of_role(Some("us-1"));
    assert!(driver.describe(None, &filter()).await.is_err(), "they have expired at once");
    expired.end().await;
    cloud.end().await;
}
