//! The members of SQS requests, read and checked, and what a receive answers with.

use std::collections::{BTreeMap, BTreeSet};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Map, Value, json};
use sluice_memory::sqs::{Attribute, Delivered, NewMessage, Refusal, limits};

use super::super::wire::{Problem, now_ms};
use super::problem::{batch_problem, missing, refused};
use super::{attributes, digest, name_of_arn};

/// The members of a request.
pub(super) struct Request {
    pub members: Map<String, Value>,
}

impl Request {
    /// Returns the name of the queue in the request's URL: its last part, whatever the rest. An ARN
    /// in place of the URL is accepted too. An error without a URL. The queue need not exist.
    pub fn queue_name(&self) -> Result<&str, Problem> {
        let url = self.needed("QueueUrl")?;
        Ok(url.trim_end_matches('/').rsplit('/').next().map(name_of_arn).unwrap_or_default())
    }

    /// Returns a member of the request that is a text; `None` if it is missing or of another type.
    pub fn text(&self, member: &str) -> Option<&str> {
        self.members.get(member).and_then(Value::as_str)
    }

    /// Returns a member of the request that must be a text; an error if it is missing, empty or of
    /// another type.
    pub fn needed(&self, member: &'static str) -> Result<&str, Problem> {
        needed(&self.members, member)
    }

    /// Returns a number in the request; `None` if it is missing or null, an error if it is no
    /// `u32`.
    pub fn number(&self, member: &'static str) -> Result<Option<u32>, Problem> {
        number(&self.members, member)
    }

    /// Returns the texts in a list, without values of other types; empty if it is missing.
    pub fn list(&self, member: &str) -> Vec<String> {
        let values = self.members.get(member).and_then(Value::as_array);
        values.into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
    }

    /// Returns the texts in a map by name, without values of other types; empty if it is missing.
    pub fn texts(&self, member: &str) -> BTreeMap<String, String> {
        let values = self.members.get(member).and_then(Value::as_object);
        values
            .into_iter()
            .flatten()
            .filter_map(|(name, value)| Some((name.clone(), value.as_str()?.to_owned())))
            .collect()
    }

    /// Returns the entries of a batch, without those that are no objects. An error if there are
    /// none or more than 10, or if their ids are missing, invalid or not distinct.
    pub fn entries(&self) -> Result<Vec<&Map<String, Value>>, Problem> {
        let entries = self.members.get("Entries").and_then(Value::as_array);
        let entries: Vec<&Map<String, Value>> =
            entries.into_iter().flatten().filter_map(Value::as_object).collect();
        if entries.is_empty() {
            return Err(batch_problem(
                "EmptyBatchRequest",
                "There should be at least one entry in the request.",
            ));
        }
        if entries.len() > limits::BATCH_MAX {
            let text = format!(
                "Maximum number of entries per request are 10. You have sent {}.",
                entries.len()
            );
            return Err(batch_problem("TooManyEntriesInBatchRequest", text));
        }
        let mut seen = BTreeSet::new();
        for entry in &entries {
            let id = entry.get("Id").and_then(Value::as_str).unwrap_or_default();
            let legal = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
            if id.is_empty() || id.len() > 80 || !id.chars().all(legal) {
                let text = "A batch entry id can only contain alphanumeric characters, hyphens and underscores. It can be at most 80 letters long.";
                return Err(batch_problem("InvalidBatchEntryId", text));
            }
            if !seen.insert(id) {
                return Err(batch_problem(
                    "BatchEntryIdsNotDistinct",
                    format!("Id {id} repeated."),
                ));
            }
        }
        Ok(entries)
    }
}

/// The attributes that a receive call requests.
pub(super) struct ReceiveParameters {
    /// The names of system attributes.
    pub system: Vec<String>,
    /// The names of message attributes.
    pub own: Vec<String>,
}

impl ReceiveParameters {
    /// Returns a received message in SQS's form, with the requested attributes. `sender` is the
    /// account that all messages show as their sender. A name of `queue` that ends in `.fifo` adds
    /// the sequence number.
    pub fn describe(&self, delivered: &Delivered, sender: &str, queue: &str) -> Value {
        let message = &delivered.message;
        let mut answer = json!({
            "MessageId": message.id,
            "ReceiptHandle": delivered.receipt,
            "MD5OfBody": digest::body(&message.body),
            "Body": message.body,
        });
        let mut system = BTreeMap::from([
            ("SenderId", sender.to_owned()),
            ("SentTimestamp", message.sent_ms.to_string()),
            ("ApproximateReceiveCount", message.receives.to_string()),
            (
                "ApproximateFirstReceiveTimestamp",
                message.first_received_ms.unwrap_or_else(now_ms).to_string(),
            ),
        ]);
        if queue.ends_with(".fifo") {
            system.insert("SequenceNumber", sequence(message.sequence));
        }
        let optional = [
            ("MessageGroupId", &message.group),
            ("MessageDeduplicationId", &message.dedup_id),
            ("DeadLetterQueueSourceArn", &message.dead_letter_source),
        ];
        system
            .extend(optional.into_iter().filter_map(|(name, value)| Some((name, value.clone()?))));
        let system = attributes::chosen(system, &self.system);
        if !system.is_empty() {
            answer["Attributes"] = Value::Object(system);
        }
        let own: BTreeMap<String, Attribute> = message
            .attributes
            .iter()
            .filter(|(name, _)| self.wants(name))
            .map(|(n, a)| (n.clone(), a.clone()))
            .collect();
        if let Some(sum) = digest::attributes(&own) {
            answer["MD5OfMessageAttributes"] = json!(sum);
            answer["MessageAttributes"] =
                own.iter().map(|(name, a)| (name.clone(), attribute_json(a))).collect();
        }
        answer
    }

    /// Returns whether the request names a message attribute: exactly, by the start of its name
    /// (`prefix.*`), or by `All`.
    fn wants(&self, name: &str) -> bool {
        self.own.iter().any(|asked| match asked.strip_suffix(".*") {
            Some(prefix) => name.starts_with(prefix),
            None => asked == "All" || asked == name,
        })
    }
}

/// Reads the message to send from a request or an entry of a batch; without a body it is empty. An
/// error for an attribute with invalid Base64, or a delay that is no number. Everything else is
/// checked when it is sent.
pub(super) fn message(entry: &Map<String, Value>) -> Result<NewMessage, Problem> {
    let text = |member: &str| entry.get(member).and_then(Value::as_str).map(str::to_owned);
    let mut own = BTreeMap::new();
    for (name, value) in
        entry.get("MessageAttributes").and_then(Value::as_object).into_iter().flatten()
    {
        own.insert(name.clone(), attribute(value)?);
    }
    Ok(NewMessage {
        body: text("MessageBody").unwrap_or_default(),
        attributes: own,
        group: text("MessageGroupId"),
        dedup_id: text("MessageDeduplicationId"),
        delay_seconds: number(entry, "DelaySeconds")?,
    })
}

/// Reads a message attribute; its value is the text, otherwise the decoded binary, otherwise empty.
/// An error for invalid Base64.
fn attribute(value: &Value) -> Result<Attribute, Problem> {
    let data_type = value.get("DataType").and_then(Value::as_str).unwrap_or_default().to_owned();
    let text =
        value.get("StringValue").and_then(Value::as_str).map(|text| text.as_bytes().to_vec());
    let binary = value.get("BinaryValue").and_then(Value::as_str);
    let binary =
        binary.map(|text| BASE64.decode(text).map_err(|_| missing("BinaryValue"))).transpose()?;
    Ok(Attribute { data_type, value: text.or(binary).unwrap_or_default() })
}

/// Returns a message attribute in SQS's form: a type that begins with `Binary` has its value in
/// Base64, any other has it as text.
pub(super) fn attribute_json(attribute: &Attribute) -> Value {
    if attribute.data_type.starts_with("Binary") {
        json!({"DataType": attribute.data_type, "BinaryValue": BASE64.encode(&attribute.value)})
    } else {
        json!({"DataType": attribute.data_type, "StringValue": String::from_utf8_lossy(&attribute.value)})
    }
}

/// Returns a member that must be a text; an error if it is missing, empty or of another type.
pub(super) fn needed<'a>(
    members: &'a Map<String, Value>,
    member: &'static str,
) -> Result<&'a str, Problem> {
    members
        .get(member)
        .and_then(Value::as_str)
        .filter(|text| !text.is_empty())
        .ok_or_else(|| missing(member))
}

/// Returns a number of an entry; `None` if it is missing or null, an error if it is no `u32`.
pub(super) fn number(
    members: &Map<String, Value>,
    member: &'static str,
) -> Result<Option<u32>, Problem> {
    match members.get(member) {
        None | Some(Value::Null) => Ok(None),
        Some(value) => {
            value.as_u64().and_then(|n| u32::try_from(n).ok()).map(Some).ok_or_else(|| {
                let reason = "Must be a whole number within its limits.".to_owned();
                refused(&Refusal::InvalidParameter {
                    parameter: member,
                    value: value.to_string(),
                    reason,
                })
            })
        }
    }
}

/// Formats a sequence number with 20 digits, so that numbers also sort as text.
pub(super) fn sequence(number: u64) -> String {
    format!("{number:020}")
}
