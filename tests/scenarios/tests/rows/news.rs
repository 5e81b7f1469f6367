//! What counts as news of a change, and what it costs to find out that there is none.

use super::{CONFIG, MAIN, PROJECT, approve, buildsets, gate_builds, judge, merged, propose, site};
use sluice_runtime::Clock as _;
use sluice_scenarios::Site;

/// A site whose gate takes changes that bear a label.
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

/// C5: also when both are handled after the second was done, and when nobody tells of the second.
#[test]
fn a_label_that_is_taken_off_and_put_on_again_enqueues_again() {
    for is_told in [true, false] {
        let mut site = labelled();
        let a = propose(&site, 1, &[("a", "broken unit")]);
        site.run();
        site.forge.label(&a, "go", true);
        site.run();
        assert_eq!(gate_builds(&site, "unit"), ["1"]);
        site.forge.unlabel(&a, "go");
        site.forge.label(&a, "go", is_told);
        site.run();
        site.sweep();
        assert_eq!(gate_builds(&site, "unit"), ["1", "1"], "told: {is_told}");
        assert_eq!(merged(&site), Vec::<u64>::new());
    }
}

/// D02: anybody may open changes that name another one; that keeps no one from following it who
/// may.
#[test]
fn many_changes_that_name_one_do_not_keep_its_followers_out() {
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

/// D02: whoever no longer names a change does not follow it.
#[test]
fn a_change_that_dropped_its_dependency_is_not_pulled_in_behind_it() {
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
    site.forge.describe(&a, "", true);
    site.run();
    let noted = |site: &Site| {
        site.world.records().iter().any(|record| record.key.sort.starts_with("needed-by#"))
    };
    assert!(!noted(&site), "it is forgotten");
    approve(&mut site, &[&b]);
    assert_eq!(merged(&site), [2]);
}

/// Z5: open changes that do not move cost a listing, and those that do are read a few at a time.
#[test]
fn a_sweep_reads_only_what_moved_and_so_much_and_no_more() {
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
    assert_eq!(site.forge.reads(), before, "nothing moved");
}

/// C5, Z5: reviews that somebody dismissed are told of and done with; they do not take every
/// sweep's reads from other changes.
#[test]
fn dismissed_reviews_are_not_looked_for_by_each_sweep() {
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
    assert_eq!(site.forge.reads(), before, "nothing moved");
}

/// Z6.3, C5: a forge tells the time to the second, and shows for a while what was before.
#[test]
fn an_approved_change_stays_though_an_answer_of_the_same_second_shows_no_approval() {
    let mut site = site();
    site.forge.tell_whole_seconds();
    let a = propose(&site, 1, &[("a", "x")]);
    site.run();
    site.world.advance_millis(1_000 - site.world.now().0 % 1_000);
    site.forge.describe(&a, "better words", false);
    site.world.advance_millis(50);
    let before = site.world.now();
    site.world.advance_millis(50);
    site.forge.approve(&a);
    site.run_now();
    site.forge.set_behind(site.world.now().since(before));
    site.forge.tell_again("org/one", 1).unwrap();
    site.run_now();
    site.forge.set_behind(0);
    site.run();
    assert_eq!(gate_builds(&site, "unit"), ["1"], "it was tested once, and never left");
    assert_eq!(merged(&site), [1]);
}

/// Z6.3, C5: what was closed is over also where its forge shows it as open for a moment, and tells
/// of it once.
#[test]
fn a_change_that_its_forge_shows_as_open_for_a_moment_after_it_was_closed_leaves() {
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
    assert!(buildsets(&site, &[&a]).is_empty(), "nobody knows yet");
    site.pass(60);
    assert_eq!(buildsets(&site, &[&a]), ["org/one#1 DEQUEUED"]);
    assert!(merged(&site).is_empty());
}

/// Z6.3: nobody waits for long for a forge to show as closed what was opened again.
#[test]
fn what_was_opened_again_at_once_is_tested_as_it_is() {
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
