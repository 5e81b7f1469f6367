//! Reads the public keys of OpenID providers: through the provider's discovery document, or at an
//! address that the operator gave.

use async_trait::async_trait;
use bytes::Bytes;
use serde_json::Value;
use sluice_auth::{Authenticator, AuthenticatorDriver, IssuerKey, parse_keys};
use sluice_records::authenticators::is_trusted_address;
use sluice_runtime::PortError;
use std::time::Duration;

/// The maximum size of a provider's answer, in bytes.
const ANSWER_BYTES_MAX: usize = 1 << 20;

/// How long a provider has to answer. Requests with a token wait for it.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Reads documents of OpenID providers.
#[async_trait]
pub trait IssuerDocuments: Send + Sync {
    /// Reads the document at an address. Follows no redirection.
    ///
    /// # Errors
    /// When the provider does not answer with a document.
    async fn read(&self, address: &str) -> Result<Bytes, PortError>;
}

/// Reads documents over HTTP.
#[derive(Debug, Clone)]
pub struct HttpIssuerDocuments {
    client: reqwest::Client,
}

impl HttpIssuerDocuments {
    /// Creates the reader, which waits a few seconds for a provider and follows no redirection.
    ///
    /// # Errors
    /// When the HTTP client cannot be set up.
    pub fn new() -> Result<Self, PortError> {
        let client = reqwest::Client::builder()
            .timeout(TIMEOUT)
            .redirect(reqwest::redirect::Policy::none())
            .build()
            .map_err(|error| PortError::unknown("set up the client of OpenID providers", error))?;
        Ok(Self { client })
    }
}

#[async_trait]
impl IssuerDocuments for HttpIssuerDocuments {
    async fn read(&self, address: &str) -> Result<Bytes, PortError> {
        let failed = |why: String| PortError::unknown(format!("read {address}"), why);
        let response = self.client.get(address).send().await;
        let mut response = response.map_err(|error| failed(error.to_string()))?;
        if !response.status().is_success() {
            return Err(failed(format!("it answers with status {}", response.status().as_u16())));
        }
        let mut body = Vec::new();
        while let Some(piece) = response.chunk().await.map_err(|error| failed(error.to_string()))? {
            if body.len() + piece.len() > ANSWER_BYTES_MAX {
                return Err(failed(format!("its answer exceeds {ANSWER_BYTES_MAX} bytes")));
            }
            body.extend_from_slice(&piece);
        }
        Ok(body.into())
    }
}

/// Reads no documents: tokens of OpenID providers are refused as unavailable.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct NoIssuerDocuments;

#[async_trait]
impl IssuerDocuments for NoIssuerDocuments {
    async fn read(&self, address: &str) -> Result<Bytes, PortError> {
        Err(PortError::unknown(format!("read {address}"), "no HTTP client is set up"))
    }
}

/// Reads the keys of an authenticator's OpenID provider. Without an address of the keys, the
/// provider's discovery document names it; that must be the document of the same issuer. Both must
/// come over https or from this machine.
pub(crate) async fn read_keys(
    documents: &dyn IssuerDocuments,
    authenticator: &Authenticator,
) -> Result<Vec<IssuerKey>, PortError> {
    let failed = |why: &str| {
        PortError::unknown(
            format!("read the keys of {}", authenticator.issuer_id),
            format!("{why}; check the authenticator {}", authenticator.name),
        )
    };
    let address = match &authenticator.driver {
        AuthenticatorDriver::OpenIDConnect { keys_url: Some(address), .. } => address.clone(),
        AuthenticatorDriver::OpenIDConnect { keys_url: None, .. } => {
            let issuer = authenticator.issuer_id.trim_end_matches('/');
            let address = format!("{issuer}/.well-known/openid-configuration");
            if !is_trusted_address(&address) {
                return Err(failed("the issuer is no https address"));
            }
            let document: Value = serde_json::from_slice(&documents.read(&address).await?)
                .map_err(|_| failed("its discovery document is no JSON"))?;
            if document.get("issuer").and_then(Value::as_str) != Some(&authenticator.issuer_id) {
                return Err(failed("its discovery document names another issuer"));
            }
            let keys = document.get("jwks_uri").and_then(Value::as_str);
            keys.ok_or_else(|| failed("its discovery document names no keys"))?.to_owned()
        }
        AuthenticatorDriver::Hs256 | AuthenticatorDriver::Rs256 => return Ok(Vec::new()),
    };
    if !is_trusted_address(&address) {
        return Err(failed("the address of its keys is no https address"));
    }
    parse_keys(&documents.read(&address).await?).ok_or_else(|| failed("it sends no key set"))
}
