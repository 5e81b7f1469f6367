//! The key pairs of projects (Z5.2): the object `keys/<source name>/<repo name>.pem` holds the
//! public key as PEM, and behind it the sealed private key. A pair is stored whole or not at all.
//!
//! A stored pair is never replaced: secrets encrypted for it would be lost. Of a pair that was
//! stored as a sealed private key alone, the public key is in `….pub`.

use bytes::Bytes;
use sluice_model::{ConnectionName, ProjectName};
use sluice_runtime::object::PutMode;
use sluice_runtime::{PortError, Ports};

/// The first line of a public key.
const BEGIN: &[u8] = b"-----BEGIN PUBLIC KEY-----\n";
/// The last line of a public key, behind which the sealed private key begins.
const END: &[u8] = b"-----END PUBLIC KEY-----\n";

/// Returns the key of the object with the key pair, which is also the context of its seal.
pub fn object(connection: &ConnectionName, project: &ProjectName) -> String {
    format!("keys/{connection}/{}.pem", project.name())
}

/// Reads and decrypts the private key of a project and returns it as PEM; `None` when the project
/// has no key pair.
///
/// # Errors
/// When the store or the key service does not answer, or the caller may not decrypt.
pub async fn open(
    ports: &Ports,
    connection: &ConnectionName,
    project: &ProjectName,
) -> Result<Option<Vec<u8>>, PortError> {
    open_pair(ports, &object(connection, project)).await
}

/// Does the same as [`open`] for the pair in the object `key`.
pub(crate) async fn open_pair(ports: &Ports, key: &str) -> Result<Option<Vec<u8>>, PortError> {
    let Some(stored) = ports.objects.get(key).await? else { return Ok(None) };
    ports.seal.open(key, parts(&stored.bytes).sealed).await.map(Some)
}

/// Reads the public key of a project as PEM; `None` when the project has no key pair. Decrypts
/// nothing.
///
/// # Errors
/// When the store does not answer, or the object has no public key.
pub async fn load_public(
    ports: &Ports,
    connection: &ConnectionName,
    project: &ProjectName,
) -> Result<Option<String>, PortError> {
    let beside = format!("keys/{connection}/{}.pub", project.name());
    load_public_of_pair(ports, &object(connection, project), Some(&beside)).await
}

/// Does the same as [`load_public`] for the pair in the object `key`. `beside` is the object with
/// the public key of a pair that was stored as a private key alone.
pub(crate) async fn load_public_of_pair(
    ports: &Ports,
    key: &str,
    beside: Option<&str>,
) -> Result<Option<String>, PortError> {
    let Some(stored) = ports.objects.get(key).await? else { return Ok(None) };
    let public = match (parts(&stored.bytes).public, beside) {
        (Some(public), _) => Some(Bytes::copy_from_slice(public)),
        (None, Some(beside)) => ports.objects.get(beside).await?.map(|object| object.bytes),
        (None, None) => None,
    };
    let text = public.and_then(|public| String::from_utf8(public.to_vec()).ok());
    let damaged = "it has no public key; restore the object from a backup";
    text.map(Some)
        .ok_or_else(|| PortError::unknown(format!("read the public key in {key}"), damaged))
}

/// Encrypts the private key and stores the pair, both given as PEM, unless the project has a pair:
/// then nothing is written. Returns the public key of the stored pair, which differs from `public`
/// if the project has another pair.
///
/// # Errors
/// When the store or the key service does not answer, or `public` is no PEM of a public key.
pub async fn store(
    ports: &Ports,
    connection: &ConnectionName,
    project: &ProjectName,
    pair: KeyPairPem<'_>,
) -> Result<String, PortError> {
    store_pair(ports, &object(connection, project), pair).await?;
    let stored = load_public(ports, connection, project).await?;
    stored.ok_or_else(|| deleted(&object(connection, project)))
}

/// Encrypts the private key and stores the pair in the object `key`, unless it exists.
pub(crate) async fn store_pair(
    ports: &Ports,
    key: &str,
    pair: KeyPairPem<'_>,
) -> Result<(), PortError> {
    let sealed = ports.seal.seal(key, pair.private).await?;
    let content = Bytes::from([pair.public.as_bytes(), &sealed].concat());
    if parts(&content).public != Some(pair.public.as_bytes()) {
        let why = "the public key is not PEM that begins with BEGIN PUBLIC KEY";
        return Err(PortError::unknown(format!("store {key}"), why));
    }
    let put = ports.objects.put(key, content, PutMode::IfAbsent, "application/octet-stream");
    put.await.map(drop)
}

/// Returns the error for a pair that is gone just after it was stored.
pub(crate) fn deleted(key: &str) -> PortError {
    PortError::unknown(format!("read {key}"), "it was deleted meanwhile; try again")
}

/// A key pair to store. It has no `Debug`, because it holds a private key.
#[derive(Clone, Copy)]
pub struct KeyPairPem<'a> {
    /// The private key as PEM.
    pub private: &'a [u8],
    /// Its public key as PEM (`BEGIN PUBLIC KEY`), which ends with a line break.
    pub public: &'a str,
}

/// The parts of the object with a key pair.
struct PairParts<'a> {
    /// The public key as PEM; `None` when only the private key is stored.
    public: Option<&'a [u8]>,
    /// The sealed private key.
    sealed: &'a [u8],
}

/// Returns the parts of the object with a key pair.
fn parts(content: &[u8]) -> PairParts<'_> {
    let end = content
        .starts_with(BEGIN)
        .then(|| content.windows(END.len()).position(|window| window == END))
        .flatten();
    match end.and_then(|end| content.split_at_checked(end + END.len())) {
        Some((public, sealed)) => PairParts { public: Some(public), sealed },
        None => PairParts { public: None, sealed: content },
    }
}
