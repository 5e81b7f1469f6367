//! Mistakes in a configuration: where, what, and what was probably meant.

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

/// A mistake with everything a person needs to mend it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ConfigError {
    /// The connection of the project; empty for the tenants' own file.
    pub connection: ConnectionName,
    /// The project the file lies in; empty for the tenants' own file.
    pub project: ProjectName,
    /// The branch of the project.
    pub branch: BranchName,
    /// The file's path within the project.
    pub path: String,
    /// The mistake itself.
    pub problem: Problem,
}

/// A mistake within a file that need not know which file it is.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Problem {
    /// What sort of mistake.
    pub kind: ProblemKind,
    /// How bad it is.
    pub severity: Severity,
    /// Kind and name of the object (`job python27`); empty for a whole file.
    pub stanza: String,
    /// The line on which that object begins; `None` where it is not known or no other than the
    /// mistake's.
    #[serde(default)]
    pub stanza_line: Option<NonZeroU32>,
    /// The attribute, as a path (`secrets.name`).
    pub attribute: Option<String>,
    /// Where it begins.
    pub start: Mark,
    /// Where it ends.
    pub end: Mark,
    /// What is wrong, in Zuul's words where users know them.
    pub message: String,
    /// What was probably meant.
    pub suggestion: Option<String>,
}

/// Sorts of mistakes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ProblemKind {
    /// The file is no YAML, or a stanza is not shaped as it must be.
    Syntax,
    /// A name that nothing bears.
    UnknownName,
    /// Something that exists already.
    Duplicate,
    /// Something this repository, job or pipeline may not do.
    NotPermitted,
    /// Definitions that contradict each other.
    Conflict,
    /// Something that is understood and not carried out.
    NotServed,
}

/// How bad a mistake is.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// It works, but is probably not meant.
    Warning,
    /// The object is not loaded.
    #[default]
    Error,
}

impl Problem {
    /// Returns an error of the given kind at a place.
    pub fn new(kind: ProblemKind, start: Mark, end: Mark, message: impl Into<String>) -> Self {
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

    /// Returns the same, within a stanza.
    #[must_use]
    pub fn in_stanza(mut self, stanza: &str) -> Self {
        self.stanza = plain(stanza.to_owned());
        self
    }

    /// Returns the same, in a stanza that begins at `start`.
    #[must_use]
    pub fn from_stanza_at(mut self, start: Mark) -> Self {
        self.stanza_line =
            NonZeroU32::new(start.line()).filter(|line| line.get() < self.start.line());
        self
    }

    /// Returns the same, about an attribute.
    #[must_use]
    pub fn about(mut self, attribute: &str) -> Self {
        self.attribute = Some(plain(attribute.to_owned()));
        self
    }

    /// Returns the same with the nearest of `known` as a suggestion.
    #[must_use]
    pub fn suggesting<'a>(mut self, wrong: &str, known: impl IntoIterator<Item = &'a str>) -> Self {
        self.suggestion = nearest(wrong, known).map(|name| plain(name.to_owned()));
        self
    }

    /// Returns the same with the nearest of `known`, as far as hints are left.
    #[must_use]
    pub(crate) fn hinting<'a>(
        mut self,
        hints: &Hints,
        wrong: &str,
        known: impl IntoIterator<Item = &'a str>,
    ) -> Self {
        self.suggestion = hints.nearest(wrong, known).map(|name| plain(name.to_owned()));
        self
    }

    /// Returns the same as a warning.
    #[must_use]
    pub fn as_warning(mut self) -> Self {
        self.severity = Severity::Warning;
        self
    }
}

impl ConfigError {
    /// Returns the short text that is put on a change, in Zuul's wording.
    pub fn short_text(&self) -> String {
        match self.problem.kind {
            ProblemKind::Syntax => format!("syntax error: {}", self.sentence()),
            _ => self.sentence(),
        }
    }

    pub(crate) fn sentence(&self) -> String {
        match &self.problem.suggestion {
            Some(suggestion) => {
                format!("{} (did you mean \"{suggestion}\"?)", self.problem.message)
            }
            None => self.problem.message.clone(),
        }
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}:{}: {}",
            plain(self.path.clone()),
            self.problem.start.line(),
            self.short_text()
        )
    }
}

impl std::error::Error for ConfigError {}

/// Names that are looked at for all the suggestions that are made together.
const LOOKED_AT_MAX: usize = 2_000_000;

/// What may still be looked at to suggest names: very many wrong names among very many right ones
/// must not cost their product. Once it is spent mistakes are told without what was probably meant.
pub(crate) struct Hints {
    left: Cell<usize>,
}

impl Hints {
    /// Returns as much as one layout, or one overlay, may spend.
    pub(crate) fn new() -> Self {
        Self { left: Cell::new(LOOKED_AT_MAX) }
    }

    /// Returns as [`nearest`], of those that may still be looked at.
    pub(crate) fn nearest<'a>(
        &self,
        wrong: &str,
        known: impl IntoIterator<Item = &'a str>,
    ) -> Option<&'a str> {
        let left = self.left.get();
        nearest(
            wrong,
            known
                .into_iter()
                .take(left)
                .inspect(|_| self.left.set(self.left.get().saturating_sub(1))),
        )
    }
}

/// Characters of a name that one is suggested for, or that is suggested.
const NAME_CHARS_MAX: usize = 200;

/// Returns the name of `known` that is nearest to `wrong`, if one is near enough to be meant.
pub fn nearest<'a>(wrong: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    if wrong.len() > NAME_CHARS_MAX {
        return None;
    }
    let (length, letters) = letters(wrong);
    // Of a long name more may be wrong: a word of several.
    let limit = (length / 3).clamp(1, 4).max((length / 4).min(6));
    let mut best: Option<(usize, &str)> = None;
    for name in known {
        if name.len() > NAME_CHARS_MAX {
            continue;
        }
        // Whoever is no nearer than the best need not be measured; of equals the first by name is
        // taken.
        let limit = best.map_or(limit, |(distance, _)| distance);
        let (other_length, other) = self::letters(name);
        // An edit adds at most one letter and takes one away; many names are out by that alone.
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

/// Returns the number of characters and a set of them, a bit each; different ones may share a bit.
fn letters(word: &str) -> (usize, u64) {
    word.chars()
        .fold((0, 0), |(length, set), letter| (length + 1, set | 1 << (u32::from(letter) % 64)))
}

/// Returns the number of single edits between two words, of which one is that two letters changed
/// places; more than `limit` may be reported as `limit + 1`.
fn distance(one: &str, other: &str, limit: usize) -> usize {
    let (one, other) = unlike(one, other);
    let one: Vec<char> = one.chars().collect();
    let other: Vec<char> = other.chars().collect();
    if one.is_empty() || other.is_empty() {
        return one.len().max(other.len());
    }
    if one.len().abs_diff(other.len()) > limit {
        return limit + 1;
    }
    // A row for each letter of the one: how far its beginning is from each beginning of the other.
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

/// Returns two words without the beginning and the end that they share: names of one family differ
/// in a few letters only.
fn unlike<'w>(one: &'w str, other: &'w str) -> (&'w str, &'w str) {
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

    /// E2: misprints are told with the nearest name.
    #[test]
    fn the_nearest_name_is_suggested_only_when_near() {
        assert_eq!(
            nearest("primar-controller", ["primary-controller", "controller"]),
            Some("primary-controller")
        );
        assert_eq!(nearest("timeuot", ["timeout", "attempts"]), Some("timeout"));
        assert_eq!(nearest("x", ["voting", "vars"]), None);
        // Letters that changed places are one slip, also in words too short for two.
        for (wrong, meant) in
            [("jbo", "job"), ("nmae", "name"), ("chekc", "check"), ("urn", "run"), ("ejbo", "jobe")]
        {
            let found = nearest(wrong, [meant]);
            assert_eq!(found, (wrong != "ejbo").then_some(meant), "{wrong}");
        }
        assert_eq!(distance("abcdef", "badcfe", 6), 3);
        assert_eq!(distance("kitten", "sitting", 6), 3);
    }

    /// Z6.7: a file of a megabyte can hold a hundred thousand wrong names, and a tenant as many
    /// right ones.
    #[test]
    fn what_suggestions_cost_together_has_a_bound() {
        let known: Vec<String> = (0..1_000).map(|number| format!("name-{number:04}")).collect();
        let (hints, mut looked_at) = (Hints::new(), 0);
        let mut suggested = Vec::new();
        for number in 0..5_000 {
            let names = known.iter().map(String::as_str).inspect(|_| looked_at += 1);
            suggested.push(hints.nearest(&format!("nam-{number:04}"), names).is_some());
        }
        assert!(suggested[0] && suggested[999], "there is enough for what people write");
        assert!(!suggested[4_999] && looked_at <= LOOKED_AT_MAX, "{looked_at}");
        let long = "x".repeat(NAME_CHARS_MAX + 1);
        assert_eq!(
            nearest(&long, [format!("{long}y").as_str()]),
            None,
            "nor does one comparison cost the product of two files"
        );
    }
}
