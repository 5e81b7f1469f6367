//! Serves logs of running builds over HTTP, from an offset and following (Z7.4).
//!
//! `GET /log/{build}?offset=N` returns the log from byte N as `text/plain`. With `follow=1` the
//! response continues in chunks until the build ends. `X-Log-Length` is the current length,
//! `X-Log-Ended` whether the build has ended. Status 404: no such build runs here; read the
//! archived log instead. Status 421: the request uses a host name that may belong to someone else.
//! Status 401: the request does not carry the token that the session's record has
//! (`Authorization: Bearer TOKEN`). So only the API reads here, which checks who may read a build.

use crate::jobdir::log_path;
use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Path as PathParameter, Query, Request, State};
use axum::http::header::{AUTHORIZATION, HOST};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::middleware::{Next, from_fn, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use serde::Deserialize;
use sluice_model::BuildId;
use sluice_model::host::HostName;
use sluice_records::session::LiveLogToken;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use subtle::ConstantTimeEq as _;
use tokio::io::{AsyncReadExt, AsyncSeekExt};
use tokio::sync::watch;

const CHUNK_BYTES_MAX: usize = 64 << 10;

/// The logs of the builds that run in this process.
#[derive(Clone)]
pub struct LiveLogRegistry {
    /// The logs of running builds.
    feeds: Arc<Mutex<BTreeMap<BuildId, Feed>>>,
    /// What each request must carry.
    token: LiveLogToken,
}

#[derive(Clone)]
struct Feed {
    /// The path of the log.
    path: PathBuf,
    /// The length up to which the log is complete.
    length: watch::Receiver<u64>,
}

/// One build's entry. Dropping it ends all responses that follow the log, and removes the build.
pub struct LiveLog {
    /// The registry from which the log is removed at the end.
    logs: LiveLogRegistry,
    /// The build that writes the log.
    build: BuildId,
    /// Publishes the length of the log.
    length: watch::Sender<u64>,
}

impl LiveLogRegistry {
    /// Creates a registry without builds, whose logs are served to requests with the token.
    pub fn new(token: LiveLogToken) -> Self {
        Self { feeds: Arc::default(), token }
    }

    /// Returns the token that requests must carry.
    pub fn token(&self) -> &LiveLogToken {
        &self.token
    }

    /// Adds a build whose job directory is `root`, with an empty log so far. The log is served
    /// until the returned value is dropped.
    ///
    /// Serves the executor's own log path, because a playbook may replace the link below
    /// `work/logs`.
    pub fn open(&self, build: &BuildId, root: &Path) -> LiveLog {
        let (length, receiver) = watch::channel(0);
        self.feeds().insert(build.clone(), Feed { path: log_path(root), length: receiver });
        LiveLog { logs: self.clone(), build: build.clone(), length }
    }

    /// Returns the HTTP route `GET /log/{build}`. Requests under another host name than `localhost`
    /// or an IP address are rejected, and requests without the token.
    pub fn router(&self) -> Router {
        Router::new()
            .route("/log/{build}", get(read))
            .layer(from_fn_with_state(self.token.clone(), require_token))
            .layer(from_fn(reject_foreign_hosts))
            .with_state(self.clone())
    }

    /// Locks the logs of the running builds.
    fn feeds(&self) -> std::sync::MutexGuard<'_, BTreeMap<BuildId, Feed>> {
        // The map is consistent after a panic: each change is one call.
        self.feeds.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl LiveLog {
    /// Publishes that the log has `length` bytes: later bytes of the file are not served, and
    /// waiting readers continue.
    pub fn grew_to(&self, length: u64) {
        self.length.send_replace(length);
    }

    /// Returns the published length of the log, now and later.
    pub fn length(&self) -> watch::Receiver<u64> {
        self.length.subscribe()
    }
}

impl Drop for LiveLog {
    fn drop(&mut self) {
        self.logs.feeds().remove(&self.build);
    }
}

/// Passes a request on, or answers with status 401 if it does not carry the token.
async fn require_token(
    State(token): State<LiveLogToken>,
    request: Request,
    next: Next,
) -> Response {
    let sent = request.headers().get(AUTHORIZATION).map(HeaderValue::as_bytes).unwrap_or_default();
    let sent = sent.strip_prefix(b"Bearer ").unwrap_or_default();
    if bool::from(sent.ct_eq(token.reveal().as_bytes())) {
        return next.run(request).await;
    }
    let why = "Read this log through the API: it knows who may read it.\n";
    (StatusCode::UNAUTHORIZED, why).into_response()
}

/// Passes a request on, or answers with status 421 if its host is neither an IP address nor
/// `localhost`. A web page under any other name could otherwise read logs through a visitor's
/// browser (DNS rebinding).
async fn reject_foreign_hosts(request: Request, next: Next) -> Response {
    if has_local_host(&request) {
        return next.run(request).await;
    }
    let why = "Live logs are only served under an IP address of this machine or localhost.\n";
    (StatusCode::MISDIRECTED_REQUEST, why).into_response()
}

/// Returns whether all host names of a request, in headers and address, are `localhost` or IP
/// addresses. Also true without a host name, because such a request does not come from a browser.
fn has_local_host(request: &Request) -> bool {
    let hosts = request.headers().get_all(HOST).iter();
    let mut hosts = hosts.map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned());
    let is_machines = |name: &str| HostName::parse(name) == HostName::Machine;
    hosts.all(|name| is_machines(&name))
        && request.uri().authority().is_none_or(|name| is_machines(name.as_str()))
}

#[derive(Deserialize)]
struct LogQuery {
    /// The byte at which to start.
    #[serde(default)]
    offset: u64,
    /// 1 to wait for more while the build runs.
    #[serde(default)]
    follow: u8,
}

/// Answers a request for a live log with its bytes from `offset` on. With `follow=1` the response
/// continues until the build ends; otherwise it ends where the log ends now. The headers have the
/// current length (`X-Log-Length`) and whether the build has ended (`X-Log-Ended`). 404 if the
/// build does not run here.
async fn read(
    State(logs): State<LiveLogRegistry>,
    PathParameter(build): PathParameter<String>,
    Query(query): Query<LogQuery>,
) -> Response {
    let feed = logs.feeds().get(&BuildId(build)).cloned();
    let Some(feed) = feed else {
        return (StatusCode::NOT_FOUND, "This build does not run here.\n").into_response();
    };
    let length = *feed.length.borrow();
    let mut headers = HeaderMap::new();
    headers.insert("content-type", HeaderValue::from_static("text/plain; charset=utf-8"));
    headers.insert("x-log-length", length.into());
    headers.insert("x-log-ended", u16::from(feed.length.has_changed().is_err()).into());
    let follow = if query.follow == 1 { Follow::Yes } else { Follow::No };
    let state = Some(Reading { feed, file: None, offset: query.offset, follow });
    let stream = futures::stream::try_unfold(state, |state| async move {
        let Some(mut reading) = state else { return Ok::<_, std::io::Error>(None) };
        let chunk = reading.next().await?;
        Ok(chunk.map(|chunk| (chunk, Some(reading))))
    });
    (headers, Body::from_stream(stream)).into_response()
}

#[derive(PartialEq)]
enum Follow {
    Yes,
    No,
}

struct Reading {
    /// The log that is read.
    feed: Feed,
    /// The open file; `None` before the first read.
    file: Option<tokio::fs::File>,
    /// The next byte to read.
    offset: u64,
    /// Whether to wait for more at the end.
    follow: Follow,
}

impl Reading {
    /// Returns the next part of the log, at most 64 KiB; `None` at its end. At the end of the log
    /// of a running build, waits for more if the reader follows, and returns `None` when the build
    /// ends. An error if the file cannot be read.
    async fn next(&mut self) -> std::io::Result<Option<Bytes>> {
        let length = *self.feed.length.borrow_and_update();
        if self.offset >= length {
            if self.follow == Follow::No {
                return Ok(None);
            }
            let from = self.offset;
            // An error means that the build has ended; the last bytes were sent before.
            if self.feed.length.wait_for(|length| *length > from).await.is_err() {
                return Ok(None);
            }
        }
        if self.file.is_none() {
            let mut file = tokio::fs::File::open(&self.feed.path).await?;
            file.seek(std::io::SeekFrom::Start(self.offset)).await?;
            self.file = Some(file);
        }
        let Some(file) = &mut self.file else { return Ok(None) };
        // Bytes beyond the log's length were not written by the executor.
        let left = usize::try_from((*self.feed.length.borrow()).saturating_sub(self.offset))
            .unwrap_or(usize::MAX);
        let mut chunk = vec![0; CHUNK_BYTES_MAX.min(left)];
        let count = file.read(&mut chunk).await?;
        chunk.truncate(count);
        self.offset += count as u64;
        Ok(if count == 0 { None } else { Some(chunk.into()) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn registry() -> LiveLogRegistry {
        LiveLogRegistry::new(LiveLogToken::new("secret".to_owned()))
    }

    /// Z7.4, Z7.5: a playbook may replace the log's link below work/logs, and may append to the
    /// file.
    #[tokio::test]
    async fn only_the_log_written_by_the_executor_is_served() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(root.path().join("work/logs")).unwrap();
        std::fs::write(root.path().join("work/logs/job-output.txt"), "private").unwrap();
        std::fs::write(log_path(root.path()), "line, and more").unwrap();
        let (logs, build) = (registry(), BuildId::derive(&["live"]));
        let log = logs.open(&build, root.path());
        log.grew_to(4);
        let query = Query(LogQuery { offset: 0, follow: 0 });
        let answer = read(State(logs), PathParameter(build.to_string()), query).await;
        let text = axum::body::to_bytes(answer.into_body(), 1_000).await.unwrap();
        assert_eq!(text, "line");
    }

    /// Z5.4, Z7.4: a foreign web page whose name resolves to this machine cannot read a log.
    #[tokio::test]
    async fn requests_under_foreign_host_names_are_rejected() {
        let (logs, build, root) =
            (registry(), BuildId::derive(&["live"]), tempfile::tempdir().unwrap());
        std::fs::write(log_path(root.path()), "line").unwrap();
        let log = logs.open(&build, root.path());
        log.grew_to(4);
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let router = logs.router();
        let server = tokio::spawn(async move { axum::serve(listener, router).await });
        let client = reqwest::Client::builder().no_proxy().build().unwrap();
        let hosts =
            [("127.0.0.1:9000", 200), ("localhost", 200), ("[::1]:80", 200), ("evil.example", 421)];
        for (host, status) in hosts {
            let url = format!("http://{address}/log/{build}");
            let request = client.get(url).header("Host", host).bearer_auth("secret");
            let answer = request.send().await.unwrap();
            assert_eq!(answer.status().as_u16(), status, "{host}");
            assert_eq!(answer.text().await.unwrap() == "line", status == 200, "{host}");
        }
        server.abort();
    }

    /// C2.2, Z2.3: what reaches the port without the token reads no log, and learns of no build.
    #[tokio::test]
    async fn requests_without_the_token_are_rejected() {
        let (logs, build, root) =
            (registry(), BuildId::derive(&["live"]), tempfile::tempdir().unwrap());
        std::fs::write(log_path(root.path()), "line").unwrap();
        let log = logs.open(&build, root.path());
        log.grew_to(4);
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let router = logs.router();
        let server = tokio::spawn(async move { axum::serve(listener, router).await });
        let client = reqwest::Client::builder().no_proxy().build().unwrap();
        for name in [build.as_str(), "unknown"] {
            let url = format!("http://{address}/log/{name}");
            for header in [
                "",
                "secret",
                "Bearer",
                "Bearer ",
                "Bearer secre",
                "Bearer secrets",
                "Basic secret",
            ] {
                let request = client.get(&url).header("Authorization", header);
                let answer = request.send().await.unwrap();
                assert_eq!(answer.status().as_u16(), 401, "{name} {header:?}");
                assert!(!answer.text().await.unwrap().contains("line"), "{name} {header:?}");
            }
            let url = format!("{url}?token=secret");
            assert_eq!(client.get(url).send().await.unwrap().status().as_u16(), 401, "{name}");
        }
        assert!(!format!("{:?}", logs.token()).contains("secret"));
        server.abort();
    }
}
