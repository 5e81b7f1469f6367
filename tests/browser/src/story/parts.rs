//! The fixture's changes, and parts of their records.

use super::NOW;
use sluice_gate::merge::TestedState;
use sluice_gate::{Candidate, JobStatus, MergeStatus};
use sluice_model::build::{BuildResult, RunEnd};
use sluice_model::change::{ChangeKey, ChangeRef};
use sluice_model::git::{Commit, Oid};
use sluice_model::id::digest;
use sluice_model::job::{FrozenJob, JobDependency, JobSummary, NodeSet};
use sluice_model::{BuildId, ItemId, JobName, ProjectName, QueueKey, Timestamp};

/// A change of the fixture.
#[derive(Debug, Clone, Copy)]
pub struct StoryChange {
    /// The name of the project.
    pub project: &'static str,
    /// The number.
    pub number: u64,
    /// The title.
    pub title: &'static str,
    /// The author.
    pub author: &'static str,
}

/// Changes that have left, newest first.
pub const PAST: [StoryChange; 4] = [
    StoryChange { project: "org/lib", number: 10, title: "Name the units", author: "ada" },
    StoryChange {
        project: "org/app",
        number: 9,
        title: "Count what was imported",
        author: "grace",
    },
    StoryChange { project: "org/app", number: 8, title: "Import in parallel", author: "linus" },
    StoryChange { project: "org/lib", number: 7, title: "Move the parser", author: "edsger" },
];

/// Returns the key of a queue.
pub fn queue_key(tenant: &str, pipeline: &str, queue: &str) -> QueueKey {
    QueueKey { tenant: tenant.into(), pipeline: pipeline.into(), queue: queue.into() }
}

/// Returns the item of a change.
pub fn item_id(change: &StoryChange) -> ItemId {
    ItemId::derive(&[change.project, &change.number.to_string()])
}

/// Returns the build of a change's job.
pub fn build_id(change: &StoryChange, job: &str, attempt: u32) -> BuildId {
    BuildId::derive(&[item_id(change).as_str(), job, &attempt.to_string()])
}

/// Returns a change as in events.
pub fn change(change: &StoryChange) -> ChangeRef {
    let head = oid(change.title, 1).0;
    let key = ChangeKey::change(
        "github".into(),
        ProjectName::new("github.com", change.project),
        change.number,
    );
    ChangeRef { key, branch: "main".into(), patchset: head.clone(), head: Oid(head) }
}

pub(super) fn url(change: &StoryChange) -> String {
    format!("https://github.com/{}/pull/{}", change.project, change.number)
}

pub(super) fn oid(text: &str, salt: u8) -> Oid {
    Oid(format!("{}{}", digest(&[text, &salt.to_string()]), "0a1b2c3d"))
}

pub(super) fn commit(text: &str) -> Commit {
    Commit { id: oid(text, 2), tree: oid(text, 3) }
}

pub(super) fn before(seconds: u64) -> Timestamp {
    Timestamp(NOW.0 - seconds * 1_000)
}

pub(super) fn candidate(of: &StoryChange) -> Candidate {
    Candidate {
        change: change(of),
        url: url(of),
        title: of.title.into(),
        message: String::new(),
        author: of.author.into(),
        topic: None,
        needs: Vec::new(),
        bundle: Vec::new(),
        cycle_needs: Vec::new(),
        unresolved_dependencies: Vec::new(),
        refused: None,
        merged: None,
        moved_from: None,
        as_of: Timestamp(0),
        newer_head: None,
        debug: false,
    }
}

pub(super) fn merged(of: &StoryChange) -> MergeStatus {
    MergeStatus::Merged(TestedState {
        speculation: "speculations/x".into(),
        graph: "jobs/unit".into(),
        jobs: Vec::new(),
        base: commit("base"),
        tested: commit(of.title),
        can_fast_forward: false,
        touches_configuration: false,
        fail_fast: false,
        debug: Vec::new(),
        warnings: Vec::new(),
    })
}

pub(super) fn ended(
    build: &BuildId,
    result: BuildResult,
    ended_at: Timestamp,
    seconds: u64,
    why: Option<&str>,
) -> RunEnd {
    let artifacts = serde_json::json!({
        "artifacts": [{"name": "Report", "url": "report/"}, {"broken": 1}],
        "warnings": ["the mirror was slow"],
    });
    RunEnd {
        result,
        detail: why.map(str::to_owned),
        started_at: (result != BuildResult::Skipped)
            .then(|| Timestamp(ended_at.0 - seconds * 1_000)),
        ended_at,
        data: std::iter::once(("zuul".to_owned(), artifacts)).collect(),
        data_object: None,
        log_url: (result != BuildResult::Skipped)
            .then(|| format!("https://ci.example.org/logs/acme/{build}/")),
    }
}

pub(super) fn status_of(ended: &RunEnd) -> JobStatus {
    JobStatus::Ended {
        result: ended.result,
        detail: ended.detail.clone(),
        started_at: ended.started_at,
        ended_at: ended.ended_at,
        log_url: ended.log_url.clone(),
    }
}

pub(super) fn summary(name: &str) -> JobSummary {
    frozen(name).summary()
}

pub(super) fn frozen(name: &str) -> FrozenJob {
    let set = NodeSet {
        name: if name == "integration" { "pair".into() } else { String::new() },
        ..NodeSet::default()
    };
    let text = serde_json::json!({
        "name": name, "voting": name != "docs", "attempts": 3, "nodesets": [],
        "timeout_seconds": null, "pre_timeout_seconds": null, "post_timeout_seconds": null,
        "override_checkout": null, "ansible_version": null, "success_message": null, "failure_message": null, "image_build_name": null,
    });
    let mut job: FrozenJob = serde_json::from_value(text)
        .unwrap_or_else(|error| unreachable!("the text above is a frozen job: {error}"));
    job.nodesets = vec![set];
    if name == "integration" {
        job.dependencies = vec![JobDependency { name: JobName::from("unit"), soft: false }];
    }
    job
}
