//! Reads and merges the attributes of provider objects.

use super::StaticNode;
use crate::layout::Definition;
use crate::objects::ProviderObject;
use serde_json::{Map, Value as Json};
use std::collections::BTreeMap;

/// Attributes of a provider or section itself, which labels do not inherit.
const NOT_OF_LABELS: [&str; 17] = [
    "name",
    "description",
    "parent",
    "abstract",
    "section",
    "connection",
    "region",
    "launch-timeout",
    "launch-attempts",
    "object-storage",
    "resource-limits",
    "images",
    "flavors",
    "labels",
    "nodes",
    "include-all-node-labels",
    "min-ready",
];

/// Returns the name of an object across tenants: its project, a slash and its own name.
pub(in crate::layout) fn canonical(defined: Definition<'_, ProviderObject>, name: &str) -> String {
    format!("{}/{name}", defined.source().project)
}

/// Merges the attributes in `from` into those of an outer layer, `into`: scalars override, mappings
/// merge, lists concatenate (L3.2). A list member that is there already is not added again, except
/// in `images`, `flavors` and `labels`, where repeated entries are kept in order.
pub(super) fn merge(into: &mut Map<String, Json>, from: Map<String, Json>) {
    for (name, value) in from {
        match (into.get_mut(&name), value) {
            (Some(Json::Object(old)), Json::Object(new)) => merge(old, new),
            (Some(Json::Array(old)), Json::Array(new)) => {
                // A repeated entry moves behind the others.
                let is_in_order = matches!(name.as_str(), "images" | "flavors" | "labels");
                for member in new {
                    if is_in_order || !old.contains(&member) {
                        old.push(member);
                    }
                }
            }
            (_, value) => {
                into.insert(name, value);
            }
        }
    }
}

/// Returns those attributes of an object, a list entry or a layer of defaults that apply to the
/// machines of a label. Left out are attributes of providers and sections themselves, `*-defaults`,
/// `name`, `description`, `image`, `flavor`, `type`, `final`, and `min-ready`, which the caller
/// reads by itself.
pub(super) fn machine_attributes(attributes: &Map<String, Json>) -> Map<String, Json> {
    let concerns = |name: &str| {
        !NOT_OF_LABELS.contains(&name)
            && !name.ends_with("-defaults")
            && !matches!(name, "image" | "flavor" | "type" | "final")
    };
    attributes
        .iter()
        .filter(|(name, _)| concerns(name))
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect()
}

/// Returns the entries with this name in a list of mappings, in order; empty if the list is not
/// set.
pub(super) fn entries<'j>(
    attributes: &'j Map<String, Json>,
    list: &str,
    name: &str,
) -> Vec<&'j Map<String, Json>> {
    let list = attributes.get(list).and_then(Json::as_array).map(Vec::as_slice).unwrap_or_default();
    list.iter()
        .filter_map(Json::as_object)
        .filter(|entry| entry.get("name").and_then(Json::as_str) == Some(name))
        .collect()
}

/// Returns the names in a list of mappings, in order and with repetitions. Members without a name
/// are left out; empty if the list is not set.
pub(super) fn names_in(attributes: &Map<String, Json>, list: &str) -> Vec<String> {
    let list = attributes.get(list).and_then(Json::as_array).map(Vec::as_slice).unwrap_or_default();
    list.iter().filter_map(|entry| entry.get("name")?.as_str().map(str::to_owned)).collect()
}

/// Returns the texts in the list `name`; empty if it is not set or no list. Members that are not
/// texts are left out.
pub(super) fn texts(attributes: &Map<String, Json>, name: &str) -> Vec<String> {
    let list = attributes.get(name).and_then(Json::as_array).map(Vec::as_slice).unwrap_or_default();
    list.iter().filter_map(|text| text.as_str().map(str::to_owned)).collect()
}

/// Returns a number; `None` if it is not set, or is no whole number from 0 to `u32::MAX`.
pub(super) fn count(attributes: &Map<String, Json>, name: &str) -> Option<u32> {
    attributes.get(name).and_then(Json::as_u64).and_then(|number| u32::try_from(number).ok())
}

/// Returns limits by resource; empty if none are set. Values that are no whole number from 0 are
/// left out.
pub(super) fn counts(limits: Option<&Json>) -> BTreeMap<String, u64> {
    let limits = limits.and_then(Json::as_object).into_iter().flatten();
    limits.filter_map(|(name, value)| Some((name.clone(), value.as_u64()?))).collect()
}

/// Returns the static nodes in `nodes`; empty if it is not set. Entries without a name are left
/// out. By default, the user is `zuul` and the port 22, which also replaces an invalid port.
pub(super) fn static_nodes(attributes: &Map<String, Json>) -> Vec<StaticNode> {
    let list =
        attributes.get("nodes").and_then(Json::as_array).map(Vec::as_slice).unwrap_or_default();
    let texts_of = |node: &Json, name: &str| {
        node.as_object().map(|node| texts(node, name)).unwrap_or_default()
    };
    list.iter()
        .filter_map(|node| {
            Some(StaticNode {
                name: node.get("name")?.as_str()?.to_owned(),
                labels: texts_of(node, "labels"),
                host_keys: texts_of(node, "host-key"),
                username: node.get("username").and_then(Json::as_str).unwrap_or("zuul").to_owned(),
                connection_port: node
                    .get("connection-port")
                    .and_then(Json::as_u64)
                    .and_then(|port| u16::try_from(port).ok())
                    .unwrap_or(22),
                aliases: texts_of(node, "aliases"),
            })
        })
        .collect()
}
