//! What a request to the broker names: a host and a port (Z7.5). Pure.

use hyper::header::{CONTENT_LENGTH, HOST, HeaderMap, TRANSFER_ENCODING};
use hyper::http::uri::Authority;
use hyper::{Method, Uri};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// The maximum length of a name in bytes (RFC 1035).
const NAME_BYTES_MAX: usize = 253;
/// The maximum length of one label of a name.
const LABEL_BYTES_MAX: usize = 63;

/// A host and a port, in one spelling: an address, or a name in lower case without a final dot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// The host.
    pub host: TargetHost,
    /// The port.
    pub port: u16,
}

/// The host of a [`Target`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TargetHost {
    /// An address.
    Address(IpAddr),
    /// A name that has to be resolved.
    Name(String),
}

impl Target {
    /// Returns the target of `host`, a name or an address, where an IPv6 address may be in
    /// brackets. An error if it is neither, or an address in a form that programs read differently,
    /// such as `127.1`, `0x7f000001` or `0177.0.0.1`.
    pub fn new(host: &str, port: u16) -> Result<Self, BadRequest> {
        let bad = || BadRequest::Host(shown(host));
        if let Some(address) = host.strip_prefix('[') {
            let address = address.strip_suffix(']').and_then(|text| text.parse::<Ipv6Addr>().ok());
            let address = IpAddr::V6(address.ok_or_else(bad)?);
            return Ok(Self { host: TargetHost::Address(address), port });
        }
        if let Ok(address) = host.parse::<IpAddr>() {
            return Ok(Self { host: TargetHost::Address(address), port });
        }
        let name = host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase();
        // `127.0.0.1.` is an address for some programs.
        if let Ok(address) = name.parse::<Ipv4Addr>() {
            return Ok(Self { host: TargetHost::Address(address.into()), port });
        }
        let is_label = |label: &str| {
            (1..=LABEL_BYTES_MAX).contains(&label.len())
                && label.bytes().all(|sign| sign.is_ascii_alphanumeric() || b"-_".contains(&sign))
        };
        let last = name.rsplit('.').next().unwrap_or_default();
        let is_number = last.bytes().all(|sign| sign.is_ascii_digit()) || last.starts_with("0x");
        if name.len() > NAME_BYTES_MAX || is_number || !name.split('.').all(is_label) {
            return Err(bad());
        }
        Ok(Self { host: TargetHost::Name(name), port })
    }

    /// Returns the target of a request to a proxy. A `CONNECT` names `host:port`; any other method
    /// has an absolute URL of the scheme `http`. The only `Host` header, if there is one, must name
    /// the same target.
    pub fn of_request(method: &Method, uri: &Uri, headers: &HeaderMap) -> Result<Self, BadRequest> {
        let authority = uri.authority().ok_or(BadRequest::NoAuthority)?;
        let has_body =
            headers.contains_key(CONTENT_LENGTH) || headers.contains_key(TRANSFER_ENCODING);
        if method == Method::CONNECT && has_body {
            return Err(BadRequest::ConnectBody);
        }
        let target = if method == Method::CONNECT {
            Self::of_authority(authority, None)?
        } else if uri.scheme_str() == Some("http") {
            Self::of_authority(authority, Some(80))?
        } else {
            return Err(BadRequest::Scheme);
        };
        let mut hosts = headers.get_all(HOST).iter();
        let default_port = if method == Method::CONNECT { target.port } else { 80 };
        if let Some(host) = hosts.next() {
            let other = || BadRequest::OtherHost(shown(&String::from_utf8_lossy(host.as_bytes())));
            let named = host.to_str().ok().and_then(|text| text.parse::<Authority>().ok());
            let named = Self::of_authority(&named.ok_or_else(other)?, Some(default_port))?;
            if named != target {
                return Err(other());
            }
        }
        if hosts.next().is_some() {
            return Err(BadRequest::SeveralHosts);
        }
        Ok(target)
    }

    /// Returns the target of `host:port`; without a port, of `default_port`.
    fn of_authority(authority: &Authority, default_port: Option<u16>) -> Result<Self, BadRequest> {
        if authority.as_str().contains('@') {
            return Err(BadRequest::UserInfo);
        }
        let port = match authority.as_str().strip_prefix(authority.host()) {
            Some("") => default_port.ok_or(BadRequest::NoPort)?,
            Some(port) => {
                let digits = port.strip_prefix(':').filter(|digits| {
                    !digits.is_empty() && digits.bytes().all(|sign| sign.is_ascii_digit())
                });
                let number = digits.and_then(|digits| digits.parse().ok());
                number.filter(|number| *number != 0).ok_or(BadRequest::NoPort)?
            }
            None => return Err(BadRequest::Host(shown(authority.as_str()))),
        };
        Self::new(authority.host(), port)
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.host {
            TargetHost::Address(address) => SocketAddr::new(*address, self.port).fmt(f),
            TargetHost::Name(name) => write!(f, "{name}:{}", self.port),
        }
    }
}

/// Why a request is not carried out, whatever it names.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadRequest {
    /// The request has a path only.
    #[error("the request names no host: proxies take absolute URLs and CONNECT")]
    NoAuthority,
    /// The request names no usable port.
    #[error("the request names no port from 1 to 65535")]
    NoPort,
    /// The scheme is not `http`.
    #[error("only http:// is forwarded: use CONNECT for everything else")]
    Scheme,
    /// A tunnel has no body before it is open.
    #[error("a CONNECT with a body is refused")]
    ConnectBody,
    /// The host has a user name.
    #[error("a host with a user name is refused")]
    UserInfo,
    /// The host is neither a name nor an address in its usual form.
    #[error("{0} is neither a host name nor an address in its usual form")]
    Host(String),
    /// The `Host` header names another target.
    #[error("the Host header names another target: {0}")]
    OtherHost(String),
    /// There are several `Host` headers.
    #[error("the request has several Host headers")]
    SeveralHosts,
}

/// Returns a text of a request for the log: short, and in ASCII without control characters.
pub fn shown(text: &str) -> String {
    text.chars().take(80).flat_map(char::escape_default).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(request: &str) -> Result<String, String> {
        let (line, headers) = request.split_once('|').unwrap_or((request, ""));
        let (method, uri) = line.split_once(' ').unwrap();
        let mut map = HeaderMap::new();
        for host in headers.split('|').filter(|host| !host.is_empty()) {
            map.append(HOST, host.parse().unwrap());
        }
        let uri = uri.parse().map_err(|error| format!("{error}"))?;
        Target::of_request(&method.parse().unwrap(), &uri, &map)
            .map(|target| target.to_string())
            .map_err(|error| error.to_string())
    }

    /// Z7.5
    #[test]
    fn a_target_has_one_spelling() {
        for (request, expected) in [
            ("CONNECT Example.COM.:443", "example.com:443"),
            ("CONNECT example.com:443|EXAMPLE.com", "example.com:443"),
            ("CONNECT [::1]:22", "[::1]:22"),
            ("CONNECT [0:0::0:1]:22|[::1]:22", "[::1]:22"),
            ("CONNECT 10.0.0.1:22", "10.0.0.1:22"),
            ("CONNECT 10.0.0.1.:22", "10.0.0.1:22"),
            ("GET http://one.test/a?b", "one.test:80"),
            ("GET http://one.test:8080/|one.test:8080", "one.test:8080"),
            ("GET http://one.test:80/|one.test", "one.test:80"),
        ] {
            assert_eq!(target(request).as_deref(), Ok(expected), "{request}");
        }
    }

    /// Z7.5, X01: what a client means and what a server understands is the same host.
    #[test]
    fn requests_that_name_no_host_or_two_are_refused() {
        for (request, part) in [
            ("GET /latest/meta-data", "names no host"),
            ("GET http://user@one.test/", "user name"),
            ("CONNECT one.test:443@169.254.169.254:80", ""),
            ("GET http://one.test@169.254.169.254/", "user name"),
            ("GET https://one.test/", "only http://"),
            ("GET ftp://one.test/", "only http://"),
            ("CONNECT one.test", "no port"),
            ("CONNECT one.test:0", "no port"),
            ("CONNECT one.test:65536", ""),
            ("GET http://one.test/|169.254.169.254", "another target"),
            ("GET http://one.test/|one.test:81", "another target"),
            ("GET http://one.test/|user@one.test", "user name"),
            ("GET http://one.test/|one.test|one.test", "several Host"),
            ("CONNECT one.test:443|two.test:443", "another target"),
            ("GET http://2130706433/", "usual form"),
            ("GET http://0x7f000001/", "usual form"),
            ("GET http://127.1/", "usual form"),
            ("GET http://0177.0.0.1/", "usual form"),
            ("GET http://0x7f.0.0.1/", "usual form"),
            ("GET http://127.0.0.0x1/", "usual form"),
            ("GET http://1.2.3.4../", "usual form"),
            ("GET http://one..test/", "usual form"),
            ("GET http://[::ffff:127.0.0.1%25eth0]/", ""),
            ("GET http://[fe80::1%eth0]/", ""),
            ("GET http://one%2etest/", ""),
        ] {
            let error = target(request).unwrap_err();
            assert!(error.contains(part), "{request}: {error}");
        }
        assert!(Target::new(&"a".repeat(64), 1).is_err());
        assert!(Target::new(&["a"; 130].join("."), 1).is_err());
        assert_eq!(shown("a\r\nb\u{1b}[1m"), "a\\r\\nb\\u{1b}[1m");
    }
}
