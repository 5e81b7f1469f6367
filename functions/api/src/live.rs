//! Logs of builds that run, as their executors serve them.

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use reqwest::StatusCode;
use sluice_model::BuildId;
use sluice_runtime::PortError;
use std::time::Duration;

/// The most bytes of a log in one answer.
pub const LIVE_BYTES_MAX: usize = 512 << 10;

/// Seconds to wait for an executor.
const WAIT_SECONDS: u64 = 5;

/// A piece of a log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogPiece {
    /// The bytes from the offset asked for; empty when there are no more yet.
    pub bytes: Bytes,
    /// The length of the whole log at that moment.
    pub length: u64,
}

/// Who can read the log of a running build.
#[async_trait]
pub trait LiveLogs: Send + Sync {
    /// Reads at most [`LIVE_BYTES_MAX`] bytes of a build's log from byte `offset`, from the
    /// executor at `address` (`http://host:port/`); `None` when the build does not run there any
    /// more.
    ///
    /// # Errors
    /// When the executor does not answer.
    async fn read(
        &self,
        address: &str,
        build: &BuildId,
        offset: u64,
    ) -> Result<Option<LogPiece>, PortError>;
}

/// Reads logs over HTTP: `GET <address>log/<build>?offset=N`, the length in `X-Log-Length`.
#[derive(Debug, Clone)]
pub struct HttpLiveLogs {
    client: reqwest::Client,
}

impl HttpLiveLogs {
    /// Returns a reader.
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
impl LiveLogs for HttpLiveLogs {
    async fn read(
        &self,
        address: &str,
        build: &BuildId,
        offset: u64,
    ) -> Result<Option<LogPiece>, PortError> {
        let failed = |error: reqwest::Error| {
            PortError::unknown(
                format!("read the log of build {build} from its executor"),
                error.without_url(),
            )
        };
        let url = format!("{}/log/{build}?offset={offset}", address.trim_end_matches('/'));
        let mut response = self.client.get(url).send().await.map_err(failed)?;
        if response.status() == StatusCode::NOT_FOUND {
            return Ok(None);
        }
        response.error_for_status_ref().map_err(failed)?;
        let told = response.headers().get("x-log-length").and_then(|value| value.to_str().ok());
        let told: Option<u64> = told.and_then(|text| text.parse().ok());
        let mut bytes = BytesMut::new();
        while bytes.len() < LIVE_BYTES_MAX {
            let Some(chunk) = response.chunk().await.map_err(failed)? else {
                break;
            };
            bytes.extend_from_slice(&chunk);
        }
        bytes.truncate(LIVE_BYTES_MAX);
        let read = offset.saturating_add(bytes.len() as u64);
        Ok(Some(LogPiece { bytes: bytes.freeze(), length: told.unwrap_or(read).max(read) }))
    }
}
