//! A request for nodes: one row of the provider's cell, served in the order of its key (Z1.1).

use serde::{Deserialize, Serialize};
use sluice_model::build::BuildResult;
use sluice_model::{BuildId, LabelName, NodeId, QueueKey, Timestamp, poke::Precedence};
use std::fmt;

/// A request for all nodes of one build. It has one writer at a time: the gate creates it, the
/// cell's plan moves it until its nodes are ready, the executor that claims its build has it until
/// the build's end, then the plan removes it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// Its place in the order.
    pub row: Row,
    /// The build that waits for it.
    pub build: BuildId,
    /// The queue to tell when it fails; its tenant is the request's.
    pub queue: QueueKey,
    /// Who asks, for people.
    pub requestor: String,
    /// How urgent the build is.
    pub precedence: Precedence,
    /// A label per node, in the order of the nodeset (Z1.3).
    pub labels: Vec<LabelName>,
    /// Whom its nodes are told to once they are ready.
    #[serde(default, skip_serializing_if = "Told::is_executors")]
    pub told: Told,
    /// What its change takes turns with: changes of one project, or of projects that share a queue,
    /// in an independent pipeline. `None` where the row tells its place already ([`crate::turns`]).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// Where it stands.
    pub state: RequestState,
    /// Why it stands there, for people.
    #[serde(default)]
    pub reason: String,
    /// Placements given up since machines did not boot.
    #[serde(default)]
    pub lost_placements: u32,
    /// How often its build was sent to the executors once more, since none had claimed it.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub sent_again: u32,
    /// Not placed again before this.
    #[serde(default)]
    pub not_before: Timestamp,
    /// How its build ended, once it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<BuildResult>,
    /// When it was made.
    pub created_at: Timestamp,
    /// When its state changed last.
    pub updated_at: Timestamp,
}

fn is_zero(count: &u32) -> bool {
    *count == 0
}

impl Request {
    /// Returns a new request that nobody has looked at.
    pub fn new(
        row: Row,
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
            told: Told::Executors,
            group: None,
            state: RequestState::Requested,
            reason: String::new(),
            lost_placements: 0,
            sent_again: 0,
            not_before: Timestamp(0),
            result: None,
            created_at: now,
            updated_at: now,
        }
    }

    /// Returns the nodes it holds, in the order of its labels.
    pub fn nodes(&self) -> &[NodeId] {
        match &self.state {
            RequestState::Placed(placement)
            | RequestState::Fulfilled(placement)
            | RequestState::Claimed(placement)
            | RequestState::Ended(placement) => &placement.nodes,
            RequestState::Requested | RequestState::Failed { .. } => &[],
        }
    }

    /// Returns the request as a claim of its build leaves it; `None` unless all its nodes are ready
    /// and nobody claimed it.
    pub fn claimed(self, now: Timestamp) -> Option<Self> {
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

    /// Returns the request as the end of its build leaves it; `None` unless it was claimed.
    /// `result` is [`BuildResult::RetryLimit`] for a last attempt that does not count.
    pub fn ended(self, result: BuildResult, now: Timestamp) -> Option<Self> {
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

/// Whom the nodes of a request are told to once they are ready.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Told {
    /// The executors: the build may begin.
    #[default]
    Executors,
    /// The queue, which sends the build when it has what else the build needs (semaphores with
    /// `resources-first`).
    Queue,
}

impl Told {
    fn is_executors(&self) -> bool {
        *self == Self::Executors
    }
}

/// Where a request stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RequestState {
    /// Waiting for its turn, or for quota.
    Requested,
    /// All its nodes are reserved; some are not ready.
    Placed(Placement),
    /// All its nodes are ready; the build was sent to the executors.
    Fulfilled(Placement),
    /// An executor has its build; it wrote this with the build's run.
    Claimed(Placement),
    /// Its build ended, as the executor wrote with the build's end: nobody uses its nodes any more.
    Ended(Placement),
    /// No node will come; the build ends as NODE_FAILURE (Z1.6).
    Failed {
        /// Why, for people.
        reason: String,
    },
}

/// The one provider and zone where all nodes of a request are (Z1.3).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Placement {
    /// The zone of its cloud machines; `None` where the provider has none, or for static hosts
    /// alone.
    pub az: Option<String>,
    /// The number of the placement at this provider; grows.
    pub generation: u64,
    /// A node per label, in their order.
    pub nodes: Vec<NodeId>,
}

/// The key of a request: `<priority, 3 digits>-<relative, 4 digits>-<sequence, 12 digits>`, so that
/// the order of text is the order of service.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Row(pub String);

impl Row {
    /// Returns the row; numbers too large for their place are cut to the largest that fits, so that
    /// they sort last.
    pub fn new(priority: u32, relative: u32, sequence: u64) -> Self {
        Self(format!(
            "{:03}-{:04}-{:012}",
            priority.min(999),
            relative.min(9_999),
            sequence.min(999_999_999_999)
        ))
    }

    /// Returns how far back its change stood when the request was made; 0 for what is no such row.
    pub fn relative(&self) -> u32 {
        self.parts().1
    }

    /// Returns its priority, how far back its change stands, and what is left of it; whatever else
    /// it may be counts as first.
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

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::Row;

    /// Z1.1
    #[test]
    fn the_order_of_rows_as_text_is_the_order_of_their_numbers() {
        let rows = [
            Row::new(5, 0, 123),
            Row::new(100, 0, 99),
            Row::new(100, 0, 100),
            Row::new(100, 2, 1),
            Row::new(500, 0, 0),
        ];
        assert!(rows.is_sorted());
        assert_eq!(rows[0].as_str(), "005-0000-000000000123");
    }
}
