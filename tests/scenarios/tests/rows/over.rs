//! Changes that are over, or open again, and of which nobody said so.

use super::{CONFIG, MAIN, PROJECT, buildsets, gate_builds, judge, merged, propose, site};
use sluice_model::change::ChangeKey;
use sluice_scenarios::Site;

/// A pipeline for what is over.
const OVER: &str = "
- pipeline: {name: over, manager: independent, trigger: {github: [{event: pull_request, action: closed}]}}
- project: {name: org/one, over: {jobs: [other]}}
";

/// A site with this central configuration, and a change that was checked there.
fn checked(config: &str) -> (Site, ChangeKey) {
    let repositories: &[(&str, &[(&str, &str)])] = &[
        ("org/config", &[("zuul.yaml", config)]),
        ("org/one", &[(".zuul.yaml", PROJECT), ("shared", "0")]),
    ];
    let mut site = Site::new(7, MAIN, repositories, judge);
    let change = propose(&site, 1, &[("a", "x")]);
    site.run();
    (site, change)
}

fn over_builds(site: &Site) -> usize {
    site.builds().iter().filter(|build| build.starts_with("over ")).count()
}

/// C5: what waits for the end of a change starts where nobody told of that, and starts once.
#[test]
fn the_end_of_a_change_that_nobody_told_of_is_found_by_the_sweep_and_told_once() {
    type End = fn(&Site, &ChangeKey);
    let close: End = |site, change| site.forge.close(change);
    let merge: End = |site, change| site.forge.merge_outside(change);
    for (end, comes_late) in [(close, false), (merge, false), (merge, true)] {
        let (mut site, change) = checked(&format!("{CONFIG}{OVER}"));
        end(&site, &change);
        if comes_late {
            site.forge.lose_webhooks();
        } else {
            site.forge.forget_webhooks();
        }
        site.run();
        assert_eq!(over_builds(&site), 0, "nobody knows");
        for time in 0..2 {
            site.sweep();
            assert_eq!(over_builds(&site), 1, "late: {comes_late}, sweep {time}");
        }
    }
}

/// C5: a webhook that was handled in time is made up for by no sweep.
#[test]
fn the_end_of_a_change_that_was_told_is_not_looked_for() {
    let (mut site, change) = checked(&format!("{CONFIG}{OVER}"));
    site.forge.close(&change);
    site.run();
    assert_eq!(over_builds(&site), 1);
    let reads = site.forge.reads();
    site.sweep();
    assert_eq!(
        (over_builds(&site), site.forge.reads()),
        (1, reads),
        "it is known to be over, and not read"
    );
}

/// C5, Z6.3: nobody goes on testing what was closed without a word.
#[test]
fn a_change_that_was_closed_without_a_word_leaves_its_queues() {
    let mut site = site();
    let a = propose(&site, 1, &[("a", "x")]);
    site.run();
    site.held.insert("unit".to_owned());
    site.forge.approve(&a);
    site.run_now();
    site.forge.close(&a);
    site.forge.forget_webhooks();
    site.sweep();
    assert_eq!(buildsets(&site, &[&a]), ["org/one#1 DEQUEUED"]);
    assert!(merged(&site).is_empty());
}

/// Z6.1: what the end of a change started goes on, whatever is said of the change afterwards.
#[test]
fn what_the_end_of_a_change_started_is_not_ended_by_a_comment() {
    let (mut site, change) = checked(&format!("{CONFIG}{OVER}"));
    site.held.insert("other".to_owned());
    site.forge.close(&change);
    site.run_now();
    site.world.advance_millis(1_000);
    site.forge.comment(&change, "thank you");
    site.run_now();
    site.held.clear();
    site.run();
    let sets = site.ending(&[], &[&change]).buildsets;
    assert!(sets.contains(&"org/one#1 over SUCCESS".to_owned()), "{sets:?}");
}

/// C5: a listing may be late, or cut, or empty by mistake: the change itself says whether it is
/// open.
#[test]
fn an_open_change_that_is_not_listed_is_not_taken_for_closed() {
    let (mut site, change) = checked(&format!("{CONFIG}{OVER}"));
    site.forge.list_nothing(true);
    for _ in 0..2 {
        let reads = site.forge.reads();
        site.sweep();
        assert_eq!((over_builds(&site), site.forge.reads() - reads), (0, 1));
    }
    site.forge.close(&change);
    site.forge.forget_webhooks();
    site.sweep();
    assert_eq!(over_builds(&site), 1, "it is still known to have been open");
}

/// C5: what was closed and is open again is tested again, once, where nobody told of that.
#[test]
fn a_change_that_was_opened_again_without_a_word_is_found_by_the_sweep_and_told_once() {
    for comes_late in [false, true] {
        let (mut site, change) = checked(CONFIG);
        site.forge.close(&change);
        site.run();
        site.world.advance_millis(60_000);
        site.forge.reopen(&change);
        if comes_late {
            site.forge.lose_webhooks();
        } else {
            site.forge.forget_webhooks();
            // What is told meanwhile shows it as open, and says nothing of that.
            site.world.advance_millis(1_000);
            site.forge.comment(&change, "thank you");
        }
        site.run();
        assert_eq!(site.builds(), ["check unit 1"]);
        for time in 0..2 {
            site.sweep();
            assert_eq!(site.builds(), ["check unit 1"; 2], "late: {comes_late}, sweep {time}");
        }
        site.forge.approve(&change);
        site.run();
        assert_eq!((gate_builds(&site, "unit"), merged(&site)), (vec!["1".to_owned()], vec![1]));
    }
}

/// Z6.3, C5: what was opened again is open also where its forge shows it as closed for a moment.
#[test]
fn a_change_that_its_forge_shows_as_closed_for_a_moment_after_it_was_opened_again_is_tested() {
    let needs_open = "    manager: independent\n    require: {github: {open: true}}\n";
    let (mut site, change) = checked(&CONFIG.replacen("    manager: independent\n", needs_open, 1));
    site.forge.close(&change);
    site.run();
    site.world.advance_millis(1_000);
    site.forge.set_behind(500);
    site.forge.reopen(&change);
    site.run_now();
    site.forge.set_behind(0);
    assert_eq!(site.builds(), ["check unit 1"], "nobody knows yet");
    site.pass(60);
    assert_eq!(site.builds(), ["check unit 1"; 2]);
}

/// Z5, C5: of many changes that are listed no more a sweep reads some, and the next one others.
#[test]
fn many_changes_that_are_listed_no_more_are_read_a_few_at_a_time() {
    let mut site = site();
    let changes: Vec<ChangeKey> =
        (1..=25).map(|number| propose(&site, number, &[(&format!("f{number}"), "x")])).collect();
    site.run();
    for change in &changes {
        site.forge.close(change);
    }
    site.forge.forget_webhooks();
    let mut reads = Vec::new();
    for _ in 0..4 {
        let before = site.forge.reads();
        site.sweep();
        reads.push(site.forge.reads() - before);
    }
    assert_eq!(reads, [20, 20, 10, 0], "each is read when it is missed, and when that is told");
}
