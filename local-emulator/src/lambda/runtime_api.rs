//! The Lambda Runtime API for one process: it asks for the next call and posts the answer. Each
//! process has a server of its own on loopback, so whose answer it is needs no guessing. Any number
//! of connections may be open at once.

use super::SYNCHRONOUS_BYTES_MAX;
use crate::http::of_this_machine;
use axum::Router;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, Response, StatusCode};
use axum::middleware::from_fn;
use axum::routing::{get, post};
use axum::serve::ListenerExt as _;
use bytes::Bytes;
use serde::Deserialize;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::net::TcpListener;
use tokio::sync::{Mutex as AsyncMutex, mpsc, oneshot, watch};
use tokio::task::JoinHandle;

/// Bytes an error report may have; what is longer is not read.
const ERROR_BYTES_MAX: usize = 256 * 1024;

/// A call on its way to a process.
pub(super) struct Call {
    pub(super) request_id: String,
    pub(super) payload: Bytes,
    /// Fires when the process has taken the call: its time runs from there.
    pub(super) taken: oneshot::Sender<()>,
    pub(super) answer: oneshot::Sender<Answer>,
}

/// What a process says to a call.
pub(super) enum Answer {
    Done(Bytes),
    Failed { kind: String, message: String },
}

/// The server of one process.
pub(super) struct RuntimeApi {
    pub(super) address: SocketAddr,
    pub(super) calls: mpsc::Sender<Call>,
    /// Whether the process has asked for a call yet.
    pub(super) asked: watch::Receiver<bool>,
    /// What the process reported before it asked for its first call.
    pub(super) start_failure: Arc<Mutex<Option<String>>>,
    server: JoinHandle<()>,
}

impl Drop for RuntimeApi {
    /// Stops accepting connections; a request that waits for a call is answered with 410 once the
    /// sender of calls is dropped.
    fn drop(&mut self) {
        self.server.abort();
    }
}

/// Data that every call of one process receives.
pub(super) struct CallContext {
    pub(super) function_arn: String,
    pub(super) timeout: Duration,
}

struct Shared {
    context: CallContext,
    asks: watch::Sender<bool>,
    waiting: AsyncMutex<mpsc::Receiver<Call>>,
    running: Mutex<Option<(String, oneshot::Sender<Answer>)>>,
    start_failure: Arc<Mutex<Option<String>>>,
}

impl RuntimeApi {
    /// Starts a server for one process on a free loopback port, which ends when the returned value
    /// is dropped. Calls are passed to the process through `calls`.
    pub(super) async fn start(context: CallContext) -> std::io::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let address = listener.local_addr()?;
        let listener = listener.tap_io(|stream| drop(stream.set_nodelay(true)));
        let (calls, waiting) = mpsc::channel(1);
        let (asks, asked) = watch::channel(false);
        let start_failure = Arc::new(Mutex::new(None));
        let shared = Arc::new(Shared {
            context,
            asks,
            waiting: AsyncMutex::new(waiting),
            running: Mutex::new(None),
            start_failure: start_failure.clone(),
        });
        let routes = Router::new()
            .route("/2018-06-01/runtime/invocation/next", get(next))
            .route("/2018-06-01/runtime/invocation/{id}/response", post(response))
            .route("/2018-06-01/runtime/invocation/{id}/error", post(error))
            .route("/2018-06-01/runtime/init/error", post(init_error))
            .layer(from_fn(of_this_machine))
            .with_state(shared);
        let server = tokio::spawn(async move {
            if let Err(error) = axum::serve(listener, routes).await {
                tracing::error!(%error, "the Runtime API of a process ended");
            }
        });
        Ok(Self { address, calls, asked, start_failure, server })
    }
}

/// Answers a process with the next call, and waits for one as long as necessary; 410 when the
/// sender of calls is dropped, with the worker of the process. Records that the process has asked,
/// and then that it has taken the call. An earlier call without an answer is given up when the next
/// one is taken.
async fn next(State(shared): State<Arc<Shared>>) -> Response<Body> {
    shared.asks.send_replace(true);
    let Some(call) = shared.waiting.lock().await.recv().await else {
        return plain(StatusCode::GONE, "the machine stops");
    };
    let deadline =
        SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default() + shared.context.timeout;
    lock(&shared.running).replace((call.request_id.clone(), call.answer));
    let _ = call.taken.send(());
    Response::builder()
        .header("content-type", "application/json")
        .header("lambda-runtime-aws-request-id", &call.request_id)
        .header("lambda-runtime-deadline-ms", deadline.as_millis().to_string())
        .header("lambda-runtime-invoked-function-arn", &shared.context.function_arn)
        .header("lambda-runtime-trace-id", format!("Root={}", call.request_id))
        .body(Body::from(call.payload))
        .unwrap_or_else(|_| {
            plain(StatusCode::INTERNAL_SERVER_ERROR, "a header could not be written")
        })
}

/// Accepts the response to the current call and passes it to the caller. A response over 6 MB or
/// one that breaks off fails the call and is answered with 413. 400 if the call is not the current
/// one.
async fn response(
    State(shared): State<Arc<Shared>>,
    Path(id): Path<String>,
    body: Body,
) -> Response<Body> {
    match axum::body::to_bytes(body, SYNCHRONOUS_BYTES_MAX).await {
        Ok(bytes) => settle(&shared, &id, Answer::Done(bytes)),
        Err(_) => {
            let message = "the answer is larger than 6 MB, or was cut off".to_owned();
            settle(
                &shared,
                &id,
                Answer::Failed { kind: "Function.ResponseSizeTooLarge".to_owned(), message },
            );
            plain(StatusCode::PAYLOAD_TOO_LARGE, "a function answers 6 MB at most")
        }
    }
}

/// Accepts the error of the current call and passes it to the caller. 400 if the call is not the
/// current one.
async fn error(
    State(shared): State<Arc<Shared>>,
    Path(id): Path<String>,
    headers: HeaderMap,
    body: Body,
) -> Response<Body> {
    let (kind, message) = reported(&headers, body).await;
    settle(&shared, &id, Answer::Failed { kind, message })
}

/// Accepts the error of a process that could not start and keeps it as the reason of the failed
/// start.
async fn init_error(
    State(shared): State<Arc<Shared>>,
    headers: HeaderMap,
    body: Body,
) -> Response<Body> {
    let (kind, message) = reported(&headers, body).await;
    lock(&shared.start_failure).replace(format!("{kind}: {message}"));
    plain(StatusCode::ACCEPTED, "")
}

/// Passes an answer to the caller of the current call, which is then over, also if the caller has
/// given up. Answers with status 202, or 400 if the call is not the current one.
fn settle(shared: &Shared, id: &str, answer: Answer) -> Response<Body> {
    let running = lock(&shared.running).take_if(|(running, _)| running == id);
    match running {
        Some((_, sender)) => {
            // The caller may have given up; then the response is dropped.
            let _ = sender.send(answer);
            plain(StatusCode::ACCEPTED, "")
        }
        None => plain(
            StatusCode::BAD_REQUEST,
            r#"{"errorMessage":"no such call is running","errorType":"InvalidRequestID"}"#,
        ),
    }
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Reported {
    error_type: String,
    error_message: String,
}

/// Reads the type and message of a reported error. A type that is missing in the body is read from
/// the header, and is otherwise `Unhandled`. A body over 256 KiB or one that is no JSON gives an
/// empty message.
async fn reported(headers: &HeaderMap, body: Body) -> (String, String) {
    let bytes = axum::body::to_bytes(body, ERROR_BYTES_MAX).await.unwrap_or_default();
    let Reported { error_type, error_message } = serde_json::from_slice(&bytes).unwrap_or_default();
    let named =
        headers.get("lambda-runtime-function-error-type").and_then(|value| value.to_str().ok());
    let kind =
        if error_type.is_empty() { named.unwrap_or("Unhandled").to_owned() } else { error_type };
    (kind, error_message)
}

/// Returns a response with a text.
fn plain(status: StatusCode, text: &'static str) -> Response<Body> {
    let mut response = Response::new(Body::from(text));
    *response.status_mut() = status;
    response
}

/// Locks a mutex, also after a panic.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
