//! The front on a loopback socket.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};

use super::front::{ConnectionLost, Front};

/// The maximum size of a request body, that of the largest S3 part that Sluice sends.
const BODY_BYTES_MAX: usize = 256 * 1024 * 1024;

/// A connection that was broken on purpose.
#[derive(Debug, thiserror::Error)]
#[error("the connection is broken by an injected fault")]
struct Broken;

/// Listens on `port` of 127.0.0.1, or on a free port for 0, and returns the address and the task
/// that answers. Once the task is aborted no connection is accepted, but open ones are still
/// answered. Queue URLs start with this address from then on.
///
/// # Errors
/// The socket's own error, for example that the port is taken.
pub async fn serve(
    front: Arc<Front>,
    port: u16,
) -> std::io::Result<(SocketAddr, tokio::task::JoinHandle<()>)> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await?;
    let address = listener.local_addr()?;
    front.sqs().set_base_url(format!("http://{address}"));
    let task = tokio::spawn(async move {
        loop {
            match listener.accept().await {
                Ok((stream, _)) => drop(tokio::spawn(connection(Arc::clone(&front), stream))),
                // Out of file handles, most likely; others end meanwhile.
                Err(error) => {
                    tracing::warn!(%error, "a connection was not accepted");
                    tokio::time::sleep(std::time::Duration::from_millis(50)).await;
                }
            }
        }
    });
    Ok((address, task))
}

/// Answers the requests of one connection until the client closes it, or an injected fault or a
/// deliberate kill breaks it. Errors of the connection are ignored.
async fn connection(front: Arc<Front>, stream: TcpStream) {
    // Small answers must not wait for more.
    let _ = stream.set_nodelay(true);
    let service = service_fn(move |request| answer(Arc::clone(&front), request));
    // Ends when the client goes, or when a fault breaks it.
    let _ = hyper::server::conn::http1::Builder::new()
        .serve_connection(TokioIo::new(stream), service)
        .await;
}

/// Answers one request; 413 for a body over 256 MiB or one that breaks off. An error, for an
/// injected fault or a deliberate kill, ends the connection without a response.
async fn answer(
    front: Arc<Front>,
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, Broken> {
    let (parts, body) = request.into_parts();
    let Ok(body) = Limited::new(body, BODY_BYTES_MAX).collect().await else {
        let mut response = Response::new(Full::default());
        *response.status_mut() = StatusCode::PAYLOAD_TOO_LARGE;
        return Ok(response);
    };
    let response = front.call(Request::from_parts(parts, body.to_bytes())).await;
    if response.extensions().get::<ConnectionLost>().is_some() {
        return Err(Broken);
    }
    Ok(response.map(Full::new))
}
