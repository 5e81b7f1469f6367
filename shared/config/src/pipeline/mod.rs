//! A pipeline (Z6.1): its manager, window, triggers, requirements, reporters and messages, with
//! names resolved.
//!
//! Triggers are in [`trigger`], requirements in [`filter`], reporters in [`reporter`].

pub mod cron;
pub mod filter;
pub mod reporter;
pub mod trigger;

pub use cron::Cron;
pub use filter::{
    Approval, Filter, FilterKind, ForgePermission, GerritFilter, GitHubFilter, GitLabFilter,
    ReviewRequirement,
};
pub use reporter::{
    CheckConclusion, CommitStatusState, GerritReporter, GitHubReporter, GitLabReporter,
    PipelineReporter, ReporterKind, Reporters, ReviewVerdict, ZuulReporter,
};
pub use trigger::{
    GerritTrigger, GitHubTrigger, GitLabTrigger, GitTrigger, TimerTrigger, Trigger, TriggerKind,
    ZuulTrigger,
};

use serde::{Deserialize, Serialize};
use sluice_model::{ConnectionName, PipelineName, wakeup::Precedence};

/// Maximum number of pipelines that a pipeline may supersede.
pub const SUPERSEDES_MAX: usize = 32;

/// A pipeline with its names resolved to connections.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pipeline {
    /// Its name, unique in the tenant.
    pub name: PipelineName,
    /// A description.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// How its changes relate to each other.
    pub manager: Manager,
    /// The priority of its builds.
    pub precedence: Precedence,
    /// Whether its changes are reviewed: jobs that need review may run, and untrusted secrets may
    /// be used.
    pub post_review: bool,
    /// `false` forbids jobs with secrets (Z5.3); unset, Zuul's rule applies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allow_secrets: Option<bool>,
    /// How many changes of a queue are processed at once.
    pub window: WindowSettings,
    /// Pipelines that a change leaves when it enters this one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub supersedes: Vec<PipelineName>,
    /// The events that enqueue a change; any one suffices.
    #[serde(default)]
    pub triggers: Vec<Trigger>,
    /// The requirements of a change; each filter applies to changes of its own connection.
    #[serde(default)]
    pub require: Vec<Filter>,
    /// Filters that reject a change.
    #[serde(default)]
    pub reject: Vec<Filter>,
    /// The reporters by occasion.
    #[serde(default)]
    pub reporters: Reporters,
    /// The texts of the reports.
    #[serde(default)]
    pub messages: Messages,
    /// Whether changes and refs of connections it does not name are accepted, also as dependencies
    /// (see [`Pipeline::takes_from`]).
    pub allow_other_connections: bool,
    /// Whether a manual enqueue may have parameters.
    #[serde(default)]
    pub allow_parameters: bool,
    /// Whether a new patch set dequeues the older one.
    pub dequeue_on_new_patchset: bool,
    /// Whether dependencies are ignored (independent pipelines only).
    pub ignore_dependencies: bool,
    /// The number of consecutive failures after which only the `disabled` reporters report; `None`
    /// for never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disable_after_consecutive_failures: Option<u32>,
}

impl Pipeline {
    /// Returns a pipeline with a manager and Zuul's defaults: without triggers, requirements and
    /// reporters.
    pub fn new(name: &str, manager: Manager) -> Self {
        Self {
            name: name.into(),
            description: None,
            manager,
            precedence: Precedence::Normal,
            post_review: false,
            allow_secrets: None,
            window: WindowSettings::of(manager),
            supersedes: Vec::new(),
            triggers: Vec::new(),
            require: Vec::new(),
            reject: Vec::new(),
            reporters: Reporters::default(),
            messages: Messages::default(),
            allow_other_connections: true,
            allow_parameters: false,
            dequeue_on_new_patchset: true,
            ignore_dependencies: false,
            disable_after_consecutive_failures: None,
        }
    }

    /// Returns whether changes and refs of a connection are accepted: if `allow-other-connections`
    /// is set, as by default, always; otherwise only if the pipeline's triggers, requirements or
    /// reporters name the connection.
    pub fn takes_from(&self, connection: &ConnectionName) -> bool {
        self.allow_other_connections
            || self.triggers.iter().any(|trigger| trigger.connection == *connection)
            || self
                .require
                .iter()
                .chain(&self.reject)
                .any(|filter| filter.connection == *connection)
            || self.reporters.all().any(|reporter| reporter.connection == *connection)
    }
}

/// How the changes of a pipeline relate to each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Manager {
    /// Each change is tested alone.
    Independent,
    /// Each change is tested on top of those ahead, and they merge in order (Z6.4).
    Dependent,
    /// Shared queues process one change at a time.
    Serial,
    /// Only the newest change of a project and branch is processed.
    Supercedent,
}

impl Manager {
    /// Returns the keyword in the configuration.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Independent => "independent",
            Self::Dependent => "dependent",
            Self::Serial => "serial",
            Self::Supercedent => "supercedent",
        }
    }
}

/// How many changes of a queue are processed at once, and how this adapts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct WindowSettings {
    /// The initial size; 0 for no limit.
    pub initial: u32,
    /// The minimum size.
    pub floor: u32,
    /// The maximum size; `None` for no limit.
    pub ceiling: Option<u32>,
    /// How it grows after a success.
    pub increase: Growth,
    /// How it shrinks after a failure.
    pub decrease: Growth,
}

impl WindowSettings {
    /// Returns the window of a manager by default: for dependent pipelines 20, at least 3, plus 1
    /// after a success and halved after a failure; for serial and supercedent ones always 1;
    /// otherwise no limit (`initial` is 0).
    pub fn of(manager: Manager) -> Self {
        let (initial, floor, ceiling) = match manager {
            Manager::Dependent => (20, 3, None),
            Manager::Independent => (0, 1, None),
            Manager::Serial | Manager::Supercedent => (1, 1, Some(1)),
        };
        Self {
            initial,
            floor,
            ceiling,
            increase: Growth { kind: GrowthKind::Linear, factor: 1 },
            decrease: Growth { kind: GrowthKind::Exponential, factor: 2 },
        }
    }

    /// Returns whether the number of active changes is limited at all.
    pub fn is_limited(&self) -> bool {
        self.initial > 0
    }

    /// Returns the size after a success, starting from `size`; at most the ceiling. Only for a
    /// limited window ([`Self::is_limited`]), which the caller has checked.
    pub fn after_success(&self, size: u32) -> u32 {
        let grown = match self.increase.kind {
            GrowthKind::Linear => size.saturating_add(self.increase.factor),
            GrowthKind::Exponential => size.saturating_mul(self.increase.factor),
        };
        self.ceiling.map_or(grown, |ceiling| grown.min(ceiling))
    }

    /// Returns the size after a failure, starting from `size`; at least the floor. Only for a
    /// limited window ([`Self::is_limited`]), which the caller has checked.
    pub fn after_failure(&self, size: u32) -> u32 {
        let shrunk = match self.decrease.kind {
            GrowthKind::Linear => size.saturating_sub(self.decrease.factor),
            GrowthKind::Exponential => size / self.decrease.factor.max(1),
        };
        shrunk.max(self.floor)
    }
}

/// A step of a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Growth {
    /// Whether the factor is added or multiplied.
    pub kind: GrowthKind,
    /// The step, at least 1.
    pub factor: u32,
}

/// How a window's factor is applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum GrowthKind {
    /// Adding and subtracting.
    Linear,
    /// Multiplying and dividing.
    Exponential,
}

/// The texts of reports; `None` uses the built-in text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Messages {
    /// When a change's jobs start.
    pub start: String,
    /// When all voting jobs succeeded.
    pub success: String,
    /// When one failed.
    pub failure: String,
    /// When the change has a merge conflict.
    pub merge_conflict: String,
    /// When no job runs.
    pub no_jobs: String,
    /// When it is enqueued.
    pub enqueue: String,
    /// When it is dequeued.
    pub dequeue: String,
    /// A text at the end of every report.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub footer: Option<String>,
}

impl Default for Messages {
    /// Returns Zuul's texts; those for enqueued changes and for changes without jobs are empty.
    fn default() -> Self {
        Self {
            start: "Starting {pipeline.name} jobs.".to_owned(),
            success: "Build succeeded.".to_owned(),
            failure: "Build failed.".to_owned(),
            merge_conflict: "Merge Failed.\n\nThis change or one of its cross-repo dependencies was unable to be automatically merged \
                             with the current state of its repository. Please rebase the change and upload a new patchset."
                .to_owned(),
            no_jobs: String::new(),
            enqueue: String::new(),
            dequeue: "Build canceled.".to_owned(),
            footer: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// G16: window 2 falls to its floor and rises to its ceiling.
    #[test]
    fn a_window_moves_between_floor_and_ceiling() {
        let window = WindowSettings {
            initial: 2,
            floor: 1,
            ceiling: Some(2),
            ..WindowSettings::of(Manager::Dependent)
        };
        assert_eq!(window.after_failure(2), 1);
        assert_eq!(window.after_failure(1), 1);
        assert_eq!(window.after_success(1), 2);
        assert_eq!(window.after_success(2), 2);
        assert_eq!(WindowSettings::of(Manager::Dependent).after_failure(20), 10);
        assert!(!WindowSettings::of(Manager::Independent).is_limited());
    }

    /// Z6.1
    #[test]
    fn a_pipeline_survives_storage() {
        let pipeline = Pipeline::new("gate", Manager::Dependent);
        let text = serde_json::to_string(&pipeline).unwrap();
        assert_eq!(serde_json::from_str::<Pipeline>(&text).unwrap(), pipeline);
    }
}
