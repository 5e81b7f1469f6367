//! One HTTP exchange with GitHub: headers, time-outs, bounded retries, and the error of each
//! answer.

use super::ConnectError;
use crate::error::ForgeError;
use crate::secret::ForgeSecret;
use reqwest::header::{
    ACCEPT, AUTHORIZATION, CONTENT_TYPE, DATE, HeaderMap, HeaderValue, USER_AGENT,
};
use reqwest::{Client, Method, Response, StatusCode, redirect};
use serde::de::DeserializeOwned;
use serde_json::Value;
use sluice_model::{ConnectionName, Timestamp};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tokio::sync::OnceCell;
use url::Url;

const TIMEOUT_SECONDS: u64 = 30;
const CONNECT_TIMEOUT_SECONDS: u64 = 10;
const TRIES_MAX: u32 = 3;
const BACKOFF_MILLISECONDS: u64 = 200;
const BODY_MAX_BYTES: usize = 32 * 1024 * 1024;
const MESSAGE_MAX_CHARACTERS: usize = 500;
const REDIRECTS_MAX: usize = 3;
/// Seconds for which the time of an answer is used.
const CLOCK_SECONDS: u64 = 60;
/// Seconds for which a token without a login is not checked again.
const NAMELESS_SECONDS: u64 = 3_600;
/// GitHub's largest page.
pub(super) const PAGE_SIZE: usize = 100;

/// Whether a request may be sent again when its outcome is unknown.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Repeat {
    /// It may: it changes nothing, or is idempotent.
    Safe,
    /// It may not: the caller has to check first.
    Never,
}

/// A GitHub's REST API with a token.
#[derive(Clone)]
pub(super) struct Api {
    /// The HTTP client.
    client: Client,
    /// The base address of the API.
    base: Url,
    /// The login of the token, once it is known.
    login: Arc<OnceCell<String>>,
    /// When the forge last said that the token has no login.
    nameless: Arc<Mutex<Option<Instant>>>,
    /// The connection's name.
    connection: ConnectionName,
    /// The API token.
    token: ForgeSecret,
    /// The forge's time in its last answer, and when that was received.
    clock: Arc<Mutex<Option<(Timestamp, Instant)>>>,
}

/// How far a forge's clock is ahead, in milliseconds; negative where it is behind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Ahead(pub i128);

/// An answer with status 2xx.
pub(super) struct Answer {
    /// The headers of the answer.
    pub headers: HeaderMap,
    /// The body of the answer.
    body: Vec<u8>,
}

impl Api {
    /// Creates a client of GitHub's API; makes no requests. `login` is the login of the token;
    /// `None`: it is read when it is first needed. Redirects to another origin are not followed. An
    /// error if the token cannot be sent in a header, or if there is no HTTP client.
    pub fn new(
        connection: &ConnectionName,
        base: Url,
        token: &ForgeSecret,
        login: Option<String>,
    ) -> Result<Self, ConnectError> {
        let mut headers = HeaderMap::new();
        let mut bearer = HeaderValue::from_str(&format!("Bearer {}", token.reveal()))
            .map_err(|_| ConnectError::Token { connection: connection.clone() })?;
        bearer.set_sensitive(true);
        headers.insert(AUTHORIZATION, bearer);
        headers.insert(USER_AGENT, HeaderValue::from_static("sluice"));
        headers.insert(ACCEPT, HeaderValue::from_static("application/vnd.github+json"));
        headers.insert("x-github-api-version", HeaderValue::from_static("2022-11-28"));
        let mut builder = Client::builder()
            .default_headers(headers)
            .timeout(Duration::from_secs(TIMEOUT_SECONDS))
            .connect_timeout(Duration::from_secs(CONNECT_TIMEOUT_SECONDS))
            .redirect(redirect_policy(base.clone()));
        if is_loopback(&base) {
            // A local forge is never behind a proxy.
            builder = builder.no_proxy();
        }
        let client = builder.build().map_err(|source| ConnectError::Client {
            connection: connection.clone(),
            source: source.into(),
        })?;
        Ok(Self {
            client,
            base,
            login: Arc::new(OnceCell::new_with(login)),
            nameless: Arc::default(),
            connection: connection.clone(),
            token: token.clone(),
            clock: Arc::default(),
        })
    }

    /// Returns the present time on the forge's clock, from the time of its last answer and how long
    /// ago that was; `None` without an answer with a time in the last minute.
    pub fn time(&self) -> Option<Timestamp> {
        let (time, received) = (*self.clock.lock().unwrap_or_else(PoisonError::into_inner))?;
        let since = received.elapsed();
        let millis = u64::try_from(since.as_millis()).unwrap_or(u64::MAX);
        (since < Duration::from_secs(CLOCK_SECONDS)).then(|| time.plus_millis(millis))
    }

    /// Returns the login that the token belongs to, read from the forge once unless it was given.
    /// An error for a token without a login, such as an application's.
    pub async fn own_login(&self) -> Result<&str, ForgeError> {
        let ask = async || {
            let user: super::shapes::User = self.get("/user", "read the token's own login").await?;
            Ok(user.login)
        };
        self.login.get_or_try_init(ask).await.map(String::as_str)
    }

    /// Returns the login of the token; `None` where it has none, as an application's: that is no
    /// error, and is checked again only after an hour.
    pub async fn own_account(&self) -> Result<Option<&str>, ForgeError> {
        let refused_at = *self.nameless.lock().unwrap_or_else(PoisonError::into_inner);
        if refused_at.is_some_and(|at| at.elapsed() < Duration::from_secs(NAMELESS_SECONDS)) {
            return Ok(None);
        }
        match self.own_login().await {
            Ok(login) => Ok(Some(login)),
            Err(ForgeError::Refused { .. } | ForgeError::NotFound { .. }) => {
                *self.nameless.lock().unwrap_or_else(PoisonError::into_inner) =
                    Some(Instant::now());
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Reads the JSON at `path`, which starts with `/`. Tries at most three times, again only after
    /// an unknown outcome. `attempted` names the operation in errors. An answer of another form is
    /// [`ForgeError::Unknown`].
    pub async fn get<T: DeserializeOwned>(
        &self,
        path: &str,
        attempted: &str,
    ) -> Result<T, ForgeError> {
        self.send(Method::GET, path, None, Repeat::Safe, attempted).await?.read(attempted)
    }

    /// Reads all pages of the list at `path`, at most `pages_max` of [`PAGE_SIZE`] entries; `items`
    /// extracts the list from a page. If there are more pages, the result is [`Listed::Cut`], which
    /// is no error.
    pub async fn pages<P: DeserializeOwned, T>(
        &self,
        path: &str,
        pages_max: usize,
        attempted: &str,
        items: impl Fn(P) -> Vec<T>,
    ) -> Result<Listed<T>, ForgeError> {
        let mut listed = Vec::new();
        let separator = if path.contains('?') { '&' } else { '?' };
        for page in 1..=pages_max {
            let path = format!("{path}{separator}per_page={PAGE_SIZE}&page={page}");
            let answer = self.send(Method::GET, &path, None, Repeat::Safe, attempted).await?;
            let is_last = !has_next(&answer.headers);
            listed.extend(items(answer.read(attempted)?));
            if is_last {
                return Ok(Listed::All(listed));
            }
        }
        Ok(Listed::Cut(listed))
    }

    /// Sends a request to `path`, with a JSON body if given, and returns an answer with status 2xx.
    /// Any other status is an error. With [`Repeat::Safe`], sends it again after an unknown
    /// outcome, at most three times in all, with a short wait before each.
    pub async fn send(
        &self,
        method: Method,
        path: &str,
        json: Option<&Value>,
        repeat: Repeat,
        attempted: &str,
    ) -> Result<Answer, ForgeError> {
        let mut tries = 1;
        loop {
            let outcome = self.send_once(method.clone(), path, json, attempted).await;
            match outcome {
                Err(ForgeError::Unknown { source, .. })
                    if repeat == Repeat::Safe && tries < TRIES_MAX =>
                {
                    tracing::debug!(attempted, tries, error = %source, "asking the forge again");
                    tokio::time::sleep(Duration::from_millis(
                        BACKOFF_MILLISECONDS << (2 * (tries - 1)),
                    ))
                    .await;
                    tries += 1;
                }
                outcome => return outcome,
            }
        }
    }

    /// Sends a request without a retry and returns an answer with status 2xx. Any other status is
    /// an error.
    async fn send_once(
        &self,
        method: Method,
        path: &str,
        json: Option<&Value>,
        attempted: &str,
    ) -> Result<Answer, ForgeError> {
        let url = format!("{}{path}", self.base.as_str().trim_end_matches('/'));
        let mut request = self.client.request(method, url);
        if let Some(json) = json {
            request = request.json(json);
        }
        // The URL stays out of errors: `attempted` is clearer.
        let unknown = |error: reqwest::Error| ForgeError::unknown(attempted, error.without_url());
        let response = request.send().await.map_err(unknown)?;
        self.answer(response, attempted).await
    }

    /// Reads an answer with its body, and converts a status other than 2xx to an error. Stores the
    /// forge's time, if the answer has one, for [`Self::time`].
    async fn answer(&self, response: Response, attempted: &str) -> Result<Answer, ForgeError> {
        let (status, headers) = (response.status(), response.headers().clone());
        if let Some(time) = date(&headers) {
            *self.clock.lock().unwrap_or_else(PoisonError::into_inner) =
                Some((time, Instant::now()));
        }
        let body = read_body(response, attempted).await?;
        if status.is_success() {
            return Ok(Answer { headers, body });
        }
        if status == StatusCode::UNAUTHORIZED {
            let (attempted, connection) = (attempted.to_owned(), self.connection.clone());
            return Err(ForgeError::Unauthorised { attempted, connection });
        }
        Err(refusal(status, &headers, &body, attempted))
    }

    /// Pushes to the repository at `url` with git's own protocol, and returns the body of the
    /// answer, which may report a refusal. The token is only sent over https or to this machine;
    /// another URL is refused. A redirect to another origin than the API's is refused too. Never
    /// retried.
    pub async fn push(
        &self,
        url: &str,
        body: Vec<u8>,
        attempted: &str,
    ) -> Result<Vec<u8>, ForgeError> {
        let refused = |message: &str| {
            Err(ForgeError::Refused {
                attempted: attempted.to_owned(),
                status: 400,
                message: message.to_owned(),
            })
        };
        match Url::parse(url) {
            Ok(url) if url.scheme() == "https" || is_loopback(&url) => {}
            _ => {
                return refused(
                    "a token is pushed with over https only; correct the connection's --git-url",
                );
            }
        }
        let request = self
            .client
            .post(url)
            .basic_auth("x-access-token", Some(self.token.reveal()))
            .header(CONTENT_TYPE, "application/x-git-receive-pack-request")
            .header(ACCEPT, "application/x-git-receive-pack-result")
            .body(body);
        let unknown = |error: reqwest::Error| ForgeError::unknown(attempted, error.without_url());
        let response = request.send().await.map_err(unknown)?;
        if response.status().is_redirection() {
            return refused("its repository was moved");
        }
        Ok(self.answer(response, attempted).await?.body)
    }
}

/// A list that was read page by page.
pub(super) enum Listed<T> {
    /// The complete list.
    All(Vec<T>),
    /// The list up to the limit; there is more.
    Cut(Vec<T>),
}

impl<T> Listed<T> {
    /// Returns the complete list; where it was cut, [`ForgeError::TooMany`].
    pub fn all(self, attempted: &str) -> Result<Vec<T>, ForgeError> {
        match self {
            Self::All(items) => Ok(items),
            Self::Cut(items) => {
                Err(ForgeError::TooMany { attempted: attempted.to_owned(), most: items.len() })
            }
        }
    }

    /// Returns the list as far as it was read, and whether there is more.
    pub fn part(self) -> (Vec<T>, bool) {
        match self {
            Self::All(items) => (items, false),
            Self::Cut(items) => (items, true),
        }
    }
}

impl Answer {
    /// Parses the body as JSON. A body of another form is [`ForgeError::Unknown`].
    pub fn read<T: DeserializeOwned>(&self, attempted: &str) -> Result<T, ForgeError> {
        serde_json::from_slice(&self.body).map_err(|error| ForgeError::unknown(attempted, error))
    }

    /// Returns how far the clock of this answer's sender is ahead of the local one, assuming that
    /// the answer was given just now; 0 without a time.
    pub fn ahead(&self) -> Ahead {
        ahead(&self.headers, now())
    }
}

/// Returns how far the clock is ahead that gave an answer received at `now`; 0 without a valid
/// `Date` header.
fn ahead(headers: &HeaderMap, now: Timestamp) -> Ahead {
    Ahead(date(headers).map_or(0, |date| i128::from(date.0) - i128::from(now.0)))
}

/// Returns the time of an answer on its sender's clock, in whole seconds; `None` without a valid
/// `Date` header.
fn date(headers: &HeaderMap) -> Option<Timestamp> {
    let text = headers.get(DATE)?.to_str().ok()?;
    let date = jiff::fmt::rfc2822::DateTimeParser::new().parse_timestamp(text).ok()?;
    u64::try_from(date.as_millisecond()).ok().map(Timestamp)
}

/// Reads the body of an answer. An error if it has more than 32 MiB.
async fn read_body(mut response: Response, attempted: &str) -> Result<Vec<u8>, ForgeError> {
    let mut body = Vec::new();
    while let Some(chunk) = response
        .chunk()
        .await
        .map_err(|error| ForgeError::unknown(attempted, error.without_url()))?
    {
        if body.len() + chunk.len() > BODY_MAX_BYTES {
            return Err(ForgeError::unknown(
                attempted,
                format!("the answer is over {BODY_MAX_BYTES} bytes"),
            ));
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body)
}

/// Returns the error of an answer other than 2xx and 401. A rate limit is
/// [`ForgeError::RateLimited`], 404 and 410 are [`ForgeError::NotFound`]. 400, 403, 405, 409, 413,
/// 422 and 451 are [`ForgeError::Refused`] with GitHub's message. The rest, such as server errors
/// and redirects, is [`ForgeError::Unknown`].
fn refusal(status: StatusCode, headers: &HeaderMap, body: &[u8], attempted: &str) -> ForgeError {
    let attempted = attempted.to_owned();
    let message = message(body);
    if let Some(retry_after_seconds) = rate_limit(status, headers, &message, now_seconds()) {
        return ForgeError::RateLimited { attempted, retry_after_seconds };
    }
    match status.as_u16() {
        404 | 410 => ForgeError::NotFound { attempted },
        code @ (400 | 403 | 405 | 409 | 413 | 422 | 451) => {
            ForgeError::Refused { attempted, status: code, message }
        }
        code => ForgeError::unknown(attempted, format!("status {code}: {message}")),
    }
}

/// Returns the seconds to wait, from 1 to 3,600, if the answer is a rate limit: status 429, or 403
/// with a sign of one in the headers or in `message`. The headers say how long; without them it is
/// one minute. `None` for any other answer.
fn rate_limit(
    status: StatusCode,
    headers: &HeaderMap,
    message: &str,
    now_seconds: u64,
) -> Option<u64> {
    let number = |name: &str| headers.get(name)?.to_str().ok()?.trim().parse::<u64>().ok();
    let is_exhausted = number("x-ratelimit-remaining") == Some(0);
    let is_limited = match status {
        StatusCode::TOO_MANY_REQUESTS => true,
        StatusCode::FORBIDDEN => {
            is_exhausted
                || headers.contains_key("retry-after")
                || message.to_ascii_lowercase().contains("rate limit")
        }
        _ => false,
    };
    let until_reset = || {
        number("x-ratelimit-reset")
            .filter(|_| is_exhausted)
            .map(|at| at.saturating_sub(now_seconds))
    };
    is_limited.then(|| number("retry-after").or_else(until_reset).unwrap_or(60).clamp(1, 3_600))
}

/// Returns GitHub's message of a refusal, with up to five details, cut to 500 characters; `(no
/// message)` if the body has none.
fn message(body: &[u8]) -> String {
    let Ok(json) = serde_json::from_slice::<Value>(body) else {
        return String::from("(no message)");
    };
    let mut message = json["message"].as_str().unwrap_or("(no message)").to_owned();
    for error in json["errors"].as_array().into_iter().flatten().take(5) {
        let text =
            error["message"].as_str().or_else(|| error["code"].as_str()).or_else(|| error.as_str());
        message.push_str("; ");
        message.push_str(text.unwrap_or("?"));
    }
    message.chars().take(MESSAGE_MAX_CHARACTERS).collect()
}

/// Returns the policy that follows at most three redirects of renamed repositories; a fourth is an
/// error. The token is never sent to another origin than that of `base`: such a redirect is
/// returned as the answer.
fn redirect_policy(base: Url) -> redirect::Policy {
    redirect::Policy::custom(move |attempt| {
        if attempt.previous().len() > REDIRECTS_MAX {
            attempt.error("too many redirects")
        } else if attempt.url().origin() == base.origin() {
            attempt.follow()
        } else {
            attempt.stop()
        }
    })
}

/// Returns whether an answer has a link to a next page.
fn has_next(headers: &HeaderMap) -> bool {
    headers
        .get_all("link")
        .iter()
        .filter_map(|link| link.to_str().ok())
        .any(|link| link.contains("rel=\"next\""))
}

/// Returns whether a URL leads to this machine: its host is a loopback address or `localhost`.
/// Other names are not resolved.
fn is_loopback(url: &Url) -> bool {
    match url.host() {
        Some(url::Host::Ipv4(address)) => address.is_loopback(),
        Some(url::Host::Ipv6(address)) => address.is_loopback(),
        Some(url::Host::Domain(name)) => name == "localhost",
        None => false,
    }
}

/// Returns the current time in seconds since the epoch.
pub(super) fn now_seconds() -> u64 {
    now().seconds()
}

/// Returns the current time.
fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).ok();
    Timestamp(since.and_then(|since| u64::try_from(since.as_millis()).ok()).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        pairs
            .iter()
            .map(|(name, value)| (name.parse().unwrap(), HeaderValue::from_static(value)))
            .collect()
    }

    #[test]
    fn a_rate_limit_differs_from_a_refusal_and_its_wait_is_bounded() {
        type Row = (u16, &'static [(&'static str, &'static str)], &'static str, Option<u64>);
        let rows: &[Row] = &[
            (429, &[], "", Some(60)),
            (429, &[("retry-after", "7")], "", Some(7)),
            (403, &[("retry-after", "0")], "", Some(1)),
            (403, &[("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", "1090")], "", Some(90)),
            (
                403,
                &[("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", "99999999")],
                "",
                Some(3_600),
            ),
            (
                403,
                &[("x-ratelimit-remaining", "12")],
                "You have exceeded a secondary rate limit",
                Some(60),
            ),
            (403, &[("x-ratelimit-remaining", "12")], "Must have push access", None),
            (404, &[("x-ratelimit-remaining", "0")], "", None),
        ];
        for (status, pairs, message, expected) in rows {
            let status = StatusCode::from_u16(*status).unwrap();
            assert_eq!(
                rate_limit(status, &headers(pairs), message, 1_000),
                *expected,
                "{status} {pairs:?}"
            );
        }
    }

    /// Z6.3: clocks that differ by minutes do not make two reports equal.
    #[test]
    fn a_forges_clock_is_read_from_its_answer() {
        let now = Timestamp(1_795_259_025_900);
        for (date, millis) in [
            ("Sat, 21 Nov 2026 11:03:45 GMT", -900),
            ("Sat, 21 Nov 2026 11:08:46 GMT", 300_100),
            ("Sat, 21 Nov 2026 10:58:45 GMT", -300_900),
            ("some time ago", 0),
        ] {
            assert_eq!(ahead(&headers(&[("date", date)]), now), Ahead(millis), "{date}");
        }
        assert_eq!(ahead(&HeaderMap::new(), now), Ahead(0));
    }

    #[test]
    fn a_refusal_has_githubs_message() {
        let body = br#"{"message": "Validation Failed", "errors": [{"message": "no such line"}, {"code": "invalid"}]}"#;
        let error = refusal(
            StatusCode::UNPROCESSABLE_ENTITY,
            &HeaderMap::new(),
            body,
            "comment on example/one#3",
        );
        let ForgeError::Refused { status: 422, message, .. } = error else { panic!("{error:?}") };
        assert_eq!(message, "Validation Failed; no such line; invalid");
        let html = refusal(StatusCode::BAD_GATEWAY, &HeaderMap::new(), b"<html>", "x");
        assert!(matches!(html, ForgeError::Unknown { .. }), "{html:?}");
    }
}
