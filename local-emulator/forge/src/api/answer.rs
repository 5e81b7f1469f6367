//! How answers look: JSON, pages with `Link` headers, errors with GitHub's messages.

use crate::error::ApiError;
use axum::Json;
use axum::http::{HeaderValue, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use serde_json::{Value, json};

const PAGE_SIZE: usize = 30;
const PAGE_SIZE_MAX: usize = 100;

/// What a handler returns.
pub(crate) type Answer = Result<Response, ApiError>;

impl IntoResponse for ApiError {
    /// Answers with the status and message of a refusal as JSON. An error of git or of the database
    /// is logged and answered with status 500, without its cause.
    fn into_response(self) -> Response {
        let (status, message) = match self {
            Self::Refused { status, message } => (status, message),
            error @ (Self::Git(_) | Self::Store(_)) => {
                tracing::error!(
                    error = &error as &dyn std::error::Error,
                    "the forge could not answer"
                );
                (500, "Server Error".to_owned())
            }
        };
        let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        (
            status,
            Json(json!({"message": message, "documentation_url": "https://docs.github.com/rest"})),
        )
            .into_response()
    }
}

/// Answers a path that the forge does not have with status 404.
pub(super) async fn no_such_path() -> Response {
    ApiError::not_found().into_response()
}

/// Returns a JSON response with status 200.
pub(super) fn ok(value: Value) -> Answer {
    Ok(Json(value).into_response())
}

/// Returns a JSON response with status 201.
pub(super) fn created(value: Value) -> Answer {
    Ok((StatusCode::CREATED, Json(value)).into_response())
}

/// Which page of a list is asked for.
#[derive(Debug, Clone, Copy, Deserialize)]
pub(crate) struct Paging {
    per_page: Option<usize>,
    page: Option<usize>,
}

impl Paging {
    /// Returns the page size (30 unless requested, at most 100), the number of the requested page
    /// from 1, and the number of pages that `count` items fill, at least 1. The requested page may
    /// be beyond the last one.
    fn bounds(self, count: usize) -> (usize, usize, usize) {
        let size = self.per_page.unwrap_or(PAGE_SIZE).clamp(1, PAGE_SIZE_MAX);
        let page = self.page.unwrap_or(1).max(1);
        (size, page, count.div_ceil(size).max(1))
    }
}

/// Answers with the requested page of `items`, which are those of all pages; the page is empty
/// beyond the last one. The `Link` header holds the addresses of the previous, next, first and last
/// page as far as there are any. `wrap` makes the body of the page's items: an array, or the object
/// that holds them at GitHub. `web` is the base of the links.
pub(super) fn page(
    web: &str,
    uri: &Uri,
    paging: Paging,
    items: Vec<Value>,
    wrap: impl FnOnce(Vec<Value>) -> Value,
) -> Answer {
    let (size, page, last) = paging.bounds(items.len());
    let shown = items.into_iter().skip((page - 1).saturating_mul(size)).take(size).collect();
    let mut response = Json(wrap(shown)).into_response();
    let mut links = Vec::new();
    let mut link = |relation: &str, to: usize| {
        links.push(format!("<{}>; rel=\"{relation}\"", address(web, uri, to)))
    };
    if page > 1 {
        link("prev", page - 1);
        link("first", 1);
    }
    if page < last {
        link("next", page + 1);
        link("last", last);
    }
    if let Ok(value) =
        HeaderValue::from_str(&links.join(", ")).map(|value| (!links.is_empty()).then_some(value))
    {
        value.map(|value| response.headers_mut().insert(header::LINK, value));
    }
    Ok(response)
}

/// Returns the address of page `page` of the request's list: `web`, the path, and the query with
/// its other parameters kept.
fn address(web: &str, uri: &Uri, page: usize) -> String {
    let kept = uri
        .query()
        .unwrap_or_default()
        .split('&')
        .filter(|pair| !pair.is_empty() && !pair.starts_with("page="));
    let query: Vec<String> = kept.map(str::to_owned).chain([format!("page={page}")]).collect();
    format!("{web}{}?{}", uri.path(), query.join("&"))
}
