//! Mistakes in a configuration: where, what, and what was probably meant.

use crate::yaml::Mark;
use serde::{Deserialize, Serialize};
use sluice_model::{BranchName, ConnectionName, ProjectName};
use std::fmt;

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
}

/// How bad a mistake is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
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
            attribute: None,
            start,
            end,
            message: message.into(),
            suggestion: None,
        }
    }

    /// Returns the same, within a stanza.
    #[must_use]
    pub fn in_stanza(mut self, stanza: &str) -> Self {
        stanza.clone_into(&mut self.stanza);
        self
    }

    /// Returns the same, about an attribute.
    #[must_use]
    pub fn about(mut self, attribute: &str) -> Self {
        self.attribute = Some(attribute.to_owned());
        self
    }

    /// Returns the same with the nearest of `known` as a suggestion.
    #[must_use]
    pub fn suggesting<'a>(mut self, wrong: &str, known: impl IntoIterator<Item = &'a str>) -> Self {
        self.suggestion = nearest(wrong, known).map(str::to_owned);
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

    fn sentence(&self) -> String {
        match &self.problem.suggestion {
            Some(suggestion) => {
                format!("{} (did you mean \"{suggestion}\"?)", self.problem.message)
            }
            None => self.problem.message.clone(),
        }
    }

    /// Returns the text for a terminal, with the lines of `source` (the file's text) where it is at hand.
    pub fn render(&self, source: Option<&str>) -> String {
        let problem = &self.problem;
        let word = match problem.severity {
            Severity::Warning => "warning",
            Severity::Error => "error",
        };
        let mut text = format!("{word}: {}\n", problem.message);
        let place = if self.project.as_str().is_empty() {
            String::new()
        } else {
            format!("{}@{}: ", self.project, self.branch)
        };
        text += &format!("  --> {place}{}:{}:{}\n", self.path, problem.start.line(), problem.start.column());
        let line = usize::try_from(problem.start.line()).unwrap_or(0);
        if let Some(excerpt) = source.and_then(|source| source.lines().nth(line.wrapping_sub(1))) {
            let column = usize::try_from(problem.start.column()).unwrap_or(1).saturating_sub(1);
            let end = if problem.end.line() == problem.start.line() { problem.end.column() } else { 0 };
            let width = usize::try_from(end).unwrap_or(0).saturating_sub(column + 1);
            let rest = excerpt.chars().count().saturating_sub(column);
            let width = if width == 0 { rest } else { width };
            let number = line.to_string();
            text += &format!("{number} | {excerpt}\n");
            text += &format!("{} | {}{}\n", " ".repeat(number.len()), " ".repeat(column), "^".repeat(width.max(1)));
        }
        if !problem.stanza.is_empty() {
            let attribute =
                problem.attribute.as_ref().map_or_else(String::new, |attribute| format!(", attribute \"{attribute}\""));
            text += &format!("  in {}{attribute}\n", problem.stanza);
        }
        if let Some(suggestion) = &problem.suggestion {
            text += &format!("  did you mean \"{suggestion}\"?\n");
        }
        text
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.path, self.problem.start.line(), self.short_text())
    }
}

impl std::error::Error for ConfigError {}

/// Returns the name of `known` that is nearest to `wrong`, if one is near enough to be meant.
pub fn nearest<'a>(wrong: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let (length, letters) = letters(wrong);
    let limit = (length / 3).clamp(1, 4);
    let mut best: Option<(usize, &str)> = None;
    for name in known {
        // Whoever is no nearer than the best need not be measured; of equals the first by name is taken.
        let limit = best.map_or(limit, |(distance, _)| distance);
        let (other_length, other) = self::letters(name);
        // An edit adds at most one letter and takes one away; many names are out by that alone.
        let may_be_near =
            length.abs_diff(other_length) <= limit && (letters ^ other).count_ones() as usize <= 2 * limit;
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
    word.chars().fold((0, 0), |(length, set), letter| (length + 1, set | 1 << (u32::from(letter) % 64)))
}

/// Returns the number of single edits between two words; more than `limit` may be reported as `limit + 1`.
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
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (i, a) in one.iter().enumerate() {
        let mut diagonal = i;
        let mut left = i + 1;
        for (j, b) in other.iter().enumerate() {
            let above = row.get(j + 1).copied().unwrap_or(limit + 1);
            let here = (diagonal + usize::from(a != b)).min(above + 1).min(left + 1);
            diagonal = above;
            if let Some(slot) = row.get_mut(j) {
                *slot = left;
            }
            left = here;
        }
        if let Some(slot) = row.get_mut(other.len()) {
            *slot = left;
        }
    }
    row.last().copied().unwrap_or(limit + 1)
}

/// Returns two words without the beginning and the end that they share: names of one family differ in a few letters only.
fn unlike<'w>(one: &'w str, other: &'w str) -> (&'w str, &'w str) {
    let same = one.char_indices().zip(other.chars()).find(|((_, a), b)| a != b);
    let start = same.map_or(one.len().min(other.len()), |((start, _), _)| start);
    let (one, other) = (one.get(start..).unwrap_or_default(), other.get(start..).unwrap_or_default());
    let end: usize =
        one.chars().rev().zip(other.chars().rev()).take_while(|(a, b)| a == b).map(|(a, _)| a.len_utf8()).sum();
    let cut = |word: &'w str| word.get(..word.len() - end).unwrap_or_default();
    (cut(one), cut(other))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Z6.6: an error on a change names file and line.
    #[test]
    fn an_error_points_at_its_line() {
        let error = ConfigError {
            connection: "github".into(),
            project: "github.com/org/project".into(),
            branch: "master".into(),
            path: ".zuul.yaml".to_owned(),
            problem: Problem::new(
                ProblemKind::Syntax,
                Mark(3, 5),
                Mark(3, 11),
                "the attribute \"vottng\" is not known",
            )
            .in_stanza("job unit")
            .about("vottng")
            .suggesting("vottng", ["voting", "vars"]),
        };
        let source = "- job:\n    name: unit\n    vottng: true\n";
        assert_eq!(
            error.render(Some(source)),
            "error: the attribute \"vottng\" is not known\n  --> github.com/org/project@master: .zuul.yaml:3:5\n3 |     vottng: true\n  |     ^^^^^^\n  \
             in job unit, attribute \"vottng\"\n  did you mean \"voting\"?\n"
        );
        assert_eq!(
            error.short_text(),
            "syntax error: the attribute \"vottng\" is not known (did you mean \"voting\"?)"
        );
    }

    /// E2: misprints are told with the nearest name.
    #[test]
    fn the_nearest_name_is_suggested_only_when_near() {
        assert_eq!(nearest("primar-controller", ["primary-controller", "controller"]), Some("primary-controller"));
        assert_eq!(nearest("timeuot", ["timeout", "attempts"]), Some("timeout"));
        assert_eq!(nearest("x", ["voting", "vars"]), None);
    }
}
