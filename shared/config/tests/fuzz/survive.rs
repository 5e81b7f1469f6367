//! The code under fuzzing: everything from files to frozen jobs. `tests/fuzz` uses it too.

use sluice_config::fragment::{Source, SourceFile, Trust, parse};
use sluice_config::layout::{BranchConfig, Layout, LayoutSources, Scope};
use sluice_config::{Connections, Driver, FreezeInput, TenantConfig, parse_main};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The tenants to choose from: with all connections, and with some.
const LIMITS: [&str; 3] = [
    "",
    "allowed-triggers: [github, timer], allowed-reporters: [smtp, mqtt], ",
    "allowed-triggers: [gerrit, git, zuul], allowed-reporters: [gerrit, zuul], ",
];

/// Returns a connection of each driver, under the driver's name; `timer` and `zuul` are built in.
pub fn connections() -> Connections {
    Connections::new()
        .with("github", Driver::GitHub, "github.com")
        .with("gerrit", Driver::Gerrit, "review.example.com")
        .with("gitlab", Driver::GitLab, "gitlab.com")
        .with("pagure", Driver::Pagure, "pagure.io")
        .with("git", Driver::Git, "git.example.com")
        .with("smtp", Driver::Smtp, "")
        .with("mqtt", Driver::Mqtt, "")
        .with("sql", Driver::Sql, "")
        .with("elasticsearch", Driver::Elasticsearch, "")
        .with("other", Driver::Other, "")
        .with("ec2", Driver::Aws, "")
}

/// Returns the tenant with this number; its projects are on two forges.
pub fn tenant(connections: &Connections, number: usize) -> TenantConfig {
    let limits = LIMITS[number % LIMITS.len()];
    let main = format!(
        "- tenant: {{name: one, {limits}source: {{github: {{config-projects: [org/config], untrusted-projects: [org/a, org/b]}}, gerrit: {{untrusted-projects: [org/c]}}}}}}"
    );
    parse_main("main.yaml", &main, connections).0.tenants.remove(0)
}

/// Loads a tenant with any texts as trusted and untrusted configuration; then stores, opens, edits
/// and freezes it.
pub fn load(main: &str, trusted: &str, untrusted: &str, proposed: &str) {
    let connections = connections();
    let _ = parse_main("main.yaml", main, &connections);
    // Choices that the text does not determine are derived from it, so that a finding is
    // reproducible.
    let tenant = tenant(&connections, trusted.len());
    let fragments =
        [("org/config", Trust::Config, trusted), ("org/a", Trust::Untrusted, untrusted)].map(
            |(project, trust, text)| Arc::new(parse(&file(&connections, project, trust, text))),
        );
    let layout = Layout::build(LayoutSources {
        tenant,
        connections: connections.clone(),
        branches: BTreeMap::new(),
        fragments: fragments.into(),
    });
    let opened = Layout::from_bytes(&layout.to_bytes()).unwrap();
    assert_eq!(opened.errors(), layout.errors());
    assert_eq!(opened.ignored_attributes(), layout.ignored_attributes());
    let fragment = Arc::new(parse(&file(&connections, "org/a", Trust::Untrusted, proposed)));
    let project = fragment.source.project.clone();
    let edit = BranchConfig {
        project: project.clone(),
        branch: "master".into(),
        fragments: vec![fragment],
    };
    let overlay = opened.overlay(&[edit], Scope::ToValidate);
    for error in overlay.errors_since(&opened) {
        assert!(!error.render(Some(proposed)).is_empty());
    }
    for pipeline in ["check", "gate"] {
        let change = FreezeInput::change(pipeline, &project, "master");
        let _ = overlay.freeze_with_trace(&FreezeInput {
            branch: None,
            git_ref: "refs/tags/1.0",
            ..change
        });
        let _ = overlay.freeze_with_trace(&change);
    }
}

/// Returns a file of a project's default branch.
pub fn file(connections: &Connections, project: &str, trust: Trust, text: &str) -> SourceFile {
    let project = connections.project("github", project).unwrap();
    let source = Source {
        connection: "github".into(),
        project,
        branch: "master".into(),
        path: ".zuul.yaml".into(),
        trust,
    };
    SourceFile { source, text: text.to_owned() }
}
