//! The definition of a job, or of a variant of one: a `job` stanza or an entry of a project's job
//! list.

use super::combine::Combined;
use super::nodeset::{self, NodesetBody};
use super::read::{Diagnostics, Fields, members, patterns, texts, variables};
use super::run_time::RunTimeStanza;
use super::spans::{self, AttributeSpans};
use super::{Span, job_parts};
use crate::Pattern;
use crate::yaml::{Node, Value};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};
use sluice_model::job::{JobDependency, SemaphoreUse, WorkspaceScheme};
use std::collections::BTreeMap;

/// A definition of a job. `None` leaves an attribute unset.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct JobStanza {
    /// The job's name; a project's entry may be a pattern of none.
    pub name: String,
    /// The span of the definition.
    pub span: Span,
    /// The spans of its attributes.
    #[serde(skip_serializing_if = "AttributeSpans::is_empty")]
    pub spans: AttributeSpans,
    /// The job it inherits from.
    pub parent: Parent,
    /// Whether no other definition may change it.
    #[serde(rename = "final")]
    pub is_final: Option<bool>,
    /// Whether it can only be a parent.
    #[serde(rename = "abstract")]
    pub is_abstract: Option<bool>,
    /// Whether only jobs of its own project may inherit from it.
    pub protected: Option<bool>,
    /// Whether only abstract jobs may inherit from it.
    pub intermediate: Option<bool>,
    /// Artifact types it requires.
    pub requires: Option<Combined<Vec<String>>>,
    /// Artifact types it provides.
    pub provides: Option<Combined<Vec<String>>>,
    /// Tags, for information.
    pub tags: Option<Combined<Vec<String>>>,
    /// The text that a report shows for success.
    pub success_message: Option<String>,
    /// The text that a report shows for failure.
    pub failure_message: Option<String>,
    /// Whether its result counts.
    pub voting: Option<bool>,
    /// Semaphores it holds.
    pub semaphores: Option<Vec<SemaphoreUse>>,
    /// The branches it applies to.
    pub branches: Option<Vec<Pattern>>,
    /// File patterns, one of which must match a changed file.
    pub files: Option<Combined<Vec<Pattern>>>,
    /// File patterns that do not make it run by themselves.
    pub irrelevant_files: Option<Combined<Vec<Pattern>>>,
    /// Secrets for its playbooks.
    pub secrets: Option<Vec<SecretRef>>,
    /// Whether children may use its secrets (`inherit` in `auth`, Z4.4); `None` if unset.
    pub auth_inherit: Option<bool>,
    /// Its nodes.
    pub nodeset: Option<NodesetRef>,
    /// Timeout of the pre-run playbooks in seconds.
    pub pre_timeout_seconds: Option<u64>,
    /// Timeout in seconds.
    pub timeout_seconds: Option<u64>,
    /// Timeout of each post-run playbook in seconds.
    pub post_timeout_seconds: Option<u64>,
    /// Maximum number of attempts.
    pub attempts: Option<u32>,
    /// Playbooks to run before.
    pub pre_run: Option<Vec<PlaybookRef>>,
    /// Playbooks to run after.
    pub post_run: Option<Vec<PlaybookRef>>,
    /// The main playbooks.
    pub run: Option<Vec<PlaybookRef>>,
    /// Repositories with roles.
    pub roles: Option<Vec<RoleRef>>,
    /// Repositories in the workspace.
    pub required_projects: Option<Combined<Vec<RequiredProjectRef>>>,
    /// Variables for all hosts.
    pub vars: Option<Combined<Map<String, Json>>>,
    /// Variables with precedence over all others.
    pub extra_vars: Option<Combined<Map<String, Json>>>,
    /// Variables by host.
    pub host_vars: Option<Combined<BTreeMap<String, Map<String, Json>>>>,
    /// Variables by group.
    pub group_vars: Option<Combined<BTreeMap<String, Map<String, Json>>>>,
    /// Jobs it depends on.
    pub dependencies: Option<Combined<Vec<JobDependency>>>,
    /// The only projects that may run it.
    pub allowed_projects: Option<Vec<String>>,
    /// The branch to check out, and to match definitions by, in projects that have it.
    pub override_checkout: Option<String>,
    /// A description of the job.
    pub description: Option<String>,
    /// A description of this variant.
    pub variant_description: Option<String>,
    /// Whether it may only run after review.
    pub post_review: Option<bool>,
    /// Whether it runs when a change modifies its definition, regardless of file matchers.
    pub match_on_config_updates: Option<bool>,
    /// The layout of the workspace.
    pub workspace_scheme: Option<WorkspaceScheme>,
    /// The Ansible version.
    pub ansible_version: Option<String>,
    /// The image it builds.
    pub image_build_name: Option<String>,
    /// Attributes that no later definition may set.
    pub final_attributes: Vec<String>,
    /// Attributes that only matter at run time.
    pub run_time: RunTimeStanza,
}

/// The job that a job inherits from.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Parent {
    /// Unset: the tenant's default parent, or none for a further variant.
    #[default]
    Unset,
    /// `null`: a base job.
    Base,
    /// A job.
    Named(String),
}

/// A secret that a job uses.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SecretRef {
    /// The variable that holds it.
    pub name: String,
    /// The secret's name.
    pub secret: String,
    /// Whether the parents' playbooks see it too.
    #[serde(default)]
    pub pass_to_parent: bool,
}

/// The nodes of a job: a nodeset's name, or an inline nodeset.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NodesetRef {
    /// A nodeset's name.
    Named(String),
    /// Nodes and groups, or alternatives.
    Inline(NodesetBody),
}

/// A playbook as a job names it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlaybookRef {
    /// Its path as written; suffix and directory may be missing (Z4.9).
    pub path: String,
    /// Semaphores held while it runs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub semaphores: Vec<String>,
    /// Whether it also runs for an aborted build.
    #[serde(default)]
    pub cleanup: bool,
}

/// A role repository as a job names it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RoleRef {
    /// The project, or what `ansible-galaxy` installs.
    pub source: RoleSource,
    /// The name of its directory.
    pub name: Option<String>,
}

/// The source of roles (Z4.6).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RoleSource {
    /// A project of the tenant.
    Zuul(String),
    /// What `ansible-galaxy` installs, as written.
    Galaxy(String),
}

/// A required project as a job names it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequiredProjectRef {
    /// The project's name, short or canonical.
    pub name: String,
    /// Branch to check out where it exists.
    pub override_checkout: Option<String>,
}

impl Default for JobStanza {
    fn default() -> Self {
        Self::named("", Span::default())
    }
}

impl JobStanza {
    /// Returns a definition in which only the name and the span are set.
    pub fn named(name: &str, span: Span) -> Self {
        Self {
            name: name.to_owned(),
            span,
            spans: AttributeSpans::default(),
            parent: Parent::Unset,
            is_final: None,
            is_abstract: None,
            protected: None,
            intermediate: None,
            requires: None,
            provides: None,
            tags: None,
            success_message: None,
            failure_message: None,
            voting: None,
            semaphores: None,
            branches: None,
            files: None,
            irrelevant_files: None,
            secrets: None,
            auth_inherit: None,
            nodeset: None,
            pre_timeout_seconds: None,
            timeout_seconds: None,
            post_timeout_seconds: None,
            attempts: None,
            pre_run: None,
            post_run: None,
            run: None,
            roles: None,
            required_projects: None,
            vars: None,
            extra_vars: None,
            host_vars: None,
            group_vars: None,
            dependencies: None,
            allowed_projects: None,
            override_checkout: None,
            description: None,
            variant_description: None,
            post_review: None,
            match_on_config_updates: None,
            workspace_scheme: None,
            ansible_version: None,
            image_build_name: None,
            final_attributes: Vec::new(),
            run_time: RunTimeStanza::default(),
        }
    }

    /// Returns the names of the attributes set here, run-time attributes included, that affect how
    /// a job runs. These may not change in a final job. Whether the job is final is not checked.
    pub fn changes_execution(&self) -> Vec<&'static str> {
        let set = [
            ("parent", self.parent != Parent::Unset),
            ("semaphores", self.semaphores.is_some()),
            ("secrets", self.secrets.is_some()),
            ("nodeset", self.nodeset.is_some()),
            ("pre-timeout", self.pre_timeout_seconds.is_some()),
            ("timeout", self.timeout_seconds.is_some()),
            ("post-timeout", self.post_timeout_seconds.is_some()),
            ("attempts", self.attempts.is_some()),
            ("pre-run", self.pre_run.is_some()),
            ("post-run", self.post_run.is_some()),
            ("run", self.run.is_some()),
            ("roles", self.roles.is_some()),
            ("required-projects", self.required_projects.is_some()),
            ("vars", self.vars.is_some()),
            ("extra-vars", self.extra_vars.is_some()),
            ("host-vars", self.host_vars.is_some()),
            ("group-vars", self.group_vars.is_some()),
            ("allowed-projects", self.allowed_projects.is_some()),
            ("override-checkout", self.override_checkout.is_some()),
            ("post-review", self.post_review.is_some()),
            ("workspace-scheme", self.workspace_scheme.is_some()),
            ("ansible-version", self.ansible_version.is_some()),
            ("image-build-name", self.image_build_name.is_some()),
        ];
        let changing = set.into_iter().filter(|(_, set)| *set).map(|(name, _)| name);
        changing.chain(self.run_time.changes_execution()).collect()
    }
}

/// Takes all attributes of a job from `fields`, and returns the definition; unknown ones stay
/// there. Absent and, with an error, invalid ones are unset, and invalid members of lists are left
/// out; a few wrong values are errors, but kept, such as `intermediate` in a job that is not
/// abstract. Older names are read like the current ones. The caller has taken the attributes `name`
/// and, in a job list, `jobs`, and no other.
pub(crate) fn read(
    name: &str,
    span: Span,
    fields: &mut Fields<'_>,
    p: &mut Diagnostics,
) -> JobStanza {
    let f = fields;
    let mut job = JobStanza::named(name, span);
    job.spans = spans::of_job(f);
    job.parent = match f.take("parent") {
        None => Parent::Unset,
        Some(node) if node.is_null() => Parent::Base,
        Some(node) => super::read::text(node, "parent", p).map_or(Parent::Unset, Parent::Named),
    };
    job.is_final = f.flag("final", p);
    let says_abstract = f.has("abstract");
    job.is_abstract = f.flag("abstract", p);
    job.protected = f.flag("protected", p);
    let intermediate = f.peek("intermediate");
    job.intermediate = f.flag("intermediate", p);
    // If `abstract` could not be read, that error suffices.
    let is_concrete = job.is_abstract == Some(false) || !says_abstract;
    if let Some(node) = intermediate.filter(|_| job.intermediate == Some(true) && is_concrete) {
        p.syntax(node, "intermediate", "An intermediate job must also be abstract");
    }
    job.requires = f.combined("requires", p, |node, at, p| Some(texts(node, at, p)));
    job.provides = f.combined("provides", p, |node, at, p| Some(texts(node, at, p)));
    job.tags = f.combined("tags", p, |node, at, p| Some(texts(node, at, p)));
    job.success_message = f.text("success-message", p);
    job.failure_message = f.text("failure-message", p);
    job.voting = f.flag("voting", p);
    job.semaphores = f
        .one_of(&["semaphores", "semaphore"], p)
        .map(|(name, node)| job_parts::semaphores(name, node, p));
    job.branches = f.patterns("branches", p);
    job.files = f.combined("files", p, |node, at, p| Some(patterns(node, at, p)));
    job.irrelevant_files =
        f.combined("irrelevant-files", p, |node, at, p| Some(patterns(node, at, p)));
    job.secrets = f.take("secrets").map(|node| job_parts::secrets(node, p));
    job.nodeset =
        f.one_of(&["nodeset", "nodes"], p).and_then(|(name, node)| nodeset_ref(name, node, p));
    job.pre_timeout_seconds = f.seconds("pre-timeout", p);
    job.timeout_seconds = f.seconds("timeout", p);
    job.post_timeout_seconds = f.seconds("post-timeout", p);
    job.attempts = f.count("attempts", 1, p);
    job.pre_run = f.take("pre-run").map(|node| job_parts::playbooks(node, "pre-run", p));
    job.post_run = f.take("post-run").map(|node| job_parts::playbooks(node, "post-run", p));
    job.run = f.take("run").map(|node| job_parts::playbooks(node, "run", p));
    if let Some(node) = f.take("cleanup-run") {
        let cleanup = job_parts::playbooks(node, "cleanup-run", p)
            .into_iter()
            .map(|playbook| PlaybookRef { cleanup: true, ..playbook });
        job.post_run.get_or_insert_default().extend(cleanup);
    }
    job.roles = f.take("roles").map(|node| job_parts::roles(node, p));
    job.required_projects = f.one_of(&["required-projects", "repos"], p).map(|(name, node)| {
        job_parts::combined(node, |node| job_parts::required_projects(name, node, p))
    });
    job.vars = f.combined("vars", p, variables);
    job.extra_vars = f.combined("extra-vars", p, variables);
    job.host_vars = f.combined("host-vars", p, job_parts::variables_by_name);
    job.group_vars = f.combined("group-vars", p, job_parts::variables_by_name);
    job.dependencies =
        f.combined("dependencies", p, |node, _, p| Some(job_parts::dependencies(node, p)));
    job.allowed_projects = f.texts("allowed-projects", p);
    job.override_checkout = job_parts::override_checkout(f, p);
    job.description = f.text("description", p);
    job.variant_description = f.text("variant-description", p);
    job.post_review = match (f.peek("post-review"), f.flag("post-review", p)) {
        (Some(node), Some(false)) => {
            let message = "once set, the post-review attribute may not be unset; remove this line";
            p.warning(node, "post-review", message);
            Some(false)
        }
        (_, said) => said,
    };
    job.match_on_config_updates = f.flag("match-on-config-updates", p);
    job.workspace_scheme = f.word(
        "workspace-scheme",
        &[
            ("golang", WorkspaceScheme::Golang),
            ("flat", WorkspaceScheme::Flat),
            ("unique", WorkspaceScheme::Unique),
        ],
        p,
    );
    job.ansible_version = f.version("ansible-version", p);
    job.image_build_name = f.text("image-build-name", p);
    job.final_attributes = f
        .take("attribute-control")
        .map(|node| job_parts::attribute_control(node, p))
        .unwrap_or_default();
    job.run_time = super::run_time::read(f, p);
    if let Some(node) = f.take("auth") {
        job_parts::auth(node, &mut job, p);
    }
    job
}

/// Reads the name of a nodeset, or inline nodes; `None`, with an error, for another value.
/// `attribute` is the attribute's name: for the older `nodes` the value may also be the list of
/// nodes itself. Whether the nodeset exists is not checked.
fn nodeset_ref(attribute: &str, node: &Node, p: &mut Diagnostics) -> Option<NodesetRef> {
    match &node.value {
        Value::Text(name) => Some(NodesetRef::Named(name.clone())),
        // The seeds' `nodes` may be the list itself.
        Value::List(_) if attribute == "nodes" => {
            Some(NodesetRef::Inline(NodesetBody::Nodes(nodeset::nodes_only(members(node), p))))
        }
        Value::Map(_) => nodeset::body(node, p).map(NodesetRef::Inline),
        _ => {
            p.expected(node, attribute, "a nodeset's name, or nodes");
            None
        }
    }
}
