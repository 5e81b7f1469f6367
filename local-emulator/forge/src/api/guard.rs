//! What every request passes: faults that are switched on, the token, the count of requests.

use super::answer::{Answer, ok};
use crate::engine::Engine;
use crate::error::ApiError;
use crate::faults::ForgeFault;
use crate::{AccountPermission, ForgeAccount};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use serde_json::json;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::time::Duration;

const REQUESTS_PER_HOUR: u64 = 1_000_000;

/// The caller of a request: an account, or an anonymous caller, who may only read.
#[derive(Clone)]
pub(crate) struct Caller(Option<ForgeAccount>);

impl Caller {
    /// Returns the login of a caller with write or admin permission. An error with status 401 for
    /// an anonymous caller, 403 for one that may only read.
    pub fn writer(&self) -> Result<&str, ApiError> {
        match &self.0 {
            None => Err(ApiError::refused(401, "Requires authentication")),
            Some(account) if account.permission == AccountPermission::Read => {
                Err(ApiError::refused(403, "Resource not accessible by personal access token"))
            }
            Some(account) => Ok(&account.login),
        }
    }

    /// Returns the login of a caller with an account, whatever its permission. An error with status
    /// 401 for an anonymous caller.
    pub fn required_login(&self) -> Result<&str, ApiError> {
        let account =
            self.0.as_ref().ok_or_else(|| ApiError::refused(401, "Requires authentication"))?;
        Ok(&account.login)
    }
}

/// Returns the token of the `Authorization` header: that of `Bearer` or `token`, or the password of
/// `Basic`, as git sends it. `None` if there is no such header, or it has another scheme or cannot
/// be decoded. Does not check the token.
pub(crate) fn token_of(headers: &HeaderMap) -> Option<String> {
    let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, rest) = value.split_once(' ')?;
    match scheme.to_ascii_lowercase().as_str() {
        "bearer" | "token" => Some(rest.trim().to_owned()),
        "basic" => {
            let pair = base64::engine::general_purpose::STANDARD.decode(rest.trim()).ok()?;
            let pair = String::from_utf8(pair).ok()?;
            pair.split_once(':').map(|(_, password)| password.to_owned())
        }
        _ => None,
    }
}

/// Adds the [`Caller`] to a request, passes it on, and adds the rate-limit headers to the response.
/// A request without a token is passed on as anonymous. An unknown token is answered with status
/// 401. All callers share one limit of requests in an hour; beyond it the answer is 403.
pub(super) async fn authenticate(
    State(engine): State<Arc<Engine>>,
    mut request: Request,
    next: Next,
) -> Response {
    let account = match token_of(request.headers()) {
        None => None,
        Some(token) => match engine.accounts.iter().find(|account| account.token == token) {
            Some(account) => Some(account.clone()),
            None => return ApiError::refused(401, "Bad credentials").into_response(),
        },
    };
    request.extensions_mut().insert(Caller(account));
    let (used, reset) = engine.requests.count();
    let mut response = if used > REQUESTS_PER_HOUR {
        ApiError::refused(403, "API rate limit exceeded").into_response()
    } else {
        next.run(request).await
    };
    let headers = response.headers_mut();
    for (name, value) in [
        ("x-ratelimit-limit", REQUESTS_PER_HOUR),
        ("x-ratelimit-remaining", REQUESTS_PER_HOUR.saturating_sub(used)),
        ("x-ratelimit-reset", reset),
    ] {
        headers.entry(name).or_insert(HeaderValue::from(value));
    }
    response
}

/// Passes on requests whose host names are all IP addresses (any) or `localhost`, and answers
/// others with status 421. Otherwise a web page could read every repository through a visitor's
/// browser (DNS rebinding).
pub(super) async fn by_own_name(request: Request, next: Next) -> Response {
    if is_for_us(&request) {
        next.run(request).await
    } else {
        ApiError::refused(
            421,
            "This forge answers by addresses, as 127.0.0.1, and by localhost only",
        )
        .into_response()
    }
}

/// Returns whether every host name in a request (`Host` headers and the authority of its URI) is an
/// IP address or `localhost`. True if there is none: such a request does not come from a browser.
fn is_for_us(request: &Request) -> bool {
    let said = request.headers().get_all(header::HOST).iter();
    let mut said = said.map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned());
    said.all(|name| is_own(&name))
        && request.uri().authority().is_none_or(|name| is_own(name.as_str()))
}

/// Returns whether a host name, with or without port, is any IP address (IPv6 in brackets) or
/// `localhost`, which no web page can have as its own.
fn is_own(said: &str) -> bool {
    let (host, port) = match said.rsplit_once(':') {
        // The colons within brackets are the address's own.
        Some((host, port)) if !port.ends_with(']') => (host, port),
        _ => (said, ""),
    };
    let is_address = match host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        Some(address) => address.parse::<Ipv6Addr>().is_ok(),
        None => host.parse::<Ipv4Addr>().is_ok() || host.eq_ignore_ascii_case("localhost"),
    };
    is_address && port.bytes().all(|byte| byte.is_ascii_digit())
}

/// Answers with the limit of requests in an hour, how many remain and when the count starts again.
/// All callers share it. This request itself is counted twice.
pub(super) async fn rate_limit(State(engine): State<Arc<Engine>>) -> Answer {
    let (used, reset) = engine.requests.count();
    let core = json!({"limit": REQUESTS_PER_HOUR, "remaining": REQUESTS_PER_HOUR.saturating_sub(used), "reset": reset});
    ok(json!({"resources": {"core": core}, "rate": core}))
}

/// Applies the faults that are switched on for a request's repository: the request may be delayed,
/// answered with an error without effect, or carried out and answered with 502. Other requests are
/// passed on unchanged. A repository whose directory was removed is not found (404). Faults of
/// merges, pushes and webhooks are left for where those happen.
pub(super) async fn apply_faults(
    State(engine): State<Arc<Engine>>,
    request: Request,
    next: Next,
) -> Response {
    let path = request.uri().path().to_owned();
    let Some(repository) = repository_of(&path) else { return next.run(request).await };
    if engine.is_gone(&repository) {
        return ApiError::not_found().into_response();
    }
    let in_passing = |fault: &ForgeFault| {
        !matches!(
            fault,
            ForgeFault::RefuseMerge
                | ForgeFault::MergeabilityUnknown
                | ForgeFault::MergeSomethingElse
                | ForgeFault::PushBefore { .. }
                | ForgeFault::HugeBodies { .. }
        )
    };
    let mut loses_answer = false;
    for fault in engine.faults.take(&repository, request.method().as_str(), &path, in_passing) {
        match fault {
            ForgeFault::AnswerSlowly { milliseconds } => {
                tokio::time::sleep(Duration::from_millis(milliseconds)).await
            }
            ForgeFault::ServerError { status } => {
                let status =
                    StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
                return (status, "<html>Unicorn!</html>").into_response();
            }
            ForgeFault::LoseAnswer => loses_answer = true,
            ForgeFault::RepositoryGone => return ApiError::not_found().into_response(),
            ForgeFault::RateLimited { retry_after_seconds } => {
                let refusal = ApiError::refused(403, "You have exceeded a secondary rate limit.");
                return ([(header::RETRY_AFTER, retry_after_seconds.to_string())], refusal)
                    .into_response();
            }
            ForgeFault::Forbidden { message } => {
                return ApiError::refused(403, message).into_response();
            }
            ForgeFault::RefuseMerge
            | ForgeFault::MergeabilityUnknown
            | ForgeFault::MergeSomethingElse
            | ForgeFault::PushBefore { .. }
            | ForgeFault::HugeBodies { .. } => {}
        }
    }
    let response = next.run(request).await;
    if loses_answer { (StatusCode::BAD_GATEWAY, "").into_response() } else { response }
}

/// Returns `owner/name` from the first two parts of a path, after `/api/v3/repos/` if it begins so,
/// and the name without `.git`. `None` if there are fewer than two parts. The path need not be a
/// repository's: other paths give a name too.
fn repository_of(path: &str) -> Option<String> {
    let rest = path.strip_prefix("/api/v3/repos/").unwrap_or(path.strip_prefix('/')?);
    let mut parts = rest.split('/');
    let (owner, name) = (parts.next()?, parts.next()?);
    Some(format!("{owner}/{}", name.strip_suffix(".git").unwrap_or(name)))
}
