//! A node that is a real sshd, repositories that are real git, and a job made of them.

use async_trait::async_trait;
use serde_json::{Map, Value, json};
use sluice_executor::*;
use sluice_git::PackName;
use sluice_model::build::{Order, Pause, PlaybookStart, RunEnd, Speculation, SpeculativeChange};
use sluice_model::change::{ChangeKey, ChangeRef};
use sluice_model::git::{BranchKey, BranchState, Commit, Oid};
use sluice_model::job::{
    FrozenJob, NodeGroup, NodeSet, NodeSpec, Playbook, RoleRepository, SecretUse,
};
use sluice_model::node::NodeAccess;
use sluice_model::{BuildId, JobName, ProjectName, QueueKey, Timestamp};
use sluice_records::session::LiveLogToken;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::net::{IpAddr, Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use tempfile::TempDir;
use tokio::sync::watch;

/// The project under test.
pub const PROJECT: &str = "forge.test/org/project";
/// The token with which live logs are read.
pub const LOG_TOKEN: &str = "a token for live logs";
/// The config project, whose playbooks are trusted.
pub const CONFIG: &str = "forge.test/org/config";

/// Runs the install script, changes the default settings by `change`, and returns Ansible ready to
/// run.
pub async fn ansible(state: &Path, change: impl FnOnce(&mut AnsibleSettings)) -> Ansible {
    static INSTALLED: OnceLock<()> = OnceLock::new();
    INSTALLED.get_or_init(|| {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../infra/executor/install.sh");
        assert!(Command::new(script).status().unwrap().success(), "install.sh failed");
    });
    let mut settings = AnsibleSettings::new(state);
    if let Some(prefix) = std::env::var_os("SLUICE_ANSIBLE_PREFIX") {
        settings.prefix = prefix.into();
    }
    // Unpacked and compiled once, and not by every test.
    settings.content = Path::new(env!("CARGO_TARGET_TMPDIR")).join("ansible-content");
    // A node that is not there stays away: trying again only takes time here.
    settings.ssh_retries = 0;
    settings.host_wait_seconds = 0;
    change(&mut settings);
    Ansible::new(settings).await.unwrap()
}

/// An sshd on a loopback address of its own, whose login has a home of its own; ends when dropped.
pub struct Node {
    child: Child,
    directory: TempDir,
    pub access: NodeAccess,
}

impl Node {
    /// Starts a node called `name` that accepts the public key at `key`.
    pub fn start(name: &str, key: &Path) -> Self {
        static NEXT: AtomicU16 = AtomicU16::new(1);
        let number = NEXT.fetch_add(1, Ordering::SeqCst);
        let process = std::process::id();
        let address =
            Ipv4Addr::new(127, 100 + (process >> 8 & 63) as u8, process as u8, number as u8);
        let port =
            TcpListener::bind((IpAddr::V4(address), 0)).unwrap().local_addr().unwrap().port();
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name).display().to_string();
        keygen(Path::new(&path("host_key")));
        std::fs::create_dir(path("home")).unwrap();
        let configuration = format!(
            "HostKey {}\nAuthorizedKeysFile {}.pub\nListenAddress {address}:{port}\nPidFile none\nUsePAM no\nStrictModes no\n\
             PasswordAuthentication no\nPermitRootLogin prohibit-password\nSubsystem sftp /usr/lib/openssh/sftp-server\n\
             ExposeAuthInfo yes\nSetEnv HOME={}\nForceCommand cd \"$HOME\" && exec sh -c \"$SSH_ORIGINAL_COMMAND\"\n",
            path("host_key"),
            key.display(),
            path("home"),
        );
        std::fs::write(path("sshd_config"), configuration).unwrap();
        let child = start_sshd(directory.path());
        let public = std::fs::read_to_string(path("host_key.pub")).unwrap();
        let host_key = public.split_whitespace().take(2).collect::<Vec<_>>().join(" ");
        let access = NodeAccess {
            id: name.into(),
            names: vec![name.to_owned()],
            label: "small".into(),
            provider: "static".into(),
            region: None,
            az: None,
            external_id: None,
            interface_ip: address.to_string(),
            public_ipv4: None,
            private_ipv4: None,
            public_ipv6: None,
            ssh_port: port,
            username: String::from_utf8(Command::new("id").arg("-un").output().unwrap().stdout)
                .unwrap()
                .trim()
                .to_owned(),
            host_keys: vec![host_key],
            python_path: None,
        };
        Self { child, directory, access }
    }
}

/// Starts the SSH server with the configuration in a directory, and waits until it listens.
fn start_sshd(directory: &Path) -> Child {
    let mut child = Command::new("/usr/sbin/sshd")
        .args(["-D", "-e", "-f"])
        .arg(directory.join("sshd_config"))
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let mut said = String::new();
    while !said.contains("Server listening") {
        said = lines.next().expect("sshd ended").unwrap();
    }
    std::thread::spawn(move || lines.for_each(drop));
    child
}

impl Node {
    /// Returns the id of the process that listens for connections.
    pub fn listener(&self) -> u32 {
        self.child.id()
    }

    /// Ends the SSH server, as when a machine reboots.
    pub fn go_down(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Starts the SSH server again, at the same address.
    pub fn come_up(&mut self) {
        self.child = start_sshd(self.directory.path());
    }

    /// Returns the home directory of the login.
    pub fn home(&self) -> PathBuf {
        self.directory.path().join("home")
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub fn keygen(path: &Path) {
    let done = Command::new("ssh-keygen")
        .args(["-q", "-t", "ed25519", "-N", "", "-f"])
        .arg(path)
        .status()
        .unwrap();
    assert!(done.success());
}

/// A repository with one commit per call of [`Repo::commit`].
pub struct Repo {
    directory: TempDir,
}

impl Repo {
    pub fn new() -> Self {
        let repo = Self { directory: tempfile::tempdir().unwrap() };
        repo.git(&["init", "-q", "-b", "main"]);
        repo
    }

    pub fn git(&self, arguments: &[&str]) -> String {
        let mut git = Command::new("git");
        git.args(["-c", "user.name=T", "-c", "user.email=t@example.org"])
            .args(arguments)
            .current_dir(self.directory.path());
        let output = git.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }

    /// Copies the files below a directory into the work tree.
    pub fn copy(&self, directory: &Path) {
        let files = directory.join(".");
        let done = Command::new("cp").arg("-R").arg(files).arg(self.directory.path()).status();
        assert!(done.unwrap().success(), "{}", directory.display());
    }

    /// Commits `files` and returns the commit with its tree.
    pub fn commit(&self, files: &[(&str, &str)]) -> Commit {
        for (name, text) in files {
            let path = self.directory.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        self.git(&["add", "-A"]);
        self.git(&["commit", "-q", "--allow-empty", "-m", "state"]);
        Commit {
            id: Oid(self.git(&["rev-parse", "HEAD"])),
            tree: Oid(self.git(&["rev-parse", "HEAD^{tree}"])),
        }
    }

    /// Packs the repository and returns its packs.
    pub fn packs(&self) -> Packs {
        self.git(&["repack", "-adq"]);
        let directory = self.directory.path().join(".git/objects/pack");
        let files = std::fs::read_dir(&directory).unwrap().map(|entry| entry.unwrap().path());
        let names = files.filter(|path| path.extension().is_some_and(|end| end == "pack"));
        let names = names
            .map(|path| path.file_stem().unwrap().to_str().unwrap().parse::<PackName>().unwrap())
            .collect();
        Packs { directory, names }
    }
}

/// Provides the repositories of a story.
pub struct StoryRepositories(BTreeMap<ProjectName, Packs>);

#[async_trait]
impl RepositorySources for StoryRepositories {
    async fn packs(&self, wanted: &PackRequest<'_>) -> Result<Packs, SourceError> {
        let project = wanted.project.clone();
        self.0
            .get(&project)
            .cloned()
            .ok_or_else(|| SourceError { project, source: "there is no such repository".into() })
    }
}

/// Changes settings before the build.
pub type SettingsChange = Box<dyn FnOnce(&mut AnsibleSettings) + Send>;

/// Everything a build needs, changed by tests before it runs.
pub struct Story {
    pub directory: TempDir,
    pub key: PathBuf,
    pub job: FrozenJob,
    pub order: Order,
    pub nodes: Vec<Node>,
    /// Nodes that something else started, after `nodes`.
    pub machines: Vec<NodeAccess>,
    pub secrets: OpenedSecrets,
    pub inherited: InheritedData,
    pub project: (Commit, Commit),
    pub config: Commit,
    repos: BTreeMap<ProjectName, Repo>,
    extra: Vec<BranchState>,
    ahead: Vec<SpeculativeChange>,
    /// The title of the change and the text below it.
    pub message: (String, String),
    pub settings: fn(&mut AnsibleSettings),
    pub scope: AttemptScope,
    pub lease: Lease,
    /// Changes of the settings that depend on the test.
    pub setup: Vec<SettingsChange>,
    pub holder: Option<Box<dyn HolderLookup>>,
    /// The topic of the change under test.
    pub topic: Option<String>,
    /// The jobs that wait for the job.
    pub child_jobs: Vec<JobName>,
}

/// The outcome of a build.
pub struct Outcome {
    pub ended: RunEnd,
    pub log: String,
    pub jobdir: PathBuf,
    pub seen: Arc<RecordingObserver>,
    /// The nodes, which run until this is dropped.
    pub nodes: Vec<Node>,
}

impl Outcome {
    /// Returns a file below the job directory.
    pub fn read(&self, path: &str) -> String {
        std::fs::read_to_string(self.jobdir.join(path))
            .unwrap_or_else(|error| panic!("{path}: {error}\n{}", self.log))
    }
}

/// Records the events of the build.
pub struct RecordingObserver {
    pub log: watch::Sender<Vec<u8>>,
    pub will_fail: Mutex<bool>,
    pub has_started: Mutex<bool>,
    pub begun: Mutex<Vec<PlaybookStart>>,
    pub pause: Mutex<Option<Pause>>,
    pub secret_data: Mutex<serde_json::Map<String, serde_json::Value>>,
    live: LiveLog,
}

impl Observer for RecordingObserver {
    fn started(&self, _at: Timestamp) {
        *self.has_started.lock().unwrap() = true;
    }
    fn playbook_begins(&self, start: PlaybookStart) {
        self.begun.lock().unwrap().push(start);
    }
    fn log_appended(&self, offset: u64, bytes: &[u8]) {
        self.log.send_modify(|log| {
            assert_eq!(offset as usize, log.len(), "the log has no gaps");
            log.extend_from_slice(bytes);
        });
        self.live.grew_to(offset + bytes.len() as u64);
    }
    fn will_fail(&self) {
        *self.will_fail.lock().unwrap() = true;
    }
    fn paused(&self, pause: Pause) {
        *self.pause.lock().unwrap() = Some(pause);
    }
    fn returned_secrets(&self, secret_data: serde_json::Map<String, serde_json::Value>) {
        *self.secret_data.lock().unwrap() = secret_data;
    }
}

impl RecordingObserver {
    /// Waits until the log contains `text`.
    pub async fn wait_for(&self, text: &str) {
        let mut log = self.log.subscribe();
        let waited = log.wait_for(|log| String::from_utf8_lossy(log).contains(text));
        tokio::time::timeout(std::time::Duration::from_secs(120), waited)
            .await
            .expect("the log says so in time")
            .unwrap();
    }
}

impl Story {
    /// A job without nodes whose project and config project hold `files`, as
    /// `(project, path, text)`.
    pub fn new(files: &[(&str, &str, &str)]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let key = directory.path().join("node_key");
        keygen(&key);
        let mut repos = BTreeMap::new();
        let mut commits = Vec::new();
        for project in [PROJECT, CONFIG] {
            let repo = Repo::new();
            let base = repo.commit(&[("README", "before")]);
            let own: Vec<_> = files
                .iter()
                .filter(|file| file.0 == project)
                .map(|file| (file.1, file.2))
                .collect();
            commits.push((base, repo.commit(&own)));
            repos.insert(ProjectName::from(project), repo);
        }
        let number = 7;
        let key_of_change = ChangeKey::change("forge".into(), PROJECT.into(), number);
        let change = ChangeRef {
            key: key_of_change,
            branch: "main".into(),
            head: commits[0].1.id.clone(),
            patchset: "1".to_owned(),
        };
        let build = BuildId::derive(&[&directory.path().display().to_string()]);
        let order = json!({
            "build": build, "queue": QueueKey { tenant: "one".into(), pipeline: "check".into(), queue: "q".into() }, "item": "b".repeat(32),
            "generation": 1, "job": "unit", "attempt": 1, "max_attempts": 3, "voting": true, "graph": "g", "speculation": "s", "change": change,
            "event_id": "e1", "post_review": false, "request": null, "stop": null, "ordered_at": 0
        });
        let job = json!({ "name": JobName::from("unit"), "voting": true, "attempts": 3, "timeout_seconds": 300, "nodesets": [] });
        Self {
            directory,
            key,
            job: serde_json::from_value(job).unwrap(),
            order: serde_json::from_value(order).unwrap(),
            nodes: Vec::new(),
            machines: Vec::new(),
            secrets: OpenedSecrets::default(),
            inherited: InheritedData::default(),
            project: commits[0].clone(),
            config: commits[1].1.clone(),
            repos,
            extra: Vec::new(),
            ahead: Vec::new(),
            message: ("Say {{ lookup('env', 'HOME') }}".to_owned(), String::new()),
            settings: |_| {},
            scope: AttemptScope::Whole,
            lease: Lease::unlimited(),
            setup: Vec::new(),
            holder: None,
            topic: None,
            child_jobs: Vec::new(),
        }
    }

    /// Gives the job a node for each name, in groups as `(group, members)`.
    pub fn with_nodes(mut self, names: &[&str], groups: &[(&str, &[&str])]) -> Self {
        self.nodes = names.iter().map(|name| Node::start(name, &self.key)).collect();
        self.name_nodes(names, groups);
        self
    }

    /// Defines a nodeset with these names and groups, as `(group, members)`.
    pub fn name_nodes(&mut self, names: &[&str], groups: &[(&str, &[&str])]) {
        let nodes = names
            .iter()
            .map(|name| NodeSpec { names: vec![(*name).to_owned()], label: "small".into() })
            .collect();
        let groups = groups.iter().map(|(name, members)| NodeGroup {
            name: (*name).to_owned(),
            nodes: members.iter().map(|member| (*member).to_owned()).collect(),
        });
        self.job.nodesets = vec![NodeSet { name: String::new(), nodes, groups: groups.collect() }];
    }

    /// Adds a repository with roles and returns it as a role of the job.
    pub fn role(&mut self, project: &str, files: &[(&str, &str)]) -> RoleRepository {
        self.role_repo(project, Repo::new(), files)
    }

    /// Adds a repository with the files below a directory and returns it as a role of the job.
    pub fn role_copy(&mut self, project: &str, directory: &Path) -> RoleRepository {
        let repo = Repo::new();
        repo.copy(directory);
        self.role_repo(project, repo, &[])
    }

    fn role_repo(&mut self, project: &str, repo: Repo, files: &[(&str, &str)]) -> RoleRepository {
        let commit = repo.commit(files);
        let branch = BranchKey { project: project.into(), branch: "main".into() };
        self.extra.push(BranchState::untouched(branch, commit, Vec::new()));
        self.repos.insert(project.into(), repo);
        let target_name = project.rsplit('/').next().unwrap().to_owned();
        RoleRepository {
            connection: "forge".into(),
            project: project.into(),
            target_name,
            implicit: false,
        }
    }

    /// Puts a change of another project ahead of the one under test.
    pub fn ahead(&mut self, project: &str) {
        let role = self.role(project, &[("README", "ahead")]);
        let key = ChangeKey::change("forge".into(), role.project, 6);
        let head = self.extra.last().unwrap().result.id.clone();
        let change = ChangeRef { key, branch: "main".into(), patchset: head.0.clone(), head };
        let (url, title, message) = Default::default();
        let (topic, merge_commit) = (None, None);
        let change = SpeculativeChange { change, url, title, message, topic, merge_commit };
        self.ahead.push(change);
    }

    /// Puts a change ahead of the one under test that changes `files` of a repository of roles, and
    /// returns the repository as a role of the job.
    pub fn role_changed_ahead(
        &mut self,
        project: &str,
        merged: &[(&str, &str)],
        files: &[(&str, &str)],
    ) -> RoleRepository {
        self.ahead(project);
        let repo = &self.repos[&ProjectName::from(project)];
        let (base, result) = (repo.commit(merged), repo.commit(files));
        let state = self.extra.last_mut().unwrap();
        (state.base, state.result) = (base, result);
        let target_name = project.rsplit('/').next().unwrap().to_owned();
        let connection = "forge".into();
        RoleRepository { connection, project: project.into(), target_name, implicit: false }
    }

    /// Prepares a tag of the project at the state under test.
    pub fn tagged(&mut self, name: &str) {
        let branch = BranchKey {
            project: PROJECT.into(),
            branch: format!("refs/tags/{name}").as_str().into(),
        };
        self.extra.push(BranchState::untouched(branch, self.project.1.clone(), Vec::new()));
    }

    /// Takes its nodes out, so that they and their files outlive the build.
    pub fn take_nodes(&mut self) -> Vec<Node> {
        self.machines.extend(self.nodes.iter().map(|node| node.access.clone()));
        std::mem::take(&mut self.nodes)
    }

    /// Commits the files below a directory as the state under test of the project.
    pub fn put_copy(&mut self, directory: &Path) {
        self.repos[&ProjectName::from(PROJECT)].copy(directory);
        self.put(&[]);
    }

    /// Commits `files` as the state under test of the project.
    pub fn put(&mut self, files: &[(&str, &str)]) {
        self.project.1 = self.repos[&ProjectName::from(PROJECT)].commit(files);
    }

    /// Commits a symbolic link as the state under test of the project.
    pub fn put_link(&mut self, path: &str, target: &str) {
        let repo = &self.repos[&ProjectName::from(PROJECT)];
        std::os::unix::fs::symlink(target, repo.directory.path().join(path)).unwrap();
        self.project.1 = repo.commit(&[]);
    }

    /// Commits a submodule at `path` as the state under test of the project, with this address.
    pub fn put_submodule(&mut self, path: &str, url: &str) {
        let repo = &self.repos[&ProjectName::from(PROJECT)];
        std::fs::create_dir_all(repo.directory.path().join(path)).unwrap();
        let link = format!("160000,{},{path}", "1".repeat(40));
        repo.git(&["update-index", "--add", "--cacheinfo", &link]);
        let entry = format!("[submodule \"{path}\"]\n\tpath = {path}\n\turl = {url}\n");
        self.project.1 = repo.commit(&[(".gitmodules", &entry)]);
    }

    /// Makes the change under test one that writes `own`, and merges it with what came before it:
    /// `ahead`, which it does not know.
    pub fn merge(&mut self, ahead: &[(&str, &str)], own: &[(&str, &str)]) {
        let repo = &self.repos[&ProjectName::from(PROJECT)];
        repo.git(&["switch", "-q", "-c", "change"]);
        self.order.change.head = repo.commit(own).id;
        repo.git(&["switch", "-q", "main"]);
        self.project.0 = repo.commit(ahead);
        repo.git(&["merge", "-q", "--no-ff", "-m", "merged", "change"]);
        self.project.1 = repo.commit(&[]);
    }

    /// Opens a secret for `playbook` under `name`.
    pub fn secret(&mut self, playbook: &mut Playbook, name: &str, plain: Value) {
        let secret = SecretUse {
            secret: name.to_owned(),
            project: CONFIG.into(),
            connection: "forge".into(),
            data: json!({ "sealed": name }),
            oidc: None,
        };
        self.secrets.insert(&secret, plain);
        playbook.secrets.insert(name.to_owned(), secret);
    }

    /// Runs the build to its end.
    pub async fn run(self) -> Outcome {
        self.run_with(|_| {}).await
    }

    /// Runs the build; `meanwhile` starts what the test does concurrently.
    pub async fn run_with(self, meanwhile: impl FnOnce(Meanwhile)) -> Outcome {
        let own = self.nodes.iter().map(|node| node.access.clone());
        let nodes = own.chain(self.machines.clone()).collect();
        self.run_on_with(nodes, meanwhile).await
    }

    /// Runs the build on the nodes of another story.
    pub async fn run_on(self, nodes: Vec<NodeAccess>) -> Outcome {
        self.run_on_with(nodes, |_| {}).await
    }

    /// Runs the build on these nodes; `meanwhile` starts what the test does concurrently.
    pub async fn run_on_with(
        self,
        nodes: Vec<NodeAccess>,
        meanwhile: impl FnOnce(Meanwhile),
    ) -> Outcome {
        let jobdir = self.directory.path().join("job");
        let logs = LiveLogRegistry::new(LiveLogToken::new(LOG_TOKEN.to_owned()));
        let live = logs.open(&self.order.build, &jobdir);
        let seen = Arc::new(RecordingObserver {
            log: watch::channel(Vec::new()).0,
            will_fail: Mutex::new(false),
            has_started: Mutex::new(false),
            begun: Mutex::default(),
            pause: Mutex::new(None),
            secret_data: Mutex::default(),
            live,
        });
        let (stopper, stop) = Stopper::new();
        meanwhile(Meanwhile {
            seen: Arc::clone(&seen),
            stopper,
            logs,
            build: self.order.build.clone(),
        });
        let state = |project: &str, base: &Commit, result: &Commit| BranchState {
            branch: BranchKey { project: project.into(), branch: "main".into() },
            base: base.clone(),
            result: result.clone(),
            packs: Vec::new(),
        };
        let mut branches = vec![
            state(PROJECT, &self.project.0, &self.project.1),
            state(CONFIG, &self.config, &self.config),
        ];
        branches.extend(self.extra);
        let (title, message) = self.message;
        let change = SpeculativeChange {
            change: self.order.change.clone(),
            url: "https://forge.test/org/project/pull/7".to_owned(),
            title,
            message,
            topic: self.topic,
            merge_commit: None,
        };
        let changes = self.ahead.into_iter().chain([change]).collect();
        let (config_branches, applied_members, defaults) = Default::default();
        let speculation = Speculation {
            changes,
            branches,
            config_branches,
            applied_members,
            containing: None,
            defaults,
        };
        let job = JobAttempt {
            order: &self.order,
            job: &self.job,
            speculation: &speculation,
            nodes: &nodes,
            node_key: Some(&self.key),
            secrets: &self.secrets,
            child_jobs: &self.child_jobs,
            inherited: &self.inherited,
            scope: self.scope,
            lease: &self.lease,
            holder: self.holder.as_deref(),
        };
        let (settings, setup) = (self.settings, self.setup);
        let change = |into: &mut AnsibleSettings| {
            settings(into);
            setup.into_iter().for_each(|change| change(into));
        };
        let ansible = ansible(&self.directory.path().join("state"), change).await;
        let repositories = StoryRepositories(
            self.repos.iter().map(|(project, repo)| (project.clone(), repo.packs())).collect(),
        );
        let ended = ansible.execute(&job, &repositories, &jobdir, stop, &*seen).await;
        let log = String::from_utf8(seen.log.borrow().clone()).unwrap();
        // Not removed yet, because the assertions read it.
        let jobdir = self.directory.keep().join("job");
        Outcome { ended, log, jobdir, seen, nodes: self.nodes }
    }
}

impl Drop for Outcome {
    fn drop(&mut self) {
        if let Some(directory) = self.jobdir.parent() {
            let _ = std::fs::remove_dir_all(directory);
        }
    }
}

/// Handles for a test to act while its build runs.
pub struct Meanwhile {
    pub seen: Arc<RecordingObserver>,
    pub stopper: Stopper,
    pub logs: LiveLogRegistry,
    pub build: BuildId,
}

/// Returns a playbook of the project under test.
pub fn untrusted(path: &str) -> Playbook {
    serde_json::from_value(json!({
        "connection": "forge", "project": PROJECT, "branch": "main", "commit": null, "path": path, "trusted": false
    }))
    .unwrap()
}

impl Story {
    /// Returns a playbook of the config project, pinned to its commit.
    pub fn trusted(&self, path: &str) -> Playbook {
        let mut playbook = untrusted(path);
        playbook.project = CONFIG.into();
        playbook.trusted = true;
        playbook.commit = Some(self.config.id.clone());
        playbook
    }
}

/// Returns the entries of a JSON object as variables.
pub fn vars(value: Value) -> Map<String, Value> {
    value.as_object().unwrap().clone()
}
