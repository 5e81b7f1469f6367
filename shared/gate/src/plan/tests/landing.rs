//! Landings: tested is what lands, and what happens when it cannot be; layouts that change
//! meanwhile.

use super::bench::Bench;
use crate::landing::{Landing, LandingEnd, LandingState, LandingTrouble};
use crate::plan::LayoutNumbers;
use crate::queue::SlotStatus;
use insta::assert_snapshot;
use sluice_config::pipeline::Manager;
use sluice_model::Timestamp;
use sluice_model::build::BuildResult::Failure;
use sluice_model::git::{Commit, LandingMethod};

fn passed(changes: &str) -> Bench {
    let mut bench = Bench::gate(&["unit"]);
    bench.approve(changes);
    bench.run();
    bench.pass(changes);
    bench.run();
    bench
}

/// Z6.4
#[test]
fn a_branch_that_moved_has_everything_tested_again_on_what_it_is_now() {
    let mut bench = passed("AB");
    bench.tips.insert("one".to_owned(), "0x".to_owned());
    bench.land();
    assert_snapshot!(bench.run(), @r"
    run A unit on 0xA
    run B unit on 0xAB
    ");
    bench.finish();
    assert_eq!(bench.landed, ["0xA", "0xAB"]);
}

/// Z6.4
#[test]
fn a_landed_tree_that_was_not_tested_freezes_the_queue() {
    let mut bench = passed("AB");
    bench.end_landing(LandingEnd::Mismatch {
        landed: Commit { id: "abc".into(), tree: "strange".into() },
    });
    assert_snapshot!(bench.run(), @"");
    assert!(bench.head.halted.as_ref().is_some_and(|why| why.contains("strange")));
    bench.approve("C");
    bench.run();
    assert!(bench.landings.len() == 1 && bench.landed.is_empty());
    assert!(
        bench
            .orders
            .iter()
            .all(|order| order.change.key.number() != Some(u64::from(u32::from('C'))))
    );
}

/// Z6.5: where nothing is pushed after all, what landed right before is known by the branch, though
/// its forge may show it as open still.
#[test]
fn what_lands_behind_its_need_does_not_ask_the_forge_whether_that_is_merged() {
    let mut bench = Bench::gate(&["unit"]);
    bench.kept = true;
    bench.approve("A");
    bench.approve_needing('B', "A");
    bench.run();
    bench.pass("B");
    bench.run();
    bench.pass("A");
    bench.run();
    let (a, b) = (bench.change('A').key, bench.change('B').key);
    let of_b = bench
        .landings
        .values()
        .find(|landing| landing.change.key == b)
        .expect("it lands right behind A");
    assert_eq!((of_b.needs.as_slice(), of_b.base.tree.as_str()), (&[a][..], "0A"));
    assert_eq!(bench.landings.len(), 2);
}

/// Z6.4: what is in its branch, and nobody can read, is proven by nothing; an operator's word
/// counts it as landed.
#[test]
fn a_landed_tree_that_nobody_can_read_freezes_the_queue_until_an_operator_has_looked() {
    let mut bench = passed("AB");
    bench.tips.insert("one".to_owned(), "0A".to_owned());
    bench.end_landing(LandingEnd::Unproven {
        why: format!("could not read commit abc{}", "!".repeat(1_000)),
    });
    assert_snapshot!(bench.run(), @"");
    let why = bench.head.halted.clone().unwrap_or_default();
    assert!(
        why.contains("could not read commit abc")
            && why.contains("thaw the queue")
            && why.len() < 800,
        "{why}"
    );
    bench.thaw();
    bench.run();
    assert_eq!(
        (bench.left.as_slice(), bench.head.landed.len()),
        (&["A MERGE_FAILURE".to_owned()][..], 1)
    );
    bench.finish();
    assert_eq!(bench.landed, ["0AB"]);
}

/// R03: what is in a pipeline that the configuration no longer has leaves without a report; what is
/// landing still lands.
#[test]
fn a_queue_is_emptied_when_its_pipeline_is_gone() {
    let mut bench = passed("A");
    bench.approve("BC");
    bench.run();
    let said = bench.comments().len();
    bench.is_pipeline_gone = true;
    bench.layout = LayoutNumbers { wanted: 2, live: 2 };
    assert_snapshot!(bench.run(), @r"
    stop B unit
    stop C unit
    B leaves: DEQUEUED
    C leaves: DEQUEUED
    ");
    bench.land();
    bench.run();
    assert_eq!((bench.landed.as_slice(), bench.head.slots.len()), (&["0A".to_owned()][..], 0));
    assert_eq!(bench.comments().len(), said, "nothing is reported");
}

/// G15
#[test]
fn a_refused_landing_is_told_and_those_behind_are_tested_without_it() {
    let mut bench = passed("AB");
    bench.end_landing(LandingEnd::Refused { why: "a review by an owner is missing".to_owned() });
    assert_snapshot!(bench.run(), @r"
    A leaves: MERGE_FAILURE
    run B unit on 0B
    ");
    assert!(bench.comments()[0].contains("a review by an owner is missing"));
}

/// Z6.4: only the landing's end tells what becomes of a change that is landing.
#[test]
fn nothing_takes_a_change_out_while_it_lands() {
    let mut bench = passed("AB");
    bench.seen('A', Some("the change was closed"));
    bench.revise('A');
    bench.approve("A");
    bench.dequeue('A');
    assert_snapshot!(bench.run(), @"");
    assert_eq!(bench.head.slots[0].status, SlotStatus::Landing);
    bench.land();
    bench.run();
    assert_eq!((bench.left[0].as_str(), bench.arrivals.len()), ("A SUCCESS", 0));
}

fn trouble() -> Option<LandingTrouble> {
    Some(LandingTrouble { since: Timestamp(1), why: "the forge is silent".to_owned(), is_connection_removed: false })
}

/// R06: what nobody can put into its branch an operator takes out, while nobody has begun to: its
/// landing is over by that.
#[test]
fn an_operator_takes_back_a_landing_that_nobody_can_carry_out() {
    let mut bench = passed("AB");
    let id = bench.head.slots[0].id.clone();
    bench.dequeue('A');
    assert_snapshot!(bench.run(), @"");
    assert_eq!(
        (bench.head.slots[0].status, bench.arrivals.len()),
        (SlotStatus::Landing, 1),
        "it may land any moment"
    );
    bench.landings.get_mut(&id).unwrap().trouble = trouble();
    bench.run();
    assert_eq!((bench.left.clone(), bench.arrivals.len()), (vec!["A DEQUEUED".to_owned()], 0));
    let LandingState::Ended { end: LandingEnd::Refused { why }, .. } = &bench.landings[&id].state
    else {
        panic!("{:?}", bench.landings[&id].state)
    };
    assert_eq!(why, "an operator took it out: it hangs");
    assert!(bench.turns.values().all(|seen| seen.lock.holder.is_none()), "its branch is free");
    bench.finish();
    assert_eq!(bench.landed, ["0B"]);
}

/// R06, Z6.4: what somebody has begun to land, or may have by a push without an answer, is not
/// taken back: its end tells.
#[test]
fn what_may_be_in_its_branch_is_not_taken_back() {
    let begun = |landing: &mut Landing| {
        landing.state = LandingState::Attempting { tip: landing.base.clone() }
    };
    let pushed = |landing: &mut Landing| landing.has_unanswered_push = true;
    for may_land in [&begun as &dyn Fn(&mut Landing), &pushed] {
        let mut bench = passed("AB");
        let landing = bench.landings.values_mut().next().unwrap();
        landing.trouble = trouble();
        may_land(landing);
        bench.dequeue('A');
        assert_eq!(bench.run(), "");
        assert_eq!((bench.head.slots[0].status, bench.arrivals.len()), (SlotStatus::Landing, 1));
    }
}

/// R06, Z6.4: where nobody can ask its forge any more an operator's word is the end of that, too;
/// that it did not land is not said.
#[test]
fn what_may_be_in_its_branch_is_taken_back_where_its_connection_is_gone() {
    let begun = |landing: &mut Landing| {
        landing.state = LandingState::Attempting { tip: landing.base.clone() }
    };
    let pushed = |landing: &mut Landing| landing.has_unanswered_push = true;
    for may_land in [&begun as &dyn Fn(&mut Landing), &pushed] {
        let mut bench = passed("AB");
        let id = bench.head.slots[0].id.clone();
        let landing = bench.landings.get_mut(&id).unwrap();
        landing.trouble = trouble().map(|trouble| LandingTrouble { is_connection_removed: true, ..trouble });
        may_land(landing);
        bench.dequeue('A');
        bench.run();
        assert_eq!((bench.left.clone(), bench.arrivals.len()), (vec!["A DEQUEUED".to_owned()], 0));
        let LandingState::Ended { end: LandingEnd::Unproven { why }, .. } =
            &bench.landings[&id].state
        else {
            panic!("{:?}", bench.landings[&id].state)
        };
        assert!(
            why.starts_with(
                "an operator took it out: it hangs; it is unknown whether it was merged"
            ),
            "{why}"
        );
        assert!(why.contains("the connection github"), "{why}");
    }
}

/// R06, Z6.5: of a bundle nothing lands where its first landing is taken back; where one has
/// landed, the others are not given up.
#[test]
fn a_bundle_is_taken_back_as_a_whole_or_not_at_all() {
    let cycle = || {
        let mut bench = Bench::gate(&["unit"]);
        bench.approve_cycle("AB", "");
        bench.run();
        bench.pass("AB");
        bench.run();
        bench
    };
    let troubled = |bench: &mut Bench| {
        let wanted =
            bench.landings.values_mut().filter(|landing| landing.state == LandingState::Ordered);
        wanted.for_each(|landing| landing.trouble = trouble());
    };
    let mut bench = cycle();
    troubled(&mut bench);
    bench.dequeue('B');
    bench.run();
    assert_eq!(bench.left, ["A DEQUEUED", "B DEQUEUED"]);
    assert!(
        bench.landings.values().all(|landing| matches!(landing.state, LandingState::Ended { .. }))
    );
    let mut half = cycle();
    half.land();
    half.run();
    troubled(&mut half);
    half.dequeue('B');
    assert_snapshot!(half.run(), @"");
    assert_eq!((half.left.len(), half.arrivals.len()), (0, 1));
}

/// G12, Z6.4: what took a change out while it was landing is heard where it does not land.
#[test]
fn a_change_that_loses_its_approval_while_it_lands_leaves_if_its_branch_has_moved() {
    let mut bench = passed("AB");
    bench.seen(
        'A',
        Some("This change is unable to merge due to a missing merge requirement: a review."),
    );
    assert_snapshot!(bench.run(), @"");
    assert_eq!(bench.arrivals.len(), 1, "it waits for the landing's end");
    bench.tips.insert("one".to_owned(), "0x".to_owned());
    bench.finish();
    assert_eq!(bench.left, ["A DEQUEUED", "B SUCCESS"]);
    assert_eq!(bench.landed, ["0xB"], "nothing unapproved landed");
    assert!(bench.arrivals.is_empty());
}

/// G12, Z6.5: so does a bundle one of which lost its approval before any of it was in its branch.
#[test]
fn a_bundle_leaves_that_loses_an_approval_while_it_lands_and_is_not_merged() {
    let mut bench = Bench::gate(&["unit"]);
    bench.approve_cycle("AB", "");
    bench.run();
    bench.pass("AB");
    bench.run();
    bench.seen('B', Some("it is not approved"));
    bench.tips.insert("one".to_owned(), "0x".to_owned());
    bench.finish();
    assert_eq!((bench.left.len(), bench.landed.len()), (2, 0), "{:?}", bench.left);
    assert!(bench.head.slots.is_empty() && bench.arrivals.is_empty());
}

/// G12, C03: what has to wait for a landing holds up no news of other changes, or they would land
/// meanwhile.
#[test]
fn a_change_that_loses_its_approval_does_not_land_because_news_of_another_one_waits() {
    let mut bench = passed("AB");
    bench.revise('A');
    bench.approve("A");
    bench.seen('B', Some("it is not approved"));
    bench.land();
    bench.run();
    assert_eq!(bench.left, ["B DEQUEUED", "A SUCCESS"]);
    assert_eq!((bench.landings.len(), bench.arrivals.len()), (1, 0));
}

/// Z6.4: what enters keeps its order: nothing passes by what has to wait for a landing.
#[test]
fn what_is_enqueued_behind_a_revision_that_waits_for_a_landing_waits_with_it() {
    let mut bench = passed("A");
    bench.revise('A');
    bench.approve("AC");
    assert_snapshot!(bench.run(), @"");
    assert_eq!((bench.head.slots.len(), bench.arrivals.len()), (1, 2));
    bench.finish();
    assert_eq!(bench.landed, ["0A", "0AC"]);
    assert!(bench.arrivals.is_empty());
}

/// Z6.5: where changes do not stand behind what they need, whoever lands them has to see that it is
/// merged; then they are tested on their branch alone.
#[test]
fn outside_a_dependent_pipeline_nothing_that_a_change_needs_counts_as_landed() {
    for (manager, needs) in
        [(Manager::Dependent, 1), (Manager::Independent, 0), (Manager::Serial, 0)]
    {
        let mut bench = Bench::new(manager, &["unit"]);
        bench.pipeline.reporters.success = Bench::gate(&[]).pipeline.reporters.success;
        if manager == Manager::Dependent {
            bench.approve("B");
        }
        bench.approve_needing('A', "B");
        bench.run();
        bench.pass("AB");
        bench.run();
        if manager == Manager::Dependent {
            bench.land();
            bench.run();
        }
        let landing =
            bench.landings.values().find(|landing| landing.change == bench.change('A')).unwrap();
        assert_eq!(landing.needs.len(), needs, "{manager:?}");
        if needs == 0 {
            // B was merged into something that was changed before, so that A's tests say nothing of
            // it.
            bench.tips.insert("one".to_owned(), "0yB".to_owned());
            bench.finish();
            assert_eq!(bench.landed, ["0yBA"], "{manager:?}");
        }
    }
}

/// Z6.5: a forge that is read a moment later need not show yet what landed here.
#[test]
fn what_a_change_needs_and_what_landed_before_it_in_a_serial_pipeline_counts_as_landed() {
    let mut bench = Bench::new(Manager::Serial, &["unit"]);
    bench.pipeline.reporters.success = Bench::gate(&[]).pipeline.reporters.success;
    bench.approve("B");
    bench.approve_needing('A', "B");
    bench.finish();
    let landing =
        bench.landings.values().find(|landing| landing.change == bench.change('A')).unwrap();
    assert_eq!(landing.needs, [bench.change('B').key]);
    assert_eq!(bench.landed, ["0B", "0BA"]);
}

/// Z6.4: a forge tells of a change that its own landing merged as of one that somebody else merged.
#[test]
fn what_a_forge_tells_of_a_landing_itself_is_heard_in_vain() {
    let mut bench = passed("AB");
    bench.seen('A', Some("the change was merged by somebody else"));
    assert_snapshot!(bench.run(), @"");
    bench.finish();
    assert_eq!(bench.left, ["A SUCCESS", "B SUCCESS"]);
    assert!(bench.arrivals.is_empty());
}

/// Z6.4, Z6.5: a landing that finds its change merged by somebody else is the first to tell its
/// queue, whose news may be lost.
#[test]
fn what_a_landing_finds_merged_by_somebody_else_leaves_and_what_needs_it_stays() {
    let elsewhere =
        || LandingEnd::MergedElsewhere { tip: Commit { id: "abc".into(), tree: "0x".into() } };
    let mut bench = Bench::gate(&["unit"]);
    bench.approve("A");
    bench.approve_needing('B', "A");
    bench.approve("C");
    bench.run();
    bench.pass("ABC");
    bench.run();
    bench.tips.insert("one".to_owned(), "0x".to_owned());
    bench.end_landing(elsewhere());
    assert_snapshot!(bench.run(), @r"
    A leaves: DEQUEUED
    run B unit on 0xB
    run C unit on 0xBC
    ");
    bench.finish();
    assert_eq!(bench.left, ["A DEQUEUED", "B SUCCESS", "C SUCCESS"]);
    assert_eq!(bench.landed, ["0xB", "0xBC"]);
}

/// C01: while a layout is settling nothing enters and nothing lands.
#[test]
fn a_landed_configuration_holds_everything_until_it_is_live() {
    let mut bench = Bench::gate(&["unit"]);
    bench.configuring.insert('A');
    bench.approve("AB");
    bench.run();
    bench.pass("AB");
    assert_snapshot!(bench.run(), @r"
    land A as 0A
    want a layout
    ");
    bench.land();
    assert_snapshot!(bench.run(), @"A leaves: SUCCESS");
    bench.approve("C");
    assert_snapshot!(bench.run(), @"");
    assert_eq!(bench.head.slots.len(), 1);
    bench.layout.live = bench.layout.wanted;
    assert_snapshot!(bench.run(), @r"
    land B as 0AB
    run C unit on 0ABC
    ");
    assert_eq!(bench.orders.len(), 3, "B's build was spared");
}

/// R01
#[test]
fn a_new_layout_keeps_builds_whose_job_is_the_same_and_stops_the_others() {
    let mut bench = Bench::gate(&["same", "other", "gone"]);
    bench.approve("A");
    bench.run();
    bench.jobs[1].hash = "other-2".to_owned();
    bench.jobs.remove(2);
    bench.layout.wanted = 2;
    bench.run();
    bench.layout.live = 2;
    assert_snapshot!(bench.run(), @r"
    stop A gone
    stop A other
    run A other on 0A
    ");
    bench.finish();
    assert_eq!(bench.landed, ["0A"]);
    assert_eq!(bench.orders.len(), 4);
}

/// R01, Z6.4: a build that tested another tree is not kept, whatever its job's hash.
#[test]
fn a_new_layout_on_a_moved_branch_tests_everything_again() {
    let mut bench = Bench::gate(&["unit"]);
    bench.approve("AB");
    bench.run();
    bench.tips.insert("one".to_owned(), "0x".to_owned());
    (bench.layout.wanted, bench.layout.live) = (2, 2);
    assert_snapshot!(bench.run(), @r"
    stop A unit
    stop B unit
    run A unit on 0xA
    run B unit on 0xAB
    ");
    bench.finish();
    assert_eq!(bench.landed, ["0xA", "0xAB"]);
}

/// Z6.4: what is told while a change lands is heard after it; by then there is nothing left to
/// merge.
#[test]
fn a_revision_uploaded_while_its_change_lands_is_not_enqueued_again() {
    let mut bench = passed("A");
    bench.revise('A');
    bench.seen('A', None);
    bench.approve("A");
    bench.finish();
    assert_eq!(bench.landed, ["0A"]);
    assert!(bench.head.slots.is_empty() && bench.arrivals.is_empty());
}

/// Z6.4, G14: a push merges the revision that it brings alone: another one that was uploaded
/// meanwhile is open still, and is gated.
#[test]
fn a_revision_uploaded_while_a_push_lands_the_one_before_enters() {
    for (is_kept, is_revised) in [(true, true), (true, false), (false, true)] {
        let mut bench = Bench::gate(&["unit"]);
        bench.kept = is_kept;
        bench.approve("A");
        bench.run();
        bench.pass("A");
        bench.run();
        if is_revised {
            bench.revise('A');
        }
        bench.seen('A', None);
        bench.approve("A");
        bench.land();
        bench.run();
        bench.approve("A");
        bench.run();
        assert_eq!(bench.left, ["A SUCCESS"]);
        let enters = usize::from(is_kept && is_revised);
        assert_eq!(
            (bench.head.slots.len(), bench.arrivals.len()),
            (enters, 0),
            "{is_kept} {is_revised}"
        );
        assert!(bench.head.slots.iter().all(|slot| slot.change == bench.change('A')));
        assert_eq!(bench.orders.len(), 1 + enters);
    }
}

/// D08: what depends on the newer revision of a change that a push landed waits for that one, and
/// leaves with it.
#[test]
fn what_needs_a_revision_that_fails_does_not_land_by_the_one_that_a_push_landed_before() {
    let mut bench = Bench::gate(&["unit"]);
    bench.kept = true;
    bench.approve("A");
    bench.run();
    bench.pass("A");
    bench.run();
    bench.revise('A');
    bench.land();
    bench.run();
    assert_eq!(bench.left, ["A SUCCESS"]);
    // Without the newer revision there is nothing that it could stand behind.
    bench.approve_needing('B', "A");
    bench.run();
    assert_eq!(bench.head.slots.len(), 0);
    bench.approve("A");
    bench.approve_needing('B', "A");
    bench.run();
    assert_eq!(bench.head.slots.len(), 2);
    bench.end('A', "unit", Failure);
    bench.run();
    bench.pass("B");
    bench.run();
    assert_eq!(bench.left, ["A SUCCESS", "A FAILURE", "B FAILURE"]);
    assert_eq!(bench.head.slots.len(), 0);
}

/// Changes that passed behind each other, and whose tested commits are kept.
fn passed_and_kept(changes: &str) -> Bench {
    let mut bench = Bench::gate(&["unit"]);
    bench.kept = true;
    bench.approve(changes);
    bench.run();
    bench.pass(changes);
    bench
}

/// Z6.4: one move of a branch lands a run of what passed; each is ordered, and leaves, by itself.
#[test]
fn what_passed_behind_a_landing_is_ordered_with_it_where_its_branch_can_be_moved() {
    let mut bench = passed_and_kept("ABC");
    assert_snapshot!(bench.run(), @r"
    land A as 0A
    land B as 0AB
    land C as 0ABC
    ");
    let behind: Vec<usize> =
        bench.head.slots.iter().map(|slot| bench.landings[&slot.id].followers.len()).collect();
    assert_eq!(behind, [2, 0, 0], "the first names the others");
    assert!(bench.landings.values().all(|landing| landing.method == LandingMethod::FastForward));
    assert!(bench.head.slots.iter().all(|slot| slot.status == SlotStatus::Landing));
    bench.finish();
    assert_eq!(bench.landed, ["0A", "0AB", "0ABC"]);
    assert_eq!(bench.left, ["A SUCCESS", "B SUCCESS", "C SUCCESS"]);
}

/// Z6.4: a run ends where something has not passed yet, and what passes later lands later.
#[test]
fn a_run_ends_where_something_has_not_passed() {
    let mut bench = Bench::gate(&["unit"]);
    bench.kept = true;
    bench.approve("ABCD");
    bench.run();
    bench.pass("ABD");
    assert_snapshot!(bench.run(), @r"
    land A as 0A
    land B as 0AB
    ");
    bench.finish();
    assert_eq!(bench.landed, ["0A", "0AB", "0ABC", "0ABCD"]);
}

/// C01, Z6.4: configuration lands by itself, for what is behind it is tested anew under what it
/// brings.
#[test]
fn configuration_is_no_part_of_a_run() {
    let mut bench = Bench::gate(&["unit"]);
    bench.kept = true;
    bench.configuring.insert('B');
    bench.approve("ABC");
    bench.run();
    bench.pass("ABC");
    assert_snapshot!(bench.run(), @"land A as 0A");
}

/// Z6.4: nothing of a run lands on a branch that moved, and all of it is tested again.
#[test]
fn a_branch_that_moved_has_a_whole_run_tested_again() {
    let mut bench = passed_and_kept("ABC");
    bench.run();
    bench.tips.insert("one".to_owned(), "0x".to_owned());
    bench.finish();
    assert_eq!(bench.landed, ["0xA", "0xAB", "0xABC"]);
    assert_eq!(bench.left, ["A SUCCESS", "B SUCCESS", "C SUCCESS"]);
}

/// R06, Z6.4: whichever of a run an operator takes back, what is ahead of it lands as it was
/// tested, and what is behind it is tested without.
#[test]
fn a_run_goes_on_without_what_is_taken_back() {
    let rows = [
        ('A', ["0B", "0BC"], ["B", "C"]),
        ('B', ["0A", "0AC"], ["A", "C"]),
        ('C', ["0A", "0AB"], ["A", "B"]),
    ];
    for (taken_back, landed, left) in rows {
        let mut bench = passed_and_kept("ABC");
        bench.run();
        for landing in bench.landings.values_mut() {
            landing.trouble = trouble();
        }
        bench.dequeue(taken_back);
        bench.run();
        assert_eq!(bench.left, [format!("{taken_back} DEQUEUED")]);
        bench.finish();
        assert_eq!(bench.landed, landed);
        assert_eq!(bench.left[1..], left.map(|change| format!("{change} SUCCESS")));
        assert!(bench.turns.values().all(|seen| seen.lock.holder.is_none()), "the branch is free");
    }
}

/// G15, Z6.4: what was to land behind a change that its forge refuses is tested without it.
#[test]
fn a_run_goes_on_without_what_is_refused() {
    let mut bench = passed_and_kept("ABC");
    bench.run();
    bench.end_landing(LandingEnd::Refused { why: "the change was closed".to_owned() });
    bench.finish();
    assert_eq!(bench.landed, ["0B", "0BC"]);
    assert_eq!(bench.left, ["A MERGE_FAILURE", "B SUCCESS", "C SUCCESS"]);
}

/// Z6.4: a follower that its forge refuses leaves, though what is ahead of it has not landed yet.
#[test]
fn what_is_refused_behind_a_landing_leaves_and_holds_up_nothing() {
    let mut bench = passed_and_kept("ABC");
    bench.run();
    let second = bench.head.slots[1].id.clone();
    let (end, at) = (LandingEnd::Refused { why: "the change was closed".to_owned() }, bench.now);
    bench.landings.get_mut(&second).unwrap().state = LandingState::Ended { end, at };
    bench.finish();
    assert_eq!(bench.landed, ["0A", "0AC"]);
    assert_eq!(bench.left, ["B MERGE_FAILURE", "A SUCCESS", "C SUCCESS"]);
}
