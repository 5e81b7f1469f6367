//! The main configuration (`main.yaml`): which projects each tenant loads, how far it trusts them,
//! and its limits (Z2).

pub mod access;
mod branches;
mod included;
mod limits;
mod source;

pub use access::{Access, AuthorizationRole, AuthorizationRule, Grant, Permission};
pub use branches::BranchFacts;
pub use included::{MainConfigText, included_branch, included_collisions, included_project};

use crate::Pattern;
use crate::connection::Connections;
use crate::error::{ConfigError, Diagnostic, DiagnosticKind};
use crate::fragment::Trust;
use crate::job::freeze::is_ansible_version;
use crate::objects::read::{Diagnostics, Fields, members};
use crate::objects::{ObjectKind, Span, split};
use crate::yaml::{self, Node, Value};
use serde::{Deserialize, Serialize};
use sluice_model::git::BranchState;
use sluice_model::job::ANSIBLE_VERSIONS;
use sluice_model::{ConnectionName, ProjectName, TenantName};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

/// The host and connection name of projects that belong to Sluice itself.
pub const SYSTEM: &str = "system";
/// The default of `max-nodes-per-job`, as in Zuul.
const NODES_PER_JOB: u32 = 5;
/// The default of `max-job-timeout` in seconds, as in Zuul.
const JOB_TIMEOUT_SECONDS: u32 = 10_800;
/// The default of `max-oidc-ttl` in seconds, as in Zuul.
const OIDC_TTL_SECONDS: u32 = 10_800;

/// The parsed main configuration.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct MainConfig {
    /// Tenants in order.
    pub tenants: Vec<TenantConfig>,
    /// Rules about a token's claims, by name.
    #[serde(default)]
    pub authorization_rules: BTreeMap<String, AuthorizationRule>,
    /// Roles by name.
    #[serde(default)]
    pub authorization_roles: BTreeMap<String, AuthorizationRole>,
    /// Semaphores that tenants may share, with how many builds may hold each.
    #[serde(default)]
    pub global_semaphores: BTreeMap<String, u32>,
    /// Access to what belongs to no tenant. It is not part of any tenant, so a change of it
    /// reconfigures none.
    #[serde(default)]
    pub api_root: Access,
}

/// One tenant.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TenantConfig {
    /// Its name.
    pub name: TenantName,
    /// Its projects in loading order: config projects first.
    pub projects: Vec<TenantProject>,
    /// Files next to the main configuration that it includes (Z2.5).
    #[serde(default)]
    pub include: Vec<String>,
    /// The config project made of the included files. It exists at no forge.
    #[serde(default)]
    pub included: Option<TenantProject>,
    /// The playbooks and roles next to the included files, as a commit of that project; `None` if
    /// there are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub included_content: Option<BranchState>,
    /// The parent of jobs without `parent`.
    pub default_parent: String,
    /// The Ansible version of jobs without one.
    #[serde(default)]
    pub default_ansible_version: Option<String>,
    /// Maximum number of nodes of a job; `None` for no limit.
    #[serde(default)]
    pub max_nodes_per_job: Option<u32>,
    /// Maximum timeout of a job in seconds; `None` for no limit.
    #[serde(default)]
    pub max_job_timeout_seconds: Option<u64>,
    /// Maximum number of changes in a pipeline.
    #[serde(default)]
    pub max_changes_per_pipeline: Option<u32>,
    /// Maximum number of dependencies of a change.
    #[serde(default)]
    pub max_dependencies: Option<u32>,
    /// Whether unprotected branches are excluded.
    #[serde(default)]
    pub exclude_unprotected_branches: bool,
    /// Whether locked branches are excluded.
    #[serde(default)]
    pub exclude_locked_branches: bool,
    /// The connections whose triggers are allowed; `None` for all.
    #[serde(default)]
    pub allowed_triggers: Option<Vec<String>>,
    /// The connections whose reporters are allowed; `None` for all.
    #[serde(default)]
    pub allowed_reporters: Option<Vec<String>>,
    /// The labels that jobs may use; `None` for all.
    #[serde(default)]
    pub allowed_labels: Option<Vec<Pattern>>,
    /// The labels that jobs may not use.
    #[serde(default)]
    pub disallowed_labels: Option<Vec<Pattern>>,
    /// Whether dependency cycles between changes are allowed if no queue decides.
    #[serde(default)]
    pub allow_circular_dependencies: Option<bool>,
    /// Whether labels without a `label` object use the Nodepool protocol (L4.1).
    pub use_nodepool: bool,
    /// Whether reports link to the item's page.
    #[serde(default)]
    pub report_build_page: Option<bool>,
    /// The base URL of its web pages.
    #[serde(default)]
    pub web_root: Option<String>,
    /// The names of the global semaphores it may use.
    #[serde(default)]
    pub semaphores: Vec<String>,
    /// Those of them that are defined, with how many builds may hold each.
    #[serde(default)]
    pub global_semaphores: BTreeMap<String, u32>,
    /// Who may read and change it.
    #[serde(default)]
    pub access: Access,
    /// Maximum lifetime of a job's OIDC token in seconds.
    #[serde(default)]
    pub max_oidc_ttl_seconds: Option<u64>,
    /// Issuers allowed in a job's OIDC token.
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
    /// The kinds of objects loaded from it.
    pub kinds: Vec<ObjectKind>,
    /// Projects whose jobs its own may shadow.
    #[serde(default)]
    pub shadow: Vec<String>,
    /// Additional files and folders (ending in `/`) to load.
    #[serde(default)]
    pub extra_config_paths: Vec<String>,
    /// The only branch to load instead of all branches (untrusted) or the default branch (config).
    #[serde(default)]
    pub load_branch: Option<String>,
    /// The branches to load; `None` for all.
    #[serde(default)]
    pub include_branches: Option<Vec<Pattern>>,
    /// The branches not to load.
    #[serde(default)]
    pub exclude_branches: Option<Vec<Pattern>>,
    /// Branches whose configuration only applies to changes to them.
    #[serde(default)]
    pub always_dynamic_branches: Option<Vec<Pattern>>,
    /// Overrides the tenant's setting.
    #[serde(default)]
    pub exclude_unprotected_branches: Option<bool>,
    /// Overrides the tenant's setting.
    #[serde(default)]
    pub exclude_locked_branches: Option<bool>,
    /// Overrides the tenant's setting.
    #[serde(default)]
    pub allow_circular_dependencies: Option<bool>,
    /// Whether its jobs are bound to their branch; `None` for Zuul's default rule.
    #[serde(default)]
    pub implied_branch_matchers: Option<bool>,
    /// Whether it may define base jobs; only config projects may.
    pub allow_base_jobs: bool,
    /// Patterns of other projects whose stanzas it may define.
    #[serde(default)]
    pub configure_projects: Vec<Pattern>,
    /// Whether its jobs may be reporters.
    #[serde(default)]
    pub allow_reporter_jobs: bool,
}

impl TenantConfig {
    /// Returns a tenant without projects, files, access rules and limits. The limits that the main
    /// configuration has by default (nodes, timeout, token lifetime) are not set here.
    pub fn new(name: &str) -> Self {
        Self {
            name: name.into(),
            projects: Vec::new(),
            include: Vec::new(),
            included: None,
            included_content: None,
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
            report_build_page: None,
            web_root: None,
            semaphores: Vec::new(),
            global_semaphores: BTreeMap::new(),
            access: Access::default(),
            max_oidc_ttl_seconds: None,
            allowed_oidc_issuers: Vec::new(),
        }
    }

    /// Returns a project that the tenant lists, by its canonical name; `None` if it lists none of
    /// that name. The project of included files is not listed.
    pub fn project(&self, name: &ProjectName) -> Option<&TenantProject> {
        self.projects.iter().find(|project| project.name == *name)
    }

    /// Returns a project that configuration can come from: a listed project, or the project of
    /// included files. `None` for any other.
    pub fn source_project(&self, name: &ProjectName) -> Option<&TenantProject> {
        self.project(name).or(self.included.as_ref().filter(|included| included.name == *name))
    }
}

/// Returns whether projects with a trust level define objects of a kind by default: config projects
/// all kinds, untrusted ones all but pipelines and provider configuration.
fn is_default_kind(kind: ObjectKind, trust: Trust) -> bool {
    // Untrusted projects define provider configuration only if the tenant includes it.
    trust.is_trusted() || !(kind.is_provider_config() || kind == ObjectKind::Pipeline)
}

impl TenantProject {
    /// Returns whether the tenant loads no objects from the project. Then its files are not used,
    /// and only its branches matter.
    pub fn reads_nothing(&self) -> bool {
        self.kinds.is_empty()
    }

    /// Returns whether the tenant excludes objects of a kind that projects with this trust define
    /// by default. False for a kind that they do not define by default.
    pub(crate) fn leaves_out(&self, kind: ObjectKind) -> bool {
        !self.kinds.contains(&kind) && is_default_kind(kind, self.trust)
    }

    /// Returns a project with the defaults of its trust level: a config project defines all kinds
    /// of objects, base jobs and reporter jobs; an untrusted one neither pipelines, provider
    /// configuration, base jobs nor reporter jobs. `name` is canonical, with the host
    /// (`github.com/org/p`); `connection` does not add it.
    pub fn new(connection: &str, name: ProjectName, trust: Trust) -> Self {
        let kinds = ObjectKind::WORDS.iter().map(|(_, kind)| *kind);
        let kinds = kinds.filter(|kind| is_default_kind(*kind, trust)).collect();
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

/// Parses the main configuration. Returns it with all errors and warnings at once, so it may be
/// incomplete; `path` is only the file name that these show. A tenant with errors is kept without
/// the invalid parts; undefined names of semaphores, rules and roles stay in it. Stanzas that are
/// repeated, of unknown kind, or without a name (except `api-root`) are left out, and so are
/// tenants with an invalid name, rules without conditions and roles without permissions. A text
/// that is not a YAML list gives an empty configuration and one error; an empty text is no error.
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
                "the main configuration must be a list of stanzas",
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
                diagnostics.extend(resolve_tenant_names(&mut config, &stanzas));
                diagnostics.extend(
                    root_stanza
                        .map(|stanza| resolve_root_names(&config, stanza))
                        .unwrap_or_default(),
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

/// Stores in each tenant the limits of the global semaphores that it uses. Returns an error for
/// each undefined semaphore, authorization rule and role that a tenant names; the names stay in the
/// tenant. `stanzas` are the nodes of the tenants, in the same order. All stanzas must have been
/// read before.
fn resolve_tenant_names(config: &mut MainConfig, stanzas: &[&Node]) -> Vec<Diagnostic> {
    let mut diagnostics = Vec::new();
    let MainConfig { tenants, authorization_rules, authorization_roles, global_semaphores, .. } =
        config;
    let roles = role_names(authorization_roles);
    for (tenant, stanza) in tenants.iter_mut().zip(stanzas) {
        let mut unknown = |attribute: &str, what: &str, name: &str, defined: Vec<&str>| {
            let message = format!("The {what} \"{name}\" was not found.");
            let span = span_of_text(stanza, attribute, name);
            let diagnostic =
                Diagnostic::new(DiagnosticKind::UnknownName, span.start, span.end, message)
                    .about(attribute);
            let diagnostic = diagnostic
                .in_stanza(&format!("tenant {}", tenant.name))
                .from_stanza_at(stanza.start);
            diagnostics.push(diagnostic.suggesting(name, defined));
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

/// Returns the names of all roles: those defined in the file, then the built-in ones.
fn role_names(defined: &BTreeMap<String, AuthorizationRole>) -> Vec<&str> {
    defined.keys().map(String::as_str).chain(access::BUILT_IN_ROLES).collect()
}

/// Returns an error for each undefined authorization rule and role that `api-root` uses. `stanza`
/// is its node. All stanzas must have been read before. Changes nothing.
fn resolve_root_names(config: &MainConfig, stanza: &Node) -> Vec<Diagnostic> {
    let (rules, roles) = (&config.authorization_rules, role_names(&config.authorization_roles));
    let diagnostic = |attribute: &str, what: &str, name: &str, defined: Vec<&str>| {
        let message = format!("The {what} \"{name}\" was not found.");
        let span = span_of_text(stanza, attribute, name);
        let diagnostic =
            Diagnostic::new(DiagnosticKind::UnknownName, span.start, span.end, message)
                .about(attribute);
        diagnostic.in_stanza("api-root").from_stanza_at(stanza.start).suggesting(name, defined)
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

/// Returns the span of the first key or value, at any depth of an attribute of a stanza, that is
/// exactly this text. If there is none, returns the span of the whole stanza.
fn span_of_text(stanza: &Node, attribute: &str, text: &str) -> Span {
    /// Returns the first key or value within `node` that is this text; `None` if there is none.
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
    // The attributes may also be next to the bare keyword.
    let body = stanza
        .as_map()
        .and_then(|map| map.first())
        .map(|(_, body)| body)
        .filter(|body| !body.is_null());
    let value = body.unwrap_or(stanza).get(attribute).and_then(|node| find(node, text));
    Span::of(value.unwrap_or(stanza))
}

/// Reads one stanza of the main configuration into `config`, and names it in `p`. A stanza of
/// invalid form or unknown kind, without a name or another required attribute, or with a name that
/// is already defined is an error and left out. An `api-root` needs no name and replaces an earlier
/// one; the caller has checked that there is none. The result only ends the function early and says
/// nothing: a stanza that is left out may return `Some`.
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
            add_unique(&mut config.authorization_rules, rule.name.clone(), rule, word, member, p);
        }
        // Zuul's documentation uses the shorter keyword.
        "authorization-role" | "role" => {
            let role = access::role(&body, p)?;
            add_unique(&mut config.authorization_roles, role.name.clone(), role, word, member, p);
        }
        "global-semaphore" => {
            let mut f = Fields::of(&body, "", p)?;
            let max = f.count("max", 1, p).unwrap_or(1);
            let name = f.required_name("name", p);
            f.finish(p);
            add_unique(&mut config.global_semaphores, name?, max, word, member, p);
        }
        "api-root" => {
            let mut f = Fields::of(&body, "", p)?;
            config.api_root = access::access(&mut f, p);
            f.finish(p);
        }
        other => {
            let keywords = [
                "tenant",
                "authorization-rule",
                "authorization-role",
                "global-semaphore",
                "api-root",
            ];
            let message = format!("\"{other}\" is not a kind of stanza in the main configuration");
            p.add(
                Diagnostic::new(DiagnosticKind::Syntax, member.start, member.end, message)
                    .suggesting(other, keywords),
            );
        }
    }
    Some(())
}

/// Takes the tenant's name; `None`, with an error, if it is absent, empty or no part of a path.
fn tenant_name(f: &mut Fields<'_>, p: &mut Diagnostics) -> Option<String> {
    let node = f.peek("name");
    let name = f.required_name("name", p)?;
    if !name.contains('/') && !matches!(name.as_str(), "." | "..") {
        return Some(name);
    }
    if let Some(node) = node {
        let message = format!(
            "\"{name}\" cannot be the name of a tenant: the name is one part of the path of URLs, \
             so it must not contain \"/\", and must not be \".\" or \"..\"; anything else is \
             allowed"
        );
        p.syntax(node, "name", message);
    }
    None
}

/// Reads a tenant; `None`, with an error, if it has no valid name or is no mapping. Other invalid
/// attributes are errors and keep their defaults, which for nodes, timeout and token lifetime are
/// Zuul's limits. Names of global semaphores, rules and roles are not checked here.
fn tenant(body: &Node, connections: &Connections, p: &mut Diagnostics) -> Option<TenantConfig> {
    let mut f = Fields::of(body, "", p)?;
    let name = tenant_name(&mut f, p);
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
    tenant.report_build_page = f.flag("report-build-page", p);
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

/// Takes the default Ansible version; `None` if it is absent or, with an error, neither text nor
/// number. An unsupported one is an error, but returned.
fn default_ansible_version(f: &mut Fields<'_>, p: &mut Diagnostics) -> Option<String> {
    let attribute = "default-ansible-version";
    let node = f.peek(attribute);
    let version = f.version(attribute, p)?;
    if let Some(node) = node.filter(|_| !is_ansible_version(&version)) {
        let message = format!(
            "Ansible version {version} is not supported; supported versions are {}",
            ANSIBLE_VERSIONS.join(" and ")
        );
        p.add(
            Diagnostic::new(DiagnosticKind::UnknownName, node.start, node.end, message)
                .about(attribute),
        );
    }
    Some(version)
}

/// Takes the list of connections in the attribute `attribute`; `None` if it is absent. Warns about
/// unknown ones, which stay in the list without effect; `timer` and `zuul` are known. Values that
/// are no text are errors and left out, so the list may be empty.
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
        let message = format!("Unknown connection named \"{name}\"; \"{attribute}\" ignores it");
        let diagnostic =
            Diagnostic::new(DiagnosticKind::UnknownName, node.start, node.end, message)
                .about(attribute);
        let names = connections.0.keys().map(|name| name.as_str()).chain(["timer", "zuul"]);
        p.add(diagnostic.suggesting(name, names).as_warning());
    }
    f.texts(attribute, p)
}

/// Adds a named object that may only be defined once. A second one is an error at `member` and left
/// out. `word` is the kind of object, for the message.
fn add_unique<T>(
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
        Entry::Occupied(existing) => {
            let message = format!("{word} \"{}\" is already defined", existing.key());
            p.add(Diagnostic::new(DiagnosticKind::Duplicate, member.start, member.end, message));
        }
    }
}

/// Takes the limit of a tenant in the attribute `name`; `None` for -1, which means no limit, as in
/// Zuul. Returns the default `usual` if it is absent, and, with an error, for any other value than
/// an integer of at least 0.
fn limit(f: &mut Fields<'_>, name: &'static str, usual: u32, p: &mut Diagnostics) -> Option<u32> {
    if f.peek(name).is_some_and(|node| node.value == Value::Int(-1)) {
        f.take(name);
        return None;
    }
    Some(f.count(name, 0, p).unwrap_or(usual))
}
