//! What a job tells about the change with `zuul_return`: warnings (`zuul.warnings`) and comments
//! beside lines of its files (`zuul.file_comments`), as much of it as an item's record has room
//! for.

use crate::item::{Item, cut};
use crate::merge::{LINE_NOTE_BYTES_MAX, LineNote};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Bytes of what all jobs of an item told that its record holds.
pub const TOLD_BYTES_MAX: usize = 8 << 10;

/// Bytes of a path; a longer one is no file of a change.
const PATH_BYTES_MAX: usize = 500;

/// Bytes that one entry takes in a record besides its texts.
const ENTRY_BYTES: usize = 40;

/// What one build of a job told.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Told {
    /// Warnings, in their order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// What is said beside lines, by path.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<LineNote>,
    /// How many more there were, for which there was no room.
    #[serde(default, skip_serializing_if = "is_none")]
    pub left_out: u32,
}

fn is_none(count: &u32) -> bool {
    *count == 0
}

impl Told {
    /// Reads what a build returned; what is not in Zuul's form is left out without a word, for a
    /// job's result stands whatever it returned besides.
    pub fn of(data: &Map<String, Value>, room_bytes: usize) -> Self {
        let (mut told, mut room) = (Self::default(), room_bytes);
        let Some(zuul) = data.get("zuul") else { return told };
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
            match told.takes(&mut room, warning.len()) {
                true => told.warnings.push(warning),
                false => told.left_out += 1,
            }
        }
        let files = zuul.get("file_comments").and_then(Value::as_object).into_iter().flatten();
        for (path, comments) in files.filter(|(path, _)| is_path(path)) {
            for note in
                comments.as_array().into_iter().flatten().filter_map(|comment| note(path, comment))
            {
                match told.takes(&mut room, path.len() + note.text.len()) {
                    true => told.notes.push(note),
                    false => told.left_out += 1,
                }
            }
        }
        told
    }

    /// Returns what of it fits into another record; the rest is counted.
    pub(crate) fn within(self, room_bytes: usize) -> Self {
        let (mut told, mut room) =
            (Self { left_out: self.left_out, ..Self::default() }, room_bytes);
        for warning in self.warnings {
            match told.takes(&mut room, warning.len()) {
                true => told.warnings.push(warning),
                false => told.left_out += 1,
            }
        }
        for note in self.notes {
            match told.takes(&mut room, note.path.len() + note.text.len()) {
                true => told.notes.push(note),
                false => told.left_out += 1,
            }
        }
        told
    }

    /// Returns whether nothing was told.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    fn takes(&self, room: &mut usize, bytes: usize) -> bool {
        let left = room.checked_sub(bytes + ENTRY_BYTES);
        if let Some(left) = left {
            *room = left;
        }
        left.is_some()
    }

    fn bytes(&self) -> usize {
        let notes = self.notes.iter().map(|note| note.path.len() + note.text.len() + ENTRY_BYTES);
        notes.chain(self.warnings.iter().map(|warning| warning.len() + ENTRY_BYTES)).sum()
    }
}

/// Returns the bytes that are left in an item's record for what its jobs tell, besides what the job
/// at `at` told before.
pub(crate) fn room(item: &Item, at: usize) -> usize {
    let others = item.jobs.iter().enumerate().filter(|(other, _)| *other != at);
    TOLD_BYTES_MAX.saturating_sub(others.map(|(_, job)| job.told.bytes()).sum())
}

/// A file of the change is named as git names it, and so nothing else is sent to a forge as one.
fn is_path(path: &str) -> bool {
    let is_part = |part: &str| !part.is_empty() && part != "." && part != "..";
    path.len() <= PATH_BYTES_MAX
        && path.split('/').all(is_part)
        && !path.chars().any(char::is_control)
}

/// Reads one comment: `line`, or the last line of its `range`; `message`, after its `level` where
/// that is not the least.
fn note(path: &str, comment: &Value) -> Option<LineNote> {
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

    fn told(zuul: Value, room: usize) -> Told {
        let Value::Object(data) = json!({"zuul": zuul}) else { unreachable!("an object was made") };
        Told::of(&data, room)
    }

    /// Z7.4: Zuul's form of both; a comment's line is its own or where its range ends.
    #[test]
    fn warnings_and_comments_are_read_as_zuul_writes_them() {
        let told = told(
            json!({
                "warnings": ["the mirror was slow", ""],
                "file_comments": {"src/a.py": [
                    {"line": 42, "message": "unused", "level": "warning"},
                    {"range": {"start_line": 3, "end_line": 5, "start_character": 0, "end_character": 2}, "message": "long"},
                ]},
            }),
            1_000,
        );
        assert_eq!(told.warnings, ["the mirror was slow"]);
        let notes: Vec<_> = told
            .notes
            .iter()
            .map(|note| (note.path.as_str(), note.line, note.text.as_str()))
            .collect();
        assert_eq!(notes, [("src/a.py", 42, "warning: unused"), ("src/a.py", 5, "long")]);
        assert_eq!(told.left_out, 0);
    }

    /// Z7.4: a job may return anything.
    #[test]
    fn what_is_not_in_that_form_is_left_out() {
        for zuul in [
            json!(7),
            json!({"warnings": "one"}),
            json!({"warnings": [1, {}]}),
            json!({"file_comments": []}),
            json!({"file_comments": {"a": {"line": 1}}}),
            json!({"file_comments": {"a": [{"line": 0, "message": "x"}, {"line": 1}, {"line": -1, "message": "x"}, 7]}}),
            json!({"file_comments": {"../a": [{"line": 1, "message": "x"}], "/a": [{"line": 1, "message": "x"}]}}),
        ] {
            assert!(told(zuul.clone(), 1_000).is_empty(), "{zuul}");
        }
    }

    /// C2: nothing unbounded in a record; how much is missing is counted.
    #[test]
    fn what_has_no_room_is_counted() {
        let warnings: Vec<String> =
            (0..50).map(|number| format!("{number} {}", "x".repeat(900))).collect();
        let told = told(
            json!({"warnings": warnings, "file_comments": {"a": [{"line": 1, "message": "y"}]}}),
            1_200,
        );
        assert_eq!(
            (told.warnings.len(), told.notes.len(), told.left_out),
            (2, 1, 48),
            "what is small still fits"
        );
        assert!(told.warnings.iter().all(|warning| warning.len() <= LINE_NOTE_BYTES_MAX));
        assert!(told.bytes() <= 1_200);
    }

    /// D15, C2: another record may have less room for what a shared build told.
    #[test]
    fn what_is_taken_over_is_cut_to_the_room_that_is_there() {
        let warnings = ["x".repeat(300), "y".repeat(300)];
        let all = told(
            json!({"warnings": warnings, "file_comments": {"a": [{"line": 1, "message": "z"}]}}),
            1_000,
        );
        assert_eq!(all.clone().within(1_000), all);
        let less = all.within(400);
        assert_eq!((less.warnings.len(), less.notes.len(), less.left_out), (1, 1, 1));
    }
}
