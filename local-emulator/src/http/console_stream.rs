//! Zuul's console over a WebSocket, `GET /api/tenant/{tenant}/console-stream`: follows the log of a
//! build for Zuul's pages.
//!
//! API Gateway's HTTP APIs carry no WebSocket, so this is not part of what plays their role, but of
//! the proxy in front of them that an operator adds on AWS: it reads the API's route for logs,
//! `build/{uuid}/log`, piece by piece, with the reader's own token. So the API decides about each
//! piece who may read it.

use super::{Shared, respond};
use axum::body::{Body, Bytes, to_bytes};
use axum::extract::ws::{CloseFrame, Message, Utf8Bytes, WebSocket, WebSocketUpgrade};
use axum::http::header::{AUTHORIZATION, HOST, UPGRADE};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};
use serde::Deserialize;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout};

/// The maximum size of a message of a reader, in bytes; a token is the largest part of it.
const REQUEST_BYTES_MAX: usize = 16 << 10;
/// How long to wait for the message that names the build.
const REQUEST_LIMIT: Duration = Duration::from_secs(30);
/// The time between two looks at a log that did not grow.
const POLL: Duration = Duration::from_millis(300);
/// The time between two pings.
const PING: Duration = Duration::from_secs(20);
/// The maximum size of a piece of a log in bytes; the API's are smaller.
const PIECE_BYTES_MAX: usize = 8 << 20;
/// Zuul's code for a request that is incomplete or not authorized.
const REFUSED: u16 = 4000;
/// Zuul's code for a log that cannot be read.
const FAILED: u16 = 4011;
/// The code for the regular end.
const ENDED: u16 = 1000;

/// What a reader asks for.
#[derive(Deserialize)]
struct ConsoleRequest {
    uuid: Option<String>,
    logfile: Option<String>,
    token: Option<String>,
}

/// How a stream ends: the close code and its reason.
struct End(u16, String);

impl End {
    fn new(code: u16, reason: &str) -> Self {
        // A control frame has room for 123 bytes.
        Self(code, reason[..reason.floor_char_boundary(120)].to_owned())
    }
}

/// Returns the path of the tenant's routes if a request asks for a console over a WebSocket.
pub(super) fn tenant_path(parts: &Parts) -> Option<&str> {
    let upgrade = parts.headers.get(UPGRADE)?.to_str().ok()?;
    let tenant = parts.uri.path().strip_suffix("/console-stream")?;
    let name = tenant.strip_prefix("/api/tenant/")?;
    let is_asked = parts.method == Method::GET && upgrade.eq_ignore_ascii_case("websocket");
    (is_asked && !name.is_empty() && !name.contains('/')).then_some(tenant)
}

/// Accepts a WebSocket and streams the log that its first message names, until the log or the
/// reader ends.
pub(super) fn accept(
    upgrade: WebSocketUpgrade,
    shared: Arc<Shared>,
    tenant: String,
    headers: &HeaderMap,
) -> Response<Body> {
    let host = headers.get(HOST).cloned();
    upgrade.max_message_size(REQUEST_BYTES_MAX).on_upgrade(move |mut socket| async move {
        let source = LogSource { shared, tenant, host };
        if let Err(End(code, reason)) = stream(&mut socket, &source).await {
            let frame = CloseFrame { code, reason: Utf8Bytes::from(reason) };
            // The reader may be gone.
            let _ = socket.send(Message::Close(Some(frame))).await;
        }
    })
}

/// Reads the request and sends the log. The error is how the stream ends; it ends without one if
/// the reader is gone.
async fn stream(socket: &mut WebSocket, source: &LogSource) -> Result<(), End> {
    let Ok(Some(first)) = timeout(REQUEST_LIMIT, text(socket)).await else { return Ok(()) };
    let request: ConsoleRequest =
        serde_json::from_str(&first).map_err(|_| End::new(REFUSED, "The message is not JSON"))?;
    let missing = |name: &str| End::new(REFUSED, &format!("'{name}' missing from request payload"));
    let uuid = request.uuid.ok_or_else(|| missing("uuid"))?;
    request.logfile.ok_or_else(|| missing("logfile"))?;
    if uuid.is_empty() || !uuid.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Err(End::new(FAILED, "Build not found"));
    }
    let (mut offset, mut pinged) = (0, Instant::now());
    loop {
        let piece = source.piece(&uuid, offset, request.token.as_deref()).await?;
        let has_grown = !piece.text.is_empty();
        if has_grown && socket.send(Message::Text(piece.text.into())).await.is_err() {
            return Ok(());
        }
        offset = piece.next;
        if piece.is_last {
            return Err(End::new(ENDED, "No more data"));
        }
        if pinged.elapsed() >= PING {
            pinged = Instant::now();
            if socket.send(Message::Ping(Bytes::new())).await.is_err() {
                return Ok(());
            }
        }
        if has_grown {
            continue;
        }
        let wait = sleep(POLL);
        tokio::pin!(wait);
        loop {
            tokio::select! {
                () = &mut wait => break,
                // A second message is ignored.
                message = socket.recv() => match message {
                    Some(Ok(Message::Close(_)) | Err(_)) | None => return Ok(()),
                    Some(Ok(_)) => {}
                },
            }
        }
    }
}

/// Returns the next text message; `None` at the end of the connection.
async fn text(socket: &mut WebSocket) -> Option<String> {
    loop {
        match socket.recv().await?.ok()? {
            Message::Text(text) => return Some(text.as_str().to_owned()),
            Message::Close(_) => return None,
            _ => {}
        }
    }
}

/// Reads logs of one tenant through the front.
struct LogSource {
    shared: Arc<Shared>,
    /// The path of the tenant's routes.
    tenant: String,
    /// The host name of the reader's request.
    host: Option<HeaderValue>,
}

/// A piece of a log.
struct Piece {
    text: String,
    /// The offset of the next piece.
    next: u64,
    /// Whether the log ends with it.
    is_last: bool,
}

impl LogSource {
    /// Reads the log of a build from `offset` on, with the reader's token. The error is how the
    /// stream ends.
    async fn piece(&self, uuid: &str, offset: u64, token: Option<&str>) -> Result<Piece, End> {
        let uri = format!("{}/build/{uuid}/log?offset={offset}", self.tenant);
        let mut request = Request::builder().uri(uri);
        if let Some(host) = &self.host {
            request = request.header(HOST, host);
        }
        if let Some(token) = token {
            request = request.header(AUTHORIZATION, format!("Bearer {token}"));
        }
        let request = request
            .body(Body::empty())
            .map_err(|_| End::new(REFUSED, "AuthTokenUndecodedException"))?;
        let (parts, body) = request.into_parts();
        let (head, body) = respond(&self.shared, parts, body).await.into_parts();
        let failed = || End::new(FAILED, "Unknown error");
        let body = to_bytes(body, PIECE_BYTES_MAX).await.map_err(|_| failed())?;
        let number = |name: &str| head.headers.get(name)?.to_str().ok()?.parse::<u64>().ok();
        match head.status {
            StatusCode::OK => Ok(Piece {
                text: String::from_utf8_lossy(&body).into_owned(),
                next: number("x-log-next").ok_or_else(failed)?,
                is_last: number("x-log-ended") == Some(1),
            }),
            StatusCode::NOT_FOUND => Err(End::new(FAILED, "Build not found")),
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
                let body: serde_json::Value = serde_json::from_slice(&body).unwrap_or_default();
                Err(End::new(REFUSED, body["error"].as_str().unwrap_or("Unauthorized")))
            }
            _ => Err(failed()),
        }
    }
}
