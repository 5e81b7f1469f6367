//! Reports on changes: their texts, their order, and who receives them.

use super::bundles::{propose_cycle, site_with_cycles};
use super::landing::{Ahead, remove_connection};
use super::{CONFIG, MAIN, PROJECT, approve, comments, judge, propose, site, unlinked};
use sluice_forge::{Forge, StatusReport, StatusState};
use sluice_gate::{Report, ReportState};
use sluice_memory::poll_once;
use sluice_model::change::ChangeKey;
use sluice_model::wakeup::MessageQueue;
use sluice_records::{codec::decode, report};
use sluice_reporter::Reporter;
use sluice_runtime::batch::Reconciler as _;
use sluice_scenarios::Site;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Z6.3: a report by a removed connection ends as refused. A report by a connection that the
/// reporter does not know yet is retried.
#[test]
fn a_report_by_a_removed_connection_ends_with_that_reason() {
    let mut site = site();
    propose(&site, 1, &[("a", "x")]);
    site.run();
    let mut reports = site
        .world
        .records()
        .into_iter()
        .filter(|record| record.key.partition.starts_with("report#"));
    let mut report: Report = decode(&reports.next().expect("check reported")).unwrap();
    report.state = ReportState::Pending;
    site.world.write_unchecked(report::put(&report).unwrap());
    for is_removed in [false, true] {
        if is_removed {
            remove_connection(&site);
        }
        let outcome = poll_once(
            Reporter::new(site.ports(), BTreeMap::new()).reconcile_first(&report::wakeup(&report)),
        )
        .unwrap();
        assert_eq!(outcome.is_ok(), is_removed, "{outcome:?}");
    }
    let report: Report = decode(&site.world.record(&report::key(&report.id)).unwrap()).unwrap();
    let ReportState::Refused { why, .. } = &report.state else { panic!("{:?}", report.state) };
    assert!(why.contains("the connection github was removed"), "{why}");
}

/// Returns the state of the gate's status on a change.
fn gate_status(site: &Site, change: &ChangeKey) -> String {
    let statuses = site.forge.change(change).unwrap().facts.statuses;
    statuses.iter().find(|status| status.context == "demo/gate").unwrap().state.clone()
}

/// Sets the gate's start report, which was sent, back to pending, and returns it.
fn reset_start_report(site: &Site) -> Report {
    let reports = site
        .world
        .records()
        .into_iter()
        .filter(|record| record.key.partition.starts_with("report#"));
    let mut start: Report = reports
        .map(|record| decode::<Report>(&record).unwrap())
        .find(Report::is_start)
        .expect("the gate reported its start");
    start.state = ReportState::Pending;
    site.world.write_unchecked(report::put(&start).unwrap());
    start
}

/// Sets the pending status late, as a slow reporter with the same report does.
fn send_start_report_late(site: &Site, start: &Report) {
    let key = &start.change.key;
    let head = site.forge.change(key).unwrap().facts.change.head;
    let pending = StatusReport {
        context: "demo/gate".to_owned(),
        state: StatusState::Pending,
        description: String::new(),
        url: None,
        wanted_at: start.requested_at,
    };
    poll_once(site.forge.set_status(&key.project, &head, &pending)).unwrap().unwrap();
}

/// Z6.3: a delayed start report is dropped when the result was reported already.
#[test]
fn a_start_report_is_not_sent_after_the_result() {
    let mut site = site();
    let a = propose(&site, 1, &[("a", "x")]);
    approve(&mut site, &[&a]);
    assert_eq!(gate_status(&site, &a), "success");
    let start = reset_start_report(&site);
    site.run();
    assert_eq!(gate_status(&site, &a), "success");
    let stored = |site: &Site| {
        let record = site.world.record(&report::key(&start.id)).unwrap();
        decode::<Report>(&record).unwrap()
    };
    assert!(
        matches!(stored(&site).state, ReportState::Dropped { .. }),
        "{:?}",
        stored(&site).state
    );
    // A slow reporter sends the start report all the same and dies before its check: the scheduled
    // check finds the stale status.
    send_start_report_late(&site, &start);
    assert_eq!(gate_status(&site, &a), "pending");
    site.world.write_unchecked(
        report::put(&Report { state: ReportState::Made { at: start.requested_at }, ..start })
            .unwrap(),
    );
    site.run();
    assert_eq!(gate_status(&site, &a), "success");
    assert_eq!(site.ending(&["org/one"], &[&a]).left_over, Vec::<String>::new());
}

/// Z6.3: the forge's clock, not the reporter's, decides when no late start report is possible.
#[test]
fn a_start_report_is_checked_again_when_enough_time_has_passed_on_the_forges_clock() {
    let mut site = site();
    site.forge.report_time();
    let a = propose(&site, 1, &[("a", "x")]);
    approve(&mut site, &[&a]);
    let start = reset_start_report(&site);
    let recheck = |site: &Site, is_ahead: bool| {
        let forge = site.forge.clone() as Arc<dyn Forge>;
        let mut ports = site.ports();
        if is_ahead {
            ports.clock = Arc::new(Ahead(ports.clock.clone()));
        }
        let reporter = Reporter::new(ports, BTreeMap::from([("github".into(), forge)]));
        poll_once(reporter.reconcile_again(&report::wakeup(&start)))
            .expect("nothing dies here")
            .unwrap();
    };
    let is_check_due =
        |site: &Site| site.world.record(&report::key(&start.id)).unwrap().due.is_some();
    recheck(&site, false);
    assert!(is_check_due(&site), "another reporter may still send it");
    recheck(&site, true);
    assert!(is_check_due(&site), "a reporter whose clock is ahead checks too early");
    send_start_report_late(&site, &start);
    assert_eq!(gate_status(&site, &a), "pending");
    site.run();
    assert_eq!(gate_status(&site, &a), "success");
    assert!(!is_check_due(&site));
}

/// Z6.3: Sluice sends no requests until the pause that the forge asked for is over.
#[test]
fn a_rate_limiting_forge_gets_no_requests_for_the_time_it_asked_for() {
    let mut site = site();
    let a = propose(&site, 1, &[("a", "x")]);
    site.forge.limit(600);
    site.run();
    assert!(
        (1..=2).contains(&site.forge.refused_for_now()),
        "asked {} times",
        site.forge.refused_for_now()
    );
    let statuses = site.forge.change(&a).unwrap().facts.statuses;
    assert_eq!(
        statuses.iter().map(|status| status.context.as_str()).collect::<Vec<_>>(),
        ["demo/check"]
    );
}

fn site_with(config: &str, project: &str) -> Site {
    let repositories: &[(&str, &[(&str, &str)])] = &[
        ("org/config", &[("zuul.yaml", config)]),
        ("org/one", &[(".zuul.yaml", project), ("shared", "0")]),
    ];
    Site::new(7, MAIN, repositories, judge)
}

/// R05
#[test]
fn a_report_uses_the_success_and_failure_messages_of_jobs() {
    let config = CONFIG
        .replace("{name: unit, run:", "{name: unit, success-message: unit is fine, run:")
        .replace("{name: other, run:", "{name: other, failure-message: other is not, run:");
    let mut site = site_with(&config, PROJECT);
    let a = propose(&site, 1, &[("a", "broken other")]);
    approve(&mut site, &[&a]);
    let reported = comments(&site, &a);
    let texts = unlinked(&reported);
    assert!(
        texts.contains("unit : unit is fine") && texts.contains("other : other is not"),
        "{reported}"
    );
    assert!(
        unlinked(&reported).contains("lint : SUCCESS"),
        "a job without messages shows its result: {reported}"
    );
}

/// R07
#[test]
fn merge_conflicts_use_their_own_reporters_and_message_when_configured() {
    let conflict = |site: &mut Site| {
        let a = propose(site, 1, &[("shared", "a")]);
        let b = propose(site, 2, &[("shared", "b")]);
        approve(site, &[&a, &b]);
        b
    };
    let mut by_default = site_with(CONFIG, PROJECT);
    let b = conflict(&mut by_default);
    assert!(comments(&by_default, &b).contains("Merge Failed."), "{}", comments(&by_default, &b));
    let own = CONFIG.replace(
        "    dequeue: {github: {comment: true}}",
        "    dequeue: {github: {comment: true}}\n    merge-conflict-message: Rebase it.\n    merge-conflict: {github: [{comment: true}, {label: rebase}]}",
    );
    let mut site = site_with(&own, PROJECT);
    let b = conflict(&mut site);
    let change = site.forge.change(&b).unwrap();
    let reported = comments(&site, &b);
    assert!(reported.contains("Rebase it.") && !reported.contains("Merge Failed."), "{reported}");
    assert_eq!(change.facts.labels, ["rebase"]);
    let statuses = change.facts.statuses.iter().filter(|status| status.context == "demo/gate");
    let states: Vec<&str> = statuses.map(|status| status.state.as_str()).collect();
    assert_eq!(states, ["failure"], "the status that the start left pending is ended");
}

/// R08
#[test]
fn a_trigger_that_requires_a_recent_approval_ignores_older_ones() {
    let config = format!(
        "{CONFIG}- pipeline:\n    name: recent\n    manager: independent\n    trigger:\n      github: [{{event: pull_request, action: comment, comment: go, require: {{review: [{{type: approved, newer-than: 2d}}]}}}}]\n"
    );
    let project = format!("{PROJECT}    recent: {{jobs: [lint]}}\n");
    let mut site = site_with(&config, &project);
    let (none, old, recent) = (
        propose(&site, 1, &[("a", "x")]),
        propose(&site, 2, &[("b", "broken unit")]),
        propose(&site, 3, &[("c", "broken unit")]),
    );
    site.forge.approve(&old);
    site.run();
    site.world.advance_millis(5 * 86_400_000);
    site.run();
    site.forge.approve(&recent);
    for change in [&none, &old, &recent] {
        site.forge.comment(change, "go");
    }
    site.run();
    let entered: Vec<String> =
        site.builds().into_iter().filter(|build| build.starts_with("recent")).collect();
    assert_eq!(entered, ["recent lint 3"]);
}

/// Z6.1: a trigger with `permission: write`.
#[test]
fn a_comment_by_a_user_without_write_permission_starts_nothing() {
    let config = format!(
        "{CONFIG}- pipeline:\n    name: asked\n    manager: independent\n    trigger:\n      github: [{{event: pull_request, action: comment, comment: go, permission: write}}]\n"
    );
    let project = format!("{PROJECT}    asked: {{jobs: [lint]}}\n");
    let mut site = site_with(&config, &project);
    let (a, b) = (propose(&site, 1, &[("a", "x")]), propose(&site, 2, &[("b", "x")]));
    site.forge.comment_by(&a, "go", "mallory");
    site.forge.comment_by(&b, "go", "grace");
    site.run();
    let entered: Vec<String> =
        site.builds().into_iter().filter(|build| build.starts_with("asked")).collect();
    assert_eq!(entered, ["asked lint 2"]);
}

/// Z6.1: a review is posted once although its report is delivered twice; the enqueue is reported.
#[test]
fn a_pipeline_can_post_reviews_and_report_its_enqueues() {
    let config = CONFIG.replace(
        "    success: {github: {status: success}}\n    failure: {github: {status: failure}}\n- pipeline:\n    name: gate",
        "    enqueue-message: Waiting for {pipeline.name}.\n    enqueue: {github: {status: pending, comment: true}}\n    success: {github: {review: approve, comment: false}}\n    failure: {github: {review: request-changes, review-body: Mend it.}}\n- pipeline:\n    name: gate",
    );
    assert_ne!(config, CONFIG);
    let mut site = site_with(&config, PROJECT);
    site.twice = true;
    let (a, b) = (propose(&site, 1, &[("a", "x")]), propose(&site, 2, &[("b", "broken unit")]));
    // The enqueue report is sent only before the result is reported.
    site.take_in();
    site.handle(MessageQueue::Gate);
    site.handle(MessageQueue::Reports);
    assert!(comments(&site, &a).contains("Waiting for check."), "{}", comments(&site, &a));
    site.run();
    let reviews = |key| site.forge.change(key).unwrap().reviews.into_values().collect::<Vec<_>>();
    assert_eq!(reviews(&a).len(), 1);
    assert!(
        reviews(&a)[0].starts_with("APPROVE at ") && reviews(&a)[0].contains("Build succeeded."),
        "{:?}",
        reviews(&a)
    );
    assert!(
        reviews(&b)[0].starts_with("REQUEST_CHANGES at ") && reviews(&b)[0].ends_with("Mend it."),
        "{:?}",
        reviews(&b)
    );
    assert_eq!(site.ending(&["org/one"], &[&a]).left_over, Vec::<String>::new());
}

/// R04: the failure that disables the pipeline is still reported as usual; a new configuration
/// enables the pipeline again.
#[test]
fn a_pipeline_with_too_many_consecutive_failures_uses_only_its_disabled_reporters() {
    for twice in [false, true] {
        let config = CONFIG.replace(
            "    success: {github: {status: success}}\n    failure: {github: {status: failure}}\n- pipeline:\n    name: gate",
            "    success: {github: {status: success}}\n    failure: {github: {status: failure}}\n    disabled: {github: {label: disabled, comment: false}}\n    disable-after-consecutive-failures: 3\n- pipeline:\n    name: gate",
        );
        let mut site = site_with(&config, PROJECT);
        site.twice = twice;
        let change = |site: &mut Site, number: u64, text: &str| {
            let key = propose(site, number, &[(&format!("f{number}"), text)]);
            site.run();
            let facts = site.forge.change(&key).unwrap().facts;
            let statuses: Vec<String> =
                facts.statuses.iter().map(|status| status.state.clone()).collect();
            (statuses.join(" "), facts.labels.join(" "))
        };
        let reported = |status: &str, label: &str| (status.to_owned(), label.to_owned());
        let outcomes: Vec<_> = [
            (1, "broken unit"),
            (2, "broken unit"),
            (3, "x"),
            (4, "broken unit"),
            (5, "broken unit"),
            (6, "broken unit"),
        ]
        .map(|(number, text)| change(&mut site, number, text))
        .into();
        let (failure, success) = (reported("failure", ""), reported("success", ""));
        assert_eq!(
            outcomes,
            [&failure, &failure, &success, &failure, &failure, &failure].map(Clone::clone),
            "a success between them"
        );
        assert_eq!(change(&mut site, 7, "broken unit"), reported("", "disabled"));
        assert_eq!(
            change(&mut site, 8, "x"),
            reported("", "disabled"),
            "a success enables nothing"
        );
        let main = sluice_model::git::BranchKey {
            project: sluice_model::ProjectName::new("forge.test", "org/config"),
            branch: "main".into(),
        };
        site.forge.push(
            &main,
            &[("zuul.yaml", &format!("{config}- job: {{name: more, run: playbooks/more.yaml}}\n"))],
        );
        site.run();
        assert_eq!(change(&mut site, 9, "broken unit"), failure);
    }
}

/// Z7.4, Z6.1: file comments of a job are posted at their lines once; its warnings are in the
/// report.
#[test]
fn file_comments_and_warnings_of_jobs_are_reported_with_the_result() {
    for twice in [false, true] {
        let mut site = site_with(CONFIG, PROJECT);
        site.twice = twice;
        site.returns = |job| match job {
            "unit" => serde_json::from_value(serde_json::json!({"zuul": {
                "warnings": ["the mirror was slow"],
                "file_comments": {"a": [{"line": 1, "message": "no such word", "level": "error"}]},
            }}))
            .unwrap(),
            _ => serde_json::Map::new(),
        };
        let a = propose(&site, 1, &[("a", "x")]);
        approve(&mut site, &[&a]);
        let reported = comments(&site, &a);
        assert!(reported.contains("Warnings:\n\n- unit : the mirror was slow"), "{reported}");
        let lines: Vec<_> = site.forge.change(&a).unwrap().lines.into_values().collect();
        assert_eq!(
            lines,
            [["a:1: unit: error: no such word"]; 2],
            "once by the check and once by the gate"
        );
        assert_eq!(site.ending(&["org/one"], &[&a]).left_over, Vec::<String>::new());
    }
}

/// Z7.4: a forge refuses all line comments if one is on a line that the change does not touch.
#[test]
fn refused_file_comments_are_posted_in_the_report() {
    let mut site = site_with(CONFIG, PROJECT);
    site.returns = |job| match job {
        "unit" => serde_json::from_value(serde_json::json!({"zuul": {
            "file_comments": {"elsewhere": [{"line": 9, "message": "it is broken there"}]},
        }}))
        .unwrap(),
        _ => serde_json::Map::new(),
    };
    let a = propose(&site, 1, &[("a", "x")]);
    approve(&mut site, &[&a]);
    let reported = comments(&site, &a);
    assert!(reported.contains("- `elsewhere` line 9: unit: it is broken there"), "{reported}");
    assert!(site.forge.change(&a).unwrap().lines.is_empty());
}

/// D15, Z7.4: each member of a bundle gets the file comments of a shared build on its own files.
#[test]
fn file_comments_of_a_shared_build_go_to_the_change_with_that_file() {
    let mut site = site_with_cycles(MAIN);
    site.returns = |job| match job {
        "common" => serde_json::from_value(serde_json::json!({"zuul": {
            "warnings": ["the mirror was slow"],
            "file_comments": {
                "a": [{"line": 1, "message": "no such word"}],
                "b": [{"line": 1, "message": "no such word"}],
            },
        }}))
        .unwrap(),
        _ => serde_json::Map::new(),
    };
    let (a, b) = propose_cycle(&site, &[("a", "x")], &[("b", "x")]);
    approve(&mut site, &[&a, &b]);
    let lines: Vec<_> = site.forge.change(&b).unwrap().lines.into_values().collect();
    assert!(
        !lines.is_empty() && lines.iter().all(|comment| *comment == ["b:1: common: no such word"]),
        "{lines:?}"
    );
    let reported = comments(&site, &a);
    assert!(
        reported.contains("- `a` line 1: common: no such word\n- `b` line 1: common: no such word"),
        "{reported}"
    );
    for change in [&a, &b] {
        let reported = comments(&site, change);
        assert!(reported.contains("Warnings:\n\n- common : the mirror was slow"), "{reported}");
    }
    assert_eq!(site.ending(&["org/one", "org/two"], &[&a, &b]).left_over, Vec::<String>::new());
}

/// R07, Z6.1
#[test]
fn pipeline_messages_can_name_the_change_and_the_buildset() {
    let config = CONFIG.replace(
        "    start: {github: {status: pending, comment: false}}",
        "    start-message: \"{pipeline.name} begins with {change.number}: {status_url}\"\n    footer-message: Ask in {the} channel.\n    start: {github: {comment: true}}",
    );
    let mut site = site_with(&config, PROJECT);
    let a = propose(&site, 1, &[("a", "x")]);
    approve(&mut site, &[&a]);
    let reported = comments(&site, &a);
    assert!(
        reported.contains("gate begins with 1: https://sluice.test/t/demo/buildset/"),
        "{reported}"
    );
    assert_eq!(reported.matches("Ask in {the} channel.").count(), 2, "{reported}");
}

/// R04: a success reporter does the merge, so a disabled pipeline merges nothing.
#[test]
fn a_disabled_gate_merges_nothing_until_its_tenant_is_reconfigured() {
    let config = CONFIG.replace(
        "    dequeue: {github: {comment: true}}\n",
        "    dequeue: {github: {comment: true}}\n    disabled: {github: {label: disabled, comment: false}}\n    disable-after-consecutive-failures: 1\n",
    );
    let mut site = site_with(&config, PROJECT);
    let a = propose(&site, 1, &[("a", "broken other")]);
    let b = propose(&site, 2, &[("b", "x")]);
    approve(&mut site, &[&a]);
    assert!(
        unlinked(&comments(&site, &a)).contains("other : FAILURE"),
        "the disabling failure is reported as usual"
    );
    approve(&mut site, &[&b]);
    let labels = site.forge.change(&b).unwrap().facts.labels;
    assert_eq!((site.forge.merges().len(), labels), (0, vec!["disabled".to_owned()]));
    let main = sluice_model::git::BranchKey {
        project: sluice_model::ProjectName::new("forge.test", "org/config"),
        branch: "main".into(),
    };
    site.forge.push(
        &main,
        &[("zuul.yaml", &format!("{config}- job: {{name: more, run: playbooks/more.yaml}}\n"))],
    );
    site.run();
    approve(&mut site, &[&b]);
    assert_eq!(site.forge.merges().len(), 1);
    assert_eq!(site.ending(&["org/one"], &[&a, &b]).left_over, Vec::<String>::new());
}
