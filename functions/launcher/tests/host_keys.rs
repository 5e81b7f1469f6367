//! Checks of static hosts, each of which is a real sshd with an Ed25519 and an RSA host key.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

use sluice_cloud::LoginKey;
use sluice_launcher::{Checks, SshChecks};
use sluice_model::wakeup::Precedence;
use sluice_model::{QueueKey, Timestamp};
use sluice_pool::{
    CheckFact, NodeRequest, PoolAction, PoolFacts, PoolNode, ProviderHead, ProviderLimits,
    RequestRow, Snapshot, StaticHost, plan,
};
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use tempfile::TempDir;

/// An sshd on a loopback address; ends when dropped.
struct Host {
    child: Child,
    directory: TempDir,
    port: u16,
}

impl Host {
    /// Starts a host that accepts the login key that it makes, and waits until it listens.
    fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        for (kind, name) in [("ed25519", "ed25519"), ("rsa", "rsa"), ("ed25519", "login")] {
            keygen(kind, &path(name));
        }
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let configuration = format!(
            "HostKey {}\nHostKey {}\nAuthorizedKeysFile {}.pub\nListenAddress 127.0.0.1:{port}\n\
             PidFile none\nUsePAM no\nStrictModes no\nPasswordAuthentication no\n\
             PermitRootLogin prohibit-password\n",
            path("ed25519").display(),
            path("rsa").display(),
            path("login").display(),
        );
        std::fs::write(path("sshd_config"), configuration).unwrap();
        let mut child = Command::new("/usr/sbin/sshd")
            .args(["-D", "-e", "-f"])
            .arg(path("sshd_config"))
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        while !lines.next().expect("sshd ended").unwrap().contains("Server listening") {}
        std::thread::spawn(move || lines.for_each(drop));
        Self { child, directory, port }
    }

    /// Returns the public key in the file of this name, with its comment.
    fn public(&self, name: &str) -> String {
        let file = self.directory.path().join(format!("{name}.pub"));
        std::fs::read_to_string(file).unwrap().trim().to_owned()
    }

    /// Returns the fingerprint of the public key in the file of this name, as OpenSSH has it.
    fn fingerprint(&self, name: &str) -> String {
        let file = self.directory.path().join(format!("{name}.pub"));
        let output = Command::new("ssh-keygen").arg("-lf").arg(file).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        text.split_whitespace().nth(1).expect("a fingerprint").to_owned()
    }

    /// Checks a node that lends this host, which has these configured host keys.
    async fn check(&self, host_keys: &[&str]) -> CheckFact {
        let private = std::fs::read_to_string(self.directory.path().join("login")).unwrap();
        let checks = SshChecks::new(LoginKey::from_openssh(&private).unwrap());
        checks.check(&self.lent(host_keys)).await
    }

    /// Returns the node that a provider lends for a request, with these configured host keys.
    fn lent(&self, host_keys: &[&str]) -> PoolNode {
        let user = Command::new("id").arg("-un").output().unwrap().stdout;
        let host = StaticHost {
            name: "127.0.0.1".into(),
            labels: vec!["metal".into()],
            region: None,
            address: "127.0.0.1".into(),
            ssh_port: self.port,
            username: String::from_utf8(user).unwrap().trim().to_owned(),
            host_keys: host_keys.iter().map(|key| (*key).to_owned()).collect(),
            python_path: None,
            max_parallel: 1,
        };
        let static_hosts = [("demo".into(), Arc::new(vec![host]))].into();
        let limits = ProviderLimits { static_hosts, ..ProviderLimits::retired("rack".into()) };
        let request = NodeRequest::new(
            RequestRow::new(200, 0, 1),
            "build".into(),
            QueueKey { tenant: "demo".into(), pipeline: "check".into(), queue: "main".into() },
            "test",
            Precedence::Normal,
            vec!["metal".into()],
            Timestamp(0),
        );
        let snapshot = Snapshot {
            head: ProviderHead::new("rack".into()),
            limits,
            requests: vec![request],
            nodes: Vec::new(),
            facts: PoolFacts::default(),
        };
        let mut actions = plan(&snapshot, Timestamp(1)).actions;
        match actions.pop() {
            Some(PoolAction::Check(node)) => *node,
            other => panic!("{other:?}"),
        }
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn keygen(kind: &str, path: &Path) {
    let mut command = Command::new("ssh-keygen");
    command.args(["-q", "-t", kind, "-N", "", "-C", "a comment", "-f"]).arg(path);
    assert!(command.status().unwrap().success());
}

/// Returns a public key without its comment.
fn plain(key: &str) -> String {
    key.split_whitespace().take(2).collect::<Vec<_>>().join(" ")
}

/// Z1.10, L3.1: a host is checked against its configured keys only, of whatever type they are. The
/// build gets these keys as its known hosts.
#[tokio::test(flavor = "multi_thread")]
async fn a_static_host_passes_with_any_configured_key_that_it_has() {
    let host = Host::start();
    let (ed25519, rsa) = (host.public("ed25519"), host.public("rsa"));
    let passed = |keys: &[&str]| CheckFact::Passed {
        host_keys: keys.iter().map(|key| plain(key)).collect(),
    };
    assert_eq!(host.check(&[&ed25519]).await, passed(&[&ed25519]));
    assert_eq!(host.check(&[&rsa]).await, passed(&[&rsa]), "not its preferred key");
    assert_eq!(host.check(&[&rsa, &ed25519]).await, passed(&[&rsa, &ed25519]));
    assert_eq!(host.check(&[]).await, passed(&[&ed25519, &rsa]), "it has no configured key");
}

/// Z1.10, L3.1: a host that shows none of its configured keys is refused, and the reason says which
/// key it shows.
#[tokio::test(flavor = "multi_thread")]
async fn a_static_host_that_shows_another_key_is_refused_with_its_fingerprint() {
    let host = Host::start();
    let other = Host::start();
    let refused = async |key: &str| match host.check(&[key]).await {
        CheckFact::Failed(why) => why,
        fact => panic!("{fact:?}"),
    };
    for kind in ["ed25519", "rsa"] {
        let why = refused(&other.public(kind)).await;
        assert!(why.contains(&host.fingerprint(kind)), "{kind}: {why}");
        assert!(why.contains(&format!("127.0.0.1:{}", host.port)), "{why}");
        assert!(why.contains("`host-key`"), "{why}");
    }
    let ecdsa = host.directory.path().join("ecdsa");
    keygen("ecdsa", &ecdsa);
    let why = refused(&host.public("ecdsa")).await;
    for kind in ["ed25519", "rsa"] {
        assert!(why.contains(&host.fingerprint(kind)), "it has no key of this type: {why}");
    }
    let why = refused("fake-host-key").await;
    assert!(why.contains("`fake-host-key`") && why.contains("OpenSSH's format"), "{why}");
}
