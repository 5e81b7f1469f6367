//! The HTTP front: requests on a loopback port become events of the function whose route fits, and
//! its answer becomes the response. Limits are those of API Gateway's HTTP APIs and of Lambda.

mod answer;
mod console_stream;
mod event;
mod host;
mod route;

#[cfg(test)]
mod tests;

pub use event::Front;
pub use host::HostNames;
pub(crate) use host::of_this_machine;
pub use route::{RouteMatch, Routes};

use crate::lambda::{Invoke, InvokeError, SYNCHRONOUS_BYTES_MAX};
use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::ws::WebSocketUpgrade;
use axum::extract::{FromRequestParts as _, Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, Response, StatusCode};
use axum::response::IntoResponse as _;
use axum::serve::ListenerExt as _;
use bytes::BytesMut;
use http_body_util::BodyExt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// The largest body the front takes, in bytes: 10 MB.
pub const BODY_BYTES_MAX: usize = 10 * 1024 * 1024;

/// How much of a body that is too large is read before it is answered, in bytes: more than a forge
/// ever sends.
const DRAINED_BYTES_MAX: usize = 64 * 1024 * 1024;

/// The most that all headers and the request line have together, in bytes.
const HEADER_BYTES_MAX: usize = 10_240;

/// How long the front waits for a function.
const INTEGRATION_LIMIT: Duration = Duration::from_secs(30);

/// How long [`HttpFront::stop`] waits for requests that are being answered.
const STOP_LIMIT: Duration = Duration::from_secs(10);

/// A running HTTP front.
pub struct HttpFront {
    address: SocketAddr,
    stop: watch::Sender<bool>,
    server: JoinHandle<()>,
}

struct Shared {
    front: Front,
    routes: Routes,
    /// `None` where others than this machine reach it.
    names: Option<HostNames>,
    functions: Arc<dyn Invoke>,
}

impl HttpFront {
    /// Starts the front on `listener` and returns at once; it runs until it is stopped or dropped.
    /// If `listener` is bound to loopback, only requests under one of `names`, an address or
    /// `localhost` are answered, others with 421; functions that accept any name are excepted. On
    /// another interface every name is answered. Needs a tokio runtime.
    ///
    /// # Errors
    /// Returns an error if the listener's address cannot be determined.
    pub fn start(
        listener: TcpListener,
        front: Front,
        routes: Routes,
        names: HostNames,
        functions: Arc<dyn Invoke>,
    ) -> std::io::Result<Self> {
        let address = listener.local_addr()?;
        let names = address.ip().is_loopback().then_some(names);
        let shared = Arc::new(Shared { front, routes, names, functions });
        let app = Router::new().fallback(handle).with_state(shared);
        let (stop, mut stopped) = watch::channel(false);
        let listener = listener.tap_io(|stream| drop(stream.set_nodelay(true)));
        let server = tokio::spawn(async move {
            let until = async move {
                // An error means that the front was dropped: that is the end, too.
                let _ = stopped.wait_for(|stop| *stop).await;
            };
            if let Err(error) = axum::serve(listener, app).with_graceful_shutdown(until).await {
                tracing::error!(%error, "the HTTP front ended");
            }
        });
        Ok(Self { address, stop, server })
    }

    /// Returns the address on which the HTTP front listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Accepts no further requests and waits for the running ones, at most ten seconds. Requests
    /// that still run then go on, but are no longer waited for.
    pub async fn stop(self) {
        self.stop.send_replace(true);
        let abort = self.server.abort_handle();
        if tokio::time::timeout(STOP_LIMIT, self.server).await.is_err() {
            abort.abort();
        }
    }
}

/// Reads a body of at most 10 MB; `None` if it is larger or breaks off. A larger one is read and
/// dropped up to 64 MiB, because a client that is still sending may not read the error response.
async fn read(mut body: Body) -> Option<Bytes> {
    let (mut kept, mut bytes) = (BytesMut::new(), 0);
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame.ok()?.into_data() else { continue };
        bytes += data.len();
        if bytes > DRAINED_BYTES_MAX {
            return None;
        }
        if bytes <= BODY_BYTES_MAX {
            kept.extend_from_slice(&data);
        }
    }
    (bytes <= BODY_BYTES_MAX).then(|| kept.freeze())
}

/// Answers a request with the response of its function, see [`respond`], or with a WebSocket for a
/// build's log, see [`console_stream`].
async fn handle(State(shared): State<Arc<Shared>>, request: Request) -> Response<Body> {
    let (mut parts, body) = request.into_parts();
    let Some(tenant) = console_stream::tenant_path(&parts).map(str::to_owned) else {
        return respond(&shared, parts, body).await;
    };
    let names = shared.names.as_ref();
    if let Some(name) = names.and_then(|names| names.foreign_name(&parts.headers, &parts.uri)) {
        return host::misdirected(&name);
    }
    match WebSocketUpgrade::from_request_parts(&mut parts, &()).await {
        Ok(upgrade) => console_stream::accept(upgrade, shared, tenant, &parts.headers),
        Err(refused) => refused.into_response(),
    }
}

/// Calls the function of the matching route and returns its response. Otherwise an error response:
/// 404 without a route, 421 for a foreign host name, 431 for headers over 10 KiB, 413 for a body
/// that is over 10 MB or breaks off, or an event over 6 MB. 503 if the function is throttled or
/// takes more than 30 seconds, 500 if it fails or its answer is no response. A function that takes
/// too long goes on.
async fn respond(shared: &Shared, parts: Parts, body: Body) -> Response<Body> {
    if header_bytes(&parts.headers) + parts.uri.to_string().len() > HEADER_BYTES_MAX {
        return message(
            StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
            "Request Header Fields Too Large",
        );
    }
    let Some(found) = shared.routes.find(&parts.method, parts.uri.path()) else {
        return message(StatusCode::NOT_FOUND, "Not Found");
    };
    let names = shared.names.as_ref().filter(|names| !names.any_may_call(found.function));
    if let Some(name) = names.and_then(|names| names.foreign_name(&parts.headers, &parts.uri)) {
        return host::misdirected(&name);
    }
    let Some(body) = read(body).await else {
        return message(StatusCode::PAYLOAD_TOO_LARGE, "Request Entity Too Large");
    };
    let payload = event::of_request(&shared.front, &found, &parts, &body);
    if payload.len() > SYNCHRONOUS_BYTES_MAX {
        return message(StatusCode::PAYLOAD_TOO_LARGE, "Request Entity Too Large");
    }
    let function = found.function.to_owned();
    match tokio::time::timeout(INTEGRATION_LIMIT, shared.functions.invoke(&function, payload)).await
    {
        Ok(Ok(bytes)) => answer::response(&bytes).unwrap_or_else(|why| {
            tracing::error!(%function, %why, "an answer is no HTTP response");
            message(StatusCode::INTERNAL_SERVER_ERROR, "Internal Server Error")
        }),
        Ok(Err(error)) => {
            tracing::warn!(%function, %error, "a request has no answer");
            match error {
                InvokeError::TooLarge { .. } => {
                    message(StatusCode::PAYLOAD_TOO_LARGE, "Request Entity Too Large")
                }
                InvokeError::Throttled { .. } => {
                    message(StatusCode::SERVICE_UNAVAILABLE, "Service Unavailable")
                }
                _ => message(StatusCode::INTERNAL_SERVER_ERROR, "Internal Server Error"),
            }
        }
        Err(_) => {
            tracing::warn!(%function, "a request was given up after {INTEGRATION_LIMIT:?}");
            message(StatusCode::SERVICE_UNAVAILABLE, "Service Unavailable")
        }
    }
}

/// Returns the size of the names and values of all headers in bytes.
fn header_bytes(headers: &HeaderMap) -> usize {
    headers.iter().map(|(name, value)| name.as_str().len() + value.len()).sum()
}

/// Returns an error response of the front itself, in API Gateway's form.
fn message(status: StatusCode, text: &str) -> Response<Body> {
    let body = serde_json::json!({ "message": text }).to_string();
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = status;
    response
        .headers_mut()
        .insert("content-type", axum::http::HeaderValue::from_static("application/json"));
    response
}
