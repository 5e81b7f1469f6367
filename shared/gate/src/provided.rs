//! The artifacts that a change provides to changes tested on top of it (`provides`, `requires`).
//!
//! In an independent pipeline each change has its own queue. Its queue therefore writes a record of
//! what the change provides with each of its commits, and the queues of dependent changes read that
//! record by key.

use crate::item::Item;
use serde::{Deserialize, Serialize};
use sluice_model::build::BuildResult;
use sluice_model::change::ChangeRef;
use sluice_model::{BuildId, JobName};

/// What one revision of a change provides in one pipeline.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProvidedArtifacts {
    /// The change and its revision.
    pub change: ChangeRef,
    /// Its jobs with `provides`.
    pub jobs: Vec<ProvidingJob>,
}

/// A job that provides artifacts, with its progress.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProvidingJob {
    /// The job's name.
    pub job: JobName,
    /// The names in the job's `provides`.
    pub provides: Vec<String>,
    /// Whether its artifacts are available.
    pub state: ProvidingJobState,
}

/// Whether a job's artifacts are available.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ProvidingJobState {
    /// The job has neither ended nor paused.
    Pending,
    /// The job succeeded or is paused, and the artifacts of this build are available; `None` where
    /// the job needed no build.
    Available(Option<BuildId>),
    /// The job ended with this result and provides nothing.
    Failed(BuildResult),
}

impl ProvidedArtifacts {
    /// Returns what an item currently provides, or `None` where none of its jobs has `provides`,
    /// also before its jobs are known. Jobs that have not ended or have failed are listed, too,
    /// with their state.
    pub fn from_item(item: &Item) -> Option<Self> {
        let providing = item.jobs.iter().filter(|job| !job.summary.provides.is_empty());
        let offer = providing.map(|job| ProvidingJob {
            job: job.summary.name.clone(),
            provides: job.summary.provides.clone(),
            state: match job.result() {
                _ if job.satisfies_dependents() => ProvidingJobState::Available(job.build.clone()),
                None => ProvidingJobState::Pending,
                Some(result) => ProvidingJobState::Failed(result),
            },
        });
        let jobs: Vec<ProvidingJob> = offer.collect();
        (!jobs.is_empty()).then(|| Self { change: item.candidate.change.clone(), jobs })
    }

    /// Creates a record that says that a revision provides nothing.
    pub fn nothing(change: ChangeRef) -> Self {
        Self { change, jobs: Vec::new() }
    }
}
