//! Reporter jobs, which run after the merge and the report, for one change after the other, also
//! when functions or executors die.

use super::graph::{self, enqueue};
use super::{approve, buildsets, comments, gate_builds, merged, propose, unlinked};
use sluice_memory::Fate;
use sluice_model::change::ChangeKey;
use sluice_scenarios::Site;
use std::collections::BTreeSet;

/// Returns a site whose config project gives org/one the reporter job `publish` in the gate.
pub(super) fn site() -> Site {
    let more = "
- job: {name: publish, type: reporter, run: playbooks/publish.yaml}
- project: {name: org/one, gate: {jobs: [publish]}}
";
    graph::site(more, "[test1]")
}

fn is_publishing(site: &Site) -> bool {
    site.running().iter().any(|job| job == "publish")
}

/// Approves two changes and runs the site until the first one publishes and everything else waits.
fn publishing(edits: &[(&str, &str)]) -> (Site, [ChangeKey; 2]) {
    let mut site = site();
    site.held.extend(["test1".to_owned(), "publish".to_owned()]);
    let changes = [propose(&site, 1, edits), propose(&site, 2, &[("b", "x")])];
    enqueue(&mut site, &[&changes[0], &changes[1]]);
    site.run_until(|site| site.running() == ["test1", "test1"]);
    site.held.remove("test1");
    site.run_until(is_publishing);
    site.run_now();
    (site, changes)
}

/// Z4.3
#[test]
fn a_reporter_runs_after_the_merge_and_the_report_and_blocks_the_next_landing() {
    let (mut site, [a, b]) = publishing(&[("a", "x")]);
    assert_eq!(merged(&site), [1], "only the published change is merged");
    assert!(
        unlinked(&comments(&site, &a)).contains("test1 : SUCCESS"),
        "the result was reported before: {}",
        comments(&site, &a)
    );
    assert!(!comments(&site, &a).contains("publish"), "{}", comments(&site, &a));
    assert_eq!(buildsets(&site, &[&a]), ["org/one#1 SUCCESS"], "the buildset is complete");
    site.held.clear();
    site.run();
    assert_eq!(merged(&site), [1, 2]);
    assert_eq!(gate_builds(&site, "publish"), ["1", "1 2"]);
    assert_eq!(
        gate_builds(&site, "test1"),
        ["1", "1 2"],
        "the tests of the change behind it stay valid"
    );
    assert_eq!(
        unlinked(&comments(&site, &a)).matches("test1 : SUCCESS").count(),
        1,
        "it is reported once"
    );
    assert_eq!(site.ending(&["org/one"], &[&a, &b]).left_over, Vec::<String>::new());
}

/// Z4.3: the change stays merged, and the change behind it is tested again on the merged state.
#[test]
fn a_failed_reporter_causes_a_retest_of_the_changes_behind_it() {
    let (mut site, [a, b]) = publishing(&[("a", "broken publish")]);
    site.held.clear();
    site.run();
    assert_eq!(merged(&site), [1, 2]);
    assert_eq!(gate_builds(&site, "test1"), ["1", "1 2", "2"]);
    assert_eq!(buildsets(&site, &[&a, &b]), ["org/one#1 SUCCESS", "org/one#2 SUCCESS"]);
    assert_eq!(site.ending(&["org/one"], &[&a, &b]).left_over, Vec::<String>::new());
}

/// Z4.3
#[test]
fn a_reporter_is_not_run_for_a_change_that_does_not_pass() {
    let mut site = site();
    let a = propose(&site, 1, &[("a", "broken test1")]);
    approve(&mut site, &[&a]);
    assert_eq!(merged(&site), Vec::<u64>::new());
    assert_eq!(gate_builds(&site, "publish"), Vec::<String>::new());
    assert_eq!(buildsets(&site, &[&a]), ["org/one#1 FAILURE"]);
}

/// Z4.3, Z7.3: a dead executor does not block the queue for ever.
#[test]
fn a_reporter_whose_executor_dies_runs_again_and_the_queue_continues() {
    let (mut site, [a, b]) = publishing(&[("a", "x")]);
    site.die();
    site.held.clear();
    site.run();
    assert_eq!(merged(&site), [1, 2]);
    assert_eq!(gate_builds(&site, "publish"), ["1", "1", "1 2"]);
    assert_eq!(site.ending(&["org/one"], &[&a, &b]).left_over, Vec::<String>::new());
}

/// Z4.3, Z7.6: a function dies between the merge and the end of the reporters, or messages are
/// delivered twice.
#[test]
fn reporters_complete_whichever_function_dies() {
    for step in (0..120).step_by(3) {
        let mut site = site();
        site.twice = step % 2 == 1;
        let (a, b) = (propose(&site, 1, &[("a", "x")]), propose(&site, 2, &[("b", "x")]));
        enqueue(&mut site, &[&a, &b]);
        site.run_until(|site| {
            site.world.records().iter().any(|record| record.key.partition.starts_with("landing#"))
        });
        site.set_fate(step, Fate::DiesAfter);
        site.run();
        site.sweep();
        site.sweep();
        assert_eq!(merged(&site), [1, 2], "a death at call {step}");
        assert_eq!(
            buildsets(&site, &[&a, &b]),
            ["org/one#1 SUCCESS", "org/one#2 SUCCESS"],
            "at call {step}"
        );
        let published: BTreeSet<String> = gate_builds(&site, "publish").into_iter().collect();
        assert!(published.len() >= 2, "at call {step}: {published:?}");
        assert_eq!(
            site.ending(&["org/one"], &[&a, &b]).left_over,
            Vec::<String>::new(),
            "at call {step}"
        );
    }
}
