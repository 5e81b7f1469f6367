//! What scenarios and benchmarks share: a tenant with two projects, check and gate, a base job and
//! one kind of node, and how such a scenario runs.

use crate::site::Judge;
use crate::{Ending, Site};
use sluice_model::change::ChangeKey;

/// The main configuration: a tenant with a config project and two untrusted projects.
pub const MAIN: &str = "
- tenant:
    name: demo
    source:
      github:
        config-projects: [org/config]
        untrusted-projects: [org/one, org/two]
";

/// Returns a site of [`MAIN`] with this central configuration and this configuration in both
/// projects.
pub fn site(seed: u64, config: &str, project: &str, judge: Judge) -> Site {
    let project: &[(&str, &str)] = &[(".zuul.yaml", project), ("README", "hello")];
    let repositories: &[(&str, &[(&str, &str)])] =
        &[("org/config", &[("zuul.yaml", config)]), ("org/one", project), ("org/two", project)];
    Site::new(seed, MAIN, repositories, judge)
}

/// Returns the central configuration of small scenarios: [`PIPELINES`], [`BASE`], [`COMMON`], and a
/// provider with this many nodes.
pub fn central(instances: u32) -> String {
    [PIPELINES, BASE, COMMON, &cloud(instances)].concat()
}

/// Returns a site with [`central`], where one project has this configuration and the other has
/// none.
pub fn small(instances: u32, project: &str, judge: Judge) -> Site {
    let config = central(instances);
    let repositories: &[(&str, &[(&str, &str)])] = &[
        ("org/config", &[("zuul.yaml", config.as_str())]),
        ("org/one", &[(".zuul.yaml", project)]),
        ("org/two", &[("README", "nothing")]),
    ];
    Site::new(7, MAIN, repositories, judge)
}

/// Runs the site to rest, approves the changes in this order, and runs to rest again.
pub fn approve(site: &mut Site, changes: &[&ChangeKey]) {
    site.run();
    for change in changes {
        site.forge.approve(change);
        site.take_in();
    }
    site.run();
}

/// Plays the scenario of [`site`] to its end, with two sweeps, and returns the final state.
pub fn play(site: &mut Site, changes: &[&ChangeKey]) -> Ending {
    approve(site, changes);
    // Twice: the first finds what a lost webhook left undone, the second what the first lost.
    site.sweep();
    site.sweep();
    site.ending(&["org/one", "org/two"], changes)
}

/// Plays the story of all proposed changes, approved in the order of their numbers, to its end.
pub fn play_all(site: &mut Site) -> Ending {
    let mut changes: Vec<ChangeKey> =
        site.forge.changes().into_iter().map(|change| change.facts.change.key).collect();
    changes.sort_by_key(ChangeKey::number);
    play(site, &changes.iter().collect::<Vec<_>>())
}

/// A check pipeline that tests each change separately, and a gate that merges the changes it
/// tested.
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

/// The base job of all other jobs.
pub const BASE: &str = "
- job:
    name: base
    parent: null
    pre-run: playbooks/pre.yaml
    post-run: playbooks/post.yaml
    nodeset:
      nodes: [{name: node, label: small}]
";

/// The shared queue of the projects, and the image and flavor of the nodes.
pub const COMMON: &str = "
- queue: {name: integrated}
- image: {name: debian, type: cloud, username: root}
- flavor: {name: small}
";

/// Returns a provider of nodes with the label `small`. At most `instances` of them exist at once.
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
