//! Bytes that must not be printed.

use std::fmt;
use zeroize::Zeroizing;

/// Bytes that are never printed and are wiped when dropped (Z5.4).
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(pub(crate) Zeroizing<Vec<u8>>);

impl Secret {
    /// Wraps secret bytes, which are not shown in debug output.
    pub fn new(bytes: Vec<u8>) -> Self {
        Self(Zeroizing::new(bytes))
    }

    /// Returns the secret bytes, for the place that uses them.
    pub fn expose(&self) -> &[u8] {
        &self.0
    }

    /// Returns the bytes as text; `None` when they are not UTF-8.
    pub fn expose_text(&self) -> Option<&str> {
        std::str::from_utf8(&self.0).ok()
    }
}

impl From<String> for Secret {
    fn from(text: String) -> Self {
        Self::new(text.into_bytes())
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(hidden)")
    }
}

#[cfg(test)]
mod tests {
    use super::Secret;

    /// Z5.4
    #[test]
    fn a_secret_cannot_be_printed() {
        let secret = Secret::from("hunter2".to_owned());
        assert_eq!(
            format!("{secret:?} {:?}", Some(&secret)),
            "Secret(hidden) Some(Secret(hidden))"
        );
        assert_eq!(secret.expose_text(), Some("hunter2"));
    }
}
