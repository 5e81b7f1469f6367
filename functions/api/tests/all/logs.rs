//! Tests logs of running and finished builds, and the HTTP reader of executors' logs.

use crate::common::{get, story};
use axum::Router;
use axum::extract::Query;
use axum::http::{HeaderMap, StatusCode};
use axum::response::IntoResponse;
use axum::routing::get as route;
use bytes::Bytes;
use http::Request;
use sluice_api::{HttpLiveLogSource, LiveLogSource};
use sluice_browser_tests::story::{ARCHIVED_LOG, B, D, G, LIVE_LOG, PAST, build_id};
use sluice_model::{BuildId, TenantName};
use sluice_records::logs::{BuildLogs, LOG, PackedLogs, SEGMENT_BYTES};
use sluice_records::session::{LiveLogServer, LiveLogToken};
use sluice_records::tenant;
use sluice_runtime::object::PutMode;
use std::collections::BTreeMap;
use std::sync::LazyLock;

fn past() -> BuildId {
    build_id(&PAST[0], "unit", 1)
}

/// Returns the logs of a build of the story's tenant.
fn logs_of(build: &BuildId) -> BuildLogs<'_> {
    static ACME: LazyLock<TenantName> = LazyLock::new(|| TenantName::from("acme"));
    BuildLogs { tenant: &ACME, build }
}

/// Z2.3, Z7.4: the logs of a build, archived and live, are found below its own tenant only, and the
/// error does not depend on whether another tenant has the build.
#[tokio::test]
async fn the_logs_of_another_tenants_build_are_not_found() {
    let story = story().await;
    let (ended, live) = (past(), build_id(&B, "integration", 1));
    story.world.write_unchecked(tenant::put_on_tenant_list(&"other".into()).unwrap());
    let paths = [
        ("/logs/TENANT/BUILD/job-output.txt", &ended),
        ("/logs/TENANT/BUILD/", &ended),
        ("/logs/TENANT/BUILD/report", &ended),
        ("/api/tenant/TENANT/build/BUILD/log", &ended),
        ("/api/tenant/TENANT/build/BUILD/log", &live),
    ];
    for (path, build) in paths {
        let answer = async |tenant: &str, build: &str| {
            let path = path.replace("TENANT", tenant).replace("BUILD", build);
            let response = get(&story.api, &path).await;
            let body = String::from_utf8_lossy(response.body()).replace(build, "BUILD");
            (response.status().as_u16(), body)
        };
        assert_eq!(answer("acme", build.as_str()).await.0, 200, "{path}");
        let others = answer("other", build.as_str()).await;
        assert_eq!(others.0, 404, "{path}");
        assert_eq!(others, answer("other", &"0".repeat(32)).await, "{path}");
        assert_eq!(answer("unknown", build.as_str()).await.0, 404, "{path}");
    }
    let without_tenant = format!("/logs/{ended}/job-output.txt");
    assert_eq!(get(&story.api, &without_tenant).await.status(), 404);
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
    let second =
        get(&story.api, &format!("/api/tenant/acme/build/{build}/log?offset={next}")).await;
    assert_eq!(second.body(), "more\n");
}

/// Z7.4: if the executor does not answer, or the build has not started, the log is empty but not
/// complete.
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
    let end = get(
        &story.api,
        &format!("/api/tenant/acme/build/{build}/log?offset={}", ARCHIVED_LOG.len()),
    )
    .await;
    assert_eq!((end.body().len(), &end.headers()["x-log-ended"]), (0, &"1".parse().unwrap()));
}

/// Z7.4, Z7.3: the log that a build had stored when its executor died is at the usual addresses.
#[tokio::test]
async fn the_log_of_a_build_whose_executor_died_is_read_from_its_stored_segments() {
    let story = story().await;
    let build = build_id(&D, "unit", 1);
    let logs = logs_of(&build);
    let text: String = (0..60_000).map(|line| format!("line {line:06}\n")).collect();
    for (number, segment) in text.as_bytes().chunks(SEGMENT_BYTES).enumerate() {
        let (key, content) = (logs.segment_key(number), Bytes::copy_from_slice(segment));
        let ports = story.world.ports();
        ports.objects.put(&key, content, PutMode::Always, "text/plain").await.unwrap();
    }
    let followed =
        get(&story.api, &format!("/api/tenant/acme/build/{build}/log?offset=700000")).await;
    assert_eq!(followed.body().as_ref(), &text.as_bytes()[700_000..]);
    assert_eq!(followed.headers()["x-log-length"], text.len().to_string());
    let path = format!("/logs/acme/{build}/job-output.txt");
    let whole = get(&story.api, &path).await;
    assert!(whole.status() == 200 && whole.body().as_ref() == text.as_bytes());
    let across = SEGMENT_BYTES - 2..=SEGMENT_BYTES + 1;
    let request = Request::get(&path)
        .header("range", format!("bytes={}-{}", across.start(), across.end()))
        .body(Bytes::new())
        .unwrap();
    let part = story.api.answer(request).await;
    assert_eq!((part.status().as_u16(), part.body().as_ref()), (206, &text.as_bytes()[across]));
    let listing = get(&story.api, &format!("/logs/acme/{build}/")).await;
    assert!(String::from_utf8_lossy(listing.body()).contains(&format!("{path}\"")), "{listing:?}");
}

/// Z7.4, Z5.4: a job's files are served with their types, and cannot run scripts.
#[tokio::test]
async fn archived_files_are_served_and_confined() {
    let story = story().await;
    let root = format!("/logs/acme/{}", past());
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
        "/logs/acme/short/job-output.txt".into(),
        format!("/logs/acme/{}/x", "0".repeat(32)),
    ] {
        assert_eq!(get(&story.api, &path).await.status(), 404, "{path}");
    }
}

/// Z7.4: all archived files of a build are listed; a listing that is cut says so.
#[tokio::test]
async fn a_listing_has_all_files_of_a_build_or_says_that_there_are_more() {
    let story = story().await;
    let ports = story.world.ports();
    for (count, is_cut) in [(2_001_usize, false), (2_101, true)] {
        let build = BuildId::derive(&["many", &count.to_string()]);
        for number in 0..count {
            let key = logs_of(&build).key(&format!("{number:04}.txt"));
            ports.objects.put(&key, Bytes::new(), PutMode::Always, "text/plain").await.unwrap();
        }
        let page = get(&story.api, &format!("/logs/acme/{build}/")).await;
        let page = String::from_utf8_lossy(page.body()).into_owned();
        assert_eq!(page.matches("<li><a ").count(), count.min(2_100));
        assert_eq!(page.contains("<li>… and more</li>"), is_cut);
    }
}

/// The small files of the builds in the tests below.
const FILES: [(&str, &str); 5] = [
    ("job-output.json", "[]"),
    ("job-output.txt", "2026-11-21 10:40:00.000000 | gr\u{f6}\u{df}er\n"),
    ("report/index.html", "<p>fine</p>"),
    ("workspace-repos.json", "[{}]"),
    ("zuul-info/inventory.yaml", "all: {}\n"),
];

fn packed() -> PackedLogs {
    let mut packed = PackedLogs::default();
    FILES.iter().for_each(|(name, text)| {
        packed.add((*name).to_owned(), Bytes::from_static(text.as_bytes()))
    });
    packed
}

/// Z7.4: packed and single files have the same addresses.
#[tokio::test]
async fn files_that_lie_together_are_served_as_those_that_are_objects_of_their_own() {
    let story = story().await;
    let ports = story.world.ports();
    let (together, single) = (BuildId::derive(&["together"]), BuildId::derive(&["single"]));
    logs_of(&together).store_packed(&ports, &packed()).await.unwrap();
    for (name, text) in FILES {
        let (key, bytes) = (logs_of(&single).key(name), Bytes::from_static(text.as_bytes()));
        ports.objects.put(&key, bytes, PutMode::Always, "text/plain").await.unwrap();
    }
    for (name, text) in FILES {
        for range in
            [None, Some("bytes=1-"), Some("bytes=0-1"), Some("bytes=5-2"), Some("bytes=900-")]
        {
            let ask = async |build: &BuildId| {
                let mut request = Request::builder().uri(format!("/logs/acme/{build}/{name}"));
                if let Some(range) = range {
                    request = request.header("range", range);
                }
                story.api.answer(request.body(Bytes::new()).unwrap()).await
            };
            let (one, other) = (ask(&together).await, ask(&single).await);
            assert_eq!(one.status(), other.status(), "{name} {range:?}");
            assert_eq!(one.headers(), other.headers(), "{name} {range:?}");
            assert_eq!(one.body(), other.body(), "{name} {range:?}");
            if range.is_none() {
                assert_eq!(
                    (one.status().as_u16(), one.body().as_ref()),
                    (200, text.as_bytes()),
                    "{name}"
                );
            }
        }
    }
    for below in ["", "zuul-info", "report/"] {
        let one = get(&story.api, &format!("/logs/acme/{together}/{below}")).await;
        let other = get(&story.api, &format!("/logs/acme/{single}/{below}")).await;
        assert_eq!((one.status().as_u16(), other.status().as_u16()), (200, 200), "{below}");
        let other =
            String::from_utf8_lossy(other.body()).replace(single.as_str(), together.as_str());
        assert_eq!(String::from_utf8_lossy(one.body()), other, "{below}");
    }
}

/// Z7.4: the dashboard first requests `job-output.json.gz`, then the plain file if there is none.
#[tokio::test]
async fn a_file_that_was_not_written_is_missing_and_a_large_one_is_listed_with_the_small_ones() {
    let story = story().await;
    let ports = story.world.ports();
    let build = BuildId::derive(&["both"]);
    logs_of(&build).store_packed(&ports, &packed()).await.unwrap();
    ports
        .objects
        .put(&logs_of(&build).key("large.txt"), "large".into(), PutMode::Always, "text/plain")
        .await
        .unwrap();
    for name in ["job-output.json.gz", "zuul-info/none", "none/", "report/index.html/x"] {
        assert_eq!(
            get(&story.api, &format!("/logs/acme/{build}/{name}")).await.status(),
            404,
            "{name}"
        );
    }
    assert_eq!(
        get(&story.api, &format!("/logs/acme/{build}.files")).await.status(),
        404,
        "it is no file of a build"
    );
    assert_eq!(get(&story.api, &format!("/logs/acme/{build}/large.txt")).await.body(), "large");
    let list = get(&story.api, &format!("/logs/acme/{build}/")).await;
    let list = String::from_utf8_lossy(list.body());
    let places =
        ["job-output.txt", "large.txt", "report/index.html"].map(|name| list.find(name).unwrap());
    assert!(places.is_sorted(), "{list}");
}

/// Z7.4: a short log is packed with other small files, and can still be followed.
#[tokio::test]
async fn the_log_of_a_build_that_is_over_is_followed_where_it_lies_with_other_files() {
    let story = story().await;
    let (ports, build) = (story.world.ports(), past());
    ports.objects.delete(&logs_of(&build).key(LOG)).await.unwrap();
    logs_of(&build).store_packed(&ports, &packed()).await.unwrap();
    let response = get(&story.api, &format!("/api/tenant/acme/build/{build}/log?offset=11")).await;
    assert_eq!(response.body().as_ref(), &FILES[1].1.as_bytes()[11..]);
    assert_eq!(response.headers()["x-log-ended"], "1");
    // Files that are stored as single objects are served too.
    assert_eq!(
        get(&story.api, &format!("/logs/acme/{build}/job-output.json.gz")).await.status(),
        200
    );
}

/// Z7.4: an unreadable file is not reported as missing.
#[tokio::test]
async fn files_that_lie_together_and_cannot_be_read_are_asked_for_again() {
    let story = story().await;
    let ports = story.world.ports();
    let build = BuildId::derive(&["damaged"]);
    ports
        .objects
        .put(&logs_of(&build).packed_key(), "{".into(), PutMode::Always, "text/plain")
        .await
        .unwrap();
    assert_eq!(get(&story.api, &format!("/logs/acme/{build}/job-output.txt")).await.status(), 503);
}

/// Z7.4: the HTTP reader works with a server that behaves like an executor.
#[tokio::test]
async fn an_executor_is_read_over_http() {
    let log = async |headers: HeaderMap, Query(query): Query<BTreeMap<String, usize>>| {
        if headers.get("authorization").is_none_or(|sent| sent != "Bearer secret") {
            return StatusCode::UNAUTHORIZED.into_response();
        }
        let rest = &"0123456789"[query["offset"].min(10)..];
        ([("x-log-length", "10"), ("x-log-ended", "0")], rest).into_response()
    };
    let router =
        Router::new().route("/log/one", route(log)).fallback(|| async { StatusCode::NOT_FOUND });
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}/", listener.local_addr().unwrap());
    let server = tokio::spawn(async move { axum::serve(listener, router).await });
    let logs = HttpLiveLogSource::new().unwrap();
    let at = |token: &str| LiveLogServer {
        address: address.clone(),
        token: LiveLogToken::new(token.to_owned()),
    };
    let piece = logs.read(&at("secret"), &"one".into(), 4).await.unwrap().unwrap();
    assert_eq!((piece.bytes.as_ref(), piece.length), (b"456789".as_slice(), 10));
    assert_eq!(logs.read(&at("secret"), &"other".into(), 0).await.unwrap(), None);
    let refused = logs.read(&at("another"), &"one".into(), 0).await.unwrap_err();
    assert!(!format!("{refused:?}").contains("another"), "no secret in an error: {refused:?}");
    server.abort();
    let _ = server.await;
    assert!(logs.read(&at("secret"), &"one".into(), 0).await.is_err(), "nothing listens there");
}
