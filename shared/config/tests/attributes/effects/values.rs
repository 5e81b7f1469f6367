//! Sample values for attributes that do not accept any value.

use serde_json::{Value as Json, json};

/// Returns sample values with different effects for an attribute; none if any value will do.
pub fn of(object: &str, path: &[String]) -> Vec<Json> {
    let path: Vec<&str> = path.iter().map(String::as_str).collect();
    let is_job = object == "job" || object.starts_with("entry of");
    if is_job {
        let found = of_job(&path);
        if !found.is_empty() {
            return found;
        }
    }
    match (object, path.as_slice()) {
        ("pragma", ["implied-branches"]) => vec![json!("master")],
        ("pragma" | "project", [.., "regex"]) => vec![json!("master"), json!("^stable")],
        ("project", ["branches"]) => vec![json!("^stable")],
        ("project" | "project-template", ["check"]) => vec![json!({"jobs": ["a-name"]})],
        ("project" | "project-template", ["check", "jobs"]) => vec![json!(["a-name"])],
        ("nodeset", ["nodes"]) => vec![node("a-name"), node("b-name")],
        ("nodeset", [.., "groups", "nodes"]) => vec![json!("a-name"), json!("localhost")],
        ("nodeset", ["alternatives"]) => vec![json!(["a-name"]), json!(["b-name"])],
        ("nodeset", ["alternatives", "nodes"]) => vec![node("a-name"), node("b-name")],
        ("nodeset", [.., "groups"]) => vec![json!([{"name": "g", "nodes": "localhost"}])],
        // A secret without one of the two has the other.
        ("secret", ["data"]) => vec![json!({"a": "b"}), json!({"a": "c"})],
        ("secret", ["oidc"]) => vec![Json::Null, json!({"ttl": 7})],
        ("secret", ["oidc", "algorithm"]) => vec![json!("RS256")],
        ("secret", ["oidc", "claims"]) => vec![json!({"a": "b"})],
        ("pipeline", ["require"]) => vec![json!({"github": {"open": true}})],
        ("pipeline", ["reject"]) => vec![json!({"github": {"draft": true}})],
        ("pipeline", ["trigger"]) => vec![json!({"github": [{"event": "push"}]})],
        (
            "pipeline",
            [
                "enqueue" | "start" | "success" | "failure" | "merge-conflict" | "no-jobs"
                | "disabled" | "dequeue" | "config-error",
            ],
        ) => vec![json!({"github": {"comment": true}})],
        ("mqtt reporter", ["qos"]) => vec![json!(0), json!(1), json!(2)],
        ("mqtt reporter", ["topic"]) => vec![json!("a"), json!("{tenant}/b")],
        ("timer trigger", ["time"]) => vec![json!("0 0 * * *"), json!("1 0 * * *")],
        ("tenant", ["source"]) => vec![json!({"github": {"untrusted-projects": ["org/other"]}})],
        ("tenant" | "api-root", ["role-mappings"]) => vec![json!({"a-name": "a-name"})],
        ("tenant", ["allowed-triggers" | "allowed-reporters"]) => {
            vec![json!("github"), json!("gerrit")]
        }
        ("tenant", ["default-ansible-version"]) => vec![json!("9"), json!("11")],
        (object, ["org/project"]) if object.starts_with("tenant.source") => {
            vec![json!({}), json!({"shadow": "org/project"})]
        }
        (object, ["org/project", "shadow"]) if object.starts_with("tenant.source") => {
            vec![json!("org/project"), json!("github.com/org/project")]
        }
        ("authorization-rule", ["conditions"]) => vec![json!({"a": "b"}), json!({"a": "c"})],
        ("authorization-role", ["permissions"]) => {
            vec![json!({"read": true}), json!({"read": false})]
        }
        ("authorization-role", [.., "conditions"]) => vec![json!({"project": "a"})],
        ("authorization-role", [.., "conditions", _]) => vec![json!("a"), json!("b")],
        (_, [.., "resource-limits"]) => vec![json!({"instances": 7})],
        (_, [.., "tags"]) if !is_job => vec![json!({"a": "b"})],
        (_, ["label-defaults"]) => vec![json!({"boot-timeout": 77})],
        (_, ["image-defaults"]) => vec![json!({"username": "another"})],
        (_, ["flavor-defaults"]) => vec![json!({"tags": {"of": "defaults"}})],
        ("section" | "provider", ["images"]) => vec![json!(["b-name"])],
        ("section" | "provider", ["labels"]) => vec![json!(["b-name"])],
        ("section" | "provider", ["flavors"]) => ["small", "huge"]
            .map(|size| json!([{"name": "a-name", "instance-type": size}]))
            .to_vec(),
        _ => Vec::new(),
    }
}

fn node(name: &str) -> Json {
    json!([{"name": name, "label": "a-label"}])
}

fn of_job(path: &[&str]) -> Vec<Json> {
    match path {
        ["branches"] => vec![json!("^stable")],
        ["branches", "regex"] => vec![json!("master"), json!("^stable")],
        ["files"] => vec![json!("^src/")],
        ["files" | "irrelevant-files", "regex"] => vec![json!("README"), json!("^src/")],
        ["irrelevant-files"] => vec![json!("^README$")],
        ["ansible-version"] => vec![json!("9"), json!("11")],
        ["host-vars" | "group-vars"] => vec![json!({"a-host": {"a": 1}})],
        ["attribute-control"] => vec![json!({"voting": {"final": true}})],
        ["attribute-control", _] => vec![json!({"final": true})],
        ["workspace-checkout" | "deduplicate"] => vec![json!(true), json!(false), json!("auto")],
        _ => Vec::new(),
    }
}

/// Returns a value of an attribute that `attribute-control` can make final.
pub fn of_controlled(attribute: &str) -> Json {
    match attribute {
        "vars" | "extra-vars" => json!({"a": 1}),
        "host-vars" | "group-vars" => json!({"a-host": {"a": 1}}),
        "type" => json!("initializer"),
        "voting" => json!(false),
        "dependencies" => json!("other"),
        _ => json!("a-name"),
    }
}

/// Returns a different value of the same form.
pub fn another(value: &Json) -> Json {
    match value {
        Json::String(text) => match text.as_str() {
            "a-name" => json!("b-name"),
            "a_name" => json!("b_name"),
            "other" => json!("more"),
            "org.role" => json!("org.another"),
            text => json!(text),
        },
        Json::Number(_) => json!(7),
        Json::Array(list) => Json::Array(list.iter().map(another).collect()),
        Json::Object(map) => {
            map.iter().map(|(name, value)| (name.clone(), another(value))).collect()
        }
        other => other.clone(),
    }
}
