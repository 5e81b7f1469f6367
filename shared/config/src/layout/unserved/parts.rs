//! Attributes that are read, typed and shown, and that nobody acts on yet: of jobs, and of what nodes are made of.

use crate::objects::{JobStanza, Place, ProviderObject, RoleSource};
use serde_json::Value as Json;
use sluice_model::job::{Choice, SecretExposure};
use std::collections::BTreeSet;

/// Returns what of a job's definition, or of an entry, nobody acts on: attribute, place, and what is told.
pub(super) fn of_job(job: &JobStanza) -> Vec<(&'static str, Place, String)> {
    let run_time = &job.run_time;
    let is_galaxy = |source: &RoleSource| matches!(source, RoleSource::Galaxy(_));
    let without = "not carried out yet: the job runs as if this were not there";
    let said = [
        ("secret-exposure", run_time.secret_exposure.is_some_and(|what| what != SecretExposure::Ignore), without),
        ("workspace-checkout", run_time.workspace_checkout.is_some_and(|what| what != Choice::Yes), without),
        ("workspace", run_time.workspace.is_some(), without),
        ("host", run_time.host.is_some(), without),
        ("ansible-split-streams", run_time.ansible_split_streams == Some(true), without),
        ("preserve-home-paths", run_time.preserve_home_paths.as_ref().is_some_and(|list| !list.is_empty()), without),
        ("auth.swift", run_time.containers.is_some(), "not carried out yet: no credentials for storage are issued"),
        (
            "roles",
            job.roles.iter().flatten().any(|role| is_galaxy(&role.source)),
            "those of Ansible Galaxy are not fetched yet",
        ),
        (
            "image-build-name",
            job.image_build_name.is_some(),
            "images are not built yet: the job runs as any other, whichever image is asked for, and nothing it returns becomes one",
        ),
        ("ansible-version", job.ansible_version.as_deref() == Some("9"), "all jobs run with Ansible 11 so far"),
    ];
    let told = said.into_iter().filter(|(_, is_said, _)| *is_said).map(|(attribute, _, why)| {
        (attribute, job.places.of(attribute).unwrap_or(job.place), format!("\"{attribute}\": {why}"))
    });
    told.collect()
}

/// Attributes of what nodes are made of that no machine is launched by.
const OF_NODES: [&str; 30] = [
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
];

/// Returns the attributes of an image, flavor, label, section or provider that nobody acts on, wherever in it they stand.
pub(super) fn of_object(object: &ProviderObject) -> BTreeSet<&'static str> {
    let members =
        ["images", "flavors", "labels"].into_iter().filter_map(|list| object.attributes.get(list)?.as_array());
    let defaults = ["image-defaults", "flavor-defaults", "label-defaults"];
    let defaults = defaults.into_iter().filter_map(|name| object.attributes.get(name)?.as_object());
    let parts = members.flatten().filter_map(Json::as_object).chain(defaults).chain([&object.attributes]);
    // What says no more than is so anyway asks for nothing.
    let asks = |name: &str, value: &Json| match (name, value) {
        (_, Json::Null | Json::Bool(false)) => false,
        ("slots", value) => *value != 1,
        ("max-age" | "min-retention-time", value) => *value != 0,
        ("connection-type", value) => value != "ssh",
        ("market-type", value) => value != "on-demand",
        _ => true,
    };
    let said = parts.flat_map(|part| {
        OF_NODES.into_iter().filter(move |name| part.get(*name).is_some_and(|value| asks(name, value)))
    });
    said.collect()
}
