//! The SSH key pair of the node pool: one stored object with an encrypted private key.

use crate::connection;
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use sluice_runtime::object::PutMode;
use sluice_runtime::{PortError, Ports};

/// The key of the object.
pub const OBJECT: &str = "system/pool-key.json";

/// The encryption context of the private key.
const CONTEXT: &str = "pool-key";

/// The stored key pair.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolKey {
    /// The public key as a line of `authorized_keys`.
    pub public: String,
    /// The encrypted private key in OpenSSH's format (base64).
    private: String,
}

impl PoolKey {
    /// Reads the key pair, with the private key still encrypted; `None` if there is none yet. An
    /// object that cannot be decoded is an error.
    ///
    /// # Errors
    /// When the object cannot be read.
    pub async fn load(ports: &Ports) -> Result<Option<Self>, PortError> {
        let Some(object) = ports.objects.get(OBJECT).await? else { return Ok(None) };
        let key = serde_json::from_slice(&object.bytes)
            .map_err(|error| PortError::unknown(format!("read {OBJECT}"), error))?;
        Ok(Some(key))
    }

    /// Reads the key pair, with the private key still encrypted. If there is none, returns an error
    /// that says how to create it.
    ///
    /// # Errors
    /// When there is none, or it cannot be read.
    pub async fn load_required(ports: &Ports) -> Result<Self, PortError> {
        let missing = || {
            PortError::unknown(
                format!("read {OBJECT}"),
                "there is none; create it with `sluice connection add NAME --driver aws`",
            )
        };
        Self::load(ports).await?.ok_or_else(missing)
    }

    /// Encrypts and stores a new key pair, unless there is one: of concurrent callers the first one
    /// wins. Succeeds in both cases, so the caller reads the stored pair afterwards.
    ///
    /// # Errors
    /// When the key service or the store does not answer.
    pub async fn store(ports: &Ports, public: &str, private: &str) -> Result<(), PortError> {
        let private = connection::seal(ports, CONTEXT, private).await?;
        let key = Self { public: public.to_owned(), private };
        let json = serde_json::to_vec(&key)
            .map_err(|error| PortError::unknown("make the pool's SSH key".to_owned(), error))?;
        ports.objects.put(OBJECT, Bytes::from(json), PutMode::IfAbsent, "application/json").await?;
        Ok(())
    }

    /// Decrypts the private key and returns it in OpenSSH's format.
    ///
    /// # Errors
    /// When the key service refuses or does not answer.
    pub async fn open(&self, ports: &Ports) -> Result<String, PortError> {
        connection::open(ports, CONTEXT, &self.private).await
    }
}
