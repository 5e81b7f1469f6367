//! Tells people and programs what became of a change where no forge shows it: by mail, and through
//! an MQTT broker.
//!
//! Neither can be asked whether a message is there already, so each arrives at least once, always
//! under the same message id.

#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a test may panic"))]

pub mod address;
mod mqtt;
mod smtp;

pub use address::{Address, AddressError, Scheme};
pub use mqtt::Mqtt;
pub use smtp::Smtp;

use async_trait::async_trait;

/// Somebody who passes messages on: a mail server, a broker, or a test.
#[async_trait]
pub trait Notify: Send + Sync {
    /// Passes one message on, and returns when the other side has taken it.
    async fn notify(&self, message: &Message) -> Result<(), NotifyError>;
}

/// A message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Message {
    /// By mail.
    Mail(Mail),
    /// To a broker.
    Publication(Publication),
}

/// A mail.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mail {
    /// Its id, the same for every attempt: what stands before the `@` of `Message-ID`.
    pub id: String,
    /// The sender; `None` for the connection's.
    pub from: Option<String>,
    /// The receivers, separated by commas; `None` for the connection's.
    pub to: Option<String>,
    /// The subject, one line.
    pub subject: String,
    /// The text.
    pub text: String,
}

/// A message of MQTT.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Publication {
    /// Its id, the same for every attempt; the payload holds it as well, for MQTT has no place for
    /// it.
    pub id: String,
    /// The topic.
    pub topic: String,
    /// Quality of service: 0, 1 or 2.
    pub qos: u8,
    /// The payload.
    pub payload: String,
}

/// Why a message was not passed on. No secret is part of it.
#[derive(Debug, thiserror::Error)]
pub enum NotifyError {
    /// It never will be: the other side refuses it for good, or nobody could send it.
    #[error("failed to {attempted}: {why}")]
    Refused {
        /// What was attempted, on what.
        attempted: String,
        /// Why, in the other side's words.
        why: String,
    },
    /// It may have been, or will be later.
    #[error("failed to {attempted}: {why}")]
    Unknown {
        /// What was attempted, on what.
        attempted: String,
        /// What was seen.
        why: String,
    },
}
