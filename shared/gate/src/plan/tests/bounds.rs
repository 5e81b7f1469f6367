//! A plan is one transaction, however long the queue.

use super::bench::Bench;
use crate::plan::RECORDS_MAX;
use sluice_model::build::BuildResult::Failure;

fn long(count: usize, window: u32, jobs: &[&str]) -> (Bench, String) {
    let mut bench = Bench::gate(jobs);
    bench.head.window = window;
    bench.pipeline.window.initial = window;
    let changes: String = ('a'..='z').chain('A'..='Z').chain('\u{c0}'..='\u{17f}').take(count).collect();
    bench.approve(&changes);
    (bench, changes)
}

/// Z6.4: resets of a whole window take several plans and are complete.
#[test]
fn a_window_of_forty_items_with_three_jobs_is_reset_in_plans_that_fit() {
    let (mut bench, changes) = long(40, 40, &["one", "two", "three"]);
    bench.run();
    assert_eq!(bench.under_way().len(), 120);
    let first = changes.chars().next().unwrap();
    let before = bench.plans;
    bench.end(first, "one", Failure);
    bench.run();
    assert!(bench.plans - before > 3);
    assert!(bench.most_records <= RECORDS_MAX, "{}", bench.most_records);
    assert_eq!(bench.orders.len(), 120 + 117);
    assert_eq!(bench.under_way().len(), 119);
}

/// Z6.7: a queue longer than a transaction follows a new layout.
#[test]
fn a_queue_longer_than_a_transaction_follows_a_new_layout_in_plans_that_fit() {
    let (mut bench, _) = long(120, 0, &["unit"]);
    bench.run();
    bench.jobs[0].hash = "unit-2".to_owned();
    (bench.layout.wanted, bench.layout.live) = (2, 2);
    bench.run();
    assert!(bench.most_records <= RECORDS_MAX, "{}", bench.most_records);
    assert_eq!(bench.orders.len(), 240);
    assert_eq!(bench.under_way().len(), 120);
}

/// Z6.7: so does an item with more jobs than a transaction could stop.
#[test]
fn an_item_with_sixty_jobs_is_reset_in_plans_that_fit() {
    let names: Vec<String> = (0..60).map(|number| format!("job-{number:02}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let (mut bench, _) = long(2, 20, &names);
    bench.run();
    bench.end('a', "job-00", Failure);
    bench.run();
    assert_eq!(bench.under_way().len(), 119);
    bench.seen('b', Some("the change was closed"));
    bench.run();
    assert_eq!(bench.under_way().len(), 59);
    assert_eq!(bench.left, ["b DEQUEUED"]);
    assert!(bench.most_records <= RECORDS_MAX, "{}", bench.most_records);
}

/// Z6.7: what does not fit into the head waits, in its order, and is admitted when something leaves.
#[test]
fn a_head_that_is_full_lets_arrivals_wait_until_something_leaves() {
    let (mut bench, changes) = long(240, 20, &["unit"]);
    bench.run();
    let (here, waiting) = (bench.head.slots.len(), bench.arrivals.len());
    assert!(here < 240 && here + waiting == 240, "{here} are here and {waiting} wait");
    assert!(serde_json::to_string(&bench.head).unwrap().len() < 56 << 10);
    bench.finish_rounds(600);
    assert_eq!(bench.landed.last().map(|tree| tree.chars().count()), Some(changes.chars().count() + 1));
}

/// Z6.4: what somebody else wrote is never too long for a record.
#[test]
fn a_conflict_in_very_many_files_fits_into_the_records() {
    let mut bench = Bench::gate(&["unit"]);
    bench.conflicts.push(('A', 'B'));
    bench.conflict_detail = "path/to/some/file, ".repeat(20_000);
    bench.approve("AB");
    bench.run();
    bench.finish();
    assert_eq!(bench.left, ["A SUCCESS", "B MERGE_CONFLICT"]);
    assert!(bench.removed_bytes_max < 48 << 10, "{}", bench.removed_bytes_max);
    assert!(bench.comments().iter().all(|comment| comment.len() < 16 << 10));
}

/// R01: a job that changes and changes back is a build of its own each time.
#[test]
fn a_job_whose_configuration_comes_back_is_given_another_build() {
    let mut bench = Bench::gate(&["unit"]);
    bench.approve("A");
    bench.run();
    for (number, hash) in [(2, "unit-2"), (3, "unit-1")] {
        bench.jobs[0].hash = hash.to_owned();
        (bench.layout.wanted, bench.layout.live) = (number, number);
        bench.run();
    }
    let ids: std::collections::BTreeSet<_> = bench.orders.iter().map(|order| order.build.clone()).collect();
    assert_eq!((bench.orders.len(), ids.len()), (3, 3));
}
