//! The key pairs of projects: `keys/<source name>/<repo name>.pem` holds the sealed private key,
//! and `….pub` the public key (Z5.2).
//!
//! An existing private key is never replaced: secrets encrypted for it would be lost.

use bytes::Bytes;
use sluice_model::{ConnectionName, ProjectName};
use sluice_runtime::object::{PutMode, PutOutcome};
use sluice_runtime::{PortError, Ports};

/// Returns the object with the sealed private key.
pub fn private_object(connection: &ConnectionName, project: &ProjectName) -> String {
    format!("keys/{connection}/{}.pem", project.name())
}

/// Returns the object with the public key.
pub fn public_object(connection: &ConnectionName, project: &ProjectName) -> String {
    format!("keys/{connection}/{}.pub", project.name())
}

/// Reads and decrypts the private key of a project and returns it as PEM; `None` when the project
/// has no key pair.
///
/// # Errors
/// When the store or the key service does not answer.
pub async fn open(
    ports: &Ports,
    connection: &ConnectionName,
    project: &ProjectName,
) -> Result<Option<Vec<u8>>, PortError> {
    let key = private_object(connection, project);
    let Some(object) = ports.objects.get(&key).await? else { return Ok(None) };
    ports.seal.open(&key, &object.bytes).await.map(Some)
}

/// Encrypts and stores a private key, given as PEM, unless the project has one already: then
/// nothing is written and the outcome is [`PutOutcome::ConditionFailed`].
///
/// # Errors
/// When the store or the key service does not answer.
pub async fn store(
    ports: &Ports,
    connection: &ConnectionName,
    project: &ProjectName,
    private: &[u8],
) -> Result<PutOutcome, PortError> {
    let key = private_object(connection, project);
    let sealed = ports.seal.seal(&key, private).await?;
    ports
        .objects
        .put(&key, Bytes::from(sealed), PutMode::IfAbsent, "application/octet-stream")
        .await
}

/// Stores the public key, which the caller derived from the private one, in place of an earlier
/// one.
///
/// # Errors
/// When the store does not answer.
pub async fn publish(
    ports: &Ports,
    connection: &ConnectionName,
    project: &ProjectName,
    public: &str,
) -> Result<(), PortError> {
    let key = public_object(connection, project);
    ports
        .objects
        .put(&key, Bytes::from(public.to_owned()), PutMode::Always, "text/plain")
        .await
        .map(drop)
}
