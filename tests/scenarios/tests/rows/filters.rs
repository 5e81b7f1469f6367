//! Pipeline and trigger requirements, ignored dependencies, and the reporters for changes without
//! jobs.

use super::{CONFIG, MAIN, PROJECT, approve, comments, gate_builds, judge, merged, propose};
use sluice_model::change::ChangeKey;
use sluice_scenarios::Site;
use sluice_scenarios::forge::Announcement;

/// Returns a site with additional pipelines, in which both projects run `runs`.
fn site(main: &str, config: &str, runs: &str) -> Site {
    let project = format!("{PROJECT}{runs}");
    let project: &[(&str, &str)] = &[(".zuul.yaml", &project), ("shared", "0")];
    let repositories: &[(&str, &[(&str, &str)])] = &[
        ("org/config", &[("zuul.yaml", config)]),
        ("org/one", project),
        ("org/two", project),
        ("org/outside", &[("README", "not of the tenant")]),
    ];
    Site::new(7, main, repositories, judge)
}

/// Returns the builds of a pipeline, sorted.
fn builds_of(site: &Site, pipeline: &str) -> Vec<String> {
    let prefix = format!("{pipeline} ");
    site.builds().into_iter().filter(|build| build.starts_with(&prefix)).collect()
}

/// Returns a site whose check follows dependencies and whose pipeline `alone` ignores them. Its
/// gate is configured to ignore them too, which has no effect.
fn site_ignoring_dependencies(main: &str) -> Site {
    let opened = "trigger: {github: [{event: pull_request, action: [opened, changed]}]}";
    let gate = "    name: gate\n    manager: dependent\n";
    assert!(CONFIG.contains(gate));
    let config = format!(
        "{}- pipeline: {{name: alone, manager: independent, ignore-dependencies: true, {opened}}}\n",
        CONFIG.replace(gate, &format!("{gate}    ignore-dependencies: true\n"))
    );
    site(main, &config, "    alone: {jobs: [lint]}\n")
}

/// Z6.1, Z6.5: where dependencies are ignored, they are neither tested with the change nor do they
/// block it. Only an independent pipeline can ignore them.
#[test]
fn a_pipeline_that_ignores_dependencies_tests_a_change_without_them() {
    let mut site = site_ignoring_dependencies(MAIN);
    site.forge.propose("org/outside", 9, "not ours", "", &[("b", "x")]);
    let b = site.forge.propose("org/two", 2, "B", "", &[("b", "x")]);
    let a = site.forge.propose(
        "org/one",
        1,
        "A",
        "Depends-On: https://forge.test/org/two/pull/2",
        &[("a", "x")],
    );
    let outside = "Depends-On: https://forge.test/org/outside/pull/9";
    let c = site.forge.propose("org/one", 3, "C", outside, &[("c", "x")]);
    site.run();
    assert_eq!(builds_of(&site, "check"), ["check unit 2", "check unit 2 1"]);
    assert_eq!(builds_of(&site, "alone"), ["alone lint 1", "alone lint 2", "alone lint 3"]);
    assert!(
        comments(&site, &c).contains("outside of this tenant"),
        "check says why: {}",
        comments(&site, &c)
    );
    approve(&mut site, &[&a]);
    assert_eq!(
        (merged(&site), gate_builds(&site, "unit")),
        (Vec::new(), Vec::new()),
        "a gate ignores none"
    );
    approve(&mut site, &[&b]);
    assert_eq!(merged(&site), [2, 1]);
    assert_eq!(gate_builds(&site, "unit"), ["2", "2 1"]);
}

/// Z6.1, Z6.5: the number of dependencies does not matter there, regardless of what enqueues the
/// change.
#[test]
fn a_pipeline_that_ignores_dependencies_has_no_dependency_limit() {
    let mut site = site_ignoring_dependencies(
        &MAIN.replace("    name: demo\n", "    name: demo\n    max-dependencies: 1\n"),
    );
    for number in 1..=3_u64 {
        let body = match number {
            1 => String::new(),
            _ => format!("Depends-On: https://forge.test/org/one/pull/{}", number - 1),
        };
        site.forge.propose("org/one", number, "a link", &body, &[(&format!("f{number}"), "x")]);
    }
    site.run();
    assert_eq!(builds_of(&site, "check"), ["check unit 1", "check unit 1 2"]);
    assert_eq!(builds_of(&site, "alone"), ["alone lint 1", "alone lint 2", "alone lint 3"]);
}

/// R08, Z6.1: a trigger's `require` and `reject` apply to the changes of that trigger only, in
/// addition to its event.
#[test]
fn a_trigger_accepts_only_changes_that_meet_its_requirements() {
    let trigger = "{event: pull_request, action: comment, comment: go, require-status: 'bot:ci:success', reject: {label: [hold]}}";
    let anyway = "{event: pull_request, action: comment, comment: anyway}";
    let config = format!(
        "{CONFIG}- pipeline:\n    name: asked\n    manager: independent\n    trigger:\n      github: [{trigger}, {anyway}]\n"
    );
    let mut site = site(MAIN, &config, "    asked: {jobs: [lint]}\n");
    let changes: [ChangeKey; 5] =
        [1, 2, 3, 4, 5].map(|number| propose(&site, number, &[("a", "x")]));
    let [_, failed, others, held, passed] = &changes;
    site.run();
    site.forge.put_status(failed, "bot", "ci", "failure");
    site.forge.put_status(others, "stranger", "ci", "success");
    for change in [held, passed] {
        site.forge.put_status(change, "bot", "ci", "success");
    }
    site.forge.label(held, "hold", Announcement::None);
    for change in &changes {
        site.forge.comment(change, "go");
    }
    site.run();
    assert_eq!(builds_of(&site, "asked"), ["asked lint 5"]);
    site.forge.unlabel(held, "hold");
    site.forge.comment(held, "go");
    site.forge.comment(failed, "anyway");
    site.run();
    assert_eq!(builds_of(&site, "asked"), ["asked lint 2", "asked lint 4", "asked lint 5"]);
}

/// Z6.1, Z4.7: the report of an item explains how its jobs were selected if the matching trigger
/// sets `debug`, even if the project does not. Items of other triggers do not get that.
#[test]
fn reports_explain_the_job_selection_if_the_trigger_sets_debug() {
    let opened = "github: [{event: pull_request, action: [opened, changed, reopened]}]";
    assert!(CONFIG.contains(opened));
    let explain = "{event: pull_request, action: comment, comment: '^explain$', debug: true}";
    let both = opened.replace("}]", &format!("}}, {explain}]"));
    let mut site = site(MAIN, &CONFIG.replace(opened, &both), "");
    let change = propose(&site, 1, &[("a", "x")]);
    site.run();
    assert!(
        !comments(&site, &change).contains("How the jobs were selected"),
        "{}",
        comments(&site, &change)
    );
    site.forge.comment(&change, "explain");
    site.run();
    let report = comments(&site, &change);
    assert!(report.contains("How the jobs were selected:\n\n    job unit runs"), "{report}");
    site.forge.revise(&change, "a", "y");
    site.run();
    let report = comments(&site, &change);
    assert_eq!(
        (builds_of(&site, "check").len(), report.matches("How the jobs were selected").count()),
        (3, 1),
        "{report}"
    );
}

/// R07, Z6.1: `config-error` and `no-jobs` reporters get exactly their own results. Without a
/// `config-error` reporter a configuration error is reported as a failure. Without a `no-jobs`
/// reporter nothing is reported.
#[test]
fn configuration_errors_and_missing_jobs_use_their_own_reporters() {
    let opened = "trigger: {github: [{event: pull_request, action: [opened, changed]}]}";
    let label = |name: &str| format!("{{github: {{label: {name}, comment: false}}}}");
    let own = format!(
        "success: {}, failure: {}, config-error: {{github: [{{label: wrong, comment: false}}, {{status: failure, comment: false}}]}}, no-jobs: {{github: {{label: idle, comment: true}}}}, no-jobs-message: Nothing is to be done.",
        label("passed"),
        label("failed")
    );
    let plain = format!("success: {}, failure: {}", label("plain-passed"), label("plain-failed"));
    let config = format!(
        "{CONFIG}- pipeline: {{name: own, manager: independent, {opened}, {own}}}\n- pipeline: {{name: plain, manager: independent, {opened}, {plain}}}\n"
    );
    let runs =
        "    own: {jobs: [unit: {files: docs/.*}]}\n    plain: {jobs: [unit: {files: docs/.*}]}\n";
    let mut site = site(MAIN, &config, runs);
    let wrong = format!("{PROJECT}{runs}").replace("[unit]", "[nosuch]");
    let cases = [
        (propose(&site, 1, &[("a", "x")]), vec!["idle"]),
        (propose(&site, 2, &[("docs/b", "x")]), vec!["passed", "plain-passed"]),
        (propose(&site, 3, &[("docs/c", "broken unit")]), vec!["failed", "plain-failed"]),
        (propose(&site, 4, &[(".zuul.yaml", &wrong)]), vec!["plain-failed", "wrong"]),
    ];
    site.run();
    for (change, labels) in &cases {
        let facts = site.forge.change(change).unwrap().facts;
        assert_eq!(facts.labels, *labels, "{change}: {}", comments(&site, change));
        let is_wrong = labels.contains(&"wrong");
        let has_status = facts
            .statuses
            .iter()
            .any(|status| status.context == "demo/own" && status.state == "failure");
        assert_eq!(has_status, is_wrong, "{change}: {:?}", facts.statuses);
        let is_idle = comments(&site, change).contains("Nothing is to be done.");
        assert_eq!(is_idle, labels.contains(&"idle"), "{change}: {}", comments(&site, change));
    }
    assert_eq!(
        site.ending(&[], &cases.each_ref().map(|(change, _)| change)).left_over,
        Vec::<String>::new()
    );
}
