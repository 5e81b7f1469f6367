//! An endpoint with AWS's protocols, and fresh ports on it.

use crate::check::{Check, Mismatch, Needs, TestPorts};
use aws_config::{BehaviorVersion, Region};
use aws_credential_types::Credentials;
use aws_credential_types::provider::SharedCredentialsProvider;
use aws_sdk_dynamodb::types::{
    AttributeDefinition, BillingMode, GlobalSecondaryIndex, KeySchemaElement, KeyType, Projection,
    ProjectionType, ScalarAttributeType, TableStatus,
};
use aws_sdk_sqs::types::QueueAttributeName;
use aws_smithy_runtime_api::client::http::SharedHttpClient;
use sluice_aws::{AwsSettings, BucketAddress, GroupsOnStandardQueues, OsEntropy, SdkConfig, ports};
use sluice_model::wakeup::MessageQueue;
use sluice_runtime::Entropy;
use std::collections::BTreeMap;
use std::time::Duration;

/// Polls until a new table is active: a minute.
const ASKED_MAX: u32 = 120;

/// An endpoint with some or all of the services.
#[derive(Debug, Clone)]
pub struct Site {
    sdk_config: SdkConfig,
    key_id: Option<String>,
}

/// Why no ports could be created.
#[derive(Debug, thiserror::Error)]
#[error("could not make {what} for a check: {why}")]
pub struct SiteError {
    what: String,
    why: String,
}

impl From<SiteError> for Mismatch {
    fn from(error: SiteError) -> Self {
        Self(error.to_string())
    }
}

/// Returns the SDK's configuration for an endpoint in `us-east-1` with one pair of keys;
/// `http_client` replaces sockets.
pub fn sdk_config(
    endpoint: &str,
    key: &str,
    secret: &str,
    http_client: Option<SharedHttpClient>,
) -> SdkConfig {
    let credentials = Credentials::new(key, secret, None, None, "conformance");
    let mut config = SdkConfig::builder()
        .behavior_version(BehaviorVersion::latest())
        .region(Region::new("us-east-1"))
        .credentials_provider(SharedCredentialsProvider::new(credentials))
        .endpoint_url(endpoint);
    config.set_http_client(http_client);
    config.build()
}

impl Site {
    /// Returns the site at the configuration's endpoint. `key_id` is a key of its KMS, if it has
    /// one.
    pub fn new(sdk_config: SdkConfig, key_id: Option<String>) -> Self {
        Self { sdk_config, key_id }
    }

    /// Creates the resources of a check under unused names, and returns their ports.
    ///
    /// # Errors
    /// [`Mismatch`] when the endpoint cannot create them.
    pub async fn target(&self, check: Check) -> Result<TestPorts, Mismatch> {
        let name = format!("conformance-{}", OsEntropy.token());
        let mut queue_urls = BTreeMap::new();
        match check.needs {
            Needs::Records => self.make_table(&name).await?,
            Needs::Objects => self.make_bucket(&name).await?,
            Needs::Queues => queue_urls = self.make_queues(&name).await?,
            Needs::Seal => {}
        }
        let settings = AwsSettings {
            table: name.clone(),
            bucket: name,
            key_id: self.key_id.clone().unwrap_or_default(),
            queue_urls,
            bucket_address: BucketAddress::Path,
            groups_on_standard_queues: GroupsOnStandardQueues::Sent,
        };
        Ok(TestPorts::real(ports(&self.sdk_config, settings).await))
    }

    /// Creates all resources under unused names, and returns their ports; for measurements, not for
    /// checks.
    ///
    /// # Errors
    /// [`SiteError`] when the endpoint cannot create them.
    pub async fn whole(&self) -> Result<sluice_runtime::Ports, SiteError> {
        let name = format!("whole-{}", OsEntropy.token());
        self.make_table(&name).await?;
        self.make_bucket(&name).await?;
        let settings = AwsSettings {
            table: name.clone(),
            bucket: name.clone(),
            key_id: self.key_id.clone().unwrap_or_default(),
            queue_urls: self.make_queues(&name).await?,
            bucket_address: BucketAddress::Path,
            groups_on_standard_queues: GroupsOnStandardQueues::Sent,
        };
        Ok(ports(&self.sdk_config, settings).await)
    }

    async fn make_table(&self, name: &str) -> Result<(), SiteError> {
        let failed = |why: String| SiteError { what: format!("the table {name}"), why };
        let client = aws_sdk_dynamodb::Client::new(&self.sdk_config);
        let (text, number) = (ScalarAttributeType::S, ScalarAttributeType::N);
        let attributes = [
            ("pk", &text),
            ("sk", &text),
            ("due_shard", &text),
            ("due_at", &number),
            ("find_pk", &text),
            ("find_sk", &text),
        ];
        let mut create = client
            .create_table()
            .table_name(name)
            .billing_mode(BillingMode::PayPerRequest)
            .set_key_schema(Some(schema("pk", "sk")?));
        for (attribute, kind) in attributes {
            let definition = AttributeDefinition::builder()
                .attribute_name(attribute)
                .attribute_type(kind.clone());
            let definition = definition.build().map_err(|error| failed(text_of(&error)))?;
            create = create.attribute_definitions(definition);
        }
        for (index, hash, range) in [("due", "due_shard", "due_at"), ("find", "find_pk", "find_sk")]
        {
            let keys_only = Projection::builder().projection_type(ProjectionType::KeysOnly).build();
            let index = GlobalSecondaryIndex::builder()
                .index_name(index)
                .set_key_schema(Some(schema(hash, range)?))
                .projection(keys_only);
            let index = index.build().map_err(|error| failed(text_of(&error)))?;
            create = create.global_secondary_indexes(index);
        }
        create.send().await.map_err(|error| failed(text_of(&error)))?;
        for _ in 0..ASKED_MAX {
            let described = client.describe_table().table_name(name).send().await;
            let table = described.map_err(|error| failed(text_of(&error)))?.table;
            if table.and_then(|table| table.table_status) == Some(TableStatus::Active) {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
        Err(failed("it did not become active within a minute".into()))
    }

    async fn make_bucket(&self, name: &str) -> Result<(), SiteError> {
        let config = aws_sdk_s3::config::Builder::from(&self.sdk_config).force_path_style(true);
        let client = aws_sdk_s3::Client::from_conf(config.build());
        let made = client.create_bucket().bucket(name).send().await;
        made.map(drop)
            .map_err(|error| SiteError { what: format!("the bucket {name}"), why: text_of(&error) })
    }

    async fn make_queues(&self, name: &str) -> Result<BTreeMap<MessageQueue, String>, SiteError> {
        let client = aws_sdk_sqs::Client::new(&self.sdk_config);
        let mut urls = BTreeMap::new();
        for queue in MessageQueue::ALL {
            let (kind, suffix) = (format!("{queue:?}"), if queue.is_fifo() { ".fifo" } else { "" });
            let full_name = format!("{name}-{kind}{suffix}");
            let mut create = client.create_queue().queue_name(&full_name);
            if queue.is_fifo() {
                create = create
                    .attributes(QueueAttributeName::FifoQueue, "true")
                    .attributes(QueueAttributeName::DeduplicationScope, "messageGroup")
                    .attributes(QueueAttributeName::FifoThroughputLimit, "perMessageGroupId");
            }
            let failed = |why| SiteError { what: format!("the queue {full_name}"), why };
            let made = create.send().await.map_err(|error| failed(text_of(&error)))?;
            let url = made.queue_url.ok_or_else(|| failed("it has no URL".into()))?;
            urls.insert(queue, url);
        }
        Ok(urls)
    }
}

fn schema(hash: &str, range: &str) -> Result<Vec<KeySchemaElement>, SiteError> {
    [(hash, KeyType::Hash), (range, KeyType::Range)]
        .into_iter()
        .map(|(name, kind)| {
            let element = KeySchemaElement::builder().attribute_name(name).key_type(kind);
            element.build().map_err(|error| SiteError {
                what: format!("the key {name}"),
                why: text_of(&error),
            })
        })
        .collect()
}

/// Returns the text of an error with its causes; the SDK's first line has little information.
fn text_of(error: &(dyn std::error::Error + 'static)) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    let texts: Vec<String> = causes.map(ToString::to_string).collect();
    texts.join(": ")
}
