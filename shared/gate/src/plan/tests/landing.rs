//! Landings: what is merged is what was tested, and what happens if it cannot be; layouts that
//! change meanwhile.

use super::bench::Bench;
use crate::landing::{Attempt, Landing, LandingEnd, LandingState, LandingTrouble};
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
fn after_a_branch_moved_everything_is_tested_again() {
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

/// Z6.5: without a push, the branch proves that the previous change was merged, even if the forge
/// still shows it as open.
#[test]
fn a_landing_right_behind_its_dependency_does_not_ask_the_forge() {
    let mut bench = Bench::gate(&["unit"]);
    bench.keeps_tested_commits = true;
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

/// Z6.4: a merged tree that cannot be read proves nothing; an operator's command makes it count as
/// merged.
#[test]
fn an_unreadable_merged_tree_halts_the_queue_until_it_is_resumed() {
    let mut bench = passed("AB");
    bench.tips.insert("one".to_owned(), "0A".to_owned());
    bench.end_landing(LandingEnd::Unproven {
        why: format!("could not read commit abc{}", "!".repeat(1_000)),
    });
    assert_snapshot!(bench.run(), @"");
    let why = bench.head.halted.clone().unwrap_or_default();
    assert!(
        why.contains("could not read commit abc")
            && why.contains("run `sluice queue resume`")
            && why.len() < 800,
        "{why}"
    );
    bench.resume();
    bench.run();
    assert_eq!(
        (bench.left.as_slice(), bench.head.landed.len()),
        (&["A MERGE_FAILURE".to_owned()][..], 1)
    );
    bench.finish();
    assert_eq!(bench.landed, ["0AB"]);
}

/// R03: when a pipeline is removed its changes leave without a report; landings are completed.
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
    assert_eq!((bench.landed.as_slice(), bench.head.slots().count()), (&["0A".to_owned()][..], 0));
    assert_eq!(bench.comments().len(), said, "nothing is reported");
}

/// G15
#[test]
fn a_refused_landing_is_reported_and_entries_behind_are_tested_without_it() {
    let mut bench = passed("AB");
    bench.end_landing(LandingEnd::Refused { why: "a review by an owner is missing".to_owned() });
    assert_snapshot!(bench.run(), @r"
    A leaves: MERGE_FAILURE
    run B unit on 0B
    ");
    assert!(bench.comments()[0].contains("a review by an owner is missing"));
}

/// Z6.4: only the end of a landing decides about its change.
#[test]
fn nothing_takes_a_change_out_while_it_lands() {
    let mut bench = passed("AB");
    bench.update('A', Some("the change was closed"));
    bench.revise('A');
    bench.approve("A");
    bench.dequeue('A');
    assert_snapshot!(bench.run(), @"");
    assert_eq!(bench.head.entries[0].first().status, SlotStatus::Landing);
    bench.land();
    bench.run();
    assert_eq!((bench.left[0].as_str(), bench.inbox.len()), ("A SUCCESS", 0));
}

fn trouble() -> Option<LandingTrouble> {
    Some(LandingTrouble {
        since: Timestamp(1),
        why: "the forge is silent".to_owned(),
        is_connection_removed: false,
    })
}

/// R06: an operator may dequeue a change whose landing cannot be carried out and was not started.
#[test]
fn an_operator_cancels_a_landing_that_cannot_be_carried_out() {
    let mut bench = passed("AB");
    let id = bench.head.entries[0].first().id.clone();
    bench.dequeue('A');
    assert_snapshot!(bench.run(), @"");
    assert_eq!(
        (bench.head.entries[0].first().status, bench.inbox.len()),
        (SlotStatus::Landing, 1),
        "it may land any moment"
    );
    bench.landings.get_mut(&id).unwrap().trouble = trouble();
    bench.run();
    assert_eq!((bench.left.clone(), bench.inbox.len()), (vec!["A DEQUEUED".to_owned()], 0));
    let LandingState::Ended { end: LandingEnd::Refused { why }, .. } = &bench.landings[&id].state
    else {
        panic!("{:?}", bench.landings[&id].state)
    };
    assert_eq!(why, "an operator dequeued it: it hangs");
    assert!(
        bench.branch_locks.values().all(|seen| seen.lock.holder.is_none()),
        "its branch is free"
    );
    bench.finish();
    assert_eq!(bench.landed, ["0B"]);
}

/// R06, Z6.4: a landing that was started, or that may have pushed, cannot be cancelled.
#[test]
fn a_landing_that_may_have_merged_is_not_cancelled() {
    let begun = |landing: &mut Landing| {
        landing.state =
            LandingState::Merging(Attempt { tip: landing.base.clone(), in_flight_until: None })
    };
    let pushed = |landing: &mut Landing| landing.has_unanswered_push = true;
    for may_land in [&begun as &dyn Fn(&mut Landing), &pushed] {
        let mut bench = passed("AB");
        let landing = bench.landings.values_mut().next().unwrap();
        landing.trouble = trouble();
        may_land(landing);
        bench.dequeue('A');
        assert_eq!(bench.run(), "");
        assert_eq!(
            (bench.head.entries[0].first().status, bench.inbox.len()),
            (SlotStatus::Landing, 1)
        );
    }
}

/// R06, Z6.4: if the connection was removed, an operator ends that too; whether the change was
/// merged stays unknown.
#[test]
fn a_landing_without_a_connection_is_cancelled_although_it_may_have_merged() {
    let begun = |landing: &mut Landing| {
        landing.state =
            LandingState::Merging(Attempt { tip: landing.base.clone(), in_flight_until: None })
    };
    let pushed = |landing: &mut Landing| landing.has_unanswered_push = true;
    for may_land in [&begun as &dyn Fn(&mut Landing), &pushed] {
        let mut bench = passed("AB");
        let id = bench.head.entries[0].first().id.clone();
        let landing = bench.landings.get_mut(&id).unwrap();
        landing.trouble =
            trouble().map(|trouble| LandingTrouble { is_connection_removed: true, ..trouble });
        may_land(landing);
        bench.dequeue('A');
        bench.run();
        assert_eq!((bench.left.clone(), bench.inbox.len()), (vec!["A DEQUEUED".to_owned()], 0));
        let LandingState::Ended { end: LandingEnd::Unproven { why }, .. } =
            &bench.landings[&id].state
        else {
            panic!("{:?}", bench.landings[&id].state)
        };
        assert!(
            why.starts_with(
                "an operator dequeued it: it hangs; it is unknown whether it was merged"
            ),
            "{why}"
        );
        assert!(why.contains("the connection github"), "{why}");
    }
}

/// R06, Z6.5: cancelling the first landing of a bundle cancels all; after the first is merged, the
/// others cannot be cancelled.
#[test]
fn a_bundle_is_taken_back_as_a_whole_or_not_at_all() {
    let cycle = || {
        let mut bench = Bench::gate(&["unit"]);
        bench.approve_bundle("AB", "");
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
    assert_eq!((half.left.len(), half.inbox.len()), (0, 1));
}

/// G12, Z6.4: an update that arrives during a landing is applied if the landing fails.
#[test]
fn a_change_that_loses_its_approval_while_it_lands_leaves_if_its_branch_has_moved() {
    let mut bench = passed("AB");
    bench.update(
        'A',
        Some("This change is unable to merge due to a missing merge requirement: a review."),
    );
    assert_snapshot!(bench.run(), @"");
    assert_eq!(bench.inbox.len(), 1, "it waits for the landing's end");
    bench.tips.insert("one".to_owned(), "0x".to_owned());
    bench.finish();
    assert_eq!(bench.left, ["A DEQUEUED", "B SUCCESS"]);
    assert_eq!(bench.landed, ["0xB"], "nothing unapproved landed");
    assert!(bench.inbox.is_empty());
}

/// G12, Z6.5: so is one for a bundle of which no member was merged.
#[test]
fn a_bundle_leaves_that_loses_an_approval_while_it_lands_and_is_not_merged() {
    let mut bench = Bench::gate(&["unit"]);
    bench.approve_bundle("AB", "");
    bench.run();
    bench.pass("AB");
    bench.run();
    bench.update('B', Some("it is not approved"));
    bench.tips.insert("one".to_owned(), "0x".to_owned());
    bench.finish();
    assert_eq!((bench.left.len(), bench.landed.len()), (2, 0), "{:?}", bench.left);
    assert!(bench.head.entries.is_empty() && bench.inbox.is_empty());
}

/// G12, C03: a message that waits for a landing does not delay updates of other changes, which
/// would be merged meanwhile.
#[test]
fn a_waiting_message_does_not_delay_the_update_of_another_change() {
    let mut bench = passed("AB");
    bench.revise('A');
    bench.approve("A");
    bench.update('B', Some("it is not approved"));
    bench.land();
    bench.run();
    assert_eq!(bench.left, ["B DEQUEUED", "A SUCCESS"]);
    assert_eq!((bench.landings.len(), bench.inbox.len()), (1, 0));
}

/// Z6.4: enqueue messages keep their order: none overtakes one that waits for a landing.
#[test]
fn enqueue_messages_do_not_overtake_one_that_waits_for_a_landing() {
    let mut bench = passed("A");
    bench.revise('A');
    bench.approve("AC");
    assert_snapshot!(bench.run(), @"");
    assert_eq!((bench.head.slots().count(), bench.inbox.len()), (1, 2));
    bench.finish();
    assert_eq!(bench.landed, ["0A", "0AC"]);
    assert!(bench.inbox.is_empty());
}

/// Z6.5: outside dependent pipelines the reporter checks that dependencies are merged; then the
/// change is tested on its branch alone.
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
            // B was merged onto another state, so A's tests say nothing about it.
            bench.tips.insert("one".to_owned(), "0yB".to_owned());
            bench.finish();
            assert_eq!(bench.landed, ["0yBA"], "{manager:?}");
        }
    }
}

/// Z6.5: the forge need not show at once what was just merged here.
#[test]
fn a_dependency_merged_before_in_a_serial_pipeline_counts_as_merged() {
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

/// Z6.4: the forge reports a change merged by its own landing as merged by someone else.
#[test]
fn a_forges_report_of_our_own_landing_changes_nothing() {
    let mut bench = passed("AB");
    bench.update('A', Some("the change was merged outside this queue"));
    assert_snapshot!(bench.run(), @"");
    bench.finish();
    assert_eq!(bench.left, ["A SUCCESS", "B SUCCESS"]);
    assert!(bench.inbox.is_empty());
}

/// Z6.4, Z6.5: a landing that finds its change merged by someone else reaches the queue first; the
/// update may be lost.
#[test]
fn a_change_found_merged_by_someone_else_leaves_and_its_dependents_stay() {
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

/// C01: while a layout is pending nothing is enqueued and nothing is merged.
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
    assert_eq!(bench.head.slots().count(), 1);
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

/// R01, Z6.4: a build that tested another tree is not kept, even if its job is unchanged.
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

/// Z6.4: an update that arrives during a landing is applied after it; the change has left by then.
#[test]
fn a_revision_uploaded_while_its_change_lands_is_not_enqueued_again() {
    let mut bench = passed("A");
    bench.revise('A');
    bench.update('A', None);
    bench.approve("A");
    bench.finish();
    assert_eq!(bench.landed, ["0A"]);
    assert!(bench.head.entries.is_empty() && bench.inbox.is_empty());
}

/// Z6.4, G14: a push merges only its revision: a newer one is still open and is gated.
#[test]
fn a_revision_uploaded_while_a_push_lands_the_one_before_enters() {
    for (is_kept, is_revised) in [(true, true), (true, false), (false, true)] {
        let mut bench = Bench::gate(&["unit"]);
        bench.keeps_tested_commits = is_kept;
        bench.approve("A");
        bench.run();
        bench.pass("A");
        bench.run();
        if is_revised {
            bench.revise('A');
        }
        bench.update('A', None);
        bench.approve("A");
        bench.land();
        bench.run();
        bench.approve("A");
        bench.run();
        assert_eq!(bench.left, ["A SUCCESS"]);
        let enters = usize::from(is_kept && is_revised);
        assert_eq!(
            (bench.head.slots().count(), bench.inbox.len()),
            (enters, 0),
            "{is_kept} {is_revised}"
        );
        assert!(bench.head.slots().all(|slot| slot.change == bench.change('A')));
        assert_eq!(bench.orders.len(), 1 + enters);
    }
}

/// D08: a change that depends on the newer revision waits for it, and leaves with it.
#[test]
fn dependents_of_a_failing_newer_revision_are_not_satisfied_by_the_pushed_one() {
    let mut bench = Bench::gate(&["unit"]);
    bench.keeps_tested_commits = true;
    bench.approve("A");
    bench.run();
    bench.pass("A");
    bench.run();
    bench.revise('A');
    bench.land();
    bench.run();
    assert_eq!(bench.left, ["A SUCCESS"]);
    // Without the newer revision the dependency is missing.
    bench.approve_needing('B', "A");
    bench.run();
    assert_eq!(bench.head.slots().count(), 0);
    bench.approve("A");
    bench.approve_needing('B', "A");
    bench.run();
    assert_eq!(bench.head.slots().count(), 2);
    bench.end('A', "unit", Failure);
    bench.run();
    bench.pass("B");
    bench.run();
    assert_eq!(bench.left, ["A SUCCESS", "A FAILURE", "B FAILURE"]);
    assert_eq!(bench.head.slots().count(), 0);
}

/// Returns changes that passed on top of each other, with kept commits.
fn passed_and_kept(changes: &str) -> Bench {
    let mut bench = Bench::gate(&["unit"]);
    bench.keeps_tested_commits = true;
    bench.approve(changes);
    bench.run();
    bench.pass(changes);
    bench
}

/// Z6.4: one move of the branch merges a run of passed changes; each is ordered and leaves
/// separately.
#[test]
fn passed_followers_are_ordered_with_a_landing_that_moves_the_branch() {
    let mut bench = passed_and_kept("ABC");
    assert_snapshot!(bench.run(), @r"
    land A as 0A
    land B as 0AB
    land C as 0ABC
    ");
    let behind: Vec<usize> =
        bench.head.slots().map(|slot| bench.landings[&slot.id].followers.len()).collect();
    assert_eq!(behind, [2, 0, 0], "the first names the others");
    assert!(bench.landings.values().all(|landing| landing.method == LandingMethod::FastForward));
    assert!(bench.head.slots().all(|slot| slot.status == SlotStatus::Landing));
    bench.finish();
    assert_eq!(bench.landed, ["0A", "0AB", "0ABC"]);
    assert_eq!(bench.left, ["A SUCCESS", "B SUCCESS", "C SUCCESS"]);
}

/// Z6.4: a run ends at an entry that has not passed, which is merged later.
#[test]
fn a_run_ends_where_something_has_not_passed() {
    let mut bench = Bench::gate(&["unit"]);
    bench.keeps_tested_commits = true;
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

/// C01, Z6.4: a configuration change is merged alone, since changes behind are tested again under
/// it.
#[test]
fn configuration_is_no_part_of_a_run() {
    let mut bench = Bench::gate(&["unit"]);
    bench.keeps_tested_commits = true;
    bench.configuring.insert('B');
    bench.approve("ABC");
    bench.run();
    bench.pass("ABC");
    assert_snapshot!(bench.run(), @"land A as 0A");
}

/// Z6.4: if the branch moved, nothing of a run is merged, and all is tested again.
#[test]
fn a_branch_that_moved_has_a_whole_run_tested_again() {
    let mut bench = passed_and_kept("ABC");
    bench.run();
    bench.tips.insert("one".to_owned(), "0x".to_owned());
    bench.finish();
    assert_eq!(bench.landed, ["0xA", "0xAB", "0xABC"]);
    assert_eq!(bench.left, ["A SUCCESS", "B SUCCESS", "C SUCCESS"]);
}

/// R06, Z6.4: if an operator cancels one of a run, those ahead are merged as tested, and those
/// behind are tested without it.
#[test]
fn a_run_goes_on_without_a_cancelled_change() {
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
        assert!(
            bench.branch_locks.values().all(|seen| seen.lock.holder.is_none()),
            "the branch is free"
        );
    }
}

/// G15, Z6.4: a follower of a refused change is tested without it.
#[test]
fn a_run_goes_on_without_a_refused_change() {
    let mut bench = passed_and_kept("ABC");
    bench.run();
    bench.end_landing(LandingEnd::Refused { why: "the change was closed".to_owned() });
    bench.finish();
    assert_eq!(bench.landed, ["0B", "0BC"]);
    assert_eq!(bench.left, ["A MERGE_FAILURE", "B SUCCESS", "C SUCCESS"]);
}

/// Z6.4: a refused follower leaves, although those ahead are not merged yet.
#[test]
fn a_refused_follower_leaves_and_holds_up_nothing() {
    let mut bench = passed_and_kept("ABC");
    bench.run();
    let second = bench.head.entries[1].first().id.clone();
    let (end, at) = (LandingEnd::Refused { why: "the change was closed".to_owned() }, bench.now);
    bench.landings.get_mut(&second).unwrap().state = LandingState::Ended { end, at };
    bench.finish();
    assert_eq!(bench.landed, ["0A", "0AC"]);
    assert_eq!(bench.left, ["B MERGE_FAILURE", "A SUCCESS", "C SUCCESS"]);
}
