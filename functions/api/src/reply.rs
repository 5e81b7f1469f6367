//! Builds responses with their headers, and error responses.

use bytes::Bytes;
use http::response::Builder;
use http::{HeaderValue, Response, StatusCode, header};
use serde_json::{Value, json};
use sluice_commands::StoreCommandError;
use sluice_model::Timestamp;
use sluice_records::BadRecord;
use sluice_records::queue::LoadError;
use sluice_runtime::PortError;
use sluice_runtime::batch::ReconcileError;

/// The content type of JSON.
const JSON: &str = "application/json; charset=utf-8";

/// The caching of an answer that depends on who asks.
const PRIVATE: &str = "private, no-store";

/// Why a request failed.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ErrorResponse {
    /// The object does not exist, or not in this tenant.
    #[error("{what}")]
    Missing {
        /// The message.
        what: String,
    },
    /// The tenant exists, but its configuration was never loaded.
    #[error(
        "the configuration of tenant {tenant} has not been loaded yet, or could not be loaded; `sluice tenant reload {tenant}` loads it again and shows the outcome"
    )]
    NotLoaded {
        /// The name of the tenant.
        tenant: String,
    },
    /// The request is invalid.
    #[error("{why}")]
    Bad {
        /// The message.
        why: String,
    },
    /// The path has no such method.
    #[error("this path is not answered with this method")]
    Method {
        /// The methods that it has.
        allowed: String,
    },
    /// The request has no token, or one that is refused.
    #[error("{description}")]
    Unauthorized {
        /// The short name of the error.
        error: &'static str,
        /// The message.
        description: String,
        /// The realm in which to log in.
        realm: String,
    },
    /// The token's bearer may read this and not do what is asked.
    #[error("{why}")]
    Forbidden {
        /// The message.
        why: String,
    },
    /// Zuul has this and Sluice does not yet.
    #[error("{why}")]
    NotImplemented {
        /// The message.
        why: String,
    },
    /// The query must be sent with POST.
    #[error("use POST with the body {{\"pipeline\": \"NAME\", \"ref\": \"refs/heads/BRANCH\"}}")]
    PostOnly,
    /// The answer exceeds the maximum response size.
    #[error("{why}")]
    TooLarge {
        /// The message, with what to do.
        why: String,
    },
    /// A record, object or executor could not be read.
    #[error("a part of the answer could not be read; try again")]
    Unavailable {
        /// The details, for the log only.
        detail: String,
    },
}

impl ErrorResponse {
    /// Returns the error with status 404 for something that does not exist.
    pub(crate) fn missing(what: impl Into<String>) -> Self {
        Self::Missing { what: what.into() }
    }

    /// Returns the error with status 400 for an invalid request.
    pub(crate) fn bad(why: impl Into<String>) -> Self {
        Self::Bad { why: why.into() }
    }

    /// Returns the error with status 403 for something that the token's bearer may not do.
    pub(crate) fn forbidden(why: impl Into<String>) -> Self {
        Self::Forbidden { why: why.into() }
    }

    /// Returns the HTTP status of the error.
    fn status(&self) -> StatusCode {
        match self {
            Self::Missing { .. } => StatusCode::NOT_FOUND,
            Self::NotLoaded { .. } => StatusCode::UNPROCESSABLE_ENTITY,
            Self::Bad { .. } => StatusCode::BAD_REQUEST,
            Self::Method { .. } | Self::PostOnly => StatusCode::METHOD_NOT_ALLOWED,
            Self::Unauthorized { .. } => StatusCode::UNAUTHORIZED,
            Self::Forbidden { .. } => StatusCode::FORBIDDEN,
            Self::NotImplemented { .. } => StatusCode::NOT_IMPLEMENTED,
            Self::TooLarge { .. } => StatusCode::PAYLOAD_TOO_LARGE,
            Self::Unavailable { .. } => StatusCode::SERVICE_UNAVAILABLE,
        }
    }

    /// Returns the response with the JSON that clients of Zuul show to their users.
    pub(crate) fn response(&self) -> Response<Bytes> {
        let status = self.status();
        let mut body = json!({
            "error": status.canonical_reason().unwrap_or("Error"),
            "description": self.to_string(),
        });
        if let Self::Unauthorized { error, realm, .. } = self {
            (body["error"], body["realm"]) = (json!(error), json!(realm));
        }
        let mut builder = builder().status(status).header(header::CONTENT_TYPE, JSON);
        let allowed = match self {
            Self::Method { allowed } => Some(allowed.as_str()),
            Self::PostOnly => Some("POST, OPTIONS"),
            _ => None,
        };
        if let Some(allowed) = allowed {
            builder = builder.header(header::ALLOW, allowed);
        }
        if let Self::Unauthorized { error, realm, description } = self {
            let challenge = format!(
                "Bearer realm=\"{}\" error=\"{error}\" error_description=\"{}\"",
                quoted(realm),
                quoted(description)
            );
            builder = builder.header(header::WWW_AUTHENTICATE, challenge);
        }
        if matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) {
            builder = builder.header(header::CACHE_CONTROL, PRIVATE);
        }
        finish(builder, body.to_string().into())
    }
}

/// Returns a text for a quoted part of a header: printable ASCII without quotes and backslashes,
/// which are replaced by apostrophes; anything else by `?`.
fn quoted(text: &str) -> String {
    let allowed = |character: char| match character {
        '"' | '\\' => '\'',
        ' '..='~' => character,
        _ => '?',
    };
    text.chars().map(allowed).collect()
}

/// Marks a response as one that depends on who asks: no cache between may keep it.
pub(crate) fn make_private(response: &mut Response<Bytes>) {
    let headers = response.headers_mut();
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static(PRIVATE));
    headers.insert(header::VARY, HeaderValue::from_static("Authorization"));
}

impl From<StoreCommandError> for ErrorResponse {
    fn from(error: StoreCommandError) -> Self {
        match error {
            StoreCommandError::NotFound(what) => Self::Missing { what },
            StoreCommandError::Invalid(why) => Self::Bad { why },
            StoreCommandError::Contended { .. }
            | StoreCommandError::Store(_)
            | StoreCommandError::Record(_) => Self::Unavailable { detail: error.to_string() },
        }
    }
}

impl From<PortError> for ErrorResponse {
    fn from(error: PortError) -> Self {
        Self::Unavailable { detail: error.to_string() }
    }
}

impl From<BadRecord> for ErrorResponse {
    fn from(error: BadRecord) -> Self {
        Self::Unavailable { detail: error.to_string() }
    }
}

impl From<ReconcileError> for ErrorResponse {
    fn from(error: ReconcileError) -> Self {
        Self::Unavailable { detail: error.to_string() }
    }
}

impl From<LoadError> for ErrorResponse {
    fn from(error: LoadError) -> Self {
        Self::Unavailable { detail: error.to_string() }
    }
}

/// Starts a response that pages of any origin may read.
pub(crate) fn builder() -> Builder {
    Response::builder().header(header::ACCESS_CONTROL_ALLOW_ORIGIN, "*")
}

/// Finishes a response; returns one with status 500 and no body if a header is invalid.
pub(crate) fn finish(builder: Builder, body: Bytes) -> Response<Bytes> {
    builder.body(body).unwrap_or_else(|error| {
        // The invalid header came from a record. An error is better than a partial response.
        tracing::warn!(%error, "could not write a response");
        let mut response = Response::new(Bytes::new());
        *response.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
        response
    })
}

/// Returns a JSON response.
pub(crate) fn json(value: &Value) -> Response<Bytes> {
    finish(builder().header(header::CONTENT_TYPE, JSON), value.to_string().into())
}

/// Returns a JSON response that may be cached for `seconds`, with the time it was built.
pub(crate) fn cacheable_json(value: &Value, seconds: u32, made_at: Timestamp) -> Response<Bytes> {
    let builder = builder()
        .header(header::CONTENT_TYPE, JSON)
        .header(header::CACHE_CONTROL, format!("public, max-age={seconds}"))
        .header(header::LAST_MODIFIED, http_date(made_at));
    finish(builder, value.to_string().into())
}

/// Returns the response to a CORS preflight request for a path with these methods.
pub(crate) fn options(methods: &str) -> Response<Bytes> {
    let builder = builder()
        .status(StatusCode::NO_CONTENT)
        .header(header::ACCESS_CONTROL_ALLOW_HEADERS, "Authorization, Content-Type, Range")
        .header(header::ACCESS_CONTROL_ALLOW_METHODS, methods)
        .header(header::ACCESS_CONTROL_MAX_AGE, "86400");
    finish(builder, Bytes::new())
}

/// Formats a time as in HTTP: `Sat, 21 Nov 2026 11:03:45 GMT`.
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
    fn dates_are_formatted_as_in_http() {
        assert_eq!(http_date(Timestamp(784_111_777_000)), "Sun, 06 Nov 1994 08:49:37 GMT");
        assert_eq!(http_date(Timestamp(0)), "Thu, 01 Jan 1970 00:00:00 GMT");
    }

    /// Z9.1: clients show `error` and `description`.
    #[test]
    fn an_error_is_json_with_a_description() {
        let response = ErrorResponse::missing("There is no tenant x.").response();
        assert_eq!(response.status(), StatusCode::NOT_FOUND);
        assert_eq!(response.headers()["content-type"], JSON);
        assert_eq!(response.headers()["access-control-allow-origin"], "*");
        let body: Value = serde_json::from_slice(response.body()).unwrap();
        assert_eq!(body, json!({"error": "Not Found", "description": "There is no tenant x."}));
    }

    /// Z9.1: the error for a tenant that was never loaded says what to do.
    #[test]
    fn the_error_for_an_unloaded_tenant_says_what_to_do() {
        let response = ErrorResponse::NotLoaded { tenant: "demo".to_owned() }.response();
        assert_eq!(response.status(), StatusCode::UNPROCESSABLE_ENTITY);
        assert!(String::from_utf8_lossy(response.body()).contains("`sluice tenant reload demo`"));
    }

    /// Z5.4: internal details go to the log, not to clients.
    #[test]
    fn internal_details_are_not_sent() {
        let refusal = ErrorResponse::from(PortError::unknown(
            "read tenant#secret-project / head",
            "timed out",
        ));
        assert!(!String::from_utf8_lossy(refusal.response().body()).contains("secret-project"));
    }
}
