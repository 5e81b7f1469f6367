//! Generates the SSH key pair of the node pool.

use sluice_keys::SshKeyPair;
use sluice_records::pool_key::PoolKey;
use sluice_runtime::{PortError, Ports};

/// Generates and stores the SSH key pair of the node pool. Does nothing if there is one already; a
/// pair that a concurrent caller stores first is kept.
///
/// # Errors
/// When the key pair can be neither read nor created.
pub async fn ensure(ports: &Ports) -> Result<(), PortError> {
    if PoolKey::load(ports).await?.is_some() {
        return Ok(());
    }
    let attempt = || "make the pool's SSH key".to_owned();
    let pair = SshKeyPair::generate("sluice-pool")
        .map_err(|error| PortError::unknown(attempt(), error))?;
    let private = pair
        .private()
        .expose_text()
        .ok_or_else(|| PortError::unknown(attempt(), "it is not text"))?;
    PoolKey::store(ports, pair.public_line(), private).await
}
