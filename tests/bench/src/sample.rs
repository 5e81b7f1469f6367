//! The configuration that is measured: two pipelines and three jobs of one node each.

/// The tenant.
pub const MAIN: &str = "
- tenant:
    name: bench
    source:
      github:
        config-projects: [org/config]
        untrusted-projects: [org/one]
";

/// Where the nodes come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Nodes {
    /// They stand there already.
    Warm,
    /// Each is launched for its build and terminated after it.
    Cold,
}

/// Returns the files of the repositories: project, path, text.
pub fn repositories(nodes: Nodes) -> [(&'static str, &'static str, String); 2] {
    let supply = match nodes {
        Nodes::Warm => warm(),
        Nodes::Cold => COLD.to_owned(),
    };
    [("org/config", "zuul.yaml", format!("{PIPELINES}{supply}")), ("org/one", ".zuul.yaml", PROJECT.to_owned())]
}

const PROJECT: &str = "
- project:
    queue: integrated
    check:
      jobs: [one, two, three]
    gate:
      jobs: [one, two, three]
";

const PIPELINES: &str = "
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
- job:
    name: base
    parent: null
    pre-run: playbooks/pre.yaml
    post-run: playbooks/post.yaml
    nodeset:
      nodes: [{name: node, label: small}]
- job: {name: one, run: playbooks/one.yaml}
- job: {name: two, run: playbooks/two.yaml}
- job: {name: three, run: playbooks/three.yaml}
- queue: {name: integrated}
- image: {name: debian, type: cloud, username: root}
- flavor: {name: small}
";

const COLD: &str = "
- label: {name: small, image: debian, flavor: small}
- section:
    name: here
    connection: ec2
    region: us-east-1
    quota: {instances: 300}
    images: [{name: debian, image-id: ami-1}]
    flavors: [{name: small, instance-type: t3.small}]
- provider: {name: main, section: here, labels: [small]}
";

/// Six nodes that stand there: two changes' worth.
fn warm() -> String {
    let node = |number: u32| {
        format!("{{name: n{number}.example.com, labels: [small], host-key: ssh-ed25519 AAAA, username: zuul}}")
    };
    let nodes: Vec<String> = (1..=6).map(node).collect();
    format!(
        "- label: {{name: small}}\n- section: {{name: here, connection: null, nodes: [{}]}}\n- provider: {{name: main, section: here, include-all-node-labels: true}}\n",
        nodes.join(", ")
    )
}
