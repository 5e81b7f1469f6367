//! Lines for semaphores: which queue is woken for a free place, and that no job is overtaken
//! forever, with nodes or without.

use super::bench::{Bench, after};
use super::semaphores::{holding, of_queue, plan_with_records_of, waiting_jobs};
use crate::plan::ObservedBuild;
use crate::semaphore::{Semaphore, SemaphoreKey, SemaphoreWaiter};
use sluice_model::build::BuildResult::Success;
use sluice_model::job::JobSummary;
use sluice_model::{QueueKey, Timestamp};

/// Returns a queue whose change holds the semaphore `lock`, and queues that wait for it, in order.
fn waiting(names: &[&str]) -> (Bench, Vec<Bench>) {
    let mut holder = of_queue("holder", &["lock"]);
    holder.approve("A");
    holder.run();
    let mut all: Vec<Bench> = Vec::new();
    for name in names {
        let mut bench = of_queue(name, &["lock"]);
        let before = all.last().unwrap_or(&holder);
        bench.now = before.now;
        bench.approve("B");
        plan_with_records_of(&mut bench, before);
        assert_eq!(bench.orders.len(), 0);
        all.push(bench);
    }
    if let Some(last) = all.last() {
        holder.semaphores.clone_from(&last.semaphores);
        holder.now = last.now;
    }
    (holder, all)
}

fn keys(benches: &[Bench]) -> Vec<QueueKey> {
    benches.iter().map(|bench| bench.head.key.clone()).collect()
}

/// Returns a gate whose change acquires its semaphores after its nodes.
fn laden(queue: &str, semaphores: &[&str]) -> Bench {
    let mut bench = of_queue(queue, semaphores);
    bench.jobs[0].semaphores[0].resources_first = true;
    bench
}

/// Z4.3: after `max` was raised, as many queues are woken as there are places.
#[test]
fn as_many_queues_are_woken_as_places_are_free() {
    let (mut holder, mut all) = waiting(&["first", "second", "third", "fourth"]);
    holder.semaphore_max = 3;
    holder.end('A', "deploy", Success);
    holder.run();
    assert_eq!(holder.woken, keys(&all[..3]));
    let mut before = holder;
    for mut bench in all.drain(..3) {
        bench.semaphore_max = 3;
        assert!(plan_with_records_of(&mut bench, &before).contains("run B deploy"));
        before = bench;
    }
    let fourth = &mut all[0];
    fourth.semaphore_max = 3;
    assert!(!plan_with_records_of(fourth, &before).contains("run B deploy"));
}

/// Z4.3: after `max` was lowered, no queue is woken in vain.
#[test]
fn no_queue_is_woken_if_no_place_is_left() {
    let (mut holder, _) = waiting(&["first"]);
    let semaphore = holder.semaphores.values_mut().next().unwrap();
    let mut other = semaphore.holders[0].clone();
    (other.queue.queue, other.build) = ("elsewhere".into(), "another".into());
    semaphore.holders.push(other);
    holder.end('A', "deploy", Success);
    holder.run();
    let semaphore = holder.semaphores.values().next().unwrap();
    assert_eq!((semaphore.holders.len(), semaphore.waiting.len()), (1, 1));
    assert_eq!(holder.woken, Vec::<QueueKey>::new());
}

/// C2: queues that cannot come get no place and are not woken.
#[test]
fn a_queue_that_cannot_come_is_skipped_for_the_next() {
    let (mut holder, mut all) = waiting(&["first", "second", "third"]);
    holder.blocked_queues.insert(all[0].head.key.clone());
    holder.end('A', "deploy", Success);
    holder.run();
    assert_eq!(holder.woken, [all[1].head.key.clone()]);
    let mut second = all.remove(1);
    second.blocked_queues.insert(all[0].head.key.clone());
    assert!(plan_with_records_of(&mut second, &holder).contains("run B deploy"));
    // A queue that comes back is in line as before.
    let first = &mut all[0];
    plan_with_records_of(first, &second);
    assert_eq!(waiting_jobs(first), ["B waits for semaphores: lock"]);
    second.semaphores.clone_from(&first.semaphores);
    second.end('B', "deploy", Success);
    second.woken.clear();
    second.blocked_queues.clear();
    second.run();
    assert_eq!(second.woken, std::slice::from_ref(&first.head.key));
}

/// Z4.3: a job without nodes that asked first comes before later ones with nodes, which may not
/// request nodes until then. One that had requested nodes before goes first.
#[test]
fn a_job_without_nodes_is_not_passed_for_ever_by_those_that_come_with_theirs() {
    let mut holder = of_queue("holder", &["lock"]);
    holder.approve("A");
    holder.run();
    let mut early = laden("early", &["lock"]);
    early.now = holder.now;
    early.approve("C");
    assert!(
        plan_with_records_of(&mut early, &holder).contains("run C deploy"),
        "its nodes are asked for at once"
    );
    let mut plain = of_queue("plain", &["lock"]);
    plain.now = early.now;
    plain.approve("B");
    plan_with_records_of(&mut plain, &holder);
    let mut late = laden("late", &["lock"]);
    late.now = plain.now;
    late.approve("D");
    assert_eq!(
        plan_with_records_of(&mut late, &plain).matches("run").count(),
        0,
        "a job without nodes asked before it"
    );
    assert_eq!(waiting_jobs(&late), ["D waits for semaphores: lock"]);
    early.show('C', "deploy", ObservedBuild::NodesReady);
    plan_with_records_of(&mut early, &late);
    assert_eq!(waiting_jobs(&early), ["C waits for semaphores: lock"]);

    // The holder ends: the job that asked first has its nodes.
    holder.semaphores.clone_from(&early.semaphores);
    holder.now = early.now;
    holder.end('A', "deploy", Success);
    holder.run();
    assert_eq!(holder.woken, [early.head.key.clone()]);
    assert!(
        !plan_with_records_of(&mut plain, &holder).contains("run B"),
        "the place is reserved for the job with nodes"
    );
    assert!(plan_with_records_of(&mut early, &plain).contains("send C deploy"));
    // It ends, and the job without nodes is next.
    plan_with_records_of(&mut late, &early);
    early.semaphores.clone_from(&late.semaphores);
    early.end('C', "deploy", Success);
    early.woken.clear();
    early.run();
    assert_eq!(early.woken, [plain.head.key.clone()]);
    assert_eq!(plan_with_records_of(&mut late, &early).matches("run").count(), 0);
    assert!(plan_with_records_of(&mut plain, &late).contains("run B deploy"));
    // No job without nodes is before the last one any more.
    assert!(plan_with_records_of(&mut late, &plain).contains("run D deploy"));
    late.show('D', "deploy", ObservedBuild::NodesReady);
    plan_with_records_of(&mut late, &plain);
    assert_eq!(waiting_jobs(&late), ["D waits for semaphores: lock"]);
    plain.semaphores.clone_from(&late.semaphores);
    plain.end('B', "deploy", Success);
    plain.run();
    assert!(plan_with_records_of(&mut late, &plain).contains("send D deploy"));
}

/// Z4.3: idle nodes may be what others wait for: a job that got its nodes before it could know of
/// the other takes a free place.
#[test]
fn a_build_with_nodes_does_not_wait_for_jobs_without() {
    let mut holder = of_queue("holder", &["lock"]);
    holder.approve("A");
    holder.run();
    let mut plain = of_queue("plain", &["lock"]);
    plain.now = holder.now;
    plain.approve("B");
    plan_with_records_of(&mut plain, &holder);
    let mut racing = laden("racing", &["lock"]);
    racing.now = plain.now.plus_millis(5);
    racing.approve("C");
    assert!(
        plan_with_records_of(&mut racing, &holder).contains("run C deploy"),
        "it read the line before the other joined it"
    );
    racing.show('C', "deploy", ObservedBuild::NodesReady);
    holder.semaphores.clone_from(&plain.semaphores);
    holder.now = racing.now;
    holder.end('A', "deploy", Success);
    holder.run();
    assert!(plan_with_records_of(&mut racing, &holder).contains("send C deploy"));
}

/// Z4.3: among jobs with nodes the first comes first too: one that needs several semaphores is not
/// overtaken forever.
#[test]
fn a_build_with_nodes_that_needs_several_semaphores_is_not_passed_by_those_that_need_one() {
    let mut right = of_queue("right", &["right"]);
    right.approve("A");
    right.run();
    let mut both = laden("both", &["left", "right"]);
    both.now = right.now;
    both.approve("B");
    plan_with_records_of(&mut both, &right);
    both.show('B', "deploy", ObservedBuild::NodesReady);
    plan_with_records_of(&mut both, &right);
    assert_eq!(waiting_jobs(&both), ["B waits for semaphores: right"]);
    let mut left = laden("left", &["left"]);
    left.now = both.now;
    left.approve("C");
    plan_with_records_of(&mut left, &both);
    left.show('C', "deploy", ObservedBuild::NodesReady);
    plan_with_records_of(&mut left, &both);
    assert_eq!(
        waiting_jobs(&left),
        ["C waits for semaphores: left"],
        "the free place is reserved for the earlier job"
    );
    right.semaphores.clone_from(&left.semaphores);
    right.end('A', "deploy", Success);
    right.run();
    assert_eq!(right.woken, [both.head.key.clone()]);
    assert!(plan_with_records_of(&mut both, &right).contains("send B deploy"));
    plan_with_records_of(&mut left, &both);
    both.semaphores.clone_from(&left.semaphores);
    both.end('B', "deploy", Success);
    both.woken.clear();
    both.run();
    assert_eq!(both.woken, [left.head.key.clone()]);
    assert!(plan_with_records_of(&mut left, &both).contains("send C deploy"));
}

/// Returns a semaphore with a waiter that says nothing about nodes.
fn old_line(name: &str, other: &QueueKey) -> (SemaphoreKey, Semaphore) {
    let key = SemaphoreKey { tenant: Some("t".into()), name: name.to_owned() };
    let waiting = vec![SemaphoreWaiter::new(other, 200, Timestamp(1))];
    (key.clone(), Semaphore { waiting, ..Semaphore::new(key) })
}

/// Z4.3, C2: a waiter that says nothing about nodes counts as one without, for one place. Others
/// request nodes if there is another place, or if that waiter cannot come.
#[test]
fn a_job_requests_nodes_if_earlier_jobs_leave_a_place() {
    for (max, is_gone, is_asking) in [(1, false, false), (1, true, true), (2, false, true)] {
        let mut bench = laden("one", &["lock"]);
        bench.semaphore_max = max;
        let other = QueueKey { queue: "other".into(), ..bench.head.key.clone() };
        bench.semaphores.extend([old_line("lock", &other)]);
        bench.blocked_queues.extend(is_gone.then_some(other));
        bench.approve("A");
        bench.run();
        let line = (!is_asking).then(|| "A waits for semaphores: lock".to_owned());
        let (orders, waiting) = (usize::from(is_asking), line.into_iter().collect::<Vec<_>>());
        assert_eq!(
            (bench.orders.len(), waiting_jobs(&bench)),
            (orders, waiting),
            "max {max}, gone: {is_gone}"
        );
    }
}

/// Z4.3: a job of an item with a paused build requests nodes at once: jobs before it may wait
/// for what that build holds.
#[test]
fn a_dependent_of_a_paused_build_requests_nodes_at_once() {
    let mut bench = Bench::gate(&[]);
    let registry = holding("registry", &["left"]);
    let needs = after("x", &["registry"]).dependencies;
    let mut dependent = JobSummary { dependencies: needs, ..holding("dependent", &["right"]) };
    dependent.semaphores[0].resources_first = true;
    bench.jobs = vec![registry, dependent];
    bench.approve("A");
    bench.run();
    let other = QueueKey { queue: "other".into(), ..bench.head.key.clone() };
    bench.semaphores.extend([old_line("right", &other)]);
    bench.show(
        'A',
        "registry",
        ObservedBuild::Paused { started_at: None, data: serde_json::Map::new() },
    );
    assert!(bench.run().contains("run A dependent"));
}

/// N16: the stored form of a place in line.
#[test]
fn a_waiter_records_whether_it_has_nodes() {
    let (mut holder, all) = waiting(&["first"]);
    let waiter = holder.semaphores.values().next().unwrap().waiting[0].clone();
    assert_eq!(
        (waiter.waiting_since.without_nodes, waiter.waiting_since.with_nodes),
        (Some(waiter.since), None)
    );
    let text = serde_json::to_string(&waiter).unwrap();
    assert!(text.contains("\"since\"") && !text.contains("with_nodes\":null"), "{text}");
    assert_eq!(serde_json::from_str::<SemaphoreWaiter>(&text).unwrap(), waiter);
    holder.end('A', "deploy", Success);
    holder.run();
    assert_eq!(holder.woken, keys(&all));
}
