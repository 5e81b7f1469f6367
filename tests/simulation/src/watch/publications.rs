//! MQTT reports: each result is published at least once, unchanged under one id, and nothing else
//! is published.

use super::{Watch, read};
use crate::scenarios::publications::BROADCAST;
use serde_json::{Value, json};
use sluice_gate::{Report, ReportAction};
use sluice_memory::RecordChange;
use sluice_notify::Publication;
use sluice_records::report::Buildset;
use sluice_runtime::record::Record;
use std::collections::BTreeMap;

/// Requested messages.
#[derive(Default)]
pub(super) struct Publications {
    /// Messages by id.
    expected: BTreeMap<String, ExpectedPublication>,
    /// The result of the item, by report.
    results: BTreeMap<String, String>,
}

/// A requested message.
struct ExpectedPublication {
    /// The id of its report.
    report: String,
    /// The topic.
    topic: String,
    /// The quality of service.
    qos: u8,
    /// The payload fields that are known at the time of the decision.
    holds: Value,
}

impl Watch {
    /// Records the messages of a new report.
    pub(super) fn record_publications(&mut self, report: &Report) -> Result<(), String> {
        for action in &report.actions {
            let ReportAction::Publish { id, topic, qos, occasion, text, .. } = action else {
                continue;
            };
            let holds = json!({
                "message_id": id,
                "action": occasion,
                "message": text,
                "uuid": report.item,
                "tenant": report.queue.tenant,
                "pipeline": report.queue.pipeline,
                "project": report.change.key.project.name(),
                "commit_id": report.change.head,
            });
            let expected = ExpectedPublication {
                report: report.id.clone(),
                topic: topic.clone(),
                qos: *qos,
                holds,
            };
            if self.publications.expected.insert(id.clone(), expected).is_some() {
                return Err(format!("two reports contain the message {id}"));
            }
        }
        Ok(())
    }

    /// Checks that a result in the publishing pipeline has a message in the same transaction.
    pub(super) fn check_result_publication(
        &mut self,
        record: &Record,
        transaction: &[RecordChange],
    ) -> Result<(), String> {
        let Some(set): Option<Buildset> = read(Some(record))? else { return Ok(()) };
        let due = match (set.queue.pipeline.as_str(), set.result.as_str()) {
            (BROADCAST, "SUCCESS") => "success",
            (BROADCAST, "FAILURE") => "failure",
            _ => return Ok(()),
        };
        let says_so = |action: &ReportAction| matches!(action, ReportAction::Publish { occasion, .. } if occasion == due);
        let written = transaction.iter().filter_map(|write| write.after.as_ref());
        for record in written.filter(|record| record.key.partition.starts_with("report#")) {
            let report: Option<Report> = read(Some(record))?;
            let Some(report) = report.filter(|report| report.item == set.id) else { continue };
            if report.actions.iter().any(says_so) {
                self.publications.results.insert(report.id, set.result);
                return Ok(());
            }
        }
        Err(format!("{} left as {} without a message", set.item.candidate.change, set.result))
    }

    /// Returns what is wrong with the published messages.
    pub fn find_publication_errors(&self, published: &[Publication]) -> Vec<String> {
        let mut wrong = Vec::new();
        for (id, expected) in &self.publications.expected {
            let copies: Vec<&Publication> =
                published.iter().filter(|copy| copy.id == *id).collect();
            let report = &expected.report;
            if self.mails.made.contains(report) && copies.is_empty() {
                wrong.push(format!(
                    "the report {report} was sent, but its message {id} was never published"
                ));
            }
            let result = self.publications.results.get(report);
            let others = copies
                .iter()
                .filter_map(|copy| Some((copy, find_difference(copy, expected, result)?)));
            wrong.extend(others.map(|(copy, field)| {
                format!("the message {id} differs from its report: {field} of {}", copy.payload)
            }));
        }
        let strange =
            published.iter().filter(|copy| !self.publications.expected.contains_key(&copy.id));
        wrong.extend(strange.map(|copy| format!("{} was published without a report", copy.id)));
        wrong
    }
}

/// Returns the first part of a message that differs from its report; `None` if it matches.
fn find_difference(
    copy: &Publication,
    expected: &ExpectedPublication,
    result: Option<&String>,
) -> Option<String> {
    if copy.topic != expected.topic || copy.qos != expected.qos {
        return Some(format!("topic {} with qos {}", copy.topic, copy.qos));
    }
    let Ok(payload) = serde_json::from_str::<Value>(&copy.payload) else {
        return Some("the form".to_owned());
    };
    let mut fields = expected.holds.as_object().into_iter().flatten();
    let other = fields.find(|(name, value)| payload.get(name.as_str()) != Some(*value));
    if let Some((name, _)) = other {
        return Some(name.clone());
    }
    let is_other = result
        .is_some_and(|result| payload["buildset"]["result"].as_str() != Some(result.as_str()));
    is_other.then(|| "the result".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// C2: what is held against a message.
    #[test]
    fn a_message_is_held_against_its_report() {
        let expected = ExpectedPublication {
            report: "r".to_owned(),
            topic: "acme/success".to_owned(),
            qos: 2,
            holds: json!({"message_id": "m", "action": "success"}),
        };
        let copy = |topic: &str, payload: Value| Publication {
            id: "m".to_owned(),
            topic: topic.to_owned(),
            qos: 2,
            payload: payload.to_string(),
        };
        let passed = "SUCCESS".to_owned();
        let judged = |copy: &Publication| find_difference(copy, &expected, Some(&passed));
        let payload = json!({"message_id": "m", "action": "success", "more": 1, "buildset": {"result": "SUCCESS"}});
        assert_eq!(judged(&copy("acme/success", payload.clone())), None);
        assert!(judged(&copy("acme/failure", payload)).is_some());
        let failed =
            json!({"message_id": "m", "action": "success", "buildset": {"result": "FAILURE"}});
        assert_eq!(judged(&copy("acme/success", failed)), Some("the result".to_owned()));
        let other =
            json!({"message_id": "m", "action": "failure", "buildset": {"result": "SUCCESS"}});
        assert_eq!(judged(&copy("acme/success", other)), Some("action".to_owned()));
    }
}
