//! Generates tenants: a config project with pipelines and central jobs, and any number of projects
//! with a `.zuul.yaml` each.

use sluice_config::fragment::{Source, SourceFile, Trust};
use sluice_config::tenant::{TenantConfig, parse_main};
use sluice_config::{Connections, Driver};
use sluice_model::{BranchName, ProjectName};
use std::fmt::Write as _;

/// Jobs that the config project defines for all projects.
const CENTRAL_JOBS: usize = 20;
/// Projects that a regular expression in the config project configures.
const PATTERNS: [&str; 3] =
    ["^github.com/org/project-[0-9]*7$", "^github.com/org/project-1.*", "^github.com/org/.*"];

/// A generated tenant with its files.
#[derive(Debug)]
pub struct Made {
    /// The tenant.
    pub tenant: TenantConfig,
    /// The connections.
    pub connections: Connections,
    /// The configuration files.
    pub files: Vec<SourceFile>,
}

/// Generates a tenant with this number of projects besides the config project. The result depends
/// only on the number.
pub fn make(projects: usize) -> Made {
    let connections = Connections::new().with("github", Driver::GitHub, "github.com");
    let mut main = String::from(
        "- tenant:\n    name: bench\n    source:\n      github:\n        config-projects: [org/config]\n        untrusted-projects:\n",
    );
    for number in 0..projects {
        let _ = writeln!(main, "          - org/project-{number}");
    }
    let (config, errors) = parse_main("main.yaml", &main, &connections);
    assert!(errors.is_empty(), "{errors:#?}");
    let mut files = vec![file("org/config", ".zuul.yaml", Trust::Config, central())];
    files.extend((0..projects).map(|number| own(number, "")));
    Made { tenant: config.tenants.into_iter().next().unwrap(), connections, files }
}

/// Returns the file of one project; `more` is appended to its first job.
pub fn own(number: usize, more: &str) -> SourceFile {
    let mut text = String::new();
    for (job, central) in [("unit", 0), ("lint", 1), ("functional", 2)] {
        let parent = (number + central * 7) % CENTRAL_JOBS;
        let more = if job == "unit" { more } else { "" };
        let _ = write!(
            text,
            "- job:
    name: project-{number}-{job}
    parent: central-{parent}
    description: Runs the {job} tests of project {number}.
    run: playbooks/{job}.yaml
    timeout: 1800
    vars:
      tox_envlist: {job}
      verbosity: 2
    irrelevant-files:
      - ^docs/.*$
      - ^.*\\.rst$
{more}- job:
    name: project-{number}-{job}
    branches: ^stable/.*$
    nodeset: old
    vars:
      constraints: stable
"
        );
    }
    let _ = write!(
        text,
        "- project-template:
    name: project-{number}-jobs
    check:
      jobs:
        - project-{number}-unit
        - project-{number}-lint
    gate:
      jobs:
        - project-{number}-unit
- project:
    templates:
      - project-{number}-jobs
    queue: queue-{queue}
    check:
      jobs:
        - project-{number}-functional:
            voting: false
        - central-{central}
    gate:
      jobs:
        - project-{number}-functional:
            dependencies: project-{number}-unit
",
        queue = number % 10,
        central = number % CENTRAL_JOBS,
    );
    file(&format!("org/project-{number}"), ".zuul.yaml", Trust::Untrusted, text)
}

fn central() -> String {
    let mut text = String::from(
        "- pipeline:
    name: check
    manager: independent
    trigger:
      github:
        - event: pull_request
          action: [opened, changed, reopened]
- pipeline:
    name: gate
    manager: dependent
    trigger:
      github:
        - event: pull_request_review
          action: submitted
          state: approved
- nodeset: {name: new, nodes: [{name: node, label: new}]}
- nodeset: {name: old, nodes: [{name: node, label: old}]}
- job:
    name: base
    parent: null
    nodeset: new
    pre-run: playbooks/base/pre.yaml
    post-run: playbooks/base/post.yaml
",
    );
    for job in 0..CENTRAL_JOBS {
        let parent = if job < 5 { "base".to_owned() } else { format!("central-{}", job % 5) };
        let _ = write!(
            text,
            "- job:
    name: central-{job}
    parent: {parent}
    description: What all projects share, number {job}.
    run: playbooks/central-{job}.yaml
    vars: {{central: {job}}}
- job:
    name: central-{job}
    branches: ^stable/(one|two)$
    timeout: 3600
"
        );
    }
    for queue in 0..10 {
        let _ = writeln!(text, "- queue: {{name: queue-{queue}}}");
    }
    for (number, pattern) in PATTERNS.iter().enumerate() {
        let _ = write!(
            text,
            "- project:\n    name: {pattern}\n    check:\n      jobs: [central-{number}]\n"
        );
    }
    text
}

fn file(project: &str, path: &str, trust: Trust, text: String) -> SourceFile {
    let source = Source {
        connection: "github".into(),
        project: ProjectName::new("github.com", project),
        branch: BranchName::from("master"),
        path: path.to_owned(),
        trust,
    };
    SourceFile { source, text }
}
