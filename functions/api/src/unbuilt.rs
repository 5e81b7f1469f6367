//! Jobs that ended without a build: those that were skipped, and those that do nothing (`noop`).
//! Zuul lists them among the builds, without an id. They stand in their items' records alone, so
//! the list has them once their item has left its queue.

use crate::Api;
use crate::build_row::{change_json, number};
use crate::buildsets::{self, Row};
use crate::filter::{Filter, Subject};
use crate::load;
use crate::reply::Refusal;
use serde_json::{Map, Value, json};
use sluice_gate::{Item, Job, JobStatus};
use sluice_model::{TenantName, Timestamp};

/// Entries of the index that one answer looks through.
const SEARCHED_MAX: usize = 2_000;
/// Entries of the index that are read at once.
const STEP: usize = 50;

/// One of them, as far as a list needs it.
#[derive(Debug)]
pub(crate) struct Unbuilt {
    /// The number that orders it among builds: when its item left, and which of its jobs it is.
    pub(crate) number: u64,
    event_id: String,
    shown: Map<String, Value>,
}

/// What a search found.
#[derive(Debug, Default)]
pub(crate) struct Search {
    /// The newest first.
    pub(crate) found: Vec<Unbuilt>,
    /// The number of the last item looked at, when older ones were not.
    pub(crate) searched_until: Option<u64>,
}

/// Returns the newest that a filter takes, at least `wanted` of them where there are as many that
/// are not older than `until`.
pub(crate) async fn newest(
    api: &Api,
    tenant: &TenantName,
    filter: &Filter<'_>,
    wanted: usize,
    until: Option<u64>,
) -> Result<Search, Refusal> {
    let (mut search, mut before, mut searched) = (Search::default(), filter.before(), 0);
    while search.found.len() < wanted {
        let (rows, next) = buildsets::page(&api.ports, tenant, before.as_deref(), STEP).await?;
        search.found.extend(rows.iter().flat_map(|row| of_row(row, filter)));
        searched += STEP;
        let (Some(oldest), Some(next)) = (rows.last().map(Row::number), next) else { break };
        if until.is_some_and(|until| oldest < until) || filter.ends_before_number(oldest) {
            break;
        }
        if searched >= SEARCHED_MAX {
            search.searched_until = Some(oldest);
            break;
        }
        before = Some(next);
    }
    search.found.sort_by_key(|one| std::cmp::Reverse(one.number));
    Ok(search)
}

fn of_row(row: &Row, filter: &Filter<'_>) -> Vec<Unbuilt> {
    let item = &row.item;
    let made = ended(item).enumerate().filter_map(|(place, (job, result))| {
        let subject = Subject {
            change: &item.candidate.change,
            pipeline: &row.queue.pipeline,
            job: Some(&job.summary.name),
            uuid: "",
            item: item.id.as_str(),
        };
        // The jobs of an item follow each other, so that a page can end between them.
        let number = row.number().saturating_add(place as u64);
        let is_taken = filter.takes_number(number)
            && filter.takes_subject(&subject)
            && filter.takes_held(false)
            && filter.takes_end(Some(result), job.summary.voting, None);
        let mut shown = is_taken.then(|| core(item, job, number))?;
        shown.insert("pipeline".into(), json!(row.queue.pipeline));
        shown.insert("event_id".into(), json!(item.event_id));
        shown.insert("queue_item_uuid".into(), json!(item.id));
        shown.insert("buildset".into(), json!({"uuid": item.id}));
        Some(Unbuilt { number, event_id: item.event_id.clone(), shown })
    });
    made.collect()
}

/// Returns them with the shape of `builds`, with the times of their events.
pub(crate) async fn to_json(api: &Api, some: Vec<Unbuilt>) -> Result<Vec<(u64, Value)>, Refusal> {
    let received = load::received(&api.ports, some.iter().map(|one| one.event_id.as_str())).await?;
    let shown = some.into_iter().map(|Unbuilt { number, event_id, mut shown }| {
        let at = received.get(&event_id).copied().map(Timestamp::to_iso);
        shown.insert("event_timestamp".into(), json!(at));
        (number, Value::Object(shown))
    });
    Ok(shown.collect())
}

/// Returns those of an item as parts of its buildset.
pub(crate) fn of_item(item: &Item) -> impl Iterator<Item = Value> {
    ended(item).map(move |(job, _)| {
        let at = ended_at(job).unwrap_or(item.admitted_at);
        Value::Object(core(item, job, number(at, item.id.as_str())))
    })
}

fn ended(item: &Item) -> impl Iterator<Item = (&Job, &'static str)> {
    let without = item.jobs.iter().filter(|job| job.build.is_none());
    without.filter_map(|job| Some((job, job.result()?.as_str())))
}

fn core(item: &Item, job: &Job, number: u64) -> Map<String, Value> {
    let detail = match &job.status {
        JobStatus::Ended { detail, .. } => detail.as_deref(),
        _ => None,
    };
    let shown = json!({
        "_id": number,
        "uuid": null,
        "job_name": job.summary.name,
        "result": job.result().map(|result| result.as_str()),
        "held": false,
        "execute_time": null,
        "start_time": null,
        "end_time": ended_at(job).map(Timestamp::to_iso),
        "duration": null,
        "voting": job.summary.voting,
        "log_url": null,
        "nodeset": null,
        "error_detail": detail,
        "final": true,
        "artifacts": [],
        "provides": [],
        "ref": change_json(&item.candidate.change, Some(&item.candidate.url)),
    });
    match shown {
        Value::Object(map) => map,
        _ => Map::new(),
    }
}

fn ended_at(job: &Job) -> Option<Timestamp> {
    match &job.status {
        JobStatus::Ended { ended_at, .. } => Some(*ended_at),
        _ => None,
    }
}
