//! The payload of an MQTT message, with the field names of Zuul's.

use super::Report;
use crate::item::{Item, Job, JobStatus};
use serde_json::{Map, Value, json};
use sluice_model::build::{Phase, Run};
use sluice_model::change::{ChangeId, ChangeRef};
use sluice_model::{BuildId, Timestamp};
use std::collections::BTreeMap;

/// The facts about an item that its report's record does not contain.
#[derive(Debug, Clone, Default)]
pub struct PublishedItem {
    /// The item, queued or removed; `None` for a change that was refused at entry.
    pub item: Option<Item>,
    /// The result; `None` while it is queued.
    pub result: Option<String>,
    /// The runs of its builds.
    pub runs: BTreeMap<BuildId, Run>,
    /// Data that builds returned and that is too large for the runs' records.
    pub returned: BTreeMap<BuildId, Map<String, Value>>,
}

/// The message, apart from the item's facts.
#[derive(Debug, Clone, Copy)]
pub struct PublishedMessage<'a> {
    /// The message's id, the same in every attempt.
    pub id: &'a str,
    /// The name of the occasion: `start`, `success`, `failure` …
    pub occasion: &'a str,
    /// The text of the report.
    pub text: &'a str,
    /// The address of Sluice's pages.
    pub web_root: &'a str,
    /// Whether the data that jobs returned is included.
    pub returned: bool,
}

/// Returns the payload of a message about a report. It has the fields of the change twice, as older
/// messages of Zuul have. `facts` is what the report lacks; without an item there, the author, the
/// times, the change's address and the buildset are null.
pub fn payload(report: &Report, message: PublishedMessage<'_>, facts: &PublishedItem) -> Value {
    let candidate = facts.item.as_ref().map(|item| &item.candidate);
    let change = change(&report.change, candidate.map(|candidate| candidate.url.as_str()));
    let mut payload = json!({
        "message_id": message.id,
        "uuid": report.item,
        "action": message.occasion,
        "tenant": report.queue.tenant,
        "pipeline": report.queue.pipeline,
        "zuul_ref": "",
        "message": message.text,
        "owner": candidate.map(|candidate| &candidate.author).filter(|author| !author.is_empty()),
        // Like Zuul, times are seconds, as texts.
        "trigger_time": facts.item.as_ref().map(|item| seconds(item.admitted_at)),
        "enqueue_time": facts.item.as_ref().map(|item| seconds(item.admitted_at)),
        "changes": [change],
        "buildset": facts.item.as_ref().map(|item| buildset(report, item, message, facts)),
    });
    // Like older messages of Zuul, the change's fields are also at the top level.
    if let (Some(all), Value::Object(change)) = (payload.as_object_mut(), change) {
        all.extend(change);
    }
    payload
}

/// Returns the fields of a change; those that it does not have are null.
fn change(change: &ChangeRef, url: Option<&str>) -> Value {
    let key = &change.key;
    let (oldrev, newrev) = match &key.id {
        ChangeId::Ref(moved) => (moved.oldrev.as_ref(), moved.newrev.as_ref()),
        ChangeId::Number(_) => (None, None),
    };
    json!({
        "project": key.project.name(),
        "branch": change.on_branch(),
        "change_url": url.filter(|url| !url.is_empty()),
        "change": key.number().map(|number| number.to_string()),
        "patchset": Some(&change.patchset).filter(|patchset| !patchset.is_empty()),
        "commit_id": Some(&change.head).filter(|head| !head.is_zero()),
        "ref": change.github_ref(),
        "oldrev": oldrev,
        "newrev": newrev,
    })
}

/// Returns the fields of an item's buildset, with a build for each job.
fn buildset(
    report: &Report,
    item: &Item,
    message: PublishedMessage<'_>,
    facts: &PublishedItem,
) -> Value {
    json!({
        "uuid": report.item,
        "result": facts.result,
        "builds": item.jobs.iter().map(|job| build(report, item, job, message, facts)).collect::<Vec<_>>(),
    })
}

/// Returns the fields of a job's build. A job without a build has only those of the job. With
/// `message.returned` the data that the build returned is included, without its part `zuul`.
fn build(
    report: &Report,
    item: &Item,
    job: &Job,
    message: PublishedMessage<'_>,
    facts: &PublishedItem,
) -> Value {
    let mut build = json!({
        "job_name": job.summary.name,
        "voting": job.summary.voting,
        "result": job.result().map(|result| result.as_str()),
        "dependencies": job.summary.dependencies.iter().map(|dependency| &dependency.name).collect::<Vec<_>>(),
    });
    let Some((all, uuid)) = build.as_object_mut().zip(job.build.as_ref()) else { return build };
    let (started_at, ended_at, log_url) = match &job.status {
        JobStatus::Ended { started_at, ended_at, log_url, .. } => {
            (*started_at, Some(*ended_at), log_url.clone())
        }
        JobStatus::Running { started_at, .. } | JobStatus::Paused { started_at, .. } => {
            (*started_at, None, None)
        }
        JobStatus::Waiting | JobStatus::Ordered { .. } => (None, None, None),
    };
    let web_url = format!("{}t/{}/build/{uuid}", message.web_root, report.queue.tenant);
    let run = facts.runs.get(uuid);
    let data = facts.returned.get(uuid).or_else(|| run.and_then(returned));
    let artifacts = data.and_then(|data| data.get("zuul")).and_then(|zuul| zuul.get("artifacts"));
    for (name, value) in [
        ("uuid", json!(uuid)),
        (
            "execute_time",
            json!(run.map(|run| seconds(run.claimed_at)).or(item.first_job_at.map(seconds))),
        ),
        ("start_time", json!(started_at.map(seconds))),
        ("end_time", json!(ended_at.map(seconds))),
        ("log_url", json!(log_url)),
        ("web_url", json!(web_url)),
        ("artifacts", artifacts.cloned().unwrap_or_else(|| json!([]))),
    ] {
        all.insert(name.to_owned(), value);
    }
    if message.returned {
        let own = data.into_iter().flatten().filter(|(name, _)| *name != "zuul");
        let own: Map<String, Value> =
            own.map(|(name, value)| (name.clone(), value.clone())).collect();
        all.insert("returned_data".to_owned(), Value::Object(own));
    }
    build
}

/// Returns the returned data in the record of a run that has ended or is paused; `None` while it
/// runs.
fn returned(run: &Run) -> Option<&Map<String, Value>> {
    match &run.phase {
        Phase::Ended(end) => Some(&end.data),
        Phase::Paused(pause) => Some(&pause.data),
        Phase::Running | Phase::Failing => None,
    }
}

/// Formats a time as seconds with three decimals.
fn seconds(at: Timestamp) -> String {
    format!("{}.{:03}", at.0 / 1_000, at.0 % 1_000)
}
