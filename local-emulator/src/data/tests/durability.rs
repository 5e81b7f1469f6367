//! Kills the serving process with `kill -9` at random moments: acknowledged writes survive.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use aws_sdk_dynamodb::types::AttributeValue;
use aws_sdk_s3::primitives::ByteStream;
use tokio::sync::Semaphore;

use super::*;

const DIRECTORY: &str = "SLUICE_TEST_SERVE_DIRECTORY";

/// Not a test of its own: the process that the test below kills. It serves until then.
#[tokio::test]
#[ignore = "run as a child process by the test that kills it"]
async fn serves_until_it_is_killed() {
    let Some(directory) = std::env::var_os(DIRECTORY) else {
        return;
    };
    let front = open(directory.as_ref());
    let (address, server) = serve(front, 0).await.unwrap();
    println!("\nserving {address}");
    server.await.unwrap();
}

fn spawn(directory: &std::path::Path) -> (Child, String) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args([
            "--ignored",
            "--exact",
            "--nocapture",
            "data::tests::durability::serves_until_it_is_killed",
        ])
        .env(DIRECTORY, directory)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let address = lines
        .map(Result::unwrap)
        .find_map(|line| line.strip_prefix("serving ").map(str::to_owned))
        .unwrap();
    (child, format!("http://{address}"))
}

/// A permit for each acknowledged write.
struct AcknowledgedWrites {
    items: Semaphore,
    objects: Semaphore,
    messages: Semaphore,
}

impl Default for AcknowledgedWrites {
    fn default() -> Self {
        Self { items: Semaphore::new(0), objects: Semaphore::new(0), messages: Semaphore::new(0) }
    }
}

/// Writes to all three services until the server is killed. Returns how many writes of each were
/// acknowledged, and adds a permit to `acks` for each of them.
async fn write_until_killed(
    clients: &Clients,
    url: &str,
    round: usize,
    acks: &AcknowledgedWrites,
) -> [usize; 3] {
    let items = async {
        let mut count = 0;
        loop {
            let key = AttributeValue::S(format!("{round}-{count}"));
            let put = clients
                .dynamo
                .put_item()
                .table_name("records")
                .item("pk", key.clone())
                .item("sk", key);
            if put.send().await.is_err() {
                return count;
            }
            count += 1;
            acks.items.add_permits(1);
        }
    };
    let objects = async {
        let mut count = 0;
        loop {
            let body =
                ByteStream::from(vec![count as u8; if count % 2 == 0 { 100 } else { 100_000 }]);
            let put = clients
                .s3
                .put_object()
                .bucket("objects")
                .key(format!("{round}-{count}"))
                .body(body);
            if put.send().await.is_err() {
                return count;
            }
            count += 1;
            acks.objects.add_permits(1);
        }
    };
    let messages = async {
        let mut count = 0;
        loop {
            let text = format!("{round}-{count}");
            let send =
                clients.sqs.send_message().queue_url(url).message_body(&text).message_group_id("g");
            if send.message_deduplication_id(text).send().await.is_err() {
                return count;
            }
            count += 1;
            acks.messages.add_permits(1);
        }
    };
    let (items, objects, messages) = futures::join!(items, objects, messages);
    [items, objects, messages]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_acknowledged_outlives_kill_9() {
    let directory = tempfile::tempdir().unwrap();
    {
        let lab = Lab { front: open(directory.path()), directory: tempfile::tempdir().unwrap() };
        let clients = lab.clients();
        create_records(&clients.dynamo).await;
        clients.s3.create_bucket().bucket("objects").send().await.unwrap();
        lab.front
            .sqs()
            .create_queue("q.fifo", sluice_memory::sqs::SqsQueueSettings::fifo())
            .unwrap();
    }
    let mut acknowledged = Vec::new();
    for round in 0..4 {
        let (mut child, endpoint) = spawn(directory.path());
        let clients = Clients::new(KEY, SECRET, &endpoint, None);
        let url = format!("{endpoint}/{DEFAULT_ACCOUNT}/q.fifo");
        let acks = AcknowledgedWrites::default();
        let killed = async {
            // A different number each time, so that different writes are in progress at the kill.
            let each = u32::try_from(5 + 7 * round).unwrap();
            for service in [&acks.items, &acks.objects, &acks.messages] {
                let _ = service.acquire_many(each).await.unwrap();
            }
            child.kill().unwrap();
            child.wait().unwrap();
        };
        let (written, ()) =
            futures::join!(write_until_killed(&clients, &url, round, &acks), killed);
        assert!(written.iter().all(|count| *count > 0), "round {round}: {written:?}");
        acknowledged.push(written);
    }
    let lab = Lab { front: open(directory.path()), directory };
    check(&lab, &acknowledged).await;
}

async fn check(lab: &Lab, acknowledged: &[[usize; 3]]) {
    let clients = lab.clients();
    let mut bodies = std::collections::BTreeSet::new();
    loop {
        let batch = lab.front.sqs().receive("q.fifo", 10, None).unwrap();
        if batch.is_empty() {
            break;
        }
        for delivered in batch {
            lab.front.sqs().delete("q.fifo", &delivered.receipt).unwrap();
            assert!(bodies.insert(delivered.message.body), "nothing comes twice");
        }
    }
    for (round, [items, objects, messages]) in acknowledged.iter().enumerate() {
        for n in 0..*items {
            let key = AttributeValue::S(format!("{round}-{n}"));
            let get = clients
                .dynamo
                .get_item()
                .table_name("records")
                .key("pk", key.clone())
                .key("sk", key);
            assert!(get.send().await.unwrap().item().is_some(), "item {round}-{n} of {items}");
        }
        for n in 0..*objects {
            let got = clients
                .s3
                .get_object()
                .bucket("objects")
                .key(format!("{round}-{n}"))
                .send()
                .await
                .unwrap();
            let body = got.body.collect().await.unwrap().to_vec();
            assert!(
                body.iter().all(|byte| *byte == n as u8) && !body.is_empty(),
                "object {round}-{n} of {objects}"
            );
        }
        for n in 0..*messages {
            assert!(bodies.contains(&format!("{round}-{n}")), "message {round}-{n} of {messages}");
        }
    }
}
