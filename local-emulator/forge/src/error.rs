//! What the forge answers when it cannot do something, in GitHub's words and statuses.

use crate::git::GitError;
use crate::store::ForgeStoreError;

/// Why a request, or a call of the Rust interface, was not carried out.
#[derive(Debug, thiserror::Error)]
pub enum ApiError {
    /// The request is refused with this HTTP status; the message is what GitHub would say.
    #[error("the forge answered {status}: {message}")]
    Refused {
        /// HTTP status, 400 to 499.
        status: u16,
        /// GitHub's words.
        message: String,
    },
    /// Git failed.
    #[error(transparent)]
    Git(#[from] GitError),
    /// The database failed.
    #[error(transparent)]
    Store(#[from] ForgeStoreError),
}

impl ApiError {
    /// Returns an error with a status and message.
    pub(crate) fn refused(status: u16, message: impl Into<String>) -> Self {
        Self::Refused { status, message: message.into() }
    }

    /// Returns a refusal with status 404 and GitHub's message for it.
    pub(crate) fn not_found() -> Self {
        Self::refused(404, "Not Found")
    }

    /// Returns the error with status 422 for an invalid request.
    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self::refused(422, message)
    }
}
