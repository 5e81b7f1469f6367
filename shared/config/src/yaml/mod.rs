//! YAML as Zuul reads it: scalars have the same meaning as in PyYAML, and every node has its
//! position.

mod compose;
mod scalar;

pub use compose::{SizeLimits, compose, compose_all, compose_once, compose_within};

/// The replacement for bytes that are not UTF-8: a character that YAML does not allow.
pub const UNREADABLE: char = '\u{fffe}';

use serde::{Deserialize, Serialize};
use serde_json::{Map, Number, Value as Json};

/// A position in a file: line and column, both starting at 1.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
pub struct Mark(pub u32, pub u32);

impl Mark {
    /// Returns the line, from 1.
    pub fn line(self) -> u32 {
        self.0
    }

    /// Returns the column, from 1.
    pub fn column(self) -> u32 {
        self.1
    }
}

/// Why a text is not a valid YAML document.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("cannot read the YAML at line {}, column {} because {message}", mark.0, mark.1)]
pub struct YamlError {
    /// Where.
    pub mark: Mark,
    /// What is wrong.
    pub message: String,
}

/// A value with its position.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Node {
    /// The value.
    #[serde(rename = "v")]
    pub value: Value,
    /// Where it starts.
    #[serde(rename = "s")]
    pub start: Mark,
    /// Where it ends.
    #[serde(rename = "e")]
    pub end: Mark,
}

/// The value of a node.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Value {
    /// Nothing.
    Null,
    /// A boolean.
    Bool(bool),
    /// A 64-bit integer.
    Int(i64),
    /// A floating-point number, possibly infinite or NaN.
    Float(f64),
    /// A date or timestamp, as written. PyYAML does not read it as text, so names like this need
    /// quotes. In JSON it is the text.
    Date(String),
    /// A text.
    Text(String),
    /// A list.
    List(Vec<Node>),
    /// A mapping in the order as written, with unique keys.
    Map(Vec<(Node, Node)>),
    /// A value with a custom tag, for example `!encrypted/pkcs1-oaep`.
    Tagged(String, Box<Node>),
    /// An integer beyond the range of [`Value::Int`], as decimal digits.
    Long(String),
}

impl Node {
    /// Returns the text; `None` for any other value, also for a tagged text, a number or a date.
    pub fn as_text(&self) -> Option<&str> {
        match &self.value {
            Value::Text(text) => Some(text),
            _ => None,
        }
    }

    /// Returns the members of a list; `None` for any other value, also for a tagged list.
    pub fn as_list(&self) -> Option<&[Node]> {
        match &self.value {
            Value::List(list) => Some(list),
            _ => None,
        }
    }

    /// Returns the members of a mapping, in the order as written; `None` for any other value, also
    /// for a tagged mapping.
    pub fn as_map(&self) -> Option<&[(Node, Node)]> {
        match &self.value {
            Value::Map(map) => Some(map),
            _ => None,
        }
    }

    /// Returns the value of a text key of a mapping; `None` if there is no such key or it is not a
    /// mapping.
    pub fn get(&self, key: &str) -> Option<&Node> {
        self.as_map()?.iter().find(|(name, _)| name.as_text() == Some(key)).map(|(_, value)| value)
    }

    /// Returns whether the value is null.
    pub fn is_null(&self) -> bool {
        matches!(self.value, Value::Null)
    }

    /// Returns the name of the value's type, for messages.
    pub fn kind(&self) -> &'static str {
        match &self.value {
            Value::Null => "nothing",
            Value::Bool(_) => "a boolean",
            Value::Int(_) => "an integer",
            Value::Float(_) => "a float",
            Value::Date(_) => "a date",
            Value::Text(_) => "a string",
            Value::List(_) => "a list",
            Value::Map(_) => "a mapping",
            Value::Tagged(..) => "a tagged value",
            Value::Long(_) => "an integer beyond 64 bits",
        }
    }

    /// Returns a scalar as the text that Python would print for it, except that a date stays as
    /// written, and that a very large or small float can look different. `None` for lists, mappings
    /// and tagged values.
    pub fn scalar_text(&self) -> Option<String> {
        match &self.value {
            Value::Null => Some("None".to_owned()),
            Value::Bool(true) => Some("True".to_owned()),
            Value::Bool(false) => Some("False".to_owned()),
            Value::Int(number) => Some(number.to_string()),
            Value::Float(number) => Some(scalar::float_text(*number)),
            Value::Date(text) | Value::Text(text) | Value::Long(text) => Some(text.clone()),
            Value::List(_) | Value::Map(_) | Value::Tagged(..) => None,
        }
    }

    /// Returns the value as JSON, without positions. Keys and dates become texts. A tagged value
    /// becomes a mapping with the tag as its only key. A number that is not finite becomes a text,
    /// as does an integer that JSON does not hold: check [`Node::first_unheld`] before.
    pub fn to_json(&self) -> Json {
        match &self.value {
            Value::Null => Json::Null,
            Value::Bool(flag) => Json::Bool(*flag),
            Value::Int(number) => Json::Number((*number).into()),
            Value::Float(number) => Number::from_f64(*number)
                .map_or_else(|| Json::String(scalar::float_text(*number)), Json::Number),
            Value::Date(text) | Value::Text(text) => Json::String(text.clone()),
            Value::List(list) => Json::Array(list.iter().map(Node::to_json).collect()),
            Value::Map(map) => Json::Object(
                map.iter().map(|(key, value)| (key.json_key(), value.to_json())).collect(),
            ),
            Value::Long(digits) => digits.parse::<u64>().map_or_else(
                |_| Json::String(digits.clone()),
                |number| Json::Number(number.into()),
            ),
            Value::Tagged(tag, node) => {
                let mut map = Map::new();
                map.insert(tag.clone(), node.to_json());
                Json::Object(map)
            }
        }
    }

    /// Returns the first integer in the value, at any depth, that JSON would not preserve digit by
    /// digit, because it is beyond 64 bits; `None` if there is none. Keys of mappings are not
    /// searched.
    pub fn first_unheld(&self) -> Option<&Node> {
        match &self.value {
            Value::Long(digits) => digits.parse::<u64>().is_err().then_some(self),
            Value::List(list) => list.iter().find_map(Node::first_unheld),
            Value::Map(map) => map.iter().find_map(|(_, value)| value.first_unheld()),
            Value::Tagged(_, node) => node.first_unheld(),
            _ => None,
        }
    }

    /// Returns a mapping's key as JSON text; keys of other types read as they do in JSON. A list, a
    /// mapping or a tagged value becomes an empty text.
    fn json_key(&self) -> String {
        match &self.value {
            Value::Null => "null".to_owned(),
            Value::Bool(flag) => flag.to_string(),
            _ => self.scalar_text().unwrap_or_default(),
        }
    }
}

#[cfg(test)]
mod tests;
