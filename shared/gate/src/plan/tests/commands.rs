//! What operators ask: a change leaves, a frozen queue goes on.

use super::bench::Bench;
use crate::inbox::InboxMessageKind;
use crate::landing::{LandingEnd, LandingState, LandingTrouble};
use crate::plan::LayoutNumbers;
use insta::assert_snapshot;
use sluice_config::pipeline::Manager;
use sluice_model::Timestamp;
use sluice_model::git::Commit;

fn passed(changes: &str) -> Bench {
    let mut bench = Bench::gate(&["unit"]);
    bench.approve(changes);
    bench.run();
    bench.pass(changes);
    bench.run();
    bench
}

fn thaw(reason: &str) -> InboxMessageKind {
    InboxMessageKind::Resume { by: "jo".to_owned(), reason: reason.to_owned() }
}

/// Makes what lands for A another tree than the tested one.
fn mismatch(bench: &mut Bench) {
    bench.tips.insert("one".to_owned(), "0xA".to_owned());
    bench.end_landing(LandingEnd::Mismatch {
        landed: Commit { id: "abc".into(), tree: "0xA".into() },
    });
    bench.run();
}

/// R06: the report says why, and the item's record says besides who wanted it.
#[test]
fn a_change_that_an_operator_takes_out_is_reported_as_canceled() {
    let mut bench = Bench::gate(&["unit"]);
    bench.pipeline.reporters.dequeue = bench.pipeline.reporters.failure.clone();
    bench.approve("AB");
    bench.run();
    bench.dequeue('A');
    assert_snapshot!(bench.run(), @r"
    stop A unit
    stop B unit
    A leaves: DEQUEUED
    run B unit on 0B
    ");
    assert_snapshot!(bench.comments().last().unwrap().lines().take(3).collect::<Vec<_>>().join("\n"), @r"
    Build canceled.

    an operator took it out: it hangs
    ");
    assert!(!bench.comments().join("").contains("jo"), "who it was is nobody else's business");
    let reasons = &bench.removed_reasons;
    assert!(reasons.iter().any(|reason| reason == "jo took it out: it hangs"), "{reasons:?}");
    bench.finish();
    assert_eq!(bench.left, ["A DEQUEUED", "B SUCCESS"]);
}

/// R06, D08: what needs the change cannot pass without it.
#[test]
fn what_needs_a_change_that_an_operator_takes_out_leaves_too() {
    let mut bench = Bench::gate(&["unit"]);
    bench.approve("A");
    bench.approve_needing('B', "A");
    bench.run();
    bench.dequeue('A');
    bench.run();
    assert_eq!(bench.left, ["A DEQUEUED", "B FAILURE"]);
}

/// R06: neither a layout that settles nor news that waits for a landing holds an operator up.
#[test]
fn an_operators_word_overtakes_what_waits() {
    let mut bench = passed("ABC");
    bench.revise('A');
    bench.seen('A', None);
    bench.layout.wanted += 1;
    bench.run();
    assert_eq!(bench.arrivals.len(), 1, "news of A waits for the end of its landing");
    bench.dequeue('B');
    bench.run();
    assert_eq!((bench.left.as_slice(), bench.arrivals.len()), (&["B DEQUEUED".to_owned()][..], 1));
}

/// R06: who saw one revision does not take out the next one, which took its place meanwhile.
#[test]
fn an_operator_who_named_a_revision_takes_out_no_other() {
    let mut bench = Bench::gate(&["unit"]);
    bench.approve("A");
    bench.run();
    let seen = bench.change('A');
    bench.revise('A');
    bench.approve("A");
    bench.run();
    let left = bench.left.len();
    let (by, reason) = (String::new(), String::new());
    let word = |head| InboxMessageKind::Dequeue {
        key: seen.key.clone(),
        head,
        by: by.clone(),
        reason: reason.clone(),
    };
    bench.arrive(word(Some(seen.head.clone())));
    bench.run();
    assert_eq!((bench.left.len(), bench.head.slots.len(), bench.arrivals.len()), (left, 1, 0));
    bench.arrive(word(Some(bench.change('A').head)));
    bench.run();
    assert_eq!((bench.left.len(), bench.head.slots.len()), (left + 1, 0));
}

/// Z6.4: once an operator has looked, the queue goes on from what the branch became; what needs the
/// change may stay.
#[test]
fn a_thawed_queue_tests_again_on_what_the_branch_became() {
    let mut bench = passed("A");
    bench.approve_needing('B', "A");
    bench.run();
    mismatch(&mut bench);
    // News of the change waits for the landing that froze the queue; the operator's word does not
    // wait behind it.
    bench.revise('A');
    bench.seen('A', None);
    bench.run();
    bench.arrive(thaw("the merge driver was switched off"));
    bench.run();
    assert_eq!(
        (bench.head.halted.as_deref(), bench.left.as_slice()),
        (None, &["A MERGE_FAILURE".to_owned()][..])
    );
    let told = bench.comments().join("");
    assert!(
        told.contains("tree 0xA") && told.contains("the merge driver was switched off"),
        "{told}"
    );
    bench.finish();
    assert_eq!(bench.left, ["A MERGE_FAILURE", "B SUCCESS"]);
    assert!(bench.arrivals.is_empty());
}

/// An operator's word about a queue that moves changes nothing, and is not kept for later.
#[test]
fn a_queue_that_is_not_frozen_is_not_changed_by_thawing_it() {
    let mut bench = passed("A");
    let head = bench.head.clone();
    bench.arrive(thaw("to be sure"));
    bench.run();
    assert_eq!((bench.head.clone(), bench.arrivals.len()), (head, 0));
}

/// R03, Z6.4: a tenant that is gone leaves no frozen queue behind that nobody can thaw.
#[test]
fn a_frozen_queue_whose_pipeline_is_gone_can_be_thawed() {
    let mut bench = passed("AB");
    mismatch(&mut bench);
    bench.is_pipeline_gone = true;
    bench.layout = LayoutNumbers { wanted: 2, live: 2 };
    bench.run();
    assert_eq!(bench.left, ["B DEQUEUED"]);
    bench.arrive(thaw("the tenant is gone"));
    bench.run();
    assert_eq!((bench.head.slots.len(), bench.head.halted.as_deref()), (0, None));
}

/// R06, Z6.5: where the connection of a bundle is gone of which a part has landed, an operator's
/// word is the end of all of it, and each is told as what it is: landed, not known, or not begun.
#[test]
fn an_operator_ends_a_bundle_of_which_a_part_has_landed_where_its_connection_is_gone() {
    for (has_begun, named) in [(true, 'C'), (true, 'A'), (false, 'B')] {
        let mut bench = Bench::gate(&["unit"]);
        bench.approve_cycle("ABC", "");
        bench.approve("D");
        bench.run();
        bench.pass("ABC");
        bench.run();
        bench.land();
        bench.run();
        let id = bench.head.slots[1].id.clone();
        let landing = bench.landings.get_mut(&id).unwrap();
        if has_begun {
            landing.state = LandingState::Attempting { tip: landing.base.clone() };
        }
        bench.dequeue(named);
        bench.run();
        assert_eq!((bench.left.len(), bench.arrivals.len()), (0, 1), "its end may still be known");
        let landing = bench.landings.get_mut(&id).unwrap();
        landing.trouble =
            Some(LandingTrouble { since: Timestamp(1), why: "nobody to ask".to_owned(), is_connection_removed: true });
        bench.run();
        assert_eq!(bench.left, ["A SUCCESS", "B DEQUEUED", "C DEQUEUED"]);
        let why = match &bench.landings[&id].state {
            LandingState::Ended { end: LandingEnd::Unproven { why }, .. } if has_begun => why,
            LandingState::Ended { end: LandingEnd::Refused { why }, .. } if !has_begun => why,
            other => panic!("{other:?}"),
        };
        assert!(
            why.starts_with("an operator took it out: it hangs; ")
                && why.contains("the connection github"),
            "{why}"
        );
        assert_eq!(why.contains("is in its branch nobody can tell"), has_begun, "{why}");
        let reasons = bench
            .removed_reasons
            .iter()
            .filter(|reason| reason.contains("is in its branch nobody can tell"));
        assert_eq!(reasons.count() > 0, has_begun);
        // What is behind goes on from what landed.
        bench.finish();
        assert_eq!(
            (bench.landed.last().map(String::as_str), bench.head.slots.len()),
            (Some("0AD"), 0)
        );
    }
}

fn promote(bench: &mut Bench, changes: &str) {
    let keys = changes.chars().map(|change| bench.change(change).key).collect();
    bench.arrive(InboxMessageKind::Promote { keys, by: "jo".to_owned() });
}

fn order(bench: &Bench) -> String {
    let letter = |key: &sluice_model::change::ChangeKey| {
        char::from_u32(key.number().unwrap() as u32).unwrap()
    };
    bench.head.slots.iter().map(|slot| letter(&slot.change.key)).collect()
}

/// Z6.4: who comes first is tested first; what is behind is tested on it.
#[test]
fn a_promoted_change_stands_first_and_all_others_keep_their_order() {
    let mut bench = Bench::gate(&["unit"]);
    bench.approve("ABC");
    bench.run();
    promote(&mut bench, "C");
    assert_snapshot!(bench.run(), @r"
    stop C unit
    stop A unit
    stop B unit
    run C unit on 0C
    run A unit on 0CA
    run B unit on 0CAB
    ");
    assert_eq!(order(&bench), "CAB");
    bench.finish();
    assert_eq!(bench.left, ["C SUCCESS", "A SUCCESS", "B SUCCESS"]);
}

/// Z6.4, Z6.5: promoting cannot put a change before what it needs, nor before one that is being put
/// into its branch.
#[test]
fn a_promoted_change_brings_what_it_needs_and_lets_a_landing_end() {
    let mut bench = passed("A");
    bench.approve("B");
    bench.approve("C");
    bench.approve_needing('D', "C");
    bench.run();
    promote(&mut bench, "DB");
    bench.run();
    assert_eq!(order(&bench), "ACDB");
    // Somebody who is not there changes nothing.
    promote(&mut bench, "X");
    bench.run();
    assert_eq!((order(&bench).as_str(), bench.arrivals.len()), ("ACDB", 0));
    bench.finish();
    assert_eq!(bench.left, ["A SUCCESS", "C SUCCESS", "D SUCCESS", "B SUCCESS"]);
}

/// Z6.1: where one is worked on after the other, what has begun goes on.
#[test]
fn in_a_serial_queue_what_has_begun_stays_first() {
    let mut bench = Bench::new(Manager::Serial, &["unit"]);
    bench.approve("ABC");
    bench.run();
    promote(&mut bench, "C");
    bench.run();
    assert_eq!(order(&bench), "ACB");
}

/// Z6.1: so does what was asked for, whose answer would have it worked on behind another one.
#[test]
fn in_a_serial_queue_what_was_asked_for_stays_first() {
    let mut bench = Bench::new(Manager::Serial, &["unit"]);
    bench.approve("ABC");
    bench.look();
    promote(&mut bench, "C");
    bench.look();
    assert_eq!(order(&bench), "ACB");
    bench.run();
    bench.finish();
    assert_eq!(bench.left, ["A SUCCESS", "C SUCCESS", "B SUCCESS"]);
}
