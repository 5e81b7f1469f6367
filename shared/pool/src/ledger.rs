//! The cell while a plan is made: records as they will be, what is to be done, and the bound of one
//! commit.

use crate::limits::{ProviderLimits, Resources};
use crate::node::{InstanceId, Launch, Node, NodeEvent, NodeState};
use crate::plan::{Action, Change, HeadChange, Plan, RECORDS_MAX};
use crate::request::{Request, RequestState, Row};
use crate::snapshot::{Facts, InstanceState, Paused, ProviderHead, Snapshot};
use sluice_model::{NodeId, Timestamp, poke::Poke};
use std::collections::{BTreeMap, BTreeSet};

/// Seconds between two looks at a machine that ends while nobody waits for its place.
const GONE_SECONDS: u64 = 15;

/// The working copy of a cell.
pub(crate) struct Ledger<'a> {
    pub(crate) limits: &'a ProviderLimits,
    pub(crate) facts: &'a Facts,
    pub(crate) now: Timestamp,
    pub(crate) head: ProviderHead,
    pub(crate) requests: BTreeMap<Row, Request>,
    pub(crate) nodes: BTreeMap<NodeId, Node>,
    pub(crate) actions: Vec<Action>,
    pub(crate) pokes: Vec<Poke>,
    pub(crate) reasons: Vec<String>,
    /// Machines at the provider that no record knows; they take quota until they are gone.
    pub(crate) leaked: Resources,
    touched_requests: BTreeSet<Row>,
    touched_nodes: BTreeSet<NodeId>,
    due: Option<Timestamp>,
}

impl<'a> Ledger<'a> {
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
            pokes: Vec::new(),
            reasons: Vec::new(),
            leaked: Resources::default(),
            touched_requests: BTreeSet::new(),
            touched_nodes: BTreeSet::new(),
            due: None,
        }
    }

    /// Returns whether `more` records fit in the commit; when not, the plan is due again at once.
    pub(crate) fn room(&mut self, more: usize) -> bool {
        let fits = self.touched_requests.len() + self.touched_nodes.len() + more <= RECORDS_MAX;
        if !fits {
            self.due_at(self.now);
        }
        fits
    }

    /// Makes the plan due no later than this.
    pub(crate) fn due_at(&mut self, at: Timestamp) {
        self.due = Some(self.due.map_or(at, |due| due.min(at)));
    }

    pub(crate) fn say(&mut self, reason: impl Into<String>) {
        self.reasons.push(reason.into());
    }

    /// Changes a request through `change`.
    pub(crate) fn request(&mut self, row: &Row, change: impl FnOnce(&mut Request)) {
        if let Some(request) = self.requests.get_mut(row) {
            change(request);
            request.updated_at = self.now;
            self.touched_requests.insert(row.clone());
        }
    }

    pub(crate) fn remove_request(&mut self, row: &Row) {
        self.requests.remove(row);
        self.touched_requests.insert(row.clone());
    }

    /// Changes a node's other fields through `change`.
    pub(crate) fn node(&mut self, id: &NodeId, change: impl FnOnce(&mut Node)) {
        if let Some(node) = self.nodes.get_mut(id) {
            change(node);
            node.updated_at = self.now;
            self.touched_nodes.insert(id.clone());
        }
    }

    pub(crate) fn add_node(&mut self, node: Node) {
        self.touched_nodes.insert(node.id.clone());
        self.nodes.insert(node.id.clone(), node);
    }

    pub(crate) fn remove_node(&mut self, id: &NodeId, why: &str) {
        self.nodes.remove(id);
        self.touched_nodes.insert(id.clone());
        self.say(format!("node {id} is gone: {why}"));
    }

    /// Moves a node by `event`; says so when the event makes no sense there, and leaves it.
    pub(crate) fn advance(&mut self, id: &NodeId, event: NodeEvent) {
        let Some(node) = self.nodes.get_mut(id) else {
            return;
        };
        match node.state.clone().next(event) {
            Ok(state) if state == node.state => {}
            Ok(state) => {
                let before = node.state.word();
                node.state = state;
                node.updated_at = self.now;
                let after = node.state.word();
                self.touched_nodes.insert(id.clone());
                if before != after {
                    self.say(format!("node {id} goes from {before} to {after}"));
                }
            }
            Err(error) => self.say(format!("node {id}: {error}")),
        }
    }

    /// Lets a node go: a machine is terminated and its record stays until it is gone; what was
    /// never launched, or is only lent, goes at once.
    pub(crate) fn delete_node(&mut self, id: &NodeId, why: &str) {
        let Some(node) = self.nodes.get(id) else {
            return;
        };
        if node.is_static() || node.state == NodeState::Requested(Launch::Reserved) {
            self.remove_node(id, why);
            return;
        }
        self.node(id, |node| node.allocated_to = None);
        self.say(format!("node {id} is deleted: {why}"));
        self.advance(id, NodeEvent::Deleted { reason: why.to_owned(), at: self.now });
    }

    /// Gives a node back to the pool when nobody has used it; else lets it go (Z1.7).
    pub(crate) fn release_node(&mut self, id: &NodeId, why: &str) {
        let Some(node) = self.nodes.get(id) else {
            return;
        };
        let lent = node.is_static();
        match node.state {
            NodeState::Deleting { .. } | NodeState::Hold { .. } => {}
            NodeState::Requested(Launch::Reserved)
            | NodeState::InUse { .. }
            | NodeState::Used { .. } => self.delete_node(id, why),
            _ if lent => self.delete_node(id, why),
            _ => {
                self.node(id, |node| node.allocated_to = None);
                self.say(format!("node {id} goes back to the pool: {why}"));
            }
        }
    }

    /// Returns what exists or may exist, leaked machines included.
    pub(crate) fn used(&self) -> Resources {
        self.nodes.values().fold(self.leaked, |sum, node| sum.plus(node.used()))
    }

    /// Returns what is kept free for placed requests.
    pub(crate) fn reserved(&self) -> Resources {
        self.nodes.values().fold(Resources::default(), |sum, node| sum.plus(node.reserved()))
    }

    /// Terminates machines that bear our tag and that no record knows (Z1.9).
    pub(crate) fn leaks(&mut self) {
        let Some(listing) = &self.facts.listing else {
            return;
        };
        // The head is written most: it notes a look for leaks, not each look at machines that are
        // starting.
        if listing.taken_at >= self.head.listed_at.plus_seconds(self.limits.pace.leak_seconds) {
            self.head.listed_at = listing.taken_at;
        }
        for fact in &listing.instances {
            let record = fact.node.as_ref().and_then(|node| self.nodes.get(node));
            let known = record.is_some_and(|node| match &node.state {
                NodeState::Deleting { instance, .. } => {
                    instance.as_ref().is_none_or(|id| *id == fact.machine.instance)
                }
                _ => node.machine().is_none_or(|machine| machine.instance == fact.machine.instance),
            });
            if known || fact.state == InstanceState::Terminated {
                continue;
            }
            self.leaked = self.leaked.plus(Resources::instances(1));
            if fact.state != InstanceState::Stopping {
                self.terminate_stray(&fact.machine.instance, "no node record knows this machine");
            }
        }
    }

    /// Terminates a machine that has no record.
    pub(crate) fn terminate_stray(&mut self, instance: &InstanceId, why: &str) {
        self.say(format!("machine {instance} is terminated: {why}"));
        self.actions.push(Action::Terminate {
            node: None,
            instance: instance.clone(),
            reason: why.to_owned(),
        });
        self.due_at(self.now.plus_seconds(30));
    }

    /// Compares with what was read and returns the plan.
    pub(crate) fn finish(mut self, snapshot: &Snapshot) -> Plan {
        self.head.used = self.used();
        self.head.reserved = self.reserved();
        self.dues();
        let mut changes = Vec::new();
        for row in &self.touched_requests {
            let before = snapshot.requests.iter().find(|request| request.row == *row);
            match (before, self.requests.get(row)) {
                (Some(before), Some(after)) if before != after => {
                    changes.push(Change::PutRequest(after.clone()))
                }
                (Some(_), None) => changes.push(Change::RemoveRequest(row.clone())),
                _ => {}
            }
        }
        for id in &self.touched_nodes {
            let before = snapshot.nodes.iter().find(|node| node.id == *id);
            match (before, self.nodes.get(id)) {
                (None, Some(after)) => changes.push(Change::CreateNode(after.clone())),
                (Some(before), Some(after)) if before != after => {
                    changes.push(Change::PutNode(after.clone()))
                }
                (Some(_), None) => changes.push(Change::RemoveNode(id.clone())),
                _ => {}
            }
        }
        let head_changed =
            if self.head == snapshot.head { HeadChange::Same } else { HeadChange::Changed };
        Plan {
            head: self.head,
            head_changed,
            changes,
            actions: self.actions,
            pokes: self.pokes,
            reasons: self.reasons,
            due: self.due,
        }
    }

    /// Makes the plan due for every record that is not final.
    fn dues(&mut self) {
        let (now, pace) = (self.now, &self.limits.pace);
        let soon = now.plus_millis(pace.poll_millis.max(1));
        let is_short =
            self.requests.values().any(|request| request.state == RequestState::Requested);
        let mut dues = Vec::new();
        for node in self.nodes.values() {
            dues.push(match &node.state {
                NodeState::Requested(Launch::Reserved) | NodeState::Building { .. } => soon,
                NodeState::Deleting { .. } if is_short => soon,
                // Nobody waits for its place.
                NodeState::Deleting { .. } => now.plus_seconds(GONE_SECONDS),
                NodeState::Requested(Launch::Intended { retry_at, .. }) => (*retry_at).max(soon),
                NodeState::Testing { next_check_at, .. } => (*next_check_at).max(soon),
                // A poke comes when it is let go before its time; this mends a lost one.
                NodeState::Hold { until, .. } => (*until).min(now.plus_seconds(60)),
                // A poke comes when a build ends; this mends a lost one.
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
            && self.limits.labels.values().any(|label| label.min_ready > 0)
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
