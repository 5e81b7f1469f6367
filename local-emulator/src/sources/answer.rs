//! Evaluates a function's response for each message of its batch.

use super::ordered_group;
use crate::template::{QueueKind, ResponseFormat};
use serde_json::Value;
use sluice_memory::sqs::Delivered;
use std::collections::BTreeSet;

/// A batch after its call: each receipt is in exactly one of the lists.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct BatchResult {
    /// Receipts of successful messages, to be deleted.
    pub delete: Vec<String>,
    /// The function named it as failed: hidden until its time-out, or as long as the function has
    /// set.
    pub failed: Vec<String>,
    /// Receipts of messages after a failed one of their group, which must not be processed before
    /// it.
    pub behind: Vec<String>,
    /// Why the response is invalid, which makes the whole batch fail.
    pub invalid: Option<String>,
}

/// Returns the receipts of a batch, sorted by what becomes of their messages according to the
/// function's response `answer`. Without [`ResponseFormat::BatchItemFailures`] all succeeded. On a
/// FIFO queue, messages behind a failed one of their group do not count as successful. For an
/// invalid response all are in `failed`, and `invalid` says why.
///
/// With [`ResponseFormat::BatchItemFailures`], an empty response, `null`, `{}` and an empty list of
/// failures mean success of all messages. A response that is not JSON, or names a message outside
/// of the batch, makes the whole batch fail. Without it, every response means success.
#[must_use]
pub fn evaluate_response(
    kind: QueueKind,
    format: ResponseFormat,
    batch: &[Delivered],
    answer: &[u8],
) -> BatchResult {
    let failed = match format {
        ResponseFormat::BatchItemFailures => failures(batch, answer),
        ResponseFormat::Ignored => Ok(BTreeSet::new()),
    };
    let mut result = BatchResult::default();
    match failed {
        Ok(failed) => {
            let mut broken_groups = BTreeSet::new();
            for message in batch {
                let group = ordered_group(kind, message);
                let receipt = message.receipt.clone();
                if failed.contains(message.message.id.as_str()) {
                    broken_groups.extend(group);
                    result.failed.push(receipt);
                } else if group.is_some_and(|group| broken_groups.contains(group)) {
                    result.behind.push(receipt);
                } else {
                    result.delete.push(receipt);
                }
            }
        }
        Err(why) => {
            result.failed = batch.iter().map(|message| message.receipt.clone()).collect();
            result.invalid = Some(why);
        }
    }
    result
}

/// Returns the ids of the messages that a response names as failed; empty for an empty response,
/// `null` and an object without a list of failures. An error for a response that is no JSON, has
/// another form, or names a message outside of the batch.
fn failures(batch: &[Delivered], answer: &[u8]) -> Result<BTreeSet<String>, String> {
    if answer.trim_ascii().is_empty() {
        return Ok(BTreeSet::new());
    }
    let answer: Value = serde_json::from_slice(answer)
        .map_err(|error| format!("the answer is no JSON: {error}"))?;
    let items = match answer.get("batchItemFailures") {
        None | Some(Value::Null) if answer.is_null() || answer.is_object() => {
            return Ok(BTreeSet::new());
        }
        Some(Value::Array(items)) => items,
        _ => return Err("the answer has no list batchItemFailures".to_owned()),
    };
    let mut failed = BTreeSet::new();
    for item in items {
        let id = item.get("itemIdentifier").and_then(Value::as_str).unwrap_or_default();
        if !batch.iter().any(|message| message.message.id == id) {
            return Err(format!("the answer names {id:?} as failed, which is not in the batch"));
        }
        failed.insert(id.to_owned());
    }
    Ok(failed)
}
