//! The configuration of the fixture's tenants.

use sluice_config::connection::{Connections, Driver};
use sluice_config::fragment::{self, Source, SourceFile, Trust};
use sluice_config::layout::{Layout, LayoutSources};
use sluice_config::tenant::{TenantConfig, TenantProject};
use sluice_model::ProjectName;
use std::collections::BTreeMap;
use std::sync::Arc;

const CONFIG: &str = r#"
- pipeline:
    name: check
    description: Tests every proposed change on its own.
    manager: independent
    trigger:
      github:
        - event: pull_request
          action: [opened, changed, reopened]
    success: {github: {status: success}}
    failure: {github: {status: failure}}
- pipeline:
    name: gate
    description: Approved changes, tested in the order in which they are to land.
    manager: dependent
    window: 5
    trigger:
      github:
        - event: pull_request_review
          action: submitted
          state: approved
    success: {github: {status: success, merge: true}}
    failure: {github: {status: failure}}
- pipeline:
    name: periodic
    manager: independent
    trigger:
      timer:
        - time: "0 3 * * *"
- pipeline:
    name: manual
    description: What people start themselves.
    manager: independent
    allow-parameters: true
- nodeset:
    name: pair
    nodes:
      - {name: primary, label: small}
      - {name: secondary, label: small}
- job:
    name: base
    parent: null
    description: |
      What every job stands on.
      It makes the workspace.
    pre-run: playbooks/base/pre.yaml
    post-run: playbooks/base/post.yaml
    timeout: 1800
    nodeset: {nodes: [{name: node, label: small}]}
- project:
    name: org/app
    queue: integrated
    check: {jobs: [unit, integration], parameters: [{name: unused, type: string}]}
    gate: {jobs: [unit, integration]}
    manual:
      parameters:
        - {name: kind, type: selection, values: [small, large], default: small, description: How much of it.}
        - {name: loud, type: bool, required: true}
- project:
    name: org/lib
    queue: integrated
    check: {jobs: [unit]}
    gate: {jobs: [unit, docs: {voting: false}]}
"#;

const APP: &str = r#"
- job:
    name: unit
    description: Runs the unit tests.
    run: playbooks/unit.yaml
    tags: [fast]
    vars: {suite: unit}
- job:
    name: integration
    description: Runs the service on two nodes.
    parent: unit
    run: playbooks/integration.yaml
    nodeset: pair
    dependencies: [unit]
    required-projects: [org/lib]
    branches: [main, stable/1.0]
- job:
    name: docs
    run: playbooks/docs.yaml
    secrets: [publish]
- secret:
    name: publish
    data:
      token: !encrypted/pkcs1-oaep c2VjcmV0LWNpcGhlcnRleHQ=
"#;

const LIB: &str = r#"
- project:
    check: {jobs: [no-such-job]}
"#;

/// Returns the live layout of a tenant: two projects, a shared queue, and one configuration error.
pub fn layout(tenant: &str) -> Layout {
    let mut config = TenantConfig::new(tenant);
    let file = |project: &str, path: &str, trust: Trust, text: &str| {
        let source = Source {
            connection: "github".into(),
            project: ProjectName::new("github.com", project),
            branch: "main".into(),
            path: path.to_owned(),
            trust,
        };
        Arc::new(fragment::parse(&SourceFile { source, text: text.to_owned() }))
    };
    for (name, trust) in [
        ("org/config", Trust::Config),
        ("org/app", Trust::Untrusted),
        ("org/lib", Trust::Untrusted),
    ] {
        config.projects.push(TenantProject::new(
            "github",
            ProjectName::new("github.com", name),
            trust,
        ));
    }
    Layout::build(LayoutSources {
        tenant: config,
        connections: Connections::new().with("github", Driver::GitHub, "github.com"),
        branches: BTreeMap::new(),
        fragments: vec![
            file("org/config", "zuul.yaml", Trust::Config, CONFIG),
            file("org/app", ".zuul.yaml", Trust::Untrusted, APP),
            file("org/lib", ".zuul.yaml", Trust::Untrusted, LIB),
        ],
    })
}
