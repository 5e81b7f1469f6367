//! The events that Lambda invokes a function with (batches of messages, schedule ticks, HTTP
//! requests), and the responses to them.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::{HeaderName, HeaderValue, Method, Request, Response, StatusCode, Uri, header};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use sluice_runtime::port::Incoming;
use std::collections::BTreeMap;

/// The maximum size of a function's response in bytes, including its JSON envelope. Lambda's own
/// limit is slightly higher.
const ANSWER_BYTES_MAX: usize = 6 << 20;

/// What a function is invoked with.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "one is made per call and handed on at once")]
pub enum InvocationEvent {
    /// Messages of one queue.
    Messages {
        /// The queue's name: the last part of its ARN.
        queue: String,
        /// The messages, in order.
        messages: Vec<Incoming>,
    },
    /// A tick of a schedule.
    Tick,
    /// An HTTP request.
    Request {
        /// The request.
        request: Request<Bytes>,
        /// The host name that the client used.
        host: String,
    },
}

/// A payload that is no known event.
#[derive(Debug, thiserror::Error)]
#[error(
    "could not read the event: {0}; is this function connected to another source than in the template?"
)]
pub struct EventError(String);

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct SqsRecord {
    message_id: String,
    receipt_handle: String,
    body: String,
    #[serde(default)]
    attributes: BTreeMap<String, String>,
    #[serde(rename = "eventSourceARN")]
    source_arn: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct HttpRequestPayload {
    raw_path: String,
    #[serde(default)]
    raw_query_string: String,
    #[serde(default)]
    headers: BTreeMap<String, String>,
    #[serde(default)]
    cookies: Vec<String>,
    body: Option<String>,
    #[serde(default)]
    is_base64_encoded: bool,
    request_context: RequestContext,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RequestContext {
    #[serde(default)]
    domain_name: String,
    http: RequestLine,
}

#[derive(Deserialize)]
struct RequestLine {
    method: String,
}

impl InvocationEvent {
    /// Parses the payload of an invocation. One with `Records` is a batch of messages, one with a
    /// `requestContext` an HTTP request, and one with the `detail-type` `Scheduled Event` a tick.
    /// An empty batch is an error.
    ///
    /// # Errors
    /// [`EventError`] when the payload is none of these.
    pub fn read(payload: &[u8]) -> Result<Self, EventError> {
        let failed = |error: serde_json::Error| EventError(error.to_string());
        let value: Value = serde_json::from_slice(payload).map_err(failed)?;
        if let Some(records) = value.get("Records") {
            return messages(Vec::<SqsRecord>::deserialize(records).map_err(failed)?);
        }
        if value.get("requestContext").is_some() {
            return request(HttpRequestPayload::deserialize(value).map_err(failed)?);
        }
        match value.get("detail-type").and_then(Value::as_str) {
            Some("Scheduled Event") => Ok(Self::Tick),
            _ => Err(EventError("it is not a batch, a request or a tick".to_owned())),
        }
    }
}

/// Returns the messages of a batch, in their order. All are taken to be of the queue of the first.
/// A message without a readable receive count counts as received once. An error for an empty batch.
fn messages(records: Vec<SqsRecord>) -> Result<InvocationEvent, EventError> {
    let source = records
        .first()
        .map(|record| record.source_arn.clone())
        .ok_or_else(|| EventError("the batch is empty".to_owned()))?;
    let incoming = |record: SqsRecord| Incoming {
        receive_count: record
            .attributes
            .get("ApproximateReceiveCount")
            .and_then(|count| count.parse().ok())
            .unwrap_or(1),
        group: record.attributes.get("MessageGroupId").cloned(),
        id: record.message_id,
        body: record.body,
        receipt: record.receipt_handle,
    };
    let queue = source.rsplit(':').next().unwrap_or_default().to_owned();
    Ok(InvocationEvent::Messages { queue, messages: records.into_iter().map(incoming).collect() })
}

/// Returns the HTTP request in an event of the HTTP API, with its body decoded, and the host name
/// that the client used. Headers that are not valid HTTP are dropped. An error for an invalid body,
/// path or method.
fn request(event: HttpRequestPayload) -> Result<InvocationEvent, EventError> {
    let failed = |what: &str| EventError(format!("its {what} is invalid"));
    let body = event.body.unwrap_or_default();
    let body = if event.is_base64_encoded {
        STANDARD.decode(body).map_err(|_| failed("body"))?
    } else {
        body.into_bytes()
    };
    let query = if event.raw_query_string.is_empty() {
        String::new()
    } else {
        format!("?{}", event.raw_query_string)
    };
    let uri: Uri = format!("{}{query}", event.raw_path).parse().map_err(|_| failed("path"))?;
    let method: Method = event.request_context.http.method.parse().map_err(|_| failed("method"))?;
    let mut request = Request::new(Bytes::from(body));
    *request.uri_mut() = uri;
    *request.method_mut() = method;
    for (name, value) in &event.headers {
        // Headers that are not valid HTTP are dropped; no function reads them.
        if let (Ok(name), Ok(value)) = (HeaderName::try_from(name), HeaderValue::try_from(value)) {
            request.headers_mut().append(name, value);
        }
    }
    if let Ok(cookies) = HeaderValue::try_from(event.cookies.join("; "))
        && !cookies.is_empty()
    {
        request.headers_mut().insert(header::COOKIE, cookies);
    }
    Ok(InvocationEvent::Request { request, host: event.request_context.domain_name })
}

/// Returns the JSON response to a batch: the ids of the messages that SQS has to deliver again. It
/// deletes all others; an empty list means that all were handled.
pub fn failed_messages(ids: &[String]) -> Vec<u8> {
    let failures: Vec<Value> = ids.iter().map(|id| json!({"itemIdentifier": id})).collect();
    json!({"batchItemFailures": failures}).to_string().into_bytes()
}

/// Returns the JSON response to a request. If the JSON has more than 6 MiB, Lambda would drop it:
/// then logs a warning and returns a response with status 413 instead, which says how to ask for
/// less.
pub fn response(response: &Response<Bytes>) -> Vec<u8> {
    let answer = encoded(response);
    if answer.len() <= ANSWER_BYTES_MAX {
        return answer;
    }
    let (bytes, most) = (answer.len(), ANSWER_BYTES_MAX >> 20);
    tracing::warn!(bytes, "a response is larger than Lambda's limit");
    let body = json!({
        "error": "Payload Too Large",
        "description": format!("The response would have {bytes} bytes; the maximum is {most} MiB. Use `limit` and `skip` for lists, `pipeline` or `project` for a status, or the path of a single object."),
    });
    let mut refused = Response::new(Bytes::from(body.to_string()));
    *refused.status_mut() = StatusCode::PAYLOAD_TOO_LARGE;
    let headers = refused.headers_mut();
    headers
        .insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json; charset=utf-8"));
    headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, HeaderValue::from_static("*"));
    encoded(&refused)
}

/// Encodes a response as JSON for the HTTP front. The body is text if it is UTF-8 and has no
/// content encoding, else base64. Several values of a header are joined with commas.
fn encoded(response: &Response<Bytes>) -> Vec<u8> {
    let mut headers = Map::new();
    for name in response.headers().keys() {
        let values: Vec<_> = response
            .headers()
            .get_all(name)
            .iter()
            .map(|value| String::from_utf8_lossy(value.as_bytes()))
            .collect();
        headers.insert(name.as_str().to_owned(), Value::String(values.join(", ")));
    }
    let encoded = response.headers().contains_key(header::CONTENT_ENCODING);
    let (body, is_base64) = match std::str::from_utf8(response.body()) {
        Ok(text) if !encoded => (text.to_owned(), false),
        _ => (STANDARD.encode(response.body()), true),
    };
    let answer = json!({"statusCode": response.status().as_u16(), "headers": headers, "body": body, "isBase64Encoded": is_base64});
    answer.to_string().into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_has_its_queue_and_receive_counts() {
        let payload = json!({"Records": [{
            "messageId": "m", "receiptHandle": "r", "body": "b", "eventSourceARN": "arn:aws:sqs:us-east-1:0:sluice-gate.fifo",
            "attributes": {"ApproximateReceiveCount": "3", "MessageGroupId": "g"},
        }]});
        let InvocationEvent::Messages { queue, messages } =
            InvocationEvent::read(payload.to_string().as_bytes()).unwrap()
        else {
            panic!("a batch")
        };
        assert_eq!(
            (queue.as_str(), messages[0].receive_count, messages[0].group.as_deref()),
            ("sluice-gate.fifo", 3, Some("g"))
        );
    }

    /// Z2.2: the webhook signature covers the raw bytes.
    #[test]
    fn a_request_keeps_its_bytes() {
        let payload = json!({
            "rawPath": "/api/x", "rawQueryString": "a=1&b=%2F", "headers": {"x-one": "1"}, "body": STANDARD.encode([0, 255]),
            "isBase64Encoded": true, "requestContext": {"domainName": "ci.example.org", "http": {"method": "POST"}},
        });
        let InvocationEvent::Request { request, host } =
            InvocationEvent::read(payload.to_string().as_bytes()).unwrap()
        else {
            panic!("a request")
        };
        assert_eq!(
            (request.uri().to_string().as_str(), host.as_str()),
            ("/api/x?a=1&b=%2F", "ci.example.org")
        );
        assert_eq!(
            (request.body().as_ref(), request.method()),
            ([0, 255].as_slice(), &Method::POST)
        );
        assert_eq!(request.headers()["x-one"], "1");
    }

    #[test]
    fn a_response_that_is_not_text_is_base64() {
        let plain: Value =
            serde_json::from_slice(&response(&Response::new(Bytes::from_static(b"{}")))).unwrap();
        assert_eq!(
            (&plain["body"], &plain["isBase64Encoded"], &plain["statusCode"]),
            (&json!("{}"), &json!(false), &json!(200))
        );
        let binary: Value =
            serde_json::from_slice(&response(&Response::new(Bytes::from_static(&[0, 255]))))
                .unwrap();
        assert_eq!((&binary["body"], &binary["isBase64Encoded"]), (&json!("AP8="), &json!(true)));
    }

    /// Z9.1: a response under the limit is passed on unchanged.
    #[test]
    fn a_response_that_is_too_large_says_what_to_do() {
        let of = |body: String| {
            serde_json::from_slice::<Value>(&response(&Response::new(Bytes::from(body)))).unwrap()
        };
        assert_eq!(of("x".repeat(5 << 20))["statusCode"], 200);
        for body in ["x".repeat(6 << 20), "\"".repeat(4 << 20)] {
            let refused = of(body);
            assert_eq!(refused["statusCode"], 413);
            assert!(refused["body"].as_str().unwrap().contains("`limit`"), "{refused}");
        }
    }

    #[test]
    fn an_unknown_payload_is_refused() {
        assert!(InvocationEvent::read(b"{}").unwrap_err().to_string().contains("not a batch"));
        assert!(matches!(
            InvocationEvent::read(br#"{"detail-type": "Scheduled Event"}"#).unwrap(),
            InvocationEvent::Tick
        ));
    }
}
