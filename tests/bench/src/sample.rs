//! The configuration that is measured: two pipelines and three jobs of one node each.

use sluice_scenarios::sample::{BASE, COMMON, PIPELINES, cloud};

/// The tenant's name.
pub const MAIN: &str = "
- tenant:
    name: bench
    source:
      github:
        config-projects: [org/config]
        untrusted-projects: [org/one]
";

/// How nodes are provided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Nodes {
    /// Ready nodes exist.
    Warm,
    /// Each node is launched for its build and terminated after it.
    Cold,
}

/// A file of a repository: project, path, text.
pub type File = (String, String, String);

/// Returns the configuration of the repositories.
pub fn repositories(nodes: Nodes) -> Vec<File> {
    // Six: two changes' worth.
    supplied(&match nodes {
        Nodes::Warm => warm(6),
        Nodes::Cold => cloud(300),
    })
}

/// Returns the configuration with this number of ready nodes.
pub fn repositories_with(nodes: u32) -> Vec<File> {
    supplied(&warm(nodes))
}

/// Returns the configuration, with the playbooks that it names.
pub fn playable(nodes: Nodes) -> Vec<File> {
    let mut files = repositories(nodes);
    for name in ["pre", "post", "one", "two", "three"] {
        let playbook = "- hosts: all\n  tasks: []\n".to_owned();
        files.push(("org/config".to_owned(), format!("playbooks/{name}.yaml"), playbook));
    }
    files
}

fn supplied(supply: &str) -> Vec<File> {
    vec![
        (
            "org/config".to_owned(),
            "zuul.yaml".to_owned(),
            [PIPELINES, BASE, JOBS, COMMON, supply].concat(),
        ),
        ("org/one".to_owned(), ".zuul.yaml".to_owned(), PROJECT.to_owned()),
    ]
}

/// Returns the configuration of a gate that tests all of its changes at once, with one job without
/// nodes each: executors run as many builds as come, however many nodes there are.
pub fn wide() -> Vec<File> {
    let pipelines = PIPELINES.replace("manager: dependent", "manager: dependent\n    window: 0");
    let job = "- job: {name: one, run: playbooks/one.yaml, nodeset: {nodes: []}}\n";
    let project = "- project: {queue: integrated, check: {jobs: [one]}, gate: {jobs: [one]}}\n";
    vec![
        (
            "org/config".to_owned(),
            "zuul.yaml".to_owned(),
            [pipelines.as_str(), BASE, job, COMMON, &cloud(1)].concat(),
        ),
        ("org/one".to_owned(), ".zuul.yaml".to_owned(), project.to_owned()),
    ]
}

/// Returns the name of a project of a large tenant.
pub fn project(number: usize) -> String {
    format!("org/p{number:04}")
}

/// Returns the main configuration of a tenant with this number of projects.
pub fn main_of(projects: usize) -> String {
    let names: Vec<String> = (0..projects).map(project).collect();
    MAIN.replace("[org/one]", &format!("[{}]", names.join(", ")))
}

/// Returns the files of its repositories: each project has one job of one node in check.
pub fn repositories_of(projects: usize) -> Vec<File> {
    let config = [PIPELINES, BASE, JOBS, COMMON, &cloud(1_000)].concat();
    let own = (0..projects).map(|number| {
        (project(number), ".zuul.yaml".to_owned(), "- project: {check: {jobs: [one]}}\n".to_owned())
    });
    [("org/config".to_owned(), "zuul.yaml".to_owned(), config)].into_iter().chain(own).collect()
}

const PROJECT: &str = "
- project:
    queue: integrated
    check:
      jobs: [one, two, three]
    gate:
      jobs: [one, two, three]
";

const JOBS: &str = "
- job: {name: one, run: playbooks/one.yaml}
- job: {name: two, run: playbooks/two.yaml}
- job: {name: three, run: playbooks/three.yaml}
";

fn warm(nodes: u32) -> String {
    let node = |number: u32| {
        format!(
            "{{name: n{number}.example.com, labels: [small], host-key: ssh-ed25519 AAAA, username: zuul}}"
        )
    };
    let nodes: Vec<String> = (1..=nodes).map(node).collect();
    format!(
        "- label: {{name: small}}\n- section: {{name: here, connection: null, nodes: [{}]}}\n- provider: {{name: main, section: here, include-all-node-labels: true}}\n",
        nodes.join(", ")
    )
}
