//! Tests that an overlay costs what the edit costs, by counting its work in tenants of different
//! sizes.

use super::*;
use crate::fragment::parse;
use crate::{Connections, Driver, LayoutSources, Source, SourceFile, parse_main};
use std::fmt::Write as _;

const CENTRAL: &str = "
- pipeline: {name: check, manager: independent}
- job: {name: base, parent: null, run: r}
- job: {name: central, run: r}
- nodeset: {name: n, nodes: [{name: a, label: x}]}
- project-template: {name: all, check: {jobs: [central]}}
- project: {name: ^org/.*, check: {jobs: [base]}}
";

/// Returns the configuration of project `number`: two jobs, a template and a project stanza, which
/// use the names in `CENTRAL`.
fn own(number: usize) -> String {
    format!(
        "- job: {{name: job-{number}, parent: central, nodeset: n}}\n- job: {{name: more-{number}, parent: job-{number}}}\n\
         - project-template: {{name: of-{number}, check: {{jobs: [more-{number}]}}}}\n\
         - project: {{templates: [all, of-{number}], check: {{jobs: [job-{number}]}}}}\n"
    )
}

/// Returns a parsed `.zuul.yaml` of a project, given by its name without the host, on a branch.
fn fragment(project: &str, branch: &str, text: &str, trust: Trust) -> Arc<Fragment> {
    let source = Source {
        connection: "github".into(),
        project: ProjectName::new("github.com", project),
        branch: branch.into(),
        path: ".zuul.yaml".to_owned(),
        trust,
    };
    Arc::new(parse(&SourceFile { source, text: text.to_owned() }))
}

/// Returns a layout without errors of a config project with `CENTRAL` and this many other projects,
/// each with the configuration that `own` returns.
fn tenant(projects: usize) -> Layout {
    let mut main =
        "- tenant: {name: one, source: {github: {config-projects: [org/config], untrusted-projects: [".to_owned();
    let mut fragments = vec![fragment("org/config", "main", CENTRAL, Trust::Config)];
    for number in 0..projects {
        let _ = write!(main, "org/p{number}, ");
        fragments.push(fragment(&format!("org/p{number}"), "main", &own(number), Trust::Untrusted));
    }
    main.push_str("]}}}\n");
    let connections = Connections::new().with("github", Driver::GitHub, "github.com");
    let (config, errors) = parse_main("main.yaml", &main, &connections);
    assert!(errors.is_empty(), "{errors:#?}");
    let tenant = config.tenants.into_iter().next().unwrap();
    let layout =
        Layout::build(LayoutSources { tenant, connections, branches: BTreeMap::new(), fragments });
    assert!(layout.errors().is_empty(), "{:#?}", layout.errors());
    layout
}

/// Returns the numbers of added and removed files, resolved names, resolved and checked stanzas,
/// and diagnostics.
fn work(layout: &Layout) -> [usize; 6] {
    let over = layout.overlay.as_ref().unwrap();
    let names = ObjectKind::WORDS.iter().map(|(_, kind)| over.symbols.of(*kind).count()).sum();
    let problems = over.diagnostics.values().map(Vec::len).sum();
    [
        over.files.len(),
        over.removed.len(),
        names,
        over.reresolved.len(),
        over.rechecked.len(),
        problems,
    ]
}

/// Z6.6, Z6.7: what is looked at for an edit of one file is the same, however many projects stand
/// beside.
#[test]
fn an_edit_of_one_file_has_as_much_looked_at_in_a_tenant_of_any_size() {
    let (small, large) = (tenant(8), tenant(400));
    let edits = [
        ("an attribute", "main", own(3).replace("nodeset: n", "nodeset: n, attempts: 2")),
        ("another name", "main", own(3).replace("name: job-3,", "name: job-three,")),
        ("a name that nothing bears", "main", own(3).replace("nodeset: n", "nodeset: nn")),
        ("a mistake of shape", "main", own(3).replace("nodeset: n", "nodset: n")),
        ("a final job that has a child", "main", own(3).replace("nodeset: n", "final: true")),
        ("a name of another project's job", "main", own(3).replace("name: job-3,", "name: job-4,")),
        ("nothing left", "main", String::new()),
        ("another branch", "stable", own(3)),
    ];
    for (what, branch, text) in edits {
        let proposed = BranchConfig {
            project: ProjectName::new("github.com", "org/p3"),
            branch: branch.into(),
            fragments: vec![fragment("org/p3", branch, &text, Trust::Untrusted)],
        };
        let over =
            |layout: &Layout| layout.overlay(std::slice::from_ref(&proposed), Scope::UntrustedOnly);
        let (in_small, in_large) = (work(&over(&small)), work(&over(&large)));
        assert_eq!(in_small, in_large, "{what}");
        assert!(in_large[4] < 20, "{what}: {in_large:?}");
        assert_eq!(
            over(&small).errors_since(&small).len(),
            over(&large).errors_since(&large).len(),
            "{what} is reported in both"
        );
    }
}
