//! The errors of forge calls. The list is closed, because only known errors may stop a retry.

use sluice_model::ConnectionName;
use std::error::Error;

/// Why a forge call failed. `attempted` reads like `merge example/one#3`.
///
/// [`ForgeError::class`] says what a caller may conclude; an error that is not understood is
/// [`ForgeError::Unknown`].
#[derive(Debug, thiserror::Error)]
pub enum ForgeError {
    /// The project, change, branch or commit does not exist, or the token may not see it.
    #[error(
        "could not {attempted}: the forge does not know it; check its name and that the token may \
         read it"
    )]
    NotFound {
        /// The attempted operation.
        attempted: String,
    },
    /// The forge refused the request (branch protection, missing permission, invalid text).
    #[error("could not {attempted}: the forge refused with status {status}: {message}")]
    Refused {
        /// The attempted operation.
        attempted: String,
        /// HTTP status of the refusal.
        status: u16,
        /// The forge's message, at most 500 characters, with a hint where one is known.
        message: String,
    },
    /// The change's head, or the branch, is not at the expected commit any more: plan again.
    #[error("could not {attempted}: it moved meanwhile; read it again and plan again")]
    HeadMoved {
        /// The attempted operation.
        attempted: String,
    },
    /// The change conflicts with its branch: its author has to rebase it.
    #[error("could not {attempted}: it conflicts with its branch; it needs a rebase")]
    Conflict {
        /// The attempted operation.
        attempted: String,
    },
    /// The list is longer than is ever read, and a part of it would be wrong. A retry would not
    /// help.
    #[error("could not {attempted}: there are more than {most} of them, which is the limit")]
    TooMany {
        /// The attempted operation.
        attempted: String,
        /// The limit.
        most: usize,
    },
    /// Too many requests; the forge says how long to wait.
    #[error("could not {attempted}: the forge limits requests; retry in {retry_after_seconds} s")]
    RateLimited {
        /// The attempted operation.
        attempted: String,
        /// How long to wait, 1 to 3600 seconds.
        retry_after_seconds: u64,
    },
    /// The token is missing, wrong or expired. The change is not affected, so its work does not
    /// end.
    #[error(
        "could not {attempted}: the forge does not accept the token of the connection \
         {connection}; store another one with `sluice connection rotate {connection} --token-file \
         FILE`"
    )]
    Unauthorised {
        /// The attempted operation.
        attempted: String,
        /// The connection whose token it is.
        connection: ConnectionName,
    },
    /// Any other error: no answer, an incomplete one, a server error, an unreadable answer. The
    /// request may have had its effect.
    #[error("could not {attempted}: the outcome is unknown; it will be retried")]
    Unknown {
        /// The attempted operation.
        attempted: String,
        /// The cause.
        #[source]
        source: Box<dyn Error + Send + Sync>,
    },
}

/// What the caller of a forge does with the message it is processing after a [`ForgeError`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorClass {
    /// The caller acts on the answer and acknowledges the message: another call would get the same.
    Final,
    /// The forge asked for a pause: the message is delivered again, but not before these seconds.
    RedeliverAfter {
        /// Seconds to wait.
        seconds: u64,
    },
    /// The outcome is transient or unknown: the message is delivered again.
    Redeliver,
}

impl ForgeError {
    /// Returns what the caller does with the message it is processing: a pause that the forge asked
    /// for, a redelivery for a refused token or an unknown outcome, and no retry for all other
    /// errors.
    pub fn class(&self) -> ErrorClass {
        match self {
            Self::NotFound { .. }
            | Self::Refused { .. }
            | Self::HeadMoved { .. }
            | Self::Conflict { .. }
            | Self::TooMany { .. } => ErrorClass::Final,
            Self::RateLimited { retry_after_seconds, .. } => {
                ErrorClass::RedeliverAfter { seconds: *retry_after_seconds }
            }
            Self::Unauthorised { .. } | Self::Unknown { .. } => ErrorClass::Redeliver,
        }
    }

    /// Returns a [`ForgeError::Unknown`] with its attempt and cause. The request may have had its
    /// effect.
    pub fn unknown(
        attempted: impl Into<String>,
        source: impl Into<Box<dyn Error + Send + Sync>>,
    ) -> Self {
        Self::Unknown { attempted: attempted.into(), source: source.into() }
    }
}

#[cfg(test)]
mod tests {
    use super::{ErrorClass, ForgeError};

    #[test]
    fn only_the_closed_list_stops_a_retry() {
        let attempted = || "merge example/one#3".to_owned();
        let rows = [
            (ForgeError::NotFound { attempted: attempted() }, ErrorClass::Final),
            (
                ForgeError::Refused { attempted: attempted(), status: 405, message: "no".into() },
                ErrorClass::Final,
            ),
            (ForgeError::HeadMoved { attempted: attempted() }, ErrorClass::Final),
            (ForgeError::Conflict { attempted: attempted() }, ErrorClass::Final),
            (ForgeError::TooMany { attempted: attempted(), most: 9 }, ErrorClass::Final),
            (
                ForgeError::RateLimited { attempted: attempted(), retry_after_seconds: 7 },
                ErrorClass::RedeliverAfter { seconds: 7 },
            ),
            (
                ForgeError::Unauthorised { attempted: attempted(), connection: "hub".into() },
                ErrorClass::Redeliver,
            ),
            (ForgeError::unknown(attempted(), "connection reset"), ErrorClass::Redeliver),
        ];
        for (error, class) in rows {
            assert_eq!(error.class(), class, "{error}");
            assert!(error.to_string().contains("merge example/one#3"), "{error}");
        }
    }
}
