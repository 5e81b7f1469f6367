//! Renders diagnostics: for a terminal, and as comments on a change.

use super::plain::{self, plain};
use super::{ConfigError, Diagnostic, Severity};
use crate::yaml::Mark;
use serde::{Deserialize, Serialize};

/// Maximum number of characters shown of a line. A line of configuration can contain a whole
/// ciphertext.
const WIDTH_MAX: usize = 160;

/// A comment on a line of a change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReviewComment {
    /// The file's path within the project.
    pub path: String,
    /// The line of the comment, from 1: the last line of the diagnostic.
    pub line: u32,
    /// The line where the stanza starts, from 1.
    pub start_line: u32,
    /// The column where the stanza starts, from 0.
    pub start_character: u32,
    /// The line where the diagnostic ends, from 1.
    pub end_line: u32,
    /// The column after the end, from 0.
    pub end_character: u32,
    /// Whether it is an error or a warning.
    pub severity: Severity,
    /// The text of the comment.
    pub message: String,
}

impl ConfigError {
    /// Returns the comment for a change that contains the file. It reaches from the start of the
    /// stanza, or of the diagnostic if that is unknown, to the end of the diagnostic. Its text is
    /// the short text ([`ConfigError::short_text`]), then, if the stanza is known, the stanza and
    /// the attribute.
    pub fn review_comment(&self) -> ReviewComment {
        let diagnostic = &self.diagnostic;
        let start = diagnostic.stanza_line.map_or(diagnostic.start, |line| Mark(line.get(), 1));
        let end = end_mark(diagnostic);
        let mut message = self.short_text();
        if !diagnostic.stanza.is_empty() {
            message += &format!("\n\nThis is in {}.", subject(diagnostic));
        }
        ReviewComment {
            path: self.path.clone(),
            line: end.line(),
            start_line: start.line(),
            start_character: start.column().saturating_sub(1),
            end_line: end.line(),
            end_character: end.column().saturating_sub(1),
            severity: diagnostic.severity,
            message,
        }
    }

    /// Renders the diagnostic for a terminal in several lines, without colors: severity, message,
    /// position, stanza, attribute and suggestion. An attribute is only shown with its stanza. With
    /// `source`, which must be the text of the file it is about, it also shows the first line
    /// concerned, cut to 160 characters.
    pub fn render(&self, source: Option<&str>) -> String {
        let diagnostic = &self.diagnostic;
        let mut text = format!("{}: {}\n", diagnostic.severity.word(), diagnostic.message);
        let file = if self.project.as_str().is_empty() {
            self.path.clone()
        } else {
            format!("{}@{}: {}", self.project, self.branch, self.path)
        };
        let file = plain(file);
        text +=
            &format!("  --> {file}:{}:{}\n", diagnostic.start.line(), diagnostic.start.column());
        text += &source.map(|source| excerpt(source, diagnostic)).unwrap_or_default();
        if !diagnostic.stanza.is_empty() {
            text += &format!("  in {}\n", subject(diagnostic));
        }
        if let Some(suggestion) = &diagnostic.suggestion {
            text += &format!("  did you mean \"{suggestion}\"?\n");
        }
        text
    }
}

impl Severity {
    /// Returns the severity in lower case.
    pub fn word(self) -> &'static str {
        match self {
            Self::Warning => "warning",
            Self::Error => "error",
        }
    }
}

/// Returns the stanza and attribute that a diagnostic is about, such as `job x, attribute "vars"`.
fn subject(diagnostic: &Diagnostic) -> String {
    let attribute = diagnostic
        .attribute
        .as_ref()
        .map_or_else(String::new, |attribute| format!(", attribute \"{attribute}\""));
    format!("{}{attribute}", diagnostic.stanza)
}

/// Returns where a diagnostic ends. An end at the start of a later line becomes the line before,
/// and an end before the start becomes the start.
fn end_mark(diagnostic: &Diagnostic) -> Mark {
    let (start, end) = (diagnostic.start, diagnostic.end);
    if end.column() <= 1 && end.line() > start.line() {
        Mark(end.line() - 1, 1)
    } else {
        end.max(start)
    }
}

/// Returns the first line of a diagnostic, cut to [`WIDTH_MAX`] characters, with its span marked in
/// a line below, and the last line's number if it has several. `source` is the text of the file.
/// Empty if it has no such line.
fn excerpt(source: &str, diagnostic: &Diagnostic) -> String {
    let (start, end) = (diagnostic.start, end_mark(diagnostic));
    let at = |number: u32| usize::try_from(number).unwrap_or(usize::MAX).saturating_sub(1);
    let Some(line) = source.lines().nth(at(start.line())) else {
        return String::new();
    };
    let shown: String = plain::line(&line.chars().take(WIDTH_MAX).collect::<String>());
    let length = shown.chars().count();
    let column = at(start.column()).min(length);
    let until = if end.line() == start.line() { at(end.column()).min(length) } else { length };
    let number = start.line().to_string();
    let margin = " ".repeat(number.len());
    let cut = if line.chars().count() > length { "…" } else { "" };
    // A tab must have the same width above and below.
    let indent: String =
        shown.chars().take(column).map(|c| if c == '\t' { '\t' } else { ' ' }).collect();
    let marks = "^".repeat(until.saturating_sub(column).max(1));
    let mut text = format!("{number} | {shown}{cut}\n{margin} | {indent}{marks}\n");
    if end.line() > start.line() {
        text += &format!("{margin} | … to line {}\n", end.line());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::{DiagnosticKind, Severity};
    use super::*;

    /// Z6.6: an error on a change names file and line.
    #[test]
    fn an_error_points_at_its_line() {
        let error = ConfigError {
            connection: "github".into(),
            project: "github.com/org/project".into(),
            branch: "master".into(),
            path: ".zuul.yaml".to_owned(),
            diagnostic: Diagnostic::new(
                DiagnosticKind::Syntax,
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

    fn error(diagnostic: Diagnostic) -> ConfigError {
        ConfigError {
            connection: "github".into(),
            project: "github.com/org/project".into(),
            branch: "master".into(),
            path: ".zuul.yaml".to_owned(),
            diagnostic,
        }
    }

    /// Z6.6: a diagnostic of several lines shows the first and names the last; a long line is cut.
    #[test]
    fn long_diagnostics_are_shortened() {
        let diagnostic =
            Diagnostic::new(DiagnosticKind::Syntax, Mark(1, 3), Mark(4, 1), "too much")
                .as_warning();
        let source = format!("- {}\nb\nc\nd\n", "x".repeat(400));
        let text = error(diagnostic).render(Some(&source));
        assert!(
            text.starts_with("warning: too much\n") && text.ends_with("  | … to line 3\n"),
            "{text}"
        );
        assert!(
            text.contains("x…\n") && text.lines().all(|line| line.chars().count() < 170),
            "{text}"
        );
    }

    /// C02: the comment is at the last line of the diagnostic and starts at its stanza.
    #[test]
    fn a_comment_spans_from_the_stanza_to_the_end_of_the_diagnostic() {
        let diagnostic = Diagnostic::new(
            DiagnosticKind::UnknownName,
            Mark(9, 11),
            Mark(9, 15),
            "Job nope not defined",
        )
        .in_stanza("project org/project")
        .from_stanza_at(Mark(5, 3))
        .about("check");
        let comment = error(diagnostic).review_comment();
        assert_eq!((comment.line, comment.start_line, comment.end_line), (9, 5, 9));
        assert_eq!(
            (comment.start_character, comment.end_character, comment.severity),
            (0, 14, Severity::Error)
        );
        assert_eq!(
            comment.message,
            "Job nope not defined\n\nThis is in project org/project, attribute \"check\"."
        );
    }
}
