//! The table of the API's routes, and the OpenAPI 3.1 document that is made of it (Z9.1).
//!
//! The table is the one list of paths and methods: `/api`, the answers to `OPTIONS`, the methods in
//! status 405 and the document come from it.

mod routes;
mod schemas;
mod table;

use crate::reply::{self, ErrorResponse};
use crate::request::SKIP_MAX;
use bytes::Bytes;
use http::Response;
use routes::{Answer, Operation, ParameterKind, ParameterPart, QueryParameter, Route};
use serde_json::{Map, Value, json};
use table::ROUTES;

/// The version of OpenAPI that the document has.
const OPENAPI_VERSION: &str = "3.1.0";

/// The methods of paths that are in no table: pages and their files.
const PAGE_METHODS: &str = "GET, HEAD, OPTIONS";

/// Returns the methods of a path for `Allow` and for CORS. Repeated slashes count as one.
pub(crate) fn methods(path: &str) -> String {
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    route_of(&parts).map_or_else(|| PAGE_METHODS.to_owned(), Route::methods)
}

/// Returns the error for a method that a path does not have: 405, or 404 for an unknown path.
pub(crate) fn refusal(parts: &[&str]) -> ErrorResponse {
    match route_of(parts) {
        Some(route) => ErrorResponse::Method { allowed: route.methods() },
        None => ErrorResponse::missing(format!("There is nothing at /{}.", parts.join("/"))),
    }
}

/// Returns whether a request that changes something must have a body.
pub(crate) fn needs_body(parts: &[&str]) -> bool {
    let operations = route_of(parts).map_or(&[][..], |route| route.operations);
    operations.iter().any(|operation| operation.is_write() && operation.body.is_some())
}

/// Returns the names of the query parameters of a path that is read; `None` for a path that is in no
/// table, or only written.
pub(crate) fn query_parameters(parts: &[&str]) -> Option<Vec<&'static str>> {
    let mut operations = route_of(parts)?.operations.iter();
    let read = operations.find(|operation| !operation.is_write())?;
    Some(read.query.iter().map(|parameter| parameter.name).collect())
}

/// Returns the methods of a path that is only written; `None` for any other path.
pub(crate) fn write_only_methods(parts: &[String]) -> Option<String> {
    let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
    let route = route_of(&parts)?;
    route.operations.iter().all(Operation::is_write).then(|| route.methods())
}

/// Returns the route of a path. The name of a project may look like the end of another route, so
/// of several routes the one with the most literal parts is meant.
fn route_of(parts: &[&str]) -> Option<&'static Route> {
    let literal = |route: &&Route| {
        let parts = route.path.split('/');
        parts.filter(|part| ParameterPart::of(part).is_none()).count()
    };
    ROUTES.iter().filter(|route| route.matches(parts)).max_by_key(literal)
}

/// Answers `/api` with the path of each route by its name, as Zuul does.
pub(crate) fn list() -> Response<Bytes> {
    let paths = ROUTES.iter().filter(|route| route.path.starts_with("/api"));
    let paths = paths.map(|route| (route.name.to_owned(), json!(route.path.replace("*}", ":.*}"))));
    reply::json(&Value::Object(paths.collect()))
}

/// Answers `/api/openapi.json` and `/openapi.yaml`: JSON is YAML too.
pub(crate) fn answer() -> Response<Bytes> {
    reply::json(&document())
}

/// Returns the OpenAPI document.
fn document() -> Value {
    let mut paths = Map::new();
    for route in ROUTES {
        let operations = route
            .operations
            .iter()
            .map(|operation| (operation.method.key().to_owned(), operation_json(route, operation)));
        let mut entry: Map<String, Value> = operations.collect();
        entry.insert("parameters".to_owned(), Value::Array(path_parameters(route)));
        paths.insert(route.path.replace("*}", "}"), Value::Object(entry));
    }
    json!({
        "openapi": OPENAPI_VERSION,
        "info": {
            "title": "Sluice",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "The REST API of Sluice, which Zuul's clients can use. Names of projects, branches and jobs are written into paths with their slashes.",
        },
        "servers": [{"url": "/"}],
        "security": [{}, {"bearer": []}],
        "paths": paths,
        "components": {
            "schemas": schemas::all(),
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer", "bearerFormat": "JWT"},
            },
        },
    })
}

/// Returns the parameters in the path of a route.
fn path_parameters(route: &Route) -> Vec<Value> {
    let parameters = route.path.split('/').filter_map(ParameterPart::of).map(|parameter| {
        let mut shown = json!({
            "name": parameter.name,
            "in": "path",
            "required": true,
            "schema": {"type": "string", "minLength": 1},
        });
        if parameter.takes_slashes {
            shown["description"] = json!("May contain slashes, which are not encoded.");
        }
        shown
    });
    parameters.collect()
}

/// Returns an operation as OpenAPI describes it.
fn operation_json(route: &Route, operation: &Operation) -> Value {
    let query: Vec<Value> = operation.query.iter().map(query_parameter).collect();
    let mut shown = json!({
        "operationId": format!("{}_{}", operation.method.key(), route.name),
        "summary": operation.summary,
        "parameters": query,
        "responses": responses(route, operation),
    });
    if let Some(schema) = operation.body {
        shown["requestBody"] = json!({
            "required": true,
            "content": {"application/json": {"schema": schemas::named(schema)}},
        });
    }
    if operation.is_write() {
        shown["security"] = json!([{"bearer": []}]);
    }
    shown
}

/// Returns a query parameter as OpenAPI describes it.
fn query_parameter(parameter: &QueryParameter) -> Value {
    let schema = match parameter.kind {
        ParameterKind::Text => json!({"type": "string"}),
        ParameterKind::Texts => json!({"type": "array", "items": {"type": "string"}}),
        ParameterKind::Number | ParameterKind::RequiredNumber => {
            json!({"type": "integer", "minimum": 0, "maximum": schemas::NUMBER_MAX})
        }
        ParameterKind::Skip => json!({"type": "integer", "minimum": 0, "maximum": SKIP_MAX}),
    };
    json!({
        "name": parameter.name,
        "in": "query",
        "required": parameter.kind == ParameterKind::RequiredNumber,
        "description": parameter.description,
        "schema": schema,
    })
}

/// Returns the answers of an operation by status.
fn responses(route: &Route, operation: &Operation) -> Value {
    let json_content = |schema: Value| json!({"application/json": {"schema": schema}});
    let of_value = |schema: Value| json!({"description": "Done.", "content": json_content(schema)});
    let of_text = |media: &str| {
        let schema = json!({"type": "string"});
        json!({"description": "The text.", "content": {(media): {"schema": schema}}})
    };
    let mut all = Map::new();
    let mut add = |status: &str, response: Value| all.insert(status.to_owned(), response);
    match operation.answer {
        Answer::Json(schema) => add("200", of_value(schemas::named(schema))),
        Answer::List(schema) => {
            add("200", of_value(json!({"type": "array", "items": schemas::named(schema)})))
        }
        Answer::True => add("200", of_value(json!({"const": true}))),
        Answer::Null => add("200", of_value(json!({"type": "null"}))),
        Answer::CreatedNull => add("201", of_value(json!({"type": "null"}))),
        Answer::NoContent => add("204", json!({"description": "Done."})),
        Answer::Text(media) => {
            add("206", of_text(media));
            add("200", of_text(media))
        }
        Answer::File => {
            add("206", of_text("*/*"));
            add("200", of_text("*/*"))
        }
    };
    for (status, description) in errors(route, operation) {
        let content = json_content(schemas::named("Error"));
        add(status, json!({"description": description, "content": content}));
    }
    Value::Object(all)
}

/// Returns the errors of an operation with what they mean.
fn errors(route: &Route, operation: &Operation) -> Vec<(&'static str, &'static str)> {
    let mut errors = vec![
        ("400", "The request is invalid; the description says what."),
        ("401", "The request needs a token, or its token is refused."),
        ("404", "There is no such thing, or the caller may not know of it."),
        ("413", "The request or its answer is too large."),
        ("503", "A part of the answer could not be read; try again."),
    ];
    if route.path.starts_with("/api/tenant/") {
        errors.push(("422", "The tenant's configuration was never loaded."));
    }
    if operation.is_write() {
        errors.push(("403", "The token's bearer may not do this."));
        errors.push(("501", "Sluice does not have this yet."));
    }
    errors
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// Z9.1: CORS names the methods of the route.
    #[test]
    fn the_methods_of_a_path_are_known() {
        for (path, expected) in [
            ("/api/tenant/one/status", "GET, HEAD, OPTIONS"),
            ("//api/tenant/one//promote", "POST, OPTIONS"),
            ("/api/tenant/one/project/a/b/enqueue", "POST, OPTIONS"),
            ("/api/tenant/one/project/a/b/freeze-pipeline", "POST, OPTIONS"),
            ("/api/tenant/one/project/a/b/autohold", "GET, HEAD, POST, OPTIONS"),
            ("/api/tenant/one/autohold/1", "GET, HEAD, DELETE, OPTIONS"),
            ("/api/tenant/one/key/a/b.pub", "GET, HEAD, OPTIONS"),
            ("/api/tenant/one/nodes/1", "PUT, OPTIONS"),
            ("/api/tenant/one/nodes", "GET, HEAD, OPTIONS"),
            ("/", "GET, HEAD, OPTIONS"),
        ] {
            assert_eq!(methods(path), expected, "{path}");
        }
    }

    /// Z9.1: names have slashes; a path without a name is another one, or none.
    #[test]
    fn parameters_take_one_or_several_parts() {
        let name = |path: &str| {
            let parts: Vec<&str> = path.split('/').collect();
            route_of(&parts).map(|route| route.name)
        };
        assert_eq!(name("api/tenant/one/key/a/b.pub"), Some("key"));
        assert_eq!(name("api/tenant/one/key/a/b"), None);
        assert_eq!(name("api/tenant/one/project"), None);
        assert_eq!(name("api/tenant/one/project/enqueue"), Some("project"));
        assert_eq!(name("api/tenant/one/project/enqueue/enqueue"), Some("enqueue"));
        let job = "api/tenant/one/pipeline/check/project/a/b/branch/x/y/freeze-job/unit";
        assert_eq!(name(job), Some("project_freeze_job"));
    }

    /// Z9.1: each name, path and operation is in the table once, and each schema exists and is used.
    #[test]
    fn the_document_is_consistent() {
        let text = document().to_string();
        let names: BTreeSet<&str> = ROUTES.iter().map(|route| route.name).collect();
        assert_eq!(names.len(), ROUTES.len());
        assert_eq!(document()["paths"].as_object().unwrap().len(), ROUTES.len());
        let reference = |name: &str| format!("\"#/components/schemas/{name}\"");
        let schemas = schemas::all();
        for name in schemas.keys() {
            assert!(text.contains(&reference(name)), "{name} is not used");
        }
        let used = text.split("#/components/schemas/").skip(1);
        for name in used.filter_map(|rest| rest.split('"').next()) {
            assert!(schemas.contains_key(name), "{name} does not exist");
        }
    }
}
