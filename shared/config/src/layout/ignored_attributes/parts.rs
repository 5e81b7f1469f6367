//! Attributes of jobs and provider objects that are parsed but not supported yet.

use super::list;
use crate::objects::{JobStanza, ProviderObject, Span};
use serde_json::{Map, Value as Json};
use std::collections::BTreeSet;

/// Returns the unsupported attributes that a job definition or entry uses, each with its span and
/// the message of the warning. Values that request nothing are left out.
pub(super) fn of_job(job: &JobStanza) -> Vec<(&'static str, Span, String)> {
    let used = list::of("job").filter(|entry| is_used(job, entry.attribute));
    used.map(|entry| {
        let span = job.spans.of(entry.attribute).unwrap_or(job.span);
        (entry.attribute, span, format!("\"{}\": {}", entry.attribute, entry.consequence))
    })
    .collect()
}

/// Returns whether a job sets an ignored attribute to a value that requests something. `false` for
/// attributes that are not ignored.
fn is_used(job: &JobStanza, attribute: &str) -> bool {
    match attribute {
        "image-build-name" => job.image_build_name.is_some(),
        _ => false,
    }
}

/// Returns the unsupported attributes of an image, flavor, label, section or provider (`kind`) that
/// have no effect on nodes, wherever they are set in it: also in list entries and defaults. Left
/// out are values that request nothing, such as defaults, the zones (`az`) of a section or provider
/// itself, and limits and shared sections, which have warnings of their own.
pub(super) fn of_object(kind: &str, object: &ProviderObject) -> BTreeSet<&'static str> {
    let members = list_entries(object, &["images", "flavors", "labels", "nodes"]);
    let parts = members.chain(defaults(object)).map(|part| (part, true));
    let parts = parts.chain([(&object.attributes, !matches!(kind, "section" | "provider"))]);
    let ignored = parts.flat_map(|(part, is_of_one)| {
        let is_said = move |name: &str| part.get(name).is_some_and(|value| requests(name, value));
        // Limits and shared sections have warnings of their own.
        let names = list::of("node").filter(|entry| entry.consequence == list::NO_EFFECT);
        let names = names.map(|entry| entry.attribute);
        names.filter(move |name| is_said(name) && (is_of_one || *name != "az"))
    });
    ignored.collect()
}

/// Returns the attributes of a section or provider of static nodes that only nodes of clouds have,
/// wherever they are set in it, except in `nodes`. The caller checks that its nodes are static.
pub(super) fn of_static_nodes(object: &ProviderObject) -> BTreeSet<&'static str> {
    let members = list_entries(object, &["images", "flavors", "labels"]);
    let parts = members.chain(defaults(object)).chain([&object.attributes]);
    let ignored = parts.flat_map(|part| {
        let names = list::of("static node").map(|entry| entry.attribute);
        names
            .filter(move |name| part.get(*name).is_some_and(|value| requests_of_cloud(name, value)))
    });
    ignored.collect()
}

/// Returns the entries of these lists of a section or provider, without those that are only a name.
fn list_entries<'o>(
    object: &'o ProviderObject,
    lists: &'static [&'static str],
) -> impl Iterator<Item = &'o Map<String, Json>> {
    let lists = lists.iter().filter_map(move |list| object.attributes.get(*list)?.as_array());
    lists.flatten().filter_map(Json::as_object)
}

/// Returns the defaults for images, flavors and labels in a section or provider.
fn defaults(object: &ProviderObject) -> impl Iterator<Item = &Map<String, Json>> {
    let names = ["image-defaults", "flavor-defaults", "label-defaults"].into_iter();
    names.filter_map(move |name| object.attributes.get(name)?.as_object())
}

/// Returns whether a value of an ignored attribute of nodes requests something: one equal to the
/// default does not.
fn requests(name: &str, value: &Json) -> bool {
    match (name, value) {
        // Host keys are checked by default.
        ("host-key-checking", value) => *value == Json::Bool(false),
        // A single zone binds the label to it.
        ("az", value) => value.as_array().is_some_and(|zones| zones.len() > 1),
        (_, Json::Null | Json::Bool(false)) => false,
        (_, Json::Array(list)) if list.is_empty() => false,
        ("slots", value) => *value != 1,
        ("max-age" | "min-retention-time", value) => *value != 0,
        ("connection-type", value) => value != "ssh",
        ("market-type", value) => value != "on-demand",
        _ => true,
    }
}

/// Returns whether a value of an attribute that only nodes of clouds have requests something.
fn requests_of_cloud(name: &str, value: &Json) -> bool {
    match name {
        "host-key-checking" => *value == Json::Bool(false),
        "max-ready-age" | "min-ready" => *value != 0,
        _ => !value.is_null(),
    }
}

/// Returns the names of the limits of a section or provider that are not enforced, sorted: all but
/// `instances`, since the machines' usage of other resources is unknown. Empty if it sets no
/// `resource-limits`.
pub(super) fn uncounted(object: &ProviderObject) -> Vec<&str> {
    let limits = object.attributes.get("resource-limits").and_then(Json::as_object);
    let names = limits.into_iter().flat_map(|limits| limits.keys().map(String::as_str));
    let mut names: Vec<&str> = names.filter(|name| *name != "instances").collect();
    names.sort_unstable();
    names
}
