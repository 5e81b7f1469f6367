//! The pages in headless Chromium, over the API on loopback. Each test keeps a picture below the
//! target directory.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use sluice_browser_tests::browser::{Browser, Colours, Look};
use sluice_browser_tests::serve::{Served, serve};
use sluice_browser_tests::story::{self, B, C, D, Story, build_id, item_id};
use std::path::PathBuf;

const WIDE: Look = Look { size: (1440, 1500), colours: Colours::Light };
const PHONE: Look = Look { size: (500, 2300), colours: Colours::Dark };

struct Page {
    browser: Browser,
    served: Served,
    story: Story,
}

impl Page {
    async fn open() -> Self {
        let browser = Browser::find().unwrap();
        let story = story::tell().await.unwrap();
        let served = serve(story.api.clone()).await.unwrap();
        Self { browser, served, story }
    }

    /// Returns the document as a person would read it, having kept a picture.
    async fn look(&self, path: &str, look: Look, name: &str) -> String {
        let url = self.served.url(path);
        let document = self.browser.document(&url).await.unwrap();
        let file = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("page-{name}.png"));
        self.browser.picture(&url, look, &file).await.unwrap();
        println!("picture: {}", file.display());
        document
    }
}

fn has(document: &str, wanted: &[&str]) {
    for text in wanted {
        assert!(document.contains(text), "the page does not show {text:?}:\n{document}");
    }
}

/// Z9.1, Z6.4: who is tested on whom, and why.
#[tokio::test(flavor = "multi_thread")]
async fn the_status_page_shows_the_queue_and_its_speculative_states() {
    let page = Page::open().await;
    let document = page.look("/t/acme/status", WIDE, "status").await;
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
            "tested on main as it is",
            "tested on top of org/lib #11",
            "tested on top of org/app #12",
            "being merged on top of org/app #14",
            "outside the window",
            "tested again, now on org/app#12",
            "2 of 314 tests failed",
            "after unit",
            "waits for nodes",
            "landing",
            "failing",
            "window 5",
            "of about 4 min",
            "landed as tested",
            "org/app #17 is arriving",
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
    assert!(!document.contains("nobody else's business"), "nothing of another tenant");
}

/// Z9.1: Zuul's address of one pipeline shows that one, and the way back.
#[tokio::test(flavor = "multi_thread")]
async fn the_status_page_shows_one_pipeline_alone() {
    let page = Page::open().await;
    let document = page.look("/t/acme/status/pipeline/check", WIDE, "status-pipeline").await;
    has(&document, &["org/app #17", "Only pipeline check.", "Show all"]);
    assert!(!document.contains("org/lib #11"), "{document}");
    let document = page.look("/t/acme/status?project=org/lib", WIDE, "status-project").await;
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
    let document = page.look("/t/acme/status", PHONE, "status-phone").await;
    has(&document, &["org/lib #11", "name=\"viewport\""]);
}

/// Z9.1
#[tokio::test(flavor = "multi_thread")]
async fn the_builds_page_lists_and_filters() {
    let page = Page::open().await;
    let document = page.look("/t/acme/builds", WIDE, "builds").await;
    has(&document, &["integration", "org/app #9", "1 min 35 s", "non-voting", "name=\"job_name\""]);
    let failures = page
        .browser
        .document(&page.served.url("/t/acme/builds?result=FAILURE&project=org%2Flib"))
        .await
        .unwrap();
    has(&failures, &["org/lib #13", "selected=\"\""]);
    assert!(!failures.contains(&build_id(&D, "unit", 1).to_string()));
}

/// Z7.4: the log of a running build, as it grows.
#[tokio::test(flavor = "multi_thread")]
async fn the_build_page_follows_a_log() {
    let page = Page::open().await;
    let build = build_id(&B, "integration", 1);
    let document = page.look(&format!("/t/acme/build/{build}"), WIDE, "build").await;
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
    page.story
        .logs
        .append(&build, "2026-11-21 11:03:46.000000 | fatal: [primary]: FAILED! => {}\n");
    let document =
        page.browser.document(&page.served.url(&format!("/t/acme/build/{build}"))).await.unwrap();
    has(&document, &["FAILED!", "Following: 8 lines so far"]);
}

/// Z9.1
#[tokio::test(flavor = "multi_thread")]
async fn the_buildset_page_says_what_was_decided() {
    let page = Page::open().await;
    let document = page.look(&format!("/t/acme/buildset/{}", item_id(&C)), WIDE, "buildset").await;
    has(
        &document,
        &["unit failed; what is behind is tested without it", "Tested tree", "failure", "docs"],
    );
}

/// Z2.1: several tenants are offered; one that does not exist is refused in words.
#[tokio::test(flavor = "multi_thread")]
async fn the_first_page_offers_the_tenants() {
    let page = Page::open().await;
    let document = page.look("/", WIDE, "tenants").await;
    has(&document, &["/t/acme/status", "/t/other/status"]);
    let nobody = page.browser.document(&page.served.url("/t/nobody/status")).await.unwrap();
    has(&nobody, &["There is no tenant nobody."]);
}

/// Z9.1, C16: what is wrong with a configuration, and what of it is not carried out, is a page and
/// not raw JSON.
#[tokio::test(flavor = "multi_thread")]
async fn the_configuration_page_shows_mistakes_and_what_there_is() {
    let page = Page::open().await;
    let document = page.look("/t/acme/configuration", WIDE, "configuration").await;
    has(
        &document,
        &[
            "Job no-such-job not defined",
            "Understood, and not carried out yet",
            "no provider of the tenant offers small",
            "github.com/org/lib",
            "Runs the unit tests.",
            "periodic",
        ],
    );
}

/// Z9.1: a tenant's bare address is its status; an address where nothing is says so in words.
#[tokio::test(flavor = "multi_thread")]
async fn addresses_that_people_type_lead_somewhere() {
    let page = Page::open().await;
    let bare = page.browser.document(&page.served.url("/t/acme")).await.unwrap();
    has(&bare, &["org/lib #11"]);
    let build = build_id(&B, "integration", 1);
    let stream = page.served.url(&format!("/t/acme/stream/{build}?logfile=console.log"));
    has(&page.browser.document(&stream).await.unwrap(), &["imported 31,882 of 40,000"]);
    let nowhere = page.browser.document(&page.served.url("/staus")).await.unwrap();
    has(&nowhere, &["There is nothing at /staus."]);
}
