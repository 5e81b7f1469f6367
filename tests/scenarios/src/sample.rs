//! What stories and measurements share: a tenant of two projects with check and gate, a base job,
//! one kind of node; and how such a story is told.

use crate::site::Judge;
use crate::{Ending, Site};
use sluice_model::change::ChangeKey;

/// A tenant of a config project and two others.
pub const MAIN: &str = "
- tenant:
    name: demo
    source:
      github:
        config-projects: [org/config]
        untrusted-projects: [org/one, org/two]
";

/// Returns a site of [`MAIN`] with this central configuration and that of the two projects.
pub fn site(seed: u64, config: &str, project: &str, judge: Judge) -> Site {
    let project: &[(&str, &str)] = &[(".zuul.yaml", project), ("README", "hello")];
    let repositories: &[(&str, &[(&str, &str)])] =
        &[("org/config", &[("zuul.yaml", config)]), ("org/one", project), ("org/two", project)];
    Site::new(seed, MAIN, repositories, judge)
}

/// Returns what the config project holds in most small stories: [`PIPELINES`], [`BASE`], [`COMMON`]
/// and so many nodes at once.
pub fn central(instances: u32) -> String {
    [PIPELINES, BASE, COMMON, &cloud(instances)].concat()
}

/// Returns a site of [`central`] where one project has configuration of its own; the other one
/// holds nothing but a file.
pub fn small(instances: u32, project: &str, judge: Judge) -> Site {
    let config = central(instances);
    let repositories: &[(&str, &[(&str, &str)])] = &[
        ("org/config", &[("zuul.yaml", config.as_str())]),
        ("org/one", &[(".zuul.yaml", project)]),
        ("org/two", &[("README", "nothing")]),
    ];
    Site::new(7, MAIN, repositories, judge)
}

/// Lets everything come to its end, approves changes in this order, and lets everything come to its
/// end again.
pub fn approve(site: &mut Site, changes: &[&ChangeKey]) {
    site.run();
    for change in changes {
        site.forge.approve(change);
        site.take_in();
    }
    site.run();
}

/// Tells a story of [`site`] to its end.
pub fn tell(site: &mut Site, changes: &[&ChangeKey]) -> Ending {
    approve(site, changes);
    // Twice: what a lost webhook left undone is found by the first, what that one lost by the
    // second.
    site.sweep();
    site.sweep();
    site.ending(&["org/one", "org/two"], changes)
}

/// A pipeline that tests each change by itself, and one that merges what it has tested.
pub const PIPELINES: &str = "
- pipeline:
    name: check
    manager: independent
    trigger:
      github:
        - event: pull_request
          action: [opened, changed, reopened]
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
    require:
      github:
        open: true
        review:
          - type: approved
            permission: write
    trigger:
      github:
        - event: pull_request_review
          action: submitted
          state: approved
    start:
      github: {status: pending, comment: false}
    success:
      github: {status: success, merge: true}
    failure:
      github: {status: failure}
";

/// The job that all others come from.
pub const BASE: &str = "
- job:
    name: base
    parent: null
    pre-run: playbooks/pre.yaml
    post-run: playbooks/post.yaml
    nodeset:
      nodes: [{name: node, label: small}]
";

/// The queue that projects share, and what nodes are made of.
pub const COMMON: &str = "
- queue: {name: integrated}
- image: {name: debian, type: cloud, username: root}
- flavor: {name: small}
";

/// Returns a provider of nodes labelled `small` that are launched for each build, at most so many
/// at once.
pub fn cloud(instances: u32) -> String {
    format!(
        "
- label: {{name: small, image: debian, flavor: small}}
- section:
    name: here
    connection: ec2
    region: us-east-1
    quota: {{instances: {instances}}}
    images: [{{name: debian, image-id: ami-1}}]
    flavors: [{{name: small, instance-type: t3.small}}]
- provider: {{name: main, section: here, labels: [small]}}
"
    )
}
