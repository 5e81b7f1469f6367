//! Diagnostics of the configuration: position, message and suggestion.

mod plain;
mod render;

pub use plain::{plain, plain_json};
pub use render::ReviewComment;

use crate::yaml::Mark;
use serde::{Deserialize, Serialize};
use sluice_model::{BranchName, ConnectionName, ProjectName};
use std::cell::Cell;
use std::fmt;
use std::num::NonZeroU32;

/// A diagnostic with the file it is in.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ConfigError {
    /// The connection of the project; empty for the main configuration.
    pub connection: ConnectionName,
    /// The project of the file; empty for the main configuration.
    pub project: ProjectName,
    /// The branch of the project.
    pub branch: BranchName,
    /// The file's path within the project.
    pub path: String,
    /// The diagnostic.
    pub diagnostic: Diagnostic,
}

/// An error or warning in a configuration file, without the file.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Diagnostic {
    /// The kind of error.
    pub kind: DiagnosticKind,
    /// Whether it is an error or a warning.
    pub severity: Severity,
    /// The kind and name of the object (`job python27`); empty for a whole file.
    pub stanza: String,
    /// The line where the object starts; `None` if it is unknown or the line of the diagnostic
    /// itself.
    pub stanza_line: Option<NonZeroU32>,
    /// The path of the attribute (`secrets.name`).
    pub attribute: Option<String>,
    /// Where it starts.
    pub start: Mark,
    /// Where it ends.
    pub end: Mark,
    /// What is wrong, in Zuul's wording where users know it.
    pub message: String,
    /// A similar name that may have been meant.
    pub suggestion: Option<String>,
}

/// Kinds of configuration errors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DiagnosticKind {
    /// The file is not valid YAML, or a stanza has the wrong structure.
    Syntax,
    /// A name that is not defined.
    UnknownName,
    /// An object that is already defined.
    Duplicate,
    /// Something that the repository, job or pipeline is not permitted to do.
    NotPermitted,
    /// Contradictory definitions.
    Conflict,
    /// A valid attribute that is not supported.
    Unsupported,
}

/// How severe a diagnostic is.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// The object works, but probably not as intended.
    Warning,
    /// The object is not loaded.
    #[default]
    Error,
}

impl Diagnostic {
    /// Returns an error of a kind at a position, without stanza, attribute and suggestion.
    /// Invisible characters in the message are escaped.
    pub fn new(kind: DiagnosticKind, start: Mark, end: Mark, message: impl Into<String>) -> Self {
        Self {
            kind,
            severity: Severity::Error,
            stanza: String::new(),
            stanza_line: None,
            attribute: None,
            start,
            end,
            message: plain(message.into()),
            suggestion: None,
        }
    }

    /// Sets the stanza that the diagnostic is about.
    #[must_use]
    pub fn in_stanza(mut self, stanza: &str) -> Self {
        self.stanza = plain(stanza.to_owned());
        self
    }

    /// Sets the line where the stanza starts; none if the diagnostic is on that line or before it.
    #[must_use]
    pub fn from_stanza_at(mut self, start: Mark) -> Self {
        self.stanza_line =
            NonZeroU32::new(start.line()).filter(|line| line.get() < self.start.line());
        self
    }

    /// Sets the attribute that the diagnostic is about.
    #[must_use]
    pub fn about(mut self, attribute: &str) -> Self {
        self.attribute = Some(plain(attribute.to_owned()));
        self
    }

    /// Sets the suggestion: the name in `candidates` that is most similar to `wrong`, or none if
    /// none is similar enough.
    #[must_use]
    pub fn suggesting<'a>(
        mut self,
        wrong: &str,
        candidates: impl IntoIterator<Item = &'a str>,
    ) -> Self {
        self.suggestion = nearest(wrong, candidates).map(|name| plain(name.to_owned()));
        self
    }

    /// Sets the suggestion: the name in `candidates` that is most similar to `wrong`, or none if
    /// none is similar enough or the budget is spent. Only as many names are compared as the budget
    /// allows; they are deducted from it, so names without a suggestion may have a similar one.
    #[must_use]
    pub(crate) fn suggesting_within<'a>(
        mut self,
        budget: &SuggestionBudget,
        wrong: &str,
        candidates: impl IntoIterator<Item = &'a str>,
    ) -> Self {
        self.suggestion = budget.nearest(wrong, candidates).map(|name| plain(name.to_owned()));
        self
    }

    /// Turns the diagnostic into a warning.
    #[must_use]
    pub fn as_warning(mut self) -> Self {
        self.severity = Severity::Warning;
        self
    }
}

impl ConfigError {
    /// Returns the message with its suggestion, without its position, in Zuul's wording for a
    /// report. A syntax error begins with `syntax error: `.
    pub fn short_text(&self) -> String {
        match self.diagnostic.kind {
            DiagnosticKind::Syntax => format!("syntax error: {}", self.sentence()),
            _ => self.sentence(),
        }
    }

    /// Returns the message, with its suggestion in parentheses if there is one.
    pub(crate) fn sentence(&self) -> String {
        match &self.diagnostic.suggestion {
            Some(suggestion) => {
                format!("{} (did you mean \"{suggestion}\"?)", self.diagnostic.message)
            }
            None => self.diagnostic.message.clone(),
        }
    }
}

impl fmt::Display for ConfigError {
    /// Writes `path:line: `, then the short text ([`ConfigError::short_text`]): the message with
    /// its suggestion, after `syntax error: ` for a syntax error. The project and the column are
    /// left out.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}:{}: {}",
            plain(self.path.clone()),
            self.diagnostic.start.line(),
            self.short_text()
        )
    }
}

impl std::error::Error for ConfigError {}

/// Maximum number of names compared for all suggestions of a layout together.
const COMPARED_MAX: usize = 2_000_000;

/// The number of names that may still be compared for suggestions.
///
/// Very many wrong names and very many right ones would otherwise cost their product. Once the
/// budget is spent, diagnostics have no suggestion.
pub(crate) struct SuggestionBudget {
    left: Cell<usize>,
}

impl SuggestionBudget {
    /// Returns the unspent budget of one layout or overlay.
    pub(crate) fn new() -> Self {
        Self { left: Cell::new(COMPARED_MAX) }
    }

    /// Returns the same as [`nearest`] for as many of the candidates as the budget allows, and
    /// deducts them from it. `None` once the budget is spent.
    pub(crate) fn nearest<'a>(
        &self,
        wrong: &str,
        candidates: impl IntoIterator<Item = &'a str>,
    ) -> Option<&'a str> {
        let left = self.left.get();
        nearest(
            wrong,
            candidates
                .into_iter()
                .take(left)
                .inspect(|_| self.left.set(self.left.get().saturating_sub(1))),
        )
    }
}

/// Maximum length of names that are compared.
const NAME_CHARS_MAX: usize = 200;

/// Returns the name in `candidates` that is most similar to `wrong`, of equally similar ones the
/// first in alphabetical order; `None` if none is similar enough. `wrong` itself is never returned.
/// Names longer than 200 bytes are not compared; `None` if `wrong` is one.
pub fn nearest<'a>(wrong: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    if wrong.len() > NAME_CHARS_MAX {
        return None;
    }
    let (length, letters) = letters(wrong);
    // A long name may have more errors: it consists of several words.
    let limit = (length / 3).clamp(1, 4).max((length / 4).min(6));
    let mut best: Option<(usize, &str)> = None;
    for name in candidates {
        if name.len() > NAME_CHARS_MAX {
            continue;
        }
        // A name must be nearer than the best so far; of equal ones the first by name wins.
        let limit = best.map_or(limit, |(distance, _)| distance);
        let (other_length, other) = self::letters(name);
        // An edit adds at most one letter and removes one. Comparing the sets of letters excludes
        // most names.
        let may_be_near = length.abs_diff(other_length) <= limit
            && (letters ^ other).count_ones() as usize <= 2 * limit;
        if !may_be_near || name == wrong {
            continue;
        }
        let found = (distance(wrong, name, limit), name);
        if found.0 <= limit && best.is_none_or(|best| found < best) {
            best = Some(found);
        }
    }
    best.map(|(_, name)| name)
}

/// Returns the length of a word in characters, and its letters as a bit set. Letters may share a
/// bit.
fn letters(word: &str) -> (usize, u64) {
    word.chars()
        .fold((0, 0), |(length, set), letter| (length + 1, set | 1 << (u32::from(letter) % 64)))
}

/// Returns the edit distance of two words; swapping neighboring letters counts as one edit. If the
/// distance is greater than `limit`, the result is only some number greater than `limit`.
fn distance(one: &str, other: &str, limit: usize) -> usize {
    let (one, other) = without_common_affixes(one, other);
    let one: Vec<char> = one.chars().collect();
    let other: Vec<char> = other.chars().collect();
    if one.is_empty() || other.is_empty() {
        return one.len().max(other.len());
    }
    if one.len().abs_diff(other.len()) > limit {
        return limit + 1;
    }
    // One row per letter of `one`: the distances of its prefix to each prefix of `other`.
    let (mut before, mut above) = (Vec::new(), (0..=other.len()).collect::<Vec<usize>>());
    let at = |row: &[usize], column: usize| row.get(column).copied().unwrap_or(limit + 1);
    for (i, a) in one.iter().enumerate() {
        let mut row = vec![i + 1];
        for (j, b) in other.iter().enumerate() {
            let mut here = (at(&above, j) + usize::from(a != b))
                .min(at(&above, j + 1) + 1)
                .min(at(&row, j) + 1);
            let swapped =
                i > 0 && j > 0 && one.get(i - 1) == Some(b) && other.get(j - 1) == Some(a);
            if swapped {
                here = here.min(at(&before, j - 1) + 1);
            }
            row.push(here);
        }
        before = std::mem::replace(&mut above, row);
    }
    at(&above, other.len())
}

/// Returns the two words without their common prefix and suffix. Similar names mostly differ in a
/// few letters.
fn without_common_affixes<'w>(one: &'w str, other: &'w str) -> (&'w str, &'w str) {
    let same = one.char_indices().zip(other.chars()).find(|((_, a), b)| a != b);
    let start = same.map_or(one.len().min(other.len()), |((start, _), _)| start);
    let (one, other) =
        (one.get(start..).unwrap_or_default(), other.get(start..).unwrap_or_default());
    let end: usize = one
        .chars()
        .rev()
        .zip(other.chars().rev())
        .take_while(|(a, b)| a == b)
        .map(|(a, _)| a.len_utf8())
        .sum();
    let cut = |word: &'w str| word.get(..word.len() - end).unwrap_or_default();
    (cut(one), cut(other))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// E2: misspelled names are reported with a suggestion.
    #[test]
    fn the_nearest_name_is_suggested_only_when_near() {
        assert_eq!(
            nearest("primar-controller", ["primary-controller", "controller"]),
            Some("primary-controller")
        );
        assert_eq!(nearest("timeuot", ["timeout", "attempts"]), Some("timeout"));
        assert_eq!(nearest("x", ["voting", "vars"]), None);
        // Swapped letters are one edit, also in words too short for two.
        for (wrong, meant) in
            [("jbo", "job"), ("nmae", "name"), ("chekc", "check"), ("urn", "run"), ("ejbo", "jobe")]
        {
            let found = nearest(wrong, [meant]);
            assert_eq!(found, (wrong != "ejbo").then_some(meant), "{wrong}");
        }
        assert_eq!(distance("abcdef", "badcfe", 6), 3);
        assert_eq!(distance("kitten", "sitting", 6), 3);
    }

    /// Z6.7: a file of a megabyte can contain a hundred thousand wrong names, and a tenant as many
    /// right ones.
    #[test]
    fn the_total_cost_of_suggestions_is_bounded() {
        let known: Vec<String> = (0..1_000).map(|number| format!("name-{number:04}")).collect();
        let (budget, mut compared) = (SuggestionBudget::new(), 0);
        let mut suggested = Vec::new();
        for number in 0..5_000 {
            let names = known.iter().map(String::as_str).inspect(|_| compared += 1);
            suggested.push(budget.nearest(&format!("nam-{number:04}"), names).is_some());
        }
        assert!(suggested[0] && suggested[999], "there is enough for what people write");
        assert!(!suggested[4_999] && compared <= COMPARED_MAX, "{compared}");
        let long = "x".repeat(NAME_CHARS_MAX + 1);
        assert_eq!(
            nearest(&long, [format!("{long}y").as_str()]),
            None,
            "nor does one comparison cost the product of two files"
        );
    }
}
