//! The front as an HTTP client of the AWS SDK: calls of functions in this process need no socket.

use std::fmt;
use std::sync::Arc;

use aws_smithy_runtime_api::client::http::{
    HttpClient, HttpConnector, HttpConnectorFuture, HttpConnectorSettings, SharedHttpClient,
    SharedHttpConnector,
};
use aws_smithy_runtime_api::client::orchestrator::{HttpRequest, HttpResponse};
use aws_smithy_runtime_api::client::result::ConnectorError;
use aws_smithy_runtime_api::client::runtime_components::RuntimeComponents;
use aws_smithy_types::body::SdkBody;
use http::HeaderValue;
use http::header::HOST;
use http_body_util::BodyExt;

use super::front::{ConnectionLost, Front};

/// What SDK clients name as their endpoint; nothing is ever sent there.
pub const ENDPOINT: &str = "http://127.0.0.1";

/// Carries the SDK's requests to a [`Front`] by a function call.
#[derive(Clone)]
pub struct Connector {
    front: Arc<Front>,
}

impl fmt::Debug for Connector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Connector")
    }
}

impl Connector {
    /// Creates a connector of the AWS SDK that calls `front` without a network.
    #[must_use]
    pub fn new(front: Arc<Front>) -> Self {
        Self { front }
    }

    /// Returns the connector in the form of the SDK's configuration, next to an endpoint such as
    /// [`ENDPOINT`].
    #[must_use]
    pub fn into_client(self) -> SharedHttpClient {
        SharedHttpClient::new(self)
    }
}

impl HttpClient for Connector {
    /// Returns this connector; the settings, such as time limits, are ignored.
    fn http_connector(
        &self,
        _settings: &HttpConnectorSettings,
        _components: &RuntimeComponents,
    ) -> SharedHttpConnector {
        SharedHttpConnector::new(self.clone())
    }
}

impl HttpConnector for Connector {
    /// Passes a request to the front and returns its response. The call goes on if the caller stops
    /// waiting. A connection that an injected fault or a deliberate kill breaks is an I/O error; a
    /// panic of the front is an error too.
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        let front = Arc::clone(&self.front);
        HttpConnectorFuture::new(async move {
            let user =
                |error: Box<dyn std::error::Error + Send + Sync>| ConnectorError::user(error);
            let request = request.try_into_http1x().map_err(|error| user(error.into()))?;
            let (mut parts, body) = request.into_parts();
            // What an HTTP client adds on its way to a socket, and what the signature covers.
            if let Some(host) = parts
                .uri
                .authority()
                .and_then(|authority| HeaderValue::try_from(authority.as_str()).ok())
            {
                parts.headers.entry(HOST).or_insert(host);
            }
            let body = body.collect().await.map_err(|error| user(error.to_string().into()))?;
            // On a task of its own: a caller that gives up waiting does not undo what was sent, as
            // on a network.
            let call = tokio::spawn(async move {
                front.call(http::Request::from_parts(parts, body.to_bytes())).await
            });
            let response = call.await.map_err(|error| ConnectorError::other(error.into(), None))?;
            if response.extensions().get::<ConnectionLost>().is_some() {
                return Err(ConnectorError::io(
                    "the connection is broken by an injected fault".into(),
                ));
            }
            HttpResponse::try_from(response.map(SdkBody::from))
                .map_err(|error| ConnectorError::other(error.into(), None))
        })
    }
}
