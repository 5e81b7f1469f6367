//! Responses and their headers; refusals and their words.

use bytes::Bytes;
use http::response::Builder;
use http::{Response, StatusCode, header};
use serde_json::{Value, json};
use sluice_model::Timestamp;
use sluice_records::BadRecord;
use sluice_records::queue::LoadError;
use sluice_runtime::PortError;
use sluice_runtime::batch::LookError;

/// The type of every JSON answer.
const JSON: &str = "application/json; charset=utf-8";

/// Why a request is not answered with what it asks for.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Refusal {
    /// There is no such thing, or none in this tenant.
    #[error("{what}")]
    Missing {
        /// Which.
        what: String,
    },
    /// The tenant is known, but nothing could be read of it yet.
    #[error(
        "the tenant {tenant} has no configuration that could be loaded: it is being read, or could not be; `sluice tenant reload {tenant}` reads it again and says what comes of it"
    )]
    NotLoaded {
        /// Which.
        tenant: String,
    },
    /// The request makes no sense.
    #[error("{why}")]
    Bad {
        /// Why.
        why: String,
    },
    /// Something other than reading.
    #[error(
        "only reading is offered here: no authenticator is configured, so nothing can be changed through this API"
    )]
    Method,
    /// Reading what is asked for by sending the question.
    #[error(
        "this is asked by POST, with {{\"pipeline\": \"NAME\", \"ref\": \"refs/heads/BRANCH\"}}"
    )]
    PostOnly,
    /// The answer would be larger than what can be carried at once.
    #[error("{why}")]
    TooLarge {
        /// What, and what to do.
        why: String,
    },
    /// A record, object or executor could not be read.
    #[error("something this answer needs could not be read; ask again")]
    Unavailable {
        /// What exactly, for the log.
        detail: String,
    },
}

impl Refusal {
    /// Returns the refusal of something that is not there.
    pub(crate) fn missing(what: impl Into<String>) -> Self {
        Self::Missing { what: what.into() }
    }

    /// Returns the refusal of something that makes no sense.
    pub(crate) fn bad(why: impl Into<String>) -> Self {
        Self::Bad { why: why.into() }
    }

    fn status(&self) -> StatusCode {
        match self {
            Self::Missing { .. } => StatusCode::NOT_FOUND,
            Self::NotLoaded { .. } => StatusCode::UNPROCESSABLE_ENTITY,
            Self::Bad { .. } => StatusCode::BAD_REQUEST,
            Self::Method | Self::PostOnly => StatusCode::METHOD_NOT_ALLOWED,
            Self::TooLarge { .. } => StatusCode::PAYLOAD_TOO_LARGE,
            Self::Unavailable { .. } => StatusCode::SERVICE_UNAVAILABLE,
        }
    }

    /// Returns the response: JSON that clients of Zuul show to their users.
    pub(crate) fn response(&self) -> Response<Bytes> {
        let status = self.status();
        let body = json!({
            "error": status.canonical_reason().unwrap_or("Error"),
            "description": self.to_string(),
        });
        let mut builder = open().status(status).header(header::CONTENT_TYPE, JSON);
        let allowed = match self {
            Self::Method => Some("GET, HEAD, OPTIONS"),
            Self::PostOnly => Some("POST, OPTIONS"),
            _ => None,
        };
        if let Some(allowed) = allowed {
            builder = builder.header(header::ALLOW, allowed);
        }
        finish(builder, body.to_string().into())
    }
}

impl From<PortError> for Refusal {
    fn from(error: PortError) -> Self {
        Self::Unavailable { detail: error.to_string() }
    }
}

impl From<BadRecord> for Refusal {
    fn from(error: BadRecord) -> Self {
        Self::Unavailable { detail: error.to_string() }
    }
}

impl From<LookError> for Refusal {
    fn from(error: LookError) -> Self {
        Self::Unavailable { detail: error.to_string() }
    }
}

impl From<LoadError> for Refusal {
    fn from(error: LoadError) -> Self {
        Self::Unavailable { detail: error.to_string() }
    }
}

/// Begins a response that any page may read.
pub(crate) fn open() -> Builder {
    Response::builder().header(header::ACCESS_CONTROL_ALLOW_ORIGIN, "*")
}

/// Ends a response.
pub(crate) fn finish(builder: Builder, body: Bytes) -> Response<Bytes> {
    builder.body(body).unwrap_or_else(|error| {
        // A header that cannot be written came from a record; the answer says so instead of being
        // half right.
        tracing::warn!(%error, "could not write a response");
        let mut response = Response::new(Bytes::new());
        *response.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
        response
    })
}

/// Returns JSON.
pub(crate) fn json(value: &Value) -> Response<Bytes> {
    finish(open().header(header::CONTENT_TYPE, JSON), value.to_string().into())
}

/// Returns JSON that may be kept for `seconds`, with the time it was made.
pub(crate) fn json_kept(value: &Value, seconds: u32, made_at: Timestamp) -> Response<Bytes> {
    let builder = open()
        .header(header::CONTENT_TYPE, JSON)
        .header(header::CACHE_CONTROL, format!("public, max-age={seconds}"))
        .header(header::LAST_MODIFIED, http_date(made_at));
    finish(builder, value.to_string().into())
}

/// Returns the answer to a browser that asks what it may ask.
pub(crate) fn options() -> Response<Bytes> {
    let builder = open()
        .status(StatusCode::NO_CONTENT)
        .header(header::ACCESS_CONTROL_ALLOW_HEADERS, "Authorization, Content-Type, Range")
        .header(header::ACCESS_CONTROL_ALLOW_METHODS, "GET, HEAD, POST, OPTIONS")
        .header(header::ACCESS_CONTROL_MAX_AGE, "86400");
    finish(builder, Bytes::new())
}

/// Returns a time as HTTP writes it: `Sat, 21 Nov 2026 11:03:45 GMT`.
fn http_date(time: Timestamp) -> String {
    const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
    const MONTHS: [&str; 12] =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let iso = time.to_iso();
    let (date, clock) = iso.split_once('T').unwrap_or((&iso, ""));
    let mut parts = date.split('-');
    let year = parts.next().unwrap_or_default();
    let month = parts.next().and_then(|month| month.parse::<usize>().ok()).unwrap_or(1);
    let day = parts.next().unwrap_or_default();
    let weekday = DAYS.get((time.seconds() / 86_400 % 7) as usize).copied().unwrap_or("Thu");
    let month = MONTHS.get(month.saturating_sub(1)).copied().unwrap_or("Jan");
    format!("{weekday}, {day} {month} {year} {clock} GMT")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Z9.1
    #[test]
    fn dates_are_written_as_http_wants_them() {
        assert_eq!(http_date(Timestamp(784_111_777_000)), "Sun, 06 Nov 1994 08:49:37 GMT");
        assert_eq!(http_date(Timestamp(0)), "Thu, 01 Jan 1970 00:00:00 GMT");
    }

    /// Z9.1: a client shows error and description.
    #[test]
    fn a_refusal_says_what_is_wrong_and_is_json() {
        let response = Refusal::missing("There is no tenant x.").response();
        assert_eq!(response.status(), StatusCode::NOT_FOUND);
        assert_eq!(response.headers()["content-type"], JSON);
        assert_eq!(response.headers()["access-control-allow-origin"], "*");
        let body: Value = serde_json::from_slice(response.body()).unwrap();
        assert_eq!(body, json!({"error": "Not Found", "description": "There is no tenant x."}));
    }

    /// Z9.1: a tenant of which nothing could be read yet is told with what to do.
    #[test]
    fn a_tenant_without_configuration_is_told_with_what_to_do() {
        let response = Refusal::NotLoaded { tenant: "demo".to_owned() }.response();
        assert_eq!(response.status(), StatusCode::UNPROCESSABLE_ENTITY);
        assert!(String::from_utf8_lossy(response.body()).contains("`sluice tenant reload demo`"));
    }

    /// Z5.4: what failed inside is for the log, not for strangers.
    #[test]
    fn what_failed_inside_is_not_told() {
        let refusal =
            Refusal::from(PortError::unknown("read tenant#secret-project / head", "timed out"));
        assert!(!String::from_utf8_lossy(refusal.response().body()).contains("secret-project"));
    }
}
