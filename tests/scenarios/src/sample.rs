//! Configuration that the story and the measurements share: check and gate, a base job, one kind of node.

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

/// Returns a provider of nodes labelled `small` that are launched for each build, at most so many at once.
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
