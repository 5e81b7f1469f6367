//! Encryption at rest with KMS, bound to a context that is required for decryption.

use crate::endpoint::DataService;
use crate::failure::failed;
use crate::limits;
use crate::settings::AwsSettings;
use async_trait::async_trait;
use aws_config::SdkConfig;
use aws_sdk_kms::Client;
use aws_sdk_kms::primitives::Blob;
use sluice_runtime::{PortError, Seal};

/// The one key of the encryption context; its value is the port's context.
const CONTEXT_KEY: &str = "sluice";
/// The most bytes that KMS encrypts in one call.
const PLAIN_BYTES_MAX: usize = 4096;

pub(crate) struct KmsSeal {
    client: Client,
    key_id: String,
}

impl KmsSeal {
    /// Creates the port onto the KMS key that `settings` name; makes no requests.
    pub(crate) fn new(sdk_config: &SdkConfig, settings: &AwsSettings) -> Self {
        let config = aws_sdk_kms::config::Builder::from(sdk_config)
            .retry_config(limits::retries())
            .timeout_config(limits::timeouts());
        Self { client: Client::from_conf(config.build()), key_id: settings.key_id.clone() }
    }
}

#[async_trait]
impl Seal for KmsSeal {
    /// Encrypts 1 to 4096 bytes, the limit of KMS; any other length is an error. The same `context`
    /// is required to open the result.
    async fn seal(&self, context: &str, plain: &[u8]) -> Result<Vec<u8>, PortError> {
        let attempt = || format!("seal {context}");
        if plain.is_empty() || plain.len() > PLAIN_BYTES_MAX {
            return Err(PortError::unknown(
                attempt(),
                format!("it has {} bytes; KMS takes 1 to {PLAIN_BYTES_MAX}", plain.len()),
            ));
        }
        let sealed = self
            .client
            .encrypt()
            .key_id(&self.key_id)
            .plaintext(Blob::new(plain))
            .encryption_context(CONTEXT_KEY, context)
            .send()
            .await
            .map_err(|error| failed(DataService::Kms, attempt(), error))?;
        let blob = sealed
            .ciphertext_blob
            .ok_or_else(|| PortError::unknown(attempt(), "KMS answered without a ciphertext"))?;
        Ok(blob.into_inner())
    }

    /// Decrypts the output of [`Self::seal`]. An error if it was sealed under another `context`.
    async fn open(&self, context: &str, sealed: &[u8]) -> Result<Vec<u8>, PortError> {
        let attempt = || format!("open the sealed {context}");
        let opened = self
            .client
            .decrypt()
            .key_id(&self.key_id)
            .ciphertext_blob(Blob::new(sealed))
            .encryption_context(CONTEXT_KEY, context)
            .send()
            .await
            .map_err(|error| failed(DataService::Kms, attempt(), error))?;
        let blob = opened
            .plaintext
            .ok_or_else(|| PortError::unknown(attempt(), "KMS answered without a plaintext"))?;
        Ok(blob.into_inner())
    }
}
