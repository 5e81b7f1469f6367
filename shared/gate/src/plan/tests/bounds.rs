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
fn a_queue_of_two_hundred_follows_a_new_layout_in_plans_that_fit() {
    let (mut bench, _) = long(200, 0, &["unit"]);
    bench.run();
    bench.jobs[0].hash = "unit-2".to_owned();
    (bench.layout.wanted, bench.layout.live) = (2, 2);
    bench.run();
    assert!(bench.most_records <= RECORDS_MAX, "{}", bench.most_records);
    assert_eq!(bench.orders.len(), 400);
    assert_eq!(bench.under_way().len(), 200);
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
