//! A small test tenant: a config project, untrusted projects, and files as text.
#![allow(dead_code, reason = "each test file uses its part")]
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod founding;

use sluice_config::{
    BranchConfig, ConfigError, Connections, Driver, Fragment, FreezeInput, Layout, LayoutSources,
    Source, SourceFile, TenantConfig, Trust, parse_main,
};
use sluice_model::ProjectName;
use sluice_model::job::{FrozenJob, JobGraph};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

/// All attributes: area, object, name, type, whether it is required, and default; one row each,
/// tab-separated.
pub const ATTRIBUTES: &str = include_str!("../attributes.tsv");

/// Returns the folder of the founding documents; `None` if it is missing and waived.
pub fn founding_material() -> Option<PathBuf> {
    founding::founding_material("the founding documents' examples were not loaded")
}

/// Prints which check was waived.
///
/// # Panics If it was not waived.
pub fn waived(word: &str, missing: &str) {
    founding::waived(word, missing);
}

/// Returns the connections of the test system.
pub fn connections() -> Connections {
    Connections::new()
        .with("github", Driver::GitHub, "github.com")
        .with("gerrit", Driver::Gerrit, "review.example.com")
        .with("smtp", Driver::Smtp, "")
        .with("ec2", Driver::Aws, "")
}

/// Returns the canonical name of a project on GitHub.
pub fn project(name: &str) -> ProjectName {
    ProjectName::new("github.com", name)
}

/// A builder of a test tenant.
pub struct Tenant {
    pub config: TenantConfig,
    files: Vec<SourceFile>,
    branches: BTreeMap<ProjectName, Vec<sluice_model::BranchName>>,
}

/// Returns the default tenant: `org/config` is trusted; `org/project`, `org/project1` and
/// `org/project2` are not.
pub fn tenant() -> Tenant {
    tenant_of(
        "- tenant:\n    name: one\n    source:\n      github:\n        config-projects: [org/config]\n        untrusted-projects: [org/project, org/project1, org/project2]\n",
    )
}

/// Returns the tenant of a valid main file.
pub fn tenant_of(main: &str) -> Tenant {
    let (config, errors) = parse_main("main.yaml", main, &connections());
    assert!(errors.is_empty(), "{errors:#?}");
    Tenant {
        config: config.tenants.into_iter().next().unwrap(),
        files: Vec::new(),
        branches: BTreeMap::new(),
    }
}

impl Tenant {
    /// Adds the file `.zuul.yaml` to `master`.
    pub fn file(self, name: &str, text: &str) -> Self {
        self.at(name, "master", ".zuul.yaml", text)
    }

    /// Adds a file to a branch.
    pub fn at(mut self, name: &str, branch: &str, path: &str, text: &str) -> Self {
        let source = self.source(name, branch, path);
        self.files.push(SourceFile { source, text: text.to_owned() });
        self
    }

    /// Sets the branches of a project.
    pub fn branches(mut self, name: &str, branches: &[&str]) -> Self {
        self.branches
            .insert(project(name), branches.iter().map(|branch| (*branch).into()).collect());
        self
    }

    fn source(&self, name: &str, branch: &str, path: &str) -> Source {
        let trust =
            self.config.project(&project(name)).map_or(Trust::Untrusted, |project| project.trust);
        Source {
            connection: "github".into(),
            project: project(name),
            branch: branch.into(),
            path: path.to_owned(),
            trust,
        }
    }

    /// Returns the proposed configuration of a branch with one file.
    pub fn proposal(&self, name: &str, branch: &str, text: &str) -> BranchConfig {
        let file =
            SourceFile { source: self.source(name, branch, ".zuul.yaml"), text: text.to_owned() };
        BranchConfig {
            project: project(name),
            branch: branch.into(),
            fragments: vec![Arc::new(sluice_config::fragment::parse(&file))],
        }
    }

    /// Builds the layout.
    pub fn build(&self) -> Layout {
        self.build_with(&connections())
    }

    /// Builds the layout with these connections.
    pub fn build_with(&self, connections: &Connections) -> Layout {
        let fragments: Vec<Arc<Fragment>> =
            self.files.iter().map(|file| Arc::new(sluice_config::fragment::parse(file))).collect();
        let sources = LayoutSources {
            tenant: self.config.clone(),
            connections: connections.clone(),
            branches: self.branches.clone(),
            fragments,
        };
        Layout::build(sources)
    }

    /// Builds the layout and expects no diagnostics.
    pub fn sound(&self) -> Layout {
        let layout = self.build();
        assert!(layout.errors().is_empty(), "{:#?}", layout.errors());
        layout
    }
}

/// Returns the messages of a layout's diagnostics.
pub fn messages(layout: &Layout) -> Vec<String> {
    layout.errors().iter().map(|error| error.short_text()).collect()
}

/// Returns the names of a graph's jobs.
pub fn names(graph: &JobGraph) -> Vec<&str> {
    graph.jobs.iter().map(|job| job.name.as_str()).collect()
}

/// Returns a job of a graph.
pub fn job<'g>(graph: &'g JobGraph, name: &str) -> &'g FrozenJob {
    graph.jobs.iter().find(|job| job.name.as_str() == name).unwrap()
}

/// Returns the text that a diagnostic marks on its first line.
pub fn marked(text: &str, error: &ConfigError) -> String {
    let (start, end) = (error.diagnostic.start, error.diagnostic.end);
    let line = text.lines().nth(start.line() as usize - 1).unwrap_or_default();
    let until =
        if end.line() == start.line() { end.column() as usize - 1 } else { line.chars().count() };
    line.chars().take(until).skip(start.column() as usize - 1).collect()
}

/// Pipelines and a base job that most tests use.
pub const BASE: &str = "
- pipeline:
    name: check
    manager: independent
    trigger:
      github:
        - event: pull_request
          action: [opened, changed, reopened]
- pipeline:
    name: gate
    manager: dependent
    post-review: true
- job:
    name: base
    parent: null
    pre-run: playbooks/pre.yaml
    post-run: playbooks/post.yaml
";

/// Returns the jobs of a project's change in a pipeline, or the diagnostics that prevent freezing.
pub fn refusals(layout: &Layout, pipeline: &str, name: &str) -> String {
    let name = project(name);
    match layout.freeze(&FreezeInput::change(pipeline, &name, "master")) {
        Ok(graph) => format!("runs {}", names(&graph).join(" ")),
        Err(errors) => errors.iter().map(|error| error.short_text()).collect::<Vec<_>>().join("\n"),
    }
}
