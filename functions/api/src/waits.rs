//! Why jobs wait for nodes: what their providers' cells say of the requests.

use crate::load;
use crate::reply::Refusal;
use sluice_gate::{Item, Job, JobStatus};
use sluice_pool::{Request, RequestState, Row};
use sluice_records::provider::request_key;
use sluice_runtime::Ports;
use sluice_runtime::record::Key;
use std::collections::BTreeMap;

/// Requests that one answer reads; jobs beyond have no reason beside their request's name.
const REQUESTS_MAX: usize = 300;

/// What requests wait for, by their rows.
pub(crate) type Waits = BTreeMap<String, String>;

/// Returns the keys of the open requests of these items.
pub(crate) fn open<'i>(items: impl Iterator<Item = &'i Item>) -> Vec<Key> {
    let is_open = |job: &&Job| matches!(job.status, JobStatus::Ordered { .. });
    let requests = items
        .flat_map(|item| item.jobs.iter().filter(is_open))
        .filter_map(|job| job.request.as_ref());
    requests
        .take(REQUESTS_MAX)
        .map(|request| request_key(&request.provider, &Row(request.row.clone())))
        .collect()
}

/// Reads what requests wait for.
pub(crate) async fn read(ports: &Ports, keys: &[Key]) -> Result<Waits, Refusal> {
    let mut waits = Waits::new();
    for record in load::many(ports, keys).await?.into_iter().flatten() {
        let Some(request) = load::readable::<Request>(&record) else { continue };
        waits.insert(request.row.to_string(), told(&request));
    }
    Ok(waits)
}

fn told(request: &Request) -> String {
    let wanted: Vec<&str> = request.labels.iter().map(|label| label.as_str()).collect();
    let wanted = wanted.join(", ");
    match &request.state {
        RequestState::Requested if request.reason.is_empty() => {
            format!("nodes ({wanted}): its turn")
        }
        RequestState::Requested => format!("nodes ({wanted}): {}", request.reason),
        RequestState::Placed(_) => format!("nodes ({wanted}) to be ready: {}", request.reason),
        RequestState::Fulfilled(_) | RequestState::Claimed(_) | RequestState::Ended(_) => {
            "an executor".to_owned()
        }
        RequestState::Failed { reason } => format!("nodes ({wanted}) that will not come: {reason}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_model::poke::Precedence;
    use sluice_model::{QueueKey, Timestamp};

    /// Z1.6: who waits is told what for.
    #[test]
    fn a_request_tells_what_it_waits_for() {
        let queue = QueueKey { tenant: "t".into(), pipeline: "check".into(), queue: "q".into() };
        let row = Row::new(200, 0, 1);
        let labels = vec!["small".into()];
        let mut request =
            Request::new(row, "b".into(), queue, "unit", Precedence::Normal, labels, Timestamp(0));
        assert_eq!(told(&request), "nodes (small): its turn");
        request.reason = "its placement was given up: no address is free".to_owned();
        assert_eq!(told(&request), "nodes (small): its placement was given up: no address is free");
        request.state = RequestState::Failed { reason: "no such image".to_owned() };
        assert!(told(&request).contains("will not come: no such image"));
    }
}
