//! Zuul's own triggers: what happened to one change starts others.

use super::refs::orders;
use super::{CONFIG, MAIN, PROJECT, approve, judge, merged, propose};
use sluice_model::build::Order;
use sluice_model::git::Oid;
use sluice_scenarios::Site;

/// A site with one pipeline more, in which `lint` is run.
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

fn again(site: &Site) -> Vec<String> {
    site.builds().into_iter().filter(|build| build.starts_with("again")).collect()
}

/// Z6.1: every other open change of the project, and no other's.
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

/// Z6.1: a child that depends on a change is told when that enters a pipeline that the trigger
/// names.
#[test]
fn what_depends_on_a_change_is_started_when_that_enters_a_pipeline_that_is_named() {
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

/// Z6.1, C5: what is started is the change as it was told last, though its forge shows for a moment
/// what it was before.
#[test]
fn a_change_that_its_forge_shows_as_it_was_is_not_started_as_that() {
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

/// Z6.1: a pipeline that nobody names costs no delivery.
#[test]
fn nothing_is_told_where_no_pipeline_asks_for_it() {
    let mut site = super::site();
    let a = propose(&site, 1, &[("a", "x")]);
    approve(&mut site, &[&a]);
    assert_eq!(merged(&site), [1]);
    let told = |record: &sluice_runtime::Record| {
        record.key.partition.starts_with("delivery#") && record.body.contains("\"zuul:")
    };
    assert!(!site.world.records().iter().any(told));
}

/// Z6.1, Z6.7: children of several projects may have one number; none is left out where one
/// delivery ends and the next begins.
#[test]
fn children_of_one_number_are_all_told_however_many_there_are_before_them() {
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
