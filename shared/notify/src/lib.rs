//! Sends notifications about changes by mail and through an MQTT broker.
//!
//! Neither can say whether it has a message already, so each is delivered at least once, always
//! with the same message id.

#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a test may panic"))]

pub mod address;
mod mqtt;
mod smtp;

pub use address::{Address, AddressError, Scheme};
pub use mqtt::Mqtt;
pub use smtp::Smtp;

use async_trait::async_trait;

/// A notification channel: a mail server, a broker, or a test.
#[async_trait]
pub trait Notify: Send + Sync {
    /// Sends one message and returns when the other side has accepted it. [`NotifyError::Refused`]
    /// if it can never be sent, as with a message of the other kind; with [`NotifyError::Unknown`],
    /// it may have been sent, and the caller tries again.
    async fn notify(&self, message: &Notification) -> Result<(), NotifyError>;
}

/// A message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Notification {
    /// A mail.
    Mail(Mail),
    /// An MQTT message.
    Publication(Publication),
}

/// A mail.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mail {
    /// Its id, the same for every attempt: the part of `Message-ID` before the `@`.
    pub id: String,
    /// The sender; `None` for the connection's own.
    pub from: Option<String>,
    /// The recipients, separated by commas; `None` for the connection's own.
    pub to: Option<String>,
    /// The subject, one line.
    pub subject: String,
    /// The text.
    pub text: String,
}

/// An MQTT message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Publication {
    /// Its id, the same for every attempt. The payload contains it as well, because MQTT has no
    /// field for it.
    pub id: String,
    /// The topic.
    pub topic: String,
    /// Quality of service: 0, 1 or 2.
    pub qos: u8,
    /// The payload.
    pub payload: String,
}

/// Why a message was not sent. Contains no secret.
#[derive(Debug, thiserror::Error)]
pub enum NotifyError {
    /// It can never be sent: the other side rejects it for good, or it is invalid.
    #[error("failed to {attempted}: {why}")]
    Refused {
        /// The attempted operation.
        attempted: String,
        /// The other side's reason.
        why: String,
    },
    /// It may have been sent, and a retry may send it.
    #[error("failed to {attempted}: {why}")]
    Unknown {
        /// The attempted operation.
        attempted: String,
        /// The cause.
        why: String,
    },
}
