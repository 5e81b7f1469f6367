//! Parses the address of a mail server or broker, such as
//! `smtps://mail.example.org?from=ci@example.org`.

use std::net::IpAddr;
use url::Url;

/// The address of a mail server or broker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    /// The protocol.
    pub scheme: Scheme,
    /// The host.
    pub host: String,
    /// The port.
    pub port: u16,
    /// The sender of mails without one.
    pub from: Option<String>,
    /// The recipients of mails without any.
    pub to: Option<String>,
}

/// The protocol, with its encryption.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scheme {
    /// `smtp`: mail with STARTTLS, which the server must offer unless it is this machine.
    Smtp,
    /// `smtps`: mail over TLS.
    Smtps,
    /// `mqtt`: a broker without encryption.
    Mqtt,
    /// `mqtts`: a broker over TLS.
    Mqtts,
}

/// Why an address is invalid. It does not repeat the address, which may contain a password.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum AddressError {
    /// It is not a URL.
    #[error(
        "an address like smtps://mail.example.org, smtp://mail.example.org, \
         mqtts://broker.example.org or mqtt://broker.example.org is needed"
    )]
    NoAddress,
    /// It contains a login.
    #[error(
        "an address without user and password is needed: give the user with --login and the \
         password with --token-file"
    )]
    HoldsLogin,
    /// It has an unknown parameter.
    #[error("{0:?} is no word of such an address: mail knows `from` and `to`, MQTT none")]
    UnknownWord(String),
}

impl Address {
    /// Parses an address: `smtp`, `smtps`, `mqtt` or `mqtts`, a host, and an optional port, which
    /// is otherwise the protocol's usual one. Mail may have the parameters `from` and `to`. An
    /// address with a user or password is an error, as is any other parameter.
    pub fn parse(text: &str) -> Result<Self, AddressError> {
        let url = Url::parse(text).map_err(|_| AddressError::NoAddress)?;
        let (scheme, port) = match url.scheme() {
            "smtp" => (Scheme::Smtp, 25),
            "smtps" => (Scheme::Smtps, 465),
            "mqtt" => (Scheme::Mqtt, 1883),
            "mqtts" => (Scheme::Mqtts, 8883),
            _ => return Err(AddressError::NoAddress),
        };
        if !url.username().is_empty() || url.password().is_some() {
            return Err(AddressError::HoldsLogin);
        }
        let host = url.host_str().filter(|host| !host.is_empty()).ok_or(AddressError::NoAddress)?;
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        let mut address =
            Self { scheme, host, port: url.port().unwrap_or(port), from: None, to: None };
        for (word, value) in url.query_pairs() {
            match (address.is_mail(), &*word) {
                (true, "from") => address.from = Some(value.into_owned()),
                (true, "to") => address.to = Some(value.into_owned()),
                _ => return Err(AddressError::UnknownWord(word.into_owned())),
            }
        }
        Ok(address)
    }

    /// Returns whether the address names a mail server.
    pub fn is_mail(&self) -> bool {
        matches!(self.scheme, Scheme::Smtp | Scheme::Smtps)
    }

    /// Returns whether the server is on this machine, so that a connection does not leave it:
    /// `localhost` or a loopback address. Other names are not resolved.
    pub fn is_here(&self) -> bool {
        self.host == "localhost" || self.host.parse().is_ok_and(|ip: IpAddr| ip.is_loopback())
    }

    /// Returns whether a password may be sent to the server: always, except over unencrypted MQTT
    /// to another machine. Unencrypted mail is never used for another machine.
    pub fn keeps_secrets(&self) -> bool {
        self.scheme != Scheme::Mqtt || self.is_here()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;

    /// R04, Z5.4
    #[test]
    fn an_address_names_a_server_and_for_mail_who_writes_to_whom() {
        let mail =
            Address::parse("smtps://mail.example.org?from=ci@example.org&to=a@x.org,b@x.org")
                .unwrap();
        assert_eq!(
            (mail.scheme, mail.host.as_str(), mail.port),
            (Scheme::Smtps, "mail.example.org", 465)
        );
        assert_eq!(
            (mail.from.as_deref(), mail.to.as_deref()),
            (Some("ci@example.org"), Some("a@x.org,b@x.org"))
        );
        let broker = Address::parse("mqtt://[::1]:2000").unwrap();
        assert_eq!((broker.host.as_str(), broker.port, broker.is_here()), ("::1", 2000, true));
        assert!(
            broker.keeps_secrets()
                && !Address::parse("mqtt://broker.example.org").unwrap().keeps_secrets()
        );
    }

    /// Z5.4: a rejected address may contain a password.
    #[test]
    fn what_is_no_such_address_is_refused_without_repeating_it() {
        for (text, expected) in [
            ("smtp://me:hush@mail.example.org", AddressError::HoldsLogin),
            ("http://me:hush@mail.example.org", AddressError::NoAddress),
            ("mail.example.org", AddressError::NoAddress),
            ("mqtt://", AddressError::NoAddress),
            ("mqtt://broker?from=x", AddressError::UnknownWord("from".to_owned())),
        ] {
            let refused = Address::parse(text).unwrap_err();
            assert!(!refused.to_string().contains("hush"));
            assert_eq!(refused, expected, "{text}");
        }
    }
}
