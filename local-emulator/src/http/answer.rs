//! A function's answer as a response: payload format 2.0.

use axum::body::Body;
use axum::http::{HeaderName, HeaderValue, Response, StatusCode};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use serde_json::{Map, Value};

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Answer {
    status_code: u16,
    #[serde(default)]
    headers: Option<Map<String, Value>>,
    #[serde(default)]
    cookies: Option<Vec<String>>,
    #[serde(default)]
    body: Option<String>,
    #[serde(default)]
    is_base64_encoded: bool,
}

/// Returns the response that a function's answer describes. JSON without a `statusCode` is itself
/// the body of a 200. An error, as a text, for an answer that is no JSON, or whose status, Base64
/// body, headers or cookies are invalid.
pub(super) fn response(bytes: &[u8]) -> Result<Response<Body>, String> {
    let value: Value =
        serde_json::from_slice(bytes).map_err(|error| format!("it is no JSON: {error}"))?;
    if value.get("statusCode").is_none() {
        let mut response = Response::new(Body::from(value.to_string()));
        response.headers_mut().insert("content-type", HeaderValue::from_static("application/json"));
        return Ok(response);
    }
    let answer: Answer = serde_json::from_value(value).map_err(|error| error.to_string())?;
    let body = answer.body.unwrap_or_default();
    let body = if answer.is_base64_encoded {
        STANDARD.decode(body).map_err(|error| format!("its body is no base64: {error}"))?
    } else {
        body.into_bytes()
    };
    let status = StatusCode::from_u16(answer.status_code)
        .map_err(|_| format!("{} is no status", answer.status_code))?;
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = status;
    for (name, value) in answer.headers.into_iter().flatten() {
        let value = match value {
            Value::String(text) => text,
            other => other.to_string(),
        };
        let parsed = HeaderName::try_from(&name).ok().zip(HeaderValue::try_from(&value).ok());
        let (header, value) =
            parsed.ok_or_else(|| format!("its header {name} cannot be written"))?;
        response.headers_mut().append(header, value);
    }
    for cookie in answer.cookies.into_iter().flatten() {
        let cookie =
            HeaderValue::try_from(&cookie).map_err(|_| "a cookie cannot be written".to_owned())?;
        response.headers_mut().append("set-cookie", cookie);
    }
    Ok(response)
}
