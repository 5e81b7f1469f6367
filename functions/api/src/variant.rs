//! A variant of a job in Zuul's format. Secrets are shown by name only (Z5.4).

use crate::configuration::stanzas;
use serde_json::{Map, Value, json};
use sluice_config::Pattern;
use sluice_config::fragment::Source;
use sluice_config::layout::Layout;
use sluice_config::objects::{
    Alternative, Combined, JobStanza, NodesetBody, NodesetRef, Parent, PlaybookRef, RoleSource,
    Selector, Stanza,
};
use sluice_model::job::{NodeSet, WorkspaceCheckout, WorkspaceScheme};

/// Returns a variant of a job in the shape that Zuul's API has. What it does not set is shown with
/// Zuul's default, or null. A nodeset that is not defined is left out, and of secrets only the
/// names are shown.
pub(crate) fn json(layout: &Layout, source: &Source, job: &JobStanza) -> Value {
    let list = |combined: &Option<Combined<Vec<String>>>| {
        combined.as_ref().map(|list| list.value.clone()).unwrap_or_default()
    };
    let patterns = |combined: &Option<Combined<Vec<Pattern>>>| {
        combined.as_ref().map(|list| texts(&list.value)).unwrap_or_default()
    };
    let roles = roles(layout, source, job);
    let playbooks = |list: &Option<Vec<PlaybookRef>>, cleanup: bool| {
        let chosen = list.iter().flatten().filter(|playbook| playbook.cleanup == cleanup);
        chosen.map(|one| playbook(source, job, &roles, one)).collect::<Vec<_>>()
    };
    let required = job.required_projects.iter().flat_map(|list| &list.value).map(|required| {
        let name = layout
            .project(&required.name)
            .map_or(required.name.as_str(), |project| project.name.name());
        let mut shown = Map::new();
        shown.insert("project_name".into(), json!(name));
        if let Some(branch) = &required.override_checkout {
            shown.insert("override_checkout".into(), json!(branch));
        }
        Value::Object(shown)
    });
    let run_time = &job.run_time;
    let selectors = |combined: &Option<Combined<Vec<Selector>>>| {
        combined.as_ref().map(|list| {
            list.value
                .iter()
                .map(|one| json!({"type": "name", "name": one.name}))
                .collect::<Vec<_>>()
        })
    };
    let files = run_time.include_vars.iter().flat_map(|list| &list.value);
    let files = files.map(|file| {
        json!({"name": file.name, "project_name": file.project, "required": file.required, "use_ref": file.use_ref})
    });
    let dependencies = job.dependencies.iter().flat_map(|list| &list.value);
    let mut shown = json!({
        "name": job.name,
        "parent": parent(layout, job),
        "description": job.description,
        "variant_description": job.variant_description,
        "branches": job.branches.as_ref().map(|branches| texts(branches)),
        "source_context": source_context(source),
        "files": patterns(&job.files),
        "irrelevant_files": patterns(&job.irrelevant_files),
        "override_checkout": job.override_checkout,
        "required_projects": required.collect::<Vec<_>>(),
        "include_projects": selectors(&run_time.include_projects),
        "exclude_projects": selectors(&run_time.exclude_projects),
        "semaphores": job.semaphores.iter().flatten().collect::<Vec<_>>(),
        "variables": job.vars.as_ref().map(|vars| vars.value.clone()).unwrap_or_default(),
        "extra_variables": job.extra_vars.as_ref().map(|vars| vars.value.clone()).unwrap_or_default(),
        "host_variables": job.host_vars.as_ref().map(|vars| vars.value.clone()).unwrap_or_default(),
        "group_variables": job.group_vars.as_ref().map(|vars| vars.value.clone()).unwrap_or_default(),
        "include_vars": files.collect::<Vec<_>>(),
        "final": job.is_final.unwrap_or(false),
        "abstract": job.is_abstract.unwrap_or(false),
        "intermediate": job.intermediate.unwrap_or(false),
        "protected": job.protected,
        "voting": job.voting.unwrap_or(true),
        "pre_timeout": job.pre_timeout_seconds,
        "timeout": job.timeout_seconds,
        "post_timeout": job.post_timeout_seconds,
        "tags": list(&job.tags),
        "provides": list(&job.provides),
        "requires": list(&job.requires),
        "dependencies": dependencies.collect::<Vec<_>>(),
        "attempts": job.attempts.unwrap_or(3),
        "roles": roles,
        "run": playbooks(&job.run, false),
        "pre_run": playbooks(&job.pre_run, false),
        "post_run": playbooks(&job.post_run, false),
        "cleanup_run": playbooks(&job.post_run, true),
        "post_review": job.post_review,
        "match_on_config_updates": job.match_on_config_updates.unwrap_or(true),
        "deduplicate": run_time.deduplicate.unwrap_or_default(),
        "failure_output": list(&run_time.failure_output),
        "image_build_name": job.image_build_name,
        "type": run_time.kind.unwrap_or_default(),
        "secret_exposure": run_time.secret_exposure.unwrap_or_default(),
        "ansible_version": job.ansible_version,
        "ansible_split_streams": run_time.ansible_split_streams,
        "workspace_scheme": job.workspace_scheme.unwrap_or(WorkspaceScheme::Golang),
        "workspace_checkout": run_time.workspace_checkout.map(WorkspaceCheckout).unwrap_or_default(),
    });
    if let Some(map) = shown.as_object_mut()
        && let Some((key, value)) = job.nodeset.as_ref().and_then(|nodeset| nodes(layout, nodeset))
    {
        map.insert(key.to_owned(), value);
    }
    shown
}

/// Returns the name of the parent job of a variant, the tenant's default one if it names none;
/// `None` for a base job, and for the default parent itself if it names none.
pub(crate) fn parent<'a>(layout: &'a Layout, job: &'a JobStanza) -> Option<&'a str> {
    match &job.parent {
        Parent::Named(name) => Some(name),
        Parent::Base => None,
        Parent::Unset => {
            Some(layout.tenant().default_parent.as_str()).filter(|parent| *parent != job.name)
        }
    }
}

/// Returns the texts of patterns.
pub(crate) fn texts(patterns: &[Pattern]) -> Vec<String> {
    patterns.iter().map(|pattern| pattern.as_str().to_owned()).collect()
}

/// Returns the project, branch and file of a definition.
pub(crate) fn source_context(source: &Source) -> Value {
    json!({"project": source.project.name(), "branch": source.branch, "path": source.path})
}

/// Returns a nodeset with its nodes and groups.
pub(crate) fn nodeset(set: &NodeSet) -> Value {
    let nodes = set.nodes.iter().map(|node| {
        json!({
            "name": node.names.first(),
            "aliases": node.names.get(1..).unwrap_or_default(),
            "label": node.label,
            "id": null,
            "state": "unknown",
            "hold_job": null,
            "comment": null,
            "user_data": null,
            "tenant_name": null,
            "requestor": null,
        })
    });
    json!({"name": set.name, "nodes": nodes.collect::<Vec<_>>(), "groups": set.groups, "alternatives": []})
}

/// Returns the role repositories of a variant, with the implicit one of its project if it has
/// playbooks. Roles of unknown projects are left out.
fn roles(layout: &Layout, source: &Source, job: &JobStanza) -> Vec<Value> {
    let implicit_role = json!({
        "target_name": source.project.role_name(),
        "type": "zuul",
        "project_canonical_name": source.project,
        "implicit": true,
    });
    let asked_for = job.roles.iter().flatten().filter_map(|role| {
        let name = match &role.source {
            RoleSource::Zuul(name) => name,
            RoleSource::Galaxy(galaxy) => {
                return Some(json!({
                    "target_name": role.name,
                    "type": "galaxy",
                    "galaxy": galaxy,
                    "project_canonical_name": source.project,
                }));
            }
        };
        let project = layout.project(name)?;
        Some(json!({
            "target_name": role.name.as_deref().unwrap_or(project.name.short_name()),
            "type": "zuul",
            "project_canonical_name": project.name,
            "implicit": false,
        }))
    });
    let has_playbooks = [&job.run, &job.pre_run, &job.post_run].into_iter().any(Option::is_some);
    has_playbooks.then_some(implicit_role).into_iter().chain(asked_for).collect()
}

/// Returns a playbook of a variant in the shape that Zuul's API has.
fn playbook(source: &Source, job: &JobStanza, roles: &[Value], playbook: &PlaybookRef) -> Value {
    let secrets = job
        .secrets
        .iter()
        .flatten()
        .map(|secret| json!({"name": secret.secret, "alias": secret.name}));
    json!({
        "path": playbook.path,
        "roles": roles,
        "secrets": secrets.collect::<Vec<_>>(),
        "semaphores": playbook.semaphores.iter().map(|name| json!({"name": name})).collect::<Vec<_>>(),
        "source_context": source_context(source),
        "cleanup": playbook.cleanup,
        "preserve_home_paths": job.run_time.preserve_home_paths.as_deref().unwrap_or_default(),
    })
}

/// Returns the nodeset or its alternatives with the key under which Zuul shows them; `None` if the
/// nodeset is not defined. Alternatives that are not defined or have alternatives themselves are
/// left out.
fn nodes(layout: &Layout, found: &NodesetRef) -> Option<(&'static str, Value)> {
    let body = match found {
        NodesetRef::Inline(body) => body,
        NodesetRef::Named(name) => named(layout, name)?,
    };
    Some(match body {
        NodesetBody::Nodes(set) => ("nodeset", nodeset(set)),
        NodesetBody::Alternatives(list) => {
            let sets = list.iter().filter_map(|alternative| match alternative {
                Alternative::Inline(set) => Some(nodeset(set)),
                Alternative::Named(name) => match named(layout, name)? {
                    NodesetBody::Nodes(set) => Some(nodeset(set)),
                    NodesetBody::Alternatives(_) => None,
                },
            });
            ("nodeset_alternatives", Value::Array(sets.collect()))
        }
    })
}

/// Returns the definition of a nodeset; `None` if it is not defined.
fn named<'l>(layout: &'l Layout, name: &str) -> Option<&'l NodesetBody> {
    stanzas(layout).find_map(|(_, stanza)| match stanza {
        Stanza::Nodeset(found) if found.name == name => Some(&found.body),
        _ => None,
    })
}
