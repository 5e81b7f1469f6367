//! A build as the API shows it, from the gate's order, the executor's run, and the item if there is
//! no run.

use serde_json::{Map, Value, json};
use sluice_gate::{Item, JobStatus};
use sluice_model::build::{BuildResult, EndWithoutRun, Order, Phase, Run};
use sluice_model::change::{ChangeFacts, ChangeRef};
use sluice_model::{BuildId, Timestamp};
use sluice_records::artifact::artifact_address;
use sluice_records::build::StopRequest;

/// A build with all its records.
#[derive(Debug, Clone)]
pub(crate) struct BuildRow {
    /// The gate's order.
    pub(crate) order: Order,
    /// The executor's run; `None` before an executor claims the build.
    pub(crate) run: Option<Run>,
    /// The request to stop the build, if there is one.
    pub(crate) stop: Option<StopRequest>,
    /// The item. Read only if the run has not ended, and for refs, whose address only the item has.
    pub(crate) item: Option<Item>,
    /// The address of the change or ref at the forge.
    pub(crate) change_url: Option<String>,
    /// When the event that led to the build was received; `None` if the delivery has expired.
    pub(crate) event_at: Option<Timestamp>,
    /// The name of the nodeset; only set if the frozen job was read.
    pub(crate) nodeset: Option<String>,
    /// What the job provides; only set if the frozen job was read.
    pub(crate) provides: Vec<String>,
    /// Whether an autohold request holds or held the nodes.
    pub(crate) held: bool,
}

/// How a build ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct End {
    /// The build's result.
    pub(crate) result: BuildResult,
    /// The reason in a sentence, if the result alone does not explain it.
    pub(crate) detail: Option<String>,
    /// When the first playbook started; `None` if none did.
    pub(crate) started_at: Option<Timestamp>,
    /// When the build ended.
    pub(crate) ended_at: Timestamp,
    /// The address of the logs, if there are any.
    pub(crate) log_url: Option<String>,
}

impl BuildRow {
    /// Returns a row with only the order.
    pub(crate) fn new(order: Order) -> Self {
        Self {
            order,
            run: None,
            stop: None,
            item: None,
            change_url: None,
            event_at: None,
            nodeset: None,
            provides: Vec::new(),
            held: false,
        }
    }

    /// Returns how the build ended, from the records in this row: as in the order if that says so,
    /// else as in the run, else as in the item, else as in the stop request. That ends a build that
    /// no executor claimed, as aborted unless it names a result, and one whose executor is dead,
    /// which is retried. `None` if it has not ended by these records.
    pub(crate) fn end(&self) -> Option<End> {
        if let Some(EndWithoutRun { result, detail }) = &self.order.end {
            return Some(End {
                result: *result,
                detail: detail.clone(),
                started_at: None,
                ended_at: self.order.ordered_at,
                log_url: None,
            });
        }
        if let Some(Run { phase: Phase::Ended(ended), .. }) = &self.run {
            return Some(End {
                result: ended.result,
                detail: ended.detail.clone(),
                started_at: ended.started_at,
                ended_at: ended.ended_at,
                log_url: ended.log_url.clone(),
            });
        }
        if let Some(end) = self.item.as_ref().and_then(|item| end_in(item, &self.order.build)) {
            return Some(end);
        }
        let stop = self.stop.as_ref()?;
        let (result, started_at) = match &self.run {
            None => (stop.result.unwrap_or(BuildResult::Aborted), None),
            Some(run) if stop.executor_is_dead => (BuildResult::Retry, Some(run.claimed_at)),
            Some(_) => return None,
        };
        let detail = Some(stop.why.clone());
        Some(End { result, detail, started_at, ended_at: stop.at, log_url: None })
    }

    /// Returns when the first playbook started; for a running or paused build, when an executor
    /// claimed it. `None` if the build was not claimed, or ended before its first playbook.
    pub(crate) fn started_at(&self) -> Option<Timestamp> {
        match &self.run {
            Some(Run {
                phase: Phase::Running | Phase::Failing | Phase::Paused(_),
                claimed_at,
                ..
            }) => Some(*claimed_at),
            _ => self.end().and_then(|end| end.started_at),
        }
    }

    /// Returns the number that orders builds: newer builds have greater numbers.
    pub(crate) fn number(&self) -> u64 {
        number(self.order.ordered_at, self.order.build.as_str())
    }

    /// Returns the build as an entry of the answer to `T/builds`. What the row lacks is shown as
    /// null, empty or false, also `held`, `nodeset` and `provides` if the caller has not set them.
    pub(crate) fn to_json(&self) -> Value {
        let mut build = self.core();
        build.insert("pipeline".into(), json!(self.order.queue.pipeline));
        build.insert("event_id".into(), json!(self.order.event_id));
        build.insert("event_timestamp".into(), json!(self.event_at.map(Timestamp::to_iso)));
        build.insert("queue_item_uuid".into(), json!(self.order.item));
        build.insert("buildset".into(), json!({"uuid": self.order.item}));
        Value::Object(build)
    }

    /// Returns the build as it is listed in its buildset: [`Self::to_json`] without the pipeline,
    /// the event and the item.
    pub(crate) fn core(&self) -> Map<String, Value> {
        let end = self.end();
        let started_at = self.started_at();
        let ended_at = end.as_ref().map(|end| end.ended_at);
        let duration = started_at.zip(ended_at).map(|(from, to)| seconds(to.since(from)));
        let row = json!({
            "_id": self.number(),
            "uuid": self.order.build,
            "job_name": self.order.job,
            "result": end.as_ref().map(|end| end.result.as_str()),
            "held": self.held,
            "execute_time": self.order.ordered_at.to_iso(),
            "start_time": started_at.map(Timestamp::to_iso),
            "end_time": ended_at.map(Timestamp::to_iso),
            "duration": duration,
            "voting": self.order.voting,
            "log_url": end.as_ref().and_then(|end| end.log_url.clone()),
            "nodeset": self.nodeset,
            "error_detail": end.as_ref().and_then(|end| end.detail.clone()),
            "final": end.as_ref().map(|end| end.result != BuildResult::Retry),
            "artifacts": self.artifacts(),
            "provides": self.provides.iter().map(|name| json!({"name": name})).collect::<Vec<_>>(),
            "ref": change_json(&self.order.change, self.change_url.as_deref()),
        });
        match row {
            Value::Object(map) => map,
            _ => Map::new(),
        }
    }

    /// Returns the artifacts that the job returned, if they have a name and an address; none before
    /// the build is paused or has ended. Relative addresses are completed.
    fn artifacts(&self) -> Vec<Value> {
        let (mut artifacts, log_url) = self.returned("artifacts");
        artifacts
            .retain(|artifact| artifact.get("name").is_some() && artifact.get("url").is_some());
        for artifact in &mut artifacts {
            if let (Some(Value::String(url)), Some(logs)) = (artifact.get_mut("url"), log_url) {
                *url = artifact_address(logs, url);
            }
        }
        artifacts
    }

    /// Returns the warnings of the build: those of its job and of the executor.
    pub(crate) fn warnings(&self) -> Vec<Value> {
        let (mut warnings, _) = self.returned("warnings");
        warnings.retain(Value::is_string);
        warnings
    }

    /// Returns a list in the `zuul` part of the data that the job returned, and the address of its
    /// logs; empty before the build is paused or has ended.
    fn returned(&self, name: &str) -> (Vec<Value>, Option<&str>) {
        let (data, log_url) = match &self.run {
            Some(Run { phase: Phase::Ended(ended), .. }) => (&ended.data, &ended.log_url),
            Some(Run { phase: Phase::Paused(pause), .. }) => (&pause.data, &pause.log_url),
            _ => return (Vec::new(), None),
        };
        let list = data.get("zuul").and_then(|zuul| zuul.get(name)).and_then(Value::as_array);
        (list.cloned().unwrap_or_default(), log_url.as_deref())
    }
}

/// Returns a change or ref in the shape of `ref`, a member of builds and buildsets. An absent or
/// empty `url` is shown as null.
pub(crate) fn change_json(change: &ChangeRef, url: Option<&str>) -> Value {
    let moved = change.key.ref_move();
    json!({
        "project": change.key.project.name(),
        "branch": change.on_branch(),
        "change": change.key.number(),
        "patchset": change.key.number().map(|_| &change.patchset),
        "ref": change.github_ref(),
        "oldrev": moved.and_then(|moved| moved.oldrev.as_ref()),
        "newrev": moved.and_then(|moved| moved.newrev.as_ref()),
        "ref_url": url.filter(|url| !url.is_empty()),
    })
}

/// Returns the address of a change; `None` if it is empty or unknown.
pub(crate) fn url_of(facts: Option<&ChangeFacts>) -> Option<String> {
    facts.map(|facts| facts.url.clone()).filter(|url| !url.is_empty())
}

/// Returns the number that orders builds and buildsets: it grows with time and, within a
/// millisecond, with the first three hex digits of the id, as in the index. It stays below 2^53,
/// the limit of JavaScript integers, until the year 2109.
pub(crate) fn number(at: Timestamp, id: &str) -> u64 {
    let first = id.get(..3).and_then(|digits| u64::from_str_radix(digits, 16).ok()).unwrap_or(0);
    at.0.saturating_mul(NUMBERS_PER_MS).saturating_add(first * NUMBERS_PER_MS / 0x1000)
}

/// The range of numbers for one millisecond.
pub(crate) const NUMBERS_PER_MS: u64 = 2_048;

/// Converts milliseconds to fractional seconds.
pub(crate) fn seconds(milliseconds: u64) -> f64 {
    milliseconds as f64 / 1_000.0
}

/// Returns how a build ended according to its item; `None` if the item has another build or the job
/// has not ended.
fn end_in(item: &Item, build: &BuildId) -> Option<End> {
    let job = item.jobs.iter().find(|job| job.build.as_ref() == Some(build))?;
    match &job.status {
        JobStatus::Ended { result, detail, started_at, ended_at, log_url } => Some(End {
            result: *result,
            detail: detail.clone(),
            started_at: *started_at,
            ended_at: *ended_at,
            log_url: log_url.clone(),
        }),
        _ => None,
    }
}
