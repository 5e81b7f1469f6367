//! S3's errors that do not come from an operation: injected ones and our own.

use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode};

use super::super::faults::InjectedError;

/// Returns S3's form of an injected failure: 503 for throttling, 409 for a conflict, otherwise 500.
pub(in super::super) fn injected(failure: &InjectedError) -> Response<Bytes> {
    match failure {
        InjectedError::Throttled => error(503, "SlowDown", "Please reduce your request rate."),
        InjectedError::ConditionalConflict | InjectedError::TransactionConflict => error(
            409,
            "ConditionalRequestConflict",
            "The conditional request cannot succeed due to a conflicting operation against this resource.",
        ),
        InjectedError::Internal | InjectedError::ConnectionLost => {
            internal("We encountered an internal error. Please try again.")
        }
    }
}

/// Returns an internal error (500) with a message in S3's form.
pub(in super::super) fn internal(message: &str) -> Response<Bytes> {
    error(500, "InternalError", message)
}

/// Returns an error response in S3's XML form; escapes the message, but not the code.
fn error(status: u16, code: &str, message: &str) -> Response<Bytes> {
    let message = message.replace('&', "&amp;").replace('<', "&lt;");
    let body = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?><Error><Code>{code}</Code><Message>{message}</Message></Error>"
    );
    let mut response = Response::new(Bytes::from(body));
    *response.status_mut() =
        StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response
        .headers_mut()
        .insert(http::header::CONTENT_TYPE, HeaderValue::from_static("application/xml"));
    response
}
