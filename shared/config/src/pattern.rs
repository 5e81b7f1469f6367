//! Regular expressions as users of Zuul write them: RE2's syntax and rules, matched from the start of the text.

use crate::pattern_translation::translate;
use regex::Regex;
use serde::de::{self, MapAccess, Visitor};
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::sync::OnceLock;

/// A regular expression, possibly negated; it is compiled when it is first used.
///
/// Serialises as its text, or as `{"regex": …, "negate": true}` when negated.
#[derive(Clone)]
pub struct Pattern {
    text: String,
    negate: bool,
    compiled: OnceLock<Option<Compiled>>,
}

#[derive(Clone)]
struct Compiled {
    anywhere: Regex,
    at_start: Regex,
    whole: Regex,
}

/// Why a text is no regular expression.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("cannot use \"{text}\" as a regular expression because {reason}")]
pub struct PatternError {
    /// The text.
    pub text: String,
    /// What is wrong with it, in one line.
    pub reason: String,
}

impl Pattern {
    /// Returns the pattern of a text, or why it is none. Look-around and back-references are errors, as in RE2.
    pub fn new(text: &str) -> Result<Self, PatternError> {
        Self::with_negation(text, false)
    }

    /// Returns the pattern that matches whatever `text` does not, when `negate` is set.
    pub fn with_negation(text: &str, negate: bool) -> Result<Self, PatternError> {
        compile(text)?;
        Ok(Self::unchecked(text, negate))
    }

    /// Returns the pattern that matches exactly `literal`.
    pub fn exactly(literal: &str) -> Self {
        Self::unchecked(&format!("^{}$", regex::escape(literal)), false)
    }

    fn unchecked(text: &str, negate: bool) -> Self {
        Self { text: text.to_owned(), negate, compiled: OnceLock::new() }
    }

    /// Returns the text as written.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Returns whether the sense is turned round.
    pub fn is_negated(&self) -> bool {
        self.negate
    }

    /// Returns whether the text matches from its start, as for branches, refs and files.
    pub fn matches(&self, text: &str) -> bool {
        self.ask(|compiled| compiled.at_start.is_match(text))
    }

    /// Returns whether the pattern occurs anywhere in the text, as for comments.
    pub fn finds(&self, text: &str) -> bool {
        self.ask(|compiled| compiled.anywhere.is_match(text))
    }

    /// Returns whether the pattern covers the whole text, as for commit statuses.
    pub fn matches_whole(&self, text: &str) -> bool {
        self.ask(|compiled| compiled.whole.is_match(text))
    }

    /// A text that does not compile (it can only come from a stored layout of another version) matches nothing.
    fn ask(&self, question: impl Fn(&Compiled) -> bool) -> bool {
        match self.compiled.get_or_init(|| compile(&self.text).ok()) {
            Some(compiled) => question(compiled) != self.negate,
            None => false,
        }
    }
}

fn compile(text: &str) -> Result<Compiled, PatternError> {
    let error = |reason: String| PatternError { text: text.to_owned(), reason };
    let translated = translate(text).map_err(|reason| error(reason.to_owned()))?;
    let build = |source: &str| {
        Regex::new(source).map_err(|cause| {
            error(cause.to_string().lines().last().unwrap_or("it is malformed").replace("error: ", ""))
        })
    };
    Ok(Compiled {
        anywhere: build(&translated)?,
        at_start: build(&format!(r"\A(?:{translated})"))?,
        whole: build(&format!(r"\A(?:{translated})\z"))?,
    })
}

impl fmt::Debug for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/", if self.negate { "!" } else { "" }, self.text)
    }
}

impl PartialEq for Pattern {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text && self.negate == other.negate
    }
}

impl Eq for Pattern {}

impl Serialize for Pattern {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if !self.negate {
            return serializer.serialize_str(&self.text);
        }
        let mut map = serializer.serialize_map(Some(2))?;
        map.serialize_entry("regex", &self.text)?;
        map.serialize_entry("negate", &true)?;
        map.end()
    }
}

impl<'de> Deserialize<'de> for Pattern {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(PatternVisitor)
    }
}

struct PatternVisitor;

impl<'de> Visitor<'de> for PatternVisitor {
    type Value = Pattern;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a regular expression, or a mapping of regex and negate")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Pattern, E> {
        Ok(Pattern::unchecked(text, false))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Pattern, A::Error> {
        let mut text = None;
        let mut negate = false;
        while let Some(key) = map.next_key::<String>()? {
            match key.as_str() {
                "regex" => text = Some(map.next_value::<String>()?),
                "negate" => negate = map.next_value()?,
                other => return Err(de::Error::unknown_field(other, &["regex", "negate"])),
            }
        }
        let text = text.ok_or_else(|| de::Error::missing_field("regex"))?;
        Ok(Pattern::unchecked(&text, negate))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Z4.2: branches and files are matched from their start.
    #[test]
    fn a_pattern_is_anchored_at_the_start_only() {
        let pattern = Pattern::new("stable/").unwrap();
        assert!(pattern.matches("stable/diablo"));
        assert!(!pattern.matches("unstable/diablo"));
        assert!(pattern.finds("unstable/diablo"));
        assert!(!pattern.matches_whole("stable/diablo"));
        let alternatives = Pattern::new("master|stable").unwrap();
        assert!(!alternatives.matches("old-stable"));
    }

    /// Z4.2
    #[test]
    fn look_around_and_back_references_are_refused() {
        for text in ["^(?!stable)", "(?<=a)b", r"(a)\1", "[", "*a"] {
            let error = Pattern::new(text).unwrap_err();
            assert!(!error.reason.is_empty() && !error.reason.contains('\n'), "{error}");
        }
    }

    /// Z4.2
    #[test]
    fn negation_survives_storage() {
        let pattern = Pattern::with_negation("^stable/", true).unwrap();
        assert!(pattern.matches("master"));
        assert!(!pattern.matches("stable/one"));
        let text = serde_json::to_string(&pattern).unwrap();
        assert_eq!(text, r#"{"regex":"^stable/","negate":true}"#);
        assert_eq!(serde_json::from_str::<Pattern>(&text).unwrap(), pattern);
        assert_eq!(serde_json::to_string(&Pattern::new("a.*").unwrap()).unwrap(), r#""a.*""#);
    }
}
