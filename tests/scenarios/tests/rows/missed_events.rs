//! Missed events: the sweep finds them and synthesizes each of them once.

use super::operator_enqueues::ask_as;
use super::ref_updates::{CONFIG, branch, orders};
use super::{MAIN, judge, propose};
use bytes::Bytes;
use sluice_memory::poll_once;
use sluice_model::build::Order;
use sluice_model::change::ChangeKey;
use sluice_model::event::{EventKind, ForgeEvent};
use sluice_model::git::Oid;
use sluice_model::wakeup::Wakeup;
use sluice_model::{ConnectionName, ProjectName};
use sluice_records::connection;
use sluice_runtime::object::PutMode;
use sluice_runtime::{Record, cell};
use sluice_scenarios::Site;
use sluice_scenarios::forge::{Announcement, DraftState, Visibility};

const PROJECT: &str = "
- project: {post: {jobs: [publish]}, tag: {jobs: [publish]}}
";

fn site_with_post_jobs() -> Site {
    let repositories: &[(&str, &[(&str, &str)])] =
        &[("org/config", &[("zuul.yaml", CONFIG)]), ("org/one", &[(".zuul.yaml", PROJECT)])];
    Site::new(7, MAIN, repositories, judge)
}

/// Returns the ref and the commit of each build.
fn tested(site: &Site) -> Vec<(String, Oid)> {
    let of =
        |change: &sluice_model::change::ChangeRef| change.key.ref_move().unwrap().git_ref.clone();
    orders(site).into_iter().map(|(order, _)| (of(&order.change), order.change.head)).collect()
}

/// Returns a site whose check is also triggered by a comment.
fn site_with_recheck() -> Site {
    let comment =
        "github: [{event: pull_request, action: comment, comment: recheck}, {event: pull_request, ";
    let config = super::CONFIG.replacen("github: [{event: pull_request, ", comment, 1);
    let repositories: &[(&str, &[(&str, &str)])] = &[
        ("org/config", &[("zuul.yaml", &config)]),
        ("org/one", &[(".zuul.yaml", super::PROJECT), ("shared", "0")]),
    ];
    Site::new(7, MAIN, repositories, judge)
}

/// C5: a comment leaves nothing in the change to compare, so the sweep asks the forge for a
/// redelivery.
#[test]
fn an_undelivered_webhook_is_redelivered_and_handled() {
    let mut site = site_with_recheck();
    let change = propose(&site, 1, &[("a", "x")]);
    site.run();
    site.forge.comment(&change, "recheck");
    site.forge.lose_webhooks();
    site.run();
    assert_eq!(site.builds(), ["check unit 1"]);
    site.sweep();
    assert_eq!(site.builds(), ["check unit 1"; 2]);
    site.sweep();
    assert_eq!(
        site.builds(),
        ["check unit 1"; 2],
        "the redelivery arrived, so no other one is requested"
    );
}

/// C5: an undelivered webhook is redelivered even if many newer ones were received but are recorded
/// without an answer.
#[test]
fn an_undelivered_webhook_is_redelivered_despite_newer_unanswered_ones() {
    let mut site = site_with_recheck();
    let change = propose(&site, 1, &[("a", "x")]);
    site.run();
    site.forge.comment(&change, "recheck");
    site.forge.lose_webhooks();
    for _ in 0..30 {
        site.forge.comment(&change, "thank you");
    }
    for webhook in site.forge.lose_answers() {
        site.receive(&webhook);
    }
    site.run();
    assert_eq!(site.builds(), ["check unit 1"]);
    site.sweep();
    assert_eq!(site.builds(), ["check unit 1"; 2]);
}

/// C5: an event that arrives a moment before the forge shows its change is not lost. If the forge
/// never shows the change, the retries end.
#[test]
fn an_event_for_a_change_that_is_not_visible_yet_is_retried() {
    for is_shown in [true, false] {
        let mut site = super::site();
        propose(&site, 1, &[("a", "x")]);
        site.forge.set_change_visibility(Visibility::Hidden);
        site.run_now();
        assert_eq!(site.builds(), Vec::<String>::new());
        site.forge.set_change_visibility(Visibility::of(is_shown));
        site.run();
        assert_eq!(site.builds().len(), usize::from(is_shown));
        assert_eq!(site.ending(&[], &[]).left_over, Vec::<String>::new());
    }
}

/// C5, S06: an event that arrives a moment before the forge shows its tag or branch is not lost. If
/// the forge never shows the ref, the retries end.
#[test]
fn an_event_for_a_ref_that_is_not_visible_yet_is_retried() {
    type Push = fn(&Site);
    let pushes: [Push; 2] = [
        |site| site.forge.tag(&branch("main"), "1.0"),
        |site| site.forge.push(&branch("main"), &[("src/a", "x")]),
    ];
    for push in pushes {
        for is_shown in [true, false] {
            let mut site = site_with_post_jobs();
            site.forge.set_ref_visibility(Visibility::Hidden);
            push(&site);
            site.run_now();
            assert_eq!(tested(&site), []);
            site.forge.set_ref_visibility(Visibility::of(is_shown));
            site.run();
            assert_eq!(tested(&site).len(), usize::from(is_shown));
            assert_eq!(site.ending(&[], &[]).left_over, Vec::<String>::new());
        }
    }
}

/// C5, S06: a missed push is found by the tip of its branch. It triggers its post jobs, and the
/// configuration is read again.
#[test]
fn a_missed_push_is_found_and_handled_once() {
    let mut site = site_with_post_jobs();
    site.sweep();
    assert_eq!(tested(&site), [], "the first sweep only records the tips");
    let main = branch("main");
    let before = site.forge.tip(&main);
    site.forge.push_silently(
        &main,
        &[(".zuul.yaml", "- project: {post: {jobs: [publish, docs]}}\n"), ("docs/a", "x")],
    );
    let after = site.forge.tip(&main);
    site.sweep();
    let once = vec![("refs/heads/main".to_owned(), after.clone()); 2];
    assert_eq!(tested(&site), once, "both jobs: its configuration was read first");
    site.sweep();
    // Its webhook arrives after all.
    site.forge.claim_push("org/one", "refs/heads/main", &before, &after);
    site.run();
    assert_eq!(tested(&site), once);
}

/// Returns a site with a second connection to its forge, `second`, and these tenants.
fn site_with_two_connections(main: &str) -> Site {
    let theirs = CONFIG.replace("github:", "second:");
    let repositories: &[(&str, &[(&str, &str)])] = &[
        ("org/config", &[("zuul.yaml", CONFIG)]),
        ("org/config2", &[("zuul.yaml", &theirs)]),
        ("org/one", &[(".zuul.yaml", PROJECT)]),
    ];
    let mut site = Site::with_connections(7, MAIN, repositories, judge, &["second"]);
    let ports = site.ports();
    let mut connections = poll_once(connection::load(&ports)).unwrap().unwrap();
    let github = connections.0[&ConnectionName::from("github")].clone();
    connections.0.insert("second".into(), github);
    let connections = serde_json::to_string(&connections).unwrap();
    for (name, text) in [(connection::OBJECT, connections), (connection::MAIN, main.to_owned())] {
        let put =
            ports.objects.put(name, Bytes::from(text), PutMode::Always, "application/octet-stream");
        poll_once(put).unwrap().unwrap();
    }
    let wakeups = ["demo", "other"].map(|tenant| Wakeup::Tenant { tenant: tenant.into() });
    poll_once(cell::send(&ports, &wakeups)).unwrap().unwrap();
    site.run();
    site
}

/// Runs the sweep of the project by one connection.
fn sweep_by(site: &mut Site, connection: &str) {
    let project = ProjectName::new("forge.test", "org/one");
    let event = ForgeEvent {
        connection: connection.into(),
        project,
        sender: String::new(),
        kind: EventKind::Sweep,
    };
    ask_as(site, event).unwrap();
}

/// Returns tenant, pipeline and job of each build, sorted.
fn builds_by_tenant(site: &Site) -> Vec<String> {
    let order =
        |order: &Order| format!("{} {} {}", order.queue.tenant, order.queue.pipeline, order.job);
    let mut builds: Vec<String> = orders(site).iter().map(|(of, _)| order(of)).collect();
    builds.sort();
    builds
}

/// C5, S06: a push triggers pipelines through the connection by which a tenant has the project. A
/// missed push is synthesized once by each such connection.
#[test]
fn a_missed_push_is_synthesized_once_for_each_connection_of_a_tenant() {
    let mut site = site_with_two_connections(
        "
- tenant: {name: demo, source: {github: {config-projects: [org/config], untrusted-projects: [org/one]}}}
- tenant: {name: other, source: {second: {config-projects: [org/config2], untrusted-projects: [org/one]}}}
",
    );
    sweep_by(&mut site, "github");
    site.forge.push_silently(&branch("main"), &[("src/a", "x")]);
    for connection in ["github", "second", "github"] {
        sweep_by(&mut site, connection);
        assert_eq!(
            builds_by_tenant(&site),
            ["demo post publish", "other post publish"],
            "after the sweep by {connection}"
        );
    }
}

/// C5, S06: only one of two connections to a host has a webhook. The sweep synthesizes each push
/// once for the other connection.
#[test]
fn a_push_received_by_one_connection_is_synthesized_by_the_other() {
    let mut site = site_with_two_connections(
        "
- tenant: {name: demo, source: {github: {config-projects: [org/config], untrusted-projects: [org/one]}}}
- tenant: {name: other, source: {second: {config-projects: [org/config2], untrusted-projects: [org/one]}}}
",
    );
    sweep_by(&mut site, "github");
    for text in ["x", "y"] {
        let before = builds_by_tenant(&site).len();
        site.forge.push(&branch("main"), &[("src/a", text)]);
        site.run();
        assert_eq!(
            builds_by_tenant(&site).len(),
            before + 1,
            "the tenant with the webhook gets the push"
        );
        for connection in ["second", "github", "second"] {
            sweep_by(&mut site, connection);
            let builds = builds_by_tenant(&site);
            let of = |tenant: &str| builds.iter().filter(|build| build.starts_with(tenant)).count();
            assert_eq!(
                (of("demo"), of("other")),
                (before / 2 + 1, before / 2 + 1),
                "after the sweep by {connection}"
            );
        }
    }
}

/// C5, S06: several pushes received by one connection before the sweep are synthesized as one by
/// the other. That includes a last push without a webhook.
#[test]
fn consecutive_pushes_are_synthesized_as_one() {
    for is_last_sent in [true, false] {
        let mut site = site_with_two_connections(
            "
- tenant: {name: demo, source: {github: {config-projects: [org/config], untrusted-projects: [org/one]}}}
- tenant: {name: other, source: {second: {config-projects: [org/config2], untrusted-projects: [org/one]}}}
",
        );
        sweep_by(&mut site, "github");
        site.forge.push(
            &branch("main"),
            &[(".zuul.yaml", "- project: {post: {jobs: [publish, docs]}}\n")],
        );
        site.run();
        sweep_by(&mut site, "second");
        let before = builds_by_tenant(&site);
        site.forge.push(&branch("main"), &[("docs/a", "x")]);
        site.run();
        if is_last_sent {
            site.forge.push(&branch("main"), &[("src/a", "x")]);
        } else {
            site.forge.push_silently(&branch("main"), &[("src/a", "x")]);
        }
        site.run();
        let more = |site: &Site| {
            let count =
                |all: &[String], build: &str| all.iter().filter(|one| *one == build).count();
            let builds =
                ["demo post docs", "demo post publish", "other post docs", "other post publish"];
            builds.map(|build| count(&builds_by_tenant(site), build) - count(&before, build))
        };
        assert_eq!(more(&site), [1, 1 + usize::from(is_last_sent), 0, 0]);
        for connection in ["second", "github", "second"] {
            sweep_by(&mut site, connection);
            assert_eq!(
                more(&site),
                [1, 2, 1, 1],
                "after the sweep by {connection}, last webhook sent: {is_last_sent}"
            );
        }
    }
}

/// C5, S06: a webhook sent to the address of another connection to the same host triggers nothing.
/// It does not prevent the tenant's own connection from synthesizing the push.
#[test]
fn a_push_by_an_unused_connection_does_not_suppress_the_synthesized_one() {
    let mut site = site_with_two_connections(
        "
- tenant: {name: demo, source: {github: {config-projects: [org/config]}}}
- tenant: {name: other, source: {second: {config-projects: [org/config2], untrusted-projects: [org/one]}}}
",
    );
    sweep_by(&mut site, "second");
    site.forge.push(&branch("main"), &[("src/a", "x")]);
    site.run();
    assert_eq!(builds_by_tenant(&site), Vec::<String>::new());
    for _ in 0..2 {
        sweep_by(&mut site, "second");
        assert_eq!(builds_by_tenant(&site), ["other post publish"]);
    }
}

/// C5, S06
#[test]
fn a_branch_without_a_webhook_is_found() {
    let mut site = site_with_post_jobs();
    site.sweep();
    site.forge.branch_off("org/one", "main", "stable");
    site.sweep();
    let stable = site.forge.tip(&branch("stable"));
    assert_eq!(tested(&site), [("refs/heads/stable".to_owned(), stable)]);
}

/// C5, S06: the first sweep sees the branch after a push whose webhook has not arrived yet.
#[test]
fn a_push_before_the_first_sweep_is_handled() {
    let mut site = site_with_post_jobs();
    let main = branch("main");
    let before = site.forge.tip(&main);
    site.forge.push_silently(&main, &[("src/a", "x")]);
    site.sweep();
    assert_eq!(tested(&site), []);
    let after = site.forge.tip(&main);
    site.forge.claim_push("org/one", "refs/heads/main", &before, &after);
    site.run();
    assert_eq!(tested(&site), [("refs/heads/main".to_owned(), after)]);
}

/// C5: two pushes whose webhooks arrive in reverse order are two events, and the sweep does not
/// synthesize the later one again.
#[test]
fn reordered_push_webhooks_are_handled_once_each() {
    let mut site = site_with_post_jobs();
    let main = branch("main");
    let mut tips = vec![site.forge.tip(&main)];
    site.forge.push(&main, &[("src/a", "0")]);
    site.run();
    for text in ["1", "2"] {
        site.forge.push_silently(&main, &[("src/a", text)]);
        tips.push(site.forge.tip(&main));
    }
    let first = tested(&site).len();
    let first_tip = tested(&site)[0].1.clone();
    site.forge.claim_push("org/one", "refs/heads/main", &tips[1], &tips[2]);
    site.run();
    site.forge.claim_push("org/one", "refs/heads/main", &first_tip, &tips[1]);
    site.run();
    let both = tested(&site).len();
    site.sweep();
    assert_eq!((first, both, tested(&site).len()), (1, 3, 3));
}

/// Pipelines for events that change no revision.
const FACTS: &str = "
- pipeline: {name: edits, manager: independent, trigger: {github: [{event: pull_request, action: edited}]}}
- pipeline: {name: bare, manager: independent, trigger: {github: [{event: pull_request, action: unlabeled, unlabel: go}]}}
- pipeline: {name: statuses, manager: independent, trigger: {github: [{event: pull_request, action: status, status: 'ci:unit:success'}]}}
- project: {name: org/one, edits: {jobs: [unit]}, bare: {jobs: [unit]}, statuses: {jobs: [unit]}}
";

/// Returns a site with these pipelines and a checked change.
fn site_with_checked_change() -> (Site, ChangeKey) {
    let config = format!("{}{FACTS}", super::CONFIG);
    let repositories: &[(&str, &[(&str, &str)])] = &[
        ("org/config", &[("zuul.yaml", &config)]),
        ("org/one", &[(".zuul.yaml", super::PROJECT), ("shared", "0")]),
    ];
    let mut site = Site::new(7, MAIN, repositories, judge);
    let change = propose(&site, 1, &[("a", "x")]);
    site.run();
    (site, change)
}

/// C5: a missed draft, description, removed label or status is found by the sweep. It is handled
/// once, even if its webhook arrives later.
#[test]
fn missed_events_that_change_no_revision_are_synthesized_once() {
    type Edit = fn(&Site, &ChangeKey);
    let edits: [(&str, Edit); 4] = [
        ("edits", |site, change| site.forge.set_draft(change, DraftState::Draft)),
        ("edits", |site, change| site.forge.describe(change, "says more", Announcement::Webhook)),
        ("bare", |site, change| site.forge.unlabel(change, "go")),
        ("statuses", |site, change| {
            site.forge.put_status(change, "ci", "unit", "success");
            site.forge.send_status_webhook(change, "unit", "ci");
        }),
    ];
    for (at, (pipeline, edit)) in edits.into_iter().enumerate() {
        for comes_late in [false, true] {
            let (mut site, change) = site_with_checked_change();
            site.forge.label(&change, "go", Announcement::Webhook);
            site.run();
            site.sweep();
            let builds = |site: &Site| {
                site.builds().iter().filter(|build| build.starts_with(pipeline)).count()
            };
            assert_eq!(builds(&site), 0, "edit {at}");
            edit(&site, &change);
            if comes_late {
                site.forge.lose_webhooks()
            } else {
                site.forge.forget_webhooks()
            }
            // Each sweep reads the statuses of some unchanged changes, and of others the next
            // time.
            for time in 0..2 {
                site.sweep();
                assert_eq!(builds(&site), 1, "edit {at}, late: {comes_late}, sweep {time}");
            }
        }
    }
}

/// C5: the function that handles a synthesized event may read an outdated state of the change. The
/// next sweep finds the status again, and it is handled once.
#[test]
fn a_status_hidden_by_a_stale_read_is_found_again() {
    let (mut site, change) = site_with_checked_change();
    site.sweep();
    let builds =
        |site: &Site| site.builds().iter().filter(|build| build.starts_with("statuses")).count();
    site.forge.put_status(&change, "ci", "unit", "success");
    for _ in 0..2 {
        site.forge.show_statuses(Some(1));
        site.sweep();
        assert_eq!(builds(&site), 0, "only the sweep saw the status");
    }
    site.forge.show_statuses(None);
    for _ in 0..2 {
        site.sweep();
        assert_eq!(builds(&site), 1);
    }
}

/// C5: of the missed statuses only those that match a trigger of some pipeline are synthesized.
#[test]
fn statuses_without_a_matching_trigger_are_not_synthesized() {
    let (mut site, change) = site_with_checked_change();
    site.sweep();
    for (context, state) in [("unit", "success"), ("coverage", "success"), ("docs", "failure")] {
        site.forge.put_status(&change, "ci", context, state);
    }
    for _ in 0..2 {
        site.sweep();
    }
    let synthesized = |record: &&Record| {
        record.body.contains("\"event_name\":\"sweep\"") && record.body.contains("\"status\":\"ci:")
    };
    let records = site.world.records();
    let synthesized: Vec<_> = records.iter().filter(synthesized).collect();
    assert!(
        synthesized.len() == 1 && synthesized[0].body.contains("ci:unit:success"),
        "{synthesized:?}"
    );
    assert_eq!(site.builds().iter().filter(|build| build.starts_with("statuses")).count(), 1);
}

/// C5: a synthesized event does not suppress later events.
#[test]
fn a_change_after_a_synthesized_event_is_handled_again() {
    let (mut site, change) = site_with_checked_change();
    site.forge.set_draft(&change, DraftState::Draft);
    site.forge.forget_webhooks();
    site.sweep();
    for (readiness, builds) in [(DraftState::Ready, 2), (DraftState::Draft, 3)] {
        site.forge.set_draft(&change, readiness);
        site.run();
        let edits = site.builds().iter().filter(|build| build.starts_with("edits")).count();
        assert_eq!(edits, builds);
    }
}
