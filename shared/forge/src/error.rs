//! What can go wrong when a forge is asked: a closed list, because only a closed list may stop a
//! retry.

use sluice_model::ConnectionName;
use std::error::Error;

/// Why a forge did not do what it was asked. `attempted` reads like `merge example/one#3`.
///
/// [`ForgeError::verdict`] says what a caller may conclude; whatever is not understood is
/// [`ForgeError::Unknown`].
#[derive(Debug, thiserror::Error)]
pub enum ForgeError {
    /// The project, change, branch or commit does not exist, or the token may not see it.
    #[error(
        "could not {attempted}: the forge does not know it; check its name and that the token may read it"
    )]
    NotFound {
        /// What was asked, on what.
        attempted: String,
    },
    /// The forge understood and said no (branch protection, missing permission, invalid text).
    #[error("could not {attempted}: the forge refused with status {status}: {message}")]
    Refused {
        /// What was asked, on what.
        attempted: String,
        /// HTTP status of the refusal.
        status: u16,
        /// The forge's own words, at most 500 characters, and what to do where we know it.
        message: String,
    },
    /// The change's head, or the branch, is no longer the commit that was expected: plan again.
    #[error("could not {attempted}: it moved meanwhile; read it again and decide anew")]
    HeadMoved {
        /// What was asked, on what.
        attempted: String,
    },
    /// The change conflicts with its branch: its author has to mend it.
    #[error("could not {attempted}: it conflicts with its branch; it needs a rebase")]
    Conflict {
        /// What was asked, on what.
        attempted: String,
    },
    /// There is more of it than is ever read, and a part would be wrong. It would be as much the
    /// next time.
    #[error("could not {attempted}: there are over {most} of them, and no more are read")]
    TooMany {
        /// What was asked, on what.
        attempted: String,
        /// How many are read.
        most: usize,
    },
    /// Too many requests; the forge names the wait.
    #[error(
        "could not {attempted}: the forge limits our requests; ask again in {retry_after_seconds} s"
    )]
    RateLimited {
        /// What was asked, on what.
        attempted: String,
        /// How long to wait, 1 to 3600 seconds.
        retry_after_seconds: u64,
    },
    /// The token is missing, wrong or expired. It says nothing about the change, so it never ends
    /// its work.
    #[error(
        "could not {attempted}: the forge does not accept the token of the connection {connection}; store another one with `sluice connection rotate {connection} --token-file FILE`"
    )]
    Unauthorised {
        /// What was asked, on what.
        attempted: String,
        /// The connection whose token it is.
        connection: ConnectionName,
    },
    /// Anything else: no answer, half an answer, a server error, an answer that cannot be read. It
    /// may have happened.
    #[error("could not {attempted}: the outcome is unknown; it will be asked again")]
    Unknown {
        /// What was asked, on what.
        attempted: String,
        /// What was seen.
        #[source]
        source: Box<dyn Error + Send + Sync>,
    },
}

/// What a caller may conclude from a [`ForgeError`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The forge will say the same again: an outcome to act on.
    Final,
    /// Ask again, not before this many seconds.
    After {
        /// Seconds to wait.
        seconds: u64,
    },
    /// Ask again: nothing was learnt.
    Retry,
}

impl ForgeError {
    /// Returns whether asking again can help.
    pub fn verdict(&self) -> Verdict {
        match self {
            Self::NotFound { .. }
            | Self::Refused { .. }
            | Self::HeadMoved { .. }
            | Self::Conflict { .. }
            | Self::TooMany { .. } => Verdict::Final,
            Self::RateLimited { retry_after_seconds, .. } => {
                Verdict::After { seconds: *retry_after_seconds }
            }
            Self::Unauthorised { .. } | Self::Unknown { .. } => Verdict::Retry,
        }
    }

    /// Makes an [`ForgeError::Unknown`] of what was attempted and seen.
    pub fn unknown(
        attempted: impl Into<String>,
        source: impl Into<Box<dyn Error + Send + Sync>>,
    ) -> Self {
        Self::Unknown { attempted: attempted.into(), source: source.into() }
    }
}

#[cfg(test)]
mod tests {
    use super::{ForgeError, Verdict};

    #[test]
    fn only_the_closed_list_stops_a_retry() {
        let attempted = || "merge example/one#3".to_owned();
        let rows = [
            (ForgeError::NotFound { attempted: attempted() }, Verdict::Final),
            (
                ForgeError::Refused { attempted: attempted(), status: 405, message: "no".into() },
                Verdict::Final,
            ),
            (ForgeError::HeadMoved { attempted: attempted() }, Verdict::Final),
            (ForgeError::Conflict { attempted: attempted() }, Verdict::Final),
            (ForgeError::TooMany { attempted: attempted(), most: 9 }, Verdict::Final),
            (
                ForgeError::RateLimited { attempted: attempted(), retry_after_seconds: 7 },
                Verdict::After { seconds: 7 },
            ),
            (
                ForgeError::Unauthorised { attempted: attempted(), connection: "hub".into() },
                Verdict::Retry,
            ),
            (ForgeError::unknown(attempted(), "connection reset"), Verdict::Retry),
        ];
        for (error, verdict) in rows {
            assert_eq!(error.verdict(), verdict, "{error}");
            assert!(error.to_string().contains("merge example/one#3"), "{error}");
        }
    }
}
