//! What a message of MQTT holds: the fields of Zuul's own, by their names.

use super::Report;
use crate::item::{Item, Job, JobStatus};
use serde_json::{Map, Value, json};
use sluice_model::build::{Phase, Run};
use sluice_model::change::{ChangeRef, What};
use sluice_model::{BuildId, Timestamp};
use std::collections::BTreeMap;

/// What is known of an item besides its report.
#[derive(Debug, Clone, Default)]
pub struct Known {
    /// The item, in its queue or as it left; `None` for a change that never became one.
    pub item: Option<Item>,
    /// How it ended, once it has.
    pub result: Option<String>,
    /// What executors did with its builds.
    pub runs: BTreeMap<BuildId, Run>,
    /// What builds returned whose record does not hold all of it.
    pub returned: BTreeMap<BuildId, Map<String, Value>>,
}

/// What a message says besides what is known of its item.
#[derive(Debug, Clone, Copy)]
pub struct Saying<'a> {
    /// The message's id, the same for every attempt.
    pub id: &'a str,
    /// The reporter's word: `start`, `success`, `failure` …
    pub occasion: &'a str,
    /// The report's text.
    pub text: &'a str,
    /// The address of the pages.
    pub web_root: &'a str,
    /// Whether what jobs returned goes along.
    pub returned: bool,
}

/// Returns the payload of a message about a report.
pub fn payload(report: &Report, saying: Saying<'_>, known: &Known) -> Value {
    let candidate = known.item.as_ref().map(|item| &item.candidate);
    let change = change(&report.change, candidate.map(|candidate| candidate.url.as_str()));
    let mut payload = json!({
        "message_id": saying.id,
        "uuid": report.item,
        "action": saying.occasion,
        "tenant": report.queue.tenant,
        "pipeline": report.queue.pipeline,
        "zuul_ref": "",
        "message": saying.text,
        "owner": candidate.map(|candidate| &candidate.author).filter(|author| !author.is_empty()),
        // Who reads this by Zuul's names takes seconds, as texts.
        "trigger_time": known.item.as_ref().map(|item| seconds(item.admitted_at)),
        "enqueue_time": known.item.as_ref().map(|item| seconds(item.admitted_at)),
        "changes": [change],
        "buildset": known.item.as_ref().map(|item| buildset(report, item, saying, known)),
    });
    // A message about one change names it at the top as well, as those of Zuul did before there
    // were several.
    if let (Some(all), Value::Object(change)) = (payload.as_object_mut(), change) {
        all.extend(change);
    }
    payload
}

fn change(change: &ChangeRef, url: Option<&str>) -> Value {
    let key = &change.key;
    let (oldrev, newrev) = match &key.what {
        What::Ref(moved) => (moved.oldrev.as_ref(), moved.newrev.as_ref()),
        What::Number(_) => (None, None),
    };
    json!({
        "project": key.project.name(),
        "branch": change.on_branch(),
        "change_url": url.filter(|url| !url.is_empty()),
        "change": key.number().map(|number| number.to_string()),
        "patchset": Some(&change.patchset).filter(|patchset| !patchset.is_empty()),
        "commit_id": Some(&change.head).filter(|head| !head.is_zero()),
        "ref": change.git_ref(),
        "oldrev": oldrev,
        "newrev": newrev,
    })
}

fn buildset(report: &Report, item: &Item, saying: Saying<'_>, known: &Known) -> Value {
    json!({
        "uuid": report.item,
        "result": known.result,
        "builds": item.jobs.iter().map(|job| build(report, item, job, saying, known)).collect::<Vec<_>>(),
    })
}

fn build(report: &Report, item: &Item, job: &Job, saying: Saying<'_>, known: &Known) -> Value {
    let mut told = json!({
        "job_name": job.summary.name,
        "voting": job.summary.voting,
        "result": job.result().map(|result| result.as_str()),
        "dependencies": job.summary.dependencies.iter().map(|dependency| &dependency.name).collect::<Vec<_>>(),
    });
    let Some((all, uuid)) = told.as_object_mut().zip(job.build.as_ref()) else { return told };
    let (started_at, ended_at, log_url) = match &job.status {
        JobStatus::Ended { started_at, ended_at, log_url, .. } => {
            (*started_at, Some(*ended_at), log_url.clone())
        }
        JobStatus::Running { started_at, .. } | JobStatus::Paused { started_at, .. } => {
            (*started_at, None, None)
        }
        JobStatus::Waiting | JobStatus::Ordered { .. } => (None, None, None),
    };
    let web_url = format!("{}t/{}/build/{uuid}", saying.web_root, report.queue.tenant);
    let run = known.runs.get(uuid);
    let data = known.returned.get(uuid).or_else(|| run.and_then(returned));
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
    if saying.returned {
        let own = data.into_iter().flatten().filter(|(name, _)| *name != "zuul");
        let own: Map<String, Value> =
            own.map(|(name, value)| (name.clone(), value.clone())).collect();
        all.insert("returned_data".to_owned(), Value::Object(own));
    }
    told
}

/// Returns what the record of a run holds of what its job returned.
fn returned(run: &Run) -> Option<&Map<String, Value>> {
    match &run.phase {
        Phase::Ended(end) => Some(&end.data),
        Phase::Paused(pause) => Some(&pause.data),
        Phase::Running | Phase::Failing => None,
    }
}

fn seconds(at: Timestamp) -> String {
    format!("{}.{:03}", at.0 / 1_000, at.0 % 1_000)
}
