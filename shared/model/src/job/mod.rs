//! A job frozen for one item: everything an executor needs, and nothing that still has to be
//! decided (Z4.7).

mod run_time;

pub use run_time::{
    Checkout, Choice, Fingerprint, GalaxyRole, Host, IncludeVars, JobKind, OidcToken, RunTime,
    SecretExposure, VarsSource,
};

use crate::{BranchName, ConnectionName, JobName, LabelName, ProjectName, git::Oid, id::digest};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// The jobs of one item, in the order the configuration names them.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct JobGraph {
    /// Frozen jobs; dependencies name others of the list.
    pub jobs: Vec<FrozenJob>,
}

impl JobGraph {
    /// Returns what the gate has to know about each job.
    pub fn summaries(&self) -> Vec<JobSummary> {
        self.jobs.iter().map(FrozenJob::summary).collect()
    }
}

/// One job with every matching variant applied.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FrozenJob {
    /// The job's name.
    pub name: JobName,
    /// Its ancestors and variants in the order they were applied, for people.
    #[serde(default)]
    pub inheritance: Vec<String>,
    /// Jobs of the same item that come first.
    #[serde(default)]
    pub dependencies: Vec<Dependency>,
    /// Whether its result counts.
    pub voting: bool,
    /// Attempts in all, at least 1.
    pub attempts: u32,
    /// Time for the run phase in seconds (includes pre-run unless `pre_timeout_seconds` is set).
    pub timeout_seconds: Option<u64>,
    /// Time for the pre-run phase in seconds.
    pub pre_timeout_seconds: Option<u64>,
    /// Time for each post-run playbook in seconds.
    pub post_timeout_seconds: Option<u64>,
    /// Nodes and groups, in order of preference; one without nodes runs on the executor alone.
    pub nodesets: Vec<NodeSet>,
    /// Playbooks before, in the order they run (outermost parent first).
    #[serde(default)]
    pub pre_run: Vec<Playbook>,
    /// The main playbooks.
    #[serde(default)]
    pub run: Vec<Playbook>,
    /// Playbooks after, in the order they run (innermost child first).
    #[serde(default)]
    pub post_run: Vec<Playbook>,
    /// Repositories to put in place besides the item's own.
    #[serde(default)]
    pub required_projects: Vec<RequiredProject>,
    /// Variables for all hosts.
    #[serde(default)]
    pub vars: Map<String, Value>,
    /// Variables that win over everything else.
    #[serde(default)]
    pub extra_vars: Map<String, Value>,
    /// Variables per node name.
    #[serde(default)]
    pub host_vars: BTreeMap<String, Map<String, Value>>,
    /// Variables per group name.
    #[serde(default)]
    pub group_vars: BTreeMap<String, Map<String, Value>>,
    /// Semaphores to hold while it runs.
    #[serde(default)]
    pub semaphores: Vec<SemaphoreUse>,
    /// Tags for people and pages.
    #[serde(default)]
    pub tags: Vec<String>,
    /// Artifacts' kinds it makes for others.
    #[serde(default)]
    pub provides: Vec<String>,
    /// Artifacts' kinds it wants of others.
    #[serde(default)]
    pub requires: Vec<String>,
    /// Branch to check out where it exists.
    pub override_checkout: Option<BranchName>,
    /// Whether it may only run after review (it holds secrets, or says so).
    #[serde(default)]
    pub post_review: bool,
    /// Where repositories lie in the workspace.
    #[serde(default)]
    pub workspace_scheme: WorkspaceScheme,
    /// Ansible's major version as text, when asked for.
    pub ansible_version: Option<String>,
    /// The message for a success.
    pub success_message: Option<String>,
    /// The message for a failure.
    pub failure_message: Option<String>,
    /// The image this job builds.
    pub image_build_name: Option<String>,
    /// Whether it runs in spite of file matchers where a change defines it otherwise.
    #[serde(default = "yes", skip_serializing_if = "Clone::clone")]
    pub match_on_config_updates: bool,
    /// What acts at run time only.
    #[serde(default)]
    pub run_time: RunTime,
}

fn yes() -> bool {
    true
}

impl FrozenJob {
    /// Returns the hash of everything that defines the job, but not of where that was: builds with
    /// an equal hash may live on when the layout changes, and one build may stand for several
    /// changes of a cycle. Which commits trusted playbooks were at is no part of it, so that not
    /// each landing in a config project stops all builds (R01).
    pub fn hash(&self) -> String {
        let mut job = Self { inheritance: Vec::new(), ..self.clone() };
        for playbook in job.pre_run.iter_mut().chain(&mut job.run).chain(&mut job.post_run) {
            playbook.commit = None;
        }
        let text = serde_json::to_string(&job).unwrap_or_default();
        digest(&["frozen-job", &text])
    }

    /// Returns the semaphores that its build holds from before it is ordered until it is over, each
    /// once, by name. One that a single playbook names is among them: held longer than need be,
    /// never by more than may.
    fn held_semaphores(&self) -> Vec<SemaphoreUse> {
        let playbooks = self.pre_run.iter().chain(&self.run).chain(&self.post_run);
        let of_playbooks = playbooks.flat_map(|playbook| &playbook.semaphores);
        let mut held: BTreeMap<String, SemaphoreUse> = of_playbooks
            .map(|name| (name.clone(), SemaphoreUse { name: name.clone(), resources_first: false }))
            .collect();
        held.extend(self.semaphores.iter().map(|used| (used.name.clone(), used.clone())));
        held.into_values().collect()
    }

    /// Returns what the gate has to know.
    pub fn summary(&self) -> JobSummary {
        let reporter = self.run_time.kind == JobKind::Reporter;
        JobSummary {
            name: self.name.clone(),
            hash: self.hash(),
            dependencies: self.dependencies.clone(),
            voting: self.voting,
            attempts: self.attempts,
            labels: self
                .nodesets
                .iter()
                .map(|set| set.nodes.iter().map(|node| node.label.clone()).collect())
                .collect(),
            semaphores: self.held_semaphores(),
            // Nobody waits for what comes after the reports: whoever is behind would wait for a
            // landing that waits for him.
            provides: if reporter { Vec::new() } else { self.provides.clone() },
            requires: self.requires.clone(),
            hold_following_changes: self.run_time.hold_following_changes && !reporter,
            success_message: self.success_message.clone(),
            failure_message: self.failure_message.clone(),
            success_url: self.run_time.success_url.clone(),
            failure_url: self.run_time.failure_url.clone(),
            shared: self.shared(),
            reporter,
        }
    }

    /// Returns with which changes of its cycle a build of it is shared, as Zuul's `deduplicate` has
    /// it.
    fn shared(&self) -> Shared {
        match self.run_time.deduplicate {
            Choice::No => Shared::Never,
            Choice::Yes => Shared::InCycle,
            // What names the projects that it works on works alike whichever change it runs for.
            Choice::Auto if !self.required_projects.is_empty() => Shared::InCycle,
            Choice::Auto => Shared::InProject,
        }
    }
}

/// What the gate has to know about a job; it is small enough to lie in an item's record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobSummary {
    /// The job's name.
    pub name: JobName,
    /// The hash of the frozen job.
    pub hash: String,
    /// Jobs of the same item that come first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub dependencies: Vec<Dependency>,
    /// Whether its result counts.
    pub voting: bool,
    /// Attempts in all.
    pub attempts: u32,
    /// The labels it needs, one list per alternative nodeset; an empty first list needs no node.
    pub labels: Vec<Vec<LabelName>>,
    /// Semaphores to hold while it runs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub semaphores: Vec<SemaphoreUse>,
    /// Artifacts' kinds it makes for others.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub provides: Vec<String>,
    /// Artifacts' kinds it wants of changes ahead.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub requires: Vec<String>,
    /// Whether changes behind in the queue start none of their jobs until this one has succeeded.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub hold_following_changes: bool,
    /// The message for a success.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub success_message: Option<String>,
    /// The message for a failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure_message: Option<String>,
    /// Where the line of a success points to in a report: absolute, or within the logs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub success_url: Option<String>,
    /// The same for a failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure_url: Option<String>,
    /// With which changes of its cycle one build of it is shared.
    #[serde(default, skip_serializing_if = "Shared::is_never")]
    pub shared: Shared,
    /// Whether it runs after the item's reports, when its result decides nothing about the item any
    /// more.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub reporter: bool,
}

/// With which changes that need each other a build is shared, where they run the same job.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[serde(rename_all = "kebab-case")]
pub enum Shared {
    /// With none.
    #[default]
    Never,
    /// With those of the same project and branch.
    InProject,
    /// With all of them.
    InCycle,
}

impl Shared {
    fn is_never(&self) -> bool {
        *self == Self::Never
    }
}

/// A job that has to come first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dependency {
    /// The other job.
    pub name: JobName,
    /// Whether it is only waited for where it runs at all.
    #[serde(default)]
    pub soft: bool,
}

/// Named nodes and groups of them (Z3.1).
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct NodeSet {
    /// The nodeset's name; empty for one written in line.
    #[serde(default)]
    pub name: String,
    /// Its nodes in order.
    pub nodes: Vec<NodeSpec>,
    /// Its groups in order.
    #[serde(default)]
    pub groups: Vec<Group>,
}

/// One node of a nodeset.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeSpec {
    /// The host's names in the inventory, the first the node's own.
    pub names: Vec<String>,
    /// The label it is made from.
    pub label: LabelName,
}

/// A group of nodes in the inventory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Group {
    /// The group's name.
    pub name: String,
    /// Names of its nodes.
    pub nodes: Vec<String>,
}

/// Ansible's own group of every host. It gives an inventory up that has one of this name in it, and
/// goes on with what it had read of it by then: playbooks would find other hosts than the job's, or
/// none.
pub const ALL_NODES: &str = "all";

/// What Ansible calls the machine that it runs on: a host of any of these names in the inventory is
/// taken for all of them.
const EXECUTOR: [&str; 3] = ["localhost", "127.0.0.1", "::1"];

/// Returns whether playbooks mean the executor by a host's or group's name: what they do there,
/// often with secrets, would be done on the node of that name. Of a host's name Ansible takes a
/// port at its end away.
pub fn means_executor(name: &str) -> bool {
    let is_port = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let host =
        name.rsplit_once(':').filter(|(_, port)| is_port(port)).map_or(name, |(host, _)| host);
    EXECUTOR.contains(&name) || EXECUTOR.contains(&host)
}

/// A playbook and what it may see.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Playbook {
    /// The connection of the project it lies in.
    pub connection: ConnectionName,
    /// The project it lies in.
    pub project: ProjectName,
    /// The branch of that project whose definition named it.
    pub branch: BranchName,
    /// The commit of a trusted playbook's project that was merged when the job was frozen;
    /// untrusted ones come from the tested state.
    pub commit: Option<Oid>,
    /// The path within the project, as written.
    pub path: String,
    /// Whether it comes from a config project (Z7.5).
    pub trusted: bool,
    /// Roles to have in place.
    #[serde(default)]
    pub roles: Vec<Role>,
    /// Secrets it sees, by the name of their variable (Z5.5).
    #[serde(default)]
    pub secrets: BTreeMap<String, SecretUse>,
    /// Semaphores held while it runs.
    #[serde(default)]
    pub semaphores: Vec<String>,
    /// Whether it runs even for an aborted build.
    #[serde(default)]
    pub cleanup: bool,
    /// Paths below the home directory that are kept when the playbook's own home is made.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub preserve_home_paths: Vec<String>,
    /// How deep the definition stands in the inheritance: 0 is the base job.
    #[serde(default)]
    pub nesting_level: u32,
}

/// Returns the files that a playbook's name may mean within its repository, the first that is there
/// counting: as given, then with `.yaml` and `.yml`; at the root, then below `playbooks/` (Z4.9). A
/// name that leads out of the repository means none.
pub fn playbook_files(name: &str) -> Vec<String> {
    let name: Vec<&str> = name.split('/').filter(|part| *part != ".").collect();
    if name.iter().any(|part| part.is_empty() || *part == "..") {
        return Vec::new();
    }
    let name = name.join("/");
    let below = ["", "playbooks/"].into_iter();
    below
        .flat_map(|folder| ["", ".yaml", ".yml"].map(|suffix| format!("{folder}{name}{suffix}")))
        .collect()
}

/// A source of Ansible roles (Z4.6).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Role {
    /// The connection of the project.
    pub connection: ConnectionName,
    /// The project that holds them.
    pub project: ProjectName,
    /// The directory it is placed in, which is what playbooks call it.
    pub target_name: String,
    /// Whether it is the playbook's own project, offered without being asked for.
    pub implicit: bool,
}

/// A secret's ciphertext as it stands in the configuration; only an executor opens it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SecretUse {
    /// The secret's name.
    pub secret: String,
    /// The project whose key pair encrypted it.
    pub project: ProjectName,
    /// The connection of that project, under which its key pair lies. Without it, which is how
    /// older jobs were frozen, only a playbook of the same project can have the secret.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connection: Option<ConnectionName>,
    /// The mapping with `{"!encrypted/pkcs1-oaep": [..]}` in place of each ciphertext.
    pub data: Value,
    /// The token to issue in the place of the mapping, which is empty then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oidc: Option<OidcToken>,
}

/// A repository that is put in place besides the item's own (Z4.3).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequiredProject {
    /// The connection of the project.
    pub connection: ConnectionName,
    /// The project.
    pub project: ProjectName,
    /// The branch to check out where it exists.
    pub override_checkout: Option<BranchName>,
}

/// A semaphore and when it is taken.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SemaphoreUse {
    /// The semaphore's name.
    pub name: String,
    /// Whether nodes are asked for before it is taken.
    #[serde(default)]
    pub resources_first: bool,
}

/// Where repositories lie below `src/`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WorkspaceScheme {
    /// `src/<host>/<name>`.
    #[default]
    Golang,
    /// `src/<last part of the name>`.
    Flat,
    /// `src/<host>/<first part>/<url-quoted name>`.
    Unique,
}
