//! The walk over files of an untrusted project. Each attribute of a repository is accepted as in a
//! config project, except a closed list of attributes. Those are refused with the text of their
//! rule.

use crate::common::{BASE, tenant_of};
use crate::documents::{self, all_connections};
use crate::none;
use crate::walk::{At, objects};
use serde_json::Value as Json;
use sluice_config::Severity;
use std::collections::BTreeSet;

/// Attributes that an untrusted project may not set.
struct Rule {
    object: &'static str,
    /// `None` for all attributes of the object.
    attribute: Option<&'static str>,
    /// `None` for all values of the attribute.
    value: Option<&'static str>,
    diagnostics: &'static str,
}

const fn rule(
    object: &'static str,
    attribute: Option<&'static str>,
    value: Option<&'static str>,
    diagnostics: &'static str,
) -> Rule {
    Rule { object, attribute, value, diagnostics }
}

const PIPELINES: &str =
    "Pipelines may only be defined in config projects, not in untrusted projects";
const BASE_JOBS: &str = "Base jobs may only be defined in config projects";
const REPORTERS: &str = "Reporter jobs may only be defined in config projects";
const OWN_PROJECT: &str = "only a stanza for the project itself is permitted";

/// The rules of Zuul's documentation: attributes reserved to config projects, and nothing else. An
/// untrusted project may set `allowed-projects`. Rules that depend on other definitions of a name
/// (shadowing, another project's secret) are not listed here.
const REFUSED: &[Rule] = &[
    // With all attributes of its triggers, requirements and reporters.
    rule("pipeline", None, None, PIPELINES),
    rule("job", Some("parent"), Some("null"), BASE_JOBS),
    rule("job", Some("type"), Some("\"reporter\""), REPORTERS),
    rule("entry of a project", Some("type"), Some("\"reporter\""), REPORTERS),
    rule("entry of a template", Some("type"), Some("\"reporter\""), REPORTERS),
    rule("project", Some("name"), None, OWN_PROJECT),
];

/// Returns whether an object belongs to the tenants' file rather than to a repository.
fn is_of_main(object: &str) -> bool {
    object.starts_with("tenant")
        || matches!(
            object,
            "authorization-rule" | "authorization-role" | "global-semaphore" | "api-root"
        )
}

/// Returns the index of the rule that refuses a value in an untrusted project.
fn rule_for(at: &At<'_>, value: &Json) -> Option<usize> {
    let of_pipeline = ["trigger", "reporter", "require", "reject"];
    let object = match at.object.rsplit_once(' ') {
        Some((_, part)) if of_pipeline.contains(&part) => "pipeline",
        _ => at.object,
    };
    let (path, value) = (at.path.join("."), value.to_string());
    REFUSED.iter().position(|rule| {
        rule.object == object
            && rule.attribute.is_none_or(|attribute| attribute == path)
            && rule.value.is_none_or(|said| said == value)
    })
}

const TENANT: &str = "
- tenant:
    name: one
    allowed-oidc-issuers: [a-name]
    source:
      github:
        config-projects: [org/config]
        untrusted-projects:
          - org/project: {include-provider-config: true}
          - a-name
";

/// All objects to which an object of the walk may refer, where they must be in the same project.
const NAMED: &str = "
- job: {name: a-name, run: a-run}
- job: {name: other, run: other-run}
- job: {name: test, run: test-run}
- nodeset: {name: a-name, nodes: [{name: a, label: x}]}
- secret: {name: a-name, data: {a: b}}
";

/// Returns the diagnostics of a layout in which a project's file has this text. Both projects use
/// the same names.
fn diagnostics(text: &str, project: &str) -> BTreeSet<String> {
    let layout = tenant_of(TENANT)
        .at("org/config", "master", "zuul.d/a.yaml", BASE)
        .at(project, "master", "zuul.d/b.yaml", NAMED)
        .at(project, "master", "zuul.d/c.yaml", text)
        .build_with(&all_connections());
    let errors =
        layout.errors().iter().filter(|error| error.diagnostic.severity == Severity::Error);
    errors.map(|error| error.diagnostic.message.replace("org/config", "org/project")).collect()
}

/// Returns the diagnostics that the text only has in an untrusted project.
fn diagnostics_of_untrusted_only(text: &str) -> Vec<String> {
    diagnostics(text, "org/project").difference(&diagnostics(text, "org/config")).cloned().collect()
}

/// Z2.2, Z4.1, Z4.5, Z6.1, L3: attributes reserved to config projects are refused, and no others.
#[test]
fn untrusted_projects_may_set_all_attributes_except_reserved_ones() {
    let objects = objects();
    let (mut failures, mut used, mut count) = (Vec::new(), BTreeSet::new(), 0);
    for at in At::all(&objects).into_iter().filter(|at| !is_of_main(at.object)) {
        for value in at.right() {
            let rule = rule_for(&at, &value);
            used.extend(rule);
            for text in documents::texts(at.object, &at.given(Some(value))) {
                count += 1;
                let found = diagnostics_of_untrusted_only(&text);
                let is_as_ruled = match rule.map(|number| REFUSED[number].diagnostics) {
                    None => found.is_empty(),
                    Some(words) => found.len() == 1 && found[0].contains(words),
                };
                if !is_as_ruled {
                    let expected = rule.map_or("accepted", |number| REFUSED[number].diagnostics);
                    failures.push(format!(
                        "{text}\n    expected: {expected}\n    diagnostics: {found:?}"
                    ));
                }
            }
        }
    }
    let idle = (0..REFUSED.len()).filter(|number| !used.contains(number)).count();
    assert_eq!(idle, 0, "rules that no attribute of the list meets");
    println!("{count} cases");
    assert!(count > 1_000, "{count}");
    none(failures);
}

/// Z2.2, L3.1: node objects of an untrusted project are read only if the tenant permits it;
/// otherwise they are ignored without an error.
#[test]
fn untrusted_projects_define_node_objects_only_if_permitted() {
    let text = "
- label: {name: l}
- section: {name: s, connection: null, nodes: [{name: a.example.com, labels: [l]}]}
- provider: {name: p, section: s, include-all-node-labels: true}
";
    let without = TENANT.replace("include-provider-config: true", "");
    for (main, providers) in [(TENANT, 1), (without.as_str(), 0)] {
        let layout = tenant_of(main).file("org/config", BASE).file("org/project", text).sound();
        assert_eq!(layout.providers().len(), providers, "{main}");
    }
}

/// Z2.2, Z4.8, X10: cases that the walk's values do not cover.
#[test]
fn patterns_and_defaults_do_not_bypass_the_reserved_attributes() {
    for (text, words) in [
        ("- project: {name: ^org/.*, check: {jobs: [noop]}}\n", OWN_PROJECT),
        ("- project: {name: github.com/a-name, check: {jobs: [noop]}}\n", OWN_PROJECT),
        ("- job: {name: base, run: r}\n", BASE_JOBS),
        ("- job: {name: new, parent: null, run: r}\n", BASE_JOBS),
        ("- job: {name: new, run: r, auth: {swift: [{container: logs}]}}\n", "Swift credentials"),
        (
            "- project: {check: {jobs: [noop: {auth: {swift: [{container: logs}]}}]}}\n",
            "Swift credentials",
        ),
        ("- project-template: {name: t, check: {jobs: [noop: {type: reporter}]}}\n", REPORTERS),
    ] {
        let found = diagnostics_of_untrusted_only(text);
        assert!(found.len() == 1 && found[0].contains(words), "{text}: {found:?}");
    }
}
