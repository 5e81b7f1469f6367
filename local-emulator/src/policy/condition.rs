//! Conditions of a statement, and the values a call brings for their keys.

use super::document::PolicyError;
use super::pattern::{Case, Pattern};
use std::collections::BTreeMap;

/// The condition keys of one call and their values: `aws:RequestTag/stack` → `sluice`. Keys know no
/// case.
#[derive(Debug, Clone, Default)]
pub struct Context {
    values: BTreeMap<String, String>,
}

impl Context {
    /// Returns the context of a call without condition keys.
    #[must_use]
    pub fn none() -> Self {
        Self::default()
    }

    /// Returns the context with `key`, whose case does not matter, set to `value`; an earlier value
    /// is replaced.
    #[must_use]
    pub fn with(mut self, key: &str, value: &str) -> Self {
        self.values.insert(key.to_lowercase(), value.to_owned());
        self
    }
}

/// One operator applied to one key: holds if any of the values fits.
#[derive(Debug, Clone)]
pub(super) struct Condition {
    key: String,
    operator: Operator,
    values: Vec<String>,
}

#[derive(Debug, Clone, Copy)]
enum Operator {
    StringEquals,
    StringLike,
    /// As [`Self::StringLike`], and holds where the call has no such key. A call here has one value
    /// of each key at most.
    EachStringLike,
    /// Each of an ARN's six parts by itself; `ArnEquals` and `ArnLike` are the same.
    Arn,
    Bool,
}

impl Condition {
    /// Parses a condition: `operator` applied to the condition key `key`, whose case does not
    /// matter. It is true if one of `values` fits. An error for an operator that is not supported.
    pub(super) fn new(operator: &str, key: &str, values: Vec<String>) -> Result<Self, PolicyError> {
        let operator = match operator {
            "StringEquals" => Operator::StringEquals,
            "StringLike" => Operator::StringLike,
            "ForAllValues:StringLike" => Operator::EachStringLike,
            "ArnEquals" | "ArnLike" => Operator::Arn,
            "Bool" => Operator::Bool,
            other => {
                return Err(PolicyError::Operator { operator: other.to_owned() });
            }
        };
        Ok(Self { key: key.to_lowercase(), operator, values })
    }

    /// Returns whether the condition is true in a context: whether one of its values fits the one
    /// for its key. Without a value for its key only a `ForAllValues` condition is true.
    pub(super) fn holds(&self, context: &Context) -> bool {
        let Some(value) = context.values.get(&self.key) else {
            return matches!(self.operator, Operator::EachStringLike);
        };
        self.values.iter().any(|wanted| match self.operator {
            Operator::StringEquals => wanted == value,
            Operator::StringLike | Operator::EachStringLike => {
                Pattern::new(wanted, Case::Differs).matches(value)
            }
            Operator::Arn => arn_like(wanted, value),
            Operator::Bool => wanted.eq_ignore_ascii_case(value),
        })
    }
}

/// Returns whether an ARN matches a pattern, each of the six parts by itself, in which `*` and `?`
/// are wildcards; so `*` does not reach beyond its part, except in the last one. Both must have as
/// many parts.
fn arn_like(wanted: &str, value: &str) -> bool {
    const PARTS: usize = 6;
    let (wanted, value): (Vec<_>, Vec<_>) =
        (wanted.splitn(PARTS, ':').collect(), value.splitn(PARTS, ':').collect());
    let fits = |(wanted, value): (&&str, &&str)| Pattern::new(wanted, Case::Differs).matches(value);
    wanted.len() == value.len() && wanted.iter().zip(&value).all(fits)
}
