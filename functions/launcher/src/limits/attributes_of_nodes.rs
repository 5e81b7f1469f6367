//! Compares the list of ignored attributes with what acts on nodes: an attribute changes the limits
//! that plans use, or it is warned of. So an attribute that nothing carries out cannot be missing
//! in the list, and one that is carried out cannot stay in it.

#[path = "../../../../shared/config/tests/common/mod.rs"]
mod common;
#[expect(dead_code, reason = "only the types of the attribute list are used here")]
#[path = "../../../../shared/config/tests/attributes/list.rs"]
mod list;

use list::Type;
use serde_json::{Value as Json, json};
use sluice_config::Layout;
use std::collections::BTreeSet;

/// Attributes that select or describe other objects, and act through those.
const STRUCTURE: &[&str] = &[
    "abstract",
    "connection",
    "description",
    "final",
    "flavor",
    "flavor-defaults",
    "flavors",
    "image",
    "image-defaults",
    "images",
    "label",
    "label-defaults",
    "labels",
    "name",
    "nodes",
    "parent",
    "section",
    "type",
];

/// Attributes that act elsewhere, and those of which only some values are ignored.
const EXCEPTIONS: &[(&str, &str, &str)] = &[
    ("aws", "connection-type", "winrm has another default port, which acts"),
    ("aws", "executor-zone", "the queue sends the build to executors of the zone"),
    ("static", "executor-zone", "the queue sends the build to executors of the zone"),
    ("aws", "image-format", "jobs that build the image get it as a variable"),
    ("static", "launch-attempts", "plans have a number that only cloud nodes use"),
    ("static", "resource-limits", "plans have a quota that only cloud nodes count against"),
];

/// Attributes of images that the list has in no row, and how to set them.
fn not_in_the_list() -> Vec<(&'static str, &'static str, Json)> {
    vec![
        ("images", "image-id", json!("ami-2")),
        ("images", "image-name", json!("debian")),
        ("images", "image-filters", json!([{"name": "name", "values": ["debian"]}])),
        ("images", "config-drive", json!(true)),
        ("labels", "min-ready", json!(2)),
        ("labels", "max-nodes", json!(2)),
    ]
}

/// Where an attribute is set.
#[derive(Clone, Copy)]
struct Place<'a> {
    /// The driver of the section: `aws` or `static`.
    driver: &'a str,
    /// The object, or the list or mapping in the section; empty for the section itself.
    part: &'a str,
    name: &'a str,
}

/// Returns a layout with one provider, in which an attribute is set.
fn layout(place: Place<'_>, value: Option<&Json>) -> Layout {
    let name = "a-name";
    let mut objects = vec![
        ("image", json!({"name": name, "type": "cloud", "image-id": "ami-1"})),
        ("flavor", json!({"name": name, "instance-type": "small"})),
        ("label", json!({"name": name, "image": name, "flavor": name})),
    ];
    let mut section = match place.driver {
        "static" => {
            objects[0].1.as_object_mut().unwrap().remove("image-id");
            objects[1].1.as_object_mut().unwrap().remove("instance-type");
            json!({"name": name, "connection": null, "nodes": [{"name": "host.test", "label": name}]})
        }
        _ => json!({"name": name, "connection": "ec2", "region": "r", "labels": [name]}),
    };
    if let Some(value) = value {
        let setting = json!({place.name: value});
        let merge = |into: &mut Json| {
            let more = setting.as_object().unwrap().clone();
            into.as_object_mut().unwrap().extend(more);
        };
        match place.part {
            "" => merge(&mut section),
            "nodes" => merge(&mut section["nodes"][0]),
            "labels" | "images" | "flavors" => {
                section[place.part] = json!([{"name": name}]);
                merge(&mut section[place.part][0]);
            }
            "label-defaults" | "image-defaults" | "flavor-defaults" => {
                section[place.part] = json!({});
                merge(&mut section[place.part]);
            }
            kind => {
                let object = objects.iter_mut().find(|(object, _)| *object == kind).unwrap();
                merge(&mut object.1);
            }
        }
    }
    let mut stanzas: Vec<Json> =
        objects.into_iter().map(|(kind, body)| json!({kind: body})).collect();
    stanzas.push(json!({"section": section}));
    stanzas.push(json!({"provider": {"name": name, "section": name}}));
    common::tenant().file("org/config", &Json::Array(stanzas).to_string()).sound()
}

/// Returns what plans know of the provider.
fn limits_of(layout: &Layout) -> String {
    format!("{:?}", super::limits(layout, &layout.providers()[0]))
}

/// Returns the attributes that are warned of.
fn warned(layout: &Layout) -> BTreeSet<String> {
    let warnings = layout.ignored_attributes().into_iter();
    warnings.filter_map(|warning| warning.diagnostic.attribute).collect()
}

/// Returns sample mappings for attributes that hold one.
fn sample_map(name: &str) -> Json {
    match name {
        "resource-limits" => json!({"instances": 7}),
        "object-storage" => json!({"bucket-name": "b"}),
        "iam-instance-profile" => json!({"name": "profile"}),
        "fleet" => json!({"instance-types": ["small"], "allocation-strategy": "diversified"}),
        _ => json!({"a": "b"}),
    }
}

/// Z6.6, L3.8: each attribute of nodes either changes what plans know, or is warned of.
#[test]
fn an_attribute_of_nodes_acts_or_is_warned_of() {
    let rows = common::ATTRIBUTES.lines().map(|row| row.split('\t').collect::<Vec<_>>());
    let mut cases: Vec<(&str, &str, &str, Vec<Json>)> = Vec::new();
    for row in rows {
        let (object, path, kind) = (row[1], row[2], row[3]);
        let drivers: &[&str] = match object {
            "aws section/provider" => &["aws"],
            "static section/provider" => &["static"],
            "image" | "flavor" | "label" | "section" | "provider" => &["aws"],
            _ => continue,
        };
        let path = match path {
            "flavors.<Required>" => "flavors.instance-type",
            "flavors.<object>" => "flavors.fleet",
            other => other,
        };
        let (part, name) = match path.split_once('.') {
            // The members of an image in a section repeat the section's own.
            Some(("images", _)) => continue,
            Some((part, name)) if !name.contains(['.', '<', '{', '(']) => (part, name),
            Some(_) => continue,
            None if matches!(object, "image" | "flavor" | "label") => (object, path),
            None => ("", path),
        };
        let is_part_of_a_mapping = ["resource-limits", "object-storage"].contains(&part);
        if is_part_of_a_mapping || name.starts_with(['<', '(']) || STRUCTURE.contains(&name) {
            continue;
        }
        let values = Type::of_row(kind).right("another-name", &sample_map(name));
        cases.extend(drivers.iter().map(|driver| (*driver, part, name, values.clone())));
    }
    let more = not_in_the_list().into_iter();
    cases.extend(more.map(|(part, name, value)| ("aws", part, name, vec![value])));
    assert!(cases.len() > 100, "{}", cases.len());
    let mut failures = Vec::new();
    for (driver, part, name, values) in cases {
        if EXCEPTIONS.iter().any(|(of, attribute, _)| (*of, *attribute) == (driver, name)) {
            continue;
        }
        let place = Place { driver, part, name };
        let usual = limits_of(&layout(place, None));
        let layouts: Vec<Layout> = values.iter().map(|value| layout(place, Some(value))).collect();
        let acts = layouts.iter().any(|layout| limits_of(layout) != usual);
        let is_warned_of = layouts.iter().any(|layout| warned(layout).contains(name));
        match (acts, is_warned_of) {
            (false, false) => failures.push(format!(
                "{driver} {part} {name}: nothing acts on it, and no warning says so"
            )),
            (true, true) => failures.push(format!(
                "{driver} {part} {name}: it acts, and a warning says that it does not"
            )),
            _ => {}
        }
    }
    assert!(failures.is_empty(), "{}:\n{}", failures.len(), failures.join("\n"));
}

/// The reasons are for attributes that there are.
#[test]
fn each_exception_is_an_attribute_of_the_list() {
    for (driver, name, reason) in EXCEPTIONS {
        let object = format!("{driver} section/provider");
        let has = |row: &str| {
            let fields: Vec<&str> = row.split('\t').collect();
            fields[1] == object && fields[2].rsplit('.').next() == Some(name)
        };
        assert!(common::ATTRIBUTES.lines().any(has), "{driver} {name}: {reason}");
    }
}
