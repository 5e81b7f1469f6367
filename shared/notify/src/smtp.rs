//! Sends mail through a server.

use crate::address::{Address, Scheme};
use crate::{Mail, Notification, Notify, NotifyError};
use async_trait::async_trait;
use lettre::message::header::ContentType;
use lettre::message::{Mailbox, Mailboxes};
use lettre::transport::smtp::authentication::Credentials;
use lettre::transport::smtp::client::{Tls, TlsParameters};
use lettre::{AsyncSmtpTransport, AsyncTransport as _, Message as Letter, Tokio1Executor};
use sluice_keys::Secret;
use std::time::Duration;

/// Seconds to wait for the server's answer to each command.
const TIMEOUT_SECONDS: u64 = 20;

/// A mail server.
pub struct Smtp {
    /// The address of the server, with sender and recipients.
    address: Address,
    /// The client for the server.
    transport: AsyncSmtpTransport<Tokio1Executor>,
}

impl Smtp {
    /// Creates a channel to a mail server; connects only for each mail. The server must offer
    /// encryption, unless it is on this machine and the address is `smtp`: then none is used. An
    /// error if TLS cannot be set up, if only one of user and password is given, or if the password
    /// is no text.
    ///
    /// # Errors
    ///
    /// When TLS cannot be set up, or a user is given without a password.
    pub fn new(
        address: Address,
        user: Option<&str>,
        password: Option<&Secret>,
    ) -> Result<Self, NotifyError> {
        let refused = |why: &str| NotifyError::Refused {
            attempted: format!("prepare mail through {}", address.host),
            why: why.to_owned(),
        };
        let credentials = match (user, password.map(Secret::expose_text)) {
            (None, None) => None,
            (Some(user), Some(Some(password))) => {
                Some(Credentials::new(user.to_owned(), password.to_owned()))
            }
            (_, Some(None)) => return Err(refused("the password is no text")),
            _ => return Err(refused("user and password belong together")),
        };
        let parameters = || {
            TlsParameters::new(address.host.clone())
                .map_err(|error| refused(&format!("no TLS: {error}")))
        };
        let tls = match address.scheme {
            Scheme::Smtps => Tls::Wrapper(parameters()?),
            // The connection does not leave this machine, and local relays rarely have a
            // certificate.
            _ if address.is_here() => Tls::None,
            _ => Tls::Required(parameters()?),
        };
        let mut builder = AsyncSmtpTransport::<Tokio1Executor>::builder_dangerous(&address.host)
            .port(address.port)
            .tls(tls)
            .timeout(Some(Duration::from_secs(TIMEOUT_SECONDS)));
        if let Some(credentials) = credentials {
            builder = builder.credentials(credentials);
        }
        Ok(Self { transport: builder.build(), address })
    }

    /// Builds the mail with its headers, as plain text; the connection's sender and recipients
    /// count where the mail has none. Control characters in the subject become spaces. An error for
    /// a missing or invalid sender or recipient.
    fn letter(&self, mail: &Mail) -> Result<Letter, String> {
        let from = mail.from.as_ref().or(self.address.from.as_ref());
        let from =
            from.ok_or("the mail has no sender: set `from` in the reporter or the connection")?;
        let to = mail.to.as_ref().or(self.address.to.as_ref());
        let to =
            to.ok_or("the mail has no recipient: set `to` in the reporter or the connection")?;
        let from: Mailbox =
            from.parse().map_err(|error| format!("the sender {from:?} is no address: {error}"))?;
        let to: Mailboxes =
            to.parse().map_err(|error| format!("the receiver {to:?} is no address: {error}"))?;
        let id = format!("<{}@{}>", mail.id, from.email.domain());
        // A line break in a subject would begin another header.
        let subject: String =
            mail.subject.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        let letter =
            to.into_iter().fold(Letter::builder().from(from), |letter, one| letter.to(one));
        let letter = letter.message_id(Some(id)).subject(subject).header(ContentType::TEXT_PLAIN);
        letter.body(mail.text.clone()).map_err(|error| error.to_string())
    }
}

#[async_trait]
impl Notify for Smtp {
    /// Sends a mail. A publication, a mail with a missing or invalid address, and one that the
    /// server rejects for good, is [`NotifyError::Refused`]; all other failures, also a refused
    /// login, are [`NotifyError::Unknown`].
    async fn notify(&self, message: &Notification) -> Result<(), NotifyError> {
        let attempted = || format!("send mail through {}", self.address.host);
        let Notification::Mail(mail) = message else {
            let why = "a mail server publishes nothing".to_owned();
            return Err(NotifyError::Refused { attempted: attempted(), why });
        };
        let letter = self
            .letter(mail)
            .map_err(|why| NotifyError::Refused { attempted: attempted(), why })?;
        match self.transport.send(letter).await {
            Ok(_) => Ok(()),
            // A 5xx answer is final, except for errors of the login (530 to 539), which an operator
            // can fix.
            Err(error) if error.is_permanent() && !is_about_login(&error) => {
                Err(NotifyError::Refused { attempted: attempted(), why: error.to_string() })
            }
            Err(error) => {
                Err(NotifyError::Unknown { attempted: attempted(), why: error.to_string() })
            }
        }
    }
}

/// Returns whether an error means that the server refused the login: its status is 530 to 539.
fn is_about_login(error: &lettre::transport::smtp::Error) -> bool {
    error.status().is_some_and(|code| code.to_string().starts_with("53"))
}
