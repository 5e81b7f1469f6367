//! Each plan fits into one transaction, however long the queue is.

use super::bench::{Bench, job};
use crate::branch_lock::{BranchLock, BranchLockHolder, BranchLockView, branch_of};
use crate::inbox::InboxMessageKind;
use crate::landing::LandingEnd;
use crate::plan::{BUNDLE_MAX, ChangesLimit, ObservedBuild, RECORDS_MAX};
use crate::queue::SlotStatus;
use sluice_config::pipeline::Manager;
use sluice_model::QueueKey;
use sluice_model::build::BuildResult::{Failure, Success};
use sluice_model::event::ZuulEvent;
use sluice_model::git::Commit;
use sluice_model::job::JobSummary;

fn long(count: usize, window: u32, jobs: &[&str]) -> (Bench, String) {
    let mut bench = Bench::gate(jobs);
    bench.head.window = window;
    bench.pipeline.window.initial = window;
    let changes: String = ('a'..='z')
        .chain('A'..='Z')
        .chain('\u{c0}'..='\u{17f}')
        .chain('\u{4e00}'..='\u{5fff}')
        .take(count)
        .collect();
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

/// Z6.5, Z6.7: an entry whose dependency is behind it, for want of room to dequeue it, fails until
/// the next plan dequeues it.
#[test]
fn an_entry_ahead_of_its_dependency_fails_until_a_plan_can_dequeue_it() {
    let mut bench = Bench::gate(&["unit"]);
    bench.approve("A");
    bench.approve_needing('B', "A");
    bench.approve("NC");
    bench.run();
    bench.update_needing('A', "N");
    (0..90).for_each(|_| bench.update('Z', None));
    assert!(bench.plan_once().1, "not all of it fits into one plan");
    let first = &bench.head.entries[0].first();
    assert_eq!((&first.change, first.status), (&bench.change('B'), SlotStatus::Failing));
    assert_eq!(bench.left, ["A DEQUEUED"]);
    bench.run();
    assert_eq!(bench.left, ["A DEQUEUED", "B FAILURE"]);
    bench.finish();
    assert_eq!(bench.landed, ["0N", "0NC", "0NCA"]);
}

/// Z6.5, Z6.7: taking over a branch lock for a bundle adds a condition that counts as a record,
/// however little room is left.
#[test]
fn a_bundle_that_passes_others_by_on_all_its_branches_takes_them_in_a_plan_that_fits() {
    for updates in 50..=RECORDS_MAX {
        let mut bench = Bench::gate(&["unit"]);
        let changes = "ABCDEFGHIJ";
        assert_eq!(changes.len(), BUNDLE_MAX);
        for change in changes.chars() {
            bench.in_project(change, &change.to_string());
            let mut turn = BranchLock::new(branch_of(&bench.change(change)));
            turn.fence = 1;
            turn.holder = Some(BranchLockHolder {
                queue: QueueKey {
                    tenant: "t".into(),
                    pipeline: "gate".into(),
                    queue: "other".into(),
                },
                item: "gone".into(),
                generation: 1,
                change: bench.change('Z').key,
                has_later_members: false,
                has_landed_members: false,
                since: bench.now,
            });
            bench
                .branch_locks
                .insert(turn.branch.clone(), BranchLockView { lock: turn, is_abandoned: false });
        }
        bench.approve_bundle(changes, "");
        bench.run();
        bench.pass(changes);
        bench.run();
        assert!(bench.landings.is_empty(), "its branches are others'");
        bench.branch_locks.values_mut().for_each(|seen| seen.is_abandoned = true);
        (0..updates).for_each(|_| bench.update('Z', None));
        bench.run();
        assert!(bench.most_records <= RECORDS_MAX, "{updates}: {}", bench.most_records);
        let order = bench.landings.values().next().expect("it is to land");
        assert_eq!((order.later_members.len(), bench.inbox.len()), (BUNDLE_MAX - 1, 0));
    }
}

/// Z6.4, Z6.7: entries that one push can merge are ordered together as far as there is room.
#[test]
fn the_landings_of_several_entries_are_ordered_in_plans_that_fit() {
    for updates in 70..=RECORDS_MAX {
        let mut bench = Bench::gate(&["unit"]);
        bench.approve("ABCDEF");
        bench.run();
        bench.pass("ABCDEF");
        (0..updates).for_each(|_| bench.update('Z', None));
        bench.run();
        assert!(bench.most_records <= RECORDS_MAX, "{updates}: {}", bench.most_records);
        bench.finish();
        assert_eq!(bench.landed.last().map(String::as_str), Some("0ABCDEF"));
    }
}

/// Z6.7: an item with more jobs than fit into a transaction is stopped in several plans.
#[test]
fn an_item_with_sixty_jobs_is_reset_in_plans_that_fit() {
    let names: Vec<String> = (0..60).map(|number| format!("job-{number:02}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let (mut bench, _) = long(2, 20, &names);
    bench.run();
    bench.end('a', "job-00", Failure);
    bench.run();
    assert_eq!(bench.under_way().len(), 119);
    bench.update('b', Some("the change was closed"));
    bench.run();
    assert_eq!(bench.under_way().len(), 59);
    assert_eq!(bench.left, ["b DEQUEUED"]);
    assert!(bench.most_records <= RECORDS_MAX, "{}", bench.most_records);
}

/// Z6.7: a queue holds a thousand changes; those beyond the head's size wait in order until others
/// leave.
#[test]
fn a_head_that_is_full_lets_arrivals_wait_until_something_leaves() {
    let (mut bench, _) = long(1_300, 3, &["unit"]);
    bench.run();
    let (here, waiting) = (bench.head.slots().count(), bench.inbox.len());
    assert!(
        (1_000..1_300).contains(&here) && here + waiting == 1_300,
        "{here} are here and {waiting} wait"
    );
    assert!(serde_json::to_string(&bench.head.stored()).unwrap().len() < 32 << 10);
    let next = bench.inbox[0].clone();
    bench.land_rounds(4);
    assert_eq!(bench.landed.len(), 4);
    let (here, still) = (bench.head.slots().count(), bench.inbox.len());
    assert!(
        still < waiting && here + still == 1_296,
        "{here} are here and {still} of {waiting} wait"
    );
    assert!(bench.inbox.iter().all(|message| message.id > next.id), "the oldest entered first");
}

/// G12, Z6.7: updates are applied while other messages wait for room, even for a change that is to
/// be enqueued again.
#[test]
fn a_change_of_a_full_queue_that_loses_its_approval_leaves_and_does_not_land() {
    let (mut bench, changes) = long(1_300, 3, &["unit"]);
    bench.run();
    let waiting = bench.inbox.len();
    let named: Vec<char> = changes.chars().take(2).collect();
    bench.approve(&named[0].to_string());
    bench.pass(&changes);
    for change in named {
        bench.update(change, Some("it is not approved"));
    }
    bench.run();
    assert_eq!(bench.left, ["a DEQUEUED", "b DEQUEUED"]);
    assert!(bench.landings.is_empty());
    // The enqueue message and its update wait behind the others.
    assert_eq!(bench.inbox.len(), waiting - 2 + 2);
    bench.land_rounds(1);
    assert_eq!(bench.landed, ["0c"], "the queue goes on");
}

/// Z6.7: an item without results is not written when its predecessor changes.
#[test]
fn a_failure_ahead_of_hundreds_writes_only_tested_items() {
    let (mut bench, changes) = long(400, 3, &["unit"]);
    bench.run();
    let before: Vec<u64> = bench.head.slots().map(|slot| slot.version).collect();
    bench.end(changes.chars().next().unwrap(), "unit", Failure);
    bench.run();
    let after: Vec<u64> = bench.head.slots().map(|slot| slot.version).collect();
    let written = before[1..].iter().zip(&after).filter(|(before, after)| before != after).count();
    assert!(written <= 3, "{written} items were written");
    assert!(bench.head.slots().skip(3).all(|slot| slot.generation == 1));
}

/// Z6.4, Z6.7: of many tested entries that move, each is written once with its reason, in any
/// number of plans.
#[test]
fn a_failure_ahead_of_very_many_that_are_tested_writes_each_of_them_once() {
    let (mut bench, changes) = long(150, 0, &["unit"]);
    bench.run();
    let before: Vec<_> =
        bench.head.slots().skip(1).map(|slot| (slot.id.clone(), slot.version)).collect();
    bench.end(changes.chars().next().unwrap(), "unit", Failure);
    let plans = bench.plans;
    while bench.plan_once().1 {
        assert!(bench.plans - plans < 10, "they do not come to an end");
    }
    assert!(bench.most_records <= RECORDS_MAX, "{}", bench.most_records);
    let after: Vec<_> =
        bench.head.slots().map(|slot| (slot.id.clone(), slot.version - 1)).collect();
    assert_eq!(after, before, "each was written once");
    for slot in bench.head.slots() {
        let item = &bench.items[&slot.id];
        assert_eq!((item.generation, item.jobs.len()), (slot.generation, 0));
        let why = &item.reasons.last().unwrap().text;
        assert!(why.starts_with("testing again on top of "), "{why}");
    }
}

/// G18, Z6.7: a queue halts while more builds are to be stopped than one plan holds; the resume
/// command is applied.
#[test]
fn a_halted_queue_with_many_builds_to_stop_applies_commands() {
    let (mut bench, changes) = long(150, 0, &["unit"]);
    bench.run();
    let named: Vec<char> = changes.chars().take(2).collect();
    bench.pass(&named[0].to_string());
    bench.run();
    bench.end_landing(LandingEnd::Mismatch {
        landed: Commit { id: "abc".into(), tree: "strange".into() },
    });
    bench.end(named[1], "unit", Failure);
    assert!(!bench.plan_once().1, "nothing moves in a halted queue");
    assert!(bench.head.halted.is_some());
    bench.resume();
    bench.run();
    assert_eq!(
        (bench.head.halted.as_ref(), bench.left.as_slice()),
        (None, &["a MERGE_FAILURE".to_owned()][..])
    );
    assert!(bench.most_records <= RECORDS_MAX, "{}", bench.most_records);
}

/// Z6.4: a text from outside never exceeds a record.
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

/// R01: a job that changes and changes back gets a new build each time.
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
    let ids: std::collections::BTreeSet<_> =
        bench.orders.iter().map(|order| order.build.clone()).collect();
    assert_eq!((bench.orders.len(), ids.len()), (3, 3));
}

/// Z6.1: a full pipeline reports so in Zuul's words to each refused change; a change that leaves
/// makes room.
#[test]
fn a_full_pipeline_reports_refused_changes() {
    let mut bench = Bench::gate(&["unit"]);
    bench.changes = Some(ChangesLimit { max: 4, in_other_queues: 1 });
    bench.approve("ABC");
    bench.approve_bundle("DE", "");
    bench.approve("F");
    bench.run();
    assert_eq!(bench.head.slots().count(), 3);
    let comments = bench.comments();
    let of_bundle = "Unable to enqueue change: 2 additional changes would exceed pipeline max of 4 under current conditions";
    let of_one = "Unable to enqueue change: 1 additional changes would exceed pipeline max of 4 under current conditions";
    assert_eq!(comments.iter().filter(|text| text.contains(of_bundle)).count(), 2);
    assert_eq!(comments.iter().filter(|text| text.contains(of_one)).count(), 1);
    bench.approve_bundle("GHIJK", "");
    bench.run();
    let text = "Unable to enqueue change: 5 changes to enqueue greater than pipeline max of 4";
    assert_eq!(bench.comments().iter().filter(|comment| comment.contains(text)).count(), 5);
    bench.finish();
    bench.approve("F");
    bench.finish();
    assert_eq!(bench.landed.last().map(String::as_str), Some("0ABCF"));
}

/// Z6.1: outside dependent pipelines the dependencies of a change count too.
#[test]
fn a_limit_counts_the_changes_that_others_are_tested_on() {
    let mut bench = Bench::new(Manager::Independent, &["unit"]);
    bench.changes = Some(ChangesLimit { max: 3, in_other_queues: 0 });
    bench.approve_needing('A', "B");
    bench.approve_needing('C', "D");
    bench.approve("E");
    bench.run();
    let here: Vec<u64> = bench.head.slots().filter_map(|slot| slot.change.key.number()).collect();
    assert_eq!(here, [u64::from(u32::from('A')), u64::from(u32::from('E'))]);
}

/// Z1.1: nodes go first to entries near the front of their queue, whichever asked first.
#[test]
fn node_requests_are_ordered_by_queue_position() {
    let (mut bench, _) = long(14, 20, &["unit"]);
    bench.run();
    let row = |at: usize| bench.orders[at].request.as_ref().unwrap().row.clone();
    let relative: Vec<String> = (0..14).map(|at| row(at)[4..8].to_owned()).collect();
    assert_eq!(relative[..3], ["0000", "0001", "0002"]);
    assert_eq!(relative[9..], ["0009", "0010", "0010", "0010", "0010"]);
}

/// Z6.7: the wait reasons of a hundred changes fit into plans.
#[test]
fn many_changes_held_back_by_a_job_ahead_fit_into_plans() {
    let (mut bench, changes) = long(120, 0, &["unit"]);
    let holding = |name: &str| JobSummary { hold_following_changes: true, ..job(name) };
    let first = changes.chars().next().unwrap();
    bench.own_jobs.insert(first, vec![holding("first"), holding("second")]);
    bench.run();
    assert_eq!(bench.under_way().len(), 2);
    bench.end(first, "first", Success);
    bench.run();
    let waits =
        bench.items.values().flat_map(|item| &item.jobs).filter_map(|job| job.waits_for.as_ref());
    assert_eq!(waits.filter(|waits| waits.to_string().ends_with("second")).count(), 119);
    assert!(bench.most_records <= RECORDS_MAX, "{}", bench.most_records);
}

/// Z6.7: the supersessions of many changes enqueued by one event do not fit into one transaction.
#[test]
fn very_many_changes_of_one_arrival_enter_in_plans_that_fit() {
    let mut bench = Bench::gate(&["unit"]);
    bench.pipeline.reporters.enqueue = bench.pipeline.reporters.failure.clone();
    bench.triggering_events = vec![ZuulEvent::ParentChangeEnqueued];
    let changes: Vec<char> = ('\u{4e00}'..='\u{4e1e}').collect();
    let candidates = changes.iter().map(|change| bench.candidate(*change, "")).collect();
    bench.deliver(InboxMessageKind::Enqueue { candidates });
    bench.run();
    assert_eq!(
        (bench.head.slots().count(), bench.inbox.len(), bench.emitted_events.len()),
        (31, 0, 31)
    );
    assert!(bench.most_records <= RECORDS_MAX, "{}", bench.most_records);
}

/// Z6.7, Z7.3: an executor is lost with more builds of one item than half a transaction holds,
/// while other items have results too.
#[test]
fn an_executor_that_dies_with_very_many_builds_is_observed_in_plans_that_fit() {
    let names: Vec<String> = (0..60).map(|number| format!("job-{number:02}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let (mut bench, _) = long(3, 20, &names);
    bench.run();
    for (_, _, build) in bench.under_way() {
        bench.runs.insert(build, ObservedBuild::Lost { why: "silent".to_owned() });
    }
    bench.run();
    assert_eq!((bench.orders.len(), bench.under_way().len()), (360, 180));
}
