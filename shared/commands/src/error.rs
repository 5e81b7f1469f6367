//! Why a command was not stored.

use sluice_records::BadRecord;
use sluice_records::queue::LoadError;
use sluice_runtime::PortError;

/// Why a command was not stored.
#[derive(Debug, thiserror::Error)]
pub enum StoreCommandError {
    /// What it names does not exist.
    #[error("{0}")]
    NotFound(String),
    /// It says something that cannot be carried out.
    #[error("{0}")]
    Invalid(String),
    /// Concurrent writers were faster each time.
    #[error("could not {attempt}: {what} keeps changing; try again")]
    Contended {
        /// What was attempted.
        attempt: &'static str,
        /// What keeps changing.
        what: String,
    },
    /// The store does not answer.
    #[error(transparent)]
    Store(#[from] PortError),
    /// A record cannot be read.
    #[error(transparent)]
    Record(#[from] BadRecord),
}

impl From<LoadError> for StoreCommandError {
    fn from(error: LoadError) -> Self {
        match error {
            LoadError::Port(error) => Self::Store(error),
            LoadError::Bad(bad) => Self::Record(bad),
        }
    }
}
