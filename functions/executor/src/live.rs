//! Serves logs of running builds over HTTP, from an offset and following (Z7.4).
//!
//! `GET /log/{build}?offset=N` answers what there is from byte N as `text/plain`; with `follow=1` the answer goes on, in
//! chunks, until the build ends. `X-Log-Length` is the length at that moment, `X-Log-Ended` whether the build is over.
//! 404: no such build runs here; its log is then to be read from where it was archived.

use crate::jobdir::log_path;
use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Path as PathParameter, Query, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use serde::Deserialize;
use sluice_model::BuildId;
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
    /// Read is the log as the executor writes it: its other name, below `work/logs`, may be a playbook's link by now.
    pub fn open(&self, build: &BuildId, root: &Path) -> LiveLog {
        let (length, receiver) = watch::channel(0);
        self.feeds().insert(build.clone(), Feed { path: log_path(root), length: receiver });
        LiveLog { logs: self.clone(), build: build.clone(), length }
    }

    /// Returns the routes, to be served wherever the executor listens.
    pub fn router(&self) -> Router {
        Router::new().route("/log/{build}", get(read)).with_state(self.clone())
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
    let Some(feed) = feed else { return (StatusCode::NOT_FOUND, "This build does not run here.\n").into_response() };
    let length = *feed.length.borrow();
    let mut headers = HeaderMap::new();
    headers.insert("content-type", axum::http::HeaderValue::from_static("text/plain; charset=utf-8"));
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
        let left = usize::try_from((*self.feed.length.borrow()).saturating_sub(self.offset)).unwrap_or(usize::MAX);
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

    /// Z7.4, Z7.5: a playbook may put anything in the place of the log's name below work/logs, and may add to its file.
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
}
