//! What a job returns about the change with `zuul_return`: warnings (`zuul.warnings`) and comments
//! on lines of its files (`zuul.file_comments`). The size is bounded by the item's record.

use crate::item::{Item, cut};
use crate::merge::{LINE_NOTE_BYTES_MAX, LineNote};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The most bytes of feedback of all jobs that an item's record holds.
pub const FEEDBACK_BYTES_MAX: usize = 8 << 10;

/// The most bytes of a path. A longer one is ignored.
const PATH_BYTES_MAX: usize = 500;

/// Bytes that one warning or note takes in a record in addition to its texts.
const ENTRY_BYTES: usize = 40;

/// The feedback of one build.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct JobFeedback {
    /// The warnings in the order in which the job returned them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// Comments on lines of files.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<LineNote>,
    /// The number of warnings and notes that were dropped for lack of space.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub left_out: u32,
}

/// Returns whether a count is zero, so that it is not stored.
fn is_zero(count: &u32) -> bool {
    *count == 0
}

impl JobFeedback {
    /// Parses the warnings and file comments in `data`, all that a build returned with
    /// `zuul_return`, up to `room_bytes`. Long texts are cut. Entries that are not in Zuul's format
    /// are ignored, since they must not change the job's result. Entries that do not fit are
    /// counted in `left_out`; later ones that fit are kept.
    pub fn of(data: &Map<String, Value>, room_bytes: usize) -> Self {
        let (mut feedback, mut room) = (Self::default(), room_bytes);
        let Some(zuul) = data.get("zuul") else { return feedback };
        for warning in zuul
            .get("warnings")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
        {
            let warning = cut(warning.trim(), LINE_NOTE_BYTES_MAX);
            if warning.is_empty() {
                continue;
            }
            match feedback.reserve_bytes(&mut room, warning.len()) {
                true => feedback.warnings.push(warning),
                false => feedback.left_out += 1,
            }
        }
        let files = zuul.get("file_comments").and_then(Value::as_object).into_iter().flatten();
        for (path, comments) in files.filter(|(path, _)| is_path(path)) {
            for note in comments
                .as_array()
                .into_iter()
                .flatten()
                .filter_map(|comment| parse_comment(path, comment))
            {
                match feedback.reserve_bytes(&mut room, path.len() + note.text.len()) {
                    true => feedback.notes.push(note),
                    false => feedback.left_out += 1,
                }
            }
        }
        feedback
    }

    /// Returns the entries that fit into `room_bytes`, in order. Dropped ones are added to
    /// `left_out`; a smaller entry behind one of them may still fit.
    pub(crate) fn truncated_to(self, room_bytes: usize) -> Self {
        let (mut feedback, mut room) =
            (Self { left_out: self.left_out, ..Self::default() }, room_bytes);
        for warning in self.warnings {
            match feedback.reserve_bytes(&mut room, warning.len()) {
                true => feedback.warnings.push(warning),
                false => feedback.left_out += 1,
            }
        }
        for note in self.notes {
            match feedback.reserve_bytes(&mut room, note.path.len() + note.text.len()) {
                true => feedback.notes.push(note),
                false => feedback.left_out += 1,
            }
        }
        feedback
    }

    /// Returns whether it has no entries and dropped none.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Subtracts the space of an entry from `room` and returns `true`. Where `room` does not
    /// suffice, leaves it unchanged and returns `false`.
    fn reserve_bytes(&self, room: &mut usize, bytes: usize) -> bool {
        let left = room.checked_sub(bytes + ENTRY_BYTES);
        if let Some(left) = left {
            *room = left;
        }
        left.is_some()
    }

    /// Returns the bytes that the entries take in a record.
    fn bytes(&self) -> usize {
        let notes = self.notes.iter().map(|note| note.path.len() + note.text.len() + ENTRY_BYTES);
        notes.chain(self.warnings.iter().map(|warning| warning.len() + ENTRY_BYTES)).sum()
    }
}

/// Returns the bytes that are free in an item's record for the feedback of the job at `at`. That
/// job's present feedback is not counted.
pub(crate) fn free_bytes(item: &Item, at: usize) -> usize {
    let others = item.jobs.iter().enumerate().filter(|(other, _)| *other != at);
    FEEDBACK_BYTES_MAX.saturating_sub(others.map(|(_, job)| job.feedback.bytes()).sum())
}

/// Returns whether a path is relative in git's form: without empty, `.` and `..` parts and control
/// characters, and of at most [`PATH_BYTES_MAX`]. Other paths are not sent to a forge.
fn is_path(path: &str) -> bool {
    let is_part = |part: &str| !part.is_empty() && part != "." && part != "..";
    path.len() <= PATH_BYTES_MAX
        && path.split('/').all(is_part)
        && !path.chars().any(char::is_control)
}

/// Parses one file comment. The line is `line` or, without it, the last line of its `range`. The
/// text is `message`, prefixed with `level` for a warning or an error, and cut if it is long.
/// Returns `None` where the line or the message is missing or invalid. The caller has checked the
/// path.
fn parse_comment(path: &str, comment: &Value) -> Option<LineNote> {
    let number = |value: &Value| {
        value.as_u64().and_then(|line| u32::try_from(line).ok()).filter(|line| *line > 0)
    };
    let ranged = comment.get("range").and_then(|range| range.get("end_line"));
    let line = comment.get("line").or(ranged).and_then(number)?;
    let message = comment
        .get("message")
        .and_then(Value::as_str)
        .map(str::trim)
        .filter(|text| !text.is_empty())?;
    let text = match comment.get("level").and_then(Value::as_str) {
        Some(level @ ("warning" | "error")) => format!("{level}: {message}"),
        _ => message.to_owned(),
    };
    Some(LineNote {
        path: path.to_owned(),
        line,
        start_line: None,
        text: cut(&text, LINE_NOTE_BYTES_MAX),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn parse(zuul: Value, room: usize) -> JobFeedback {
        let Value::Object(data) = json!({"zuul": zuul}) else { unreachable!("an object was made") };
        JobFeedback::of(&data, room)
    }

    /// Z7.4: both formats of Zuul; a comment's line is its own or the end of its range.
    #[test]
    fn warnings_and_comments_are_read_as_zuul_writes_them() {
        let feedback = parse(
            json!({
                "warnings": ["the mirror was slow", ""],
                "file_comments": {"src/a.py": [
                    {"line": 42, "message": "unused", "level": "warning"},
                    {"range": {"start_line": 3, "end_line": 5, "start_character": 0, "end_character": 2}, "message": "long"},
                ]},
            }),
            1_000,
        );
        assert_eq!(feedback.warnings, ["the mirror was slow"]);
        let notes: Vec<_> = feedback
            .notes
            .iter()
            .map(|note| (note.path.as_str(), note.line, note.text.as_str()))
            .collect();
        assert_eq!(notes, [("src/a.py", 42, "warning: unused"), ("src/a.py", 5, "long")]);
        assert_eq!(feedback.left_out, 0);
    }

    /// Z7.4: a job may return any data.
    #[test]
    fn entries_in_another_format_are_ignored() {
        for zuul in [
            json!(7),
            json!({"warnings": "one"}),
            json!({"warnings": [1, {}]}),
            json!({"file_comments": []}),
            json!({"file_comments": {"a": {"line": 1}}}),
            json!({"file_comments": {"a": [{"line": 0, "message": "x"}, {"line": 1}, {"line": -1, "message": "x"}, 7]}}),
            json!({"file_comments": {"../a": [{"line": 1, "message": "x"}], "/a": [{"line": 1, "message": "x"}]}}),
        ] {
            assert!(parse(zuul.clone(), 1_000).is_empty(), "{zuul}");
        }
    }

    /// C2: a record is bounded, and dropped entries are counted.
    #[test]
    fn dropped_entries_are_counted() {
        let warnings: Vec<String> =
            (0..50).map(|number| format!("{number} {}", "x".repeat(900))).collect();
        let feedback = parse(
            json!({"warnings": warnings, "file_comments": {"a": [{"line": 1, "message": "y"}]}}),
            1_200,
        );
        assert_eq!(
            (feedback.warnings.len(), feedback.notes.len(), feedback.left_out),
            (2, 1, 48),
            "a small entry still fits"
        );
        assert!(feedback.warnings.iter().all(|warning| warning.len() <= LINE_NOTE_BYTES_MAX));
        assert!(feedback.bytes() <= 1_200);
    }

    /// D15, C2: another item's record may have less space for the feedback of a shared build.
    #[test]
    fn feedback_of_a_shared_build_is_truncated_to_the_free_space() {
        let warnings = ["x".repeat(300), "y".repeat(300)];
        let all = parse(
            json!({"warnings": warnings, "file_comments": {"a": [{"line": 1, "message": "z"}]}}),
            1_000,
        );
        assert_eq!(all.clone().truncated_to(1_000), all);
        let less = all.truncated_to(400);
        assert_eq!((less.warnings.len(), less.notes.len(), less.left_out), (1, 1, 1));
    }
}
