//! Tests the pages in headless Chromium, with the API on loopback. Each test saves a screenshot in
//! the target directory.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use sluice_browser_tests::browser::{Browser, Colours, PAGE_MS, Viewport};
use sluice_browser_tests::serve::{TestServer, serve};
use sluice_browser_tests::story::{self, B, C, D, TestSystem, build_id, item_id};
use sluice_gate::autohold::{Autohold, HeldNodes};
use sluice_model::{ProjectName, Timestamp};
use sluice_records::autohold;
use std::path::PathBuf;

const WIDE: Viewport = Viewport { size: (1440, 1500), colours: Colours::Light };
const PHONE: Viewport = Viewport { size: (500, 2300), colours: Colours::Dark };

struct Page {
    browser: Browser,
    served: TestServer,
    story: TestSystem,
}

impl Page {
    async fn open() -> Self {
        let browser = Browser::find().unwrap();
        let story = story::write_story().await.unwrap();
        let served = serve(story.api.clone()).await.unwrap();
        Self { browser, served, story }
    }

    /// Returns the document of a page, and saves a screenshot.
    async fn render(&self, path: &str, render: Viewport, name: &str) -> String {
        let url = self.served.url(path);
        let document = self.browser.document(&url).await.unwrap();
        let file = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("page-{name}.png"));
        self.browser.screenshot(&url, render, &file).await.unwrap();
        println!("screenshot: {}", file.display());
        document
    }
}

fn has(document: &str, expected: &[&str]) {
    for text in expected {
        assert!(document.contains(text), "the page does not show {text:?}:\n{document}");
    }
}

/// Z9.1, Z6.4: the speculative order and the reasons are shown.
#[tokio::test(flavor = "multi_thread")]
async fn the_status_page_shows_the_queue_and_its_speculative_states() {
    let page = Page::open().await;
    let document = page.render("/t/acme/status", WIDE, "status").await;
    has(
        &document,
        &[
            "org/lib #11",
            "org/app #12",
            "org/lib #13",
            "org/app #14",
            "org/lib #15",
            "org/app #16",
            "org/app #17",
            "tested on main",
            "tested on top of org/lib #11",
            "tested on top of org/app #12",
            "being merged on top of org/app #14",
            "outside the window",
            "testing again on top of org/app#12",
            "2 of 314 tests failed",
            "after unit",
            "waiting for nodes",
            "landing",
            "failing",
            "window 5",
            "of about 4 min",
            "merged as tested",
            "org/app #17 is being enqueued",
        ],
    );
    has(&document, &[&format!("/t/acme/build/{}", build_id(&B, "integration", 1))]);
    // The rail draws an edge for each item of both queues; D's goes to B, past C.
    assert_eq!(document.matches("class=\"edge ").count(), 7, "{document}");
    let d = document
        .find(&format!("data-item=\"{}\"", item_id(&D)))
        .map(|at| &document[at..at + 200])
        .unwrap();
    assert!(d.contains(&format!("data-on=\"{}\"", item_id(&B))), "{d}");
    assert!(!document.contains("<script>alert(1)"), "a title is text, never markup");
    assert!(document.contains("&lt;script&gt;alert(1)"));
    assert!(!document.contains("A change of another tenant"), "nothing of another tenant");
}

/// Z9.1: Zuul's address of one pipeline shows only that pipeline, with a link to all.
#[tokio::test(flavor = "multi_thread")]
async fn the_status_page_shows_one_pipeline_alone() {
    let page = Page::open().await;
    let document = page.render("/t/acme/status/pipeline/check", WIDE, "status-pipeline").await;
    has(&document, &["org/app #17", "Only pipeline check.", "Show all"]);
    assert!(!document.contains("org/lib #11"), "{document}");
    let document = page.render("/t/acme/status?project=org/lib", WIDE, "status-project").await;
    has(
        &document,
        &["org/lib #11", "Only project org/lib.", "on top of a change that is not shown here"],
    );
    assert!(!document.contains("org/app #14"), "{document}");
}

/// Z9.1: readable on a phone, in the dark.
#[tokio::test(flavor = "multi_thread")]
async fn the_status_page_fits_a_phone() {
    let page = Page::open().await;
    let document = page.render("/t/acme/status", PHONE, "status-phone").await;
    has(&document, &["org/lib #11", "name=\"viewport\""]);
}

/// Z9.1
#[tokio::test(flavor = "multi_thread")]
async fn the_builds_page_lists_and_filters() {
    let page = Page::open().await;
    let document = page.render("/t/acme/builds", WIDE, "builds").await;
    has(&document, &["integration", "org/app #9", "1 min 35 s", "non-voting", "name=\"job_name\""]);
    let failures = page
        .browser
        .document(&page.served.url("/t/acme/builds?result=FAILURE&project=org%2Flib"))
        .await
        .unwrap();
    has(&failures, &["org/lib #13", "selected=\"\""]);
    assert!(!failures.contains(&build_id(&D, "unit", 1).to_string()));
}

/// N15, Z9.1: the page of a failed build says what failed, and how to log in on its held node.
#[tokio::test(flavor = "multi_thread")]
async fn the_build_page_says_what_failed_and_how_to_log_in() {
    let page = Page::open().await;
    let build = build_id(&C, "unit", 1);
    let held = HeldNodes {
        build: build.clone(),
        provider: "p".into(),
        nodes: vec!["node".into()],
        until: None,
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
        ssh_key: Some("ssh-ed25519 AAAA <b>ada</b>".to_owned()),
        created_at: Timestamp(0),
        held: vec![held],
    };
    page.story.world.write_unchecked(autohold::create(&request).unwrap());
    page.story.write_held_node("node", "p", &build).unwrap();
    let document = page.render(&format!("/t/acme/build/{build}"), WIDE, "build-held").await;
    has(
        &document,
        &[
            "2 of 314 tests failed\nIn the run playbook unit.yaml.",
            "ssh -i PRIVATE_KEY_FILE zuul@10.0.0.7 -p 2222",
            "until the request is deleted",
            "ssh-ed25519 AAAA &lt;b&gt;ada&lt;/b&gt;",
            "[10.0.0.7]:2222 ssh-ed25519 AAAAhost",
            "the mirror was slow",
        ],
    );
    let path = format!("/t/acme/buildset/{}", item_id(&C));
    let document = page.render(&path, WIDE, "buildset-failed").await;
    has(&document, &["2 of 314 tests failed"]);
}

/// Z7.4: the log of a running build is followed.
#[tokio::test(flavor = "multi_thread")]
async fn the_build_page_follows_a_log() {
    let page = Page::open().await;
    let build = build_id(&B, "integration", 1);
    let document = page.render(&format!("/t/acme/build/{build}"), WIDE, "build").await;
    has(
        &document,
        &[
            "imported 31,882 of 40,000",
            "größer",
            "Following: 7 lines so far",
            "in progress",
            "pair",
        ],
    );
    let lines = [
        ("bad", "primary | ERROR: no room"),
        ("head", "PLAY RECAP"),
        ("good", "secondary | ok: 3 changed: 1 unreachable: 0 failed: 0 skipped: 0"),
        ("bad", "primary | ok: 2 changed: 1 unreachable: 0 failed: 1 skipped: 0"),
        ("bad", "RUN END RESULT_TIMED_OUT: [untrusted : org/app/run.yaml@main]"),
    ];
    for (_, line) in lines {
        page.story.logs.append(&build, &format!("2026-11-21 11:03:46.000000 | {line}\n"));
    }
    let document =
        page.browser.document(&page.served.url(&format!("/t/acme/build/{build}"))).await.unwrap();
    has(&document, &["Following: 12 lines so far"]);
    for (tone, line) in lines.into_iter().chain([
        ("head", "TASK [Start the service on both nodes]"),
        ("good", "secondary | changed"),
    ]) {
        let start = format!("<span class=\"{tone}\">2026-11-21 11:0");
        let is_shown = document.split(&start).skip(1).any(|rest| {
            rest.split('\n').next().is_some_and(|shown| shown.ends_with(&format!("| {line}")))
        });
        assert!(is_shown, "{tone}: {line}\n{document}");
    }
}

/// Z7.4: a line is on the page within a second after the executor has it: in the page's own time,
/// which does not depend on the clock, the log is read at least once a second.
#[tokio::test(flavor = "multi_thread")]
async fn the_build_page_reads_the_log_of_a_running_build_every_second() {
    let page = Page::open().await;
    let build = build_id(&B, "integration", 1);
    page.browser.document(&page.served.url(&format!("/t/acme/build/{build}"))).await.unwrap();
    let reads = page.story.logs.reads();
    // The first read and the one that finds nothing more come at the beginning.
    assert!(reads > 2 + PAGE_MS as usize / 1_000, "{reads} reads in {PAGE_MS} ms");
}

/// Z9.1
#[tokio::test(flavor = "multi_thread")]
async fn the_buildset_page_shows_decisions() {
    let page = Page::open().await;
    let document =
        page.render(&format!("/t/acme/buildset/{}", item_id(&C)), WIDE, "buildset").await;
    has(
        &document,
        &[
            "unit failed; the changes behind it are tested without it",
            "Tested tree",
            "failure",
            "docs",
        ],
    );
}

/// Z2.1: several tenants are listed; an unknown one is an error.
#[tokio::test(flavor = "multi_thread")]
async fn the_first_page_lists_the_tenants() {
    let page = Page::open().await;
    let document = page.render("/", WIDE, "tenants").await;
    has(&document, &["/t/acme/status", "/t/other/status"]);
    let unknown = page.browser.document(&page.served.url("/t/unknown/status")).await.unwrap();
    has(&unknown, &["There is no tenant unknown."]);
}

/// Z9.1, C16: configuration errors and unsupported attributes are shown on a page.
#[tokio::test(flavor = "multi_thread")]
async fn the_configuration_page_shows_errors_and_objects() {
    let page = Page::open().await;
    let document = page.render("/t/acme/configuration", WIDE, "configuration").await;
    has(
        &document,
        &[
            "Job no-such-job not defined",
            "Not supported yet (ignored)",
            "no provider of the tenant offers label small",
            "github.com/org/lib",
            "Runs the unit tests.",
            "periodic",
        ],
    );
}

/// Z9.1: a tenant's address without a view shows its status; an unknown address is an error.
#[tokio::test(flavor = "multi_thread")]
async fn incomplete_and_unknown_addresses_are_answered() {
    let page = Page::open().await;
    let bare = page.browser.document(&page.served.url("/t/acme")).await.unwrap();
    has(&bare, &["org/lib #11"]);
    let build = build_id(&B, "integration", 1);
    let stream = page.served.url(&format!("/t/acme/stream/{build}?logfile=console.log"));
    has(&page.browser.document(&stream).await.unwrap(), &["imported 31,882 of 40,000"]);
    let not_found = page.browser.document(&page.served.url("/staus")).await.unwrap();
    has(&not_found, &["There is nothing at /staus."]);
}
