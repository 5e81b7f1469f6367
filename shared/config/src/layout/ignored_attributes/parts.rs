//! Attributes of jobs and provider objects that are parsed but not supported yet.

use crate::objects::{JobStanza, ProviderObject, RoleSource, Span};
use serde_json::Value as Json;
use sluice_model::job::{SecretExposure, Tristate};
use std::collections::BTreeSet;

/// Returns the unsupported attributes of a job definition or entry, each with its span and message.
pub(super) fn of_job(job: &JobStanza) -> Vec<(&'static str, Span, String)> {
    let run_time = &job.run_time;
    let is_galaxy = |source: &RoleSource| matches!(source, RoleSource::Galaxy(_));
    let without = "not supported yet: the job runs without it";
    let said = [
        (
            "secret-exposure",
            run_time.secret_exposure.is_some_and(|what| what != SecretExposure::Ignore),
            without,
        ),
        (
            "workspace-checkout",
            run_time.workspace_checkout.is_some_and(|what| what != Tristate::Yes),
            without,
        ),
        ("workspace", run_time.workspace.is_some(), without),
        ("host", run_time.host.is_some(), without),
        ("ansible-split-streams", run_time.ansible_split_streams == Some(true), without),
        (
            "preserve-home-paths",
            run_time.preserve_home_paths.as_ref().is_some_and(|list| !list.is_empty()),
            without,
        ),
        (
            "auth.swift",
            run_time.containers.is_some(),
            "not supported yet: no storage credentials are issued",
        ),
        (
            "roles",
            job.roles.iter().flatten().any(|role| is_galaxy(&role.source)),
            "roles from Ansible Galaxy are not supported yet",
        ),
        (
            "image-build-name",
            job.image_build_name.is_some(),
            "images that the job builds are not imported yet",
        ),
        (
            "ansible-version",
            job.ansible_version.as_deref() == Some("9"),
            "all jobs run with Ansible 11",
        ),
    ];
    let set = said.into_iter().filter(|(_, is_said, _)| *is_said).map(|(attribute, _, why)| {
        (attribute, job.spans.of(attribute).unwrap_or(job.span), format!("\"{attribute}\": {why}"))
    });
    set.collect()
}

/// Attributes of provider objects that do not affect launched machines. (`az` stands for several
/// zones of a label; those of a section or provider are supported.)
const OF_NODES: [&str; 37] = [
    "aliases",
    "az",
    "config-drive",
    "host-key-checking",
    "subnet-ids",
    "security-group-ids",
    "userdata",
    "tags",
    "volume-size",
    "volume-type",
    "iops",
    "throughput",
    "max-nodes",
    "max-age",
    "slots",
    "reuse",
    "key-name",
    "image-name",
    "image-filters",
    "iam-instance-profile",
    "kms-key-id",
    "market-type",
    "fleet",
    "dedicated-host",
    "nested-virtualization",
    "imds-http-tokens",
    "ebs-optimized",
    "public-ipv4",
    "public-ipv6",
    "launch-timeout",
    "min-retention-time",
    "executor-zone",
    "shell-type",
    "connection-type",
    "object-storage",
    "snapshot-timeout",
    "snapshot-expiration",
];

/// Returns the unsupported attributes of an image, flavor, label, section or provider (`kind`),
/// wherever they are set in it.
pub(super) fn of_object(kind: &str, object: &ProviderObject) -> BTreeSet<&'static str> {
    let members = ["images", "flavors", "labels", "nodes"]
        .into_iter()
        .filter_map(|list| object.attributes.get(list)?.as_array());
    let defaults = ["image-defaults", "flavor-defaults", "label-defaults"];
    let defaults = defaults.into_iter().filter_map(|name| object.attributes.get(name)?.as_object());
    let parts =
        members.flatten().filter_map(Json::as_object).chain(defaults).map(|part| (part, true));
    let parts = parts.chain([(&object.attributes, !matches!(kind, "section" | "provider"))]);
    // A value equal to the default requests nothing.
    let asks = |name: &str, value: &Json| match (name, value) {
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
    };
    let said = parts.flat_map(|(part, is_of_one)| {
        let is_said = move |name: &str| part.get(name).is_some_and(|value| asks(name, value));
        OF_NODES.into_iter().filter(move |name| is_said(name) && (is_of_one || *name != "az"))
    });
    said.collect()
}

/// Returns the limits of a section or provider that are not enforced, because the machines' usage
/// of these resources is unknown.
pub(super) fn uncounted(object: &ProviderObject) -> Vec<&str> {
    let limits = object.attributes.get("resource-limits").and_then(Json::as_object);
    let names = limits.into_iter().flat_map(|limits| limits.keys().map(String::as_str));
    let mut names: Vec<&str> = names.filter(|name| *name != "instances").collect();
    names.sort_unstable();
    names
}
