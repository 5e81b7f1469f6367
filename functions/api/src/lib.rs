//! The REST API, the pages and the logs: everything that users and tools read (Z9.1, Z7.4), and the
//! commands that they give.
//!
//! [`Api::answer`] answers one request; the caller (a function behind a gateway, the local machine)
//! owns the sockets. Answers are built from records and objects that other functions wrote. The API
//! writes commands ([`writes`]), and the key pair of a project when its public key is first
//! requested. [`authentication`] finds out who asks, [`access`] whether they may read, [`request`]
//! parses path and query, [`route`] selects the handler, one module per subject builds the answer
//! ([`status`], [`builds`], [`buildsets`], [`configuration`], [`pool`], [`logs`] …), and [`reply`]
//! adds the headers.
// The JSON of a job definition has about fifty attributes in one `json!`.
#![recursion_limit = "256"]
#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a test may panic"))]

mod access;
mod authentication;
mod authorizations;
mod autohold;
mod build_row;
mod builds;
mod buildsets;
mod bundle;
mod configuration;
mod estimate;
mod explain;
mod filter;
mod freeze;
mod issuer_keys;
mod item;
mod keys;
mod live_logs;
mod load;
mod logs;
mod node_waits;
mod openapi;
mod page;
mod pipeline_reasons;
mod pool;
mod reply;
mod request;
mod route;
mod semaphores;
mod status;
mod status_board;
mod status_detail;
mod system_events;
mod system_info;
mod token_keys;
mod unaccounted;
mod unbuilt;
mod variant;
mod writes;

pub use issuer_keys::{HttpIssuerDocuments, IssuerDocuments};
pub use live_logs::{HttpLiveLogSource, LIVE_BYTES_MAX, LiveLogSource, LogPiece};

use access::{AccessRules, AnswerSharing};
use authentication::{Authentication, Caller};
use bytes::Bytes;
use estimate::DurationEstimates;
use http::{Method, Request, Response, header};
use issuer_keys::NoIssuerDocuments;
use reply::ErrorResponse;
use request::ApiRequest;
use sluice_model::Timestamp;
use sluice_records::layout::Layouts;
use sluice_runtime::Ports;
use std::sync::Arc;

/// The API with its ports and caches.
pub struct Api {
    /// Access to records, objects, queues and time.
    ports: Ports,
    /// The cache of layouts.
    layouts: Layouts,
    /// Reads the logs of running builds from executors.
    live_logs: Arc<dyn LiveLogSource>,
    /// The cache of estimated durations.
    estimates: DurationEstimates,
    /// The authenticators, and the keys of their issuers.
    authentication: Authentication,
    /// The access rules.
    access: AccessRules,
    /// The public address of the pages.
    web_root: String,
    /// When this process started.
    started_at: Timestamp,
    /// Whether pages of any origin may read the answers.
    any_page: bool,
    /// Held while this process generates a key pair.
    key_generation: tokio::sync::Mutex<()>,
}

impl Api {
    /// Creates the API over the given ports. `web_root` is the public address of the pages, for
    /// example `https://ci.example.org/`. Pages of any origin may read its answers: see
    /// [`Self::restricted_to_own_pages`].
    pub fn new(ports: Ports, live_logs: Arc<dyn LiveLogSource>, web_root: &str) -> Self {
        let started_at = ports.clock.now();
        let web_root = format!("{}/", web_root.trim_end_matches('/'));
        let (layouts, estimates) = (Layouts::default(), DurationEstimates::default());
        let key_generation = tokio::sync::Mutex::default();
        Self {
            ports,
            layouts,
            live_logs,
            estimates,
            authentication: Authentication::new(Arc::new(NoIssuerDocuments)),
            access: AccessRules::default(),
            web_root,
            started_at,
            any_page: true,
            key_generation,
        }
    }

    /// Returns the API with a reader for the documents of OpenID providers. Without one, their
    /// tokens get status 503.
    #[must_use]
    pub fn with_issuer_documents(self, documents: Arc<dyn IssuerDocuments>) -> Self {
        Self { authentication: Authentication::new(documents), ..self }
    }

    /// Returns the API without the header that lets pages of other origins read its answers in a
    /// browser. A local system is read without a token, and every page open in a browser on the
    /// machine could reach it.
    #[must_use]
    pub fn restricted_to_own_pages(self) -> Self {
        Self { any_page: false, ..self }
    }

    /// Answers one request. Errors are answers too: a status and JSON with `error` and
    /// `description`. A request that would change something stores a command, which other functions
    /// carry out; there is nothing to change until an authenticator is configured.
    pub async fn answer(&self, request: Request<Bytes>) -> Response<Bytes> {
        let mut response = self.answer_any_page(request).await;
        if !self.any_page {
            response.headers_mut().remove(header::ACCESS_CONTROL_ALLOW_ORIGIN);
        }
        response
    }

    /// Answers one request, with the header that lets pages of any origin read the answer.
    /// `OPTIONS` gets the CORS headers, and the answer to `HEAD` has no body. A failed request gets
    /// its error as the answer.
    async fn answer_any_page(&self, request: Request<Bytes>) -> Response<Bytes> {
        if request.method() == Method::OPTIONS {
            return reply::options(&openapi::methods(request.uri().path()));
        }
        let is_head = request.method() == Method::HEAD;
        let outcome = match ApiRequest::read(&request) {
            Ok(read) if read.is_write() => writes::answer(self, &read, request.headers()).await,
            Ok(read) => self.read(&read, &request).await,
            Err(refusal) => Err(refusal),
        };
        let mut response = outcome.unwrap_or_else(|refusal| refused(&request, &refusal));
        if is_head {
            *response.body_mut() = Bytes::new();
        }
        response
    }
}

impl Api {
    /// Answers a request that changes nothing, if its caller may read it.
    async fn read(
        &self,
        read: &ApiRequest,
        request: &Request<Bytes>,
    ) -> Result<Response<Bytes>, ErrorResponse> {
        // Logging in must be possible with a token that has expired.
        let caller = match authentication::caller(self, request.headers()).await {
            Err(_) if route::is_information(read) => Caller::Anonymous,
            caller => caller?,
        };
        let parts: Vec<&str> = read.parts.iter().map(String::as_str).collect();
        let sharing = access::guard(self, &parts, &caller).await?;
        let mut response = route::answer(self, read, &caller).await?;
        if sharing == AnswerSharing::Private {
            reply::make_private(&mut response);
        }
        Ok(response)
    }
}

/// Returns the response to a request that failed, and logs it if the API is unavailable.
fn refused(request: &Request<Bytes>, refusal: &ErrorResponse) -> Response<Bytes> {
    if let ErrorResponse::Unavailable { detail } = refusal {
        tracing::warn!(
            path = request.uri().path(),
            detail,
            "could not answer a request of the API"
        );
    }
    refusal.response()
}
