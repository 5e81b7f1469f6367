//! The names by which a request says whom it asks.

use core::net::{Ipv4Addr, Ipv6Addr};

/// Whose name a request bears.
///
/// Whoever owns a name may have it lead to any address once a browser has a page of his open (DNS
/// rebinding). Then that page's requests reach what listens there, and the browser gives it the
/// answers. What tells such a request from others is the name in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HostName {
    /// An address, or `localhost`: no stranger owns these.
    Machine,
    /// One that somebody may own, as names are compared: in small letters, without port and without
    /// the dot that may end it.
    Named(String),
    /// What is no name at all.
    Nobody,
}

impl HostName {
    /// Reads a name as it stands in a request, with its port if it has one.
    pub fn read(said: &str) -> Self {
        let (host, port) = match said.rsplit_once(':') {
            // The colons within brackets are the address's own.
            Some((host, port)) if !port.ends_with(']') => (host, port),
            _ => (said, ""),
        };
        if !port.bytes().all(|byte| byte.is_ascii_digit()) {
            return Self::Nobody;
        }
        let name = Self::compared(host);
        match name.strip_prefix('[') {
            Some(rest) => {
                let address =
                    rest.strip_suffix(']').and_then(|address| address.parse::<Ipv6Addr>().ok());
                if address.is_some() { Self::Machine } else { Self::Nobody }
            }
            None if name.parse::<Ipv4Addr>().is_ok() || name == "localhost" => Self::Machine,
            None => Self::Named(name),
        }
    }

    /// Returns a name as it is compared.
    pub fn compared(name: &str) -> String {
        let name = name.to_ascii_lowercase();
        name.strip_suffix('.').map(str::to_owned).unwrap_or(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Z5.4: a name that a stranger owns is never taken for the machine's, however it is written.
    #[test]
    fn only_addresses_and_localhost_are_the_machines() {
        for own in
            ["127.0.0.1:9000", "10.0.0.7", "[::1]:9000", "[FE80::1]", "LOCALHOST:80", "localhost."]
        {
            assert_eq!(HostName::read(own), HostName::Machine, "{own}");
        }
        for (said, name) in [
            ("Evil.Example:9000", "evil.example"),
            ("127.0.0.1.evil.example", "127.0.0.1.evil.example"),
        ] {
            assert_eq!(HostName::read(said), HostName::Named(name.to_owned()));
        }
        for said in [
            "[::1].evil.example",
            "[evil.example]",
            "localhost:9000.evil.example",
            "evil.example:x",
        ] {
            assert_eq!(HostName::read(said), HostName::Nobody, "{said}");
        }
    }
}
