//! The parts of a job's definition that are lists or mappings of their own.

use super::combine::Combined;
use super::job::{JobStanza, PlaybookRef, RequiredProjectRef, RoleRef, RoleSource, SecretRef};
use super::read::{Fields, Problems, members, text, texts, untag, variable_name, variables};
use crate::yaml::{Node, Value};
use serde_json::{Map, Value as Json};
use sluice_model::job::{Dependency, SemaphoreUse};
use std::collections::BTreeMap;

/// Reads a list whose members are a bare name or a mapping.
fn named<T>(
    node: &Node,
    attribute: &str,
    p: &mut Problems,
    bare: impl Fn(String) -> T,
    full: impl Fn(&mut Fields<'_>, &mut Problems) -> Option<T>,
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

/// Reads `semaphores`, or the one `semaphore`.
pub(super) fn semaphores(attribute: &str, node: &Node, p: &mut Problems) -> Vec<SemaphoreUse> {
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
            Some(SemaphoreUse { name: f.required_text("name", p)?, resources_first })
        },
    )
}

pub(super) fn secrets(node: &Node, p: &mut Problems) -> Vec<SecretRef> {
    let list = named(
        node,
        "secrets",
        p,
        |name| SecretRef { secret: name.clone(), name, pass_to_parent: false },
        |f, p| {
            let pass_to_parent = f.flag("pass-to-parent", p).unwrap_or(false);
            let name = f.required("name", p).and_then(|node| variable_name(node, "secrets.name", p));
            let secret = f.required_text("secret", p);
            Some(SecretRef { name: name?, secret: secret?, pass_to_parent })
        },
    );
    if let Some(taken) = list.iter().find(|secret| matches!(secret.name.as_str(), "zuul" | "nodepool")) {
        p.syntax(
            node,
            "secrets",
            format!("Secrets named \"zuul\" or \"nodepool\" are not allowed, but \"{}\" is", taken.name),
        );
    }
    list
}

pub(super) fn playbooks(node: &Node, attribute: &str, p: &mut Problems) -> Vec<PlaybookRef> {
    named(
        node,
        attribute,
        p,
        |path| PlaybookRef { path, semaphores: Vec::new(), cleanup: false },
        |f, p| {
            let semaphores = f.texts("semaphores", p).unwrap_or_default();
            let cleanup = if attribute == "post-run" { f.flag("cleanup", p).unwrap_or(false) } else { false };
            Some(PlaybookRef { path: f.required_text("name", p)?, semaphores, cleanup })
        },
    )
}

pub(super) fn roles(node: &Node, p: &mut Problems) -> Vec<RoleRef> {
    let mut list = Vec::new();
    for member in members(node) {
        let Some(mut fields) = Fields::of(member, "roles", p) else {
            continue;
        };
        let name = fields.text("name", p);
        let zuul = fields.text("zuul", p).map(RoleSource::Zuul);
        let galaxy = fields.text("galaxy", p).map(RoleSource::Galaxy);
        match zuul.or(galaxy) {
            Some(source) => list.push(RoleRef { source, name }),
            None => p.syntax(member, "roles", "required key not provided: a role needs \"zuul\" or \"galaxy\""),
        }
        fields.finish(p);
    }
    list
}

/// Reads a value with what its tag says of it.
pub(super) fn combined<T>(node: &Node, read: impl FnOnce(&Node) -> T) -> Combined<T> {
    let (inner, combine) = untag(node);
    Combined { value: read(inner), combine }
}

/// Takes `override-checkout`, or the older `override-branch`.
pub(super) fn override_checkout(f: &mut Fields<'_>, p: &mut Problems) -> Option<String> {
    let (name, node) = f.one_of(&["override-checkout", "override-branch"], p)?;
    text(node, &f.path(name), p)
}

pub(super) fn required_projects(attribute: &str, node: &Node, p: &mut Problems) -> Vec<RequiredProjectRef> {
    named(
        node,
        attribute,
        p,
        |name| RequiredProjectRef { name, override_checkout: None },
        |f, p| {
            let override_checkout = override_checkout(f, p);
            Some(RequiredProjectRef { name: f.required_text("name", p)?, override_checkout })
        },
    )
}

pub(super) fn dependencies(node: &Node, p: &mut Problems) -> Vec<Dependency> {
    named(
        node,
        "dependencies",
        p,
        |name| Dependency { name: name.into(), soft: false },
        |f, p| {
            let soft = f.flag("soft", p).unwrap_or(false);
            Some(Dependency { name: f.required_text("name", p)?.into(), soft })
        },
    )
}

pub(super) fn variables_by_name(
    node: &Node,
    attribute: &str,
    p: &mut Problems,
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

/// Attributes that can be made final.
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

pub(super) fn attribute_control(node: &Node, p: &mut Problems) -> Vec<String> {
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

/// The seeds' `auth`: secrets, whether children get them, and storage (Z4.4, Z4.8).
pub(super) fn auth(node: &Node, job: &mut JobStanza, p: &mut Problems) {
    let Some(mut fields) = Fields::of(node, "auth", p) else {
        return;
    };
    job.auth_inherit = Some(fields.flag("inherit", p).unwrap_or(false));
    if let Some(list) = fields.take("secrets") {
        job.secrets.get_or_insert_default().extend(secrets(list, p));
    }
    if let Some(swift) = fields.take("swift") {
        let mut containers = Vec::new();
        for member in members(swift) {
            let Some(mut inner) = Fields::of(member, "auth.swift", p) else {
                continue;
            };
            containers.extend(inner.required_text("container", p).map(Json::String));
            inner.finish(p);
        }
        job.other.insert("auth-swift".to_owned(), Json::Array(containers));
    }
    fields.finish(p);
}

/// Takes what acts at run time only, each checked for its type, and keeps it as written.
pub(super) fn run_time(f: &mut Fields<'_>, other: &mut Map<String, Json>, p: &mut Problems) {
    let mut keep = |name: &str, value: Option<Json>| {
        if let Some(value) = value {
            other.insert(name.to_owned(), value);
        }
    };
    for name in ["failure-url", "success-url", "workspace", "host", "fingerprint"] {
        keep(name, f.text(name, p).map(Json::String));
    }
    for name in ["hold-following-changes", "ansible-split-streams"] {
        keep(name, f.flag(name, p).map(Json::Bool));
    }
    let failure_output = f.combined("failure-output", p, |node, at, p| Some(texts(node, at, p)));
    keep("failure-output", failure_output.map(|list| Json::from(list.value)));
    keep("preserve-home-paths", f.texts("preserve-home-paths", p).map(Json::from));
    for name in ["deduplicate", "workspace-checkout"] {
        let Some(node) = f.take(name) else { continue };
        match &node.value {
            Value::Bool(flag) => keep(name, Some(Json::Bool(*flag))),
            Value::Text(word) if word == "auto" => keep(name, Some(Json::from("auto"))),
            _ => p.expected(node, name, "a boolean or \"auto\""),
        }
    }
    keep("type", word(f, "type", &["regular", "initializer", "reporter"], p));
    keep("secret-exposure", word(f, "secret-exposure", &["ignore", "redact", "fail"], p));
    for name in ["include-projects", "exclude-projects"] {
        keep(
            name,
            f.combined(name, p, |node, at, p| Some(project_selectors(node, at, p))).map(|list| Json::from(list.value)),
        );
    }
    keep(
        "include-vars",
        f.combined("include-vars", p, |node, _, p| Some(include_vars(node, p))).map(|list| Json::from(list.value)),
    );
}

fn word(f: &mut Fields<'_>, name: &'static str, words: &[&'static str], p: &mut Problems) -> Option<Json> {
    let pairs: Vec<(&str, &'static str)> = words.iter().map(|word| (*word, *word)).collect();
    f.word(name, &pairs, p).map(Json::from)
}

fn project_selectors(node: &Node, attribute: &str, p: &mut Problems) -> Vec<Json> {
    named(
        node,
        attribute,
        p,
        |name| serde_json::json!({"type": "name", "name": name}),
        |f, p| {
            let kind = word(f, "type", &["name"], p).unwrap_or_else(|| Json::from("name"));
            if !f.has("name") {
                p.warning(f.node(), &f.path("name"), "a selector without a \"name\" selects no project");
            }
            Some(serde_json::json!({"type": kind, "name": f.text("name", p)}))
        },
    )
}

fn include_vars(node: &Node, p: &mut Problems) -> Vec<Json> {
    named(
        node,
        "include-vars",
        p,
        |name| serde_json::json!({"name": name, "required": true}),
        |f, p| {
            let project = f.text("project", p);
            let zuul_project = f.flag("zuul-project", p).unwrap_or(false);
            let required = f.flag("required", p).unwrap_or(true);
            let use_ref = f.flag("use-ref", p).unwrap_or(true);
            let name = f.required_text("name", p)?;
            Some(
                serde_json::json!({"name": name, "project": project, "zuul-project": zuul_project, "required": required, "use-ref": use_ref}),
            )
        },
    )
}
