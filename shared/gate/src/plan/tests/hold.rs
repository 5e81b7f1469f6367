//! What operators hold back.

use super::bench::Bench;
use crate::plan::Hold;
use insta::assert_snapshot;
use sluice_model::build::BuildResult::Success;

/// Z6.1, G13: what arrives waits in its order, and what an operator says is heard all the same.
#[test]
fn while_trigger_events_are_paused_nothing_enters_and_nothing_leaves_but_by_an_operator() {
    let mut bench = Bench::gate(&["unit"]);
    bench.approve("A");
    bench.run();
    bench.hold = Hold { pauses: true, ..Hold::default() };
    bench.approve("B");
    bench.seen('A', Some("the change was closed"));
    assert_snapshot!(bench.run(), @"");
    bench.end('A', "unit", Success);
    assert!(bench.run().contains("land A"), "what is there goes on");
    let mut bench = Bench::gate(&["unit"]);
    bench.approve("A");
    bench.run();
    bench.hold = Hold { pauses: true, ..Hold::default() };
    bench.approve("B");
    bench.dequeue('A');
    bench.run();
    assert_eq!(bench.left, ["A DEQUEUED"]);
    bench.hold = Hold::default();
    assert_snapshot!(bench.run(), @"run B unit on 0B");
}

/// Z6.1: what is discarded is gone; what stands in a queue is not forgotten.
#[test]
fn while_trigger_events_are_discarded_nothing_enters_and_what_is_taken_back_leaves() {
    let mut bench = Bench::gate(&["unit"]);
    bench.approve("A");
    bench.run();
    bench.hold = Hold { discards: true, ..Hold::default() };
    bench.approve("B");
    bench.seen('A', Some("the change was closed"));
    bench.run();
    assert_eq!(bench.left, ["A DEQUEUED"]);
    bench.hold = Hold::default();
    assert_snapshot!(bench.run(), @"");
    assert!(bench.head.slots.is_empty() && bench.arrivals.is_empty());
}

/// Z6.1
#[test]
fn while_results_are_paused_a_build_that_ended_is_not_heard_of() {
    let mut bench = Bench::gate(&["unit"]);
    bench.approve("A");
    bench.run();
    bench.hold = Hold { results: true, ..Hold::default() };
    bench.end('A', "unit", Success);
    assert_snapshot!(bench.run(), @"");
    bench.hold = Hold::default();
    assert!(bench.run().contains("land A"));
}
