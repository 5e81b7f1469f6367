//! Parts of a job definition that are lists or mappings themselves.

use super::combine::Combined;
use super::job::{JobStanza, PlaybookRef, RequiredProjectRef, RoleRef, RoleSource, SecretRef};
use super::read::{Diagnostics, Fields, members, text, untag, variable_name, variables};
use crate::yaml::{Node, Value};
use serde_json::{Map, Value as Json};
use sluice_model::job::{GalaxyRequirement, JobDependency, SemaphoreUse};
use std::collections::BTreeMap;

/// Reads a list whose members are a name, from which `bare` makes the result, or a mapping, from
/// whose attributes `full` does; a single member is a list of one. Other members are errors and
/// left out. A mapping for which `full` returns none is left out, without an error of its own.
/// Attributes that `full` does not take are errors.
pub(super) fn named<T>(
    node: &Node,
    attribute: &str,
    p: &mut Diagnostics,
    bare: impl Fn(String) -> T,
    full: impl Fn(&mut Fields<'_>, &mut Diagnostics) -> Option<T>,
) -> Vec<T> {
    let mut list = Vec::new();
    for member in members(node) {
        match &member.value {
            Value::Text(name) => list.push(bare(name.clone())),
            Value::Map(_) => {
                let Some(mut fields) = Fields::of(member, attribute, p) else {
                    continue;
                };
                list.extend(full(&mut fields, p));
                fields.finish(p);
            }
            _ => p.expected(member, attribute, "a name or a mapping"),
        }
    }
    list
}

/// Reads `semaphores`, or the older `semaphore`; `attribute` says which. Invalid members are errors
/// and left out. For `semaphore`, a list is an error and empty.
pub(super) fn semaphores(attribute: &str, node: &Node, p: &mut Diagnostics) -> Vec<SemaphoreUse> {
    if attribute == "semaphore" && node.as_list().is_some() {
        p.expected(node, attribute, "a name or a mapping");
        return Vec::new();
    }
    named(
        node,
        attribute,
        p,
        |name| SemaphoreUse { name, resources_first: false },
        |f, p| {
            let resources_first = f.flag("resources-first", p).unwrap_or(false);
            Some(SemaphoreUse { name: f.required_name("name", p)?, resources_first })
        },
    )
}

/// Reads the secrets of a job, each with the variable that gets it; a bare name is both. Members
/// without a `secret` or a valid `name` are errors and left out. The names `zuul` and `nodepool`
/// are errors, but returned. A bare name is not checked to be a variable's name.
pub(super) fn secrets(node: &Node, p: &mut Diagnostics) -> Vec<SecretRef> {
    let list = named(
        node,
        "secrets",
        p,
        |name| SecretRef { secret: name.clone(), name, pass_to_parent: false },
        |f, p| {
            let pass_to_parent = f.flag("pass-to-parent", p).unwrap_or(false);
            let name =
                f.required("name", p).and_then(|node| variable_name(node, "secrets.name", p));
            let secret = f.required_text("secret", p);
            Some(SecretRef { name: name?, secret: secret?, pass_to_parent })
        },
    );
    for member in members(node) {
        let named = member.get("name").unwrap_or(member);
        if let Some(taken @ ("zuul" | "nodepool")) = named.as_text() {
            let message = format!(
                "Secrets named \"zuul\" or \"nodepool\" are not allowed, but \"{taken}\" is"
            );
            p.syntax(named, "secrets", message);
        }
    }
    list
}

/// Reads a list of playbooks. `attribute` is the name of the list: only in `post-run` a playbook
/// may have `cleanup`. Members without a path are errors and left out; invalid attributes are
/// errors and unset.
pub(super) fn playbooks(node: &Node, attribute: &str, p: &mut Diagnostics) -> Vec<PlaybookRef> {
    named(
        node,
        attribute,
        p,
        |path| PlaybookRef { path, semaphores: Vec::new(), cleanup: false },
        |f, p| {
            let semaphores = f.texts("semaphores", p).unwrap_or_default();
            let cleanup =
                if attribute == "post-run" { f.flag("cleanup", p).unwrap_or(false) } else { false };
            Some(PlaybookRef { path: f.required_name("name", p)?, semaphores, cleanup })
        },
    )
}

/// Reads roles: mappings with either `zuul` or `galaxy`; a single mapping is a list of one. Members
/// with both or neither, and other values, are errors and left out. What `ansible-galaxy` must not
/// install is an error.
pub(super) fn roles(node: &Node, p: &mut Diagnostics) -> Vec<RoleRef> {
    let mut list = Vec::new();
    for member in members(node) {
        let Some(mut fields) = Fields::of(member, "roles", p) else {
            continue;
        };
        let name = fields.text("name", p);
        let zuul = fields.text("zuul", p).map(RoleSource::Zuul);
        let galaxy = fields.text("galaxy", p).map(RoleSource::Galaxy);
        match (zuul, galaxy) {
            (Some(_), Some(_)) => {
                p.syntax(member, "roles", "a role has either \"zuul\" or \"galaxy\", not both")
            }
            (None, Some(RoleSource::Galaxy(role))) => {
                if let Err(refusal) = GalaxyRequirement::new(&role, name.as_deref()) {
                    let message = format!("the role \"{role}\" cannot be installed: {refusal}");
                    p.syntax(member, "roles", message);
                }
                list.push(RoleRef { source: RoleSource::Galaxy(role), name });
            }
            (Some(source), None) | (None, Some(source)) => list.push(RoleRef { source, name }),
            (None, None) => p.syntax(
                member,
                "roles",
                "required key not provided: a role needs \"zuul\" or \"galaxy\"",
            ),
        }
        fields.finish(p);
    }
    list
}

/// Reads a value with its control tag, if it has one (`!override`, `!inherit`). `read` gets the
/// value without the tag.
pub(super) fn combined<T>(node: &Node, read: impl FnOnce(&Node) -> T) -> Combined<T> {
    let (inner, combine) = untag(node);
    Combined { value: read(inner), combine }
}

/// Takes `override-checkout` or the older `override-branch`; `None` if both are absent, or, with an
/// error, if the value is no text. Both are an error, and the former counts.
pub(super) fn override_checkout(f: &mut Fields<'_>, p: &mut Diagnostics) -> Option<String> {
    let (name, node) = f.one_of(&["override-checkout", "override-branch"], p)?;
    text(node, &f.path(name), p)
}

/// Reads the projects to check out in addition, each a name or a mapping. Members without a name
/// are errors and left out; an invalid branch is an error and unset. `attribute` is for messages.
/// Whether the projects exist is not checked.
pub(super) fn required_projects(
    attribute: &str,
    node: &Node,
    p: &mut Diagnostics,
) -> Vec<RequiredProjectRef> {
    named(
        node,
        attribute,
        p,
        |name| RequiredProjectRef { name, override_checkout: None },
        |f, p| {
            let override_checkout = override_checkout(f, p);
            Some(RequiredProjectRef { name: f.required_name("name", p)?, override_checkout })
        },
    )
}

/// Reads the jobs that a job depends on, each a name or a mapping; a dependency is soft only if a
/// mapping says so. Members without a name are errors and left out. Whether the jobs exist is not
/// checked.
pub(super) fn dependencies(node: &Node, p: &mut Diagnostics) -> Vec<JobDependency> {
    named(
        node,
        "dependencies",
        p,
        |name| JobDependency { name: name.into(), soft: false },
        |f, p| {
            let soft = f.flag("soft", p).unwrap_or(false);
            Some(JobDependency { name: f.required_name("name", p)?.into(), soft })
        },
    )
}

/// Reads variables by host or group. `None`, with an error, if `node` is not a mapping; an entry
/// with an unreadable name or variables is left out, with an error.
pub(super) fn variables_by_name(
    node: &Node,
    attribute: &str,
    p: &mut Diagnostics,
) -> Option<BTreeMap<String, Map<String, Json>>> {
    let Some(map) = node.as_map() else {
        p.expected(node, attribute, "a mapping of names to variables");
        return None;
    };
    let mut by_name = BTreeMap::new();
    for (name, value) in map {
        let Some(name) = text(name, attribute, p) else { continue };
        if let Some(variables) = variables(value, &format!("{attribute}.{name}"), p) {
            by_name.insert(name, variables);
        }
    }
    Some(by_name)
}

/// Attributes that `attribute-control` can make final.
const CONTROLLED: [&str; 19] = [
    "requires",
    "provides",
    "tags",
    "files",
    "irrelevant-files",
    "required-projects",
    "include-projects",
    "exclude-projects",
    "vars",
    "extra-vars",
    "host-vars",
    "group-vars",
    "include-vars",
    "dependencies",
    "failure-output",
    "type",
    "pre-run",
    "run",
    "post-run",
];

/// Reads `attribute-control` and returns the names of the attributes that it makes final. An
/// attribute without `final` is left out, without an error. Unknown attributes, another value than
/// `final: true`, and a value that is no mapping are errors and left out.
pub(super) fn attribute_control(node: &Node, p: &mut Diagnostics) -> Vec<String> {
    let mut names = Vec::new();
    let Some(mut fields) = Fields::of(node, "attribute-control", p) else {
        return names;
    };
    for name in CONTROLLED.into_iter().chain(["voting"]) {
        let Some(control) = fields.take(name) else {
            continue;
        };
        let Some(mut inner) = Fields::of(control, name, p) else {
            continue;
        };
        match inner.flag("final", p) {
            Some(true) => names.push(name.to_owned()),
            Some(false) => p.syntax(control, "attribute-control", "\"final\" can only be true"),
            None => {}
        }
        inner.finish(p);
    }
    fields.finish(p);
    names
}

/// Reads the older `auth` into `job`: appends its secrets, sets whether children inherit them (by
/// default not), and sets the storage containers, if it has any (Z4.4, Z4.8). Changes nothing, with
/// an error, if it is not a mapping. Call it after the job's own secrets and run-time attributes
/// were set.
pub(super) fn auth(node: &Node, job: &mut JobStanza, p: &mut Diagnostics) {
    let Some(mut fields) = Fields::of(node, "auth", p) else {
        return;
    };
    job.auth_inherit = Some(fields.flag("inherit", p).unwrap_or(false));
    if let Some(list) = fields.take("secrets") {
        job.secrets.get_or_insert_default().extend(secrets(list, p));
    }
    if let Some(swift) = fields.take("swift") {
        job.run_time.containers = Some(super::run_time::containers(swift, p));
    }
    fields.finish(p);
}
