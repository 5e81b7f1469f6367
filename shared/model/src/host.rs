//! Host names in HTTP requests, checked against DNS rebinding.

use core::net::{Ipv4Addr, Ipv6Addr};

/// The host that a request names.
///
/// The owner of a domain can point it at any address after a browser has loaded a page from it (DNS
/// rebinding). The page's requests then reach a local server, and the browser shows the page the
/// answers. Only the host name in the request distinguishes them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HostName {
    /// An IP address or `localhost`, which no other party can own.
    Machine,
    /// A name that another party may own. It is normalized: lower case, without port and final dot.
    Named(String),
    /// Not a valid host.
    Invalid,
}

impl HostName {
    /// Parses a `Host` value, with or without a port. `localhost`, an IPv4 address and an IPv6
    /// address in brackets are [`Self::Machine`]; case and one final dot do not matter. A port that
    /// is not a number and an invalid address in brackets are [`Self::Invalid`]. Any other text is
    /// a name, also an empty one, which is normalized and not checked.
    pub fn parse(host: &str) -> Self {
        let (host, port) = match host.rsplit_once(':') {
            // Colons within brackets belong to an IPv6 address.
            Some((host, port)) if !port.ends_with(']') => (host, port),
            _ => (host, ""),
        };
        if !port.bytes().all(|byte| byte.is_ascii_digit()) {
            return Self::Invalid;
        }
        let name = Self::normalize(host);
        match name.strip_prefix('[') {
            Some(rest) => {
                let address =
                    rest.strip_suffix(']').and_then(|address| address.parse::<Ipv6Addr>().ok());
                if address.is_some() { Self::Machine } else { Self::Invalid }
            }
            None if name.parse::<Ipv4Addr>().is_ok() || name == "localhost" => Self::Machine,
            None => Self::Named(name),
        }
    }

    /// Returns the name in lower case and without one final dot, for comparison.
    pub fn normalize(name: &str) -> String {
        let name = name.to_ascii_lowercase();
        name.strip_suffix('.').map(str::to_owned).unwrap_or(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Z5.4: a name that another party can own is never accepted as the machine's own.
    #[test]
    fn only_addresses_and_localhost_name_the_machine() {
        for host in
            ["127.0.0.1:9000", "10.0.0.7", "[::1]:9000", "[FE80::1]", "LOCALHOST:80", "localhost."]
        {
            assert_eq!(HostName::parse(host), HostName::Machine, "{host}");
        }
        for (host, name) in [
            ("Evil.Example:9000", "evil.example"),
            ("127.0.0.1.evil.example", "127.0.0.1.evil.example"),
        ] {
            assert_eq!(HostName::parse(host), HostName::Named(name.to_owned()));
        }
        for host in [
            "[::1].evil.example",
            "[evil.example]",
            "localhost:9000.evil.example",
            "evil.example:x",
        ] {
            assert_eq!(HostName::parse(host), HostName::Invalid, "{host}");
        }
    }
}
