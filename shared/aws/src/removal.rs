//! Removes what [`provision`](crate::provision) created on an endpoint, with everything in it: for
//! systems that exist only for a while.

use crate::endpoint::DataService;
use crate::provision::{ResourceSpec, text_of};
use aws_config::SdkConfig;
use aws_sdk_s3::types::{Delete, ObjectIdentifier};
use aws_smithy_types::error::metadata::ProvideErrorMetadata;
use std::error::Error;

/// Pages of a bucket's objects, of at most 1,000 each.
const PAGES_MAX: usize = 1000;
/// Days until KMS deletes a key; it does not accept fewer.
const KEY_DAYS: i32 = 7;
/// Codes of services for what does not exist.
const MISSING: [&str; 6] = [
    "AWS.SimpleQueueService.NonExistentQueue",
    "NoSuchBucket",
    "NotFound",
    "NotFoundException",
    "QueueDoesNotExist",
    "ResourceNotFoundException",
];

/// Resources that could not be removed.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("could not remove {}; remove them by hand", .0.join("; "))]
pub struct RemovalError(Vec<String>);

/// Removes the table, the bucket with its objects, the queues with their messages, and the alias of
/// the key if the resources have one; the key itself is scheduled for deletion after 7 days. What
/// does not exist is no error. A failure does not stop the other services. Nothing may use the
/// resources at the same time.
///
/// # Errors
/// [`RemovalError`] names for each service the first thing that was not removed, and the reason.
pub async fn remove(sdk_config: &SdkConfig, resources: &ResourceSpec) -> Result<(), RemovalError> {
    let mut failures = Vec::new();
    let mut note = |service: DataService, what: String, removed: Result<(), String>| {
        if let Err(why) = removed {
            failures.push(format!("{what} in {}: {why}", service.place(sdk_config)));
        }
    };
    let name = &resources.table.name;
    note(DataService::DynamoDb, format!("the table {name}"), table(sdk_config, name).await);
    let name = &resources.bucket;
    note(DataService::S3, format!("the bucket {name}"), bucket(sdk_config, name).await);
    for name in resources.queues.iter().map(|queue| &queue.name) {
        let removed = queue(sdk_config, name).await;
        let is_removed = removed.is_ok();
        note(DataService::Sqs, format!("the queue {name}"), removed);
        if !is_removed {
            // Where one is refused, so are the others, each after some attempts.
            break;
        }
    }
    if let Some(alias) = &resources.key_alias {
        note(DataService::Kms, format!("the key {alias}"), key(sdk_config, alias).await);
    }
    if failures.is_empty() { Ok(()) } else { Err(RemovalError(failures)) }
}

/// Returns the result of a call whose subject may be missing: `None` if it is.
fn unless_missing<T, E>(answer: Result<T, E>) -> Result<Option<T>, String>
where
    E: ProvideErrorMetadata + Error + 'static,
{
    match answer {
        Ok(done) => Ok(Some(done)),
        Err(error) if error.code().is_some_and(|code| MISSING.contains(&code)) => Ok(None),
        Err(error) => Err(text_of(&error)),
    }
}

async fn table(sdk_config: &SdkConfig, name: &str) -> Result<(), String> {
    let client = aws_sdk_dynamodb::Client::new(sdk_config);
    unless_missing(client.delete_table().table_name(name).send().await).map(drop)
}

/// Deletes a bucket after its objects, page by page.
async fn bucket(sdk_config: &SdkConfig, name: &str) -> Result<(), String> {
    let config = aws_sdk_s3::config::Builder::from(sdk_config).force_path_style(true);
    let client = aws_sdk_s3::Client::from_conf(config.build());
    for _ in 0..PAGES_MAX {
        let page = unless_missing(client.list_objects_v2().bucket(name).send().await)?;
        let Some(page) = page else { return Ok(()) };
        let objects = page.contents().iter().filter_map(|object| object.key());
        let objects: Vec<ObjectIdentifier> = objects
            .map(|key| ObjectIdentifier::builder().key(key).build())
            .collect::<Result<_, _>>()
            .map_err(|error| text_of(&error))?;
        if objects.is_empty() {
            return unless_missing(client.delete_bucket().bucket(name).send().await).map(drop);
        }
        let delete = Delete::builder().set_objects(Some(objects)).quiet(true).build();
        let delete = delete.map_err(|error| text_of(&error))?;
        let answer = client.delete_objects().bucket(name).delete(delete).send().await;
        let answer = answer.map_err(|error| text_of(&error))?;
        if let Some(refused) = answer.errors().first() {
            let (key, why) = (refused.key().unwrap_or("?"), refused.message().unwrap_or("?"));
            return Err(format!("its object {key} could not be deleted: {why}"));
        }
    }
    Err(format!("it has more than {PAGES_MAX} pages of objects"))
}

async fn queue(sdk_config: &SdkConfig, name: &str) -> Result<(), String> {
    let client = aws_sdk_sqs::Client::new(sdk_config);
    let found = unless_missing(client.get_queue_url().queue_name(name).send().await)?;
    let Some(url) = found.and_then(|found| found.queue_url) else { return Ok(()) };
    unless_missing(client.delete_queue().queue_url(url).send().await).map(drop)
}

/// Schedules the deletion of the key with an alias, given without `alias/`, and deletes the alias.
async fn key(sdk_config: &SdkConfig, alias: &str) -> Result<(), String> {
    let client = aws_sdk_kms::Client::new(sdk_config);
    let alias = format!("alias/{alias}");
    let found = unless_missing(client.describe_key().key_id(&alias).send().await)?;
    let Some(id) = found.and_then(|found| found.key_metadata).map(|key| key.key_id) else {
        return Ok(());
    };
    let deletion = client.schedule_key_deletion().key_id(id).pending_window_in_days(KEY_DAYS);
    unless_missing(deletion.send().await)?;
    unless_missing(client.delete_alias().alias_name(alias).send().await).map(drop)
}
