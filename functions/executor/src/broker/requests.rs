//! One connection to the broker: reads a request, and forwards it or opens a tunnel (Z7.5).
//!
//! hyper frames both sides, so bytes of a client reach a server only as the body of the request
//! that was decided, or in its tunnel.

use super::dial::{DialError, dial, dial_node};
use super::meter::{Idleness, Metered};
use super::target::{Target, shown};
use super::{BuildNetwork, LEASE_OVER};
use bytes::Bytes;
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt as _, Empty, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper::ext::ReasonPhrase;
use hyper::header::{
    CONNECTION, CONTENT_LENGTH, HOST, HeaderMap, HeaderName, HeaderValue, TRANSFER_ENCODING,
};
use hyper::service::service_fn;
use hyper::upgrade::OnUpgrade;
use hyper::{Method, Request, Response, StatusCode, Uri, Version};
use hyper_util::rt::{TokioIo, TokioTimer};
use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::net::UnixStream;
use tokio::sync::oneshot;

/// The size in bytes from which the head of a request or an answer is refused unless it is complete:
/// the last read may bring as much again.
const HEAD_BYTES_MAX: usize = 64 << 10;
/// The maximum number of headers of a request or an answer.
const HEADERS_MAX: usize = 100;

/// Headers that concern one connection only (RFC 9110, 7.6.1), and `Expect`, which the broker
/// answers itself.
const HOP_HEADERS: [&str; 10] = [
    "connection",
    "expect",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

type Body = BoxBody<Bytes, hyper::Error>;
type Upstream = http1::Connection<TokioIo<Metered>, Incoming>;

/// What continues after the head of an answer was made.
enum Continuation {
    /// Bytes are copied in both directions.
    Tunnel { client: OnUpgrade, upstream: Metered },
    /// The rest of an exchange with a server.
    Exchange { connection: Box<Upstream>, idleness: Idleness },
}

/// Serves the one request of a client, and what follows from it. Ends when both sides are closed,
/// when the connection to the outside is idle for too long, or when it breaks.
pub(super) async fn serve_client(client: UnixStream, build: Arc<BuildNetwork>) {
    let (sender, receiver) = oneshot::channel();
    let sender = Arc::new(Mutex::new(Some(sender)));
    let take_sender = |sender: &Mutex<Option<oneshot::Sender<Continuation>>>| {
        sender.lock().unwrap_or_else(PoisonError::into_inner).take()
    };
    let service = service_fn(|request| {
        let (build, sender) = (Arc::clone(&build), take_sender(&sender));
        async move { Ok::<_, Infallible>(answer(request, &build, sender).await) }
    });
    let serving = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(build.limits.head)
        .max_buf_size(HEAD_BYTES_MAX)
        .max_headers(HEADERS_MAX)
        .keep_alive(false)
        .serve_connection(TokioIo::new(client), service)
        .with_upgrades();
    let serving = async {
        let served = serving.await;
        // Without a whole request there is no continuation to wait for.
        drop(take_sender(&sender));
        served
    };
    let continuing = async {
        if let Ok(continuation) = receiver.await {
            carry_on(continuation, build.limits.idle).await;
        }
    };
    let (served, ()) = tokio::join!(serving, continuing);
    match served {
        Err(error) if error.is_timeout() => {
            build.refuse("a request", "its head was not complete in time");
        }
        Err(error) if error.is_parse() => {
            build.refuse("a request", &format!("it cannot be read as HTTP ({error})"));
        }
        _ => build.note_exhaustion(),
    }
}

/// Carries on after the head of an answer; see [`serve_client`].
async fn carry_on(continuation: Continuation, idle_limit: Duration) {
    // Both ends notice a broken connection themselves.
    match continuation {
        Continuation::Tunnel { client, mut upstream } => {
            let Ok(client) = client.await else { return };
            let (mut client, idleness) = (TokioIo::new(client), upstream.idleness());
            tokio::select! {
                _ = tokio::io::copy_bidirectional(&mut client, &mut upstream) => {}
                () = idleness.noticed(idle_limit) => {}
            }
        }
        Continuation::Exchange { connection, idleness } => {
            tokio::select! {
                _ = connection => {}
                () = idleness.noticed(idle_limit) => {}
            }
        }
    }
}

/// Decides a request, connects to its target, and returns the answer for the client. What continues
/// afterwards goes to `sender`, which is there for the only request of a connection.
async fn answer(
    request: Request<Incoming>,
    build: &BuildNetwork,
    sender: Option<oneshot::Sender<Continuation>>,
) -> Response<Body> {
    let target = match Target::of_request(request.method(), request.uri(), request.headers()) {
        Ok(target) => target,
        Err(error) => {
            // Not the whole address, which may contain a password.
            let host = request.uri().host().map(|host| format!(" to {}", shown(host)));
            build.refuse(&format!("a request{}", host.unwrap_or_default()), &error.to_string());
            return own_answer(StatusCode::BAD_REQUEST, &error.to_string());
        }
    };
    let upstream = match connect(&target, build).await {
        Ok(upstream) => upstream,
        Err(answer) => return answer,
    };
    let Some(sender) = sender else {
        return own_answer(StatusCode::BAD_REQUEST, "one connection carries one request");
    };
    if request.method() == Method::CONNECT {
        let client = hyper::upgrade::on(request);
        // The receiver is there as long as the client is.
        let _ = sender.send(Continuation::Tunnel { client, upstream });
        return Response::new(Empty::new().map_err(|never| match never {}).boxed());
    }
    match forward(request, upstream, sender).await {
        Ok(response) => response,
        Err(error) => own_answer(
            StatusCode::BAD_GATEWAY,
            &format!("{target} did not answer as a web server does: {error}"),
        ),
    }
}

/// Connects to the target of a request. The error is the answer for the client; a refusal is also
/// written to the job's log.
async fn connect(target: &Target, build: &BuildNetwork) -> Result<Metered, Response<Body>> {
    let dialed = if build.policy.is_own_node(target) {
        if build.lease.is_over() {
            build.refuse(&target.to_string(), LEASE_OVER);
            return Err(own_answer(StatusCode::FORBIDDEN, LEASE_OVER));
        }
        dial_node(target).await.map(|stream| Metered::to_node(stream, build.lease.clone()))
    } else {
        if let Err(limit) = build.count_connection() {
            build.refuse(&target.to_string(), &limit);
            return Err(own_answer(StatusCode::FORBIDDEN, &limit));
        }
        let dialed = dial(&build.policy, &build.resolver, target).await;
        dialed.map(|stream| Metered::to_outside(stream, Arc::clone(&build.allowance)))
    };
    dialed.map_err(|error| {
        let status = if let DialError::Refused { .. } = error {
            build.refuse(&target.to_string(), &error.to_string());
            StatusCode::FORBIDDEN
        } else {
            StatusCode::BAD_GATEWAY
        };
        own_answer(status, &format!("{target}: {error}"))
    })
}

/// Sends a request to its server and returns the answer, whose body follows while the connection is
/// driven by its receiver.
async fn forward(
    request: Request<Incoming>,
    upstream: Metered,
    sender: oneshot::Sender<Continuation>,
) -> Result<Response<Body>, hyper::Error> {
    let idleness = upstream.idleness();
    let (mut server, connection) = http1::Builder::new()
        .max_buf_size(HEAD_BYTES_MAX)
        .max_headers(HEADERS_MAX)
        .handshake(TokioIo::new(upstream))
        .await?;
    let _ = sender.send(Continuation::Exchange { connection: Box::new(connection), idleness });
    let mut response = server.send_request(for_server(request)).await?;
    remove_hop_headers(response.headers_mut());
    *response.version_mut() = Version::HTTP_11;
    Ok(response.map(|body| body.boxed()))
}

/// Returns a proxy's request as its server gets it: with a path only, and one `Host`, that of the
/// address.
fn for_server(mut request: Request<Incoming>) -> Request<Incoming> {
    let host = request.uri().authority().and_then(|one| HeaderValue::from_str(one.as_str()).ok());
    let path = request.uri().path_and_query().cloned();
    *request.uri_mut() = path.map_or_else(|| Uri::from_static("/"), Uri::from);
    *request.version_mut() = Version::HTTP_11;
    let headers = request.headers_mut();
    // hyper frames the body again, by what it has read.
    if headers.contains_key(TRANSFER_ENCODING) {
        headers.remove(CONTENT_LENGTH);
    }
    remove_hop_headers(headers);
    headers.insert(CONNECTION, HeaderValue::from_static("close"));
    if let Some(host) = host {
        headers.insert(HOST, host);
    }
    request
}

/// Removes the headers that concern one connection only, also those that `Connection` names.
fn remove_hop_headers(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = headers
        .get_all(CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|name| name.trim().parse().ok())
        // What frames the message stays, whatever a client says.
        .filter(|name| *name != CONTENT_LENGTH && *name != HOST)
        .collect();
    for name in named {
        headers.remove(name);
    }
    for name in HOP_HEADERS {
        headers.remove(name);
    }
}

/// Returns an answer of the broker itself. Its text is the body and, because many programs show
/// nothing else, the reason phrase.
fn own_answer(status: StatusCode, text: &str) -> Response<Body> {
    let body = Full::new(Bytes::from(format!("{text}\n")));
    let mut response = Response::new(body.map_err(|never| match never {}).boxed());
    *response.status_mut() = status;
    if let Ok(phrase) = ReasonPhrase::try_from(text.to_owned()) {
        response.extensions_mut().insert(phrase);
    }
    response
}
