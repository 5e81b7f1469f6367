//! How an attribute of several values joins what was there before: `!override` and `!inherit`.

use serde::{Deserialize, Serialize};

/// What the tag of an attribute says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Combine {
    /// It replaces what was there.
    Override,
    /// It is added to what was there.
    Inherit,
}

/// A value and what its tag says; without a tag each attribute has its own habit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Combined<T> {
    /// The value.
    #[serde(rename = "v")]
    pub value: T,
    /// The tag, if there was one.
    #[serde(rename = "c", default, skip_serializing_if = "Option::is_none")]
    pub combine: Option<Combine>,
}

impl<T> Combined<T> {
    /// Returns whether it is added to what was there, given the attribute's habit.
    pub fn adds(&self, habit: Combine) -> bool {
        self.combine.unwrap_or(habit) == Combine::Inherit
    }
}
