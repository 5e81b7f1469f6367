//! Reads the logs of running builds from their executors.

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use reqwest::StatusCode;
use sluice_model::BuildId;
use sluice_records::session::LiveLogServer;
use sluice_runtime::PortError;
use std::time::Duration;

/// The maximum size of a piece of a log, in bytes.
pub const LIVE_BYTES_MAX: usize = 512 << 10;

/// The timeout of a request to an executor, in seconds.
const WAIT_SECONDS: u64 = 5;

/// A piece of a log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogPiece {
    /// The bytes from the given offset; empty if there are no more yet.
    pub bytes: Bytes,
    /// The current length of the whole log.
    pub length: u64,
}

/// A source of the logs of running builds.
#[async_trait]
pub trait LiveLogSource: Send + Sync {
    /// Reads at most [`LIVE_BYTES_MAX`] bytes of a build's log from byte `offset`, from the server
    /// of an executor. Returns `None` if the build no longer runs there.
    ///
    /// # Errors
    /// When the executor does not answer, or does not accept the token.
    async fn read(
        &self,
        server: &LiveLogServer,
        build: &BuildId,
        offset: u64,
    ) -> Result<Option<LogPiece>, PortError>;
}

/// Reads logs over HTTP: `GET <address>log/<build>?offset=N` with the server's token, with the
/// length in `X-Log-Length`.
#[derive(Debug, Clone)]
pub struct HttpLiveLogSource {
    /// The client for requests to executors.
    client: reqwest::Client,
}

impl HttpLiveLogSource {
    /// Returns a reader that waits a few seconds for an executor, follows no redirect and uses no
    /// proxy.
    ///
    /// # Errors
    /// When the HTTP client cannot be set up.
    pub fn new() -> Result<Self, PortError> {
        let built = reqwest::Client::builder()
            .timeout(Duration::from_secs(WAIT_SECONDS))
            .redirect(reqwest::redirect::Policy::none())
            .no_proxy()
            .build();
        let client = built
            .map_err(|error| PortError::unknown("set up the HTTP client for live logs", error))?;
        Ok(Self { client })
    }
}

#[async_trait]
impl LiveLogSource for HttpLiveLogSource {
    /// Reads a piece over HTTP: status 404 means that the build no longer runs there. Without a
    /// length in the answer, the log ends with the bytes that were read.
    async fn read(
        &self,
        server: &LiveLogServer,
        build: &BuildId,
        offset: u64,
    ) -> Result<Option<LogPiece>, PortError> {
        let failed = |error: reqwest::Error| {
            PortError::unknown(
                format!("read the log of build {build} from its executor"),
                error.without_url(),
            )
        };
        let url = format!("{}/log/{build}?offset={offset}", server.address.trim_end_matches('/'));
        let request = self.client.get(url).bearer_auth(server.token.reveal());
        let mut response = request.send().await.map_err(failed)?;
        if response.status() == StatusCode::NOT_FOUND {
            return Ok(None);
        }
        response.error_for_status_ref().map_err(failed)?;
        let header = response.headers().get("x-log-length").and_then(|value| value.to_str().ok());
        let header: Option<u64> = header.and_then(|text| text.parse().ok());
        let mut bytes = BytesMut::new();
        while bytes.len() < LIVE_BYTES_MAX {
            let Some(chunk) = response.chunk().await.map_err(failed)? else {
                break;
            };
            bytes.extend_from_slice(&chunk);
        }
        bytes.truncate(LIVE_BYTES_MAX);
        let read = offset.saturating_add(bytes.len() as u64);
        Ok(Some(LogPiece { bytes: bytes.freeze(), length: header.unwrap_or(read).max(read) }))
    }
}
