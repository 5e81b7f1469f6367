//! `T/buildsets`, `T/buildset/{uuid}` and `T/badge`: the outcomes of items, including those still
//! queued.

use crate::Api;
use crate::build_row::{change_json, number};
use crate::builds;
use crate::filter::{BuildFilter, BuildSubject};
use crate::load::{self, ItemLocation};
use crate::reply::{self, ErrorResponse};
use crate::request::ApiRequest;
use crate::unbuilt;
use bytes::Bytes;
use http::{Response, header};
use serde_json::{Value, json};
use sluice_gate::{Item, Job, JobStatus};
use sluice_model::name::escape;
use sluice_model::{BuildId, ItemId, QueueKey, TenantName, Timestamp};
use sluice_records::report::Buildset;
use sluice_runtime::Ports;
use std::sync::Arc;

/// The maximum number of index entries that one answer searches.
const SEARCHED_MAX: usize = 5_000;
/// The number of index entries that are read at once.
const STEP: usize = 100;

/// The message of an item that has succeeded and still runs its last jobs.
const LAST_JOBS_MESSAGE: &str = "its jobs that run after the report have not ended";

/// A buildset, finished or not.
#[derive(Debug, Clone)]
pub(crate) struct BuildsetRow {
    /// The queue.
    pub(crate) queue: QueueKey,
    /// The item.
    pub(crate) item: Item,
    /// The result, the reason and the time; `None` while the item is queued.
    pub(crate) end: Option<(String, String, Timestamp)>,
    /// When the event that led to the item was received; `None` if it was not read or has expired.
    event_at: Option<Timestamp>,
}

impl From<Buildset> for BuildsetRow {
    fn from(buildset: Buildset) -> Self {
        let end = Some((buildset.result, buildset.why, buildset.ended_at));
        Self { end, ..Self::open(buildset.queue, buildset.item) }
    }
}

impl BuildsetRow {
    /// Returns the row of a queued item. It has no end, except that an item of which only the last
    /// jobs run counts as finished with success.
    fn open(queue: QueueKey, item: Item) -> Self {
        let reporting = item.reporting.as_ref();
        let end = reporting
            .map(|reporting| ("SUCCESS".to_owned(), LAST_JOBS_MESSAGE.to_owned(), reporting.since));
        Self { queue, item, end, event_at: None }
    }

    /// Returns the buildset's result; `None` if it has not ended.
    fn result(&self) -> Option<&str> {
        self.end.as_ref().map(|(result, _, _)| result.as_str())
    }

    /// Returns the number that orders buildsets: newer ones have greater numbers. It counts from
    /// the end, for a queued item from its admission.
    pub(crate) fn number(&self) -> u64 {
        let at = self.end.as_ref().map_or(self.item.admitted_at, |(_, _, at)| *at);
        number(at, self.item.id.as_str())
    }

    /// Returns the properties of a buildset that filters match without another read.
    fn subject(&self) -> BuildSubject<'_> {
        BuildSubject {
            change: &self.item.candidate.change,
            pipeline: &self.queue.pipeline,
            job: None,
            uuid: self.item.id.as_str(),
            item: self.item.id.as_str(),
        }
    }

    /// Returns the buildset as an entry of the answer to `T/buildsets`.
    pub(crate) fn to_json(&self) -> Value {
        let times = self.item.jobs.iter().map(times);
        let first = times.clone().filter_map(|(from, _)| from).min();
        let last = times.filter_map(|(_, to)| to).max();
        let candidate = &self.item.candidate;
        json!({
            "_id": self.number(),
            "uuid": self.item.id,
            "result": self.result(),
            "message": self.end.as_ref().map(|(_, why, _)| why),
            "pipeline": self.queue.pipeline,
            "event_id": self.item.event_id,
            "event_timestamp": self.event_at.map(Timestamp::to_iso),
            "queue_item_uuid": self.item.id,
            "first_build_start_time": first.map(Timestamp::to_iso),
            "last_build_end_time": last.map(Timestamp::to_iso),
            "user_id": null,
            "parameters": null,
            "refs": [change_json(&candidate.change, Some(&candidate.url))],
        })
    }
}

/// Answers `T/buildsets` with the page of a tenant's buildsets that match the parameters: the
/// queued items, newest first, then the finished ones, newest first. An item that only runs its
/// last jobs is among the finished ones. At most about [`SEARCHED_MAX`] of these are searched; the
/// page then ends early. An unknown parameter is 404, an invalid number 400; an unknown tenant is
/// not checked here.
pub(crate) async fn list(
    api: &Api,
    tenant: &TenantName,
    request: &ApiRequest,
) -> Result<Response<Bytes>, ErrorResponse> {
    let mut rows = search(api, tenant, request).await?;
    read_events(&api.ports, &mut rows).await?;
    Ok(reply::json(&Value::Array(rows.iter().map(BuildsetRow::to_json).collect())))
}

/// Answers `T/buildset/{uuid}` with one buildset, finished or queued, and its builds; without the
/// member `builds` if there are none. 404 if the buildset does not exist in the tenant, 503 if its
/// record or queue is unreadable.
pub(crate) async fn get(
    api: &Api,
    tenant: &TenantName,
    uuid: &str,
) -> Result<Response<Bytes>, ErrorResponse> {
    let missing =
        || ErrorResponse::missing(format!("There is no buildset {uuid} in the tenant {tenant}."));
    let id = ItemId::from(uuid);
    let mut rows = [match load::item(&api.ports, tenant, &id).await?.ok_or_else(missing)? {
        ItemLocation::Left(buildset) => BuildsetRow::from(*buildset),
        ItemLocation::Queued(loaded, queue) => {
            let (_, item) = loaded.items.get(&id).ok_or_else(missing)?;
            BuildsetRow::open(queue, Item::clone(item))
        }
    }];
    read_events(&api.ports, &mut rows).await?;
    let [row] = rows;
    let mut body = row.to_json();
    let builds = builds_of(&api.ports, tenant, &row.item).await?;
    if let Some(map) = body.as_object_mut().filter(|_| !builds.is_empty()) {
        map.insert("builds".into(), Value::Array(builds));
    }
    Ok(reply::json(&body))
}

/// Answers `T/badge` with an SVG picture of the newest finished buildset's result: `passing` for a
/// success, otherwise `failing`. An item that only runs its last jobs counts as finished. The
/// parameters `project`, `pipeline` and `branch` select the buildset. 404 if there is none among
/// about the newest [`SEARCHED_MAX`], or for another parameter; an unknown tenant is not checked
/// here.
pub(crate) async fn badge(
    api: &Api,
    tenant: &TenantName,
    request: &ApiRequest,
) -> Result<Response<Bytes>, ErrorResponse> {
    let mut newest = request.clone();
    newest.parameters.extend([("complete".into(), "true".into()), ("limit".into(), "1".into())]);
    let rows = search(api, tenant, &newest).await?;
    let row = rows
        .first()
        .ok_or_else(|| ErrorResponse::missing("There is no finished buildset that matches."))?;
    let (word, colour) = if row.result() == Some("SUCCESS") {
        ("passing", "#2e7d4f")
    } else {
        ("failing", "#b3372f")
    };
    let svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"104\" height=\"20\" role=\"img\" aria-label=\"build: {word}\">\
         <rect width=\"44\" height=\"20\" fill=\"#3b4250\"/><rect x=\"44\" width=\"60\" height=\"20\" fill=\"{colour}\"/>\
         <g fill=\"#fff\" font-family=\"sans-serif\" font-size=\"11\" text-anchor=\"middle\">\
         <text x=\"22\" y=\"14\">build</text><text x=\"74\" y=\"14\">{word}</text></g></svg>"
    );
    let builder = reply::builder()
        .header(header::CONTENT_TYPE, "image/svg+xml")
        .header(header::CACHE_CONTROL, "no-cache");
    Ok(reply::finish(builder, svg.into()))
}

/// Returns the finished buildsets among the newest `limit` index entries of a tenant, newest first.
/// Expired and unreadable ones are left out and not replaced by older ones.
pub(crate) async fn newest(
    ports: &Ports,
    tenant: &TenantName,
    limit: usize,
) -> Result<Vec<BuildsetRow>, ErrorResponse> {
    let keys = ports.records.find(&partition(tenant), None, limit).await?;
    read(ports, tenant, &keys).await
}

/// Returns the page of a tenant's buildsets that the request's parameters select: the queued items,
/// then the finished ones, each newest first. At most about [`SEARCHED_MAX`] finished ones are
/// searched; the page then ends early. The times of the events are not set.
async fn search(
    api: &Api,
    tenant: &TenantName,
    request: &ApiRequest,
) -> Result<Vec<BuildsetRow>, ErrorResponse> {
    let (filter, bounds) = (BuildFilter::read(request)?, request.page()?);
    let fits = |row: &BuildsetRow| {
        filter.matches_number(row.number())
            && filter.matches_subject(&row.subject())
            && filter.matches_result(row.result())
    };
    let row_limit = bounds.skip + bounds.limit;
    let mut rows: Vec<BuildsetRow> =
        queued_items(&api.ports, tenant).await?.into_iter().filter(fits).collect();
    let mut before = filter.before();
    let mut searched = 0;
    while rows.len() < row_limit && searched < SEARCHED_MAX {
        let (found, next) = page(&api.ports, tenant, before.as_deref(), STEP).await?;
        searched += STEP;
        let oldest = found.last().map(BuildsetRow::number);
        rows.extend(found.into_iter().filter(fits));
        if next.is_none() || oldest.is_some_and(|oldest| filter.ends_before_number(oldest)) {
            break;
        }
        before = next;
    }
    Ok(rows.into_iter().skip(bounds.skip).take(bounds.limit).collect())
}

/// Returns the finished buildsets among the next `step` index entries before a position, newest
/// first, and the position for the next page. Items that only run their last jobs are among them.
/// `before` is `None` for the first page. Expired and unreadable buildsets are left out. The
/// position is `None` if there are no more, or if none of the entries is readable.
pub(crate) async fn page(
    ports: &Ports,
    tenant: &TenantName,
    before: Option<&str>,
    step: usize,
) -> Result<(Vec<BuildsetRow>, Option<String>), ErrorResponse> {
    let keys = ports.records.find(&partition(tenant), before, step).await?;
    let found = read(ports, tenant, &keys).await?;
    let oldest =
        found.last().and_then(|row| Some(format!("{:015}#{}", row.end.as_ref()?.2.0, row.item.id)));
    Ok((found, oldest.filter(|_| keys.len() == step)))
}

/// Returns the queued items, newest first, without those that only run their last jobs and those of
/// unreadable queues.
async fn queued_items(
    ports: &Ports,
    tenant: &TenantName,
) -> Result<Vec<BuildsetRow>, ErrorResponse> {
    let read = load::queues(ports, tenant).await?;
    let mut rows: Vec<BuildsetRow> = Vec::new();
    for (queue, loaded) in read.queues {
        // Items that only run their last jobs are listed among the finished buildsets.
        let open = loaded
            .items
            .into_values()
            .map(|(_, item)| item)
            .filter(|item| item.reporting.is_none());
        rows.extend(open.map(|item| BuildsetRow::open(queue.clone(), Arc::unwrap_or_clone(item))));
    }
    rows.sort_by_key(|row| std::cmp::Reverse(row.number()));
    Ok(rows)
}

/// Reads finished buildsets by key, without expired and unreadable ones and those of other tenants.
async fn read(
    ports: &Ports,
    tenant: &TenantName,
    keys: &[sluice_runtime::Key],
) -> Result<Vec<BuildsetRow>, ErrorResponse> {
    let records = load::read_many(ports, keys).await?;
    let found = records.iter().flatten().filter_map(load::readable::<Buildset>);
    Ok(found.filter(|buildset| buildset.queue.tenant == *tenant).map(BuildsetRow::from).collect())
}

/// Sets for each row when its event was received; `None` if the delivery has expired.
async fn read_events(ports: &Ports, rows: &mut [BuildsetRow]) -> Result<(), ErrorResponse> {
    let received = load::received(ports, rows.iter().map(|row| row.item.event_id.as_str())).await?;
    for row in rows {
        row.event_at = received.get(&row.item.event_id).copied();
    }
    Ok(())
}

/// Returns the builds of an item as JSON, in order, without expired and unreadable ones, then its
/// jobs that ended without a build.
async fn builds_of(
    ports: &Ports,
    tenant: &TenantName,
    item: &Item,
) -> Result<Vec<Value>, ErrorResponse> {
    let mut ids: Vec<BuildId> = item.builds.clone();
    let current = item.jobs.iter().filter_map(|job| job.build.clone());
    ids.extend(current.filter(|build| !item.builds.contains(build)).collect::<Vec<_>>());
    let rows = builds::rows(ports, tenant, &ids).await?;
    let mut builds: Vec<Value> = rows.iter().map(|row| Value::Object(row.core())).collect();
    builds.extend(unbuilt::of_item(item));
    Ok(builds)
}

/// Returns when a job started and ended, as far as it did.
fn times(job: &Job) -> (Option<Timestamp>, Option<Timestamp>) {
    match &job.status {
        JobStatus::Running { started_at, .. } | JobStatus::Paused { started_at, .. } => {
            (*started_at, None)
        }
        JobStatus::Ended { started_at, ended_at, .. } => (*started_at, Some(*ended_at)),
        JobStatus::Waiting | JobStatus::Ordered { .. } => (None, None),
    }
}

/// Returns the partition of the index that lists a tenant's buildsets.
fn partition(tenant: &TenantName) -> String {
    format!("buildsets#{}", escape(tenant.as_str()))
}
