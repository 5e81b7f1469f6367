//! What the tests of EC2 share: an emulator with a driver that calls it, and one as a process.

use aws_credential_types::Credentials;
use aws_credential_types::provider::SharedCredentialsProvider;
use aws_sigv4::http_request::{SignableBody, SignableRequest, SigningSettings, sign};
use aws_sigv4::sign::v4;
use sluice_cloud::{
    CloudDriver, Ec2Driver, Ec2Settings, Instance, LaunchSpec, LoginKey, SshEndpoint, TagFilter,
    ssh, tags, user_data,
};
use sluice_emulator::data::{
    DataOptions as FrontOptions, Front, Principal, SecretAccessKey, serve,
};
use sluice_emulator::ec2::{Ec2, Ec2Options, remove_left};
use sluice_keys::SshKeyPair;
use sluice_pool::{CheckFact, InstanceId, InstanceState};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Lines};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};
use tempfile::TempDir;

pub(crate) const MINUTE: Duration = Duration::from_secs(60);

/// An emulator in this process and a driver that calls it.
pub(crate) struct World {
    pub(crate) endpoint: String,
    pub(crate) ec2: Ec2,
    pub(crate) driver: Ec2Driver,
    _machines: Machines,
    pub(crate) directory: Arc<TempDir>,
    pub(crate) pair: SshKeyPair,
    pub(crate) server: tokio::task::JoinHandle<()>,
}

/// Machines below a directory, which a test that fails does not leave behind. Dropped before the
/// directory is.
pub(crate) struct Machines(pub(crate) PathBuf);

impl Drop for Machines {
    fn drop(&mut self) {
        let _ = remove_left(&self.0.join("ec2"));
    }
}

pub(crate) async fn start(
    directory: &Path,
    options: Ec2Options,
) -> (Ec2, String, tokio::task::JoinHandle<()>) {
    let front = Front::open(&directory.join("data"), FrontOptions::default()).unwrap();
    front.keys().insert("AKIDLAUNCHER", Principal::new("launcher"), SecretAccessKey::new("hush"));
    let ec2 = Ec2::open(Ec2Options { directory: directory.join("ec2"), ..options }).unwrap();
    front.add("ec2", Arc::new(ec2.clone()));
    let (address, server) = serve(front, 0).await.unwrap();
    (ec2, format!("http://{address}"), server)
}

pub(crate) fn driver(endpoint: &str, secret: &str) -> Ec2Driver {
    let credentials = Credentials::new("AKIDLAUNCHER", secret, None, None, "test");
    let settings = Ec2Settings {
        region: "us-east-1".into(),
        endpoint: Some(endpoint.parse().unwrap()),
        connection: "ec2".into(),
        role_arn: None,
    };
    Ec2Driver::new(settings, SharedCredentialsProvider::new(credentials)).unwrap()
}

impl World {
    pub(crate) async fn new(limit: u32) -> Self {
        Self::with(Ec2Options { instance_limit: limit, ..Ec2Options::new("") }).await
    }

    pub(crate) async fn with(options: Ec2Options) -> Self {
        let directory = Arc::new(tempfile::tempdir().unwrap());
        let pair = SshKeyPair::generate("test").unwrap();
        let (ec2, endpoint, server) = start(directory.path(), options).await;
        let machines = Machines(directory.path().to_owned());
        Self {
            ec2,
            driver: driver(&endpoint, "hush"),
            endpoint,
            _machines: machines,
            directory,
            pair,
            server,
        }
    }

    pub(crate) fn spec(&self, token: &str) -> LaunchSpec {
        spec(token, self.pair.public_line())
    }

    pub(crate) async fn check(&self, instance: &Instance) -> CheckFact {
        let key = LoginKey::from_openssh(self.pair.private().expose_text().unwrap()).unwrap();
        until_checked(instance, &key).await
    }

    /// Runs a command on a machine with OpenSSH's own client.
    pub(crate) fn ssh(&self, instance: &Instance, command: &str) -> String {
        let login = format!("zuul@{}", instance.private_ip.as_ref().unwrap());
        let port = target(instance).port.to_string();
        ssh_with(self.directory.path(), &self.pair, &["-p", &port, &login, command])
    }

    pub(crate) async fn list(&self) -> Vec<Instance> {
        self.driver.describe(None, &filter()).await.unwrap()
    }

    pub(crate) async fn until(&self, id: &InstanceId, state: InstanceState) -> Instance {
        until_state(&self.driver, id, state).await
    }

    pub(crate) async fn end(self) {
        self.server.abort();
        self.ec2.shut_down().await;
    }
}

pub(crate) fn ssh_with(directory: &Path, pair: &SshKeyPair, arguments: &[&str]) -> String {
    let key = directory.join("key");
    std::fs::write(&key, pair.private().expose()).unwrap();
    std::fs::set_permissions(&key, PermissionsExt::from_mode(0o600)).unwrap();
    let output = Command::new("ssh")
        .args([
            "-o",
            "BatchMode=yes",
            "-o",
            "StrictHostKeyChecking=no",
            "-o",
            "UserKnownHostsFile=/dev/null",
            "-i",
        ])
        .arg(&key)
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    String::from_utf8(output.stdout).unwrap()
}

pub(crate) fn spec(token: &str, key: &str) -> LaunchSpec {
    LaunchSpec {
        client_token: token.into(),
        region: None,
        image_id: "ami-debian12".into(),
        instance_type: "t3.medium".into(),
        az: Some("us-east-1b".into()),
        subnet: None,
        security_groups: vec!["sg-1".into()],
        user_data: user_data::cloud_config("zuul", &[key.to_owned()]),
        tags: BTreeMap::from([
            (tags::NODE.into(), token.into()),
            (tags::PROVIDER.into(), "cloud".into()),
        ]),
    }
}

pub(crate) fn filter() -> TagFilter {
    TagFilter { key: tags::PROVIDER.into(), value: "cloud".into() }
}

pub(crate) async fn until_state(
    driver: &Ec2Driver,
    id: &InstanceId,
    state: InstanceState,
) -> Instance {
    let end = Instant::now() + MINUTE;
    loop {
        let all = driver.describe(None, &filter()).await.unwrap();
        if let Some(instance) =
            all.into_iter().find(|instance| instance.id == *id && instance.state == state)
        {
            return instance;
        }
        assert!(Instant::now() < end, "{id} never came to be {state:?}");
        tokio::task::yield_now().await;
    }
}

/// Returns the address of a machine's SSH server. A tag holds its port if it is not 22, because a
/// user other than root may not listen on port 22.
pub(crate) fn target(instance: &Instance) -> SshEndpoint {
    SshEndpoint {
        address: instance.private_ip.clone().unwrap(),
        port: instance.fact_in(None).machine.ssh_port.unwrap_or(22),
    }
}

pub(crate) async fn until_checked(instance: &Instance, key: &LoginKey) -> CheckFact {
    until_checked_as("zuul", instance, key).await
}

pub(crate) async fn until_checked_as(user: &str, instance: &Instance, key: &LoginKey) -> CheckFact {
    let end = Instant::now() + MINUTE;
    loop {
        match ssh::check(&target(instance), user, key, &[], Duration::from_secs(10)).await {
            CheckFact::NotYet(_) if Instant::now() < end => tokio::task::yield_now().await,
            fact => return fact,
        }
    }
}

/// An emulator as a process of its own. Dropped, it is killed, and its machines with it.
pub(crate) struct Emulator {
    pub(crate) child: Child,
    pub(crate) endpoint: String,
    // What it prints later needs a reader.
    _output: Lines<BufReader<ChildStdout>>,
    _machines: Machines,
}

impl Emulator {
    /// Kills it and nothing else.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Emulator {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) fn emulator(directory: &Path) -> Emulator {
    emulator_of(&mut Command::new(std::env::current_exe().unwrap()), directory)
}

pub(crate) fn emulator_of(command: &mut Command, directory: &Path) -> Emulator {
    let mut child = command
        .args(["--exact", "an_emulator_to_kill", "--ignored", "--nocapture"])
        .env("EC2_DIRECTORY", directory)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let line = lines
        .by_ref()
        .map_while(Result::ok)
        .find_map(|line| line.strip_prefix("listening ").map(str::to_owned));
    let (endpoint, machines) = (line.unwrap(), Machines(directory.to_owned()));
    Emulator { child, endpoint, _output: lines, _machines: machines }
}

/// Makes one signed call that the driver has none for, and returns the answer with its status.
pub(crate) async fn call(endpoint: &str, form: &[(&str, &str)]) -> (u16, String) {
    let mut body = url::form_urlencoded::Serializer::new(String::new());
    body.append_pair("Version", "2016-11-15").extend_pairs(form);
    let body = body.finish();
    let identity = Credentials::new("AKIDLAUNCHER", "hush", None, None, "test").into();
    let parameters = v4::SigningParams::builder()
        .identity(&identity)
        .region("us-east-1")
        .name("ec2")
        .time(SystemTime::now())
        .settings(SigningSettings::default())
        .build()
        .unwrap()
        .into();
    let kind = ("content-type", "application/x-www-form-urlencoded");
    let signable = SignableBody::Bytes(body.as_bytes());
    let signable = SignableRequest::new("POST", endpoint, std::iter::once(kind), signable).unwrap();
    let (instructions, _) = sign(signable, &parameters).unwrap().into_parts();
    let mut request = reqwest::Client::new().post(endpoint).header(kind.0, kind.1);
    for (name, value) in instructions.headers() {
        request = request.header(name, value);
    }
    let answer = request.body(body).send().await.unwrap();
    (answer.status().as_u16(), answer.text().await.unwrap())
}
