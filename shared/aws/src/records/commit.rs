//! Conditional writes: one as a plain write, several as a transaction under the write id as its
//! token.

use super::DynamoRecords;
use super::item::{self, Item, encode, key_item, number};
use crate::endpoint::DataService;
use crate::failure::failed;
use aws_sdk_dynamodb::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_dynamodb::operation::put_item::PutItemError;
use aws_sdk_dynamodb::operation::transact_write_items::TransactWriteItemsError;
use aws_sdk_dynamodb::types::{
    AttributeValue, CancellationReason, ConditionCheck, Delete, Put,
    ReturnValuesOnConditionCheckFailure, TransactWriteItem,
};
use sha2::{Digest, Sha256};
use sluice_runtime::PortError;
use sluice_runtime::record::{
    BODY_BYTES_MAX, Expect, Key, Record, TRANSACTION_RECORDS_MAX, TransactionOutcome, Write,
};
use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

/// Characters of a transaction's token.
const TOKEN_CHARS_MAX: usize = 36;
/// The pauses before retries of a write that conflicts with another one.
const CONFLICT_PAUSES_MILLISECONDS: [u64; 2] = [30, 120];
/// Cancellation reasons of DynamoDB after which a retry may succeed.
const BUSY: [&str; 3] = ["ThrottlingError", "TransactionConflict", "ProvisionedThroughputExceeded"];

impl DynamoRecords {
    /// Writes all records or none; does nothing without writes. A failed condition is an outcome
    /// and no error. After a conflict with a concurrent writer, and when throttled, tries again,
    /// three times in all: nothing was written then, and a caller that gives up would delay its
    /// whole message group. A commit that [`check_limits`] refuses is an error at once.
    pub(super) async fn write(
        &self,
        writes: Vec<Write>,
        write_id: &str,
    ) -> Result<TransactionOutcome, PortError> {
        check_limits(&writes)?;
        for pause in CONFLICT_PAUSES_MILLISECONDS {
            match self.write_once(writes.clone(), write_id).await {
                Err(error) if error.throttled => {
                    tokio::time::sleep(Duration::from_millis(pause)).await;
                }
                ended => return ended,
            }
        }
        self.write_once(writes, write_id).await
    }

    /// Writes records without a retry of its own: one put or delete as a plain request, everything
    /// else as a transaction. Without writes, does nothing and counts as written.
    async fn write_once(
        &self,
        mut writes: Vec<Write>,
        write_id: &str,
    ) -> Result<TransactionOutcome, PortError> {
        match writes.pop() {
            None => Ok(TransactionOutcome::Written),
            Some(Write::Put { record, expect }) if writes.is_empty() => {
                self.put(record, &expect, write_id).await
            }
            Some(Write::Delete { key, expect }) if writes.is_empty() => {
                self.delete(key, &expect).await
            }
            // Also a check alone: only transactions have those.
            Some(last) => {
                writes.push(last);
                self.transact(writes, write_id).await
            }
        }
    }

    /// Stores one record on a condition, in place of the stored one. If the condition fails because
    /// an earlier attempt of this write succeeded, the record counts as written; that is recognised
    /// only if `write_id` is not empty and is that of `record`.
    async fn put(
        &self,
        record: Record,
        expect: &Expect,
        write_id: &str,
    ) -> Result<TransactionOutcome, PortError> {
        let key = record.key.clone();
        let condition = Condition::of(expect);
        // Only a record that carries the id of this very write can be recognised as written by it.
        let recognisable = !write_id.is_empty() && record.write_id == write_id;
        let put = self
            .client
            .put_item()
            .table_name(&self.table)
            .set_item(Some(encode(record)?))
            .set_condition_expression(condition.expression)
            .set_expression_attribute_names(condition.names)
            .set_expression_attribute_values(condition.values)
            .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld);
        let Err(error) = put.send().await else {
            return Ok(TransactionOutcome::Written);
        };
        match error.as_service_error() {
            Some(PutItemError::ConditionalCheckFailedException(lost)) => {
                // The SDK's retry meets its own first attempt when only the answer to that was
                // lost.
                if recognisable && lost.item().is_some_and(|found| is_written_by(found, write_id)) {
                    Ok(TransactionOutcome::Written)
                } else {
                    Ok(TransactionOutcome::ConditionFailed(vec![key]))
                }
            }
            _ => Err(failed(DataService::DynamoDb, format!("write {key}"), error)),
        }
    }

    /// Deletes one record on a condition. Without a record it counts as written, if the condition
    /// allows that. A failed condition is an outcome and no error. If the condition requires the
    /// record, a repetition after a success is a failed condition.
    async fn delete(&self, key: Key, expect: &Expect) -> Result<TransactionOutcome, PortError> {
        let condition = Condition::of(expect);
        let delete = self
            .client
            .delete_item()
            .table_name(&self.table)
            .set_key(Some(key_item(&key)))
            .set_condition_expression(condition.expression)
            .set_expression_attribute_names(condition.names)
            .set_expression_attribute_values(condition.values);
        match delete.send().await {
            Ok(_) => Ok(TransactionOutcome::Written),
            Err(error)
                if error
                    .as_service_error()
                    .is_some_and(|service| service.is_conditional_check_failed_exception()) =>
            {
                Ok(TransactionOutcome::ConditionFailed(vec![key]))
            }
            Err(error) => Err(failed(DataService::DynamoDb, format!("delete {key}"), error)),
        }
    }

    /// Writes several records in one transaction; does nothing without writes. A repetition with
    /// the same writes and `write_id` within minutes changes nothing more and counts as written,
    /// unless the id is empty. Failed conditions are an outcome that names their records.
    async fn transact(
        &self,
        writes: Vec<Write>,
        write_id: &str,
    ) -> Result<TransactionOutcome, PortError> {
        let keys: Vec<Key> = writes.iter().map(|write| write.key().clone()).collect();
        let attempt = match keys.as_slice() {
            [first, rest @ ..] => format!("write {first} and {} more records", rest.len()),
            [] => return Ok(TransactionOutcome::Written),
        };
        let items = writes
            .into_iter()
            .map(|write| self.transaction_item(write))
            .collect::<Result<Vec<_>, _>>()?;
        let answer = self
            .client
            .transact_write_items()
            .set_transact_items(Some(items))
            .set_client_request_token(token(write_id))
            .send()
            .await;
        match answer {
            Ok(_) => Ok(TransactionOutcome::Written),
            Err(error) => cancelled(attempt, keys, error),
        }
    }

    /// Returns a write of a transaction, with its condition, in the SDK's form.
    fn transaction_item(&self, write: Write) -> Result<TransactWriteItem, PortError> {
        let attempt = format!("write {}", write.key());
        let item = TransactWriteItem::builder();
        let built = match write {
            Write::Put { record, expect } => {
                let condition = Condition::of(&expect);
                Put::builder()
                    .table_name(&self.table)
                    .set_item(Some(encode(record)?))
                    .set_condition_expression(condition.expression)
                    .set_expression_attribute_names(condition.names)
                    .set_expression_attribute_values(condition.values)
                    .build()
                    .map(|put| item.put(put))
            }
            Write::Delete { key, expect } => {
                let condition = Condition::of(&expect);
                Delete::builder()
                    .table_name(&self.table)
                    .set_key(Some(key_item(&key)))
                    .set_condition_expression(condition.expression)
                    .set_expression_attribute_names(condition.names)
                    .set_expression_attribute_values(condition.values)
                    .build()
                    .map(|delete| item.delete(delete))
            }
            Write::Check { key, expect } => {
                let condition = Condition::of(&expect).for_check();
                ConditionCheck::builder()
                    .table_name(&self.table)
                    .set_key(Some(key_item(&key)))
                    .set_condition_expression(condition.expression)
                    .set_expression_attribute_names(condition.names)
                    .set_expression_attribute_values(condition.values)
                    .build()
                    .map(|check| item.condition_check(check))
            }
        };
        built
            .map(aws_sdk_dynamodb::types::builders::TransactWriteItemBuilder::build)
            .map_err(|error| PortError::unknown(attempt, error))
    }
}

/// A condition in DynamoDB's form; all fields are `None` without a condition.
struct Condition {
    expression: Option<String>,
    names: Option<HashMap<String, String>>,
    values: Option<HashMap<String, AttributeValue>>,
}

impl Condition {
    /// Returns the condition of a write in DynamoDB's language. A record that does not exist
    /// satisfies [`Expect::FenceAtMost`]. Empty for [`Expect::Anything`]; a check, which must have
    /// a condition, takes [`Self::for_check`] of it.
    fn of(expect: &Expect) -> Self {
        let (expression, name, value) = match expect {
            Expect::Absent => ("attribute_not_exists(#a)", item::PARTITION, None),
            Expect::Revision(revision) => ("#a = :v", item::REVISION, Some(*revision)),
            // A record without a fence has 0, and so has no record.
            Expect::FenceAtMost(fence) => {
                ("attribute_not_exists(#a) OR #a <= :v", item::FENCE, Some(*fence))
            }
            Expect::Anything => {
                return Self { expression: None, names: None, values: None };
            }
        };
        Self {
            expression: Some(expression.to_owned()),
            names: Some([("#a".to_owned(), name.to_owned())].into()),
            values: value.map(|value| [(":v".to_owned(), number(value))].into()),
        }
    }

    /// Returns the condition for a check, which must have one: without a condition, one that always
    /// holds.
    fn for_check(self) -> Self {
        if self.expression.is_some() {
            return self;
        }
        Self {
            expression: Some("attribute_exists(#a) OR attribute_not_exists(#a)".to_owned()),
            names: Some([("#a".to_owned(), item::PARTITION.to_owned())].into()),
            values: None,
        }
    }
}

/// Returns the outcome of a failed transaction: the records whose conditions failed, if there are
/// any. Otherwise an error, throttled only if a retry may succeed for all of its reasons. `keys`
/// are those of the writes, in their order. A failure that is no cancellation becomes the error
/// that [`failed`] returns.
fn cancelled<R: std::fmt::Debug>(
    attempt: String,
    keys: Vec<Key>,
    error: SdkError<TransactWriteItemsError, R>,
) -> Result<TransactionOutcome, PortError> {
    let Some(TransactWriteItemsError::TransactionCanceledException(cancel)) =
        error.as_service_error()
    else {
        return Err(failed(DataService::DynamoDb, attempt, error));
    };
    let reasons = cancel.cancellation_reasons();
    let code = |reason: &CancellationReason| reason.code().unwrap_or("None").to_owned();
    let lost: Vec<Key> = keys
        .into_iter()
        .zip(reasons)
        .filter(|(_, reason)| reason.code() == Some("ConditionalCheckFailed"))
        .map(|(key, _)| key)
        .collect();
    if !lost.is_empty() {
        return Ok(TransactionOutcome::ConditionFailed(lost));
    }
    let codes: BTreeSet<String> = reasons.iter().map(code).filter(|code| code != "None").collect();
    if codes.is_empty() {
        return Err(PortError::unknown(
            attempt,
            error.message().unwrap_or("it was cancelled without a reason"),
        ));
    }
    let listed: Vec<&str> = codes.iter().map(String::as_str).collect();
    Err(PortError {
        attempt,
        why: format!("the transaction was cancelled: {}", listed.join(", ")),
        // Only when a later retry may succeed for all of them.
        throttled: listed.iter().all(|code| BUSY.contains(code)),
    })
}

/// Returns the token by which DynamoDB recognises a repeated transaction: the write id, or a digest
/// if that is longer than 36 characters; `None` for an empty id.
fn token(write_id: &str) -> Option<String> {
    match write_id.len() {
        0 => None,
        1..=TOKEN_CHARS_MAX => Some(write_id.to_owned()),
        _ => {
            let mut digest = hex::encode(Sha256::digest(write_id));
            digest.truncate(TOKEN_CHARS_MAX);
            Some(digest)
        }
    }
}

/// Returns whether a stored item has this write id.
fn is_written_by(found: &Item, write_id: &str) -> bool {
    found
        .get(item::WRITE_ID)
        .and_then(|value| value.as_s().ok())
        .is_some_and(|found| found == write_id)
}

/// Returns an error for a commit that DynamoDB would refuse, or that is too large for a record:
/// more than [`TRANSACTION_RECORDS_MAX`] writes, two writes of one record, or a body over
/// [`BODY_BYTES_MAX`].
fn check_limits(writes: &[Write]) -> Result<(), PortError> {
    let refused = |why: String| Err(PortError::unknown("write to the table", why));
    if writes.len() > TRANSACTION_RECORDS_MAX {
        return refused(format!(
            "{} records; one transaction holds {TRANSACTION_RECORDS_MAX}",
            writes.len()
        ));
    }
    let keys: BTreeSet<&Key> = writes.iter().map(Write::key).collect();
    if keys.len() < writes.len() {
        return refused("one transaction names a record twice".to_owned());
    }
    for write in writes {
        if let Write::Put { record, .. } = write
            && record.body.len() > BODY_BYTES_MAX
        {
            return refused(format!(
                "{} has {} bytes; a record holds {BODY_BYTES_MAX}, what is larger goes to object \
                 storage",
                record.key,
                record.body.len()
            ));
        }
    }
    Ok(())
}
