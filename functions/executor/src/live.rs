//! Serves logs of running builds over HTTP, from an offset and following (Z7.4).
//!
//! `GET /log/{build}?offset=N` answers what there is from byte N as `text/plain`; with `follow=1`
//! the answer goes on, in chunks, until the build ends. `X-Log-Length` is the length at that
//! moment, `X-Log-Ended` whether the build is over. 404: no such build runs here; its log is then
//! to be read from where it was archived. 421: whoever asks does so by a name that a stranger may
//! own.

use crate::jobdir::log_path;
use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Path as PathParameter, Query, Request, State};
use axum::http::header::HOST;
use axum::http::{HeaderMap, StatusCode};
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use serde::Deserialize;
use sluice_model::BuildId;
use sluice_model::host::HostName;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::io::{AsyncReadExt, AsyncSeekExt};
use tokio::sync::watch;

const CHUNK_BYTES_MAX: usize = 64 << 10;

/// The logs of the builds that run in this process.
#[derive(Clone, Default)]
pub struct LiveLogs(Arc<Mutex<BTreeMap<BuildId, Feed>>>);

#[derive(Clone)]
struct Feed {
    path: PathBuf,
    length: watch::Receiver<u64>,
}

/// One build's entry. Dropping it ends every answer that follows the log, and removes the build.
pub struct LiveLog {
    logs: LiveLogs,
    build: BuildId,
    length: watch::Sender<u64>,
}

impl LiveLogs {
    /// Adds a build whose job directory is `root`.
    ///
    /// Read is the log as the executor writes it: its other name, below `work/logs`, may be a
    /// playbook's link by now.
    pub fn open(&self, build: &BuildId, root: &Path) -> LiveLog {
        let (length, receiver) = watch::channel(0);
        self.feeds().insert(build.clone(), Feed { path: log_path(root), length: receiver });
        LiveLog { logs: self.clone(), build: build.clone(), length }
    }

    /// Returns the routes, to be served wherever the executor listens.
    pub fn router(&self) -> Router {
        Router::new()
            .route("/log/{build}", get(read))
            .layer(from_fn(by_address))
            .with_state(self.clone())
    }

    fn feeds(&self) -> std::sync::MutexGuard<'_, BTreeMap<BuildId, Feed>> {
        // The map is whole after any panic: each change is one call.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl LiveLog {
    /// Takes note that the log has `length` bytes.
    pub fn grew_to(&self, length: u64) {
        self.length.send_replace(length);
    }
}

impl Drop for LiveLog {
    fn drop(&mut self) {
        self.logs.feeds().remove(&self.build);
    }
}

/// Passes on what came by an address, as the API asks, or by `localhost`: a page of somebody else
/// may stand behind any other name, in a browser that reaches this port.
async fn by_address(request: Request, next: Next) -> Response {
    if is_by_address(&request) {
        return next.run(request).await;
    }
    let why = "Live logs are served by an address of this machine only; a page of somebody else may stand behind this name.\n";
    (StatusCode::MISDIRECTED_REQUEST, why).into_response()
}

/// Returns whether each name that a request bears is the machine's. One without any is no
/// browser's.
fn is_by_address(request: &Request) -> bool {
    let said = request.headers().get_all(HOST).iter();
    let mut said = said.map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned());
    let is_machines = |name: &str| HostName::read(name) == HostName::Machine;
    said.all(|name| is_machines(&name))
        && request.uri().authority().is_none_or(|name| is_machines(name.as_str()))
}

#[derive(Deserialize)]
struct Wanted {
    #[serde(default)]
    offset: u64,
    #[serde(default)]
    follow: u8,
}

async fn read(
    State(logs): State<LiveLogs>,
    PathParameter(build): PathParameter<String>,
    Query(wanted): Query<Wanted>,
) -> Response {
    let feed = logs.feeds().get(&BuildId(build)).cloned();
    let Some(feed) = feed else {
        return (StatusCode::NOT_FOUND, "This build does not run here.\n").into_response();
    };
    let length = *feed.length.borrow();
    let mut headers = HeaderMap::new();
    headers
        .insert("content-type", axum::http::HeaderValue::from_static("text/plain; charset=utf-8"));
    headers.insert("x-log-length", length.into());
    headers.insert("x-log-ended", u16::from(feed.length.has_changed().is_err()).into());
    let follow = if wanted.follow == 1 { Follow::Yes } else { Follow::No };
    let state = Some(Reading { feed, file: None, offset: wanted.offset, follow });
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
    feed: Feed,
    file: Option<tokio::fs::File>,
    offset: u64,
    follow: Follow,
}

impl Reading {
    async fn next(&mut self) -> std::io::Result<Option<Bytes>> {
        let length = *self.feed.length.borrow_and_update();
        if self.offset >= length {
            if self.follow == Follow::No {
                return Ok(None);
            }
            let from = self.offset;
            // An error says that the build is over; what was written last has been seen by then.
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
        // What lies behind the log's length was not written by us.
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

    /// Z7.4, Z7.5: a playbook may put anything in the place of the log's name below work/logs, and
    /// may add to its file.
    #[tokio::test]
    async fn what_the_executor_wrote_is_served_and_nothing_a_playbook_put_in_its_place() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(root.path().join("work/logs")).unwrap();
        std::fs::write(root.path().join("work/logs/job-output.txt"), "private").unwrap();
        std::fs::write(log_path(root.path()), "told, and more").unwrap();
        let (logs, build) = (LiveLogs::default(), BuildId::derive(&["live"]));
        let log = logs.open(&build, root.path());
        log.grew_to(4);
        let wanted = Query(Wanted { offset: 0, follow: 0 });
        let answer = read(State(logs), PathParameter(build.to_string()), wanted).await;
        let text = axum::body::to_bytes(answer.into_body(), 1_000).await.unwrap();
        assert_eq!(text, "told");
    }

    /// Z5.4, Z7.4: a page of a stranger whose name leads here reads no log.
    #[tokio::test]
    async fn a_name_that_a_stranger_may_own_is_not_answered() {
        let (logs, build, root) =
            (LiveLogs::default(), BuildId::derive(&["live"]), tempfile::tempdir().unwrap());
        std::fs::write(log_path(root.path()), "told").unwrap();
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
            let answer = client.get(url).header("Host", host).send().await.unwrap();
            assert_eq!(answer.status().as_u16(), status, "{host}");
            assert_eq!(answer.text().await.unwrap() == "told", status == 200, "{host}");
        }
        server.abort();
    }
}
