//! Whether code was merged, or may be part of the change under test (Z7.5).

/// Whether the code of a process is trusted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CodeTrust {
    /// The code was merged in a config project. It has the executor's network.
    Trusted,
    /// The code may be part of the change under test. It reaches the network through the broker.
    Untrusted,
}

impl CodeTrust {
    /// Returns the name used in the log's banners.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Trusted => "trusted",
            Self::Untrusted => "untrusted",
        }
    }
}
