//! Walks the project's attribute list. Each attribute is accepted at its place in every form. It is
//! refused by name elsewhere, with a value of another type, and if it is required and missing.
//!
//! `exceptions` has the deviations from the list with their reasons. `effects` checks that each
//! attribute takes effect, and `untrusted` which ones are refused in an untrusted project.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

#[path = "../common/mod.rs"]
mod common;
mod documents;
mod effects;
mod exceptions;
mod list;
mod readers;
mod tables;
mod untrusted;
mod walk;

use exceptions::{
    NOT_REQUIRED, OF_THE_SYSTEM, SYSTEM, also_in, also_in_part, either_of, reads_more,
};
use list::{Attribute, Type};
use serde_json::{Map, Value as Json, json};
use std::collections::{BTreeMap, BTreeSet};
use walk::{At, full, objects, required};

/// Returns the documents with these attributes whose diagnostics differ from the expected ones.
/// `named` is the attribute that a diagnostic must name; `None` expects no diagnostic.
fn unexpected_diagnostics(
    object: &str,
    given: &Map<String, Json>,
    named: Option<&str>,
) -> Vec<String> {
    let mut found = Vec::new();
    for (text, problems) in documents::problems(object, given) {
        let diagnostics: Vec<String> = problems
            .iter()
            .map(|problem| {
                format!(
                    "{} ({})",
                    problem.message,
                    problem.attribute.as_deref().unwrap_or_default()
                )
            })
            .collect();
        match named {
            None if diagnostics.is_empty() => {}
            None => found.push(format!("refused: {text}\n    {}", diagnostics.join("\n    "))),
            Some(_) if diagnostics.is_empty() => found.push(format!("accepted: {text}")),
            Some(name) if diagnostics.iter().any(|diagnostics| diagnostics.contains(name)) => {}
            Some(name) => found.push(format!(
                "refused without naming {name}: {text}\n    {}",
                diagnostics.join("\n    ")
            )),
        }
    }
    found
}

fn none(failures: Vec<String>) {
    assert!(
        failures.is_empty(),
        "{} unexpected_diagnostics:\n{}",
        failures.len(),
        failures.join("\n")
    );
}

/// Z2, Z3, Z4, Z6.1, L3: the walk covers the whole list.
#[test]
fn the_list_is_read_to_its_end() {
    let objects = objects();
    let count = At::all(&objects).len();
    println!("{} objects, {count} attributes", objects.len());
    assert!(objects.len() >= 44 && count >= 1_000, "{} objects, {count} attributes", objects.len());
}

/// Z2, Z3, Z4, Z6.1, L3
#[test]
fn every_attribute_is_accepted_where_it_belongs() {
    let objects = objects();
    let mut failures = Vec::new();
    for at in At::all(&objects) {
        for value in at.right() {
            failures.extend(unexpected_diagnostics(at.object, &at.given(Some(value)), None));
        }
    }
    none(failures);
}

/// Z2, Z3, Z4, Z6.1, L3
#[test]
fn a_value_of_another_type_is_refused_by_name() {
    let objects = objects();
    let mut failures = Vec::new();
    for at in At::all(&objects) {
        let kind = at.attribute.kind.as_ref().unwrap();
        for value in kind.wrong() {
            if !reads_more(at.object, &at.path, &value) {
                failures.extend(unexpected_diagnostics(
                    at.object,
                    &at.given(Some(value)),
                    Some(at.name()),
                ));
            }
        }
    }
    none(failures);
}

/// Z2, Z3, Z4, Z6.1, L3
#[test]
fn a_required_attribute_that_is_missing_is_named() {
    let objects = objects();
    let mut failures = Vec::new();
    let mut used = BTreeSet::new();
    for at in At::all(&objects).into_iter().filter(|at| at.attribute.required) {
        let key = (at.object, at.path.join("."));
        if let Some(exception) = NOT_REQUIRED
            .iter()
            .position(|(object, path, _)| (*object, *path) == (key.0, key.1.as_str()))
        {
            used.insert(exception);
            continue;
        }
        let rivals = either_of(at.object, &at.path[..at.path.len() - 1]);
        let mut given = at.given(None);
        if rivals.contains(&at.name()) {
            // Its alternative is omitted as well.
            let whole = at.given(Some(Json::Null));
            given = without(&whole, &at.path, rivals);
        }
        failures.extend(unexpected_diagnostics(at.object, &given, Some(at.name())));
    }
    let idle: Vec<_> =
        NOT_REQUIRED.iter().enumerate().filter(|(at, _)| !used.contains(at)).collect();
    assert!(idle.is_empty(), "exceptions that the list does not need: {idle:?}");
    none(failures);
}

fn without(map: &Map<String, Json>, path: &[String], names: &[&str]) -> Map<String, Json> {
    let mut map = map.clone();
    match path {
        [] | [_] => names.iter().for_each(|name| {
            map.remove(*name);
        }),
        [first, rest @ ..] => {
            let inner = match map.get(first) {
                Some(Json::Object(inner)) => Json::Object(without(inner, rest, names)),
                Some(Json::Array(list)) => {
                    let members = list.iter().map(|member| match member {
                        Json::Object(inner) => Json::Object(without(inner, rest, names)),
                        other => other.clone(),
                    });
                    Json::Array(members.collect())
                }
                other => panic!("{first} holds no mapping but {other:?}"),
            };
            map.insert(first.clone(), inner);
        }
    }
    map
}

/// Z2, Z3, Z4, Z6.1, L3
#[test]
fn an_attribute_of_another_object_is_refused_by_name() {
    let objects = objects();
    let mut failures = Vec::new();
    for (object, root) in &objects {
        let others = objects.values().flat_map(|other| &other.children).filter(|(name, _)| {
            !root.children.contains_key(*name) && !also_in(&objects, object, name)
        });
        let mut seen = BTreeSet::new();
        for (name, attribute) in others {
            // All other keys of a project are pipelines, whose values must be mappings.
            let is_free = matches!(object.as_str(), "project" | "project-template");
            let value = attribute.kind.as_ref().map_or(json!("text"), |kind| {
                kind.right(
                    documents::a_text(std::slice::from_ref(name)),
                    &json!({"neither": "of these"}),
                )
                .remove(0)
            });
            if !seen.insert(name) || (is_free && value == json!({"neither": "of these"})) {
                continue;
            }
            let at = At { object, root, path: vec![name.clone()], attribute };
            let mut given = required(object, root, &[], root, "");
            given.insert(at.name().to_owned(), value);
            failures.extend(unexpected_diagnostics(object, &given, Some(name)));
        }
    }
    none(failures);
}

/// Z2, Z3, Z4, Z6.1, L3
#[test]
fn an_unknown_attribute_of_a_part_is_refused_by_name() {
    let objects = objects();
    let mut failures = Vec::new();
    for at in At::all(&objects) {
        let is_free = at.attribute.children.keys().any(|name| name == "chosen");
        if at.attribute.children.is_empty() || is_free || exceptions::is_open(at.object, &at.path) {
            continue;
        }
        let Json::Object(mut inside) = full(at.object, at.root, &at.path, at.attribute) else {
            continue;
        };
        inside.insert("no-such-word".to_owned(), json!(1));
        let wrap = !at.attribute.kind.as_ref().is_some_and(|kind| kind.accepts(&json!({})));
        let value = if wrap { json!([inside]) } else { Json::Object(inside) };
        failures.extend(unexpected_diagnostics(
            at.object,
            &at.given(Some(value)),
            Some("no-such-word"),
        ));
    }
    none(failures);
}

/// Z2, Z3, Z4, Z6.1, L3: nested attributes are accepted only where the list has them.
#[test]
fn an_attribute_of_another_part_is_refused_by_name() {
    let objects = objects();
    let all = At::all(&objects);
    let (mut failures, mut count) = (Vec::new(), 0);
    for object in objects.keys() {
        let of_object = || all.iter().filter(move |at| at.object == object);
        let mut words: BTreeMap<&str, &Attribute> = BTreeMap::new();
        for at in of_object() {
            words.entry(at.name()).or_insert(at.attribute);
        }
        // User-chosen names, and a hundred similar quotas, are not checked.
        words.retain(|name, _| {
            !matches!(*name, "chosen" | "check" | "org/project") && !name.starts_with("L-")
        });
        for at in of_object() {
            let own = &at.attribute.children;
            if own.is_empty() || own.contains_key("chosen") || exceptions::is_open(object, &at.path)
            {
                continue;
            }
            let Json::Object(inside) = full(object, at.root, &at.path, at.attribute) else {
                continue;
            };
            let wrap = !at.attribute.kind.as_ref().is_some_and(|kind| kind.accepts(&json!({})));
            for (name, attribute) in &words {
                if own.contains_key(*name) || also_in_part(&objects, object, &at.path, name) {
                    continue;
                }
                let kind = attribute.kind.as_ref().unwrap();
                let text = documents::a_text(&[(*name).to_owned()]);
                let mut inside = inside.clone();
                inside.insert((*name).to_owned(), kind.right(text, &json!({})).remove(0));
                let inside = Json::Object(inside);
                let given = at.given(Some(if wrap { json!([inside]) } else { inside }));
                count += 1;
                let diagnostics = format!("extra keys not allowed: \"{name}\"");
                failures.extend(unexpected_diagnostics(object, &given, Some(&diagnostics)));
            }
        }
    }
    println!("{count} cases");
    assert!(count > 3_000, "{count}");
    none(failures);
}

/// Z2.1: system settings of the list cannot be set in configuration, in any object of the tenants'
/// file; each has a reason.
#[test]
fn settings_of_the_system_are_no_configuration() {
    let rows = common::ATTRIBUTES.lines().map(|row| row.split('\t').collect::<Vec<_>>());
    let listed: Vec<&str> =
        rows.filter(|row| row[1].starts_with(SYSTEM)).map(|row| row[2]).collect();
    let known: Vec<&str> = OF_THE_SYSTEM.iter().map(|(name, ..)| *name).collect();
    assert_eq!(listed, known);
    let objects = objects();
    let mut failures = Vec::new();
    for (name, instead, reason) in OF_THE_SYSTEM {
        for object in ["tenant", "api-root"] {
            let mut given = required(object, &objects[object], &[], &objects[object], "");
            given.insert((*name).to_owned(), json!("9"));
            let diagnostics = format!("extra keys not allowed: \"{name}\"");
            failures.extend(unexpected_diagnostics(object, &given, Some(&diagnostics)));
        }
        let has = |word: &&str| objects["tenant"].children.contains_key(*word);
        assert!(instead.iter().all(has), "{name}: {reason}");
    }
    none(failures);
}

/// Z4.1: only attributes that the list calls combinable accept control tags.
#[test]
fn only_attributes_that_combine_take_control_tags() {
    let text = common::ATTRIBUTES;
    let mut failures = Vec::new();
    for row in text.lines().filter(|row| row.starts_with("in-repo config\tjob\t")) {
        let fields: Vec<&str> = row.split('\t').collect();
        let (name, kind) = (fields[2], fields[3]);
        if name.contains('.') || name == "name" {
            continue;
        }
        let combines = kind.starts_with("override_value ");
        let values = Type::of_row(kind).right("text", &json!({}));
        let value = values.into_iter().find(|value| *value != json!({})).unwrap_or(json!({}));
        for tag in ["!override", "!inherit"] {
            let text = format!("- job: {{name: test, {name}: {tag} {value}}}\n");
            let diagnostics = documents::of_repository(&text);
            if diagnostics.is_empty() != combines
                || (!combines
                    && !diagnostics.iter().any(|diagnostics| diagnostics.message.contains(name)))
            {
                failures.push(format!("{text}    {diagnostics:?}"));
            }
        }
    }
    none(failures);
}

/// Z9.1: the list's `{project|ref}`: a condition of a permission needs at least one of the two.
#[test]
fn a_condition_without_project_and_ref_is_refused() {
    for permission in ["dequeue", "enqueue"] {
        let given = json!({"name": "r", "permissions": {permission: {"conditions": {}}}});
        none(unexpected_diagnostics(
            "authorization-role",
            given.as_object().unwrap(),
            Some("conditions"),
        ));
    }
}

/// L3.8: the omitted rows below a provider's images repeat the provider's own rows word for word.
#[test]
fn what_is_left_out_of_images_is_the_provider_itself() {
    let rows: BTreeSet<Vec<&str>> =
        common::ATTRIBUTES.lines().map(|row| row.split('\t').collect()).collect();
    let left_out: Vec<&Vec<&str>> = rows
        .iter()
        .filter(|row| {
            row[0] == "launcher driver" && row[2].starts_with("images.") && row[2] != "images.name"
        })
        .collect();
    assert!(left_out.len() > 20, "{left_out:?}");
    for row in left_out {
        let mut own = row.clone();
        own[2] = row[2].trim_start_matches("images.");
        assert!(rows.contains(&own), "{row:?} is no row of the provider itself");
    }
}

/// L3.10: an attribute of one driver only is refused for nodes of the other.
#[test]
fn each_driver_of_nodes_takes_its_own_attributes_only() {
    let objects = objects();
    let (aws, fixed) = (&objects["aws section/provider"], &objects["static section/provider"]);
    let mut failures = Vec::new();
    let mut judge = |place: &str,
                     name: &str,
                     attribute: &Attribute,
                     connection: Json,
                     is_fit: bool| {
        let kind = attribute.kind.as_ref().unwrap();
        let path: Vec<String> = place
            .split('.')
            .filter(|part| !part.is_empty())
            .chain([name])
            .map(str::to_owned)
            .collect();
        let value = kind
            .right(documents::a_text(&path), &full("aws section/provider", aws, &path, attribute))
            .remove(0);
        let mut body = json!({"name": "p", "section": "s"});
        let inner = json!({"name": "l", name: value});
        let (key, value) = match place {
            "" => (name, value),
            "labels" | "images" | "flavors" => (place, json!([inner])),
            _ => (place, json!({name: value})),
        };
        body[key] = value;
        let section = json!({"name": "s", "connection": connection});
        let text =
            json!([{"provider": body}, {"section": section}, {"label": {"name": "l"}}]).to_string();
        let layout = common::tenant().file("org/config", &text).build();
        let diagnostics: Vec<String> = common::messages(&layout)
            .into_iter()
            .filter(|diagnostics| diagnostics.contains(&format!("\"{name}\" ")))
            .collect();
        if diagnostics.is_empty() != is_fit {
            failures.push(format!("{text}\n    {diagnostics:?}"));
        }
    };
    for place in ["", "labels", "flavors", "label-defaults", "image-defaults", "flavor-defaults"] {
        let of = |root: &Attribute| -> Vec<String> {
            let at = if place.is_empty() { root } else { &root.children[place] };
            at.children
                .keys()
                .filter(|name| {
                    !matches!(
                        name.as_str(),
                        "name" | "section" | "connection" | "parent" | "abstract"
                    )
                })
                .cloned()
                .collect()
        };
        let (of_aws, of_fixed) = (of(aws), of(fixed));
        for name in &of_aws {
            let at = if place.is_empty() { aws } else { &aws.children[place] };
            judge(place, name, &at.children[name], json!("ec2"), true);
            judge(place, name, &at.children[name], Json::Null, of_fixed.contains(name));
        }
        for name in of_fixed.iter().filter(|name| !of_aws.contains(name)) {
            let at = if place.is_empty() { fixed } else { &fixed.children[place] };
            judge(place, name, &at.children[name], json!("ec2"), false);
            judge(place, name, &at.children[name], Json::Null, true);
        }
    }
    none(failures);
}
