//! A text that must never be shown: tokens and webhook secrets.

use std::fmt;

/// A token or a webhook secret. It prints as `Secret(hidden)`, does not serialise, and is compared
/// nowhere.
#[derive(Clone)]
pub struct ForgeSecret(String);

impl ForgeSecret {
    /// Wraps a secret text, which is then not shown in debug output.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// Returns the text itself, for the one place that signs or sends it.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for ForgeSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(hidden)")
    }
}

#[cfg(test)]
mod tests {
    use super::ForgeSecret;

    /// Z5.4
    #[test]
    fn a_secret_does_not_show_itself() {
        assert_eq!(format!("{:?}", Some(ForgeSecret::new("hunter2"))), "Some(Secret(hidden))");
    }
}
