//! Tests of this implementation alone: its items, tokens, retries and errors, against the emulator
//! without a socket. The conformance suite checks what all implementations have in common.

use super::*;
use aws_config::Region;
use aws_credential_types::Credentials;
use aws_credential_types::provider::SharedCredentialsProvider;
use aws_sdk_dynamodb::types::AttributeValue;
use sluice_emulator::data::{
    Connector, DEFAULT_REGION, DataOptions, ENDPOINT, Fault, Front, InjectedError, Principal, Rule,
    SecretAccessKey, Service, When,
};
use sluice_model::wakeup::{MessageQueue, Wakeup};
use sluice_model::{TenantName, Timestamp};
use sluice_runtime::object::{PutMode, PutOutcome};
use sluice_runtime::port::{Outgoing, due_shard};
use sluice_runtime::record::{Due, Expect, Key, Record, TransactionOutcome, Write};
use std::collections::BTreeMap;
use std::sync::Mutex;
use tempfile::TempDir;

struct Lab {
    front: Arc<Front>,
    sdk_config: SdkConfig,
    ports: Ports,
    _directory: TempDir,
}

async fn lab() -> Lab {
    let directory = tempfile::tempdir().unwrap();
    let front = Front::open(directory.path(), DataOptions::default()).unwrap();
    front.keys().insert("AKIDTEST", Principal::new("tester"), SecretAccessKey::new("secret"));
    let key = |name: &str, kind: &str| serde_json::json!({"AttributeName": name, "KeyType": kind});
    let index = |name: &str, hash: &str, range: &str| {
        serde_json::json!({"IndexName": name, "KeySchema": [key(hash, "HASH"), key(range, "RANGE")],
            "Projection": {"ProjectionType": "KEYS_ONLY"}})
    };
    let typed =
        |name: &str, kind: &str| serde_json::json!({"AttributeName": name, "AttributeType": kind});
    let table = serde_json::json!({
        "TableName": "records", "BillingMode": "PAY_PER_REQUEST",
        "AttributeDefinitions": [typed("pk", "S"), typed("sk", "S"), typed("due_shard", "S"), typed("due_at", "N"),
            typed("find_pk", "S"), typed("find_sk", "S")],
        "KeySchema": [key("pk", "HASH"), key("sk", "RANGE")],
        "GlobalSecondaryIndexes": [index("due", "due_shard", "due_at"), index("find", "find_pk", "find_sk")],
    });
    front.dynamo().ensure_table(&table, Some("ttl")).map_err(|problem| problem.message).unwrap();
    front.s3().ensure_bucket("objects").unwrap();
    front.kms().ensure_key("seal").unwrap();
    let credentials = Credentials::new("AKIDTEST", "secret", None, None, "tests");
    let sdk_config = SdkConfig::builder()
        .behavior_version(BehaviorVersion::latest())
        .region(Region::new(DEFAULT_REGION))
        .credentials_provider(SharedCredentialsProvider::new(credentials))
        .endpoint_url(ENDPOINT)
        .http_client(Connector::new(Arc::clone(&front)).into_client())
        .build();
    let sqs = aws_sdk_sqs::Client::new(&sdk_config);
    let made = sqs.create_queue().queue_name("wakes").send().await.unwrap();
    let settings = AwsSettings {
        table: "records".into(),
        bucket: "objects".into(),
        key_id: "seal".into(),
        queue_urls: BTreeMap::from([(MessageQueue::Wakes, made.queue_url.unwrap())]),
        bucket_address: BucketAddress::default(),
        groups_on_standard_queues: GroupsOnStandardQueues::default(),
    };
    Lab { ports: ports(&sdk_config, settings).await, front, sdk_config, _directory: directory }
}

impl Lab {
    fn strike(&self, service: Service, operation: &str, times: u32, fault: Fault) {
        let rule = Rule::on(service, operation, When::Next(times), fault);
        self.front.faults().add(rule);
    }

    fn calls(&self, operation: &str) -> u64 {
        let report = self.front.meter().snapshot();
        report.total(|row| row.operation == operation).calls
    }
}

fn record(sort: &str, write_id: &str) -> Record {
    let mut record = Record::new(Key::new("cell", sort), "{}".into());
    record.revision = 1;
    record.write_id = write_id.into();
    record
}

fn put(sort: &str, write_id: &str) -> Write {
    Write::Put { record: record(sort, write_id), expect: Expect::Absent }
}

#[tokio::test]
async fn a_record_has_the_attributes_of_the_template() {
    let lab = lab().await;
    let wakeup = Wakeup::Tenant { tenant: TenantName::from("t") };
    let mut full = record("head", "w");
    full.fence = 7;
    full.outbox = vec![wakeup.clone()];
    full.due = Some(Due { at: Timestamp(5_000), wakeup });
    full.sweep_at = Some(Timestamp(4_000));
    full.find = Some(("builds".into(), "9".into()));
    full.expires_at = Some(Timestamp(8_001));
    let write = Write::Put { record: full, expect: Expect::Absent };
    lab.ports.records.commit(vec![write], "w").await.unwrap();
    let bare = Write::Put {
        record: Record::new(Key::new("cell", "bare"), "[]".into()),
        expect: Expect::Anything,
    };
    lab.ports.records.commit(vec![bare], "").await.unwrap();
    let dynamo = aws_sdk_dynamodb::Client::new(&lab.sdk_config);
    let items = dynamo.scan().table_name("records").send().await.unwrap();
    let items: BTreeMap<_, BTreeMap<_, _>> = items
        .items()
        .iter()
        .map(|item| (item["sk"].clone(), item.clone().into_iter().collect()))
        .map(|(key, item)| (key.as_s().unwrap().clone(), item))
        .collect();
    let s = |text: &str| AttributeValue::S(text.into());
    let n = |text: &str| AttributeValue::N(text.into());
    let json = r#"{"reconcile":"tenant","tenant":"t"}"#;
    let expected = [
        ("pk", s("cell")),
        ("sk", s("head")),
        ("rev", n("1")),
        ("body", s("{}")),
        ("write_id", s("w")),
        ("fence", n("7")),
        ("outbox", s(&format!("[{json}]"))),
        ("due_wakeup", s(json)),
        ("due_wanted_at", n("5000")),
        ("due_shard", s(&due_shard("cell").to_string())),
        ("due_at", n("4000")),
        ("find_pk", s("builds")),
        ("find_sk", s("9")),
        ("ttl", n("9")),
    ];
    let expected: BTreeMap<_, _> = expected.map(|(k, v)| (k.to_owned(), v)).into();
    assert_eq!(items["head"], expected);
    let names: Vec<_> = items["bare"].keys().map(String::as_str).collect();
    assert_eq!(names, ["body", "pk", "rev", "sk", "write_id"]);
}

#[tokio::test]
async fn a_conflict_is_retried_and_then_reported_as_throttling() {
    let lab = lab().await;
    let conflict = || Fault::Before(InjectedError::TransactionConflict);
    lab.strike(Service::DynamoDb, "TransactWriteItems", 2, conflict());
    let both = vec![put("a", "w1"), put("b", "w1")];
    let committed = lab.ports.records.commit(both.clone(), "w1").await.unwrap();
    assert_eq!(committed, TransactionOutcome::Written);
    lab.strike(Service::DynamoDb, "TransactWriteItems", 3, conflict());
    let error = lab.ports.records.commit(both, "w2").await.unwrap_err();
    assert!(error.throttled, "{error}");
    assert!(error.why.contains("TransactionConflict"), "{error}");
}

#[tokio::test]
async fn a_repeated_write_recognises_its_first_attempt() {
    let lab = lab().await;
    let lost = || Fault::After(InjectedError::Internal);
    lab.strike(Service::DynamoDb, "PutItem", 1, lost());
    let one = lab.ports.records.commit(vec![put("a", "w1")], "w1").await;
    assert_eq!(one.unwrap(), TransactionOutcome::Written);
    lab.strike(Service::DynamoDb, "TransactWriteItems", 1, lost());
    let two = vec![put("b", "w2"), put("c", "w2")];
    let two = lab.ports.records.commit(two, "w2").await;
    assert_eq!(two.unwrap(), TransactionOutcome::Written);
    // Another writer's record is not taken for ours.
    let other = lab.ports.records.commit(vec![put("a", "w3")], "w3").await;
    assert_eq!(other.unwrap(), TransactionOutcome::ConditionFailed(vec![Key::new("cell", "a")]));
}

#[tokio::test]
async fn a_failing_service_is_called_three_times() {
    let lab = lab().await;
    lab.strike(Service::DynamoDb, "GetItem", 100, Fault::Before(InjectedError::Internal));
    let error = lab.ports.records.get(&[Key::new("cell", "head")]).await;
    let error = error.unwrap_err();
    assert_eq!(error.attempt, "read cell / head");
    assert!(!error.throttled);
    assert_eq!(lab.calls("GetItem"), 3);
}

#[tokio::test]
async fn what_cannot_be_reached_or_is_unknown_says_what_was_attempted() {
    let lab = lab().await;
    let error = lab.ports.queues.receive(MessageQueue::Gate, 1, 0, 1).await;
    assert_eq!(
        error.unwrap_err().to_string(),
        "could not receive from Gate: its URL is not configured; set SLUICE_QUEUE_GATE"
    );
    let settings = AwsSettings {
        table: "nothing".into(),
        bucket: "nothing".into(),
        key_id: "nothing".into(),
        queue_urls: BTreeMap::new(),
        bucket_address: BucketAddress::Path,
        groups_on_standard_queues: GroupsOnStandardQueues::Sent,
    };
    let nowhere = ports(&lab.sdk_config, settings).await;
    let error = nowhere.records.get(&[Key::new("a", "b")]).await;
    assert!(error.unwrap_err().why.contains("ResourceNotFoundException"));
    let error = nowhere.objects.get("a").await.unwrap_err();
    assert!(error.why.contains("NoSuchBucket"), "{error}");
    let mode = PutMode::IfMatch("\"x\"".into());
    let error = nowhere.objects.put("a", "x".into(), mode, "text/plain");
    assert!(error.await.unwrap_err().why.contains("NoSuchBucket"));
    let error = nowhere.seal.seal("c", b"plain").await.unwrap_err();
    assert!(error.why.contains("NotFoundException"), "{error}");
}

#[tokio::test]
async fn a_partly_refused_batch_is_an_error() {
    let lab = lab().await;
    let message = |body: &str| Outgoing { body: body.into(), group: None, delay_seconds: 0 };
    let sent = lab
        .ports
        .queues
        .send(MessageQueue::Wakes, vec![message("good"), message("bad \u{1}")])
        .await;
    let error = sent.unwrap_err();
    assert!(error.why.starts_with("SQS refused 1 messages"), "{error}");
    assert!(error.why.contains("InvalidMessageContents"), "{error}");
    assert!(!error.throttled);
}

/// The lines that were logged.
#[derive(Clone, Default)]
struct LoggedLines(Arc<Mutex<Vec<u8>>>);

impl std::io::Write for LoggedLines {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl LoggedLines {
    /// Starts to log this thread's lines here, until the guard is dropped.
    fn start(&self) -> tracing::subscriber::DefaultGuard {
        let lines = self.clone();
        let subscriber = tracing_subscriber::fmt().with_ansi(false);
        tracing::subscriber::set_default(subscriber.with_writer(move || lines.clone()).finish())
    }

    fn warnings(&self) -> Vec<String> {
        let text = String::from_utf8(self.0.lock().unwrap().clone()).unwrap();
        text.lines().filter(|line| line.contains("WARN")).map(str::to_owned).collect()
    }
}

fn grouped(body: &str) -> Outgoing {
    Outgoing { body: body.into(), group: Some("tenant".into()), delay_seconds: 0 }
}

/// C4: AWS takes a message group on a standard queue, and not every endpoint does. The only test
/// here with such an endpoint, because the warning is logged once in a process.
#[tokio::test]
async fn where_a_group_is_refused_messages_are_sent_once_without_it_and_one_warning_is_logged() {
    let lab = lab().await;
    lab.front.sqs().refuse_groups_on_standard_queues();
    let logged = LoggedLines::default();
    let _guard = logged.start();
    let sqs = aws_sdk_sqs::Client::new(&lab.sdk_config);
    let gate = sqs
        .create_queue()
        .queue_name("gate.fifo")
        .attributes(aws_sdk_sqs::types::QueueAttributeName::FifoQueue, "true");
    let gate = gate.send().await.unwrap().queue_url.unwrap();
    let wakes = sqs.get_queue_url().queue_name("wakes").send().await.unwrap().queue_url.unwrap();
    let settings = AwsSettings {
        table: "records".into(),
        bucket: "objects".into(),
        key_id: "seal".into(),
        queue_urls: BTreeMap::from([(MessageQueue::Wakes, wakes), (MessageQueue::Gate, gate)]),
        bucket_address: BucketAddress::default(),
        groups_on_standard_queues: GroupsOnStandardQueues::default(),
    };
    let first = ports(&lab.sdk_config, settings.clone()).await.queues;
    let plain = Outgoing { group: None, ..grouped("plain") };
    first.send(MessageQueue::Wakes, vec![grouped("a"), plain, grouped("b")]).await.unwrap();
    assert_eq!(lab.calls("SendMessageBatch"), 2, "one that was refused in part, and the rest");
    first.send(MessageQueue::Wakes, vec![grouped("c")]).await.unwrap();
    assert_eq!(lab.calls("SendMessageBatch"), 3, "the refusal is remembered");
    first.send(MessageQueue::Gate, vec![grouped("ordered")]).await.unwrap();
    let second = ports(&lab.sdk_config, settings).await.queues;
    second.send(MessageQueue::Wakes, vec![grouped("d")]).await.unwrap();
    let (mut bodies, mut groups) = (Vec::new(), Vec::new());
    while bodies.len() < 5 {
        let received = first.receive(MessageQueue::Wakes, 10, 1, 60).await.unwrap();
        assert!(!received.is_empty(), "only {bodies:?} came");
        groups.extend(received.iter().filter_map(|message| message.group.clone()));
        bodies.extend(received.into_iter().map(|message| message.body));
    }
    bodies.sort();
    assert_eq!(bodies, ["a", "b", "c", "d", "plain"]);
    assert!(groups.is_empty(), "{groups:?}");
    let ordered = first.receive(MessageQueue::Gate, 1, 1, 60).await.unwrap();
    assert_eq!(ordered[0].group.as_deref(), Some("tenant"), "FIFO queues need their groups");
    // No other refusal is hidden. `lab.ports` still sends groups.
    let bad = "bad \u{1}";
    let plain = Outgoing { group: None, ..grouped(bad) };
    for messages in [vec![grouped("good"), plain], vec![grouped("good"), grouped(bad)]] {
        let error = lab.ports.queues.send(MessageQueue::Wakes, messages).await.unwrap_err();
        assert!(error.why.contains("InvalidMessageContents"), "{error}");
    }
    let warnings = logged.warnings();
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert!(warnings[0].contains("MessageGroupId"), "{warnings:?}");
}

/// C4
#[tokio::test]
async fn a_service_with_a_url_of_its_own_is_called_there() {
    let lab = lab().await;
    let (address, serving) = sluice_emulator::data::serve(Arc::clone(&lab.front), 0).await.unwrap();
    let endpoint = endpoint::DataEndpoint::from_variables("http://127.0.0.1:1", |name| {
        (name == "AWS_ENDPOINT_URL_SQS").then(|| format!("http://{address}"))
    });
    let base = endpoint::DataEndpoint::usual_sources()
        .empty_test_environment()
        .retry_config(aws_smithy_types::retry::RetryConfig::disabled())
        .region(Region::new(DEFAULT_REGION))
        .credentials_provider(Credentials::new("AKIDTEST", "secret", None, None, "tests"));
    let sdk_config = endpoint.sdk_config(base).await;
    let queue = aws_sdk_sqs::Client::new(&sdk_config).get_queue_url().queue_name("wakes");
    assert!(queue.send().await.unwrap().queue_url.unwrap().ends_with("/wakes"));
    let table = aws_sdk_dynamodb::Client::new(&sdk_config).describe_table().table_name("records");
    table.send().await.unwrap_err();
    serving.abort();
}

#[tokio::test]
async fn a_lost_race_for_an_object_is_a_value_and_a_busy_store_an_error() {
    let lab = lab().await;
    let objects = &lab.ports.objects;
    let put = |mode| objects.put("k", "x".into(), mode, "text/plain");
    let missing = put(PutMode::IfMatch("\"0\"".into())).await.unwrap();
    assert_eq!(missing, PutOutcome::ConditionFailed);
    assert_eq!(put(PutMode::IfAbsent).await.unwrap(), PutOutcome::Yes);
    assert_eq!(put(PutMode::IfAbsent).await.unwrap(), PutOutcome::ConditionFailed);
    let busy = |failure| lab.strike(Service::S3, "PutObject", 3, Fault::Before(failure));
    busy(InjectedError::Throttled);
    let error = put(PutMode::IfAbsent).await.unwrap_err();
    assert!(error.throttled, "{error}");
    lab.front.faults().clear();
    // A concurrent conditional write: whether ours succeeded is unknown.
    busy(InjectedError::ConditionalConflict);
    let error = put(PutMode::IfAbsent).await.unwrap_err();
    assert!(error.why.contains("ConditionalRequestConflict"), "{error}");
}
