//! Semaphores: never more holders than allowed, all or none, released when a build is known to be
//! over.

use super::bench::{Bench, after, job};
use crate::plan::ObservedBuild;
use crate::semaphore::{Semaphore, SemaphoreKey, SemaphoreWaiter};
use insta::assert_snapshot;
use sluice_model::build::BuildResult::{Aborted, Success};
use sluice_model::job::{JobSummary, SemaphoreUse};

pub fn holding(name: &str, semaphores: &[&str]) -> JobSummary {
    let used = |name: &&str| SemaphoreUse { name: (*name).to_owned(), resources_first: false };
    JobSummary { semaphores: semaphores.iter().map(used).collect(), ..job(name) }
}

fn bench(semaphores: &[&str]) -> Bench {
    let mut bench = Bench::gate(&[]);
    bench.jobs = vec![holding("deploy", semaphores)];
    bench
}

pub fn waiting_jobs(bench: &Bench) -> Vec<String> {
    let jobs = bench.items.values().flat_map(|item| item.jobs.iter().map(move |job| (item, job)));
    let waiting = jobs.filter_map(|(item, job)| Some((item, job.waits_for.clone()?)));
    waiting.map(|(item, name)| format!("{} waits for {name}", item.candidate.title)).collect()
}

/// N16: two changes never hold it at once; it is acquired before nodes are requested, and the
/// waiting one gives the reason.
#[test]
fn a_semaphore_of_one_is_held_by_one_build_at_a_time() {
    let mut bench = bench(&["lock"]);
    bench.approve("AB");
    assert_snapshot!(bench.run(), @r"
    run A deploy on 0A
    lock held by [A deploy]
    lock held by [A deploy]
    ");
    assert_eq!(waiting_jobs(&bench), ["B waits for semaphores: lock"]);
    bench.end('A', "deploy", Success);
    assert_snapshot!(bench.run(), @r"
    land A as 0A
    lock held by []
    run B deploy on 0AB
    lock held by [B deploy]
    ");
    assert_eq!(waiting_jobs(&bench), Vec::<String>::new());
    bench.finish();
    assert_eq!(bench.landed, ["0A", "0AB"]);
    assert!(
        bench.semaphores.values().all(|semaphore| semaphore.is_unused())
            && bench.head.semaphores.is_empty()
    );
}

/// Z4.3: as many builds as `max` hold it.
#[test]
fn a_semaphore_of_two_is_held_by_two() {
    let mut bench = bench(&["lock"]);
    bench.semaphore_max = 2;
    bench.approve("ABC");
    bench.run();
    assert_eq!(bench.under_way().len(), 2);
    bench.finish();
    assert_eq!(bench.landed.len(), 3);
}

/// Z4.3: a job that needs two acquires both or none, so that no two jobs wait for each other.
#[test]
fn a_job_takes_all_its_semaphores_or_none() {
    let mut bench = Bench::gate(&[]);
    bench.jobs = vec![
        holding("one", &["left"]),
        holding("both", &["left", "right"]),
        holding("other", &["right"]),
    ];
    bench.approve("A");
    assert_snapshot!(bench.run(), @r"
    run A one on 0A
    left held by [A one]
    right held by []
    ");
    assert_eq!(
        waiting_jobs(&bench),
        ["A waits for semaphores: left", "A waits for semaphores: right"]
    );
    bench.end('A', "one", Success);
    assert_snapshot!(bench.run(), @r"
    left held by []
    run A both on 0A
    left held by [A both]
    right held by [A both]
    ");
    bench.end('A', "both", Success);
    assert_snapshot!(bench.run(), @r"
    left held by []
    right held by []
    run A other on 0A
    right held by [A other]
    ");
    bench.finish();
    assert!(
        bench.semaphores.values().all(|semaphore| semaphore.is_unused())
            && bench.head.semaphores.is_empty()
    );
}

/// Returns a gate of this name whose changes need these semaphores.
pub fn of_queue(queue: &str, semaphores: &[&str]) -> Bench {
    let mut bench = bench(semaphores);
    bench.head.key.queue = queue.into();
    bench.queues = "ABCDE".chars().map(|change| (change, queue.to_owned())).collect();
    bench
}

/// Plans one queue with the semaphores that another one has written, a moment later.
pub fn plan_with_records_of(bench: &mut Bench, other: &Bench) -> String {
    bench.semaphores.clone_from(&other.semaphores);
    bench.now = bench.now.max(other.now).plus_millis(1);
    bench.run()
}

/// Z4.3, N16: a queue with many jobs lets a job of another queue go first that asked before.
#[test]
fn a_queue_that_asked_first_is_served_first() {
    let mut many = of_queue("many", &["lock"]);
    many.approve("AB");
    many.run();
    let mut one = of_queue("one", &["lock"]);
    one.now = many.now;
    one.approve("E");
    plan_with_records_of(&mut one, &many);
    many.semaphores.clone_from(&one.semaphores);
    many.now = one.now;
    many.approve("C");
    many.run();
    // A's build ends: B asked before E, E before C.
    many.end('A', "deploy", Success);
    assert!(many.run().contains("run B deploy"));
    plan_with_records_of(&mut one, &many);
    assert_eq!(one.orders.len(), 0);
    many.semaphores.clone_from(&one.semaphores);
    many.end('B', "deploy", Success);
    many.woken.clear();
    assert!(!many.run().contains("run C"), "the other queue's turn has come");
    assert_eq!(many.woken, [one.head.key.clone()]);
    assert!(plan_with_records_of(&mut one, &many).contains("run E deploy"));
    plan_with_records_of(&mut many, &one);
    one.semaphores.clone_from(&many.semaphores);
    one.end('E', "deploy", Success);
    one.woken.clear();
    one.run();
    assert_eq!(one.woken, [many.head.key.clone()]);
    assert!(plan_with_records_of(&mut many, &one).contains("run C deploy"));
}

/// Z4.3: a job that needs two semaphores gets them, however many later jobs need one.
#[test]
fn a_job_that_needs_several_semaphores_is_not_passed_by_for_ever() {
    let mut left = of_queue("left", &["left"]);
    left.approve("A");
    left.run();
    let mut both = of_queue("both", &["left", "right"]);
    both.now = left.now;
    both.approve("E");
    plan_with_records_of(&mut both, &left);
    let mut right = of_queue("right", &["right"]);
    right.now = both.now;
    right.approve("B");
    plan_with_records_of(&mut right, &both);
    assert_eq!(right.orders.len(), 0, "the free place is reserved for the earlier job");
    left.semaphores.clone_from(&right.semaphores);
    left.end('A', "deploy", Success);
    left.woken.clear();
    left.run();
    assert_eq!(left.woken, [both.head.key.clone()]);
    assert!(plan_with_records_of(&mut both, &left).contains("run E deploy"));
    plan_with_records_of(&mut right, &both);
    both.semaphores.clone_from(&right.semaphores);
    both.end('E', "deploy", Success);
    both.woken.clear();
    both.run();
    assert_eq!(both.woken, [right.head.key.clone()]);
    assert!(plan_with_records_of(&mut right, &both).contains("run B deploy"));
}

/// Z4.3: a place reserved for a job that is gone wakes the next in line.
#[test]
fn a_queue_that_steps_back_in_line_wakes_the_one_before_it() {
    let mut holder = of_queue("holder", &["lock"]);
    holder.approve("A");
    holder.run();
    let mut first = of_queue("first", &["lock"]);
    first.now = holder.now;
    first.approve("B");
    plan_with_records_of(&mut first, &holder);
    let mut second = of_queue("second", &["lock"]);
    second.now = first.now;
    second.approve("C");
    plan_with_records_of(&mut second, &first);
    first.approve("D");
    plan_with_records_of(&mut first, &second);
    holder.semaphores.clone_from(&first.semaphores);
    holder.end('A', "deploy", Success);
    holder.run();
    assert_eq!(holder.woken, [first.head.key.clone()]);
    first.update('B', Some("the change was closed"));
    first.woken.clear();
    plan_with_records_of(&mut first, &holder);
    assert_eq!((first.woken.as_slice(), first.orders.len()), (&[second.head.key.clone()][..], 0));
    assert!(plan_with_records_of(&mut second, &first).contains("run C deploy"));
}

/// Z4.3: the pipeline with the higher precedence comes first, whichever asked first.
#[test]
fn a_more_urgent_queue_is_served_before_one_that_asked_earlier() {
    let mut holder = of_queue("holder", &["lock"]);
    holder.approve("A");
    holder.run();
    let mut usual = of_queue("usual", &["lock"]);
    usual.now = holder.now;
    usual.approve("B");
    plan_with_records_of(&mut usual, &holder);
    let mut urgent = of_queue("urgent", &["lock"]);
    urgent.pipeline.precedence = sluice_model::wakeup::Precedence::High;
    urgent.now = usual.now;
    urgent.approve("C");
    plan_with_records_of(&mut urgent, &usual);
    holder.semaphores.clone_from(&urgent.semaphores);
    holder.end('A', "deploy", Success);
    holder.run();
    assert_eq!(holder.woken, [urgent.head.key.clone()]);
    plan_with_records_of(&mut usual, &holder);
    assert_eq!(usual.orders.len(), 0);
    assert!(plan_with_records_of(&mut urgent, &usual).contains("run C deploy"));
}

/// C2: no place is reserved for a queue that cannot come by its own records.
#[test]
fn a_queue_that_cannot_come_does_not_block_others() {
    let mut bench = of_queue("one", &["lock"]);
    let frozen = sluice_model::QueueKey { queue: "frozen".into(), ..bench.head.key.clone() };
    let key = SemaphoreKey { tenant: Some("t".into()), name: "lock".to_owned() };
    let waiting = vec![SemaphoreWaiter::new(&frozen, 200, sluice_model::Timestamp(1))];
    bench.semaphores.insert(key.clone(), Semaphore { waiting, ..Semaphore::new(key) });
    bench.approve("A");
    bench.run();
    assert_eq!(waiting_jobs(&bench), ["A waits for semaphores: lock"]);
    bench.blocked_queues.insert(frozen);
    assert_snapshot!(bench.run(), @r"
    run A deploy on 0A
    lock held by [A deploy]
    ");
}

/// Z4.3: dependents of a paused build take a free place, since those in line may wait for what it
/// holds.
#[test]
fn a_dependent_of_a_paused_build_does_not_wait_in_line() {
    let mut bench = Bench::gate(&[]);
    let registry = holding("registry", &["left"]);
    let dependent = JobSummary {
        dependencies: after("x", &["registry"]).dependencies,
        ..holding("dependent", &["right"])
    };
    bench.jobs = vec![registry, holding("both", &["left", "right"]), dependent];
    bench.approve("A");
    bench.run();
    bench.show(
        'A',
        "registry",
        ObservedBuild::Paused { started_at: None, data: serde_json::Map::new() },
    );
    assert!(bench.run().contains("run A dependent"));
    bench.end('A', "dependent", Success);
    bench.run();
    bench.end('A', "registry", Success);
    assert!(bench.run().contains("run A both"));
}

/// N17: a new revision gets it once the stopped build of the older one is known to be over.
#[test]
fn a_stopped_build_that_still_runs_keeps_its_semaphore() {
    let mut bench = bench(&["lock"]);
    bench.approve("A");
    bench.run();
    bench.show('A', "deploy", ObservedBuild::Running { started_at: None, pre_fail: false });
    bench.run();
    let (_, _, older) = bench.under_way().remove(0);
    bench.revise('A');
    bench.approve("A");
    assert_snapshot!(bench.run(), @r"
    stop A deploy
    A leaves: DEQUEUED
    lock held by [A deploy]
    lock held by [A deploy]
    ");
    assert_eq!(waiting_jobs(&bench), ["A waits for semaphores: lock"]);
    bench.run_ended(&older, Aborted);
    assert_snapshot!(bench.run(), @r"
    lock held by []
    run A deploy on 0A
    lock held by [A deploy]
    ");
    bench.finish();
    assert!(bench.semaphores.values().all(|semaphore| semaphore.is_unused()));
}

/// N17: a build that no executor had claimed releases it at once.
#[test]
fn a_build_that_was_stopped_before_it_began_holds_nothing() {
    let mut bench = bench(&["lock"]);
    bench.approve("A");
    bench.run();
    bench.update('A', Some("the change was closed"));
    bench.run();
    assert!(
        bench.semaphores.values().all(|semaphore| semaphore.is_unused())
            && bench.head.semaphores.is_empty()
    );
}

/// N16: a queue that waits is woken when a place becomes free.
#[test]
fn queues_that_wait_for_it_are_looked_at_when_it_is_given_back() {
    let mut bench = bench(&["lock"]);
    bench.approve("A");
    bench.run();
    let other = sluice_model::QueueKey { pipeline: "post".into(), ..bench.head.key.clone() };
    for semaphore in bench.semaphores.values_mut() {
        semaphore.waiting.push(SemaphoreWaiter::new(&other, 200, bench.now));
    }
    bench.end('A', "deploy", Success);
    bench.run();
    assert_eq!(bench.woken, [other]);
}

/// Z4.3: with `resources-first` nodes are requested at once, and the semaphore is acquired when
/// they are ready, in that order.
#[test]
fn a_semaphore_with_resources_first_is_taken_after_the_nodes() {
    let mut bench = bench(&["lock", "other"]);
    bench.jobs[0].semaphores[0].resources_first = true;
    bench.approve("AB");
    assert_snapshot!(bench.run(), @r"
    run A deploy on 0A
    run B deploy on 0AB
    ");
    assert!(bench.orders.iter().all(|order| order.nodes_first));
    bench.show('B', "deploy", ObservedBuild::NodesReady);
    assert_snapshot!(bench.run(), @r"
    send B deploy
    lock held by [B deploy]
    other held by [B deploy]
    ");
    bench.show('A', "deploy", ObservedBuild::NodesReady);
    assert_snapshot!(bench.run(), @r"
    lock held by [B deploy]
    other held by [B deploy]
    ");
    assert_eq!(waiting_jobs(&bench), ["A waits for semaphores: lock"]);
    // No executor claims the build: it is sent again, and keeps its semaphore.
    bench.now = bench.now.plus_seconds(1_000);
    assert_snapshot!(bench.run(), @"send B deploy");
    bench.show('B', "deploy", ObservedBuild::Running { started_at: None, pre_fail: false });
    bench.run();
    bench.end('B', "deploy", Success);
    assert_snapshot!(bench.run(), @r"
    lock held by []
    other held by []
    send A deploy
    lock held by [A deploy]
    other held by [A deploy]
    ");
    bench.finish();
    assert_eq!(bench.landed, ["0A", "0AB"]);
    assert!(bench.semaphores.values().all(|semaphore| semaphore.is_unused()));
}

/// Z4.3, Z1.8: a build with nodes and a holder that waits for nodes do not wait for each other
/// forever: the first releases its nodes, and continues with the semaphore in its turn.
#[test]
fn a_build_releases_its_nodes_if_all_semaphore_holders_are_idle() {
    let mut plain = of_queue("plain", &["lock"]);
    plain.approve("A");
    plain.run();
    let mut first = of_queue("first", &["lock"]);
    first.jobs[0].semaphores[0].resources_first = true;
    first.now = plain.now;
    first.approve("B");
    plan_with_records_of(&mut first, &plain);
    first.show('B', "deploy", ObservedBuild::NodesReady);
    first.run();
    assert_eq!(waiting_jobs(&first), ["B waits for semaphores: lock"]);
    // A holder may run as long as it takes, and may wait for machines as long as they take to
    // start.
    first.now = first.now.plus_seconds(3_600);
    assert_eq!(first.run(), "");
    first.idle_holders.insert(plain.orders[0].build.clone(), first.now);
    first.now = first.now.plus_seconds(299);
    assert_eq!(first.run(), "");
    first.now = first.now.plus_seconds(1);
    assert_snapshot!(first.run(), @r"
    stop B deploy
    lock held by []
    ");
    let reasons = &first.items.values().next().unwrap().reasons;
    let reasons = reasons.iter().map(|one| one.text.as_str()).collect::<Vec<_>>().join("\n");
    assert!(
        reasons.contains("deploy: it releases its nodes: the holder of the semaphore lock"),
        "{reasons}"
    );
    assert_eq!(waiting_jobs(&first), ["B waits for semaphores: lock"]);
    plain.semaphores.clone_from(&first.semaphores);
    plain.now = first.now;
    plain.end('A', "deploy", Success);
    plain.woken.clear();
    plain.run();
    assert_eq!(plain.woken, [first.head.key.clone()]);
    assert!(plan_with_records_of(&mut first, &plain).contains("lock held by [B deploy]"));
    let order = first.orders.last().unwrap();
    assert_eq!((first.orders.len(), order.nodes_first, order.attempt), (2, false, 1));
}

/// Z4.3: if one of several holders is running, its place becomes free: the nodes are kept for that.
#[test]
fn a_build_keeps_its_nodes_while_a_semaphore_holder_is_running() {
    let mut plain = of_queue("plain", &["lock"]);
    plain.semaphore_max = 2;
    plain.approve("AC");
    plain.run();
    let mut first = of_queue("first", &["lock"]);
    (first.semaphore_max, first.now) = (2, plain.now);
    first.jobs[0].semaphores[0].resources_first = true;
    first.approve("B");
    plan_with_records_of(&mut first, &plain);
    first.show('B', "deploy", ObservedBuild::NodesReady);
    first.run();
    first.idle_holders.insert(plain.orders[0].build.clone(), first.now);
    first.now = first.now.plus_seconds(3_600);
    assert_eq!(first.run(), "");
    first.idle_holders.insert(plain.orders[1].build.clone(), first.now);
    first.now = first.now.plus_seconds(300);
    assert!(first.run().contains("stop B deploy"));
}

/// Z4.3, Z1.8: nodes kept for a build that is not sent are missing for the first change.
#[test]
fn a_build_that_has_its_nodes_is_sent_though_the_window_closed_before_it() {
    let mut bench = bench(&["lock"]);
    bench.jobs[0].semaphores[0].resources_first = true;
    bench.approve("AB");
    bench.run();
    bench.head.window = 1;
    bench.show('B', "deploy", ObservedBuild::NodesReady);
    assert_snapshot!(bench.run(), @r"
    send B deploy
    lock held by [B deploy]
    ");
    bench.show('A', "deploy", ObservedBuild::NodesReady);
    assert_snapshot!(bench.run(), @"lock held by [B deploy]");
    bench.end('B', "deploy", Success);
    assert_snapshot!(bench.run(), @r"
    lock held by []
    send A deploy
    lock held by [A deploy]
    ");
}

/// Z4.3: `resources-first` means nothing for a job without nodes.
#[test]
fn without_nodes_a_semaphore_is_taken_before_the_build_is_ordered() {
    let mut bench = bench(&["lock"]);
    bench.jobs[0].semaphores[0].resources_first = true;
    bench.jobs[0].labels = vec![Vec::new()];
    bench.approve("AB");
    assert_snapshot!(bench.run(), @r"
    run A deploy on 0A
    lock held by [A deploy]
    lock held by [A deploy]
    ");
}
