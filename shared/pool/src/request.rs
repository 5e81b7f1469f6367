//! A node request: one row of the provider's cell, served in the order of its key (Z1.1).

use serde::{Deserialize, Serialize};
use sluice_model::build::BuildResult;
use sluice_model::{BuildId, LabelName, NodeId, QueueKey, Timestamp, ZoneName, wakeup::Precedence};
use std::fmt;

/// A request for all nodes of one build. It has one writer at a time. The gate creates it, and the
/// cell's plan changes it until its nodes are ready. The executor that claims the build writes it
/// until the build ends, and then the plan removes it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeRequest {
    /// Its key, which is its position in the service order.
    pub row: RequestRow,
    /// The build that needs the nodes.
    pub build: BuildId,
    /// The queue to wake up when the request fails. Its tenant is the request's tenant.
    pub queue: QueueKey,
    /// The pipeline or function that made the request, for display.
    pub requestor: String,
    /// The precedence of the build's pipeline.
    pub precedence: Precedence,
    /// A label per node, in the order of the nodeset (Z1.3), by its name across tenants (L3.4).
    pub labels: Vec<LabelName>,
    /// The same labels by the names that the job uses, for display; empty if they are the same.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub names: Vec<LabelName>,
    /// The recipient of the message that the nodes are ready.
    #[serde(default, skip_serializing_if = "ReadyRecipient::is_executors")]
    pub ready_recipient: ReadyRecipient,
    /// The zone of executors that reach its nodes, by the configuration of their labels when it was
    /// made; `None` if every executor does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub executor_zone: Option<ZoneName>,
    /// The group within which changes take turns: those of one project, or of projects that share a
    /// queue, in an independent pipeline. `None` if the row already holds the position
    /// ([`crate::service_order`]).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// The state of the request.
    pub state: RequestState,
    /// The reason for the state, for display.
    pub reason: String,
    /// The number of placements given up because machines did not boot.
    pub failed_placements: u32,
    /// The addresses of static hosts whose check failed for it, the last one last. Other hosts are
    /// tried first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failed_hosts: Vec<String>,
    /// How often its build was sent to the executors again because none had claimed it.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub resends: u32,
    /// The request is not placed before this time.
    pub not_before: Timestamp,
    /// The result of its build, once it has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<BuildResult>,
    /// When it was created.
    pub created_at: Timestamp,
    /// When its state changed last.
    pub updated_at: Timestamp,
}

/// Returns whether a count is 0, for leaving it out of a stored record.
fn is_zero(count: &u32) -> bool {
    *count == 0
}

impl NodeRequest {
    /// Returns a new request that is not yet placed, without a group, whose recipient is the
    /// executors. `labels` has a label for each node of the build, by its name across tenants,
    /// which is also the name for display. `queue` is woken up if the
    /// request fails; `requestor` is only for display. That no request has this row is not checked.
    pub fn new(
        row: RequestRow,
        build: BuildId,
        queue: QueueKey,
        requestor: impl Into<String>,
        precedence: Precedence,
        labels: Vec<LabelName>,
        now: Timestamp,
    ) -> Self {
        Self {
            row,
            build,
            queue,
            requestor: requestor.into(),
            precedence,
            labels,
            names: Vec::new(),
            ready_recipient: ReadyRecipient::Executors,
            executor_zone: None,
            group: None,
            state: RequestState::Requested,
            reason: String::new(),
            failed_placements: 0,
            failed_hosts: Vec::new(),
            resends: 0,
            not_before: Timestamp(0),
            result: None,
            created_at: now,
            updated_at: now,
        }
    }

    /// Returns the labels by the names that the job uses, for display.
    pub fn label_names(&self) -> &[LabelName] {
        if self.names.len() == self.labels.len() { &self.names } else { &self.labels }
    }

    /// Returns the nodes it holds, in the order of its labels. Empty before it is placed and after
    /// it failed.
    pub fn nodes(&self) -> &[NodeId] {
        match &self.state {
            RequestState::Placed(placement)
            | RequestState::Fulfilled(placement)
            | RequestState::Claimed(placement)
            | RequestState::Ended(placement) => &placement.nodes,
            RequestState::Requested | RequestState::Failed { .. } => &[],
        }
    }

    /// Returns the request as claimed by an executor; `None` unless it is fulfilled, that is, all
    /// its nodes are ready and no executor has claimed it. Stores nothing.
    pub fn claim(self, now: Timestamp) -> Option<Self> {
        match self.state {
            RequestState::Fulfilled(placement) => Some(Self {
                state: RequestState::Claimed(placement),
                reason: "an executor has its build".to_owned(),
                updated_at: now,
                ..self
            }),
            _ => None,
        }
    }

    /// Returns the request with its build ended with this result; `None` unless it was claimed.
    /// `result` is [`BuildResult::RetryLimit`] for a final attempt that does not count. Stores
    /// nothing.
    pub fn end(self, result: BuildResult, now: Timestamp) -> Option<Self> {
        match self.state {
            RequestState::Claimed(placement) => Some(Self {
                state: RequestState::Ended(placement),
                reason: "its build ended".to_owned(),
                result: Some(result),
                updated_at: now,
                ..self
            }),
            _ => None,
        }
    }
}

/// The recipient of the message that all nodes of a request are ready.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ReadyRecipient {
    /// The executors, which may start the build.
    #[default]
    Executors,
    /// The queue. It sends the build once it holds the semaphores too (`resources-first`).
    Queue,
}

impl ReadyRecipient {
    /// Returns whether the executors receive the build once its nodes are ready.
    fn is_executors(&self) -> bool {
        *self == Self::Executors
    }
}

/// The state of a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RequestState {
    /// It waits to be placed, or for quota.
    Requested,
    /// All its nodes are reserved, but some are not ready.
    Placed(Placement),
    /// All its nodes are ready; the build was sent to the executors.
    Fulfilled(Placement),
    /// An executor has claimed its build. The executor writes this state together with the run.
    Claimed(Placement),
    /// Its build has ended, and its nodes are unused. The executor writes this state together with
    /// the run's end.
    Ended(Placement),
    /// It cannot be satisfied; its build ends as NODE_FAILURE (Z1.6).
    Failed {
        /// The reason, for display.
        reason: String,
    },
}

/// The zone and the nodes of a request. All are at one provider and in one zone (Z1.3).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Placement {
    /// The zone of its cloud machines; `None` if the provider has no zones, or if all nodes are
    /// static hosts.
    pub az: Option<String>,
    /// The number of the placement; each placement at the provider has a greater one.
    pub generation: u64,
    /// The nodes, one per label, in the same order.
    pub nodes: Vec<NodeId>,
}

/// The key of a request: `<priority, 3 digits>-<relative, 4 digits>-<rest>`. The order of the text
/// is the order of service. The rest is the time of the request and a part of its build's id.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RequestRow(pub String);

impl RequestRow {
    /// Returns a row with a sequence number as its rest; the gate's rows have a time and a part of
    /// the build's id instead. Each number that has too many digits becomes the greatest possible
    /// one, so that it sorts last. Equal numbers give equal rows.
    pub fn new(priority: u32, relative: u32, sequence: u64) -> Self {
        Self(format!(
            "{:03}-{:04}-{:012}",
            priority.min(999),
            relative.min(9_999),
            sequence.min(999_999_999_999)
        ))
    }

    /// Returns the change's position in its queue when the request was made, as the row holds it; 0
    /// for a malformed row.
    pub fn relative(&self) -> u32 {
        self.parts().1
    }

    /// Returns the priority, the change's position when the request was made, and the rest of the
    /// text. Malformed numbers are 0 and a missing rest is empty, so they sort first.
    pub(crate) fn parts(&self) -> (u32, u32, &str) {
        let mut parts = self.0.splitn(3, '-');
        let mut number = || parts.next().and_then(|part| part.parse().ok()).unwrap_or_default();
        let (priority, relative) = (number(), number());
        (priority, relative, parts.next().unwrap_or_default())
    }

    /// Returns the row as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for RequestRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::RequestRow;

    /// Z1.1
    #[test]
    fn the_order_of_rows_as_text_is_the_order_of_their_numbers() {
        let rows = [
            RequestRow::new(5, 0, 123),
            RequestRow::new(100, 0, 99),
            RequestRow::new(100, 0, 100),
            RequestRow::new(100, 2, 1),
            RequestRow::new(500, 0, 0),
        ];
        assert!(rows.is_sorted());
        assert_eq!(rows[0].as_str(), "005-0000-000000000123");
    }
}
