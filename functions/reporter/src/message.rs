//! Mail and MQTT: sends each message at least once, always with the same id.

use crate::Reporter;
use crate::report::connection;
use serde_json::{Map, Value};
use sluice_gate::report::mqtt_payload::{PublishedItem, PublishedMessage, payload};
use sluice_gate::{Item, Report, ReportAction};
use sluice_model::build::{Phase, Run};
use sluice_notify::{Mail, Notification, NotifyError, Publication};
use sluice_records::codec::{decode, with_body};
use sluice_records::report::{Buildset, buildset_key};
use sluice_records::{build, queue};
use sluice_runtime::batch::ReconcileError;
use sluice_runtime::record::{Key, Record};
use sluice_runtime::{CellCommit, CommitOutcome, PortError, cell};

/// The most keys that one read may name.
const KEYS_MAX: usize = 100;

impl Reporter {
    /// Sends the messages of a report and stores the result; those without a clear answer stay in
    /// the report for the retry that is returned. The caller has made sure that the report has only
    /// messages. A failed message does not stop the others. Sent ones are removed, so that only a
    /// crash repeats them. With a retry, refused ones are removed too and only logged, so the final
    /// result does not have them.
    pub(crate) async fn send_messages(
        &self,
        record: Record,
        mut report: Report,
    ) -> Result<(), ReconcileError> {
        let is_published =
            report.actions.iter().any(|action| matches!(action, ReportAction::Publish { .. }));
        let published = if is_published {
            self.read_published_item(&report).await?
        } else {
            PublishedItem::default()
        };
        let (mut left, mut refused, mut unknown) = (Vec::new(), Vec::new(), Vec::new());
        for action in &report.actions {
            match self.send_message(&report, action, &published).await {
                Ok(()) => {}
                Err(NotifyError::Refused { attempted, why }) => {
                    refused.push(format!("failed to {attempted}: {why}"))
                }
                Err(error @ NotifyError::Unknown { .. }) => {
                    left.push(action.clone());
                    unknown.push(error.to_string());
                }
            }
        }
        if unknown.is_empty() {
            return self.finish_report(record, report, &refused).await;
        }
        for why in &refused {
            tracing::warn!(report = report.id, change = %report.change, why, "a message was refused");
        }
        if left.len() < report.actions.len() {
            report.actions = left;
            let (due, body) = (record.due.clone(), with_body(record, &report)?);
            let plan = CellCommit { head: body, others: Vec::new(), wakeups: Vec::new(), due };
            if let CommitOutcome::Stale = cell::commit(&self.ports, plan).await? {
                return Err(ReconcileError::Retry(
                    "another reporter sends the same report".to_owned(),
                ));
            }
        }
        Err(ReconcileError::Retry(unknown.join("; ")))
    }

    /// Sends one message of a report by mail or MQTT; `action` must be a message, any other is
    /// ignored. `published` has the facts for MQTT and may be empty for mail. The error is a
    /// refusal if the connection was removed, an unknown result if this function does not have it,
    /// and otherwise that of the channel.
    async fn send_message(
        &self,
        report: &Report,
        action: &ReportAction,
        published: &PublishedItem,
    ) -> Result<(), NotifyError> {
        let name = connection(action);
        let Some(notifier) = self.notifiers.get(name) else {
            let attempted = format!("use the connection {name}");
            if self.is_connection_removed(name).await {
                return Err(NotifyError::Refused { attempted, why: "it was removed".to_owned() });
            }
            let why = "it is not configured here; store it and redeploy the function".to_owned();
            return Err(NotifyError::Unknown { attempted, why });
        };
        let message = match action {
            ReportAction::Mail { id, from, to, subject, text, .. } => Notification::Mail(Mail {
                id: id.clone(),
                from: from.clone(),
                to: to.clone(),
                subject: subject.clone(),
                text: text.clone(),
            }),
            ReportAction::Publish {
                id, topic, qos, returned, occasion, web_root, text, ..
            } => {
                let message_facts =
                    PublishedMessage { id, occasion, text, web_root, returned: *returned };
                let payload = payload(report, message_facts, published).to_string();
                Notification::Publication(Publication {
                    id: id.clone(),
                    topic: topic.clone(),
                    qos: *qos,
                    payload,
                })
            }
            _ => return Ok(()),
        };
        notifier.notify(&message).await
    }

    /// Reads the facts about the item that messages contain: from its buildset, or from its queue
    /// if it has not left, with the runs of its builds. The data that builds returned is read only
    /// if a message contains it. Facts that are missing are left out; an unreadable record is an
    /// error.
    async fn read_published_item(&self, report: &Report) -> Result<PublishedItem, ReconcileError> {
        let keys = [buildset_key(&report.item), queue::item_key(&report.queue, &report.item)];
        let found = self.ports.records.get(&keys).await?;
        let mut published = match found.as_slice() {
            [Some(left), _] => {
                let left: Buildset = decode(left)?;
                PublishedItem {
                    item: Some(left.item),
                    result: Some(left.result),
                    ..PublishedItem::default()
                }
            }
            [None, Some(queued)] => {
                PublishedItem { item: Some(decode::<Item>(queued)?), ..PublishedItem::default() }
            }
            _ => return Ok(PublishedItem::default()),
        };
        let builds =
            published.item.iter().flat_map(|item| &item.jobs).filter_map(|job| job.build.as_ref());
        let keys: Vec<Key> = builds.map(build::run_key).collect();
        for page in keys.chunks(KEYS_MAX) {
            for record in self.ports.records.get(page).await?.iter().flatten() {
                let run: Run = decode(record)?;
                published.runs.insert(run.build.clone(), run);
            }
        }
        let wants_all = report
            .actions
            .iter()
            .any(|action| matches!(action, ReportAction::Publish { returned: true, .. }));
        if wants_all {
            self.read_returned(&mut published).await?;
        }
        Ok(published)
    }

    /// Adds the data that ended builds returned and that is too large for their runs' records. A
    /// missing object is skipped; a damaged one is an error.
    async fn read_returned(&self, published: &mut PublishedItem) -> Result<(), ReconcileError> {
        for run in published.runs.values() {
            let Phase::Ended(end) = &run.phase else { continue };
            let Some(object) = &end.data_object else { continue };
            if let Some(stored) = self.ports.objects.get(object).await? {
                let all: Map<String, Value> = serde_json::from_slice(&stored.bytes)
                    .map_err(|error| PortError::unknown(format!("read {object}"), error))?;
                published.returned.insert(run.build.clone(), all);
            }
        }
        Ok(())
    }
}
