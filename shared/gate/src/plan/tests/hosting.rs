//! Bundles of changes that each have their own queue: one of them is the host queue, and the others
//! record it (Z6.5, D10, D15).

use super::bench::{Bench, job};
use crate::inbox::InboxMessageKind;
use crate::plan::{LayoutNumbers, Residency};
use crate::queue::SlotStatus;
use insta::assert_snapshot;
use sluice_config::pipeline::Manager;
use sluice_model::build::BuildResult::Failure;
use sluice_model::job::{BuildSharing, JobSummary};
use sluice_model::{QueueName, Timestamp};

/// A's own queue, with the states of B's and C's own queues.
fn home() -> Bench {
    own_queue_of('A', "BC")
}

/// Returns the own queue of a change, with the states of the own queues of others.
fn own_queue_of(own: char, others: &str) -> Bench {
    let mut bench = Bench::new(Manager::Independent, &["unit"]);
    for change in "ABC".chars() {
        bench.queues.insert(change, change.to_string());
    }
    bench.head.key.queue = QueueName(own.to_string());
    for other in others.chars() {
        let key = bench.change(other).key;
        bench.residencies.insert(key, Residency::default());
    }
    bench
}

/// Returns the host queues recorded in the own queues of others.
fn said(bench: &Bench) -> String {
    let named = |(key, residency): (&sluice_model::change::ChangeKey, &Residency)| {
        let name = char::from_u32(key.number()? as u32)?;
        residency.hosted_in.as_ref().map(|queue| format!("{name} in {queue}"))
    };
    bench.residencies.iter().filter_map(named).collect::<Vec<_>>().join(", ")
}

/// Returns the messages sent to other queues.
fn sent(bench: &Bench) -> Vec<String> {
    let kind = |kind: &InboxMessageKind| match kind {
        InboxMessageKind::Enqueue { candidates } => {
            format!(
                "enqueue {}",
                candidates.iter().map(|one| one.title.clone()).collect::<String>()
            )
        }
        InboxMessageKind::ChangeUpdated { .. } => "seen".to_owned(),
        InboxMessageKind::Superseded { .. } => "superseded".to_owned(),
        InboxMessageKind::MoveToHost { to, .. } => format!("make way for {to}"),
        InboxMessageKind::Dequeue { .. } => "dequeue".to_owned(),
        InboxMessageKind::Promote { .. } => "promote".to_owned(),
        InboxMessageKind::Resume { .. } => "resume".to_owned(),
    };
    bench
        .forwards
        .iter()
        .map(|(queue, message)| format!("{}: {}", queue.queue, kind(&message.kind)))
        .collect()
}

fn makes_way(bench: &mut Bench, change: char, as_of: u64) {
    let (change, to) = (bench.change(change), QueueName("A".to_owned()));
    bench.deliver(InboxMessageKind::MoveToHost { change, as_of: Timestamp(as_of), to });
}

/// D10, D15: in check, too, members are tested on one state, share builds, and succeed together.
#[test]
fn a_bundle_is_tested_as_one_in_check() {
    let mut bench = home();
    bench.jobs = vec![JobSummary { sharing: BuildSharing::InBundle, ..job("common") }, job("unit")];
    bench.approve_bundle("AB", "");
    assert_snapshot!(bench.run(), @r"
    run A unit on 0A
    run A common on 0A
    run B unit on 0AB
    ");
    assert_eq!(said(&bench), "B in A");
    bench.finish();
    assert_eq!(
        (bench.left.join(", "), said(&bench)),
        ("A SUCCESS, B SUCCESS".to_owned(), String::new())
    );
}

/// D13: a failing member fails both.
#[test]
fn one_whose_job_fails_in_check_fails_those_that_need_it_and_are_needed_by_it() {
    let mut bench = home();
    bench.approve_bundle("AB", "");
    bench.run();
    bench.end('B', "unit", Failure);
    bench.finish();
    assert_eq!(bench.left, ["A FAILURE", "B FAILURE"]);
    let comments = bench.comments();
    let said = "part of a dependency cycle that failed. Failed changes: org/one#66.";
    assert!(comments.iter().all(|text| text.contains(said)), "{comments:?}");
}

/// Z6.5: a change is queued in one place: it leaves its own queue first.
#[test]
fn a_bundle_waits_until_no_member_is_queued_elsewhere() {
    let mut bench = home();
    let (b, queued) = (bench.change('B').key, (bench.change('B'), Timestamp(5)));
    bench.residencies.get_mut(&b).unwrap().revisions.push(queued);
    bench.approve_bundle("AB", "");
    bench.plan_once();
    assert_eq!(
        (sent(&bench), bench.head.slots().count()),
        (vec!["B: make way for A".to_owned()], 0)
    );
    let asked = bench.forwards[0].1.id.clone();
    bench.residencies.get_mut(&b).unwrap().release_requests.insert(asked);
    bench.plan_once();
    assert_eq!(sent(&bench).len(), 1, "it is asked once");
    bench
        .residencies
        .insert(b.clone(), Residency { hosted_in: Some("C".into()), ..Residency::default() });
    bench.plan_once();
    assert_eq!(
        sent(&bench),
        ["B: make way for A", "B: make way for A"],
        "nor is it hosted elsewhere"
    );
    bench.residencies.insert(b, Residency::default());
    bench.run();
    assert_eq!((bench.head.slots().count(), said(&bench)), (2, "B in A".to_owned()));
}

/// Z6.3, Z6.5: an outdated candidate does not dequeue a newer revision.
#[test]
fn those_of_which_one_is_known_as_something_newer_do_not_enter() {
    let mut bench = home();
    let mut candidates = bench.bundle("AB", "");
    candidates[1].as_of = Timestamp(4);
    let b = bench.change('B').key;
    bench.revise('B');
    bench.residencies.insert(
        b,
        Residency { revisions: vec![(bench.change('B'), Timestamp(5))], ..Residency::default() },
    );
    bench.deliver(InboxMessageKind::Enqueue { candidates });
    bench.run();
    assert_eq!((bench.inbox.len(), bench.head.slots().count(), sent(&bench).len()), (0, 0, 0));
}

/// Z6.5: a change's own queue releases it, without a report if the revision is the same, and wakes
/// the host queue.
#[test]
fn a_change_leaves_its_own_queue_for_the_host_queue() {
    let mut bench = own_queue_of('B', "A");
    bench.approve("B");
    bench.run();
    let report_count = bench.reports.len();
    makes_way(&mut bench, 'B', 0);
    assert_snapshot!(bench.run(), @r"
    stop B unit
    B leaves: DEQUEUED
    ");
    assert_eq!((bench.reports.len(), bench.woken[0].queue.0.as_str()), (report_count, "A"));
}

/// Z6.3: outdated messages dequeue nothing.
#[test]
fn a_newer_revision_is_not_released_for_an_older_one() {
    let mut bench = own_queue_of('B', "A");
    let old = bench.change('B');
    bench.revise('B');
    let candidates = vec![crate::Candidate { as_of: Timestamp(7), ..bench.candidate('B', "") }];
    bench.deliver(InboxMessageKind::Enqueue { candidates });
    bench.run();
    bench.deliver(InboxMessageKind::MoveToHost {
        change: old,
        as_of: Timestamp(6),
        to: "A".into(),
    });
    bench.run();
    assert_eq!((bench.head.slots().count(), bench.woken.len(), bench.inbox.len()), (1, 1, 0));
}

/// Z6.5: all messages about a hosted change reach its host queue, including commands.
#[test]
fn the_own_queue_of_a_hosted_change_forwards_everything() {
    let mut bench = own_queue_of('B', "");
    bench.head.hosted_in = Some("A".into());
    bench.approve("B");
    bench.update('B', None);
    bench.dequeue('B');
    makes_way(&mut bench, 'B', 0);
    bench.run();
    assert_eq!(sent(&bench), ["A: enqueue B", "A: seen", "A: dequeue", "A: make way for A"]);
    assert_eq!((bench.inbox.len(), bench.head.slots().count()), (0, 0));
}

/// Z6.5, R06: members leave together, and each own queue is free again.
#[test]
fn a_dequeued_hosted_change_takes_its_bundle_along() {
    let mut bench = home();
    bench.approve_bundle("AB", "");
    bench.run();
    bench.dequeue('B');
    bench.run();
    assert_eq!(
        (bench.left.join(", "), said(&bench)),
        ("A DEQUEUED, B DEQUEUED".to_owned(), String::new())
    );
    bench.dequeue('B');
    bench.update('B', None);
    bench.run();
    assert_eq!(sent(&bench), ["B: dequeue", "B: seen"], "what comes later is for its own queue");
}

/// Z6.5: a new revision of a member restarts the bundle.
#[test]
fn a_new_revision_of_a_hosted_change_replaces_the_old_one() {
    let mut bench = home();
    bench.approve_bundle("AB", "");
    bench.run();
    bench.revise('B');
    bench.approve_bundle("AB", "");
    bench.run();
    assert_eq!(
        (bench.left.join(", "), said(&bench)),
        ("A DEQUEUED, B DEQUEUED".to_owned(), "B in A".to_owned())
    );
    bench.approve_bundle("AB", "");
    bench.run();
    assert_eq!(bench.left.len(), 2, "offered once more they are there already");
}

/// Z6.5: members of a former bundle return to their own queues.
#[test]
fn a_change_returns_to_its_own_queue_when_its_bundle_ends() {
    let mut bench = home();
    bench.approve_bundle("AB", "");
    bench.run();
    bench.approve("B");
    bench.run();
    assert_eq!((bench.left.len(), sent(&bench)), (2, vec!["B: enqueue B".to_owned()]));
    assert_eq!(said(&bench), "");
    bench.approve_bundle("AB", "");
    bench.run();
    bench.approve("A");
    bench.run();
    let here: Vec<usize> = bench.head.entries.iter().map(|entry| entry.members.len()).collect();
    assert_eq!((here, said(&bench), bench.left.len()), (vec![1], String::new(), 4));
}

/// Z6.5: a bundle that grows may get another host queue, also by a change on which it was tested.
#[test]
fn a_growing_bundle_moves_to_its_new_host_queue() {
    for needs in ["", "A"] {
        let mut bench = own_queue_of('B', "AC");
        bench.approve_bundle("BC", needs);
        bench.run();
        assert_eq!(said(&bench), "C in B");
        bench.approve_bundle("ABC", "");
        bench.run();
        assert_eq!(
            (bench.left.join(", "), said(&bench)),
            ("B DEQUEUED, C DEQUEUED".to_owned(), String::new()),
            "{needs}"
        );
        assert_eq!(sent(&bench), ["A: enqueue ABC"]);
    }
}

/// Z6.5: two queues never forward a message to each other forever.
#[test]
fn a_stale_residency_is_repaired() {
    let mut bench = home();
    let b = bench.change('B').key;
    bench.residencies.insert(b, Residency { hosted_in: Some("A".into()), ..Residency::default() });
    bench.update('B', None);
    bench.run();
    assert_eq!((sent(&bench), said(&bench)), (vec!["B: seen".to_owned()], String::new()));
}

/// Z6.5: pipelines that merge separately form no bundles.
#[test]
fn they_part_where_the_pipeline_comes_to_land_changes() {
    let mut bench = home();
    bench.approve_bundle("AB", "");
    bench.run();
    bench.pipeline.reporters.success = Bench::gate(&[]).pipeline.reporters.success;
    bench.layout = LayoutNumbers { wanted: 2, live: 2 };
    bench.run();
    assert_eq!(
        (bench.left.join(", "), said(&bench)),
        ("A DEQUEUED, B DEQUEUED".to_owned(), String::new())
    );
    bench.approve_bundle("AB", "");
    bench.plan_once();
    assert_eq!(sent(&bench), ["A: enqueue A", "B: enqueue B"]);
}

/// Z6.5: the largest bundle fits into one plan.
#[test]
fn the_largest_bundle_comes_and_goes_in_one_plan() {
    let all = "ABCDEFGHIJ";
    let mut bench = own_queue_of('A', &all[1..]);
    for change in all.chars() {
        bench.queues.insert(change, change.to_string());
    }
    bench.approve_bundle(all, "");
    bench.run();
    assert_eq!(bench.head.slots().count(), 10);
    bench.finish();
    assert_eq!((bench.left.len(), said(&bench)), (10, String::new()));
    assert!(bench.most_records <= 100, "{}", bench.most_records);
}

/// G19, Z6.5: the supersessions of the largest bundle fit into one plan: each member notifies one
/// pipeline, which notifies the others.
#[test]
fn the_largest_bundle_has_room_to_supersede_other_pipelines() {
    let all = "ABCDEFGHIJ";
    let mut bench = own_queue_of('A', &all[1..]);
    for change in all.chars() {
        bench.queues.insert(change, change.to_string());
    }
    bench.pipeline.supersedes = vec!["p1".into(), "p2".into(), "p3".into(), "p4".into()];
    bench.approve_bundle(all, "");
    bench.run();
    let left = |kind: &InboxMessageKind| match kind {
        InboxMessageKind::Superseded { more, .. } => Some(more.len()),
        _ => None,
    };
    let left: Vec<usize> =
        bench.forwards.iter().filter_map(|(_, message)| left(&message.kind)).collect();
    assert_eq!((bench.head.slots().count(), left), (10, vec![3; 10]));
}

/// Z6.3, Z6.5: no member leaves its own queue for a bundle that is refused as outdated.
#[test]
fn no_member_is_released_for_an_outdated_bundle() {
    let mut bench = home();
    let mut older = bench.bundle("AB", "");
    older[0].as_of = Timestamp(3);
    bench.revise('A');
    let newest = crate::Candidate { as_of: Timestamp(5), ..bench.candidate('A', "") };
    bench.deliver(InboxMessageKind::Enqueue { candidates: vec![newest] });
    bench.run();
    let b = bench.change('B');
    bench.residencies.insert(
        b.key.clone(),
        Residency { revisions: vec![(b, Timestamp(1))], ..Residency::default() },
    );
    bench.deliver(InboxMessageKind::Enqueue { candidates: older });
    bench.run();
    let here = (bench.inbox.len(), bench.head.slots().count(), bench.left.len());
    assert_eq!((sent(&bench), here), (Vec::new(), (0, 1, 0)));
}

/// Z6.5: a change whose merge began under an older layout is released when its landing has ended.
#[test]
fn a_change_being_merged_is_released_when_its_landing_ends() {
    let mut bench = own_queue_of('B', "A");
    let tests_alone = bench.pipeline.reporters.success.clone();
    bench.pipeline.reporters.success = Bench::gate(&[]).pipeline.reporters.success;
    bench.approve("B");
    bench.run();
    bench.pass("B");
    bench.run();
    bench.pipeline.reporters.success = tests_alone;
    bench.layout = LayoutNumbers { wanted: 2, live: 2 };
    makes_way(&mut bench, 'B', 0);
    bench.run();
    let statuses: Vec<SlotStatus> = bench.head.slots().map(|slot| slot.status).collect();
    assert_eq!((statuses, bench.inbox.len()), (vec![SlotStatus::Landing], 1));
    assert!(bench.land());
    bench.run();
    assert_eq!((bench.left.join(", "), bench.inbox.len()), ("B SUCCESS".to_owned(), 0));
    assert!(bench.woken.iter().any(|queue| queue.queue.0 == "A"), "{:?}", bench.woken);
}

/// Z6.5: a queue removes only its own residency records.
#[test]
fn a_queue_removes_only_its_own_residencies() {
    let mut bench = home();
    bench.approve_bundle("AB", "");
    bench.run();
    let b = bench.change('B').key;
    bench.residencies.insert(b, Residency { hosted_in: Some("C".into()), ..Residency::default() });
    bench.dequeue('A');
    bench.run();
    assert_eq!((bench.left.len(), said(&bench)), (2, "B in C".to_owned()));
}

/// Z6.5: a late release request does not dequeue a change that is already in its host queue.
#[test]
fn a_late_release_request_dequeues_nothing_in_the_host_queue() {
    let mut bench = home();
    bench.approve_bundle("AB", "");
    bench.run();
    makes_way(&mut bench, 'B', 0);
    bench.run();
    assert_eq!((bench.head.slots().count(), bench.inbox.len(), bench.left.len()), (2, 0, 0));
}

/// Z6.1, Z6.5: an enqueue message for which releases were requested is not discarded, or the
/// released members would be lost. Later ones request no releases.
#[test]
fn a_message_that_requested_releases_is_not_discarded() {
    let mut bench = home();
    let b = bench.change('B').key;
    let queued = (bench.change('B'), Timestamp(5));
    bench.residencies.get_mut(&b).unwrap().revisions.push(queued);
    bench.approve_bundle("AB", "");
    bench.plan_once();
    assert_eq!(sent(&bench), ["B: make way for A"]);
    bench.hold.discard_triggers = true;
    bench.approve_bundle("AB", "");
    bench.plan_once();
    let taken_up: Vec<bool> = bench.inbox.iter().map(|message| message.in_progress).collect();
    assert_eq!(taken_up, [true], "the other one is dropped");
    bench.residencies.insert(b, Residency::default());
    bench.run();
    assert_eq!(
        (bench.inbox.len(), bench.head.slots().count(), said(&bench)),
        (0, 2, "B in A".to_owned())
    );
}

/// Z6.1, Z6.5: an enqueue message for which something was dequeued is not discarded after
/// forwarding.
#[test]
fn an_offer_that_something_left_for_says_so_where_it_is_sent() {
    let mut bench = home();
    bench.approve("B");
    bench.run();
    bench.approve_bundle("AB", "");
    bench.run();
    bench.approve("B");
    bench.run();
    let taken_up: Vec<bool> =
        bench.forwards.iter().map(|(_, message)| message.in_progress).collect();
    assert_eq!((sent(&bench), taken_up), (vec!["B: enqueue B".to_owned(); 2], vec![false, true]));
}

/// Z6.5, Z7.3: while a member's own queue cannot be read, no member is released for the bundle.
/// Other work in the host queue goes on, and the bundle is enqueued after the repair.
#[test]
fn a_bundle_waits_until_all_own_queues_can_be_read() {
    let mut bench = own_queue_of('A', "BC");
    bench.approve("A");
    bench.run();
    let (b, c) = (bench.change('B'), bench.change('C'));
    let unreadable = Some("its record says nothing".to_owned());
    bench
        .residencies
        .insert(b.key.clone(), Residency { read_error: unreadable, ..Residency::default() });
    bench.residencies.insert(
        c.key.clone(),
        Residency { revisions: vec![(c.clone(), Timestamp(1))], ..Residency::default() },
    );
    bench.approve_bundle("ABC", "");
    bench.run();
    assert_eq!((sent(&bench), bench.inbox.len(), bench.head.slots().count()), (Vec::new(), 1, 1));
    bench.finish();
    assert_eq!(
        (bench.left.join(", "), bench.inbox.len()),
        ("A SUCCESS".to_owned(), 1),
        "the queued entries go on"
    );
    bench.dequeue('C');
    bench.run();
    assert_eq!(sent(&bench), ["C: dequeue"], "the command is forwarded");
    for change in [b, c] {
        bench.residencies.insert(change.key, Residency::default());
    }
    bench.run();
    assert_eq!((bench.inbox.len(), said(&bench)), (0, "B in A, C in A".to_owned()));
}

/// Z6.5, Z7.3: a bundle is tested and leaves although a member's own queue cannot be read. Its
/// stale residency is removed with the next message after the repair.
#[test]
fn a_bundle_leaves_although_an_own_queue_cannot_be_read() {
    let mut bench = home();
    bench.approve_bundle("AB", "");
    bench.run();
    let b = bench.change('B').key;
    let unreadable = Some("its record says nothing".to_owned());
    bench
        .residencies
        .insert(b.clone(), Residency { read_error: unreadable, ..Residency::default() });
    bench.finish();
    assert_eq!(bench.left, ["A SUCCESS", "B SUCCESS"]);
    bench.residencies.insert(b, Residency { hosted_in: Some("A".into()), ..Residency::default() });
    bench.update('B', None);
    bench.run();
    assert_eq!((sent(&bench), said(&bench)), (vec!["B: seen".to_owned()], String::new()));
}
