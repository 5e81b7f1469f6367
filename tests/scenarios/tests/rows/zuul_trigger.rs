//! The `zuul` trigger: events of one change enqueue other changes.

use super::ref_updates::orders;
use super::{CONFIG, MAIN, PROJECT, approve, judge, merged, propose};
use sluice_model::build::Order;
use sluice_model::git::Oid;
use sluice_scenarios::Site;

/// Returns a site with one more pipeline, `again`, which runs `lint`.
fn site_with(trigger: &str) -> Site {
    let config = format!(
        "{CONFIG}- pipeline: {{name: again, manager: independent, trigger: {{zuul: [{trigger}]}}, require: {{github: {{open: true}}}}}}\n"
    );
    let project = format!("{PROJECT}    again: {{jobs: [lint]}}\n");
    let repositories: &[(&str, &[(&str, &str)])] = &[
        ("org/config", &[("zuul.yaml", &config)]),
        ("org/one", &[(".zuul.yaml", &project), ("shared", "0")]),
        ("org/two", &[(".zuul.yaml", &project)]),
    ];
    Site::new(7, MAIN, repositories, judge)
}

/// Returns the builds of the pipeline `again`.
fn again(site: &Site) -> Vec<String> {
    site.builds().into_iter().filter(|build| build.starts_with("again")).collect()
}

/// Z6.1: `project-change-merged` enqueues the other open changes of the project only.
#[test]
fn open_changes_of_a_project_are_tested_again_when_one_lands_there() {
    for twice in [false, true] {
        let mut site = site_with("{event: project-change-merged}");
        site.twice = twice;
        let a = propose(&site, 1, &[("a", "x")]);
        propose(&site, 2, &[("b", "x")]);
        let closed = propose(&site, 3, &[("c", "x")]);
        site.forge.propose("org/two", 4, "D", "", &[("d", "x")]);
        site.forge.close(&closed);
        approve(&mut site, &[&a]);
        assert_eq!(merged(&site), [1]);
        assert_eq!(again(&site), ["again lint 2"]);
        assert_eq!(site.ending(&["org/one"], &[&a]).left_over, Vec::<String>::new());
    }
}

/// Z6.1: `parent-change-enqueued` enqueues the dependents of a change that enters a named pipeline.
#[test]
fn the_dependents_of_a_change_are_enqueued_when_it_enters_a_named_pipeline() {
    let mut site = site_with("{event: parent-change-enqueued, pipeline: gate}");
    let a = propose(&site, 1, &[("a", "x")]);
    site.forge.propose(
        "org/two",
        2,
        "B",
        "Depends-On: https://forge.test/org/one/pull/1",
        &[("b", "x")],
    );
    propose(&site, 3, &[("c", "x")]);
    site.run();
    assert_eq!(again(&site), Vec::<String>::new(), "entering check starts nothing");
    approve(&mut site, &[&a]);
    let started = again(&site);
    assert_eq!(started.len(), 1, "{started:?}");
    assert!(started[0].ends_with('2'), "{started:?}");
    assert_eq!(site.ending(&["org/one"], &[&a]).left_over, Vec::<String>::new());
}

/// Z6.1, C5: the newest known revision of a dependent is enqueued, although the forge answers with
/// an older one for a moment.
#[test]
fn a_stale_answer_of_the_forge_does_not_enqueue_an_old_revision() {
    let mut site = site_with("{event: parent-change-enqueued, pipeline: gate}");
    let a = propose(&site, 1, &[("a", "x")]);
    let b = site.forge.propose(
        "org/two",
        2,
        "B",
        "Depends-On: https://forge.test/org/one/pull/1",
        &[("b", "x")],
    );
    site.run();
    site.forge.approve(&a);
    site.take_in();
    site.world.advance_millis(1_000);
    site.forge.revise(&b, "b", "y");
    site.take_in();
    site.forge.set_behind(500);
    site.run_now();
    site.forge.set_behind(0);
    site.run();
    let head = site.forge.change(&b).unwrap().facts.change.head;
    let of_again = |order: &Order| order.queue.pipeline.as_str() == "again";
    let heads: Vec<Oid> = orders(&site)
        .into_iter()
        .filter(|(order, _)| of_again(order))
        .map(|(order, _)| order.change.head)
        .collect();
    assert_eq!(heads, [head]);
}

/// Z6.1: without a matching trigger no delivery is created.
#[test]
fn no_event_is_created_without_a_zuul_trigger() {
    let mut site = super::site();
    let a = propose(&site, 1, &[("a", "x")]);
    approve(&mut site, &[&a]);
    assert_eq!(merged(&site), [1]);
    let is_zuul_event = |record: &sluice_runtime::Record| {
        record.key.partition.starts_with("delivery#") && record.body.contains("\"zuul:")
    };
    assert!(!site.world.records().iter().any(is_zuul_event));
}

/// Z6.1, Z6.7: dependents of several projects may have the same number; none is skipped at the
/// limit between two deliveries.
#[test]
fn all_dependents_with_the_same_number_are_enqueued_across_deliveries() {
    let config = r"
- pipeline: {name: check, manager: independent, trigger: {github: [{event: pull_request, action: [opened, changed]}]}}
- pipeline: {name: again, manager: independent, trigger: {zuul: [{event: parent-change-enqueued, pipeline: check}]}}
- job: {name: base, parent: null}
";
    let only = |pipelines: &str| format!("- project: {{{pipelines}}}\n");
    let (parent, child) = (only("check: {jobs: [noop]}"), only("again: {jobs: [noop]}"));
    let repositories: &[(&str, &[(&str, &str)])] = &[
        ("org/config", &[("zuul.yaml", config)]),
        ("org/bare", &[(".zuul.yaml", &parent)]),
        ("org/one", &[(".zuul.yaml", &child)]),
        ("org/two", &[(".zuul.yaml", &child)]),
    ];
    let mut site = Site::new(7, MAIN, repositories, judge);
    let a = site.forge.propose("org/bare", 1, "A", "", &[("a", "x")]);
    site.run();
    let body = "Depends-On: https://forge.test/org/bare/pull/1";
    for number in 101..180 {
        site.forge.propose("org/one", number, "child", body, &[("b", "x")]);
    }
    for project in ["org/one", "org/two"] {
        site.forge.propose(project, 200, "child", body, &[("b", "x")]);
    }
    site.run();
    site.forge.revise(&a, "a", "y");
    site.run();
    let sets = site.ending(&[], &[]).buildsets;
    let mut again: Vec<&String> = sets.iter().filter(|set| set.contains(" again ")).collect();
    again.dedup();
    assert_eq!(again.len(), 81, "{again:?}");
}
