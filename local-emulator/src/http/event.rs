//! Requests as events: payload format 2.0 of API Gateway's HTTP APIs.

use super::route::RouteMatch;
use axum::http::HeaderMap;
use axum::http::header::{CONTENT_TYPE, COOKIE, HOST, USER_AGENT};
use axum::http::request::Parts;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

/// What every event of one front says about it.
#[derive(Debug)]
pub struct Front {
    account: String,
    requests: AtomicU64,
}

impl Front {
    /// Returns the description of an API Gateway in an account, by its id, which counts its
    /// requests.
    #[must_use]
    pub fn new(account: &str) -> Self {
        Self { account: account.to_owned(), requests: AtomicU64::new(1) }
    }
}

/// Returns the event, as JSON, by which API Gateway `front` calls a function for a request on the
/// route `found`. A body whose content type is no text, or that is not UTF-8, is in it as Base64;
/// an empty body is left out. Each call gives another request id.
pub(super) fn of_request(
    front: &Front,
    found: &RouteMatch<'_>,
    parts: &Parts,
    body: &Bytes,
) -> Bytes {
    let now = jiff::Timestamp::now();
    let number = front.requests.fetch_add(1, Ordering::Relaxed);
    let host = text(&parts.headers, HOST.as_str()).unwrap_or("localhost");
    let path = parts.uri.path();
    let query = parts.uri.query().unwrap_or_default();
    let mut event = json!({
        "version": "2.0",
        "routeKey": found.key,
        "rawPath": path,
        "rawQueryString": query,
        "headers": headers(&parts.headers),
        "requestContext": {
            "accountId": front.account,
            "apiId": "local",
            "domainName": host,
            "domainPrefix": host.split('.').next(),
            "http": {
                "method": parts.method.as_str(),
                "path": path,
                "protocol": format!("{:?}", parts.version),
                "sourceIp": "127.0.0.1",
                "userAgent": text(&parts.headers, USER_AGENT.as_str()).unwrap_or_default(),
            },
            "requestId": format!("{}-{number}", now.as_millisecond()),
            "routeKey": found.key,
            "stage": "$default",
            "time": now.strftime("%d/%b/%Y:%H:%M:%S +0000").to_string(),
            "timeEpoch": now.as_millisecond(),
        },
        "isBase64Encoded": false,
    });
    let mut set = |name: &str, value: Value| {
        if let Some(event) = event.as_object_mut() {
            event.insert(name.to_owned(), value);
        }
    };
    let cookies = cookies(&parts.headers);
    if !cookies.is_empty() {
        set("cookies", json!(cookies));
    }
    let queries = queries(query);
    if !queries.is_empty() {
        set("queryStringParameters", json!(queries));
    }
    if !found.parameters.is_empty() {
        set("pathParameters", json!(found.parameters));
    }
    match plain_text(&parts.headers, body) {
        _ if body.is_empty() => {}
        Some(plain) => set("body", json!(plain)),
        None => {
            set("body", json!(STANDARD.encode(body)));
            set("isBase64Encoded", json!(true));
        }
    }
    Bytes::from(event.to_string())
}

/// Returns the body as text if its content type is one that API Gateway treats as text (`text/…`
/// and `application/json`, `javascript` or `xml`) and it is UTF-8. Otherwise `None`: it is sent as
/// Base64.
fn plain_text<'b>(headers: &HeaderMap, body: &'b Bytes) -> Option<&'b str> {
    let kind = text(headers, CONTENT_TYPE.as_str()).unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    let textual =
        matches!(kind.as_str(), "application/json" | "application/javascript" | "application/xml");
    if textual || kind.starts_with("text/") { std::str::from_utf8(body).ok() } else { None }
}

/// Returns the text of a header; `None` if it is missing or no text.
fn text<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}

/// Returns headers by name in lower case; several of one name are joined by commas. Cookies are
/// left out; bytes that are not UTF-8 are replaced.
fn headers(headers: &HeaderMap) -> Map<String, Value> {
    let mut joined = Map::new();
    for name in headers.keys().filter(|name| **name != COOKIE) {
        let values: Vec<_> = headers
            .get_all(name)
            .iter()
            .map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned())
            .collect();
        joined.insert(name.as_str().to_owned(), Value::String(values.join(",")));
    }
    joined
}

/// Returns the cookies of a request as `name=value`, in their order; none without such a header.
fn cookies(headers: &HeaderMap) -> Vec<String> {
    let lines = headers.get_all(COOKIE).iter().filter_map(|value| value.to_str().ok());
    lines.flat_map(|line| line.split("; ")).map(str::to_owned).collect()
}

/// Returns the parameters of a query by name, decoded; several of one name are joined by commas in
/// their order.
fn queries(query: &str) -> BTreeMap<String, String> {
    let mut joined: BTreeMap<String, String> = BTreeMap::new();
    for (name, value) in url::form_urlencoded::parse(query.as_bytes()) {
        joined
            .entry(name.into_owned())
            .and_modify(|all| {
                all.push(',');
                all.push_str(&value);
            })
            .or_insert_with(|| value.to_string());
    }
    joined
}
