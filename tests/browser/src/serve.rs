//! Serves an API on loopback, as the local machine does.

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::http::{Response, StatusCode};
use sluice_api::Api;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

/// The maximum size of a request's body in bytes.
const BODY_BYTES_MAX: usize = 1 << 20;

/// A server, which ends when this is dropped.
pub struct TestServer {
    /// The address of the socket.
    pub address: SocketAddr,
    task: JoinHandle<()>,
}

impl TestServer {
    /// Returns the URL of a path.
    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Serves `api` on a free port of loopback.
///
/// # Errors
/// When no port is available.
pub async fn serve(api: Arc<Api>) -> std::io::Result<TestServer> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    let address = listener.local_addr()?;
    let router = Router::new().fallback(answer).with_state(api);
    let task = tokio::spawn(async move {
        // The server runs until it is aborted; errors of single connections are ignored.
        let _ = axum::serve(listener, router).await;
    });
    Ok(TestServer { address, task })
}

async fn answer(State(api): State<Arc<Api>>, request: Request) -> Response<Body> {
    let (parts, body) = request.into_parts();
    let Ok(body) = to_bytes(body, BODY_BYTES_MAX).await else {
        let mut refused = Response::new(Body::empty());
        *refused.status_mut() = StatusCode::PAYLOAD_TOO_LARGE;
        return refused;
    };
    api.answer(Request::from_parts(parts, body)).await.map(Body::from)
}
