//! Attributes of a job definition that only matter at run time. Names are not resolved.

use super::combine::Combined;
use super::job_parts::named;
use super::read::{Diagnostics, Fields, members, text, texts};
use crate::Pattern;
use crate::yaml::{Node, Value};
use serde::{Deserialize, Serialize};
use sluice_model::job::{
    ExternalHost, Fingerprint, HostLogin, JobKind, SecretExposure, Tristate, is_container_name,
    names_executor,
};

/// The maximum number of containers of one definition: each costs a call before each playbook.
const CONTAINERS_MAX: usize = 16;

/// The run-time attributes of a definition. `None` leaves one unset.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct RunTimeStanza {
    /// `type`: the kind of job, which decides when it runs.
    pub kind: Option<JobKind>,
    /// The link for a failure.
    pub failure_url: Option<String>,
    /// The link for a success.
    pub success_url: Option<String>,
    /// Whether following changes wait for it.
    pub hold_following_changes: Option<bool>,
    /// Whether the members of a bundle share one build.
    pub deduplicate: Option<Tristate>,
    /// Regular expressions for output that means failure.
    pub failure_output: Option<Combined<Vec<String>>>,
    /// What happens when a secret is exposed.
    pub secret_exposure: Option<SecretExposure>,
    /// Repositories in the workspace besides the required ones.
    pub include_projects: Option<Combined<Vec<Selector>>>,
    /// Repositories not in the workspace.
    pub exclude_projects: Option<Combined<Vec<Selector>>>,
    /// Variable files.
    pub include_vars: Option<Combined<Vec<IncludeVarsRef>>>,
    /// Whether standard output and error are separate.
    pub ansible_split_streams: Option<bool>,
    /// Whether repositories are checked out.
    pub workspace_checkout: Option<Tristate>,
    /// Paths in the home directory that this definition's playbooks preserve.
    pub preserve_home_paths: Option<Vec<String>>,
    /// The directory of the repositories (older `workspace`).
    pub workspace: Option<String>,
    /// The host that replaces nodes.
    pub host: Option<ExternalHost>,
    /// Object storage containers (older `auth: swift`).
    pub containers: Option<Vec<String>>,
}

/// Selects projects.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Selector {
    /// The project's name; a selector without one selects none.
    pub name: Option<String>,
}

/// A variable file as a job names it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct IncludeVarsRef {
    /// Its path within the repository.
    pub name: String,
    /// The repository; `None` for the definition's own.
    pub project: Option<String>,
    /// Whether it is the repository of the change.
    pub zuul_project: bool,
    /// Whether it must exist.
    pub required: bool,
    /// Whether the tested state of the repository is used.
    pub use_ref: bool,
}

impl RunTimeStanza {
    /// Returns the names of the run-time attributes set here that affect how a job runs. These may
    /// not change in a final job. Whether the job is final is not checked.
    pub(super) fn changes_execution(&self) -> impl Iterator<Item = &'static str> + use<> {
        let set = [
            ("type", self.kind.is_some()),
            ("secret-exposure", self.secret_exposure.is_some()),
            ("failure-output", self.failure_output.is_some()),
            ("include-projects", self.include_projects.is_some()),
            ("exclude-projects", self.exclude_projects.is_some()),
            ("include-vars", self.include_vars.is_some()),
            ("ansible-split-streams", self.ansible_split_streams.is_some()),
            ("workspace-checkout", self.workspace_checkout.is_some()),
            ("preserve-home-paths", self.preserve_home_paths.is_some()),
            ("workspace", self.workspace.is_some()),
            ("host", self.host.is_some()),
            ("auth", self.containers.is_some()),
        ];
        set.into_iter().filter(|(_, set)| *set).map(|(name, _)| name)
    }
}

/// Takes the run-time attributes of a job, except the containers, which `auth` has. Absent and,
/// with an error, invalid ones are unset. Invalid members of a list are errors and left out, except
/// invalid regular expressions, which are kept.
pub(super) fn read(f: &mut Fields<'_>, p: &mut Diagnostics) -> RunTimeStanza {
    let kinds = [
        ("regular", JobKind::Regular),
        ("initializer", JobKind::Initializer),
        ("reporter", JobKind::Reporter),
    ];
    let exposures = [
        ("ignore", SecretExposure::Ignore),
        ("redact", SecretExposure::Redact),
        ("fail", SecretExposure::Fail),
    ];
    RunTimeStanza {
        kind: f.word("type", &kinds, p),
        failure_url: f.text("failure-url", p),
        success_url: f.text("success-url", p),
        hold_following_changes: f.flag("hold-following-changes", p),
        deduplicate: choice(f, "deduplicate", p),
        failure_output: f
            .combined("failure-output", p, |node, at, p| Some(expressions(node, at, p))),
        secret_exposure: f.word("secret-exposure", &exposures, p),
        include_projects: f
            .combined("include-projects", p, |node, at, p| Some(selectors(node, at, p))),
        exclude_projects: f
            .combined("exclude-projects", p, |node, at, p| Some(selectors(node, at, p))),
        include_vars: f.combined("include-vars", p, |node, _, p| Some(include_vars(node, p))),
        ansible_split_streams: f.flag("ansible-split-streams", p),
        workspace_checkout: choice(f, "workspace-checkout", p),
        preserve_home_paths: f.texts("preserve-home-paths", p),
        workspace: f.text("workspace", p),
        host: host(f, p),
        containers: None,
    }
}

/// Takes a boolean or `auto`; `None` if it is absent, or, with an error, another value.
fn choice(f: &mut Fields<'_>, name: &'static str, p: &mut Diagnostics) -> Option<Tristate> {
    let node = f.take(name)?;
    match &node.value {
        Value::Bool(true) => Some(Tristate::Yes),
        Value::Bool(false) => Some(Tristate::No),
        Value::Text(word) if word == "auto" => Some(Tristate::Auto),
        _ => {
            p.expected(node, &f.path(name), "a boolean or \"auto\"");
            None
        }
    }
}

/// Reads a list of regular expressions as texts; a single one is a list of one. Invalid ones are
/// errors, but returned; values that are no text are errors and left out.
fn expressions(node: &Node, attribute: &str, p: &mut Diagnostics) -> Vec<String> {
    for one in members(node) {
        if let Some(wrong) = one.as_text().and_then(|text| Pattern::new(text).err()) {
            p.syntax(one, attribute, wrong.to_string());
        }
    }
    texts(node, attribute, p)
}

/// Reads a list of projects, each a name or a mapping with a name. A mapping without a name is
/// returned with a warning, one whose name is no text with an error; they select no project. Other
/// members are errors and left out.
fn selectors(node: &Node, attribute: &str, p: &mut Diagnostics) -> Vec<Selector> {
    named(
        node,
        attribute,
        p,
        |name| Selector { name: Some(name) },
        |f, p| {
            f.word("type", &[("name", ())], p);
            if !f.has("name") {
                p.warning(
                    f.node(),
                    &f.path("name"),
                    "a selector without a \"name\" selects no project",
                );
            }
            Some(Selector { name: f.text("name", p) })
        },
    )
}

/// Reads the variables files that a job includes, each a name or a mapping. Unless it says
/// otherwise, a file is required, and read in its tested state. Members without a name are errors
/// and left out. A member with both `project` and `zuul-project: true` is an error, but returned.
fn include_vars(node: &Node, p: &mut Diagnostics) -> Vec<IncludeVarsRef> {
    let plain = |name| IncludeVarsRef {
        name,
        project: None,
        zuul_project: false,
        required: true,
        use_ref: true,
    };
    named(node, "include-vars", p, plain, |f, p| {
        let project = f.text("project", p);
        let of_change = f.peek("zuul-project");
        let zuul_project = f.flag("zuul-project", p).unwrap_or(false);
        if let Some(node) = of_change.filter(|_| zuul_project && project.is_some()) {
            let message = "a file is the one of \"project\" or of the change's \
                           (\"zuul-project\"), but not both";
            p.syntax(node, "include-vars.zuul-project", message);
        }
        let required = f.flag("required", p).unwrap_or(true);
        let use_ref = f.flag("use-ref", p).unwrap_or(true);
        Some(IncludeVarsRef {
            name: f.required_name("name", p)?,
            project,
            zuul_project,
            required,
            use_ref,
        })
    })
}

/// Takes the older `host` with its `fingerprint` (Z8.1). `None` if both are absent, or, with an
/// error, if only one of them is present or one is invalid.
fn host(f: &mut Fields<'_>, p: &mut Diagnostics) -> Option<ExternalHost> {
    let (name, fingerprint) = (f.take("host"), f.take("fingerprint"));
    let (name, fingerprint) = match (name, fingerprint) {
        (None, None) => return None,
        (Some(name), Some(fingerprint)) => (name, fingerprint),
        (Some(given), None) => {
            p.syntax(
                given,
                "fingerprint",
                "required key not provided: a \"host\" requires the \"fingerprint\" of its key",
            );
            return None;
        }
        (None, Some(given)) => {
            p.syntax(
                given,
                "host",
                "required key not provided: a \"fingerprint\" requires a \"host\"",
            );
            return None;
        }
    };
    let name = host_name(name, p);
    let found = text(fingerprint, "fingerprint", p)?;
    let Some(fingerprint) = Fingerprint::parse(&found) else {
        let message = format!(
            "\"{found}\" is not a valid fingerprint: expected 16 bytes with colons between, or \
             SHA256:…"
        );
        p.syntax(fingerprint, "fingerprint", message);
        return None;
    };
    Some(ExternalHost { name: name?, fingerprint })
}

/// Reads the name of a host. `None`, with an error, if it is not one with an optional login and
/// port, or if it means the executor.
fn host_name(node: &Node, p: &mut Diagnostics) -> Option<String> {
    let name = text(node, "host", p)?;
    let message = match HostLogin::parse(&name) {
        None => format!("\"{name}\" is not a valid host: expected [user@]host[:port]"),
        Some(login) if names_executor(login.host) => {
            format!("\"{name}\" cannot be a host: it is the executor itself")
        }
        Some(_) => return Some(name),
    };
    p.syntax(node, "host", message);
    None
}

/// Reads the names of the older list of object storage containers (`auth: swift`), each once; a
/// single mapping is a list of one. Members that are not a mapping with the valid name of a
/// container are errors and left out, and so are those after the first 16.
pub(super) fn containers(node: &Node, p: &mut Diagnostics) -> Vec<String> {
    const NAME: &str = "auth.swift.container";
    let mut found: Vec<String> = Vec::new();
    for member in members(node) {
        let Some(mut inner) = Fields::of(member, "auth.swift", p) else {
            continue;
        };
        let at = inner.peek("container").unwrap_or(member);
        if let Some(name) = inner.required_text("container", p).filter(|name| !found.contains(name))
        {
            if !is_container_name(&name) {
                let message = format!(
                    "\"{name}\" can not be the name of a container: expected 1 to 63 letters, \
                     digits, \".\", \"_\" and \"-\", first a letter or digit, without \"..\""
                );
                p.syntax(at, NAME, message);
            } else if found.len() == CONTAINERS_MAX {
                let message =
                    format!("a job can have credentials for at most {CONTAINERS_MAX} containers");
                p.syntax(at, NAME, message);
            } else {
                found.push(name);
            }
        }
        inner.finish(p);
    }
    found
}
