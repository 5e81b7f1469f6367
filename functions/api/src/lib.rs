//! The REST API, the pages and the logs: what people and tools read of the system (Z9.1, Z7.4).
//!
//! [`Api::answer`] takes one request and gives one response; who calls it (a function behind a
//! gateway, the local machine) owns the sockets. Nothing is written here: every answer is made of
//! records and objects that other functions wrote. The way of a request: [`asked`] reads path and
//! query, [`route`] picks the answer, one file per subject makes it ([`status`], [`builds`],
//! [`buildsets`], [`configuration`], [`pool`], [`logs`] …), [`reply`] gives it its headers.
// The definition of a job has some fifty attributes, written as one `json!`.
#![recursion_limit = "256"]
#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a test may panic"))]

mod asked;
mod autohold;
mod board;
mod build_row;
mod builds;
mod buildsets;
mod bundle;
mod configuration;
mod detail;
mod estimate;
mod events;
mod explain;
mod filter;
mod freeze;
mod item;
mod keys;
mod ledger;
mod live;
mod load;
mod logs;
mod page;
mod pool;
mod reply;
mod route;
mod semaphores;
mod status;
mod system;
mod unbuilt;
mod variant;
mod waits;
mod why;

pub use live::{HttpLiveLogs, LIVE_BYTES_MAX, LiveLogs, LogPiece};

use asked::Asked;
use bytes::Bytes;
use estimate::Estimates;
use http::{Method, Request, Response, header};
use reply::Refusal;
use sluice_model::Timestamp;
use sluice_records::layout::Layouts;
use sluice_runtime::Ports;
use std::sync::Arc;

/// Everything the answers are made from.
pub struct Api {
    ports: Ports,
    layouts: Layouts,
    live_logs: Arc<dyn LiveLogs>,
    estimates: Estimates,
    web_root: String,
    started_at: Timestamp,
    /// Whether any page that a browser has open may read the answers.
    any_page: bool,
}

impl Api {
    /// Returns the API over these ports. `web_root` is where people find the pages, for example
    /// `https://ci.example.org/`.
    pub fn new(ports: Ports, live_logs: Arc<dyn LiveLogs>, web_root: &str) -> Self {
        let started_at = ports.clock.now();
        let web_root = format!("{}/", web_root.trim_end_matches('/'));
        let (layouts, estimates) = (Layouts::default(), Estimates::default());
        Self { ports, layouts, live_logs, estimates, web_root, started_at, any_page: true }
    }

    /// Has browsers give the answers to its own pages alone. Of a system on one's own machine
    /// nobody else was meant to read, and any page that is open in a browser there reaches it.
    #[must_use]
    pub fn for_own_pages(self) -> Self {
        Self { any_page: false, ..self }
    }

    /// Answers one request. Whatever goes wrong is an answer too: a status and JSON with `error`
    /// and `description`.
    pub async fn answer(&self, request: Request<Bytes>) -> Response<Bytes> {
        let mut response = self.answer_any_page(request).await;
        if !self.any_page {
            response.headers_mut().remove(header::ACCESS_CONTROL_ALLOW_ORIGIN);
        }
        response
    }

    async fn answer_any_page(&self, request: Request<Bytes>) -> Response<Bytes> {
        if request.method() == Method::OPTIONS {
            return reply::options();
        }
        let is_head = request.method() == Method::HEAD;
        let outcome = match Asked::read(&request) {
            Ok(asked) => route::answer(self, &asked).await,
            Err(refusal) => Err(refusal),
        };
        let mut response = outcome.unwrap_or_else(|refusal| refused(&request, &refusal));
        if is_head {
            *response.body_mut() = Bytes::new();
        }
        response
    }
}

fn refused(request: &Request<Bytes>, refusal: &Refusal) -> Response<Bytes> {
    if let Refusal::Unavailable { detail } = refusal {
        tracing::warn!(
            path = request.uri().path(),
            detail,
            "could not answer a request of the API"
        );
    }
    refusal.response()
}
