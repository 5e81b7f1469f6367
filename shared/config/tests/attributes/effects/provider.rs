//! The effect of the five node objects: the provider with every layer applied, without its untyped
//! rest.

use super::effect::{Effect, refused, warned, with_name};
use crate::common::{connections, tenant};
use crate::walk::At;
use serde_json::{Map, Value as Json, json};
use sluice_config::Driver;

/// Returns the effect of one of the five objects. Objects that may be in a section or a provider
/// are tried in both.
pub fn of(at: &At<'_>, given: &Map<String, Json>) -> Vec<Effect> {
    match at.object {
        "section" => vec![in_section(at, given)],
        "provider" => vec![in_provider(at, given)],
        "aws section/provider" | "static section/provider" => {
            let mut given = given.clone();
            name_what_it_is_said_of(at, &mut given);
            let mut found = Vec::new();
            if at.path[0] != "section" {
                found.push(in_section(at, &given));
            }
            // Below a provider no layer is left that a final attribute could bind, and its
            // connection is its section's.
            if !matches!(at.path[0].as_str(), "parent" | "abstract" | "connection")
                && at.name() != "final"
            {
                found.push(in_provider(at, &given));
            }
            found
        }
        kind => vec![settled(
            at,
            kind,
            &with_name(given, "a-name"),
            &json!({"name": "a-name", "section": "a-name"}),
        )],
    }
}

/// Adds an attribute to an entry for an image, flavor or label that has only a name, since such an
/// entry has no effect.
fn name_what_it_is_said_of(at: &At<'_>, given: &mut Map<String, Json>) {
    if at.path.len() > 1 && at.name() != "name" {
        return;
    }
    for (list, name, value) in [
        ("images", "shell-type", json!("sh")),
        ("labels", "executor-zone", json!("z")),
        ("flavors", "tags", json!({"a": "c"})),
    ] {
        for entry in given.get_mut(list).and_then(Json::as_array_mut).into_iter().flatten() {
            entry[name] = value.clone();
        }
    }
}

fn in_section(at: &At<'_>, given: &Map<String, Json>) -> Effect {
    let mut section = with_name(given, "a-name");
    section.remove("section");
    if at.object == "section" && at.path[0] != "connection" {
        section.entry("connection").or_insert_with(|| json!("a-name"));
    }
    section.entry("labels").or_insert_with(|| json!(["a-name"]));
    let mut provider = json!({"name": "a-name", "section": "a-name"});
    if at.name() == "final" {
        provider["label-defaults"] = json!({"max-ready-age": 71});
        provider["image-defaults"] = json!({"username": "default"});
        provider["flavor-defaults"] = json!({"tags": {"of": "defaults"}});
        provider["labels"] = json!([{"name": "a-name", "max-age": 72}]);
        provider["images"] = json!([{"name": "a-name", "python-path": "own"}]);
        provider["flavors"] = json!([{"name": "a-name", "tags": {"own": "a"}}]);
    }
    settled(at, "section", &section, &provider)
}

fn in_provider(at: &At<'_>, given: &Map<String, Json>) -> Effect {
    let mut provider = with_name(given, "a-name");
    provider.entry("section").or_insert_with(|| json!("a-name"));
    provider.entry("labels").or_insert_with(|| json!(["a-name"]));
    let section = json!({"name": "a-name", "connection": "a-name"});
    settled(at, "section", section.as_object().unwrap(), &Json::Object(provider))
}

/// Replaces the default object of a kind, and returns the resulting provider.
fn settled(at: &At<'_>, kind: &str, object: &Map<String, Json>, provider: &Json) -> Effect {
    let is_static = at.object == "static section/provider";
    let mut stanzas: Vec<Json> = Vec::new();
    for name in ["a-name", "b-name"] {
        let usual = [
            ("image", json!({"name": name, "type": "zuul"})),
            ("flavor", json!({"name": name})),
            ("label", json!({"name": name, "image": name, "flavor": name})),
            (
                "section",
                json!({"name": name, "connection": "a-name", "labels": [name], "boot-timeout": 33}),
            ),
        ];
        for (usual_kind, body) in usual {
            let is_given = usual_kind == kind && object.get("name") == Some(&json!(name));
            stanzas.push(json!({usual_kind: if is_given { json!(object) } else { body }}));
        }
    }
    stanzas.push(json!({"provider": provider}));
    let driver = if is_static { Driver::Static } else { Driver::Aws };
    let connections = connections().with("a-name", driver, "").with("b-name", driver, "");
    let layout =
        tenant().file("org/config", &Json::Array(stanzas).to_string()).build_with(&connections);
    let mut found = serde_json::to_value(layout.providers()).unwrap();
    for provider in found.as_array_mut().unwrap() {
        provider.as_object_mut().unwrap().remove("attributes");
        for label in provider["labels"].as_array_mut().unwrap() {
            label.as_object_mut().unwrap().remove("attributes");
        }
    }
    Effect { text: found.to_string(), refused: refused(&layout), warned: warned(&layout) }
}
