//! `T/builds`, `T/build/{uuid}` and `T/build-times`: the filtered list of builds, one build, and
//! durations.

use crate::Api;
use crate::autohold;
use crate::build_row::{BuildRow, change_json, url_of};
use crate::filter::{BuildFilter, BuildSubject};
use crate::load;
use crate::reply::{self, ErrorResponse};
use crate::request::ApiRequest;
use crate::unbuilt;
use bytes::Bytes;
use http::Response;
use serde_json::{Value, json};
use sluice_model::build::{Order, Phase, Run, RunEnd};
use sluice_model::job::JobGraph;
use sluice_model::name::escape;
use sluice_model::{BuildId, TenantName};
use sluice_records::build::{decode_stop, order_key, run_key, stop_key};
use sluice_records::codec::decode;
use sluice_runtime::Ports;
use sluice_runtime::record::{Key, Record};
use std::collections::BTreeSet;

/// The maximum number of index entries that one answer searches.
const SEARCHED_MAX: usize = 5_000;
/// The number of index entries that are read at once.
const STEP: usize = 100;
/// The header with the number of the last searched build, if a search stopped early.
const SEARCHED_UNTIL_HEADER: &str = "x-sluice-searched-until";

/// Answers `T/builds` with the page of a tenant's builds, newest first, that match the parameters.
/// Jobs that ended without a build are among them, once their item has left the queue or only runs
/// its last jobs. If the search stops early, after [`SEARCHED_MAX`] builds or at the limit of
/// [`unbuilt::newest`], a header says where. A `nodeset` matches no build, because lists do not
/// read nodesets. An unknown parameter is 404, an invalid number 400; an unknown tenant is not
/// checked here.
pub(crate) async fn list(
    api: &Api,
    tenant: &TenantName,
    request: &ApiRequest,
) -> Result<Response<Bytes>, ErrorResponse> {
    let (filter, page) = (BuildFilter::read(request)?, request.page()?);
    let row_limit = page.skip + page.limit;
    let mut found = search(api, tenant, &filter, row_limit).await?;
    let mut shown: Vec<(u64, Value)> =
        found.rows.iter().map(|row| (row.number(), row.to_json())).collect();
    if filter.may_be_unbuilt() {
        // Entries older than the last one of a full page are not on the page.
        let last =
            row_limit.checked_sub(1).and_then(|last| found.rows.get(last)).map(BuildRow::number);
        let unbuilt =
            unbuilt::newest(api, tenant, &filter, row_limit, last.or(found.searched_until)).await?;
        shown.extend(unbuilt::to_json(api, unbuilt.found).await?);
        shown.sort_by_key(|(number, _)| std::cmp::Reverse(*number));
        found.searched_until = found.searched_until.max(unbuilt.searched_until);
        shown.retain(|(number, _)| found.searched_until.is_none_or(|until| *number >= until));
    }
    let body = shown.into_iter().skip(page.skip).take(page.limit).map(|(_, build)| build).collect();
    Ok(found.add_search_header(reply::json(&Value::Array(body))))
}

/// Answers `T/build-times` with the start and duration of the builds on the page that have ended,
/// newest first, without jobs that have no build. `limit` and `skip` count all builds that match
/// the other parameters, also unfinished ones. `start_time` and `end_time`, which bound when a
/// build ended, compared as ISO texts, are applied to the page afterwards. So the page may have
/// fewer entries than `limit`. The limit of the search and the errors are as in [`list`].
pub(crate) async fn times(
    api: &Api,
    tenant: &TenantName,
    request: &ApiRequest,
) -> Result<Response<Bytes>, ErrorResponse> {
    let (filter, page) = (BuildFilter::read(request)?, request.page()?);
    let found = search(api, tenant, &filter, page.skip + page.limit).await?;
    let (from, to) = (request.parameter("start_time"), request.parameter("end_time"));
    let rows = found.rows.iter().skip(page.skip).take(page.limit).filter_map(|row| {
        let end = row.end()?;
        let ended_at = end.ended_at.to_iso();
        let is_in_range = from.is_none_or(|from| ended_at.as_str() >= from) && to.is_none_or(|to| ended_at.as_str() <= to);
        let core = row.core();
        let of = |name: &str| core.get(name).cloned().unwrap_or_default();
        let change = &row.order.change;
        is_in_range.then(|| {
            json!({
                "_id": of("_id"), "uuid": of("uuid"), "job_name": of("job_name"), "result": of("result"),
                "start_time": of("start_time"), "end_time": of("end_time"), "duration": of("duration"), "final": of("final"),
                "project": change.key.project.name(), "branch": change.on_branch(),
                "pipeline": row.order.queue.pipeline, "ref": change.github_ref(),
            })
        })
    });
    let body = Value::Array(rows.collect());
    Ok(found.add_search_header(reply::json(&body)))
}

/// Answers `T/build/{uuid}` with one build; 404 if its order does not exist in the tenant, 503 if
/// its order, its run or its job graph is unreadable.
pub(crate) async fn get(
    api: &Api,
    tenant: &TenantName,
    uuid: &str,
) -> Result<Response<Bytes>, ErrorResponse> {
    let mut row = row(&api.ports, tenant, uuid).await?;
    read_frozen_job(api, &mut row).await?;
    mark_held(std::slice::from_mut(&mut row), &autohold::held(&api.ports, tenant).await?);
    let mut build = row.to_json();
    let logins = match row.held {
        true => autohold::logins_of(&api.ports, tenant, &row.order.build).await?,
        false => Vec::new(),
    };
    if let Some(members) = build.as_object_mut().filter(|_| !logins.is_empty()) {
        members.insert("held_nodes".into(), Value::Array(logins));
    }
    let warnings = row.warnings();
    if let Some(members) = build.as_object_mut().filter(|_| !warnings.is_empty()) {
        members.insert("warnings".into(), Value::Array(warnings));
    }
    if let Some(buildset) = build.get_mut("buildset").and_then(Value::as_object_mut) {
        let change = change_json(&row.order.change, row.change_url.as_deref());
        buildset.insert("refs".into(), json!([change]));
    }
    Ok(reply::json(&build))
}

/// Reads one build of a tenant, without `held`, `nodeset` and `provides`; 404 if its order does not
/// exist there, 503 if its order or its run is unreadable.
pub(crate) async fn row(
    ports: &Ports,
    tenant: &TenantName,
    uuid: &str,
) -> Result<BuildRow, ErrorResponse> {
    let missing =
        || ErrorResponse::missing(format!("There is no build {uuid} in the tenant {tenant}."));
    let key = order_key(&BuildId::from(uuid));
    let record =
        load::read_many(ports, &[key]).await?.into_iter().next().flatten().ok_or_else(missing)?;
    let order: Order = decode(&record)?;
    if order.queue.tenant != *tenant {
        return Err(missing());
    }
    let mut rows = complete(ports, vec![order]).await?;
    // The order exists, but the run cannot be read.
    rows.pop().ok_or_else(|| ErrorResponse::Unavailable {
        detail: format!("could not read the run of build {uuid}"),
    })
}

/// Returns the builds with these ids, in the same order, with `held` set, but not `nodeset` and
/// `provides`. Expired builds, those of other tenants and those with an unreadable order or run are
/// left out.
pub(crate) async fn rows(
    ports: &Ports,
    tenant: &TenantName,
    ids: &[BuildId],
) -> Result<Vec<BuildRow>, ErrorResponse> {
    let keys: Vec<Key> = ids.iter().map(order_key).collect();
    let orders = orders(ports, tenant, &keys).await?;
    let mut rows = complete(ports, orders).await?;
    mark_held(&mut rows, &autohold::held(ports, tenant).await?);
    Ok(rows)
}

/// Returns the orders and ends of the builds that an executor ended among the newest `limit` builds
/// of a tenant, newest first. Unreadable ones are left out.
pub(crate) async fn newest_ended(
    ports: &Ports,
    tenant: &TenantName,
    limit: usize,
) -> Result<Vec<(Order, RunEnd)>, ErrorResponse> {
    let keys = ports.records.find(&partition(tenant), None, limit).await?;
    let orders = orders(ports, tenant, &keys).await?;
    let runs = load::read_many(
        ports,
        &orders.iter().map(|order| run_key(&order.build)).collect::<Vec<_>>(),
    )
    .await?;
    let mut found = Vec::new();
    for (order, run) in orders.into_iter().zip(runs) {
        let run = run.as_ref().and_then(load::readable::<Run>);
        if let Some(Run { phase: Phase::Ended(ended), .. }) = run {
            found.push((order, ended));
        }
    }
    Ok(found)
}

/// The result of a search.
struct BuildSearch {
    /// The builds that match, newest first.
    rows: Vec<BuildRow>,
    /// The number of the last searched build, if older ones were not searched.
    searched_until: Option<u64>,
}

impl BuildSearch {
    /// Adds a header with the number of the last searched build, and one that lets pages of other
    /// origins read it, if the search stopped before it found enough.
    fn add_search_header(&self, mut response: Response<Bytes>) -> Response<Bytes> {
        if let Some(number) = self.searched_until {
            response.headers_mut().insert(SEARCHED_UNTIL_HEADER, number.into());
            response.headers_mut().insert(
                "access-control-expose-headers",
                http::HeaderValue::from_static(SEARCHED_UNTIL_HEADER),
            );
        }
        response
    }
}

/// Searches the builds of a tenant, newest first, until at least `row_limit` match, `idx_min` is
/// passed, [`SEARCHED_MAX`] were searched, or there are no more. Only if that maximum ends it, the
/// result says where the search stopped. Unreadable builds are left out; a page of [`STEP`] entries
/// without a readable order ends the search too. The builds have `held`, but not `nodeset` and
/// `provides`.
async fn search(
    api: &Api,
    tenant: &TenantName,
    filter: &BuildFilter<'_>,
    row_limit: usize,
) -> Result<BuildSearch, ErrorResponse> {
    let mut found = BuildSearch { rows: Vec::new(), searched_until: None };
    let held = autohold::held(&api.ports, tenant).await?;
    let mut before = filter.before();
    let mut searched = 0;
    while found.rows.len() < row_limit {
        let keys = api.ports.records.find(&partition(tenant), before.as_deref(), STEP).await?;
        let is_last = keys.len() < STEP;
        let orders = orders(&api.ports, tenant, &keys).await?;
        searched += keys.len();
        let oldest = orders.last().cloned();
        let fits = |order: &Order| {
            filter.matches_held(held.contains(&order.build))
                && filter.matches_subject(&subject(order))
        };
        let fitting = orders.into_iter().filter(fits).collect();
        let mut rows = complete(&api.ports, fitting).await?;
        mark_held(&mut rows, &held);
        found.rows.extend(
            rows.into_iter()
                .filter(|row| filter.matches_number(row.number()) && filter.matches_build(row)),
        );
        let Some(oldest) = oldest.filter(|_| !is_last) else {
            break;
        };
        before = Some(format!("{:015}#{}", oldest.ordered_at.0, oldest.build));
        if filter.ends_before(oldest.ordered_at) {
            break;
        }
        if searched >= SEARCHED_MAX {
            found.searched_until = Some(BuildRow::new(oldest).number());
            break;
        }
    }
    Ok(found)
}

/// Sets whether each build is among those whose nodes are held.
fn mark_held(rows: &mut [BuildRow], held: &BTreeSet<BuildId>) {
    for row in rows {
        row.held = held.contains(&row.order.build);
    }
}

/// Returns the properties of a build that filters match without another read.
fn subject(order: &Order) -> BuildSubject<'_> {
    BuildSubject {
        change: &order.change,
        pipeline: &order.queue.pipeline,
        job: Some(&order.job),
        uuid: order.build.as_str(),
        item: order.item.as_str(),
    }
}

/// Returns the partition of the index that lists a tenant's builds.
fn partition(tenant: &TenantName) -> String {
    format!("builds#{}", escape(tenant.as_str()))
}

/// Reads the orders under these keys, in their order, without expired and unreadable ones and those
/// of other tenants.
async fn orders(
    ports: &Ports,
    tenant: &TenantName,
    keys: &[Key],
) -> Result<Vec<Order>, ErrorResponse> {
    let records = load::read_many(ports, keys).await?;
    let orders = records.iter().flatten().filter_map(load::readable::<Order>);
    Ok(orders.filter(|order| order.queue.tenant == *tenant).collect())
}

/// Reads the other records of builds, in the order of `orders`, and leaves out a build with an
/// unreadable run: it would look as if no executor had run it. `held`, `nodeset` and `provides`
/// stay unset, and `item` for a build of a change whose run has ended or that needed none.
async fn complete(ports: &Ports, orders: Vec<Order>) -> Result<Vec<BuildRow>, ErrorResponse> {
    let keys = orders.iter().flat_map(|order| [run_key(&order.build), stop_key(&order.build)]);
    let records = load::read_many(ports, &keys.collect::<Vec<_>>()).await?;
    let read = orders.into_iter().zip(records.chunks(2));
    let mut rows: Vec<BuildRow> = read.filter_map(|(order, pair)| with_run(order, pair)).collect();
    // A change's address is in its facts, a ref's in its item.
    let needs_item = |row: &&BuildRow| {
        let has_ended =
            row.order.end.is_some() || matches!(row.run, Some(Run { phase: Phase::Ended(_), .. }));
        !has_ended || row.order.change.key.ref_move().is_some()
    };
    let item_keys: BTreeSet<_> = rows
        .iter()
        .filter(needs_item)
        .map(|row| (row.order.queue.clone(), row.order.item.clone()))
        .collect();
    let items = load::items(ports, &item_keys).await?;
    let changes: BTreeSet<_> = rows.iter().map(|row| row.order.change.key.clone()).collect();
    let facts = load::facts(ports, &changes).await?;
    let received =
        load::received(ports, rows.iter().map(|row| row.order.event_id.as_str())).await?;
    for row in &mut rows {
        row.item = items.get(&row.order.item).cloned();
        let item_url = row.item.as_ref().map(|item| item.candidate.url.clone());
        row.change_url = url_of(facts.get(&row.order.change.key)).or(item_url);
        row.event_at = received.get(&row.order.event_id).copied();
    }
    Ok(rows)
}

/// Returns a build with its run and its stop request, if they exist; `pair` has the records of the
/// two, in this order. `None` if the run cannot be read.
fn with_run(order: Order, pair: &[Option<Record>]) -> Option<BuildRow> {
    let (run, stop) = (pair.first().and_then(Option::as_ref), pair.get(1).and_then(Option::as_ref));
    let mut row = BuildRow::new(order);
    if let Some(record) = run {
        row.run = Some(load::readable(record)?);
    }
    row.stop = stop.map(decode_stop);
    Some(row)
}

/// Reads a build's frozen job and sets its nodeset and `provides`. Does nothing if the job graph
/// has expired or lacks the job; an unreadable graph is an error.
async fn read_frozen_job(api: &Api, row: &mut BuildRow) -> Result<(), ErrorResponse> {
    let Some(object) = api.ports.objects.get(&row.order.graph).await? else {
        return Ok(());
    };
    let graph: JobGraph =
        serde_json::from_slice(&object.bytes).map_err(|error| ErrorResponse::Unavailable {
            detail: format!("could not read the job graph {}: {error}", row.order.graph),
        })?;
    if let Some(job) = graph.jobs.into_iter().find(|job| job.name == row.order.job) {
        row.nodeset = job
            .nodesets
            .get(row.order.nodeset as usize)
            .map(|set| set.name.clone())
            .filter(|name| !name.is_empty());
        row.provides = job.provides;
    }
    Ok(())
}
