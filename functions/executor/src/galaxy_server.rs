//! The Galaxy server of the executor's operator, and the token for it (Z4.6).

use crate::broker::target::{Target, TargetHost};
use hyper::Uri;
use serde_json::Value;
use std::fmt;
use std::fs;
use std::path::Path;
use std::str::FromStr;

/// The server that `ansible-galaxy` itself asks by default.
const DEFAULT_SERVER: &str = "https://galaxy.ansible.com";
/// How long all installations of a build may take together, in seconds.
const INSTALL_SECONDS: u64 = 600;
/// The maximum size of the file with the token, in bytes.
const TOKEN_BYTES_MAX: usize = 16 << 10;

/// Where roles from Ansible Galaxy come from.
#[derive(Debug, Clone)]
pub struct GalaxySettings {
    /// The server with the roles that jobs name as `namespace.role`.
    pub server: GalaxyServer,
    /// The token for the server; `None` to ask without one.
    pub token: Option<GalaxyToken>,
    /// How long all installations of a build may take together, in seconds.
    pub timeout_seconds: u64,
}

impl Default for GalaxySettings {
    /// Returns the settings for the public server.
    fn default() -> Self {
        Self { server: GalaxyServer::default(), token: None, timeout_seconds: INSTALL_SECONDS }
    }
}

/// The address of a Galaxy server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GalaxyServer {
    /// The address as written.
    url: String,
    /// Its host and port.
    target: Target,
}

impl Default for GalaxyServer {
    /// Returns the public server.
    fn default() -> Self {
        let target = Target { host: TargetHost::Name("galaxy.ansible.com".to_owned()), port: 443 };
        Self { url: DEFAULT_SERVER.to_owned(), target }
    }
}

impl FromStr for GalaxyServer {
    type Err = String;

    /// Reads an address of the scheme `https` or `http`, with a path where the server has one. The
    /// error says what was expected.
    fn from_str(text: &str) -> Result<Self, String> {
        let bad = || {
            format!(
                "this is no address of a Galaxy server: write it as {DEFAULT_SERVER}, without a \
                 user name or password"
            )
        };
        let uri: Uri = text.parse().map_err(|_| bad())?;
        let port = match uri.scheme_str() {
            Some("https") => 443,
            Some("http") => 80,
            _ => return Err(bad()),
        };
        let authority = uri.authority().ok_or_else(bad)?;
        if authority.as_str().contains('@') || uri.query().is_some() {
            return Err(bad());
        }
        let port = authority.port_u16().unwrap_or(port);
        let target = Target::new(authority.host(), port).map_err(|_| bad())?;
        Ok(Self { url: text.to_owned(), target })
    }
}

impl GalaxyServer {
    /// Returns the host and port.
    pub fn target(&self) -> &Target {
        &self.target
    }
}

impl fmt::Display for GalaxyServer {
    /// Writes the address.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.url)
    }
}

/// A token for a Galaxy server.
#[derive(Clone, PartialEq, Eq)]
pub struct GalaxyToken(String);

impl GalaxyToken {
    /// Reads the token from a file that has nothing else. The error says why the file cannot be
    /// read, or what is expected in it.
    pub fn read(path: &Path) -> Result<Self, String> {
        let text = fs::read_to_string(path).map_err(|error| error.to_string())?;
        let token = text.trim();
        let is_token = !token.is_empty() && token.bytes().all(|sign| sign.is_ascii_graphic());
        if !is_token || token.len() > TOKEN_BYTES_MAX {
            return Err("expected a file with the token alone, in one line".to_owned());
        }
        Ok(Self(token.to_owned()))
    }

    /// Returns the token as a value, which a log masks.
    pub fn to_masked_value(&self) -> Value {
        Value::String(self.0.clone())
    }
}

impl fmt::Debug for GalaxyToken {
    /// Does not show the token.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("GalaxyToken")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// Z4.6
    #[test]
    fn servers_are_read_as_operators_write_them() {
        for (text, target) in [
            (DEFAULT_SERVER, "galaxy.ansible.com:443"),
            ("http://127.0.0.1:8080", "127.0.0.1:8080"),
            ("https://Hub.Test:8443/api/galaxy/", "hub.test:8443"),
            ("http://[fd00::1]/api/", "[fd00::1]:80"),
        ] {
            let server: GalaxyServer = text.parse().unwrap();
            assert_eq!(
                (server.to_string().as_str(), server.target().to_string().as_str()),
                (text, target)
            );
        }
        assert_eq!(DEFAULT_SERVER.parse(), Ok(GalaxyServer::default()));
        for text in [
            "",
            "galaxy.test",
            "file:///etc",
            "ftp://a.b",
            "https://me:word@a.b",
            "https://a.b/?x=y",
            "https://0x7f.1/",
        ] {
            let error = text.parse::<GalaxyServer>().unwrap_err();
            assert!(error.contains("is no address of a Galaxy server"), "{text}: {error}");
        }
    }

    /// Z4.6, Z7.5: a token is read from a file, and is in no text that may be printed.
    #[test]
    fn a_token_is_read_from_its_file_and_not_shown() {
        let scratch = tempfile::tempdir().unwrap();
        let read = |text: &str| {
            let path = scratch.path().join("token");
            fs::write(&path, text).unwrap();
            GalaxyToken::read(&path)
        };
        let token = read("abc123\n").unwrap();
        assert_eq!(token.to_masked_value(), json!("abc123"));
        assert!(!format!("{token:?}").contains("abc"));
        for text in ["", "\n", "two words", "token: abc\n", "a\nb\n"] {
            let error = read(text).unwrap_err();
            assert!(error.contains("the token alone"), "{text}: {error}");
        }
        let error = GalaxyToken::read(&scratch.path().join("none")).unwrap_err();
        assert!(error.contains("No such file"), "{error}");
    }
}
