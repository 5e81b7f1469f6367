//! Records that cannot be read: what one of them says is left out, and everything else is told as
//! always.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use common::{each, get, json, story};
use serde_json::{Value, json as value};
use sluice_browser_tests::story::{A, B, C, E, G, Story, build_id, change, item_id, queue_key};
use sluice_config::pipeline::Manager;
use sluice_gate::Head;
use sluice_model::{ItemId, QueueKey};
use sluice_records::report::buildset_key;
use sluice_records::{build, change as changes, queue, session, tenant};
use sluice_runtime::record::{Expect, Key, Record, Write};

/// Makes a record unreadable.
fn damage(story: &Story, key: &Key) {
    let record = Record { body: "{}".to_owned(), ..story.world.record(key).unwrap() };
    story.world.write_directly(Write::Put { record, expect: Expect::Anything });
}

fn integrated() -> QueueKey {
    queue_key("acme", "gate", "integrated")
}

async fn builds(story: &Story) -> Value {
    json(&story.api, "/api/tenant/acme/builds").await
}

/// Z9.1: the key of the record says the name as well.
#[tokio::test]
async fn a_tenant_that_is_badly_listed_is_listed_with_the_others() {
    let story = story().await;
    let before = json(&story.api, "/api/tenants").await;
    damage(&story, &Key::new(tenant::TENANTS, "acme"));
    let after = json(&story.api, "/api/tenants").await;
    assert_eq!((each(&before, "name"), &before), (vec![&value!("acme"), &value!("other")], &after));
}

/// Z9.1: a queue whose place on the list is damaged is shown, and so is what is wrong.
#[tokio::test]
async fn a_queue_that_is_badly_listed_is_shown_with_what_is_wrong() {
    let story = story().await;
    let before = json(&story.api, "/api/tenant/acme/board").await;
    damage(&story, &tenant::queue_key(&integrated()));
    let after = json(&story.api, "/api/tenant/acme/board").await;
    assert_eq!(after["pipelines"], before["pipelines"]);
    let told = after["troubles"][0].as_str().unwrap();
    assert!(
        told.starts_with("The queue integrated of gate is shown by its name alone: the record "),
        "{told}"
    );
    assert!(told.ends_with("That record is to be mended."), "{told}");
    let status = json(&story.api, "/api/tenant/acme/status").await;
    assert!(
        status["state"]["info"].as_str().unwrap().contains("integrated of gate"),
        "{}",
        status["state"]
    );
    let item = json(&story.api, &format!("/api/tenant/acme/item/{}", item_id(&E))).await;
    assert_eq!(item["position"], 4);
}

/// Z9.1: where a change is looked at is an extra.
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

/// Z9.1: of an item that cannot be read its builds' own records tell enough.
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

/// Z9.1: a build of which nobody can say whether it ran is told of neither way.
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
    // How long jobs take is told by the others.
    json(&story.api, "/api/tenant/acme/status").await;
}

/// Z9.1: an executor of which nobody can read more than its name is named, and the others are told
/// of as always.
#[tokio::test]
async fn a_session_that_cannot_be_read_is_named_and_hides_no_other() {
    let story = story().await;
    let key = session::key(&"session-1".into());
    let good = story.world.record(&key).unwrap();
    let other = session::key(&"session-2".into());
    let find = Some(("sessions".to_owned(), "session-2".to_owned()));
    let record = Record { key: other.clone(), find, ..good };
    story.world.write_directly(Write::Put { record, expect: Expect::Anything });
    damage(&story, &other);
    let components = json(&story.api, "/api/components").await;
    let mut told: Vec<(&Value, &Value)> = components["executor"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| (&one["hostname"], &one["state"]))
        .collect();
    told.sort_by_key(|(hostname, _)| hostname.to_string());
    assert_eq!(
        told,
        [
            (&value!("executor-1"), &value!("running")),
            (&value!("session-2"), &value!("unreadable"))
        ],
        "{components}"
    );
}

async fn why(story: &Story, number: u64, project: &str) -> Value {
    json(&story.api, &format!("/api/tenant/acme/why?project={project}&change={number}")).await
}

fn of_pipeline<'v>(told: &'v Value, name: &str) -> &'v Value {
    told[0]["pipelines"]
        .as_array()
        .unwrap()
        .iter()
        .find(|pipeline| pipeline["pipeline"] == name)
        .unwrap()
}

/// Z1.6, Z9.1: where a change stands is told without what its forge showed of it, and nobody says
/// that it was never heard of.
#[tokio::test]
async fn a_change_whose_facts_cannot_be_read_is_explained_without_them() {
    let story = story().await;
    let before = why(&story, C.number, C.project).await;
    assert_eq!((&before[0]["seen"], &before[0]["troubles"]), (&value!(true), &value!([])));
    damage(&story, &changes::facts_key(&change(&C).key));
    let after = why(&story, C.number, C.project).await;
    assert_eq!(after[0]["pipelines"], before[0]["pipelines"]);
    assert_eq!(
        (&after[0]["seen"], &after[0]["nowhere"], &after[0]["status"]),
        (&value!(true), &Value::Null, &Value::Null)
    );
    let trouble = after[0]["troubles"][0].as_str().unwrap();
    assert!(
        trouble.starts_with("What the forge showed of org/lib#13 is left out: the record "),
        "{trouble}"
    );
}

/// Z1.6, Z9.1: of events that nobody can read it is not said that there were none.
#[tokio::test]
async fn a_change_whose_events_cannot_be_read_is_explained_without_them() {
    let story = story().await;
    let key = changes::verdicts_key(&change(&C).key);
    let record = Record { revision: 1, ..Record::new(key, "{}".to_owned()) };
    story.world.write_directly(Write::Put { record, expect: Expect::Anything });
    let told = why(&story, C.number, C.project).await;
    assert_eq!(of_pipeline(&told, "gate")["item"], item_id(&C).as_str());
    let check = of_pipeline(&told, "check");
    assert_eq!(check["why"], value!(["what became of its events cannot be read"]));
    assert!(
        told[0]["troubles"][0]
            .as_str()
            .unwrap()
            .starts_with("What became of the events of org/lib#13"),
        "{told}"
    );
}

/// Z1.6, Z9.1: a change that may stand in a queue which nobody can read is not said to be elsewhere
/// without a word of it.
#[tokio::test]
async fn a_change_of_a_queue_that_cannot_be_read_is_told_so() {
    let story = story().await;
    damage(&story, &queue::head_key(&integrated()));
    let told = why(&story, B.number, B.project).await;
    let gate = of_pipeline(&told, "gate");
    assert_eq!(gate["item"], Value::Null);
    assert_eq!(
        gate["why"][0],
        "it may stand there all the same: the queue integrated cannot be read"
    );
    assert!(told[0]["troubles"][0].as_str().unwrap().contains("integrated of gate"), "{told}");
    // What is in other queues is explained as always.
    let other = why(&story, G.number, G.project).await;
    assert_eq!(of_pipeline(&other, "check")["item"], item_id(&G).as_str());
}

/// Z1.6, Z6.5, Z9.1: nor is one that is tested as one with another, in that one's queue: its own
/// says in which it stands.
#[tokio::test]
async fn a_change_that_stands_in_a_queue_of_another_one_is_told_that_it_cannot_be_read() {
    let story = story().await;
    let home = queue_key("acme", "check", "github.com/org/app#17");
    let own = queue_key("acme", "check", "github.com/org/lib#11");
    let head = Head {
        stands_in: Some(home.queue.clone()),
        ..Head::new(own.clone(), Manager::Independent, 0, 3)
    };
    let record = Record { revision: 1, ..queue::head_record(&head).unwrap() };
    story.world.write_directly(Write::Put { record, expect: Expect::Anything });
    story.world.write_directly(tenant::put_queue(&own, 0).unwrap());
    damage(&story, &queue::head_key(&home));
    let told = why(&story, A.number, A.project).await;
    let check = of_pipeline(&told, "check");
    assert_eq!(check["item"], Value::Null);
    assert_eq!(
        check["why"][0],
        "it may stand there all the same: the queue github.com/org/app#17 cannot be read"
    );
}
