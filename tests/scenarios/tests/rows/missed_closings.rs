//! Closed, merged and reopened changes whose webhooks were missed.

use super::{CONFIG, MAIN, PROJECT, buildsets, gate_builds, judge, merged, propose, site};
use sluice_model::change::ChangeKey;
use sluice_scenarios::Site;
use sluice_scenarios::forge::Visibility;

/// A pipeline that is triggered by closed changes.
const OVER: &str = "
- pipeline: {name: over, manager: independent, trigger: {github: [{event: pull_request, action: closed}]}}
- project: {name: org/one, over: {jobs: [other]}}
";

/// Returns a site with this central configuration and a change that has passed check.
fn site_with_checked_change(config: &str) -> (Site, ChangeKey) {
    let repositories: &[(&str, &[(&str, &str)])] = &[
        ("org/config", &[("zuul.yaml", config)]),
        ("org/one", &[(".zuul.yaml", PROJECT), ("shared", "0")]),
    ];
    let mut site = Site::new(7, MAIN, repositories, judge);
    let change = propose(&site, 1, &[("a", "x")]);
    site.run();
    (site, change)
}

/// Returns how many builds the pipeline for closed changes has.
fn builds_of_closed(site: &Site) -> usize {
    site.builds().iter().filter(|build| build.starts_with("over ")).count()
}

/// C5: the sweep synthesizes the missed closing or merge, which starts its pipeline once.
#[test]
fn the_sweep_synthesizes_a_missed_closing_once() {
    type EndOfChange = fn(&Site, &ChangeKey);
    let close: EndOfChange = |site, change| site.forge.close(change);
    let merge: EndOfChange = |site, change| site.forge.merge_outside(change);
    for (end, comes_late) in [(close, false), (merge, false), (merge, true)] {
        let (mut site, change) = site_with_checked_change(&format!("{CONFIG}{OVER}"));
        end(&site, &change);
        if comes_late {
            site.forge.lose_webhooks();
        } else {
            site.forge.forget_webhooks();
        }
        site.run();
        assert_eq!(builds_of_closed(&site), 0, "the webhook was missed");
        for time in 0..2 {
            site.sweep();
            assert_eq!(builds_of_closed(&site), 1, "late: {comes_late}, sweep {time}");
        }
    }
}

/// C5: the sweep synthesizes no event for a closing whose webhook was handled.
#[test]
fn a_delivered_closing_is_not_synthesized_by_the_sweep() {
    let (mut site, change) = site_with_checked_change(&format!("{CONFIG}{OVER}"));
    site.forge.close(&change);
    site.run();
    assert_eq!(builds_of_closed(&site), 1);
    let reads = site.forge.reads();
    site.sweep();
    assert_eq!(
        (builds_of_closed(&site), site.forge.reads()),
        (1, reads),
        "it is recorded as closed and not read again"
    );
}

/// C5, Z6.3: a closed change is dequeued although its webhook was missed.
#[test]
fn a_change_whose_closing_was_missed_leaves_its_queues() {
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

/// Z6.1: a comment on a closed change does not dequeue the items that the closing started.
#[test]
fn a_comment_does_not_dequeue_what_a_closing_enqueued() {
    let (mut site, change) = site_with_checked_change(&format!("{CONFIG}{OVER}"));
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

/// C5: a listing may be stale, truncated or empty, so the change itself is read before it counts as
/// closed.
#[test]
fn an_open_change_that_is_missing_from_the_listing_is_not_taken_for_closed() {
    let (mut site, change) = site_with_checked_change(&format!("{CONFIG}{OVER}"));
    site.forge.set_listing_visibility(Visibility::Hidden);
    for _ in 0..2 {
        let reads = site.forge.reads();
        site.sweep();
        assert_eq!((builds_of_closed(&site), site.forge.reads() - reads), (0, 1));
    }
    site.forge.close(&change);
    site.forge.forget_webhooks();
    site.sweep();
    assert_eq!(builds_of_closed(&site), 1, "it is still recorded as open");
}

/// C5: a reopened change is tested again once, although the webhook was missed.
#[test]
fn the_sweep_synthesizes_a_missed_reopening_once() {
    for comes_late in [false, true] {
        let (mut site, change) = site_with_checked_change(CONFIG);
        site.forge.close(&change);
        site.run();
        site.world.advance_millis(60_000);
        site.forge.reopen(&change);
        if comes_late {
            site.forge.lose_webhooks();
        } else {
            site.forge.forget_webhooks();
            // Another event shows the change as open without reporting the reopening.
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

/// Z6.3, C5: the forge shows a reopened change as closed for a moment.
#[test]
fn a_reopened_change_is_tested_though_a_stale_answer_shows_it_as_closed() {
    let needs_open = "    manager: independent\n    require: {github: {open: true}}\n";
    let (mut site, change) =
        site_with_checked_change(&CONFIG.replacen("    manager: independent\n", needs_open, 1));
    site.forge.close(&change);
    site.run();
    site.world.advance_millis(1_000);
    site.forge.set_behind(500);
    site.forge.reopen(&change);
    site.run_now();
    site.forge.set_behind(0);
    assert_eq!(site.builds(), ["check unit 1"], "the reopening is not visible yet");
    site.pass(60);
    assert_eq!(site.builds(), ["check unit 1"; 2]);
}

/// Z5, C5: each sweep reads a limited number of the changes that disappeared from the listing.
#[test]
fn changes_that_disappear_from_the_listing_are_read_a_few_at_a_time() {
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
    assert_eq!(
        reads,
        [20, 20, 10, 0],
        "each is read when it is missing, and for the synthesized event"
    );
}
