//! What is told of a change, and in which order.

use super::cycles::{allowing, cycle};
use super::landing::{Ahead, remove_connection};
use super::{CONFIG, MAIN, PROJECT, approve, comments, judge, propose, site};
use sluice_forge::{Forge, StatusReport, StatusState};
use sluice_gate::{Report, ReportState};
use sluice_memory::poll_once;
use sluice_model::change::ChangeKey;
use sluice_model::poke::Queue;
use sluice_records::{codec::decode, report};
use sluice_reporter::Reporter;
use sluice_runtime::batch::Look as _;
use sluice_scenarios::Site;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Z6.3: what is to be told by a connection that was removed is told nobody, and keeps nobody
/// waiting; one that is there and not known to whoever tells is waited for.
#[test]
fn a_report_by_a_connection_that_was_removed_ends_with_that_reason() {
    let mut site = site();
    propose(&site, 1, &[("a", "x")]);
    site.run();
    let mut reports = site
        .world
        .records()
        .into_iter()
        .filter(|record| record.key.partition.starts_with("report#"));
    let mut told: Report = decode(&reports.next().expect("it was told")).unwrap();
    told.state = ReportState::Wanted;
    site.world.write_directly(report::put(&told).unwrap());
    for is_removed in [false, true] {
        if is_removed {
            remove_connection(&site);
        }
        let looked =
            poll_once(Reporter::new(site.ports(), BTreeMap::new()).look(&report::poke(&told)))
                .unwrap();
        assert_eq!(looked.is_ok(), is_removed, "{looked:?}");
    }
    let told: Report = decode(&site.world.record(&report::key(&told.id)).unwrap()).unwrap();
    let ReportState::Refused { why, .. } = &told.state else { panic!("{:?}", told.state) };
    assert!(why.contains("the connection github was removed"), "{why}");
}

/// Returns the status of the gate that a forge shows at a change.
fn gate_status(site: &Site, change: &ChangeKey) -> String {
    let statuses = site.forge.change(change).unwrap().facts.statuses;
    statuses.iter().find(|status| status.context == "demo/gate").unwrap().state.clone()
}

/// Writes the report that work begins, which was made, as one that is still to be made, and returns
/// it.
fn start_wanted_again(site: &Site) -> Report {
    let reports = site
        .world
        .records()
        .into_iter()
        .filter(|record| record.key.partition.starts_with("report#"));
    let mut start: Report = reports
        .map(|record| decode::<Report>(&record).unwrap())
        .find(Report::is_start)
        .expect("it was told");
    start.state = ReportState::Wanted;
    site.world.write_directly(report::put(&start).unwrap());
    start
}

/// Tells the forge that work begins, as whoever was given that report before does.
fn tell_that_work_begins(site: &Site, start: &Report) {
    let key = &start.change.key;
    let head = site.forge.change(key).unwrap().facts.change.head;
    let pending = StatusReport {
        context: "demo/gate".to_owned(),
        state: StatusState::Pending,
        description: String::new(),
        url: None,
        wanted_at: start.wanted_at,
    };
    poll_once(site.forge.set_status(&key.project, &head, &pending)).unwrap().unwrap();
}

/// Z6.3: a report that could not be made for long is not made when it is no longer true.
#[test]
fn the_word_that_work_begins_is_not_told_after_the_word_that_it_ended() {
    let mut site = site();
    let a = propose(&site, 1, &[("a", "x")]);
    approve(&mut site, &[&a]);
    assert_eq!(gate_status(&site, &a), "success");
    let start = start_wanted_again(&site);
    site.run();
    assert_eq!(gate_status(&site, &a), "success");
    let of = |site: &Site| {
        let record = site.world.record(&report::key(&start.id)).unwrap();
        decode::<Report>(&record).unwrap()
    };
    assert!(matches!(of(&site).state, ReportState::Dropped { .. }), "{:?}", of(&site).state);
    // Whoever was given it before told it all the same, and died before he could look: the look
    // that was left finds it.
    tell_that_work_begins(&site, &start);
    assert_eq!(gate_status(&site, &a), "pending");
    site.world.write_directly(
        report::put(&Report { state: ReportState::Made { at: start.wanted_at }, ..start }).unwrap(),
    );
    site.run();
    assert_eq!(gate_status(&site, &a), "success");
    assert_eq!(site.ending(&["org/one"], &[&a]).left_over, Vec::<String>::new());
}

/// Z6.3: when nobody can tell it late any more the forge's clock says, and not that of whoever
/// looks.
#[test]
fn the_word_that_work_begins_is_looked_at_once_more_when_it_is_late_enough_by_the_forges_clock() {
    let mut site = site();
    site.forge.tell_time();
    let a = propose(&site, 1, &[("a", "x")]);
    approve(&mut site, &[&a]);
    let start = start_wanted_again(&site);
    let look = |site: &Site, is_ahead: bool| {
        let forge = site.forge.clone() as Arc<dyn Forge>;
        let mut ports = site.ports();
        if is_ahead {
            ports.clock = Arc::new(Ahead(ports.clock.clone()));
        }
        let reporter = Reporter::new(ports, BTreeMap::from([("github".into(), forge)]));
        poll_once(reporter.look_again(&report::poke(&start))).expect("nothing dies here").unwrap();
    };
    let is_to_be_looked_at =
        |site: &Site| site.world.record(&report::key(&start.id)).unwrap().due.is_some();
    look(&site, false);
    assert!(is_to_be_looked_at(&site), "it was given to somebody before");
    look(&site, true);
    assert!(is_to_be_looked_at(&site), "whoever is ahead comes too early");
    tell_that_work_begins(&site, &start);
    assert_eq!(gate_status(&site, &a), "pending");
    site.run();
    assert_eq!(gate_status(&site, &a), "success");
    assert!(!is_to_be_looked_at(&site));
}

/// Z6.3: a forge that asks for a pause gets it.
#[test]
fn a_forge_that_limits_requests_is_left_alone_for_as_long_as_it_says() {
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
fn a_report_uses_the_jobs_own_words_for_success_and_failure() {
    let config = CONFIG
        .replace("{name: unit, run:", "{name: unit, success-message: unit is fine, run:")
        .replace("{name: other, run:", "{name: other, failure-message: other is not, run:");
    let mut site = site_with(&config, PROJECT);
    let a = propose(&site, 1, &[("a", "broken other")]);
    approve(&mut site, &[&a]);
    let told = comments(&site, &a);
    assert!(
        told.contains("unit : unit is fine") && told.contains("other : other is not"),
        "{told}"
    );
    assert!(told.contains("lint : SUCCESS"), "a job without words has its result: {told}");
}

/// R07
#[test]
fn what_does_not_merge_is_told_by_its_own_reporters_and_in_its_own_words_where_they_are_set() {
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
    let kept = site.forge.change(&b).unwrap();
    let told = comments(&site, &b);
    assert!(told.contains("Rebase it.") && !told.contains("Merge Failed."), "{told}");
    assert_eq!(kept.facts.labels, ["rebase"]);
    assert!(
        !kept
            .facts
            .statuses
            .iter()
            .any(|status| status.context == "demo/gate" && status.state == "failure")
    );
}

/// R08
#[test]
fn a_trigger_that_asks_for_a_recent_approval_takes_no_other() {
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

/// Z6.1: a trigger that asks who it is.
#[test]
fn a_comment_of_somebody_who_may_not_push_starts_nothing() {
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

/// Z6.1: a review is left once, though its report is tried twice; who enters is told of it.
#[test]
fn a_review_is_left_and_an_entry_told_where_a_pipeline_says_so() {
    let config = CONFIG.replace(
        "    success: {github: {status: success}}\n    failure: {github: {status: failure}}\n- pipeline:\n    name: gate",
        "    enqueue-message: Waiting for {pipeline.name}.\n    enqueue: {github: {status: pending, comment: true}}\n    success: {github: {review: approve, comment: false}}\n    failure: {github: {review: request-changes, review-body: Mend it.}}\n- pipeline:\n    name: gate",
    );
    assert_ne!(config, CONFIG);
    let mut site = site_with(&config, PROJECT);
    site.twice = true;
    let (a, b) = (propose(&site, 1, &[("a", "x")]), propose(&site, 2, &[("b", "broken unit")]));
    // As long as nothing is told of the end: after that nobody is told that it waits.
    site.take_in();
    site.handle(Queue::Gate);
    site.handle(Queue::Reports);
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

/// R04: the last failure that is one too many is still told as usual; a new configuration enables
/// the pipeline again.
#[test]
fn a_pipeline_with_too_many_failures_in_a_row_tells_the_disabled_reporters_alone() {
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
            let kept = site.forge.change(&key).unwrap().facts;
            let statuses: Vec<String> =
                kept.statuses.iter().map(|status| status.state.clone()).collect();
            (statuses.join(" "), kept.labels.join(" "))
        };
        let told = |status: &str, label: &str| (status.to_owned(), label.to_owned());
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
        let (failure, success) = (told("failure", ""), told("success", ""));
        assert_eq!(
            outcomes,
            [&failure, &failure, &success, &failure, &failure, &failure].map(Clone::clone),
            "a success between them"
        );
        assert_eq!(change(&mut site, 7, "broken unit"), told("", "disabled"));
        assert_eq!(change(&mut site, 8, "x"), told("", "disabled"), "a success enables nothing");
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

/// Z7.4, Z6.1: what a job says of lines stands beside them, once; its warnings are in the report.
#[test]
fn what_jobs_say_of_lines_and_their_warnings_are_told_with_the_result() {
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
        let told = comments(&site, &a);
        assert!(told.contains("Warnings:\n\n- unit : the mirror was slow"), "{told}");
        let lines: Vec<_> = site.forge.change(&a).unwrap().lines.into_values().collect();
        assert_eq!(
            lines,
            [["a:1: unit: error: no such word"]; 2],
            "once by the check and once by the gate"
        );
        assert_eq!(site.ending(&["org/one"], &[&a]).left_over, Vec::<String>::new());
    }
}

/// Z7.4: a forge takes no comments on lines that a change does not touch, and all of them or none.
#[test]
fn what_a_forge_takes_on_no_line_is_said_in_a_comment() {
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
    let told = comments(&site, &a);
    assert!(told.contains("- `elsewhere` line 9: unit: it is broken there"), "{told}");
    assert!(site.forge.change(&a).unwrap().lines.is_empty());
}

/// D15, Z7.4: of what a build says that runs for two changes, the one that did not order it is told
/// what its own files are about.
#[test]
fn what_a_shared_build_says_of_a_file_is_told_to_the_change_whose_file_it_is() {
    let mut site = allowing(MAIN);
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
    let (a, b) = cycle(&site, &[("a", "x")], &[("b", "x")]);
    approve(&mut site, &[&a, &b]);
    let lines: Vec<_> = site.forge.change(&b).unwrap().lines.into_values().collect();
    assert!(
        !lines.is_empty() && lines.iter().all(|said| *said == ["b:1: common: no such word"]),
        "{lines:?}"
    );
    let told = comments(&site, &a);
    assert!(
        told.contains("- `a` line 1: common: no such word\n- `b` line 1: common: no such word"),
        "{told}"
    );
    for change in [&a, &b] {
        let told = comments(&site, change);
        assert!(told.contains("Warnings:\n\n- common : the mirror was slow"), "{told}");
    }
    assert_eq!(site.ending(&["org/one", "org/two"], &[&a, &b]).left_over, Vec::<String>::new());
}

/// R07, Z6.1
#[test]
fn messages_of_a_pipeline_name_what_the_report_is_about() {
    let config = CONFIG.replace(
        "    start: {github: {status: pending, comment: false}}",
        "    start-message: \"{pipeline.name} begins with {change.number}: {status_url}\"\n    footer-message: Ask in {the} channel.\n    start: {github: {comment: true}}",
    );
    let mut site = site_with(&config, PROJECT);
    let a = propose(&site, 1, &[("a", "x")]);
    approve(&mut site, &[&a]);
    let told = comments(&site, &a);
    assert!(told.contains("gate begins with 1: https://sluice.test/t/demo/buildset/"), "{told}");
    assert_eq!(told.matches("Ask in {the} channel.").count(), 2, "{told}");
}

/// R04: to merge is what a reporter of success does.
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
    assert!(comments(&site, &a).contains("other : FAILURE"), "the last failure is told as usual");
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
