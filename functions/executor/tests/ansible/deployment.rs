//! Deployment jobs: they log in on a host outside the node pool, with the SSH keys of the project
//! and the tenant (Z8.1, Z8.2).

use crate::support::*;
use sluice_executor::secrets::ProjectKeys;
use sluice_executor::{AttemptScope, BuildSshKey};
use sluice_keys::{ProjectKey, fingerprint_like};
use sluice_memory::World;
use sluice_model::Timestamp;
use sluice_model::build::BuildResult::*;
use sluice_model::job::{ExternalHost, Fingerprint};
use sluice_records::project_key::KeyPairPem;
use sluice_records::ssh_key::{self, SshKeyOwner};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock};
use tempfile::TempDir;

const DEPLOY: &str = r#"
- hosts: all
  gather_facts: false
  tasks:
    - shell: echo "deployed on {{ inventory_hostname }} by $(cut -d' ' -f2-3 "$SSH_USER_AUTH")"
"#;

/// The keys of a project and of a tenant, which all tests share.
fn pairs() -> &'static [ProjectKey; 2] {
    static PAIRS: OnceLock<[ProjectKey; 2]> = OnceLock::new();
    PAIRS.get_or_init(|| [(); 2].map(|()| ProjectKey::generate_for_signatures().unwrap()))
}

/// Returns a public key as in `authorized_keys`.
fn line(pair: &ProjectKey) -> String {
    pair.public().to_openssh().unwrap()
}

/// A host outside of the pool that accepts the given keys.
struct Host {
    node: Node,
    _keys: TempDir,
}

impl Host {
    fn accepting(keys: &[&ProjectKey]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let file: PathBuf = directory.path().join("accepted");
        let lines: Vec<String> = keys.iter().map(|pair| line(pair)).collect();
        std::fs::write(file.with_extension("pub"), lines.join("\n")).unwrap();
        Self { node: Node::start("deployed", &file), _keys: directory }
    }

    /// Returns the host as a job names it, with the fingerprint of its key in the form of `like`.
    fn of_job(&self, like: &Fingerprint) -> ExternalHost {
        let access = &self.node.access;
        let key = access.host_keys[0].split(' ').nth(1).unwrap();
        ExternalHost {
            name: format!("{}@{}:{}", access.username, access.interface_ip, access.ssh_port),
            fingerprint: fingerprint_like(like, key).unwrap(),
        }
    }
}

fn md5() -> Fingerprint {
    Fingerprint::Md5("00:".repeat(15) + "00")
}

fn sha256() -> Fingerprint {
    Fingerprint::Sha256("A".repeat(43))
}

/// Returns a build of a deployment job with the keys of these owners.
fn deployment(host: ExternalHost, keys: &[(&str, &ProjectKey)]) -> Story {
    let mut story = Story::new(&[(PROJECT, "deploy.yaml", DEPLOY)]);
    // The hosts of the tests are on this machine, which jobs may not name otherwise.
    let place = host.name.split('@').next_back().unwrap().parse().unwrap();
    story.setup.push(Box::new(move |settings| settings.network.allowed.push(place)));
    story.job.run_time.host = Some(host);
    story.job.run = vec![untrusted("deploy")];
    for (owner, pair) in keys {
        let private = Arc::new(pair.to_pem().unwrap());
        story.secrets.add_ssh_key(BuildSshKey { owner: (*owner).to_owned(), private });
    }
    story
}

/// Z8.1, Z8.2: a job runs on its host, known by either form of the fingerprint and logged in on
/// with the key of the project or of the tenant. If the host accepts both, the project's is used.
#[tokio::test]
async fn a_deployment_job_logs_in_with_the_projects_key_first_and_then_the_tenants() {
    let [project, tenant] = pairs();
    let keys = [("project org/project", project), ("tenant one", tenant)];
    for (like, accepted, used) in [
        (md5(), &[project, tenant][..], project),
        (sha256(), &[tenant], tenant),
        (sha256(), &[project], project),
    ] {
        let host = Host::accepting(accepted);
        let address = host.node.access.interface_ip.clone();
        let outcome = deployment(host.of_job(&like), &keys).run().await;
        assert_eq!(outcome.ended.result, Success, "{}", outcome.log);
        let expected = format!("deployed on {address} by {}", line(used));
        assert!(outcome.log.contains(&expected), "{}", outcome.log);
        assert!(
            outcome.log.contains("SSH keys: project org/project, tenant one"),
            "{}",
            outcome.log
        );
    }
}

/// Z8.1: a host with another key is refused before anything runs, with both fingerprints.
#[tokio::test]
async fn a_host_with_another_key_is_refused_and_both_fingerprints_are_named() {
    let [project, _] = pairs();
    for like in [md5(), sha256()] {
        let (host, other) = (Host::accepting(&[project]), Host::accepting(&[project]));
        let (own, expected) = (host.of_job(&like), other.of_job(&like).fingerprint);
        let found = own.fingerprint.to_string();
        let named = ExternalHost { fingerprint: expected.clone(), ..own };
        let outcome = deployment(named, &[("project org/project", project)]).run().await;
        assert_eq!(outcome.ended.result, ConfigError, "{}", outcome.log);
        let detail = outcome.ended.detail.clone().unwrap();
        assert!(
            detail.contains(&format!("expected {expected}, found {found} (ssh-ed25519)")),
            "{detail}"
        );
        assert!(!outcome.log.contains("PLAY"), "nothing ran: {}", outcome.log);
    }
}

/// Z8.1, Z7.5: a job may not name the executor's own machine, unless its operator allows it: nothing
/// is connected, and no fingerprint is shown.
#[tokio::test]
async fn a_job_whose_host_is_the_executor_is_refused() {
    let [_, tenant] = pairs();
    let host = Host::accepting(&[tenant]);
    let mut story = deployment(host.of_job(&sha256()), &[("tenant one", tenant)]);
    story.setup.clear();
    let outcome = story.run().await;
    assert_eq!(outcome.ended.result, ConfigError, "{}", outcome.log);
    let detail = outcome.ended.detail.clone().unwrap();
    assert!(detail.contains("loopback addresses of the executor are refused"), "{detail}");
    assert!(!outcome.log.contains("SHA256:"), "{}", outcome.log);
}

/// Z8.1: a host that does not answer is tried again by another attempt; a job whose project and
/// tenant have no keys is not, and its error says what to do.
#[tokio::test]
async fn an_unreachable_host_is_retried_and_a_build_without_keys_is_refused() {
    let [project, _] = pairs();
    let host = Host::accepting(&[project]);
    let named = host.of_job(&sha256());
    let address = format!("{}:{}", host.node.access.interface_ip, host.node.access.ssh_port);
    drop(host);
    let outcome = deployment(named.clone(), &[("project org/project", project)]).run().await;
    assert_eq!(outcome.ended.result, Retry, "{}", outcome.log);
    let detail = outcome.ended.detail.clone().unwrap();
    let refused = format!("no SSH server answered at {address} (connection refused)");
    assert!(detail.contains(&refused), "{detail}");
    let outcome = deployment(named, &[]).run().await;
    assert_eq!(outcome.ended.result, ConfigError, "{}", outcome.log);
    let detail = outcome.ended.detail.clone().unwrap();
    assert!(detail.contains("authorized_keys") && detail.contains("sluice key tenant"), "{detail}");
}

/// Z8.1: a host that boots while its job begins is waited for within the same attempt.
#[tokio::test]
async fn a_host_that_boots_is_waited_for() {
    let [project, _] = pairs();
    let mut host = Host::accepting(&[project]);
    let mut story = deployment(host.of_job(&sha256()), &[("project org/project", project)]);
    story.setup.push(Box::new(|settings| settings.host_wait_seconds = 120));
    host.node.go_down();
    let host = Arc::new(Mutex::new(host));
    let booting = Arc::clone(&host);
    let outcome = story
        .run_with(|meanwhile| {
            tokio::spawn(async move {
                meanwhile.seen.wait_for("it is tried again for 120 seconds").await;
                booting.lock().unwrap().node.come_up();
            });
        })
        .await;
    assert_eq!(outcome.ended.result, Success, "{}", outcome.log);
    assert!(outcome.log.contains("(connection refused); it is tried again"), "{}", outcome.log);
}

/// Z8.2, Z5.3: the key of the project is for reviewed changes. A build before review does not get
/// it from the key store, so the host that accepts only that key refuses its login.
#[tokio::test]
async fn a_build_before_review_cannot_use_the_projects_key() {
    let [project, tenant] = pairs();
    let world = World::new(1, 0, Timestamp(1_800_000_000_000));
    let (connection, name) = ("forge".into(), PROJECT.into());
    for (owner, pair) in [
        (SshKeyOwner::Project(&connection, &name), project),
        (SshKeyOwner::Tenant(&"one".into()), tenant),
    ] {
        let (private, public) = (pair.to_pem().unwrap(), pair.public().to_pem().unwrap());
        let pem = KeyPairPem { private: private.expose(), public: &public };
        ssh_key::store(&world.ports(), owner, pem).await.unwrap();
    }
    let host = Host::accepting(&[project]);
    for (post_review, expected, owners) in [
        (false, Retry, &["tenant one"][..]),
        (true, Success, &["project forge.test/org/project", "tenant one"]),
    ] {
        let mut story = deployment(host.of_job(&sha256()), &[]);
        story.order.post_review = post_review;
        let keys = ProjectKeys::new(world.ports());
        story.secrets =
            keys.open_for_build(&story.order, &story.job, "https://ci.test").await.unwrap();
        let found: Vec<&str> =
            story.secrets.ssh_keys().iter().map(|key| key.owner.as_str()).collect();
        assert_eq!(found, owners);
        let outcome = story.run().await;
        assert_eq!(outcome.ended.result, expected, "{}", outcome.log);
        assert_eq!(outcome.log.contains("deployed on"), post_review, "{}", outcome.log);
    }
}

/// Looks for parts of private keys wherever the playbook can read, and shows what the agent has.
const LOOK: &str = r#"
- hosts: localhost
  gather_facts: false
  tasks:
    - shell: >-
        grep -rlsI --exclude-dir=proc --exclude-dir=sys --exclude-dir=usr --exclude-dir=opt PARTS /
        || echo found none
    - command: ssh-add -L
    - shell: echo agent $SSH_AGENT_PID
"#;

/// Returns an argument of grep that finds a line of a private key in PEM, and not itself.
fn part(pem: &str) -> String {
    let line = pem.lines().nth(3).unwrap();
    format!("-e '[{}]{}'", &line[..1], &line[1..])
}

/// Z8.2, Z7.5: the keys of a build are in its agent and in no file that a playbook can read; nodes'
/// key comes first. The agent ends with the build.
#[tokio::test]
async fn the_keys_of_a_build_are_in_its_agent_and_in_no_file_of_the_sandbox() {
    let [project, tenant] = pairs();
    let mut story = Story::new(&[]).with_nodes(&["one"], &[]);
    let mut parts = vec![part(&std::fs::read_to_string(&story.key).unwrap())];
    for (owner, pair) in [("project org/project", project), ("tenant one", tenant)] {
        let private = Arc::new(pair.to_pem().unwrap());
        parts.push(part(private.expose_text().unwrap()));
        story.secrets.add_ssh_key(BuildSshKey { owner: owner.to_owned(), private });
    }
    story.put(&[("look.yaml", &LOOK.replace("PARTS", &parts.join(" ")))]);
    story.job.run = vec![untrusted("look")];
    let outcome = story.run().await;
    assert_eq!(outcome.ended.result, Success, "{}", outcome.log);
    assert!(outcome.log.contains("found none"), "{}", outcome.log);
    let at = |text: &str| outcome.log.find(text).unwrap_or_else(|| panic!("{}", outcome.log));
    let (project, tenant) = (line(project), line(tenant));
    assert!(at("ssh-ed25519 AAAA") < at(&project) && at(&project) < at(&tenant));
    let agent = outcome.log.split("agent ").nth(1).unwrap().split_whitespace().next().unwrap();
    assert!(agent.parse::<u32>().is_ok(), "{agent}");
    let process = Path::new("/proc").join(agent).join("cmdline");
    // A process that has ended has no command line any more, also while it is not yet reaped.
    let is_running = || std::fs::read(&process).is_ok_and(|line| !line.is_empty());
    let ended = async {
        while is_running() {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    };
    let limit = std::time::Duration::from_secs(60);
    tokio::time::timeout(limit, ended).await.expect("the agent has ended");
}

/// Z8.2: a job without nodes has the agent too, as in Zuul, and no build has one without keys.
#[tokio::test]
async fn a_job_without_nodes_has_an_agent_if_there_are_keys() {
    let [_, tenant] = pairs();
    let show = "- hosts: localhost\n  gather_facts: false\n  tasks:\n    - shell: ssh-add -L || echo no agent\n";
    for keys in [vec![("tenant one", tenant)], Vec::new()] {
        let mut story = Story::new(&[(PROJECT, "show.yaml", show)]);
        for (owner, pair) in &keys {
            let private = Arc::new(pair.to_pem().unwrap());
            story.secrets.add_ssh_key(BuildSshKey { owner: (*owner).to_owned(), private });
        }
        story.job.run = vec![untrusted("show")];
        let outcome = story.run().await;
        assert_eq!(outcome.ended.result, Success, "{}", outcome.log);
        assert_eq!(outcome.log.contains(&line(tenant)), !keys.is_empty(), "{}", outcome.log);
        assert_eq!(outcome.log.contains("no agent"), keys.is_empty(), "{}", outcome.log);
    }
}

/// Z7.3, Z8.1: other sessions on the host of a deployment job may be anyone's. So nothing is ended
/// there to collect the logs of a lost build, and no playbook runs.
#[tokio::test]
async fn sessions_on_the_host_of_a_lost_deployment_survive_and_no_logs_are_collected() {
    let [project, _] = pairs();
    let host = Host::accepting(&[project]);
    let count = "- hosts: all\n  gather_facts: false\n  tasks:\n    - raw: 'while echo tick >> ~/ticks; do sleep 0.1; done'\n";
    let story = |scope: AttemptScope| {
        let mut story = deployment(host.of_job(&sha256()), &[("project org/project", project)]);
        story.put(&[("count.yaml", count), ("deploy.yaml", DEPLOY)]);
        (story.scope, story.job.run) = (scope, vec![untrusted("count")]);
        story.job.post_run = vec![untrusted("deploy")];
        story
    };
    let ticks = host.node.home().join("ticks");
    let counted = async |more_than: u64| {
        let count = || std::fs::metadata(&ticks).map_or(0, |ticks| ticks.len());
        let counts = async {
            while count() <= more_than {
                tokio::time::sleep(std::time::Duration::from_millis(20)).await;
            }
        };
        let counts = tokio::time::timeout(std::time::Duration::from_secs(60), counts).await;
        counts.expect("it counts");
        count()
    };
    let (sender, begun) = tokio::sync::oneshot::channel();
    let begin = move |meanwhile: Meanwhile| drop(sender.send(meanwhile.stopper));
    let other = tokio::spawn(story(AttemptScope::Whole).run_with(begin));
    let stopper = begun.await.unwrap();
    counted(0).await;
    let collected = story(AttemptScope::CollectLogs).run().await;
    assert_eq!(collected.ended.result, Retry, "{}", collected.log);
    assert!(!collected.log.contains("PLAY"), "nothing ran: {}", collected.log);
    let seen = std::fs::metadata(&ticks).unwrap().len();
    counted(seen).await;
    stopper.stop("the test is over");
    assert_eq!(other.await.unwrap().ended.result, Aborted);
}
