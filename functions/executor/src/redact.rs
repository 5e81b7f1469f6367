//! Masks the values of secrets in text and JSON (Z5.4).

use aho_corasick::automaton::Automaton;
use aho_corasick::nfa::contiguous::NFA;
use aho_corasick::{Anchored, Input};
use serde_json::{Map, Value};
use std::collections::HashSet;
use std::sync::OnceLock;

/// The replacement for a secret.
const MASK: &str = "[REDACTED]";
/// The minimum length of a masked value. Masking every `on` or `80` would destroy the log and hide
/// nothing.
const LENGTH_MIN: usize = 4;

/// The values to mask.
#[derive(Default, Clone)]
pub struct Redactor {
    /// The texts to mask.
    needles: HashSet<String>,
    /// Finds all of them in one pass, once it is needed. `None` inside if they are too many for it.
    search: OnceLock<Option<NFA>>,
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
                if self.needles.insert(form) {
                    self.search = OnceLock::new();
                }
            }
        }
    }

    /// Returns what finds the added texts; `None` if they are too many for it.
    fn search(&self) -> Option<&NFA> {
        self.search.get_or_init(|| NFA::new(&self.needles).ok()).as_ref()
    }

    /// Returns `text` with every added secret replaced by `[REDACTED]`, also where it is escaped as
    /// in JSON. Secrets that overlap are replaced together, so that nothing is left of any: a job
    /// may itself add a text that contains half of a secret. Values shorter than 4 bytes are not
    /// masked.
    pub fn text(&self, text: &str) -> String {
        if self.needles.is_empty() {
            return text.to_owned();
        }
        // Nothing is shown of what cannot be searched.
        let Some(search) = self.search() else { return MASK.to_owned() };
        let mut masked = String::with_capacity(text.len());
        let mut shown = 0;
        for (start, end) in secrets_in(search, text) {
            masked.push_str(text.get(shown..start).unwrap_or_default());
            masked.push_str(MASK);
            shown = end;
        }
        masked.push_str(text.get(shown..).unwrap_or_default());
        masked
    }

    /// Returns whether an added secret occurs in `text`, also where it is escaped as in JSON.
    pub fn occurs_in(&self, text: &str) -> bool {
        if self.needles.is_empty() {
            return false;
        }
        self.search().is_none_or(|search| {
            !matches!(search.try_find(&Input::new(text).earliest(true)), Ok(None))
        })
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

/// Returns the parts of `text` that secrets cover, as start and end in bytes, in order. Parts that
/// overlap are one. One pass over the text, however many secrets there are.
fn secrets_in(search: &NFA, text: &str) -> Vec<(usize, usize)> {
    let mut parts: Vec<(usize, usize)> = Vec::new();
    let Ok(mut state) = search.start_state(Anchored::No) else { return vec![(0, text.len())] };
    for (at, byte) in text.bytes().enumerate() {
        state = search.next_state(Anchored::No, state, byte);
        if !search.is_match(state) {
            continue;
        }
        // The first of a state is the longest that ends here; the others are its ends.
        let (mut start, end) =
            (at + 1 - search.pattern_len(search.match_pattern(state, 0)), at + 1);
        while let Some((before, _)) = parts.pop_if(|(_, until)| *until > start) {
            start = start.min(before);
        }
        parts.push((start, end));
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::Redactor;
    use serde_json::{Value, json};

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

    /// Z5.4: what a job adds itself, or another secret, shows no part of a secret.
    #[test]
    fn secrets_that_overlap_are_masked_together() {
        for values in [["hunter2", "password: hu"], ["password: hu", "hunter2"]] {
            let mut redactor = Redactor::default();
            redactor.add(&json!(values));
            assert_eq!(redactor.text("the password: hunter2!"), "the [REDACTED]!");
        }
        for values in [["correct horse", "horse", "rect"], ["horse", "rect", "correct horse"]] {
            let mut redactor = Redactor::default();
            redactor.add(&json!(values));
            assert_eq!(redactor.text("a correct horse"), "a [REDACTED]");
            assert_eq!(
                redactor.text("a rectangular horsehorse"),
                "a [REDACTED]angular [REDACTED][REDACTED]"
            );
            assert_eq!(redactor.text("a correct hors"), "a cor[REDACTED] hors");
        }
        let mut redactor = Redactor::default();
        redactor.add(&json!(["aaaa", "aaaaaa", "ünïcödé"]));
        assert_eq!(redactor.text("baaaaaaaab ünïcödé ü"), "b[REDACTED]b [REDACTED] ü");
        assert!(redactor.occurs_in("xaaaax") && !redactor.occurs_in("aaa"));
    }

    /// Z5.4: the time does not grow with the square of the number of values.
    #[test]
    fn a_hundred_thousand_values_are_masked_in_one_pass() {
        let values: Vec<Value> = (0..100_000).map(|number| json!(format!("{number:06}"))).collect();
        let started = std::time::Instant::now();
        let mut redactor = Redactor::default();
        redactor.add(&Value::Array(values));
        let line = "an ordinary line of output ".repeat(2_000);
        let text = format!("{line}012345{line}");
        assert_eq!(redactor.text(&text), format!("{line}[REDACTED]{line}"));
        // Seconds at most; with a search for each value it is minutes.
        assert!(started.elapsed().as_secs() < 30, "{:?}", started.elapsed());
    }
}
