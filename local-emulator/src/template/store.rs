//! Tables and queues: checked, and put into their typed form.

use super::{
    IndexPlan, KeyAttributePlan, KeySchema, MessageQueuePlan, QueueKind, RedrivePlan, TablePlan,
    TemplateError, raw,
};

/// What SQS takes where the template says nothing.
const VISIBILITY_TIMEOUT_SECONDS: u32 = 30;
const RETENTION_SECONDS: u32 = 345_600;

/// Returns the plan of a table from its properties, with expiry only if that is enabled. An error
/// if the key of the table or of an index has no partition key, or an attribute that is not
/// defined. `logical` is the name in errors.
pub(super) fn table(
    logical: &str,
    name: String,
    arn: String,
    raw: raw::Table,
) -> Result<TablePlan, TemplateError> {
    let schema = |elements: &[raw::KeyElement]| -> Result<KeySchema, TemplateError> {
        let find = |wanted: raw::KeyType| -> Result<Option<KeyAttributePlan>, TemplateError> {
            let Some(element) = elements.iter().find(|element| element.key_type == wanted) else {
                return Ok(None);
            };
            let name = element.attribute_name.clone();
            let definition =
                raw.attribute_definitions.iter().find(|attribute| attribute.attribute_name == name);
            let kind = definition.map(|attribute| attribute.attribute_type);
            let kind = kind.ok_or_else(|| {
                TemplateError::shape(logical, format!("does not define its key {name}"))
            })?;
            Ok(Some(KeyAttributePlan { name, kind }))
        };
        let hash = find(raw::KeyType::Hash)?
            .ok_or_else(|| TemplateError::shape(logical, "has a key without HASH"))?;
        Ok(KeySchema { hash, range: find(raw::KeyType::Range)? })
    };
    let keys = schema(&raw.key_schema)?;
    let index = |index: &raw::Index| -> Result<IndexPlan, TemplateError> {
        let projection = index.projection.projection_type.clone();
        Ok(IndexPlan {
            name: index.index_name.clone(),
            keys: schema(&index.key_schema)?,
            projection,
        })
    };
    let indexes = raw.global_secondary_indexes.iter().map(index).collect::<Result<_, _>>()?;
    let ttl = raw.time_to_live_specification.as_ref().filter(|ttl| ttl.enabled);
    Ok(TablePlan {
        name,
        arn,
        keys,
        indexes,
        ttl_attribute: ttl.map(|ttl| ttl.attribute_name.clone()),
    })
}

/// Returns the plan of a queue from its properties, with SQS's defaults. Its name is the last part
/// of `arn`; `logical` is the name in errors. An error if only its name or only its type is FIFO,
/// or a FIFO queue does not deduplicate per message group.
pub(super) fn queue(
    logical: &str,
    url: String,
    arn: String,
    raw: raw::Queue,
) -> Result<MessageQueuePlan, TemplateError> {
    let kind = if raw.fifo_queue { QueueKind::Fifo } else { QueueKind::Standard };
    let name = arn.rsplit(':').next().unwrap_or_default().to_owned();
    if (kind == QueueKind::Fifo) != name.ends_with(".fifo") {
        return Err(TemplateError::shape(
            logical,
            "must be named .fifo exactly if it is a FIFO queue",
        ));
    }
    if kind == QueueKind::Fifo && raw.deduplication_scope.as_deref() != Some("messageGroup") {
        return Err(TemplateError::shape(
            logical,
            "must deduplicate per message group: this machine knows no other",
        ));
    }
    let redrive = raw.redrive_policy.map(|policy| RedrivePlan {
        dead_letter_arn: policy.dead_letter_target_arn,
        receives_max: policy.max_receive_count,
    });
    let visibility_timeout_seconds = raw.visibility_timeout.unwrap_or(VISIBILITY_TIMEOUT_SECONDS);
    let retention_seconds = raw.message_retention_period.unwrap_or(RETENTION_SECONDS);
    Ok(MessageQueuePlan {
        name,
        arn,
        url,
        kind,
        visibility_timeout_seconds,
        retention_seconds,
        redrive,
    })
}
