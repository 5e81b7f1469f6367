//! What is published to a broker: who passed or failed is, at least once, always of the same under
//! one id, and nothing else.

use super::{Watch, read};
use crate::plays::publications::BROADCAST;
use serde_json::{Value, json};
use sluice_gate::{Action, Report};
use sluice_memory::Written;
use sluice_notify::Publication;
use sluice_records::report::Buildset;
use sluice_runtime::record::Record;
use std::collections::BTreeMap;

/// What is to be published.
#[derive(Default)]
pub(super) struct Publications {
    /// Messages by their ids.
    wanted: BTreeMap<String, Wanted>,
    /// How items left, by the reports that tell of it.
    results: BTreeMap<String, String>,
}

/// A message.
struct Wanted {
    /// The id of the report that has it published.
    report: String,
    topic: String,
    qos: u8,
    /// What it holds, as far as that is known when it is decided.
    holds: Value,
}

impl Watch {
    /// Takes down what a new report has published.
    pub(super) fn is_to_be_published(&mut self, report: &Report) -> Result<(), String> {
        for action in &report.actions {
            let Action::Publish { id, topic, qos, occasion, text, .. } = action else { continue };
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
            let wanted =
                Wanted { report: report.id.clone(), topic: topic.clone(), qos: *qos, holds };
            if self.publications.wanted.insert(id.clone(), wanted).is_some() {
                return Err(format!("two reports have {id} published"));
            }
        }
        Ok(())
    }

    /// Judges how an item left the pipeline that publishes: the same decision has that published.
    pub(super) fn is_published(
        &mut self,
        record: &Record,
        transaction: &[Written],
    ) -> Result<(), String> {
        let Some(set): Option<Buildset> = read(Some(record))? else { return Ok(()) };
        let due = match (set.queue.pipeline.as_str(), set.result.as_str()) {
            (BROADCAST, "SUCCESS") => "success",
            (BROADCAST, "FAILURE") => "failure",
            _ => return Ok(()),
        };
        let says_so =
            |action: &Action| matches!(action, Action::Publish { occasion, .. } if occasion == due);
        let written = transaction.iter().filter_map(|write| write.after.as_ref());
        for record in written.filter(|record| record.key.partition.starts_with("report#")) {
            let report: Option<Report> = read(Some(record))?;
            let Some(report) = report.filter(|report| report.item == set.id) else { continue };
            if report.actions.iter().any(says_so) {
                self.publications.results.insert(report.id, set.result);
                return Ok(());
            }
        }
        Err(format!(
            "{} left as {}, and nothing is to be published of it",
            set.item.candidate.change, set.result
        ))
    }

    /// Returns what is wrong with what was published until the end.
    pub fn wrong_publications(&self, published: &[Publication]) -> Vec<String> {
        let mut wrong = Vec::new();
        for (id, wanted) in &self.publications.wanted {
            let copies: Vec<&Publication> =
                published.iter().filter(|copy| copy.id == *id).collect();
            let report = &wanted.report;
            if self.mails.made.contains(report) && copies.is_empty() {
                wrong.push(format!(
                    "the report {report} was made, and its message {id} was never published"
                ));
            }
            let result = self.publications.results.get(report);
            let others =
                copies.iter().filter_map(|copy| Some((copy, otherwise(copy, wanted, result)?)));
            wrong.extend(others.map(|(copy, what)| {
                format!(
                    "the message {id} was published otherwise than its report says: {what} of {}",
                    copy.payload
                )
            }));
        }
        let strange =
            published.iter().filter(|copy| !self.publications.wanted.contains_key(&copy.id));
        wrong.extend(
            strange
                .map(|copy| format!("{} was published, and no report has it published", copy.id)),
        );
        wrong
    }
}

/// Returns what of a message is not as it has to be, if anything.
fn otherwise(copy: &Publication, wanted: &Wanted, result: Option<&String>) -> Option<String> {
    if copy.topic != wanted.topic || copy.qos != wanted.qos {
        return Some(format!("topic {} with qos {}", copy.topic, copy.qos));
    }
    let Ok(payload) = serde_json::from_str::<Value>(&copy.payload) else {
        return Some("the form".to_owned());
    };
    let mut fields = wanted.holds.as_object().into_iter().flatten();
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
        let wanted = Wanted {
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
        let judged = |copy: &Publication| otherwise(copy, &wanted, Some(&passed));
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
