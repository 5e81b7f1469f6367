//! Logs while a build runs and afterwards, and the reader of executors.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use axum::Router;
use axum::extract::Query;
use axum::http::StatusCode;
use axum::response::IntoResponse;
use axum::routing::get as route;
use common::{get, story};
use sluice_api::{HttpLiveLogs, LiveLogs};
use sluice_browser_tests::story::{ARCHIVED_LOG, B, D, G, LIVE_LOG, PAST, build_id};
use sluice_model::BuildId;
use std::collections::BTreeMap;

fn past() -> BuildId {
    build_id(&PAST[0], "unit", 1)
}

/// Z7.4: a log is readable while the build runs.
#[tokio::test]
async fn the_log_of_a_running_build_comes_from_its_executor_and_grows() {
    let story = story().await;
    let build = build_id(&B, "integration", 1);
    let first = get(&story.api, &format!("/api/tenant/acme/build/{build}/log")).await;
    assert_eq!(first.body(), LIVE_LOG);
    assert_eq!(first.headers()["content-type"], "text/plain; charset=utf-8");
    assert_eq!(
        (&first.headers()["x-log-ended"], &first.headers()["cache-control"]),
        (&"0".parse().unwrap(), &"no-store".parse().unwrap())
    );
    let next = first.headers()["x-log-next"].to_str().unwrap().to_owned();
    assert_eq!(next, LIVE_LOG.len().to_string());
    story.logs.append(&build, "more\n");
    let second = get(&story.api, &format!("/api/tenant/acme/build/{build}/log?offset={next}")).await;
    assert_eq!(second.body(), "more\n");
}

/// Z7.4: an executor that does not answer, and a build that has not begun, give an empty log that goes on.
#[tokio::test]
async fn a_log_that_is_not_there_yet_is_empty() {
    let story = story().await;
    for build in [build_id(&D, "unit", 1), build_id(&G, "integration", 1)] {
        let response = get(&story.api, &format!("/api/tenant/acme/build/{build}/log")).await;
        assert_eq!((response.status().as_u16(), response.body().len()), (200, 0));
        assert_eq!(response.headers()["x-log-ended"], "0");
    }
}

/// Z7.4
#[tokio::test]
async fn the_log_of_a_build_that_is_over_comes_from_the_archive() {
    let story = story().await;
    let build = past();
    let response = get(&story.api, &format!("/api/tenant/acme/build/{build}/log?offset=11")).await;
    assert_eq!(response.body().as_ref(), &ARCHIVED_LOG.as_bytes()[11..]);
    assert_eq!(response.headers()["x-log-ended"], "1");
    let end = get(&story.api, &format!("/api/tenant/acme/build/{build}/log?offset={}", ARCHIVED_LOG.len())).await;
    assert_eq!((end.body().len(), &end.headers()["x-log-ended"]), (0, &"1".parse().unwrap()));
}

/// Z7.4, Z5.4: what a job left behind is served with its type, and can do nothing here.
#[tokio::test]
async fn archived_files_are_served_and_confined() {
    let story = story().await;
    let root = format!("/logs/{}", past());
    let json = get(&story.api, &format!("{root}/job-output.json.gz")).await;
    assert_eq!(
        (&json.headers()["content-type"], &json.headers()["content-encoding"]),
        (&"application/json".parse().unwrap(), &"gzip".parse().unwrap())
    );
    assert_eq!(json.headers()["access-control-allow-origin"], "*");
    let page = get(&story.api, &format!("{root}/report/index.html")).await;
    assert!(page.headers()["content-security-policy"].to_str().unwrap().starts_with("sandbox;"));
    assert_eq!(page.headers()["x-content-type-options"], "nosniff");
    let list = get(&story.api, &format!("{root}/")).await;
    assert!(String::from_utf8_lossy(list.body()).contains("zuul-info/inventory.yaml"));
    assert_eq!(get(&story.api, &format!("{root}/zuul-info/inventory.yaml")).await.status(), 200);
    for path in [
        format!("{root}/none.txt"),
        format!("{root}/%2e%2e/x"),
        "/logs/short/job-output.txt".into(),
        format!("/logs/{}/x", "0".repeat(32)),
    ] {
        assert_eq!(get(&story.api, &path).await.status(), 404, "{path}");
    }
}

/// Z7.4: the reader of executors, against a server that speaks as they do.
#[tokio::test]
async fn an_executor_is_read_over_http() {
    let log = async |Query(query): Query<BTreeMap<String, usize>>| {
        let rest = &"0123456789"[query["offset"].min(10)..];
        ([("x-log-length", "10"), ("x-log-ended", "0")], rest).into_response()
    };
    let router = Router::new().route("/log/one", route(log)).fallback(|| async { StatusCode::NOT_FOUND });
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}/", listener.local_addr().unwrap());
    let server = tokio::spawn(async move { axum::serve(listener, router).await });
    let logs = HttpLiveLogs::new().unwrap();
    let piece = logs.read(&address, &"one".into(), 4).await.unwrap().unwrap();
    assert_eq!((piece.bytes.as_ref(), piece.length), (b"456789".as_slice(), 10));
    assert_eq!(logs.read(&address, &"other".into(), 0).await.unwrap(), None);
    server.abort();
    let _ = server.await;
    assert!(logs.read(&address, &"one".into(), 0).await.is_err(), "nobody listens any more");
}
