//! Branch locks: no two landings at once on a branch, whichever queues they come from, and no queue
//! waits forever for a lost holder.

use super::bench::Bench;
use crate::branch_lock::{
    BASE_MOVED_MAX, BranchLockView, COURTESY_SECONDS, HolderItem, RESERVATION_SECONDS,
    TROUBLE_SECONDS,
};
use crate::landing::{Attempt, LandingEnd, LandingState};
use crate::queue::SlotStatus;
use insta::assert_snapshot;
use sluice_config::pipeline::Manager;
use sluice_model::QueueKey;
use sluice_model::git::{BranchKey, Commit};

/// Returns a gate of this name in which these changes have passed and no landing is ordered yet.
fn passed(queue: &str, changes: &str) -> Bench {
    let mut bench = Bench::gate(&["unit"]);
    bench.head.key.queue = queue.into();
    bench.queues = changes.chars().map(|change| (change, queue.to_owned())).collect();
    bench.approve(changes);
    bench.run();
    bench.pass(changes);
    bench
}

/// Plans one queue with the branch locks that another one has written.
fn plan_with_records_of(bench: &mut Bench, other: &Bench) -> String {
    bench.branch_locks.clone_from(&other.branch_locks);
    bench.run()
}

fn main_of(bench: &Bench, change: char) -> BranchKey {
    crate::branch_lock::branch_of(&bench.change(change))
}

fn holder(bench: &Bench) -> Option<(String, String)> {
    let turn = &bench.branch_locks.values().next()?.lock;
    turn.holder.as_ref().map(|holder| (holder.queue.queue.to_string(), holder.change.to_string()))
}

fn line(bench: &Bench) -> Vec<String> {
    bench
        .branch_locks
        .values()
        .flat_map(|seen| &seen.lock.waiting)
        .map(|queue| queue.queue.to_string())
        .collect()
}

fn reasons(bench: &Bench) -> String {
    bench
        .items
        .values()
        .flat_map(|item| &item.reasons)
        .map(|one| one.text.as_str())
        .collect::<Vec<_>>()
        .join("\n")
}

/// Z6.4, C2: a change that passed waits in line, with a reason, while another queue merges into its
/// branch. Then it is tested on the new state and merged.
#[test]
fn two_queues_over_one_branch_never_land_on_it_at_once() {
    let mut first = passed("first", "A");
    assert_snapshot!(first.run(), @"land A as 0A");
    let mut second = passed("second", "B");
    assert_snapshot!(plan_with_records_of(&mut second, &first), @"");
    assert_eq!((second.landings.len(), line(&second)), (0, vec!["second".to_owned()]));
    assert_eq!(second.head.entries[0].first().status, SlotStatus::Passed);
    let text = reasons(&second);
    let why = "waits for the lock on org/one@main: the queue first of gate holds it for org/one#65";
    assert!(text.contains(why), "{text}");

    first.land();
    assert_snapshot!(plan_with_records_of(&mut first, &second), @"A leaves: SUCCESS");
    assert_eq!(first.woken, [second.head.key.clone()]);
    assert_eq!(holder(&first), None);
    second.tips = first.tips.clone();
    assert_snapshot!(plan_with_records_of(&mut second, &first), @"land B as 0B");
    assert_eq!((holder(&second).unwrap().0, line(&second)), ("second".to_owned(), Vec::new()));
    second.land();
    assert_snapshot!(second.run(), @"run B unit on 0AB");
    assert_eq!(holder(&second), None, "what is tested again holds no branch");
    second.finish();
    assert_eq!(second.landed, ["0AB"]);
    let turn = &second.branch_locks.values().next().unwrap().lock;
    assert_eq!((turn.fence, turn.is_unused()), (3, true));
}

/// C2: the landing names a fence that no other landing had.
#[test]
fn each_landing_bears_a_fence_of_its_own() {
    let mut bench = passed("first", "AB");
    bench.finish();
    let mut fences: Vec<_> = bench.landings.values().map(|landing| landing.fence).collect();
    fences.sort();
    assert_eq!(fences, [1, 2]);
}

/// Z6.4: one transaction ends a landing and orders the next one if no other queue wants the branch.
#[test]
fn a_run_of_passed_changes_keeps_the_branch() {
    let mut bench = passed("first", "AB");
    bench.run();
    bench.land();
    assert_snapshot!(bench.run(), @r"
    A leaves: SUCCESS
    land B as 0AB
    ");
    assert_eq!(holder(&bench), Some(("first".to_owned(), bench.change('B').key.to_string())));
}

/// Z6.4: a queue with many changes lets other queues go first; if they do not come in time, it goes
/// on.
#[test]
fn a_queue_lets_one_that_waits_land_before_its_own_next_and_not_for_ever() {
    let mut first = passed("first", "AB");
    first.run();
    let mut second = passed("second", "C");
    plan_with_records_of(&mut second, &first);
    first.land();
    assert_snapshot!(plan_with_records_of(&mut first, &second), @"A leaves: SUCCESS");
    assert_eq!(
        (holder(&first), line(&first)),
        (None, vec!["second".to_owned(), "first".to_owned()])
    );
    assert!(reasons(&first).contains("the queue second of gate is first in line"));
    // The other queue is first in line.
    assert_snapshot!(first.run(), @"");

    // It comes:
    let mut alive = first.branch_locks.clone();
    second.now = first.now;
    assert_snapshot!(plan_with_records_of(&mut second, &first), @"land C as 0C");
    assert_eq!(line(&second), ["first"]);
    // It does not come:
    std::mem::swap(&mut alive, &mut first.branch_locks);
    first.now = first.now.plus_seconds(COURTESY_SECONDS);
    assert_snapshot!(first.run(), @"land B as 0AB");
    assert_eq!(
        line(&first),
        Vec::<String>::new(),
        "a queue that did not come has to line up again"
    );
}

/// C2: a queue that leaves the line wakes the next one.
#[test]
fn a_queue_whose_change_leaves_leaves_the_line() {
    let mut first = passed("first", "AD");
    first.run();
    let mut second = passed("second", "BC");
    plan_with_records_of(&mut second, &first);
    first.land();
    plan_with_records_of(&mut first, &second);
    second.now = first.now;
    second.layout.wanted = 2;
    plan_with_records_of(&mut second, &first);
    assert_eq!(
        (line(&second), second.woken.as_slice()),
        (vec!["first".to_owned()], &[first.head.key.clone()][..])
    );
    assert_snapshot!(plan_with_records_of(&mut first, &second), @"land D as 0AD");
}

/// C2: a holder whose landing has ended does not block others, even if it kept the lock.
#[test]
fn a_holder_that_is_over_is_passed_by_and_finds_another_fence() {
    let mut first = passed("first", "A");
    first.run();
    let mut second = passed("second", "B");
    plan_with_records_of(&mut second, &first);
    for seen in second.branch_locks.values_mut() {
        *seen = BranchLockView { is_abandoned: true, ..seen.clone() };
    }
    assert_snapshot!(second.run(), @"land B as 0B");
    let landing = second.landings.values().next().unwrap();
    assert_eq!((landing.fence, line(&second)), (2, Vec::new()));
    // The previous holder does not release another queue's lock.
    first.land();
    plan_with_records_of(&mut first, &second);
    assert_eq!(holder(&first).unwrap().0, "second");
}

/// C2: a lock is taken over because of records, not of time alone: the landing's record and the
/// queue's. A landing that cannot be carried out for long counts too, since its forge may never
/// answer.
#[test]
fn a_holder_is_over_when_its_landing_is_and_none_of_its_bundle_follows() {
    let mut bench = passed("first", "A");
    bench.run();
    let landing = bench.landings.values().next().unwrap().clone();
    let holder = bench.branch_locks.values().next().unwrap().lock.holder.clone().unwrap();
    let of_bundle = crate::BranchLockHolder { has_later_members: true, ..holder.clone() };
    let commit = Commit { id: "c".into(), tree: "t".into() };
    let in_state = |state: LandingState| crate::Landing { state, ..landing.clone() };
    let ended = |end: LandingEnd| in_state(LandingState::Ended { end, at: bench.now });
    let landed = ended(LandingEnd::Landed { commit: commit.clone() });
    let moved = ended(LandingEnd::BaseMoved { tip: commit.clone() });
    let attempting =
        in_state(LandingState::Merging(Attempt { tip: commit, in_flight_until: None }));
    let now = bench.now;
    for item in [HolderItem::Queued, HolderItem::Gone] {
        assert!(
            holder.is_abandoned(None, item, now) && holder.is_abandoned(Some(&landed), item, now)
        );
        assert!(!holder.is_abandoned(Some(&attempting), item, now), "it may be merging");
        assert_eq!(
            holder.is_abandoned(Some(&landing), item, now),
            item == HolderItem::Gone,
            "its fence keeps it from merging"
        );
        assert_eq!(of_bundle.is_abandoned(Some(&landed), item, now), item == HolderItem::Gone);
        assert!(of_bundle.is_abandoned(Some(&moved), item, now));
    }
    let trouble = Some(crate::LandingTrouble {
        since: now,
        why: "the forge is silent".to_owned(),
        is_connection_removed: false,
    });
    let troubled = crate::Landing { trouble: trouble.clone(), ..landing };
    let later = now.plus_seconds(TROUBLE_SECONDS);
    assert!(
        !holder.is_abandoned(Some(&troubled), HolderItem::Queued, now)
            && holder.is_abandoned(Some(&troubled), HolderItem::Queued, later)
    );
    let attempting = crate::Landing { trouble, ..attempting };
    assert!(
        !holder.is_abandoned(Some(&attempting), HolderItem::Queued, later),
        "it may be merging"
    );
}

/// Z6.5: a bundle acquires all its branch locks at once and holds them until the last member is
/// merged, or it waits.
#[test]
fn a_bundle_takes_all_its_branches_or_none() {
    let mut first = passed("first", "A");
    first.run();
    let mut second = Bench::gate(&["unit"]);
    second.head.key.queue = "second".into();
    second.queues = [('B', "second".to_owned()), ('C', "second".to_owned())].into();
    second.in_project('B', "two");
    second.approve_bundle("BC", "");
    second.run();
    second.pass("BC");
    assert_snapshot!(plan_with_records_of(&mut second, &first), @"");
    let (one, two) = (main_of(&second, 'C'), main_of(&second, 'B'));
    let is_held = second.branch_locks.get(&two).is_some_and(|seen| seen.lock.holder.is_some());
    assert!(!is_held, "it takes no branch while it waits for the other");
    second.branch_locks.get_mut(&one).unwrap().lock.holder = None;
    second.branch_locks.get_mut(&one).unwrap().lock.waiting.clear();
    assert_snapshot!(second.run(), @"land B as 0B");
    let holders = |bench: &Bench| {
        let holder =
            |branch| bench.branch_locks.get(branch).and_then(|seen| seen.lock.holder.clone());
        (
            holder(&one).map(|holder| holder.change),
            holder(&two).map(|holder| (holder.change, holder.has_later_members)),
        )
    };
    let (b, c) = (second.change('B').key, second.change('C').key);
    assert_eq!(holders(&second), (Some(b.clone()), Some((b, true))));
    second.land();
    assert_snapshot!(second.run(), @"land C as 0C");
    assert_eq!(holders(&second), (Some(c), None), "a merged change is released");
    second.finish();
    assert!(second.branch_locks.values().all(|seen| seen.lock.is_unused()));
}

/// Z6.4: a halted queue does not block other queues.
#[test]
fn a_halted_queue_releases_its_branch_lock() {
    let mut bench = passed("first", "A");
    bench.run();
    bench.end_landing(LandingEnd::Mismatch {
        landed: Commit { id: "abc".into(), tree: "strange".into() },
    });
    bench.run();
    assert!(bench.head.halted.is_some() && holder(&bench).is_none());
}

/// C2: in an independent queue changes are merged one after the other too.
#[test]
fn one_queue_never_lands_two_at_once_on_a_branch() {
    let mut bench = Bench::new(Manager::Independent, &["unit"]);
    bench.pipeline.reporters.success = Bench::gate(&[]).pipeline.reporters.success;
    bench.in_project('C', "two");
    bench.approve("ABC");
    bench.run();
    bench.pass("ABC");
    assert_snapshot!(bench.run(), @r"
    land A as 0A
    land C as 0C
    ");
    assert!(
        reasons(&bench).contains("waits for the lock on org/one@main: held for org/one#65"),
        "{}",
        reasons(&bench)
    );
    bench.finish();
    assert_eq!(bench.landed.iter().filter(|tree| tree.contains('B')).count(), 1);
}

/// Z6.7: the name of another tenant's queue is not disclosed.
#[test]
fn a_queue_of_another_tenant_is_not_named() {
    let mut first = passed("first", "A");
    first.head.key = QueueKey { tenant: "secret".into(), ..first.head.key.clone() };
    first.run();
    let mut second = passed("second", "B");
    plan_with_records_of(&mut second, &first);
    let text = reasons(&second);
    assert!(text.contains("a queue of another tenant holds it for"), "{text}");
    assert!(!text.contains("secret") && !text.contains("first"), "{text}");
}

/// Returns a gate in which a bundle of two members with different branches is to be merged, and the
/// branches.
fn pair() -> (Bench, BranchKey, BranchKey) {
    let mut bench = Bench::gate(&["unit"]);
    bench.head.key.queue = "pair".into();
    bench.queues = "BC".chars().map(|change| (change, "pair".to_owned())).collect();
    bench.in_project('B', "two");
    bench.approve_bundle("BC", "");
    bench.run();
    bench.pass("BC");
    assert_eq!(bench.run(), "land B as 0B");
    let (first, second) = (main_of(&bench, 'B'), main_of(&bench, 'C'));
    (bench, first, second)
}

fn holder_of(bench: &Bench, branch: &BranchKey) -> crate::BranchLockHolder {
    bench.branch_locks[branch].lock.holder.clone().expect("the lock is held")
}

fn landing_that(bench: &Bench, state: &LandingState) -> crate::Landing {
    bench.landings.values().find(|landing| landing.state == *state).expect("there is one").clone()
}

/// Z6.5, C2: the lock of a bundle that was not started is taken over like that of a single change.
/// A partly merged bundle keeps its locks.
#[test]
fn a_bundle_is_passed_by_as_long_as_nothing_of_it_has_begun() {
    let (mut bench, first, second) = pair();
    let (since, later) = (bench.now, bench.now.plus_seconds(TROUBLE_SECONDS));
    let trouble = || {
        Some(crate::LandingTrouble {
            since,
            why: "the forge is silent".to_owned(),
            is_connection_removed: false,
        })
    };
    let order = landing_that(&bench, &LandingState::Ordered);
    assert_eq!(
        (order.fence, order.later_members.iter().map(|other| other.fence).collect()),
        (1, vec![1])
    );
    let troubled = crate::Landing { trouble: trouble(), ..order };
    for branch in [&first, &second] {
        let holder = holder_of(&bench, branch);
        assert!(holder.is_abandoned(Some(&troubled), HolderItem::Queued, later));
        assert!(
            !holder.is_abandoned(Some(&troubled), HolderItem::Queued, since),
            "it is waited for"
        );
        let tip = troubled.base.clone();
        let attempting = crate::Landing {
            state: LandingState::Merging(Attempt { tip, in_flight_until: None }),
            ..troubled.clone()
        };
        assert!(
            !holder.is_abandoned(Some(&attempting), HolderItem::Queued, later),
            "it may be merging"
        );
    }
    bench.land();
    assert_snapshot!(bench.run(), @"land C as 0C");
    let troubled =
        crate::Landing { trouble: trouble(), ..landing_that(&bench, &LandingState::Ordered) };
    let holder = holder_of(&bench, &second);
    assert!(
        holder.has_landed_members
            && !holder.is_abandoned(Some(&troubled), HolderItem::Queued, later),
        "the first is in its branch"
    );
    assert!(
        holder.is_abandoned(Some(&troubled), HolderItem::Gone, later),
        "its queue no longer has it"
    );
}

/// Z6.5, C2: only the second branch was taken over. The first landing found that out and merged
/// nothing: both are tested again, and the branch stays with the other queue.
#[test]
fn a_bundle_that_was_passed_by_on_one_branch_is_tested_again_as_a_whole() {
    let (mut bench, first, second) = pair();
    let mut other = passed("other", "A");
    other.branch_locks.clone_from(&bench.branch_locks);
    other.branch_locks.get_mut(&second).unwrap().is_abandoned = true;
    assert_snapshot!(other.run(), @"land A as 0A");
    let moved = Commit { id: "tip".into(), tree: "0".into() };
    bench.end_landing(LandingEnd::BaseMoved { tip: moved });
    assert_snapshot!(plan_with_records_of(&mut bench, &other), @r"
    run B unit on 0B
    run C unit on 0C
    ");
    assert_eq!(bench.branch_locks[&first].lock.holder, None);
    assert_eq!(
        (holder_of(&bench, &second).queue, bench.branch_locks[&second].lock.fence),
        (other.head.key.clone(), 2)
    );
    bench.pass("BC");
    assert_snapshot!(bench.run(), @"");
    assert!(
        reasons(&bench).contains("the queue other of gate holds it for"),
        "{}",
        reasons(&bench)
    );
}

/// Z6.5, C2: without the fence of its branch nothing is merged, even in a partly merged bundle: it
/// waits for the lock, and then sees the branch's state.
#[test]
fn the_next_of_a_bundle_lands_only_on_a_branch_that_is_its_queues() {
    let (mut bench, _, second) = pair();
    bench.land();
    let taken = &mut bench.branch_locks.get_mut(&second).unwrap().lock;
    taken.fence += 1;
    taken.holder.as_mut().unwrap().queue.queue = "other".into();
    assert_snapshot!(bench.run(), @"");
    let standings: Vec<_> = bench.head.slots().map(|slot| slot.status).collect();
    assert_eq!(standings, [SlotStatus::Landed, SlotStatus::AwaitingLanding]);
    assert_eq!(bench.branch_locks[&second].lock.waiting, [bench.head.key.clone()]);
    bench.branch_locks.get_mut(&second).unwrap().lock.holder = None;
    assert_snapshot!(bench.run(), @"land C as 0C");
    assert_eq!(landing_that(&bench, &LandingState::Ordered).fence, 3);
    bench.land();
    bench.run();
    assert_eq!(bench.left, ["B SUCCESS", "C SUCCESS"]);
    assert!(bench.branch_locks.values().all(|seen| seen.lock.is_unused()));
}

/// Returns a gate whose change passed again after its landings found the branch moved as often as
/// allowed.
fn overtaken() -> Bench {
    let mut slow = passed("slow", "B");
    for times in 1..=BASE_MOVED_MAX {
        assert!(
            slow.branch_locks.values().all(|seen| seen.lock.reserved_for.is_none()),
            "overtaken {} times",
            times - 1
        );
        assert!(slow.run().starts_with("land B"), "tried {times} times");
        let moved = slow.tip("one") + "X";
        slow.tips.insert("one".to_owned(), moved);
        assert!(slow.land());
        slow.run();
        slow.pass("B");
    }
    slow
}

/// Z6.4, C2: a gate with slow tests is not overtaken forever: the branch is reserved for it, and
/// queues in line come after it.
#[test]
fn a_branch_is_reserved_for_an_item_overtaken_too_often() {
    let mut slow = overtaken();
    let reservation = slow
        .branch_locks
        .values()
        .next()
        .unwrap()
        .lock
        .reserved_for
        .clone()
        .expect("the branch is reserved");
    assert!(
        reservation.queue == slow.head.key
            && reservation.item == slow.head.entries[0].first().id
            && slow.now < reservation.until
    );
    assert!(reasons(&slow).contains("the branch is now reserved for it"), "{}", reasons(&slow));
    let mut fast = passed("fast", "A");
    fast.now = slow.now;
    assert_snapshot!(plan_with_records_of(&mut fast, &slow), @"");
    assert_eq!((fast.landings.len(), line(&fast)), (0, vec!["fast".to_owned()]));
    assert!(
        reasons(&fast).contains("the queue slow of gate is first in line"),
        "{}",
        reasons(&fast)
    );

    assert!(plan_with_records_of(&mut slow, &fast).starts_with("land B"));
    let turn = &slow.branch_locks.values().next().unwrap().lock;
    assert_eq!((turn.reserved_for.as_ref(), line(&slow)), (None, vec!["fast".to_owned()]));
    slow.land();
    slow.run();
    assert_eq!(
        (slow.left.as_slice(), slow.woken.as_slice()),
        (&["B SUCCESS".to_owned()][..], &[fast.head.key.clone()][..])
    );
    assert!(plan_with_records_of(&mut fast, &slow).starts_with("land A"));
}

/// C2: only a branch moved by others counts: not an unknown fence, nor a predecessor of the same
/// queue that was not merged.
#[test]
fn only_a_branch_moved_by_others_counts_as_overtaken() {
    let mut bench = passed("first", "A");
    for _ in 0..=BASE_MOVED_MAX {
        assert!(bench.run().starts_with("land A"));
        let tip = landing_that(&bench, &LandingState::Ordered).base.clone();
        bench.end_landing(LandingEnd::BaseMoved { tip });
        bench.run();
        bench.pass("A");
    }
    assert!(bench.branch_locks.values().all(|seen| seen.lock.reserved_for.is_none()));
    assert_eq!(bench.items.values().map(|item| item.base_moved_count).collect::<Vec<_>>(), [0]);

    let mut bench = Bench::gate(&["unit"]);
    bench.keeps_tested_commits = true;
    bench.approve("AB");
    bench.run();
    bench.pass("AB");
    bench.run();
    assert_eq!(bench.landings.len(), 2, "B is ordered right behind A");
    bench.end_landing(LandingEnd::Refused { why: "it was closed".to_owned() });
    bench.run();
    assert!(bench.land());
    bench.run();
    assert_eq!(
        bench.head.entries[0].first().status,
        SlotStatus::Testing,
        "B is tested again without A"
    );
    assert_eq!(bench.items.values().map(|item| item.base_moved_count).collect::<Vec<_>>(), [0]);
}

/// C2: a reservation ends with its time, and with the item.
#[test]
fn a_reservation_ends() {
    let mut slow = overtaken();
    let mut fast = passed("fast", "A");
    fast.now = slow.now;
    plan_with_records_of(&mut fast, &slow);
    slow.dequeue('B');
    plan_with_records_of(&mut slow, &fast);
    assert_eq!(
        (slow.left.as_slice(), slow.woken.as_slice()),
        (&["B DEQUEUED".to_owned()][..], &[fast.head.key.clone()][..])
    );
    assert!(slow.branch_locks.values().all(|seen| seen.lock.reserved_for.is_none()));
    assert_eq!(fast.landings.len(), 0, "it waits until it is woken or the time is over");
    fast.now = fast.now.plus_seconds(RESERVATION_SECONDS);
    assert!(fast.run().starts_with("land A"));
    assert!(fast.branch_locks.values().all(|seen| seen.lock.reserved_for.is_none()));
}

/// Z6.4: after a merge request without success the next landing of the item says that it may show
/// late.
#[test]
fn a_landing_says_whether_a_forge_was_asked_before() {
    for tried in [false, true] {
        let mut bench = passed("first", "A");
        bench.run();
        let first = bench.landings.values_mut().next().expect("it is to land");
        assert!(!first.merge_attempted);
        first.merge_attempted = tried;
        bench.tips.insert("one".to_owned(), "0X".to_owned());
        bench.land();
        bench.run();
        bench.pass("A");
        bench.run();
        assert_eq!(landing_that(&bench, &LandingState::Ordered).merge_attempted, tried);
    }
}
