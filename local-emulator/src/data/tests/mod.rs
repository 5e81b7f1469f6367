//! The data services under the real AWS SDK, through the connector and over a socket.

mod durability;
mod dynamo;
mod front;
mod kms;
mod s3;
mod sessions;
mod sqs;

use std::sync::Arc;

use aws_sdk_dynamodb::config::{BehaviorVersion, Credentials, Region};
use aws_sdk_dynamodb::types::{
    AttributeDefinition, BillingMode, GlobalSecondaryIndex, KeySchemaElement, KeyType, Projection,
    ProjectionType, ScalarAttributeType,
};
use aws_smithy_runtime_api::client::http::SharedHttpClient;
use bytes::Bytes;
use tempfile::TempDir;

use super::*;

const KEY: &str = "AKIDTEST";
const SECRET: &str = "a secret of the tests";

/// A front on a directory of its own, with one known key.
struct Lab {
    front: Arc<Front>,
    directory: TempDir,
}

/// SDK clients of one key.
struct Clients {
    dynamo: aws_sdk_dynamodb::Client,
    sqs: aws_sdk_sqs::Client,
    s3: aws_sdk_s3::Client,
}

fn lab() -> Lab {
    let directory = tempfile::tempdir().unwrap();
    let front = open(directory.path());
    Lab { front, directory }
}

fn open(directory: &std::path::Path) -> Arc<Front> {
    let front = Front::open(directory, DataOptions::default()).unwrap();
    front.keys().insert(KEY, Principal::new("tester"), SecretAccessKey::new(SECRET));
    front
}

impl Lab {
    /// Clients without a socket.
    fn clients(&self) -> Clients {
        self.clients_of(KEY, SECRET)
    }

    fn clients_of(&self, key: &str, secret: &str) -> Clients {
        Clients::new(
            key,
            secret,
            ENDPOINT,
            Some(Connector::new(Arc::clone(&self.front)).into_client()),
        )
    }
}

impl Clients {
    fn new(key: &str, secret: &str, endpoint: &str, http: Option<SharedHttpClient>) -> Self {
        let credentials = Credentials::new(key, secret, None, None, "tests");
        let (version, region) = (BehaviorVersion::latest(), Region::new(DEFAULT_REGION));
        let mut dynamo = aws_sdk_dynamodb::Config::builder()
            .behavior_version(version)
            .region(region.clone())
            .credentials_provider(credentials.clone())
            .retry_config(aws_sdk_dynamodb::config::retry::RetryConfig::disabled())
            .endpoint_url(endpoint);
        let mut sqs = aws_sdk_sqs::Config::builder()
            .behavior_version(version)
            .region(region.clone())
            .credentials_provider(credentials.clone())
            .retry_config(aws_sdk_sqs::config::retry::RetryConfig::disabled())
            .endpoint_url(endpoint);
        let mut s3 = aws_sdk_s3::Config::builder()
            .behavior_version(version)
            .region(region)
            .credentials_provider(credentials)
            .retry_config(aws_sdk_s3::config::retry::RetryConfig::disabled())
            .force_path_style(true)
            .endpoint_url(endpoint);
        if let Some(http) = http {
            dynamo = dynamo.http_client(http.clone());
            sqs = sqs.http_client(http.clone());
            s3 = s3.http_client(http);
        }
        Self {
            dynamo: aws_sdk_dynamodb::Client::from_conf(dynamo.build()),
            sqs: aws_sdk_sqs::Client::from_conf(sqs.build()),
            s3: aws_sdk_s3::Client::from_conf(s3.build()),
        }
    }
}

/// A request as `curl` would send it, without a signature.
fn plain(method: &str, uri: &str) -> http::Request<Bytes> {
    http::Request::builder().method(method).uri(uri).body(Bytes::new()).unwrap()
}

/// Makes the table `records` with its `due` index, as the template has it.
async fn create_records(dynamo: &aws_sdk_dynamodb::Client) {
    create_table(dynamo, "records").await;
}

/// Makes a table like `records` under another name.
async fn create_table(dynamo: &aws_sdk_dynamodb::Client, name: &str) {
    let attribute = |name: &str, kind| {
        AttributeDefinition::builder().attribute_name(name).attribute_type(kind).build().unwrap()
    };
    let key = |name: &str, kind| {
        KeySchemaElement::builder().attribute_name(name).key_type(kind).build().unwrap()
    };
    let due = GlobalSecondaryIndex::builder()
        .index_name("due")
        .key_schema(key("due_shard", KeyType::Hash))
        .key_schema(key("due_at", KeyType::Range))
        .projection(Projection::builder().projection_type(ProjectionType::KeysOnly).build())
        .build()
        .unwrap();
    dynamo
        .create_table()
        .table_name(name)
        .billing_mode(BillingMode::PayPerRequest)
        .attribute_definitions(attribute("pk", ScalarAttributeType::S))
        .attribute_definitions(attribute("sk", ScalarAttributeType::S))
        .attribute_definitions(attribute("due_shard", ScalarAttributeType::S))
        .attribute_definitions(attribute("due_at", ScalarAttributeType::N))
        .key_schema(key("pk", KeyType::Hash))
        .key_schema(key("sk", KeyType::Range))
        .global_secondary_indexes(due)
        .send()
        .await
        .unwrap();
}
