//! A build as the API shows it: the gate's order, the executor's run, and the item's word where no
//! executor had one.

use serde_json::{Map, Value, json};
use sluice_gate::{Item, JobStatus};
use sluice_model::build::{BuildResult, Order, Phase, Run};
use sluice_model::change::{ChangeFacts, ChangeRef};
use sluice_model::{BuildId, Timestamp};
use sluice_records::build::Stop;

/// A build with everything that was written of it.
#[derive(Debug, Clone)]
pub(crate) struct BuildRow {
    /// What the gate asked for.
    pub(crate) order: Order,
    /// What an executor did.
    pub(crate) run: Option<Run>,
    /// Why it was to stop.
    pub(crate) stop: Option<Stop>,
    /// Its item; read only where the run does not tell the end, and of refs, whose address it alone
    /// knows.
    pub(crate) item: Option<Item>,
    /// Where people look at its change or ref.
    pub(crate) change_url: Option<String>,
    /// When the event came that led to it, where that is remembered.
    pub(crate) event_at: Option<Timestamp>,
    /// The name of its nodeset, where its frozen job was read.
    pub(crate) nodeset: Option<String>,
    /// What its frozen job provides, where it was read.
    pub(crate) provides: Vec<String>,
    /// Whether an operator's request has its nodes kept, or had.
    pub(crate) held: bool,
}

/// How a build ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct End {
    pub(crate) result: BuildResult,
    pub(crate) detail: Option<String>,
    pub(crate) started_at: Option<Timestamp>,
    pub(crate) ended_at: Timestamp,
    pub(crate) log_url: Option<String>,
}

impl BuildRow {
    /// Returns the row of an order that nothing else is known of.
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

    /// Returns how it ended, if it did: the run's word, then the item's, then that nobody will run
    /// it any more.
    pub(crate) fn end(&self) -> Option<End> {
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
        let stop = self.stop.as_ref().filter(|_| self.run.is_none())?;
        let detail = Some(stop.why.clone());
        Some(End {
            result: BuildResult::Aborted,
            detail,
            started_at: None,
            ended_at: stop.at,
            log_url: None,
        })
    }

    /// Returns when it started: its first playbook, or while it runs the claim.
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

    /// Returns the number that orders builds: newer ones have greater numbers.
    pub(crate) fn number(&self) -> u64 {
        number(self.order.ordered_at, self.order.build.as_str())
    }

    /// Returns the build with the shape of `builds`.
    pub(crate) fn to_json(&self) -> Value {
        let mut build = self.core();
        build.insert("pipeline".into(), json!(self.order.queue.pipeline));
        build.insert("event_id".into(), json!(self.order.event_id));
        build.insert("event_timestamp".into(), json!(self.event_at.map(Timestamp::to_iso)));
        build.insert("queue_item_uuid".into(), json!(self.order.item));
        build.insert("buildset".into(), json!({"uuid": self.order.item}));
        Value::Object(build)
    }

    /// Returns the build as a part of its buildset.
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

    /// Returns the artifacts that the job told of, each with name and address.
    fn artifacts(&self) -> Vec<Value> {
        let data = match &self.run {
            Some(Run { phase: Phase::Ended(ended), .. }) => &ended.data,
            Some(Run { phase: Phase::Paused(pause), .. }) => &pause.data,
            _ => return Vec::new(),
        };
        let told =
            data.get("zuul").and_then(|zuul| zuul.get("artifacts")).and_then(Value::as_array);
        let whole =
            |artifact: &&Value| artifact.get("name").is_some() && artifact.get("url").is_some();
        told.into_iter().flatten().filter(whole).cloned().collect()
    }
}

/// Returns a change with the shape of `ref`.
pub(crate) fn change_json(change: &ChangeRef, url: Option<&str>) -> Value {
    let moved = change.key.moved();
    json!({
        "project": change.key.project.name(),
        "branch": change.on_branch(),
        "change": change.key.number(),
        "patchset": change.key.number().map(|_| &change.patchset),
        "ref": change.git_ref(),
        "oldrev": moved.and_then(|moved| moved.oldrev.as_ref()),
        "newrev": moved.and_then(|moved| moved.newrev.as_ref()),
        "ref_url": url.filter(|url| !url.is_empty()),
    })
}

/// Returns the address of a change.
pub(crate) fn url_of(facts: Option<&ChangeFacts>) -> Option<String> {
    facts.map(|facts| facts.url.clone()).filter(|url| !url.is_empty())
}

/// Returns a number that grows with time and, within a millisecond, with the id: the order of the
/// index. It stays below 2^53, which is as far as a browser counts, until the year 2109.
pub(crate) fn number(at: Timestamp, id: &str) -> u64 {
    let first = id.get(..3).and_then(|digits| u64::from_str_radix(digits, 16).ok()).unwrap_or(0);
    at.0.saturating_mul(NUMBERS_PER_MS).saturating_add(first * NUMBERS_PER_MS / 0x1000)
}

/// Numbers in a millisecond.
pub(crate) const NUMBERS_PER_MS: u64 = 2_048;

/// Returns seconds with their fraction.
pub(crate) fn seconds(milliseconds: u64) -> f64 {
    milliseconds as f64 / 1_000.0
}

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
