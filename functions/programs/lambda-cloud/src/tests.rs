//! With whose credentials the clients of connections call EC2.

use super::*;
use sluice_cloud::TagFilter;
use sluice_emulator::data::{AssumableRole, DataOptions, Front, Principal, SecretAccessKey, serve};
use sluice_emulator::ec2::{Ec2, Ec2Options};
use sluice_memory::World;
use sluice_model::Timestamp;
use sluice_model::git::LandingMethod;
use sluice_records::connection::{AwsAccess, StoredAccessKey, ec2_host};
use tempfile::TempDir;

const ROLE: &str = "arn:aws:iam::123456789012:role/nodes";
const USER_KEY: &str = "AKIAIOSFODNN7EXAMPLE";

/// The emulator with the access keys of a launcher and of a user, and with a role; and the
/// functions' environment, with the launcher's credentials.
struct Site {
    front: Arc<Front>,
    ec2: Ec2,
    server: tokio::task::JoinHandle<()>,
    environment: FunctionEnvironment,
    _directory: TempDir,
}

impl Site {
    async fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let role = AssumableRole {
            arn: ROLE.to_owned(),
            trusted: None,
            external_id: Some("us-1".to_owned()),
            acts_as: Principal::new("nodes"),
            life_seconds_max: None,
        };
        let options = DataOptions { roles: vec![role], ..DataOptions::default() };
        let front = Front::open(&directory.path().join("data"), options).unwrap();
        for (id, owner, secret) in
            [("AKIDLAUNCHER", "launcher", "hush"), (USER_KEY, "user", "quiet")]
        {
            front.keys().insert(id, Principal::new(owner), SecretAccessKey::new(secret));
        }
        let ec2 = Ec2::open(Ec2Options::new(directory.path().join("ec2"))).unwrap();
        front.add("ec2", Arc::new(ec2.clone()));
        let (address, server) = serve(Arc::clone(&front), 0).await.unwrap();
        let launcher = Credentials::new("AKIDLAUNCHER", "hush", None, None, "test");
        let environment = FunctionEnvironment {
            ports: World::new(1, 0, Timestamp(0)).ports(),
            credentials: SharedCredentialsProvider::new(launcher),
            region: "us-east-1".to_owned(),
            endpoint: Some(format!("http://{address}").parse().unwrap()),
            web_root: None,
            ask_minutes: None,
            queue_urls: BTreeMap::new(),
            cache: directory.path().join("cache"),
        };
        Self { front, ec2, server, environment, _directory: directory }
    }

    /// Returns the user's access key, stored for this connection.
    async fn user_key(&self, connection: &str) -> Option<StoredAccessKey> {
        let context = connection::seal_context(&connection.into(), connection::SECRET_ACCESS_KEY);
        let sealed = connection::seal(&self.environment.ports, &context, "quiet").await.unwrap();
        Some(StoredAccessKey { id: USER_KEY.to_owned(), sealed_secret: sealed })
    }

    /// Lists the machines of a connection with these credentials.
    async fn list(&self, name: &str, aws: AwsAccess) -> Result<usize, String> {
        let connection = StoredConnection {
            driver: Driver::Aws,
            canonical_hostname: ec2_host("eu-west-1"),
            api_url: None,
            git_url: String::new(),
            login: None,
            token: None,
            webhook_secrets: Vec::new(),
            landing: LandingMethod::default(),
            poll_minutes: None,
            aws,
        };
        let connections = ConnectionsFile([(name.into(), connection)].into());
        let clouds = clouds(&self.environment, &connections, "ssh-ed25519 AAAA")
            .await
            .map_err(|error| error.to_string())?;
        let cloud = &clouds[&ConnectionName::from(name)];
        let listed = cloud.driver.describe(None, &TagFilter::provider(&"main".into())).await;
        listed.map(|machines| machines.len()).map_err(|error| error.to_string())
    }

    /// Returns how often a principal called an operation.
    fn calls(&self, principal: &str, operation: &str) -> u64 {
        let is_it = |row: &sluice_emulator::data::Row| {
            row.principal == principal && row.operation == operation
        };
        self.front.meter().snapshot().total(is_it).calls
    }

    async fn end(self) {
        self.server.abort();
        self.ec2.shut_down().await;
    }
}

fn role(external_id: &str) -> Option<StoredRole> {
    Some(StoredRole { arn: ROLE.to_owned(), external_id: Some(external_id.to_owned()) })
}

/// L3.5: a connection has its own role, access key or both, or else the launcher's credentials.
#[tokio::test(flavor = "multi_thread")]
async fn each_connection_calls_ec2_with_its_own_credentials() {
    let site = Site::start().await;
    let described =
        || ["launcher", "user", "nodes"].map(|name| site.calls(name, "DescribeInstances"));
    let requested = || ["launcher", "user"].map(|name| site.calls(name, "AssumeRole"));
    assert_eq!(site.list("ambient", AwsAccess::default()).await, Ok(0));
    assert_eq!((described(), requested()), ([1, 0, 0], [0, 0]));
    let aws = AwsAccess { access_key: site.user_key("keyed").await, role: None };
    assert_eq!(site.list("keyed", aws).await, Ok(0));
    assert_eq!((described(), requested()), ([1, 1, 0], [0, 0]));
    let aws = AwsAccess { access_key: None, role: role("us-1") };
    assert_eq!(site.list("role", aws).await, Ok(0));
    assert_eq!((described(), requested()), ([1, 1, 1], [1, 0]));
    let aws = AwsAccess { access_key: site.user_key("both").await, role: role("us-1") };
    assert_eq!(site.list("both", aws).await, Ok(0));
    assert_eq!((described(), requested()), ([1, 1, 2], [1, 1]));
    site.end().await;
}

/// L3.5: the error names the connection, its region and the role, and no secret.
#[tokio::test(flavor = "multi_thread")]
async fn the_error_of_a_refused_role_names_the_connection() {
    let site = Site::start().await;
    let aws = AwsAccess { access_key: site.user_key("far").await, role: role("us-2") };
    let error = site.list("far", aws).await.unwrap_err();
    let origin = format!("(connection far, region eu-west-1, role {ROLE})");
    assert!(error.contains("AccessDenied") && error.contains(&origin), "{error}");
    assert!(!error.contains("quiet"), "{error}");
    site.end().await;
}

/// L3.5: a secret of one connection cannot be used by another.
#[tokio::test(flavor = "multi_thread")]
async fn the_access_key_of_another_connection_is_refused() {
    let site = Site::start().await;
    let aws = AwsAccess { access_key: site.user_key("one").await, role: None };
    let error = site.list("other", aws).await.unwrap_err();
    assert!(error.contains("connection/other/secret-access-key"), "{error}");
    assert!(!error.contains("quiet"), "{error}");
    site.end().await;
}
