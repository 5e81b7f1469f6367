//! The key that the pool's nodes accept: one object, its private half sealed.

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use sluice_keys::SshKeyPair;
use sluice_records::connection;
use sluice_runtime::object::PutMode;
use sluice_runtime::{PortError, Ports};

/// The object that holds it.
pub const OBJECT: &str = "system/pool-key.json";

/// What the private half is sealed for.
const CONTEXT: &str = "pool-key";

/// The key as it is stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolKey {
    /// One line for `authorized_keys`.
    pub public: String,
    /// The private half in OpenSSH's format, sealed (base64).
    private: String,
}

impl PoolKey {
    /// Reads the key; `None` when none was made yet.
    ///
    /// # Errors
    /// When it cannot be read.
    pub async fn load(ports: &Ports) -> Result<Option<Self>, PortError> {
        let Some(object) = ports.objects.get(OBJECT).await? else { return Ok(None) };
        let key = serde_json::from_slice(&object.bytes)
            .map_err(|error| PortError::unknown(format!("read {OBJECT}"), error))?;
        Ok(Some(key))
    }

    /// Reads the key, or says how one is made.
    ///
    /// # Errors
    /// When there is none, or it cannot be read.
    pub async fn needed(ports: &Ports) -> Result<Self, PortError> {
        let missing = || {
            PortError::unknown(
                format!("read {OBJECT}"),
                "there is none; `sluice connection add NAME --driver aws` makes one",
            )
        };
        Self::load(ports).await?.ok_or_else(missing)
    }

    /// Reads the key and makes it when there is none. Of two who make one at once, one wins.
    ///
    /// # Errors
    /// When it can neither be read nor made.
    pub async fn ensure(ports: &Ports) -> Result<Self, PortError> {
        if let Some(key) = Self::load(ports).await? {
            return Ok(key);
        }
        let attempt = || "make the pool's SSH key".to_owned();
        let pair = SshKeyPair::generate("sluice-pool")
            .map_err(|error| PortError::unknown(attempt(), error))?;
        let text = pair
            .private()
            .expose_text()
            .ok_or_else(|| PortError::unknown(attempt(), "it is not text"))?;
        let private = connection::seal(ports, CONTEXT, text).await?;
        let key = Self { public: pair.public_line().to_owned(), private };
        let json =
            serde_json::to_vec(&key).map_err(|error| PortError::unknown(attempt(), error))?;
        ports.objects.put(OBJECT, Bytes::from(json), PutMode::IfAbsent, "application/json").await?;
        Self::needed(ports).await
    }

    /// Opens the private half, in OpenSSH's format.
    ///
    /// # Errors
    /// When the key service refuses or does not answer.
    pub async fn open(&self, ports: &Ports) -> Result<String, PortError> {
        connection::open(ports, CONTEXT, &self.private).await
    }
}
