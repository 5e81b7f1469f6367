//! A job frozen for one item. It holds everything an executor needs and leaves no decision open
//! (Z4.7).

mod galaxy;
mod run_time;

pub use galaxy::{GalaxyRefusal, GalaxyRequirement, GalaxyRole, GalaxySource};
pub use run_time::{
    ExternalHost, Fingerprint, HostLogin, IncludeVars, JobKind, OidcToken, RunTime, SecretExposure,
    Tristate, VarsSource, WorkspaceCheckout, is_container_name,
};

use crate::{BranchName, ConnectionName, JobName, LabelName, ProjectName, git::Oid, id::digest};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// The versions of Ansible that a job may choose (`ansible-version`), in Zuul's numbering, oldest
/// first. `infra/executor/install.sh` makes an environment for each.
pub const ANSIBLE_VERSIONS: [&str; 2] = ["9", "11"];

/// The version of Ansible for jobs that choose none.
pub const DEFAULT_ANSIBLE_VERSION: &str = "11";

/// The frozen jobs of one item, in configuration order.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct JobGraph {
    /// The jobs. Their dependencies name other jobs of the list.
    pub jobs: Vec<FrozenJob>,
}

impl JobGraph {
    /// Returns a [`JobSummary`] of each job, in the same order, for the gate.
    pub fn summaries(&self) -> Vec<JobSummary> {
        self.jobs.iter().map(FrozenJob::summary).collect()
    }
}

/// A job with all matching variants applied.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FrozenJob {
    /// The job's name.
    pub name: JobName,
    /// Its parents and variants in the order in which they were applied, for display.
    #[serde(default)]
    pub inheritance: Vec<String>,
    /// Jobs of the same item that must complete first.
    #[serde(default)]
    pub dependencies: Vec<JobDependency>,
    /// Whether its result counts for the item.
    pub voting: bool,
    /// The maximum number of attempts, at least 1.
    pub attempts: u32,
    /// The timeout of the run phase in seconds. It includes pre-run unless `pre_timeout_seconds` is
    /// set.
    pub timeout_seconds: Option<u64>,
    /// The timeout of the pre-run phase in seconds.
    pub pre_timeout_seconds: Option<u64>,
    /// The timeout of each post-run playbook in seconds.
    pub post_timeout_seconds: Option<u64>,
    /// Alternative nodesets in order of preference. A nodeset without nodes runs on the executor
    /// alone.
    pub nodesets: Vec<NodeSet>,
    /// Pre-run playbooks in the order they run (outermost parent first).
    #[serde(default)]
    pub pre_run: Vec<Playbook>,
    /// Main playbooks.
    #[serde(default)]
    pub run: Vec<Playbook>,
    /// Post-run playbooks in the order they run (innermost child first).
    #[serde(default)]
    pub post_run: Vec<Playbook>,
    /// Repositories to put into the workspace in addition to the item's own.
    #[serde(default)]
    pub required_projects: Vec<RequiredProject>,
    /// Variables for all hosts.
    #[serde(default)]
    pub vars: Map<String, Value>,
    /// Variables with the highest precedence.
    #[serde(default)]
    pub extra_vars: Map<String, Value>,
    /// Variables by node name.
    #[serde(default)]
    pub host_vars: BTreeMap<String, Map<String, Value>>,
    /// Variables by group name.
    #[serde(default)]
    pub group_vars: BTreeMap<String, Map<String, Value>>,
    /// Semaphores that its builds hold.
    #[serde(default)]
    pub semaphores: Vec<SemaphoreUse>,
    /// Tags, for display.
    #[serde(default)]
    pub tags: Vec<String>,
    /// Kinds of artifacts that it provides to other jobs.
    #[serde(default)]
    pub provides: Vec<String>,
    /// Kinds of artifacts that it requires from other jobs.
    #[serde(default)]
    pub requires: Vec<String>,
    /// The branch to check out in each repository that has it.
    pub override_checkout: Option<BranchName>,
    /// Whether it may only run after review, because it has secrets or is declared so.
    #[serde(default)]
    pub post_review: bool,
    /// The layout of repositories in the workspace.
    #[serde(default)]
    pub workspace_scheme: WorkspaceScheme,
    /// The requested Ansible version, such as `9`; `None` for the default.
    pub ansible_version: Option<String>,
    /// The report's message for a success.
    pub success_message: Option<String>,
    /// The report's message for a failure.
    pub failure_message: Option<String>,
    /// The name of the image that this job builds.
    pub image_build_name: Option<String>,
    /// Whether a change to the job's definition runs it even if its file matchers do not match.
    #[serde(default = "yes", skip_serializing_if = "Clone::clone")]
    pub match_on_config_updates: bool,
    /// Attributes that apply only at run time.
    #[serde(default)]
    pub run_time: RunTime,
}

/// Returns `true`, the default of a boolean field that is left out of a record when true.
fn yes() -> bool {
    true
}

impl FrozenJob {
    /// Returns the version of Ansible that it runs with: the requested one, or the default.
    pub fn ansible_version(&self) -> &str {
        self.ansible_version.as_deref().unwrap_or(DEFAULT_ANSIBLE_VERSION)
    }

    /// Returns a hash of the frozen job, as 32 hexadecimal digits. It ignores the names of the
    /// applied parents and variants and the commits of trusted playbooks. Builds with an equal hash
    /// survive a layout change, and members of a bundle may share one build.
    ///
    /// With the commits, each merge in a config project would cancel all builds (R01).
    pub fn hash(&self) -> String {
        let mut job = Self { inheritance: Vec::new(), ..self.clone() };
        for playbook in job.pre_run.iter_mut().chain(&mut job.run).chain(&mut job.post_run) {
            playbook.commit = None;
        }
        let text = serde_json::to_string(&job).unwrap_or_default();
        digest(&["frozen-job", &text])
    }

    /// Returns the semaphores that a build holds from before its start until its end, sorted by
    /// name, without duplicates: the job's own and those of its playbooks. A playbook's semaphore
    /// is held for the whole build, and is acquired before nodes are requested unless the job's own
    /// use of it says otherwise.
    fn held_semaphores(&self) -> Vec<SemaphoreUse> {
        let playbooks = self.pre_run.iter().chain(&self.run).chain(&self.post_run);
        let of_playbooks = playbooks.flat_map(|playbook| &playbook.semaphores);
        let mut held: BTreeMap<String, SemaphoreUse> = of_playbooks
            .map(|name| (name.clone(), SemaphoreUse { name: name.clone(), resources_first: false }))
            .collect();
        held.extend(self.semaphores.iter().map(|used| (used.name.clone(), used.clone())));
        held.into_values().collect()
    }

    /// Returns the summary of the job that the gate stores in the item's record. Its semaphores
    /// include those of the playbooks. A reporter job (one that runs after the item's reports)
    /// provides nothing and holds no following changes, whatever is configured.
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
            // A reporter job runs after the merge. A successor that waited for its artifacts would
            // block the merge it depends on.
            provides: if reporter { Vec::new() } else { self.provides.clone() },
            requires: self.requires.clone(),
            hold_following_changes: self.run_time.hold_following_changes && !reporter,
            success_message: self.success_message.clone(),
            failure_message: self.failure_message.clone(),
            success_url: self.run_time.success_url.clone(),
            failure_url: self.run_time.failure_url.clone(),
            sharing: self.sharing(),
            reporter,
        }
    }

    /// Returns which bundle members share one build of the job (Zuul's `deduplicate`). If that is
    /// automatic, all members share it for a job with required projects, otherwise only members of
    /// the same project and branch.
    fn sharing(&self) -> BuildSharing {
        match self.run_time.deduplicate {
            Tristate::No => BuildSharing::Never,
            Tristate::Yes => BuildSharing::InBundle,
            // A job with required projects does the same work for each member.
            Tristate::Auto if !self.required_projects.is_empty() => BuildSharing::InBundle,
            Tristate::Auto => BuildSharing::InProject,
        }
    }
}

/// The part of a frozen job that the gate needs. It is small enough for an item's record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobSummary {
    /// The job's name.
    pub name: JobName,
    /// The hash of the frozen job.
    pub hash: String,
    /// Jobs of the same item that must complete first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub dependencies: Vec<JobDependency>,
    /// Whether its result counts for the item.
    pub voting: bool,
    /// The maximum number of attempts.
    pub attempts: u32,
    /// The labels it needs, one list per alternative nodeset. An empty first list means that no
    /// node is needed.
    pub labels: Vec<Vec<LabelName>>,
    /// Semaphores that its builds hold.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub semaphores: Vec<SemaphoreUse>,
    /// Kinds of artifacts that it provides to other jobs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub provides: Vec<String>,
    /// Kinds of artifacts that it requires from changes ahead.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub requires: Vec<String>,
    /// Whether changes behind in the queue start no jobs until this job has succeeded.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub hold_following_changes: bool,
    /// The report's message for a success.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub success_message: Option<String>,
    /// The report's message for a failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure_message: Option<String>,
    /// The link in the report after a success: absolute, or relative to the logs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub success_url: Option<String>,
    /// The link in the report after a failure: absolute, or relative to the logs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure_url: Option<String>,
    /// Which bundle members share one build.
    #[serde(default, skip_serializing_if = "BuildSharing::is_never")]
    pub sharing: BuildSharing,
    /// Whether it runs after the item's reports, when its result no longer affects the item.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub reporter: bool,
}

/// Which members of a bundle share one build of a job that they all run.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[serde(rename_all = "kebab-case")]
pub enum BuildSharing {
    /// No members share a build.
    #[default]
    Never,
    /// Members of the same project and branch share a build.
    InProject,
    /// All members share a build.
    InBundle,
}

impl BuildSharing {
    /// Returns whether no build is shared, for leaving the field out of a record.
    fn is_never(&self) -> bool {
        *self == Self::Never
    }
}

/// A dependency on another job of the item.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobDependency {
    /// The name of the other job.
    pub name: JobName,
    /// Whether the dependency is ignored if the other job does not run.
    #[serde(default)]
    pub soft: bool,
}

/// Named nodes and groups of them (Z3.1).
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct NodeSet {
    /// The nodeset's name; empty for an inline nodeset.
    #[serde(default)]
    pub name: String,
    /// Its nodes in order.
    pub nodes: Vec<NodeSpec>,
    /// Its groups of nodes in order.
    #[serde(default)]
    pub groups: Vec<NodeGroup>,
}

/// One node of a nodeset.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeSpec {
    /// The host's names in the inventory; the first is the node's own name.
    pub names: Vec<String>,
    /// The label that the node is created from.
    pub label: LabelName,
}

/// A group of nodes in the inventory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeGroup {
    /// The group's name.
    pub name: String,
    /// Names of its nodes.
    pub nodes: Vec<String>,
}

/// Ansible's built-in group of all hosts. If an inventory defines a host or group of this name,
/// Ansible stops reading it there and continues with what it has read. Playbooks would then find
/// other hosts, or none.
pub const ALL_NODES: &str = "all";

/// Names by which Ansible refers to the machine it runs on. If the inventory has a host of one of
/// these names, Ansible uses it for all of them.
const EXECUTOR: [&str; 3] = ["localhost", "127.0.0.1", "::1"];

/// Returns whether a host or group name refers to the executor itself: `localhost`, `127.0.0.1` or
/// `::1`, also with a port, which Ansible ignores. A node of that name would receive tasks meant
/// for the executor, often with secrets.
pub fn names_executor(name: &str) -> bool {
    let is_port = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let host =
        name.rsplit_once(':').filter(|(_, port)| is_port(port)).map_or(name, |(host, _)| host);
    EXECUTOR.contains(&name) || EXECUTOR.contains(&host)
}

/// Returns whether a host or group name, used as a path, leads out of the directory it is appended
/// to, or names that directory itself: it is absolute, or has an empty part, `.` or `..`. Playbooks
/// keep the files of a host in a directory of its name.
pub fn is_path_outwards(name: &str) -> bool {
    name.split('/').any(|part| ["", ".", ".."].contains(&part))
}

/// A playbook, with the roles and secrets it may use.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Playbook {
    /// The connection of the project that contains it.
    pub connection: ConnectionName,
    /// The project that contains it.
    pub project: ProjectName,
    /// The branch of that project whose job definition names the playbook.
    pub branch: BranchName,
    /// For a trusted playbook, the commit of its branch when the job was frozen. `None` for
    /// untrusted ones, which come from the tested state.
    pub commit: Option<Oid>,
    /// The path within the project, as configured.
    pub path: String,
    /// Whether it comes from a config project (Z7.5).
    pub trusted: bool,
    /// The roles that it uses, in the order in which they are searched.
    #[serde(default)]
    pub roles: Vec<RoleUse>,
    /// Secrets that it may use, by variable name (Z5.5).
    #[serde(default)]
    pub secrets: BTreeMap<String, SecretUse>,
    /// Object storage containers that it gets upload credentials for (Z4.8).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub containers: Vec<String>,
    /// Semaphores for the time it runs.
    #[serde(default)]
    pub semaphores: Vec<String>,
    /// Whether it runs even for an aborted build.
    #[serde(default)]
    pub cleanup: bool,
    /// Paths below the home directory that are preserved when the playbook's own home is created.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub preserve_home_paths: Vec<String>,
    /// The depth of the definition in the inheritance; 0 is the base job.
    #[serde(default)]
    pub nesting_level: u32,
}

/// Returns the candidate files of a playbook name in its repository, in order of preference: the
/// name as given, with `.yaml` and with `.yml`, first at the root and then below `playbooks/`
/// (Z4.9). Parts that are `.` are dropped. Returns none for a name with `..` or with an empty part,
/// such as an absolute path.
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

impl Playbook {
    /// Returns the repositories of its roles, without roles from Ansible Galaxy.
    pub fn role_repositories(&self) -> impl Iterator<Item = &RoleRepository> {
        self.roles.iter().filter_map(RoleUse::repository)
    }
}

/// Roles that a playbook uses (Z4.6).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum RoleUse {
    /// Those in a repository.
    Zuul(RoleRepository),
    /// One that `ansible-galaxy` installs.
    Galaxy(GalaxyRole),
}

impl RoleUse {
    /// Returns the repository; `None` for a role from Ansible Galaxy.
    pub fn repository(&self) -> Option<&RoleRepository> {
        match self {
            Self::Zuul(role) => Some(role),
            Self::Galaxy(_) => None,
        }
    }
}

impl From<RoleRepository> for RoleUse {
    fn from(role: RoleRepository) -> Self {
        Self::Zuul(role)
    }
}

/// A repository with Ansible roles (Z4.6).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RoleRepository {
    /// The connection of the project.
    pub connection: ConnectionName,
    /// The project that contains the roles.
    pub project: ProjectName,
    /// The directory in which it is placed, which is the name playbooks use.
    pub target_name: String,
    /// Whether it is the playbook's own project, added without configuration.
    pub implicit: bool,
}

/// A secret's ciphertext from the configuration. Only an executor decrypts it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SecretUse {
    /// The secret's name.
    pub secret: String,
    /// The project whose key pair encrypted it.
    pub project: ProjectName,
    /// The connection of that project, under which the key pair is stored.
    pub connection: ConnectionName,
    /// The secret's mapping, with `{"!encrypted/pkcs1-oaep": [..]}` in place of each ciphertext.
    pub data: Value,
    /// The token to issue instead of the mapping, which is empty in that case.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oidc: Option<OidcToken>,
}

/// A repository that is put into the workspace in addition to the item's own (Z4.3).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequiredProject {
    /// The connection of the project.
    pub connection: ConnectionName,
    /// The project.
    pub project: ProjectName,
    /// The branch to check out if the repository has it.
    pub override_checkout: Option<BranchName>,
}

/// A semaphore that a job uses, and when it is acquired.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SemaphoreUse {
    /// The semaphore's name.
    pub name: String,
    /// Whether nodes are requested before the semaphore is acquired.
    #[serde(default)]
    pub resources_first: bool,
}

/// The layout of repositories below `src/`.
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
