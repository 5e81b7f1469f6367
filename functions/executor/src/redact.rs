//! Masks the values of secrets in text and JSON (Z5.4).

use serde_json::{Map, Value};

/// The replacement for a secret.
const MASK: &str = "[REDACTED]";
/// The minimum length of a masked value. Masking every `on` or `80` would destroy the log and hide
/// nothing.
const LENGTH_MIN: usize = 4;

/// The values to mask.
#[derive(Default, Clone)]
pub struct Redactor {
    // Longest first, so that a value that contains another one is masked as a whole.
    /// The texts to mask.
    needles: Vec<String>,
}

impl Redactor {
    /// Adds every text and number in `value`, at any depth, to what is masked; keys, booleans and
    /// null are not added. Of a text with several lines, each line of at least 8 bytes is also
    /// added separately. Values shorter than 4 bytes are not masked.
    pub fn add(&mut self, value: &Value) {
        match value {
            Value::String(text) => self.add_text(text),
            Value::Number(number) => self.add_text(&number.to_string()),
            Value::Array(items) => items.iter().for_each(|item| self.add(item)),
            Value::Object(entries) => entries.values().for_each(|item| self.add(item)),
            Value::Null | Value::Bool(_) => {}
        }
    }

    /// Adds a text to mask, without surrounding spaces, also as it is escaped in JSON. Of a text
    /// with several lines, each line of at least 8 bytes is also added separately. A text shorter
    /// than [`LENGTH_MIN`] bytes is not added.
    fn add_text(&mut self, text: &str) {
        let mut found = vec![text.trim()];
        // Keys and certificates are printed line by line. Short lines (`}`, `host: x`) would match
        // too much.
        found.extend(
            text.lines().map(str::trim).filter(|line| text.contains('\n') && line.len() >= 8),
        );
        for needle in found {
            if needle.len() < LENGTH_MIN {
                continue;
            }
            let escaped = Value::String(needle.to_owned()).to_string();
            let inner = escaped[1..escaped.len() - 1].to_owned();
            for form in [needle.to_owned(), inner] {
                if !self.needles.contains(&form) {
                    self.needles.push(form);
                }
            }
        }
        self.needles.sort_by_key(|needle| std::cmp::Reverse(needle.len()));
    }

    /// Returns `text` with every added secret replaced by `[REDACTED]`, also where it is escaped as
    /// in JSON. Values shorter than 4 bytes are not masked.
    pub fn text(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for needle in &self.needles {
            if text.contains(needle.as_str()) {
                text = text.replace(needle.as_str(), MASK);
            }
        }
        text
    }

    /// Returns whether an added secret occurs in `text`, also where it is escaped as in JSON.
    pub fn occurs_in(&self, text: &str) -> bool {
        self.needles.iter().any(|needle| text.contains(needle.as_str()))
    }

    /// Returns whether an added secret occurs in a text, key or number of `value`, at any depth.
    pub fn occurs_in_value(&self, value: &Value) -> bool {
        match value {
            Value::String(text) => self.occurs_in(text),
            Value::Number(number) => self.needles.contains(&number.to_string()),
            Value::Array(items) => items.iter().any(|item| self.occurs_in_value(item)),
            Value::Object(entries) => {
                entries.iter().any(|(key, item)| self.occurs_in(key) || self.occurs_in_value(item))
            }
            Value::Null | Value::Bool(_) => false,
        }
    }

    /// Returns `text`, in which secrets are masked, with each line that has a mask replaced by
    /// `message`.
    pub fn replace_masked_lines(text: &str, message: &str) -> String {
        let lines = text.split('\n').map(|line| if line.contains(MASK) { message } else { line });
        lines.collect::<Vec<_>>().join("\n")
    }

    /// Returns `value` with the added secrets masked in its texts and keys; a number that is a
    /// secret becomes the text of the mask. Values shorter than 4 bytes are not masked.
    pub fn value(&self, value: Value) -> Value {
        if self.needles.is_empty() {
            return value;
        }
        match value {
            Value::String(text) => Value::String(self.text(&text)),
            Value::Array(items) => {
                Value::Array(items.into_iter().map(|item| self.value(item)).collect())
            }
            Value::Object(entries) => Value::Object(self.map(entries)),
            Value::Number(number) if self.needles.contains(&number.to_string()) => {
                Value::String(MASK.to_owned())
            }
            other => other,
        }
    }

    /// Returns `entries` with the added secrets masked in keys and values, as by [`Self::value`].
    /// Of several entries whose keys become equal only the last is kept.
    pub fn map(&self, entries: Map<String, Value>) -> Map<String, Value> {
        entries.into_iter().map(|(key, item)| (self.text(&key), self.value(item))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::Redactor;
    use serde_json::json;

    /// Z5.4
    #[test]
    fn a_secret_is_masked_whole_by_line_and_as_json() {
        let mut redactor = Redactor::default();
        redactor.add(&json!({"password": "hun\"ter22", "pin": 987_654, "flag": "on", "key": "BEGIN KEY\nAAAABBBBCCCC\nEND KEY--"}));
        assert_eq!(redactor.text("it is hun\"ter22!"), "it is [REDACTED]!");
        assert_eq!(redactor.text(r#"{"it": "hun\"ter22"}"#), r#"{"it": "[REDACTED]"}"#);
        assert_eq!(redactor.text("line AAAABBBBCCCC of on"), "line [REDACTED] of on");
        assert_eq!(
            redactor.value(json!({"a": ["x987654", 987_654, 1]})),
            json!({"a": ["x[REDACTED]", "[REDACTED]", 1]})
        );
    }
}
