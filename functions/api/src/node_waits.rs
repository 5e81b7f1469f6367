//! Why jobs wait for nodes, from the reasons in the providers' records of their requests.

use crate::load;
use crate::reply::ErrorResponse;
use sluice_gate::{Item, Job, JobStatus};
use sluice_pool::{NodeRequest, RequestRow, RequestState};
use sluice_records::provider::request_key;
use sluice_runtime::Ports;
use sluice_runtime::record::Key;
use std::collections::BTreeMap;

/// The maximum number of requests that one answer reads. Other jobs are shown without a reason.
const REQUESTS_MAX: usize = 300;

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
    let mut node_waits = NodeWaits::new();
    for record in load::read_many(ports, keys).await?.into_iter().flatten() {
        let Some(request) = load::readable::<NodeRequest>(&record) else { continue };
        node_waits.insert(request.row.to_string(), description(&request));
    }
    Ok(node_waits)
}

/// Describes what a job waits for by its node request: the nodes with the provider's reason, also
/// if the request has failed, or an executor if the request is fulfilled, claimed or ended.
fn description(request: &NodeRequest) -> String {
    let labels: Vec<&str> = request.label_names().iter().map(|label| label.as_str()).collect();
    let labels = labels.join(", ");
    match &request.state {
        RequestState::Requested if request.reason.is_empty() => {
            format!("nodes ({labels}): queued behind earlier requests")
        }
        RequestState::Requested => format!("nodes ({labels}): {}", request.reason),
        RequestState::Placed(_) => format!("nodes ({labels}) to be ready: {}", request.reason),
        RequestState::Fulfilled(_) | RequestState::Claimed(_) | RequestState::Ended(_) => {
            "an executor".to_owned()
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
        assert_eq!(description(&request), "nodes (small): queued behind earlier requests");
        request.reason = "its placement was given up: no address is free".to_owned();
        assert_eq!(
            description(&request),
            "nodes (small): its placement was given up: no address is free"
        );
        request.state = RequestState::Failed { reason: "no such image".to_owned() };
        assert!(description(&request).contains("which will not come: no such image"));
    }
}
