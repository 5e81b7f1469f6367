//! The reporters of a pipeline, by occasion and driver.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use sluice_model::ConnectionName;
use std::collections::BTreeMap;

/// Reporters by occasion.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Reporters {
    /// Its jobs start.
    pub start: Vec<PipelineReporter>,
    /// It entered.
    pub enqueue: Vec<PipelineReporter>,
    /// All voting jobs passed.
    pub success: Vec<PipelineReporter>,
    /// One failed.
    pub failure: Vec<PipelineReporter>,
    /// The change has a merge conflict; defaults to the reporters of `failure`.
    pub merge_conflict: Vec<PipelineReporter>,
    /// No job runs.
    pub no_jobs: Vec<PipelineReporter>,
    /// The change is dequeued.
    pub dequeue: Vec<PipelineReporter>,
    /// The configuration has an error; defaults to the reporters of `failure`.
    pub config_error: Vec<PipelineReporter>,
    /// The pipeline is disabled after too many failures.
    pub disabled: Vec<PipelineReporter>,
}

impl Reporters {
    /// Returns the reporters of every occasion, one occasion after the other. Those that apply to
    /// several occasions are repeated.
    pub fn all(&self) -> impl Iterator<Item = &PipelineReporter> {
        let occasions = [
            &self.start,
            &self.enqueue,
            &self.success,
            &self.failure,
            &self.merge_conflict,
            &self.no_jobs,
            &self.dequeue,
            &self.config_error,
            &self.disabled,
        ];
        occasions.into_iter().flatten()
    }
}

/// An action on an occasion.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PipelineReporter {
    /// The connection it uses. Forge reporters act on changes of that connection only; mail, MQTT
    /// and the like act on all.
    pub connection: ConnectionName,
    /// The action.
    pub kind: ReporterKind,
}

/// The action of a reporter, by driver.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ReporterKind {
    /// On a pull request.
    GitHub(GitHubReporter),
    /// On a change of Gerrit.
    Gerrit(GerritReporter),
    /// On a merge request of GitLab.
    GitLab(GitLabReporter),
    /// By mail.
    Smtp {
        /// The recipient, if not the connection's default.
        #[serde(default)]
        to: Option<String>,
        /// The sender, if not the connection's default.
        #[serde(default)]
        from: Option<String>,
        /// The subject, which may contain fields of the change.
        #[serde(default)]
        subject: Option<String>,
    },
    /// To an MQTT broker.
    Mqtt {
        /// The topic, with `{tenant}`, `{pipeline}`, `{project}`, `{branch}` …
        topic: String,
        /// Quality of service 0, 1 or 2.
        #[serde(default)]
        qos: u8,
        /// Whether data returned by jobs is included.
        #[serde(default)]
        include_returned_data: bool,
    },
    /// Stores builds, which Sluice does anyway.
    Sql,
    /// Into an index of Elasticsearch.
    Elasticsearch {
        /// The index, if not the connection's default.
        #[serde(default)]
        index: Option<String>,
        /// Whether the jobs' variables are included.
        #[serde(default)]
        index_vars: bool,
        /// Whether data returned by jobs is included.
        #[serde(default)]
        index_returned_vars: bool,
    },
    /// Updates the records of images (L1.3).
    Zuul(ZuulReporter),
    /// An unknown driver, with its attributes as written.
    Other(Value),
}

/// The actions on a pull request.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct GitHubReporter {
    /// The commit status to set.
    pub status: Option<CommitStatusState>,
    /// The check run to set.
    pub check: Option<CheckConclusion>,
    /// Whether to comment; by default true for results if no other action is set.
    pub comment: Option<bool>,
    /// The review to leave.
    pub review: Option<ReviewVerdict>,
    /// The review's text.
    pub review_body: Option<String>,
    /// Whether to merge it.
    pub merge: bool,
    /// Labels to add.
    pub label: Vec<String>,
    /// Labels to remove.
    pub unlabel: Vec<String>,
    /// The link of the status, if not the item's page.
    pub status_url: Option<String>,
}

/// States of a commit status.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CommitStatusState {
    /// Not decided.
    Pending,
    /// Good.
    Success,
    /// Bad.
    Failure,
}

/// States and conclusions of a check run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CheckConclusion {
    /// It waits.
    Queued,
    /// It runs.
    InProgress,
    /// Good.
    Success,
    /// Bad.
    Failure,
    /// Taken out.
    Cancelled,
    /// Not run.
    Skipped,
    /// Neither.
    Neutral,
}

/// The verdict of a review.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ReviewVerdict {
    /// Yes.
    Approve,
    /// No.
    RequestChanges,
    /// Neither.
    Comment,
}

/// The actions on a Gerrit change.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct GerritReporter {
    /// Whether to submit it.
    pub submit: bool,
    /// Whether to leave a message.
    pub comment: Option<bool>,
    /// Who gets a mail: `NONE`, `OWNER`, `OWNER_REVIEWERS`, `ALL`.
    pub notify: Option<String>,
    /// Votes: label to value.
    pub votes: BTreeMap<String, i64>,
    /// The checker's state.
    pub checks_api: BTreeMap<String, Value>,
}

/// The actions on a GitLab merge request.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct GitLabReporter {
    /// Whether to comment.
    pub comment: Option<bool>,
    /// Whether to approve, or withdraw the approval.
    pub approval: Option<bool>,
    /// Whether to merge it.
    pub merge: bool,
    /// Labels to add.
    pub label: Vec<String>,
    /// Labels to remove.
    pub unlabel: Vec<String>,
}

/// The updates of image records.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ZuulReporter {
    /// Artifacts of the result are image builds.
    pub image_built: bool,
    /// The image may be used.
    pub image_validated: bool,
}
