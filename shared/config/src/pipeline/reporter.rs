//! What a pipeline tells to whom, by occasion and driver.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use sluice_model::ConnectionName;
use std::collections::BTreeMap;

/// Reporters by occasion.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Reporters {
    /// Its jobs start.
    pub start: Vec<Reporter>,
    /// It entered.
    pub enqueue: Vec<Reporter>,
    /// All voting jobs passed.
    pub success: Vec<Reporter>,
    /// One failed.
    pub failure: Vec<Reporter>,
    /// It does not merge; filled with those of `failure` where not given.
    pub merge_conflict: Vec<Reporter>,
    /// No job is to be run.
    pub no_jobs: Vec<Reporter>,
    /// It was taken out.
    pub dequeue: Vec<Reporter>,
    /// Its configuration is wrong; filled with those of `failure` where not given.
    pub config_error: Vec<Reporter>,
    /// The pipeline is disabled after too many failures.
    pub disabled: Vec<Reporter>,
}

impl Reporters {
    /// Returns the reporters of every occasion.
    pub fn all(&self) -> impl Iterator<Item = &Reporter> {
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

/// One thing to do when the occasion comes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reporter {
    /// The connection it speaks on. It acts on changes of that connection; mail, MQTT and the like
    /// act on all.
    pub connection: ConnectionName,
    /// What it does.
    pub kind: ReporterKind,
}

/// What a reporter does, in the words of a driver.
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
        /// Receiver, when not the connection's default.
        #[serde(default)]
        to: Option<String>,
        /// Sender, when not the connection's default.
        #[serde(default)]
        from: Option<String>,
        /// Subject; may name the change.
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
        /// Whether data returned by jobs go along.
        #[serde(default)]
        include_returned_data: bool,
    },
    /// Into the records of builds, which are kept anyway.
    Sql,
    /// Into an index of Elasticsearch.
    Elasticsearch {
        /// The index, when not the connection's.
        #[serde(default)]
        index: Option<String>,
        /// Whether the jobs' variables go along.
        #[serde(default)]
        index_vars: bool,
        /// Whether data returned by jobs go along.
        #[serde(default)]
        index_returned_vars: bool,
    },
    /// Into the records of images (L1.3).
    Zuul(ZuulReporter),
    /// A driver whose vocabulary is not known here: its attributes as written.
    Other(Value),
}

/// What is done to a pull request.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct GitHubReporter {
    /// The commit status to set.
    pub status: Option<CommitStatus>,
    /// The check run to set.
    pub check: Option<CheckConclusion>,
    /// Whether to comment; true where a result is reported and nothing else is said.
    pub comment: Option<bool>,
    /// The review to leave.
    pub review: Option<ReviewVerdict>,
    /// The review's text.
    pub review_body: Option<String>,
    /// Whether to merge it.
    pub merge: bool,
    /// Labels to put on.
    pub label: Vec<String>,
    /// Labels to take off.
    pub unlabel: Vec<String>,
    /// Where the status points to, when not to the item's page.
    pub status_url: Option<String>,
}

/// States of a commit status.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CommitStatus {
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

/// What a review says.
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

/// What is done to a change of Gerrit.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct GerritReporter {
    /// Whether to submit it.
    pub submit: bool,
    /// Whether to leave a message.
    pub comment: Option<bool>,
    /// Who is told: `NONE`, `OWNER`, `OWNER_REVIEWERS`, `ALL`.
    pub notify: Option<String>,
    /// Votes: label to value.
    pub votes: BTreeMap<String, i64>,
    /// The checker's state.
    pub checks_api: BTreeMap<String, Value>,
}

/// What is done to a merge request of GitLab.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct GitLabReporter {
    /// Whether to comment.
    pub comment: Option<bool>,
    /// Whether to approve, or take approval back.
    pub approval: Option<bool>,
    /// Whether to merge it.
    pub merge: bool,
    /// Labels to put on.
    pub label: Vec<String>,
    /// Labels to take off.
    pub unlabel: Vec<String>,
}

/// What is recorded about images.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ZuulReporter {
    /// Artifacts of the result are image builds.
    pub image_built: bool,
    /// The image may be used.
    pub image_validated: bool,
}
