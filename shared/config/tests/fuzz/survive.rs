//! What has to survive any text: the whole way from files to frozen jobs. `tests/fuzz` goes it too.

use sluice_config::fragment::{Source, SourceFile, Trust, parse};
use sluice_config::layout::{BranchConfig, Layout, LayoutSources, Scope};
use sluice_config::{Connections, Driver, FreezeInput, parse_main};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Loads a tenant whose configuration, in whatever trust, is any text: it is stored, opened, edited and frozen.
pub fn load(main: &str, trusted: &str, untrusted: &str, proposed: &str) {
    let connections = Connections::new().with("github", Driver::GitHub, "github.com").with("smtp", Driver::Smtp, "");
    let _ = parse_main("main.yaml", main, &connections);
    let plain =
        "- tenant: {name: one, source: {github: {config-projects: [org/config], untrusted-projects: [org/a, org/b]}}}";
    let tenant = parse_main("main.yaml", plain, &connections).0.tenants.remove(0);
    let fragments = [("org/config", Trust::Config, trusted), ("org/a", Trust::Untrusted, untrusted)]
        .map(|(project, trust, text)| Arc::new(parse(&file(&connections, project, trust, text))));
    let layout = Layout::build(LayoutSources {
        tenant,
        connections: connections.clone(),
        branches: BTreeMap::new(),
        fragments: fragments.into(),
    });
    let opened = Layout::from_bytes(&layout.to_bytes()).unwrap();
    assert_eq!(opened.errors(), layout.errors());
    let fragment = Arc::new(parse(&file(&connections, "org/a", Trust::Untrusted, proposed)));
    let project = fragment.source.project.clone();
    let edit = BranchConfig { project: project.clone(), branch: "master".into(), fragments: vec![fragment] };
    let overlay = opened.overlay(&[edit], Scope::ToValidate);
    for error in overlay.errors_since(&opened) {
        assert!(!error.render(Some(proposed)).is_empty());
    }
    for pipeline in ["check", "gate"] {
        let _ = overlay.freeze_with_trace(&FreezeInput::change(pipeline, &project, "master"));
    }
}

/// Returns a file of a project's default branch.
pub fn file(connections: &Connections, project: &str, trust: Trust, text: &str) -> SourceFile {
    let project = connections.project("github", project).unwrap();
    let source =
        Source { connection: "github".into(), project, branch: "master".into(), path: ".zuul.yaml".into(), trust };
    SourceFile { source, text: text.to_owned() }
}
