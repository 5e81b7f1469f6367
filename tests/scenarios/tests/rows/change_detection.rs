//! Which observations of a change start work, and how many reads a sweep without changes costs.

use super::{CONFIG, MAIN, PROJECT, approve, buildsets, gate_builds, judge, merged, propose, site};
use sluice_runtime::Clock as _;
use sluice_scenarios::Site;
use sluice_scenarios::forge::Announcement;

/// Returns a site whose gate requires the label `go`.
fn labelled() -> Site {
    let trigger = "trigger:\n      github: [{event: pull_request_review, action: submitted, state: approved}]";
    let config = CONFIG
        .replace(
            trigger,
            "trigger:\n      github: [{event: pull_request, action: labeled, label: go}]",
        )
        .replace("        review: [{type: approved, permission: write}]\n", "        label: go\n");
    let project: &[(&str, &str)] = &[(".zuul.yaml", PROJECT), ("shared", "0")];
    Site::new(7, MAIN, &[("org/config", &[("zuul.yaml", &config)]), ("org/one", project)], judge)
}

/// C5: both webhooks are handled after the second label event, or the second webhook is missed.
#[test]
fn a_label_that_is_removed_and_added_again_enqueues_again() {
    for is_delivered in [true, false] {
        let mut site = labelled();
        let a = propose(&site, 1, &[("a", "broken unit")]);
        site.run();
        site.forge.label(&a, "go", Announcement::Webhook);
        site.run();
        assert_eq!(gate_builds(&site, "unit"), ["1"]);
        site.forge.unlabel(&a, "go");
        site.forge.label(&a, "go", Announcement::of(is_delivered));
        site.run();
        site.sweep();
        assert_eq!(gate_builds(&site, "unit"), ["1", "1"], "delivered: {is_delivered}");
        assert_eq!(merged(&site), Vec::<u64>::new());
    }
}

/// D02: many changes that depend on one change do not keep its real dependents out of the gate.
#[test]
fn many_changes_that_name_a_dependency_do_not_keep_an_approved_dependent_out() {
    let mut site = site();
    let b = site.forge.propose("org/two", 2, "B", "", &[("b", "x")]);
    let body = "Depends-On: https://forge.test/org/two/pull/2";
    for number in 100..115 {
        site.forge.propose("org/bare", number, "spam", body, &[("c", "x")]);
    }
    let a = site.forge.propose("org/one", 1, "A", body, &[("a", "x")]);
    approve(&mut site, &[&a]);
    approve(&mut site, &[&b]);
    assert_eq!(merged(&site), [2, 1]);
}

/// D02: a change without its former `Depends-On` line does not follow the dependency.
#[test]
fn a_change_that_dropped_its_dependency_is_not_enqueued_behind_it() {
    let mut site = site();
    let b = site.forge.propose("org/two", 2, "B", "", &[("b", "x")]);
    let a = site.forge.propose(
        "org/one",
        1,
        "A",
        "Depends-On: https://forge.test/org/two/pull/2",
        &[("a", "x")],
    );
    approve(&mut site, &[&a]);
    site.forge.describe(&a, "", Announcement::Webhook);
    site.run();
    let noted = |site: &Site| {
        site.world.records().iter().any(|record| record.key.sort.starts_with("needed-by#"))
    };
    assert!(!noted(&site), "it is forgotten");
    approve(&mut site, &[&b]);
    assert_eq!(merged(&site), [2]);
}

/// Z5: unchanged open changes cost a listing only; updated ones are read a few at a time.
#[test]
fn a_sweep_reads_only_updated_changes_up_to_its_limit() {
    let mut site = site();
    for number in 1..=50 {
        propose(&site, number, &[(&format!("f{number}"), "x")]);
    }
    site.run();
    for _ in 0..3 {
        let before = site.forge.reads();
        site.sweep();
        assert!(
            site.forge.reads() - before <= 20,
            "{} read by one sweep",
            site.forge.reads() - before
        );
    }
    let before = site.forge.reads();
    site.sweep();
    assert_eq!(site.forge.reads(), before, "nothing was updated");
}

/// C5, Z5: dismissed reviews are processed once and do not use up the reads of every sweep.
#[test]
fn dismissed_reviews_are_not_read_again_by_each_sweep() {
    let mut site = site();
    let changes: Vec<_> = (1..=25)
        .map(|number| propose(&site, number, &[(&format!("f{number}"), "broken other")]))
        .collect();
    site.run();
    for change in &changes {
        site.forge.approve(change);
        site.run();
        site.forge.dismiss_visibly(change);
        site.run();
    }
    for _ in 0..3 {
        site.sweep();
    }
    let before = site.forge.reads();
    site.sweep();
    assert_eq!(site.forge.reads(), before, "nothing was updated");
}

/// Z6.3, C5: the forge has times in whole seconds and answers with stale data for a while.
#[test]
fn an_approved_change_stays_queued_when_a_stale_answer_of_the_same_second_shows_no_approval() {
    let mut site = site();
    site.forge.report_whole_seconds();
    let a = propose(&site, 1, &[("a", "x")]);
    site.run();
    site.world.advance_millis(1_000 - site.world.now().0 % 1_000);
    site.forge.describe(&a, "a better description", Announcement::None);
    site.world.advance_millis(50);
    let before = site.world.now();
    site.world.advance_millis(50);
    site.forge.approve(&a);
    site.run_now();
    site.forge.set_behind(site.world.now().since(before));
    site.forge.send_edited_webhook("org/one", 1).unwrap();
    site.run_now();
    site.forge.set_behind(0);
    site.run();
    assert_eq!(gate_builds(&site, "unit"), ["1"], "it was tested once and never left the queue");
    assert_eq!(merged(&site), [1]);
}

/// Z6.3, C5: the forge sends one webhook for the closing and shows the change as open for a moment.
#[test]
fn a_closed_change_leaves_though_a_stale_answer_shows_it_as_open() {
    let mut site = site();
    let a = propose(&site, 1, &[("a", "x")]);
    site.run();
    site.held.insert("unit".to_owned());
    site.forge.approve(&a);
    site.run_now();
    site.world.advance_millis(1_000);
    site.forge.set_behind(500);
    site.forge.close(&a);
    site.run_now();
    site.forge.set_behind(0);
    assert!(buildsets(&site, &[&a]).is_empty(), "the closing is not visible yet");
    site.pass(60);
    assert_eq!(buildsets(&site, &[&a]), ["org/one#1 DEQUEUED"]);
    assert!(merged(&site).is_empty());
}

/// Z6.3: Sluice does not wait for the forge to show a reopened change as closed.
#[test]
fn a_change_that_is_reopened_at_once_is_tested_as_open() {
    let mut site = site();
    let a = propose(&site, 1, &[("a", "x")]);
    site.run();
    site.forge.approve(&a);
    site.forge.close(&a);
    site.forge.reopen(&a);
    site.run();
    assert_eq!(buildsets(&site, &[&a]), ["org/one#1 SUCCESS"]);
    assert_eq!(merged(&site), [1]);
}
