//! Tests selected parts of a status, and a status that exceeds the maximum response size.

use crate::common::{each, get, json, story};
use serde_json::{Value, json as value};
use sluice_browser_tests::story::{A, B, F, TestSystem, change, item_id, queue_key};
use sluice_config::pipeline::Manager;
use sluice_gate::{Head, InboxMessage, InboxMessageKind, Item};
use sluice_model::Timestamp;
use sluice_records::codec::decode;
use sluice_records::{queue, tenant};
use sluice_runtime::record::{Expect, Record, Write};

/// More jobs of one change, with a name of this many bytes each, than a response can carry.
const TOO_MANY: usize = 4_500;

/// The length of a job's name, in bytes.
const NAME_BYTES: usize = 1_500;

/// The maximum size of a response.
const CARRIED_MAX: usize = 6 << 20;

/// Gives a change of the gate queue many copies of another change's jobs.
fn fill(story: &TestSystem, of: sluice_model::ItemId) {
    let key = queue_key("acme", "gate", "integrated");
    let read = |id: &sluice_model::ItemId| story.world.record(&queue::item_key(&key, id)).unwrap();
    let mut job = decode::<Item>(&read(&item_id(&A))).unwrap().jobs.remove(0);
    job.summary.name = "j".repeat(NAME_BYTES).into();
    let record = read(&of);
    let item = Item { jobs: vec![job; TOO_MANY], ..decode(&record).unwrap() };
    let record = Record { body: serde_json::to_string(&item).unwrap(), ..record };
    story.world.write_unchecked(Write::Put { record, expect: Expect::Anything });
}

fn jobs(items: &Value) -> Vec<usize> {
    each(items, "jobs").into_iter().map(|jobs| jobs.as_array().unwrap().len()).collect()
}

/// Returns the number of jobs shown for each change of the gate queue, and the message about those
/// left out.
async fn shown(story: &TestSystem) -> [(Vec<usize>, String); 2] {
    let answer = async |what: &str| {
        let response = get(&story.api, &format!("/api/tenant/acme/{what}")).await;
        let text = String::from_utf8_lossy(response.body()).into_owned();
        assert!(value!(text).to_string().len() < CARRIED_MAX, "{what}");
        serde_json::from_str::<Value>(&text).unwrap()
    };
    let (status, board) = (answer("status").await, answer("board").await);
    let heads = status["pipelines"][1]["change_queues"][0]["heads"].as_array().unwrap();
    let items: Vec<Value> =
        heads.iter().flat_map(|items| items.as_array().unwrap()).cloned().collect();
    [
        (jobs(&value!(items)), status["state"]["info"].to_string()),
        (jobs(&board["pipelines"][1]["queues"][0]["items"]), board["problems"].to_string()),
    ]
}

/// Z9.1: a status that is too large leaves out the least important jobs first, and says so.
#[tokio::test]
async fn a_status_that_would_be_too_large_says_less_of_each_change() {
    let story = story().await;
    let whole = shown(&story).await;
    fill(&story, item_id(&F));
    for ((jobs, said), (before, _)) in shown(&story).await.iter().zip(&whole) {
        assert_eq!((&jobs[..5], jobs[5]), (&before[..5], 0), "of the change outside the window");
        assert!(
            said.contains("the jobs of changes outside the window of their queue are left out"),
            "{said}"
        );
    }
    fill(&story, item_id(&B));
    for (jobs, said) in shown(&story).await {
        assert_eq!(jobs, [0; 6]);
        assert!(said.contains("the jobs of all changes are left out"), "{said}");
    }
}

/// Z6.5, Z9.1: the queue of a hosted change is only shown if it has inbox messages.
#[tokio::test]
async fn the_queue_of_a_hosted_change_is_not_shown() {
    let story = story().await;
    let pipelines = async |of: &str| {
        json(&story.api, &format!("/api/tenant/acme/{of}")).await["pipelines"].clone()
    };
    let before = (pipelines("board").await, pipelines("status").await);
    let key = queue_key("acme", "check", "github.com/org/lib#11");
    let hosted_in = Some("github.com/org/app#17".into());
    let head = Head { hosted_in, ..Head::new(key.clone(), Manager::Independent, 0, 3) };
    let record = Record { revision: 1, ..queue::head_record(&head).unwrap() };
    story.world.write_unchecked(Write::Put { record, expect: Expect::Anything });
    story.world.write_unchecked(tenant::put_queue(&key, 0).unwrap());
    assert_eq!((pipelines("board").await, pipelines("status").await), before);
    let kind = InboxMessageKind::MoveToHost {
        change: change(&A),
        as_of: Timestamp(0),
        to: "github.com/org/app#17".into(),
    };
    let (id, event_id) = ("message-2".into(), "event".to_owned());
    let message = InboxMessage {
        id,
        at: Timestamp(1),
        event_id,
        layout: 0,
        by_operator: false,
        in_progress: false,
        kind,
    };
    story.world.write_unchecked(queue::put_message(&key, &message).unwrap());
    let shown = pipelines("board").await[0]["queues"].clone();
    assert_eq!(each(&shown, "name"), ["github.com/org/app#17", "github.com/org/lib#11"]);
    assert_eq!(each(&shown[1]["inbox"], "kind"), ["move-to-host"]);
}

/// Z9.1: one pipeline, project or change can be selected.
#[tokio::test]
async fn a_board_can_be_narrowed() {
    let story = story().await;
    let board =
        async |query: &str| json(&story.api, &format!("/api/tenant/acme/board?{query}")).await;
    let whole = board("").await;
    let gate = board("pipeline=gate").await;
    assert_eq!(each(&gate["pipelines"], "name"), ["gate"]);
    assert_eq!(gate["pipelines"][0], whole["pipelines"][1]);
    assert!(
        each(&gate["recent"], "pipeline").iter().all(|name| *name == "gate"),
        "{}",
        gate["recent"]
    );
    for name in ["org/lib", "github.com/org/lib", "*lib"] {
        let lib = board(&format!("project={name}")).await;
        let items = &lib["pipelines"][1]["queues"][0]["items"];
        let numbers: Vec<&Value> =
            each(items, "change").into_iter().map(|change| &change["number"]).collect();
        assert_eq!(numbers, [&value!(11), &value!(13), &value!(15)], "{name}");
        assert_eq!(
            lib["pipelines"][0]["queues"],
            value!([]),
            "a queue without any of its changes says nothing"
        );
    }
    let one = board(&format!("pipeline=gate&change={}", change(&B).id())).await;
    assert_eq!(each(&one["pipelines"][0]["queues"][0]["items"], "id"), [&value!(item_id(&B))]);
    let missing = get(&story.api, "/api/tenant/acme/board?pipeline=nowhere").await;
    assert_eq!(missing.status(), 404);
    assert!(
        String::from_utf8_lossy(missing.body())
            .contains("There is no pipeline nowhere in the tenant acme.")
    );
    assert_eq!(get(&story.api, "/api/tenant/acme/board?colour=red").await.status(), 404);
}
