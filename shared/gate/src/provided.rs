//! What a change provides to those that are tested on top of it (`provides`, `requires`), as far as
//! it is.
//!
//! In an independent pipeline each change is a queue of its own, so what it provides is a record
//! that its queue writes with each of its steps, and that queues of changes which need it read by
//! key.

use crate::item::Item;
use serde::{Deserialize, Serialize};
use sluice_model::build::BuildResult;
use sluice_model::change::ChangeRef;
use sluice_model::{BuildId, JobName};

/// What one revision of a change provides in one pipeline.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Provided {
    /// The revision.
    pub change: ChangeRef,
    /// Its jobs that provide something.
    pub jobs: Vec<Offer>,
}

/// A job that provides something.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Offer {
    /// The job.
    pub job: JobName,
    /// Kinds of artifacts.
    pub provides: Vec<String>,
    /// How far it is.
    pub state: OfferState,
}

/// How far a job is that provides something.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OfferState {
    /// It is not over.
    Awaited,
    /// It is there, from this build; from none where the job needs no build.
    There(Option<BuildId>),
    /// It will not be there.
    Failed(BuildResult),
}

impl Provided {
    /// Returns what an item provides by now; `None` where none of its jobs provides anything.
    pub fn of(item: &Item) -> Option<Self> {
        let providing = item.jobs.iter().filter(|job| !job.summary.provides.is_empty());
        let offer = providing.map(|job| Offer {
            job: job.summary.name.clone(),
            provides: job.summary.provides.clone(),
            state: match job.result() {
                _ if job.is_served() => OfferState::There(job.build.clone()),
                None => OfferState::Awaited,
                Some(result) => OfferState::Failed(result),
            },
        });
        let jobs: Vec<Offer> = offer.collect();
        (!jobs.is_empty()).then(|| Self { change: item.candidate.change.clone(), jobs })
    }

    /// Returns that a revision provides nothing.
    pub fn nothing(change: ChangeRef) -> Self {
        Self { change, jobs: Vec::new() }
    }
}
