//! Tests bundles in the status: one item with several refs.

use crate::common::{each, json, story};
use serde_json::{Value, json as value};
use sluice_browser_tests::story::{
    A, B, C, D, E, F, G, NOW, StoryChange, TestSystem, build_id, change, item_id, queue_key,
};
use sluice_config::pipeline::Manager;
use sluice_gate::queue::Predecessor;
use sluice_gate::{Candidate, Head, Item, JobStatus, MergeStatus, Slot};
use sluice_model::QueueKey;
use sluice_model::job::BuildSharing;
use sluice_records::codec::{decode, encode_first, with_body};
use sluice_records::{queue, tenant};
use sluice_runtime::record::{Expect, Record, Write};

/// Enqueued in check with G, as a bundle.
const H: StoryChange = StoryChange {
    project: "org/lib",
    number: 18,
    title: "Say what a dry run would do",
    author: "ada",
};

fn put(story: &TestSystem, record: Record) {
    story.world.write_unchecked(Write::Put { record, expect: Expect::Anything });
}

fn gate() -> QueueKey {
    queue_key("acme", "gate", "integrated")
}

/// Edits the head record of a queue.
async fn edit_head(story: &TestSystem, key: &QueueKey, edit: impl FnOnce(&mut Head)) {
    let mut head = queue::load(&story.world.ports(), key).await.unwrap().head.unwrap();
    edit(&mut head);
    let record = story.world.record(&queue::head_key(key)).unwrap();
    put(story, with_body(record, &head.stored()).unwrap());
}

/// Edits an item of the gate queue.
fn edit_item(story: &TestSystem, of: &StoryChange, edit: impl FnOnce(&mut Item)) {
    let record = story.world.record(&queue::item_key(&gate(), &item_id(of))).unwrap();
    let mut item: Item = decode(&record).unwrap();
    edit(&mut item);
    put(story, with_body(record, &item).unwrap());
}

/// Returns an item of the gate queue.
fn item(story: &TestSystem, of: &StoryChange) -> Item {
    decode(&story.world.record(&queue::item_key(&gate(), &item_id(of))).unwrap()).unwrap()
}

/// Writes the fixture with B and C as a bundle, which is tested on A; D is tested on the bundle.
async fn bundle_story() -> TestSystem {
    let story = story().await;
    edit_head(&story, &gate(), |head| {
        let second = head.entries.remove(2);
        head.entries[1].members.extend(second.members);
        head.entries[2].ahead = Some(Predecessor { item: item_id(&C), generation: 1 });
    })
    .await;
    story
}

/// Returns the items of the gate queue.
async fn items(story: &TestSystem) -> Value {
    let status = json(&story.api, "/api/tenant/acme/status").await;
    let heads = &status["pipelines"][1]["change_queues"][0]["heads"];
    assert_eq!(heads.as_array().unwrap().len(), 1, "only A has no item ahead");
    heads[0].clone()
}

/// Z6.5, Z9.1: a bundle is one item, under the id of the first member, with the refs of all
/// members.
#[tokio::test]
async fn changes_that_need_each_other_are_one_item_with_several_refs() {
    let story = bundle_story().await;
    let items = items(&story).await;
    let ids: Vec<Value> = [&A, &B, &D, &E, &F].into_iter().map(|of| value!(item_id(of))).collect();
    assert_eq!(each(&items, "id"), ids.iter().collect::<Vec<_>>());
    assert_eq!(each(&items[1]["refs"], "id"), [&value!(change(&B).id()), &value!(change(&C).id())]);
    assert_eq!(each(&items[1]["refs"], "project"), ["org/app", "org/lib"]);
    assert_eq!(each(&items[1]["refs"], "owner"), ["grace", "linus"]);
    assert_eq!(each(&items[2]["refs"], "id"), [&value!(change(&D).id())]);
    assert_eq!(items[1]["live"], true);
    assert_eq!(items[1]["enqueue_time"], item(&story, &B).admitted_at.0);
    assert_eq!(
        each(&items, "active"),
        [true; 5],
        "they count once for the window, which holds F as well"
    );
}

/// Z6.4, Z6.5: an item that is tested on any member is shown on top of the bundle's item.
#[tokio::test]
async fn what_is_tested_on_a_bundle_points_to_its_one_item() {
    let story = bundle_story().await;
    let items = items(&story).await;
    let ahead = [
        Value::Null,
        value!(item_id(&A)),
        value!(item_id(&B)),
        value!(item_id(&D)),
        value!(item_id(&E)),
    ];
    assert_eq!(each(&items, "item_ahead"), ahead.iter().collect::<Vec<_>>());
    let behind = [
        value!([item_id(&B)]),
        value!([item_id(&D)]),
        value!([item_id(&E)]),
        value!([item_id(&F)]),
        value!([]),
    ];
    assert_eq!(each(&items, "items_behind"), behind.iter().collect::<Vec<_>>());
}

/// Z6.5, Z9.1: the item has the jobs of all members, and each build leads to its own change.
#[tokio::test]
async fn a_bundle_has_the_jobs_of_all_of_its_changes() {
    let story = bundle_story().await;
    let bundle = items(&story).await[1].clone();
    assert_eq!(each(&bundle["jobs"], "name"), ["unit", "integration", "unit", "docs"]);
    let of = [(&B, "unit"), (&B, "integration"), (&C, "unit"), (&C, "docs")];
    let builds = of.map(|(of, job)| value!(build_id(of, job, 1)));
    assert_eq!(each(&bundle["jobs"], "uuid"), builds.iter().collect::<Vec<_>>());
    for (job, number) in bundle["jobs"].as_array().unwrap().iter().zip([12, 12, 13, 13]) {
        let build =
            json(&story.api, &format!("/api/tenant/acme/build/{}", job["uuid"].as_str().unwrap()))
                .await;
        assert_eq!((&build["job_name"], &build["ref"]["change"]), (&job["name"], &value!(number)));
    }
    assert_eq!(
        bundle["failing_reasons"],
        value!(["at least one job failed"]),
        "that of C fails both"
    );
    edit_item(&story, &C, |item| item.jobs.truncate(1));
    let bundle = items(&story).await[1].clone();
    assert_eq!(bundle["remaining_time"], 80_000, "of integration, which takes longest");
    edit_item(&story, &C, |item| {
        (item.jobs, item.merge_status) = (Vec::new(), MergeStatus::NotRequested)
    });
    let bundle = items(&story).await[1].clone();
    assert_eq!(
        (&bundle["remaining_time"], &bundle["failing_reasons"]),
        (&Value::Null, &value!([]))
    );
    let why = "src/lib.rs does not merge with main".to_owned();
    edit_item(&story, &C, |item| {
        item.merge_status =
            MergeStatus::Unmergeable { why, configuration: false, notes: Vec::new() }
    });
    assert_eq!(items(&story).await[1]["failing_reasons"], value!(["it does not merge"]));
}

/// Z6.5, D15: a job that runs once for several members is listed once, even before its build
/// exists.
#[tokio::test]
async fn a_job_that_runs_once_for_a_bundle_is_listed_once() {
    let story = bundle_story().await;
    let names = async || {
        let bundle = items(&story).await[1].clone();
        each(&bundle["jobs"], "name")
            .into_iter()
            .map(|name| name.as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    // C and B share the build of a job; the other jobs of C wait.
    edit_item(&story, &B, |item| {
        item.jobs.iter_mut().for_each(|job| job.summary.sharing = BuildSharing::InBundle)
    });
    let of_first = item(&story, &B).jobs;
    edit_item(&story, &C, |item| {
        let docs = item.jobs.remove(1);
        item.jobs = of_first.clone();
        item.jobs.push(docs);
        let integration = &mut item.jobs[1];
        (integration.build, integration.attempt, integration.status) =
            (None, 0, JobStatus::Waiting);
    });
    assert_eq!(
        names().await,
        ["unit", "integration", "docs"],
        "integration will take over the build of B"
    );
    let bundle = items(&story).await[1].clone();
    assert_eq!(bundle["jobs"][1]["uuid"], build_id(&B, "integration", 1).as_str());
    // If a dependency has a build of its own, the job does too.
    edit_item(&story, &C, |item| item.jobs[0].build = Some(build_id(&C, "unit", 1)));
    assert_eq!(names().await, ["unit", "integration", "unit", "integration", "docs"]);
    // Before any build exists, jobs that are frozen identically will share a build.
    for of in [&B, &C] {
        edit_item(&story, of, |item| {
            for job in &mut item.jobs {
                (job.build, job.attempt, job.status) = (None, 0, JobStatus::Waiting);
            }
        });
    }
    assert_eq!(names().await, ["unit", "integration", "docs"]);
    edit_item(&story, &C, |item| item.jobs[0].summary.hash = "another".to_owned());
    assert_eq!(names().await, ["unit", "integration", "unit", "integration", "docs"]);
    edit_item(&story, &C, |item| {
        item.jobs[0].summary.hash = of_first[0].summary.hash.clone();
        item.jobs[0].summary.sharing = BuildSharing::Never;
    });
    assert_eq!(names().await, ["unit", "integration", "unit", "integration", "docs"]);
}

/// Z6.5, Z9.1: any member selects the bundle, in Zuul's route and on the board.
#[tokio::test]
async fn any_change_of_a_bundle_finds_it() {
    let story = bundle_story().await;
    let whole = items(&story).await[1].clone();
    for of in [&B, &C] {
        let id = change(of).id();
        let found = json(&story.api, &format!("/api/tenant/acme/status/change/{id}")).await;
        assert_eq!(found, value!([whole]), "{id}");
        let board =
            json(&story.api, &format!("/api/tenant/acme/board?pipeline=gate&change={id}")).await;
        let shown = &board["pipelines"][0]["queues"][0]["items"];
        assert_eq!(each(shown, "id"), [&value!(item_id(&B)), &value!(item_id(&C))], "{id}");
        assert_eq!(shown[0]["bundle"], value!([{"project": "org/lib", "number": 13}]));
        assert_eq!(shown[1]["bundle"], value!([{"project": "org/app", "number": 12}]));
    }
}

/// Z6.5: in an independent pipeline, a bundle is one item of its host queue, whichever member is
/// selected.
#[tokio::test]
async fn a_change_that_stands_in_the_queue_of_another_one_is_a_ref_of_its_item() {
    let story = story().await;
    let [host, hosted] = ["github.com/org/app#17", "github.com/org/lib#18"]
        .map(|name| queue_key("acme", "check", name));
    let slot = Slot::new(item_id(&H), change(&H));
    let item = Item::admitted(&slot, Candidate::bare(&slot.change), "event", NOW);
    put(&story, encode_first(queue::item_key(&host, &item.id), &item).unwrap());
    edit_head(&story, &host, |head| head.entries[0].members.push(slot)).await;
    let lent = Head {
        hosted_in: Some(host.queue.clone()),
        ..Head::new(hosted.clone(), Manager::Independent, 0, 3)
    };
    put(&story, Record { revision: 1, ..queue::head_record(&lent).unwrap() });
    story.world.write_unchecked(tenant::put_queue(&hosted, 0).unwrap());
    let status = json(&story.api, "/api/tenant/acme/status").await;
    let queues = &status["pipelines"][0]["change_queues"];
    assert_eq!(each(queues, "name"), ["org/app"]);
    let only = &queues[0]["heads"];
    assert_eq!(each(&only[0], "id"), [&value!(item_id(&G))]);
    assert_eq!(only.as_array().unwrap().len(), 1);
    assert_eq!(
        each(&only[0][0]["refs"], "id"),
        [&value!(change(&G).id()), &value!(change(&H).id())]
    );
    let found =
        json(&story.api, &format!("/api/tenant/acme/status/change/{}", change(&H).id())).await;
    assert_eq!(found, only[0]);
}
