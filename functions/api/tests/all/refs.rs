//! Tests branches and tags in lists of builds, and the times of events.

use crate::common::{json, story};
use serde_json::{Value, json as value};
use sluice_browser_tests::story::{NOW, TENANT, queue_key};
use sluice_gate::{Candidate, Item, Job, JobStatus, Slot, SlotStatus};
use sluice_model::build::{BuildResult, Order, Phase, Run, RunEnd};
use sluice_model::change::{ChangeRef, RefMove};
use sluice_model::git::Oid;
use sluice_model::{BuildId, ItemId, Timestamp};
use sluice_records::build;
use sluice_records::delivery::{self, DeliveryRecord, DeliveryState};
use sluice_records::report::{self, Buildset};
use sluice_runtime::Ports;
use sluice_runtime::record::{Expect, Write};

const PAGE: &str = "https://github.com/org/app/commit/5555";
const RECEIVED: Timestamp = Timestamp(NOW.0 - 90_000);

/// Writes the records of a branch that was pushed and tested: its buildset, build and delivery.
async fn pushed(ports: &Ports) -> (ItemId, BuildId) {
    let (id, built) = (ItemId::derive(&["pushed"]), BuildId::derive(&["pushed", "unit"]));
    let moved = RefMove::new("refs/heads/main", Oid("4".repeat(40)), Oid("5".repeat(40)));
    let change = ChangeRef::of_ref("github".into(), "github.com/org/app".into(), moved);
    let event = delivery::id(&"github".into(), "push-1");
    let queue = queue_key(TENANT, "post", "github.com/org/app");
    let slot = Slot {
        id: id.clone(),
        change: change.clone(),
        generation: 1,
        status: SlotStatus::Testing,
        version: 0,
    };
    let candidate = Candidate { url: PAGE.into(), ..Candidate::bare(&change) };
    let mut item = Item::admitted(&slot, candidate, event.as_str(), RECEIVED.plus_seconds(1));
    let ended = RunEnd {
        result: BuildResult::Success,
        detail: None,
        started_at: Some(RECEIVED.plus_seconds(3)),
        ended_at: RECEIVED.plus_seconds(8),
        data: Default::default(),
        data_object: None,
        log_url: None,
    };
    let summary = serde_json::from_value(
        value!({"name": "unit", "hash": "h", "voting": true, "attempts": 3, "labels": []}),
    )
    .unwrap();
    let mut job = Job::new(summary);
    job.build = Some(built.clone());
    job.status = JobStatus::Ended {
        result: ended.result,
        detail: None,
        started_at: ended.started_at,
        ended_at: ended.ended_at,
        log_url: None,
    };
    item.jobs.push(job);
    item.builds.push(built.clone());
    let order = Order {
        item: id.clone(),
        max_attempts: 3,
        graph: "jobs/unit".into(),
        speculation: "speculations/x".into(),
        event_id: event.to_string(),
        post_review: true,
        ordered_at: RECEIVED.plus_seconds(2),
        ..Order::sample(built.clone(), queue.clone(), "unit".into(), change)
    };
    let run = Run {
        build: built.clone(),
        session: "session-1".into(),
        phase: Phase::Ended(ended),
        claimed_at: RECEIVED.plus_seconds(2),
        playbook: None,
        lost: None,
    };
    let came = DeliveryRecord {
        connection: "github".into(),
        forge_id: "push-1".into(),
        event_name: "push".into(),
        received_at: RECEIVED,
        event: None,
        state: DeliveryState::Handled { effects: Vec::new(), at: RECEIVED },
    };
    let buildset = Buildset {
        id: id.clone(),
        queue,
        item,
        result: "SUCCESS".into(),
        why: "its jobs passed".into(),
        ended_at: RECEIVED.plus_seconds(9),
    };
    let mut of_run = build::new_run(&run).unwrap();
    of_run.revision = 1;
    let mut of_delivery = delivery::record(&event, &came).unwrap();
    of_delivery.revision = 1;
    let writes = vec![
        build::put_order(&order).unwrap(),
        Write::Put { record: of_run, expect: Expect::Anything },
        Write::Put { record: of_delivery, expect: Expect::Anything },
        report::put_buildset(&buildset).unwrap(),
    ];
    ports.records.commit(writes, "pushed").await.unwrap();
    (id, built)
}

/// Z9.1: a build of a push has a link and a time.
#[tokio::test]
async fn a_build_of_a_branch_says_where_its_commit_is_shown_and_when_the_push_came() {
    let story = story().await;
    let (item, built) = pushed(&story.world.ports()).await;
    let found = json(&story.api, "/api/tenant/acme/builds?ref=refs/heads/main").await;
    let one = json(&story.api, &format!("/api/tenant/acme/build/{built}")).await;
    let set = json(&story.api, &format!("/api/tenant/acme/buildset/{item}")).await;
    for build in [&found[0], &one] {
        assert_eq!(build["uuid"], built.as_str());
        assert_eq!(build["event_timestamp"], RECEIVED.to_iso());
    }
    let refs = [
        &found[0]["ref"],
        &one["ref"],
        &one["buildset"]["refs"][0],
        &set["builds"][0]["ref"],
        &set["refs"][0],
    ];
    for shown in refs {
        assert_eq!((&shown["ref_url"], &shown["ref"]), (&value!(PAGE), &value!("refs/heads/main")));
        assert_eq!((&shown["change"], &shown["newrev"]), (&Value::Null, &value!("5".repeat(40))));
    }
    assert_eq!(set["event_timestamp"], RECEIVED.to_iso());
    let sets = json(&story.api, "/api/tenant/acme/buildsets?ref=refs/heads/main").await;
    assert_eq!(
        (sets.as_array().unwrap().len(), &sets[0]["event_timestamp"]),
        (1, &value!(RECEIVED.to_iso()))
    );
}

/// Z9.1: without its expired delivery, a build only lacks the time of the event.
#[tokio::test]
async fn a_build_whose_event_is_forgotten_has_no_time_of_it() {
    let story = story().await;
    let builds = json(&story.api, "/api/tenant/acme/builds?change=12").await;
    assert_eq!(builds[0]["event_timestamp"], Value::Null);
    assert_eq!(builds[0]["ref"]["ref_url"], "https://github.com/org/app/pull/12");
}
