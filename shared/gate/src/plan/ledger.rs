//! The decisions of a plan in the making, counted against the size limit of a commit.

use super::decisions::{HOST_QUEUE_RECORDS, QueueAction};
use crate::report::Report;
use sluice_config::pipeline::Manager;
use sluice_model::change::ChangeKey;
use sluice_model::{InboxMessageId, QueueKey, QueueName};
use std::collections::{BTreeMap, BTreeSet};

/// The transaction has no room for a decision. The queue is reconciled again at once, and the next
/// plan decides it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Full;

/// The decisions so far. They form one transaction, which holds [`super::RECORDS_MAX`] records
/// besides the head.
pub(super) struct Ledger {
    /// The manager of the queue, which decides what some actions write.
    manager: Manager,
    /// The actions so far, without those that are derived from the other fields at the end.
    actions: Vec<QueueAction>,
    /// The records of `actions`.
    action_records: usize,
    /// The decisions and their reasons, for the log.
    reasons: Vec<String>,
    /// Inbox messages to delete.
    consumed: BTreeSet<InboxMessageId>,
    /// Enqueue messages that stay in the inbox and are to be marked as in progress.
    in_progress: BTreeSet<InboxMessageId>,
    /// For each hosted change: the host queue to record in the head of its own queue, `None` once
    /// it is released.
    host_queues: BTreeMap<ChangeKey, Option<QueueName>>,
    /// Whether to request a new layout.
    requests_layout: bool,
    /// Whether to wake the tenant.
    wakes_tenant: bool,
}

impl Ledger {
    /// Returns an empty ledger for a queue with this manager.
    pub(super) fn new(manager: Manager) -> Self {
        Self {
            manager,
            actions: Vec::new(),
            action_records: 0,
            reasons: Vec::new(),
            consumed: BTreeSet::new(),
            in_progress: BTreeSet::new(),
            host_queues: BTreeMap::new(),
            requests_layout: false,
            wakes_tenant: false,
        }
    }

    /// Adds an action. The caller has made sure that it fits.
    pub(super) fn push(&mut self, action: QueueAction) {
        self.action_records += action.records(self.manager);
        self.actions.push(action);
    }

    /// Adds several actions. The caller has made sure that they fit.
    pub(super) fn extend(&mut self, actions: impl IntoIterator<Item = QueueAction>) {
        actions.into_iter().for_each(|action| self.push(action));
    }

    /// Adds a report, if there is one.
    pub(super) fn report(&mut self, report: Option<Report>) {
        self.extend(report.map(|report| QueueAction::MakeReport(Box::new(report))));
    }

    /// Adds a wakeup of another queue, which takes no record.
    pub(super) fn wake(&mut self, queue: QueueKey) {
        self.push(QueueAction::WakeQueue(queue));
    }

    /// Adds a decision with its reason for the log. The items' records do not get it.
    pub(super) fn explain(&mut self, reason: impl Into<String>) {
        self.reasons.push(reason.into());
    }

    /// Marks an inbox message as consumed: the plan deletes it. Counts as one record.
    pub(super) fn consume(&mut self, message: &InboxMessageId) {
        self.consumed.insert(message.clone());
    }

    /// Returns whether an inbox message was marked as consumed in this plan.
    pub(super) fn is_consumed(&self, message: &InboxMessageId) -> bool {
        self.consumed.contains(message)
    }

    /// Returns the number of inbox messages marked as consumed so far.
    pub(super) fn consumed_count(&self) -> usize {
        self.consumed.len()
    }

    /// Has the plan mark an enqueue message that stays in the inbox as in progress. Counts as one
    /// record.
    pub(super) fn mark_in_progress(&mut self, message: &InboxMessageId) {
        self.in_progress.insert(message.clone());
    }

    /// Has the plan record the host queue of a hosted change in the head of the change's own queue;
    /// `None` removes the record. A later call for the same change replaces an earlier one.
    pub(super) fn set_host_queue(&mut self, change: &ChangeKey, host: Option<QueueName>) {
        self.host_queues.insert(change.clone(), host);
    }

    /// Withdraws what [`Self::set_host_queue`] recorded for a change in this plan: the stored host
    /// queue stays as it is.
    pub(super) fn keep_host_queue(&mut self, change: &ChangeKey) {
        self.host_queues.remove(change);
    }

    /// Has the plan request one new layout of the tenant if any call says `is_needed`.
    pub(super) fn request_layout_if(&mut self, is_needed: bool) {
        self.requests_layout |= is_needed;
    }

    /// Has the plan wake the tenant once if any call says `is_needed`.
    pub(super) fn wake_tenant_if(&mut self, is_needed: bool) {
        self.wakes_tenant |= is_needed;
    }

    /// Returns how many records the decisions write at most so far, without the head and without
    /// what the planner adds at the end.
    pub(super) fn records(&self) -> usize {
        self.action_records
            + self.consumed.len()
            + self.in_progress.len()
            + self.host_queues.len() * HOST_QUEUE_RECORDS
            + usize::from(self.requests_layout)
    }

    /// Returns the actions and the reasons for the log, both in the order of the decisions. At the
    /// end of the actions come the deleted and marked inbox messages, the host queues, and the
    /// layout request and wakeup of the tenant. A host queue is left out unless `is_new` accepts
    /// the change and its host.
    pub(super) fn into_actions(
        mut self,
        is_new: impl Fn(&ChangeKey, &Option<QueueName>) -> bool,
    ) -> (Vec<QueueAction>, Vec<String>) {
        let messages = std::mem::take(&mut self.consumed);
        self.extend(messages.into_iter().map(QueueAction::DeleteMessage));
        let messages = std::mem::take(&mut self.in_progress);
        self.extend(messages.into_iter().map(QueueAction::MarkInProgress));
        let mut hosts = std::mem::take(&mut self.host_queues);
        hosts.retain(|change, host| is_new(change, host));
        self.extend(
            hosts.into_iter().map(|(change, host)| QueueAction::SetHostQueue { change, host }),
        );
        self.extend(self.requests_layout.then_some(QueueAction::RequestLayout));
        self.extend(self.wakes_tenant.then_some(QueueAction::WakeTenant));
        (self.actions, self.reasons)
    }
}
