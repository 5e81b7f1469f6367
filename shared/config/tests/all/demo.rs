//! A complete sample configuration, from its files to frozen jobs.

use crate::common::*;
use sluice_config::pipeline::{CommitStatusState, FilterKind, Manager, ReporterKind, TriggerKind};
use sluice_config::{FreezeInput, Layout, Scope};
use sluice_model::git::MergeMode;

const CONFIG: &str = r#"
- pipeline:
    name: check
    description: Newly proposed changes.
    manager: independent
    trigger:
      github:
        - event: pull_request
          action: [opened, changed, reopened]
        - event: pull_request
          action: comment
          comment: (?i)^\s*recheck\s*$
    require:
      github: {open: true, draft: false}
    start:
      github: {status: pending, comment: false}
    success:
      github: {status: success}
    failure:
      github: {status: failure}

- pipeline:
    name: gate
    manager: dependent
    precedence: high
    post-review: true
    supercedes: check
    window-floor: 2
    require:
      github:
        open: true
        current-patchset: true
        review:
          - type: approved
            permission: write
        status: ["zuul:check:success"]
    trigger:
      github:
        - event: pull_request_review
          action: submitted
          state: approved
        - event: push
          ref: ^refs/heads/
    success:
      github: {status: success, merge: true}
    failure:
      github: {status: failure, label: [broken]}

- job:
    name: base
    parent: null
    timeout: 30m
    attempts: 2
    pre-run: playbooks/base/pre.yaml
    post-run:
      - name: playbooks/base/post.yaml
        cleanup: true
    secrets:
      - logs
    nodeset:
      nodes:
        - name: node
          label: small

- secret:
    name: logs
    data:
      password: !encrypted/pkcs1-oaep
        - YWJj
        - ZGVm

- nodeset:
    name: pair
    nodes:
      - {name: controller, label: small}
      - {name: compute, label: large}
    groups:
      - {name: all-of-them, nodes: [controller, compute]}

- job:
    name: unit
    run: playbooks/unit.yaml
    vars: {level: {a: 1, b: 2}}

- job:
    name: cluster
    nodeset: pair
    run: playbooks/cluster.yaml
    dependencies: unit

- queue:
    name: shared
    allow-circular-dependencies: true

- image: {name: debian, type: cloud, username: admin}
- flavor: {name: small}
- flavor: {name: big}
- label: {name: small, image: debian, flavor: small, min-ready: 1}
- label: {name: large, image: debian, flavor: big}
- section:
    name: here
    connection: ec2
    region: eu-central-1
    boot-timeout: 120
    key-name: zuul
    quota: {instances: 8}
    images:
      - {name: debian, image-id: ami-1}
    flavors:
      - {name: small, instance-type: t3.small}
      - {name: big, instance-type: t3.large}
- provider:
    name: main
    section: here
    labels:
      - small
      - {name: large, boot-timeout: 240, tags: {for: tests}}
"#;

const PROJECT: &str = "
- project:
    queue: shared
    merge-mode: squash-merge
    check:
      jobs: [unit, cluster]
    gate:
      fail-fast: true
      jobs:
        - unit:
            vars: {level: {b: 3}}
        - cluster
";

fn demo() -> Tenant {
    tenant().at("org/config", "master", "zuul.d/all.yaml", CONFIG).file("org/project", PROJECT)
}

/// Z6.1: triggers, requirements and reporters use the names of their driver.
#[test]
fn pipelines_are_parsed_in_order_with_their_drivers_attributes() {
    let layout = demo().sound();
    let [check, gate] = layout.pipelines() else { panic!("two pipelines") };
    assert_eq!(
        (check.name.as_str(), check.manager, gate.manager),
        ("check", Manager::Independent, Manager::Dependent)
    );
    assert_eq!((gate.window.initial, gate.window.floor, gate.post_review), (20, 2, true));
    assert_eq!(gate.supersedes, ["check".into()]);
    let TriggerKind::GitHub(recheck) = &check.triggers[1].kind else { panic!("a GitHub trigger") };
    assert!(recheck.comment[0].finds("recheck") && !recheck.comment[0].finds("please recheck it"));
    let FilterKind::GitHub(require) = &gate.require[0].kind else { panic!("a GitHub filter") };
    assert_eq!(require.review[0].r#type.as_deref(), Some("approved"));
    assert!(require.status[0].matches_whole("zuul:check:success"));
    let ReporterKind::GitHub(success) = &gate.reporters.success[0].kind else {
        panic!("a GitHub reporter")
    };
    assert_eq!((success.status, success.merge), (Some(CommitStatusState::Success), true));
    assert_eq!(
        gate.reporters.merge_conflict, gate.reporters.failure,
        "conflicts go to the reporters of failures"
    );
}

/// Z4.1, Z4.7: a frozen job holds all attributes in order.
#[test]
fn frozen_jobs_hold_all_attributes() {
    let layout = demo().sound();
    let org_project = project("org/project");
    let graph = layout.freeze(&FreezeInput::change("gate", &org_project, "master")).unwrap();
    assert_eq!(names(&graph), ["unit", "cluster"]);
    let unit = job(&graph, "unit");
    assert_eq!((unit.timeout_seconds, unit.attempts, unit.voting), (Some(1800), 2, true));
    let paths = |playbooks: &[sluice_model::job::Playbook]| {
        playbooks.iter().map(|playbook| playbook.path.clone()).collect::<Vec<_>>()
    };
    assert_eq!(paths(&unit.pre_run), ["playbooks/base/pre.yaml"]);
    assert_eq!(paths(&unit.run), ["playbooks/unit.yaml"]);
    assert_eq!(paths(&unit.post_run), ["playbooks/base/post.yaml"]);
    assert!(unit.post_run[0].cleanup && unit.post_run[0].trusted);
    assert_eq!(
        serde_json::to_string(&unit.vars).unwrap(),
        r#"{"level":{"a":1,"b":3}}"#,
        "the project's entry merges into the job's"
    );
    // X01: a secret is available only to playbooks of the definition that lists it.
    assert!(unit.pre_run[0].secrets.contains_key("logs") && unit.run[0].secrets.is_empty());
    assert!(!unit.post_review, "a trusted job with a secret runs anywhere");
    let cluster = job(&graph, "cluster");
    assert_eq!(
        cluster.summary().labels,
        [[sluice_model::LabelName::from("small"), "large".into()]]
    );
    assert_eq!(cluster.nodesets[0].groups[0].nodes, ["controller", "compute"]);
    assert_eq!(cluster.dependencies[0].name.as_str(), "unit");
    assert_eq!(unit.inheritance.len(), 3, "{:?}", unit.inheritance);
}

/// Z6.3
#[test]
fn projects_know_their_queue_and_merge_mode() {
    let layout = demo().sound();
    let (one, other) = (project("org/project"), project("org/project1"));
    let queue = layout.queue(&one, "gate");
    assert_eq!((queue.name.as_str(), queue.allow_circular_dependencies), ("shared", true));
    assert_eq!(layout.queue(&other, "gate").name.as_str(), "github.com/org/project1");
    assert_eq!(layout.merge_mode(&one), MergeMode::SquashMerge);
    assert_eq!(layout.merge_mode(&other), MergeMode::Merge);
    assert_eq!(layout.project_pipelines(&one), ["check".into(), "gate".into()]);
    assert!(layout.project_pipelines(&other).is_empty());
    let fails_fast =
        |pipeline: &str| layout.fail_fast(&FreezeInput::change(pipeline, &one, "master"));
    assert!(fails_fast("gate") && !fails_fast("check"));
    assert_eq!(layout.project("org/project").unwrap().name, one);
    assert_eq!(layout.project("github.com/org/project").unwrap().name, one);
}

/// L3.2: image, flavor, label, section and provider apply in order.
#[test]
fn providers_are_resolved_for_the_launcher() {
    let layout = demo().sound();
    let [provider] = layout.providers() else { panic!("one provider") };
    assert_eq!(
        (provider.canonical_name.as_str(), provider.region.as_deref()),
        ("github.com/org/config/main", Some("eu-central-1"))
    );
    assert_eq!(provider.section_quota.as_ref().unwrap().limits["instances"], 8);
    let [small, large] = provider.labels.as_slice() else { panic!("two labels") };
    assert_eq!(
        (small.image_id.as_deref(), small.instance_type.as_deref()),
        (Some("ami-1"), Some("t3.small"))
    );
    assert_eq!(
        (small.username.as_str(), small.key_name.as_deref(), small.boot_timeout_seconds),
        ("admin", Some("zuul"), 120)
    );
    assert_eq!(
        (small.min_ready, large.boot_timeout_seconds, large.tags["for"].as_str()),
        (1, 240, "tests")
    );
    assert_eq!(large.instance_type.as_deref(), Some("t3.large"));
    assert_eq!(small.image.as_deref(), Some("github.com/org/config/debian"));
}

/// Z6.6: a layout survives storage, and an overlay changes only what the change edits.
#[test]
fn an_overlay_tests_a_change_with_its_own_configuration() {
    let tenant = demo();
    let layout = tenant.sound();
    let stored = Layout::from_bytes(&layout.to_bytes()).unwrap();
    assert_eq!((stored.id(), stored.pipelines()), (layout.id(), layout.pipelines()));
    let edited =
        tenant.proposal("org/project", "master", "- project:\n    check:\n      jobs: [unit]\n");
    let overlay = layout.overlay(&[edited], Scope::UntrustedOnly);
    let org_project = project("org/project");
    let input = FreezeInput::change("check", &org_project, "master");
    assert_eq!(names(&overlay.freeze(&input).unwrap()), ["unit"]);
    assert_eq!(names(&layout.freeze(&input).unwrap()), ["unit", "cluster"]);
    assert_ne!(overlay.id(), layout.id());
    // A proposal for a config project is only validated.
    let refused = tenant.proposal(
        "org/config",
        "master",
        "- job: {name: base, parent: null, vottng: true}\n",
    );
    assert_eq!(
        layout.overlay(std::slice::from_ref(&refused), Scope::UntrustedOnly).id(),
        layout.id()
    );
    let validated = layout.overlay(&[refused], Scope::ToValidate);
    let fresh = validated.errors_since(&layout);
    assert!(
        fresh.iter().any(|error| error.short_text().starts_with("syntax error")),
        "C06: {fresh:#?}"
    );
}

/// Z4.7: the same input always freezes to the same job.
#[test]
fn freezing_is_deterministic() {
    let org_project = project("org/project");
    let input = FreezeInput::change("gate", &org_project, "master");
    let one = demo().sound().freeze(&input).unwrap();
    let other = demo().sound().freeze(&input).unwrap();
    assert_eq!(one.jobs[0].hash(), other.jobs[0].hash());
    assert_eq!(one, other);
}
