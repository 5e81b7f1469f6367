//! Why jobs wait for nodes, from the reasons in the providers' records of their requests.

use crate::load;
use crate::reply::ErrorResponse;
use sluice_gate::{Item, Job, JobStatus};
use sluice_model::ZoneName;
use sluice_pool::{NodeRequest, RequestRow, RequestState};
use sluice_records::provider::request_key;
use sluice_records::session::{OPEN_SESSIONS, Session, SessionState};
use sluice_runtime::Ports;
use sluice_runtime::record::Key;
use std::collections::{BTreeMap, BTreeSet};

/// The maximum number of requests that one answer reads. Other jobs are shown without a reason.
const REQUESTS_MAX: usize = 300;

/// The most sessions of executors that are read for the zones that they serve.
const SESSIONS_MAX: usize = 500;

/// What each node request waits for, by the request's row.
pub(crate) type NodeWaits = BTreeMap<String, String>;

/// Returns the keys of the node requests that ordered jobs of these items wait for, at most
/// [`REQUESTS_MAX`].
pub(crate) fn open<'i>(items: impl Iterator<Item = &'i Item>) -> Vec<Key> {
    let is_open = |job: &&Job| matches!(job.status, JobStatus::Ordered { .. });
    let requests = items
        .flat_map(|item| item.jobs.iter().filter(is_open))
        .filter_map(|job| job.request.as_ref());
    requests
        .take(REQUESTS_MAX)
        .map(|request| request_key(&request.provider, &RequestRow(request.row.clone())))
        .collect()
}

/// Reads node requests and describes what each waits for, by the request's row. Missing and
/// unreadable requests are left out.
pub(crate) async fn read(ports: &Ports, keys: &[Key]) -> Result<NodeWaits, ErrorResponse> {
    let records = load::read_many(ports, keys).await?;
    let requests: Vec<NodeRequest> =
        records.iter().flatten().filter_map(load::readable::<NodeRequest>).collect();
    let zones = match requests.iter().any(|request| request.executor_zone.is_some()) {
        true => served_zones(ports).await?,
        false => BTreeSet::new(),
    };
    let wait = |request: NodeRequest| (request.row.to_string(), description(&request, &zones));
    Ok(requests.into_iter().map(wait).collect())
}

/// Returns the zones of the executors that take builds now.
async fn served_zones(ports: &Ports) -> Result<BTreeSet<ZoneName>, ErrorResponse> {
    let keys = ports.records.find(OPEN_SESSIONS, None, SESSIONS_MAX).await?;
    let now = ports.clock.now();
    let records = load::read_many(ports, &keys).await?;
    let sessions = records.iter().flatten().filter_map(load::readable::<Session>);
    let running = sessions
        .filter(|session| session.state == SessionState::Running && session.alive_until >= now);
    Ok(running.filter_map(|session| session.zone).collect())
}

/// Describes what a job waits for by its node request: the nodes with the provider's reason, also
/// if the request has failed, or an executor if the request is fulfilled, claimed or ended. That no
/// executor of the nodes' zone takes builds is said in every state; `zones` are those of the
/// executors that do.
fn description(request: &NodeRequest, zones: &BTreeSet<ZoneName>) -> String {
    let wait = wait_of(request);
    match &request.executor_zone {
        Some(zone) if !zones.contains(zone) => format!(
            "{wait}; no executor of the zone {zone} takes builds: start one with \
             `sluice executor --zone {zone}`"
        ),
        _ => wait,
    }
}

/// Describes what a job waits for by its node request alone.
fn wait_of(request: &NodeRequest) -> String {
    let labels: Vec<&str> = request.label_names().iter().map(|label| label.as_str()).collect();
    let labels = labels.join(", ");
    match &request.state {
        RequestState::Requested if request.reason.is_empty() => {
            format!("nodes ({labels}): queued behind earlier requests")
        }
        RequestState::Requested => format!("nodes ({labels}): {}", request.reason),
        RequestState::Placed(_) => format!("nodes ({labels}) to be ready: {}", request.reason),
        RequestState::Fulfilled(_) | RequestState::Claimed(_) | RequestState::Ended(_) => {
            match &request.executor_zone {
                None => "an executor".to_owned(),
                Some(zone) => format!("an executor of the zone {zone}"),
            }
        }
        RequestState::Failed { reason } => {
            format!("nodes ({labels}), which will not come: {reason}")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_model::wakeup::Precedence;
    use sluice_model::{QueueKey, Timestamp};
    use sluice_pool::Placement;

    /// Z1.6: a waiting job is shown with what it waits for.
    #[test]
    fn a_request_is_shown_with_what_it_waits_for() {
        let queue = QueueKey { tenant: "t".into(), pipeline: "check".into(), queue: "q".into() };
        let row = RequestRow::new(200, 0, 1);
        let labels = vec!["small".into()];
        let mut request = NodeRequest::new(
            row,
            "b".into(),
            queue,
            "unit",
            Precedence::Normal,
            labels,
            Timestamp(0),
        );
        let description = |request: &NodeRequest| description(request, &BTreeSet::new());
        assert_eq!(description(&request), "nodes (small): queued behind earlier requests");
        request.reason = "its placement was given up: no address is free".to_owned();
        assert_eq!(
            description(&request),
            "nodes (small): its placement was given up: no address is free"
        );
        request.state = RequestState::Failed { reason: "no such image".to_owned() };
        assert!(description(&request).contains("which will not come: no such image"));
    }

    /// Z1.6, Z7.6: a job whose nodes are in a zone without an executor says what is missing.
    #[test]
    fn a_zone_without_an_executor_is_named_with_what_to_do() {
        let queue = QueueKey { tenant: "t".into(), pipeline: "check".into(), queue: "q".into() };
        let (row, now) = (RequestRow::new(200, 0, 1), Timestamp(0));
        let labels = vec!["small".into()];
        let request =
            NodeRequest::new(row, "b".into(), queue, "unit", Precedence::Normal, labels, now);
        let placement = Placement { az: None, generation: 1, nodes: Vec::new() };
        let request = NodeRequest {
            executor_zone: Some("west".into()),
            state: RequestState::Fulfilled(placement),
            ..request
        };
        let served = BTreeSet::from(["west".into()]);
        assert_eq!(description(&request, &served), "an executor of the zone west");
        let missing = description(&request, &BTreeSet::from(["east".into()]));
        assert!(missing.contains("no executor of the zone west takes builds"), "{missing}");
        assert!(missing.contains("`sluice executor --zone west`"), "{missing}");
    }
}
