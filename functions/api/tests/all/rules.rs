//! Tests the rules of all routes, and the routes outside tenants.

use crate::common::{ask, each, get, json, keys, story};
use bytes::Bytes;
use http::{Method, Request};
use serde_json::{Value, json as value};
use sluice_api::Api;
use sluice_records::codec::{decode, encode_first};
use sluice_records::session::{self, Session, SessionState};
use sluice_runtime::record::{Expect, Write};
use std::collections::BTreeMap;

/// Z5.4, Z9.1: pages of other origins cannot read a system on the same machine.
#[tokio::test]
async fn a_system_for_its_own_pages_lets_no_other_page_read_its_answers() {
    let story = story().await;
    let own = Api::new(story.world.ports(), story.logs.clone(), "http://127.0.0.1:9000/")
        .restricted_to_own_pages();
    for path in [
        "/",
        "/api/info",
        "/api/tenant/acme/status",
        "/api/tenant/acme/builds",
        "/api/tenant/unknown/status",
    ] {
        for method in [Method::GET, Method::OPTIONS] {
            let open = ask(&story.api, method.clone(), path).await;
            let restricted = ask(&own, method, path).await;
            assert_eq!(open.headers()["access-control-allow-origin"], "*", "{path}");
            assert!(!restricted.headers().contains_key("access-control-allow-origin"), "{path}");
            assert_eq!(restricted.status(), open.status(), "{path}");
        }
    }
}

/// Z9.1: clients request this first.
#[tokio::test]
async fn info_is_there_for_everybody() {
    let story = story().await;
    let info = json(&story.api, "/api/info").await;
    assert_eq!(
        keys(&info["info"]),
        ["capabilities", "stats", "websocket_url"],
        "no tenant: several are served"
    );
    let auth = &info["info"]["capabilities"]["auth"];
    assert_eq!(keys(auth), ["auth_log_file_requests", "default_realm", "read_protected", "realms"]);
    assert_eq!(auth["realms"], value!({}));
    assert_eq!(json(&story.api, "/api/tenant/unknown/info").await["info"]["tenant"], "unknown");
    let response = get(&story.api, "/api/info").await;
    assert_eq!(response.headers()["cache-control"], "public, max-age=3600");
    assert_eq!(response.headers()["last-modified"], "Sat, 21 Nov 2026 11:03:45 GMT");
}

/// Z9.1
#[tokio::test]
async fn tenants_components_and_connections_are_listed() {
    let story = story().await;
    assert_eq!(
        json(&story.api, "/api/tenants").await,
        value!([{"name": "acme"}, {"name": "other"}])
    );
    let components = json(&story.api, "/api/components").await;
    assert_eq!(components["executor"][0]["hostname"], "executor-1");
    assert_eq!(components["executor"][0]["state"], "running");
    assert_eq!(json(&story.api, "/api/connections").await, value!([]));
    assert!(json(&story.api, "/api").await["builds"].as_str().unwrap().ends_with("/builds"));
}

/// Z9.1, Z7.3: an executor that drains and one that has stopped are listed as such.
#[tokio::test]
async fn executors_are_listed_with_their_state() {
    let story = story().await;
    let stored = story.world.record(&session::key(&"session-1".into())).unwrap();
    let known: Session = decode(&stored).unwrap();
    let ended_at = known.started_at;
    let others = [
        ("draining", SessionState::Draining, session::open_entry(&"draining".into())),
        (
            "stopped",
            SessionState::Ended { at: ended_at },
            session::ended_entry(&"stopped".into(), ended_at),
        ),
    ];
    for (name, state, entry) in others {
        let session =
            Session { id: name.into(), hostname: name.to_owned(), state, ..known.clone() };
        let mut record = encode_first(session::key(&session.id), &session).unwrap();
        record.find = Some(entry);
        story.world.write_unchecked(Write::Put { record, expect: Expect::Anything });
    }
    let components = json(&story.api, "/api/components").await;
    let listed = components["executor"].as_array().unwrap();
    let states: BTreeMap<&str, &str> = listed
        .iter()
        .map(|one| (one["hostname"].as_str().unwrap(), one["state"].as_str().unwrap()))
        .collect();
    let expected = [("executor-1", "running"), ("draining", "draining"), ("stopped", "stopped")];
    assert_eq!(states, BTreeMap::from(expected));
}

/// Z9.1: CORS preflight requests are answered.
#[tokio::test]
async fn options_need_no_permission() {
    let story = story().await;
    let response = ask(&story.api, Method::OPTIONS, "/api/tenant/acme/status").await;
    assert_eq!(response.status(), 204);
    assert_eq!(response.headers()["access-control-allow-origin"], "*");
    assert!(
        response.headers()["access-control-allow-headers"]
            .to_str()
            .unwrap()
            .starts_with("Authorization, Content-Type")
    );
    assert!(
        response.headers()["access-control-allow-methods"].to_str().unwrap().contains("OPTIONS")
    );
    assert_eq!(response.headers()["access-control-max-age"], "86400");
}

/// Z9.1: the dashboard sends repeated slashes.
#[tokio::test]
async fn repeated_slashes_are_one() {
    let story = story().await;
    assert_eq!(json(&story.api, "//api/tenant/acme//nodes").await, value!([]));
    assert_eq!(json(&story.api, "/api/tenant/acme//autohold").await, value!([]));
}

/// Z9.1
#[tokio::test]
async fn errors_for_missing_objects_are_json() {
    let story = story().await;
    let missing = [
        "/api/tenant/unknown/status",
        "/api/tenant/unknown/builds",
        "/api/tenant/unknown/semaphores",
        "/api/tenant/acme/project/org/none",
        "/api/tenant/acme/project/org%2Fapp",
        "/api/tenant/acme/job/none",
        "/api/tenant/acme/build/none",
        "/api/tenant/acme/buildset/none",
        "/api/tenant/acme/item/none",
        "/api/tenant/acme/nothing",
        "/api/nothing",
        "/nothing",
        "/api/tenant/acme/status?now=1",
    ];
    for path in missing {
        let response = get(&story.api, path).await;
        assert_eq!(response.status(), 404, "{path}");
        let body: Value = serde_json::from_slice(response.body()).unwrap();
        assert_eq!(keys(&body), ["description", "error"], "{path}");
    }
}

/// Z9.1: a method that no path has is refused, and HEAD has no body.
#[tokio::test]
async fn unknown_methods_are_refused() {
    let story = story().await;
    let response = ask(&story.api, Method::PATCH, "/api/tenant/acme/status").await;
    assert_eq!(response.status(), 405);
    assert_eq!(ask(&story.api, Method::HEAD, "/api/tenants").await.body().len(), 0);
}

/// Z9.1: a list without records is empty, in its own format.
#[tokio::test]
async fn what_is_not_kept_yet_is_empty() {
    let story = story().await;
    for path in [
        "autohold",
        "semaphores",
        "images",
        "flavors",
        "providers",
        "nodes",
        "nodeset-requests",
        "labels",
        "project/org/app/autohold",
    ] {
        assert_eq!(
            json(&story.api, &format!("/api/tenant/acme/{path}")).await,
            value!([]),
            "{path}"
        );
    }
}

/// Z9.1
#[tokio::test]
async fn projects_pipelines_and_jobs_are_what_the_layout_says() {
    let story = story().await;
    let projects = json(&story.api, "/api/tenant/acme/projects").await;
    assert_eq!(each(&projects, "name"), ["org/app", "org/config", "org/lib"]);
    assert_eq!(
        projects[1],
        value!({"name": "org/config", "connection_name": "github", "canonical_name": "github.com/org/config", "type": "config"})
    );
    let pipelines = json(&story.api, "/api/tenant/acme/pipelines").await;
    assert_eq!(
        pipelines[0],
        value!({"name": "check", "triggers": [{"name": "github", "driver": "github"}]})
    );
    assert_eq!(pipelines[2]["triggers"][0]["driver"], "timer");
    let jobs = json(&story.api, "/api/tenant/acme/jobs").await;
    assert_eq!(each(&jobs, "name"), ["base", "docs", "integration", "unit"]);
    assert_eq!(
        jobs[0],
        value!({"name": "base", "description": "What every job stands on.", "variants": [{}]})
    );
    assert_eq!(
        jobs[2]["variants"],
        value!([{"parent": "unit", "branches": ["main", "stable/1.0"]}])
    );
    assert_eq!(jobs[3]["tags"], value!(["fast"]));
}

/// Z9.1, Z5.4: the full definition of a job is shown; secrets by name only.
#[tokio::test]
async fn a_job_is_shown_whole_and_its_secrets_by_name() {
    let story = story().await;
    let job = json(&story.api, "/api/tenant/acme/job/integration").await;
    let integration = &job[0];
    assert_eq!(integration["parent"], "unit");
    assert_eq!(integration["nodeset"]["nodes"].as_array().unwrap().len(), 2);
    assert_eq!(integration["dependencies"], value!([{"name": "unit", "soft": false}]));
    assert_eq!(integration["required_projects"], value!([{"project_name": "org/lib"}]));
    assert_eq!(
        integration["source_context"],
        value!({"project": "org/app", "branch": "main", "path": ".zuul.yaml"})
    );
    assert_eq!(integration["run"][0]["path"], "playbooks/integration.yaml");
    let docs = json(&story.api, "/api/tenant/acme/job/docs").await;
    assert!(docs[0].get("nodeset").is_none(), "absent where the variant sets none");
    assert_eq!(docs[0]["run"][0]["secrets"], value!([{"name": "publish", "alias": "publish"}]));
    assert!(!docs.to_string().contains("c2VjcmV0"), "no ciphertext");
}

/// Z9.1
#[tokio::test]
async fn a_project_lists_its_jobs_by_pipeline() {
    let story = story().await;
    for name in ["org/app", "github.com/org/app"] {
        let project = json(&story.api, &format!("/api/tenant/acme/project/{name}")).await;
        assert_eq!(
            keys(&project),
            ["canonical_name", "configs", "connection_name", "metadata", "name"]
        );
        assert_eq!(project["metadata"]["queue_name"], "integrated");
        let pipelines = &project["configs"][0]["pipelines"];
        assert_eq!(each(pipelines, "name"), ["check", "gate", "manual"]);
        assert_eq!(pipelines[1]["jobs"][1][0]["name"], "integration");
    }
}

/// Z9.1: the data for the dashboard's enqueue form.
#[tokio::test]
async fn the_parameters_of_a_pipeline_are_read_with_post() {
    let story = story().await;
    let ask = async |path: &str, body: Value| {
        let path = format!("/api/tenant/acme/project/{path}/freeze-pipeline");
        let request = Request::post(path).body(Bytes::from(body.to_string())).unwrap();
        let response = story.api.answer(request).await;
        let answer: Value = serde_json::from_slice(response.body()).unwrap();
        (response.status().as_u16(), answer)
    };
    let expected = value!({"parameters": [
        {"name": "kind", "type": "selection", "values": ["small", "large"], "default": "small", "description": "How much of it.", "required": false},
        {"name": "loud", "type": "bool", "required": true},
    ]});
    let manual = value!({"pipeline": "manual", "ref": "refs/heads/main"});
    for name in ["org/app", "github.com/org/app"] {
        assert_eq!(ask(name, manual.clone()).await, (200, expected.clone()));
    }
    let check = value!({"pipeline": "check", "ref": "refs/heads/main"});
    assert_eq!(ask("org/app", check).await, (200, value!({"parameters": []})), "it takes none");
    let none = value!({"pipeline": "none", "ref": "refs/heads/main"});
    for (name, body, status, texts) in [
        ("org/none", manual.clone(), 404, "no project org/none"),
        ("org/app", none, 404, "no pipeline none"),
        ("org/app", value!({"pipeline": "manual"}), 400, "refs/heads/BRANCH"),
        ("org/app", value!("manual"), 400, "refs/heads/BRANCH"),
    ] {
        let (answered, body) = ask(name, body).await;
        assert!(
            answered == status && body["description"].as_str().unwrap().contains(texts),
            "{name}: {body}"
        );
    }
    let read = get(&story.api, "/api/tenant/acme/project/org/app/freeze-pipeline").await;
    assert_eq!(
        (read.status().as_u16(), &read.headers()["allow"]),
        (405, &"POST, OPTIONS".parse().unwrap())
    );
}

/// Z9.1: links to Zuul's pages show the nearest view; the WebSocket route explains where the log
/// is.
#[tokio::test]
async fn addresses_of_zuuls_pages_lead_somewhere() {
    let story = story().await;
    for path in [
        "stream/b1?logfile=console.log",
        "status/change/12,4",
        "status/pipeline/gate",
        "buildsets",
        "projects",
        "project/github.com/org/app",
        "jobs",
        "job/unit",
        "config-errors",
    ] {
        let response = get(&story.api, &format!("/t/acme/{path}")).await;
        let kind = response.headers()["content-type"].to_str().unwrap();
        assert_eq!((response.status().as_u16(), kind), (200, "text/html; charset=utf-8"), "{path}");
    }
    let socket = get(&story.api, "/api/tenant/acme/console-stream").await;
    assert_eq!(socket.status(), 404);
    assert!(String::from_utf8_lossy(socket.body()).contains("/api/tenant/acme/build/UUID/log"));
}

/// Z9.1
#[tokio::test]
async fn mistakes_are_listed_and_counted() {
    let story = story().await;
    let errors = json(&story.api, "/api/tenant/acme/config-errors?severity=error").await;
    let count = errors.as_array().unwrap().len();
    assert_eq!(
        json(&story.api, "/api/tenant/acme/tenant-status").await,
        value!({"config_error_count": count})
    );
    let of_lib =
        json(&story.api, "/api/tenant/acme/config-errors?project=org/lib&severity=error").await;
    assert_eq!(keys(&of_lib[0]), ["error", "name", "severity", "short_error", "source_context"]);
    assert!(of_lib[0]["error"].as_str().unwrap().contains("no-such-job"), "{of_lib}");
    let warnings = json(&story.api, "/api/tenant/acme/config-errors?severity=warning").await;
    let texts: Vec<_> = warnings
        .as_array()
        .unwrap()
        .iter()
        .map(|warning| warning["short_error"].as_str().unwrap())
        .collect();
    assert!(
        !texts.iter().any(|text| text.contains("periodic")),
        "a timer is carried out: {texts:?}"
    );
    assert!(
        texts.iter().any(|text| text.contains("no provider of the tenant offers label small")),
        "{texts:?}"
    );
    let all = json(&story.api, "/api/tenant/acme/config-errors").await;
    assert_eq!(all.as_array().unwrap().len(), count + texts.len());
}

/// Z4.7: the jobs of a branch can be frozen without a change.
#[tokio::test]
async fn jobs_can_be_frozen_for_a_branch() {
    let story = story().await;
    let path = "/api/tenant/acme/pipeline/gate/project/org/app/branch/main";
    let jobs = json(&story.api, &format!("{path}/freeze-jobs")).await;
    assert_eq!(
        jobs,
        value!([{"name": "unit", "dependencies": []}, {"name": "integration", "dependencies": [{"name": "unit", "soft": false}]}])
    );
    let deep =
        "/api/tenant/acme/pipeline/gate/project/github.com/org/app/branch/stable/1.0/freeze-jobs";
    assert_eq!(
        each(&json(&story.api, deep).await, "name"),
        ["unit", "integration"],
        "a branch holds slashes too"
    );
    let job = json(&story.api, &format!("{path}/freeze-job/integration")).await;
    assert_eq!(job["nodeset"]["name"], "pair");
    assert_eq!(job["zuul"]["build"], "0".repeat(32));
    assert_eq!(each(&job["pre_playbooks"], "path"), ["playbooks/base/pre.yaml"]);
    assert_eq!(job["pre_playbooks"][0]["trusted"], true);
    assert_eq!(get(&story.api, &format!("{path}/freeze-job/none")).await.status(), 404);
    assert_eq!(
        get(&story.api, "/api/tenant/acme/pipeline/none/project/org/app/branch/main/freeze-jobs")
            .await
            .status(),
        404
    );
}
