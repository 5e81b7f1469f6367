//! The occasion of a report, which selects its reporters and its first lines.

use super::message_template::MessageContext;
use crate::filter;
use sluice_config::pipeline::{Messages, Pipeline, PipelineReporter};

/// The occasion of a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Occasion {
    /// The item entered its queue.
    Enqueue,
    /// The item's jobs are known, though the first may still have to wait.
    Start,
    /// All voting jobs succeeded.
    Success,
    /// A voting job failed.
    Failure,
    /// The change has a merge conflict.
    MergeConflict,
    /// The forge did not merge the change.
    MergeFailure,
    /// The item's configuration is invalid.
    ConfigError,
    /// A change that it depends on failed.
    DependencyFailed,
    /// A member of its bundle failed.
    BundleFailed,
    /// The pipeline has no jobs for the change.
    NoJobs,
    /// The item was dequeued.
    Dequeue,
    /// It no longer meets the requirements of the pipeline or the forge.
    Unmergeable,
    /// The same revision continues as another item with reports of its own, so no report is sent.
    Superseded,
    /// The change was refused at entry.
    Refused,
    /// A part of its bundle was merged; merging the rest failed and is tried again.
    PartlyMerged,
}

/// How an item ended, as statuses and check runs show it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ItemEnd {
    /// Nothing failed.
    Passed,
    /// It failed.
    Failed,
    /// It left without a result.
    Left,
}

impl Occasion {
    /// The occasions of an item's end that have reports. A refused change never became an item.
    pub(super) const ENDS: [Self; 10] = [
        Self::Success,
        Self::Failure,
        Self::MergeConflict,
        Self::MergeFailure,
        Self::ConfigError,
        Self::DependencyFailed,
        Self::BundleFailed,
        Self::NoJobs,
        Self::Dequeue,
        Self::Unmergeable,
    ];

    /// Returns the name of the occasion, from which the report's id is derived.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Enqueue => "enqueue",
            Self::Start => "start",
            Self::Success => "success",
            Self::Failure => "failure",
            Self::MergeConflict => "merge-conflict",
            Self::MergeFailure => "merge-failure",
            Self::ConfigError => "config-error",
            Self::DependencyFailed => "dependency-failed",
            Self::BundleFailed => "bundle-failed",
            Self::NoJobs => "no-jobs",
            Self::Dequeue => "dequeue",
            Self::Unmergeable => "unmergeable",
            Self::Superseded => "superseded",
            Self::Refused => "refused",
            Self::PartlyMerged => "partly-merged",
        }
    }

    /// Returns the configuration's name for the occasion, which MQTT messages show as their action.
    /// A merge conflict or configuration error has its own name even where the `failure` reporters
    /// are used for it.
    pub(super) fn reporter_name(self) -> &'static str {
        match self {
            Self::MergeFailure
            | Self::DependencyFailed
            | Self::BundleFailed
            | Self::Unmergeable
            | Self::Refused
            | Self::PartlyMerged => "failure",
            Self::Superseded => "dequeue",
            other => other.name(),
        }
    }

    /// Returns whether the item goes on: it entered or started.
    pub(super) fn is_beginning(self) -> bool {
        matches!(self, Self::Enqueue | Self::Start)
    }

    /// Returns whether the item ended with a result, rather than by a dequeue. A refused change has
    /// a result, too.
    pub(super) fn is_result(self) -> bool {
        !self.is_beginning() && !matches!(self, Self::Dequeue | Self::Superseded)
    }

    /// Returns how the item ended; `None` where it goes on, and for a change that was never an item.
    pub(super) fn end(self) -> Option<ItemEnd> {
        match self {
            Self::Enqueue | Self::Start | Self::Superseded | Self::Refused | Self::PartlyMerged => {
                None
            }
            Self::Success | Self::NoJobs => Some(ItemEnd::Passed),
            Self::Dequeue | Self::Unmergeable => Some(ItemEnd::Left),
            Self::Failure
            | Self::MergeConflict
            | Self::MergeFailure
            | Self::ConfigError
            | Self::DependencyFailed
            | Self::BundleFailed => Some(ItemEnd::Failed),
        }
    }

    /// Returns the pipeline's reporters for the occasion. The reporters for failures are used for
    /// all kinds of failure, for [`Self::Unmergeable`] and for [`Self::Refused`]; for merge
    /// conflicts and configuration errors only where the pipeline has none of their own. Empty for
    /// a superseded item.
    pub(super) fn reporters(self, pipeline: &Pipeline) -> &[PipelineReporter] {
        let reporters = &pipeline.reporters;
        let is_empty = |own: &'_ [PipelineReporter]| own.is_empty();
        match self {
            Self::Enqueue => &reporters.enqueue,
            Self::Start => &reporters.start,
            Self::Success => &reporters.success,
            Self::MergeConflict if !is_empty(&reporters.merge_conflict) => {
                &reporters.merge_conflict
            }
            Self::ConfigError if !is_empty(&reporters.config_error) => &reporters.config_error,
            Self::Failure
            | Self::MergeConflict
            | Self::MergeFailure
            | Self::ConfigError
            | Self::DependencyFailed
            | Self::BundleFailed
            | Self::Unmergeable
            | Self::Refused
            | Self::PartlyMerged => &reporters.failure,
            Self::NoJobs => &reporters.no_jobs,
            Self::Dequeue => &reporters.dequeue,
            Self::Superseded => &[],
        }
    }

    /// Returns the first lines of the report: the pipeline's message for the occasion, and `why`
    /// where the message does not explain it; for [`Self::Unmergeable`] only `why`. Empty for a
    /// superseded item. `why` is not used for an entry, a start, a success, a job's failure and a
    /// change without jobs.
    pub(super) fn headline(
        self,
        messages: &Messages,
        words: &MessageContext<'_>,
        why: &str,
    ) -> String {
        match self {
            Self::Enqueue => words.fill(&messages.enqueue),
            Self::Start => words.fill(&messages.start),
            Self::Success => messages.success.clone(),
            Self::Failure => messages.failure.clone(),
            Self::MergeConflict => format!("{}\n\n{why}", messages.merge_conflict),
            Self::MergeFailure => {
                format!("{}\n\nThe forge did not merge it: {why}", messages.failure)
            }
            Self::ConfigError => format!("The configuration of this change has errors.\n\n{why}"),
            Self::DependencyFailed | Self::BundleFailed | Self::Refused => {
                format!("{}\n\n{why}", messages.failure)
            }
            Self::PartlyMerged => format!("Only a part of this bundle was merged.\n\n{why}"),
            Self::NoJobs => words.fill(&messages.no_jobs),
            Self::Dequeue => format!("{}\n\n{why}", messages.dequeue),
            Self::Unmergeable => why.to_owned(),
            Self::Superseded => String::new(),
        }
    }

    /// Returns the occasion for an item that is dequeued for this reason: [`Self::Unmergeable`]
    /// where the reason was made by [`filter::merge_requirement_message`].
    pub(crate) fn for_dequeue_reason(why: &str) -> Self {
        if filter::is_unable_to_merge(why) { Self::Unmergeable } else { Self::Dequeue }
    }
}
