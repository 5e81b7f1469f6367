//! Calls the API of the fixture.

pub mod tokens;

use bytes::Bytes;
use http::{Method, Request, Response};
use serde_json::Value;
use sluice_api::Api;
use sluice_browser_tests::story::{self, TestSystem};

/// Writes the records of the story into a new system and returns it.
pub async fn story() -> TestSystem {
    story::write_story().await.unwrap()
}

/// Sends a request with a method.
pub async fn ask(api: &Api, method: Method, path: &str) -> Response<Bytes> {
    api.answer(Request::builder().method(method).uri(path).body(Bytes::new()).unwrap()).await
}

/// Reads a path.
pub async fn get(api: &Api, path: &str) -> Response<Bytes> {
    ask(api, Method::GET, path).await
}

/// Reads JSON; the answer must be a success.
pub async fn json(api: &Api, path: &str) -> Value {
    let response = get(api, path).await;
    let text = String::from_utf8_lossy(response.body()).into_owned();
    assert_eq!(response.status(), 200, "{path}: {text}");
    assert_eq!(response.headers()["content-type"], "application/json; charset=utf-8", "{path}");
    assert_eq!(response.headers()["access-control-allow-origin"], "*", "{path}");
    serde_json::from_str(&text).unwrap()
}

/// Returns the names of an object's members, sorted.
pub fn keys(value: &Value) -> Vec<&str> {
    let mut keys: Vec<&str> = value.as_object().unwrap().keys().map(String::as_str).collect();
    keys.sort_unstable();
    keys
}

/// Returns a member of each element.
pub fn each<'v>(list: &'v Value, name: &str) -> Vec<&'v Value> {
    list.as_array().unwrap().iter().map(|one| &one[name]).collect()
}
