//! Mail and MQTT: each message is passed on at least once, always under its own id.

use crate::Reporter;
use crate::report::connection;
use serde_json::{Map, Value};
use sluice_gate::report::published::{Known, Saying, payload};
use sluice_gate::{Action, Item, Report};
use sluice_model::build::{Phase, Run};
use sluice_notify::{Mail, Message, NotifyError, Publication};
use sluice_records::codec::{decode, with_body};
use sluice_records::report::{Buildset, buildset_key};
use sluice_records::{build, queue};
use sluice_runtime::batch::LookError;
use sluice_runtime::record::{Key, Record};
use sluice_runtime::{Commit, PortError, Saved, cell};

/// Keys that one call may name.
const KEYS_MAX: usize = 100;

impl Reporter {
    /// Passes the messages of a report on. One that could not be passed on keeps no other one back,
    /// and what was passed on is struck off, so that it is repeated only where somebody died over
    /// it.
    pub(crate) async fn messages(
        &self,
        record: Record,
        mut wanted: Report,
    ) -> Result<(), LookError> {
        let is_published =
            wanted.actions.iter().any(|action| matches!(action, Action::Publish { .. }));
        let known = if is_published { self.known(&wanted).await? } else { Known::default() };
        let (mut left, mut refused, mut unknown) = (Vec::new(), Vec::new(), Vec::new());
        for action in &wanted.actions {
            match self.pass_on(&wanted, action, &known).await {
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
            return self.made(record, wanted, &refused).await;
        }
        for why in &refused {
            tracing::warn!(report = wanted.id, change = %wanted.change, why, "a message was refused");
        }
        if left.len() < wanted.actions.len() {
            wanted.actions = left;
            let (due, body) = (record.due.clone(), with_body(record, &wanted)?);
            let plan = Commit { head: body, others: Vec::new(), pokes: Vec::new(), due };
            if let Saved::Stale = cell::commit(&self.ports, plan).await? {
                return Err(LookError::Again("somebody else makes the same report".to_owned()));
            }
        }
        Err(LookError::Again(unknown.join("; ")))
    }

    async fn pass_on(
        &self,
        report: &Report,
        action: &Action,
        known: &Known,
    ) -> Result<(), NotifyError> {
        let name = connection(action);
        let Some(notifier) = self.notifiers.get(name) else {
            let attempted = format!("use the connection {name}");
            if self.is_gone(name).await {
                return Err(NotifyError::Refused { attempted, why: "it was removed".to_owned() });
            }
            let why =
                "it is not configured here; store it and deploy the function again".to_owned();
            return Err(NotifyError::Unknown { attempted, why });
        };
        let message = match action {
            Action::Mail { id, from, to, subject, text, .. } => Message::Mail(Mail {
                id: id.clone(),
                from: from.clone(),
                to: to.clone(),
                subject: subject.clone(),
                text: text.clone(),
            }),
            Action::Publish { id, topic, qos, returned, occasion, web_root, text, .. } => {
                let saying = Saying { id, occasion, text, web_root, returned: *returned };
                let payload = payload(report, saying, known).to_string();
                Message::Publication(Publication {
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

    /// Reads what a message tells of the item: as it left, or as it is in its queue.
    async fn known(&self, report: &Report) -> Result<Known, LookError> {
        let keys = [buildset_key(&report.item), queue::item_key(&report.queue, &report.item)];
        let found = self.ports.records.get(&keys).await?;
        let mut known = match found.as_slice() {
            [Some(left), _] => {
                let left: Buildset = decode(left)?;
                Known { item: Some(left.item), result: Some(left.result), ..Known::default() }
            }
            [None, Some(queued)] => {
                Known { item: Some(decode::<Item>(queued)?), ..Known::default() }
            }
            _ => return Ok(Known::default()),
        };
        let builds =
            known.item.iter().flat_map(|item| &item.jobs).filter_map(|job| job.build.as_ref());
        let keys: Vec<Key> = builds.map(build::run_key).collect();
        for page in keys.chunks(KEYS_MAX) {
            for record in self.ports.records.get(page).await?.iter().flatten() {
                let run: Run = decode(record)?;
                known.runs.insert(run.build.clone(), run);
            }
        }
        let wants_all = report
            .actions
            .iter()
            .any(|action| matches!(action, Action::Publish { returned: true, .. }));
        if wants_all {
            self.read_returned(&mut known).await?;
        }
        Ok(known)
    }

    /// Reads what builds returned whose records do not hold all of it.
    async fn read_returned(&self, known: &mut Known) -> Result<(), LookError> {
        for run in known.runs.values() {
            let Phase::Ended(end) = &run.phase else { continue };
            let Some(object) = &end.data_object else { continue };
            if let Some(stored) = self.ports.objects.get(object).await? {
                let all: Map<String, Value> = serde_json::from_slice(&stored.bytes)
                    .map_err(|error| PortError::unknown(format!("read {object}"), error))?;
                known.returned.insert(run.build.clone(), all);
            }
        }
        Ok(())
    }
}
