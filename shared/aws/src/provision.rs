//! Creates table, bucket, key and queues on an endpoint without CloudFormation, unless they exist.
//! On AWS the template creates them.

use crate::endpoint::DataService;
use aws_config::SdkConfig;
use aws_sdk_dynamodb::types::{
    AttributeDefinition, BillingMode, GlobalSecondaryIndex, KeySchemaElement, KeyType, Projection,
    ProjectionType, ScalarAttributeType, TableStatus, TimeToLiveSpecification,
};
use aws_sdk_sqs::types::QueueAttributeName as Attribute;
use std::collections::BTreeMap;
use std::error::Error;
use std::time::Duration;

/// How often a new table is polled until it is active, every half second.
const ASKED_MAX: u32 = 120;

/// The resources to create on an endpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResourceSpec {
    /// The table.
    pub table: TableSpec,
    /// The bucket's name.
    pub bucket: String,
    /// The alias of the key, without `alias/`; `None` when the key is known by other ways.
    pub key_alias: Option<String>,
    /// The queues. A dead letter queue comes before the queues that use it.
    pub queues: Vec<QueueSpec>,
}

/// A table with its indexes, which hold keys only.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableSpec {
    /// Its name.
    pub name: String,
    /// Its partition and sort key.
    pub keys: [KeyAttribute; 2],
    /// Its indexes: name, partition key and sort key.
    pub indexes: Vec<(String, [KeyAttribute; 2])>,
    /// The attribute (epoch seconds) after which an item may be deleted.
    pub ttl_attribute: Option<String>,
}

/// An attribute of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyAttribute {
    /// Its name.
    pub name: String,
    /// Its type.
    pub kind: KeyKind,
}

/// The type of a key attribute.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyKind {
    /// Text.
    Text,
    /// A number.
    Number,
}

/// A queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueueSpec {
    /// Its name; one that ends in `.fifo` keeps the order within groups.
    pub name: String,
    /// How long a received message is hidden.
    pub visibility_timeout_seconds: u32,
    /// How long a message lives.
    pub retention_seconds: u32,
    /// The dead letter queue of a message, and the number of receives before; `None` for none.
    pub dead_letters: Option<(String, u32)>,
}

/// The created or existing resources.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Provided {
    /// The id of the key, when one was asked for.
    pub key_id: Option<String>,
    /// The URL of each queue, by its name.
    pub queue_urls: BTreeMap<String, String>,
}

/// Why a resource could not be created.
#[derive(Debug, thiserror::Error)]
#[error(
    "could not create {what}: {why}; does the endpoint offer this service, and are \
     AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY its keys?"
)]
pub struct ProvisionError {
    what: String,
    why: String,
}

/// Creates the missing table, bucket, key (if an alias is given) and queues, and returns the key's
/// id and the URLs of all queues, also of existing ones. Safe to run at every start: existing ones
/// are not changed, except that the table's expiry is turned on if wanted. A dead letter queue must
/// be listed before the queues that use it. The first failure ends it; what was created before
/// stays.
///
/// # Errors
/// [`ProvisionError`] names the first thing that could not be made.
pub async fn provision(
    sdk_config: &SdkConfig,
    wanted: &ResourceSpec,
) -> Result<Provided, ProvisionError> {
    table(sdk_config, &wanted.table).await?;
    bucket(sdk_config, &wanted.bucket).await?;
    let key_id = match &wanted.key_alias {
        Some(alias) => Some(key(sdk_config, alias).await?),
        None => None,
    };
    let mut queue_urls = BTreeMap::new();
    for wanted in &wanted.queues {
        let url = queue(sdk_config, wanted, &queue_urls).await?;
        queue_urls.insert(wanted.name.clone(), url);
    }
    Ok(Provided { key_id, queue_urls })
}

/// Returns a function that converts an error to a [`ProvisionError`], with its causes; `what` names
/// the resource.
fn failed(what: String) -> impl Fn(&(dyn Error + 'static)) -> ProvisionError {
    move |error| ProvisionError { what: what.clone(), why: text_of(error) }
}

/// Returns the text of an error with its causes; the SDK's first line has little information.
pub(crate) fn text_of(error: &(dyn Error + 'static)) -> String {
    let causes = std::iter::successors(Some(error), |error| (*error).source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

/// Creates the table with its indexes unless it exists, and waits until it is active; an error
/// after a minute. Then turns on expiry if wanted; a refusal of that is only logged. An existing
/// table of another form is no error.
async fn table(sdk_config: &SdkConfig, wanted: &TableSpec) -> Result<(), ProvisionError> {
    let what = format!("the table {} in {}", wanted.name, DataService::DynamoDb.place(sdk_config));
    let failed = failed(what.clone());
    let client = aws_sdk_dynamodb::Client::new(sdk_config);
    let mut create = client
        .create_table()
        .table_name(&wanted.name)
        .billing_mode(BillingMode::PayPerRequest)
        .set_key_schema(Some(schema(&wanted.keys).map_err(|error| failed(&error))?));
    let keys =
        std::iter::once(&wanted.keys).chain(wanted.indexes.iter().map(|(_, keys)| keys)).flatten();
    let attributes: BTreeMap<&str, KeyKind> =
        keys.map(|key| (key.name.as_str(), key.kind)).collect();
    for (name, kind) in attributes {
        let kind = match kind {
            KeyKind::Text => ScalarAttributeType::S,
            KeyKind::Number => ScalarAttributeType::N,
        };
        let attribute =
            AttributeDefinition::builder().attribute_name(name).attribute_type(kind).build();
        create = create.attribute_definitions(attribute.map_err(|error| failed(&error))?);
    }
    for (name, keys) in &wanted.indexes {
        let index = GlobalSecondaryIndex::builder()
            .index_name(name)
            .set_key_schema(Some(schema(keys).map_err(|error| failed(&error))?))
            .projection(Projection::builder().projection_type(ProjectionType::KeysOnly).build());
        create = create.global_secondary_indexes(index.build().map_err(|error| failed(&error))?);
    }
    if let Err(error) = create.send().await
        && !error.as_service_error().is_some_and(|error| error.is_resource_in_use_exception())
    {
        return Err(failed(&error));
    }
    for asked in 1..=ASKED_MAX {
        let described = client
            .describe_table()
            .table_name(&wanted.name)
            .send()
            .await
            .map_err(|error| failed(&error))?;
        if described.table.and_then(|table| table.table_status) == Some(TableStatus::Active) {
            break;
        }
        if asked == ASKED_MAX {
            let why = "it did not become active within a minute".to_owned();
            return Err(ProvisionError { what, why });
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    if let Some(attribute) = &wanted.ttl_attribute {
        let ttl =
            TimeToLiveSpecification::builder().attribute_name(attribute).enabled(true).build();
        let ttl = ttl.map_err(|error| failed(&error))?;
        // Refused where it is on already, and by endpoints that know none: nothing rests on it.
        if let Err(error) = client
            .update_time_to_live()
            .table_name(&wanted.name)
            .time_to_live_specification(ttl)
            .send()
            .await
        {
            tracing::debug!(table = wanted.name, %error, "the table's time to live was not changed");
        }
    }
    Ok(())
}

/// Returns a key schema in the SDK's form: the first attribute is the partition key, the second the
/// sort key.
fn schema(
    keys: &[KeyAttribute; 2],
) -> Result<Vec<KeySchemaElement>, aws_sdk_dynamodb::error::BuildError> {
    let kinds = [KeyType::Hash, KeyType::Range];
    let element = |(key, kind): (&KeyAttribute, KeyType)| {
        KeySchemaElement::builder().attribute_name(&key.name).key_type(kind).build()
    };
    keys.iter().zip(kinds).map(element).collect()
}

/// Creates a bucket unless it exists and can be read. Does not wait for it.
async fn bucket(sdk_config: &SdkConfig, name: &str) -> Result<(), ProvisionError> {
    let config = aws_sdk_s3::config::Builder::from(sdk_config).force_path_style(true);
    let client = aws_sdk_s3::Client::from_conf(config.build());
    if client.head_bucket().bucket(name).send().await.is_ok() {
        return Ok(());
    }
    let made = client.create_bucket().bucket(name).send().await;
    let what = format!("the bucket {name} in {}", DataService::S3.place(sdk_config));
    made.map(drop).map_err(|error| failed(what)(&error))
}

/// Creates a key with an alias, given without `alias/`, unless the alias exists, and returns the
/// key's id.
async fn key(sdk_config: &SdkConfig, alias: &str) -> Result<String, ProvisionError> {
    let failed = failed(format!("the key {alias} in {}", DataService::Kms.place(sdk_config)));
    let client = aws_sdk_kms::Client::new(sdk_config);
    let alias = format!("alias/{alias}");
    match client.describe_key().key_id(&alias).send().await {
        Ok(found) => {
            if let Some(found) = found.key_metadata {
                return Ok(found.key_id);
            }
        }
        Err(error)
            if error.as_service_error().is_some_and(|error| error.is_not_found_exception()) => {}
        Err(error) => return Err(failed(&error)),
    }
    let made = client
        .create_key()
        .description("Seals the secrets of a Sluice.")
        .send()
        .await
        .map_err(|error| failed(&error))?;
    let id = made.key_metadata.map(|made| made.key_id).unwrap_or_default();
    client
        .create_alias()
        .alias_name(&alias)
        .target_key_id(&id)
        .send()
        .await
        .map_err(|error| failed(&error))?;
    Ok(id)
}

/// Creates a queue unless it exists, and returns its URL; an existing one keeps its settings.
/// `known` has the URLs of the queues that were provided before. If the dead letter queue is not
/// among them, the queue is created without one, which is no error.
async fn queue(
    sdk_config: &SdkConfig,
    wanted: &QueueSpec,
    known: &BTreeMap<String, String>,
) -> Result<String, ProvisionError> {
    let what = format!("the queue {} in {}", wanted.name, DataService::Sqs.place(sdk_config));
    let failed = failed(what.clone());
    let client = aws_sdk_sqs::Client::new(sdk_config);
    if let Ok(found) = client.get_queue_url().queue_name(&wanted.name).send().await
        && let Some(url) = found.queue_url
    {
        return Ok(url);
    }
    let mut create = client
        .create_queue()
        .queue_name(&wanted.name)
        .attributes(Attribute::VisibilityTimeout, wanted.visibility_timeout_seconds.to_string())
        .attributes(Attribute::MessageRetentionPeriod, wanted.retention_seconds.to_string());
    if wanted.name.ends_with(".fifo") {
        create = create
            .attributes(Attribute::FifoQueue, "true")
            .attributes(Attribute::DeduplicationScope, "messageGroup")
            .attributes(Attribute::FifoThroughputLimit, "perMessageGroupId");
    }
    if let Some((dead, receives)) = &wanted.dead_letters
        && let Some(url) = known.get(dead)
    {
        let read =
            client.get_queue_attributes().queue_url(url).attribute_names(Attribute::QueueArn);
        let read = read.send().await.map_err(|error| failed(&error))?;
        let arn = read
            .attributes
            .and_then(|mut all| all.remove(&Attribute::QueueArn))
            .unwrap_or_default();
        let policy = serde_json::json!({"deadLetterTargetArn": arn, "maxReceiveCount": receives.to_string()});
        create = create.attributes(Attribute::RedrivePolicy, policy.to_string());
    }
    let made = create.send().await.map_err(|error| failed(&error))?;
    made.queue_url.ok_or_else(|| ProvisionError { what, why: "it has no URL".into() })
}
