//! The working copy of the cell during planning, which also enforces the size limit of a commit.

use crate::decisions::{HeadChange, PoolAction, PoolChange, PoolPlan, RECORDS_MAX};
use crate::limits::{ProviderLimits, Resources};
use crate::node::{InstanceId, LaunchProgress, NodeEvent, NodeState, PoolNode};
use crate::request::{NodeRequest, RequestRow, RequestState};
use crate::snapshot::{InstanceState, Paused, PoolFacts, ProviderHead, Snapshot};
use sluice_model::{NodeId, Timestamp, wakeup::Wakeup};
use std::collections::{BTreeMap, BTreeSet};

/// Seconds between two observations of a terminating machine if no request waits for its quota.
const GONE_SECONDS: u64 = 15;

/// The working copy of a cell during planning.
pub(crate) struct Ledger<'a> {
    /// The provider's limits.
    pub(crate) limits: &'a ProviderLimits,
    /// Facts observed outside the cell.
    pub(crate) facts: &'a PoolFacts,
    /// The time of the plan.
    pub(crate) now: Timestamp,
    /// The head with the changes so far.
    pub(crate) head: ProviderHead,
    /// Requests with the changes so far.
    pub(crate) requests: BTreeMap<RequestRow, NodeRequest>,
    /// Nodes with the changes so far.
    pub(crate) nodes: BTreeMap<NodeId, PoolNode>,
    /// Actions to carry out after the commit.
    pub(crate) actions: Vec<PoolAction>,
    /// Wakeups for the outbox.
    pub(crate) wakeups: Vec<Wakeup>,
    /// Decisions and their reasons.
    pub(crate) reasons: Vec<String>,
    /// Resources of leaked machines, which use quota until they are gone.
    pub(crate) leaked: Resources,
    /// Requests that may have changed.
    touched_requests: BTreeSet<RequestRow>,
    /// Nodes that may have changed.
    touched_nodes: BTreeSet<NodeId>,
    /// Commands that the plan has consumed.
    consumed: BTreeSet<String>,
    /// When to plan again without a wakeup.
    due: Option<Timestamp>,
}

impl<'a> Ledger<'a> {
    /// Returns the working copy of a snapshot, with the quota of its limits in the head, and with
    /// an expired pause by the cloud removed.
    pub(crate) fn new(snapshot: &'a Snapshot, now: Timestamp) -> Self {
        let mut head = snapshot.head.clone();
        head.quota = snapshot.limits.quota;
        if let Paused::ByCloud { until } = head.paused
            && until <= now
        {
            head.paused = Paused::No;
        }
        Self {
            limits: &snapshot.limits,
            facts: &snapshot.facts,
            now,
            head,
            requests: snapshot
                .requests
                .iter()
                .map(|request| (request.row.clone(), request.clone()))
                .collect(),
            nodes: snapshot.nodes.iter().map(|node| (node.id.clone(), node.clone())).collect(),
            actions: Vec::new(),
            wakeups: Vec::new(),
            reasons: Vec::new(),
            leaked: Resources::default(),
            touched_requests: BTreeSet::new(),
            touched_nodes: BTreeSet::new(),
            consumed: BTreeSet::new(),
            due: None,
        }
    }

    /// Returns whether `more` further records fit in the commit, which has at most [`RECORDS_MAX`].
    /// If not, makes the plan due again at once. Reserves nothing: a record counts once it is
    /// changed.
    pub(crate) fn has_room(&mut self, more: usize) -> bool {
        let changed = self.touched_requests.len() + self.touched_nodes.len() + self.consumed.len();
        let fits = changed + more <= RECORDS_MAX;
        if !fits {
            self.due_at(self.now);
        }
        fits
    }

    /// Makes the plan due at this time or, if it already is due earlier, then.
    pub(crate) fn due_at(&mut self, at: Timestamp) {
        self.due = Some(self.due.map_or(at, |due| due.min(at)));
    }

    /// Appends a decision and its reason to the plan, for display.
    pub(crate) fn explain(&mut self, reason: impl Into<String>) {
        self.reasons.push(reason.into());
    }

    /// Has the commit remove a command. Whether the commit has room is not checked.
    pub(crate) fn consume(&mut self, command: &str) {
        self.consumed.insert(command.to_owned());
    }

    /// Changes a request, sets when it was updated, and has the commit write it. Does nothing if
    /// the request does not exist. Whether the commit has room is not checked.
    pub(crate) fn update_request(
        &mut self,
        row: &RequestRow,
        change: impl FnOnce(&mut NodeRequest),
    ) {
        if let Some(request) = self.requests.get_mut(row) {
            change(request);
            request.updated_at = self.now;
            self.touched_requests.insert(row.clone());
        }
    }

    /// Removes a request and has the commit delete it. Its nodes stay as they are, still allocated
    /// to it. Whether the commit has room is not checked.
    pub(crate) fn remove_request(&mut self, row: &RequestRow) {
        self.requests.remove(row);
        self.touched_requests.insert(row.clone());
    }

    /// Changes a node, sets when it was updated (even if `change` changes nothing), and has the
    /// commit write it. Does nothing if the node does not exist. Whether the commit has room is not
    /// checked.
    pub(crate) fn update_node(&mut self, id: &NodeId, change: impl FnOnce(&mut PoolNode)) {
        if let Some(node) = self.nodes.get_mut(id) {
            change(node);
            node.updated_at = self.now;
            self.touched_nodes.insert(id.clone());
        }
    }

    /// Adds a new node and has the commit create it. Whether the commit has room is not checked.
    pub(crate) fn add_node(&mut self, node: PoolNode) {
        self.touched_nodes.insert(node.id.clone());
        self.nodes.insert(node.id.clone(), node);
    }

    /// Removes a node's record at once, without terminating its machine, and records the reason.
    /// Whether the commit has room is not checked.
    pub(crate) fn remove_node(&mut self, id: &NodeId, why: &str) {
        self.nodes.remove(id);
        self.touched_nodes.insert(id.clone());
        self.explain(format!("node {id} is gone: {why}"));
    }

    /// Applies an event to a node, and has the commit write it if its state changes. If the event
    /// is illegal in the node's state, only records a reason. Does nothing if the node does not
    /// exist. Whether the commit has room is not checked.
    pub(crate) fn advance(&mut self, id: &NodeId, event: NodeEvent) {
        let Some(node) = self.nodes.get_mut(id) else {
            return;
        };
        match node.state.clone().next(event) {
            Ok(state) if state == node.state => {}
            Ok(state) => {
                let before = node.state.as_str();
                node.state = state;
                node.updated_at = self.now;
                let after = node.state.as_str();
                self.touched_nodes.insert(id.clone());
                if before != after {
                    self.explain(format!("node {id} changes from {before} to {after}"));
                }
            }
            Err(error) => self.explain(format!("node {id}: {error}")),
        }
    }

    /// Ends a node's allocation and marks the node for deletion; its record stays until its machine
    /// is gone. A static host, and a node whose launch was not called yet, are removed at once.
    /// Records the reason. Does nothing if the node does not exist. Whether the commit has room is
    /// not checked. The terminate action is added by `request_terminations`.
    pub(crate) fn delete_node(&mut self, id: &NodeId, why: &str) {
        let Some(node) = self.nodes.get(id) else {
            return;
        };
        if node.is_static() || node.state == NodeState::Requested(LaunchProgress::Reserved) {
            self.remove_node(id, why);
            return;
        }
        self.update_node(id, |node| node.allocated_to = None);
        self.explain(format!("node {id} is deleted: {why}"));
        self.advance(id, NodeEvent::Deleted { reason: why.to_owned(), at: self.now });
    }

    /// Takes a node from its request (Z1.7). A cloud node on which no build ran, launched or being
    /// launched, returns to the pool. A static host, a node in use or used, and one whose launch
    /// was not called yet are deleted. Held nodes and nodes that are being deleted stay as they
    /// are. Does nothing if the node does not exist. Whether the commit has room is not checked.
    pub(crate) fn release_node(&mut self, id: &NodeId, why: &str) {
        let Some(node) = self.nodes.get(id) else {
            return;
        };
        let lent = node.is_static();
        match node.state {
            NodeState::Deleting { .. } | NodeState::Hold { .. } => {}
            NodeState::Requested(LaunchProgress::Reserved)
            | NodeState::InUse { .. }
            | NodeState::Used { .. } => self.delete_node(id, why),
            _ if lent => self.delete_node(id, why),
            _ => {
                self.update_node(id, |node| node.allocated_to = None);
                self.explain(format!("node {id} returns to the pool: {why}"));
            }
        }
    }

    /// Returns the resources of machines of the cloud that exist or may exist, including leaked
    /// ones and those that are being deleted.
    pub(crate) fn used(&self) -> Resources {
        self.nodes.values().fold(self.leaked, |sum, node| sum.plus(node.used()))
    }

    /// Returns the resources of nodes whose launch was not called yet.
    pub(crate) fn reserved(&self) -> Resources {
        self.nodes.values().fold(Resources::default(), |sum, node| sum.plus(node.reserved()))
    }

    /// Adds actions that terminate leaked machines: listed ones whose tag names no node record, or
    /// one that is known to have another machine (Z1.9). A node whose machine is not known yet
    /// keeps the machine tagged with it. Counts each leaked machine as one used machine; those that
    /// are already stopping are only counted, and terminated ones are ignored. Notes the listing in
    /// the head if a search was due, but searches in any case. Does nothing without a listing.
    pub(crate) fn terminate_leaked(&mut self) {
        let Some(listing) = &self.facts.listing else {
            return;
        };
        // Every plan that launches lists machines. The head is the most contended record, so it
        // only notes searches for leaked machines.
        if listing.taken_at >= self.head.listed_at.plus_seconds(self.limits.pace.leak_seconds) {
            self.head.listed_at = listing.taken_at;
        }
        for fact in &listing.instances {
            let record = fact.node.as_ref().and_then(|node| self.nodes.get(node));
            let is_known = record.is_some_and(|node| match &node.state {
                NodeState::Deleting { instance, .. } => {
                    instance.as_ref().is_none_or(|id| *id == fact.machine.instance)
                }
                _ => node.machine().is_none_or(|machine| machine.instance == fact.machine.instance),
            });
            if is_known || fact.state == InstanceState::Terminated {
                continue;
            }
            self.leaked = self.leaked.plus(Resources::instances(1));
            if fact.state != InstanceState::Stopping {
                let region = fact.region.as_deref();
                let why = "no node record knows this machine";
                self.terminate_stray(&fact.machine.instance, region, why);
            }
        }
    }

    /// Adds the action that terminates a machine of a region without a node record, records the
    /// reason, and makes the plan due again in 30 seconds.
    pub(crate) fn terminate_stray(
        &mut self,
        instance: &InstanceId,
        region: Option<&str>,
        why: &str,
    ) {
        self.explain(format!("machine {instance} is terminated: {why}"));
        self.actions.push(PoolAction::Terminate {
            node: None,
            instance: instance.clone(),
            region: region.map(str::to_owned),
            reason: why.to_owned(),
        });
        self.due_at(self.now.plus_seconds(30));
    }

    /// Returns the plan: a change for each record that differs from the snapshot, the head with
    /// current sums of resources, the actions, wakeups and reasons, and when to plan again.
    /// `snapshot` must be the one that the working copy was made from. A node that was added and
    /// removed again gives no change.
    pub(crate) fn finish(mut self, snapshot: &Snapshot) -> PoolPlan {
        self.head.used = self.used();
        self.head.reserved = self.reserved();
        self.schedule_due_times();
        let mut changes: Vec<PoolChange> =
            self.consumed.iter().cloned().map(PoolChange::RemoveCommand).collect();
        for row in &self.touched_requests {
            let before = snapshot.requests.iter().find(|request| request.row == *row);
            match (before, self.requests.get(row)) {
                (Some(before), Some(after)) if before != after => {
                    changes.push(PoolChange::PutRequest(after.clone()))
                }
                (Some(_), None) => changes.push(PoolChange::RemoveRequest(row.clone())),
                _ => {}
            }
        }
        for id in &self.touched_nodes {
            let before = snapshot.nodes.iter().find(|node| node.id == *id);
            match (before, self.nodes.get(id)) {
                (None, Some(after)) => changes.push(PoolChange::CreateNode(after.clone())),
                (Some(before), Some(after)) if before != after => {
                    changes.push(PoolChange::PutNode(after.clone()))
                }
                (Some(_), None) => changes.push(PoolChange::RemoveNode(id.clone())),
                _ => {}
            }
        }
        let head_changed =
            if self.head == snapshot.head { HeadChange::Same } else { HeadChange::Changed };
        PoolPlan {
            head: self.head,
            head_changed,
            changes,
            actions: self.actions,
            wakeups: self.wakeups,
            reasons: self.reasons,
            due: self.due,
        }
    }

    /// Makes the plan due as soon as a node, a request, the pause, the delay of min-ready launches
    /// or the search for leaked machines needs it; at the latest in a minute if there is a request.
    /// Without any of these, the due time stays as it is.
    fn schedule_due_times(&mut self) {
        let (now, pace) = (self.now, &self.limits.pace);
        let soon = now.plus_millis(pace.poll_millis.max(1));
        let is_waiting =
            self.requests.values().any(|request| request.state == RequestState::Requested);
        let mut dues = Vec::new();
        for node in self.nodes.values() {
            dues.push(match &node.state {
                NodeState::Requested(LaunchProgress::Reserved) | NodeState::Building { .. } => soon,
                NodeState::Deleting { .. } if is_waiting => soon,
                // No request waits for its quota.
                NodeState::Deleting { .. } => now.plus_seconds(GONE_SECONDS),
                NodeState::Requested(LaunchProgress::Intended { retry_at, .. }) => {
                    (*retry_at).max(soon)
                }
                NodeState::Testing { next_check_at, .. } => (*next_check_at).max(soon),
                // A wakeup announces an early release; this recovers from a lost one.
                NodeState::Hold { until, .. } => {
                    let look_at = now.plus_seconds(60);
                    until.map_or(look_at, |until| until.min(look_at))
                }
                // A wakeup announces the end of a build; this recovers from a lost one.
                NodeState::Ready { .. } | NodeState::InUse { .. } | NodeState::Used { .. } => {
                    now.plus_seconds(60)
                }
            });
        }
        if !self.requests.is_empty() {
            dues.push(now.plus_seconds(60));
        }
        dues.extend(
            self.requests.values().map(|request| request.not_before).filter(|at| *at > now),
        );
        if let Paused::ByCloud { until } = self.head.paused {
            dues.push(until);
        }
        if self.head.min_ready_not_before > now
            && self.limits.all_labels().any(|(_, label)| label.min_ready > 0)
        {
            dues.push(self.head.min_ready_not_before);
        }
        if self.limits.has_cloud() {
            dues.push(
                self.head.listed_at.plus_seconds(pace.leak_seconds).max(now.plus_seconds(60)),
            );
        }
        dues.into_iter().for_each(|due| self.due_at(due));
    }
}
