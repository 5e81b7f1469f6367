//! Roles of zuul-jobs, unmodified, each in a real build on machines with a root of their own
//! (Z7.1, Z7.7). `SLUICE_ZUUL_JOBS` names a copy of zuul-jobs; without it nothing is run.
//!
//! Each directory below `tests/ansible/zuul_jobs` is a build, which runs with each version of
//! Ansible: `build.yaml` says which roles it shows, on which nodes and with which variables;
//! `pre.yaml` and `post.yaml` are playbooks of the config project, `run.yaml` one of the project
//! under test, with the files in `project/`. `not_run.yaml` lists the roles that no build shows.

use crate::support::*;
use aws_credential_types::Credentials;
use aws_credential_types::provider::SharedCredentialsProvider;
use futures::StreamExt;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use sluice_cloud::{
    CloudDriver, Ec2Driver, Ec2Settings, Instance, LaunchSpec, LoginKey, SshEndpoint, TagFilter,
    ssh, tags, user_data,
};
use sluice_emulator::data::{DataOptions, Front, Principal, SecretAccessKey, serve};
use sluice_emulator::ec2::{Ec2, Ec2Options, remove_left};
use sluice_model::build::BuildResult;
use sluice_model::job::ANSIBLE_VERSIONS;
use sluice_model::node::NodeAccess;
use sluice_pool::{CheckFact, InstanceState};
use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// The variable that names a copy of zuul-jobs.
const COPY: &str = "SLUICE_ZUUL_JOBS";
/// The variable that names the only builds to run.
const ONLY: &str = "SLUICE_ZUUL_JOBS_ONLY";
/// The machines of at most so many builds run at once.
const BUILDS_AT_ONCE: usize = 4;
/// The limit for a machine against hanging.
const MACHINE_SECONDS: u64 = 60;
/// The limit for a build, in seconds.
const BUILD_SECONDS: u64 = 900;
/// Settings of package clients that nodes take from this machine, where it has them, as a site
/// gives its nodes a mirror; those of apt are in the image.
const PACKAGE_SETTINGS: [&str; 4] =
    ["PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_TRUSTED_HOST", "NPM_CONFIG_REGISTRY"];
/// The bucket for logs of builds.
const LOG_BUCKET: &str = "logs";
/// The page with the results.
const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/ansible.md");

/// A build that runs roles.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct RoleBuild {
    /// The roles that it shows.
    #[serde(default)]
    roles: Vec<String>,
    /// The roles that it shows to fail, by reason.
    #[serde(default)]
    fails: BTreeMap<String, Vec<String>>,
    /// The names of its nodes.
    #[serde(default)]
    nodes: Vec<String>,
    /// Variables of the job.
    #[serde(default)]
    vars: Map<String, Value>,
}

fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/ansible/zuul_jobs")
}

/// Returns the builds by name.
fn builds() -> BTreeMap<String, RoleBuild> {
    let entries = std::fs::read_dir(directory()).unwrap().map(|entry| entry.unwrap().path());
    let entries = entries.filter(|path| path.is_dir());
    let read = |path: PathBuf| {
        let text = std::fs::read_to_string(path.join("build.yaml")).unwrap();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        let build = serde_yaml::from_str(&text).unwrap_or_else(|why| panic!("{name}: {why}"));
        (name, build)
    };
    entries.map(read).collect()
}

/// Returns the table of the page: for each role its result and the build that shows it. `failed`
/// has the builds that failed, as `(build, version of Ansible)`. Only the roles of `builds` and of
/// `not_run`, which has roles by reason, are in it.
fn table(
    builds: &BTreeMap<String, RoleBuild>,
    not_run: &BTreeMap<String, Vec<String>>,
    failed: &[(String, String)],
) -> String {
    let mut rows = BTreeSet::new();
    for (name, build) in builds {
        let with = failed.iter().filter(|(build, _)| build == name);
        let with: Vec<&str> = with.map(|(_, version)| version.as_str()).collect();
        let mut add = |role: &str, result: &str| {
            let result = match with.as_slice() {
                [] => result.to_owned(),
                versions => format!("FAILED with Ansible {}", versions.join(" and ")),
            };
            rows.insert(format!("| `{role}` | {result} | `{name}` |"));
        };
        build.roles.iter().for_each(|role| add(role, "passed"));
        for (why, roles) in &build.fails {
            roles.iter().for_each(|role| add(role, &format!("fails: {why}")));
        }
    }
    for (why, roles) in not_run {
        rows.extend(roles.iter().map(|role| format!("| `{role}` | not run: {why} | |")));
    }
    rows.iter()
        .fold("| role | result | build |\n|---|---|---|\n".to_owned(), |all, row| all + row + "\n")
}

/// Returns the roles that no build shows, by reason.
fn not_run() -> BTreeMap<String, Vec<String>> {
    let text = std::fs::read_to_string(directory().join("not_run.yaml")).unwrap();
    serde_yaml::from_str(&text).unwrap()
}

/// An emulator of EC2, with machines that have files, packages and a network of their own, and of
/// S3.
struct Cloud {
    ec2: Ec2,
    driver: Ec2Driver,
    endpoint: String,
    directory: TempDir,
}

/// What signs the calls, and uploads logs.
const ACCESS_KEY: (&str, &str) = ("AKIDROLES", "hush");

impl Drop for Cloud {
    fn drop(&mut self) {
        let _ = remove_left(&self.directory.path().join("ec2"));
    }
}

impl Cloud {
    async fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let front = Front::open(&directory.path().join("data"), DataOptions::default()).unwrap();
        let (id, secret) = ACCESS_KEY;
        front.keys().insert(id, Principal::new("launcher"), SecretAccessKey::new(secret));
        front.s3().ensure_bucket(LOG_BUCKET).unwrap();
        let ec2 = Ec2::open(Ec2Options::new(directory.path().join("ec2"))).unwrap();
        front.add("ec2", Arc::new(ec2.clone()));
        let (address, _) = serve(front, 0).await.unwrap();
        let endpoint = format!("http://{address}");
        let settings = Ec2Settings {
            region: "us-east-1".into(),
            endpoint: Some(endpoint.parse().unwrap()),
            connection: "ec2".into(),
            role_arn: None,
        };
        let credentials = Credentials::new(id, secret, None, None, "test");
        let credentials = SharedCredentialsProvider::new(credentials);
        let driver = Ec2Driver::new(settings, credentials).unwrap();
        Self { ec2, driver, endpoint, directory }
    }

    /// Starts a machine whose login `zuul` takes the key in the file `key`.
    async fn machine(&self, build: &str, name: &str, key: &Path) -> NodeAccess {
        let public = std::fs::read_to_string(key.with_extension("pub")).unwrap();
        let token = format!("{build}-{name}");
        let spec = LaunchSpec {
            client_token: token.clone(),
            region: None,
            image_id: "ami-debian12".into(),
            instance_type: "t3.medium".into(),
            az: None,
            subnet: None,
            security_groups: vec!["sg-1".into()],
            user_data: user_data::cloud_config("zuul", &[public.trim().to_owned()]),
            tags: BTreeMap::from([(tags::NODE.into(), token)]),
        };
        let launched = self.driver.launch(&spec).await.unwrap();
        let key = LoginKey::from_openssh(&std::fs::read_to_string(key).unwrap()).unwrap();
        let end = Instant::now() + Duration::from_secs(MACHINE_SECONDS);
        loop {
            assert!(Instant::now() < end, "machine {name} of {build} does not answer");
            tokio::task::yield_now().await;
            let filter = TagFilter { key: tags::NODE.into(), value: spec.client_token.clone() };
            let found = self.driver.describe(None, &filter).await.unwrap();
            let running =
                |one: &&Instance| one.id == launched.id && one.state == InstanceState::Running;
            let Some(machine) = found.iter().find(running) else { continue };
            let target = SshEndpoint {
                address: machine.private_ip.clone().unwrap(),
                port: machine.fact_in(None).machine.ssh_port.unwrap_or(22),
            };
            let fact = ssh::check(&target, "zuul", &key, &[], Duration::from_secs(10)).await;
            let CheckFact::Passed { host_keys } = fact else { continue };
            return NodeAccess {
                id: name.into(),
                names: vec![name.to_owned()],
                label: "debian-bookworm".into(),
                provider: "local".into(),
                region: Some("us-east-1".into()),
                az: machine.az.clone(),
                external_id: Some(machine.id.0.clone()),
                interface_ip: target.address.clone(),
                public_ipv4: Some(target.address.clone()),
                private_ipv4: Some(target.address.clone()),
                public_ipv6: None,
                ssh_port: target.port,
                username: "zuul".to_owned(),
                host_keys,
                python_path: None,
            };
        }
    }
}

/// Runs a build with a version of Ansible; the error is its log.
async fn run(
    cloud: &Cloud,
    copy: &Path,
    name: &str,
    build: &RoleBuild,
    version: &str,
) -> Result<(), String> {
    let place = directory().join(name);
    let read = |phase: &str| std::fs::read_to_string(place.join(phase)).ok();
    let (pre, main, post) = (read("pre.yaml"), read("run.yaml"), read("post.yaml"));
    let mut files = Vec::new();
    for (project, path, text) in
        [(CONFIG, "pre.yaml", &pre), (PROJECT, "run.yaml", &main), (CONFIG, "post.yaml", &post)]
    {
        files.extend(text.as_deref().map(|text| (project, path, text)));
    }
    let mut story = Story::new(&files);
    if place.join("project").is_dir() {
        story.put_copy(&place.join("project"));
    }
    let mut roles = story.role_copy("forge.test/zuul/zuul-jobs", copy);
    roles.target_name = "zuul-jobs".to_owned();
    let listed = |there: &Option<String>, mut playbook: sluice_model::job::Playbook| {
        playbook.roles = vec![roles.clone().into()];
        there.iter().map(|_| playbook.clone()).collect::<Vec<_>>()
    };
    story.job.pre_run = listed(&pre, story.trusted("pre"));
    story.job.run = listed(&main, untrusted("run"));
    story.job.post_run = listed(&post, story.trusted("post"));
    story.job.timeout_seconds = Some(BUILD_SECONDS);
    story.job.ansible_version = Some(version.to_owned());
    story.job.vars = build.vars.clone();
    story.job.vars.extend(vars(json!({
        "s3_endpoint": cloud.endpoint,
        "s3_access_key": ACCESS_KEY.0,
        "s3_secret_key": ACCESS_KEY.1,
        "s3_bucket": LOG_BUCKET,
    })));
    let settings = PACKAGE_SETTINGS.map(|name| Some((name.to_owned(), std::env::var(name).ok()?)));
    let settings: BTreeMap<String, String> = settings.into_iter().flatten().collect();
    let site = vars(json!({ "site_environment": settings }));
    story.setup.push(Box::new(move |settings| settings.site_vars = site));
    let names: Vec<&str> = build.nodes.iter().map(String::as_str).collect();
    story.name_nodes(&names, &[]);
    for node in &names {
        let machine = cloud.machine(&format!("{name}-{version}"), node, &story.key).await;
        story.machines.push(machine);
    }
    let machines: Vec<_> =
        story.machines.iter().filter_map(|machine| machine.external_id.clone()).collect();
    let outcome = story.run().await;
    for machine in machines {
        cloud.driver.terminate(None, &[sluice_pool::InstanceId(machine)]).await.unwrap();
    }
    match outcome.ended.result {
        BuildResult::Success => Ok(()),
        result => Err(format!("\n{result}\n{}", outcome.log)),
    }
}

/// Z7.1, Z7.7: jobs that were written for Zuul use these roles.
#[tokio::test(flavor = "multi_thread")]
async fn roles_of_zuul_jobs_run_unmodified() {
    // Past the capture of output, so that a run shows it.
    let mut shown = std::io::stderr();
    let Some(copy) = std::env::var_os(COPY).map(PathBuf::from) else {
        let _ = writeln!(shown, "SKIPPED: roles of zuul-jobs: {COPY} names no copy of it");
        return;
    };
    let cloud = Cloud::start().await;
    let isolation = cloud.ec2.isolation();
    if !isolation.contains("and network") {
        let _ = writeln!(shown, "SKIPPED: roles of zuul-jobs, which change a node: {isolation}");
        return;
    }
    let only = std::env::var(ONLY).unwrap_or_default();
    let is_chosen = |name: &str| only.is_empty() || only.split(',').any(|one| one == name);
    let builds: BTreeMap<String, RoleBuild> =
        builds().into_iter().filter(|(name, _)| is_chosen(name)).collect();
    assert!(!builds.is_empty(), "{ONLY}={only} names no build");
    let each = builds.iter().flat_map(|(name, build)| {
        ANSIBLE_VERSIONS.map(move |version| (name.as_str(), build, version))
    });
    let (cloud, copy) = (&cloud, copy.as_path());
    let runs = each.map(|(name, build, version)| async move {
        let started = Instant::now();
        let ended = run(cloud, copy, name, build, version).await;
        let said = if ended.is_ok() { "passed" } else { "FAILED" };
        let seconds = started.elapsed().as_secs();
        let mut shown = std::io::stderr();
        let log = ended.err().unwrap_or_default();
        let _ = writeln!(shown, "{name}, Ansible {version}: {said}, {seconds} s{log}");
        (!log.is_empty()).then(|| (name.to_owned(), version.to_owned()))
    });
    let ended: Vec<Option<(String, String)>> =
        futures::stream::iter(runs).buffer_unordered(BUILDS_AT_ONCE).collect().await;
    cloud.ec2.shut_down().await;
    let mut failed: Vec<(String, String)> = ended.into_iter().flatten().collect();
    failed.sort();
    let others = if only.is_empty() { not_run() } else { BTreeMap::new() };
    let table = table(&builds, &others, &failed);
    let _ = writeln!(shown, "\n{table}");
    let is_listed = |role: &String| table.contains(&format!("\n| `{role}` |"));
    let roles = std::fs::read_dir(copy.join("roles")).unwrap().map(|entry| entry.unwrap());
    let roles = roles.filter(|entry| entry.path().is_dir());
    let roles = roles.map(|entry| entry.file_name().to_string_lossy().into_owned());
    let unknown: BTreeSet<String> = roles.filter(|role| !is_listed(role)).collect();
    if only.is_empty() && !unknown.is_empty() {
        let _ = writeln!(shown, "The copy has other roles too: {unknown:?}");
    }
    assert!(failed.is_empty(), "{failed:?}");
}

/// Z7.7: the page has the results of a whole run, each role once.
#[test]
fn the_page_about_zuul_jobs_has_the_table_that_the_builds_print() {
    let (builds, not_run) = (builds(), not_run());
    let expected = table(&builds, &not_run, &[]);
    let page = std::fs::read_to_string(PAGE).unwrap();
    assert!(page.contains(&expected), "the page lacks this table:\n{expected}");
    let roles: Vec<&str> = expected.lines().filter_map(|line| line.split('`').nth(1)).collect();
    let once: BTreeSet<&&str> = roles.iter().collect();
    assert_eq!(once.len(), roles.len(), "a role is there twice");
    let passed = builds.values().map(|build| build.roles.len()).sum::<usize>();
    assert!(passed >= 40, "{passed}");
}
