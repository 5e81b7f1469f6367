//! Tests builds and buildsets: JSON shapes, filters, pages of lists.

use crate::common::{each, get, json, keys, story};
use serde_json::{Value, json as value};
use sluice_browser_tests::story::{A, B, C, E, build_id, item_id};
use sluice_gate::autohold::{Autohold, HeldNodes};
use sluice_model::build::{BuildResult, EndWithoutRun, Order};
use sluice_model::{BuildId, ProjectName, Timestamp};
use sluice_records::autohold;
use sluice_records::build::{self, StopRequest};
use sluice_records::codec::decode;
use sluice_runtime::record::{Expect, Record, Write};

const BUILD: [&str; 22] = [
    "_id",
    "artifacts",
    "buildset",
    "duration",
    "end_time",
    "error_detail",
    "event_id",
    "event_timestamp",
    "execute_time",
    "final",
    "held",
    "job_name",
    "log_url",
    "nodeset",
    "pipeline",
    "provides",
    "queue_item_uuid",
    "ref",
    "result",
    "start_time",
    "uuid",
    "voting",
];

/// Z9.1: the shape of a build.
#[tokio::test]
async fn builds_are_listed_newest_first() {
    let story = story().await;
    let builds = json(&story.api, "/api/tenant/acme/builds").await;
    let numbers: Vec<u64> =
        each(&builds, "_id").into_iter().map(|id| id.as_u64().unwrap()).collect();
    assert!(numbers.is_sorted_by(|newer, older| newer >= older), "{numbers:?}");
    assert_eq!(numbers.len(), 15, "with the job that was skipped");
    for build in builds.as_array().unwrap() {
        assert_eq!(keys(build), BUILD);
        assert_eq!(
            keys(&build["ref"]),
            ["branch", "change", "newrev", "oldrev", "patchset", "project", "ref", "ref_url"]
        );
        assert_eq!(keys(&build["buildset"]), ["uuid"]);
    }
}

/// Z9.1
#[tokio::test]
async fn a_build_that_is_over_says_how_long_it_took_and_where_its_logs_are() {
    let story = story().await;
    let id = build_id(&C, "unit", 1);
    let build = json(&story.api, &format!("/api/tenant/acme/build/{id}")).await;
    assert_eq!(
        (&build["result"], &build["final"], &build["duration"]),
        (&value!("FAILURE"), &value!(true), &value!(41.0))
    );
    let detail = "2 of 314 tests failed\nIn the run playbook unit.yaml.";
    assert_eq!(build["error_detail"], detail);
    assert_eq!(build["log_url"], format!("https://ci.example.org/logs/acme/{id}/"));
    let artifacts = build["artifacts"].as_array().unwrap();
    assert_eq!(artifacts.len(), 1, "an artifact without an address is none");
    let report = format!("https://ci.example.org/logs/acme/{id}/report/");
    assert_eq!(artifacts[0]["url"], report, "a relative address is completed");
    assert_eq!(build["warnings"], value!(["the mirror was slow"]));
    assert_eq!(build["ref"]["ref_url"], "https://github.com/org/lib/pull/13");
    assert_eq!(build["buildset"]["refs"][0]["change"], 13);
    assert_eq!(build["buildset"]["uuid"], item_id(&C).as_str());
}

/// Z9.1
#[tokio::test]
async fn a_build_that_runs_has_no_end() {
    let story = story().await;
    let build =
        json(&story.api, &format!("/api/tenant/acme/build/{}", build_id(&B, "integration", 1)))
            .await;
    for name in ["result", "final", "end_time", "duration", "log_url"] {
        assert_eq!(build[name], Value::Null, "{name}");
    }
    assert_eq!(build["start_time"], "2026-11-21T11:01:05");
    assert_eq!(build["nodeset"], "pair");
}

/// Z9.1, Z1.6, Z7.3: a build without the end of a run has the result that the gate gave it.
#[tokio::test]
async fn a_build_without_an_end_of_its_run_has_the_result_that_the_gate_gave_it() {
    let story = story().await;
    let of = async |id: &BuildId| {
        let build = json(&story.api, &format!("/api/tenant/acme/build/{id}")).await;
        ["result", "error_detail", "start_time", "end_time", "final"]
            .map(|name| build[name].clone())
    };
    let stop = StopRequest {
        why: "no machine of it ever answered".to_owned(),
        at: Timestamp(1_795_259_025_000),
        executor_is_dead: false,
        result: Some(BuildResult::NodeFailure),
    };
    let open = json(&story.api, "/api/tenant/acme/builds?complete=false").await;
    let with_start = |build: &&Value, started: bool| build["start_time"].is_string() == started;
    let id = |started: bool| {
        let mut builds = open.as_array().unwrap().iter();
        let build = builds.find(|build| with_start(build, started)).unwrap();
        BuildId::from(build["uuid"].as_str().unwrap())
    };
    let (ordered, running) = (id(false), id(true));
    story.world.write_unchecked(build::put_stop(&ordered, &stop).unwrap());
    let why = stop.why.clone();
    let ended_at = stop.at.to_iso();
    assert_eq!(
        of(&ordered).await,
        [value!("NODE_FAILURE"), value!(why), Value::Null, value!(ended_at), value!(true)]
    );
    let started = of(&running).await[2].clone();
    let lost = StopRequest { executor_is_dead: true, result: None, ..stop.clone() };
    story.world.write_unchecked(build::put_stop(&running, &lost).unwrap());
    assert_eq!(
        of(&running).await,
        [value!("RETRY"), value!(why), started, value!(ended_at), value!(false)]
    );
    let ended = Order {
        build: BuildId::derive(&["ended at once"]),
        end: Some(EndWithoutRun { result: BuildResult::NodeFailure, detail: Some(why.clone()) }),
        ..decode(&story.world.record(&build::order_key(&ordered)).unwrap()).unwrap()
    };
    story.world.write_unchecked(build::put_order(&ended).unwrap());
    let at = value!(ended.ordered_at.to_iso());
    assert_eq!(
        of(&ended.build).await,
        [value!("NODE_FAILURE"), value!(why), Value::Null, at, value!(true)]
    );
    let failed = json(&story.api, "/api/tenant/acme/builds?result=NODE_FAILURE").await;
    assert_eq!(failed.as_array().unwrap().len(), 2, "{failed}");
}

/// Z9.1: filters; a parameter given twice means either.
#[tokio::test]
async fn builds_are_filtered() {
    let story = story().await;
    let count = async |query: &str| {
        json(&story.api, &format!("/api/tenant/acme/builds?{query}"))
            .await
            .as_array()
            .unwrap()
            .len()
    };
    assert_eq!(count("project=org/lib&job_name=unit").await, 3);
    assert_eq!(count("project=github.com%2Forg%2Flib&job_name=un*").await, 3);
    assert_eq!(count("job_name=docs&job_name=integration").await, 7);
    assert_eq!(count("result=FAILURE").await, 3);
    assert_eq!(count("exclude_result=FAILURE&complete=true").await, 7);
    assert_eq!(count("complete=false").await, 5);
    assert_eq!(count("voting=False").await, count("job_name=docs").await);
    assert_eq!(count("change=12&pipeline=gate").await, 2);
    assert_eq!(count("change=12&pipeline=check").await, 0);
    assert_eq!(count("newrev=abc").await, 0);
    assert_eq!(count("final=true&result=SUCCESS").await, 6);
    assert_eq!(
        get(&story.api, "/api/tenant/acme/builds?colour=red").await.status(),
        404,
        "an unknown parameter"
    );
    assert_eq!(get(&story.api, "/api/tenant/acme/builds?idx_max=soon").await.status(), 400);
}

/// N15, Z9.1: a build with held nodes is marked, and can be selected; it and the request say how to
/// log in on the nodes.
#[tokio::test]
async fn a_build_whose_nodes_are_kept_says_so() {
    let story = story().await;
    let id = build_id(&C, "unit", 1);
    let held = HeldNodes {
        build: id.clone(),
        provider: "p".into(),
        nodes: vec!["node".into()],
        until: Some(Timestamp(5)),
    };
    let request = Autohold {
        id: "0000000001".to_owned(),
        tenant: "acme".into(),
        project: ProjectName::new("github.com", "org/lib"),
        job: "unit".into(),
        ref_filter: ".*".to_owned(),
        reason: "to look at it".to_owned(),
        by: "ada".to_owned(),
        max_count: 1,
        node_expiration_seconds: None,
        ssh_key: Some("ssh-ed25519 AAAA ada".to_owned()),
        created_at: Timestamp(0),
        held: vec![held],
    };
    let list =
        async |query: &str| json(&story.api, &format!("/api/tenant/acme/builds?{query}")).await;
    let all = list("").await;
    assert_eq!(list("held=True").await, value!([]));
    story.world.write_unchecked(autohold::create(&request).unwrap());
    let damaged = Record::new(autohold::key(&request.tenant, "0000000002"), "{}".to_owned());
    story.world.write_unchecked(Write::Put { record: damaged, expect: Expect::Absent });
    let held = list("held=True").await;
    assert_eq!(
        (each(&held, "uuid"), each(&held, "held")),
        (vec![&value!(id)], vec![&value!(true)])
    );
    let others = list("held=0").await;
    assert_eq!(others.as_array().unwrap().len(), all.as_array().unwrap().len() - 1);
    assert!(each(&others, "held").iter().all(|held| **held == value!(false)), "{others}");
    let path = format!("/api/tenant/acme/build/{id}");
    let build = json(&story.api, &path).await;
    assert_eq!((&build["held"], build.get("held_nodes")), (&value!(true), None), "it is gone");
    story.write_held_node("node", "p", &id).unwrap();
    let nodes = json(&story.api, &path).await["held_nodes"].clone();
    let login = value!([{
        "autohold": "0000000001", "build": id, "node": "node", "provider": "p",
        "held_until": Timestamp(5).to_iso(), "address": "10.0.0.7", "port": 2222,
        "username": "zuul", "ssh_key": "ssh-ed25519 AAAA ada",
        "ssh": "ssh -i PRIVATE_KEY_FILE zuul@10.0.0.7 -p 2222",
        "host_key": "ssh-ed25519 AAAAhost", "known_hosts": "[10.0.0.7]:2222 ssh-ed25519 AAAAhost",
    }]);
    assert_eq!(nodes, login);
    let shown = json(&story.api, "/api/tenant/acme/autohold/0000000001").await;
    assert_eq!((&shown["held_nodes"], &shown["requested_by"]), (&login, &value!("ada")));
    assert_eq!(shown["held_until"], Timestamp(5).to_iso());
    let listed = &json(&story.api, "/api/tenant/acme/autohold").await[0];
    assert_eq!((&listed["requested_by"], &listed["ssh_key"]), (&value!("ada"), &shown["ssh_key"]));
    assert_eq!((&listed["node_expiration"], listed.get("held_nodes")), (&value!(null), None));
    let buildset = json(&story.api, &format!("/api/tenant/acme/buildset/{}", item_id(&C))).await;
    let of_buildset: Vec<&Value> = buildset["builds"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|build| build["held"] == true)
        .collect();
    assert_eq!(of_buildset.iter().map(|build| &build["uuid"]).collect::<Vec<_>>(), [&value!(id)]);
    let listed = json(&story.api, "/api/tenant/acme/autohold").await;
    assert_eq!(each(&listed, "current_count"), [&value!(1)], "what cannot be read hides no other");
}

/// Z9.1: consecutive pages contain every build exactly once.
#[tokio::test]
async fn pages_join_without_gap_or_repeat() {
    let story = story().await;
    let all = json(&story.api, "/api/tenant/acme/builds").await;
    let all = each(&all, "uuid");
    let mut by_skip = Vec::new();
    for skip in (0..16).step_by(4) {
        let page = json(&story.api, &format!("/api/tenant/acme/builds?limit=4&skip={skip}")).await;
        by_skip.extend(page.as_array().unwrap().iter().map(|build| build["uuid"].clone()));
    }
    assert_eq!(by_skip.iter().collect::<Vec<_>>(), all);
    let (mut by_number, mut next) = (Vec::new(), String::new());
    for _ in 0..20 {
        let page = json(&story.api, &format!("/api/tenant/acme/builds?limit=4{next}")).await;
        let Some(last) = page.as_array().unwrap().last() else {
            break;
        };
        next = format!("&idx_max={}", last["_id"].as_u64().unwrap() - 1);
        by_number.extend(page.as_array().unwrap().iter().map(|build| build["uuid"].clone()));
    }
    assert_eq!(by_number.iter().collect::<Vec<_>>(), all);
}

/// Z9.1: a skipped job is a build without an id.
#[tokio::test]
async fn a_buildset_has_its_builds_and_the_jobs_that_were_skipped() {
    let story = story().await;
    let failed = json(&story.api, "/api/tenant/acme/buildsets?result=FAILURE").await;
    assert_eq!(failed.as_array().unwrap().len(), 1);
    let expected = [
        "_id",
        "event_id",
        "event_timestamp",
        "first_build_start_time",
        "last_build_end_time",
        "message",
        "parameters",
        "pipeline",
        "queue_item_uuid",
        "refs",
        "result",
        "user_id",
        "uuid",
    ];
    assert_eq!(keys(&failed[0]), expected);
    let one = json(
        &story.api,
        &format!("/api/tenant/acme/buildset/{}", failed[0]["uuid"].as_str().unwrap()),
    )
    .await;
    assert_eq!(each(&one["builds"], "result"), ["FAILURE", "SKIPPED"]);
    assert_eq!(one["builds"][1]["uuid"], Value::Null);
    assert_eq!(one["message"], "unit failed");
}

/// Z9.1: a skipped job is listed among the builds once its item has left, ordered by time, and
/// matches filters.
#[tokio::test]
async fn skipped_jobs_are_listed_among_the_builds() {
    let story = story().await;
    let list =
        async |query: &str| json(&story.api, &format!("/api/tenant/acme/builds?{query}")).await;
    let skipped = list("result=SKIPPED").await;
    assert_eq!((skipped.as_array().unwrap().len(), keys(&skipped[0])), (1, BUILD.to_vec()));
    let one = &skipped[0];
    assert_eq!(
        (&one["uuid"], &one["job_name"], &one["start_time"]),
        (&Value::Null, &value!("integration"), &Value::Null)
    );
    assert_eq!(
        (&one["final"], &one["pipeline"], &one["ref"]["change"]),
        (&value!(true), &value!("gate"), &value!(8))
    );
    let number = one["_id"].as_u64().unwrap();
    let beyond = number + 1;
    for query in [
        "exclude_result=SKIPPED".to_owned(),
        "complete=false".to_owned(),
        "final=false".to_owned(),
        "job_name=unit".to_owned(),
        "change=9".to_owned(),
        format!("idx_max={}", number - 1),
        format!("idx_min={beyond}"),
    ] {
        assert!(!each(&list(&query).await, "result").contains(&&value!("SKIPPED")), "{query}");
    }
    let at = list(&format!("idx_min={number}&idx_max={number}")).await;
    assert_eq!(each(&at, "result"), ["SKIPPED"]);
    let all = list("").await;
    let place = each(&all, "uuid").iter().position(|uuid| uuid.is_null()).unwrap();
    assert!(
        all[place - 1]["_id"].as_u64() > Some(number)
            && all[place + 1]["_id"].as_u64() < Some(number)
    );
}

/// Z9.1: a queued item is an unfinished buildset.
#[tokio::test]
async fn a_buildset_can_be_seen_before_it_is_over() {
    let story = story().await;
    let one = json(&story.api, &format!("/api/tenant/acme/buildset/{}", item_id(&A))).await;
    assert_eq!((&one["result"], &one["pipeline"]), (&Value::Null, &value!("gate")));
    assert_eq!(each(&one["builds"], "job_name"), ["unit", "docs"]);
    let open = json(&story.api, "/api/tenant/acme/buildsets?complete=false").await;
    assert_eq!(open.as_array().unwrap().len(), 7);
    let page = "/api/tenant/acme/buildsets?skip=0&limit=50&exclude_result=NO_JOBS&exclude_result=DEQUEUED&complete=true";
    assert_eq!(json(&story.api, page).await.as_array().unwrap().len(), 4);
    let waiting = json(&story.api, &format!("/api/tenant/acme/buildset/{}", item_id(&E))).await;
    assert!(waiting.get("builds").is_none(), "absent when there is none");
}

/// Z9.1
#[tokio::test]
async fn times_and_badges_are_of_builds_that_are_over() {
    let story = story().await;
    let times = json(
        &story.api,
        "/api/tenant/acme/build-times?project=org/app&job_name=integration&exclude_result=FAILURE",
    )
    .await;
    assert_eq!(each(&times, "duration"), [240.0]);
    let expected = [
        "_id",
        "branch",
        "duration",
        "end_time",
        "final",
        "job_name",
        "pipeline",
        "project",
        "ref",
        "result",
        "start_time",
        "uuid",
    ];
    assert_eq!(keys(&times[0]), expected);
    let badge = get(&story.api, "/api/tenant/acme/badge?project=org/lib&pipeline=gate").await;
    assert_eq!(
        (
            badge.headers()["content-type"].to_str().unwrap(),
            badge.headers()["cache-control"].to_str().unwrap()
        ),
        ("image/svg+xml", "no-cache")
    );
    assert!(String::from_utf8_lossy(badge.body()).contains("passing"));
    assert_eq!(get(&story.api, "/api/tenant/acme/badge?pipeline=periodic").await.status(), 404);
}

/// Z2.1, Z9.1: nothing crosses tenants.
#[tokio::test]
async fn a_tenant_sees_nothing_of_another() {
    let story = story().await;
    let theirs = json(&story.api, "/api/tenant/other/builds").await;
    assert_eq!(theirs.as_array().unwrap().len(), 1);
    let (build, item) =
        (theirs[0]["uuid"].as_str().unwrap(), theirs[0]["buildset"]["uuid"].as_str().unwrap());
    for path in [
        format!("build/{build}"),
        format!("build/{build}/log"),
        format!("buildset/{item}"),
        format!("item/{item}"),
    ] {
        assert_eq!(
            get(&story.api, &format!("/api/tenant/other/{path}")).await.status(),
            200,
            "{path}"
        );
        assert_eq!(
            get(&story.api, &format!("/api/tenant/acme/{path}")).await.status(),
            404,
            "{path}"
        );
    }
    let ours = build_id(&A, "unit", 1);
    assert_eq!(get(&story.api, &format!("/api/tenant/other/build/{ours}")).await.status(), 404);
    for path in ["status", "board", "builds", "buildsets", "nodes", "nodeset-requests"] {
        let text = json(&story.api, &format!("/api/tenant/acme/{path}")).await.to_string();
        assert!(!text.contains("A change of another tenant") && !text.contains(build), "{path}");
    }
}
