//! EC2 through its front: signed calls by the real driver, machines one can log in to, and a killed
//! emulator.
#![allow(clippy::unwrap_used, missing_docs, reason = "a test may panic")]

use aws_credential_types::Credentials;
use aws_credential_types::provider::SharedCredentialsProvider;
use sluice_cloud::{
    CloudDriver, CloudError, CloudImageFilter, Ec2Driver, Ec2Settings, Instance, LaunchSpec,
    LoginKey, SshEndpoint, TagFilter, ssh, tags, user_data,
};
use sluice_emulator::data::{
    DataOptions as FrontOptions, Front, Principal, SecretAccessKey, serve,
};
use sluice_emulator::ec2::{Boot, Ec2, Ec2Options, LaunchFault, end_left};
use sluice_keys::SshKeyPair;
use sluice_pool::{CheckFact, InstanceId, InstanceState};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt, chown};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tempfile::TempDir;

const MINUTE: Duration = Duration::from_secs(60);

/// An emulator in this process and a driver that calls it.
struct World {
    ec2: Ec2,
    driver: Ec2Driver,
    _machines: Machines,
    directory: Arc<TempDir>,
    pair: SshKeyPair,
    server: tokio::task::JoinHandle<()>,
}

/// Machines below a directory, which a test that fails does not leave behind. Dropped before the
/// directory is.
struct Machines(PathBuf);

impl Drop for Machines {
    fn drop(&mut self) {
        end_left(&self.0.join("ec2"));
    }
}

async fn start(
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

fn driver(endpoint: &str, secret: &str) -> Ec2Driver {
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
    async fn new(limit: u32) -> Self {
        Self::with(Ec2Options { instance_limit: limit, ..Ec2Options::new("") }).await
    }

    async fn with(options: Ec2Options) -> Self {
        let directory = Arc::new(tempfile::tempdir().unwrap());
        let pair = SshKeyPair::generate("test").unwrap();
        let (ec2, endpoint, server) = start(directory.path(), options).await;
        let machines = Machines(directory.path().to_owned());
        Self {
            ec2,
            driver: driver(&endpoint, "hush"),
            _machines: machines,
            directory,
            pair,
            server,
        }
    }

    fn spec(&self, token: &str) -> LaunchSpec {
        spec(token, self.pair.public_line())
    }

    async fn check(&self, instance: &Instance) -> CheckFact {
        let key = LoginKey::from_openssh(self.pair.private().expose_text().unwrap()).unwrap();
        until_checked(instance, &key).await
    }

    /// Runs a command on a machine with OpenSSH's own client.
    fn ssh(&self, instance: &Instance, command: &str) -> String {
        let login = format!("zuul@{}", instance.private_ip.as_ref().unwrap());
        let port = target(instance).port.to_string();
        ssh_with(self.directory.path(), &self.pair, &["-p", &port, &login, command])
    }

    async fn list(&self) -> Vec<Instance> {
        self.driver.describe(None, &filter()).await.unwrap()
    }

    async fn until(&self, id: &InstanceId, state: InstanceState) -> Instance {
        until_state(&self.driver, id, state).await
    }

    async fn end(self) {
        self.server.abort();
        self.ec2.shut_down().await;
    }
}

fn ssh_with(directory: &Path, pair: &SshKeyPair, arguments: &[&str]) -> String {
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

fn spec(token: &str, key: &str) -> LaunchSpec {
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

fn filter() -> TagFilter {
    TagFilter { key: tags::PROVIDER.into(), value: "cloud".into() }
}

async fn until_state(driver: &Ec2Driver, id: &InstanceId, state: InstanceState) -> Instance {
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
fn target(instance: &Instance) -> SshEndpoint {
    SshEndpoint {
        address: instance.private_ip.clone().unwrap(),
        port: instance.fact_in(None).machine.ssh_port.unwrap_or(22),
    }
}

async fn until_checked(instance: &Instance, key: &LoginKey) -> CheckFact {
    until_checked_as("zuul", instance, key).await
}

async fn until_checked_as(user: &str, instance: &Instance, key: &LoginKey) -> CheckFact {
    let end = Instant::now() + MINUTE;
    loop {
        match ssh::check(&target(instance), user, key, &[], Duration::from_secs(10)).await {
            CheckFact::NotYet(_) if Instant::now() < end => tokio::task::yield_now().await,
            fact => return fact,
        }
    }
}

/// L2.6, Z1.8: launched, booted, checked, used, terminated.
#[tokio::test(flavor = "multi_thread")]
async fn a_machine_boots_shows_its_host_keys_lets_us_in_and_ends() {
    let world = World::new(8).await;
    let launched = world.driver.launch(&world.spec("one")).await.unwrap();
    let running = world.until(&launched.id, InstanceState::Running).await;
    assert_eq!(
        (running.az.as_deref(), running.fact_in(None).node),
        (Some("us-east-1b"), Some("one".into()))
    );
    let CheckFact::Passed { host_keys } = world.check(&running).await else { panic!("no login") };
    let kinds: Vec<_> = host_keys.iter().map(|key| key.split(' ').next().unwrap()).collect();
    assert_eq!(kinds, ["ssh-ed25519", "ecdsa-sha2-nistp256"]);
    assert_eq!(
        world
            .ssh(&running, "pwd; echo mine > /tmp/x; cat /tmp/x; whoami; touch /usr/x || echo kept")
            .trim(),
        "/home/zuul\nmine\nzuul\nkept"
    );
    world.driver.terminate(None, std::slice::from_ref(&running.id)).await.unwrap();
    world.until(&running.id, InstanceState::Terminated).await;
    assert!(
        ssh::scan_host_keys(&target(&running), Duration::from_secs(5)).await.is_err(),
        "the server is gone"
    );
    world
        .driver
        .terminate(None, &[running.id.clone(), InstanceId("i-unknown".into())])
        .await
        .unwrap();
    world.end().await;
}

/// Two machines do not see each other's files or processes.
#[tokio::test(flavor = "multi_thread")]
async fn machines_do_not_see_each_other() {
    let world = World::new(8).await;
    let one = world.driver.launch(&world.spec("one")).await.unwrap();
    let two = world.driver.launch(&world.spec("two")).await.unwrap();
    let (one, two) = (
        world.until(&one.id, InstanceState::Running).await,
        world.until(&two.id, InstanceState::Running).await,
    );
    let (CheckFact::Passed { host_keys: first }, CheckFact::Passed { host_keys: second }) =
        (world.check(&one).await, world.check(&two).await)
    else {
        panic!("no login")
    };
    assert!(first.iter().all(|key| !second.contains(key)));
    world.ssh(&one, "touch /tmp/mark ~/mark; nohup sleep 600 >/dev/null 2>&1 &");
    assert_eq!(
        world.ssh(&two, "ls /tmp ~; ps ax | grep -c '[s]leep 600'").trim(),
        "/home/zuul:\n\n/tmp:\n0"
    );
    world.end().await;
}

/// C4: most machines have an SSH server of their own on every address; nodes boot beside it.
#[tokio::test(flavor = "multi_thread")]
async fn a_machine_boots_on_another_port_where_its_own_is_taken_on_every_address() {
    let everywhere = std::net::TcpListener::bind(("0.0.0.0", 0)).unwrap();
    let port = everywhere.local_addr().unwrap().port();
    let world = World::with(Ec2Options { ssh_port: port, ..Ec2Options::new("") }).await;
    let launched = world.driver.launch(&world.spec("one")).await.unwrap();
    let running = world.until(&launched.id, InstanceState::Running).await;
    assert_ne!(target(&running).port, port);
    assert!(matches!(world.check(&running).await, CheckFact::Passed { .. }));
    assert_eq!(world.ssh(&running, "whoami").trim(), "zuul");
    world.end().await;
}

/// Of calls with one token, in whatever order and at once, all name the same machine.
#[tokio::test(flavor = "multi_thread")]
async fn a_token_launches_once_however_often_it_is_called() {
    let world = World::new(8).await;
    let spec = world.spec("race");
    let calls = (0..16).map(|_| {
        let (driver, spec) = (world.driver.clone(), spec.clone());
        tokio::spawn(async move { driver.launch(&spec).await.unwrap().id })
    });
    let mut ids = Vec::new();
    for call in calls.collect::<Vec<_>>() {
        ids.push(call.await.unwrap());
    }
    ids.dedup();
    assert_eq!((ids.len(), world.list().await.len()), (1, 1));
    let other = LaunchSpec { instance_type: "t3.large".into(), ..spec };
    assert!(matches!(world.driver.launch(&other).await, Err(CloudError::TokenTaken { .. })));
    world.end().await;
}

/// Z1.5: the cloud has a limit of its own, and other refusals.
#[tokio::test(flavor = "multi_thread")]
async fn refusals_have_distinct_errors() {
    let world = World::new(1).await;
    world.ec2.add_fault(LaunchFault::Refused { code: "InsufficientInstanceCapacity".into() });
    assert!(matches!(
        world.driver.launch(&world.spec("a")).await,
        Err(CloudError::NoCapacity { .. })
    ));
    world.ec2.add_fault(LaunchFault::Boots(Boot::Never));
    let silent = world.driver.launch(&world.spec("a")).await.unwrap();
    assert!(matches!(world.driver.launch(&world.spec("b")).await, Err(CloudError::Quota { .. })));
    let unknown = LaunchSpec { image_id: "ami-0".into(), ..world.spec("c") };
    assert!(matches!(world.driver.launch(&unknown).await, Err(CloudError::Permanent { .. })));
    let silent = world.until(&silent.id, InstanceState::Running).await;
    assert!(
        ssh::scan_host_keys(&target(&silent), Duration::from_secs(5)).await.is_err(),
        "it never boots"
    );
    world
        .driver
        .create_tags(
            std::slice::from_ref(&silent.id.0),
            &BTreeMap::from([("more".into(), "<&>".into())]),
        )
        .await
        .unwrap();
    assert_eq!(world.list().await[0].tags["more"], "<&>");
    let images = world
        .driver
        .images(&CloudImageFilter { names: vec!["debian-*".into()], ..CloudImageFilter::default() })
        .await
        .unwrap();
    assert_eq!(images[0].id, "ami-debian12");
    world.driver.terminate(None, std::slice::from_ref(&silent.id)).await.unwrap();
    world.until(&silent.id, InstanceState::Terminated).await;
    let mute = LaunchSpec { image_id: "ami-silent".into(), ..world.spec("d") };
    let mute = world.driver.launch(&mute).await.unwrap();
    let mute = world.until(&mute.id, InstanceState::Running).await;
    let target = SshEndpoint { address: mute.private_ip.unwrap(), port: 22 };
    assert!(
        ssh::scan_host_keys(&target, Duration::from_secs(5)).await.is_err(),
        "an image whose machines never answer"
    );
    world.end().await;
}

/// A wrong secret gets nothing done.
#[tokio::test(flavor = "multi_thread")]
async fn a_call_with_a_wrong_signature_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let (ec2, endpoint, server) = start(directory.path(), Ec2Options::new("")).await;
    let stranger = driver(&endpoint, "guess");
    assert!(matches!(stranger.launch(&spec("x", "key")).await, Err(CloudError::Unknown { .. })));
    assert_eq!(driver(&endpoint, "hush").describe(None, &filter()).await.unwrap(), []);
    server.abort();
    ec2.shut_down().await;
}

/// Not a test: the emulator as a process of its own, for the next one.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "started by another test"]
async fn an_emulator_to_kill() {
    let Ok(directory) = std::env::var("EC2_DIRECTORY") else {
        return;
    };
    let (_ec2, endpoint, server) = start(Path::new(&directory), Ec2Options::new("")).await;
    println!("\nlistening {endpoint}");
    server.await.unwrap();
}

/// An emulator as a process of its own. Dropped, it is killed, and its machines with it.
struct Emulator {
    child: Child,
    endpoint: String,
    _machines: Machines,
}

impl Emulator {
    /// Kills it and nothing else.
    fn kill(&mut self) {
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

fn emulator(directory: &Path) -> Emulator {
    emulator_of(&mut Command::new(std::env::current_exe().unwrap()), directory)
}

fn emulator_of(command: &mut Command, directory: &Path) -> Emulator {
    let mut child = command
        .args(["--exact", "an_emulator_to_kill", "--ignored", "--nocapture"])
        .env("EC2_DIRECTORY", directory)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let line = lines
        .map_while(Result::ok)
        .find_map(|line| line.strip_prefix("listening ").map(str::to_owned));
    Emulator { child, endpoint: line.unwrap(), _machines: Machines(directory.to_owned()) }
}

/// C4: machines work without root, which alone may use ports below 1024 and change the user.
#[tokio::test(flavor = "multi_thread")]
async fn machines_work_without_root() {
    const UNPRIVILEGED: u32 = 65_534;
    let directory = tempfile::tempdir().unwrap();
    let (program, state) = (directory.path().join("emulator"), directory.path().join("state"));
    std::fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
    std::fs::create_dir(&state).unwrap();
    let mut command = Command::new(&program);
    command.current_dir(directory.path());
    if std::fs::metadata("/proc/self").unwrap().uid() == 0 {
        std::fs::set_permissions(directory.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
        chown(&state, Some(UNPRIVILEGED), Some(UNPRIVILEGED)).unwrap();
        command.uid(UNPRIVILEGED).gid(UNPRIVILEGED);
    }
    let emulator = emulator_of(&mut command, &state);
    let pair = SshKeyPair::generate("test").unwrap();
    let key = LoginKey::from_openssh(pair.private().expose_text().unwrap()).unwrap();
    let driver = driver(&emulator.endpoint, "hush");
    for user in ["root", "zuul"] {
        let user_data = user_data::cloud_config(user, &[pair.public_line().to_owned()]);
        let launched = driver.launch(&LaunchSpec { user_data, ..spec(user, "") }).await.unwrap();
        let running = until_state(&driver, &launched.id, InstanceState::Running).await;
        assert!(target(&running).port > 1_023);
        let fact = until_checked_as(user, &running, &key).await;
        assert!(matches!(fact, CheckFact::Passed { .. }), "{user}: {fact:?}");
        let login = format!("{user}@{}", running.private_ip.as_ref().unwrap());
        let port = target(&running).port.to_string();
        let said = ssh_with(directory.path(), &pair, &["-tt", "-p", &port, &login, "tty"]);
        assert!(said.contains("/dev/pts/"), "{user} is given no terminal: {said}");
        driver.terminate(None, std::slice::from_ref(&launched.id)).await.unwrap();
        until_state(&driver, &launched.id, InstanceState::Terminated).await;
    }
}

/// Killing the emulator at any moment loses nothing: its machines go on and are known again.
#[tokio::test(flavor = "multi_thread")]
async fn machines_and_tokens_outlive_a_killed_emulator() {
    let directory = tempfile::tempdir().unwrap();
    let pair = SshKeyPair::generate("test").unwrap();
    let key = LoginKey::from_openssh(pair.private().expose_text().unwrap()).unwrap();
    let mut first = emulator(directory.path());
    let driver_of_first = driver(&first.endpoint, "hush");
    let one = driver_of_first.launch(&spec("one", pair.public_line())).await.unwrap();
    let running = until_state(&driver_of_first, &one.id, InstanceState::Running).await;
    let before = until_checked(&running, &key).await;
    let two = driver_of_first.launch(&spec("two", pair.public_line())).await.unwrap();
    first.kill();

    let second = emulator(directory.path());
    let again = driver(&second.endpoint, "hush");
    assert_eq!(again.launch(&spec("one", pair.public_line())).await.unwrap().id, one.id);
    assert_eq!(
        until_checked(&running, &key).await,
        before,
        "the same machine with the same host keys"
    );
    let other = until_state(&again, &two.id, InstanceState::Running).await;
    assert!(
        matches!(until_checked(&other, &key).await, CheckFact::Passed { .. }),
        "one that was killed while starting boots"
    );
    again.terminate(None, &[one.id.clone(), two.id.clone()]).await.unwrap();
    until_state(&again, &one.id, InstanceState::Terminated).await;
    until_state(&again, &two.id, InstanceState::Terminated).await;
    assert!(
        ssh::scan_host_keys(&target(&running), Duration::from_secs(5)).await.is_err(),
        "an adopted server is ended too"
    );
}
