//! Tenant states: paused and discarded events.

use super::bench::{Bench, job};
use crate::plan::TenantHold;
use crate::queue::SlotStatus;
use insta::assert_snapshot;
use sluice_config::pipeline::Manager;
use sluice_model::build::BuildResult::Success;

/// Z6.1, G13: while events are paused, messages wait in order and commands are applied. Queued
/// changes go on, except the landing of a change that a message closes.
#[test]
fn while_trigger_events_are_paused_nothing_enters_and_nothing_leaves_but_by_an_operator() {
    let mut bench = Bench::gate(&["unit"]);
    bench.approve("A");
    bench.run();
    bench.hold = TenantHold { pause_triggers: true, ..TenantHold::default() };
    bench.approve("B");
    bench.update('A', Some("the change was closed"));
    assert_snapshot!(bench.run(), @"");
    bench.end('A', "unit", Success);
    bench.run();
    assert_eq!(
        bench.head.entries[0].first().status,
        SlotStatus::Passed,
        "what is there goes on, and what was closed does not land"
    );
    bench.hold = TenantHold::default();
    bench.run();
    assert_eq!(bench.left, ["A DEQUEUED"]);
    assert!(bench.landings.is_empty());
    let mut bench = Bench::gate(&["unit"]);
    bench.approve("A");
    bench.run();
    bench.hold = TenantHold { pause_triggers: true, ..TenantHold::default() };
    bench.approve("B");
    bench.dequeue('A');
    bench.run();
    assert_eq!(bench.left, ["A DEQUEUED"]);
    bench.hold = TenantHold::default();
    assert_snapshot!(bench.run(), @"run B unit on 0B");
}

/// Z6.1, C03: nor is a revision merged that a waiting message replaces; others are merged.
#[test]
fn while_trigger_events_are_paused_a_change_with_a_newer_revision_does_not_land() {
    for is_revised in [true, false] {
        let mut bench = Bench::gate(&["unit"]);
        bench.approve("A");
        bench.run();
        bench.hold = TenantHold { pause_triggers: true, ..TenantHold::default() };
        if is_revised {
            bench.revise('A');
        }
        bench.approve("A");
        bench.pass("A");
        bench.run();
        assert_eq!(bench.landings.is_empty(), is_revised);
        bench.hold = TenantHold::default();
        bench.finish();
        assert_eq!(
            (bench.left.len(), bench.landed.len()),
            (if is_revised { 2 } else { 1 }, 1),
            "{:?}",
            bench.left
        );
    }
}

/// Z6.1: discarded enqueue messages are gone; updates of queued changes still apply.
#[test]
fn while_events_are_discarded_nothing_is_enqueued_and_updates_still_apply() {
    let mut bench = Bench::gate(&["unit"]);
    bench.approve("A");
    bench.run();
    bench.hold = TenantHold { discard_triggers: true, ..TenantHold::default() };
    bench.approve("B");
    bench.update('A', Some("the change was closed"));
    bench.run();
    assert_eq!(bench.left, ["A DEQUEUED"]);
    bench.hold = TenantHold::default();
    assert_snapshot!(bench.run(), @"");
    assert!(bench.head.entries.is_empty() && bench.inbox.is_empty());
}

/// Z6.1: an enqueue message in progress is completed when an operator starts discarding events.
#[test]
fn an_offer_that_needs_several_plans_is_not_discarded_between_them() {
    let mut bench = Bench::new(Manager::Independent, &[]);
    bench.jobs = (0..60).map(|number| job(&format!("job-{number}"))).collect();
    bench.approve("A");
    bench.run();
    bench.revise('A');
    bench.approve("A");
    bench.plan_once();
    assert_eq!(
        (bench.inbox.len(), bench.left.len()),
        (1, 0),
        "one plan does not stop all that is under way"
    );
    bench.hold = TenantHold { discard_triggers: true, ..TenantHold::default() };
    bench.run();
    assert_eq!((bench.left.join(", "), bench.head.slots().count()), ("A DEQUEUED".to_owned(), 1));
}

/// Z6.1: a change that an operator enqueues is not affected.
#[test]
fn an_operator_enqueues_while_events_are_paused_or_discarded() {
    for hold in [
        TenantHold { pause_triggers: true, ..TenantHold::default() },
        TenantHold { discard_triggers: true, ..TenantHold::default() },
    ] {
        let mut bench = Bench::gate(&["unit"]);
        bench.hold = hold;
        bench.approve("AB");
        bench.inbox[1].by_operator = true;
        assert!(bench.run().contains("run B unit on 0B"), "{hold:?}");
        assert_eq!(
            (bench.head.slots().count(), bench.inbox.len()),
            (1, usize::from(hold.pause_triggers)),
            "{hold:?}"
        );
        bench.hold = TenantHold::default();
        bench.run();
        assert_eq!(
            bench.head.slots().count(),
            1 + usize::from(hold.pause_triggers),
            "what was paused enters now"
        );
    }
}

/// Z6.1
#[test]
fn while_results_are_paused_an_ended_build_is_not_processed() {
    let mut bench = Bench::gate(&["unit"]);
    bench.approve("A");
    bench.run();
    bench.hold = TenantHold { pause_results: true, ..TenantHold::default() };
    bench.end('A', "unit", Success);
    assert_snapshot!(bench.run(), @"");
    bench.hold = TenantHold::default();
    assert!(bench.run().contains("land A"));
}
