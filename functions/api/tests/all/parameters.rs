//! The table of routes and the routes themselves: both are of the same paths and parameters.

use crate::common::{get, json, story};
use serde_json::Value;

/// Returns what the API answers to a path, as text.
async fn answer(api: &sluice_api::Api, path: &str) -> String {
    String::from_utf8_lossy(get(api, path).await.body()).into_owned()
}

/// Z9.1: every path of the document is routed, and takes the parameters that the document lists and
/// no others.
#[tokio::test]
async fn each_documented_path_takes_the_documented_parameters_and_no_others() {
    let story = story().await;
    let document = json(&story.api, "/api/openapi.json").await;
    let mut checked = 0;
    for (template, operations) in document["paths"].as_object().unwrap() {
        if operations["get"].is_null() || !template.starts_with("/api") {
            continue;
        }
        let filled = template.replace("{tenant}", "acme").replace("{project}", "org/lib");
        let parts = filled.split('/').map(|part| match part.split_once('}') {
            Some((_, end)) => format!("x{end}"),
            None => part.to_owned(),
        });
        let path = parts.collect::<Vec<_>>().join("/");
        let found = answer(&story.api, &path).await;
        assert!(!found.contains("There is nothing at"), "{path}: {found}");
        let unknown = get(&story.api, &format!("{path}?no_such_parameter=1")).await;
        assert_eq!(unknown.status(), 404, "{path}");
        let text = String::from_utf8_lossy(unknown.body()).into_owned();
        assert!(text.contains("There is no parameter no_such_parameter"), "{path}: {text}");
        let parameters = operations["get"]["parameters"].as_array().unwrap();
        for name in parameters.iter().filter_map(|parameter| parameter["name"].as_str()) {
            let found = answer(&story.api, &format!("{path}?{name}=1")).await;
            assert!(!found.contains("There is no parameter"), "{path}?{name}: {found}");
            checked += 1;
        }
    }
    assert!(checked > 60, "{checked} parameters of all paths");
}

/// Z9.1: an unknown path says where the paths are listed, and an unknown tenant that there is none.
#[tokio::test]
async fn unknown_paths_and_tenants_are_named() {
    let story = story().await;
    let description = async |path: &str| {
        let response = get(&story.api, path).await;
        let body: Value = serde_json::from_slice(response.body()).unwrap();
        (response.status().as_u16(), body["description"].as_str().unwrap().to_owned())
    };
    for (path, expected) in [
        ("/api/tenant/nowhere", "There is no tenant nowhere."),
        ("/api/tenant/nowhere/status", "There is no tenant nowhere."),
        ("/api/tenant/nowhere/nothing/here", "There is no tenant nowhere."),
        ("/api/tenant/acme", "There is nothing at /api/tenant/acme: /api lists the paths."),
        ("/api/tenant/acme/x/y", "There is nothing at /api/tenant/acme/x/y: /api lists the paths."),
    ] {
        assert_eq!(description(path).await, (404, expected.to_owned()), "{path}");
    }
}
