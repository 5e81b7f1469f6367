//! How a mistake is shown: to a person at a terminal, and on a change beside the line that it is
//! about.

use super::plain::{self, plain};
use super::{ConfigError, Problem, Severity};
use crate::yaml::Mark;
use serde::{Deserialize, Serialize};

/// Characters of a line that are shown; lines of configuration can be as long as a ciphertext.
const WIDTH_MAX: usize = 160;

/// A comment on a line of a change, as forges take it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReviewComment {
    /// The file's path within the project.
    pub path: String,
    /// The line it is shown at, from 1: the last one of the mistake.
    pub line: u32,
    /// Where the stanza begins that the mistake is in: its line, from 1.
    pub start_line: u32,
    /// The column of that place, from 0.
    pub start_character: u32,
    /// Where the mistake ends: its line, from 1.
    pub end_line: u32,
    /// The column behind that place, from 0.
    pub end_character: u32,
    /// How bad it is.
    pub severity: Severity,
    /// What is said.
    pub message: String,
}

impl ConfigError {
    /// Returns the comment for a change that has the file.
    pub fn review_comment(&self) -> ReviewComment {
        let problem = &self.problem;
        let start = problem.stanza_line.map_or(problem.start, |line| Mark(line.get(), 1));
        let end = last_place(problem);
        let mut message = self.short_text();
        if !problem.stanza.is_empty() {
            message += &format!("\n\nThis is in {}.", place_words(problem));
        }
        ReviewComment {
            path: self.path.clone(),
            line: end.line(),
            start_line: start.line(),
            start_character: start.column().saturating_sub(1),
            end_line: end.line(),
            end_character: end.column().saturating_sub(1),
            severity: problem.severity,
            message,
        }
    }

    /// Returns the text for a terminal, with the lines of `source` (the file's text) where it is at
    /// hand.
    pub fn render(&self, source: Option<&str>) -> String {
        let problem = &self.problem;
        let mut text = format!("{}: {}\n", problem.severity.word(), problem.message);
        let file = if self.project.as_str().is_empty() {
            self.path.clone()
        } else {
            format!("{}@{}: {}", self.project, self.branch, self.path)
        };
        let file = plain(file);
        text += &format!("  --> {file}:{}:{}\n", problem.start.line(), problem.start.column());
        text += &source.map(|source| excerpt(source, problem)).unwrap_or_default();
        if !problem.stanza.is_empty() {
            text += &format!("  in {}\n", place_words(problem));
        }
        if let Some(suggestion) = &problem.suggestion {
            text += &format!("  did you mean \"{suggestion}\"?\n");
        }
        text
    }
}

impl Severity {
    /// Returns the word for it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Warning => "warning",
            Self::Error => "error",
        }
    }
}

fn place_words(problem: &Problem) -> String {
    let attribute = problem
        .attribute
        .as_ref()
        .map_or_else(String::new, |attribute| format!(", attribute \"{attribute}\""));
    format!("{}{attribute}", problem.stanza)
}

/// Returns where a mistake ends; what ends before the first column of a line ends with the line
/// before.
fn last_place(problem: &Problem) -> Mark {
    let (start, end) = (problem.start, problem.end);
    if end.column() <= 1 && end.line() > start.line() {
        Mark(end.line() - 1, 1)
    } else {
        end.max(start)
    }
}

/// Returns the first line of a mistake with marks below it, and where it goes on to if that is
/// further down.
fn excerpt(source: &str, problem: &Problem) -> String {
    let (start, end) = (problem.start, last_place(problem));
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
    // A tab is as wide above as below.
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
    use super::super::{ProblemKind, Severity};
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

    fn error(problem: Problem) -> ConfigError {
        ConfigError {
            connection: "github".into(),
            project: "github.com/org/project".into(),
            branch: "master".into(),
            path: ".zuul.yaml".to_owned(),
            problem,
        }
    }

    /// Z6.6: a mistake of several lines shows its first and names its last; a long line is cut.
    #[test]
    fn long_mistakes_are_shown_short() {
        let problem =
            Problem::new(ProblemKind::Syntax, Mark(1, 3), Mark(4, 1), "too much").as_warning();
        let source = format!("- {}\nb\nc\nd\n", "x".repeat(400));
        let text = error(problem).render(Some(&source));
        assert!(
            text.starts_with("warning: too much\n") && text.ends_with("  | … to line 3\n"),
            "{text}"
        );
        assert!(
            text.contains("x…\n") && text.lines().all(|line| line.chars().count() < 170),
            "{text}"
        );
    }

    /// C02: the comment stands at the mistake's last line and reaches from where its stanza begins.
    #[test]
    fn a_comment_reaches_from_the_stanza_to_the_mistake() {
        let problem = Problem::new(
            ProblemKind::UnknownName,
            Mark(9, 11),
            Mark(9, 15),
            "Job nope not defined",
        )
        .in_stanza("project org/project")
        .from_stanza_at(Mark(5, 3))
        .about("check");
        let comment = error(problem).review_comment();
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
