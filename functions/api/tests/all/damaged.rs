//! Tests answers with unreadable records: only the content of such a record is left out.

use crate::common::{each, get, json, story};
use serde_json::{Value, json as value};
use sluice_browser_tests::story::{
    A, B, C, E, G, TestSystem, build_id, change, item_id, queue_key,
};
use sluice_config::pipeline::Manager;
use sluice_gate::Head;
use sluice_model::{ItemId, QueueKey};
use sluice_records::report::buildset_key;
use sluice_records::{build, change as changes, queue, session, tenant};
use sluice_runtime::record::{Expect, Key, Record, Write};

/// Makes a record unreadable.
fn damage(story: &TestSystem, key: &Key) {
    let record = Record { body: "{}".to_owned(), ..story.world.record(key).unwrap() };
    story.world.write_unchecked(Write::Put { record, expect: Expect::Anything });
}

fn integrated() -> QueueKey {
    queue_key("acme", "gate", "integrated")
}

async fn builds(story: &TestSystem) -> Value {
    json(&story.api, "/api/tenant/acme/builds").await
}

/// Z9.1: the key of the record also has the name.
#[tokio::test]
async fn a_tenant_that_is_badly_listed_is_listed_with_the_others() {
    let story = story().await;
    let before = json(&story.api, "/api/tenants").await;
    damage(&story, &Key::new(tenant::TENANTS, "acme"));
    let after = json(&story.api, "/api/tenants").await;
    assert_eq!((each(&before, "name"), &before), (vec![&value!("acme"), &value!("other")], &after));
}

/// Z9.1: a queue with an unreadable index record is shown, with a message.
#[tokio::test]
async fn a_queue_that_is_badly_listed_is_shown_with_what_is_wrong() {
    let story = story().await;
    let before = json(&story.api, "/api/tenant/acme/board").await;
    damage(&story, &tenant::queue_key(&integrated()));
    let after = json(&story.api, "/api/tenant/acme/board").await;
    assert_eq!(after["pipelines"], before["pipelines"]);
    let answer = after["problems"][0].as_str().unwrap();
    assert!(
        answer.starts_with("Only the name of the queue integrated of gate is known: the record "),
        "{answer}"
    );
    assert!(answer.ends_with("Repair that record."), "{answer}");
    let status = json(&story.api, "/api/tenant/acme/status").await;
    assert!(
        status["state"]["info"].as_str().unwrap().contains("integrated of gate"),
        "{}",
        status["state"]
    );
    let item = json(&story.api, &format!("/api/tenant/acme/item/{}", item_id(&E))).await;
    assert_eq!(item["position"], 4);
}

/// Z9.1: the address of a change is optional.
#[tokio::test]
async fn a_change_whose_facts_cannot_be_read_hides_no_build() {
    let story = story().await;
    let before = builds(&story).await;
    damage(&story, &changes::facts_key(&change(&C).key));
    let after = builds(&story).await;
    assert_eq!(each(&after, "uuid"), each(&before, "uuid"));
    let build =
        json(&story.api, &format!("/api/tenant/acme/build/{}", build_id(&C, "unit", 1))).await;
    assert_eq!((&build["ref"]["change"], &build["ref"]["ref_url"]), (&value!(13), &Value::Null));
}

/// Z9.1: builds of an unreadable item are shown from their own records.
#[tokio::test]
async fn an_item_that_cannot_be_read_hides_no_build() {
    let story = story().await;
    let before = builds(&story).await;
    damage(&story, &queue::item_key(&integrated(), &item_id(&B)));
    let after = builds(&story).await;
    assert_eq!(each(&after, "uuid"), each(&before, "uuid"));
}

/// Z9.1
#[tokio::test]
async fn a_buildset_that_cannot_be_read_hides_no_other() {
    let story = story().await;
    let ids =
        |list: &Value, name: &str| each(list, name).into_iter().cloned().collect::<Vec<Value>>();
    let recent = ids(&json(&story.api, "/api/tenant/acme/board").await["recent"], "id");
    let all = ids(&json(&story.api, "/api/tenant/acme/buildsets").await, "uuid");
    damage(&story, &buildset_key(&ItemId::from(recent[1].as_str().unwrap())));
    let but_one =
        |list: Vec<Value>| list.into_iter().filter(|id| *id != recent[1]).collect::<Vec<_>>();
    let board = json(&story.api, "/api/tenant/acme/board").await;
    assert_eq!(ids(&board["recent"], "id"), but_one(recent.clone()));
    let left = json(&story.api, "/api/tenant/acme/buildsets").await;
    assert_eq!(ids(&left, "uuid"), but_one(all));
}

/// Z9.1: a build with an unreadable run is shown neither as running nor as waiting.
#[tokio::test]
async fn a_build_that_cannot_be_read_hides_no_other_and_is_not_called_missing() {
    let story = story().await;
    let id = build_id(&C, "unit", 1);
    let but_one = |list: &Value| {
        let uuids = each(list, "uuid").into_iter().filter(|uuid| **uuid != value!(id));
        uuids.cloned().collect::<Vec<Value>>()
    };
    let expected = but_one(&builds(&story).await);
    damage(&story, &build::run_key(&id));
    let left = builds(&story).await;
    assert_eq!(each(&left, "uuid"), expected.iter().collect::<Vec<_>>());
    assert_eq!(get(&story.api, &format!("/api/tenant/acme/build/{id}")).await.status(), 503);
    // Estimates come from the other builds.
    json(&story.api, "/api/tenant/acme/status").await;
}

/// Z9.1: an executor with an unreadable session is listed by its id; the others are listed
/// normally.
#[tokio::test]
async fn a_session_that_cannot_be_read_is_named_and_hides_no_other() {
    let story = story().await;
    let key = session::key(&"session-1".into());
    let good = story.world.record(&key).unwrap();
    let other = session::key(&"session-2".into());
    let find = Some(("sessions".to_owned(), "session-2".to_owned()));
    let record = Record { key: other.clone(), find, ..good };
    story.world.write_unchecked(Write::Put { record, expect: Expect::Anything });
    damage(&story, &other);
    let components = json(&story.api, "/api/components").await;
    let mut answer: Vec<(&Value, &Value)> = components["executor"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| (&one["hostname"], &one["state"]))
        .collect();
    answer.sort_by_key(|(hostname, _)| hostname.to_string());
    assert_eq!(
        answer,
        [
            (&value!("executor-1"), &value!("running")),
            (&value!("session-2"), &value!("unreadable"))
        ],
        "{components}"
    );
}

async fn why(story: &TestSystem, number: u64, project: &str) -> Value {
    json(&story.api, &format!("/api/tenant/acme/why?project={project}&change={number}")).await
}

fn of_pipeline<'v>(answer: &'v Value, name: &str) -> &'v Value {
    answer[0]["pipelines"]
        .as_array()
        .unwrap()
        .iter()
        .find(|pipeline| pipeline["pipeline"] == name)
        .unwrap()
}

/// Z1.6, Z9.1: the state of a change is shown without its unreadable facts, and the change counts
/// as known.
#[tokio::test]
async fn a_change_whose_facts_cannot_be_read_is_explained_without_them() {
    let story = story().await;
    let before = why(&story, C.number, C.project).await;
    assert_eq!((&before[0]["seen"], &before[0]["problems"]), (&value!(true), &value!([])));
    damage(&story, &changes::facts_key(&change(&C).key));
    let after = why(&story, C.number, C.project).await;
    assert_eq!(after[0]["pipelines"], before[0]["pipelines"]);
    assert_eq!(
        (&after[0]["seen"], &after[0]["not_enqueued"], &after[0]["status"]),
        (&value!(true), &Value::Null, &Value::Null)
    );
    let problem = after[0]["problems"][0].as_str().unwrap();
    assert!(
        problem.starts_with("The data of org/lib#13 from its forge is left out: the record "),
        "{problem}"
    );
}

/// Z1.6, Z9.1: unreadable outcomes of events are reported instead of ignored.
#[tokio::test]
async fn a_change_whose_events_cannot_be_read_is_explained_without_them() {
    let story = story().await;
    let key = changes::verdicts_key(&change(&C).key);
    let record = Record { revision: 1, ..Record::new(key, "{}".to_owned()) };
    story.world.write_unchecked(Write::Put { record, expect: Expect::Anything });
    let answer = why(&story, C.number, C.project).await;
    assert_eq!(of_pipeline(&answer, "gate")["item"], item_id(&C).as_str());
    let check = of_pipeline(&answer, "check");
    assert_eq!(check["why"], value!(["the outcomes of its events could not be read"]));
    assert!(
        answer[0]["problems"][0].as_str().unwrap().starts_with("The routing record of org/lib#13"),
        "{answer}"
    );
}

/// Z1.6, Z9.1: an unreadable queue is named for a change that may be in it.
#[tokio::test]
async fn an_unreadable_queue_is_named_for_its_changes() {
    let story = story().await;
    damage(&story, &queue::head_key(&integrated()));
    let answer = why(&story, B.number, B.project).await;
    let gate = of_pipeline(&answer, "gate");
    assert_eq!(gate["item"], Value::Null);
    assert_eq!(
        gate["why"][0],
        "it may be queued all the same: the queue integrated could not be read"
    );
    assert!(answer[0]["problems"][0].as_str().unwrap().contains("integrated of gate"), "{answer}");
    // Changes in other queues are explained normally.
    let other = why(&story, G.number, G.project).await;
    assert_eq!(of_pipeline(&other, "check")["item"], item_id(&G).as_str());
}

/// Z1.6, Z6.5, Z9.1: an unreadable host queue is named for a hosted change.
#[tokio::test]
async fn an_unreadable_host_queue_is_named_for_a_hosted_change() {
    let story = story().await;
    let home = queue_key("acme", "check", "github.com/org/app#17");
    let own = queue_key("acme", "check", "github.com/org/lib#11");
    let head = Head {
        hosted_in: Some(home.queue.clone()),
        ..Head::new(own.clone(), Manager::Independent, 0, 3)
    };
    let record = Record { revision: 1, ..queue::head_record(&head).unwrap() };
    story.world.write_unchecked(Write::Put { record, expect: Expect::Anything });
    story.world.write_unchecked(tenant::put_queue(&own, 0).unwrap());
    damage(&story, &queue::head_key(&home));
    let answer = why(&story, A.number, A.project).await;
    let check = of_pipeline(&answer, "check");
    assert_eq!(check["item"], Value::Null);
    assert_eq!(
        check["why"][0],
        "it may be queued all the same: the queue github.com/org/app#17 could not be read"
    );
}
