//! The key pairs that sign the OIDC tokens of jobs (a secret's `oidc`), stored as those of projects
//! are ([`crate::project_key`]).
//!
//! Each week has a pair of its own, in the object `oidc/rs256-<number of the week>.pem`. So keys
//! rotate without a process that rotates them: a pair is made when it is first needed, and is not
//! used in the week after. The public keys of the next week, of this one and of the two before are
//! published, so that verifiers know a key before it signs, and as long as its tokens are valid.

use crate::project_key::{self, KeyPairPem};
use sluice_model::Timestamp;
use sluice_runtime::{PortError, Ports};

/// Seconds for which one pair signs: a week, as Zuul's default.
pub const ROTATION_SECONDS: u64 = 604_800;
/// The longest life of a token in seconds: its key is published for two weeks after its own.
pub const TTL_SECONDS_MAX: u64 = 2 * ROTATION_SECONDS;

/// The time for which one pair signs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SigningPeriod(u64);

impl SigningPeriod {
    /// Returns the period that contains a time.
    pub fn of(now: Timestamp) -> Self {
        Self(now.0 / 1_000 / ROTATION_SECONDS)
    }

    /// Returns the period after this one, whose pair is published before it signs.
    pub fn next(self) -> Self {
        Self(self.0 + 1)
    }

    /// Returns the periods whose public keys are published in this one, the newest first.
    pub fn published(self) -> [Self; 4] {
        [self.next(), self, Self(self.0.saturating_sub(1)), Self(self.0.saturating_sub(2))]
    }

    /// Returns the key of the object with the period's pair, which is also the context of its seal.
    pub fn object(self) -> String {
        format!("oidc/rs256-{}.pem", self.0)
    }
}

/// Reads and decrypts the private key of a period and returns it as PEM; `None` when it has no
/// pair.
///
/// # Errors
/// When the store or the key service does not answer, or the caller may not decrypt.
pub async fn open(ports: &Ports, period: SigningPeriod) -> Result<Option<Vec<u8>>, PortError> {
    project_key::open_pair(ports, &period.object()).await
}

/// Reads the public key of a period as PEM; `None` when it has no pair.
///
/// # Errors
/// When the store does not answer, or the object has no public key.
pub async fn load_public(
    ports: &Ports,
    period: SigningPeriod,
) -> Result<Option<String>, PortError> {
    project_key::load_public_of_pair(ports, &period.object(), None).await
}

/// Encrypts the private key and stores the pair of a period, unless it has one. Returns the public
/// key of the stored pair.
///
/// # Errors
/// When the store or the key service does not answer, or the public key is no PEM of one.
pub async fn store(
    ports: &Ports,
    period: SigningPeriod,
    pair: KeyPairPem<'_>,
) -> Result<String, PortError> {
    let key = period.object();
    project_key::store_pair(ports, &key, pair).await?;
    load_public(ports, period).await?.ok_or_else(|| project_key::deleted(&key))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Z5.5: a token that was signed at the very end of a period is verified until it expires, by
    /// keys that were published before they signed.
    #[test]
    fn a_key_is_published_before_it_signs_and_as_long_as_its_tokens_live() {
        let at = |seconds: u64| SigningPeriod::of(Timestamp(seconds * 1_000));
        let last = 7 * ROTATION_SECONDS + ROTATION_SECONDS - 1;
        assert_eq!(at(7 * ROTATION_SECONDS), at(last));
        assert_ne!(at(last), at(last + 1));
        for later in [0, 1, TTL_SECONDS_MAX] {
            assert!(at(last + later).published().contains(&at(last)), "{later}");
        }
        assert!(at(6 * ROTATION_SECONDS).published().contains(&at(last)), "before it signs");
        assert!(!at(last + TTL_SECONDS_MAX + 1).published().contains(&at(last)));
    }
}
