//! Reduces the detail of a status that would exceed the maximum response size, and selects parts of
//! a status.

use crate::filter::matches_wildcard;
use crate::request::ApiRequest;
use serde_json::Value;
use sluice_model::change::ChangeRef;

/// The maximum size of an answer in bytes, encoded as a string in JSON: Lambda's limit of 6 MiB,
/// less room for headers.
const ENCODED_BYTES_MAX: usize = (6 << 20) - (64 << 10);

/// How much detail is shown of queued changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DetailLevel {
    /// Everything.
    Whole,
    /// No jobs for changes outside the window of their queue.
    Window,
    /// No jobs at all.
    Changes,
}

impl DetailLevel {
    /// Returns whether the jobs of a change are included. `is_active` says whether it is within the
    /// window.
    pub(crate) fn includes_jobs(self, is_active: bool) -> bool {
        match self {
            Self::Whole => true,
            Self::Window => is_active,
            Self::Changes => false,
        }
    }

    /// Returns a message about what is left out; `None` if nothing is.
    pub(crate) fn left_out(self) -> Option<String> {
        let of = match self {
            Self::Whole => return None,
            Self::Window => "changes outside the window of their queue",
            Self::Changes => "all changes",
        };
        Some(format!(
            "The status is too large for one answer: the jobs of {of} are left out. Select one pipeline (`pipeline`) or project (`project`) on the status page, in `T/board` or with `sluice status` to see them."
        ))
    }
}

/// Returns the most detailed version that fits into a response, or the least detailed one if none
/// fits.
pub(crate) fn fit_detail(make: impl Fn(DetailLevel) -> Value) -> Value {
    fit_detail_within(ENCODED_BYTES_MAX, make)
}

/// Returns the most detailed version with at most `bytes_max` bytes, or the least detailed one if
/// none fits.
fn fit_detail_within(bytes_max: usize, make: impl Fn(DetailLevel) -> Value) -> Value {
    let details = [DetailLevel::Whole, DetailLevel::Window].into_iter();
    let fits = |body: &Value| encoded_bytes(&body.to_string()) <= bytes_max;
    details.map(&make).find(fits).unwrap_or_else(|| make(DetailLevel::Changes))
}

/// Returns the size of a text when it is encoded as a string in JSON. Only quotes and backslashes
/// are escaped in an answer.
fn encoded_bytes(text: &str) -> usize {
    text.len() + text.bytes().filter(|byte| matches!(byte, b'"' | b'\\')).count()
}

/// The part of a status that is selected by parameters. A bundle is selected as a whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct StatusSelection<'a> {
    /// Selects one pipeline.
    pub(crate) pipeline: Option<&'a str>,
    /// Selects changes of a project, by short or canonical name; `*` matches anything.
    project: Option<&'a str>,
    /// Selects one change, as in `7,1`.
    change: Option<&'a str>,
}

impl<'a> StatusSelection<'a> {
    /// Reads the parameters; an empty value selects everything.
    pub(crate) fn read(request: &'a ApiRequest) -> Self {
        let one = |name: &str| request.parameter(name).filter(|value| !value.is_empty());
        Self { pipeline: one("pipeline"), project: one("project"), change: one("change") }
    }

    /// Returns whether a pipeline is selected.
    pub(crate) fn matches_pipeline(&self, name: &str) -> bool {
        self.pipeline.is_none_or(|pipeline| pipeline == name)
    }

    /// Returns whether only some changes are selected.
    pub(crate) fn selects_changes(&self) -> bool {
        self.project.is_some() || self.change.is_some()
    }

    /// Returns whether a change is selected, apart from its pipeline.
    pub(crate) fn matches(&self, change: &ChangeRef) -> bool {
        let project = &change.key.project;
        self.project.is_none_or(|named| {
            matches_wildcard(named, project.name()) || matches_wildcard(named, project.as_str())
        }) && self.change.is_none_or(|id| change.id() == id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// Z9.1: details are left out only as far as necessary.
    #[test]
    fn details_are_left_out_only_as_far_as_necessary() {
        let make = |detail: DetailLevel| match detail {
            DetailLevel::Whole => json!("x".repeat(30)),
            DetailLevel::Window => json!("\"".repeat(6)),
            DetailLevel::Changes => json!("x"),
        };
        // A string of 30 has 34 bytes when encoded; each inner quote needs four.
        for (bytes_max, expected) in [
            (34, DetailLevel::Whole),
            (33, DetailLevel::Window),
            (28, DetailLevel::Window),
            (27, DetailLevel::Changes),
            (0, DetailLevel::Changes),
        ] {
            assert_eq!(fit_detail_within(bytes_max, make), make(expected), "{bytes_max}");
        }
    }

    /// Z9.1: the message says what is left out and how to see it.
    #[test]
    fn the_message_names_what_is_left_out() {
        assert_eq!(DetailLevel::Whole.left_out(), None);
        for detail in [DetailLevel::Window, DetailLevel::Changes] {
            let message = detail.left_out().unwrap();
            assert!(
                message.contains("are left out") && message.contains("`pipeline`"),
                "{message}"
            );
        }
        let expected =
            |detail: DetailLevel| [true, false].map(|is_active| detail.includes_jobs(is_active));
        assert_eq!(
            [DetailLevel::Whole, DetailLevel::Window, DetailLevel::Changes].map(expected),
            [[true; 2], [true, false], [false; 2]]
        );
    }
}
