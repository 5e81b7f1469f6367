//! The final state of a site at rest, for assertions and comparisons.

use crate::repos::Tree;
use crate::site::Site;
use sluice_gate::StoredHead;
use sluice_gate::report::{Report, ReportState};
use sluice_model::wakeup::MessageQueue;
use sluice_records::codec::{decode, decode_or_log};
use sluice_records::delivery::DeliveryRecord;
use sluice_records::report::Buildset;
use std::collections::BTreeMap;

/// The final state of a site at rest. Two runs of one scenario are compared by it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ending {
    /// Files of every project's main branch.
    pub branches: BTreeMap<String, Tree>,
    /// Changes in the order they were merged.
    pub merged: Vec<String>,
    /// Per change: its state, its statuses, and the number of Sluice's comments.
    pub changes: BTreeMap<String, (String, Vec<String>, usize)>,
    /// How each buildset ended, by change and pipeline.
    pub buildsets: Vec<String>,
    /// Leftovers that should not exist: unfinished deliveries, messages, records and machines.
    pub left_over: Vec<String>,
}

impl Site {
    /// Returns the final state of these projects and changes. Takes the dead letters out of their
    /// queues.
    pub fn ending(
        &self,
        projects: &[&str],
        changes: &[&sluice_model::change::ChangeKey],
    ) -> Ending {
        let waits =
            |queue: &MessageQueue| !matches!(queue, MessageQueue::Pool | MessageQueue::Wakes);
        let queued = self.world.queued();
        let mut left_over: Vec<String> = queued
            .iter()
            .filter(|(queue, _)| waits(queue))
            .map(|(queue, count)| format!("{count} messages in {queue:?}"))
            .collect();
        let mut buildsets = Vec::new();
        for record in self.world.records() {
            match record.key.partition.split('#').next().unwrap_or_default() {
                "delivery" => {
                    let delivery: DeliveryRecord = decode(&record).unwrap();
                    if !delivery.state.is_final() {
                        left_over.push(format!("the delivery {} did not end", delivery.forge_id));
                    }
                }
                "buildset" => {
                    let set: Buildset = decode(&record).unwrap();
                    buildsets.push(format!(
                        "{} {} {}",
                        set.item.candidate.change.key, set.queue.pipeline, set.result
                    ));
                }
                "queue" if record.key.sort != "head" => {
                    left_over.push(format!("the record {}", record.key))
                }
                // It has no changes: their records are reported above.
                "queue" if record.find.is_some() => {
                    left_over.push(format!("the record {} is still listed as live", record.key));
                }
                // The hosted change is in no queue any more.
                "queue"
                    if decode_or_log::<StoredHead>(&record)
                        .is_some_and(|head| head.hosted_in.is_some()) =>
                {
                    left_over.push(format!("the record {} still has a host queue", record.key));
                }
                "tenant" if record.key.sort.starts_with("queue#") => {
                    left_over.push(format!("the record {}", record.key))
                }
                "report"
                    if decode_or_log::<Report>(&record)
                        .is_some_and(|report| report.state == ReportState::Pending) =>
                {
                    left_over.push(format!("the report {} was not sent", record.key));
                }
                "provider" if record.key.sort.starts_with("request#") => {
                    left_over.push(format!("the record {}", record.key))
                }
                "quarantine" => left_over.push(format!("a message in quarantine: {}", record.body)),
                _ => {}
            }
        }
        left_over.extend(
            self.world
                .take_dead()
                .into_iter()
                .map(|(queue, body)| format!("a dead letter in {queue:?}: {body}")),
        );
        left_over.extend(
            self.world.unsent().iter().map(|key| format!("{key} has an outbox that was not sent")),
        );
        buildsets.sort();
        let shown =
            changes.iter().filter_map(|key| Some(((*key).clone(), self.forge.change(key)?)));
        Ending {
            branches: projects
                .iter()
                .map(|project| ((*project).to_owned(), self.forge.files(project, "main")))
                .collect(),
            merged: self.forge.merges().iter().map(|(key, _)| key.to_string()).collect(),
            changes: shown
                .map(|(key, change)| {
                    let statuses = change
                        .facts
                        .statuses
                        .iter()
                        .map(|status| format!("{} {}", status.context, status.state))
                        .collect();
                    (
                        key.to_string(),
                        (format!("{:?}", change.facts.status), statuses, change.comments.len()),
                    )
                })
                .collect(),
            buildsets,
            left_over,
        }
    }
}
