//! What the merger answers: the tested state of an item with its frozen jobs, or why there is none.

use serde::{Deserialize, Serialize};
use sluice_model::ItemId;
use sluice_model::change::ChangeRef;
use sluice_model::git::Commit;
use sluice_model::job::JobSummary;

/// The answer for one item in one speculative state; final once written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MergeOutcome {
    /// The item.
    pub item: ItemId,
    /// Its speculative state.
    pub generation: u64,
    /// The layout its jobs were frozen under.
    pub layout: u64,
    /// The answer.
    pub result: MergeResult,
}

/// The answer itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MergeResult {
    /// It merges.
    Merged(Merged),
    /// A change does not merge with what is below it.
    Conflict {
        /// The change that does not merge: the item's own, or one below it.
        change: ChangeRef,
        /// Which paths, for people.
        detail: String,
    },
    /// The configuration it would run under is wrong.
    Misconfigured {
        /// The errors, rendered for people.
        errors: Vec<String>,
        /// The same beside the lines of the change's own files that they are about; the first
        /// [`LINE_NOTES_MAX`].
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        notes: Vec<LineNote>,
    },
}

/// Notes on lines that are kept of one answer.
pub const LINE_NOTES_MAX: usize = 10;
/// Bytes that are kept of a note's text.
pub const LINE_NOTE_BYTES_MAX: usize = 500;

/// What is said beside a line of a file that a change edits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LineNote {
    /// The file's path.
    pub path: String,
    /// The line, from 1; the last one where there are several.
    pub line: u32,
    /// The first line, where there are several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_line: Option<u32>,
    /// What is said.
    pub text: String,
}

/// A tested state and its jobs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Merged {
    /// The object that holds the [`sluice_model::build::Speculation`].
    pub speculation: String,
    /// The object that holds the [`sluice_model::job::JobGraph`].
    pub graph: String,
    /// What the gate has to know of each job.
    pub jobs: Vec<JobSummary>,
    /// The item's own branch below the change.
    pub base: Commit,
    /// The item's own branch with the change: what is tested and what must land.
    pub tested: Commit,
    /// Whether `tested` is kept, so that the branch can be moved from `base` to it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub kept: bool,
    /// Whether the change edits configuration, so that its landing makes a new layout.
    pub touches_configuration: bool,
    /// Whether the first job that fails ends the others (`fail-fast` of the project in this
    /// pipeline).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub fail_fast: bool,
    /// How its jobs were decided, a line each, where the project or the trigger says `debug`; at
    /// most [`DEBUG_BYTES_MAX`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub debug: Vec<String>,
}

/// Bytes of [`Merged::debug`] in all.
pub const DEBUG_BYTES_MAX: usize = 8 * 1024;
