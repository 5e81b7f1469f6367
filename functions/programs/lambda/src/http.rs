//! The functions that answer HTTP requests: webhooks, and the API with its pages.

use async_trait::async_trait;
use bytes::Bytes;
use http::{Request, Response, StatusCode};
use sluice_api::{Api, HttpIssuerDocuments, HttpLiveLogSource};
use sluice_handler::{Function, FunctionEnvironment, InvocationError};
use sluice_model::ConnectionName;
use sluice_runtime::Ports;
use sluice_webhook::WebhookReceiver;
use std::sync::Arc;
use tokio::sync::OnceCell;
use url::{Host, Url};

/// The function that receives webhooks.
pub(crate) struct WebhookFunction {
    /// Shared by all requests, because it caches decrypted connections for a minute.
    receiver: WebhookReceiver,
}

impl WebhookFunction {
    pub(crate) fn new(environment: &FunctionEnvironment) -> Self {
        Self { receiver: WebhookReceiver::new(environment.ports.clone()) }
    }
}

#[async_trait]
impl Function for WebhookFunction {
    /// Passes a webhook to the receiver and returns its answer. Answers 404 for any path but
    /// `/api/connection/NAME/payload`; whether the connection exists is for the receiver to say.
    async fn respond(
        &self,
        request: Request<Bytes>,
        _: &str,
    ) -> Result<Response<Bytes>, InvocationError> {
        Ok(match connection_of(request.uri().path()) {
            Some(connection) => {
                self.receiver.receive(&connection, request.headers(), request.body()).await
            }
            None => not_found(),
        })
    }
}

/// The function that serves the API and the pages.
pub(crate) struct ApiFunction {
    ports: Ports,
    /// The configured address of the pages.
    web_root: Option<String>,
    api: OnceCell<Api>,
}

impl ApiFunction {
    /// Creates the function. The first request builds the API.
    pub(crate) fn new(environment: &FunctionEnvironment) -> Self {
        Self {
            ports: environment.ports.clone(),
            web_root: environment.web_root.clone(),
            api: OnceCell::new(),
        }
    }

    /// Returns the API, which the first request builds. Without a configured address of the pages,
    /// their address is `https://` and the host of that first request. If the address is on this
    /// machine, browsers may use the API only from its own pages.
    async fn api(&self, host: &str) -> Result<&Api, InvocationError> {
        let build = || async {
            // Without a configured address, the host of the first request is used.
            let web_root = self.web_root.clone().unwrap_or_else(|| format!("https://{host}/"));
            let live_logs = Arc::new(HttpLiveLogSource::new()?);
            let documents = Arc::new(HttpIssuerDocuments::new()?);
            let api =
                Api::new(self.ports.clone(), live_logs, &web_root).with_issuer_documents(documents);
            Ok(if is_loopback(&web_root) { api.restricted_to_own_pages() } else { api })
        };
        self.api.get_or_try_init(build).await
    }
}

#[async_trait]
impl Function for ApiFunction {
    /// Answers a request to the API or for a page. `host` is the host name that the client used; it
    /// counts only if no address of the pages is configured. An error only if the API cannot be
    /// built.
    async fn respond(
        &self,
        request: Request<Bytes>,
        host: &str,
    ) -> Result<Response<Bytes>, InvocationError> {
        Ok(self.api(host).await?.answer(request).await)
    }
}

/// Returns the connection that a webhook path names: `/api/connection/{connection}/payload`. `None`
/// for any other path. Whether the connection exists is not checked.
fn connection_of(path: &str) -> Option<ConnectionName> {
    let name = path.strip_prefix("/api/connection/")?.strip_suffix("/payload")?;
    (!name.is_empty() && !name.contains('/')).then(|| ConnectionName::from(name))
}

/// Returns whether the host of an address is a loopback address or `localhost`, so that only this
/// machine reaches it. False for a text that is not a URL.
fn is_loopback(web_root: &str) -> bool {
    let Ok(root) = Url::parse(web_root) else { return false };
    match root.host() {
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        Some(Host::Domain(name)) => name == "localhost",
        None => false,
    }
}

/// Returns an empty response with status 404.
fn not_found() -> Response<Bytes> {
    let mut response = Response::new(Bytes::new());
    *response.status_mut() = StatusCode::NOT_FOUND;
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Z5.4
    #[test]
    fn only_loopback_addresses_are_local() {
        for root in [
            "http://127.0.0.1:9000/",
            "http://127.8.0.1/",
            "http://[::1]:9000/",
            "http://localhost:9000/",
        ] {
            assert!(is_loopback(root), "{root}");
        }
        for root in [
            "https://ci.example.org/",
            "http://10.0.0.7:9000/",
            "http://localhost.example.org/",
            "",
            "/",
        ] {
            assert!(!is_loopback(root), "{root}");
        }
    }
}
