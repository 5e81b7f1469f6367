//! Jobs that ended without a build: skipped jobs. Zuul lists them among the builds, without an id.
//! They are only in their items' records, so they are listed once the item has left its queue.

use crate::Api;
use crate::build_row::{change_json, number};
use crate::buildsets::{self, BuildsetRow};
use crate::filter::{BuildFilter, BuildSubject};
use crate::load;
use crate::reply::ErrorResponse;
use serde_json::{Map, Value, json};
use sluice_gate::{Item, Job, JobStatus};
use sluice_model::{TenantName, Timestamp};

/// The maximum number of index entries that one answer searches.
const SEARCHED_MAX: usize = 2_000;
/// The number of index entries that are read at once.
const STEP: usize = 50;

/// A job without a build, as shown in a list.
#[derive(Debug)]
pub(crate) struct JobWithoutBuild {
    /// The number that orders it among builds, from the end of its item and the position of the
    /// job.
    pub(crate) number: u64,
    /// The delivery that enqueued the item.
    event_id: String,
    /// The job in the shape of `builds`, without the time of the event.
    shown: Map<String, Value>,
}

/// The result of a search.
#[derive(Debug, Default)]
pub(crate) struct UnbuiltSearch {
    /// The jobs found, newest first.
    pub(crate) found: Vec<JobWithoutBuild>,
    /// The number of the last searched item, if older ones were not searched.
    pub(crate) searched_until: Option<u64>,
}

/// Returns the newest jobs that ended without a build and match a filter, newest first: at least
/// `row_limit`, if there are that many whose number is not below `until`. After [`SEARCHED_MAX`]
/// items the search stops, and the result says where. Only items that have left their queue, or
/// only run their last jobs, are searched.
pub(crate) async fn newest(
    api: &Api,
    tenant: &TenantName,
    filter: &BuildFilter<'_>,
    row_limit: usize,
    until: Option<u64>,
) -> Result<UnbuiltSearch, ErrorResponse> {
    let (mut search, mut before, mut searched) = (UnbuiltSearch::default(), filter.before(), 0);
    while search.found.len() < row_limit {
        let (rows, next) = buildsets::page(&api.ports, tenant, before.as_deref(), STEP).await?;
        search.found.extend(rows.iter().flat_map(|row| of_row(row, filter)));
        searched += STEP;
        let (Some(oldest), Some(next)) = (rows.last().map(BuildsetRow::number), next) else {
            break;
        };
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

/// Returns the jobs of a buildset that ended without a build and match a filter.
fn of_row(row: &BuildsetRow, filter: &BuildFilter<'_>) -> Vec<JobWithoutBuild> {
    let item = &row.item;
    let made = ended(item).enumerate().filter_map(|(place, (job, result))| {
        let subject = BuildSubject {
            change: &item.candidate.change,
            pipeline: &row.queue.pipeline,
            job: Some(&job.summary.name),
            uuid: "",
            item: item.id.as_str(),
        };
        // The jobs of an item have consecutive numbers, so that a page can end between them.
        let number = row.number().saturating_add(place as u64);
        let is_taken = filter.matches_number(number)
            && filter.matches_subject(&subject)
            && filter.matches_held(false)
            && filter.matches_end(Some(result), job.summary.voting, None);
        let mut shown = is_taken.then(|| core(item, job, number))?;
        shown.insert("pipeline".into(), json!(row.queue.pipeline));
        shown.insert("event_id".into(), json!(item.event_id));
        shown.insert("queue_item_uuid".into(), json!(item.id));
        shown.insert("buildset".into(), json!({"uuid": item.id}));
        Some(JobWithoutBuild { number, event_id: item.event_id.clone(), shown })
    });
    made.collect()
}

/// Returns jobs without a build in the shape of `builds`, with the times of their events, each with
/// the number that orders it among builds.
pub(crate) async fn to_json(
    api: &Api,
    jobs: Vec<JobWithoutBuild>,
) -> Result<Vec<(u64, Value)>, ErrorResponse> {
    let received = load::received(&api.ports, jobs.iter().map(|one| one.event_id.as_str())).await?;
    let shown = jobs.into_iter().map(|JobWithoutBuild { number, event_id, mut shown }| {
        let at = received.get(&event_id).copied().map(Timestamp::to_iso);
        shown.insert("event_timestamp".into(), json!(at));
        (number, Value::Object(shown))
    });
    Ok(shown.collect())
}

/// Returns an item's jobs that ended without a build, as parts of its buildset.
pub(crate) fn of_item(item: &Item) -> impl Iterator<Item = Value> {
    ended(item).map(move |(job, _)| {
        let at = ended_at(job).unwrap_or(item.admitted_at);
        Value::Object(core(item, job, number(at, item.id.as_str())))
    })
}

/// Returns the jobs of an item that ended without a build, each with its result.
fn ended(item: &Item) -> impl Iterator<Item = (&Job, &'static str)> {
    let without = item.jobs.iter().filter(|job| job.build.is_none());
    without.filter_map(|job| Some((job, job.result()?.as_str())))
}

/// Returns a job without a build in the shape of a build.
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

/// Returns when a job without a build ended, if that is known.
fn ended_at(job: &Job) -> Option<Timestamp> {
    match &job.status {
        JobStatus::Ended { ended_at, .. } => Some(*ended_at),
        _ => None,
    }
}
