//! The clock and the random numbers of the operating system.

use sluice_model::Timestamp;
use sluice_runtime::{Clock, Entropy};
use std::time::{SystemTime, UNIX_EPOCH};

/// The system's clock.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    /// Returns the time of the system's clock; the epoch if that is before 1970.
    fn now(&self) -> Timestamp {
        // A clock before 1970 is set wrong; deadlines then all lie ahead, which delays and corrupts
        // nothing.
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Timestamp(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
    }
}

/// The operating system's randomness.
#[derive(Debug, Clone, Copy, Default)]
pub struct OsEntropy;

impl Entropy for OsEntropy {
    /// Returns 32 random hexadecimal digits, unique in practice.
    ///
    /// # Panics
    /// When the operating system returns no random bytes: writes could then not be distinguished.
    #[expect(
        clippy::expect_used,
        reason = "AWS-LC ends the process itself when the system gives no randomness"
    )]
    fn token(&self) -> String {
        let mut bytes = [0; 16];
        aws_lc_rs::rand::fill(&mut bytes).expect("the operating system returns random bytes");
        hex::encode(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_has_32_hexadecimal_digits_and_is_drawn_once() {
        let (one, two) = (OsEntropy.token(), OsEntropy.token());
        assert_eq!(one.len(), 32);
        assert!(one.bytes().all(|byte| byte.is_ascii_hexdigit()));
        assert_ne!(one, two);
    }
}
