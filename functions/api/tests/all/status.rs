//! Tests the status, the board and items, as Zuul's clients and the page read them.

use crate::common::{each, get, json, keys, story};
use serde_json::{Value, json as value};
use sluice_browser_tests::story::{A, B, C, D, E, F, G, NOW, build_id, change, item_id};
use sluice_gate::{Item, JobStatus, WaitsFor};
use sluice_model::QueueKey;
use sluice_model::build::{BuildResult, Phase, Run, RunEnd};
use sluice_records::codec::{decode, with_body};
use sluice_records::{build, queue};
use sluice_runtime::quarantine::halt_cell;
use sluice_runtime::record::{Expect, Record, Write};

/// Z9.1: the shape of status.
#[tokio::test]
async fn status_lists_pipelines_in_order_with_their_queues_and_items() {
    let story = story().await;
    let status = json(&story.api, "/api/tenant/acme/status").await;
    let expected = [
        "connection_event_queues",
        "last_reconfigured",
        "management_event_queue",
        "pipelines",
        "state",
        "trigger_event_queue",
        "zuul_version",
    ];
    assert_eq!(keys(&status), expected);
    assert_eq!(
        keys(&status["state"]),
        [
            "info",
            "reason",
            "result_queue_paused",
            "trigger_queue_discarding",
            "trigger_queue_paused"
        ]
    );
    assert_eq!(each(&status["pipelines"], "name"), ["check", "gate", "periodic", "manual"]);
    let gate = &status["pipelines"][1];
    let of_pipeline = [
        "change_queues",
        "description",
        "management_events",
        "manager",
        "name",
        "result_events",
        "state",
        "trigger_events",
        "triggers",
    ];
    assert_eq!(keys(gate), of_pipeline);
    assert_eq!(gate["manager"], "dependent");
    assert_eq!(gate["triggers"], value!([{"driver": "github"}]));
    assert_eq!(gate["trigger_events"], 1, "what arrived and was not decided on");
    assert_eq!(
        status["pipelines"][2]["change_queues"],
        value!([]),
        "only queues that are not empty"
    );
    let queue = &gate["change_queues"][0];
    assert_eq!(
        (&queue["name"], &queue["window"], &queue["branch"]),
        (&value!("integrated"), &value!(5), &Value::Null)
    );
    assert_eq!(
        queue["heads"].as_array().unwrap().len(),
        1,
        "one inner list: only A has no item ahead"
    );
}

/// Z6.4, Z9.1: the speculative order is shown.
#[tokio::test]
async fn an_item_says_what_is_ahead_of_it_and_behind() {
    let story = story().await;
    let status = json(&story.api, "/api/tenant/acme/status").await;
    let items = &status["pipelines"][1]["change_queues"][0]["heads"][0];
    let b = &items[1];
    let expected = [
        "active",
        "enqueue_time",
        "failing_reasons",
        "id",
        "item_ahead",
        "items_behind",
        "jobs",
        "live",
        "refs",
        "remaining_time",
        "zuul_ref",
    ];
    assert_eq!(keys(b), expected);
    assert_eq!(b["item_ahead"], item_id(&A).as_str());
    assert_eq!(
        b["items_behind"],
        value!([item_id(&C), item_id(&D)]),
        "C failed, so D is behind B too"
    );
    assert_eq!(items[2]["failing_reasons"], value!(["at least one job failed"]));
    assert_eq!(
        (&items[4]["active"], &items[5]["active"]),
        (&value!(true), &value!(false)),
        "the window holds five"
    );
    let reference = &b["refs"][0];
    assert_eq!(keys(reference), ["id", "owner", "project", "project_canonical", "ref", "url"]);
    assert_eq!(reference["id"], change(&B).id());
    assert_eq!(
        (&reference["project"], &reference["ref"]),
        (&value!("org/app"), &value!("refs/pull/12/head"))
    );
}

/// Z9.1: the shape of a job.
#[tokio::test]
async fn a_job_says_how_far_it_is() {
    let story = story().await;
    let status = json(&story.api, "/api/tenant/acme/status").await;
    let items = &status["pipelines"][1]["change_queues"][0]["heads"][0];
    let running = &items[1]["jobs"][1];
    let expected = [
        "canceled",
        "dependencies",
        "elapsed_time",
        "end_time",
        "estimated_time",
        "execute_time",
        "name",
        "paused",
        "pipeline",
        "pre_fail",
        "queued",
        "remaining_time",
        "report_url",
        "result",
        "retry",
        "snapshotting",
        "start_time",
        "tries",
        "url",
        "uuid",
        "voting",
        "waiting_status",
    ];
    assert_eq!(keys(running), expected);
    let build = build_id(&B, "integration", 1);
    assert_eq!(running["uuid"], build.as_str());
    assert_eq!(running["url"], format!("stream/{build}?logfile=console.log"));
    assert_eq!(running["report_url"], format!("https://ci.example.org/t/acme/build/{build}"));
    assert_eq!(running["dependencies"], value!(["unit"]));
    assert_eq!(running["elapsed_time"], 160_000);
    assert_eq!(running["start_time"], (NOW.0 / 1_000 - 160) as f64);
    assert_eq!(running["estimated_time"], 240.0, "what the last successes of org/app took");
    assert_eq!(running["remaining_time"], 80_000);
    assert_eq!(items[1]["remaining_time"], 80_000, "the job that takes longest");
    assert_eq!(items[3]["remaining_time"], Value::Null, "not all its jobs have started");
    let waiting = &items[3]["jobs"][1];
    assert_eq!(waiting["waiting_status"], "dependencies: unit");
    assert_eq!(
        (&waiting["uuid"], &waiting["url"], &waiting["canceled"]),
        (&Value::Null, &Value::Null, &Value::Null)
    );
    let ordered = &status["pipelines"][0]["change_queues"][0]["heads"][0][0]["jobs"][1];
    assert_eq!(
        (&ordered["waiting_status"], &ordered["queued"]),
        (&value!("node request: 200-0000-000000000042"), &value!(true))
    );
}

/// N16: a job that waits for a semaphore names it, before its nodes are requested and while it has
/// them (`resources-first`). The first thing it waits for is shown first.
#[tokio::test]
async fn a_job_that_waits_for_a_semaphore_names_it() {
    let story = story().await;
    for (change, job, status) in [
        (&D, "unit", Some(JobStatus::Waiting)),
        (&D, "integration", Some(JobStatus::Waiting)),
        (&G, "integration", None),
    ] {
        let of_item = format!("item#{}", item_id(change));
        let record =
            story.world.records().into_iter().find(|record| record.key.sort == of_item).unwrap();
        let mut item: Item = decode(&record).unwrap();
        let job = item.jobs.iter_mut().find(|other| other.summary.name.as_str() == job).unwrap();
        job.waits_for = Some(WaitsFor::Semaphore("site".to_owned()));
        job.status = status.unwrap_or_else(|| job.status.clone());
        let record = with_body(record, &item).unwrap();
        story.world.write_unchecked(Write::Put { record, expect: Expect::Anything });
    }
    let status = json(&story.api, "/api/tenant/acme/status").await;
    let jobs_of = |pipeline: usize, item: usize| {
        each(
            &status["pipelines"][pipeline]["change_queues"][0]["heads"][0][item]["jobs"],
            "waiting_status",
        )
    };
    assert_eq!(jobs_of(1, 3), [&value!("semaphores: site"), &value!("dependencies: unit")]);
    assert_eq!(jobs_of(0, 0), [&Value::Null, &value!("semaphores: site")]);
    assert_eq!(
        jobs_of(1, 1),
        [&Value::Null, &Value::Null],
        "what runs or is over waits for nothing"
    );
    let board = json(&story.api, "/api/tenant/acme/board").await;
    assert_eq!(
        board["pipelines"][1]["queues"][0]["items"][3]["jobs"][0]["waits_for"],
        "semaphores: site"
    );
}

/// Z9.1
#[tokio::test]
async fn the_status_of_one_change_is_its_items() {
    let story = story().await;
    let id = change(&D).id();
    let items = json(&story.api, &format!("/api/tenant/acme/status/change/{id}")).await;
    assert_eq!(each(&items, "id"), [item_id(&D).as_str()]);
    assert_eq!(json(&story.api, "/api/tenant/acme/status/change/99,1").await, value!([]));
}

/// Z9.1: proxies may cache the status for a second.
#[tokio::test]
async fn status_has_its_time() {
    let story = story().await;
    let response = get(&story.api, "/api/tenant/acme/status").await;
    assert_eq!(response.headers()["cache-control"], "public, max-age=1");
    assert_eq!(response.headers()["last-modified"], "Sat, 21 Nov 2026 11:03:45 GMT");
}

/// Z6.4: the board has what each item is tested on, and why.
#[tokio::test]
async fn the_board_shows_states_and_reasons() {
    let story = story().await;
    let board = json(&story.api, "/api/tenant/acme/board").await;
    let queue = &board["pipelines"][1]["queues"][0];
    let on: Vec<&Value> =
        queue["items"].as_array().unwrap().iter().map(|item| &item["on"]["item"]).collect();
    let expected = [
        Value::Null,
        value!(item_id(&A)),
        value!(item_id(&B)),
        value!(item_id(&B)),
        value!(item_id(&D)),
        value!(item_id(&E)),
    ];
    assert_eq!(on, expected.iter().collect::<Vec<_>>());
    assert_eq!(
        each(&queue["items"], "status"),
        ["landing", "testing", "failing", "testing", "waiting", "waiting"]
    );
    assert_eq!(queue["items"][3]["reasons"][2]["text"], "testing again on top of org/app#12");
    assert_eq!(queue["inbox"][0]["changes"], value!([{"project": "org/app", "number": 17}]));
    assert_eq!(
        each(&board["recent"], "result"),
        ["SUCCESS", "SUCCESS", "FAILURE", "MERGE_CONFLICT"]
    );
}

/// Z9.1: the reason why a queue is halted is shown, with the command to resume it if its records
/// are unreadable.
#[tokio::test]
async fn the_board_says_why_a_queue_is_halted() {
    let story = story().await;
    let path = "/api/tenant/acme/board";
    let board = json(&story.api, path).await;
    assert_eq!((&board["halted_providers"], &board["problems"]), (&value!([]), &value!([])));
    let name = board["pipelines"][1]["queues"][0]["name"].as_str().unwrap();
    let key = QueueKey { tenant: "acme".into(), pipeline: "gate".into(), queue: name.into() };
    let why = "its record is invalid";
    halt_cell(&story.world.ports(), &queue::partition(&key), why).await.unwrap();
    let halted = json(&story.api, path).await;
    assert_eq!(halted["pipelines"][1]["queues"][0]["halted"], why);
    let head = story.world.record(&queue::head_key(&key)).unwrap();
    let record = Record { body: "{}".to_owned(), ..head };
    story.world.write_unchecked(Write::Put { record, expect: Expect::Anything });
    let unread = json(&story.api, path).await;
    let answer = format!(
        "of gate is halted: {why}. To resume it after the record is repaired: sluice queue resume acme gate {name} --reason TEXT"
    );
    assert!(unread["problems"][0].as_str().unwrap().ends_with(&answer), "{}", unread["problems"]);
}

/// The reasons of an item can be read while it is queued and after it has left.
#[tokio::test]
async fn an_item_explains_itself() {
    let story = story().await;
    let item = json(&story.api, &format!("/api/tenant/acme/item/{}", item_id(&E))).await;
    assert_eq!(item["merge"]["state"], "requested");
    assert_eq!(item["merge"]["onto"], item_id(&D).as_str());
    assert_eq!(
        (&item["pipeline"], &item["position"], &item["end"]),
        (&value!("gate"), &value!(4), &Value::Null)
    );
    let gone = json(&story.api, "/api/tenant/acme/board").await["recent"][3]["id"]
        .as_str()
        .unwrap()
        .to_owned();
    let item = json(&story.api, &format!("/api/tenant/acme/item/{gone}")).await;
    assert_eq!(item["end"]["result"], "MERGE_CONFLICT");
    assert_eq!(item["merge"]["state"], "conflict");
}

/// Z4.7, Z9.1: the trace of a job names the definitions and their sources; an unknown job is an
/// error.
#[tokio::test]
async fn a_job_of_an_item_says_which_definitions_made_it() {
    let story = story().await;
    let path = format!("/api/tenant/acme/item/{}/explain", item_id(&B));
    let answer = json(&story.api, &format!("{path}/integration")).await;
    assert_eq!(keys(&answer), ["applied", "item", "job", "notes", "pipeline", "text", "trace"]);
    assert_eq!((&answer["pipeline"], &answer["trace"]["runs"]), (&value!("gate"), &value!(true)));
    let steps = &answer["trace"]["steps"];
    assert_eq!(each(steps, "name"), ["base", "unit", "integration", "integration"]);
    assert_eq!(each(steps, "kind"), ["definition", "definition", "definition", "entry"]);
    assert!(steps[2]["sets"].as_array().unwrap().contains(&value!("branches")), "{steps}");
    let text = answer["text"].as_str().unwrap();
    assert!(
        text.starts_with("job integration runs\n  + job base from org/config@main zuul.yaml:"),
        "{text}"
    );
    let missing = get(&story.api, &format!("{path}/unknown")).await;
    assert_eq!(missing.status(), 404);
}

/// Z9.1: unaccounted work is shown to its own tenant only.
#[tokio::test]
async fn the_ledger_lists_unaccounted_work() {
    let story = story().await;
    let ledger = json(&story.api, "/api/tenant/acme/ledger").await;
    assert_eq!(
        (&ledger["unaccounted"], &ledger["bound_seconds"], &ledger["complete"]),
        (&0.into(), &600.into(), &true.into())
    );
    // The executor's session expires, and no gate runs that could retry its builds.
    story.world.advance_millis(700_000);
    let [ours, theirs] = [
        json(&story.api, "/api/tenant/acme/ledger").await,
        json(&story.api, "/api/tenant/other/ledger").await,
    ];
    let ids =
        |ledger: &Value| each(&ledger["things"], "id").into_iter().cloned().collect::<Vec<Value>>();
    assert!(ids(&ours).contains(&value!(build_id(&B, "integration", 1))));
    let builds =
        ours["things"].as_array().unwrap().iter().filter(|thing| thing["kind"] == "builds");
    let whys: Vec<&str> = builds.map(|thing| thing["why"].as_str().unwrap()).collect();
    assert_eq!(
        (&ours["counts"]["builds"], &ours["counts"]["messages"]),
        (&value!(whys.len()), &value!(1))
    );
    assert_eq!(theirs["counts"]["builds"], 1);
    assert!(!ids(&ours).contains(&ids(&theirs)[0]), "nothing crosses tenants");
    assert!(
        whys.iter().all(|why| why.contains("its executor has been gone for 11 minutes")),
        "{whys:?}"
    );
}

/// Z1.6, Z9.1: what each queued change waits for is shown, next to earlier decisions.
#[tokio::test]
async fn a_change_in_a_queue_says_what_it_waits_for_now() {
    let story = story().await;
    for (change, said) in [
        (&A, "is about to be merged"),
        (&B, "jobs have not finished"),
        (&C, "org/app#12 ahead of it, which is being tested"),
        (&F, "outside the window of its queue: the first 5 of 6 changes are being processed"),
    ] {
        let path =
            format!("/api/tenant/acme/why?project={}&change={}", change.project, change.number);
        let answer = json(&story.api, &path).await;
        let pipelines = answer[0]["pipelines"].as_array().unwrap();
        let gate = pipelines.iter().find(|pipeline| pipeline["pipeline"] == "gate").unwrap();
        assert!(gate["now"].to_string().contains(said), "{said}: {gate}");
        assert_eq!(gate["item"], item_id(change).as_str());
        assert_eq!(answer[0]["deferred_events"], value!([]));
    }
}

/// Z9.1, Z7.6: a build that passed is shown as such before its queue learns of it.
#[tokio::test]
async fn a_build_that_passed_is_shown_so_before_its_queue_has_looked() {
    let story = story().await;
    let key = build::run_key(&build_id(&G, "unit", 1));
    let record = story.world.records().into_iter().find(|record| record.key == key).unwrap();
    let run: Run = decode(&record).unwrap();
    let ended = RunEnd {
        result: BuildResult::Success,
        detail: None,
        started_at: Some(run.claimed_at),
        ended_at: run.claimed_at.plus_seconds(9),
        data: serde_json::Map::new(),
        data_object: None,
        log_url: None,
    };
    let record = with_body(record, &Run { phase: Phase::Ended(ended), ..run }).unwrap();
    story.world.write_unchecked(Write::Put { record, expect: Expect::Anything });
    let status = json(&story.api, "/api/tenant/acme/status").await;
    let jobs = &status["pipelines"][0]["change_queues"][0]["heads"][0][0]["jobs"];
    assert_eq!(each(jobs, "result"), [&value!("SUCCESS"), &Value::Null]);
}
