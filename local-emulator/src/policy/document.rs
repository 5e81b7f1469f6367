//! Policy documents as they are written in a template.

use super::condition::Condition;
use super::pattern::{Case, Pattern};
use super::{Effect, Statement};
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use std::collections::BTreeMap;

/// A part of a policy that this evaluator does not know.
#[derive(Debug, thiserror::Error)]
pub enum PolicyError {
    /// A condition operator outside the closed list.
    #[error(
        "has a condition with {operator}; known are StringEquals, StringLike, ForAllValues:StringLike, ArnEquals, ArnLike and Bool"
    )]
    Operator {
        /// The operator.
        operator: String,
    },
}

/// A policy document: a list of statements. An unknown field is an error.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
pub struct Document {
    #[serde(rename = "Version")]
    _version: String,
    pub(super) statement: Vec<RawStatement>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
pub(super) struct RawStatement {
    #[serde(default)]
    sid: String,
    effect: RawEffect,
    #[serde(deserialize_with = "one_or_many")]
    action: Vec<String>,
    #[serde(deserialize_with = "one_or_many")]
    resource: Vec<String>,
    #[serde(default)]
    condition: BTreeMap<String, BTreeMap<String, Values>>,
}

#[derive(Debug, Clone, Copy, Deserialize)]
enum RawEffect {
    Allow,
    Deny,
}

#[derive(Debug, Clone, Deserialize)]
struct Values(#[serde(deserialize_with = "one_or_many")] Vec<String>);

impl RawStatement {
    /// Converts the statement of a document. An error for a condition operator that is not
    /// supported.
    pub(super) fn into_statement(self) -> Result<Statement, PolicyError> {
        let mut conditions = Vec::new();
        for (operator, keys) in self.condition {
            for (key, values) in keys {
                conditions.push(Condition::new(&operator, &key, values.0)?);
            }
        }
        let effect = match self.effect {
            RawEffect::Allow => Effect::Allow,
            RawEffect::Deny => Effect::Deny,
        };
        Ok(Statement {
            sid: self.sid,
            effect,
            actions: self.action.iter().map(|action| Pattern::new(action, Case::Same)).collect(),
            resources: self
                .resource
                .iter()
                .map(|resource| Pattern::new(resource, Case::Differs))
                .collect(),
            conditions,
        })
    }
}

/// Reads one text or a list of texts as a list; a truth value counts as its text. Any other value
/// is an error.
fn one_or_many<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    use serde::de::Error as _;
    let text = |value: Value| match value {
        Value::String(text) => Ok(text),
        Value::Bool(flag) => Ok(flag.to_string()),
        other => Err(D::Error::custom(format!("{other} stands where text must"))),
    };
    match Value::deserialize(deserializer)? {
        Value::Array(items) => items.into_iter().map(text).collect(),
        one => Ok(vec![text(one)?]),
    }
}
