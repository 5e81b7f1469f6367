//! Self-authored events: statuses, reviews and votes of one pipeline that another pipeline waits
//! for.

use super::{
    PROJECT, comments, gate_builds, headers, jobs, judge, merged, propose, site_of, unlinked,
};
use bytes::Bytes;
use serde_json::json;
use sluice_forge::Marker;
use sluice_gate::report::{Report, ReportState};
use sluice_memory::poll_once;
use sluice_model::ConnectionName;
use sluice_model::change::ChangeKey;
use sluice_records::codec::decode;
use sluice_records::delivery::{DeliveryRecord, DeliveryState};
use sluice_records::{connection, report};
use sluice_runtime::object::PutMode;
use sluice_scenarios::Site;
use sluice_scenarios::forge::OWN;
use sluice_scenarios::site::WEBHOOK_SECRET;

/// A gate that requires an approval and the success of check, in either order.
const CLEAN_CHECK: &str = r"
- pipeline:
    name: check
    manager: independent
    trigger:
      github: [{event: pull_request, action: [opened, changed, reopened]}]
    start: {github: {status: pending, comment: false}}
    success: {github: {status: success}}
    failure: {github: {status: failure}}
- pipeline:
    name: gate
    manager: dependent
    post-review: true
    require:
      github:
        open: true
        review: [{type: approved, permission: write}]
        status: 'sluice\[bot\]:demo/check:success'
    trigger:
      github:
        - {event: pull_request_review, action: submitted, state: approved}
        - {event: pull_request, action: status, status: 'sluice\[bot\]:demo/check:success'}
    start: {github: {status: pending, comment: false}}
    success: {github: {status: success, merge: true}}
    failure: {github: {status: failure}}
";

/// Returns a site with these pipelines and the jobs of the other rows.
fn site_with(pipelines: &str, project: &str) -> Site {
    site_of(&format!("{pipelines}{}", jobs()), project)
}

/// Proposes a change and approves it before check reports; then lets check finish.
fn approve_before_check_reports(site: &mut Site, edits: &[(&str, &str)]) -> ChangeKey {
    site.held = ["unit".to_owned()].into();
    let change = propose(site, 1, edits);
    site.run_until(|site| site.running() == ["unit"]);
    site.forge.approve(&change);
    site.take_in();
    site.run_now();
    assert!(
        !site.builds().iter().any(|build| build.starts_with("gate ")),
        "check has not reported yet"
    );
    site.held.clear();
    site.run();
    change
}

/// Returns the states of the deliveries of status events.
fn status_delivery_states(site: &Site) -> Vec<DeliveryState> {
    let records = site
        .world
        .records()
        .into_iter()
        .filter(|record| record.key.partition.starts_with("delivery#"));
    let deliveries = records.map(|record| decode::<DeliveryRecord>(&record).unwrap());
    deliveries
        .filter(|delivery| delivery.event_name == "status")
        .map(|delivery| delivery.state)
        .collect()
}

/// Z6.1, G11: the gate waits for the success status of check.
#[test]
fn a_change_that_is_approved_during_check_enters_the_gate_when_check_succeeds() {
    for twice in [false, true] {
        let mut site = site_with(CLEAN_CHECK, PROJECT);
        site.twice = twice;
        site.forge.send_own_status_webhooks();
        let change = approve_before_check_reports(&mut site, &[("a", "x")]);
        assert_eq!((merged(&site), gate_builds(&site, "unit")), (vec![1], vec!["1".to_owned()]));
        // No trigger names the two start statuses and the final status of the gate.
        let passed_on = status_delivery_states(&site)
            .into_iter()
            .filter(|state| *state != DeliveryState::SelfAuthored)
            .count();
        assert!(
            passed_on == 1 && status_delivery_states(&site).len() >= 4,
            "{:?}",
            status_delivery_states(&site)
        );
        assert_eq!(site.ending(&["org/one"], &[&change]).left_over, Vec::<String>::new());
    }
}

/// Z6.1: a self-authored status does not start a pipeline whose trigger names no status.
#[test]
fn a_self_authored_status_starts_only_the_pipelines_that_name_it() {
    let also = "
- pipeline:
    name: also
    manager: independent
    require: {github: {open: true}}
    trigger: {github: [{event: pull_request}]}
    success: {github: {status: success}}
    failure: {github: {status: failure}}
";
    let mut site = site_with(
        &format!("{CLEAN_CHECK}{also}"),
        &format!("{PROJECT}    also: {{jobs: [other]}}\n"),
    );
    site.forge.send_own_status_webhooks();
    approve_before_check_reports(&mut site, &[("a", "x")]);
    assert_eq!(merged(&site), [1]);
    let builds = site.builds().into_iter().filter(|build| build.starts_with("also ")).count();
    assert_eq!(builds, 1, "{:?}", site.builds());
}

/// Z6.1: with a GitHub App's token the own login is unknown. Sluice recognizes its statuses by
/// name: otherwise two pipelines without filters would start each other for ever.
#[test]
fn a_self_authored_status_starts_no_unfiltered_pipeline_when_the_own_login_is_unknown() {
    let pipeline = |name: &str| {
        format!(
            "
- pipeline:
    name: {name}
    manager: independent
    trigger: {{github: [{{event: pull_request}}]}}
    success: {{github: {{status: success}}}}
    failure: {{github: {{status: failure}}}}
"
        )
    };
    let project = "- project: {one: {jobs: [unit]}, two: {jobs: [unit]}}\n";
    let mut site = site_with(&format!("{}{}", pipeline("one"), pipeline("two")), project);
    let ports = site.ports();
    let mut connections = poll_once(connection::load(&ports)).unwrap().unwrap();
    connections.0.get_mut(&ConnectionName::from("github")).unwrap().login = None;
    let text = Bytes::from(serde_json::to_string(&connections).unwrap());
    poll_once(ports.objects.put(connection::OBJECT, text, PutMode::Always, "application/json"))
        .unwrap()
        .unwrap();
    site.forge.send_own_status_webhooks();
    let change = propose(&site, 1, &[("a", "x")]);
    site.run();
    assert_eq!(site.builds(), ["one unit 1", "two unit 1"]);
    let states = status_delivery_states(&site);
    assert!(
        states.len() == 2 && states.iter().all(|state| *state != DeliveryState::SelfAuthored),
        "{states:?}"
    );
    site.forge.put_status(&change, "ci", "ci/unit", "success");
    site.forge.send_status_webhook(&change, "ci/unit", "ci");
    site.run();
    assert_eq!(site.builds().len(), 4, "a status of another user starts both");
}

/// C5: the sweep synthesizes the missed review of another user, but not a self-authored one.
#[test]
fn a_missed_self_authored_review_is_not_synthesized() {
    let reviewed = "
- pipeline:
    name: reviewed
    manager: independent
    trigger: {github: [{event: pull_request_review, action: submitted}]}
";
    for (by, builds) in [(OWN, 0), ("grace", 1)] {
        let mut site = site_with(reviewed, "- project: {reviewed: {jobs: [unit]}}\n");
        let change = propose(&site, 1, &[("a", "x")]);
        site.run();
        site.forge.approve_silently(&change, by);
        for _ in 0..2 {
            site.sweep();
            assert_eq!(site.builds().len(), builds, "{by}");
        }
    }
}

/// C5: the sweep synthesizes a self-authored status whose webhook was missed, once.
#[test]
fn the_sweep_synthesizes_a_missed_self_authored_status() {
    let mut site = site_with(CLEAN_CHECK, PROJECT);
    let change = approve_before_check_reports(&mut site, &[("a", "x, broken other")]);
    assert_eq!(gate_builds(&site, "other"), Vec::<String>::new());
    for _ in 0..3 {
        site.sweep();
        assert_eq!(gate_builds(&site, "other"), ["1"]);
    }
    assert!(
        unlinked(&comments(&site, &change)).contains("other : FAILURE"),
        "{}",
        comments(&site, &change)
    );
}

/// Z6.3: a report that is sent twice causes no second event, so that a change that failed in the
/// gate stays out of it.
#[test]
fn a_report_that_is_sent_again_starts_nothing_again() {
    let mut site = site_with(CLEAN_CHECK, PROJECT);
    site.forge.send_own_status_webhooks();
    let change = approve_before_check_reports(&mut site, &[("a", "broken other")]);
    assert_eq!((merged(&site), gate_builds(&site, "other")), (vec![], vec!["1".to_owned()]));
    let is_of_check =
        |report: &Report| !report.is_start() && report.queue.pipeline.as_str() == "check";
    let records = site
        .world
        .records()
        .into_iter()
        .filter(|record| record.key.partition.starts_with("report#"));
    let mut report = records
        .map(|record| decode::<Report>(&record).unwrap())
        .find(is_of_check)
        .expect("check reported");
    report.state = ReportState::Pending;
    site.world.write_unchecked(report::put(&report).unwrap());
    let deliveries = status_delivery_states(&site).len();
    site.run();
    assert_eq!(
        (gate_builds(&site, "other").len(), status_delivery_states(&site).len()),
        (1, deliveries)
    );
    let times_posted =
        site.forge.change(&change).unwrap().comments.into_values().map(|(_, times)| times).max();
    assert_eq!(times_posted, Some(2), "the report was sent again");
}

/// Z6.1: a pipeline whose trigger names a status is not started by its own status.
#[test]
fn a_pipeline_is_not_started_by_its_own_status() {
    let echo = r"
- pipeline:
    name: echo
    manager: independent
    trigger: {github: [{event: pull_request, action: status, status: 'sluice\[bot\]:demo/.*:success'}]}
    success: {github: {status: success}}
";
    let project = format!("{PROJECT}    echo: {{jobs: [noop]}}\n");
    let mut site = site_with(&format!("{CLEAN_CHECK}{echo}"), &project);
    site.forge.send_own_status_webhooks();
    let change = propose(&site, 1, &[("a", "x")]);
    site.run();
    let of_echo =
        site.ending(&[], &[&change]).buildsets.into_iter().filter(|set| set.contains(" echo "));
    assert_eq!(of_echo.collect::<Vec<_>>(), ["org/one#1 echo SUCCESS"]);
}

/// Z6.7: a self-authored status that no trigger names costs only the write of its delivery.
#[test]
fn a_self_authored_status_without_a_trigger_costs_as_much_as_a_self_authored_comment() {
    let mut site = super::site();
    let change = propose(&site, 1, &[("a", "x")]);
    site.run();
    let head = site.forge.change(&change).unwrap().facts.change.head;
    let issue = json!({"number": 1, "pull_request": {}});
    let comment = json!({"action": "created", "issue": issue, "comment": {"body": Marker::new("check/1").attach("done")}});
    let status = json!({"sha": head, "context": "demo/check", "state": "success", "branches": []});
    let mut steps = Vec::new();
    // The first event of each kind fills the caches.
    for (id, event, mut body) in [
        ("comment-0", "issue_comment", comment.clone()),
        ("status-0", "status", status.clone()),
        ("comment-1", "issue_comment", comment),
        ("status-1", "status", status),
    ] {
        body["repository"] = json!({"full_name": "org/one"});
        body["sender"] = json!({"login": OWN});
        let body = Bytes::from(body.to_string());
        let mut headers = headers(&body, WEBHOOK_SECRET);
        headers.insert("x-github-event", event.parse().unwrap());
        headers.insert("x-github-delivery", id.parse().unwrap());
        let before = site.world.steps();
        assert_eq!(site.hand_in(&headers, &body), 202, "{id}");
        steps.push(site.world.steps() - before);
    }
    assert_eq!(steps[2], steps[3], "{steps:?}");
    assert!(
        status_delivery_states(&site).iter().all(|state| *state == DeliveryState::SelfAuthored),
        "{:?}",
        status_delivery_states(&site)
    );
}

/// Z6.1, Z6.3, C5: a report with the same status as the one before it is a new event. It starts the
/// waiting pipeline once, by its webhook or by the sweep.
#[test]
fn a_report_with_an_unchanged_status_starts_the_waiting_pipeline_again() {
    let opened = "[{event: pull_request, action: [opened, changed, reopened]}]";
    let again = "[{event: pull_request, action: opened}, {event: pull_request, action: comment, comment: recheck}]";
    let follow_up = r"
- pipeline:
    name: follow-up
    manager: independent
    trigger: {github: [{event: pull_request, action: status, status: 'sluice\[bot\]:demo/check:success'}]}
";
    // Check posts no start status, so that nothing comes between the two results.
    let config =
        CLEAN_CHECK.replacen("    start: {github: {status: pending, comment: false}}\n", "", 1);
    let config = format!("{}{follow_up}", config.replacen(opened, again, 1));
    for is_delivered in [true, false] {
        let mut site = site_with(&config, &format!("{PROJECT}    follow-up: {{jobs: [other]}}\n"));
        if is_delivered {
            site.forge.send_own_status_webhooks();
        }
        let change = propose(&site, 1, &[("a", "x")]);
        site.run();
        for times in 1..=3 {
            for _ in 0..2 {
                site.sweep();
                let builds = site
                    .builds()
                    .into_iter()
                    .filter(|build| build.starts_with("follow-up "))
                    .count();
                assert_eq!(builds, times, "delivered: {is_delivered}, {:?}", site.builds());
            }
            site.forge.comment(&change, "recheck");
            site.run();
        }
        assert_eq!(site.ending(&["org/one"], &[&change]).left_over, Vec::<String>::new());
    }
}

const REVIEWED: &str = r"
- pipeline:
    name: check
    manager: independent
    trigger: {gerrit: [{event: patchset-created}]}
    success: {gerrit: {Verified: 1}}
- pipeline:
    name: gate
    manager: dependent
    post-review: true
    require: {gerrit: {open: true, approval: [{Approved: 1}, {Verified: 1, username: 'sluice\[bot\]'}]}}
    trigger:
      gerrit:
        - {event: comment-added, approval: [{Approved: 1}]}
        - {event: comment-added, approval: [{Verified: 1}], username: 'sluice\[bot\]'}
    success: {gerrit: {Verified: 2, submit: true}}
";

const REVIEWED_MAIN: &str = "
- tenant:
    name: demo
    source:
      github:
        config-projects: [org/config]
      gerrit:
        untrusted-projects: [org/one]
";

/// G11: the gate waits for the vote of check, with a trigger whose `username` is the own account.
#[test]
fn the_sweep_finds_a_self_authored_vote_that_a_trigger_names() {
    let project: &[(&str, &str)] = &[(".zuul.yaml", PROJECT), ("shared", "0")];
    let config = format!("{REVIEWED}{}", jobs());
    let repositories: &[(&str, &[(&str, &str)])] =
        &[("org/config", &[("zuul.yaml", &config)]), ("review.test/org/one", project)];
    let mut site = Site::new(7, REVIEWED_MAIN, repositories, judge);
    site.held = ["unit".to_owned()].into();
    let change = site.forge.upload("org/one", 1, None, &[("a", "x")]);
    site.run_until(|site| site.running() == ["unit"]);
    site.forge.vote(&change, "Approved", 1);
    site.take_in();
    site.run_now();
    assert_eq!(site.builds(), ["check unit 1"], "check has not voted yet");
    site.held.clear();
    site.run();
    assert_eq!((merged(&site), site.builds()), (vec![], vec!["check unit 1".to_owned()]));
    site.sweep();
    assert_eq!((merged(&site), gate_builds(&site, "unit")), (vec![1], vec!["1".to_owned()]));
    assert_eq!(site.ending(&[], &[&change]).left_over, Vec::<String>::new());
}
