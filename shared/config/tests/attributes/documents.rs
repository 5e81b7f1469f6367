//! The locations of an object in files, and the attributes that must accompany another one.

use super::common::connections;
use serde_json::{Map, Value as Json, json};
use sluice_config::fragment::parse;
use sluice_config::objects::Stanza;
use sluice_config::{
    Connections, Diagnostic, DiagnosticKind, Driver, Severity, Source, SourceFile, Trust,
    parse_main,
};

/// Returns the test connections: one for each driver of the list, under the driver's name.
pub fn all_connections() -> Connections {
    connections()
        .with("gerrit", Driver::Gerrit, "review.example.com")
        .with("gitlab", Driver::GitLab, "gitlab.com")
        .with("git", Driver::Git, "git.example.com")
        .with("mqtt", Driver::Mqtt, "")
        .with("elasticsearch", Driver::Elasticsearch, "")
}

/// Returns the diagnostics of an object with the given attributes, for each location of such an
/// object.
pub fn problems(object: &str, attributes: &Map<String, Json>) -> Vec<(String, Vec<Diagnostic>)> {
    let judge = |(text, load): (String, Load)| {
        let mut problems = load(&text);
        problems.retain(|problem| problem.severity == Severity::Error);
        (text, problems)
    };
    documents(object, attributes).into_iter().map(judge).collect()
}

/// Returns the documents of an object with the given attributes, one for each location of such an
/// object.
pub fn texts(object: &str, attributes: &Map<String, Json>) -> Vec<String> {
    documents(object, attributes).into_iter().map(|(text, _)| text).collect()
}

type Load = fn(&str) -> Vec<Diagnostic>;

fn documents(object: &str, given: &Map<String, Json>) -> Vec<(String, Load)> {
    let attributes = given.clone();
    // The list does not require a template's name, but a template without one cannot be used.
    let attributes = match object {
        "project-template" if !given.contains_key("name") => with_name(given, "a-template"),
        _ => attributes,
    };
    let repository =
        |kind: &str, body: Json| (json!([{kind: body}]).to_string(), of_repository as Load);
    let main = |stanza: Json| (json!([stanza]).to_string(), of_main as Load);
    let source = |list: &str, member: Json| {
        main(json!({"tenant": {"name": "one", "source": {"github": {list: [member]}}}}))
    };
    if let Some(kind) = object.strip_prefix("tenant.source.<connection>.") {
        return match kind {
            "config-projects[]" => vec![source("config-projects", Json::Object(attributes))],
            "untrusted-projects[]" => vec![source("untrusted-projects", Json::Object(attributes))],
            _ => vec![
                source("config-projects", Json::Object(attributes.clone())),
                source("untrusted-projects", Json::Object(attributes)),
            ],
        };
    }
    match object {
        "tenant" | "authorization-rule" | "authorization-role" | "global-semaphore"
        | "api-root" => {
            return vec![main(json!({object: attributes}))];
        }
        "aws section/provider" | "static section/provider" => {
            let with = |kind: &str, more: Json| {
                let mut body = attributes.clone();
                body.extend(more.as_object().cloned().unwrap_or_default());
                repository(kind, Json::Object(body))
            };
            // The list combines the attributes of two objects; those of the other are checked by
            // its own rows.
            let has = |name: &str| given.contains_key(name);
            let mut found = Vec::new();
            if !has("section") {
                found.push(with("section", json!({})));
            }
            if !has("parent") && !has("abstract") {
                found.push(with(
                    "provider",
                    if has("section") { json!({}) } else { json!({"section": "some"}) },
                ));
            }
            return found;
        }
        // Every job attribute is also one of a job list's entry.
        "entry of a project" | "entry of a template" => {
            let kind = if object.ends_with("project") { "project" } else { "project-template" };
            let body = json!({"name": "org/project", "check": {"jobs": [{"test": attributes}]}});
            return vec![repository(kind, body)];
        }
        _ => {}
    }
    let Some((driver, what)) = object.split_once(' ') else {
        return vec![repository(object, Json::Object(attributes))];
    };
    let pipeline = |attribute: &str, value: Json| {
        repository(
            "pipeline",
            json!({"name": "check", "manager": "independent", attribute: {driver: value}}),
        )
    };
    match what {
        "trigger" => {
            vec![pipeline("trigger", json!([attributes])), pipeline("trigger", json!(attributes))]
        }
        "reporter" => {
            vec![pipeline("start", json!(attributes)), pipeline("success", json!([attributes]))]
        }
        "require" | "reject" => vec![pipeline(what, json!(attributes))],
        other => panic!("the list has an object that this test does not know: {other}"),
    }
}

fn with_name(given: &Map<String, Json>, name: &str) -> Map<String, Json> {
    let mut named = given.clone();
    named.insert("name".to_owned(), json!(name));
    named
}

/// Returns the diagnostics of a repository file.
pub fn of_repository(text: &str) -> Vec<Diagnostic> {
    let source = Source {
        connection: "github".into(),
        project: super::common::project("org/config"),
        branch: "master".into(),
        path: "zuul.yaml".to_owned(),
        trust: Trust::Config,
    };
    let fragment = parse(&SourceFile { source, text: text.to_owned() });
    let mut problems = fragment.diagnostics.clone();
    for stanza in fragment.stanzas() {
        if let Stanza::Pipeline(pipeline) = stanza {
            problems.extend(pipeline.resolve(&all_connections()).1);
        }
    }
    problems
}

fn of_main(text: &str) -> Vec<Diagnostic> {
    let (_, errors) = parse_main("main.yaml", text, &all_connections());
    // Attributes are checked one by one, so referenced objects are missing.
    errors
        .into_iter()
        .map(|error| error.diagnostic)
        .filter(|problem| problem.kind != DiagnosticKind::UnknownName)
        .collect()
}

/// Returns a sample mapping for an attribute that accepts any mapping.
pub fn a_map(object: &str, path: &[String]) -> Json {
    let path: Vec<&str> = path.iter().map(String::as_str).collect();
    match (object, path.as_slice()) {
        (_, ["nodeset"]) => json!({"nodes": [{"name": "n", "label": "l"}]}),
        (_, ["check", "jobs"]) => json!({"test": {}}),
        (_, [.., "projects"]) => json!({"org/project": {}}),
        ("authorization-rule", ["conditions"]) => json!({"groups": "admins"}),
        (_, [.., "iam-instance-profile"]) => json!({"name": "profile"}),
        (_, [.., "fleet"]) => {
            json!({"instance-types": ["small"], "allocation-strategy": "diversified"})
        }
        (_, ["images" | "flavors" | "labels" | "nodes", ..]) => json!({"name": "a-name"}),
        ("authorization-role", [.., "conditions"]) => json!({"project": "^org/"}),
        ("tenant", ["source"]) => json!({"github": {"config-projects": ["org/config"]}}),
        (_, [.., "approval" | "approval-change"]) => json!({"Code-Review": 2}),
        _ => json!({}),
    }
}

/// Returns the attributes that must accompany a value.
pub fn companions(object: &str, path: &[String], value: &Json) -> Vec<(&'static str, Json)> {
    match path {
        // A secret has values or a token.
        [name] if object == "secret" && name == "name" => vec![("data", json!({"a": "b"}))],
        // A job that requires its children to be abstract must be abstract.
        [name] if name == "intermediate" && *value == json!(true) => {
            vec![("abstract", json!(true))]
        }
        // Changes of a topic form dependency cycles.
        [name] if name == "dependencies-by-topic" => {
            vec![("allow-circular-dependencies", json!(true))]
        }
        // A default must be a valid value of its parameter.
        [.., of, name] if of == "parameters" && name == "default" => match value {
            Json::Bool(_) => vec![("type", json!("bool"))],
            Json::Number(_) => vec![("type", json!("selection")), ("values", json!([value]))],
            Json::Array(_) => {
                vec![("type", json!("multiple-selection")), ("values", value.clone())]
            }
            _ => vec![("type", json!("string"))],
        },
        _ => Vec::new(),
    }
}

/// Returns a sample text for an attribute that does not accept any text.
pub fn a_text(path: &[String]) -> &'static str {
    match path.last().map_or("", String::as_str) {
        "time" => "0 0 * * *",
        "older-than" | "newer-than" => "2d",
        "topic" => "zuul/{pipeline}/{project}",
        "parameters" | "secrets" => "a_name",
        "dependencies" => "other",
        "galaxy" => "org.role",
        _ => "a-name",
    }
}
