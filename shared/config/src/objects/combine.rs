//! The control tags `!override` and `!inherit`, which combine an attribute with inherited values.

use serde::{Deserialize, Serialize};

/// A control tag.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Combine {
    /// The value replaces inherited ones.
    Override,
    /// The value is added to inherited ones.
    Inherit,
}

/// A value with its control tag. Without a tag, each attribute has its own default.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Combined<T> {
    /// The value.
    #[serde(rename = "v")]
    pub value: T,
    /// The tag, if any.
    #[serde(rename = "c", default, skip_serializing_if = "Option::is_none")]
    pub combine: Option<Combine>,
}

impl<T> Combined<T> {
    /// Returns whether the value is added to inherited ones. `default` is the attribute's default.
    pub fn adds(&self, default: Combine) -> bool {
        self.combine.unwrap_or(default) == Combine::Inherit
    }
}
