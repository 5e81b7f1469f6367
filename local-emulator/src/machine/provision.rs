//! What a plan names, made in the data services unless it is there.

use super::MachineError;
use crate::data::Front;
use crate::template::{IndexPlan, KeySchema, MessageQueuePlan, QueueKind, TablePlan, TemplatePlan};
use serde_json::{Value, json};
use sluice_memory::sqs::SqsQueueSettings;
use std::collections::BTreeMap;
use std::fmt::Display;

/// Creates those tables, buckets, keys and queues of the template that are missing. Existing queues
/// get its settings; one of the other type (standard or FIFO) is an error. Existing tables only get
/// its expiry, if they have none; one with other keys or without an index is an error. What the
/// template no longer names stays.
pub(super) fn provide(data: &Front, plan: &TemplatePlan) -> Result<(), MachineError> {
    for table in &plan.tables {
        let described = data
            .dynamo()
            .ensure_table(&definition(table), table.ttl_attribute.as_deref())
            .map_err(|problem| failed(&table.name, &problem.message))?;
        check(table, &described)?;
    }
    for bucket in &plan.buckets {
        data.s3().ensure_bucket(&bucket.name)?;
    }
    for key in &plan.keys {
        data.kms().ensure_key(&key.id)?;
    }
    let (with, without): (Vec<_>, Vec<_>) =
        plan.queues.iter().partition(|queue| queue.redrive.is_some());
    for queue in without.into_iter().chain(with) {
        data.sqs()
            .ensure_queue(&queue.name, queue_settings(queue))
            .map_err(|error| failed(&queue.name, &error))?;
    }
    Ok(())
}

/// Returns the error for the resource `name` that could not be created.
fn failed(name: &str, why: &impl Display) -> MachineError {
    MachineError::Provision { name: name.to_owned(), why: why.to_string() }
}

/// Returns the settings of a queue from the template: its visibility timeout, retention and dead
/// letter queue; all else has AWS's defaults. A FIFO queue, though, always has high throughput and
/// deduplicates by id within a message group.
fn queue_settings(queue: &MessageQueuePlan) -> SqsQueueSettings {
    let mut settings = match queue.kind {
        QueueKind::Standard => SqsQueueSettings::standard(),
        QueueKind::Fifo => SqsQueueSettings::fifo(),
    };
    settings.visibility_seconds = queue.visibility_timeout_seconds;
    settings.retention_seconds = queue.retention_seconds;
    match &queue.redrive {
        Some(redrive) => settings.with_redrive(&redrive.dead_letter_arn, redrive.receives_max),
        None => settings,
    }
}

/// Returns the `CreateTable` request for a table with its indexes, billed by request; the expiry of
/// items is not part of it.
fn definition(table: &TablePlan) -> Value {
    let schemas =
        || std::iter::once(&table.keys).chain(table.indexes.iter().map(|index| &index.keys));
    let attributes: BTreeMap<_, _> = schemas()
        .flat_map(|keys| std::iter::once(&keys.hash).chain(&keys.range))
        .map(|key| (key.name.as_str(), format!("{:?}", key.kind)))
        .collect();
    let mut definition = json!({
        "TableName": table.name,
        "BillingMode": "PAY_PER_REQUEST",
        "AttributeDefinitions": attributes
            .iter()
            .map(|(name, kind)| json!({ "AttributeName": name, "AttributeType": kind }))
            .collect::<Vec<_>>(),
        "KeySchema": schema(&table.keys),
    });
    if !table.indexes.is_empty() {
        let index = |index: &IndexPlan| {
            let projection = json!({ "ProjectionType": index.projection });
            json!({ "IndexName": index.name, "KeySchema": schema(&index.keys), "Projection": projection })
        };
        definition["GlobalSecondaryIndexes"] = table.indexes.iter().map(index).collect();
    }
    definition
}

/// Returns a key schema in DynamoDB's form: the partition key, then the sort key if there is one.
fn schema(keys: &KeySchema) -> Value {
    let hash = json!({ "AttributeName": keys.hash.name, "KeyType": "HASH" });
    let range =
        keys.range.iter().map(|key| json!({ "AttributeName": key.name, "KeyType": "RANGE" }));
    std::iter::once(hash).chain(range).collect()
}

/// Returns an error if the existing table that `described` describes has other keys than `table`,
/// or lacks one of its indexes or has it with other keys: its data would be read wrongly. Further
/// indexes and other settings are not compared.
fn check(table: &TablePlan, described: &Value) -> Result<(), MachineError> {
    if described["KeySchema"] != schema(&table.keys) {
        return Err(failed(&table.name, &"it is there with other keys"));
    }
    for index in &table.indexes {
        let there = described["GlobalSecondaryIndexes"].as_array().into_iter().flatten();
        let mut same_name = there.filter(|other| other["IndexName"] == index.name.as_str());
        if !same_name.any(|other| other["KeySchema"] == schema(&index.keys)) {
            return Err(failed(
                &table.name,
                &format!("it is there without the index {}", index.name),
            ));
        }
    }
    Ok(())
}
