//! The merger's answer: the tested state of an item with its frozen jobs, or why there is none.

use serde::{Deserialize, Serialize};
use sluice_model::ItemId;
use sluice_model::change::ChangeRef;
use sluice_model::git::Commit;
use sluice_model::job::JobSummary;

/// The merger's answer for one item in one speculative state; never changed once written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MergeOutcome {
    /// The item.
    pub item: ItemId,
    /// The generation of the item's speculative state.
    pub generation: u64,
    /// The number of the layout that its jobs were frozen under.
    pub layout: u64,
    /// The result of the merge.
    pub result: MergeResult,
}

/// The result of a merge.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MergeResult {
    /// The change merges, and its jobs are frozen.
    Merged(TestedState),
    /// A change does not merge with what is below it.
    Conflict {
        /// The change that does not merge: the item's own, or one below it.
        change: ChangeRef,
        /// The conflicting paths, for people.
        detail: String,
    },
    /// The configuration that the item would run under is invalid.
    Misconfigured {
        /// The errors, as text for people.
        errors: Vec<String>,
        /// The errors in files of the change itself, as comments on lines; at most
        /// [`LINE_NOTES_MAX`].
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        notes: Vec<LineNote>,
    },
}

/// The most comments on lines in one answer.
pub const LINE_NOTES_MAX: usize = 10;
/// The most bytes of a comment's text.
pub const LINE_NOTE_BYTES_MAX: usize = 500;

/// A comment on lines of a file that a change edits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LineNote {
    /// The file's path.
    pub path: String,
    /// The line, counted from 1; of several lines the last one.
    pub line: u32,
    /// The first line of several; `None` for a single line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_line: Option<u32>,
    /// The text of the comment.
    pub text: String,
}

/// A tested state with the jobs of its item.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TestedState {
    /// The key of the object with the [`sluice_model::build::Speculation`].
    pub speculation: String,
    /// The key of the object with the [`sluice_model::job::JobGraph`].
    pub graph: String,
    /// The part of each job that the gate needs.
    pub jobs: Vec<JobSummary>,
    /// The commit of the item's branch without the change.
    pub base: Commit,
    /// The commit of the item's branch with the change: it is tested, and its tree must be merged.
    pub tested: Commit,
    /// Whether the commit `tested` is stored, so that the branch can be fast-forwarded from `base`
    /// to it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub can_fast_forward: bool,
    /// Whether the change edits configuration, so that merging it makes a new layout.
    pub touches_configuration: bool,
    /// Whether the first failing job cancels the others (`fail-fast` of the project in this
    /// pipeline).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub fail_fast: bool,
    /// The trace of how its jobs were selected, where the project or the trigger sets `debug`; at
    /// most [`DEBUG_BYTES_MAX`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub debug: Vec<String>,
    /// The warnings about the configuration that the change proposes, for people; at most
    /// [`WARNINGS_MAX`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

/// The most warnings about proposed configuration in one answer.
pub const WARNINGS_MAX: usize = 10;
/// The most bytes of all lines of [`TestedState::debug`].
pub const DEBUG_BYTES_MAX: usize = 8 * 1024;
