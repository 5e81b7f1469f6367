//! Regular expressions as Zuul's users write them: RE2 syntax, matched from the start of the text.

use crate::pattern_translation::translate;
use regex::Regex;
use serde::de::{self, MapAccess, Visitor};
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::borrow::Cow;
use std::fmt;
use std::sync::OnceLock;

/// A regular expression, possibly negated. It is compiled on first use, and only if it is more than
/// literals and `.*`.
///
/// Serializes as its text, or as `{"regex": …, "negate": true}` if negated.
#[derive(Clone)]
pub struct Pattern {
    /// The text as written.
    text: String,
    /// Whether it matches what the text does not match.
    negate: bool,
    /// The compiled expression for each kind of anchoring, once it was used.
    compiled: Box<[OnceLock<Option<Regex>>; 3]>,
}

/// Whether a pattern matches what its regular expression does not match.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Negation {
    Absent,
    Present,
}

/// Where a pattern must match in a text.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Anchoring {
    Anywhere,
    AtStart,
    Whole,
}

/// Why a text is not a valid regular expression.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("cannot use \"{text}\" as a regular expression because {reason}")]
pub struct PatternError {
    /// The text.
    pub text: String,
    /// The error in one line.
    pub reason: String,
}

impl Pattern {
    /// Parses a regular expression as a pattern that is not negated. Look-around and
    /// back-references are errors, as in RE2.
    pub fn new(text: &str) -> Result<Self, PatternError> {
        Self::checked(text, Negation::Absent)
    }

    /// Parses a regular expression whose pattern matches exactly what `text` does not match.
    pub fn negated(text: &str) -> Result<Self, PatternError> {
        Self::checked(text, Negation::Present)
    }

    /// Returns a pattern if its regular expression is valid, otherwise why it is not. With
    /// `Present`, the pattern matches exactly what the expression does not match.
    fn checked(text: &str, negation: Negation) -> Result<Self, PatternError> {
        if Simple::parse(text).is_none() {
            compile(text, Anchoring::Anywhere)?;
        }
        Ok(Self::unchecked(text, negation == Negation::Present))
    }

    /// Returns the pattern that matches exactly the text `literal`, in which no character is
    /// special.
    pub fn exactly(literal: &str) -> Self {
        Self::unchecked(&format!("^{}$", regex::escape(literal)), false)
    }

    /// Returns a pattern that is compiled at its first use. Its text is not checked: an invalid one
    /// matches nothing, even if negated.
    fn unchecked(text: &str, negate: bool) -> Self {
        Self { text: text.to_owned(), negate, compiled: Box::default() }
    }

    /// Returns the text as written.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Returns whether it is negated.
    pub fn is_negated(&self) -> bool {
        self.negate
    }

    /// Returns whether the pattern matches `text` from its start, not necessarily to its end, as
    /// for branches, refs and files. For a negated pattern, returns the opposite.
    pub fn matches(&self, text: &str) -> bool {
        self.matches_at(text, Anchoring::AtStart)
    }

    /// Returns whether the pattern matches anywhere in `text`, as for comments, people and
    /// hashtags. For a negated pattern, returns the opposite.
    pub fn finds(&self, text: &str) -> bool {
        self.matches_at(text, Anchoring::Anywhere)
    }

    /// Returns whether the pattern matches the whole text, as for commit statuses. For a negated
    /// pattern, returns the opposite.
    pub fn matches_whole(&self, text: &str) -> bool {
        self.matches_at(text, Anchoring::Whole)
    }

    /// Returns whether the pattern matches at the given anchors; the opposite for a negated one. A
    /// pattern that does not compile, which only a layout stored by another version can contain,
    /// matches nothing, even if negated.
    fn matches_at(&self, text: &str, anchoring: Anchoring) -> bool {
        // A dot does not match a line break, which the simple matcher does not check.
        if let Some(simple) = Simple::parse(&self.text).filter(|_| !text.contains('\n')) {
            return simple.matches(text, anchoring) != self.negate;
        }
        let [anywhere, at_start, whole] = &*self.compiled;
        let slot = match anchoring {
            Anchoring::Anywhere => anywhere,
            Anchoring::AtStart => at_start,
            Anchoring::Whole => whole,
        };
        match slot.get_or_init(|| compile(&self.text, anchoring).ok()) {
            Some(compiled) => compiled.is_match(text) != self.negate,
            None => false,
        }
    }
}

/// Compiles a regular expression for one kind of anchoring. The error has the reason in one line:
/// RE2 does not allow it, or it is malformed.
fn compile(text: &str, anchoring: Anchoring) -> Result<Regex, PatternError> {
    let error = |reason: String| PatternError { text: text.to_owned(), reason };
    let translated = translate(text).map_err(|reason| error(reason.to_owned()))?;
    let source = match anchoring {
        Anchoring::Anywhere => translated,
        Anchoring::AtStart => format!(r"\A(?:{translated})"),
        Anchoring::Whole => format!(r"\A(?:{translated})\z"),
    };
    Regex::new(&source).map_err(|cause| {
        error(cause.to_string().lines().last().unwrap_or("it is malformed").replace("error: ", ""))
    })
}

/// A pattern of literals with `.*` between them, as most are. Compiling it would cost a thousand
/// times as much as matching it.
struct Simple<'p> {
    /// Whether a match must start at the start of the text.
    at_start: bool,
    /// Whether a match must end at the end of the text.
    at_end: bool,
    /// The literals, with `.*` between each two.
    pieces: Vec<Cow<'p, str>>,
}

impl<'p> Simple<'p> {
    /// Splits a pattern into its literals; `None` if it has other parts than literals with `.*`
    /// between them, a `^` at the start and a `$` at the end.
    fn parse(text: &'p str) -> Option<Self> {
        let inner = text.strip_prefix('^');
        let (at_start, inner) = (inner.is_some(), inner.unwrap_or(text));
        let end = inner.strip_suffix('$').filter(|rest| !rest.ends_with('\\'));
        let (at_end, inner) = (end.is_some(), end.unwrap_or(inner));
        let pieces = inner.split(".*").map(literal).collect::<Option<Vec<_>>>()?;
        Some(Self { at_start, at_end, pieces })
    }

    /// Returns whether a text matches the literals, with the pattern's own `^` and `$` and the
    /// given anchoring. The caller has checked that the text has no line break, which `.*` does not
    /// match, and applies the negation.
    fn matches(&self, text: &str, anchoring: Anchoring) -> bool {
        let Some((first, others)) = self.pieces.split_first() else { return false };
        let at_end = self.at_end || anchoring == Anchoring::Whole;
        let found = if self.at_start || anchoring != Anchoring::Anywhere {
            text.strip_prefix(&**first)
        } else if others.is_empty() && at_end {
            text.ends_with(&**first).then_some("")
        } else {
            after(text, first)
        };
        let Some(mut rest) = found else { return false };
        let Some((last, middle)) = others.split_last() else { return !at_end || rest.is_empty() };
        for piece in middle {
            let Some(found) = after(rest, piece) else { return false };
            rest = found;
        }
        if at_end { rest.ends_with(&**last) } else { rest.contains(&**last) }
    }
}

/// Returns the text after the first occurrence of `piece`; `None` if it does not occur.
fn after<'t>(text: &'t str, piece: &str) -> Option<&'t str> {
    text.find(piece).and_then(|start| text.get(start + piece.len()..))
}

/// Returns the text that a piece of a pattern matches, with `\.`, `\/`, `\-` and `\+` unescaped;
/// `None` if it has other special characters.
fn literal(piece: &str) -> Option<Cow<'_, str>> {
    let is_plain = |c: char| c.is_alphanumeric() || "/-_ @:,=~#%".contains(c);
    if piece.chars().all(is_plain) {
        return Some(Cow::Borrowed(piece));
    }
    let mut text = String::with_capacity(piece.len());
    let mut characters = piece.chars();
    while let Some(c) = characters.next() {
        match c {
            '\\' => text.push(characters.next().filter(|c| "./-+".contains(*c))?),
            c if is_plain(c) => text.push(c),
            _ => return None,
        }
    }
    Some(Cow::Owned(text))
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
    /// Writes the text, or, if the pattern is negated, a mapping with `regex` and `negate`.
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

    /// Reads `regex`, and optionally `negate`. Another key or no `regex` is an error, but an
    /// invalid regular expression is not: it matches nothing.
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

    /// Z4.2: branches and files match from the start.
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

    /// Z4.2: patterns that are not compiled match as compiled ones do.
    #[test]
    fn simple_patterns_match_as_the_compiled_ones() {
        let patterns = [
            "",
            "^",
            "$",
            "^$",
            "a",
            "^a",
            "a$",
            "^a$",
            "a.*",
            ".*a",
            "^.*a$",
            "a.*b",
            "^a.*b$",
            "a.*a",
            ".*",
            "^.*$",
            "a.*b.*a",
            r"a\.b",
            r"^.*\.rst$",
            r"\-a",
            "ab",
        ];
        let texts = [
            "",
            "a",
            "b",
            "ab",
            "ba",
            "aa",
            "aba",
            "abab",
            "xay",
            "a.b",
            "axb",
            "doc.rst",
            "doc.rst.in",
            "-a",
            "bab",
        ];
        for pattern in patterns {
            let simple = Simple::parse(pattern).unwrap_or_else(|| panic!("{pattern} is simple"));
            for anchoring in [Anchoring::Anywhere, Anchoring::AtStart, Anchoring::Whole] {
                let compiled = compile(pattern, anchoring).unwrap();
                for text in texts {
                    assert_eq!(
                        simple.matches(text, anchoring),
                        compiled.is_match(text),
                        "{pattern:?} in {text:?}"
                    );
                }
            }
        }
        for pattern in [r"a\d", "a|b", "a.", "a+", "(a)", "[a]", "a?", r"a\$", "a{2}", "^^a", r"\"]
        {
            assert!(Simple::parse(pattern).is_none(), "{pattern}");
        }
        assert!(!Pattern::new("^a.*b$").unwrap().matches("a\nb"), "a dot is no line's end");
    }

    /// Z4.2
    #[test]
    fn negation_survives_storage() {
        let pattern = Pattern::negated("^stable/").unwrap();
        assert!(pattern.matches("master"));
        assert!(!pattern.matches("stable/one"));
        let text = serde_json::to_string(&pattern).unwrap();
        assert_eq!(text, r#"{"regex":"^stable/","negate":true}"#);
        assert_eq!(serde_json::from_str::<Pattern>(&text).unwrap(), pattern);
        assert_eq!(serde_json::to_string(&Pattern::new("a.*").unwrap()).unwrap(), r#""a.*""#);
    }
}
