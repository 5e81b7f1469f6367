//! Resources of a system that exists for a while, at an endpoint of others.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use sluice_aws::provision::{KeyAttribute, KeyKind, QueueSpec, ResourceSpec, TableSpec, provision};
use sluice_aws::removal::remove;
use sluice_conformance::sdk_config;
use sluice_foreign::ministack;

/// Objects of the bucket: more than one page of a listing.
const OBJECTS: usize = 1_001;

fn resources(stack: &str) -> ResourceSpec {
    let key = |name: &str| KeyAttribute { name: name.to_owned(), kind: KeyKind::Text };
    let queue = |name: String, dead_letters| QueueSpec {
        name,
        visibility_timeout_seconds: 30,
        retention_seconds: 3_600,
        dead_letters,
    };
    let dead = format!("{stack}-dead.fifo");
    ResourceSpec {
        table: TableSpec {
            name: format!("{stack}-records"),
            keys: [key("pk"), key("sk")],
            indexes: vec![("find".to_owned(), [key("find_pk"), key("find_sk")])],
            ttl_attribute: None,
        },
        bucket: format!("{stack}-objects"),
        key_alias: Some(stack.to_owned()),
        queues: vec![
            queue(dead.clone(), None),
            queue(format!("{stack}-gate.fifo"), Some((dead, 5))),
            queue(format!("{stack}-wakes"), None),
        ],
    }
}

/// C4: a system that was tried on an endpoint leaves nothing there, and what others have there
/// stays.
#[tokio::test(flavor = "multi_thread")]
async fn what_was_created_at_an_endpoint_is_removed_and_nothing_else() {
    let running = ministack::start().await;
    let sdk_config = sdk_config(running.endpoint(), "test", "test", None);
    let (ours, others) = (resources("ours"), resources("others"));
    for resources in [&ours, &others] {
        provision(&sdk_config, resources).await.unwrap();
    }
    let config = aws_sdk_s3::config::Builder::from(&sdk_config).force_path_style(true);
    let s3 = aws_sdk_s3::Client::from_conf(config.build());
    for number in 0..OBJECTS {
        let put = s3.put_object().bucket(&ours.bucket).key(format!("logs/{number}"));
        put.body(b"x".to_vec().into()).send().await.unwrap();
    }
    // The second time there is nothing to remove.
    for _ in 0..2 {
        remove(&sdk_config, &ours).await.unwrap();
    }
    let tables = aws_sdk_dynamodb::Client::new(&sdk_config).list_tables().send().await.unwrap();
    assert_eq!(tables.table_names(), ["others-records"]);
    let buckets = s3.list_buckets().send().await.unwrap();
    let buckets: Vec<_> = buckets.buckets().iter().filter_map(|bucket| bucket.name()).collect();
    assert_eq!(buckets, ["others-objects"]);
    let queues = aws_sdk_sqs::Client::new(&sdk_config).list_queues().send().await.unwrap();
    assert_eq!(queues.queue_urls().len(), others.queues.len());
    assert!(queues.queue_urls().iter().all(|url| url.contains("/others-")));
    let keys = aws_sdk_kms::Client::new(&sdk_config);
    keys.describe_key().key_id("alias/ours").send().await.unwrap_err();
    keys.describe_key().key_id("alias/others").send().await.unwrap();
}

/// C4: an error names the service and its address.
#[tokio::test]
async fn resources_that_could_not_be_created_or_removed_are_named_with_their_service() {
    let nowhere = sdk_config("http://127.0.0.1:1", "test", "test", None);
    let error = provision(&nowhere, &resources("ours")).await.unwrap_err().to_string();
    let table = "the table ours-records in DynamoDB at http://127.0.0.1:1: ";
    assert!(error.contains(table), "{error}");
    let error = remove(&nowhere, &resources("ours")).await.unwrap_err().to_string();
    assert!(error.contains(table), "{error}");
    for part in ["the bucket ours-objects in S3", "in SQS at http", "the key ours in KMS"] {
        assert!(error.contains(part), "{part}: {error}");
    }
}
