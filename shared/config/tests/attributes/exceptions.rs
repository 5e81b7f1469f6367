//! Deviations from the attribute list, each with its reason.

use crate::list::Objects;
use serde_json::Value as Json;

/// Attributes that the list calls required and that are optional.
pub const NOT_REQUIRED: &[(&str, &str, &str)] = &[
    ("pipeline", "manager", "L1: the founding documents' image pipelines name none"),
    ("label", "image", "L3.7: a label without an image takes the one of its own name"),
    ("label", "flavor", "L3.7: static nodes need none, and a cloud's provider reports it"),
    (
        "aws section/provider",
        "section",
        "the list has section and provider in one; the provider's own row requires it",
    ),
    (
        "aws section/provider",
        "labels",
        "L3.9: a section has none, a provider may leave it to its section",
    ),
    ("aws section/provider", "images", "L3.8: labels may name a cloud's images by id"),
    ("aws section/provider", "flavors", "L3.8: they may stand in the section or the provider"),
    ("aws section/provider", "connection", "L3.8: it may come from the parent or the section"),
    ("aws section/provider", "region", "L3.8: it may come from the parent or the section"),
    ("static section/provider", "section", "as for aws"),
    ("static section/provider", "labels", "as for aws"),
    ("static section/provider", "images", "as for aws"),
    ("static section/provider", "flavors", "as for aws"),
    ("static section/provider", "connection", "L3.10: static nodes have none"),
    ("static section/provider", "nodes", "L3.10: they may come from the parent or the section"),
];

/// The list's object name for settings of the whole system.
pub const SYSTEM: &str = "system attributes";

/// Settings of the whole system that configuration cannot set: the tenant's replacement, and the
/// reason.
pub const OF_THE_SYSTEM: &[(&str, Option<&str>, &str)] = &[
    (
        "use_relative_priority",
        None,
        "Z1.1: requests are served by their pipeline's precedence, then in their order",
    ),
    (
        "max_hold_expiration",
        None,
        "how long nodes are held is said where they are asked for, not in configuration",
    ),
    (
        "default_hold_expiration",
        None,
        "how long nodes are held is said where they are asked for, not in configuration",
    ),
    (
        "default_ansible_version",
        Some("default-ansible-version"),
        "a tenant's own word; without it there is one version",
    ),
    (
        "web_root",
        Some("web-root"),
        "a tenant's own word; without it links lead to the address that the system is given",
    ),
    ("websocket_url", None, "where a log is streamed from belongs to the system's address"),
    (
        "oidc_signing_key_rotation_interval",
        None,
        "keys of the system's issuer of tokens are its operator's affair",
    ),
    (
        "oidc_supported_signing_algorithms",
        None,
        "keys of the system's issuer of tokens are its operator's affair",
    ),
    (
        "oidc_default_signing_algorithm",
        None,
        "keys of the system's issuer of tokens are its operator's affair",
    ),
];

/// Returns whether a row of the list names an attribute that a configuration file can have.
pub fn is_attribute(object: &str, name: &str) -> bool {
    let of_provider = object.ends_with("section/provider");
    !(
        // Capabilities of a driver are not attributes.
        name == "(capabilities)"
            // These belong to the system's own settings (`OF_THE_SYSTEM`).
            || object.starts_with(SYSTEM)
            // Walked as "entry of a project" and "entry of a template".
            || name.contains("<job attribute>")
            // States that one of two attributes, which have rows of their own, is required. A
            // flavor requires neither, since section and provider may set it (L3.8). For the other
            // see `a_condition_without_project_and_ref_is_refused`.
            || name.contains("{instance_type|fleet}") || name.contains("{project|ref}")
            // L3.8: an image in a section has a name and an image's attributes. These rows repeat
            // the provider's own, as `what_is_left_out_of_images_is_the_provider_itself` shows.
            || (of_provider && name.starts_with("images.") && name != "images.name")
    )
}

/// Returns attributes of which exactly one is required.
pub fn either_of(object: &str, path: &[String]) -> &'static [&'static str] {
    let path: Vec<&str> = path.iter().map(String::as_str).collect();
    match (object, path.as_slice()) {
        ("nodeset", []) => &["nodes", "alternatives"],
        (_, ["roles"]) => &["zuul", "galaxy"],
        _ => &[],
    }
}

/// Returns whether a value is accepted although the list does not have it.
pub fn reads_more(object: &str, path: &[String], value: &Json) -> bool {
    let path: Vec<&str> = path.iter().map(String::as_str).collect();
    match (object, path.as_slice()) {
        // E3: bare names in a provider's lists. L3.9: a single value instead of a list.
        ("section" | "provider", ["images" | "flavors" | "labels"]) => {
            value.is_string() || is_texts(value)
        }
        ("aws section/provider" | "static section/provider", ["images" | "flavors" | "labels"]) => {
            value.is_string() || is_texts(value)
        }
        // L3.10: static nodes have no connection.
        ("section" | "aws section/provider" | "static section/provider", ["connection"]) => {
            value.is_null()
        }
        // L3.8: a list is accepted where the list of attributes has one zone; `availability-zones`
        // is the older name.
        (_, [.., "az"]) => is_texts(value),
        // Stored for the driver without interpretation.
        (_, [.., "host-key"]) => is_texts(value),
        _ => false,
    }
}

fn is_texts(value: &Json) -> bool {
    value.as_array().is_some_and(|list| list.iter().all(Json::is_string))
}

/// Returns whether an attribute of another object is accepted in this one too.
pub fn also_in(objects: &Objects, object: &str, name: &str) -> bool {
    let of_nodes = |prefix: &str| {
        let drivers = objects.iter().filter(|(object, _)| object.ends_with("section/provider"));
        drivers
            .flat_map(|(_, root)| root.children.get(prefix))
            .any(|list| list.children.contains_key(name))
    };
    match object {
        // E3: the founding documents' name for a nodeset.
        "job" | "entry of a project" | "entry of a template" => name == "nodes",
        // Z2.5: files next to the tenants' file.
        "tenant" => name == "include",
        // A mapping with this key is a group of projects.
        "tenant.source.<connection>.config-projects[]"
        | "tenant.source.<connection>.untrusted-projects[]" => name == "projects",
        // L3.2: driver attributes of images, flavors and labels may be set as defaults.
        "image" => of_nodes("images") || of_nodes("image-defaults"),
        "flavor" => of_nodes("flavors") || of_nodes("flavor-defaults"),
        "label" => of_nodes("labels") || of_nodes("label-defaults"),
        // L3.2, L3.9: they may also be set for all nodes of a section or provider. The connection
        // decides the driver later.
        "section" | "provider" | "aws section/provider" | "static section/provider" => {
            let own = ["section", "provider", "aws section/provider", "static section/provider"];
            let is_own = own
                .iter()
                .filter_map(|object| objects.get(*object))
                .any(|root| root.children.contains_key(name));
            let other = if object == "section" { "section" } else { "parent abstract" };
            let in_general =
                ["image-defaults", "flavor-defaults", "label-defaults"].into_iter().any(of_nodes);
            let of_one_only =
                ["aliases", "final", "retain-count", "max-retain-count"].contains(&name);
            // E3: the founding documents' name for a provider's images.
            name == "image"
                || (is_own && !other.split(' ').any(|one| one == name))
                || (in_general && !of_one_only)
        }
        _ => false,
    }
}

/// Returns whether a part of an object accepts an attribute that the list has elsewhere in the same
/// object.
pub fn also_in_part(objects: &Objects, object: &str, path: &[String], name: &str) -> bool {
    let path: Vec<&str> = path.iter().map(String::as_str).collect();
    let has = |object: &str, part: Option<&str>| {
        let root = objects.get(object);
        let at = part.map_or(root, |part| root.and_then(|root| root.children.get(part)));
        at.is_some_and(|at| at.children.contains_key(name))
    };
    match (object, path.as_slice()) {
        // E3: the founding documents' queue below a pipeline.
        ("project" | "project-template", ["check"]) => name == "queue",
        // L3.8: an image in a section has an image's attributes, whose rows are omitted there.
        ("aws section/provider" | "static section/provider", ["images"]) => {
            has("image", None) || has(object, Some("image-defaults"))
        }
        // L3.2: tags of a label's image, flavor and section are merged.
        ("aws section/provider" | "static section/provider", ["flavors" | "flavor-defaults"]) => {
            name == "tags"
        }
        // L3.10: the founding documents' static nodes have several labels.
        ("static section/provider", ["nodes"]) => name == "labels",
        _ => false,
    }
}

/// Returns whether a mapping accepts keys that the list does not have.
pub fn is_open(object: &str, path: &[String]) -> bool {
    let path: Vec<&str> = path.iter().map(String::as_str).collect();
    match (object, path.as_slice()) {
        // Votes: every other key is a Gerrit label.
        (_, [.., "approval" | "require-approval" | "reject-approval"]) => true,
        _ => false,
    }
}
