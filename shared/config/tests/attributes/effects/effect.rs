//! The effect of an object in a small tenant, as read from the layout.

use super::{provider, values};
use crate::common::{BASE, Tenant, connections, project, tenant, tenant_of};
use crate::documents::all_connections;
use crate::walk::At;
use serde_json::{Map, Value as Json, json};
use sluice_config::objects::Stanza;
use sluice_config::{ConfigError, FreezeInput, Layout, Severity, parse_main};
use std::collections::BTreeSet;

/// The observed effect of an object.
#[derive(Debug)]
pub struct Effect {
    /// The resulting objects.
    pub text: String,
    /// The diagnostics.
    pub refused: Vec<String>,
    /// The attributes that are warned of, because they have no effect.
    pub warned: BTreeSet<String>,
}

impl Effect {
    /// Returns whether two effects are the same; a warning is no effect.
    pub fn comes_to_the_same_as(&self, other: &Self) -> bool {
        self.text == other.text && self.refused == other.refused
    }
}

/// Returns the attributes that these warnings are about.
fn attributes_of(warnings: Vec<ConfigError>) -> BTreeSet<String> {
    warnings.into_iter().filter_map(|warning| warning.diagnostic.attribute).collect()
}

/// Returns the ignored attributes that a layout warns of, except for the type of the images of the
/// tenant, which are built.
pub fn warned(layout: &Layout) -> BTreeSet<String> {
    let mut warnings = layout.ignored_attributes();
    let named = ["image a-name", "image b-name"];
    warnings.retain(|warning| {
        let diagnostic = &warning.diagnostic;
        diagnostic.attribute.as_deref() != Some("type")
            || !named.contains(&diagnostic.stanza.as_str())
    });
    attributes_of(warnings)
}

/// Returns the effects of an object with these attributes, for each location of such an object.
pub fn of(at: &At<'_>, given: &Map<String, Json>) -> Vec<Effect> {
    let object = at.object;
    if matches!(at.name(), "description" | "variant-description") && at.path.len() < 3 {
        return vec![kept_with_the_definition(object, given)];
    }
    match object {
        "job" => vec![of_job(given, at)],
        "entry of a project" | "entry of a template" => vec![of_entry(object, given, at)],
        "pragma" => vec![of_pragma(given)],
        "nodeset" => vec![of_nodeset(given)],
        "secret" => vec![of_secret(given)],
        "semaphore" => {
            vec![of_layout(&with_name(given, "s"), "semaphore", |layout| layout.semaphore("s"))]
        }
        "queue" => vec![of_queue(given)],
        "project" | "project-template" => vec![of_project(object, given)],
        "pipeline" => vec![of_pipeline(given, at)],
        "tenant" | "authorization-rule" | "authorization-role" | "global-semaphore"
        | "api-root" => {
            vec![of_main(&json!({object: given}))]
        }
        "image"
        | "flavor"
        | "label"
        | "section"
        | "provider"
        | "aws section/provider"
        | "static section/provider" => provider::of(at, given),
        _ => match (object.strip_prefix("tenant.source.<connection>."), object.split_once(' ')) {
            (Some(list), _) => of_source(list, given),
            (None, Some((driver, what))) => vec![of_driver(driver, what, given)],
            (None, None) => panic!("the list has an object that this test does not know: {object}"),
        },
    }
}

pub fn with_name(given: &Map<String, Json>, name: &str) -> Map<String, Json> {
    let mut named = given.clone();
    named.insert("name".to_owned(), json!(name));
    named
}

/// Returns the diagnostics of a layout.
pub fn refused(layout: &Layout) -> Vec<String> {
    let errors =
        layout.errors().iter().filter(|error| error.diagnostic.severity == Severity::Error);
    errors.map(|error| error.short_text()).collect()
}

/// Returns the effect of display-only attributes, which stay with the definition for pages and the
/// API.
fn kept_with_the_definition(object: &str, given: &Map<String, Json>) -> Effect {
    if object == "pipeline" {
        return pipeline(given);
    }
    let stanza = match object {
        "entry of a project" => {
            json!({"project": {"name": "org/project", "check": {"jobs": [{"test": given}]}}})
        }
        "entry of a template" => {
            json!({"project-template": {"name": "t", "check": {"jobs": [{"test": given}]}}})
        }
        "aws section/provider" | "static section/provider" => {
            json!({"provider": with_name(given, "a")})
        }
        _ => json!({object: with_name(given, "a")}),
    };
    let layout =
        tenant().at("org/config", "master", "zuul.d/b.yaml", &json!([stanza]).to_string()).build();
    let stanzas: Vec<Stanza> = layout
        .fragments()
        .iter()
        .flat_map(|file| file.stanzas().cloned().collect::<Vec<_>>())
        .collect();
    let mut text = serde_json::to_value(&stanzas).unwrap();
    without_spans(&mut text);
    Effect { text: text.to_string(), refused: Vec::new(), warned: warned(&layout) }
}

/// Removes spans: a longer text is not an effect.
fn without_spans(value: &mut Json) {
    match value {
        Json::Object(map) => {
            map.retain(|name, _| !matches!(name.as_str(), "span" | "spans" | "start" | "end"));
            map.values_mut().for_each(without_spans);
        }
        Json::Array(list) => list.iter_mut().for_each(without_spans),
        _ => {}
    }
}

/// All objects to which a job may refer.
const NAMED: &str = "
- job: {name: a-name, pre-run: a-pre, run: a-run}
- job: {name: b-name, pre-run: b-pre, run: b-run}
- job: {name: other, run: other-run}
- job: {name: more, run: more-run}
- nodeset: {name: a-name, nodes: [{name: a, label: x}, {name: b, label: x}]}
- nodeset: {name: b-name, nodes: [{name: b, label: x}]}
- secret: {name: a-name, data: {a: b}}
- secret: {name: b-name, data: {a: c}}
- image: {name: a-name, type: zuul}
- image: {name: b-name, type: zuul}
- pipeline: {name: probe, manager: independent}
";

const PROJECTS: &str = "
- tenant:
    name: one
    allowed-oidc-issuers: [a-name, b-name]
    source:
      github:
        config-projects: [org/config]
        untrusted-projects: [org/project, {org/project1: {allow-reporter-jobs: true}}, a-name, b-name]
";

fn with_named(stanzas: &[Json]) -> Tenant {
    tenant_of(PROJECTS).file("org/config", &format!("{BASE}{NAMED}")).at(
        "org/config",
        "master",
        "zuul.d/b.yaml",
        &Json::from(stanzas).to_string(),
    )
}

/// Returns the frozen jobs of projects in pipelines, for a change of README.
fn frozen(layout: &Layout, wanted: &[(&str, &str)]) -> Effect {
    let (mut text, mut refused, files) = (String::new(), refused(layout), ["README".to_owned()]);
    for (name, pipeline) in wanted {
        let name = project(name);
        match layout.freeze(&FreezeInput::change(pipeline, &name, "master").touching(&files)) {
            Ok(graph) => {
                text += &format!("{name} {pipeline}: {}\n", serde_json::to_string(&graph).unwrap())
            }
            Err(errors) => {
                let errors: Vec<String> = errors.iter().map(|error| error.short_text()).collect();
                text += &format!("{name} {pipeline}: {errors:?}\n");
                refused.extend(errors);
            }
        }
    }
    Effect { text, refused, warned: warned(layout) }
}

/// Returns the attribute that a later entry sets, if the case is about permitted attributes.
fn probed<'a>(at: &'a At<'_>) -> Option<&'a str> {
    match at.path[0].as_str() {
        "attribute-control" => Some(at.path.get(1).map_or("voting", String::as_str)),
        "final" => Some("timeout"),
        _ => None,
    }
}

fn probe(attribute: &str) -> Json {
    let value = if attribute == "timeout" { json!(77) } else { values::of_controlled(attribute) };
    json!({"project": {"name": "org/project", "probe": {"jobs": [{"test": {attribute: value}}]}}})
}

/// Observed in a job with this definition, in a child in the same project and in one of another
/// project.
fn of_job(given: &Map<String, Json>, at: &At<'_>) -> Effect {
    let mut stanzas = vec![
        json!({"job": with_name(given, "test")}),
        json!({"job": {"name": "child", "parent": "test", "voting": false}}),
        json!({"project": {"name": "org/project", "check": {"jobs": ["a-name", "b-name", "other", "more", "test"]},
            "gate": {"jobs": ["a-name", "b-name", "other", "more", "test", "child"]}, "probe": {"jobs": ["a-name", "b-name", "other", "more", "test"]}}}),
    ];
    stanzas.extend(probed(at).map(probe));
    let elsewhere = "- job: {name: elsewhere, parent: test}\n- project: {check: {jobs: [a-name, b-name, other, more, elsewhere]}}\n";
    let mut tenant = with_named(&stanzas);
    // Whether a job may be a parent at all is reported at load.
    if given.get("final") != Some(&json!(true)) {
        tenant = tenant.file("org/project1", elsewhere);
    }
    let wanted = [
        ("org/project", "check"),
        ("org/project", "gate"),
        ("org/project", "probe"),
        ("org/project1", "check"),
    ];
    frozen(&tenant.build(), &wanted)
}

/// Observed in the job of this entry, and in the attributes that a later entry may set.
fn of_entry(object: &str, given: &Map<String, Json>, at: &At<'_>) -> Effect {
    let mut entry = given.clone();
    // Roles and secrets apply to the playbooks of the same definition.
    entry.entry("pre-run").or_insert_with(|| json!("entry-pre"));
    let jobs = json!(["a-name", "b-name", "other", "more", {"test": entry}]);
    let lists = json!({"check": {"jobs": jobs}, "gate": {"jobs": jobs}, "probe": {"jobs": jobs}});
    let lists = lists.as_object().unwrap();
    let mut stanzas =
        vec![json!({"job": {"name": "test", "pre-run": "test-pre", "run": "test-run"}})];
    if object == "entry of a project" {
        stanzas.push(json!({"project": with_name(lists, "org/project")}));
    } else {
        stanzas.push(json!({"project-template": with_name(lists, "t")}));
        stanzas.push(json!({"project": {"name": "org/project", "templates": ["t"]}}));
    }
    stanzas.extend(probed(at).map(probe));
    let layout = with_named(&stanzas).build();
    frozen(&layout, &[("org/project", "check"), ("org/project", "gate"), ("org/project", "probe")])
}

/// Observed in the branches of a job in the file.
fn of_pragma(given: &Map<String, Json>) -> Effect {
    let file = json!([{"pragma": given}, {"job": {"name": "p", "run": "r"}}]);
    let config = format!("{BASE}- project: {{name: org/project, check: {{jobs: [p]}}}}\n");
    let tenant = tenant_of(PROJECTS)
        .file("org/config", &config)
        .branches("org/project", &["master", "stable"]);
    let layout = tenant.at("org/project", "stable", ".zuul.yaml", &file.to_string()).build();
    let name = project("org/project");
    let of_branch = |branch| {
        let graph = layout.freeze(&FreezeInput::change("check", &name, branch)).unwrap();
        graph.jobs.iter().map(|job| job.name.to_string()).collect::<Vec<_>>()
    };
    Effect {
        text: format!("{:?}", ["master", "stable"].map(of_branch)),
        refused: refused(&layout),
        warned: warned(&layout),
    }
}

/// Observed in a job that uses it.
fn of_nodeset(given: &Map<String, Json>) -> Effect {
    let layout = with_named(&[
        json!({"nodeset": with_name(given, "n")}),
        json!({"job": {"name": "test", "nodeset": "n", "run": "r"}}),
        json!({"project": {"name": "org/project", "check": {"jobs": ["test"]}}}),
    ]);
    frozen(&layout.build(), &[("org/project", "check")])
}

/// Observed in a job that uses it.
fn of_secret(given: &Map<String, Json>) -> Effect {
    let layout = with_named(&[
        json!({"secret": with_name(given, "s")}),
        json!({"job": {"name": "test", "secrets": ["s"], "run": "r"}}),
        json!({"project": {"name": "org/project", "check": {"jobs": ["test"]}}}),
    ]);
    frozen(&layout.build(), &[("org/project", "check")])
}

/// Observed in the layout.
fn of_layout<T: std::fmt::Debug>(
    given: &Map<String, Json>,
    kind: &str,
    ask: impl Fn(&Layout) -> T,
) -> Effect {
    let layout = with_named(&[json!({kind: given})]).build();
    Effect {
        text: format!("{:?}", ask(&layout)),
        refused: refused(&layout),
        warned: warned(&layout),
    }
}

/// Observed in a project whose stanza names it on one branch only.
fn of_queue(given: &Map<String, Json>) -> Effect {
    let layout = with_named(&[
        json!({"queue": with_name(given, "q")}),
        json!({"project": {"name": "org/project", "branches": "stable", "queue": "q"}}),
    ])
    .build();
    let queue = |branch| layout.queue_on(&project("org/project"), "gate", Some(branch));
    Effect {
        text: format!("{:?}", ["master", "stable"].map(queue)),
        refused: refused(&layout),
        warned: warned(&layout),
    }
}

/// Observed in the project's jobs and in the layout.
fn of_project(object: &str, given: &Map<String, Json>) -> Effect {
    let mut given = given.clone();
    given.insert("gate".to_owned(), json!({"jobs": ["more"]}));
    let template = json!({"project-template": {"name": "a-name", "gate": {"jobs": ["other"]}}});
    let stanzas = if object == "project" {
        vec![
            json!({"project-template": {"name": "b-name", "gate": {"jobs": ["a-name"]}}}),
            json!({"project": given}),
        ]
    } else {
        vec![
            json!({object: with_name(&given, "t")}),
            json!({"project": {"name": "a-name", "templates": ["t"]}}),
        ]
    };
    let layout = with_named(&[&[template], stanzas.as_slice()].concat()).build();
    let names = ["org/config", "org/project", "a-name", "b-name"];
    let wanted: Vec<(&str, &str)> =
        names.iter().flat_map(|name| [(*name, "check"), (*name, "gate")]).collect();
    let mut result = frozen(&layout, &wanted);
    for name in names.map(project) {
        result.text +=
            &format!("{name}: {:?} {:?}", layout.merge_mode(&name), layout.default_branch(&name));
        for pipeline in ["check", "gate"] {
            let queue = layout.queue(&name, pipeline);
            let input = FreezeInput::change(pipeline, &name, "master");
            let (debug, fail_fast) = (layout.debug(&input), layout.fail_fast(&input));
            let parameters = layout.parameters(&name, pipeline, Some("master"));
            result.text += &format!(" {queue:?} {debug} {fail_fast} {parameters:?}\n");
        }
    }
    result
}

fn pipeline(stanza: &Map<String, Json>) -> Effect {
    let text = json!([
        {"pipeline": {"name": "a-name", "manager": "independent"}},
        {"pipeline": {"name": "b-name", "manager": "independent"}},
        {"pipeline": with_name(stanza, "p")},
    ]);
    let layout = tenant().file("org/config", &text.to_string()).build_with(&all_connections());
    Effect {
        text: format!("{:?}", layout.pipeline("p")),
        refused: refused(&layout),
        warned: warned(&layout),
    }
}

/// Observed in the typed pipeline.
fn of_pipeline(given: &Map<String, Json>, at: &At<'_>) -> Effect {
    let mut given = given.clone();
    // Only dependent pipelines have windows.
    if at.path[0].starts_with("window") {
        given.insert("manager".to_owned(), json!("dependent"));
    }
    pipeline(&given)
}

/// Observed in the typed pipeline.
fn of_driver(driver: &str, what: &str, given: &Map<String, Json>) -> Effect {
    let (attribute, value) = match what {
        "trigger" => ("trigger", json!([given])),
        "require" | "reject" => (what, json!(given)),
        "reporter" => ("success", json!([given])),
        other => panic!("the list has an object that this test does not know: {driver} {other}"),
    };
    let stanza = json!({"manager": "independent", attribute: {driver: value}});
    pipeline(stanza.as_object().unwrap())
}

/// Observed in the typed tenants' file.
fn of_main(stanza: &Json) -> Effect {
    let text = json!([
        {"global-semaphore": {"name": "a-name", "max": 3}},
        {"global-semaphore": {"name": "b-name", "max": 4}},
        {"authorization-rule": {"name": "a-name", "conditions": [{"a": "b"}]}},
        {"authorization-rule": {"name": "b-name", "conditions": [{"a": "b"}]}},
        {"authorization-rule": {"name": "chosen", "conditions": [{"a": "b"}]}},
        {"authorization-role": {"name": "a-name", "permissions": {"read": true}}},
        {"authorization-role": {"name": "b-name", "permissions": {"read": true}}},
        stanza,
    ]);
    let mut body = stanza.clone();
    if let Some(found) =
        body.as_object_mut().and_then(|map| map.values_mut().next()).and_then(Json::as_object_mut)
        && found.contains_key("name")
    {
        // As itself, and not as another object.
        found.insert("name".to_owned(), json!("itself"));
    }
    let mut list = text.as_array().unwrap().clone();
    list.pop();
    list.push(body);
    let (config, errors) = parse_main("main.yaml", &Json::Array(list).to_string(), &connections());
    Effect {
        text: format!("{config:?}"),
        refused: errors.iter().map(|error| error.short_text()).collect(),
        warned: {
            let of_tenants = config.tenants.iter();
            attributes_of(
                of_tenants.flat_map(|tenant| tenant.ignored_attributes("main.yaml")).collect(),
            )
        },
    }
}

/// Observed in the tenant's typed projects.
fn of_source(list: &str, given: &Map<String, Json>) -> Vec<Effect> {
    let lists: &[&str] = match list {
        "config-projects[]" => &["config-projects"],
        "untrusted-projects[]" => &["untrusted-projects"],
        _ => &["config-projects", "untrusted-projects"],
    };
    let mut given = given.clone();
    // An object can only be excluded if it was included.
    let widen = |map: &mut Map<String, Json>| {
        if map.contains_key("exclude") {
            map.insert("include-provider-config".to_owned(), json!(true));
        }
    };
    widen(&mut given);
    given.values_mut().filter_map(Json::as_object_mut).for_each(widen);
    let of_list = |list: &&str| {
        of_main(&json!({"tenant": {"name": "one", "source": {"github": {*list: [given]}}}}))
    };
    lists.iter().map(of_list).collect()
}
