//! The tenants' own file (`main.yaml`): which projects each tenant reads, how far it trusts them,
//! and its limits (Z2).

pub mod access;
mod branches;
mod included;
mod limits;
mod source;

pub use access::{Access, AuthorizationRole, AuthorizationRule, Grant, Permission};
pub use branches::BranchFacts;
pub use included::{included_branch, included_collisions, included_project};

use crate::Pattern;
use crate::connection::Connections;
use crate::error::{ConfigError, Diagnostic, DiagnosticKind};
use crate::fragment::Trust;
use crate::job::freeze::{ANSIBLE_VERSIONS, is_ansible_version};
use crate::objects::read::{Diagnostics, Fields, members};
use crate::objects::{ObjectKind, Span, split};
use crate::yaml::{self, Node, Value};
use serde::{Deserialize, Serialize};
use sluice_model::git::BranchState;
use sluice_model::{ConnectionName, ProjectName, TenantName};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

/// The host of what belongs to the system itself, and the name of the connection that stands for
/// it.
pub const SYSTEM: &str = "system";
/// Nodes of a job where a tenant says nothing of `max-nodes-per-job`, as in Zuul.
const NODES_PER_JOB: u32 = 5;
/// Seconds of a job where a tenant says nothing of `max-job-timeout`, as in Zuul.
const JOB_TIMEOUT_SECONDS: u32 = 10_800;
/// Seconds that a token may live where a tenant says nothing of `max-oidc-ttl`, as in Zuul.
const OIDC_TTL_SECONDS: u32 = 10_800;

/// Everything the file says.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct MainConfig {
    /// Tenants in order.
    pub tenants: Vec<TenantConfig>,
    /// Rules on a token's claims, by name.
    #[serde(default)]
    pub authorization_rules: BTreeMap<String, AuthorizationRule>,
    /// Roles by name.
    #[serde(default)]
    pub authorization_roles: BTreeMap<String, AuthorizationRole>,
    /// Semaphores that tenants may share: name to count.
    #[serde(default)]
    pub global_semaphores: BTreeMap<String, u32>,
    /// Access to what belongs to no tenant; no tenant has it as its own, so that it configures none
    /// anew.
    #[serde(default)]
    pub api_root: Access,
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
    /// The config project that the included files are together; no forge knows it.
    #[serde(default)]
    pub included: Option<TenantProject>,
    /// What lies beside them for their jobs, playbooks and roles, as the one commit of that
    /// project; `None` where there is nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub beside: Option<BranchState>,
    /// The parent of jobs that name none.
    pub default_parent: String,
    /// Ansible's version where a job says nothing.
    #[serde(default)]
    pub default_ansible_version: Option<String>,
    /// Greatest number of nodes of a job; `None` for any.
    #[serde(default)]
    pub max_nodes_per_job: Option<u32>,
    /// Greatest timeout of a job in seconds; `None` for any.
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
    /// Names of the global semaphores that it may use.
    #[serde(default)]
    pub semaphores: Vec<String>,
    /// Those of them that are defined, with how many may hold each.
    #[serde(default)]
    pub global_semaphores: BTreeMap<String, u32>,
    /// Who may see and do what in it.
    #[serde(default)]
    pub access: Access,
    /// Greatest life of a token that a job may be issued, in seconds.
    #[serde(default)]
    pub max_oidc_ttl_seconds: Option<u64>,
    /// Issuers that a job's token may name.
    #[serde(default)]
    pub allowed_oidc_issuers: Vec<String>,
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
            included: None,
            beside: None,
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
            global_semaphores: BTreeMap::new(),
            access: Access::default(),
            max_oidc_ttl_seconds: None,
            allowed_oidc_issuers: Vec::new(),
        }
    }

    /// Returns a project by its canonical name.
    pub fn project(&self, name: &ProjectName) -> Option<&TenantProject> {
        self.projects.iter().find(|project| project.name == *name)
    }

    /// Returns a project that configuration may come from: one that it lists, or the files that it
    /// includes.
    pub fn source_project(&self, name: &ProjectName) -> Option<&TenantProject> {
        self.project(name).or(self.included.as_ref().filter(|included| included.name == *name))
    }
}

/// Returns whether repositories define objects of a kind where the tenant says nothing of that.
fn is_usual(kind: ObjectKind, trust: Trust) -> bool {
    // Untrusted repositories define what nodes are made of only where they are told to.
    trust.is_trusted() || !(kind.is_provider_config() || kind == ObjectKind::Pipeline)
}

impl TenantProject {
    /// Returns whether the tenant takes no kind of objects from it: then its files are of no use,
    /// and only its branches count.
    pub fn reads_nothing(&self) -> bool {
        self.kinds.is_empty()
    }

    /// Returns whether the tenant says that it reads nothing of a kind that such a project usually
    /// defines.
    pub(crate) fn leaves_out(&self, kind: ObjectKind) -> bool {
        !self.kinds.contains(&kind) && is_usual(kind, self.trust)
    }

    /// Returns a project with the defaults of its trust.
    pub fn new(connection: &str, name: ProjectName, trust: Trust) -> Self {
        let kinds = ObjectKind::WORDS.iter().map(|(_, kind)| *kind);
        let kinds = kinds.filter(|kind| is_usual(*kind, trust)).collect();
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

/// Parses the tenants' file. Mistakes are part of the result, all at once; a tenant with one is
/// kept without the mistaken part.
pub fn parse_main(
    path: &str,
    text: &str,
    connections: &Connections,
) -> (MainConfig, Vec<ConfigError>) {
    let mut config = MainConfig::default();
    let mut diagnostics = Vec::new();
    match yaml::compose(text) {
        Err(cause) => diagnostics.push(Diagnostic::new(
            DiagnosticKind::Syntax,
            cause.mark,
            cause.mark,
            cause.message,
        )),
        Ok(root) if root.is_null() => {}
        Ok(root) => match root.as_list() {
            None => diagnostics.push(Diagnostic::new(
                DiagnosticKind::Syntax,
                root.start,
                root.end,
                "the tenants' file must be a list of stanzas",
            )),
            Some(list) => {
                let (mut stanzas, mut root_stanza) = (Vec::new(), None);
                for member in list {
                    let is_api_root = member.get("api-root").is_some();
                    if is_api_root && root_stanza.is_some() {
                        let message = "api-root is already defined";
                        let diagnostic = Diagnostic::new(
                            DiagnosticKind::Duplicate,
                            member.start,
                            member.end,
                            message,
                        );
                        diagnostics.push(diagnostic.in_stanza("api-root"));
                        continue;
                    }
                    if is_api_root {
                        root_stanza = Some(member);
                    }
                    let (mut p, before) = (
                        Diagnostics { start: Some(member.start), ..Diagnostics::default() },
                        config.tenants.len(),
                    );
                    stanza(member, connections, &mut config, &mut p);
                    diagnostics.extend(p.list);
                    stanzas.extend((config.tenants.len() > before).then_some(member));
                }
                diagnostics.extend(names(&mut config, &stanzas));
                diagnostics.extend(
                    root_stanza.map(|stanza| names_of_root(&config, stanza)).unwrap_or_default(),
                );
            }
        },
    }
    let locate = |diagnostic| ConfigError {
        connection: "".into(),
        project: "".into(),
        branch: "".into(),
        path: path.to_owned(),
        diagnostic,
    };
    (config, diagnostics.into_iter().map(locate).collect())
}

/// Follows what tenants name of the rest of the file, wherever in it that stands.
fn names(config: &mut MainConfig, stanzas: &[&Node]) -> Vec<Diagnostic> {
    let mut diagnostics = Vec::new();
    let MainConfig { tenants, authorization_rules, authorization_roles, global_semaphores, .. } =
        config;
    let roles = role_names(authorization_roles);
    for (tenant, stanza) in tenants.iter_mut().zip(stanzas) {
        let mut unknown = |attribute: &str, what: &str, name: &str, known: Vec<&str>| {
            let message = format!("The {what} \"{name}\" was not found.");
            let span = span_of_text(stanza, attribute, name);
            let diagnostic =
                Diagnostic::new(DiagnosticKind::UnknownName, span.start, span.end, message)
                    .about(attribute);
            let diagnostic = diagnostic
                .in_stanza(&format!("tenant {}", tenant.name))
                .from_stanza_at(stanza.start);
            diagnostics.push(diagnostic.suggesting(name, known));
        };
        for name in &tenant.semaphores {
            match global_semaphores.get(name) {
                Some(max) => {
                    tenant.global_semaphores.insert(name.clone(), *max);
                }
                None => {
                    unknown(
                        "semaphores",
                        "global semaphore",
                        name,
                        global_semaphores.keys().map(String::as_str).collect(),
                    );
                }
            }
        }
        let rules = || authorization_rules.keys().map(String::as_str).collect();
        for (attribute, name) in
            tenant.access.rules().filter(|(_, name)| !authorization_rules.contains_key(*name))
        {
            unknown(attribute, "authorization rule", name, rules());
        }
        for name in tenant.access.roles().filter(|name| !roles.contains(name)) {
            unknown("role-mappings", "authorization role", name, roles.clone());
        }
    }
    diagnostics
}

/// Returns the names of all roles: those that the file defines, and those that there are anyway.
fn role_names(defined: &BTreeMap<String, AuthorizationRole>) -> Vec<&str> {
    defined.keys().map(String::as_str).chain(access::BUILT_IN_ROLES).collect()
}

/// Follows what `api-root` names of the rest of the file.
fn names_of_root(config: &MainConfig, stanza: &Node) -> Vec<Diagnostic> {
    let (rules, roles) = (&config.authorization_rules, role_names(&config.authorization_roles));
    let diagnostic = |attribute: &str, what: &str, name: &str, known: Vec<&str>| {
        let message = format!("The {what} \"{name}\" was not found.");
        let span = span_of_text(stanza, attribute, name);
        let diagnostic =
            Diagnostic::new(DiagnosticKind::UnknownName, span.start, span.end, message)
                .about(attribute);
        diagnostic.in_stanza("api-root").from_stanza_at(stanza.start).suggesting(name, known)
    };
    let unknown_rules = config.api_root.rules().filter(|(_, name)| !rules.contains_key(*name));
    let known_rules = || rules.keys().map(String::as_str).collect();
    let unknown_roles = config.api_root.roles().filter(|name| !roles.contains(name));
    unknown_rules
        .map(|(attribute, name)| diagnostic(attribute, "authorization rule", name, known_rules()))
        .chain(
            unknown_roles
                .map(|name| diagnostic("role-mappings", "authorization role", name, roles.clone())),
        )
        .collect()
}

/// Returns where an attribute of a stanza says a text; the whole stanza where that is not known.
fn span_of_text(stanza: &Node, attribute: &str, text: &str) -> Span {
    fn find<'n>(node: &'n Node, text: &str) -> Option<&'n Node> {
        match &node.value {
            Value::Text(found) => (found == text).then_some(node),
            Value::List(list) => list.iter().find_map(|member| find(member, text)),
            Value::Map(map) => {
                map.iter().find_map(|(key, value)| find(key, text).or_else(|| find(value, text)))
            }
            _ => None,
        }
    }
    // The founding documents also write the attributes beside the bare word.
    let body = stanza
        .as_map()
        .and_then(|map| map.first())
        .map(|(_, body)| body)
        .filter(|body| !body.is_null());
    let said = body.unwrap_or(stanza).get(attribute).and_then(|node| find(node, text));
    Span::of(said.unwrap_or(stanza))
}

fn stanza(
    member: &Node,
    connections: &Connections,
    config: &mut MainConfig,
    p: &mut Diagnostics,
) -> Option<()> {
    let (word, body, _) = split(member, p)?;
    let name = body.get("name").and_then(Node::as_text).unwrap_or_default().to_owned();
    p.stanza = format!("{word} {name}").trim_end().to_owned();
    match word {
        "tenant" => {
            let tenant = tenant(&body, connections, p)?;
            if config.tenants.iter().any(|other| other.name == tenant.name) {
                let message = format!("Tenant \"{}\" is already defined", tenant.name);
                p.add(Diagnostic::new(
                    DiagnosticKind::Duplicate,
                    member.start,
                    member.end,
                    message,
                ));
                return None;
            }
            config.tenants.push(tenant);
        }
        "authorization-rule" | "admin-rule" => {
            let rule = access::rule(&body, p)?;
            once(&mut config.authorization_rules, rule.name.clone(), rule, word, member, p);
        }
        // Zuul's documentation has the shorter word.
        "authorization-role" | "role" => {
            let role = access::role(&body, p)?;
            once(&mut config.authorization_roles, role.name.clone(), role, word, member, p);
        }
        "global-semaphore" => {
            let mut f = Fields::of(&body, "", p)?;
            let max = f.count("max", 1, p).unwrap_or(1);
            let name = f.required_name("name", p);
            f.finish(p);
            once(&mut config.global_semaphores, name?, max, word, member, p);
        }
        "api-root" => {
            let mut f = Fields::of(&body, "", p)?;
            config.api_root = access::access(&mut f, p);
            f.finish(p);
        }
        other => {
            let known = [
                "tenant",
                "authorization-rule",
                "authorization-role",
                "global-semaphore",
                "api-root",
            ];
            let message = format!("\"{other}\" is not a stanza of the tenants' file");
            p.add(
                Diagnostic::new(DiagnosticKind::Syntax, member.start, member.end, message)
                    .suggesting(other, known),
            );
        }
    }
    Some(())
}

fn tenant(body: &Node, connections: &Connections, p: &mut Diagnostics) -> Option<TenantConfig> {
    let mut f = Fields::of(body, "", p)?;
    let name = f.required_name("name", p);
    let mut tenant = TenantConfig::new(name.as_deref().unwrap_or_default());
    tenant.include = included::files(&mut f, p);
    if !tenant.include.is_empty() {
        tenant.included = Some(TenantProject::new(SYSTEM, included_project(), Trust::Config));
    }
    tenant.default_parent = f.text("default-parent", p).unwrap_or(tenant.default_parent);
    tenant.default_ansible_version = default_ansible_version(&mut f, p);
    tenant.max_nodes_per_job = limit(&mut f, "max-nodes-per-job", NODES_PER_JOB, p);
    tenant.max_job_timeout_seconds =
        limit(&mut f, "max-job-timeout", JOB_TIMEOUT_SECONDS, p).map(u64::from);
    tenant.max_changes_per_pipeline = f.count("max-changes-per-pipeline", 0, p);
    tenant.max_dependencies = f.count("max-dependencies", 0, p);
    tenant.exclude_unprotected_branches =
        f.flag("exclude-unprotected-branches", p).unwrap_or(false);
    tenant.exclude_locked_branches = f.flag("exclude-locked-branches", p).unwrap_or(false);
    tenant.allowed_triggers = allowed_connections(&mut f, "allowed-triggers", connections, p);
    tenant.allowed_reporters = allowed_connections(&mut f, "allowed-reporters", connections, p);
    tenant.allowed_labels = f.expressions("allowed-labels", p);
    tenant.disallowed_labels = f.expressions("disallowed-labels", p);
    tenant.allow_circular_dependencies = f.flag("allow-circular-dependencies", p);
    tenant.use_nodepool = f.flag("use-nodepool", p).unwrap_or(true);
    tenant.report_build_page = f.flag("report-build-page", p).unwrap_or(false);
    tenant.web_root = f.text("web-root", p);
    tenant.semaphores = f.texts("semaphores", p).unwrap_or_default();
    tenant.access = access::access(&mut f, p);
    tenant.access.admin_rules = f.texts("admin-rules", p).unwrap_or_default();
    tenant.max_oidc_ttl_seconds =
        Some(f.count("max-oidc-ttl", 1, p).unwrap_or(OIDC_TTL_SECONDS).into());
    tenant.allowed_oidc_issuers = f.texts("allowed-oidc-issuers", p).unwrap_or_default();
    if let Some(source) = f.take("source") {
        source::sources(source, connections, &mut tenant, p);
    }
    f.finish(p);
    name.map(|_| tenant)
}

/// Takes the version of Ansible that jobs without one have: no job could run with one that there is
/// none of.
fn default_ansible_version(f: &mut Fields<'_>, p: &mut Diagnostics) -> Option<String> {
    let attribute = "default-ansible-version";
    let node = f.peek(attribute);
    let version = f.version(attribute, p)?;
    if let Some(node) = node.filter(|_| !is_ansible_version(&version)) {
        let message = format!(
            "Ansible version {version} is not supported; there are {}",
            ANSIBLE_VERSIONS.join(" and ")
        );
        p.add(
            Diagnostic::new(DiagnosticKind::UnknownName, node.start, node.end, message)
                .about(attribute),
        );
    }
    Some(version)
}

/// Takes a list of connections, and warns of those that there are none of: what is allowed beside
/// them is meant all the same.
fn allowed_connections(
    f: &mut Fields<'_>,
    attribute: &'static str,
    connections: &Connections,
    p: &mut Diagnostics,
) -> Option<Vec<String>> {
    let nodes = f.peek(attribute).map(members).unwrap_or_default();
    for node in nodes {
        let Some(name) = node.as_text().filter(|name| connections.driver(name).is_none()) else {
            continue;
        };
        let message =
            format!("Unknown connection named \"{name}\", so \"{attribute}\" allows nothing by it");
        let diagnostic =
            Diagnostic::new(DiagnosticKind::UnknownName, node.start, node.end, message)
                .about(attribute);
        let known = connections.0.keys().map(|name| name.as_str()).chain(["timer", "zuul"]);
        p.add(diagnostic.suggesting(name, known).as_warning());
    }
    f.texts(attribute, p)
}

/// Adds what the file may name once.
fn once<T>(
    into: &mut BTreeMap<String, T>,
    name: String,
    value: T,
    word: &str,
    member: &Node,
    p: &mut Diagnostics,
) {
    match into.entry(name) {
        Entry::Vacant(vacant) => {
            vacant.insert(value);
        }
        Entry::Occupied(known) => {
            let message = format!("{word} \"{}\" is already defined", known.key());
            p.add(Diagnostic::new(DiagnosticKind::Duplicate, member.start, member.end, message));
        }
    }
}

/// Takes a limit that there is also where nothing is said of it; -1 is Zuul's word for none.
fn limit(f: &mut Fields<'_>, name: &'static str, usual: u32, p: &mut Diagnostics) -> Option<u32> {
    if f.peek(name).is_some_and(|node| node.value == Value::Int(-1)) {
        f.take(name);
        return None;
    }
    Some(f.count(name, 0, p).unwrap_or(usual))
}
