//! The SSH key pairs of projects and tenants (Z8.2), stored as those of secrets are
//! ([`crate::project_key`]): the object holds the public key as PEM, and behind it the sealed
//! private key. A pair is stored whole or not at all, and never replaced: hosts trust it.
//!
//! The objects lie beside the pairs of secrets: `keys/<source name>/<repo name>.ssh` for a project,
//! and `keys/<tenant>.ssh` for a tenant, whose name has no slash.

use crate::project_key::{self, KeyPairPem};
use sluice_model::{ConnectionName, ProjectName, TenantName};
use sluice_runtime::{PortError, Ports};

/// Whose SSH key pair it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SshKeyOwner<'a> {
    /// One project's, of whichever tenants have the project.
    Project(&'a ConnectionName, &'a ProjectName),
    /// One tenant's.
    Tenant(&'a TenantName),
}

impl SshKeyOwner<'_> {
    /// Returns the key of the object with the key pair, which is also the context of its seal.
    pub fn object(self) -> String {
        match self {
            Self::Project(connection, project) => {
                format!("keys/{connection}/{}.ssh", project.name())
            }
            Self::Tenant(tenant) => format!("keys/{tenant}.ssh"),
        }
    }
}

/// Reads and decrypts the private key and returns it as PEM; `None` when there is no key pair.
///
/// # Errors
/// When the store or the key service does not answer, or the caller may not decrypt.
pub async fn open(ports: &Ports, owner: SshKeyOwner<'_>) -> Result<Option<Vec<u8>>, PortError> {
    project_key::open_pair(ports, &owner.object()).await
}

/// Reads the public key as PEM (`BEGIN PUBLIC KEY`); `None` when there is no key pair. Decrypts
/// nothing.
///
/// # Errors
/// When the store does not answer, or the object has no public key.
pub async fn load_public(
    ports: &Ports,
    owner: SshKeyOwner<'_>,
) -> Result<Option<String>, PortError> {
    project_key::load_public_of_pair(ports, &owner.object(), None).await
}

/// Encrypts the private key and stores the pair, unless there is one: then nothing is written.
/// Returns the public key of the stored pair, which differs from `pair.public` if there is another
/// pair.
///
/// # Errors
/// When the store or the key service does not answer, or the public key is no PEM of one.
pub async fn store(
    ports: &Ports,
    owner: SshKeyOwner<'_>,
    pair: KeyPairPem<'_>,
) -> Result<String, PortError> {
    let key = owner.object();
    project_key::store_pair(ports, &key, pair).await?;
    load_public(ports, owner).await?.ok_or_else(|| project_key::deleted(&key))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Z8.2, Z5.2: no two pairs are in one object, whatever the names are.
    #[test]
    fn every_owner_has_an_object_of_its_own() {
        let (connection, project) = ("acme".into(), ProjectName::from("host/acme"));
        let of_project = SshKeyOwner::Project(&connection, &project).object();
        let of_tenant = SshKeyOwner::Tenant(&"acme".into()).object();
        let of_secrets = project_key::object(&connection, &project);
        assert_eq!(of_project, "keys/acme/acme.ssh");
        assert_eq!(of_tenant, "keys/acme.ssh");
        assert_eq!(of_secrets, "keys/acme/acme.pem");
    }
}
