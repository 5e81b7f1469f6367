//! What a report is about: by which reporters that is told, and with which words it begins.

use super::words::Words;
use crate::filter;
use sluice_config::pipeline::{Messages, Pipeline, Reporter};

/// What a report is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Occasion {
    Enqueue,
    Start,
    Success,
    Failure,
    MergeConflict,
    MergeFailure,
    ConfigError,
    NeedFailed,
    /// One of the changes that need each other failed.
    CycleFailed,
    NoJobs,
    Dequeue,
    /// It no longer meets what the pipeline asks for, or what its forge does.
    Unmergeable,
    /// The same revision goes on as another item, which is told of: nothing is said about this one.
    Superseded,
    Refused,
}

impl Occasion {
    /// Those that tell that an item which stood in a queue has left it.
    pub(super) const ENDS: [Self; 10] = [
        Self::Success,
        Self::Failure,
        Self::MergeConflict,
        Self::MergeFailure,
        Self::ConfigError,
        Self::NeedFailed,
        Self::CycleFailed,
        Self::NoJobs,
        Self::Dequeue,
        Self::Unmergeable,
    ];

    /// Returns its own word.
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Enqueue => "enqueue",
            Self::Start => "start",
            Self::Success => "success",
            Self::Failure => "failure",
            Self::MergeConflict => "merge-conflict",
            Self::MergeFailure => "merge-failure",
            Self::ConfigError => "config-error",
            Self::NeedFailed => "need-failed",
            Self::CycleFailed => "cycle-failed",
            Self::NoJobs => "no-jobs",
            Self::Dequeue => "dequeue",
            Self::Unmergeable => "unmergeable",
            Self::Superseded => "superseded",
            Self::Refused => "refused",
        }
    }

    /// Returns the word of the reporters that it is told by, as the configuration has them.
    pub(super) fn reporter(self) -> &'static str {
        match self {
            Self::MergeFailure
            | Self::NeedFailed
            | Self::CycleFailed
            | Self::Unmergeable
            | Self::Refused => "failure",
            Self::Superseded => "dequeue",
            other => other.word(),
        }
    }

    /// Whether it tells of something that goes on.
    pub(super) fn is_beginning(self) -> bool {
        matches!(self, Self::Enqueue | Self::Start)
    }

    /// Whether it tells how it ended, rather than that it begins or was taken out.
    pub(super) fn is_result(self) -> bool {
        !self.is_beginning() && !matches!(self, Self::Dequeue | Self::Superseded)
    }

    /// Returns the reporters that it is told by.
    pub(super) fn reporters(self, pipeline: &Pipeline) -> &[Reporter] {
        let reporters = &pipeline.reporters;
        let or_failure = |own: &'_ [Reporter]| own.is_empty();
        match self {
            Self::Enqueue => &reporters.enqueue,
            Self::Start => &reporters.start,
            Self::Success => &reporters.success,
            Self::MergeConflict if !or_failure(&reporters.merge_conflict) => {
                &reporters.merge_conflict
            }
            Self::ConfigError if !or_failure(&reporters.config_error) => &reporters.config_error,
            Self::Failure
            | Self::MergeConflict
            | Self::MergeFailure
            | Self::ConfigError
            | Self::NeedFailed
            | Self::CycleFailed
            | Self::Unmergeable
            | Self::Refused => &reporters.failure,
            Self::NoJobs => &reporters.no_jobs,
            Self::Dequeue => &reporters.dequeue,
            Self::Superseded => &[],
        }
    }

    /// Returns what a report begins with.
    pub(super) fn headline(self, messages: &Messages, words: &Words<'_>, why: &str) -> String {
        match self {
            Self::Enqueue => words.fill(&messages.enqueue),
            Self::Start => words.fill(&messages.start),
            Self::Success => messages.success.clone(),
            Self::Failure => messages.failure.clone(),
            Self::MergeConflict => format!("{}\n\n{why}", messages.merge_conflict),
            Self::MergeFailure => {
                format!("{}\n\nThe forge did not merge it: {why}", messages.failure)
            }
            Self::ConfigError => format!("{}\n\n{why}", messages.failure),
            Self::NeedFailed | Self::CycleFailed | Self::Refused => {
                format!("{}\n\n{why}", messages.failure)
            }
            Self::NoJobs => words.fill(&messages.no_jobs),
            Self::Dequeue => format!("{}\n\n{why}", messages.dequeue),
            Self::Unmergeable => why.to_owned(),
            Self::Superseded => String::new(),
        }
    }

    /// Returns how a change leaves that is taken out for this reason.
    pub(crate) fn of_leaving(why: &str) -> Self {
        if filter::is_unable_to_merge(why) { Self::Unmergeable } else { Self::Dequeue }
    }
}
