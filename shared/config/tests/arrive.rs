//! Walks the project's attribute list: what is said with another value than the default is seen in the frozen jobs, or in the
//! typed fields of a provider's label. An attribute that the list has and this file has no value for fails.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use common::*;
use serde_json::{Value as Json, json};
use sluice_config::{FreezeInput, Layout, parse_main};
use std::collections::BTreeSet;

/// Returns the attributes of some objects, those within attributes left out.
fn listed(objects: &[&str], prefix: &str) -> BTreeSet<String> {
    let rows = ATTRIBUTES.lines().map(|row| row.split('\t').collect::<Vec<_>>());
    let of_objects = rows.filter(|row| objects.contains(&row[1]));
    let names = of_objects.filter_map(|row| row[2].strip_prefix(prefix).map(str::to_owned));
    let names: BTreeSet<String> = names
        .flat_map(|name| alternatives(&name))
        .filter(|name| !name.contains('.') && !name.starts_with(['(', '<']))
        .collect();
    assert!(names.len() > 1, "{objects:?} {prefix}: {names:?}");
    names
}

/// Writes `{a|b}` out.
fn alternatives(name: &str) -> Vec<String> {
    match name.strip_prefix('{').and_then(|rest| rest.strip_suffix('}')) {
        // The list has the names of the implementation there.
        Some(list) => list.split('|').map(|name| name.replace('_', "-")).collect(),
        None => vec![name.to_owned()],
    }
}

/// What only people read, and what a thing is called.
const NOT_SEEN: [&str; 3] = ["name", "description", "variant-description"];

/// Returns a value of a job's attribute that is not its default, as it is written.
fn of_job(attribute: &str) -> &'static str {
    match attribute {
        "parent" => "other",
        "final" | "abstract" | "protected" | "post-review" | "hold-following-changes" | "ansible-split-streams" => {
            "true"
        }
        // Only abstract jobs are intermediate; that they are is seen by their children.
        "intermediate" => "true, abstract: true",
        "voting" | "match-on-config-updates" | "deduplicate" => "false",
        "requires" | "provides" | "tags" | "preserve-home-paths" | "failure-output" => "[word]",
        "failure-message" | "success-message" | "failure-url" | "success-url" | "image-build-name" => "words",
        "semaphore" | "semaphores" => "one",
        "branches" => "^stable",
        "files" => "^src/",
        "irrelevant-files" => "^README$",
        "secrets" => "password",
        "nodeset" => "two",
        "pre-timeout" | "timeout" | "post-timeout" | "attempts" => "7",
        "pre-run" | "post-run" | "run" | "cleanup-run" => "own.yaml",
        "ansible-version" => "9",
        "roles" => "[{zuul: org/project1}]",
        "required-projects" | "include-projects" | "exclude-projects" => "org/project1",
        "vars" | "extra-vars" => "{a: 1}",
        "host-vars" | "group-vars" => "{a: {b: 1}}",
        "include-vars" => "vars.yaml",
        "dependencies" => "other",
        "allowed-projects" => "org/project1",
        "override-checkout" | "override-branch" => "stable",
        "workspace-scheme" => "flat",
        "workspace-checkout" => "auto",
        "type" => "initializer",
        "secret-exposure" => "redact",
        "attribute-control" => "{voting: {final: true}}",
        other => panic!("the list has {other}, and this test no value for it"),
    }
}

/// Returns what comes of the job `test` with an attribute, and of a child of it in the same and in another project.
fn seen(said: &str) -> Json {
    let text = format!(
        "{BASE}
- job: {{name: other, pre-run: other-pre, run: other-run}}
- nodeset: {{name: two, nodes: [{{name: a, label: x}}, {{name: b, label: x}}]}}
- secret: {{name: password, data: {{a: b}}}}
- job: {{name: test{said}}}
- job: {{name: child, parent: test, voting: false}}
- project: {{name: org/project, check: {{jobs: [other, test]}}, gate: {{jobs: [other, test, child]}}}}
"
    );
    let layout = tenant()
        .file("org/config", &text)
        .file(
            "org/project1",
            "- job: {name: elsewhere, parent: test}\n- project: {check: {jobs: [other, elsewhere]}}\n",
        )
        .build();
    let frozen = |project_name: &str, pipeline: &str| {
        let (name, files) = (project(project_name), ["README".to_owned()]);
        match layout.freeze(&FreezeInput::change(pipeline, &name, "master").touching(&files)) {
            Ok(graph) => serde_json::to_value(&graph).unwrap(),
            Err(errors) => errors.iter().map(|error| error.short_text()).collect::<Vec<_>>().join("\n").into(),
        }
    };
    json!([frozen("org/project", "check"), frozen("org/project", "gate"), frozen("org/project1", "check")])
}

/// Z4.3, Z4.7: whatever a job says is seen when it is frozen.
#[test]
fn every_attribute_of_a_job_is_seen_when_it_is_frozen() {
    let plain = seen("");
    let abstract_only = seen(", abstract: true");
    for attribute in listed(&["job"], "").iter().filter(|name| !NOT_SEEN.contains(&name.as_str())) {
        let with = seen(&format!(", {attribute}: {}", of_job(attribute)));
        let without = if attribute == "intermediate" { &abstract_only } else { &plain };
        assert_ne!(with, *without, "{attribute} changes nothing");
    }
}

/// Returns a value of an attribute of labels, images or flavors that is not its default.
fn of_a_label(attribute: &str) -> &'static str {
    match attribute {
        "min-ready"
        | "max-ready-age"
        | "max-age"
        | "min-retention-time"
        | "max-nodes"
        | "boot-timeout"
        | "slots"
        | "snapshot-timeout"
        | "snapshot-expiration"
        | "volume-size"
        | "iops"
        | "throughput"
        | "connection-port"
        | "retain-count"
        | "max-retain-count"
        | "import-timeout" => "7",
        "reuse"
        | "dedicated-host"
        | "ebs-optimized"
        | "nested-virtualization"
        | "public-ipv4"
        | "public-ipv6"
        | "ena-support"
        | "config-drive" => "true",
        "host-key-checking" => "false",
        "aliases" | "az" | "availability-zones" | "subnet-ids" | "subnet-id" | "subnet" | "security-group-ids" => {
            "[word]"
        }
        "executor-zone" | "key-name" | "kms-key-id" | "userdata" | "volume-type" | "instance-type" | "flavor-name"
        | "username" | "python-path" | "shell-type" | "image-id" | "image-name" | "architecture" => "word",
        "iam-instance-profile" => "{name: word}",
        "tags" => "{a: b}",
        "imds-http-tokens" => "required",
        "imds-support" => "v2.0",
        "fleet" => "{instance-types: [a], allocation-strategy: diversified}",
        "market-type" => "spot",
        "image-filters" => "[{name: name, values: [a]}]",
        "upload-methods" => "[copy]",
        "image-format" => "vhd",
        "import-method" => "snapshot",
        "connection-type" => "winrm",
        other => panic!("the list has {other}, and this test no value for it"),
    }
}

/// L3.1, L3.7, L3.8: whatever a provider says of a label, an image or a flavor is in a typed field of what it offers.
#[test]
fn every_attribute_of_labels_images_and_flavors_is_typed() {
    // `final` is about other layers, and the two parts of a label are asked for by their names.
    let apart = ["final", "image", "flavor", "type"];
    // The list's rows of images are those of sections; their defaults have what an image has.
    let lists = [
        ("labels", "label-defaults", "label", "l"),
        ("images", "image-defaults", "image", "i"),
        ("flavors", "flavors", "flavor", "f"),
    ];
    for (list, defaults, object, name) in lists {
        let offered = |said: &str| {
            let entry = |of: &str, name: &str| {
                if of == list { format!("[{{name: {name}{said}}}]") } else { format!("[{name}]") }
            };
            let text = format!(
                "
- image: {{name: i, type: zuul}}
- flavor: {{name: f}}
- label: {{name: l, image: i, flavor: f}}
- section: {{name: s, connection: ec2}}
- provider: {{name: p, section: s, labels: {}, images: {}, flavors: {}}}
",
                entry("labels", "l"),
                entry("images", "i"),
                entry("flavors", "f"),
            );
            let layout: Layout = tenant().file("org/config", &text).sound();
            let mut provider = serde_json::to_value(&layout.providers()[0]).unwrap();
            provider.as_object_mut().unwrap().remove("attributes");
            provider["labels"][0].as_object_mut().unwrap().remove("attributes");
            provider
        };
        let plain = offered("");
        let mut attributes = listed(&["aws section/provider"], &format!("{defaults}."));
        attributes
            .extend(listed(&[object], "").into_iter().filter(|name| !["name", "description"].contains(&name.as_str())));
        let known =
            |attribute: &&String| !NOT_SEEN.contains(&attribute.as_str()) && !apart.contains(&attribute.as_str());
        for attribute in attributes.iter().filter(known) {
            let with = offered(&format!(", {attribute}: {}", of_a_label(attribute)));
            assert_ne!(with, plain, "{name}: {attribute} is in no field");
        }
    }
}

/// Returns a value of a pipeline's attribute that is not its default.
fn of_a_pipeline(attribute: &str) -> &'static str {
    match attribute {
        "manager" => "independent",
        "allow-parameters" | "ignore-dependencies" | "post-review" => "true",
        "allow-other-connections" | "dequeue-on-new-patchset" => "false",
        "window" | "window-floor" | "window-ceiling" | "window-increase-factor" | "window-decrease-factor" => "7",
        "disable-after-consecutive-failures" => "7",
        "window-increase-type" => "exponential",
        "window-decrease-type" => "linear",
        "precedence" => "high",
        "supercedes" => "other",
        "require" => "{github: {open: true}}",
        "reject" => "{github: {draft: true}}",
        "trigger" => "{github: [{event: push}]}",
        "start" | "success" | "failure" | "merge-conflict" | "config-error" | "no-jobs" | "dequeue" | "enqueue"
        | "disabled" => "{github: {comment: true}}",
        "start-message"
        | "success-message"
        | "failure-message"
        | "merge-conflict-message"
        | "no-jobs-message"
        | "enqueue-message"
        | "dequeue-message"
        | "footer-message" => "words of our own",
        other => panic!("the list has {other}, and this test no value for it"),
    }
}

/// Z6.1: whatever a pipeline says is in a typed field of the layout's pipeline.
#[test]
fn every_attribute_of_a_pipeline_is_typed() {
    let made = |said: &str, manager: &str| {
        let text = format!(
            "- pipeline: {{name: other, manager: independent}}\n- pipeline: {{name: p, manager: {manager}{said}}}\n"
        );
        format!("{:?}", tenant().file("org/config", &text).sound().pipeline("p").unwrap())
    };
    let plain = made("", "dependent");
    for attribute in listed(&["pipeline"], "").iter().filter(|name| !NOT_SEEN.contains(&name.as_str())) {
        let value = of_a_pipeline(attribute);
        let with = match attribute.as_str() {
            "manager" => made("", value),
            _ => made(&format!(", {attribute}: {value}"), "dependent"),
        };
        assert_ne!(with, plain, "{attribute} is in no field");
    }
}

/// Returns a value of a tenant's attribute that is not its default.
fn of_a_tenant(attribute: &str) -> &'static str {
    match attribute {
        "max-changes-per-pipeline" | "max-dependencies" | "max-job-timeout" | "max-nodes-per-job" | "max-oidc-ttl" => {
            "7"
        }
        "allow-circular-dependencies"
        | "anonymous-read-access"
        | "exclude-locked-branches"
        | "exclude-unprotected-branches"
        | "report-build-page" => "true",
        "use-nodepool" => "false",
        "access-rules"
        | "admin-rules"
        | "allowed-oidc-issuers"
        | "allowed-reporters"
        | "allowed-triggers"
        | "allowed-labels"
        | "disallowed-labels"
        | "semaphores" => "[word]",
        "authentication-realm" | "default-ansible-version" | "default-parent" | "web-root" => "word",
        "role-mappings" => "{word: [word]}",
        "source" => "{github: {untrusted-projects: [org/other]}}",
        other => panic!("the list has {other}, and this test no value for it"),
    }
}

/// Z2.1: whatever a tenant says is in a typed field.
#[test]
fn every_attribute_of_a_tenant_is_typed() {
    let made = |said: &str| {
        let main = format!(
            "- global-semaphore: {{name: word, max: 2}}\n- authorization-rule: {{name: word, conditions: [{{a: b}}]}}\n\
             - tenant: {{name: one{said}}}\n"
        );
        let (config, errors) = parse_main("main.yaml", &main, &connections());
        assert!(errors.is_empty(), "{errors:#?}");
        format!("{:?}", config.tenants[0])
    };
    let plain = made("");
    for attribute in listed(&["tenant"], "").iter().filter(|name| !NOT_SEEN.contains(&name.as_str())) {
        assert_ne!(made(&format!(", {attribute}: {}", of_a_tenant(attribute))), plain, "{attribute} is in no field");
    }
}
