//! The tenants' own file (`main.yaml`): which projects each tenant reads, how far it trusts them, and its limits (Z2).

use crate::Pattern;
use crate::connection::Connections;
use crate::error::{ConfigError, Problem, ProblemKind};
use crate::fragment::Trust;
use crate::objects::read::{Fields, Problems, members};
use crate::objects::{ObjectKind, split};
use crate::yaml::{self, Node, Value};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};
use sluice_model::{ConnectionName, ProjectName, TenantName};
use std::collections::BTreeMap;

/// Everything the file says.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct MainConfig {
    /// Tenants in order.
    pub tenants: Vec<TenantConfig>,
    /// `authorization-rule` (older: `admin-rule`) by name, as written.
    #[serde(default)]
    pub authorization_rules: BTreeMap<String, Json>,
    /// `authorization-role` by name, as written.
    #[serde(default)]
    pub authorization_roles: BTreeMap<String, Json>,
    /// Semaphores that tenants may share: name to count.
    #[serde(default)]
    pub global_semaphores: BTreeMap<String, u32>,
    /// Rules for the whole API, as written.
    #[serde(default)]
    pub api_root: Option<Json>,
}

/// One tenant.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TenantConfig {
    /// Its name.
    pub name: TenantName,
    /// Its projects in the order they are read: config projects first.
    pub projects: Vec<TenantProject>,
    /// Files beside the main file that it includes (Z2.5).
    #[serde(default)]
    pub include: Vec<String>,
    /// The parent of jobs that name none.
    pub default_parent: String,
    /// Ansible's version where a job says nothing.
    #[serde(default)]
    pub default_ansible_version: Option<String>,
    /// Greatest number of nodes of a job.
    #[serde(default)]
    pub max_nodes_per_job: Option<u32>,
    /// Greatest timeout of a job in seconds.
    #[serde(default)]
    pub max_job_timeout_seconds: Option<u64>,
    /// Greatest number of changes of a pipeline.
    #[serde(default)]
    pub max_changes_per_pipeline: Option<u32>,
    /// Greatest number of changes that one may depend on.
    #[serde(default)]
    pub max_dependencies: Option<u32>,
    /// Whether branches without protection are left out.
    #[serde(default)]
    pub exclude_unprotected_branches: bool,
    /// Whether locked branches are left out.
    #[serde(default)]
    pub exclude_locked_branches: bool,
    /// Connections that may trigger; `None` for all.
    #[serde(default)]
    pub allowed_triggers: Option<Vec<String>>,
    /// Connections that may report; `None` for all.
    #[serde(default)]
    pub allowed_reporters: Option<Vec<String>>,
    /// Labels that jobs may ask for; `None` for all.
    #[serde(default)]
    pub allowed_labels: Option<Vec<Pattern>>,
    /// Labels that jobs may not ask for.
    #[serde(default)]
    pub disallowed_labels: Option<Vec<Pattern>>,
    /// Whether changes may depend on each other in a circle where no queue says so.
    #[serde(default)]
    pub allow_circular_dependencies: Option<bool>,
    /// Whether labels without a `label` object go the older way (L4.1).
    pub use_nodepool: bool,
    /// Whether reports point to the item's page.
    #[serde(default)]
    pub report_build_page: bool,
    /// The address of its pages.
    #[serde(default)]
    pub web_root: Option<String>,
    /// Global semaphores that it may use.
    #[serde(default)]
    pub semaphores: Vec<String>,
    /// What concerns who may see and do what, as written.
    #[serde(default)]
    pub access: Map<String, Json>,
}

/// A project as a tenant lists it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TenantProject {
    /// The connection.
    pub connection: ConnectionName,
    /// Its canonical name.
    pub name: ProjectName,
    /// How far it is trusted.
    pub trust: Trust,
    /// Kinds of objects that are read from it.
    pub kinds: Vec<ObjectKind>,
    /// Projects whose jobs it may define again.
    #[serde(default)]
    pub shadow: Vec<String>,
    /// Further files (and folders, ending in `/`) to read.
    #[serde(default)]
    pub extra_config_paths: Vec<String>,
    /// The branch to read in place of all (untrusted) or the default (config).
    #[serde(default)]
    pub load_branch: Option<String>,
    /// Branches that are read; `None` for all.
    #[serde(default)]
    pub include_branches: Option<Vec<Pattern>>,
    /// Branches that are not read.
    #[serde(default)]
    pub exclude_branches: Option<Vec<Pattern>>,
    /// Branches whose configuration counts only for changes to them.
    #[serde(default)]
    pub always_dynamic_branches: Option<Vec<Pattern>>,
    /// As the tenant's.
    #[serde(default)]
    pub exclude_unprotected_branches: Option<bool>,
    /// As the tenant's.
    #[serde(default)]
    pub exclude_locked_branches: Option<bool>,
    /// As the tenant's.
    #[serde(default)]
    pub allow_circular_dependencies: Option<bool>,
    /// Whether its jobs get their branch as a matcher; `None` leaves the rule.
    #[serde(default)]
    pub implied_branch_matchers: Option<bool>,
    /// Whether it may define base jobs; only ever true for config projects.
    pub allow_base_jobs: bool,
    /// Other projects whose stanzas it may write, as patterns of names.
    #[serde(default)]
    pub configure_projects: Vec<Pattern>,
    /// Whether its jobs may be reporters.
    #[serde(default)]
    pub allow_reporter_jobs: bool,
}

impl TenantConfig {
    /// Returns a tenant that reads nothing yet.
    pub fn new(name: &str) -> Self {
        Self {
            name: name.into(),
            projects: Vec::new(),
            include: Vec::new(),
            default_parent: "base".to_owned(),
            default_ansible_version: None,
            max_nodes_per_job: None,
            max_job_timeout_seconds: None,
            max_changes_per_pipeline: None,
            max_dependencies: None,
            exclude_unprotected_branches: false,
            exclude_locked_branches: false,
            allowed_triggers: None,
            allowed_reporters: None,
            allowed_labels: None,
            disallowed_labels: None,
            allow_circular_dependencies: None,
            use_nodepool: true,
            report_build_page: false,
            web_root: None,
            semaphores: Vec::new(),
            access: Map::new(),
        }
    }

    /// Returns a project by its canonical name.
    pub fn project(&self, name: &ProjectName) -> Option<&TenantProject> {
        self.projects.iter().find(|project| project.name == *name)
    }

    /// Returns whether a branch of a project is read for configuration.
    pub fn reads_branch(&self, project: &TenantProject, branch: &str) -> bool {
        let included = project
            .include_branches
            .as_ref()
            .is_none_or(|list| list.iter().any(|pattern| pattern.matches_whole(branch)));
        let excluded = project
            .exclude_branches
            .as_ref()
            .is_some_and(|list| list.iter().any(|pattern| pattern.matches_whole(branch)));
        included && !excluded
    }
}

impl TenantProject {
    /// Returns a project with the defaults of its trust.
    pub fn new(connection: &str, name: ProjectName, trust: Trust) -> Self {
        let kinds = ObjectKind::WORDS.iter().map(|(_, kind)| *kind);
        // Untrusted repositories define what nodes are made of only where they are told to.
        let kinds = kinds
            .filter(|kind| trust.is_trusted() || !(kind.is_provider_config() || *kind == ObjectKind::Pipeline))
            .collect();
        Self {
            connection: connection.into(),
            name,
            trust,
            kinds,
            shadow: Vec::new(),
            extra_config_paths: Vec::new(),
            load_branch: None,
            include_branches: None,
            exclude_branches: None,
            always_dynamic_branches: None,
            exclude_unprotected_branches: None,
            exclude_locked_branches: None,
            allow_circular_dependencies: None,
            implied_branch_matchers: None,
            allow_base_jobs: trust.is_trusted(),
            configure_projects: Vec::new(),
            allow_reporter_jobs: false,
        }
    }
}

/// Parses the tenants' file. Mistakes are part of the result, all at once; a tenant with one is kept without the mistaken part.
pub fn parse_main(path: &str, text: &str, connections: &Connections) -> (MainConfig, Vec<ConfigError>) {
    let mut config = MainConfig::default();
    let mut problems = Vec::new();
    match yaml::compose(text) {
        Err(cause) => problems.push(Problem::new(ProblemKind::Syntax, cause.mark, cause.mark, cause.message)),
        Ok(root) if root.is_null() => {}
        Ok(root) => match root.as_list() {
            None => problems.push(Problem::new(
                ProblemKind::Syntax,
                root.start,
                root.end,
                "the tenants' file must be a list of stanzas",
            )),
            Some(list) => {
                for member in list {
                    let mut p = Problems::default();
                    stanza(member, connections, &mut config, &mut p);
                    problems.extend(p.list);
                }
            }
        },
    }
    let place = |problem| ConfigError {
        connection: "".into(),
        project: "".into(),
        branch: "".into(),
        path: path.to_owned(),
        problem,
    };
    (config, problems.into_iter().map(place).collect())
}

fn stanza(member: &Node, connections: &Connections, config: &mut MainConfig, p: &mut Problems) -> Option<()> {
    let (word, body, _) = split(member, p)?;
    let name = body.get("name").and_then(Node::as_text).unwrap_or_default().to_owned();
    p.stanza = format!("{word} {name}").trim_end().to_owned();
    match word {
        "tenant" => {
            let tenant = tenant(&body, connections, p)?;
            if config.tenants.iter().any(|other| other.name == tenant.name) {
                let message = format!("Tenant \"{}\" is already defined", tenant.name);
                p.add(Problem::new(ProblemKind::Duplicate, member.start, member.end, message));
                return None;
            }
            config.tenants.push(tenant);
        }
        "authorization-rule" | "admin-rule" => {
            config.authorization_rules.insert(name, body.to_json());
        }
        "authorization-role" => {
            config.authorization_roles.insert(name, body.to_json());
        }
        "global-semaphore" => {
            let mut f = Fields::of(&body, "", p)?;
            let max = f.count("max", 1, p).unwrap_or(1);
            let name = f.required_text("name", p);
            f.finish(p);
            config.global_semaphores.insert(name?, max);
        }
        "api-root" => config.api_root = Some(body.to_json()),
        other => {
            let known = ["tenant", "authorization-rule", "authorization-role", "global-semaphore", "api-root"];
            let message = format!("\"{other}\" is not a stanza of the tenants' file");
            p.add(Problem::new(ProblemKind::Syntax, member.start, member.end, message).suggesting(other, known));
        }
    }
    Some(())
}

fn tenant(body: &Node, connections: &Connections, p: &mut Problems) -> Option<TenantConfig> {
    let mut f = Fields::of(body, "", p)?;
    let mut tenant = TenantConfig::new(&f.required_text("name", p)?);
    tenant.include = f.texts("include", p).unwrap_or_default();
    tenant.default_parent = f.text("default-parent", p).unwrap_or(tenant.default_parent);
    tenant.default_ansible_version = f.take("default-ansible-version").and_then(Node::scalar_text);
    tenant.max_nodes_per_job = limit(&mut f, "max-nodes-per-job", p);
    tenant.max_job_timeout_seconds = limit(&mut f, "max-job-timeout", p).map(u64::from);
    tenant.max_changes_per_pipeline = limit(&mut f, "max-changes-per-pipeline", p);
    tenant.max_dependencies = limit(&mut f, "max-dependencies", p);
    tenant.exclude_unprotected_branches = f.flag("exclude-unprotected-branches", p).unwrap_or(false);
    tenant.exclude_locked_branches = f.flag("exclude-locked-branches", p).unwrap_or(false);
    tenant.allowed_triggers = f.texts("allowed-triggers", p);
    tenant.allowed_reporters = f.texts("allowed-reporters", p);
    tenant.allowed_labels = f.patterns("allowed-labels", p);
    tenant.disallowed_labels = f.patterns("disallowed-labels", p);
    tenant.allow_circular_dependencies = f.flag("allow-circular-dependencies", p);
    tenant.use_nodepool = f.flag("use-nodepool", p).unwrap_or(true);
    tenant.report_build_page = f.flag("report-build-page", p).unwrap_or(false);
    tenant.web_root = f.text("web-root", p);
    tenant.semaphores = f.texts("semaphores", p).unwrap_or_default();
    for name in [
        "access-rules",
        "admin-rules",
        "anonymous-read-access",
        "role-mappings",
        "authentication-realm",
        "max-oidc-ttl",
        "allowed-oidc-issuers",
    ] {
        if let Some(node) = f.take(name) {
            tenant.access.insert(name.to_owned(), node.to_json());
        }
    }
    if let Some(source) = f.take("source") {
        sources(source, connections, &mut tenant, p);
    }
    f.finish(p);
    Some(tenant)
}

/// Takes a limit; -1 is Zuul's word for none.
fn limit(f: &mut Fields<'_>, name: &'static str, p: &mut Problems) -> Option<u32> {
    f.int(name, p).and_then(|number| u32::try_from(number).ok())
}

fn sources(node: &Node, connections: &Connections, tenant: &mut TenantConfig, p: &mut Problems) {
    let Some(mut all) = Fields::of(node, "source", p) else {
        return;
    };
    let (mut config, mut untrusted) = (Vec::new(), Vec::new());
    for (connection, node) in all.rest() {
        if connections.project(connection, "").is_none() {
            p.add(
                Problem::new(
                    ProblemKind::UnknownName,
                    node.start,
                    node.end,
                    format!("Unknown connection named \"{connection}\""),
                )
                .about("source")
                .suggesting(connection, connections.0.keys().map(|name| name.as_str())),
            );
            continue;
        }
        let Some(mut f) = Fields::of(node, connection, p) else {
            continue;
        };
        let reader = ListReader { connection, connections };
        if let Some(list) = f.take("config-projects") {
            reader.list(list, Trust::Config, &mut config, p);
        }
        // The seeds' word for repositories with configuration of their own.
        if let Some(list) = f.take_any(&["untrusted-projects", "repos"]) {
            reader.list(list, Trust::Untrusted, &mut untrusted, p);
        }
        f.finish(p);
    }
    for (node, project) in config.into_iter().chain(untrusted) {
        if tenant.project(&project.name).is_some() {
            let message = format!("Project {} is already in the tenant", project.name);
            p.add(Problem::new(ProblemKind::Duplicate, node.start, node.end, message).about("source"));
        } else {
            tenant.projects.push(project);
        }
    }
}

struct ListReader<'c> {
    connection: &'c str,
    connections: &'c Connections,
}

/// What a group of projects says for all its members.
#[derive(Default)]
struct GroupDefaults {
    include: Option<Vec<ObjectKind>>,
    exclude: Vec<ObjectKind>,
    provider_config: bool,
}

impl ListReader<'_> {
    fn list<'n>(&self, node: &'n Node, trust: Trust, found: &mut Vec<(&'n Node, TenantProject)>, p: &mut Problems) {
        for member in members(node) {
            if member.get("projects").is_none() {
                self.member(member, trust, &GroupDefaults::default(), found, p);
                continue;
            }
            let Some(mut f) = Fields::of(member, "projects", p) else {
                continue;
            };
            let group = GroupDefaults {
                include: f.take("include").map(|node| kinds(node, p)),
                exclude: f.take("exclude").map(|node| kinds(node, p)).unwrap_or_default(),
                provider_config: f.flag("include-provider-config", p).unwrap_or(false),
            };
            for inner in f.take("projects").map(members).unwrap_or_default() {
                self.member(inner, trust, &group, found, p);
            }
            f.finish(p);
        }
    }

    fn member<'n>(
        &self,
        node: &'n Node,
        trust: Trust,
        group: &GroupDefaults,
        found: &mut Vec<(&'n Node, TenantProject)>,
        p: &mut Problems,
    ) {
        let (name, attributes) = match &node.value {
            Value::Text(name) => (name.as_str(), None),
            Value::Map(pairs) if pairs.len() == 1 => match pairs.first() {
                Some((key, value)) => (key.as_text().unwrap_or_default(), Some(value)),
                None => return,
            },
            _ => {
                return p.expected(node, "source", "a project's name, or a mapping of it to attributes");
            }
        };
        let Some(canonical) = self.connections.project(self.connection, name) else {
            return;
        };
        let mut project = TenantProject::new(self.connection, canonical, trust);
        let mut defaults = project.kinds.clone();
        let widen = |defaults: &mut Vec<ObjectKind>| {
            defaults.extend(ObjectKind::WORDS.iter().map(|(_, kind)| *kind).filter(|kind| kind.is_provider_config()));
        };
        if group.provider_config {
            widen(&mut defaults);
        }
        let (mut include, mut exclude) = (group.include.clone(), group.exclude.clone());
        if let Some(attributes) = attributes.filter(|node| !node.is_null())
            && let Some(mut f) = Fields::of(attributes, name, p)
        {
            include = f.take("include").map(|node| kinds(node, p)).or(include);
            exclude.extend(f.take("exclude").map(|node| kinds(node, p)).unwrap_or_default());
            if f.flag("include-provider-config", p).unwrap_or(false) {
                widen(&mut defaults);
            }
            project_attributes(&mut f, &mut project, p);
            f.finish(p);
        }
        project.kinds = include.unwrap_or(defaults);
        project.kinds.retain(|kind| !exclude.contains(kind));
        project.kinds.sort_unstable();
        project.kinds.dedup();
        found.push((node, project));
    }
}

fn project_attributes(f: &mut Fields<'_>, project: &mut TenantProject, p: &mut Problems) {
    project.shadow = f.texts("shadow", p).unwrap_or_default();
    project.extra_config_paths = f.texts("extra-config-paths", p).unwrap_or_default();
    project.load_branch = f.text("load-branch", p);
    project.include_branches = f.patterns("include-branches", p);
    project.exclude_branches = f.patterns("exclude-branches", p);
    project.always_dynamic_branches = f.patterns("always-dynamic-branches", p);
    project.exclude_unprotected_branches = f.flag("exclude-unprotected-branches", p);
    project.exclude_locked_branches = f.flag("exclude-locked-branches", p);
    project.allow_circular_dependencies = f.flag("allow-circular-dependencies", p);
    project.implied_branch_matchers = f.flag("implied-branch-matchers", p);
    if project.trust.is_trusted() {
        project.allow_base_jobs = f.flag("allow-base-jobs", p).unwrap_or(true);
    } else {
        project.configure_projects = f.patterns("configure-projects", p).unwrap_or_default();
        project.allow_reporter_jobs = f.flag("allow-reporter-jobs", p).unwrap_or(false);
    }
}

fn kinds(node: &Node, p: &mut Problems) -> Vec<ObjectKind> {
    let mut found = Vec::new();
    for member in members(node) {
        let text = member.as_text().unwrap_or_default();
        // Both `job` and `jobs` are written.
        let word = text.strip_suffix('s').unwrap_or(text);
        match ObjectKind::WORDS.iter().find(|(name, _)| *name == text || *name == word) {
            Some((_, kind)) => found.push(*kind),
            None => {
                let message = format!("\"{text}\" is not a kind of configuration object");
                let known = ObjectKind::WORDS.iter().map(|(name, _)| *name);
                p.add(
                    Problem::new(ProblemKind::Syntax, member.start, member.end, message)
                        .about("include")
                        .suggesting(text, known),
                );
            }
        }
    }
    found
}
