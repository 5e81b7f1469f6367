//! What the services have in common on the wire: their names, their errors in JSON, request ids,
//! the time.

use std::fmt;
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode};
use serde_json::{Map, Value};

use super::meter::Purpose;

/// A service of the emulator.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Service {
    /// DynamoDB.
    DynamoDb,
    /// S3.
    S3,
    /// SQS.
    Sqs,
    /// KMS.
    Kms,
    /// An additional service of the front, by its name in signatures (`ec2`).
    Other(String),
}

impl Service {
    /// Returns the service by its name in signatures; an unknown name is an additional service,
    /// which need not exist.
    #[must_use]
    pub fn from_scope(name: &str) -> Self {
        match name {
            "dynamodb" => Self::DynamoDb,
            "s3" => Self::S3,
            "sqs" => Self::Sqs,
            "kms" => Self::Kms,
            other => Self::Other(other.to_owned()),
        }
    }

    /// Returns the service's name in signatures and actions.
    #[must_use]
    pub fn as_str(&self) -> &str {
        match self {
            Self::DynamoDb => "dynamodb",
            Self::S3 => "s3",
            Self::Sqs => "sqs",
            Self::Kms => "kms",
            Self::Other(name) => name,
        }
    }
}

impl fmt::Display for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What one call used, for the meter.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Usage {
    /// DynamoDB read request units, indexes included.
    pub read_units: f64,
    /// DynamoDB write request units, indexes included.
    pub write_units: f64,
    /// Requests as the service bills them: SQS counts each 64 KiB of payload.
    pub billed_requests: u64,
    /// Whether an SQS call went to a FIFO queue, which costs more.
    pub fifo: bool,
    /// What the call was made for.
    pub purpose: Purpose,
}

/// An error of a JSON service in the service's own shape.
#[derive(Clone, Debug, PartialEq)]
pub struct Problem {
    /// HTTP status.
    pub status: u16,
    /// The value of `__type`, with its namespace.
    pub kind: String,
    /// What people read.
    pub message: String,
    /// SQS's older code, which goes into a header.
    pub query_code: Option<String>,
    /// Further members of the body.
    pub more: Box<Map<String, Value>>,
}

impl Problem {
    /// Returns an error without further members.
    pub fn new(status: u16, kind: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            status,
            kind: kind.into(),
            message: message.into(),
            query_code: None,
            more: Box::default(),
        }
    }

    /// Converts the error to a JSON response with its status. The older code, if there is one, is
    /// in the header `x-amzn-query-error`, always as the sender's fault.
    #[must_use]
    pub fn into_response(self, content_type: &'static str) -> Response<Bytes> {
        let mut body = Map::new();
        body.insert("__type".to_owned(), Value::String(self.kind));
        body.insert("message".to_owned(), Value::String(self.message));
        body.extend(*self.more);
        let mut response =
            text_response(self.status, content_type, Value::Object(body).to_string());
        if let Some(code) =
            self.query_code.and_then(|code| HeaderValue::try_from(format!("{code};Sender")).ok())
        {
            response.headers_mut().insert("x-amzn-query-error", code);
        }
        response
    }
}

/// Returns a response with this status, content type and body, and a random request id in the
/// header `x-amzn-requestid`. A number that is no status becomes 500. The body is not checked.
pub(super) fn text_response(
    status: u16,
    content_type: &'static str,
    body: String,
) -> Response<Bytes> {
    let mut response = Response::new(Bytes::from(body));
    *response.status_mut() =
        StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response
        .headers_mut()
        .insert(http::header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    if let Ok(id) = HeaderValue::try_from(random_hex(16)) {
        response.headers_mut().insert("x-amzn-requestid", id);
    }
    response
}

/// Returns `bytes` random bytes in hexadecimal, twice as many digits; zeros if the system has no
/// random numbers.
pub(super) fn random_hex(bytes: usize) -> String {
    let mut buffer = vec![0; bytes];
    // A failure leaves zeros: the ids made here are names, not secrets, and stores refuse to
    // overwrite.
    let _ = aws_lc_rs::rand::fill(&mut buffer);
    hex::encode(buffer)
}

/// Returns the milliseconds since the Unix epoch.
#[must_use]
pub fn now_ms() -> u64 {
    let elapsed = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX)
}
