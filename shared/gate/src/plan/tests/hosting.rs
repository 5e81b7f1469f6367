//! Changes that need each other where each has a queue of its own: they stand as one in that of the
//! first, and the others' own queues say so (Z6.5, D10, D15).

use super::bench::{Bench, job};
use crate::inbox::InboxMessageKind;
use crate::plan::{Residency, LayoutNumbers};
use crate::queue::SlotStatus;
use insta::assert_snapshot;
use sluice_config::pipeline::Manager;
use sluice_model::build::BuildResult::Failure;
use sluice_model::job::{JobSummary, BuildSharing};
use sluice_model::{QueueName, Timestamp};

/// A's own queue, of which B's and C's are known.
fn home() -> Bench {
    own_queue_of('A', "BC")
}

/// The own queue of a change, and those of others that it is told of.
fn own_queue_of(own: char, others: &str) -> Bench {
    let mut bench = Bench::new(Manager::Independent, &["unit"]);
    for change in "ABC".chars() {
        bench.queues.insert(change, change.to_string());
    }
    bench.head.key.queue = QueueName(own.to_string());
    for other in others.chars() {
        let key = bench.change(other).key;
        bench.doors.insert(key, Residency::default());
    }
    bench
}

/// Returns where the own queues of others say that their changes stand.
fn said(bench: &Bench) -> String {
    let named = |(key, door): (&sluice_model::change::ChangeKey, &Residency)| {
        let name = char::from_u32(key.number()? as u32)?;
        door.hosted_in.as_ref().map(|queue| format!("{name} in {queue}"))
    };
    bench.doors.iter().filter_map(named).collect::<Vec<_>>().join(", ")
}

/// Returns what was sent to other queues.
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
        InboxMessageKind::Resume { .. } => "thaw".to_owned(),
    };
    bench
        .forwards
        .iter()
        .map(|(queue, arrival)| format!("{}: {}", queue.queue, kind(&arrival.kind)))
        .collect()
}

fn makes_way(bench: &mut Bench, change: char, as_of: u64) {
    let (change, to) = (bench.change(change), QueueName("A".to_owned()));
    bench.arrive(InboxMessageKind::MoveToHost { change, as_of: Timestamp(as_of), to });
}

/// D10, D15: in check, too, they are tested on one state, a job that both run alike runs once, and
/// both succeed together.
#[test]
fn changes_that_need_each_other_are_tested_as_one_in_check() {
    let mut bench = home();
    bench.jobs = vec![JobSummary { sharing: BuildSharing::InBundle, ..job("common") }, job("unit")];
    bench.approve_cycle("AB", "");
    assert_snapshot!(bench.run(), @r"
    run A common on 0A
    run A unit on 0A
    run B unit on 0AB
    ");
    assert_eq!(said(&bench), "B in A");
    bench.finish();
    assert_eq!(
        (bench.left.join(", "), said(&bench)),
        ("A SUCCESS, B SUCCESS".to_owned(), String::new())
    );
}

/// D13: one that fails fails both.
#[test]
fn one_whose_job_fails_in_check_fails_those_that_need_it_and_are_needed_by_it() {
    let mut bench = home();
    bench.approve_cycle("AB", "");
    bench.run();
    bench.end('B', "unit", Failure);
    bench.finish();
    assert_eq!(bench.left, ["A FAILURE", "B FAILURE"]);
    let told = bench.comments();
    let said = "part of a dependency cycle that failed. Failed changes: org/one#66.";
    assert!(told.iter().all(|text| text.contains(said)), "{told:?}");
}

/// Z6.5: a change stands in one place: what stands in its own queue leaves that first.
#[test]
fn those_that_need_each_other_wait_until_none_stands_elsewhere() {
    let mut bench = home();
    let (b, standing) = (bench.change('B').key, (bench.change('B'), Timestamp(5)));
    bench.doors.get_mut(&b).unwrap().revisions.push(standing);
    bench.approve_cycle("AB", "");
    bench.look();
    assert_eq!((sent(&bench), bench.head.slots.len()), (vec!["B: make way for A".to_owned()], 0));
    let asked = bench.forwards[0].1.id.clone();
    bench.doors.get_mut(&b).unwrap().release_requests.insert(asked);
    bench.look();
    assert_eq!(sent(&bench).len(), 1, "it is asked once");
    bench.doors.insert(b.clone(), Residency { hosted_in: Some("C".into()), ..Residency::default() });
    bench.look();
    assert_eq!(
        sent(&bench),
        ["B: make way for A", "B: make way for A"],
        "nor does it stand with others"
    );
    bench.doors.insert(b, Residency::default());
    bench.run();
    assert_eq!((bench.head.slots.len(), said(&bench)), (2, "B in A".to_owned()));
}

/// Z6.3, Z6.5: what was read of one before its newest revision came is no reason to take that out.
#[test]
fn those_of_which_one_is_known_as_something_newer_do_not_enter() {
    let mut bench = home();
    let mut candidates = bench.cycle("AB", "");
    candidates[1].as_of = Timestamp(4);
    let b = bench.change('B').key;
    bench.revise('B');
    bench
        .doors
        .insert(b, Residency { revisions: vec![(bench.change('B'), Timestamp(5))], ..Residency::default() });
    bench.arrive(InboxMessageKind::Enqueue { candidates });
    bench.run();
    assert_eq!((bench.arrivals.len(), bench.head.slots.len(), sent(&bench).len()), (0, 0, 0));
}

/// Z6.5: its own queue lets a change go, quietly where it is the same revision, and has the other
/// queue looked at.
#[test]
fn a_change_leaves_its_own_queue_to_stand_with_others() {
    let mut bench = own_queue_of('B', "A");
    bench.approve("B");
    bench.run();
    let told = bench.reports.len();
    makes_way(&mut bench, 'B', 0);
    assert_snapshot!(bench.run(), @r"
    stop B unit
    B leaves: DEQUEUED
    ");
    assert_eq!((bench.reports.len(), bench.woken[0].queue.0.as_str()), (told, "A"));
}

/// Z6.3: news that are older than what is known take nothing out.
#[test]
fn a_newer_revision_makes_no_way_for_an_older_one() {
    let mut bench = own_queue_of('B', "A");
    let old = bench.change('B');
    bench.revise('B');
    let candidates = vec![crate::Candidate { as_of: Timestamp(7), ..bench.candidate('B', "") }];
    bench.arrive(InboxMessageKind::Enqueue { candidates });
    bench.run();
    bench.arrive(InboxMessageKind::MoveToHost { change: old, as_of: Timestamp(6), to: "A".into() });
    bench.run();
    assert_eq!((bench.head.slots.len(), bench.woken.len(), bench.arrivals.len()), (1, 1, 0));
}

/// Z6.5: whatever is told of a guest reaches the queue where it stands, operators' words too.
#[test]
fn the_own_queue_of_a_guest_sends_everything_on() {
    let mut bench = own_queue_of('B', "");
    bench.head.hosted_in = Some("A".into());
    bench.approve("B");
    bench.seen('B', None);
    bench.dequeue('B');
    makes_way(&mut bench, 'B', 0);
    bench.run();
    assert_eq!(sent(&bench), ["A: enqueue B", "A: seen", "A: dequeue", "A: make way for A"]);
    assert_eq!((bench.arrivals.len(), bench.head.slots.len()), (0, 0));
}

/// Z6.5, R06: they leave together, and each is where it was before.
#[test]
fn a_guest_that_is_taken_out_leaves_with_the_others() {
    let mut bench = home();
    bench.approve_cycle("AB", "");
    bench.run();
    bench.dequeue('B');
    bench.run();
    assert_eq!(
        (bench.left.join(", "), said(&bench)),
        ("A DEQUEUED, B DEQUEUED".to_owned(), String::new())
    );
    bench.dequeue('B');
    bench.seen('B', None);
    bench.run();
    assert_eq!(sent(&bench), ["B: dequeue", "B: seen"], "what comes later is for its own queue");
}

/// Z6.5: a new revision of one has both tested anew.
#[test]
fn a_new_revision_of_a_guest_takes_the_place_of_the_old_one() {
    let mut bench = home();
    bench.approve_cycle("AB", "");
    bench.run();
    bench.revise('B');
    bench.approve_cycle("AB", "");
    bench.run();
    assert_eq!(
        (bench.left.join(", "), said(&bench)),
        ("A DEQUEUED, B DEQUEUED".to_owned(), "B in A".to_owned())
    );
    bench.approve_cycle("AB", "");
    bench.run();
    assert_eq!(bench.left.len(), 2, "offered once more they are there already");
}

/// Z6.5: changes that no longer need each other go back to where each stands by itself.
#[test]
fn a_change_that_needs_no_other_any_more_stands_in_its_own_queue_again() {
    let mut bench = home();
    bench.approve_cycle("AB", "");
    bench.run();
    bench.approve("B");
    bench.run();
    assert_eq!((bench.left.len(), sent(&bench)), (2, vec!["B: enqueue B".to_owned()]));
    assert_eq!(said(&bench), "");
    bench.approve_cycle("AB", "");
    bench.run();
    bench.approve("A");
    bench.run();
    let here: Vec<usize> = bench.head.slots.iter().map(|slot| usize::from(slot.joined)).collect();
    assert_eq!((here, said(&bench), bench.left.len()), (vec![0], String::new(), 4));
}

/// Z6.5: where others need it as well by now, they stand in another queue.
#[test]
fn what_belongs_to_another_queue_since_more_need_each_other_leaves_for_that() {
    let mut bench = own_queue_of('B', "AC");
    bench.approve_cycle("BC", "");
    bench.run();
    assert_eq!(said(&bench), "C in B");
    bench.approve_cycle("ABC", "");
    bench.run();
    assert_eq!(
        (bench.left.join(", "), said(&bench)),
        ("B DEQUEUED, C DEQUEUED".to_owned(), String::new())
    );
    assert_eq!(sent(&bench), ["A: enqueue ABC"]);
}

/// Z6.5: two queues never send each other the same for ever.
#[test]
fn what_is_said_wrongly_of_where_a_change_stands_is_mended() {
    let mut bench = home();
    let b = bench.change('B').key;
    bench.doors.insert(b, Residency { hosted_in: Some("A".into()), ..Residency::default() });
    bench.seen('B', None);
    bench.run();
    assert_eq!((sent(&bench), said(&bench)), (vec!["B: seen".to_owned()], String::new()));
}

/// Z6.5: where changes land, each does so by itself.
#[test]
fn they_part_where_the_pipeline_comes_to_land_changes() {
    let mut bench = home();
    bench.approve_cycle("AB", "");
    bench.run();
    bench.pipeline.reporters.success = Bench::gate(&[]).pipeline.reporters.success;
    bench.layout = LayoutNumbers { wanted: 2, live: 2 };
    bench.run();
    assert_eq!(
        (bench.left.join(", "), said(&bench)),
        ("A DEQUEUED, B DEQUEUED".to_owned(), String::new())
    );
    bench.approve_cycle("AB", "");
    bench.look();
    assert_eq!(sent(&bench), ["A: enqueue A", "B: enqueue B"]);
}

/// Z6.5: ten that need each other fit into what one plan writes.
#[test]
fn as_many_as_may_need_each_other_come_and_go_in_one_plan() {
    let all = "ABCDEFGHIJ";
    let mut bench = own_queue_of('A', &all[1..]);
    for change in all.chars() {
        bench.queues.insert(change, change.to_string());
    }
    bench.approve_cycle(all, "");
    bench.run();
    assert_eq!(bench.head.slots.len(), 10);
    bench.finish();
    assert_eq!((bench.left.len(), said(&bench)), (10, String::new()));
    assert!(bench.most_records <= 100, "{}", bench.most_records);
}

/// G19, Z6.5: what ten tell that enter by one plan has room: each tells one of the pipelines that
/// this one supersedes, which tells the others.
#[test]
fn as_many_as_may_need_each_other_have_room_to_supersede_other_pipelines() {
    let all = "ABCDEFGHIJ";
    let mut bench = own_queue_of('A', &all[1..]);
    for change in all.chars() {
        bench.queues.insert(change, change.to_string());
    }
    bench.pipeline.supersedes = vec!["p1".into(), "p2".into(), "p3".into(), "p4".into()];
    bench.approve_cycle(all, "");
    bench.run();
    let left = |kind: &InboxMessageKind| match kind {
        InboxMessageKind::Superseded { more, .. } => Some(more.len()),
        _ => None,
    };
    let left: Vec<usize> =
        bench.forwards.iter().filter_map(|(_, arrival)| left(&arrival.kind)).collect();
    assert_eq!((bench.head.slots.len(), left), (10, vec![3; 10]));
}

/// Z6.3, Z6.5: nobody leaves his own queue for changes that do not enter, since something newer is
/// known of one of them.
#[test]
fn nobody_makes_way_for_what_is_older_than_what_stands_there() {
    let mut bench = home();
    let mut older = bench.cycle("AB", "");
    older[0].as_of = Timestamp(3);
    bench.revise('A');
    let newest = crate::Candidate { as_of: Timestamp(5), ..bench.candidate('A', "") };
    bench.arrive(InboxMessageKind::Enqueue { candidates: vec![newest] });
    bench.run();
    let b = bench.change('B');
    bench.doors.insert(b.key.clone(), Residency { revisions: vec![(b, Timestamp(1))], ..Residency::default() });
    bench.arrive(InboxMessageKind::Enqueue { candidates: older });
    bench.run();
    let here = (bench.arrivals.len(), bench.head.slots.len(), bench.left.len());
    assert_eq!((sent(&bench), here), (Vec::new(), (0, 1, 0)));
}

/// Z6.5: what its pipeline began to land before it came to land nothing makes way when that is
/// over.
#[test]
fn what_is_being_put_into_its_branch_makes_way_when_it_is_there() {
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
    let standing: Vec<SlotStatus> = bench.head.slots.iter().map(|slot| slot.status).collect();
    assert_eq!((standing, bench.arrivals.len()), (vec![SlotStatus::Landing], 1));
    assert!(bench.land());
    bench.run();
    assert_eq!((bench.left.join(", "), bench.arrivals.len()), ("B SUCCESS".to_owned(), 0));
    assert!(bench.woken.iter().any(|queue| queue.queue.0 == "A"), "{:?}", bench.woken);
}

/// Z6.5: of where a change stands a queue takes back only what was said of itself.
#[test]
fn what_is_said_of_another_queue_is_left_to_that_one() {
    let mut bench = home();
    bench.approve_cycle("AB", "");
    bench.run();
    let b = bench.change('B').key;
    bench.doors.insert(b, Residency { hosted_in: Some("C".into()), ..Residency::default() });
    bench.dequeue('A');
    bench.run();
    assert_eq!((bench.left.len(), said(&bench)), (2, "B in C".to_owned()));
}

/// Z6.5: what was asked to make way and heard of it late, when it had come in all the same, stays.
#[test]
fn what_stands_where_it_is_wanted_makes_no_way_for_that() {
    let mut bench = home();
    bench.approve_cycle("AB", "");
    bench.run();
    makes_way(&mut bench, 'B', 0);
    bench.run();
    assert_eq!((bench.head.slots.len(), bench.arrivals.len(), bench.left.len()), (2, 0, 0));
}

/// Z6.1, Z6.5: an offer that others were asked to make way for was taken up before an operator had
/// events discarded: dropped, it would lose whoever has made way by then. Of what is offered later
/// nobody makes way for anything.
#[test]
fn what_others_make_way_for_is_not_discarded_any_more() {
    let mut bench = home();
    let b = bench.change('B').key;
    let standing = (bench.change('B'), Timestamp(5));
    bench.doors.get_mut(&b).unwrap().revisions.push(standing);
    bench.approve_cycle("AB", "");
    bench.look();
    assert_eq!(sent(&bench), ["B: make way for A"]);
    bench.hold.discard_triggers = true;
    bench.approve_cycle("AB", "");
    bench.look();
    let taken_up: Vec<bool> = bench.arrivals.iter().map(|arrival| arrival.in_progress).collect();
    assert_eq!(taken_up, [true], "the other one is dropped");
    bench.doors.insert(b, Residency::default());
    bench.run();
    assert_eq!(
        (bench.arrivals.len(), bench.head.slots.len(), said(&bench)),
        (0, 2, "B in A".to_owned())
    );
}

/// Z6.1, Z6.5: what has left another queue for an offer is not discarded with it where that is
/// sent.
#[test]
fn an_offer_that_something_left_for_says_so_where_it_is_sent() {
    let mut bench = home();
    bench.approve("B");
    bench.run();
    bench.approve_cycle("AB", "");
    bench.run();
    bench.approve("B");
    bench.run();
    let taken_up: Vec<bool> = bench.forwards.iter().map(|(_, arrival)| arrival.in_progress).collect();
    assert_eq!((sent(&bench), taken_up), (vec!["B: enqueue B".to_owned(); 2], vec![false, true]));
}

/// Z6.5, Z7.3: where one stands that need each other nobody knows while its own queue cannot be
/// read: nobody leaves for them, whatever else is in the first one's queue goes on, and they enter
/// when that is mended.
#[test]
fn those_that_need_each_other_wait_until_the_own_queue_of_each_can_be_read() {
    let mut bench = own_queue_of('A', "BC");
    bench.approve("A");
    bench.run();
    let (b, c) = (bench.change('B'), bench.change('C'));
    let unreadable = Some("its record says nothing".to_owned());
    bench.doors.insert(b.key.clone(), Residency { read_error: unreadable, ..Residency::default() });
    bench
        .doors
        .insert(c.key.clone(), Residency { revisions: vec![(c.clone(), Timestamp(1))], ..Residency::default() });
    bench.approve_cycle("ABC", "");
    bench.run();
    assert_eq!((sent(&bench), bench.arrivals.len(), bench.head.slots.len()), (Vec::new(), 1, 1));
    bench.finish();
    assert_eq!(
        (bench.left.join(", "), bench.arrivals.len()),
        ("A SUCCESS".to_owned(), 1),
        "what stands there ends"
    );
    bench.dequeue('C');
    bench.run();
    assert_eq!(sent(&bench), ["C: dequeue"], "an operator is heard");
    for change in [b, c] {
        bench.doors.insert(change.key, Residency::default());
    }
    bench.run();
    assert_eq!((bench.arrivals.len(), said(&bench)), (0, "B in A, C in A".to_owned()));
}

/// Z6.5, Z7.3: what stands as one is tested and leaves though the own queue of one cannot be read;
/// what that says of where its change stands is mended when it can be read again, by whatever is
/// told of it then.
#[test]
fn those_that_stand_as_one_leave_though_the_own_queue_of_one_cannot_be_read() {
    let mut bench = home();
    bench.approve_cycle("AB", "");
    bench.run();
    let b = bench.change('B').key;
    let unreadable = Some("its record says nothing".to_owned());
    bench.doors.insert(b.clone(), Residency { read_error: unreadable, ..Residency::default() });
    bench.finish();
    assert_eq!(bench.left, ["A SUCCESS", "B SUCCESS"]);
    bench.doors.insert(b, Residency { hosted_in: Some("A".into()), ..Residency::default() });
    bench.seen('B', None);
    bench.run();
    assert_eq!((sent(&bench), said(&bench)), (vec!["B: seen".to_owned()], String::new()));
}
