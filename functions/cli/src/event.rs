//! Events as Lambda hands them over: batches of messages, ticks of a schedule, requests; and the
//! answers to them.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::{HeaderName, HeaderValue, Method, Request, Response, StatusCode, Uri, header};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use sluice_runtime::port::Incoming;
use std::collections::BTreeMap;

/// The most bytes of a function's answer to a request, with what is around its body; Lambda takes a
/// few more.
const ANSWER_BYTES_MAX: usize = 6 << 20;

/// What a function is called for.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "one is made per call and handed on at once")]
pub enum Event {
    /// Messages of one queue.
    Messages {
        /// The queue's name: the last part of its ARN.
        queue: String,
        /// The messages, in order.
        messages: Vec<Incoming>,
    },
    /// A schedule fired.
    Tick,
    /// Somebody asks over HTTP.
    Request {
        /// The request.
        request: Request<Bytes>,
        /// The host that was asked.
        host: String,
    },
}

/// An event that nobody can read.
#[derive(Debug, thiserror::Error)]
#[error(
    "could not read the event: {0}; is this function wired to another source than in the template?"
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
struct HttpEvent {
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

impl Event {
    /// Reads a payload: a batch by its `Records`, a request by its `requestContext`, else a
    /// schedule's tick.
    ///
    /// # Errors
    /// [`EventError`] when it is none of these.
    pub fn read(payload: &[u8]) -> Result<Self, EventError> {
        let failed = |error: serde_json::Error| EventError(error.to_string());
        let value: Value = serde_json::from_slice(payload).map_err(failed)?;
        if let Some(records) = value.get("Records") {
            return messages(Vec::<SqsRecord>::deserialize(records).map_err(failed)?);
        }
        if value.get("requestContext").is_some() {
            return request(HttpEvent::deserialize(value).map_err(failed)?);
        }
        match value.get("detail-type").and_then(Value::as_str) {
            Some("Scheduled Event") => Ok(Self::Tick),
            _ => Err(EventError("it is no batch, no request and no tick".to_owned())),
        }
    }
}

impl Event {
    /// Returns what it is, for people.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Messages { .. } => "messages",
            Self::Tick => "a schedule",
            Self::Request { .. } => "requests",
        }
    }
}

fn messages(records: Vec<SqsRecord>) -> Result<Event, EventError> {
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
    Ok(Event::Messages { queue, messages: records.into_iter().map(incoming).collect() })
}

fn request(event: HttpEvent) -> Result<Event, EventError> {
    let failed = |what: &str| EventError(format!("its {what} cannot be read"));
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
        // A header that cannot be a header says nothing that anybody here asks for.
        if let (Ok(name), Ok(value)) = (HeaderName::try_from(name), HeaderValue::try_from(value)) {
            request.headers_mut().append(name, value);
        }
    }
    if let Ok(cookies) = HeaderValue::try_from(event.cookies.join("; "))
        && !cookies.is_empty()
    {
        request.headers_mut().insert(header::COOKIE, cookies);
    }
    Ok(Event::Request { request, host: event.request_context.domain_name })
}

/// Returns the answer to a batch: the messages that must come again.
pub fn failed_messages(ids: &[String]) -> Vec<u8> {
    let failures: Vec<Value> = ids.iter().map(|id| json!({"itemIdentifier": id})).collect();
    json!({"batchItemFailures": failures}).to_string().into_bytes()
}

/// Returns the answer to a request. One that is larger than a function may give is refused with
/// what to do: nobody would get it.
pub fn response(response: &Response<Bytes>) -> Vec<u8> {
    let answer = written(response);
    if answer.len() <= ANSWER_BYTES_MAX {
        return answer;
    }
    let (bytes, most) = (answer.len(), ANSWER_BYTES_MAX >> 20);
    tracing::warn!(bytes, "an answer is larger than a function may give");
    let body = json!({
        "error": "Payload Too Large",
        "description": format!("The answer would have {bytes} bytes, and one may have {most} MiB: ask for less of a list by `limit` and `skip` where it takes them, for less of a status by `pipeline` or `project`, or for one thing alone by its own path."),
    });
    let mut refused = Response::new(Bytes::from(body.to_string()));
    *refused.status_mut() = StatusCode::PAYLOAD_TOO_LARGE;
    let headers = refused.headers_mut();
    headers
        .insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json; charset=utf-8"));
    headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, HeaderValue::from_static("*"));
    written(&refused)
}

/// Writes an answer as the front takes it. Text goes as it is, everything else as base64.
fn written(response: &Response<Bytes>) -> Vec<u8> {
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
    fn a_batch_says_its_queue_and_how_often_each_message_came() {
        let payload = json!({"Records": [{
            "messageId": "m", "receiptHandle": "r", "body": "b", "eventSourceARN": "arn:aws:sqs:us-east-1:0:sluice-gate.fifo",
            "attributes": {"ApproximateReceiveCount": "3", "MessageGroupId": "g"},
        }]});
        let Event::Messages { queue, messages } =
            Event::read(payload.to_string().as_bytes()).unwrap()
        else {
            panic!("a batch")
        };
        assert_eq!(
            (queue.as_str(), messages[0].receive_count, messages[0].group.as_deref()),
            ("sluice-gate.fifo", 3, Some("g"))
        );
    }

    /// Z2.2: a signature is over the raw bytes.
    #[test]
    fn a_request_keeps_its_bytes() {
        let payload = json!({
            "rawPath": "/api/x", "rawQueryString": "a=1&b=%2F", "headers": {"x-one": "1"}, "body": STANDARD.encode([0, 255]),
            "isBase64Encoded": true, "requestContext": {"domainName": "ci.example.org", "http": {"method": "POST"}},
        });
        let Event::Request { request, host } = Event::read(payload.to_string().as_bytes()).unwrap()
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
    fn an_answer_that_is_not_text_goes_as_base64() {
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

    /// Z9.1: as long as it fits it goes as it is, whatever its quotes come to.
    #[test]
    fn an_answer_that_is_too_large_says_what_to_do() {
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
    fn what_is_nothing_of_these_is_refused() {
        assert!(Event::read(b"{}").unwrap_err().to_string().contains("no batch"));
        assert!(matches!(
            Event::read(br#"{"detail-type": "Scheduled Event"}"#).unwrap(),
            Event::Tick
        ));
    }
}
